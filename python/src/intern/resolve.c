/* At retrieval: looks up modules and lines, which hooks cannot do. */
#include "intern.h"

#include "intern_parts.h"

/* file name -> module name, of what is imported. Returns: new, NULL with an exception. */
static PyObject *
modules_by_file(void)
{
    PyObject *by_file = PyDict_New();
    PyObject *modules = ep_py_modules(), *name, *module;
    Py_ssize_t at = 0;
    if (modules == NULL) {
        return by_file;
    }
    EP_BEGIN_OBJECT(modules);
    while (by_file != NULL && PyDict_Next(modules, &at, &name, &module)) {
        PyObject *dict = PyModule_Check(module) ? PyModule_GetDict(module) : NULL;
        PyObject *file = dict != NULL ? ep_py_dict_get_text(dict, "__file__") : NULL;
        if (file != NULL && PyUnicode_Check(file) && PyDict_SetItem(by_file, file, name) < 0) {
            Py_CLEAR(by_file);
        }
        Py_XDECREF(file);
    }
    EP_END_OBJECT();
    return by_file;
}

static int
resolve_names(void)
{
    static size_t resolved = 1;
    PyObject *by_file = NULL;
    size_t count = ep_name_count(), first_pending = count;
    for (size_t id = resolved; id < count; id++) {
        const ep_name *name = ep_name_get((uint32_t)id);
        if (!name->pending) {
            continue;
        }
        if (name->object == NULL) {
            continue;    /* a marker: is_volatile() */
        }
        if (by_file == NULL && (by_file = modules_by_file()) == NULL) {
            return -1;
        }
        PyCodeObject *code = name->object;
        PyObject *module = PyDict_GetItemWithError(by_file, code->co_filename);
        uint32_t described = (uint32_t)id;
        ep_py_with_code_text(code, module, ep_py_describe_name, &described);
    }
    resolved = first_pending;
    Py_XDECREF(by_file);
    return PyErr_Occurred() ? -1 : 0;
}

static int
resolve(void)
{
    static size_t resolved = 1;
    uint32_t busy = ep_py_enter_own();    /* the recorder of a log file is running already */
    int status = resolve_names();
    ep_py_leave_own(busy);
    if (status < 0) {
        return -1;
    }
    size_t count = ep_site_count();
    for (size_t id = resolved; id < count; id++) {
        const ep_site *site = ep_site_get((uint32_t)id);
        if (site->line != EP_LINE_PENDING) {
            continue;
        }
        PyCodeObject *code = ep_name_get(site->caller)->object;
        int line = code != NULL ? PyCode_Addr2Line(code, site->offset) : -1;
        ep_site_set_line((uint32_t)id, line > 0 ? line : -1);
    }
    resolved = count;
    return 0;
}

int
ep_py_intern_resolve(void)
{
#if EP_GIL_DISABLED
    static PyMutex one_at_a_time;
    PyMutex_Lock(&one_at_a_time);
#endif
    int status = resolve();
#if EP_GIL_DISABLED
    PyMutex_Unlock(&one_at_a_time);
#endif
    return status;
}
