/* The source of all that code does, on 3.12 and later: sys.monitoring.
 *
 * Callbacks are objects with their own vectorcall: 2 to 4 ns an event cheaper than a builtin on
 * 3.12 and 3.13. They return None always: an exception would reach the program. All threads of the
 * interpreter are covered, present and future. */
#include "compat.h"

#include "entry.h"
#include "footprint.h"
#include "intern.h"
#include "errors.h"
#include "monitoring.h"
#include "source.h"

#if PY_VERSION_HEX >= 0x030C0000

/* Into the fast halves, with whatever they take to be inlined. */
#define INTO_CALLBACK inline __attribute__((always_inline))

#if PY_VERSION_HEX >= 0x030E0000
/* As pycore_instruments.h has it, which extensions cannot include. */
#define EP_LOCAL_EVENTS (PY_VERSION_HEX >= 0x030F0000 ? 16 : 11)
typedef struct monitoring_data {
    uint8_t local_monitors[EP_LOCAL_EVENTS], active_monitors[EP_LOCAL_EVENTS];
    uint8_t *tools;
    uintptr_t tool_versions[8];
    void *lines;
    uint8_t *line_tools, *per_instruction_opcodes, *per_instruction_tools;
} monitoring_data;
#else
typedef _PyCoMonitoringData monitoring_data;
#endif

bool
ep_py_take_back_tables(ep_log *log, PyCodeObject *code)
{
    const monitoring_data *data = (const monitoring_data *)code->_co_monitoring;
    if (data == NULL) {
        return false;
    }
    /* The last that is made first. */
    const void *const own[] = {data->per_instruction_tools,
                               data->per_instruction_opcodes,
                               data->line_tools,
                               data->lines,
                               data->tools,
                               data};
    bool taken = false;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        uintptr_t address = (uintptr_t)own[i];
        if (EP_UNLIKELY(address == ep_log_address_before(log)) && address != 0) {
            taken = ep_footprint_take_far(log, address) || taken;
        }
    }
    return taken;
}

/* A record of what is monitored is made before the first callback of a code object. 3.12 and 3.13 make an
 * int of the offset before each (or of the line). 3.14 makes no int or takes a free one: leave it alone
 * there (taking back lost 2,743 of the program's). */
static INTO_CALLBACK void
take_back_own_but_tables(ep_log *log, PyObject *code, PyObject *offset)
{
    if (!ep_footprint_active()) {
        return;
    }
    uintptr_t data = (uintptr_t)((PyCodeObject *)code)->_co_monitoring;
#if PY_VERSION_HEX < 0x030E0000
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
    (void)ep_py_take_back_tables(log, (PyCodeObject *)code);
}

/* ---- Callbacks, whole. args: code, offset, ... ----------------------------------------------- */

/* Returned from where nothing will be wanted: the interpreter then leaves that place alone, until
 * restart_events(). Not for unwind and throw, which have no place. Made once, immortal. */
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

/* Not into the fast halves below, whose registers they would take. */
#define EP_WHOLE __attribute__((noinline))

static EP_WHOLE PyObject *
open_whole(PyObject *const *args, ep_kind kind, bool gated)
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
            ep_py_note_throw(log, (PyCodeObject *)args[0]);
        }
        uint32_t site = ep_py_code_site((PyCodeObject *)args[0], ep_py_frame_now());
        if (EP_LIKELY(site != EP_ID_SKIP)) {
            put_open(gated, log, ticks, kind, site);
        }
    }
    Py_RETURN_NONE;
}

static EP_WHOLE PyObject *
close_whole(PyObject *const *args, ep_kind kind, bool gated)
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
        if (kind == EP_KIND_UNWIND &&
            ep_py_is_untold(log, (PyCodeObject *)args[0], ep_py_frame_now(), NULL)) {
            Py_RETURN_NONE;
        }
        uint32_t name = ep_py_code_name((PyCodeObject *)args[0]);
        if (EP_LIKELY(name != EP_ID_SKIP)) {
            put_close(gated, log, ticks, kind, name);
        }
    }
    Py_RETURN_NONE;
}

