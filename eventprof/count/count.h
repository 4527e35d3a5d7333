/* The counting mode: sums for each function, updated in place, without a log.
 *
 * A counter has a *view* for each thread: a shadow stack of the open calls, and a *slot* for each function.
 * Only its thread writes a view. Views are summed up when they are read, while none is written. When a
 * thread ends, the next new thread takes over its view with all slots: the memory of a counter grows with
 * functions and simultaneous threads, not with events.
 *
 *   ep_count_current -> thread -> view of counter A: frames [floor][main][f][f]   slots {main, f, g}
 *                              -> view of counter B: ...
 *
 * Times are in ticks that the caller reads (ep_count_ticks()). Only the outermost of recursive calls counts
 * into `total`, as in cProfile and summary.h. An end without an open call is ignored. When a call ends, the
 * calls above it on the stack end with it.
 *
 * Invariants, for any sequence of events: the sum of `self` equals the sum of `total` of the calls at the
 * bottom of the stacks; calls + resumes begun - those ended == those open. */
#ifndef EP_COUNT_H
#define EP_COUNT_H

#include "clock.h"
#include "mutex.h"
#include "pairing.h"
#include "types.h"

/* Counters that can run at the same time. */
#define EP_COUNTERS_MAX 8

/* One function on one thread. The first 64 bytes are what a call touches. */
typedef struct ep_count_slot {
    uint64_t calls;         /* begun in the window */
    uint64_t resumes;       /* slices of generators, by resume or throw */
    uint64_t depth;         /* of both, and of those from before: open now */
    uint64_t total;         /* ticks with the function open; of recursive calls the outermost */
    uint64_t self;          /* ticks with it innermost */
    uint64_t min, max;      /* ticks of a whole call or slice; UINT64_MAX, 0: there was none */
    uint32_t name;          /* id; 0: what belongs to no function */
    uint8_t wish;           /* bits of EP_COUNT_WISH_, once asked */
    uint8_t unused[3];
    uint64_t recursive;     /* calls and slices begun while it was open; wraps until those end */
    uint64_t nested;        /* ticks of these recursive calls, which `total` leaves out */
    uint64_t cut;           /* how many of calls + resumes have an end that was not seen... */
    uint64_t cut_ticks;     /* ...and their ticks in total + nested, with those of calls from before the
                             * window */
    uint64_t seen;          /* for ep_counter_read() */
    uint64_t unused_too;
    /* Atomic: RAW allocations come without the GIL, although on the owner's thread. */
    _Atomic uint64_t bytes, blocks;    /* allocated with it innermost */
} ep_count_slot;

_Static_assert(sizeof(ep_count_slot) == 128, "two cache lines");

enum {
    EP_COUNT_WISH_KNOWN = 1,
    EP_COUNT_WISH_INCLUDED = 2,
    EP_COUNT_WISH_EXCLUDED = 4,
    EP_COUNT_WISH_MIXED = 8    /* a function that it calls may be wanted by a counter */
};

/* Keys, by which an end finds its call; 8-aligned. A key with one of these bits is only found by slow
 * paths. */
#define EP_COUNT_ABOVE_OWN UINT64_C(1)    /* the frame below is our own code's */
#define EP_COUNT_OWN UINT64_C(2)          /* a frame of our own code: neither it nor its C calls are
                                           * counted */
#define EP_COUNT_BEFORE UINT64_C(4)       /* open when the window began */
#define EP_COUNT_FLAGS UINT64_C(7)

typedef struct ep_count_frame {
    uintptr_t key;
    ep_count_slot *slot;    /* never NULL; for our own code that of the frame below, to which its blocks
                             * belong */
    uint64_t start;         /* ticks */
    uint64_t inside;        /* ticks of the calls that ended in it */
} ep_count_frame;

/* The slots that a thread used last, by name id; an entry never becomes invalid. */
#define EP_COUNT_KNOWN 2048
typedef struct ep_count_known {
    uintptr_t key;
    ep_count_slot *slot;
} ep_count_known;

typedef struct ep_counter ep_counter;

