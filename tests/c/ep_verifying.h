/* What the suites of verify.h share: streams of a program that could have run, and how they are judged. */
#ifndef EP_VERIFYING_H
#define EP_VERIFYING_H

#include "ep_program.h"

#include "engine.h"
#include "verify.h"

#define ALL_KINDS (((UINT64_C(1) << (EP_KIND_DESTROY + 1)) - 1) & ~UINT64_C(1))
#define ADDRESSES 24
#define ROUNDS 60

/* ---- Streams --------------------------------------------------------------------------------- */

typedef struct event {
    int64_t time_ns;
    int32_t thread;
    uint32_t id;
    uint8_t kind;
    uint64_t address;    /* 0: not of an allocator */
    int64_t size;
} event;

typedef struct open_one {
    uint32_t site;
    uint8_t kind;
} open_one;

typedef struct simulation {
    event *events;
    size_t count, capacity;
    uint64_t random;
    int64_t now, step_ns;
    open_one stack[THREADS][FUNCTIONS];
    size_t depth[THREADS];
    bool lives[ADDRESSES];
} simulation;

static inline void
add(simulation *s, int32_t thread, unsigned kind, uint32_t id, uint64_t address, int64_t size)
{
    if (s->count == s->capacity) {
        s->capacity = s->capacity ? s->capacity * 2 : 256;
        s->events = must(realloc(s->events, s->capacity * sizeof *s->events));
    }
    s->now += s->step_ns + (int64_t)below(&s->random, 3);
    s->events[s->count++] = (event){s->now, thread, id, (uint8_t)kind, address, size};
}

static inline uint64_t
address_of(size_t which)
{
    return 0x10000 + which * 48;
}

static inline bool
is_open(const simulation *s, int32_t thread, int32_t function)
{
    for (size_t i = 0; i < s->depth[thread]; i++) {
        if ((int32_t)(s->stack[thread][i].site % FUNCTIONS) == function) {
            return true;
        }
    }
    return false;
}

/* No function is open twice: so that each end has one call that it fits. */
static inline void
call_or_end(simulation *s, int32_t thread)
{
    static const uint8_t opens[] = {EP_KIND_CALL, EP_KIND_RESUME, EP_KIND_THROW, EP_KIND_C_CALL};
    static const uint8_t ends[] = {EP_KIND_RETURN, EP_KIND_YIELD, EP_KIND_UNWIND};
    size_t *depth = &s->depth[thread];
    uint32_t site = random_site(&s->random);
    bool room = *depth < FUNCTIONS && !is_open(s, thread, (int32_t)(site % FUNCTIONS));
    if (room && (*depth == 0 || one_in(&s->random, 2))) {
        /* C is called by Python alone. */
        bool in_python = *depth > 0 && s->stack[thread][*depth - 1].kind != EP_KIND_C_CALL;
        uint8_t kind = opens[below(&s->random, in_python ? 4 : 3)];
        s->stack[thread][(*depth)++] = (open_one){site, kind};
        add(s, thread, kind, site, 0, 0);
    } else if (*depth > 0) {
        open_one top = s->stack[thread][--*depth];
        unsigned kind = top.kind == EP_KIND_C_CALL ? EP_KIND_C_RETURN + below(&s->random, 2)
                                                   : ends[below(&s->random, 3)];
        add(s, thread, kind, NAME_OF(top.site % FUNCTIONS), 0, 0);
    }
}

/* Blocks of an address are always of one domain. */
static inline void
allocate_or_free(simulation *s, int32_t thread)
{
    size_t which = below(&s->random, ADDRESSES);
    unsigned domain = which % EP_DOMAIN_COUNT;
    uint64_t address = address_of(which);
    int64_t size = (int64_t)below(&s->random, 1000);
    if (!s->lives[which]) {
        unsigned first = one_in(&s->random, 2) ? EP_KIND_MALLOC : EP_KIND_CALLOC;
        add(s, thread, first + domain, 1, address, size);
        s->lives[which] = true;
    } else if (one_in(&s->random, 2)) {
        add(s, thread, EP_KIND_FREE + domain, 1, address, -1);
        s->lives[which] = false;
    } else {
        add(s, thread, EP_KIND_REALLOC_FREE + domain, 1, address, -1);
        if (one_in(&s->random, 4)) {
            add(s, thread, EP_KIND_REALLOC_FAILED + domain, 1, address, INT64_MAX);
            return;
        }
        size_t other = (which + EP_DOMAIN_COUNT) % (ADDRESSES / EP_DOMAIN_COUNT * EP_DOMAIN_COUNT);
        bool moves = !s->lives[other] && which < ADDRESSES / EP_DOMAIN_COUNT * EP_DOMAIN_COUNT;
        s->lives[which] = !moves;
        s->lives[moves ? other : which] = true;
        add(s, thread, EP_KIND_REALLOC + domain, 1, moves ? address_of(other) : address, size);
    }
}

