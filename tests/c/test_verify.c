/* verify.h: what could have happened is right. */
#include "ep_verifying.h"

/* ---- Verifying ------------------------------------------------------------------------------- */

static void
open_call(subject *to, int32_t thread, open_one call, bool before)
{
    ep_open_stack *open = &to->threads[thread].open;
    open->calls = must(realloc(open->calls, (open->depth + 1) * sizeof *open->calls));
    open->calls[open->depth++] = (ep_open_call){call.site, call.kind, before, 0};
}

static void
assert_right(const subject *examined, const char *what, uint64_t seed)
{
    ep_verification found;
    ck_assert_int_eq(ep_verify(&examined->program->columns, &examined->input, 3, &found), EP_OK);
    if (found.count > 0) {
        ck_abort_msg("%s, seed %llu: row %zu is %s", what, (unsigned long long)seed,
                     found.faults[0].row, ep_trace_faults[found.faults[0].sort].word);
    }
    ep_verification_clear(&found);
}

/* ---- What is right --------------------------------------------------------------------------- */

START_TEST(what_could_have_happened_is_right)
{
    for (uint64_t seed = 0; seed < ROUNDS; seed++) {
        simulation *s = simulate(seed, 2000, seed % 2 ? 0 : 2 * EP_PAIR_SKEW_NS);
        subject *examined = subject_new(s);
        assert_right(examined, "whole", seed);
        ep_verification found;
        ck_assert_int_eq(ep_verify(&examined->program->columns, &examined->input, 3, &found), EP_OK);
        for (int sort = 0; sort < EP_TRACE_FAULT_COUNT; sort++) ck_assert_uint_eq(found.excused[sort], 0);
        ep_verification_clear(&found);
        subject_free(examined);
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
    subject *examined = subject_new(s);
    assert_right(examined, "many", 0);
    subject_free(examined);
    add(s, 0, EP_KIND_MALLOC_OBJ, 1, 0x1000 + 16 * 12347, 1);
    examined = subject_new(s);
    assert_wrong(examined, EP_TRACE_FAULT_ADDRESS_LIVES, 120000, "many", 0);
    subject_free(examined);
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
        subject *examined = subject_new(&kept);
        for (int thread = 0; thread < THREADS; thread++) {
            memcpy(examined->threads[thread].lost, lost[thread], sizeof lost[thread]);
            for (size_t i = 0; i < depth[thread]; i++) open_call(examined, thread, stack[thread][i], false);
        }
        examined->input.lost_until_ns = ep_lost_until_ns(examined->threads, THREADS);
        assert_right(examined, "ring", seed);
        subject_free(examined);
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
        subject *examined = subject_new(&kept);
        for (int thread = 0; thread < THREADS; thread++) {
            for (size_t i = 0; i < depth[thread]; i++) {
                if (stack[thread][i].kind != EP_KIND_C_CALL) {
                    open_call(examined, thread, stack[thread][i], true);
                }
            }
        }
        assert_right(examined, "older", seed);
        subject_free(examined);
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
        subject *examined = subject_new(&s);
        ep_verification found;
        ck_assert_int_eq(ep_verify(&examined->program->columns, &examined->input, 3, &found), EP_OK);
        ck_assert_msg((found.count == 0) == cases[i].right, "case %zu", i);
        ep_verification_clear(&found);
        subject_free(examined);
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
    subject *examined = subject_new(s);

    examined->input.kinds = EP_KIND_BIT(EP_KIND_RETURN) | EP_KIND_BIT(EP_KIND_MALLOC_OBJ);

    assert_right(examined, "kinds", 0);
    examined->input.kinds = ALL_KINDS;
    assert_wrong(examined, EP_TRACE_FAULT_END_WITHOUT_CALL, 0, "kinds", 0);
    examined->input.damaged = true;
    assert_right(examined, "damaged", 0);
    subject_free(examined);
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
    ck_assert_int_eq(ep_check_records(&capture, 0, &decoded, &check), EP_OK);
    ep_clock_map_free(&capture.clock);
    return check;
}

START_TEST(records_are_counted_and_their_clock_is_looked_at)
{
    static const uint64_t fine[] = {10, 20, 20, 40}, back[] = {10, 900000, 20, 30};
    ep_verification found = {.limit = 3, .faults = must(calloc(3, sizeof *found.faults))};

    ep_record_check check = check_of(fine, 4, 4);
    ep_verify_records(&check, NULL, 0, &found);
    ck_assert_uint_eq(found.count, 0);
    ck_assert_uint_eq(check.records, 4);

    check = check_of(fine, 4, 5);
    ep_verify_records(&check, NULL, 0, &found);
    ck_assert_uint_eq(found.counts[EP_TRACE_FAULT_COUNTS], 1);
    ck_assert_int_eq(found.faults[0].expected, 4);
    ck_assert_int_eq(found.faults[0].found, 5);

    check = check_of(back, 4, 4);
    ck_assert_int_eq(check.back_ns, 899980);
    ck_assert_uint_eq(check.back_thread_id, 1);
    ep_verify_records(&check, NULL, 0, &found);
    ck_assert_uint_eq(found.counts[EP_TRACE_FAULT_CLOCK_BACK], 1);
    ep_verification_clear(&found);
}
END_TEST

#ifdef EP_FAULT_POINTS

START_TEST(without_memory_nothing_is_left)
{
    simulation *s = simulate(1, 400, 1);
    subject *examined = subject_new(s);
    int failed = 0;
    for (long n = 0;; n++) {
        ep_verification found;
        atomic_store(&ep_fault_countdown, n);
        ep_status status = ep_verify(&examined->program->columns, &examined->input, 2, &found);
        atomic_store(&ep_fault_countdown, -1);
        if (status == EP_OK) {
            ep_verification_clear(&found);
            break;
        }
        ck_assert_int_eq(status, EP_NOMEM);
        failed += 1;
    }
    ck_assert_int_gt(failed, 5);
    subject_free(examined);
    simulation_free(s);
}
END_TEST

#endif

EP_TEST_MAIN("verify",
             what_could_have_happened_is_right,
             many_addresses_make_no_difference,
             what_a_ring_lost_is_excused,
             what_is_older_than_the_window_is_excused,
             swaps_between_threads_are_excused,
             what_was_not_asked_for_is_excused,
#ifdef EP_FAULT_POINTS
             without_memory_nothing_is_left,
#endif
             records_are_counted_and_their_clock_is_looked_at)
