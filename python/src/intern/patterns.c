/* Filters and areas (filter.h) from tuples of str. */
#include "patterns.h"

#include <string.h>

#include "errors.h"
#include "intern.h"

/* Calls `add` with each text of a tuple. Fails: -1, exception set. */
static int
each_text(PyObject *texts, ep_status (*add)(ep_text text, void *context), void *context)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(texts); i++) {
        char stack[256], *heap;
        ep_text text = ep_py_text(PyTuple_GET_ITEM(texts, i), stack, sizeof stack, &heap);
        ep_status status = text.at != NULL ? add(text, context) : EP_NOMEM;
        free(heap);
        if (status != EP_OK) {
            ep_py_raise(status, NULL);
            return -1;
        }
    }
    return 0;
}

typedef struct pattern_place {
    ep_filter *filter;
    bool include;
} pattern_place;

static ep_status
add_pattern(ep_text text, void *context)
{
    pattern_place *place = context;
    char *pattern = calloc(text.bytes + 1, 1);
    ep_status status = EP_NOMEM;
    if (pattern != NULL) {
        memcpy(pattern, text.at, text.bytes);
        status = ep_filter_add(place->filter, place->include, pattern);
    }
    free(pattern);
    return status;
}

static ep_status
add_audit(ep_text text, void *context)
{
    char *pattern = calloc(text.bytes + 1, 1);
    ep_status status = EP_NOMEM;
    if (pattern != NULL) {
        memcpy(pattern, text.at, text.bytes);
        status = ep_filter_add_audit(context, pattern);
    }
    free(pattern);
    return status;
}

int
ep_py_add_patterns(ep_filter *filter, PyObject *include, PyObject *exclude, PyObject *audit)
{
    if (each_text(include, add_pattern, &(pattern_place){filter, true}) < 0 ||
        each_text(exclude, add_pattern, &(pattern_place){filter, false}) < 0) {
        return -1;
    }
    return audit != NULL ? each_text(audit, add_audit, filter) : 0;
}

static ep_status
add_folder(ep_text text, void *context)
{
    return ep_area_add_folder(*(ep_area *)context, text);
}

static ep_status
add_module(ep_text text, void *context)
{
    return ep_area_add_module(*(ep_area *)context, text);
}

PyObject *
ep_py_add_area(PyObject *module, PyObject *args)
{
    int number;
    PyObject *folders, *modules;
    (void)module;
    if (!PyArg_ParseTuple(args, "iO!O!:add_area", &number, &PyTuple_Type, &folders, &PyTuple_Type,
                          &modules)) {
        return NULL;
    }
    ep_area area = (ep_area)number;
    if (each_text(folders, add_folder, &area) < 0 || each_text(modules, add_module, &area) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}
