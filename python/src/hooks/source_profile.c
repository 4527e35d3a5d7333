/* The source of calls by PyEval_SetProfile: 3.11, and `backend="profile"` elsewhere.
 *
 * The hook is a thread's own. Existing threads are set at start; new ones are met where they are
 * made: _thread's start functions are wrapped while the source is in. C threads that enter by
 * PyGILState_Ensure are not seen (monitoring sees them).
 *
 * The interpreter passes an object of ours to the hook, so that sys.getprofile() shows who holds it
 * and sys.setprofile() can put it back. */
#include "frame_events.h"

#include "count_calls.h"
#include "entry.h"
#include "evaluator.h"
#include "errors.h"
#include "generator_stacks.h"
#include "labels.h"
#include "task_events.h"
#include "thread_starts.h"

static ep_kind_set active_kinds;
static bool counts_calls, counts_c_calls;    /* of counters, beside the recorders' or alone */
static bool counts_alone;
/* What the hook's fast half does not handle: filters, calls that are not wanted, call sites that cannot
 * be read. */
static bool asks_more;
static PyObject *hook_object;       /* passed to the hook; made once, immortal */
static bool displaced_somewhere;    /* some thread had another tool's hook when this one was installed */
static _Atomic uint64_t interruption_count;    /* see ep_source */
static uint64_t starter_id;         /* the thread that installed the hook, which must have it */

static inline bool
is_wanted_at_all(void)
{
    return active_kinds != 0 || counts_calls || counts_c_calls;
}

/* ---- The hook -------------------------------------------------------------------------------- */

/* HOT. Whether it is certain that the end of a C call in this frame will be reported, because it is not the
 * sort of call that EP_CALL_MAY_NEVER_END is about. */
static inline bool
surely_ends(const ep_frame *frame)
{
#if EP_CALL_MAY_NEVER_END
    unsigned char opcode = *(const unsigned char *)ep_frame_instruction(frame);
    return EP_LIKELY(opcode == INSTRUMENTED_CALL) || opcode == INSTRUMENTED_CALL_KW;
#else
    (void)frame;
    return true;
#endif
}

#if EP_CALL_MAY_NEVER_END
/* Whether an object is on the frame's stack. A slot may have an old pointer, which is compared, never
 * followed. */
static bool
is_on_stack(const ep_frame *frame, PyCodeObject *code, PyObject *object)
{
    const uintptr_t *locals = &EP_FRAME_FIELD(frame, const uintptr_t, EP_FRAME_LOCALS);
    const uintptr_t *stack = locals + code->co_nlocalsplus;
    for (int i = 0; i < code->co_stacksize; i++) {
        if ((stack[i] & ~(uintptr_t)EP_FRAME_TAG) == (uintptr_t)object) {
            return true;
        }
    }
    return false;
}

static EP_COLD bool
never_ends_slow(const ep_frame *frame, PyCodeObject *code, PyObject *callable)
{
    return ep_py_is_spread_call(code, ep_frame_offset(frame)) && !is_on_stack(frame, code, callable);
}
#endif

/* Whether a C call is left out because its end may not be reported. If its end is reported, that is left
 * out, too. */
static inline bool
never_ends(const ep_frame *frame, PyCodeObject *code, PyObject *callable)
{
#if EP_CALL_MAY_NEVER_END
    return !surely_ends(frame) && never_ends_slow(frame, code, callable);
#else
    (void)frame;
    (void)code;
    (void)callable;
    return false;
#endif
}

/* Not inlined into the hook, where they would use registers even without filters. */
#define EP_WITH_FILTERS __attribute__((noinline))

/* The profile hook cannot be switched off by place: an unwanted call costs the hook and this check. */
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

/* What the hook mechanism allocated before it called us is not counted either. */
static EP_WITH_FILTERS void
take_back_counted(ep_count_thread *thread, PyFrameObject *frame, PyCodeObject *code, PyObject *argument)
{
    uintptr_t builtin = argument != NULL && may_be_bound_by_mechanism(argument)
                            ? (uintptr_t)argument - EP_GC_HEADER_BYTES
                            : 0;
    for (bool more = true; more;) {
        more = ep_count_take_block(thread, (uintptr_t)frame - EP_GC_HEADER_BYTES) ||
               ep_count_take_block(thread, builtin) ||
               ep_count_take_block(thread, ep_code_event_table(code));
    }
    ep_count_keep_blocks(thread);
}

