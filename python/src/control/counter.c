/* _core.Counter: a counter of the core, its callbacks, and the hooks that all counters need.
 *
 * start() and stop() are those of recorders (startable.c). The package's Counter adds
 * options and tables. */
#include "change.h"

#include <string.h>

#include "count_calls.h"
#include "filter.h"
#include "intern.h"
#include "patterns.h"
#include "source.h"
#include "startable.h"

#define DOMAIN_COUNT 3    /* RAW, MEM, OBJ */

/* The type of function that a capsule of this name holds. */
typedef void (*trace_function)(const char *qualified_name, void *context);
#define CAPSULE_NAME "eventprof.trace_function"

typedef struct counter_object {
    ep_py_startable head;
    ep_counter *core;
    unsigned domains;                           /* bits */
    ep_filter filter;
    PyObject *callbacks[EP_PY_COUNT_ENDS];      /* owned; NULL: none */
    PyObject **names;                           /* by id: str, owned; the argument of callbacks */
    size_t name_capacity;
    bool displaced;
    uint64_t interruptions;                     /* of the hook for calls, when the window began */
    struct counter_object *next;                /* running ones; not owned */
} counter_object;

static counter_object *running;
static bool unsettled;    /* a counter was stopped during a change of hooks */

/* ---- Hooks ----------------------------------------------------------------------------------- */

/* Adjusts the hooks to the running counters. Fails: -1, exception set. */
static int
adjust_hooks(void)
{
    bool calls = false, c_calls = false;
    unsigned domains = 0;
    for (const counter_object *c = running; c != NULL; c = c->next) {
        calls = calls || c->core->calls;
        c_calls = c_calls || c->core->c_calls;
        domains |= c->domains;
    }
    int status = ep_py_alloc_count(domains);
    if (status == 0) {
        status = ep_py_monitoring_available() ? ep_py_count_monitor(calls, c_calls)
                                              : ep_py_profile_count(calls, c_calls);
    }
    return status;
}

void
ep_py_counters_settle(void)
{
    while (unsettled) {
        unsettled = false;
        ep_py_exception saved = ep_py_exception_save();
        (void)adjust_hooks();
        PyErr_Clear();
        ep_py_exception_restore(saved);
    }
}

static bool
is_displaced(const counter_object *self)
{
    bool calls = self->core->calls || self->core->c_calls;
    return (calls && (!(ep_py_monitoring_available() ? ep_py_count_monitor_owns()
                                                     : ep_py_profile_owns()) ||
                      ep_py_count_monitor_interruptions() != self->interruptions)) ||
           (self->domains != 0 && !ep_py_alloc_owns());
}

/* ---- Start, stop ----------------------------------------------------------------------------- */

typedef struct beginning {
    counter_object *self;
    ep_status status;
} beginning;

static void
begin_alone(void *context)
{
    beginning *now = context;
    now->status = ep_counter_start(now->self->core, ep_count_ticks());
}

static void
stop_core_alone(void *context)
{
    counter_object *self = context;
    ep_counter_stop(self->core, ep_count_ticks());
}

static void
unlink_running(counter_object *self)
{
    for (counter_object **at = &running; *at != NULL; at = &(*at)->next) {
        if (*at == self) {
            *at = self->next;
            break;
        }
    }
    self->next = NULL;
}

static bool
counter_runs(const ep_py_startable *object)
{
    const ep_counter *core = ((const counter_object *)object)->core;
    return core != NULL && core->running;    /* NULL: there was no memory for it */
}

static int
start_in_change(ep_py_startable *object)
{
    counter_object *self = (counter_object *)object;
    if (ep_counter_running(EP_COUNTERS_MAX - 1) != NULL) {
        PyErr_Format(ep_py_error(EP_ERROR_STATE), "%d counters run already; stop one first",
                     EP_COUNTERS_MAX);
        return -1;
    }
    self->next = running;
    running = self;
    beginning now = {.self = self, .status = EP_OK};
    if (adjust_hooks() == 0) {
        ep_py_alone(begin_alone, &now);
        if (now.status == EP_OK) {
            self->head.windows++;
            self->displaced = false;
            self->interruptions = ep_py_count_monitor_interruptions();
            /* Finds this thread's open calls now. */
            (void)ep_count_mine();
            return 0;
        }
        ep_py_raise(now.status, NULL);
    }
    ep_py_exception saved = ep_py_exception_save();
    unlink_running(self);
    (void)adjust_hooks();
    PyErr_Clear();
    ep_py_exception_restore(saved);
    return -1;
}

