/* verify.h: random streams that could have happened are right, whatever a ring lost of them; damaged
 * in one place, they are wrong there, and the first finding says in which way. */
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

static void
add(simulation *s, int32_t thread, unsigned kind, uint32_t id, uint64_t address, int64_t size)
{
    if (s->count == s->capacity) {
        s->capacity = s->capacity ? s->capacity * 2 : 256;
        s->events = must(realloc(s->events, s->capacity * sizeof *s->events));
    }
    s->now += s->step_ns + (int64_t)below(&s->random, 3);
    s->events[s->count++] = (event){s->now, thread, id, (uint8_t)kind, address, size};
}

static uint64_t
address_of(size_t which)
{
    return 0x10000 + which * 48;
}

static bool
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
static void
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
static void
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
static simulation *
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

static void
simulation_free(simulation *s)
{
    free(s->events);
    free(s);
}

static void
remove_event(simulation *s, size_t row)
{
    memmove(&s->events[row], &s->events[row + 1], (s->count - row - 1) * sizeof *s->events);
    s->count--;
}

/* A second one right behind it. */
static void
repeat_event(simulation *s, size_t row)
{
    s->events = must(realloc(s->events, ++s->capacity * sizeof *s->events));
    memmove(&s->events[row + 1], &s->events[row], (s->count - row) * sizeof *s->events);
    s->count++;
}

/* ---- Verifying ------------------------------------------------------------------------------- */

typedef struct subject {
    program *program;
    ep_trace_thread threads[THREADS];
    ep_verify_input input;
} subject;

/* Returns: new, for subject_free(). */
static subject *
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
        .columns = &p->columns,
        .map = &p->map,
        .threads = to->threads,
        .thread_count = THREADS,
        .kinds = ALL_KINDS,
        .duration_ns = s->now + 10 * EP_PAIR_SKEW_NS,
    };
    return to;
}

static void
subject_free(subject *of)
{
    for (int i = 0; i < THREADS; i++) free(of->threads[i].open.calls);
    program_free(of->program);
    free(of);
}

static void
open_call(subject *to, int32_t thread, open_one call, bool before)
{
    ep_open_stack *open = &to->threads[thread].open;
    open->calls = must(realloc(open->calls, (open->depth + 1) * sizeof *open->calls));
    open->calls[open->depth++] = (ep_open_call){call.site, call.kind, before, 0};
}

static void
assert_right(const subject *of, const char *what, uint64_t seed)
{
    ep_verification found;
    ck_assert_int_eq(ep_verify(&of->input, 3, NULL, &found), EP_OK);
    if (found.count > 0) {
        ck_abort_msg("%s, seed %llu: row %zu is %s", what, (unsigned long long)seed,
                     found.findings[0].row, ep_findings[found.findings[0].sort].word);
    }
    ep_verification_clear(&found);
}

static void
assert_wrong(const subject *of, ep_finding_sort sort, size_t row, const char *what, uint64_t seed)
{
    ep_verification found;
    ck_assert_int_eq(ep_verify(&of->input, 3, NULL, &found), EP_OK);
    if (found.count == 0) {
        ck_abort_msg("%s, seed %llu: nothing was found", what, (unsigned long long)seed);
    }
    const ep_finding *first = &found.findings[0];
    if (first->sort != sort || first->row != row) {
        ck_abort_msg("%s, seed %llu: row %zu is %s, not row %zu %s", what, (unsigned long long)seed,
                     first->row, ep_findings[first->sort].word, row, ep_findings[sort].word);
    }
    ck_assert_uint_ge(found.counts[sort], 1);
    ep_verification_clear(&found);
}

/* ---- What is right --------------------------------------------------------------------------- */

START_TEST(what_could_have_happened_is_right)
{
    for (uint64_t seed = 0; seed < ROUNDS; seed++) {
        simulation *s = simulate(seed, 2000, seed % 2 ? 0 : 2 * EP_PAIR_SKEW_NS);
        subject *of = subject_new(s);
        assert_right(of, "whole", seed);
        ep_verification found;
        ck_assert_int_eq(ep_verify(&of->input, 3, NULL, &found), EP_OK);
        for (int sort = 0; sort < EP_FINDING_COUNT; sort++) ck_assert_uint_eq(found.excused[sort], 0);
        ep_verification_clear(&found);
        subject_free(of);
        simulation_free(s);
    }
}
END_TEST

