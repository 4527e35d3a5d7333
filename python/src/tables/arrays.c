/* The NumPy half of the extension. */
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include "arrays.h"

#include <numpy/arrayobject.h>

#include "array.h"
#include "errors.h"

static const int numbers[] = {
    [EP_TYPE_INT8] = NPY_INT8,
    [EP_TYPE_UINT8] = NPY_UINT8,
    [EP_TYPE_INT16] = NPY_INT16,
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
    ep_column_free(PyCapsule_GetPointer(capsule, NULL));
}

/* An array over data that `owner` frees. steals owner, which may be NULL with an exception. Returns:
 * new. */
static PyObject *
array_of_owner(PyObject *owner, void *data, size_t count, ep_type type)
{
    npy_intp shape[] = {(npy_intp)count};
    if (owner == NULL) {
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

/* `data` becomes the array's. Returns: new. Fails: NULL, data freed. */
static PyObject *
owning_array(void *data, size_t count, ep_type type)
{
    PyObject *owner = PyCapsule_New(data, NULL, free_memory);
    if (owner == NULL) {
        ep_column_free(data);
    }
    return array_of_owner(owner, data, count, type);
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
        *data = ep_column_new(count, bytes);
        return *data != NULL ? owning_array(*data, count, type) : ep_py_no_memory();
    }
    PyObject *array = PyArray_SimpleNew(1, shape, numbers[type]);
    if (array != NULL) {
        *data = PyArray_DATA((PyArrayObject *)array);
    }
    return array;
}

static const char *const type_words[] = {
    [EP_TYPE_INT8] = "int8",
    [EP_TYPE_UINT8] = "uint8",
    [EP_TYPE_INT32] = "int32",
    [EP_TYPE_INT64] = "int64",
};

PyObject *
ep_py_new_column(PyObject *module, PyObject *args)
{
    (void)module;
    Py_ssize_t count;
    const char *word;
    if (!PyArg_ParseTuple(args, "ns:new_column", &count, &word)) {
        return NULL;
    }
    for (size_t type = 0; count >= 0 && type < sizeof type_words / sizeof *type_words; type++) {
        if (type_words[type] != NULL && strcmp(type_words[type], word) == 0) {
            void *data;
            return ep_py_array((size_t)count, (ep_type)type, &data);
        }
    }
    return PyErr_Format(PyExc_ValueError, "new_column(): %zd elements of %s", count, word);
}

PyObject *
ep_py_give_back(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    Py_BEGIN_ALLOW_THREADS
    ep_columns_give_back();
    Py_END_ALLOW_THREADS
    return PyLong_FromSize_t(ep_columns_in_files());
}

PyObject *
ep_py_columns_have_files(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyBool_FromLong(ep_columns_have_files());
}

PyObject *
ep_py_columns_in_memory(PyObject *module, PyObject *bytes)
{
    (void)module;
    size_t most = PyLong_AsSize_t(bytes);
    return most == (size_t)-1 && PyErr_Occurred() ? NULL
                                                  : PyLong_FromSize_t(ep_columns_set_in_memory(most));
}

typedef struct mapping {
    void *at;
    size_t bytes;
} mapping;

/* It is the program's, as arrays of NumPy are: not the recorder's own (ep_os_own_bytes()). */
static void *
map_for_program(size_t bytes)
{
    void *at = ep_os_map(bytes);
    if (at != NULL) {
        ep_os_own_add(-(int64_t)bytes);
    }
    return at;
}

static void
unmap(PyObject *capsule)
{
    mapping *pages = PyCapsule_GetPointer(capsule, NULL);
    ep_os_own_add((int64_t)pages->bytes);
    ep_os_unmap(pages->at, pages->bytes);
    free(pages);
}

/* Memory from the system is zero: it need not be cleared, and what is not written is not there. calloc()
 * clears what it gives out again, up to 32 MiB. */
static PyObject *
mapped_array(size_t count, ep_type type, size_t bytes, void **data)
{
    mapping *pages = ep_calloc(1, sizeof *pages);
    if (pages != NULL) {
        pages->bytes = bytes + EP_ARRAY_ALIGN;
        pages->at = map_for_program(pages->bytes);
    }
    if (pages == NULL || pages->at == NULL) {
        free(pages);
        return PyErr_NoMemory();
    }
    *data = (char *)pages->at + (EP_ARRAY_ALIGN - (uintptr_t)pages->at % EP_ARRAY_ALIGN);
    ep_os_expect_use(*data, bytes);
    PyObject *owner = PyCapsule_New(pages, NULL, unmap);
    if (owner == NULL) {
        ep_os_own_add((int64_t)pages->bytes);
        ep_os_unmap(pages->at, pages->bytes);
        free(pages);
    }
    return array_of_owner(owner, *data, count, type);
}

PyObject *
ep_py_array_zeroed(size_t count, ep_type type, void **data)
{
    size_t bytes = count * ep_type_bytes(type);
    if (load_numpy() < 0) {
        return NULL;
    }
    if (bytes >= EP_ARRAY_ALIGN_FROM) {
        return mapped_array(count, type, bytes, data);
    }
    PyObject *array = ep_py_array(count, type, data);
    if (array != NULL) {
        memset(*data, 0, bytes);
    }
    return array;
}

PyObject *
ep_py_array_of(void *memory, size_t count, ep_type type)
{
    if (load_numpy() < 0) {
        ep_column_free(memory);
        return NULL;
    }
    return owning_array(memory, count, type);
}

PyObject *
ep_py_gathered(const void *rows, size_t count, size_t stride, size_t member_at, ep_type type)
{
    void *data;
    PyObject *array = ep_py_array(count, type, &data);
    if (array != NULL) {
        ep_rows_gather(rows, count, stride, member_at, ep_type_bytes(type), data);
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
#define GATHER(c_type, index_type)                               \
    do {                                                         \
        const c_type *from = PyArray_DATA(table);                \
        const index_type *index = PyArray_DATA(indices);         \
        c_type *to = data;                                       \
        for (size_t i = 0, end; i < count;) {                    \
            for (end = ep_column_part(i, count); i < end; i++) { \
                npy_int32 at = index[i];                         \
                valid = valid && at >= -1 && at < last;          \
                to[i] = from[at < 0 || at >= last ? last : at];  \
            }                                                    \
        }                                                        \
    } while (0)

#define GATHER_BY(index_type)               \
    do {                                    \
        if (type == EP_TYPE_INT8) {         \
            GATHER(npy_int8, index_type);   \
        } else if (type == EP_TYPE_INT16) { \
            GATHER(npy_int16, index_type);  \
        } else if (type == EP_TYPE_INT32) { \
            GATHER(npy_int32, index_type);  \
        } else {                            \
            GATHER(npy_int64, index_type);  \
        }                                   \
    } while (0)

/* Returns: the type of a table for gather(); -1: none that it takes. */
static int
type_of_table(PyArrayObject *table)
{
    for (int type = EP_TYPE_INT8; type <= EP_TYPE_INT64; type++) {
        if (numbers[type] == PyArray_TYPE(table)) {
            return PyTypeNum_ISSIGNED(numbers[type]) ? type : -1;
        }
    }
    return -1;
}

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
    int type = type_of_table(table), index_type = PyArray_TYPE(indices);
    if (type < 0 || PyArray_NDIM(table) != 1 || PyArray_NDIM(indices) != 1 || PyArray_SIZE(table) < 1 ||
        !PyArray_IS_C_CONTIGUOUS(table) || !PyArray_IS_C_CONTIGUOUS(indices) ||
        (index_type != NPY_INT32 && index_type != NPY_UINT8)) {
        PyErr_SetString(PyExc_TypeError,
                        "gather() takes a contiguous table of signed integers that is not empty, and "
                        "contiguous int32 or uint8 indices");
        return NULL;
    }
    size_t count = (size_t)PyArray_SIZE(indices);
    npy_int32 last = (npy_int32)PyArray_SIZE(table) - 1;
    void *data;
    PyObject *result = ep_py_array(count, (ep_type)type, &data);
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
    return result;
}
