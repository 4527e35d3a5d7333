/* summary.h: promises, one by one. */
#include "ep_summing.h"

/* ---- Tools ----------------------------------------------------------------------------------- */

/* A whole call of the function, `duration` ns long, on thread 0. */
static void
write_call(program *p, int32_t function, int64_t duration)
{
    program_call(p, 0, EP_KIND_CALL, (uint32_t)function);
    p->now += duration - 1;
    program_call(p, 0, EP_KIND_RETURN, NAME_OF(function));
}

/* ---- Functions: promises --------------------------------------------------------------------- */

START_TEST(quantiles_are_exact_by_nearest_rank)
{
    program *p = program_new();
    for (int64_t i = 0; i < 100; i++) write_call(p, 1, 1 + (i * 37) % 100);    /* 1 .. 100, mixed */

    study s = study_of(p);

    const ep_function_stats *stats = &s.summary.rows[1];
    ck_assert_int_eq(stats->whole, 100);
    ck_assert_int_eq(stats->min, 1);
    ck_assert_int_eq(stats->max, 100);
    ck_assert_int_eq(stats->p50, 50);
    ck_assert_int_eq(stats->p95, 95);
    ck_assert_int_eq(stats->p99, 99);
    ck_assert_double_eq(stats->mean, 50.5);
    study_free(&s);
}
END_TEST

START_TEST(quantiles_of_one_value_are_that_value)
{
    static const int64_t values[] = {1, 255, 256, 65536, INT64_C(1) << 32, INT64_MAX / 2};
    for (int i = 0; i < 6; i++) {
        program *p = program_new();
        write_call(p, 1, values[i]);

        study s = study_of(p);

        const ep_function_stats *stats = &s.summary.rows[1];
        ck_assert_int_eq(stats->p50, values[i]);
        ck_assert_int_eq(stats->p95, values[i]);
        ck_assert_int_eq(stats->p99, values[i]);
        study_free(&s);
    }
}
END_TEST

START_TEST(recursive_calls_count_their_time_once)
{
    program *p = program_new();
    program_call(p, 0, EP_KIND_CALL, 1);
    program_call(p, 0, EP_KIND_CALL, 1);
    program_call(p, 0, EP_KIND_CALL, 2);
    program_call(p, 0, EP_KIND_RETURN, NAME_OF(2));
    program_call(p, 0, EP_KIND_RETURN, NAME_OF(1));
    program_call(p, 0, EP_KIND_RETURN, NAME_OF(1));

    study s = study_of(p);

    const ep_function_stats *stats = &s.summary.rows[1];
    ck_assert_int_eq(stats->own.calls, 2);
    ck_assert_int_eq(stats->recursive, 1);
    ck_assert_int_eq(stats->below.self, 5);
    ck_assert_int_eq(stats->own.self, 4);
    ck_assert_int_eq(stats->max, 5);
    ck_assert_int_eq(stats->min, 3);
    study_free(&s);
}
END_TEST

START_TEST(generator_adds_up_its_slices)
{
    program *p = program_new();
    program_call(p, 0, EP_KIND_CALL, 1);
    program_call(p, 0, EP_KIND_YIELD, NAME_OF(1));
    p->now += 1000;
    program_call(p, 0, EP_KIND_RESUME, 1);
    program_call(p, 0, EP_KIND_YIELD, NAME_OF(1));
    p->now += 1000;
    program_call(p, 0, EP_KIND_THROW, 1);
    program_call(p, 0, EP_KIND_UNWIND, NAME_OF(1));

    study s = study_of(p);

    const ep_function_stats *stats = &s.summary.rows[1];
    ck_assert_int_eq(stats->own.calls, 1);
    ck_assert_int_eq(stats->own.resumes, 2);
    ck_assert_int_eq(stats->below.self, 3);
    ck_assert_int_eq(stats->whole, 3);
    study_free(&s);
}
END_TEST

