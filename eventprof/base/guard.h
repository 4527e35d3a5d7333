/* Protects files that are mapped for writing against being cut off by other programs: an access to a page
 * that is gone raises SIGBUS, which would end the program. While such a file is mapped, a handler maps
 * zeroed memory there instead, and remembers that. Other SIGBUS signals go to the handler that the program
 * had.
 *
 * It cannot help a thread that blocks SIGBUS, nor if the program later installs a handler that does not
 * call the one before it. On systems other than Linux it does nothing. */
#ifndef EP_GUARD_H
#define EP_GUARD_H

#include "types.h"

#define EP_GUARD_NONE (-1)

/* Guards all mappings, also later ones, of the file that is mapped at `at`. Returns: its number, or
 * EP_GUARD_NONE (there are too many files, or the system does not say what is mapped). */
int ep_guard_begin(const void *at);

/* Call it when nothing of the file is mapped any more. For the last file it removes the handler, if no
 * other handler was installed since. */
void ep_guard_end(int number);

/* Whether some of the file was gone. */
bool ep_guard_was_hit(int number);

/* Around fork(). The child guards the same files as the parent. */
void ep_guard_before_fork(void);
void ep_guard_after_fork(void);

#endif
