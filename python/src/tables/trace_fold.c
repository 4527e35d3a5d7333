/* The results of the core's folds as NumPy arrays, from which the package makes tables. */
#include "trace_object.h"

#include "array.h"
#include "arrays.h"
#include "of_trace.h"
#include "picked.h"
#include "sums.h"
#include "tenures.h"
#include "tree.h"

/* ---- Arrays ---------------------------------------------------------------------------------- */

typedef struct field {
    const char *name;
    size_t at;
    ep_type type;
} field;

/* Puts one array a field into a dict. Fails: -1, exception set. */
static int
put_fields(PyObject *into, const field *fields, const void *rows, size_t count, size_t stride)
{
    for (const field *f = fields; f->name != NULL; f++) {
        PyObject *array = ep_py_gathered(rows, count, stride, f->at, f->type);
        if (array == NULL) {
            return -1;
        }
        int status = PyDict_SetItemString(into, f->name, array);
        Py_DECREF(array);
        if (status < 0) {
            return -1;
        }
    }
    return 0;
}

/* Runs a fold over a trace. Fails: -1, exception set. */
static int
run_fold(ep_py_trace *self, ep_fold *fold, bool has_lock, const char *what)
{
    ep_status status;
    ep_error error = {.text = ""};
    EP_PY_WITHOUT_GIL(self, status = ep_fold_trace(&self->trace, &fold, 1, has_lock, what, &error));
    if (status != EP_OK) {
        ep_py_raise_io(status, &error, self->path);
        return -1;
    }
    return 0;
}

/* ---- The tree -------------------------------------------------------------------------------- */

static const field node_fields[] = {
    {"parent", offsetof(ep_tree_node, parent), EP_TYPE_UINT32},
    {"place", offsetof(ep_tree_node, place), EP_TYPE_UINT32},
    {"calls", offsetof(ep_tree_node, calls), EP_TYPE_INT64},
    {"resumes", offsetof(ep_tree_node, resumes), EP_TYPE_INT64},
    {"raised", offsetof(ep_tree_node, raised), EP_TYPE_INT64},
    {"total", offsetof(ep_tree_node, total), EP_TYPE_INT64},
    {"self", offsetof(ep_tree_node, self), EP_TYPE_INT64},
    {"waited", offsetof(ep_tree_node, waited), EP_TYPE_INT64},
    {"waited_self", offsetof(ep_tree_node, waited_self), EP_TYPE_INT64},
    {"longest", offsetof(ep_tree_node, longest), EP_TYPE_INT64},
    {"shortest", offsetof(ep_tree_node, shortest), EP_TYPE_INT64},
    {"cut", offsetof(ep_tree_node, cut), EP_TYPE_INT64},
    {"cut_ns", offsetof(ep_tree_node, cut_ns), EP_TYPE_INT64},
    {"freed", offsetof(ep_tree_node, freed), EP_TYPE_INT64},
    {NULL, 0, 0},
};

static const field leaf_fields[] = {
    {"node", offsetof(ep_tree_leaf, node), EP_TYPE_UINT32},
    {"place", offsetof(ep_tree_leaf, place), EP_TYPE_UINT32},
    {"allocated", offsetof(ep_tree_leaf, allocated), EP_TYPE_INT64},
    {"blocks", offsetof(ep_tree_leaf, blocks), EP_TYPE_INT64},
    {"live", offsetof(ep_tree_leaf, live), EP_TYPE_INT64},
    {"live_blocks", offsetof(ep_tree_leaf, live_blocks), EP_TYPE_INT64},
    {"at_peak", offsetof(ep_tree_leaf, at_peak), EP_TYPE_INT64},
    {"at_peak_blocks", offsetof(ep_tree_leaf, at_peak_blocks), EP_TYPE_INT64},
    {"temporary", offsetof(ep_tree_leaf, temporary), EP_TYPE_INT64},
    {"temporary_blocks", offsetof(ep_tree_leaf, temporary_blocks), EP_TYPE_INT64},
    {NULL, 0, 0},
};

static const field place_fields[] = {
    {"function", offsetof(ep_place, function), EP_TYPE_INT32},
    {"caller", offsetof(ep_place, caller), EP_TYPE_INT32},
    {"line", offsetof(ep_place, line), EP_TYPE_INT32},
    {NULL, 0, 0},
};

static const field bin_fields[] = {
    {"min", offsetof(ep_tree_bin, min), EP_TYPE_INT64},
    {"max", offsetof(ep_tree_bin, max), EP_TYPE_INT64},
    {NULL, 0, 0},
};

