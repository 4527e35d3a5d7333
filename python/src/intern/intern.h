/* Python objects -> ids of the core. find: inline, hot. The rest: once a function or call site. */
#ifndef EP_INTERN_H
#define EP_INTERN_H

#include "compat.h"

#include "engine.h"
#include "gate.h"
#include "log.h"
#include "names.h"
#include "own_blocks.h"

/* The id that cold lookups give for eventprof's own callables, which are not recorded. */
#define EP_ID_SKIP UINT32_MAX

/* Tags of name keys: what the address stands for. */
enum {
    EP_TAG_PLAIN,
    EP_TAG_TYPE,
    EP_TAG_NEW,
    EP_TAG_INSTANCE,
    EP_TAG_UFUNC,
    EP_TAG_VOLATILE
};

/* Once, from module init. Fails: -1, exception set. */
int ep_py_intern_init(void);

/* Whether call sites can be read from the interpreter's frames here. */
extern EP_HIDDEN bool ep_py_sites_usable;

/* ---- Python functions ------------------------------------------------------------------------ */

EP_COLD uint32_t ep_py_code_name_slow(PyCodeObject *code, PyObject *globals);
/* *task: the address of the asyncio task whose step this call or slice is; 0: none. */
EP_COLD uint32_t ep_py_code_site_slow(PyCodeObject *code, ep_frame *frame, uintptr_t *task);

/* HOT. The name id of a code object (0: no memory; EP_ID_SKIP). */
static inline uint32_t
ep_py_code_name(PyCodeObject *code)
{
    uint32_t id = ep_name_find((uintptr_t)code, EP_TAG_PLAIN);
    return EP_LIKELY(id != 0) ? id : ep_py_code_name_slow(code, NULL);
}

/* HOT. The site of a call whose callee runs in `frame`. */
static inline uint32_t
ep_py_code_site(PyCodeObject *code, ep_frame *frame)
{
    ep_frame *caller = frame != NULL ? ep_frame_previous(frame) : NULL;
    uintptr_t instruction = caller != NULL ? ep_frame_instruction(caller) : 0;
    uint32_t id = ep_site_find((uintptr_t)code, instruction);
    uintptr_t task;
    return EP_LIKELY(id != 0) ? id : ep_py_code_site_slow(code, frame, &task);
}

/* ---- Other callables ------------------------------------------------------------------------- */

/* The key and the name of a callable. */
typedef struct ep_callee {
    uintptr_t key;        /* part of the key of its sites: an address, or name id << 4 | 8 if the address is
                           * not enough */
    uint32_t name;        /* 0: not looked up yet; key is a plain address */
} ep_callee;

static inline uintptr_t
ep_py_key_of_name(uint32_t name)
{
    return (uintptr_t)name << 4 | 8;
}

/* Unwraps bound methods: gives the function, or the object that holds the method definition. */
static inline PyObject *
ep_py_unbound(PyObject *callable)
{
    while (Py_IS_TYPE(callable, &PyMethod_Type)) {
        callable = PyMethod_GET_FUNCTION(callable);
    }
    return callable;
}

/* Whether a CALL event is of a Python function, whose call is recorded when the function starts. 3.12
 * and 3.13 pass Python functions as bound methods, too (137,200 of 485,562 CALLs in deltablue). */
static inline bool
ep_py_is_python_function(PyObject *callable)
{
    return Py_IS_TYPE(ep_py_unbound(callable), &PyFunction_Type);
}

/* Slow path of ep_py_callee(): types, instances, anything that needs checking. */
ep_callee ep_py_callee_slow(PyObject *callable);
EP_COLD uint32_t ep_py_callee_name_slow(PyObject *callable, ep_callee callee);
EP_COLD uint32_t ep_py_callee_site_slow(PyObject *callable, ep_callee callee,
                                        uintptr_t instruction);

extern EP_HIDDEN PyMethodDef *ep_py_new_method;    /* type.__new__'s definition: one for all types */

/* HOT. */
static inline ep_callee
ep_py_callee(PyObject *callable)
{
    PyMethodDef *method;
    PyTypeObject *type = Py_TYPE(callable);
    if (type == &PyMethodDescr_Type || type == &PyClassMethodDescr_Type) {
        method = ((PyMethodDescrObject *)callable)->d_method;
    } else if (type == &PyCFunction_Type || type == &PyCMethod_Type) {
        method = ((PyCFunctionObject *)callable)->m_ml;
        if (EP_UNLIKELY(method == ep_py_new_method)) {
            return ep_py_callee_slow(callable);
        }
    } else {
        return ep_py_callee_slow(callable);
    }
    return (ep_callee){.key = (uintptr_t)method};
}

