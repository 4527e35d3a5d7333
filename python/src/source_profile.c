/* The source of calls by PyEval_SetProfile: 3.11, and `backend="profile"` elsewhere.
 *
 * The hook is a thread's own. Existing threads are set at start; new ones are met where they are
 * made: _thread's start functions are wrapped while the source is in. C threads that enter by
 * PyGILState_Ensure are not seen (monitoring sees them).
 *
 * The interpreter passes an object of ours to the hook, so that sys.getprofile() shows who holds it
 * and sys.setprofile() can put it back. */
#include "compat.h"

#include <opcode.h>

#include "evaluator.h"
#include "footprint.h"
#include "intern.h"
#include "module.h"
#include "source.h"

static uint64_t active_kinds;
/* What the hook's fast half does not know: filters, calls that are not wanted, call sites that
 * cannot be read. */
static bool asks_more;
static PyObject *hook_object;       /* passed to the hook; made once, immortal */
static bool displaced_somewhere;    /* a thread whose hook was another tool's when we came */
static _Atomic uint64_t interruption_count;    /* see ep_source */
static uint64_t starter_id;         /* the thread that put us in: it must have our hook */

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

/* 3.12 passes None for the value of an unwound call, too. An unwound generator may stand at its
 * yield; but only one that yields is suspended by now. */
#define UNWIND_PASSES_NONE (PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030D0000)
#if UNWIND_PASSES_NONE
static const bool is_return[256] = {
    [RETURN_VALUE] = true,
    [RETURN_CONST] = true,
    [INSTRUMENTED_RETURN_VALUE] = true,
    [INSTRUMENTED_RETURN_CONST] = true,
};
#endif

/* ---- The hook -------------------------------------------------------------------------------- */

typedef struct instruction {
    unsigned char opcode, argument;
} instruction;

/* Under line monitoring (coverage) the opcode in place is a stand-in; the code's bytes say what
 * for. */
static EP_COLD instruction
instruction_below(PyCodeObject *code, ep_frame *frame)
{
    instruction found = {0, 0};
    Py_ssize_t offset = ep_frame_offset(frame);
    uint32_t busy = ep_log_current->busy;
    ep_log_current->busy = 1;    /* what this allocates is ours */
    PyObject *bytes = PyCode_GetCode(code);
    if (bytes != NULL && offset >= 0 && offset + 1 < PyBytes_GET_SIZE(bytes)) {
        found.opcode = (unsigned char)PyBytes_AS_STRING(bytes)[offset];
        found.argument = (unsigned char)PyBytes_AS_STRING(bytes)[offset + 1];
    }
    Py_XDECREF(bytes);
    PyErr_Clear();
    ep_log_current->busy = busy;
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
    /* It stands at the yield that the exception comes out of, or has moved on (3.13). */
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
#if UNWIND_PASSES_NONE
    if (value == Py_None) {
        return ep_frame_is_suspended(frame)                         ? EP_KIND_YIELD
               : is_return[current_instruction(code, frame).opcode] ? EP_KIND_RETURN
                                                                    : EP_KIND_UNWIND;
    }
#endif
    if (is_generator(code)) {
        /* 3.13 has moved on to the resume behind the yield by now. */
        instruction now = current_instruction(code, frame);
        if (is_yield[now.opcode] || (is_resume[now.opcode] && (now.argument & 3) != 0)) {
            return EP_KIND_YIELD;
        }
    }
    return EP_KIND_RETURN;
}

#define GC_HEADER_BYTES (EP_GIL_DISABLED ? 0 : 16)

/* The mechanism binds methods to instances. What is bound to a class was so by the program. */
static inline bool
may_be_bound_by_mechanism(PyObject *builtin)
{
    return PyCFunction_Check(builtin) && !(PyCFunction_GET_FLAGS(builtin) & METH_CLASS);
}

