/* python/src/tables/rows.h: what a closing row knows of its opening row. Random traces against what
 * pairing says of the same columns, and what a free and a failed realloc mean, event by event. */
#include "ep_archives.h"
#include "ep_folding.h"

#include "rows.h"
#include "stream.h"

/* ---- Tools ----------------------------------------------------------------------------------- */

/* All rows of one recording after another, as take() was told of them. */
typedef struct gathered {
    ep_rows rows;    /* the first member */
    uint32_t *numbers;
    int64_t *changes;
    size_t count, alloc_count;
    size_t batches_left;
} gathered;

static ep_status
take(ep_rows *rows, const ep_batch *batch, const uint32_t *numbers, const int64_t *changes)
{
    gathered *self = (gathered *)rows;
    const ep_columns *c = batch->columns;
    if (self->batches_left-- == 0) {
        return EP_NOMEM;
    }
    for (size_t row = batch->from; row < batch->to; row++)
        self->numbers[self->count++] = numbers[row - batch->from];
    for (size_t i = batch->alloc_from; i < c->alloc_count && c->alloc_row[i] < batch->to; i++)
        self->changes[self->alloc_count++] = changes[i - batch->alloc_from];
    return EP_OK;
}

static gathered *
gathered_new(size_t room)
{
    gathered *self = ep_calloc(1, sizeof *self);
    self->numbers = ep_calloc(room, sizeof *self->numbers);
    self->changes = ep_calloc(room, sizeof *self->changes);
    self->batches_left = SIZE_MAX;
    ck_assert_int_eq(ep_rows_open(&self->rows, take), EP_OK);
    return self;
}

static void
gathered_free(gathered *self)
{
    self->rows.fold.type->clear(&self->rows.fold);
    free(self->numbers);
    free(self->changes);
    free(self);
}

static void
tell(gathered *self, const ep_decoded *decoded, size_t most)
{
    ep_open_stack *open = ep_calloc(decoded->thread_count + 1, sizeof *open);
    for (size_t i = 0; i < decoded->thread_count; i++) open[i] = decoded->threads[i].open;
    random_stream stream = {
        .stream = {.next = random_next}, .columns = &decoded->columns, .most = most, .random = most};
    ep_fold_facts facts = {
        .thread_count = decoded->thread_count, .open_at_start = open, .length_ns = decoded->duration_ns};
    ep_fold *fold = &self->rows.fold;
    ck_assert_int_eq(ep_fold_run(&stream.stream, &facts, &fold, 1, NULL), EP_OK);
    free(open);
}

static uint32_t
place_at(const gathered *self, size_t row)
{
    ck_assert_uint_lt(self->numbers[row], self->rows.place_count);
    return self->rows.places[self->numbers[row]];
}

/* ---- The same as pairs say ------------------------------------------------------------------- */

/* first, first_alloc: where the recording begins in what was told. */
static void
assert_as_paired(const gathered *self, ep_decoded *decoded, size_t first, size_t first_alloc)
{
    ep_open_stack *open = ep_calloc(decoded->thread_count + 1, sizeof *open);
    for (size_t i = 0; i < decoded->thread_count; i++) open[i] = decoded->threads[i].open;
    ep_functions functions;
    ck_assert_int_eq(ep_functions_build(decoded, &functions), EP_OK);
    ep_pair_input input = {
        .columns = &decoded->columns,
        .map = &functions.map,
        .thread_count = decoded->thread_count,
        .open_at_start = open,
        .length_ns = decoded->duration_ns,
        .lost_from_ns = INT64_MAX,
    };
    ep_calls calls;
    ep_blocks blocks;
    ck_assert_int_eq(ep_pair_calls(&input, NULL, &calls), EP_OK);
    ck_assert_int_eq(ep_pair_blocks(&input, NULL, &blocks), EP_OK);
    const ep_columns *c = &decoded->columns;
    for (size_t row = 0; row < c->count; row++) {
        uint32_t wanted = c->id[row];
        if (ep_kind_has_name(c->kind[row])) {
            int32_t call = calls.row_call[row];
            wanted = call >= 0 ? ep_call_site(&calls, (size_t)call) : c->id[row] | EP_ROWS_IS_NAME;
        }
        ck_assert_uint_eq(place_at(self, first + row), wanted);
    }
    for (size_t event = 0; event < c->alloc_count; event++) {
        int32_t block = blocks.event_block[event];
        bool is_birth = block >= 0 && blocks.birth[block] == event;
        int64_t size = block >= 0 ? ep_block_size(&blocks, (size_t)block) : 0;
        ck_assert_int_eq(self->changes[first_alloc + event], is_birth ? size : -size);
    }
    ep_calls_clear(&calls);
    ep_blocks_clear(&blocks);
    ep_functions_clear(&functions);
    free(open);
}

