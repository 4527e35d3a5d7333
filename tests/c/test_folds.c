/* folds/: the tree and the tenures. A promise each, and random programs against pairing and summaries. */
#include "ep_summing.h"

#include "reading.h"
#include "tenures.h"
#include "waited.h"

static void
assert_same(program *p, const ep_tree *tree)
{
    ep_calls calls = program_calls(p);
    ep_blocks blocks = program_blocks(p, &calls);
    ep_peak peak = ep_summary_peak(&blocks, EP_DOMAINS_ALL);
    ep_function_stats wanted[FUNCTIONS + 1];
    count_one_by_one(p, &calls, &blocks, wanted);

    ck_assert_int_eq(tree->peak_ns, peak.time);
    ck_assert_uint_eq(tree->peak, (uint64_t)peak.live);
    ck_assert_uint_eq(tree->peak_blocks, (uint64_t)peak.blocks);
    ck_assert_uint_eq(tree->unmatched, calls.unmatched_count);
    uint64_t at_peak = 0;
    for (unsigned i = 0; i < EP_DOMAIN_COUNT; i++) at_peak += tree->domain_at_peak[i];
    ck_assert_uint_eq(at_peak, tree->peak);
    ck_assert_uint_eq(tree->functions.count, FUNCTIONS + 1);
    for (size_t i = 0; i <= FUNCTIONS; i++) assert_same_row(&tree->functions.rows[i], &wanted[i]);
    ep_blocks_clear(&blocks);
    ep_calls_clear(&calls);
}

/* ---- Random programs ------------------------------------------------------------------------- */

START_TEST(tree_adds_up_to_what_pairs_give)
{
    for (uint64_t seed = 1; seed < 300; seed++) {
        program *p = random_program(seed, seed % 3 == 0);

        ep_tree tree = tree_of(p, 0, 1 + seed % 97);

        assert_same(p, &tree);
        tree_free(&tree);
        program_free(p);
    }
}
END_TEST

START_TEST(batches_make_no_difference)
{
    for (uint64_t seed = 1; seed < 60; seed++) {
        program *p = random_program(seed, false);

        ep_tree whole = tree_of(p, 0, SIZE_MAX), parts = tree_of(p, 0, 3);

        ck_assert_uint_eq(whole.node_count, parts.node_count);
        for (size_t i = 0; i < whole.node_count; i++) {
            ck_assert_uint_eq(whole.nodes[i].parent, parts.nodes[i].parent);
            ck_assert_int_eq(whole.nodes[i].total, parts.nodes[i].total);
            ck_assert_int_eq(whole.nodes[i].waited, parts.nodes[i].waited);
        }
        for (size_t i = 1; i < whole.leaf_count; i++) {
            ck_assert_uint_eq(whole.leaves[i].at_peak, parts.leaves[i].at_peak);
        }
        tree_free(&whole);
        tree_free(&parts);
        program_free(p);
    }
}
END_TEST

/* Appends rows of columns in runs of random length, as decoders do. */
typedef struct random_source {
    ep_row_source source;
    const ep_columns *columns;
    size_t row, block, most;
    uint64_t random;
} random_source;

static size_t
random_room(ep_row_source *source)
{
    const random_source *s = (const random_source *)source;
    return s->row < s->columns->count ? s->most : 0;
}

static ep_status
random_append(ep_row_source *source, ep_columns *to, size_t limit)
{
    random_source *s = (random_source *)source;
    const ep_columns *c = s->columns;
    for (uint64_t left = below(&s->random, s->most + 1); left > 0 && s->row < c->count; left--) {
        ck_assert_uint_lt(to->count, limit);
        if (s->block < c->alloc_count && c->alloc_row[s->block] == s->row) {
            to->alloc_row[to->alloc_count] = to->count;
            to->address[to->alloc_count] = c->address[s->block];
            to->size[to->alloc_count++] = c->size[s->block++];
        }
        to->time_ns[to->count] = c->time_ns[s->row];
        to->kind[to->count] = c->kind[s->row];
        to->thread[to->count] = c->thread[s->row];
        to->id[to->count++] = c->id[s->row++];
    }
    return EP_OK;
}

