/* log.h: blocks and calls that are taken back, and readers meanwhile. */
#include "ep_logs.h"

/* ---- Taking back ----------------------------------------------------------------------------- */

START_TEST(last_block_is_named_and_taken_back)
{
    ep_log *log = fresh_log(5000);
    ep_model_put(log, &before_block);
    ep_log_put_block(log, 5002, EP_KIND_MALLOC_MEM, 32, 0x7f0012345678, 99);

    uint64_t address = ep_log_last_block(log);
    ep_log_take_back(log);
    ep_model_put(log, &after_block);

    ck_assert_uint_eq(address, 0x7f0012345678);
    ep_cursor cursor = ep_cursor_begin(log->chunk->header);
    assert_next_is(&cursor, &before_block);
    assert_next_is(&cursor, &after_block);
    assert_ends(&cursor);
    end_log();
}
END_TEST

START_TEST(two_blocks_in_a_row_are_taken_back_and_no_third)
{
    ep_log *log = fresh_log(5000);
    ep_log_put_block(log, 5001, EP_KIND_MALLOC_MEM, 32, 2048, 99);
    ep_log_put_block(log, 5002, EP_KIND_MALLOC_MEM, 32, 4096, 99);
    ep_log_put_block(log, 5003, EP_KIND_MALLOC_MEM, 32, 8192, 99);

    ck_assert_uint_eq(ep_log_last_block(log), 8192);
    ep_log_take_back(log);
    ck_assert_uint_eq(ep_log_last_block(log), 4096);
    ep_log_take_back(log);

    ck_assert_uint_eq(ep_log_last_block(log), 0);
    end_log();
}
END_TEST

START_TEST(a_block_with_another_record_behind_it_is_not_taken_back)
{
    ep_log *log = fresh_log(5000);
    ep_log_put_block(log, 5001, EP_KIND_MALLOC_MEM, 32, 4096, 99);
    ep_model_put(log, &after_block);
    ep_log_put_block(log, 5010, EP_KIND_MALLOC_MEM, 32, 8192, 99);

    ep_log_take_back(log);

    ck_assert_uint_eq(ep_log_last_block(log), 0);
    end_log();
}
END_TEST

/* The reader holds the first of two blocks; both go, and others are written in their place. */
START_TEST(a_reader_between_two_blocks_taken_back_ends_there)
{
    ep_log *log = fresh_log(5000);
    ep_log_put_block(log, 5001, EP_KIND_MALLOC_MEM, 32, 4096, 99);
    ep_log_put_block(log, 5002, EP_KIND_MALLOC_MEM, 32, 8192, 99);
    ep_cursor cursor = ep_cursor_begin(log->chunk->header);
    ep_record record = {0};
    ck_assert(ep_cursor_next(&cursor, &record));

    ep_log_take_back(log);
    ep_log_take_back(log);
    ep_model_put(log, &after_block);
    ep_log_put_free(log, 5010, EP_KIND_FREE_OBJ, 5, EP_WORD0(5011, EP_KIND_CALL, 666));

    assert_ends(&cursor);
    end_log();
}
END_TEST

START_TEST(only_the_very_last_record_is_named)
{
    ep_log *log = fresh_log(5000);

    ck_assert_uint_eq(ep_log_last_block(log), 0);
    ep_log_put_block(log, 5002, EP_KIND_MALLOC_MEM, 32, 4096, 99);
    ep_log_put_free(log, 5003, EP_KIND_FREE_MEM, 99, 8192);
    ck_assert_uint_eq(ep_log_last_block(log), 0);
    ep_log_put_block(log, 5004, EP_KIND_MALLOC_MEM, 32, 4096, 99);
    ep_model_put(log, &after_block);

    ck_assert_uint_eq(ep_log_last_block(log), 0);
    end_log();
}
END_TEST

