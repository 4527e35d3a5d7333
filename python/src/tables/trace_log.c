/* _core.open_log: a trace whose events come from a log file, when they are first asked for. */

#include <errno.h>

#include "file_read.h"
#include "trace_object.h"

ep_status
ep_py_trace_load(ep_py_trace *self, ep_error *error)
{
    ep_recording recording;
    ep_file_check_records(self->file, self->check_records ? &self->record_check : NULL);
    ep_status status = ep_file_load(self->file, &recording, &self->decoded, error);
    if (status != EP_OK) {
        errno = error->os_error;
        return status;
    }
    self->file_facts = *ep_file_get_facts(self->file);
    free(recording.metadata);    /* the package has them */
    recording.metadata = NULL;
    recording.metadata_bytes = 0;
    self->recording = recording;
    ep_file_close(self->file);
    self->file = NULL;
    return EP_OK;
}

/* {name: value}, as far as is known: more so once the events are loaded. */
PyObject *
ep_py_trace_file_facts(PyObject *object, PyObject *unused)
{
    (void)unused;
    ep_py_trace *self = (ep_py_trace *)object;
    const ep_file_facts *facts = self->file != NULL ? ep_file_get_facts(self->file) : &self->file_facts;
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
        "{s:s,s:s,s:(ii),s:K,s:O,s:O,s:O,s:K,s:K,s:K,s:K,s:s,s:s,s:K,s:I,s:z,s:N}", "format", "log", "clock",
        facts->counter ? "counter" : "monotonic", "version",
        (int)facts->major, (int)facts->minor, "bytes", (unsigned long long)facts->bytes, "unfinished",
        facts->phase != EP_FILE_FINISHED ? Py_True : Py_False, "live",
        facts->writer_lives ? Py_True : Py_False, "awaits_stop",
        facts->awaits_stop ? Py_True : Py_False, "event_slots",
        (unsigned long long)facts->event_slots, "text_slots", (unsigned long long)facts->text_slots,
        "other_slots", (unsigned long long)facts->other_slots, "parent_pid",
        (unsigned long long)facts->parent_process_id, "calls_from", facts->calls_from, "displaced",
        facts->displaced, "missing_count", (unsigned long long)facts->note_count, "children_lost",
        (unsigned)facts->children_lost, "children_error",
        facts->children_error != 0 ? strerror((int)facts->children_error) : NULL, "missing", notes);
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
    ep_error error = {.text = ""};
    ep_file_reader *reader;
    ep_status status = ep_file_open(descriptor, &reader, &error);
    if (status != EP_OK) {
        return ep_py_raise_io(status, &error, error.os_error, path);
    }
    ep_recording recording;
    status = ep_file_describe(reader, &recording, &error);
    ep_py_trace *self = status == EP_OK ? ep_py_trace_alloc() : NULL;
    if (self == NULL) {
        ep_file_close(reader);
        if (status != EP_OK) {
            return ep_py_raise_io(status, &error, error.os_error, path);
        }
        ep_recording_clear(&recording);
        return NULL;
    }
    self->file = reader;
    self->path = Py_NewRef(path);
    PyObject *result = Py_BuildValue("NNK", self,
                                     PyBytes_FromStringAndSize(recording.metadata,
                                                               (Py_ssize_t)recording.metadata_bytes),
                                     (unsigned long long)recording.process_id);
    ep_recording_clear(&recording);
    return result;
}
