/* The bound on nodes: if there are too many, the smallest children of a node become one child "other". */
#include <string.h>

#include "array.h"
#include "memory.h"
#include "tree_parts.h"

/* The weight of a node with all below: the larger of its share of the time and its share of the bytes. So
 * no child weighs more than its parent. */
static EP_CHECKED ep_status
weigh(const ep_tree *tree, double *weights)
{
    size_t count = tree->node_count;
    double time = 1, bytes = 1;
    double *below = ep_array_new_zeroed(count, sizeof *below);
    if (below == NULL) {
        return EP_NOMEM;
    }
    for (size_t i = 1; i < tree->leaf_count; i++) {
        below[tree->leaves[i].node] += (double)tree->leaves[i].allocated;
        bytes += (double)tree->leaves[i].allocated;
    }
    memset(weights, 0, count * sizeof *weights);
    for (size_t i = count; i-- > 1;) {
        weights[i] += (double)tree->nodes[i].self;
        weights[tree->nodes[i].parent] += weights[i];
        below[tree->nodes[i].parent] += below[i];
    }
    time += weights[0];
    for (size_t i = 0; i < count; i++) {
        double a = weights[i] / time, b = below[i] / bytes;
        weights[i] = a > b ? a : b;
    }
    free(below);
    return EP_OK;
}

static int
by_weight(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? 1 : a > b ? -1
                             : 0;
}

/* Marks the nodes that stay: those of open calls with their parents, and the heaviest. */
static EP_CHECKED ep_status
choose_nodes(ep_tree *tree, uint8_t *keep)
{
    size_t count = tree->node_count;
    double *weights = ep_array_new(count, sizeof *weights);
    double *sorted = ep_array_new(count, sizeof *sorted);
    ep_status status = weights != NULL && sorted != NULL ? weigh(tree, weights) : EP_NOMEM;
    if (status == EP_OK) {
        memcpy(sorted, weights, count * sizeof *sorted);
        qsort(sorted, count, sizeof *sorted, by_weight);
        double median = sorted[tree->max_nodes / 2];
        for (size_t i = 0; i < count; i++) {
            keep[i] = weights[i] > median;
        }
        keep[0] = 1;
        for (size_t thread = 0; thread < tree->facts.thread_count; thread++) {
            const ep_tree_thread *t = &tree->threads[thread];
            for (size_t depth = 1; depth <= t->depth; depth++) {
                keep[t->frames[depth].node] = 1;
            }
            if (t->moving.waits) {
                keep[t->moving_node] = 1;
            }
        }
        for (size_t i = count; i-- > 1;) {
            keep[tree->nodes[i].parent] |= keep[i];
        }
    }
    free(weights);
    free(sorted);
    return status;
}

/* Adds the own figures of a node to those of the node "other" that stands for it. */
static void
fold_node(ep_tree_node *into, const ep_tree_node *from)
{
    into->calls += from->calls;
    into->resumes += from->resumes;
    into->raised += from->raised;
    into->total += from->self;    /* inclusive times of nested nodes would count twice */
    into->self += from->self;
    into->waited += from->waited_self;
    into->waited_self += from->waited_self;
    into->longest = from->longest > into->longest ? from->longest : into->longest;
    if (from->shortest >= 0 && (into->shortest < 0 || from->shortest < into->shortest)) {
        into->shortest = from->shortest;
    }
    into->cut += from->cut;
    into->cut_ns += from->cut_ns;
    into->freed += from->freed;
}

static void
fold_leaf(ep_tree_leaf *into, const ep_tree_leaf *from)
{
    into->allocated += from->allocated;
    into->blocks += from->blocks;
    into->live += from->live;
    into->live_blocks += from->live_blocks;
    into->at_peak += from->at_peak;    /* both are of the current epoch */
    into->at_peak_blocks += from->at_peak_blocks;
    into->temporary += from->temporary;
    into->temporary_blocks += from->temporary_blocks;
}

typedef struct rebuilding {
    ep_tree tree;             /* the nodes, leaves and maps that stay */
    uint32_t *node_to;        /* new node of each old one */
    uint32_t *leaf_to;
    uint8_t *keep;
    ep_tree_folding folding;
} rebuilding;

