/* Sums by function, of a whole tree and of what its bound folds away; by_function.h says how. */
#include "by_function.h"

#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "memory.h"
#include "of_trace.h"
#include "sums.h"
#include "tree_parts.h"

/* ---- Figures --------------------------------------------------------------------------------- */

/* Where a figure stands in a node, a leaf or the waits of a node, and in ep_figures. */
typedef struct figure {
    enum {
        OF_NODE,
        OF_LEAF,
        OF_WAITS
    } owner;
    uint16_t from, to;
} figure;

static const figure figures[] = {
#define EP_NODE_FIGURE(name) {OF_NODE, offsetof(ep_tree_node, name), offsetof(ep_figures, name)},
#define EP_LEAF_FIGURE(name) {OF_LEAF, offsetof(ep_tree_leaf, name), offsetof(ep_figures, name)},
#define EP_WAIT_FIGURE(name, WHAT) \
    {OF_WAITS, offsetof(ep_tree_waits, ns[EP_WAIT_FOR_##WHAT]), offsetof(ep_figures, name)},
#include "figures.def"
#undef EP_NODE_FIGURE
#undef EP_LEAF_FIGURE
#undef EP_WAIT_FIGURE
};
#define FIGURES (sizeof figures / sizeof *figures)

static int64_t
value_at(const void *row, size_t offset)
{
    int64_t value;
    memcpy(&value, (const char *)row + offset, sizeof value);
    return value;
}

/* Wraps around: a file may claim any times. */
static void
add(int64_t *to, int64_t value)
{
    *to = (int64_t)((uint64_t)*to + (uint64_t)value);
}

static void
add_at(void *row, size_t offset, int64_t value)
{
    int64_t sum = value_at(row, offset);
    add(&sum, value);
    memcpy((char *)row + offset, &sum, sizeof sum);
}

#define IS(figure, name) ((figure)->to == offsetof(ep_figures, name))

/* ---- Paths ----------------------------------------------------------------------------------- */

/* Sets marks to 1 for nodes above which no node is of the same function. Unknown functions are one, as they
 * are to EP_CALL_RECURSIVE. Fails: EP_NOMEM. */
static EP_CHECKED ep_status
mark_outermost(const ep_tree *tree, uint64_t *marks)
{
    size_t count = tree->node_count;
    uint32_t *parents = ep_array_new(count, sizeof *parents);
    int32_t *keys = ep_array_new(count, sizeof *keys);
    ep_status status = parents != NULL && keys != NULL ? EP_OK : EP_NOMEM;
    for (size_t i = 0; status == EP_OK && i < count; i++) {
        parents[i] = tree->nodes[i].parent;
        keys[i] = i > 0 && ep_tree_function(tree, i) != EP_PLACE_OTHER ? ep_tree_function(tree, i) + 1 : -1;
    }
    if (status == EP_OK) {
        status = ep_tree_outermost(parents, keys, count, marks);
    }
    free(parents);
    free(keys);
    return status;
}

/* A path for each node that is summed, and after these the paths of earlier folds. Parents come first. */
static void
make_paths(ep_tree_folding *f, const ep_tree *tree, const uint8_t *keep, const uint64_t *marks)
{
    f->paths[0] = (ep_tree_path){.function = EP_PLACE_OTHER};
    f->path_count = 1;
    for (size_t i = 1; i < tree->node_count; i++) {
        int32_t function = ep_tree_function(tree, i);
        if (keep != NULL && keep[i] && function != EP_PLACE_OTHER) {
            continue;
        }
        f->of_node[i] = (uint32_t)f->path_count;
        f->paths[f->path_count++] = (ep_tree_path){
            .parent = f->of_node[tree->nodes[i].parent],
            .node = (uint32_t)i,
            .function = function,
            .is_outermost = marks[i] != 0,
        };
    }
    uint32_t base = (uint32_t)f->path_count - 1;
    for (size_t i = 1; i < tree->path_count; i++) {
        ep_tree_path path = tree->paths[i];
        path.parent = path.parent != 0 ? base + path.parent : f->of_node[path.node];
        f->paths[f->path_count++] = path;
    }
    for (size_t i = 1; i < tree->leaf_count; i++) {
        uint32_t path = i < tree->path_leaf_count ? tree->path_of_leaf[i] : 0;
        f->of_leaf[i] = path != 0 ? base + path : f->of_node[tree->leaves[i].node];
    }
}

/* Marks the leaves whose figures may still change: with blocks, or with one that a realloc may revive. */
static void
mark_pending(ep_tree_folding *f, const ep_tree *tree)
{
    for (size_t i = 1; i < tree->leaf_count; i++) {
        f->is_pending[i] = f->of_leaf[i] != 0 && tree->leaves[i].live_blocks != 0;
    }
    for (size_t thread = 0; thread < tree->facts.thread_count; thread++) {
        const ep_tree_thread *t = &tree->threads[thread];
        if (t->moving.waits && f->of_leaf[t->moved.leaf] != 0) {
            f->is_pending[t->moved.leaf] = 1;
        }
    }
}

/* ---- Sums ------------------------------------------------------------------------------------ */

/* The row of a function; rows begin with that of none, as more functions may appear. */
static ep_function_stats *
row_of(ep_function_stats *rows, int32_t function)
{
    return &rows[function >= 0 ? (size_t)function + 1 : 0];
}

/* What has been folded away and was freed before a new peak is not in that. */
static void
forget_old_peak(ep_tree *tree)
{
    if (tree->summed_epoch != tree->epoch) {
        for (size_t i = 0; i < tree->summed_capacity; i++) {
            ep_function_stats *row = &tree->summed[i];
            row->own.at_peak = row->own.at_peak_blocks = 0;
            row->below.at_peak = row->below.at_peak_blocks = 0;
        }
        tree->summed_epoch = tree->epoch;
    }
}

/* Puts what nodes and leaves have of a figure into the values of their paths. */
static void
gather(const ep_tree_folding *f, const ep_tree *tree, const figure *what, int64_t *values)
{
    memset(values, 0, f->path_count * sizeof *values);
    size_t nodes = what->owner == OF_NODE ? tree->node_count : 0;
    for (size_t i = 1; i < nodes; i++) {
        add(&values[f->of_node[i]], value_at(&tree->nodes[i], what->from));
    }
    size_t waits = what->owner == OF_WAITS ? ep_tree_waits_count(tree) : 0;
    for (size_t i = 1; i < waits; i++) {
        add(&values[f->of_node[i]], value_at(&tree->waits[i], what->from));
    }
    if (what->owner != OF_LEAF) {
        return;
    }
    for (size_t i = 1; i < tree->leaf_count; i++) {
        if (f->is_pending[i]) {
            continue;
        }
        int64_t *value = &values[f->of_leaf[i]];
        add(value, value_at(&tree->leaves[i], what->from));
        if (i < tree->gone_capacity && (IS(what, live) || IS(what, live_blocks))) {
            add(value, (int64_t)(IS(what, live) ? tree->gone[i].bytes : tree->gone[i].blocks));
        }
    }
}

static void
add_figure(const ep_tree_folding *f, const figure *what, int64_t *values, ep_function_stats *rows)
{
    bool begins = IS(what, calls) || IS(what, resumes);
    for (size_t i = 1; i < f->path_count; i++) {
        const ep_tree_path *path = &f->paths[i];
        if (path->function != EP_PLACE_OTHER && values[i] != 0) {
            ep_function_stats *row = row_of(rows, path->function);
            add_at(&row->own, what->to, values[i]);
            row->recursive += begins && !path->is_outermost ? values[i] : 0;
        }
    }
    for (size_t i = f->path_count; i-- > 1;) {
        const ep_tree_path *path = &f->paths[i];
        if (path->function != EP_PLACE_OTHER && path->is_outermost) {
            add_at(&row_of(rows, path->function)->below, what->to, values[i]);
        }
        add(&values[path->parent], values[i]);
    }
}

/* While they are summed up, min and max are one more, and 0 is none: so new rows are all zero. */
static void
add_extremes(const ep_tree_folding *f, const ep_tree *tree, ep_function_stats *rows)
{
    for (size_t i = 1; i < tree->node_count; i++) {
        const ep_tree_node *node = &tree->nodes[i];
        int32_t function = ep_tree_function(tree, i);
        if (f->of_node[i] == 0 || function == EP_PLACE_OTHER || node->shortest < 0) {
            continue;
        }
        ep_function_stats *row = row_of(rows, function);
        row->max = node->longest >= row->max ? node->longest + 1 : row->max;
        row->min = row->min == 0 || node->shortest < row->min - 1 ? node->shortest + 1 : row->min;
    }
}

/* Not doubled, as summing up takes time for each function anyway, and a row has 376 bytes. */
static bool
make_room(ep_tree *tree, size_t functions)
{
    if (functions <= tree->summed_capacity) {
        return true;
    }
    ep_function_stats *grown = ep_realloc(tree->summed, functions, sizeof *grown);
    if (grown == NULL) {
        return false;
    }
    memset(grown + tree->summed_capacity, 0, (functions - tree->summed_capacity) * sizeof *grown);
    tree->summed = grown;
    tree->summed_capacity = functions;
    return true;
}

ep_status
ep_tree_sum_folded(ep_tree *tree, const uint8_t *keep, ep_tree_folding *f)
{
    /* While rows are read ahead, the map grows: what is summed now has places. */
    size_t functions = keep == NULL ? tree->facts.map->function_count + 1 : 1;
    for (size_t i = 0; i < tree->place_count; i++) {
        size_t row = tree->places[i].function >= 0 ? (size_t)tree->places[i].function + 2 : 1;
        functions = row > functions ? row : functions;
    }
    uint64_t *marks = ep_array_new(tree->node_count, sizeof *marks);
    f->of_node = ep_array_new_zeroed(tree->node_count, sizeof *f->of_node);
    f->of_leaf = ep_array_new_zeroed(tree->leaf_count, sizeof *f->of_leaf);
    f->is_pending = ep_array_new_zeroed(tree->leaf_count, 1);
    f->paths = ep_array_new(tree->node_count + tree->path_count + 1, sizeof *f->paths);
    int64_t *values = ep_array_new(tree->node_count + tree->path_count + 1, sizeof *values);
    bool has_memory = marks != NULL && f->of_node != NULL && f->of_leaf != NULL && f->is_pending != NULL &&
                      f->paths != NULL && values != NULL &&
                      make_room(tree, functions) &&
                      mark_outermost(tree, marks) == EP_OK;
    if (has_memory) {
        for (size_t i = 1; i < tree->leaf_count; i++) {
            touch(tree, (uint32_t)i);
        }
        forget_old_peak(tree);
        make_paths(f, tree, keep, marks);
        if (keep != NULL) {
            mark_pending(f, tree);
        }
        for (size_t i = 0; i < FIGURES; i++) {
            gather(f, tree, &figures[i], values);
            add_figure(f, &figures[i], values, tree->summed);
        }
        add_extremes(f, tree, tree->summed);
    }
    free(marks);
    free(values);
    return has_memory ? EP_OK : EP_NOMEM;
}

void
ep_tree_folding_clear(ep_tree_folding *f)
{
    free(f->of_node);
    free(f->of_leaf);
    free(f->is_pending);
    free(f->paths);
    *f = (ep_tree_folding){0};
}

/* Gives each path that a pending leaf needs its new number, from 1 on. Returns: how many there are. */
static size_t
renumber_paths(const ep_tree_folding *f, size_t node_paths, const uint32_t *node_to, uint32_t *to,
               ep_tree_path *kept)
{
    size_t count = 1;
    for (size_t i = 1; i < f->path_count; i++) {
        ep_tree_path *path = &f->paths[i];
        /* The node is the "other" that it is in now. */
        path->node = i < node_paths ? node_to[path->node] : f->paths[path->parent].node;
        if (path->function == EP_PLACE_OTHER) {
            to[i] = to[path->parent];    /* paths lead past it */
        } else if (to[i] != 0) {
            kept[count] = *path;
            kept[count].parent = to[path->parent];
            to[i] = (uint32_t)count++;
        }
    }
    return count;
}

ep_status
ep_tree_keep_paths(ep_tree *tree, const ep_tree_folding *f, const uint32_t *node_to,
                   const uint32_t *leaf_to)
{
    uint32_t *to = ep_array_new_zeroed(f->path_count, sizeof *to);
    uint32_t *of_leaf = ep_array_new_zeroed(tree->leaf_count, sizeof *of_leaf);
    for (size_t i = 1; to != NULL && i < tree->leaf_count; i++) {
        to[f->of_leaf[i]] |= f->is_pending[i];
    }
    size_t needed = 1;
    for (size_t i = f->path_count; to != NULL && i-- > 1;) {
        to[f->paths[i].parent] |= to[i];
        needed += to[i];
    }
    ep_tree_path *kept = ep_array_new(needed, sizeof *kept);
    if (to == NULL || of_leaf == NULL || kept == NULL) {
        free(to);
        free(of_leaf);
        free(kept);
        return EP_NOMEM;
    }
    to[0] = 0;
    size_t old = tree->path_count > 0 ? tree->path_count - 1 : 0;
    size_t count = renumber_paths(f, f->path_count - old, node_to, to, kept);
    for (size_t i = 1; i < tree->leaf_count; i++) {
        if (f->is_pending[i]) {
            of_leaf[leaf_to[i]] = to[f->of_leaf[i]];
        }
    }
    free(to);
    free(tree->paths);
    free(tree->path_of_leaf);
    tree->paths = kept;
    tree->path_count = count;
    tree->path_of_leaf = of_leaf;
    tree->path_leaf_count = tree->leaf_count;
    return EP_OK;
}

/* ---- The table ------------------------------------------------------------------------------- */

static int
by_function_and_length(const void *left, const void *right)
{
    const ep_tree_length *a = left, *b = right;
    if (a->function != b->function) {
        return a->function < b->function ? -1 : 1;
    }
    return a->bin < b->bin ? -1 : a->bin > b->bin;
}

/* The middle of the bin that has the smallest length that `percent` % of the calls do not exceed. */
static int64_t
percentile(const ep_function_stats *row, const ep_tree_length *bins, size_t count, unsigned percent)
{
    uint64_t calls = 0, so_far = 0;
    for (size_t i = 0; i < count; i++) {
        calls += bins[i].calls;
    }
    uint64_t wanted = (calls * percent + 99) / 100;
    size_t at = 0;
    while (at + 1 < count && (so_far += bins[at].calls) < wanted) {
        at++;
    }
    int64_t ns = bins[at].low_ns + (bins[at].high_ns - bins[at].low_ns) / 2;
    ns = ns < row->min ? row->min : ns;
    return ns > row->max ? row->max : ns;
}

static void
add_percentiles(ep_tree *tree)
{
    ep_tree_length *bins = tree->lengths;
    if (tree->length_count > 0) {
        qsort(bins, tree->length_count, sizeof *bins, by_function_and_length);
    }
    for (size_t from = 0, to; from < tree->length_count; from = to) {
        for (to = from; to < tree->length_count && bins[to].function == bins[from].function;) {
            to++;
        }
        ep_function_stats *row = row_of(tree->summed, bins[from].function);
        row->p50 = percentile(row, &bins[from], to - from, 50);
        row->p95 = percentile(row, &bins[from], to - from, 95);
        row->p99 = percentile(row, &bins[from], to - from, 99);
    }
}

static void
finish_row(ep_function_stats *row)
{
    row->whole = row->own.calls + row->own.resumes - row->own.cut;
    row->spent = row->own.total - row->own.cut_ns;
    row->below.total = 0;    /* sums of sums */
    row->net = row->below.allocated - row->below.freed;
    row->net_self = row->own.allocated - row->own.freed;
    row->churn = row->below.allocated - row->below.live;
    row->churn_self = row->own.allocated - row->own.live;
    row->mean = row->whole > 0 ? (double)row->spent / (double)row->whole : -1;
    row->min--;
    row->max--;
    row->p50 = row->p95 = row->p99 = -1;
}

ep_status
ep_tree_sum(ep_tree *tree)
{
    size_t count = tree->facts.map->function_count + 1;
    ep_tree_folding f = {0};
    ep_status status = ep_tree_sum_folded(tree, NULL, &f);
    ep_tree_folding_clear(&f);
    if (status != EP_OK) {
        return status;
    }
    tree->summed[0].own.freed += (int64_t)tree->freed_unseen;
    tree->summed[0].below.freed += (int64_t)tree->freed_unseen;
    for (size_t i = 0; i < count; i++) {
        finish_row(&tree->summed[i]);
    }
    add_percentiles(tree);
    /* The rows become the table, where that of no function is the last. */
    ep_function_stats *rows = tree->summed, none = rows[0];
    memmove(rows, rows + 1, (count - 1) * sizeof *rows);
    rows[count - 1] = none;
    tree->summed = NULL;
    tree->summed_capacity = 0;
    ep_summary_clear(&tree->functions);
    tree->functions = (ep_summary){count, rows};
    return EP_OK;
}

ep_status
ep_fold_functions(ep_trace *trace, bool with_lengths, ep_error *error)
{
    if (trace->has_lengths || (trace->has_summary && !with_lengths)) {
        return EP_OK;
    }
    ep_tree tree;
    ep_tree_open(&tree, 0);
    tree.with_lengths = with_lengths;
    ep_fold *fold = &tree.fold;
    bool by_tenures = !trace->no_lock && !ep_kinds_has(trace->recording.kinds, EP_KIND_WAIT);
    ep_status status = ep_fold_trace(trace, &fold, 1, by_tenures, "counting by function", error);
    if (status == EP_OK) {
        ep_summary_clear(&trace->summary);
        trace->summary = tree.functions;
        trace->has_summary = true;
        trace->has_lengths = with_lengths;
        tree.functions = (ep_summary){0};
    }
    fold->type->clear(fold);
    return status;
}
