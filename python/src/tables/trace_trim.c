/* _core.Trace: a part of a recording, and other texts in it (trim.h). What is done here changes the trace
 * itself: it is then saved, and no more asked for anything else. */
#define PY_SSIZE_T_CLEAN
#include "trace_object.h"

#include <stddef.h>

#include "kinds.h"
#include "memory.h"
#include "names.h"
#include "trim.h"

/* Fails: false, exception set: tables of it exist already, and would not be those of what is left. */
static bool
is_untouched(ep_py_trace *self)
{
    if (ep_py_trace_reach(self, EP_STEP_DECODED) < 0) {
        return false;
    }
    if (self->trace.has_calls || self->trace.has_blocks) {
        PyErr_SetString(PyExc_ValueError, "the trace has been read: open the file again");
        return false;
    }
    return true;
}

/* trim(from_ns, until_ns, rows of threads that are left out, kinds that are left out) */
PyObject *
ep_py_trace_trim(PyObject *object, PyObject *args)
{
    ep_py_trace *self = (ep_py_trace *)object;
    long long from_ns, until_ns;
    PyObject *left_out;
    ep_kind_set kinds;
    if (!PyArg_ParseTuple(args, "LLO!O&:trim", &from_ns, &until_ns, &PyTuple_Type, &left_out,
                          ep_py_kinds_from, &kinds) ||
        !is_untouched(self)) {
        return NULL;
    }
    if (from_ns < 0 || from_ns > until_ns) {
        return PyErr_Format(PyExc_ValueError, "trim(): from %lld to %lld ns", from_ns, until_ns);
    }
    ep_trace *trace = &self->trace;
    size_t thread_count = trace->decoded.thread_count;
    bool *threads = PyMem_Calloc(thread_count + 1, sizeof *threads);
    if (threads == NULL) {
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(left_out); i++) {
        size_t row = PyLong_AsSize_t(PyTuple_GET_ITEM(left_out, i));
        if (row >= thread_count) {
            PyMem_Free(threads);
            return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "trim(): no thread %zu", row);
        }
        threads[row] = true;
    }
    const ep_trim trim = {from_ns, until_ns, threads, kinds};
    ep_status status;
    EP_PY_WITHOUT_GIL(self, {
        status = ep_trim_apply(&trim, &trace->decoded);
        if (status == EP_OK) {
            ep_trace_rows_changed(trace);
            trace->recording.kinds &= ~kinds;
            trace->recording.start.monotonic_ns += from_ns;
            trace->recording.start_realtime_ns += from_ns;
            trace->recording.start_boottime_ns += from_ns;
        }
    });
    PyMem_Free(threads);
    if (status != EP_OK) {
        return ep_py_raise(status, NULL);
    }
    Py_RETURN_NONE;
}

/* ---- Other texts ------------------------------------------------------------------------------ */

static bool
append_label(void *list, size_t number, ep_text value)
{
    (void)number;
    PyObject *bytes = PyBytes_FromStringAndSize(value.at, (Py_ssize_t)value.bytes);
    int failed = bytes == NULL ? -1 : PyList_Append(list, bytes);
    Py_XDECREF(bytes);
    return failed == 0;
}

/* label_values() -> [value: bytes], as often as they were written. */
PyObject *
ep_py_trace_label_values(PyObject *object, PyObject *unused)
{
    (void)unused;
    ep_py_trace *self = (ep_py_trace *)object;
    PyObject *values = is_untouched(self) ? PyList_New(0) : NULL;
    ep_status status =
        values == NULL ? EP_OK : ep_label_values(&self->trace.decoded, append_label, values);
    if (status != EP_OK) {
        Py_CLEAR(values);
        return PyErr_Occurred() ? NULL : ep_py_raise(status, NULL);
    }
    return values;
}

static void
add_task(PyObject *tasks, uint32_t site_id)
{
    uint32_t task = ep_site_get(site_id)->task;
    if (task == 0 || PyErr_Occurred()) {
        return;
    }
    ep_text text = ep_string_get(task - 1);
    PyObject *number = PyLong_FromUnsignedLong(task - 1);
    PyObject *bytes = PyBytes_FromStringAndSize(text.at, (Py_ssize_t)text.bytes);
    if (number != NULL && bytes != NULL) {
        (void)PyDict_SetItem(tasks, number, bytes);
    }
    Py_XDECREF(number);
    Py_XDECREF(bytes);
}

