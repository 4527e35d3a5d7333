/* engine.h: threads that come, go, and write all at once. */
#include "ep_tapes.h"

/* ---- Threads that come and go ---------------------------------------------------------------- */

START_TEST(the_next_thread_goes_on_in_a_dead_threads_chunk)
{
    setup();
    ep_recorder recorder;
    tape tapes[5];
    ep_model_start(&recorder, EP_MODEL_ALL_KINDS, 9, EP_ON_FULL_OVERWRITE, EP_CLOCK_INJECTED);
    size_t before = recorder.kept_end;
    for (uint64_t i = 0; i < 5; i++) {
        actor a;
        actor_begin(&a, &tapes[i], i);
        actor_emit(&a, 1000);
        atomic_fetch_add(&ep_model_now, UINT64_C(1) << 32);    /* each has a high half of its own */
        actor_end(&a);
    }
    ep_model_stop(&recorder);

    uint64_t bytes = 0;
    for (size_t i = before; i < recorder.kept_end; i++) {
        bytes += recorder.kept[i]->bytes;
    }
    /* A record has three words at most; a chunk for each would be twice that. */
    ck_assert_uint_le(bytes, 2 * UINT64_C(5000) * 3 * 8);
    judge_stopped(&recorder, tapes, 5);

    ep_recorder_clear(&recorder);
    for (int i = 0; i < 5; i++) {
        tape_free(&tapes[i]);
    }
}
END_TEST

START_TEST(a_dead_threads_chunk_goes_back_when_nobody_wants_it)
{
    setup();
    ep_recorder recorder;
    tape tapes[20];
    actor actors[20];
    ep_model_start(&recorder, EP_MODEL_ALL_KINDS, 9, EP_ON_FULL_OVERWRITE, EP_CLOCK_INJECTED);
    for (uint64_t i = 0; i < 20; i++) {
        actor_begin(&actors[i], &tapes[i], i);
        actor_emit(&actors[i], 10);
    }
    for (int i = 0; i < 20; i++) {
        actor_end(&actors[i]);
    }

    ep_recorder_clear(&recorder);

    ck_assert_uint_le(ep_engine_get_stats().bytes_mapped,
                      (4 + ep_engine_get_stats().logs) * EP_CHUNK_BYTES);
    for (int i = 0; i < 20; i++) {
        tape_free(&tapes[i]);
    }
}
END_TEST

/* Eight threads at once need eight chunks; when they are gone the ring has its size again. */
START_TEST(a_ring_shrinks_to_its_size_when_threads_end)
{
    setup();
    ep_recorder recorder;
    tape tapes[9];
    actor actors[8];
    ep_model_start(&recorder, EP_MODEL_ALL_KINDS, 2, EP_ON_FULL_OVERWRITE, EP_CLOCK_INJECTED);
    for (uint64_t i = 0; i < 8; i++) {
        actor_begin(&actors[i], &tapes[i], i);
        actor_emit(&actors[i], 100);
    }
    for (int i = 0; i < 8; i++) {
        actor_end(&actors[i]);
    }
    tapes[8] = own_tape(99);

    emit(&tapes[8], 400000);

    ck_assert_uint_le(recorder.charged_bytes, 2 * EP_CHUNK_BYTES);
    ep_model_stop(&recorder);
    judge_stopped(&recorder, tapes, 9);
    ep_recorder_clear(&recorder);
    for (int i = 0; i < 9; i++) {
        tape_free(&tapes[i]);
    }
}
END_TEST

/* Threads that each fill some chunks and end: a recorder that is to stop at its limit does
 * so. */
START_TEST(the_limit_holds_however_many_threads_come_and_go)
{
    setup();
    ep_recorder recorder;
    tape tapes[30];
    ep_model_start(&recorder, EP_MODEL_ALL_KINDS, 2, EP_ON_FULL_STOP, EP_CLOCK_INJECTED);
    for (uint64_t i = 0; i < 30; i++) {
        actor a;
        actor_begin(&a, &tapes[i], i);
        actor_emit(&a, 20000);
        actor_end(&a);
    }
    ep_model_stop(&recorder);

    ck_assert_int_eq(recorder.full_reason, EP_FULL_LIMIT);
    ck_assert_uint_le(recorder.charged_bytes, 2 * EP_CHUNK_BYTES + 30 * EP_CHUNK_BYTES_MIN);
    judge_stopped(&recorder, tapes, 30);

    ep_recorder_clear(&recorder);
    for (int i = 0; i < 30; i++) {
        tape_free(&tapes[i]);
    }
}
END_TEST

