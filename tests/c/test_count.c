/* Counting: views, slots, calls that do not nest, threads that come and go, reading. */
#include "count.h"

#include <sched.h>
#include <string.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

#include "ep_check.h"
#include "ep_model.h"
#include "fault.h"
#include "os.h"

#define KEY(name) ((uintptr_t)(name) << 4)

static ep_count_view *
view_now(void)
{
    ep_count_thread *thread = ep_count_mine();
    ck_assert_ptr_nonnull(thread);
    ck_assert_uint_eq(thread->view_count, 1);
    thread->views[0]->begun = true;
    return thread->views[0];
}

static ep_counter *
started(uint64_t ticks)
{
    ck_assert_int_eq(ep_count_init(), EP_OK);
    ep_counter *counter = ep_counter_new();
    counter->calls = counter->c_calls = true;
    ck_assert_int_eq(ep_counter_start(counter, ticks), EP_OK);
    return counter;
}

static void
open_at(uint32_t name, uint64_t ticks)
{
    ep_count_view *view = view_now();
    ck_assert(ep_count_open(view, ep_count_slot_of(view, name), KEY(name), ticks, false));
}

static bool
close_at(uint32_t name, uint64_t ticks)
{
    return ep_count_close(view_now(), KEY(name), NULL, ticks);
}

static ep_count_rows
read_at(ep_counter *counter, uint64_t ticks)
{
    ep_count_rows rows;
    ck_assert_int_eq(ep_counter_read(counter, ticks, &rows), EP_OK);
    return rows;
}

/* Zero, if it has none. */
static ep_count_row
row_of(const ep_count_rows *rows, uint32_t name)
{
    for (size_t i = 0; i < rows->count; i++) {
        if (rows->rows[i].name == name) {
            return rows->rows[i];
        }
    }
    return (ep_count_row){.name = name};
}

START_TEST(a_call_counts_its_time_and_its_callers)
{
    ep_counter *counter = started(100);

    open_at(1, 100);
    open_at(2, 110);
    ck_assert(close_at(2, 140));
    open_at(2, 150);
    ck_assert(close_at(2, 160));
    ck_assert(close_at(1, 200));

    ep_count_rows rows = read_at(counter, 300);
    ep_count_row outer = row_of(&rows, 1), inner = row_of(&rows, 2);
    ck_assert_uint_eq(outer.calls, 1);
    ck_assert_uint_eq(outer.total, 100);
    ck_assert_uint_eq(outer.self, 60);
    ck_assert_uint_eq(inner.calls, 2);
    ck_assert_uint_eq(inner.total, 40);
    ck_assert_uint_eq(inner.min, 10);
    ck_assert_uint_eq(inner.max, 30);
    ck_assert_uint_eq(inner.whole, 2);
    ck_assert_uint_eq(inner.whole_ticks, 40);
    ck_assert_uint_eq(rows.ticks, 200);
    free(rows.rows);
    ep_counter_free(counter);
}
END_TEST

START_TEST(recursive_calls_count_once_into_total)
{
    ep_counter *counter = started(0);

    open_at(7, 0);
    open_at(7, 10);
    open_at(8, 20);
    open_at(7, 30);
    ck_assert(close_at(7, 40));
    ck_assert(close_at(8, 50));
    ck_assert(close_at(7, 60));
    ck_assert(close_at(7, 70));

    ep_count_rows rows = read_at(counter, 100);
    ep_count_row row = row_of(&rows, 7);
    ck_assert_uint_eq(row.calls, 3);
    ck_assert_uint_eq(row.recursive, 2);
    ck_assert_uint_eq(row.total, 70);
    ck_assert_uint_eq(row.self, 50);
    ck_assert_uint_eq(row.whole_ticks, 70 + 50 + 10);
    free(rows.rows);
    ep_counter_free(counter);
}
END_TEST