START_TEST(many_addresses_make_no_difference)
{
    simulation *s = must(calloc(1, sizeof *s));
    for (uint64_t i = 0; i < 40000; i++) add(s, 0, EP_KIND_MALLOC_OBJ, 1, 0x1000 + 16 * i, 1);
    for (uint64_t i = 0; i < 40000; i++) add(s, 0, EP_KIND_FREE_OBJ, 1, 0x1000 + 16 * i, -1);
    for (uint64_t i = 0; i < 40000; i++) add(s, 0, EP_KIND_MALLOC_OBJ, 1, 0x1000 + 16 * i, 1);
    subject *of = subject_new(s);
    assert_right(of, "many", 0);
    subject_free(of);
    add(s, 0, EP_KIND_MALLOC_OBJ, 1, 0x1000 + 16 * 12347, 1);
    of = subject_new(s);
    assert_wrong(of, EP_FINDING_ADDRESS_LIVES, 120000, "many", 0);
    subject_free(of);
    simulation_free(s);
}
END_TEST

/* Lost by a ring: each thread's first events, and with them calls, frees and mallocs. */
START_TEST(what_a_ring_lost_is_excused)
{
    for (uint64_t seed = 0; seed < ROUNDS; seed++) {
        simulation *s = simulate(seed, 2000, seed % 2 ? 0 : EP_PAIR_SKEW_NS);
        size_t cut[THREADS];
        for (int i = 0; i < THREADS; i++) cut[i] = below(&s->random, 1900);
        open_one stack[THREADS][FUNCTIONS];
        size_t depth[THREADS] = {0};
        uint64_t lost[THREADS][EP_KIND_COUNT] = {{0}};
        simulation kept = {0};
        for (size_t row = 0; row < s->count; row++) {
            event *e = &s->events[row];
            if (row >= cut[e->thread]) {
                add(&kept, e->thread, e->kind, e->id, e->address, e->size);
                kept.events[kept.count - 1].time_ns = e->time_ns;
                continue;
            }
            lost[e->thread][e->kind]++;
            if (e->address != 0) {
                continue;
            }
            if (ep_kinds[e->kind].pairing == EP_PAIRING_OPENS) {
                stack[e->thread][depth[e->thread]++] = (open_one){e->id, e->kind};
            } else {
                depth[e->thread]--;
            }
        }
        kept.now = s->now;
        subject *of = subject_new(&kept);
        for (int thread = 0; thread < THREADS; thread++) {
            memcpy(of->threads[thread].lost, lost[thread], sizeof lost[thread]);
            for (size_t i = 0; i < depth[thread]; i++) open_call(of, thread, stack[thread][i], false);
        }
        assert_right(of, "ring", seed);
        subject_free(of);
        free(kept.events);
        simulation_free(s);
    }
}
END_TEST

/* A window that begins in the middle knows Python's open calls, none of C. */
START_TEST(what_is_older_than_the_window_is_excused)
{
    for (uint64_t seed = 0; seed < ROUNDS; seed++) {
        simulation *s = simulate(seed, 2000, 1);
        size_t cut = 500 + below(&s->random, 500);
        simulation kept = {0};
        open_one stack[THREADS][FUNCTIONS];
        size_t depth[THREADS] = {0};
        for (size_t row = 0; row < s->count; row++) {
            event *e = &s->events[row];
            if (row >= cut) {
                add(&kept, e->thread, e->kind, e->id, e->address, e->size);
                kept.events[kept.count - 1].time_ns = e->time_ns;
            } else if (e->address == 0 && ep_kinds[e->kind].pairing == EP_PAIRING_OPENS) {
                stack[e->thread][depth[e->thread]++] = (open_one){e->id, e->kind};
            } else if (e->address == 0) {
                depth[e->thread]--;
            }
        }
        kept.now = s->now;
        subject *of = subject_new(&kept);
        for (int thread = 0; thread < THREADS; thread++) {
            for (size_t i = 0; i < depth[thread]; i++) {
                if (stack[thread][i].kind != EP_KIND_C_CALL) {
                    open_call(of, thread, stack[thread][i], true);
                }
            }
        }
        assert_right(of, "older", seed);
        subject_free(of);
        free(kept.events);
        simulation_free(s);
    }
}
END_TEST

