/* engine.h: fork, and what happens without memory. */
#include "ep_tapes.h"

#include <signal.h>

#ifdef __linux__
#include <sys/syscall.h>
#endif

/* ---- Fork ------------------------------------------------------------------------------------ */

/* In the child: what went wrong, 0 for nothing. */
static int
child_of_fork(ep_recorder *recorder, uint32_t thread_id)
{
    ep_log *log = ep_log_mine();
    const uint64_t count = 200000;    /* more than a chunk */
    ep_decoded decoded;
    ep_capture capture;
    if (ep_capture_take(recorder, &capture, NULL) != EP_OK || ep_decode(&capture, 0, &decoded) != EP_OK) {
        return 1;
    }
    if (decoded.columns.count != 0 || decoded.thread_count != 0) {
        return 2;    /* something of the parent's is in it */
    }
    ep_capture_clear(&capture);
    ep_decoded_clear(&decoded);
    for (uint64_t i = 0; i < count; i++) {
        ep_log_put(log, ep_clock_ticks(), EP_KIND_CALL, site_ids[i % SITE_COUNT]);
    }
    if (ep_recorder_stop(recorder, NULL) != EP_OK || ep_capture_take(recorder, &capture, NULL) != EP_OK ||
        ep_decode(&capture, 0, &decoded) != EP_OK) {
        return 3;
    }
    const ep_trace_thread *own = ep_model_thread(&decoded, thread_id);
    if (own == NULL || decoded.thread_count != 1 || own->thread->native_id != ep_os_thread_id()) {
        return 4;
    }
    if (own->recorded[EP_KIND_CALL] + own->lost[EP_KIND_CALL] != count) {
        return 5;
    }
    for (size_t i = 0; i < decoded.columns.count; i++) {
        uint64_t event = count - decoded.columns.count + i;
        if (decoded.columns.id[i] != site_ids[event % SITE_COUNT]) {
            return 6;
        }
    }
    ep_capture_clear(&capture);
    ep_decoded_clear(&decoded);
    ep_recorder_clear(recorder);
    return 0;
}

static int
exit_code_of(pid_t child)
{
    int status = 0;
    while (waitpid(child, &status, 0) != child) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

/* What hangs in a child ends by SIGALRM. */
#define CHILD_LIMIT_S 60

typedef struct churn {
    tape tape;
    _Atomic bool done;
} churn;

/* Needs a chunk all the time: a fork nearly always meets it with the engine's lock or next to
 * it. */
static void *
write_until_done(void *argument)
{
    churn *c = argument;
    ep_log *log = ep_log_mine();
    c->tape.thread_id = log->thread->id;
    while (!atomic_load(&c->done)) {
        for (int i = 0; i < 50; i++) {
            ep_model_event event = next_event(&c->tape, 0);
            event.ticks = ep_clock_ticks();
            ep_model_put(log, &event);
            tape_add(&c->tape, &event);
        }
        ep_log_next_chunk(log, ep_clock_ticks());
        (void)ep_name_add((uintptr_t)c->tape.count << 8, 7, NULL, NULL, NULL);
        if (c->tape.count > 3000000) {
            usleep(100);
        }
    }
    return NULL;
}

START_TEST(a_fork_while_recording_divides_the_two)
{
    setup();
    ep_recorder recorder;
    ep_recorder_options options = {
        .kinds = EP_MODEL_ALL_KINDS, .limit_bytes = EP_CHUNK_BYTES, .clock_any = true};
    ep_recorder_init(&recorder, &options);
    ck_assert_int_eq(ep_recorder_start(&recorder, NULL), EP_OK);
    tape tapes[3] = {own_tape(1)};
    churn churns[2] = {{.tape = {.random = 5}}, {.tape = {.random = 6}}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        threads[i] = ep_model_spawn(write_until_done, &churns[i]);
    }
    ep_log *log = ep_log_mine();
    int rounds = (int)ep_model_work(30), stuck = 0;

    for (int i = 0; i < rounds; i++) {
        for (int j = 0; j < 1000; j++) {
            ep_model_event event = next_event(&tapes[0], 0);
            event.ticks = ep_clock_ticks();
            ep_model_put(log, &event);
            tape_add(&tapes[0], &event);
        }
        pid_t child = fork();
        if (child == 0) {
            signal(SIGALRM, SIG_DFL);    /* Check has a handler for its own */
            alarm(CHILD_LIMIT_S);
            _exit(child_of_fork(&recorder, tapes[0].thread_id));
        }
        int code = exit_code_of(child);
        /* gcc's address sanitizer forks with the locks of its allocator as they are: if another thread has
         * one, the child waits for it for ever. A lock of ours would be met in every round. */
        if (EP_MODEL_SANITIZED && code == 100 + SIGALRM && stuck < rounds / 3) {
            stuck += 1;
            continue;
        }
        ck_assert_int_eq(code, 0);
    }
    for (int i = 0; i < 2; i++) {
        atomic_store(&churns[i].done, true);
        ep_model_join(threads[i]);
        tapes[1 + i] = churns[i].tape;
    }
    ep_model_stop(&recorder);

    judge_stopped(&recorder, tapes, 3);

    ep_recorder_clear(&recorder);
    for (int i = 0; i < 3; i++) {
        tape_free(&tapes[i]);
    }
}
END_TEST

static int
child_with_old_recorders(ep_recorder *recorders, const tape *tapes)
{
    for (int i = 0; i < 2; i++) {
        ep_decoded decoded;
        ep_capture capture;
        if (ep_capture_take(&recorders[i], &capture, NULL) != EP_OK ||
            ep_decode(&capture, 0, &decoded) != EP_OK) {
            return 1;
        }
        for (int j = 0; j < 2; j++) {
            uint64_t emitted = 0, counted = 0;
            for (size_t k = 0; k < tapes[j].count; k++) {
                uint64_t ticks = tapes[j].events[k].ticks;
                emitted += ticks >= recorders[i].start.ticks && ticks <= recorders[i].stop.ticks;
            }
            for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
                counted += ep_model_recorded(&decoded, tapes[j].thread_id, (ep_kind)kind) +
                           ep_model_lost(&decoded, tapes[j].thread_id, (ep_kind)kind);
            }
            if (counted != emitted) {
                return 2 + j;
            }
        }
        ep_capture_clear(&capture);
        ep_decoded_clear(&decoded);
        ep_recorder_clear(&recorders[i]);
    }
    return 0;
}