/* What the mechanism allocated on the way to us: the frame object, a bound builtin, line tables. */
static inline void
take_back_own(ep_log *log, PyFrameObject *frame, PyCodeObject *code, PyObject *argument)
{
    uintptr_t builtin = argument != NULL && may_be_bound_by_mechanism(argument)
                            ? (uintptr_t)argument - GC_HEADER_BYTES
                            : 0;
    for (bool more = true; more;) {
        more = ep_footprint_take_lasting(log, (uintptr_t)frame - GC_HEADER_BYTES) ||
               ep_footprint_take_lasting(log, builtin) ||
#if PY_VERSION_HEX < 0x030C0000
               ep_footprint_take_lasting(log, (uintptr_t)code->_co_linearray);
#else
               ep_footprint_take_lasting(log, (uintptr_t)code->_co_monitoring) ||
               ep_footprint_take_box(log);
#endif
    }
}

bool
ep_footprint_take_box(ep_log *log)
{
#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030E0000
    uintptr_t block = ep_log_last_block(log);
    if (block == 0) {
        return false;
    }
    uint64_t size = EP_WORD0_PAYLOAD(atomic_load_explicit(log->last_block, memory_order_relaxed));
    PyLongObject *object = (PyLongObject *)block;
    if (size < 24 || size > 48 || !Py_IS_TYPE((PyObject *)object, &PyLong_Type) ||
        !PyUnstable_Long_IsCompact(object)) {
        return false;
    }
    ep_frame *frame = ep_py_frame_now();
    return frame != NULL && PyUnstable_Long_CompactValue(object) == ep_frame_offset(frame) &&
           ep_footprint_take_lasting(log, block);
#else
    (void)log;
    return false;
#endif
}

/* References to a frame object in the hook if nobody but the interpreter has any. */
#define FRAME_REFERENCES (PY_VERSION_HEX < 0x030C0000 ? 1 : 2)

/* The call ends, and somebody keeps its frame object; an exception's traceback, most of all.
 * Without the mechanism that would have made it: so it is the program's now. */
static EP_COLD void
give_frame_to_program(ep_log *log, uint64_t ticks, PyFrameObject *frame, PyCodeObject *code)
{
    uintptr_t block = (uintptr_t)frame - GC_HEADER_BYTES;
    if (ep_footprint_forget(block)) {
        Py_ssize_t bytes =
            _PyObject_VAR_SIZE(Py_TYPE(frame), code->co_nlocalsplus + code->co_stacksize);
        ep_log_put_block(log, ticks, EP_KIND_MALLOC + EP_DOMAIN_OBJ,
                         (uint64_t)bytes + GC_HEADER_BYTES, block,
                         ep_py_block_site(ep_thread_state()));
    }
}

/* A call ended, unless it only yields: what the mechanism made for it may be the program's now. */
static inline void
leave_frame(ep_log *log, uint64_t ticks, PyFrameObject *frame, PyCodeObject *code, ep_kind kind)
{
    if (EP_UNLIKELY(Py_REFCNT(frame) > FRAME_REFERENCES) && kind != EP_KIND_YIELD &&
        ep_footprint_active()) {
        give_frame_to_program(log, ticks, frame, code);
    }
}

/* Not into the hook, whose registers they would take where there are no filters. */
#define EP_WITH_FILTERS __attribute__((noinline))

/* There is no switching off here: what nobody wants still costs the way to us and this. */
static EP_WITH_FILTERS bool
is_wanted(int what, PyCodeObject *code, PyObject *argument)
{
    return what >= PyTrace_C_CALL ? ep_py_callee_wish(code, argument) == EP_PY_WANTED
                                  : ep_py_code_is_wanted(code);
}

static EP_WITH_FILTERS void
put_gated(ep_log *log, uint64_t ticks, ep_kind kind, uint32_t id)
{
    if (ep_kinds[kind].pairing == EP_PAIRING_OPENS) {
        ep_gate_put_open(log, ticks, kind, id);
    } else {
        ep_gate_put_close(log, ticks, kind, id);
    }
}

/* As ep_py_callee(), where nothing needs to be called; key 0: something else. */
static inline ep_callee
fast_callee(PyObject *callable)
{
    PyTypeObject *type = Py_TYPE(callable);
    PyMethodDef *method = NULL;
    if (type == &PyCFunction_Type) {
        method = ((PyCFunctionObject *)callable)->m_ml;
        method = EP_LIKELY(method != ep_py_new_method) ? method : NULL;
    } else if (type == &PyMethodDescr_Type) {
        method = ((PyMethodDescrObject *)callable)->d_method;
    }
    return (ep_callee){.key = (uintptr_t)method};
}

