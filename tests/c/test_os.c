/* os.h and the heap helpers of memory.h. */
#include "ep_model.h"

#ifdef __linux__
#include <sched.h>
#endif
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- Memory ---------------------------------------------------------------------------------- */

START_TEST(mapped_pages_are_zero_and_writable)
{
    const size_t bytes = 3 * 4096 + 12347;

    unsigned char *at = ep_os_map(bytes);

    ck_assert_ptr_nonnull(at);
    for (size_t i = 0; i < bytes; i++) {
        ck_assert_uint_eq(at[i], 0);
    }
    memset(at, 0xA5, bytes);
    ep_os_unmap(at, bytes);
}
END_TEST

START_TEST(touched_pages_are_zero_writable_and_given_back_in_parts)
{
    const size_t half = 1 << 20;

    unsigned char *at = ep_os_map_touched(2 * half);

    ck_assert_ptr_nonnull(at);
    for (size_t i = 0; i < 2 * half; i++) {
        if (at[i] != 0) {
            ck_abort_msg("byte %zu is not zero", i);
        }
    }
    memset(at, 0xA5, 2 * half);
    ep_os_unmap(at, half);
    ck_assert_uint_eq(at[half], 0xA5);
    ck_assert_uint_eq(at[2 * half - 1], 0xA5);
    ep_os_unmap(at + half, half);
}
END_TEST

START_TEST(grow_keeps_what_is_there_and_zeroes_the_rest)
{
    uint32_t *block = NULL;
    size_t capacity = 0;
    ck_assert(ep_grow((void **)&block, &capacity, 3, sizeof *block));
    block[0] = 12347;
    block[capacity - 1] = 54321;
    size_t before = capacity;

    ck_assert(ep_grow((void **)&block, &capacity, before + 1, sizeof *block));

    ck_assert_uint_ge(capacity, 2 * before);
    ck_assert_uint_eq(block[0], 12347);
    ck_assert_uint_eq(block[before - 1], 54321);
    for (size_t i = before; i < capacity; i++) {
        ck_assert_uint_eq(block[i], 0);
    }
    free(block);
}
END_TEST

START_TEST(grow_does_nothing_where_there_is_room)
{
    uint32_t *block = NULL;
    size_t capacity = 0;
    ck_assert(ep_grow_raw((void **)&block, &capacity, 16, sizeof *block));
    uint32_t *before = block;

    ck_assert(ep_grow_raw((void **)&block, &capacity, 16, sizeof *block));

    ck_assert_ptr_eq(block, before);
    ck_assert_uint_eq(capacity, 16);
    free(block);
}
END_TEST

START_TEST(realloc_refuses_a_size_that_overflows)
{
    void *block = ep_realloc(NULL, 4, 8);

    ck_assert_ptr_null(ep_realloc(block, SIZE_MAX / 8 + 2, 8));

    free(block);
}
END_TEST

START_TEST(no_bytes_are_no_failure)
{
    void *cleared = ep_calloc(0, 8), *raw = ep_realloc(NULL, 0, 8);

    ck_assert_ptr_nonnull(cleared);
    ck_assert_ptr_nonnull(raw);

    free(cleared);
    free(raw);
}
END_TEST

#ifdef EP_FAULT_POINTS
START_TEST(countdown_fails_the_nth_request_and_no_other)
{
    bool got[6];
    atomic_store(&ep_fault_countdown, 3);

    for (int i = 0; i < 6; i++) {
        void *block = i % 2 ? ep_calloc(1, 8) : ep_realloc(NULL, 1, 8);
        got[i] = block != NULL;
        free(block);
    }

    for (int i = 0; i < 6; i++) {
        ck_assert_int_eq(got[i], i != 3);
    }
}
END_TEST

START_TEST(failed_grow_changes_nothing)
{
    uint32_t *block = NULL;
    size_t capacity = 0;
    ck_assert(ep_grow((void **)&block, &capacity, 1, sizeof *block));
    block[0] = 12347;
    uint32_t *before = block;
    size_t capacity_before = capacity;
    atomic_store(&ep_fault_countdown, 0);

    ck_assert(!ep_grow((void **)&block, &capacity, capacity + 1, sizeof *block));

    ck_assert_ptr_eq(block, before);
    ck_assert_uint_eq(capacity, capacity_before);
    ck_assert_uint_eq(block[0], 12347);
    free(block);
}
END_TEST

START_TEST(failed_map_gives_null)
{
    atomic_store(&ep_fault_countdown, 0);

    ck_assert_ptr_null(ep_os_map(4096));
}
END_TEST
#endif

/* ---- Identity and clocks --------------------------------------------------------------------- */

