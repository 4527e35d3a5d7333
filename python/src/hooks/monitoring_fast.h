/* The fast halves of the callbacks of source_monitoring.c, which alone includes this. A header, so that
 * all of the callbacks is one object: a call into another object makes the fast halves save registers. */
#ifndef EP_MONITORING_FAST_H
#define EP_MONITORING_FAST_H

#include "monitoring_slow.h"

#if EP_HAS_MONITORING

/* ---- Callbacks, the fast halves -------------------------------------------------------------- */

/* These handle all events but the first of a function. They call no function, so no register is saved on
 * the stack: 9 to 25 instructions of 80 to 110 less. Unusual cases go to the slow callback, which
 * begins anew. It may do so because the fast half changes nothing before it writes the record. (A record
 * that was taken back is gone, and is not found twice.) */

/* The log, if it can be written to at once, with ticks of the counter. */
static inline ep_log *
fast_log(void)
{
    ep_log *log = ep_log_current;
    bool plain = EP_LIKELY(log != NULL) && EP_LIKELY(!ep_py_todo(log)) &&
                 EP_LIKELY(ep_clock_current == EP_CLOCK_COUNTER);
    return plain ? log : NULL;
}

/* Like fast_log(), while labels are in use. For an opening call the labels must equal the previous call's.
 * Not a part of fast_log(): there it would cost every event three instructions. */
static inline ep_log *
labelled_log(bool opens)
{
    ep_log *log = ep_log_current;
    bool plain = log != NULL && log->todo == EP_TODO_LABELS && ep_clock_current == EP_CLOCK_COUNTER &&
                 (!opens || ep_py_labels_same(log, ep_thread_state_unasked()));
    return plain ? log : NULL;
}

/* Whether the event is the program's. Objects that resemble code objects (Cython's, Numba's) have no
 * name and no site under their address, so a caller that looks there first need not check the type. */
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
static EP_SLOW_HALF PyObject *
open_lookup_slow(ep_log *log, uintptr_t callee, uintptr_t instruction, ep_kind kind,
                 PyObject *const *args)
{
    uint32_t site = ep_call_site_find_recent(&log->recent, callee, instruction);
    if (EP_UNLIKELY(site == 0)) {
        return kind == EP_KIND_C_CALL ? call_slow(args, kind, false)
                                      : open_slow(args, kind, false);
    }
    ep_log_put_at(log, ep_clock_counter_halves(), kind, site);
    Py_RETURN_NONE;
}

static EP_SLOW_HALF PyObject *
close_lookup_slow(ep_log *log, uintptr_t callee, ep_kind kind, PyObject *const *args)
{
    uint32_t name = ep_name_find_recent(&log->recent, callee);
    if (EP_UNLIKELY(name == 0)) {
        return kind == EP_KIND_C_RETURN ? c_close_slow(args, kind, false)
                                        : close_slow(args, kind, false);
    }
    ep_log_put_at(log, ep_clock_counter_halves(), kind, name);
    Py_RETURN_NONE;
}

static INTO_CALLBACK PyObject *
open_at_once(ep_log *log, PyObject *const *args, ep_kind kind, bool blocks)
{
    PyCodeObject *code = (PyCodeObject *)args[0];
    if (EP_UNLIKELY(log == NULL || !take_back_own_fast(log, code, args[1], blocks))) {
        return open_slow(args, kind, false);
    }
    ep_frame *frame = ep_frame_of_program(ep_frame_current(ep_thread_state_unasked()));
    ep_frame *caller = EP_LIKELY(frame != NULL) ? ep_frame_previous(frame) : NULL;
    uintptr_t instruction = EP_LIKELY(caller != NULL) ? ep_frame_instruction(caller) : 0;
    uint32_t site = ep_call_site_recent(&log->recent, (uintptr_t)code, instruction);
    if (EP_UNLIKELY(site == 0)) {
        return open_lookup_slow(log, (uintptr_t)code, instruction, kind, args);
    }
    ep_log_put_at(log, ep_clock_counter_halves(), kind, site);
    Py_RETURN_NONE;
}

static EP_SLOW_HALF PyObject *
open_labelled(PyObject *const *args, ep_kind kind, bool blocks)
{
    return open_at_once(labelled_log(true), args, kind, blocks);
}

