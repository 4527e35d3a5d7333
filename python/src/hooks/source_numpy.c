/* The source of NumPy's array data: domain numpy.
 *
 * Which allocator an array has is a property of the array (NEP 49): it holds a capsule with the
 * functions, taken from a context variable when it is made. Threads and contexts that set nothing, that
 * is nearly all, share one capsule, the default one. Its functions are exchanged in place: so every
 * thread, every context and the arrays that are there already are seen, none of them is asked to do
 * anything, and putting the functions back is exact. (A handler of our own in the context variable,
 * which is NEP 49's way, would be seen by one context and its copies: threads start without it.)
 *
 * A handler of somebody else's is wrapped: the one of the context that starts the recording, then, and
 * each that is set while it runs, wherever (NumPy's table of functions has ours for that). Arrays keep a
 * wrapper for life; it lives as long as they do, and passes through once nothing records. Contexts that
 * had such a handler before the recording began keep it unseen.
 *
 * Up to NumPy 2.4 the data comes from the C library, later from the RAW domain; blocks below 1 KiB from
 * NumPy's own cache. All of it goes through these functions, so it is written down here, once: the
 * thread's busy flag keeps the allocator below from doing it again, but for a recorder that has that one's
 * domain and not this one (ep_py_blocks_inside).
 *
 * A handler may be written in Python (by ctypes, for one). That is code of the program: what it allocates
 * and frees is recorded as elsewhere, and a collection that runs in it frees any block. */
#include "compat.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <numpy/arrayobject.h>

#include "engine.h"
#include "intern.h"
#include "memory.h"
#include "source.h"

#define CAPSULE_NAME "mem_handler"
/* Where they are in NumPy's table of functions. */
#define SLOT_SET_HANDLER 304

/* Somebody's handler with our functions around it. */
typedef struct wrapper {
    PyDataMem_Handler own;
    PyDataMem_Handler below;    /* copy */
    PyObject *below_capsule;    /* held: it may own what `below` needs */
    bool is_program;            /* it may be written in Python */
} wrapper;

static _Atomic bool recording;
static bool installed;                       /* under the GIL, as all but `recording` */
static PyDataMem_Handler *default_handler;   /* NumPy's; NULL: not loaded yet */
static PyDataMemAllocator first_below;       /* its functions as they were; written once */
static PyObject *(*set_handler_below)(PyObject *);    /* NumPy's own; written once */

/* The thread is in a handler that may be written in Python: the block that it is to free or to move,
 * NEW_BLOCK if it is to make one. 0: it is in none. */
#define NEW_BLOCK 1
static _Thread_local uintptr_t handled;

/* ---- Hooks ----------------------------------------------------------------------------------- */

/* What such a handler asks of another handler is the same block. What it frees beside is another one. */
static inline bool
is_handlers_own(ep_kind kind, const void *block)
{
    return handled != 0 && (kind != EP_KIND_FREE_NUMPY || (uintptr_t)block == handled);
}

/* HOT. The log to write to, with its busy flag set; NULL: pass through. block: what is freed or moved. */
static ep_log *
enter(ep_kind kind, const void *block)
{
    if (!atomic_load_explicit(&recording, memory_order_relaxed) ||
        EP_UNLIKELY(is_handlers_own(kind, block))) {
        return NULL;
    }
    ep_log *log = ep_log_mine();
    if (EP_UNLIKELY(log == NULL)) {
        ep_engine_count_unlogged(kind);
        return NULL;
    }
    /* Not of a handler that asks another one. */
    return ep_py_enter_allocator(log, EP_DOMAIN_NUMPY) ? log : NULL;
}

static inline bool
is_in_own_code(void)
{
    return atomic_load_explicit(&recording, memory_order_relaxed) && ep_log_current != NULL &&
           ep_py_lists_own_blocks(ep_log_current);
}

/* In code that runs beside the program (ep_py_mute_calls): what it allocates is an event. */
static inline bool
is_beside(void)
{
    return is_in_own_code() && ep_log_current->own_is_recorded;
}

/* Where the thread was before a handler was called. */
typedef struct outside {
    uint32_t busy;
    uintptr_t handled;
} outside;

static inline outside
begin_below(ep_log *log, bool is_program, const void *block)
{
    outside before = {log->busy, handled};
    ep_py_begin_below(log);
    if (EP_UNLIKELY(is_program)) {
        log->busy &= ~EP_BUSY_IN(EP_DOMAIN_NUMPY);
        handled = block != NULL ? (uintptr_t)block : NEW_BLOCK;
    }
    return before;
}

static inline void
end_below(ep_log *log, outside before)
{
    log->busy = before.busy;
    handled = before.handled;
}

