/* Shared by the files of the tree; other files include tree.h only. Functions that run for each event are
 * inline.
 * Each file answers a question of its own: what an event does (tree.c), how nodes and leaves are found and
 * made (tree_nodes.c), which are folded (tree_bound.c), what ends with a process (tree_endings.c), and what
 * that is by function (by_function.c). All work on the same rows, so they share how a row is found. */
#ifndef EP_TREE_PARTS_H
#define EP_TREE_PARTS_H

#include <string.h>

#include "tree.h"

/* ---- What runs ------------------------------------------------------------------------------- */

typedef struct ep_tree_frame {
    uint32_t node;
    int32_t key;
    int64_t start_ns;
    int64_t below_ns;           /* of the calls inside that ended */
    int64_t waited_from_ns;     /* ep_tenure_others_ns() when it began */
    int64_t waited_below_ns;
    uint64_t call;              /* number in order of start; 0: the floor */
    bool cut;                   /* open at start */
} ep_tree_frame;

/* A live block. */
typedef struct ep_tree_block {
    uint64_t address;
    uint64_t size;
    uint32_t leaf;        /* 0: there is none */
    uint32_t call;        /* low half of the number; of the call that made it */
    uint32_t owner;       /* OWNER() */
} ep_tree_block;

/* The thread that made a block, and the domain of its allocator. */
#define OWNER(thread, domain) ((uint32_t)(thread) << 3 | (uint32_t)(domain))
#define OWNER_DOMAIN(owner) ((owner) & 7)
#define OWNER_THREAD(owner) ((owner) >> 3)
_Static_assert(EP_DOMAIN_COUNT <= 8, "a domain has three bits");

typedef struct ep_tree_thread {
    ep_tree_frame *frames;    /* [0] is the floor */
    size_t depth, capacity;
    ep_absent_begin absent;
    int64_t allocated;    /* bytes */
    uint64_t last_birth;  /* address of its last allocation; a block of the thread that is there is that */
    bool has_birth;
    ep_waiting waiting;
    ep_half_realloc moving;
    uint32_t moving_node; /* that freed it */
    ep_tree_block moved;
} ep_tree_thread;

/* ---- Rows of pairs --------------------------------------------------------------------------- */

/* Nodes, leaves, lengths and origins are found by two words, with which each row begins. */
typedef struct ep_pair_rows {
    const void *first;
    size_t stride;      /* bytes */
} ep_pair_rows;

typedef struct ep_pair {
    uint32_t a, b;
} ep_pair;

static EP_INLINE ep_pair
pair_of(const void *rows, size_t row)
{
    const ep_pair_rows *in = rows;
    ep_pair pair;
    memcpy(&pair, (const char *)in->first + row * in->stride, sizeof pair);
    return pair;
}

static EP_INLINE bool
pair_is(const void *rows, size_t row, const void *key)
{
    const ep_pair *wanted = key;
    ep_pair pair = pair_of(rows, row);
    return pair.a == wanted->a && pair.b == wanted->b;
}

/* Of an index that is new: 4096 slots. */
#define EP_TREE_FIRST_ROWS 2048

/* Returns: row + 1; 0: no row has the pair. */
static EP_INLINE uint32_t
pair_find(const ep_hash_index *map, ep_pair_rows rows, uint32_t a, uint32_t b)
{
    return *ep_hash_index_slot(map, ep_hash_words(a, b), pair_is, &rows, &(ep_pair){a, b});
}

#define PAIR_FIND(map, rows, a, b) pair_find(map, (ep_pair_rows){rows, sizeof *(rows)}, a, b)

/* Adds a row whose pair is not in the map yet. The rows that were added before have their keys. */
EP_CHECKED ep_status ep_tree_pair_put(ep_hash_index *map, ep_pair_rows rows, uint32_t a, uint32_t b,
                                      size_t row);

#define PAIR_PUT(map, rows, a, b, row) \
    ep_tree_pair_put(map, (ep_pair_rows){rows, sizeof *(rows)}, a, b, row)

/* ---- Places ---------------------------------------------------------------------------------- */

/* The index of a place, made if it is new. Fails: UINT32_MAX, out of memory. */
EP_COLD uint32_t ep_tree_place_of(ep_tree *tree, const ep_place *place);

/* Fails: UINT32_MAX. */
EP_COLD uint32_t ep_tree_place_of_new_site(ep_tree *tree, uint32_t site);

static EP_INLINE uint32_t
place_of_site(ep_tree *tree, uint32_t site)
{
    if (EP_LIKELY(site < tree->facts.map->site_count && tree->place_of_site[site] != 0)) {
        return tree->place_of_site[site] - 1;
    }
    return ep_tree_place_of_new_site(tree, site);
}

/* ---- Lengths of calls ------------------------------------------------------------------------ */

