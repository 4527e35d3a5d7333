/* The NumPy half of the extension. */
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include "arrays.h"

#include <numpy/arrayobject.h>

#include "array.h"

static const int numbers[] = {
    [EP_TYPE_INT8] = NPY_INT8,
    [EP_TYPE_UINT8] = NPY_UINT8,
    [EP_TYPE_INT32] = NPY_INT32,
    [EP_TYPE_UINT32] = NPY_UINT32,
    [EP_TYPE_INT64] = NPY_INT64,
    [EP_TYPE_UINT64] = NPY_UINT64,
    [EP_TYPE_FLOAT64] = NPY_FLOAT64,
};

/* NumPy is loaded for the first array, not at import: a program that the command line records may not need
 * it, and loading it takes ten times as long as loading the extension. */
static int
load_numpy(void)
{
    if (PyArray_API == NULL) {
        import_array1(-1);
    }
    return 0;
}

PyObject *
ep_py_view(PyObject *owner, const void *data, size_t count, ep_type type)
{
    if (load_numpy() < 0) {
        return NULL;
    }
    npy_intp shape[] = {(npy_intp)count};
    if (count == 0) {
        return PyArray_SimpleNew(1, shape, numbers[type]);    /* data may be NULL */
    }
    PyObject *array = PyArray_SimpleNewFromData(1, shape, numbers[type], (void *)data);
    if (array == NULL) {
        return NULL;
    }
    PyArray_CLEARFLAGS((PyArrayObject *)array, NPY_ARRAY_WRITEABLE);
    if (PyArray_SetBaseObject((PyArrayObject *)array, Py_NewRef(owner)) < 0) {
        Py_DECREF(array);
        return NULL;
    }
    return array;
}

static void
free_memory(PyObject *capsule)
{
    ep_free(PyCapsule_GetPointer(capsule, NULL));
}

/* `data` becomes the array's. Returns: new. Fails: NULL, data freed. */
static PyObject *
owning_array(void *data, size_t count, ep_type type)
{
    npy_intp shape[] = {(npy_intp)count};
    PyObject *owner = PyCapsule_New(data, NULL, free_memory);
    if (owner == NULL) {
        free(data);
        return NULL;
    }
    PyObject *array = PyArray_SimpleNewFromData(1, shape, numbers[type], data);
    if (array == NULL) {
        Py_DECREF(owner);
        return NULL;
    }
    if (PyArray_SetBaseObject((PyArrayObject *)array, owner) < 0) {    /* steals owner */
        Py_DECREF(array);
        return NULL;
    }
    return array;
}

PyObject *
ep_py_array(size_t count, ep_type type, void **data)
{
    size_t bytes = ep_type_bytes(type);
    if (load_numpy() < 0) {
        return NULL;
    }
    npy_intp shape[] = {(npy_intp)count};
    /* NumPy asks for huge pages only from 4 MiB on, and does not align its arrays to them. */
    if (count * bytes >= EP_ARRAY_ALIGN_FROM) {
        *data = ep_array_new(count, bytes);
        return *data != NULL ? owning_array(*data, count, type) : PyErr_NoMemory();
    }
    PyObject *array = PyArray_SimpleNew(1, shape, numbers[type]);
    if (array != NULL) {
        *data = PyArray_DATA((PyArrayObject *)array);
    }
    return array;
}

PyObject *
ep_py_constant(size_t count, ep_type type, int8_t value)
{
    void *data;
    PyObject *one = ep_py_array(1, type, &data);
    if (one == NULL) {
        return NULL;
    }
    PyObject *number = PyLong_FromLong(value);
    int status = number != NULL ? PyArray_SETITEM((PyArrayObject *)one, data, number) : -1;
    Py_XDECREF(number);
    npy_intp shape[] = {(npy_intp)count}, strides[] = {0};
    PyObject *array =
        status < 0 ? NULL
                   : PyArray_New(&PyArray_Type, 1, shape, numbers[type], strides, data, 0, 0, NULL);
    if (array == NULL || PyArray_SetBaseObject((PyArrayObject *)array, Py_NewRef(one)) < 0) {
        Py_CLEAR(array);
    }
    Py_DECREF(one);
    return array;
}

