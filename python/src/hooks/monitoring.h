/* The functions of sys.monitoring (3.12+), called by name. The caller holds the GIL, or has stopped all
 * threads. On failure an exception is set, unless a function says otherwise. */
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

/* *callback is made the first time. It is immortal, because without a GIL a thread may still call a
 * callback that was removed. Fails: -1. */
int ep_py_monitoring_put(PyObject *module, const ep_py_monitoring_tool *tool, const char *event,
                         PyObject **callback, vectorcallfunc function);
int ep_py_monitoring_take_out(PyObject *module, const ep_py_monitoring_tool *tool, const char *event);

/* The events that the interpreter is to report. Fails: -1. */
int ep_py_monitoring_ask(PyObject *module, const ep_py_monitoring_tool *tool, long mask);

/* Switches on again all places that were switched off, those of other tools too. Fails: -1. */
int ep_py_monitoring_restart(PyObject *module);

#endif
