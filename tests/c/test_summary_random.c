/* summary.h, by_function.h: random programs, counted one by one; failures. */
#include "ep_summing.h"

/* ---- Random programs ------------------------------------------------------------------------- */

/* Calls that end as they should, now and then not, and any allocator event at few addresses. */
static program *
random_events(uint64_t seed)
{
    static const unsigned operations[] = {
        EP_KIND_MALLOC,
        EP_KIND_CALLOC,
        EP_KIND_REALLOC,
        EP_KIND_REALLOC_FREE,
        EP_KIND_FREE,
        EP_KIND_FREE,
        EP_KIND_REALLOC_FAILED,
    };
    static const uint8_t openings[] = {EP_KIND_CALL, EP_KIND_C_CALL, EP_KIND_RESUME, EP_KIND_THROW};
    program *p = program_new();
    uint64_t random = seed;
    program_open(p, 1, EP_KIND_CALL, 1);
    for (int i = 0; i < 400; i++) {
        int32_t thread = (int32_t)below(&random, 3);
        p->now += (int64_t)below(&random, one_in(&random, 9) ? 100000 : 100);
        program_hold_time(p, one_in(&random, 5));
        if (one_in(&random, 2)) {
            unsigned kind = operations[below(&random, 7)] + (unsigned)below(&random, 3);
            bool is_free = ep_kinds[kind].form == EP_FORM_FREE;
            int64_t size = is_free ? -1 : (int64_t)below(&random, 1000);
            program_alloc(p, thread, kind, 8 * below(&random, 30), size);
            p->columns.id[p->columns.count - 1] = (uint32_t)below(&random, SITES + 1);
        } else if (one_in(&random, 2)) {
            bool is_unknown = one_in(&random, 20);
            uint32_t site = is_unknown ? UNKNOWN_SITE : random_site(&random);
            program_call(p, thread, openings[below(&random, 4)], site);
        } else {
            ep_kind kind = one_in(&random, 3) ? EP_KIND_C_RETURN : EP_KIND_RETURN;
            program_call(p, thread, kind, NAME_OF(below(&random, FUNCTIONS)));
        }
    }
    return p;
}

static bool
was_alive(const study *s, size_t block, size_t moment)
{
    return s->blocks.birth[block] < moment &&
           (s->blocks.death[block] == EP_ROW_NONE || s->blocks.death[block] >= moment);
}

static int64_t
live_at(const study *s, size_t moment, unsigned domains)
{
    int64_t live = 0;
    for (size_t i = 0; i < s->blocks.count; i++) {
        bool counts = (domains & EP_DOMAIN_BIT(s->blocks.domain[i])) != 0;
        live += counts && was_alive(s, i, moment) ? s->blocks.size[i] : 0;
    }
    return live;
}

/* The first moment with the most live bytes; 0: no block. */
static size_t
peak_moment(const study *s, unsigned domains)
{
    size_t best = 0;
    for (size_t moment = 1; moment <= s->p->columns.alloc_count; moment++) {
        if (live_at(s, moment, domains) > live_at(s, best, domains)) {
            best = moment;
        }
    }
    return best;
}

static int
ascending(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left;
    int64_t b = *(const int64_t *)right;
    return a < b ? -1 : a > b;
}

/* A percentile is the middle of the bin of the exact one. */
static void
check_percentiles(const study *s, size_t row)
{
    const ep_function_stats *stats = &s->summary.rows[row];
    const int64_t found[] = {stats->p50, stats->p95, stats->p99};
    static const size_t percents[] = {50, 95, 99};
    int64_t durations[400];
    size_t whole = 0;
    for (size_t i = 0; i < s->calls.count; i++) {
        int32_t function = s->calls.function[i] >= 0 ? s->calls.function[i] : FUNCTIONS;
        if ((size_t)function == row && (s->calls.flags[i] & EP_CALL_CUT) == 0) {
            durations[whole++] = s->calls.duration[i];
        }
    }
    qsort(durations, whole, sizeof *durations, ascending);
    for (size_t i = 0; i < 3; i++) {
        int64_t exact = whole > 0 ? durations[(percents[i] * whole + 99) / 100 - 1] : -1;
        int64_t off = exact < 128 ? 0 : exact / 100;
        ck_assert_int_ge(found[i], exact - off);
        ck_assert_int_le(found[i], exact + off);
    }
}

