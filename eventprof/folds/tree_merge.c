/* Merges the trees of parts of a recording; tree.h says what the result promises. */
#include <string.h>

#include "array.h"
#include "memory.h"
#include "tree_parts.h"

#define NO_SUMMIT SIZE_MAX

/* A block that EP_TREE_ENDS, the number `owed`, has resolved. */
typedef struct ended_block {
    size_t owed;
    ep_tree_block block;
} ended_block;

typedef struct merging {
    ep_tree *into, *from;
    ep_tree_later *later;     /* of `from` */
    uint32_t *node_to;        /* of `into`, for each node of `from` */
    uint32_t *leaf_to;
    uint64_t *call_to;        /* number in `into` of each call that was open where `from` begins */
    size_t call_count;
    ep_tree_block *resolved;  /* for each of later->owed; leaf 0: nothing */
    struct ended_block *ended;    /* blocks of processes that ended in the later part, in order */
    size_t ended_count, ended_capacity;
    uint64_t gone;            /* bytes of earlier parts that `from` has freed so far; at the end the sum */
    uint64_t calls;           /* of the parts before */
} merging;

/* ---- What is open between the parts ------------------------------------------------------------ */

size_t
ep_tree_depth(const ep_tree *tree, size_t thread)
{
    return tree->threads[thread].depth;
}

void
ep_tree_stack(const ep_tree *tree, size_t thread, ep_open_call *calls)
{
    const ep_tree_thread *t = &tree->threads[thread];
    for (size_t depth = 1; depth <= t->depth; depth++) {
        calls[depth - 1] = (ep_open_call){.site_id = t->frames[depth].site, .kind = t->frames[depth].kind};
    }
}

static bool
is_continued(const merging *m)
{
    if (m->into->later != NULL || m->later == NULL ||
        m->into->facts.thread_count != m->from->facts.thread_count) {
        return false;
    }
    for (size_t thread = 0; thread < m->into->facts.thread_count; thread++) {
        const ep_tree_thread *t = &m->into->threads[thread];
        uint64_t hash = 0;
        for (size_t depth = 1; depth <= t->depth; depth++) {
            hash = ep_tree_stack_hash(hash, t->frames[depth].site, t->frames[depth].kind);
        }
        if (hash != m->later->stack_hash[thread]) {
            return false;
        }
    }
    return true;
}

/* ---- Nodes ------------------------------------------------------------------------------------- */

static bool
is_other(const ep_tree *tree, uint32_t node)
{
    return tree->places[tree->nodes[node].place].function == EP_PLACE_OTHER;
}

static void
add_node(ep_tree_node *into, const ep_tree_node *from)
{
    int64_t total = into->total + from->total, waited = into->waited + from->waited;
    ep_tree_fold_node(into, from);
    into->total = total;
    into->waited = waited;
}

static EP_CHECKED ep_status
add_nodes(merging *m)
{
    for (size_t i = 0; i < m->from->node_count; i++) {
        const ep_tree_node *node = &m->from->nodes[i];
        uint32_t to = i == 0 ? 0 : m->node_to[node->parent];
        if (i > 0 && !is_other(m->into, to)) {
            uint32_t place = ep_tree_place_of(m->into, &m->from->places[node->place]);
            to = place != UINT32_MAX ? child_of(m->into, to, place) : UINT32_MAX;
        }
        if (to == UINT32_MAX) {
            return EP_NOMEM;
        }
        m->node_to[i] = to;
        if (is_other(m->into, to)) {
            ep_tree_fold_node(&m->into->nodes[to], node);
        } else {
            add_node(&m->into->nodes[to], node);
        }
    }
    return EP_OK;
}

/* The leaf of a node, made if it is new. Fails: 0. */
static uint32_t
leaf_at(ep_tree *tree, uint32_t node, const ep_place *of)
{
    uint32_t place = ep_tree_place_of(tree, of);
    if (place == UINT32_MAX) {
        return 0;
    }
    uint32_t index = PAIR_FIND(&tree->leaf_map, tree->leaves, node, place);
    return index != 0 ? index - 1 : ep_tree_add_leaf(tree, node, place);
}