/* HOT. */
static inline uint32_t
ep_py_callee_name(PyObject *callable)
{
    ep_callee callee = ep_py_callee(callable);
    if (callee.name != 0) {
        return callee.name;
    }
    uint32_t id = ep_name_find(callee.key, EP_TAG_PLAIN);
    return EP_LIKELY(id != 0) ? id : ep_py_callee_name_slow(callable, callee);
}

/* The thread's innermost frame of the program; NULL where frames cannot be read. */
static inline ep_frame *
ep_py_frame_now(void)
{
    return ep_py_sites_usable ? ep_frame_of_program(ep_frame_current(ep_thread_state())) : NULL;
}

/* HOT. `instruction`: of the call, in the thread's current frame. */
static inline uint32_t
ep_py_callee_site(PyObject *callable, uintptr_t instruction)
{
    ep_callee callee = ep_py_callee(callable);
    if (EP_UNLIKELY(callee.name == EP_ID_SKIP)) {
        return EP_ID_SKIP;
    }
    uint32_t id = ep_site_find(callee.key, instruction);
    return EP_LIKELY(id != 0) ? id : ep_py_callee_site_slow(callable, callee, instruction);
}

bool ep_py_is_own_code(PyCodeObject *code);

/* The name of the function that runs in a frame, its text with it. */
uint32_t ep_py_frame_name(ep_frame *frame);
/* Like ep_py_frame_name(), in an allocator hook: the name's text may stay pending. */
uint32_t ep_py_frame_name_quietly(ep_frame *frame);
/* Gives a pending name of an allocator hook its text, if that can be found now. */
void ep_py_describe_code(PyCodeObject *code, uint32_t name);

/* HOT. Whether the C call that ends in `code` was made by our own code, and so was not recorded. */
static inline bool
ep_py_ends_own_call(ep_log *log, PyCodeObject *code)
{
    if (EP_LIKELY(log->own_calls == 0) || !ep_py_is_own_code(code)) {
        return false;
    }
    log->own_calls -= 1;
    return true;
}

/* Whether f(*args) is at an instruction of `code`, by its offset in bytes. If f is a bound method, the
 * interpreter does not report the end of such a call (3.13 and later; before, neither begin nor end). */
EP_COLD bool ep_py_is_spread_call(PyCodeObject *code, Py_ssize_t offset);

/* In a CALL event for `callable`: whether the end of that call will not be reported. It is then not
 * recorded. */
static inline bool
ep_py_call_never_ends(PyCodeObject *code, PyObject *offset, PyObject *callable)
{
    return Py_IS_TYPE(callable, &PyMethod_Type) && ep_py_is_spread_call(code, ep_small_int(offset));
}

/* ---- Inside of functions --------------------------------------------------------------------- */

/* Replaces the callee's address in the keys of instructions' sites; the task of such a site is the name of
 * the opcode. Lines, branches and jumps share the sites of blocks. */
#define EP_KEY_OPCODE 2

EP_COLD uint32_t ep_py_place_site_slow(PyCodeObject *code, uintptr_t instruction);
EP_COLD uint32_t ep_py_opcode_site_slow(PyCodeObject *code, uintptr_t instruction);

/* The site of an instruction of `code`, which is running. EP_ID_SKIP: our own code. */
static inline uint32_t
ep_py_place_site(PyCodeObject *code, uintptr_t instruction)
{
    uint32_t id = ep_site_find(0, instruction);
    return EP_LIKELY(id != 0) ? id : ep_py_place_site_slow(code, instruction);
}

static inline uint32_t
ep_py_opcode_site(PyCodeObject *code, uintptr_t instruction)
{
    uint32_t id = ep_site_find(EP_KEY_OPCODE, instruction);
    return EP_LIKELY(id != 0) ? id : ep_py_opcode_site_slow(code, instruction);
}

/* Like ep_py_opcode_site(), if frames cannot be read: only the line is known. */
EP_COLD uint32_t ep_py_line_site(PyCodeObject *code, int line);

/* Of an exception of `type` at a place in `code`, which is running. */
EP_COLD uint32_t ep_py_exception_site(PyTypeObject *type, PyCodeObject *code, uintptr_t instruction);

/* set_opcode_names(names): the names of the opcodes 0, 1, ... Once, before instructions are recorded. */
PyObject *ep_py_set_opcode_names(PyObject *module, PyObject *names);

/* ---- Calls that no recorder wants ------------------------------------------------------------ */

EP_COLD ep_verdict ep_py_verdict_slow(PyCodeObject *code, uint32_t name);

/* `code`: that of the name, NULL if it is of something else. */
static inline ep_verdict
ep_py_verdict(PyCodeObject *code, uint32_t name)
{
    ep_verdict verdict;
    return EP_LIKELY(ep_gate_find(name, &verdict)) ? verdict : ep_py_verdict_slow(code, name);
}