/* What a program could do. step_ns: between two events, at least. Returns: new (simulation_free). */
static inline simulation *
simulate(uint64_t seed, size_t rows, int64_t step_ns)
{
    simulation *s = must(calloc(1, sizeof *s));
    s->random = seed;
    s->step_ns = step_ns;
    while (s->count < rows) {
        int32_t thread = (int32_t)below(&s->random, THREADS);
        if (one_in(&s->random, 2)) {
            call_or_end(s, thread);
        } else {
            allocate_or_free(s, thread);
        }
    }
    return s;
}

static inline void
simulation_free(simulation *s)
{
    free(s->events);
    free(s);
}

/* ---- Verifying ------------------------------------------------------------------------------- */

typedef struct subject {
    program *program;
    ep_trace_thread threads[THREADS];
    ep_verify_input input;
} subject;

/* Returns: new, for subject_free(). */
static inline subject *
subject_new(const simulation *s)
{
    subject *to = must(calloc(1, sizeof *to));
    program *p = to->program = program_new();
    for (size_t row = 0; row < s->count; row++) {
        const event *e = &s->events[row];
        p->now = e->time_ns;
        if (e->address != 0) {
            program_alloc(p, e->thread, e->kind, e->address, e->size);
            p->columns.id[row] = e->id;
        } else {
            program_call(p, e->thread, e->kind, e->id);
        }
        if (e->thread >= 0 && e->thread < THREADS) {
            ep_trace_thread *thread = &to->threads[e->thread];
            bool first = true;
            for (int kind = 0; kind < EP_KIND_COUNT; kind++) first = first && !thread->recorded[kind];
            thread->first_ns = first ? e->time_ns : thread->first_ns;
            thread->last_ns = e->time_ns;
            thread->recorded[e->kind]++;
        }
    }
    to->input = (ep_verify_input){
        .map = &p->map,
        .threads = to->threads,
        .thread_count = THREADS,
        .kinds = ALL_KINDS,
        .duration_ns = s->now + 10 * EP_PAIR_SKEW_NS,
        .lost_until_ns = -1,
    };
    return to;
}

static inline void
subject_free(subject *self)
{
    for (int i = 0; i < THREADS; i++) free(self->threads[i].open.calls);
    program_free(self->program);
    free(self);
}

static inline void
assert_wrong(const subject *examined, ep_trace_fault_sort sort, size_t row, const char *what, uint64_t seed)
{
    ep_verification found;
    ck_assert_int_eq(ep_verify(&examined->program->columns, &examined->input, 3, &found), EP_OK);
    if (found.count == 0) {
        ck_abort_msg("%s, seed %llu: nothing was found", what, (unsigned long long)seed);
    }
    const ep_trace_fault *first = &found.faults[0];
    if (first->sort != sort || first->row != row) {
        ck_abort_msg("%s, seed %llu: row %zu is %s, not row %zu %s", what, (unsigned long long)seed,
                     first->row, ep_trace_faults[first->sort].word, row, ep_trace_faults[sort].word);
    }
    ck_assert_uint_ge(found.counts[sort], 1);
    ep_verification_clear(&found);
}

/* ---- What is wrong: one place is damaged, in a way that has a name --------------------------- */

/* Damages the stream at random. Returns: whether there was a place for it; *row: which row the
 * first fault is to name. */
typedef bool damage(simulation *s, size_t *row, ep_trace_fault_sort *sort);

#endif
