/* Reports new threads where Python code starts them, for hooks that each thread must have. Threads that
 * C code makes are not reported. */
#ifndef EP_THREAD_STARTS_H
#define EP_THREAD_STARTS_H

#include "compat.h"

typedef struct ep_starts_watcher {
    /* Called on the new thread, before and after the program's function. They do not raise. */
    void (*begin)(void);
    void (*end)(void);
    struct ep_starts_watcher *next;
} ep_starts_watcher;

/* watcher: immortal; a second call for it changes nothing. Fails: -1, exception set; stop watching then,
 * too. */
int ep_py_watch_starts(ep_starts_watcher *watcher);
void ep_py_leave_starts(ep_starts_watcher *watcher);

/* Calls `visit` on every thread of this interpreter. */
static inline int
ep_py_each_thread(int (*visit)(PyThreadState *ts))
{
    int status = 0;
    PyThreadState *ts = ep_py_first_thread();
    for (; ts != NULL && status == 0; ts = ep_py_next_thread(ts)) {
        status = visit(ts);
    }
    return status;
}

#endif
