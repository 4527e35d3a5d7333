/* Differences between CPython versions, behind inline functions: callers have no #if.
 *
 * Interpreter frames are read by offset, so no internal header is needed. On every version, 124,000 call
 * sites of a program made for the test were those that the callee sees. At import check_frames() (intern.c)
 * tests the offsets by a call at a known line. If that fails, sites are not recorded. */
#ifndef EP_COMPAT_H
#define EP_COMPAT_H

#include <Python.h>

#include <opcode.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "types.h"
#include "versions.h"

/* One frame of the interpreter. Never keep a pointer: its memory may be reused when it has returned. */
typedef struct ep_frame ep_frame;

#if PY_VERSION_HEX < 0x030C0000
#define EP_FRAME_CODE 32
#define EP_FRAME_GLOBALS 8
#define EP_FRAME_OBJECT 40
#define EP_FRAME_PREVIOUS 48
#define EP_FRAME_STACK_TOP 64
#define EP_FRAME_OWNER 69
#define EP_FRAME_LOCALS 72
#elif PY_VERSION_HEX < 0x030E0000
#define EP_FRAME_CODE 0
#define EP_FRAME_GLOBALS 24
#define EP_FRAME_PREVIOUS 8
#define EP_FRAME_OWNER 70
#define EP_FRAME_LOCALS 72
#else
#define EP_FRAME_CODE 0
#define EP_FRAME_GLOBALS 24
#define EP_FRAME_PREVIOUS 8
#define EP_FRAME_OWNER (EP_GIL_DISABLED ? 78 : 74)
#define EP_FRAME_LOCALS 80
#define EP_FRAME_COPY 72
#endif
#define EP_FRAME_INSTRUCTION 56
/* Tag bits of a value on a frame's stack, which are not part of the address. */
#define EP_FRAME_TAG (PY_VERSION_HEX >= 0x030E0000 ? 3 : 0)
#define EP_CODE_UNIT_BYTES 2
#define EP_OWNER_GENERATOR 1
#if PY_VERSION_HEX < 0x030E0000
#define EP_GENERATOR_STATE \
    ((ptrdiff_t)offsetof(PyGenObject, gi_frame_state) - (ptrdiff_t)offsetof(PyGenObject, gi_iframe))
#define EP_GENERATOR_FRAME offsetof(PyGenObject, gi_iframe)
#else
#define EP_GENERATOR_STATE (-5)
#define EP_GENERATOR_FRAME (sizeof(PyObject) + 56)
#endif
/* Frames with this owner or a higher one are the interpreter's own, without code of the program. */
#define EP_OWNER_INTERPRETER 3

#define EP_FRAME_FIELD(frame, type, offset) (*(type *)((char *)(frame) + (offset)))

#if PY_VERSION_HEX >= 0x030C0000 && defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))
#define EP_THREAD_STATE_IS_LOCAL 1
#else
#define EP_THREAD_STATE_IS_LOCAL 0
#endif

/* The offset of the interpreter's variable from the thread pointer, the same on every thread; 0:
 * unknown. */
extern EP_HIDDEN ptrdiff_t ep_thread_state_offset;

/* Once, from module init, with the GIL. */
void ep_thread_state_find(void);

#if EP_THREAD_STATE_IS_LOCAL
static inline char *
ep_thread_pointer(void)
{
    char *pointer;
#ifdef __x86_64__
    __asm__("mov %%fs:0, %0" : "=r"(pointer));
#else
    __asm__("mrs %0, tpidr_el0" : "=r"(pointer));
#endif
    return pointer;
}

/* Call it only if the offset is known. */
static inline PyThreadState *
ep_thread_state_read(void)
{
#ifdef __x86_64__
    PyThreadState *state;
    __asm__ volatile("mov %%fs:(%1), %0" : "=r"(state) : "r"(ep_thread_state_offset));
    return state;
#else
    return *(PyThreadState *const volatile *)(void *)(ep_thread_pointer() + ep_thread_state_offset);
#endif
}
#endif

/* HOT. The calling thread's state, NULL if it has none (3.11: the state of the thread that holds the
 * GIL). */
static inline PyThreadState *
ep_thread_state(void)
{
#if EP_THREAD_STATE_IS_LOCAL
    if (EP_LIKELY(ep_thread_state_offset != 0)) {
        return ep_thread_state_read();
    }
#endif
#if PY_VERSION_HEX >= 0x030D0000
    return PyThreadState_GetUnchecked();
#else
    return _PyThreadState_UncheckedGet();
#endif
}