START_TEST(what_was_stopped_before_the_fork_is_readable_in_the_child)
{
    setup();
    ep_recorder recorders[2];
    tape tapes[2] = {own_tape(1)};
    actor other;
    ep_model_start(&recorders[0], EP_MODEL_ALL_KINDS, 1, EP_ON_FULL_OVERWRITE, EP_CLOCK_INJECTED);
    ep_model_start(&recorders[1], EP_MODEL_ALL_KINDS, 1, EP_ON_FULL_STOP, EP_CLOCK_INJECTED);
    actor_begin(&other, &tapes[1], 2);
    emit(&tapes[0], 200000);
    actor_emit(&other, 200000);
    ep_model_stop(&recorders[0]);
    ep_model_stop(&recorders[1]);
    emit(&tapes[0], 1000);

    pid_t child = fork();
    if (child == 0) {
        _exit(child_with_old_recorders(recorders, tapes));
    }

    ck_assert_int_eq(exit_code_of(child), 0);
    for (int i = 0; i < 2; i++) {
        judge_stopped(&recorders[i], tapes, 2);
        ep_recorder_clear(&recorders[i]);
    }
    actor_end(&other);
    tape_free(&tapes[0]);
    tape_free(&tapes[1]);
}
END_TEST

static int
child_of_thread_without_log(void)
{
    if (ep_log_current != NULL) {
        return 1;
    }
    ep_log *log = ep_log_mine();
    if (log == NULL || ep_engine_get_stats().logs != 1) {
        return 2;
    }
    return 0;
}

static void *
fork_without_log(void *out)
{
    pid_t child = fork();
    if (child == 0) {
        _exit(child_of_thread_without_log());
    }
    *(int *)out = exit_code_of(child);
    return NULL;
}

START_TEST(a_thread_without_a_log_can_fork)
{
    setup();
    ep_recorder recorder;
    tape t = own_tape(1);
    int code = -1;
    ep_model_start(&recorder, EP_MODEL_ALL_KINDS, 1, EP_ON_FULL_OVERWRITE, EP_CLOCK_INJECTED);
    emit(&t, 1000);

    ep_model_join(ep_model_spawn(fork_without_log, &code));

    ck_assert_int_eq(code, 0);
    ep_model_stop(&recorder);
    judge_stopped(&recorder, &t, 1);
    ep_recorder_clear(&recorder);
    tape_free(&t);
}
END_TEST