START_TEST(a_block_behind_a_sync_is_taken_back_and_the_sync_stays)
{
    ep_log *log = fresh_log(5000);
    ep_log_put_block(log, UINT64_C(0x300000001), EP_KIND_MALLOC_MEM, 32, 4096, 99);

    ck_assert_uint_eq(ep_log_last_block(log), 4096);
    ep_log_take_back(log);
    ep_model_event event = after_block;
    event.ticks = UINT64_C(0x300000002);
    ep_model_put(log, &event);

    ep_cursor cursor = ep_cursor_begin(log->chunk->header);
    assert_next_is(&cursor, &event);
    assert_ends(&cursor);
    end_log();
}
END_TEST

/* Taken back alone it would leave its escapes to the next block. */
START_TEST(a_block_with_escapes_is_not_taken_back)
{
    static const struct {
        uint64_t size, address;
        uint32_t site;
    } cases[] = {{EP_PAYLOAD_MAX, 4096, 1}, {32, 4097, 1}, {32, 4096, EP_ALLOC_SITE_MAX + 1}};
    for (int i = 0; i < 3; i++) {
        ep_log *log = fresh_log(5000);
        ep_log_put_block(log, 5002, EP_KIND_MALLOC_MEM, cases[i].size, cases[i].address,
                         cases[i].site);

        ck_assert_uint_eq(ep_log_last_block(log), 0);

        end_log();
    }
}
END_TEST

START_TEST(what_an_allocator_asked_for_says_so_and_the_next_does_not)
{
    enum {
        IN_OBJ = 1 << EP_DOMAIN_OBJ,
        IN_BOTH = IN_OBJ | 1 << EP_DOMAIN_RAW
    };
    ep_log *log = fresh_log(5000);
    ep_log_put_block_within(log, 5002, EP_KIND_MALLOC_RAW, EP_PAYLOAD_MAX, 4097, 99, IN_OBJ);
    ep_log_put_block(log, 5003, EP_KIND_MALLOC_OBJ, 32, 4096, 99);
    ep_log_put_free(log, 5004, EP_KIND_FREE_OBJ, 99, 4096);
    ep_log_put_free_within(log, 5005, EP_KIND_FREE_LIBC, 99, 4097, IN_BOTH);
    ep_log_put_free(log, 5006, EP_KIND_FREE_RAW, 99, 8192);
    static const struct {
        unsigned kind;
        uint64_t address, size, within;
    } expected[] = {
        {EP_KIND_MALLOC_RAW, 4097, EP_PAYLOAD_MAX, IN_OBJ},
        {EP_KIND_MALLOC_OBJ, 4096, 32, 0},
        {EP_KIND_FREE_OBJ, 4096, 0, 0},
        {EP_KIND_FREE_LIBC, 4097, 0, IN_BOTH},
        {EP_KIND_FREE_RAW, 8192, 0, 0},
    };

    ep_cursor cursor = ep_cursor_begin(log->chunk->header);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        ep_record record = {.within = 77};
        ck_assert(ep_cursor_next(&cursor, &record));
        ck_assert_uint_eq(record.kind, expected[i].kind);
        ck_assert_uint_eq(record.address, expected[i].address);
        ck_assert_uint_eq(record.size, expected[i].size);
        ck_assert_uint_eq(record.within, expected[i].within);
        ck_assert_uint_eq(record.id, 99);
    }
    assert_ends(&cursor);
    ck_assert_uint_eq(ep_log_last_block(log), 0);
    end_log();
}
END_TEST

