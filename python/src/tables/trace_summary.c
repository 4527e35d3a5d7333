/* What summary.c computes, as NumPy arrays: the package gives it names and makes tables of it. */
#include "trace_object.h"

#include "arrays.h"

/* Runs a piece of the core's work without the GIL, one thread at a time. */
#define WITHOUT_GIL(self, work)                         \
    do {                                                \
        Py_BEGIN_ALLOW_THREADS                          \
        PyThread_acquire_lock((self)->lock, WAIT_LOCK); \
        work;                                           \
        PyThread_release_lock((self)->lock);            \
        Py_END_ALLOW_THREADS                            \
    } while (0)

/* ---- Arrays ---------------------------------------------------------------------------------- */

/* A fresh array of `count` elements of `bytes` each, taken from every `stride` bytes of `from`. */
static PyObject *
gathered(const void *from, size_t count, size_t stride, size_t bytes, ep_py_type type)
{
    void *data;
    PyObject *array = ep_py_array(count, type, &data);
    for (size_t i = 0; array != NULL && i < count; i++) {
        memcpy((char *)data + i * bytes, (const char *)from + i * stride, bytes);
    }
    return array;
}

#define GATHERED(rows, count, field, type)                                    \
    gathered((rows) != NULL ? &(rows)[0].field : NULL, count, sizeof *(rows), \
             sizeof(rows)[0].field, type)

/* (keys, bytes, blocks) of groups. */
static PyObject *
groups_object(const ep_groups *groups)
{
    return Py_BuildValue("NNN", GATHERED(groups->rows, groups->count, key, EP_PY_INT32),
                         GATHERED(groups->rows, groups->count, bytes, EP_PY_INT64),
                         GATHERED(groups->rows, groups->count, blocks, EP_PY_INT64));
}

/* ---- Functions and calls --------------------------------------------------------------------- */

static ep_status
reach_summary(ep_py_trace *self)
{
    ep_status status = EP_OK;
    if (!self->has_summary) {
        ep_py_telling telling;
        ep_py_telling_begin(&telling, "counting by function");
        status = ep_summary_functions(&self->input, &self->calls, &self->blocks, &telling.progress,
                                      &self->summary);
        ep_py_telling_end(&telling);
        self->has_summary = status == EP_OK;
    }
    return status;
}

/* {column: array}; the last row is what belongs to no function. */
PyObject *
ep_py_trace_function_stats(PyObject *object, PyObject *unused)
{
    (void)unused;
    static const struct {
        const char *name;
        size_t at;
        ep_py_type type;
    } fields[] = {
#define FIELD(name) {#name, offsetof(ep_function_stats, name), EP_PY_INT64}
        FIELD(calls),
        FIELD(resumes),
        FIELD(recursive),
        FIELD(total),
        FIELD(self),
        FIELD(whole),
        FIELD(min),
        FIELD(max),
        FIELD(p50),
        FIELD(p95),
        FIELD(p99),
        FIELD(allocated),
        FIELD(freed),
        FIELD(net),
        FIELD(blocks),
        FIELD(alive),
        FIELD(alive_blocks),
        FIELD(churn),
        FIELD(temporary),
        FIELD(temporary_blocks),
        FIELD(peak_live),
#undef FIELD
        {"mean", offsetof(ep_function_stats, mean), EP_PY_FLOAT64},
    };
    ep_py_trace *self = (ep_py_trace *)object;
    if (ep_py_trace_reach(self, EP_STEP_BLOCKS, 0) < 0) {
        return NULL;
    }
    ep_status status;
    WITHOUT_GIL(self, status = reach_summary(self));
    if (status != EP_OK) {
        return ep_py_raise(status, NULL);
    }
    PyObject *columns = PyDict_New();
    for (size_t i = 0; columns != NULL && i < sizeof fields / sizeof *fields; i++) {
        PyObject *array = gathered((const char *)self->summary.rows + fields[i].at,
                                   self->summary.count, sizeof *self->summary.rows, 8,
                                   fields[i].type);
        if (array == NULL || PyDict_SetItemString(columns, fields[i].name, array) < 0) {
            Py_CLEAR(columns);
        }
        Py_XDECREF(array);
    }
    return columns;
}