static EP_WITH_FILTERS int
hook_whole(PyFrameObject *frame_object, int what, PyObject *argument)
{
    uint64_t ticks = ep_clock_ticks();
    ep_log *log = ep_py_log_for(what == PyTrace_CALL ? EP_KIND_CALL : EP_KIND_RETURN);
    if (EP_UNLIKELY(log == NULL)) {
        return 0;
    }
    ep_frame *frame = ep_frame_of_object(frame_object);
    PyCodeObject *code = ep_frame_code(frame);
    if (ep_footprint_active()) {
        take_back_own(log, frame_object, code, what == PyTrace_RETURN ? NULL : argument);
    }
    if (what >= PyTrace_C_CALL && !(active_kinds & EP_KINDS_C)) {
        return 0;
    }
    if (EP_UNLIKELY(ep_gate_asks_names()) && !is_wanted(what, code, argument)) {
        if (what == PyTrace_RETURN && ep_footprint_active()) {
            leave_frame(log, ticks, frame_object, code, close_kind(code, frame, argument));
        }
        return 0;
    }
    ep_kind kind;
    uint32_t id;
    switch (what) {
        case PyTrace_CALL:
            kind = open_kind(code, frame);
            id = ep_py_code_site(code, ep_py_sites_usable ? frame : NULL);
            break;
        case PyTrace_RETURN:
            kind = close_kind(code, frame, argument);
            id = ep_py_code_name(code);
            leave_frame(log, ticks, frame_object, code, kind);
            break;
        case PyTrace_C_CALL:
            kind = EP_KIND_C_CALL;
            id = ep_py_callee_site(argument, ep_frame_instruction(frame));
            break;
        case PyTrace_C_RETURN:
            kind = EP_KIND_C_RETURN;
            id = ep_py_callee_name(argument);
            break;
        case PyTrace_C_EXCEPTION:
            kind = EP_KIND_C_EXCEPTION;
            id = ep_py_callee_name(argument);
            break;
        default:
            return 0;
    }
    bool ends_c_call = what == PyTrace_C_RETURN || what == PyTrace_C_EXCEPTION;
    if (EP_UNLIKELY(id == EP_ID_SKIP || (ends_c_call && ep_py_ends_own_call(log, code)))) {
        return 0;
    }
    if (EP_UNLIKELY(ep_gate_asks_calls())) {
        put_gated(log, ticks, kind, id);
    } else {
        ep_log_put(log, ticks, kind, id);
    }
    return 0;
}

static void
count_interruption(void)
{
    atomic_fetch_add_explicit(&interruption_count, 1, memory_order_relaxed);    /* a count alone */
}

static inline uint32_t
call_site(ep_log *log, uintptr_t callee, uintptr_t from)
{
    uint32_t id = ep_call_site_recent(&log->recent, callee, from);
    return EP_LIKELY(id != 0) ? id : ep_call_site_find_recent(&log->recent, callee, from);
}

static inline uint32_t
name_of(ep_log *log, uintptr_t callee)
{
    uint32_t id = ep_name_recent(&log->recent, callee);
    return EP_LIKELY(id != 0) ? id : ep_name_find_recent(&log->recent, callee);
}

/* The hook of every thread: the fast half, which calls nothing. What is out of the ordinary, blocks
 * recorded as well, and filters: the whole, which begins anew. */
