/* Columns of a trace as NumPy arrays. */
#ifndef EP_ARRAYS_H
#define EP_ARRAYS_H

#include <Python.h>

#include "columns.h"

/* A read-only array over `data`, which `owner` keeps alive. Returns: new. */
PyObject *ep_py_view(PyObject *owner, const void *data, size_t count, ep_type type);

/* A fresh array, which may lie in a file (array.h). *data: view into it. Returns: new. */
PyObject *ep_py_array(size_t count, ep_type type, void **data);

/* Like ep_py_array(), of zeros. A large one costs memory only where it is written. */
PyObject *ep_py_array_zeroed(size_t count, ep_type type, void **data);

/* An array of memory from ep_array_new() or ep_column_new(). steals memory. Returns: new. Fails: NULL,
 * memory freed. */
PyObject *ep_py_array_of(void *memory, size_t count, ep_type type);

/* A fresh array of a member of each of `count` structs. Returns: new. */
PyObject *ep_py_gathered(const void *rows, size_t count, size_t stride, size_t member_at, ep_type type);

#define EP_PY_GATHERED(rows, count, struct, field, type) \
    ep_py_gathered(rows, count, sizeof(struct), offsetof(struct, field), type)

/* A read-only array of one value, which takes no memory (its stride is 0). Returns: new. */
PyObject *ep_py_constant(size_t count, ep_type type, int8_t value);

/* gather(table, indices): table[indices] for int32 or uint8 indices, where -1 takes table's last
 * element, which nothing else may. Module-level function for the package; a table of signed
 * integers. A large result is a column (array.h). */
PyObject *ep_py_gather(PyObject *module, PyObject *args);

/* new_column(count, type): an array that is not initialised, for as many values as a trace has rows. */
PyObject *ep_py_new_column(PyObject *module, PyObject *args);
/* give_back() -> bytes of columns in files: ep_columns_give_back(). */
PyObject *ep_py_give_back(PyObject *module, PyObject *unused);
/* columns_have_files() -> bool, see ep_columns_have_files(). */
PyObject *ep_py_columns_have_files(PyObject *module, PyObject *unused);
/* columns_in_memory(bytes) -> bytes before: for tests, see ep_columns_set_in_memory(). */
PyObject *ep_py_columns_in_memory(PyObject *module, PyObject *bytes);

/* tree_below(parent, values), tree_outermost(parent, keys): sums over a tree; trace_fold.c. */
PyObject *ep_py_tree_below(PyObject *module, PyObject *args);
PyObject *ep_py_tree_outermost(PyObject *module, PyObject *args);
PyObject *ep_py_added_columns(PyObject *module, PyObject *unused);

#endif