static void
put_block(ep_log *log, ep_kind kind, size_t size, void *block)
{
    uint32_t site = ep_py_block_site(ep_py_attached_state());
    uint32_t within = EP_BUSY_AROUND(log->busy, EP_DOMAIN_NUMPY);
    if (EP_UNLIKELY(within != 0)) {
        ep_log_put_block_within(log, ep_clock_ticks(), kind, size, (uintptr_t)block, site, within);
    } else {
        ep_log_put_block(log, ep_clock_ticks(), kind, size, (uintptr_t)block, site);
    }
}

static void
put_free(ep_log *log, ep_kind kind, void *block)
{
    uint32_t site = ep_py_block_site(ep_py_attached_state());
    uint32_t within = EP_BUSY_AROUND(log->busy, EP_DOMAIN_NUMPY);
    if (EP_UNLIKELY(within != 0)) {
        ep_log_put_free_within(log, ep_clock_ticks(), kind, site, (uintptr_t)block, within);
    } else {
        ep_log_put_free(log, ep_clock_ticks(), kind, site, (uintptr_t)block);
    }
}

static void *
hook_malloc(const PyDataMemAllocator *below, bool is_program, size_t size)
{
    ep_log *log = enter(EP_KIND_MALLOC_NUMPY, NULL);
    if (log == NULL && is_beside()) {
        ep_py_begin_event(ep_log_current);
        void *made = hook_malloc(below, is_program, size);
        ep_py_end_event(ep_log_current);
        return made;
    }
    if (log == NULL) {
        return below->malloc(below->ctx, size);
    }
    outside before = begin_below(log, is_program, NULL);
    void *block = below->malloc(below->ctx, size);
    end_below(log, before);
    if (block != NULL) {
        put_block(log, EP_KIND_MALLOC_NUMPY, size, block);
    }
    ep_py_leave_allocator(log, EP_DOMAIN_NUMPY);
    return block;
}

static void *
hook_calloc(const PyDataMemAllocator *below, bool is_program, size_t count, size_t size)
{
    ep_log *log = enter(EP_KIND_CALLOC_NUMPY, NULL);
    if (log == NULL && is_beside()) {
        ep_py_begin_event(ep_log_current);
        void *made = hook_calloc(below, is_program, count, size);
        ep_py_end_event(ep_log_current);
        return made;
    }
    if (log == NULL) {
        return below->calloc(below->ctx, count, size);
    }
    outside before = begin_below(log, is_program, NULL);
    void *block = below->calloc(below->ctx, count, size);
    end_below(log, before);
    if (block != NULL) {
        put_block(log, EP_KIND_CALLOC_NUMPY, count * size, block);
    }
    ep_py_leave_allocator(log, EP_DOMAIN_NUMPY);
    return block;
}

/* The old block's record before the real call, because afterwards another thread may be given its
 * address; the new one's after it. */
static void *
hook_realloc(const PyDataMemAllocator *below, bool is_program, void *old, size_t size)
{
    ep_log *log = enter(EP_KIND_REALLOC_NUMPY, old);
    if (log == NULL && is_beside()) {
        ep_py_begin_event(ep_log_current);
        void *made = hook_realloc(below, is_program, old, size);
        ep_py_end_event(ep_log_current);
        return made;
    }
    if (log == NULL) {
        return below->realloc(below->ctx, old, size);
    }
    if (old != NULL) {
        put_free(log, EP_KIND_REALLOC_FREE_NUMPY, old);
    }
    outside before = begin_below(log, is_program, old);
    void *block = below->realloc(below->ctx, old, size);
    end_below(log, before);
    if (block != NULL) {
        put_block(log, old != NULL ? EP_KIND_REALLOC_NUMPY : EP_KIND_MALLOC_NUMPY, size, block);
    } else if (old != NULL) {
        put_block(log, EP_KIND_REALLOC_FAILED_NUMPY, size, old);
    }
    ep_py_leave_allocator(log, EP_DOMAIN_NUMPY);
    return block;
}

static void
hook_free(const PyDataMemAllocator *below, bool is_program, void *block, size_t size)
{
    ep_log *log = block != NULL ? enter(EP_KIND_FREE_NUMPY, block) : NULL;
    if (log == NULL) {
        if (block != NULL && is_in_own_code()) {
            /* Our own code makes no arrays: this one is the program's. */
            ep_py_begin_event(ep_log_current);
            hook_free(below, is_program, block, size);
            ep_py_end_event(ep_log_current);
        } else {
            below->free(below->ctx, block, size);
        }
        return;
    }
    put_free(log, EP_KIND_FREE_NUMPY, block);
    outside before = begin_below(log, is_program, block);
    below->free(below->ctx, block, size);
    end_below(log, before);
    ep_py_leave_allocator(log, EP_DOMAIN_NUMPY);
}

/* Of the default handler. Its context stays NumPy's own, so that no caller meets one with the functions
 * of the other. */
