/* Folds over the events of a trace (trace.h), whatever it is of. */
#ifndef EP_OF_TRACE_H
#define EP_OF_TRACE_H

#include "fold.h"
#include "trace.h"

/* Runs folds over all events. If the trace is of a finished file or of parts and has no columns, these are
 * read (reading.h), and trace->head is known afterwards; else columns are made, and the folds read those.
 * has_lock: the interpreter has a lock. what: for the trace's watcher; static. error: may be NULL.
 * Fails: as ep_trace_reach() and ep_fold_run(). */
EP_CHECKED ep_status ep_fold_trace(ep_trace *trace, ep_fold *const *folds, size_t count, bool has_lock,
                                   const char *what, ep_error *error);

#endif
