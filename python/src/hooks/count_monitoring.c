/* Counters' own callbacks of sys.monitoring (3.12+). They have their own tool id, so recorders and
 * counters do not disturb each other. */
#include "count_calls.h"

#include "errors.h"
#include "monitoring.h"

#if EP_HAS_MONITORING

static PyObject *disable;       /* immortal */
static bool switched_off;       /* some place was, since the last restart */

static EP_COLD PyObject *
switch_off(void)
{
    switched_off = true;    /* threads write the same at once; cleared while none of them runs */
    return Py_NewRef(disable);
}

/* ---- Callbacks: args: code, offset, ... ------------------------------------------------------- */

#define INTO_CALLBACK inline __attribute__((always_inline))
#define SLOW_HALF __attribute__((noinline))

/* What the interpreter allocated for this event: as in source_monitoring.c. */
static INTO_CALLBACK void
take_back_own(ep_count_thread *thread, PyObject *code, PyObject *offset)
{
    if (thread->blocks[0].address == 0) {
        return;
    }
#if EP_MONITORING_BOXES
    bool box = ep_count_take_block(thread, (uintptr_t)offset);
#else
    bool box = true;
    (void)offset;
#endif
    if (EP_UNLIKELY(thread->blocks[0].address != 0) && PyCode_Check(code) &&
        ep_count_take_block(thread, ep_code_event_table((PyCodeObject *)code)) && !box) {
        (void)ep_count_take_block(thread, (uintptr_t)offset);
    }
    ep_count_keep_blocks(thread);
}

/* Of a thread that may not be fast. */
static void
take_back_own_slow(PyObject *code, PyObject *offset)
{
    ep_count_thread *thread = ep_count_current;
    if (thread != NULL && thread->generation == ep_count_now_generation() && thread->calling == 0) {
        take_back_own(thread, code, offset);
    }
}

static SLOW_HALF PyObject *
open_slow(PyObject *const *args, bool is_slice, bool has_place)
{
    take_back_own_slow(args[0], args[1]);
    if (EP_LIKELY(PyCode_Check(args[0])) &&
        ep_py_count_open((PyCodeObject *)args[0], is_slice) == EP_PY_COUNT_NEVER && has_place) {
        return switch_off();
    }
    Py_RETURN_NONE;
}

static SLOW_HALF PyObject *
close_slow(PyObject *const *args, bool has_place)
{
    take_back_own_slow(args[0], args[1]);
    if (EP_LIKELY(PyCode_Check(args[0])) &&
        ep_py_count_close((PyCodeObject *)args[0]) == EP_PY_COUNT_NEVER && has_place) {
        return switch_off();
    }
    Py_RETURN_NONE;
}

static SLOW_HALF PyObject *
call_slow(PyObject *const *args)
{
    take_back_own_slow(args[0], args[1]);
    if (EP_LIKELY(PyCode_Check(args[0])) &&
        !ep_py_call_never_ends((PyCodeObject *)args[0], args[1], args[2]) &&
        ep_py_count_c_open((PyCodeObject *)args[0], args[2]) == EP_PY_COUNT_NEVER) {
        return switch_off();
    }
    Py_RETURN_NONE;
}

static SLOW_HALF PyObject *
c_close_slow(PyObject *const *args)
{
    take_back_own_slow(args[0], args[1]);
    if (EP_LIKELY(PyCode_Check(args[0])) &&
        !ep_py_call_never_ends((PyCodeObject *)args[0], args[1], args[2])) {
        ep_py_count_c_close((PyCodeObject *)args[0], args[2]);
    }
    Py_RETURN_NONE;
}

/* Objects that resemble code objects (Cython's, Numba's) are never in the thread's table, and so need no
 * check here. */
static INTO_CALLBACK PyObject *
on_open(PyObject *const *args, bool is_slice, bool has_place)
{
    ep_count_thread *thread = ep_count_current;
    if (EP_LIKELY(ep_count_is_fast(thread))) {
        take_back_own(thread, args[0], args[1]);
        if (EP_LIKELY(ep_py_count_open_fast(thread, (uintptr_t)args[0], (uintptr_t)args[0], is_slice))) {
            Py_RETURN_NONE;
        }
    }
    return open_slow(args, is_slice, has_place);
}

static INTO_CALLBACK PyObject *
on_close(PyObject *const *args, bool has_place)
{
    ep_count_thread *thread = ep_count_current;
    if (EP_LIKELY(ep_count_is_fast(thread))) {
        take_back_own(thread, args[0], args[1]);
        if (EP_LIKELY(ep_py_count_close_fast(thread, (uintptr_t)args[0]))) {
            Py_RETURN_NONE;
        }
    }
    return close_slow(args, has_place);
}

static INTO_CALLBACK PyObject *
on_call(PyObject *const *args)
{
    ep_count_thread *thread = ep_count_current;
    if (EP_LIKELY(ep_count_is_fast(thread))) {
        take_back_own(thread, args[0], args[1]);
        PyObject *callable = args[2];
        if (Py_IS_TYPE(callable, &PyFunction_Type) ||
            (Py_IS_TYPE(callable, &PyMethod_Type) &&
             Py_IS_TYPE(PyMethod_GET_FUNCTION(callable), &PyFunction_Type))) {
            Py_RETURN_NONE;    /* PY_START follows */
        }
        uintptr_t known = ep_py_count_known_of(callable);
        if (EP_LIKELY(known != 0) &&
            EP_LIKELY(ep_py_count_open_fast(thread, known, (uintptr_t)callable, false))) {
            Py_RETURN_NONE;
        }
    }
    return call_slow(args);
}

