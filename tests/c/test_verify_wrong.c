/* verify.h: what could not have happened is found, where it is. */
#include "ep_verifying.h"

/* ---- Streams --------------------------------------------------------------------------------- */

static void
remove_event(simulation *s, size_t row)
{
    memmove(&s->events[row], &s->events[row + 1], (s->count - row - 1) * sizeof *s->events);
    s->count--;
}

/* A second one right after it. */
static void
repeat_event(simulation *s, size_t row)
{
    s->events = must(realloc(s->events, ++s->capacity * sizeof *s->events));
    memmove(&s->events[row + 1], &s->events[row], (s->count - row) * sizeof *s->events);
    s->count++;
}

/* ---- What is wrong: one place is damaged, in a way that has a name --------------------------- */

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
drop_call(simulation *s, size_t *row, ep_trace_fault_sort *sort)
{
    size_t at = pick(s, whole_call);
    *sort = parent_of(s, at) ? EP_TRACE_FAULT_END_OF_ANOTHER : EP_TRACE_FAULT_END_WITHOUT_CALL;
    *row = end_of(s, at) - 1;
    remove_event(s, at);
    return at != 0;
}

static bool
drop_end(simulation *s, size_t *row, ep_trace_fault_sort *sort)
{
    size_t at = pick(s, inner_call);
    if (at == 0) {
        return false;
    }
    *row = end_of(s, parent_of(s, at) - 1) - 1;
    *sort = EP_TRACE_FAULT_END_MISSING;
    remove_event(s, end_of(s, at));
    return true;
}

static bool
repeat_end(simulation *s, size_t *row, ep_trace_fault_sort *sort)
{
    size_t at = pick(s, whole_call), end = end_of(s, at);
    *sort = parent_of(s, at) ? EP_TRACE_FAULT_END_OF_ANOTHER : EP_TRACE_FAULT_END_WITHOUT_CALL;
    *row = end + 1;
    repeat_event(s, end);
    return at != 0;
}

static bool
repeat_call(simulation *s, size_t *row, ep_trace_fault_sort *sort)
{
    size_t at = pick(s, inner_call);
    if (at == 0) {
        return false;
    }
    *row = end_of(s, parent_of(s, at) - 1) + 1;
    *sort = EP_TRACE_FAULT_END_MISSING;
    repeat_event(s, at);
    return true;
}

static bool
leaf_call(const simulation *s, size_t row)
{
    return whole_call(s, row) && end_of(s, row) == row + 1;
}

static bool
swap_call_and_end(simulation *s, size_t *row, ep_trace_fault_sort *sort)
{
    size_t at = pick(s, leaf_call);
    event call = s->events[at], end = s->events[at + 1];
    int64_t first_ns = call.time_ns;
    if (at == 0) {
        return false;
    }
    *sort = parent_of(s, at) ? EP_TRACE_FAULT_END_OF_ANOTHER : EP_TRACE_FAULT_END_WITHOUT_CALL;
    *row = at;
    call.time_ns = end.time_ns;
    end.time_ns = first_ns;
    s->events[at] = end;
    s->events[at + 1] = call;
    return true;
}

static bool
end_another_function(simulation *s, size_t *row, ep_trace_fault_sort *sort)
{
    size_t at = pick(s, whole_call);
    if (at == 0) {
        return false;
    }
    *row = end_of(s, at);
    event *end = &s->events[*row];
    end->id = NAME_OF((end->id - 100 + 1) % FUNCTIONS);
    *sort = EP_TRACE_FAULT_END_OF_ANOTHER;
    for (size_t around = parent_of(s, at); around > 0; around = parent_of(s, around - 1)) {
        const event *outer = &s->events[around - 1];
        bool same_sort = (outer->kind == EP_KIND_C_CALL) == (s->events[at].kind == EP_KIND_C_CALL);
        if (same_sort && NAME_OF(outer->id % FUNCTIONS) == end->id) {
            *sort = EP_TRACE_FAULT_END_MISSING;    /* it is a call around it that ends */
        }
    }
    return true;
}

static bool
change_name(simulation *s, size_t *row, ep_trace_fault_sort *sort)
{
    size_t at = pick(s, whole_call);
    *row = end_of(s, at);
    s->events[*row].id = NAMES + (uint32_t)below(&s->random, 99);
    *sort = EP_TRACE_FAULT_UNKNOWN_FUNCTION;
    return at != 0;
}

