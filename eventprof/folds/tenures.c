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
        now = self->rows[--self->count];    /* it may go on */
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
        self->rows[self->count++] = now;    /* room was made when it began */
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
