/* Codes of the core to exceptions: the only place. */
#include "module.h"

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
            return PyErr_NoMemory();
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
