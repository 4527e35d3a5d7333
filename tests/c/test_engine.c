/* engine.h: windows, snapshots, states and clocks of recorders. */
#include "ep_tapes.h"

/* ---- One thread ------------------------------------------------------------------------------ */

START_TEST(a_window_holds_what_was_emitted_in_it)
{
    setup();
    ep_recorder recorder;
    tape t = own_tape(1);
    emit(&t, 100);
    ep_model_start(&recorder, EP_MODEL_ALL_KINDS, 4, EP_ON_FULL_OVERWRITE, EP_CLOCK_INJECTED);
    emit(&t, 1000);
    ep_model_stop(&recorder);
    emit(&t, 100);

    ep_decoded decoded = ep_model_decode(&recorder);

    ck_assert_uint_eq(decoded.columns.count, 1000);
    window w = window_of(&recorder);
    judge(&t, 1, &w, &decoded);
    ep_decoded_clear(&decoded);
    ep_recorder_clear(&recorder);
    tape_free(&t);
}
END_TEST

START_TEST(a_window_without_events_is_empty)
{
    setup();
    ep_recorder recorder;
    tape t = own_tape(1);
    emit(&t, 100);
    ep_model_start(&recorder, EP_MODEL_ALL_KINDS, 4, EP_ON_FULL_OVERWRITE, EP_CLOCK_INJECTED);
    ep_model_stop(&recorder);
    emit(&t, 100);

    ep_decoded decoded = ep_model_decode(&recorder);

    ck_assert_uint_eq(decoded.columns.count, 0);
    ck_assert_uint_eq(decoded.thread_count, 0);
    ck_assert_int_ge(decoded.duration_ns, 0);
    ep_decoded_clear(&decoded);
    ep_recorder_clear(&recorder);
    tape_free(&t);
}
END_TEST

START_TEST(a_recorder_gets_only_its_kinds)
{
    setup();
    ep_recorder calls, frees;
    tape t = own_tape(1);
    ep_model_start(&calls, EP_MODEL_CALL_KINDS, 1, EP_ON_FULL_OVERWRITE, EP_CLOCK_INJECTED);
    ep_model_start(&frees, EP_KIND_BIT(EP_KIND_FREE_OBJ), 1, EP_ON_FULL_STOP, EP_CLOCK_INJECTED);
    emit(&t, 700000);
    ep_model_stop(&calls);
    ep_model_stop(&frees);

    judge_stopped(&calls, &t, 1);
    judge_stopped(&frees, &t, 1);

    ep_recorder_clear(&calls);
    ep_recorder_clear(&frees);
    tape_free(&t);
}
END_TEST

/* Of blocks that one allocator asked another one for, each recorder has one record, kept or lost. */
START_TEST(what_is_within_counts_for_those_who_have_nothing_around_it)
{
    setup();
    enum {
        ROUNDS = 60000,
        WITHIN = 1 << EP_DOMAIN_OBJ
    };
    const uint64_t raw = ep_kinds_of_domains(1 << EP_DOMAIN_RAW);
    const uint64_t obj = ep_kinds_of_domains(1 << EP_DOMAIN_OBJ);
    const uint64_t kinds[] = {raw, obj, raw | obj};
    static const ep_on_full policies[] = {EP_ON_FULL_OVERWRITE, EP_ON_FULL_STOP, EP_ON_FULL_GROW};
    for (int policy = 0; policy < 3; policy++) {
        ep_recorder recorders[3];
        ep_log *log = ep_log_mine();
        for (int i = 0; i < 3; i++) {
            ep_model_start(&recorders[i], kinds[i], 1, policies[policy], EP_CLOCK_INJECTED);
        }
        for (int round = 0; round < ROUNDS; round++) {
            uint64_t address = 4096 + 16 * (uint64_t)round;
            uint32_t site = site_ids[round % SITE_COUNT];
            ep_log_put_block_within(log, ep_model_tick(), EP_KIND_MALLOC_RAW, 32, address, site, WITHIN);
            ep_log_put_block(log, ep_model_tick(), EP_KIND_MALLOC_OBJ, 32, address, site);
            ep_log_put_free(log, ep_model_tick(), EP_KIND_FREE_OBJ, site, address);
            ep_log_put_free_within(log, ep_model_tick(), EP_KIND_FREE_RAW, site, address, WITHIN);
        }
        for (int i = 0; i < 3; i++) {
            ep_model_stop(&recorders[i]);
            ep_decoded decoded = ep_model_decode(&recorders[i]);
            static const ep_kind all[] = {EP_KIND_MALLOC_RAW, EP_KIND_FREE_RAW, EP_KIND_MALLOC_OBJ,
                                          EP_KIND_FREE_OBJ};
            ck_assert_uint_eq(decoded.thread_count, 1);
            for (int k = 0; k < 4; k++) {
                uint64_t found = decoded.threads[0].recorded[all[k]] + decoded.threads[0].lost[all[k]];
                ck_assert_uint_eq(found, k < 2 ? (i == 0 ? ROUNDS : 0) : (i == 0 ? 0 : ROUNDS));
            }
            ep_decoded_clear(&decoded);
        }
        for (int i = 0; i < 3; i++) {
            ep_recorder_clear(&recorders[i]);
        }
    }
}
END_TEST