static void
stop_in_change(ep_py_startable *object)
{
    counter_object *self = (counter_object *)object;
    if (self->core->running) {
        self->displaced = is_displaced(self);
        ep_py_alone(stop_core_alone, self);
        unlink_running(self);
        unsettled = true;    /* the hooks are removed when the change ends */
    }
}

static const ep_py_startable_functions counter_functions = {
    .noun = "counter",
    .runs = counter_runs,
    .start = start_in_change,
    .stop = stop_in_change,
};

void
ep_py_counters_stop_all(void)
{
    while (running != NULL) {
        ep_py_startable_stop(&running->head);
    }
}

void
ep_py_counters_after_fork(void)
{
    ep_count_after_fork(ep_count_ticks());
}

/* ---- Callbacks ------------------------------------------------------------------------------- */

static bool
counter_tells(void *owner, ep_py_count_end end)
{
    return ((counter_object *)owner)->callbacks[end] != NULL;
}

/* Returns: borrowed, for as long as the counter; NULL with an exception. */
static PyObject *
name_object(counter_object *self, uint32_t name)
{
    PyObject *text = NULL;
    EP_BEGIN_OBJECT(self);
    if (name >= self->name_capacity) {
        size_t capacity = ep_name_count() > name ? ep_name_count() * 2 : (size_t)name + 1;
        PyObject **names = realloc(self->names, capacity * sizeof(PyObject *));
        if (names != NULL) {
            memset(names + self->name_capacity, 0,
                   (capacity - self->name_capacity) * sizeof(PyObject *));
            self->names = names;
            self->name_capacity = capacity;
        }
    }
    if (name < self->name_capacity) {
        if (self->names[name] == NULL) {
            self->names[name] = ep_py_string(ep_name_get(name)->qualname);
        }
        text = self->names[name];
    } else {
        PyErr_NoMemory();
    }
    EP_END_OBJECT();
    return text;
}

/* Notes whether the core must call us for each call. */
static void
update_tells(counter_object *self)
{
    bool tells = self->callbacks[EP_PY_COUNT_ENTER] != NULL || self->callbacks[EP_PY_COUNT_EXIT] != NULL;
    if (tells != self->core->tells) {
        self->core->tells = tells;
        ep_counter_changed();
    }
}

static void
update_tells_alone(void *self)
{
    update_tells(self);
}

/* function: NULL: none. Steals it. */
static void
set_callback(counter_object *self, ep_py_count_end end, PyObject *function)
{
    PyObject *old = self->callbacks[end];
    self->callbacks[end] = function;
    ep_py_alone(update_tells_alone, self);
    Py_XDECREF(old);
}

/* Reports the exception, and switches the callback off. */
static void
give_up(counter_object *self, ep_py_count_end end, PyObject *function)
{
    bool interrupted = PyErr_ExceptionMatches(PyExc_KeyboardInterrupt);
    PyErr_WriteUnraisable(function);
    if (self->callbacks[end] == function) {
        set_callback(self, end, NULL);
    }
    if (interrupted) {
        PyErr_SetInterrupt();    /* the signal was meant for the program */
    }
}