static bool
change_site(simulation *s, size_t *row, ep_trace_fault_sort *sort)
{
    *row = below(&s->random, s->count);
    event *e = &s->events[*row];
    e->id = SITES + (uint32_t)below(&s->random, 99);
    *sort = EP_TRACE_FAULT_UNKNOWN_SITE;
    return e->address != 0 || opens_call(e);
}

static bool
change_thread(simulation *s, size_t *row, ep_trace_fault_sort *sort)
{
    *row = below(&s->random, s->count);
    s->events[*row].thread = one_in(&s->random, 2) ? THREADS : -1;
    *sort = EP_TRACE_FAULT_UNKNOWN_THREAD;
    return true;
}

static bool
change_kind(simulation *s, size_t *row, ep_trace_fault_sort *sort)
{
    static const uint8_t kinds[] = {0, EP_KIND_THREAD, EP_KIND_ESCAPE, EP_KIND_SYNC};
    *row = below(&s->random, s->count);
    s->events[*row].kind = kinds[below(&s->random, 4)];
    *sort = EP_TRACE_FAULT_UNKNOWN_KIND;
    return true;
}

static bool
change_form(simulation *s, size_t *row, ep_trace_fault_sort *sort)
{
    *row = below(&s->random, s->count);
    event *e = &s->events[*row];
    e->kind = e->address != 0 ? EP_KIND_CALL : EP_KIND_MALLOC_OBJ;
    *sort = EP_TRACE_FAULT_BLOCK_ROWS;
    return true;
}

static bool
turn_time_back(simulation *s, size_t *row, ep_trace_fault_sort *sort)
{
    *row = 1 + below(&s->random, s->count - 1);
    s->events[*row].time_ns = s->events[*row - 1].time_ns - 1;
    *sort = EP_TRACE_FAULT_TIME_BACK;
    return true;
}