START_TEST(swaps_between_threads_are_excused)
{
    static const struct {
        uint8_t kinds[4];
        int8_t threads[4];
        bool right;
    } cases[] = {
        /* malloc, malloc: the free between them came late */
        {{EP_KIND_MALLOC_RAW, EP_KIND_MALLOC_RAW, EP_KIND_FREE_RAW, EP_KIND_FREE_RAW}, {0, 1, 0, 1}, true},
        {{EP_KIND_MALLOC_RAW, EP_KIND_MALLOC_RAW, EP_KIND_FREE_RAW, EP_KIND_FREE_RAW}, {0, 1, 1, 1}, false},
        /* free, free: the malloc between them came late */
        {{EP_KIND_MALLOC_RAW, EP_KIND_FREE_RAW, EP_KIND_FREE_RAW, EP_KIND_MALLOC_RAW}, {0, 0, 1, 0}, true},
        {{EP_KIND_MALLOC_RAW, EP_KIND_FREE_RAW, EP_KIND_FREE_RAW, EP_KIND_MALLOC_RAW}, {0, 0, 1, 1}, false},
        /* the first malloc came after its free */
        {{EP_KIND_FREE_RAW, EP_KIND_MALLOC_RAW, EP_KIND_MALLOC_RAW, EP_KIND_FREE_RAW}, {1, 0, 0, 0}, true},
        {{EP_KIND_FREE_RAW, EP_KIND_MALLOC_RAW, EP_KIND_MALLOC_RAW, EP_KIND_FREE_RAW}, {0, 0, 0, 0}, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        simulation s = {.random = i};
        for (int k = 0; k < 4; k++) add(&s, cases[i].threads[k], cases[i].kinds[k], 1, 64, 8);
        subject *of = subject_new(&s);
        ep_verification found;
        ck_assert_int_eq(ep_verify(&of->input, 3, NULL, &found), EP_OK);
        ck_assert_msg((found.count == 0) == cases[i].right, "case %zu", i);
        ep_verification_clear(&found);
        subject_free(of);
        free(s.events);
    }
}
END_TEST

START_TEST(what_was_not_asked_for_is_excused)
{
    simulation *s = must(calloc(1, sizeof *s));
    add(s, 0, EP_KIND_RETURN, NAME_OF(1), 0, 0);
    add(s, 0, EP_KIND_MALLOC_OBJ, 1, 64, 8);
    add(s, 0, EP_KIND_MALLOC_OBJ, 1, 64, 8);
    subject *of = subject_new(s);

    of->input.kinds = EP_KIND_BIT(EP_KIND_RETURN) | EP_KIND_BIT(EP_KIND_MALLOC_OBJ);

    assert_right(of, "kinds", 0);
    of->input.kinds = ALL_KINDS;
    assert_wrong(of, EP_FINDING_END_WITHOUT_CALL, 0, "kinds", 0);
    of->input.damaged = true;
    assert_right(of, "damaged", 0);
    subject_free(of);
    simulation_free(s);
}
END_TEST

/* ---- What is wrong: one place is damaged, in a way that has a name ---------------------------- */

/* Damages the stream at random. Returns: whether there was a place for it; *row: which row the
 * first finding is to name. */
typedef bool damage(simulation *s, size_t *row, ep_finding_sort *sort);

/* Where the call of an opening row ends; 0: nowhere. */
static size_t
end_of(const simulation *s, size_t row)
{
    int depth = 0;
    for (size_t at = row + 1; at < s->count; at++) {
        const event *e = &s->events[at];
        if (e->thread != s->events[row].thread || e->address != 0) {
            continue;
        }
        depth += ep_kinds[e->kind].pairing == EP_PAIRING_OPENS ? 1 : -1;
        if (depth < 0) {
            return at;
        }
    }
    return 0;
}

/* The call around the one that row opens, plus 1; 0: none. */
static size_t
parent_of(const simulation *s, size_t row)
{
    int depth = 0;
    for (size_t at = row; at-- > 0;) {
        const event *e = &s->events[at];
        if (e->thread != s->events[row].thread || e->address != 0) {
            continue;
        }
        depth += ep_kinds[e->kind].pairing == EP_PAIRING_OPENS ? -1 : 1;
        if (depth < 0) {
            return at + 1;
        }
    }
    return 0;
}

static bool
opens_call(const event *e)
{
    return e->address == 0 && ep_kinds[e->kind].pairing == EP_PAIRING_OPENS;
}

/* A random row from which on one is looked for; 0: none. */
static size_t
pick(simulation *s, bool (*fits)(const simulation *s, size_t row))
{
    for (size_t at = below(&s->random, s->count / 2); at < s->count; at++) {
        if (fits(s, at)) {
            return at;
        }
    }
    return 0;
}

static bool
whole_call(const simulation *s, size_t row)
{
    return opens_call(&s->events[row]) && end_of(s, row) != 0;
}

static bool
inner_call(const simulation *s, size_t row)
{
    size_t parent = whole_call(s, row) ? parent_of(s, row) : 0;
    return parent > 0 && end_of(s, parent - 1) != 0;
}

static bool
drop_call(simulation *s, size_t *row, ep_finding_sort *sort)
{
    size_t at = pick(s, whole_call);
    *sort = parent_of(s, at) ? EP_FINDING_END_OF_ANOTHER : EP_FINDING_END_WITHOUT_CALL;
    *row = end_of(s, at) - 1;
    remove_event(s, at);
    return at != 0;
}

static bool
drop_end(simulation *s, size_t *row, ep_finding_sort *sort)
{
    size_t at = pick(s, inner_call);
    if (at == 0) {
        return false;
    }
    *row = end_of(s, parent_of(s, at) - 1) - 1;
    *sort = EP_FINDING_END_MISSING;
    remove_event(s, end_of(s, at));
    return true;
}

static bool
repeat_end(simulation *s, size_t *row, ep_finding_sort *sort)
{
    size_t at = pick(s, whole_call), end = end_of(s, at);
    *sort = parent_of(s, at) ? EP_FINDING_END_OF_ANOTHER : EP_FINDING_END_WITHOUT_CALL;
    *row = end + 1;
    repeat_event(s, end);
    return at != 0;
}

static bool
repeat_call(simulation *s, size_t *row, ep_finding_sort *sort)
{
    size_t at = pick(s, inner_call);
    if (at == 0) {
        return false;
    }
    *row = end_of(s, parent_of(s, at) - 1) + 1;
    *sort = EP_FINDING_END_MISSING;
    repeat_event(s, at);
    return true;
}

static bool
leaf_call(const simulation *s, size_t row)
{
    return whole_call(s, row) && end_of(s, row) == row + 1;
}

static bool
swap_call_and_end(simulation *s, size_t *row, ep_finding_sort *sort)
{
    size_t at = pick(s, leaf_call);
    event call = s->events[at], end = s->events[at + 1];
    int64_t first_ns = call.time_ns;
    if (at == 0) {
        return false;
    }
    *sort = parent_of(s, at) ? EP_FINDING_END_OF_ANOTHER : EP_FINDING_END_WITHOUT_CALL;
    *row = at;
    call.time_ns = end.time_ns;
    end.time_ns = first_ns;
    s->events[at] = end;
    s->events[at + 1] = call;
    return true;
}

static bool
end_another_function(simulation *s, size_t *row, ep_finding_sort *sort)
{
    size_t at = pick(s, whole_call);
    if (at == 0) {
        return false;
    }
    *row = end_of(s, at);
    event *end = &s->events[*row];
    end->id = NAME_OF((end->id - 100 + 1) % FUNCTIONS);
    *sort = EP_FINDING_END_OF_ANOTHER;
    for (size_t around = parent_of(s, at); around > 0; around = parent_of(s, around - 1)) {
        const event *outer = &s->events[around - 1];
        bool same_sort = (outer->kind == EP_KIND_C_CALL) == (s->events[at].kind == EP_KIND_C_CALL);
        if (same_sort && NAME_OF(outer->id % FUNCTIONS) == end->id) {
            *sort = EP_FINDING_END_MISSING;    /* it is a call around it that ends */
        }
    }
    return true;
}

static bool
change_name(simulation *s, size_t *row, ep_finding_sort *sort)
{
    size_t at = pick(s, whole_call);
    *row = end_of(s, at);
    s->events[*row].id = NAMES + (uint32_t)below(&s->random, 99);
    *sort = EP_FINDING_UNKNOWN_FUNCTION;
    return at != 0;
}

static bool
change_site(simulation *s, size_t *row, ep_finding_sort *sort)
{
    *row = below(&s->random, s->count);
    event *e = &s->events[*row];
    e->id = SITES + (uint32_t)below(&s->random, 99);
    *sort = EP_FINDING_UNKNOWN_SITE;
    return e->address != 0 || opens_call(e);
}

static bool
change_thread(simulation *s, size_t *row, ep_finding_sort *sort)
{
    *row = below(&s->random, s->count);
    s->events[*row].thread = one_in(&s->random, 2) ? THREADS : -1;
    *sort = EP_FINDING_UNKNOWN_THREAD;
    return true;
}

static bool
change_kind(simulation *s, size_t *row, ep_finding_sort *sort)
{
    static const uint8_t kinds[] = {0, EP_KIND_THREAD, EP_KIND_ESCAPE, EP_KIND_SYNC};
    *row = below(&s->random, s->count);
    s->events[*row].kind = kinds[below(&s->random, 4)];
    *sort = EP_FINDING_UNKNOWN_KIND;
    return true;
}

static bool
change_family(simulation *s, size_t *row, ep_finding_sort *sort)
{
    *row = below(&s->random, s->count);
    event *e = &s->events[*row];
    e->kind = e->address != 0 ? EP_KIND_CALL : EP_KIND_MALLOC_OBJ;
    *sort = EP_FINDING_BLOCK_ROWS;
    return true;
}

static bool
turn_time_back(simulation *s, size_t *row, ep_finding_sort *sort)
{
    *row = 1 + below(&s->random, s->count - 1);
    s->events[*row].time_ns = s->events[*row - 1].time_ns - 1;
    *sort = EP_FINDING_TIME_BACK;
    return true;
}

static bool
go_past_the_end(simulation *s, size_t *row, ep_finding_sort *sort)
{
    *row = s->count - 1;
    s->events[*row].time_ns = s->now + 11 * EP_PAIR_SKEW_NS;
    *sort = EP_FINDING_TIME_OUTSIDE;
    return true;
}

/* The next event at the address of the row, of any sort; 0: none. */
static size_t
next_there(const simulation *s, size_t row)
{
    for (size_t at = row + 1; at < s->count; at++) {
        if (s->events[at].address == s->events[row].address) {
            return at;
        }
    }
    return 0;
}

static bool
is_free(const simulation *s, size_t row)
{
    return ep_kind_is(s->events[row].kind, EP_KIND_FREE);
}

static bool
is_reused_free(const simulation *s, size_t row)
{
    size_t next = is_free(s, row) ? next_there(s, row) : 0;
    return next != 0 && (ep_kind_is(s->events[next].kind, EP_KIND_MALLOC) ||
                         ep_kind_is(s->events[next].kind, EP_KIND_CALLOC));
}

static bool
is_malloc(const simulation *s, size_t row)
{
    return ep_kind_is(s->events[row].kind, EP_KIND_MALLOC);
}

static bool
free_twice(simulation *s, size_t *row, ep_finding_sort *sort)
{
    size_t at = pick(s, is_free);
    repeat_event(s, at);
    *row = at + 1;
    *sort = EP_FINDING_FREED_TWICE;
    return at != 0;
}

static bool
drop_free(simulation *s, size_t *row, ep_finding_sort *sort)
{
    size_t at = pick(s, is_reused_free);
    if (at == 0) {
        return false;
    }
    *row = next_there(s, at) - 1;
    *sort = EP_FINDING_ADDRESS_LIVES;
    remove_event(s, at);
    return true;
}

static bool
repeat_malloc(simulation *s, size_t *row, ep_finding_sort *sort)
{
    size_t at = pick(s, is_malloc);
    repeat_event(s, at);
    *row = at + 1;
    *sort = EP_FINDING_ADDRESS_LIVES;
    return at != 0;
}

/* The thread's next allocator event; 0: none. */
static size_t
next_of_thread(const simulation *s, size_t row)
{
    for (size_t at = row + 1; at < s->count; at++) {
        if (s->events[at].thread == s->events[row].thread && s->events[at].address != 0) {
            return at;
        }
    }
    return 0;
}

static bool
is_followed_realloc(const simulation *s, size_t row)
{
    size_t next = next_of_thread(s, row), there = next_there(s, row);
    return ep_kind_is(s->events[row].kind, EP_KIND_REALLOC) && next != 0 &&
           (there == 0 || next <= there);
}

static bool
drop_realloc(simulation *s, size_t *row, ep_finding_sort *sort)
{
    size_t at = pick(s, is_followed_realloc);
    if (at == 0) {
        return false;
    }
    *row = next_of_thread(s, at) - 1;
    *sort = EP_FINDING_REALLOC_ALONE;
    remove_event(s, at);
    return true;
}

static bool
drop_realloc_free(simulation *s, size_t *row, ep_finding_sort *sort)
{
    size_t at = pick(s, is_followed_realloc);
    if (at < 2) {
        return false;
    }
    bool seen = false;
    for (size_t before = 0; before < at - 1; before++) {
        seen = seen || (s->events[before].thread == s->events[at].thread && s->events[before].address);
    }
    *row = at - 1;
    *sort = EP_FINDING_REALLOC_ALONE;
    remove_event(s, at - 1);
    return seen;
}

static bool
change_size(simulation *s, size_t *row, ep_finding_sort *sort)
{
    size_t at = pick(s, is_malloc);
    s->events[at].size = one_in(&s->random, 2) ? -2 : (INT64_C(1) << 48) + 1;
    *row = at;
    *sort = EP_FINDING_BLOCK_SIZE;
    return at != 0;
}

static const struct {
    const char *name;
    damage *damage;
} damages[] = {
    {"a call is dropped", drop_call},
    {"an end is dropped", drop_end},
    {"an end comes twice", repeat_end},
    {"a call comes twice", repeat_call},
    {"a call and its end are swapped", swap_call_and_end},
    {"an end is of another function", end_another_function},
    {"a name's id is changed", change_name},
    {"a site's id is changed", change_site},
    {"a thread is changed", change_thread},
    {"a kind is changed", change_kind},
    {"a kind is of another family", change_family},
    {"time goes back", turn_time_back},
    {"time goes past the end", go_past_the_end},
    {"a block is freed twice", free_twice},
    {"a free is dropped", drop_free},
    {"a malloc comes twice", repeat_malloc},
    {"a realloc is dropped", drop_realloc},
    {"a realloc_free is dropped", drop_realloc_free},
    {"a size is changed", change_size},
};

START_TEST(damage_is_found_where_it_is)
{
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        int done = 0;
        for (uint64_t seed = 0; seed < ROUNDS; seed++) {
            simulation *s = simulate(seed * 100 + i, 800, 2 * EP_PAIR_SKEW_NS);
            size_t row;
            ep_finding_sort sort;
            if (damages[i].damage(s, &row, &sort)) {
                subject *of = subject_new(s);
                assert_wrong(of, sort, row, damages[i].name, seed);
                subject_free(of);
                done += 1;
            }
            simulation_free(s);
        }
        ck_assert_msg(done > ROUNDS / 4, "%s: only %d times", damages[i].name, done);
    }
}
END_TEST

