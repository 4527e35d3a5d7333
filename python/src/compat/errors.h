/* The exceptions of the package, and the exception for each status of the core. */
#ifndef EP_ERRORS_H
#define EP_ERRORS_H

#include <Python.h>

#include "types.h"

/* The public exceptions; immortal. */
typedef enum ep_py_error_class {
    EP_ERROR_BASE,
    EP_ERROR_STATE,
    EP_ERROR_TOOL_IN_USE,
    EP_ERROR_FORMAT,
    EP_ERROR_UNSUPPORTED,
    EP_ERROR_COUNT
} ep_py_error_class;

/* Returns: borrowed, immortal. */
PyObject *ep_py_error(ep_py_error_class which);

/* Sets the exception for a status of the core; `error` (may be NULL) holds its text.
 * Returns: NULL, for the caller to return. */
PyObject *ep_py_raise(ep_status status, const ep_error *error);

/* Sets MemoryError. If a large column could not be in a file, its text names the folder, says why, and
 * what to do. Returns: NULL, for the caller to return. */
PyObject *ep_py_no_memory(void);

/* Makes the exceptions, once, and adds them to the module. Fails: -1, exception set. */
int ep_py_add_errors(PyObject *module);

#endif