START_TEST(an_end_ends_what_is_above_it_and_one_that_fits_nothing_is_left_out)
{
    ep_counter *counter = started(0);

    open_at(1, 0);
    open_at(2, 10);
    open_at(3, 20);
    ck_assert(!close_at(4, 25));
    ck_assert(close_at(1, 30));
    ck_assert(!close_at(2, 40));

    ep_count_rows rows = read_at(counter, 50);
    ep_count_row second = row_of(&rows, 2);
    ck_assert_uint_eq(rows.unmatched, 2);
    ck_assert_uint_eq(second.total, 20);
    ck_assert_uint_eq(second.whole, 0);
    ck_assert_uint_eq(row_of(&rows, 1).whole, 1);
    ck_assert_uint_eq(row_of(&rows, 1).self + second.self + row_of(&rows, 3).self, 30);
    free(rows.rows);
    ep_counter_free(counter);
}
END_TEST

START_TEST(what_is_absent_is_found_again_once_it_is_opened)
{
    ep_counter *counter = started(0);

    for (uint32_t i = 1; i <= 1000; i++) open_at(i, 5);
    ck_assert(!close_at(2000, 5));
    ck_assert(!close_at(2000, 5));
    open_at(2000, 5);
    ck_assert(close_at(2000, 6));
    ck_assert(close_at(1, 7));

    ep_counter_free(counter);
}
END_TEST

START_TEST(calls_open_before_and_after_count_while_the_window_is_open)
{
    ep_counter *counter = started(1000);
    ep_count_view *view = view_now();
    (void)ep_count_open_before(view, ep_count_slot_of(view, 1), KEY(1), 1000);
    (void)ep_count_open_before(view, ep_count_slot_of(view, 1), KEY(1), 1000);

    open_at(1, 1010);
    ck_assert(close_at(1, 1020));
    ck_assert(close_at(1, 1030));
    open_at(2, 1040);
    ep_counter_stop(counter, 1100);

    ep_count_rows rows = read_at(counter, 5000);
    ep_count_row row = row_of(&rows, 1), open = row_of(&rows, 2);
    ck_assert_uint_eq(row.calls, 1);
    ck_assert_uint_eq(row.recursive, 1);
    ck_assert_uint_eq(row.total, 100);
    ck_assert_uint_eq(row.self, 40);
    ck_assert_uint_eq(row.whole, 1);
    ck_assert_uint_eq(row.whole_ticks, 10);
    ck_assert_uint_eq(open.calls, 1);
    ck_assert_uint_eq(open.whole, 0);
    ck_assert_uint_eq(open.total, 60);
    ck_assert_uint_eq(rows.ticks, 100);
    free(rows.rows);
    ep_counter_free(counter);
}
END_TEST

START_TEST(our_own_code_is_its_callers_time_and_hides_itself)
{
    ep_counter *counter = started(0);
    ep_count_view *view = view_now();

    open_at(1, 0);
    (void)ep_count_open_own(view, KEY(99), 10);
    ck_assert(ep_count_top_is_own(view));
    open_at(2, 20);
    ck_assert_uint_eq(view->top->key, KEY(2) | EP_COUNT_ABOVE_OWN);
    ck_assert(close_at(2, 50));
    ep_count_close_own(view, KEY(99), 60);
    ck_assert(close_at(1, 100));

    ep_count_rows rows = read_at(counter, 100);
    ck_assert_uint_eq(row_of(&rows, 99).calls, 0);
    ck_assert_uint_eq(row_of(&rows, 1).self, 70);
    ck_assert_uint_eq(row_of(&rows, 2).self, 30);
    free(rows.rows);
    ep_counter_free(counter);
}
END_TEST

START_TEST(blocks_belong_to_the_innermost_call_until_they_are_taken_back)
{
    ep_counter *counter = started(0);
    ep_count_thread *thread = ep_count_mine();

    ep_count_add_block(thread, 7, 0x1000);
    open_at(1, 0);
    ep_count_add_block(thread, 100, 0x2000);
    ep_count_add_block(thread, 20, 0x3000);
    ck_assert(!ep_count_take_block(thread, 0x2000));
    ck_assert(ep_count_take_block(thread, 0x3000));
    ck_assert(ep_count_take_block(thread, 0x2000));
    ck_assert(!ep_count_take_block(thread, 0x1000));
    ep_count_add_block(thread, 3, 0x4000);
    ep_count_keep_blocks(thread);
    ck_assert(!ep_count_take_block(thread, 0x4000));

    ep_count_rows rows = read_at(counter, 1);
    ck_assert_uint_eq(row_of(&rows, 1).bytes, 3);
    ck_assert_uint_eq(row_of(&rows, 1).blocks, 1);
    ck_assert_uint_eq(rows.rows[0].bytes, 7);
    free(rows.rows);
    ep_counter_free(counter);
}
END_TEST