/* from[last] stands for -1 and for what is outside of the table. */
#define GATHER(type, index_type)                            \
    do {                                                    \
        const type *from = PyArray_DATA(table);             \
        const index_type *index = PyArray_DATA(indices);    \
        type *to = PyArray_DATA(result);                    \
        for (npy_intp i = 0; i < count; i++) {              \
            npy_int32 at = index[i];                        \
            valid = valid && at >= -1 && at < last;         \
            to[i] = from[at < 0 || at >= last ? last : at]; \
        }                                                   \
    } while (0)

#define GATHER_BY(index_type)              \
    do {                                   \
        if (type == NPY_INT8) {            \
            GATHER(npy_int8, index_type);  \
        } else if (type == NPY_INT16) {    \
            GATHER(npy_int16, index_type); \
        } else if (type == NPY_INT32) {    \
            GATHER(npy_int32, index_type); \
        } else {                           \
            GATHER(npy_int64, index_type); \
        }                                  \
    } while (0)

PyObject *
ep_py_gather(PyObject *module, PyObject *args)
{
    (void)module;
    PyArrayObject *table, *indices;
    if (load_numpy() < 0) {
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "O!O!:gather", &PyArray_Type, &table, &PyArray_Type, &indices)) {
        return NULL;
    }
    int type = PyArray_TYPE(table), index_type = PyArray_TYPE(indices);
    if (PyArray_NDIM(table) != 1 || PyArray_NDIM(indices) != 1 || PyArray_SIZE(table) < 1 ||
        !PyArray_IS_C_CONTIGUOUS(table) || !PyArray_IS_C_CONTIGUOUS(indices) ||
        (index_type != NPY_INT32 && index_type != NPY_UINT8) ||
        (type != NPY_INT8 && type != NPY_INT16 && type != NPY_INT32 && type != NPY_INT64)) {
        PyErr_SetString(PyExc_TypeError,
                        "gather() takes a contiguous table of signed integers that is not empty, and "
                        "contiguous int32 or uint8 indices");
        return NULL;
    }
    npy_intp count = PyArray_SIZE(indices);
    npy_int32 last = (npy_int32)PyArray_SIZE(table) - 1;
    PyArrayObject *result = (PyArrayObject *)PyArray_SimpleNew(1, &count, type);
    if (result == NULL) {
        return NULL;
    }
    bool valid = true;
    Py_BEGIN_ALLOW_THREADS
    if (index_type == NPY_INT32) {
        GATHER_BY(npy_int32);
    } else {
        GATHER_BY(npy_uint8);
    }
    Py_END_ALLOW_THREADS
    if (!valid) {
        Py_DECREF(result);
        PyErr_SetString(PyExc_IndexError, "gather(): an index is outside of the table");
        return NULL;
    }
    return (PyObject *)result;
}

/* ---- Several tables at once ------------------------------------------------------------------ */

#define SPREAD_TABLES_MAX 8
#define SPREAD_ROWS 1024    /* at a time: their indices stay in the first cache */

typedef struct spread_table {
    const void *from;
    void *to;
    npy_intp size;
    int type;
} spread_table;

#define SPREAD(ctype)                           \
    do {                                        \
        const ctype *from = table->from;        \
        ctype *to = (ctype *)table->to + first; \
        for (npy_intp i = 0; i < count; i++) {  \
            to[i] = from[index[i]];             \
        }                                       \
    } while (0)

static void
spread_rows(const spread_table *table, const uint32_t *index, npy_intp first, npy_intp count)
{
    if (table->type == NPY_INT8) {
        SPREAD(npy_int8);
    } else if (table->type == NPY_INT16) {
        SPREAD(npy_int16);
    } else if (table->type == NPY_INT32) {
        SPREAD(npy_int32);
    } else {
        SPREAD(npy_int64);
    }
}

