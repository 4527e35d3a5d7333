/* _core.Recorder: a recorder of the core, and the sources that it needs.
 *
 * start() and stop() are C (startable.c), so that the window begins and ends inside one function of ours
 * and none of our frames is in it. The package's Recorder adds options, errors and traces. */
#include "recorder_object.h"

#include <string.h>

#include "decode.h"
#include "file.h"
#include "gate.h"
#include "intern.h"
#include "kinds.h"
#include "patterns.h"
#include "source.h"
#include "trace_object.h"

static bool
recorder_runs(const ep_py_startable *self)
{
    return ((const ep_py_recorder *)self)->core.state == EP_RECORDER_RUNNING;
}

/* The package's recorder warns of events that found no room, once a window. Fails: -1, exception set: the
 * user made the warning an error; the window is over all the same. */
static int
warn_of_loss(ep_py_startable *object)
{
    ep_py_recorder *self = (ep_py_recorder *)object;
    uint64_t lost = ep_recorder_count_lost(&self->core, self->only_thread);
    if (lost == 0 || !PyObject_HasAttrString((PyObject *)self, "_warn_of_loss")) {
        return 0;
    }
    PyObject *warned = PyObject_CallMethod((PyObject *)self, "_warn_of_loss", "Kz",
                                           (unsigned long long)lost,
                                           ep_full_word(self->core.full_reason, self->core.limits));
    Py_XDECREF(warned);
    return warned != NULL ? 0 : -1;
}

static const ep_py_startable_functions recorder_functions = {
    .noun = "recorder",
    .runs = recorder_runs,
    .start = ep_py_window_begin,
    .stop = ep_py_window_end,
    .warn = warn_of_loss,
};

static PyObject *
recorder_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"kinds", "limit_bytes", "on_full", "backend", "clock", "current_thread",
                            "include", "exclude", "max_depth", "min_duration_ns", "output",
                            "child_output", "metadata", "replace", "audit", "packs", NULL};
    PyObject *include = NULL, *exclude = NULL, *output = NULL, *child_output = NULL, *audit = NULL;
    PyObject *metadata = NULL;
    int replace = 0, packs = 0;
    ep_kind_set kinds = 0;
    unsigned long long limit_bytes = 0;
    int on_full = EP_ON_FULL_OVERWRITE, current_thread = 0;
    const char *backend = "auto", *clock = "auto";
    long long max_depth = -1, min_duration_ns = 0;    /* -1: any */
    (void)args;
    PyObject *empty = PyTuple_New(0);
    int parsed = empty != NULL &&
                 PyArg_ParseTupleAndKeywords(empty, keywords, "|$O&KisspO!O!LLO!O!O!pO!p:Recorder",
                                             names, ep_py_kinds_from, &kinds, &limit_bytes, &on_full,
                                             &backend,
                                             &clock, &current_thread, &PyTuple_Type, &include,
                                             &PyTuple_Type, &exclude, &max_depth,
                                             &min_duration_ns, &PyBytes_Type, &output,
                                             &PyBytes_Type, &child_output, &PyBytes_Type, &metadata,
                                             &replace, &PyTuple_Type, &audit, &packs);
    Py_XDECREF(empty);
    if (!parsed) {
        return NULL;
    }
    ep_py_recorder *self = (ep_py_recorder *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->head.functions = &recorder_functions;
    ep_recorder_options options = {
        .kinds = kinds,
        .limit_bytes = limit_bytes,
        .on_full = (ep_on_full)on_full,
        .clock = strcmp(clock, "monotonic") == 0 ? EP_CLOCK_MONOTONIC : EP_CLOCK_COUNTER,
        .clock_any = strcmp(clock, "auto") == 0,
    };
    ep_recorder_init(&self->core, &options);
    for (size_t i = 0; i < EP_PY_SOURCE_COUNT; i++) {
        if ((ep_py_sources[i]->kinds & EP_KINDS_CODE) && strcmp(ep_py_sources[i]->name, backend) == 0) {
            self->code_asked = ep_py_sources[i];
        }
    }
    self->current_thread_only = current_thread;
    self->include = include != NULL ? Py_NewRef(include) : PyTuple_New(0);
    self->exclude = exclude != NULL ? Py_NewRef(exclude) : PyTuple_New(0);
    self->audit = audit != NULL ? Py_NewRef(audit) : PyTuple_New(0);
    if (output != NULL && child_output != NULL && metadata != NULL) {
        self->output = Py_NewRef(output);
        self->child_output = Py_NewRef(child_output);
        self->metadata = Py_NewRef(metadata);
        self->replace = replace;
        self->packs = packs;
    }
    self->filter.limits_depth = max_depth >= 0 && max_depth < EP_DEPTH_UNLIMITED;
    self->filter.max_depth = self->filter.limits_depth ? (uint32_t)max_depth : 0;
    self->filter.min_duration_ns = min_duration_ns;
    if (self->include == NULL || self->exclude == NULL || self->audit == NULL ||
        ep_py_add_patterns(&self->filter, self->include, self->exclude, self->audit) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void
recorder_dealloc(PyObject *object)
{
    ep_py_recorder *self = (ep_py_recorder *)object;
    PyTypeObject *type = Py_TYPE(object);
    /* An object of a subclass in Python is tracked by the collector, which has called the finalizer already
     * and removed the object from its lists: debug builds abort if it is called again. */
    if (!PyType_IS_GC(type) && PyObject_CallFinalizerFromDealloc(object) < 0) {
        return;
    }
    if (self->head.weak_references != NULL) {
        PyObject_ClearWeakRefs(object);
    }
    ep_recorder_clear(&self->core);
    ep_filter_clear(&self->filter);
    Py_XDECREF(self->include);
    Py_XDECREF(self->exclude);
    Py_XDECREF(self->audit);
    Py_XDECREF(self->output);
    Py_XDECREF(self->child_output);
    Py_XDECREF(self->metadata);
    type->tp_free(object);
    Py_DECREF(type);
}

static void
keep_open_alone(void *unused)
{
    (void)unused;
    ep_gate_keep_open();
}

/* capture(last_ns=-1): a trace of the window so far, or of its last nanoseconds. */
static PyObject *
recorder_capture(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    ep_py_recorder *self = (ep_py_recorder *)object;
    long long last_ns = count == 1 ? PyLong_AsLongLong(args[0]) : -1;
    if (count > 1 || PyErr_Occurred()) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "_capture() takes at most one argument");
        }
        return NULL;
    }
    ep_capture capture;
    ep_error error = {.text = ""};
    ep_py_look_begin();
    ep_py_left_out left_out = {.max_depth = self->filter.max_depth,
                               .limits_depth = self->filter.limits_depth,
                               .min_duration_ns = self->filter.min_duration_ns};
    ep_py_left_out_read(self, left_out.calls, &left_out.functions);
    if (self->core.state == EP_RECORDER_RUNNING) {
        ep_py_alone(keep_open_alone, NULL);    /* so that no record in the capture is removed later */
    }
    ep_status status = ep_capture_take(&self->core, &capture, &error);
    ep_py_look_end();
    if (status != EP_OK) {
        return ep_py_raise(status, &error);
    }
    if (last_ns >= 0) {
        Py_BEGIN_ALLOW_THREADS
        ep_capture_keep_last(&capture, last_ns);
        Py_END_ALLOW_THREADS
    }
    return ep_py_trace_new(&capture, self->only_thread, self->include, self->exclude, self->audit,
                           &left_out);
}

