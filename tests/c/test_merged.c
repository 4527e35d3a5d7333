/* files/merged.h: traces of several are folded side by side. Random traces, in archives and in memory,
 * against the columns of the whole and against the parts alone. */
#include "ep_archives.h"

#ifdef __GLIBC__
#include <malloc.h>
#define KNOWS_ALLOCATED __GLIBC_PREREQ(2, 33)
#else
#define KNOWS_ALLOCATED 0
#endif

#include "of_trace.h"
#include "open.h"
#include "reading.h"
#include "tenures.h"
#include "tree.h"

#define PARTS_MAX 30

/* ---- Parts ----------------------------------------------------------------------------------- */

typedef struct family {
    size_t count;
    int files[PARTS_MAX];
    ep_trace traces[PARTS_MAX];
    ep_merged_part parts[PARTS_MAX];
} family;

static void
open_member(family *f, size_t i)
{
    ep_error error = {.text = ""};
    ck_assert_msg(ep_trace_open_archive(f->files[i], &f->traces[i], &error) == EP_OK, "%s", error.text);
    f->parts[i].trace = &f->traces[i];
}

static void
close_members(family *f)
{
    for (size_t i = 0; i < f->count; i++) ep_trace_clear(&f->traces[i]);
}

/* Traces that begin one after another or at the same time; archives, and every third in memory. */
static family
family_new(uint64_t seed, size_t count, const shape *s)
{
    uint64_t random = seed;
    family f = {.count = count};
    setup();
    for (size_t i = 0; i < count; i++) {
        shape own_shape = *s;
        own_shape.threads = 1 + ep_model_below(&random, s->threads);
        ep_decoded made = make_trace(seed * 100 + i, &own_shape);
        int64_t start = i == 0 ? 0 : (int64_t)ep_model_below(&random, (uint64_t)made.duration_ns * 2);
        for (size_t k = 0; k < made.resident_count; k++) {
            made.resident_bytes[k] &= 0xFFFFFF;    /* sums of any numbers would not fit */
            made.resident_own[k] &= 0xFFFF;
        }
        f.files[i] = save(&made);
        f.parts[i] = (ep_merged_part){.offset_ns = start, .process_id = 100 + i};
        ep_decoded_clear(&made);
    }
    return f;
}

static void
family_free(family *f)
{
    for (size_t i = 0; i < f->count; i++) close(f->files[i]);
}

static ep_trace
merge(family *f, bool some_in_memory)
{
    ep_trace merged;
    for (size_t i = 0; i < f->count; i++) {
        open_member(f, i);
        if (some_in_memory && i % 3 == 1) {
            ck_assert_int_eq(ep_trace_reach(&f->traces[i], EP_STEP_DECODED, NULL), EP_OK);
        }
    }
    ck_assert_int_eq(ep_trace_merge(f->parts, f->count, &merged), EP_OK);
    return merged;
}

static void
fold(ep_trace *trace, ep_tree *tree, ep_tenures *tenures)
{
    ep_error error = {.text = ""};
    ep_tree_open(tree, 0);
    ep_tenures_open(tenures);
    ep_fold *folds[] = {&tree->fold, &tenures->fold};
    ck_assert_msg(ep_fold_trace(trace, folds, 2, true, "testing", &error) == EP_OK, "%s", error.text);
}

static void
drop(ep_tree *tree, ep_tenures *tenures)
{
    tree->fold.type->clear(&tree->fold);
    tenures->fold.type->clear(&tenures->fold);
}

/* ---- The same as columns give ---------------------------------------------------------------- */

