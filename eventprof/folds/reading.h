/* Folds over a file, without its columns. However long the file is, memory holds a batch and a chunk of
 * each thread (or a section of an archive). */
#ifndef EP_READING_H
#define EP_READING_H

#include "worker.h"
#include "archive.h"
#include "decode.h"
#include "file_read.h"
#include "merged.h"
#include "mutex.h"
#include "stream.h"

/* ---- Batches of rows that a source appends ------------------------------------------------------ */

typedef struct ep_row_source ep_row_source;
struct ep_row_source {
    /* The largest number of rows that the next append() brings; 0: there are no more. */
    size_t (*room)(ep_row_source *source);
    /* Appends rows, in order of time, to columns that have room for `limit` in all. Fails: as the file. */
    EP_CHECKED ep_status (*append)(ep_row_source *source, ep_columns *columns, size_t limit);
    /* Progress, as of a stream. append() updates them. */
    size_t done, total;
};

/* The next rows of a stream that reads ahead. */
typedef enum ep_next_rows {
    EP_NEXT_NONE,
    EP_NEXT_WANTED,    /* whichever thread is free first reads the next rows */
    EP_NEXT_RUNS,      /* the second thread reads them */
    EP_NEXT_DONE,
    EP_NEXT_END        /* the second thread ends */
} ep_next_rows;

/*   columns  [ given | may be given | looked at only ]
 *            0       from           safe             count
 * A row is given once rows that are EP_PAIR_SKEW_NS later are there, or all are.
 *
 *   next     [ looked at only | appended by a second thread meanwhile ]
 * If it pays (worker.h), a second thread reads the next rows while folds are given these. It alone uses the
 * source, the builder and `next` then. Folds read the builder's map; it changes that only for ids that no
 * row of these has. */
typedef struct ep_sliding_stream {
    ep_stream stream;
    ep_row_source *source;             /* view */
    ep_functions_builder *functions;   /* view: told of every row before a fold sees it; or NULL */
    bool source_tells;                 /* ...by the source itself */
    ep_columns columns;
    size_t capacity;                   /* rows that the columns have room for */
    size_t from, safe;
    size_t block;                      /* the first allocator event at or after `from` */
    bool ended;
    bool reads_ahead;                  /* what follows is in use */
    bool has_thread;                   /* `worker` has to be joined */
    ep_worker worker;
    ep_mutex lock;              /* of `ahead` */
    pthread_cond_t changed;
    ep_next_rows ahead;
    ep_columns next;
    size_t next_capacity;
    ep_status next_status;
    bool next_ended;
} ep_sliding_stream;

void ep_sliding_stream_open(ep_sliding_stream *stream, ep_row_source *source,
                            ep_functions_builder *functions);
void ep_sliding_stream_clear(ep_sliding_stream *stream);

/* ---- A pass ------------------------------------------------------------------------------------- */

/* What is known of a recording after a pass. */
typedef struct ep_pass {
    ep_recording recording;    /* of a log */
    ep_decoded head;           /* of a log: all but the columns */
    ep_functions functions;    /* if has_functions: a fold asked for ids */
    bool has_functions;
} ep_pass;

void ep_pass_clear(ep_pass *pass);

/* Runs folds over a log that nobody writes any more. Function rows are those that the table of functions
 * has. Returns: new in *out (ep_pass_clear). Fails: as ep_file_stream_open() and the folds; EP_STATE. */
EP_CHECKED ep_status ep_fold_log(ep_file_reader *reader, bool has_lock, ep_fold *const *folds, size_t count,
                                 const ep_progress *progress, ep_pass *out, ep_error *error);

/* Like ep_fold_log(), over an archive. What else is known stays with it: ep_archive_head(). */
EP_CHECKED ep_status ep_fold_archive(ep_archive *archive, bool has_lock, ep_fold *const *folds,
                                     size_t count, const ep_progress *progress, ep_pass *out,
                                     ep_error *error);

/* Like ep_fold_log(), over the parts of a merged trace (merged.h), side by side. What else is known is the
 * trace's. */
EP_CHECKED ep_status ep_fold_merged(ep_trace *trace, bool has_lock, ep_fold *const *folds, size_t count,
                                    const ep_progress *progress, ep_pass *out, ep_error *error);

#endif
