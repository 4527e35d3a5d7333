/* The source of what becomes of asyncio's tasks: which one takes a step, when it is made ready, and by
 * which callback of its loop.
 *
 * It has no hook of its own. The loop of asyncio is in Python, so the calls of three of its functions are
 * events already. Handle.__init__() makes a callback: for the next step of a task, then the task is ready;
 * or for something else, which may make a task ready when it runs, by Handle._run(). TimerHandle.__init__()
 * comes right before, if the callback waits for a time. What these are about is read from the arguments, in
 * the hook for their calls (task_events.h).
 *
 *   thread   ... [ready T] [call Handle.__init__] ...   [run H] [call Handle._run] [step T] [resume f] ...
 *
 * Loops that are not written in Python (uvloop) have only the steps. */
#include "task_events.h"

#include "engine.h"
#include "os.h"
#include "source.h"
#include "tasks.h"

static _Atomic uint32_t task_name;
static PyObject *str_callback;    /* set before any event is wanted */

/* An argument of the call that begins in `frame`. NULL: the program deleted it, or there is none yet. */
static PyObject *
argument(ep_frame *frame, int number)
{
    const uintptr_t *locals = &EP_FRAME_FIELD(frame, const uintptr_t, EP_FRAME_LOCALS);
    /* NOLINTNEXTLINE(performance-no-int-to-ptr): the tag of a stack reference is in it */
    return (PyObject *)(locals[number] & ~(uintptr_t)EP_FRAME_TAG);
}

/* place_frame: NULL if there is no place. */
static void
put(ep_log *log, ep_frame *place_frame, ep_task_what what, uint64_t value)
{
    uint32_t name = atomic_load_explicit(&task_name, memory_order_relaxed);
    uint32_t place = ep_py_place(log, name, place_frame);
    uint64_t ticks = ep_clock_ticks();
    ep_log_put_value_at(log, ep_ticks_halves(ticks), EP_KIND_TASK, place, EP_TASK_WORD(what, value));
    log->not_before = ticks;
}

/* How long it is until a time of the loop's clock, which is time.monotonic(). */
static uint64_t
ns_until(PyObject *when)
{
    double seconds = when != NULL && PyFloat_Check(when) ? PyFloat_AS_DOUBLE(when) : 0;
    double ns = seconds * 1e9 - (double)ep_os_monotonic_ns();
    return ns > 0 && ns < 1e18 ? (uint64_t)ns : 0;
}

static void
put_callback(ep_log *log, ep_frame *frame, ep_frame *caller)
{
    PyObject *callback = argument(frame, 1), *arguments = argument(frame, 2);
    bool awaits = false;
    PyObject *task = callback != NULL ? ep_py_task_of_callback(callback, &awaits) : NULL;
    if (task == NULL) {
        put(log, caller, EP_TASK_CALLBACK, (uintptr_t)argument(frame, 0));
        return;
    }
    PyObject *awaited =
        awaits && arguments != NULL && PyTuple_Check(arguments) && PyTuple_GET_SIZE(arguments) == 1
            ? PyTuple_GET_ITEM(arguments, 0)
            : NULL;
    if (awaited != NULL && ep_py_is_task(awaited)) {
        put(log, caller, EP_TASK_AWAITED, (uintptr_t)awaited);
    }
    put(log, ep_py_frame_of_task(task), EP_TASK_READY, (uintptr_t)task);
}

static void
put_run(ep_log *log, ep_frame *frame, ep_frame *caller)
{
    PyObject *handle = argument(frame, 0);
    PyObject *callback = handle != NULL ? PyObject_GenericGetAttr(handle, str_callback) : NULL;
    bool awaits;
    bool steps = callback != NULL && ep_py_task_of_callback(callback, &awaits) != NULL;
    Py_XDECREF(callback);    /* the handle has another reference */
    put(log, caller, EP_TASK_RUN, steps ? 0 : (uintptr_t)handle);
}

void
ep_py_put_task_event(ep_log *log, PyCodeObject *code, ep_frame *frame, ep_frame *caller, uintptr_t task)
{
    if (!(ep_engine_kinds() & EP_KIND_BIT(EP_KIND_TASK))) {
        return;
    }
    uint32_t busy = ep_py_enter_own();
    ep_py_exception saved = ep_py_exception_save();
    if (task != 0) {
        put(log, caller, EP_TASK_STEP, task);
    } else {
        switch (ep_py_loop_code_of(code)) {
            case EP_LOOP_CALLBACK:
                put_callback(log, frame, caller);
                break;
            case EP_LOOP_TIMER:
                put(log, caller, EP_TASK_TIMER, ns_until(argument(frame, 1)) << EP_TASK_WHAT_BITS);
                break;
            case EP_LOOP_RUN:
                put_run(log, frame, caller);
                break;
            case EP_LOOP_OTHER:
            case EP_LOOP_CODE_COUNT:
                break;
        }
    }
    PyErr_Clear();
    ep_py_exception_restore(saved);
    ep_py_leave_own(busy);
}

uint32_t
ep_py_open_site_slow(ep_log *log, PyCodeObject *code, ep_frame *frame)
{
    uintptr_t task;
    uint32_t site = ep_py_code_site_slow(code, frame, &task);
    if (site != EP_ID_SKIP && frame != NULL && ep_frame_code(frame) == code) {
        ep_py_put_task_event(log, code, frame, ep_frame_previous(frame), task);
    }
    return site;
}

static int
adjust(ep_kind_set kinds)
{
    if (kinds != 0 && str_callback == NULL &&
        (str_callback = PyUnicode_InternFromString("_callback")) == NULL) {
        return -1;
    }
    if (kinds != 0 && atomic_load_explicit(&task_name, memory_order_relaxed) == 0) {
        static const char word[] = "asyncio";
        ep_name_text name = {
            .qualname = {word, sizeof word - 1}, .line = -1, .kind = EP_NAME_WAIT};
        atomic_store_explicit(&task_name, ep_name_of_text(&name), memory_order_relaxed);
    }
    return 0;
}

static bool
owns(void)
{
    return true;
}

const ep_source ep_source_tasks = {
    .name = "tasks",
    .kinds = ep_kinds_tasks,
    .adjust = adjust,
    .owns = owns,
};
