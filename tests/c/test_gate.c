/* gate.c: verdicts of several filters, and the calls that hooks leave out. */
#include "gate.h"

#include <stdio.h>

#include "ep_model.h"
#include "filter_apply.h"

static ep_text
text(const char *given)
{
    return (ep_text){given, strlen(given)};
}

static uint32_t
name(uintptr_t key, const char *module, const char *qualname, ep_name_kind kind)
{
    ep_name_text described = {.qualname = text(qualname),
                              .module = text(module),
                              .file = kind == EP_NAME_PYTHON ? text("/src/m.py") : (ep_text){NULL, 0},
                              .line = 3,
                              .kind = kind};
    return ep_name_add(key, 0, &described, NULL, NULL);
}

static ep_filter
filter_of(const char *include, const char *exclude)
{
    ep_filter filter = {0};
    if (include != NULL)
        ck_assert_int_eq(ep_filter_add(&filter, true, include), EP_OK);
    if (exclude != NULL)
        ck_assert_int_eq(ep_filter_add(&filter, false, exclude), EP_OK);
    return filter;
}

static ep_verdict
verdict_of(uint32_t id)
{
    ep_verdict verdict;
    return ep_gate_find(id, &verdict) ? verdict : ep_gate_decide(id);
}

/* ---- Verdicts -------------------------------------------------------------------------------- */

START_TEST(verdicts_say_what_any_filter_wants)
{
    ck_assert_int_eq(ep_names_init(), EP_OK);
    static const char *const patterns[] = {NULL, "a.*", "b", "*len", "/src/*", "*", "stdlib"};
    enum {
        PATTERNS = sizeof patterns / sizeof *patterns
    };
    uint32_t ids[] = {name(0x10, "a.x", "f", EP_NAME_PYTHON), name(0x20, "b", "g", EP_NAME_PYTHON),
                      name(0x30, "builtins", "len", EP_NAME_C), name(0x40, "a.c", "h", EP_NAME_C)};
    uint64_t random = 12347;

    for (int round = 0; round < 2000; round++) {
        ep_filter filters[3];
        const ep_filter *all[3];
        size_t count = 1 + ep_model_below(&random, 3);
        for (size_t i = 0; i < count; i++) {
            const char *include = patterns[ep_model_below(&random, PATTERNS)];
            filters[i] = filter_of(include, patterns[ep_model_below(&random, PATTERNS)]);
            all[i] = &filters[i];
        }

        ep_gate_prepare(all, count);

        bool names = true;
        for (size_t i = 0; i < count; i++) names = names && ep_filter_names_any(all[i]);
        ck_assert_int_eq(ep_gate_asks_names(), names);
        for (size_t id = 0; id < 4 && names; id++) {
            bool any = false, from[2] = {false, false}, could[2] = {false, false};
            for (size_t i = 0; i < count; i++) {
                any = any || ep_filter_wants(all[i], ids[id], 0);
                for (int c = 0; c < 2; c++) {
                    from[c] = from[c] || ep_filter_wants(all[i], ids[id], ids[c]);
                    could[c] = could[c] || (!ep_filter_excludes(all[i], ids[c]) &&
                                            (ep_filter_includes(all[i], ids[c]) ||
                                             ep_filter_includes_without_file(all[i])));
                }
            }
            ck_assert_int_eq(ep_verdict_wants(verdict_of(ids[id])), any);
            for (int c = 0; c < 2 && id >= 2; c++) {
                ep_verdict caller = verdict_of(ids[c]);
                ck_assert_int_eq(ep_verdict_wants_from(verdict_of(ids[id]), caller), from[c]);
                ck_assert_int_eq(ep_verdict_wants_any_from(caller), could[c]);
                ck_assert(!from[c] || could[c]);    /* switched off: nothing is lost */
            }
        }
        for (size_t i = 0; i < count; i++) ep_filter_clear(&filters[i]);
    }
    ep_gate_prepare(NULL, 0);
}
END_TEST

