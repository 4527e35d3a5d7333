/* Files that are mapped for writing, and that others may cut off meanwhile: an access to what is gone
 * raises SIGBUS, which ends a program that knows nothing of the file. While such a file is mapped, a
 * handler puts zeroed memory there instead, and remembers that. What is not about these files goes to the
 * handler that the program had.
 *
 * No help: a thread that blocks SIGBUS, and a handler that the program installs afterwards and that does
 * not call the one before it. On systems other than Linux it does nothing. */
#ifndef EP_GUARD_H
#define EP_GUARD_H

#include "types.h"

#define EP_GUARD_NONE (-1)

/* Guards all mappings of the file that is mapped at `at`, and whatever else of it is mapped later. Returns:
 * its number, or EP_GUARD_NONE (too many, or the system does not say what is mapped). */
int ep_guard_begin(const void *at);

/* Nothing of the file is mapped any more. The last one takes the handler away, if it is still ours. */
void ep_guard_end(int number);

/* Whether some of the file was gone. */
bool ep_guard_was_hit(int number);

/* Around fork(). The child has what the parent guards. */
void ep_guard_before_fork(void);
void ep_guard_after_fork(void);

#endif
