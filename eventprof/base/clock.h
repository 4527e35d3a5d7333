/* The one clock of all events: raw ticks in the hooks, nanoseconds at retrieval.
 *
 * Ticks are the processor's counter where it is invariant (x86-64 TSC, arm64 cntvct), otherwise
 * CLOCK_MONOTONIC in nanoseconds. Reading the counter adds 0-2 ns to a call hook, because it
 * overlaps with the interpreter's work; clock_gettime adds 12-20 ns. */
#ifndef EP_CLOCK_H
#define EP_CLOCK_H

#include "types.h"

typedef enum ep_clock_mode {
    EP_CLOCK_COUNTER,      /* the processor's */
    EP_CLOCK_MONOTONIC,
    EP_CLOCK_INJECTED      /* tests: ep_clock_injected() */
} ep_clock_mode;

/* Constant while anything records. */
extern EP_HIDDEN ep_clock_mode ep_clock_current;
extern uint64_t (*ep_clock_injected)(void);

uint64_t ep_clock_ticks_slow(void);

#if defined(__x86_64__) || defined(__aarch64__)
#define EP_CLOCK_HAS_COUNTER 1
#else
#define EP_CLOCK_HAS_COUNTER 0
#endif

/* HOT. The processor's counter; call it only while the counter is the clock. 0 on processors without
 * one. */
static inline uint64_t
ep_clock_counter(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return 0;
#endif
}

/* The counter in two halves, as the processor gives it and as records keep it. Joining and splitting them
 * would take four instructions. */
typedef struct ep_ticks {
    uint32_t low, high;
} ep_ticks;

static inline ep_ticks
ep_ticks_halves(uint64_t whole)
{
    return (ep_ticks){(uint32_t)whole, (uint32_t)(whole >> 32)};
}

/* HOT. As ep_clock_counter(). */
static inline ep_ticks
ep_clock_counter_halves(void)
{
    ep_ticks ticks;
#if defined(__x86_64__)
    __asm__ volatile("rdtsc" : "=a"(ticks.low), "=d"(ticks.high));
#else
    ticks = ep_ticks_halves(ep_clock_counter());
#endif
    return ticks;
}

static inline uint64_t
ep_ticks_whole(ep_ticks ticks)
{
    return (uint64_t)ticks.high << 32 | ticks.low;
}

/* HOT. Whether the clock is the processor's counter. */
static inline bool
ep_clock_is_counter(void)
{
    return EP_CLOCK_HAS_COUNTER && EP_LIKELY(ep_clock_current == EP_CLOCK_COUNTER);
}

/* HOT. The current instant in ticks. */
static inline uint64_t
ep_clock_ticks(void)
{
    if (ep_clock_is_counter()) {
        return ep_clock_counter();
    }
    return ep_clock_ticks_slow();
}

/* Whether the processor's counter may be used: it exists, and the system says that it is
 * invariant. */
bool ep_clock_counter_usable(void);

/* Chooses the clock. Only while nothing records. Fails: EP_UNSUPPORTED if there is no usable
 * counter. */
EP_CHECKED ep_status ep_clock_choose(ep_clock_mode mode);

/* Both clocks at one instant: the best of a few tries, because a preemption between the two reads
 * would skew every time computed from it. */
ep_anchor ep_clock_anchor(void);

/* The smallest step ever seen between two reads, in ticks: the true resolution. */
uint64_t ep_clock_step_ticks(void);

/* Ticks -> ns, piecewise linear through anchors. */
typedef struct ep_clock_map {
    size_t count;
    size_t capacity;
    ep_anchor *anchors;    /* ticks and ns strictly growing */
} ep_clock_map;

void ep_clock_map_free(ep_clock_map *map);

/* Anchors may come in any order; those nearer than 50 ms to a neighbour are dropped by finish(),
 * which leaves at least two. */
EP_CHECKED ep_status ep_clock_map_add(ep_clock_map *map, ep_anchor anchor);
void ep_clock_map_finish(ep_clock_map *map);

/* A stretch of time in which ns = base_ns + (ticks - base_ticks) * scale. */
typedef struct ep_clock_stretch {
    uint64_t first_ticks, last_ticks;    /* valid for first <= ticks < last */
    uint64_t base_ticks;
    double base_ns;
    double scale;
} ep_clock_stretch;

/* The stretch that holds `ticks`; the outermost ones reach to the ends of time. Needs a finished
 * map. */
ep_clock_stretch ep_clock_map_stretch(const ep_clock_map *map, uint64_t ticks, int64_t origin_ns);

static inline int64_t
ep_clock_stretch_ns(const ep_clock_stretch *stretch, uint64_t ticks)
{
    return (int64_t)(stretch->base_ns + (double)(int64_t)(ticks - stretch->base_ticks) * stretch->scale);
}

/* The ticks at a time of the monotonic clock, between 0 and INT64_MAX. Needs a finished map. */
uint64_t ep_clock_map_ticks(const ep_clock_map *map, int64_t monotonic_ns);

/* Ticks of the clock in one second, computed from the map's first and last anchor. */
double ep_clock_map_frequency_hz(const ep_clock_map *map);

#endif
