/* Trace.verify(): the faults of verify.h as plain Python. The package makes the messages. */

#include "trace_object.h"

#include "verifying.h"

/* [(word, what it means)] */
PyObject *
ep_py_fault_table(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    PyObject *rows = PyList_New(EP_TRACE_FAULT_COUNT);
    for (int sort = 0; rows != NULL && sort < EP_TRACE_FAULT_COUNT; sort++) {
        PyObject *row = Py_BuildValue("ss", ep_trace_faults[sort].word, ep_trace_faults[sort].text);
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
counts_object(const uint64_t counts[EP_TRACE_FAULT_COUNT])
{
    PyObject *result = PyDict_New();
    for (int sort = 0; result != NULL && sort < EP_TRACE_FAULT_COUNT; sort++) {
        PyObject *value = counts[sort] != 0 ? PyLong_FromUnsignedLongLong(counts[sort]) : NULL;
        if ((value == NULL && counts[sort] != 0) ||
            (value != NULL && PyDict_SetItemString(result, ep_trace_faults[sort].word, value) < 0)) {
            Py_CLEAR(result);
        }
        Py_XDECREF(value);
    }
    return result;
}

static PyObject *
row_object(size_t row)
{
    return row != EP_TRACE_FAULT_NO_ROW ? PyLong_FromSize_t(row) : Py_NewRef(Py_None);
}

static PyObject *
faults_object(const ep_verification *verification)
{
    PyObject *rows = PyList_New((Py_ssize_t)verification->count);
    for (size_t i = 0; rows != NULL && i < verification->count; i++) {
        const ep_trace_fault *fault = &verification->faults[i];
        PyObject *row = Py_BuildValue(
            "sNNLINLLK", ep_trace_faults[fault->sort].word, row_object(fault->row),
            fault->thread >= 0 ? PyLong_FromLong(fault->thread) : Py_NewRef(Py_None),
            (long long)fault->time_ns, fault->kind, row_object(fault->other_row),
            (long long)fault->expected, (long long)fault->found,
            (unsigned long long)fault->address);
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
    const ep_verify_input known = {
        .filtered = filtered,
        .one_thread = one_thread,
        .hook_frees = hook_frees,
        .calls_displaced = calls_displaced,
        .memory_displaced = memory_displaced,
    };
    ep_verification found = {0};
    ep_error error = {.text = ""};
    ep_status status;
    EP_PY_WITHOUT_GIL(self, status = ep_verify_trace(&self->trace, &known, (size_t)limit, &found, &error));
    if (status != EP_OK) {
        return ep_py_raise_io(status, &error, self->path);
    }
    PyObject *records = self->trace.record_check.done
                            ? Py_BuildValue("KK", (unsigned long long)self->trace.record_check.records,
                                            (unsigned long long)self->trace.record_check.chunks)
                            : Py_NewRef(Py_None);
    PyObject *result = Py_BuildValue("NNNN", counts_object(found.counts), counts_object(found.excused),
                                     faults_object(&found), records);
    ep_verification_clear(&found);
    return result;
}
