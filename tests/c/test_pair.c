/* pair.h: the call tree and the lives of blocks. Three kinds of test: a promise each, random
 * programs that know their own tree, and any stream at all against a plain reading of pair.h. */
#include "ep_program.h"
#include "apart.h"

#include <limits.h>

/* ---- Calls: promises ------------------------------------------------------------------------- */

START_TEST(nested_calls_become_a_tree)
{
    program *p = program_new();
    program_call(p, 0, EP_KIND_CALL, 1);
    program_call(p, 0, EP_KIND_C_CALL, 2);
    program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 64, 10);
    program_call(p, 0, EP_KIND_C_RETURN, NAME_OF(2));
    program_call(p, 0, EP_KIND_RETURN, NAME_OF(1));

    ep_calls calls = program_calls(p);

    ck_assert_uint_eq(calls.count, 2);
    ck_assert_int_eq(calls.parent[0], -1);
    ck_assert_int_eq(calls.parent[1], 0);
    ck_assert_int_eq(calls.start[1], 1);
    ck_assert_int_eq(calls.duration[0], 4);
    ck_assert_int_eq(calls.duration[1], 2);
    ck_assert_int_eq(calls.self[0], 2);
    ck_assert_int_eq(calls.depth[1], 1);
    ck_assert_int_eq(calls.function[1], 2);
    ck_assert_uint_eq(calls.site[1], 2);
    ck_assert_uint_eq(calls.kind[1], EP_KIND_C_CALL);
    ck_assert_uint_eq(calls.flags[0] | calls.flags[1], 0);
    ck_assert_uint_eq(calls.unmatched_count + calls.end_unseen_count, 0);
    ep_calls_clear(&calls);
    program_free(p);
}
END_TEST

START_TEST(rows_know_their_call_and_its_depth)
{
    program *p = program_new();
    program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 64, 10);    /* outside all calls */
    program_call(p, 0, EP_KIND_CALL, 1);
    program_call(p, 0, EP_KIND_CALL, 2);
    program_alloc(p, 0, EP_KIND_FREE_OBJ, 64, -1);
    program_call(p, 0, EP_KIND_RETURN, NAME_OF(2));
    program_call(p, 0, EP_KIND_RETURN, NAME_OF(5));     /* unmatched */

    ep_calls calls = program_calls(p);

    int32_t depth[6];
    ep_calls_row_depth(&calls, 0, 6, depth);
    static const int32_t want_call[] = {-1, 0, 1, 1, 1, -1};
    static const int32_t want_depth[] = {0, 0, 1, 2, 1, -1};
    for (int row = 0; row < 6; row++) {
        ck_assert_int_eq(calls.row_call[row], want_call[row]);
        ck_assert_int_eq(depth[row], want_depth[row]);
    }
    ep_calls_clear(&calls);
    program_free(p);
}
END_TEST

START_TEST(end_of_an_outer_call_ends_those_above)
{
    program *p = program_new();
    program_call(p, 0, EP_KIND_CALL, 1);
    program_call(p, 0, EP_KIND_CALL, 2);
    program_call(p, 0, EP_KIND_CALL, 3);
    program_call(p, 0, EP_KIND_YIELD, NAME_OF(1));
    program_call(p, 0, EP_KIND_CALL, 4);

    ep_calls calls = program_calls(p);

    ck_assert_uint_eq(calls.flags[0], EP_CALL_YIELDED);
    ck_assert_uint_eq(calls.flags[1], EP_CALL_END_UNSEEN);
    ck_assert_uint_eq(calls.flags[2], EP_CALL_END_UNSEEN);
    ck_assert_int_eq(calls.duration[2], 1);
    ck_assert_uint_eq(calls.end_unseen_count, 2);
    ck_assert_int_eq(calls.row_call[3], 0);
    ck_assert_int_eq(calls.parent[3], -1);
    ep_calls_clear(&calls);
    program_free(p);
}
END_TEST

START_TEST(end_ends_the_innermost_call_of_its_function)
{
    program *p = program_new();
    program_call(p, 0, EP_KIND_CALL, 1);
    program_call(p, 0, EP_KIND_CALL, 1);
    program_call(p, 0, EP_KIND_CALL, 2);
    program_call(p, 0, EP_KIND_RETURN, NAME_OF(1));

    ep_calls calls = program_calls(p);

    ck_assert_int_eq(calls.row_call[3], 1);
    ck_assert_uint_eq(calls.flags[0], EP_CALL_OPEN_AT_END);
    ep_calls_clear(&calls);
    program_free(p);
}
END_TEST

START_TEST(end_without_a_call_is_unmatched_and_changes_nothing)
{
    program *p = program_new();
    program_call(p, 0, EP_KIND_RETURN, NAME_OF(1));
    program_call(p, 0, EP_KIND_CALL, 2);
    program_call(p, 0, EP_KIND_RETURN, NAME_OF(1));
    program_call(p, 0, EP_KIND_RETURN, NAME_OF(2));

    ep_calls calls = program_calls(p);

    ck_assert_uint_eq(calls.unmatched_count, 2);
    ck_assert_int_eq(calls.row_call[0], -1);
    ck_assert_int_eq(calls.row_call[2], -1);
    ck_assert_int_eq(calls.duration[0], 2);
    ck_assert_uint_eq(calls.flags[0], 0);
    ep_calls_clear(&calls);
    program_free(p);
}
END_TEST

START_TEST(ends_of_c_and_of_python_never_match)
{
    program *p = program_new();
    program_call(p, 0, EP_KIND_CALL, 1);
    program_call(p, 0, EP_KIND_C_RETURN, NAME_OF(1));
    program_call(p, 0, EP_KIND_C_CALL, 1);
    program_call(p, 0, EP_KIND_UNWIND, NAME_OF(1));

    ep_calls calls = program_calls(p);

    ck_assert_uint_eq(calls.unmatched_count, 1);
    ck_assert_int_eq(calls.row_call[1], -1);
    ck_assert_int_eq(calls.row_call[3], 0);
    ck_assert_uint_eq(calls.flags[0], EP_CALL_RAISED);
    ck_assert_uint_ne(calls.flags[1] & EP_CALL_END_UNSEEN, 0);
    ep_calls_clear(&calls);
    program_free(p);
}
END_TEST

START_TEST(spans_and_the_collector_are_calls_of_the_tree_and_points_are_in_them)
{
    program *p = program_new();
    program_call(p, 0, EP_KIND_CALL, 1);
    program_call(p, 0, EP_KIND_SPAN_BEGIN, 2);
    program_call(p, 0, EP_KIND_LINE, 3);
    program_call(p, 0, EP_KIND_GC_START, 3);
    program_call(p, 0, EP_KIND_GC_STOP, NAME_OF(3));
    program_call(p, 0, EP_KIND_MARK, 2);
    program_call(p, 0, EP_KIND_SPAN_END, NAME_OF(2));
    program_call(p, 0, EP_KIND_RETURN, NAME_OF(1));

    ep_calls calls = program_calls(p);

    ck_assert_uint_eq(calls.count, 3);
    ck_assert_int_eq(calls.parent[1], 0);
    ck_assert_int_eq(calls.parent[2], 1);
    ck_assert_int_eq(calls.row_call[2], 1);
    ck_assert_int_eq(calls.row_call[5], 1);
    ck_assert_int_eq(calls.row_call[6], 1);
    ck_assert_uint_eq(calls.unmatched_count + calls.end_unseen_count, 0);
    ep_calls_clear(&calls);
    program_free(p);
}
END_TEST

START_TEST(unknown_functions_match_each_other_alone)
{
    program *p = program_new();
    program_call(p, 0, EP_KIND_CALL, UNKNOWN_SITE);
    program_call(p, 0, EP_KIND_RETURN, NAME_OF(1));
    program_call(p, 0, EP_KIND_CALL, 1);
    program_call(p, 0, EP_KIND_RETURN, UNKNOWN_NAME);

    ep_calls calls = program_calls(p);

    ck_assert_int_eq(calls.row_call[1], -1);
    ck_assert_int_eq(calls.row_call[3], 0);
    ck_assert_int_eq(calls.function[0], -1);
    ep_calls_clear(&calls);
    program_free(p);
}
END_TEST

START_TEST(ids_beyond_the_map_are_unknown)
{
    program *p = program_new();
    program_call(p, 0, EP_KIND_CALL, SITES);
    program_call(p, 0, EP_KIND_C_CALL, UINT32_MAX);
    program_call(p, 0, EP_KIND_C_EXCEPTION, NAMES);
    program_call(p, 0, EP_KIND_RETURN, UINT32_MAX);

    ep_calls calls = program_calls(p);

    ck_assert_uint_eq(calls.unmatched_count, 0);
    ck_assert_uint_eq(calls.flags[0], 0);
    ck_assert_uint_ne(calls.flags[1] & EP_CALL_RAISED, 0);
    ck_assert_int_eq(calls.function[1], -1);
    ep_calls_clear(&calls);
    program_free(p);
}
END_TEST

