/* clock.h: ticks, anchors, and the way to nanoseconds. */
#include "ep_model.h"

#include <math.h>
#include <unistd.h>

#define MINUTE_NS INT64_C(60000000000)

static ep_clock_map
map_of(const ep_anchor *anchors, size_t count)
{
    ep_clock_map map = {0};
    for (size_t i = 0; i < count; i++) {
        ck_assert_int_eq(ep_clock_map_add(&map, anchors[i]), EP_OK);
    }
    ep_clock_map_finish(&map);
    return map;
}

static int64_t
ns_of(const ep_clock_map *map, uint64_t ticks)
{
    ep_clock_stretch stretch = ep_clock_map_stretch(map, ticks, 0);
    if (ticks < stretch.first_ticks ||
        (ticks >= stretch.last_ticks && stretch.last_ticks != UINT64_MAX)) {
        ck_abort_msg("the stretch does not hold tick %llu", (unsigned long long)ticks);
    }
    return ep_clock_stretch_ns(&stretch, ticks);
}

/* ---- Reading --------------------------------------------------------------------------------- */

START_TEST(injected_clock_is_what_the_test_says)
{
    ep_clock_injected = ep_model_tick;
    ck_assert_int_eq(ep_clock_choose(EP_CLOCK_INJECTED), EP_OK);
    atomic_store(&ep_model_now, UINT64_C(0x123456789));

    ck_assert_uint_eq(ep_clock_ticks(), UINT64_C(0x123456789));
    ck_assert_uint_eq(ep_clock_ticks(), UINT64_C(0x12345678A));
    ep_anchor anchor = ep_clock_anchor();
    ck_assert_uint_eq(anchor.ticks, UINT64_C(0x12345678B));
    ck_assert_int_eq(anchor.monotonic_ns, INT64_C(0x12345678B));
}
END_TEST

START_TEST(monotonic_clock_counts_its_nanoseconds)
{
    ck_assert_int_eq(ep_clock_choose(EP_CLOCK_MONOTONIC), EP_OK);

    int64_t before = ep_os_monotonic_ns();
    uint64_t ticks = ep_clock_ticks();
    int64_t after = ep_os_monotonic_ns();

    ck_assert_int_le(before, (int64_t)ticks);
    ck_assert_int_le((int64_t)ticks, after);
}
END_TEST

START_TEST(counter_is_refused_where_it_is_not_usable)
{
    ck_assert_int_eq(ep_clock_choose(EP_CLOCK_MONOTONIC), EP_OK);

    ep_status status = ep_clock_choose(EP_CLOCK_COUNTER);

    bool usable = ep_clock_counter_usable();
    ck_assert_int_eq(status, usable ? EP_OK : EP_UNSUPPORTED);
    ck_assert_int_eq(ep_clock_current, usable ? EP_CLOCK_COUNTER : EP_CLOCK_MONOTONIC);
}
END_TEST

START_TEST(step_is_at_least_one_tick)
{
    ck_assert_int_eq(
        ep_clock_choose(ep_clock_counter_usable() ? EP_CLOCK_COUNTER : EP_CLOCK_MONOTONIC), EP_OK);

    uint64_t step = ep_clock_step_ticks();

    ck_assert_uint_ge(step, 1);
    ck_assert_uint_lt(step, 1000000);
}
END_TEST

START_TEST(step_of_a_clock_that_stands_still_is_one)
{
    ep_clock_injected = ep_os_process_id;    /* a constant */
    ck_assert_int_eq(ep_clock_choose(EP_CLOCK_INJECTED), EP_OK);

    ck_assert_uint_eq(ep_clock_step_ticks(), 1);
}
END_TEST

/* ---- Conversion ------------------------------------------------------------------------------ */