#define HOOKS(name, BELOW, IS_PROGRAM)                                   \
    static void *name##_malloc(void *context, size_t size)               \
    {                                                                    \
        (void)context;                                                   \
        return hook_malloc(BELOW, IS_PROGRAM, size);                     \
    }                                                                    \
    static void *name##_calloc(void *context, size_t count, size_t size) \
    {                                                                    \
        (void)context;                                                   \
        return hook_calloc(BELOW, IS_PROGRAM, count, size);              \
    }                                                                    \
    static void *name##_realloc(void *context, void *old, size_t size)   \
    {                                                                    \
        (void)context;                                                   \
        return hook_realloc(BELOW, IS_PROGRAM, old, size);               \
    }                                                                    \
    static void name##_free(void *context, void *block, size_t size)     \
    {                                                                    \
        (void)context;                                                   \
        hook_free(BELOW, IS_PROGRAM, block, size);                       \
    }

HOOKS(default, &first_below, false)
HOOKS(wrapped, &((wrapper *)context)->below.allocator, ((wrapper *)context)->is_program)

/* ---- Handlers of others ---------------------------------------------------------------------- */

static void
free_wrapper(PyObject *capsule)
{
    wrapper *own = PyCapsule_GetPointer(capsule, CAPSULE_NAME);
    Py_XDECREF(own->below_capsule);
    ep_free(own);
}

/* Returns: the wrapper in a capsule; NULL: it holds something else. */
static wrapper *
wrapper_in(PyObject *capsule)
{
    if (!PyCapsule_CheckExact(capsule) || PyCapsule_GetDestructor(capsule) != free_wrapper) {
        PyErr_Clear();
        return NULL;
    }
    return PyCapsule_GetPointer(capsule, CAPSULE_NAME);
}

/* Whether it is a handler that we do not see: neither the default one nor one of ours. Something that
 * is no handler is for NumPy to refuse. */
static bool
is_foreign(PyObject *capsule)
{
    return capsule != NULL && PyCapsule_IsValid(capsule, CAPSULE_NAME) &&
           PyCapsule_GetPointer(capsule, CAPSULE_NAME) != default_handler &&
           wrapper_in(capsule) == NULL;
}

/* Whether one of them is in no library: then it was made at run time, as ctypes does for one in Python.
 * Limitation: C code in a library that runs Python (Cython's, with the lock) is not recognised. */
static bool
is_made_at_run_time(const PyDataMemAllocator *functions)
{
    const void *addresses[4];
    _Static_assert(sizeof addresses == sizeof *functions - offsetof(PyDataMemAllocator, malloc),
                   "a context, then four functions");
    memcpy(addresses, &functions->malloc, sizeof addresses);
    Dl_info info;
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        if (dladdr(addresses[i], &info) == 0) {
            return true;
        }
    }
    return false;
}

/* Returns: new; NULL: no memory, exception set. */
static PyObject *
wrap(PyObject *capsule)
{
    const PyDataMem_Handler *below = PyCapsule_GetPointer(capsule, CAPSULE_NAME);
    wrapper *own = ep_calloc(1, sizeof *own);
    PyObject *wrapped = own != NULL ? PyCapsule_New(own, CAPSULE_NAME, free_wrapper) : NULL;
    if (wrapped == NULL) {
        ep_free(own);
        return own == NULL ? PyErr_NoMemory() : NULL;
    }
    own->below = *below;
    own->below_capsule = Py_NewRef(capsule);
    own->is_program = is_made_at_run_time(&below->allocator);
    own->own = *below;    /* its name and version */
    own->own.allocator =
        (PyDataMemAllocator){own, wrapped_malloc, wrapped_calloc, wrapped_realloc, wrapped_free};
    return wrapped;
}

/* In place of NumPy's PyDataMem_SetHandler(). Returns: new, as that. */
static PyObject *
set_handler(PyObject *handler)
{
    if (!atomic_load_explicit(&recording, memory_order_relaxed) || !is_foreign(handler)) {
        return set_handler_below(handler);
    }
    PyObject *wrapped = wrap(handler);
    if (wrapped == NULL) {
        PyErr_Clear();
        return set_handler_below(handler);    /* unseen, and working */
    }
    PyObject *before = set_handler_below(wrapped);
    Py_DECREF(wrapped);
    return before;
}

/* Puts a wrapper around the handler of this context, or takes it away. Never fails: a handler that
 * cannot be wrapped works on unseen. */
static void
exchange_in_context(bool wrapping)
{
    PyObject *now = PyDataMem_GetHandler();
    PyObject *then = NULL;
    if (now != NULL && wrapping && is_foreign(now)) {
        then = wrap(now);
    } else if (now != NULL && !wrapping && wrapper_in(now) != NULL) {
        then = Py_NewRef(wrapper_in(now)->below_capsule);
    }
    PyObject *before = then != NULL ? set_handler_below(then) : NULL;
    Py_XDECREF(before);
    Py_XDECREF(then);
    Py_XDECREF(now);
    PyErr_Clear();
}