START_TEST(generator_has_a_row_for_each_slice)
{
    program *p = program_new();
    program_call(p, 0, EP_KIND_CALL, 1);
    program_call(p, 0, EP_KIND_YIELD, NAME_OF(1));
    program_call(p, 0, EP_KIND_RESUME, 8);
    program_call(p, 0, EP_KIND_YIELD, NAME_OF(1));
    program_call(p, 0, EP_KIND_THROW, 15);
    program_call(p, 0, EP_KIND_UNWIND, NAME_OF(1));

    ep_calls calls = program_calls(p);

    ck_assert_uint_eq(calls.count, 3);
    ck_assert_uint_eq(calls.kind[1], EP_KIND_RESUME);
    ck_assert_uint_eq(calls.kind[2], EP_KIND_THROW);
    ck_assert_uint_eq(calls.flags[0], EP_CALL_YIELDED);
    ck_assert_uint_eq(calls.flags[1], EP_CALL_YIELDED);
    ck_assert_uint_eq(calls.flags[2], EP_CALL_RAISED);
    ep_calls_clear(&calls);
    program_free(p);
}
END_TEST

START_TEST(calls_open_at_start_come_first)
{
    program *p = program_new();
    program_open(p, 0, EP_KIND_CALL, 1);
    program_open(p, 0, EP_KIND_C_CALL, 2);
    program_open(p, 3, EP_KIND_RESUME, 3);
    p->now = 50;
    program_call(p, 0, EP_KIND_C_RETURN, NAME_OF(2));
    program_call(p, 0, EP_KIND_CALL, 4);

    ep_calls calls = program_calls(p);

    ck_assert_uint_eq(calls.count, 4);
    ck_assert_uint_eq(calls.before_count, 3);
    ck_assert_int_eq(calls.start[1], 0);
    ck_assert_int_eq(calls.duration[1], 50);
    ck_assert_uint_eq(calls.flags[0], EP_CALL_OPEN_AT_START | EP_CALL_OPEN_AT_END);
    ck_assert_uint_eq(calls.flags[1], EP_CALL_OPEN_AT_START);
    ck_assert_int_eq(calls.parent[1], 0);
    ck_assert_int_eq(calls.parent[3], 0);
    ck_assert_int_eq(calls.thread[2], 3);
    ck_assert_uint_eq(calls.kind[2], EP_KIND_RESUME);
    ck_assert_int_eq(calls.function[2], 3);
    ck_assert_int_eq(calls.depth[1], 1);
    ep_calls_clear(&calls);
    program_free(p);
}
END_TEST

START_TEST(calls_open_at_start_begin_where_the_ring_does)
{
    static const int64_t from_ns[THREADS] = {0, 30};
    program *p = program_new();
    p->input.open_from_ns = from_ns;
    program_open(p, 0, EP_KIND_CALL, 1);
    program_open(p, 1, EP_KIND_CALL, 1);
    p->now = 50;
    program_call(p, 1, EP_KIND_RETURN, NAME_OF(1));
    p->input.length_ns = 100;

    ep_calls calls = program_calls(p);

    ck_assert_int_eq(calls.start[0], 0);
    ck_assert_int_eq(calls.duration[0], 100);
    ck_assert_int_eq(calls.start[1], 30);
    ck_assert_int_eq(calls.duration[1], 20);
    ck_assert_int_eq(calls.self[1], 20);
    ep_calls_clear(&calls);
    program_free(p);
}
END_TEST

START_TEST(calls_open_at_end_end_with_the_window)
{
    program *p = program_new();
    program_call(p, 0, EP_KIND_CALL, 1);
    p->input.length_ns = 12347;

    ep_calls calls = program_calls(p);

    ck_assert_int_eq(calls.duration[0], 12347);
    ck_assert_uint_eq(calls.close_row[0], EP_ROW_NONE);
    ck_assert_uint_eq(calls.flags[0], EP_CALL_OPEN_AT_END);
    ep_calls_clear(&calls);
    program_free(p);
}
END_TEST

START_TEST(calls_open_at_end_end_where_their_thread_does)
{
    static const int64_t until_ns[THREADS] = {40, 100};
    program *p = program_new();
    p->input.open_until_ns = until_ns;
    program_open(p, 0, EP_KIND_CALL, 1);
    program_call(p, 1, EP_KIND_CALL, 1);
    p->input.length_ns = 100;

    ep_calls calls = program_calls(p);

    ck_assert_int_eq(calls.start[0] + calls.duration[0], 40);
    ck_assert_int_eq(calls.start[1] + calls.duration[1], 100);
    ep_calls_clear(&calls);
    program_free(p);
}
END_TEST

START_TEST(threads_have_stacks_of_their_own)
{
    program *p = program_new();
    program_call(p, 0, EP_KIND_CALL, 1);
    program_call(p, 1, EP_KIND_CALL, 2);
    program_call(p, 0, EP_KIND_RETURN, NAME_OF(1));
    program_call(p, 0, EP_KIND_RETURN, NAME_OF(2));
    program_call(p, 1, EP_KIND_RETURN, NAME_OF(2));

    ep_calls calls = program_calls(p);

    ck_assert_int_eq(calls.parent[1], -1);
    ck_assert_int_eq(calls.thread[1], 1);
    ck_assert_int_eq(calls.row_call[3], -1);
    ck_assert_int_eq(calls.row_call[4], 1);
    ep_calls_clear(&calls);
    program_free(p);
}
END_TEST

START_TEST(call_is_recursive_while_its_function_is_open_on_the_thread)
{
    program *p = program_new();
    program_open(p, 1, EP_KIND_CALL, 1);
    program_call(p, 0, EP_KIND_CALL, 1);
    program_call(p, 0, EP_KIND_CALL, 2);
    program_call(p, 0, EP_KIND_CALL, 8);    /* function 1 as well */
    program_call(p, 0, EP_KIND_RETURN, NAME_OF(1));
    program_call(p, 0, EP_KIND_RETURN, NAME_OF(2));
    program_call(p, 0, EP_KIND_RETURN, NAME_OF(1));
    program_call(p, 0, EP_KIND_CALL, 1);
    program_call(p, 1, EP_KIND_CALL, 1);

    ep_calls calls = program_calls(p);

    static const bool want[] = {false, false, false, true, false, true};
    for (int call = 0; call < 6; call++) {
        ck_assert_int_eq((calls.flags[call] & EP_CALL_RECURSIVE) != 0, want[call]);
    }
    ep_calls_clear(&calls);
    program_free(p);
}
END_TEST

START_TEST(empty_window_has_no_calls_and_no_blocks)
{
    program *p = program_new();
    p->input.thread_count = 0;
    p->input.open_at_start = NULL;

    ep_calls calls = program_calls(p);
    ep_blocks blocks = program_blocks(p, &calls);

    ck_assert_uint_eq(calls.count, 0);
    ck_assert_uint_eq(blocks.count, 0);
    ck_assert_uint_eq(ep_blocks_moment(&p->input, 5), 0);
    ep_calls_clear(&calls);
    ep_blocks_clear(&blocks);
    program_free(p);
}
END_TEST

START_TEST(window_that_is_too_large_is_refused)
{
    program *p = program_new();
    p->columns.count = EP_PAIR_MAX + 1;

    ck_assert_int_eq(ep_pair_calls(&p->input, NULL, NULL), EP_ARGUMENT);
    ck_assert_int_eq(ep_pair_blocks(&p->input, NULL, NULL), EP_ARGUMENT);

    program_free(p);
}
END_TEST

/* 100,000 open calls and as many ends of a function that is not among them: 10^10 steps, if each of
 * them looked through the stack. */
START_TEST(unmatched_ends_do_not_search_a_deep_stack_again)
{
    program *p = program_new();
    for (int i = 0; i < 100000; i++) program_call(p, 0, EP_KIND_CALL, 1);
    for (int i = 0; i < 100000; i++) {
        program_call(p, 0, EP_KIND_RETURN, NAME_OF(2));
        program_call(p, 0, EP_KIND_CALL, 3);
    }

    ep_calls calls;
    ck_assert_int_eq(ep_pair_calls(&p->input, NULL, &calls), EP_OK);

    ck_assert_uint_eq(calls.unmatched_count, 100000);
    ck_assert_uint_eq(calls.end_unseen_count, 0);
    ep_calls_clear(&calls);
    program_free(p);
}
END_TEST

/* ---- Calls: random programs ------------------------------------------------------------------ */

/* A call that the imagined program has open. */
typedef struct imagined {
    uint32_t site;
    uint8_t kind;
    int32_t call;    /* its row in calls, or -1: opened before the window, and not known to it */
} imagined;

#define IMAGINED_DEPTH 60

typedef struct imagination {
    program *p;
    uint64_t random;
    imagined stack[THREADS][IMAGINED_DEPTH];
    int depth[THREADS];
    /* what should come out */
    size_t count;
    size_t unmatched;
    int32_t *parent;      /* by call, as below */
    uint32_t *open_row;
    uint32_t *close_row;
    uint8_t *flags;
    int32_t *row_call;    /* by row */
} imagination;

