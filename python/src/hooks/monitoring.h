/* sys.monitoring (3.12+), for those who put callbacks there: what of it can be asked by name alone.
 * With the GIL or the world stopped; what fails has an exception set, unless something else is said. */
#ifndef EP_PY_MONITORING_H
#define EP_PY_MONITORING_H

#include <Python.h>

#include <stdbool.h>

/* Returns: new. Fails: NULL. */
PyObject *ep_py_monitoring_module(void);

/* The number of an event: it moves from version to version. Fails: -1. */
long ep_py_monitoring_event(PyObject *module, const char *name);

typedef struct ep_py_monitoring_tool {
    const char *name;      /* under which others see it */
    const char *remedy;    /* where no id is free, beside stopping another tool */
    int first_id;          /* of 3 and 4, so that two of ours do not compete */
    int id;                /* -1: none */
} ep_py_monitoring_tool;

/* Fails: -1, ToolInUseError naming the holders. */
int ep_py_monitoring_take(PyObject *module, ep_py_monitoring_tool *tool);

/* Whether the id is still ours. Sets no exception. */
bool ep_py_monitoring_holds(PyObject *module, const ep_py_monitoring_tool *tool);

/* Sets no exception. */
void ep_py_monitoring_free(PyObject *module, ep_py_monitoring_tool *tool);

/* *callback is made the first time, and immortal: without a GIL a thread may still be calling one that
 * was taken out. Fails: -1. */
int ep_py_monitoring_put(PyObject *module, const ep_py_monitoring_tool *tool, const char *event,
                         PyObject **callback, vectorcallfunc function);
int ep_py_monitoring_take_out(PyObject *module, const ep_py_monitoring_tool *tool, const char *event);

/* The events that the interpreter is to report. Fails: -1. */
int ep_py_monitoring_ask(PyObject *module, const ep_py_monitoring_tool *tool, long mask);

/* Places that were switched off come back, those of other tools too. Fails: -1. */
int ep_py_monitoring_restart(PyObject *module);

#endif
