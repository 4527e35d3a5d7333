/* sys.monitoring, for those who put callbacks there. */
#ifndef EP_PY_MONITORING_H
#define EP_PY_MONITORING_H

#include <Python.h>

/* Returns: new. Fails: NULL, exception set. */
static inline PyObject *
ep_py_monitoring_module(void)
{
    PyObject *module = PySys_GetObject("monitoring");
    if (module == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "sys.monitoring is missing");
    }
    return Py_XNewRef(module);
}

/* The number of an event: it moves from version to version. Fails: -1, exception set. */
static inline long
ep_py_monitoring_event(PyObject *module, const char *name)
{
    PyObject *namespace = PyObject_GetAttrString(module, "events");
    PyObject *number = namespace != NULL ? PyObject_GetAttrString(namespace, name) : NULL;
    long value = number != NULL ? PyLong_AsLong(number) : -1;
    Py_XDECREF(number);
    Py_XDECREF(namespace);
    return value;
}

#endif