START_TEST(counts_that_do_not_add_up_are_found)
{
    simulation *s = simulate(7, 300, 1);
    for (int way = 0; way < 5; way++) {
        subject *of = subject_new(s);
        ep_trace_thread *thread = &of->threads[way % THREADS];
        ep_finding_sort sort = EP_FINDING_COUNTS;
        switch (way) {
            case 0: thread->recorded[EP_KIND_CALL] += 1; break;
            case 1:
                thread->recorded[EP_KIND_CALL] += 1;
                thread->recorded[EP_KIND_RETURN] -= 1;
                break;
            case 2:
                thread->lost[EP_KIND_CALL] = 1;
                of->input.kinds &= ~EP_KIND_BIT(EP_KIND_CALL);
                sort = EP_FINDING_UNKNOWN_KIND;    /* of the rows that there are */
                break;
            case 3:
                thread->first_ns += 1;
                sort = EP_FINDING_THREAD_TIMES;
                break;
            case 4:
                thread->last_ns -= 1;
                sort = EP_FINDING_THREAD_TIMES;
                break;
        }
        ep_verification found;
        ck_assert_int_eq(ep_verify(&of->input, 3, NULL, &found), EP_OK);
        ck_assert_uint_ge(found.count, 1);
        ck_assert_int_eq(found.findings[0].sort, sort);
        if (way != 2) {
            ck_assert(found.findings[0].row == EP_FINDING_NO_ROW);
            ck_assert_int_eq(found.findings[0].thread, way % THREADS);
        } else {
            ck_assert_uint_eq(found.counts[EP_FINDING_COUNTS], 1);
        }
        ep_verification_clear(&found);
        subject_free(of);
    }
    simulation_free(s);
}
END_TEST

