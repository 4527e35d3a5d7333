/* Lanes: the stacks of calls that one thread switches, such as greenlets.
 *
 * A stack has a thread entry of its own, so that readers pair its calls with each other: to them a lane is
 * a thread. All lanes of a thread are written to the one log of the thread. A THREAD record is written
 * where another stack goes on, and a chunk's header names the lane of its first record.
 *
 *   lane 1   [call]                              [call] ...
 *   lane 2          [THREAD 2][call][return]
 *                                           [THREAD 1]
 *
 * The lane of a stack that ended goes to the next new stack of the thread: a thread has as many lanes as
 * there were stacks at the same time, and 100,000 short ones are not as many rows.
 *
 * Only the thread itself calls these functions. A thread that never switches has no lanes. */
#ifndef EP_LANES_H
#define EP_LANES_H

#include "log.h"

typedef struct ep_lane {
    const void *stack;          /* the caller's key; NULL: the lane is free */
    ep_thread *thread;          /* immortal */
    struct ep_lane *next_free;
    uint64_t left_ticks;        /* when its stack was switched out last; 0: never */
    /* Of a stack that is switched out: what its log had. */
    ep_gate_stack gate;         /* without left_out */
    uint32_t busy, own_calls, todo;
    uint64_t label_set;
    bool own_is_recorded;
    /* The caller's: the wait from the switch out to the switch in. */
    int64_t left_ns;            /* 0: none was begun */
    uint64_t wait_word;
    uint32_t wait_site;
} ep_lane;

/* The stack that runs has the log's lane, or, if `own`, that of the thread itself; all other lanes are
 * free. Fails: false, out of memory. */
EP_COLD EP_CHECKED bool ep_lanes_begin(ep_log *log, const void *stack, bool own);

/* The lane that runs. */
ep_lane *ep_lanes_current(const ep_log *log);

/* Returns: NULL if the stack has no lane. */
ep_lane *ep_lanes_find(const ep_log *log, const void *stack);

/* A lane for a stack that has none. own: the lane of the thread itself, if no stack has it. has_calls:
 * calls are open on the stack already, so it gets no lane that an earlier stack wrote to in a running
 * window: the open calls would seem to be that stack's. Returns: NULL without memory. */
ep_lane *ep_lanes_add(ep_log *log, const void *stack, bool own, bool has_calls);

/* The stack of this lane goes on. */
void ep_lanes_switch(ep_log *log, ep_lane *to, uint64_t ticks);

/* The stack ended; it is not the one that runs. */
void ep_lanes_end(ep_log *log, ep_lane *lane);

/* Whether a window that records Python calls has begun since the lane's stack was switched out. */
bool ep_lanes_is_new_to_window(const ep_lane *lane);

/* Describes the calls that are open on a lane to all windows that have begun since its stack was switched
 * out. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_lanes_set_open(const ep_lane *lane, const ep_open_call *calls, size_t depth);

/* The entry of the thread itself. */
ep_thread *ep_lanes_carrier(const ep_log *log);

/* With the thread's log. */
void ep_lanes_free(ep_log *log);

/* For each lane of a log, under the engine's lock. */
void ep_lanes_set_exited(ep_log *log, bool exited);
void ep_lanes_set_native_id(ep_log *log, uint64_t native_id);

#endif
