/* The recorder as an object of Python, and what its files ask of each other: which sources it needs
 * (sources.c), what its filters let through (filters.c), how a window begins and ends (windows.c). */
#ifndef EP_RECORDER_OBJECT_H
#define EP_RECORDER_OBJECT_H

#include "change.h"
#include "engine.h"
#include "filter.h"
#include "gate.h"
#include "source.h"
#include "startable.h"

/* One a row of sources.def. */
#define EP_SOURCE(name, hook) +1
enum {
    EP_PY_SOURCE_COUNT = 0
#include "sources.def"
};
#undef EP_SOURCE

extern EP_HIDDEN const ep_source *const ep_py_sources[EP_PY_SOURCE_COUNT];

typedef struct ep_py_recorder {
    ep_py_startable head;
    ep_recorder core;
    const ep_source *code_asked;     /* NULL: auto */
    const ep_source *code_used;      /* the source of code while it runs; NULL: none. See sources.c */
    const ep_source *backend;        /* code_used of the last window, for the user */
    ep_clock_mode clock;             /* of the last window */
    bool current_thread_only;
    uint32_t only_thread;            /* 0: all */
    PyObject *include, *exclude, *audit;     /* tuples of patterns, for the trace */
    /* Bytes: the log file's path and that of forked children, as patterns, and its metadata. NULL:
     * it records into memory. */
    PyObject *output, *child_output, *metadata;
    int replace;                     /* replace an existing file */
    int packs;                       /* pack the file's chunks */
    ep_filter filter;                /* include and exclude, and the limits */
    bool alone;                      /* no other recorder of code ran since its start */
    uint32_t first_generation;       /* of the gate, in the last window */
    uint64_t left_out[EP_LEFT_OUT_COUNT];    /* running: before its start; stopped: in the window */
    size_t functions_left_out;       /* stopped: in the window */
    unsigned displaced;              /* bits: index in ep_py_sources */
    uint64_t interruptions[EP_PY_SOURCE_COUNT];    /* of each, when the window began */
    struct ep_py_recorder *next;     /* list of running recorders; not owned: a recorder removes itself when
                                      * it stops */
} ep_py_recorder;

/* The running recorders, the newest first. */
extern EP_HIDDEN ep_py_recorder *ep_py_running;

/* ---- sources.c ------------------------------------------------------------------------------- */

/* The source of code of the running recorders. */
const ep_source *ep_py_code_source_in_use(void);

/* Makes the sources record `kinds`. more: a recorder that is about to run; may be NULL. Fails: -1,
 * exception set. */
int ep_py_sources_adjust(ep_kind_set kinds, const ep_source *code, const ep_py_recorder *more);

/* Makes the sources record what the running recorders want, and no more. */
void ep_py_sources_release(void);

/* How often another tool took the hook of a source for a while. */
uint64_t ep_py_source_interruptions(const ep_source *source);

/* Whether another tool took the hook of a source (index in ep_py_sources) that this running recorder
 * uses: it has the hook now, or had it for a while, in which our events were missed. */
bool ep_py_source_is_displaced(const ep_py_recorder *self, size_t i);

/* Chooses the source of this recorder's code. Returns: NULL if it records no code. Fails: NULL with an
 * exception. */
const ep_source *ep_py_code_source_choose(const ep_py_recorder *self);

/* ---- filters.c ------------------------------------------------------------------------------- */

/* Whether it records calls, or what is inside of functions. */
bool ep_py_records_code(const ep_py_recorder *self);

/* Before the set of recorders changes to the running ones and `more` (may be NULL). */
void ep_py_gate_prepare(ep_py_recorder *more);

/* For the running recorders. No hook runs meanwhile. */
void ep_py_gate_open_alone(void);

/* Both of the above. No hook runs meanwhile. */
void ep_py_gate_reset_alone(void *unused);

/* The recorder does not run any more. */
void ep_py_gate_leave(const ep_py_recorder *self);

/* At the begin of a window: notes the counts of left-out calls, so that earlier calls do not count for
 * it. */
void ep_py_left_out_begin(ep_py_recorder *self);

/* The counts of calls left out since ep_py_left_out_begin(). */
void ep_py_left_out_read(const ep_py_recorder *self, uint64_t *calls, size_t *functions);

/* If `changes` records audit events: chooses them for the running recorders and `more` (may be NULL). */
void ep_py_audit_choose_for(const ep_py_recorder *changes, ep_py_recorder *more);

/* ---- windows.c ------------------------------------------------------------------------------- */

/* Begin and end a window, within the change: `start` and `stop` of ep_py_startable_functions. */
int ep_py_window_begin(ep_py_startable *recorder);
void ep_py_window_end(ep_py_startable *recorder);

#endif
