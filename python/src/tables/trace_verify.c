/* Trace.verify(): what verify.h found, as plain Python. Words are the package's. */

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
    self->check_records = true;    /* as long as they are there */
    if (ep_py_trace_reach(self, EP_STEP_FUNCTIONS, 0) < 0) {
        return NULL;
    }
    const ep_verify_input input = {
        .columns = &self->decoded.columns,
        .map = &self->functions.map,
        .threads = self->decoded.threads,
        .thread_count = self->decoded.thread_count,
        .kinds = self->recording.kinds,
        .duration_ns = self->decoded.duration_ns,
        .lost_tail = self->recording.full_reason != EP_FULL_NOT,
        .filtered = filtered,
        .one_thread = one_thread,
        .hook_frees = hook_frees,
        .damaged = self->decoded.damaged_chunks > 0 || (self->recording.limits & EP_LIMIT_CUT) != 0,
        .calls_displaced = calls_displaced,
        .memory_displaced = memory_displaced,
    };
    ep_verification found = {0};
    ep_status status;
    Py_BEGIN_ALLOW_THREADS
    /* Pairing fills sizes meanwhile otherwise. */
    PyThread_acquire_lock(self->lock, WAIT_LOCK);
    ep_py_telling telling;
    ep_py_telling_begin(&telling, "verifying");
    status = ep_verify(&input, (size_t)limit, &telling.progress, &found);
    if (status == EP_OK && self->record_check.done) {
        ep_verify_records(&self->record_check, input.threads, input.thread_count, &found);
    }
    ep_py_telling_end(&telling);
    PyThread_release_lock(self->lock);
    Py_END_ALLOW_THREADS
    if (status != EP_OK) {
        return ep_py_raise(status, NULL);
    }
    PyObject *records = self->record_check.done
                            ? Py_BuildValue("KK", (unsigned long long)self->record_check.records,
                                            (unsigned long long)self->record_check.chunks)
                            : Py_NewRef(Py_None);
    PyObject *result = Py_BuildValue("NNNN", counts_object(found.counts), counts_object(found.excused),
                                     findings_object(&found), records);
    ep_verification_clear(&found);
    return result;
}
