/* Counting: the clock, views, calls that do not nest as expected, threads, counters, reading, forks. */
#include "count.h"

#include <pthread.h>
#include <string.h>

#include "filter.h"
#include "memory.h"
#include "os.h"

_Thread_local ep_count_thread *ep_count_current;
static _Thread_local bool is_over;    /* the last round of this thread's destructors has been */
/* In a child of a bare system call another thread may have had the lock: functions fail there as without
 * memory. */
ep_mutex ep_count_mutex = EP_MUTEX_INIT;
static struct counting {
    ep_counter *running[EP_COUNTERS_MAX];
    size_t running_count;
    uint64_t last_serial;
} counting EP_GUARDED_BY(ep_count_mutex);
static pthread_key_t exit_key;
static ep_count_thread nobody;

/* ---- The clock ------------------------------------------------------------------------------- */

bool ep_count_by_counter;
static ep_anchor birth;

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

/* The clock of all counters from now on. */
static void
start_clock(void)
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

/* ---- Slots ----------------------------------------------------------------------------------- */

#define FIRST_FRAMES 128
#define FIRST_INDEX 64
#define PAGE_SLOTS 32

/* Slots never move: frames and the sources' callbacks point to them. */
typedef struct ep_count_page {
    struct ep_count_page *next;
    ep_count_slot slots[PAGE_SLOTS];
} ep_count_page;

static size_t
index_place(uint32_t name, size_t slots)
{
    return (size_t)(name * UINT32_C(2654435761) >> 7) & (slots - 1);
}

ep_count_slot *
ep_count_find_slot(const ep_count_view *view, uint32_t name)
{
    for (size_t at = index_place(name, view->index_slots);; at = (at + 1) & (view->index_slots - 1)) {
        ep_count_slot *slot = view->index[at];
        if (slot == NULL || slot->name == name) {
            return slot;
        }
    }
}

static void
enter_slot(ep_count_slot **index, size_t slots, ep_count_slot *slot)
{
    size_t at = index_place(slot->name, slots);
    while (index[at] != NULL) {
        at = (at + 1) & (slots - 1);
    }
    index[at] = slot;
}

static bool
double_index(ep_count_view *view)
{
    size_t slots = view->index_slots * 2;
    ep_count_slot **index = ep_calloc(slots, sizeof *index);
    if (index == NULL) {
        return false;
    }
    for (size_t i = 0; i < view->index_slots; i++) {
        if (view->index[i] != NULL) {
            enter_slot(index, slots, view->index[i]);
        }
    }
    free(view->index);
    view->index = index;
    view->index_slots = slots;
    return true;
}

static ep_count_slot *
new_slot(ep_count_view *view, uint32_t name)
{
    if (view->slot_count * 2 >= view->index_slots && !double_index(view)) {
        return NULL;
    }
    size_t in_page = view->slot_count % PAGE_SLOTS;
    if (in_page == 0) {
        ep_count_page *page = ep_calloc(1, sizeof *page);
        if (page == NULL) {
            return NULL;
        }
        page->next = view->pages;
        view->pages = page;
    }
    ep_count_slot *slot = &view->pages->slots[in_page];
    *slot = (ep_count_slot){.name = name, .min = UINT64_MAX};
    view->slot_count += 1;
    enter_slot(view->index, view->index_slots, slot);
    return slot;
}

ep_count_slot *
ep_count_slot_of(ep_count_view *view, uint32_t name)
{
    ep_count_slot *slot = ep_count_find_slot(view, name);
    if (slot == NULL && (slot = new_slot(view, name)) == NULL) {
        view->lost += 1;
    }
    return slot;
}

static void
zero_slot(ep_count_slot *slot)
{
    *slot = (ep_count_slot){.name = slot->name, .min = UINT64_MAX};
}

static void
visit_slots(ep_count_view *view, void (*visit)(ep_count_slot *))
{
    for (size_t i = 0; i < view->index_slots; i++) {
        if (view->index[i] != NULL) {
            visit(view->index[i]);
        }
    }
}

/* ---- Views: what a counter counted on one thread, a slot for each function ------------------- */

/* Views without a counter, oldest first. A thread without the GIL may add a block to a view at the moment
 * when its counter is freed. So the latest views are not freed but kept for the next counter, whose count
 * may then be one block too high. */
