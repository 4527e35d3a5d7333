/* _core.Trace between its files: trace.c (events, calls, blocks, functions, threads),
 * trace_summary.c (statistics, memory over time, whose blocks are alive), trace_file.c (archives),
 * trace_log.c (log files) and trace_merge.c. */
#ifndef EP_TRACE_OBJECT_H
#define EP_TRACE_OBJECT_H

#include <Python.h>

#include "archive.h"
#include "decode.h"
#include "errors.h"
#include "file_read.h"
#include "filter_apply.h"
#include "gate.h"
#include "lines.h"
#include "pair.h"
#include "reading.h"
#include "recording.h"
#include "summary.h"
#include "verify.h"

typedef struct ep_py_trace {
    PyObject_HEAD
    PyThread_type_lock lock;          /* of the steps below; taken without the GIL */
    ep_capture capture;               /* given back once decoded; unused if it is of a file */
    ep_file_reader *file;             /* NULL: of a recorder of this process, or loaded */
    ep_file_facts file_facts;         /* of the file it was loaded from */
    uint32_t only_thread;
    ep_archive *archive;              /* where the events are, until they are loaded; or NULL */
    PyObject *path;                   /* of that file, for what the system says of it */
    ep_recording recording;           /* its metadata: NULL; the package has them */
    ep_filter filter;
    bool check_records;               /* when they are decoded: verify() came first */
    ep_record_check record_check;
    bool has_pass;                    /* a fold read the file: what `pass` knows needs no columns */
    ep_pass pass;                     /* its functions: NULL; they are in `functions` */
    bool has_decoded, has_input, has_functions, has_calls, has_blocks, has_summary, has_stacks;
    ep_decoded decoded;
    ep_functions functions;
    ep_open_stack *open;              /* index = thread row; views into decoded */
    int64_t *open_from_ns;            /* index = thread row */
    int64_t *open_until_ns;           /* the same */
    ep_pair_input input;
    ep_calls calls;
    ep_blocks blocks;
    ep_summary summary;
    ep_stacks stacks;
} ep_py_trace;

/* Each includes those before it, but for the last: blocks alone, with the sizes of frees, for what
 * needs neither functions nor calls. HEAD and NAMES are DECODED and FUNCTIONS for those who look at no
 * columns: a pass of a fold over the file is enough. */
typedef enum ep_py_step {
    EP_STEP_HEAD,
    EP_STEP_NAMES,
    EP_STEP_DECODED,
    EP_STEP_FUNCTIONS,
    EP_STEP_CALLS,
    EP_STEP_BLOCKS,
    EP_STEP_BLOCKS_ALONE
} ep_py_step;

/* Computes what is missing for a step, without the GIL and one thread at a time. `pairs`: columns
 * of calls or blocks (pair.h) to be filled at EP_STEP_CALLS or behind it; 0: none. Fails: -1,
 * exception set. */
int ep_py_trace_reach(ep_py_trace *self, ep_py_step wanted, unsigned pairs);

/* After EP_STEP_HEAD: threads, resident set, duration. Its columns may be empty. Returns: view, until the
 * next step; arrays in it live as long as the trace. */
static inline const ep_decoded *
ep_py_trace_head(const ep_py_trace *self)
{
    return self->has_decoded || !self->has_pass ? &self->decoded
           : self->archive != NULL              ? ep_archive_head(self->archive)
                                                : &self->pass.head;
}

/* As ep_py_raise(); what the system refused becomes OSError(cause, its text, path). path: may be
 * NULL. */
PyObject *ep_py_raise_io(ep_status status, const ep_error *error, int cause, PyObject *path);
/* steals archive. Returns: new, a Trace that loads its events from there. */
PyObject *ep_py_trace_of_archive(ep_archive *archive, const ep_recording *recording, PyObject *path);

extern PyType_Spec ep_py_trace_spec;
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

/* What a trace found out, all of it. Views: they live as long as the trace. */
typedef struct ep_py_trace_parts {
    const struct ep_decoded *decoded;
    const struct ep_calls *calls;
    const struct ep_blocks *blocks;
    int64_t start_monotonic_ns;
} ep_py_trace_parts;