START_TEST(functions_are_as_counted_one_by_one)
{
    for (uint64_t seed = 0; seed < 40; seed++) {
        study s = study_of(random_events(seed));

        ep_function_stats wanted[FUNCTIONS + 1];
        count_one_by_one(s.p, &s.calls, &s.blocks, wanted);
        ck_assert_uint_eq(s.summary.count, FUNCTIONS + 1);
        for (size_t row = 0; row < s.summary.count; row++) {
            assert_same_row(&s.summary.rows[row], &wanted[row]);
            check_percentiles(&s, row);
        }
        study_free(&s);
    }
}
END_TEST

START_TEST(functions_add_up_to_the_whole)
{
    for (uint64_t seed = 100; seed < 140; seed++) {
        study s = study_of(random_events(seed));
        ep_peak peak = ep_summary_peak(&s.blocks, EP_DOMAINS_ALL);
        int64_t outermost = 0;
        for (size_t i = 0; i < s.calls.count; i++) {
            outermost += s.calls.parent[i] < 0 ? s.calls.duration[i] : 0;
        }

        ep_function_stats sum = {0};
        for (size_t i = 0; i < s.summary.count; i++) {
            sum.own.self += s.summary.rows[i].own.self;
            sum.net_self += s.summary.rows[i].net_self;
            sum.own.live += s.summary.rows[i].own.live;
            sum.own.at_peak += s.summary.rows[i].own.at_peak;
        }

        ck_assert_int_eq(sum.own.self, outermost);
        ck_assert_int_eq(sum.net_self, sum.own.live);
        ck_assert_int_eq(sum.own.live, live_at(&s, s.p->columns.alloc_count, EP_DOMAINS_ALL));
        ck_assert_int_eq(sum.own.at_peak, peak.live);
        study_free(&s);
    }
}
END_TEST

/* What one call allocated and freed, block by block; below: or a call below it did. */
static void
check_call_memory(const study *s, const ep_call_memory *memory, size_t call, bool below)
{
    int64_t allocated = 0;
    int64_t freed = 0;
    int32_t made = 0;
    for (size_t i = 0; i < s->blocks.count; i++) {
        int32_t by = s->blocks.call[i];
        int32_t freed_by = s->blocks.freed_in[i];
        while (below && by > (int32_t)call) by = s->calls.parent[by];
        while (below && freed_by > (int32_t)call) freed_by = s->calls.parent[freed_by];
        allocated += by == (int32_t)call ? s->blocks.size[i] : 0;
        freed += freed_by == (int32_t)call ? s->blocks.size[i] : 0;
        made += by == (int32_t)call;
    }
    ck_assert_int_eq(memory->allocated[call], allocated);
    ck_assert_int_eq(memory->freed[call], freed);
    ck_assert_int_eq(memory->blocks[call], made);
}

START_TEST(calls_are_as_counted_one_by_one)
{
    for (uint64_t seed = 200; seed < 240; seed++) {
        study s = study_of(random_events(seed));
        for (int below = 0; below < 2; below++) {
            ep_call_memory memory;

            ck_assert_int_eq(ep_summary_call_memory(&s.calls, &s.blocks, below, &memory), EP_OK);

            for (size_t i = 0; i < s.calls.count; i++) check_call_memory(&s, &memory, i, below);
            ep_call_memory_clear(&memory);
        }
        study_free(&s);
    }
}
END_TEST