static void *
emit_three(void *out)
{
    ep_log *log = ep_log_mine();
    if (log != NULL) {
        *(uint32_t *)out = log->thread->id;
        for (int i = 0; i < 3; i++) {
            ep_log_put(log, ep_model_tick(), EP_KIND_CALL, site_ids[0]);
        }
    }
    return NULL;
}

START_TEST(two_thousand_short_threads_leave_no_logs_and_little_memory)
{
    setup();
    const size_t count = ep_model_work(2000);
    ep_recorder recorder;
    uint32_t *ids = calloc(count, sizeof *ids);
    ep_engine_stats before = ep_engine_get_stats();
    ep_model_start(&recorder, EP_MODEL_ALL_KINDS, 64, EP_ON_FULL_OVERWRITE, EP_CLOCK_INJECTED);

    for (size_t i = 0; i < count; i++) {
        ep_model_join(ep_model_spawn(emit_three, &ids[i]));
    }

    ep_engine_stats after = ep_engine_get_stats();
    ck_assert_uint_eq(after.logs, before.logs);
    ck_assert_uint_eq(after.threads, before.threads + count);
    ck_assert_uint_le(after.bytes_mapped, before.bytes_mapped + 128 * count);
    ep_model_stop(&recorder);
    ep_decoded decoded = ep_model_decode(&recorder);
    ck_assert_uint_eq(decoded.columns.count, 3 * count);
    for (size_t i = 0; i < count; i++) {
        if (ep_model_recorded(&decoded, ids[i], EP_KIND_CALL) != 3) {
            ck_abort_msg("thread %zu has not three events", i);
        }
    }
    ep_decoded_clear(&decoded);
    ep_recorder_clear(&recorder);
    free(ids);
}
END_TEST

START_TEST(threads_know_their_names_and_that_they_ended)
{
    setup();
    tape t;
    actor a;
    actor_begin(&a, &t, 1);
    ep_thread *thread = a.log->thread;
    char longest[100];
    memset(longest, 'x', sizeof longest);
    memcpy(&longest[EP_THREAD_NAME_BYTES - 2], "\xC3\xA9", 2);    /* half of it would not fit */

    ep_thread_set_name(thread, (ep_text){NULL, 0});
    ck_assert(!atomic_load(&thread->named));
    ep_thread_set_name(thread, (ep_text){longest, sizeof longest});
    ep_thread_set_name(thread, (ep_text){"later", 5});

    ck_assert_uint_eq(strlen(thread->name), EP_THREAD_NAME_BYTES - 2);
    ck_assert_ptr_eq(ep_engine_thread(thread->id), thread);
    ck_assert_ptr_eq(ep_engine_thread_by_native_id(thread->native_id, false), thread);
    ck_assert_ptr_null(ep_engine_thread(0));
    ck_assert_ptr_null(ep_engine_thread(thread->id + 1));
    ck_assert(!atomic_load(&thread->exited));
    actor_end(&a);
    ck_assert(atomic_load(&thread->exited));
    ck_assert_ptr_null(ep_engine_thread_by_native_id(thread->native_id, false));
}
END_TEST

/* ---- Events in thread-exit destructors ------------------------------------------------------- */

static pthread_key_t late_key;
static _Atomic uint64_t late_emitted;

static void
emit_or_count(void)
{
    ep_log *log = ep_log_mine();
    if (log != NULL) {
        ep_log_put_free(log, ep_model_tick(), EP_KIND_FREE_RAW, 0, 4096);
    } else {
        ep_engine_count_unlogged(EP_KIND_FREE_RAW);
    }
    atomic_fetch_add(&late_emitted, 1);
}

/* After ours in every round, for as many rounds as it likes. */
static void
late_destructor(void *rounds)
{
    emit_or_count();
    pthread_setspecific(late_key, (void *)((uintptr_t)rounds - 1));
}

static void *
end_late(void *rounds)
{
    pthread_setspecific(late_key, rounds);
    return NULL;
}

static void *
emit_and_end_late(void *rounds)
{
    emit_or_count();
    return end_late(rounds);
}