/* HOT. The same without a call of the accessor; for threads that have a state. */
static inline PyThreadState *
ep_thread_state_unasked(void)
{
#if EP_THREAD_STATE_IS_LOCAL
    return ep_thread_state_read();
#else
    return ep_thread_state();
#endif
}

/* The calling thread's state if it is attached (holds the GIL, if there is one); else NULL. For allocators
 * that are called with and without the GIL. */
static inline PyThreadState *
ep_py_attached_state(void)
{
    PyThreadState *ts = ep_thread_state();
#if PY_VERSION_HEX < 0x030C0000
    /* 3.11 gives the state of the thread that holds the GIL, which may be freed before it is read. */
    if (ts == NULL || ts != PyGILState_GetThisThreadState()) {
        return NULL;
    }
#endif
    return ts;
}

/* Whether reading the thread state needs a call of the accessor. */
static inline bool
ep_thread_state_is_asked(void)
{
    return !EP_THREAD_STATE_IS_LOCAL || EP_UNLIKELY(ep_thread_state_offset == 0);
}

/* In a hook for a generator's frame: whether it is resumed by an exception that is thrown into it. Before
 * 3.13, where the frame itself shows it: false. */
static inline bool
ep_thread_is_thrown_into(void)
{
#if PY_VERSION_HEX >= 0x030D0000
    return ep_thread_state()->what_event == PY_MONITORING_EVENT_PY_THROW;
#else
    return false;
#endif
}

/* Up to 3.12 the pointer to the current frame is on the C stack: do not follow it while greenlet replaces
 * that stack (ep_py_greenlets). */
#define EP_FRAMES_NEED_STACK (PY_VERSION_HEX < 0x030D0000)

static inline ep_frame *
ep_frame_current(PyThreadState *ts)
{
#if PY_VERSION_HEX >= 0x030D0000
    return (ep_frame *)ts->current_frame;
#else
    return (ep_frame *)ts->cframe->current_frame;
#endif
}

static inline bool
ep_frame_is_own(const ep_frame *frame)
{
#if PY_VERSION_HEX >= 0x030C0000
    return EP_FRAME_FIELD(frame, unsigned char, EP_FRAME_OWNER) >= EP_OWNER_INTERPRETER;
#else
    (void)frame;
    return false;
#endif
}

/* The nearest frame with code of the program, beginning with `frame`. */
static inline ep_frame *
ep_frame_of_program(ep_frame *frame)
{
    while (frame != NULL && ep_frame_is_own(frame)) {
        frame = EP_FRAME_FIELD(frame, ep_frame *, EP_FRAME_PREVIOUS);
    }
    return frame;
}

static inline ep_frame *
ep_frame_previous(ep_frame *frame)
{
    return ep_frame_of_program(EP_FRAME_FIELD(frame, ep_frame *, EP_FRAME_PREVIOUS));
}

/* Borrowed from the frame. */
static inline PyCodeObject *
ep_frame_code(const ep_frame *frame)
{
    uintptr_t code = EP_FRAME_FIELD(frame, uintptr_t, EP_FRAME_CODE);
#if PY_VERSION_HEX >= 0x030E0000
    code &= ~(uintptr_t)3;    /* a stack reference: its tag */
#endif
    return (PyCodeObject *)code;
}

/* The address in the code object's own bytecode. In free-threaded 3.14 and later each thread executes a
 * copy, whose memory may be freed before the code object. */
static inline uintptr_t
ep_frame_instruction(const ep_frame *frame)
{
    uintptr_t instruction = EP_FRAME_FIELD(frame, uintptr_t, EP_FRAME_INSTRUCTION);
#if EP_GIL_DISABLED && PY_VERSION_HEX >= 0x030E0000
    int32_t copy = EP_FRAME_FIELD(frame, int32_t, EP_FRAME_COPY);
    if (copy > 0) {
        PyCodeObject *code = ep_frame_code(frame);
        instruction += (uintptr_t)code->co_code_adaptive - (uintptr_t)code->co_tlbc->entries[copy];
    }
#endif
    return instruction;
}

static inline PyObject *
ep_frame_globals(const ep_frame *frame)
{
    return EP_FRAME_FIELD(frame, PyObject *, EP_FRAME_GLOBALS);
}

static inline char *
ep_code_start(PyCodeObject *code)
{
    return (char *)code->co_code_adaptive;
}

