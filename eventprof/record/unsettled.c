/* Calls that were at their entry when a window began: later events show whether they had begun. */
#include <string.h>

#include "engine_parts.h"
#include "gate.h"

void
ep_engine_unsettle(ep_thread *thread, const void *frame, uint32_t site)
{
    uint32_t i = 0;
    while (i < thread->unsettled_count && thread->unsettled[i].frame != frame) {
        i++;
    }
    if (i == EP_UNSETTLED_MAX) {
        return;
    }
    thread->unsettled[i].frame = frame;
    thread->unsettled[i].site = site;
    thread->unsettled_count += i == thread->unsettled_count;
    ep_engine_set_todo_of(thread, EP_TODO_UNSETTLED);
}

/* The innermost unsettled call of `site`: inner ones are settled first. */
static void
settle_open(ep_open_stack *open, uint32_t site, bool begins)
{
    for (size_t i = open->depth; i-- > 0;) {
        ep_open_call *call = &open->calls[i];
        if (call->unsettled && call->site_id == site) {
            call->unsettled = false;
            if (begins) {
                open->depth -= 1;
                memmove(call, call + 1, (open->depth - i) * sizeof *call);
            }
            return;
        }
    }
}

void
ep_engine_settle(ep_thread *thread, uint32_t index, bool begins)
{
    uint32_t site = thread->unsettled[index].site;
    thread->unsettled_count -= 1;
    memmove(&thread->unsettled[index], &thread->unsettled[index + 1],
            (thread->unsettled_count - index) * sizeof *thread->unsettled);
    ep_engine_lock();
    for (ep_recorder *r = ep_engine.recorders; r != NULL; r = r->next) {
        if (r->state == EP_RECORDER_RUNNING && thread->id < r->thread_capacity &&
            r->threads[thread->id] != NULL) {
            settle_open(&r->threads[thread->id]->open, site, begins);
            if (begins && r == ep_engine.file_recorder) {
                ep_file_recorder_put_state(r, UINT64_MAX);
            }
        }
    }
    ep_engine_unlock();
    if (begins) {
        ep_gate_begin_again(ep_log_current, site);
    }
}