START_TEST(cut_slices_have_time_but_no_known_duration)
{
    program *p = program_new();
    program_open(p, 0, EP_KIND_CALL, 1);
    p->now = 10;
    program_call(p, 0, EP_KIND_CALL, 2);
    program_call(p, 0, EP_KIND_CALL, 3);
    program_call(p, 0, EP_KIND_RETURN, NAME_OF(2));    /* the end of 3 was not seen */
    p->input.length_ns = 50;

    study s = study_of(p);

    const ep_function_stats *rows = s.summary.rows;
    ck_assert_int_eq(rows[1].own.calls, 0);    /* it was called before */
    ck_assert_int_eq(rows[1].below.self, 50);
    ck_assert_int_eq(rows[1].whole, 0);
    ck_assert_int_eq(rows[1].p50, -1);
    ck_assert_double_eq(rows[1].mean, -1);
    ck_assert_int_eq(rows[3].own.calls, 1);
    ck_assert_int_eq(rows[3].whole, 0);
    ck_assert_int_eq(rows[3].max, -1);
    ck_assert_int_eq(rows[2].whole, 1);
    study_free(&s);
}
END_TEST

START_TEST(bytes_belong_to_the_innermost_call)
{
    program *p = program_new();
    program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 8, 1);    /* outside: of site 1, so of function 1 */
    program_call(p, 0, EP_KIND_CALL, 2);
    program_call(p, 0, EP_KIND_C_CALL, 3);
    program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 16, 10);
    program_call(p, 0, EP_KIND_C_RETURN, NAME_OF(3));
    program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 24, 100);
    program_alloc(p, 0, EP_KIND_FREE_OBJ, 16, -1);
    program_call(p, 0, EP_KIND_RETURN, NAME_OF(2));

    study s = study_of(p);

    const ep_function_stats *rows = s.summary.rows;
    ck_assert_int_eq(rows[1].own.allocated, 1);
    ck_assert_int_eq(rows[2].own.allocated, 100);
    ck_assert_int_eq(rows[2].own.freed, 10);
    ck_assert_int_eq(rows[2].net_self, 90);
    ck_assert_int_eq(rows[3].own.allocated, 10);
    ck_assert_int_eq(rows[3].own.live, 0);
    ck_assert_int_eq(rows[3].churn_self, 10);
    ck_assert_int_eq(rows[3].own.temporary, 0);
    ck_assert_int_eq(rows[3].own.at_peak, 10);
    study_free(&s);
}
END_TEST

START_TEST(what_belongs_to_no_function_is_in_the_last_row)
{
    program *p = program_new();
    program_call(p, 0, EP_KIND_CALL, UNKNOWN_SITE);
    program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 8, 10);
    program_call(p, 0, EP_KIND_RETURN, UNKNOWN_NAME);
    program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 8, 20);    /* the free of the first was lost */

    study s = study_of(p);

    const ep_function_stats *last = &s.summary.rows[s.summary.count - 1];
    ck_assert_uint_eq(s.summary.count, FUNCTIONS + 1);
    ck_assert_int_eq(last->own.calls, 1);
    ck_assert_int_eq(last->own.allocated, 10);
    ck_assert_int_eq(last->own.freed, 10);
    study_free(&s);
}
END_TEST

START_TEST(calls_or_blocks_may_be_missing)
{
    program *p = program_new(), *q = program_new();
    program_call(p, 0, EP_KIND_CALL, 2);
    program_call(p, 0, EP_KIND_RETURN, NAME_OF(2));
    program_alloc(q, 0, EP_KIND_MALLOC_OBJ, 8, 10);

    study of_calls = study_of(p), of_blocks = study_of(q), of_nothing = study_of(program_new());

    ck_assert_int_eq(of_calls.summary.rows[2].own.calls, 1);
    ck_assert_int_eq(of_calls.summary.rows[2].own.allocated, 0);
    ck_assert_int_eq(of_blocks.summary.rows[1].own.allocated, 10);    /* by its site */
    ck_assert_int_eq(of_blocks.summary.rows[2].own.calls, 0);
    ck_assert_int_eq(of_blocks.summary.rows[2].p99, -1);
    ck_assert_int_eq(of_nothing.summary.rows[2].min, -1);
    study_free(&of_calls);
    study_free(&of_blocks);
    study_free(&of_nothing);
}
END_TEST

