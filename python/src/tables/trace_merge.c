/* _core.merge: a trace of several, on one time line. */

#include "merge.h"
#include "trace_object.h"

/* merge([(Trace, offset_ns, pid)]) -> Trace; one offset is 0, none is less. */
PyObject *
ep_py_merge(PyObject *module, PyObject *list)
{
    (void)module;
    PyObject *items = PySequence_Tuple(list);
    if (items == NULL) {
        return NULL;
    }
    size_t count = (size_t)PyTuple_GET_SIZE(items);
    ep_merge_part *parts = calloc(count + 1, sizeof *parts);
    ep_trace merged = {0};
    bool failed = parts == NULL;
    for (size_t i = 0; i < count && !failed; i++) {
        PyObject *trace;
        long long offset_ns;
        unsigned long long process_id;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(items, i), "O!LK:merge", ep_py_trace_type, &trace,
                              &offset_ns, &process_id) ||
            ep_py_trace_reach((ep_py_trace *)trace, EP_STEP_DECODED) < 0) {
            failed = true;
            break;
        }
        const ep_trace *part = &((ep_py_trace *)trace)->trace;
        parts[i] = (ep_merge_part){&part->decoded, offset_ns, process_id};
        ep_recording_join(&merged.recording, &part->recording, offset_ns == 0);
    }
    ep_status status = parts == NULL ? EP_NOMEM : EP_OK;
    if (!failed) {
        Py_BEGIN_ALLOW_THREADS
        status = ep_merge(parts, count, &merged.decoded);
        Py_END_ALLOW_THREADS
        merged.has_decoded = status == EP_OK;
    }
    free(parts);
    Py_DECREF(items);
    if (status != EP_OK) {
        ep_py_raise(status, NULL);
    }
    if (failed || status != EP_OK) {
        ep_trace_clear(&merged);
        return NULL;
    }
    return (PyObject *)ep_py_trace_of(&merged, NULL);
}
