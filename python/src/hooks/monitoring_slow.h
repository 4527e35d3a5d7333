/* The slow callbacks of source_monitoring.c: with and without filters, for functions that are new, and
 * for all unusual cases. Only that file includes this header; monitoring_fast.h says why it is a header. */
#ifndef EP_MONITORING_SLOW_H
#define EP_MONITORING_SLOW_H

#include "compat.h"

#include "entry.h"
#include "footprint.h"
#include "intern.h"
#include "labels.h"
#include "source.h"
#include "task_events.h"

#if EP_HAS_MONITORING

/* Into the fast halves, with whatever they take to be inlined. */
#define INTO_CALLBACK inline __attribute__((always_inline))

/* A record of what is monitored is made before the first callback of a code object. 3.12 and 3.13 make an
 * int of the offset before each (or of the line). 3.14 makes no int or takes a free one: leave it alone
 * there (taking back lost 2,743 of the program's). */
static INTO_CALLBACK void
take_back_own_but_tables(ep_log *log, PyObject *code, PyObject *offset)
{
    if (!ep_footprint_active()) {
        return;
    }
    uintptr_t data = ep_code_event_table((PyCodeObject *)code);
#if EP_MONITORING_BOXES
    bool box = ep_footprint_take(log, (uintptr_t)offset);
    if (EP_UNLIKELY(ep_footprint_take(log, data)) && !box) {
        (void)ep_footprint_take(log, (uintptr_t)offset);
    }
#else
    (void)offset;
    (void)ep_footprint_take(log, data);
#endif
}

static inline void
take_back_own(ep_log *log, PyObject *code, PyObject *offset)
{
    take_back_own_but_tables(log, code, offset);
    if (EP_UNLIKELY(ep_footprint_has_tables())) {
        (void)ep_py_take_back_tables(log, (PyCodeObject *)code);
    }
}

/* Like take_back_own(), for a branch or jump: an int of its destination is made before that of its
 * offset. */
static inline void
take_back_jump(ep_log *log, PyObject *code, PyObject *offset, PyObject *destination)
{
    if (!ep_footprint_active()) {
        return;
    }
#if EP_MONITORING_BOXES
    (void)ep_footprint_take(log, (uintptr_t)offset);
    (void)ep_footprint_take(log, (uintptr_t)destination);
#else
    (void)offset;
    (void)destination;
#endif
    (void)ep_py_take_back_tables(log, (PyCodeObject *)code);
}

/* ---- Callbacks, slow. args: code, offset, ... ----------------------------------------------- */

/* A callback returns this where no event will be wanted: the interpreter then does not call it for that
 * place until restart_events(). Not for unwind and throw, which have no place. Made once, immortal. */
static PyObject *disable;
/* The gate's generation when that was last returned; 0: not since the last restart. Threads that write
 * it at once write the same: where it changes, none of them runs. */
static _Atomic uint32_t switched_off_in;

/* `generation`: the verdict's. A cold path may have let another thread change the gate. */
static inline PyObject *
switch_off(uint32_t generation)
{
    if (EP_UNLIKELY(generation != ep_gate_generation())) {
        Py_RETURN_NONE;
    }
    atomic_store_explicit(&switched_off_in, generation, memory_order_relaxed);
    return Py_NewRef(disable);
}

/* `gated` is a constant: each callback exists twice, so that the one without filters does not pay for
 * them. (The one with filters also runs without filters, where there are no fast halves.) */
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

/* Not into the fast halves below, whose registers they would take. */
#define EP_SLOW_HALF __attribute__((noinline))

static EP_SLOW_HALF PyObject *
open_slow(PyObject *const *args, ep_kind kind, bool gated)
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
        if (kind == EP_KIND_THROW) {
            ep_py_note_throw(log, (PyCodeObject *)args[0], ep_py_frame_now());
            if (!(ep_engine_kinds() & EP_KIND_BIT(EP_KIND_THROW))) {
                Py_RETURN_NONE;
            }
        }
        uint32_t site = ep_py_open_site(log, (PyCodeObject *)args[0], ep_py_frame_now());
        if (EP_LIKELY(site != EP_ID_SKIP)) {
            ep_py_labels_see(log, ticks);
            put_open(gated, log, ticks, kind, site);
        }
    }
    Py_RETURN_NONE;
}

