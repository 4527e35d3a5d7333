/* engine.h: windows, chunks, loss, threads, fork. The oracle of all of it: what a recorder gives
 * back plus what it counts as lost is what was emitted in its window, per kind and thread.
 *
 * A test remembers what it emits in *tapes*, one a log, and holds every trace against them. */
#include "ahead.h"
#include "ep_model.h"
#include "functions.h"

#include <semaphore.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Names: 60 functions, 300 sites ---------------------------------------------------------- */

#define NAME_COUNT 60
#define SITE_COUNT 300

static uint32_t name_ids[NAME_COUNT];
static uint32_t site_ids[SITE_COUNT];
static uint32_t site_callees[SITE_COUNT];    /* name id; what ep_site_callee() should say */

static void
setup(void)
{
    ep_model_setup();
    if (name_ids[0] != 0) {
        return;
    }
    for (uint32_t i = 0; i < NAME_COUNT; i++) {
        ep_name_text text = {.qualname = {"f", 1}, .line = (int32_t)i, .kind = EP_NAME_PYTHON};
        name_ids[i] = ep_name_add(0x1000 + 16 * i, 0, &text, NULL, NULL);
    }
    for (uint32_t i = 0; i < SITE_COUNT; i++) {
        ep_site site = {.callee = name_ids[i % NAME_COUNT], .line = (int32_t)i};
        site_ids[i] = ep_site_add(0x1000 + 16 * (i % NAME_COUNT), 0x100000 + 2 * i, &site);
        site_callees[i] = site.callee;
    }
}

static uint32_t
callee_of(uint32_t site_id)
{
    return site_callees[site_id - site_ids[0]];
}

/* ---- Tapes ----------------------------------------------------------------------------------- */

typedef struct tape {
    uint32_t thread_id;
    ep_model_event *events;
    size_t count, capacity;
    uint64_t random;
    uint32_t stack[64];    /* sites; what the imagined program of this thread has open */
    size_t depth;
    bool known_sites;      /* of blocks, too; otherwise any id that fits */
} tape;

static void
tape_add(tape *t, const ep_model_event *event)
{
    if (t->count == t->capacity) {
        t->capacity = t->capacity ? 2 * t->capacity : 4096;
        t->events = realloc(t->events, t->capacity * sizeof *t->events);
        if (t->events == NULL) {
            abort();
        }
    }
    t->events[t->count++] = *event;
}

static void
tape_free(tape *t)
{
    free(t->events);
    *t = (tape){0};
}

/* What a program would do next: mostly calls that nest, some blocks, now and then an end that
 * nobody reports, or one without a beginning. */
static ep_model_event
next_event(tape *t, uint64_t ticks)
{
    uint64_t dice = ep_model_below(&t->random, 100);
    if (dice < 20) {
        ep_model_event event = ep_model_random_event(&t->random, ticks);
        if (ep_kinds[event.kind].family != EP_FAMILY_CALL) {
            event.id = t->known_sites ? site_ids[event.id % SITE_COUNT] : event.id;
            return event;
        }
    }
    ep_model_event event = {.ticks = ticks, .size = -1};
    if (t->depth == 0 || (dice < 60 && t->depth < 64)) {
        static const uint8_t opens[] = {EP_KIND_CALL, EP_KIND_RESUME, EP_KIND_THROW,
                                        EP_KIND_C_CALL, EP_KIND_SPAN_BEGIN, EP_KIND_GC_START};
        event.kind = opens[ep_model_below(&t->random, 6)];
        event.id = site_ids[ep_model_below(&t->random, SITE_COUNT)];
        t->stack[t->depth++] = event.id;
        return event;
    }
    static const uint8_t closes[] = {EP_KIND_RETURN, EP_KIND_YIELD, EP_KIND_UNWIND,
                                     EP_KIND_C_RETURN, EP_KIND_C_EXCEPTION, EP_KIND_SPAN_END,
                                     EP_KIND_GC_STOP};
    event.kind = closes[ep_model_below(&t->random, 7)];
    if (dice == 99) {
        event.id = name_ids[ep_model_below(&t->random, NAME_COUNT)];
        return event;
    }
    t->depth -= dice == 98 && t->depth > 1 ? 2 : 1;
    event.id = callee_of(t->stack[t->depth]);
    return event;
}