/* ---- The last thread ------------------------------------------------------------------------- */

#define END_LIMIT_NS INT64_C(60000000000)

static void
leave(void)
{
    _exit(0);    /* not through the handlers of the suite's program */
}

/* The child's only thread, which is no main thread, returns: that ends the process. */
static void *
fork_and_return(void *out)
{
    pid_t child = fork();
    if (child == 0) {
        (void)atexit(leave);
        ep_log *log = ep_log_mine();
        for (uint32_t i = 0; log != NULL && i < 3 * EP_CHUNK_BYTES / 8; i++) {
            ep_log_put(log, ep_clock_ticks(), EP_KIND_CALL, site_ids[i % SITE_COUNT]);
        }
        return NULL;
    }
    int status = 0;
    int64_t end = ep_os_monotonic_ns() + END_LIMIT_NS;
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (ep_os_monotonic_ns() > end) {
            (void)kill(child, SIGKILL);
        }
        usleep(1000);
    }
    *(int *)out = WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
    return NULL;
}

START_TEST(a_child_of_a_thread_ends_with_its_thread)
{
    setup();
    ep_recorder recorder;
    ep_recorder_options options = {
        .kinds = EP_MODEL_ALL_KINDS, .limit_bytes = 16 * EP_CHUNK_BYTES, .clock_any = true};
    ep_recorder_init(&recorder, &options);
    int code = -1;
    ck_assert_int_eq(ep_recorder_start(&recorder, NULL), EP_OK);

    ep_model_join(ep_model_spawn(fork_and_return, &code));

    ck_assert_msg(code == 0, "%d; 109: a helper thread (prefault.h) kept the child alive", code);
    ep_model_stop(&recorder);
    ep_recorder_clear(&recorder);
}
END_TEST

/* ---- A fork by the bare system call ---------------------------------------------------------- */

#if defined(__linux__) && !EP_MODEL_TSAN

static _Atomic bool has_names, may_give_names_back;

static void
keep_names(void *unused)
{
    (void)unused;
    atomic_store(&has_names, true);
    while (!atomic_load(&may_give_names_back)) {
        sched_yield();
    }
}

static void
skip_string(uint32_t id, ep_text text)
{
    (void)id;
    (void)text;
}

static void
skip_name(uint32_t id, const ep_name *name)
{
    (void)id;
    (void)name;
}

static void
skip_site(uint32_t id, const ep_site *site)
{
    (void)id;
    (void)site;
}

static void *
hold_names(void *unused)
{
    static const ep_names_sink nowhere = {skip_string, skip_name, skip_site};
    ep_names_tell_all(&nowhere, keep_names, unused);
    return NULL;
}

/* In the child: what went wrong, 0 for nothing. */
static int
use_names(void)
{
    const ep_name_text text = {.qualname = {"new", 3}, .line = 12347, .kind = EP_NAME_PYTHON};
    const ep_site site = {.callee = name_ids[0], .line = 12347};
    bool existed = true;
    (void)alarm(120);    /* it would wait for ever */
    if (ep_name_add(0x8880, 0, &text, NULL, &existed) != 0 || existed || ep_name_of_text(&text) != 0 ||
        ep_site_add(0x8880, 0x8882, &site) != 0 || ep_string_add(text.qualname) != EP_STRING_NONE) {
        return 1;
    }
    ep_name_describe(name_ids[0], &text);
    ep_name_retire(name_ids[0]);
    if (ep_name_take_object(name_ids[0]) != NULL) {
        return 2;
    }
    if (ep_name_find(0x1000, 0) != name_ids[0]) {
        return 3;    /* what is known is found without the lock */
    }
    /* Nothing is recorded: there is no log, or that of the parent's thread, without room. */
    ep_log *log = ep_log_mine();
    return log == NULL || atomic_load(&log->end) == NULL ? 0 : 4;
}

START_TEST(a_bare_child_does_not_wait_for_a_thread_that_has_the_lock_of_names)
{
    setup();
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, hold_names, NULL), 0);
    while (!atomic_load(&has_names)) sched_yield();

    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        _exit(use_names());
    }

    int code = exit_code_of(child);
    atomic_store(&may_give_names_back, true);    /* before it may fail: the next test needs the lock */
    pthread_join(thread, NULL);
    ck_assert_int_eq(code, 0);
    ck_assert_uint_eq(ep_site_find(0x1000, 0x100000), site_ids[0]);
}
END_TEST