static EP_SLOW_HALF PyObject *
close_slow(PyObject *const *args, ep_kind kind, bool gated)
{
    uint64_t ticks = ep_clock_ticks();
    ep_log *log = ep_py_log_for(kind);
    if (EP_LIKELY(log != NULL && PyCode_Check(args[0]))) {
        take_back_own(log, args[0], args[1]);
        PyCodeObject *code = (PyCodeObject *)args[0];
        bool began_by_throw = ep_py_end_throw(log, code, ep_py_frame_now(), kind);
        if (gated && ep_gate_asks_names()) {
            uint32_t generation = ep_gate_generation();
            if (!ep_py_code_is_wanted(code)) {
                return kind == EP_KIND_UNWIND ? Py_NewRef(Py_None) : switch_off(generation);
            }
        }
        if (kind == EP_KIND_UNWIND && !began_by_throw &&
            ep_py_begin_was_not_reported(log, code, ep_py_frame_now(), NULL)) {
            Py_RETURN_NONE;
        }
        uint32_t name = ep_py_code_name(code);
        if (EP_LIKELY(name != EP_ID_SKIP)) {
            put_close(gated, log, ticks, kind, name);
        }
    }
    Py_RETURN_NONE;
}

static EP_SLOW_HALF PyObject *
call_slow(PyObject *const *args, ep_kind kind, bool gated)
{
    ep_log *log = ep_py_log_for(kind);
    if (EP_UNLIKELY(log == NULL)) {
        Py_RETURN_NONE;
    }
    if (EP_LIKELY(PyCode_Check(args[0]))) {
        take_back_own(log, args[0], args[1]);
        if (gated && ep_gate_asks_names()) {
            /* This switches the place off for every callee, also for later ones: only if none can be
             * wanted. */
            uint32_t generation = ep_gate_generation();
            ep_py_wish wish = ep_py_callee_wish((PyCodeObject *)args[0], args[2]);
            if (wish != EP_PY_WANTED) {
                return wish == EP_PY_UNWANTED ? Py_NewRef(Py_None) : switch_off(generation);
            }
        }
        if (ep_py_is_python_function(args[2]) ||
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
            ep_py_labels_see(log, ticks);
            put_open(gated, log, ticks, kind, site);
        }
    }
    Py_RETURN_NONE;
}

static EP_SLOW_HALF PyObject *
c_close_slow(PyObject *const *args, ep_kind kind, bool gated)
{
    uint64_t ticks = ep_clock_ticks();
    ep_log *log = ep_py_log_for(kind);
    if (EP_LIKELY(log != NULL && PyCode_Check(args[0]))) {
        take_back_own(log, args[0], args[1]);
        if (ep_py_is_python_function(args[2]) ||
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

/* ---- Callbacks inside of functions, slow ---------------------------------------------------- */

/* Sets *result and returns false if no recorder wants events of this code. */
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

static inline uintptr_t
instruction_at(PyObject *code, PyObject *offset)
{
    return (uintptr_t)ep_code_start((PyCodeObject *)code) + (uintptr_t)ep_small_int(offset);
}

/* args: code, line. */
static EP_SLOW_HALF PyObject *
line_slow(PyObject *const *args, ep_kind kind, bool gated)
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

/* args: code, offset. */
static EP_SLOW_HALF PyObject *
instruction_slow(PyObject *const *args, ep_kind kind, bool gated)
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

/* args: code, offset, offset of the destination. */
static EP_SLOW_HALF PyObject *
jump_slow(PyObject *const *args, ep_kind kind, bool gated)
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

/* Where an exception came out. From 3.13 on, if it comes out of a call, the offset is of the code unit
 * before the call, which belongs to the last argument and may be on another line. The frame has the
 * right one. */
static uintptr_t
raising_instruction(PyObject *const *args)
{
    ep_frame *frame = ep_py_frame_now();
    bool known = frame != NULL && (PyObject *)ep_frame_code(frame) == args[0];
    return known ? ep_frame_instruction(frame) : instruction_at(args[0], args[1]);
}

/* args: code, offset, exception. Not switched off: exceptions have no place. */
static EP_SLOW_HALF PyObject *
exception_slow(PyObject *const *args, ep_kind kind, bool gated)
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

#endif
