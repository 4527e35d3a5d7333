/* Traces of several processes: each has an interpreter's lock of its own. */
#include "ep_folding.h"

#include "summary.h"
#include "tenures.h"
#include "waited.h"

#define PROCESSES 3

/* The events of a program's process alone, with all threads, at the same times. Returns: new. */
static program *
alone(const program *p, int32_t process)
{
    program *one = program_new();
    const ep_columns *c = &p->columns;
    for (size_t thread = 0; thread < THREADS; thread++) {
        for (size_t i = 0; processes[thread] == process && i < p->open[thread].depth; i++) {
            const ep_open_call *call = &p->open[thread].calls[i];
            program_open(one, (int32_t)thread, call->kind, call->site_id);
        }
    }
    for (size_t row = 0, block = 0; row < c->count; row++) {
        bool is_block = block < c->alloc_count && c->alloc_row[block] == row;
        if (processes[c->thread[row]] == process) {
            one->now = c->time_ns[row];
            if (is_block) {
                program_alloc(one, c->thread[row], c->kind[row], c->address[block], c->size[block]);
            } else {
                program_call(one, c->thread[row], c->kind[row], c->id[row]);
            }
        }
        block += is_block;
    }
    one->now = p->now;
    one->input.length_ns = p->input.length_ns;
    return one;
}

/* What calls waited, by the row that opened them; the sum of those that were open at the start. */
static int64_t *
waited_by_row(program *p, ep_calls *calls, int64_t *before)
{
    *calls = program_calls(p);
    int64_t *waited = must(calloc(calls->count + 1, sizeof *waited));
    ck_assert_int_eq(ep_calls_waited(calls, false, waited), EP_OK);
    *before = 0;
    for (size_t call = 0; call < calls->before_count; call++) *before += waited[call];
    return waited;
}

START_TEST(a_call_waits_only_for_threads_of_its_process)
{
    bool any = false;
    for (uint64_t seed = 1; seed < 120; seed++) {
        program *p = random_program(seed, false);
        ep_calls calls, calls_alone;
        int64_t before, before_alone, sum_alone = 0, sum_before = 0;
        p->input.thread_process = processes;
        int64_t *waited = waited_by_row(p, &calls, &before);
        for (int32_t process = 0; process < PROCESSES; process++) {
            program *one = alone(p, process);

            int64_t *waited_alone = waited_by_row(one, &calls_alone, &before_alone);

            size_t at = calls_alone.before_count;
            for (size_t call = calls.before_count; call < calls.count; call++) {
                if (processes[ep_call_thread(&calls, call)] == process) {
                    ck_assert_uint_lt(at, calls_alone.count);
                    ck_assert_int_eq(ep_call_start(&calls, call), ep_call_start(&calls_alone, at));
                    ck_assert_int_eq(waited[call], waited_alone[at]);
                    sum_alone += waited_alone[at++];
                }
            }
            ck_assert_uint_eq(at, calls_alone.count);
            sum_before += before_alone;
            free(waited_alone);
            ep_calls_clear(&calls_alone);
            program_free(one);
        }
        ck_assert_int_eq(before, sum_before);
        ep_tree tree = tree_of(p, 0, 1 + seed % 40);
        int64_t sum = 0;
        for (size_t node = 1; node < tree.node_count; node++) sum += tree.nodes[node].waited;
        ck_assert_int_eq(sum, sum_alone + sum_before);
        any = any || sum > 0;
        tree_free(&tree);
        free(waited);
        ep_calls_clear(&calls);
        program_free(p);
    }
    ck_assert(any);
}
END_TEST

static ep_tenures
tenures_of(program *p)
{
    ep_tenures tenures;
    ep_tenures_open(&tenures);
    ep_fold *folds[] = {&tenures.fold};
    ep_fold_facts facts = facts_of(p);
    random_stream stream = {
        .stream = {.next = random_next}, .columns = &p->columns, .most = 7, .random = 5};
    ck_assert_int_eq(ep_fold_run(&stream.stream, &facts, folds, 1, NULL), EP_OK);
    return tenures;
}

START_TEST(tenures_are_those_of_each_process)
{
    for (uint64_t seed = 1; seed < 60; seed++) {
        program *p = random_program(seed, false);
        p->input.thread_process = processes;

        ep_tenures all = tenures_of(p);

        size_t count = 0;
        for (size_t i = 1; i < all.count; i++) {
            ck_assert_int_ge(all.rows[i].start_ns, all.rows[i - 1].start_ns);
        }
        for (int32_t process = 0; process < PROCESSES; process++) {
            program *one = alone(p, process);
            ep_tenures some = tenures_of(one);
            size_t at = 0;
            for (size_t i = 0; i < all.count; i++) {
                if (processes[all.rows[i].thread] != process) {
                    continue;
                }
                ck_assert_uint_lt(at, some.count);
                ck_assert_mem_eq(&all.rows[i], &some.rows[at], offsetof(ep_tenure, thread));
                ck_assert_int_eq(all.rows[i].thread, some.rows[at++].thread);
            }
            ck_assert_uint_eq(at, some.count);
            count += at;
            some.fold.type->clear(&some.fold);
            program_free(one);
        }
        ck_assert_uint_eq(count, all.count);
        all.fold.type->clear(&all.fold);
        program_free(p);
    }
}
END_TEST

EP_TEST_MAIN("processes", a_call_waits_only_for_threads_of_its_process, tenures_are_those_of_each_process)