/* ---- A model ----------------------------------------------------------------------------------- */

#define NAMES 9
typedef struct model {
    uint32_t open[64];
    uint64_t start[64], inside[64];
    size_t depth;
    uint64_t calls[NAMES], total[NAMES], self[NAMES], recursive[NAMES];
} model;

static void
model_pop(model *m, uint64_t now)
{
    m->depth -= 1;
    uint32_t name = m->open[m->depth];
    uint64_t elapsed = now - m->start[m->depth];
    bool outer = true;
    for (size_t i = 0; i < m->depth; i++) outer = outer && m->open[i] != name;
    m->self[name] += elapsed - m->inside[m->depth];
    m->total[name] += outer ? elapsed : 0;
    m->recursive[name] += !outer;
    if (m->depth > 0)
        m->inside[m->depth - 1] += elapsed;
}

START_TEST(random_programs_count_as_a_model_does)
{
    uint64_t random = 98765;
    for (int round = 0; round < 200; round++) {
        ep_counter *counter = started(0);
        model m = {.depth = 0};
        uint64_t now = 1;

        for (int step = 0; step < 300; step++) {
            now += ep_model_below(&random, 4);
            uint32_t name = 1 + (uint32_t)ep_model_below(&random, NAMES - 1);
            if (m.depth < 60 && ep_model_below(&random, 5) < 3) {
                open_at(name, now);
                m.calls[name] += 1;
                m.open[m.depth] = name;
                m.start[m.depth] = now;
                m.inside[m.depth++] = 0;
            } else {
                size_t at = m.depth;
                while (at > 0 && m.open[at - 1] != name) at--;
                ck_assert_int_eq(close_at(name, now), at > 0);
                while (at > 0 && m.depth >= at) model_pop(&m, now);
            }
        }
        ep_count_rows rows = read_at(counter, now + 5);
        while (m.depth > 0) model_pop(&m, now + 5);

        uint64_t self = 0;
        for (uint32_t name = 1; name < NAMES; name++) {
            ep_count_row row = row_of(&rows, name);
            ck_assert_uint_eq(row.calls, m.calls[name]);
            ck_assert_uint_eq(row.total, m.total[name]);
            ck_assert_uint_eq(row.self, m.self[name]);
            ck_assert_uint_eq(row.recursive, m.recursive[name]);
            self += row.self;
        }
        ck_assert_uint_le(self, now + 5);
        free(rows.rows);
        ep_counter_free(counter);
    }
}
END_TEST

/* ---- Threads, windows, counters -------------------------------------------------------------- */

static void *
calls_one(void *unused)
{
    (void)unused;
    uint64_t now = ep_count_ticks();
    open_at(3, now);
    ck_assert(close_at(3, now + 1));
    open_at(4, now + 2);    /* ends with the thread */
    return NULL;
}

START_TEST(threads_that_ended_are_counted_and_leave_their_views_to_others)
{
    ep_counter *counter = started(ep_count_ticks());
    size_t bytes = 0;

    for (int i = 0; i < 50; i++) {
        pthread_t thread;
        ck_assert_int_eq(pthread_create(&thread, NULL, calls_one, NULL), 0);
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
        bytes = i == 0 ? ep_counter_bytes(counter) : bytes;
    }

    ck_assert_uint_eq(ep_counter_bytes(counter), bytes);
    ep_count_rows rows = read_at(counter, ep_count_ticks());
    ck_assert_uint_eq(row_of(&rows, 3).calls, 50);
    ck_assert_uint_eq(row_of(&rows, 4).calls, 50);
    ck_assert_uint_eq(row_of(&rows, 4).whole, 0);
    free(rows.rows);
    ep_counter_free(counter);
}
END_TEST

