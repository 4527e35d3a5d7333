/* The functions of _thread that start threads are wrapped while something wants to know of new threads. */
#include "thread_starts.h"

/* Runs in the new thread: sets its hook, then calls what the program wanted called. Shows that
 * function's repr where the interpreter reports an error in it. */
typedef struct starter_object {
    PyObject_HEAD
    PyObject *function;
} starter_object;

static PyTypeObject *starter_type;
static ep_starts_watcher *watchers;

static PyObject *
starter_call(PyObject *self, PyObject *args, PyObject *keywords)
{
    for (const ep_starts_watcher *w = watchers; w != NULL; w = w->next) {
        w->begin();
    }
    PyObject *function = ((starter_object *)self)->function;
    PyObject *result = PyObject_Call(function, args, keywords);
    if (result == NULL && ep_py_report_thread_error(function)) {
        result = Py_NewRef(Py_None);
    }
    for (const ep_starts_watcher *w = watchers; w != NULL; w = w->next) {
        w->end();
    }
    return result;
}

static PyObject *
starter_repr(PyObject *self)
{
    return PyObject_Repr(((starter_object *)self)->function);
}

static int
starter_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((starter_object *)self)->function);
    return 0;
}

static int
starter_clear(PyObject *self)
{
    Py_CLEAR(((starter_object *)self)->function);
    return 0;
}

static void
starter_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    (void)starter_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyType_Slot starter_slots[] = {
    {Py_tp_call, starter_call},
    {Py_tp_repr, starter_repr},
    {Py_tp_traverse, starter_traverse},
    {Py_tp_clear, starter_clear},
    {Py_tp_dealloc, starter_dealloc},
    {0, NULL},
};

static PyType_Spec starter_spec = {
    .name = "eventprof._core.ThreadStarter",
    .basicsize = sizeof(starter_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_GC,
    .slots = starter_slots,
};

/* start_new_thread(function, ...), start_joinable_thread(function, ...): the same with a starter.
 * self is the wrapped builtin. */
static PyObject *
start_wrapped(PyObject *self, PyObject *args, PyObject *keywords)
{
    if (watchers == NULL || PyTuple_GET_SIZE(args) == 0 ||
        !PyCallable_Check(PyTuple_GET_ITEM(args, 0))) {
        return PyObject_Call(self, args, keywords);
    }
    starter_object *starter = PyObject_GC_New(starter_object, starter_type);
    if (starter == NULL) {
        return NULL;
    }
    starter->function = Py_NewRef(PyTuple_GET_ITEM(args, 0));
    PyObject_GC_Track(starter);
    PyObject *changed = PyTuple_New(PyTuple_GET_SIZE(args));
    PyObject *result = NULL;
    if (changed != NULL) {
        PyTuple_SET_ITEM(changed, 0, Py_NewRef((PyObject *)starter));
        for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(args); i++) {
            PyTuple_SET_ITEM(changed, i, Py_NewRef(PyTuple_GET_ITEM(args, i)));
        }
        result = PyObject_Call(self, changed, keywords);
        Py_DECREF(changed);
    }
    Py_DECREF(starter);
    return result;
}

static PyMethodDef start_definition = {"start_new_thread", (PyCFunction)(void (*)(void))start_wrapped,
                                       METH_VARARGS | METH_KEYWORDS, NULL};

/* Where the interpreter and threading keep the functions that start threads. */
static const char *const start_places[][2] = {
    {"_thread", "start_new_thread"},
    {"_thread", "start_new"},
    {"_thread", "start_joinable_thread"},
    {"threading", "_start_new_thread"},
    {"threading", "_start_joinable_thread"},
};
#define START_PLACE_COUNT (sizeof start_places / sizeof *start_places)

static bool
is_our_wrapper(PyObject *function)
{
    return PyCFunction_CheckExact(function) &&
           ((PyCFunctionObject *)function)->m_ml == &start_definition;
}

/* Wraps (in) the functions that are there, or unwraps them. A function that something else replaced
 * meanwhile stays. */
static int
wrap_starts(bool in)
{
    for (size_t i = 0; i < START_PLACE_COUNT; i++) {
        PyObject *module = PyImport_ImportModule(start_places[i][0]);
        PyObject *now = module != NULL ? PyObject_GetAttrString(module, start_places[i][1]) : NULL;
        int status = 0;
        if (module != NULL && now == NULL) {
            PyErr_Clear();    /* this version has no such function */
        } else if (now == NULL) {
            status = -1;
        } else if (in && !is_our_wrapper(now)) {
            PyObject *wrapper = PyCFunction_New(&start_definition, now);
            status = wrapper != NULL ? PyObject_SetAttrString(module, start_places[i][1], wrapper) : -1;
            Py_XDECREF(wrapper);
        } else if (!in && is_our_wrapper(now)) {
            status = PyObject_SetAttrString(module, start_places[i][1],
                                            ((PyCFunctionObject *)now)->m_self);
        }
        Py_XDECREF(now);
        Py_XDECREF(module);
        if (status < 0 && in) {
            return -1;
        }
    }
    return 0;
}

int
ep_py_watch_starts(ep_starts_watcher *watcher)
{
    if (starter_type == NULL && (starter_type = (PyTypeObject *)PyType_FromSpec(&starter_spec)) == NULL) {
        return -1;
    }
    ep_py_leave_starts(watcher);
    watcher->next = watchers;
    watchers = watcher;
    return wrap_starts(true);
}

void
ep_py_leave_starts(ep_starts_watcher *watcher)
{
    bool had = watchers != NULL;
    for (ep_starts_watcher **at = &watchers; *at != NULL; at = &(*at)->next) {
        if (*at == watcher) {
            *at = watcher->next;
            break;
        }
    }
    if (had && watchers == NULL) {
        ep_py_exception saved = ep_py_exception_save();
        (void)wrap_starts(false);
        PyErr_Clear();
        ep_py_exception_restore(saved);
    }
}