static void
counter_tell(void *owner, ep_py_count_end end, uint32_t name)
{
    counter_object *self = owner;
    PyObject *function = Py_XNewRef(self->callbacks[end]);
    PyObject *text = function != NULL ? name_object(self, name) : NULL;
    if (function == NULL) {
        return;
    }
    if (text != NULL && PyCapsule_CheckExact(function)) {
        const char *utf8 = PyUnicode_AsUTF8(text);
        if (utf8 == NULL) {
            PyErr_Clear();    /* surrogates */
            utf8 = "?";
        }
        trace_function called = (trace_function)PyCapsule_GetPointer(function, CAPSULE_NAME);
        if (called != NULL) {
            called(utf8, PyCapsule_GetContext(function));
        }
    } else if (text != NULL) {
        Py_XDECREF(PyObject_CallOneArg(function, text));
    }
    if (PyErr_Occurred()) {
        give_up(self, end, function);
    }
    Py_DECREF(function);
}

void
ep_py_counters_init(void)
{
    static const ep_py_count_owner functions = {.tells = counter_tells, .tell = counter_tell};
    ep_py_count_set_owner(&functions);
}

/* value: a callable, a capsule, None; Ellipsis: as it is. Fails: -1, exception set. */
static int
check_callback(const char *argument, PyObject *value)
{
    if (PyCapsule_CheckExact(value) && !PyCapsule_IsValid(value, CAPSULE_NAME)) {
        PyErr_Format(PyExc_ValueError,
                     "%s must be a capsule named '" CAPSULE_NAME "', of a function "
                     "void (*)(const char *qualified_name, void *context), not %R",
                     argument, value);
        return -1;
    }
    if (value != Py_Ellipsis && !Py_IsNone(value) && !PyCapsule_CheckExact(value) &&
        !PyCallable_Check(value)) {
        PyErr_Format(PyExc_TypeError, "%s must be callable, a capsule, or None, not %R", argument, value);
        return -1;
    }
    return 0;
}

static PyObject *
counter_set_trace_functions(PyObject *object, PyObject *args)
{
    PyObject *values[EP_PY_COUNT_ENDS];
    if (!PyArg_ParseTuple(args, "OO:set_trace_functions", &values[EP_PY_COUNT_ENTER],
                          &values[EP_PY_COUNT_EXIT]) ||
        check_callback("on_enter", values[EP_PY_COUNT_ENTER]) < 0 ||
        check_callback("on_exit", values[EP_PY_COUNT_EXIT]) < 0) {
        return NULL;
    }
    for (int end = 0; end < EP_PY_COUNT_ENDS; end++) {
        if (values[end] != Py_Ellipsis) {
            set_callback((counter_object *)object, (ep_py_count_end)end,
                         Py_IsNone(values[end]) ? NULL : Py_NewRef(values[end]));
        }
    }
    Py_RETURN_NONE;
}

/* ---- Reading --------------------------------------------------------------------------------- */

typedef struct reading {
    ep_counter *core;
    ep_count_rows rows;
    ep_status status;
} reading;

static void
read_alone(void *context)
{
    reading *now = context;
    now->status = ep_counter_read(now->core, ep_count_ticks(), &now->rows);
}

static bool
is_empty(const ep_count_row *row)
{
    return row->calls == 0 && row->resumes == 0 && row->total == 0 && row->self == 0 &&
           row->bytes == 0 && row->blocks == 0;
}

/* Returns: new, a row of _read(). */
static PyObject *
row_object(const ep_count_row *row, double ns_per_tick)
{
    /* Kinds of functions; names of other kinds are never called. */
    static const char *const kinds[EP_NAME_KIND_COUNT] = {"python", "c", "type", "object",
                                                          "", "", "", ""};
    const ep_name *name = ep_name_get(row->name);
    bool known = row->name != 0, whole = row->whole != 0;
#define NS(ticks) ((long long)((double)(int64_t)(ticks) * ns_per_tick + 0.5))
    return Py_BuildValue("NNNisKKKLLKdLLKK", ep_py_string(known ? name->qualname : EP_STRING_NONE),
                         ep_py_string(known ? name->module : EP_STRING_NONE),
                         ep_py_string(known ? name->file : EP_STRING_NONE),
                         known && name->line > 0 ? (int)name->line : -1,
                         known ? kinds[name->kind] : "", (unsigned long long)row->calls,
                         (unsigned long long)row->resumes, (unsigned long long)row->recursive,
                         NS(row->total), NS(row->self), (unsigned long long)row->whole,
                         whole ? (double)row->whole_ticks * ns_per_tick / (double)row->whole : -1.0,
                         whole ? NS(row->min) : -1LL, whole ? NS(row->max) : -1LL,
                         (unsigned long long)row->bytes, (unsigned long long)row->blocks);
#undef NS
}

