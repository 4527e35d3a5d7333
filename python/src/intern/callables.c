/* Callables that are not Python functions: builtins, types, ufuncs, functions of Cython, and objects. */
#include "intern.h"

#include <string.h>

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NO_IMPORT_ARRAY
#define NO_IMPORT_UFUNC
#include <numpy/ndarraytypes.h>
#include <numpy/ufuncobject.h>

#include "hash.h"
#include "intern_parts.h"
#include "memory.h"

PyMethodDef *ep_py_new_method;

static PyObject *str_module;     /* interned, immortal */
static uint32_t unknown_name;    /* for callables for whose name there was no memory */

static ep_text
c_text(const char *text)
{
    return (ep_text){text, text != NULL ? strlen(text) : 0};
}

/* ---- Types ----------------------------------------------------------------------------------- */

/* The class in type's MRO whose dictionary holds the descriptor of `method`. */
static PyTypeObject *
owner_of_method(PyTypeObject *type, const PyMethodDef *method)
{
    PyObject *mro = type->tp_mro;
    for (Py_ssize_t i = 0; mro != NULL && i < PyTuple_GET_SIZE(mro); i++) {
        PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(mro, i);
        PyObject *owned, *dict = ep_py_type_dict(base, &owned), *key, *value;
        Py_ssize_t at = 0;
        bool found = false;
        if (dict != NULL) {
            EP_BEGIN_OBJECT(dict);
            while (!found && PyDict_Next(dict, &at, &key, &value)) {
                found = (Py_IS_TYPE(value, &PyMethodDescr_Type) ||
                         Py_IS_TYPE(value, &PyClassMethodDescr_Type)) &&
                        ((PyMethodDescrObject *)value)->d_method == method;
            }
            EP_END_OBJECT();
        }
        Py_XDECREF(owned);
        if (found) {
            return base;
        }
    }
    return NULL;
}

/* Text of a type: views into it, or *heap. */
typedef struct type_text {
    char module_stack[128], name_stack[128];
    char *module_heap, *name_heap;
    ep_text module, name;
} type_text;

static void
read_type(PyTypeObject *type, type_text *text)
{
    text->module_heap = text->name_heap = NULL;
    const char *dot = strrchr(type->tp_name, '.');
    text->name = c_text(dot != NULL ? dot + 1 : type->tp_name);
    text->module = dot != NULL ? (ep_text){type->tp_name, (size_t)(dot - type->tp_name)}
                               : c_text("builtins");
    if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) {
        return;
    }
    PyObject *owned, *dict = ep_py_type_dict(type, &owned);
    PyObject *module = dict != NULL ? ep_py_dict_get(dict, str_module) : NULL;
    ep_text found = ep_py_text(module, text->module_stack, sizeof text->module_stack,
                               &text->module_heap);
    Py_XDECREF(module);
    if (found.at != NULL) {
        text->module = found;
    } else if (dot == NULL) {
        text->module = (ep_text){NULL, 0};
    }
    found = ep_py_text(((PyHeapTypeObject *)type)->ht_qualname, text->name_stack,
                       sizeof text->name_stack, &text->name_heap);
    if (found.at != NULL) {
        text->name = found;
    }
    Py_XDECREF(owned);
}

static void
clear_type_text(type_text *text)
{
    free(text->module_heap);
    free(text->name_heap);
}

static bool
is_own_module(ep_text module)
{
    return module.bytes >= 9 && memcmp(module.at, "eventprof", 9) == 0 &&
           (module.bytes == 9 || module.at[9] == '.');
}

/* `suffix` (may be NULL) goes after the type's name: "dict" + ".update". */
static uint32_t
add_typed_name(PyTypeObject *type, const char *suffix, ep_name_kind kind, ep_py_addition *add)
{
    type_text text;
    read_type(type, &text);
    add->id = EP_ID_SKIP;
    if (!is_own_module(text.module)) {
        char stack[512];
        size_t more = suffix != NULL ? strlen(suffix) : 0;
        char *name = text.name.bytes + more <= sizeof stack ? stack : malloc(text.name.bytes + more);
        add->id = 0;
        if (name != NULL) {
            memcpy(name, text.name.at, text.name.bytes);
            if (more > 0) {
                memcpy(name + text.name.bytes, suffix, more);
            }
            ep_name_text full = {.qualname = {name, text.name.bytes + more},
                                 .module = text.module,
                                 .line = -1,
                                 .kind = kind};
            ep_py_add_name(&full, add);
        }
        if (name != stack) {
            free(name);
        }
    }
    clear_type_text(&text);
    return add->id;
}

