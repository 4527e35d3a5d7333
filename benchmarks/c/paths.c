/* The core's hot paths, each run twice, over N and over 2N events, for benchmarks/guard.py.
 *
 * Under callgrind each run is a part of its own, named "PATH N": the difference of the two is what
 * N more events cost, start-up and all that is done once cancelled. Alone it prints the number of
 * runs and measures nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <valgrind/callgrind.h>

#include "decode.h"
#include "engine.h"
#include "functions.h"
#include "log.h"
#include "names.h"
#include "pair.h"

#define EVENTS ((size_t)1 << 17)
#define SITES 64
#define MANY_SITES 5000
#define LIVE_BLOCKS 1000
#define CALL_KINDS (EP_KIND_BIT(EP_KIND_C_EXCEPTION + 1) - 2)
#define ALL_KINDS (EP_KIND_BIT(EP_KIND_REALLOC_FAILED_LIBC + 1) - 2)

static void
must(bool right)
{
    if (!right) {
        fputs("paths: out of memory, or a call failed\n", stderr);
        exit(1);
    }
}

/* ---- The clock and chance: the same on every machine ----------------------------------------- */

static uint64_t now = 1000;

static uint64_t
tick(void)
{
    return now += 7;
}

static uint64_t random_state;

/* splitmix64 */
static uint64_t
below(uint64_t limit)
{
    uint64_t z = (random_state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (z ^ (z >> 31)) % limit;
}

/* ---- Names ----------------------------------------------------------------------------------- */

static uint32_t name_ids[MANY_SITES], site_ids[MANY_SITES];

static uintptr_t
code_of(size_t i)
{
    return 0x7F0000001000 + 208 * (uintptr_t)i;
}

static uintptr_t
instruction_of(size_t i)
{
    return 0x7F0000400000 + 34 * (uintptr_t)i;
}

static void
make_names(void)
{
    for (size_t i = 0; i < MANY_SITES; i++) {
        char qualname[16];
        int bytes = snprintf(qualname, sizeof qualname, "f%zu", i);
        ep_name_text text = {.qualname = {qualname, (size_t)bytes}, .line = (int32_t)i};
        name_ids[i] = ep_name_add(code_of(i), 0, &text, NULL, NULL);
        ep_site site = {.callee = name_ids[i], .caller = name_ids[i / 2]};
        site_ids[i] = ep_site_add(code_of(i), instruction_of(i), &site);
        must(name_ids[i] != 0 && site_ids[i] != 0);
    }
}

/* ---- What paths work on; made before the part begins ----------------------------------------- */

static ep_recorder recorder;
static ep_log *logs[2];
static ep_capture capture;
static ep_decoded decoded;
static ep_functions functions;
static ep_pair_input input;
static ep_open_stack *open_at_start;
static ep_calls calls;
static ep_blocks blocks;

static void
record_with(uint64_t chunks, ep_on_full on_full)
{
    /* Chunks of one size: what is counted is a record, not how a thread's first chunks grow. */
    ep_engine_first_bytes = EP_CHUNK_BYTES;
    ep_recorder_options options = {.kinds = ALL_KINDS,
                                   .limit_bytes = chunks * EP_CHUNK_BYTES,
                                   .on_full = on_full,
                                   .clock = EP_CLOCK_INJECTED};
    ep_recorder_init(&recorder, &options);
    must(ep_recorder_start(&recorder, NULL) == EP_OK);
}

static void
record(size_t events)
{
    (void)events;
    record_with(1, EP_ON_FULL_GROW);
    /* The first record after a start is another path: a new chunk. */
    ep_log_put(logs[0], tick(), EP_KIND_CALL, site_ids[0]);
}

static void
record_in_full_ring(size_t events)
{
    (void)events;
    record_with(4, EP_ON_FULL_OVERWRITE);
    for (size_t i = 0; i < 6 * EP_CHUNK_WORDS; i++) {
        ep_log_put(logs[0], tick(), i & 1 ? EP_KIND_RETURN : EP_KIND_CALL,
                   i & 1 ? name_ids[0] : site_ids[0]);
    }
}

/* A random walk up and down a call stack of 1 to 40, sites by chance. */
static void
put_calls(ep_log *log, size_t events)
{
    static size_t stack[41];
    size_t depth = 0;
    for (size_t i = 0; i < events; i++) {
        bool c_call = depth > 0 && below(3) == 0;
        if (depth == 0 || (depth < 40 && below(2) == 0)) {
            stack[depth] = 2 * below(SITES / 2) + c_call;
            ep_log_put(log, tick(), stack[depth] & 1 ? EP_KIND_C_CALL : EP_KIND_CALL,
                       site_ids[stack[depth]]);
            depth += 1;
        } else {
            depth -= 1;
            ep_log_put(log, tick(), stack[depth] & 1 ? EP_KIND_C_RETURN : EP_KIND_RETURN,
                       name_ids[stack[depth]]);
        }
    }
}

/* Mallocs and frees with up to LIVE_BLOCKS alive, spread as an allocator's. */
static void
put_blocks(ep_log *log, size_t events)
{
    static bool alive[LIVE_BLOCKS];
    memset(alive, 0, sizeof alive);
    for (size_t i = 0; i < events; i++) {
        size_t block = below(LIVE_BLOCKS);
        uint64_t address = UINT64_C(0x7F1234500000) + 48 * block;
        uint32_t site = site_ids[below(SITES)];
        if (alive[block]) {
            ep_log_put_free(log, tick(), EP_KIND_FREE_OBJ, site, address);
        } else {
            ep_log_put_block(log, tick(), EP_KIND_MALLOC_OBJ, 16 + block, address, site);
        }
        alive[block] = !alive[block];
    }
}

static void
take(void)
{
    must(ep_recorder_stop(&recorder, NULL) == EP_OK);
    must(ep_capture_take(&recorder, &capture, NULL) == EP_OK);
}

static void
recorded_calls(size_t events)
{
    record_with(1, EP_ON_FULL_GROW);
    put_calls(logs[0], events);
    take();
}

static void
recorded_blocks(size_t events)
{
    record_with(1, EP_ON_FULL_GROW);
    put_blocks(logs[0], events);
    take();
}

/* Turns of 1 to 1000 events, as with the GIL. */
static void
recorded_threads(size_t events)
{
    record_with(1, EP_ON_FULL_GROW);
    for (size_t done = 0, turn; done < events; done += turn) {
        turn = 1 + below(1000);
        turn = turn < events - done ? turn : events - done;
        put_calls(logs[below(2)], turn);
    }
    take();
}

static void
run_decode(size_t events)
{
    (void)events;
    must(ep_decode(&capture, 0, &decoded) == EP_OK);
}

static void
make_input(void)
{
    run_decode(0);
    must(ep_functions_build(&decoded, &functions) == EP_OK);
    open_at_start = calloc(decoded.thread_count + 1, sizeof *open_at_start);
    must(open_at_start != NULL);
    input = (ep_pair_input){
        .columns = &decoded.columns,
        .map = &functions.map,
        .thread_count = decoded.thread_count,
        .open_at_start = open_at_start,
        .length_ns = decoded.duration_ns,
        .lost_from_ns = EP_NOTHING_LOST,
    };
}

static void
decoded_calls(size_t events)
{
    recorded_calls(events);
    make_input();
}

static void
decoded_blocks(size_t events)
{
    recorded_blocks(events);
    make_input();
}

static void
run_pair_calls(size_t events)
{
    (void)events;
    must(ep_pair_calls(&input, NULL, &calls) == EP_OK);
}

static void
run_pair_blocks(size_t events)
{
    (void)events;
    must(ep_pair_blocks(&input, NULL, &blocks) == EP_OK);
}

static void
paired_calls(size_t events)
{
    decoded_calls(events);
    run_pair_calls(events);
}

static void
paired_blocks(size_t events)
{
    decoded_blocks(events);
    run_pair_blocks(events);
}

/* After any of the above; what was not made is zero, and clearing that does nothing. */
static void
clear(void)
{
    ep_calls_clear(&calls);
    ep_blocks_clear(&blocks);
    if (open_at_start != NULL) {
        ep_functions_clear(&functions);
        free(open_at_start);
        open_at_start = NULL;
    }
    if (decoded.columns.time_ns != NULL) {
        ep_decoded_clear(&decoded);
        decoded = (ep_decoded){0};
    }
    if (capture.chunks != NULL) {
        ep_capture_clear(&capture);
        capture = (ep_capture){0};
    }
    if (recorder.state != EP_RECORDER_NEW) {
        ep_recorder_clear(&recorder);
        memset(&recorder, 0, sizeof recorder);
    }
}

/* ---- Paths: one event a turn ----------------------------------------------------------------- */

static void
run_put_call(size_t events)
{
    ep_log *log = logs[0];
    for (size_t i = 0; i < events; i += 2) {
        ep_log_put(log, now += 7, EP_KIND_CALL, (uint32_t)i & 63);
        ep_log_put(log, now += 7, EP_KIND_RETURN, (uint32_t)i & 63);
    }
}

static void
run_put_block(size_t events)
{
    ep_log *log = logs[0];
    for (size_t i = 0; i < events; i++) {
        ep_log_put_block(log, now += 7, EP_KIND_MALLOC_OBJ, 56, 0x7F1234500000 + (i & 63) * 64, 5);
    }
}

static void
run_put_free(size_t events)
{
    ep_log *log = logs[0];
    for (size_t i = 0; i < events; i++) {
        ep_log_put_free(log, now += 7, EP_KIND_FREE_OBJ, 5, 0x7F1234500000 + (i & 63) * 64);
    }
}

/* What a realloc writes. */
static void
run_put_realloc(size_t events)
{
    ep_log *log = logs[0];
    for (size_t i = 0; i < events; i++) {
        uint64_t address = 0x7F1234500000 + (i & 63) * 64;
        ep_log_put_free(log, now += 7, EP_KIND_REALLOC_FREE_OBJ, 5, address);
        ep_log_put_block(log, now += 7, EP_KIND_REALLOC_OBJ, 112, address + 4096, 5);
    }
}

static volatile uint32_t found;

static void
run_find_name(size_t events)
{
    for (size_t i = 0; i < events; i++) {
        found = ep_name_find(code_of(i & (SITES - 1)), 0);
    }
}

static void
run_find_site(size_t events)
{
    for (size_t i = 0; i < events; i++) {
        found = ep_site_find(code_of(i & (SITES - 1)), instruction_of(i & (SITES - 1)));
    }
}

static void
run_find_site_of_many(size_t events)
{
    for (size_t i = 0, at = 0; i < events; i++, at = at + 1 < MANY_SITES ? at + 1 : 0) {
        found = ep_site_find(code_of(at), instruction_of(at));
    }
}

static void
run_fill_calls(size_t events)
{
    (void)events;
    must(ep_calls_fill(&calls, 2 * EP_CALLS_RECURSIVE - 1) == EP_OK);
}

static void
run_fill_blocks(size_t events)
{
    (void)events;
    must(ep_blocks_fill(&blocks, NULL, 2 * EP_BLOCKS_FLAGS - 1) == EP_OK);
}

static const struct path {
    const char *name;
    void (*prepare)(size_t events);
    void (*run)(size_t events);
    size_t events;
} paths[] = {
    {"log: call or return", record, run_put_call, EVENTS},
    {"log: malloc", record, run_put_block, EVENTS},
    {"log: free", record, run_put_free, EVENTS},
    {"log: realloc, two records", record, run_put_realloc, EVENTS},
    {"names: find a name of 64", NULL, run_find_name, EVENTS},
    {"names: find a site of 64", NULL, run_find_site, EVENTS},
    {"names: find a site of 5000", NULL, run_find_site_of_many, EVENTS},
    /* These drop, and count, as much as they write. Whole chunks. */
    {"engine: call or return, ring full", record_in_full_ring, run_put_call, 4 * EP_CHUNK_WORDS},
    {"engine: malloc, ring full", record_in_full_ring, run_put_block, 4 * EP_CHUNK_WORDS},
    {"decode: calls", recorded_calls, run_decode, EVENTS},
    {"decode: mallocs and frees", recorded_blocks, run_decode, EVENTS},
    {"decode: calls of two threads", recorded_threads, run_decode, EVENTS},
    {"pair: calls", decoded_calls, run_pair_calls, EVENTS},
    {"pair: all columns of calls", paired_calls, run_fill_calls, EVENTS},
    {"pair: blocks", decoded_blocks, run_pair_blocks, EVENTS},
    {"pair: all columns of blocks", paired_blocks, run_fill_blocks, EVENTS},
};

static void
measure(const struct path *path, size_t events)
{
    char name[80];
    snprintf(name, sizeof name, "%s %zu", path->name, events);
    random_state = 1;
    if (path->prepare != NULL) {
        path->prepare(events);
    }
    CALLGRIND_START_INSTRUMENTATION;
    CALLGRIND_ZERO_STATS;
    path->run(events);
    CALLGRIND_DUMP_STATS_AT(name);
    CALLGRIND_STOP_INSTRUMENTATION;
    clear();
}

int
main(void)
{
    must(ep_engine_init() == EP_OK && ep_names_init() == EP_OK);
    ep_clock_injected = tick;
    make_names();
    for (size_t i = 0; i < 2; i++) {
        ep_log_current = NULL;
        must((logs[i] = ep_log_mine()) != NULL);
    }
    ep_log_current = logs[0];
    size_t runs = 0;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        for (size_t times = 1; times <= 2; times++, runs++) {
            measure(&paths[i], times * paths[i].events);
        }
    }
    printf("%zu runs\n", runs);
    return 0;
}
