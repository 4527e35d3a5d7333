/* The events of asyncio's tasks, for the hooks of calls: a TASK comes right before the call that it is
 * about. Tasks step, and their loop makes and runs callbacks, in calls whose site is never found by the
 * fast halves (code_names.c). So no other call pays for it. */
#ifndef EP_TASK_EVENTS_H
#define EP_TASK_EVENTS_H

#include "compat.h"

#include "intern.h"
#include "log.h"

/* frame: where `code` begins now; caller: NULL, or what called it; task: as of ep_py_code_site_slow(). */
EP_COLD void ep_py_put_task_event(ep_log *log, PyCodeObject *code, ep_frame *frame, ep_frame *caller,
                                  uintptr_t task);

EP_COLD uint32_t ep_py_open_site_slow(ep_log *log, PyCodeObject *code, ep_frame *frame);

/* HOT. As ep_py_code_site(), of a call or slice that begins now. */
static inline uint32_t
ep_py_open_site(ep_log *log, PyCodeObject *code, ep_frame *frame)
{
    ep_frame *caller = frame != NULL ? ep_frame_previous(frame) : NULL;
    uintptr_t from = caller != NULL ? ep_frame_instruction(caller) : 0;
    uint32_t id = ep_site_find((uintptr_t)code, from);
    return EP_LIKELY(id != 0) ? id : ep_py_open_site_slow(log, code, frame);
}

#endif
