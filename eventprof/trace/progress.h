/* The progress of a long step. */
#ifndef EP_PROGRESS_H
#define EP_PROGRESS_H

#include "array.h"
#include "types.h"

/* Reports the progress of a long computation every EP_PROGRESS_ROWS rows. If it returns false, the
 * computation stops and fails with EP_STATE. Columns in files leave the resident set meanwhile. */
#define EP_PROGRESS_ROWS ((size_t)1 << 20)

typedef struct ep_progress {
    bool (*tell)(void *context, size_t done, size_t total);
    void *context;
} ep_progress;

static inline bool
ep_progress_tell(const ep_progress *progress, size_t done, size_t total)
{
    ep_columns_give_back();
    return progress == NULL || progress->tell(progress->context, done, total);
}

/* A long step under way. */
typedef struct ep_work {
    ep_progress progress;    /* to pass to the step; refers to this struct */
    const struct ep_watcher *watcher;
    const char *what;        /* "pairing calls"; static */
    int64_t began_ns;        /* monotonic */
    bool shown;              /* for the watcher */
} ep_work;

/* Watches long steps. It is called for one step at a time, not always on the same thread. */
typedef struct ep_watcher {
    /* False asks to stop, as in ep_progress. */
    bool (*tell)(ep_work *work, size_t done, size_t total);
    void (*end)(ep_work *work);
} ep_watcher;

/* watcher: static; NULL: none. */
void ep_work_begin(ep_work *work, const ep_watcher *watcher, const char *what);
void ep_work_end(ep_work *work);

#endif