static void *
take_thread_id(void *out)
{
    *(uint64_t *)out = ep_os_thread_id();
    return NULL;
}

START_TEST(threads_have_ids_of_their_own)
{
    uint64_t other = 0;

    ep_model_join(ep_model_spawn(take_thread_id, &other));

    ck_assert_uint_ne(other, 0);
    ck_assert_uint_ne(other, ep_os_thread_id());
    ck_assert_uint_eq(ep_os_thread_id(), ep_os_thread_id());
}
END_TEST

START_TEST(process_id_is_the_kernels)
{
    ck_assert_uint_eq(ep_os_process_id(), (uint64_t)getpid());
}
END_TEST

START_TEST(clocks_never_go_backwards)
{
    int64_t (*const clocks[])(void) = {ep_os_monotonic_ns, ep_os_boottime_ns};

    for (int i = 0; i < 2; i++) {
        int64_t last = clocks[i]();
        for (int j = 0; j < 10000; j++) {
            int64_t now = clocks[i]();
            ck_assert_int_ge(now, last);
            last = now;
        }
    }
}
END_TEST

START_TEST(realtime_counts_from_1970)
{
    time_t before = time(NULL);

    int64_t now_ns = ep_os_realtime_ns();

    /* time() may read a coarser clock, up to a tick of the kernel behind. */
    ck_assert_int_ge(now_ns / 1000000000, before);
    ck_assert_int_le(now_ns / 1000000000, time(NULL) + 1);
}
END_TEST

/* ---- End of a thread ------------------------------------------------------------------------- */

static _Atomic int exits;
static _Atomic int other_runs, other_runs_before_exit, other_wants;
static pthread_key_t other_key;

static void
on_exit_of_thread(void *value)
{
    (void)value;
    atomic_fetch_add(&exits, 1);
    atomic_store(&other_runs_before_exit, atomic_load(&other_runs));
}

/* A destructor of somebody else, who comes after ours in each round, and again and again. */
static void
other_destructor(void *value)
{
    int run = atomic_fetch_add(&other_runs, 1);
    if (atomic_load(&other_wants) == run) {
        ep_os_thread_exit_set(value);
    }
    /* ThreadSanitizer forgets a thread before the last round. */
    if (run < (EP_MODEL_TSAN ? 1 : 100)) {
        pthread_setspecific(other_key, value);
    }
}

static void
install_exit_handlers(void)
{
    static bool done;
    if (!done) {
        ck_assert_int_eq(ep_os_thread_exit_install(on_exit_of_thread), EP_OK);
        ck_assert_int_eq(pthread_key_create(&other_key, other_destructor), 0);
        done = true;
    }
    atomic_store(&exits, 0);
    atomic_store(&other_runs, 0);
    atomic_store(&other_runs_before_exit, 0);
    atomic_store(&other_wants, -1);
}

static void *
set_both_and_end(void *value)
{
    pthread_setspecific(other_key, value);
    ep_os_thread_exit_set(value);
    return NULL;
}

static void *
set_other_and_end(void *value)
{
    pthread_setspecific(other_key, value);
    return NULL;
}

START_TEST(exit_handler_runs_once_after_the_destructors_of_others)
{
    install_exit_handlers();

    ep_model_join(ep_model_spawn(set_both_and_end, &exits));

    ck_assert_int_eq(atomic_load(&exits), 1);
    ck_assert_int_eq(atomic_load(&other_runs_before_exit), 1);
}
END_TEST

START_TEST(exit_handler_runs_for_a_value_set_in_a_destructor)
{
    for (int round = 0; round < (EP_MODEL_TSAN ? 1 : 2); round++) {
        install_exit_handlers();
        atomic_store(&other_wants, round);

        ep_model_join(ep_model_spawn(set_other_and_end, &exits));

        ck_assert_int_eq(atomic_load(&exits), 1);
    }
}
END_TEST

START_TEST(exit_handler_runs_again_for_a_value_set_after_it)
{
    install_exit_handlers();
    atomic_store(&other_wants, 1);

    ep_model_join(ep_model_spawn(set_both_and_end, &exits));

    ck_assert_int_eq(atomic_load(&exits), 2);
}
END_TEST

START_TEST(thread_that_set_nothing_has_no_exit_handler)
{
    install_exit_handlers();

    ep_model_join(ep_model_spawn(set_other_and_end, &exits));

    ck_assert_int_eq(atomic_load(&exits), 0);
    ck_assert(!ep_os_thread_exit_over());
}
END_TEST

/* ---- Fork ------------------------------------------------------------------------------------ */

static int prepared, in_parent, in_child;

static void
count_prepare(void)
{
    prepared += 1;
}