/* For counters. The key is the builtin's definition, because the interpreter makes bound builtins for
 * the event. */
static EP_WITH_FILTERS int
count_event_slow(PyFrameObject *frame_object, int what, PyObject *argument)
{
    ep_frame *frame = ep_frame_of_object(frame_object);
    PyCodeObject *code = ep_frame_code(frame);
    bool is_c = what >= PyTrace_C_CALL && what <= PyTrace_C_RETURN;
    ep_count_thread *thread = ep_count_current;
    bool fast = ep_count_is_fast(thread);
    if (fast ? thread->blocks[0].address != 0
             : thread != NULL && thread->generation == ep_count_now_generation() &&
                   thread->calling == 0 && thread->blocks[0].address != 0) {
        take_back_counted(thread, frame_object, code, what == PyTrace_RETURN ? NULL : argument);
    }
    if (is_c && never_ends(frame, code, argument)) {
        return 0;
    }
    if (what == PyTrace_CALL && counts_calls) {
        bool is_slice = open_kind(code, frame) != EP_KIND_CALL;
        if (!fast || !ep_py_count_open_fast(thread, (uintptr_t)code, (uintptr_t)code, is_slice)) {
            (void)ep_py_count_open(code, is_slice);
        }
    } else if (what == PyTrace_RETURN && counts_calls) {
        if (!fast || !ep_py_count_close_fast(thread, (uintptr_t)code)) {
            (void)ep_py_count_close(code);
        }
    } else if (what == PyTrace_C_CALL && counts_c_calls) {
        uintptr_t known = ep_py_count_known_of(argument);
        if (!fast || known == 0 ||
            !ep_py_count_open_fast(thread, known, (uintptr_t)argument, false)) {
            (void)ep_py_count_c_open(code, argument);
        }
    } else if ((what == PyTrace_C_RETURN || what == PyTrace_C_EXCEPTION) && counts_c_calls) {
        if (!fast || !ep_py_count_close_fast(thread, (uintptr_t)argument)) {
            ep_py_count_c_close(code, argument);
        }
    }
    return 0;
}

/* HOT. The fast half of count_event_slow(). It calls no function, so no register is saved on the stack. */
static EP_WITH_FILTERS int
count_event(PyFrameObject *frame_object, int what, PyObject *argument)
{
    ep_count_thread *thread = ep_count_current;
    if (EP_UNLIKELY(!ep_count_is_fast(thread)) || thread->blocks[0].address != 0 ||
        EP_UNLIKELY(!counts_calls || !counts_c_calls)) {
        return count_event_slow(frame_object, what, argument);
    }
    ep_frame *frame = ep_frame_of_object(frame_object);
    uintptr_t code = (uintptr_t)ep_frame_code(frame), known;
    bool done = false;
    switch (what) {
        case PyTrace_CALL:
            done = ep_py_count_open_fast(thread, code, code,
                                         open_kind((PyCodeObject *)code, frame) != EP_KIND_CALL);
            break;
        case PyTrace_RETURN:
            done = ep_py_count_close_fast(thread, code);
            break;
        case PyTrace_C_CALL:
            known = surely_ends(frame) ? ep_py_count_known_of(argument) : 0;
            done = known != 0 && ep_py_count_open_fast(thread, known, (uintptr_t)argument, false);
            break;
        case PyTrace_C_RETURN:
        case PyTrace_C_EXCEPTION:
            done = ep_py_count_close_fast(thread, (uintptr_t)argument);
            break;
        default:
            break;
    }
    return EP_LIKELY(done) ? 0 : count_event_slow(frame_object, what, argument);
}

