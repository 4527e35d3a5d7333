/* The sums of summary.h as NumPy arrays, from which the package makes tables. */
#include "trace_object.h"

#include "array.h"
#include "arrays.h"

/* ---- Arrays ---------------------------------------------------------------------------------- */

/* A fresh array of int64. */
static PyObject *
copied(const int64_t *values, size_t count)
{
    return ep_py_gathered(values, count, sizeof *values, 0, EP_TYPE_INT64);
}

/* An array of a column that its owner no longer needs; a short one is copied, because the column has room
 * for many more values. */
static PyObject *
taken(int64_t **column, size_t count)
{
    if (count * sizeof **column < EP_ARRAY_ALIGN_FROM) {
        return copied(*column, count);
    }
    int64_t *values = *column;
    *column = NULL;
    return ep_py_array_of(values, count, EP_TYPE_INT64);
}

/* (keys, bytes, blocks) of groups. */
static PyObject *
groups_object(const ep_groups *groups)
{
    return Py_BuildValue("NNN", EP_PY_GATHERED(groups->rows, groups->count, ep_group, key, EP_TYPE_INT32),
                         EP_PY_GATHERED(groups->rows, groups->count, ep_group, bytes, EP_TYPE_INT64),
                         EP_PY_GATHERED(groups->rows, groups->count, ep_group, blocks, EP_TYPE_INT64));
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
    if (wanted == 0 || ep_py_trace_reach(self, EP_STEP_BLOCKS_ALONE) < 0) {
        return NULL;
    }
    ep_curve curve = {0};
    ep_status status;
    EP_PY_WITHOUT_GIL(self, status = ep_summary_curve(&self->trace.blocks, wanted, &curve));
    if (status != EP_OK) {
        return ep_py_raise(status, NULL);
    }
    PyObject *result = Py_BuildValue("NNN", taken(&curve.time, curve.count),
                                     taken(&curve.live, curve.count),
                                     taken(&curve.blocks, curve.count));
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
    if (wanted == 0 || ep_py_trace_reach(self, EP_STEP_BLOCKS_ALONE) < 0) {
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
    EP_PY_WITHOUT_GIL(self, ep_summary_bins(&self->trace.blocks, wanted, (size_t)count, bins));
    PyObject *result = Py_BuildValue("NNNN",
                                     EP_PY_GATHERED(bins, (size_t)count, ep_bin, min, EP_TYPE_INT64),
                                     EP_PY_GATHERED(bins, (size_t)count, ep_bin, max, EP_TYPE_INT64),
                                     EP_PY_GATHERED(bins, (size_t)count, ep_bin, last, EP_TYPE_INT64),
                                     EP_PY_GATHERED(bins, (size_t)count, ep_bin, blocks, EP_TYPE_INT64));
    free(bins);
    return result;
}

/* peak(domains) -> (time, live, blocks, moment); time -1: no block was ever alive. */
PyObject *
ep_py_trace_peak(PyObject *object, PyObject *domains)
{
    ep_py_trace *self = (ep_py_trace *)object;
    unsigned wanted = domains_of(domains);
    if (wanted == 0 || ep_py_trace_reach(self, EP_STEP_BLOCKS_ALONE) < 0) {
        return NULL;
    }
    ep_peak peak;
    EP_PY_WITHOUT_GIL(self, peak = ep_summary_peak(&self->trace.blocks, wanted));
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
    if (PyErr_Occurred() || ep_py_trace_reach(self, EP_STEP_BLOCKS_ALONE) < 0) {
        return NULL;
    }
    return PyLong_FromSize_t(ep_blocks_moment(&self->trace.input, ns));
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
group_blocks(ep_trace *trace, bool temporary, size_t moment, ep_group_by by, ep_groups *out)
{
    ep_status status = ep_blocks_fill(&trace->blocks, &trace->calls, EP_BLOCKS_FLAGS);
    if (status == EP_OK && by == EP_BY_STACK) {
        status = ep_trace_reach(trace, EP_STEP_STACKS, NULL);
    }
    if (status != EP_OK) {
        return status;
    }
    return temporary
               ? ep_summary_temporary(&trace->blocks, &trace->calls, &trace->stacks, by, out)
               : ep_summary_alive(&trace->blocks, &trace->calls, &trace->stacks, moment, by, out);
}

static PyObject *
grouped(ep_py_trace *self, bool temporary, size_t moment, const char *word)
{
    int by = group_by_of(word);
    if (by < 0 || ep_py_trace_reach(self, EP_STEP_BLOCKS) < 0) {
        return NULL;
    }
    ep_groups groups = {0};
    ep_status status;
    EP_PY_WITHOUT_GIL(self, status = group_blocks(&self->trace, temporary, moment, (ep_group_by)by,
                                                  &groups));
    if (status != EP_OK) {
        return ep_py_raise(status, NULL);
    }
    PyObject *result = groups_object(&groups);
    ep_groups_clear(&groups);
    return result;
}

/* alive(moment, by) -> (keys, bytes, blocks), the largest first. moment -1: what was not freed. */
PyObject *
ep_py_trace_alive(PyObject *object, PyObject *args)
{
    ep_py_trace *self = (ep_py_trace *)object;
    Py_ssize_t moment;
    const char *by;
    if (!PyArg_ParseTuple(args, "ns:alive", &moment, &by) ||
        ep_py_trace_reach(self, EP_STEP_BLOCKS) < 0) {
        return NULL;
    }
    size_t last = self->trace.decoded.columns.alloc_count;
    size_t at = moment < 0 ? EP_MOMENT_END : (size_t)moment > last ? last
                                                                   : (size_t)moment;
    return grouped(self, false, at, by);
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
    if (ep_py_trace_reach(self, EP_STEP_STACKS) < 0) {
        return NULL;
    }
    const ep_stacks *stacks = &self->trace.stacks;
    return Py_BuildValue("NNN", ep_py_view(object, stacks->parent, stacks->count, EP_TYPE_INT32),
                         ep_py_view(object, stacks->site, stacks->count, EP_TYPE_UINT32),
                         ep_py_view(object, stacks->call_stack, self->trace.calls.count, EP_TYPE_INT32));
}

/* sites() -> (function, caller, line) by site id; -1: unknown. */
PyObject *
ep_py_trace_sites(PyObject *object, PyObject *unused)
{
    (void)unused;
    ep_py_trace *self = (ep_py_trace *)object;
    if (ep_py_trace_reach(self, EP_STEP_FUNCTIONS) < 0) {
        return NULL;
    }
    const ep_id_map *map = &self->trace.functions.map;
    return Py_BuildValue("NNN",
                         ep_py_view(object, map->site_function, map->site_count, EP_TYPE_INT32),
                         ep_py_view(object, map->site_caller, map->site_count, EP_TYPE_INT32),
                         ep_py_view(object, map->site_line, map->site_count, EP_TYPE_INT32));
}
