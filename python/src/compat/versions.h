/* What a version of CPython has, or does its own way, by name: the only place, with compat.h, that
 * knows numbers of versions. A file that is for some versions only asks for what it needs here. */
#ifndef EP_VERSIONS_H
#define EP_VERSIONS_H

#include <Python.h>

#include <stdint.h>

#ifdef Py_GIL_DISABLED
#define EP_GIL_DISABLED 1
#else
#define EP_GIL_DISABLED 0
#endif

/* ---- What there is --------------------------------------------------------------------------- */

#define EP_HAS_MONITORING (PY_VERSION_HEX >= 0x030C0000)    /* sys.monitoring */
#define EP_HAS_REF_TRACER (PY_VERSION_HEX >= 0x030D0000)    /* PyRefTracer_SetTracer() */
#define EP_HAS_EVALUATOR (PY_VERSION_HEX < 0x030C0000)      /* frames may be evaluated (evaluator.h) */
#define EP_HAS_CURRENT_TASK (PY_VERSION_HEX >= 0x030E0000)  /* _asyncio.current_task() is in C */
#define EP_HAS_END_FOR (PY_VERSION_HEX >= 0x030C0000)       /* opcodes END_FOR and END_SEND */
#define EP_HAS_MANY_INTERPRETERS (PY_VERSION_HEX >= 0x030C0000)    /* Py_mod_multiple_interpreters */
#define EP_HAS_GIL_SLOT (PY_VERSION_HEX >= 0x030D0000)      /* Py_mod_gil */

/* ---- Threads --------------------------------------------------------------------------------- */

/* ep_thread_state() gives the calling thread's, or NULL. 3.11 gives that of whichever thread has the
 * GIL. */
#define EP_STATE_IS_OF_THREAD (PY_VERSION_HEX >= 0x030C0000)

/* 3.13 and later: of one thread only by itself, or of all at once. */
#define EP_TRACES_ANY_THREAD (PY_VERSION_HEX < 0x030D0000)

/* Without a GIL a thread queues objects that only their own thread may free, in chunks of RAW memory that
 * the other thread frees (pycore_object_stack.h). */
#define EP_QUEUE_CHUNK_BYTES (256 * sizeof(void *))

/* ---- Frames and calls ------------------------------------------------------------------------ */

/* A collection may visit a running generator with a stack that is not as deep (generator_stacks.h). */
#define EP_GENERATOR_STACKS_LIE (PY_VERSION_HEX < 0x030C0000)
/* If a callback raises when a function starts, the function's unwind is reported nevertheless (entry.h). */
#define EP_ENTRY_MAY_RAISE (PY_VERSION_HEX >= 0x030D0000)
/* The hook marks frames whose begin the interpreter has reported (entry.h). */
#define EP_ENTRY_IS_MARKED (PY_VERSION_HEX < 0x030C0000)
/* A generator that delegates goes on without a report where the inner one returns after a throw: before
 * 3.12 throw() itself pops the inner one, and resumes after the instruction that reports. */
#define EP_RESUME_MAY_BE_UNREPORTED (PY_VERSION_HEX < 0x030C0000)
/* A call may unwind whose begin was not reported: what ran at its entry, such as a signal handler,
 * raised. */
#define EP_UNWINDS_UNREPORTED (PY_VERSION_HEX < 0x030C0000 || PY_VERSION_HEX >= 0x030D0000)
/* If f is a bound method, a call f(*args) reports its begin to profile hooks, with the function behind f,
 * but not its end. If the hook is passed f itself, both are reported; f is on the frame's stack then. */
#define EP_CALL_MAY_NEVER_END (PY_VERSION_HEX >= 0x030D0000)
/* Profile hooks are passed None for an unwound call, as for a call that returns None. */
#define EP_UNWIND_PASSES_NONE (PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030D0000)
/* The memory of a freed bound method is used for the next bound method (bound.h). */
#define EP_BOUND_IS_REUSED (PY_VERSION_HEX < 0x030E0000 && !EP_GIL_DISABLED)
/* Threads wait for mutexes of the interpreter's own kind in one place (Python/parking_lot.c). */
#define EP_HAS_PARKING_LOT (PY_VERSION_HEX >= 0x030D0000)
/* The interpreter binds builtins for trace hooks, too, although it passes them to profile hooks only. */
#define EP_TRACING_BINDS_BUILTINS (PY_VERSION_HEX < 0x030C0000)

/* ---- Events ---------------------------------------------------------------------------------- */

/* Before a callback of sys.monitoring the interpreter makes an int of the offset; for a jump, one of the
 * destination before that. Later versions make no int, or take one from their free list. */
#define EP_MONITORING_BOXES (PY_VERSION_HEX < 0x030E0000)
/* Profile hooks are emulated by sys.monitoring, so an int is made for them, too. */
#define EP_PROFILE_BOXES (EP_HAS_MONITORING && EP_MONITORING_BOXES)
/* BRANCH; later BRANCH_LEFT and BRANCH_RIGHT. */
#define EP_BRANCH_IS_ONE_EVENT (PY_VERSION_HEX < 0x030E0000)
/* Setting a frame's f_trace_opcodes switches the monitoring of instructions on. */
#define EP_OPCODES_ARE_MONITORED (PY_VERSION_HEX >= 0x030C0000)
/* "opcode" events come only if f_trace_opcodes of some frame was set before the trace hook; from then on
 * they come for every trace hook. */
#define EP_OPCODES_ASKED_FIRST (PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030D0000)

/* ---- Blocks that hooks make ------------------------------------------------------------------ */

/* Bytes before an object that the collector tracks. */
#define EP_GC_HEADER_BYTES (EP_GIL_DISABLED ? 0 : 16)
/* The references to a frame object in a profile hook, if only the interpreter has references. */
#define EP_HOOK_FRAME_REFERENCES (PY_VERSION_HEX < 0x030C0000 ? 1 : 2)

/* The block that the interpreter makes for a code object before its first event: the table of its lines, or
 * of what is monitored. */
static inline uintptr_t
ep_code_event_table(const PyCodeObject *code)
{
#if PY_VERSION_HEX < 0x030C0000
    return (uintptr_t)code->_co_linearray;
#else
    return (uintptr_t)code->_co_monitoring;
#endif
}

#if PY_VERSION_HEX >= 0x030E0000
/* As in pycore_instruments.h, which extensions cannot include. */
#define EP_LOCAL_EVENTS (PY_VERSION_HEX >= 0x030F0000 ? 16 : 11)
typedef struct ep_code_monitoring {
    uint8_t local_monitors[EP_LOCAL_EVENTS], active_monitors[EP_LOCAL_EVENTS];
    uint8_t *tools;
    uintptr_t tool_versions[8];
    void *lines;
    uint8_t *line_tools, *per_instruction_opcodes, *per_instruction_tools;
} ep_code_monitoring;
#elif PY_VERSION_HEX >= 0x030C0000
typedef _PyCoMonitoringData ep_code_monitoring;
#endif

/* A type's dictionary. Returns: borrowed or, as *owned, new; NULL if there is none. */
static inline PyObject *
ep_py_type_dict(PyTypeObject *type, PyObject **owned)
{
#if PY_VERSION_HEX >= 0x030C0000
    return *owned = PyType_GetDict(type);
#else
    *owned = NULL;
    return type->tp_dict;
#endif
}

#endif
