/* Views: what a counter counted on one thread, a slot for each function. */
#include <string.h>

#include "count_parts.h"
#include "memory.h"

#define FIRST_FRAMES 128
#define FIRST_INDEX 64

/* ---- Slots ----------------------------------------------------------------------------------- */

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
    size_t in_page = view->slot_count % EP_COUNT_PAGE_SLOTS;
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

void
ep_count_each_slot(ep_count_view *view, void (*visit)(ep_count_slot *))
{
    for (size_t i = 0; i < view->index_slots; i++) {
        if (view->index[i] != NULL) {
            visit(view->index[i]);
        }
    }
}

/* ---- Views ----------------------------------------------------------------------------------- */

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

void
ep_count_reset_view(ep_count_view *view)
{
    ep_count_each_slot(view, zero_slot);
    empty_stack(view);
    view->lost = view->unmatched = 0;
    view->thread = NULL;
    view->begun = false;
}

ep_count_view *
ep_count_take_view(ep_counter *counter, ep_count_thread *thread)
{
    ep_count_view *view = counter->free_views;
    if (view != NULL) {
        counter->free_views = view->next_free;
    } else {
        if (spare_first != NULL) {
            view = spare_first;
            spare_first = view->next_free;
            spare_count -= 1;
            ep_count_reset_view(view);
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

void
ep_count_give_view(ep_count_view *view)
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

ep_count_view *
ep_count_view_of(const ep_counter *counter, const ep_count_thread *thread)
{
    for (size_t i = 0; i < thread->view_count; i++) {
        if (thread->serials[i] == counter->serial) {
            return thread->views[i];
        }
    }
    return NULL;
}