static INTO_CALLBACK PyObject *
on_open(PyObject *const *args, ep_kind kind, bool blocks)
{
    ep_log *log = fast_log();
    return EP_LIKELY(log != NULL) ? open_at_once(log, args, kind, blocks)
                                  : open_labelled(args, kind, blocks);
}

static INTO_CALLBACK PyObject *
close_at_once(ep_log *log, PyObject *const *args, ep_kind kind, bool blocks)
{
    PyCodeObject *code = (PyCodeObject *)args[0];
    if (EP_UNLIKELY(log == NULL || !take_back_own_fast(log, code, args[1], blocks))) {
        return close_slow(args, kind, false);
    }
    if (kind == EP_KIND_UNWIND &&
        ep_py_begin_was_not_reported(
            log, code, ep_frame_of_program(ep_frame_current(ep_thread_state_unasked())), NULL)) {
        Py_RETURN_NONE;
    }
    uint32_t name = ep_name_recent(&log->recent, (uintptr_t)code);
    if (EP_UNLIKELY(name == 0)) {
        return close_lookup_slow(log, (uintptr_t)code, kind, args);
    }
    ep_log_put_at(log, ep_clock_counter_halves(), kind, name);
    Py_RETURN_NONE;
}

static EP_SLOW_HALF PyObject *
close_labelled(PyObject *const *args, ep_kind kind, bool blocks)
{
    return close_at_once(labelled_log(false), args, kind, blocks);
}