START_TEST(what_is_within_is_for_those_who_have_nothing_around_it)
{
    const uint64_t raw = ep_kinds_of_domains(1 << EP_DOMAIN_RAW);
    const uint64_t obj_malloc = EP_KIND_BIT(EP_KIND_MALLOC_OBJ);
    ep_record within = {.kind = EP_KIND_FREE_RAW, .within = 1 << EP_DOMAIN_OBJ};
    ep_record alone = {.kind = EP_KIND_FREE_RAW};

    ck_assert(ep_record_is_for(&within, raw));
    ck_assert(!ep_record_is_for(&within, raw | obj_malloc));
    ck_assert(!ep_record_is_for(&within, obj_malloc));
    ck_assert(ep_record_is_for(&alone, raw | obj_malloc));
    ck_assert_uint_eq(raw, EP_KIND_BIT(EP_KIND_MALLOC_RAW) | EP_KIND_BIT(EP_KIND_CALLOC_RAW) |
                               EP_KIND_BIT(EP_KIND_REALLOC_RAW) | EP_KIND_BIT(EP_KIND_FREE_RAW) |
                               EP_KIND_BIT(EP_KIND_REALLOC_FREE_RAW) |
                               EP_KIND_BIT(EP_KIND_REALLOC_FAILED_RAW));
}
END_TEST

START_TEST(a_block_of_the_chunk_before_is_not_taken_back)
{
    ep_log *log = fresh_log(5000);
    ep_log_put_block(log, 5002, EP_KIND_MALLOC_MEM, 32, 4096, 99);

    ep_log_next_chunk(log, 5003);

    ck_assert_uint_eq(ep_log_last_block(log), 0);
    end_log();
}
END_TEST

/* ---- Reading while the owner writes ---------------------------------------------------------- */

/* What the owner of a chunk writes there again and again: event i, with everything in it derived
 * from i. Every third one is preceded by a block, or by calls within each other, that are taken
 * back. */
typedef enum taken_back {
    TAKES_NOTHING_BACK,
    TAKES_BLOCKS_BACK,
    TAKES_CALLS_BACK
} taken_back;

typedef struct live {
    const ep_chunk_header *header;
    size_t count;
    _Atomic bool started, done;
    _Atomic uint64_t written;
    taken_back take_back;
} live;

static ep_model_event
live_event(uint64_t i)
{
    static const uint8_t kinds[] = {EP_KIND_CALL, EP_KIND_FREE_OBJ, EP_KIND_MALLOC_OBJ,
                                    EP_KIND_RETURN};
    ep_model_event event = {
        .ticks = 10000 + i, .kind = kinds[i % 4], .id = (uint32_t)(i % 9973), .size = -1};
    if (i % 4 == 1 || i % 4 == 2) {
        /* As word 0 this would be a record, too: with a tick, a kind and a payload. */
        event.address = EP_WORD0(10000 + i, EP_KIND_C_CALL, i % 9973) >> 20 << 3;
    }
    if (i % 4 == 2) {
        event.size = (int64_t)(i % 1021);
    }
    return event;
}

static void *
write_live(void *argument)
{
    live *l = argument;
    ep_log *log = ep_log_mine();
    ep_log_next_chunk(log, 9999);
    l->header = log->chunk->header;
    atomic_store(&l->started, true);
    for (uint64_t i = 0; i < l->count; i++) {
        ep_model_event event = live_event(i);
        if (l->take_back == TAKES_BLOCKS_BACK && i % 3 == 0) {
            ep_log_put_block(log, event.ticks, EP_KIND_MALLOC_RAW, 32, 0x5555550, 77);
            ep_log_take_back(log);
        }
        if (l->take_back == TAKES_CALLS_BACK && i % 3 == 0) {
            int depth = 1 + (int)(i % 4);
            for (int j = 0; j < depth; j++) ep_log_put(log, event.ticks, EP_KIND_THROW, 77);
            for (int j = 0; j < depth; j++) ep_log_take_back_call(log);
        }
        ep_model_put(log, &event);
        atomic_store_explicit(&l->written, i + 1, memory_order_release);
    }
    atomic_store(&l->done, true);
    return NULL;
}

/* Room for the words of a chunk, and two more. */
static uint64_t copied[EP_CHUNK_BYTES / sizeof(uint64_t) + 2];