START_TEST(anchors_convert_to_themselves)
{
    const ep_anchor anchors[] = {
        {5000, MINUTE_NS}, {7777777, 3 * MINUTE_NS + 17}, {12345678901, 17 * MINUTE_NS + 4711}};
    ep_clock_map map = map_of(anchors, 3);

    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(ns_of(&map, anchors[i].ticks), anchors[i].monotonic_ns);
    }

    ck_assert_uint_eq(map.count, 3);
    ep_clock_map_free(&map);
}
END_TEST

START_TEST(between_anchors_time_is_linear)
{
    const ep_anchor anchors[] = {{1000, MINUTE_NS}, {3000, 2 * MINUTE_NS}};
    ep_clock_map map = map_of(anchors, 2);

    ck_assert_int_eq(ns_of(&map, 1500), MINUTE_NS + MINUTE_NS / 4);
    ck_assert_int_eq(ns_of(&map, 2000), MINUTE_NS + MINUTE_NS / 2);

    ep_clock_map_free(&map);
}
END_TEST

START_TEST(outermost_stretches_reach_to_the_ends_of_time)
{
    const ep_anchor anchors[] = {{1000, MINUTE_NS}, {3000, 2 * MINUTE_NS}};
    ep_clock_map map = map_of(anchors, 2);

    ck_assert_int_eq(ns_of(&map, 0), MINUTE_NS / 2);
    ck_assert_int_eq(ns_of(&map, 5000), 3 * MINUTE_NS);
    ck_assert_uint_eq(ep_clock_map_stretch(&map, 1000, 0).first_ticks, 0);
    ck_assert_uint_eq(ep_clock_map_stretch(&map, 1000, 0).last_ticks, UINT64_MAX);

    ep_clock_map_free(&map);
}
END_TEST

START_TEST(order_of_adding_does_not_matter)
{
    const ep_anchor anchors[] = {
        {90000, 9 * MINUTE_NS}, {10000, MINUTE_NS}, {50000, 5 * MINUTE_NS}, {30000, 3 * MINUTE_NS}};
    ep_clock_map map = map_of(anchors, 4);

    ck_assert_uint_eq(map.count, 4);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(ns_of(&map, anchors[i].ticks), anchors[i].monotonic_ns);
    }

    ep_clock_map_free(&map);
}
END_TEST

START_TEST(anchors_too_near_to_each_other_are_dropped)
{
    /* 1 ms apart, each 400 ns off: a slope through two neighbours would be 0.04 % wrong. */
    ep_clock_map map = {0};
    for (int i = 0; i <= 1000; i++) {
        ep_anchor anchor = {(uint64_t)i * 2600000, (int64_t)i * 1000000 + (i % 2 ? 400 : 0)};
        ck_assert_int_eq(ep_clock_map_add(&map, anchor), EP_OK);
    }

    ep_clock_map_finish(&map);

    ck_assert_uint_ge(map.count, 2);
    ck_assert_uint_le(map.count, 21);
    for (size_t i = 1; i < map.count; i++) {
        ck_assert_int_ge(map.anchors[i].monotonic_ns - map.anchors[i - 1].monotonic_ns, 50000000);
    }
    ep_clock_map_free(&map);
}
END_TEST

START_TEST(an_empty_window_converts)
{
    const ep_anchor one = {12347, MINUTE_NS};

    for (size_t count = 1; count <= 3; count++) {
        const ep_anchor anchors[] = {one, one, one};
        ep_clock_map map = map_of(anchors, count);

        ck_assert_uint_eq(map.count, 2);
        ck_assert_int_eq(ns_of(&map, one.ticks), one.monotonic_ns);
        ck_assert(isfinite(ep_clock_map_frequency_hz(&map)));

        ep_clock_map_free(&map);
    }
}
END_TEST

START_TEST(a_clock_that_stood_still_or_went_back_converts)
{
    const ep_anchor pairs[][2] = {
        {{1000, MINUTE_NS}, {1000, 2 * MINUTE_NS}},       /* ticks stood */
        {{1000, MINUTE_NS}, {9000, MINUTE_NS}},           /* time stood */
        {{1000, 2 * MINUTE_NS}, {9000, MINUTE_NS}},       /* time went back */
    };

    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        ep_clock_map map = map_of(pairs[i], 2);

        ep_clock_stretch stretch = ep_clock_map_stretch(&map, 5000, 0);
        ck_assert(isfinite(stretch.scale) && stretch.scale > 0);

        ep_clock_map_free(&map);
    }
}
END_TEST

