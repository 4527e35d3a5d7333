/* Slices of generators that an exception began: by throw(), by close(), or where a generator was dropped.
 *
 * Where such a slice unwinds, its frame looks like one whose begin was not reported (hooks/entry.h). So the
 * frame is remembered from the throw to the end of the slice. While a thread has such a slice, its log is
 * EP_FRESH_THROWN, and each event of the thread goes through the slow half of its hook. The end of the
 * slice is seen there, and the fast half needs no test for it.
 *
 * Slices are nested like calls, but not those of different greenlets. There is room for EP_THROWN_MAX. If
 * there are more, the outermost are only counted, and so many unwinds are taken for theirs. */
#include <string.h>

#include "engine_parts.h"

static bool
remove_frame(ep_thread *thread, const void *frame)
{
    for (uint32_t i = thread->thrown_count; i-- > 0;) {
        if (thread->thrown[i] == frame) {
            thread->thrown_count -= 1;
            memmove(&thread->thrown[i], &thread->thrown[i + 1],
                    (thread->thrown_count - i) * sizeof *thread->thrown);
            return true;
        }
    }
    return false;
}

void
ep_log_add_thrown(ep_log *log, const void *frame)
{
    ep_thread *thread = log->thread;
    (void)remove_frame(thread, frame);    /* of an earlier slice, whose end was not reported */
    if (thread->thrown_count == EP_THROWN_MAX) {
        (void)remove_frame(thread, thread->thrown[0]);
        thread->thrown_dropped += 1;
    }
    thread->thrown[thread->thrown_count++] = frame;
    log->fresh |= EP_FRESH_THROWN;
}

static void
refresh(ep_log *log)
{
    if (log->thread->thrown_count == 0 && log->thread->thrown_dropped == 0) {
        log->fresh &= ~EP_FRESH_THROWN;
    }
}

bool
ep_log_end_thrown(ep_log *log, const void *frame)
{
    bool found = remove_frame(log->thread, frame);
    refresh(log);
    return found;
}

bool
ep_log_end_dropped(ep_log *log)
{
    bool may_be = log->thread->thrown_dropped != 0;
    log->thread->thrown_dropped -= may_be;
    refresh(log);
    return may_be;
}

void
ep_engine_set_thrown(ep_thread *thread, const void *const *frames, uint32_t count, bool anew)
{
    if (anew) {
        thread->thrown_count = thread->thrown_dropped = 0;
    }
    for (uint32_t i = count; i-- > 0;) {
        (void)remove_frame(thread, frames[i]);
        if (thread->thrown_count < EP_THROWN_MAX) {
            thread->thrown[thread->thrown_count++] = frames[i];
        }
    }
    if (thread->thrown_count != 0) {
        ep_engine_freshen_thread(thread, EP_FRESH_THROWN);
    }
}