typedef struct ep_count_view {
    /* owner only */
    ep_count_frame *top;      /* frames[0] is the floor: slot 0, no end fits it */
    ep_count_frame *limit;    /* one past the last frame */
    ep_count_frame *frames;
    size_t slot_count;        /* in pages */
    size_t index_slots;
    ep_count_slot **index;    /* open addressing by name id; NULL: empty */
    struct ep_count_page *pages;
    ep_absent_begin absent;   /* in order of ticks */
    uint64_t lost;            /* calls and blocks that found no memory to be counted in */
    uint64_t unmatched;       /* ends without an open call */
    bool begun;               /* the source has pushed the calls that were open at the start */
    /* under ep_count_mutex */
    ep_counter *counter;
    struct ep_count_thread *thread;    /* NULL: it ended */
    uint64_t stop_ticks;      /* on the clock of its frames; valid once the counter stopped */
    struct ep_count_view *next;        /* of the counter */
    struct ep_count_view *next_free;   /* in the list of views without a thread or without a counter */
    ep_count_known known[EP_COUNT_KNOWN];
} ep_count_view;

/* A block that a source may remove again, because the hook mechanism itself allocated it. */
typedef struct ep_count_block {
    uintptr_t address;    /* 0: none */
    uint64_t bytes;
} ep_count_block;

typedef struct ep_count_thread {
    uint64_t fast_in;          /* the generation in which fast paths may count into views[0]; 0: none */
    ep_count_view *views[EP_COUNTERS_MAX];    /* the views of that generation */
    uint64_t serials[EP_COUNTERS_MAX];        /* the serials of their windows */
    size_t view_count;
    uint64_t generation;
    uint64_t aside;            /* ticks of callbacks, which count for no function */
    uint32_t busy;             /* inside the interpreter's allocator, or code of ours */
    uint32_t calling;          /* inside a callback: nothing is counted */
    ep_count_block blocks[2];  /* blocks since the last event; [0] is the latest */
    unsigned exit_rounds;
    bool has_calls, has_c_calls;    /* whether hooks report them, because a running counter wants them */
    const void *first_frame;   /* for the sources: the innermost frame when they pushed the open calls */
} ep_count_thread;

struct ep_counter {
    /* set by the owner before a start */
    const struct ep_filter *filter;    /* NULL: every call is counted */
    void *owner;               /* the source's own */
    bool tells;                /* its owner is called before and after each counted call */
    bool calls, c_calls;       /* the calls that it wants; other counters may want more */
    bool this_thread_only;
    /* under the lock */
    bool running;
    uint64_t serial;           /* of the window; never reused */
    ep_count_thread *only;
    uint64_t start_ticks, stop_ticks;
    ep_count_view *views;      /* all */
    ep_count_view *free_views;
    uint64_t lost;             /* threads for which there was no memory */
};

extern _Thread_local ep_count_thread *ep_count_current;

/* Changes with the set of running counters and with their options; never 0. */
extern EP_HIDDEN _Atomic uint64_t ep_count_generation;

/* Protects the counters' lists of views, the running counters, and threads that come and go. Cold paths
 * only; nothing but the C library is called under it. Declared for a test that forks while it is held. */
extern EP_HIDDEN ep_mutex ep_count_mutex;

/* Once a process. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_count_init(void);

/* Which clock counters use; that of recorders may differ. */
extern EP_HIDDEN bool ep_count_by_counter;

uint64_t ep_count_ticks_slow(void);

static inline uint64_t
ep_count_ticks(void)
{
    return EP_LIKELY(ep_count_by_counter) ? ep_clock_counter() : ep_count_ticks_slow();
}

/* Ticks in a second, as measured until now. */
double ep_count_frequency_hz(void);

/* ---- Counters: call these while no thread of the interpreter is in a hook ---------------------- */

/* Returns: new, zeroed, or NULL. */
ep_counter *ep_counter_new(void);
/* Stops the counter if it runs. NULL is fine. */
void ep_counter_free(ep_counter *counter);

/* Begins a window; the counts of an earlier window are dropped. Fails: EP_STATE (it runs, or
 * EP_COUNTERS_MAX others do), EP_NOMEM. */
