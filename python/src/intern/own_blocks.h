/* Blocks that eventprof's own code allocates and frees.
 *
 * Blocks that our own code allocates are not recorded. But our code may free blocks of the program: an
 * attribute lookup puts a name into the interpreter's cache and drops the name that was there. If that free
 * was not recorded, the address would seem to be given out twice. So the few blocks that our code has
 * allocated since it was entered are listed, and frees of all other blocks are recorded. */
#ifndef EP_OWN_BLOCKS_H
#define EP_OWN_BLOCKS_H

#include "compat.h"

#include "log.h"

/* Around own code, on the calling thread. Pass the result of enter to leave. */
uint32_t ep_py_enter_own(void);
void ep_py_leave_own(uint32_t busy);

/* The same for code that only frees our own blocks, although they were allocated earlier. */
uint32_t ep_py_enter_ours(void);

/* For Python code outside of our package that the calling thread runs for us, not for the program: from
 * here on its calls and blocks are not recorded, but frees of the program's blocks are. False if nested
 * or without memory; then nothing has changed. Only for a short time: see ep_py_unmute(). */
EP_COLD bool ep_py_mute(void);
/* The same, but objects, and blocks of the interpreter's allocators and of NumPy, are recorded, without a
 * line. For code that runs while the program's threads run: they may free blocks that this code allocated,
 * for instance blocks that went through the interpreter's free lists. Without a record of such a block,
 * verify would take the free for a second free of an older block. */
EP_COLD bool ep_py_mute_calls(void);
/* Ends ep_py_mute() or ep_py_mute_calls(). left: called with each block of ep_py_mute() that is still live;
 * NULL: the frees of these blocks will be recorded, as those of unknown blocks. */
EP_COLD void ep_py_unmute(void (*left)(uintptr_t address));

/* HOT. In an allocator hook: whether to call the two functions below. If not, the hook does nothing. */
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
