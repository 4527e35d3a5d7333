/* The calling-context tree (Ammons, Ball, Larus 1997): calls, time and bytes by path of calls.
 *
 *   nodes   0 (outside all calls)            leaves: what a node allocated, by the line that did
 *           +- 1 main                        main, line 7:   3 blocks
 *           |  +- 2 load, called in line 7   load, line 21: 90 blocks
 *           |  +- 3 load, called in line 9
 *           +- 4 worker
 *
 * A node is a call site below its parent: a function, who called it and in which line. Threads share the
 * tree. Parents come before their children. The figures of a node are its own, without its children;
 * `total`, `waited`, `longest` and `shortest` include the calls inside. ep_tree_below() sums over children.
 *
 * Bytes at the peak, exactly, in one pass: every new maximum of the live bytes gets a number, the *epoch*.
 * Before the live bytes of a leaf change, the leaf saves them under the epoch, unless it has done so. At
 * the end, a leaf that changed since the last maximum has saved its bytes of then, and any other leaf still
 * has them. */
#ifndef EP_TREE_H
#define EP_TREE_H

#include "endings.h"
#include "fold.h"
#include "hash_index.h"
#include "live_blocks.h"
#include "summary.h"
#include "tenures.h"

#define EP_TREE_NODES_MAX ((size_t)1 << 20)    /* nodes, without those of the open calls */

#define EP_TREE_BINS ((size_t)1 << 13)

#define EP_PLACE_UNKNOWN (-1)
#define EP_PLACE_OTHER (-2)    /* function of a node that stands for many small ones */
#define EP_PLACE_THREAD (-3)   /* function of the node of a thread; `line` is its row */
#define EP_LINE_OUTSIDE (-2)   /* line of a node of blocks that were allocated outside all calls */

/* Of a node: callee, caller, line of the call. Of a leaf: the function that was executing, -1, its line. */
typedef struct ep_place {
    int32_t function, caller, line;    /* rows of the map; -1: unknown */
} ep_place;

typedef struct ep_tree_node {
    uint32_t parent;          /* node 0 is its own */
    uint32_t place;
    int64_t calls, resumes;   /* that began in the window */
    int64_t raised;           /* that ended by an exception */
    int64_t total, self;      /* ns */
    int64_t waited, waited_self;    /* ns of both in which another thread had the interpreter's lock */
    int64_t longest, shortest;      /* ns, of whole calls; -1: there is none */
    int64_t cut, cut_ns;      /* calls and resumes that are not whole; time in those and in what was open */
    uint64_t freed;           /* bytes freed here, whoever allocated them */
} ep_tree_node;

typedef struct ep_tree_leaf {
    uint32_t node, place;
    uint64_t epoch;           /* of `at_peak` */
    uint64_t allocated, blocks;
    uint64_t live, live_blocks;
    uint64_t at_peak, at_peak_blocks;        /* after end(): what was alive at the peak */
    uint64_t temporary, temporary_blocks;    /* freed at once, or by the call that made them */
} ep_tree_leaf;

/* What blocks of the same leaf, thread and allocator have in common. Those without a live block are dropped
 * from time to time: a server may have a thread for each request. */
typedef struct ep_tree_origin {
    uint32_t leaf, owner;
} ep_tree_origin;

/* Two caches of what an event needs, by its node and its site: the node's child, and its leaf with an
 * origin. An entry is taken over by the next pair that has the same hash. */
#define EP_TREE_KNOWN_BITS 13
#define EP_TREE_KNOWN ((size_t)1 << EP_TREE_KNOWN_BITS)
typedef struct ep_tree_known_child {
    uint64_t key;             /* node, site */
    uint32_t child;
} ep_tree_known_child;

typedef struct ep_tree_known_leaf {
    uint64_t key;             /* node, site */
    uint32_t leaf, owner;
    uint32_t origin;          /* of the two; 0: not looked up yet */
} ep_tree_known_leaf;

/* Of a leaf: blocks that were not freed before their process ended. */
typedef struct ep_tree_gone {
    uint64_t bytes, blocks;
} ep_tree_gone;

/* Of a node: how long it waited, alone, by what for. */
typedef struct ep_tree_waits {
    int64_t ns[EP_WAIT_FOR_COUNT];
} ep_tree_waits;

/* Live bytes in one of EP_TREE_BINS equally long parts of the window. */
typedef struct ep_tree_bin {
    int64_t min, max, last;
} ep_tree_bin;

/* How many whole calls of a function took how long. Lengths below EP_TREE_LENGTH_PARTS ns have a bin each;
 * above, every power of two has that many bins of equal width, so that the middle of a bin is off by less
 * than 1 % (half of 1/64). A bin exists if a call fell into it. */
#define EP_TREE_LENGTH_PARTS 64
typedef struct ep_tree_length {
    int32_t function;           /* -1: unknown */
    uint32_t bin;
    int64_t low_ns, high_ns;    /* the shortest and the longest of the bin */
    uint64_t calls;
} ep_tree_length;

/* Of a leaf that was folded into "other" and has blocks: a function around it; by_function.h. */
typedef struct ep_tree_path {
    uint32_t parent;          /* the path without this function; 0: none */
    uint32_t node;            /* without a parent: that "other" */
    int32_t function;
    bool is_outermost;        /* no node above is of the function */
} ep_tree_path;

/* What a thread did. */
typedef struct ep_tree_sums {
    int64_t in_calls;     /* ns */
    int64_t allocated;    /* bytes */
} ep_tree_sums;