static void
assert_same_trees(const ep_tree *a, const ep_tree *b)
{
    ck_assert_uint_eq(a->node_count, b->node_count);
    ck_assert_uint_eq(a->leaf_count, b->leaf_count);
    for (size_t i = 0; i < a->node_count; i++) {
        ck_assert_mem_eq(&a->nodes[i].calls, &b->nodes[i].calls,
                         sizeof(ep_tree_node) - offsetof(ep_tree_node, calls));
        ck_assert_uint_eq(a->nodes[i].parent, b->nodes[i].parent);
        ck_assert_mem_eq(&a->places[a->nodes[i].place], &b->places[b->nodes[i].place], sizeof *a->places);
    }
    for (size_t i = 1; i < a->leaf_count; i++) {
        ck_assert_uint_eq(a->leaves[i].node, b->leaves[i].node);
        ck_assert_mem_eq(&a->leaves[i].allocated, &b->leaves[i].allocated,
                         sizeof(ep_tree_leaf) - offsetof(ep_tree_leaf, allocated));
    }
    ck_assert_int_eq(a->peak_ns, b->peak_ns);
    ck_assert_uint_eq(a->peak, b->peak);
    ck_assert_uint_eq(a->peak_blocks, b->peak_blocks);
    ck_assert_uint_eq(a->live, b->live);
    ck_assert_uint_eq(a->unknown_frees, b->unknown_frees);
    ck_assert_uint_eq(a->unmatched, b->unmatched);
    ck_assert_mem_eq(a->bins, b->bins, EP_TREE_BINS * sizeof *a->bins);
}

static void
assert_same_tenures(const ep_tenures *a, const ep_tenures *b)
{
    ck_assert_uint_eq(a->count, b->count);
    for (size_t i = 0; i < a->count; i++) {
        ck_assert_int_eq(a->rows[i].thread, b->rows[i].thread);
        ck_assert_int_eq(a->rows[i].start_ns, b->rows[i].start_ns);
        ck_assert_int_eq(a->rows[i].end_ns, b->rows[i].end_ns);
        ck_assert_int_eq(a->rows[i].events, b->rows[i].events);
    }
}

START_TEST(a_pass_over_the_parts_gives_what_columns_of_the_whole_give)
{
    for (uint64_t seed = 1; seed < 20; seed++) {
        shape s = small;
        s.events = 1 + seed * 80;
        family f = family_new(seed, seed == 1 ? PARTS_MAX : 1 + seed % 6, &s), g = f;
        ep_trace passed = merge(&f, true), loaded = merge(&g, false);
        ep_tree tree, again, wanted;
        ep_tenures tenures, tenures_again, wanted_tenures;
        ck_assert_int_eq(ep_trace_reach(&loaded, EP_STEP_FUNCTIONS, NULL), EP_OK);
        fold(&loaded, &wanted, &wanted_tenures);

        fold(&passed, &tree, &tenures);
        ep_worker_limits shipped = ep_worker_limit;
        ep_worker_limit = (ep_worker_limits){.rows = 0, .processors = 1};
        fold(&passed, &again, &tenures_again);    /* with a second thread that reads ahead */
        ep_worker_limit = shipped;

        ck_assert(!passed.has_decoded && loaded.has_decoded);
        assert_same_trees(&tree, &wanted);
        assert_same_trees(&again, &wanted);
        assert_same_tenures(&tenures, &wanted_tenures);
        assert_same_tenures(&tenures_again, &wanted_tenures);
        ck_assert_uint_eq(passed.functions.count, loaded.functions.count);
        const ep_decoded *head = ep_trace_head(&passed);
        ck_assert_uint_eq(ep_decoded_events(head), loaded.decoded.columns.count);
        ck_assert_int_eq(head->duration_ns, loaded.decoded.duration_ns);
        ck_assert_uint_eq(head->resident_count, loaded.decoded.resident_count);
        ck_assert_mem_eq(head->resident_bytes, loaded.decoded.resident_bytes,
                         head->resident_count * sizeof *head->resident_bytes);
        ck_assert_uint_eq(passed.recording.kinds, loaded.recording.kinds);
        ck_assert_uint_eq(passed.recording.filtered, loaded.recording.filtered);
        drop(&tree, &tenures);
        drop(&again, &tenures_again);
        drop(&wanted, &wanted_tenures);
        ep_trace_clear(&passed);
        ep_trace_clear(&loaded);
        close_members(&f);
        close_members(&g);
        family_free(&f);
    }
}
END_TEST

/* ---- The sum of the parts -------------------------------------------------------------------- */