START_TEST(a_counter_starts_at_zero_again_and_others_go_on)
{
    ep_counter *first = started(0), *second = ep_counter_new();
    open_at(1, 10);
    ck_assert(close_at(1, 20));
    ck_assert_int_eq(ep_counter_start(second, 20), EP_OK);
    ck_assert_int_eq(ep_counter_start(second, 20), EP_STATE);
    ep_count_thread *thread = ep_count_mine();
    ck_assert_uint_eq(thread->view_count, 2);
    for (size_t i = 0; i < 2; i++) {
        ep_count_view *view = thread->views[i];
        (void)ep_count_open(view, ep_count_slot_of(view, 1), KEY(1), 30, true);
        ck_assert(ep_count_close(view, KEY(1), NULL, 40));
    }
    ep_counter_stop(first, 50);

    ck_assert_int_eq(ep_counter_start(first, 60), EP_OK);
    ep_counter_stop(second, 70);

    ep_count_rows a = read_at(first, 80), b = read_at(second, 80);
    ck_assert_uint_eq(row_of(&a, 1).calls, 0);
    ck_assert_uint_eq(row_of(&a, 1).resumes, 0);
    ck_assert_uint_eq(row_of(&b, 1).resumes, 1);
    ck_assert_uint_eq(row_of(&b, 1).calls, 0);
    free(a.rows);
    free(b.rows);
    ep_counter_free(first);
    ep_counter_free(second);
}
END_TEST

START_TEST(no_more_run_than_there_is_room_for)
{
    ck_assert_int_eq(ep_count_init(), EP_OK);
    ep_counter *counters[EP_COUNTERS_MAX + 1];
    for (size_t i = 0; i <= EP_COUNTERS_MAX; i++) counters[i] = ep_counter_new();

    for (size_t i = 0; i <= EP_COUNTERS_MAX; i++) {
        ck_assert_int_eq(ep_counter_start(counters[i], 1), i < EP_COUNTERS_MAX ? EP_OK : EP_STATE);
    }
    ck_assert_ptr_null(ep_counter_running(EP_COUNTERS_MAX));

    for (size_t i = 0; i <= EP_COUNTERS_MAX; i++) ep_counter_free(counters[i]);
    ck_assert_ptr_null(ep_counter_running(0));
}
END_TEST

START_TEST(memory_goes_by_functions_and_not_by_calls)
{
    ep_counter *counter = started(0);
    for (uint32_t name = 1; name <= 5000; name++) {
        open_at(name, name);
        ck_assert(close_at(name, name + 1));
    }
    size_t bytes = ep_counter_bytes(counter);

    for (uint64_t i = 0; i < 300000; i++) {
        uint32_t name = 1 + (uint32_t)(i % 5000);
        open_at(name, i);
        ck_assert(close_at(name, i + 1));
    }

    ck_assert_uint_eq(ep_counter_bytes(counter), bytes);
    ep_count_rows rows = read_at(counter, 1);
    ck_assert_uint_eq(rows.count, 5001);
    ck_assert_uint_eq(row_of(&rows, 4711).calls, 61);
    free(rows.rows);
    ep_counter_free(counter);
}
END_TEST

START_TEST(a_forked_child_begins_anew_and_keeps_what_is_open)
{
    ep_counter *counter = started(0);
    open_at(1, 10);
    open_at(2, 20);
    ck_assert(close_at(2, 30));

    ep_count_after_fork(100);
    ck_assert(close_at(1, 150));

    ep_count_rows rows = read_at(counter, 200);
    ck_assert_uint_eq(row_of(&rows, 1).calls, 0);
    ck_assert_uint_eq(row_of(&rows, 1).total, 50);
    ck_assert_uint_eq(row_of(&rows, 2).total, 0);
    ck_assert_uint_eq(rows.ticks, 100);
    free(rows.rows);
    ep_counter_free(counter);
}
END_TEST

#if defined(__linux__) && !EP_MODEL_TSAN

static _Atomic bool has_lock, may_give_lock_back;

static void *
hold_lock(void *unused)
{
    ep_mutex_lock(&ep_count_mutex);
    atomic_store(&has_lock, true);
    while (!atomic_load(&may_give_lock_back)) {
        sched_yield();
    }
    ep_mutex_unlock(&ep_count_mutex);
    return unused;
}