static void
count_late_events(void *(*body)(void *), uintptr_t rounds)
{
    setup();
    static bool made;
    if (!made) {
        ck_assert_int_eq(pthread_key_create(&late_key, late_destructor), 0);
        made = true;
    }
    atomic_store(&late_emitted, 0);
    ep_recorder recorder;
    size_t logs = ep_engine_get_stats().logs;
    size_t mapped = ep_engine_get_stats().chunks_mapped;    /* spare ones of tests before, in one process */
    ep_model_start(&recorder, EP_MODEL_ALL_KINDS, 4, EP_ON_FULL_OVERWRITE, EP_CLOCK_INJECTED);

    for (int i = 0; i < 20; i++) {
        ep_model_join(ep_model_spawn(body, (void *)rounds));
    }
    ep_model_stop(&recorder);

    ep_decoded decoded = ep_model_decode(&recorder);
    uint64_t counted = 0;
    for (size_t i = 0; i < decoded.thread_count; i++) {
        counted += decoded.threads[i].recorded[EP_KIND_FREE_RAW];
        counted += decoded.threads[i].lost[EP_KIND_FREE_RAW];
    }
    ck_assert_uint_eq(counted, atomic_load(&late_emitted));
    ck_assert_uint_eq(ep_engine_get_stats().logs, logs);
    ck_assert_uint_le(ep_engine_get_stats().chunks_mapped, mapped + 8);
    ep_decoded_clear(&decoded);
    ep_recorder_clear(&recorder);
}

START_TEST(events_in_destructors_are_counted)
{
    /* ThreadSanitizer forgets a thread in the last round but one, and cannot bear a lock after
     * it. */
    for (uintptr_t rounds = 1; rounds <= (EP_MODEL_TSAN ? 2 : 8); rounds++) {
        count_late_events(emit_and_end_late, rounds);
    }
}
END_TEST

START_TEST(a_thread_whose_first_event_is_in_a_destructor_leaves_no_log)
{
    for (uintptr_t rounds = 1; rounds <= 2; rounds++) {
        count_late_events(end_late, rounds);
    }
}
END_TEST

/* ---- Random histories, one after the other --------------------------------------------------- */

/* Recorders start, stop, are looked at and cleared, threads come and go, in any order, on the
 * injected clock: the same seed gives the same history. */
#define MOST_TAPES 400
#define MOST_ACTORS 8
#define MOST_RECORDERS 5

typedef struct history {
    uint64_t random;
    tape tapes[MOST_TAPES];
    size_t tape_count;
    actor actors[MOST_ACTORS];
    ep_recorder recorders[MOST_RECORDERS];
    bool used[MOST_RECORDERS];
} history;

static void
history_start(history *h, int at)
{
    static const ep_on_full policies[] = {EP_ON_FULL_OVERWRITE, EP_ON_FULL_OVERWRITE,
                                          EP_ON_FULL_STOP, EP_ON_FULL_GROW};
    uint64_t dice = ep_model_below(&h->random, 4);
    uint64_t kinds = dice == 0   ? EP_MODEL_CALL_KINDS
                     : dice == 1 ? EP_MODEL_ALL_KINDS & ~EP_MODEL_CALL_KINDS
                     : dice == 2 ? EP_MODEL_ALL_KINDS & ep_model_random(&h->random)
                                 : EP_MODEL_ALL_KINDS;
    ep_model_start(&h->recorders[at], kinds, ep_model_below(&h->random, 4),
                   policies[ep_model_below(&h->random, 4)], EP_CLOCK_INJECTED);
    h->used[at] = true;
}

static void
history_look(history *h, int at)
{
    ep_recorder *recorder = &h->recorders[at];
    window w = window_of(recorder);
    ep_capture capture;
    ep_decoded decoded;
    ck_assert_int_eq(ep_capture_take(recorder, &capture, NULL), EP_OK);
    w.stop = capture.stop.ticks;
    ck_assert_int_eq(ep_decode(&capture, 0, &decoded), EP_OK);
    judge(h->tapes, h->tape_count, &w, &decoded);
    ep_decoded_clear(&decoded);
    ep_capture_clear(&capture);
}