EP_CHECKED ep_status ep_counter_start(ep_counter *counter, uint64_t ticks);
void ep_counter_stop(ep_counter *counter, uint64_t ticks);

/* `tells` changed. */
void ep_counter_changed(void);

/* Returns: view; NULL if at most `at` counters run. */
ep_counter *ep_counter_running(size_t at);

/* One row for each function, by name id; the first is for blocks outside of all calls. Times are in ticks.
 * Open calls count into `total` and `self` as if they ended now (running) or at the stop. */
typedef struct ep_count_row {
    uint32_t name;
    uint64_t calls, resumes, recursive, total, self;
    uint64_t whole, whole_ticks;    /* calls and slices seen from start to end, and their ticks */
    uint64_t min, max;              /* of them; valid if there are any */
    uint64_t bytes, blocks;
} ep_count_row;

typedef struct ep_count_rows {
    size_t count;
    ep_count_row *rows;
    uint64_t lost, unmatched;
    uint64_t ticks;                 /* of the window */
} ep_count_rows;

/* Returns through out: new (free() the rows). Fails: EP_NOMEM, *out untouched. */
EP_CHECKED ep_status ep_counter_read(ep_counter *counter, uint64_t ticks, ep_count_rows *out);

/* Bytes that a counter's views take. */
size_t ep_counter_bytes(ep_counter *counter);

/* In a forked child: counters begin anew; calls that are open stay open. */
void ep_count_after_fork(uint64_t ticks);

/* ---- A thread's own --------------------------------------------------------------------------- */

/* The calling thread's entry, with the views of the running counters. NULL: no memory, or the thread is
 * past its end. */
EP_COLD ep_count_thread *ep_count_attach(void);

static inline uint64_t
ep_count_now_generation(void)
{
    /* Relaxed: it changes while no hook runs. */
    return atomic_load_explicit(&ep_count_generation, memory_order_relaxed);
}

static inline ep_count_thread *
ep_count_mine(void)
{
    ep_count_thread *thread = ep_count_current;
    return EP_LIKELY(thread != NULL && thread->generation == ep_count_now_generation())
               ? thread
               : ep_count_attach();
}

/* Whether fast paths may count into views[0]; the top frame is then not our own code's. */
static inline bool
ep_count_is_fast(const ep_count_thread *thread)
{
    return EP_LIKELY(thread != NULL) && EP_LIKELY(thread->fast_in == ep_count_now_generation());
}

/* Call it after a frame of our own code was pushed or removed. */
void ep_count_settle(ep_count_thread *thread);

/* The slot of a name, made on first sight. NULL: no memory, counted. */
ep_count_slot *ep_count_slot_of(ep_count_view *view, uint32_t name);
/* NULL: there is none. */
ep_count_slot *ep_count_find_slot(const ep_count_view *view, uint32_t name);

static inline ep_count_known *
ep_count_known_at(ep_count_view *view, uintptr_t key)
{
    return &view->known[key >> 4 & (EP_COUNT_KNOWN - 1)];
}

/* HOT. Puts a call on the stack; `limit` was looked at. */
static inline void
ep_count_push(ep_count_view *view, ep_count_slot *slot, uintptr_t key, uint64_t ticks)
{
    ep_count_frame *frame = view->top + 1;
    frame->key = key;
    frame->slot = slot;
    frame->start = ticks;
    frame->inside = 0;
    slot->depth += 1;
    view->top = frame;
}

/* HOT. The call on top ends; it was seen from its beginning. */
static inline void
ep_count_pop(ep_count_view *view, uint64_t ticks)
{
    ep_count_frame *frame = view->top;
    ep_count_slot *slot = frame->slot;
    /* The clocks of two processors may differ a little. */
    uint64_t elapsed = ticks > frame->start ? ticks - frame->start : 0;
    frame[-1].inside += elapsed;
    slot->self += elapsed - frame->inside;
    if (EP_LIKELY(--slot->depth == 0)) {
        slot->total += elapsed;
    } else {
        slot->recursive += 1;
        slot->nested += elapsed;
    }
    slot->min = elapsed < slot->min ? elapsed : slot->min;
    slot->max = elapsed > slot->max ? elapsed : slot->max;
    view->top = frame - 1;
}

