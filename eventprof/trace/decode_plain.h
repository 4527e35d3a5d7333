/* Records that need no second look, many at a time: the fast half of decode.c, which reads all
 * others. */
#ifndef EP_DECODE_PLAIN_H
#define EP_DECODE_PLAIN_H

#include "clock.h"
#include "types.h"

/* One thread's records and where their rows go. Ticks are plain if they lie in the window, before
 * it was full, and in one stretch of the clock. */
typedef struct ep_plain {
    /* the caller's */
    const uint64_t *limit;      /* nothing is read at or behind it, but for one word */
    ep_kind_set kinds;          /* that are wanted */
    uint64_t high;              /* high half of all ticks, shifted into place */
    uint64_t first_ticks, last_ticks;
    ep_clock_stretch stretch;
    ep_columns *rows;           /* room in their arrays: */
    size_t capacity, alloc_capacity;
    /* moved on */
    const uint64_t *at;
    int64_t last_ns;            /* of the thread's rows so far; time never goes backwards */
    uint64_t *recorded;         /* rows by kind */
} ep_plain;

/* HOT, 1-2 ns a call, 4 ns a block. Reads on while records are plain: no CONTROL kind, ticks as
 * above, room for them. Only of a sealed chunk. */
void ep_plain_read(ep_plain *plain);

/* How calls are read, best first; the last works everywhere. All give the same rows: tests compare
 * them. */
typedef enum ep_plain_way {
    EP_PLAIN_AVX2,
    EP_PLAIN_ONE_BY_ONE,
    EP_PLAIN_WAY_COUNT
} ep_plain_way;

bool ep_plain_can(ep_plain_way way);
/* For tests: the way from now on. Not while anybody decodes. */
void ep_plain_use(ep_plain_way way);

#endif
