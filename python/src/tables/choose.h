/* Which calls filters choose. `parent`: int32, the call around each call, which comes before it; -1:
 * none. */
#ifndef EP_CHOOSE_H
#define EP_CHOOSE_H

#include <Python.h>

/* mark_inner_calls(parent, marks): marks (bytes, changed) of the calls inside of marked ones, too. */
PyObject *ep_py_mark_inner_calls(PyObject *module, PyObject *args);

/* number_marked_calls(parent, marks) -> int32: marked calls are numbered in their order; any other call has
 * the number of the nearest marked one around it, -1: there is none. */
PyObject *ep_py_number_marked_calls(PyObject *module, PyObject *args);

/* depths_of_calls(parent) -> int32: how many calls are around each. */
PyObject *ep_py_depths_of_calls(PyObject *module, PyObject *args);

#endif
