/* What follows from the pairs: memory by call (summary.c), and over time (summary_memory.c). The statistics
 * by function, whose struct is here, are made of the tree of calls.
 *
 * There are two ways to charge a byte, and each table uses one of them:
 *   - of a *call*: the innermost recorded one. Bytes by call and by function go by it, so that they
 *     add up like self time, and a builtin has what it allocated itself.
 *   - of a *site*: the line that was executing. Sites go by it, and functions outside all calls.
 * A realloc counts as a free of the old block and an allocation of the new one. */
#ifndef EP_SUMMARY_H
#define EP_SUMMARY_H

#include "pair.h"

/* ---- Functions (folds/by_function.c) ---------------------------------------------------------- */

/* Figures of nodes and leaves of the tree of calls (folds/tree.h): ns, bytes, counts. */
typedef struct ep_figures {
#define EP_NODE_FIGURE(name) int64_t name;
#define EP_LEAF_FIGURE(name) int64_t name;
#define EP_WAIT_FIGURE(name, WHAT) int64_t name;
#include "figures.def"
#undef EP_NODE_FIGURE
#undef EP_LEAF_FIGURE
#undef EP_WAIT_FIGURE
} ep_figures;

/* A *slice* is a call, or a run of a generator; it is whole when both its ends were recorded, and only
 * whole slices have a known duration: mean to p99 are theirs, -1 without any. */
typedef struct ep_function_stats {
    ep_figures own;         /* by itself */
    ep_figures below;       /* with all that it called; of nested slices of one function the outermost */
    int64_t recursive;      /* slices begun while the function was open on the thread: calls + resumes
                               - recursive are cProfile's primitive calls */
    int64_t whole, spent;   /* whole slices, and their time in ns */
    /* What follows cannot be added up over recordings. */
    int64_t net, net_self;  /* allocated - freed */
    int64_t churn, churn_self;    /* of allocated: freed again, by anybody: allocated - live */
    double mean;
    int64_t min, max;
    int64_t p50, p95, p99;  /* the smallest that so many % do not exceed; exact below 128 ns, else
                               within 1 % */
} ep_function_stats;

/* The functions of the map in its order, and then one row for unknown functions and for blocks whose free
 * was lost. So every column adds up to the whole. */
typedef struct ep_summary {
    size_t count;               /* function_count + 1 */
    ep_function_stats *rows;
} ep_summary;

void ep_summary_clear(ep_summary *summary);

/* Bytes and blocks by call. */
typedef struct ep_call_memory {
    size_t count;               /* as calls */
    int64_t *allocated;
    int64_t *freed;
    int32_t *blocks;            /* allocated */
} ep_call_memory;

/* below: with the calls below it, else of the call itself.
 * Returns through out: new, for ep_call_memory_clear(); untouched on failure. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_summary_call_memory(const ep_calls *calls, const ep_blocks *blocks,
                                            bool below, ep_call_memory *out);
void ep_call_memory_clear(ep_call_memory *memory);

/* The function that an event belongs to: that of its call, or of its site. calls: NULL if not
 * recorded. -1: unknown. */
static inline int32_t
ep_row_function(const ep_pair_input *input, const ep_calls *calls, size_t row)
{
    int32_t call = ep_row_call(calls, row);
    return call >= 0 ? ep_call_function(calls, (size_t)call)
                     : ep_site_function(input->map, input->columns->id[row]);
}

/* ---- Memory over time (summary_memory.c) ----------------------------------------------------- */

#define EP_DOMAIN_BIT(domain) (1u << (domain))
#define EP_DOMAINS_ALL (EP_DOMAIN_BIT(EP_DOMAIN_COUNT) - 1)

/* One row for each change, in order, with the values after it. Blocks older than the window are not in it:
 * the live bytes begin at 0. */
typedef struct ep_curve {
    size_t count;
    int64_t *time;              /* ns */
    int64_t *live;              /* bytes */
    int64_t *blocks;
} ep_curve;

/* The interval bin k of n: from k * length / n, to the start of the next. */
typedef struct ep_bin {
    int64_t min;                /* live bytes, with those at the begin of the bin */
    int64_t max;
    int64_t last;
    int64_t blocks;             /* last */
} ep_bin;

typedef struct ep_peak {
    int64_t time;               /* ns, of its first instant; -1: no block was ever alive */
    int64_t live;               /* bytes */
    int64_t blocks;
    size_t moment;              /* for ep_block_lives() and ep_summary_alive() */
} ep_peak;

/* domains: bits of those to count (EP_DOMAIN_BIT).
 * Returns through out: new, for ep_curve_clear(); untouched on failure. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_summary_curve(const ep_blocks *blocks, unsigned domains, ep_curve *out);
void ep_curve_clear(ep_curve *curve);

/* Where bin k of `count` begins, without a product that could overflow: k <= count. */
static inline int64_t
ep_bin_start(int64_t length, size_t count, size_t k)
{
    int64_t bins = (int64_t)count;
    return length / bins * (int64_t)k + length % bins * (int64_t)k / bins;
}

/* Fills `count` bins, the caller's. No memory needed. */
void ep_summary_bins(const ep_blocks *blocks, unsigned domains, size_t count, ep_bin *bins);

ep_peak ep_summary_peak(const ep_blocks *blocks, unsigned domains);

/* ---- Blocks by function, site or stack (summary_memory.c) ------------------------------------ */

/* Call stacks: calls with the same sites from the outermost on have the same stack. */
typedef struct ep_stacks {
    size_t count;
    int32_t *parent;            /* the stack without its innermost call; -1: empty */
    uint32_t *site;             /* of the innermost call */
    int32_t *call_stack;        /* by call */
} ep_stacks;

/* Returns through out: new, for ep_stacks_clear(); untouched on failure. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_summary_stacks(const ep_calls *calls, ep_stacks *out);
void ep_stacks_clear(ep_stacks *stacks);

typedef enum ep_group_by {
    EP_BY_FUNCTION,             /* ep_row_function() of the allocation; -1: unknown */
    EP_BY_SITE,                 /* of the allocation; 0: none */
    EP_BY_STACK                 /* of the allocation's call; -1: outside all calls */
} ep_group_by;

typedef struct ep_group {
    int32_t key;
    int64_t bytes;
    int64_t blocks;
} ep_group;

/* The largest first. */
typedef struct ep_groups {
    size_t count;
    ep_group *rows;
} ep_groups;

/* The blocks alive at a moment (see pair.h): that of the peak, of ep_blocks_moment(), or
 * alloc_count for the end: leaks. calls: NULL if not recorded; stacks: needed for EP_BY_STACK only.
 * Returns through out: new, for ep_groups_clear(); untouched on failure. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_summary_alive(const ep_blocks *blocks, const ep_calls *calls,
                                      const ep_stacks *stacks, size_t moment, ep_group_by by,
                                      ep_groups *out);

/* The blocks that are EP_BLOCK_TEMPORARY; needs EP_BLOCKS_FLAGS. Otherwise as above. */
EP_CHECKED ep_status ep_summary_temporary(const ep_blocks *blocks, const ep_calls *calls,
                                          const ep_stacks *stacks, ep_group_by by, ep_groups *out);
void ep_groups_clear(ep_groups *groups);

#endif
