/* pair.h: calls. */
#include "ep_program.h"
#include "worker.h"

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
        if (info->form != EP_FORM_CALL) {
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
             any_stream_is_paired_as_by_search)
