/* Greenlets: learns of switches, and gives each greenlet a lane of its own.
 *
 * greenlet calls a function after each switch, on the stack that goes on: settrace(), for each thread. Ours
 * is put in on each thread at its first event after greenlet was loaded (EP_TODO_STACKS). It calls the
 * function that was in before, so a program's own goes on to work. If the program sets another one later,
 * that one stays, and switches are not seen from then on.
 *
 * At the stop it is taken out on the calling thread; on another thread, at the next switch there. While it
 * runs, greenlet lets the interpreter report no calls.
 *
 *   main       |c_call switch            |c_return switch
 *   other              |call f  ...  c_call switch|
 *                      ^ switched()              ^ switched()
 *
 * Greenlets are known by their address. That is safe: a greenlet that ends is seen to end, and one that is
 * dropped before its end is first switched to, so that it ends.
 *
 * Limitation: a block that greenlet itself allocates or frees between the switch and the call of switched()
 * has the lane that was left. */
#include "greenlets.h"

#include <string.h>

#include "engine.h"
#include "footprint.h"
#include "intern.h"
#include "lanes.h"
#include "monitoring.h"
#include "os.h"
#include "source.h"

/* So many frames of a greenlet are looked at for what it waits for. */
#define FRAMES_MAX 6

static _Atomic bool recorded;
static _Atomic uint32_t recordings;        /* how often recording began: older lanes are forgotten */
static _Atomic int64_t recording_since_ns; /* CLOCK_MONOTONIC */

/* Of the module and its type; immortal. NULL: not loaded yet. */
static PyObject *set_trace, *get_trace, *get_current;
static PyGetSetDef *is_dead, *parent, *top_frame;

/* ---- The module ------------------------------------------------------------------------------ */

/* Returns: view, NULL: not such an attribute. The type's own: subclasses may have others of that name. */
static PyGetSetDef *
getter_of(PyObject *type, const char *name)
{
    PyObject *descriptor = PyObject_GetAttrString(type, name);
    if (descriptor == NULL || !Py_IS_TYPE(descriptor, &PyGetSetDescr_Type)) {
        Py_XDECREF(descriptor);
        return NULL;
    }
    return ((PyGetSetDescrObject *)descriptor)->d_getset;    /* the reference is kept */
}

/* Returns: new. */
static PyObject *
get(const PyGetSetDef *getter, PyObject *greenlet)
{
    PyObject *value = getter->get(greenlet, getter->closure);
    if (value == NULL) {
        PyErr_Clear();
    }
    return value;
}

static bool
is(const PyGetSetDef *getter, PyObject *greenlet, PyObject *expected)
{
    PyObject *value = get(getter, greenlet);
    Py_XDECREF(value);
    return value == expected;
}

typedef enum presence {
    ABSENT,
    LOADING,
    LOADED
} presence;

static presence
find_module(void)
{
    if (top_frame != NULL) {
        return LOADED;
    }
    PyObject *modules = ep_py_modules();
    PyObject *module = modules != NULL ? PyDict_GetItemString(modules, "greenlet") : NULL;
    if (module == NULL) {
        return ABSENT;
    }
    PyObject *type = PyObject_GetAttrString(module, "greenlet");
    Py_XSETREF(set_trace, PyObject_GetAttrString(module, "settrace"));
    Py_XSETREF(get_trace, PyObject_GetAttrString(module, "gettrace"));
    Py_XSETREF(get_current, PyObject_GetAttrString(module, "getcurrent"));
    if (type != NULL && set_trace != NULL && get_trace != NULL && get_current != NULL) {
        is_dead = getter_of(type, "dead");
        parent = getter_of(type, "parent");
        top_frame = is_dead != NULL && parent != NULL ? getter_of(type, "gr_frame") : NULL;
    }
    Py_XDECREF(type);
    PyErr_Clear();
    return top_frame != NULL ? LOADED : LOADING;
}

/* ---- What a greenlet waits for --------------------------------------------------------------- */

/* The hub has no events of files and locks that belong to a greenlet: the function that gave up the thread
 * tells. What is compiled has no frame, and is not in this table. */
