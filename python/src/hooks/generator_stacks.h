/* CPython 3.11.0 to 3.11.2 end by SIGSEGV when the collector runs while a profile or trace hook is in and a
 * generator is running (python/cpython issue 101975, mended in 3.11.3). Told of a function's entry, the
 * interpreter leaves the frame's `stacktop` as it was then. It should be -1 while the frame runs: the
 * collector visits all slots of the stack below `stacktop`, and the frame has popped some of them since.
 *
 * While a hook of ours is in, a builtin in gc.callbacks sets `stacktop` right before each collection. On
 * other releases nothing is put in. Limitation: generators that run in a greenlet which is switched out are
 * not reached. */
#ifndef EP_GENERATOR_STACKS_H
#define EP_GENERATOR_STACKS_H

#include "compat.h"

/* Who has a hook in. */
enum {
    EP_STACKS_PROFILE = 1,
    EP_STACKS_TRACE = 2,
};

#if EP_GENERATOR_STACKS_LIE

/* True on the releases that have the fault. Decided when it runs: headers may be of another release. */
static inline bool
ep_py_generator_stacks_are_wrong(void)
{
    return Py_Version < 0x030B0300;
}

/* Before `user` puts a hook in. GIL held. Fails: -1, exception set, nothing changed. */
int ep_py_generator_stacks_watch(unsigned user);

/* After `user` took its hook out. GIL held. */
void ep_py_generator_stacks_leave(unsigned user);

#else

static inline int
ep_py_generator_stacks_watch(unsigned user)
{
    (void)user;
    return 0;
}

static inline void
ep_py_generator_stacks_leave(unsigned user)
{
    (void)user;
}

#endif

#endif
