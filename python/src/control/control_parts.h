/* What the files of the recorder share. Nobody else includes this; control.h is the interface. */
#ifndef EP_CONTROL_PARTS_H
#define EP_CONTROL_PARTS_H

#include "control.h"

#include "engine.h"
#include "filter.h"
#include "gate.h"
#include "source.h"

/* One a row of sources.def. */
#define EP_SOURCE(name, hook) +1
enum {
    EP_PY_SOURCE_COUNT = 0
#include "sources.def"
};
#undef EP_SOURCE

extern EP_HIDDEN const ep_source *const ep_py_sources[EP_PY_SOURCE_COUNT];

typedef struct ep_py_recorder {
    PyObject_HEAD
    ep_recorder core;
    const ep_source *code_asked;     /* NULL: auto */
    const ep_source *code_used;      /* while it runs; NULL: none. See sources.c */
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
    unsigned displaced;              /* bits: index in ep_py_sources */
    uint64_t interruptions[EP_PY_SOURCE_COUNT];    /* of each, when the window began */
    struct ep_py_recorder *next;     /* running ones; not owned: a running one removes itself */
    PyObject *weak_references;
} ep_py_recorder;

/* The running recorders, the newest first. */
extern EP_HIDDEN ep_py_recorder *ep_py_running;

/* ---- change.c -------------------------------------------------------------------------------- */

/* Putting hooks in and taking them out runs Python code (audit hooks, finalizers), and so lets other
 * threads in: they wait. The same thread may come again, from such code: it may stop a recorder,
 * and the sources are left to the change that was interrupted, which looks at what is wanted once
 * more (ep_py_sources_release); it may not start one, whose first events would be missing. */
struct ep_py_change {
    PyThread_type_lock lock;
    _Atomic unsigned long holder;    /* 0: none. Only its own number means something to a thread */
    unsigned depth;                  /* the holder's, as the next */
    uint64_t count;                  /* of changes begun */
};

extern EP_HIDDEN struct ep_py_change ep_py_change;

/* Whether a change is under way on this thread. */
bool ep_py_change_is_here(void);

/* The same as ep_py_begin_change(), but on any thread, and without a change of hooks. */
void ep_py_change_take(void);

/* ep_py_begin_change() on any thread. */
void ep_py_change_begin(void);
void ep_py_change_end(void);

/* Around looking at recorders and sources: without a GIL another thread may be changing them. */
void ep_py_look_begin(void);
void ep_py_look_end(void);

/* Returns: whether a thread that is not here was at a change. */
bool ep_py_change_after_fork(bool child);

/* ---- sources.c ------------------------------------------------------------------------------- */

/* What the running recorders of code go by. */
const ep_source *ep_py_code_source_in_use(void);

/* Makes every source give what `kinds` asks of it. more: is about to run; may be NULL. Fails: -1,
 * exception set. */
int ep_py_sources_adjust(ep_kind_set kinds, const ep_source *code, const ep_py_recorder *more);

/* Makes every source give what the running recorders want, and no more. */
void ep_py_sources_release(void);

/* How often another tool had the hook of a source for a while. */
uint64_t ep_py_source_interruptions(const ep_source *source);

/* Whether another tool took the hook of a source (index in ep_py_sources) that this running recorder uses:
 * has it now, or had it for a while in which it saw what was ours. */
bool ep_py_source_is_displaced(const ep_py_recorder *self, size_t i);

/* Which source this recorder's code goes by. Fails: NULL with an exception, if it wants any. */
const ep_source *ep_py_code_source_choose(const ep_py_recorder *self);

/* ---- filters.c ------------------------------------------------------------------------------- */

/* Whether it records calls, or what is inside of functions. */
bool ep_py_records_code(const ep_py_recorder *self);

/* Before the set of recorders changes to the running ones and `more` (may be NULL). */
void ep_py_gate_prepare(ep_py_recorder *more);

/* For the running recorders. The hooks stand still. */
void ep_py_gate_open_alone(void);

/* Both of it. The hooks stand still. */
void ep_py_gate_reset_alone(void *unused);

/* It no longer runs. */
void ep_py_gate_leave(const ep_py_recorder *self);

/* The window begins: what was left out before is not its. */
void ep_py_left_out_begin(ep_py_recorder *self);

/* What was left out since ep_py_left_out_begin(). */
void ep_py_left_out_read(const ep_py_recorder *self, uint64_t *calls, size_t *functions);

/* If `changes` records audit events: for the running recorders and `more` (may be NULL). */
void ep_py_audit_choose_for(const ep_py_recorder *changes, ep_py_recorder *more);

/* ---- windows.c ------------------------------------------------------------------------------- */

/* No change is under way on this thread. Fails: -1, exception set. */
int ep_py_window_begin(ep_py_recorder *self);

/* The same for who does not know. Fails: -1, exception set. */
int ep_py_window_start(ep_py_recorder *self);

/* No-op unless running. Never fails: whatever happened, the interpreter is restored. */
void ep_py_window_stop(ep_py_recorder *self);

#endif