/* With an odd seed a second thread reads the rows. */
START_TEST(sliding_over_rows_makes_no_difference)
{
    const ep_worker_limits shipped = ep_worker_limit;
    size_t ahead = 0;
    for (uint64_t seed = 1; seed < 100; seed++) {
        ep_worker_limit = (ep_worker_limits){.rows = seed % 2 == 1 ? 0 : SIZE_MAX, .processors = 1};
        program *p = random_program(seed, seed % 4 == 0);
        ep_tree whole = tree_of(p, 0, SIZE_MAX), slid;
        random_source source = {
            .source = {.room = random_room, .append = random_append, .total = 1},
            .columns = &p->columns,
            .most = 1 + (size_t)(seed % 50),
            .random = seed,
        };
        ep_sliding_stream stream;
        ep_sliding_stream_open(&stream, &source.source, NULL);
        ep_fold_facts facts = facts_of(p);
        ep_tree_open(&slid, 0);
        ep_fold *folds[] = {&slid.fold};

        ck_assert_int_eq(ep_fold_run(&stream.stream, &facts, folds, 1, NULL), EP_OK);

        ck_assert_uint_eq(source.row, p->columns.count);
        ck_assert(!stream.reads_ahead || seed % 2 == 1);
        ahead += stream.reads_ahead;
        ck_assert_uint_eq(whole.node_count, slid.node_count);
        ck_assert_uint_eq(whole.leaf_count, slid.leaf_count);
        ck_assert_int_eq(whole.peak_ns, slid.peak_ns);
        for (size_t i = 0; i < whole.node_count; i++) {
            ck_assert_int_eq(whole.nodes[i].total, slid.nodes[i].total);
            ck_assert_int_eq(whole.nodes[i].waited, slid.nodes[i].waited);
            ck_assert_uint_eq(whole.nodes[i].freed, slid.nodes[i].freed);
        }
        for (size_t i = 1; i < whole.leaf_count; i++) {
            ck_assert_uint_eq(whole.leaves[i].at_peak, slid.leaves[i].at_peak);
            ck_assert_uint_eq(whole.leaves[i].live, slid.leaves[i].live);
        }
        ep_sliding_stream_clear(&stream);
        tree_free(&whole);
        tree_free(&slid);
        program_free(p);
    }
    ep_worker_limit = shipped;
    ck_assert_uint_gt(ahead, 30);
}
END_TEST

START_TEST(a_bound_loses_nothing)
{
    for (uint64_t seed = 1; seed < 100; seed++) {
        program *p = random_program(seed, seed % 2 == 0);

        ep_tree whole = tree_of(p, 0, 64), small = tree_of(p, 20, 64);

        int64_t self[2] = {0}, calls[2] = {0};
        uint64_t held[2] = {0}, live[2] = {0};
        const ep_tree *trees[] = {&whole, &small};
        for (int t = 0; t < 2; t++) {
            for (size_t i = 1; i < trees[t]->node_count; i++) {
                self[t] += trees[t]->nodes[i].self;
                calls[t] += trees[t]->nodes[i].calls;
                ck_assert_uint_lt(trees[t]->nodes[i].parent, i);
            }
            for (size_t i = 1; i < trees[t]->leaf_count; i++) {
                held[t] += trees[t]->leaves[i].at_peak;
                live[t] += trees[t]->leaves[i].live;
            }
        }
        ck_assert_int_eq(self[0], self[1]);
        ck_assert_int_eq(calls[0], calls[1]);
        ck_assert_uint_eq(held[0], held[1]);
        ck_assert_uint_eq(held[0], whole.peak);
        ck_assert_uint_eq(live[0], live[1]);
        ck_assert_mem_eq(small.functions.rows, whole.functions.rows,
                         whole.functions.count * sizeof *whole.functions.rows);
        tree_free(&whole);
        tree_free(&small);
        program_free(p);
    }
}
END_TEST

