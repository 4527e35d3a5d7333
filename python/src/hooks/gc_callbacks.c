#include "gc_callbacks.h"

#include "errors.h"

int
ep_py_gc_callback_make(ep_py_gc_callback *callback, PyMethodDef *definition, const char *otherwise)
{
    if (callback->function != NULL) {
        return 0;
    }
    PyObject *module = PyImport_ImportModule("gc");
    PyObject *list = module != NULL ? PyObject_GetAttrString(module, "callbacks") : NULL;
    Py_XDECREF(module);
    if (list == NULL) {
        return -1;
    }
    if (!PyList_Check(list)) {
        Py_DECREF(list);
        PyErr_Format(ep_py_error(EP_ERROR_TOOL_IN_USE),
                     "gc.callbacks is not a list: another tool replaced it%s", otherwise);
        return -1;
    }
    PyObject *function = PyCFunction_New(definition, NULL);
    if (function == NULL) {
        Py_DECREF(list);
        return -1;
    }
    callback->list = list;
    callback->function = function;
    return 0;
}

bool
ep_py_gc_callback_is_in(const ep_py_gc_callback *callback)
{
    Py_ssize_t count = callback->function != NULL ? PyList_GET_SIZE(callback->list) : 0;
    for (Py_ssize_t i = 0; i < count && i < PyList_GET_SIZE(callback->list); i++) {
        if (PyList_GET_ITEM(callback->list, i) == callback->function) {
            return true;
        }
    }
    return false;
}

bool
ep_py_gc_callback_is_last(const ep_py_gc_callback *callback)
{
    Py_ssize_t count = PyList_GET_SIZE(callback->list);
    return count > 0 && PyList_GET_ITEM(callback->list, count - 1) == callback->function;
}

int
ep_py_gc_callback_put(const ep_py_gc_callback *callback)
{
    return PyList_Append(callback->list, callback->function);
}

void
ep_py_gc_callback_take_out(const ep_py_gc_callback *callback)
{
    Py_ssize_t count = callback->function != NULL ? PyList_GET_SIZE(callback->list) : 0;
    for (Py_ssize_t at = count - 1; at >= 0; at--) {
        /* The list may have changed: taking an item out runs the program's code. */
        if (at < PyList_GET_SIZE(callback->list) &&
            PyList_GET_ITEM(callback->list, at) == callback->function &&
            PySequence_DelItem(callback->list, at) < 0) {
            PyErr_Clear();
        }
    }
}