static EP_CHECKED ep_status
map_leaves(merging *m)
{
    static const ep_place other = {EP_PLACE_OTHER, -1, -1};
    m->leaf_to[0] = 0;
    for (size_t i = 1; i < m->from->leaf_count; i++) {
        const ep_tree_leaf *leaf = &m->from->leaves[i];
        uint32_t node = m->node_to[leaf->node];
        const ep_place *place = is_other(m->into, node) ? &other : &m->from->places[leaf->place];
        m->leaf_to[i] = leaf_at(m->into, node, place);
        if (m->leaf_to[i] == 0) {
            return EP_NOMEM;
        }
    }
    return EP_OK;
}

/* ---- Calls ------------------------------------------------------------------------------------- */

/* A tenure of the thread that had the lock at the end of the one part goes on in the other. */
static void
join_tenures(const merging *m, size_t process)
{
    ep_tenure_clock *into = ep_tenure_clock_of_process(&m->into->clocks, process);
    const ep_tree_first *first = &m->later->tenures[process];
    int32_t holder = into->holder;
    if (first->thread < 0) {
        return;
    }
    int64_t gap_ns = first->thread == holder ? first->time_ns - into->last_ns : 0;
    ep_tenure_clock_stop(into);
    if (holder >= 0) {
        into->ended_ns += gap_ns;
        into->own_ns[holder] += gap_ns;
    }
}

/* Call it after the calls were joined: joining needs both clocks. */
static void
add_clocks(const merging *m)
{
    for (size_t process = 0; process < m->into->clocks.count; process++) {
        ep_tenure_clock *into = ep_tenure_clock_of_process(&m->into->clocks, process);
        const ep_tenure_clock *from = ep_tenure_clock_of_process(&m->from->clocks, process);
        into->ended_ns += from->ended_ns;
        if (m->later->tenures[process].thread >= 0) {
            into->holder = from->holder;
            into->start_ns = from->start_ns;
            into->last_ns = from->last_ns;
        }
    }
    for (size_t thread = 0; thread < m->into->facts.thread_count; thread++) {
        m->into->clocks.one.own_ns[thread] += m->from->clocks.one.own_ns[thread];
    }
}

/* How long other threads of its process held the lock before the later part. */
static int64_t
others_ns(const merging *m, int32_t thread)
{
    return ep_tenure_others_ns(ep_tenure_clock_of(&m->into->clocks, thread), thread);
}

/* The innermost call that is open between the parts ended in the later part, which has it as a call that
 * was open at its start. */
static void
end_earlier_call(const merging *m, ep_tree_thread *t, const ep_tree_ended *ended, int64_t others)
{
    const ep_tree_frame *call = &t->frames[t->depth--];
    ep_tree_node *node = &m->into->nodes[call->node];
    int64_t before_ns = m->later->start_ns[ended->thread] - call->start_ns;
    int64_t waited = others - call->waited_from_ns;
    int64_t length_ns = before_ns + ended->length_ns;
    node->total += before_ns;
    node->self += before_ns - call->below_ns;
    node->waited += waited;
    node->waited_self += waited - call->waited_below_ns;
    if (ended->cut || call->cut) {
        node->cut += !call->cut;
        node->cut_ns += before_ns;
    } else {
        node->cut_ns -= ended->length_ns;
        node->longest = length_ns > node->longest ? length_ns : node->longest;
        if (node->shortest < 0 || length_ns < node->shortest) {
            node->shortest = length_ns;
        }
        if (m->into->with_lengths) {
            note_length(m->into, m->into->places[node->place].function, length_ns);
        }
    }
    t->frames[t->depth].below_ns += before_ns;
    t->frames[t->depth].waited_below_ns += waited;
}

