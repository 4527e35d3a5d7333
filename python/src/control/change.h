/* Changes of hooks: one thread at a time installs and removes hooks, and others wait. */
#ifndef EP_CHANGE_H
#define EP_CHANGE_H

#include "control.h"

#include "compat.h"

/* Installing and removing hooks runs Python code (audit hooks, finalizers), and so other threads may
 * run: they wait. Such code may call us again on the same thread. It may stop a recorder; the
 * interrupted change then adjusts the sources once more (ep_py_sources_release). It may not start a
 * recorder, whose first events would be missing. */
struct ep_py_change {
    PyThread_type_lock lock;
    _Atomic unsigned long holder;    /* thread that changes hooks; 0: none. A thread only compares it with
                                      * its own number */
    unsigned depth;                  /* the holder's, as the next */
    uint64_t count;                  /* of changes begun */
};

extern EP_HIDDEN struct ep_py_change ep_py_change;

/* Around installing and removing hooks: one thread at a time. A thread may begin a change within its own
 * change; the outermost end lets the next thread in. */
void ep_py_change_begin(void);
void ep_py_change_end(void);

/* Like ep_py_change_begin(), unless the thread is within a change already (in an audit hook or a
 * finalizer). Returns: whether it began; only then call ep_py_change_end(). */
bool ep_py_change_begin_unless_within(void);

/* Like ep_py_change_begin(), for code that changes no hook. End it by ep_py_change_end(). */
void ep_py_change_take(void);

/* Around reading recorders and sources: without a GIL another thread may change them meanwhile. */
void ep_py_look_begin(void);
void ep_py_look_end(void);

/* Returns: whether a thread that does not exist in the child was within a change. */
bool ep_py_change_after_fork(bool child);

#endif
