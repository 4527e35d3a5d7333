/* The calling-context tree; what it is, and how the peak is found, is in tree.h. */
#include "tree.h"

#include <string.h>

#include "array.h"
#include "memory.h"

/* ---- What runs ------------------------------------------------------------------------------- */

/* An end fits an opening when their keys are equal, as in pair.c. */
#define KEY(function, is_c) ((function) * 2 + (is_c))
#define KEY_FLOOR INT32_MIN

typedef struct frame {
    uint32_t node;
    int32_t key;
    int64_t start_ns;
    int64_t below_ns;           /* of the calls inside that ended */
    int64_t waited_from_ns;     /* ep_tenure_others_ns() when it began */
    int64_t waited_below_ns;
    uint64_t call;              /* number in order of start; 0: the floor */
    bool cut;                   /* open at start */
} frame;

/* A block, in a slot or out of it. */
typedef struct ep_tree_block {
    uint64_t address;
    uint64_t size;
    uint32_t leaf;        /* 0: an empty slot */
    uint32_t call;        /* low half of the number; of the call that made it */
    uint32_t birth;       /* low half of the number of the allocation */
    uint32_t owner;       /* OWNER() */
} ep_tree_block;

/* The thread that made a block, and the domain of its allocator. */
#define OWNER(thread, domain) ((uint32_t)(thread) << 3 | (uint32_t)(domain))
#define OWNER_DOMAIN(owner) ((owner) & 7)
_Static_assert(EP_DOMAIN_COUNT <= 8, "a domain has three bits");

typedef struct ep_tree_thread {
    frame *frames;        /* [0] is the floor */
    size_t depth, capacity;
    int32_t absent_key;   /* no frame with a call below absent_before has it; see pair.c */
    uint64_t absent_before;
    uint32_t last_birth;  /* of its last allocation */
    bool has_birth;
    /* A realloc_free whose realloc is still to come. */
    bool moving, moving_known;
    uint8_t moving_domain;
    uint64_t moving_address;
    uint32_t moving_node; /* that freed it */
    ep_tree_block moved;
} ep_tree_thread;

/* ---- Maps of pairs --------------------------------------------------------------------------- */

static size_t
pair_home(uint32_t a, uint32_t b, size_t mask)
{
    uint64_t key = ((uint64_t)a << 32 | b) * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(key ^ key >> 29) & mask;
}

static ep_pair_slot *
pair_find(const ep_pair_map *map, uint32_t a, uint32_t b)
{
    size_t at = pair_home(a, b, map->mask);
    while (map->slots[at].index != 0 && (map->slots[at].a != a || map->slots[at].b != b)) {
        at = (at + 1) & map->mask;
    }
    return &map->slots[at];
}

static EP_CHECKED ep_status
pair_open(ep_pair_map *map, size_t capacity)
{
    *map = (ep_pair_map){.mask = capacity - 1};
    map->slots = ep_array_new_zeroed(capacity, sizeof *map->slots);
    return map->slots != NULL ? EP_OK : EP_NOMEM;
}

/* Puts what is not there yet. */
static EP_CHECKED ep_status
pair_put(ep_pair_map *map, uint32_t a, uint32_t b, uint32_t index)
{
    if (EP_UNLIKELY(map->used * 2 > map->mask)) {
        ep_pair_map larger;
        if (pair_open(&larger, (map->mask + 1) * 2) != EP_OK) {
            return EP_NOMEM;
        }
        for (size_t i = 0; i <= map->mask; i++) {
            if (map->slots[i].index != 0) {
                *pair_find(&larger, map->slots[i].a, map->slots[i].b) = map->slots[i];
            }
        }
        larger.used = map->used;
        free(map->slots);
        *map = larger;
    }
    *pair_find(map, a, b) = (ep_pair_slot){.a = a, .b = b, .index = index};
    map->used++;
    return EP_OK;
}

/* ---- Places ---------------------------------------------------------------------------------- */

static size_t
place_slot(const ep_tree *tree, const ep_place *place)
{
    uint64_t hash = ((uint64_t)(uint32_t)place->function << 32 | (uint32_t)place->line) *
                        UINT64_C(0x9e3779b97f4a7c15) ^
                    (uint64_t)(uint32_t)place->caller * UINT64_C(0xc2b2ae3d27d4eb4f);
    size_t at = (size_t)(hash ^ hash >> 29) & tree->place_mask;
    for (; tree->place_slots[at] != 0; at = (at + 1) & tree->place_mask) {
        const ep_place *other = &tree->places[tree->place_slots[at] - 1];
        if (other->function == place->function && other->caller == place->caller &&
            other->line == place->line) {
            break;
        }
    }
    return at;
}