/* (recorded, lost, why it ended early, ns): events of the window so far, counted without decoding
 * them. */
static PyObject *
recorder_count(PyObject *object, PyObject *unused)
{
    (void)unused;
    ep_py_recorder *self = (ep_py_recorder *)object;
    ep_capture capture;
    ep_error error = {.text = ""};
    ep_py_look_begin();
    ep_status status = ep_capture_take_to_count(&self->core, self->only_thread, &capture, &error);
    ep_py_look_end();
    if (status != EP_OK) {
        return ep_py_raise(status, &error);
    }
    uint64_t recorded[EP_KIND_COUNT], lost[EP_KIND_COUNT], recorded_sum = capture.counted, lost_sum = 0;
    Py_BEGIN_ALLOW_THREADS
    ep_capture_count(&capture, self->only_thread, recorded, lost);
    Py_END_ALLOW_THREADS
    for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
        recorded_sum += recorded[kind];
        lost_sum += lost[kind];
    }
    long long ns = capture.stop.monotonic_ns - capture.start.monotonic_ns;
    const char *reason = ep_full_word(capture.full_reason, capture.limits);
    ep_capture_clear(&capture);
    return Py_BuildValue("KKzL", (unsigned long long)recorded_sum, (unsigned long long)lost_sum,
                         reason, ns);
}

/* (chunks, their bytes, bytes of those in a file, bytes of lists): the memory of this recorder. */
static PyObject *
recorder_held(PyObject *object, PyObject *unused)
{
    (void)unused;
    ep_recorder_stats stats = ep_recorder_get_stats(&((ep_py_recorder *)object)->core);
    return Py_BuildValue("nnnn", (Py_ssize_t)stats.chunks, (Py_ssize_t)stats.chunk_bytes,
                         (Py_ssize_t)stats.file_bytes, (Py_ssize_t)stats.list_bytes);
}

static PyObject *
recorder_get_state(PyObject *self, void *unused)
{
    (void)unused;
    static const char *const names[] = {"new", "running", "stopped"};
    return PyUnicode_FromString(names[((ep_py_recorder *)self)->core.state]);
}