static const struct {
    const char *file, *function;    /* NULL: any */
    ep_wait_for what;
} waiting_places[] = {
    {"/gevent/_socket3.py", NULL, EP_WAIT_FOR_IO},
    {"/gevent/_socketcommon.py", NULL, EP_WAIT_FOR_IO},
    {"/gevent/ssl.py", NULL, EP_WAIT_FOR_IO},
    {"/gevent/select.py", NULL, EP_WAIT_FOR_IO},
    {"/gevent/selectors.py", NULL, EP_WAIT_FOR_IO},
    {"/gevent/os.py", NULL, EP_WAIT_FOR_IO},
    {"/gevent/_fileobjectposix.py", NULL, EP_WAIT_FOR_IO},
    {"/gevent/subprocess.py", NULL, EP_WAIT_FOR_PROCESS},
    {"/gevent/hub.py", "sleep", EP_WAIT_FOR_SLEEP},
    {"/gevent/lock.py", NULL, EP_WAIT_FOR_LOCK},
    {"/gevent/thread.py", NULL, EP_WAIT_FOR_LOCK},
    {"/eventlet/hubs/__init__.py", "trampoline", EP_WAIT_FOR_IO},
    {"/eventlet/greenthread.py", "sleep", EP_WAIT_FOR_SLEEP},
    {"/eventlet/semaphore.py", NULL, EP_WAIT_FOR_LOCK},
    {"/eventlet/queue.py", NULL, EP_WAIT_FOR_LOCK},
    {"/eventlet/lock.py", NULL, EP_WAIT_FOR_LOCK},
};

static ep_wait_for
what_is_waited_for(ep_frame *frame)
{
    for (int i = 0; i < FRAMES_MAX && frame != NULL; i++, frame = ep_frame_previous(frame)) {
        PyCodeObject *code = ep_frame_code(frame);
        for (size_t at = 0; at < sizeof waiting_places / sizeof waiting_places[0]; at++) {
            const char *function = waiting_places[at].function;
            if (ep_py_code_is_of_file(code, waiting_places[at].file) &&
                (function == NULL || PyUnicode_CompareWithASCIIString(code->co_name, function) == 0)) {
                return waiting_places[at].what;
            }
        }
    }
    return EP_WAIT_FOR_GREENLET;
}

static bool
records_waits(void)
{
    return ep_kinds_has(ep_engine_kinds(), EP_KIND_WAIT);
}

static void
begin_wait(ep_log *log, ep_lane *lane, PyObject *greenlet, uint64_t ticks)
{
    PyObject *object = get(top_frame, greenlet);
    ep_frame *frame = NULL;
    if (object != NULL && PyFrame_Check(object)) {
        frame = ep_py_visible_frame(ep_frame_of_object((PyFrameObject *)object));
    }
    ep_wait_for what = what_is_waited_for(frame);
    lane->wait_site = ep_py_place(log, ep_py_wait_name(what), frame);
    lane->wait_word = EP_WAIT_WORD(what, 0);
    lane->left_ns = ep_os_monotonic_ns();
    Py_XDECREF(object);
    ep_log_put_value_at(log, ep_ticks_halves(ticks), EP_KIND_WAIT_BEGIN, lane->wait_site, lane->wait_word);
}

/* frame: NULL: the greenlet begins. */
static void
end_wait(ep_log *log, ep_lane *lane, ep_frame *frame, uint64_t ticks)
{
    int64_t since_ns = lane->left_ns;
    if (since_ns == 0) {
        if (frame == NULL) {
            return;
        }
        /* It was switched out before waits were recorded. */
        ep_wait_for what = what_is_waited_for(frame);
        lane->wait_site = ep_py_place(log, ep_py_wait_name(what), frame);
        lane->wait_word = EP_WAIT_WORD(what, 0);
        since_ns = atomic_load_explicit(&recording_since_ns, memory_order_relaxed);
    }
    int64_t ns = ep_os_monotonic_ns() - since_ns;
    lane->left_ns = 0;
    ep_log_put_value_at(log, ep_ticks_halves(ticks), EP_KIND_WAIT, lane->wait_site,
                        EP_WAIT_WORD(ep_wait_what(lane->wait_word), (uint64_t)(ns > 0 ? ns : 0)));
}

/* ---- Switches -------------------------------------------------------------------------------- */