/* CALL fires for Python callees, too: PY_START follows. 3.12 and 3.13 pass them as bound methods as
 * well (137,200 of 485,562 CALLs in deltablue), and end those that `with` calls (__exit__) by a
 * C_RETURN. */
static inline bool
is_python_function(PyObject *callable)
{
    return Py_IS_TYPE(ep_py_unbound(callable), &PyFunction_Type);
}

static EP_WHOLE PyObject *
call_whole(PyObject *const *args, ep_kind kind, bool gated)
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

static EP_WHOLE PyObject *
c_close_whole(PyObject *const *args, ep_kind kind, bool gated)
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

static inline uintptr_t
instruction_at(PyObject *code, PyObject *offset)
{
    return (uintptr_t)ep_code_start((PyCodeObject *)code) + (uintptr_t)ep_small_int(offset);
}

/* args: code, line. */
static EP_WHOLE PyObject *
line_whole(PyObject *const *args, ep_kind kind, bool gated)
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
static EP_WHOLE PyObject *
instruction_whole(PyObject *const *args, ep_kind kind, bool gated)
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
static EP_WHOLE PyObject *
jump_whole(PyObject *const *args, ep_kind kind, bool gated)
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

/* args: code, offset, exception. Not switched off: exceptions have no place. */
static EP_WHOLE PyObject *
exception_whole(PyObject *const *args, ep_kind kind, bool gated)
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

/* ---- Callbacks, the fast halves -------------------------------------------------------------- */

/* What all but first sights need, without a call on the way, so that nothing is saved on the stack:
 * 9 to 25 instructions of 80 to 110 less. Whatever is out of the ordinary goes to the whole
 * callback, which begins anew: until the record is put, nothing here has changed anything that it
 * would do again (what was taken back is gone, and is not found twice). */

/* The log, if it can be written to at once, with ticks of the counter. */
static inline ep_log *
fast_log(void)
{
    ep_log *log = ep_log_current;
    bool plain = EP_LIKELY(log != NULL) && EP_LIKELY(!log->fresh) &&
                 EP_LIKELY(ep_clock_current == EP_CLOCK_COUNTER);
    return plain ? log : NULL;
}

/* Whether what happened is the program's: something like a code object (Cython's, Numba's) has no
 * name and no site under its address, so whoever looks there first need not ask. */
static INTO_CALLBACK bool
take_back_own_fast(ep_log *log, PyCodeObject *code, PyObject *offset, bool blocks)
{
    if (blocks) {
        if (EP_UNLIKELY(!PyCode_Check(code) || ep_footprint_has_tables())) {
            return false;
        }
        take_back_own_but_tables(log, (PyObject *)code, offset);
    }
    return true;
}

/* Not among what the thread found last. */
static EP_WHOLE PyObject *
open_by_table(ep_log *log, uintptr_t callee, uintptr_t instruction, ep_kind kind,
              PyObject *const *args)
{
    uint32_t site = ep_call_site_find_recent(&log->recent, callee, instruction);
    if (EP_UNLIKELY(site == 0)) {
        return kind == EP_KIND_C_CALL ? call_whole(args, kind, false)
                                      : open_whole(args, kind, false);
    }
    ep_log_put_at(log, ep_clock_counter_halves(), kind, site);
    Py_RETURN_NONE;
}

static EP_WHOLE PyObject *
close_by_table(ep_log *log, uintptr_t callee, ep_kind kind, PyObject *const *args)
{
    uint32_t name = ep_name_find_recent(&log->recent, callee);
    if (EP_UNLIKELY(name == 0)) {
        return kind == EP_KIND_C_RETURN ? c_close_whole(args, kind, false)
                                        : close_whole(args, kind, false);
    }
    ep_log_put_at(log, ep_clock_counter_halves(), kind, name);
    Py_RETURN_NONE;
}

