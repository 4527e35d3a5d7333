/* The process's resident set, sampled by the helper thread (ahead.h) while a recorder of memory runs.
 *
 * Every 10 ms; of windows longer than eleven minutes the samples thin out: when the list is full, every
 * second one goes, and half as many come. */
#ifndef EP_RESIDENT_H
#define EP_RESIDENT_H

#include "types.h"

#define EP_RESIDENT_NS INT64_C(10000000)
#define EP_RESIDENT_MAX 65536

typedef struct ep_resident {
    int64_t monotonic_ns;
    int64_t bytes;
} ep_resident;

/* No recorder ran: samples come every 10 ms again. */
void ep_resident_begin(void);

/* By the helper thread. Takes a sample if it is time to, into the list and into the file that takes
 * texts. Returns: ns to the next. */
int64_t ep_resident_sample(void);

/* Copies those of an interval, in order of time. Returns: new in *out, NULL if there are none. Fails:
 * EP_NOMEM. */
EP_CHECKED ep_status ep_resident_copy(int64_t from_ns, int64_t to_ns, ep_resident **out, size_t *count);

#endif
