/* Where the processes of a trace of several end. What one has not freed by then is not alive any more: the
 * system has its memory back. */
#ifndef EP_ENDINGS_H
#define EP_ENDINGS_H

#include "pair.h"

typedef struct ep_ending {
    int64_t end_ns;
    int32_t process;
} ep_ending;

/* The processes that end before the trace does, in order of time; none if thread_process or until_ns is
 * NULL. A process ends with the last of its threads. thread_process, until_ns: thread_count long.
 * Returns: new in *out (free), and how many. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_list_endings(const int32_t *thread_process, const int64_t *until_ns,
                                     size_t thread_count, int64_t length_ns, ep_ending **out,
                                     size_t *count);

/* Sets what blocks know of the ends of their processes. The blocks are paired. Fails: EP_NOMEM; the blocks
 * own what was set. */
EP_CHECKED ep_status ep_blocks_find_gone(ep_blocks *blocks);

/* The ending that gone[number] belongs to; NULL: not so many are gone. */
const ep_block_ending *ep_blocks_ending_of(const ep_blocks *blocks, size_t number);

/* The first ns at which a block is gone with its process, which had not freed it; -1: it was freed, or its
 * process ended last. */
int64_t ep_block_gone_ns(const ep_blocks *blocks, size_t block);

#endif
