/* Pairing: which row closed which call, which free ended which block.
 *
 * The result is kept as row numbers, 13 bytes a call and 13 a block. Times, threads, sizes and functions
 * are in the event columns already; they are copied into arrays of calls and blocks only when needed:
 * ep_calls_fill(), ep_blocks_fill().
 *
 *   rows     0     1     2     3       4       5         6
 *            call  call  alloc return  yield   return    free
 *   calls    0 ----------------------- 4
 *                  1 ----------- 3                       row_call  0 1 1 1 0 -1 -1
 *   blocks               0 ------------------------------6
 *
 * Row 5 is unmatched: it closes a call that was opened before the window, or lost.
 * One thread at a time may work on the same object; nothing here is global.
 */
#ifndef EP_PAIR_H
#define EP_PAIR_H

#include "decoded.h"
#include "pairing.h"
#include "progress.h"
#include "types.h"

/* ---- Input ----------------------------------------------------------------------------------- */

#define EP_ROW_NONE UINT32_MAX
#define EP_PAIR_MAX ((size_t)INT32_MAX - 2)    /* 17 GB of log, at the least */
#define EP_NOTHING_LOST INT64_MAX

/* One recorder's window. Views, all of them: they must outlive the calls and blocks made from it.
 * Every thread is below thread_count. At most EP_PAIR_MAX events, with the calls open at start. */
typedef struct ep_pair_input {
    ep_columns *columns;                   /* ep_pair_blocks() fills the sizes of free rows */
    const ep_id_map *map;
    size_t thread_count;
    const ep_open_stack *open_at_start;    /* thread_count long; NULL: nothing was open */
    const int64_t *open_from_ns;           /* thread_count long: where the calls open at start
                                              begin, after what a ring lost; NULL: 0 */
    const int64_t *open_until_ns;          /* thread_count long: where the calls open at the end
                                              are cut, of a merged trace; NULL: length_ns */
    const int32_t *thread_process;         /* thread_count long: the process of each, from 0 on;
                                              NULL: all are of one */
    const int32_t *thread_carrier;         /* thread_count long: ep_thread_carriers(); NULL: no lanes */
    int64_t length_ns;                     /* of the window; no time in columns is later */
    int64_t lost_from_ns;                  /* an event at this time or later may have been lost,
                                              on any thread; 0: a ring lost its head */
} ep_pair_input;

/* Ends of calls that an exception left. */
#define EP_KINDS_RAISED (EP_KIND_BIT(EP_KIND_UNWIND) | EP_KIND_BIT(EP_KIND_C_EXCEPTION))

/* ---- Calls ----------------------------------------------------------------------------------- */

typedef enum ep_call_flag {
    EP_CALL_OPEN_AT_START = 1,    /* began before the recorded events; starts at their begin */
    EP_CALL_OPEN_AT_END = 2,      /* went on after the window; it ends with the window */
    EP_CALL_YIELDED = 4,          /* ended by a yield: a later resume goes on */
    EP_CALL_RAISED = 8,           /* ended by an exception */
    EP_CALL_END_UNSEEN = 16,      /* its own end was not recorded: ended with the call around it */
    EP_CALL_RECURSIVE = 32        /* its function was open already; needs EP_CALLS_RECURSIVE */
} ep_call_flag;

/* Slices with one of these have a duration that is only a bound. */
#define EP_CALL_CUT (EP_CALL_OPEN_AT_START | EP_CALL_OPEN_AT_END | EP_CALL_END_UNSEEN)

/* A call that was open when the window began has no row; this stands in for it. */
typedef struct ep_call_before {
    int32_t thread;
    uint32_t site;
    uint8_t kind;
} ep_call_before;

/* What ep_calls_fill() can be asked for. */
typedef enum ep_calls_column {
    EP_CALLS_START = 1,
    EP_CALLS_DURATION = 2,
    EP_CALLS_SELF = 4,          /* fills duration too */
    EP_CALLS_THREAD = 8,
    EP_CALLS_FUNCTION = 16,
    EP_CALLS_SITE = 32,
    EP_CALLS_KIND = 64,
    EP_CALLS_DEPTH = 128,
    EP_CALLS_RECURSIVE = 256    /* sets EP_CALL_RECURSIVE in flags; fills function too */
} ep_calls_column;

/* The call tree, in order of start (those open at start first), parents before their children. A
 * generator has a row for each slice: from its call, resume or throw to its yield, return or
 * unwind. Invariants: a child lies within its parent; children of one parent, and outermost calls
 * of one thread, do not overlap; the self times below and in a call add up to its duration. */
