/* Blocks that eventprof's own code allocates and frees.
 *
 * Blocks that our own code allocates are not recorded. But our code may free blocks of the program: an
 * attribute lookup puts a name into the interpreter's cache and drops the name that was there. If that free
 * was not recorded, the address would seem to be given out twice. And the program may free a block that our
 * code left, such as that name. So blocks that our code allocates are listed until they are freed
 * (omitted.h); frees of all other blocks are recorded. */
#ifndef EP_OWN_BLOCKS_H
#define EP_OWN_BLOCKS_H

#include "compat.h"

#include "log.h"

/* Around own code, on the calling thread. Pass the result of enter to leave. */
uint32_t ep_py_enter_own(void);
void ep_py_leave_own(uint32_t busy);

/* Like ep_py_enter_own(), for code that only frees our own blocks, and leaves none that other code frees:
 * nothing is listed, and nothing is recorded. */
uint32_t ep_py_enter_ours(void);

/* For Python code outside of our package that the calling thread runs for us, not for the program: from
 * here on its calls and blocks are not recorded, but frees of the program's blocks are. False if nested or
 * without memory; then nothing has changed. */
EP_COLD bool ep_py_mute(void);
/* Like ep_py_mute(), but objects, and blocks of the interpreter's allocators and of NumPy, are recorded,
 * without a line. For much code that runs while the program's threads run. */
EP_COLD bool ep_py_mute_calls(void);
/* Ends ep_py_mute() or ep_py_mute_calls(). */
EP_COLD void ep_py_unmute(void);

/* HOT. In an allocator hook that records nothing now: whether to list blocks. */
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

#endif