/* The calls of a thread that are open at the end of the later part. */
static EP_CHECKED ep_status
append_calls(const merging *m, size_t thread, int64_t others)
{
    ep_tree_thread *into = &m->into->threads[thread];
    const ep_tree_thread *from = &m->from->threads[thread];
    if (from->depth + 2 > into->capacity &&
        !ep_grow_raw((void **)&into->frames, &into->capacity, from->depth + 2, sizeof *into->frames)) {
        return EP_NOMEM;
    }
    for (size_t depth = 0; depth <= into->depth; depth++) {
        into->frames[depth].below_ns += from->frames[depth].below_ns;
        into->frames[depth].waited_below_ns += from->frames[depth].waited_below_ns;
    }
    while (into->depth < from->depth) {
        ep_tree_frame call = from->frames[into->depth + 1];
        call.node = m->node_to[call.node];
        call.waited_from_ns += others;
        call.call += m->calls;
        into->frames[++into->depth] = call;
    }
    return EP_OK;
}

/* Before the calls are joined, while `into` still has those that were open between the parts. */
static void
number_calls(merging *m)
{
    size_t at = 0;
    m->call_to[at++] = 0;
    for (size_t thread = 0; thread < m->into->facts.thread_count; thread++) {
        for (size_t depth = 1; depth <= m->into->threads[thread].depth; depth++) {
            m->call_to[at++] = m->into->threads[thread].frames[depth].call;
        }
    }
    m->call_count = at;
}

static EP_CHECKED ep_status
join_calls(merging *m)
{
    for (size_t process = 0; process < m->into->clocks.count; process++) {
        join_tenures(m, process);
    }
    for (size_t i = 0; i < m->later->ended_count; i++) {
        const ep_tree_ended *ended = &m->later->ended[i];
        end_earlier_call(m, &m->into->threads[ended->thread], ended, others_ns(m, ended->thread));
    }
    for (size_t thread = 0; thread < m->into->facts.thread_count; thread++) {
        ep_status status = append_calls(m, thread, others_ns(m, (int32_t)thread));
        if (status != EP_OK) {
            return status;
        }
        m->into->threads[thread].absent_key = 0;
        m->into->threads[thread].absent_before = 0;
        m->into->thread_sums[thread].allocated += m->from->thread_sums[thread].allocated;
    }
    add_clocks(m);
    m->into->calls_begun += m->from->calls_begun;
    return EP_OK;
}

/* ---- Blocks ------------------------------------------------------------------------------------ */

static EP_CHECKED ep_status
put_block(ep_tree *tree, const ep_tree_block *block)
{
    ep_live_entry *at = ep_live_find(&tree->by_address, block->address);
    if (at->origin != 0) {
        return EP_OK;
    }
    return block_put(tree, at, block, ep_tree_find_origin(tree, block->leaf, block->owner));
}

/* Undoes a realloc_free whose realloc failed. */
static EP_CHECKED ep_status
revive(merging *m, size_t number)
{
    const ep_tree_owed *owed = &m->later->owed[number];
    ep_tree_block block = {0};
    uint32_t node = 0;
    if (owed->undone == OWED_EARLIER) {
        ep_tree_thread *t = &m->into->threads[owed->thread];
        if (t->moving && t->moving_known && t->moving_domain == owed->domain &&
            t->moving_address == owed->address) {
            block = t->moved;
            node = t->moving_node;
        }
    } else {
        block = m->resolved[owed->undone - 1];
        node = m->later->owed[owed->undone - 1].node;
    }
    if (block.leaf == 0 || ep_live_find(&m->into->by_address, block.address)->origin != 0) {
        return EP_OK;
    }
    m->resolved[number] = block;
    m->gone -= block.size;
    m->into->nodes[node].freed -= block.size;
    return put_block(m->into, &block);
}

static bool
is_temporary(const merging *m, const ep_tree_owed *owed, const ep_tree_block *block)
{
    const ep_tree_thread *t = &m->into->threads[owed->thread];
    bool brief = owed->before_births && t->has_birth && t->last_birth == block->address &&
                 OWNER_THREAD(block->owner) == (uint32_t)owed->thread;
    bool local = owed->depth > 0 && (uint32_t)t->frames[owed->depth].call == block->call;
    return brief || local;
}