/* The offset of the current instruction, in bytes. */
static inline Py_ssize_t
ep_frame_offset(const ep_frame *frame)
{
    return (char *)ep_frame_instruction(frame) - ep_code_start(ep_frame_code(frame));
}

/* A frame that is still being set up (cells, generator creation): the program cannot see it yet. */
static inline bool
ep_frame_is_incomplete(const ep_frame *frame)
{
    if (EP_FRAME_FIELD(frame, unsigned char, EP_FRAME_OWNER) == EP_OWNER_GENERATOR) {
        return false;
    }
    PyCodeObject *code = ep_frame_code(frame);
    return ep_frame_offset(frame) <
           (Py_ssize_t)code->_co_firsttraceable * EP_CODE_UNIT_BYTES;
}

/* Forms of RESUME, which is at the entry of each function and after each yield. */
static inline bool
ep_opcode_is_resume(unsigned char opcode)
{
    switch (opcode) {
        case RESUME:
#if PY_VERSION_HEX < 0x030C0000
        case RESUME_QUICK:
#else
        case INSTRUMENTED_RESUME:
#endif
#if PY_VERSION_HEX >= 0x030D0000
        case RESUME_CHECK:
#endif
#ifdef RESUME_CHECK_JIT
        case RESUME_CHECK_JIT:
#endif
            return true;
        default:
            return false;
    }
}

/* While calls are recorded: whether instructions in the code report its events (3.12+); before, true. */
static inline bool
ep_code_reports(PyCodeObject *code)
{
#ifdef INSTRUMENTED_RESUME
    const char *begin = ep_code_start(code) + (Py_ssize_t)code->_co_firsttraceable * EP_CODE_UNIT_BYTES;
    unsigned char opcode = (unsigned char)*begin;
    return opcode == INSTRUMENTED_RESUME || !ep_opcode_is_resume(opcode);
#else
    (void)code;
    return true;
#endif
}

/* Whether it is at the first instruction of its function, or after a yield. There the interpreter switches
 * threads, and reports the call. */
static inline bool
ep_frame_is_at_resume(const ep_frame *frame)
{
    PyCodeObject *code = ep_frame_code(frame);
    Py_ssize_t offset = ep_frame_offset(frame);
    if (offset < 0) {
        return false;
    }
    return ep_opcode_is_resume((unsigned char)ep_code_start(code)[offset]) ||
           /* a debugger's breakpoint may be there */
           offset == (Py_ssize_t)code->_co_firsttraceable * EP_CODE_UNIT_BYTES;
}

/* Whether the call was reported before other threads run: 3.12 reports first, 3.13 and later last. 3.11
 * lets other threads run before and after, and makes the frame object for the report, which a generator
 * keeps. */
static inline bool
ep_frame_begin_was_reported(const ep_frame *frame)
{
#if PY_VERSION_HEX < 0x030C0000
    return EP_FRAME_FIELD(frame, PyObject *, EP_FRAME_OBJECT) != NULL;
#else
    (void)frame;
    return PY_VERSION_HEX < 0x030D0000;
#endif
}

/* Whether it is the frame of a suspended generator. The generator's state is the byte before its frame;
 * from 3.14 on its fields are only in internal headers. */
static inline bool
ep_frame_is_suspended(const ep_frame *frame)
{
    if (EP_FRAME_FIELD(frame, unsigned char, EP_FRAME_OWNER) != EP_OWNER_GENERATOR) {
        return false;
    }
#if PY_VERSION_HEX >= 0x030F0000
    unsigned char state = EP_FRAME_FIELD(frame, unsigned char, EP_GENERATOR_STATE);
    return state >= 1 && state <= 3;    /* suspended at a yield, or in two ways at a yield from; 0: not
                                         * begun, 4: running */
#else
    return EP_FRAME_FIELD(frame, int8_t, EP_GENERATOR_STATE) < 0;
#endif
}

/* The generator or coroutine of the frame, borrowed from the frame; NULL: it is a function's frame. The
 * object ends where the frame's locals begin. */
static inline PyObject *
ep_frame_generator(const ep_frame *frame)
{
    return EP_FRAME_FIELD(frame, unsigned char, EP_FRAME_OWNER) == EP_OWNER_GENERATOR
               ? (PyObject *)((char *)frame - EP_GENERATOR_FRAME)
               : NULL;
}

/* Whether an exception is thrown through the frame into `inner`, the frame above it. Meanwhile the
 * interpreter has generators that delegate (`yield from`, await) among the thread's frames, but they do not
 * run. */
