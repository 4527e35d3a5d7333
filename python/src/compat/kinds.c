/* Converts sets of kinds from and to Python ints, half by half. */
#include "kinds.h"

PyObject *
ep_py_kinds(ep_kind_set kinds)
{
    PyObject *low = PyLong_FromUnsignedLongLong((uint64_t)kinds);
    uint64_t rest = (uint64_t)(kinds >> 64);
    if (low == NULL || rest == 0) {
        return low;
    }
    PyObject *high = PyLong_FromUnsignedLongLong(rest), *by = PyLong_FromLong(64);
    PyObject *shifted = high != NULL && by != NULL ? PyNumber_Lshift(high, by) : NULL;
    PyObject *result = shifted != NULL ? PyNumber_Or(shifted, low) : NULL;
    Py_XDECREF(shifted);
    Py_XDECREF(by);
    Py_XDECREF(high);
    Py_DECREF(low);
    return result;
}

int
ep_py_kinds_from(PyObject *number, void *to)
{
    uint64_t low = PyLong_AsUnsignedLongLongMask(number);
    PyObject *by = PyErr_Occurred() ? NULL : PyLong_FromLong(64);
    PyObject *shifted = by != NULL ? PyNumber_Rshift(number, by) : NULL;
    uint64_t high = shifted != NULL ? PyLong_AsUnsignedLongLongMask(shifted) : 0;
    Py_XDECREF(by);
    Py_XDECREF(shifted);
    if (PyErr_Occurred()) {
        return 0;
    }
    *(ep_kind_set *)to = (ep_kind_set)high << 64 | low;
    return 1;
}
