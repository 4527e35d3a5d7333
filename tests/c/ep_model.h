/* What the suites of recording and decoding share: a clock that tests set, random events, and an
 * event in the shape in which a test remembers it. Header only, so that a suite stays one file. */
#ifndef EP_MODEL_H
#define EP_MODEL_H

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ep_check.h"
#include "decode.h"
#include "engine.h"
#include "log.h"
#include "memory.h"
#include "names.h"
#include "os.h"

/* ---- The injected clock ---------------------------------------------------------------------- */

static _Atomic uint64_t ep_model_now = 1000;

/* Every look is one tick later, so that ticks are unique. */
static inline uint64_t
ep_model_tick(void)
{
    return atomic_fetch_add_explicit(&ep_model_now, 1, memory_order_relaxed);
}

/* ---- Running --------------------------------------------------------------------------------- */

/* Everything ready, no event yet. */
static inline void
ep_model_setup(void)
{
    ck_assert_int_eq(ep_engine_init(), EP_OK);
    ck_assert_int_eq(ep_names_init(), EP_OK);
    ep_clock_injected = ep_model_tick;
}

#ifdef __has_feature    /* clang */
#define EP_MODEL_TSAN __has_feature(thread_sanitizer)
#define EP_MODEL_SANITIZED (EP_MODEL_TSAN || __has_feature(address_sanitizer))
#else
#ifdef __SANITIZE_THREAD__
#define EP_MODEL_TSAN 1
#else
#define EP_MODEL_TSAN 0
#endif
#ifdef __SANITIZE_ADDRESS__
#define EP_MODEL_SANITIZED 1
#else
#define EP_MODEL_SANITIZED EP_MODEL_TSAN
#endif
#endif

/* Whether there is to be less of what takes long: every access is checked, or it is `./dev test --quick`,
 * and it is not `./dev test --long`. */
static inline bool
ep_model_is_short(void)
{
    bool is_slow = EP_MODEL_SANITIZED || getenv("EVENTPROF_TEST_QUICK") != NULL;
    return is_slow && getenv("EVENTPROF_TEST_LONG") == NULL;
}

/* An amount of work, or less. */
static inline size_t
ep_model_work(size_t amount)
{
    const char *preload = getenv("LD_PRELOAD");
    if (preload != NULL && strstr(preload, "vgpreload") != NULL) {
        return amount / 20 + 1;
    }
    return ep_model_is_short() ? amount / 5 + 1 : amount;
}

/* From one of many cases to the next, or to the nth. */
static inline size_t
ep_model_stride(size_t nth)
{
    return ep_model_is_short() ? nth : 1;
}

/* ---- Random numbers: splitmix64, the same on every machine ----------------------------------- */

static inline uint64_t
ep_model_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* 0 <= it < limit */
static inline uint64_t
ep_model_below(uint64_t *state, uint64_t limit)
{
    return ep_model_random(state) % limit;
}

/* ---- Recorders ------------------------------------------------------------------------------- */

#define EP_MODEL_ALL_KINDS (((UINT64_C(1) << (EP_KIND_DESTROY + 1)) - 1) & ~UINT64_C(1))
#define EP_MODEL_CALL_KINDS (((UINT64_C(1) << (EP_KIND_C_EXCEPTION + 1)) - 1) & ~UINT64_C(1))

static inline void
ep_model_start(ep_recorder *recorder, uint64_t kinds, uint64_t chunks, ep_on_full on_full,
               ep_clock_mode clock)
{
    ep_recorder_options options = {.kinds = kinds,
                                   .limit_bytes = chunks * EP_CHUNK_BYTES,
                                   .on_full = on_full,
                                   .clock = clock};
    ep_error error = {.text = ""};
    ep_recorder_init(recorder, &options);
    ck_assert_msg(ep_recorder_start(recorder, &error) == EP_OK, "%s", error.text);
}

static inline void
ep_model_stop(ep_recorder *recorder)
{
    ep_error error = {.text = ""};
    ck_assert_msg(ep_recorder_stop(recorder, &error) == EP_OK, "%s", error.text);
}

/* The recorder's trace. Returns: new. */
static inline ep_decoded
ep_model_decode(ep_recorder *recorder)
{
    ep_capture capture;
    ep_decoded decoded;
    ck_assert_int_eq(ep_capture_take(recorder, &capture, NULL), EP_OK);
    ck_assert_int_eq(ep_decode(&capture, 0, &decoded), EP_OK);
    ep_capture_clear(&capture);
    return decoded;
}

/* NULL: the trace has nothing of that thread. */
static inline const ep_trace_thread *
ep_model_thread(const ep_decoded *decoded, uint32_t thread_id)
{
    for (size_t i = 0; i < decoded->thread_count; i++) {
        const ep_thread *thread = decoded->threads[i].thread;
        if ((thread != NULL ? thread->id : 0) == thread_id) {
            return &decoded->threads[i];
        }
    }
    return NULL;
}

static inline uint64_t
ep_model_recorded(const ep_decoded *decoded, uint32_t thread_id, ep_kind kind)
{
    const ep_trace_thread *thread = ep_model_thread(decoded, thread_id);
    return thread != NULL ? thread->recorded[kind] : 0;
}

static inline uint64_t
ep_model_lost(const ep_decoded *decoded, uint32_t thread_id, ep_kind kind)
{
    const ep_trace_thread *thread = ep_model_thread(decoded, thread_id);
    return thread != NULL ? thread->lost[kind] : 0;
}

/* Recorded and lost, of all threads and kinds. */
static inline uint64_t
ep_model_total(const ep_decoded *decoded)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < decoded->thread_count; i++) {
        for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
            sum += decoded->threads[i].recorded[kind] + decoded->threads[i].lost[kind];
        }
    }
    return sum;
}