/* HOT. While ep_gate_asks_names(). Whether any recorder wants calls of `code`. */
static inline bool
ep_py_code_is_wanted(PyCodeObject *code)
{
    uint32_t name = ep_py_code_name(code);
    if (EP_UNLIKELY(name == EP_ID_SKIP || name == 0)) {
        return true;    /* the rest of the hook decides */
    }
    if (EP_LIKELY(ep_verdict_wants(ep_py_verdict(code, name)))) {
        return true;
    }
    ep_gate_note(name);
    return false;
}

typedef enum ep_py_wish {
    EP_PY_WANTED,
    EP_PY_UNWANTED,
    EP_PY_NOTHING_WANTED    /* no call from there of a function that is not in Python is wanted */
} ep_py_wish;

/* HOT. The same for a call of something that is not in Python, by `caller`. */
static inline ep_py_wish
ep_py_callee_wish(PyCodeObject *caller, PyObject *callable)
{
    ep_verdict from = 0;
    if (EP_LIKELY(ep_py_sites_usable)) {    /* else sites have no callers */
        uint32_t name = ep_py_code_name(caller);
        if (EP_UNLIKELY(name == EP_ID_SKIP || name == 0)) {
            return EP_PY_WANTED;
        }
        from = ep_py_verdict(caller, name);
    }
    if (!ep_verdict_wants_any_from(from)) {
        return EP_PY_NOTHING_WANTED;
    }
    if (Py_IS_TYPE(ep_py_unbound(callable), &PyFunction_Type)) {
        return EP_PY_UNWANTED;    /* a Python function: decided when it starts */
    }
    uint32_t name = ep_py_callee_name(callable);
    if (EP_UNLIKELY(name == EP_ID_SKIP || name == 0)) {
        return EP_PY_WANTED;
    }
    ep_verdict verdict = ep_py_verdict(NULL, name);
    if (EP_LIKELY(ep_verdict_wants_from(verdict, from))) {
        return EP_PY_WANTED;
    }
    if (ep_verdict_excluded(verdict)) {
        ep_gate_note(name);
    }
    return EP_PY_UNWANTED;
}

/* Like the two above, but not for the current call: `frame` (of code) and `callable` were called by the
 * frame `caller` (NULL: by no Python code). */
EP_COLD uint32_t ep_py_code_site_from(PyCodeObject *code, ep_frame *frame, ep_frame *caller,
                                      uintptr_t *task);
EP_COLD uint32_t ep_py_callee_site_from(PyObject *callable, ep_frame *caller);

/* ---- Allocations ----------------------------------------------------------------------------- */

/* Whether greenlet is loaded. It frees, by PyMem_Free, the copy of a C stack that it has just restored; up
 * to 3.12 the pointer to the thread's frames is on that stack, and so is not valid then. */
extern EP_HIDDEN _Atomic bool ep_py_greenlets;

/* At each start, with the GIL; a later import is noticed by its code. */
void ep_py_look_for_greenlets(void);

/* For code that is seen for the first time: a package that is being imported runs its own code. It only
 * reads memory. */
EP_COLD void ep_py_note_greenlets(PyCodeObject *code);

/* Whether the path of its file ends so. It only reads memory. */
bool ep_py_code_is_of_file(PyCodeObject *code, const char *end);

/* The function that waits for NumPy to be loaded, NULL: none. ep_py_block_site_slow() calls it, in an
 * allocator hook, when NumPy may be loaded. */
typedef void ep_py_numpy_waiter(void);
extern EP_HIDDEN _Atomic(ep_py_numpy_waiter *) ep_py_numpy_awaited;

/* Releases references to types that no longer exist. That frees blocks of the program, so call it under the
 * GIL, outside of hooks, while hooks still record. */
void ep_py_release_types(void);

EP_COLD uint32_t ep_py_block_site_slow(ep_frame *frame);

/* HOT. The site where the thread is executing. For allocator hooks: it reads only frames and tables.
 * ts NULL or without frames: 0. */
static inline uint32_t
ep_py_block_site(PyThreadState *ts)
{
    if (EP_UNLIKELY(ts == NULL || !ep_py_sites_usable)) {
        return 0;
    }
    ep_frame *frame = ep_frame_of_program(ep_frame_current(ts));
    if (EP_UNLIKELY(frame == NULL)) {
        return 0;
    }
    uint32_t id = ep_site_find(0, ep_frame_instruction(frame));
    return EP_LIKELY(id != 0) ? id : ep_py_block_site_slow(frame);
}

/* ---- Events that are neither calls nor blocks ------------------------------------------------- */

/* The site of `name` where `frame` executes (NULL: not in Python; then the GIL is not needed). */
EP_COLD uint32_t ep_py_place_slow(uint32_t name, ep_frame *frame);

