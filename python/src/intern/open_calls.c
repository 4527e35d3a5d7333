/* The calls of a thread that are open when a window begins, and the checks at its first event: its name,
 * and which of these calls were really open. */
#include "intern.h"

#include <string.h>

#include "intern_parts.h"
#include "lanes.h"

static PyObject *str_thread_name;    /* interned, immortal */

ep_frame *
ep_py_frame_at_resume(PyThreadState *ts)
{
    ep_frame *frame = ep_py_sites_usable ? ep_frame_of_program(ep_frame_current(ts)) : NULL;
    return frame != NULL && ep_frame_is_at_resume(frame) ? frame : NULL;
}

/* The next frame outwards that belongs to an open call of the program. */
static ep_frame *
next_open_frame(ep_frame *inner)
{
    ep_frame *frame = ep_frame_previous(inner);
    while (frame != NULL && ep_frame_is_passed(frame, inner)) {
        inner = frame;
        frame = ep_frame_previous(frame);
    }
    return ep_py_visible_frame(frame);
}

ep_open_call *
ep_py_open_calls(PyThreadState *ts, ep_thread *thread, const ep_frame *but, size_t *depth)
{
    *depth = 0;
    size_t count = 0;
    ep_frame *innermost = ep_py_sites_usable ? ep_frame_of_program(ep_frame_current(ts)) : NULL;
    if (innermost != NULL) {
        innermost = ep_py_visible_frame(innermost == but ? ep_frame_previous(innermost) : innermost);
    }
    for (ep_frame *frame = innermost; frame != NULL;
         frame = next_open_frame(frame)) {
        count += 1;
    }
    ep_open_call *calls = calloc(count ? count : 1, sizeof *calls);
    if (calls == NULL) {
        return NULL;
    }
    const int generator = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;
    size_t at = count;
    for (ep_frame *frame = innermost; frame != NULL;
         frame = next_open_frame(frame)) {
        PyCodeObject *code = ep_frame_code(frame);
        at -= 1;
        calls[at].kind = code->co_flags & generator ? EP_KIND_RESUME : EP_KIND_CALL;
        calls[at].site_id = ep_py_code_site(code, frame);
        if (EP_UNLIKELY(ep_frame_is_at_resume(frame)) && thread != NULL &&
            calls[at].site_id != EP_ID_SKIP) {
            calls[at].unsettled = true;
            ep_engine_unsettle(thread, frame, calls[at].site_id);
        }
    }
    *depth = count;
    return calls;
}

void
ep_py_note_open_slices(PyThreadState *ts, ep_thread *thread, bool anew)
{
#if EP_ENTRY_MAY_RAISE || EP_RESUME_MAY_BE_UNREPORTED
    ep_thrown slices[EP_THROWN_MAX];
    uint32_t count = 0;
    ep_frame *frame = ep_py_sites_usable ? ep_frame_of_program(ep_frame_current(ts)) : NULL;
    for (; frame != NULL && count < EP_THROWN_MAX; frame = ep_frame_previous(frame)) {
#if EP_RESUME_MAY_BE_UNREPORTED
        bool may_be = ep_frame_resumed_unreported(frame) != NULL;
#else
        /* A coroutine has no yield. A frame at its entry is unsettled. */
        bool may_be = (ep_frame_code(frame)->co_flags & (CO_GENERATOR | CO_ASYNC_GENERATOR)) &&
                      !ep_frame_is_at_resume(frame);
#endif
        if (may_be) {
            slices[count++] = (ep_thrown){.frame = frame};
        }
    }
    ep_engine_set_thrown(thread, slices, count, anew);
#else
    (void)ts;
    ep_engine_set_thrown(thread, NULL, 0, anew);
#endif
}

/* Before a thread registers itself, its object is the first local of its outermost frame. */
static PyObject *
thread_of_bootstrap(ep_frame *frame)
{
    ep_frame *outermost = NULL;
    while (frame != NULL) {
        outermost = frame;
        frame = ep_frame_previous(frame);
    }
    if (outermost == NULL ||
        PyUnicode_CompareWithASCIIString(ep_frame_code(outermost)->co_name, "_bootstrap") != 0) {
        return NULL;
    }
    uintptr_t self = EP_FRAME_FIELD(outermost, uintptr_t, EP_FRAME_LOCALS);
    return (PyObject *)(self & ~(uintptr_t)EP_FRAME_TAG);
}

