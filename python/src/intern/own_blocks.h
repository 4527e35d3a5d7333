/* Code of ours that allocates, and what it frees.
 *
 * The blocks that such code makes are no events. What it frees may all the same be the program's: a lookup
 * of an attribute puts a name into the interpreter's cache, and drops the one that was there. Unrecorded,
 * that address would be given out twice. So the few blocks that were made since our own code was entered
 * are listed; the free of any other one is recorded. */
#ifndef EP_OWN_BLOCKS_H
#define EP_OWN_BLOCKS_H

#include "compat.h"

#include "log.h"

/* Around it, on the calling thread. enter returns what leave is to be given. */
uint32_t ep_py_enter_own(void);
void ep_py_leave_own(uint32_t busy);

/* The same where all that is freed is our own, though it was made another time. */
uint32_t ep_py_enter_ours(void);

/* The calling thread does for us what is none of the program's: runs Python that is not in our package.
 * No call and no block of it is an event; what it frees of the program's is. Nested, or without memory:
 * false, and nothing has changed. Not for long: a block that is kept beyond is one unknown free. */
EP_COLD bool ep_py_mute(void);
EP_COLD void ep_py_unmute(void);

/* HOT. In an allocator hook: whether to ask the two below, instead of passing through. */
static inline bool
ep_py_lists_own_blocks(const ep_log *log)
{
    return log->busy == EP_BUSY_OWN;
}

/* Around an event of the program's in the middle of our own code. */
static inline void
ep_py_begin_event(ep_log *log)
{
    log->busy = 0;
}

static inline void
ep_py_end_event(ep_log *log)
{
    log->busy = EP_BUSY_OWN;
    log->not_before = ep_clock_ticks();
}

/* A block was made; whether one that is freed is listed: it no longer is. Pure memory reads. */
EP_COLD void ep_py_list_own_block(ep_log *log, uintptr_t address);
EP_COLD bool ep_py_unlist_own_block(ep_log *log, uintptr_t address);

#endif
