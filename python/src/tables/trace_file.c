/* _core.Trace to and from a file descriptor. The package handles paths, temporary files and messages. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>

#include "open.h"
#include "saving.h"
#include "trace_object.h"

PyObject *
ep_py_raise_io(ep_status status, const ep_error *error, PyObject *path)
{
    if (status == EP_IO) {
        errno = error->os_error;
        return PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path);
    }
    if (path != NULL && (status == EP_FORMAT || status == EP_UNSUPPORTED)) {
        PyErr_Format(ep_py_error(status == EP_FORMAT ? EP_ERROR_FORMAT : EP_ERROR_UNSUPPORTED),
                     "%S: %s", path, error->text);
        return NULL;
    }
    return ep_py_raise(status, error);
}

/* save(fd, metadata): metadata is JSON, in UTF-8. */
PyObject *
ep_py_trace_save(PyObject *object, PyObject *args)
{
    ep_py_trace *self = (ep_py_trace *)object;
    int fd;
    PyObject *metadata;
    if (!PyArg_ParseTuple(args, "iS:save", &fd, &metadata) || ep_py_survey(self) < 0) {
        return NULL;
    }
    ep_recording recording = self->trace.recording;
    recording.metadata = PyBytes_AS_STRING(metadata);    /* a view */
    recording.metadata_bytes = (size_t)PyBytes_GET_SIZE(metadata);
    ep_error error = {.text = ""};
    ep_status status;
    EP_PY_WITHOUT_GIL(self, status = ep_save_trace(&self->trace, fd, &recording, &error));
    if (status != EP_OK) {
        return ep_py_raise_io(status, &error, NULL);
    }
    Py_RETURN_NONE;
}

/* set_processes(threads): of an archive, how many threads each process has; a tuple. */
PyObject *
ep_py_trace_set_processes(PyObject *object, PyObject *threads)
{
    ep_py_trace *self = (ep_py_trace *)object;
    if (!PyTuple_Check(threads)) {
        return PyErr_Format(PyExc_TypeError, "a tuple of int is needed");
    }
    size_t count = (size_t)PyTuple_GET_SIZE(threads);
    size_t *counts = PyMem_Calloc(count + 1, sizeof *counts);
    if (counts == NULL) {
        return PyErr_NoMemory();
    }
    for (size_t i = 0; i < count && !PyErr_Occurred(); i++) {
        counts[i] = PyLong_AsSize_t(PyTuple_GET_ITEM(threads, (Py_ssize_t)i));
    }
    ep_archive *archive = ep_trace_archive(&self->trace);
    if (!PyErr_Occurred() && archive != NULL && count <= INT32_MAX) {
        ep_archive_set_processes(archive, counts, count);
    }
    PyMem_Free(counts);
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* {section: (how many, items, raw bytes, stored bytes)} */
static PyObject *
sections_object(const ep_archive_info *info)
{
    PyObject *result = PyDict_New();
    for (int i = 0; result != NULL && i < EP_ARCHIVE_SECTION_TYPES; i++) {
        const ep_archive_section *s = &info->sections[i];
        if (s->name == NULL) {
            continue;
        }
        PyObject *row = Py_BuildValue("KKKK", (unsigned long long)s->sections,
                                      (unsigned long long)s->items, (unsigned long long)s->raw_bytes,
                                      (unsigned long long)s->stored_bytes);
        if (row == NULL || PyDict_SetItemString(result, s->name, row) < 0) {
            Py_CLEAR(result);
        }
        Py_XDECREF(row);
    }
    return result;
}

static PyObject *
info_object(const ep_trace *trace)
{
    const ep_archive_info *info = ep_trace_archive_info(trace);
    return Py_BuildValue(
        "{s:s,s:(II),s:s,s:s,s:K,s:K,s:K,s:K,s:z,s:O,s:K,s:N,s:N}", "format", "archive", "version",
        info->major, info->minor, "writer",
        info->writer, "codec", info->codec, "bytes", (unsigned long long)info->file_bytes, "events",
        (unsigned long long)info->events, "events_written", (unsigned long long)info->events_written,
        "damaged", (unsigned long long)info->damaged, "damage",
        info->damaged > 0 ? info->damage : NULL, "unfinished",
        trace->recording.unfinished ? Py_True : Py_False, "unknown_events",
        (unsigned long long)info->unknown_events, "unknown_kinds",
        PyUnicode_DecodeUTF8(info->unknown_words, (Py_ssize_t)strlen(info->unknown_words), "replace"),
        "sections", sections_object(info));
}

/* open_archive(fd, path) -> (Trace, metadata or None, info). The descriptor stays the caller's; the
 * path is for messages. The trace loads its events when first asked for them. */
PyObject *
ep_py_open_archive(PyObject *module, PyObject *args)
{
    (void)module;
    int fd;
    PyObject *path;
    if (!PyArg_ParseTuple(args, "iO:open_archive", &fd, &path)) {
        return NULL;
    }
    ep_trace trace;
    ep_error error = {.text = ""};
    ep_status status;
    Py_BEGIN_ALLOW_THREADS
    status = ep_trace_open_archive(fd, &trace, &error);
    Py_END_ALLOW_THREADS
    if (status != EP_OK) {
        return ep_py_raise_io(status, &error, path);
    }
    ep_py_trace *self = ep_py_trace_of(&trace, path);
    if (self == NULL) {
        return NULL;
    }
    const ep_recording *recording = &self->trace.recording;
    /* y#: None without metadata */
    return Py_BuildValue("Ny#N", self, recording->metadata, (Py_ssize_t)recording->metadata_bytes,
                         info_object(&self->trace));
}
