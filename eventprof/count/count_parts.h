/* Shared by the files of count/. Other code includes count.h, the interface. */
#ifndef EP_COUNT_PARTS_H
#define EP_COUNT_PARTS_H

#include "count.h"
#include "mutex.h"

#define EP_COUNT_PAGE_SLOTS 32

/* Slots never move: frames and the sources' callbacks point to them. */
typedef struct ep_count_page {
    struct ep_count_page *next;
    ep_count_slot slots[EP_COUNT_PAGE_SLOTS];
} ep_count_page;

/* Protects the counters' lists of views, the running counters, and threads that come and go. Cold paths
 * only; nothing but the C library is called under it. */
extern EP_HIDDEN ep_mutex ep_count_mutex;

struct ep_counting {
    ep_counter *running[EP_COUNTERS_MAX];
    size_t running_count;
    uint64_t last_serial;
};

extern EP_HIDDEN struct ep_counting ep_counting EP_GUARDED_BY(ep_count_mutex);

/* ---- count.c --------------------------------------------------------------------------------- */

/* The clock of all counters from now on. */
void ep_count_start_clock(void);

/* Ends all open calls, because the thread ends. */
void ep_count_close_all(ep_count_view *view, uint64_t ticks);

/* ---- count_views.c --------------------------------------------------------------------------- */

void ep_count_each_slot(ep_count_view *view, void (*visit)(ep_count_slot *));

/* Makes a view empty: no counts, no open calls, no thread. */
void ep_count_reset_view(ep_count_view *view);

/* A view for a thread that has none. Returns: NULL without memory. */
ep_count_view *ep_count_take_view(ep_counter *counter, ep_count_thread *thread);

/* The counter is freed: another counter may take its view. */
void ep_count_give_view(ep_count_view *view);

/* The views in a thread's list may be of past windows; their serials show it. */
ep_count_view *ep_count_view_of(const ep_counter *counter, const ep_count_thread *thread);

/* ---- count_threads.c ------------------------------------------------------------------------- */

/* The calling thread's own. Returns: NULL without memory, or once the thread has ended. */
ep_count_thread *ep_count_new_thread(void);

#endif
