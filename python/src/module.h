/* What the extension's files share: errors, the types, the running recorders. */
#ifndef EP_MODULE_H
#define EP_MODULE_H

#include <Python.h>

#include "engine.h"
#include "filter.h"
#include "gate.h"
#include "types.h"

/* The public exceptions; made in module.c, immortal. */
typedef enum ep_py_error_class {
    EP_ERROR_BASE,
    EP_ERROR_STATE,
    EP_ERROR_TOOL_IN_USE,
    EP_ERROR_FORMAT,
    EP_ERROR_UNSUPPORTED,
    EP_ERROR_COUNT
} ep_py_error_class;

/* Returns: borrowed, immortal. */
PyObject *ep_py_error(ep_py_error_class which);

/* Sets the exception for a status of the core; `error` (may be NULL) holds its text.
 * Returns: NULL, for the caller to return. */
PyObject *ep_py_raise(ep_status status, const ep_error *error);

/* Our package's directory: code in it is never recorded. */
void ep_py_set_own_directory(const char *directory);

extern PyType_Spec ep_py_recorder_spec, ep_py_trace_spec;
extern PyTypeObject *ep_py_trace_type;

/* What a recorder left out: its limits, and what hooks did not record for filters. */
typedef struct ep_py_left_out {
    bool limits_depth;
    uint32_t max_depth;
    int64_t min_duration_ns;
    uint64_t calls[EP_LEFT_OUT_COUNT];
    size_t functions;    /* whose calls were not recorded, nor counted */
} ep_py_left_out;

/* include, exclude, audit: tuples of str, see filter.h; audit: may be NULL. left_out: NULL for nothing.
 * Returns: new (a Trace that owns *capture now), NULL with an exception and *capture cleared. */
PyObject *ep_py_trace_new(ep_capture *capture, uint32_t only_thread, PyObject *include,
                          PyObject *exclude, PyObject *audit, const ep_py_left_out *left_out);

/* Fails: -1, exception set. */
int ep_py_add_patterns(ep_filter *filter, PyObject *include, PyObject *exclude, PyObject *audit);

/* add_area(area, folders, modules): filter.h's, from tuples of str. */
PyObject *ep_py_add_area(PyObject *module, PyObject *args);

/* What a trace found out, all of it. Views: they live as long as the trace. */
typedef struct ep_py_trace_parts {
    const struct ep_decoded *decoded;
    const struct ep_calls *calls;
    const struct ep_blocks *blocks;
    int64_t start_monotonic_ns;
} ep_py_trace_parts;

/* trace: any object. Fails: -1, exception set. */
int ep_py_trace_get_parts(PyObject *trace, ep_py_trace_parts *parts);

/* By ep_full_reason: what tables and messages call it. */
extern const char *const ep_py_full_reasons[];

/* Text by its string id. Returns: new; None for an unknown text. Surrogates come back as they
 * were. */
PyObject *ep_py_string(uint32_t string);

/* Once, from module init. Fails: -1, exception set. */
int ep_py_recorders_init(void);

/* Around putting hooks in and taking them out: one thread at a time. Returns: false, on a thread that is
 * at it already (an audit hook, a finalizer); then nothing is to be ended. */
bool ep_py_begin_change(void);
void ep_py_end_change(void);

extern PyType_Spec ep_py_counter_spec;

/* Stops every running counter: at interpreter exit. */
void ep_py_counters_stop_all(void);

/* Counters of a forked child begin anew. */
void ep_py_counters_after_fork(void);

/* After a change in whose midst counters were stopped: their hooks go, too. */
void ep_py_counters_settle(void);

/* Stops every running recorder: at interpreter exit. */
void ep_py_recorders_stop_all(void);

/* Whether hooks are going in or out on this thread, at this moment. */
bool ep_py_recorders_change_here(void);

/* Names the calls open in the child, where every log begins empty. */
void ep_py_recorders_after_fork(bool child);
void ep_py_recorders_before_fork(void);

#endif