static void
put(ep_log *log, uint64_t ticks, ep_kind kind, uint32_t id)
{
    if (EP_UNLIKELY(ep_gate_asks_calls())) {
        put_gated(log, ticks, kind, id);
    } else {
        ep_log_put(log, ticks, kind, id);
    }
}

static EP_INLINE void
put_slow(ep_log *log, uint64_t ticks, PyFrameObject *frame_object, int what, PyObject *argument,
         bool began_by_throw)
{
    ep_frame *frame = ep_frame_of_object(frame_object);
    PyCodeObject *code = ep_frame_code(frame);
    if (what >= PyTrace_C_CALL && never_ends(frame, code, argument)) {
        log->todo |= EP_TODO_HALVES;    /* the fast half does not look at ends */
        return;
    }
    if (!(active_kinds & (what >= PyTrace_C_CALL ? ep_kinds_c : ep_kinds_python))) {
        if (what == PyTrace_RETURN && ep_footprint_active()) {
            leave_frame(log, ticks, frame_object, code, close_kind(code, frame, argument));
        }
        return;
    }
    ep_kind begin = what == PyTrace_CALL ? open_kind(code, frame) : EP_KIND_CALL;
    if (begin == EP_KIND_THROW) {
        ep_py_note_throw(log, code, frame);
    }
    if (EP_UNLIKELY(ep_gate_asks_names()) && !is_wanted(what, code, argument)) {
        if (what == PyTrace_RETURN && ep_footprint_active()) {
            leave_frame(log, ticks, frame_object, code, close_kind(code, frame, argument));
        }
        return;
    }
    ep_kind kind;
    uint32_t id;
    switch (what) {
        case PyTrace_CALL:
            kind = begin;
            ep_py_mark_entry(frame_object, is_generator(code));
            id = ep_py_open_site(log, code, ep_py_sites_usable ? frame : NULL);
            break;
        case PyTrace_RETURN:
            kind = close_kind(code, frame, argument);
            id = ep_py_code_name(code);
            leave_frame(log, ticks, frame_object, code, kind);
            if (kind == EP_KIND_UNWIND && !began_by_throw &&
                ep_py_begin_was_not_reported(log, code, frame, frame_object)) {
                return;
            }
            if (kind == EP_KIND_YIELD) {
                ep_py_unmark_entry(frame_object);
            }
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
            return;
    }
    bool ends_c_call = what == PyTrace_C_RETURN || what == PyTrace_C_EXCEPTION;
    if (EP_UNLIKELY(id == EP_ID_SKIP || (ends_c_call && ep_py_ends_own_call(log, code)))) {
        return;
    }
    ticks = ep_log_not_before(log, ticks);
    if (what == PyTrace_CALL || what == PyTrace_C_CALL) {
        ep_py_labels_see(log, ticks);
    }
    put(log, ticks, kind, id);
}

/* A slice begins that the interpreter does not report. */
static EP_COLD void
put_resumed(ep_log *log, uint64_t ticks, ep_frame *frame)
{
    PyCodeObject *code = ep_frame_code(frame);
    ep_py_note_throw(log, code, frame);
    if (!(active_kinds & ep_kinds_python) ||
        (ep_gate_asks_names() && !is_wanted(PyTrace_CALL, code, NULL))) {
        return;
    }
    uint32_t id = ep_py_open_site(log, code, ep_py_sites_usable ? frame : NULL);
    if (id != EP_ID_SKIP) {
        ticks = ep_log_not_before(log, ticks);
        ep_py_labels_see(log, ticks);
        put(log, ticks, EP_KIND_RESUME, id);
    }
}

/* A slice may end that an exception was thrown into. A function of its own, so that other events do not
 * keep values for what comes after it. */
static EP_COLD void
end_thrown(ep_log *log, uint64_t ticks, PyFrameObject *frame_object, PyObject *argument)
{
    ep_frame *frame = ep_frame_of_object(frame_object);
    PyCodeObject *code = ep_frame_code(frame);
    ep_kind kind = close_kind(code, frame, argument);
    bool began_by_throw = ep_py_end_throw(log, code, frame, kind);
    ep_frame *resumed =
        began_by_throw && kind == EP_KIND_RETURN ? ep_frame_resumed_unreported(frame) : NULL;
    put_slow(log, ticks, frame_object, PyTrace_RETURN, argument, began_by_throw);
    if (resumed != NULL) {
        put_resumed(log, ticks, resumed);
    }
}

