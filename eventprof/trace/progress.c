#include "progress.h"

#include "os.h"

static bool
tell(void *context, size_t done, size_t total)
{
    ep_work *work = context;
    return work->watcher == NULL || work->watcher->tell(work, done, total);
}

void
ep_work_begin(ep_work *work, const ep_watcher *watcher, const char *what)
{
    *work = (ep_work){
        .progress = {.tell = tell, .context = work},
        .watcher = watcher,
        .what = what,
        .began_ns = ep_os_monotonic_ns(),
    };
}

void
ep_work_end(ep_work *work)
{
    if (work->watcher != NULL) {
        work->watcher->end(work);
    }
}