#endif

#ifdef EP_FAULT_POINTS

/* ---- Out of memory --------------------------------------------------------------------------- */

static void
no_memory(void)
{
    atomic_store(&ep_fault_countdown, EP_FAULT_ALWAYS);
}

static void
memory_again(void)
{
    atomic_store(&ep_fault_countdown, -1);
}

/* Recorded and lost of one kind, on all threads and none. */
static uint64_t
accounted(const ep_decoded *decoded, int kind)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < decoded->thread_count; i++) {
        sum += decoded->threads[i].recorded[kind] + decoded->threads[i].lost[kind];
    }
    return sum;
}

static void
judge_counts(ep_recorder *recorder, const tape *tapes, size_t tape_count, int nth)
{
    ep_decoded decoded = ep_model_decode(recorder);
    ep_model_columns(&decoded.columns);
    window w = window_of(recorder);
    uint64_t emitted[EP_KIND_COUNT] = {0};
    for (size_t i = 0; i < tape_count; i++) {
        for (size_t j = 0; j < tapes[i].count; j++) {
            emitted[tapes[i].events[j].kind] += in_window(&w, &tapes[i].events[j]);
        }
    }
    for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
        if (accounted(&decoded, kind) != emitted[kind]) {
            ck_abort_msg("failure %d, %s: %llu accounted for, %llu emitted", nth, ep_kinds[kind].name,
                         (unsigned long long)accounted(&decoded, kind),
                         (unsigned long long)emitted[kind]);
        }
    }
    ep_decoded_clear(&decoded);
}

static void
emit_with_or_without_log(ep_log *log, tape *t, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ep_model_event event = next_event(t, ep_model_tick());
        if (log != NULL) {
            ep_model_put(log, &event);
        } else {
            ep_engine_count_unlogged((ep_kind)event.kind);
        }
        tape_add(t, &event);
    }
}

static void
start_again_if_need_be(ep_recorder *recorder, uint64_t kinds, ep_on_full on_full)
{
    ep_recorder_options options = {.kinds = kinds,
                                   .limit_bytes = EP_CHUNK_BYTES,
                                   .on_full = on_full,
                                   .clock = EP_CLOCK_INJECTED};
    ep_recorder_init(recorder, &options);
    ep_status status = ep_recorder_start(recorder, NULL);
    if (status == EP_NOMEM) {
        status = ep_recorder_start(recorder, NULL);
    }
    ck_assert_int_eq(status, EP_OK);
}

/* One little history, again and again; its nth request for memory fails. */
START_TEST(each_request_for_memory_may_fail)
{
    setup();
    int nth = 0;
    for (bool reached = true; reached; nth++) {
        ep_recorder r[3];
        tape tapes[3] = {own_tape(1)};
        actor other;
        tapes[0].known_sites = true;    /* the table of functions is built, too */
        atomic_store(&ep_fault_countdown, nth);

        start_again_if_need_be(&r[0], EP_MODEL_ALL_KINDS, EP_ON_FULL_OVERWRITE);
        start_again_if_need_be(&r[1], EP_MODEL_CALL_KINDS, EP_ON_FULL_STOP);
        emit(&tapes[0], 1000);
        actor_begin(&other, &tapes[1], 2);
        tapes[1].known_sites = true;
        emit_with_or_without_log(other.log, &tapes[1], 110000);
        start_again_if_need_be(&r[2], EP_MODEL_ALL_KINDS, EP_ON_FULL_GROW);
        emit(&tapes[0], 110000);
        actor_end(&other);
        actor_begin(&other, &tapes[2], 3);
        tapes[2].known_sites = true;
        emit_with_or_without_log(other.log, &tapes[2], 1000);
        actor_end(&other);
        const ep_open_call open[] = {{site_ids[5], EP_KIND_CALL, 0, 0}};
        (void)!ep_recorder_set_open(&r[2], tapes[0].thread_id, open, 1);
        for (int i = 0; i < 3; i++) {
            ep_capture capture;
            ep_decoded decoded;
            ep_functions functions;
            if (ep_capture_take(&r[i], &capture, NULL) == EP_OK) {
                if (ep_decode(&capture, 0, &decoded) == EP_OK) {
                    if (ep_functions_build(&decoded, &functions) == EP_OK) {
                        ep_functions_clear(&functions);
                    }
                    ep_decoded_clear(&decoded);
                }
                ep_capture_clear(&capture);
            }
            ep_model_stop(&r[i]);
        }
        reached = atomic_load(&ep_fault_countdown) < 0;
        memory_again();

        for (int i = 0; i < 3; i++) {
            judge_counts(&r[i], tapes, 3, nth);
            ep_recorder_clear(&r[i]);
        }
        for (int i = 0; i < 3; i++) {
            tape_free(&tapes[i]);
        }
        nth += nth > 24 ? 15 : 0;    /* far on it is one array that grows, and then the next */
    }
    ck_assert_int_gt(nth, 10);
}
END_TEST