/* ---- Promises -------------------------------------------------------------------------------- */

START_TEST(waited_is_the_time_inside_tenures_of_others)
{
    program *p = program_new();
    /* Thread 0: a call from 0 to 100. Thread 1: events at 20 and 50. Thread 2: at 60, alone. */
    program_call(p, 0, EP_KIND_CALL, 1);
    p->now = 20;
    program_call(p, 1, EP_KIND_CALL, 2);
    p->now = 50;
    program_call(p, 1, EP_KIND_RETURN, NAME_OF(2));
    p->now = 60;
    program_call(p, 2, EP_KIND_C_CALL, 3);
    p->now = 100;
    program_call(p, 0, EP_KIND_RETURN, NAME_OF(1));

    ep_tree tree = tree_of(p, 0, 2);

    ck_assert_int_eq(tree.nodes[1].total, 100);
    ck_assert_int_eq(tree.nodes[1].waited, 30);
    ck_assert_int_eq(tree.nodes[2].waited, 0);
    tree_free(&tree);
    program_free(p);
}
END_TEST

START_TEST(a_wait_that_is_found_later_is_not_of_calls_that_began_meanwhile)
{
    program *p = program_new();
    p->has_waits = true;
    program_call(p, 0, EP_KIND_CALL, 1);
    p->now = 70;
    program_call(p, 0, EP_KIND_CALL, 2);
    p->now = 100;
    program_alloc(p, 0, EP_KIND_WAIT, EP_WAIT_WORD(EP_WAIT_FOR_PROCESSOR, 50), -1);
    p->now = 110;
    program_call(p, 0, EP_KIND_RETURN, NAME_OF(2));
    program_call(p, 0, EP_KIND_RETURN, NAME_OF(1));

    ep_tree tree = tree_of(p, 0, 2);
    ep_calls calls = program_calls(p);
    int64_t waited[2] = {0};
    ck_assert_int_eq(ep_calls_waited(&calls, true, waited), EP_OK);

    ck_assert_int_eq(tree.nodes[1].waited, 50);
    ck_assert_int_eq(tree.nodes[2].waited, 30);
    ck_assert_int_eq(tree.waits[1].ns[EP_WAIT_FOR_PROCESSOR], 20);
    ck_assert_int_eq(waited[0], 50);
    ck_assert_int_eq(waited[1], 30);
    ep_calls_clear(&calls);
    tree_free(&tree);
    program_free(p);
}
END_TEST

/* Waits have a begin or none, and some are longer than the calls around them. */
static program *
random_waits(uint64_t *random)
{
    program *p = program_new();
    p->has_waits = true;
    int depth[THREADS] = {0};
    bool waits[THREADS] = {false};
    for (int event = 0; event < 200; event++) {
        int32_t thread = (int32_t)(below(random, THREADS));
        uint64_t what = below(random, EP_WAIT_FOR_COUNT);
        p->now += (int64_t)(below(random, 20));
        if (waits[thread] || below(random, 4) == 0) {
            waits[thread] = !waits[thread] && below(random, 2);
            program_alloc(p, thread, waits[thread] ? EP_KIND_WAIT_BEGIN : EP_KIND_WAIT,
                          EP_WAIT_WORD(what, waits[thread] ? 0 : below(random, 60)), -1);
        } else if (depth[thread] == 0 || below(random, 2)) {
            program_call(p, thread, EP_KIND_CALL, 1 + (uint32_t)depth[thread]++ % (FUNCTIONS - 1));
        } else {
            program_call(p, thread, EP_KIND_RETURN,
                         NAME_OF(1 + (uint32_t)--depth[thread] % (FUNCTIONS - 1)));
        }
    }
    return p;
}