/* Fails: UINT32_MAX, out of memory. */
static EP_COLD uint32_t
place_of(ep_tree *tree, const ep_place *place)
{
    size_t at = place_slot(tree, place);
    if (tree->place_slots[at] != 0) {
        return tree->place_slots[at] - 1;
    }
    if (!ep_grow_raw((void **)&tree->places, &tree->place_capacity, tree->place_count + 1,
                     sizeof *tree->places)) {
        return UINT32_MAX;
    }
    if (tree->place_count * 2 > tree->place_mask) {
        size_t capacity = (tree->place_mask + 1) * 2;
        uint32_t *slots = ep_array_new_zeroed(capacity, sizeof *slots);
        if (slots == NULL) {
            return UINT32_MAX;
        }
        free(tree->place_slots);
        tree->place_slots = slots;
        tree->place_mask = capacity - 1;
        for (size_t i = 0; i < tree->place_count; i++) {
            slots[place_slot(tree, &tree->places[i])] = (uint32_t)i + 1;
        }
        at = place_slot(tree, place);
    }
    tree->places[tree->place_count] = *place;
    tree->place_slots[at] = (uint32_t)++tree->place_count;
    return (uint32_t)tree->place_count - 1;
}

/* Fails: UINT32_MAX. */
static EP_COLD uint32_t
place_of_new_site(ep_tree *tree, uint32_t site)
{
    const ep_id_map *map = tree->facts.map;
    ep_place place = {-1, -1, -1};
    if (site < map->site_count) {
        place = (ep_place){map->site_function[site], map->site_caller[site], map->site_line[site]};
    }
    uint32_t found = place_of(tree, &place);
    if (found != UINT32_MAX && site < map->site_count) {
        tree->place_of_site[site] = found + 1;
    }
    return found;
}

static inline uint32_t
place_of_site(ep_tree *tree, uint32_t site)
{
    if (EP_LIKELY(site < tree->facts.map->site_count && tree->place_of_site[site] != 0)) {
        return tree->place_of_site[site] - 1;
    }
    return place_of_new_site(tree, site);
}

/* ---- Nodes and leaves ------------------------------------------------------------------------ */

static EP_COLD EP_CHECKED ep_status
add_node(ep_tree *tree, uint32_t parent, uint32_t place)
{
    if (!ep_grow_raw((void **)&tree->nodes, &tree->node_capacity, tree->node_count + 1,
                     sizeof *tree->nodes) ||
        pair_put(&tree->children, parent, place, (uint32_t)tree->node_count + 1) != EP_OK) {
        return EP_NOMEM;
    }
    tree->nodes[tree->node_count++] =
        (ep_tree_node){.parent = parent, .place = place, .longest = -1, .shortest = -1};
    return EP_OK;
}

/* The child of a node, made if it is new. Fails: UINT32_MAX. */
static inline uint32_t
child_of(ep_tree *tree, uint32_t parent, uint32_t place)
{
    uint32_t index = pair_find(&tree->children, parent, place)->index;
    if (EP_LIKELY(index != 0)) {
        return index - 1;
    }
    if (tree->node_count >= UINT32_MAX - 1 || add_node(tree, parent, place) != EP_OK) {
        return UINT32_MAX;
    }
    return (uint32_t)tree->node_count - 1;
}

/* Fails: 0. */
static EP_COLD uint32_t
new_leaf(ep_tree *tree, uint32_t node, uint32_t site)
{
    uint32_t place = place_of_site(tree, site);
    if (place == UINT32_MAX) {
        return 0;
    }
    if (node == 0) {
        /* Outside all calls: the function that was executing has a node of its own. */
        ep_place of_function = {tree->places[place].function, -1, -1};
        uint32_t at = place_of(tree, &of_function);
        node = at != UINT32_MAX ? child_of(tree, 0, at) : UINT32_MAX;
        if (node == UINT32_MAX) {
            return 0;
        }
    }
    uint32_t index = pair_find(&tree->leaf_map, node, place)->index;
    if (index != 0) {
        return index - 1;
    }
    if (tree->leaf_count >= UINT32_MAX - 1 ||
        !ep_grow_raw((void **)&tree->leaves, &tree->leaf_capacity, tree->leaf_count + 1,
                     sizeof *tree->leaves) ||
        pair_put(&tree->leaf_map, node, place, (uint32_t)tree->leaf_count + 1) != EP_OK) {
        return 0;
    }
    tree->leaves[tree->leaf_count] =
        (ep_tree_leaf){.node = node, .place = place, .epoch = tree->epoch};
    return (uint32_t)tree->leaf_count++;
}

