#include "monitoring.h"

#include <assert.h>
#include <string.h>

#include "compat.h"
#include "errors.h"

#if EP_HAS_MONITORING

PyObject *
ep_py_monitoring_module(void)
{
    PyObject *module = PySys_GetObject("monitoring");
    if (module == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "sys.monitoring is missing");
    }
    return Py_XNewRef(module);
}

long
ep_py_monitoring_event(PyObject *module, const char *name)
{
    PyObject *namespace = PyObject_GetAttrString(module, "events");
    PyObject *number = namespace != NULL ? PyObject_GetAttrString(namespace, name) : NULL;
    long value = number != NULL ? PyLong_AsLong(number) : -1;
    Py_XDECREF(number);
    Py_XDECREF(namespace);
    return value;
}

/* ---- Tool ids -------------------------------------------------------------------------------- */

/* The name of a tool id's holder. Returns: new (None: free), NULL with an exception. */
static PyObject *
holder_of(PyObject *module, int id)
{
    return PyObject_CallMethod(module, "get_tool", "i", id);
}

/* Whether the id is still ours. Sets no exception. */
static bool
holds(PyObject *module, const ep_py_monitoring_tool *tool)
{
    PyObject *holder = tool->id >= 0 ? holder_of(module, tool->id) : NULL;
    bool ours = holder != NULL && holder == tool->holder;
    Py_XDECREF(holder);
    PyErr_Clear();
    return ours;
}

/* Takes the id if it is free, or already ours (we could not free it when memory was short). Returns:
 * NULL with an exception; None: it is ours now; or a new text that names its holder. */
static PyObject *
try_id(PyObject *module, ep_py_monitoring_tool *tool, int id)
{
    PyObject *holder = holder_of(module, id);
    if (holder == NULL) {
        return NULL;
    }
    PyObject *out;
    if (holder == tool->holder) {
        out = Py_NewRef(Py_None);
    } else if (Py_IsNone(holder)) {
        out = PyObject_CallMethod(module, "use_tool_id", "iO", id, tool->holder);
    } else {
        out = PyUnicode_FromFormat("%d: %S", id, holder);
    }
    Py_DECREF(holder);
    tool->id = out != NULL && Py_IsNone(out) ? id : -1;
    return out;
}

static int
take_free_id(PyObject *module, ep_py_monitoring_tool *tool)
{
    if (tool->holder == NULL && (tool->holder = PyUnicode_FromString(tool->name)) == NULL) {
        return -1;
    }
    /* First the ids that no tool asks for by number: cProfile refuses to start without 2, coverage
     * without 1, debuggers without 0. */
    const int ids[] = {tool->first_id, tool->first_id == 4 ? 3 : 4, 5, 2, 1, 0};
    PyObject *holders = PyList_New(0);
    for (size_t i = 0; holders != NULL && i < sizeof ids / sizeof *ids; i++) {
        PyObject *holder = try_id(module, tool, ids[i]);
        if (holder == NULL || tool->id >= 0 || PyList_Append(holders, holder) < 0) {
            Py_CLEAR(holders);
        }
        Py_XDECREF(holder);
    }
    if (holders != NULL) {
        PyErr_Format(ep_py_error(EP_ERROR_TOOL_IN_USE),
                     "every tool id of sys.monitoring is taken (%S); stop one of these tools%s", holders,
                     tool->remedy);
        Py_DECREF(holders);
    }
    return tool->id >= 0 ? 0 : -1;
}

int
ep_py_monitoring_take(PyObject *module, ep_py_monitoring_tool *tool, bool *anew)
{
    *anew = tool->id < 0;
    if (tool->id >= 0 && !ep_py_monitoring_look(module, tool)) {
        *anew = true;
        if (!holds(module, tool)) {
            ep_py_monitoring_leave(module, tool);
        }
    }
    if (tool->id < 0 && take_free_id(module, tool) < 0) {
        return -1;
    }
    tool->is_changed = false;
    return 0;
}

/* ---- Callbacks ------------------------------------------------------------------------------- */

typedef struct callback_object {
    PyObject_HEAD
    vectorcallfunc vectorcall;
} callback_object;

