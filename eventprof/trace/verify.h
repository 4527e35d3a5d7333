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
    unsigned kind;                /* of the row; 0 without */
    size_t other_row;             /* event that contradicts it; NO_ROW: there is none */
    /* The expected and the found value: functions (rows, -1: none) of ends, times, sizes, counts or ids. 0
     * if the sort of the fault says everything. */
    int64_t expected, found;
    uint64_t address;             /* of a block; else 0 */
} ep_trace_fault;

/* What a trace says of itself. Views, all of them. */
typedef struct ep_verify_input {
    const ep_id_map *map;
    const ep_trace_thread *threads;
    size_t thread_count;
    ep_kind_set kinds;            /* that were asked for */
    int64_t duration_ns;
    int64_t lost_until_ns;        /* an allocator event up to here may be lost; -1: none is, or only later
                                   * ones, because recording ended early */
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

/* The time until which allocator events may be missing: a ring loses those before a thread's first event.
 * -1: none are missing. */
int64_t ep_lost_until_ns(const ep_trace_thread *threads, size_t count);

/* Replays events, batch by batch. The time is linear in the events. Memory is needed for open calls, and
 * for each of up to two million addresses: 32 bytes, in a hash table of twice the size. Beyond that only
 * addresses of living blocks are kept, and a second free of a block is not noticed. */
typedef struct ep_verifier ep_verifier;

/* input: copied, its views must live until the end; what is known before the first event is enough. limit:
 * faults that are kept, at least 1. Returns: new in *out (ep_verifier_close). Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_verifier_open(const ep_verify_input *input, size_t limit, ep_verifier **out);
/* Replays the rows `from` .. `to` - 1. *block: the first allocator event at or after `from`; afterwards
 * the first after these rows. Fails: EP_NOMEM; EP_ARGUMENT, too many events. */
EP_CHECKED ep_status ep_verifier_add(ep_verifier *verifier, const ep_columns *columns, size_t from,
                                     size_t to, size_t *block);
/* Whether all that the replay assumed still holds, now that every event was read. If not, the events must
 * be replayed again, knowing it: a file was found to be damaged, or to have lost events. */
bool ep_verifier_assumed(const ep_verifier *verifier, const ep_verify_input *known);
/* After the last row; known: as ep_verifier_assumed(). Returns through out: new, for
 * ep_verification_clear(). */
void ep_verifier_end(ep_verifier *verifier, const ep_verify_input *known, ep_verification *out);
void ep_verifier_close(ep_verifier *verifier);    /* NULL is fine */

/* All of this for columns in memory; *out is untouched on failure. */
EP_CHECKED ep_status ep_verify(const ep_columns *columns, const ep_verify_input *input, size_t limit,
                               ep_verification *out);

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

/* Checks the records from which rows are decoded, one by one, chunk by chunk. */
typedef struct ep_record_checker {
    const ep_capture *capture;    /* view */
    uint32_t only_thread;
    uint64_t *last;               /* by thread id: ticks of its last record */
    uint64_t worst, worst_at;     /* the largest step back, in ticks */
    ep_record_check found;
} ep_record_checker;

/* Returns: new in *checker (ep_record_checker_clear, also on failure). Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_record_checker_open(ep_record_checker *checker, const ep_capture *capture,
                                            uint32_t only_thread);
/* Each chunk once; the chunks of a thread in order. */
void ep_record_checker_add(ep_record_checker *checker, const ep_chunk_header *chunk);
void ep_record_checker_end(ep_record_checker *checker, const ep_decoded *decoded, ep_record_check *out);
void ep_record_checker_clear(ep_record_checker *checker);

/* All of this for chunks in memory. */
EP_CHECKED ep_status ep_check_records(const ep_capture *capture, uint32_t only_thread,
                                      const ep_decoded *decoded, ep_record_check *out);

/* Adds the faults of the check. */
void ep_verify_records(const ep_record_check *check, const ep_trace_thread *threads,
                       size_t thread_count, ep_verification *verification);

#endif