/* trace: any object. Fails: -1, exception set. */
int ep_py_trace_get_parts(PyObject *trace, ep_py_trace_parts *parts);

/* What tables and messages call it; NULL: there is nothing to call. */
const char *ep_py_full_reason(ep_full_reason reason, uint32_t limits);

/* trace_file.c */
PyObject *ep_py_open_archive(PyObject *module, PyObject *args);
PyObject *ep_py_trace_save(PyObject *self, PyObject *args);

/* Says on standard error how far a long step is: after two seconds, on a terminal only. */
typedef struct ep_py_telling {
    ep_progress progress;    /* to hand to the core; refers to this struct */
    const char *what;
    int64_t began_ns;
    bool shown;
} ep_py_telling;

void ep_py_telling_begin(ep_py_telling *telling, const char *what);
void ep_py_telling_end(ep_py_telling *telling);

/* trace_made.c */
PyObject *ep_py_make_trace(PyObject *module, PyObject *args);

/* trace_log.c, trace_merge.c */
PyObject *ep_py_open_log(PyObject *module, PyObject *args);
PyObject *ep_py_trace_file_facts(PyObject *self, PyObject *unused);
PyObject *ep_py_merge(PyObject *module, PyObject *list);
ep_status ep_py_trace_load(ep_py_trace *self, ep_error *error);

/* trace_verify.c */
PyObject *ep_py_trace_verify(PyObject *self, PyObject *args);
PyObject *ep_py_finding_table(PyObject *module, PyObject *unused);

/* A trace that is to be filled. Returns: new, NULL with an exception. */
ep_py_trace *ep_py_trace_alloc(void);

/* trace_summary.c; each takes care of its own steps. */
PyObject *ep_py_trace_function_stats(PyObject *self, PyObject *unused);
PyObject *ep_py_trace_call_memory(PyObject *self, PyObject *below);
PyObject *ep_py_trace_curve(PyObject *self, PyObject *domains);
PyObject *ep_py_trace_bins(PyObject *self, PyObject *args);
PyObject *ep_py_trace_peak(PyObject *self, PyObject *domains);
PyObject *ep_py_trace_moment(PyObject *self, PyObject *time);
PyObject *ep_py_trace_alive(PyObject *self, PyObject *args);
PyObject *ep_py_trace_temporary(PyObject *self, PyObject *args);
PyObject *ep_py_trace_stacks(PyObject *self, PyObject *unused);
PyObject *ep_py_trace_sites(PyObject *self, PyObject *unused);
PyObject *ep_py_trace_lines(PyObject *self, PyObject *unused);

/* trace_fold.c */
PyObject *ep_py_trace_tree(PyObject *self, PyObject *args);
PyObject *ep_py_trace_tenures(PyObject *self, PyObject *unused);
PyObject *ep_py_trace_lost(PyObject *self, PyObject *unused);

#define EP_PY_SUMMARY_METHODS                                          \
    {"function_stats", ep_py_trace_function_stats, METH_NOARGS, NULL}, \
        {"call_memory", ep_py_trace_call_memory, METH_O, NULL},        \
        {"curve", ep_py_trace_curve, METH_O, NULL},                    \
        {"bins", ep_py_trace_bins, METH_VARARGS, NULL},                \
        {"peak", ep_py_trace_peak, METH_O, NULL},                      \
        {"moment", ep_py_trace_moment, METH_O, NULL},                  \
        {"alive", ep_py_trace_alive, METH_VARARGS, NULL},              \
        {"temporary", ep_py_trace_temporary, METH_VARARGS, NULL},      \
        {"stacks", ep_py_trace_stacks, METH_NOARGS, NULL},             \
        {"lines", ep_py_trace_lines, METH_NOARGS, NULL},               \
    {                                                                  \
        "sites", ep_py_trace_sites, METH_NOARGS, NULL                  \
    }

#endif