/* A realloc that failed leaves no trace in pairs; see below. */
static const uint64_t without_failures =
    EP_MODEL_ALL_KINDS &
    ~(EP_KIND_BIT(EP_KIND_REALLOC_FAILED_RAW) | EP_KIND_BIT(EP_KIND_REALLOC_FAILED_MEM) |
      EP_KIND_BIT(EP_KIND_REALLOC_FAILED_OBJ) | EP_KIND_BIT(EP_KIND_REALLOC_FAILED_NUMPY) |
      EP_KIND_BIT(EP_KIND_REALLOC_FAILED_LIBC));

START_TEST(rows_say_what_pairs_say)
{
    setup();
    for (uint64_t seed = 1; seed < 120; seed++) {
        shape s = {.events = 1 + seed * 7,
                   .threads = 1 + seed % 5,
                   .longest_run = 1 + seed % 30,
                   .longest_step = seed % 3 == 0 ? 0 : 300,
                   .oddness = seed % 4 == 0 ? 0 : 3 + seed % 9,
                   .kinds = without_failures};
        ep_decoded first = make_trace(seed, &s), second = make_trace(seed + 1000, &s);
        gathered *all = gathered_new(2 * s.events);

        tell(all, &first, 1 + seed % 50);
        size_t rows = all->count, blocks = all->alloc_count;
        tell(all, &second, SIZE_MAX / 2);

        ck_assert_uint_eq(rows, s.events);
        ck_assert_uint_eq(all->count, 2 * s.events);
        ck_assert_uint_eq(blocks, first.columns.alloc_count);
        assert_as_paired(all, &first, 0, 0);
        assert_as_paired(all, &second, rows, blocks);
        gathered_free(all);
        ep_decoded_clear(&first);
        ep_decoded_clear(&second);
    }
}
END_TEST

START_TEST(a_place_has_one_number)
{
    setup();
    ep_decoded made = make_trace(5, &(shape){2000, 3, 20, 300, 4, without_failures});
    gathered *all = gathered_new(2000);
    uint32_t number = ep_rows_number_of_site(&all->rows, site_ids[7]);

    tell(all, &made, 64);

    ck_assert_uint_eq(number, 0);
    ck_assert_uint_eq(all->rows.places[0], site_ids[7]);
    ck_assert_uint_eq(ep_rows_number_of_site(&all->rows, site_ids[7]), 0);
    size_t count = all->rows.place_count;
    ck_assert_uint_gt(count, 20);
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < i; j++) ck_assert_uint_ne(all->rows.places[i], all->rows.places[j]);
    }
    gathered_free(all);
    ep_decoded_clear(&made);
}
END_TEST

/* ---- Blocks ---------------------------------------------------------------------------------- */

/* An allocator event of site 1; size -1: a free. */
typedef struct event {
    int64_t time_ns;
    int32_t thread;
    uint8_t kind;
    uint64_t address;
    int64_t size, change;    /* what it must change */
} event;

static void
assert_changes(const event *events, size_t count)
{
    setup();
    ep_decoded made = make_trace(1, &(shape){count, 3, 1, 1, 0, EP_KIND_BIT(EP_KIND_FREE_OBJ)});
    ep_columns *c = &made.columns;
    c->alloc_count = 0;
    for (size_t i = 0; i < count; i++) {
        c->time_ns[i] = events[i].time_ns;
        c->thread[i] = events[i].thread;
        c->kind[i] = events[i].kind;
        c->id[i] = site_ids[1];
        c->alloc_row[i] = i;
        c->address[i] = events[i].address;
        c->size[i] = events[i].size;
        c->alloc_count = i + 1;
    }
    gathered *all = gathered_new(count);

    tell(all, &made, 1);

    ck_assert_uint_eq(all->alloc_count, count);
    for (size_t i = 0; i < count; i++) {
        ck_assert_msg(all->changes[i] == events[i].change, "event %zu: %lld", i,
                      (long long)all->changes[i]);
    }
    gathered_free(all);
    ep_decoded_clear(&made);
}

START_TEST(a_realloc_that_fails_brings_its_block_back)
{
    const event events[] = {
        {1, 0, EP_KIND_MALLOC_OBJ, 0x1000, 64, 64},
        {2, 0, EP_KIND_REALLOC_FREE_OBJ, 0x1000, -1, -64},
        {3, 0, EP_KIND_REALLOC_FAILED_OBJ, 0x1000, 9000, 64},
        {4, 0, EP_KIND_REALLOC_FREE_OBJ, 0x1000, -1, -64},
        {5, 0, EP_KIND_REALLOC_OBJ, 0x2000, 96, 96},
        {6, 0, EP_KIND_REALLOC_FAILED_OBJ, 0x1000, 9000, 0},    /* nothing is on its way */
        {7, 0, EP_KIND_REALLOC_FREE_OBJ, 0x2000, -1, -96},
        {8, 0, EP_KIND_REALLOC_FAILED_MEM, 0x2000, 9000, 0},    /* of another allocator */
        {9, 0, EP_KIND_FREE_OBJ, 0x2000, -1, 0},
    };
    assert_changes(events, sizeof events / sizeof *events);
}
END_TEST