START_TEST(findings_are_bounded_and_in_order_and_all_are_counted)
{
    simulation *s = must(calloc(1, sizeof *s));
    s->step_ns = 2 * EP_PAIR_SKEW_NS;
    /* Settled by the last event of all, and yet the first. */
    add(s, 0, EP_KIND_MALLOC_OBJ, 1, 64, 8);
    add(s, 0, EP_KIND_MALLOC_OBJ, 1, 64, 8);
    for (int i = 0; i < 50; i++) add(s, 0, EP_KIND_RETURN, NAME_OF(1), 0, 0);
    add(s, 0, EP_KIND_FREE_OBJ, 1, 64, -1);
    subject *of = subject_new(s);

    for (size_t limit = 1; limit < 60; limit += 7) {
        ep_verification found;
        ck_assert_int_eq(ep_verify(&of->input, limit, NULL, &found), EP_OK);

        ck_assert_uint_eq(found.count, limit < 51 ? limit : 51);
        ck_assert_int_eq(found.findings[0].sort, EP_FINDING_ADDRESS_LIVES);
        ck_assert_uint_eq(found.findings[0].other_row, 0);
        for (size_t i = 1; i < found.count; i++) ck_assert_uint_eq(found.findings[i].row, i + 1);
        ck_assert_uint_eq(found.counts[EP_FINDING_END_WITHOUT_CALL], 50);
        ck_assert_uint_eq(found.counts[EP_FINDING_ADDRESS_LIVES], 1);
        ep_verification_clear(&found);
    }
    subject_free(of);
    simulation_free(s);
}
END_TEST