/* What ep_tree_take_process() tells of. */
typedef struct ending_of {
    merging *m;
    size_t owed;
} ending_of;

static EP_CHECKED ep_status
note_ended(ep_tree *tree, const ep_tree_block *block, void *context)
{
    (void)tree;
    const ending_of *of = context;
    merging *m = of->m;
    if (!ep_grow_raw((void **)&m->ended, &m->ended_capacity, m->ended_count + 1, sizeof *m->ended)) {
        return EP_NOMEM;
    }
    m->ended[m->ended_count++] = (ended_block){of->owed, *block};
    m->gone += block->size;
    return EP_OK;
}

/* One of later->owed. */
static EP_CHECKED ep_status
resolve(merging *m, size_t number)
{
    ep_tree_owed *owed = &m->later->owed[number];
    ep_tree *into = m->into;
    ep_tree_block block;
    m->resolved[number].leaf = 0;
    if (owed->debt == EP_TREE_REVIVES) {
        return revive(m, number);
    }
    if (owed->debt == EP_TREE_ENDS) {
        return ep_tree_take_process(into, (int32_t)owed->address, note_ended, &(ending_of){m, number});
    }
    if (!block_take_of(into, owed->address, &block)) {
        return EP_OK;
    }
    m->resolved[number] = block;
    m->gone += block.size;
    if (owed->debt == EP_TREE_CLAIMS) {
        into->frees_lost++;
        into->freed_unseen += block.size;
        into->peak_is_bound = true;
        return EP_OK;
    }
    into->unknown_frees--;
    uint32_t node = m->node_to[owed->node];
    if (owed->node == 0) {
        uint32_t leaf = leaf_of(into, known_leaf(into, 0, owed->site, 0), 0, owed->site);
        if (leaf == 0) {
            return EP_NOMEM;
        }
        node = into->leaves[leaf].node;
    }
    into->nodes[node].freed += block.size;
    owed->node = node;
    if (owed->debt == EP_TREE_FREES && is_temporary(m, owed, &block)) {
        into->leaves[block.leaf].temporary += block.size;
        into->leaves[block.leaf].temporary_blocks++;
    }
    return EP_OK;
}

/* Adds the live bytes of a bin: `held` bytes of earlier parts were alive meanwhile. */
static void
add_to_bin(merging *m, size_t at, const ep_tree_bin *part, int64_t held)
{
    ep_tree_bin *bin = &m->into->bins[at];
    ep_tree_bin now = {part->min + held, part->max + held, part->last + held};
    if (at == m->into->bin) {
        now.min = bin->min < now.min ? bin->min : now.min;
        now.max = bin->max > now.max ? bin->max : now.max;
    }
    *bin = now;
}

/* Resolves all that is owed, in order; adds the bins. */
static EP_CHECKED ep_status
resolve_all(merging *m)
{
    ep_tree *into = m->into;
    int64_t held = (int64_t)into->live;
    size_t bin = into->bin;
    into->unknown_frees += m->from->unknown_frees;
    for (size_t i = 0; i < m->later->owed_count; i++) {
        const ep_tree_owed *owed = &m->later->owed[i];
        for (; bin < owed->bin; bin++) {
            add_to_bin(m, bin, &m->from->bins[bin], held);
        }
        add_to_bin(m, bin, &(ep_tree_bin){owed->min, owed->max, owed->max}, held);
        into->bin = bin;    /* the rest of the bin is added later */
        ep_status status = resolve(m, i);
        if (status != EP_OK) {
            return status;
        }
        held = (int64_t)(into->live - m->gone);
    }
    for (; bin <= m->from->bin; bin++) {
        add_to_bin(m, bin, &m->from->bins[bin], held);
    }
    if (m->from->bin >= into->bin) {
        into->bin = m->from->bin;
        into->bin_end_ns = m->from->bin_end_ns;
    }
    return EP_OK;
}

/* Whether its bytes count as freed at a maximum. Those of a claim do not, or the peak would be no upper
 * bound. */