static imagination *
imagination_new(uint64_t seed, size_t rows)
{
    imagination *m = must(calloc(1, sizeof *m));
    size_t room = rows + THREADS * IMAGINED_DEPTH;
    m->p = program_new();
    m->random = seed;
    m->parent = must(calloc(room, sizeof *m->parent));
    m->open_row = must(calloc(room, sizeof *m->open_row));
    m->close_row = must(calloc(room, sizeof *m->close_row));
    m->flags = must(calloc(room, sizeof *m->flags));
    m->row_call = must(calloc(room, sizeof *m->row_call));
    return m;
}

static void
imagination_free(imagination *m)
{
    program_free(m->p);
    free(m->parent);
    free(m->open_row);
    free(m->close_row);
    free(m->flags);
    free(m->row_call);
    free(m);
}

/* The innermost call that the window knows. */
static int32_t
innermost(const imagination *m, int thread)
{
    return m->depth[thread] > 0 ? m->stack[thread][m->depth[thread] - 1].call : -1;
}

static int32_t
expect_call(imagination *m, int thread, uint32_t row)
{
    int32_t call = (int32_t)m->count++;
    m->parent[call] = innermost(m, thread);
    m->open_row[call] = row;
    m->close_row[call] = EP_ROW_NONE;
    m->flags[call] = EP_CALL_OPEN_AT_END;
    return call;
}

static imagined
random_opening(imagination *m)
{
    static const uint8_t kinds[] = {EP_KIND_CALL, EP_KIND_RESUME, EP_KIND_THROW, EP_KIND_C_CALL};
    return (imagined){
        .site = random_site(&m->random),
        .kind = kinds[below(&m->random, 4)],
        .call = -1,
    };
}

/* What ran before the window. Of thread 4 nobody knows it: its ring lost its head. */
static void
imagine_before(imagination *m)
{
    for (int thread = 0; thread < THREADS; thread++) {
        for (uint64_t depth = below(&m->random, 6); depth > 0; depth--) {
            imagined opening = random_opening(m);
            if (thread < THREADS - 1) {
                program_open(m->p, thread, opening.kind, opening.site);
                opening.call = expect_call(m, thread, EP_ROW_NONE);
                m->flags[opening.call] |= EP_CALL_OPEN_AT_START;
            }
            m->stack[thread][m->depth[thread]++] = opening;
        }
    }
}

static void
imagine_opening(imagination *m, int thread)
{
    imagined opening = random_opening(m);
    size_t row = program_call(m->p, thread, opening.kind, opening.site);
    opening.call = expect_call(m, thread, (uint32_t)row);
    m->row_call[row] = opening.call;
    m->stack[thread][m->depth[thread]++] = opening;
}

static void
imagine_end(imagination *m, int thread)
{
    static const uint8_t ends[] = {EP_KIND_RETURN, EP_KIND_YIELD, EP_KIND_UNWIND};
    static const uint8_t c_ends[] = {EP_KIND_C_RETURN, EP_KIND_C_EXCEPTION};
    imagined ended = m->stack[thread][--m->depth[thread]];
    bool is_c = ended.kind == EP_KIND_C_CALL;
    uint8_t kind = is_c ? c_ends[below(&m->random, 2)] : ends[below(&m->random, 3)];
    bool raised = kind == EP_KIND_UNWIND || kind == EP_KIND_C_EXCEPTION;
    size_t row = program_call(m->p, thread, kind, NAME_OF(ended.site % FUNCTIONS));

    m->row_call[row] = ended.call;
    if (ended.call < 0) {
        m->unmatched++;
        return;
    }
    m->close_row[ended.call] = (uint32_t)row;
    m->flags[ended.call] &= EP_CALL_OPEN_AT_START;
    m->flags[ended.call] |= raised ? EP_CALL_RAISED : 0;
    m->flags[ended.call] |= kind == EP_KIND_YIELD ? EP_CALL_YIELDED : 0;
}

/* Threads take turns, of one event or of `turn`; time may stand still. */
static void
imagine_window(imagination *m, size_t rows, uint64_t turn)
{
    int thread = 0;
    while (m->p->columns.count < rows) {
        if (one_in(&m->random, turn)) {
            thread = (int)below(&m->random, THREADS);
        }
        program_hold_time(m->p, one_in(&m->random, 3));
        uint64_t what = below(&m->random, 10);
        if (what < 2) {
            program_alloc(m->p, thread, EP_KIND_MALLOC_MEM, 8 * below(&m->random, 9), 1);
            m->row_call[m->p->columns.count - 1] = innermost(m, thread);
        } else if (what < 6 && m->depth[thread] < IMAGINED_DEPTH) {
            imagine_opening(m, thread);
        } else if (m->depth[thread] > 0) {
            imagine_end(m, thread);
        }
    }
}

/* What must hold of any call tree. */
static void
check_tree(const ep_calls *calls)
{
    int64_t *last_end = must(calloc(calls->count + THREADS, sizeof *last_end));    /* of children */
    int64_t *inside = must(calloc(calls->count + 1, sizeof *inside));
    for (size_t i = 0; i < calls->count; i++) {
        int32_t parent = calls->parent[i];
        size_t among = parent >= 0 ? (size_t)parent : calls->count + (size_t)calls->thread[i];
        int64_t end = calls->start[i] + calls->duration[i];
        ck_assert_int_ge(calls->duration[i], 0);
        ck_assert_int_ge(calls->self[i], 0);
        ck_assert_int_ge(calls->start[i], i > 0 ? calls->start[i - 1] : 0);
        ck_assert_int_ge(calls->start[i], last_end[among]);
        last_end[among] = end;
        ck_assert_int_eq(calls->depth[i], parent >= 0 ? calls->depth[parent] + 1 : 0);
        if (parent >= 0) {
            ck_assert_int_lt(parent, (int64_t)i);
            ck_assert_int_eq(calls->thread[i], calls->thread[parent]);
            ck_assert_int_ge(calls->start[i], calls->start[parent]);
            ck_assert_int_le(end, calls->start[parent] + calls->duration[parent]);
        }
    }
    for (size_t i = calls->count; i-- > 0;) {
        inside[i] += calls->self[i];
        ck_assert_int_eq(inside[i], calls->duration[i]);
        if (calls->parent[i] >= 0) {
            inside[calls->parent[i]] += inside[i];
        }
    }
    free(last_end);
    free(inside);
}

START_TEST(random_programs_are_rebuilt_exactly)
{
    for (uint64_t seed = 0; seed < 60; seed++) {
        size_t rows = 1 + seed * seed * 3;
        imagination *m = imagination_new(seed, rows);
        imagine_before(m);
        imagine_window(m, rows, seed % 2 ? 1 : 300);

        ep_calls calls = program_calls(m->p);

        ck_assert_uint_eq(calls.count, m->count);
        ck_assert_uint_eq(calls.unmatched_count, m->unmatched);
        ck_assert_uint_eq(calls.end_unseen_count, 0);
        for (size_t i = 0; i < m->count; i++) {
            ck_assert_int_eq(calls.parent[i], m->parent[i]);
            ck_assert_uint_eq(calls.open_row[i], m->open_row[i]);
            ck_assert_uint_eq(calls.close_row[i], m->close_row[i]);
            ck_assert_uint_eq(calls.flags[i] & ~(unsigned)EP_CALL_RECURSIVE, m->flags[i]);
        }
        for (size_t row = 0; row < rows; row++) {
            ck_assert_int_eq(calls.row_call[row], m->row_call[row]);
        }
        check_tree(&calls);
        ep_calls_clear(&calls);
        imagination_free(m);
    }
}
END_TEST

/* ---- Calls: any stream ----------------------------------------------------------------------- */

/* pair.h to the letter, one thread at a time, by looking through everything that is open. */
static void
check_by_search(const program *p, const ep_calls *calls, int thread)
{
    const ep_columns *columns = &p->columns;
    int32_t open[4096];
    int depth = 0;
    for (size_t i = 0; i < calls->before_count; i++) {
        if (calls->thread[i] == thread) {
            open[depth++] = (int32_t)i;
        }
    }
    for (size_t row = 0; row < columns->count; row++) {
        const ep_kind_info *info = &ep_kinds[columns->kind[row]];
        if (columns->thread[row] != thread) {
            continue;
        }
        if (info->family != EP_FAMILY_CALL) {
            ck_assert_int_eq(calls->row_call[row], depth > 0 ? open[depth - 1] : -1);
        } else if (info->pairing == EP_PAIRING_OPENS) {
            int32_t call = calls->row_call[row];
            ck_assert_int_eq(calls->parent[call], depth > 0 ? open[depth - 1] : -1);
            ck_assert_uint_eq(calls->open_row[call], row);
            open[depth++] = call;
        } else {
            uint32_t name = columns->id[row];
            int32_t function = name < NAMES ? p->name_function[name] : -1;
            bool is_c = columns->kind[row] >= EP_KIND_C_CALL;
            int at = depth - 1;
            while (at >= 0 && (calls->function[open[at]] != function ||
                               (calls->kind[open[at]] == EP_KIND_C_CALL) != is_c)) {
                at--;
            }
            ck_assert_int_eq(calls->row_call[row], at >= 0 ? open[at] : -1);
            for (int i = at; at >= 0 && i < depth; i++) {
                bool unseen = (calls->flags[open[i]] & EP_CALL_END_UNSEEN) != 0;
                ck_assert_uint_eq(calls->close_row[open[i]], row);
                ck_assert_int_eq(unseen, i > at);
            }
            depth = at >= 0 ? at : depth;
        }
    }
    for (int i = 0; i < depth; i++) {
        ck_assert_uint_eq(calls->close_row[open[i]], EP_ROW_NONE);
        ck_assert_uint_ne(calls->flags[open[i]] & EP_CALL_OPEN_AT_END, 0);
    }
}