/* Types die and their addresses come back. Every class already has a plain weak reference (its base
 * keeps one): sharing it costs no object and tells when the key is void. But it is a block of the program,
 * whose free is an event. A hook must not free it, because events are not recorded within a hook, and the
 * hook's own event has its time already. So references that only we still hold are released when a recorder
 * stops. Without a GIL they stay: another thread may be looking at one. */
static struct {
    uint32_t *ids;    /* names of types that can die; under the GIL */
    size_t count, capacity;
} mortal;

void
ep_py_release_types(void)
{
    size_t kept = 0;
    for (size_t i = 0; i < mortal.count; i++) {
        uint32_t name = mortal.ids[i];
        PyWeakReference *reference = ep_name_get(name)->object;
        if (Py_IsNone(reference->wr_object)) {
            ep_name_retire(name);
            Py_DECREF(ep_name_take_object(name));
        } else {
            mortal.ids[kept++] = name;
        }
    }
    mortal.count = kept;
}

static bool
type_is_alive(uint32_t name, PyTypeObject *type)
{
    PyWeakReference *reference = ep_name_get(name)->object;
    if (reference == NULL) {
        return !(type->tp_flags & Py_TPFLAGS_HEAPTYPE);    /* else the reference was released */
    }
    return reference->wr_object == (PyObject *)type;
}

static uint32_t
add_type(PyTypeObject *type, uintptr_t tag)
{
    static const struct {
        const char *suffix;
        ep_name_kind kind;
    } of_tag[] = {
        [EP_TAG_TYPE] = {NULL, EP_NAME_TYPE},
        [EP_TAG_NEW] = {".__new__", EP_NAME_C},
        [EP_TAG_INSTANCE] = {NULL, EP_NAME_OBJECT},
    };
    ep_py_addition add = {.key = (uintptr_t)type, .tag = tag};
    if (type->tp_flags & Py_TPFLAGS_HEAPTYPE) {
        add.object = PyWeakref_NewRef((PyObject *)type, NULL);
        if (add.object == NULL) {
            PyErr_Clear();
            return 0;
        }
    }
    add_typed_name(type, of_tag[tag].suffix, of_tag[tag].kind, &add);
    if (add.id == 0 || add.id == EP_ID_SKIP || add.existed) {
        Py_XDECREF((PyObject *)add.object);
    } else if (add.object != NULL && !EP_GIL_DISABLED &&
               ep_grow((void **)&mortal.ids, &mortal.capacity, mortal.count + 1, sizeof *mortal.ids)) {
        mortal.ids[mortal.count++] = add.id;
    }
    return add.id;
}

/* name 0 (no memory): unknown_name, so that the event still counts. */
static ep_callee
by_name(uint32_t name)
{
    name = name != 0 ? name : unknown_name;
    return (ep_callee){.key = ep_py_key_of_name(name), .name = name};
}

ep_callee
ep_py_typed_callee(PyTypeObject *type, uintptr_t tag)
{
    uint32_t name = ep_name_find((uintptr_t)type, tag);
    if (EP_LIKELY(name != 0 && type_is_alive(name, type))) {
        return by_name(name);
    }
    uint32_t busy = ep_py_enter_own();
    ep_py_exception saved = ep_py_exception_save();
    if (name != 0) {
        ep_name_retire(name);
    }
    name = add_type(type, tag);
    ep_py_exception_restore(saved);
    ep_py_leave_own(busy);
    return by_name(name);
}

uint32_t
ep_py_type_name(PyTypeObject *type)
{
    return ep_py_typed_callee(type, EP_TAG_TYPE).name;
}

/* ---- Slots, ufuncs, Cython ------------------------------------------------------------------- */

static ep_callee
slot_wrapper_callee(PyWrapperDescrObject *wrapper)
{
    PyTypeObject *type = PyDescr_TYPE(wrapper);
    bool dies = type->tp_flags & Py_TPFLAGS_HEAPTYPE;
    uintptr_t key = (uintptr_t)wrapper->d_base, tag = dies ? EP_TAG_TYPE : (uintptr_t)type;
    uint32_t name = ep_name_find(key, tag);
    if (name == 0) {
        uint32_t busy = ep_py_enter_own();
        ep_py_addition add = {.key = key, .tag = tag};
        char suffix[80];
        snprintf(suffix, sizeof suffix, ".%s", wrapper->d_base->name);
        if (dies) {
            ep_name_text text = {.qualname = c_text(suffix + 1), .line = -1, .kind = EP_NAME_C};
            ep_py_add_name(&text, &add);
        } else {
            add_typed_name(type, suffix, EP_NAME_C, &add);
        }
        name = add.id;
        ep_py_leave_own(busy);
    }
    return by_name(name);
}

