/* Labels of what the program does: eventprof.label(request_id=7). */
#ifndef EP_LABELS_H
#define EP_LABELS_H

#include "compat.h"

#include "intern.h"
#include "log.h"

PyObject *ep_py_label(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);

/* records_labels(): whether a recorder wants labels; if not, middleware has nothing to do. */
PyObject *ep_py_records_labels(PyObject *module, PyObject *unused);

extern const char ep_py_label_doc[];

/* Once, from module init. Fails: -1, exception set. */
int ep_py_labels_init(void);

/* recorded: a recorder wants labels. */
void ep_py_labels_adjust(bool recorded);

/* A window begins, or the process was forked: labels that hold now are not in its log yet. */
void ep_py_labels_begin(void);

EP_COLD void ep_py_labels_see_slow(ep_log *log, uint64_t ticks);

/* Call it in a hook of the interpreter, before the record of a call that begins at `ticks`: writes the
 * thread's labels if they have changed. With the GIL, and after the blocks of the hook mechanism were taken
 * back. */
static inline void
ep_py_labels_see(ep_log *log, uint64_t ticks)
{
    if (EP_UNLIKELY(ep_py_todo(log) & (EP_TODO_LABELS | EP_TODO_LABELS_ANEW))) {
        ep_py_labels_see_slow(log, ticks);
    }
}

/* Whether the thread's labels are those that were written last. */
static inline bool
ep_py_labels_same(const ep_log *log, const PyThreadState *ts)
{
    return log->label_version == ts->context_ver && log->label_chunk == log->chunk;
}

#endif