static bool
is_gone(const merging *m, size_t number)
{
    return m->resolved[number].leaf != 0 && m->later->owed[number].debt != EP_TREE_CLAIMS;
}

/* Finds the largest maximum of the later part. True: it is the peak. */
static bool
find_peak(merging *m, size_t *found)
{
    ep_tree *into = m->into;
    uint64_t gone = 0, blocks = 0;
    size_t owed = 0, ended = 0;
    *found = NO_SUMMIT;
    for (size_t i = 0; i < m->later->summit_count; i++) {
        const ep_tree_summit *summit = &m->later->summits[i];
        for (; owed < summit->owed; owed++) {
            bool revives = m->later->owed[owed].debt == EP_TREE_REVIVES;
            if (is_gone(m, owed)) {
                gone += revives ? -m->resolved[owed].size : m->resolved[owed].size;
                blocks += revives ? (uint64_t)-1 : 1;
            }
        }
        for (; ended < m->ended_count && m->ended[ended].owed < summit->owed; ended++) {
            gone += m->ended[ended].block.size;
            blocks++;
        }
        uint64_t live = into->live - gone + summit->live;
        if ((int64_t)live > (int64_t)into->peak || into->peak_ns < 0) {
            into->peak = live;
            into->peak_blocks = into->live_blocks - blocks + summit->blocks;
            into->peak_ns = summit->time_ns;
            *found = i;
        }
    }
    return *found != NO_SUMMIT;
}

/* Sets at_peak of all leaves, of the earlier parts and the later one, to what was alive at that summit. */
static void
set_at_peak(merging *m, const ep_tree_summit *summit, ep_tree_save *saves)
{
    ep_tree *into = m->into, *from = m->from;
    for (size_t i = 1; i < into->leaf_count; i++) {
        into->leaves[i].at_peak = into->leaves[i].live;
        into->leaves[i].at_peak_blocks = into->leaves[i].live_blocks;
    }
    memcpy(into->domain_at_peak, into->domain_live, sizeof into->domain_at_peak);
    for (size_t i = 0; i < summit->owed; i++) {
        const ep_tree_block *block = &m->resolved[i];
        bool revives = m->later->owed[i].debt == EP_TREE_REVIVES;
        if (is_gone(m, i)) {
            ep_tree_leaf *leaf = &into->leaves[block->leaf];
            leaf->at_peak -= revives ? -block->size : block->size;
            leaf->at_peak_blocks -= revives ? (uint64_t)-1 : 1;
            into->domain_at_peak[OWNER_DOMAIN(block->owner)] -= revives ? -block->size : block->size;
        }
    }
    for (size_t i = 0; i < m->ended_count && m->ended[i].owed < summit->owed; i++) {
        const ep_tree_block *block = &m->ended[i].block;
        into->leaves[block->leaf].at_peak -= block->size;
        into->leaves[block->leaf].at_peak_blocks--;
        into->domain_at_peak[OWNER_DOMAIN(block->owner)] -= block->size;
    }
    for (size_t i = 1; i < from->leaf_count; i++) {
        const ep_tree_leaf *leaf = &from->leaves[i];
        bool saved = leaf->epoch >= summit->epoch;
        saves[i].live = saved ? leaf->at_peak : leaf->live;
        saves[i].blocks = saved ? leaf->at_peak_blocks : leaf->live_blocks;
    }
    /* Backwards: the earliest save that is late enough remains. */
    for (size_t i = m->later->save_count; i-- > 0;) {
        const ep_tree_save *save = &m->later->saves[i];
        if (save->epoch >= summit->epoch) {
            saves[save->leaf].live = save->live;
            saves[save->leaf].blocks = save->blocks;
        }
    }
    for (size_t i = 1; i < from->leaf_count; i++) {
        ep_tree_leaf *leaf = &into->leaves[m->leaf_to[i]];
        leaf->at_peak += saves[i].live;
        leaf->at_peak_blocks += saves[i].blocks;
    }
    for (unsigned domain = 0; domain < EP_DOMAIN_COUNT; domain++) {
        into->domain_at_peak[domain] += summit->domains[domain];
    }
}