static inline bool
ep_frame_is_passed(const ep_frame *frame, const ep_frame *inner)
{
    if (inner == NULL || EP_FRAME_FIELD(frame, unsigned char, EP_FRAME_OWNER) != EP_OWNER_GENERATOR ||
        EP_FRAME_FIELD(inner, unsigned char, EP_FRAME_OWNER) != EP_OWNER_GENERATOR) {
        return false;
    }
    const unsigned char *at = (const unsigned char *)ep_frame_instruction(frame);
#if PY_VERSION_HEX >= 0x030D0000
    return ep_opcode_is_resume(at[0]) && (at[1] & 3) >= 2;
#elif PY_VERSION_HEX >= 0x030C0000
    return at[0] == YIELD_VALUE || at[0] == INSTRUMENTED_YIELD_VALUE;
#else
    return at[0] == YIELD_VALUE;
#endif
}

/* The frame that the interpreter resumes without a report once the slice of `inner` returns: that of the
 * generator that delegates to it, through which an exception was thrown. NULL: there is none. An iterator
 * between the two is not looked through. */
static inline ep_frame *
ep_frame_resumed_unreported(ep_frame *inner)
{
#if EP_RESUME_MAY_BE_UNREPORTED
    ep_frame *outer = ep_frame_previous(inner);
    if (outer == NULL || !ep_frame_is_passed(outer, inner)) {
        return NULL;
    }
    int top = EP_FRAME_FIELD(outer, int, EP_FRAME_STACK_TOP);    /* valid while a generator is suspended */
    PyObject *const *end = &EP_FRAME_FIELD(outer, PyObject *, EP_FRAME_LOCALS) + top;
    return end[-1] == ep_frame_generator(inner) ? outer : NULL;
#else
    (void)inner;
    return NULL;
#endif
}

/* The interpreter frame behind a frame object. */
static inline ep_frame *
ep_frame_of_object(PyFrameObject *frame)
{
    return EP_FRAME_FIELD(frame, ep_frame *, sizeof(PyObject) + sizeof(void *));
}

/* The flag whether a frame object's trace function gets events of instructions: the interpreter tests for
 * 0, and the attribute f_trace_opcodes writes 0 or 1. */
static inline char *
ep_frame_traces_opcodes(PyFrameObject *frame)
{
    return &EP_FRAME_FIELD(frame, char, sizeof(PyObject) + 3 * sizeof(void *) + sizeof(int) + 1);
}

/* Whether a frame object's trace function is to be told of lines: the interpreter tests for 0, and the
 * attribute f_trace_lines gives True for all else; 1 unless the program writes there. */
static inline char *
ep_frame_traces_lines(PyFrameObject *frame)
{
    return &EP_FRAME_FIELD(frame, char, sizeof(PyObject) + 3 * sizeof(void *) + sizeof(int));
}

/* A frame object's f_trace: NULL or a strong reference. */
static inline PyObject **
ep_frame_trace_function(PyFrameObject *frame)
{
    return &EP_FRAME_FIELD(frame, PyObject *, sizeof(PyObject) + 2 * sizeof(void *));
}

/* A small non-negative int (an instruction's offset). */
static inline Py_ssize_t
ep_small_int(PyObject *number)
{
#if PY_VERSION_HEX >= 0x030C0000
    return (Py_ssize_t)((PyLongObject *)number)->long_value.ob_digit[0];
#else
    return (Py_ssize_t)((PyLongObject *)number)->ob_digit[0];
#endif
}

/* The pending exception, saved while our own code runs. */
typedef struct ep_py_exception {
#if PY_VERSION_HEX >= 0x030C0000
    PyObject *value;
#else
    PyObject *type, *value, *traceback;
#endif
} ep_py_exception;

static inline ep_py_exception
ep_py_exception_save(void)
{
    ep_py_exception saved;
#if PY_VERSION_HEX >= 0x030C0000
    saved.value = PyErr_GetRaisedException();
#else
    PyErr_Fetch(&saved.type, &saved.value, &saved.traceback);
#endif
    return saved;
}

static inline void
ep_py_exception_restore(ep_py_exception saved)
{
#if PY_VERSION_HEX >= 0x030C0000
    PyErr_SetRaisedException(saved.value);
#else
    PyErr_Restore(saved.type, saved.value, saved.traceback);
#endif
}

static inline bool
ep_py_is_finalizing(void)
{
#if PY_VERSION_HEX >= 0x030D0000
    return Py_IsFinalizing();
#else
    return _Py_IsFinalizing();
#endif
}