START_TEST(a_realloc_that_fails_gets_no_address_that_another_thread_has)
{
    const event events[] = {
        {1, 0, EP_KIND_MALLOC_OBJ, 0x1000, 64, 64},
        {2, 0, EP_KIND_REALLOC_FREE_OBJ, 0x1000, -1, -64},
        {3, 1, EP_KIND_MALLOC_OBJ, 0x1000, 32, 32},
        {4, 0, EP_KIND_REALLOC_FAILED_OBJ, 0x1000, 9000, 0},
        {5, 1, EP_KIND_FREE_OBJ, 0x1000, -1, -32},
    };
    assert_changes(events, sizeof events / sizeof *events);
}
END_TEST

START_TEST(a_free_that_was_logged_too_late_ends_the_older_block)
{
    const event events[] = {
        {1, 0, EP_KIND_MALLOC_OBJ, 0x1000, 64, 64},
        {2, 1, EP_KIND_MALLOC_OBJ, 0x1000, 32, 32},
        {2 + EP_PAIR_SKEW_NS, 0, EP_KIND_FREE_OBJ, 0x1000, -1, -64},
        {3 + EP_PAIR_SKEW_NS, 0, EP_KIND_FREE_OBJ, 0x1000, -1, -32},
    };
    assert_changes(events, sizeof events / sizeof *events);
}
END_TEST

START_TEST(a_free_that_was_lost_leaves_the_newer_block)
{
    const event events[] = {
        {1, 0, EP_KIND_MALLOC_OBJ, 0x1000, 64, 64},
        {2, 1, EP_KIND_MALLOC_OBJ, 0x1000, 32, 32},
        {3 + EP_PAIR_SKEW_NS, 0, EP_KIND_FREE_OBJ, 0x1000, -1, -32},    /* too late for the older one */
        {4 + EP_PAIR_SKEW_NS, 0, EP_KIND_MALLOC_OBJ, 0x2000, 8, 8},
        {5 + EP_PAIR_SKEW_NS, 0, EP_KIND_MALLOC_OBJ, 0x2000, 16, 16},
        {6 + EP_PAIR_SKEW_NS, 0, EP_KIND_FREE_OBJ, 0x2000, -1, -16},    /* of the same thread */
        {7 + EP_PAIR_SKEW_NS, 0, EP_KIND_FREE_OBJ, 0x2000, -1, 0},
    };
    assert_changes(events, sizeof events / sizeof *events);
}
END_TEST

/* ---- Traces ---------------------------------------------------------------------------------- */

START_TEST(a_trace_with_columns_is_read)
{
    setup();
    shape s = {3000, 4, 20, 300, 4, without_failures};
    ep_trace trace = {.decoded = make_trace(3, &s), .has_decoded = true};
    uint64_t wanted = 0, lost = 0;
    for (size_t i = 0; i < trace.decoded.thread_count; i++) {
        for (int kind = 0; kind < EP_KIND_COUNT; kind++) wanted += trace.decoded.threads[i].lost[kind];
    }
    gathered *all = gathered_new(ep_rows_most(&trace));

    ck_assert_int_eq(ep_rows_read(&all->rows, &trace, &lost, NULL), EP_OK);

    ck_assert_uint_gt(wanted, 0);
    ck_assert_uint_eq(lost, wanted);
    ck_assert_uint_eq(all->count, s.events);
    assert_as_paired(all, &trace.decoded, 0, 0);
    gathered_free(all);
    ep_decoded_clear(&trace.decoded);
}
END_TEST

START_TEST(what_take_fails_with_ends_the_reading)
{
    setup();
    ep_decoded made = make_trace(3, &small);
    gathered *all = gathered_new(small.events);
    all->batches_left = 2;
    random_stream stream = {
        .stream = {.next = random_next}, .columns = &made.columns, .most = 10, .random = 1};
    ep_fold_facts facts = {.thread_count = made.thread_count, .length_ns = made.duration_ns};
    ep_fold *fold = &all->rows.fold;

    ck_assert_int_eq(ep_fold_run(&stream.stream, &facts, &fold, 1, NULL), EP_NOMEM);

    ck_assert_uint_gt(all->count, 0);
    ck_assert_uint_lt(all->count, small.events);
    gathered_free(all);
    ep_decoded_clear(&made);
}
END_TEST

EP_TEST_MAIN("rows", rows_say_what_pairs_say, a_place_has_one_number,
             a_realloc_that_fails_brings_its_block_back,
             a_realloc_that_fails_gets_no_address_that_another_thread_has,
             a_free_that_was_logged_too_late_ends_the_older_block,
             a_free_that_was_lost_leaves_the_newer_block, a_trace_with_columns_is_read,
             what_take_fails_with_ends_the_reading)
