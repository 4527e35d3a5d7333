/* start(), stop(), `with` and the finalizer of recorders and counters. */
#include "startable.h"

#include "change.h"
#include "intern.h"

/* The change is this thread's. Fails: -1, exception set. */
static int
start_in_change(ep_py_startable *self)
{
    if (self->functions->runs(self)) {
        PyErr_Format(ep_py_error(EP_ERROR_STATE),
                     "this %s is already running; stop it before it starts again",
                     self->functions->noun);
        return -1;
    }
    return self->functions->start(self);
}

/* Fails: -1, exception set. */
static int
refuse_within_change(void)
{
    PyErr_SetString(ep_py_error(EP_ERROR_STATE),
                    "eventprof is installing or removing hooks on this thread (this code runs in an audit "
                    "hook or a finalizer); start it later");
    return -1;
}

static int
start(ep_py_startable *self)
{
    if (!ep_py_change_begin_unless_within()) {
        return refuse_within_change();
    }
    int status = start_in_change(self);
    ep_py_change_end();
    return status;
}

void
ep_py_startable_stop(ep_py_startable *self)
{
    ep_py_release_types();
    ep_py_change_begin();
    self->functions->stop(self);
    ep_py_change_end();
}

static bool
runs(ep_py_startable *self)
{
    ep_py_look_begin();    /* at the interpreter's end another thread may stop it at the same time */
    bool now = self->functions->runs(self);
    ep_py_look_end();
    return now;
}

void
ep_py_startable_finalize(PyObject *object)
{
    ep_py_startable *self = (ep_py_startable *)object;
    if (!runs(self)) {
        return;
    }
    ep_py_startable_stop(self);
    ep_py_exception saved = ep_py_exception_save();
    if (PyErr_ResourceWarning(object, 1, "%R was dropped while running; it was stopped", object) < 0) {
        PyErr_WriteUnraisable(object);
    }
    ep_py_exception_restore(saved);
}

PyObject *
ep_py_startable_method_start(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (start((ep_py_startable *)self) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static int
stop_and_warn(ep_py_startable *self)
{
    ep_py_startable_stop(self);
    return self->functions->warn != NULL ? self->functions->warn(self) : 0;
}

PyObject *
ep_py_startable_method_stop(PyObject *object, PyObject *unused)
{
    (void)unused;
    ep_py_startable *self = (ep_py_startable *)object;
    if (!self->functions->runs(self)) {
        PyErr_Format(ep_py_error(EP_ERROR_STATE), "this %s is not running", self->functions->noun);
        return NULL;
    }
    if (stop_and_warn(self) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* Starts it unless it runs, as one step for other threads. Returns: whether it was started here. */
PyObject *
ep_py_startable_method_begin(PyObject *object, PyObject *unused)
{
    (void)unused;
    ep_py_startable *self = (ep_py_startable *)object;
    if (runs(self)) {
        Py_RETURN_FALSE;
    }
    if (!ep_py_change_begin_unless_within()) {
        (void)refuse_within_change();
        return NULL;
    }
    bool begins = !self->functions->runs(self);    /* another thread may have begun it meanwhile */
    int status = begins ? start_in_change(self) : 0;
    ep_py_change_end();
    return status < 0 ? NULL : PyBool_FromLong(begins);
}

PyObject *
ep_py_startable_method_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    return start((ep_py_startable *)self) < 0 ? NULL : Py_NewRef(self);
}

PyObject *
ep_py_startable_method_exit(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    (void)args;
    (void)count;
    ep_py_startable *self = (ep_py_startable *)object;
    if (self->functions->runs(self) && stop_and_warn(self) < 0) {
        return NULL;
    }
    Py_RETURN_FALSE;
}

PyMemberDef ep_py_startable_members[] = {
    {"_windows", T_ULONGLONG, offsetof(ep_py_startable, windows), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(ep_py_startable, weak_references), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