/* Begins a call; `is_slice`: of a generator. False: no memory, counted. */
bool ep_count_open(ep_count_view *view, ep_count_slot *slot, uintptr_t key, uint64_t ticks,
                   bool is_slice);

/* A call that was open when the window began, outermost first. */
bool ep_count_open_before(ep_count_view *view, ep_count_slot *slot, uintptr_t key, uint64_t ticks);

/* The call on top was pushed as open before the window, but begins only now. No-op if its key is
 * another. */
void ep_count_forget_before(ep_count_view *view, uintptr_t key);

/* Pushes a frame of our own code, and removes it with the frames above. */
bool ep_count_open_own(ep_count_view *view, uintptr_t key, uint64_t ticks);
void ep_count_close_own(ep_count_view *view, uintptr_t key, uint64_t ticks);

/* Asks the counter's filter about a slot, once. Returns: bits of EP_COUNT_WISH_. */
uint8_t ep_count_wish(ep_count_view *view, ep_count_slot *slot);

/* Whether the view's counter wants calls of `slot`; caller: NULL for a Python function. */
static inline bool
ep_count_wants(ep_count_view *view, ep_count_slot *slot, ep_count_slot *caller)
{
    if (view->counter->filter == NULL) {
        return true;
    }
    unsigned wish = ep_count_wish(view, slot);
    unsigned from = caller != NULL ? ep_count_wish(view, caller) : 0;
    return ((wish | from) & (EP_COUNT_WISH_INCLUDED | EP_COUNT_WISH_EXCLUDED)) == EP_COUNT_WISH_INCLUDED;
}

static inline bool
ep_count_top_is_own(const ep_count_view *view)
{
    return (view->top->key & EP_COUNT_OWN) != 0;
}

/* Ends the innermost call with the key, or with the slot if that is not NULL, and all calls above it.
 * False: there is no such call; it is counted in `unmatched`. */
bool ep_count_close(ep_count_view *view, uintptr_t key, const ep_count_slot *slot, uint64_t ticks);

/* HOT. A block was allocated: it counts for the innermost call of each view. */
static inline void
ep_count_add_block(ep_count_thread *thread, uint64_t bytes, uintptr_t address)
{
    for (size_t i = 0; i < thread->view_count; i++) {
        ep_count_slot *slot = thread->views[i]->top->slot;
        /* One writer: no read-modify-write is needed. */
        atomic_store_explicit(&slot->bytes,
                              atomic_load_explicit(&slot->bytes, memory_order_relaxed) + bytes,
                              memory_order_relaxed);
        atomic_store_explicit(&slot->blocks,
                              atomic_load_explicit(&slot->blocks, memory_order_relaxed) + 1,
                              memory_order_relaxed);
    }
    thread->blocks[1] = thread->blocks[0];
    thread->blocks[0] = (ep_count_block){address, bytes};
}

/* HOT. Removes the block again if it is one of the latest. */
static inline bool
ep_count_take_block(ep_count_thread *thread, uintptr_t address)
{
    if (thread->blocks[0].address != address || address == 0) {
        return false;
    }
    uint64_t bytes = thread->blocks[0].bytes;
    for (size_t i = 0; i < thread->view_count; i++) {
        ep_count_slot *slot = thread->views[i]->top->slot;
        atomic_store_explicit(&slot->bytes,
                              atomic_load_explicit(&slot->bytes, memory_order_relaxed) - bytes,
                              memory_order_relaxed);
        atomic_store_explicit(&slot->blocks,
                              atomic_load_explicit(&slot->blocks, memory_order_relaxed) - 1,
                              memory_order_relaxed);
    }
    thread->blocks[0] = thread->blocks[1];
    thread->blocks[1].address = 0;
    return true;
}

/* After an event the blocks before it cannot be removed any more. */
static inline void
ep_count_keep_blocks(ep_count_thread *thread)
{
    thread->blocks[0].address = thread->blocks[1].address = 0;
}

#endif
