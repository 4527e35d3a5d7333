/* What each source line cost: how often it began, how long it took, what it allocated. */
#ifndef EP_LINES_H
#define EP_LINES_H

#include "pair.h"

/* A line of a function; of a line's own are the blocks that were allocated while it was executing.
 *
 * A line takes from where it begins until the next one of the same call begins, or that call ends or
 * yields, or the window ends: with all that is called from it. Of lines that are open several times on
 * a thread, because their function is recursive, the outermost counts, so that no line takes longer
 * than the window. `self` is the part in which no recorded call from the line is open.
 * Where no calls are recorded a line takes until the next one of its thread begins, and the last one
 * until the thread's last event: `self` is the same as `time` then. */
typedef struct ep_line {
    int32_t function;    /* row */
    int32_t line;
    int64_t hits;        /* how often it began */
    int64_t time_ns;
    int64_t self_ns;
    int64_t allocated;   /* bytes; a realloc counts as an allocation of the new block */
    int64_t blocks;
} ep_line;

/* In order of function and line; those that neither began nor allocated are not there. */
typedef struct ep_lines {
    size_t count;
    ep_line *rows;
} ep_lines;

/* calls: NULL if not paired, as if none were recorded; blocks: NULL without. progress: may be NULL.
 * Returns through out: new, for ep_lines_clear(); untouched on failure.
 * Fails: EP_NOMEM; EP_STATE, asked to stop. */
EP_CHECKED ep_status ep_lines_build(const ep_pair_input *input, const ep_calls *calls,
                                    const ep_blocks *blocks, const ep_progress *progress,
                                    ep_lines *out);

/* Frees what the object holds; a zeroed or closed object is allowed. */
void ep_lines_clear(ep_lines *lines);

#endif