static bool
is_ufunc(PyTypeObject *type)
{
    static PyTypeObject *known;    /* numpy.ufunc is one static type; a race finds it twice */
    if (known == NULL && strcmp(type->tp_name, "numpy.ufunc") == 0) {
        known = type;
    }
    return type == known;
}

static ep_callee
ufunc_callee(PyUFuncObject *ufunc)
{
    uint32_t name = ep_name_find((uintptr_t)ufunc->name, EP_TAG_UFUNC);
    if (name == 0) {
        ep_py_addition add = {.key = (uintptr_t)ufunc->name, .tag = EP_TAG_UFUNC};
        ep_name_text text = {.qualname = c_text(ufunc->name),
                             .module = c_text("numpy"),
                             .line = -1,
                             .kind = EP_NAME_C};
        ep_py_add_name(&text, &add);
        name = add.id;
    }
    return by_name(name);
}

/* The tag of a name's key, made from text, because a key has no room for the text. */
static uintptr_t
text_tag(const char *text)
{
    return (uintptr_t)ep_hash_bytes(EP_HASH_EMPTY, text, strlen(text)) | UINT64_C(1) << 63;
}

static uintptr_t
two_texts_tag(ep_text first, ep_text second)
{
    uint64_t hash = ep_hash_bytes(ep_hash_bytes(EP_HASH_EMPTY, first.at, first.bytes), ".", 1);
    return (uintptr_t)ep_hash_bytes(hash, second.at, second.bytes) | UINT64_C(1) << 63;
}

static bool
is_of_cython(const PyTypeObject *type)
{
    /* Each version of Cython has its own types, in its own module. */
    const char *dot = strrchr(type->tp_name, '.');
    const char *name = dot != NULL ? dot + 1 : type->tp_name;
    return (strcmp(name, "cython_function_or_method") == 0 ||
            strcmp(name, "fused_cython_function") == 0) &&
           type->tp_getattro == PyObject_GenericGetAttr;
}

/* Interned and kept: the interpreter's attribute cache holds the name that was looked up, and would free a
 * new one while the program runs. If two threads make it, they get the same object. */
static PyObject *
kept_name(PyObject **kept, const char *name)
{
    if (*kept == NULL) {
        *kept = PyUnicode_InternFromString(name);
    }
    return *kept;
}

static PyObject *qualname_word, *module_word, *dict_word;

/* Whether reading the attribute runs only C code of the interpreter and the type: a class of that name in
 * Python could have a property. */
static bool
is_plain_attribute(PyTypeObject *type, PyObject *name)
{
    PyObject *word = kept_name(&dict_word, "__dict__");
    PyObject *mapping = word != NULL ? PyObject_GetAttr((PyObject *)type, word) : NULL;
    PyObject *descriptor = mapping != NULL && name != NULL ? PyObject_GetItem(mapping, name) : NULL;
    bool plain = descriptor != NULL &&
                 (Py_IS_TYPE(descriptor, &PyGetSetDescr_Type) ||
                  Py_IS_TYPE(descriptor, &PyMemberDescr_Type) || PyUnicode_Check(descriptor));
    Py_XDECREF(descriptor);
    Py_XDECREF(mapping);
    PyErr_Clear();
    return plain;
}

static bool
has_plain_names(PyTypeObject *type)
{
    /* The version of a type identifies its contents: this is the last version that was checked. */
    static _Atomic unsigned known_version;
    unsigned version = type->tp_version_tag;
    if (EP_LIKELY(version != 0 &&
                  version == atomic_load_explicit(&known_version, memory_order_relaxed))) {
        return true;
    }
    bool plain = is_plain_attribute(type, kept_name(&qualname_word, "__qualname__")) &&
                 is_plain_attribute(type, kept_name(&module_word, "__module__"));
    if (plain) {
        atomic_store_explicit(&known_version, version, memory_order_relaxed);
    }
    return plain;
}