/* From 3.12 on, instructions in the code report its events. When the hook is put in, the interpreter
 * changes the code that threads run at that moment, and other code when it begins to run. The code of a
 * greenlet that was switched out is neither, so its calls would not be seen to return: it is changed
 * now. */
static void
report_from_frames(ep_frame *frame)
{
#if EP_HAS_MONITORING
    while (frame != NULL && ep_code_reports(ep_frame_code(frame))) {
        frame = ep_frame_previous(frame);
    }
    PyObject *module = frame != NULL ? ep_py_monitoring_module() : NULL;
    if (module != NULL) {
        (void)!ep_py_monitoring_restart(module);
    }
    Py_XDECREF(module);
    PyErr_Clear();
#else
    (void)frame;
#endif
}

/* Windows that began while the greenlet was switched out have not seen its calls begin. */
static void
describe_open_calls(PyThreadState *ts, ep_lane *lane)
{
    size_t depth;
    ep_open_call *calls = ep_py_open_calls(ts, NULL, NULL, &depth);
    if (calls != NULL) {
        (void)!ep_lanes_set_open(lane, calls, depth);    /* no memory: their ends will be unmatched */
        free(calls);
    }
    ep_py_note_open_slices(ts, lane->thread, true);
}

/* running: the greenlet that the log's events are of. */
static bool
begin_lanes(ep_log *log, PyObject *running, bool own)
{
    uint32_t now = atomic_load_explicit(&recordings, memory_order_relaxed);
    if (log->lanes != NULL && log->lanes_recording == now) {
        return true;
    }
    uint32_t busy = log->busy;
    if (!ep_lanes_begin(log, running, own)) {
        return false;
    }
    log->busy = busy;
    log->lanes_recording = now;
    return true;
}

/* origin: NULL: unknown, because switches were missed. */
static void
see_switch(ep_log *log, PyObject *origin, PyObject *target)
{
    PyThreadState *ts = PyThreadState_Get();
    ep_frame *frame = ep_py_sites_usable ? ep_py_visible_frame(ep_frame_current(ts)) : NULL;
    uint32_t busy = log->busy;
    log->busy = EP_BUSY_OWN;
    if (!begin_lanes(log, origin != NULL ? origin : target, false)) {
        log->busy = busy;
        return;
    }
    ep_lane *from = ep_lanes_current(log), *left = origin != NULL ? ep_lanes_find(log, origin) : NULL;
    ep_lane *to = ep_lanes_find(log, target);
    bool ended = origin != NULL && is(is_dead, origin, Py_True);
    if (to == NULL) {
        to = ep_lanes_add(log, target, is(parent, target, Py_None), frame != NULL);
    }
    bool waits = records_waits();
    uint64_t ticks = ep_clock_ticks();
    if (to != NULL && to != from) {
        if (waits && left == from && !ended) {
            begin_wait(log, from, origin, ticks);
        }
        log->busy = busy;
        ep_lanes_switch(log, to, ticks);
        busy = log->busy;
        log->busy = EP_BUSY_OWN;
        if (waits) {
            end_wait(log, to, frame, ticks);
        }
        if (frame != NULL && ep_lanes_is_new_to_window(to)) {
            report_from_frames(frame);
            describe_open_calls(ts, to);
        }
    }
    if (ended && left != NULL && left != to) {
        ep_lanes_end(log, left);
    }
    log->not_before = ticks;
    log->busy = busy;
}

static PyObject *switched(PyObject *before, PyObject *const *args, Py_ssize_t count);

static PyMethodDef switched_def = {"eventprof_switched",
                                   (PyCFunction)(void (*)(void))switched, METH_FASTCALL, NULL};

static bool
is_ours(PyObject *function)
{
    return PyCFunction_CheckExact(function) &&
           ((PyCFunctionObject *)function)->m_ml == &switched_def;
}

/* Puts back what was in before, on the calling thread. */
static void
take_out(void)
{
    PyObject *now = PyObject_CallNoArgs(get_trace);
    if (now != NULL && is_ours(now)) {
        PyObject *before = PyCFunction_GET_SELF(now);
        Py_XDECREF(PyObject_CallOneArg(set_trace, before != NULL ? before : Py_None));
    }
    Py_XDECREF(now);
    PyErr_Clear();
}