/* A cursor that reads a copy of what the given one would read. */
static ep_cursor
copy_of(ep_cursor cursor)
{
    ep_cursor over = cursor;
    size_t words = ep_cursor_copy(&cursor, copied);
    over.at = (const _Atomic uint64_t *)copied;
    over.limit = over.at + words;
    over.may_change = false;
    return over;
}

/* Reads from the start. Returns: how many whole, right events there were. */
static size_t
read_live(const live *l, bool by_copy)
{
    uint64_t written_before = atomic_load_explicit(&l->written, memory_order_acquire);
    ep_cursor cursor = ep_cursor_begin(l->header);
    ep_record record = {0};
    cursor = by_copy ? copy_of(cursor) : cursor;
    size_t count = 0;
    while (ep_cursor_next(&cursor, &record)) {
        ep_model_event read = event_of(&record), event = live_event(count);
        if (record.kind == EP_KIND_MALLOC_RAW) {
            /* One that is about to be taken back: nothing may come after it. */
            if (l->take_back != TAKES_BLOCKS_BACK || ep_cursor_next(&cursor, &record)) {
                ck_abort_msg("event %zu is a block that was taken back", count);
            }
            break;
        }
        if (record.kind == EP_KIND_THROW) {
            /* About to be taken back, from the last one on: only such may come after. */
            while (ep_cursor_next(&cursor, &record)) {
                if (l->take_back != TAKES_CALLS_BACK || record.kind != EP_KIND_THROW) {
                    ck_abort_msg("event %zu is read after a call that was taken back", count);
                }
            }
            break;
        }
        if (!same_event(&read, &event)) {
            ck_abort_msg("event %zu was not read as it was written", count);
        }
        count += 1;
    }
    ck_assert(!cursor.damaged);
    ck_assert_uint_ge(count, written_before);
    return count;
}

static void
read_while_written(taken_back take_back)
{
    (void)fresh_log(5000);
    for (int round = 0; round < 40; round++) {
        live l = {.count = ep_model_work(50000), .take_back = take_back};
        pthread_t writer = ep_model_spawn(write_live, &l);
        while (!atomic_load(&l.started)) {
            sched_yield();
        }

        size_t last = 0;
        while (!atomic_load(&l.done)) {
            size_t count = read_live(&l, round % 2 == 1);
            ck_assert_uint_ge(count, last);
            last = count;
        }

        ck_assert_uint_eq(read_live(&l, false), l.count);
        ck_assert_uint_eq(read_live(&l, true), l.count);
        ep_model_join(writer);
    }
    end_log();
}

START_TEST(a_reader_sees_a_prefix_of_whole_records)
{
    read_while_written(TAKES_NOTHING_BACK);
}
END_TEST

START_TEST(a_reader_never_reads_on_behind_a_block_that_is_taken_back)
{
    read_while_written(TAKES_BLOCKS_BACK);
}
END_TEST

START_TEST(a_reader_never_reads_on_behind_calls_that_are_taken_back)
{
    read_while_written(TAKES_CALLS_BACK);
}
END_TEST

/* The reader holds the inner of two calls; both go, and a record of two words takes their place,
 * whose second word looks like a record. */
START_TEST(a_reader_that_stood_on_calls_taken_back_ends_there)
{
    for (int held = 1; held <= 3; held++) {
        ep_log *log = fresh_log(5000);
        ep_model_put(log, &before_block);
        ep_log_put(log, 5002, EP_KIND_CALL, 99);
        ep_log_put(log, 5003, EP_KIND_C_CALL, 98);
        ep_cursor cursor = ep_cursor_begin(log->chunk->header);
        ep_record record = {0};
        for (int i = 0; i < held; i++) ck_assert(ep_cursor_next(&cursor, &record));

        ep_log_take_back_call(log);
        ep_log_take_back_call(log);
        ep_log_put_free(log, 5010, EP_KIND_FREE_OBJ, 5, EP_WORD0(5011, EP_KIND_CALL, 666));
        ep_model_put(log, &after_block);

        if (held == 1) {
            ck_assert(ep_cursor_next(&cursor, &record));
            ck_assert_uint_eq(record.kind, EP_KIND_FREE_OBJ);
            assert_next_is(&cursor, &after_block);
        }
        assert_ends(&cursor);
        ep_cursor anew = ep_cursor_begin(log->chunk->header);
        assert_next_is(&anew, &before_block);
        ck_assert(ep_cursor_next(&anew, &record));
        ck_assert_uint_eq(record.address, EP_WORD0(5011, EP_KIND_CALL, 666));
        assert_next_is(&anew, &after_block);
        assert_ends(&anew);
        end_log();
    }
}
END_TEST