static INTO_CALLBACK PyObject *
on_c_close(PyObject *const *args)
{
    ep_count_thread *thread = ep_count_current;
    if (EP_LIKELY(ep_count_is_fast(thread))) {
        take_back_own(thread, args[0], args[1]);
        if (EP_LIKELY(ep_py_count_close_fast(thread, (uintptr_t)args[2]))) {
            Py_RETURN_NONE;
        }
    }
    return c_close_slow(args);
}

#define CALLBACK(name, ...)                                                                     \
    static PyObject *name(PyObject *self, PyObject *const *args, size_t count, PyObject *names) \
    {                                                                                           \
        (void)self;                                                                             \
        (void)count;                                                                            \
        (void)names;                                                                            \
        return __VA_ARGS__;                                                                     \
    }
CALLBACK(on_start, on_open(args, false, true))
CALLBACK(on_resume, on_open(args, true, true))
CALLBACK(on_throw, on_open(args, true, false))
CALLBACK(on_return, on_close(args, true))
CALLBACK(on_yield, on_close(args, true))
CALLBACK(on_unwind, on_close(args, false))
CALLBACK(on_c_call, on_call(args))
CALLBACK(on_c_return, on_c_close(args))
CALLBACK(on_c_raise, on_c_close(args))

static const struct event {
    const char *name;
    bool is_c;
    vectorcallfunc callback;
} events[] = {
    {"PY_START", false, on_start},
    {"PY_RESUME", false, on_resume},
    {"PY_THROW", false, on_throw},
    {"PY_RETURN", false, on_return},
    {"PY_YIELD", false, on_yield},
    {"PY_UNWIND", false, on_unwind},
    {"CALL", true, on_c_call},
    {"C_RETURN", true, on_c_return},    /* these two need CALL */
    {"C_RAISE", true, on_c_raise},
};
#define EVENT_COUNT (sizeof events / sizeof *events)

/* ---- In and out ------------------------------------------------------------------------------ */

static ep_py_monitoring_tool tool = {
    .name = "eventprof counters",
    .remedy = "",
    .first_id = 3,
    .id = -1,
    .asked = -1,
};
static bool has_calls, has_c_calls;

/* anew: the id may have callbacks of its former holder. */
static int
set_events(PyObject *module, bool calls, bool c_calls, bool anew)
{
    static PyObject *callbacks[EVENT_COUNT];
    long mask = 0;
    for (size_t i = 0; i < EVENT_COUNT; i++) {
        if (events[i].is_c ? c_calls : calls) {
            long number = ep_py_monitoring_event(module, events[i].name);
            if (number < 0 || ep_py_monitoring_put(module, &tool, events[i].name, &callbacks[i],
                                                   events[i].callback) < 0) {
                return -1;
            }
            mask |= number;
        } else if (anew && ep_py_monitoring_take_out(module, &tool, events[i].name) < 0) {
            return -1;
        }
    }
    return ep_py_monitoring_ask(module, &tool, mask);
}

static int
switch_on(PyObject *module)
{
    switched_off = false;
    int status = ep_py_monitoring_restart(module);
    switched_off = switched_off || status < 0;
    return status;
}

static void
take_out(PyObject *module)
{
    if (tool.id >= 0) {
        ep_py_monitoring_leave(module, &tool);
        if (switched_off) {
            (void)switch_on(module);
            PyErr_Clear();
        }
    }
    has_calls = has_c_calls = false;
}

static int
put_in(PyObject *module, bool calls, bool c_calls)
{
    bool anew;
    if (ep_py_monitoring_take(module, &tool, &anew) < 0) {
        return -1;
    }
    bool again = switched_off || anew;
    if (calls == has_calls && c_calls == has_c_calls && !again) {
        return 0;
    }
    int status = set_events(module, calls, c_calls, anew);
    has_calls = calls;
    has_c_calls = c_calls;
    return status == 0 && again ? switch_on(module) : status;
}

int
ep_py_count_monitor(bool calls, bool c_calls)
{
    bool had = has_calls || has_c_calls;
    if (!calls && !c_calls && !had) {
        return 0;
    }
    PyObject *module = ep_py_monitoring_module();
    if (module == NULL) {
        return -1;
    }
    if (disable == NULL && (disable = PyObject_GetAttrString(module, "DISABLE")) == NULL) {
        Py_DECREF(module);
        return -1;
    }
    int status = 0;
    if (!calls && !c_calls) {
        take_out(module);
    } else if ((status = put_in(module, calls, c_calls)) < 0 && !had) {
        ep_py_exception saved = ep_py_exception_save();
        take_out(module);
        ep_py_exception_restore(saved);
    }
    Py_DECREF(module);
    return status;
}

bool
ep_py_count_monitor_owns(void)
{
    bool is_in = has_calls || has_c_calls;
    PyObject *module = is_in ? ep_py_monitoring_module() : NULL;
    bool ours = !is_in || (module != NULL && tool.id >= 0 && ep_py_monitoring_look(module, &tool));
    Py_XDECREF(module);
    PyErr_Clear();
    return ours;
}

uint64_t
ep_py_count_monitor_interruptions(void)
{
    return tool.interruptions;
}

#else

int
ep_py_count_monitor(bool calls, bool c_calls)
{
    (void)calls;
    (void)c_calls;
    return 0;
}

bool
ep_py_count_monitor_owns(void)
{
    return true;
}

uint64_t
ep_py_count_monitor_interruptions(void)
{
    return 0;
}

#endif