/* Adds live blocks and bytes: those of earlier parts that were not freed, and those of the later part. */
static EP_CHECKED ep_status
add_live_figures(merging *m)
{
    ep_tree *into = m->into;
    const ep_tree *from = m->from;
    for (size_t i = 0; i < m->later->owed_count; i++) {
        const ep_tree_block *block = &m->resolved[i];
        bool revives = m->later->owed[i].debt == EP_TREE_REVIVES;
        if (block->leaf != 0) {
            uint64_t size = revives ? -block->size : block->size;
            uint64_t one = revives ? (uint64_t)-1 : 1;
            into->leaves[block->leaf].live -= size;
            into->leaves[block->leaf].live_blocks -= one;
            into->domain_live[OWNER_DOMAIN(block->owner)] -= size;
            into->live -= size;
            into->live_blocks -= one;
        }
    }
    for (size_t i = 0; i < m->ended_count; i++) {
        const ep_tree_block *block = &m->ended[i].block;
        into->leaves[block->leaf].live -= block->size;
        into->leaves[block->leaf].live_blocks--;
        into->domain_live[OWNER_DOMAIN(block->owner)] -= block->size;
        into->live -= block->size;
        into->live_blocks--;
        if (ep_tree_add_gone(into, block) != EP_OK) {
            return EP_NOMEM;
        }
    }
    for (size_t i = 1; i < from->leaf_count; i++) {
        const ep_tree_leaf *leaf = &from->leaves[i];
        ep_tree_leaf *to = &into->leaves[m->leaf_to[i]];
        to->allocated += leaf->allocated;
        to->blocks += leaf->blocks;
        to->live += leaf->live;
        to->live_blocks += leaf->live_blocks;
        to->temporary += leaf->temporary;
        to->temporary_blocks += leaf->temporary_blocks;
    }
    for (size_t i = 1; i < into->leaf_count; i++) {
        into->leaves[i].epoch = into->epoch;
    }
    for (unsigned domain = 0; domain < EP_DOMAIN_COUNT; domain++) {
        into->domain_live[domain] += from->domain_live[domain];
        into->domain_allocated[domain] += from->domain_allocated[domain];
        into->domain_epoch[domain] = into->epoch;
    }
    into->live += from->live;
    into->live_blocks += from->live_blocks;
    ep_tree_skip_endings(into, from);
    return ep_tree_merge_gone(into, from, m->leaf_to);
}

static ep_tree_block
renumbered(const merging *m, ep_tree_block block)
{
    block.leaf = m->leaf_to[block.leaf];
    block.call = block.call < m->call_count ? (uint32_t)m->call_to[block.call]
                                            : block.call + (uint32_t)m->calls;
    return block;
}

static EP_CHECKED ep_status
add_blocks(merging *m)
{
    ep_tree *into = m->into, *from = m->from;
    for (size_t i = 0; i < from->by_address.end; i++) {
        if (from->by_address.entries[i].origin != 0) {
            ep_tree_block block = renumbered(m, block_at(from, &from->by_address.entries[i]));
            if (put_block(into, &block) != EP_OK) {
                return EP_NOMEM;
            }
        }
    }
    for (size_t i = 0; i < from->late_count; i++) {
        if (!ep_grow_raw((void **)&into->late, &into->late_capacity, into->late_count + 1,
                         sizeof *into->late)) {
            return EP_NOMEM;
        }
        into->late[into->late_count++] = renumbered(m, from->late[i]);
    }
    for (size_t thread = 0; thread < into->facts.thread_count; thread++) {
        ep_tree_thread *to = &into->threads[thread];
        const ep_tree_thread *t = &from->threads[thread];
        if (t->has_birth) {
            to->has_birth = true;
            to->last_birth = t->last_birth;
        }
        if (t->moving && t->moving_owed == OWED_EARLIER) {
            continue;    /* neither half of a realloc in the part */
        }
        to->moving = t->moving;
        to->moving_known = t->moving_known;
        to->moving_domain = t->moving_domain;
        to->moving_address = t->moving_address;
        to->moving_node = m->node_to[t->moving_node];
        to->moving_owed = OWED_NONE;
        to->moved = renumbered(m, t->moved);
        if (t->moving && t->moving_owed != OWED_NONE && m->resolved[t->moving_owed - 1].leaf != 0) {
            to->moving_known = true;
            to->moving_node = m->later->owed[t->moving_owed - 1].node;
            to->moved = m->resolved[t->moving_owed - 1];
        }
    }
    into->frees_lost += from->frees_lost;
    into->freed_unseen += from->freed_unseen;
    return EP_OK;
}

