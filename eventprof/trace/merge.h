/* Several traces on one time line: of the processes of one program, or of several hosts. */
#ifndef EP_MERGE_H
#define EP_MERGE_H

#include "decode.h"
#include "types.h"

/* One of the traces that are merged. Its ids are of this process's name tables. */
typedef struct ep_merge_part {
    const ep_decoded *decoded;
    int64_t offset_ns;         /* of its start, on the common time line */
    uint64_t process_id;
    const char *worker;        /* view: what a pool or a server calls the process; empty: nothing */
} ep_merge_part;

/* Addresses of different processes are different blocks: the number of the process is added to them, from
 * this bit on. */
#define EP_MERGE_ADDRESS_BITS 48
#define EP_MERGE_PARTS_MAX 65535

/* Everything but the rows; the parts need no columns. Threads of the parts one after another, named
 * "PID WORKER NAME"; resident sets summed up. Returns: new in *out (ep_decoded_clear). Fails: EP_NOMEM,
 * EP_ARGUMENT (too many processes); *out untouched. */
EP_CHECKED ep_status ep_merge_heads(const ep_merge_part *parts, size_t count, ep_decoded *out);

/* ---- Rows: of all parts in order of time, of one part in its own order ------------------------- */

/* Gives the rows of a part. */
typedef struct ep_merge_feed ep_merge_feed;
struct ep_merge_feed {
    /* The next rows of the part, in order of time; none: the end. They must stay until the next call.
     * Fails: as it likes. */
    EP_CHECKED ep_status (*more)(ep_merge_feed *feed, const ep_columns **out);
};

typedef struct ep_merger ep_merger;

/* parts: as for ep_merge_heads(); feeds: views, one a part. Returns: new in *out (ep_merger_close).
 * Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_merger_open(const ep_merge_part *parts, ep_merge_feed *const *feeds, size_t count,
                                    ep_merger **out);
/* Appends the next rows, until the columns have `limit` rows; they must have room for `limit` rows and
 * `limit` blocks. No new rows: the end. Fails: as the feeds. */
EP_CHECKED ep_status ep_merger_next(ep_merger *merger, ep_columns *to, size_t limit);
void ep_merger_close(ep_merger *merger);    /* NULL is fine */

#endif
