/* What recorders and counters have in common: start(), stop(), `with`, _begin() and the finalizer. */
#ifndef EP_STARTABLE_H
#define EP_STARTABLE_H

#include <Python.h>
#include <structmember.h>

#include "types.h"

typedef struct ep_py_startable ep_py_startable;

/* What differs between the two. `start` and `stop` run within the change (change.h). */
typedef struct ep_py_startable_functions {
    const char *noun;                        /* for messages */
    bool (*runs)(const ep_py_startable *self);
    int (*start)(ep_py_startable *self);     /* it does not run. Fails: -1, exception set */
    void (*stop)(ep_py_startable *self);     /* no-op unless it runs. Whatever happens, the interpreter's
                                              * hooks are restored */
    int (*warn)(ep_py_startable *self);      /* after a stop that the user asked for. Fails: -1, exception
                                              * set. NULL: there is nothing to warn of */
} ep_py_startable_functions;

/* The head of both objects. */
struct ep_py_startable {
    PyObject_HEAD
    const ep_py_startable_functions *functions;
    unsigned long long windows;              /* begun so far: shows the package that a result is of an
                                              * earlier window */
    PyObject *weak_references;
};

/* Ends the window of one that runs. Never fails. */
void ep_py_startable_stop(ep_py_startable *self);

/* Stops one that is dropped while it runs, with a ResourceWarning. */
void ep_py_startable_finalize(PyObject *self);

/* Methods. */
PyObject *ep_py_startable_method_start(PyObject *self, PyObject *unused);
PyObject *ep_py_startable_method_stop(PyObject *self, PyObject *unused);
PyObject *ep_py_startable_method_begin(PyObject *self, PyObject *unused);
PyObject *ep_py_startable_method_enter(PyObject *self, PyObject *unused);
PyObject *ep_py_startable_method_exit(PyObject *self, PyObject *const *args, Py_ssize_t count);

/* The rows of these methods but start and stop, whose documentation differs. */
/* clang-format off */
#define EP_PY_STARTABLE_METHODS                                                                  \
    {"__enter__", ep_py_startable_method_enter, METH_NOARGS, NULL},                              \
    {"__exit__", (PyCFunction)(void (*)(void))ep_py_startable_method_exit, METH_FASTCALL, NULL}, \
    {"_begin", ep_py_startable_method_begin, METH_NOARGS, NULL}
/* clang-format on */

extern EP_HIDDEN PyMemberDef ep_py_startable_members[];

#endif
