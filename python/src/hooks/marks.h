/* What a program says of itself: its functions in eventprof, and the same for extensions. */
#ifndef EP_MARKS_H
#define EP_MARKS_H

#include <Python.h>

PyObject *ep_py_mark(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *ep_py_counter(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *ep_py_flow(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *ep_py_span(PyObject *module, PyObject *const *args, Py_ssize_t count);

extern const char ep_py_mark_doc[], ep_py_counter_doc[], ep_py_flow_doc[], ep_py_span_doc[];

/* Once, from module init: the type of spans, and eventprof.h's capsule. Fails: -1, exception set. */
int ep_py_marks_init(PyObject *module);

#endif
