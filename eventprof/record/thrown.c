/* Slices of generators that an exception began: by throw(), by close(), or where a generator was dropped.
 *
 * Where such a slice unwinds, its frame looks like one whose begin was not reported (hooks/entry.h). So the
 * frame is remembered from the throw to the end of the slice. While a thread has such a slice, its log is
 * EP_TODO_THROWN, and each event of the thread goes through the slow half of its hook. The end of the
 * slice is seen there, and the fast half needs no test for it.
 *
 * A generator can be suspended again while it handles such an exception (`finally`, `async with`). Where it
 * raises it again at the end of a later slice, it looks once more as if it stood where it was thrown in. So
 * that place is kept beyond the slice, for the newest EP_HANDLING_MAX generators. Limitation: it is kept
 * too long if a later slice has handled the exception.
 *
 * On 3.11 the frames are those of slices after which a generator that delegates may go on without a report:
 * the slow half sees the end of such a slice, and adds the begin of the next one.
 *
 * Slices are nested like calls, but not those of different greenlets. There is room for EP_THROWN_MAX. If
 * there are more, the outermost are only counted, and so many unwinds are taken for theirs. */
#include <string.h>

#include "engine_parts.h"

/* Returns: whether the frame was there. removed: its entry then. */
static bool
remove_frame(ep_thread *thread, const void *frame, ep_thrown *removed)
{
    for (uint32_t i = thread->thrown_count; i-- > 0;) {
        if (thread->thrown[i].frame == frame) {
            *removed = thread->thrown[i];
            thread->thrown_count -= 1;
            memmove(&thread->thrown[i], &thread->thrown[i + 1],
                    (thread->thrown_count - i) * sizeof *thread->thrown);
            return true;
        }
    }
    return false;
}

void
ep_log_add_thrown(ep_log *log, ep_thrown thrown)
{
    ep_thread *thread = log->thread;
    ep_thrown removed;
    (void)remove_frame(thread, thrown.frame, &removed);    /* of a slice whose end was not reported */
    if (thread->thrown_count == EP_THROWN_MAX) {
        (void)remove_frame(thread, thread->thrown[0].frame, &removed);
        thread->thrown_dropped += 1;
    }
    thread->thrown[thread->thrown_count++] = thrown;
    log->todo |= EP_TODO_THROWN;
}

static void
refresh(ep_log *log)
{
    if (log->thread->thrown_count == 0 && log->thread->thrown_dropped == 0) {
        log->todo &= ~EP_TODO_THROWN;
    }
}

bool
ep_log_end_thrown(ep_log *log, const void *frame, const void *place)
{
    ep_thread *thread = log->thread;
    ep_thrown removed;
    bool found = remove_frame(thread, frame, &removed);
    /* At the place of the throw again: that exception has been handled. */
    if (found && place != NULL && place != removed.place) {
        thread->handling[thread->handling_next] = removed;
        thread->handling_next = (thread->handling_next + 1) % EP_HANDLING_MAX;
    }
    refresh(log);
    return found;
}

bool
ep_log_handles_thrown(const ep_log *log, ep_thrown thrown)
{
    for (uint32_t i = 0; i < EP_HANDLING_MAX; i += 1) {
        const ep_thrown *each = &log->thread->handling[i];
        if (each->frame == thrown.frame && each->place == thrown.place) {
            return true;
        }
    }
    return false;
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
ep_engine_set_thrown(ep_thread *thread, const ep_thrown *slices, uint32_t count, bool anew)
{
    if (anew) {
        thread->thrown_count = thread->thrown_dropped = 0;
        memset(thread->handling, 0, sizeof thread->handling);
    }
    for (uint32_t i = count; i-- > 0;) {
        ep_thrown slice = slices[i];
        (void)remove_frame(thread, slice.frame, &slice);    /* which has the place, if it was remembered */
        if (thread->thrown_count < EP_THROWN_MAX) {
            thread->thrown[thread->thrown_count++] = slice;
        }
    }
    if (thread->thrown_count != 0) {
        ep_engine_set_todo_of(thread, EP_TODO_THROWN);
    }
}