#define SPARE_VIEWS 64
static ep_count_view *spare_first, *spare_last;
static size_t spare_count;

static void
empty_stack(ep_count_view *view)
{
    view->top = view->frames;
    view->absent = (ep_absent_begin){0};
}

static void
free_view(ep_count_view *view)
{
    while (view->pages != NULL) {
        ep_count_page *page = view->pages;
        view->pages = page->next;
        free(page);
    }
    free(view->index);
    free(view->frames);
    free(view);
}

static ep_count_view *
new_view(void)
{
    ep_count_view *view = ep_calloc(1, sizeof *view);
    if (view == NULL) {
        return NULL;
    }
    view->frames = ep_calloc(FIRST_FRAMES, sizeof *view->frames);
    view->index = ep_calloc(FIRST_INDEX, sizeof(ep_count_slot *));
    view->index_slots = view->index != NULL ? FIRST_INDEX : 0;
    ep_count_slot *nowhere =
        view->frames != NULL && view->index != NULL ? new_slot(view, 0) : NULL;
    if (nowhere == NULL) {
        free_view(view);
        return NULL;
    }
    view->frames[0].slot = nowhere;
    view->limit = view->frames + FIRST_FRAMES;
    empty_stack(view);
    return view;
}

/* Makes a view empty: no counts, no open calls, no thread. */
static void
reset_view(ep_count_view *view)
{
    visit_slots(view, zero_slot);
    empty_stack(view);
    view->lost = view->unmatched = 0;
    view->thread = NULL;
    view->begun = false;
}

/* A view for a thread that has none. Returns: NULL without memory. */
static ep_count_view *
take_view(ep_counter *counter, ep_count_thread *thread)
{
    ep_count_view *view = counter->free_views;
    if (view != NULL) {
        counter->free_views = view->next_free;
    } else {
        if (spare_first != NULL) {
            view = spare_first;
            spare_first = view->next_free;
            spare_count -= 1;
            reset_view(view);
        } else if ((view = new_view()) == NULL) {
            return NULL;
        }
        view->counter = counter;
        view->next = counter->views;
        counter->views = view;
    }
    view->thread = thread;
    view->begun = false;
    return view;
}

/* The counter is freed: another counter may take its view. */
static void
give_view(ep_count_view *view)
{
    view->next_free = NULL;
    if (spare_first == NULL) {
        spare_first = view;
    } else {
        spare_last->next_free = view;
    }
    spare_last = view;
    spare_count += 1;
    while (spare_count > SPARE_VIEWS) {
        view = spare_first;
        spare_first = view->next_free;
        spare_count -= 1;
        free_view(view);
    }
}