/* An attribute, if it is text. Returns: new, or NULL. No code of the program runs: Cython's functions have
 * getters in C. */
static PyObject *
text_attribute(PyObject *object, PyObject *name)
{
    PyObject *text = name != NULL ? PyObject_GetAttr(object, name) : NULL;
    if (text != NULL && !PyUnicode_Check(text)) {
        Py_CLEAR(text);
    }
    PyErr_Clear();
    return text;
}

/* By its name: the key is made from text, so that no object must be kept alive. */
static ep_callee
cython_callee(PyObject *callable)
{
    static const char key;
    uint32_t busy = ep_py_enter_own();
    ep_py_exception saved = ep_py_exception_save();
    bool plain = has_plain_names(Py_TYPE(callable));
    PyObject *qualname = plain ? text_attribute(callable, kept_name(&qualname_word, "__qualname__")) : NULL;
    PyObject *module = plain ? text_attribute(callable, kept_name(&module_word, "__module__")) : NULL;
    char name_stack[256], *name_heap, module_stack[256], *module_heap;
    ep_name_text text = {.qualname = ep_py_text(qualname, name_stack, sizeof name_stack, &name_heap),
                         .module = ep_py_text(module, module_stack, sizeof module_stack, &module_heap),
                         .line = -1,
                         .kind = EP_NAME_C};
    uint32_t name = 0;
    if (qualname != NULL) {
        ep_py_addition add = {.key = (uintptr_t)&key,
                              .tag = two_texts_tag(text.module, text.qualname)};
        name = ep_name_find(add.key, add.tag);
        if (name == 0) {
            ep_py_add_name(&text, &add);
            name = add.id;
        }
    }
    free(name_heap);
    free(module_heap);
    Py_XDECREF(qualname);
    Py_XDECREF(module);
    ep_py_exception_restore(saved);
    ep_py_leave_own(busy);
    return name != 0 ? by_name(name) : ep_py_typed_callee(Py_TYPE(callable), EP_TAG_INSTANCE);
}

/* ---- Any ------------------------------------------------------------------------------------- */

ep_callee
ep_py_callee_slow(PyObject *callable)
{
    PyTypeObject *type = Py_TYPE(callable);
    if (PyType_Check(callable)) {
        return ep_py_typed_callee((PyTypeObject *)callable, EP_TAG_TYPE);
    }
    if (PyCFunction_Check(callable)) {
        PyMethodDef *method = ((PyCFunctionObject *)callable)->m_ml;
        PyObject *self = ((PyCFunctionObject *)callable)->m_self;
        if (method == ep_py_new_method && self != NULL && PyType_Check(self)) {
            return ep_py_typed_callee((PyTypeObject *)self, EP_TAG_NEW);
        }
        return (ep_callee){.key = (uintptr_t)method};
    }
    if (type == &PyMethod_Type) {
        return ep_py_callee(ep_py_unbound(callable));
    }
    if (type == &PyWrapperDescr_Type) {
        return slot_wrapper_callee((PyWrapperDescrObject *)callable);
    }
    if (is_ufunc(type) && ((PyUFuncObject *)callable)->obj == NULL) {
        return ufunc_callee((PyUFuncObject *)callable);
    }
    if (EP_UNLIKELY(is_of_cython(type))) {
        return cython_callee(callable);
    }
    return ep_py_typed_callee(type, EP_TAG_INSTANCE);
}

static uint32_t
add_method(PyObject *callable, PyMethodDef *method, uintptr_t tag)
{
    PyTypeObject *owner = NULL;
    PyObject *module = NULL;
    if (PyCFunction_Check(callable)) {
        PyObject *self = ((PyCFunctionObject *)callable)->m_self;
        module = ((PyCFunctionObject *)callable)->m_module;
        if (self != NULL && !PyModule_Check(self)) {
            owner = PyType_Check(self) ? owner_of_method((PyTypeObject *)self, method) : NULL;
            owner = owner != NULL ? owner : owner_of_method(Py_TYPE(self), method);
            /* From 3.15 on static methods have a module, too. */
            if (owner == NULL && (module == NULL || (method->ml_flags & METH_STATIC))) {
                owner = PyType_Check(self) ? (PyTypeObject *)self : Py_TYPE(self);
            }
        }
    } else {
        owner = PyDescr_TYPE(callable);
    }
    ep_py_addition add = {.key = (uintptr_t)method, .tag = tag};
    if (owner != NULL) {
        char suffix[256];
        snprintf(suffix, sizeof suffix, ".%s", method->ml_name);
        add_typed_name(owner, suffix, EP_NAME_C, &add);
    } else {
        char stack[128], *heap;
        ep_name_text text = {.qualname = c_text(method->ml_name),
                             .module = ep_py_text(module, stack, sizeof stack, &heap),
                             .line = -1,
                             .kind = EP_NAME_C};
        ep_py_add_name(&text, &add);
        free(heap);
    }
    return add.id;
}

