/* What the folds of the core compute, as NumPy arrays: the package makes tables of them. */
#include "trace_object.h"

#include <errno.h>

#include "arrays.h"
#include "names.h"
#include "stream.h"
#include "tenures.h"
#include "tree.h"

/* ---- Arrays ---------------------------------------------------------------------------------- */

typedef struct field {
    const char *name;
    size_t at;
    ep_py_type type;
} field;

static size_t
bytes_of(ep_py_type type)
{
    return type == EP_PY_INT32 || type == EP_PY_UINT32 ? 4 : 8;
}

/* Puts one array a field into a dict. Fails: -1, exception set. */
static int
put_fields(PyObject *into, const field *fields, const void *rows, size_t count, size_t stride)
{
    for (const field *f = fields; f->name != NULL; f++) {
        void *data;
        size_t bytes = bytes_of(f->type);
        PyObject *array = ep_py_array(count, f->type, &data);
        if (array == NULL) {
            return -1;
        }
        for (size_t i = 0; i < count; i++) {
            memcpy((char *)data + i * bytes, (const char *)rows + i * stride + f->at, bytes);
        }
        int status = PyDict_SetItemString(into, f->name, array);
        Py_DECREF(array);
        if (status < 0) {
            return -1;
        }
    }
    return 0;
}

/* ---- Running --------------------------------------------------------------------------------- */

/* Over columns, which are there. */
static ep_status
run_on_columns(ep_py_trace *self, ep_fold *const *folds, size_t count, bool has_lock,
               const ep_progress *progress)
{
    ep_fold_facts facts = {
        .map = self->input.map,
        .thread_count = self->input.thread_count,
        .open_at_start = self->input.open_at_start,
        .open_from_ns = self->input.open_from_ns,
        .open_until_ns = self->input.open_until_ns,
        .length_ns = self->input.length_ns,
        .has_lock = has_lock,
    };
    ep_column_stream stream;
    ep_column_stream_open(&stream, self->input.columns);
    return ep_fold_run(&stream.stream, &facts, folds, count, progress);
}

/* Whether a fold can read the file, without columns: what a filter drops is known from the whole only. */
static bool
can_pass(const ep_py_trace *self)
{
    return !self->has_decoded && !self->check_records && ep_filter_is_empty(&self->filter) &&
           (self->archive != NULL ||
            (self->file != NULL && !ep_file_get_facts(self->file)->writer_lives));
}

static ep_status
run_on_file(ep_py_trace *self, ep_fold *const *folds, size_t count, bool has_lock,
            const ep_progress *progress, ep_error *error)
{
    ep_pass pass;
    bool is_archive = self->archive != NULL;
    ep_status status =
        is_archive ? ep_fold_archive(self->archive, has_lock, folds, count, progress, &pass, error)
                   : ep_fold_log(self->file, has_lock, folds, count, progress, &pass, error);
    if (status != EP_OK) {
        errno = is_archive ? errno : error->os_error;
        return status;
    }
    if (!is_archive) {
        self->file_facts = *ep_file_get_facts(self->file);
        ep_recording_clear(&self->recording);
        free(pass.recording.metadata);    /* the package has them */
        pass.recording.metadata = NULL;
        pass.recording.metadata_bytes = 0;
        self->recording = pass.recording;
        pass.recording = (ep_recording){0};
    }
    if (!self->has_functions) {
        self->functions = pass.functions;
        self->has_functions = true;
        pass.functions = (ep_functions){0};
    }
    if (self->has_pass) {
        ep_pass_clear(&pass);    /* tables refer to the first one's */
    } else {
        ep_functions_clear(&pass.functions);
        self->pass = pass;
        self->has_pass = true;
    }
    return EP_OK;
}

/* Runs folds over all events: from the file, if they are in no columns yet. Fails: -1, exception set. */
static int
run_folds(ep_py_trace *self, ep_fold *const *folds, size_t count, bool has_lock, const char *what)
{
    bool done = false;
    ep_status status = EP_OK;
    ep_error error = {.text = ""};
    int cause = 0;
    ep_py_telling telling;
    for (int attempt = 0; attempt < 2 && !done && status == EP_OK; attempt++) {
        if (attempt > 0 && ep_py_trace_reach(self, EP_STEP_FUNCTIONS, 0) < 0) {
            return -1;
        }
        Py_BEGIN_ALLOW_THREADS
        PyThread_acquire_lock(self->lock, WAIT_LOCK);
        ep_py_telling_begin(&telling, what);
        if (attempt > 0) {
            status = run_on_columns(self, folds, count, has_lock, &telling.progress);
            done = true;
        } else if (can_pass(self)) {
            status = run_on_file(self, folds, count, has_lock, &telling.progress, &error);
            cause = errno;
            done = true;
        }
        ep_py_telling_end(&telling);
        PyThread_release_lock(self->lock);
        Py_END_ALLOW_THREADS
    }
    if (status != EP_OK) {
        ep_py_raise_io(status, &error, cause, self->path);
        return -1;
    }
    return 0;
}

