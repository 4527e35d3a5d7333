#include "monitoring.h"

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

static bool
is_name_of(const ep_py_monitoring_tool *tool, PyObject *holder)
{
    return PyUnicode_Check(holder) && PyUnicode_CompareWithASCIIString(holder, tool->name) == 0;
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
    if (is_name_of(tool, holder)) {
        out = Py_NewRef(Py_None);
    } else if (Py_IsNone(holder)) {
        out = PyObject_CallMethod(module, "use_tool_id", "is", id, tool->name);
    } else {
        out = PyUnicode_FromFormat("%d: %S", id, holder);
    }
    Py_DECREF(holder);
    tool->id = out != NULL && Py_IsNone(out) ? id : -1;
    return out;
}

int
ep_py_monitoring_take(PyObject *module, ep_py_monitoring_tool *tool)
{
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

bool
ep_py_monitoring_holds(PyObject *module, const ep_py_monitoring_tool *tool)
{
    PyObject *holder = tool->id >= 0 ? holder_of(module, tool->id) : NULL;
    bool ours = holder != NULL && is_name_of(tool, holder);
    Py_XDECREF(holder);
    PyErr_Clear();
    return ours;
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

static int
set_callback(PyObject *module, const ep_py_monitoring_tool *tool, const char *event, PyObject *callback)
{
    long number = ep_py_monitoring_event(module, event);
    if (number < 0) {
        return -1;
    }
    PyObject *old =
        PyObject_CallMethod(module, "register_callback", "ilO", tool->id, number, callback);
    Py_XDECREF(old);
    return old != NULL ? 0 : -1;
}

int
ep_py_monitoring_put(PyObject *module, const ep_py_monitoring_tool *tool, const char *event,
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
ep_py_monitoring_take_out(PyObject *module, const ep_py_monitoring_tool *tool, const char *event)
{
    return set_callback(module, tool, event, Py_None);
}

int
ep_py_monitoring_ask(PyObject *module, const ep_py_monitoring_tool *tool, long mask)
{
    PyObject *done = PyObject_CallMethod(module, "set_events", "il", tool->id, mask);
    Py_XDECREF(done);
    return done != NULL ? 0 : -1;
}

int
ep_py_monitoring_restart(PyObject *module)
{
    PyObject *done = PyObject_CallMethod(module, "restart_events", NULL);
    Py_XDECREF(done);
    return done != NULL ? 0 : -1;
}

void
ep_py_monitoring_free(PyObject *module, ep_py_monitoring_tool *tool)
{
    Py_XDECREF(PyObject_CallMethod(module, "free_tool_id", "i", tool->id));
    PyErr_Clear();
    tool->id = -1;
}

#endif
