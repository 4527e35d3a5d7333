/* Samples of the process's resident set, with the part of it that is the recorder's own. The helper thread
 * (prefault.h) takes them while a recorder of memory runs.
 *
 * There is a sample every 10 ms. The list is full after eleven minutes: then every second sample is
 * dropped, and the time between samples is doubled. */
#ifndef EP_RESIDENT_H
#define EP_RESIDENT_H

#include "types.h"

#define EP_RESIDENT_NS INT64_C(10000000)
#define EP_RESIDENT_MAX 65536

typedef struct ep_resident {
    int64_t monotonic_ns;
    int64_t bytes;              /* -1: unknown */
    int64_t own_bytes;          /* the recorder's part: its log, its tables of names; 0: unknown */
} ep_resident;

/* Measures it now, which takes some microseconds. */
ep_resident ep_resident_now(void);

/* Call it when the first recorder starts: samples are taken every 10 ms again. */
void ep_resident_begin(void);

/* Called by the helper thread. Takes a sample if it is due, into the list and into the file that gets
 * texts. Returns: ns until the next one is due. */
int64_t ep_resident_sample(void);

/* Copies the samples of an interval, in order of time. Returns: new in *out, NULL if there are none. Fails:
 * EP_NOMEM. */
EP_CHECKED ep_status ep_resident_copy(int64_t from_ns, int64_t to_ns, ep_resident **out, size_t *count);

#endif
