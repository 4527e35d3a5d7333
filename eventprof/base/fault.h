/* In a test build (EP_FAULT_POINTS) requests can be made to fail, and a thread can be stopped or the
 * process ended at named points. Other builds compile both away. */
#ifndef EP_FAULT_H
#define EP_FAULT_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef enum ep_fault_point {
#define EP_FAULT(NAME, text, locks) EP_FAULT_##NAME,
#include "faults.def"
#undef EP_FAULT
    EP_FAULT_COUNT
} ep_fault_point;

#ifdef EP_FAULT_POINTS
/* Requests (heap, maps, slots, threads) until one fails; negative: none will; EP_FAULT_ALWAYS: all do.
 * Tests set it. */
extern _Atomic long ep_fault_countdown;
#define EP_FAULT_ALWAYS LONG_MAX
bool ep_fault_now(void);

/* If a test set it, each thread calls it at each point; it may never return. */
extern void (*_Atomic ep_fault_handler)(ep_fault_point point);

static inline void
ep_fault_at(ep_fault_point point)
{
    void (*handler)(ep_fault_point) = atomic_load_explicit(&ep_fault_handler, memory_order_relaxed);
    if (__builtin_expect(handler != 0, 0)) {
        handler(point);
    }
}
#define EP_FAULT_POINT(NAME) ep_fault_at(EP_FAULT_##NAME)
#else
static inline bool
ep_fault_now(void)
{
    return false;
}
#define EP_FAULT_POINT(NAME) ((void)0)
#endif

#endif
