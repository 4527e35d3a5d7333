/* The source of events inside of functions by PyEval_SetTrace: lines, instructions and exceptions on 3.11,
 * and with `backend="trace"`.
 *
 * Each thread has a trace hook of its own, like a profile hook (source_profile.c). But a trace function
 * that is there already (coverage, a debugger) goes on: our hook takes its place, keeps its object, so that
 * sys.gettrace() gives what it gave before, and calls it. A tool that sets its hook later displaces ours.
 *
 * A trace hook does not see calls of functions that are not in Python (the profile hook does), branches and
 * jumps, nor where an exception is raised again or handled. */
#include "frame_events.h"

#include "errors.h"
#include "generator_stacks.h"
#include "labels.h"
#include "task_events.h"
#include "thread_starts.h"

static ep_kind_set active_kinds;
/* What the hook's fast half does not handle: filters, places that cannot be read. */
static bool asks_more;
static PyObject *hook_object;       /* passed to the hook; made once, immortal */
static PyObject *str_trace_opcodes; /* interned, immortal */
static _Atomic uint64_t interruption_count;    /* see ep_source */
static uint64_t starter_id;         /* the thread that installed the hook, which must have it */

/* The trace function that our hook calls, of each thread that had one. Changed and read with the GIL. */
typedef struct previous {
    uint64_t thread_id;
    Py_tracefunc function;
} previous;

static previous *all_previous;
static size_t previous_count, previous_capacity;

/* What our hook writes to f_trace_opcodes. The interpreter takes it as true, as the 1 of a program that
 * asks for "opcode" events itself. */
#define OPCODES_ARE_OURS 2

static int hook(PyObject *self, PyFrameObject *frame, int what, PyObject *argument);

/* ---- Who was there before -------------------------------------------------------------------- */

static Py_tracefunc
previous_of(const PyThreadState *ts)
{
    for (size_t i = 0; i < previous_count; i++) {
        if (all_previous[i].thread_id == ts->id) {
            return all_previous[i].function;
        }
    }
    return NULL;
}

/* Puts our hook in front of the thread's trace function. Nothing else of the thread changes, so the
 * interpreter's count of tracing threads stays right. Fails: -1, exception set. */
