/* Callbacks of sys.monitoring, the fast halves, and which event has which. */
#include "monitoring_hooks.h"

#if PY_VERSION_HEX >= 0x030C0000

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
static EP_PY_INTO_CALLBACK bool
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
        return kind == EP_KIND_C_CALL ? ep_py_call_whole(args, kind, false)
                                      : ep_py_open_whole(args, kind, false);
    }
    ep_log_put_at(log, ep_clock_counter_halves(), kind, site);
    Py_RETURN_NONE;
}

static EP_WHOLE PyObject *
close_by_table(ep_log *log, uintptr_t callee, ep_kind kind, PyObject *const *args)
{
    uint32_t name = ep_name_find_recent(&log->recent, callee);
    if (EP_UNLIKELY(name == 0)) {
        return kind == EP_KIND_C_RETURN ? ep_py_c_close_whole(args, kind, false)
                                        : ep_py_close_whole(args, kind, false);
    }
    ep_log_put_at(log, ep_clock_counter_halves(), kind, name);
    Py_RETURN_NONE;
}

static EP_PY_INTO_CALLBACK PyObject *
on_open(PyObject *const *args, ep_kind kind, bool blocks)
{
    ep_log *log = fast_log();
    PyCodeObject *code = (PyCodeObject *)args[0];
    if (EP_UNLIKELY(log == NULL || !take_back_own_fast(log, code, args[1], blocks))) {
        return ep_py_open_whole(args, kind, false);
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

static EP_PY_INTO_CALLBACK PyObject *
on_close(PyObject *const *args, ep_kind kind, bool blocks)
{
    ep_log *log = fast_log();
    PyCodeObject *code = (PyCodeObject *)args[0];
    if (EP_UNLIKELY(log == NULL || !take_back_own_fast(log, code, args[1], blocks))) {
        return ep_py_close_whole(args, kind, false);
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

static EP_PY_INTO_CALLBACK PyObject *
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
        return ep_py_call_whole(args, kind, false);
    }
    uintptr_t instruction = (uintptr_t)ep_code_start(code) + (uintptr_t)ep_small_int(args[1]);
    uint32_t site = ep_call_site_recent(&log->recent, callee.key, instruction);
    if (EP_UNLIKELY(site == 0)) {
        return open_by_table(log, callee.key, instruction, kind, args);
    }
    ep_log_put_at(log, ep_clock_counter_halves(), kind, site);
    Py_RETURN_NONE;
}

static EP_PY_INTO_CALLBACK PyObject *
on_c_close(PyObject *const *args, ep_kind kind, bool blocks)
{
    PyCodeObject *code = (PyCodeObject *)args[0];
    ep_callee callee = fast_callee(args[2]);
    ep_log *log = callee.key != 0 ? fast_log() : NULL;
    if (EP_UNLIKELY(log == NULL || !PyCode_Check(code) || log->own_calls != 0 ||
                    !take_back_own_fast(log, code, args[1], blocks))) {
        return ep_py_c_close_whole(args, kind, false);
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
        return ep_py_line_whole(args, kind, false);
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

static EP_PY_INTO_CALLBACK PyObject *
on_line_begun(PyObject *const *args, ep_kind kind)
{
    ep_log *log = fast_log();
    if (EP_UNLIKELY(log == NULL)) {
        return ep_py_line_whole(args, kind, false);
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
        return ep_py_instruction_whole(args, kind, false);
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

static EP_PY_INTO_CALLBACK PyObject *
on_instruction_begun(PyObject *const *args, ep_kind kind)
{
    ep_log *log = fast_log();
    if (EP_UNLIKELY(log == NULL)) {
        return ep_py_instruction_whole(args, kind, false);
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
    static EP_PY_INTO_CALLBACK PyObject *name##_fast(PyObject *const *args)                    \
    {                                                                                          \
        return ep_footprint_active() ? name##_among_blocks(args) : handler(args, kind, false); \
    }                                                                                          \
    CALLBACK_BY(name, name##_fast(args))
FAST_CALLBACK(on_start, on_open, EP_KIND_CALL)
FAST_CALLBACK(on_resume, on_open, EP_KIND_RESUME)
CALLBACK(on_throw, ep_py_open_whole, EP_KIND_THROW, false)
FAST_CALLBACK(on_return, on_close, EP_KIND_RETURN)
FAST_CALLBACK(on_yield, on_close, EP_KIND_YIELD)
FAST_CALLBACK(on_unwind, on_close, EP_KIND_UNWIND)
FAST_CALLBACK(on_c_call, on_call, EP_KIND_C_CALL)
FAST_CALLBACK(on_c_return, on_c_close, EP_KIND_C_RETURN)
CALLBACK(on_c_raise, ep_py_c_close_whole, EP_KIND_C_EXCEPTION, false)

CALLBACK(on_line, on_line_begun, EP_KIND_LINE)
CALLBACK(on_instruction, on_instruction_begun, EP_KIND_INSTRUCTION)
CALLBACK(on_branch, ep_py_jump_whole, EP_KIND_BRANCH, false)
CALLBACK(on_jump, ep_py_jump_whole, EP_KIND_JUMP, false)
CALLBACK(on_raise, ep_py_exception_whole, EP_KIND_RAISE, false)
CALLBACK(on_reraise, ep_py_exception_whole, EP_KIND_RERAISE, false)
CALLBACK(on_handled, ep_py_exception_whole, EP_KIND_HANDLED, false)
CALLBACK(on_stop_iteration, ep_py_exception_whole, EP_KIND_STOP_ITERATION, false)

CALLBACK(on_start_gated, ep_py_open_whole, EP_KIND_CALL, true)
CALLBACK(on_resume_gated, ep_py_open_whole, EP_KIND_RESUME, true)
CALLBACK(on_throw_gated, ep_py_open_whole, EP_KIND_THROW, true)
CALLBACK(on_return_gated, ep_py_close_whole, EP_KIND_RETURN, true)
CALLBACK(on_yield_gated, ep_py_close_whole, EP_KIND_YIELD, true)
CALLBACK(on_unwind_gated, ep_py_close_whole, EP_KIND_UNWIND, true)
CALLBACK(on_c_call_gated, ep_py_call_whole, EP_KIND_C_CALL, true)
CALLBACK(on_c_return_gated, ep_py_c_close_whole, EP_KIND_C_RETURN, true)
CALLBACK(on_c_raise_gated, ep_py_c_close_whole, EP_KIND_C_EXCEPTION, true)

CALLBACK(on_line_gated, ep_py_line_whole, EP_KIND_LINE, true)
CALLBACK(on_instruction_gated, ep_py_instruction_whole, EP_KIND_INSTRUCTION, true)
CALLBACK(on_branch_gated, ep_py_jump_whole, EP_KIND_BRANCH, true)
CALLBACK(on_jump_gated, ep_py_jump_whole, EP_KIND_JUMP, true)
CALLBACK(on_raise_gated, ep_py_exception_whole, EP_KIND_RAISE, true)
CALLBACK(on_reraise_gated, ep_py_exception_whole, EP_KIND_RERAISE, true)
CALLBACK(on_handled_gated, ep_py_exception_whole, EP_KIND_HANDLED, true)
CALLBACK(on_stop_iteration_gated, ep_py_exception_whole, EP_KIND_STOP_ITERATION, true)

const ep_py_monitoring_row ep_py_monitoring_rows[EP_PY_MONITORING_EVENTS] = {
    {"PY_START", EP_KIND_BIT(EP_KIND_CALL), {on_start, on_start_gated}},
    {"PY_RESUME", EP_KIND_BIT(EP_KIND_RESUME), {on_resume, on_resume_gated}},
    {"PY_THROW", EP_KIND_BIT(EP_KIND_THROW), {on_throw, on_throw_gated}},
    {"PY_RETURN", EP_KIND_BIT(EP_KIND_RETURN), {on_return, on_return_gated}},
    {"PY_YIELD", EP_KIND_BIT(EP_KIND_YIELD), {on_yield, on_yield_gated}},
    {"PY_UNWIND", EP_KIND_BIT(EP_KIND_UNWIND), {on_unwind, on_unwind_gated}},
    {"CALL", EP_KINDS_C, {on_c_call, on_c_call_gated}},
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

#endif
