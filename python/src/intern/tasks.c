/* Finds the asyncio task that runs a coroutine, or that a callback of a loop steps.
 *
 * Each step of a task is a slice of its coroutine: a call, a resume or a throw. Event loops keep the
 * tasks that they step at this moment in one dictionary, asyncio.tasks._current_tasks (from 3.14 on each
 * thread has its own). The task whose coroutine runs in the frame is the one to find, so no hook of
 * asyncio is needed. Slices of coroutines that are only awaited have no task of their own: they are
 * inside of a slice that has one.
 *
 * The name of a task is kept as text. Most programs leave names to asyncio, which numbers the tasks. So
 * only a limited number of names is kept: otherwise the table of strings would grow as long as a service
 * runs. */
#include "tasks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "intern.h"
#include "names.h"

/* Names of tasks that are kept, at about 100 bytes each. */
#define TASK_LIMIT (UINT32_C(1) << 18)
#define NAME_BYTES 256
/* Of coroutines that await each other. */
#define DEPTH_LIMIT 200

/* asyncio's Task in C is read as memory, because its getters allocate (3.13 makes the name when it is first
 * asked for, and that would be recorded as the program's). The name follows the coroutine. */
static _Atomic(PyTypeObject *) c_task;
static _Atomic size_t coroutine_offset;    /* in it; 0: not found */
static _Atomic(PyTypeObject *) python_task;

/* From first sight on; names keep code objects alive. */
static _Atomic(const PyCodeObject *) loop_codes[EP_LOOP_CODE_COUNT];

/* {loop: task}; NULL: asyncio is not imported yet. From 3.14 on it has only tasks written in Python. */
static _Atomic(PyObject *) current_tasks;
/* From 3.14 on: a builtin function that gives the thread's task in C. NULL: not needed. */
static _Atomic(PyObject *) current_task;
static PyObject *str_module, *str_current_tasks, *str_current_task;
static PyObject *str_c_task, *str_python_task, *str_coroutine, *str_name;
static PyObject *str_cr_await, *str_gi_yieldfrom;
static _Atomic uint32_t name_count, more_tasks;
/* The result of the last search, on any thread: 1 + string id. Relaxed: the string is compared. */
static _Atomic uint32_t last_task;

int
ep_py_tasks_init(void)
{
    str_module = PyUnicode_InternFromString("asyncio.tasks");
    str_current_tasks = PyUnicode_InternFromString("_current_tasks");
    str_current_task = PyUnicode_InternFromString("current_task");
    str_c_task = PyUnicode_InternFromString("_CTask");
    str_python_task = PyUnicode_InternFromString("_PyTask");
    str_coroutine = PyUnicode_InternFromString("_coro");
    str_name = PyUnicode_InternFromString("_name");
    str_cr_await = PyUnicode_InternFromString("cr_await");
    str_gi_yieldfrom = PyUnicode_InternFromString("gi_yieldfrom");
    bool made = str_module && str_current_tasks && str_current_task && str_c_task && str_python_task &&
                str_coroutine && str_name && str_cr_await && str_gi_yieldfrom;
    return made ? 0 : -1;
}

/* False: there is no asyncio, and so there are no tasks. */
static bool
find_asyncio(void)
{
    PyObject *modules = ep_py_modules();
    PyObject *module = modules != NULL ? ep_py_dict_get(modules, str_module) : NULL;
    PyObject *dict = module != NULL && PyModule_Check(module) ? PyModule_GetDict(module) : NULL;
    PyObject *tasks = dict != NULL ? ep_py_dict_get(dict, str_current_tasks) : NULL;
    if (tasks == NULL || !PyDict_CheckExact(tasks)) {
        Py_XDECREF(tasks);    /* it is being imported */
        Py_XDECREF(module);
        return false;
    }
    /* Never released. Two threads at once find the same objects. */
    PyObject *type = ep_py_dict_get(dict, str_c_task);
    if (type != NULL && PyType_Check(type)) {
        atomic_store_explicit(&c_task, (PyTypeObject *)type, memory_order_relaxed);
    }
    type = ep_py_dict_get(dict, str_python_task);
    if (type != NULL && PyType_Check(type)) {
        atomic_store_explicit(&python_task, (PyTypeObject *)type, memory_order_relaxed);
    }
#if EP_HAS_CURRENT_TASK
    PyObject *function = ep_py_dict_get(dict, str_current_task);
    if (function != NULL && PyCFunction_CheckExact(function)) {
        atomic_store_explicit(&current_task, function, memory_order_relaxed);
    }
#endif
    /* Release, and last: pairs with ep_py_task_of(). */
    atomic_store_explicit(&current_tasks, tasks, memory_order_release);
    Py_DECREF(module);
    return true;
}

#define WORD_AT(object, offset) (*(PyObject *const *)(void *)((char *)(object) + (offset)))