struct ep_tree_thread;
struct ep_tree_block;

typedef struct ep_tree {
    ep_fold fold;
    size_t max_nodes;

    ep_tree_node *nodes;
    size_t node_count, node_capacity;
    ep_tree_leaf *leaves;     /* [0] is none */
    size_t leaf_count, leaf_capacity;
    ep_place *places;
    size_t place_count, place_capacity;
    uint64_t folded;          /* nodes that "other" stands for */
    bool with_lengths;        /* set between open and run: `lengths` are asked for */
    bool by_thread;           /* set between open and run: see below */
    ep_tree_length *lengths;  /* in no order; after end() by function and bin */
    size_t length_count, length_capacity;
    ep_summary functions;     /* after end(), not by_thread: by_function.h; percentiles: with_lengths */

    int64_t peak_ns;          /* -1: no block was ever alive */
    uint64_t peak, peak_blocks;
    uint64_t live, live_blocks;
    ep_tree_bin *bins;        /* EP_TREE_BINS long */
    ep_tree_sums *thread_sums;    /* index = thread row */
    uint64_t domain_allocated[EP_DOMAIN_COUNT];
    uint64_t domain_live[EP_DOMAIN_COUNT];
    uint64_t domain_at_peak[EP_DOMAIN_COUNT];    /* after end() */
    uint64_t domain_epoch[EP_DOMAIN_COUNT];
    uint64_t unknown_frees;
    uint64_t frees_lost;      /* blocks whose free was lost */
    uint64_t freed_unseen;    /* bytes of those */
    uint64_t swaps_mended;    /* blocks whose free was logged after the next birth at their address */
    uint64_t unmatched, ends_unseen;

    /* while it runs */
    ep_fold_facts facts;
    ep_hash_index children, leaf_map;    /* nodes by (parent, place); leaves by (node, place) */
    ep_hash_index length_map;   /* lengths by (function, bin) */
    bool failed;              /* out of memory where no status is returned */
    uint32_t *place_of_site;  /* place + 1; 0: not looked up yet */
    ep_tree_known_child *known_children;    /* EP_TREE_KNOWN long */
    ep_tree_known_leaf *known_leaves;       /* as long */
    ep_hash_index place_map;  /* places, by all that they are */
    struct ep_tree_thread *threads;
    ep_live_blocks by_address;
    ep_tree_origin *origins;        /* [0] is none */
    size_t origin_count, origin_capacity, origin_limit;
    ep_hash_index origin_map;       /* origins by (leaf, owner) */
    struct ep_tree_block *late;     /* blocks whose free was logged too late */
    size_t late_count, late_capacity;
    ep_tenure_clocks clocks;
    ep_tree_waits *waits;     /* by node, as far as the array goes: most programs wait at few places */
    size_t waits_capacity;
    ep_kind_set lock_kinds;
    uint32_t floor_count;     /* nodes 1 to this are those of threads */
    uint8_t work[EP_KIND_COUNT];    /* what to do with an event of the kind: tree.c */
    uint8_t domain_of[EP_KIND_COUNT];    /* ep_domain */
    ep_ending *endings;             /* endings.h */
    size_t ending_count, next_ending;
    int64_t ending_ns;              /* of the next */
    ep_tree_gone *gone;             /* by leaf, as far as the array goes; end() adds them to `live` */
    size_t gone_capacity;
    uint64_t domain_gone[EP_DOMAIN_COUNT];
    ep_tree_path *paths;      /* [0] is none */
    size_t path_count;
    uint32_t *path_of_leaf;   /* by leaf, as far as the array goes; 0: none */
    size_t path_leaf_count;
    ep_function_stats *summed;      /* of what was folded, by function + 1; [0] is none */
    size_t summed_capacity;
    uint64_t summed_epoch;    /* of their `at_peak` */
    uint64_t epoch;
    uint64_t calls_begun;
    size_t bin;               /* the current one of bins */
    int64_t bin_end_ns;
    int64_t bin_min, bin_max; /* of the current one while events are read; see ep_tree_keep_bin() */
    int64_t rise;             /* live bytes above are a maximum of the bin, if not of all */
} ep_tree;

/* Before the first run. max_nodes: 0 for EP_TREE_NODES_MAX. Afterwards fold.type->clear() frees it.
 *
 * Of several processes (facts.thread_process, open_until_ns): what one has not freed when it ends is not
 * alive any more, and is in no later peak and bin. `live` has it all the same: it was not freed.
 *
 * by_thread: each thread has a node below node 0, in order of threads, and the thread's outermost calls are
 * below that; nodes of blocks outside all calls are apart from those of calls (EP_LINE_OUTSIDE). There is
 * no bound on nodes then.
 *
 * A run pairs calls as ep_pair_calls() and blocks as ep_pair_blocks() do. One difference: where a realloc
 * failed, and another thread allocated meanwhile, its old block is not counted in between. */
void ep_tree_open(ep_tree *tree, size_t max_nodes);

/* How many of the first nodes have waits. */
static inline size_t
ep_tree_waits_count(const ep_tree *tree)
{
    return tree->waits_capacity < tree->node_count ? tree->waits_capacity : tree->node_count;
}

/* The function that a node runs, a row of the map; EP_PLACE_UNKNOWN, EP_PLACE_OTHER. */
static inline int32_t
ep_tree_function(const ep_tree *tree, size_t node)
{
    return tree->places[tree->nodes[node].place].function;
}

#endif
