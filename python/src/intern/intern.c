/* The cold half of turning Python objects into ids: text is copied once, at first sight, and
 * nothing of the program is kept alive but code objects (a freed one would give its address to
 * another).
 *
 * eventprof's own functions are transparent: they are never recorded, and what they call shows the
 * program's frame above them as its caller. */
#include "intern.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NO_IMPORT_ARRAY
#define NO_IMPORT_UFUNC
#include <numpy/ndarraytypes.h>
#include <numpy/ufuncobject.h>

#include "memory.h"
#include "tasks.h"

bool ep_py_sites_usable;
_Atomic bool ep_py_greenlets;
PyMethodDef *ep_py_new_method;

static PyObject *str_name, *str_module, *str_thread_name;    /* interned, immortal */
static char own_directory[1024];                             /* of the package's .py files */
static size_t own_directory_bytes;
/* What `eventprof run` was started by: the console script, and runpy, which -m and directories need. Their
 * code counts as ours. Written before anything is recorded. */
#define LAUNCHER_FILES 2
static struct {
    char file[1024];
    size_t bytes;
} launcher[LAUNCHER_FILES];
static size_t launcher_count;
static PyInterpreterState *own_interpreter;
static uint32_t unknown_name;    /* of callables that there was no memory to name */

/* ---- Text ------------------------------------------------------------------------------------ */

static size_t
utf8_bytes(Py_UCS4 character)
{
    return character < 0x80 ? 1 : character < 0x800 ? 2
                              : character < 0x10000 ? 3
                                                    : 4;
}

static char *
put_utf8(char *at, Py_UCS4 c)
{
    static const unsigned char lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    size_t bytes = utf8_bytes(c);
    if (bytes == 1) {
        *at = (char)c;
        return at + 1;
    }
    for (size_t i = bytes - 1; i > 0; i--) {
        at[i] = (char)(0x80 | (c & 0x3F));
        c >>= 6;
    }
    at[0] = (char)(lead[bytes] | c);
    return at + bytes;
}

PyObject *
ep_py_string(uint32_t string)
{
    ep_text text = ep_string_get(string);
    if (text.at == NULL) {
        return Py_NewRef(Py_None);
    }
    return PyUnicode_DecodeUTF8(text.at, (Py_ssize_t)text.bytes, "surrogatepass");
}

ep_text
ep_py_text(PyObject *text, char *stack, size_t stack_bytes, char **heap)
{
    *heap = NULL;
    if (text == NULL || !PyUnicode_Check(text)) {
        return (ep_text){NULL, 0};
    }
    int kind = (int)PyUnicode_KIND(text);
    const void *data = PyUnicode_DATA(text);
    Py_ssize_t length = PyUnicode_GET_LENGTH(text);
    size_t bytes = 0;
    for (Py_ssize_t i = 0; i < length; i++) {
        bytes += utf8_bytes(PyUnicode_READ(kind, data, i));
    }
    char *copy = stack;
    if (bytes > stack_bytes && (copy = *heap = malloc(bytes)) == NULL) {
        return (ep_text){NULL, 0};
    }
    char *at = copy;
    for (Py_ssize_t i = 0; i < length; i++) {
        at = put_utf8(at, PyUnicode_READ(kind, data, i));
    }
    return (ep_text){copy, bytes};
}

static ep_text
c_text(const char *text)
{
    return (ep_text){text, text != NULL ? strlen(text) : 0};
}

/* ---- Our own code ---------------------------------------------------------------------------- */

void
ep_py_set_own_directory(const char *directory)
{
    size_t bytes = strlen(directory);
    if (bytes < sizeof own_directory) {
        memcpy(own_directory, directory, bytes);
        own_directory_bytes = bytes;
    }
}

void
ep_py_add_launcher_file(const char *file)
{
    size_t bytes = strlen(file);
    if (launcher_count < LAUNCHER_FILES && bytes < sizeof launcher[0].file) {
        memcpy(launcher[launcher_count].file, file, bytes);
        launcher[launcher_count].bytes = bytes;
        launcher_count += 1;
    }
}

/* Pure memory reads: allocator hooks ask, too. */
bool
ep_py_is_own_code(PyCodeObject *code)
{
    PyObject *file = code->co_filename;
    size_t bytes = own_directory_bytes;
    if (bytes == 0 || PyUnicode_KIND(file) != PyUnicode_1BYTE_KIND) {
        return false;
    }
    size_t length = (size_t)PyUnicode_GET_LENGTH(file);
    for (size_t i = 0; i < launcher_count; i++) {
        if (length == launcher[i].bytes && memcmp(PyUnicode_DATA(file), launcher[i].file, length) == 0) {
            return true;
        }
    }
    return length > bytes && memcmp(PyUnicode_DATA(file), own_directory, bytes) == 0;
}

static const void *
image_of(const void *address)
{
    Dl_info info;
    return dladdr(address, &info) != 0 ? info.dli_fbase : NULL;
}

/* Where our own image lies: found once, because a program may call us as often as it likes. */
static uintptr_t own_image;
static size_t own_image_bytes;    /* 0: not found */