START_TEST(without_any_memory_everything_is_counted)
{
    setup();
    static const ep_on_full policies[] = {EP_ON_FULL_OVERWRITE, EP_ON_FULL_STOP, EP_ON_FULL_GROW};
    for (int policy = 0; policy < 3; policy++) {
        ep_recorder recorder;
        tape tapes[2] = {own_tape(1)};
        start_again_if_need_be(&recorder, EP_MODEL_ALL_KINDS, policies[policy]);
        recorder.options.limit_bytes = 100 * EP_CHUNK_BYTES;
        ep_log *log = ep_log_mine();
        emit(&tapes[0], 1000);
        no_memory();
        emit_with_or_without_log(log, &tapes[0], 900000);    /* more than the chunks that lie ready */
        ep_decoded snapshot;
        ep_capture capture;
        memory_again();
        ck_assert_int_eq(ep_capture_take(&recorder, &capture, NULL), EP_OK);
        ck_assert_int_eq(ep_decode(&capture, 0, &snapshot), EP_OK);
        uint64_t in_snapshot = 0;
        for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
            in_snapshot += accounted(&snapshot, kind);
        }
        ck_assert_uint_eq(in_snapshot, tapes[0].count);
        ep_decoded_clear(&snapshot);
        ep_capture_clear(&capture);

        emit(&tapes[0], 200000);    /* with memory: goes on where that is possible */
        ep_model_stop(&recorder);

        judge_counts(&recorder, tapes, 1, policy);
        ck_assert_int_eq(recorder.full_reason,
                         policies[policy] == EP_ON_FULL_OVERWRITE ? EP_FULL_NOT : EP_FULL_NOMEM);
        ep_recorder_clear(&recorder);
        tape_free(&tapes[0]);
    }
}
END_TEST

/* A snapshot that fails leaves the recorder as it was. */
START_TEST(a_failed_snapshot_changes_nothing)
{
    setup();
    ep_recorder recorder;
    tape t = own_tape(1);
    ep_model_start(&recorder, EP_MODEL_ALL_KINDS, 1, EP_ON_FULL_STOP, EP_CLOCK_INJECTED);
    emit(&t, 300000);
    for (int nth = 0;; nth++) {
        ep_capture capture;
        memset(&capture, 0x5A, sizeof capture);
        ep_capture before = capture;
        ep_prefault_stop();    /* or its own requests count down, too */
        atomic_store(&ep_fault_countdown, nth);

        ep_status status = ep_capture_take(&recorder, &capture, NULL);

        bool reached = atomic_load(&ep_fault_countdown) < 0;
        memory_again();
        ck_assert_int_eq(status, reached ? EP_NOMEM : EP_OK);
        if (!reached) {
            ep_capture_clear(&capture);
            break;
        }
        ck_assert_mem_eq(&capture, &before, sizeof capture);
    }
    ep_model_stop(&recorder);
    judge_stopped(&recorder, &t, 1);
    ep_recorder_clear(&recorder);
    tape_free(&t);
}
END_TEST

#endif

EP_TEST_MAIN("engine_fork",
             a_fork_while_recording_divides_the_two,
             a_child_of_a_thread_ends_with_its_thread,
             what_was_stopped_before_the_fork_is_readable_in_the_child,
#ifdef EP_FAULT_POINTS
             each_request_for_memory_may_fail,
             without_any_memory_everything_is_counted,
             a_failed_snapshot_changes_nothing,
#endif
#if defined(__linux__) && !EP_MODEL_TSAN
             a_bare_child_does_not_wait_for_a_thread_that_has_the_lock_of_names,
#endif
             a_thread_without_a_log_can_fork)
