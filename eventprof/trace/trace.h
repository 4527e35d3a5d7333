/* A trace: the events of one window. Each step is computed when it is first asked for, and kept.
 *
 *   origin or capture -> decoded -> functions -> calls, blocks -> sums
 *
 * columns.h gives what was computed by table and name; files/open.h makes a trace of a file, which a
 * fold can read without making columns of it (folds/of_trace.h).
 * One thread at a time may work on a trace; a step may start another for its own time (worker.h). */
#ifndef EP_TRACE_H
#define EP_TRACE_H

#include "decode.h"
#include "filter_apply.h"
#include "functions.h"
#include "lines.h"
#include "pair.h"
#include "progress.h"
#include "recording.h"
#include "summary.h"
#include "types.h"
#include "verify.h"

typedef struct ep_trace ep_trace;

/* The source of the events until the first step has read them: a file (files/open.h). It is the first
 * member of a reader's struct. */
typedef struct ep_trace_origin ep_trace_origin;

struct ep_trace_origin {
    /* Fills trace->decoded and other facts about the recording; it may then close its file.
     * Fails: as the reader does; error->os_error of EP_IO is set. The trace is as before then. */
    EP_CHECKED ep_status (*load)(ep_trace_origin *origin, ep_trace *trace, ep_error *error);
    void (*close)(ep_trace_origin *origin);    /* frees it */
};

struct ep_trace {
    /* The input. */
    ep_trace_origin *origin;          /* owned; NULL: the capture, or decoded columns from the start */
    ep_capture capture;               /* given back once decoded */
    uint32_t only_thread;             /* of the capture; 0: all */
    ep_recording recording;           /* later steps add facts */
    ep_filter filter;                 /* applied after decoding */
    const ep_watcher *watcher;        /* of long steps; may be NULL */
    bool no_lock;                     /* the interpreter had none: nothing waited for it */
    bool check_records;               /* check the records while they are read, for ep_verify_trace() */
    ep_record_check record_check;
    /* The steps. */
    bool has_decoded, has_input, has_functions, has_calls, has_blocks, has_summary, has_lengths, has_stacks,
        has_waited, has_lines;
    bool has_curve, has_memory[2];
    ep_decoded decoded;
    const ep_decoded *head;           /* after a fold has read the file: everything except the columns, and
                                         `functions` are known; a view into the origin. NULL: no fold has */
    ep_functions functions;
    ep_open_stack *open;              /* index = thread row; views into decoded */
    int64_t *open_from_ns;            /* index = thread row */
    int64_t *open_until_ns;           /* index = thread row */
    int32_t *thread_process;          /* index = thread row; NULL: one process */
    int32_t *thread_carrier;          /* index = thread row; NULL: no lanes */
    ep_pair_input input;
    ep_calls calls;
    ep_blocks blocks;
    ep_summary summary;
    ep_stacks stacks;
    ep_lines lines;
    int64_t *waited;                  /* by call, see waited.h */
    ep_curve curve;                   /* of all domains */
    ep_call_memory memory[2];         /* of calls themselves; with the calls below them */
};

/* HEAD and NAMES are like DECODED and FUNCTIONS, without columns of events: a fold's pass over the file is
 * enough for them. */
typedef enum ep_step {
    EP_STEP_HEAD,
    EP_STEP_NAMES,
    EP_STEP_DECODED,
    EP_STEP_FUNCTIONS,
    EP_STEP_CALLS,
    EP_STEP_BLOCKS,          /* with calls */
    EP_STEP_BLOCKS_ALONE,    /* with the sizes of frees, without functions and calls */
    EP_STEP_STACKS,
    EP_STEP_SUMMARY,         /* and the next: a fold makes them (folds/by_function.h) */
    EP_STEP_LENGTHS,         /* SUMMARY with percentiles */
    EP_STEP_WAITED,
    EP_STEP_LINES,
    EP_STEP_CURVE,
    EP_STEP_CALL_MEMORY,
    EP_STEP_CALL_MEMORY_BELOW
} ep_step;

/* Makes *out a trace of what a recorder of this process recorded. steals capture. */
void ep_trace_of_capture(ep_capture *capture, uint32_t only_thread, ep_trace *out);

/* Computes a step, and the steps that it needs, unless they were computed before; of SUMMARY and LENGTHS
 * only the steps that they need: ep_column_reach() has the rest. error: may be NULL.
 * Fails: EP_NOMEM; EP_STATE, the watcher asked to stop; as the origin does. What was computed stays. */
EP_CHECKED ep_status ep_trace_reach(ep_trace *trace, ep_step step, ep_error *error);

/* After EP_STEP_HEAD: threads, resident set, duration. Its columns may be empty. Returns: view, until the
 * next step; arrays in it live as long as the trace. */
static inline const ep_decoded *
ep_trace_head(const ep_trace *trace)
{
    return trace->has_decoded || trace->head == NULL ? &trace->decoded : trace->head;
}

/* The decoded rows were changed before calls or blocks were paired: forgets what was made of them. */
void ep_trace_rows_changed(ep_trace *trace);

/* Frees what the object holds; a zeroed or closed object is allowed. */
void ep_trace_clear(ep_trace *trace);

/* Returns: view, until the trace is cleared; NULL: it never had one. */
const char *ep_trace_thread_name(const ep_trace_thread *thread);

/* The number of lost events, as far as it is known now. */
uint64_t ep_trace_lost(const ep_trace *trace);

/* Counts calls of Python functions that lie in a call which did not make them: the thread switched to
 * another stack of calls in between, as greenlets do. 0 if calls were left out or lost. Needs
 * EP_STEP_CALLS. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_trace_count_misplaced(const ep_trace *trace, size_t *out);

#endif
