/* What a program says of itself: its functions in eventprof, and the same for extensions. */
#ifndef EP_MARKS_H
#define EP_MARKS_H

#include <Python.h>

#include "log.h"

PyObject *ep_py_mark(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *ep_py_counter(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *ep_py_flow(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *ep_py_span(PyObject *module, PyObject *const *args, Py_ssize_t count);
/* wrapped_span(name, apart): for the context managers of our package, which enter and leave it in frames of
 * their own. apart: it may end in another function, task or thread, and is in no tree. */
PyObject *ep_py_wrapped_span(PyObject *module, PyObject *const *args, Py_ssize_t count);

extern const char ep_py_mark_doc[], ep_py_counter_doc[], ep_py_flow_doc[], ep_py_span_doc[];

/* What a span or a label gives when it is called with a function: a function around that one. form: for
 * PyArg_Parse*, one object. Returns: new; NULL with an exception. */
PyObject *ep_py_decorate(PyObject *object, PyObject *args, PyObject *keywords, const char *form);

/* The id of a name of the program's, a str. Never fails; an exception is left as it is. */
uint32_t ep_py_mark_name(ep_log *log, PyObject *text);

/* Once, from module init: the type of spans, and eventprof.h's capsule. Fails: -1, exception set. */
int ep_py_marks_init(PyObject *module);

#endif