static INTO_CALLBACK PyObject *
on_open(PyObject *const *args, ep_kind kind, bool blocks)
{
    ep_log *log = fast_log();
    PyCodeObject *code = (PyCodeObject *)args[0];
    if (EP_UNLIKELY(log == NULL || !take_back_own_fast(log, code, args[1], blocks))) {
        return open_whole(args, kind, false);
    }
    ep_frame *frame = ep_frame_of_program(ep_frame_current(ep_thread_state_unasked()));
    ep_frame *caller = EP_LIKELY(frame != NULL) ? ep_frame_previous(frame) : NULL;
    uintptr_t instruction = EP_LIKELY(caller != NULL) ? ep_frame_instruction(caller) : 0;
    uint32_t site = ep_call_site_recent(&log->recent, (uintptr_t)code, instruction);
    if (EP_UNLIKELY(site == 0)) {
        return open_by_table(log, (uintptr_t)code, instruction, kind, args);
    }
    ep_log_put_at(log, ep_clock_counter_halves(), kind, site);
    Py_RETURN_NONE;
}

static INTO_CALLBACK PyObject *
on_close(PyObject *const *args, ep_kind kind, bool blocks)
{
    ep_log *log = fast_log();
    PyCodeObject *code = (PyCodeObject *)args[0];
    if (EP_UNLIKELY(log == NULL || !take_back_own_fast(log, code, args[1], blocks))) {
        return close_whole(args, kind, false);
    }
    if (kind == EP_KIND_UNWIND &&
        ep_py_is_untold(log, code, ep_frame_of_program(ep_frame_current(ep_thread_state_unasked())),
                        NULL)) {
        Py_RETURN_NONE;
    }
    uint32_t name = ep_name_recent(&log->recent, (uintptr_t)code);
    if (EP_UNLIKELY(name == 0)) {
        return close_by_table(log, (uintptr_t)code, kind, args);
    }
    ep_log_put_at(log, ep_clock_counter_halves(), kind, name);
    Py_RETURN_NONE;
}

/* As ep_py_callee() for builtin functions, methods, and classes that live for ever; key 0: something
 * else. Such a class has its name here. */
static inline ep_callee
fast_callee(PyObject *callable)
{
    PyTypeObject *type = Py_TYPE(callable);
    ep_callee callee = {.key = 0};
    if (type == &PyCFunction_Type) {
        PyMethodDef *method = ((PyCFunctionObject *)callable)->m_ml;
        callee.key = EP_LIKELY(method != ep_py_new_method) ? (uintptr_t)method : 0;
    } else if (type == &PyMethodDescr_Type) {
        callee.key = (uintptr_t)((PyMethodDescrObject *)callable)->d_method;
    } else if (type == &PyType_Type &&
               !(((PyTypeObject *)callable)->tp_flags & Py_TPFLAGS_HEAPTYPE)) {
        callee.name = ep_name_find((uintptr_t)callable, EP_TAG_TYPE);
        callee.key = callee.name != 0 ? ep_py_key_of_name(callee.name) : 0;
    }
    return callee;
}

static INTO_CALLBACK PyObject *
on_call(PyObject *const *args, ep_kind kind, bool blocks)
{
    PyCodeObject *code = (PyCodeObject *)args[0];
    if (Py_IS_TYPE(args[2], &PyFunction_Type) && !blocks) {
        Py_RETURN_NONE;    /* PY_START follows */
    }
    ep_callee callee = fast_callee(args[2]);
    ep_log *log = callee.key != 0 ? fast_log() : NULL;
    if (EP_UNLIKELY(log == NULL || !PyCode_Check(code) ||
                    !take_back_own_fast(log, code, args[1], blocks))) {
        return call_whole(args, kind, false);
    }
    uintptr_t instruction = (uintptr_t)ep_code_start(code) + (uintptr_t)ep_small_int(args[1]);
    uint32_t site = ep_call_site_recent(&log->recent, callee.key, instruction);
    if (EP_UNLIKELY(site == 0)) {
        return open_by_table(log, callee.key, instruction, kind, args);
    }
    ep_log_put_at(log, ep_clock_counter_halves(), kind, site);
    Py_RETURN_NONE;
}

