/* decode.h: records to columns, threads merged, and the table of functions. */
#include "ep_model.h"
#include "functions.h"

#include <stdio.h>

#define SITE_COUNT 64

static uint32_t site_ids[SITE_COUNT];

static void
setup(void)
{
    ep_model_setup();
    ep_engine_first_bytes = EP_CHUNK_BYTES;    /* tests fill one, and cut one into batches */
    for (uint32_t i = 0; i < SITE_COUNT && site_ids[SITE_COUNT - 1] == 0; i++) {
        char qualname[16];
        int bytes = snprintf(qualname, sizeof qualname, "f%u", i);
        ep_name_text text = {.qualname = {qualname, (size_t)bytes}, .line = (int32_t)i};
        ep_site site = {.callee = ep_name_add(0x1000 + 16 * i, 0, &text, NULL, NULL)};
        site_ids[i] = ep_site_add(0x1000 + 16 * i, 0x100000 + 2 * i, &site);
    }
}

/* A second log for the calling thread, as if it were another thread: this suite cares for order,
 * not for who writes. Logs that are made so live on; a test leaves the thread its first one. */
static ep_log *
another_log(void)
{
    ep_log *own = ep_log_mine();
    ep_log_current = NULL;
    ep_log *log = ep_log_mine();
    ep_log_current = own;
    return log;
}

#define MOST_LOGS 9

static ep_log *
log_number(size_t number)
{
    static ep_log *logs[MOST_LOGS];
    if (logs[0] == NULL) {
        logs[0] = ep_log_mine();
    }
    if (logs[number] == NULL) {
        logs[number] = another_log();
    }
    return logs[number];
}

/* ---- Streams --------------------------------------------------------------------------------- */

typedef struct stream_event {
    ep_model_event event;
    uint32_t thread_id;
    size_t order;    /* within its thread */
} stream_event;

static int
by_time_then_thread(const void *a, const void *b)
{
    const stream_event *x = a, *y = b;
    if (x->event.ticks != y->event.ticks) {
        return x->event.ticks < y->event.ticks ? -1 : 1;
    }
    if (x->thread_id != y->thread_id) {
        return x->thread_id < y->thread_id ? -1 : 1;
    }
    return (x->order > y->order) - (x->order < y->order);
}

typedef struct stream_shape {
    size_t threads, events;
    uint64_t longest_run;    /* of one thread; GIL-like turns are long, free threads short */
    uint64_t longest_step;   /* between two ticks; 0: all at once */
    uint64_t kinds;          /* that are emitted */
    uint64_t wanted;         /* by the recorder */
} stream_shape;

/* Calls have sites that exist: a ring folds them. */
static ep_model_event
random_event_of(uint64_t *random, uint64_t ticks, uint64_t kinds)
{
    for (;;) {
        ep_model_event event = ep_model_random_event(random, ticks);
        if (kinds & EP_KIND_BIT(event.kind)) {
            bool call = ep_kinds[event.kind].form == EP_FORM_CALL;
            bool opens = ep_kinds[event.kind].pairing == EP_PAIRING_OPENS;
            event.id = call && opens ? site_ids[event.id % SITE_COUNT] : event.id;
            return event;
        }
    }
}

