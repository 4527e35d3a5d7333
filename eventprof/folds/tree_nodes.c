/* The nodes, leaves and places of the tree: the cold halves, which make them. */
#include <string.h>

#include "array.h"
#include "memory.h"
#include "tree_parts.h"

static uint64_t
hash_of_pair(const void *rows, size_t row)
{
    ep_pair pair = pair_of(rows, row);
    return ep_hash_words(pair.a, pair.b);
}

ep_status
ep_tree_pair_put(ep_hash_index *map, ep_pair_rows rows, uint32_t a, uint32_t b, size_t row)
{
    if (!ep_hash_index_reserve(map, hash_of_pair, &rows)) {
        return EP_NOMEM;
    }
    ep_pair pair = {a, b};
    ep_hash_index_add(map, ep_hash_index_slot(map, ep_hash_words(a, b), pair_is, &rows, &pair), row);
    return EP_OK;
}

static uint64_t
hash_of_place(const void *places, size_t row)
{
    const ep_place *place = (const ep_place *)places + row;
    uint64_t hash = ((uint64_t)(uint32_t)place->function << 32 | (uint32_t)place->line) *
                        UINT64_C(0x9e3779b97f4a7c15) ^
                    (uint64_t)(uint32_t)place->caller * UINT64_C(0xc2b2ae3d27d4eb4f);
    return hash ^ hash >> 29;
}

static bool
is_place(const void *places, size_t row, const void *key)
{
    const ep_place *place = (const ep_place *)places + row, *wanted = key;
    return place->function == wanted->function && place->caller == wanted->caller &&
           place->line == wanted->line;
}

uint32_t
ep_tree_place_of(ep_tree *tree, const ep_place *place)
{
    if (!ep_hash_index_reserve(&tree->place_map, hash_of_place, tree->places)) {
        return UINT32_MAX;
    }
    uint32_t *slot =
        ep_hash_index_slot(&tree->place_map, hash_of_place(place, 0), is_place, tree->places, place);
    if (*slot == 0) {
        if (!ep_grow_raw((void **)&tree->places, &tree->place_capacity, tree->place_count + 1,
                         sizeof *tree->places)) {
            return UINT32_MAX;
        }
        tree->places[tree->place_count] = *place;
        ep_hash_index_add(&tree->place_map, slot, tree->place_count++);
    }
    return *slot - 1;
}

uint32_t
ep_tree_place_of_new_site(ep_tree *tree, uint32_t site)
{
    const ep_id_map *map = tree->facts.map;
    ep_place place = {-1, -1, -1};
    if (site < map->site_count) {
        place = (ep_place){map->site_function[site], map->site_caller[site], map->site_line[site]};
    }
    uint32_t found = ep_tree_place_of(tree, &place);
    if (found != UINT32_MAX && site < map->site_count) {
        tree->place_of_site[site] = found + 1;
    }
    return found;
}

void
ep_tree_new_length(ep_tree *tree, int32_t function, uint32_t bin)
{
    unsigned shift = bin < 2 * EP_TREE_LENGTH_PARTS ? 0 : bin / EP_TREE_LENGTH_PARTS - 1;
    uint64_t part = bin - (uint64_t)shift * EP_TREE_LENGTH_PARTS;
    if (!ep_grow_raw((void **)&tree->lengths, &tree->length_capacity, tree->length_count + 1,
                     sizeof *tree->lengths) ||
        PAIR_PUT(&tree->length_map, tree->lengths, (uint32_t)function, bin,
                 tree->length_count) != EP_OK) {
        tree->failed = true;
        return;
    }
    tree->lengths[tree->length_count++] = (ep_tree_length){
        .low_ns = (int64_t)(part << shift),
        .high_ns = (int64_t)(((part + 1) << shift) - 1),
        .calls = 1,
        .function = function,
        .bin = bin,
    };
}

ep_status
ep_tree_add_node(ep_tree *tree, uint32_t parent, uint32_t place)
{
    if (!ep_grow_raw((void **)&tree->nodes, &tree->node_capacity, tree->node_count + 1,
                     sizeof *tree->nodes) ||
        PAIR_PUT(&tree->children, tree->nodes, parent, place, tree->node_count) != EP_OK) {
        return EP_NOMEM;
    }
    tree->nodes[tree->node_count++] =
        (ep_tree_node){.parent = parent, .place = place, .longest = -1, .shortest = -1};
    return EP_OK;
}

ep_status
ep_tree_add_threads(ep_tree *tree)
{
    ep_status status = EP_OK;
    for (size_t thread = 0; thread < tree->facts.thread_count && status == EP_OK; thread++) {
        ep_place place = {EP_PLACE_THREAD, -1, (int32_t)thread};
        uint32_t at = ep_tree_place_of(tree, &place);
        status = at != UINT32_MAX ? ep_tree_add_node(tree, 0, at) : EP_NOMEM;
    }
    tree->floor_count = (uint32_t)tree->facts.thread_count;
    tree->max_nodes = SIZE_MAX;
    return status;
}

/* Appends a leaf that the node has not yet. Fails: 0. */
static EP_COLD uint32_t
add_leaf(ep_tree *tree, uint32_t node, uint32_t place)
{
    if (tree->leaf_count >= UINT32_MAX - 1 ||
        !ep_grow_raw((void **)&tree->leaves, &tree->leaf_capacity, tree->leaf_count + 1,
                     sizeof *tree->leaves) ||
        PAIR_PUT(&tree->leaf_map, tree->leaves, node, place, tree->leaf_count) != EP_OK) {
        return 0;
    }
    uint32_t index = (uint32_t)tree->leaf_count++;
    tree->leaves[index] = (ep_tree_leaf){.node = node, .place = place, .epoch = tree->epoch};
    return index;
}

