/* A descriptor that replaces a method's own, and the bound objects that it returns. Freed bound objects
 * are kept in a list. */
#include "bound.h"

#include <structmember.h>

#include "engine.h"
#include "intern.h"

#if EP_BOUND_IS_REUSED

/* If more bound objects are in use at once, the others are allocated each time. */
#define FREE_LIMIT 16

/* The collector does not track bound objects: they refer only to our own objects, which refer to no
 * container. */
typedef struct bound_object {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    ep_bound_call call;
    PyObject *owner;              /* owned; NULL while it is in the list of free ones */
    struct bound_object *next;    /* in that list */
} bound_object;

typedef struct descriptor_object {
    PyObject_HEAD
    PyObject *method;    /* the method's own descriptor, which this one replaces; owned */
    ep_bound_call call;
} descriptor_object;

static PyTypeObject *bound_type, *descriptor_type;    /* immortal */
/* Free bound objects; each still has its reference to the type. Under the GIL. */
static bound_object *first_free;
static size_t free_count;

static PyObject *
bound_vectorcall(PyObject *object, PyObject *const *args, size_t count, PyObject *names)
{
    bound_object *self = (bound_object *)object;
    if (EP_UNLIKELY(names != NULL && PyTuple_GET_SIZE(names) != 0)) {
        PyErr_SetString(PyExc_TypeError, "this method takes no keyword arguments");
        return NULL;
    }
    return self->call(self->owner, args, PyVectorcall_NARGS(count));
}

/* Sets the thread's busy flag, so that our memory is not counted as the program's. */
static uint32_t
enter_ours(void)
{
    if (EP_UNLIKELY(ep_log_current == NULL) && ep_engine_kinds() != 0) {
        (void)ep_log_mine();
    }
    return ep_py_enter_ours();
}

static void
bound_dealloc(PyObject *object)
{
    bound_object *self = (bound_object *)object;
    PyObject *owner = self->owner;
    if (EP_LIKELY(free_count < FREE_LIMIT)) {
        self->owner = NULL;
        self->next = first_free;
        first_free = self;
        free_count += 1;
    } else {
        PyTypeObject *type = Py_TYPE(object);
        uint32_t busy = enter_ours();
        PyObject_Free(object);
        ep_py_leave_own(busy);
        Py_DECREF(type);
    }
    Py_DECREF(owner);
}

static PyObject *
bind(PyObject *owner, ep_bound_call call)
{
    bound_object *self = first_free;
    if (EP_LIKELY(self != NULL)) {
        first_free = self->next;
        free_count -= 1;
        _Py_NewReference((PyObject *)self);
    } else {
        uint32_t busy = enter_ours();
        self = PyObject_New(bound_object, bound_type);
        ep_py_leave_own(busy);
        if (self == NULL) {
            return NULL;
        }
        self->vectorcall = bound_vectorcall;
    }
    self->call = call;
    self->owner = Py_NewRef(owner);
    return (PyObject *)self;
}

static PyObject *
descriptor_get(PyObject *object, PyObject *owner, PyObject *type)
{
    (void)type;
    descriptor_object *self = (descriptor_object *)object;
    return owner != NULL ? bind(owner, self->call) : Py_NewRef(self->method);
}

static PyMemberDef bound_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(bound_object, vectorcall), READONLY, NULL},
    {"__self__", T_OBJECT, offsetof(bound_object, owner), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot bound_slots[] = {
    {Py_tp_dealloc, bound_dealloc},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, bound_members},
    {0, NULL},
};

static PyType_Spec bound_spec = {
    .name = "eventprof._core.BoundMethod",
    .basicsize = sizeof(bound_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = bound_slots,
};

static void
descriptor_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(((descriptor_object *)object)->method);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyType_Slot descriptor_slots[] = {
    {Py_tp_dealloc, descriptor_dealloc},
    {Py_tp_descr_get, descriptor_get},
    {0, NULL},
};

static PyType_Spec descriptor_spec = {
    .name = "eventprof._core.BoundMethodDescriptor",
    .basicsize = sizeof(descriptor_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = descriptor_slots,
};

int
ep_py_bind_cheaply(PyTypeObject *type, const char *name, ep_bound_call call)
{
    if ((bound_type == NULL &&
         (bound_type = (PyTypeObject *)PyType_FromSpec(&bound_spec)) == NULL) ||
        (descriptor_type == NULL &&
         (descriptor_type = (PyTypeObject *)PyType_FromSpec(&descriptor_spec)) == NULL)) {
        return -1;
    }
    /* Not by setattr: the type is immutable. */
    PyObject *method = PyDict_GetItemString(type->tp_dict, name);
    descriptor_object *made =
        method != NULL ? PyObject_New(descriptor_object, descriptor_type) : NULL;
    if (made == NULL) {
        return -1;
    }
    made->method = Py_NewRef(method);
    made->call = call;
    int status = PyDict_SetItemString(type->tp_dict, name, (PyObject *)made);
    Py_DECREF(made);
    PyType_Modified(type);
    return status;
}

#else

int
ep_py_bind_cheaply(PyTypeObject *type, const char *name, ep_bound_call call)
{
    (void)type;
    (void)name;
    (void)call;
    return 0;
}

#endif