static int
visit_image(struct dl_phdr_info *info, size_t info_bytes, void *context)
{
    uintptr_t first = UINTPTR_MAX, last = 0, own = (uintptr_t)own_directory;
    (void)info_bytes;
    (void)context;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type == PT_LOAD) {
            uintptr_t start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            uintptr_t end = start + info->dlpi_phdr[i].p_memsz;
            first = start < first ? start : first;
            last = end > last ? end : last;
        }
    }
    if (own < first || own >= last) {
        return 0;
    }
    own_image = first;
    own_image_bytes = last - first;
    return 1;
}

static bool
is_own_method(const PyMethodDef *method)
{
    if (EP_UNLIKELY(own_image_bytes == 0)) {
        return image_of(method) == image_of(own_directory);
    }
    return (uintptr_t)method - own_image < own_image_bytes;
}

/* ---- Python functions ------------------------------------------------------------------------ */

/* The nearest frame that is the program's and that the program could see itself. */
static ep_frame *
visible_frame(ep_frame *frame)
{
    frame = ep_frame_of_program(frame);
    while (frame != NULL && (ep_frame_is_incomplete(frame) || ep_py_is_own_code(ep_frame_code(frame)))) {
        frame = ep_frame_previous(frame);
    }
    return frame;
}

static PyObject *
globals_of_running(PyCodeObject *code)
{
    ep_frame *frame = ep_py_frame_now();
    for (int i = 0; i < 2 && frame != NULL; i++) {
        if (ep_frame_code(frame) == code) {
            return ep_frame_globals(frame);
        }
        frame = ep_frame_previous(frame);
    }
    return NULL;
}

/* `module`: borrowed, a str or anything else. */
static void
with_code_text(PyCodeObject *code, PyObject *module, void (*then)(const ep_name_text *, void *),
               void *context)
{
    char stack[3][256], *heap[3];
    ep_name_text text = {
        .qualname = ep_py_text(code->co_qualname, stack[0], sizeof stack[0], &heap[0]),
        .module = ep_py_text(module, stack[1], sizeof stack[1], &heap[1]),
        .file = ep_py_text(code->co_filename, stack[2], sizeof stack[2], &heap[2]),
        .line = code->co_firstlineno,
        .kind = EP_NAME_PYTHON,
    };
    then(&text, context);
    for (int i = 0; i < 3; i++) {
        free(heap[i]);
    }
}

typedef struct addition {
    uintptr_t key, tag;
    void *object;
    uint32_t id;
    bool existed;
} addition;

static void
add_name(const ep_name_text *text, void *context)
{
    addition *add = context;
    add->id = ep_name_add(add->key, add->tag, text, add->object, &add->existed);
}

static void
describe_name(const ep_name_text *text, void *context)
{
    ep_name_describe(*(uint32_t *)context, text);
}

static void
sketch_name(const ep_name_text *text, void *context)
{
    ep_name_sketch(*(uint32_t *)context, text);
}

/* Computed at retrieval, because most are never asked for; a log file must have it now. */
static int32_t
line_of(PyCodeObject *code, int32_t offset)
{
    if (!ep_names_are_told()) {
        return EP_LINE_PENDING;
    }
    int line = PyCode_Addr2Line(code, offset);
    return line > 0 ? line : -1;
}

/* Returns: new; NULL if globals name no module. */
static PyObject *
module_of(PyObject *globals)
{
    return globals != NULL && PyDict_CheckExact(globals) ? ep_py_dict_get(globals, str_name) : NULL;
}

/* The name of a code object, added or, if an allocator hook met it first, given its text now that
 * its module is known. */
static uint32_t
name_code(PyCodeObject *code, PyObject *globals, uint32_t pending)
{
    uint32_t busy = ep_py_enter_own();
    ep_py_exception saved = ep_py_exception_save();
    addition add = {.key = (uintptr_t)code, .tag = EP_TAG_PLAIN, .object = code, .id = pending};
    PyObject *module = module_of(globals);
    if (pending != 0) {
        with_code_text(code, module, describe_name, &pending);
    } else {
        with_code_text(code, module, add_name, &add);
        if (add.id != 0 && !add.existed) {
            Py_INCREF(code);
        }
    }
    Py_XDECREF(module);
    ep_py_exception_restore(saved);
    ep_py_leave_own(busy);
    return add.id;
}

uint32_t
ep_py_code_name_slow(PyCodeObject *code, PyObject *globals)
{
    /* 3.11 clears a frame while it is current: its code may be on the way out. */
    if (Py_REFCNT(code) <= 0) {
        return 0;
    }
    if (ep_py_is_own_code(code)) {
        return EP_ID_SKIP;
    }
    return name_code(code, globals != NULL ? globals : globals_of_running(code), 0);
}

/* A verdict needs the text that an allocator hook left to be found. */
ep_verdict
ep_py_verdict_slow(PyCodeObject *code, uint32_t name)
{
    if (code != NULL && ep_name_get(name)->pending) {
        PyObject *globals = globals_of_running(code);
        if (globals == NULL) {
            return 0xFF00;    /* wanted, until it is known */
        }
        (void)name_code(code, globals, name);
    }
    return ep_gate_decide(name);
}

