/* Slices of generators that an exception began: by throw(), by close(), or where a generator was dropped.
 *
 * Where such a slice unwinds, its frame looks like one whose begin was not reported (hooks/entry.h). So the
 * frame is remembered from the throw to the end of the slice. While a thread has such a slice, its log is
 * EP_TODO_THROWN, and each event of the thread goes through the slow half of its hook. The end of the
 * slice is seen there, and the fast half needs no test for it.
 *
 * A generator can be suspended again while it handles such an exception (`finally`, `async with`). Where it
 * raises it again at the end of a later slice, it looks once more as if it stood where it was thrown in. So
 * that place is kept beyond the slice, for EP_HANDLING_MAX generators at the same time. If there were more,
 * whether such a slice began is not known, and its end counts as lost. Limitation: a place is kept too long
 * if a later slice has handled the exception.
 *
 * Slices are nested like calls, but not those of different greenlets. There is room for EP_THROWN_MAX. If
 * there are more, the outermost are only counted, and so many unwinds are taken for theirs. */
#include <errno.h>
#include <string.h>

#include "engine_parts.h"
#include "memory.h"

/* Returns: whether the frame was there. removed: its entry then. */
static bool
remove_frame(ep_entries *entries, const void *frame, ep_thrown *removed)
{
    for (uint32_t i = entries->thrown_count; i-- > 0;) {
        if (entries->thrown[i].frame == frame) {
            *removed = entries->thrown[i];
            entries->thrown_count -= 1;
            memmove(&entries->thrown[i], &entries->thrown[i + 1],
                    (entries->thrown_count - i) * sizeof *entries->thrown);
            return true;
        }
    }
    return false;
}

void
ep_log_add_thrown(ep_log *log, ep_thrown thrown)
{
    ep_entries *entries = log->thread->entries;
    ep_thrown removed;
    (void)remove_frame(entries, thrown.frame, &removed);    /* of a slice whose end was not reported */
    if (entries->thrown_count == EP_THROWN_MAX) {
        (void)remove_frame(entries, entries->thrown[0].frame, &removed);
        entries->thrown_dropped += 1;
    }
    entries->thrown[entries->thrown_count++] = thrown;
    log->todo |= EP_TODO_THROWN;
}

static void
refresh(ep_log *log)
{
    if (log->thread->entries->thrown_count == 0 && log->thread->entries->thrown_dropped == 0) {
        log->todo &= ~EP_TODO_THROWN;
    }
}

static size_t
find_handling(const ep_entries *entries, const void *frame)
{
    size_t at = 0;
    while (at < entries->handling_count && entries->handling[at].frame != frame) {
        at++;
    }
    return at;
}

static void
add_handling(ep_entries *entries, ep_thrown thrown)
{
    int error = errno;
    size_t at = find_handling(entries, thrown.frame);    /* of an earlier generator, or an earlier slice */
    if (at == entries->handling_count) {
        if (at < EP_HANDLING_MAX &&
            ep_grow((void **)&entries->handling, &entries->handling_capacity, at + 1, sizeof thrown)) {
            entries->handling_count += 1;
        } else {
            entries->handling_dropped = true;
            at = entries->handling_next++ % EP_HANDLING_MAX;
        }
    }
    if (at < entries->handling_count) {
        entries->handling[at] = thrown;
    }
    errno = error;
}

bool
ep_log_end_thrown(ep_log *log, const void *frame, const void *place)
{
    ep_entries *entries = log->thread->entries;
    ep_thrown removed;
    bool found = remove_frame(entries, frame, &removed);
    /* At the place of the throw again: that exception has been handled. */
    if (found && place != NULL && place != removed.place) {
        add_handling(entries, removed);
    }
    refresh(log);
    return found;
}

bool
ep_log_end_handling(ep_log *log, ep_thrown thrown)
{
    ep_entries *entries = log->thread->entries;
    size_t at = find_handling(entries, thrown.frame);
    if (at == entries->handling_count || entries->handling[at].place != thrown.place) {
        return false;
    }
    entries->handling[at] = entries->handling[--entries->handling_count];
    return true;
}

bool
ep_log_dropped_handling(const ep_log *log)
{
    return log->thread->entries->handling_dropped;
}

bool
ep_log_end_dropped(ep_log *log)
{
    bool may_be = log->thread->entries->thrown_dropped != 0;
    log->thread->entries->thrown_dropped -= may_be;
    refresh(log);
    return may_be;
}

void
ep_engine_set_thrown(ep_thread *thread, const ep_thrown *slices, uint32_t count, bool anew)
{
    ep_engine_lock();
    ep_entries *entries = thread->entries;    /* NULL: a thread of C has ended meanwhile */
    if (entries == NULL) {
        ep_engine_unlock();
        return;
    }
    if (anew) {
        entries->thrown_count = entries->thrown_dropped = 0;
        entries->handling_count = 0;
        entries->handling_dropped = false;
    }
    for (uint32_t i = count; i-- > 0;) {
        ep_thrown slice = slices[i];
        (void)remove_frame(entries, slice.frame, &slice);    /* which has the place, if it was remembered */
        if (entries->thrown_count < EP_THROWN_MAX) {
            entries->thrown[entries->thrown_count++] = slice;
        }
    }
    if (entries->thrown_count != 0) {
        ep_thread_set_todo_locked(thread, EP_TODO_THROWN);
    }
    ep_engine_unlock();
}