/* ---- The judge ------------------------------------------------------------------------------- */

typedef struct open_model {
    uint32_t sites[4096];
    uint8_t kinds[4096];
    size_t depth;
} open_model;

/* The rule in words: an end closes the innermost call of its function, and whatever is above it. */
static void
open_model_apply(open_model *open, const ep_model_event *event)
{
    if (ep_kinds[event->kind].family != EP_FAMILY_CALL) {
        return;
    }
    bool opens = event->kind == EP_KIND_CALL || event->kind == EP_KIND_RESUME ||
                 event->kind == EP_KIND_THROW || event->kind == EP_KIND_C_CALL ||
                 event->kind == EP_KIND_SPAN_BEGIN || event->kind == EP_KIND_GC_START;
    if (opens) {
        open->sites[open->depth] = event->id;
        open->kinds[open->depth++] = event->kind;
        return;
    }
    size_t keep = open->depth;
    while (keep > 0 && callee_of(open->sites[keep - 1]) != event->id) {
        keep -= 1;
    }
    if (keep > 0) {
        open->depth = keep - 1;
    }
}

static void
assert_open(const ep_open_stack *open, const open_model *model, uint32_t thread_id)
{
    if (open->depth != model->depth) {
        ck_abort_msg("thread %u: %zu calls are open at the head, should be %zu", thread_id, open->depth,
                     model->depth);
    }
    for (size_t i = 0; i < model->depth; i++) {
        if (open->calls[i].site_id != model->sites[i] || open->calls[i].kind != model->kinds[i]) {
            ck_abort_msg("thread %u: open call %zu is not the one it should be", thread_id, i);
        }
    }
}

typedef enum kept_part {
    KEPT_LAST,     /* overwrite: the rest was before it */
    KEPT_FIRST,    /* stop: the rest was after it */
    KEPT_ANY       /* no memory: only the counts must be right */
} kept_part;

typedef struct window {
    uint64_t kinds, start, stop;    /* ticks, both inclusive */
    kept_part part;
    bool times;                     /* the injected clock's, to be compared */
    bool in_flight;                 /* a snapshot: each thread may be writing its last event still */
} window;

static bool
in_window(const window *w, const ep_model_event *event)
{
    return event->ticks >= w->start && event->ticks <= w->stop && (w->kinds & EP_KIND_BIT(event->kind));
}