/* Records a random stream and decodes it: the rows are the stably sorted stream. */
static void
assert_decodes_to_itself(uint64_t seed, const stream_shape *shape)
{
    setup();
    uint64_t random = seed;
    stream_event *stream = ep_calloc(shape->events, sizeof *stream);
    size_t orders[MOST_LOGS] = {0}, emitted = 0, thread = 0;
    ep_recorder recorder;
    ep_model_start(&recorder, shape->wanted, 0, EP_ON_FULL_GROW, EP_CLOCK_INJECTED);
    uint64_t ticks = ep_model_tick(), run = 0;
    for (size_t i = 0; i < shape->events; i++) {
        if (run-- == 0) {
            run = ep_model_below(&random, shape->longest_run);
            thread = ep_model_below(&random, shape->threads);
        }
        ticks += shape->longest_step ? ep_model_below(&random, shape->longest_step) : 0;
        ticks += ep_model_below(&random, 20000) ? 0 : ep_model_below(&random, UINT64_C(3) << 32);
        ep_log *log = log_number(thread);
        ep_model_event event = random_event_of(&random, ticks, shape->kinds);
        atomic_store(&ep_model_now, ticks);
        ep_model_put(log, &event);
        if (shape->wanted & EP_KIND_BIT(event.kind)) {
            stream[emitted++] = (stream_event){event, log->thread->id, orders[thread]++};
        }
    }
    atomic_store(&ep_model_now, ticks + 1);
    ep_model_stop(&recorder);

    ep_decoded decoded = ep_model_decode(&recorder);

    qsort(stream, emitted, sizeof *stream, by_time_then_thread);
    ck_assert_uint_eq(decoded.columns.count, emitted);
    ep_model_columns(&decoded.columns);
    size_t block = 0;
    for (size_t row = 0; row < emitted; row++) {
        ep_model_event read = ep_model_row(&decoded.columns, row, &block);
        const ep_model_event *event = &stream[row].event;
        uint32_t thread_id = decoded.threads[decoded.columns.thread[row]].thread->id;
        if (read.ticks + recorder.start.ticks != event->ticks || read.kind != event->kind ||
            read.id != event->id || read.address != event->address || read.size != event->size ||
            thread_id != stream[row].thread_id) {
            ck_abort_msg("seed %d: row %zu is not event %zu of thread %u", (int)seed, row,
                         stream[row].order, stream[row].thread_id);
        }
    }
    ck_assert_int_eq(decoded.duration_ns, (int64_t)(recorder.stop.ticks - recorder.start.ticks));
    ep_decoded_clear(&decoded);
    ep_recorder_clear(&recorder);
    free(stream);
}

START_TEST(one_threads_stream_decodes_to_itself)
{
    const stream_shape shapes[] = {
        {1, 300000, 1000, 100, EP_MODEL_ALL_KINDS, EP_MODEL_ALL_KINDS},
        {1, 300000, 1000, 100, EP_MODEL_CALL_KINDS, EP_MODEL_ALL_KINDS},
        {1, 300000, 1000, 100, EP_MODEL_ALL_KINDS & ~EP_MODEL_CALL_KINDS, EP_MODEL_ALL_KINDS},
    };
    for (uint64_t i = 0; i < 3; i++) {
        stream_shape shape = shapes[i];
        shape.events = ep_model_work(shape.events);
        assert_decodes_to_itself(i + 1, &shape);
    }
}
END_TEST

START_TEST(kinds_that_are_not_wanted_are_left_out)
{
    const uint64_t wanted[] = {EP_MODEL_CALL_KINDS, EP_MODEL_ALL_KINDS & ~EP_MODEL_CALL_KINDS,
                               EP_KIND_BIT(EP_KIND_FREE_OBJ) | EP_KIND_BIT(EP_KIND_YIELD),
                               EP_KIND_BIT(EP_KIND_REALLOC_FAILED_RAW), 0};
    for (uint64_t i = 0; i < 5; i++) {
        stream_shape shape = {2, ep_model_work(200000), 1000, 100, EP_MODEL_ALL_KINDS, wanted[i]};
        assert_decodes_to_itself(i + 10, &shape);
    }
}
END_TEST

START_TEST(threads_are_merged_as_a_stable_sort_by_time_and_thread)
{
    static const uint64_t runs[] = {1, 2, 100, 20000}, steps[] = {0, 2, 1000};
    for (uint64_t threads = 2; threads <= MOST_LOGS; threads += threads < 4 ? 1 : 5) {
        for (uint64_t i = 0; i < 12; i++) {
            stream_shape shape = {threads, ep_model_work(20000), runs[i % 4], steps[i / 4],
                                  EP_MODEL_ALL_KINDS, EP_MODEL_ALL_KINDS};
            assert_decodes_to_itself(100 * threads + i, &shape);
        }
    }
}
END_TEST

/* ---- Windows --------------------------------------------------------------------------------- */

static void
put_call(ep_log *log, uint64_t ticks, uint32_t site)
{
    ep_log_put(log, ticks, EP_KIND_CALL, site_ids[site]);
}