/* Anchors of a counter whose frequency drifts and that is read with an error of up to 200 ns. */
static ep_clock_map
random_map(uint64_t *random)
{
    ep_clock_map map = {0};
    ep_anchor at = {ep_model_random(random) >> 20, (int64_t)(ep_model_random(random) >> 16)};
    size_t count = 1 + ep_model_below(random, 40);
    for (size_t i = 0; i < count; i++) {
        ep_anchor read = at;
        read.monotonic_ns += (int64_t)ep_model_below(random, 200);
        ck_assert_int_eq(ep_clock_map_add(&map, read), EP_OK);
        uint64_t ns = ep_model_below(random, 2) ? ep_model_below(random, 3 * (uint64_t)MINUTE_NS)
                                                : ep_model_below(random, 60000000);
        at.ticks += (uint64_t)((double)ns * 2.6 * (1 + (double)ep_model_below(random, 100) * 1e-7));
        at.monotonic_ns += (int64_t)ns;
    }
    ep_clock_map_finish(&map);
    return map;
}

START_TEST(stretches_follow_each_other_without_a_gap)
{
    uint64_t random = 12347;
    for (int round = 0; round < 200; round++) {
        ep_clock_map map = random_map(&random);

        ep_clock_stretch stretch = ep_clock_map_stretch(&map, 0, 0);
        for (size_t i = 1; stretch.last_ticks != UINT64_MAX; i++) {
            ep_clock_stretch next = ep_clock_map_stretch(&map, stretch.last_ticks, 0);
            ck_assert_uint_eq(next.first_ticks, stretch.last_ticks);
            int64_t gap = ep_clock_stretch_ns(&next, next.first_ticks) -
                          ep_clock_stretch_ns(&stretch, next.first_ticks);
            ck_assert_int_ge(gap, -1);
            ck_assert_int_le(gap, 1);
            ck_assert_uint_lt(i, map.count);
            stretch = next;
        }

        ep_clock_map_free(&map);
    }
}
END_TEST

START_TEST(conversion_never_goes_backwards_within_a_stretch)
{
    uint64_t random = 4711;
    for (int round = 0; round < 200; round++) {
        ep_clock_map map = random_map(&random);
        uint64_t ticks = map.anchors[0].ticks;
        int64_t last_ns = ns_of(&map, ticks);

        for (int i = 0; i < 500; i++) {
            int64_t ns = ns_of(&map, ticks);
            if (ns < last_ns - 1) {    /* 1: a change of stretch rounds anew */
                ck_abort_msg("tick %llu is earlier than the one before", (unsigned long long)ticks);
            }
            last_ns = ns;
            ticks += ep_model_below(&random, i % 50 ? 100 : 1000000000000);
        }

        ep_clock_map_free(&map);
    }
}
END_TEST

START_TEST(origin_is_taken_off)
{
    const ep_anchor anchors[] = {{1000, MINUTE_NS}, {3000, 2 * MINUTE_NS}};
    ep_clock_map map = map_of(anchors, 2);

    ep_clock_stretch stretch = ep_clock_map_stretch(&map, 2000, MINUTE_NS);

    ck_assert_int_eq(ep_clock_stretch_ns(&stretch, 2000), MINUTE_NS / 2);
    ep_clock_map_free(&map);
}
END_TEST

START_TEST(frequency_is_that_of_the_ends)
{
    const ep_anchor anchors[] = {{1000, MINUTE_NS}, {2600000000 + 1000, MINUTE_NS + 1000000000}};
    ep_clock_map map = map_of(anchors, 2);

    ck_assert_double_eq_tol(ep_clock_map_frequency_hz(&map), 2.6e9, 1);

    ep_clock_map_free(&map);
}
END_TEST

