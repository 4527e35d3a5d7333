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

/* Opens any file that eventprof wrote. A recorder leaves a part of its filters to readers (`include` and
 * others): such calls are in the trace, unless trace->filter is set before the first step.
 * Returns: new in *out (ep_trace_clear), untouched on failure. Fails: EP_FORMAT (neither a log nor an
 * archive, or nothing of it can be read), EP_UNSUPPORTED (a newer eventprof wrote it, or with a codec that
 * this build lacks), EP_IO (error->os_error says why), EP_NOMEM. */
EP_CHECKED ep_status ep_trace_open(const char *path, ep_trace *out, ep_error *error);

/* steals descriptor, also on failure. Returns and fails as above. */
EP_CHECKED ep_status ep_trace_open_log(int descriptor, ep_trace *out, ep_error *error);

/* descriptor: borrowed. Returns and fails as above. */
EP_CHECKED ep_status ep_trace_open_archive(int descriptor, ep_trace *out, ep_error *error);

/* Facts about the log; more exact once the events are read. trace: of ep_trace_open_log().
 * Returns: view, until the trace is cleared. */
const ep_file_facts *ep_trace_log_facts(const ep_trace *trace);

/* trace: of ep_trace_open_archive(). Returns: view, until the events are read; NULL from then on. */
const ep_archive_info *ep_trace_archive_info(const ep_trace *trace);

/* Whether the events of a log can be read in a pass: as far as is known before the first. Needs the same
 * memory as a pass. OK for all other traces. Fails: as ep_file_stream_open(). */
EP_CHECKED ep_status ep_trace_probe(ep_trace *trace, ep_error *error);

/* ---- For folds (folds/of_trace.h) ------------------------------------------------------------ */

/* The reader of a trace's file. trace: any. Returns: view, until the events are read; NULL afterwards, and
 * if the trace is not of such a file. */
ep_file_reader *ep_trace_log_reader(const ep_trace *trace);
ep_archive *ep_trace_archive(const ep_trace *trace);

/* Makes *head, from a pass over the log, the trace->head, unless there is one. Steals the contents of
 * *head. Not for archives: they have ep_archive_head(). */
void ep_trace_set_log_head(ep_trace *trace, ep_decoded *head);

#endif