/* As after a crash: the words alone say where the log ends. */
START_TEST(nothing_is_left_behind_a_call_that_was_taken_back)
{
    ep_log *log = fresh_log(5000);
    ep_model_put(log, &before_block);
    ep_log_put(log, 5002, EP_KIND_CALL, 99);
    ep_log_put(log, 5003, EP_KIND_CALL, 98);

    ep_log_take_back_call(log);
    ep_log_take_back_call(log);

    ep_cursor cursor = ep_cursor_begin(log->chunk->header);
    assert_next_is(&cursor, &before_block);
    assert_ends(&cursor);
    ck_assert_uint_eq(words_used(log), 1);
    end_log();
}
END_TEST

/* What the reader holds is taken back and overwritten under its hands, each time. */
START_TEST(a_reader_that_stood_on_a_block_taken_back_ends_there)
{
    ep_log *log = fresh_log(5000);
    ep_model_put(log, &before_block);
    ep_log_put_block(log, 5002, EP_KIND_MALLOC_MEM, 32, 4096, 99);
    ep_cursor cursor = ep_cursor_begin(log->chunk->header);
    ep_record record = {0};
    ck_assert(ep_cursor_next(&cursor, &record));
    ck_assert(ep_cursor_next(&cursor, &record));

    ep_log_take_back(log);
    ep_model_put(log, &after_block);
    ep_log_put_free(log, 5010, EP_KIND_FREE_OBJ, 5, EP_WORD0(5011, EP_KIND_CALL, 666));

    assert_ends(&cursor);
    end_log();
}
END_TEST

/* A change of the clock's high half, escapes, a value that looks like a record. */
START_TEST(a_copy_has_the_records_and_ends_where_the_log_does)
{
    ep_log *log = fresh_log(5000);
    ep_model_put(log, &before_block);
    ep_log_put_block(log, 5002, EP_KIND_MALLOC_MEM, EP_PAYLOAD_MAX, 4097, EP_ALLOC_SITE_MAX + 1);
    ep_log_put_free(log, 5003, EP_KIND_FREE_OBJ, 5, EP_WORD0(5011, EP_KIND_CALL, 666));
    ep_log_put(log, UINT64_C(7) << 32, EP_KIND_CALL, 99);
    ep_log_put_block(log, UINT64_C(8) << 32, EP_KIND_MALLOC_MEM, 32, 4096, 99);
    ep_log_take_back(log);

    ep_cursor cursor = ep_cursor_begin(log->chunk->header), copy = copy_of(cursor);

    ep_record a = {0}, b = {0};
    size_t count = 0;
    for (; ep_cursor_next(&cursor, &a); count++) {
        ck_assert(ep_cursor_next(&copy, &b));
        ep_model_event event = event_of(&a), same = event_of(&b);
        ck_assert(same_event(&event, &same));
    }
    ck_assert_uint_eq(count, 4);
    assert_ends(&copy);
    end_log();
}
END_TEST

