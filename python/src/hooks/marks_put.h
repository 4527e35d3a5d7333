/* How the events of marks are written: for the functions of Python (source_marks.c), and for those of C
 * (marks_from_c.c). */
#ifndef EP_MARKS_PUT_H
#define EP_MARKS_PUT_H

#include "../../eventprof/include/eventprof.h"
#include "labels.h"
#include "source.h"

#define EP_FLOW_ID_LIMIT (UINT64_C(1) << 61)

/* Bits: EVENTPROF_MARKS and so on. What running recorders want. */
extern _Atomic uint32_t ep_py_marks_active;

/* The functions of eventprof.h, which extensions find in a capsule. */
extern const eventprof_api ep_py_marks_api;

/* Gives these functions to extensions that were imported before us. Once, from module init. */
void ep_py_marks_tell_waiting(void);

/* The id of a name. Without memory: that of "(another name)". */
uint32_t ep_py_mark_name_of_text(ep_text text);

static inline ep_ticks
ep_mark_now(void)
{
    return ep_ticks_halves(ep_clock_ticks());
}

/* As ep_py_labels_see(), for events from C. These come with and without the GIL; without it the thread's
 * context cannot be read, and nothing is written. */
static inline void
ep_mark_see_labels(ep_log *log)
{
    if (EP_UNLIKELY(log->todo & (EP_TODO_LABELS | EP_TODO_LABELS_ANEW)) &&
        ep_py_attached_state() != NULL) {
        ep_py_labels_see_slow(log, ep_clock_ticks());
    }
}

static inline void
ep_put_point(ep_log *log, ep_kind kind, uint32_t name, ep_frame *frame)
{
    ep_mark_see_labels(log);
    uint32_t place = ep_py_place(log, name, frame);
    ep_log_put_at(log, ep_mark_now(), kind, place);
}

static inline void
ep_put_value(ep_log *log, ep_kind kind, uint32_t name, ep_frame *frame, uint64_t value)
{
    ep_mark_see_labels(log);
    uint32_t place = ep_py_place(log, name, frame);
    ep_log_put_value_at(log, ep_mark_now(), kind, place, value);
}

static inline uint64_t
ep_bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

#endif