/* Events of one tape against the trace's rows of its thread. */
static void
judge_tape(const tape *t, const window *w, const ep_decoded *decoded)
{
    const ep_trace_thread *thread = ep_model_thread(decoded, t->thread_id);
    static const uint64_t nothing[EP_KIND_COUNT];
    const uint64_t *recorded_by_kind = thread != NULL ? thread->recorded : nothing;
    const uint64_t *lost_by_kind = thread != NULL ? thread->lost : nothing;
    uint64_t emitted[EP_KIND_COUNT] = {0};
    size_t recorded_count = 0, lost_count = 0;
    for (size_t i = 0; i < t->count; i++) {
        if (in_window(w, &t->events[i])) {
            emitted[t->events[i].kind] += 1;
        }
    }
    uint64_t missing = 0;
    for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
        uint64_t both = recorded_by_kind[kind] + lost_by_kind[kind];
        recorded_count += recorded_by_kind[kind];
        lost_count += lost_by_kind[kind];
        missing += emitted[kind] - both;
        if (both > emitted[kind] || (both < emitted[kind] && !w->in_flight)) {
            ck_abort_msg("thread %u, %s: %llu recorded + %llu lost, %llu emitted", t->thread_id,
                         ep_kinds[kind].name, (unsigned long long)recorded_by_kind[kind],
                         (unsigned long long)lost_by_kind[kind], (unsigned long long)emitted[kind]);
        }
    }
    if (missing > 1) {
        ck_abort_msg("thread %u: %llu events are missing in a snapshot", t->thread_id,
                     (unsigned long long)missing);
    }
    /* The rows themselves, in order. */
    size_t skip = w->part == KEPT_LAST ? lost_count : 0, seen = 0, row = 0, block = 0, rows = 0;
    int32_t wanted = thread != NULL ? (int32_t)(thread - decoded->threads) : -1;
    open_model *open = calloc(1, sizeof *open);
    for (size_t i = 0; i < t->count && (rows < recorded_count || seen < skip); i++) {
        const ep_model_event *event = &t->events[i];
        if (!in_window(w, event)) {
            continue;
        }
        if (seen++ < skip) {
            open_model_apply(open, event);
            continue;
        }
        ep_model_event read = {0};
        do {
            read = ep_model_row(&decoded->columns, row, &block);
        } while (decoded->columns.thread[row++] != wanted);
        rows += 1;
        bool same = read.kind == event->kind && read.id == event->id &&
                    read.address == event->address && read.size == event->size &&
                    (!w->times || read.ticks + w->start == event->ticks);
        if (!same && w->part != KEPT_ANY) {
            ck_abort_msg("thread %u: row %zu of it is not event %zu of its tape (%s)", t->thread_id,
                         rows - 1, i, ep_kinds[event->kind].name);
        }
        if (!same) {
            rows -= 1;    /* this event is among the lost ones; the row belongs to a later one */
            row -= 1;
            block -= ep_model_is_among_blocks(read.kind);
        }
    }
    if (rows != recorded_count) {
        ck_abort_msg("thread %u: %zu rows of %zu are no events of its tape", t->thread_id,
                     recorded_count - rows, recorded_count);
    }
    if (thread != NULL && w->part == KEPT_LAST) {
        assert_open(&thread->open, open, t->thread_id);
    }
    free(open);
}

static void
judge(const tape *tapes, size_t tape_count, const window *w, const ep_decoded *decoded)
{
    ep_model_columns(&decoded->columns);
    ck_assert_uint_eq(decoded->damaged_chunks, 0);
    for (size_t i = 0; i < tape_count; i++) {
        judge_tape(&tapes[i], w, decoded);
    }
    /* Nothing is invented: every row belongs to a thread that a tape is of. */
    uint64_t known = 0;
    for (size_t i = 0; i < tape_count; i++) {
        for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
            known += ep_model_recorded(decoded, tapes[i].thread_id, (ep_kind)kind);
        }
    }
    ck_assert_uint_eq(known, decoded->columns.count);
}

static window
window_of(const ep_recorder *recorder)
{
    return (window){
        .kinds = recorder->options.kinds,
        .start = recorder->start.ticks,
        .stop = recorder->stop.ticks,
        .part = recorder->options.on_full == EP_ON_FULL_OVERWRITE ? KEPT_LAST : KEPT_FIRST,
        .times = recorder->options.clock == EP_CLOCK_INJECTED,
    };
}

/* The trace of a stopped recorder is what the tapes say. */
static void
judge_stopped(ep_recorder *recorder, const tape *tapes, size_t tape_count)
{
    ep_decoded decoded = ep_model_decode(recorder);
    window w = window_of(recorder);
    judge(tapes, tape_count, &w, &decoded);
    ep_decoded_clear(&decoded);
}

/* ---- One thread ------------------------------------------------------------------------------ */

/* The calling thread's tape. Its log may have had other tapes, in tests before. */
static tape
own_tape(uint64_t seed)
{
    ep_log *log = ep_log_mine();
    ck_assert_ptr_nonnull(log);
    return (tape){.thread_id = log->thread->id, .random = seed};
}