typedef struct ep_calls {
    const ep_pair_input *input;    /* view */
    size_t count;
    uint32_t *open_row;            /* event that opened it; EP_ROW_NONE: open at start */
    uint32_t *close_row;           /* event that ended it; EP_ROW_NONE: open at end */
    int32_t *parent;               /* row in calls; -1: outermost */
    uint8_t *flags;                /* ep_call_flag */
    int32_t *row_call;             /* for each event: the call that it opens or closes, for others
                                      the innermost open on its thread; -1: none, or unmatched */
    size_t before_count;           /* the first calls, those open at start */
    ep_call_before *before;

    size_t unmatched_count;        /* closing rows without a call */
    size_t end_unseen_count;       /* calls with EP_CALL_END_UNSEEN */

    /* NULL until ep_calls_fill() */
    unsigned filled;               /* ep_calls_column */
    int64_t *start;                /* ns in the window */
    int64_t *duration;             /* ns */
    int64_t *self;                 /* ns: duration less that of the children */
    int32_t *thread;
    int32_t *function;             /* -1: unknown */
    uint32_t *site;
    uint8_t *kind;                 /* ep_kind of its opening */
    int32_t *depth;                /* 0: outermost */
} ep_calls;

/* Matches ends to openings, thread by thread, in one pass (4.4 ns an event, half of it the first
 * touch of what it writes).
 * An end belongs to the call on top if that is of the same function, and of the same sort (Python
 * or C). If not, it ends the innermost open call that is, and with it those above, whose own ends
 * were not recorded (EP_CALL_END_UNSEEN); with no such call it is unmatched, and changes nothing.
 * Functions that the map does not know count as one function. Only a damaged file has such functions, and a
 * guess would close calls that are open. progress: may be NULL. Returns through out: new, for
 * ep_calls_clear(); untouched on failure. Fails: EP_NOMEM; EP_ARGUMENT, too many events; EP_STATE, asked to
 * stop. */
EP_CHECKED ep_status ep_pair_calls(const ep_pair_input *input, const ep_progress *progress,
                                   ep_calls *out);

/* Fills those of the wanted columns (ep_calls_column) that are not there yet.
 * Fails: EP_NOMEM; what was filled stays. */
EP_CHECKED ep_status ep_calls_fill(ep_calls *calls, unsigned wanted);

/* How many calls enclose each of the events first .. first + count - 1, their own not counted; -1
 * for unmatched rows. Needs EP_CALLS_DEPTH. */
void ep_calls_row_depth(const ep_calls *calls, size_t first, size_t count, int32_t *out);

#ifdef EP_CHECKS
void ep_calls_check(const ep_calls *calls);
#endif

/* Frees what the object holds; a zeroed or closed object is allowed. */
void ep_calls_clear(ep_calls *calls);

static inline int64_t
ep_call_start(const ep_calls *calls, size_t call)
{
    if (EP_LIKELY(call >= calls->before_count)) {
        return calls->input->columns->time_ns[calls->open_row[call]];
    }
    const int64_t *from_ns = calls->input->open_from_ns;
    return from_ns != NULL ? from_ns[calls->before[call].thread] : 0;
}

static inline int32_t
ep_call_thread(const ep_calls *calls, size_t call)
{
    return call < calls->before_count ? calls->before[call].thread
                                      : calls->input->columns->thread[calls->open_row[call]];
}

static inline int64_t
ep_call_end(const ep_calls *calls, size_t call)
{
    uint32_t row = calls->close_row[call];
    if (EP_LIKELY(row != EP_ROW_NONE)) {
        return calls->input->columns->time_ns[row];
    }
    const int64_t *until_ns = calls->input->open_until_ns;
    return until_ns != NULL ? until_ns[ep_call_thread(calls, call)] : calls->input->length_ns;
}

static inline uint32_t
ep_call_site(const ep_calls *calls, size_t call)
{
    return call < calls->before_count ? calls->before[call].site
                                      : calls->input->columns->id[calls->open_row[call]];
}

static inline uint8_t
ep_call_kind(const ep_calls *calls, size_t call)
{
    return call < calls->before_count ? calls->before[call].kind
                                      : calls->input->columns->kind[calls->open_row[call]];
}

/* Function row of a name; -1: unknown. */
static inline int32_t
ep_name_function(const ep_id_map *map, uint32_t name)
{
    return name < map->name_count ? map->name_function[name] : -1;
}

/* Function row of a site: the callee; for an allocator event the executing one. -1: unknown. */
static inline int32_t
ep_site_function(const ep_id_map *map, uint32_t site)
{
    return site < map->site_count ? map->site_function[site] : -1;
}

