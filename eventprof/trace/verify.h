/* Replays a trace and names what is wrong with it.
 *
 * A trace is right if it could have happened: times in order, ends that fit the innermost call,
 * blocks that are freed once, counts that add up. What a trace cannot know is no reason to blame it,
 * and is counted as excused: calls and blocks that are older than the window, what a ring or a
 * damaged file lost, what filters left out, events of two threads that their clocks have in the
 * wrong order. */
#ifndef EP_VERIFY_H
#define EP_VERIFY_H

#include "decode.h"
#include "engine.h"
#include "pair.h"
#include "types.h"

typedef enum ep_finding_sort {
#define EP_FINDING(NAME, word, text) EP_FINDING_##NAME,
#include "findings.def"
#undef EP_FINDING
    EP_FINDING_COUNT
} ep_finding_sort;

typedef struct ep_finding_info {
    const char *word, *text;
} ep_finding_info;

extern EP_HIDDEN const ep_finding_info ep_findings[EP_FINDING_COUNT];

#define EP_FINDING_NO_ROW SIZE_MAX

typedef struct ep_finding {
    ep_finding_sort sort;
    size_t row;                   /* event that is wrong; NO_ROW: it is about a whole thread, or all */
    int32_t thread;               /* row of the thread table; -1: of none */
    int64_t time_ns;              /* of the row; 0 without */
    size_t other_row;             /* event that it does not agree with; NO_ROW: there is none */
    /* What was expected, and what is there: functions (rows, -1: none) of ends, times, sizes, counts,
     * ids. 0 where the sort says all. */
    int64_t expected, found;
    uint64_t address;             /* of a block; else 0 */
} ep_finding;

/* Views, all of them. */
typedef struct ep_verify_input {
    const ep_columns *columns;
    const ep_id_map *map;
    const ep_trace_thread *threads;
    size_t thread_count;
    ep_kind_set kinds;            /* that were asked for */
    int64_t duration_ns;
    bool lost_tail;               /* recording ended early: what is lost comes after what is there */
    bool filtered;                /* calls were left out by name, depth or duration */
    bool one_thread;              /* blocks that other threads freed or made are not in it */
    bool hook_frees;              /* it has frees of blocks that the hooks of calls made */
    bool damaged;                 /* parts of a file are missing, anywhere */
    bool calls_displaced, memory_displaced;    /* another tool took the hook over */
} ep_verify_input;

typedef struct ep_verification {
    uint64_t counts[EP_FINDING_COUNT];     /* of all that was found */
    uint64_t excused[EP_FINDING_COUNT];    /* would be wrong if the trace knew everything */
    ep_finding *findings;                  /* the first of them, in order of rows; owned */
    size_t count, limit;
} ep_verification;

/* Linear in the events. Takes memory for the calls that are open, and 24 bytes for each address
 * (with twice the room, as hash tables have) up to four million; of more, only those of living
 * blocks are kept, and a block that is freed again later goes unnoticed.
 * limit: findings that are kept, at least 1. progress: may be NULL. Returns through out: new, for
 * ep_verification_clear(); untouched on failure. Fails: EP_NOMEM; EP_ARGUMENT, too many events;
 * EP_STATE, asked to stop. */
EP_CHECKED ep_status ep_verify(const ep_verify_input *input, size_t limit,
                               const ep_progress *progress, ep_verification *out);

/* Adds one from elsewhere. */
void ep_verification_add(ep_verification *verification, const ep_finding *finding);

void ep_verification_clear(ep_verification *verification);

/* ---- Records --------------------------------------------------------------------------------- */

/* What shows in records alone: columns have what decode.c evened out. */
typedef struct ep_record_check {
    bool done;
    uint64_t chunks, records;     /* looked at */
    uint64_t decoded_count, record_count;    /* of the window: rows that decoding made, and records */
    uint64_t unsure_count;        /* by which these two may differ: chunks are still written to */
    int64_t back_ns;              /* the most that a thread's clock went back */
    uint32_t back_thread_id;
} ep_record_check;

/* Walks the records that `decoded` was made of, one by one. */
void ep_check_records(const ep_capture *capture, uint32_t only_thread, const ep_decoded *decoded,
                      ep_record_check *out);

/* Adds what it found. */
void ep_verify_records(const ep_record_check *check, const ep_trace_thread *threads,
                       size_t thread_count, ep_verification *verification);

#endif