/* Bins, from the curve. */
static void
check_bins(const study *s, const ep_curve *curve, unsigned domains, size_t count)
{
    ep_bin bins[50];
    ep_summary_bins(&s->blocks, domains, count, bins);

    int64_t length = s->p->input.length_ns;
    size_t next = 0;
    int64_t last = 0;
    for (size_t k = 0; k < count; k++) {
        int64_t min = last;
        int64_t max = last;
        int64_t end = length * (int64_t)(k + 1) / (int64_t)count;
        for (; next < curve->count && (curve->time[next] < end || k + 1 == count); next++) {
            last = curve->live[next];
            min = last < min ? last : min;
            max = last > max ? last : max;
        }
        ck_assert_int_eq(bins[k].min, min);
        ck_assert_int_eq(bins[k].max, max);
        ck_assert_int_eq(bins[k].last, last);
        ck_assert_int_eq(bins[k].blocks, next > 0 ? curve->blocks[next - 1] : 0);
    }
}

START_TEST(replay_gives_the_same_memory_at_every_time)
{
    static const unsigned sets[] = {EP_DOMAINS_ALL, EP_DOMAIN_BIT(EP_DOMAIN_MEM), 5, 0};
    for (uint64_t seed = 300; seed < 340; seed++) {
        study s = study_of(random_events(seed));
        unsigned domains = sets[seed % 4];
        ep_curve curve;

        ck_assert_int_eq(ep_summary_curve(&s.blocks, domains, &curve), EP_OK);

        for (size_t i = 0; i < curve.count; i++) {
            bool is_last = i + 1 == curve.count || curve.time[i + 1] > curve.time[i];
            size_t moment = ep_blocks_moment(&s.p->input, curve.time[i]);
            if (is_last) {
                ck_assert_int_eq(curve.live[i], live_at(&s, moment, domains));
            }
        }
        ep_peak peak = ep_summary_peak(&s.blocks, domains);
        ck_assert_int_eq(peak.live, live_at(&s, peak_moment(&s, domains), domains));
        ck_assert_int_eq(peak.live, live_at(&s, peak.moment, domains));
        check_bins(&s, &curve, domains, 1 + seed % 50);
        ep_curve_clear(&curve);
        study_free(&s);
    }
}
END_TEST

/* A block's key in a grouping. */
static int32_t
key_of(const study *s, const ep_stacks *stacks, ep_group_by by, size_t block)
{
    int32_t call = s->blocks.call[block];
    uint32_t site = s->blocks.site[block];
    switch (by) {
        case EP_BY_FUNCTION: return function_of_event(s->p, &s->calls, s->blocks.birth[block]);
        case EP_BY_SITE:     return site < SITES ? (int32_t)site : -1;
        case EP_BY_STACK:    return call >= 0 ? stacks->call_stack[call] : -1;
    }
    return -1;
}

START_TEST(groups_are_as_counted_one_by_one)
{
    for (uint64_t seed = 400; seed < 440; seed++) {
        study s = study_of(random_events(seed));
        ep_peak peak = ep_summary_peak(&s.blocks, EP_DOMAINS_ALL);
        ep_group_by by = (ep_group_by)(seed % 3);
        ep_stacks stacks;
        ep_groups groups;
        ck_assert_int_eq(ep_summary_stacks(&s.calls, &stacks), EP_OK);

        ck_assert_int_eq(
            ep_summary_alive(&s.blocks, &s.calls, &stacks, peak.moment, by, &groups), EP_OK);

        int64_t sum = 0;
        for (size_t g = 0; g < groups.count; g++) {
            int64_t bytes = 0;
            int64_t blocks = 0;
            for (size_t i = 0; i < s.blocks.count; i++) {
                bool is_in = was_alive(&s, i, peak.moment) &&
                             key_of(&s, &stacks, by, i) == groups.rows[g].key;
                bytes += is_in ? s.blocks.size[i] : 0;
                blocks += is_in;
            }
            ck_assert_int_eq(groups.rows[g].bytes, bytes);
            ck_assert_int_eq(groups.rows[g].blocks, blocks);
            ck_assert(g == 0 || groups.rows[g - 1].bytes >= bytes);
            sum += bytes;
        }
        ck_assert_int_eq(sum, peak.live);
        ep_groups_clear(&groups);
        ep_stacks_clear(&stacks);
        study_free(&s);
    }
}
END_TEST

