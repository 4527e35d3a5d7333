/* _core.Trace, a trace of the core (trace.h) as an object, between its files: trace.c (columns, functions,
 * threads, facts), trace_summary.c (statistics, memory over time, whose blocks are alive), trace_fold.c,
 * trace_file.c (archives), trace_log.c (log files), trace_made.c, trace_merge.c, trace_rows.c, trace_trim.c
 * and trace_verify.c. */
#ifndef EP_TRACE_OBJECT_H
#define EP_TRACE_OBJECT_H

#include <Python.h>

#include "columns.h"
#include "errors.h"
#include "gate.h"
#include "trace.h"

typedef struct ep_py_trace ep_py_trace;

struct ep_py_trace {
    PyObject_HEAD
    PyThread_type_lock lock;    /* of the trace; taken without the GIL */
    /* Of a merged trace until its events are read: its parts, owned, each once, in order of address. */
    ep_py_trace **parts;
    size_t part_count;
    PyObject *path;             /* of its file, for messages of the system; NULL: it has none */
    ep_trace trace;             /* the package handles the metadata of its recording */
};

/* What a trace owned, for ep_py_parts_drop(). */
typedef struct ep_py_parts {
    ep_py_trace **parts;
    size_t count;
} ep_py_parts;

/* trace_merge.c: take the locks of a trace and of its parts, without the GIL. Unlocking gives the parts, if
 * they are needed no more. */
void ep_py_trace_lock(ep_py_trace *self);
ep_py_parts ep_py_trace_unlock(ep_py_trace *self);
void ep_py_parts_drop(ep_py_parts gone);    /* with the GIL */

/* Runs a piece of the core's work on a trace, without the GIL and one thread at a time. */
#define EP_PY_WITHOUT_GIL(self, work)     \
    do {                                  \
        ep_py_parts gone_;                \
        Py_BEGIN_ALLOW_THREADS            \
        ep_py_trace_lock(self);           \
        work;                             \
        gone_ = ep_py_trace_unlock(self); \
        Py_END_ALLOW_THREADS              \
        ep_py_parts_drop(gone_);          \
    } while (0)

/* trace_rows.c: reads the recording once, if nothing did: then its facts, threads and functions are known.
 * Fails: -1, exception set. */
int ep_py_survey(ep_py_trace *self);

/* Computes what is missing for a step, without the GIL. Fails: -1, exception set. */
int ep_py_trace_reach(ep_py_trace *self, ep_step step);

/* As ep_py_raise(); what the system refused becomes OSError(error->os_error, its text, path). path: may be
 * NULL. */
PyObject *ep_py_raise_io(ep_status status, const ep_error *error, PyObject *path);

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

/* trace: any object. Returns: view, as long as that lives, with calls and blocks. Fails: NULL, exception
 * set. */
const ep_trace *ep_py_trace_paired(PyObject *trace);

/* trace.c */
/* [(name, native_id, first_ns, last_ns, recorded by kind, lost by kind)] */
PyObject *ep_py_thread_rows(const ep_decoded *head);
PyObject *ep_py_column_table(PyObject *module, PyObject *unused);

/* trace_file.c */
PyObject *ep_py_open_archive(PyObject *module, PyObject *args);
PyObject *ep_py_trace_save(PyObject *self, PyObject *args);
PyObject *ep_py_trace_set_processes(PyObject *self, PyObject *threads);

/* trace_made.c */
PyObject *ep_py_make_trace(PyObject *module, PyObject *args);
/* functions: a list of rows as functions() has them. Returns: new (PyMem_Free), a name id for each. Fails:
 * NULL, exception set. */
uint32_t *ep_py_make_names(PyObject *functions);
/* name: bytes or None. Fails: false, exception set. */
bool ep_py_thread_named(PyObject *name, ep_thread *who);

/* trace_trim.c */
PyObject *ep_py_trace_trim(PyObject *self, PyObject *args);
PyObject *ep_py_trace_label_values(PyObject *self, PyObject *unused);
PyObject *ep_py_trace_tasks(PyObject *self, PyObject *unused);
PyObject *ep_py_trace_replace_texts(PyObject *self, PyObject *args);

/* trace_log.c, trace_merge.c */
PyObject *ep_py_open_log(PyObject *module, PyObject *args);
PyObject *ep_py_trace_probe(PyObject *self, PyObject *unused);
PyObject *ep_py_trace_file_facts(PyObject *self, PyObject *unused);
PyObject *ep_py_merge(PyObject *module, PyObject *list);
/* Returns: new; None if it is empty. */
PyObject *ep_py_worker_text(const char *worker);

/* trace_verify.c */
PyObject *ep_py_trace_verify(PyObject *self, PyObject *args);
PyObject *ep_py_fault_table(PyObject *module, PyObject *unused);

/* Makes a _core.Trace of a trace of the core. steals *trace, also on failure. path: of the file that it is
 * of; may be NULL. Returns: new, NULL with an exception. */
ep_py_trace *ep_py_trace_of(ep_trace *trace, PyObject *path);

/* trace_summary.c; each takes care of its own steps. */
PyObject *ep_py_trace_curve(PyObject *self, PyObject *domains);
PyObject *ep_py_trace_bins(PyObject *self, PyObject *args);
PyObject *ep_py_trace_peak(PyObject *self, PyObject *domains);
PyObject *ep_py_trace_moment(PyObject *self, PyObject *time);
PyObject *ep_py_trace_alive(PyObject *self, PyObject *args);
PyObject *ep_py_trace_temporary(PyObject *self, PyObject *args);
PyObject *ep_py_trace_stacks(PyObject *self, PyObject *unused);
PyObject *ep_py_trace_sites(PyObject *self, PyObject *unused);

/* trace_fold.c */
PyObject *ep_py_trace_tree(PyObject *self, PyObject *args);
PyObject *ep_py_trace_has_columns(PyObject *self, PyObject *unused);
PyObject *ep_py_trace_rows(PyObject *object, PyObject *args);
PyObject *ep_py_trace_survey(PyObject *object, PyObject *unused);
PyObject *ep_py_trace_glance(PyObject *object, PyObject *unused);
PyObject *ep_py_trace_file_damage(PyObject *object, PyObject *unused);
PyObject *ep_py_trace_tenures(PyObject *self, PyObject *unused);
PyObject *ep_py_trace_picked(PyObject *self, PyObject *args);
PyObject *ep_py_trace_lost(PyObject *self, PyObject *unused);

#define EP_PY_SUMMARY_METHODS                                     \
    {"curve", ep_py_trace_curve, METH_O, NULL},                   \
        {"bins", ep_py_trace_bins, METH_VARARGS, NULL},           \
        {"peak", ep_py_trace_peak, METH_O, NULL},                 \
        {"moment", ep_py_trace_moment, METH_O, NULL},             \
        {"alive", ep_py_trace_alive, METH_VARARGS, NULL},         \
        {"temporary", ep_py_trace_temporary, METH_VARARGS, NULL}, \
        {"stacks", ep_py_trace_stacks, METH_NOARGS, NULL},        \
    {                                                             \
        "sites", ep_py_trace_sites, METH_NOARGS, NULL             \
    }

#endif
