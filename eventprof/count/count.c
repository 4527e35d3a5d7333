/* The slow paths of counting: the clock, and calls that do not nest as expected. */
#include "count.h"

#include "count_parts.h"
#include "filter.h"
#include "memory.h"
#include "os.h"

bool ep_count_by_counter;
static ep_anchor birth;

/* ---- The clock ------------------------------------------------------------------------------- */

uint64_t
ep_count_ticks_slow(void)
{
    return (uint64_t)ep_os_monotonic_ns();
}

/* Both clocks at one instant: the best of a few tries. */
static ep_anchor
anchor_now(void)
{
    ep_anchor best = {0};
    uint64_t best_width = UINT64_MAX;
    for (int i = 0; i < 8; i++) {
        uint64_t before = ep_count_ticks();
        int64_t ns = ep_os_monotonic_ns();
        uint64_t width = ep_count_ticks() - before;
        if (width < best_width) {
            best = (ep_anchor){before + width / 2, ns};
            best_width = width;
        }
    }
    return best;
}

void
ep_count_start_clock(void)
{
    ep_count_by_counter = EP_CLOCK_HAS_COUNTER && ep_clock_counter_usable();
    birth = anchor_now();
}

double
ep_count_frequency_hz(void)
{
    if (!ep_count_by_counter) {
        return 1e9;
    }
    ep_anchor now = anchor_now();
    int64_t ns = now.monotonic_ns - birth.monotonic_ns;
    return ns > 0 ? (double)(now.ticks - birth.ticks) * 1e9 / (double)ns : 1e9;
}

/* ---- What is wanted -------------------------------------------------------------------------- */

uint8_t
ep_count_wish(ep_count_view *view, ep_count_slot *slot)
{
    if (slot->wish == 0) {
        const ep_filter *filter = view->counter->filter;
        bool included = filter == NULL || ep_filter_includes(filter, slot->name);
        bool excluded = filter != NULL && ep_filter_excludes(filter, slot->name);
        slot->wish = (uint8_t)(EP_COUNT_WISH_KNOWN | (included ? EP_COUNT_WISH_INCLUDED : 0) |
                               (excluded ? EP_COUNT_WISH_EXCLUDED : 0));
    }
    return slot->wish;
}

/* ---- Calls ----------------------------------------------------------------------------------- */

/* Removes the top frame. `whole`: its begin and its end were both seen. */
static void
pop(ep_count_view *view, uint64_t ticks, bool whole)
{
    ep_count_frame *frame = view->top;
    ep_count_slot *slot = frame->slot;
    if (frame->key & EP_COUNT_OWN) {
        /* The time of our own code counts for its caller. */
        frame[-1].inside += frame->inside;
        view->top = frame - 1;
        return;
    }
    uint64_t min = slot->min, max = slot->max;
    uint64_t elapsed = ticks > frame->start ? ticks - frame->start : 0;
    ep_count_pop(view, ticks);
    if (!whole) {
        slot->min = min;
        slot->max = max;
        slot->cut_ticks += elapsed;
    }
}

/* Pops a frame whose end was not seen. */
static void
pop_cut(ep_count_view *view, uint64_t ticks)
{
    view->top->slot->cut += (view->top->key & (EP_COUNT_BEFORE | EP_COUNT_OWN)) == 0;
    pop(view, ticks, false);
}

void
ep_count_close_all(ep_count_view *view, uint64_t ticks)
{
    while (view->top > view->frames) {
        pop_cut(view, ticks);
    }
}

bool
ep_count_grow(ep_count_view *view)
{
    size_t used = (size_t)(view->top - view->frames), capacity = (size_t)(view->limit - view->frames);
    ep_count_frame *frames = ep_realloc(view->frames, capacity * 2, sizeof *frames);
    if (frames == NULL) {
        view->lost += 1;
        return false;
    }
    view->frames = frames;
    view->top = frames + used;
    view->limit = frames + capacity * 2;
    return true;
}

static bool
has_room(ep_count_view *view)
{
    return view->top + 1 < view->limit || ep_count_grow(view);
}

bool
ep_count_open(ep_count_view *view, ep_count_slot *slot, uintptr_t key, uint64_t ticks, bool is_slice)
{
    if (!has_room(view)) {
        return false;
    }
    slot->calls += !is_slice;
    slot->resumes += is_slice;
    ep_count_push(view, slot, ep_count_top_is_own(view) ? key | EP_COUNT_ABOVE_OWN : key, ticks);
    return true;
}

bool
ep_count_open_before(ep_count_view *view, ep_count_slot *slot, uintptr_t key, uint64_t ticks)
{
    if (!has_room(view)) {
        return false;
    }
    slot->recursive -= slot->depth > 0;    /* it began before the window, and its end would count it */
    ep_count_push(view, slot, key | EP_COUNT_BEFORE, ticks);
    return true;
}

void
ep_count_forget_before(ep_count_view *view, uintptr_t key)
{
    if (view->top->key == (key | EP_COUNT_BEFORE)) {
        ep_count_slot *slot = view->top->slot;
        slot->depth -= 1;
        slot->recursive += slot->depth > 0;
        view->top -= 1;
    }
}

bool
ep_count_open_own(ep_count_view *view, uintptr_t key, uint64_t ticks)
{
    if (!has_room(view)) {
        return false;
    }
    ep_count_frame *frame = view->top + 1;
    *frame = (ep_count_frame){key | EP_COUNT_OWN, view->top->slot, ticks, 0};
    view->top = frame;
    return true;
}

static void
close_to(ep_count_view *view, const ep_count_frame *found, uint64_t ticks)
{
    while (view->top > found) {
        pop_cut(view, ticks);
    }
    pop(view, ticks, (view->top->key & EP_COUNT_BEFORE) == 0);
}

void
ep_count_close_own(ep_count_view *view, uintptr_t key, uint64_t ticks)
{
    for (ep_count_frame *frame = view->top; frame > view->frames; frame--) {
        if (frame->key == (key | EP_COUNT_OWN)) {
            close_to(view, frame, ticks);
            return;
        }
    }
}

static uint64_t
start_of(const void *frame)
{
    return ((const ep_count_frame *)frame)->start;
}

/* What ended: a frame is found by its key, or else by its function. */
typedef struct ended {
    uintptr_t key;    /* 0: unknown */
    const ep_count_slot *slot;
} ended;

static bool
is_of(const void *context, const void *at, uintptr_t unused)
{
    (void)unused;
    const ended *wanted = context;
    const ep_count_frame *frame = at;
    bool fits = (wanted->key != 0 && (frame->key & ~EP_COUNT_FLAGS) == wanted->key) ||
                frame->slot == wanted->slot;
    return fits && !(frame->key & EP_COUNT_OWN);
}

bool
ep_count_close(ep_count_view *view, uintptr_t key, const ep_count_slot *slot, uint64_t ticks)
{
    ep_frames frames = {view->top, view->frames, sizeof *view->top};
    const ended wanted = {key, slot};
    const ep_count_frame *frame =
        ep_find_begin(&view->absent, frames, key != 0 ? key : (uintptr_t)slot, view->top->start, start_of,
                      is_of, &wanted);
    if (frame != NULL) {
        close_to(view, frame, ticks);
        return true;
    }
    view->unmatched += 1;
    return false;
}
