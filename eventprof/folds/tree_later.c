/* What a part of a recording that is not the first leaves to the parts before it; see tree.h. */
#include "array.h"
#include "memory.h"
#include "tree_parts.h"

ep_status
ep_tree_later_open(ep_tree *tree)
{
    size_t threads = tree->facts.thread_count;
    ep_tree_later *later = tree->later = ep_calloc(1, sizeof *later);
    if (later == NULL) {
        return EP_NOMEM;
    }
    later->seen_mask = 1023;
    later->seen = ep_array_new_zeroed(later->seen_mask + 1, sizeof *later->seen);
    later->stack_hash = ep_calloc(threads + 1, sizeof *later->stack_hash);
    later->start_ns = ep_calloc(threads + 1, sizeof *later->start_ns);
    later->tenures = ep_calloc(tree->clocks.count, sizeof *later->tenures);
    if (later->seen == NULL || later->stack_hash == NULL || later->start_ns == NULL ||
        later->tenures == NULL) {
        return EP_NOMEM;
    }
    for (size_t process = 0; process < tree->clocks.count; process++) {
        later->tenures[process].thread = -1;
    }
    for (size_t thread = 0; thread < threads; thread++) {
        const ep_fold_facts *facts = &tree->facts;
        const ep_open_stack *open = facts->open_at_start ? &facts->open_at_start[thread] : NULL;
        for (size_t i = 0; open != NULL && i < open->depth; i++) {
            later->stack_hash[thread] =
                ep_tree_stack_hash(later->stack_hash[thread], open->calls[i].site_id, open->calls[i].kind);
        }
        later->start_ns[thread] = facts->open_from_ns != NULL ? facts->open_from_ns[thread] : 0;
    }
    return EP_OK;
}

void
ep_tree_later_clear(ep_tree *tree)
{
    ep_tree_later *later = tree->later;
    if (later != NULL) {
        free(later->owed);
        free(later->summits);
        free(later->saves);
        free(later->ended);
        free(later->seen);
        free(later->stack_hash);
        free(later->start_ns);
        free(later->tenures);
        free(later);
        tree->later = NULL;
    }
}

/* ---- Leaves ---------------------------------------------------------------------------------- */

static void
add_save(ep_tree *tree, uint32_t leaf, uint64_t epoch, uint64_t live, uint64_t blocks)
{
    ep_tree_later *later = tree->later;
    if (!ep_grow_raw((void **)&later->saves, &later->save_capacity, later->save_count + 1,
                     sizeof *later->saves)) {
        tree->failed = true;
        return;
    }
    later->saves[later->save_count++] =
        (ep_tree_save){.epoch = epoch, .live = live, .blocks = blocks, .leaf = leaf};
}

