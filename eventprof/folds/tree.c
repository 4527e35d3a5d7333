/* The calling-context tree, made in one pass; what it is, and how the peak is found, is in tree.h. */
#include "tree.h"

#include <string.h>

#include "array.h"
#include "memory.h"
#include "summary.h"
#include "tree_parts.h"

/* ---- Kinds ----------------------------------------------------------------------------------- */

/* What an event of a kind asks for, and what else the pass needs to know of the kind: tree->work. One byte,
 * as tests of sets of kinds and reads of ep_kinds were a fifth of the instructions. */
enum {
    WORK_NONE,
    WORK_BEGIN,
    WORK_END,
    WORK_BLOCK,
    WORK_ALLOCATE,
    WORK_FREE,
    WORK_REVIVE,
    WORK_WAIT,
    WORK_MASK = 7,
    WORK_UNDER_LOCK = 8,    /* tells who holds the interpreter's lock */
    WORK_OF_C = 16,
    WORK_RAISED = 32,
    WORK_RESUMES = 64,
    WORK_MOVES = 128,       /* half of a realloc */
};

static uint8_t
action_of(const ep_kind_info *kind)
{
    bool opens = kind->pairing == EP_PAIRING_OPENS;
    if (kind->form == EP_FORM_CALL) {
        return opens ? WORK_BEGIN : WORK_END;
    }
    if (kind->words != 2) {
        return WORK_NONE;
    }
    if (kind->group == EP_GROUP_WAIT) {
        return WORK_WAIT;
    }
    switch (kind->form) {
        case EP_FORM_ALLOC:
            return opens ? WORK_ALLOCATE : WORK_REVIVE;
        case EP_FORM_FREE:
            return WORK_FREE;
        default:
            return WORK_BLOCK;    /* a record with an address, of no block */
    }
}

static uint8_t
work_of(unsigned kind, ep_kind_set lock_kinds)
{
    return (uint8_t)(action_of(&ep_kinds[kind]) |
                     (ep_kinds_has(lock_kinds, kind) ? WORK_UNDER_LOCK : 0) |
                     (ep_kinds_has(ep_kinds_c, kind) ? WORK_OF_C : 0) |
                     (ep_kinds_has(EP_KINDS_RAISED, kind) ? WORK_RAISED : 0) |
                     (kind == EP_KIND_RESUME || kind == EP_KIND_THROW ? WORK_RESUMES : 0) |
                     (ep_kind_moves(kind) ? WORK_MOVES : 0));
}

/* ---- Calls ----------------------------------------------------------------------------------- */

/* Ends the innermost call. */
static EP_INLINE void
pop(ep_tree *tree, ep_tree_thread *t, int64_t time_ns, int64_t waited_ns, bool cut)
{
    const ep_tree_frame *call = &t->frames[t->depth--];
    ep_tree_node *node = &tree->nodes[call->node];
    int64_t length_ns = time_ns - call->start_ns;
    int64_t waited = waited_ns - call->waited_from_ns;
    waited = waited < length_ns ? waited : length_ns;    /* looks at the processor time may overlap */
    node->total += length_ns;
    node->self += length_ns - call->below_ns;
    node->waited += waited;
    node->waited_self += waited - call->waited_below_ns;
    if (EP_UNLIKELY(cut || call->cut)) {
        node->cut += !call->cut;
        node->cut_ns += length_ns;
    } else {
        node->longest = length_ns > node->longest ? length_ns : node->longest;
        if (node->shortest < 0 || length_ns < node->shortest) {
            node->shortest = length_ns;
        }
        if (EP_UNLIKELY(tree->with_lengths)) {
            note_length(tree, tree->places[node->place].function, length_ns);
        }
    }
    ep_tree_frame *around = &t->frames[t->depth];    /* the floor sums up all calls of the thread */
    around->below_ns += length_ns;
    around->waited_below_ns += waited;
}