/* HOT, budget 6 ns a row. Returns: false, an index is outside of the tables. */
static bool
spread_all(const spread_table *tables, Py_ssize_t table_count, const npy_int64 *rows, npy_intp row_count)
{
    uint32_t index[SPREAD_ROWS];
    for (npy_intp first = 0; first < row_count; first += SPREAD_ROWS) {
        npy_intp count = row_count - first < SPREAD_ROWS ? row_count - first : SPREAD_ROWS;
        uint32_t largest = 0;
        for (npy_intp i = 0; i < count; i++) {
            index[i] = (uint32_t)rows[first + i];
            largest = index[i] > largest ? index[i] : largest;
        }
        if (largest >= (size_t)tables[0].size) {
            return false;
        }
        for (Py_ssize_t i = 0; i < table_count; i++) {
            spread_rows(&tables[i], index, first, count);
        }
    }
    return true;
}

/* An array that spread() can use. */
static bool
is_plain(PyObject *object, int type)
{
    if (!PyArray_Check(object)) {
        return false;
    }
    PyArrayObject *array = (PyArrayObject *)object;
    int found = PyArray_TYPE(array);
    bool fits = type == NPY_INT64 ? found == type
                                  : found == NPY_INT8 || found == NPY_INT16 || found == NPY_INT32 ||
                                        found == NPY_INT64;
    return fits && PyArray_NDIM(array) == 1 && PyArray_IS_C_CONTIGUOUS(array);
}

PyObject *
ep_py_spread(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *list, *rows;
    if (load_numpy() < 0 || !PyArg_ParseTuple(args, "O!O:spread", &PyTuple_Type, &list, &rows)) {
        return NULL;
    }
    Py_ssize_t table_count = PyTuple_GET_SIZE(list);
    bool fits = table_count > 0 && table_count <= SPREAD_TABLES_MAX && is_plain(rows, NPY_INT64) &&
                PyArray_ISWRITEABLE((PyArrayObject *)rows) &&
                is_plain(PyTuple_GET_ITEM(list, 0), NPY_INT64);
    for (Py_ssize_t i = 1; i < table_count && fits; i++) {
        PyObject *table = PyTuple_GET_ITEM(list, i);
        fits = is_plain(table, -1) && PyArray_SIZE((PyArrayObject *)table) ==
                                          PyArray_SIZE((PyArrayObject *)PyTuple_GET_ITEM(list, 0));
    }
    if (!fits) {
        PyErr_SetString(PyExc_TypeError,
                        "spread() takes contiguous tables of signed integers, all of one length and the "
                        "first of int64, and a writable int64 array");
        return NULL;
    }
    spread_table tables[SPREAD_TABLES_MAX];
    npy_intp count = PyArray_SIZE((PyArrayObject *)rows);
    PyObject *results = PyTuple_New(table_count);
    for (Py_ssize_t i = 0; i < table_count && results != NULL; i++) {
        PyArrayObject *table = (PyArrayObject *)PyTuple_GET_ITEM(list, i);
        int type = PyArray_TYPE(table);
        void *data;
        PyObject *result = i == 0              ? Py_NewRef(rows)
                           : type == NPY_INT64 ? ep_py_array((size_t)count, EP_TYPE_INT64, &data)
                                               : PyArray_SimpleNew(1, &count, type);
        if (result == NULL) {
            Py_CLEAR(results);
            break;
        }
        tables[i] = (spread_table){
            .from = PyArray_DATA(table),
            .to = PyArray_DATA((PyArrayObject *)result),
            .size = PyArray_SIZE(table),
            .type = type,
        };
        PyTuple_SET_ITEM(results, i, result);
    }
    bool valid = true;
    if (results != NULL) {
        Py_BEGIN_ALLOW_THREADS
        valid = spread_all(tables, table_count, PyArray_DATA((PyArrayObject *)rows), count);
        Py_END_ALLOW_THREADS
    }
    if (!valid) {
        Py_DECREF(results);
        PyErr_SetString(PyExc_IndexError, "spread(): an index is outside of the tables");
        return NULL;
    }
    return results;
}