static uint32_t
frame_name(ep_frame *frame)
{
    PyCodeObject *code = ep_frame_code(frame);
    uint32_t id = ep_name_find((uintptr_t)code, EP_TAG_PLAIN);
    if (id == 0) {
        return ep_py_code_name_slow(code, ep_frame_globals(frame));
    }
    if (EP_UNLIKELY(ep_name_get(id)->pending)) {
        (void)name_code(code, ep_frame_globals(frame), id);
    }
    return id;
}

uint32_t
ep_py_frame_name(ep_frame *frame)
{
    return frame_name(frame);
}

void
ep_py_describe_code(PyCodeObject *code, uint32_t name)
{
    PyObject *globals = globals_of_running(code);
    if (globals != NULL) {
        (void)name_code(code, globals, name);
    }
}

/* The site of `callee`, called from `frame` (NULL: from nowhere in Python) at `instruction`. task: as
 * in ep_site, and part of the key. */
static uint32_t
add_site(uintptr_t key, uint32_t callee, ep_frame *frame, uintptr_t instruction, uint32_t task)
{
    ep_frame *caller = visible_frame(frame);
    if (caller != frame) {
        instruction = caller != NULL ? ep_frame_instruction(caller) : 0;
    }
    uint32_t id = ep_site_find(key, instruction);
    if (id != 0 || callee == 0) {
        return id;
    }
    ep_site site = {.callee = callee, .offset = -1, .line = -1, .task = task};
    if (caller != NULL) {
        site.caller = frame_name(caller);
        if (site.caller == 0) {
            return 0;
        }
        site.offset = (int32_t)((char *)instruction - ep_code_start(ep_frame_code(caller)));
        site.line = line_of(ep_frame_code(caller), site.offset);
    }
    return ep_site_add(key, instruction, &site);
}

/* Of a call or slice of `code`, named `name`. `frame`: its, NULL: not known. */
static uint32_t
code_site(PyCodeObject *code, uint32_t name, ep_frame *frame, ep_frame *caller)
{
    uintptr_t instruction = caller != NULL ? ep_frame_instruction(caller) : 0;
    uintptr_t key = (uintptr_t)code;
    uint32_t task = 0;
    if (code->co_flags & (CO_COROUTINE | CO_ITERABLE_COROUTINE)) {
        /* Never under the key that hooks look for, so that each slice of a coroutine comes here, and
         * calls of all other functions need not ask which task it is. No address is like these. */
        if (frame != NULL) {
            uint32_t busy = ep_py_enter_own();
            ep_py_exception saved = ep_py_exception_save();
            task = ep_py_task_of(frame);
            PyErr_Clear();
            ep_py_exception_restore(saved);
            ep_py_leave_own(busy);
        }
        key = task == 0 ? key | 4
                        : ((uintptr_t)task << EP_PAYLOAD_BITS | name) << 4 | 12;
        uint32_t id = ep_site_find(key, instruction);
        if (EP_LIKELY(id != 0)) {
            return id;
        }
    }
    return add_site(key, name, caller, instruction, task);
}

uint32_t
ep_py_code_site_slow(PyCodeObject *code, ep_frame *frame)
{
    bool is_its = frame != NULL && ep_frame_code(frame) == code;
    uint32_t name = is_its ? frame_name(frame) : ep_py_code_name(code);
    if (name == EP_ID_SKIP) {
        return EP_ID_SKIP;
    }
    return code_site(code, name, is_its ? frame : NULL,
                     frame != NULL ? ep_frame_previous(frame) : NULL);
}

/* ---- Allocations ----------------------------------------------------------------------------- */

void
ep_py_look_for_greenlets(void)
{
    PyObject *modules = PyImport_GetModuleDict();
    if (modules != NULL && PyDict_GetItemString(modules, "greenlet") != NULL) {
        atomic_store_explicit(&ep_py_greenlets, true, memory_order_relaxed);
    }
}

/* Pure memory reads. A package that is being imported allocates in its own code. */
static bool
is_of_file(PyCodeObject *code, const char *end)
{
    PyObject *file = code->co_filename;
    size_t bytes = strlen(end);
    return PyUnicode_KIND(file) == PyUnicode_1BYTE_KIND &&
           (size_t)PyUnicode_GET_LENGTH(file) >= bytes &&
           memcmp((char *)PyUnicode_DATA(file) + PyUnicode_GET_LENGTH(file) - bytes, end, bytes) == 0;
}

/* No C API in here: the text of a function that was never seen called waits for retrieval. */
static uint32_t
name_quietly(PyCodeObject *code)
{
    bool existed;
    uint32_t name = ep_name_add((uintptr_t)code, EP_TAG_PLAIN, NULL, code, &existed);
    if (name != 0 && !existed) {
        Py_INCREF(code);
        if (ep_names_are_told()) {
            with_code_text(code, NULL, sketch_name, &name);
        }
    }
    return name;
}

