/* Blocks that eventprof's own code allocates and frees.
 *
 * Blocks that such code allocates are not recorded. But it may free blocks of the program: an attribute
 * lookup puts a name into the interpreter's cache and drops the name that was there. If that free was not
 * recorded, the address would seem to be given out twice. So the few blocks that were allocated since our
 * own code was entered are listed; frees of all other blocks are recorded. */
#ifndef EP_OWN_BLOCKS_H
#define EP_OWN_BLOCKS_H

#include "compat.h"

#include "log.h"

/* Around own code, on the calling thread. Pass the result of enter to leave. */
uint32_t ep_py_enter_own(void);
void ep_py_leave_own(uint32_t busy);

/* The same for code that only frees our own blocks, although they were allocated earlier. */
uint32_t ep_py_enter_ours(void);

/* The calling thread runs Python code outside of our package for us, not for the program. Its calls and
 * blocks are not recorded; frees of the program's blocks are. False if nested or without memory; then
 * nothing has changed. Only for a short time: see ep_py_unmute(). */
EP_COLD bool ep_py_mute(void);
/* The same, but its objects are recorded, and the blocks of the interpreter's allocators and of NumPy,
 * without a line. For code that runs while the program's threads run: these free blocks that it allocated,
 * for instance from the interpreter's free lists. If the block was not recorded, verify takes such a free
 * for a second free of an older block. */
EP_COLD bool ep_py_mute_calls(void);
/* Ends both. left: called with each block of ep_py_mute() that lives still; NULL: their frees will be
 * unknown. */
EP_COLD void ep_py_unmute(void (*left)(uintptr_t address));

/* HOT. In an allocator hook: whether to call the two below; otherwise the hook does nothing. */
static inline bool
ep_py_lists_own_blocks(const ep_log *log)
{
    return log->busy == EP_BUSY_OWN;
}

/* Around an event of the program within our own code. */
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

/* Lists a new block; removes a freed block from the list, and says whether it was there. They only access
 * memory. */
EP_COLD void ep_py_list_own_block(ep_log *log, uintptr_t address);
EP_COLD bool ep_py_unlist_own_block(ep_log *log, uintptr_t address);

#endif