/* ---- Lengths of calls -------------------------------------------------------------------------- */

static void
add_lengths(ep_tree *into, const ep_tree *from)
{
    for (size_t i = 0; into->with_lengths && i < from->length_count; i++) {
        const ep_tree_length *length = &from->lengths[i];
        uint32_t bin = length->bin;
        uint32_t index = PAIR_FIND(&into->length_map, into->lengths, (uint32_t)length->function, bin);
        if (index != 0) {
            into->lengths[index - 1].calls += length->calls;
        } else {
            ep_tree_new_length(into, length->function, bin, length->calls);
        }
    }
}

/* ---- The whole --------------------------------------------------------------------------------- */

static EP_CHECKED ep_status
merge(merging *m)
{
    ep_tree *into = m->into, *from = m->from;
    ep_tree_add_summit(from);
    if (from->failed) {
        return EP_NOMEM;
    }
    for (size_t i = 1; i < into->leaf_count; i++) {
        touch(into, (uint32_t)i);
    }
    for (unsigned domain = 0; domain < EP_DOMAIN_COUNT; domain++) {
        touch_domain(into, domain);
    }
    ep_status status = add_nodes(m);
    status = status != EP_OK ? status : map_leaves(m);
    status = status != EP_OK ? status : resolve_all(m);
    if (status != EP_OK) {
        return status;
    }
    size_t summit;
    if (find_peak(m, &summit)) {
        ep_tree_save *saves = ep_array_new(from->leaf_count, sizeof *saves);
        if (saves == NULL) {
            return EP_NOMEM;
        }
        set_at_peak(m, &m->later->summits[summit], saves);
        free(saves);
    }
    status = add_live_figures(m);
    if (status != EP_OK) {
        return status;
    }
    into->bins[into->bin].last = (int64_t)into->live;
    number_calls(m);
    status = add_blocks(m);
    status = status != EP_OK ? status : join_calls(m);
    add_lengths(into, from);
    status = status == EP_OK && into->failed ? EP_NOMEM : status;
    into->unmatched += from->unmatched;
    into->ends_unseen += from->ends_unseen;
    return status != EP_OK || into->node_count <= into->max_nodes ? status : ep_tree_shrink(into);
}

ep_status
ep_tree_merge(ep_tree *into, ep_tree *later)
{
    merging m = {
        .into = into,
        .from = later,
        .later = later->later,
        .calls = into->calls_begun,
    };
    if (!is_continued(&m)) {
        return EP_STATE;
    }
    size_t calls = 1;
    for (size_t thread = 0; thread < into->facts.thread_count; thread++) {
        calls += into->threads[thread].depth;
    }
    m.node_to = ep_array_new(later->node_count, sizeof *m.node_to);
    m.leaf_to = ep_array_new(later->leaf_count, sizeof *m.leaf_to);
    m.call_to = ep_array_new(calls, sizeof *m.call_to);
    m.resolved = ep_array_new(m.later->owed_count + 1, sizeof *m.resolved);
    bool has_memory = m.node_to != NULL && m.leaf_to != NULL && m.call_to != NULL && m.resolved != NULL;
    ep_status status = has_memory ? merge(&m) : EP_NOMEM;
    free(m.node_to);
    free(m.leaf_to);
    free(m.call_to);
    free(m.resolved);
    free(m.ended);
    return status;
}