static inline int32_t
ep_call_function(const ep_calls *calls, size_t call)
{
    return (calls->filled & EP_CALLS_FUNCTION) != 0
               ? calls->function[call]
               : ep_site_function(calls->input->map, ep_call_site(calls, call));
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

typedef enum ep_block_flag {
    EP_BLOCK_MENDED = 1,       /* its free was logged after the address was given out again: the
                                  clocks of two threads differ */
    EP_BLOCK_FREE_LOST = 2,    /* its free was not recorded; ends when its address is reused */
    EP_BLOCK_REVIVED = 4,      /* a realloc of it failed */
    /* these need EP_BLOCKS_FLAGS */
    EP_BLOCK_MOVED = 8,        /* ended by a realloc: another block has it as `previous` */
    EP_BLOCK_BRIEF = 16,       /* freed before its thread's next allocation, by that thread */
    EP_BLOCK_LOCAL = 32        /* freed by the same call that made it */
} ep_block_flag;

#define EP_BLOCK_TEMPORARY (EP_BLOCK_BRIEF | EP_BLOCK_LOCAL)

/* What ep_blocks_fill() can be asked for. */
typedef enum ep_blocks_column {
    EP_BLOCKS_ADDRESS = 1,
    EP_BLOCKS_SIZE = 2,
    EP_BLOCKS_DOMAIN = 4,
    EP_BLOCKS_THREAD = 8,
    EP_BLOCKS_START = 16,
    EP_BLOCKS_END = 32,
    EP_BLOCKS_CALL = 64,
    EP_BLOCKS_FUNCTION = 128,
    EP_BLOCKS_SITE = 256,
    EP_BLOCKS_FREED_IN = 512,
    EP_BLOCKS_FREE_THREAD = 1024,
    EP_BLOCKS_FLAGS = 2048    /* sets the last three of ep_block_flag in flags; fills call too */
} ep_blocks_column;

/* A process ends: the first allocator event that is later, and where its blocks end in `gone`. They are
 * alive at end_ns, and not at end_ns + 1. */
typedef struct ep_block_ending {
    int64_t end_ns;
    uint32_t event;
    size_t gone_to;
} ep_block_ending;

/* Block lives, in order of birth. Births and deaths are *allocator events*: indices into
 * columns->alloc_row and its neighbours. A *moment* is a number of allocator events that have
 * happened: block b lives at moment m when birth[b] < m and death[b] >= m, unless its process has ended
 * (ep_block_lives).
 * Invariant: the sizes of the blocks alive at a moment are those born before it less those that
 * died before it. */
typedef struct ep_blocks {
    const ep_pair_input *input;    /* view */
    size_t count;
    uint32_t *birth;
    uint32_t *death;               /* EP_ROW_NONE: alive at the end */
    int32_t *previous;             /* the block that a realloc turned into this one; -1: none */
    uint8_t *flags;                /* ep_block_flag */
    int32_t *event_block;          /* for each allocator event: the block that it made or ended; -1:
                                      none (unknown block, or a realloc that failed) */
    size_t free_lost_count;        /* blocks with EP_BLOCK_FREE_LOST */
    int32_t *free_lost;            /* which, in order of death */

    /* Of several processes (endings.h): what was not freed by a process that ended. Its `death` is
     * EP_ROW_NONE all the same. */
    struct ep_block_ending *endings;    /* in order of time */
    size_t ending_count;
    uint32_t *ended_at;            /* by process: endings[].event; EP_ROW_NONE: it ends last */
    uint32_t *gone;                /* those blocks, by ending */
    size_t gone_count;

    size_t mended_count;           /* blocks with EP_BLOCK_MENDED */
    size_t older_count;            /* frees of unknown blocks, all older than the recording */
    size_t malloc_lost_count;      /* frees of unknown blocks whose malloc may have been lost */

    /* NULL until ep_blocks_fill() */
    unsigned filled;               /* ep_blocks_column */
    uint64_t *address;
    int64_t *size;                 /* bytes */
    uint8_t *domain;               /* ep_domain */
    int32_t *thread;               /* that made it */
    int64_t *start;                /* ns in the window */
    int64_t *end;                  /* ns; -1: alive at the end */
    int32_t *call;                 /* innermost open at birth; -1: none */
    int32_t *function;             /* that was executing, by its site; -1: unknown */
    uint32_t *site;
    int32_t *freed_in;             /* call innermost at its end; -1: none, alive, or free lost */
    int32_t *free_thread;          /* that freed it; -1: alive, or free lost */
} ep_blocks;

/* Matches frees to mallocs by address, across threads, in one pass, and fills the sizes of free
 * rows.
 * A malloc of an address that is still in use means one of two things. If a free of that address
 * from another thread follows within EP_PAIR_SKEW_NS, the two were logged in the wrong order: that
 * free ends the old block (EP_BLOCK_MENDED). Otherwise the old block's free was lost, and it ends
 * with the malloc (EP_BLOCK_FREE_LOST).
 * Limitation: a free that was logged before its malloc in another thread counts as a free of an older
 * block, and its block stays alive. A realloc that failed leaves no trace: the block lives on
 * (EP_BLOCK_REVIVED). progress: may be NULL. Returns through out: new, for ep_blocks_clear(); untouched on
 * failure. Fails: as ep_pair_calls(). */
EP_CHECKED ep_status ep_pair_blocks(const ep_pair_input *input, const ep_progress *progress,
                                    ep_blocks *out);

/* Like ep_pair_blocks(), on a second thread, until ep_pair_blocks_join(). Pairing of calls reads nothing
 * that it writes, so both may run at the same time. The thread blocks all signals. progress: may be
 * NULL; it is called on that thread, and only while the caller waits. Returns: new; NULL if a second
 * thread is not faster (worker.h) or cannot be made: call ep_pair_blocks(). */
typedef struct ep_blocks_worker ep_blocks_worker;
EP_CHECKED ep_blocks_worker *ep_pair_blocks_begin(const ep_pair_input *input,
                                                  const ep_progress *progress);

/* Waits for the second thread. If the result is not wanted, the thread stops soon. steals work.
 * Returns and fails as ep_pair_blocks(). */
EP_CHECKED ep_status ep_pair_blocks_join(ep_blocks_worker *work, bool wanted, ep_blocks *out);

/* Fills those of the wanted columns (ep_blocks_column) that are not there yet. calls: NULL when
 * none were recorded; call and freed_in are then -1 throughout.
 * Fails: EP_NOMEM; what was filled stays. */
EP_CHECKED ep_status ep_blocks_fill(ep_blocks *blocks, const ep_calls *calls, unsigned wanted);

/* The moment after the last allocator event at or before time_ns. */
size_t ep_blocks_moment(const ep_pair_input *input, int64_t time_ns);

/* Frees what the object holds; a zeroed or closed object is allowed. */
void ep_blocks_clear(ep_blocks *blocks);

/* A moment after all others: all blocks are alive that were not freed, also of processes that ended. */
#define EP_MOMENT_END ((size_t)EP_ROW_NONE)

/* Whether its process ended before a moment, without a free. There are endings. */
bool ep_block_is_gone(const ep_blocks *blocks, size_t block, size_t moment);

static inline bool
ep_block_lives(const ep_blocks *blocks, size_t block, size_t moment)
{
    return blocks->birth[block] < moment && blocks->death[block] >= moment &&
           (blocks->ending_count == 0 || !ep_block_is_gone(blocks, block, moment));
}

static inline int64_t
ep_block_size(const ep_blocks *blocks, size_t block)
{
    return blocks->input->columns->size[blocks->birth[block]];
}

/* Event row of an allocator event. */
static inline size_t
ep_alloc_row(const ep_pair_input *input, size_t event)
{
    return (size_t)input->columns->alloc_row[event];
}

/* ep_kinds row of an allocator event. */
static inline const ep_kind_info *
ep_alloc_kind(const ep_pair_input *input, size_t event)
{
    return &ep_kinds[input->columns->kind[ep_alloc_row(input, event)]];
}

static inline uint32_t
ep_block_site(const ep_blocks *blocks, size_t block)
{
    return blocks->input->columns->id[ep_alloc_row(blocks->input, blocks->birth[block])];
}

/* False: it is alive at the end, or its free was lost. */
static inline bool
ep_block_was_freed(const ep_blocks *blocks, size_t block)
{
    return blocks->death[block] != EP_ROW_NONE && (blocks->flags[block] & EP_BLOCK_FREE_LOST) == 0;
}

/* The call of an event row; calls: NULL when none were recorded. */
static inline int32_t
ep_row_call(const ep_calls *calls, size_t row)
{
    return calls != NULL ? calls->row_call[row] : -1;
}

static inline int32_t
ep_block_call(const ep_blocks *blocks, const ep_calls *calls, size_t block)
{
    return ep_row_call(calls, ep_alloc_row(blocks->input, blocks->birth[block]));
}

#endif