static void
name_thread(ep_log *log)
{
    log->todo &= ~EP_TODO_NAMELESS;
    uint32_t busy = ep_py_enter_own();
    ep_py_exception saved = ep_py_exception_save();
    PyObject *modules = ep_py_modules();
    PyObject *threading = modules != NULL ? ep_py_dict_get_text(modules, "threading") : NULL;
    PyObject *active = threading != NULL && PyModule_Check(threading)
                           ? ep_py_dict_get_text(PyModule_GetDict(threading), "_active")
                           : NULL;
    PyObject *ident = PyLong_FromUnsignedLong(PyThread_get_thread_ident());
    PyObject *thread = NULL;
    if (active != NULL && ident != NULL && PyDict_CheckExact(active)) {
        thread = ep_py_dict_get(active, ident);
    }
    if (thread == NULL) {
        thread = Py_XNewRef(thread_of_bootstrap(ep_py_frame_now()));
    }
    PyObject *name = thread != NULL ? PyObject_GenericGetAttr(thread, str_thread_name) : NULL;
    char stack[EP_THREAD_NAME_BYTES * 4], *heap;
    ep_thread_set_name(ep_lanes_carrier(log), ep_py_text(name, stack, sizeof stack, &heap));
    free(heap);
    Py_XDECREF(name);
    Py_XDECREF(thread);
    Py_XDECREF(ident);
    Py_XDECREF(active);
    Py_XDECREF(threading);
    PyErr_Clear();
    ep_py_exception_restore(saved);
    ep_py_leave_own(busy);
}

/* Finds out which of the calls that were found at their entry begins with the current event: the
 * interpreter reports such a call while the thread is still at the entry, and everything else only after
 * it has moved on. If a handler raises at the entry, the interpreter reports the unwinding alone
 * (hooks/entry.h): such a call is not recorded, because it was not open either. Limitation, 3.11: a handler
 * that runs after the begin, starts a recorder and raises takes that call from the recorder, too. */
static void
settle_open_calls(ep_log *log, ep_kind kind)
{
    ep_frame *frame = ep_py_frame_now();
    ep_frame *caller = frame != NULL ? ep_frame_previous(frame) : NULL;
    bool opens = kind == EP_KIND_CALL || kind == EP_KIND_RESUME;
    bool closes = kind == EP_KIND_RETURN || kind == EP_KIND_YIELD || kind == EP_KIND_UNWIND;
    ep_thread *thread = log->thread;
    for (uint32_t i = thread->unsettled_count; i-- > 0;) {
        const void *unsettled = thread->unsettled[i].frame;
        if (unsettled == frame && (opens || closes || !ep_frame_is_at_resume(frame))) {
            bool begins = opens || (kind == EP_KIND_UNWIND && EP_UNWINDS_UNREPORTED);
            ep_engine_settle(thread, i, begins && ep_frame_is_at_resume(frame));
        } else if (unsettled == caller && !ep_frame_is_at_resume(caller)) {
            ep_engine_settle(thread, i, false);
        }
    }
    if (thread->unsettled_count == 0) {
        log->todo &= ~EP_TODO_UNSETTLED;
    }
}

void (*ep_py_look_at_processor)(ep_log *log);
void (*ep_py_look_for_stacks)(ep_log *log);

void
ep_py_do_pending_work(ep_log *log, ep_kind kind)
{
    if (log->todo & EP_TODO_PROCESSOR) {
        log->todo &= ~EP_TODO_PROCESSOR;
        ep_py_look_at_processor(log);
    }
    if (log->todo & EP_TODO_NAMELESS) {
        name_thread(log);
    }
    if (log->todo & EP_TODO_STACKS) {
        ep_py_look_for_stacks(log);
    }
    if (log->todo & EP_TODO_UNSETTLED) {
        settle_open_calls(log, kind);
    }
}

int
ep_py_open_calls_init(void)
{
    str_thread_name = PyUnicode_InternFromString("_name");
    return str_thread_name != NULL ? 0 : -1;
}
