#include "evaluator.h"

#if EP_HAS_EVALUATOR

#include <opcode.h>
#include <pthread.h>

#include "gate.h"
#include "intern.h"
#include "labels.h"
#include "task_events.h"

static Py_tracefunc profile_hook;
static bool wanted;      /* installed, and not removed */
static bool in;          /* the interpreter calls the evaluator; false after a C stack ran short */
static uint64_t fell_on; /* !in: the id of the thread whose stack ran short */

/* ---- The C stack ----------------------------------------------------------------------------- */

/* A thread's C stack. A call through the evaluator uses about 500 bytes of it, where a Python call uses
 * none: 18,000 nested calls were too many for 8 MiB. So half of the stack is left to the program. */
typedef struct stack {
    uintptr_t low, middle, high;    /* 0: not known yet */
} stack;

static _Thread_local stack own_stack;

static EP_COLD void
find_stack(void)
{
    pthread_attr_t attributes;
    void *low;
    size_t bytes;
    own_stack = (stack){UINTPTR_MAX, UINTPTR_MAX, UINTPTR_MAX};
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) {
        return;
    }
    if (pthread_attr_getstack(&attributes, &low, &bytes) == 0) {
        own_stack = (stack){(uintptr_t)low, (uintptr_t)low + bytes / 2, (uintptr_t)low + bytes};
    }
    pthread_attr_destroy(&attributes);
}

static inline bool
is_deep(uintptr_t here)
{
    if (EP_UNLIKELY(own_stack.high == 0)) {
        find_stack();
    }
    return here - own_stack.middle >= own_stack.high - own_stack.middle;
}

/* Whether there is again room for many nested calls. */
static inline bool
is_shallow(uintptr_t here)
{
    uintptr_t quarter = (own_stack.high - own_stack.middle) / 2;
    return here - (own_stack.middle + quarter) < quarter;
}

/* ---- In and out ------------------------------------------------------------------------------ */

static PyObject *evaluate(PyThreadState *ts, struct _PyInterpreterFrame *frame, int throws);

static _PyFrameEvalFunction
current_evaluator(void)
{
    return _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get());
}

static void
set_evaluator(_PyFrameEvalFunction to)
{
    _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), to);
}

/* Open frames that are not traced are traced from now on, so that the hook sees them return. */
static void
trace_open_frames(void)
{
    PyThreadState *ts = ep_py_first_thread();
    for (; ts != NULL; ts = ep_py_next_thread(ts)) {
        if (ts->c_profilefunc == profile_hook && ts->tracing == 0) {
            ts->cframe->use_tracing = 255;
        }
    }
}

static void
take_place(void)
{
    if (current_evaluator() == _PyEval_EvalFrameDefault) {
        set_evaluator(evaluate);
        in = true;
    }
}

static void
leave_place(void)
{
    if (in && current_evaluator() == evaluate) {
        set_evaluator(_PyEval_EvalFrameDefault);
    }
    in = false;    /* a tool that replaced the evaluator may still call it: then it only runs the frame */
    trace_open_frames();
}

void
ep_py_evaluator_put_in(Py_tracefunc hook)
{
    profile_hook = hook;
    /* Not by the preprocessor: the headers may be of another patch release. */
    if (!wanted && Py_Version >= 0x030B0400) {
        wanted = true;
        take_place();
    }
}

void
ep_py_evaluator_take_out(void)
{
    if (wanted) {
        wanted = false;
        leave_place();
    }
}

bool
ep_py_evaluator_owns(void)
{
    return !in || current_evaluator() == evaluate;
}

/* ---- Frames ---------------------------------------------------------------------------------- */

static EP_COLD void
fall_back(PyThreadState *ts)
{
    fell_on = ts->id;
    leave_place();
}

/* The interpreter may raise RecursionError before the frame's first instruction. That is not a call, and
 * the hook does not report one. */
static inline bool
may_not_begin(PyThreadState *ts)
{
    return ts->recursion_remaining <= 0;
}

static inline ep_kind
open_kind(ep_frame *frame, int throws)
{
    if (EP_LIKELY(ep_frame_generator(frame) == NULL)) {
        return EP_KIND_CALL;
    }
    if (throws) {
        return EP_KIND_THROW;
    }
    /* Such a frame stopped where it made the generator, or at a yield. */
    const unsigned char *at = (const unsigned char *)ep_frame_instruction(frame);
    return *at == RETURN_GENERATOR ? EP_KIND_CALL : EP_KIND_RESUME;
}

static inline ep_kind
close_kind(ep_frame *frame, PyObject *result)
{
    return result == NULL                 ? EP_KIND_UNWIND
           : ep_frame_is_suspended(frame) ? EP_KIND_YIELD
                                          : EP_KIND_RETURN;
}

