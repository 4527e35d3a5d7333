/* The room that the files of a family share: those of a program's process and of its children.
 *
 * A page of shared memory has the sum of the bytes of all files. Before a file grows by a slot of events,
 * its process adds the slot to the sum. There is no lock. What a killed process took stays counted, as its
 * file stays on the disk. */
#ifndef EP_QUOTA_H
#define EP_QUOTA_H

#include "types.h"

/* From here on the files of this process and of its forked children share the room of that page.
 * descriptor: borrowed, of the file that is the page. limit_bytes: what all files together may take; 0:
 * read it from the page, where the first process of the family wrote it. warns: for the first process,
 * whether ep_quota_tell() is called. Fails: EP_IO; EP_FORMAT, the file is not such a page. Then each file
 * of this process has its own limit alone. */
EP_CHECKED ep_status ep_quota_share(int descriptor, uint64_t limit_bytes, bool warns, ep_error *error);

/* Takes room for a file that grows by so many bytes. False: there is none. True, too, if no room is shared.
 * length_bytes: of the file, whose first 256 KiB are always granted, so that each process has a file with
 * its facts and a small ring. */
bool ep_quota_take(size_t bytes, uint64_t length_bytes);
/* Gives room back: the file became shorter, or did not grow. */
void ep_quota_give(uint64_t bytes);

/* ---- Before it is full ----------------------------------------------------------------------- */

typedef struct ep_quota_state {
    uint64_t used_bytes, limit_bytes;
    int64_t elapsed_ns;                /* since the first process began */
} ep_quota_state;

/* Warns that the room will be full within EP_QUOTA_SOON_NS at the rate so far, which is known from
 * EP_QUOTA_RATE_NS on, or that less than one part in EP_QUOTA_PARTS_LEFT of it is left. The helper thread
 * (record/prefault.h) of one of the processes calls it, once. NULL: nobody is warned. */
extern void (*ep_quota_tell)(const ep_quota_state *state);
/* CLOCK_MONOTONIC; tests set another one. */
extern int64_t (*ep_quota_clock)(void);
#define EP_QUOTA_PARTS_LEFT 4
#define EP_QUOTA_SOON_NS (INT64_C(60) * 1000000000)
/* Not sooner: a program that starts is faster, or slower, than later. */
#define EP_QUOTA_RATE_NS (INT64_C(2) * 1000000000)

/* Whether the room will be full soon at the rate so far. */
bool ep_quota_is_soon_full(const ep_quota_state *state);

/* Whether this process has to call ep_quota_tell() now; ep_quota_look() does so. */
bool ep_quota_must_tell(void);
void ep_quota_look(void);

#endif