/* Is the call's function open further out? */
static bool
is_recursive(const ep_calls *calls, size_t call)
{
    for (int32_t above = calls->parent[call]; above >= 0; above = calls->parent[above]) {
        if (calls->function[above] == calls->function[call]) {
            return true;
        }
    }
    return false;
}

START_TEST(any_stream_is_paired_as_by_search)
{
    for (uint64_t seed = 0; seed < 60; seed++) {
        uint64_t random = seed;
        program *p = program_new();
        for (int thread = 0; thread < THREADS; thread++) {
            for (uint64_t n = below(&random, 4); n > 0; n--) {
                program_open(p, thread, EP_KIND_C_CALL, (uint32_t)below(&random, SITES));
            }
        }
        for (int i = 0; i < 3000; i++) {
            ep_kind kind = (ep_kind)(1 + below(&random, EP_KIND_C_EXCEPTION + 1));
            bool opens = ep_kinds[kind].pairing == EP_PAIRING_OPENS;
            uint32_t name = one_in(&random, 9) ? NAMES : NAME_OF(below(&random, FUNCTIONS));
            uint32_t site = (uint32_t)below(&random, SITES + 2);
            int thread = (int)below(&random, 1 + seed % THREADS);
            program_hold_time(p, one_in(&random, 3));
            if (kind > EP_KIND_C_EXCEPTION) {
                program_alloc(p, thread, EP_KIND_FREE_RAW, 8, -1);
            } else {
                program_call(p, thread, kind, opens ? site : name);
            }
        }

        ep_calls calls = program_calls(p);

        for (int thread = 0; thread < THREADS; thread++) check_by_search(p, &calls, thread);
        for (size_t i = 0; i < calls.count; i++) {
            ck_assert_int_eq((calls.flags[i] & EP_CALL_RECURSIVE) != 0, is_recursive(&calls, i));
        }
        check_tree(&calls);
        ep_calls_clear(&calls);
        program_free(p);
    }
}
END_TEST

/* ---- Blocks: promises ------------------------------------------------------------------------ */

START_TEST(free_ends_the_block_and_learns_its_size)
{
    program *p = program_new();
    program_call(p, 0, EP_KIND_CALL, 1);
    program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 0x1000, 12347);
    program_call(p, 2, EP_KIND_CALL, 2);
    program_alloc(p, 2, EP_KIND_FREE_OBJ, 0x1000, -1);
    program_alloc(p, 0, EP_KIND_CALLOC_NUMPY, 0x2000, 5);

    ep_calls calls = program_calls(p);
    ep_blocks blocks = program_blocks(p, &calls);

    ck_assert_uint_eq(blocks.count, 2);
    ck_assert_uint_eq(blocks.address[0], 0x1000);
    ck_assert_int_eq(blocks.size[0], 12347);
    ck_assert_uint_eq(blocks.domain[0], EP_DOMAIN_OBJ);
    ck_assert_uint_eq(blocks.domain[1], EP_DOMAIN_NUMPY);
    ck_assert_int_eq(blocks.thread[0], 0);
    ck_assert_int_eq(blocks.free_thread[0], 2);
    ck_assert_int_eq(blocks.free_thread[1], -1);
    ck_assert_int_eq(blocks.start[0], 1);
    ck_assert_int_eq(blocks.end[0], 3);
    ck_assert_int_eq(blocks.end[1], -1);
    ck_assert_int_eq(blocks.call[0], 0);
    ck_assert_int_eq(blocks.freed_in[0], 1);
    ck_assert_int_eq(blocks.freed_in[1], -1);
    ck_assert_uint_eq(blocks.site[0], 1);
    ck_assert_int_eq(blocks.function[0], 1);
    ck_assert_int_eq(p->columns.size[1], 12347);
    ck_assert_int_eq(blocks.event_block[1], 0);
    ep_calls_clear(&calls);
    ep_blocks_clear(&blocks);
    program_free(p);
}
END_TEST

START_TEST(size_of_a_block_may_exceed_32_bits)
{
    static const int64_t sizes[] = {0, UINT32_MAX - 1, UINT32_MAX, INT64_C(1) << 40, INT64_MAX};
    for (size_t i = 0; i < 5; i++) {
        program *p = program_new();
        program_alloc(p, 0, EP_KIND_MALLOC_RAW, 8, sizes[i]);
        program_alloc(p, 0, EP_KIND_FREE_RAW, 8, -1);

        ep_blocks blocks = program_blocks(p, NULL);

        ck_assert_int_eq(p->columns.size[1], sizes[i]);
        ep_blocks_clear(&blocks);
        program_free(p);
    }
}
END_TEST

START_TEST(any_address_is_a_key)
{
    static const uint64_t addresses[] = {0, 1, 8, UINT64_MAX - 1, UINT64_MAX};
    program *p = program_new();
    for (int i = 0; i < 5; i++) program_alloc(p, 0, EP_KIND_MALLOC_RAW, addresses[i], i);
    for (int i = 4; i >= 0; i--) program_alloc(p, 0, EP_KIND_FREE_RAW, addresses[i], -1);

    ep_blocks blocks = program_blocks(p, NULL);

    for (uint32_t i = 0; i < 5; i++) ck_assert_uint_eq(blocks.death[i], 9 - i);
    ep_blocks_clear(&blocks);
    program_free(p);
}
END_TEST

START_TEST(realloc_makes_a_block_that_knows_the_previous)
{
    program *p = program_new();
    program_alloc(p, 0, EP_KIND_MALLOC_MEM, 8, 10);
    program_alloc(p, 0, EP_KIND_REALLOC_FREE_MEM, 8, -1);
    program_alloc(p, 1, EP_KIND_MALLOC_MEM, 8, 5);          /* had it at once */
    program_alloc(p, 0, EP_KIND_REALLOC_MEM, 16, 20);
    program_alloc(p, 0, EP_KIND_REALLOC_MEM, 24, 30);       /* its realloc_free was lost */

    ep_blocks blocks = program_blocks(p, NULL);

    static const int32_t previous[] = {-1, -1, 0, -1};
    for (int i = 0; i < 4; i++) ck_assert_int_eq(blocks.previous[i], previous[i]);
    ck_assert_uint_eq(blocks.flags[0], EP_BLOCK_MOVED);
    ck_assert_uint_eq(blocks.flags[1] | blocks.flags[2] | blocks.flags[3], 0);
    ep_blocks_clear(&blocks);
    program_free(p);
}
END_TEST

START_TEST(realloc_in_another_domain_is_not_of_that_block)
{
    program *p = program_new();
    program_alloc(p, 0, EP_KIND_MALLOC_MEM, 8, 10);
    program_alloc(p, 0, EP_KIND_REALLOC_FREE_MEM, 8, -1);
    program_alloc(p, 0, EP_KIND_REALLOC_RAW, 16, 20);

    ep_blocks blocks = program_blocks(p, NULL);

    ck_assert_int_eq(blocks.previous[1], -1);
    ep_blocks_clear(&blocks);
    program_free(p);
}
END_TEST

START_TEST(realloc_of_an_unknown_block_has_no_previous)
{
    program *p = program_new();
    program_alloc(p, 0, EP_KIND_REALLOC_FREE_MEM, 8, -1);
    program_alloc(p, 0, EP_KIND_REALLOC_MEM, 16, 20);

    ep_blocks blocks = program_blocks(p, NULL);

    ck_assert_int_eq(blocks.previous[0], -1);
    ck_assert_uint_eq(blocks.older_count, 1);
    ck_assert_int_eq(p->columns.size[0], -1);
    ep_blocks_clear(&blocks);
    program_free(p);
}
END_TEST

