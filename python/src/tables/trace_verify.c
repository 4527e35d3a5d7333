/* Trace.verify(): the findings of verify.h as plain Python. The package makes the messages. */

#include "trace_object.h"

/* [(word, what it means)] */
PyObject *
ep_py_finding_table(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    PyObject *rows = PyList_New(EP_FINDING_COUNT);
    for (int sort = 0; rows != NULL && sort < EP_FINDING_COUNT; sort++) {
        PyObject *row = Py_BuildValue("ss", ep_findings[sort].word, ep_findings[sort].text);
        if (row == NULL) {
            Py_CLEAR(rows);
            break;
        }
        PyList_SET_ITEM(rows, sort, row);
    }
    return rows;
}

/* {word: count} of those that are not 0. */
static PyObject *
counts_object(const uint64_t counts[EP_FINDING_COUNT])
{
    PyObject *result = PyDict_New();
    for (int sort = 0; result != NULL && sort < EP_FINDING_COUNT; sort++) {
        PyObject *value = counts[sort] != 0 ? PyLong_FromUnsignedLongLong(counts[sort]) : NULL;
        if ((value == NULL && counts[sort] != 0) ||
            (value != NULL && PyDict_SetItemString(result, ep_findings[sort].word, value) < 0)) {
            Py_CLEAR(result);
        }
        Py_XDECREF(value);
    }
    return result;
}

static PyObject *
row_object(size_t row)
{
    return row != EP_FINDING_NO_ROW ? PyLong_FromSize_t(row) : Py_NewRef(Py_None);
}

static PyObject *
findings_object(const ep_verification *verification)
{
    PyObject *rows = PyList_New((Py_ssize_t)verification->count);
    for (size_t i = 0; rows != NULL && i < verification->count; i++) {
        const ep_finding *finding = &verification->findings[i];
        PyObject *row = Py_BuildValue(
            "sNNLNLLK", ep_findings[finding->sort].word, row_object(finding->row),
            finding->thread >= 0 ? PyLong_FromLong(finding->thread) : Py_NewRef(Py_None),
            (long long)finding->time_ns, row_object(finding->other_row),
            (long long)finding->expected, (long long)finding->found,
            (unsigned long long)finding->address);
        if (row == NULL) {
            Py_CLEAR(rows);
            break;
        }
        PyList_SET_ITEM(rows, (Py_ssize_t)i, row);
    }
    return rows;
}

/* verify(limit, filtered, one_thread, hook_frees, calls_displaced, memory_displaced) */
PyObject *
ep_py_trace_verify(PyObject *object, PyObject *args)
{
    ep_py_trace *self = (ep_py_trace *)object;
    Py_ssize_t limit;
    int filtered, one_thread, hook_frees, calls_displaced, memory_displaced;
    if (!PyArg_ParseTuple(args, "nppppp:verify", &limit, &filtered, &one_thread, &hook_frees,
                          &calls_displaced, &memory_displaced)) {
        return NULL;
    }
    self->trace.check_records = true;    /* before decoding gives them back */
    if (ep_py_trace_reach(self, EP_STEP_FUNCTIONS) < 0) {
        return NULL;
    }
    const ep_verify_input known = {
        .filtered = filtered,
        .one_thread = one_thread,
        .hook_frees = hook_frees,
        .calls_displaced = calls_displaced,
        .memory_displaced = memory_displaced,
    };
    ep_verification found = {0};
    ep_status status;
    /* Under the lock: pairing fills sizes. */
    EP_PY_WITHOUT_GIL(self, status = ep_trace_verify(&self->trace, &known, (size_t)limit, &found));
    if (status != EP_OK) {
        return ep_py_raise(status, NULL);
    }
    PyObject *records = self->trace.record_check.done
                            ? Py_BuildValue("KK", (unsigned long long)self->trace.record_check.records,
                                            (unsigned long long)self->trace.record_check.chunks)
                            : Py_NewRef(Py_None);
    PyObject *result = Py_BuildValue("NNNN", counts_object(found.counts), counts_object(found.excused),
                                     findings_object(&found), records);
    ep_verification_clear(&found);
    return result;
}
