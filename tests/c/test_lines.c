/* lines.h: hits, time and bytes of lines. A promise each. */
#include "ep_program.h"

#include "lines.h"

/* Site s is of function s % FUNCTIONS; here its line is 10 * s, so that each is a line of its own. */
typedef struct study {
    program *p;
    int32_t site_line[SITES];
    ep_calls calls;
    ep_blocks blocks;
    ep_lines lines;
} study;

static study *
study_new(void)
{
    study *s = must(calloc(1, sizeof *s));
    s->p = program_new();
    for (int32_t site = 0; site < SITES; site++) s->site_line[site] = site == 0 ? -1 : 10 * site;
    s->p->map.site_line = s->site_line;
    return s;
}

static void
study_run(study *s)
{
    s->calls = program_calls(s->p);
    s->blocks = program_blocks(s->p, &s->calls);
    ep_status status = ep_lines_build(&s->p->input, &s->calls, &s->blocks, NULL, &s->lines);
    ck_assert_int_eq(status, EP_OK);
}

static void
study_free(study *s)
{
    ep_lines_clear(&s->lines);
    ep_blocks_clear(&s->blocks);
    ep_calls_clear(&s->calls);
    program_free(s->p);
    free(s);
}

/* At a time. */
static void
put(study *s, int64_t time_ns, ep_kind kind, uint32_t id)
{
    s->p->now = time_ns;
    program_call(s->p, 0, kind, id);
}

static const ep_line *
line_of(const study *s, uint32_t site)
{
    for (size_t i = 0; i < s->lines.count; i++) {
        if (s->lines.rows[i].line == s->site_line[site]) {
            return &s->lines.rows[i];
        }
    }
    ck_abort_msg("no line of site %u", site);
    return NULL;
}

START_TEST(a_line_takes_until_the_next_of_its_call_with_what_it_calls)
{
    study *s = study_new();
    put(s, 100, EP_KIND_CALL, 1);
    put(s, 110, EP_KIND_LINE, 8);     /* of function 1, as site 1 */
    put(s, 120, EP_KIND_CALL, 2);
    put(s, 130, EP_KIND_LINE, 9);     /* of function 2 */
    put(s, 150, EP_KIND_RETURN, NAME_OF(2));
    put(s, 160, EP_KIND_LINE, 15);    /* of function 1 */
    put(s, 190, EP_KIND_RETURN, NAME_OF(1));

    study_run(s);

    ck_assert_uint_eq(s->lines.count, 3);
    ck_assert_int_eq(line_of(s, 8)->hits, 1);
    ck_assert_int_eq(line_of(s, 8)->time_ns, 50);
    ck_assert_int_eq(line_of(s, 8)->self_ns, 20);
    ck_assert_int_eq(line_of(s, 9)->time_ns, 20);
    ck_assert_int_eq(line_of(s, 15)->time_ns, 30);
    ck_assert_int_eq(line_of(s, 15)->self_ns, 30);
    study_free(s);
}
END_TEST

START_TEST(of_a_recursive_line_the_outermost_counts)
{
    study *s = study_new();
    put(s, 100, EP_KIND_CALL, 1);
    put(s, 110, EP_KIND_LINE, 8);
    put(s, 120, EP_KIND_CALL, 8);
    put(s, 130, EP_KIND_LINE, 8);
    put(s, 150, EP_KIND_RETURN, NAME_OF(1));
    put(s, 200, EP_KIND_RETURN, NAME_OF(1));

    study_run(s);

    ck_assert_int_eq(line_of(s, 8)->hits, 2);
    ck_assert_int_eq(line_of(s, 8)->time_ns, 90);
    ck_assert_int_eq(line_of(s, 8)->self_ns, 10 + 20 + 50);
    study_free(s);
}
END_TEST

START_TEST(a_line_ends_with_a_yield_and_with_the_end_of_a_call_that_was_not_seen)
{
    study *s = study_new();
    put(s, 100, EP_KIND_CALL, 1);
    put(s, 110, EP_KIND_LINE, 8);
    put(s, 115, EP_KIND_CALL, 2);
    put(s, 120, EP_KIND_LINE, 9);
    put(s, 140, EP_KIND_YIELD, NAME_OF(1));    /* and the call of 2 with it */
    put(s, 200, EP_KIND_RESUME, 1);
    put(s, 230, EP_KIND_RETURN, NAME_OF(1));

    study_run(s);

    ck_assert_int_eq(line_of(s, 8)->time_ns, 30);
    ck_assert_int_eq(line_of(s, 9)->time_ns, 20);
    study_free(s);
}
END_TEST

START_TEST(the_last_line_of_an_open_call_takes_until_the_windows_end)
{
    study *s = study_new();
    put(s, 100, EP_KIND_CALL, 1);
    put(s, 110, EP_KIND_LINE, 8);
    s->p->input.length_ns = 500;

    study_run(s);

    ck_assert_int_eq(line_of(s, 8)->time_ns, 390);
    ck_assert_int_eq(line_of(s, 8)->self_ns, 390);
    study_free(s);
}
END_TEST

START_TEST(without_calls_a_line_takes_until_the_next_of_its_thread)
{
    study *s = study_new();
    put(s, 100, EP_KIND_LINE, 8);
    put(s, 130, EP_KIND_LINE, 9);
    s->p->now = 133;
    program_call(s->p, 1, EP_KIND_LINE, 10);    /* another thread */
    put(s, 170, EP_KIND_LINE, 8);
    s->p->input.length_ns = 1000;

    study_run(s);

    ck_assert_int_eq(line_of(s, 8)->hits, 2);
    ck_assert_int_eq(line_of(s, 8)->time_ns, 30);
    ck_assert_int_eq(line_of(s, 9)->time_ns, 40);
    ck_assert_int_eq(line_of(s, 9)->self_ns, 40);
    ck_assert_int_eq(line_of(s, 10)->time_ns, 0);
    study_free(s);
}
END_TEST

START_TEST(blocks_are_of_the_line_that_was_executing)
{
    study *s = study_new();
    program_alloc(s->p, 0, EP_KIND_MALLOC_OBJ, 0x1000, 12347);    /* of site 1 */
    program_alloc(s->p, 0, EP_KIND_FREE_OBJ, 0x1000, -1);
    program_alloc(s->p, 0, EP_KIND_MALLOC_OBJ, 0x2000, 11);

    study_run(s);

    ck_assert_uint_eq(s->lines.count, 1);
    ck_assert_int_eq(line_of(s, 1)->allocated, 12347 + 11);
    ck_assert_int_eq(line_of(s, 1)->blocks, 2);
    ck_assert_int_eq(line_of(s, 1)->hits, 0);
    study_free(s);
}
END_TEST

START_TEST(unknown_places_have_no_line)
{
    study *s = study_new();
    put(s, 100, EP_KIND_LINE, 0);
    put(s, 110, EP_KIND_LINE, UNKNOWN_SITE);
    s->site_line[9] = -1;
    put(s, 120, EP_KIND_LINE, 9);

    study_run(s);

    ck_assert_uint_eq(s->lines.count, 0);
    study_free(s);
}
END_TEST

EP_TEST_MAIN("lines", a_line_takes_until_the_next_of_its_call_with_what_it_calls,
             of_a_recursive_line_the_outermost_counts,
             a_line_ends_with_a_yield_and_with_the_end_of_a_call_that_was_not_seen,
             the_last_line_of_an_open_call_takes_until_the_windows_end,
             without_calls_a_line_takes_until_the_next_of_its_thread,
             blocks_are_of_the_line_that_was_executing, unknown_places_have_no_line)