/* _read() -> (rows, of no function, lost, unmatched, ns): rows: (name, module, file, line, kind, calls,
 * resumes, recursive, total, self, whole, mean, min, max, allocated, blocks); -1: unknown. */
static PyObject *
counter_read(PyObject *object, PyObject *unused)
{
    (void)unused;
    counter_object *self = (counter_object *)object;
    if (self->head.windows == 0) {
        PyErr_SetString(ep_py_error(EP_ERROR_STATE),
                        "this counter was never started: it has counted nothing");
        return NULL;
    }
    reading now = {.core = self->core, .status = EP_OK};
    ep_py_alone(read_alone, &now);
    if (now.status != EP_OK) {
        return ep_py_raise(now.status, NULL);
    }
    double ns_per_tick = 1e9 / ep_count_frequency_hz();
    PyObject *rows = ep_py_intern_resolve() == 0 ? PyList_New(0) : NULL, *nowhere = NULL;
    for (size_t i = 0; rows != NULL && i < now.rows.count; i++) {
        const ep_count_row *from = &now.rows.rows[i];
        if (from->name != 0 && is_empty(from)) {
            continue;
        }
        PyObject *row = row_object(from, ns_per_tick);
        if (row == NULL || (from->name != 0 && PyList_Append(rows, row) < 0)) {
            Py_CLEAR(rows);
        }
        if (from->name == 0) {
            Py_XSETREF(nowhere, Py_XNewRef(row));
        }
        Py_XDECREF(row);
    }
    free(now.rows.rows);
    if (rows == NULL) {
        Py_XDECREF(nowhere);
        return NULL;
    }
    return Py_BuildValue("NNKKL", rows, nowhere, (unsigned long long)now.rows.lost,
                         (unsigned long long)now.rows.unmatched,
                         (long long)((double)now.rows.ticks * ns_per_tick));
}

static PyObject *
counter_bytes(PyObject *object, PyObject *unused)
{
    (void)unused;
    return PyLong_FromSize_t(ep_counter_bytes(((counter_object *)object)->core));
}

static PyObject *
counter_frequency(PyObject *object, PyObject *unused)
{
    (void)object;
    (void)unused;
    return PyFloat_FromDouble(ep_count_frequency_hz());
}

/* ---- The type -------------------------------------------------------------------------------- */

static PyObject *
counter_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"calls", "c_calls", "domains", "include", "exclude", "current_thread", NULL};
    PyObject *include = NULL, *exclude = NULL;
    int calls = 1, c_calls = 1, current_thread = 0;
    unsigned domains = 0;
    (void)args;
    PyObject *empty = PyTuple_New(0);
    int parsed = empty != NULL && PyArg_ParseTupleAndKeywords(empty, keywords, "|$ppIO!O!p:Counter", names,
                                                              &calls, &c_calls, &domains, &PyTuple_Type,
                                                              &include, &PyTuple_Type, &exclude,
                                                              &current_thread);
    Py_XDECREF(empty);
    counter_object *self = parsed ? (counter_object *)type->tp_alloc(type, 0) : NULL;
    if (self == NULL) {
        return NULL;
    }
    self->head.functions = &counter_functions;
    self->core = ep_counter_new();
    if (self->core == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    self->core->calls = calls;
    self->core->c_calls = c_calls;
    self->domains = domains & ((1u << DOMAIN_COUNT) - 1);
    self->core->this_thread_only = current_thread;
    self->core->owner = self;
    PyObject *none = PyTuple_New(0);
    int status = none != NULL ? ep_py_add_patterns(&self->filter, include != NULL ? include : none,
                                                   exclude != NULL ? exclude : none, NULL)
                              : -1;
    Py_XDECREF(none);
    if (status < 0) {
        Py_DECREF(self);
        return NULL;
    }
    self->core->filter = ep_filter_names_any(&self->filter) ? &self->filter : NULL;
    return (PyObject *)self;
}

