/* Ends of processes in the tree of several: what a process did not free is gone when it ends. These blocks
 * are in no total from then on, nor at a later peak; the tree's `live` has them again at the end, as they
 * were not freed. */
#include <string.h>

#include "memory.h"
#include "tree_parts.h"

static void
set_next(ep_tree *tree, size_t next)
{
    tree->next_ending = next;
    tree->ending_ns = next < tree->ending_count ? tree->endings[next].end_ns : INT64_MAX;
}

ep_status
ep_tree_list_endings(ep_tree *tree)
{
    const ep_fold_facts *facts = &tree->facts;
    ep_status status = ep_list_endings(facts->thread_process, facts->open_until_ns, facts->thread_count,
                                       facts->length_ns, &tree->endings, &tree->ending_count);
    set_next(tree, 0);
    return status;
}

ep_status
ep_tree_add_gone(ep_tree *tree, const ep_tree_block *block)
{
    if (!ep_grow((void **)&tree->gone, &tree->gone_capacity, tree->leaf_count, sizeof *tree->gone)) {
        return EP_NOMEM;
    }
    tree->gone[block->leaf].bytes += block->size;
    tree->gone[block->leaf].blocks++;
    tree->domain_gone[OWNER_DOMAIN(block->owner)] += block->size;
    return EP_OK;
}

static EP_CHECKED ep_status
drop(ep_tree *tree, const ep_tree_block *block, void *context)
{
    (void)context;
    ep_tree_leaf *leaf = touch(tree, block->leaf);
    leaf->live -= block->size;
    leaf->live_blocks--;
    *touch_domain(tree, OWNER_DOMAIN(block->owner)) -= block->size;
    tree->live -= block->size;
    tree->live_blocks--;
    return ep_tree_add_gone(tree, block);
}

static bool
is_of(const ep_tree *tree, const ep_tree_block *block, int32_t process)
{
    return tree->facts.thread_process[OWNER_THREAD(block->owner)] == process;
}

ep_status
ep_tree_take_process(ep_tree *tree, int32_t process, ep_tree_taker *take, void *context)
{
    ep_live_blocks *blocks = &tree->by_address;
    ep_status status = EP_OK;
    for (size_t i = 0; i < blocks->end && status == EP_OK;) {
        ep_live_entry *at = &blocks->entries[i];
        ep_tree_block block = at->origin != 0 ? block_at(tree, at) : (ep_tree_block){0};
        if (at->origin == 0 || !is_of(tree, &block, process)) {
            i++;
            continue;
        }
        ep_live_take(blocks, at);    /* a later one may be there now */
        status = take(tree, &block, context);
    }
    for (size_t i = 0; i < tree->late_count && status == EP_OK;) {
        ep_tree_block block = tree->late[i];
        if (!is_of(tree, &block, process)) {
            i++;
            continue;
        }
        tree->late[i] = tree->late[--tree->late_count];
        status = take(tree, &block, context);
    }
    return status;
}

ep_status
ep_tree_end_processes(ep_tree *tree, int64_t time_ns)
{
    while (tree->ending_ns < time_ns) {
        ep_ending ending = tree->endings[tree->next_ending];
        if (ending.end_ns >= tree->bin_end_ns) {
            ep_tree_next_bin(tree, ending.end_ns);
        }
        if (tree->later != NULL) {
            ep_tree_owe_ending(tree, ending.process);
        }
        ep_status status = ep_tree_take_process(tree, ending.process, drop, NULL);
        if (status != EP_OK) {
            return status;
        }
        int64_t live = (int64_t)tree->live;
        tree->bin_min = live < tree->bin_min ? live : tree->bin_min;
        set_next(tree, tree->next_ending + 1);
    }
    return EP_OK;
}

void
ep_tree_skip_endings(ep_tree *into, const ep_tree *later)
{
    if (later->next_ending > into->next_ending) {
        set_next(into, later->next_ending);
    }
}

void
ep_tree_bring_back(ep_tree *tree)
{
    for (size_t i = 1; i < tree->leaf_count && i < tree->gone_capacity; i++) {
        tree->leaves[i].live += tree->gone[i].bytes;
        tree->leaves[i].live_blocks += tree->gone[i].blocks;
        tree->live += tree->gone[i].bytes;
        tree->live_blocks += tree->gone[i].blocks;
    }
    for (unsigned domain = 0; domain < EP_DOMAIN_COUNT; domain++) {
        tree->domain_live[domain] += tree->domain_gone[domain];
    }
    ep_tree_forget_gone(tree);
}

void
ep_tree_forget_gone(ep_tree *tree)
{
    free(tree->gone);
    tree->gone = NULL;
    tree->gone_capacity = 0;
    memset(tree->domain_gone, 0, sizeof tree->domain_gone);
}

ep_status
ep_tree_merge_gone(ep_tree *into, const ep_tree *from, const uint32_t *leaf_to)
{
    if (from->gone == NULL) {
        return EP_OK;
    }
    if (!ep_grow((void **)&into->gone, &into->gone_capacity, into->leaf_count, sizeof *into->gone)) {
        return EP_NOMEM;
    }
    for (size_t i = 1; i < from->leaf_count && i < from->gone_capacity; i++) {
        into->gone[leaf_to[i]].bytes += from->gone[i].bytes;
        into->gone[leaf_to[i]].blocks += from->gone[i].blocks;
    }
    for (unsigned domain = 0; domain < EP_DOMAIN_COUNT; domain++) {
        into->domain_gone[domain] += from->domain_gone[domain];
    }
    return EP_OK;
}

void
ep_tree_renumber_gone(ep_tree *tree, const uint32_t *leaf_to, size_t count)
{
    /* A new number is never higher than the old one. */
    for (size_t i = 1; i < count && i < tree->gone_capacity; i++) {
        ep_tree_gone gone = tree->gone[i];
        tree->gone[i] = (ep_tree_gone){0};
        tree->gone[leaf_to[i]].bytes += gone.bytes;
        tree->gone[leaf_to[i]].blocks += gone.blocks;
    }
}
