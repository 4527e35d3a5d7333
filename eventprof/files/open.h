/* A trace of a file: a log or an archive. Its events are read when first asked for.
 *
 *     ep_trace trace = {0};
 *     ep_error error;
 *     ep_status status = ep_trace_open("program.epr", &trace, &error);
 *     ...                                                    columns.h
 *     ep_trace_clear(&trace); */
#ifndef EP_OPEN_H
#define EP_OPEN_H

#include "archive.h"
#include "file_read.h"
#include "trace.h"
#include "types.h"

/* Whatever eventprof wrote. Calls that a filter of the recorder left to readers (`include` and the like, by
 * name) are in it: trace->filter leaves them out, if it is set before the first step.
 * Returns: new in *out (ep_trace_clear), untouched on failure. Fails: EP_FORMAT (neither a log nor an
 * archive, or nothing of it can be read), EP_UNSUPPORTED (a newer eventprof wrote it, or with a codec that
 * this build lacks), EP_IO (error->os_error says why), EP_NOMEM. */
EP_CHECKED ep_status ep_trace_open(const char *path, ep_trace *out, ep_error *error);

/* steals descriptor, also on failure. Returns and fails as above. */
EP_CHECKED ep_status ep_trace_open_log(int descriptor, ep_trace *out, ep_error *error);

/* descriptor: the caller's still. Returns and fails as above. */
EP_CHECKED ep_status ep_trace_open_archive(int descriptor, ep_trace *out, ep_error *error);

/* What the log shows of itself; more exact once the events are read. trace: of ep_trace_open_log().
 * Returns: view, until the trace is cleared. */
const ep_file_facts *ep_trace_log_facts(const ep_trace *trace);

/* trace: of ep_trace_open_archive(). Returns: view, until the events are read; NULL from then on. */
const ep_archive_info *ep_trace_archive_info(const ep_trace *trace);

/* ---- For folds (folds/of_trace.h) ------------------------------------------------------------ */

/* What a trace is read from. trace: any. Returns: views, until the events are read; NULL from then on, and
 * if it is not of such a file. */
ep_file_reader *ep_trace_log_reader(const ep_trace *trace);
ep_archive *ep_trace_archive(const ep_trace *trace);

/* Makes *head, of a pass over the log, trace->head; a later one is not needed. steals what *head holds.
 * An archive has its own: ep_archive_head(). */
void ep_trace_set_log_head(ep_trace *trace, ep_decoded *head);

#endif
