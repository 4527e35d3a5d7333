/* Rows of the table of events, batch by batch: those that were chosen, with what pairing adds to them.
 *
 * Memory is for a batch, the open calls and the live blocks: of an end the call that it ends, of a free the
 * size of its block. */
#ifndef EP_EVENT_ROWS_H
#define EP_EVENT_ROWS_H

#include "fold.h"
#include "live_blocks.h"
#include "trace.h"

/* Chosen rows of a batch. */
#define EP_EVENT_ROWS_BATCH ((size_t)1 << 14)

typedef struct ep_row_choice {
    int64_t from_ns, to_ns;      /* until before to_ns */
    ep_kind_set kinds;
    const uint8_t *functions;    /* function_count long, by row: whether it is chosen; NULL: all are */
    size_t function_count;
    const uint8_t *threads;      /* thread_count long; NULL: all are chosen */
    size_t thread_count;
    const uint8_t *own;          /* own_count long, by row of functions: whether it is own code, for
                                  * ep_own_row; NULL: these are not wanted */
    size_t own_count;
} ep_row_choice;

/* What is around a row of the batch. */
typedef struct ep_own_row {
    uint64_t call;    /* the innermost call: its number among those of the thread, from 1 on; 0: none */
    uint32_t site;    /* the row's, if own code called there, else that of the innermost call by own code
                       * around it; 0: none */
} ep_own_row;

struct ep_event_rows_thread;

typedef struct ep_event_rows {
    ep_fold fold;
    ep_row_choice choice;       /* view */
    /* Called with each batch: a trace of which only columns of events are known, and the number of each of
     * its rows in the whole. Views, until it returns. False: no more are wanted, and the pass ends with
     * EP_STATE. */
    bool (*take)(void *context, const ep_trace *rows, const int64_t *numbers);
    void *context;

    /* while it runs */
    bool stopped;                /* `take` said so, or no later row can be chosen */
    ep_fold_facts facts;
    ep_trace batch;
    int64_t *numbers;            /* EP_EVENT_ROWS_BATCH long */
    ep_own_row *own;             /* as long; NULL: not wanted */
    int64_t row;                 /* of the whole: the next */
    struct ep_event_rows_thread *threads;
    ep_followed_blocks blocks;
} ep_event_rows;

void ep_event_rows_open(ep_event_rows *rows);

#endif
