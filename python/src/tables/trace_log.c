/* _core.open_log: a trace whose events come from a log file, when they are first asked for. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "open.h"
#include "trace_object.h"

PyObject *
ep_py_worker_text(const char *worker)
{
    if (worker[0] == 0) {
        Py_RETURN_NONE;
    }
    return PyUnicode_DecodeUTF8(worker, (Py_ssize_t)strlen(worker), "replace");
}

/* {name: value}, as far as is known: more so once the events are loaded. */
PyObject *
ep_py_trace_file_facts(PyObject *object, PyObject *unused)
{
    (void)unused;
    ep_py_trace *self = (ep_py_trace *)object;
    const ep_file_facts *facts = ep_trace_log_facts(&self->trace);
    PyObject *notes = PyList_New(0);
    for (uint64_t i = 0; notes != NULL && i < facts->note_count && i < EP_FILE_NOTES; i++) {
        const char *words = facts->notes[i];
        PyObject *text = PyUnicode_DecodeUTF8(words, (Py_ssize_t)strlen(words), "replace");
        if (text == NULL || PyList_Append(notes, text) < 0) {
            Py_CLEAR(notes);
        }
        Py_XDECREF(text);
    }
    if (notes == NULL) {
        return NULL;
    }
    return Py_BuildValue(
        "{s:s,s:s,s:(ii),s:L,s:L,s:K,s:O,s:O,s:O,s:K,s:K,s:K,s:K,s:s,s:s,s:K,s:I,s:z,s:K,s:s,s:N,s:N}",
        "format", "log", "clock",
        facts->counter ? "counter" : "monotonic", "version",
        (int)facts->major, (int)facts->minor, "start_ns",
        (long long)self->trace.recording.start_realtime_ns, "start_monotonic_ns",
        (long long)self->trace.recording.start.monotonic_ns, "bytes",
        (unsigned long long)facts->bytes, "unfinished",
        facts->phase != EP_FILE_FINISHED ? Py_True : Py_False, "live",
        facts->writer_lives ? Py_True : Py_False, "awaits_stop",
        facts->awaits_stop ? Py_True : Py_False, "event_slots",
        (unsigned long long)facts->event_slots, "text_slots", (unsigned long long)facts->text_slots,
        "other_slots", (unsigned long long)facts->other_slots, "parent_pid",
        (unsigned long long)facts->parent_process_id, "calls_from", facts->calls_from, "displaced",
        facts->displaced, "missing_count", (unsigned long long)facts->note_count, "children_lost",
        (unsigned)facts->children_lost, "children_error",
        facts->children_error != 0 ? strerror((int)facts->children_error) : NULL, "unknown_events",
        (unsigned long long)facts->unknown_events, "unknown_kinds", facts->unknown_words, "missing",
        notes, "worker", ep_py_worker_text(facts->worker));
}

/* probe(): raises what reading its events would raise, if it is of a log that nobody writes any more.
 * Without the events: only what a pass reads before them. */
PyObject *
ep_py_trace_probe(PyObject *object, PyObject *unused)
{
    (void)unused;
    ep_py_trace *self = (ep_py_trace *)object;
    ep_status status;
    ep_error error = {.text = ""};
    EP_PY_WITHOUT_GIL(self, status = ep_trace_probe(&self->trace, &error));
    if (status != EP_OK) {
        return ep_py_raise_io(status, &error, self->path);
    }
    Py_RETURN_NONE;
}

/* open_log(descriptor, path) -> (Trace, metadata, pid). Takes the descriptor over. */
PyObject *
ep_py_open_log(PyObject *module, PyObject *args)
{
    (void)module;
    int descriptor;
    PyObject *path;
    if (!PyArg_ParseTuple(args, "iO:open_log", &descriptor, &path)) {
        return NULL;
    }
    ep_trace trace;
    ep_error error = {.text = ""};
    ep_status status = ep_trace_open_log(descriptor, &trace, &error);
    if (status != EP_OK) {
        return ep_py_raise_io(status, &error, path);
    }
    ep_py_trace *self = ep_py_trace_of(&trace, path);
    if (self == NULL) {
        return NULL;
    }
    const ep_recording *recording = &self->trace.recording;
    return Py_BuildValue("Ny#K", self, recording->metadata, (Py_ssize_t)recording->metadata_bytes,
                         (unsigned long long)recording->process_id);
}
