/* _core.share_quota. */
#ifndef EP_QUOTA_OBJECT_H
#define EP_QUOTA_OBJECT_H

#include <Python.h>

PyObject *ep_py_share_quota(PyObject *module, PyObject *args);

#endif
