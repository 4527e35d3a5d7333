/* Callbacks of sys.monitoring, whole: whatever is out of the ordinary. monitoring_hooks.c has the fast
 * halves. */
#include "monitoring_hooks.h"

#if PY_VERSION_HEX >= 0x030C0000

PyObject *ep_py_monitoring_disable;
_Atomic uint32_t ep_py_monitoring_off_in;

/* The same for a branch or jump: an int of its destination is made before that of its offset. */
static inline void
take_back_jump(ep_log *log, PyObject *code, PyObject *offset, PyObject *destination)
{
    if (!ep_footprint_active()) {
        return;
    }
#if PY_VERSION_HEX < 0x030E0000
    (void)ep_footprint_take(log, (uintptr_t)offset);
    (void)ep_footprint_take(log, (uintptr_t)destination);
#else
    (void)offset;
    (void)destination;
#endif
    (void)ep_footprint_take_tables(log, (PyCodeObject *)code);
}

/* `gated`, constant: the callbacks come twice, so that those without filters pay nothing for
 * them. (Those with filters do without, too: where the fast halves cannot be had.) */
static inline void
put_open(bool gated, ep_log *log, uint64_t ticks, ep_kind kind, uint32_t site)
{
    ticks = ep_log_not_before(log, ticks);
    if (gated && ep_gate_asks_calls()) {
        ep_gate_put_open(log, ticks, kind, site);
    } else {
        ep_log_put(log, ticks, kind, site);
    }
}

static inline void
put_close(bool gated, ep_log *log, uint64_t ticks, ep_kind kind, uint32_t name)
{
    ticks = ep_log_not_before(log, ticks);
    if (gated && ep_gate_asks_calls()) {
        ep_gate_put_close(log, ticks, kind, name);
    } else {
        ep_log_put(log, ticks, kind, name);
    }
}

PyObject *
ep_py_open_whole(PyObject *const *args, ep_kind kind, bool gated)
{
    uint64_t ticks = ep_clock_ticks();
    ep_log *log = ep_py_log_for(kind);
    /* Cython and Numba fire with something like a code object. */
    if (EP_LIKELY(log != NULL && PyCode_Check(args[0]))) {
        take_back_own(log, args[0], args[1]);
        if (gated && ep_gate_asks_names()) {
            uint32_t generation = ep_gate_generation();
            if (!ep_py_code_is_wanted((PyCodeObject *)args[0])) {
                return kind == EP_KIND_THROW ? Py_NewRef(Py_None) : switch_off(generation);
            }
        }
        uint32_t site = ep_py_code_site((PyCodeObject *)args[0], ep_py_frame_now());
        if (EP_LIKELY(site != EP_ID_SKIP)) {
            put_open(gated, log, ticks, kind, site);
        }
    }
    Py_RETURN_NONE;
}

PyObject *
ep_py_close_whole(PyObject *const *args, ep_kind kind, bool gated)
{
    uint64_t ticks = ep_clock_ticks();
    ep_log *log = ep_py_log_for(kind);
    if (EP_LIKELY(log != NULL && PyCode_Check(args[0]))) {
        take_back_own(log, args[0], args[1]);
        if (gated && ep_gate_asks_names()) {
            uint32_t generation = ep_gate_generation();
            if (!ep_py_code_is_wanted((PyCodeObject *)args[0])) {
                return kind == EP_KIND_UNWIND ? Py_NewRef(Py_None) : switch_off(generation);
            }
        }
        uint32_t name = ep_py_code_name((PyCodeObject *)args[0]);
        if (EP_LIKELY(name != EP_ID_SKIP)) {
            put_close(gated, log, ticks, kind, name);
        }
    }
    Py_RETURN_NONE;
}

PyObject *
ep_py_call_whole(PyObject *const *args, ep_kind kind, bool gated)
{
    ep_log *log = ep_py_log_for(kind);
    if (EP_UNLIKELY(log == NULL)) {
        Py_RETURN_NONE;
    }
    if (EP_LIKELY(PyCode_Check(args[0]))) {
        take_back_own(log, args[0], args[1]);
        if (gated && ep_gate_asks_names()) {
            /* Switched off for every callee, present and future: only where none can be wanted. */
            uint32_t generation = ep_gate_generation();
            ep_py_wish wish = ep_py_callee_wish((PyCodeObject *)args[0], args[2]);
            if (wish != EP_PY_WANTED) {
                return wish == EP_PY_UNWANTED ? Py_NewRef(Py_None) : switch_off(generation);
            }
        }
        if (is_python_function(args[2]) ||
            ep_py_call_never_ends((PyCodeObject *)args[0], args[1], args[2])) {
            Py_RETURN_NONE;
        }
        /* Not on entry: a call that is not recorded need not pay for the clock (10-15 ns on
         * some). */
        uint64_t ticks = ep_clock_ticks();
        uintptr_t instruction =
            (uintptr_t)ep_code_start((PyCodeObject *)args[0]) + (uintptr_t)ep_small_int(args[1]);
        uint32_t site = ep_py_callee_site(args[2], instruction);
        if (EP_LIKELY(site != EP_ID_SKIP)) {
            put_open(gated, log, ticks, kind, site);
        }
    }
    Py_RETURN_NONE;
}