static int
hook(PyObject *self, PyFrameObject *frame_object, int what, PyObject *argument)
{
    (void)self;
    ep_log *log = ep_log_current;
    if (EP_UNLIKELY(log == NULL || log->fresh || !ep_clock_is_counter() || ep_footprint_active() ||
                    asks_more || log->own_calls != 0)) {
        return hook_whole(frame_object, what, argument);
    }
    ep_frame *frame = ep_frame_of_object(frame_object);
    PyCodeObject *code = ep_frame_code(frame);
    ep_callee callee;
    ep_frame *caller;
    ep_kind kind;
    uint32_t id = 0;
    switch (what) {
        case PyTrace_CALL:
            kind = open_kind(code, frame);
            caller = ep_frame_previous(frame);
            id = call_site(log, (uintptr_t)code,
                           caller != NULL ? ep_frame_instruction(caller) : 0);
            break;
        case PyTrace_RETURN:
            kind = close_kind(code, frame, argument);
            id = name_of(log, (uintptr_t)code);
            break;
        case PyTrace_C_CALL:
            kind = EP_KIND_C_CALL;
            callee = fast_callee(argument);
            id = callee.key != 0 ? call_site(log, callee.key, ep_frame_instruction(frame)) : 0;
            break;
        case PyTrace_C_RETURN:
            kind = EP_KIND_C_RETURN;
            callee = fast_callee(argument);
            id = callee.key != 0 ? name_of(log, callee.key) : 0;
            break;
        default:
            break;
    }
    if (EP_UNLIKELY(id == 0)) {
        return hook_whole(frame_object, what, argument);
    }
    ep_log_put_at(log, ep_clock_counter_halves(), kind, id);
    return 0;
}

/* ---- The object behind sys.getprofile() ------------------------------------------------------ */

static int
what_of(PyObject *event)
{
    static const char *const names[] = {
        [PyTrace_CALL] = "call",
        [PyTrace_RETURN] = "return",
        [PyTrace_C_CALL] = "c_call",
        [PyTrace_C_EXCEPTION] = "c_exception",
        [PyTrace_C_RETURN] = "c_return",
    };
    for (int what = 0; PyUnicode_Check(event) && what <= PyTrace_C_RETURN; what++) {
        if (names[what] != NULL && PyUnicode_CompareWithASCIIString(event, names[what]) == 0) {
            return what;
        }
    }
    return -1;
}

/* sys.setprofile(old) with us as old: the first event comes through here, and puts the C hook
 * back. */
static PyObject *
hook_call(PyObject *self, PyObject *args, PyObject *keywords)
{
    PyObject *frame, *event, *argument;
    (void)keywords;
    if (!PyArg_ParseTuple(args, "O!UO:profile hook", &PyFrame_Type, &frame, &event, &argument)) {
        return NULL;
    }
    if (active_kinds == 0) {
        PyEval_SetProfile(NULL, NULL);    /* we are no longer recording: out of the way */
        Py_RETURN_NONE;
    }
    count_interruption();
    PyEval_SetProfile(hook, self);
    int what = what_of(event);
    if (what >= 0) {
        (void)hook(self, (PyFrameObject *)frame, what, argument);
    }
    Py_RETURN_NONE;
}

static PyObject *
hook_repr(PyObject *self)
{
    (void)self;
    return PyUnicode_FromString("<eventprof profile hook>");
}

static PyType_Slot hook_slots[] = {
    {Py_tp_call, hook_call},
    {Py_tp_repr, hook_repr},
    {0, NULL},
};

static PyType_Spec hook_spec = {
    .name = "eventprof._core.ProfileHook",
    .basicsize = sizeof(PyObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = hook_slots,
};

/* ---- New threads ----------------------------------------------------------------------------- */

/* Runs in the new thread: sets its hook, then calls what the program wanted called. Shows that
 * function's repr where the interpreter reports an error in it. */
typedef struct starter_object {
    PyObject_HEAD
    PyObject *function;
} starter_object;

static PyTypeObject *starter_type;

static PyObject *
starter_call(PyObject *self, PyObject *args, PyObject *keywords)
{
    PyThreadState *ts = PyThreadState_Get();
    if (active_kinds != 0 && ts->c_profilefunc == NULL) {
        PyEval_SetProfile(hook, hook_object);
    }
    PyObject *function = ((starter_object *)self)->function;
    PyObject *result = PyObject_Call(function, args, keywords);
    if (result == NULL && ep_py_report_thread_error(function)) {
        result = Py_NewRef(Py_None);
    }
    if (active_kinds != 0 && ts->c_profilefunc != hook) {
        count_interruption();    /* nobody could see it later: the thread ends here */
    }
    return result;
}

static PyObject *
starter_repr(PyObject *self)
{
    return PyObject_Repr(((starter_object *)self)->function);
}

static int
starter_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((starter_object *)self)->function);
    return 0;
}

