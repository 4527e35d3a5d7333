/* Tenures of the interpreter's lock; what they are is in waited.h. */
#include "tenures.h"

#include "memory.h"

static ep_status
tenures_begin(ep_fold *fold, const ep_fold_facts *facts)
{
    ep_tenures *self = (ep_tenures *)fold;
    self->kinds = ep_kinds_under_lock();
    self->has_lock = facts->has_lock;
    return EP_OK;
}

/* HOT, budget 3 ns an event. */
static ep_status
tenures_events(ep_fold *fold, const ep_batch *batch)
{
    ep_tenures *self = (ep_tenures *)fold;
    const ep_columns *columns = batch->columns;
    if (!self->has_lock) {
        return EP_OK;
    }
    ep_tenure now = {.thread = -1};
    if (self->count > 0) {
        now = self->rows[--self->count];    /* the last tenure may go on in this batch */
    }
    for (size_t row = batch->from; row < batch->to; row++) {
        if (!ep_kinds_has(self->kinds, columns->kind[row])) {
            continue;
        }
        int32_t thread = columns->thread[row];
        if (EP_UNLIKELY(thread != now.thread)) {
            if (!ep_grow_raw((void **)&self->rows, &self->capacity, self->count + 2,
                             sizeof *self->rows)) {
                return EP_NOMEM;
            }
            if (now.thread >= 0) {
                self->rows[self->count++] = now;
            }
            now = (ep_tenure){.start_ns = columns->time_ns[row], .thread = thread};
        }
        now.end_ns = columns->time_ns[row];
        now.events++;
    }
    if (now.thread >= 0) {
        self->rows[self->count++] = now;    /* ep_grow made room when it began */
    }
    return EP_OK;
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
    *self = (ep_tenures){.fold = self->fold};
}

static const ep_fold_type tenures_type = {
    .name = "tenures",
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

ep_status
ep_tenures_merge(ep_tenures *into, const ep_tenures *later)
{
    size_t joined = 0;
    ep_tenure *last = into->count > 0 ? &into->rows[into->count - 1] : NULL;
    if (last != NULL && later->count > 0 && last->thread == later->rows[0].thread) {
        last->end_ns = later->rows[0].end_ns;
        last->events += later->rows[0].events;
        joined = 1;
    }
    size_t count = later->count - joined;
    if (count > 0 && !ep_grow_raw((void **)&into->rows, &into->capacity, into->count + count,
                                  sizeof *into->rows)) {
        return EP_NOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        into->rows[into->count++] = later->rows[joined + i];
    }
    return EP_OK;
}
