/* The interpreter's hooks with nothing in them: what any recorder pays before it does anything.
 *
 * Compiled by empty_hooks.py. Same mechanisms and same events as eventprof's own sources: a profile
 * function, monitoring callbacks with their own vectorcall, wrappers around the three allocator
 * domains and behind the shim of the C library's. */
#include <Python.h>
#include <structmember.h>

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "../python/src/hooks/shim.h"

#if defined(__has_include)
#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#endif
#endif

/* What the clock alone costs in a hook: 0-2 ns where it overlaps with the interpreter's work (Zen
 * 5), 10-16 where it does not (Xeon, in a virtual machine). Read in every hook if `clocked`. */
static volatile uint64_t last_ticks;
static int clocked;

static inline void
read_clock(void)
{
    if (clocked) {
#if defined(__x86_64__)
        last_ticks = __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
        uint64_t ticks;
        __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
        last_ticks = ticks;
#endif
    }
}

static PyObject *
set_clocked(PyObject *self, PyObject *flag)
{
    (void)self;
    clocked = PyObject_IsTrue(flag);
    Py_RETURN_NONE;
}

/* ---- PyEval_SetProfile ----------------------------------------------------------------------- */

static int
empty_profile(PyObject *self, PyFrameObject *frame, int what, PyObject *argument)
{
    (void)self;
    (void)frame;
    (void)what;
    (void)argument;
    read_clock();
    return 0;
}

static PyObject *
profile_start(PyObject *self, PyObject *unused)
{
    (void)unused;
    PyEval_SetProfile(empty_profile, self);
    Py_RETURN_NONE;
}

static PyObject *
profile_stop(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    PyEval_SetProfile(NULL, NULL);
    Py_RETURN_NONE;
}

/* ---- PyEval_SetTrace ------------------------------------------------------------------------- */

static int opcodes_asked;

static int
empty_trace(PyObject *self, PyFrameObject *frame, int what, PyObject *argument)
{
    (void)self;
    (void)argument;
    if (what == PyTrace_CALL && opcodes_asked) {
        PyObject_SetAttrString((PyObject *)frame, "f_trace_opcodes", Py_True);
    }
    read_clock();
    return 0;
}

static PyObject *
trace_start(PyObject *self, PyObject *opcodes)
{
    opcodes_asked = PyObject_IsTrue(opcodes);
    PyEval_SetTrace(empty_trace, self);
    Py_RETURN_NONE;
}

static PyObject *
trace_stop(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    PyEval_SetTrace(NULL, NULL);
    Py_RETURN_NONE;
}

/* ---- Monitoring ------------------------------------------------------------------------------ */

typedef struct callback_object {
    PyObject_HEAD
    vectorcallfunc vectorcall;
} callback_object;

static PyObject *
empty_callback(PyObject *self, PyObject *const *args, size_t count, PyObject *names)
{
    (void)self;
    (void)args;
    (void)count;
    (void)names;
    read_clock();
    Py_RETURN_NONE;
}

static PyMemberDef callback_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET,
     offsetof(callback_object, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot callback_slots[] = {
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, callback_members},
    {0, NULL},
};