typedef struct sums {
    int64_t calls, resumes, raised, self, waited_self;
    uint64_t freed, allocated, blocks, live, temporary, tenures, peak_sum, peak_most;
} sums;

static void
add_up(sums *to, const ep_tree *tree, const ep_tenures *tenures)
{
    for (size_t i = 0; i < tree->node_count; i++) {
        const ep_tree_node *node = &tree->nodes[i];
        to->calls += node->calls;
        to->resumes += node->resumes;
        to->raised += node->raised;
        to->self += node->self;
        to->waited_self += node->waited_self;
        to->freed += node->freed;
    }
    for (size_t i = 1; i < tree->leaf_count; i++) {
        to->allocated += tree->leaves[i].allocated;
        to->blocks += tree->leaves[i].blocks;
        to->live += tree->leaves[i].live;
        to->temporary += tree->leaves[i].temporary;
    }
    to->tenures += tenures->count;
    to->peak_sum += tree->peak;
    to->peak_most = tree->peak > to->peak_most ? tree->peak : to->peak_most;
}

START_TEST(a_whole_is_the_sum_of_its_parts)
{
    bool waits = false;
    for (uint64_t seed = 1; seed < 15; seed++) {
        shape s = small;
        s.events = 1 + seed * 40;
        s.oddness = 0;
        family f = family_new(seed, 1 + seed % 7, &s);
        sums of_parts = {0}, of_whole = {0};
        ep_trace merged = merge(&f, false);
        ep_tree tree;
        ep_tenures tenures;

        fold(&merged, &tree, &tenures);

        add_up(&of_whole, &tree, &tenures);
        drop(&tree, &tenures);
        for (size_t i = 0; i < f.count; i++) {
            fold(&f.traces[i], &tree, &tenures);
            add_up(&of_parts, &tree, &tenures);
            drop(&tree, &tenures);
        }
        ck_assert_mem_eq(&of_whole, &of_parts, offsetof(sums, peak_sum));
        ck_assert_uint_le(of_whole.peak_sum, of_parts.peak_sum);
        ck_assert_uint_ge(of_whole.peak_sum, of_parts.peak_most);
        waits = waits || of_whole.waited_self > 0;
        ep_trace_clear(&merged);
        close_members(&f);
        family_free(&f);
    }
    ck_assert(waits);
}
END_TEST

/* ---- Memory ---------------------------------------------------------------------------------- */

#ifdef __SANITIZE_ADDRESS__
size_t __sanitizer_get_current_allocated_bytes(void);

static size_t
allocated_bytes(void)
{
    return __sanitizer_get_current_allocated_bytes();
}
#else
static size_t
allocated_bytes(void)
{
#if KNOWS_ALLOCATED
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
#else
    return 1;    /* nothing is known: the tests pass */
#endif
}
#endif

/* A fold that only counts rows, and what is allocated at each batch. */
typedef struct meter {
    ep_fold fold;
    size_t rows, most;
} meter;

static ep_status
meter_begin(ep_fold *fold, const ep_fold_facts *facts)
{
    (void)fold;
    (void)facts;
    return EP_OK;
}

static ep_status
meter_events(ep_fold *fold, const ep_batch *batch)
{
    meter *self = (meter *)fold;
    size_t now = allocated_bytes();
    self->rows += batch->to - batch->from;
    self->most = now > self->most ? now : self->most;
    return EP_OK;
}

static ep_status
meter_end(ep_fold *fold)
{
    (void)fold;
    return EP_OK;
}