/* Finds where a C task keeps its coroutine: the word that is equal to the result of its getter. */
static void
find_offset(PyObject *task)
{
    PyObject *coroutine = PyObject_GenericGetAttr(task, str_coroutine);
    size_t end = (size_t)atomic_load_explicit(&c_task, memory_order_relaxed)->tp_basicsize -
                 2 * sizeof(PyObject *);
    for (size_t at = sizeof(PyObject); coroutine != NULL && at <= end; at += sizeof(PyObject *)) {
        if (WORD_AT(task, at) == coroutine) {
            atomic_store_explicit(&coroutine_offset, at, memory_order_relaxed);
            break;
        }
    }
    Py_XDECREF(coroutine);
}

/* The offset of the coroutine in a C task; 0: it is not a C task, or the offset is unknown. */
static size_t
offset_in(PyObject *task)
{
    PyTypeObject *type = atomic_load_explicit(&c_task, memory_order_relaxed);
    if (type == NULL || !PyObject_TypeCheck(task, type)) {
        return 0;
    }
    if (EP_UNLIKELY(atomic_load_explicit(&coroutine_offset, memory_order_relaxed) == 0)) {
        find_offset(task);
    }
    return atomic_load_explicit(&coroutine_offset, memory_order_relaxed);
}

/* Borrowed from the task. */
static PyObject *
coroutine_of(PyObject *task)
{
    size_t offset = offset_in(task);
    if (offset != 0) {
        return WORD_AT(task, offset);
    }
    PyObject *own = PyObject_GenericGetAttr(task, str_coroutine);
    Py_XDECREF(own);    /* the task has another reference */
    return own;
}

/* The task may be another thread's, which may release it: the caller holds a reference. */
static bool
runs(PyObject *task, const PyObject *coroutine)
{
    return coroutine_of(task) == coroutine;
}

/* 1 + string id; 0: no memory. */
static uint32_t
string_of(ep_text text)
{
    /* One task often takes many steps in a row. Read once, because another thread may change it. */
    uint32_t task = atomic_load_explicit(&last_task, memory_order_relaxed);
    if (task != 0) {
        ep_text last = ep_string_get(task - 1);
        if (last.bytes == text.bytes && memcmp(last.at, text.at, text.bytes) == 0) {
            return task;
        }
    }
    size_t before = ep_string_count();
    if (atomic_load_explicit(&name_count, memory_order_relaxed) >= TASK_LIMIT) {
        task = atomic_load_explicit(&more_tasks, memory_order_relaxed);
        if (task == 0) {
            static const char other[] = "another task";
            task = ep_string_add((ep_text){other, sizeof other - 1}) + 1;
            atomic_store_explicit(&more_tasks, task, memory_order_relaxed);
        }
        return task;
    }
    task = ep_string_add(text) + 1;
    atomic_store_explicit(&last_task, task, memory_order_relaxed);
    if (task > before) {
        atomic_fetch_add_explicit(&name_count, 1, memory_order_relaxed);
    }
    return task;
}

static uint32_t
name_of(PyObject *task)
{
    size_t offset = offset_in(task);
    PyObject *name = offset != 0 ? Py_XNewRef(WORD_AT(task, offset + sizeof(PyObject *)))
                                 : PyObject_GenericGetAttr(task, str_name);
    char stack[NAME_BYTES], *heap = NULL;
    ep_text text = {NULL, 0};
    if (name != NULL && PyLong_CheckExact(name)) {
        /* The name was not asked for yet. */
        int bytes = snprintf(stack, sizeof stack, "Task-%lld", PyLong_AsLongLong(name));
        text = (ep_text){stack, (size_t)bytes};
    } else if (name != NULL) {
        text = ep_py_text(name, stack, sizeof stack, &heap);
    }
    uint32_t string = text.at != NULL ? string_of(text) : 0;
    free(heap);
    Py_XDECREF(name);
    return string;
}

/* Searches the tasks that loops step now, on all threads. */
static uint32_t
find_in(PyObject *tasks, const PyObject *coroutine, uintptr_t *address)
{
    PyObject *loop, *task;
    Py_ssize_t at = 0;
    bool found = false;
    uint32_t name = 0;
    EP_BEGIN_OBJECT(tasks);
    while (!found && PyDict_Next(tasks, &at, &loop, &task)) {
        /* With a reference: without the GIL, reading a task in Python may let other threads change the
         * dictionary. The task that is found is being stepped, so this is not its last reference. */
        Py_INCREF(task);
        found = runs(task, coroutine);
        if (found) {
            name = name_of(task);
            *address = (uintptr_t)task;
        }
        Py_DECREF(task);
    }
    EP_END_OBJECT();
    return name;
}

/* {loop: task}; NULL: there is no asyncio. */
static PyObject *
tasks_of_loops(void)
{
    /* Acquire; pairs with find_asyncio(). */
    PyObject *tasks = atomic_load_explicit(&current_tasks, memory_order_acquire);
    if (tasks == NULL && find_asyncio()) {
        tasks = atomic_load_explicit(&current_tasks, memory_order_acquire);
    }
    return tasks;
}