static inline void
put(ep_log *log, uint64_t ticks, ep_kind kind, uint32_t id)
{
    if (EP_LIKELY(!ep_gate_asks_calls())) {
        ep_log_put(log, ticks, kind, id);
    } else if (ep_kinds[kind].pairing == EP_PAIRING_OPENS) {
        ep_gate_put_open(log, ticks, kind, id);
    } else {
        ep_gate_put_close(log, ticks, kind, id);
    }
}

static inline bool
is_wanted(PyCodeObject *code)
{
    return EP_LIKELY(!ep_gate_asks_names()) || ep_py_code_is_wanted(code);
}

static inline void
put_open(PyThreadState *ts, ep_frame *frame, PyCodeObject *code, int throws)
{
    ep_frame *caller = ep_py_sites_usable ? ep_frame_current(ts) : NULL;
    /* A thread gets its name in its first frame, which cannot be found yet: the next frame does it. */
    ep_log *log = ep_log_mine();
    if (EP_UNLIKELY(log == NULL)) {
        ep_engine_count_unlogged(EP_KIND_CALL);
        return;
    }
    if (EP_UNLIKELY(ep_py_todo(log)) && caller != NULL) {
        ep_py_do_pending_work(log, EP_KIND_C_CALL);    /* the current frame is the caller's */
    }
    uint64_t ticks = ep_clock_ticks();
    if (!is_wanted(code) || EP_UNLIKELY(ep_py_todo(log) & EP_TODO_MUTED)) {
        return;
    }
    uint32_t id = ep_call_site_recent(&log->recent, (uintptr_t)code,
                                      caller != NULL ? ep_frame_instruction(caller) : 0);
    if (EP_UNLIKELY(id == 0)) {
        id = ep_call_site_find_recent(&log->recent, (uintptr_t)code,
                                      caller != NULL ? ep_frame_instruction(caller) : 0);
        if (id == 0) {
            uintptr_t task;
            id = ep_py_code_site_from(code, frame, caller, &task);
            if (id != EP_ID_SKIP) {
                ep_py_put_task_event(log, code, frame, caller, task);
            }
        }
        ticks = ep_log_not_before(log, ticks);
    }
    if (EP_LIKELY(id != EP_ID_SKIP)) {
        ep_py_labels_see(log, ticks);
        put(log, ticks, open_kind(frame, throws), id);
    }
}

static inline void
put_close(ep_frame *frame, PyCodeObject *code, PyObject *result)
{
    ep_log *log = ep_py_log_for(EP_KIND_RETURN);
    uint64_t ticks = ep_clock_ticks();
    if (EP_UNLIKELY(log == NULL) || !is_wanted(code)) {
        return;
    }
    uint32_t id = ep_name_recent(&log->recent, (uintptr_t)code);
    if (EP_UNLIKELY(id == 0)) {
        id = ep_name_find_recent(&log->recent, (uintptr_t)code);
        id = id != 0 ? id : ep_py_code_name(code);
        ticks = ep_log_not_before(log, ticks);
    }
    if (EP_LIKELY(id != EP_ID_SKIP)) {
        put(log, ticks, close_kind(frame, result), id);
    }
}

static PyObject *
evaluate(PyThreadState *ts, struct _PyInterpreterFrame *interpreter_frame, int throws)
{
    ep_frame *frame = (ep_frame *)interpreter_frame;
    PyCodeObject *code = ep_frame_code(frame);
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    const int generator = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;
    bool makes_generator = (code->co_flags & generator) && ep_frame_generator(frame) == NULL;
    if (EP_UNLIKELY(in && is_deep(here))) {
        fall_back(ts);
    }
    /* Other tools trace this frame too, or it must not be traced (calls of a trace function): run it as
     * the interpreter would. */
    if (EP_UNLIKELY(!in || makes_generator || ts->c_profilefunc != profile_hook ||
                    ts->c_tracefunc != NULL || ts->tracing != 0)) {
        return _PyEval_EvalFrameDefault(ts, interpreter_frame, throws);
    }
    if (EP_UNLIKELY(may_not_begin(ts))) {
        ts->cframe->use_tracing = 255;    /* for the caller, too, from here on */
        return _PyEval_EvalFrameDefault(ts, interpreter_frame, throws);
    }
    put_open(ts, frame, code, throws);
    uint8_t traces_caller = ts->cframe->use_tracing;
    ts->cframe->use_tracing = 0;
    PyObject *result = _PyEval_EvalFrameDefault(ts, interpreter_frame, throws);
    /* Leave tracing as the frame left it. It is on if somebody began to trace meanwhile; then the hook
     * saw the frame's end. */
    if (EP_LIKELY(ts->cframe->use_tracing == 0 && ts->c_profilefunc == profile_hook)) {
        put_close(frame, code, result);
        ts->cframe->use_tracing = traces_caller;
    } else if (EP_UNLIKELY(wanted && !in && ts->id == fell_on && is_shallow(here))) {
        take_place();
    }
    return result;
}

#endif