static INTO_CALLBACK PyObject *
on_c_close(PyObject *const *args, ep_kind kind, bool blocks)
{
    PyCodeObject *code = (PyCodeObject *)args[0];
    ep_callee callee = fast_callee(args[2]);
    ep_log *log = callee.key != 0 ? fast_log() : NULL;
    if (EP_UNLIKELY(log == NULL || !PyCode_Check(code) || log->own_calls != 0 ||
                    !take_back_own_fast(log, code, args[1], blocks))) {
        return c_close_whole(args, kind, false);
    }
    uint32_t name =
        callee.name != 0 ? callee.name : ep_name_recent(&log->recent, callee.key);
    if (EP_UNLIKELY(name == 0)) {
        return close_by_table(log, callee.key, kind, args);
    }
    ep_log_put_at(log, ep_clock_counter_halves(), kind, name);
    Py_RETURN_NONE;
}

/* Not among what the thread found last. */
static EP_WHOLE PyObject *
place_by_table(ep_log *log, uintptr_t instruction, ep_kind kind, PyObject *const *args)
{
    uint32_t site = ep_block_site_find_recent(&log->recent, instruction);
    if (EP_UNLIKELY(site == 0)) {
        return line_whole(args, kind, false);
    }
    ep_log_put_at(log, ep_clock_counter_halves(), kind, site);
    Py_RETURN_NONE;
}

/* Beside recorded blocks: what is taken back takes calls. */
static EP_WHOLE PyObject *
line_beside_blocks(ep_log *log, PyObject *const *args, ep_kind kind)
{
    if (EP_UNLIKELY(!PyCode_Check(args[0]))) {
        Py_RETURN_NONE;
    }
    take_back_own(log, args[0], args[1]);
    uintptr_t instruction = ep_frame_instruction(ep_frame_current(ep_thread_state_unasked()));
    uint32_t site = ep_block_site_recent(&log->recent, instruction);
    if (EP_UNLIKELY(site == 0)) {
        return place_by_table(log, instruction, kind, args);
    }
    ep_log_put_at(log, ep_clock_counter_halves(), kind, site);
    Py_RETURN_NONE;
}

static INTO_CALLBACK PyObject *
on_line_begun(PyObject *const *args, ep_kind kind)
{
    ep_log *log = fast_log();
    if (EP_UNLIKELY(log == NULL)) {
        return line_whole(args, kind, false);
    }
    if (ep_footprint_active()) {
        return line_beside_blocks(log, args, kind);
    }
    /* A line begins in the innermost frame, which is the program's. */
    uintptr_t instruction = ep_frame_instruction(ep_frame_current(ep_thread_state_unasked()));
    uint32_t site = ep_block_site_recent(&log->recent, instruction);
    if (EP_UNLIKELY(site == 0)) {
        return place_by_table(log, instruction, kind, args);
    }
    ep_log_put_at(log, ep_clock_counter_halves(), kind, site);
    Py_RETURN_NONE;
}

static EP_WHOLE PyObject *
opcode_by_table(ep_log *log, uintptr_t instruction, ep_kind kind, PyObject *const *args)
{
    uint32_t site = ep_call_site_find_recent(&log->recent, EP_KEY_OPCODE, instruction);
    if (EP_UNLIKELY(site == 0)) {
        return instruction_whole(args, kind, false);
    }
    ep_log_put_at(log, ep_clock_counter_halves(), kind, site);
    Py_RETURN_NONE;
}