static bool
go_past_the_end(simulation *s, size_t *row, ep_trace_fault_sort *sort)
{
    *row = s->count - 1;
    s->events[*row].time_ns = s->now + 11 * EP_PAIR_SKEW_NS;
    *sort = EP_TRACE_FAULT_TIME_OUTSIDE;
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
free_twice(simulation *s, size_t *row, ep_trace_fault_sort *sort)
{
    size_t at = pick(s, is_free);
    repeat_event(s, at);
    *row = at + 1;
    *sort = EP_TRACE_FAULT_FREED_TWICE;
    return at != 0;
}

static bool
drop_free(simulation *s, size_t *row, ep_trace_fault_sort *sort)
{
    size_t at = pick(s, is_reused_free);
    if (at == 0) {
        return false;
    }
    *row = next_there(s, at) - 1;
    *sort = EP_TRACE_FAULT_ADDRESS_LIVES;
    remove_event(s, at);
    return true;
}

static bool
repeat_malloc(simulation *s, size_t *row, ep_trace_fault_sort *sort)
{
    size_t at = pick(s, is_malloc);
    repeat_event(s, at);
    *row = at + 1;
    *sort = EP_TRACE_FAULT_ADDRESS_LIVES;
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
drop_realloc(simulation *s, size_t *row, ep_trace_fault_sort *sort)
{
    size_t at = pick(s, is_followed_realloc);
    if (at == 0) {
        return false;
    }
    *row = next_of_thread(s, at) - 1;
    *sort = EP_TRACE_FAULT_REALLOC_ALONE;
    remove_event(s, at);
    return true;
}

static bool
drop_realloc_free(simulation *s, size_t *row, ep_trace_fault_sort *sort)
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
    *sort = EP_TRACE_FAULT_REALLOC_ALONE;
    remove_event(s, at - 1);
    return seen;
}

static bool
change_size(simulation *s, size_t *row, ep_trace_fault_sort *sort)
{
    size_t at = pick(s, is_malloc);
    s->events[at].size = one_in(&s->random, 2) ? -2 : (INT64_C(1) << 48) + 1;
    *row = at;
    *sort = EP_TRACE_FAULT_BLOCK_SIZE;
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
    {"a kind is of another form", change_form},
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
            ep_trace_fault_sort sort;
            if (damages[i].damage(s, &row, &sort)) {
                subject *examined = subject_new(s);
                assert_wrong(examined, sort, row, damages[i].name, seed);
                subject_free(examined);
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
        subject *examined = subject_new(s);
        ep_trace_thread *thread = &examined->threads[way % THREADS];
        ep_trace_fault_sort sort = EP_TRACE_FAULT_COUNTS;
        switch (way) {
            case 0: thread->recorded[EP_KIND_CALL] += 1; break;
            case 1:
                thread->recorded[EP_KIND_CALL] += 1;
                thread->recorded[EP_KIND_RETURN] -= 1;
                break;
            case 2:
                thread->lost[EP_KIND_CALL] = 1;
                examined->input.kinds &= ~EP_KIND_BIT(EP_KIND_CALL);
                sort = EP_TRACE_FAULT_UNKNOWN_KIND;    /* of the rows that there are */
                break;
            case 3:
                thread->first_ns += 1;
                sort = EP_TRACE_FAULT_THREAD_TIMES;
                break;
            case 4:
                thread->last_ns -= 1;
                sort = EP_TRACE_FAULT_THREAD_TIMES;
                break;
        }
        ep_verification found;
        ck_assert_int_eq(ep_verify(&examined->program->columns, &examined->input, 3, &found), EP_OK);
        ck_assert_uint_ge(found.count, 1);
        ck_assert_int_eq(found.faults[0].sort, sort);
        if (way != 2) {
            ck_assert(found.faults[0].row == EP_TRACE_FAULT_NO_ROW);
            ck_assert_int_eq(found.faults[0].thread, way % THREADS);
        } else {
            ck_assert_uint_eq(found.counts[EP_TRACE_FAULT_COUNTS], 1);
        }
        ep_verification_clear(&found);
        subject_free(examined);
    }
    simulation_free(s);
}
END_TEST

START_TEST(faults_are_bounded_and_in_order_and_all_are_counted)
{
    simulation *s = must(calloc(1, sizeof *s));
    s->step_ns = 2 * EP_PAIR_SKEW_NS;
    /* Settled by the last event of all, and yet the first. */
    add(s, 0, EP_KIND_MALLOC_OBJ, 1, 64, 8);
    add(s, 0, EP_KIND_MALLOC_OBJ, 1, 64, 8);
    for (int i = 0; i < 50; i++) add(s, 0, EP_KIND_RETURN, NAME_OF(1), 0, 0);
    add(s, 0, EP_KIND_FREE_OBJ, 1, 64, -1);
    subject *examined = subject_new(s);

    for (size_t limit = 1; limit < 60; limit += 7) {
        ep_verification found;
        ck_assert_int_eq(ep_verify(&examined->program->columns, &examined->input, limit, &found), EP_OK);

        ck_assert_uint_eq(found.count, limit < 51 ? limit : 51);
        ck_assert_int_eq(found.faults[0].sort, EP_TRACE_FAULT_ADDRESS_LIVES);
        ck_assert_uint_eq(found.faults[0].other_row, 0);
        for (size_t i = 1; i < found.count; i++) ck_assert_uint_eq(found.faults[i].row, i + 1);
        ck_assert_uint_eq(found.counts[EP_TRACE_FAULT_END_WITHOUT_CALL], 50);
        ck_assert_uint_eq(found.counts[EP_TRACE_FAULT_ADDRESS_LIVES], 1);
        ep_verification_clear(&found);
    }
    subject_free(examined);
    simulation_free(s);
}
END_TEST

/* An end that fits nothing must not search a deep stack again and again. */
START_TEST(deep_stacks_take_linear_time)
{
    simulation *s = must(calloc(1, sizeof *s));
    for (int i = 0; i < 200000; i++) add(s, 0, EP_KIND_CALL, 1, 0, 0);
    for (int i = 0; i < 200000; i++) add(s, 0, EP_KIND_RETURN, NAME_OF(2), 0, 0);
    subject *examined = subject_new(s);
    ep_verification found;

    ck_assert_int_eq(ep_verify(&examined->program->columns, &examined->input, 1, &found), EP_OK);

    ck_assert_uint_eq(found.counts[EP_TRACE_FAULT_END_OF_ANOTHER], 200000);
    ep_verification_clear(&found);
    subject_free(examined);
    simulation_free(s);
}
END_TEST

EP_TEST_MAIN("verify_wrong",
             damage_is_found_where_it_is,
             counts_that_do_not_add_up_are_found,
             faults_are_bounded_and_in_order_and_all_are_counted,
             deep_stacks_take_linear_time)