START_TEST(both_ends_of_a_window_belong_to_it)
{
    setup();
    ep_recorder recorder;
    ep_log *log = log_number(0);
    ep_model_start(&recorder, EP_MODEL_ALL_KINDS, 1, EP_ON_FULL_GROW, EP_CLOCK_INJECTED);
    uint64_t start = recorder.start.ticks;
    put_call(log, start - 1, 0);
    put_call(log, start, 1);
    put_call(log, start + 1000, 2);
    put_call(log, start + 1001, 3);
    atomic_store(&ep_model_now, start + 1000);
    ep_model_stop(&recorder);
    ck_assert_uint_eq(recorder.stop.ticks, start + 1000);
    atomic_store(&ep_model_now, start + 2000);

    ep_decoded decoded = ep_model_decode(&recorder);

    ck_assert_uint_eq(decoded.columns.count, 2);
    ck_assert_uint_eq(decoded.columns.id[0], site_ids[1]);
    ck_assert_uint_eq(decoded.columns.id[1], site_ids[2]);
    ck_assert_int_eq(decoded.columns.time_ns[0], 0);
    ck_assert_int_eq(decoded.columns.time_ns[1], 1000);
    ck_assert_int_eq(decoded.duration_ns, 1000);
    ep_decoded_clear(&decoded);
    ep_recorder_clear(&recorder);
}
END_TEST

START_TEST(time_never_goes_backwards_within_a_thread)
{
    setup();
    ep_recorder recorder;
    ep_log *log = log_number(0);
    ep_model_start(&recorder, EP_MODEL_ALL_KINDS, 1, EP_ON_FULL_GROW, EP_CLOCK_INJECTED);
    uint64_t start = recorder.start.ticks;
    static const uint64_t ticks[] = {100, 90, 110, 20, 120};
    static const int64_t times[] = {100, 100, 110, 110, 120};
    for (uint32_t i = 0; i < 5; i++) {
        put_call(log, start + ticks[i], i);
    }
    atomic_store(&ep_model_now, start + 1000);
    ep_model_stop(&recorder);

    ep_decoded decoded = ep_model_decode(&recorder);

    ck_assert_uint_eq(decoded.columns.count, 5);
    for (uint32_t i = 0; i < 5; i++) {
        ck_assert_uint_eq(decoded.columns.id[i], site_ids[i]);
        ck_assert_int_eq(decoded.columns.time_ns[i], times[i]);
    }
    ep_decoded_clear(&decoded);
    ep_recorder_clear(&recorder);
}
END_TEST

START_TEST(threads_know_their_first_and_last_times)
{
    setup();
    ep_recorder recorder;
    ep_model_start(&recorder, EP_MODEL_ALL_KINDS, 1, EP_ON_FULL_GROW, EP_CLOCK_INJECTED);
    uint64_t start = recorder.start.ticks;
    put_call(log_number(0), start + 5, 0);
    put_call(log_number(1), start + 7, 0);
    put_call(log_number(0), start + 90, 0);
    atomic_store(&ep_model_now, start + 100);
    ep_model_stop(&recorder);

    ep_decoded decoded = ep_model_decode(&recorder);

    ck_assert_uint_eq(decoded.thread_count, 2);
    const ep_trace_thread *first = ep_model_thread(&decoded, log_number(0)->thread->id);
    const ep_trace_thread *second = ep_model_thread(&decoded, log_number(1)->thread->id);
    ck_assert_int_eq(first->first_ns, 5);
    ck_assert_int_eq(first->last_ns, 90);
    ck_assert_int_eq(second->first_ns, 7);
    ck_assert_int_eq(second->last_ns, 7);
    ck_assert_uint_eq(first->recorded[EP_KIND_CALL], 2);
    ep_decoded_clear(&decoded);
    ep_recorder_clear(&recorder);
}
END_TEST

START_TEST(one_thread_alone_can_be_asked_for)
{
    setup();
    ep_recorder recorder;
    ep_model_start(&recorder, EP_MODEL_ALL_KINDS, 9, EP_ON_FULL_GROW, EP_CLOCK_INJECTED);
    for (uint32_t i = 0; i < 30000; i++) {
        put_call(log_number(i % 3), ep_model_tick(), i % 3);
    }
    ep_log_next_chunk(log_number(1), ep_model_tick());
    ep_model_stop(&recorder);
    ep_capture capture;
    ep_decoded decoded;
    ck_assert_int_eq(ep_capture_take(&recorder, &capture, NULL), EP_OK);

    ck_assert_int_eq(ep_decode(&capture, log_number(1)->thread->id, &decoded), EP_OK);

    ck_assert_uint_eq(decoded.thread_count, 1);
    ck_assert_uint_eq(decoded.columns.count, 10000);
    for (size_t i = 0; i < 10000; i++) {
        if (decoded.columns.id[i] != site_ids[1] || decoded.columns.thread[i] != 0) {
            ck_abort_msg("row %zu is another thread's", i);
        }
    }
    ep_decoded_clear(&decoded);
    ck_assert_int_eq(ep_decode(&capture, UINT32_MAX, &decoded), EP_OK);
    ck_assert_uint_eq(decoded.thread_count, 0);
    ep_decoded_clear(&decoded);
    ep_capture_clear(&capture);
    ep_recorder_clear(&recorder);
}
END_TEST