/* The copy holds the first of two blocks; both go, and others are written in their place. */
START_TEST(a_copy_between_two_blocks_taken_back_ends_there)
{
    ep_log *log = fresh_log(5000);
    ep_log_put_block(log, 5001, EP_KIND_MALLOC_MEM, 32, 4096, 99);
    ep_log_put_block(log, 5002, EP_KIND_MALLOC_MEM, 32, 8192, 99);
    ep_cursor cursor = ep_cursor_begin(log->chunk->header);
    const _Atomic uint64_t *const limit = cursor.limit;
    cursor.limit = cursor.at + 2;
    ck_assert_uint_eq(ep_cursor_copy(&cursor, copied), 2);
    cursor.limit = limit;

    ep_log_take_back(log);
    ep_log_take_back(log);
    ep_model_put(log, &after_block);
    ep_log_put_free(log, 5010, EP_KIND_FREE_OBJ, 5, EP_WORD0(5011, EP_KIND_CALL, 666));

    ck_assert_uint_eq(ep_cursor_copy(&cursor, copied), 0);
    end_log();
}
END_TEST

/* What is there last may be removed: after it nothing is read. */
START_TEST(a_copy_ends_behind_the_record_that_was_the_last)
{
    ep_log *log = fresh_log(5000);
    ep_log_put_block(log, 5001, EP_KIND_MALLOC_MEM, 32, 4096, 99);
    ep_cursor cursor = ep_cursor_begin(log->chunk->header);
    ck_assert_uint_eq(ep_cursor_copy(&cursor, copied), 2);

    ep_model_put(log, &after_block);

    ck_assert_uint_eq(ep_cursor_copy(&cursor, copied), 0);
    end_log();
}
END_TEST

/* They may be of a lane of the thread. */
START_TEST(a_copy_goes_on_with_the_records_of_another_thread)
{
    ep_log *log = fresh_log(5000);
    ep_model_put(log, &before_block);
    ep_cursor cursor = ep_cursor_begin(log->chunk->header);
    const uint64_t own = cursor.thread_id;
    const uint64_t threads[] = {own, own + 1};
    for (int i = 0; i < 2; i++) {
        atomic_store_explicit(&log->next[1], threads[i], memory_order_relaxed);
        ep_log_publish(log->next, 2, EP_WORD0(5002, EP_KIND_THREAD, 0));
        log->next += 2;
        ep_model_put(log, &after_block);
    }

    ep_cursor copy = copy_of(cursor);

    assert_next_is(&copy, &before_block);
    assert_next_is(&copy, &after_block);
    ck_assert_uint_eq(copy.thread_id, own);
    assert_next_is(&copy, &after_block);
    assert_ends(&copy);
    ck_assert_uint_eq(copy.thread_id, own + 1);
    end_log();
}
END_TEST

EP_TEST_MAIN("log_taken_back",
             a_copy_has_the_records_and_ends_where_the_log_does,
             a_copy_between_two_blocks_taken_back_ends_there,
             a_copy_ends_behind_the_record_that_was_the_last,
             a_copy_goes_on_with_the_records_of_another_thread,
             last_block_is_named_and_taken_back,
             two_blocks_in_a_row_are_taken_back_and_no_third,
             a_block_with_another_record_behind_it_is_not_taken_back,
             a_reader_between_two_blocks_taken_back_ends_there,
             only_the_very_last_record_is_named,
             a_block_behind_a_sync_is_taken_back_and_the_sync_stays,
             a_block_with_escapes_is_not_taken_back,
             what_an_allocator_asked_for_says_so_and_the_next_does_not,
             what_is_within_is_for_those_who_have_nothing_around_it,
             a_block_of_the_chunk_before_is_not_taken_back,
             a_reader_sees_a_prefix_of_whole_records,
             a_reader_never_reads_on_behind_a_block_that_is_taken_back,
             a_reader_never_reads_on_behind_calls_that_are_taken_back,
             a_reader_that_stood_on_calls_taken_back_ends_there,
             nothing_is_left_behind_a_call_that_was_taken_back,
             a_reader_that_stood_on_a_block_taken_back_ends_there)
