/* Methods whose bound objects are used again.
 *
 * `with` binds __enter__ and __exit__ before it calls them. Up to 3.13 that makes two builtin method
 * objects, which the collector tracks: 40 of the 50 ns an event that an empty `with` of an object from C
 * takes. From 3.14 on it makes none; without a GIL, a list of free ones would need a lock. */
#ifndef EP_BOUND_H
#define EP_BOUND_H

#include "compat.h"

/* The signature of a METH_FASTCALL function. */
typedef PyObject *(*ep_bound_call)(PyObject *self, PyObject *const *args, Py_ssize_t count);

/* Makes an instance bind its method `name` cheaply; the attribute of the class stays the method itself.
 * `type` is a type in C. Once, before the type is used. Does nothing on versions where it saves nothing.
 * Fails: -1, exception set. */
int ep_py_bind_cheaply(PyTypeObject *type, const char *name, ep_bound_call call);

#endif
