/* merge.h: rows of several traces on one time line, against a plain reading of it. */
#include "ep_check.h"

#include <stdio.h>
#include <string.h>

#include "memory.h"
#include "merge.h"

#define ROWS_MAX 400

static uint64_t seed = 1;

static uint64_t
draw(uint64_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (seed >> 33) % below;
}

static ep_columns
columns_new(size_t rows)
{
    ep_columns c = {0};
    c.time_ns = calloc(rows, sizeof *c.time_ns);
    c.kind = calloc(rows, 1);
    c.thread = calloc(rows, sizeof *c.thread);
    c.id = calloc(rows, sizeof *c.id);
    c.alloc_row = calloc(rows, sizeof *c.alloc_row);
    c.address = calloc(rows, sizeof *c.address);
    c.size = calloc(rows, sizeof *c.size);
    return c;
}

/* A trace of random rows with ids that tell the rows apart. */
static ep_decoded
random_trace(uint32_t number, ep_thread *threads)
{
    ep_decoded trace = {.thread_count = 1 + draw(3)};
    ep_columns *c = &trace.columns;
    size_t rows = draw(ROWS_MAX);
    *c = columns_new(ROWS_MAX);
    int64_t time = 0;
    for (size_t row = 0; row < rows; row++) {
        time += (int64_t)draw(4);
        bool is_block = draw(2);
        c->time_ns[row] = time;
        c->kind[row] = is_block ? EP_KIND_MALLOC_OBJ : EP_KIND_CALL;
        c->thread[row] = (int32_t)draw(trace.thread_count);
        c->id[row] = number << 16 | (uint32_t)row;
        if (is_block) {
            c->alloc_row[c->alloc_count] = row;
            c->address[c->alloc_count] = 0x1000 + 16 * draw(50);
            c->size[c->alloc_count++] = (int64_t)draw(1000);
        }
    }
    c->count = rows;
    trace.duration_ns = time + 5;
    trace.threads = calloc(trace.thread_count, sizeof *trace.threads);
    for (size_t i = 0; i < trace.thread_count; i++) {
        ep_trace_thread *thread = &trace.threads[i];
        thread->thread = i == 0 ? NULL : &threads[i];
        thread->lost[EP_KIND_CALL] = draw(9);
        thread->open.depth = draw(3);
        thread->open.calls = calloc(3, sizeof *thread->open.calls);
        thread->open.calls[0].site_id = number * 100 + (uint32_t)i;
    }
    trace.resident_ns = calloc(4, sizeof *trace.resident_ns);
    trace.resident_bytes = calloc(4, sizeof *trace.resident_bytes);
    trace.resident_own = calloc(4, sizeof *trace.resident_own);
    trace.resident_count = draw(4);
    for (size_t i = 0; i < trace.resident_count; i++) {
        trace.resident_ns[i] = (int64_t)i * 100;
        trace.resident_bytes[i] = (int64_t)(draw(100) + 1);
        trace.resident_own[i] = draw(8) == 0 ? 0 : trace.resident_bytes[i] / 2 + 1;    /* 0: unknown */
    }
    return trace;
}

/* Gives columns in pieces of random length, from the same buffer each time. */
typedef struct pieces {
    ep_merge_feed feed;
    const ep_columns *columns;
    ep_columns piece;
    size_t row, block;
} pieces;

static ep_status
more_of(ep_merge_feed *feed, const ep_columns **out)
{
    pieces *self = (pieces *)feed;
    const ep_columns *c = self->columns;
    ep_columns *to = &self->piece;
    size_t left = c->count - self->row, rows = 1 + draw(50);
    to->count = to->alloc_count = 0;
    for (rows = rows < left ? rows : left; rows > 0; rows--, self->row++) {
        if (self->block < c->alloc_count && c->alloc_row[self->block] == self->row) {
            to->alloc_row[to->alloc_count] = to->count;
            to->address[to->alloc_count] = c->address[self->block];
            to->size[to->alloc_count++] = c->size[self->block++];
        }
        to->time_ns[to->count] = c->time_ns[self->row];
        to->kind[to->count] = c->kind[self->row];
        to->thread[to->count] = c->thread[self->row];
        to->id[to->count++] = c->id[self->row];
    }
    *out = to;
    return EP_OK;
}

