/* What the suites of sums share: a program with all that is made of it, and sums by function that are
 * counted one by one. */
#ifndef EP_SUMMING_H
#define EP_SUMMING_H

#include "ep_folding.h"

#include <limits.h>

#include "summary.h"

/* ---- Tools ----------------------------------------------------------------------------------- */

/* A program and all that is made of it. */
typedef struct study {
    program *p;
    ep_calls calls;
    ep_blocks blocks;
    ep_summary summary;
} study;

/* Steals the program. Returns: new, for study_free(). */
static inline study
study_of(program *p)
{
    study s = {.p = p, .calls = program_calls(p)};
    s.blocks = program_blocks(p, &s.calls);
    ep_tree tree = tree_of(p, 0, SIZE_MAX);
    s.summary = tree.functions;
    tree.functions = (ep_summary){0};
    tree_free(&tree);
    return s;
}

static inline void
study_free(study *s)
{
    ep_summary_clear(&s->summary);
    ep_blocks_clear(&s->blocks);
    ep_calls_clear(&s->calls);
    program_free(s->p);
}

/* ---- Sums by function, one by one ------------------------------------------------------------ */

/* The row of a function; the last of none. */
static inline ep_function_stats *
row_of(ep_function_stats *rows, int32_t function)
{
    return &rows[function >= 0 ? function : FUNCTIONS];
}

/* The function that an event belongs to: that of its call, or of its site. */
static inline int32_t
function_of_event(const program *p, const ep_calls *calls, size_t event)
{
    size_t row = p->columns.alloc_row[event];
    uint32_t site = p->columns.id[row];
    int32_t call = calls->row_call[row];
    return call >= 0 ? calls->function[call] : site < SITES ? p->site_function[site]
                                                            : -1;
}

/* Adds a value to a figure of the function that an event belongs to, and of all around it. */
#define COUNT_ONE(rows, p, calls, event, figure, value)                                \
    do {                                                                               \
        row_of(rows, function_of_event(p, calls, event))->own.figure += (value);       \
        int32_t call_ = (calls)->row_call[(p)->columns.alloc_row[event]];              \
        if (call_ < 0)                                                                 \
            row_of(rows, function_of_event(p, calls, event))->below.figure += (value); \
        for (; call_ >= 0; call_ = (calls)->parent[call_])                             \
            if (((calls)->flags[call_] & EP_CALL_RECURSIVE) == 0)                      \
                row_of(rows, (calls)->function[call_])->below.figure += (value);       \
    } while (0)

static inline void
count_blocks(const program *p, const ep_calls *calls, const ep_blocks *blocks, ep_function_stats *rows)
{
    size_t peak = ep_summary_peak(blocks, EP_DOMAINS_ALL).moment;
    for (size_t i = 0; i < blocks->count; i++) {
        bool is_live = blocks->death[i] == EP_ROW_NONE;
        bool is_temporary = (blocks->flags[i] & EP_BLOCK_TEMPORARY) != 0;
        bool is_at_peak = ep_block_lives(blocks, i, peak);
        int64_t size = blocks->size[i];
        size_t birth = blocks->birth[i];
        COUNT_ONE(rows, p, calls, birth, allocated, size);
        COUNT_ONE(rows, p, calls, birth, blocks, 1);
        COUNT_ONE(rows, p, calls, birth, live, is_live ? size : 0);
        COUNT_ONE(rows, p, calls, birth, live_blocks, is_live);
        COUNT_ONE(rows, p, calls, birth, temporary, is_temporary ? size : 0);
        COUNT_ONE(rows, p, calls, birth, temporary_blocks, is_temporary);
        COUNT_ONE(rows, p, calls, birth, at_peak, is_at_peak ? size : 0);
        COUNT_ONE(rows, p, calls, birth, at_peak_blocks, is_at_peak);
        if ((blocks->flags[i] & EP_BLOCK_FREE_LOST) != 0) {
            rows[FUNCTIONS].own.freed += size;
            rows[FUNCTIONS].below.freed += size;
        } else if (!is_live) {
            COUNT_ONE(rows, p, calls, blocks->death[i], freed, size);
        }
    }
}

static inline void
count_calls(const ep_calls *calls, ep_function_stats *rows)
{
    for (size_t i = 0; i < calls->count; i++) {
        ep_function_stats *row = row_of(rows, calls->function[i]);
        bool is_recursive = (calls->flags[i] & EP_CALL_RECURSIVE) != 0;
        bool resumes = calls->kind[i] == EP_KIND_RESUME || calls->kind[i] == EP_KIND_THROW;
        if ((calls->flags[i] & EP_CALL_OPEN_AT_START) == 0) {
            *(resumes ? &row->own.resumes : &row->own.calls) += 1;
            row->recursive += is_recursive;
        }
        row->below.self += is_recursive ? 0 : calls->duration[i];
        row->own.self += calls->self[i];
        if ((calls->flags[i] & EP_CALL_CUT) == 0) {
            row->min = row->whole == 0 || calls->duration[i] < row->min ? calls->duration[i] : row->min;
            row->max = calls->duration[i] > row->max ? calls->duration[i] : row->max;
            row->whole++;
            row->spent += calls->duration[i];
        }
    }
}

/* Fills FUNCTIONS + 1 rows, all but percentiles and what is made of sums. */
static inline void
count_one_by_one(program *p, ep_calls *calls, ep_blocks *blocks, ep_function_stats *rows)
{
    memset(rows, 0, (FUNCTIONS + 1) * sizeof *rows);
    count_calls(calls, rows);
    count_blocks(p, calls, blocks, rows);
}

static inline void
assert_same_row(const ep_function_stats *row, const ep_function_stats *wanted)
{
    ck_assert_int_eq(row->own.calls, wanted->own.calls);
    ck_assert_int_eq(row->own.resumes, wanted->own.resumes);
    ck_assert_int_eq(row->recursive, wanted->recursive);
    ck_assert_int_eq(row->below.self, wanted->below.self);
    ck_assert_int_eq(row->own.self, wanted->own.self);
    ck_assert_int_eq(row->whole, wanted->whole);
    ck_assert_int_eq(row->min, wanted->whole > 0 ? wanted->min : -1);
    ck_assert_int_eq(row->max, wanted->whole > 0 ? wanted->max : -1);
    if (wanted->whole > 0)
        ck_assert_double_eq(row->mean, (double)wanted->spent / (double)wanted->whole);
    ck_assert_int_eq(row->own.freed, wanted->own.freed);
    ck_assert_int_eq(row->below.freed, wanted->below.freed);
#define EP_NODE_FIGURE(name)
#define EP_WAIT_FIGURE(name, WHAT)
#define EP_LEAF_FIGURE(name) ck_assert_int_eq(row->own.name, wanted->own.name);
#include "figures.def"
#undef EP_LEAF_FIGURE
#define EP_LEAF_FIGURE(name) ck_assert_int_eq(row->below.name, wanted->below.name);
#include "figures.def"
#undef EP_NODE_FIGURE
#undef EP_WAIT_FIGURE
#undef EP_LEAF_FIGURE
    ck_assert_int_eq(row->net, wanted->below.allocated - wanted->below.freed);
    ck_assert_int_eq(row->net_self, wanted->own.allocated - wanted->own.freed);
    ck_assert_int_eq(row->churn, wanted->below.allocated - wanted->below.live);
    ck_assert_int_eq(row->churn_self, wanted->own.allocated - wanted->own.live);
}

#endif