static void
emit(tape *t, size_t count)
{
    ep_log *log = ep_log_mine();
    for (size_t i = 0; i < count; i++) {
        ep_model_event event = next_event(t, ep_model_tick());
        ep_model_put(log, &event);
        tape_add(t, &event);
    }
}

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

/* ---- Threads that come and go ---------------------------------------------------------------- */

/* A thread that the test leads: it makes its log, and ends when it is told to. In between the test
 * writes to the log, as if it were the thread. */
typedef struct actor {
    pthread_t thread;
    sem_t ready, end;
    ep_log *log;
    tape *tape;
} actor;

static void *
act(void *argument)
{
    actor *a = argument;
    a->log = ep_log_mine();
    sem_post(&a->ready);
    while (sem_wait(&a->end) != 0) {
    }
    return NULL;
}

static void
actor_begin(actor *a, tape *t, uint64_t seed)
{
    sem_init(&a->ready, 0, 0);
    sem_init(&a->end, 0, 0);
    a->thread = ep_model_spawn(act, a);
    while (sem_wait(&a->ready) != 0) {
    }
    a->tape = t;
    *t = (tape){.thread_id = a->log != NULL ? a->log->thread->id : 0, .random = seed};
}

static void
actor_emit(actor *a, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ep_model_event event = next_event(a->tape, ep_model_tick());
        ep_model_put(a->log, &event);
        tape_add(a->tape, &event);
    }
}

static void
actor_end(actor *a)
{
    sem_post(&a->end);
    ep_model_join(a->thread);
    sem_destroy(&a->ready);
    sem_destroy(&a->end);
    a->log = NULL;
}

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

/* Behind ours in every round, for as many rounds as it likes. */
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
    const ep_trace_thread *mine = ep_model_thread(&decoded, thread_id);
    if (mine == NULL || decoded.thread_count != 1 || mine->thread->native_id != ep_os_thread_id()) {
        return 4;
    }
    if (mine->recorded[EP_KIND_CALL] + mine->lost[EP_KIND_CALL] != count) {
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

    for (int i = 0; i < (int)ep_model_work(30); i++) {
        for (int j = 0; j < 1000; j++) {
            ep_model_event event = next_event(&tapes[0], 0);
            event.ticks = ep_clock_ticks();
            ep_model_put(log, &event);
            tape_add(&tapes[0], &event);
        }
        pid_t child = fork();
        if (child == 0) {
            _exit(child_of_fork(&recorder, tapes[0].thread_id));
        }
        ck_assert_int_eq(exit_code_of(child), 0);
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

/* ---- Out of memory --------------------------------------------------------------------------- */

#ifdef EP_FAULT_POINTS
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

/* The same little history each time; its nth request for memory fails. */
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
        ep_ahead_stop();    /* or its own requests count down, too */
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
             every_trace_of_a_stopped_recorder_is_the_same,
             a_capture_outlives_its_recorder,
             a_recorder_starts_once_and_stops_once,
             clearing_a_running_recorder_stops_it,
             memory_goes_back_when_nobody_wants_it,
             calls_open_at_the_start_are_kept_and_folded,
             folding_is_what_the_rule_says,
             a_second_clock_is_refused_while_one_runs,
             windows_on_two_clocks_do_not_meet,
             times_are_the_clocks_over_chunks_minutes_apart,
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
             unlogged_events_are_lost_to_those_that_wanted_them,
#ifdef EP_FAULT_POINTS
             each_request_for_memory_may_fail,
             without_any_memory_everything_is_counted,
             a_failed_snapshot_changes_nothing,
#endif
             a_fork_while_recording_divides_the_two,
             what_was_stopped_before_the_fork_is_readable_in_the_child,
             a_thread_without_a_log_can_fork)