/* call_memory(below) -> (allocated, freed, blocks) by call. */
PyObject *
ep_py_trace_call_memory(PyObject *object, PyObject *below)
{
    ep_py_trace *self = (ep_py_trace *)object;
    int wants_below = PyObject_IsTrue(below);
    if (wants_below < 0 || ep_py_trace_reach(self, EP_STEP_BLOCKS, 0) < 0) {
        return NULL;
    }
    ep_call_memory memory = {0};
    ep_status status;
    WITHOUT_GIL(self, status = ep_summary_call_memory(&self->calls, &self->blocks, wants_below,
                                                      &memory));
    if (status != EP_OK) {
        return ep_py_raise(status, NULL);
    }
    PyObject *result =
        Py_BuildValue("NNN", gathered(memory.allocated, memory.count, 8, 8, EP_PY_INT64),
                      gathered(memory.freed, memory.count, 8, 8, EP_PY_INT64),
                      gathered(memory.blocks, memory.count, 4, 4, EP_PY_INT32));
    ep_call_memory_clear(&memory);
    return result;
}

/* ---- Memory over time ------------------------------------------------------------------------ */

/* Bits of EP_DOMAIN_BIT, from an int. Fails: 0, exception set. */
static unsigned
domains_of(PyObject *number)
{
    unsigned long bits = PyLong_AsUnsignedLong(number);
    if (!PyErr_Occurred() && (bits == 0 || bits > EP_DOMAINS_ALL)) {
        PyErr_SetString(PyExc_ValueError, "domains: bits of the allocator domains, at least one");
    }
    return PyErr_Occurred() ? 0 : (unsigned)bits;
}

/* curve(domains) -> (time, live, blocks), a row a change. */
PyObject *
ep_py_trace_curve(PyObject *object, PyObject *domains)
{
    ep_py_trace *self = (ep_py_trace *)object;
    unsigned wanted = domains_of(domains);
    if (wanted == 0 || ep_py_trace_reach(self, EP_STEP_BLOCKS_ALONE, 0) < 0) {
        return NULL;
    }
    ep_curve curve = {0};
    ep_status status;
    WITHOUT_GIL(self, status = ep_summary_curve(&self->blocks, wanted, &curve));
    if (status != EP_OK) {
        return ep_py_raise(status, NULL);
    }
    PyObject *result = Py_BuildValue("NNN", gathered(curve.time, curve.count, 8, 8, EP_PY_INT64),
                                     gathered(curve.live, curve.count, 8, 8, EP_PY_INT64),
                                     gathered(curve.blocks, curve.count, 8, 8, EP_PY_INT64));
    ep_curve_clear(&curve);
    return result;
}

/* bins(domains, count) -> (min, max, last, blocks), each `count` long. */
PyObject *
ep_py_trace_bins(PyObject *object, PyObject *args)
{
    ep_py_trace *self = (ep_py_trace *)object;
    PyObject *domains;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(args, "On:bins", &domains, &count)) {
        return NULL;
    }
    unsigned wanted = domains_of(domains);
    if (wanted == 0 || ep_py_trace_reach(self, EP_STEP_BLOCKS_ALONE, 0) < 0) {
        return NULL;
    }
    if (count < 1) {
        PyErr_SetString(PyExc_ValueError, "bins: at least one");
        return NULL;
    }
    ep_bin *bins = calloc((size_t)count, sizeof *bins);
    if (bins == NULL) {
        return PyErr_NoMemory();
    }
    WITHOUT_GIL(self, ep_summary_bins(&self->blocks, wanted, (size_t)count, bins));
    PyObject *result = Py_BuildValue("NNNN", GATHERED(bins, (size_t)count, min, EP_PY_INT64),
                                     GATHERED(bins, (size_t)count, max, EP_PY_INT64),
                                     GATHERED(bins, (size_t)count, last, EP_PY_INT64),
                                     GATHERED(bins, (size_t)count, blocks, EP_PY_INT64));
    free(bins);
    return result;
}

