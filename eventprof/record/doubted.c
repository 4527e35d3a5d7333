/* Calls that were at their entry when a window began: later events show whether they had begun. */
#include <string.h>

#include "engine_parts.h"
#include "gate.h"

void
ep_engine_doubt(ep_thread *thread, const void *frame, uint32_t site)
{
    uint32_t i = 0;
    while (i < thread->doubted_count && thread->doubted[i].frame != frame) {
        i++;
    }
    if (i == EP_DOUBTED_MAX) {
        return;
    }
    thread->doubted[i].frame = frame;
    thread->doubted[i].site = site;
    thread->doubted_count += i == thread->doubted_count;
    ep_engine_freshen_thread(thread, EP_FRESH_DOUBTED);
}

/* The innermost doubted call of `site`: inner ones are settled first. */
static void
settle_open(ep_open_stack *open, uint32_t site, bool begins)
{
    for (size_t i = open->depth; i-- > 0;) {
        ep_open_call *call = &open->calls[i];
        if (call->doubted && call->site_id == site) {
            call->doubted = false;
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
    uint32_t site = thread->doubted[index].site;
    thread->doubted_count -= 1;
    memmove(&thread->doubted[index], &thread->doubted[index + 1],
            (thread->doubted_count - index) * sizeof *thread->doubted);
    ep_engine_lock();
    for (ep_recorder *r = ep_engine.recorders; r != NULL; r = r->next) {
        if (r->state == EP_RECORDER_RUNNING && thread->id < r->thread_capacity &&
            r->threads[thread->id] != NULL) {
            settle_open(&r->threads[thread->id]->open, site, begins);
            if (begins && r == ep_engine.filer) {
                ep_filer_put_state(r, UINT64_MAX);
            }
        }
    }
    ep_engine_unlock();
    if (begins) {
        ep_gate_begin_again(ep_log_current, site);
    }
}
