/* _core.merge: a trace of several, on one time line. */

#include "merge.h"
#include "trace_object.h"

/* The traces' own half of what they have in common. */
static void
join_facts(ep_py_trace *self, const ep_py_trace *part, int64_t offset_ns)
{
    ep_recording *to = &self->recording;
    const ep_recording *from = &part->recording;
    ep_kind_set kinds = to->kinds | from->kinds;
    uint64_t filtered = to->filtered + from->filtered;
    uint64_t deep_calls = to->deep_calls + from->deep_calls;
    uint64_t short_calls = to->short_calls + from->short_calls;
    uint64_t functions_off = to->functions_off + from->functions_off;
    uint32_t limits = to->limits | from->limits;
    ep_full_reason reason = to->full_reason != EP_FULL_NOT ? to->full_reason : from->full_reason;
    if (offset_ns == 0) {
        *to = *from;
    }
    to->kinds = kinds;
    to->filtered = filtered;
    to->deep_calls = deep_calls;
    to->short_calls = short_calls;
    to->functions_off = functions_off;
    to->full_reason = reason;
    to->limits = limits;
}

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
    ep_py_trace *self = ep_py_trace_alloc();
    for (size_t i = 0; parts != NULL && self != NULL && i < count; i++) {
        PyObject *trace;
        long long offset_ns;
        unsigned long long process_id;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(items, i), "O!LK:merge", ep_py_trace_type, &trace,
                              &offset_ns, &process_id) ||
            ep_py_trace_reach((ep_py_trace *)trace, EP_STEP_DECODED, 0) < 0) {
            Py_CLEAR(self);
            break;
        }
        parts[i] = (ep_merge_part){&((ep_py_trace *)trace)->decoded, offset_ns, process_id};
        join_facts(self, (ep_py_trace *)trace, offset_ns);
    }
    if (parts == NULL || self == NULL) {
        Py_CLEAR(self);
        if (!PyErr_Occurred()) {
            PyErr_NoMemory();
        }
    } else {
        ep_status status;
        Py_BEGIN_ALLOW_THREADS
        status = ep_merge(parts, count, &self->decoded);
        Py_END_ALLOW_THREADS
        self->has_decoded = status == EP_OK;
        if (status != EP_OK) {
            Py_CLEAR(self);
            ep_py_raise(status, NULL);
        }
    }
    free(parts);
    Py_DECREF(items);
    return (PyObject *)self;
}
