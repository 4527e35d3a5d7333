/* Saves any trace as an archive, whose sections of events are written while they are read. */
#ifndef EP_SAVING_H
#define EP_SAVING_H

#include "trace.h"

/* Writes to a new file, from the descriptor's position on. An archive begins with names, threads and
 * counts: a pass has found these before (EP_STEP_NAMES). recording: that of the trace, with the metadata of
 * the archive. error: may be NULL. Fails: as ep_fold_trace() and ep_archive_add(); error->os_error of EP_IO
 * is set. */
EP_CHECKED ep_status ep_save_trace(ep_trace *trace, int fd, const ep_recording *recording, ep_error *error);

#endif