uint32_t
ep_py_frame_name_quietly(ep_frame *frame)
{
    PyThreadState *ts = ep_thread_state();
    PyCodeObject *code = ep_frame_code(frame);
    if (ts == NULL || ts->interp != own_interpreter || Py_REFCNT(code) <= 0) {
        return 0;
    }
    uint32_t id = ep_name_find((uintptr_t)code, EP_TAG_PLAIN);
    return id != 0 ? id : name_quietly(code);
}

uint32_t
ep_py_block_site_slow(ep_frame *frame)
{
    /* Allocators are the process's; but code of another interpreter must not be kept alive here. */
    PyThreadState *ts = ep_thread_state();
    if (ts == NULL || ts->interp != own_interpreter) {
        return 0;
    }
    frame = visible_frame(frame);
    if (frame == NULL) {
        return 0;
    }
    uintptr_t instruction = ep_frame_instruction(frame);
    uint32_t id = ep_site_find(0, instruction);
    PyCodeObject *code = ep_frame_code(frame);
    if (id != 0 || Py_REFCNT(code) <= 0) {
        return id;
    }
    if (EP_UNLIKELY(is_of_file(code, "/greenlet/__init__.py"))) {
        atomic_store_explicit(&ep_py_greenlets, true, memory_order_relaxed);
    }
    /* The first of its modules that works with the extension that has the arrays. */
    if (EP_UNLIKELY(atomic_load_explicit(&ep_py_numpy_awaited, memory_order_relaxed)) &&
        is_of_file(code, "/numpy/_core/overrides.py")) {
        ep_py_numpy_seen();
    }
    uint32_t name = name_quietly(code);
    if (name == 0) {
        return 0;
    }
    ep_site site = {.caller = name, .offset = (int32_t)ep_frame_offset(frame)};
    site.line = line_of(code, site.offset);
    return ep_site_add(0, instruction, &site);
}

/* ---- Other callables ------------------------------------------------------------------------- */

/* Returns: borrowed or, as *owned, new; NULL if there is none. */
static PyObject *
type_dict(PyTypeObject *type, PyObject **owned)
{
#if PY_VERSION_HEX >= 0x030C0000
    return *owned = PyType_GetDict(type);
#else
    *owned = NULL;
    return type->tp_dict;
#endif
}

/* The class in type's MRO whose dictionary holds the descriptor of `method`. */
static PyTypeObject *
owner_of_method(PyTypeObject *type, const PyMethodDef *method)
{
    PyObject *mro = type->tp_mro;
    for (Py_ssize_t i = 0; mro != NULL && i < PyTuple_GET_SIZE(mro); i++) {
        PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(mro, i);
        PyObject *owned, *dict = type_dict(base, &owned), *key, *value;
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
    PyObject *owned, *dict = type_dict(type, &owned);
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

/* `suffix` (may be NULL) goes behind the type's name: "dict" + ".update". */
static uint32_t
add_typed_name(PyTypeObject *type, const char *suffix, ep_name_kind kind, addition *add)
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
            add_name(&full, add);
        }
        if (name != stack) {
            free(name);
        }
    }
    clear_type_text(&text);
    return add->id;
}

/* Types die and their addresses come back. Every class already has a plain weak reference (its base
 * keeps one): sharing it costs no object and tells when the key is void. But it is a block of the
 * program's, whose free is an event like any other: not one for a hook, which is not heard while it is at
 * work, and whose own event has its time already. So references that we hold last are given back where a
 * recorder stops. Without a GIL they stay: another thread may be looking at one. */
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
        return !(type->tp_flags & Py_TPFLAGS_HEAPTYPE);    /* else it was given back */
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
    addition add = {.key = (uintptr_t)type, .tag = tag};
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

/* name 0 (no memory): the stand-in, so that the event still counts. */
static ep_callee
by_name(uint32_t name)
{
    name = name != 0 ? name : unknown_name;
    return (ep_callee){.key = ep_py_key_of_name(name), .name = name};
}

static ep_callee
typed_callee(PyTypeObject *type, uintptr_t tag)
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

static ep_callee
slot_wrapper_callee(PyWrapperDescrObject *wrapper)
{
    PyTypeObject *type = PyDescr_TYPE(wrapper);
    bool dies = type->tp_flags & Py_TPFLAGS_HEAPTYPE;
    uintptr_t key = (uintptr_t)wrapper->d_base, tag = dies ? EP_TAG_TYPE : (uintptr_t)type;
    uint32_t name = ep_name_find(key, tag);
    if (name == 0) {
        uint32_t busy = ep_py_enter_own();
        addition add = {.key = key, .tag = tag};
        char suffix[80];
        snprintf(suffix, sizeof suffix, ".%s", wrapper->d_base->name);
        if (dies) {
            ep_name_text text = {.qualname = c_text(suffix + 1), .line = -1, .kind = EP_NAME_C};
            add_name(&text, &add);
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
        addition add = {.key = (uintptr_t)ufunc->name, .tag = EP_TAG_UFUNC};
        ep_name_text text = {.qualname = c_text(ufunc->name),
                             .module = c_text("numpy"),
                             .line = -1,
                             .kind = EP_NAME_C};
        add_name(&text, &add);
        name = add.id;
    }
    return by_name(name);
}

/* A tag of the key of a name: of texts, which a key may not be. */
static uint64_t
hash_text(uint64_t hash, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ (unsigned char)text[i]) * UINT64_C(0x100000001B3);
    }
    return hash;
}