static int
starter_clear(PyObject *self)
{
    Py_CLEAR(((starter_object *)self)->function);
    return 0;
}

static void
starter_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    (void)starter_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyType_Slot starter_slots[] = {
    {Py_tp_call, starter_call},
    {Py_tp_repr, starter_repr},
    {Py_tp_traverse, starter_traverse},
    {Py_tp_clear, starter_clear},
    {Py_tp_dealloc, starter_dealloc},
    {0, NULL},
};

static PyType_Spec starter_spec = {
    .name = "eventprof._core.ThreadStarter",
    .basicsize = sizeof(starter_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_GC,
    .slots = starter_slots,
};

/* start_new_thread(function, ...), start_joinable_thread(function, ...): the same with a starter.
 * self is the wrapped builtin. */
static PyObject *
start_wrapped(PyObject *self, PyObject *args, PyObject *keywords)
{
    if (active_kinds == 0 || PyTuple_GET_SIZE(args) == 0 ||
        !PyCallable_Check(PyTuple_GET_ITEM(args, 0))) {
        return PyObject_Call(self, args, keywords);
    }
    starter_object *starter = PyObject_GC_New(starter_object, starter_type);
    if (starter == NULL) {
        return NULL;
    }
    starter->function = Py_NewRef(PyTuple_GET_ITEM(args, 0));
    PyObject_GC_Track(starter);
    PyObject *changed = PyTuple_New(PyTuple_GET_SIZE(args));
    PyObject *result = NULL;
    if (changed != NULL) {
        PyTuple_SET_ITEM(changed, 0, Py_NewRef((PyObject *)starter));
        for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(args); i++) {
            PyTuple_SET_ITEM(changed, i, Py_NewRef(PyTuple_GET_ITEM(args, i)));
        }
        result = PyObject_Call(self, changed, keywords);
        Py_DECREF(changed);
    }
    Py_DECREF(starter);
    return result;
}

static PyMethodDef start_definition = {"start_new_thread", (PyCFunction)(void (*)(void))start_wrapped,
                                       METH_VARARGS | METH_KEYWORDS, NULL};

/* Where the interpreter and threading keep the functions that start threads. */
static const char *const start_places[][2] = {
    {"_thread", "start_new_thread"},
    {"_thread", "start_new"},
    {"_thread", "start_joinable_thread"},
    {"threading", "_start_new_thread"},
    {"threading", "_start_joinable_thread"},
};
#define START_PLACE_COUNT (sizeof start_places / sizeof *start_places)

static bool
is_our_wrapper(PyObject *function)
{
    return PyCFunction_CheckExact(function) &&
           ((PyCFunctionObject *)function)->m_ml == &start_definition;
}

/* Wraps (in) or unwraps what is there; what somebody else replaced meanwhile stays. */
static int
wrap_starts(bool in)
{
    for (size_t i = 0; i < START_PLACE_COUNT; i++) {
        PyObject *module = PyImport_ImportModule(start_places[i][0]);
        PyObject *now = module != NULL ? PyObject_GetAttrString(module, start_places[i][1]) : NULL;
        int status = 0;
        if (module != NULL && now == NULL) {
            PyErr_Clear();    /* this version has no such function */
        } else if (now == NULL) {
            status = -1;
        } else if (in && !is_our_wrapper(now)) {
            PyObject *wrapper = PyCFunction_New(&start_definition, now);
            status = wrapper != NULL ? PyObject_SetAttrString(module, start_places[i][1], wrapper) : -1;
            Py_XDECREF(wrapper);
        } else if (!in && is_our_wrapper(now)) {
            status = PyObject_SetAttrString(module, start_places[i][1],
                                            ((PyCFunctionObject *)now)->m_self);
        }
        Py_XDECREF(now);
        Py_XDECREF(module);
        if (status < 0 && in) {
            return -1;
        }
    }
    return 0;
}

