/* recorded + lost == emitted: eight threads at full rate, every policy, rings of one chunk to 1 GiB,
 * while others look, record and end. EP_TEST_EVENTS: how many events each time (./dev soak: 110 M,
 * which are more than 1 GiB). */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define EP_TEST_TIMEOUT 1800
#include "ep_model.h"
#include "file_read.h"

#define THREADS 8

static const ep_kind mix[] = {
    EP_KIND_CALL,
    EP_KIND_MALLOC_OBJ,
    EP_KIND_C_CALL,
    EP_KIND_C_RETURN,
    EP_KIND_FREE_OBJ,
    EP_KIND_RETURN,
    EP_KIND_SPAN_BEGIN,
    EP_KIND_LINE,
    EP_KIND_COUNTER,
    EP_KIND_MARK,
    EP_KIND_BRANCH,
    EP_KIND_SPAN_END,
};
#define MIX (sizeof mix / sizeof mix[0])

/* Of one thread: what it emitted is as many of each kind of the mix. */
typedef struct emitter {
    uint64_t rounds;
    uint32_t thread_id;
    pthread_t thread;
} emitter;

static _Atomic int running;

static void *
emit(void *argument)
{
    emitter *e = argument;
    ep_log *log = ep_log_mine();
    e->thread_id = log->thread->id;
    for (uint64_t i = 0; i < e->rounds; i++) {
        uint64_t ticks = ep_clock_ticks();
        ep_log_put(log, ticks, EP_KIND_CALL, 1);
        ep_log_put_block(log, ticks, EP_KIND_MALLOC_OBJ, 64, 4096 + 16 * (i & 1023), 1);
        ep_log_put(log, ticks, EP_KIND_C_CALL, 1);
        ep_log_put(log, ticks, EP_KIND_C_RETURN, 1);
        ep_log_put_free(log, ticks, EP_KIND_FREE_OBJ, 1, 4096 + 16 * (i & 1023));
        ep_log_put(log, ticks, EP_KIND_SPAN_BEGIN, 1);
        ep_log_put(log, ticks, EP_KIND_LINE, 1);
        ep_log_put_value_at(log, ep_ticks_halves(ticks), EP_KIND_COUNTER, 1, i);
        ep_log_put(log, ticks, EP_KIND_MARK, 1);
        ep_log_put_value_at(log, ep_ticks_halves(ticks), EP_KIND_BRANCH, 1, i);
        ep_log_put(log, ticks, EP_KIND_SPAN_END, 1);
        ep_log_put(log, ticks, EP_KIND_RETURN, 1);
    }
    atomic_fetch_sub(&running, 1);
    return NULL;
}

static uint64_t
events_wanted(void)
{
    const char *wanted = getenv("EP_TEST_EVENTS");
    return wanted != NULL ? strtoull(wanted, NULL, 10) : ep_model_work(EP_MODEL_TSAN ? 600000 : 2000000);
}

/* By thread id and kind, what a capture has, be it later than its recorder was full, and what it
 * counts as lost besides. Without columns: these would be larger than what is recorded. Returns: new
 * (free). */
static uint64_t (*sums_of(const ep_capture *capture)) [EP_KIND_COUNT] {
    uint64_t (*sums)[EP_KIND_COUNT] = calloc(capture->thread_count, sizeof *sums);
    ck_assert_ptr_nonnull(sums);
    for (size_t i = 0; i < capture->chunk_count; i++) {
        ep_cursor cursor = ep_cursor_begin(capture->chunks[i]->header);
        ep_record record;
        while (ep_cursor_next(&cursor, &record)) {
            if (record.ticks >= capture->start.ticks && record.ticks <= capture->stop.ticks) {
                ck_assert_uint_lt(cursor.thread_id, capture->thread_count);
                sums[cursor.thread_id][record.kind] += ep_record_is_for(&record, capture->kinds);
            }
        }
    }
    for (size_t id = 0; id < capture->thread_count; id++) {
        for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
            sums[id][kind] += capture->threads[id].lost[kind];
        }
    }
    return sums;
}

static const char *const words[] = {"overwrite", "stop", "grow"};

static void
judge(ep_recorder *recorder, const emitter *emitters, const char *what)
{
    ep_capture capture;
    ck_assert_int_eq(ep_capture_take(recorder, &capture, NULL), EP_OK);
    uint64_t (*sums)[EP_KIND_COUNT] = sums_of(&capture);
    for (int i = 0; i < THREADS; i++) {
        for (size_t k = 0; k < MIX; k++) {
            ck_assert_msg(sums[emitters[i].thread_id][mix[k]] == emitters[i].rounds,
                          "%s, thread %d, %s: %llu of %llu", what, i, ep_kinds[mix[k]].name,
                          (unsigned long long)sums[emitters[i].thread_id][mix[k]],
                          (unsigned long long)emitters[i].rounds);
        }
    }
    free(sums);
    ep_capture_clear(&capture);
}

