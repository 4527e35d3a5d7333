/* What findings ask about a few functions, or one line, once the tree has shown them: how long single calls
 * took, and when the blocks were made that are still alive.
 *
 * Memory is for the open calls and the live blocks, and for at most EP_PICKED_MOST calls of a function:
 * of more, about a half is left out each time, by a hash of their numbers. The sums have all. */
#ifndef EP_PICKED_H
#define EP_PICKED_H

#include "fold.h"
#include "live_blocks.h"

#define EP_PICKED_MOST ((size_t)1 << 16)

typedef struct ep_picked_choice {
    size_t function_count;       /* the masks are so long, by row of functions */
    const uint8_t *functions;    /* whose calls are picked */
    unsigned without;            /* ep_call_flag: calls with one of them are not */
    int64_t kept_ns;             /* calls of that length are left out last */
    const uint8_t *blocking;     /* functions that wait for something outside */
    bool with_blocks;            /* `quarters` are wanted */
    const uint8_t *own;          /* for these: functions that are own code, */
    int32_t function, line;      /* and the own line */
} ep_picked_choice;

typedef struct ep_picked_call {
    uint64_t call;               /* its row in the table of calls */
    uint64_t inside;             /* calls in it, and itself */
    int64_t start_ns, duration_ns;
    int64_t blocked_ns;          /* in calls of blocking functions in it, itself included */
    int32_t thread, function, caller;
    int32_t flags;               /* ep_call_flag */
} ep_picked_call;

/* Of all picked calls of a function. */
typedef struct ep_picked_sums {
    uint64_t calls, kept;        /* kept: as long as kept_ns */
    int64_t total_ns;
} ep_picked_sums;

typedef struct ep_picked {
    ep_fold fold;
    ep_picked_choice choice;     /* views */
    ep_picked_call *calls;       /* in order of their ends */
    size_t count, capacity;
    ep_picked_sums *sums;        /* function_count long */
    /* The live blocks at the end that are charged to the line, by the quarter of all allocations in which
     * they were made. */
    uint64_t quarters[4];

    /* while it runs */
    ep_fold_facts facts;
    struct ep_picked_thread *threads;
    uint32_t *place;             /* by function: place of its sums in `held`, + 1; 0: not picked */
    size_t *held;                /* by place: calls in `calls` */
    uint8_t *halvings;           /* by place: how often calls were left out */
    size_t place_count;
    uint64_t begun;              /* calls */
    uint64_t births;             /* blocks */
    ep_followed_blocks blocks;
} ep_picked;

/* Afterwards fold.type->clear() frees it. */
void ep_picked_open(ep_picked *picked, const ep_picked_choice *choice);

#endif