#define HASH_EMPTY UINT64_C(0xCBF29CE484222325)

static uintptr_t
text_tag(const char *text)
{
    return (uintptr_t)hash_text(HASH_EMPTY, text, strlen(text)) | UINT64_C(1) << 63;
}

static uintptr_t
two_texts_tag(ep_text first, ep_text second)
{
    uint64_t hash = hash_text(hash_text(HASH_EMPTY, first.at, first.bytes), ".", 1);
    return (uintptr_t)hash_text(hash, second.at, second.bytes) | UINT64_C(1) << 63;
}

static bool
is_of_cython(const PyTypeObject *type)
{
    /* Each version of Cython has types of its own, in a module of their own. */
    const char *dot = strrchr(type->tp_name, '.');
    const char *name = dot != NULL ? dot + 1 : type->tp_name;
    return (strcmp(name, "cython_function_or_method") == 0 ||
            strcmp(name, "fused_cython_function") == 0) &&
           type->tp_getattro == PyObject_GenericGetAttr;
}

/* Interned, and kept: the interpreter's cache of attributes holds the name that was asked for, and would
 * free a new one when the program is at work. A race makes one twice, as the same object. */
static PyObject *
kept_name(PyObject **kept, const char *name)
{
    if (*kept == NULL) {
        *kept = PyUnicode_InternFromString(name);
    }
    return *kept;
}

static PyObject *qualname_word, *module_word, *dict_word;

/* Whether asking for the attribute runs no code but the interpreter's and the type's in C: a class of that
 * name in Python could have a property. */
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
    /* The version of a type says all that is in it: the last one that was looked at. */
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

/* Whether an attribute is text. Returns: new, or NULL. No code of the program runs: Cython's functions have
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

/* By its own name: the key is the text, so that no object needs to live. */
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
        addition add = {.key = (uintptr_t)&key,
                        .tag = two_texts_tag(text.module, text.qualname)};
        name = ep_name_find(add.key, add.tag);
        if (name == 0) {
            add_name(&text, &add);
            name = add.id;
        }
    }
    free(name_heap);
    free(module_heap);
    Py_XDECREF(qualname);
    Py_XDECREF(module);
    ep_py_exception_restore(saved);
    ep_py_leave_own(busy);
    return name != 0 ? by_name(name) : typed_callee(Py_TYPE(callable), EP_TAG_INSTANCE);
}

ep_callee
ep_py_callee_slow(PyObject *callable)
{
    PyTypeObject *type = Py_TYPE(callable);
    if (PyType_Check(callable)) {
        return typed_callee((PyTypeObject *)callable, EP_TAG_TYPE);
    }
    if (PyCFunction_Check(callable)) {
        PyMethodDef *method = ((PyCFunctionObject *)callable)->m_ml;
        PyObject *self = ((PyCFunctionObject *)callable)->m_self;
        if (method == ep_py_new_method && self != NULL && PyType_Check(self)) {
            return typed_callee((PyTypeObject *)self, EP_TAG_NEW);
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
    return typed_callee(type, EP_TAG_INSTANCE);
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
    addition add = {.key = (uintptr_t)method, .tag = tag};
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
        add_name(&text, &add);
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
        if (image_of(method) != NULL) {
            return false;
        }
        (void)ep_name_add((uintptr_t)method, EP_TAG_VOLATILE, NULL, NULL, NULL);
    }
    *tag = text_tag(method->ml_name);
    return true;
}

/* The name of what has a method definition. */
static ep_callee
method_callee(PyObject *callable, PyMethodDef *method)
{
    if (is_own_method(method)) {
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
        ep_log_current->own_calls += 1;    /* a source calls us: the log is there */
        return EP_ID_SKIP;
    }
    return add_site(callee.key, callee.name, frame, instruction, 0);
}

uint32_t
ep_py_code_site_from(PyCodeObject *code, ep_frame *frame, ep_frame *caller)
{
    uint32_t name = frame_name(frame);
    if (name == EP_ID_SKIP) {
        return EP_ID_SKIP;
    }
    return code_site(code, name, frame, caller);
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
    return add_site(callee.key, callee.name, caller,
                    caller != NULL ? ep_frame_instruction(caller) : 0, 0);
}

/* ---- What is neither a call nor a block ------------------------------------------------------- */

bool
ep_py_is_own_interpreter(const PyThreadState *ts)
{
    return ts->interp == own_interpreter;
}

uint32_t
ep_py_place_slow(uint32_t name, ep_frame *frame)
{
    uint32_t busy = ep_py_enter_own();
    uint32_t id = add_site(ep_py_key_of_name(name), name, frame,
                           frame != NULL ? ep_frame_instruction(frame) : 0, 0);
    ep_py_leave_own(busy);
    return id;
}

uint32_t
ep_py_type_name(PyTypeObject *type)
{
    return typed_callee(type, EP_TAG_TYPE).name;
}

/* ---- Inside of functions --------------------------------------------------------------------- */

static uint32_t opcode_names[256];    /* 1 + string id; 0: none */

PyObject *
ep_py_set_opcode_names(PyObject *module, PyObject *names)
{
    (void)module;
    if (!PyTuple_Check(names)) {
        return PyErr_Format(PyExc_TypeError, "names must be a tuple, not %s", Py_TYPE(names)->tp_name);
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names) && i < 256; i++) {
        char stack[64], *heap;
        ep_text text = ep_py_text(PyTuple_GET_ITEM(names, i), stack, sizeof stack, &heap);
        uint32_t string = text.at != NULL ? ep_string_add(text) : EP_STRING_NONE;
        free(heap);
        opcode_names[i] = string + 1;    /* none: 0 */
    }
    Py_RETURN_NONE;
}

