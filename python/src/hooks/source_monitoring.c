/* The source of all that code does, on 3.12 and later: sys.monitoring. monitoring_hooks.c has its
 * callbacks.
 *
 * Callbacks are objects with their own vectorcall: 2 to 4 ns an event cheaper than a builtin on
 * 3.12 and 3.13. They return None always: an exception would reach the program. All threads of the
 * interpreter are covered, present and future. */
#include "compat.h"

#include "errors.h"
#include "intern.h"
#include "monitoring.h"
#include "monitoring_hooks.h"
#include "source.h"

#if PY_VERSION_HEX >= 0x030C0000

static ep_py_monitoring_tool tool = {
    .name = "eventprof",
    .remedy = ", or pass backend='profile'",
    .first_id = 4,
    .id = -1,
};
static uint64_t active_kinds;
static bool active_gated;

/* The fast halves read the interpreter's frames, and the thread's state without a call. */
static bool
may_be_fast(void)
{
    return ep_py_sites_usable && (!EP_THREAD_STATE_IS_LOCAL || !ep_thread_state_is_asked());
}

static int
set_callback(PyObject *module, const ep_py_monitoring_row *event, bool in)
{
    static PyObject *callbacks[EP_PY_MONITORING_EVENTS][2];
    if (!in) {
        return ep_py_monitoring_take_out(module, &tool, event->name);
    }
    bool gated = ep_gate_is_on() || !may_be_fast();
    return ep_py_monitoring_put(module, &tool, event->name,
                                &callbacks[event - ep_py_monitoring_rows][gated],
                                event->callback[gated]);
}

/* Register what is wanted, then ask for it. The interpreter asks for C_RETURN and C_RAISE with CALL, and
 * refuses to do so without; their callbacks alone say whether they are wanted. */
static int
set_events(PyObject *module, uint64_t kinds)
{
    long mask = 0;
    for (size_t i = 0; i < EP_PY_MONITORING_EVENTS; i++) {
        const ep_py_monitoring_row *event = &ep_py_monitoring_rows[i];
        bool in = (event->kinds & kinds) != 0, was_in = (event->kinds & active_kinds) != 0;
        if ((in || was_in) && set_callback(module, event, in) < 0) {
            return -1;
        }
        bool by_itself = event->name[0] != 'C' || event->name[1] != '_';
        mask |= in && by_itself ? ep_py_monitoring_event(module, event->name) : 0;
    }
    return ep_py_monitoring_ask(module, &tool, mask);
}

/* Places that were switched off come back: of ours for a new set of recorders or for the next
 * holder of our id; other tools may see theirs once more, which is how the interpreter has it. */
static int
switch_on(PyObject *module)
{
    if (ep_py_monitoring_off_in == 0) {
        return 0;
    }
    int status = ep_py_monitoring_restart(module);
    ep_py_monitoring_off_in = status == 0 ? 0 : ep_py_monitoring_off_in;
    return status;
}

static void
take_out(PyObject *module)
{
    if (ep_py_monitoring_holds(module, &tool)) {
        /* Step by step whatever fails: no events, no callbacks, no id. */
        (void)ep_py_monitoring_ask(module, &tool, 0);
        PyErr_Clear();
        for (size_t i = 0; i < EP_PY_MONITORING_EVENTS; i++) {
            (void)set_callback(module, &ep_py_monitoring_rows[i], false);
            PyErr_Clear();
        }
        (void)switch_on(module);
        PyErr_Clear();
        ep_py_monitoring_free(module, &tool);
    }
    tool.id = -1;
    active_kinds = 0;
}

static int
adjust(uint64_t kinds)
{
    bool gated = ep_gate_is_on();
    bool again = ep_py_monitoring_off_in != 0 && ep_py_monitoring_off_in != ep_gate_generation();
    if (kinds == active_kinds && gated == active_gated && !again) {
        return 0;
    }
    PyObject *module = ep_py_monitoring_module();
    if (module == NULL) {
        return -1;
    }
    if (ep_py_monitoring_disable == NULL) {
        ep_py_monitoring_disable = PyObject_GetAttrString(module, "DISABLE");
    }
    if (ep_py_monitoring_disable == NULL) {
        Py_DECREF(module);
        return -1;
    }
    int status = 0;
    uint64_t had = active_kinds;
    if (kinds == 0) {
        take_out(module);
    } else if ((status = tool.id >= 0 ? 0 : ep_py_monitoring_take(module, &tool)) == 0) {
        status = set_events(module, kinds);
        active_kinds = kinds;
        active_gated = gated;
        /* After the callbacks: what comes back asks the new gate. */
        if (status == 0 && again) {
            status = switch_on(module);
        }
        if (status < 0 && had == 0) {
            ep_py_exception saved = ep_py_exception_save();
            take_out(module);
            ep_py_exception_restore(saved);
        }
    }
    Py_DECREF(module);
    return status;
}

static bool
owns(void)
{
    PyObject *module = active_kinds != 0 ? ep_py_monitoring_module() : NULL;
    bool ours = active_kinds == 0 || (module != NULL && ep_py_monitoring_holds(module, &tool));
    Py_XDECREF(module);
    PyErr_Clear();
    return ours;
}

bool
ep_py_monitoring_available(void)
{
    return true;
}

#else

static int
adjust(uint64_t kinds)
{
    (void)kinds;
    return 0;
}

static bool
owns(void)
{
    return true;
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
};
