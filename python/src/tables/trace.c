/* _core.Trace: a trace of the core (trace.h), which computes each step when it is first asked for.
 *
 * Lines and late names are resolved when the trace is made (the GIL is held, the code objects are
 * there). All later steps run without the GIL, one thread at a time (the trace's own lock), which
 * may have the help of a second (worker.h). */

#include <unistd.h>

#include "arrays.h"
#include "intern.h"
#include "kinds.h"
#include "os.h"
#include "patterns.h"
#include "source.h"
#include "trace_object.h"

PyTypeObject *ep_py_trace_type;

/* ---- Long steps: on standard error, after two seconds, on a terminal only -------------------- */

#define TELL_AFTER_NS 2000000000

static bool
tell(ep_work *work, size_t done, size_t total)
{
    if (ep_os_monotonic_ns() - work->began_ns >= TELL_AFTER_NS && isatty(STDERR_FILENO)) {
        work->shown = true;
        fprintf(stderr, "\reventprof: %s, %3.0f %%", work->what,
                total > 0 ? 100.0 * (double)done / (double)total : 100.0);
    }
    return true;
}

static void
end(ep_work *work)
{
    if (work->shown) {
        fprintf(stderr, "\r%*s\r", 40, "");    /* leaves the line as it was */
    }
}

static const ep_watcher terminal = {.tell = tell, .end = end};

/* ---- Making ---------------------------------------------------------------------------------- */

ep_py_trace *
ep_py_trace_of(ep_trace *trace, PyObject *path)
{
    ep_py_trace *self = (ep_py_trace *)ep_py_trace_type->tp_alloc(ep_py_trace_type, 0);
    if (self == NULL) {
        ep_trace_clear(trace);
        return NULL;
    }
    self->trace = *trace;
    self->trace.watcher = &terminal;
    self->path = Py_XNewRef(path);
    self->lock = PyThread_allocate_lock();
    if (self->lock == NULL) {
        Py_DECREF(self);
        return (ep_py_trace *)PyErr_NoMemory();
    }
    return self;
}

/* filter(include, exclude, max_depth, min_duration_ns, audit): what its recorder was asked for; -1: no
 * limit. Before the first step. */
static PyObject *
trace_filter(PyObject *object, PyObject *args)
{
    ep_py_trace *self = (ep_py_trace *)object;
    PyObject *include, *exclude, *audit;
    long long max_depth, min_duration_ns;
    if (!PyArg_ParseTuple(args, "O!O!LLO!:filter", &PyTuple_Type, &include, &PyTuple_Type, &exclude,
                          &max_depth, &min_duration_ns, &PyTuple_Type, &audit) ||
        ep_py_add_patterns(&self->trace.filter, include, exclude, audit) < 0) {
        return NULL;
    }
    self->trace.filter.limits_depth = max_depth >= 0 && max_depth < EP_DEPTH_UNLIMITED;
    self->trace.filter.max_depth = self->trace.filter.limits_depth ? (uint32_t)max_depth : 0;
    self->trace.filter.min_duration_ns = min_duration_ns > 0 ? min_duration_ns : 0;
    Py_RETURN_NONE;
}

