/* A trace of several traces on one time line, for instance of the processes of a program. Its parts are
 * read side by side, in order of time: a chunk of each thread of a log, a section of an archive. */
#ifndef EP_MERGED_H
#define EP_MERGED_H

#include "format.h"
#include "trace.h"
#include "types.h"

typedef struct ep_merged_part {
    ep_trace *trace;           /* view: it must live until the events of the whole are read, or the whole is
                                * cleared; nobody else may work on it while somebody works on the whole */
    int64_t offset_ns;         /* of its start, on the common time line; one is 0, none is less */
    uint64_t process_id;
    char worker[EP_FILE_WORKER_BYTES];    /* what a pool or a server calls the process; empty: nothing */
} ep_merged_part;

/* Makes *out a trace of these parts. A part that occurs twice, or was made by this function, must have its
 * columns (EP_STEP_DECODED). Rows, threads and addresses: merge.h. Returns: new in *out (ep_trace_clear).
 * Fails: EP_NOMEM, EP_ARGUMENT (too many parts). */
EP_CHECKED ep_status ep_trace_merge(const ep_merged_part *parts, size_t count, ep_trace *out);

/* Whether it is of parts whose events are not read into columns of the whole. */
bool ep_trace_is_merged(const ep_trace *trace);

/* ---- For folds (folds/of_trace.h): batch by batch ---------------------------------------------- */

typedef struct ep_merged_stream ep_merged_stream;

/* trace: ep_trace_is_merged(). A part whose events cannot be read in order (its program still writes, or a
 * filter applies) gets its columns. Returns: new in *out (ep_merged_stream_close). Fails: as the parts do;
 * error->text then begins with the number of the part. */
EP_CHECKED ep_status ep_merged_stream_open(ep_trace *trace, ep_merged_stream **out, ep_error *error);
/* As ep_file_stream_head(); and why events are missing. */
const ep_decoded *ep_merged_stream_head(const ep_merged_stream *stream);
ep_full_reason ep_merged_stream_full_reason(const ep_merged_stream *stream);
/* As ep_merger_next(). Fails: as the parts do. */
EP_CHECKED ep_status ep_merged_stream_next(ep_merged_stream *stream, ep_columns *to, size_t limit,
                                           ep_error *error);
void ep_merged_stream_progress(const ep_merged_stream *stream, size_t *done, size_t *total);
/* After the last row. Makes what is known now the trace->head and trace->recording, and the same for each
 * part. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_merged_stream_end(ep_merged_stream *stream);
void ep_merged_stream_close(ep_merged_stream *stream);    /* NULL is fine */

#endif