static void
history_step(history *h)
{
    int at = (int)ep_model_below(&h->random, MOST_RECORDERS);
    actor *a = &h->actors[ep_model_below(&h->random, MOST_ACTORS)];
    uint64_t dice = ep_model_below(&h->random, 100);
    if (dice < 12) {
        if (!h->used[at]) {
            history_start(h, at);
        } else if (h->recorders[at].state == EP_RECORDER_RUNNING) {
            ep_model_stop(&h->recorders[at]);
        } else {
            history_look(h, at);
            ep_recorder_clear(&h->recorders[at]);
            h->used[at] = false;
        }
    } else if (dice < 14 && h->used[at]) {
        history_look(h, at);
    } else if (dice < 25 && a->log != NULL) {
        actor_end(a);
    } else if (a->log == NULL) {
        if (h->tape_count < MOST_TAPES) {
            actor_begin(a, &h->tapes[h->tape_count++], ep_model_random(&h->random));
        }
    } else {
        /* Mostly a few, sometimes more than a chunk. */
        static const size_t most[] = {10, 100, 1000, 10000, 30000, 150000};
        actor_emit(a, ep_model_below(&h->random, most[ep_model_below(&h->random, 6)]));
        if (dice == 99) {
            atomic_fetch_add(&ep_model_now, UINT64_C(5) << 31);
        }
    }
}

START_TEST(any_history_of_recorders_and_threads_adds_up)
{
    setup();
    size_t seeds = ep_model_work(3);
    size_t logs = ep_engine_get_stats().logs;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        history *h = calloc(1, sizeof *h);
        h->random = seed;

        for (size_t i = 0; i < ep_model_work(200); i++) {
            history_step(h);
        }

        for (int i = 0; i < MOST_RECORDERS; i++) {
            if (h->used[i]) {
                history_look(h, i);
                ep_recorder_clear(&h->recorders[i]);
            }
        }
        for (int i = 0; i < MOST_ACTORS; i++) {
            if (h->actors[i].log != NULL) {
                actor_end(&h->actors[i]);
            }
        }
        for (size_t i = 0; i < h->tape_count; i++) {
            tape_free(&h->tapes[i]);
        }
        free(h);
        ck_assert_uint_eq(ep_engine_get_stats().logs, logs);
        ck_assert_uint_le(ep_engine_get_stats().bytes_mapped, (4 + logs) * EP_CHUNK_BYTES);
    }
}
END_TEST

/* ---- Everything at once, on the real clock --------------------------------------------------- */

typedef struct writer {
    tape tape;
    size_t count;
    _Atomic bool *go;
} writer;

static void *
write_on(void *argument)
{
    writer *w = argument;
    while (!atomic_load(w->go)) {
        sched_yield();
    }
    ep_log *log = ep_log_mine();
    w->tape.thread_id = log->thread->id;
    for (size_t i = 0; i < w->count; i++) {
        ep_model_event event = next_event(&w->tape, 0);
        event.ticks = ep_clock_ticks();
        ep_model_put(log, &event);
        tape_add(&w->tape, &event);
    }
    return NULL;
}

#define CONTROLLED 12

/* One of several threads that start and stop recorders, each its own, and take snapshots. */
typedef struct controller {
    uint64_t random;
    ep_recorder recorders[CONTROLLED];
    int started;
    ep_decoded snapshots[CONTROLLED];
    uint64_t snapshot_stops[CONTROLLED];
    bool has_snapshot[CONTROLLED];
    _Atomic bool *go;
    _Atomic bool done;
    bool failed;
} controller;

static void
controller_snapshot(controller *c, int at)
{
    ep_capture capture;
    if (ep_capture_take(&c->recorders[at], &capture, NULL) != EP_OK) {
        c->failed = true;
        return;
    }
    c->has_snapshot[at] = true;
    c->snapshot_stops[at] = capture.stop.ticks;
    c->failed |= ep_decode(&capture, 0, &c->snapshots[at]) != EP_OK;
    ep_capture_clear(&capture);
}

static void *
control(void *argument)
{
    controller *c = argument;
    int stopped = 0;
    while (!atomic_load(c->go)) {
        sched_yield();
    }
    while (!atomic_load(&c->done) && stopped < CONTROLLED) {
        if (c->started < CONTROLLED && ep_model_below(&c->random, 2)) {
            ep_recorder_options options = {
                .kinds = ep_model_below(&c->random, 2) ? EP_MODEL_ALL_KINDS
                                                       : ep_model_random(&c->random) & EP_MODEL_ALL_KINDS,
                .limit_bytes = ep_model_below(&c->random, 4) * EP_CHUNK_BYTES,
                .on_full = (ep_on_full)ep_model_below(&c->random, 3),
                .clock_any = true};
            ep_recorder_init(&c->recorders[c->started], &options);
            c->failed |= ep_recorder_start(&c->recorders[c->started++], NULL) != EP_OK;
        } else if (stopped < c->started) {
            if (ep_model_below(&c->random, 2)) {
                controller_snapshot(c, stopped);
            }
            c->failed |= ep_recorder_stop(&c->recorders[stopped++], NULL) != EP_OK;
        }
        usleep((useconds_t)ep_model_below(&c->random, 3000));
    }
    for (; stopped < c->started; stopped++) {
        c->failed |= ep_recorder_stop(&c->recorders[stopped], NULL) != EP_OK;
    }
    return NULL;
}