PyObject *
ep_py_trace_new(ep_capture *capture, uint32_t only_thread, PyObject *include, PyObject *exclude,
                PyObject *audit, const ep_py_left_out *left_out)
{
    if (ep_py_intern_resolve() < 0) {
        ep_capture_clear(capture);
        return NULL;
    }
    ep_trace trace;
    ep_trace_of_capture(capture, only_thread, &trace);
    if (left_out != NULL) {
        trace.recording.deep_calls = left_out->calls[EP_LEFT_OUT_DEEP];
        trace.recording.short_calls = left_out->calls[EP_LEFT_OUT_SHORT];
        trace.recording.functions_off = left_out->functions;
        trace.filter.limits_depth = left_out->limits_depth;
        trace.filter.max_depth = left_out->max_depth;
        trace.filter.min_duration_ns = left_out->min_duration_ns;
    }
    ep_py_trace *self = ep_py_trace_of(&trace, NULL);
    if (self != NULL && ep_py_add_patterns(&self->trace.filter, include, exclude, audit) < 0) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static void
trace_dealloc(PyObject *object)
{
    ep_py_trace *self = (ep_py_trace *)object;
    PyTypeObject *type = Py_TYPE(object);
    ep_trace_clear(&self->trace);
    ep_py_parts_drop((ep_py_parts){self->parts, self->part_count});
    Py_XDECREF(self->path);
    if (self->lock != NULL) {
        PyThread_free_lock(self->lock);
    }
    type->tp_free(object);
    Py_DECREF(type);
}

/* ---- Steps ----------------------------------------------------------------------------------- */

int
ep_py_trace_reach(ep_py_trace *self, ep_step step)
{
    ep_status status;
    ep_error error = {.text = ""};
    EP_PY_WITHOUT_GIL(self, status = ep_trace_reach(&self->trace, step, &error));
    if (status != EP_OK) {
        ep_py_raise_io(status, &error, self->path);
        return -1;
    }
    return 0;
}

const ep_trace *
ep_py_trace_paired(PyObject *trace)
{
    if (!Py_IS_TYPE(trace, ep_py_trace_type)) {
        return (const ep_trace *)PyErr_Format(PyExc_TypeError, "a _core.Trace is needed, not %s",
                                              Py_TYPE(trace)->tp_name);
    }
    ep_py_trace *self = (ep_py_trace *)trace;
    return ep_py_trace_reach(self, EP_STEP_BLOCKS) == 0 ? &self->trace : NULL;
}

/* ---- Columns --------------------------------------------------------------------------------- */

/* (name, first, count): a view of a column that stands in an array of the core; a fresh array of the
 * others. Without numbers, all rows. */
static PyObject *
column_of(PyObject *object, ep_table table, PyObject *args)
{
    ep_py_trace *self = (ep_py_trace *)object;
    const ep_trace *trace = &self->trace;
    PyObject *name;
    Py_ssize_t first = 0, wanted = PY_SSIZE_T_MAX;
    if (!PyArg_ParseTuple(args, "O|nn", &name, &first, &wanted)) {
        return NULL;
    }
    const char *word = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
    const ep_column *column = word != NULL ? ep_column_find(table, word) : NULL;
    if (column == NULL) {
        PyErr_Clear();    /* of surrogates */
        return PyErr_Format(PyExc_KeyError, "%s has no column %R", ep_table_names[table], name);
    }
    ep_status status;
    ep_error error = {.text = ""};
    EP_PY_WITHOUT_GIL(self, status = ep_column_reach(&self->trace, column, &error));
    if (status != EP_OK) {
        return ep_py_raise_io(status, &error, self->path);
    }
    size_t count = ep_column_count(trace, column);
    if (first < 0 || wanted < 0 || (size_t)first > count) {
        return PyErr_Format(PyExc_IndexError, "%s has %zu rows", ep_table_names[table], count);
    }
    count = (size_t)wanted < count - (size_t)first ? (size_t)wanted : count - (size_t)first;
    const char *view = ep_column_view(trace, column);
    if (view != NULL || count == 0) {
        size_t skipped = view != NULL ? (size_t)first * ep_type_bytes(column->type) : 0;
        return ep_py_view(object, view != NULL ? view + skipped : NULL, count, column->type);
    }
    if (ep_column_is_constant(trace, column)) {
        return ep_py_constant(count, column->type, column->otherwise);
    }
    void *data;
    PyObject *array = ep_py_array(count, column->type, &data);
    if (array != NULL) {
        Py_BEGIN_ALLOW_THREADS
        ep_column_fill(trace, column, (ep_part){(size_t)first, count}, data);
        Py_END_ALLOW_THREADS
    }
    return array;
}

static PyObject *
trace_events(PyObject *object, PyObject *args)
{
    return column_of(object, EP_TABLE_EVENTS, args);
}

static PyObject *
trace_calls(PyObject *object, PyObject *args)
{
    return column_of(object, EP_TABLE_CALLS, args);
}

static PyObject *
trace_allocations(PyObject *object, PyObject *args)
{
    return column_of(object, EP_TABLE_ALLOCATIONS, args);
}

static PyObject *
trace_lines(PyObject *object, PyObject *args)
{
    return column_of(object, EP_TABLE_LINES, args);
}

/* column_table() -> [(table, name, type, reading, null, when that is, unit, meaning, more)] of
 * the columns that tables show; columns.def says what these are. */
PyObject *
ep_py_column_table(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    static const char *const types[] = {
        [EP_TYPE_INT8] = "int8",
        [EP_TYPE_UINT8] = "uint8",
        [EP_TYPE_INT16] = "int16",
        [EP_TYPE_INT32] = "int32",
        [EP_TYPE_UINT32] = "uint32",
        [EP_TYPE_INT64] = "int64",
        [EP_TYPE_UINT64] = "uint64",
        [EP_TYPE_FLOAT64] = "float64",
    };
    static const char *const readings[] = {
        [EP_READ_NUMBER] = "number",
        [EP_READ_ADDRESS] = "address",
        [EP_READ_EVENT] = "event",
        [EP_READ_CALL] = "call",
        [EP_READ_DOMAIN] = "domain",
        [EP_READ_FUNCTION] = "function",
        [EP_READ_STRING] = "string",
    };
    static const char *const nulls[] = {
        [EP_NULL_NEVER] = "never",
        [EP_NULL_NEGATIVE] = "negative",
        [EP_NULL_ZERO] = "zero",
        [EP_NULL_NAN] = "nan",
        [EP_NULL_NO_LINES] = "no lines",
        [EP_NULL_NO_MEMORY] = "no memory",
        [EP_NULL_NO_LOCK] = "no lock",
        [EP_NULL_NO_WAITS] = "no waits",
    };
    PyObject *rows = PyList_New(0);
    for (const ep_column *c = ep_table_columns; rows != NULL && c->name != NULL; c++) {
        if (c->inner) {
            continue;
        }
        PyObject *row = Py_BuildValue("sssssssss", ep_table_names[c->table], c->name, types[c->type],
                                      readings[c->reading], nulls[c->null], c->null_if, c->unit,
                                      c->meaning, c->more);
        if (row == NULL || PyList_Append(rows, row) < 0) {
            Py_CLEAR(rows);
        }
        Py_XDECREF(row);
    }
    return rows;
}

/* ---- The small tables ------------------------------------------------------------------------ */

/* A text that many functions in a row share, their module or file: one object for all of them. */
typedef struct shared_text {
    uint32_t string;
    PyObject *object;    /* NULL: none yet */
} shared_text;

static PyObject *
share_string(shared_text *last, uint32_t string)
{
    if (last->object == NULL || last->string != string) {
        Py_XSETREF(last->object, ep_py_string(string));
        last->string = string;
    }
    return Py_XNewRef(last->object);
}

/* [(name, module, file, line, kind)]; unknown: None. */
static PyObject *
trace_functions(PyObject *object, PyObject *unused)
{
    (void)unused;
    ep_py_trace *self = (ep_py_trace *)object;
    if (ep_py_trace_reach(self, EP_STEP_NAMES) < 0) {
        return NULL;
    }
    PyObject *kinds[EP_NAME_KIND_COUNT] = {NULL};
    PyObject *rows = PyList_New((Py_ssize_t)self->trace.functions.count);
    for (int kind = 0; rows != NULL && kind < EP_NAME_KIND_COUNT; kind++) {
        kinds[kind] = PyUnicode_InternFromString(ep_name_kind_words[kind]);
        if (kinds[kind] == NULL) {
            Py_CLEAR(rows);
        }
    }
    shared_text module = {0}, file = {0};
    for (size_t i = 0; rows != NULL && i < self->trace.functions.count; i++) {
        const ep_name *name = ep_name_get(self->trace.functions.name_id[i]);
        PyObject *line = name->line > 0 ? PyLong_FromLong(name->line) : Py_NewRef(Py_None);
        PyObject *row = Py_BuildValue("NNNNO", ep_py_string(name->qualname),
                                      share_string(&module, name->module),
                                      share_string(&file, name->file), line, kinds[name->kind]);
        if (row == NULL) {
            Py_CLEAR(rows);
            break;
        }
        PyList_SET_ITEM(rows, (Py_ssize_t)i, row);
    }
    Py_XDECREF(module.object);
    Py_XDECREF(file.object);
    for (int kind = 0; kind < EP_NAME_KIND_COUNT; kind++) {
        Py_XDECREF(kinds[kind]);
    }
    return rows;
}

/* {kind number: count} of those that are not 0. */
static PyObject *
counts_object(const uint64_t counts[EP_KIND_COUNT])
{
    PyObject *result = PyDict_New();
    for (int kind = 0; result != NULL && kind < EP_KIND_COUNT; kind++) {
        if (counts[kind] == 0) {
            continue;
        }
        PyObject *key = PyLong_FromLong(kind), *value = PyLong_FromUnsignedLongLong(counts[kind]);
        if (key == NULL || value == NULL || PyDict_SetItem(result, key, value) < 0) {
            Py_CLEAR(result);
        }
        Py_XDECREF(key);
        Py_XDECREF(value);
    }
    return result;
}

static PyObject *
thread_name(const ep_trace_thread *thread)
{
    const char *name = ep_trace_thread_name(thread);
    return name != NULL ? PyUnicode_DecodeUTF8(name, (Py_ssize_t)strlen(name), "surrogatepass")
                        : Py_NewRef(Py_None);
}

PyObject *
ep_py_thread_rows(const ep_decoded *head)
{
    PyObject *rows = PyList_New((Py_ssize_t)head->thread_count);
    for (size_t i = 0; rows != NULL && i < head->thread_count; i++) {
        const ep_trace_thread *thread = &head->threads[i];
        PyObject *row = Py_BuildValue(
            "NKLLNN", thread_name(thread),
            (unsigned long long)(thread->thread != NULL ? thread->thread->native_id : 0),
            (long long)thread->first_ns, (long long)thread->last_ns, counts_object(thread->recorded),
            counts_object(thread->lost));
        if (row == NULL) {
            Py_CLEAR(rows);
            break;
        }
        PyList_SET_ITEM(rows, (Py_ssize_t)i, row);
    }
    return rows;
}

static PyObject *
trace_threads(PyObject *object, PyObject *unused)
{
    (void)unused;
    ep_py_trace *self = (ep_py_trace *)object;
    return ep_py_trace_reach(self, EP_STEP_HEAD) == 0 ? ep_py_thread_rows(ep_trace_head(&self->trace))
                                                      : NULL;
}

static PyObject *
trace_facts(PyObject *object, PyObject *unused)
{
    (void)unused;
    ep_py_trace *self = (ep_py_trace *)object;
    if (ep_py_trace_reach(self, EP_STEP_HEAD) < 0) {
        return NULL;
    }
    const ep_recording *recording = &self->trace.recording;
    const ep_decoded *head = ep_trace_head(&self->trace);
    return Py_BuildValue(
        "{s:L,s:L,s:L,s:d,s:z,s:K,s:K,s:K,s:K,s:K,s:N,s:n}", "duration_ns",
        (long long)head->duration_ns, "start_monotonic_ns",
        (long long)recording->start.monotonic_ns, "start_realtime_ns",
        (long long)recording->start_realtime_ns, "clock_frequency_hz", recording->frequency_hz, "full",
        ep_full_word(recording->full_reason, recording->limits), "damaged_chunks",
        (unsigned long long)head->damaged_chunks, "filtered",
        (unsigned long long)recording->filtered, "functions_off",
        (unsigned long long)recording->functions_off, "deep_calls",
        (unsigned long long)recording->deep_calls, "short_calls",
        (unsigned long long)recording->short_calls, "kinds", ep_py_kinds(recording->kinds),
        "events",
        (Py_ssize_t)(self->trace.has_decoded ? head->columns.count : ep_decoded_events(head)));
}

/* start() -> (CLOCK_REALTIME, CLOCK_MONOTONIC) of the window's start, in ns; reads no events. */
static PyObject *
trace_start(PyObject *object, PyObject *unused)
{
    (void)unused;
    const ep_recording *recording = &((ep_py_trace *)object)->trace.recording;
    return Py_BuildValue("LL", (long long)recording->start_realtime_ns,
                         (long long)recording->start.monotonic_ns);
}

/* (time, bytes, the recorder's own of them; 0: unknown): samples of the resident set. */
static PyObject *
trace_resident(PyObject *object, PyObject *unused)
{
    (void)unused;
    ep_py_trace *self = (ep_py_trace *)object;
    if (ep_py_trace_reach(self, EP_STEP_HEAD) < 0) {
        return NULL;
    }
    const ep_decoded *decoded = ep_trace_head(&self->trace);
    return Py_BuildValue(
        "NNN", ep_py_view(object, decoded->resident_ns, decoded->resident_count, EP_TYPE_INT64),
        ep_py_view(object, decoded->resident_bytes, decoded->resident_count, EP_TYPE_INT64),
        ep_py_view(object, decoded->resident_own, decoded->resident_count, EP_TYPE_INT64));
}

/* {what pairing met: count} */
static PyObject *
trace_pairing(PyObject *object, PyObject *unused)
{
    (void)unused;
    ep_py_trace *self = (ep_py_trace *)object;
    if (ep_py_trace_reach(self, EP_STEP_BLOCKS) < 0) {
        return NULL;
    }
    size_t misplaced;
    ep_status status;
    Py_BEGIN_ALLOW_THREADS
    status = ep_trace_count_misplaced(&self->trace, &misplaced);
    Py_END_ALLOW_THREADS
    if (status != EP_OK) {
        return ep_py_raise(status, NULL);
    }
    return Py_BuildValue("{s:n,s:n,s:n,s:n,s:n,s:n,s:n}", "calls_misplaced", (Py_ssize_t)misplaced,
                         "unmatched_ends",
                         (Py_ssize_t)self->trace.calls.unmatched_count, "ends_unseen",
                         (Py_ssize_t)self->trace.calls.end_unseen_count, "frees_of_older_blocks",
                         (Py_ssize_t)self->trace.blocks.older_count, "frees_of_lost_blocks",
                         (Py_ssize_t)self->trace.blocks.malloc_lost_count, "frees_lost",
                         (Py_ssize_t)self->trace.blocks.free_lost_count, "swaps_mended",
                         (Py_ssize_t)self->trace.blocks.mended_count);
}

/* pair(): pairs calls and blocks now, beside each other, if nothing did so before. */
static PyObject *
trace_pair(PyObject *object, PyObject *unused)
{
    (void)unused;
    if (ep_py_trace_reach((ep_py_trace *)object, EP_STEP_BLOCKS) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef trace_methods[] = {
    EP_PY_SUMMARY_METHODS,
    {"events", trace_events, METH_VARARGS, NULL},
    {"calls", trace_calls, METH_VARARGS, NULL},
    {"allocations", trace_allocations, METH_VARARGS, NULL},
    {"lines", trace_lines, METH_VARARGS, NULL},
    {"functions", trace_functions, METH_NOARGS, NULL},
    {"threads", trace_threads, METH_NOARGS, NULL},
    {"facts", trace_facts, METH_NOARGS, NULL},
    {"start", trace_start, METH_NOARGS, NULL},
    {"probe", ep_py_trace_probe, METH_NOARGS, NULL},
    {"pair", trace_pair, METH_NOARGS, NULL},
    {"pairing", trace_pairing, METH_NOARGS, NULL},
    {"resident", trace_resident, METH_NOARGS, NULL},
    {"filter", trace_filter, METH_VARARGS, NULL},
    {"trim", ep_py_trace_trim, METH_VARARGS, NULL},
    {"label_values", ep_py_trace_label_values, METH_NOARGS, NULL},
    {"tasks", ep_py_trace_tasks, METH_NOARGS, NULL},
    {"replace_texts", ep_py_trace_replace_texts, METH_VARARGS, NULL},
    {"tree", ep_py_trace_tree, METH_VARARGS, NULL},
    {"has_columns", ep_py_trace_has_columns, METH_NOARGS, NULL},
    {"lost", ep_py_trace_lost, METH_NOARGS, NULL},
    {"tenures", ep_py_trace_tenures, METH_NOARGS, NULL},
    {"picked", ep_py_trace_picked, METH_VARARGS, NULL},
    {"survey", ep_py_trace_survey, METH_NOARGS, NULL},
    {"glance", ep_py_trace_glance, METH_NOARGS, NULL},
    {"file_damage", ep_py_trace_file_damage, METH_NOARGS, NULL},
    {"rows", ep_py_trace_rows, METH_VARARGS, NULL},
    {"file_facts", ep_py_trace_file_facts, METH_NOARGS, NULL},
    {"save", ep_py_trace_save, METH_VARARGS, NULL},
    {"set_processes", ep_py_trace_set_processes, METH_O, NULL},
    {"verify", ep_py_trace_verify, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot trace_slots[] = {
    {Py_tp_dealloc, trace_dealloc},
    {Py_tp_methods, trace_methods},
    {0, NULL},
};

PyType_Spec ep_py_trace_spec = {
    .name = "eventprof._core.Trace",
    .basicsize = sizeof(ep_py_trace),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = trace_slots,
};