/* The whole, of pieces of the parts, and in pieces. */
static ep_status
merge(const ep_merge_part *parts, size_t count, ep_decoded *out)
{
    pieces feeders[8];
    ep_merge_feed *feeds[8];
    for (size_t i = 0; i < count; i++) {
        feeders[i] = (pieces){.feed = {more_of}, .columns = &parts[i].decoded->columns};
        feeders[i].piece = columns_new(60);
        feeds[i] = &feeders[i].feed;
    }
    ep_merger *merger = NULL;
    ep_decoded merged = {0};
    ep_status status = ep_merge_heads(parts, count, &merged);
    status = status != EP_OK ? status : ep_merger_open(parts, feeds, count, &merger);
    ep_columns *c = &merged.columns;
    if (status == EP_OK) {
        *c = columns_new(8 * ROWS_MAX);
        for (size_t before = SIZE_MAX; status == EP_OK && c->count != before;) {
            before = c->count;
            status = ep_merger_next(merger, c, c->count + 1 + draw(100));
        }
        *out = merged;
    } else {
        ep_decoded_clear(&merged);
    }
    ep_merger_close(merger);
    for (size_t i = 0; i < count; i++) ep_columns_clear(&feeders[i].piece);
    return status;
}

/* Every row of every part, found in the result by its id, with what belongs to it. */
static void
check_rows(const ep_merge_part *parts, size_t count, const ep_decoded *merged)
{
    size_t next[8] = {0}, next_block[8] = {0}, block = 0;
    int32_t first_thread[8] = {0};
    for (size_t i = 1; i < count; i++) {
        first_thread[i] = first_thread[i - 1] + (int32_t)parts[i - 1].decoded->thread_count;
    }
    const ep_columns *m = &merged->columns;
    for (size_t row = 0; row < m->count; row++) {
        size_t part = m->id[row] >> 16;
        const ep_columns *c = &parts[part].decoded->columns;
        size_t from = next[part]++;
        ck_assert_uint_eq(m->id[row] & 0xFFFF, from);
        ck_assert_int_eq(m->time_ns[row], c->time_ns[from] + parts[part].offset_ns);
        ck_assert_uint_eq(m->kind[row], c->kind[from]);
        ck_assert_int_eq(m->thread[row], c->thread[from] + first_thread[part]);
        if (row > 0) {
            ck_assert_int_ge(m->time_ns[row], m->time_ns[row - 1]);
        }
        if (c->kind[from] == EP_KIND_MALLOC_OBJ) {
            size_t from_block = next_block[part]++;
            ck_assert_uint_eq(m->alloc_row[block], row);
            ck_assert_uint_eq(m->address[block], c->address[from_block] | (uint64_t)part << 48);
            ck_assert_int_eq(m->size[block], c->size[from_block]);
            block += 1;
        }
    }
    for (size_t i = 0; i < count; i++) {
        ck_assert_uint_eq(next[i], parts[i].decoded->columns.count);
    }
    ck_assert_uint_eq(block, m->alloc_count);
}

static void
check_threads(const ep_merge_part *parts, size_t count, const ep_decoded *merged)
{
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < parts[i].decoded->thread_count; k++, at++) {
            const ep_trace_thread *from = &parts[i].decoded->threads[k], *to = &merged->threads[at];
            ck_assert_uint_eq(to->lost[EP_KIND_CALL], from->lost[EP_KIND_CALL]);
            ck_assert_uint_eq(to->open.depth, from->open.depth);
            for (size_t d = 0; d < from->open.depth; d++) {
                ck_assert_uint_eq(to->open.calls[d].site_id, from->open.calls[d].site_id);
            }
            char want[96];
            snprintf(want, sizeof want, "%d %s%s%s", (int)parts[i].process_id, parts[i].worker,
                     parts[i].worker[0] != 0 ? " " : "",
                     from->thread == NULL ? "?" : from->thread->name);
            ck_assert_str_eq(to->thread->name, want);
        }
    }
    ck_assert_uint_eq(at, merged->thread_count);
}

/* Each sum is that of the last samples of the processes that have not ended. */
static void
check_resident(const ep_merge_part *parts, size_t count, const ep_decoded *merged)
{
    for (size_t at = 0; at < merged->resident_count; at++) {
        int64_t now = merged->resident_ns[at], sum = 0, own = 0;
        bool known = true;
        if (at + 1 < merged->resident_count && merged->resident_ns[at + 1] <= now) {
            ck_assert_int_eq(merged->resident_ns[at + 1], now);
            continue;
        }
        for (size_t i = 0; i < count; i++) {
            const ep_decoded *part = parts[i].decoded;
            size_t last = part->resident_count;
            int64_t end = part->duration_ns;
            if (last > 0 && part->resident_ns[last - 1] > end) {
                end = part->resident_ns[last - 1];
            }
            while (last > 0 && part->resident_ns[last - 1] + parts[i].offset_ns > now) {
                last -= 1;
            }
            if (last > 0 && (end + parts[i].offset_ns > now ||
                             end + parts[i].offset_ns >= merged->duration_ns)) {
                sum += part->resident_bytes[last - 1];
                own += part->resident_own[last - 1];
                known = known && part->resident_own[last - 1] != 0;
            }
        }
        ck_assert_int_eq(merged->resident_bytes[at], sum);
        ck_assert_int_eq(merged->resident_own[at], known ? own : 0);
    }
}

