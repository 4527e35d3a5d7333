/* Filters and areas (filter.h) from tuples of str. */
#ifndef EP_PATTERNS_H
#define EP_PATTERNS_H

#include "compat.h"

#include "filter.h"

/* audit: may be NULL. Fails: -1, exception set. */
int ep_py_add_patterns(ep_filter *filter, PyObject *include, PyObject *exclude, PyObject *audit);

/* add_area(area, folders, modules): filter.h's, from tuples of str. */
PyObject *ep_py_add_area(PyObject *module, PyObject *args);

#endif