static PyObject *
recorder_get_backend(PyObject *self, void *unused)
{
    (void)unused;
    const ep_source *backend = ((ep_py_recorder *)self)->backend;
    return backend != NULL ? PyUnicode_FromString(backend->name) : Py_NewRef(Py_None);
}

static PyObject *
recorder_get_clock(PyObject *object, void *unused)
{
    (void)unused;
    ep_py_recorder *self = (ep_py_recorder *)object;
    if (self->head.windows == 0) {
        Py_RETURN_NONE;
    }
    return PyUnicode_FromString(self->clock == EP_CLOCK_COUNTER ? "counter" : "monotonic");
}

static PyObject *
recorder_get_output(PyObject *object, void *unused)
{
    (void)unused;
    const ep_file *file = ((ep_py_recorder *)object)->core.file;
    return file != NULL ? PyUnicode_DecodeFSDefault(ep_file_path(file)) : Py_NewRef(Py_None);
}

/* (forked children that could not write a file, the error of the last one); None without a file. */
static PyObject *
recorder_get_children_lost(PyObject *object, void *unused)
{
    (void)unused;
    const ep_file *file = ((ep_py_recorder *)object)->core.file;
    if (file == NULL) {
        Py_RETURN_NONE;
    }
    int os_error;
    uint32_t count = ep_file_get_children_lost(file, &os_error);
    return Py_BuildValue("Is", (unsigned)count, strerror(os_error));
}

static PyObject *
recorder_get_displaced(PyObject *object, void *unused)
{
    (void)unused;
    ep_py_recorder *self = (ep_py_recorder *)object;
    PyObject *names = PyList_New(0);
    /* A change: looking at callbacks of sys.monitoring raises audit events, which are ours. */
    ep_py_change_take();
    for (size_t i = 0; names != NULL && i < EP_PY_SOURCE_COUNT; i++) {
        bool runs = self->core.state == EP_RECORDER_RUNNING;
        if ((self->displaced & 1u << i) || (runs && ep_py_source_is_displaced(self, i))) {
            PyObject *name = PyUnicode_FromString(ep_py_sources[i]->name);
            if (name == NULL || PyList_Append(names, name) < 0) {
                Py_CLEAR(names);
            }
            Py_XDECREF(name);
        }
    }
    ep_py_change_end();
    PyObject *result = names != NULL ? PyList_AsTuple(names) : NULL;
    Py_XDECREF(names);
    return result;
}

static PyMethodDef recorder_methods[] = {
    {"start", ep_py_startable_method_start, METH_NOARGS,
     "start()\n--\n\nBegin a window; what an earlier one recorded is given up.\n\n"
     "Raises\n------\n"
     "StateError\n    It is running already.\n"
     "ToolInUseError\n    No hook for calls is free.\n"
     "OSError\n    The file of `output` cannot be made, or is there already.\n"
     "MemoryError\n    There is not enough memory for the first pieces of the buffer."},
    {"stop", ep_py_startable_method_stop, METH_NOARGS,
     "stop()\n--\n\nEnd the window and put the interpreter's hooks back.\n\n"
     "Raises\n------\n"
     "StateError\n    It is not running.\n\n"
     "Warns\n-----\n"
     "EventsLostWarning\n    Events found no room; it says what to do. A ``with`` block and a decorated "
     "function warn where they end."},
    EP_PY_STARTABLE_METHODS,
    {"_capture", (PyCFunction)(void (*)(void))recorder_capture, METH_FASTCALL, NULL},
    {"_count", recorder_count, METH_NOARGS, NULL},
    {"_held", recorder_held, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef recorder_properties[] = {
    {"state", recorder_get_state, NULL, "'new', 'running' or 'stopped'.", NULL},
    {"backend", recorder_get_backend, NULL,
     "What the calls of the last window came by, and what happened inside of functions: "
     "'monitoring', 'profile', 'trace'; None: nothing.",
     NULL},
    {"clock", recorder_get_clock, NULL,
     "The clock of the last window: 'counter', 'monotonic'; None: there was none.", NULL},
    {"output", recorder_get_output, NULL,
     "Path of the last window's log file; None: there is none.", NULL},
    {"_children_lost", recorder_get_children_lost, NULL, NULL, NULL},
    {"displaced", recorder_get_displaced, NULL,
     "Names of the sources whose hook another tool took over during the window.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot recorder_slots[] = {
    {Py_tp_new, recorder_new},
    {Py_tp_dealloc, recorder_dealloc},
    {Py_tp_finalize, ep_py_startable_finalize},
    {Py_tp_methods, recorder_methods},
    {Py_tp_getset, recorder_properties},
    {Py_tp_members, ep_py_startable_members},
    {0, NULL},
};

PyType_Spec ep_py_recorder_spec = {
    .name = "eventprof._core.Recorder",
    .basicsize = sizeof(ep_py_recorder),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = recorder_slots,
};