static EP_INLINE EP_CHECKED ep_status
begin_call(ep_tree *tree, ep_tree_thread *t, unsigned kind, uint32_t site, int64_t time_ns,
           int64_t waited_ns, bool before)
{
    const ep_id_map *map = tree->facts.map;
    uint32_t node = child_of_site(tree, t->frames[t->depth].node, site);
    if (EP_UNLIKELY(node == UINT32_MAX)) {
        return EP_NOMEM;
    }
    if (EP_UNLIKELY(t->depth + 2 > t->capacity)) {
        if (!ep_grow_raw((void **)&t->frames, &t->capacity, t->depth + 2, sizeof *t->frames)) {
            return EP_NOMEM;
        }
    }
    uint8_t work = tree->work[kind];
    if (EP_LIKELY(!before)) {
        *(work & WORK_RESUMES ? &tree->nodes[node].resumes : &tree->nodes[node].calls) += 1;
    }
    ep_tree_frame *call = &t->frames[++t->depth];
    call->node = node;
    call->key = ep_call_key(ep_site_function(map, site), (work & WORK_OF_C) != 0);
    call->start_ns = time_ns;
    call->below_ns = 0;
    call->waited_from_ns = waited_ns;
    call->waited_below_ns = 0;
    call->call = ++tree->calls_begun;
    call->cut = before;
    return EP_OK;
}

static uint64_t
order_of(const void *frame)
{
    return ((const ep_tree_frame *)frame)->call;
}

static bool
has_key(const void *unused, const void *frame, uintptr_t key)
{
    (void)unused;
    return (uintptr_t)((const ep_tree_frame *)frame)->key == key;
}

/* An end that does not fit the innermost call. */
static EP_COLD void
end_below_top(ep_tree *tree, ep_tree_thread *t, int32_t key, int64_t time_ns, int64_t waited_ns,
              bool raised)
{
    ep_frames frames = {&t->frames[t->depth], t->frames, sizeof *t->frames};
    const ep_tree_frame *found = ep_find_begin(&t->absent, frames, (uintptr_t)key, tree->calls_begun + 1,
                                               order_of, has_key, NULL);
    if (found == NULL) {
        tree->unmatched++;
        return;
    }
    while (&t->frames[t->depth] > found) {
        pop(tree, t, time_ns, waited_ns, true);
        tree->ends_unseen++;
    }
    tree->nodes[t->frames[t->depth].node].raised += raised;
    pop(tree, t, time_ns, waited_ns, false);
}

