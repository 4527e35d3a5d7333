/* A window begins and ends: start() and stop(), at exit, and in a forked child. */
#include "recorder_object.h"

#include <errno.h>
#include <string.h>

#include "count.h"
#include "file.h"
#include "gate.h"
#include "intern.h"
#include "labels.h"
#include "lanes.h"
#include "os.h"
#include "source.h"

ep_py_recorder *ep_py_running;

/* ---- Open calls ------------------------------------------------------------------------------ */

/* In most versions a thread that waits at the first instruction of a function waits before the interpreter
 * reports that call. The call would be described as open, and then begin a second time, and the wrong one
 * of the two would seem to end. (Of windows that began beside two threads of short calls, a quarter were
 * wrong.)
 *
 * If the hook was installed before, the call will be reported. If the hook is installed only now, it will
 * not: the thread has already passed the instruction that reports it. The same holds for a thread that has
 * waited there since then: the earlier result counts as long as the thread has not moved. A thread inside
 * of our hook has read the clock before the window.
 *
 * Limitation: a thread parked since an earlier window, while the hook was out, is reported as having an
 * open call.
 *
 * Returns: the frame whose call will be reported, or NULL. */
static const ep_frame *
frame_to_come(PyThreadState *ts, ep_thread *thread, bool hook_was_in)
{
    const ep_frame *frame = ep_py_frame_at_resume(ts);
    if (frame == NULL || ep_frame_begin_was_reported(frame) || ts == PyThreadState_Get()) {
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

/* Describes the calls that are open on every thread when the window begins. The threads are stopped; the
 * calling thread's log has its name. */
static ep_status
describe_open_calls(ep_py_recorder *self, bool hook_was_in)
{
    PyThreadState *ts = ep_py_first_thread();
    for (; ts != NULL; ts = ep_py_next_thread(ts)) {
        ep_log *log = ts == PyThreadState_Get() ? ep_log_mine() : NULL;
        ep_thread *thread = log != NULL
                                ? log->thread
                                : ep_engine_lane_of(
                                      ep_engine_thread_by_native_id(ts->native_thread_id, true));
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
        ep_py_note_open_slices(ts, thread, !hook_was_in);
    }
    return EP_OK;
}

/* ---- The log file ---------------------------------------------------------------------------- */

static void
raise_of_output(const ep_py_recorder *self, ep_status status, const ep_error *error)
{
    if (error->os_error == 0) {
        ep_py_raise(status, error);
        return;
    }
    const char *hint = error->os_error == EEXIST ? "exists already; force=True replaces it" : error->text;
    PyObject *arguments = Py_BuildValue("isN", error->os_error, hint,
                                        PyUnicode_DecodeFSDefault(PyBytes_AS_STRING(self->output)));
    if (arguments != NULL) {
        PyErr_SetObject(PyExc_OSError, arguments);
        Py_DECREF(arguments);
    }
}

/* Makes the log file of the window that will begin. Fails: -1, exception set. */
static int
open_file(ep_py_recorder *self, const ep_source *calls)
{
    ep_file_options options = {
        .path = PyBytes_AS_STRING(self->output),
        .child_path = PyBytes_AS_STRING(self->child_output),
        /* Its own file of the window before is replaced, as the window is. */
        .replace = self->replace || self->head.windows > 0,
        .packs = self->packs,
        .metadata = PyBytes_AS_STRING(self->metadata),
        .metadata_bytes = (size_t)PyBytes_GET_SIZE(self->metadata),
    };
    for (const ep_py_recorder *r = ep_py_running; r != NULL && options.replace; r = r->next) {
        if (r->core.file != NULL && ep_file_is_at(r->core.file, options.path)) {
            /* The file would be replaced, and its events would be gone. */
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
    if (status != EP_OK) {
        raise_of_output(self, status, &error);
        return -1;
    }
    if (calls != NULL) {
        ep_file_put_calls_from(file, calls->name);
    }
    ep_recorder_set_file(&self->core, file);
    return 0;
}

/* The file of a window that has begun: now it may replace an older one. Fails: -1, exception set. */
static int
put_file_in_place(ep_py_recorder *self)
{
    ep_error error = {.text = ""};
    ep_status status = ep_file_put_in_place(self->core.file, &error);
    if (status != EP_OK) {
        raise_of_output(self, status, &error);
        return -1;
    }
    return 0;
}

/* A file in which nothing was recorded. */
static void
drop_file(ep_py_recorder *self)
{
    if (self->core.file != NULL) {
        ep_file_remove(self->core.file);
    }
}

/* ---- Start ----------------------------------------------------------------------------------- */

static void
unlink_running(ep_py_recorder *self)
{
    for (ep_py_recorder **at = &ep_py_running; *at != NULL; at = &(*at)->next) {
        if (*at == self) {
            *at = self->next;
            break;
        }
    }
    self->next = NULL;
    self->code_used = NULL;
}

/* The steps that no other thread may interrupt: the window, the calls that are open then, the gate. */
typedef struct beginning {
    ep_py_recorder *self;
    bool hook_was_in;    /* calls were recorded before this window */
    ep_status status;
    ep_error error;
} beginning;

static void
begin_window(void *context)
{
    beginning *now = context;
    ep_py_recorder *self = now->self;
    self->next = ep_py_running;
    ep_py_running = self;
    now->status = ep_recorder_start(&self->core, &now->error);
    ep_py_labels_begin();
    if (now->status == EP_OK && (self->core.options.kinds & ep_kinds_python)) {
        now->status = describe_open_calls(self, now->hook_was_in);
    }
    if (now->status != EP_OK) {
        return;
    }
    ep_py_left_out_begin(self);
    if (ep_py_records_code(self)) {
        ep_py_gate_open_alone();
    }
}

int
ep_py_window_begin(ep_py_startable *recorder)
{
    ep_py_recorder *self = (ep_py_recorder *)recorder;
    ep_kind_set kinds = self->core.options.kinds;
    const ep_source *code = ep_py_code_source_in_use(), *used = NULL;
    bool hook_was_in = (ep_engine_kinds() & ep_kinds_python) != 0;
    if (kinds & EP_KINDS_CODE) {
        code = used = ep_py_code_source_choose(self);
        if (code == NULL) {
            return -1;
        }
    }
    ep_recorder_options options = self->core.options;
    ep_recorder_clear_to_start(&self->core);
    ep_recorder_init(&self->core, &options);
    self->displaced = 0;
    if (self->output != NULL && open_file(self, used) < 0) {
        return -1;
    }
    uint64_t seen = ep_py_change.count;
    if (ep_py_records_code(self)) {
        self->alone = ep_py_code_source_in_use() == NULL;
        for (ep_py_recorder *r = ep_py_running; r != NULL; r = r->next) {
            r->alone = false;
        }
        ep_py_gate_prepare(self);
    }
    ep_py_audit_choose_for(self, self);
    if (ep_py_sources_adjust(ep_engine_kinds() | kinds, code, self) < 0) {
        drop_file(self);
        ep_py_gate_leave(self);
        ep_py_audit_choose_for(self, NULL);
        ep_py_sources_release();
        return -1;
    }
    /* Only now: while the hooks were adjusted, an interruption of earlier windows may have been noticed. */
    for (size_t i = 0; i < EP_PY_SOURCE_COUNT; i++) {
        self->interruptions[i] = ep_py_source_interruptions(ep_py_sources[i]);
    }
    ep_log *log = ep_py_log_for(EP_KIND_C_CALL);    /* busy with our own code: no function begins */
    if (log != NULL && log->thread->native_id == ep_os_process_id()) {
        /* On Linux. The module threading, which knows the name, may not be imported. */
        ep_thread_set_name(ep_lanes_carrier(log), (ep_text){"MainThread", 10});
    }
    self->only_thread = self->current_thread_only && log != NULL ? ep_lanes_carrier(log)->id : 0;
    self->core.file_thread = self->only_thread;
    self->code_used = used;
    beginning window = {.self = self, .hook_was_in = hook_was_in};
    ep_py_alone(begin_window, &window);
    if (window.status != EP_OK) {
        ep_py_raise(window.status, &window.error);
    } else if (self->output == NULL || (ep_py_intern_resolve() == 0 && put_file_in_place(self) == 0)) {
        /* The file gets the events that hooks recorded before it was set. */
        self->backend = used;
        self->clock = ep_clock_current;
        self->head.windows++;
        if (seen != ep_py_change.count) {
            ep_py_sources_release();
        }
        return 0;
    }
    (void)!ep_recorder_stop(&self->core, NULL);
    drop_file(self);
    ep_recorder_clear(&self->core);
    ep_recorder_init(&self->core, &options);
    unlink_running(self);
    ep_py_gate_leave(self);
    ep_py_audit_choose_for(self, NULL);
    ep_py_sources_release();
    return -1;
}

/* ---- Stop ------------------------------------------------------------------------------------ */

void
ep_py_window_end(ep_py_startable *recorder)
{
    ep_py_recorder *self = (ep_py_recorder *)recorder;
    ep_error error;
    uint64_t left_out[EP_LEFT_OUT_COUNT];
    size_t functions_left_out;
    ep_py_left_out_read(self, left_out, &functions_left_out);
    if (self->core.file_is_late && self->core.state == EP_RECORDER_RUNNING &&
        ep_py_intern_resolve() < 0) {
        PyErr_Clear();    /* no memory: some lines are unknown in the file, which is written now */
    }
    if (ep_recorder_stop(&self->core, &error) != EP_OK) {
        return;
    }
    memcpy(self->left_out, left_out, sizeof left_out);
    self->functions_left_out = functions_left_out;
    for (size_t i = 0; i < EP_PY_SOURCE_COUNT; i++) {
        if (ep_py_source_is_displaced(self, i)) {
            self->displaced |= 1u << i;
        }
    }
    if (self->core.file != NULL) {
        ep_file_put_left_out(self->core.file, left_out[EP_LEFT_OUT_DEEP], left_out[EP_LEFT_OUT_SHORT],
                             functions_left_out);
        for (size_t i = 0; i < EP_PY_SOURCE_COUNT; i++) {
            if (self->displaced & 1u << i) {
                ep_file_put_displaced(self->core.file, ep_py_sources[i]->name);
            }
        }
    }
    unlink_running(self);
    ep_py_gate_leave(self);
    ep_py_audit_choose_for(self, NULL);
    if (ep_py_change.depth == 1) {
        ep_py_sources_release();
    }
}

void
ep_py_recorders_stop_all(void)
{
    ep_py_change_begin();
    while (ep_py_running != NULL) {
        ep_py_window_end(&ep_py_running->head);
    }
    ep_py_change_end();
}

void
ep_py_recorders_after_fork(bool child)
{
    bool interrupted = ep_py_change_after_fork(child);
    if (!child) {
        return;
    }
    if (interrupted) {
        ep_py_change_begin();
        ep_py_sources_release();
        ep_py_change_end();
    }
    ep_py_counters_after_fork();
    if (ep_py_running == NULL && ep_counter_running(0) != NULL) {
        return;    /* counters need no log */
    }
    (void)ep_py_log_for(EP_KIND_CALL);
    for (ep_py_recorder *r = ep_py_running; r != NULL; r = r->next) {
        if (r->core.options.kinds & ep_kinds_python) {
            (void)!describe_open_calls(r, true);    /* else the child's first returns will be unmatched */
        }
        ep_py_left_out_begin(r);
    }
    ep_gate_after_fork();
    ep_py_gate_reset_alone(NULL);
}