static int
counter_traverse(PyObject *object, visitproc visit, void *arg)
{
    counter_object *self = (counter_object *)object;
    Py_VISIT(Py_TYPE(object));
    for (int end = 0; end < EP_PY_COUNT_ENDS; end++) {
        Py_VISIT(self->callbacks[end]);
    }
    return 0;
}

static int
counter_clear(PyObject *object)
{
    counter_object *self = (counter_object *)object;
    for (int end = 0; end < EP_PY_COUNT_ENDS; end++) {
        PyObject *old = self->callbacks[end];
        self->callbacks[end] = NULL;
        Py_XDECREF(old);
    }
    return 0;
}

static void
free_core_alone(void *core)
{
    ep_counter_free(core);
}

static void
counter_dealloc(PyObject *object)
{
    if (PyObject_CallFinalizerFromDealloc(object) < 0) {
        return;
    }
    counter_object *self = (counter_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    if (self->head.weak_references != NULL) {
        PyObject_ClearWeakRefs(object);
    }
    (void)counter_clear(object);
    for (size_t i = 0; i < self->name_capacity; i++) {
        Py_XDECREF(self->names[i]);
    }
    free(self->names);
    ep_py_alone(free_core_alone, self->core);
    ep_filter_clear(&self->filter);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyObject *
counter_get_state(PyObject *object, void *unused)
{
    (void)unused;
    const counter_object *self = (counter_object *)object;
    return PyUnicode_FromString(self->core->running ? "running" : self->head.windows > 0 ? "stopped"
                                                                                         : "new");
}

static PyObject *
counter_get_displaced(PyObject *object, void *unused)
{
    (void)unused;
    const counter_object *self = (counter_object *)object;
    /* A change: looking at callbacks of sys.monitoring raises audit events, which are ours. */
    ep_py_change_take();
    bool displaced = self->displaced || (self->core->running && is_displaced(self));
    ep_py_change_end();
    return PyBool_FromLong(displaced);
}

static PyMethodDef counter_methods[] = {
    {"start", ep_py_startable_method_start, METH_NOARGS,
     "start()\n--\n\nBegin to count; what was counted before is given up.\n\n"
     "Raises\n------\n"
     "StateError\n    It is running already, or eight others are.\n"
     "ToolInUseError\n    No hook for calls is free.\n"
     "MemoryError\n    There is not enough memory."},
    {"stop", ep_py_startable_method_stop, METH_NOARGS,
     "stop()\n--\n\nEnd counting and put the interpreter's hooks back.\n\n"
     "Raises\n------\n"
     "StateError\n    It is not running."},
    EP_PY_STARTABLE_METHODS,
    {"_read", counter_read, METH_NOARGS, NULL},
    {"_bytes", counter_bytes, METH_NOARGS, NULL},
    {"_frequency", counter_frequency, METH_NOARGS, NULL},
    {"_set_trace_functions", counter_set_trace_functions, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef counter_properties[] = {
    {"state", counter_get_state, NULL, "'new', 'running' or 'stopped'.", NULL},
    {"displaced", counter_get_displaced, NULL,
     "Whether another tool took over a hook of the counter's.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot counter_slots[] = {
    {Py_tp_new, counter_new},
    {Py_tp_dealloc, counter_dealloc},
    {Py_tp_finalize, ep_py_startable_finalize},
    {Py_tp_traverse, counter_traverse},
    {Py_tp_clear, counter_clear},
    {Py_tp_methods, counter_methods},
    {Py_tp_getset, counter_properties},
    {Py_tp_members, ep_py_startable_members},
    {0, NULL},
};

PyType_Spec ep_py_counter_spec = {
    .name = "eventprof._core.Counter",
    .basicsize = sizeof(counter_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = counter_slots,
};
