/* Sets of kinds as Python ints: they have more bits than any C type that PyArg_ParseTuple() knows. */
#ifndef EP_PY_KINDS_H
#define EP_PY_KINDS_H

#include "compat.h"
#include "types.h"

/* Returns: new. Fails: NULL, exception set. */
PyObject *ep_py_kinds(ep_kind_set kinds);

/* A converter, "O&": `to` is an ep_kind_set. Bits beyond the last possible kind are dropped. */
int ep_py_kinds_from(PyObject *number, void *to);

#endif
