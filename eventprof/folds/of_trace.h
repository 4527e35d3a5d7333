/* Folds over the events of a trace in memory (trace.h), whatever it is of. */
#ifndef EP_OF_TRACE_H
#define EP_OF_TRACE_H

#include "fold.h"
#include "trace.h"

/* Reads the events, if that was not done, and runs folds over them. has_lock: the interpreter has a lock.
 * what: for the trace's watcher; static. error: may be NULL.
 * Fails: as ep_trace_reach() and ep_fold_run(). */
EP_CHECKED ep_status ep_fold_trace(ep_trace *trace, ep_fold *const *folds, size_t count, bool has_lock,
                                   const char *what, ep_error *error);

#endif