/* tasks() -> {number: name as bytes} */
PyObject *
ep_py_trace_tasks(PyObject *object, PyObject *unused)
{
    (void)unused;
    ep_py_trace *self = (ep_py_trace *)object;
    if (!is_untouched(self)) {
        return NULL;
    }
    const ep_decoded *decoded = &self->trace.decoded;
    bool *seen = PyMem_Calloc(ep_site_count(), sizeof *seen);
    PyObject *tasks = seen == NULL ? PyErr_NoMemory() : PyDict_New();
    for (size_t row = 0; tasks != NULL && row < decoded->columns.count; row++) {
        uint32_t id = decoded->columns.id[row];
        if (!ep_kind_has_name(decoded->columns.kind[row]) && !seen[id]) {
            seen[id] = true;
            add_task(tasks, id);
        }
    }
    for (size_t i = 0; tasks != NULL && i < decoded->thread_count; i++) {
        for (size_t at = 0; at < decoded->threads[i].open.depth; at++) {
            add_task(tasks, decoded->threads[i].open.calls[at].site_id);
        }
    }
    PyMem_Free(seen);
    if (PyErr_Occurred()) {
        Py_CLEAR(tasks);
    }
    return tasks;
}

/* The numbers that stand for new texts; owned. */
typedef struct renamed {
    uint32_t *names, *tasks;
    ep_text *labels;
    size_t task_count;
} renamed;

static bool
take_tasks(PyObject *given, renamed *to)
{
    PyObject *number, *bytes;
    to->task_count = ep_string_count();
    to->tasks = PyMem_Calloc(to->task_count + 1, sizeof *to->tasks);
    if (to->tasks == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t at = 0; PyDict_Next(given, &at, &number, &bytes);) {
        size_t task = PyLong_AsSize_t(number);
        if (task >= to->task_count || !PyBytes_Check(bytes)) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_ValueError, "replace_texts(): a task is none of tasks()");
            }
            return false;
        }
        ep_text text = {PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes)};
        to->tasks[task] = ep_string_add(text);
        if (to->tasks[task] == EP_STRING_NONE) {
            PyErr_NoMemory();
            return false;
        }
    }
    return true;
}

static bool
take_labels(PyObject *given, renamed *to)
{
    Py_ssize_t count = PyList_GET_SIZE(given);
    to->labels = PyMem_Calloc((size_t)count + 1, sizeof *to->labels);
    if (to->labels == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *bytes = PyList_GET_ITEM(given, i);
        if (!PyBytes_Check(bytes)) {
            PyErr_SetString(PyExc_TypeError, "replace_texts(): a label's value is bytes");
            return false;
        }
        to->labels[i] = (ep_text){PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes)};
    }
    return true;
}

/* replace_texts(functions, tasks, labels, threads): as many functions as functions() has, in the same form;
 * tasks: {number of tasks(): bytes}; labels: one for each of label_values(), of the same
 * length; threads: [bytes or None], one for each row of threads(). */
PyObject *
ep_py_trace_replace_texts(PyObject *object, PyObject *args)
{
    ep_py_trace *self = (ep_py_trace *)object;
    PyObject *functions, *tasks, *labels, *threads;
    if (!PyArg_ParseTuple(args, "O!O!O!O!:replace_texts", &PyList_Type, &functions, &PyDict_Type, &tasks,
                          &PyList_Type, &labels, &PyList_Type, &threads) ||
        !is_untouched(self) || ep_py_trace_reach(self, EP_STEP_FUNCTIONS) < 0) {
        return NULL;
    }
    ep_decoded *decoded = &self->trace.decoded;
    if ((size_t)PyList_GET_SIZE(functions) != self->trace.functions.count ||
        (size_t)PyList_GET_SIZE(threads) != decoded->thread_count) {
        PyErr_SetString(PyExc_ValueError, "replace_texts(): another number of functions or threads");
        return NULL;
    }
    renamed to = {0};
    to.names = ep_py_make_names(functions);
    bool done = to.names != NULL && take_tasks(tasks, &to) && take_labels(labels, &to);
    if (done) {
        const ep_rename rename = {
            .map = &self->trace.functions.map,
            .names = to.names,
            .tasks = to.tasks,
            .task_count = to.task_count,
            .labels = to.labels,
            .label_count = (size_t)PyList_GET_SIZE(labels),
        };
        ep_status status;
        EP_PY_WITHOUT_GIL(self, status = ep_rename_apply(&rename, decoded));
        done = status == EP_OK;
        if (status == EP_ARGUMENT) {
            PyErr_SetString(PyExc_ValueError, "replace_texts(): the labels have other lengths");
        } else if (!done) {
            ep_py_raise(status, NULL);
        }
    }
    for (size_t i = 0; done && i < decoded->thread_count; i++) {
        if (decoded->threads[i].thread != NULL) {
            /* The rows refer to threads of the file, which this trace alone has. */
            ptrdiff_t row = decoded->threads[i].thread - decoded->read_threads;
            ep_thread *who = &decoded->read_threads[row];
            done = ep_py_thread_named(PyList_GET_ITEM(threads, (Py_ssize_t)i), who);
        }
    }
    PyMem_Free(to.names);
    PyMem_Free(to.tasks);
    PyMem_Free(to.labels);
    if (!done) {
        return NULL;
    }
    ep_trace_rows_changed(&self->trace);
    Py_RETURN_NONE;
}