/* On file it is the same. */
static void
judge_file(const char *path, const emitter *emitters)
{
    ep_file_reader *reader;
    ep_recording recording;
    ep_decoded decoded;
    ck_assert_int_eq(ep_file_open(open(path, O_RDONLY | O_CLOEXEC), &reader, NULL), EP_OK);
    ck_assert_int_eq(ep_file_load(reader, &recording, &decoded, NULL), EP_OK);
    uint64_t have = 0, wanted = 0;
    for (size_t i = 0; i < decoded.thread_count; i++) {
        for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
            have += decoded.threads[i].recorded[kind] + decoded.threads[i].lost[kind];
        }
    }
    for (int i = 0; i < THREADS; i++) {
        wanted += emitters[i].rounds * MIX;
    }
    ck_assert_uint_eq(have, wanted);
    ep_decoded_clear(&decoded);
    ep_recording_clear(&recording);
    ep_file_close(reader);
}

static void
record_all(ep_on_full on_full, uint64_t chunks, const char *path)
{
    static emitter emitters[THREADS];
    uint64_t events = events_wanted();
    char what[100];
    snprintf(what, sizeof what, "%s, %llu MiB%s", words[on_full], (unsigned long long)chunks,
             path != NULL ? ", file" : "");
    ep_recorder recorder, second;
    ep_recorder_options options = {.kinds = EP_MODEL_ALL_KINDS,
                                   .limit_bytes = chunks * EP_CHUNK_BYTES,
                                   .on_full = on_full,
                                   .clock_any = true};
    ep_recorder_options second_options = options;
    second_options.limit_bytes = EP_CHUNK_BYTES;
    second_options.on_full = EP_ON_FULL_OVERWRITE;
    ep_recorder_init(&recorder, &options);
    if (path != NULL) {
        ep_file_options file_options = {
            .path = path, .child_path = path, .replace = true, .metadata = "{}", .metadata_bytes = 2};
        ep_file *file;
        ck_assert_int_eq(ep_file_create(&file_options, &file, NULL), EP_OK);
        ck_assert_int_eq(ep_file_put_in_place(file, NULL), EP_OK);
        ep_recorder_set_file(&recorder, file);
    }
    ck_assert_int_eq(ep_recorder_start(&recorder, NULL), EP_OK);
    atomic_store(&running, THREADS);
    for (int i = 0; i < THREADS; i++) {
        emitters[i] = (emitter){.rounds = events / MIX / THREADS};
        emitters[i].thread = ep_model_spawn(emit, &emitters[i]);
    }
    while (atomic_load(&running) > 0) {
        ep_recorder_init(&second, &second_options);
        ck_assert_int_eq(ep_recorder_start(&second, NULL), EP_OK);
        ep_capture capture;
        ck_assert_int_eq(ep_capture_take(&recorder, &capture, NULL), EP_OK);
        ep_capture_clear(&capture);
        ep_recorder_clear(&second);
        sched_yield();
    }
    for (int i = 0; i < THREADS; i++) {
        ep_model_join(emitters[i].thread);
    }
    ep_model_stop(&recorder);
    judge(&recorder, emitters, what);
    if (path != NULL) {
        judge_file(path, emitters);
    }
    ep_recorder_clear(&recorder);
    if (getenv("EP_TEST_EVENTS") != NULL) {
        printf("%s: %llu events add up\n", what,
               (unsigned long long)(emitters[0].rounds * MIX * THREADS));
        fflush(stdout);
    }
}

static void
setup(void)
{
    ck_assert_int_eq(ep_engine_init(), EP_OK);
    ck_assert_int_eq(ep_names_init(), EP_OK);
    ep_name_text text = {.qualname = {"f", 1}, .line = 1, .kind = EP_NAME_PYTHON};
    uint32_t name = ep_name_add(0x1000, 0, &text, NULL, NULL);
    ep_site site = {.callee = name, .line = 1};
    ck_assert_uint_eq(name, 1);
    ck_assert_uint_eq(ep_site_add(0x1000, 8, &site), 1);
}

/* One chunk for all, one a thread, many, all that there is. */
static const uint64_t sizes[] = {1, 8, 64, 1024};

static void
record_with(ep_on_full on_full)
{
    setup();
    for (int i = 0; i < 4; i++) {
        record_all(on_full, sizes[i], NULL);
    }
}

START_TEST(a_ring_of_any_size_adds_up)
{
    record_with(EP_ON_FULL_OVERWRITE);
}
END_TEST

START_TEST(what_stops_when_full_adds_up)
{
    record_with(EP_ON_FULL_STOP);
}
END_TEST

START_TEST(what_grows_adds_up)
{
    setup();
    record_all(EP_ON_FULL_GROW, 1, NULL);
}
END_TEST

START_TEST(files_add_up)
{
    char path[64];
    setup();
    snprintf(path, sizeof path, "/tmp/ep_test_sums.%d", (int)getpid());
    record_all(EP_ON_FULL_OVERWRITE, 1, path);
    record_all(EP_ON_FULL_OVERWRITE, 64, path);
    record_all(EP_ON_FULL_STOP, 64, path);
    unlink(path);
}
END_TEST

EP_TEST_MAIN("sums",
             a_ring_of_any_size_adds_up,
             what_stops_when_full_adds_up,
             what_grows_adds_up,
             files_add_up)