/* ---- The tree -------------------------------------------------------------------------------- */

static const field node_fields[] = {
    {"parent", offsetof(ep_tree_node, parent), EP_PY_UINT32},
    {"place", offsetof(ep_tree_node, place), EP_PY_UINT32},
    {"calls", offsetof(ep_tree_node, calls), EP_PY_INT64},
    {"resumes", offsetof(ep_tree_node, resumes), EP_PY_INT64},
    {"raised", offsetof(ep_tree_node, raised), EP_PY_INT64},
    {"total", offsetof(ep_tree_node, total), EP_PY_INT64},
    {"self", offsetof(ep_tree_node, self), EP_PY_INT64},
    {"waited", offsetof(ep_tree_node, waited), EP_PY_INT64},
    {"waited_self", offsetof(ep_tree_node, waited_self), EP_PY_INT64},
    {"longest", offsetof(ep_tree_node, longest), EP_PY_INT64},
    {"shortest", offsetof(ep_tree_node, shortest), EP_PY_INT64},
    {"freed", offsetof(ep_tree_node, freed), EP_PY_INT64},
    {NULL, 0, 0},
};

static const field leaf_fields[] = {
    {"node", offsetof(ep_tree_leaf, node), EP_PY_UINT32},
    {"place", offsetof(ep_tree_leaf, place), EP_PY_UINT32},
    {"allocated", offsetof(ep_tree_leaf, allocated), EP_PY_INT64},
    {"blocks", offsetof(ep_tree_leaf, blocks), EP_PY_INT64},
    {"live", offsetof(ep_tree_leaf, live), EP_PY_INT64},
    {"live_blocks", offsetof(ep_tree_leaf, live_blocks), EP_PY_INT64},
    {"at_peak", offsetof(ep_tree_leaf, at_peak), EP_PY_INT64},
    {"temporary", offsetof(ep_tree_leaf, temporary), EP_PY_INT64},
    {"temporary_blocks", offsetof(ep_tree_leaf, temporary_blocks), EP_PY_INT64},
    {NULL, 0, 0},
};

static const field place_fields[] = {
    {"function", offsetof(ep_place, function), EP_PY_INT32},
    {"caller", offsetof(ep_place, caller), EP_PY_INT32},
    {"line", offsetof(ep_place, line), EP_PY_INT32},
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

static PyObject *
tree_object(const ep_tree *tree)
{
    const uint64_t *at_peak = tree->domain_at_peak;
    /* leaves[0] is none */
    return Py_BuildValue(
        "{s:(KKKKK),s:N,s:N,s:N,s:L,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "domains_at_peak",
        (unsigned long long)at_peak[EP_DOMAIN_RAW], (unsigned long long)at_peak[EP_DOMAIN_MEM],
        (unsigned long long)at_peak[EP_DOMAIN_OBJ], (unsigned long long)at_peak[EP_DOMAIN_NUMPY],
        (unsigned long long)at_peak[EP_DOMAIN_LIBC], "nodes",
        fields_object(node_fields, tree->nodes, tree->node_count, sizeof *tree->nodes), "leaves",
        fields_object(leaf_fields, tree->leaves + 1, tree->leaf_count - 1, sizeof *tree->leaves),
        "places", fields_object(place_fields, tree->places, tree->place_count, sizeof *tree->places),
        "peak_time", (long long)tree->peak_ns, "peak", (unsigned long long)tree->peak, "peak_blocks",
        (unsigned long long)tree->peak_blocks, "live", (unsigned long long)tree->live, "live_blocks",
        (unsigned long long)tree->live_blocks, "folded", (unsigned long long)tree->folded,
        "unknown_frees", (unsigned long long)tree->unknown_frees, "unmatched_ends",
        (unsigned long long)tree->unmatched, "ends_unseen", (unsigned long long)tree->ends_unseen);
}

/* tree(max_nodes, has_lock): the calling-context tree. max_nodes 0: the default. */
PyObject *
ep_py_trace_tree(PyObject *object, PyObject *args)
{
    ep_py_trace *self = (ep_py_trace *)object;
    Py_ssize_t max_nodes;
    int has_lock;
    if (!PyArg_ParseTuple(args, "np:tree", &max_nodes, &has_lock)) {
        return NULL;
    }
    ep_tree tree;
    ep_tree_open(&tree, max_nodes > 0 ? (size_t)max_nodes : 0);
    ep_fold *folds[] = {&tree.fold};
    PyObject *result = run_folds(self, folds, 1, has_lock != 0, "building the tree") == 0
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
        {"thread", offsetof(ep_tenure, thread), EP_PY_INT32},
        {"start", offsetof(ep_tenure, start_ns), EP_PY_INT64},
        {"end", offsetof(ep_tenure, end_ns), EP_PY_INT64},
        {"events", offsetof(ep_tenure, events), EP_PY_INT64},
        {NULL, 0, 0},
    };
    ep_py_trace *self = (ep_py_trace *)object;
    ep_tenures tenures;
    ep_tenures_open(&tenures);
    ep_fold *folds[] = {&tenures.fold};
    PyObject *result = NULL;
    if (run_folds(self, folds, 1, true, "finding who held the lock") == 0) {
        result = fields_object(fields, tenures.rows, tenures.count, sizeof *tenures.rows);
    }
    tenures.fold.type->clear(&tenures.fold);
    return result;
}