static void
count_parent(void)
{
    in_parent += 1;
}

static void
count_child(void)
{
    in_child += 1;
}

START_TEST(fork_handlers_run_around_a_fork)
{
    ck_assert_int_eq(ep_os_fork_install(count_prepare, count_parent, count_child), EP_OK);
    prepared = in_parent = in_child = 0;

    pid_t child = fork();
    if (child == 0) {
        _exit(prepared * 100 + in_parent * 10 + in_child);
    }
    int status = 0;
    ck_assert_int_eq(waitpid(child, &status, 0), child);

    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 101);
    ck_assert_int_eq(prepared, 1);
    ck_assert_int_eq(in_parent, 1);
    ck_assert_int_eq(in_child, 0);
}
END_TEST

/* ---- Processors ------------------------------------------------------------------------------ */

START_TEST(processors_are_those_that_the_thread_may_use)
{
    ck_assert_uint_ge(ep_os_processor_count(), 1);
#ifdef __linux__
    cpu_set_t before, first;
    ck_assert_int_eq(sched_getaffinity(0, sizeof before, &before), 0);
    ck_assert_uint_eq(ep_os_processor_count(), (size_t)CPU_COUNT(&before));
    int processor = 0;
    while (!CPU_ISSET(processor, &before)) {
        processor++;
    }
    CPU_ZERO(&first);
    CPU_SET(processor, &first);
    ck_assert_int_eq(sched_setaffinity(0, sizeof first, &first), 0);
    ck_assert_uint_eq(ep_os_processor_count(), 1);
    ck_assert_int_eq(sched_setaffinity(0, sizeof before, &before), 0);
#endif
}
END_TEST

/* ---- Other threads --------------------------------------------------------------------------- */

#if defined(__linux__) && !EP_MODEL_TSAN    /* ThreadSanitizer has a thread of its own */

typedef struct waiting {
    _Atomic uint64_t id;
    _Atomic bool done;
} waiting;

static void *
wait_until_done(void *argument)
{
    waiting *w = argument;
    atomic_store(&w->id, ep_os_thread_id());
    while (!atomic_load(&w->done)) {
        usleep(1000);
    }
    return NULL;
}

START_TEST(other_threads_are_those_that_are_not_named)
{
    waiting w = {0};
    pthread_t thread = ep_model_spawn(wait_until_done, &w);
    while (atomic_load(&w.id) == 0) {
        usleep(1000);
    }
    const uint64_t both[] = {ep_os_thread_id(), atomic_load(&w.id)};

    ck_assert(ep_os_other_threads_live(both, 1));
    ck_assert(ep_os_other_threads_live(&both[1], 1));
    ck_assert(!ep_os_other_threads_live(both, 2));

    atomic_store(&w.done, true);
    ep_model_join(thread);
    ep_os_thread_await_end(both[1]);
    ck_assert(!ep_os_other_threads_live(both, 1));
}
END_TEST

static void *
look_when_alone(void *unused)
{
    (void)unused;
    const uint64_t own = ep_os_thread_id();
    while (ep_os_other_threads_live(&own, 1)) {
        usleep(1000);
    }
    _exit(7);
}

START_TEST(a_main_thread_that_ended_is_no_other_thread)
{
    pid_t child = fork();
    if (child == 0) {
        (void)ep_model_spawn(look_when_alone, NULL);
        pthread_exit(NULL);
    }
    int status = 0;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}
END_TEST

#endif

EP_TEST_MAIN("os",
             mapped_pages_are_zero_and_writable,
             touched_pages_are_zero_writable_and_given_back_in_parts,
             grow_keeps_what_is_there_and_zeroes_the_rest,
             grow_does_nothing_where_there_is_room,
             realloc_refuses_a_size_that_overflows,
             no_bytes_are_no_failure,
#ifdef EP_FAULT_POINTS
             countdown_fails_the_nth_request_and_no_other,
             failed_grow_changes_nothing,
             failed_map_gives_null,
#endif
             threads_have_ids_of_their_own,
             process_id_is_the_kernels,
             clocks_never_go_backwards,
             realtime_counts_from_1970,
             exit_handler_runs_once_after_the_destructors_of_others,
             exit_handler_runs_for_a_value_set_in_a_destructor,
             exit_handler_runs_again_for_a_value_set_after_it,
             thread_that_set_nothing_has_no_exit_handler,
             fork_handlers_run_around_a_fork,
#if defined(__linux__) && !EP_MODEL_TSAN
             other_threads_are_those_that_are_not_named,
             a_main_thread_that_ended_is_no_other_thread,
#endif
             processors_are_those_that_the_thread_may_use)