enum {
    SAMPLES = 301
};

/* How many samples a map gives within 2 us of the system's own clock. */
static int
samples_near(void)
{
    ep_clock_map map = {0};
    ep_anchor samples[SAMPLES];
    ck_assert_int_eq(ep_clock_map_add(&map, ep_clock_anchor()), EP_OK);
    for (int i = 0; i < SAMPLES; i++) {
        samples[i].ticks = ep_clock_ticks();
        samples[i].monotonic_ns = ep_os_monotonic_ns();
        usleep(400);
    }
    ck_assert_int_eq(ep_clock_map_add(&map, ep_clock_anchor()), EP_OK);
    ep_clock_map_finish(&map);

    int near = 0;
    for (int i = 0; i < SAMPLES; i++) {
        near += llabs(ns_of(&map, samples[i].ticks) - samples[i].monotonic_ns) < 2000;
    }
    ep_clock_map_free(&map);
    return near;
}

/* A preemption between its read and ours can only make us look worse: the middle one of many differences
 * counts, and the best of some attempts, because other programs may have both cores all the time. */
START_TEST(converted_times_agree_with_the_monotonic_clock)
{
    enum {
        ATTEMPTS = 20
    };
    ck_assert_int_eq(
        ep_clock_choose(ep_clock_counter_usable() ? EP_CLOCK_COUNTER : EP_CLOCK_MONOTONIC), EP_OK);

    int near = 0;
    for (int i = 0; i < ATTEMPTS && near <= SAMPLES / 2; i++) {
        near = samples_near();
    }

    ck_assert_int_gt(near, SAMPLES / 2);
}
END_TEST

#ifdef EP_FAULT_POINTS
START_TEST(map_without_memory_stays_as_it_was)
{
    const ep_anchor anchors[] = {{1000, MINUTE_NS}, {3000, 2 * MINUTE_NS}};
    ep_clock_map map = {0};
    size_t added = 0;
    for (int i = 0; i < 100; i++) {
        ep_anchor anchor = {1000 + 20 * (uint64_t)i, MINUTE_NS + i * (MINUTE_NS / 100)};
        atomic_store(&ep_fault_countdown, 0);
        if (ep_clock_map_add(&map, anchor) != EP_OK) {
            atomic_store(&ep_fault_countdown, -1);
            ck_assert_int_eq(ep_clock_map_add(&map, anchor), EP_OK);
        }
        added += 1;
    }
    atomic_store(&ep_fault_countdown, -1);

    ck_assert_int_eq(ep_clock_map_add(&map, anchors[1]), EP_OK);
    ep_clock_map_finish(&map);

    ck_assert_uint_eq(map.count, added + 1);
    ck_assert_int_eq(ns_of(&map, 2000), MINUTE_NS + MINUTE_NS / 2);
    ep_clock_map_free(&map);
}
END_TEST
#endif

EP_TEST_MAIN("clock",
             injected_clock_is_what_the_test_says,
             monotonic_clock_counts_its_nanoseconds,
             counter_is_refused_where_it_is_not_usable,
             step_is_at_least_one_tick,
             step_of_a_clock_that_stands_still_is_one,
             anchors_convert_to_themselves,
             between_anchors_time_is_linear,
             outermost_stretches_reach_to_the_ends_of_time,
             order_of_adding_does_not_matter,
             anchors_too_near_to_each_other_are_dropped,
             an_empty_window_converts,
             a_clock_that_stood_still_or_went_back_converts,
             stretches_follow_each_other_without_a_gap,
             conversion_never_goes_backwards_within_a_stretch,
             origin_is_taken_off,
             frequency_is_that_of_the_ends,
#ifdef EP_FAULT_POINTS
             map_without_memory_stays_as_it_was,
#endif
             converted_times_agree_with_the_monotonic_clock)