static EP_WITH_FILTERS int
hook_slow(PyFrameObject *frame_object, int what, PyObject *argument)
{
    if (EP_UNLIKELY(counts_calls || counts_c_calls)) {
        (void)count_event(frame_object, what, argument);
        if (active_kinds == 0) {
            return 0;
        }
    }
    uint64_t ticks = ep_clock_ticks();
    ep_log *log = ep_py_log_for(what == PyTrace_CALL                         ? EP_KIND_CALL
                                : what == PyTrace_RETURN && argument == NULL ? EP_KIND_UNWIND
                                                                             : EP_KIND_RETURN);
    if (EP_UNLIKELY(log == NULL)) {
        return 0;
    }
    if (ep_footprint_active()) {
        PyCodeObject *code = ep_frame_code(ep_frame_of_object(frame_object));
        take_back_own(log, frame_object, code, what == PyTrace_RETURN ? NULL : argument);
    }
    if (EP_UNLIKELY(log->todo & EP_TODO_THROWN) && what == PyTrace_RETURN) {
        end_thrown(log, ticks, frame_object, argument);
    } else {
        put_slow(log, ticks, frame_object, what, argument, false);
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

/* The hook of every thread: the fast half, which calls a function only to look up a name that was not
 * seen lately. Unusual cases, filters, and recordings of blocks go to the slow hook, which begins anew. */
static int
hook(PyObject *self, PyFrameObject *frame_object, int what, PyObject *argument)
{
    (void)self;
    ep_log *log = ep_log_current;
    if (EP_UNLIKELY(log == NULL || ep_py_todo(log) || !ep_clock_is_counter() || ep_footprint_active() ||
                    asks_more || log->own_calls != 0)) {
        return counts_alone ? count_event(frame_object, what, argument)
                            : hook_slow(frame_object, what, argument);
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
            if (EP_UNLIKELY(kind == EP_KIND_THROW)) {
                return hook_slow(frame_object, what, argument);
            }
            ep_py_mark_entry(frame_object, is_generator(code));
            caller = ep_frame_previous(frame);
            id = call_site(log, (uintptr_t)code,
                           caller != NULL ? ep_frame_instruction(caller) : 0);
            break;
        case PyTrace_RETURN:
            kind = close_kind(code, frame, argument);
            if (kind == EP_KIND_UNWIND && ep_py_begin_was_not_reported(log, code, frame, frame_object)) {
                return 0;
            }
            if (kind == EP_KIND_YIELD) {
                ep_py_unmark_entry(frame_object);
            }
            id = name_of(log, (uintptr_t)code);
            break;
        case PyTrace_C_CALL:
            kind = EP_KIND_C_CALL;
            callee = fast_callee(argument);
            id = surely_ends(frame) && callee.key != 0
                     ? call_site(log, callee.key, ep_frame_instruction(frame))
                     : 0;
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
        return hook_slow(frame_object, what, argument);
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

/* After sys.setprofile(old), where old is our object, the first event comes here, and the C hook is set
 * again. */
static PyObject *
hook_call(PyObject *self, PyObject *args, PyObject *keywords)
{
    PyObject *frame, *event, *argument;
    (void)keywords;
    if (!PyArg_ParseTuple(args, "O!UO:profile hook", &PyFrame_Type, &frame, &event, &argument)) {
        return NULL;
    }
    if (!is_wanted_at_all()) {
        PyEval_SetProfile(NULL, NULL);    /* nothing records any more: removes itself */
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

static void
begin_thread(void)
{
    if (is_wanted_at_all() && PyThreadState_Get()->c_profilefunc == NULL) {
        PyEval_SetProfile(hook, hook_object);
    }
}

static void
end_thread(void)
{
    if (is_wanted_at_all() && PyThreadState_Get()->c_profilefunc != hook) {
        count_interruption();    /* now, because the thread ends here */
    }
}

static ep_starts_watcher starts = {.begin = begin_thread, .end = end_thread};

/* ---- In and out ------------------------------------------------------------------------------ */

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
    if (hook_type == NULL) {
        return -1;
    }
    hook_object = PyObject_New(PyObject, (PyTypeObject *)hook_type);
    return hook_object != NULL ? 0 : -1;
}

static void
want(ep_kind_set kinds)
{
    active_kinds = kinds;
    asks_more = ep_gate_is_on() || !(kinds & ep_kinds_c) || !(kinds & ep_kinds_python) ||
                !ep_py_sites_usable || counts_calls || counts_c_calls;
    counts_alone = kinds == 0 && (counts_calls || counts_c_calls);
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
    if (evaluator_allowed && (active_kinds & ep_kinds_python) && !(active_kinds & ep_kinds_c) &&
        !counts_calls && !counts_c_calls) {
        ep_py_evaluator_put_in(hook);
    } else {
        ep_py_evaluator_take_out();
    }
}

static void
take_out(void)
{
    adjust_evaluator();
    ep_py_leave_starts(&starts);
    (void)ep_py_each_thread(clear_if_ours);
    ep_py_generator_stacks_leave(EP_STACKS_PROFILE);
}

/* was_in: the hooks are installed already. */
static int
put_in(bool was_in)
{
    if (was_in) {
        return 0;
    }
    if (init_once() < 0) {
        return -1;
    }
    PyThreadState *ts = PyThreadState_Get();
    if (ts->c_profilefunc != NULL && ts->c_profilefunc != hook) {
        if (active_kinds == EP_KINDS_NONE && !counts_calls && !counts_c_calls) {
            return 0;
        }
        PyErr_Format(ep_py_error(EP_ERROR_TOOL_IN_USE),
                     "another profiler holds this thread's profile hook (%R); stop it first%s",
                     ts->c_profileobj != NULL ? ts->c_profileobj : Py_None,
                     ep_py_monitoring_available() ? ", or pass backend='monitoring'" : "");
        return -1;
    }
    displaced_somewhere = false;
    starter_id = ts->id;
    return ep_py_generator_stacks_watch(EP_STACKS_PROFILE) < 0 || ep_py_watch_starts(&starts) < 0 ||
                   ep_py_each_thread(set_if_free) < 0
               ? -1
               : 0;
}

/* The recorders' part, and the counters'. Fails: -1, exception set, as it was before. */
static int
set_wanted(ep_kind_set kinds, bool calls, bool c_calls)
{
    bool was_in = is_wanted_at_all(), had_calls = counts_calls, had_c_calls = counts_c_calls;
    ep_kind_set had_kinds = active_kinds;
    counts_calls = calls;
    counts_c_calls = c_calls;
    want(kinds);
    if (!is_wanted_at_all()) {
        if (was_in) {
            take_out();
        }
    } else if (put_in(was_in) < 0) {
        ep_py_exception saved = ep_py_exception_save();
        counts_calls = had_calls;
        counts_c_calls = had_c_calls;
        want(had_kinds);
        take_out();
        ep_py_exception_restore(saved);
        return -1;
    }
    adjust_evaluator();
    return 0;
}

static int
adjust(ep_kind_set kinds)
{
    return set_wanted(kinds, counts_calls, counts_c_calls);
}

int
ep_py_profile_count(bool calls, bool c_calls)
{
    return set_wanted(active_kinds, calls, c_calls);
}

static bool
owns(void)
{
    return !is_wanted_at_all() || (!displaced_somewhere && ep_py_each_thread(check_ours) == 0 &&
                                   ep_py_evaluator_owns());
}

bool
ep_py_profile_owns(void)
{
    return owns();
}

static uint64_t
interruptions(void)
{
    return atomic_load_explicit(&interruption_count, memory_order_relaxed);
}

const ep_source ep_source_profile = {
    .name = "profile",
    .kinds = (ep_kinds_python | ep_kinds_c),
    .adjust = adjust,
    .owns = owns,
    .interruptions = interruptions,
};