static int
go_in_front(PyThreadState *ts)
{
    if (ts->c_tracefunc == NULL || ts->c_tracefunc == hook) {
        return 0;
    }
    if (previous_count == previous_capacity) {
        size_t capacity = previous_capacity * 2 + 8;
        previous *more = realloc(all_previous, capacity * sizeof *more);
        if (more == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        all_previous = more;
        previous_capacity = capacity;
    }
    all_previous[previous_count++] = (previous){.thread_id = ts->id, .function = ts->c_tracefunc};
    ts->c_tracefunc = hook;
    return 0;
}

static int
give_back(PyThreadState *ts)
{
    Py_tracefunc function = ts->c_tracefunc == hook ? previous_of(ts) : NULL;
    if (function != NULL) {
        ts->c_tracefunc = function;
    }
    return 0;
}

/* Calls the trace function that was there before. Its exceptions reach the program, as they would without
 * our hook. It may remove itself, and then our hook goes with it. */
static EP_COLD int
pass_on(PyObject *object, PyFrameObject *frame, int what, PyObject *argument)
{
    Py_tracefunc function = previous_of(PyThreadState_Get());
    if (function == NULL ||
        (what == PyTrace_OPCODE && *ep_frame_traces_opcodes(frame) == OPCODES_ARE_OURS)) {
        return 0;
    }
    return function(object, frame, what, argument);
}

/* ---- The hook -------------------------------------------------------------------------------- */

/* Asks for "opcode" events of this call. */
static EP_COLD void
trace_opcodes(PyFrameObject *frame)
{
#if EP_OPCODES_ARE_MONITORED
    uint32_t busy = ep_log_current->busy;
    ep_log_current->busy = 1;
    ep_py_exception saved = ep_py_exception_save();
    /* 3.13 traces only frames that have their own trace function; the setter tests that for NULL. */
    PyObject **local = ep_frame_trace_function(frame), *before = *local;
    *local = before != NULL ? before : Py_None;
    (void)PyObject_SetAttr((PyObject *)frame, str_trace_opcodes, Py_True);
    *local = before;
    PyErr_Clear();
    ep_py_exception_restore(saved);
    ep_log_current->busy = busy;
#endif
    *ep_frame_traces_opcodes(frame) = OPCODES_ARE_OURS;
}

/* The end of an iteration comes as an exception, too: at the instruction that iterates. */
static ep_kind
exception_kind(PyObject *type, PyCodeObject *code, ep_frame *frame)
{
    static const bool iterates[256] = {
        [FOR_ITER] = true,
        [SEND] = true,
#if EP_HAS_END_FOR
        [END_FOR] = true,
        [END_SEND] = true,
#endif
    };
    bool is_end = PyExceptionClass_Check(type) &&
                  PyType_IsSubtype((PyTypeObject *)type, (PyTypeObject *)PyExc_StopIteration) &&
                  iterates[instruction_below(code, frame).opcode];
    return is_end ? EP_KIND_STOP_ITERATION : EP_KIND_RAISE;
}

static ep_kind_set
kinds_of(int what)
{
    switch (what) {
        case PyTrace_CALL:
        case PyTrace_RETURN:
            return ep_kinds_python;
        case PyTrace_LINE:
            return EP_KIND_BIT(EP_KIND_LINE);
        case PyTrace_OPCODE:
            return EP_KIND_BIT(EP_KIND_INSTRUCTION);
        case PyTrace_EXCEPTION:
            return ep_kinds_exceptions;
        default:
            return 0;
    }
}

static void
put(ep_log *log, uint64_t ticks, ep_kind kind, uint32_t id)
{
    ticks = ep_log_not_before(log, ticks);
    if (EP_LIKELY(!ep_gate_asks_calls())) {
        ep_log_put(log, ticks, kind, id);
    } else if (ep_kinds[kind].pairing == EP_PAIRING_OPENS) {
        ep_gate_put_open(log, ticks, kind, id);
    } else if (ep_kinds[kind].pairing == EP_PAIRING_CLOSES) {
        ep_gate_put_close(log, ticks, kind, id);
    } else if (!ep_gate_is_deep(log)) {
        ep_log_put(log, ticks, kind, id);
    }
}

static __attribute__((noinline)) void
record_slow(PyFrameObject *frame_object, int what, PyObject *argument)
{
    uint64_t ticks = ep_clock_ticks();
    ep_log *log = ep_py_log_for(what == PyTrace_CALL     ? EP_KIND_CALL
                                : what == PyTrace_RETURN ? EP_KIND_RETURN
                                                         : EP_KIND_LINE);
    if (EP_UNLIKELY(log == NULL)) {
        return;
    }
    ep_frame *frame = ep_frame_of_object(frame_object);
    PyCodeObject *code = ep_frame_code(frame);
    if (ep_footprint_active()) {
        take_back_own(log, frame_object, code, NULL);
    }
    if ((active_kinds & EP_KIND_BIT(EP_KIND_INSTRUCTION)) && !*ep_frame_traces_opcodes(frame_object)) {
        trace_opcodes(frame_object);
    }
    bool wanted = (active_kinds & kinds_of(what)) &&
                  (!ep_gate_asks_names() || ep_py_code_is_wanted(code));
    ep_kind kind = EP_KIND_LINE;
    uint32_t id = EP_ID_SKIP;
    switch (what) {
        case PyTrace_CALL:
            if (wanted) {
                kind = open_kind(code, frame);
                id = ep_py_open_site(log, code, ep_py_sites_usable ? frame : NULL);
            }
            break;
        case PyTrace_RETURN:
            kind = close_kind(code, frame, argument);
            id = wanted ? ep_py_code_name(code) : EP_ID_SKIP;
            leave_frame(log, ticks, frame_object, code, kind);
            break;
        case PyTrace_LINE:
            if (wanted) {
                id = ep_py_place_site(code, ep_frame_instruction(frame));
            }
            break;
        case PyTrace_OPCODE:
            if (wanted) {
                kind = EP_KIND_INSTRUCTION;
                id = ep_py_opcode_site(code, ep_frame_instruction(frame));
            }
            break;
        case PyTrace_EXCEPTION:
            if (wanted && PyTuple_Check(argument) && PyTuple_GET_SIZE(argument) > 0 &&
                PyType_Check(PyTuple_GET_ITEM(argument, 0))) {
                PyObject *type = PyTuple_GET_ITEM(argument, 0);
                kind = exception_kind(type, code, frame);
                id = active_kinds & EP_KIND_BIT(kind)
                         ? ep_py_exception_site((PyTypeObject *)type, code,
                                                ep_frame_instruction(frame))
                         : EP_ID_SKIP;
            }
            break;
        default:
            break;
    }
    if (EP_LIKELY(id != EP_ID_SKIP)) {
        if (what == PyTrace_CALL) {
            ep_py_labels_see(log, ticks);
        }
        put(log, ticks, kind, id);
    }
}

/* The fast half, which calls only the search for an id. False: nothing was done. */
static inline bool
record_fast(PyFrameObject *frame_object, int what)
{
    ep_log *log = ep_log_current;
    if (EP_UNLIKELY(log == NULL || ep_py_todo(log) || !ep_clock_is_counter() || ep_footprint_active() ||
                    asks_more)) {
        return false;
    }
    ep_frame *frame = ep_frame_of_object(frame_object);
    uintptr_t at = ep_frame_instruction(frame);
    ep_kind kind;
    uint32_t id;
    if (what == PyTrace_LINE) {
        if (!(active_kinds & EP_KIND_BIT(EP_KIND_LINE))) {
            return !(active_kinds & EP_KIND_BIT(EP_KIND_INSTRUCTION)) ||
                   *ep_frame_traces_opcodes(frame_object);
        }
        kind = EP_KIND_LINE;
        id = ep_block_site_recent(&log->recent, at);
        id = EP_LIKELY(id != 0) ? id : ep_block_site_find_recent(&log->recent, at);
    } else if (what == PyTrace_OPCODE) {
        if (!(active_kinds & EP_KIND_BIT(EP_KIND_INSTRUCTION))) {
            return true;
        }
        kind = EP_KIND_INSTRUCTION;
        id = ep_call_site_recent(&log->recent, EP_KEY_OPCODE, at);
        id = EP_LIKELY(id != 0)
                 ? id
                 : ep_call_site_find_recent(&log->recent, EP_KEY_OPCODE, at);
    } else {
        return false;
    }
    if (EP_UNLIKELY(id == 0 || ((active_kinds & EP_KIND_BIT(EP_KIND_INSTRUCTION)) &&
                                !*ep_frame_traces_opcodes(frame_object)))) {
        return false;
    }
    ep_log_put_at(log, ep_clock_counter_halves(), kind, id);
    return true;
}

static int
hook(PyObject *self, PyFrameObject *frame, int what, PyObject *argument)
{
    if (EP_UNLIKELY(active_kinds == 0)) {
        /* The hook was left on this thread, which could not be reached: it removes itself. */
        if (self == hook_object) {
            PyEval_SetTrace(NULL, NULL);
        }
        return 0;
    }
    if (EP_UNLIKELY(!record_fast(frame, what))) {
        record_slow(frame, what, argument);
    }
    return EP_LIKELY(self == hook_object) ? 0 : pass_on(self, frame, what, argument);
}

/* ---- The object behind sys.gettrace() -------------------------------------------------------- */

/* After sys.settrace(old), where old is our object, the first call comes here, and the C hook is set
 * again. */
static PyObject *
hook_call(PyObject *self, PyObject *args, PyObject *keywords)
{
    PyObject *frame, *event, *argument;
    (void)keywords;
    if (!PyArg_ParseTuple(args, "O!UO:trace hook", &PyFrame_Type, &frame, &event, &argument)) {
        return NULL;
    }
    if (active_kinds == 0) {
        PyEval_SetTrace(NULL, NULL);    /* nothing records any more: removes itself */
        Py_RETURN_NONE;
    }
    atomic_fetch_add_explicit(&interruption_count, 1, memory_order_relaxed);    /* a count alone */
    PyEval_SetTrace(hook, self);
    if (PyUnicode_CompareWithASCIIString(event, "call") == 0) {
        (void)hook(self, (PyFrameObject *)frame, PyTrace_CALL, argument);
    }
    Py_RETURN_NONE;
}

static PyObject *
hook_repr(PyObject *self)
{
    (void)self;
    return PyUnicode_FromString("<eventprof trace hook>");
}

static PyType_Slot hook_slots[] = {
    {Py_tp_call, hook_call},
    {Py_tp_repr, hook_repr},
    {0, NULL},
};

static PyType_Spec hook_spec = {
    .name = "eventprof._core.TraceHook",
    .basicsize = sizeof(PyObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = hook_slots,
};

/* ---- New threads ----------------------------------------------------------------------------- */

static void
begin_thread(void)
{
    if (active_kinds != 0 && PyThreadState_Get()->c_tracefunc == NULL) {
        PyEval_SetTrace(hook, hook_object);
    }
}

static void
end_thread(void)
{
    if (active_kinds != 0 && PyThreadState_Get()->c_tracefunc != hook) {
        /* Counted now, because the thread ends here. */
        atomic_fetch_add_explicit(&interruption_count, 1, memory_order_relaxed);
    }
}

static ep_starts_watcher starts = {.begin = begin_thread, .end = end_thread};

/* ---- In and out ------------------------------------------------------------------------------ */

#if EP_TRACES_ANY_THREAD

static int
set_if_free(PyThreadState *ts)
{
    return ts->c_tracefunc == NULL ? _PyEval_SetTrace(ts, hook, hook_object) : 0;
}

static int
set_all(void)
{
    return ep_py_each_thread(set_if_free);
}

static int
clear_if_ours(PyThreadState *ts)
{
    if (ts->c_tracefunc == hook) {
        (void)_PyEval_SetTrace(ts, NULL, NULL);
        PyErr_Clear();
    }
    return 0;
}

static void
clear_all(void)
{
    (void)ep_py_each_thread(clear_if_ours);
}

#else

/* The objects of the trace functions that we replaced, while all threads are set at once. */
static PyObject *objects;

static int
keep_object(PyThreadState *ts)
{
    if (previous_of(ts) == NULL || ts->c_traceobj == NULL) {
        return 0;
    }
    PyObject *key = PyLong_FromUnsignedLongLong(ts->id);
    int status = key != NULL ? PyDict_SetItem(objects, key, ts->c_traceobj) : -1;
    Py_XDECREF(key);
    return status;
}

static int
put_object_back(PyThreadState *ts)
{
    PyObject *key = PyLong_FromUnsignedLongLong(ts->id);
    PyObject *object = key != NULL ? PyDict_GetItemWithError(objects, key) : NULL;
    if (object != NULL && ts->c_tracefunc == hook) {
        PyObject *ours = ts->c_traceobj;
        ts->c_traceobj = Py_NewRef(object);
        Py_XDECREF(ours);
    }
    Py_XDECREF(key);
    return PyErr_Occurred() ? -1 : 0;
}

static int
set_all(void)
{
    objects = PyDict_New();
    int status = objects != NULL ? ep_py_each_thread(keep_object) : -1;
    if (status == 0) {
        PyEval_SetTraceAllThreads(hook, hook_object);
        status = ep_py_each_thread(put_object_back);
    }
    Py_CLEAR(objects);
    return status;
}

static int
is_not_ours(PyThreadState *ts)
{
    return ts->c_tracefunc != NULL && ts->c_tracefunc != hook;
}

/* Threads that cannot be reached without disturbing other tools remove the hook at their next event. */
static void
clear_all(void)
{
    if (ep_py_each_thread(is_not_ours) == 0) {
        PyEval_SetTraceAllThreads(NULL, NULL);
    } else if (PyThreadState_Get()->c_tracefunc == hook) {
        PyEval_SetTrace(NULL, NULL);
    }
    PyErr_Clear();
}

#endif

static int
check_ours(PyThreadState *ts)
{
    return ts->c_tracefunc == hook || (ts->c_tracefunc == NULL && ts->id != starter_id) ? 0 : 1;
}

static int
init_once(void)
{
    if (hook_object != NULL) {
        return 0;
    }
    str_trace_opcodes = PyUnicode_InternFromString("f_trace_opcodes");
    PyObject *hook_type = str_trace_opcodes != NULL ? PyType_FromSpec(&hook_spec) : NULL;
    if (hook_type == NULL) {
        return -1;
    }
    hook_object = PyObject_New(PyObject, (PyTypeObject *)hook_type);
    return hook_object != NULL ? 0 : -1;
}

/* See EP_OPCODES_ASKED_FIRST. */
static int
ask_for_opcodes(void)
{
#if EP_OPCODES_ASKED_FIRST
    PyObject *frame = (PyObject *)PyEval_GetFrame();    /* borrowed */
    char before = frame != NULL ? *ep_frame_traces_opcodes((PyFrameObject *)frame) : 0;
    if (frame != NULL && PyObject_SetAttr(frame, str_trace_opcodes, Py_True) < 0) {
        return -1;
    }
    if (frame != NULL) {
        *ep_frame_traces_opcodes((PyFrameObject *)frame) = before;
    }
#endif
    return 0;
}

static void
want(ep_kind_set kinds)
{
    active_kinds = kinds;
    asks_more = ep_gate_is_on() || !ep_py_sites_usable;
}

static void
take_out(void)
{
    want(0);
    ep_py_leave_starts(&starts);
    (void)ep_py_each_thread(give_back);
    previous_count = 0;
    clear_all();
    ep_py_generator_stacks_leave(EP_STACKS_TRACE);
}

static int
adjust(ep_kind_set kinds)
{
    if (kinds == 0) {
        if (active_kinds != 0) {
            take_out();
        }
        return 0;
    }
    bool asks_opcodes = (kinds & ~active_kinds & EP_KIND_BIT(EP_KIND_INSTRUCTION)) != 0;
    if (init_once() < 0 || (asks_opcodes && ask_for_opcodes() < 0)) {
        return -1;
    }
    if (active_kinds != 0) {
        want(kinds);
#if EP_TRACES_ANY_THREAD
        PyThreadState *ts = PyThreadState_Get();
        if (asks_opcodes && ts->c_tracefunc == hook) {
            return _PyEval_SetTrace(ts, hook, ts->c_traceobj);
        }
#endif
        return 0;
    }
    starter_id = PyThreadState_Get()->id;
    previous_count = 0;
    want(kinds);
    if (ep_py_generator_stacks_watch(EP_STACKS_TRACE) < 0 || ep_py_watch_starts(&starts) < 0 ||
        ep_py_each_thread(go_in_front) < 0 || set_all() < 0) {
        ep_py_exception saved = ep_py_exception_save();
        take_out();
        ep_py_exception_restore(saved);
        return -1;
    }
    return 0;
}

static bool
owns(void)
{
    return active_kinds == 0 || ep_py_each_thread(check_ours) == 0;
}

static uint64_t
interruptions(void)
{
    return atomic_load_explicit(&interruption_count, memory_order_relaxed);
}

const ep_source ep_source_trace = {
    .name = "trace",
    .kinds = ep_kinds_python | EP_KIND_BIT(EP_KIND_LINE) | EP_KIND_BIT(EP_KIND_INSTRUCTION) |
             EP_KIND_BIT(EP_KIND_RAISE) | EP_KIND_BIT(EP_KIND_STOP_ITERATION),
    .adjust = adjust,
    .owns = owns,
    .interruptions = interruptions,
};