static EP_WHOLE PyObject *
instruction_beside_blocks(ep_log *log, PyObject *const *args, ep_kind kind)
{
    if (EP_UNLIKELY(!PyCode_Check(args[0]))) {
        Py_RETURN_NONE;
    }
    take_back_own(log, args[0], args[1]);
    return opcode_by_table(log, instruction_at(args[0], args[1]), kind, args);
}

static INTO_CALLBACK PyObject *
on_instruction_begun(PyObject *const *args, ep_kind kind)
{
    ep_log *log = fast_log();
    if (EP_UNLIKELY(log == NULL)) {
        return instruction_whole(args, kind, false);
    }
    if (ep_footprint_active()) {
        return instruction_beside_blocks(log, args, kind);
    }
    uintptr_t instruction = instruction_at(args[0], args[1]);
    uint32_t site = ep_call_site_recent(&log->recent, EP_KEY_OPCODE, instruction);
    if (EP_UNLIKELY(site == 0)) {
        return opcode_by_table(log, instruction, kind, args);
    }
    ep_log_put_at(log, ep_clock_counter_halves(), kind, site);
    Py_RETURN_NONE;
}

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
    static EP_WHOLE PyObject *name##_among_blocks(PyObject *const *args)                       \
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
CALLBACK(on_throw, open_whole, EP_KIND_THROW, false)
FAST_CALLBACK(on_return, on_close, EP_KIND_RETURN)
FAST_CALLBACK(on_yield, on_close, EP_KIND_YIELD)
FAST_CALLBACK(on_unwind, on_close, EP_KIND_UNWIND)
FAST_CALLBACK(on_c_call, on_call, EP_KIND_C_CALL)
FAST_CALLBACK(on_c_return, on_c_close, EP_KIND_C_RETURN)
CALLBACK(on_c_raise, c_close_whole, EP_KIND_C_EXCEPTION, false)

CALLBACK(on_line, on_line_begun, EP_KIND_LINE)
CALLBACK(on_instruction, on_instruction_begun, EP_KIND_INSTRUCTION)
CALLBACK(on_branch, jump_whole, EP_KIND_BRANCH, false)
CALLBACK(on_jump, jump_whole, EP_KIND_JUMP, false)
CALLBACK(on_raise, exception_whole, EP_KIND_RAISE, false)
CALLBACK(on_reraise, exception_whole, EP_KIND_RERAISE, false)
CALLBACK(on_handled, exception_whole, EP_KIND_HANDLED, false)
CALLBACK(on_stop_iteration, exception_whole, EP_KIND_STOP_ITERATION, false)

CALLBACK(on_start_gated, open_whole, EP_KIND_CALL, true)
CALLBACK(on_resume_gated, open_whole, EP_KIND_RESUME, true)
CALLBACK(on_throw_gated, open_whole, EP_KIND_THROW, true)
CALLBACK(on_return_gated, close_whole, EP_KIND_RETURN, true)
CALLBACK(on_yield_gated, close_whole, EP_KIND_YIELD, true)
CALLBACK(on_unwind_gated, close_whole, EP_KIND_UNWIND, true)
CALLBACK(on_c_call_gated, call_whole, EP_KIND_C_CALL, true)
CALLBACK(on_c_return_gated, c_close_whole, EP_KIND_C_RETURN, true)
CALLBACK(on_c_raise_gated, c_close_whole, EP_KIND_C_EXCEPTION, true)

CALLBACK(on_line_gated, line_whole, EP_KIND_LINE, true)
CALLBACK(on_instruction_gated, instruction_whole, EP_KIND_INSTRUCTION, true)
CALLBACK(on_branch_gated, jump_whole, EP_KIND_BRANCH, true)
CALLBACK(on_jump_gated, jump_whole, EP_KIND_JUMP, true)
CALLBACK(on_raise_gated, exception_whole, EP_KIND_RAISE, true)
CALLBACK(on_reraise_gated, exception_whole, EP_KIND_RERAISE, true)
CALLBACK(on_handled_gated, exception_whole, EP_KIND_HANDLED, true)
CALLBACK(on_stop_iteration_gated, exception_whole, EP_KIND_STOP_ITERATION, true)