static void
hammer(size_t writer_count, uint64_t seed)
{
    enum {
        CONTROLLERS = 2,
        MOST = 8
    };
    setup();
    _Atomic bool go = false;
    writer writers[MOST] = {0};
    controller *controllers = calloc(CONTROLLERS, sizeof *controllers);
    pthread_t writing[MOST], controlling[CONTROLLERS];
    /* Holds the clock, whatever the others do. */
    ep_recorder holder;
    ep_recorder_options options = {.kinds = EP_MODEL_ALL_KINDS, .clock_any = true};
    ep_recorder_init(&holder, &options);
    ck_assert_int_eq(ep_recorder_start(&holder, NULL), EP_OK);
    for (size_t i = 0; i < writer_count; i++) {
        writers[i].tape.random = seed * 100 + i;
        writers[i].count = ep_model_work(1000000) / writer_count;
        writers[i].go = &go;
        writing[i] = ep_model_spawn(write_on, &writers[i]);
    }
    for (int i = 0; i < CONTROLLERS; i++) {
        controllers[i].random = seed * 1000 + (uint64_t)i;
        controllers[i].go = &go;
        controlling[i] = ep_model_spawn(control, &controllers[i]);
    }
    atomic_store(&go, true);
    tape tapes[MOST];
    for (size_t i = 0; i < writer_count; i++) {
        ep_model_join(writing[i]);
        tapes[i] = writers[i].tape;
    }
    for (int i = 0; i < CONTROLLERS; i++) {
        atomic_store(&controllers[i].done, true);
        ep_model_join(controlling[i]);
    }
    ep_model_stop(&holder);

    judge_stopped(&holder, tapes, writer_count);
    for (int i = 0; i < CONTROLLERS; i++) {
        controller *c = &controllers[i];
        ck_assert(!c->failed);
        for (int j = 0; j < c->started; j++) {
            judge_stopped(&c->recorders[j], tapes, writer_count);
            if (c->has_snapshot[j]) {
                window w = window_of(&c->recorders[j]);
                w.stop = c->snapshot_stops[j];
                w.in_flight = true;
                judge(tapes, writer_count, &w, &c->snapshots[j]);
                ep_decoded_clear(&c->snapshots[j]);
            }
        }
    }

    ep_recorder_clear(&holder);
    for (int i = 0; i < CONTROLLERS; i++) {
        for (int j = 0; j < controllers[i].started; j++) {
            ep_recorder_clear(&controllers[i].recorders[j]);
        }
    }
    free(controllers);
    for (size_t i = 0; i < writer_count; i++) {
        tape_free(&tapes[i]);
    }
}

START_TEST(one_thread_hammering_adds_up)
{
    hammer(1, 1);
}
END_TEST

START_TEST(two_threads_hammering_add_up)
{
    hammer(2, 2);
}
END_TEST

START_TEST(four_threads_hammering_add_up)
{
    hammer(4, 3);
}
END_TEST

START_TEST(eight_threads_hammering_add_up)
{
    hammer(8, 4);
}
END_TEST

/* An event whose clock was read before the stop, and that is the first of a new chunk after it. */
START_TEST(an_event_in_flight_at_the_stop_is_not_dropped)
{
    setup();
    static const ep_on_full policies[] = {EP_ON_FULL_OVERWRITE, EP_ON_FULL_STOP, EP_ON_FULL_GROW};
    for (int policy = 0; policy < 3; policy++) {
        for (int full = 0; full < 2; full++) {
            ep_recorder recorder;
            tape t = own_tape(1);
            ep_log *log = ep_log_mine();
            ep_model_start(&recorder, EP_MODEL_ALL_KINDS, 1, policies[policy], EP_CLOCK_INJECTED);
            ep_log_next_chunk(log, ep_model_tick());
            emit(&t, full ? 400000 : 1000);
            while (log->next < log->end) {
                emit(&t, 1);
            }
            ep_model_event event = next_event(&t, ep_model_tick());

            ep_model_stop(&recorder);
            ep_model_put(log, &event);
            tape_add(&t, &event);
            emit(&t, 300000);

            judge_stopped(&recorder, &t, 1);
            ep_recorder_clear(&recorder);
            tape_free(&t);
        }
    }
}
END_TEST