/* ---- In and out ------------------------------------------------------------------------------ */

/* Calls `visit` on every thread of this interpreter. */
static int
each_thread(int (*visit)(PyThreadState *ts))
{
    int status = 0;
    PyThreadState *ts = PyInterpreterState_ThreadHead(PyInterpreterState_Get());
    for (; ts != NULL && status == 0; ts = PyThreadState_Next(ts)) {
        status = visit(ts);
    }
    return status;
}

static int
set_if_free(PyThreadState *ts)
{
    if (ts->c_profilefunc == NULL) {
        return _PyEval_SetProfile(ts, hook, hook_object);
    }
    displaced_somewhere = displaced_somewhere || ts->c_profilefunc != hook;
    return 0;
}

static int
clear_if_ours(PyThreadState *ts)
{
    if (ts->c_profilefunc == hook) {
        (void)_PyEval_SetProfile(ts, NULL, NULL);
        PyErr_Clear();
    }
    return 0;
}

static int
check_ours(PyThreadState *ts)
{
    return ts->c_profilefunc == hook || (ts->c_profilefunc == NULL && ts->id != starter_id) ? 0 : 1;
}

static int
init_once(void)
{
    if (hook_object != NULL) {
        return 0;
    }
    PyObject *hook_type = PyType_FromSpec(&hook_spec);
    starter_type = (PyTypeObject *)PyType_FromSpec(&starter_spec);
    if (hook_type == NULL || starter_type == NULL) {
        return -1;
    }
    hook_object = PyObject_New(PyObject, (PyTypeObject *)hook_type);
    return hook_object != NULL ? 0 : -1;
}

static void
want(uint64_t kinds)
{
    active_kinds = kinds;
    asks_more = ep_gate_is_on() || !(kinds & EP_KINDS_C) || !ep_py_sites_usable;
}

static bool evaluator_allowed;

void
ep_py_profile_allow_evaluator(bool allowed)
{
    evaluator_allowed = allowed;
}

static void
adjust_evaluator(void)
{
    if (evaluator_allowed && active_kinds != 0 && !(active_kinds & EP_KINDS_C)) {
        ep_py_evaluator_put_in(hook);
    } else {
        ep_py_evaluator_take_out();
    }
}

static void
take_out(void)
{
    want(0);
    adjust_evaluator();
    (void)wrap_starts(false);
    PyErr_Clear();
    (void)each_thread(clear_if_ours);
}

static int
adjust(uint64_t kinds)
{
    if (kinds == 0) {
        if (active_kinds != 0) {
            take_out();
        }
        return 0;
    }
    if (active_kinds != 0) {
        want(kinds);
        adjust_evaluator();
        return 0;
    }
    if (init_once() < 0) {
        return -1;
    }
    PyThreadState *ts = PyThreadState_Get();
    if (ts->c_profilefunc != NULL && ts->c_profilefunc != hook) {
        PyErr_Format(ep_py_error(EP_ERROR_TOOL_IN_USE),
                     "another profiler holds this thread's profile hook (%R); stop it first%s",
                     ts->c_profileobj != NULL ? ts->c_profileobj : Py_None,
                     ep_py_monitoring_available() ? ", or pass backend='monitoring'" : "");
        return -1;
    }
    want(kinds);
    displaced_somewhere = false;
    starter_id = ts->id;
    if (wrap_starts(true) < 0 || each_thread(set_if_free) < 0) {
        ep_py_exception saved = ep_py_exception_save();
        take_out();
        ep_py_exception_restore(saved);
        return -1;
    }
    adjust_evaluator();
    return 0;
}

static bool
owns(void)
{
    return active_kinds == 0 ||
           (!displaced_somewhere && each_thread(check_ours) == 0 && ep_py_evaluator_owns());
}

static uint64_t
interruptions(void)
{
    return atomic_load_explicit(&interruption_count, memory_order_relaxed);
}

const ep_source ep_source_profile = {
    .name = "profile",
    .kinds = EP_KINDS_CALLS,
    .adjust = adjust,
    .owns = owns,
    .interruptions = interruptions,
};