START_TEST(block_survives_a_realloc_that_failed)
{
    program *p = program_new();
    program_alloc(p, 0, EP_KIND_MALLOC_MEM, 8, 10);
    program_alloc(p, 0, EP_KIND_REALLOC_FREE_MEM, 8, -1);
    program_alloc(p, 0, EP_KIND_REALLOC_FAILED_MEM, 8, INT64_C(1) << 60);
    program_alloc(p, 0, EP_KIND_FREE_MEM, 8, -1);

    ep_blocks blocks = program_blocks(p, NULL);

    ck_assert_uint_eq(blocks.count, 1);
    ck_assert_uint_eq(blocks.death[0], 3);
    ck_assert_int_eq(blocks.event_block[1], -1);
    ck_assert_int_eq(blocks.event_block[2], -1);
    ck_assert_uint_ne(blocks.flags[0] & EP_BLOCK_REVIVED, 0);
    ck_assert_uint_eq(blocks.flags[0] & EP_BLOCK_MOVED, 0);
    ep_blocks_clear(&blocks);
    program_free(p);
}
END_TEST

START_TEST(failed_realloc_without_its_first_half_changes_nothing)
{
    program *p = program_new();
    program_alloc(p, 0, EP_KIND_MALLOC_MEM, 8, 10);
    program_alloc(p, 0, EP_KIND_REALLOC_FAILED_MEM, 8, 20);
    program_alloc(p, 0, EP_KIND_REALLOC_FREE_MEM, 16, -1);
    program_alloc(p, 0, EP_KIND_REALLOC_FAILED_MEM, 16, 20);

    ep_blocks blocks = program_blocks(p, NULL);

    ck_assert_uint_eq(blocks.count, 1);
    ck_assert_uint_eq(blocks.death[0], EP_ROW_NONE);
    ck_assert_uint_eq(blocks.flags[0], 0);
    ep_blocks_clear(&blocks);
    program_free(p);
}
END_TEST

START_TEST(values_are_no_blocks_and_part_no_realloc)
{
    program *p = program_new();
    program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 0x1000, 16);
    program_alloc(p, 0, EP_KIND_CREATE, 0x1000, -1);
    program_alloc(p, 0, EP_KIND_REALLOC_FREE_OBJ, 0x1000, -1);
    program_alloc(p, 0, EP_KIND_COUNTER, 0x1000, -1);
    program_alloc(p, 0, EP_KIND_REALLOC_OBJ, 0x2000, 32);
    program_alloc(p, 0, EP_KIND_DESTROY, 0x2000, -1);

    ep_blocks blocks = program_blocks(p, NULL);

    ck_assert_uint_eq(blocks.count, 2);
    ck_assert_uint_eq(blocks.older_count, 0);
    ck_assert_int_eq(blocks.previous[1], 0);
    ck_assert_uint_eq(blocks.death[0], 2);
    ck_assert_uint_eq(blocks.death[1], EP_ROW_NONE);
    ck_assert_int_eq(blocks.event_block[1], -1);
    ck_assert_int_eq(blocks.event_block[5], -1);
    ck_assert_int_eq(p->columns.size[3], -1);
    ep_blocks_clear(&blocks);
    program_free(p);
}
END_TEST

START_TEST(unknown_frees_are_older_until_something_may_be_lost)
{
    program *p = program_new();
    program_alloc(p, 0, EP_KIND_FREE_OBJ, 8, -1);
    program_alloc(p, 0, EP_KIND_FREE_OBJ, 16, -1);
    program_alloc(p, 0, EP_KIND_FREE_OBJ, 24, -1);
    p->input.lost_from_ns = 1;

    ep_blocks blocks = program_blocks(p, NULL);

    ck_assert_uint_eq(blocks.older_count, 1);
    ck_assert_uint_eq(blocks.malloc_lost_count, 2);
    ck_assert_int_eq(p->columns.size[0], -1);
    ep_blocks_clear(&blocks);
    program_free(p);
}
END_TEST

/* A block, another one at the same address on thread 1, and `after` ns later a free by `thread`. */
static ep_blocks
blocks_of_one_address(program *p, int64_t after, int32_t thread)
{
    program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 8, 10);
    program_alloc(p, 1, EP_KIND_MALLOC_OBJ, 8, 20);
    p->now = 1 + after;
    program_alloc(p, thread, EP_KIND_FREE_OBJ, 8, -1);
    program_alloc(p, 1, EP_KIND_FREE_OBJ, 8, -1);
    return program_blocks(p, NULL);
}

START_TEST(late_free_of_another_thread_is_mended)
{
    program *p = program_new();

    ep_blocks blocks = blocks_of_one_address(p, EP_PAIR_SKEW_NS, 0);

    ck_assert_uint_eq(blocks.death[0], 2);
    ck_assert_uint_eq(blocks.death[1], 3);
    ck_assert_uint_ne(blocks.flags[0] & EP_BLOCK_MENDED, 0);
    ck_assert_uint_eq(blocks.mended_count, 1);
    ck_assert_uint_eq(blocks.free_lost_count, 0);
    ck_assert_int_eq(p->columns.size[2], 10);
    ck_assert_int_eq(p->columns.size[3], 20);
    ep_blocks_clear(&blocks);
    program_free(p);
}
END_TEST

START_TEST(free_of_the_same_thread_leaves_the_older_free_lost)
{
    program *p = program_new();

    ep_blocks blocks = blocks_of_one_address(p, 1, 1);

    ck_assert_uint_eq(blocks.death[0], 1);
    ck_assert_uint_eq(blocks.death[1], 2);
    ck_assert_uint_eq(blocks.flags[0], EP_BLOCK_FREE_LOST);
    ck_assert_int_eq(blocks.end[0], 1);
    ck_assert_int_eq(blocks.free_thread[0], -1);
    ck_assert_uint_eq(blocks.free_lost_count, 1);
    ck_assert_int_eq(blocks.free_lost[0], 0);
    ck_assert_uint_eq(blocks.older_count, 1);
    ep_blocks_clear(&blocks);
    program_free(p);
}
END_TEST

START_TEST(free_much_later_leaves_the_older_free_lost)
{
    program *p = program_new();

    ep_blocks blocks = blocks_of_one_address(p, EP_PAIR_SKEW_NS + 1, 0);

    ck_assert_uint_eq(blocks.death[0], 1);
    ck_assert_uint_eq(blocks.death[1], 2);
    ck_assert_uint_eq(blocks.mended_count, 0);
    ep_blocks_clear(&blocks);
    program_free(p);
}
END_TEST

START_TEST(deaths_are_told_apart_by_flags)
{
    program *p = program_new();
    program_call(p, 0, EP_KIND_CALL, 1);
    program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 8, 1);     /* freed next, by this call */
    program_alloc(p, 0, EP_KIND_FREE_OBJ, 8, -1);
    program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 8, 2);     /* by this call, not next */
    program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 16, 3);    /* next, but by another call */
    program_alloc(p, 0, EP_KIND_FREE_OBJ, 8, -1);
    program_call(p, 0, EP_KIND_RETURN, NAME_OF(1));
    program_alloc(p, 0, EP_KIND_FREE_OBJ, 16, -1);
    program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 24, 4);    /* next, outside all calls */
    program_alloc(p, 1, EP_KIND_MALLOC_OBJ, 32, 5);    /* next, but by another thread */
    program_alloc(p, 0, EP_KIND_FREE_OBJ, 24, -1);
    program_alloc(p, 0, EP_KIND_FREE_OBJ, 32, -1);

    ep_calls calls = program_calls(p);
    ep_blocks blocks = program_blocks(p, &calls);

    static const uint8_t want[] = {
        EP_BLOCK_BRIEF | EP_BLOCK_LOCAL,
        EP_BLOCK_LOCAL,
        EP_BLOCK_BRIEF,
        EP_BLOCK_BRIEF,
        0,
    };
    for (int i = 0; i < 5; i++) ck_assert_uint_eq(blocks.flags[i], want[i]);
    ep_calls_clear(&calls);
    ep_blocks_clear(&blocks);
    program_free(p);
}
END_TEST

START_TEST(moment_counts_the_events_up_to_a_time)
{
    program *p = program_new();
    for (int i = 0; i < 3; i++) {
        p->now = 10;
        program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 8 * (uint64_t)i, 1);
    }
    p->now = 20;
    program_alloc(p, 0, EP_KIND_FREE_OBJ, 0, -1);

    static const int64_t times[] = {-1, 9, 10, 19, 20, 1000};
    static const size_t moments[] = {0, 0, 3, 3, 4, 4};
    for (int i = 0; i < 6; i++) {
        ck_assert_uint_eq(ep_blocks_moment(&p->input, times[i]), moments[i]);
    }
    program_free(p);
}
END_TEST

START_TEST(many_blocks_may_be_alive)
{
    program *p = program_new();
    for (uint64_t i = 0; i < 50000; i++) program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 16 * i, 1);
    for (uint64_t i = 0; i < 50000; i++) program_alloc(p, 0, EP_KIND_FREE_OBJ, 16 * i, -1);

    ep_blocks blocks = program_blocks(p, NULL);

    for (uint32_t i = 0; i < 50000; i++) ck_assert_uint_eq(blocks.death[i], 50000 + i);
    ep_blocks_clear(&blocks);
    program_free(p);
}
END_TEST

/* Quadratic work would not end: one address a million times, and 250,000 addresses once, with few
 * alive at any time. */
