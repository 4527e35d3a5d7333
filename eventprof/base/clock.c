/* Ticks, their anchors in CLOCK_MONOTONIC, and the conversion between the two. */
#include "clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "memory.h"
#include "os.h"

#define ANCHOR_TRIES 8
#define ANCHOR_SPACING_NS 50000000

ep_clock_mode ep_clock_current = EP_CLOCK_MONOTONIC;
uint64_t (*ep_clock_injected)(void);

uint64_t
ep_clock_ticks_slow(void)
{
    if (ep_clock_current == EP_CLOCK_INJECTED) {
        return ep_clock_injected();
    }
    return (uint64_t)ep_os_monotonic_ns();
}

#if defined(__x86_64__)
/* If Linux finds that the counter is not synchronised between processors, it chooses another clock
 * source. */
static bool
kernel_trusts_counter(void)
{
#ifdef __linux__
    FILE *file = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
    if (file == NULL) {
        return true;    /* no sysfs (a sandbox): CPUID decides alone */
    }
    char name[32] = "";
    bool read = fgets(name, sizeof name, file) != NULL;
    fclose(file);
    return !read || strncmp(name, "tsc", 3) == 0 || strncmp(name, "kvm-clock", 9) == 0 ||
           strncmp(name, "hyperv", 6) == 0;
#else
    return true;
#endif
}
#endif

bool
ep_clock_counter_usable(void)
{
#if defined(__x86_64__)
    static _Atomic int known;    /* 0 unknown, 1 no, 2 yes; a race computes the same value twice */
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (answer == 0) {
        unsigned a, b, c, d;
        /* CPUID 0x80000007, EDX bit 8: the TSC runs at a constant rate in all power states. Some
         * hypervisors hide that leaf's bit; the kernel's decision counts then. */
        bool invariant = __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & (1u << 8));
        answer = invariant && kernel_trusts_counter() ? 2 : 1;
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer == 2;
#elif defined(__aarch64__)
    return true;
#else
    return false;
#endif
}

ep_status
ep_clock_choose(ep_clock_mode mode)
{
    if (mode == EP_CLOCK_COUNTER && !ep_clock_counter_usable()) {
        return EP_UNSUPPORTED;
    }
    ep_clock_current = mode;
    return EP_OK;
}

ep_anchor
ep_clock_anchor(void)
{
    ep_anchor best = {0, 0};
    uint64_t best_gap = UINT64_MAX;
    if (ep_clock_current != EP_CLOCK_COUNTER) {
        /* The ticks are nanoseconds already; injected ticks of tests count as nanoseconds. */
        best.ticks = ep_clock_ticks();
        best.monotonic_ns = (int64_t)best.ticks;
        return best;
    }
    for (int i = 0; i < ANCHOR_TRIES; i++) {
        uint64_t before = ep_clock_ticks();
        int64_t ns = ep_os_monotonic_ns();
        uint64_t gap = ep_clock_ticks() - before;
        if (gap < best_gap) {
            best_gap = gap;
            best.ticks = before + gap / 2;
            best.monotonic_ns = ns;
        }
    }
    return best;
}

uint64_t
ep_clock_step_ticks(void)
{
    uint64_t smallest = UINT64_MAX;
    uint64_t last = ep_clock_ticks();
    for (int i = 0; i < 2000; i++) {
        uint64_t now = ep_clock_ticks();
        if (now != last && now - last < smallest) {
            smallest = now - last;
        }
        last = now;
    }
    return smallest == UINT64_MAX ? 1 : smallest;
}

void
ep_clock_map_free(ep_clock_map *map)
{
    free(map->anchors);
    *map = (ep_clock_map){0};
}

ep_status
ep_clock_map_add(ep_clock_map *map, ep_anchor anchor)
{
    if (!ep_grow((void **)&map->anchors, &map->capacity, map->count + 2, sizeof *map->anchors)) {
        return EP_NOMEM;
    }
    map->anchors[map->count++] = anchor;
    return EP_OK;
}

static int
by_ticks(const void *a, const void *b)
{
    const ep_anchor *x = a, *y = b;
    return (x->ticks > y->ticks) - (x->ticks < y->ticks);
}

void
ep_clock_map_finish(ep_clock_map *map)
{
    if (map->count == 0) {
        return;
    }
    qsort(map->anchors, map->count, sizeof *map->anchors, by_ticks);
    ep_anchor last = map->anchors[map->count - 1];
    size_t kept = 1;
    for (size_t i = 1; i + 1 < map->count; i++) {
        const ep_anchor *before = &map->anchors[kept - 1], *at = &map->anchors[i];
        if (at->monotonic_ns - before->monotonic_ns >= ANCHOR_SPACING_NS &&
            last.monotonic_ns - at->monotonic_ns >= ANCHOR_SPACING_NS && at->ticks > before->ticks) {
            map->anchors[kept++] = *at;
        }
    }
    ep_anchor first = map->anchors[0];
    if (kept == 1 && (last.ticks <= first.ticks || last.monotonic_ns <= first.monotonic_ns)) {
        /* An empty window: any slope will do. There is room for two anchors, see add(). */
        last = (ep_anchor){first.ticks + 1, first.monotonic_ns + 1};
    }
    map->anchors[kept++] = last;
    map->count = kept;
}

ep_clock_stretch
ep_clock_map_stretch(const ep_clock_map *map, uint64_t ticks, int64_t origin_ns)
{
    size_t low = 0, high = map->count - 2;    /* the stretch begins at anchors[low] */
    while (low < high) {
        size_t middle = (low + high + 1) / 2;
        if (map->anchors[middle].ticks <= ticks) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    const ep_anchor *a = &map->anchors[low], *b = a + 1;
    return (ep_clock_stretch){
        .first_ticks = low == 0 ? 0 : a->ticks,
        .last_ticks = low + 2 == map->count ? UINT64_MAX : b->ticks,
        .base_ticks = a->ticks,
        .base_ns = (double)(a->monotonic_ns - origin_ns),
        .scale = (double)(b->monotonic_ns - a->monotonic_ns) / (double)(b->ticks - a->ticks),
    };
}

uint64_t
ep_clock_map_ticks(const ep_clock_map *map, int64_t monotonic_ns)
{
    size_t at = map->count - 2;    /* the stretch begins at anchors[at] */
    while (at > 0 && map->anchors[at].monotonic_ns > monotonic_ns) {
        at -= 1;
    }
    const ep_anchor *a = &map->anchors[at], *b = a + 1;
    double scale = (double)(b->ticks - a->ticks) / (double)(b->monotonic_ns - a->monotonic_ns);
    double ticks = (double)a->ticks + (double)(monotonic_ns - a->monotonic_ns) * scale;
    return ticks > 0 ? (uint64_t)ticks : 0;
}

double
ep_clock_map_frequency_hz(const ep_clock_map *map)
{
    const ep_anchor *first = &map->anchors[0], *last = &map->anchors[map->count - 1];
    return (double)(last->ticks - first->ticks) * 1e9 /
           (double)(last->monotonic_ns - first->monotonic_ns);
}