/* The first summit of that epoch or a later one; the count, if there is none. */
static size_t
summit_from(const ep_tree_later *later, uint64_t epoch)
{
    size_t low = 0, high = later->summit_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (later->summits[middle].epoch < epoch) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* `at_peak` of the leaf is of the maximum `leaf->epoch`, `live` of all maxima since. Keeps each of the two
 * if one of its maxima is a summit. */
void
ep_tree_save_leaf(ep_tree *tree, uint32_t index)
{
    ep_tree_later *later = tree->later;
    const ep_tree_leaf *leaf = &tree->leaves[index];
    size_t at = summit_from(later, leaf->epoch);
    if (at < later->summit_count && later->summits[at].epoch == leaf->epoch) {
        add_save(tree, index, leaf->epoch, leaf->at_peak, leaf->at_peak_blocks);
        at++;
    }
    if (at < later->summit_count) {
        add_save(tree, index, tree->epoch, leaf->live, leaf->live_blocks);
    }
}

/* A new leaf had no bytes at earlier summits: keeps that. */
void
ep_tree_save_new_leaf(ep_tree *tree, uint32_t index)
{
    if (tree->later->summit_count > 0) {
        add_save(tree, index, tree->epoch, 0, 0);
    }
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

static size_t
seen_slot(const ep_tree_later *later, uint64_t address)
{
    size_t at = (size_t)(ep_live_hash(address) >> 20) & later->seen_mask;
    while (later->seen[at] != 0 && later->seen[at] != address) {
        at = (at + 1) & later->seen_mask;
    }
    return at;
}

/* Whether the part meets an address for the first time; notes the address. */
static bool
see(ep_tree *tree, uint64_t address)
{
    ep_tree_later *later = tree->later;
    size_t at = seen_slot(later, address);
    if (later->seen[at] != 0 || address == 0) {
        return false;
    }
    if (later->seen_used * 2 > later->seen_mask) {
        ep_tree_later larger = {.seen_mask = later->seen_mask * 2 + 1};
        larger.seen = ep_array_new_zeroed(larger.seen_mask + 1, sizeof *larger.seen);
        if (larger.seen == NULL) {
            tree->failed = true;
            return true;
        }
        for (size_t i = 0; i <= later->seen_mask; i++) {
            if (later->seen[i] != 0) {
                larger.seen[seen_slot(&larger, later->seen[i])] = later->seen[i];
            }
        }
        free(later->seen);
        later->seen = larger.seen;
        later->seen_mask = larger.seen_mask;
        at = seen_slot(later, address);
    }
    later->seen[at] = address;
    later->seen_used++;
    return true;
}

void
ep_tree_add_summit(ep_tree *tree)
{
    ep_tree_later *later = tree->later;
    if (tree->peak_ns < 0 || (later->summit_count > 0 &&
                              later->summits[later->summit_count - 1].epoch == tree->epoch)) {
        return;
    }
    if (!ep_grow_raw((void **)&later->summits, &later->summit_capacity, later->summit_count + 1,
                     sizeof *later->summits)) {
        tree->failed = true;
        return;
    }
    ep_tree_summit summit = {
        .epoch = tree->epoch,
        .owed = later->owed_count,
        .live = tree->peak,
        .blocks = tree->peak_blocks,
        .time_ns = tree->peak_ns,
    };
    for (unsigned domain = 0; domain < EP_DOMAIN_COUNT; domain++) {
        summit.domains[domain] = tree->domain_epoch[domain] == tree->epoch
                                     ? tree->domain_at_peak[domain]
                                     : tree->domain_live[domain];
    }
    later->summits[later->summit_count++] = summit;
}

static void
add_owed(ep_tree *tree, ep_tree_owed owed)
{
    ep_tree_later *later = tree->later;
    const ep_tree_thread *t = &tree->threads[owed.thread];
    int64_t live = (int64_t)tree->live;
    if (later->owed_count >= OWED_EARLIER - 1 ||
        !ep_grow_raw((void **)&later->owed, &later->owed_capacity, later->owed_count + 1,
                     sizeof *later->owed)) {
        tree->failed = true;
        return;
    }
    owed.min = tree->bin_min;
    owed.max = tree->bin_max;
    owed.bin = tree->bin;
    owed.node = t->frames[t->depth].node;
    owed.depth = t->frames[t->depth].cut ? (uint32_t)t->depth : 0;
    owed.before_births = !t->has_birth;
    later->owed[later->owed_count++] = owed;
    tree->bins[tree->bin] = (ep_tree_bin){live, live, live};
    ep_tree_take_bin(tree);
}

void
ep_tree_owe_ending(ep_tree *tree, int32_t process)
{
    ep_tree_add_summit(tree);
    add_owed(tree, (ep_tree_owed){.address = (uint64_t)process, .debt = EP_TREE_ENDS});
}

void
ep_tree_owe(ep_tree *tree, ep_tree_owed owed)
{
    if (owed.debt == EP_TREE_FREES) {
        see(tree, owed.address);
    }
    ep_tree_add_summit(tree);
    add_owed(tree, owed);
}

void
ep_tree_claim(ep_tree *tree, uint64_t address, int32_t thread)
{
    if (see(tree, address)) {
        add_owed(tree, (ep_tree_owed){.address = address, .thread = thread, .debt = EP_TREE_CLAIMS});
    }
}

/* ---- Calls ----------------------------------------------------------------------------------- */

void
ep_tree_note_tenure(ep_tree *tree, int32_t thread, int64_t time_ns)
{
    size_t process = tree->clocks.several != NULL ? (size_t)tree->facts.thread_process[thread] : 0;
    tree->later->tenures[process] = (ep_tree_first){.time_ns = time_ns, .thread = thread};
}

void
ep_tree_note_end(ep_tree *tree, const ep_tree_thread *t, int64_t length_ns, bool cut)
{
    ep_tree_later *later = tree->later;
    if (!ep_grow_raw((void **)&later->ended, &later->ended_capacity, later->ended_count + 1,
                     sizeof *later->ended)) {
        tree->failed = true;
        return;
    }
    later->ended[later->ended_count++] = (ep_tree_ended){
        .length_ns = length_ns,
        .thread = (int32_t)(t - tree->threads),
        .cut = cut,
    };
}