/* lost(): events that found no room, as far as is known before the events are read. */
PyObject *
ep_py_trace_lost(PyObject *object, PyObject *unused)
{
    (void)unused;
    ep_py_trace *self = (ep_py_trace *)object;
    unsigned long long lost = 0;
    Py_BEGIN_ALLOW_THREADS
    PyThread_acquire_lock(self->lock, WAIT_LOCK);
    const ep_decoded *head = ep_py_trace_head(self);
    bool is_read = self->has_decoded || self->has_pass;
    size_t count = is_read ? head->thread_count : self->capture.thread_count;
    for (size_t i = 0; i < count; i++) {
        const uint64_t *of = is_read ? head->threads[i].lost : self->capture.threads[i].lost;
        for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
            lost += of[kind];
        }
    }
    PyThread_release_lock(self->lock);
    Py_END_ALLOW_THREADS
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
    PyObject *array = ep_py_array(count, EP_PY_INT64, &data);
    if (array != NULL && count > 0) {
        uint64_t *sums = data;
        memcpy(sums, values.buf, count * 8);
        for (size_t i = count; i-- > 1;) {
            sums[((const uint32_t *)parent.buf)[i]] += sums[i];
        }
    }
    PyBuffer_Release(&parent);
    PyBuffer_Release(&values);
    return array;
}

/* Marks the nodes that have no other of their key above them. `next` and `open`: scratch. */
static void
mark_outermost(const uint32_t *parent, const int32_t *keys, size_t count, uint32_t *first,
               uint32_t *next, uint32_t *open, uint64_t *marks)
{
    for (size_t i = count; i-- > 1;) {    /* lists of children, index + 1, the oldest first */
        next[i] = first[parent[i]];
        first[parent[i]] = (uint32_t)i + 1;
    }
    size_t node = 0;
    bool down = true;
    for (;;) {
        if (down && keys[node] >= 0) {
            marks[node] = open[keys[node]]++ == 0;
        }
        if (down && first[node] != 0) {
            node = first[node] - 1;
            continue;
        }
        if (keys[node] >= 0) {
            open[keys[node]]--;
        }
        if (node == 0) {
            return;
        }
        down = next[node] != 0;
        node = down ? next[node] - 1 : parent[node];
    }
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
    int32_t largest = 0;
    for (size_t i = 0; i < count; i++) {
        int32_t key = ((const int32_t *)keys.buf)[i];
        largest = key > largest ? key : largest;
    }
    void *data;
    PyObject *array = ep_py_array(count, EP_PY_INT64, &data);
    uint32_t *first = calloc(count + 1, sizeof *first), *next = calloc(count + 1, sizeof *next);
    uint32_t *open = calloc((size_t)largest + 1, sizeof *open);
    if (array != NULL && (first == NULL || next == NULL || open == NULL)) {
        Py_CLEAR(array);
        PyErr_NoMemory();
    }
    if (array != NULL && count > 0) {
        memset(data, 0, count * 8);
        mark_outermost(parent.buf, keys.buf, count, first, next, open, data);
    }
    free(first);
    free(next);
    free(open);
    PyBuffer_Release(&parent);
    PyBuffer_Release(&keys);
    return array;
}