/* 1 + string id of what the compiler put there, whatever the interpreter made of it; 0: unknown. */
static uint32_t
opcode_name(PyCodeObject *code, Py_ssize_t offset)
{
    PyObject *bytes = PyCode_GetCode(code);    /* which the interpreter keeps: it is made once */
    uint32_t name = 0;
    if (bytes != NULL && offset >= 0 && offset < PyBytes_GET_SIZE(bytes)) {
        name = opcode_names[(unsigned char)PyBytes_AS_STRING(bytes)[offset]];
    }
    Py_XDECREF(bytes);
    return name;
}

bool
ep_py_is_spread_call(PyCodeObject *code, Py_ssize_t offset)
{
    switch ((unsigned char)ep_code_start(code)[offset]) {
        case CALL_FUNCTION_EX:
#ifdef INSTRUMENTED_CALL_FUNCTION_EX
        case INSTRUMENTED_CALL_FUNCTION_EX:
#endif
            return true;
        case CALL:
#ifdef INSTRUMENTED_CALL
        case INSTRUMENTED_CALL:
#endif
            return false;
        default:
            break;
    }
    /* Under line monitoring the opcode in place is a stand-in; the code's bytes say what for. */
    uint32_t busy = ep_py_enter_own();
    ep_py_exception saved = ep_py_exception_save();
    PyObject *bytes = PyCode_GetCode(code);    /* which the interpreter keeps: it is made once */
    bool is_spread = bytes != NULL && offset >= 0 && offset < PyBytes_GET_SIZE(bytes) &&
                     (unsigned char)PyBytes_AS_STRING(bytes)[offset] == CALL_FUNCTION_EX;
    Py_XDECREF(bytes);
    PyErr_Clear();
    ep_py_exception_restore(saved);
    ep_py_leave_own(busy);
    return is_spread;
}

/* The name of code that is running now, with its text. */
static uint32_t
name_of_running(PyCodeObject *code)
{
    uint32_t name = ep_py_code_name(code);
    if (name != 0 && name != EP_ID_SKIP && ep_name_get(name)->pending) {
        PyObject *globals = globals_of_running(code);
        if (globals != NULL) {
            (void)name_code(code, globals, name);
        }
    }
    return name;
}

static uint32_t
add_place(uintptr_t key, PyCodeObject *code, uintptr_t instruction)
{
    uint32_t name = name_of_running(code);
    if (name == 0 || name == EP_ID_SKIP) {
        return name;
    }
    uint32_t busy = ep_py_enter_own();
    ep_py_exception saved = ep_py_exception_save();
    ep_site site = {.caller = name, .offset = (int32_t)((char *)instruction - ep_code_start(code))};
    site.line = line_of(code, site.offset);
    site.task = key == EP_KEY_OPCODE ? opcode_name(code, site.offset) : 0;
    PyErr_Clear();
    ep_py_exception_restore(saved);
    ep_py_leave_own(busy);
    return ep_site_add(key, instruction, &site);
}

uint32_t
ep_py_place_site_slow(PyCodeObject *code, uintptr_t instruction)
{
    return add_place(0, code, instruction);
}

uint32_t
ep_py_opcode_site_slow(PyCodeObject *code, uintptr_t instruction)
{
    return add_place(EP_KEY_OPCODE, code, instruction);
}

uint32_t
ep_py_line_site(PyCodeObject *code, int line)
{
    /* No code object and no instruction is at such addresses. */
    uintptr_t key = (uintptr_t)code | 1, number = (uintptr_t)line << 1 | 1;
    uint32_t id = ep_site_find(key, number), name = id == 0 ? name_of_running(code) : 0;
    if (id != 0 || name == 0 || name == EP_ID_SKIP) {
        return id != 0 ? id : name;
    }
    ep_site site = {.caller = name, .offset = -1, .line = line};
    return ep_site_add(key, number, &site);
}