/* Of greenlet, after a switch: ("switch" or "throw", (origin, target)). */
static PyObject *
switched(PyObject *before, PyObject *const *args, Py_ssize_t count)
{
    PyObject *pair = count == 2 ? args[1] : NULL;
    if (!atomic_load_explicit(&recorded, memory_order_relaxed)) {
        uint32_t busy = ep_py_enter_own();
        take_out();
        ep_py_leave_own(busy);
    } else if (pair != NULL && PyTuple_CheckExact(pair) && PyTuple_GET_SIZE(pair) == 2) {
        ep_log *log = ep_log_mine();
        if (log != NULL) {
            if (ep_footprint_active()) {
                (void)ep_footprint_take(log, (uintptr_t)pair - EP_GC_HEADER_BYTES);
            }
            see_switch(log, PyTuple_GET_ITEM(pair, 0), PyTuple_GET_ITEM(pair, 1));
        }
    }
    if (before == NULL) {
        Py_RETURN_NONE;
    }
    PyObject *result = PyObject_Vectorcall(before, args, (size_t)count, NULL);
    if (result == NULL && ep_log_current != NULL) {
        ep_log_current->todo |= EP_TODO_STACKS;    /* greenlet takes out a function that raises: this one */
    }
    return result;
}

/* ---- In and out ------------------------------------------------------------------------------ */

/* On the calling thread. own: a recording begins, so the thread has no events yet that a greenlet may have
 * made: if it runs its own stack now, its own lane begins here. */
static void
put_in(ep_log *log, bool own)
{
    uint32_t busy = ep_py_enter_own();
    ep_py_exception saved = ep_py_exception_save();
    PyObject *before = PyObject_CallNoArgs(get_trace), *current = PyObject_CallNoArgs(get_current);
    PyObject *function = NULL;
    if (before != NULL && !is_ours(before)) {
        function = PyCFunction_New(&switched_def, before != Py_None ? before : NULL);
        Py_XDECREF(function != NULL ? PyObject_CallOneArg(set_trace, function) : NULL);
    }
    bool begun = current != NULL && begin_lanes(log, current, own && is(parent, current, Py_None));
    Py_XDECREF(function);
    Py_XDECREF(before);
    PyErr_Clear();
    ep_py_leave_own(busy);
    if (begun && ep_lanes_current(log)->stack != current) {
        see_switch(log, NULL, current);    /* our function was not in */
    }
    Py_XDECREF(current);
    ep_py_exception_restore(saved);
}

/* For EP_TODO_STACKS, before an event of the thread. */
static void
look_for_stacks(ep_log *log)
{
    if (log->busy != 0) {
        return;
    }
    log->todo &= ~EP_TODO_STACKS;
    if (!atomic_load_explicit(&recorded, memory_order_relaxed)) {
        return;
    }
    uint32_t busy = ep_py_enter_own();
    ep_py_exception saved = ep_py_exception_save();
    presence now = find_module();
    ep_py_exception_restore(saved);
    ep_py_leave_own(busy);
    if (now == LOADED) {
        put_in(log, false);
    } else if (now == LOADING) {
        log->todo |= EP_TODO_STACKS;
    }
}

void
ep_py_greenlets_adjust(ep_kind_set kinds)
{
    bool was = atomic_load_explicit(&recorded, memory_order_relaxed), is_now = kinds != 0;
    if (was == is_now) {
        return;
    }
    ep_py_look_for_greenlets();
    ep_py_look_for_stacks = look_for_stacks;
    atomic_store_explicit(&recorded, is_now, memory_order_relaxed);
    if (!is_now) {
        if (top_frame != NULL) {
            take_out();
        }
        return;
    }
    atomic_fetch_add(&recordings, 1);
    atomic_store_explicit(&recording_since_ns, ep_os_monotonic_ns(), memory_order_relaxed);
    if (!atomic_load_explicit(&ep_py_greenlets, memory_order_relaxed)) {
        return;
    }
    ep_log *log = ep_log_mine();
    if (log != NULL && find_module() == LOADED) {
        put_in(log, true);
        ep_engine_set_todo(EP_TODO_STACKS);
        log->todo &= ~EP_TODO_STACKS;
    } else {
        ep_engine_set_todo(EP_TODO_STACKS);
    }
}
