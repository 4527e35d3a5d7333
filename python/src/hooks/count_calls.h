/* What an event of the interpreter means to counters: names, slots, callbacks. The hooks of
 * count_monitoring.c and source_profile.c call in here. */
#ifndef EP_COUNT_CALLS_H
#define EP_COUNT_CALLS_H

#include "compat.h"

#include "count.h"
#include "intern.h"

/* ---- The fast halves --------------------------------------------------------------------------- */

/* For the usual cases, if the thread is ep_count_is_fast(). False: the slow half must handle the event; it
 * begins anew. */

/* HOT. `known`: the function's entry, which stays valid; `key`: what the event of its end will pass. */
static inline bool
ep_py_count_open_fast(ep_count_thread *thread, uintptr_t known, uintptr_t key, bool is_slice)
{
    ep_count_view *view = thread->views[0];
    const ep_count_known *at = ep_count_known_at(view, known);
    if (EP_UNLIKELY(at->key != known) || EP_UNLIKELY(view->top + 1 >= view->limit)) {
        return false;
    }
    ep_count_slot *slot = at->slot;
    if (is_slice) {
        slot->resumes += 1;
    } else {
        slot->calls += 1;
    }
    ep_count_push(view, slot, key, ep_clock_counter() - thread->aside);
    return true;
}

/* HOT. */
static inline bool
ep_py_count_close_fast(ep_count_thread *thread, uintptr_t key)
{
    ep_count_view *view = thread->views[0];
    if (EP_UNLIKELY(view->top->key != key)) {
        return false;
    }
    ep_count_pop(view, ep_clock_counter() - thread->aside);
    return true;
}

/* HOT. The key of a callable in ep_count_known; 0: the slow callback must look. */
static inline uintptr_t
ep_py_count_known_of(PyObject *callable)
{
    PyTypeObject *type = Py_TYPE(callable);
    if (type == &PyCFunction_Type) {
        PyMethodDef *method = ((PyCFunctionObject *)callable)->m_ml;
        return EP_LIKELY(method != ep_py_new_method) ? (uintptr_t)method : 0;
    }
    if (type == &PyMethodDescr_Type) {
        return (uintptr_t)((PyMethodDescrObject *)callable)->d_method;
    }
    if (type == &PyType_Type && !(((PyTypeObject *)callable)->tp_flags & Py_TPFLAGS_HEAPTYPE)) {
        return (uintptr_t)callable;
    }
    return 0;
}

/* ---- The slow way -------------------------------------------------------------------------------- */

/* Whether running counters want such events. */
typedef enum ep_py_count_wish {
    EP_PY_COUNT_WANTED,
    EP_PY_COUNT_UNWANTED,
    EP_PY_COUNT_NEVER      /* no, and not before another set of counters runs */
} ep_py_count_wish;

/* A Python function begins, or goes on (is_slice); it ends, or yields. */
ep_py_count_wish ep_py_count_open(PyCodeObject *code, bool is_slice);
ep_py_count_wish ep_py_count_close(PyCodeObject *code);

/* Something that is not in Python is called by `caller`, and ends. NEVER: nothing that is called from
 * there is wanted. */
ep_py_count_wish ep_py_count_c_open(PyCodeObject *caller, PyObject *callable);
void ep_py_count_c_close(PyCodeObject *caller, PyObject *callable);

/* In an allocator hook, outermost: calls no C API. ts: NULL, if the thread is not attached. Returns: the
 * thread, busy, for ep_py_count_block(); NULL: nothing is counted. */
ep_count_thread *ep_py_count_enter_block(PyThreadState *ts);

/* ---- The owner of a counter (counter.c) -------------------------------------------------------- */

typedef enum ep_py_count_end {
    EP_PY_COUNT_ENTER,
    EP_PY_COUNT_EXIT,
    EP_PY_COUNT_ENDS
} ep_py_count_end;

/* What the owner of a counter does for the hooks. */
typedef struct ep_py_count_owner {
    /* Whether the counter has a callback for that end of calls. */
    bool (*tells)(void *owner, ep_py_count_end end);
    /* Calls the callback, with no exception pending; never fails. */
    void (*tell)(void *owner, ep_py_count_end end, uint32_t name);
} ep_py_count_owner;

/* Once, before any counter starts. A view of `functions`. */
void ep_py_count_set_owner(const ep_py_count_owner *functions);

/* ---- Monitoring (count_monitoring.c) ----------------------------------------------------------- */

/* Installs the hooks for these calls, or removes them: whenever another set of counters runs. Fails: -1,
 * exception set; removing never fails. */
int ep_py_count_monitor(bool calls, bool c_calls);
bool ep_py_count_monitor_owns(void);
/* As in ep_source. */
uint64_t ep_py_count_monitor_interruptions(void);

/* ---- The other sources' halves ------------------------------------------------------------------ */

/* source_profile.c: as above. */
int ep_py_profile_count(bool calls, bool c_calls);
bool ep_py_profile_owns(void);

/* source_alloc.c: counts blocks of these domains (bits), 0: of none. Fails: -1, exception set. */
int ep_py_alloc_count(unsigned domains);
bool ep_py_alloc_owns(void);

#endif