uint32_t
ep_py_exception_site(PyTypeObject *type, PyCodeObject *code, uintptr_t instruction)
{
    ep_callee callee = typed_callee(type, EP_TAG_TYPE);
    if (callee.name == EP_ID_SKIP) {
        return EP_ID_SKIP;
    }
    uint32_t id = ep_site_find(callee.key, instruction), name = id == 0 ? name_of_running(code) : 0;
    if (id != 0 || name == 0 || name == EP_ID_SKIP) {
        return id != 0 ? id : name;
    }
    ep_site site = {.callee = callee.name,
                    .caller = name,
                    .offset = (int32_t)((char *)instruction - ep_code_start(code))};
    uint32_t busy = ep_py_enter_own();
    site.line = line_of(code, site.offset);
    ep_py_leave_own(busy);
    return ep_site_add(callee.key, instruction, &site);
}

/* ---- Retrieval ------------------------------------------------------------------------------- */

/* file name -> module name, of what is imported. Returns: new, NULL with an exception. */
static PyObject *
modules_by_file(void)
{
    PyObject *by_file = PyDict_New();
    PyObject *modules = PyImport_GetModuleDict(), *name, *module;
    Py_ssize_t at = 0;
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
        with_code_text(code, module, describe_name, &described);
    }
    resolved = first_pending;
    Py_XDECREF(by_file);
    return PyErr_Occurred() ? -1 : 0;
}