/* Bit numbers moved in 3.14: events go by name. */
static const struct event {
    const char *name;
    ep_kind_set kinds;
    vectorcallfunc callback[2];    /* [1]: gated */
} events[] = {
    {"PY_START", EP_KIND_BIT(EP_KIND_CALL), {on_start, on_start_gated}},
    {"PY_RESUME", EP_KIND_BIT(EP_KIND_RESUME), {on_resume, on_resume_gated}},
    {"PY_THROW", EP_KIND_BIT(EP_KIND_THROW), {on_throw, on_throw_gated}},
    {"PY_RETURN", EP_KIND_BIT(EP_KIND_RETURN), {on_return, on_return_gated}},
    {"PY_YIELD", EP_KIND_BIT(EP_KIND_YIELD), {on_yield, on_yield_gated}},
    {"PY_UNWIND", EP_KIND_BIT(EP_KIND_UNWIND), {on_unwind, on_unwind_gated}},
    {"CALL", ep_kinds_c, {on_c_call, on_c_call_gated}},
    /* These two need CALL. */
    {"C_RETURN", EP_KIND_BIT(EP_KIND_C_RETURN), {on_c_return, on_c_return_gated}},
    {"C_RAISE", EP_KIND_BIT(EP_KIND_C_EXCEPTION), {on_c_raise, on_c_raise_gated}},
    {"LINE", EP_KIND_BIT(EP_KIND_LINE), {on_line, on_line_gated}},
    {"INSTRUCTION", EP_KIND_BIT(EP_KIND_INSTRUCTION), {on_instruction, on_instruction_gated}},
#if PY_VERSION_HEX < 0x030E0000
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
 * refuses to do so without; their callbacks alone say whether they are wanted. */
static int
set_events(PyObject *module, ep_kind_set kinds)
{
    long mask = 0;
    for (size_t i = 0; i < EVENT_COUNT; i++) {
        bool in = (events[i].kinds & kinds) != 0, was_in = (events[i].kinds & active_kinds) != 0;
        if ((in || was_in) && set_callback(module, &events[i], in) < 0) {
            return -1;
        }
        bool by_itself = events[i].name[0] != 'C' || events[i].name[1] != '_';
        mask |= in && by_itself ? ep_py_monitoring_event(module, events[i].name) : 0;
    }
    return ep_py_monitoring_ask(module, &tool, mask);
}

/* Places that were switched off come back: of ours for a new set of recorders or for the next
 * holder of our id; other tools may see theirs once more, which is how the interpreter has it. */
static int
switch_on(PyObject *module)
{
    if (switched_off_in == 0) {
        return 0;
    }
    int status = ep_py_monitoring_restart(module);
    switched_off_in = status == 0 ? 0 : switched_off_in;
    return status;
}

static void
take_out(PyObject *module)
{
    if (ep_py_monitoring_holds(module, &tool)) {
        /* Step by step whatever fails: no events, no callbacks, no id. */
        (void)ep_py_monitoring_ask(module, &tool, 0);
        PyErr_Clear();
        for (size_t i = 0; i < EVENT_COUNT; i++) {
            (void)set_callback(module, &events[i], false);
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
adjust(ep_kind_set kinds)
{
    bool gated = ep_gate_is_on();
    bool again = switched_off_in != 0 && switched_off_in != ep_gate_generation();
    if (kinds == active_kinds && gated == active_gated && !again) {
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

bool
ep_py_monitoring_available(void)
{
    return false;
}

bool
ep_py_take_back_tables(ep_log *log, PyCodeObject *code)
{
    (void)log;
    (void)code;
    return false;
}

#endif

const ep_source ep_source_monitoring = {
    .name = "monitoring",
    .kinds = EP_KINDS_CODE,
    .adjust = adjust,
    .owns = owns,
};
