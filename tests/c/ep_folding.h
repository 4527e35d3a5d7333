/* What the suites of folds share: random programs, and their events as streams. Header only, so that a
 * suite stays one file. */
#ifndef EP_FOLDING_H
#define EP_FOLDING_H

#include "ep_program.h"

#include "stream.h"
#include "tree.h"

/* ---- Tools ----------------------------------------------------------------------------------- */

static int32_t no_caller[SITES];
static int32_t line_of_site[SITES];

/* Batches of random length over columns in memory. */
typedef struct random_stream {
    ep_stream stream;
    const ep_columns *columns;
    size_t row, block, most;
    uint64_t random;
} random_stream;

static inline ep_status
random_next(ep_stream *stream, ep_batch *out)
{
    random_stream *self = (random_stream *)stream;
    const ep_columns *c = self->columns;
    size_t left = c->count - self->row;
    size_t rows = 1 + (size_t)below(&self->random, self->most);
    rows = rows < left ? rows : left;
    *out = (ep_batch){c, self->row, self->row + rows, self->block};
    self->row += rows;
    while (self->block < c->alloc_count && c->alloc_row[self->block] < self->row) self->block++;
    return EP_OK;
}

static inline ep_fold_facts
facts_of(program *p)
{
    for (int site = 0; site < SITES; site++) {
        no_caller[site] = -1;
        line_of_site[site] = site / FUNCTIONS;
    }
    p->map.site_caller = no_caller;
    p->map.site_line = line_of_site;
    return (ep_fold_facts){
        .map = &p->map,
        .thread_count = THREADS,
        .open_at_start = p->open,
        .length_ns = p->input.length_ns,
        .open_until_ns = p->input.open_until_ns,
        .thread_process = p->input.thread_process,
        .has_lock = !p->has_waits,
    };
}

/* Returns: new in *out, also on failure. */
static inline ep_status
try_tree_of(program *p, size_t max_nodes, size_t most, ep_tree *out)
{
    ep_tree_open(out, max_nodes);
    out->with_lengths = true;
    ep_fold *folds[] = {&out->fold};
    ep_fold_facts facts = facts_of(p);
    random_stream stream = {
        .stream = {.next = random_next}, .columns = &p->columns, .most = most, .random = most};
    return ep_fold_run(&stream.stream, &facts, folds, 1, NULL);
}

/* most: rows of a batch. Returns: new. */
static inline ep_tree
tree_of(program *p, size_t max_nodes, size_t most)
{
    ep_tree tree;
    ck_assert_int_eq(try_tree_of(p, max_nodes, most, &tree), EP_OK);
    return tree;
}

static inline void
tree_free(ep_tree *tree)
{
    tree->fold.type->clear(&tree->fold);
}

/* ---- Random programs ------------------------------------------------------------------------- */

/* The process of each thread, for programs of several. */
static const int32_t processes[THREADS] = {0, 1, 0, 2, 1};

#define ADDRESSES 40

/* Programs of several processes; of those with an even seed some end early. */
static inline void
have_processes(program *p, uint64_t seed)
{
    p->input.thread_process = seed % 5 == 2 ? processes : NULL;
    p->input.open_until_ns = seed % 10 == 2 ? p->until_ns : NULL;
}

/* The thread, or, if its process has ended by now, another. */
static inline int32_t
thread_of_living(const program *p, int32_t thread, uint64_t event, uint64_t events)
{
    bool ended = p->input.open_until_ns != NULL && processes[thread] != 0 &&
                 event * 3 > events * (uint64_t)(3 - processes[thread]);
    return ended ? thread / 2 % 2 * 2 : thread;
}

/* A process has addresses of its own, where that matters. */
static inline uint64_t
address_of(const program *p, int32_t thread, uint64_t slot)
{
    uint64_t process = p->input.open_until_ns != NULL ? (uint64_t)processes[thread] : 0;
    return (process << 48) + 0x1000 + 16 * slot;
}

/* Processes end with their last event, or a little later. */
static inline void
set_ends(program *p, uint64_t *random)
{
    int64_t ends_ns[THREADS] = {0};
    for (size_t row = 0; row < p->columns.count; row++)
        ends_ns[processes[p->columns.thread[row]]] = p->columns.time_ns[row] + (int64_t)below(random, 3);
    for (int thread = 0; thread < THREADS; thread++) p->until_ns[thread] = ends_ns[processes[thread]];
}

static inline void
write_block_event(program *p, uint64_t *random, int32_t thread)
{
    uint64_t address = address_of(p, thread, below(random, ADDRESSES));
    unsigned domain = (unsigned)below(random, EP_DOMAIN_COUNT);
    int64_t size = (int64_t)below(random, 5000);
    switch (below(random, 6)) {
        case 0:
            program_alloc(p, thread, EP_KIND_REALLOC_FREE + domain, address, -1);
            program_alloc(p, thread, EP_KIND_REALLOC + domain,
                          address_of(p, thread, below(random, ADDRESSES)), size);
            break;
        case 1:
            program_alloc(p, thread, EP_KIND_REALLOC_FREE + domain, address, -1);
            program_alloc(p, thread, EP_KIND_REALLOC_FAILED + domain, address, size);
            break;
        case 2:
        case 3:
            program_alloc(p, thread, EP_KIND_FREE + domain, address, -1);
            break;
        default:
            program_alloc(p, thread, EP_KIND_MALLOC + domain, address, size);
    }
}

static inline program *
random_program(uint64_t seed, bool one_thread)
{
    static const ep_kind opens[] = {EP_KIND_CALL, EP_KIND_CALL, EP_KIND_RESUME, EP_KIND_C_CALL,
                                    EP_KIND_SPAN_BEGIN};
    static const ep_kind closes[] = {EP_KIND_RETURN, EP_KIND_YIELD, EP_KIND_UNWIND, EP_KIND_C_RETURN,
                                     EP_KIND_SPAN_END};
    uint64_t random = seed;
    program *p = program_new();
    have_processes(p, seed);
    for (uint64_t i = below(&random, 4); i > 0; i--) {
        program_open(p, (int32_t)below(&random, THREADS), EP_KIND_CALL, random_site(&random));
    }
    uint64_t events = below(&random, 2000);
    for (uint64_t i = 0; i < events; i++) {
        int32_t thread = one_thread ? 0 : (int32_t)below(&random, THREADS);
        thread = thread_of_living(p, thread, i, events);
        uint64_t what = below(&random, 10);
        /* Some threads' clocks differ by little, some blocks are reused much later. */
        p->now += one_in(&random, 20) ? (int64_t)below(&random, 3 * EP_PAIR_SKEW_NS) : 0;
        if (what < 3) {
            program_call(p, thread, opens[below(&random, 5)], random_site(&random));
        } else if (what < 6) {
            program_call(p, thread, closes[below(&random, 5)],
                         NAME_OF(below(&random, FUNCTIONS)));
        } else {
            write_block_event(p, &random, thread);
        }
    }
    set_ends(p, &random);
    return p;
}

#endif