START_TEST(calls_and_the_tree_agree_on_recorded_waits)
{
    for (uint64_t seed = 1; seed < 300; seed++) {
        uint64_t random = seed;
        program *p = random_waits(&random);

        ep_tree tree = tree_of(p, 0, 1 + seed % 9);
        ep_calls calls = program_calls(p);
        int64_t *waited = must(calloc(calls.count + 1, sizeof *waited));
        ck_assert_int_eq(ep_calls_waited(&calls, true, waited), EP_OK);

        int64_t of_depth[200] = {0}, of_nodes[200] = {0};
        for (size_t call = 0; call < calls.count; call++) {
            int64_t length_ns = ep_call_end(&calls, call) - ep_call_start(&calls, call);
            ck_assert(waited[call] >= 0 && waited[call] <= length_ns);
            int depth = 0;
            for (int32_t at = calls.parent[call]; at >= 0; at = calls.parent[at]) depth += 1;
            of_depth[depth] += waited[call];
        }
        for (size_t node = 1; node < tree.node_count; node++) {
            int depth = 0;
            for (uint32_t at = tree.nodes[node].parent; at != 0; at = tree.nodes[at].parent) depth += 1;
            of_nodes[depth] += tree.nodes[node].waited;
        }
        for (int depth = 0; depth < 200; depth++) ck_assert_int_eq(of_depth[depth], of_nodes[depth]);
        free(waited);
        ep_calls_clear(&calls);
        tree_free(&tree);
        program_free(p);
    }
}
END_TEST

/* Runs the fold in small batches. The caller clears it. */
static ep_tenures
tenures_of(program *p)
{
    ep_tenures tenures;
    ep_tenures_open(&tenures);
    ep_fold *folds[] = {&tenures.fold};
    ep_fold_facts facts = facts_of(p);
    random_stream stream = {
        .stream = {.next = random_next}, .columns = &p->columns, .most = 2, .random = 5};
    ck_assert_int_eq(ep_fold_run(&stream.stream, &facts, folds, 1, NULL), EP_OK);
    return tenures;
}

START_TEST(tenures_are_maximal_runs_of_a_thread)
{
    program *p = program_new();
    static const int32_t threads[] = {0, 0, 1, 1, 1, 0, 2};
    for (size_t i = 0; i < 7; i++) program_call(p, threads[i], EP_KIND_CALL, 1);
    program_alloc(p, 3, EP_KIND_MALLOC_RAW, 0x1000, 10);    /* not under the lock */

    ep_tenures tenures = tenures_of(p);

    ck_assert_uint_eq(tenures.count, 4);
    ck_assert_int_eq(tenures.rows[1].thread, 1);
    ck_assert_int_eq(tenures.rows[1].start_ns, 2);
    ck_assert_int_eq(tenures.rows[1].end_ns, 4);
    ck_assert_int_eq(tenures.rows[1].events, 3);
    tenures.fold.type->clear(&tenures.fold);
    program_free(p);
}
END_TEST

static void
program_wait(program *p, int32_t thread, ep_kind kind, ep_wait_for what, uint64_t ns)
{
    program_alloc(p, thread, kind, EP_WAIT_WORD(what, ns), -1);
}