START_TEST(kinds_wanted_are_the_union_of_the_running)
{
    setup();
    ep_recorder a, b;
    ck_assert_uint_eq(ep_engine_kinds(), 0);
    ep_model_start(&a, EP_MODEL_CALL_KINDS, 1, EP_ON_FULL_OVERWRITE, EP_CLOCK_INJECTED);
    ep_model_start(&b, EP_KIND_BIT(EP_KIND_FREE_OBJ), 1, EP_ON_FULL_OVERWRITE, EP_CLOCK_INJECTED);
    ck_assert_uint_eq(ep_engine_kinds(), EP_MODEL_CALL_KINDS | EP_KIND_BIT(EP_KIND_FREE_OBJ));

    ep_model_stop(&a);

    ck_assert_uint_eq(ep_engine_kinds(), EP_KIND_BIT(EP_KIND_FREE_OBJ));
    ep_recorder_clear(&b);
    ck_assert_uint_eq(ep_engine_kinds(), 0);
    ep_recorder_clear(&a);
}
END_TEST

START_TEST(each_policy_and_size_keeps_the_right_part)
{
    setup();
    static const ep_on_full policies[] = {EP_ON_FULL_OVERWRITE, EP_ON_FULL_STOP, EP_ON_FULL_GROW};
    for (int policy = 0; policy < 3; policy++) {
        for (uint64_t chunks = 0; chunks <= 3; chunks++) {
            ep_recorder recorder;
            tape t = own_tape(chunks + 1);
            ep_model_start(&recorder, EP_MODEL_ALL_KINDS, chunks, policies[policy], EP_CLOCK_INJECTED);
            emit(&t, 500000);
            ep_model_stop(&recorder);

            ck_assert_int_eq(recorder.full_reason,
                             policies[policy] == EP_ON_FULL_STOP ? EP_FULL_LIMIT : EP_FULL_NOT);
            judge_stopped(&recorder, &t, 1);

            ep_recorder_clear(&recorder);
            tape_free(&t);
        }
    }
}
END_TEST

START_TEST(a_ring_keeps_its_size)
{
    setup();
    ep_recorder recorder;
    tape t = own_tape(1);
    ep_model_start(&recorder, EP_MODEL_ALL_KINDS, 3, EP_ON_FULL_OVERWRITE, EP_CLOCK_INJECTED);

    for (int i = 0; i < 10; i++) {
        emit(&t, 100000);
        ck_assert_uint_le(recorder.charged_bytes, 3 * EP_CHUNK_BYTES);
    }

    ck_assert_uint_ge(recorder.charged_bytes, 2 * EP_CHUNK_BYTES);
    ep_recorder_clear(&recorder);
    tape_free(&t);
}
END_TEST

/* A recorder that starts in a chunk which is nearly full gets its own size nevertheless. */
START_TEST(what_others_wrote_before_does_not_count_towards_the_limit)
{
    setup();
    ep_recorder first, second;
    tape t = own_tape(1);
    ep_log *log = ep_log_mine();
    ep_model_start(&first, EP_MODEL_ALL_KINDS, 9, EP_ON_FULL_GROW, EP_CLOCK_INJECTED);
    ep_log_next_chunk(log, ep_model_tick());
    while (log->end - log->next > 100) {
        emit(&t, 1);
    }
    ep_model_start(&second, EP_MODEL_CALL_KINDS, 1, EP_ON_FULL_STOP, EP_CLOCK_INJECTED);

    emit(&t, 400000);

    ep_model_stop(&second);
    ep_decoded decoded = ep_model_decode(&second);
    ck_assert_uint_gt(decoded.columns.count, 50000);
    ep_decoded_clear(&decoded);
    judge_stopped(&second, &t, 1);
    ep_recorder_clear(&second);
    ep_recorder_clear(&first);
    tape_free(&t);
}
END_TEST