/* An end that fits nothing must not search a deep stack again and again. */
START_TEST(deep_stacks_take_linear_time)
{
    simulation *s = must(calloc(1, sizeof *s));
    for (int i = 0; i < 200000; i++) add(s, 0, EP_KIND_CALL, 1, 0, 0);
    for (int i = 0; i < 200000; i++) add(s, 0, EP_KIND_RETURN, NAME_OF(2), 0, 0);
    subject *of = subject_new(s);
    ep_verification found;

    ck_assert_int_eq(ep_verify(&of->input, 1, NULL, &found), EP_OK);

    ck_assert_uint_eq(found.counts[EP_FINDING_END_OF_ANOTHER], 200000);
    ep_verification_clear(&found);
    subject_free(of);
    simulation_free(s);
}
END_TEST

/* ---- Records --------------------------------------------------------------------------------- */

/* A chunk whose records are of the ticks given. */
static ep_record_check
check_of(const uint64_t *ticks, size_t count, uint64_t rows)
{
    static _Alignas(64) struct {
        ep_chunk_header header;
        uint64_t words[64];
    } memory;
    memset(&memory, 0, sizeof memory);
    memory.header = (ep_chunk_header){
        .magic = EP_CHUNK_MAGIC,
        .thread_id = 1,
        .used_words = count,
    };
    atomic_store(&memory.header.state, EP_CHUNK_SEALED);
    for (size_t i = 0; i < count; i++) memory.words[i] = EP_WORD0(ticks[i], EP_KIND_CALL, 1);
    ep_chunk chunk = {.header = &memory.header}, *chunks[] = {&chunk};
    ep_capture capture = {
        .kinds = ALL_KINDS,
        .start = {.ticks = 0},
        .stop = {.ticks = UINT64_C(1) << 31},
        .full_ticks = UINT64_MAX,
        .chunks = chunks,
        .chunk_count = 1,
        .thread_count = 2,
    };
    ck_assert_int_eq(ep_clock_map_add(&capture.clock, (ep_anchor){0, 0}), EP_OK);
    ck_assert_int_eq(ep_clock_map_add(&capture.clock, (ep_anchor){1000000000, 1000000000}), EP_OK);
    ep_clock_map_finish(&capture.clock);
    ep_trace_thread thread = {.recorded[EP_KIND_CALL] = rows};
    ep_decoded decoded = {.threads = &thread, .thread_count = 1};
    ep_record_check check;
    ep_check_records(&capture, 0, &decoded, &check);
    ep_clock_map_free(&capture.clock);
    return check;
}