static const field thread_fields[] = {
    {"in_calls", offsetof(ep_tree_sums, in_calls), EP_TYPE_INT64},
    {"allocated", offsetof(ep_tree_sums, allocated), EP_TYPE_INT64},
    {NULL, 0, 0},
};

static const field length_fields[] = {
    {"function", offsetof(ep_tree_length, function), EP_TYPE_INT32},
    {"low", offsetof(ep_tree_length, low_ns), EP_TYPE_INT64},
    {"high", offsetof(ep_tree_length, high_ns), EP_TYPE_INT64},
    {"calls", offsetof(ep_tree_length, calls), EP_TYPE_INT64},
    {NULL, 0, 0},
};

static PyObject *
fields_object(const field *fields, const void *rows, size_t count, size_t stride)
{
    PyObject *result = PyDict_New();
    if (result != NULL && put_fields(result, fields, rows, count, stride) < 0) {
        Py_CLEAR(result);
    }
    return result;
}

/* {column: array} of what is summed up by function; the last row is what belongs to no function. */
static PyObject *
functions_object(const ep_summary *functions, bool with_lengths)
{
    PyObject *columns = PyDict_New();
    for (const ep_column *c = ep_table_columns; columns != NULL && c->name != NULL; c++) {
        if (c->step != EP_STEP_SUMMARY && (c->step != EP_STEP_LENGTHS || !with_lengths)) {
            continue;
        }
        PyObject *array =
            ep_py_gathered(functions->rows, functions->count, c->stride, c->member_at, c->type);
        if (array == NULL || PyDict_SetItemString(columns, c->name, array) < 0) {
            Py_CLEAR(columns);
        }
        Py_XDECREF(array);
    }
    return columns;
}

/* added_columns() -> names of the columns of functions that can be added up over recordings. */
PyObject *
ep_py_added_columns(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    PyObject *names = PyList_New(0);
    for (const ep_column *c = ep_table_columns; names != NULL && c->name != NULL; c++) {
        if (c->step != EP_STEP_SUMMARY || c->member_at >= offsetof(ep_function_stats, net)) {
            continue;
        }
        PyObject *name = PyUnicode_FromString(c->name);
        if (name == NULL || PyList_Append(names, name) < 0) {
            Py_CLEAR(names);
        }
        Py_XDECREF(name);
    }
    return names;
}

/* A tuple of a figure of each domain. */
static PyObject *
domains_object(const uint64_t *by_domain)
{
    return Py_BuildValue("(KKKKK)", (unsigned long long)by_domain[EP_DOMAIN_RAW],
                         (unsigned long long)by_domain[EP_DOMAIN_MEM],
                         (unsigned long long)by_domain[EP_DOMAIN_OBJ],
                         (unsigned long long)by_domain[EP_DOMAIN_NUMPY],
                         (unsigned long long)by_domain[EP_DOMAIN_LIBC]);
}

/* {word: array of ns} of the nodes up to the last that waited. */
static PyObject *
waits_object(const ep_tree *tree)
{
    PyObject *object = PyDict_New();
    for (size_t what = 0; object != NULL && what < EP_WAIT_FOR_COUNT; what++) {
        PyObject *array =
            ep_py_gathered(tree->waits, ep_tree_waits_count(tree), sizeof *tree->waits,
                           offsetof(ep_tree_waits, ns) + what * sizeof(int64_t), EP_TYPE_INT64);
        if (array == NULL || PyDict_SetItemString(object, ep_wait_words[what], array) < 0) {
            Py_CLEAR(object);
        }
        Py_XDECREF(array);
    }
    return object;
}