START_TEST(recorders_that_overlap_and_nest_each_get_their_own)
{
    setup();
    ep_recorder r[4];
    tape t = own_tape(1);
    ep_model_start(&r[0], EP_MODEL_ALL_KINDS, 2, EP_ON_FULL_OVERWRITE, EP_CLOCK_INJECTED);
    emit(&t, 12347);
    ep_model_start(&r[1], EP_MODEL_CALL_KINDS, 1, EP_ON_FULL_STOP, EP_CLOCK_INJECTED);
    emit(&t, 200000);
    ep_model_start(&r[2], EP_MODEL_ALL_KINDS, 1, EP_ON_FULL_GROW, EP_CLOCK_INJECTED);
    emit(&t, 30000);
    ep_model_stop(&r[2]);
    emit(&t, 200000);
    ep_model_stop(&r[0]);
    ep_model_start(&r[3], EP_MODEL_CALL_KINDS, 1, EP_ON_FULL_OVERWRITE, EP_CLOCK_INJECTED);
    emit(&t, 300000);
    ep_model_stop(&r[1]);
    emit(&t, 12347);
    ep_model_stop(&r[3]);

    for (int i = 0; i < 4; i++) {
        judge_stopped(&r[i], &t, 1);
        ep_recorder_clear(&r[i]);
    }
    tape_free(&t);
}
END_TEST

/* ---- Snapshots ------------------------------------------------------------------------------- */

START_TEST(a_snapshot_is_the_window_so_far)
{
    setup();
    static const ep_on_full policies[] = {EP_ON_FULL_OVERWRITE, EP_ON_FULL_STOP, EP_ON_FULL_GROW};
    for (int policy = 0; policy < 3; policy++) {
        ep_recorder recorder;
        tape t = own_tape(1);
        ep_model_start(&recorder, EP_MODEL_ALL_KINDS, 1, policies[policy], EP_CLOCK_INJECTED);
        for (int i = 0; i < 12; i++) {
            emit(&t, 30000);
            ep_capture capture;
            ep_decoded decoded;
            ck_assert_int_eq(ep_capture_take(&recorder, &capture, NULL), EP_OK);
            emit(&t, 777);    /* later than the snapshot */
            ck_assert_int_eq(ep_decode(&capture, 0, &decoded), EP_OK);

            window w = window_of(&recorder);
            w.stop = capture.stop.ticks;
            judge(&t, 1, &w, &decoded);

            ep_capture_clear(&capture);
            ep_decoded_clear(&decoded);
        }
        ep_model_stop(&recorder);
        judge_stopped(&recorder, &t, 1);
        ep_recorder_clear(&recorder);
        tape_free(&t);
    }
}
END_TEST

/* Rings that lost nothing, little and most of it; ends that are nearer than that, and farther. */
START_TEST(the_last_time_of_a_ring_has_lost_nothing)
{
    setup();
    for (uint64_t chunks = 0; chunks <= 8; chunks += 4) {
        for (int64_t last_ns = 1; last_ns <= 10000000; last_ns *= 10) {
            ep_recorder recorder;
            tape t = own_tape(chunks + (uint64_t)last_ns);
            ep_model_start(&recorder, EP_MODEL_ALL_KINDS, chunks, EP_ON_FULL_OVERWRITE,
                           EP_CLOCK_INJECTED);
            emit(&t, 300000);
            ep_capture capture;
            ep_decoded decoded;
            ck_assert_int_eq(ep_capture_take(&recorder, &capture, NULL), EP_OK);
            ep_capture_keep_last(&capture, last_ns);
            emit(&t, 777);    /* later than the snapshot */
            ck_assert_int_eq(ep_decode(&capture, 0, &decoded), EP_OK);

            int64_t length_ns = capture.stop.monotonic_ns - capture.start.monotonic_ns;
            ck_assert_int_le(length_ns, last_ns + 1);
            if (length_ns < last_ns - 1) {    /* all that is there, then */
                uint64_t first = capture.dropped_ticks + 1;
                ck_assert_uint_eq(capture.start.ticks,
                                  capture.dropped_ticks > 0 ? first : recorder.start.ticks);
            }
            window w = window_of(&recorder);
            w.start = capture.start.ticks;
            w.stop = capture.stop.ticks;
            w.open_from = recorder.start.ticks;
            judge(&t, 1, &w, &decoded);
            for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
                ck_assert_uint_eq(ep_model_thread(&decoded, t.thread_id)->lost[kind], 0);
            }

            ep_capture_clear(&capture);
            ep_decoded_clear(&decoded);
            ep_recorder_clear(&recorder);
            tape_free(&t);
        }
    }
}
END_TEST

