/* The events of a recording in order of time, batch by batch. */
#ifndef EP_STREAM_H
#define EP_STREAM_H

#include "fold.h"

/* Rows of a batch: few enough for the processor's cache, as each fold reads them again. */
#define EP_STREAM_ROWS ((size_t)1 << 16)

typedef struct ep_stream ep_stream;

struct ep_stream {
    /* Gives the next batch; a batch without rows is the end. The columns of the batch before are not valid
     * afterwards. Fails: EP_NOMEM, EP_IO, EP_FORMAT. */
    EP_CHECKED ep_status (*next)(ep_stream *stream, ep_batch *out);
    /* Progress, in a unit that each stream chooses. next() updates `done`. */
    size_t done, total;
};

/* Over columns in memory. View. */
typedef struct ep_column_stream {
    ep_stream stream;
    const ep_columns *columns;
    size_t row, block;    /* the next */
} ep_column_stream;

void ep_column_stream_open(ep_column_stream *stream, const ep_columns *columns);

/* Runs folds over a stream: begin, every batch, end. progress: may be NULL.
 * Fails: as the stream and the folds do; EP_STATE, asked to stop. */
EP_CHECKED ep_status ep_fold_run(ep_stream *stream, const ep_fold_facts *facts, ep_fold *const *folds,
                                 size_t count, const ep_progress *progress);

#endif