START_TEST(reused_addresses_stay_linear)
{
    program *p = program_new();
    for (uint64_t i = 0; i < 1000000; i++) {
        program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 0x1000, (int64_t)i);
        program_alloc(p, 0, EP_KIND_FREE_OBJ, 0x1000, -1);
        if (i % 4 == 0) {
            program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 0x100000 + 16 * i, 1);
        }
        if (i % 4 == 0 && i >= 400) {
            program_alloc(p, 0, EP_KIND_FREE_OBJ, 0x100000 + 16 * (i - 400), -1);
        }
    }

    ep_blocks blocks;
    ck_assert_int_eq(ep_pair_blocks(&p->input, NULL, &blocks), EP_OK);

    size_t alive = 0;
    for (size_t i = 0; i < blocks.count; i++) alive += blocks.death[i] == EP_ROW_NONE;
    ck_assert_uint_eq(alive, 100);
    ck_assert_uint_eq(blocks.older_count, 0);
    ep_blocks_clear(&blocks);
    program_free(p);
}
END_TEST

/* ---- Blocks: random programs ----------------------------------------------------------------- */

/* An allocator of an imagined program: a list of what is in use. */
typedef struct heap {
    program *p;
    uint64_t random;
    struct held {
        uint64_t address;
        int32_t block;
    } *held;
    size_t held_count;
    uint64_t *spare;       /* addresses to give out again */
    size_t spare_count;
    uint64_t fresh;
    /* what should come out, by block */
    size_t count;
    uint32_t *birth;
    uint32_t *death;
    int32_t *previous;
    size_t mended;
} heap;

static heap *
heap_new(uint64_t seed, size_t events)
{
    heap *h = must(calloc(1, sizeof *h));
    h->p = program_new();
    h->random = seed;
    h->fresh = 0x10000;
    h->held = must(calloc(events + 4, sizeof *h->held));
    h->spare = must(calloc(events + 4, sizeof *h->spare));
    h->birth = must(calloc(events + 4, sizeof *h->birth));
    h->death = must(calloc(events + 4, sizeof *h->death));
    h->previous = must(calloc(events + 4, sizeof *h->previous));
    return h;
}

static void
heap_free(heap *h)
{
    program_free(h->p);
    free(h->held);
    free(h->spare);
    free(h->birth);
    free(h->death);
    free(h->previous);
    free(h);
}

static void
heap_malloc(heap *h, int32_t thread, unsigned operation, uint64_t address, int32_t previous)
{
    size_t event = program_alloc(h->p, thread, operation + EP_DOMAIN_MEM, address,
                                 (int64_t)below(&h->random, 500));
    int32_t block = (int32_t)h->count++;
    h->birth[block] = (uint32_t)event;
    h->death[block] = EP_ROW_NONE;
    h->previous[block] = previous;
    h->held[h->held_count++] = (struct held){.address = address, .block = block};
}

/* Returns: an address that nobody has. */
static uint64_t
heap_address(heap *h)
{
    if (h->spare_count > 0 && !one_in(&h->random, 3)) {
        return h->spare[--h->spare_count];
    }
    return h->fresh += 16 * (1 + below(&h->random, 5));
}

static struct held
heap_take(heap *h)
{
    size_t i = below(&h->random, h->held_count);
    struct held taken = h->held[i];
    h->held[i] = h->held[--h->held_count];
    return taken;
}

static void
heap_step(heap *h)
{
    int32_t thread = (int32_t)below(&h->random, THREADS);
    uint64_t what = below(&h->random, 16);
    if (h->held_count == 0 || what < 7) {
        heap_malloc(h, thread, one_in(&h->random, 4) ? EP_KIND_CALLOC : EP_KIND_MALLOC,
                    heap_address(h), -1);
        return;
    }
    struct held held = heap_take(h);
    if (what < 12) {
        size_t event = program_alloc(h->p, thread, EP_KIND_FREE_MEM, held.address, -1);
        h->death[held.block] = (uint32_t)event;
        h->spare[h->spare_count++] = held.address;
    } else if (what < 14) {
        uint64_t address = one_in(&h->random, 2) ? held.address : heap_address(h);
        size_t event = program_alloc(h->p, thread, EP_KIND_REALLOC_FREE_MEM, held.address, -1);
        h->death[held.block] = (uint32_t)event;
        heap_malloc(h, thread, EP_KIND_REALLOC, address, held.block);
    } else if (what < 15) {
        program_alloc(h->p, thread, EP_KIND_REALLOC_FREE_MEM, held.address, -1);
        program_alloc(h->p, thread, EP_KIND_REALLOC_FAILED_MEM, held.address, 1 << 30);
        h->held[h->held_count++] = held;
    } else {
        /* Freed, and given out again on the next thread, whose clock is ahead. */
        heap_malloc(h, (thread + 1) % THREADS, EP_KIND_MALLOC, held.address, -1);
        size_t event = program_alloc(h->p, thread, EP_KIND_FREE_MEM, held.address, -1);
        h->death[held.block] = (uint32_t)event;
        h->mended++;
    }
}

START_TEST(random_allocations_are_rebuilt_exactly)
{
    for (uint64_t seed = 0; seed < 40; seed++) {
        size_t steps = seed * seed * 20;
        heap *h = heap_new(seed, 2 * steps);
        for (size_t i = 0; i < steps; i++) heap_step(h);

        ep_blocks blocks = program_blocks(h->p, NULL);

        ck_assert_uint_eq(blocks.count, h->count);
        ck_assert_uint_eq(blocks.mended_count, h->mended);
        ck_assert_uint_eq(blocks.free_lost_count + blocks.malloc_lost_count, 0);
        ck_assert_uint_eq(blocks.older_count, 0);
        for (size_t i = 0; i < h->count; i++) {
            ck_assert_uint_eq(blocks.birth[i], h->birth[i]);
            ck_assert_uint_eq(blocks.death[i], h->death[i]);
            ck_assert_int_eq(blocks.previous[i], h->previous[i]);
        }
        ep_blocks_clear(&blocks);
        heap_free(h);
    }
}
END_TEST

/* ---- Blocks: any stream ---------------------------------------------------------------------- */

#define ADDRESSES 6

/* pair.h to the letter, for few addresses and without a table: who lives where, and who was there
 * before. */
typedef struct plain_pairing {
    int32_t living[ADDRESSES];     /* block; -1: none */
    int32_t older[ADDRESSES];      /* that `living` was born on top of; -1: none, or settled */
    int32_t moving[THREADS];       /* allocator event; -1: none */
    uint32_t death[20000];         /* by block */
    int32_t previous[20000];
    uint8_t flags[20000];
    int32_t on_top_of[20000];
    int32_t event_block[20000];    /* by event */
    int32_t count;
    size_t unknown;
} plain_pairing;

static void
plain_death(plain_pairing *plain, const ep_blocks *blocks, int32_t event)
{
    const ep_columns *columns = blocks->input->columns;
    size_t row = columns->alloc_row[event];
    uint64_t at = columns->address[event];
    int32_t block = plain->living[at];
    plain->event_block[event] = -1;
    if (ep_kind_is(columns->kind[row], EP_KIND_REALLOC_FREE)) {
        plain->moving[columns->thread[row]] = event;
    }
    if (block < 0) {
        plain->unknown++;
        return;
    }
    size_t birth_row = columns->alloc_row[blocks->birth[block]];
    int32_t ended = block;
    if (plain->older[at] >= 0 && columns->thread[birth_row] != columns->thread[row] &&
        columns->time_ns[row] - columns->time_ns[birth_row] <= EP_PAIR_SKEW_NS) {
        ended = plain->older[at];
        plain->flags[ended] |= EP_BLOCK_MENDED;
    } else {
        plain->living[at] = -1;
    }
    plain->older[at] = -1;
    plain->death[ended] = (uint32_t)event;
    plain->event_block[event] = ended;
}

static int32_t
plain_take_moving(plain_pairing *plain, const ep_columns *columns, int32_t event)
{
    size_t row = columns->alloc_row[event];
    int32_t from = plain->moving[columns->thread[row]];
    plain->moving[columns->thread[row]] = -1;
    if (from < 0 || ep_kinds[columns->kind[columns->alloc_row[from]]].domain !=
                        ep_kinds[columns->kind[row]].domain) {
        return -1;
    }
    return from;
}

