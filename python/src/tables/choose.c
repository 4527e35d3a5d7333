/* Which calls filters choose: passes over the calls around each call, in the order of calls. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "array.h"
#include "arrays.h"
#include "choose.h"

/* The calls around calls, and a mark of each call. */
typedef struct forest {
    Py_buffer parent, marks;
    size_t count;
} forest;

/* Fails: false, exception set; there is nothing to release. */
static bool
take_forest(PyObject *args, const char *format, forest *out)
{
    out->marks = (Py_buffer){0};
    if (!PyArg_ParseTuple(args, format, &out->parent, &out->marks)) {
        return false;
    }
    out->count = (size_t)out->parent.len / sizeof(int32_t);
    if ((size_t)out->parent.len % sizeof(int32_t) == 0 && out->count <= INT32_MAX &&
        (out->marks.obj == NULL || (size_t)out->marks.len == out->count)) {
        return true;
    }
    PyErr_SetString(PyExc_ValueError, "parents are int32, and marks a byte for each");
    PyBuffer_Release(&out->parent);
    PyBuffer_Release(&out->marks);
    return false;
}

/* steals object. Returns: it; NULL, exception set, unless all parents came before their calls. */
static PyObject *
end_of_pass(forest *f, bool in_order, PyObject *object)
{
    PyBuffer_Release(&f->parent);
    PyBuffer_Release(&f->marks);
    if (!in_order) {
        Py_CLEAR(object);
        PyErr_SetString(PyExc_ValueError, "a call stands before the call around it");
    }
    return object;
}

/* Of the next row. Returns: the call around it, which was seen before; -1: there is none. */
static inline int32_t
call_around(const forest *f, size_t row, bool *in_order)
{
    ep_column_row(row);
    int32_t around = ((const int32_t *)f->parent.buf)[row];
    *in_order = *in_order && (around < 0 || (size_t)around < row);
    return *in_order ? around : -1;
}

PyObject *
ep_py_mark_inner_calls(PyObject *module, PyObject *args)
{
    (void)module;
    forest f;
    if (!take_forest(args, "y*w*:mark_inner_calls", &f)) {
        return NULL;
    }
    uint8_t *marks = f.marks.buf;
    bool in_order = true;
    Py_BEGIN_ALLOW_THREADS
    for (size_t row = 0; row < f.count; row++) {
        int32_t around = call_around(&f, row, &in_order);
        marks[row] |= around >= 0 ? marks[around] : 0;
    }
    Py_END_ALLOW_THREADS
    return end_of_pass(&f, in_order, Py_NewRef(Py_None));
}

PyObject *
ep_py_number_marked_calls(PyObject *module, PyObject *args)
{
    (void)module;
    forest f;
    void *data;
    if (!take_forest(args, "y*y*:number_marked_calls", &f)) {
        return NULL;
    }
    PyObject *array = ep_py_array(f.count, EP_TYPE_INT32, &data);
    const uint8_t *marks = f.marks.buf;
    int32_t *numbers = data, next = 0;
    bool in_order = true;
    if (array != NULL) {
        Py_BEGIN_ALLOW_THREADS
        for (size_t row = 0; row < f.count; row++) {
            int32_t around = call_around(&f, row, &in_order);
            numbers[row] = marks[row] ? next++ : around >= 0 ? numbers[around]
                                                             : -1;
        }
        Py_END_ALLOW_THREADS
    }
    return end_of_pass(&f, in_order, array);
}

PyObject *
ep_py_depths_of_calls(PyObject *module, PyObject *args)
{
    (void)module;
    forest f;
    void *data;
    if (!take_forest(args, "y*:depths_of_calls", &f)) {
        return NULL;
    }
    PyObject *array = ep_py_array(f.count, EP_TYPE_INT32, &data);
    int32_t *depths = data;
    bool in_order = true;
    if (array != NULL) {
        Py_BEGIN_ALLOW_THREADS
        for (size_t row = 0; row < f.count; row++) {
            int32_t around = call_around(&f, row, &in_order);
            depths[row] = around >= 0 ? depths[around] + 1 : 0;
        }
        Py_END_ALLOW_THREADS
    }
    return end_of_pass(&f, in_order, array);
}