START_TEST(a_verdict_is_of_one_generation_however_many_there_were)
{
    ck_assert_int_eq(ep_names_init(), EP_OK);
    uint32_t f = name(0x100, "a.x", "f", EP_NAME_PYTHON);
    ep_filter in = filter_of("a.*", NULL), out = filter_of(NULL, "a.*");
    const ep_filter *wants = &in, *not= &out;

    for (int i = 0; i < 140000; i++) {
        bool wanted = i % 3 != 0;
        ep_gate_prepare(wanted ? &wants : &not, 1);
        /* Every other generation never asks: what is there is old. */
        if (i % 2 == 0 || i % 65536 < 3) {
            ck_assert_int_eq(ep_verdict_wants(verdict_of(f)), wanted);
        }
    }
    ep_gate_prepare(NULL, 0);
    ep_filter_clear(&in);
    ep_filter_clear(&out);
}
END_TEST

START_TEST(one_without_a_filter_or_too_many_want_all)
{
    ck_assert_int_eq(ep_names_init(), EP_OK);
    ep_filter some = filter_of(NULL, "a.*"), none = {0};
    const ep_filter *filters[EP_GATE_FILTERS + 1];
    for (int i = 0; i <= EP_GATE_FILTERS; i++) filters[i] = &some;

    ep_gate_prepare(filters, EP_GATE_FILTERS);
    ck_assert(ep_gate_asks_names());
    ep_gate_prepare(filters, EP_GATE_FILTERS + 1);
    ck_assert(!ep_gate_asks_names());
    filters[1] = &none;
    ep_gate_prepare(filters, 2);
    ck_assert(!ep_gate_is_on());

    ep_filter_clear(&some);
}
END_TEST

START_TEST(names_left_out_are_counted_from_a_generation_on)
{
    ck_assert_int_eq(ep_names_init(), EP_OK);
    uint32_t f = name(0x200, "a.x", "f", EP_NAME_PYTHON), g = name(0x300, "a.x", "g", EP_NAME_PYTHON);
    ep_filter out = filter_of(NULL, "a.*");
    const ep_filter *filters = &out;
    ep_gate_prepare(&filters, 1);
    (void)verdict_of(f);
    ep_gate_note(f);
    ep_gate_note(f);
    ep_gate_note(g);
    uint32_t first = ep_gate_generation();
    ep_gate_prepare(&filters, 1);
    ep_gate_note(g);

    ck_assert_uint_eq(ep_gate_count_left_out(first), 2);
    ck_assert_uint_eq(ep_gate_count_left_out(ep_gate_generation()), 1);
    ep_gate_prepare(NULL, 0);
    ck_assert_uint_eq(ep_gate_count_left_out(ep_gate_generation()), 0);
    ep_filter_clear(&out);
}
END_TEST

/* ---- Calls ----------------------------------------------------------------------------------- */

#define NAMES 4

static uint32_t names[NAMES], sites[NAMES];

static void
setup_names(void)
{
    ep_model_setup();
    for (int i = 0; i < NAMES; i++) {
        char qualname[16];
        snprintf(qualname, sizeof qualname, "f%d", i);
        names[i] = name(0x1000 + 16 * (uintptr_t)i, "m", qualname, EP_NAME_PYTHON);
        sites[i] = ep_site_add(0x1000 + 16 * (uintptr_t)i, 1, &(ep_site){.callee = names[i]});
    }
}

/* In a chunk of its own. */
static void
start(ep_recorder *recorder)
{
    ep_model_start(recorder, EP_MODEL_CALL_KINDS, 1000, EP_ON_FULL_GROW, EP_CLOCK_INJECTED);
    ep_log_next_chunk(ep_log_mine(), ep_model_tick());
}

static void
limit(ep_recorder *recorder, const ep_filter *filter)
{
    atomic_fetch_add(&ep_model_now, 2000000);    /* else the clock's slope is not known yet */
    ep_gate_prepare(&filter, 1);
    ep_gate_open(recorder, &filter, 1);
}

/* A recorder with these limits, alone. */
static void
start_limited(ep_recorder *recorder, const ep_filter *filter)
{
    start(recorder);
    limit(recorder, filter);
}

typedef struct op {
    bool closes;
    int name;
    uint64_t ticks;
} op;