START_TEST(a_thread_that_only_had_calls_open_is_listed)
{
    setup();
    ep_recorder recorder;
    ep_model_start(&recorder, EP_MODEL_ALL_KINDS, 1, EP_ON_FULL_GROW, EP_CLOCK_INJECTED);
    const ep_open_call open[] = {{site_ids[3], EP_KIND_CALL, 0, 0}, {site_ids[4], EP_KIND_RESUME, 0, 0}};
    uint32_t thread_id = log_number(2)->thread->id;
    ck_assert_int_eq(ep_recorder_set_open(&recorder, thread_id, open, 2), EP_OK);
    ep_model_stop(&recorder);

    ep_decoded decoded = ep_model_decode(&recorder);

    ck_assert_uint_eq(decoded.thread_count, 1);
    ck_assert_uint_eq(decoded.threads[0].thread->id, thread_id);
    ck_assert_uint_eq(decoded.threads[0].open.depth, 2);
    ck_assert_uint_eq(decoded.threads[0].open.calls[1].site_id, site_ids[4]);
    ck_assert_uint_eq(decoded.threads[0].open.calls[1].kind, EP_KIND_RESUME);
    ep_decoded_clear(&decoded);
    ep_recorder_clear(&recorder);
}
END_TEST

/* A snapshot is decoded while threads come: what they write is after its window, but the counters of
 * two processors may differ, and then its ticks are not. */
START_TEST(a_thread_that_came_after_the_capture_is_neither_decoded_nor_counted)
{
    setup();
    ep_recorder recorder;
    ep_model_start(&recorder, EP_MODEL_ALL_KINDS, 9, EP_ON_FULL_GROW, EP_CLOCK_INJECTED);
    for (uint32_t i = 0; i < 500; i++) {
        put_call(log_number(i % 2), ep_model_tick(), i % 2);
    }
    ep_model_stop(&recorder);
    ep_capture capture;
    ck_assert_int_eq(ep_capture_take(&recorder, &capture, NULL), EP_OK);
    size_t thread_count = capture.thread_count;
    capture.thread_count = log_number(1)->thread->id;
    ck_assert_uint_lt(log_number(0)->thread->id, capture.thread_count);

    ep_decoded decoded;
    ck_assert_int_eq(ep_decode(&capture, 0, &decoded), EP_OK);
    uint64_t recorded[EP_KIND_COUNT], lost[EP_KIND_COUNT];
    ep_capture_count(&capture, 0, recorded, lost);

    ck_assert_uint_eq(decoded.columns.count, 250);
    ck_assert_uint_eq(recorded[EP_KIND_CALL], 250);
    ep_decoded_clear(&decoded);
    capture.thread_count = thread_count;
    ep_capture_clear(&capture);
    ep_recorder_clear(&recorder);
}
END_TEST

/* ---- Damage ---------------------------------------------------------------------------------- */

START_TEST(a_damaged_chunk_is_read_up_to_the_damage)
{
    setup();
    ep_recorder recorder;
    ep_log *log = log_number(0);
    ep_model_start(&recorder, EP_MODEL_ALL_KINDS, 9, EP_ON_FULL_GROW, EP_CLOCK_INJECTED);
    ep_log_next_chunk(log, ep_model_tick());
    for (uint32_t i = 0; i < 1000; i++) {
        put_call(log, ep_model_tick(), 1);
    }
    _Atomic uint64_t *words = (_Atomic uint64_t *)(log->chunk->header + 1);
    ep_log_next_chunk(log, ep_model_tick());
    put_call(log, ep_model_tick(), 2);
    ep_model_stop(&recorder);

    atomic_store(&words[700], EP_WORD0(1, 0, 1));

    ep_decoded decoded = ep_model_decode(&recorder);
    ck_assert_uint_eq(decoded.damaged_chunks, 1);
    ck_assert_uint_eq(decoded.columns.count, 701);
    ep_decoded_clear(&decoded);
    ep_recorder_clear(&recorder);
}
END_TEST

