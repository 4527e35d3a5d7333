/* Which asyncio task runs a coroutine.
 *
 * Each step of a task is a slice of its coroutine: a call, a resume or a throw. The loops keep the
 * tasks that they step at this moment in one dictionary, asyncio.tasks._current_tasks (from 3.14 on
 * each thread has its own); the one whose coroutine is the frame's is what we look for. So no hook of
 * asyncio's is needed, and slices of coroutines that are merely awaited have no task of their own:
 * they lie in one that has.
 *
 * A name is kept as text. Most programs leave it to asyncio, which counts, so there is an end to how
 * many are kept: the table of strings would grow as long as a service runs. */
#include "tasks.h"

#include <stdio.h>
#include <stdlib.h>

#include "intern.h"
#include "names.h"

/* Names of tasks that are kept, at about 100 bytes each. */
#define TASK_LIMIT (UINT32_C(1) << 18)
#define NAME_BYTES 256

/* Of asyncio's Task in C: read as memory, because its getters allocate (3.13 makes the name when it is
 * first asked for, and the program would be seen to have asked). The name follows the coroutine. */
static PyTypeObject *c_task;
static size_t coroutine_offset;    /* in it; 0: not found */

/* {loop: task}; NULL: asyncio is not there yet. From 3.14 on of tasks in Python alone. */
static PyObject *current_tasks;
/* From 3.14 on: a builtin function that gives the thread's task in C. NULL: not needed. */
static PyObject *current_task;
static PyObject *str_module, *str_current_tasks, *str_current_task;
static PyObject *str_c_task, *str_coroutine, *str_name;
static uint32_t name_count, more_tasks;
static uint32_t last_task;         /* of the last look: 1 + string id */

int
ep_py_tasks_init(void)
{
    str_module = PyUnicode_InternFromString("asyncio.tasks");
    str_current_tasks = PyUnicode_InternFromString("_current_tasks");
    str_current_task = PyUnicode_InternFromString("current_task");
    str_c_task = PyUnicode_InternFromString("_CTask");
    str_coroutine = PyUnicode_InternFromString("_coro");
    str_name = PyUnicode_InternFromString("_name");
    bool made = str_module && str_current_tasks && str_current_task && str_c_task && str_coroutine &&
                str_name;
    return made ? 0 : -1;
}

/* False: there is no asyncio, and so there are no tasks. */
static bool
find_asyncio(void)
{
    PyObject *modules = PyImport_GetModuleDict();
    PyObject *module = modules != NULL ? PyDict_GetItemWithError(modules, str_module) : NULL;
    if (module == NULL || !PyModule_Check(module)) {
        return false;
    }
    PyObject *dict = PyModule_GetDict(module);
    PyObject *tasks = PyDict_GetItemWithError(dict, str_current_tasks);
    PyObject *type = PyDict_GetItemWithError(dict, str_c_task);
    if (tasks == NULL || !PyDict_CheckExact(tasks)) {
        return false;    /* it is being imported */
    }
    current_tasks = Py_NewRef(tasks);
    if (type != NULL && PyType_Check(type)) {
        c_task = (PyTypeObject *)Py_NewRef(type);
    }
#if PY_VERSION_HEX >= 0x030E0000
    PyObject *function = PyDict_GetItemWithError(dict, str_current_task);
    if (function != NULL && PyCFunction_CheckExact(function)) {
        current_task = Py_NewRef(function);
    }
#endif
    return true;
}

#define WORD_AT(object, offset) (*(PyObject *const *)(void *)((char *)(object) + (offset)))

/* Where a C task keeps its coroutine: the word that its getter gives. */
static void
find_offset(PyObject *task)
{
    PyObject *coroutine = PyObject_GenericGetAttr(task, str_coroutine);
    size_t end = (size_t)c_task->tp_basicsize - 2 * sizeof(PyObject *);
    for (size_t at = sizeof(PyObject); coroutine != NULL && at <= end; at += sizeof(PyObject *)) {
        if (WORD_AT(task, at) == coroutine) {
            coroutine_offset = at;
            break;
        }
    }
    Py_XDECREF(coroutine);
}

static bool
is_c_task(PyObject *task)
{
    if (c_task == NULL || !PyObject_TypeCheck(task, c_task)) {
        return false;
    }
    if (EP_UNLIKELY(coroutine_offset == 0)) {
        find_offset(task);
    }
    return coroutine_offset != 0;
}

static bool
runs(PyObject *task, const PyObject *coroutine)
{
    if (is_c_task(task)) {
        return WORD_AT(task, coroutine_offset) == coroutine;
    }
    PyObject *own = PyObject_GenericGetAttr(task, str_coroutine);
    Py_XDECREF(own);    /* the task has another reference */
    return own == coroutine;
}

/* 1 + string id; 0: no memory. */
static uint32_t
string_of(ep_text text)
{
    /* One task takes many steps in a row. */
    if (last_task != 0) {
        ep_text last = ep_string_get(last_task - 1);
        if (last.bytes == text.bytes && memcmp(last.at, text.at, text.bytes) == 0) {
            return last_task;
        }
    }
    size_t before = ep_string_count();
    if (name_count >= TASK_LIMIT) {
        if (more_tasks == 0) {
            static const char other[] = "another task";
            more_tasks = ep_string_add((ep_text){other, sizeof other - 1}) + 1;
        }
        return more_tasks;
    }
    last_task = ep_string_add(text) + 1;
    name_count += ep_string_count() > before;
    return last_task;
}

static uint32_t
name_of(PyObject *task)
{
    bool in_c = is_c_task(task);
    PyObject *name = in_c ? Py_XNewRef(WORD_AT(task, coroutine_offset + sizeof(PyObject *)))
                          : PyObject_GenericGetAttr(task, str_name);
    char stack[NAME_BYTES], *heap = NULL;
    ep_text text = {NULL, 0};
    if (name != NULL && PyLong_CheckExact(name)) {
        /* Not asked for yet. */
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

uint32_t
ep_py_task_of(ep_frame *frame)
{
    PyObject *coroutine = ep_frame_generator(frame);
    if (coroutine == NULL || (current_tasks == NULL && !find_asyncio())) {
        return 0;
    }
    PyObject *loop, *task;
    Py_ssize_t at = 0;
    while (PyDict_Next(current_tasks, &at, &loop, &task)) {
        if (runs(task, coroutine)) {
            return name_of(task);
        }
    }
    if (current_task == NULL) {
        return 0;
    }
    task = PyObject_CallNoArgs(current_task);
    uint32_t name = task != NULL && task != Py_None && runs(task, coroutine) ? name_of(task) : 0;
    Py_XDECREF(task);
    PyErr_Clear();    /* no loop runs */
    return name;
}