static INTO_CALLBACK PyObject *
on_close(PyObject *const *args, ep_kind kind, bool blocks)
{
    ep_log *log = fast_log();
    return EP_LIKELY(log != NULL) ? close_at_once(log, args, kind, blocks)
                                  : close_labelled(args, kind, blocks);
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
call_at_once(ep_log *log, ep_callee callee, PyObject *const *args, ep_kind kind, bool blocks)
{
    PyCodeObject *code = (PyCodeObject *)args[0];
    if (EP_UNLIKELY(log == NULL || !PyCode_Check(code) ||
                    !take_back_own_fast(log, code, args[1], blocks))) {
        return call_slow(args, kind, false);
    }
    uintptr_t instruction = (uintptr_t)ep_code_start(code) + (uintptr_t)ep_small_int(args[1]);
    uint32_t site = ep_call_site_recent(&log->recent, callee.key, instruction);
    if (EP_UNLIKELY(site == 0)) {
        return open_lookup_slow(log, callee.key, instruction, kind, args);
    }
    ep_log_put_at(log, ep_clock_counter_halves(), kind, site);
    Py_RETURN_NONE;
}

static EP_SLOW_HALF PyObject *
call_labelled(PyObject *const *args, ep_kind kind, bool blocks)
{
    ep_callee callee = fast_callee(args[2]);
    return call_at_once(callee.key != 0 ? labelled_log(true) : NULL, callee, args, kind, blocks);
}

static INTO_CALLBACK PyObject *
on_call(PyObject *const *args, ep_kind kind, bool blocks)
{
    if (Py_IS_TYPE(args[2], &PyFunction_Type) && !blocks) {
        Py_RETURN_NONE;    /* PY_START follows */
    }
    ep_callee callee = fast_callee(args[2]);
    ep_log *log = callee.key != 0 ? fast_log() : NULL;
    return EP_LIKELY(log != NULL) ? call_at_once(log, callee, args, kind, blocks)
                                  : call_labelled(args, kind, blocks);
}

static INTO_CALLBACK PyObject *
c_close_at_once(ep_log *log, ep_callee callee, PyObject *const *args, ep_kind kind, bool blocks)
{
    PyCodeObject *code = (PyCodeObject *)args[0];
    if (EP_UNLIKELY(log == NULL || !PyCode_Check(code) || log->own_calls != 0 ||
                    !take_back_own_fast(log, code, args[1], blocks))) {
        return c_close_slow(args, kind, false);
    }
    uint32_t name =
        callee.name != 0 ? callee.name : ep_name_recent(&log->recent, callee.key);
    if (EP_UNLIKELY(name == 0)) {
        return close_lookup_slow(log, callee.key, kind, args);
    }
    ep_log_put_at(log, ep_clock_counter_halves(), kind, name);
    Py_RETURN_NONE;
}

static EP_SLOW_HALF PyObject *
c_close_labelled(PyObject *const *args, ep_kind kind, bool blocks)
{
    ep_callee callee = fast_callee(args[2]);
    return c_close_at_once(callee.key != 0 ? labelled_log(false) : NULL, callee, args, kind, blocks);
}

static INTO_CALLBACK PyObject *
on_c_close(PyObject *const *args, ep_kind kind, bool blocks)
{
    ep_callee callee = fast_callee(args[2]);
    ep_log *log = callee.key != 0 ? fast_log() : NULL;
    return EP_LIKELY(log != NULL) ? c_close_at_once(log, callee, args, kind, blocks)
                                  : c_close_labelled(args, kind, blocks);
}

/* Not among what the thread found last. */
static EP_SLOW_HALF PyObject *
place_lookup_slow(ep_log *log, uintptr_t instruction, ep_kind kind, PyObject *const *args)
{
    uint32_t site = ep_block_site_find_recent(&log->recent, instruction);
    if (EP_UNLIKELY(site == 0)) {
        return line_slow(args, kind, false);
    }
    ep_log_put_at(log, ep_clock_counter_halves(), kind, site);
    Py_RETURN_NONE;
}

/* Beside recorded blocks: what is taken back takes calls. */
static EP_SLOW_HALF PyObject *
line_beside_blocks(ep_log *log, PyObject *const *args, ep_kind kind)
{
    if (EP_UNLIKELY(!PyCode_Check(args[0]))) {
        Py_RETURN_NONE;
    }
    take_back_own(log, args[0], args[1]);
    uintptr_t instruction = ep_frame_instruction(ep_frame_current(ep_thread_state_unasked()));
    uint32_t site = ep_block_site_recent(&log->recent, instruction);
    if (EP_UNLIKELY(site == 0)) {
        return place_lookup_slow(log, instruction, kind, args);
    }
    ep_log_put_at(log, ep_clock_counter_halves(), kind, site);
    Py_RETURN_NONE;
}

static INTO_CALLBACK PyObject *
on_line_begun(PyObject *const *args, ep_kind kind)
{
    ep_log *log = fast_log();
    if (EP_UNLIKELY(log == NULL)) {
        return line_slow(args, kind, false);
    }
    if (ep_footprint_active()) {
        return line_beside_blocks(log, args, kind);
    }
    /* A line begins in the innermost frame, which is the program's. */
    uintptr_t instruction = ep_frame_instruction(ep_frame_current(ep_thread_state_unasked()));
    uint32_t site = ep_block_site_recent(&log->recent, instruction);
    if (EP_UNLIKELY(site == 0)) {
        return place_lookup_slow(log, instruction, kind, args);
    }
    ep_log_put_at(log, ep_clock_counter_halves(), kind, site);
    Py_RETURN_NONE;
}

static EP_SLOW_HALF PyObject *
opcode_lookup_slow(ep_log *log, uintptr_t instruction, ep_kind kind, PyObject *const *args)
{
    uint32_t site = ep_call_site_find_recent(&log->recent, EP_KEY_OPCODE, instruction);
    if (EP_UNLIKELY(site == 0)) {
        return instruction_slow(args, kind, false);
    }
    ep_log_put_at(log, ep_clock_counter_halves(), kind, site);
    Py_RETURN_NONE;
}

static EP_SLOW_HALF PyObject *
instruction_beside_blocks(ep_log *log, PyObject *const *args, ep_kind kind)
{
    if (EP_UNLIKELY(!PyCode_Check(args[0]))) {
        Py_RETURN_NONE;
    }
    take_back_own(log, args[0], args[1]);
    return opcode_lookup_slow(log, instruction_at(args[0], args[1]), kind, args);
}

static INTO_CALLBACK PyObject *
on_instruction_begun(PyObject *const *args, ep_kind kind)
{
    ep_log *log = fast_log();
    if (EP_UNLIKELY(log == NULL)) {
        return instruction_slow(args, kind, false);
    }
    if (ep_footprint_active()) {
        return instruction_beside_blocks(log, args, kind);
    }
    uintptr_t instruction = instruction_at(args[0], args[1]);
    uint32_t site = ep_call_site_recent(&log->recent, EP_KEY_OPCODE, instruction);
    if (EP_UNLIKELY(site == 0)) {
        return opcode_lookup_slow(log, instruction, kind, args);
    }
    ep_log_put_at(log, ep_clock_counter_halves(), kind, site);
    Py_RETURN_NONE;
}

#endif

#endif
