/* Events that the program makes itself (marks, spans, counters, flows): from Python, and from
 * extensions. */
#ifndef EP_MARKS_H
#define EP_MARKS_H

#include <Python.h>

#include "log.h"

PyObject *ep_py_mark(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *ep_py_counter(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *ep_py_flow(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *ep_py_span(PyObject *module, PyObject *const *args, Py_ssize_t count);
/* wrapped_span(name, apart): a span for the context managers of our package, which enter and leave the span
 * in frames of their own. apart: the span may end in another function, task or thread, and is not in the
 * tree. */
PyObject *ep_py_wrapped_span(PyObject *module, PyObject *const *args, Py_ssize_t count);

extern const char ep_py_mark_doc[], ep_py_counter_doc[], ep_py_flow_doc[], ep_py_span_doc[];

/* For a span or a label that is used as a decorator: gives a function that calls the decorated one within
 * the span or label. form: for PyArg_Parse*, one object. Returns: new; NULL with an exception. */
PyObject *ep_py_decorate(PyObject *object, PyObject *args, PyObject *keywords, const char *form);

/* The id of a name of the program's, a str. Never fails; an exception is left as it is. */
uint32_t ep_py_mark_name(ep_log *log, PyObject *text);

/* Once, from module init: the type of spans, and eventprof.h's capsule. Fails: -1, exception set. */
int ep_py_marks_init(PyObject *module);

#endif
