/* Counters: they start and stop. */
#include "count_parts.h"
#include "memory.h"
#include "os.h"

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
    return at < ep_counting.running_count ? ep_counting.running[at] : NULL;
}

static void
reset_views(ep_counter *counter)
{
    counter->free_views = NULL;
    for (ep_count_view *view = counter->views; view != NULL; view = view->next) {
        ep_count_reset_view(view);
        view->next_free = counter->free_views;
        counter->free_views = view;
    }
    counter->lost = 0;
}

ep_status
ep_counter_start(ep_counter *counter, uint64_t ticks)
{
    ep_count_thread *own_thread = ep_count_current;
    if (own_thread == NULL && (own_thread = ep_count_new_thread()) == NULL) {
        return EP_NOMEM;
    }
    if (!ep_os_lock(&ep_count_mutex)) {
        return EP_NOMEM;
    }
    bool can = !counter->running && ep_counting.running_count < EP_COUNTERS_MAX;
    if (can) {
        reset_views(counter);
        counter->serial = ++ep_counting.last_serial;
        counter->start_ticks = ticks;
        counter->only = counter->this_thread_only ? own_thread : NULL;
        counter->running = true;
        ep_counting.running[ep_counting.running_count++] = counter;
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
    for (size_t i = 0; i < ep_counting.running_count; i++) {
        if (ep_counting.running[i] == counter) {
            ep_counting.running[i] = ep_counting.running[--ep_counting.running_count];
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
        ep_count_give_view(view);
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