static PyObject *
tree_object(const ep_tree *tree)
{
    size_t threads = tree->facts.thread_count;
    /* leaves[0] is none */
    return Py_BuildValue(
        "{s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:L,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:N,s:N}",
        "waits", waits_object(tree),
        "domains_at_peak", domains_object(tree->domain_at_peak), "domains_allocated",
        domains_object(tree->domain_allocated),
        "nodes", fields_object(node_fields, tree->nodes, tree->node_count, sizeof *tree->nodes), "leaves",
        fields_object(leaf_fields, tree->leaves + 1, tree->leaf_count - 1, sizeof *tree->leaves),
        "places", fields_object(place_fields, tree->places, tree->place_count, sizeof *tree->places),
        "bins", fields_object(bin_fields, tree->bins, EP_TREE_BINS, sizeof *tree->bins), "threads",
        fields_object(thread_fields, tree->thread_sums, threads, sizeof *tree->thread_sums), "peak_time",
        (long long)tree->peak_ns, "peak", (unsigned long long)tree->peak, "peak_blocks",
        (unsigned long long)tree->peak_blocks, "live", (unsigned long long)tree->live, "live_blocks",
        (unsigned long long)tree->live_blocks, "folded", (unsigned long long)tree->folded,
        "unknown_frees", (unsigned long long)tree->unknown_frees, "frees_lost",
        (unsigned long long)tree->frees_lost, "freed_unseen", (unsigned long long)tree->freed_unseen,
        "swaps_mended", (unsigned long long)tree->swaps_mended,
        "unmatched_ends", (unsigned long long)tree->unmatched, "ends_unseen",
        (unsigned long long)tree->ends_unseen, "functions",
        functions_object(&tree->functions, tree->with_lengths), "lengths",
        fields_object(length_fields, tree->lengths, tree->length_count, sizeof *tree->lengths));
}

/* tree(max_nodes, has_lock, with_lengths=False, by_thread=False): the calling-context tree. max_nodes 0:
 * the default. with_lengths: how long the calls of each function took, too. by_thread: as of tree.h. */
PyObject *
ep_py_trace_tree(PyObject *object, PyObject *args)
{
    ep_py_trace *self = (ep_py_trace *)object;
    Py_ssize_t max_nodes;
    int has_lock, with_lengths = 0, by_thread = 0;
    if (!PyArg_ParseTuple(args, "np|pp:tree", &max_nodes, &has_lock, &with_lengths, &by_thread)) {
        return NULL;
    }
    ep_tree tree;
    ep_tree_open(&tree, max_nodes > 0 ? (size_t)max_nodes : 0);
    tree.with_lengths = with_lengths != 0;
    tree.by_thread = by_thread != 0;
    PyObject *result = run_fold(self, &tree.fold, has_lock != 0, "building the tree") == 0
                           ? tree_object(&tree)
                           : NULL;
    tree.fold.type->clear(&tree.fold);
    return result;
}

/* tenures() -> {thread, start, end, events} of who held the interpreter's lock. */
PyObject *
ep_py_trace_tenures(PyObject *object, PyObject *unused)
{
    (void)unused;
    static const field fields[] = {
        {"thread", offsetof(ep_tenure, thread), EP_TYPE_INT32},
        {"start", offsetof(ep_tenure, start_ns), EP_TYPE_INT64},
        {"end", offsetof(ep_tenure, end_ns), EP_TYPE_INT64},
        {"events", offsetof(ep_tenure, events), EP_TYPE_INT64},
        {NULL, 0, 0},
    };
    ep_py_trace *self = (ep_py_trace *)object;
    ep_tenures tenures;
    ep_tenures_open(&tenures);
    PyObject *result = run_fold(self, &tenures.fold, true, "finding who held the lock") == 0
                           ? fields_object(fields, tenures.rows, tenures.count, sizeof *tenures.rows)
                           : NULL;
    tenures.fold.type->clear(&tenures.fold);
    return result;
}

static const field picked_fields[] = {
    {"call", offsetof(ep_picked_call, call), EP_TYPE_INT64},
    {"inside", offsetof(ep_picked_call, inside), EP_TYPE_INT64},
    {"start", offsetof(ep_picked_call, start_ns), EP_TYPE_INT64},
    {"duration", offsetof(ep_picked_call, duration_ns), EP_TYPE_INT64},
    {"blocked", offsetof(ep_picked_call, blocked_ns), EP_TYPE_INT64},
    {"thread", offsetof(ep_picked_call, thread), EP_TYPE_INT32},
    {"function", offsetof(ep_picked_call, function), EP_TYPE_INT32},
    {"caller", offsetof(ep_picked_call, caller), EP_TYPE_INT32},
    {NULL, 0, 0},
};

static const field picked_sum_fields[] = {
    {"calls", offsetof(ep_picked_sums, calls), EP_TYPE_INT64},
    {"total", offsetof(ep_picked_sums, total_ns), EP_TYPE_INT64},
    {NULL, 0, 0},
};

/* picked(functions, blocking, own, without, kept_ns, function, line) -> ({column: array} of calls of some
 * functions, {column: array} by function, live blocks of an own line by quarter): see picked.h. Masks are
 * bytes, a byte a function; own None: no line is asked for. */
