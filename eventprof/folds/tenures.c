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
    self->last = ep_calloc(self->process_count, sizeof *self->last);
    self->thread_process = facts->thread_process;
    return self->last != NULL ? EP_OK : EP_NOMEM;
}

/* HOT, budget 3 ns an event. */
static ep_status
events_of_one(ep_tenures *self, const ep_batch *batch)
{
    const ep_columns *columns = batch->columns;
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
    self->last[0] = self->count;
    return EP_OK;
}

/* The tenures of several processes go on side by side. */
static ep_status
events_of_several(ep_tenures *self, const ep_batch *batch)
{
    const ep_columns *columns = batch->columns;
    for (size_t row = batch->from; row < batch->to; row++) {
        if (!ep_kinds_has(self->kinds, columns->kind[row])) {
            continue;
        }
        int32_t thread = columns->thread[row];
        size_t *last = &self->last[self->thread_process[thread]];
        if (*last == 0 || self->rows[*last - 1].thread != thread) {
            if (!ep_grow_raw((void **)&self->rows, &self->capacity, self->count + 1,
                             sizeof *self->rows)) {
                return EP_NOMEM;
            }
            self->rows[self->count] = (ep_tenure){.start_ns = columns->time_ns[row], .thread = thread};
            *last = ++self->count;
        }
        ep_tenure *now = &self->rows[*last - 1];
        now->end_ns = columns->time_ns[row];
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
    return self->thread_process == NULL ? events_of_one(self, batch) : events_of_several(self, batch);
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
    free(self->last);
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