/* HOT. The same. */
static inline uint32_t
ep_py_place(ep_log *log, uint32_t name, ep_frame *frame)
{
    uintptr_t key = ep_py_key_of_name(name);
    uintptr_t instruction = frame != NULL ? ep_frame_instruction(frame) : 0;
    uint32_t id = ep_call_site_recent(&log->recent, key, instruction);
    if (EP_UNLIKELY(id == 0)) {
        id = ep_call_site_find_recent(&log->recent, key, instruction);
    }
    return EP_LIKELY(id != 0) ? id : ep_py_place_slow(name, frame);
}

/* As ep_py_place(), with or without the GIL: only `frame` and its code are read, which must stay. A caller
 * that was never recorded is left out. */
EP_COLD uint32_t ep_py_place_unattached(uint32_t name, ep_frame *frame);

/* The name of a type; EP_ID_SKIP: one of our own. Makes no object. */
uint32_t ep_py_type_name(PyTypeObject *type);

/* Whether the thread belongs to the recorded interpreter. */
bool ep_py_is_own_interpreter(const PyThreadState *ts);

/* ---- At retrieval, with the GIL -------------------------------------------------------------- */

/* Computes the lines of sites and describes names that were met in an allocator hook. */
int ep_py_intern_resolve(void);

/* The calls that are open on a thread, outermost first; without the innermost, if its frame is `but`.
 * Returns: new (free()), NULL without memory; *depth set. The thread must not run: the GIL is held, or it
 * is the calling thread. */
ep_open_call *ep_py_open_calls(PyThreadState *ts, ep_thread *thread, const ep_frame *but,
                               size_t *depth);

/* Tells the engine which open slices of generators an exception may have begun. The thread must not run.
 * anew: calls were not recorded until now. */
void ep_py_note_open_slices(PyThreadState *ts, ep_thread *thread, bool anew);

/* The nearest frame of the program that the program itself could see. */
ep_frame *ep_py_visible_frame(ep_frame *frame);

/* The frame of a stopped thread, if it is at the first instruction of a function or after a yield; else
 * NULL. */
ep_frame *ep_py_frame_at_resume(PyThreadState *ts);

/* Does what the EP_TODO_* bits ask for before an event of `kind`: gives the calling thread the name of its
 * threading.Thread, and settles which calls were open at the start of windows that found them at their
 * entry. */
EP_COLD void ep_py_do_pending_work(ep_log *log, ep_kind kind);

/* What is done for EP_TODO_PROCESSOR; set by the source of waits before anybody sets that bit. */
extern void (*ep_py_look_at_processor)(ep_log *log);

/* What is done for EP_TODO_STACKS; set by greenlets.c before anybody sets that bit. */
extern void (*ep_py_look_for_stacks)(ep_log *log);

/* In a forked child: gives it the name that the pool or the server which forked has for it. */
EP_COLD void ep_py_name_worker_at_fork(void);

/* EP_TODO_* of a log. With the GIL nobody else sets bits meanwhile, and a plain load is folded into the
 * comparison: an instruction less for every event. */
static inline uint32_t
ep_py_todo(const ep_log *log)
{
    return EP_GIL_DISABLED ? atomic_load_explicit(&log->todo, memory_order_relaxed)
                           : *(const uint32_t *)&log->todo;
}

/* heeds_mute must be a compile-time constant: the test then disappears. */
static inline ep_log *
ep_py_log_unless_muted(ep_kind kind, bool heeds_mute)
{
    ep_log *log = ep_log_mine();
    if (EP_UNLIKELY(log == NULL)) {
        ep_engine_count_unlogged(kind);
        return NULL;
    }
    if (EP_UNLIKELY(ep_py_todo(log))) {
        ep_py_do_pending_work(log, kind);
        if (heeds_mute && EP_UNLIKELY(log->todo & EP_TODO_MUTED)) {
            return NULL;
        }
    }
    return log;
}

/* HOT. The calling thread's log, in a hook that holds the GIL, also while calls are muted. NULL: no
 * memory, counted. */
static inline ep_log *
ep_py_log_for_memory(ep_kind kind)
{
    return ep_py_log_unless_muted(kind, false);
}

/* HOT. The same; NULL while the thread is muted, too. */
static inline ep_log *
ep_py_log_for(ep_kind kind)
{
    return ep_py_log_unless_muted(kind, true);
}

/* Copies a str as UTF-8 (surrogates as three bytes) without making Python objects. Returns: view
 * into *heap (free() it) or `stack`; .at NULL if it is not a str, or without memory. */
ep_text ep_py_text(PyObject *text, char *stack, size_t stack_bytes, char **heap);

/* The directory of our package: code in it is never recorded. */
void ep_py_set_own_directory(const char *directory);
/* Code of this file counts as our own, too. */
void ep_py_add_launcher_file(const char *file);

/* Text by its string id. Returns: new; None for an unknown text. Surrogates come back as they
 * were. */
PyObject *ep_py_string(uint32_t string);

#endif
