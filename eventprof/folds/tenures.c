/* Tenures of the interpreter's lock; what they are is in waited.h. */
#include "tenures.h"

#include "memory.h"

static ep_status
tenures_begin(ep_fold *fold, const ep_fold_facts *facts)
{
    ep_tenures *self = (ep_tenures *)fold;
    self->kinds = ep_kinds_under_lock();
    self->has_lock = facts->has_lock;
    self->process_count = 1;
    for (size_t i = 0; facts->thread_process != NULL && i < facts->thread_count; i++) {
        size_t needed = (size_t)facts->thread_process[i] + 1;
        self->process_count = self->process_count < needed ? needed : self->process_count;
    }
    self->locks = ep_calloc(self->process_count, sizeof *self->locks);
    self->thread_process = facts->thread_process;
    self->taken_ns = ep_calloc(facts->thread_count + 1, sizeof *self->taken_ns);
    return self->locks != NULL && self->taken_ns != NULL ? EP_OK : EP_NOMEM;
}

/* Fails: EP_NOMEM. */
static EP_CHECKED ep_status
begin_tenure(ep_tenures *self, ep_lock_holder *lock, int32_t thread, int64_t time_ns)
{
    if (!ep_grow_raw((void **)&self->rows, &self->capacity, self->count + 1, sizeof *self->rows)) {
        return EP_NOMEM;
    }
    int64_t *taken_ns = &self->taken_ns[thread];
    if (*taken_ns != 0) {    /* it had the lock before its first event */
        time_ns = *taken_ns > lock->free_ns ? *taken_ns : lock->free_ns;
        *taken_ns = 0;
    }
    self->rows[self->count] = (ep_tenure){.start_ns = time_ns, .thread = thread};
    lock->row = ++self->count;
    return EP_OK;
}

/* A thread that begins to wait has released the lock. A wait for the lock is in parts: after each but the
 * last the next one begins. */
static void
take_wait(ep_tenures *self, ep_lock_holder *lock, unsigned kind, int32_t thread, int64_t time_ns,
          uint64_t word)
{
    ep_wait_for what = ep_wait_what(word);
    if (what == EP_WAIT_FOR_GIL) {
        self->taken_ns[thread] = kind == EP_KIND_WAIT ? time_ns : 0;
    }
    ep_tenure *now = lock->row != 0 ? &self->rows[lock->row - 1] : NULL;
    /* A thread that others keep from a processor still has it. */
    bool keeps = what == EP_WAIT_FOR_PROCESSOR || what == EP_WAIT_FOR_OTHER;
    if (keeps || now == NULL || now->thread != thread) {
        return;
    }
    int64_t from_ns = kind == EP_KIND_WAIT ? time_ns - EP_WAIT_NS(word) : time_ns;
    now->end_ns = from_ns > now->end_ns ? from_ns : now->end_ns;
    lock->free_ns = now->end_ns;
    lock->row = 0;
}

/* HOT, budget 3 ns an event. several: the tenures of several processes go on side by side. */
static EP_INLINE EP_CHECKED ep_status
events_of(ep_tenures *self, const ep_batch *batch, const bool several)
{
    const ep_columns *columns = batch->columns;
    size_t event = batch->alloc_from;
    for (size_t row = batch->from; row < batch->to; row++) {
        unsigned kind = columns->kind[row];
        int32_t thread = columns->thread[row];
        int64_t time_ns = columns->time_ns[row];
        ep_lock_holder *lock = &self->locks[several ? self->thread_process[thread] : 0];
        if (EP_UNLIKELY(kind == EP_KIND_WAIT || kind == EP_KIND_WAIT_BEGIN)) {
            take_wait(self, lock, kind, thread, time_ns, columns->address[event]);
        }
        event += ep_kinds_has(ep_kinds_of_two_words, kind);
        if (!ep_kinds_has(self->kinds, kind)) {
            continue;
        }
        ep_tenure *now = lock->row != 0 ? &self->rows[lock->row - 1] : NULL;
        if (EP_UNLIKELY(now == NULL || now->thread != thread)) {
            lock->free_ns = now != NULL ? now->end_ns : lock->free_ns;
            if (begin_tenure(self, lock, thread, time_ns) != EP_OK) {
                return EP_NOMEM;
            }
            now = &self->rows[lock->row - 1];
        }
        now->end_ns = time_ns;
        now->events++;
    }
    return EP_OK;
}

static ep_status
tenures_events(ep_fold *fold, const ep_batch *batch)
{
    ep_tenures *self = (ep_tenures *)fold;
    if (!self->has_lock) {
        return EP_OK;
    }
    return self->thread_process == NULL ? events_of(self, batch, false) : events_of(self, batch, true);
}

static ep_status
tenures_end(ep_fold *fold)
{
    (void)fold;
    return EP_OK;
}

static void
tenures_clear(ep_fold *fold)
{
    ep_tenures *self = (ep_tenures *)fold;
    free(self->rows);
    free(self->locks);
    free(self->taken_ns);
    *self = (ep_tenures){.fold = self->fold};
}

static const ep_fold_type tenures_type = {
    .name = "tenures",
    .without_ids = true,
    .begin = tenures_begin,
    .events = tenures_events,
    .end = tenures_end,
    .clear = tenures_clear,
};

void
ep_tenures_open(ep_tenures *tenures)
{
    *tenures = (ep_tenures){.fold = {.type = &tenures_type}};
}
