#include "patterns.h"

#include <string.h>

#include "columns.h"
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

/* The area of a word. Fails: EP_AREA_COUNT. */
static ep_area
area_of_word(const char *word)
{
    ep_area area = EP_AREA_OWN;
    while (area < EP_AREA_COUNT && strcmp(word, ep_area_words[area]) != 0) {
        area++;
    }
    return area;
}

PyObject *
ep_py_add_area(PyObject *module, PyObject *args)
{
    const char *word;
    PyObject *folders, *modules;
    (void)module;
    if (!PyArg_ParseTuple(args, "sO!O!:add_area", &word, &PyTuple_Type, &folders, &PyTuple_Type,
                          &modules)) {
        return NULL;
    }
    ep_area area = area_of_word(word);
    if (area != EP_AREA_INSTALLED && area != EP_AREA_STDLIB) {
        return PyErr_Format(PyExc_ValueError, "add_area: \"installed\" or \"stdlib\", not %R",
                            PyTuple_GET_ITEM(args, 0));
    }
    if (each_text(folders, add_folder, &area) < 0 || each_text(modules, add_module, &area) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* ---- Of functions ---------------------------------------------------------------------------- */

static uint8_t
area_byte(const ep_filter *own, const ep_name_text *function)
{
    ep_area area = ep_area_of(function);
    if (own->include_count == 0 && own->include_areas == 0) {
        return (uint8_t)area;
    }
    if (function->kind == EP_NAME_PYTHON && ep_filter_includes_text(own, function)) {
        return EP_AREA_OWN;
    }
    return (uint8_t)(area == EP_AREA_OWN ? EP_AREA_OTHER : area);
}

static uint8_t
match_byte(const ep_filter *filter, const ep_name_text *function)
{
    return !ep_filter_includes_all(filter) && ep_filter_includes_text(filter, function);
}

/* Returns: EP_NAME_KIND_COUNT if there is no such kind. */
static ep_name_kind
kind_of_word(PyObject *word)
{
    ep_name_kind kind = EP_NAME_PYTHON;
    while (kind < EP_NAME_KIND_COUNT &&
           PyUnicode_CompareWithASCIIString(word, ep_name_kind_words[kind]) != 0) {
        kind++;
    }
    return kind;
}

bool
ep_py_function_take(PyObject *row, ep_py_function *to)
{
    if (!PyTuple_Check(row) || PyTuple_GET_SIZE(row) != 5 || !PyUnicode_Check(PyTuple_GET_ITEM(row, 4))) {
        PyErr_SetString(PyExc_TypeError, "functions: (name, module, file, line, kind)");
        return false;
    }
    PyObject *line = PyTuple_GET_ITEM(row, 3);
    long number = line == Py_None ? -1 : PyLong_AsLong(line);
    if (number < -1 || number > INT32_MAX || PyErr_Occurred()) {
        PyErr_SetString(PyExc_ValueError, "functions: a function's line is none");
        return false;
    }
    ep_text texts[3];
    bool has_memory = true;
    for (int part = 0; part < 3; part++) {
        PyObject *text = PyTuple_GET_ITEM(row, part);
        texts[part] = ep_py_text(text, to->stacks[part], sizeof to->stacks[part], &to->heaps[part]);
        has_memory = has_memory && (texts[part].at != NULL || !PyUnicode_Check(text));
    }
    to->text = (ep_name_text){.qualname = texts[0],
                              .module = texts[1],
                              .file = texts[2],
                              .line = (int32_t)number,
                              .kind = kind_of_word(PyTuple_GET_ITEM(row, 4))};
    if (!has_memory) {
        ep_py_function_drop(to);
        PyErr_NoMemory();
    }
    return has_memory;
}

void
ep_py_function_drop(ep_py_function *function)
{
    for (int part = 0; part < 3; part++) {
        free(function->heaps[part]);
    }
}

/* Asks `byte_of` for each function. `args`: a list of rows, patterns. */
static PyObject *
bytes_of_functions(PyObject *args, const char *format,
                   uint8_t (*byte_of)(const ep_filter *, const ep_name_text *))
{
    PyObject *functions, *patterns, *none = PyTuple_New(0);
    ep_filter filter = {0};
    PyObject *result = NULL;
    if (none != NULL &&
        PyArg_ParseTuple(args, format, &PyList_Type, &functions, &PyTuple_Type, &patterns) &&
        ep_py_add_patterns(&filter, patterns, none, NULL) == 0) {
        result = PyBytes_FromStringAndSize(NULL, PyList_GET_SIZE(functions));
    }
    for (Py_ssize_t i = 0; result != NULL && i < PyList_GET_SIZE(functions); i++) {
        ep_py_function function;
        if (!ep_py_function_take(PyList_GET_ITEM(functions, i), &function)) {
            Py_CLEAR(result);
            break;
        }
        PyBytes_AS_STRING(result)[i] = (char)byte_of(&filter, &function.text);
        ep_py_function_drop(&function);
    }
    ep_filter_clear(&filter);
    Py_XDECREF(none);
    return result;
}

PyObject *
ep_py_function_areas(PyObject *module, PyObject *args)
{
    (void)module;
    return bytes_of_functions(args, "O!O!:function_areas", area_byte);
}

PyObject *
ep_py_match_functions(PyObject *module, PyObject *args)
{
    (void)module;
    return bytes_of_functions(args, "O!O!:match_functions", match_byte);
}