/* ---- Events ---------------------------------------------------------------------------------- */

typedef struct ep_model_event {
    uint64_t ticks;
    uint64_t address;    /* or value; 0 in the forms of calls and points */
    int64_t size;        /* -1 where there is none */
    uint32_t id;
    uint8_t kind;
} ep_model_event;

/* Every kind that is an event. */
static inline ep_kind
ep_model_random_kind(uint64_t *random)
{
    return (ep_kind)(1 + ep_model_below(random, EP_KIND_DESTROY));
}

/* Whether a row of the kind has a place among the blocks. */
static inline bool
ep_model_is_among_blocks(unsigned kind)
{
    return ep_kinds[kind].form != EP_FORM_CALL && ep_kinds[kind].form != EP_FORM_POINT;
}

static inline ep_model_event
ep_model_random_event(uint64_t *random, uint64_t ticks)
{
    static const uint64_t sizes[] = {0,
                                     1,
                                     12347,
                                     EP_PAYLOAD_MAX - 1,
                                     EP_PAYLOAD_MAX,
                                     (uint64_t)EP_PAYLOAD_MAX + 1,
                                     UINT64_C(1) << 40,
                                     INT64_MAX};
    static const uint32_t ids[] = {0,
                                   1,
                                   12347,
                                   EP_ALLOC_SITE_MAX - 1,
                                   EP_ALLOC_SITE_MAX,
                                   EP_ALLOC_SITE_MAX + 1,
                                   EP_PAYLOAD_MAX - 1,
                                   EP_PAYLOAD_MAX};
    static const uint64_t addresses[] = {0,
                                         8,
                                         12347,
                                         EP_ALLOC_ADDRESS_LIMIT - 8,
                                         EP_ALLOC_ADDRESS_LIMIT - 1,
                                         EP_ALLOC_ADDRESS_LIMIT,
                                         EP_ALLOC_ADDRESS_LIMIT + 3,
                                         UINT64_MAX};
    ep_model_event event = {.ticks = ticks, .kind = (uint8_t)ep_model_random_kind(random), .size = -1};
    /* Mostly what programs do, and now and then the ends of the ranges. */
    bool odd = ep_model_below(random, 8) == 0;
    event.id = odd ? ids[ep_model_below(random, 8)] : (uint32_t)ep_model_below(random, 5000);
    if (ep_model_is_among_blocks(event.kind)) {
        event.address = odd ? addresses[ep_model_below(random, 8)]
                            : ep_model_random(random) >> 17 & ~UINT64_C(7);
    }
    if (ep_kinds[event.kind].form == EP_FORM_ALLOC) {
        event.size = (int64_t)(odd ? sizes[ep_model_below(random, 8)] : ep_model_below(random, 1000));
    }
    return event;
}

static inline void
ep_model_put(ep_log *log, const ep_model_event *event)
{
    switch ((ep_form)ep_kinds[event->kind].form) {
        case EP_FORM_CALL:
        case EP_FORM_POINT:
            ep_log_put(log, event->ticks, event->kind, event->id);
            break;
        case EP_FORM_ALLOC:
            ep_log_put_block(log, event->ticks, event->kind, (uint64_t)event->size, event->address,
                             event->id);
            break;
        case EP_FORM_FREE:
            ep_log_put_free(log, event->ticks, event->kind, event->id, event->address);
            break;
        case EP_FORM_VALUE:
            ep_log_put_value_at(log, ep_ticks_halves(event->ticks), event->kind, event->id,
                                event->address);
            break;
        case EP_FORM_CONTROL: ck_abort_msg("not an event");
    }
}

/* One row of the columns, as an event. *block: the next allocator row; moves on. */
static inline ep_model_event
ep_model_row(const ep_columns *columns, size_t row, size_t *block)
{
    ep_model_event event = {
        .ticks = (uint64_t)columns->time_ns[row],
        .id = columns->id[row],
        .kind = columns->kind[row],
        .size = -1,
    };
    if (*block < columns->alloc_count && columns->alloc_row[*block] == row) {
        event.address = columns->address[*block];
        event.size = columns->size[*block];
        *block += 1;
    }
    return event;
}

/* The columns are well formed: in order of time, blocks where the kinds say so. */
static inline void
ep_model_columns(const ep_columns *columns)
{
    size_t block = 0;
    for (size_t row = 0; row < columns->count; row++) {
        if (row > 0 && columns->time_ns[row] < columns->time_ns[row - 1]) {
            ck_abort_msg("row %zu is earlier than the one before it", row);
        }
        bool has_block = block < columns->alloc_count && columns->alloc_row[block] == row;
        if (ep_model_is_among_blocks(columns->kind[row]) != has_block) {
            ck_abort_msg("row %zu of kind %u %s a block", row, columns->kind[row],
                         has_block ? "has" : "lacks");
        }
        block += has_block;
    }
    ck_assert_uint_eq(block, columns->alloc_count);
}

/* ---- Files ----------------------------------------------------------------------------------- */

/* A file without a name. Returns: its descriptor. */
static inline int
ep_model_new_file(void)
{
#ifdef __linux__
    int fd = memfd_create("test", MFD_CLOEXEC);
#else
    char path[] = "/tmp/ep_test_XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_eq(unlink(path), 0);
#endif
    ck_assert_int_ge(fd, 0);
    return fd;
}

/* ---- Threads --------------------------------------------------------------------------------- */

static inline pthread_t
ep_model_spawn(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, body, argument), 0);
    return thread;
}

static inline void
ep_model_join(pthread_t thread)
{
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

#endif
