/* Blocks that an allocator takes from the allocator below it for itself.
 *
 * OBJ and MEM take large blocks from RAW; the hook of RAW passes those through, because the block belongs
 * to the outermost domain. But they take their own tables from RAW, too: the list of arenas, and the nodes
 * of the tree that finds an arena. Nobody asked for these blocks, so they are not recorded, either. The
 * tables of a sub-interpreter are freed at its end, from 3.14 on, outside of any allocator. Without this
 * list each of them gave 3 to 5 frees of unknown blocks, or of blocks that seemed to be freed already. The
 * main interpreter's tables are never freed while something is recorded, and are not listed. */
#ifndef EP_INNER_BLOCKS_H
#define EP_INNER_BLOCKS_H

#include "compat.h"

#include "log.h"

/* What a debugging allocator adds to a block, and more. The smallest table has 768 bytes, and is made for
 * blocks of up to 512. */
#define EP_INNER_SLACK 64

/* How many are listed. */
extern EP_HIDDEN _Atomic uint32_t ep_inner_count;

/* In the hook of an allocator that is called by another one: whether the block is for that allocator
 * itself, which is asked for less (log->asked). */
static inline bool
ep_inner_is(const ep_log *log, uint64_t bytes)
{
    return EP_UNLIKELY(bytes > log->asked + EP_INNER_SLACK);
}

static inline bool
ep_inner_any(void)
{
    return EP_UNLIKELY(atomic_load_explicit(&ep_inner_count, memory_order_relaxed) != 0);
}

/* Lists a block of a sub-interpreter's allocator; within: the domains around it, bits, or 0 if there is no
 * record of it. If the list is full, its free will be recorded, as one of an unknown block. They only
 * access memory, so allocator hooks may call them; any thread may. */
EP_COLD void ep_inner_list(const void *block, uint32_t within);

/* Whether the block was listed; it no longer is. within: may be NULL. */
EP_COLD bool ep_inner_unlist(const void *block, uint32_t *within);

/* Nothing is listed: before the first block is recorded. */
void ep_inner_clear(void);

#endif