static PyType_Spec callback_spec = {
    .name = "empty_hooks.Callback",
    .basicsize = sizeof(callback_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = callback_slots,
};

/* A callback for sys.monitoring.register_callback. */
static PyObject *
monitoring_callback(PyObject *self, PyObject *unused)
{
    static PyTypeObject *type;
    (void)self;
    (void)unused;
    if (type == NULL) {
        type = (PyTypeObject *)PyType_FromSpec(&callback_spec);
    }
    callback_object *made = type != NULL ? PyObject_New(callback_object, type) : NULL;
    if (made != NULL) {
        made->vectorcall = empty_callback;
    }
    return (PyObject *)made;
}

/* ---- Allocators ------------------------------------------------------------------------------ */

static PyMemAllocatorEx below[3];

static void *
empty_malloc(void *context, size_t size)
{
    const PyMemAllocatorEx *next = context;
    read_clock();
    return next->malloc(next->ctx, size);
}

static void *
empty_calloc(void *context, size_t count, size_t size)
{
    const PyMemAllocatorEx *next = context;
    read_clock();
    return next->calloc(next->ctx, count, size);
}

static void *
empty_realloc(void *context, void *block, size_t size)
{
    const PyMemAllocatorEx *next = context;
    read_clock();
    return next->realloc(next->ctx, block, size);
}

static void
empty_free(void *context, void *block)
{
    const PyMemAllocatorEx *next = context;
    read_clock();
    next->free(next->ctx, block);
}

static PyObject *
allocators_start(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    for (int domain = 0; domain < 3; domain++) {
        PyMemAllocatorEx hook = {&below[domain], empty_malloc, empty_calloc, empty_realloc,
                                 empty_free};
        PyMem_GetAllocator((PyMemAllocatorDomain)domain, &below[domain]);
        PyMem_SetAllocator((PyMemAllocatorDomain)domain, &hook);
    }
    Py_RETURN_NONE;
}

static PyObject *
allocators_stop(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    for (int domain = 0; domain < 3; domain++) {
        PyMem_SetAllocator((PyMemAllocatorDomain)domain, &below[domain]);
    }
    Py_RETURN_NONE;
}

/* ---- The C library's allocator, behind the preloaded shim ------------------------------------ */

static ep_shim *shim;

static void *
empty_native_malloc(size_t size, const void *caller)
{
    (void)caller;
    read_clock();
    return shim->below.malloc(size);
}

static void *
empty_native_calloc(size_t count, size_t size, const void *caller)
{
    (void)caller;
    read_clock();
    return shim->below.calloc(count, size);
}

static void *
empty_native_realloc(void *old, size_t size, const void *caller)
{
    (void)caller;
    read_clock();
    return shim->below.realloc(old, size);
}

static void
empty_native_free(void *block, const void *caller)
{
    (void)caller;
    read_clock();
    shim->below.free(block);
}

static void *
empty_native_ask(const void *caller)
{
    (void)caller;
    return NULL;
}

static void *
empty_native_ask_pages(void *from, size_t bytes, ep_shim_pages how, const void *caller)
{
    (void)from;
    (void)bytes;
    (void)how;
    (void)caller;
    return NULL;
}

/* While nobody records there. */
static PyObject *
native_start(PyObject *self, PyObject *unused)
{
    static const ep_shim_hooks hooks = {
        .malloc = empty_native_malloc,
        .calloc = empty_native_calloc,
        .realloc = empty_native_realloc,
        .free = empty_native_free,
        .ask = empty_native_ask,
        .ask_pages = empty_native_ask_pages,
    };
    (void)self;
    (void)unused;
    shim = dlsym(RTLD_DEFAULT, EP_SHIM_SYMBOL);
    if (shim == NULL || shim->version != EP_SHIM_VERSION) {
        PyErr_SetString(PyExc_RuntimeError, "the shim is not preloaded");
        return NULL;
    }
    atomic_store_explicit(&shim->hooks, &hooks, memory_order_release);
    Py_RETURN_NONE;
}

static PyObject *
native_stop(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    atomic_store_explicit(&shim->hooks, NULL, memory_order_release);
    Py_RETURN_NONE;
}

/* native_blocks(count): as many blocks of the C library, each freed at once; with the GIL. */
static PyObject *
native_blocks(PyObject *self, PyObject *count)
{
    (void)self;
    long blocks = PyLong_AsLong(count);
    for (long i = 0; i < blocks; i++) {
        char *volatile block = malloc(48);    /* or the compiler sees that nobody needs it */
        free(block);
    }
    Py_RETURN_NONE;
}

/* ---- Instructions, counted by callgrind ------------------------------------------------------ */

#ifdef CALLGRIND_ZERO_STATS
/* measure(name, run, argument): calls run(argument), and has callgrind write what that took as a
 * part of its own. The counts of other threads are in other parts. */
static PyObject *
measure(PyObject *self, PyObject *args)
{
    const char *name;
    PyObject *run, *argument;
    (void)self;
    if (!PyArg_ParseTuple(args, "sOO", &name, &run, &argument)) {
        return NULL;
    }
    /* Once and for all: each start makes callgrind translate the whole interpreter again. */
    static bool counting;
    if (!counting) {
        CALLGRIND_START_INSTRUMENTATION;
        counting = true;
    }
    CALLGRIND_ZERO_STATS;
    PyObject *result = PyObject_CallOneArg(run, argument);
    CALLGRIND_DUMP_STATS_AT(name);
    return result;
}
#else
static PyObject *
measure(PyObject *self, PyObject *args)
{
    (void)self;
    (void)args;
    PyErr_SetString(PyExc_NotImplementedError, "compiled without valgrind/callgrind.h");
    return NULL;
}
#endif

/* ---- Module ---------------------------------------------------------------------------------- */

static PyMethodDef functions[] = {
    {"set_clocked", set_clocked, METH_O, NULL},
    {"profile_start", profile_start, METH_NOARGS, NULL},
    {"profile_stop", profile_stop, METH_NOARGS, NULL},
    {"trace_start", trace_start, METH_O, NULL},
    {"trace_stop", trace_stop, METH_NOARGS, NULL},
    {"monitoring_callback", monitoring_callback, METH_NOARGS, NULL},
    {"allocators_start", allocators_start, METH_NOARGS, NULL},
    {"allocators_stop", allocators_stop, METH_NOARGS, NULL},
    {"native_start", native_start, METH_NOARGS, NULL},
    {"native_stop", native_stop, METH_NOARGS, NULL},
    {"native_blocks", native_blocks, METH_O, NULL},
    {"measure", measure, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "empty_hooks",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC
PyInit_empty_hooks(void)
{
    return PyModule_Create(&module);
}