static int
resolve(void)
{
    static size_t resolved = 1;
    uint32_t busy = ep_py_enter_own();    /* a log file's recorder runs already */
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

ep_frame *
ep_py_frame_at_resume(PyThreadState *ts)
{
    ep_frame *frame = ep_py_sites_usable ? ep_frame_of_program(ep_frame_current(ts)) : NULL;
    return frame != NULL && ep_frame_is_at_resume(frame) ? frame : NULL;
}

ep_open_call *
ep_py_open_calls(PyThreadState *ts, ep_thread *thread, const ep_frame *but, size_t *depth)
{
    *depth = 0;
    size_t count = 0;
    ep_frame *innermost = ep_py_sites_usable ? ep_frame_of_program(ep_frame_current(ts)) : NULL;
    if (innermost != NULL) {
        innermost = visible_frame(innermost == but ? ep_frame_previous(innermost) : innermost);
    }
    for (ep_frame *frame = innermost; frame != NULL; frame = visible_frame(ep_frame_previous(frame))) {
        count += 1;
    }
    ep_open_call *calls = calloc(count ? count : 1, sizeof *calls);
    if (calls == NULL) {
        return NULL;
    }
    const int generator = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;
    size_t at = count;
    for (ep_frame *frame = innermost; frame != NULL; frame = visible_frame(ep_frame_previous(frame))) {
        PyCodeObject *code = ep_frame_code(frame);
        at -= 1;
        calls[at].kind = code->co_flags & generator ? EP_KIND_RESUME : EP_KIND_CALL;
        calls[at].site_id = ep_py_code_site(code, frame);
        if (EP_UNLIKELY(ep_frame_is_at_resume(frame)) && thread != NULL &&
            calls[at].site_id != EP_ID_SKIP) {
            calls[at].doubted = true;
            ep_engine_doubt(thread, frame, calls[at].site_id);
        }
    }
    *depth = count;
    return calls;
}

/* Before a thread registers itself, its object is the first local of its outermost frame. */
static PyObject *
thread_of_bootstrap(ep_frame *frame)
{
    ep_frame *outermost = NULL;
    while (frame != NULL) {
        outermost = frame;
        frame = ep_frame_previous(frame);
    }
    if (outermost == NULL ||
        PyUnicode_CompareWithASCIIString(ep_frame_code(outermost)->co_name, "_bootstrap") != 0) {
        return NULL;
    }
    uintptr_t self = EP_FRAME_FIELD(outermost, uintptr_t, EP_FRAME_LOCALS);
#if PY_VERSION_HEX >= 0x030E0000
    self &= ~(uintptr_t)3;
#endif
    return (PyObject *)self;
}

static void
name_thread(ep_log *log)
{
    log->fresh &= ~EP_FRESH_NAMELESS;
    uint32_t busy = ep_py_enter_own();
    ep_py_exception saved = ep_py_exception_save();
    PyObject *modules = PyImport_GetModuleDict();
    PyObject *threading = modules != NULL ? ep_py_dict_get_text(modules, "threading") : NULL;
    PyObject *active = threading != NULL && PyModule_Check(threading)
                           ? ep_py_dict_get_text(PyModule_GetDict(threading), "_active")
                           : NULL;
    PyObject *ident = PyLong_FromUnsignedLong(PyThread_get_thread_ident());
    PyObject *thread = NULL;
    if (active != NULL && ident != NULL && PyDict_CheckExact(active)) {
        thread = ep_py_dict_get(active, ident);
    }
    if (thread == NULL) {
        thread = Py_XNewRef(thread_of_bootstrap(ep_py_frame_now()));
    }
    PyObject *name = thread != NULL ? PyObject_GenericGetAttr(thread, str_thread_name) : NULL;
    char stack[EP_THREAD_NAME_BYTES * 4], *heap;
    ep_thread_set_name(log->thread, ep_py_text(name, stack, sizeof stack, &heap));
    free(heap);
    Py_XDECREF(name);
    Py_XDECREF(thread);
    Py_XDECREF(ident);
    Py_XDECREF(active);
    Py_XDECREF(threading);
    PyErr_Clear();
    ep_py_exception_restore(saved);
    ep_py_leave_own(busy);
}

/* Which of the calls that were found at their entry the event that comes now is about: the interpreter
 * tells that such a call begins while it still stands there, and of anything else that it does only
 * after it went on. */
static void
settle_doubted(ep_log *log, ep_kind kind)
{
    ep_frame *frame = ep_py_frame_now();
    ep_frame *caller = frame != NULL ? ep_frame_previous(frame) : NULL;
    bool opens = kind == EP_KIND_CALL || kind == EP_KIND_RESUME;
    bool closes = kind == EP_KIND_RETURN || kind == EP_KIND_YIELD || kind == EP_KIND_UNWIND;
    ep_thread *thread = log->thread;
    for (uint32_t i = thread->doubted_count; i-- > 0;) {
        const void *doubted = thread->doubted[i].frame;
        if (doubted == frame && (opens || closes || !ep_frame_is_at_resume(frame))) {
            ep_engine_settle(thread, i, opens && ep_frame_is_at_resume(frame));
        } else if (doubted == caller && !ep_frame_is_at_resume(caller)) {
            ep_engine_settle(thread, i, false);
        }
    }
    if (thread->doubted_count == 0) {
        log->fresh &= ~EP_FRESH_DOUBTED;
    }
}

void
ep_py_see_to(ep_log *log, ep_kind kind)
{
    if (log->fresh & EP_FRESH_NAMELESS) {
        name_thread(log);
    }
    if (log->fresh & EP_FRESH_DOUBTED) {
        settle_doubted(log, kind);
    }
}

/* ---- Init ------------------------------------------------------------------------------------ */

static PyObject *
probe(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    ep_frame *frame = ep_frame_of_program(ep_frame_current(ep_thread_state()));
    PyCodeObject *code = (PyCodeObject *)PyEval_GetGlobals();    /* only to compare below */
    bool right = frame != NULL && (PyObject *)code == ep_frame_globals(frame);
    code = frame != NULL ? ep_frame_code(frame) : NULL;
    right = right && code != NULL && PyCode_Check(code) &&
            PyCode_Addr2Line(code, (int)ep_frame_offset(frame)) == 3 &&
            !ep_frame_is_incomplete(frame);
    ep_frame *caller = right ? ep_frame_previous(frame) : NULL;
    right = right && caller != NULL && PyCode_Check(ep_frame_code(caller)) &&
            PyCode_Addr2Line(ep_frame_code(caller), (int)ep_frame_offset(caller)) == 5;
    return PyBool_FromLong(right);
}

/* A call at a known line from a call at a known line, read through the frames. */
static int
check_frames(void)
{
    static PyMethodDef definition = {"probe", probe, METH_NOARGS, NULL};
    static const char program[] = "def inner(probe):\n"
                                  "    unused = 1\n"
                                  "    return probe()\n"
                                  "\n"
                                  "right = inner(probe)\n";
    PyObject *globals = PyDict_New();
    PyObject *function = PyCFunction_New(&definition, NULL);
    PyObject *result = NULL;
    if (globals != NULL && function != NULL &&
        PyDict_SetItemString(globals, "__builtins__", PyEval_GetBuiltins()) == 0 &&
        PyDict_SetItemString(globals, "probe", function) == 0) {
        result = PyRun_String(program, Py_file_input, globals, globals);
    }
    if (result != NULL) {
        PyObject *right = ep_py_dict_get_text(globals, "right");
        ep_py_sites_usable = right == Py_True;
        Py_XDECREF(right);
    }
    int status = result != NULL ? 0 : -1;
    Py_XDECREF(result);
    Py_XDECREF(function);
    Py_XDECREF(globals);
    return status;
}

int
ep_py_intern_init(void)
{
    own_interpreter = PyInterpreterState_Get();
    (void)dl_iterate_phdr(visit_image, NULL);
    str_name = PyUnicode_InternFromString("__name__");
    str_module = PyUnicode_InternFromString("__module__");
    str_thread_name = PyUnicode_InternFromString("_name");
    if (str_name == NULL || str_module == NULL || str_thread_name == NULL) {
        return -1;
    }
    PyObject *new_function = PyObject_GetAttrString((PyObject *)&PyBaseObject_Type, "__new__");
    if (new_function == NULL) {
        return -1;
    }
    ep_py_new_method = ((PyCFunctionObject *)new_function)->m_ml;
    Py_DECREF(new_function);
    ep_name_text unknown = {.qualname = c_text("?"), .line = -1, .kind = EP_NAME_OBJECT};
    unknown_name = ep_name_add((uintptr_t)&unknown_name, EP_TAG_PLAIN, &unknown, NULL, NULL);
    return ep_py_tasks_init() < 0 ? -1 : check_frames();
}
