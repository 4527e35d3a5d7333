/* What the files of the tree share. Nobody else includes this; tree.h is the interface. What each event
 * needs is inline. */
#ifndef EP_TREE_PARTS_H
#define EP_TREE_PARTS_H

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

/* A block, in a slot or out of it. */
typedef struct ep_tree_block {
    uint64_t address;
    uint64_t size;
    uint32_t leaf;        /* 0: an empty slot */
    uint32_t call;        /* low half of the number; of the call that made it */
    uint32_t birth;       /* low half of the number of the allocation */
    uint32_t owner;       /* OWNER() of tree.c */
} ep_tree_block;

typedef struct ep_tree_thread {
    ep_tree_frame *frames;    /* [0] is the floor */
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

static inline size_t
pair_home(uint32_t a, uint32_t b, size_t mask)
{
    uint64_t key = ((uint64_t)a << 32 | b) * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(key ^ key >> 29) & mask;
}

static inline ep_pair_slot *
pair_find(const ep_pair_map *map, uint32_t a, uint32_t b)
{
    size_t at = pair_home(a, b, map->mask);
    while (map->slots[at].index != 0 && (map->slots[at].a != a || map->slots[at].b != b)) {
        at = (at + 1) & map->mask;
    }
    return &map->slots[at];
}

/* A map of that capacity, a power of two. */
EP_CHECKED ep_status ep_tree_pair_open(ep_pair_map *map, size_t capacity);

/* Puts what is not there yet. */
EP_CHECKED ep_status ep_tree_pair_put(ep_pair_map *map, uint32_t a, uint32_t b, uint32_t index);

/* ---- Places ---------------------------------------------------------------------------------- */

/* The index of a place, made if it is new. Fails: UINT32_MAX, out of memory. */
EP_COLD uint32_t ep_tree_place_of(ep_tree *tree, const ep_place *place);

/* Fails: UINT32_MAX. */
EP_COLD uint32_t ep_tree_place_of_new_site(ep_tree *tree, uint32_t site);

static inline uint32_t
place_of_site(ep_tree *tree, uint32_t site)
{
    if (EP_LIKELY(site < tree->facts.map->site_count && tree->place_of_site[site] != 0)) {
        return tree->place_of_site[site] - 1;
    }
    return ep_tree_place_of_new_site(tree, site);
}

/* ---- Nodes and leaves ------------------------------------------------------------------------ */

/* Appends a child that the node has not yet. Fails: EP_NOMEM. */
EP_COLD EP_CHECKED ep_status ep_tree_add_node(ep_tree *tree, uint32_t parent, uint32_t place);

/* The child of a node, made if it is new. Fails: UINT32_MAX. */
static inline uint32_t
child_of(ep_tree *tree, uint32_t parent, uint32_t place)
{
    uint32_t index = pair_find(&tree->children, parent, place)->index;
    if (EP_LIKELY(index != 0)) {
        return index - 1;
    }
    if (tree->node_count >= UINT32_MAX - 1 || ep_tree_add_node(tree, parent, place) != EP_OK) {
        return UINT32_MAX;
    }
    return (uint32_t)tree->node_count - 1;
}

/* Fails: 0. */
EP_COLD uint32_t ep_tree_new_leaf(ep_tree *tree, uint32_t node, uint32_t site);

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
    leaf = leaf != 0 ? leaf : ep_tree_new_leaf(tree, node, site);
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
        leaf->at_peak_blocks = leaf->live_blocks;
        leaf->epoch = tree->epoch;
    }
    return leaf;
}

/* ---- The bound ------------------------------------------------------------------------------- */

/* Folds the smallest nodes into one child "other" of the nearest node that stays. */
EP_COLD EP_CHECKED ep_status ep_tree_shrink(ep_tree *tree);

#endif