PyObject *
ep_py_trace_picked(PyObject *object, PyObject *args)
{
    ep_py_trace *self = (ep_py_trace *)object;
    Py_buffer functions, blocking, own = {0};
    unsigned without;
    long long kept_ns;
    int function, line;
    if (!PyArg_ParseTuple(args, "y*y*z*ILii:picked", &functions, &blocking, &own, &without, &kept_ns,
                          &function, &line)) {
        return NULL;
    }
    PyObject *result = NULL;
    ep_picked picked;
    ep_picked_open(&picked, &(ep_picked_choice){
                                .function_count = (size_t)functions.len,
                                .functions = functions.buf,
                                .without = without,
                                .kept_ns = kept_ns,
                                .blocking = blocking.buf,
                                .with_blocks = own.buf != NULL,
                                .own = own.buf,
                                .function = function,
                                .line = line,
                            });
    if (blocking.len != functions.len || (own.buf != NULL && own.len != functions.len)) {
        PyErr_SetString(PyExc_ValueError, "masks of as many functions are needed");
    } else if (run_fold(self, &picked.fold, !self->trace.no_lock, "looking at single calls") == 0) {
        const uint64_t *quarters = picked.quarters;
        result = Py_BuildValue(
            "NN(KKKK)", fields_object(picked_fields, picked.calls, picked.count, sizeof *picked.calls),
            fields_object(picked_sum_fields, picked.sums, picked.choice.function_count,
                          sizeof *picked.sums),
            (unsigned long long)quarters[0], (unsigned long long)quarters[1],
            (unsigned long long)quarters[2], (unsigned long long)quarters[3]);
    }
    picked.fold.type->clear(&picked.fold);
    PyBuffer_Release(&functions);
    PyBuffer_Release(&blocking);
    PyBuffer_Release(&own);
    return result;
}

/* has_columns(): whether the events are in memory. */
PyObject *
ep_py_trace_has_columns(PyObject *object, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(((ep_py_trace *)object)->trace.has_decoded);
}

/* lost(): the count of lost events, as far as it is known before the events are read. */
PyObject *
ep_py_trace_lost(PyObject *object, PyObject *unused)
{
    (void)unused;
    ep_py_trace *self = (ep_py_trace *)object;
    uint64_t lost;
    EP_PY_WITHOUT_GIL(self, lost = ep_trace_lost(&self->trace));
    return PyLong_FromUnsignedLongLong(lost);
}

/* ---- Sums over a tree ------------------------------------------------------------------------ */

/* Two contiguous buffers of as many elements: parents (uint32, parents before their children) and values.
 * Fails: false, exception set, nothing to release. */
static bool
tree_buffers(PyObject *args, const char *form, Py_buffer *parent, Py_buffer *values, size_t bytes)
{
    if (!PyArg_ParseTuple(args, form, parent, values)) {
        return false;
    }
    bool fits = parent->len % 4 == 0 && (size_t)values->len == (size_t)parent->len / 4 * bytes;
    const uint32_t *parents = parent->buf;
    for (size_t i = 0; fits && i < (size_t)parent->len / 4; i++) {
        fits = parents[i] < i || i == 0;
    }
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "parents (uint32) before their children, and as many values");
        PyBuffer_Release(parent);
        PyBuffer_Release(values);
    }
    return fits;
}

/* tree_below(parent, values): int64 values with those of all nodes below. */
PyObject *
ep_py_tree_below(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer parent, values;
    if (!tree_buffers(args, "y*y*:tree_below", &parent, &values, 8)) {
        return NULL;
    }
    size_t count = (size_t)parent.len / 4;
    void *data;
    PyObject *array = ep_py_array(count, EP_TYPE_INT64, &data);
    if (array != NULL && count > 0) {
        uint64_t *sums = data;
        memcpy(sums, values.buf, count * 8);
        ep_tree_below(parent.buf, sums, count);
    }
    PyBuffer_Release(&parent);
    PyBuffer_Release(&values);
    return array;
}

/* tree_outermost(parent, keys): int64, 1 for nodes with a key (int32, not negative) that no node above
 * them has. */
PyObject *
ep_py_tree_outermost(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer parent, keys;
    if (!tree_buffers(args, "y*y*:tree_outermost", &parent, &keys, 4)) {
        return NULL;
    }
    size_t count = (size_t)parent.len / 4;
    void *data;
    PyObject *array = ep_py_array(count, EP_TYPE_INT64, &data);
    if (array != NULL && ep_tree_outermost(parent.buf, keys.buf, count, data) != EP_OK) {
        Py_CLEAR(array);
        PyErr_NoMemory();
    }
    PyBuffer_Release(&parent);
    PyBuffer_Release(&keys);
    return array;
}
