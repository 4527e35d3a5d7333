/* Filters (filter.h) and areas (areas.h) from tuples of str, and what they say of functions. */
#ifndef EP_PATTERNS_H
#define EP_PATTERNS_H

#include "compat.h"

#include "filter.h"

/* audit: may be NULL. Fails: -1, exception set. */
int ep_py_add_patterns(ep_filter *filter, PyObject *include, PyObject *exclude, PyObject *audit);

/* add_area(word, folders, modules): areas.h's, from tuples of str; word: of an area. */
PyObject *ep_py_add_area(PyObject *module, PyObject *args);

/* A row of functions() of a trace: (name, module, file, line, kind), of str, None and int. */
typedef struct ep_py_function {
    ep_name_text text;
    char stacks[3][256], *heaps[3];    /* where its texts are, in the order of ep_name_text */
} ep_py_function;

/* Returns: *to, which must not move until ep_py_function_drop(). Fails: false, exception set, nothing to
 * drop. */
bool ep_py_function_take(PyObject *row, ep_py_function *to);
void ep_py_function_drop(ep_py_function *function);

/* function_areas(functions, patterns) -> a byte for each: the area's number. functions: a list of
 * rows. With patterns, the Python functions that match are own, and no others are. */
PyObject *ep_py_function_areas(PyObject *module, PyObject *args);

/* match_functions(functions, patterns) -> a byte for each: 1, if a pattern of include matches. */
PyObject *ep_py_match_functions(PyObject *module, PyObject *args);

#endif