/* ---- In and out ------------------------------------------------------------------------------ */

/* Finds NumPy if it is loaded, without importing anything. */
static bool
find_numpy(void)
{
    if (default_handler != NULL) {
        return true;
    }
    PyObject *modules = ep_py_modules();
    PyObject *module =
        modules != NULL ? ep_py_dict_get_text(modules, "numpy._core._multiarray_umath") : NULL;
    PyObject *capsule = module != NULL && PyModule_Check(module)
                            ? ep_py_dict_get_text(PyModule_GetDict(module), "_ARRAY_API")
                            : NULL;
    void **table = capsule != NULL && PyCapsule_CheckExact(capsule)
                       ? PyCapsule_GetPointer(capsule, NULL)
                       : NULL;
    if (table != NULL) {
        PyArray_API = table;
        PyObject *handler = PyDataMem_DefaultHandler;    /* NULL: it is being loaded */
        default_handler = handler != NULL ? PyCapsule_GetPointer(handler, CAPSULE_NAME) : NULL;
    }
    Py_XDECREF(capsule);
    Py_XDECREF(module);
    PyErr_Clear();
    return default_handler != NULL;
}

/* If another tool came in between, it stays: it may call the functions that it found, which pass the
 * call on or record it. */
static void
exchange_alone(void *unused)
{
    (void)unused;
    static const PyDataMemAllocator hooks = {NULL, default_malloc, default_calloc, default_realloc,
                                             default_free};
    PyObject *(*const set_handler_hook)(PyObject *) = set_handler;
    const PyDataMemAllocator *from = installed ? &first_below : &hooks;
    const PyDataMemAllocator *to = installed ? &hooks : &first_below;
    PyDataMemAllocator *now = &default_handler->allocator;
    if (now->malloc == from->malloc) {
        now->malloc = to->malloc;
        now->calloc = to->calloc;
        now->realloc = to->realloc;
        now->free = to->free;
    }
    void *slot = &PyArray_API[SLOT_SET_HANDLER];
    const void *slot_from = installed ? (const void *)&set_handler_below : &set_handler_hook;
    const void *slot_to = installed ? (const void *)&set_handler_hook : &set_handler_below;
    if (memcmp(slot, slot_from, sizeof(void *)) == 0) {
        memcpy(slot, slot_to, sizeof(void *));
    }
}

static void
put_in(void)
{
    if (installed || !find_numpy()) {
        return;
    }
    if (first_below.malloc == NULL) {
        first_below = default_handler->allocator;
        memcpy(&set_handler_below, &PyArray_API[SLOT_SET_HANDLER], sizeof set_handler_below);
    }
    installed = true;
    ep_py_alone(exchange_alone, NULL);
    exchange_in_context(true);
}

static void
take_out(void)
{
    if (!installed) {
        return;
    }
    exchange_in_context(false);
    installed = false;
    ep_py_alone(exchange_alone, NULL);
}

static bool
owns(void)
{
    return !installed || default_handler->allocator.malloc == default_malloc;
}

static int look_again(void *unused);

/* In an allocator hook: some file of NumPy's runs. */
static void
numpy_seen(void)
{
    atomic_store_explicit(&ep_py_numpy_awaited, NULL, memory_order_relaxed);
    if (Py_AddPendingCall(look_again, NULL) != 0) {    /* too many are pending: at the next site */
        atomic_store_explicit(&ep_py_numpy_awaited, numpy_seen, memory_order_relaxed);
    }
}

static void
await_numpy(bool awaited)
{
    atomic_store_explicit(&ep_py_numpy_awaited, awaited ? numpy_seen : NULL, memory_order_relaxed);
}

/* Called by the interpreter, when it is safe. */
static int
look_again(void *unused)
{
    (void)unused;
    uint32_t busy = ep_py_enter_own();
    ep_py_exception saved = ep_py_exception_save();
    if (atomic_load_explicit(&recording, memory_order_relaxed)) {
        put_in();
        await_numpy(!installed);
    }
    ep_py_exception_restore(saved);
    ep_py_leave_own(busy);
    return 0;
}

static int
adjust(ep_kind_set kinds)
{
    atomic_store_explicit(&recording, kinds != 0, memory_order_relaxed);
    if (kinds != 0) {
        put_in();
    } else {
        take_out();
    }
    await_numpy(kinds != 0 && !installed);
    return 0;
}

const ep_source ep_source_numpy = {
    .name = "numpy",
    .kinds = ep_kinds_numpy,
    .adjust = adjust,
    .owns = owns,
};