static void
plain_event(plain_pairing *plain, const ep_blocks *blocks, int32_t event)
{
    const ep_columns *columns = blocks->input->columns;
    const ep_kind_info *info = ep_alloc_kind(blocks->input, (size_t)event);
    uint64_t at = columns->address[event];
    if (info->pairing == EP_PAIRING_CLOSES) {
        plain_death(plain, blocks, event);
    } else if (info->pairing == EP_PAIRING_OPENS) {
        int32_t block = plain->count++;
        bool moved = strcmp(info->word, "realloc") == 0;
        int32_t from = moved ? plain_take_moving(plain, columns, event) : -1;
        plain->previous[block] = from >= 0 ? plain->event_block[from] : -1;
        plain->event_block[event] = block;
        plain->death[block] = EP_ROW_NONE;
        plain->on_top_of[block] = plain->older[at] = plain->living[at];
        plain->living[at] = block;
    } else {
        int32_t from = plain_take_moving(plain, columns, event);
        plain->event_block[event] = -1;
        if (from >= 0 && columns->address[from] == at && plain->event_block[from] >= 0 &&
            plain->living[at] < 0) {
            int32_t block = plain->event_block[from];
            plain->event_block[from] = -1;
            plain->death[block] = EP_ROW_NONE;
            plain->flags[block] |= EP_BLOCK_REVIVED;
            plain->living[at] = block;
        }
    }
}

/* New: the pairing of a whole window. */
static plain_pairing *
plain_new(const ep_blocks *blocks)
{
    plain_pairing *plain = must(calloc(1, sizeof *plain));
    memset(plain->living, -1, sizeof plain->living);
    memset(plain->older, -1, sizeof plain->older);
    memset(plain->moving, -1, sizeof plain->moving);
    for (size_t event = 0; event < blocks->input->columns->alloc_count; event++) {
        plain_event(plain, blocks, (int32_t)event);
    }
    for (int32_t block = 0; block < plain->count; block++) {
        int32_t older = plain->on_top_of[block];
        if (older >= 0 && plain->death[older] == EP_ROW_NONE) {
            plain->death[older] = blocks->birth[block];
            plain->flags[older] |= EP_BLOCK_FREE_LOST;
        }
    }
    return plain;
}

START_TEST(any_allocations_are_paired_as_by_search)
{
    static const unsigned operations[] = {
        EP_KIND_MALLOC,
        EP_KIND_CALLOC,
        EP_KIND_REALLOC,
        EP_KIND_REALLOC_FREE,
        EP_KIND_FREE,
        EP_KIND_REALLOC_FAILED,
        EP_KIND_REALLOC_FREE,
        EP_KIND_FREE,
    };
    for (uint64_t seed = 0; seed < 60; seed++) {
        uint64_t random = seed;
        program *p = program_new();
        for (int i = 0; i < 3000; i++) {
            unsigned operation = operations[below(&random, 8)];
            unsigned kind = operation + (unsigned)below(&random, 1 + seed % 3);
            bool is_free = ep_kinds[kind].family == EP_FAMILY_FREE;
            int64_t size = is_free ? -1 : (int64_t)below(&random, 100);
            program_alloc(p, (int32_t)below(&random, 3), kind, below(&random, ADDRESSES), size);
            p->now += one_in(&random, 3) ? (int64_t)below(&random, 2 * EP_PAIR_SKEW_NS) : 0;
        }

        ep_blocks blocks;
        ck_assert_int_eq(ep_pair_blocks(&p->input, NULL, &blocks), EP_OK);

        plain_pairing *plain = plain_new(&blocks);
        ck_assert_int_eq(blocks.count, plain->count);
        ck_assert_uint_eq(blocks.older_count, plain->unknown);
        for (int32_t i = 0; i < plain->count; i++) {
            ck_assert_uint_eq(blocks.death[i], plain->death[i]);
            ck_assert_int_eq(blocks.previous[i], plain->previous[i]);
            ck_assert_uint_eq(blocks.flags[i], plain->flags[i]);
        }
        for (size_t event = 0; event < p->columns.alloc_count; event++) {
            ck_assert_int_eq(blocks.event_block[event], plain->event_block[event]);
        }
        free(plain);
        ep_blocks_clear(&blocks);
        program_free(p);
    }
}
END_TEST

/* ---- Progress and failures ------------------------------------------------------------------- */

typedef struct listener {
    size_t told;
    size_t stop_at;    /* that many times; 0: never */
    size_t done;
} listener;

static bool
listen(void *context, size_t done, size_t total)
{
    listener *l = context;
    ck_assert_uint_gt(done, l->done);
    ck_assert_uint_le(done, total);
    l->done = done;
    return ++l->told != l->stop_at;
}

/* Twice EP_PROGRESS_ROWS, and a bit. */
static program *
long_program(void)
{
    program *p = program_new();
    for (size_t i = 0; i < 2 * EP_PROGRESS_ROWS + 5; i++) {
        program_alloc(p, 0, EP_KIND_FREE_OBJ, 8, -1);
    }
    return p;
}

START_TEST(progress_is_told_rarely)
{
    program *p = long_program();
    listener of_calls = {0};
    listener of_blocks = {0};
    ep_calls calls;
    ep_blocks blocks;

    ck_assert_int_eq(ep_pair_calls(&p->input, &(ep_progress){listen, &of_calls}, &calls), EP_OK);
    ck_assert_int_eq(ep_pair_blocks(&p->input, &(ep_progress){listen, &of_blocks}, &blocks), EP_OK);

    ck_assert_uint_eq(of_calls.told, 3);
    ck_assert_uint_eq(of_blocks.told, 2);
    ep_calls_clear(&calls);
    ep_blocks_clear(&blocks);
    program_free(p);
}
END_TEST

START_TEST(pairing_stops_when_asked)
{
    program *p = long_program();
    listener of_calls = {.stop_at = 2};
    listener of_blocks = {.stop_at = 2};

    ck_assert_int_eq(ep_pair_calls(&p->input, &(ep_progress){listen, &of_calls}, NULL), EP_STATE);
    ck_assert_int_eq(ep_pair_blocks(&p->input, &(ep_progress){listen, &of_blocks}, NULL), EP_STATE);

    ck_assert_uint_eq(of_calls.done, 2 * EP_PROGRESS_ROWS);
    ck_assert_uint_eq(of_blocks.done, 2 * EP_PROGRESS_ROWS);
    program_free(p);
}
END_TEST

/* ---- Blocks beside calls --------------------------------------------------------------------- */

/* Any stream of calls and allocations, with frees that come late and reallocs that failed. */
static program *
mixed_program(uint64_t seed, size_t count)
{
    static const unsigned calls[] = {EP_KIND_CALL, EP_KIND_C_CALL, EP_KIND_RETURN, EP_KIND_C_RETURN};
    static const unsigned operations[] = {EP_KIND_MALLOC, EP_KIND_REALLOC_FREE, EP_KIND_REALLOC,
                                          EP_KIND_FREE, EP_KIND_REALLOC_FAILED};
    program *p = program_new();
    for (size_t i = 0; i < count; i++) {
        int32_t thread = (int32_t)below(&seed, THREADS);
        if (one_in(&seed, 2)) {
            size_t which = below(&seed, 4);
            uint32_t function = 1 + (uint32_t)below(&seed, FUNCTIONS - 1);
            program_call(p, thread, calls[which], which < 2 ? function : NAME_OF(function));
        } else {
            unsigned kind = operations[below(&seed, 5)] + EP_DOMAIN_MEM;
            bool is_free = ep_kinds[kind].family == EP_FAMILY_FREE;
            program_alloc(p, thread, kind, below(&seed, 64),
                          is_free ? -1 : (int64_t)below(&seed, 100));
        }
    }
    return p;
}

static void
assert_same_blocks(const ep_blocks *one, const ep_blocks *other)
{
    size_t count = one->count;
    ck_assert_uint_eq(other->count, count);
    ck_assert_mem_eq(other->birth, one->birth, count * sizeof *one->birth);
    ck_assert_mem_eq(other->death, one->death, count * sizeof *one->death);
    ck_assert_mem_eq(other->previous, one->previous, count * sizeof *one->previous);
    ck_assert_mem_eq(other->flags, one->flags, count * sizeof *one->flags);
    size_t event_count = one->input->columns->alloc_count;
    ck_assert_mem_eq(other->event_block, one->event_block, event_count * sizeof *one->event_block);
    ck_assert_uint_eq(other->free_lost_count, one->free_lost_count);
    ck_assert_mem_eq(other->free_lost, one->free_lost,
                     one->free_lost_count * sizeof *one->free_lost);
    ck_assert_uint_eq(other->mended_count, one->mended_count);
    ck_assert_uint_eq(other->older_count, one->older_count);
    ck_assert_uint_eq(other->malloc_lost_count, one->malloc_lost_count);
}

static void
assert_same_calls(const ep_calls *one, const ep_calls *other)
{
    size_t count = one->count;
    ck_assert_uint_eq(other->count, count);
    ck_assert_mem_eq(other->open_row, one->open_row, count * sizeof *one->open_row);
    ck_assert_mem_eq(other->close_row, one->close_row, count * sizeof *one->close_row);
    ck_assert_mem_eq(other->parent, one->parent, count * sizeof *one->parent);
    ck_assert_mem_eq(other->flags, one->flags, count * sizeof *one->flags);
    ck_assert_mem_eq(other->row_call, one->row_call,
                     one->input->columns->count * sizeof *one->row_call);
    ck_assert_uint_eq(other->unmatched_count, one->unmatched_count);
    ck_assert_uint_eq(other->end_unseen_count, one->end_unseen_count);
}