static EP_CHECKED ep_status
rebuild_nodes(ep_tree *tree, rebuilding *r, uint32_t other)
{
    for (size_t i = 0; i < tree->node_count; i++) {
        const ep_tree_node *from = &tree->nodes[i];
        uint32_t parent = i > 0 ? r->node_to[from->parent] : 0;
        bool in_other = i > 0 && tree->places[r->tree.nodes[parent].place].function == EP_PLACE_OTHER;
        uint32_t place = r->keep[i] ? from->place : other;
        bool is_other = tree->places[from->place].function == EP_PLACE_OTHER;
        uint32_t to = parent;
        if (i == 0) {
            r->tree.nodes[0] = *from;
            r->tree.node_count = 1;
            r->node_to[0] = 0;
            continue;
        }
        if (!in_other) {
            to = child_of(&r->tree, parent, place);
        }
        if (to == UINT32_MAX) {
            return EP_NOMEM;
        }
        if (r->keep[i] && !is_other) {
            uint32_t own_parent = r->tree.nodes[to].parent;
            r->tree.nodes[to] = *from;
            r->tree.nodes[to].parent = own_parent;
        } else {
            fold_node(&r->tree.nodes[to], from);
            tree->folded += !is_other;
        }
        r->node_to[i] = to;
    }
    return EP_OK;
}

static EP_CHECKED ep_status
rebuild_leaves(ep_tree *tree, rebuilding *r, uint32_t other)
{
    r->tree.leaf_count = 1;
    r->leaf_to[0] = 0;
    for (size_t i = 1; i < tree->leaf_count; i++) {
        ep_tree_leaf *from = touch(tree, (uint32_t)i);
        uint32_t node = r->node_to[from->node];
        bool in_other = tree->places[r->tree.nodes[node].place].function == EP_PLACE_OTHER;
        bool is_pending = r->folding.is_pending[i] != 0;    /* it stays a leaf of its own */
        uint32_t place = in_other && !is_pending ? other : from->place;
        uint32_t to = is_pending ? 0 : PAIR_FIND(&r->tree.leaf_map, r->tree.leaves, node, place);
        if (to != 0) {
            fold_leaf(&r->tree.leaves[to - 1], from);
            r->leaf_to[i] = to - 1;
            continue;
        }
        if (!ep_grow_raw((void **)&r->tree.leaves, &r->tree.leaf_capacity, r->tree.leaf_count + 1,
                         sizeof *from) ||
            (!is_pending &&
             PAIR_PUT(&r->tree.leaf_map, r->tree.leaves, node, place, r->tree.leaf_count) != EP_OK)) {
            return EP_NOMEM;
        }
        r->leaf_to[i] = (uint32_t)r->tree.leaf_count++;
        r->tree.leaves[r->leaf_to[i]] = *from;
        r->tree.leaves[r->leaf_to[i]].node = node;
        r->tree.leaves[r->leaf_to[i]].place = place;
    }
    return EP_OK;
}

/* Puts the new numbers of leaves into origins. Two origins may become the same; blocks keep theirs. */
static EP_CHECKED ep_status
renumber_origins(ep_tree *tree, rebuilding *r)
{
    for (size_t i = 1; i < tree->origin_count; i++) {
        ep_tree_origin *origin = &r->tree.origins[i];
        *origin = (ep_tree_origin){r->leaf_to[tree->origins[i].leaf], tree->origins[i].owner};
        if (PAIR_FIND(&r->tree.origin_map, r->tree.origins, origin->leaf, origin->owner) == 0 &&
            PAIR_PUT(&r->tree.origin_map, r->tree.origins, origin->leaf, origin->owner, i) != EP_OK) {
            return EP_NOMEM;
        }
    }
    return EP_OK;
}

static EP_CHECKED ep_status
rebuild_waits(ep_tree *tree, rebuilding *r)
{
    ep_tree_waits *waits = NULL;
    size_t capacity = 0;
    if (tree->waits_capacity != 0 &&
        !ep_grow((void **)&waits, &capacity, r->tree.node_count, sizeof *waits)) {
        return EP_NOMEM;
    }
    for (size_t i = 0; i < ep_tree_waits_count(tree); i++) {
        for (size_t what = 0; what < EP_WAIT_FOR_COUNT; what++) {
            waits[r->node_to[i]].ns[what] += tree->waits[i].ns[what];
        }
    }
    r->tree.waits = waits;
    r->tree.waits_capacity = capacity;
    return EP_OK;
}

