/* _core.merge: a trace of several, on one time line, which reads them when it is first asked for events. */

#include "merged.h"
#include "trace_object.h"

#include <stdlib.h>
#include <string.h>

/* ---- Locks ----------------------------------------------------------------------------------- */

void
ep_py_trace_lock(ep_py_trace *self)
{
    PyThread_acquire_lock(self->lock, WAIT_LOCK);
    for (size_t i = 0; i < self->part_count; i++) {
        PyThread_acquire_lock(self->parts[i]->lock, WAIT_LOCK);
    }
}

ep_py_parts
ep_py_trace_unlock(ep_py_trace *self)
{
    ep_py_parts gone = {0};
    for (size_t i = 0; i < self->part_count; i++) {
        PyThread_release_lock(self->parts[i]->lock);
    }
    if (self->trace.has_decoded) {
        gone = (ep_py_parts){self->parts, self->part_count};
        self->parts = NULL;
        self->part_count = 0;
    }
    PyThread_release_lock(self->lock);
    return gone;
}

void
ep_py_parts_drop(ep_py_parts gone)
{
    for (size_t i = 0; i < gone.count; i++) {
        Py_DECREF(gone.parts[i]);
    }
    PyMem_Free(gone.parts);
}

/* By address: whoever locks some of the same parts, locks them in the same order. */
static int
compare_parts(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)*(ep_py_trace *const *)a, y = (uintptr_t)*(ep_py_trace *const *)b;
    return (x > y) - (x < y);
}

/* ---- Merging --------------------------------------------------------------------------------- */

/* Adds a part to the `count` that there are. Fails: false, exception set. */
static bool
add_part(PyObject *item, ep_merged_part *parts, ep_py_trace **traces, size_t count)
{
    PyObject *object;
    long long offset_ns;
    unsigned long long process_id;
    const char *worker;
    if (!PyArg_ParseTuple(item, "O!LKs:merge", ep_py_trace_type, &object, &offset_ns, &process_id,
                          &worker)) {
        return false;
    }
    ep_py_trace *trace = (ep_py_trace *)object;
    bool is_merged = trace->part_count > 0;
    for (size_t i = 0; i < count && !is_merged; i++) {
        is_merged = traces[i] == trace;
    }
    /* Parts of parts would have to be locked, too; and a file is read by one at a time. */
    if (is_merged && ep_py_trace_reach(trace, EP_STEP_DECODED) < 0) {
        return false;
    }
    parts[count] = (ep_merged_part){&trace->trace, offset_ns, process_id, ""};
    size_t bytes = ep_text_cut((ep_text){worker, strlen(worker)}, EP_FILE_WORKER_BYTES - 1);
    memcpy(parts[count].worker, worker, bytes);
    traces[count] = trace;
    return true;
}

/* Makes the trace the owner of its parts. traces: borrowed; their order is changed. Fails: -1, exception
 * set. */
static int
keep_parts(ep_py_trace *self, ep_py_trace **traces, size_t count)
{
    self->parts = PyMem_Calloc(count + 1, sizeof *self->parts);
    if (self->parts == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    qsort(traces, count, sizeof *traces, compare_parts);
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || traces[i] != traces[i - 1]) {
            self->parts[self->part_count++] = (ep_py_trace *)Py_NewRef((PyObject *)traces[i]);
        }
    }
    return 0;
}

/* merge([(Trace, offset_ns, pid, worker)]) -> Trace; one offset is 0, none is less. */
PyObject *
ep_py_merge(PyObject *module, PyObject *list)
{
    (void)module;
    PyObject *items = PySequence_Tuple(list);
    if (items == NULL) {
        return NULL;
    }
    size_t count = (size_t)PyTuple_GET_SIZE(items), known = 0;
    ep_merged_part *parts = PyMem_Calloc(count + 1, sizeof *parts);
    ep_py_trace **traces = PyMem_Calloc(count + 1, sizeof *traces), *merged = NULL;
    bool has_memory = parts != NULL && traces != NULL;
    while (has_memory && known < count &&
           add_part(PyTuple_GET_ITEM(items, (Py_ssize_t)known), parts, traces, known)) {
        known++;
    }
    ep_trace trace;
    if (!has_memory) {
        PyErr_NoMemory();
    } else if (known == count) {
        ep_status status = ep_trace_merge(parts, count, &trace);
        if (status != EP_OK) {
            ep_py_raise(status, NULL);
        } else {
            merged = ep_py_trace_of(&trace, NULL);
        }
    }
    if (merged != NULL && keep_parts(merged, traces, count) < 0) {
        Py_CLEAR(merged);
    }
    PyMem_Free(parts);
    PyMem_Free(traces);
    Py_DECREF(items);
    return (PyObject *)merged;
}
