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

#define EP_MONITORING_EVENTS 20    /* more than the names that a tool uses */

typedef struct ep_py_monitoring_tool {
    const char *name;      /* under which others see it */
    const char *remedy;    /* where no id is free, beside stopping another tool */
    int first_id;          /* of 3 and 4, so that two of ours do not compete */
    int id;                /* -1: none */
    PyObject *holder;      /* the name as an object: it is not equal to another tool's name, but the same.
                            * Immortal; NULL: not made yet */
    long asked;            /* what get_events() returned after our set_events(); -1: not set yet */
    struct {
        const char *event;
        PyObject *number;      /* the event's, an int; immortal */
        PyObject *callback;    /* that is registered now, immortal; NULL: none */
    } entries[EP_MONITORING_EVENTS];
    size_t entry_count;
    bool is_changed;           /* another tool changed something of ours when we last looked */
    uint64_t interruptions;    /* how often that was seen */
} ep_py_monitoring_tool;

/* Takes an id if there is none, or if another tool changed ours. *anew: then, and the caller has to set
 * events and callbacks, and to call ep_py_monitoring_restart() after that, because the id's former holder
 * may have switched places off. Fails: -1, ToolInUseError naming the holders. */
int ep_py_monitoring_take(PyObject *module, ep_py_monitoring_tool *tool, bool *anew);

/* Whether id, events and callbacks are as we set them. If not, that is counted. Callbacks can only be read
 * by registering others, so this raises audit events. Sets no exception. */
bool ep_py_monitoring_look(PyObject *module, ep_py_monitoring_tool *tool);

/* Removes what is ours: events, callbacks, the id. What another tool put in its place stays. Sets no
 * exception. */
void ep_py_monitoring_leave(PyObject *module, ep_py_monitoring_tool *tool);

/* *callback is made the first time. It is immortal, because without a GIL a thread may still call a
 * callback that was removed. event: immortal. Fails: -1. */
int ep_py_monitoring_put(PyObject *module, ep_py_monitoring_tool *tool, const char *event,
                         PyObject **callback, vectorcallfunc function);
/* The event has no callback after this, not that of the id's former holder either. */
int ep_py_monitoring_take_out(PyObject *module, ep_py_monitoring_tool *tool, const char *event);

/* The events that the interpreter is to report. Fails: -1. */
int ep_py_monitoring_ask(PyObject *module, ep_py_monitoring_tool *tool, long mask);

/* Switches on again all places that were switched off, those of other tools too. Fails: -1. */
int ep_py_monitoring_restart(PyObject *module);

#endif
