/* Filters (filter.h) and areas (areas.h) from tuples of str, and what they say of functions. */
#ifndef EP_PATTERNS_H
#define EP_PATTERNS_H

#include "compat.h"

#include "filter.h"

/* audit: may be NULL. Fails: -1, exception set. */
int ep_py_add_patterns(ep_filter *filter, PyObject *include, PyObject *exclude, PyObject *audit);

/* add_area(word, folders, modules): areas.h's, from tuples of str; word: of an area. */
PyObject *ep_py_add_area(PyObject *module, PyObject *args);

/* The words of the areas, in order. Returns: new. */
PyObject *ep_py_area_words(void);

/* function_areas(functions, patterns) -> a byte for each: the area's number. functions: a list of (name,
 * module, file, line, kind). With patterns, the Python functions that match are own, and no others are. */
PyObject *ep_py_function_areas(PyObject *module, PyObject *args);

/* match_functions(functions, patterns) -> a byte for each: 1, if a pattern of include matches. */
PyObject *ep_py_match_functions(PyObject *module, PyObject *args);

#endif
