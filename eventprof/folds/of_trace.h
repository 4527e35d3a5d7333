/* Folds over the events of a trace (trace.h), whatever it is of. */
#ifndef EP_OF_TRACE_H
#define EP_OF_TRACE_H

#include "archive.h"
#include "file_read.h"
#include "fold.h"
#include "trace.h"

/* Runs folds over all events. If the trace is of a finished file or of parts and has no columns, these are
 * read (reading.h), and trace->head is known afterwards; else columns are made, and the folds read those.
 * has_lock: the interpreter has a lock. what: for the trace's watcher; static. error: may be NULL.
 * Fails: as ep_trace_reach() and ep_fold_run(). */
EP_CHECKED ep_status ep_fold_trace(ep_trace *trace, ep_fold *const *folds, size_t count, bool has_lock,
                                   const char *what, ep_error *error);

/* ---- Before the events are read ---------------------------------------------------------------- */

/* What is known of a recording that is finished and, as far as its file says, whole: of a log from the
 * headers of its chunks and its texts, of an archive from all but the events. */
typedef struct ep_glance {
    const ep_decoded *head;           /* view, until ep_glance_clear(): threads, duration */
    const ep_recording *recording;    /* view, as long */
    /* private */
    ep_file_stream *stream;
    ep_recording of_stream;
} ep_glance;

/* Returns: new in *out (ep_glance_clear); out->head NULL: all events must be read first, because something
 * is missing, filters are left to do, or the trace is not of such a file. error: may be NULL. Fails: as
 * ep_file_stream_open(). */
EP_CHECKED ep_status ep_trace_glance(const ep_trace *trace, ep_glance *out, ep_error *error);
void ep_glance_clear(ep_glance *glance);

/* The parts of a trace's file that could not be read, as far as was found so far. */
uint64_t ep_trace_file_damage(const ep_trace *trace);

#endif
