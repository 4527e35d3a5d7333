/* Calls that were at their entry when a window began: later events show whether they had begun. */
#include <string.h>

#include "engine_parts.h"
#include "gate.h"

void
ep_engine_unsettle(ep_thread *thread, const void *frame, uint32_t site)
{
    ep_engine_lock();
    ep_entries *entries = thread->entries;    /* NULL: a thread of C has ended meanwhile */
    uint32_t i = 0;
    while (entries != NULL && i < entries->unsettled_count && entries->unsettled[i].frame != frame) {
        i++;
    }
    if (entries != NULL && i < EP_DOUBTED_MAX) {
        entries->unsettled[i].frame = frame;
        entries->unsettled[i].site = site;
        entries->unsettled_count += i == entries->unsettled_count;
        ep_thread_set_todo_locked(thread, EP_TODO_UNSETTLED);
    }
    ep_engine_unlock();
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
    ep_entries *entries = thread->entries;
    uint32_t site = entries->unsettled[index].site;
    entries->unsettled_count -= 1;
    memmove(&entries->unsettled[index], &entries->unsettled[index + 1],
            (entries->unsettled_count - index) * sizeof *entries->unsettled);
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