/* Mostly well nested; now and then an end is missing, or one has no call. */
static size_t
random_ops(uint64_t *random, op *ops, size_t limit, uint64_t ticks)
{
    int stack[64], depth = 0;
    size_t count = 0;
    while (count < limit) {
        ticks += 1 + ep_model_below(random, 20);
        unsigned dice = (unsigned)ep_model_below(random, 100);
        if (dice < 4) {
            ops[count++] = (op){true, (int)ep_model_below(random, NAMES), ticks};
        } else if (dice < 8 && depth > 0) {
            depth -= 1;
        } else if (dice < 54 && depth < 12) {
            stack[depth] = (int)ep_model_below(random, NAMES);
            ops[count++] = (op){false, stack[depth++], ticks};
        } else if (depth > 0) {
            ops[count++] = (op){true, stack[--depth], ticks};
        }
    }
    return count;
}

static void
play(const op *ops, size_t count, uint64_t base, bool gated)
{
    ep_log *log = ep_log_mine();
    for (size_t i = 0; i < count; i++) {
        uint64_t ticks = base + ops[i].ticks;
        uint32_t id = ops[i].closes ? names[ops[i].name] : sites[ops[i].name];
        ep_kind kind = ops[i].closes ? EP_KIND_RETURN : EP_KIND_CALL;
        if (!gated) {
            ep_log_put(log, ticks, kind, id);
        } else if (ops[i].closes) {
            ep_gate_put_close(log, ticks, kind, id);
        } else {
            ep_gate_put_open(log, ticks, kind, id);
        }
    }
    atomic_store(&ep_model_now, base + 100000);
}

/* Stops, filters. Returns: new. */
static ep_decoded
finish(ep_recorder *recorder, const ep_filter *filter, ep_filtered *filtered)
{
    ep_model_stop(recorder);
    ep_decoded decoded = ep_model_decode(recorder);
    ck_assert_int_eq(ep_filter_apply(filter, &decoded, filtered), EP_OK);
    ep_recorder_clear(recorder);
    return decoded;
}

static void
assert_same_rows(const ep_decoded *a, const ep_decoded *b)
{
    ck_assert_uint_eq(a->columns.count, b->columns.count);
    for (size_t row = 0; row < a->columns.count; row++) {
        ck_assert_uint_eq(a->columns.kind[row], b->columns.kind[row]);
        ck_assert_uint_eq(a->columns.id[row], b->columns.id[row]);
    }
}

/* The reference: all is recorded, and the filter drops what is too deep or too short. */
START_TEST(hooks_and_filter_leave_what_the_filter_leaves)
{
    setup_names();
    uint64_t random = 4711;
    static op ops[300];
    for (int round = 0; round < 600; round++) {
        ep_filter filter = {.limits_depth = round % 3 != 0,
                            .max_depth = (uint32_t)ep_model_below(&random, 5),
                            .min_duration_ns = round % 3 != 1 ? (int64_t)ep_model_below(&random, 200)
                                                              : 0};
        size_t count = random_ops(&random, ops, 300, 10);
        ep_open_call open[3] = {{sites[0], EP_KIND_CALL, 0, 0},
                                {sites[1], EP_KIND_CALL, 0, 0},
                                {sites[0], EP_KIND_CALL, 0, 0}};
        size_t open_count = ep_model_below(&random, 4);
        uint64_t before[EP_LEFT_OUT_COUNT], after[EP_LEFT_OUT_COUNT];
        ep_filtered whole = {0}, part = {0};
        ep_recorder recorder;
        start(&recorder);
        uint32_t thread = ep_log_mine()->thread->id;
        ck_assert_int_eq(ep_recorder_set_open(&recorder, thread, open, open_count), EP_OK);
        play(ops, count, atomic_load(&ep_model_now), false);
        ep_decoded expected = finish(&recorder, &filter, &whole);

        start(&recorder);
        ck_assert_int_eq(ep_recorder_set_open(&recorder, thread, open, open_count), EP_OK);
        limit(&recorder, &filter);
        ep_engine_left_out(before);
        play(ops, count, atomic_load(&ep_model_now), true);
        ep_engine_left_out(after);
        ep_decoded found = finish(&recorder, &filter, &part);
        ep_gate_prepare(NULL, 0);

        assert_same_rows(&found, &expected);
        uint64_t deep = after[EP_LEFT_OUT_DEEP] - before[EP_LEFT_OUT_DEEP];
        uint64_t brief = after[EP_LEFT_OUT_SHORT] - before[EP_LEFT_OUT_SHORT];
        ck_assert_uint_eq(deep, whole.deep_calls);
        ck_assert_uint_eq(part.deep_calls, 0);
        ck_assert_uint_eq(brief + part.short_calls, whole.short_calls);
        ep_decoded_clear(&found);
        ep_decoded_clear(&expected);
    }
}
END_TEST