START_TEST(random_words_decode_without_harm)
{
    setup();
    uint64_t random = 12347;
    for (int round = 0; round < 30; round++) {
        ep_recorder recorder;
        ep_log *log = log_number(0);
        ep_model_start(&recorder, EP_MODEL_ALL_KINDS, 9, EP_ON_FULL_GROW, EP_CLOCK_INJECTED);
        ep_log_next_chunk(log, ep_model_tick());
        ep_chunk_header *header = log->chunk->header;
        ep_log_next_chunk(log, ep_model_tick());
        ep_model_stop(&recorder);
        recorder.stop.ticks = UINT64_MAX / 4;
        uint64_t *words = (uint64_t *)(header + 1);
        for (size_t i = 0; i < EP_CHUNK_WORDS; i++) {
            uint64_t kind = ep_model_below(&random, 1000) ? 1 + ep_model_below(&random, 39)
                                                          : ep_model_below(&random, 64);
            words[i] = EP_WORD0(ep_model_random(&random), kind, ep_model_below(&random, 1 << 25));
        }
        header->used_words = ep_model_below(&random, 2) ? EP_CHUNK_WORDS : UINT64_MAX;

        ep_decoded decoded = ep_model_decode(&recorder);

        ep_model_columns(&decoded.columns);
        ep_decoded_clear(&decoded);
        ep_recorder_clear(&recorder);
    }
}
END_TEST

/* ---- Functions ------------------------------------------------------------------------------- */

/* Names and sites of a test have keys of their own. */
static uintptr_t next_key = 0x70000000;

static uint32_t
new_name(const char *qualname, const char *module, const char *file, int32_t line, ep_name_kind kind)
{
    ep_name_text text = {.qualname = {qualname, strlen(qualname)},
                         .module = {module, strlen(module)},
                         .file = {file, strlen(file)},
                         .line = line,
                         .kind = kind};
    return ep_name_add(next_key += 16, 0, &text, NULL, NULL);
}

static uint32_t
new_site(uint32_t callee, uint32_t caller, int32_t line)
{
    ep_site site = {.callee = callee, .caller = caller, .line = line};
    next_key += 16;
    return ep_site_add(next_key, next_key, &site);
}

typedef struct recorded {
    ep_decoded decoded;
    ep_functions functions;
} recorded;

/* What the given records give. Returns: new. */
static recorded
record(const ep_model_event *events, size_t count)
{
    recorded result;
    ep_recorder recorder;
    ep_model_start(&recorder, EP_MODEL_ALL_KINDS, 1, EP_ON_FULL_GROW, EP_CLOCK_INJECTED);
    for (size_t i = 0; i < count; i++) {
        ep_model_event event = events[i];
        event.ticks = ep_model_tick();
        ep_model_put(log_number(0), &event);
    }
    ep_model_stop(&recorder);
    result.decoded = ep_model_decode(&recorder);
    ck_assert_uint_eq(result.decoded.columns.count, count);
    ck_assert_int_eq(ep_functions_build(&result.decoded, &result.functions), EP_OK);
    ep_recorder_clear(&recorder);
    return result;
}

static void
recorded_clear(recorded *r)
{
    ep_decoded_clear(&r->decoded);
    ep_functions_clear(&r->functions);
}

START_TEST(names_that_share_their_text_share_a_row)
{
    setup();
    uint32_t f = new_name("f", "m", "m.py", 3, EP_NAME_PYTHON);
    uint32_t again = new_name("f", "m", "m.py", 3, EP_NAME_PYTHON);
    const uint32_t others[] = {
        new_name("g", "m", "m.py", 3, EP_NAME_PYTHON), new_name("f", "n", "m.py", 3, EP_NAME_PYTHON),
        new_name("f", "m", "n.py", 3, EP_NAME_PYTHON), new_name("f", "m", "m.py", 4, EP_NAME_PYTHON),
        new_name("f", "m", "m.py", 3, EP_NAME_C)};
    ck_assert_uint_ne(f, again);
    ep_model_event events[7] = {{.kind = EP_KIND_RETURN, .id = f}, {.kind = EP_KIND_RETURN, .id = again}};
    for (int i = 0; i < 5; i++) {
        events[2 + i] = (ep_model_event){.kind = EP_KIND_RETURN, .id = others[i]};
    }

    recorded r = record(events, 7);

    ck_assert_uint_eq(r.functions.count, 6);
    ck_assert_uint_eq(r.functions.map.function_count, 6);
    ck_assert_int_eq(r.functions.map.name_function[f], 0);
    ck_assert_int_eq(r.functions.map.name_function[again], 0);
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(r.functions.map.name_function[others[i]], 1 + i);
        ck_assert_uint_eq(r.functions.name_id[1 + i], others[i]);
    }
    recorded_clear(&r);
}
END_TEST