static PyMemberDef callback_members[] = {
    {"__vectorcalloffset__", Py_T_PYSSIZET, offsetof(callback_object, vectorcall), Py_READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static void
callback_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyType_Slot callback_slots[] = {
    {Py_tp_dealloc, callback_dealloc},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, callback_members},
    {0, NULL},
};

static PyType_Spec callback_spec = {
    .name = "eventprof._core.MonitoringCallback",
    .basicsize = sizeof(callback_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = callback_slots,
};

/* Registers a callback, or None. number: the event's. Returns: new, the one before; NULL with an
 * exception. */
static PyObject *
exchange(PyObject *module, const ep_py_monitoring_tool *tool, PyObject *number, PyObject *callback)
{
    return PyObject_CallMethod(module, "register_callback", "iOO", tool->id, number, callback);
}

/* Registers `next` if `now` is registered; another tool's callback stays. Sets no exception. Returns:
 * whether it is another tool's. If that cannot be asked (an audit hook refuses it): false. */
static bool
exchange_ours(PyObject *module, const ep_py_monitoring_tool *tool, PyObject *number, PyObject *now,
              PyObject *next)
{
    PyObject *before = exchange(module, tool, number, next);
    bool is_foreign = before != NULL && before != now;
    if (is_foreign) {
        Py_XDECREF(exchange(module, tool, number, before));
    }
    Py_XDECREF(before);
    PyErr_Clear();
    return is_foreign;
}

/* The index of an event's entry, made if there is none. Fails: -1. */
static int
entry_of(PyObject *module, ep_py_monitoring_tool *tool, const char *event)
{
    size_t i = 0;
    while (i < tool->entry_count && strcmp(tool->entries[i].event, event) != 0) {
        i++;
    }
    if (i < tool->entry_count) {
        return (int)i;
    }
    long number = ep_py_monitoring_event(module, event);
    PyObject *object = number >= 0 ? PyLong_FromLong(number) : NULL;
    if (object == NULL) {
        return -1;
    }
    assert(i < EP_MONITORING_EVENTS);
    tool->entries[i].event = event;
    tool->entries[i].number = object;
    tool->entries[i].callback = NULL;
    tool->entry_count++;
    return (int)i;
}

static int
set_callback(PyObject *module, ep_py_monitoring_tool *tool, const char *event, PyObject *callback)
{
    int i = entry_of(module, tool, event);
    PyObject *before = i < 0 ? NULL
                             : exchange(module, tool, tool->entries[i].number,
                                        callback != NULL ? callback : Py_None);
    if (before == NULL) {
        return -1;
    }
    Py_DECREF(before);
    tool->entries[i].callback = callback;
    return 0;
}

int
ep_py_monitoring_put(PyObject *module, ep_py_monitoring_tool *tool, const char *event,
                     PyObject **callback, vectorcallfunc function)
{
    static PyTypeObject *type;
    if (type == NULL && (type = (PyTypeObject *)PyType_FromSpec(&callback_spec)) == NULL) {
        return -1;
    }
    if (*callback == NULL && (*callback = (PyObject *)PyObject_New(callback_object, type)) == NULL) {
        return -1;
    }
    ((callback_object *)*callback)->vectorcall = function;
    return set_callback(module, tool, event, *callback);
}

int
ep_py_monitoring_take_out(PyObject *module, ep_py_monitoring_tool *tool, const char *event)
{
    return set_callback(module, tool, event, NULL);
}

/* ---- Events ---------------------------------------------------------------------------------- */

/* Fails: -1. */
static long
events_of(PyObject *module, const ep_py_monitoring_tool *tool)
{
    PyObject *number = PyObject_CallMethod(module, "get_events", "i", tool->id);
    long events = number != NULL ? PyLong_AsLong(number) : -1;
    Py_XDECREF(number);
    return events;
}

int
ep_py_monitoring_ask(PyObject *module, ep_py_monitoring_tool *tool, long mask)
{
    tool->asked = -1;
    PyObject *done = PyObject_CallMethod(module, "set_events", "il", tool->id, mask);
    Py_XDECREF(done);
    /* Asked back: the interpreter reports some events under other names. */
    tool->asked = done != NULL ? events_of(module, tool) : -1;
    return tool->asked >= 0 ? 0 : -1;
}

int
ep_py_monitoring_restart(PyObject *module)
{
    PyObject *done = PyObject_CallMethod(module, "restart_events", NULL);
    Py_XDECREF(done);
    return done != NULL ? 0 : -1;
}

/* ---- What other tools change ----------------------------------------------------------------- */

static bool
is_whole(PyObject *module, const ep_py_monitoring_tool *tool)
{
    if (!holds(module, tool)) {
        return false;
    }
    if (tool->asked < 0) {
        return true;    /* just being changed by us */
    }
    long events = events_of(module, tool);
    PyErr_Clear();
    bool whole = events < 0 || (events & tool->asked) == tool->asked;
    for (size_t i = 0; whole && i < tool->entry_count; i++) {
        PyObject *callback = tool->entries[i].callback;
        whole = callback == NULL ||
                !exchange_ours(module, tool, tool->entries[i].number, callback, callback);
    }
    return whole;
}

bool
ep_py_monitoring_look(PyObject *module, ep_py_monitoring_tool *tool)
{
    bool whole = tool->id < 0 || is_whole(module, tool);
    tool->interruptions += !whole && !tool->is_changed;
    tool->is_changed = !whole;
    return whole;
}

void
ep_py_monitoring_leave(PyObject *module, ep_py_monitoring_tool *tool)
{
    PyObject *holder = holder_of(module, tool->id);
    bool ours = holder == tool->holder;
    if (holder != NULL && Py_IsNone(holder)) {
        /* Another tool freed our id. Up to 3.13 events and callbacks stay then, and an id must be in use
         * to remove them. */
        PyObject *done = PyObject_CallMethod(module, "use_tool_id", "iO", tool->id, tool->holder);
        ours = done != NULL;
        Py_XDECREF(done);
    }
    Py_XDECREF(holder);
    PyErr_Clear();
    /* Step by step whatever fails: no events, no callbacks, no id. */
    if (ours) {
        (void)ep_py_monitoring_ask(module, tool, 0);
        PyErr_Clear();
    }
    for (size_t i = 0; i < tool->entry_count; i++) {
        if (tool->entries[i].callback != NULL) {
            (void)exchange_ours(module, tool, tool->entries[i].number, tool->entries[i].callback, Py_None);
            tool->entries[i].callback = NULL;
        }
    }
    if (ours) {
        Py_XDECREF(PyObject_CallMethod(module, "free_tool_id", "i", tool->id));
        PyErr_Clear();
    }
    tool->id = -1;
    tool->asked = -1;
}

#endif