/* Have two calls the same sites from the outermost on? */
static bool
is_same_way(const ep_calls *calls, int32_t a, int32_t b)
{
    while (a >= 0 && b >= 0 && calls->site[a] == calls->site[b]) {
        a = calls->parent[a];
        b = calls->parent[b];
    }
    return a < 0 && b < 0;
}

START_TEST(stacks_are_equal_where_the_sites_are)
{
    for (uint64_t seed = 500; seed < 520; seed++) {
        study s = study_of(random_events(seed));
        ep_stacks stacks;

        ck_assert_int_eq(ep_summary_stacks(&s.calls, &stacks), EP_OK);

        for (int32_t a = 0; a < (int32_t)s.calls.count; a++) {
            int32_t stack = stacks.call_stack[a];
            int32_t parent = s.calls.parent[a];
            ck_assert_uint_eq(stacks.site[stack], s.calls.site[a]);
            ck_assert_int_eq(stacks.parent[stack], parent >= 0 ? stacks.call_stack[parent] : -1);
            for (int32_t b = 0; b < a; b++) {
                ck_assert_int_eq(stack == stacks.call_stack[b], is_same_way(&s.calls, a, b));
            }
        }
        ep_stacks_clear(&stacks);
        study_free(&s);
    }
}
END_TEST

#ifdef EP_FAULT_POINTS

/* ---- Failures -------------------------------------------------------------------------------- */

/* Everything that takes memory, on calls and blocks without columns. Stops at the first failure. */
static ep_status
summarise_everything(program *p, ep_calls *calls, ep_blocks *blocks)
{
    ep_tree tree;
    ep_call_memory memory = {0};
    ep_curve curve = {0};
    ep_stacks stacks = {0};
    ep_groups alive = {0};
    ep_groups temporary = {0};
    ep_status status = try_tree_of(p, 30, SIZE_MAX, &tree);
    if (status == EP_OK) {
        status = ep_summary_call_memory(calls, blocks, true, &memory);
    }
    if (status == EP_OK) {
        status = ep_summary_curve(blocks, EP_DOMAINS_ALL, &curve);
    }
    if (status == EP_OK) {
        status = ep_summary_stacks(calls, &stacks);
    }
    if (status == EP_OK) {
        status = ep_summary_alive(blocks, calls, &stacks, 5, EP_BY_STACK, &alive);
    }
    if (status == EP_OK) {
        status = ep_summary_temporary(blocks, calls, NULL, EP_BY_SITE, &temporary);
    }
    tree_free(&tree);
    ep_call_memory_clear(&memory);
    ep_curve_clear(&curve);
    ep_stacks_clear(&stacks);
    ep_groups_clear(&alive);
    ep_groups_clear(&temporary);
    return status;
}

START_TEST(every_failed_allocation_is_reported)
{
    program *p = random_events(12347);
    for (uint32_t i = 0; i < 2000; i++) program_call(p, 0, EP_KIND_CALL, 1 + i % 30);

    long nth = 0;
    for (bool reached = true; reached; nth++) {
        ep_calls calls;
        ep_blocks blocks;
        ck_assert_int_eq(ep_pair_calls(&p->input, NULL, &calls), EP_OK);
        ck_assert_int_eq(ep_pair_blocks(&p->input, NULL, &blocks), EP_OK);

        atomic_store(&ep_fault_countdown, nth);
        ep_status status = summarise_everything(p, &calls, &blocks);
        reached = atomic_exchange(&ep_fault_countdown, -1) < 0;

        ck_assert_int_eq(status, reached ? EP_NOMEM : EP_OK);
        ep_calls_clear(&calls);
        ep_blocks_clear(&blocks);
    }

    ck_assert_int_gt(nth, 25);
    program_free(p);
}
END_TEST

#endif

EP_TEST_MAIN("summary_random",
             functions_are_as_counted_one_by_one,
             functions_add_up_to_the_whole,
             calls_are_as_counted_one_by_one,
             replay_gives_the_same_memory_at_every_time,
             groups_are_as_counted_one_by_one,
#ifdef EP_FAULT_POINTS
             every_failed_allocation_is_reported,
#endif
             stacks_are_equal_where_the_sites_are)
