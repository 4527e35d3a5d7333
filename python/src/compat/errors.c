/* Turns statuses of the core into exceptions; no other file does. */
#include "errors.h"

#include "array.h"

static PyObject *errors[EP_ERROR_COUNT];

PyObject *
ep_py_error(ep_py_error_class which)
{
    return errors[which];
}

int
ep_py_add_errors(PyObject *module)
{
    static const struct {
        const char *name, *text;
        PyObject **also;    /* a second base; NULL: none */
    } classes[EP_ERROR_COUNT] = {
        [EP_ERROR_BASE] = {"eventprof.Error", "Base of the exceptions that eventprof raises.", NULL},
        [EP_ERROR_STATE] = {"eventprof.StateError",
                            "Not possible in this state: started twice, not started, still running.",
                            &PyExc_RuntimeError},
        [EP_ERROR_TOOL_IN_USE] = {"eventprof.ToolInUseError",
                                  "Another tool holds a hook that is needed.", &PyExc_RuntimeError},
        [EP_ERROR_FORMAT] = {"eventprof.FormatError", "A file is damaged, or of another format.",
                             &PyExc_ValueError},
        [EP_ERROR_UNSUPPORTED] = {"eventprof.UnsupportedError",
                                  "This interpreter or system lacks what is needed.",
                                  &PyExc_RuntimeError},
    };
    for (int i = 0; i < EP_ERROR_COUNT; i++) {
        if (errors[i] == NULL) {
            PyObject *bases = i == EP_ERROR_BASE
                                  ? PyTuple_Pack(1, PyExc_Exception)
                                  : PyTuple_Pack(2, errors[EP_ERROR_BASE], *classes[i].also);
            if (bases == NULL) {
                return -1;
            }
            errors[i] = PyErr_NewExceptionWithDoc(classes[i].name, classes[i].text, bases, NULL);
            Py_DECREF(bases);
        }
        if (errors[i] == NULL ||
            PyModule_AddObjectRef(module, strrchr(classes[i].name, '.') + 1, errors[i]) < 0) {
            return -1;
        }
    }
    return 0;
}

PyObject *
ep_py_no_memory(void)
{
    ep_column_refusal refusal;
    if (!ep_columns_take_refusal(&refusal)) {
        return PyErr_NoMemory();
    }
    size_t mib = (refusal.bytes + (1 << 20) - 1) >> 20;
    if (refusal.os_error == 0) {
        return PyErr_Format(PyExc_MemoryError,
                            "out of memory; a column of %zu MiB had to be in memory, as no folder for "
                            "columns is on a disk: name one in EVENTPROF_TMPDIR",
                            mib);
    }
    return PyErr_Format(PyExc_MemoryError,
                        "out of memory; %s cannot hold a column of %zu MiB (%s): make room there, or name "
                        "a folder on another disk in EVENTPROF_TMPDIR",
                        refusal.folder, mib, strerror(refusal.os_error));
}

PyObject *
ep_py_raise(ep_status status, const ep_error *error)
{
    static const char *const meaning[] = {
#define EP_STATUS(NAME, text) [EP_##NAME] = text,
#include "status.def"
#undef EP_STATUS
    };
    PyObject *type = PyExc_SystemError;
    switch (status) {
        case EP_OK:
        case EP_STATUS_COUNT:
            break;
        case EP_NOMEM:
            return ep_py_no_memory();
        case EP_STATE:
            type = ep_py_error(EP_ERROR_STATE);
            break;
        case EP_ARGUMENT:
            type = PyExc_ValueError;
            break;
        case EP_IO:
            type = PyExc_OSError;
            break;
        case EP_FORMAT:
            type = ep_py_error(EP_ERROR_FORMAT);
            break;
        case EP_UNSUPPORTED:
            type = ep_py_error(EP_ERROR_UNSUPPORTED);
            break;
    }
    const char *text = error != NULL && error->text[0] != 0 ? error->text : meaning[status];
    if (status == EP_IO && error != NULL && error->os_error != 0) {
        errno = error->os_error;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    PyErr_SetString(type, text);
    return NULL;
}
