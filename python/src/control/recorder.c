/* _core.Recorder: a recorder of the core, and the sources that it needs.
 *
 * start() and stop() are C, so that the window begins and ends inside one function of ours and none
 * of our frames is in it. The package's Recorder adds the comfort. */
#include "control.h"

#include <errno.h>
#include <string.h>
#include <structmember.h>
#include <unistd.h>

#include "audit.h"
#include "count.h"
#include "decode.h"
#include "file.h"
#include "footprint.h"
#include "gate.h"
#include "intern.h"
#include "kinds.h"
#include "os.h"
#include "patterns.h"
#include "source.h"
#include "trace_object.h"

static const ep_source *const sources[] = {
#define EP_SOURCE(name) &ep_source_##name,
#include "sources.def"
#undef EP_SOURCE
};
#define SOURCE_COUNT (sizeof sources / sizeof *sources)

typedef struct recorder_object {
    PyObject_HEAD
    ep_recorder core;
    const ep_source *code_asked;     /* NULL: auto */
    const ep_source *code_used;      /* while it runs; NULL: none. See asked_of() */
    const ep_source *backend;        /* code_used of the last window, for the user */
    ep_clock_mode clock;             /* of the last window */
    unsigned long long windows;      /* begun so far: tells the package that a trace is of an old one */
    bool current_thread_only;
    uint32_t only_thread;            /* 0: all */
    PyObject *include, *exclude, *audit;     /* tuples of patterns, for the trace */
    /* Bytes: the log file's path and that of forked children, as patterns, and its metadata. NULL:
     * it records into memory. */
    PyObject *output, *child_output, *metadata;
    int replace;                     /* a file that is there already */
    ep_filter filter;                /* the same, and the limits */
    bool alone;                      /* no other recorder of code ran since its start */
    uint32_t first_generation;       /* of the gate, in the last window */
    uint64_t left_out[EP_LEFT_OUT_COUNT];    /* running: before its start; stopped: in the window */
    size_t functions_left_out;       /* stopped: in the window */
    unsigned displaced;              /* bits: index in sources[] */
    uint64_t interruptions[SOURCE_COUNT];    /* of each, when the window began */
    struct recorder_object *next;    /* running ones; not owned: a running one removes itself */
    PyObject *weak_references;
} recorder_object;

static recorder_object *running;

/* ---- One change at a time -------------------------------------------------------------------- */

/* Putting hooks in and taking them out runs Python code (audit hooks, finalizers), and so lets other
 * threads in: they wait. The same thread may come again, from such code: it may stop a recorder,
 * and the sources are left to the change that was interrupted, which looks at what is wanted once
 * more (release_sources); it may not start one, whose first events would be missing. */
static struct {
    PyThread_type_lock lock;
    _Atomic unsigned long holder;    /* 0: none. Only its own number means something to a thread */
    unsigned depth;                  /* the holder's, as the next */
    uint64_t count;                  /* of changes begun */
} change;

