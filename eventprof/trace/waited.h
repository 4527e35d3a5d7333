/* Who held the interpreter's lock, and how long calls waited for it.
 *
 * Hooks of calls, of memory (but for the domains raw and libc) and of all else run under the lock. So an
 * event of one thread between two events of another proves that the other did not run there. A maximal run
 * of one thread's events, in order of time, is a *tenure*: from the first of them to the last. Between two
 * tenures the holder is not known: what follows from tenures is a lower bound.
 *
 * Where waits are recorded, how long calls waited does not depend on tenures; and the table of tenures
 * (folds/tenures.h) knows when a thread had waited for the lock, and when it gave the lock back to wait for
 * something else.
 *
 * Lanes of one thread (lanes.h) take turns without the lock: the time between two tenures of them belongs
 * to the first.
 *
 * Each process has its own lock. In a trace of several, tenures are those of one process: a run of events
 * without regard to the events of the others. */
#ifndef EP_WAITED_H
#define EP_WAITED_H

#include "pair.h"

/* Kinds that are recorded under the lock. */
static inline ep_kind_set
ep_kinds_under_lock(void)
{
    return ~(ep_kinds_raw | ep_kinds_libc | ep_kinds_waits);
}

/* The tenure that goes on, and the time of those that ended. */
typedef struct ep_tenure_clock {
    int32_t holder;        /* thread row; -1: nobody yet */
    int64_t start_ns, last_ns;
    int64_t ended_ns;      /* length of all that ended */
    int64_t *own_ns;       /* the length, by thread; clocks of several processes share it */
    const int32_t *carrier;    /* view: ep_thread_carriers() */
} ep_tenure_clock;

/* A clock for each process. */
typedef struct ep_tenure_clocks {
    ep_tenure_clock one;             /* if there is one process; owns own_ns in any case */
    ep_tenure_clock *several;        /* by process, if there are several; else NULL */
    size_t count;                    /* of processes */
    const int32_t *thread_process;   /* view; if there are several */
} ep_tenure_clocks;

/* thread_process: the process of each thread, from 0 on, a view; NULL: all are of one. thread_carrier: a
 * view; NULL: no lanes. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_tenure_clocks_open(ep_tenure_clocks *clocks, const int32_t *thread_process,
                                           const int32_t *thread_carrier, size_t thread_count);
void ep_tenure_clocks_clear(ep_tenure_clocks *clocks);

/* No event follows: the tenures that go on end. */
void ep_tenure_clocks_stop(ep_tenure_clocks *clocks);

static inline ep_tenure_clock *
ep_tenure_clock_of_process(ep_tenure_clocks *clocks, size_t process)
{
    return clocks->several != NULL ? &clocks->several[process] : &clocks->one;
}

static inline ep_tenure_clock *
ep_tenure_clock_of(ep_tenure_clocks *clocks, int32_t thread)
{
    return clocks->several != NULL ? &clocks->several[clocks->thread_process[thread]] : &clocks->one;
}

/* An event under the lock. True: another tenure ended, and this one begins. */
static inline bool
ep_tenure_event(ep_tenure_clock *clock, int32_t thread, int64_t time_ns)
{
    bool begins = thread != clock->holder;
    if (EP_UNLIKELY(begins)) {
        if (clock->holder >= 0) {
            const int32_t *carrier = clock->carrier;
            bool switched = carrier != NULL && carrier[clock->holder] == carrier[thread];
            int64_t length_ns = (switched ? time_ns : clock->last_ns) - clock->start_ns;
            clock->ended_ns += length_ns;
            clock->own_ns[clock->holder] += length_ns;
        }
        clock->holder = thread;
        clock->start_ns = time_ns;
    }
    clock->last_ns = time_ns;
    return begins;
}

/* How long the other threads held the lock, as far as their tenures ended. */
static inline int64_t
ep_tenure_others_ns(const ep_tenure_clock *clock, int32_t thread)
{
    return clock->ended_ns - clock->own_ns[thread];
}

/* ---- Recorded waits -------------------------------------------------------------------------- */

/* A thread's waits, of a recording that has their events. */
typedef struct ep_waiting {
    int64_t waited_ns;    /* in waits that ended */
    int64_t begun_ns;     /* when the wait began that goes on, if waits */
    bool waits;
    uint8_t what;         /* ep_wait_for, if waits */
} ep_waiting;

static inline void
ep_waiting_begin(ep_waiting *w, int64_t time_ns, uint64_t word)
{
    *w = (ep_waiting){.waited_ns = w->waited_ns,
                      .begun_ns = time_ns,
                      .waits = true,
                      .what = (uint8_t)ep_wait_what(word)};
}

/* Returns: how long it was, without what was before the window. */
static inline int64_t
ep_waiting_end(ep_waiting *w, int64_t time_ns, uint64_t word)
{
    int64_t ns = EP_WAIT_NS(word) < time_ns ? EP_WAIT_NS(word) : time_ns;
    w->waits = false;
    w->waited_ns += ns;
    return ns;
}

/* The window ends: so does a wait that goes on. Returns: how long that was. */
static inline int64_t
ep_waiting_stop(ep_waiting *w, int64_t time_ns)
{
    int64_t ns = w->waits && time_ns > w->begun_ns ? time_ns - w->begun_ns : 0;
    w->waits = false;
    w->waited_ns += ns;
    return ns;
}

/* ---- By call --------------------------------------------------------------------------------- */

/* The part of each call, in ns, in which its thread waited. by_waits: the recording has events of waits;
 * otherwise, what lies in tenures of others, in which another thread held the lock. waited: as many as
 * there are calls, zeroed. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_calls_waited(const ep_calls *calls, bool by_waits, int64_t *waited);

#endif