/* What a pass over archives of so many events allocates. */
static size_t
bytes_of_pass(size_t events, size_t count, int64_t apart_ns)
{
    static const ep_fold_type type = {
        .name = "meter", .begin = meter_begin, .events = meter_events, .end = meter_end};
    shape s = {events, 2, 20, 300, 0, EP_MODEL_ALL_KINDS};
    family f = family_new(7, count, &s);
    for (size_t i = 0; i < count; i++) f.parts[i].offset_ns = (int64_t)i * apart_ns;
    ep_trace merged = merge(&f, false);
    meter m = {.fold = {.type = &type}};
    ep_fold *folds[] = {&m.fold};
    size_t before = allocated_bytes();
    ep_error error = {.text = ""};

    ck_assert_int_eq(ep_fold_trace(&merged, folds, 1, true, "testing", &error), EP_OK);

    ck_assert_uint_eq(m.rows, events * count);
    ck_assert(!merged.has_decoded);
    for (size_t i = 0; i < count; i++) ck_assert(!f.traces[i].has_decoded);
    ep_trace_clear(&merged);
    close_members(&f);
    family_free(&f);
    return m.most > before ? m.most - before : 0;
}

START_TEST(memory_does_not_grow_with_the_events)
{
    size_t section = EP_SECTION_ROWS, few = bytes_of_pass(section, 2, 0),
           many = bytes_of_pass(3 * section, 2, 0);

    ck_assert_uint_le(many, few + few / 8);    /* columns would take 18 to 43 MiB more */
}
END_TEST

START_TEST(memory_does_not_grow_with_processes_one_after_another)
{
    size_t few = bytes_of_pass(10000, 20, INT64_C(1) << 40),
           many = bytes_of_pass(10000, 30, INT64_C(1) << 40);

    ck_assert_uint_lt(many, few + 10 * 10000 * 8);    /* their times alone would take that */
}
END_TEST

/* ---- Failures -------------------------------------------------------------------------------- */

START_TEST(too_many_parts_are_refused)
{
    ep_trace merged;
    ck_assert_int_eq(ep_trace_merge(NULL, (size_t)1 << 16, &merged), EP_ARGUMENT);
}
END_TEST

START_TEST(parts_that_are_done_are_not_read_again)
{
    family f = family_new(3, 2, &small);
    ep_trace merged = merge(&f, false);
    ck_assert(ep_trace_is_merged(&merged));
    ck_assert_int_eq(ep_trace_reach(&merged, EP_STEP_DECODED, NULL), EP_OK);
    ck_assert(!ep_trace_is_merged(&merged));
    close_members(&f);    /* the whole does not need them any more */
    ep_tree tree;
    ep_tenures tenures;

    fold(&merged, &tree, &tenures);

    ck_assert_uint_gt(tree.node_count, 1);
    drop(&tree, &tenures);
    ep_trace_clear(&merged);
    family_free(&f);
}
END_TEST

#ifdef EP_FAULT_POINTS
START_TEST(without_memory_nothing_is_left)
{
    family f = family_new(5, 2, &small);
    int failed = 0;
    for (long n = 0; n < 4000; n += 1 + n / 10) {
        for (int loads = 0; loads < 2; loads++) {
            ep_trace merged = merge(&f, true);
            ep_tree tree;
            ep_error error = {.text = ""};
            ep_tree_open(&tree, 0);
            ep_fold *folds[] = {&tree.fold};
            atomic_store(&ep_fault_countdown, n);
            ep_status status = loads ? ep_trace_reach(&merged, EP_STEP_DECODED, &error)
                                     : ep_fold_trace(&merged, folds, 1, true, "testing", &error);
            atomic_store(&ep_fault_countdown, -1);
            tree.fold.type->clear(&tree.fold);
            ep_trace_clear(&merged);
            close_members(&f);
            ck_assert(status == EP_OK || status == EP_NOMEM);
            failed += status == EP_NOMEM;
            if (status == EP_OK && loads == 0) {
                n = 4000;
            }
        }
    }
    ck_assert_int_gt(failed, 10);
    family_free(&f);
}
END_TEST
#endif

EP_TEST_MAIN("merged",
#ifdef EP_FAULT_POINTS
             without_memory_nothing_is_left,
#endif
             a_pass_over_the_parts_gives_what_columns_of_the_whole_give,
             a_whole_is_the_sum_of_its_parts,
             memory_does_not_grow_with_the_events,
             memory_does_not_grow_with_processes_one_after_another,
             too_many_parts_are_refused,
             parts_that_are_done_are_not_read_again)