START_TEST(sites_of_calls_name_callee_caller_and_line)
{
    setup();
    uint32_t f = new_name("callee", "m", "m.py", 1, EP_NAME_PYTHON);
    uint32_t g = new_name("caller", "m", "m.py", 2, EP_NAME_PYTHON);
    uint32_t called = new_site(f, g, 77), from_nowhere = new_site(f, 0, -1);
    uint32_t pending = new_site(f, g, EP_LINE_PENDING);
    const ep_model_event events[] = {{.kind = EP_KIND_CALL, .id = called},
                                     {.kind = EP_KIND_CALL, .id = from_nowhere},
                                     {.kind = EP_KIND_C_CALL, .id = pending}};

    recorded r = record(events, 3);

    const ep_id_map *map = &r.functions.map;
    ck_assert_uint_eq(r.functions.count, 2);
    ck_assert_int_eq(map->site_function[called], map->name_function[f]);
    ck_assert_int_eq(map->site_caller[called], map->name_function[g]);
    ck_assert_int_eq(map->site_line[called], 77);
    ck_assert_int_eq(map->site_function[from_nowhere], map->name_function[f]);
    ck_assert_int_eq(map->site_caller[from_nowhere], -1);
    ck_assert_int_eq(map->site_line[from_nowhere], -1);
    ck_assert_int_eq(map->site_line[pending], -1);
    recorded_clear(&r);
}
END_TEST

START_TEST(sites_of_blocks_name_the_function_that_was_executing)
{
    setup();
    uint32_t f = new_name("allocating", "m", "m.py", 5, EP_NAME_PYTHON);
    uint32_t site = new_site(0, f, 12347);
    const ep_model_event events[] = {{.kind = EP_KIND_MALLOC_OBJ, .id = site, .address = 64, .size = 8},
                                     {.kind = EP_KIND_FREE_OBJ, .id = 0, .address = 64}};

    recorded r = record(events, 2);

    ck_assert_uint_eq(r.functions.count, 1);
    ck_assert_int_eq(r.functions.map.site_function[site], 0);
    ck_assert_int_eq(r.functions.map.site_caller[site], -1);
    ck_assert_int_eq(r.functions.map.site_line[site], 12347);
    ck_assert_int_eq(r.functions.map.site_function[0], -1);
    recorded_clear(&r);
}
END_TEST

START_TEST(what_no_row_mentions_has_no_row)
{
    setup();
    uint32_t f = new_name("mentioned", "m", "m.py", 5, EP_NAME_PYTHON);
    uint32_t g = new_name("elsewhere", "m", "m.py", 6, EP_NAME_PYTHON);
    const ep_model_event events[] = {{.kind = EP_KIND_RETURN, .id = f}};

    recorded r = record(events, 1);

    ck_assert_uint_eq(r.functions.count, 1);
    ck_assert_int_eq(r.functions.map.name_function[f], 0);
    ck_assert_int_eq(r.functions.map.name_function[g], EP_ID_UNSEEN);
    ck_assert_int_eq(r.functions.map.name_function[0], -1);
    recorded_clear(&r);
}
END_TEST

START_TEST(calls_open_at_the_head_have_rows)
{
    setup();
    uint32_t f = new_name("open", "m", "m.py", 9, EP_NAME_PYTHON);
    uint32_t site = new_site(f, 0, 3);
    ep_recorder recorder;
    ep_functions functions;
    ep_model_start(&recorder, EP_MODEL_ALL_KINDS, 1, EP_ON_FULL_GROW, EP_CLOCK_INJECTED);
    const ep_open_call open[] = {{site, EP_KIND_CALL, 0, 0}};
    ck_assert_int_eq(ep_recorder_set_open(&recorder, log_number(0)->thread->id, open, 1), EP_OK);
    ep_model_stop(&recorder);
    ep_decoded decoded = ep_model_decode(&recorder);

    ck_assert_int_eq(ep_functions_build(&decoded, &functions), EP_OK);

    ck_assert_uint_eq(functions.count, 1);
    ck_assert_int_eq(functions.map.site_function[site], 0);
    ep_functions_clear(&functions);
    ep_decoded_clear(&decoded);
    ep_recorder_clear(&recorder);
}
END_TEST

