/* Adds to each closing row what only its opening row knows: the call's place, the block's size. Both are
 * found in one pass over the events, without columns of the recording, for those who read each row once.
 *
 *   events   call 7   malloc 64   return f   free     -> place    7    9    7    9     (as numbers)
 *                                                        change       64       -64
 *
 * Several recordings can follow each other: places keep their numbers. */
#ifndef EP_ROWS_H
#define EP_ROWS_H

#include "fold.h"
#include "functions.h"
#include "live_blocks.h"
#include "trace.h"

/* A place is the site of a row or, of an end without a call, its name with this bit. */
#define EP_ROWS_IS_NAME (UINT32_C(1) << 31)

typedef struct ep_rows ep_rows;

struct ep_rows {
    ep_fold fold;
    /* Told of each batch. numbers: of the place of each row, from batch->from on. changes: of each
     * allocator event, from batch->alloc_from on, the bytes that it adds to what lives. Views, until it
     * returns. Fails: EP_NOMEM. */
    EP_CHECKED ep_status (*take)(ep_rows *rows, const ep_batch *batch, const uint32_t *numbers,
                                 const int64_t *changes);
    uint32_t *places;    /* index: number; in order of appearance */
    size_t place_count, place_capacity;

    /* of all recordings */
    ep_functions_builder functions;    /* which names are one function */
    struct ep_rows_id *sites;          /* index: site */
    struct ep_rows_id *names;          /* index: name */
    struct ep_rows_step *steps;        /* index: kind */
    /* of the recording that is being read */
    const ep_trace_thread *of_threads;    /* view; thread_count long */
    struct ep_rows_thread *threads;
    size_t thread_count;
    uint64_t calls_begun;
    ep_live_blocks blocks;
    struct ep_rows_suspect *suspects;
    size_t suspect_count, suspect_capacity;
    uint32_t *numbers;
    int64_t *changes;
    size_t capacity;                   /* of both */
};

/* All ids of the events must be interned already. The fold pairs calls as ep_pair_calls() and blocks as
 * ep_pair_blocks() do. So sums of all changes up to a row are the live bytes then. Returns: new, for
 * fold.type->clear(), also after a failure. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_rows_open(ep_rows *rows,
                                  ep_status (*take)(ep_rows *rows, const ep_batch *batch,
                                                    const uint32_t *numbers, const int64_t *changes));

/* Reads a trace. Of what a recorder of this process recorded no columns are made. *lost: how many of its
 * events are. error: may be NULL. Fails: as ep_trace_reach() and take(). */
EP_CHECKED ep_status ep_rows_read(ep_rows *rows, ep_trace *trace, uint64_t *lost, ep_error *error);

/* No trace has more rows: as many as its chunks have words. */
size_t ep_rows_most(const ep_trace *trace);

/* Returns: the number of a site's place, for a row that the caller adds. Fails: UINT32_MAX. */
uint32_t ep_rows_number_of_site(ep_rows *rows, uint32_t site);

#endif