/* peak(domains) -> (time, live, blocks, moment); time -1: no block was ever alive. */
PyObject *
ep_py_trace_peak(PyObject *object, PyObject *domains)
{
    ep_py_trace *self = (ep_py_trace *)object;
    unsigned wanted = domains_of(domains);
    if (wanted == 0 || ep_py_trace_reach(self, EP_STEP_BLOCKS_ALONE, 0) < 0) {
        return NULL;
    }
    ep_peak peak;
    WITHOUT_GIL(self, peak = ep_summary_peak(&self->blocks, wanted));
    return Py_BuildValue("LLLn", (long long)peak.time, (long long)peak.live, (long long)peak.blocks,
                         (Py_ssize_t)peak.moment);
}

/* ---- Whose blocks ---------------------------------------------------------------------------- */

/* moment(time): how many allocator events had happened by then. */
PyObject *
ep_py_trace_moment(PyObject *object, PyObject *time)
{
    ep_py_trace *self = (ep_py_trace *)object;
    long long ns = PyLong_AsLongLong(time);
    if (PyErr_Occurred() || ep_py_trace_reach(self, EP_STEP_BLOCKS_ALONE, 0) < 0) {
        return NULL;
    }
    return PyLong_FromSize_t(ep_blocks_moment(&self->input, ns));
}

static ep_status
reach_stacks(ep_py_trace *self)
{
    ep_status status = EP_OK;
    if (!self->has_stacks) {
        status = ep_summary_stacks(&self->calls, &self->stacks);
        self->has_stacks = status == EP_OK;
    }
    return status;
}

/* Fails: -1, exception set. */
static int
group_by_of(const char *word)
{
    static const char *const words[] = {
        [EP_BY_FUNCTION] = "function", [EP_BY_SITE] = "site", [EP_BY_STACK] = "stack"};
    for (int by = 0; by < 3; by++) {
        if (strcmp(word, words[by]) == 0) {
            return by;
        }
    }
    PyErr_Format(PyExc_ValueError, "by: 'function', 'site' or 'stack', not '%s'", word);
    return -1;
}

static ep_status
group_blocks(ep_py_trace *self, bool temporary, size_t moment, ep_group_by by, ep_groups *out)
{
    ep_status status = by == EP_BY_STACK ? reach_stacks(self) : EP_OK;
    if (status != EP_OK) {
        return status;
    }
    return temporary
               ? ep_summary_temporary(&self->blocks, &self->calls, &self->stacks, by, out)
               : ep_summary_alive(&self->blocks, &self->calls, &self->stacks, moment, by, out);
}

static PyObject *
grouped(ep_py_trace *self, bool temporary, size_t moment, const char *word)
{
    int by = group_by_of(word);
    if (by < 0 || ep_py_trace_reach(self, EP_STEP_BLOCKS, EP_BLOCKS_FLAGS) < 0) {
        return NULL;
    }
    ep_groups groups = {0};
    ep_status status;
    WITHOUT_GIL(self, status = group_blocks(self, temporary, moment, (ep_group_by)by, &groups));
    if (status != EP_OK) {
        return ep_py_raise(status, NULL);
    }
    PyObject *result = groups_object(&groups);
    ep_groups_clear(&groups);
    return result;
}

