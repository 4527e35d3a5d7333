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

/* A block that was not freed before its process ended. Fails: EP_NOMEM. */
static EP_CHECKED ep_status
drop(ep_tree *tree, const ep_tree_block *block)
{
    ep_tree_leaf *leaf = touch(tree, block->leaf);
    leaf->live -= block->size;
    leaf->live_blocks--;
    *touch_domain(tree, OWNER_DOMAIN(block->owner)) -= block->size;
    tree->live -= block->size;
    tree->live_blocks--;
    if (!ep_grow((void **)&tree->gone, &tree->gone_capacity, tree->leaf_count, sizeof *tree->gone)) {
        return EP_NOMEM;
    }
    tree->gone[block->leaf].bytes += block->size;
    tree->gone[block->leaf].blocks++;
    tree->domain_gone[OWNER_DOMAIN(block->owner)] += block->size;
    return EP_OK;
}

static bool
is_of(const ep_tree *tree, const ep_tree_block *block, int32_t process)
{
    return tree->facts.thread_process[OWNER_THREAD(block->owner)] == process;
}

/* Drops all blocks of a process. Fails: EP_NOMEM. */
static EP_CHECKED ep_status
drop_process(ep_tree *tree, int32_t process)
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
        status = drop(tree, &block);
    }
    for (size_t i = 0; i < tree->late_count && status == EP_OK;) {
        ep_tree_block block = tree->late[i];
        if (!is_of(tree, &block, process)) {
            i++;
            continue;
        }
        tree->late[i] = tree->late[--tree->late_count];
        status = drop(tree, &block);
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
        ep_status status = drop_process(tree, ending.process);
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
    free(tree->gone);
    tree->gone = NULL;
    tree->gone_capacity = 0;
    memset(tree->domain_gone, 0, sizeof tree->domain_gone);
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