static EP_INLINE void
end_call(ep_tree *tree, ep_tree_thread *t, uint8_t work, uint32_t name, int64_t time_ns,
         int64_t waited_ns)
{
    const ep_id_map *map = tree->facts.map;
    int32_t key = ep_call_key(ep_name_function(map, name), (work & WORK_OF_C) != 0);
    bool raised = (work & WORK_RAISED) != 0;
    if (EP_LIKELY(t->depth > 0 && t->frames[t->depth].key == key)) {
        tree->nodes[t->frames[t->depth].node].raised += raised;
        pop(tree, t, time_ns, waited_ns, false);
    } else {
        end_below_top(tree, t, key, time_ns, waited_ns, raised);
    }
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

/* The bin that a time lies in, from `bin` on. */
static void
fill_bins(ep_tree *tree, int64_t time_ns)
{
    while (time_ns >= tree->bin_end_ns) {
        int64_t live = tree->bins[tree->bin++].last;
        tree->bins[tree->bin] = (ep_tree_bin){live, live, live};
        bool is_last = tree->bin + 1 == EP_TREE_BINS;
        tree->bin_end_ns =
            is_last ? INT64_MAX : ep_bin_start(tree->facts.length_ns, EP_TREE_BINS, tree->bin + 1);
    }
}

void
ep_tree_next_bin(ep_tree *tree, int64_t time_ns)
{
    ep_tree_keep_bin(tree);
    fill_bins(tree, time_ns);
    ep_tree_take_bin(tree);
}

/* The live bytes are more than before in this bin. Never more than the peak if not: a bin begins with live
 * bytes that were compared with the peak before. */
static __attribute__((noinline)) void
note_rise(ep_tree *tree, int64_t live, int64_t time_ns)
{
    tree->bin_max = live > tree->bin_max ? live : tree->bin_max;
    if (live > (int64_t)tree->peak || tree->peak_ns < 0) {
        tree->peak = (uint64_t)live;
        tree->peak_blocks = tree->live_blocks;
        tree->peak_ns = time_ns;
        tree->epoch++;
    }
    tree->rise = tree->bin_max;
}

static EP_INLINE void
add_live(ep_tree *tree, const ep_tree_block *block, int64_t time_ns)
{
    ep_tree_leaf *leaf = touch(tree, block->leaf);
    leaf->live += block->size;
    leaf->live_blocks++;
    *touch_domain(tree, OWNER_DOMAIN(block->owner)) += block->size;
    tree->live += block->size;
    tree->live_blocks++;
    if ((int64_t)tree->live > tree->rise) {
        note_rise(tree, (int64_t)tree->live, time_ns);
    }
}

static EP_INLINE void
take_live(ep_tree *tree, const ep_tree_block *block)
{
    ep_tree_leaf *leaf = touch(tree, block->leaf);
    leaf->live -= block->size;
    leaf->live_blocks--;
    *touch_domain(tree, OWNER_DOMAIN(block->owner)) -= block->size;
    int64_t live = (int64_t)(tree->live -= block->size);
    tree->live_blocks--;
    tree->bin_min = live < tree->bin_min ? live : tree->bin_min;
}

static EP_COLD EP_CHECKED ep_status
begin_over(ep_tree *tree, ep_live_entry *at, const ep_columns *columns, size_t event)
{
    ep_tree_block block = block_at(tree, at);
    if (!ep_live_is_freed_late(columns, event, tree->facts.thread_count)) {
        take_live(tree, &block);    /* its free was lost */
        tree->frees_lost++;
        tree->freed_unseen += block.size;
    } else {
        if (!ep_grow_raw((void **)&tree->late, &tree->late_capacity, tree->late_count + 1,
                         sizeof *tree->late)) {
            return EP_NOMEM;
        }
        tree->late[tree->late_count++] = block;
        tree->swaps_mended++;
    }
    ep_live_take(&tree->by_address, at);
    return EP_OK;
}

/* An allocator event, in registers. */
typedef struct block_event {
    uint64_t address;
    int64_t time_ns;
    int32_t thread;
    uint32_t site;
    unsigned kind;
} block_event;

static EP_INLINE EP_CHECKED ep_status
begin_block(ep_tree *tree, ep_tree_thread *t, block_event e, uint64_t size, const ep_columns *columns,
            size_t event)
{
    const ep_tree_frame *call = &t->frames[t->depth];
    const uint64_t address = e.address;
    const unsigned domain = tree->domain_of[e.kind];
    ep_tree_known_leaf *known = known_leaf(tree, call->node, e.site, domain);
    uint32_t leaf_index = leaf_of(tree, known, call->node, e.site);
    if (EP_UNLIKELY(leaf_index == 0)) {
        return EP_NOMEM;
    }
    ep_live_entry *at = ep_live_find(&tree->by_address, address);
    if (EP_UNLIKELY(at->origin != 0)) {
        if (begin_over(tree, at, columns, event) != EP_OK) {
            return EP_NOMEM;
        }
        at = ep_live_find(&tree->by_address, address);
    }
    ep_tree_block block = {
        .address = address,
        .size = size,
        .leaf = leaf_index,
        .call = (uint32_t)call->call,
        .owner = OWNER(e.thread, domain),
    };
    uint32_t origin = EP_LIKELY(known->owner == block.owner && known->origin != 0)
                          ? known->origin
                          : ep_tree_know_origin(tree, known, leaf_index, block.owner);
    if (EP_UNLIKELY(block_put(tree, at, &block, origin) != EP_OK)) {
        return EP_NOMEM;
    }
    ep_tree_leaf *leaf = &tree->leaves[leaf_index];
    t->allocated += (int64_t)size;
    tree->domain_allocated[domain] += size;
    leaf->allocated += block.size;
    leaf->blocks++;
    t->last_birth = address;
    t->has_birth = true;
    add_live(tree, &block, e.time_ns);
    return EP_OK;
}

/* The node that a free is charged to. Fails: UINT32_MAX. */
static EP_INLINE uint32_t
freeing_node(ep_tree *tree, const ep_tree_thread *t, uint32_t site)
{
    uint32_t node = t->frames[t->depth].node;
    if (EP_LIKELY(node > tree->floor_count)) {
        return node;
    }
    uint32_t leaf = leaf_of(tree, known_leaf(tree, node, site, 0), node, site);
    return leaf != 0 ? tree->leaves[leaf].node : UINT32_MAX;
}

static EP_INLINE EP_CHECKED ep_status
end_block(ep_tree *tree, ep_tree_thread *t, block_event e, const ep_tree_block *block, bool moves)
{
    uint32_t node = freeing_node(tree, t, e.site);
    if (EP_UNLIKELY(node == UINT32_MAX)) {
        return EP_NOMEM;
    }
    tree->nodes[node].freed += block->size;
    take_live(tree, block);
    const ep_tree_frame *call = &t->frames[t->depth];
    bool brief = t->has_birth && t->last_birth == block->address &&
                 OWNER(e.thread, 0) == (block->owner & ~UINT32_C(7));
    bool local = t->depth > 0 && (uint32_t)call->call == block->call;
    if ((brief || local) && !moves) {
        ep_tree_leaf *leaf = &tree->leaves[block->leaf];
        leaf->temporary += block->size;
        leaf->temporary_blocks++;
    }
    if (moves) {
        t->moving.known = true;
        t->moving_node = node;
        t->moved = *block;
    }
    return EP_OK;
}

static EP_INLINE EP_CHECKED ep_status
free_block(ep_tree *tree, ep_tree_thread *t, block_event e, bool moves)
{
    if (moves) {
        t->moving = (ep_half_realloc){true, false, ep_kinds[e.kind].domain, e.address};
        t->moving_node = 0;
        t->moved.leaf = 0;
    }
    ep_tree_block block;
    if (block_take_of(tree, e.address, &block)) {
        return end_block(tree, t, e, &block, moves);
    }
    tree->unknown_frees++;
    return EP_OK;
}

/* A realloc failed: the block that its realloc_free ended is alive again. */
static EP_COLD EP_CHECKED ep_status
revive_block(ep_tree *tree, ep_tree_thread *t, const ep_columns *columns, size_t event, size_t row)
{
    uint8_t domain = ep_kinds[columns->kind[row]].domain;
    uint64_t address = columns->address[event];
    if (!ep_half_realloc_revives(&t->moving, domain, address)) {
        return EP_OK;
    }
    ep_live_entry *at = ep_live_find(&tree->by_address, t->moved.address);
    if (at->origin != 0) {
        return EP_OK;    /* another thread has a block at the address, so the old one did end */
    }
    uint32_t origin = ep_tree_find_origin(tree, t->moved.leaf, t->moved.owner);
    if (block_put(tree, at, &t->moved, origin) != EP_OK) {
        return EP_NOMEM;
    }
    tree->nodes[t->moving_node].freed -= t->moved.size;
    add_live(tree, &t->moved, columns->time_ns[row]);
    return EP_OK;
}

/* ---- The fold -------------------------------------------------------------------------------- */

static EP_CHECKED ep_status
open_tables(ep_tree *tree)
{
    for (unsigned kind = 0; kind < EP_KIND_COUNT; kind++) {
        tree->work[kind] = work_of(kind, tree->lock_kinds);
        tree->domain_of[kind] = ep_kinds[kind].domain;
    }
    tree->place_of_site =
        ep_array_new_zeroed(tree->facts.map->site_count + 1, sizeof *tree->place_of_site);
    tree->known_children = ep_array_new(EP_TREE_KNOWN, sizeof *tree->known_children);
    tree->known_leaves = ep_array_new(EP_TREE_KNOWN, sizeof *tree->known_leaves);
    tree->threads = ep_calloc(tree->facts.thread_count, sizeof *tree->threads);
    tree->thread_sums = ep_calloc(tree->facts.thread_count, sizeof *tree->thread_sums);
    tree->bins = ep_calloc(EP_TREE_BINS, sizeof *tree->bins);
    tree->bin_end_ns = ep_bin_start(tree->facts.length_ns, EP_TREE_BINS, 1);
    if (tree->place_of_site == NULL || tree->known_children == NULL ||
        tree->known_leaves == NULL || tree->threads == NULL || tree->thread_sums == NULL ||
        tree->bins == NULL ||
        ep_hash_index_open(&tree->children, EP_TREE_FIRST_ROWS) != EP_OK ||
        ep_hash_index_open(&tree->leaf_map, EP_TREE_FIRST_ROWS) != EP_OK ||
        ep_hash_index_open(&tree->origin_map, EP_TREE_FIRST_ROWS) != EP_OK ||
        ep_live_open(&tree->by_address) != EP_OK ||
        !ep_grow((void **)&tree->origins, &tree->origin_capacity, 1, sizeof *tree->origins) ||
        (tree->with_lengths && ep_hash_index_open(&tree->length_map, EP_TREE_FIRST_ROWS) != EP_OK) ||
        ep_tenure_clocks_open(&tree->clocks, tree->facts.thread_process, tree->facts.thread_carrier,
                              tree->facts.thread_count) != EP_OK ||
        !ep_grow((void **)&tree->leaves, &tree->leaf_capacity, 1, sizeof *tree->leaves)) {
        return EP_NOMEM;
    }
    ep_tree_forget_known(tree);
    ep_tree_take_bin(tree);
    tree->leaf_count = 1;
    tree->origin_count = 1;
    tree->origin_limit = EP_TREE_ORIGINS_LEAST;
    ep_place nowhere = {-1, -1, -1};
    uint32_t place = ep_tree_place_of(tree, &nowhere);
    if (place == UINT32_MAX || !ep_grow((void **)&tree->nodes, &tree->node_capacity, 1,
                                        sizeof *tree->nodes)) {
        return EP_NOMEM;
    }
    tree->nodes[0] = (ep_tree_node){.place = place, .longest = -1, .shortest = -1};
    tree->node_count = 1;
    return tree->by_thread ? ep_tree_add_threads(tree) : EP_OK;
}

static ep_status
tree_begin(ep_fold *fold, const ep_fold_facts *facts)
{
    ep_tree *tree = (ep_tree *)fold;
    tree->facts = *facts;
    tree->lock_kinds = facts->has_lock && facts->thread_count > 1 ? ep_kinds_under_lock() : 0;
    ep_status status = open_tables(tree);
    status = status != EP_OK ? status : ep_tree_list_endings(tree);
    for (size_t thread = 0; thread < facts->thread_count && status == EP_OK; thread++) {
        ep_tree_thread *t = &tree->threads[thread];
        const ep_open_stack *open = facts->open_at_start ? &facts->open_at_start[thread] : NULL;
        int64_t from_ns = facts->open_from_ns != NULL ? facts->open_from_ns[thread] : 0;
        if (!ep_grow((void **)&t->frames, &t->capacity, 2, sizeof *t->frames)) {
            return EP_NOMEM;
        }
        t->frames[0].key = EP_KEY_FLOOR;
        t->frames[0].node = tree->by_thread ? (uint32_t)thread + 1 : 0;
        for (size_t i = 0; open != NULL && i < open->depth && status == EP_OK; i++) {
            status = begin_call(tree, t, open->calls[i].kind, open->calls[i].site_id, from_ns, 0, true);
        }
    }
    return status;
}

/* A slot is fetched into the cache this many allocator events before its use. 40 was no faster. */
#define PREFETCH_EVENTS 16

/* What each allocator event does first. It is in each of the branches on the kind: with a branch of its own
 * the processor guesses twice what comes next. Returns: the event's address. */
static EP_INLINE uint64_t
next_block(ep_tree *tree, const ep_columns *columns, size_t event, int64_t time_ns)
{
    if (EP_UNLIKELY(time_ns >= tree->bin_end_ns)) {
        ep_tree_next_bin(tree, time_ns);
    }
    if (EP_LIKELY(event + PREFETCH_EVENTS < columns->alloc_count)) {
        ep_live_expect(&tree->by_address, columns->address[event + PREFETCH_EVENTS]);
    }
    return columns->address[event];
}

/* A wait of the thread ended. What was before a call began is of the calls around it. */
static EP_CHECKED ep_status
charge_wait(ep_tree *tree, ep_tree_thread *t, unsigned what, int64_t time_ns, int64_t ns)
{
    if (!ep_grow((void **)&tree->waits, &tree->waits_capacity, tree->node_count, sizeof *tree->waits)) {
        return EP_NOMEM;
    }
    int64_t charged_ns = 0;
    size_t depth = t->depth;
    for (; depth > 0 && charged_ns < ns; depth--) {
        ep_tree_frame *call = &t->frames[depth];
        int64_t within_ns = time_ns - call->start_ns < ns ? time_ns - call->start_ns : ns;
        tree->waits[call->node].ns[what] += within_ns - charged_ns;
        call->waited_from_ns += ns - within_ns;
        charged_ns = within_ns;
    }
    tree->waits[t->frames[0].node].ns[what] += ns - charged_ns;
    return EP_OK;
}

static EP_CHECKED ep_status
take_wait(ep_tree *tree, ep_tree_thread *t, unsigned kind, int64_t time_ns, uint64_t word)
{
    if (kind == EP_KIND_WAIT_BEGIN) {
        ep_waiting_begin(&t->waiting, time_ns, word);
    } else if (kind == EP_KIND_WAIT) {
        int64_t ns = ep_waiting_end(&t->waiting, time_ns, word);
        return charge_wait(tree, t, ep_wait_what(word), time_ns, ns);
    }
    return EP_OK;
}

/* HOT, budget 12 ns an event. several: processes; a constant, so that one process pays nothing for it. */
static EP_INLINE EP_CHECKED ep_status
events_of(ep_tree *tree, const ep_batch *batch, const bool several)
{
    const ep_columns *columns = batch->columns;
    const int64_t *times_ns = columns->time_ns;    /* locals: stores below cannot change them */
    const uint8_t *kinds = columns->kind;
    const int32_t *threads = columns->thread;
    const uint32_t *ids = columns->id;
    size_t event = batch->alloc_from;

    for (size_t row = batch->from; row < batch->to; row++) {
        unsigned kind = kinds[row];
        int32_t thread = threads[row];
        int64_t time_ns = times_ns[row];
        ep_tree_thread *t = &tree->threads[thread];
        ep_status status = EP_OK;
        int64_t waited_ns = t->waiting.waited_ns;
        if (several && EP_UNLIKELY(time_ns > tree->ending_ns) &&
            ep_tree_end_processes(tree, time_ns) != EP_OK) {
            return EP_NOMEM;
        }
        uint8_t work = tree->work[kind];
        if (work & WORK_UNDER_LOCK) {
            ep_tenure_clock *clock =
                several ? ep_tenure_clock_of(&tree->clocks, thread) : &tree->clocks.one;
            ep_tenure_event(clock, thread, time_ns);
            waited_ns = ep_tenure_others_ns(clock, thread);
        }
        block_event e = {.time_ns = time_ns, .thread = thread, .site = ids[row], .kind = kind};
        switch (work & WORK_MASK) {
            case WORK_BEGIN:
                status = begin_call(tree, t, kind, ids[row], time_ns, waited_ns, false);
                break;
            case WORK_END:
                end_call(tree, t, work, ids[row], time_ns, waited_ns);
                break;
            case WORK_ALLOCATE:
                e.address = next_block(tree, columns, event, time_ns);
                t->moving.waits = t->moving.waits && (work & WORK_MOVES) == 0;
                status = begin_block(tree, t, e, (uint64_t)columns->size[event], columns, event);
                event++;
                break;
            case WORK_FREE:
                e.address = next_block(tree, columns, event, time_ns);
                status = free_block(tree, t, e, (work & WORK_MOVES) != 0);
                event++;
                break;
            case WORK_REVIVE:
                (void)next_block(tree, columns, event, time_ns);
                status = revive_block(tree, t, columns, event++, row);
                break;
            case WORK_WAIT:
                status = take_wait(tree, t, kind, time_ns, next_block(tree, columns, event, time_ns));
                event++;
                break;
            case WORK_BLOCK:
                (void)next_block(tree, columns, event, time_ns);
                event++;
                break;
            default:
                break;
        }
        if (EP_UNLIKELY(status != EP_OK)) {
            return status;
        }
        if (EP_UNLIKELY(tree->node_count > tree->max_nodes)) {
            status = ep_tree_shrink(tree);
            if (status != EP_OK) {
                return status;
            }
            /* Nodes of open calls stay. Without a higher bound the next event would shrink again. */
            if (tree->node_count * 4 > tree->max_nodes * 3) {
                tree->max_nodes = tree->node_count * 2;
            }
        }
    }
    return EP_OK;
}

static ep_status
tree_events(ep_fold *fold, const ep_batch *batch)
{
    ep_tree *tree = (ep_tree *)fold;
    return EP_LIKELY(tree->clocks.several == NULL) ? events_of(tree, batch, false)
                                                   : events_of(tree, batch, true);
}

/* Ends what is open with the window. */
static void
finish(ep_tree *tree)
{
    ep_tenure_clocks_stop(&tree->clocks);
    for (size_t thread = 0; thread < tree->facts.thread_count; thread++) {
        ep_tree_thread *t = &tree->threads[thread];
        const ep_tenure_clock *clock = ep_tenure_clock_of(&tree->clocks, (int32_t)thread);
        const int64_t *until_ns = tree->facts.open_until_ns;
        int64_t end_ns = until_ns != NULL ? until_ns[thread] : tree->facts.length_ns;
        int64_t rest_ns = ep_waiting_stop(&t->waiting, end_ns);
        if (rest_ns > 0 && charge_wait(tree, t, t->waiting.what, end_ns, rest_ns) != EP_OK) {
            tree->failed = true;
        }
        int64_t waited_ns = tree->lock_kinds != 0 ? ep_tenure_others_ns(clock, (int32_t)thread)
                                                  : t->waiting.waited_ns;
        while (t->depth > 0) {
            pop(tree, t, end_ns, waited_ns, true);
        }
        tree->thread_sums[thread].in_calls = t->frames[0].below_ns;
    }
    ep_tree_take_bin(tree);
    tree->failed = ep_tree_end_processes(tree, tree->facts.length_ns) != EP_OK || tree->failed;
    ep_tree_keep_bin(tree);
    fill_bins(tree, INT64_MAX - 1);
    for (size_t i = 1; i < tree->leaf_count; i++) {
        touch(tree, (uint32_t)i);
    }
    for (unsigned domain = 0; domain < EP_DOMAIN_COUNT; domain++) {
        touch_domain(tree, domain);
    }
    ep_tree_bring_back(tree);
}

static ep_status
tree_end(ep_fold *fold)
{
    ep_tree *tree = (ep_tree *)fold;
    ep_tree_keep_bin(tree);
    for (size_t thread = 0; thread < tree->facts.thread_count; thread++) {
        tree->thread_sums[thread].allocated = tree->threads[thread].allocated;
    }
    finish(tree);
    if (tree->failed) {
        return EP_NOMEM;
    }
    return tree->by_thread ? EP_OK : ep_tree_sum(tree);
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
    ep_hash_index_free(&tree->children);
    ep_hash_index_free(&tree->leaf_map);
    ep_hash_index_free(&tree->length_map);
    free(tree->lengths);
    free(tree->place_of_site);
    ep_hash_index_free(&tree->place_map);
    free(tree->known_children);
    free(tree->known_leaves);
    free(tree->origins);
    ep_hash_index_free(&tree->origin_map);
    ep_live_clear(&tree->by_address);
    free(tree->late);
    free(tree->endings);
    free(tree->gone);
    free(tree->waits);
    free(tree->paths);
    free(tree->path_of_leaf);
    free(tree->summed);
    ep_summary_clear(&tree->functions);
    free(tree->bins);
    free(tree->thread_sums);
    ep_tenure_clocks_clear(&tree->clocks);
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
        .clocks = {.one = {.holder = -1}},
    };
}