/* alive(moment, by) -> (keys, bytes, blocks), the largest first. moment -1: the end. */
PyObject *
ep_py_trace_alive(PyObject *object, PyObject *args)
{
    ep_py_trace *self = (ep_py_trace *)object;
    Py_ssize_t moment;
    const char *by;
    if (!PyArg_ParseTuple(args, "ns:alive", &moment, &by) ||
        ep_py_trace_reach(self, EP_STEP_BLOCKS, 0) < 0) {
        return NULL;
    }
    size_t last = self->decoded.columns.alloc_count;
    return grouped(self, false, moment < 0 || (size_t)moment > last ? last : (size_t)moment, by);
}

/* temporary(by) -> (keys, bytes, blocks). */
PyObject *
ep_py_trace_temporary(PyObject *object, PyObject *args)
{
    const char *by;
    if (!PyArg_ParseTuple(args, "s:temporary", &by)) {
        return NULL;
    }
    return grouped((ep_py_trace *)object, true, 0, by);
}

/* stacks() -> (parent, site) by stack, and the stack of each call. */
PyObject *
ep_py_trace_stacks(PyObject *object, PyObject *unused)
{
    (void)unused;
    ep_py_trace *self = (ep_py_trace *)object;
    if (ep_py_trace_reach(self, EP_STEP_CALLS, 0) < 0) {
        return NULL;
    }
    ep_status status;
    WITHOUT_GIL(self, status = reach_stacks(self));
    if (status != EP_OK) {
        return ep_py_raise(status, NULL);
    }
    const ep_stacks *stacks = &self->stacks;
    return Py_BuildValue("NNN", ep_py_view(object, stacks->parent, stacks->count, EP_PY_INT32),
                         ep_py_view(object, stacks->site, stacks->count, EP_PY_UINT32),
                         ep_py_view(object, stacks->call_stack, self->calls.count, EP_PY_INT32));
}

/* sites() -> (function, caller, line) by site id; -1: unknown. */
PyObject *
ep_py_trace_sites(PyObject *object, PyObject *unused)
{
    (void)unused;
    ep_py_trace *self = (ep_py_trace *)object;
    if (ep_py_trace_reach(self, EP_STEP_FUNCTIONS, 0) < 0) {
        return NULL;
    }
    const ep_id_map *map = &self->functions.map;
    return Py_BuildValue("NNN",
                         ep_py_view(object, map->site_function, map->site_count, EP_PY_INT32),
                         ep_py_view(object, map->site_caller, map->site_count, EP_PY_INT32),
                         ep_py_view(object, map->site_line, map->site_count, EP_PY_INT32));
}

/* ---- Lines ----------------------------------------------------------------------------------- */

/* (function, line, hits, time, self, allocated, blocks), a row a line. */
PyObject *
ep_py_trace_lines(PyObject *object, PyObject *unused)
{
    (void)unused;
    ep_py_trace *self = (ep_py_trace *)object;
    if (ep_py_trace_reach(self, EP_STEP_BLOCKS, 0) < 0) {
        return NULL;
    }
    ep_lines lines = {0};
    ep_status status;
    ep_py_telling telling;
    ep_py_telling_begin(&telling, "timing lines");
    WITHOUT_GIL(self, status = ep_lines_build(&self->input, &self->calls, &self->blocks,
                                              &telling.progress, &lines));
    ep_py_telling_end(&telling);
    if (status != EP_OK) {
        return ep_py_raise(status, NULL);
    }
    PyObject *result =
        Py_BuildValue("NNNNNNN", GATHERED(lines.rows, lines.count, function, EP_PY_INT32),
                      GATHERED(lines.rows, lines.count, line, EP_PY_INT32),
                      GATHERED(lines.rows, lines.count, hits, EP_PY_INT64),
                      GATHERED(lines.rows, lines.count, time_ns, EP_PY_INT64),
                      GATHERED(lines.rows, lines.count, self_ns, EP_PY_INT64),
                      GATHERED(lines.rows, lines.count, allocated, EP_PY_INT64),
                      GATHERED(lines.rows, lines.count, blocks, EP_PY_INT64));
    ep_lines_clear(&lines);
    return result;
}
