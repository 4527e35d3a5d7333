/* For profile and trace hooks, which are passed a frame object: which sort of call begins or ends, and
 * what the interpreter allocated before it called the hook. */
#ifndef EP_FRAME_EVENTS_H
#define EP_FRAME_EVENTS_H

#include "compat.h"

#include <opcode.h>

#include "footprint.h"
#include "intern.h"
#include "source.h"

/* Forms of the opcodes that tell resume, throw and yield apart. */
static const bool is_resume[256] = {
    [RESUME] = true,
#ifdef RESUME_QUICK
    [RESUME_QUICK] = true,
#endif
#ifdef RESUME_CHECK
    [RESUME_CHECK] = true,
#endif
#ifdef RESUME_CHECK_JIT
    [RESUME_CHECK_JIT] = true,
#endif
#ifdef INSTRUMENTED_RESUME
    [INSTRUMENTED_RESUME] = true,
#endif
};
static const bool is_yield[256] = {
    [YIELD_VALUE] = true,
#ifdef INSTRUMENTED_YIELD_VALUE
    [INSTRUMENTED_YIELD_VALUE] = true,
#endif
};

/* 3.12 passes None as the value of an unwound call, too. An unwound generator may still be at its yield,
 * but only a generator that yields is suspended by now. */
#if EP_UNWIND_PASSES_NONE
static const bool is_return[256] = {
    [RETURN_VALUE] = true,
    [RETURN_CONST] = true,
    [INSTRUMENTED_RETURN_VALUE] = true,
    [INSTRUMENTED_RETURN_CONST] = true,
};
#endif

/* ---- Calls ---------------------------------------------------------------------------------- */

typedef struct instruction {
    unsigned char opcode, argument;
} instruction;

/* Under line monitoring (coverage) the opcode is replaced by another; the bytes of the code object have
 * the original. */
static EP_COLD instruction
instruction_below(PyCodeObject *code, ep_frame *frame)
{
    instruction found = {0, 0};
    Py_ssize_t offset = ep_frame_offset(frame);
    uint32_t busy = ep_py_enter_own();
    PyObject *bytes = PyCode_GetCode(code);
    if (bytes != NULL && offset >= 0 && offset + 1 < PyBytes_GET_SIZE(bytes)) {
        found.opcode = (unsigned char)PyBytes_AS_STRING(bytes)[offset];
        found.argument = (unsigned char)PyBytes_AS_STRING(bytes)[offset + 1];
    }
    Py_XDECREF(bytes);
    PyErr_Clear();
    ep_py_leave_own(busy);
    return found;
}

static inline instruction
current_instruction(PyCodeObject *code, ep_frame *frame)
{
    const unsigned char *at = (const unsigned char *)ep_frame_instruction(frame);
#ifdef INSTRUMENTED_LINE
    if (EP_UNLIKELY(at[0] == INSTRUMENTED_LINE || at[0] == INSTRUMENTED_INSTRUCTION)) {
        return instruction_below(code, frame);
    }
#else
    (void)instruction_below;
    (void)code;
#endif
    return (instruction){at[0], at[1]};
}

static inline bool
is_generator(PyCodeObject *code)
{
    return (code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) != 0;
}

static inline ep_kind
open_kind(PyCodeObject *code, ep_frame *frame)
{
    if (EP_LIKELY(!is_generator(code))) {
        return EP_KIND_CALL;
    }
    instruction now = current_instruction(code, frame);
    /* It is at the yield that the exception comes out of, or after it (3.13). */
    if (!is_resume[now.opcode] || ep_thread_is_thrown_into()) {
        return EP_KIND_THROW;
    }
    return (now.argument & 3) == 0 ? EP_KIND_CALL : EP_KIND_RESUME;
}

static inline ep_kind
close_kind(PyCodeObject *code, ep_frame *frame, PyObject *value)
{
    if (value == NULL) {
        return EP_KIND_UNWIND;
    }
#if EP_UNWIND_PASSES_NONE
    if (value == Py_None) {
        return ep_frame_is_suspended(frame)                         ? EP_KIND_YIELD
               : is_return[current_instruction(code, frame).opcode] ? EP_KIND_RETURN
                                                                    : EP_KIND_UNWIND;
    }
#endif
    if (is_generator(code)) {
        /* 3.13 has moved on to the resume after the yield by now. */
        instruction now = current_instruction(code, frame);
        if (is_yield[now.opcode] || (is_resume[now.opcode] && (now.argument & 3) != 0)) {
            return EP_KIND_YIELD;
        }
    }
    return EP_KIND_RETURN;
}

/* The hook mechanism binds methods only to instances. A method that is bound to a class was bound by the
 * program. */
static inline bool
may_be_bound_by_mechanism(PyObject *builtin)
{
    return PyCFunction_Check(builtin) && !(PyCFunction_GET_FLAGS(builtin) & METH_CLASS);
}

/* What the hook mechanism allocated before it called us: the frame object, a bound builtin, line tables. */
static inline void
take_back_own(ep_log *log, PyFrameObject *frame, PyCodeObject *code, PyObject *argument)
{
    uintptr_t builtin = argument != NULL && may_be_bound_by_mechanism(argument)
                            ? (uintptr_t)argument - EP_GC_HEADER_BYTES
                            : 0;
    for (bool more = true; more;) {
        more = ep_footprint_take_lasting(log, (uintptr_t)frame - EP_GC_HEADER_BYTES) ||
               ep_footprint_take_lasting(log, builtin) ||
               ep_footprint_take_lasting(log, ep_code_event_table(code)) ||
               (EP_HAS_MONITORING && ep_footprint_has_tables() && ep_py_take_back_tables(log, code)) ||
               (EP_PROFILE_BOXES && ep_footprint_take_box(log));
    }
}

/* The call ends, and something keeps its frame object, usually an exception's traceback. Without the
 * hook mechanism the program would have made the frame object then: so it is the program's from now on. */
static EP_COLD void
give_frame_to_program(ep_log *log, uint64_t ticks, PyFrameObject *frame, PyCodeObject *code)
{
    uintptr_t block = (uintptr_t)frame - EP_GC_HEADER_BYTES;
    if (ep_omits_forget(block)) {
        Py_ssize_t bytes =
            _PyObject_VAR_SIZE(Py_TYPE(frame), code->co_nlocalsplus + code->co_stacksize);
        ep_log_put_block(log, ticks, EP_KIND_MALLOC + EP_DOMAIN_OBJ,
                         (uint64_t)bytes + EP_GC_HEADER_BYTES, block,
                         ep_py_block_site(ep_thread_state()));
    }
}

/* A call ended and did not only yield: what the hook mechanism allocated for it may be the program's
 * from now on. */
static inline void
leave_frame(ep_log *log, uint64_t ticks, PyFrameObject *frame, PyCodeObject *code, ep_kind kind)
{
    if (EP_UNLIKELY(Py_REFCNT(frame) > EP_HOOK_FRAME_REFERENCES) && kind != EP_KIND_YIELD &&
        ep_footprint_active()) {
        give_frame_to_program(log, ticks, frame, code);
    }
}

#endif