/* The leaf of an allocation or a free in a node. Fails: 0. */
static inline uint32_t
leaf_of(ep_tree *tree, uint32_t node, uint32_t site)
{
    ep_tree_node *n = &tree->nodes[node];
    if (EP_LIKELY(n->last_id == site && n->last_leaf != 0)) {
        return n->last_leaf;
    }
    uint32_t leaf = 0;
    if (site < tree->facts.map->site_count && tree->place_of_site[site] != 0 && node != 0) {
        uint32_t index = pair_find(&tree->leaf_map, node, tree->place_of_site[site] - 1)->index;
        leaf = index != 0 ? index - 1 : 0;
    }
    leaf = leaf != 0 ? leaf : new_leaf(tree, node, site);
    n = &tree->nodes[node];    /* they may have moved */
    n->last_id = site;
    n->last_leaf = leaf;
    return leaf;
}

/* Before the live bytes of a leaf change. */
static inline ep_tree_leaf *
touch(ep_tree *tree, uint32_t index)
{
    ep_tree_leaf *leaf = &tree->leaves[index];
    if (leaf->epoch != tree->epoch) {
        leaf->at_peak = leaf->live;
        leaf->epoch = tree->epoch;
    }
    return leaf;
}

/* ---- The bound ------------------------------------------------------------------------------- */

/* What a node weighs, its children included: its share of the time and of the bytes, the larger. So no
 * child weighs more than its parent. */
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
        double least = sorted[tree->max_nodes / 2];
        for (size_t i = 0; i < count; i++) {
            keep[i] = weights[i] > least;
        }
        keep[0] = 1;
        for (size_t thread = 0; thread < tree->facts.thread_count; thread++) {
            const ep_tree_thread *t = &tree->threads[thread];
            for (size_t depth = 1; depth <= t->depth; depth++) {
                keep[t->frames[depth].node] = 1;
            }
            if (t->moving) {
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

/* Adds the own figures of a node to those of the node that stands for it. */
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
    into->freed += from->freed;
}

static void
fold_leaf(ep_tree_leaf *into, const ep_tree_leaf *from)
{
    into->allocated += from->allocated;
    into->blocks += from->blocks;
    into->live += from->live;
    into->live_blocks += from->live_blocks;
    into->at_peak += from->at_peak;    /* both of today's epoch */
    into->temporary += from->temporary;
    into->temporary_blocks += from->temporary_blocks;
}

typedef struct rebuilding {
    ep_tree tree;             /* the nodes, leaves and maps that stay */
    uint32_t *node_to;        /* new node of each old one */
    uint32_t *leaf_to;
    uint8_t *keep;
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
            r->tree.nodes[0].last_leaf = 0;
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
            r->tree.nodes[to].last_leaf = 0;
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
        uint32_t place = in_other ? other : from->place;
        uint32_t to = pair_find(&r->tree.leaf_map, node, place)->index;
        if (to != 0) {
            fold_leaf(&r->tree.leaves[to - 1], from);
            r->leaf_to[i] = to - 1;
            continue;
        }
        if (!ep_grow_raw((void **)&r->tree.leaves, &r->tree.leaf_capacity, r->tree.leaf_count + 1,
                         sizeof *from) ||
            pair_put(&r->tree.leaf_map, node, place, (uint32_t)r->tree.leaf_count + 1) != EP_OK) {
            return EP_NOMEM;
        }
        r->leaf_to[i] = (uint32_t)r->tree.leaf_count++;
        r->tree.leaves[r->leaf_to[i]] = *from;
        r->tree.leaves[r->leaf_to[i]].node = node;
        r->tree.leaves[r->leaf_to[i]].place = place;
    }
    return EP_OK;
}

/* Old numbers become new ones where calls and blocks refer to them. */
static void
renumber(ep_tree *tree, const rebuilding *r)
{
    for (size_t thread = 0; thread < tree->facts.thread_count; thread++) {
        ep_tree_thread *t = &tree->threads[thread];
        for (size_t depth = 1; depth <= t->depth; depth++) {
            t->frames[depth].node = r->node_to[t->frames[depth].node];
        }
        if (t->moving) {
            t->moving_node = r->node_to[t->moving_node];
            t->moved.leaf = r->leaf_to[t->moved.leaf];
        }
    }
    for (size_t i = 0; i <= tree->slot_mask; i++) {
        tree->slots[i].leaf = r->leaf_to[tree->slots[i].leaf];
    }
    for (size_t i = 0; i < tree->late_count; i++) {
        tree->late[i].leaf = r->leaf_to[tree->late[i].leaf];
    }
}