/* A definition outside of every loaded image (pybind11, cffi make them on the heap) may be freed
 * and its address given to another: its key holds the name, too, and it is looked up here each
 * time. Returns: false, or true and the tag. */
static bool
is_volatile(const PyMethodDef *method, uintptr_t *tag)
{
    if (ep_name_find((uintptr_t)method, EP_TAG_VOLATILE) == 0) {
        if (ep_py_image_of(method) != NULL) {
            return false;
        }
        (void)ep_name_add((uintptr_t)method, EP_TAG_VOLATILE, NULL, NULL, NULL);
    }
    *tag = text_tag(method->ml_name);
    return true;
}

/* The name of a callable with a method definition. */
static ep_callee
method_callee(PyObject *callable, PyMethodDef *method)
{
    if (ep_py_is_own_method(method)) {
        return (ep_callee){.name = EP_ID_SKIP};
    }
    uint32_t busy = ep_py_enter_own();
    ep_py_exception saved = ep_py_exception_save();
    uintptr_t tag = EP_TAG_PLAIN;
    bool moves = is_volatile(method, &tag);
    uint32_t name = ep_name_find((uintptr_t)method, tag);
    if (name == 0) {
        name = add_method(ep_py_unbound(callable), method, tag);
    }
    ep_py_exception_restore(saved);
    ep_py_leave_own(busy);
    return moves ? by_name(name) : (ep_callee){.key = (uintptr_t)method, .name = name};
}

uint32_t
ep_py_callee_name_slow(PyObject *callable, ep_callee callee)
{
    return method_callee(callable, (PyMethodDef *)callee.key).name;
}

uint32_t
ep_py_callee_site_slow(PyObject *callable, ep_callee callee, uintptr_t instruction)
{
    if (callee.name == 0) {
        callee = method_callee(callable, (PyMethodDef *)callee.key);
    }
    if (callee.name == EP_ID_SKIP) {
        return EP_ID_SKIP;
    }
    ep_frame *frame = ep_py_frame_now();
    if (frame != NULL && ep_py_is_own_code(ep_frame_code(frame))) {
        ep_log_current->own_calls += 1;    /* called by a source, so there is a log */
        return EP_ID_SKIP;
    }
    return ep_py_add_site(callee.key, callee.name, frame, instruction, 0);
}

uint32_t
ep_py_callee_site_from(PyObject *callable, ep_frame *caller)
{
    ep_callee callee = ep_py_callee(callable);
    if (callee.name == 0) {
        callee = method_callee(callable, (PyMethodDef *)callee.key);
    }
    if (callee.name == EP_ID_SKIP) {
        return EP_ID_SKIP;
    }
    return ep_py_add_site(callee.key, callee.name, caller,
                          caller != NULL ? ep_frame_instruction(caller) : 0, 0);
}

uint32_t
ep_py_place_slow(uint32_t name, ep_frame *frame)
{
    uint32_t busy = ep_py_enter_own();
    uint32_t id = ep_py_add_site(ep_py_key_of_name(name), name, frame,
                                 frame != NULL ? ep_frame_instruction(frame) : 0, 0);
    ep_py_leave_own(busy);
    return id;
}

int
ep_py_callables_init(void)
{
    str_module = PyUnicode_InternFromString("__module__");
    PyObject *new_function = PyObject_GetAttrString((PyObject *)&PyBaseObject_Type, "__new__");
    if (str_module == NULL || new_function == NULL) {
        Py_XDECREF(new_function);
        return -1;
    }
    ep_py_new_method = ((PyCFunctionObject *)new_function)->m_ml;
    Py_DECREF(new_function);
    ep_name_text unknown = {.qualname = c_text("?"), .line = -1, .kind = EP_NAME_OBJECT};
    unknown_name = ep_name_add((uintptr_t)&unknown_name, EP_TAG_PLAIN, &unknown, NULL, NULL);
    return 0;
}
