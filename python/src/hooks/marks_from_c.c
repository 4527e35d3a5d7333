/* The functions of eventprof.h: events that extensions make. */
#include "compat.h"

#include "marks.h"
#include "marks_put.h"

/* The calling thread's frame if it is attached to the interpreter that is recorded. */
static ep_frame *
frame_of_thread(ep_log *log)
{
    PyThreadState *ts = ep_thread_state();
    if (ts == NULL || !ep_py_sites_usable || !ep_py_is_own_interpreter(ts)) {
        return NULL;
    }
#if !EP_STATE_IS_OF_THREAD
    /* 3.11 gives the state of whichever thread has the GIL. */
    if (ts->thread_id != PyThread_get_thread_ident()) {
        return NULL;
    }
#endif
    if (EP_UNLIKELY(ep_py_todo(log))) {
        ep_py_do_pending_work(log, EP_KIND_MARK);
    }
    return ep_frame_of_program(ep_frame_current(ts));
}

static ep_log *
log_of_thread(ep_kind kind)
{
    ep_log *log = ep_log_mine();
    if (log == NULL) {
        ep_engine_count_unlogged(kind);
    }
    return log;
}

static uint32_t
c_name(const char *text)
{
    return ep_py_mark_name_of_text((ep_text){text, text != NULL ? strlen(text) : 0});
}

static void
c_mark(uint32_t name)
{
    ep_log *log = log_of_thread(EP_KIND_MARK);
    if (log != NULL) {
        ep_put_point(log, EP_KIND_MARK, name, frame_of_thread(log));
    }
}

static void
c_span_begin(uint32_t name)
{
    ep_log *log = log_of_thread(EP_KIND_SPAN_BEGIN);
    if (log != NULL) {
        ep_put_point(log, EP_KIND_SPAN_BEGIN, name, frame_of_thread(log));
    }
}

static void
c_span_end(uint32_t name)
{
    ep_log *log = log_of_thread(EP_KIND_SPAN_END);
    if (log != NULL) {
        ep_log_put_at(log, ep_mark_now(), EP_KIND_SPAN_END, name);
    }
}

static void
c_counter(uint32_t name, double value)
{
    ep_log *log = log_of_thread(EP_KIND_COUNTER);
    if (log != NULL) {
        ep_put_value(log, EP_KIND_COUNTER, name, frame_of_thread(log), ep_bits_of(value));
    }
}

static void
c_flow(uint32_t name, uint64_t id, int phase)
{
    ep_log *log = log_of_thread(EP_KIND_FLOW);
    if (log != NULL && phase >= EVENTPROF_FLOW_BEGIN && phase <= EVENTPROF_FLOW_END) {
        ep_put_value(log, EP_KIND_FLOW, name, frame_of_thread(log),
                     (id & (EP_FLOW_ID_LIMIT - 1)) << 2 | (uint64_t)phase);
    }
}

const eventprof_api ep_py_marks_api = {
    .version = EVENTPROF_API_VERSION,
    .bytes = sizeof ep_py_marks_api,
    .active = (const uint32_t *)&ep_py_marks_active,
    .name = c_name,
    .mark = c_mark,
    .span_begin = c_span_begin,
    .span_end = c_span_end,
    .counter = c_counter,
    .flow = c_flow,
};

void
ep_py_marks_tell_waiting(void)
{
    PyObject *waiting = PySys_GetObject(EVENTPROF_WAITING);
    for (Py_ssize_t i = 0; waiting != NULL && PyList_Check(waiting) && i < PyList_GET_SIZE(waiting);
         i++) {
        PyObject *capsule = PyList_GET_ITEM(waiting, i);
        const eventprof_api **place =
            PyCapsule_IsValid(capsule, EVENTPROF_WAITING)
                ? PyCapsule_GetPointer(capsule, EVENTPROF_WAITING)
                : NULL;
        if (place != NULL) {
            EVENTPROF_STORE(place, &ep_py_marks_api);
        }
    }
    PyErr_Clear();
}