START_TEST(thousands_of_functions_are_all_told_apart)
{
    setup();
    enum {
        COUNT = 3000
    };
    ep_model_event *events = ep_calloc(2 * COUNT, sizeof *events);
    for (int i = 0; i < COUNT; i++) {
        char qualname[32];
        snprintf(qualname, sizeof qualname, "function%d", i);
        for (int twice = 0; twice < 2; twice++) {
            events[i + twice * COUNT] = (ep_model_event){
                .kind = EP_KIND_RETURN, .id = new_name(qualname, "m", "m.py", i, EP_NAME_PYTHON)};
        }
    }

    recorded r = record(events, 2 * COUNT);

    ck_assert_uint_eq(r.functions.count, COUNT);
    for (int i = 0; i < 2 * COUNT; i++) {
        if (r.functions.map.name_function[events[i].id] != i % COUNT) {
            ck_abort_msg("function %d has another's row", i);
        }
    }
    recorded_clear(&r);
    free(events);
}
END_TEST

/* ---- Out of memory --------------------------------------------------------------------------- */

#ifdef EP_FAULT_POINTS
START_TEST(decoding_without_memory_fails_and_works_again)
{
    setup();
    ep_recorder recorder;
    uint64_t random = 1;
    ep_model_start(&recorder, EP_MODEL_ALL_KINDS, 9, EP_ON_FULL_GROW, EP_CLOCK_INJECTED);
    for (uint32_t i = 0; i < 3000; i++) {
        ep_model_event event = random_event_of(&random, ep_model_tick(), EP_MODEL_ALL_KINDS);
        bool opens = ep_kinds[event.kind].pairing == EP_PAIRING_OPENS;
        event.id = opens ? site_ids[event.id % SITE_COUNT] : 0;
        ep_model_put(log_number(i / 100 % 3), &event);
    }
    const ep_open_call open[] = {{site_ids[3], EP_KIND_CALL, 0, 0}};
    ck_assert_int_eq(ep_recorder_set_open(&recorder, log_number(0)->thread->id, open, 1), EP_OK);
    ep_model_stop(&recorder);
    ep_capture capture;
    ck_assert_int_eq(ep_capture_take(&recorder, &capture, NULL), EP_OK);
    int failures = 0;

    for (int nth = 0;; nth++) {
        ep_decoded decoded;
        ep_functions functions;
        atomic_store(&ep_fault_countdown, nth);
        ep_status status = ep_decode(&capture, 0, &decoded);
        ep_status built = status == EP_OK ? ep_functions_build(&decoded, &functions) : EP_NOMEM;
        bool reached = atomic_load(&ep_fault_countdown) < 0;
        atomic_store(&ep_fault_countdown, -1);

        if (status == EP_OK) {
            ck_assert_uint_eq(decoded.columns.count, 3000);
            ep_decoded_clear(&decoded);
        }
        if (built == EP_OK) {
            ep_functions_clear(&functions);
        }
        ck_assert_int_eq(built, reached ? EP_NOMEM : EP_OK);
        failures += reached;
        if (!reached) {
            break;
        }
    }

    ck_assert_int_gt(failures, 15);
    ep_capture_clear(&capture);
    ep_recorder_clear(&recorder);
}
END_TEST
#endif

EP_TEST_MAIN("decode",
             one_threads_stream_decodes_to_itself,
             kinds_that_are_not_wanted_are_left_out,
             threads_are_merged_as_a_stable_sort_by_time_and_thread,
             both_ends_of_a_window_belong_to_it,
             time_never_goes_backwards_within_a_thread,
             one_thread_alone_can_be_asked_for,
             a_thread_that_only_had_calls_open_is_listed,
             a_thread_that_came_after_the_capture_is_neither_decoded_nor_counted,
             a_damaged_chunk_is_read_up_to_the_damage,
             random_words_decode_without_harm,
             names_that_share_their_text_share_a_row,
             sites_of_calls_name_callee_caller_and_line,
             sites_of_blocks_name_the_function_that_was_executing,
             what_no_row_mentions_has_no_row,
             calls_open_at_the_head_have_rows,
             thousands_of_functions_are_all_told_apart,
#ifdef EP_FAULT_POINTS
             decoding_without_memory_fails_and_works_again,
#endif
             threads_know_their_first_and_last_times)
