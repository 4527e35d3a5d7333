/* pair.h: progress, failures, and blocks paired on a second thread beside the calls. */
#include "ep_program.h"
#include "worker.h"

#include <limits.h>

/* ---- Progress and failures ------------------------------------------------------------------- */

typedef struct listener {
    size_t times;
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
    return ++l->times != l->stop_at;
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

    ck_assert_uint_eq(of_calls.times, 3);
    ck_assert_uint_eq(of_blocks.times, 2);
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
            bool is_free = ep_kinds[kind].form == EP_FORM_FREE;
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
static ep_blocks_worker *
begin_apart(program *p, size_t rows, const ep_progress *progress)
{
    ep_worker_limits before = ep_worker_limit;
    ep_worker_limit = (ep_worker_limits){.rows = rows, .processors = 1};
    ep_blocks_worker *apart = ep_pair_blocks_begin(&p->input, progress);
    ep_worker_limit = before;
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

        ep_blocks_worker *apart = begin_apart(at_once, 0, NULL);
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
    ep_worker_limits shipped = ep_worker_limit;
    ck_assert_uint_ge(shipped.rows, 10000000);
    ck_assert_uint_ge(shipped.processors, 2);
    program *p = mixed_program(1, 100);
    program *of_calls = program_new();
    program_call(of_calls, 0, EP_KIND_CALL, 1);

    ck_assert_ptr_null(begin_apart(p, 100, NULL));
    ck_assert_ptr_null(begin_apart(of_calls, 0, NULL));
    ep_worker_limit = (ep_worker_limits){.rows = 99, .processors = SIZE_MAX};
    ep_blocks_worker *without = ep_pair_blocks_begin(&p->input, NULL);
    ep_worker_limit = shipped;
    ck_assert_ptr_null(without);

    ep_blocks_worker *apart = begin_apart(p, 99, NULL);
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

    ep_blocks_worker *apart = begin_apart(p, 0, &(ep_progress){listen, &heard});
    ck_assert_ptr_nonnull(apart);
    ep_status status = ep_pair_blocks_join(apart, false, &blocks);

    ck_assert(status == EP_OK || status == EP_STATE);    /* as far as it was by then */
    ck_assert_uint_eq(heard.times, 0);
    ck_assert_int_eq(blocks.event_block != NULL, status == EP_OK);
    ep_blocks_clear(&blocks);

    /* Stopped by what it tells, if it had any left to tell. */
    heard.stop_at = 1;
    apart = begin_apart(p, 0, &(ep_progress){listen, &heard});
    ck_assert_ptr_nonnull(apart);
    status = ep_pair_blocks_join(apart, true, &blocks);
    ck_assert_int_eq(status, heard.times == 1 ? EP_STATE : EP_OK);
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
        ep_blocks_worker *apart = begin_apart(p, 0, NULL);
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

EP_TEST_MAIN("pair_beside",
             progress_is_told_rarely,
             pairing_stops_when_asked,
             blocks_paired_beside_calls_are_the_same,
             second_thread_needs_work_and_processors,
#ifdef EP_FAULT_POINTS
             second_thread_reports_every_failed_allocation,
             every_failed_allocation_is_reported,
#endif
             second_thread_tells_only_the_one_that_waits)