/* Begins with so few rows, however few processors there are. */
static ep_blocks_apart *
begin_apart(program *p, size_t rows, const ep_progress *progress)
{
    ep_apart_limits before = ep_apart_limit;
    ep_apart_limit = (ep_apart_limits){.rows = rows, .processors = 1};
    ep_blocks_apart *apart = ep_pair_blocks_begin(&p->input, progress);
    ep_apart_limit = before;
    return apart;
}

START_TEST(blocks_paired_beside_calls_are_the_same)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        program *in_turn = mixed_program(seed, 20000);
        program *at_once = mixed_program(seed, 20000);
        ep_calls calls[2];
        ep_blocks blocks[2];
        ck_assert_int_eq(ep_pair_calls(&in_turn->input, NULL, &calls[0]), EP_OK);
        ck_assert_int_eq(ep_pair_blocks(&in_turn->input, NULL, &blocks[0]), EP_OK);

        ep_blocks_apart *apart = begin_apart(at_once, 0, NULL);
        ck_assert_ptr_nonnull(apart);
        ck_assert_int_eq(ep_pair_calls(&at_once->input, NULL, &calls[1]), EP_OK);
        ck_assert_int_eq(ep_pair_blocks_join(apart, true, &blocks[1]), EP_OK);

        assert_same_calls(&calls[0], &calls[1]);
        assert_same_blocks(&blocks[0], &blocks[1]);
        ck_assert_mem_eq(at_once->columns.size, in_turn->columns.size,
                         in_turn->columns.alloc_count * sizeof *in_turn->columns.size);
        for (int i = 0; i < 2; i++) {
            ep_calls_clear(&calls[i]);
            ep_blocks_clear(&blocks[i]);
        }
        program_free(in_turn);
        program_free(at_once);
    }
}
END_TEST

START_TEST(second_thread_needs_work_and_processors)
{
    ep_apart_limits shipped = ep_apart_limit;
    ck_assert_uint_ge(shipped.rows, 10000000);
    ck_assert_uint_ge(shipped.processors, 2);
    program *p = mixed_program(1, 100);
    program *of_calls = program_new();
    program_call(of_calls, 0, EP_KIND_CALL, 1);

    ck_assert_ptr_null(begin_apart(p, 100, NULL));
    ck_assert_ptr_null(begin_apart(of_calls, 0, NULL));
    ep_apart_limit = (ep_apart_limits){.rows = 99, .processors = SIZE_MAX};
    ep_blocks_apart *without = ep_pair_blocks_begin(&p->input, NULL);
    ep_apart_limit = shipped;
    ck_assert_ptr_null(without);

    ep_blocks_apart *apart = begin_apart(p, 99, NULL);
    ck_assert_ptr_nonnull(apart);
    ep_blocks blocks;
    ck_assert_int_eq(ep_pair_blocks_join(apart, true, &blocks), EP_OK);
    ep_blocks_clear(&blocks);
    program_free(of_calls);
    program_free(p);
}
END_TEST

START_TEST(second_thread_tells_only_the_one_that_waits)
{
    program *p = long_program();
    listener heard = {0};
    ep_blocks blocks = {0};

    ep_blocks_apart *apart = begin_apart(p, 0, &(ep_progress){listen, &heard});
    ck_assert_ptr_nonnull(apart);
    ep_status status = ep_pair_blocks_join(apart, false, &blocks);

    ck_assert(status == EP_OK || status == EP_STATE);    /* as far as it was by then */
    ck_assert_uint_eq(heard.told, 0);
    ck_assert_int_eq(blocks.event_block != NULL, status == EP_OK);
    ep_blocks_clear(&blocks);

    /* Stopped by what it tells, if it had any left to tell. */
    heard.stop_at = 1;
    apart = begin_apart(p, 0, &(ep_progress){listen, &heard});
    ck_assert_ptr_nonnull(apart);
    status = ep_pair_blocks_join(apart, true, &blocks);
    ck_assert_int_eq(status, heard.told == 1 ? EP_STATE : EP_OK);
    ep_blocks_clear(&blocks);
    program_free(p);
}
END_TEST

#ifdef EP_FAULT_POINTS

START_TEST(second_thread_reports_every_failed_allocation)
{
    program *p = mixed_program(1, 4000);
    long in_turn = 0;
    long failed = 0;
    long nth = 0;
    for (bool reached = true; reached; nth++) {
        ep_blocks blocks = {0};
        atomic_store(&ep_fault_countdown, nth);
        ep_blocks_apart *apart = begin_apart(p, 0, NULL);
        ep_status status = apart != NULL ? ep_pair_blocks_join(apart, true, &blocks) : EP_OK;
        reached = atomic_exchange(&ep_fault_countdown, -1) < 0;
        in_turn += apart == NULL;
        failed += status == EP_NOMEM;
        ck_assert_int_eq(reached, apart == NULL || status == EP_NOMEM);
        ep_blocks_clear(&blocks);
    }

    ck_assert_int_eq(in_turn, 2);    /* no room to note it; no thread */
    ck_assert_int_gt(failed, 5);
    ck_assert_int_eq(in_turn + failed + 1, nth);
    program_free(p);
}
END_TEST

/* All of it, with a stack, a table and suspects that grow. */
static ep_status
pair_everything(program *p)
{
    ep_calls calls = {0};
    ep_blocks blocks = {0};
    ep_status status = ep_pair_calls(&p->input, NULL, &calls);
    if (status == EP_OK) {
        status = ep_calls_fill(&calls, UINT_MAX);
    }
    if (status == EP_OK) {
        status = ep_pair_blocks(&p->input, NULL, &blocks);
    }
    if (status == EP_OK) {
        status = ep_blocks_fill(&blocks, &calls, UINT_MAX);
    }
    ep_calls_clear(&calls);
    ep_blocks_clear(&blocks);
    return status;
}

START_TEST(every_failed_allocation_is_reported)
{
    program *p = program_new();
    program_open(p, 1, EP_KIND_CALL, 1);
    for (uint64_t i = 0; i < 4000; i++) {
        program_call(p, (int32_t)(i & 1), EP_KIND_CALL, 1);
        program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 16 * (i / 2), 8);
    }

    long nth = 0;
    for (bool reached = true; reached; nth++) {
        atomic_store(&ep_fault_countdown, nth);
        ep_status status = pair_everything(p);
        reached = atomic_exchange(&ep_fault_countdown, -1) < 0;
        ck_assert_int_eq(status, reached ? EP_NOMEM : EP_OK);
    }

    ck_assert_int_gt(nth, 40);
    program_free(p);
}
END_TEST

#endif

EP_TEST_MAIN("pair",
             nested_calls_become_a_tree,
             rows_know_their_call_and_its_depth,
             end_of_an_outer_call_ends_those_above,
             end_ends_the_innermost_call_of_its_function,
             end_without_a_call_is_unmatched_and_changes_nothing,
             ends_of_c_and_of_python_never_match,
             spans_and_the_collector_are_calls_of_the_tree_and_points_are_in_them,
             unknown_functions_match_each_other_alone,
             ids_beyond_the_map_are_unknown,
             generator_has_a_row_for_each_slice,
             calls_open_at_start_come_first,
             calls_open_at_start_begin_where_the_ring_does,
             calls_open_at_end_end_with_the_window,
             calls_open_at_end_end_where_their_thread_does,
             threads_have_stacks_of_their_own,
             call_is_recursive_while_its_function_is_open_on_the_thread,
             empty_window_has_no_calls_and_no_blocks,
             window_that_is_too_large_is_refused,
             unmatched_ends_do_not_search_a_deep_stack_again,
             random_programs_are_rebuilt_exactly,
             any_stream_is_paired_as_by_search,
             free_ends_the_block_and_learns_its_size,
             size_of_a_block_may_exceed_32_bits,
             any_address_is_a_key,
             realloc_makes_a_block_that_knows_the_previous,
             realloc_in_another_domain_is_not_of_that_block,
             realloc_of_an_unknown_block_has_no_previous,
             block_survives_a_realloc_that_failed,
             failed_realloc_without_its_first_half_changes_nothing,
             values_are_no_blocks_and_part_no_realloc,
             unknown_frees_are_older_until_something_may_be_lost,
             late_free_of_another_thread_is_mended,
             free_of_the_same_thread_leaves_the_older_free_lost,
             free_much_later_leaves_the_older_free_lost,
             deaths_are_told_apart_by_flags,
             moment_counts_the_events_up_to_a_time,
             many_blocks_may_be_alive,
             reused_addresses_stay_linear,
             random_allocations_are_rebuilt_exactly,
             any_allocations_are_paired_as_by_search,
             progress_is_told_rarely,
             blocks_paired_beside_calls_are_the_same,
             second_thread_needs_work_and_processors,
             second_thread_tells_only_the_one_that_waits,
#ifdef EP_FAULT_POINTS
             second_thread_reports_every_failed_allocation,
             every_failed_allocation_is_reported,
#endif
             pairing_stops_when_asked)
