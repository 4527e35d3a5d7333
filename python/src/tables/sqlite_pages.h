/* Pages of an SQLite file, without SQLite: a module-level function of the extension for the exporter. */
#ifndef EP_SQLITE_PAGES_H
#define EP_SQLITE_PAGES_H

#include <Python.h>

/* sqlite_leaves(keys, columns) -> (pages, last): the rows of a table as leaf pages of 4096 bytes, and the
 * key of the last row of each page. `keys` are the ascending integer keys of the rows, int64. A column is
 * None, for the key itself; or ("int", int64 array, mask or None); or ("real", float64 array, mask or
 * None), where the mask is true for null; or ("text", int32 codes, int64 offsets, bytes), where -1 is
 * null. A row of more than 4061 bytes is refused: it would need overflow pages. `last` is a bytearray of
 * int64. */
PyObject *ep_py_sqlite_leaves(PyObject *module, PyObject *args);

#endif