/* In the child: what went wrong, 0 for nothing. */
static int
use_counters(ep_counter *counter)
{
    ep_count_rows rows;
    (void)alarm(120);    /* it would wait for ever */
    if (ep_counter_read(counter, 1, &rows) != EP_NOMEM || ep_counter_bytes(counter) != sizeof *counter) {
        return 1;
    }
    ep_count_after_fork(1);
    ep_counter_stop(counter, 1);
    if (!counter->running || ep_counter_start(counter, 1) != EP_NOMEM) {
        return 2;
    }
    ep_counter_free(counter);    /* it runs still */
    ep_counter_changed();
    if (ep_count_mine() != NULL) {
        return 3;    /* the calls are not counted */
    }
    pid_t child = fork();    /* the handlers of a fork take the lock, too */
    if (child == 0) {
        (void)alarm(120);
        _exit(ep_counter_bytes(counter) == sizeof *counter && ep_count_mine() == NULL ? 0 : 4);
    }
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 5;
}

START_TEST(a_bare_child_does_not_wait_for_a_thread_that_has_the_lock)
{
    ep_counter *counter = started(0);
    open_at(1, 10);
    ck_assert(ep_os_note_process());
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, hold_lock, NULL), 0);
    while (!atomic_load(&has_lock)) sched_yield();

    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        _exit(use_counters(counter));
    }

    int status = 0;
    while (waitpid(child, &status, 0) != child) {
    }
    atomic_store(&may_give_lock_back, true);    /* before it may fail: the next test needs the lock */
    pthread_join(thread, NULL);
    ck_assert_int_eq(status, 0);
    ck_assert(close_at(1, 20));
    ep_counter_free(counter);
}
END_TEST
#define BARE_TESTS , a_bare_child_does_not_wait_for_a_thread_that_has_the_lock
#else
#define BARE_TESTS
#endif

#ifdef EP_FAULT_POINTS
/* Whichever request fails: what found no memory is counted as lost, and the rest is right. */
START_TEST(without_memory_calls_are_lost_and_counted)
{
    for (long request = 0; request < 40; request++) {
        ep_counter *counter = started(0);
        (void)ep_count_mine();
        uint64_t opened = 0;
        ep_fault_countdown = request;

        ep_count_thread *thread = ep_count_mine();
        for (uint32_t name = 1; name <= 400 && thread != NULL && thread->view_count == 1; name++) {
            ep_count_view *view = thread->views[0];
            ep_count_slot *slot = ep_count_slot_of(view, name);
            opened += slot != NULL && ep_count_open(view, slot, KEY(name), name, false);
        }
        ep_fault_countdown = -1;

        ep_count_rows rows = read_at(counter, 1000);
        uint64_t calls = 0;
        for (size_t i = 0; i < rows.count; i++) calls += rows.rows[i].calls;
        ck_assert_uint_eq(calls, opened);
        ck_assert(thread == NULL || thread->view_count == 0 || opened + rows.lost == 400);
        free(rows.rows);
        ep_counter_free(counter);
    }
}
END_TEST
#define FAULT_TESTS , without_memory_calls_are_lost_and_counted
#else
#define FAULT_TESTS
#endif

EP_TEST_MAIN("count", a_call_counts_its_time_and_its_callers, recursive_calls_count_once_into_total,
             an_end_ends_what_is_above_it_and_one_that_fits_nothing_is_left_out,
             what_is_absent_is_found_again_once_it_is_opened,
             calls_open_before_and_after_count_while_the_window_is_open,
             our_own_code_is_its_callers_time_and_hides_itself,
             blocks_belong_to_the_innermost_call_until_they_are_taken_back,
             random_programs_count_as_a_model_does,
             threads_that_ended_are_counted_and_leave_their_views_to_others,
             a_counter_starts_at_zero_again_and_others_go_on, no_more_run_than_there_is_room_for,
             memory_goes_by_functions_and_not_by_calls,
             a_forked_child_begins_anew_and_keeps_what_is_open BARE_TESTS FAULT_TESTS)