/* ---- Memory over time: promises -------------------------------------------------------------- */

/* Live memory: 10 from t = 0, 30 from 10, 20 from 40, 25 from 90; the window is 100 ns long. */
static program *
four_changes(void)
{
    program *p = program_new();
    program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 8, 10);
    p->now = 10;
    program_alloc(p, 0, EP_KIND_MALLOC_NUMPY, 16, 20);
    p->now = 40;
    program_alloc(p, 0, EP_KIND_FREE_OBJ, 8, -1);
    program_alloc(p, 0, EP_KIND_FREE_OBJ, 800, -1);    /* older */
    p->now = 90;
    program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 8, 5);
    p->input.length_ns = 100;
    return p;
}

START_TEST(curve_has_a_row_for_each_change)
{
    study s = study_of(four_changes());
    ep_curve curve;

    ck_assert_int_eq(ep_summary_curve(&s.blocks, EP_DOMAINS_ALL, &curve), EP_OK);

    static const int64_t want[][3] = {{0, 10, 1}, {10, 30, 2}, {40, 20, 1}, {90, 25, 2}};
    ck_assert_uint_eq(curve.count, 4);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(curve.time[i], want[i][0]);
        ck_assert_int_eq(curve.live[i], want[i][1]);
        ck_assert_int_eq(curve.blocks[i], want[i][2]);
    }
    ep_curve_clear(&curve);
    study_free(&s);
}
END_TEST

START_TEST(curve_of_a_domain_has_its_changes_alone)
{
    study s = study_of(four_changes());
    ep_curve curve;

    ck_assert_int_eq(ep_summary_curve(&s.blocks, EP_DOMAIN_BIT(EP_DOMAIN_NUMPY), &curve), EP_OK);

    ck_assert_uint_eq(curve.count, 1);
    ck_assert_int_eq(curve.live[0], 20);
    ep_curve_clear(&curve);
    study_free(&s);
}
END_TEST

START_TEST(bin_begins_with_what_the_last_one_left)
{
    study s = study_of(four_changes());
    ep_bin bins[4];

    ep_summary_bins(&s.blocks, EP_DOMAINS_ALL, 4, bins);

    static const ep_bin want[] = {
        {0, 30, 30, 2},
        {20, 30, 20, 1},
        {20, 20, 20, 1},
        {20, 25, 25, 2},
    };
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(bins[i].min, want[i].min);
        ck_assert_int_eq(bins[i].max, want[i].max);
        ck_assert_int_eq(bins[i].last, want[i].last);
        ck_assert_int_eq(bins[i].blocks, want[i].blocks);
    }
    study_free(&s);
}
END_TEST

START_TEST(event_at_the_very_end_is_in_the_last_bin)
{
    program *p = four_changes();
    p->input.length_ns = 90;
    study s = study_of(p);
    ep_bin bins[7];

    ep_summary_bins(&s.blocks, EP_DOMAINS_ALL, 7, bins);

    ck_assert_int_eq(bins[6].last, 25);
    study_free(&s);
}
END_TEST

START_TEST(peak_is_its_first_instant)
{
    program *p = four_changes();
    program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 24, 5);    /* 30 again */
    study s = study_of(p);

    ep_peak peak = ep_summary_peak(&s.blocks, EP_DOMAINS_ALL);

    ck_assert_int_eq(peak.time, 10);
    ck_assert_int_eq(peak.live, 30);
    ck_assert_int_eq(peak.blocks, 2);
    ck_assert_uint_eq(peak.moment, 2);
    study_free(&s);
}
END_TEST

START_TEST(no_block_no_peak)
{
    program *p = program_new();
    program_alloc(p, 0, EP_KIND_FREE_OBJ, 8, -1);
    study s = study_of(p);

    ep_peak peak = ep_summary_peak(&s.blocks, EP_DOMAINS_ALL);

    ck_assert_int_eq(peak.time, -1);
    ck_assert_int_eq(peak.live, 0);
    ck_assert_uint_eq(peak.moment, 0);
    study_free(&s);
}
END_TEST

