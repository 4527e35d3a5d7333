/* The source of all that code does, on 3.12 and later: sys.monitoring.
 *
 * Callbacks are objects with their own vectorcall: 2 to 4 ns an event cheaper than a builtin on
 * 3.12 and 3.13. They return None always: an exception would reach the program. All threads of the
 * interpreter are covered, present and future. */
#include "compat.h"

#include "errors.h"
#include "monitoring.h"
#include "monitoring_fast.h"

#if EP_HAS_MONITORING

#define CALLBACK_BY(name, result)                                                               \
    static PyObject *name(PyObject *self, PyObject *const *args, size_t count, PyObject *names) \
    {                                                                                           \
        (void)self;                                                                             \
        (void)count;                                                                            \
        (void)names;                                                                            \
        return result;                                                                          \
    }
#define CALLBACK(name, handler, ...) CALLBACK_BY(name, handler(args, __VA_ARGS__))
/* Twice: while blocks are recorded, and without the registers that their part takes. */
#define FAST_CALLBACK(name, handler, kind)                                                     \
    static EP_SLOW_HALF PyObject *name##_among_blocks(PyObject *const *args)                   \
    {                                                                                          \
        return handler(args, kind, true);                                                      \
    }                                                                                          \
    static INTO_CALLBACK PyObject *name##_fast(PyObject *const *args)                          \
    {                                                                                          \
        return ep_footprint_active() ? name##_among_blocks(args) : handler(args, kind, false); \
    }                                                                                          \
    CALLBACK_BY(name, name##_fast(args))
FAST_CALLBACK(on_start, on_open, EP_KIND_CALL)
FAST_CALLBACK(on_resume, on_open, EP_KIND_RESUME)
CALLBACK(on_throw, open_slow, EP_KIND_THROW, false)
FAST_CALLBACK(on_return, on_close, EP_KIND_RETURN)
FAST_CALLBACK(on_yield, on_close, EP_KIND_YIELD)
FAST_CALLBACK(on_unwind, on_close, EP_KIND_UNWIND)
FAST_CALLBACK(on_c_call, on_call, EP_KIND_C_CALL)
FAST_CALLBACK(on_c_return, on_c_close, EP_KIND_C_RETURN)
CALLBACK(on_c_raise, c_close_slow, EP_KIND_C_EXCEPTION, false)

CALLBACK(on_line, on_line_begun, EP_KIND_LINE)
CALLBACK(on_instruction, on_instruction_begun, EP_KIND_INSTRUCTION)
CALLBACK(on_branch, jump_slow, EP_KIND_BRANCH, false)
CALLBACK(on_jump, jump_slow, EP_KIND_JUMP, false)
CALLBACK(on_raise, exception_slow, EP_KIND_RAISE, false)
CALLBACK(on_reraise, exception_slow, EP_KIND_RERAISE, false)
CALLBACK(on_handled, exception_slow, EP_KIND_HANDLED, false)
CALLBACK(on_stop_iteration, exception_slow, EP_KIND_STOP_ITERATION, false)

CALLBACK(on_start_gated, open_slow, EP_KIND_CALL, true)
CALLBACK(on_resume_gated, open_slow, EP_KIND_RESUME, true)
CALLBACK(on_throw_gated, open_slow, EP_KIND_THROW, true)
CALLBACK(on_return_gated, close_slow, EP_KIND_RETURN, true)
CALLBACK(on_yield_gated, close_slow, EP_KIND_YIELD, true)
CALLBACK(on_unwind_gated, close_slow, EP_KIND_UNWIND, true)
CALLBACK(on_c_call_gated, call_slow, EP_KIND_C_CALL, true)
CALLBACK(on_c_return_gated, c_close_slow, EP_KIND_C_RETURN, true)
CALLBACK(on_c_raise_gated, c_close_slow, EP_KIND_C_EXCEPTION, true)

CALLBACK(on_line_gated, line_slow, EP_KIND_LINE, true)
CALLBACK(on_instruction_gated, instruction_slow, EP_KIND_INSTRUCTION, true)
CALLBACK(on_branch_gated, jump_slow, EP_KIND_BRANCH, true)
CALLBACK(on_jump_gated, jump_slow, EP_KIND_JUMP, true)
CALLBACK(on_raise_gated, exception_slow, EP_KIND_RAISE, true)
CALLBACK(on_reraise_gated, exception_slow, EP_KIND_RERAISE, true)
CALLBACK(on_handled_gated, exception_slow, EP_KIND_HANDLED, true)
CALLBACK(on_stop_iteration_gated, exception_slow, EP_KIND_STOP_ITERATION, true)

/* Bit numbers moved in 3.14: events go by name. */
static const struct event {
    const char *name;
    ep_kind_set kinds;
    vectorcallfunc callback[2];    /* [1]: gated */
} events[] = {
    {"PY_START", EP_KIND_BIT(EP_KIND_CALL), {on_start, on_start_gated}},
    {"PY_RESUME", EP_KIND_BIT(EP_KIND_RESUME), {on_resume, on_resume_gated}},
    /* Which unwinds count depends on throws (entry.h). */
    {"PY_THROW", EP_KIND_BIT(EP_KIND_THROW) | EP_KIND_BIT(EP_KIND_UNWIND), {on_throw, on_throw_gated}},
    {"PY_RETURN", EP_KIND_BIT(EP_KIND_RETURN), {on_return, on_return_gated}},
    {"PY_YIELD", EP_KIND_BIT(EP_KIND_YIELD), {on_yield, on_yield_gated}},
    {"PY_UNWIND", EP_KIND_BIT(EP_KIND_UNWIND), {on_unwind, on_unwind_gated}},
    {"CALL", ep_kinds_c, {on_c_call, on_c_call_gated}},
    /* These two need CALL. */
    {"C_RETURN", EP_KIND_BIT(EP_KIND_C_RETURN), {on_c_return, on_c_return_gated}},
    {"C_RAISE", EP_KIND_BIT(EP_KIND_C_EXCEPTION), {on_c_raise, on_c_raise_gated}},
    {"LINE", EP_KIND_BIT(EP_KIND_LINE), {on_line, on_line_gated}},
    {"INSTRUCTION", EP_KIND_BIT(EP_KIND_INSTRUCTION), {on_instruction, on_instruction_gated}},
#if EP_BRANCH_IS_ONE_EVENT
    {"BRANCH", EP_KIND_BIT(EP_KIND_BRANCH), {on_branch, on_branch_gated}},
#else
    {"BRANCH_LEFT", EP_KIND_BIT(EP_KIND_BRANCH), {on_branch, on_branch_gated}},
    {"BRANCH_RIGHT", EP_KIND_BIT(EP_KIND_BRANCH), {on_branch, on_branch_gated}},
#endif
    {"JUMP", EP_KIND_BIT(EP_KIND_JUMP), {on_jump, on_jump_gated}},
    {"RAISE", EP_KIND_BIT(EP_KIND_RAISE), {on_raise, on_raise_gated}},
    {"RERAISE", EP_KIND_BIT(EP_KIND_RERAISE), {on_reraise, on_reraise_gated}},
    {"EXCEPTION_HANDLED", EP_KIND_BIT(EP_KIND_HANDLED), {on_handled, on_handled_gated}},
    {"STOP_ITERATION", EP_KIND_BIT(EP_KIND_STOP_ITERATION), {on_stop_iteration, on_stop_iteration_gated}},
};
#define EVENT_COUNT (sizeof events / sizeof *events)

/* ---- In and out ------------------------------------------------------------------------------ */

static ep_py_monitoring_tool tool = {
    .name = "eventprof",
    .remedy = ", or pass backend='profile'",
    .first_id = 4,
    .id = -1,
    .asked = -1,
};
static ep_kind_set active_kinds;
static bool active_gated;

/* The fast halves read the interpreter's frames, and the thread's state without a call. */
static bool
may_be_fast(void)
{
    return ep_py_sites_usable && (!EP_THREAD_STATE_IS_LOCAL || !ep_thread_state_is_asked());
}

static int
set_callback(PyObject *module, const struct event *event, bool in)
{
    static PyObject *callbacks[EVENT_COUNT][2];
    if (!in) {
        return ep_py_monitoring_take_out(module, &tool, event->name);
    }
    bool gated = ep_gate_is_on() || !may_be_fast();
    return ep_py_monitoring_put(module, &tool, event->name, &callbacks[event - events][gated],
                                event->callback[gated]);
}

/* Register what is wanted, then ask for it. The interpreter asks for C_RETURN and C_RAISE with CALL, and
 * refuses to do so without; their callbacks alone say whether they are wanted. anew: the id may have
 * callbacks of its former holder, also for events that are not wanted. */
static int
set_events(PyObject *module, ep_kind_set kinds, bool anew)
{
    long mask = 0;
    for (size_t i = 0; i < EVENT_COUNT; i++) {
        bool in = (events[i].kinds & kinds) != 0, was_in = (events[i].kinds & active_kinds) != 0;
        if ((in || was_in || anew) && set_callback(module, &events[i], in) < 0) {
            return -1;
        }
        bool by_itself = events[i].name[0] != 'C' || events[i].name[1] != '_';
        mask |= in && by_itself ? ep_py_monitoring_event(module, events[i].name) : 0;
    }
    return ep_py_monitoring_ask(module, &tool, mask);
}

/* Switches on again all places that were switched off: ours, for a new set of recorders or for the next
 * holder of our id; those that a former holder of our id switched off; and those of other tools, which the
 * interpreter cannot tell apart. */
static int
switch_on(PyObject *module)
{
    int status = ep_py_monitoring_restart(module);
    switched_off_in = status == 0 ? 0 : switched_off_in;
    return status;
}

static void
take_out(PyObject *module)
{
    if (tool.id >= 0) {
        ep_py_monitoring_leave(module, &tool);
        if (switched_off_in != 0) {
            (void)switch_on(module);
            PyErr_Clear();
        }
    }
    active_kinds = 0;
}

static int
put_in(PyObject *module, ep_kind_set kinds, bool gated, bool again)
{
    bool anew;
    if (ep_py_monitoring_take(module, &tool, &anew) < 0) {
        return -1;
    }
    if (kinds == active_kinds && gated == active_gated && !again && !anew) {
        return 0;
    }
    int status = set_events(module, kinds, anew);
    active_kinds = kinds;
    active_gated = gated;
    /* After the callbacks: what comes back asks the new gate. */
    return status == 0 && (again || anew) ? switch_on(module) : status;
}

static int
adjust(ep_kind_set kinds)
{
    bool gated = ep_gate_is_on();
    bool again = switched_off_in != 0 && switched_off_in != ep_gate_generation();
    if (kinds == 0 && active_kinds == 0) {
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
    ep_kind_set had = active_kinds;
    if (kinds == 0) {
        take_out(module);
    } else if ((status = put_in(module, kinds, gated, again)) < 0 && had == 0) {
        ep_py_exception saved = ep_py_exception_save();
        take_out(module);
        ep_py_exception_restore(saved);
    }
    Py_DECREF(module);
    return status;
}

static bool
owns(void)
{
    PyObject *module = active_kinds != 0 ? ep_py_monitoring_module() : NULL;
    bool ours = active_kinds == 0 ||
                (module != NULL && tool.id >= 0 && ep_py_monitoring_look(module, &tool));
    Py_XDECREF(module);
    PyErr_Clear();
    return ours;
}

static uint64_t
interruptions(void)
{
    return tool.interruptions;
}

bool
ep_py_monitoring_available(void)
{
    return true;
}

#else

static int
adjust(ep_kind_set kinds)
{
    (void)kinds;
    return 0;
}

static bool
owns(void)
{
    return true;
}

static uint64_t
interruptions(void)
{
    return 0;
}

bool
ep_py_monitoring_available(void)
{
    return false;
}

#endif

const ep_source ep_source_monitoring = {
    .name = "monitoring",
    .kinds = EP_KINDS_CODE,
    .adjust = adjust,
    .owns = owns,
    .interruptions = interruptions,
};