START_TEST(every_trace_of_a_stopped_recorder_is_the_same)
{
    setup();
    ep_recorder recorder;
    tape t = own_tape(1);
    ep_model_start(&recorder, EP_MODEL_ALL_KINDS, 1, EP_ON_FULL_STOP, EP_CLOCK_INJECTED);
    emit(&t, 150000);
    ep_model_stop(&recorder);

    for (int i = 0; i < 4; i++) {
        judge_stopped(&recorder, &t, 1);
        emit(&t, 60000);    /* seals what was open at the stop */
    }

    ep_recorder_clear(&recorder);
    tape_free(&t);
}
END_TEST

START_TEST(a_capture_outlives_its_recorder)
{
    setup();
    ep_recorder recorder;
    tape t = own_tape(1);
    ep_model_start(&recorder, EP_MODEL_ALL_KINDS, 2, EP_ON_FULL_OVERWRITE, EP_CLOCK_INJECTED);
    emit(&t, 300000);
    ep_model_stop(&recorder);
    window w = window_of(&recorder);
    ep_capture capture;
    ck_assert_int_eq(ep_capture_take(&recorder, &capture, NULL), EP_OK);

    ep_recorder_clear(&recorder);
    emit(&t, 300000);

    ep_decoded decoded;
    ck_assert_int_eq(ep_decode(&capture, 0, &decoded), EP_OK);
    judge(&t, 1, &w, &decoded);
    ep_capture_clear(&capture);
    ep_decoded_clear(&decoded);
    tape_free(&t);
}
END_TEST

/* ---- States ---------------------------------------------------------------------------------- */

START_TEST(a_recorder_starts_once_and_stops_once)
{
    setup();
    ep_recorder recorder;
    ep_error error = {.text = ""};
    ep_capture capture;
    ep_recorder_options options = {.kinds = EP_MODEL_ALL_KINDS, .clock = EP_CLOCK_INJECTED};
    ep_recorder_init(&recorder, &options);
    ck_assert_int_eq(ep_recorder_stop(&recorder, &error), EP_STATE);
    ck_assert_int_eq(ep_capture_take(&recorder, &capture, &error), EP_STATE);
    ck_assert_int_eq(ep_recorder_start(&recorder, &error), EP_OK);
    ck_assert_int_eq(ep_recorder_start(&recorder, &error), EP_STATE);
    ck_assert_int_eq(ep_recorder_stop(&recorder, &error), EP_OK);

    ck_assert_int_eq(ep_recorder_stop(&recorder, &error), EP_STATE);
    ck_assert_int_eq(ep_recorder_start(&recorder, &error), EP_STATE);

    ck_assert_str_ne(error.text, "");
    ep_recorder_clear(&recorder);
    ep_recorder_clear(&recorder);
    ck_assert_int_eq(ep_recorder_start(&recorder, NULL), EP_STATE);
}
END_TEST

START_TEST(clearing_a_running_recorder_stops_it)
{
    setup();
    ep_recorder recorder;
    ep_model_start(&recorder, EP_MODEL_ALL_KINDS, 1, EP_ON_FULL_STOP, EP_CLOCK_INJECTED);

    ep_recorder_clear(&recorder);

    ck_assert_uint_eq(ep_engine_kinds(), 0);
    ck_assert_int_eq(ep_recorder_stop(&recorder, NULL), EP_STATE);
}
END_TEST

