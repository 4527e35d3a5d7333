/* What a counter counted so far: a row for each function, of all its views. */
#include <string.h>

#include "count_parts.h"
#include "memory.h"
#include "os.h"

static void
begin_reading(ep_count_slot *slot)
{
    slot->seen = slot->depth;
}

typedef struct reading {
    ep_count_row *rows;
    uint32_t *row_of;    /* by name id; 0, but for name 0: none yet */
    size_t count;
} reading;

static ep_count_row *
row_of(reading *to, uint32_t name)
{
    if (to->row_of[name] == 0 && name != 0) {
        to->row_of[name] = (uint32_t)to->count;
        to->rows[to->count++].name = name;
    }
    return &to->rows[to->row_of[name]];
}

static void
add_slot(reading *to, const ep_count_slot *slot)
{
    ep_count_row *row = row_of(to, slot->name);
    row->calls += slot->calls;
    row->resumes += slot->resumes;
    row->recursive += slot->recursive;
    row->total += slot->total;
    row->self += slot->self;
    row->whole += slot->calls + slot->resumes - slot->cut;    /* less the open ones: add_open() */
    row->whole_ticks += slot->total + slot->nested - slot->cut_ticks;
    row->min = slot->min < row->min ? slot->min : row->min;
    row->max = slot->max > row->max ? slot->max : row->max;
    row->bytes += atomic_load_explicit(&slot->bytes, memory_order_relaxed);
    row->blocks += atomic_load_explicit(&slot->blocks, memory_order_relaxed);
}

static void
add_open(reading *to, ep_count_view *view, uint64_t ticks)
{
    uint64_t inside = 0;
    for (const ep_count_frame *frame = view->top; frame > view->frames; frame--) {
        inside += frame->inside;
        if (frame->key & EP_COUNT_OWN) {
            continue;
        }
        uint64_t elapsed = ticks > frame->start ? ticks - frame->start : 0;
        ep_count_row *row = row_of(to, frame->slot->name);
        row->self += elapsed - inside;
        row->whole -= (frame->key & EP_COUNT_BEFORE) == 0;
        if (--frame->slot->seen == 0) {
            row->total += elapsed;
        } else {
            row->recursive += 1;
        }
        inside = elapsed;
    }
}

static void
add_view(reading *to, ep_count_view *view, uint64_t ticks)
{
    ep_count_each_slot(view, begin_reading);
    for (size_t i = 0; i < view->index_slots; i++) {
        if (view->index[i] != NULL) {
            add_slot(to, view->index[i]);
        }
    }
    add_open(to, view, ticks);
}

static int
by_name(const void *a, const void *b)
{
    uint32_t x = ((const ep_count_row *)a)->name, y = ((const ep_count_row *)b)->name;
    return (x > y) - (x < y);
}

static size_t
max_name(const ep_counter *counter, size_t *slot_count)
{
    uint32_t max = 0;
    *slot_count = 0;
    for (const ep_count_view *view = counter->views; view != NULL; view = view->next) {
        *slot_count += view->slot_count;
        for (size_t i = 0; i < view->index_slots; i++) {
            max = view->index[i] != NULL && view->index[i]->name > max ? view->index[i]->name : max;
        }
    }
    return max;
}

ep_status
ep_counter_read(ep_counter *counter, uint64_t ticks, ep_count_rows *out)
{
    if (!ep_os_lock(&ep_count_mutex)) {
        return EP_NOMEM;
    }
    size_t slots, names = max_name(counter, &slots) + 1;
    reading to = {
        .rows = ep_calloc(slots + 1, sizeof *to.rows),
        .row_of = ep_calloc(names, sizeof *to.row_of),
        .count = 1,
    };
    bool can = to.rows != NULL && to.row_of != NULL;
    ep_count_rows result = {.rows = to.rows, .lost = counter->lost};
    for (size_t i = 0; can && i <= slots; i++) {
        to.rows[i].min = UINT64_MAX;
    }
    for (ep_count_view *view = counter->views; can && view != NULL; view = view->next) {
        uint64_t aside = view->thread != NULL && counter->running ? view->thread->aside : 0;
        add_view(&to, view, counter->running ? ticks - aside : view->stop_ticks);
        result.lost += view->lost;
        result.unmatched += view->unmatched;
    }
    result.ticks = (counter->running ? ticks : counter->stop_ticks) - counter->start_ticks;
    result.count = to.count;
    if (can) {
        qsort(to.rows + 1, to.count - 1, sizeof *to.rows, by_name);
    }
    ep_mutex_unlock(&ep_count_mutex);
    free(to.row_of);
    if (!can) {
        free(to.rows);
        return EP_NOMEM;
    }
    *out = result;
    return EP_OK;
}
