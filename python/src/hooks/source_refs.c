/* The source of objects that come and go (3.13 and later): PyRefTracer_SetTracer.
 *
 * There is one place for a tracer in the whole runtime. Each install makes a layer, {the tracer that was
 * there, whether it records}, immortal because another tool may have taken it as the one below it. Ours
 * passes on to the one below; it is put back if the place is still ours.
 *
 * A tracer may be called in the middle of anything: it reads the object's type, and touches the object
 * no further. */
#include "compat.h"

#include "intern.h"
#include "memory.h"
#include "errors.h"
#include "source.h"

#if EP_HAS_REF_TRACER

#define REMOVED 2    /* PyRefTracer_TRACKER_REMOVED, which 3.13 and some of 3.14 do not know */

typedef struct layer {
    PyRefTracer below;     /* constant; NULL: none */
    void *below_data;
    _Atomic bool records;
} layer;

static layer *installed;    /* not dormant; NULL: none */
static ep_shared_kinds active;    /* what somebody records */

static void
put(ep_kind kind, PyObject *object)
{
    PyThreadState *ts = ep_thread_state();
    if (!(ep_shared_kinds_get(&active) & EP_KIND_BIT(kind)) ||
        EP_UNLIKELY(ts == NULL || !ep_py_is_own_interpreter(ts))) {
        return;
    }
    ep_log *log = ep_py_log_for_memory(kind);
    if (log == NULL || (log->busy && !log->own_is_recorded)) {
        return;    /* our own */
    }
    uint32_t busy = log->busy;
    log->busy = EP_BUSY_OWN;
    uint32_t name = ep_py_type_name(Py_TYPE(object));
    if (EP_LIKELY(name != EP_ID_SKIP)) {
        uint32_t place = ep_py_place(log, name, ep_py_frame_now());
        ep_log_put_value_at(log, ep_ticks_halves(ep_clock_ticks()), kind, place, (uintptr_t)object);
    }
    log->busy = busy;
}

static int
tracer(PyObject *object, PyRefTracerEvent event, void *data)
{
    layer *own = data;
    if (EP_UNLIKELY(own == NULL)) {
        return 0;
    }
    if (EP_LIKELY(object != NULL) && atomic_load_explicit(&own->records, memory_order_relaxed)) {
        if (event == PyRefTracer_CREATE) {
            put(EP_KIND_CREATE, object);
        } else if (event == PyRefTracer_DESTROY) {
            put(EP_KIND_DESTROY, object);
        }
    }
    /* If another tool removes our tracer, the tracer below is removed with it, and gets the event
     * REMOVED. If our own code removes ours, `records` is false and the tracer below is put back: it
     * gets nothing. */
    bool tells = (int)event != REMOVED || atomic_load_explicit(&own->records, memory_order_relaxed);
    return own->below != NULL && tells ? own->below(object, event, own->below_data) : 0;
}

static bool
is_on_top(void)
{
    void *data;
    return PyRefTracer_GetTracer(&data) == tracer && data == installed;
}

static int
adjust(ep_kind_set kinds)
{
    ep_shared_kinds_set(&active, kinds);
    if (kinds != 0 && installed != NULL && is_on_top()) {
        return 0;
    }
    if (installed != NULL) {
        layer *own = installed;
        bool on_top = is_on_top();
        atomic_store_explicit(&own->records, false, memory_order_relaxed);
        if (on_top) {
            (void)PyRefTracer_SetTracer(own->below, own->below_data);
            PyErr_Clear();
        }
        installed = NULL;
    }
    if (kinds == 0) {
        return 0;
    }
    layer *own = ep_calloc(1, sizeof *own);
    if (own == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    own->below = PyRefTracer_GetTracer(&own->below_data);
    atomic_store_explicit(&own->records, true, memory_order_relaxed);
    if (PyRefTracer_SetTracer(tracer, own) < 0) {
        free(own);
        return -1;
    }
    installed = own;
    return 0;
}

static bool
owns(void)
{
    return installed == NULL || is_on_top();
}

#else

static int
adjust(ep_kind_set kinds)
{
    if (kinds != 0) {
        PyErr_SetString(ep_py_error(EP_ERROR_UNSUPPORTED),
                        "refs=True needs Python 3.13 (PyRefTracer_SetTracer)");
        return -1;
    }
    return 0;
}

static bool
owns(void)
{
    return true;
}

#endif

const ep_source ep_source_refs = {
    .name = "refs",
    .kinds = EP_KIND_BIT(EP_KIND_CREATE) | EP_KIND_BIT(EP_KIND_DESTROY),
    .adjust = adjust,
    .owns = owns,
};
