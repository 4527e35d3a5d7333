/* What the suites of pairing and summaries share: a window that a test writes event by event, and
 * what random programs are made of. Header only, so that a suite stays one file. */
#ifndef EP_PROGRAM_H
#define EP_PROGRAM_H

#include <stdlib.h>
#include <string.h>

#include "ep_check.h"
#include "memory.h"
#include "pair.h"

#define THREADS 5
#define FUNCTIONS 7
#define SITES 40    /* site 0 is "no site"; the last two are of an unknown function */
#define NAMES 107
#define NAME_OF(function) ((uint32_t)(function) + 100)    /* name ids are no function rows */
#define UNKNOWN_SITE (SITES - 1)
#define UNKNOWN_NAME 3

typedef struct program {
    ep_columns columns;
    size_t room;
    ep_id_map map;
    int32_t site_function[SITES];
    int32_t name_function[NAMES];
    ep_open_stack open[THREADS];
    ep_pair_input input;    /* length_ns: one ns after the last event, see program_input() */
    int64_t now;            /* time of the next event */
    int64_t until_ns[THREADS];    /* of processes that end, for input.open_until_ns */
    bool has_waits;               /* waiting is told from its events, not from who had the lock */
} program;

/* ---- Writing --------------------------------------------------------------------------------- */

static inline void *
must(void *array)
{
    if (array == NULL) {
        abort();
    }
    return array;
}

/* Returns: new, for program_free(). */
static inline program *
program_new(void)
{
    program *p = must(calloc(1, sizeof *p));
    for (int32_t site = 0; site < SITES; site++) {
        p->site_function[site] = site == 0 || site >= SITES - 2 ? -1 : site % FUNCTIONS;
    }
    for (int32_t name = 0; name < NAMES; name++) {
        p->name_function[name] = name >= 100 ? name - 100 : -1;
    }
    p->map = (ep_id_map){
        .site_count = SITES,
        .site_function = p->site_function,
        .name_count = NAMES,
        .name_function = p->name_function,
        .function_count = FUNCTIONS,
    };
    p->input = (ep_pair_input){
        .columns = &p->columns,
        .map = &p->map,
        .thread_count = THREADS,
        .open_at_start = p->open,
        .lost_from_ns = EP_NOTHING_LOST,
    };
    return p;
}

static inline void
program_free(program *p)
{
    free(p->columns.time_ns);
    free(p->columns.kind);
    free(p->columns.thread);
    free(p->columns.id);
    free(p->columns.alloc_row);
    free(p->columns.address);
    free(p->columns.size);
    for (int thread = 0; thread < THREADS; thread++) free(p->open[thread].calls);
    free(p);
}

static inline void
program_reserve(program *p)
{
    ep_columns *c = &p->columns;
    if (c->count < p->room) {
        return;
    }
    p->room = p->room ? 2 * p->room : 64;
    c->time_ns = must(realloc(c->time_ns, p->room * sizeof *c->time_ns));
    c->kind = must(realloc(c->kind, p->room * sizeof *c->kind));
    c->thread = must(realloc(c->thread, p->room * sizeof *c->thread));
    c->id = must(realloc(c->id, p->room * sizeof *c->id));
    c->alloc_row = must(realloc(c->alloc_row, p->room * sizeof *c->alloc_row));
    c->address = must(realloc(c->address, p->room * sizeof *c->address));
    c->size = must(realloc(c->size, p->room * sizeof *c->size));
}

/* An event of the call form, one ns after the one before. Returns: its row. */
static inline size_t
program_call(program *p, int32_t thread, ep_kind kind, uint32_t id)
{
    program_reserve(p);
    size_t row = p->columns.count++;
    p->columns.time_ns[row] = p->now++;
    p->columns.kind[row] = (uint8_t)kind;
    p->columns.thread[row] = thread;
    p->columns.id[row] = id;
    p->input.length_ns = p->now;
    return row;
}

/* An allocator event, of site 1; size -1: a free. Returns: its number among those. */
static inline size_t
program_alloc(program *p, int32_t thread, unsigned kind, uint64_t address, int64_t size)
{
    size_t row = program_call(p, thread, (ep_kind)kind, 1);
    size_t event = p->columns.alloc_count++;
    p->columns.alloc_row[event] = row;
    p->columns.address[event] = address;
    p->columns.size[event] = size;
    return event;
}

/* The next event is at the time of the last one. */
static inline void
program_hold_time(program *p, bool hold)
{
    if (hold && p->columns.count > 0) {
        p->now = p->columns.time_ns[p->columns.count - 1];
    }
}

/* A call that was open on the thread when the window began, inside those opened before. */
static inline void
program_open(program *p, int32_t thread, ep_kind kind, uint32_t site)
{
    ep_open_stack *stack = &p->open[thread];
    stack->calls = must(realloc(stack->calls, (stack->depth + 1) * sizeof *stack->calls));
    stack->calls[stack->depth++] = (ep_open_call){.site_id = site, .kind = (uint8_t)kind};
}

/* ---- Pairing --------------------------------------------------------------------------------- */

/* Returns: new, every column filled. */
static inline ep_calls
program_calls(program *p)
{
    ep_calls calls;
    ck_assert_int_eq(ep_pair_calls(&p->input, NULL, &calls), EP_OK);
    ck_assert_int_eq(ep_calls_fill(&calls, UINT_MAX), EP_OK);
    return calls;
}

/* calls: may be NULL. Returns: new, every column filled. */
static inline ep_blocks
program_blocks(program *p, const ep_calls *calls)
{
    ep_blocks blocks;
    ck_assert_int_eq(ep_pair_blocks(&p->input, NULL, &blocks), EP_OK);
    ck_assert_int_eq(ep_blocks_fill(&blocks, calls, UINT_MAX), EP_OK);
    return blocks;
}

/* ---- Random programs ------------------------------------------------------------------------- */

/* splitmix64, the same on every machine: 0 <= it < limit. */
static inline uint64_t
below(uint64_t *random, uint64_t limit)
{
    uint64_t z = (*random += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (z ^ (z >> 31)) % limit;
}

static inline bool
one_in(uint64_t *random, uint64_t n)
{
    return below(random, n) == 0;
}

/* A site of a known function. */
static inline uint32_t
random_site(uint64_t *random)
{
    return 1 + (uint32_t)below(random, SITES - 3);
}

#endif