START_TEST(all_rows_come_in_order_and_know_where_they_are_from)
{
    static ep_thread threads[4];
    for (int i = 1; i < 4; i++) {
        snprintf(threads[i].name, sizeof threads[i].name, "T%d", i);
        atomic_store(&threads[i].named, true);
    }
    for (int attempt = 0; attempt < 200; attempt++) {
        ep_decoded traces[8];
        ep_merge_part parts[8];
        size_t count = 1 + draw(8);
        int64_t longest = 0;
        for (size_t i = 0; i < count; i++) {
            traces[i] = random_trace((uint32_t)i, threads);
            parts[i] = (ep_merge_part){&traces[i], (int64_t)draw(300), 100 + i, i % 2 ? "worker" : ""};
            int64_t end = traces[i].duration_ns + parts[i].offset_ns;
            longest = end > longest ? end : longest;
        }
        ep_decoded merged;
        ck_assert_int_eq(merge(parts, count, &merged), EP_OK);

        check_rows(parts, count, &merged);
        check_threads(parts, count, &merged);
        ck_assert_int_eq(merged.duration_ns, longest);
        check_resident(parts, count, &merged);
        ep_decoded_clear(&merged);
        for (size_t i = 0; i < count; i++) {
            ep_decoded_clear(&traces[i]);
        }
    }
}
END_TEST

START_TEST(long_names_are_cut_between_characters)
{
    static ep_thread threads[4];
    for (int i = 1; i < 4; i++) {
        snprintf(threads[i].name, sizeof threads[i].name, "0123456789012345678\xc3\xa9"
                                                          "after");
        atomic_store(&threads[i].named, true);
    }
    ep_decoded trace = random_trace(0, threads), merged;
    ep_merge_part part = {&trace, 0, UINT64_MAX, "the pool's worker 1\xc3\xa9"};
    ck_assert_int_eq(merge(&part, 1, &merged), EP_OK);

    for (size_t i = 0; i < merged.thread_count; i++) {
        bool has_name = trace.threads[i].thread != NULL;
        ck_assert_str_eq(merged.threads[i].thread->name,
                         has_name ? "18446744073709551615 the pool's worker 1 0123456789012345678"
                                  : "18446744073709551615 the pool's worker 1 ?");
    }
    ep_decoded_clear(&merged);
    ep_decoded_clear(&trace);
}
END_TEST

START_TEST(too_many_parts_are_refused)
{
    ep_decoded merged;
    ck_assert_int_eq(ep_merge_heads(NULL, EP_MERGE_PARTS_MAX + 1, &merged), EP_ARGUMENT);
}
END_TEST

#ifdef EP_FAULT_POINTS
START_TEST(without_memory_nothing_is_left)
{
    static ep_thread threads[4];
    ep_decoded traces[2] = {random_trace(0, threads), random_trace(1, threads)};
    ep_merge_part parts[2] = {{&traces[0], 0, 1, ""}, {&traces[1], 7, 2, ""}};
    int failed = 0;
    for (long n = 0;; n++) {
        ep_decoded merged;
        atomic_store(&ep_fault_countdown, n);
        ep_status status = merge(parts, 2, &merged);
        atomic_store(&ep_fault_countdown, -1);
        if (status == EP_OK) {
            ep_decoded_clear(&merged);
            break;
        }
        ck_assert_int_eq(status, EP_NOMEM);
        failed += 1;
    }
    ck_assert_int_gt(failed, 5);
    ep_decoded_clear(&traces[0]);
    ep_decoded_clear(&traces[1]);
}
END_TEST
#endif

EP_TEST_MAIN("merge",
#ifdef EP_FAULT_POINTS
             without_memory_nothing_is_left,
#endif
             all_rows_come_in_order_and_know_where_they_are_from, long_names_are_cut_between_characters,
             too_many_parts_are_refused)