int
ep_py_recorders_init(void)
{
    if (change.lock == NULL && (change.lock = PyThread_allocate_lock()) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

static bool
is_changing(void)
{
    return atomic_load_explicit(&change.holder, memory_order_relaxed) ==
           PyThread_get_thread_ident();
}

bool
ep_py_recorders_change_here(void)
{
    return is_changing();
}

static void
take_change(void)
{
    if (!is_changing()) {
        PyLockStatus status = PyThread_acquire_lock_timed(change.lock, 0, 0);
        /* At the end of the interpreter other threads stand still, with the lock or without. */
        while (status != PY_LOCK_ACQUIRED && !ep_py_is_finalizing()) {
            Py_BEGIN_ALLOW_THREADS
            status = PyThread_acquire_lock_timed(change.lock, 10000, 0);
            Py_END_ALLOW_THREADS
        }
        atomic_store_explicit(&change.holder, PyThread_get_thread_ident(), memory_order_relaxed);
        change.depth = 0;
    }
    change.depth++;
}

static void
begin_change(void)
{
    take_change();
    change.count++;
}

static void
end_change(void)
{
    if (change.depth == 1) {
        ep_py_counters_settle();
    }
    if (--change.depth == 0) {
        atomic_store_explicit(&change.holder, 0, memory_order_relaxed);
        PyThread_release_lock(change.lock);
    }
}

bool
ep_py_begin_change(void)
{
    bool can = !is_changing();
    if (can) {
        begin_change();
    }
    return can;
}

void
ep_py_end_change(void)
{
    end_change();
}

/* Around looking at recorders and sources: without a GIL another thread may be changing them. */
static void
begin_look(void)
{
    if (EP_GIL_DISABLED) {
        take_change();
    }
}

static void
end_look(void)
{
    if (EP_GIL_DISABLED) {
        end_change();
    }
}

/* ---- Sources --------------------------------------------------------------------------------- */

/* What the running recorders of code go by. */
static const ep_source *
code_source_in_use(void)
{
    for (recorder_object *r = running; r != NULL; r = r->next) {
        if (r->code_used != NULL) {
            return r->code_used;
        }
    }
    return NULL;
}

/* Whether nobody asked for the profile hook by name. more: is about to run; may be NULL. */
static bool
may_evaluate_frames(const recorder_object *more)
{
    for (const recorder_object *r = running; r != NULL; r = r->next) {
        if (r->code_asked != NULL) {
            return false;
        }
    }
    return more == NULL || more->code_asked == NULL;
}

/* Of `kinds`, those that a source is asked for where code is recorded by `code`: one hook sees calls of
 * Python functions, and what it does not see comes from the one that does. */
static ep_kind_set
asked_of(const ep_source *source, ep_kind_set kinds, const ep_source *code)
{
    if (!(source->kinds & EP_KINDS_CODE)) {
        return kinds & source->kinds;
    }
    ep_kind_set asked = 0;
    if (source == code) {
        asked = kinds & source->kinds;
    } else if (code == &ep_source_trace && source == &ep_source_profile) {
        asked = kinds & ep_kinds_c;
    } else if (code == &ep_source_profile &&
               source == (ep_py_monitoring_available() ? &ep_source_monitoring : &ep_source_trace)) {
        asked = kinds & ep_kinds_inside & source->kinds;
    } else if (code == &ep_source_trace && source == &ep_source_monitoring &&
               ep_py_monitoring_available()) {
        asked = kinds & ep_kinds_inside & ~ep_source_trace.kinds;
    }
    return asked;
}

_Atomic uint32_t ep_py_blocks_inside;

static uint32_t
domains_of(const recorder_object *self)
{
    uint32_t domains = 0;
    for (unsigned domain = 0; domain < EP_DOMAIN_COUNT; domain++) {
        bool has = (self->core.options.kinds & ep_kinds_of_domain((ep_domain)domain)) != 0;
        domains |= (uint32_t)has << domain;
    }
    return domains;
}

/* Whether a recorder has a domain and another one does not. more: is about to run; may be NULL. */
static void
choose_blocks_inside(const recorder_object *more)
{
    uint32_t all = more != NULL ? domains_of(more) : 0, inside = 0;
    for (const recorder_object *r = running; r != NULL; r = r->next) {
        all |= domains_of(r);
    }
    for (const recorder_object *r = running; r != NULL; r = r->next) {
        inside |= all != domains_of(r) ? domains_of(r) : 0;
    }
    inside |= more != NULL && all != domains_of(more) ? domains_of(more) : 0;
    atomic_store_explicit(&ep_py_blocks_inside, inside, memory_order_relaxed);
}

/* Makes every source give what `kinds` asks of it. more: is about to run; may be NULL. Fails: -1,
 * exception set. */
static int
adjust_sources(ep_kind_set kinds, const ep_source *code, const recorder_object *more)
{
    ep_py_profile_allow_evaluator(may_evaluate_frames(more));
    choose_blocks_inside(more);
    bool footprint = (kinds & EP_KINDS_CODE) && (kinds & ep_source_alloc.kinds);
    int status = 0;
    for (size_t i = 0; i < SOURCE_COUNT && status == 0; i++) {
        ep_kind_set asked = asked_of(sources[i], kinds, code);
        if (PY_VERSION_HEX < 0x030C0000 && footprint && code == &ep_source_trace &&
            sources[i] == &ep_source_profile) {
            /* 3.11 binds builtins for whoever traces, and shows them to a profile hook only. */
            asked |= EP_KINDS_NONE;
        }
        status = sources[i]->adjust(asked);
    }
    /* What was taken back is still to be freed: the table is looked at as long as blocks are
     * recorded. */
    if (footprint || !(kinds & ep_source_alloc.kinds)) {
        atomic_store_explicit(&ep_footprint_on, footprint, memory_order_relaxed);
    }
    atomic_store_explicit(&ep_footprint_boxes, footprint && code != &ep_source_monitoring,
                          memory_order_relaxed);
    const ep_kind_set tables = EP_KIND_BIT(EP_KIND_LINE) | EP_KIND_BIT(EP_KIND_INSTRUCTION);
    atomic_store_explicit(&ep_footprint_tables, footprint && (kinds & tables), memory_order_relaxed);
    return status;
}

/* Makes every source give what the running recorders want, and no more. */
static void
release_sources(void)
{
    ep_py_exception saved = ep_py_exception_save();
    uint64_t seen;
    do {
        seen = change.count;
        (void)adjust_sources(ep_engine_kinds(), code_source_in_use(), NULL);
        PyErr_Clear();
    } while (seen != change.count);
    ep_py_exception_restore(saved);
}

static uint64_t
interruptions_of(const ep_source *source)
{
    return source->interruptions != NULL ? source->interruptions() : 0;
}

/* Whether another tool took the hook of a source (index in sources[]) that this running recorder uses:
 * has it now, or had it for a while in which it saw what was ours. */
static bool
is_displaced(const recorder_object *self, size_t i)
{
    return asked_of(sources[i], self->core.options.kinds, self->code_used) != 0 &&
           (!sources[i]->owns() || interruptions_of(sources[i]) != self->interruptions[i]);
}

/* Which source this recorder's code goes by. Fails: NULL with an exception, if it wants any. */
static const ep_source *
choose_code_source(const recorder_object *self)
{
    const ep_source *now = code_source_in_use();
    if (self->code_asked != NULL && now != NULL && now != self->code_asked) {
        PyErr_Format(ep_py_error(EP_ERROR_STATE),
                     "another recorder runs with backend='%s'; stop it first, or pass "
                     "backend='auto'",
                     now->name);
        return NULL;
    }
    if (self->code_asked != NULL || now != NULL) {
        return self->code_asked != NULL ? self->code_asked : now;
    }
    if (ep_py_monitoring_available()) {
        return &ep_source_monitoring;
    }
    /* A trace hook is called for calls in any case: one hook for both, where that will do. */
    return self->core.options.kinds & ep_kinds_inside ? &ep_source_trace : &ep_source_profile;
}

/* ---- The gate -------------------------------------------------------------------------------- */

static bool
records_code(const recorder_object *self)
{
    return (self->core.options.kinds & EP_KINDS_CODE) != 0;
}

/* The filters of running recorders of code, and of `more` (may be NULL). Returns: how many; the
 * array holds no more than it can. */
static size_t
list_filters(const recorder_object *more, const ep_filter *filters[EP_GATE_FILTERS + 1])
{
    size_t count = 0;
    for (const recorder_object *r = running; r != NULL; r = r->next) {
        if (records_code(r) && r != more && count <= EP_GATE_FILTERS) {
            filters[count++] = &r->filter;
        }
    }
    if (more != NULL && count <= EP_GATE_FILTERS) {
        filters[count++] = &more->filter;
    }
    return count;
}

/* Before the set of recorders changes to the running ones and `more`. The hooks stand still. */
static void
prepare_gate_alone(void *more)
{
    const ep_filter *filters[EP_GATE_FILTERS + 1];
    ep_gate_prepare(filters, list_filters(more, filters));
}

static void
prepare_gate(recorder_object *more)
{
    ep_py_alone(prepare_gate_alone, more);
}

/* The hooks stand still. */
static void
open_gate_alone(void)
{
    const ep_filter *filters[EP_GATE_FILTERS + 1];
    size_t count = list_filters(NULL, filters);
    recorder_object *only = NULL;
    for (recorder_object *r = running; r != NULL; r = r->next) {
        only = records_code(r) ? r : only;
    }
    ep_gate_open(count == 1 && only->alone ? &only->core : NULL, filters, count);
}

static void
begin_counts(recorder_object *self)
{
    self->first_generation = ep_gate_generation();
    ep_engine_left_out(self->left_out);
}

/* What was left out since begin_counts(). */
static void
read_counts(const recorder_object *self, uint64_t *calls, size_t *functions)
{
    if (self->core.state == EP_RECORDER_RUNNING) {
        ep_engine_left_out(calls);
        for (int i = 0; i < EP_LEFT_OUT_COUNT; i++) {
            calls[i] -= self->left_out[i];
        }
        *functions = ep_filter_names_any(&self->filter)
                         ? ep_gate_count_left_out(self->first_generation)
                         : 0;
    } else {
        memcpy(calls, self->left_out, sizeof self->left_out);
        *functions = self->functions_left_out;
    }
}

/* ---- Audit events ---------------------------------------------------------------------------- */

static bool
records_audit(const recorder_object *self)
{
    return (self->core.options.kinds & EP_KIND_BIT(EP_KIND_AUDIT)) != 0;
}

/* For the running recorders and `more` (may be NULL). The hooks stand still. */
static void
choose_audit_alone(void *more)
{
    static const ep_filter *filters[256];
    size_t count = 0;
    for (const recorder_object *r = running; r != NULL && count < 255; r = r->next) {
        if (records_audit(r) && r != more) {
            filters[count++] = &r->filter;
        }
    }
    if (more != NULL) {
        filters[count++] = &((recorder_object *)more)->filter;
    }
    ep_py_audit_choose(filters, count);
}

static void
choose_audit(const recorder_object *changes, recorder_object *more)
{
    if (records_audit(changes)) {
        ep_py_alone(choose_audit_alone, more);
    }
}

/* ---- Start, stop ----------------------------------------------------------------------------- */

/* A thread that waits at the first instruction of a function waits, in most versions, before the
 * interpreter tells of that call: the call would be described as open, and begin once more, and the wrong
 * one of both would seem to end. (Of windows that began beside two threads of short calls, a quarter were
 * wrong.)
 *
 * If calls came from a hook already, it will be told of. If the hook goes in only now, it will not: the
 * thread has passed what would tell. So it is for a thread that has waited there since then: what it was
 * found to be counts while it stands still. A thread inside of our hook read the clock before the window.
 * Not known, and taken for open: one that waits there since a window before, after which the hook was out.
 *
 * Returns: the frame whose call is still to come, or NULL. */
static const ep_frame *
frame_to_come(PyThreadState *ts, ep_thread *thread, bool hook_was_in)
{
    const ep_frame *frame = ep_py_frame_at_resume(ts);
    if (frame == NULL || ep_frame_is_told(frame) || ts == PyThreadState_Get()) {
        thread->stood_at = NULL;
        return NULL;
    }
    ep_thread_place place = ep_engine_place_of(thread);
    bool stands = hook_was_in && thread->stood_at == frame && thread->stood_next == place.next;
    if (!stands) {
        thread->stood_at = frame;
        thread->stood_next = place.next;
        thread->stood_open = !hook_was_in || place.busy;
    }
    return thread->stood_open ? NULL : frame;
}

/* Names the calls that are open on every thread as the window begins. The threads stand still; the
 * calling one's log has its name. */
static ep_status
describe_open_calls(recorder_object *self, bool hook_was_in)
{
    PyThreadState *ts = ep_py_first_thread();
    for (; ts != NULL; ts = ep_py_next_thread(ts)) {
        ep_log *log = ts == PyThreadState_Get() ? ep_log_mine() : NULL;
        ep_thread *thread = log != NULL
                                ? log->thread
                                : ep_engine_thread_by_native_id(ts->native_thread_id, true);
        size_t depth;
        const ep_frame *but = thread != NULL ? frame_to_come(ts, thread, hook_was_in) : NULL;
        ep_open_call *calls = ep_py_open_calls(ts, thread, but, &depth);
        ep_status status = calls != NULL && thread != NULL
                               ? ep_recorder_set_open(&self->core, thread->id, calls, depth)
                               : EP_NOMEM;
        free(calls);
        if (status != EP_OK) {
            return status;
        }
    }
    return EP_OK;
}

static void
unlink_running(recorder_object *self)
{
    for (recorder_object **at = &running; *at != NULL; at = &(*at)->next) {
        if (*at == self) {
            *at = self->next;
            break;
        }
    }
    self->next = NULL;
    self->code_used = NULL;
}

/* Makes the log file of the window that is to begin. Fails: -1, exception set. */
static int
open_file(recorder_object *self, const ep_source *calls)
{
    ep_file_options options = {
        .path = PyBytes_AS_STRING(self->output),
        .child_path = PyBytes_AS_STRING(self->child_output),
        /* Its own of the window before goes, as that window does. */
        .replace = self->replace || self->windows > 0,
        .metadata = PyBytes_AS_STRING(self->metadata),
        .metadata_bytes = (size_t)PyBytes_GET_SIZE(self->metadata),
    };
    for (const recorder_object *r = running; r != NULL && options.replace; r = r->next) {
        if (r->core.file != NULL && ep_file_is_at(r->core.file, options.path)) {
            /* It would be replaced, and what it has would be gone. */
            PyErr_Format(ep_py_error(EP_ERROR_STATE),
                         "another recorder records into %s at this moment; take another name, or stop "
                         "it first",
                         ep_file_path(r->core.file));
            return -1;
        }
    }
    ep_error error = {.text = ""};
    ep_file *file;
    ep_status status = ep_file_create(&options, &file, &error);
    if (status != EP_OK && error.os_error != 0) {
        const char *hint = error.os_error == EEXIST
                               ? "it exists already; force=True (run: --force) replaces it"
                               : error.text;
        PyObject *arguments = Py_BuildValue(
            "isN", error.os_error, hint, PyUnicode_DecodeFSDefault(PyBytes_AS_STRING(self->output)));
        if (arguments != NULL) {
            PyErr_SetObject(PyExc_OSError, arguments);
            Py_DECREF(arguments);
        }
        return -1;
    }
    if (status != EP_OK) {
        ep_py_raise(status, &error);
        return -1;
    }
    if (calls != NULL) {
        ep_file_header *header = ep_file_get_header(file);
        strncpy(header->calls_from, calls->name, sizeof header->calls_from - 1);
    }
    ep_recorder_set_file(&self->core, file, 0);
    return 0;
}

/* A file in which nothing was recorded. */
static void
drop_file(recorder_object *self)
{
    if (self->core.file != NULL) {
        (void)unlink(ep_file_path(self->core.file));
    }
}

static void
reset_gate_alone(void *unused)
{
    (void)unused;
    prepare_gate_alone(NULL);
    open_gate_alone();
}

/* It no longer runs. */
static void
leave_gate(const recorder_object *self)
{
    if (records_code(self)) {
        ep_py_alone(reset_gate_alone, NULL);
    }
}

/* What is one step for all threads: a window, the calls that were open then, the gate. */
typedef struct beginning {
    recorder_object *self;
    bool hook_was_in;    /* calls were recorded before */
    ep_status status;
    ep_error error;
} beginning;

static void
begin_window(void *context)
{
    beginning *now = context;
    recorder_object *self = now->self;
    self->next = running;
    running = self;
    now->status = ep_recorder_start(&self->core, &now->error);
    if (now->status == EP_OK && (self->core.options.kinds & ep_kinds_python)) {
        now->status = describe_open_calls(self, now->hook_was_in);
    }
    if (now->status != EP_OK) {
        return;
    }
    begin_counts(self);
    if (records_code(self)) {
        open_gate_alone();
    }
}

static int
start_alone(recorder_object *self)
{
    if (self->core.state == EP_RECORDER_RUNNING) {
        PyErr_SetString(ep_py_error(EP_ERROR_STATE),
                        "this recorder is already running; stop it before it starts again");
        return -1;
    }
    ep_kind_set kinds = self->core.options.kinds;
    const ep_source *code = code_source_in_use(), *used = NULL;
    bool hook_was_in = (ep_engine_kinds() & ep_kinds_python) != 0;
    if (kinds & EP_KINDS_CODE) {
        code = used = choose_code_source(self);
        if (code == NULL) {
            return -1;
        }
    }
    ep_recorder_options options = self->core.options;
    ep_recorder_clear_to_start(&self->core);
    ep_recorder_init(&self->core, &options);
    self->displaced = 0;
    for (size_t i = 0; i < SOURCE_COUNT; i++) {
        self->interruptions[i] = interruptions_of(sources[i]);
    }
    if (self->output != NULL && open_file(self, used) < 0) {
        return -1;
    }
    uint64_t seen = change.count;
    if (records_code(self)) {
        self->alone = code_source_in_use() == NULL;
        for (recorder_object *r = running; r != NULL; r = r->next) {
            r->alone = false;
        }
        prepare_gate(self);
    }
    choose_audit(self, self);
    if (adjust_sources(ep_engine_kinds() | kinds, code, self) < 0) {
        drop_file(self);
        leave_gate(self);
        choose_audit(self, NULL);
        release_sources();
        return -1;
    }
    ep_log *log = ep_py_log_for(EP_KIND_C_CALL);    /* our own: no function begins */
    if (log != NULL && log->thread->native_id == ep_os_process_id()) {
        /* On Linux; the module threading, which knows the name, may not be there. */
        ep_thread_set_name(log->thread, (ep_text){"MainThread", 10});
    }
    self->only_thread = self->current_thread_only && log != NULL ? log->thread->id : 0;
    self->core.file_thread = self->only_thread;
    self->code_used = used;
    beginning window = {.self = self, .hook_was_in = hook_was_in};
    ep_py_alone(begin_window, &window);
    if (window.status != EP_OK) {
        ep_py_raise(window.status, &window.error);
    } else if (self->output == NULL || ep_py_intern_resolve() == 0) {
        /* The file has what the hooks met before it was theirs. */
        self->backend = used;
        self->clock = ep_clock_current;
        self->windows++;
        if (seen != change.count) {
            release_sources();
        }
        return 0;
    }
    (void)!ep_recorder_stop(&self->core, NULL);
    drop_file(self);
    ep_recorder_clear(&self->core);
    ep_recorder_init(&self->core, &options);
    unlink_running(self);
    leave_gate(self);
    choose_audit(self, NULL);
    release_sources();
    return -1;
}

/* No change is under way on this thread. */
static int
begin(recorder_object *self)
{
    begin_change();
    int status = start_alone(self);
    end_change();
    return status;
}

static int
start(recorder_object *self)
{
    if (is_changing()) {
        PyErr_SetString(ep_py_error(EP_ERROR_STATE),
                        "hooks are going in or out on this thread at this moment (this runs in an "
                        "audit hook or a finalizer); start it later");
        return -1;
    }
    return begin(self);
}

static void
stop_alone(recorder_object *self)
{
    ep_error error;
    uint64_t left_out[EP_LEFT_OUT_COUNT];
    size_t functions_left_out;
    read_counts(self, left_out, &functions_left_out);
    if (self->core.file_is_late && self->core.state == EP_RECORDER_RUNNING &&
        ep_py_intern_resolve() < 0) {
        PyErr_Clear();    /* no memory: some lines are unknown in its file, which is written now */
    }
    if (ep_recorder_stop(&self->core, &error) != EP_OK) {
        return;
    }
    memcpy(self->left_out, left_out, sizeof left_out);
    self->functions_left_out = functions_left_out;
    for (size_t i = 0; i < SOURCE_COUNT; i++) {
        if (is_displaced(self, i)) {
            self->displaced |= 1u << i;
        }
    }
    if (self->core.file != NULL) {
        ep_file_header *header = ep_file_get_header(self->core.file);
        header->deep_calls = left_out[EP_LEFT_OUT_DEEP];
        header->short_calls = left_out[EP_LEFT_OUT_SHORT];
        header->functions_off = functions_left_out;
        size_t used = 0;
        for (size_t i = 0; i < SOURCE_COUNT; i++) {
            const char *name = sources[i]->name;
            /* All of them would not fit; no program displaces all. */
            if ((self->displaced & 1u << i) && used + strlen(name) + 2 <= sizeof header->displaced) {
                char *end = stpcpy(stpcpy(header->displaced + used, name), " ");
                used = (size_t)(end - header->displaced);
            }
        }
    }
    unlink_running(self);
    leave_gate(self);
    choose_audit(self, NULL);
    if (change.depth == 1) {
        release_sources();
    }
}

/* No-op unless running. Never fails: whatever happened, the interpreter is restored. */
static void
stop(recorder_object *self)
{
    ep_py_release_types();
    begin_change();
    stop_alone(self);
    end_change();
}

void
ep_py_recorders_stop_all(void)
{
    begin_change();
    while (running != NULL) {
        stop_alone(running);
    }
    end_change();
}

/* Without a GIL: a thread that changes hooks stops the world, in the end by way of the interpreter's own
 * functions, and one that is about to has a lock of the interpreter's. It waits for a fork with that, and
 * the child, which has the lock without the thread, would wait for ever where it stops the world itself
 * (3.13; two threads in gc.get_referrers() and os.fork() show it). So a fork waits for the change. */
void
ep_py_recorders_before_fork(void)
{
    take_change();
}

void
ep_py_recorders_after_fork(bool child)
{
    /* Not if we were imported between the two: the change would be another thread's. */
    if (EP_GIL_DISABLED && is_changing()) {
        end_change();
    }
    if (!child) {
        return;
    }
    if (!is_changing()) {
        /* Whoever holds it, or waits for it, is not here. */
        bool interrupted = change.holder != 0;
        change.lock = PyThread_allocate_lock();
        change.holder = 0;
        change.depth = 0;
        if (interrupted) {
            begin_change();
            release_sources();
            end_change();
        }
    }
    ep_py_counters_after_fork();
    if (running == NULL && ep_counter_running(0) != NULL) {
        return;    /* counters need no log */
    }
    (void)ep_py_log_for(EP_KIND_CALL);
    for (recorder_object *r = running; r != NULL; r = r->next) {
        if (r->core.options.kinds & ep_kinds_python) {
            (void)!describe_open_calls(r, true);    /* else the child's first returns will be unmatched */
        }
        begin_counts(r);
    }
    ep_gate_after_fork();
    reset_gate_alone(NULL);
}

/* ---- The type -------------------------------------------------------------------------------- */

static PyObject *
recorder_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"kinds", "limit_bytes", "on_full", "backend", "clock", "current_thread",
                            "include", "exclude", "max_depth", "min_duration_ns", "output",
                            "child_output", "metadata", "replace", "audit", NULL};
    PyObject *include = NULL, *exclude = NULL, *output = NULL, *child_output = NULL, *audit = NULL;
    PyObject *metadata = NULL;
    int replace = 0;
    ep_kind_set kinds = 0;
    unsigned long long limit_bytes = 0;
    int on_full = EP_ON_FULL_OVERWRITE, current_thread = 0;
    const char *backend = "auto", *clock = "auto";
    long long max_depth = -1, min_duration_ns = 0;    /* -1: any */
    (void)args;
    PyObject *empty = PyTuple_New(0);
    int parsed = empty != NULL &&
                 PyArg_ParseTupleAndKeywords(empty, keywords, "|$O&KisspO!O!LLO!O!O!pO!:Recorder",
                                             names, ep_py_kinds_from, &kinds, &limit_bytes, &on_full,
                                             &backend,
                                             &clock, &current_thread, &PyTuple_Type, &include,
                                             &PyTuple_Type, &exclude, &max_depth,
                                             &min_duration_ns, &PyBytes_Type, &output,
                                             &PyBytes_Type, &child_output, &PyBytes_Type, &metadata,
                                             &replace, &PyTuple_Type, &audit);
    Py_XDECREF(empty);
    if (!parsed) {
        return NULL;
    }
    recorder_object *self = (recorder_object *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    ep_recorder_options options = {
        .kinds = kinds,
        .limit_bytes = limit_bytes,
        .on_full = (ep_on_full)on_full,
        .clock = strcmp(clock, "monotonic") == 0 ? EP_CLOCK_MONOTONIC : EP_CLOCK_COUNTER,
        .clock_any = strcmp(clock, "auto") == 0,
    };
    ep_recorder_init(&self->core, &options);
    for (size_t i = 0; i < SOURCE_COUNT; i++) {
        if ((sources[i]->kinds & EP_KINDS_CODE) && strcmp(sources[i]->name, backend) == 0) {
            self->code_asked = sources[i];
        }
    }
    self->current_thread_only = current_thread;
    self->include = include != NULL ? Py_NewRef(include) : PyTuple_New(0);
    self->exclude = exclude != NULL ? Py_NewRef(exclude) : PyTuple_New(0);
    self->audit = audit != NULL ? Py_NewRef(audit) : PyTuple_New(0);
    if (output != NULL && child_output != NULL && metadata != NULL) {
        self->output = Py_NewRef(output);
        self->child_output = Py_NewRef(child_output);
        self->metadata = Py_NewRef(metadata);
        self->replace = replace;
    }
    self->filter.limits_depth = max_depth >= 0 && max_depth < EP_DEPTH_UNLIMITED;
    self->filter.max_depth = self->filter.limits_depth ? (uint32_t)max_depth : 0;
    self->filter.min_duration_ns = min_duration_ns;
    if (self->include == NULL || self->exclude == NULL || self->audit == NULL ||
        ep_py_add_patterns(&self->filter, self->include, self->exclude, self->audit) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void
recorder_finalize(PyObject *object)
{
    recorder_object *self = (recorder_object *)object;
    begin_look();    /* at the interpreter's end another thread may be stopping it */
    bool runs = self->core.state == EP_RECORDER_RUNNING;
    end_look();
    if (!runs) {
        return;
    }
    stop(self);
    ep_py_exception saved = ep_py_exception_save();
    if (PyErr_ResourceWarning(object, 1, "%R was dropped while running; it was stopped", object) < 0) {
        PyErr_WriteUnraisable(object);
    }
    ep_py_exception_restore(saved);
}

static void
recorder_dealloc(PyObject *object)
{
    recorder_object *self = (recorder_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    /* A subclass in Python is of the collector's, has called it, and is out of the collector's lists: debug
     * builds abort where that is called again. */
    if (!PyType_IS_GC(type) && PyObject_CallFinalizerFromDealloc(object) < 0) {
        return;
    }
    if (self->weak_references != NULL) {
        PyObject_ClearWeakRefs(object);
    }
    ep_recorder_clear(&self->core);
    ep_filter_clear(&self->filter);
    Py_XDECREF(self->include);
    Py_XDECREF(self->exclude);
    Py_XDECREF(self->audit);
    Py_XDECREF(self->output);
    Py_XDECREF(self->child_output);
    Py_XDECREF(self->metadata);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyObject *
recorder_start(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (start((recorder_object *)self) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
recorder_stop(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (((recorder_object *)self)->core.state != EP_RECORDER_RUNNING) {
        PyErr_SetString(ep_py_error(EP_ERROR_STATE), "this recorder is not running");
        return NULL;
    }
    stop((recorder_object *)self);
    Py_RETURN_NONE;
}

static PyObject *
recorder_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    return start((recorder_object *)self) < 0 ? NULL : Py_NewRef(self);
}

/* Unless it runs, whoever began it. Returns: whether it began here. */
static PyObject *
recorder_begin(PyObject *object, PyObject *unused)
{
    (void)unused;
    recorder_object *self = (recorder_object *)object;
    bool changing = is_changing();    /* which start() refuses; and begin_look() makes it so */
    begin_look();
    bool runs = self->core.state == EP_RECORDER_RUNNING;
    int status = runs ? 0 : changing ? start(self)
                                     : begin(self);
    end_look();
    return status < 0 ? NULL : PyBool_FromLong(!runs);
}

static PyObject *
recorder_exit(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)args;
    (void)count;
    stop((recorder_object *)self);
    Py_RETURN_FALSE;
}

static void
keep_open_alone(void *unused)
{
    (void)unused;
    ep_gate_keep_open();
}

static PyObject *
recorder_capture(PyObject *object, PyObject *unused)
{
    (void)unused;
    recorder_object *self = (recorder_object *)object;
    ep_capture capture;
    ep_error error = {.text = ""};
    begin_look();
    ep_py_left_out left_out = {.max_depth = self->filter.max_depth,
                               .limits_depth = self->filter.limits_depth,
                               .min_duration_ns = self->filter.min_duration_ns};
    read_counts(self, left_out.calls, &left_out.functions);
    if (self->core.state == EP_RECORDER_RUNNING) {
        ep_py_alone(keep_open_alone, NULL);    /* nothing that it holds is taken back */
    }
    ep_status status = ep_capture_take(&self->core, &capture, &error);
    end_look();
    if (status != EP_OK) {
        return ep_py_raise(status, &error);
    }
    return ep_py_trace_new(&capture, self->only_thread, self->include, self->exclude, self->audit,
                           &left_out);
}

/* (recorded, lost, why it ended early, ns): events of the window so far, counted without decoding
 * them. */
static PyObject *
recorder_count(PyObject *object, PyObject *unused)
{
    (void)unused;
    recorder_object *self = (recorder_object *)object;
    ep_capture capture;
    ep_error error = {.text = ""};
    begin_look();
    ep_status status = ep_capture_take(&self->core, &capture, &error);
    end_look();
    if (status != EP_OK) {
        return ep_py_raise(status, &error);
    }
    uint64_t recorded[EP_KIND_COUNT], lost[EP_KIND_COUNT], recorded_sum = 0, lost_sum = 0;
    Py_BEGIN_ALLOW_THREADS
    ep_capture_count(&capture, self->only_thread, recorded, lost);
    Py_END_ALLOW_THREADS
    for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
        recorded_sum += recorded[kind];
        lost_sum += lost[kind];
    }
    long long ns = capture.stop.monotonic_ns - capture.start.monotonic_ns;
    const char *reason = ep_py_full_reason(capture.full_reason, capture.limits);
    ep_capture_clear(&capture);
    return Py_BuildValue("KKzL", (unsigned long long)recorded_sum, (unsigned long long)lost_sum,
                         reason, ns);
}

/* (chunks, their bytes, those of them in a file, bytes of lists): what it holds. */
static PyObject *
recorder_held(PyObject *object, PyObject *unused)
{
    (void)unused;
    ep_recorder_stats stats = ep_recorder_get_stats(&((recorder_object *)object)->core);
    return Py_BuildValue("nnnn", (Py_ssize_t)stats.chunks, (Py_ssize_t)stats.chunk_bytes,
                         (Py_ssize_t)stats.file_bytes, (Py_ssize_t)stats.list_bytes);
}

static PyObject *
recorder_get_state(PyObject *self, void *unused)
{
    (void)unused;
    static const char *const names[] = {"new", "running", "stopped"};
    return PyUnicode_FromString(names[((recorder_object *)self)->core.state]);
}

static PyObject *
recorder_get_backend(PyObject *self, void *unused)
{
    (void)unused;
    const ep_source *backend = ((recorder_object *)self)->backend;
    return backend != NULL ? PyUnicode_FromString(backend->name) : Py_NewRef(Py_None);
}

static PyObject *
recorder_get_clock(PyObject *object, void *unused)
{
    (void)unused;
    recorder_object *self = (recorder_object *)object;
    if (self->windows == 0) {
        Py_RETURN_NONE;
    }
    return PyUnicode_FromString(self->clock == EP_CLOCK_COUNTER ? "counter" : "monotonic");
}

static PyObject *
recorder_get_output(PyObject *object, void *unused)
{
    (void)unused;
    const ep_file *file = ((recorder_object *)object)->core.file;
    return file != NULL ? PyUnicode_DecodeFSDefault(ep_file_path(file)) : Py_NewRef(Py_None);
}

static PyObject *
recorder_get_displaced(PyObject *object, void *unused)
{
    (void)unused;
    recorder_object *self = (recorder_object *)object;
    PyObject *names = PyList_New(0);
    begin_look();
    for (size_t i = 0; names != NULL && i < SOURCE_COUNT; i++) {
        bool runs = self->core.state == EP_RECORDER_RUNNING;
        if ((self->displaced & 1u << i) || (runs && is_displaced(self, i))) {
            PyObject *name = PyUnicode_FromString(sources[i]->name);
            if (name == NULL || PyList_Append(names, name) < 0) {
                Py_CLEAR(names);
            }
            Py_XDECREF(name);
        }
    }
    end_look();
    PyObject *result = names != NULL ? PyList_AsTuple(names) : NULL;
    Py_XDECREF(names);
    return result;
}

static PyMethodDef recorder_methods[] = {
    {"start", recorder_start, METH_NOARGS,
     "start()\n--\n\nBegin a window; what an earlier one recorded is given up.\n\n"
     "Raises\n------\n"
     "StateError\n    It is running already.\n"
     "ToolInUseError\n    No hook for calls is free.\n"
     "OSError\n    The file of `output` cannot be made, or is there already.\n"
     "MemoryError\n    There is none for the first pieces of the buffer."},
    {"stop", recorder_stop, METH_NOARGS,
     "stop()\n--\n\nEnd the window and put the interpreter's hooks back.\n\n"
     "Raises\n------\n"
     "StateError\n    It is not running."},
    {"__enter__", recorder_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))recorder_exit, METH_FASTCALL, NULL},
    {"_begin", recorder_begin, METH_NOARGS, NULL},
    {"_capture", recorder_capture, METH_NOARGS, NULL},
    {"_count", recorder_count, METH_NOARGS, NULL},
    {"_held", recorder_held, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef recorder_properties[] = {
    {"state", recorder_get_state, NULL, "'new', 'running' or 'stopped'.", NULL},
    {"backend", recorder_get_backend, NULL,
     "What the calls of the last window came by, and what happened inside of functions: "
     "'monitoring', 'profile', 'trace'; None: nothing.",
     NULL},
    {"clock", recorder_get_clock, NULL,
     "The clock of the last window: 'counter', 'monotonic'; None: there was none.", NULL},
    {"output", recorder_get_output, NULL,
     "Path of the last window's log file; None: there is none.", NULL},
    {"displaced", recorder_get_displaced, NULL,
     "Names of the sources whose hook another tool took over during the window.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef recorder_members[] = {
    {"_windows", T_ULONGLONG, offsetof(recorder_object, windows), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(recorder_object, weak_references), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot recorder_slots[] = {
    {Py_tp_new, recorder_new},
    {Py_tp_dealloc, recorder_dealloc},
    {Py_tp_finalize, recorder_finalize},
    {Py_tp_methods, recorder_methods},
    {Py_tp_getset, recorder_properties},
    {Py_tp_members, recorder_members},
    {0, NULL},
};

PyType_Spec ep_py_recorder_spec = {
    .name = "eventprof._core.Recorder",
    .basicsize = sizeof(recorder_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = recorder_slots,
};