/* The views in a thread's list may be of past windows; their serials show it. */
static ep_count_view *
view_of(const ep_counter *counter, const ep_count_thread *thread)
{
    for (size_t i = 0; i < thread->view_count; i++) {
        if (thread->serials[i] == counter->serial) {
            return thread->views[i];
        }
    }
    return NULL;
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

/* Ends all open calls, because the thread ends. */
static void
close_all(ep_count_view *view, uint64_t ticks)
{
    while (view->top > view->frames) {
        pop_cut(view, ticks);
    }
}

/* Room for one more frame. */
static EP_COLD bool
grow(ep_count_view *view)
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
    return view->top + 1 < view->limit || grow(view);
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

/* ---- Threads that are counted ---------------------------------------------------------------- */

void
ep_count_settle(ep_count_thread *thread)
{
    const ep_count_view *view = thread->view_count == 1 ? thread->views[0] : NULL;
    bool fast = view != NULL && view->counter->filter == NULL && !view->counter->tells &&
                (view->counter->calls || !thread->has_calls) &&
                (view->counter->c_calls || !thread->has_c_calls) && ep_count_by_counter &&
                view->begun && !ep_count_top_is_own(view) && thread->calling == 0 &&
                thread->first_frame == NULL;
    thread->fast_in = fast ? thread->generation : 0;
}

/* After the thread-exit destructors of others in their first round, which may still run Python code. */
static void
on_thread_exit(void *value)
{
    ep_count_thread *thread = value;
    if (++thread->exit_rounds == 1) {
        pthread_setspecific(exit_key, thread);
        return;
    }
    uint64_t ticks = ep_count_ticks() - thread->aside;
    ep_count_current = NULL;
    is_over = true;
    if (!ep_os_lock(&ep_count_mutex)) {
        return;    /* views have the address of the thread, which stays */
    }
    for (size_t i = 0; i < counting.running_count; i++) {
        ep_count_view *view = view_of(counting.running[i], thread);
        if (view != NULL) {
            close_all(view, ticks);
            view->thread = NULL;
            view->next_free = counting.running[i]->free_views;
            counting.running[i]->free_views = view;
        }
        if (counting.running[i]->only == thread) {
            counting.running[i]->only = &nobody;    /* another thread may get its address */
        }
    }
    ep_mutex_unlock(&ep_count_mutex);
    free(thread);
}

/* The calling thread's own. Returns: NULL without memory, or once the thread has ended. */
static ep_count_thread *
new_thread(void)
{
    ep_count_thread *thread = is_over ? NULL : ep_calloc(1, sizeof *thread);
    if (thread != NULL) {
        (void)pthread_setspecific(exit_key, thread);    /* if it fails, no other thread takes over its
                                                         * views */
        ep_count_current = thread;
    }
    return thread;
}

ep_count_thread *
ep_count_attach(void)
{
    ep_count_thread *thread = ep_count_current;
    if (thread == NULL && (thread = new_thread()) == NULL) {
        return NULL;
    }
    ep_count_view *views[EP_COUNTERS_MAX];
    uint64_t serials[EP_COUNTERS_MAX];
    size_t count = 0;
    if (!ep_os_lock(&ep_count_mutex)) {
        return NULL;
    }
    thread->has_calls = thread->has_c_calls = false;
    for (size_t i = 0; i < counting.running_count; i++) {
        ep_counter *counter = counting.running[i];
        thread->has_calls = thread->has_calls || counter->calls;
        thread->has_c_calls = thread->has_c_calls || counter->c_calls;
        if (counter->only != NULL && counter->only != thread) {
            continue;
        }
        ep_count_view *view = view_of(counter, thread);
        if (view == NULL && (view = take_view(counter, thread)) == NULL) {
            counter->lost += 1;
            continue;
        }
        views[count] = view;
        serials[count++] = counter->serial;
    }
    memcpy(thread->views, views, count * sizeof *views);
    memcpy(thread->serials, serials, count * sizeof *serials);
    thread->view_count = count;
    thread->generation = ep_count_now_generation();
    ep_count_keep_blocks(thread);
    ep_count_settle(thread);
    ep_mutex_unlock(&ep_count_mutex);
    return thread;
}

/* ---- Counters: they start and stop ----------------------------------------------------------- */

_Atomic uint64_t ep_count_generation = 1;

static void
next_generation(void)
{
    atomic_store_explicit(&ep_count_generation, ep_count_now_generation() + 1, memory_order_relaxed);
}

ep_counter *
ep_counter_new(void)
{
    return ep_calloc(1, sizeof(ep_counter));
}

void
ep_counter_changed(void)
{
    next_generation();
}

/* Not checked: counters start and stop while no other thread asks. */
EP_NOT_CHECKED ep_counter *
ep_counter_running(size_t at)
{
    return at < counting.running_count ? counting.running[at] : NULL;
}

static void
reset_views(ep_counter *counter)
{
    counter->free_views = NULL;
    for (ep_count_view *view = counter->views; view != NULL; view = view->next) {
        reset_view(view);
        view->next_free = counter->free_views;
        counter->free_views = view;
    }
    counter->lost = 0;
}

ep_status
ep_counter_start(ep_counter *counter, uint64_t ticks)
{
    ep_count_thread *own_thread = ep_count_current;
    if (own_thread == NULL && (own_thread = new_thread()) == NULL) {
        return EP_NOMEM;
    }
    if (!ep_os_lock(&ep_count_mutex)) {
        return EP_NOMEM;
    }
    bool can = !counter->running && counting.running_count < EP_COUNTERS_MAX;
    if (can) {
        reset_views(counter);
        counter->serial = ++counting.last_serial;
        counter->start_ticks = ticks;
        counter->only = counter->this_thread_only ? own_thread : NULL;
        counter->running = true;
        counting.running[counting.running_count++] = counter;
        next_generation();
    }
    ep_mutex_unlock(&ep_count_mutex);
    return can ? EP_OK : EP_STATE;
}

void
ep_counter_stop(ep_counter *counter, uint64_t ticks)
{
    if (!ep_os_lock(&ep_count_mutex)) {
        return;
    }
    for (size_t i = 0; i < counting.running_count; i++) {
        if (counting.running[i] == counter) {
            counting.running[i] = counting.running[--counting.running_count];
            break;
        }
    }
    if (counter->running) {
        counter->running = false;
        counter->stop_ticks = ticks;
        for (ep_count_view *view = counter->views; view != NULL; view = view->next) {
            view->stop_ticks = ticks - (view->thread != NULL ? view->thread->aside : 0);
        }
        next_generation();
    }
    ep_mutex_unlock(&ep_count_mutex);
}

void
ep_counter_free(ep_counter *counter)
{
    if (counter == NULL) {
        return;
    }
    ep_counter_stop(counter, counter->stop_ticks);
    if (!ep_os_lock(&ep_count_mutex)) {
        return;    /* views and the list of running counters have its address, which stays */
    }
    while (counter->views != NULL) {
        ep_count_view *view = counter->views;
        counter->views = view->next;
        give_view(view);
    }
    ep_mutex_unlock(&ep_count_mutex);
    free(counter);
}

size_t
ep_counter_bytes(ep_counter *counter)
{
    size_t bytes = sizeof *counter;
    if (!ep_os_lock(&ep_count_mutex)) {
        return bytes;
    }
    for (const ep_count_view *view = counter->views; view != NULL; view = view->next) {
        bytes += sizeof *view + (size_t)(view->limit - view->frames) * sizeof *view->frames +
                 view->index_slots * sizeof *view->index;
        for (const ep_count_page *page = view->pages; page != NULL; page = page->next) {
            bytes += sizeof *page;
        }
    }
    ep_mutex_unlock(&ep_count_mutex);
    return bytes;
}

/* ---- Reading: a row for each function, of all views of a counter ----------------------------- */

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
    visit_slots(view, begin_reading);
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

/* ---- Life of the process --------------------------------------------------------------------- */

static bool has_lock_to_fork;

/* Not checked: what it takes after_fork() gives back, if it was taken. */
static EP_NOT_CHECKED void
before_fork(void)
{
    has_lock_to_fork = ep_os_lock(&ep_count_mutex);
}

static EP_NOT_CHECKED void
after_fork(void)
{
    if (has_lock_to_fork) {
        ep_mutex_unlock(&ep_count_mutex);
    }
}

/* Open calls stay open, and begin now. */
static void
begin_anew(ep_count_view *view, uint64_t ticks)
{
    ep_count_thread *thread = view->thread;
    size_t depth = (size_t)(view->top - view->frames);
    bool begun = view->begun;
    reset_view(view);
    view->thread = thread;
    view->begun = begun;
    for (size_t i = 1; i <= depth; i++) {
        ep_count_frame *frame = &view->frames[i];
        if (frame->key & EP_COUNT_OWN) {
            frame->inside = 0;
            view->top = frame;
        } else {
            (void)ep_count_open_before(view, frame->slot, frame->key, ticks);
        }
    }
}

void
ep_count_after_fork(uint64_t ticks)
{
    const ep_count_thread *own_thread = ep_count_current;
    if (!ep_os_lock(&ep_count_mutex)) {
        return;
    }
    for (size_t i = 0; i < counting.running_count; i++) {
        ep_counter *counter = counting.running[i];
        counter->free_views = NULL;
        counter->lost = 0;
        counter->start_ticks = ticks;
        for (ep_count_view *view = counter->views; view != NULL; view = view->next) {
            if (view->thread != NULL && view->thread == own_thread) {
                begin_anew(view, ticks - own_thread->aside);
            } else {
                reset_view(view);
                view->next_free = counter->free_views;
                counter->free_views = view;
            }
        }
    }
    ep_mutex_unlock(&ep_count_mutex);
}

ep_status
ep_count_init(void)
{
    static bool done;
    if (done) {
        return EP_OK;
    }
    done = true;
    start_clock();
    bool made = pthread_key_create(&exit_key, on_thread_exit) == 0;
    return made ? ep_os_fork_install(before_fork, after_fork, after_fork) : EP_NOMEM;
}