START_TEST(recorded_waits_end_tenures)
{
    program *p = program_new();
    program_call(p, 0, EP_KIND_CALL, 1);
    program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 0x1000, 10);
    p->now = 10;
    program_wait(p, 0, EP_KIND_WAIT_BEGIN, EP_WAIT_FOR_SLEEP, 0);
    p->now = 50;
    program_wait(p, 0, EP_KIND_WAIT, EP_WAIT_FOR_SLEEP, 40);
    p->now = 60;    /* nobody else had the lock meanwhile, and yet it was not this thread's */
    program_call(p, 0, EP_KIND_RETURN, NAME_OF(1));
    p->now = 61;
    program_wait(p, 1, EP_KIND_WAIT_BEGIN, EP_WAIT_FOR_GIL, 0);
    p->now = 70;    /* a part of a wait; the lock is not free yet */
    program_wait(p, 1, EP_KIND_WAIT, EP_WAIT_FOR_GIL, 9);
    program_wait(p, 1, EP_KIND_WAIT_BEGIN, EP_WAIT_FOR_GIL, 0);
    p->now = 80;    /* a read of 15 ns, which has no begin, after a time without a processor */
    program_wait(p, 0, EP_KIND_WAIT, EP_WAIT_FOR_PROCESSOR, 5);
    p->now = 100;
    program_wait(p, 0, EP_KIND_WAIT, EP_WAIT_FOR_IO, 15);
    program_wait(p, 1, EP_KIND_WAIT, EP_WAIT_FOR_GIL, 30);
    p->now = 120;
    program_call(p, 1, EP_KIND_CALL, 1);

    ep_tenures tenures = tenures_of(p);

    static const int64_t expected[][4] = {{0, 0, 10, 2}, {0, 60, 85, 1}, {1, 101, 120, 1}};
    ck_assert_uint_eq(tenures.count, 3);
    for (size_t i = 0; i < 3; i++) {
        ck_assert_int_eq(tenures.rows[i].thread, expected[i][0]);
        ck_assert_int_eq(tenures.rows[i].start_ns, expected[i][1]);
        ck_assert_int_eq(tenures.rows[i].end_ns, expected[i][2]);
        ck_assert_int_eq(tenures.rows[i].events, expected[i][3]);
    }
    tenures.fold.type->clear(&tenures.fold);
    program_free(p);
}
END_TEST

START_TEST(every_length_is_in_the_bin_that_says_so)
{
    program *p = program_new();
    for (uint64_t bit = 0; bit < 40; bit++) {
        for (int64_t off = -1; off <= 1; off++) {
            int64_t length = ((int64_t)1 << bit) + off;
            program_call(p, 0, EP_KIND_CALL, 1);
            p->now += length > 0 ? length - 1 : 0;
            program_call(p, 0, EP_KIND_RETURN, NAME_OF(1));
        }
    }

    ep_tree tree = tree_of(p, 0, SIZE_MAX);

    uint64_t calls = 0;
    for (size_t i = 0; i < tree.length_count; i++) {
        const ep_tree_length *bin = &tree.lengths[i];
        int64_t width = bin->high_ns - bin->low_ns;
        ck_assert(width == 0 || width * EP_TREE_LENGTH_PARTS <= bin->low_ns);
        for (size_t row = 0; row < p->columns.count; row += 2) {
            int64_t length = p->columns.time_ns[row + 1] - p->columns.time_ns[row];
            calls += bin->low_ns <= length && length <= bin->high_ns;
        }
    }
    ck_assert_uint_eq(calls, p->columns.count / 2);    /* every one is in one bin */
    tree_free(&tree);
    program_free(p);
}
END_TEST

START_TEST(recursion_a_million_deep_ends)
{
    program *p = program_new();
    const size_t depth = 1000000;
    for (size_t i = 0; i < depth; i++) program_call(p, 0, EP_KIND_CALL, 1);
    for (size_t i = 0; i < depth; i++) program_call(p, 0, EP_KIND_RETURN, NAME_OF(1));

    ep_tree tree = tree_of(p, 1000, 65536);    /* all calls are open: they are kept for the while */

    int64_t self = 0;
    for (size_t i = 1; i < tree.node_count; i++) self += tree.nodes[i].self;
    ck_assert_int_eq(self, tree.nodes[1].total);
    ck_assert_uint_eq(tree.unmatched, 0);
    tree_free(&tree);
    program_free(p);
}
END_TEST

EP_TEST_MAIN("folds",
             waited_is_the_time_inside_tenures_of_others,
             a_wait_that_is_found_later_is_not_of_calls_that_began_meanwhile,
             calls_and_the_tree_agree_on_recorded_waits,
             tenures_are_maximal_runs_of_a_thread,
             recorded_waits_end_tenures,
             every_length_is_in_the_bin_that_says_so,
             recursion_a_million_deep_ends,
             tree_adds_up_to_what_pairs_give,
             batches_make_no_difference,
             sliding_over_rows_makes_no_difference,
             a_bound_loses_nothing)
