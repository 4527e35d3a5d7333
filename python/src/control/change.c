#include "change.h"

#include "audit.h"
#include "source.h"

struct ep_py_change ep_py_change;

/* Whether a change is under way on this thread. */
static bool
is_here(void)
{
    return atomic_load_explicit(&ep_py_change.holder, memory_order_relaxed) ==
           PyThread_get_thread_ident();
}

int
ep_py_recorders_init(void)
{
    if (ep_py_change.lock == NULL && (ep_py_change.lock = PyThread_allocate_lock()) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    ep_py_audit_ask_of_changes(is_here);
    return 0;
}

void
ep_py_change_take(void)
{
    if (!is_here()) {
        PyLockStatus status = PyThread_acquire_lock_timed(ep_py_change.lock, 0, 0);
        /* At the end of the interpreter other threads are stopped, and one of them may hold the lock for
         * ever. */
        while (status != PY_LOCK_ACQUIRED && !ep_py_is_finalizing()) {
            Py_BEGIN_ALLOW_THREADS
            status = PyThread_acquire_lock_timed(ep_py_change.lock, 10000, 0);
            Py_END_ALLOW_THREADS
        }
        atomic_store_explicit(&ep_py_change.holder, PyThread_get_thread_ident(), memory_order_relaxed);
        ep_py_change.depth = 0;
    }
    ep_py_change.depth++;
}

void
ep_py_change_begin(void)
{
    ep_py_change_take();
    ep_py_change.count++;
}

void
ep_py_change_end(void)
{
    if (ep_py_change.depth == 1) {
        ep_py_counters_settle();
    }
    if (--ep_py_change.depth == 0) {
        atomic_store_explicit(&ep_py_change.holder, 0, memory_order_relaxed);
        PyThread_release_lock(ep_py_change.lock);
    }
}

bool
ep_py_change_begin_unless_within(void)
{
    bool can = !is_here();
    if (can) {
        ep_py_change_begin();
    }
    return can;
}

void
ep_py_look_begin(void)
{
    if (EP_GIL_DISABLED) {
        ep_py_change_take();
    }
}

void
ep_py_look_end(void)
{
    if (EP_GIL_DISABLED) {
        ep_py_change_end();
    }
}

/* Without a GIL: a fork waits for the change, so that the child does not find hooks half changed. */
void
ep_py_recorders_before_fork(void)
{
    ep_py_change_take();
    ep_py_alone_before_fork();
}

bool
ep_py_change_after_fork(bool child)
{
    if (child) {
        ep_py_alone_after_fork_in_child();
    }
    /* Not if the extension was imported between the two handlers: then the change is another thread's. */
    if (EP_GIL_DISABLED && is_here()) {
        ep_py_change_end();
    }
    if (!child || is_here()) {
        return false;
    }
    /* The thread that holds the lock, and those that wait for it, do not exist in the child. */
    bool interrupted = ep_py_change.holder != 0;
    ep_py_change.lock = PyThread_allocate_lock();
    ep_py_change.holder = 0;
    ep_py_change.depth = 0;
    return interrupted;
}