uint32_t
ep_py_task_of(ep_frame *frame, uintptr_t *address)
{
    *address = 0;
    PyObject *coroutine = ep_frame_generator(frame);
    PyObject *tasks = coroutine != NULL ? tasks_of_loops() : NULL;
    if (tasks == NULL) {
        return 0;
    }
    uint32_t name = find_in(tasks, coroutine, address);
    PyObject *function = atomic_load_explicit(&current_task, memory_order_relaxed);
    if (*address != 0 || function == NULL) {
        return name;
    }
    PyObject *task = PyObject_CallNoArgs(function);
    if (task != NULL && task != Py_None && runs(task, coroutine)) {
        name = name_of(task);
        *address = (uintptr_t)task;
    }
    Py_XDECREF(task);
    PyErr_Clear();    /* no loop runs */
    return name;
}

/* ---- Callbacks of loops ------------------------------------------------------------------------ */

void
ep_py_look_for_loop_code(PyCodeObject *code, PyObject *module)
{
    static const char *const names[EP_LOOP_CODE_COUNT] = {
        [EP_LOOP_CALLBACK] = "Handle.__init__",
        [EP_LOOP_TIMER] = "TimerHandle.__init__",
        [EP_LOOP_RUN] = "Handle._run"};
    if (module == NULL || !PyUnicode_Check(module) ||
        PyUnicode_CompareWithASCIIString(module, "asyncio.events") != 0) {
        return;
    }
    for (int i = EP_LOOP_OTHER + 1; i < EP_LOOP_CODE_COUNT; i++) {
        if (PyUnicode_CompareWithASCIIString(code->co_qualname, names[i]) == 0) {
            atomic_store_explicit(&loop_codes[i], code, memory_order_relaxed);
        }
    }
}

ep_py_loop_code
ep_py_loop_code_of(const PyCodeObject *code)
{
    int i = EP_LOOP_CODE_COUNT - 1;
    while (i > EP_LOOP_OTHER && atomic_load_explicit(&loop_codes[i], memory_order_relaxed) != code) {
        i--;
    }
    return (ep_py_loop_code)i;
}

bool
ep_py_is_task(PyObject *object)
{
    PyTypeObject *in_c = atomic_load_explicit(&c_task, memory_order_relaxed);
    PyTypeObject *in_python = atomic_load_explicit(&python_task, memory_order_relaxed);
    return (in_c != NULL && PyObject_TypeCheck(object, in_c)) ||
           (in_python != NULL && PyObject_TypeCheck(object, in_python));
}

/* A bound method of a task in Python. */
static PyObject *
task_of_method(PyObject *method, bool *awaits)
{
    PyObject *function = PyMethod_GET_FUNCTION(method);
    if (!PyFunction_Check(function)) {
        return NULL;
    }
    PyObject *name = ((PyCodeObject *)PyFunction_GET_CODE(function))->co_name;
    *awaits = PyUnicode_CompareWithASCIIString(name, "__wakeup") == 0;
    bool steps = *awaits || PyUnicode_CompareWithASCIIString(name, "__step") == 0;
    return steps ? PyMethod_GET_SELF(method) : NULL;
}

/* The type is not in the module's dictionary. From 3.12 on its name begins with that of the module. */
static bool
is_step_wrapper(PyObject *callback)
{
    const char *dot = strrchr(Py_TYPE(callback)->tp_name, '.');
    return strcmp(dot != NULL ? dot + 1 : Py_TYPE(callback)->tp_name, "TaskStepMethWrapper") == 0;
}

PyObject *
ep_py_task_of_callback(PyObject *callback, bool *awaits)
{
    PyObject *task = NULL;
    *awaits = false;
    if (PyMethod_Check(callback)) {
        task = task_of_method(callback, awaits);
    } else if (PyCFunction_CheckExact(callback)) {
        *awaits = strcmp(((PyCFunctionObject *)callback)->m_ml->ml_name, "task_wakeup") == 0;
        task = *awaits ? PyCFunction_GET_SELF(callback) : NULL;
    } else if (is_step_wrapper(callback)) {
        task = WORD_AT(callback, sizeof(PyObject));    /* its first member */
    }
    return task != NULL && tasks_of_loops() != NULL && ep_py_is_task(task) ? task : NULL;
}

/* What a suspended generator or coroutine waits for, if that is one, too. Borrowed from it. */
static PyObject *
generator_inside(PyObject *generator)
{
    PyObject *inner = PyObject_GenericGetAttr(
        generator, PyCoro_CheckExact(generator) ? str_cr_await : str_gi_yieldfrom);
    bool is_one = inner != NULL && (PyCoro_CheckExact(inner) || PyGen_CheckExact(inner));
    Py_XDECREF(inner);    /* the frame has another reference */
    return is_one ? inner : NULL;
}

ep_frame *
ep_py_frame_of_task(PyObject *task)
{
    PyObject *innermost = NULL, *next = coroutine_of(task);
    if (next != NULL && !PyCoro_CheckExact(next) && !PyGen_CheckExact(next)) {
        return NULL;
    }
    for (int depth = 0; next != NULL && depth < DEPTH_LIMIT; depth++) {
        innermost = next;
        next = generator_inside(innermost);
    }
    ep_frame *frame =
        innermost != NULL ? (ep_frame *)((char *)innermost + EP_GENERATOR_FRAME) : NULL;
    return frame != NULL && ep_py_sites_usable && ep_frame_is_suspended(frame) ? frame : NULL;
}