/* The bin of a length, not negative. */
static inline uint32_t
length_bin(uint64_t ns)
{
    if (ns < EP_TREE_LENGTH_PARTS) {
        return (uint32_t)ns;
    }
    unsigned shift = 63 - 6 - (unsigned)__builtin_clzll(ns);    /* 2^6 parts */
    return shift * EP_TREE_LENGTH_PARTS + (uint32_t)(ns >> shift);
}
_Static_assert(EP_TREE_LENGTH_PARTS == 1 << 6, "see length_bin()");

EP_COLD void ep_tree_new_length(ep_tree *tree, int32_t function, uint32_t bin);

static inline void
note_length(ep_tree *tree, int32_t function, int64_t ns)
{
    uint32_t bin = length_bin(ns > 0 ? (uint64_t)ns : 0);
    uint32_t index = PAIR_FIND(&tree->length_map, tree->lengths, (uint32_t)function, bin);
    if (EP_LIKELY(index != 0)) {
        tree->lengths[index - 1].calls++;
    } else {
        ep_tree_new_length(tree, function, bin);
    }
}

/* ---- Nodes and leaves ------------------------------------------------------------------------ */

/* Appends a child that the node has not yet. Fails: EP_NOMEM. */
EP_COLD EP_CHECKED ep_status ep_tree_add_node(ep_tree *tree, uint32_t parent, uint32_t place);

/* Makes the nodes of threads. Fails: EP_NOMEM. */
EP_COLD EP_CHECKED ep_status ep_tree_add_threads(ep_tree *tree);

/* The child of a node, made if it is new. Fails: UINT32_MAX. */
static inline uint32_t
child_of(ep_tree *tree, uint32_t parent, uint32_t place)
{
    uint32_t index = PAIR_FIND(&tree->children, tree->nodes, parent, place);
    if (EP_UNLIKELY(index == 0)) {
        if (tree->node_count >= UINT32_MAX - 1 || ep_tree_add_node(tree, parent, place) != EP_OK) {
            return UINT32_MAX;
        }
        index = (uint32_t)tree->node_count;
    }
    return index - 1;
}

static EP_INLINE uint64_t
known_key(uint32_t node, uint32_t site)
{
    return (uint64_t)node << 32 | site;
}

static EP_INLINE size_t
known_slot(uint64_t key)
{
    return key * UINT64_C(0x9e3779b97f4a7c15) >> (64 - EP_TREE_KNOWN_BITS);
}

/* Nothing is known any more: nodes, leaves or origins have other numbers. */
void ep_tree_forget_known(ep_tree *tree);

/* As child_of(), of the place of a site. */
uint32_t ep_tree_find_child(ep_tree *tree, uint32_t parent, uint32_t site);

static EP_INLINE uint32_t
child_of_site(ep_tree *tree, uint32_t parent, uint32_t site)
{
    uint64_t key = known_key(parent, site);
    const ep_tree_known_child *known = &tree->known_children[known_slot(key)];
    return EP_LIKELY(known->key == key) ? known->child : ep_tree_find_child(tree, parent, site);
}

/* As leaf_of(), and makes the entry the leaf's. Its origin is not known. */
uint32_t ep_tree_find_leaf(ep_tree *tree, ep_tree_known_leaf *known, uint32_t node, uint32_t site);

/* Where the leaf of a node and a site is kept. A line often has blocks of two allocators in turns (the list
 * and its items), so each has an entry. */
static EP_INLINE ep_tree_known_leaf *
known_leaf(ep_tree *tree, uint32_t node, uint32_t site, unsigned domain)
{
    return &tree->known_leaves[known_slot(known_key(node, site)) ^ domain];
}

/* The leaf of an allocation or a free in a node. Fails: 0. */
static EP_INLINE uint32_t
leaf_of(ep_tree *tree, ep_tree_known_leaf *known, uint32_t node, uint32_t site)
{
    return EP_LIKELY(known->key == known_key(node, site)) ? known->leaf
                                                          : ep_tree_find_leaf(tree, known, node, site);
}

/* ---- Bins ------------------------------------------------------------------------------------ */

/* While events are read, the current bin is in the tree itself. Writes it into the bins... */
static inline void
ep_tree_keep_bin(ep_tree *tree)
{
    tree->bins[tree->bin] = (ep_tree_bin){tree->bin_min, tree->bin_max, (int64_t)tree->live};
}

/* ...and begins with what is there now. As long as there is no maximum, any live bytes are one. */
static inline void
ep_tree_take_bin(ep_tree *tree)
{
    tree->bin_min = tree->bins[tree->bin].min;
    tree->bin_max = tree->bins[tree->bin].max;
    tree->rise = tree->peak_ns < 0 ? INT64_MIN : tree->bin_max;
}

/* Before the live bytes of a leaf change. */
static EP_INLINE ep_tree_leaf *
touch(ep_tree *tree, uint32_t index)
{
    ep_tree_leaf *leaf = &tree->leaves[index];
    if (leaf->epoch != tree->epoch) {
        leaf->at_peak = leaf->live;
        leaf->at_peak_blocks = leaf->live_blocks;
        leaf->epoch = tree->epoch;
    }
    return leaf;
}

