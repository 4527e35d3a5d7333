/* The fast path of decode.c: reads many records at a time that need no further checks. decode.c reads the
 * other records. */
#ifndef EP_DECODE_PLAIN_H
#define EP_DECODE_PLAIN_H

#include "clock.h"
#include "decoded.h"
#include "types.h"

/* What a record of a kind writes, as masks: tests of sets of kinds took a third of the instructions. */
#define EP_PLAIN_KINDS 64
typedef struct ep_plain_mask {
    uint64_t site;         /* bits of word 1 that are the site */
    uint64_t not_id;       /* all ones: the payload is no id */
    uint64_t address;      /* all ones: word 1 is the address, or the value, as it is; there is no size */
    uint8_t row, block;    /* 1: it makes one */
} ep_plain_mask;

void ep_plain_find_masks(ep_kind_set wanted, ep_plain_mask masks[EP_PLAIN_KINDS]);

/* One thread's records, and the columns for their rows. Ticks are plain if they are in the window, before
 * it was full, and in one stretch of the clock. */
typedef struct ep_plain {
    /* set by the caller */
    const uint64_t *limit;      /* no word after it is read */
    ep_kind_set kinds;          /* that are wanted */
    const ep_plain_mask *masks; /* of those */
    uint64_t high;              /* high half of all ticks, shifted into place */
    uint64_t first_ticks, last_ticks;
    ep_clock_stretch stretch;
    ep_columns *rows;           /* room in their arrays: */
    size_t capacity, alloc_capacity;
    /* advanced by ep_plain_read() */
    const uint64_t *at;
    int64_t last_ns;            /* time of the thread's last row; time never goes backwards */
    uint64_t *recorded;         /* rows by kind */
} ep_plain;

/* HOT, 1-2 ns a call, 4 ns a block. Reads while records are plain (no CONTROL kind, plain ticks) and there
 * is room. Only for a sealed chunk. */
void ep_plain_read(ep_plain *plain);

/* Implementations, the fastest first; the last works on every processor. All give the same rows: tests
 * compare them. */
typedef enum ep_plain_way {
    EP_PLAIN_AVX2,
    EP_PLAIN_ONE_BY_ONE,
    EP_PLAIN_WAY_COUNT
} ep_plain_way;

bool ep_plain_can(ep_plain_way way);
/* For tests: chooses the implementation. Not while any thread decodes. */
void ep_plain_use(ep_plain_way way);

#endif