/* Another recorder comes in the middle: it finds open what was left out, and the first one's filter
 * drops what is recorded late. */
START_TEST(calls_left_out_are_recorded_late_for_another_recorder)
{
    setup_names();
    ep_filter depth = {.limits_depth = true, .max_depth = 0}, none = {0};
    ep_recorder first, second;
    start_limited(&first, &depth);
    ep_log *log = ep_log_mine();
    uint64_t now = atomic_load(&ep_model_now) + 100;
    for (int i = 0; i < 4; i++) ep_gate_put_open(log, now + (uint64_t)i, EP_KIND_CALL, sites[0]);
    atomic_store(&ep_model_now, now + 50);

    const ep_filter *both[] = {&depth, &none};
    ep_gate_prepare(both, 2);
    start(&second);
    const ep_open_call one = {sites[0], EP_KIND_CALL, 0, 0};
    ep_open_call open[4] = {one, one, one, one};
    ck_assert_int_eq(ep_recorder_set_open(&second, log->thread->id, open, 4), EP_OK);
    ep_gate_open(NULL, both, 2);
    now = atomic_load(&ep_model_now) + 100;
    ck_assert(ep_gate_asks_calls());
    for (int i = 0; i < 4; i++) ep_gate_put_close(log, now + (uint64_t)i, EP_KIND_RETURN, names[0]);
    atomic_store(&ep_model_now, now + 50);

    ep_filtered of_first = {0}, of_second = {0};
    ep_decoded a = finish(&first, &depth, &of_first), b = finish(&second, &none, &of_second);
    ck_assert_uint_eq(a.columns.count, 2);
    ck_assert_uint_eq(of_first.deep_calls, 3);
    ck_assert_uint_eq(b.columns.count, 4);
    ck_assert_uint_eq(ep_model_recorded(&b, log->thread->id, EP_KIND_CALL), 0);
    ep_gate_prepare(NULL, 0);
    ep_decoded_clear(&a);
    ep_decoded_clear(&b);
}
END_TEST

START_TEST(short_calls_are_taken_back_from_the_innermost_out)
{
    setup_names();
    ep_filter filter = {.min_duration_ns = INT64_MAX / 4};
    ep_recorder recorder;
    start_limited(&recorder, &filter);
    ep_log *log = ep_log_mine();
    uint64_t now = atomic_load(&ep_model_now) + 100, counts[EP_LEFT_OUT_COUNT];
    _Atomic uint64_t *begin = log->next;

    ep_gate_put_open(log, now, EP_KIND_CALL, sites[0]);
    ep_gate_put_open(log, now + 1, EP_KIND_CALL, sites[1]);
    ep_gate_put_open(log, now + 2, EP_KIND_C_CALL, sites[2]);
    ep_gate_put_close(log, now + 3, EP_KIND_C_RETURN, names[2]);
    ck_assert_ptr_eq(log->next, begin + 2);
    ep_gate_put_close(log, now + 4, EP_KIND_RETURN, names[1]);
    ck_assert_ptr_eq(log->next, begin + 1);
    /* Too long by then. */
    ep_gate_put_close(log, now + 5000000000, EP_KIND_RETURN, names[0]);
    ck_assert_uint_eq(atomic_load(log->next), 0);

    ck_assert_ptr_ne(log->next, begin);
    ep_engine_left_out(counts);
    ck_assert_uint_ge(counts[EP_LEFT_OUT_SHORT], 2);
    ep_gate_prepare(NULL, 0);
    ep_recorder_clear(&recorder);
}
END_TEST