/* Before the live bytes of a domain change. */
static EP_INLINE uint64_t *
touch_domain(ep_tree *tree, unsigned domain)
{
    if (tree->domain_epoch[domain] != tree->epoch) {
        tree->domain_at_peak[domain] = tree->domain_live[domain];
        tree->domain_epoch[domain] = tree->epoch;
    }
    return &tree->domain_live[domain];
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

#define EP_TREE_ORIGINS_LEAST ((size_t)4096)    /* below, none is dropped */

/* The origin of blocks of a leaf and an owner, made if it is new. Fails: 0. */
EP_COLD uint32_t ep_tree_find_origin(ep_tree *tree, uint32_t leaf, uint32_t owner);

/* The same, and keeps it in the leaf's entry. */
uint32_t ep_tree_know_origin(ep_tree *tree, ep_tree_known_leaf *known, uint32_t leaf, uint32_t owner);

/* Adds a block at the empty entry of its address. origin: of its leaf and owner; 0: there is no memory.
 * Fails: EP_NOMEM. */
static EP_INLINE EP_CHECKED ep_status
block_put(ep_tree *tree, ep_live_entry *at, const ep_tree_block *block, uint32_t origin)
{
    if (EP_UNLIKELY(origin == 0)) {
        return EP_NOMEM;
    }
    return ep_live_put(&tree->by_address, at, block->address, block->size, origin, block->call);
}

static EP_INLINE ep_tree_block
block_at(const ep_tree *tree, const ep_live_entry *at)
{
    ep_live_block live = ep_live_at(&tree->by_address, at);
    ep_tree_origin origin = tree->origins[live.origin];
    return (ep_tree_block){live.address, live.size, origin.leaf, live.call, origin.owner};
}

/* Takes the block of an address out of the table; a block whose free was logged too late comes first.
 * False: there is none. */
static EP_INLINE bool
block_take_of(ep_tree *tree, uint64_t address, ep_tree_block *block)
{
    if (EP_UNLIKELY(tree->late_count > 0)) {
        for (size_t i = 0; i < tree->late_count; i++) {
            if (tree->late[i].address == address) {
                *block = tree->late[i];
                tree->late[i] = tree->late[--tree->late_count];
                return true;
            }
        }
    }
    ep_live_entry *at = ep_live_find(&tree->by_address, address);
    if (at->origin == 0) {
        return false;
    }
    *block = block_at(tree, at);
    ep_live_take(&tree->by_address, at);
    return true;
}

/* ---- Ends of processes ----------------------------------------------------------------------- */

/* Fails: EP_NOMEM. */
EP_COLD EP_CHECKED ep_status ep_tree_list_endings(ep_tree *tree);

/* Ends the processes whose end is before a time. Reads the table of live blocks once for each.
 * Fails: EP_NOMEM. */
EP_COLD EP_CHECKED ep_status ep_tree_end_processes(ep_tree *tree, int64_t time_ns);

EP_COLD void ep_tree_renumber_gone(ep_tree *tree, const uint32_t *leaf_to, size_t count);

/* No event follows: `live` is what was not freed. */
EP_COLD void ep_tree_bring_back(ep_tree *tree);

/* Makes the bin that a time lies in the current one. */
EP_COLD void ep_tree_next_bin(ep_tree *tree, int64_t time_ns);

/* ---- Sums by function (by_function.c) --------------------------------------------------------- */

/* What is folded: the paths of its nodes and of those that were folded before, and which leaves are not
 * final. */
typedef struct ep_tree_folding {
    ep_tree_path *paths;      /* [0] is none */
    size_t path_count;
    uint32_t *of_node, *of_leaf;    /* paths; 0: it stays */
    uint8_t *is_pending;      /* by leaf */
} ep_tree_folding;

/* Adds up what is folded: all nodes but those to keep. keep: by node; NULL: the pass has ended, and all is
 * summed. Returns through f: new, for ep_tree_folding_clear(), also on failure. Fails: EP_NOMEM. */
EP_COLD EP_CHECKED ep_status ep_tree_sum_folded(ep_tree *tree, const uint8_t *keep, ep_tree_folding *f);
void ep_tree_folding_clear(ep_tree_folding *f);

/* Keeps the paths of leaves that are not final. node_to, leaf_to: the new numbers. Fails: EP_NOMEM. */
EP_COLD EP_CHECKED ep_status ep_tree_keep_paths(ep_tree *tree, const ep_tree_folding *f,
                                                const uint32_t *node_to, const uint32_t *leaf_to);

/* The pass has ended: makes tree->functions. Fails: EP_NOMEM. */
EP_COLD EP_CHECKED ep_status ep_tree_sum(ep_tree *tree);

/* ---- The bound ------------------------------------------------------------------------------- */

/* Folds the smallest nodes into one child "other" of the nearest node that stays. */
EP_COLD EP_CHECKED ep_status ep_tree_shrink(ep_tree *tree);

#endif