START_TEST(memory_goes_back_when_nobody_wants_it)
{
    setup();
    ep_recorder recorder;
    tape t = own_tape(1);
    ep_model_start(&recorder, EP_MODEL_ALL_KINDS, 0, EP_ON_FULL_GROW, EP_CLOCK_INJECTED);
    emit(&t, 1500000);
    ck_assert_uint_ge(ep_engine_get_stats().bytes_mapped, 12 * EP_CHUNK_BYTES);

    ep_recorder_clear(&recorder);

    ck_assert_uint_le(ep_engine_get_stats().bytes_mapped,
                      (4 + ep_engine_get_stats().logs) * EP_CHUNK_BYTES);
    tape_free(&t);
}
END_TEST

/* To unmap them and to map them again took 0.6 to 1.8 ms of each start. */
START_TEST(a_recorder_that_starts_again_keeps_its_chunks)
{
    setup();
    ep_recorder recorder;
    tape t = own_tape(1);
    ep_model_start(&recorder, EP_MODEL_ALL_KINDS, 0, EP_ON_FULL_GROW, EP_CLOCK_INJECTED);
    emit(&t, 1500000);
    size_t mapped = ep_engine_get_stats().bytes_mapped;
    ck_assert_uint_ge(mapped, 12 * EP_CHUNK_BYTES);

    ep_recorder_clear_to_start(&recorder);

    ck_assert_uint_eq(ep_engine_get_stats().bytes_mapped, mapped);
    ep_recorder_clear(&recorder);
    ck_assert_uint_lt(ep_engine_get_stats().bytes_mapped, mapped);
    tape_free(&t);
}
END_TEST

/* ---- Calls open at the start ----------------------------------------------------------------- */

START_TEST(calls_open_at_the_start_are_kept_and_folded)
{
    setup();
    ep_recorder recorder;
    tape t = own_tape(1);
    ep_model_start(&recorder, EP_MODEL_ALL_KINDS, 1, EP_ON_FULL_OVERWRITE, EP_CLOCK_INJECTED);
    const ep_open_call open[] = {{site_ids[5], EP_KIND_CALL, 0, 0}, {site_ids[7], EP_KIND_RESUME, 0, 0}};
    ck_assert_int_eq(ep_recorder_set_open(&recorder, t.thread_id, open, 2), EP_OK);
    ep_log *log = ep_log_mine();
    ep_log_put(log, ep_model_tick(), EP_KIND_RETURN, callee_of(site_ids[7]));
    ep_decoded before = ep_model_decode(&recorder);
    for (size_t i = 0; i < EP_CHUNK_WORDS; i++) {
        ep_log_put_free(log, ep_model_tick(), EP_KIND_FREE_RAW, 1, 4096);
    }
    ep_model_stop(&recorder);

    ep_decoded after = ep_model_decode(&recorder);

    ck_assert_uint_eq(ep_model_thread(&before, t.thread_id)->open.depth, 2);
    ck_assert_uint_eq(ep_model_thread(&after, t.thread_id)->open.depth, 1);
    ck_assert_uint_eq(ep_model_thread(&after, t.thread_id)->open.calls[0].site_id, site_ids[5]);
    ep_decoded_clear(&before);
    ep_decoded_clear(&after);
    ep_recorder_clear(&recorder);
}
END_TEST

START_TEST(folding_is_what_the_rule_says)
{
    setup();
    ep_open_stack stack = {0};
    open_model *model = calloc(1, sizeof *model);
    tape t = {.random = 12347};
    for (int i = 0; i < 100000; i++) {
        ep_model_event event = next_event(&t, 1);

        ep_open_stack_apply(&stack, event.kind, event.id);
        open_model_apply(model, &event);

        if (i % 100 == 0) {
            assert_open(&stack, model, 0);
        }
    }
    free(stack.calls);
    free(model);
}
END_TEST

/* ---- The clock ------------------------------------------------------------------------------- */