START_TEST(what_must_stay_is_not_taken_back)
{
    setup_names();
    ep_filter filter = {.min_duration_ns = INT64_MAX / 4};
    ep_recorder recorder;
    start_limited(&recorder, &filter);
    ep_log *log = ep_log_mine();
    uint64_t now = atomic_load(&ep_model_now) + 100;
    _Atomic uint64_t *begin = log->next;

    /* A block was made inside. */
    ep_gate_put_open(log, now, EP_KIND_CALL, sites[0]);
    ep_log_put_block(log, now + 1, EP_KIND_MALLOC_OBJ, 32, 4096, 1);
    ep_gate_put_close(log, now + 2, EP_KIND_RETURN, names[0]);
    ck_assert_ptr_eq(log->next, begin + 4);
    /* It was open when somebody looked. */
    ep_gate_put_open(log, now + 3, EP_KIND_CALL, sites[0]);
    atomic_store(&ep_model_now, now + 10);
    ep_gate_keep_open();
    ep_gate_put_close(log, now + 12, EP_KIND_RETURN, names[0]);
    ck_assert_ptr_eq(log->next, begin + 6);
    /* It is in the chunk before. */
    ep_gate_put_open(log, now + 20, EP_KIND_CALL, sites[0]);
    ep_log_next_chunk(log, now + 21);
    ep_gate_put_close(log, now + 22, EP_KIND_RETURN, names[0]);
    ck_assert_ptr_eq(log->next, (_Atomic uint64_t *)(log->chunk->header + 1) + 1);
    /* The end of another call. */
    ep_gate_put_open(log, now + 30, EP_KIND_CALL, sites[0]);
    ep_gate_put_close(log, now + 31, EP_KIND_RETURN, names[3]);
    ck_assert_ptr_eq(log->next, (_Atomic uint64_t *)(log->chunk->header + 1) + 3);

    ep_gate_prepare(NULL, 0);
    ep_recorder_clear(&recorder);
}
END_TEST

static void *
leave_out_in_thread(void *argument)
{
    (void)argument;
    ep_log *log = ep_log_mine();
    uint64_t now = atomic_load(&ep_model_now);
    for (int i = 0; i < 5; i++) ep_gate_put_open(log, now, EP_KIND_CALL, sites[0]);
    return NULL;
}

START_TEST(a_thread_that_ended_is_still_counted)
{
    setup_names();
    ep_filter filter = {.limits_depth = true, .max_depth = 1};
    ep_recorder recorder;
    uint64_t before[EP_LEFT_OUT_COUNT], after[EP_LEFT_OUT_COUNT];
    start_limited(&recorder, &filter);
    ep_engine_left_out(before);

    ep_model_join(ep_model_spawn(leave_out_in_thread, NULL));

    ep_engine_left_out(after);
    ck_assert_uint_eq(after[EP_LEFT_OUT_DEEP] - before[EP_LEFT_OUT_DEEP], 3);
    ep_gate_prepare(NULL, 0);
    ep_recorder_clear(&recorder);
}
END_TEST

#ifdef EP_FAULT_POINTS
START_TEST(without_memory_all_is_recorded)
{
    setup_names();
    static op ops[300];
    uint64_t random = 99;
    for (long fault = 0; fault < 12; fault++) {
        ep_filter filter = {.limits_depth = true, .max_depth = 2};
        ep_filtered whole = {0}, part = {0};
        size_t count = random_ops(&random, ops, 300, 10);
        ep_recorder recorder;
        start(&recorder);
        play(ops, count, atomic_load(&ep_model_now), false);
        ep_decoded expected = finish(&recorder, &filter, &whole);

        start_limited(&recorder, &filter);
        atomic_store(&ep_fault_countdown, fault);
        play(ops, count, atomic_load(&ep_model_now), true);
        atomic_store(&ep_fault_countdown, -1);
        ep_decoded found = finish(&recorder, &filter, &part);
        ep_gate_prepare(NULL, 0);

        assert_same_rows(&found, &expected);
        ep_decoded_clear(&found);
        ep_decoded_clear(&expected);
    }
}
END_TEST
#else
START_TEST(without_memory_all_is_recorded)
{
}
END_TEST
#endif

EP_TEST_MAIN("gate", verdicts_say_what_any_filter_wants,
             a_verdict_is_of_one_generation_however_many_there_were,
             one_without_a_filter_or_too_many_want_all,
             names_left_out_are_counted_from_a_generation_on,
             hooks_and_filter_leave_what_the_filter_leaves,
             calls_left_out_are_recorded_late_for_another_recorder,
             short_calls_are_taken_back_from_the_innermost_out, what_must_stay_is_not_taken_back,
             a_thread_that_ended_is_still_counted, without_memory_all_is_recorded)