/* Puts the new numbers of nodes and leaves into calls and blocks. */
static void
renumber(ep_tree *tree, const rebuilding *r)
{
    for (size_t thread = 0; thread < tree->facts.thread_count; thread++) {
        ep_tree_thread *t = &tree->threads[thread];
        for (size_t depth = 1; depth <= t->depth; depth++) {
            t->frames[depth].node = r->node_to[t->frames[depth].node];
        }
        if (t->moving.waits) {
            t->moving_node = r->node_to[t->moving_node];
            t->moved.leaf = r->leaf_to[t->moved.leaf];
        }
    }
    for (size_t i = 0; i < tree->late_count; i++) {
        tree->late[i].leaf = r->leaf_to[tree->late[i].leaf];
    }
}

ep_status
ep_tree_shrink(ep_tree *tree)
{
    ep_place of_other = {EP_PLACE_OTHER, -1, -1};
    uint32_t other = ep_tree_place_of(tree, &of_other);
    rebuilding r = {0};
    r.node_to = ep_array_new(tree->node_count, sizeof *r.node_to);
    r.leaf_to = ep_array_new(tree->leaf_count, sizeof *r.leaf_to);
    r.keep = ep_array_new_zeroed(tree->node_count, 1);
    ep_status status = other != UINT32_MAX && r.node_to != NULL && r.leaf_to != NULL && r.keep != NULL
                           ? EP_OK
                           : EP_NOMEM;
    status = status != EP_OK ? status : ep_hash_index_open(&r.tree.children, EP_TREE_FIRST_ROWS);
    status = status != EP_OK ? status : ep_hash_index_open(&r.tree.leaf_map, EP_TREE_FIRST_ROWS);
    status = status != EP_OK ? status : ep_hash_index_open(&r.tree.origin_map, EP_TREE_FIRST_ROWS);
    status = status != EP_OK ? status : choose_nodes(tree, r.keep);
    if (status == EP_OK &&
        (!ep_grow((void **)&r.tree.leaves, &r.tree.leaf_capacity, 1, sizeof *r.tree.leaves) ||
         !ep_grow((void **)&r.tree.origins, &r.tree.origin_capacity, tree->origin_count,
                  sizeof *r.tree.origins) ||
         !ep_grow((void **)&r.tree.nodes, &r.tree.node_capacity, 1, sizeof *r.tree.nodes))) {
        status = EP_NOMEM;
    }
    status = status != EP_OK ? status : ep_tree_sum_folded(tree, r.keep, &r.folding);
    status = status != EP_OK ? status : rebuild_nodes(tree, &r, other);
    status = status != EP_OK ? status : rebuild_leaves(tree, &r, other);
    status = status != EP_OK ? status : renumber_origins(tree, &r);
    status = status != EP_OK ? status : rebuild_waits(tree, &r);
    status = status != EP_OK ? status : ep_tree_keep_paths(tree, &r.folding, r.node_to, r.leaf_to);
    if (status == EP_OK) {
        renumber(tree, &r);
        ep_tree_renumber_gone(tree, r.leaf_to, tree->leaf_count);
        ep_tree_forget_known(tree);
        ep_tree old = *tree;
        tree->nodes = r.tree.nodes;
        tree->node_count = r.tree.node_count;
        tree->node_capacity = r.tree.node_capacity;
        tree->leaves = r.tree.leaves;
        tree->leaf_count = r.tree.leaf_count;
        tree->leaf_capacity = r.tree.leaf_capacity;
        tree->children = r.tree.children;
        tree->leaf_map = r.tree.leaf_map;
        tree->origins = r.tree.origins;
        tree->origin_capacity = r.tree.origin_capacity;
        tree->origin_map = r.tree.origin_map;
        tree->waits = r.tree.waits;
        tree->waits_capacity = r.tree.waits_capacity;
        r.tree.nodes = old.nodes;
        r.tree.leaves = old.leaves;
        r.tree.children = old.children;
        r.tree.leaf_map = old.leaf_map;
        r.tree.origins = old.origins;
        r.tree.origin_map = old.origin_map;
        r.tree.waits = old.waits;
    }
    free(r.tree.nodes);
    free(r.tree.leaves);
    ep_hash_index_free(&r.tree.children);
    ep_hash_index_free(&r.tree.leaf_map);
    free(r.tree.origins);
    free(r.tree.waits);
    ep_hash_index_free(&r.tree.origin_map);
    free(r.node_to);
    free(r.leaf_to);
    free(r.keep);
    ep_tree_folding_clear(&r.folding);
    return status;
}
