/* Replays a trace and reports errors in it.
 *
 * A trace is right if it could have happened: times are in order, ends fit the innermost call, blocks are
 * freed once, counts add up. Deviations with a known cause are counted as excused: calls and blocks that
 * are older than the window, events that a ring or a damaged file lost or that filters left out, and events
 * of two threads whose clocks have them in the wrong order. */
#ifndef EP_VERIFY_H
#define EP_VERIFY_H

#include "decode.h"
#include "engine.h"
#include "pair.h"
#include "types.h"

typedef enum ep_trace_fault_sort {
#define EP_TRACE_FAULT(NAME, word, text) EP_TRACE_FAULT_##NAME,
#include "trace_faults.def"
#undef EP_TRACE_FAULT
    EP_TRACE_FAULT_COUNT
} ep_trace_fault_sort;

typedef struct ep_trace_fault_info {
    const char *word, *text;
} ep_trace_fault_info;

extern EP_HIDDEN const ep_trace_fault_info ep_trace_faults[EP_TRACE_FAULT_COUNT];

#define EP_TRACE_FAULT_NO_ROW SIZE_MAX

typedef struct ep_trace_fault {
    ep_trace_fault_sort sort;
    size_t row;                   /* event that is wrong; NO_ROW: the fault is about a thread or the whole
                                   * trace */
    int32_t thread;               /* row of the thread table; -1: about no thread */
    int64_t time_ns;              /* of the row; 0 without */
    size_t other_row;             /* event that contradicts it; NO_ROW: there is none */
    /* The expected and the found value: functions (rows, -1: none) of ends, times, sizes, counts or ids. 0
     * if the sort of the fault says everything. */
    int64_t expected, found;
    uint64_t address;             /* of a block; else 0 */
} ep_trace_fault;

/* Views, all of them. */
typedef struct ep_verify_input {
    const ep_columns *columns;
    const ep_id_map *map;
    const ep_trace_thread *threads;
    size_t thread_count;
    ep_kind_set kinds;            /* that were asked for */
    int64_t duration_ns;
    bool lost_tail;               /* recording ended early: lost events are later than the recorded ones */
    bool filtered;                /* calls were left out by name, depth or duration */
    bool one_thread;              /* only one thread was recorded: frees and allocations of others are
                                   * missing */
    bool hook_frees;              /* it has frees of blocks that the hooks of calls allocated */
    bool damaged;                 /* parts of the file are missing */
    bool calls_displaced, memory_displaced;    /* another tool took the hook over */
} ep_verify_input;

typedef struct ep_verification {
    uint64_t counts[EP_TRACE_FAULT_COUNT];     /* number of faults of each sort */
    uint64_t excused[EP_TRACE_FAULT_COUNT];    /* number of excused deviations of each sort */
    ep_trace_fault *faults;                  /* the first of them, in order of rows; owned */
    size_t count, limit;
} ep_verification;

/* The time is linear in the events. Memory is needed for open calls, and for each of up to four million
 * addresses: 24 bytes, in a hash table of twice the size. Beyond that only addresses of living blocks are
 * kept, and a second free of a block is not noticed. limit: faults that are kept, at least 1. progress:
 * may be NULL. Returns through out: new, for ep_verification_clear(); untouched on failure. Fails:
 * EP_NOMEM; EP_ARGUMENT, too many events; EP_STATE, asked to stop. */
EP_CHECKED ep_status ep_verify(const ep_verify_input *input, size_t limit,
                               const ep_progress *progress, ep_verification *out);

void ep_verification_clear(ep_verification *verification);

/* ---- Records --------------------------------------------------------------------------------- */

/* Results of a check of the records: in columns, decode.c has already corrected steps back in time. */
typedef struct ep_record_check {
    bool done;
    uint64_t chunks, records;     /* number checked */
    uint64_t decoded_count, record_count;    /* rows that decoding made, and records of the window */
    uint64_t unsure_count;        /* how much the two may differ, because chunks are still written */
    int64_t back_ns;              /* the largest step back of a thread's clock */
    uint32_t back_thread_id;
} ep_record_check;

/* Checks the records from which `decoded` was made, one by one. source: as for ep_decoder_open(). Fails: as
 * the source. */
EP_CHECKED ep_status ep_check_records(const ep_capture *capture, uint32_t only_thread,
                                      ep_chunk_source *source, const ep_decoded *decoded,
                                      ep_record_check *out);

/* Adds the faults of the check. */
void ep_verify_records(const ep_record_check *check, const ep_trace_thread *threads,
                       size_t thread_count, ep_verification *verification);

#endif
