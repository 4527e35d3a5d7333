/* Verifies any trace in one pass over its events; verify.h judges them. */
#ifndef EP_VERIFYING_H
#define EP_VERIFYING_H

#include "trace.h"

/* Of `known` these are read: filtered, one_thread, hook_frees, calls_displaced, memory_displaced; the trace
 * knows the rest. The records of a log, or of a capture that was not decoded yet, are checked, too
 * (trace->record_check). A second pass follows if only the first one found that the file is damaged, or
 * what it has lost. error: may be NULL. Returns through out: new, for ep_verification_clear(). Fails: as
 * ep_fold_trace() and ep_verifier_add(). */
EP_CHECKED ep_status ep_verify_trace(ep_trace *trace, const ep_verify_input *known, size_t limit,
                                     ep_verification *out, ep_error *error);

#endif