/* Folds the smallest nodes into one child "other" of the nearest node that stays. */
static EP_COLD EP_CHECKED ep_status
shrink(ep_tree *tree)
{
    ep_place of_other = {EP_PLACE_OTHER, -1, -1};
    uint32_t other = place_of(tree, &of_other);
    rebuilding r = {0};
    r.node_to = ep_array_new(tree->node_count, sizeof *r.node_to);
    r.leaf_to = ep_array_new(tree->leaf_count, sizeof *r.leaf_to);
    r.keep = ep_array_new_zeroed(tree->node_count, 1);
    ep_status status = other != UINT32_MAX && r.node_to != NULL && r.leaf_to != NULL && r.keep != NULL
                           ? EP_OK
                           : EP_NOMEM;
    status = status != EP_OK ? status : pair_open(&r.tree.children, 4096);
    status = status != EP_OK ? status : pair_open(&r.tree.leaf_map, 4096);
    status = status != EP_OK ? status : choose_nodes(tree, r.keep);
    if (status == EP_OK &&
        (!ep_grow((void **)&r.tree.leaves, &r.tree.leaf_capacity, 1, sizeof *r.tree.leaves) ||
         !ep_grow((void **)&r.tree.nodes, &r.tree.node_capacity, 1, sizeof *r.tree.nodes))) {
        status = EP_NOMEM;
    }
    status = status != EP_OK ? status : rebuild_nodes(tree, &r, other);
    status = status != EP_OK ? status : rebuild_leaves(tree, &r, other);
    if (status == EP_OK) {
        renumber(tree, &r);
        ep_tree old = *tree;
        tree->nodes = r.tree.nodes;
        tree->node_count = r.tree.node_count;
        tree->node_capacity = r.tree.node_capacity;
        tree->leaves = r.tree.leaves;
        tree->leaf_count = r.tree.leaf_count;
        tree->leaf_capacity = r.tree.leaf_capacity;
        tree->children = r.tree.children;
        tree->leaf_map = r.tree.leaf_map;
        r.tree.nodes = old.nodes;
        r.tree.leaves = old.leaves;
        r.tree.children = old.children;
        r.tree.leaf_map = old.leaf_map;
    }
    free(r.tree.nodes);
    free(r.tree.leaves);
    free(r.tree.children.slots);
    free(r.tree.leaf_map.slots);
    free(r.node_to);
    free(r.leaf_to);
    free(r.keep);
    return status;
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static EP_CHECKED ep_status
push(ep_tree *tree, ep_tree_thread *t, const frame *call)
{
    if (EP_UNLIKELY(t->depth + 2 > t->capacity)) {
        if (!ep_grow_raw((void **)&t->frames, &t->capacity, t->depth + 2, sizeof *t->frames)) {
            return EP_NOMEM;
        }
        t->frames[0] = (frame){.key = KEY_FLOOR};
    }
    (void)tree;
    t->frames[++t->depth] = *call;
    return EP_OK;
}

/* Ends the innermost call. */
static inline void
pop(ep_tree *tree, ep_tree_thread *t, int64_t time_ns, int64_t waited_ns, bool cut)
{
    const frame *call = &t->frames[t->depth--];
    ep_tree_node *node = &tree->nodes[call->node];
    int64_t length_ns = time_ns - call->start_ns;
    int64_t waited = waited_ns - call->waited_from_ns;
    node->total += length_ns;
    node->self += length_ns - call->below_ns;
    node->waited += waited;
    node->waited_self += waited - call->waited_below_ns;
    if (!cut && !call->cut) {
        node->longest = length_ns > node->longest ? length_ns : node->longest;
        if (node->shortest < 0 || length_ns < node->shortest) {
            node->shortest = length_ns;
        }
    }
    frame *around = &t->frames[t->depth];
    around->below_ns += length_ns;
    around->waited_below_ns += waited;
}

static EP_CHECKED ep_status
begin_call(ep_tree *tree, ep_tree_thread *t, unsigned kind, uint32_t site, int64_t time_ns,
           int64_t waited_ns, bool before)
{
    const ep_id_map *map = tree->facts.map;
    uint32_t place = place_of_site(tree, site);
    uint32_t parent = t->depth > 0 ? t->frames[t->depth].node : 0;
    uint32_t node = place != UINT32_MAX ? child_of(tree, parent, place) : UINT32_MAX;
    if (EP_UNLIKELY(node == UINT32_MAX)) {
        return EP_NOMEM;
    }
    bool resumes = kind == EP_KIND_RESUME || kind == EP_KIND_THROW;
    tree->nodes[node].calls += !before && !resumes;
    tree->nodes[node].resumes += !before && resumes;
    frame call = {
        .node = node,
        .key = KEY(ep_site_function(map, site), ep_kinds_has(ep_kinds_c, kind)),
        .start_ns = time_ns,
        .waited_from_ns = waited_ns,
        .call = ++tree->calls_begun,
        .cut = before,
    };
    return push(tree, t, &call);
}

/* An end that does not fit the innermost call; as close_below_top() in pair.c. */
static EP_COLD void
end_below_top(ep_tree *tree, ep_tree_thread *t, int32_t key, int64_t time_ns, int64_t waited_ns,
              bool raised)
{
    uint64_t floor = t->absent_key == key ? t->absent_before : 1;
    size_t found = t->depth;
    while (found > 0 && t->frames[found].call >= floor && t->frames[found].key != key) {
        found--;
    }
    if (found == 0 || t->frames[found].call < floor) {
        t->absent_key = key;
        t->absent_before = tree->calls_begun + 1;
        tree->unmatched++;
        return;
    }
    while (t->depth > found) {
        pop(tree, t, time_ns, waited_ns, true);
        tree->ends_unseen++;
    }
    tree->nodes[t->frames[t->depth].node].raised += raised;
    pop(tree, t, time_ns, waited_ns, false);
}

static inline void
end_call(ep_tree *tree, ep_tree_thread *t, unsigned kind, uint32_t name, int64_t time_ns,
         int64_t waited_ns)
{
    const ep_id_map *map = tree->facts.map;
    int32_t function = name < map->name_count ? map->name_function[name] : -1;
    int32_t key = KEY(function, ep_kinds_has(ep_kinds_c, kind));
    bool raised = ep_kinds_has(EP_KINDS_RAISED, kind);
    if (EP_LIKELY(t->depth > 0 && t->frames[t->depth].key == key)) {
        tree->nodes[t->frames[t->depth].node].raised += raised;
        pop(tree, t, time_ns, waited_ns, false);
    } else {
        end_below_top(tree, t, key, time_ns, waited_ns, raised);
    }
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

static inline size_t
block_home(uint64_t address, size_t mask)
{
    uint64_t hash = (address ^ address >> 12) * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(hash >> 20) & mask;
}

/* The slot of an address, or the empty one where it belongs. */
static inline size_t
block_find(const ep_tree *tree, uint64_t address)
{
    size_t at = block_home(address, tree->slot_mask);
    while (tree->slots[at].leaf != 0 && tree->slots[at].address != address) {
        at = (at + 1) & tree->slot_mask;
    }
    return at;
}

static EP_COLD EP_CHECKED ep_status
block_grow(ep_tree *tree)
{
    ep_tree larger = {.slot_mask = tree->slot_mask * 2 + 1};
    larger.slots = ep_array_new_zeroed(larger.slot_mask + 1, sizeof *larger.slots);
    if (larger.slots == NULL) {
        return EP_NOMEM;
    }
    for (size_t i = 0; i <= tree->slot_mask; i++) {
        if (tree->slots[i].leaf != 0) {
            larger.slots[block_find(&larger, tree->slots[i].address)] = tree->slots[i];
        }
    }
    free(tree->slots);
    tree->slots = larger.slots;
    tree->slot_mask = larger.slot_mask;
    return EP_OK;
}

/* Takes a slot out; those behind it move up, so that there are no tombstones. */
static inline void
block_take(ep_tree *tree, size_t at)
{
    ep_tree_block *slots = tree->slots;
    size_t mask = tree->slot_mask;
    size_t hole = at;
    for (size_t next = (at + 1) & mask; slots[next].leaf != 0; next = (next + 1) & mask) {
        size_t home = block_home(slots[next].address, mask);
        if (((next - home) & mask) >= ((next - hole) & mask)) {
            slots[hole] = slots[next];
            hole = next;
        }
    }
    slots[hole].leaf = 0;
    tree->slot_used--;
}

/* Before the live bytes of a domain change. */
static inline uint64_t *
touch_domain(ep_tree *tree, unsigned domain)
{
    if (tree->domain_epoch[domain] != tree->epoch) {
        tree->domain_at_peak[domain] = tree->domain_live[domain];
        tree->domain_epoch[domain] = tree->epoch;
    }
    return &tree->domain_live[domain];
}

static inline void
add_live(ep_tree *tree, const ep_tree_block *block, int64_t time_ns)
{
    ep_tree_leaf *leaf = touch(tree, block->leaf);
    leaf->live += block->size;
    leaf->live_blocks++;
    *touch_domain(tree, OWNER_DOMAIN(block->owner)) += block->size;
    tree->live += block->size;
    tree->live_blocks++;
    if ((int64_t)tree->live > (int64_t)tree->peak || tree->peak_ns < 0) {
        tree->peak = tree->live;
        tree->peak_blocks = tree->live_blocks;
        tree->peak_ns = time_ns;
        tree->epoch++;
    }
}

static inline void
take_live(ep_tree *tree, const ep_tree_block *block)
{
    ep_tree_leaf *leaf = touch(tree, block->leaf);
    leaf->live -= block->size;
    leaf->live_blocks--;
    *touch_domain(tree, OWNER_DOMAIN(block->owner)) -= block->size;
    tree->live -= block->size;
    tree->live_blocks--;
}

/* What the log says next of an address that is still in use: of another thread, and so soon that its clock
 * may differ, a free is that of the older block. */
static EP_COLD bool
is_freed_late(const ep_tree *tree, const ep_columns *columns, size_t event)
{
    size_t birth_row = (size_t)columns->alloc_row[event];
    if (tree->facts.thread_count < 2) {
        return false;
    }
    for (size_t next = event + 1; next < columns->alloc_count; next++) {
        size_t row = (size_t)columns->alloc_row[next];
        if (columns->time_ns[row] - columns->time_ns[birth_row] > EP_PAIR_SKEW_NS) {
            return false;
        }
        unsigned kind = columns->kind[row];
        if (columns->address[next] == columns->address[event] &&
            (ep_kinds[kind].family == EP_FAMILY_ALLOC || ep_kinds[kind].family == EP_FAMILY_FREE) &&
            ep_kinds[kind].pairing != EP_PAIRING_NEITHER) {
            return ep_kinds[kind].family == EP_FAMILY_FREE &&
                   columns->thread[row] != columns->thread[birth_row];
        }
    }
    return false;
}

static EP_COLD EP_CHECKED ep_status
begin_over(ep_tree *tree, size_t at, const ep_columns *columns, size_t event)
{
    if (!is_freed_late(tree, columns, event)) {
        take_live(tree, &tree->slots[at]);    /* its free was lost */
    } else {
        if (!ep_grow_raw((void **)&tree->late, &tree->late_capacity, tree->late_count + 1,
                         sizeof *tree->late)) {
            return EP_NOMEM;
        }
        tree->late[tree->late_count++] = tree->slots[at];
    }
    block_take(tree, at);
    return EP_OK;
}

static inline EP_CHECKED ep_status
begin_block(ep_tree *tree, ep_tree_thread *t, int32_t thread, const ep_columns *columns, size_t event,
            size_t row)
{
    const frame *call = &t->frames[t->depth];
    uint64_t address = columns->address[event];
    uint32_t leaf_index = leaf_of(tree, call->node, columns->id[row]);
    if (EP_UNLIKELY(leaf_index == 0 ||
                    (tree->slot_used * 8 > tree->slot_mask * 5 && block_grow(tree) != EP_OK))) {
        return EP_NOMEM;
    }
    size_t at = block_find(tree, address);
    if (EP_UNLIKELY(tree->slots[at].leaf != 0)) {
        if (begin_over(tree, at, columns, event) != EP_OK) {
            return EP_NOMEM;
        }
        at = block_find(tree, address);
    }
    ep_tree_block block = {
        .address = address,
        .size = (uint64_t)columns->size[event],
        .leaf = leaf_index,
        .call = (uint32_t)call->call,
        .birth = (uint32_t)tree->births++,
        .owner = OWNER(thread, ep_kinds[columns->kind[row]].domain),
    };
    tree->slots[at] = block;
    tree->slot_used++;
    ep_tree_leaf *leaf = &tree->leaves[leaf_index];
    leaf->allocated += block.size;
    leaf->blocks++;
    t->last_birth = block.birth;
    t->has_birth = true;
    add_live(tree, &block, columns->time_ns[row]);
    return EP_OK;
}

/* The node that a free is charged to. Fails: UINT32_MAX. */
static inline uint32_t
freeing_node(ep_tree *tree, const ep_tree_thread *t, uint32_t site)
{
    if (EP_LIKELY(t->depth > 0)) {
        return t->frames[t->depth].node;
    }
    uint32_t leaf = leaf_of(tree, 0, site);
    return leaf != 0 ? tree->leaves[leaf].node : UINT32_MAX;
}

static inline EP_CHECKED ep_status
end_block(ep_tree *tree, ep_tree_thread *t, int32_t thread, const ep_tree_block *block, uint32_t site,
          bool moves)
{
    uint32_t node = freeing_node(tree, t, site);
    if (EP_UNLIKELY(node == UINT32_MAX)) {
        return EP_NOMEM;
    }
    tree->nodes[node].freed += block->size;
    take_live(tree, block);
    const frame *call = &t->frames[t->depth];
    bool brief = t->has_birth && t->last_birth == block->birth &&
                 OWNER(thread, 0) == (block->owner & ~UINT32_C(7));
    bool local = t->depth > 0 && (uint32_t)call->call == block->call;
    if ((brief || local) && !moves) {
        ep_tree_leaf *leaf = &tree->leaves[block->leaf];
        leaf->temporary += block->size;
        leaf->temporary_blocks++;
    }
    if (moves) {
        t->moving_known = true;
        t->moving_node = node;
        t->moved = *block;
    }
    return EP_OK;
}

static EP_CHECKED ep_status
free_block(ep_tree *tree, ep_tree_thread *t, int32_t thread, const ep_columns *columns, size_t event,
           size_t row)
{
    unsigned kind = columns->kind[row];
    uint64_t address = columns->address[event];
    bool moves = ep_kind_is(kind, EP_KIND_REALLOC_FREE);
    if (moves) {
        t->moving = true;
        t->moving_known = false;
        t->moving_domain = ep_kinds[kind].domain;
        t->moving_address = address;
        t->moving_node = 0;
        t->moved.leaf = 0;
    }
    if (EP_UNLIKELY(tree->late_count > 0)) {
        for (size_t i = 0; i < tree->late_count; i++) {
            if (tree->late[i].address == address) {
                ep_tree_block block = tree->late[i];
                tree->late[i] = tree->late[--tree->late_count];
                return end_block(tree, t, thread, &block, columns->id[row], moves);
            }
        }
    }
    size_t at = block_find(tree, address);
    if (tree->slots[at].leaf == 0) {
        tree->unknown_frees++;
        return EP_OK;
    }
    ep_tree_block block = tree->slots[at];
    block_take(tree, at);
    return end_block(tree, t, thread, &block, columns->id[row], moves);
}

/* A realloc failed: the block that its realloc_free ended lives on. */
static EP_COLD EP_CHECKED ep_status
revive_block(ep_tree *tree, ep_tree_thread *t, const ep_columns *columns, size_t event, size_t row)
{
    bool fits = t->moving && t->moving_domain == ep_kinds[columns->kind[row]].domain &&
                t->moving_address == columns->address[event];
    t->moving = false;
    if (!fits || !t->moving_known) {
        return EP_OK;
    }
    if (tree->slot_used * 8 > tree->slot_mask * 5 && block_grow(tree) != EP_OK) {
        return EP_NOMEM;
    }
    size_t at = block_find(tree, t->moved.address);
    if (tree->slots[at].leaf != 0) {
        return EP_OK;    /* another thread was given the address, so it did end */
    }
    tree->slots[at] = t->moved;
    tree->slot_used++;
    tree->nodes[t->moving_node].freed -= t->moved.size;
    add_live(tree, &t->moved, columns->time_ns[row]);
    return EP_OK;
}

/* ---- The fold -------------------------------------------------------------------------------- */

static EP_CHECKED ep_status
open_tables(ep_tree *tree)
{
    tree->place_mask = 4095;
    tree->slot_mask = 4095;
    tree->place_slots = ep_array_new_zeroed(tree->place_mask + 1, sizeof *tree->place_slots);
    tree->slots = ep_array_new_zeroed(tree->slot_mask + 1, sizeof *tree->slots);
    tree->place_of_site =
        ep_array_new_zeroed(tree->facts.map->site_count + 1, sizeof *tree->place_of_site);
    tree->threads = ep_calloc(tree->facts.thread_count, sizeof *tree->threads);
    if (tree->place_slots == NULL || tree->slots == NULL || tree->place_of_site == NULL ||
        tree->threads == NULL || pair_open(&tree->children, 4096) != EP_OK ||
        pair_open(&tree->leaf_map, 4096) != EP_OK ||
        ep_tenure_clock_open(&tree->clock, tree->facts.thread_count) != EP_OK ||
        !ep_grow((void **)&tree->leaves, &tree->leaf_capacity, 1, sizeof *tree->leaves)) {
        return EP_NOMEM;
    }
    tree->leaf_count = 1;
    ep_place nowhere = {-1, -1, -1};
    uint32_t place = place_of(tree, &nowhere);
    if (place == UINT32_MAX || !ep_grow((void **)&tree->nodes, &tree->node_capacity, 1,
                                        sizeof *tree->nodes)) {
        return EP_NOMEM;
    }
    tree->nodes[0] = (ep_tree_node){.place = place, .longest = -1, .shortest = -1};
    tree->node_count = 1;
    return EP_OK;
}

static ep_status
tree_begin(ep_fold *fold, const ep_fold_facts *facts)
{
    ep_tree *tree = (ep_tree *)fold;
    tree->facts = *facts;
    tree->lock_kinds = facts->has_lock && facts->thread_count > 1 ? ep_kinds_under_lock() : 0;
    ep_status status = open_tables(tree);
    for (size_t thread = 0; thread < facts->thread_count && status == EP_OK; thread++) {
        ep_tree_thread *t = &tree->threads[thread];
        const ep_open_stack *open = facts->open_at_start ? &facts->open_at_start[thread] : NULL;
        int64_t from_ns = facts->open_from_ns != NULL ? facts->open_from_ns[thread] : 0;
        if (!ep_grow((void **)&t->frames, &t->capacity, 2, sizeof *t->frames)) {
            return EP_NOMEM;
        }
        t->frames[0].key = KEY_FLOOR;
        for (size_t i = 0; open != NULL && i < open->depth && status == EP_OK; i++) {
            status = begin_call(tree, t, open->calls[i].kind, open->calls[i].site_id, from_ns, 0, true);
        }
    }
    return status;
}

/* A slot is asked for this many allocator events before its use. */
#define PREFETCH_EVENTS 16

/* HOT, budget 12 ns an event. */
static ep_status
tree_events(ep_fold *fold, const ep_batch *batch)
{
    ep_tree *tree = (ep_tree *)fold;
    const ep_columns *columns = batch->columns;
    const ep_kind_set lock_kinds = tree->lock_kinds;
    size_t event = batch->alloc_from;

    for (size_t row = batch->from; row < batch->to; row++) {
        unsigned kind = columns->kind[row];
        const ep_kind_info *info = &ep_kinds[kind];
        int32_t thread = columns->thread[row];
        int64_t time_ns = columns->time_ns[row];
        ep_tree_thread *t = &tree->threads[thread];
        ep_status status = EP_OK;
        int64_t waited_ns = 0;
        if (ep_kinds_has(lock_kinds, kind)) {
            ep_tenure_event(&tree->clock, thread, time_ns);
            waited_ns = ep_tenure_others_ns(&tree->clock, thread);
        }
        if (info->family == EP_FAMILY_CALL && info->pairing == EP_PAIRING_OPENS) {
            status = begin_call(tree, t, kind, columns->id[row], time_ns, waited_ns, false);
        } else if (info->family == EP_FAMILY_CALL) {
            end_call(tree, t, kind, columns->id[row], time_ns, waited_ns);
        } else if (info->words == 2) {
            if (EP_LIKELY(event + PREFETCH_EVENTS < columns->alloc_count)) {
                uint64_t soon = columns->address[event + PREFETCH_EVENTS];
                __builtin_prefetch(&tree->slots[block_home(soon, tree->slot_mask)], 1);
            }
            if (info->family == EP_FAMILY_ALLOC && info->pairing == EP_PAIRING_OPENS) {
                t->moving = t->moving && !ep_kind_is(kind, EP_KIND_REALLOC);
                status = begin_block(tree, t, thread, columns, event, row);
            } else if (info->family == EP_FAMILY_FREE) {
                status = free_block(tree, t, thread, columns, event, row);
            } else if (info->family == EP_FAMILY_ALLOC) {
                status = revive_block(tree, t, columns, event, row);
            }
            event++;
        }
        if (EP_UNLIKELY(status != EP_OK)) {
            return status;
        }
        if (EP_UNLIKELY(tree->node_count > tree->max_nodes)) {
            status = shrink(tree);
            if (status != EP_OK) {
                return status;
            }
            /* What is left is open: more room, or this would be done again at once. */
            if (tree->node_count * 4 > tree->max_nodes * 3) {
                tree->max_nodes = tree->node_count * 2;
            }
        }
    }
    return EP_OK;
}

static ep_status
tree_end(ep_fold *fold)
{
    ep_tree *tree = (ep_tree *)fold;
    if (tree->clock.holder >= 0) {    /* the last tenure ends, too */
        int64_t length_ns = tree->clock.last_ns - tree->clock.start_ns;
        tree->clock.ended_ns += length_ns;
        tree->clock.own_ns[tree->clock.holder] += length_ns;
    }
    for (size_t thread = 0; thread < tree->facts.thread_count; thread++) {
        ep_tree_thread *t = &tree->threads[thread];
        int64_t waited_ns = tree->lock_kinds != 0 ? ep_tenure_others_ns(&tree->clock, (int32_t)thread)
                                                  : 0;
        const int64_t *until_ns = tree->facts.open_until_ns;
        while (t->depth > 0) {
            pop(tree, t, until_ns != NULL ? until_ns[thread] : tree->facts.length_ns, waited_ns, true);
        }
    }
    for (size_t i = 1; i < tree->leaf_count; i++) {
        touch(tree, (uint32_t)i);
    }
    for (unsigned domain = 0; domain < EP_DOMAIN_COUNT; domain++) {
        touch_domain(tree, domain);
    }
    return EP_OK;
}

static void
tree_clear(ep_fold *fold)
{
    ep_tree *tree = (ep_tree *)fold;
    for (size_t thread = 0; tree->threads != NULL && thread < tree->facts.thread_count; thread++) {
        free(tree->threads[thread].frames);
    }
    free(tree->threads);
    free(tree->nodes);
    free(tree->leaves);
    free(tree->places);
    free(tree->children.slots);
    free(tree->leaf_map.slots);
    free(tree->place_of_site);
    free(tree->place_slots);
    free(tree->slots);
    free(tree->late);
    ep_tenure_clock_clear(&tree->clock);
    *tree = (ep_tree){.fold = tree->fold, .max_nodes = tree->max_nodes};
}

static const ep_fold_type tree_type = {
    .name = "tree",
    .begin = tree_begin,
    .events = tree_events,
    .end = tree_end,
    .clear = tree_clear,
};

void
ep_tree_open(ep_tree *tree, size_t max_nodes)
{
    *tree = (ep_tree){
        .fold = {.type = &tree_type},
        .max_nodes = max_nodes != 0 ? max_nodes : EP_TREE_NODES_MAX,
        .peak_ns = -1,
        .epoch = 1,
        .clock = {.holder = -1},
    };
}