void
ep_tree_forget_known(ep_tree *tree)
{
    memset(tree->known_children, 0xff, EP_TREE_KNOWN * sizeof *tree->known_children);
    memset(tree->known_leaves, 0xff, EP_TREE_KNOWN * sizeof *tree->known_leaves);
}

uint32_t
ep_tree_find_child(ep_tree *tree, uint32_t parent, uint32_t site)
{
    uint32_t place = place_of_site(tree, site);
    uint32_t node = place != UINT32_MAX ? child_of(tree, parent, place) : UINT32_MAX;
    if (EP_LIKELY(node != UINT32_MAX)) {
        uint64_t key = known_key(parent, site);
        tree->known_children[known_slot(key)] = (ep_tree_known_child){key, node};
    }
    return node;
}

/* Fails: 0. */
static uint32_t
find_leaf(ep_tree *tree, uint32_t node, uint32_t site)
{
    uint32_t place = place_of_site(tree, site);
    if (place == UINT32_MAX) {
        return 0;
    }
    if (node <= tree->floor_count) {
        /* Outside all calls: the function that was executing has a node of its own. */
        ep_place of_function = {tree->places[place].function, -1, tree->by_thread ? EP_LINE_OUTSIDE : -1};
        uint32_t at = ep_tree_place_of(tree, &of_function);
        node = at != UINT32_MAX ? child_of(tree, node, at) : UINT32_MAX;
        if (node == UINT32_MAX) {
            return 0;
        }
    }
    uint32_t index = PAIR_FIND(&tree->leaf_map, tree->leaves, node, place);
    if (index != 0) {
        return index - 1;
    }
    return add_leaf(tree, node, place);
}

uint32_t
ep_tree_find_leaf(ep_tree *tree, ep_tree_known_leaf *known, uint32_t node, uint32_t site)
{
    uint32_t leaf = find_leaf(tree, node, site);
    if (EP_LIKELY(leaf != 0)) {
        *known = (ep_tree_known_leaf){.key = known_key(node, site), .leaf = leaf};
    }
    return leaf;
}

/* Gives the origins that live blocks have new numbers from 1 on. *count: how many there are. */
static void
number_origins(ep_tree *tree, uint32_t *to, size_t *count)
{
    ep_live_blocks *blocks = &tree->by_address;
    *count = 1;
    for (size_t i = 0; i < blocks->end; i++) {
        uint32_t origin = blocks->entries[i].origin;
        if (origin != 0) {
            to[origin] = to[origin] != 0 ? to[origin] : (uint32_t)(*count)++;
            blocks->entries[i].origin = to[origin];
        }
    }
}

/* Drops the origins that no live block has. Fails: EP_NOMEM, nothing has changed. */
static EP_CHECKED ep_status
drop_origins(ep_tree *tree)
{
    uint32_t *to = ep_array_new_zeroed(tree->origin_count, sizeof *to);
    ep_tree_origin *kept = ep_array_new(tree->origin_count, sizeof *kept);
    if (to == NULL || kept == NULL) {
        free(to);
        free(kept);
        return EP_NOMEM;
    }
    size_t count;
    number_origins(tree, to, &count);
    kept[0] = tree->origins[0];
    for (size_t i = 1; i < tree->origin_count; i++) {
        if (to[i] != 0) {
            kept[to[i]] = tree->origins[i];
        }
    }
    memcpy(tree->origins, kept, count * sizeof *kept);
    tree->origin_count = count;
    free(to);
    free(kept);
    ep_hash_index_empty(&tree->origin_map);
    ep_pair_rows rows = {tree->origins, sizeof *tree->origins};
    for (size_t i = 1; i < count; i++) {
        ep_pair pair = pair_of(&rows, i);
        uint64_t hash = ep_hash_words(pair.a, pair.b);
        uint32_t *slot = ep_hash_index_slot(&tree->origin_map, hash, pair_is, &rows, &pair);
        if (*slot == 0) {
            ep_hash_index_add(&tree->origin_map, slot, i);    /* there is room: no more than before */
        }
    }
    ep_tree_forget_known(tree);
    /* All live blocks and leaves are read each time; so the next time is as much later. */
    size_t limit = 2 * count, work = (tree->by_address.end + tree->leaf_count) / 16;
    limit = work > limit ? work : limit;
    tree->origin_limit = limit > EP_TREE_ORIGINS_LEAST ? limit : EP_TREE_ORIGINS_LEAST;
    return EP_OK;
}

uint32_t
ep_tree_find_origin(ep_tree *tree, uint32_t leaf, uint32_t owner)
{
    uint32_t index = PAIR_FIND(&tree->origin_map, tree->origins, leaf, owner);
    bool is_full = index == 0 && tree->origin_count >= tree->origin_limit;
    if (EP_UNLIKELY(is_full && drop_origins(tree) != EP_OK)) {
        return 0;
    }
    size_t row = tree->origin_count;
    if (index != 0) {
        row = index - 1;
    } else if (row >= UINT32_MAX - 1 ||
               !ep_grow_raw((void **)&tree->origins, &tree->origin_capacity, row + 1,
                            sizeof *tree->origins) ||
               PAIR_PUT(&tree->origin_map, tree->origins, leaf, owner, row) != EP_OK) {
        return 0;
    } else {
        tree->origins[row] = (ep_tree_origin){leaf, owner};
        tree->origin_count++;
    }
    return (uint32_t)row;
}

uint32_t
ep_tree_know_origin(ep_tree *tree, ep_tree_known_leaf *known, uint32_t leaf, uint32_t owner)
{
    uint32_t origin = ep_tree_find_origin(tree, leaf, owner);    /* may forget the entry */
    known->owner = owner;
    known->origin = origin;
    return origin;
}