PyObject *
ep_py_c_close_whole(PyObject *const *args, ep_kind kind, bool gated)
{
    uint64_t ticks = ep_clock_ticks();
    ep_log *log = ep_py_log_for(kind);
    if (EP_LIKELY(log != NULL && PyCode_Check(args[0]))) {
        take_back_own(log, args[0], args[1]);
        if (is_python_function(args[2]) ||
            ep_py_call_never_ends((PyCodeObject *)args[0], args[1], args[2]) ||
            (gated && ep_gate_asks_names() &&
             ep_py_callee_wish((PyCodeObject *)args[0], args[2]) != EP_PY_WANTED)) {
            Py_RETURN_NONE;
        }
        uint32_t name = ep_py_callee_name(args[2]);
        if (EP_LIKELY(name != EP_ID_SKIP &&
                      !ep_py_ends_own_call(log, (PyCodeObject *)args[0]))) {
            put_close(gated, log, ticks, kind, name);
        }
    }
    Py_RETURN_NONE;
}

/* ---- Callbacks inside of functions, whole ---------------------------------------------------- */

/* Sets *result and returns false where nobody wants what happens in the code. */
static inline bool
is_wanted_inside(PyObject *code, bool gated, PyObject **result)
{
    if (gated && ep_gate_asks_names()) {
        uint32_t generation = ep_gate_generation();
        if (!ep_py_code_is_wanted((PyCodeObject *)code)) {
            *result = switch_off(generation);
            return false;
        }
    }
    return true;
}

static inline bool
is_deep(bool gated, ep_log *log)
{
    return gated && ep_gate_asks_calls() && ep_gate_is_deep(log);
}

PyObject *
ep_py_line_whole(PyObject *const *args, ep_kind kind, bool gated)
{
    uint64_t ticks = ep_clock_ticks();
    ep_log *log = ep_py_log_for(kind);
    PyObject *result = Py_None;
    if (EP_LIKELY(log != NULL && PyCode_Check(args[0]))) {
        take_back_own(log, args[0], args[1]);
        if (!is_wanted_inside(args[0], gated, &result)) {
            return result;
        }
        ep_frame *frame = ep_py_frame_now();
        PyCodeObject *code = (PyCodeObject *)args[0];
        uint32_t site = frame != NULL && ep_frame_code(frame) == code
                            ? ep_py_place_site(code, ep_frame_instruction(frame))
                            : ep_py_line_site(code, (int)ep_small_int(args[1]));
        if (EP_LIKELY(site != EP_ID_SKIP && !is_deep(gated, log))) {
            ep_log_put(log, ep_log_not_before(log, ticks), kind, site);
        }
    }
    return Py_NewRef(result);
}

PyObject *
ep_py_instruction_whole(PyObject *const *args, ep_kind kind, bool gated)
{
    uint64_t ticks = ep_clock_ticks();
    ep_log *log = ep_py_log_for(kind);
    PyObject *result = Py_None;
    if (EP_LIKELY(log != NULL && PyCode_Check(args[0]))) {
        take_back_own(log, args[0], args[1]);
        if (!is_wanted_inside(args[0], gated, &result)) {
            return result;
        }
        uint32_t site =
            ep_py_opcode_site((PyCodeObject *)args[0], instruction_at(args[0], args[1]));
        if (EP_LIKELY(site != EP_ID_SKIP && !is_deep(gated, log))) {
            ep_log_put(log, ep_log_not_before(log, ticks), kind, site);
        }
    }
    return Py_NewRef(result);
}

PyObject *
ep_py_jump_whole(PyObject *const *args, ep_kind kind, bool gated)
{
    uint64_t ticks = ep_clock_ticks();
    ep_log *log = ep_py_log_for(kind);
    PyObject *result = Py_None;
    if (EP_LIKELY(log != NULL && PyCode_Check(args[0]))) {
        take_back_jump(log, args[0], args[1], args[2]);
        if (!is_wanted_inside(args[0], gated, &result)) {
            return result;
        }
        uint32_t site =
            ep_py_place_site((PyCodeObject *)args[0], instruction_at(args[0], args[1]));
        if (EP_LIKELY(site != EP_ID_SKIP && !is_deep(gated, log))) {
            ep_log_put_value_at(log, ep_ticks_halves(ep_log_not_before(log, ticks)), kind, site,
                                (uint64_t)ep_small_int(args[2]));
        }
    }
    return Py_NewRef(result);
}

/* Where an exception came out. From 3.13 on the offset of one that comes out of a call is that of the unit
 * before the call: of the last argument, which may be on another line. The frame knows. */
static uintptr_t
raising_instruction(PyObject *const *args)
{
    ep_frame *frame = ep_py_frame_now();
    bool known = frame != NULL && (PyObject *)ep_frame_code(frame) == args[0];
    return known ? ep_frame_instruction(frame) : instruction_at(args[0], args[1]);
}

PyObject *
ep_py_exception_whole(PyObject *const *args, ep_kind kind, bool gated)
{
    uint64_t ticks = ep_clock_ticks();
    ep_log *log = ep_py_log_for(kind);
    if (EP_LIKELY(log != NULL && PyCode_Check(args[0]))) {
        PyCodeObject *code = (PyCodeObject *)args[0];
        take_back_own(log, args[0], args[1]);
        if (gated && ep_gate_asks_names() && !ep_py_code_is_wanted(code)) {
            Py_RETURN_NONE;
        }
        /* The end of an iteration may come without: by its value. */
        PyObject *type = PyExceptionInstance_Check(args[2]) ? (PyObject *)Py_TYPE(args[2])
                                                            : PyExc_StopIteration;
        uintptr_t instruction = kind == EP_KIND_RAISE ? raising_instruction(args)
                                                      : instruction_at(args[0], args[1]);
        uint32_t site = ep_py_exception_site((PyTypeObject *)type, code, instruction);
        if (EP_LIKELY(site != EP_ID_SKIP && !is_deep(gated, log))) {
            ep_log_put(log, ep_log_not_before(log, ticks), kind, site);
        }
    }
    Py_RETURN_NONE;
}

#endif
