/* eventprof's user events, for C and C++ extensions of CPython: marks, spans, counters and flows on
 * the timeline that eventprof records. Nothing to link: an extension that includes this works without
 * eventprof, which it does not import, and costs a load and a branch an event while nothing records.
 *
 *     #include <Python.h>
 *     #include <eventprof.h>
 *
 *     static eventprof_name parsing = EVENTPROF_NAME("parsing");
 *
 *     PyMODINIT_FUNC PyInit_mine(void) {
 *         eventprof_import();                    // once, in each C file that has events
 *         ...
 *     }
 *
 *     eventprof_span_begin(&parsing);
 *     ...
 *     eventprof_span_end(&parsing);              // in the same function
 *
 * eventprof.get_include() says where this file is. All functions may be called with or without the GIL,
 * on any thread; eventprof_import() needs the GIL. They fail silently: a name that there is no memory
 * for is "?". */
#ifndef EVENTPROF_H
#define EVENTPROF_H

#include <Python.h>

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__) || defined(__clang__)
#define EVENTPROF_UNUSED __attribute__((unused))
#define EVENTPROF_LOAD(at) __atomic_load_n(at, __ATOMIC_ACQUIRE)
#define EVENTPROF_STORE(at, value) __atomic_store_n(at, value, __ATOMIC_RELEASE)
#else
#error "eventprof.h: this compiler is not known to it; gcc and clang are"
#endif

#define EVENTPROF_API_VERSION 1
#define EVENTPROF_CAPSULE "eventprof._core._C_API"

/* What somebody records: bits of eventprof_api.active. */
#define EVENTPROF_MARKS 1u
#define EVENTPROF_SPANS 2u
#define EVENTPROF_COUNTERS 4u
#define EVENTPROF_FLOWS 8u

/* Immortal once eventprof is loaded. Later versions only append. */
typedef struct eventprof_api {
    uint32_t version;
    uint32_t bytes;               /* of this struct: what a newer one has is after that */
    const uint32_t *active;       /* changes at any time */
    uint32_t (*name)(const char *text);    /* UTF-8; the same text, the same number; copied */
    void (*mark)(uint32_t name);
    void (*span_begin)(uint32_t name);
    void (*span_end)(uint32_t name);
    void (*counter)(uint32_t name, double value);
    void (*flow)(uint32_t name, uint64_t id, int phase);
} eventprof_api;

/* A text and, once it was used, its number. Static, and only by EVENTPROF_NAME. */
typedef struct eventprof_name {
    const char *text;
    uint32_t number;
} eventprof_name;
#define EVENTPROF_NAME(text) {text, 0}

typedef enum eventprof_phase {
    EVENTPROF_FLOW_BEGIN,
    EVENTPROF_FLOW_STEP,
    EVENTPROF_FLOW_END
} eventprof_phase;

/* This file's; NULL until eventprof is loaded. */
static const eventprof_api *eventprof_loaded EVENTPROF_UNUSED;

/* Where eventprof, if it is imported later, finds who waits for it: a list of capsules of pointers. */
#define EVENTPROF_WAITING "_eventprof_waiting"

/* Finds eventprof if it is loaded, and is found by it if it is later. Returns: 0; without memory -1
 * and no exception: there will be no events. */
EVENTPROF_UNUSED static int
eventprof_import(void)
{
    PyObject *modules, *module, *capsule, *waiting;
    int status = -1;
    if (EVENTPROF_LOAD(&eventprof_loaded) != NULL) {
        return 0;
    }
    modules = PyImport_GetModuleDict();
    module = modules != NULL ? PyDict_GetItemString(modules, "eventprof._core") : NULL;
    capsule = module != NULL ? PyObject_GetAttrString(module, "_C_API") : NULL;
    if (capsule != NULL) {
        const eventprof_api *api =
            (const eventprof_api *)PyCapsule_GetPointer(capsule, EVENTPROF_CAPSULE);
        if (api != NULL && api->version == EVENTPROF_API_VERSION) {
            EVENTPROF_STORE(&eventprof_loaded, api);
        }
        Py_DECREF(capsule);
        PyErr_Clear();
        return 0;
    }
    PyErr_Clear();
    waiting = PySys_GetObject(EVENTPROF_WAITING);
    if (waiting == NULL) {
        PyObject *made = PyList_New(0);
        if (made != NULL && PySys_SetObject(EVENTPROF_WAITING, made) == 0) {
            waiting = PySys_GetObject(EVENTPROF_WAITING);
        }
        Py_XDECREF(made);
    }
    capsule = PyCapsule_New((void *)&eventprof_loaded, EVENTPROF_WAITING, NULL);
    if (waiting != NULL && capsule != NULL && PyList_Check(waiting)) {
        status = PyList_Append(waiting, capsule);
    }
    Py_XDECREF(capsule);
    PyErr_Clear();
    return status;
}

/* Whether anybody records these; also for code that would have to work for a value first. */
EVENTPROF_UNUSED static inline const eventprof_api *
eventprof_records(uint32_t what)
{
    const eventprof_api *api = EVENTPROF_LOAD(&eventprof_loaded);
    return api != NULL && (__atomic_load_n(api->active, __ATOMIC_RELAXED) & what) ? api : NULL;
}

EVENTPROF_UNUSED static inline uint32_t
eventprof_number(const eventprof_api *api, eventprof_name *name)
{
    uint32_t number = EVENTPROF_LOAD(&name->number);
    if (number == 0) {
        number = api->name(name->text);
        EVENTPROF_STORE(&name->number, number);
    }
    return number;
}

/* Something happened. */
EVENTPROF_UNUSED static inline void
eventprof_mark(eventprof_name *name)
{
    const eventprof_api *api = eventprof_records(EVENTPROF_MARKS);
    if (api != NULL) {
        api->mark(eventprof_number(api, name));
    }
}

/* From here to eventprof_span_end(), on the same thread and within one function: a call of the tree. */
EVENTPROF_UNUSED static inline void
eventprof_span_begin(eventprof_name *name)
{
    const eventprof_api *api = eventprof_records(EVENTPROF_SPANS);
    if (api != NULL) {
        api->span_begin(eventprof_number(api, name));
    }
}

EVENTPROF_UNUSED static inline void
eventprof_span_end(eventprof_name *name)
{
    const eventprof_api *api = eventprof_records(EVENTPROF_SPANS);
    if (api != NULL) {
        api->span_end(eventprof_number(api, name));
    }
}

/* The counter is `value` from here on. */
EVENTPROF_UNUSED static inline void
eventprof_counter(eventprof_name *name, double value)
{
    const eventprof_api *api = eventprof_records(EVENTPROF_COUNTERS);
    if (api != NULL) {
        api->counter(eventprof_number(api, name), value);
    }
}

/* Something that goes from place to place, over threads. id: below 2^61. */
EVENTPROF_UNUSED static inline void
eventprof_flow(eventprof_name *name, uint64_t id, eventprof_phase phase)
{
    const eventprof_api *api = eventprof_records(EVENTPROF_FLOWS);
    if (api != NULL) {
        api->flow(eventprof_number(api, name), id, (int)phase);
    }
}

#ifdef __cplusplus
}
#endif

#endif