/* ---- Whose blocks: promises ------------------------------------------------------------------ */

START_TEST(leaks_are_what_is_alive_at_the_end_largest_first)
{
    program *p = program_new();
    program_call(p, 0, EP_KIND_CALL, 2);
    program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 8, 10);
    program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 16, 20);
    program_call(p, 0, EP_KIND_CALL, 3);
    program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 24, 50);
    program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 32, 60);
    program_alloc(p, 0, EP_KIND_FREE_OBJ, 32, -1);
    study s = study_of(p);
    ep_groups groups;

    ck_assert_int_eq(ep_summary_alive(&s.blocks, &s.calls, NULL, p->columns.alloc_count,
                                      EP_BY_FUNCTION, &groups),
                     EP_OK);

    ck_assert_uint_eq(groups.count, 2);
    ck_assert_int_eq(groups.rows[0].key, 3);
    ck_assert_int_eq(groups.rows[0].bytes, 50);
    ck_assert_int_eq(groups.rows[1].key, 2);
    ck_assert_int_eq(groups.rows[1].bytes, 30);
    ck_assert_int_eq(groups.rows[1].blocks, 2);
    ep_groups_clear(&groups);
    study_free(&s);
}
END_TEST

START_TEST(temporary_blocks_are_grouped_by_site)
{
    program *p = program_new();
    for (int i = 0; i < 3; i++) {
        program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 8, 10);
        program_alloc(p, 0, EP_KIND_FREE_OBJ, 8, -1);
    }
    program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 8, 1000);
    study s = study_of(p);
    ep_groups groups;

    ck_assert_int_eq(ep_summary_temporary(&s.blocks, &s.calls, NULL, EP_BY_SITE, &groups), EP_OK);

    ck_assert_uint_eq(groups.count, 1);
    ck_assert_int_eq(groups.rows[0].key, 1);
    ck_assert_int_eq(groups.rows[0].bytes, 30);
    ck_assert_int_eq(groups.rows[0].blocks, 3);
    ep_groups_clear(&groups);
    study_free(&s);
}
END_TEST

START_TEST(calls_by_the_same_way_have_one_stack)
{
    program *p = program_new();
    program_call(p, 0, EP_KIND_CALL, 1);
    write_call(p, 2, 5);
    write_call(p, 2, 5);
    program_call(p, 1, EP_KIND_CALL, 1);
    program_call(p, 1, EP_KIND_CALL, 2);
    program_call(p, 2, EP_KIND_CALL, 2);
    study s = study_of(p);
    ep_stacks stacks;

    ck_assert_int_eq(ep_summary_stacks(&s.calls, &stacks), EP_OK);

    static const int32_t want[] = {0, 1, 1, 0, 1, 2};
    for (int call = 0; call < 6; call++) ck_assert_int_eq(stacks.call_stack[call], want[call]);
    ck_assert_uint_eq(stacks.count, 3);
    ck_assert_int_eq(stacks.parent[1], 0);
    ck_assert_int_eq(stacks.parent[2], -1);
    ck_assert_uint_eq(stacks.site[1], 2);
    ep_stacks_clear(&stacks);
    study_free(&s);
}
END_TEST

EP_TEST_MAIN("summary",
             quantiles_are_exact_by_nearest_rank,
             quantiles_of_one_value_are_that_value,
             recursive_calls_count_their_time_once,
             generator_adds_up_its_slices,
             cut_slices_have_time_but_no_known_duration,
             bytes_belong_to_the_innermost_call,
             what_belongs_to_no_function_is_in_the_last_row,
             calls_or_blocks_may_be_missing,
             curve_has_a_row_for_each_change,
             curve_of_a_domain_has_its_changes_alone,
             bin_begins_with_what_the_last_one_left,
             event_at_the_very_end_is_in_the_last_bin,
             peak_is_its_first_instant,
             no_block_no_peak,
             leaks_are_what_is_alive_at_the_end_largest_first,
             temporary_blocks_are_grouped_by_site,
             calls_by_the_same_way_have_one_stack)
