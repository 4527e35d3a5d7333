/* What each source line cost: how often it began, how long it took, what it allocated. */
#ifndef EP_LINES_H
#define EP_LINES_H

#include "pair.h"

/* A line of a function. Blocks that were allocated while it was executing belong to it.
 *
 * A line lasts from its begin until the next line of the same call begins, or that call ends or yields, or
 * the window ends. Its time contains the calls that it makes. If a line is open several times on a thread,
 * because its function is recursive, only the outermost counts, so that no line takes longer than the
 * window. `self` is the part in which no recorded call from the line is open. Without recorded calls a line
 * lasts until the next line of its thread begins, and the last one until the thread's last event: then
 * `self` equals `time`. */
typedef struct ep_line {
    int32_t function;    /* row */
    int32_t line;
    int64_t hits;        /* how often it began */
    int64_t time_ns;
    int64_t self_ns;
    int64_t allocated;   /* bytes; a realloc counts as an allocation of the new block */
    int64_t blocks;
} ep_line;

/* In order of function and line; only lines that began or allocated. */
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