/* sys.modules. Returns: borrowed; NULL while the interpreter ends: it drops the dictionary then, and its
 * own function would end the process. A recorder that nobody stopped is stopped there, by its finalizer. */
static inline PyObject *
ep_py_modules(void)
{
    return ep_py_is_finalizing() ? NULL : PyImport_GetModuleDict();
}

/* The pending exception ended a thread that was started with `function`: reports it as the
 * interpreter would. Returns: whether it did. False: the interpreter's own report, which names the function
 * by its repr, will say the same. */
static inline bool
ep_py_report_thread_error(PyObject *function)
{
#if PY_VERSION_HEX >= 0x030D0000
    (void)function;
    return false;
#else
    if (PyErr_ExceptionMatches(PyExc_SystemExit)) {
        return false;
    }
    _PyErr_WriteUnraisableMsg("in thread started by", function);
    return true;
#endif
}

/* ---- Without a GIL --------------------------------------------------------------------------- */

/* Calls then(context) while no other thread of the interpreter runs Python code or our hooks; with a GIL
 * this is always so. Threads that are not attached continue (RAW allocations). `then` must not make an
 * object, run Python code or release the GIL. */
#if EP_GIL_DISABLED
void ep_py_alone(void (*then)(void *), void *context);
#else
static inline void
ep_py_alone(void (*then)(void *), void *context)
{
    then(context);
}
#endif

/* 3.13 without a GIL: a thread that is about to stop the others takes a lock of the interpreter, and then
 * waits for a fork. In the child the lock stays locked without its thread (two threads in gc.collect() and
 * os.fork() show it), and whoever stops the threads waits for ever. So the child unlocks it. Since
 * gh-137433 the thread waits before it takes the lock. */
#if EP_GIL_DISABLED && PY_VERSION_HEX < 0x030E0000
void ep_py_alone_before_fork(void);
void ep_py_alone_after_fork_in_child(void);
#else
static inline void
ep_py_alone_before_fork(void)
{
}

static inline void
ep_py_alone_after_fork_in_child(void)
{
}
#endif

/* Around code during which another thread must not change `object`: locks it if there is no GIL. */
#if EP_GIL_DISABLED
#define EP_BEGIN_OBJECT(object) Py_BEGIN_CRITICAL_SECTION(object)
#define EP_END_OBJECT() Py_END_CRITICAL_SECTION()
#else
#define EP_BEGIN_OBJECT(object) {
#define EP_END_OBJECT() }
#endif

/* As PyDict_GetItemWithError(), but new: another thread may drop what a dictionary holds. */
static inline PyObject *
ep_py_dict_get(PyObject *dict, PyObject *key)
{
#if PY_VERSION_HEX >= 0x030D0000
    PyObject *value;
    (void)PyDict_GetItemRef(dict, key, &value);
    return value;
#else
    return Py_XNewRef(PyDict_GetItemWithError(dict, key));
#endif
}

static inline PyObject *
ep_py_dict_get_text(PyObject *dict, const char *key)
{
#if PY_VERSION_HEX >= 0x030D0000
    PyObject *value;
    (void)PyDict_GetItemStringRef(dict, key, &value);
    return value;
#else
    return Py_XNewRef(PyDict_GetItemString(dict, key));
#endif
}

/* Exported by every version, declared only in internal headers. */
PyAPI_FUNC(int) _PyEval_SetProfile(PyThreadState *ts, Py_tracefunc hook, PyObject *argument);

/* Iterates over the threads of this interpreter. On 3.11 a thread's state is in the list before it is
 * complete (new_threadstate in pystate.c), and the thread that makes it does not hold the GIL: setting a
 * hook then would write through a null pointer. So this function waits some instructions; the other thread
 * does not wait for us. In a forked child the other thread may not exist, so the wait is bounded. */
static inline PyThreadState *
ep_py_whole_thread(PyThreadState *ts)
{
#if PY_VERSION_HEX < 0x030C0000
    const volatile PyThreadState *state = ts;
    for (int i = 0; i < 10000 && state != NULL && (!state->_initialized || state->cframe == NULL); i++) {
        sched_yield();
    }
#endif
    return ts;
}

static inline PyThreadState *
ep_py_first_thread(void)
{
    return ep_py_whole_thread(PyInterpreterState_ThreadHead(PyInterpreterState_Get()));
}

static inline PyThreadState *
ep_py_next_thread(PyThreadState *ts)
{
    return ep_py_whole_thread(PyThreadState_Next(ts));
}

#endif
