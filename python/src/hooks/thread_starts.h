/* New threads, met where they are made: for hooks that are a thread's own. Threads that C code makes
 * are not met. */
#ifndef EP_THREAD_STARTS_H
#define EP_THREAD_STARTS_H

#include "compat.h"

typedef struct ep_starts_watcher {
    /* On the new thread: before what the program runs there, and after it. They raise nothing. */
    void (*begin)(void);
    void (*end)(void);
    struct ep_starts_watcher *next;
} ep_starts_watcher;

/* Immortal watcher; twice is once. Fails: -1, exception set; leave then as well. */
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
