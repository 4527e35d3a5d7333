/* Finds where the interpreter keeps the current thread state, so that hooks can read it without a call.
 *
 * 3.12 and later: a thread-local variable that libpython does not export; its accessor costs an
 * extension two calls (itself and __tls_get_addr), 0.5 to 1 ns an event. libpython's TLS has a few words,
 * and the variable is one of them; each assumption is tested. If a test fails, the offset stays 0 and the
 * accessor is called. */
#include "compat.h"

#include <string.h>

ptrdiff_t ep_thread_state_offset;

#if EP_THREAD_STATE_IS_LOCAL

#include <link.h>
#include <pthread.h>
#include <signal.h>

/* The accessor's image, and its TLS block on the calling thread. */
typedef struct image {
    char *block;    /* NULL: none, or not made yet (then it is not at a fixed place) */
    size_t bytes;
} image;

static int
visit_image(struct dl_phdr_info *info, size_t info_bytes, void *context)
{
    uintptr_t accessor = (uintptr_t)&PyThreadState_Get;
    bool found = false;
    size_t bytes = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        size_t extent = info->dlpi_phdr[i].p_memsz;
        found = found || (info->dlpi_phdr[i].p_type == PT_LOAD && accessor - start < extent);
        bytes = info->dlpi_phdr[i].p_type == PT_TLS ? extent : bytes;
    }
    if (!found) {
        return 0;
    }
    if (info_bytes >= offsetof(struct dl_phdr_info, dlpi_tls_data) + sizeof(void *)) {
        *(image *)context = (image){.block = info->dlpi_tls_data, .bytes = bytes};
    }
    return 1;
}

static image
image_of_accessor(void)
{
    image found = {NULL, 0};
    (void)dl_iterate_phdr(visit_image, &found);
    return found;
}

/* `context`: of the variable in the block; -1 unless it is where it should be on this thread, too:
 * as far from the thread pointer, and NULL, as this thread is not Python's. */
static void *
check_on_thread(void *context)
{
    ptrdiff_t *place = context;
    image own = image_of_accessor();
    if (own.block == NULL || own.block + *place - ep_thread_pointer() != ep_thread_state_offset ||
        ep_thread_state_read() != NULL) {
        *place = -1;
    }
    return NULL;
}

void
ep_thread_state_find(void)
{
    PyThreadState *now = PyThreadState_Get();
    image python = image_of_accessor();
    ptrdiff_t place = -1;
    if (python.block == NULL || python.bytes > 4096) {
        return;
    }
    for (size_t at = 0; at + sizeof now <= python.bytes; at += sizeof now) {
        PyThreadState *const volatile *word = (void *)(python.block + at);
        if (*word != now) {
            continue;
        }
        /* Without the GIL the word is NULL, and with the GIL it is our thread state again; no other word
         * does that. */
        (void)PyEval_SaveThread();
        bool cleared = *word == NULL;
        PyEval_RestoreThread(now);
        if (cleared && *word == now && place >= 0) {
            return;
        }
        place = cleared && *word == now ? (ptrdiff_t)at : place;
    }
    if (place < 0) {
        return;
    }
    ep_thread_state_offset = python.block + place - ep_thread_pointer();
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool tried = pthread_create(&thread, NULL, check_on_thread, &place) == 0 &&
                 pthread_join(thread, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!tried || place < 0 || ep_thread_state_read() != now) {
        ep_thread_state_offset = 0;
    }
}

#else

void
ep_thread_state_find(void)
{
}

#endif

#if EP_GIL_DISABLED

#if PY_VERSION_HEX >= 0x030E0000

/* Exported, declared in an internal header only. */
PyAPI_FUNC(void) _PyEval_StopTheWorld(PyInterpreterState *interpreter);
PyAPI_FUNC(void) _PyEval_StartTheWorld(PyInterpreterState *interpreter);

void
ep_py_alone(void (*then)(void *), void *context)
{
    _PyEval_StopTheWorld(PyInterpreterState_Get());
    then(context);
    _PyEval_StartTheWorld(PyInterpreterState_Get());
}

#else

typedef struct wish {
    void (*then)(void *);    /* NULL: done */
    void *context;
} wish;

static int
at_first_object(PyObject *object, void *context)
{
    (void)object;
    wish *open = context;
    open->then(open->context);
    open->then = NULL;
    return 0;    /* do not visit another object */
}

/* 3.13 does not export the function that stops the threads. The function that visits the collector's
 * objects stops them first, and there is always an object. Meanwhile it holds the lock of the list of
 * thread states. */
void
ep_py_alone(void (*then)(void *), void *context)
{
    wish open = {then, context};
    PyUnstable_GC_VisitObjects(at_first_object, &open);
    if (open.then != NULL) {
        then(context);
    }
}

/* Begins with "xdebugpy", its version, whether the build is free-threaded, and sizes and offsets for
 * debuggers. Exported, declared in an internal header only. */
PyAPI_DATA(const uint64_t) _PyRuntime[];
#define OFFSETS_BUILD 2               /* 1: free-threaded */
#define OFFSETS_INTERPRETER_BYTES 6

/* What the interpreter keeps of a stop of its threads, in its state. */
typedef struct stop {
    _Atomic uint8_t lock;    /* PyMutex; bit 0: locked */
    bool requested, stopped, is_global;
    _Atomic uint8_t event;
    Py_ssize_t missing;      /* threads that still run */
    PyThreadState *requester;
} stop;

static stop *own_stop;    /* NULL: not found */

/* All fields are known while the threads are stopped. */
static void
find_stop_alone(void *context)
{
    (void)context;
    PyThreadState *own = PyThreadState_Get();
    char *interpreter = (char *)PyInterpreterState_Get();
    stop *found = NULL;
    int count = 0;
    for (size_t at = 0; at + sizeof *found <= _PyRuntime[OFFSETS_INTERPRETER_BYTES]; at += sizeof(void *)) {
        stop *here = (void *)(interpreter + at);
        const uint8_t *flags = (const uint8_t *)here;    /* may be no booleans */
        if (here->requester == own && here->missing == 0 && (flags[0] & 1) == 1 && flags[1] == 1 &&
            flags[2] == 1 && flags[3] == 0) {
            found = here;
            count++;
        }
    }
    own_stop = count == 1 ? found : NULL;
}

void
ep_py_alone_before_fork(void)
{
    static bool looked;
    if (!looked && memcmp(_PyRuntime, "xdebugpy", 8) == 0 && _PyRuntime[OFFSETS_BUILD] == 1) {
        ep_py_alone(find_stop_alone, NULL);
    }
    looked = true;
}

void
ep_py_alone_after_fork_in_child(void)
{
    if (own_stop != NULL) {
        atomic_store_explicit(&own_stop->lock, 0, memory_order_relaxed);
    }
}

#endif

#endif