START_TEST(records_are_counted_and_their_clock_is_looked_at)
{
    static const uint64_t fine[] = {10, 20, 20, 40}, back[] = {10, 900000, 20, 30};
    ep_verification found = {.limit = 3, .findings = must(calloc(3, sizeof *found.findings))};

    ep_record_check check = check_of(fine, 4, 4);
    ep_verify_records(&check, NULL, 0, &found);
    ck_assert_uint_eq(found.count, 0);
    ck_assert_uint_eq(check.records, 4);

    check = check_of(fine, 4, 5);
    ep_verify_records(&check, NULL, 0, &found);
    ck_assert_uint_eq(found.counts[EP_FINDING_COUNTS], 1);
    ck_assert_int_eq(found.findings[0].expected, 4);
    ck_assert_int_eq(found.findings[0].found, 5);

    check = check_of(back, 4, 4);
    ck_assert_int_eq(check.back_ns, 899980);
    ck_assert_uint_eq(check.back_thread_id, 1);
    ep_verify_records(&check, NULL, 0, &found);
    ck_assert_uint_eq(found.counts[EP_FINDING_CLOCK_BACK], 1);
    ep_verification_clear(&found);
}
END_TEST

#ifdef EP_FAULT_POINTS
START_TEST(without_memory_nothing_is_left)
{
    simulation *s = simulate(1, 400, 1);
    subject *of = subject_new(s);
    int failed = 0;
    for (long n = 0;; n++) {
        ep_verification found;
        atomic_store(&ep_fault_countdown, n);
        ep_status status = ep_verify(&of->input, 2, NULL, &found);
        atomic_store(&ep_fault_countdown, -1);
        if (status == EP_OK) {
            ep_verification_clear(&found);
            break;
        }
        ck_assert_int_eq(status, EP_NOMEM);
        failed += 1;
    }
    ck_assert_int_gt(failed, 5);
    subject_free(of);
    simulation_free(s);
}
END_TEST
#endif

EP_TEST_MAIN("verify",
#ifdef EP_FAULT_POINTS
             without_memory_nothing_is_left,
#endif
             what_could_have_happened_is_right, many_addresses_make_no_difference,
             what_a_ring_lost_is_excused, what_is_older_than_the_window_is_excused,
             swaps_between_threads_are_excused, what_was_not_asked_for_is_excused,
             damage_is_found_where_it_is, counts_that_do_not_add_up_are_found,
             findings_are_bounded_and_in_order_and_all_are_counted, deep_stacks_take_linear_time,
             records_are_counted_and_their_clock_is_looked_at)