START_TEST(a_second_clock_is_refused_while_one_runs)
{
    setup();
    ep_recorder first, second;
    ep_error error = {.text = ""};
    ep_model_start(&first, EP_MODEL_ALL_KINDS, 1, EP_ON_FULL_STOP, EP_CLOCK_INJECTED);
    ep_recorder_options options = {.kinds = EP_MODEL_ALL_KINDS, .clock = EP_CLOCK_MONOTONIC};
    ep_recorder_init(&second, &options);

    ck_assert_int_eq(ep_recorder_start(&second, &error), EP_STATE);

    ck_assert_str_ne(error.text, "");
    ck_assert_int_eq(ep_clock_current, EP_CLOCK_INJECTED);
    second.options.clock_any = true;
    ck_assert_int_eq(ep_recorder_start(&second, &error), EP_OK);
    ck_assert_int_eq(ep_clock_current, EP_CLOCK_INJECTED);
    ep_recorder_clear(&first);
    ep_recorder_clear(&second);
}
END_TEST

/* Chunks hold ticks of one clock: a window that reads the wrong ones would find events that were
 * not, or take their anchors for its own. */
START_TEST(windows_on_two_clocks_do_not_meet)
{
    setup();
    ep_recorder first, second, third;
    tape t = own_tape(1), u = own_tape(2), v = own_tape(3);
    ep_model_start(&first, EP_MODEL_ALL_KINDS, 1, EP_ON_FULL_STOP, EP_CLOCK_INJECTED);
    emit(&t, 200000);
    ep_model_stop(&first);
    ep_model_start(&second, EP_MODEL_ALL_KINDS, 1, EP_ON_FULL_STOP, EP_CLOCK_MONOTONIC);
    ep_log *log = ep_log_mine();
    for (int i = 0; i < 1000; i++) {
        ep_model_event event = next_event(&u, ep_clock_ticks());
        ep_model_put(log, &event);
        tape_add(&u, &event);
    }
    ep_model_stop(&second);
    atomic_store(&ep_model_now, first.start.ticks);    /* every tick of `first` comes again */
    ep_model_start(&third, EP_MODEL_ALL_KINDS, 4, EP_ON_FULL_STOP, EP_CLOCK_INJECTED);
    emit(&v, 200000);
    ep_model_stop(&third);

    judge_stopped(&first, &t, 1);
    judge_stopped(&second, &u, 1);
    judge_stopped(&third, &v, 1);

    ep_recorder_clear(&first);
    ep_recorder_clear(&second);
    ep_recorder_clear(&third);
    tape_free(&t);
    tape_free(&u);
    tape_free(&v);
}
END_TEST

START_TEST(times_are_the_clocks_over_chunks_minutes_apart)
{
    setup();
    ep_recorder recorder;
    tape t = own_tape(1);
    ep_log *log = ep_log_mine();
    ep_model_start(&recorder, EP_MODEL_ALL_KINDS, 9, EP_ON_FULL_OVERWRITE, EP_CLOCK_INJECTED);
    for (int i = 0; i < 6; i++) {
        emit(&t, 1000);
        atomic_fetch_add(&ep_model_now, UINT64_C(200000000000));    /* 200 s, over 2^32 many times */
        emit(&t, 1000);
        ep_log_next_chunk(log, ep_model_tick());
        atomic_fetch_add(&ep_model_now, UINT64_C(1) << 32);
    }
    ep_model_stop(&recorder);

    judge_stopped(&recorder, &t, 1);    /* compares the times */

    ep_recorder_clear(&recorder);
    tape_free(&t);
}
END_TEST

EP_TEST_MAIN("engine",
             a_window_holds_what_was_emitted_in_it,
             a_window_without_events_is_empty,
             a_recorder_gets_only_its_kinds,
             what_is_within_counts_for_those_who_have_nothing_around_it,
             kinds_wanted_are_the_union_of_the_running,
             each_policy_and_size_keeps_the_right_part,
             a_ring_keeps_its_size,
             what_others_wrote_before_does_not_count_towards_the_limit,
             recorders_that_overlap_and_nest_each_get_their_own,
             a_snapshot_is_the_window_so_far,
             the_last_time_of_a_ring_has_lost_nothing,
             every_trace_of_a_stopped_recorder_is_the_same,
             a_capture_outlives_its_recorder,
             a_recorder_starts_once_and_stops_once,
             clearing_a_running_recorder_stops_it,
             memory_goes_back_when_nobody_wants_it,
             a_recorder_that_starts_again_keeps_its_chunks,
             calls_open_at_the_start_are_kept_and_folded,
             folding_is_what_the_rule_says,
             a_second_clock_is_refused_while_one_runs,
             windows_on_two_clocks_do_not_meet,
             times_are_the_clocks_over_chunks_minutes_apart)