START_TEST(a_stopped_recorder_keeps_no_chunks_of_what_comes_later)
{
    setup();
    ep_recorder stopped, running;
    tape t = own_tape(1);
    ep_model_start(&stopped, EP_MODEL_ALL_KINDS, 1, EP_ON_FULL_GROW, EP_CLOCK_INJECTED);
    ep_model_start(&running, EP_MODEL_ALL_KINDS, 1, EP_ON_FULL_OVERWRITE, EP_CLOCK_INJECTED);
    emit(&t, 1000);
    ep_model_stop(&stopped);
    size_t kept = stopped.kept_end - stopped.kept_first;

    emit(&t, 500000);

    ck_assert_uint_eq(stopped.kept_end - stopped.kept_first, kept);
    judge_stopped(&stopped, &t, 1);
    ep_recorder_clear(&running);
    ep_recorder_clear(&stopped);
    tape_free(&t);
}
END_TEST

/* ---- Events without a log -------------------------------------------------------------------- */

START_TEST(unlogged_events_are_lost_to_those_that_wanted_them)
{
    setup();
    ep_recorder calls, all;
    ep_model_start(&calls, EP_MODEL_CALL_KINDS, 1, EP_ON_FULL_STOP, EP_CLOCK_INJECTED);
    ep_engine_count_unlogged(EP_KIND_FREE_RAW);
    ep_engine_count_unlogged(EP_KIND_CALL);
    ep_model_start(&all, EP_MODEL_ALL_KINDS, 1, EP_ON_FULL_STOP, EP_CLOCK_INJECTED);
    ep_engine_count_unlogged(EP_KIND_FREE_RAW);
    ep_decoded snapshot = ep_model_decode(&all);
    ep_model_stop(&calls);
    ep_engine_count_unlogged(EP_KIND_CALL);
    ep_model_stop(&all);
    ep_engine_count_unlogged(EP_KIND_CALL);

    ep_decoded of_calls = ep_model_decode(&calls), of_all = ep_model_decode(&all);

    ck_assert_uint_eq(ep_model_lost(&of_calls, 0, EP_KIND_CALL), 1);
    ck_assert_uint_eq(ep_model_lost(&of_calls, 0, EP_KIND_FREE_RAW), 0);
    ck_assert_uint_eq(ep_model_lost(&snapshot, 0, EP_KIND_FREE_RAW), 1);
    ck_assert_uint_eq(ep_model_lost(&of_all, 0, EP_KIND_FREE_RAW), 1);
    ck_assert_uint_eq(ep_model_lost(&of_all, 0, EP_KIND_CALL), 1);
    ep_decoded_clear(&snapshot);
    ep_decoded_clear(&of_calls);
    ep_decoded_clear(&of_all);
    ep_recorder_clear(&calls);
    ep_recorder_clear(&all);
}
END_TEST

EP_TEST_MAIN("engine_threads",
             the_next_thread_goes_on_in_a_dead_threads_chunk,
             a_dead_threads_chunk_goes_back_when_nobody_wants_it,
             a_ring_shrinks_to_its_size_when_threads_end,
             the_limit_holds_however_many_threads_come_and_go,
             two_thousand_short_threads_leave_no_logs_and_little_memory,
             threads_know_their_names_and_that_they_ended,
             events_in_destructors_are_counted,
             a_thread_whose_first_event_is_in_a_destructor_leaves_no_log,
             any_history_of_recorders_and_threads_adds_up,
             one_thread_hammering_adds_up,
             two_threads_hammering_add_up,
             four_threads_hammering_add_up,
             eight_threads_hammering_add_up,
             an_event_in_flight_at_the_stop_is_not_dropped,
             a_stopped_recorder_keeps_no_chunks_of_what_comes_later,
             unlogged_events_are_lost_to_those_that_wanted_them)
