/* log.h: writing records and reading them back. */
#include "ep_model.h"

/* A log that writes to a chunk of its own, from its first word on. The recorder keeps the chunk. */
static ep_recorder keeper;

static ep_log *
fresh_log(uint64_t ticks)
{
    ep_model_setup();
    ep_engine_first_bytes = EP_CHUNK_BYTES;    /* one chunk has room for a test */
    atomic_store(&ep_model_now, ticks);
    ep_model_start(&keeper, EP_MODEL_ALL_KINDS, 1000, EP_ON_FULL_GROW, EP_CLOCK_INJECTED);
    ep_log *log = ep_log_mine();
    ck_assert_ptr_nonnull(log);
    ep_log_next_chunk(log, ticks);
    ck_assert_ptr_nonnull(log->chunk);
    return log;
}

static void
end_log(void)
{
    ep_recorder_clear(&keeper);
}

static _Atomic uint64_t *
first_word(const ep_log *log)
{
    return (_Atomic uint64_t *)(log->chunk->header + 1);
}

static size_t
words_used(const ep_log *log)
{
    return (size_t)(log->next - first_word(log));
}

static ep_model_event
event_of(const ep_record *record)
{
    ep_family family = ep_kinds[record->kind].family;
    return (ep_model_event){
        .ticks = record->ticks,
        .kind = (uint8_t)record->kind,
        .id = record->id,
        .address = ep_model_is_among_blocks(record->kind) ? record->address : 0,
        .size = family == EP_FAMILY_ALLOC ? (int64_t)record->size : -1,
    };
}

static bool
same_event(const ep_model_event *a, const ep_model_event *b)
{
    return a->ticks == b->ticks && a->kind == b->kind && a->id == b->id &&
           a->address == b->address && a->size == b->size;
}

static void
assert_next_is(ep_cursor *cursor, const ep_model_event *event)
{
    ep_record record = {0};
    ck_assert(ep_cursor_next(cursor, &record));
    ep_model_event read = event_of(&record);
    ck_assert_uint_eq(read.ticks, event->ticks);
    ck_assert_uint_eq(read.kind, event->kind);
    ck_assert_uint_eq(read.id, event->id);
    ck_assert_uint_eq(read.address, event->address);
    ck_assert_int_eq(read.size, event->size);
}

static void
assert_ends(ep_cursor *cursor)
{
    ep_record record;
    ck_assert(!ep_cursor_next(cursor, &record));
    ck_assert(!cursor->damaged);
}

/* ---- The table of kinds ---------------------------------------------------------------------- */

START_TEST(kinds_of_an_operation_follow_the_domains)
{
    const int bases[] = {EP_KIND_MALLOC, EP_KIND_CALLOC, EP_KIND_REALLOC,
                         EP_KIND_REALLOC_FREE, EP_KIND_FREE, EP_KIND_REALLOC_FAILED};
    for (size_t i = 0; i < sizeof bases / sizeof bases[0]; i++) {
        for (int domain = 0; domain < EP_DOMAIN_COUNT; domain++) {
            ck_assert_uint_eq(ep_kinds[bases[i] + domain].domain, domain);
            ck_assert_str_eq(ep_kinds[bases[i] + domain].word, ep_kinds[bases[i]].word);
        }
    }
}
END_TEST

START_TEST(records_are_one_or_two_words)
{
    for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
        const ep_kind_info *info = &ep_kinds[kind];
        bool alone = info->family == EP_FAMILY_CALL || info->family == EP_FAMILY_POINT;
        int words = info->name == NULL ? 0 : alone ? 1
                                                   : 2;
        ck_assert_uint_eq(info->words, words);
    }
}
END_TEST

/* ---- Shapes ---------------------------------------------------------------------------------- */

START_TEST(a_call_is_the_word_that_types_h_shows)
{
    ep_log *log = fresh_log(UINT64_C(0x123456789));

    ep_log_put(log, UINT64_C(0x123456789), EP_KIND_CALL, 5);

    ck_assert_uint_eq(words_used(log), 1);
    ck_assert_uint_eq(atomic_load(first_word(log)), UINT64_C(0x2345678902000005));
    end_log();
}
END_TEST

START_TEST(every_kind_reads_back)
{
    ep_log *log = fresh_log(5000);
    ep_model_event events[EP_KIND_COUNT];
    size_t count = 0;
    for (int kind = 1; kind <= EP_KIND_DESTROY; kind++) {
        bool alloc = ep_kinds[kind].family == EP_FAMILY_ALLOC;
        bool two = ep_model_is_among_blocks((unsigned)kind);
        events[count] = (ep_model_event){.ticks = 5000 + (uint64_t)kind,
                                         .kind = (uint8_t)kind,
                                         .id = 12347 + (uint32_t)kind,
                                         .address = two ? 0x7f0012345678 : 0,
                                         .size = alloc ? 4711 : -1};
        ep_model_put(log, &events[count++]);
    }

    ep_cursor cursor = ep_cursor_begin(log->chunk->header);

    for (size_t i = 0; i < count; i++) {
        assert_next_is(&cursor, &events[i]);
    }
    assert_ends(&cursor);
    end_log();
}
END_TEST

START_TEST(every_size_address_and_site_reads_back)
{
    static const uint64_t sizes[] = {0,
                                     1,
                                     512,
                                     (UINT64_C(1) << 25) - 2,
                                     (UINT64_C(1) << 25) - 1,
                                     UINT64_C(1) << 25,
                                     UINT64_C(1) << 40,
                                     INT64_MAX};
    static const uint64_t addresses[] = {0,
                                         8,
                                         4097,
                                         0x7f0012345678,
                                         0x7f001234567c,
                                         (UINT64_C(1) << 47) - 8,
                                         UINT64_C(1) << 47,
                                         (UINT64_C(1) << 56) + 3,
                                         UINT64_MAX};
    static const uint32_t sites[] = {0, 1, (1 << 20) - 1, 1 << 20, (1 << 25) - 1};
    static const ep_kind kinds[] = {EP_KIND_MALLOC_RAW, EP_KIND_REALLOC_NUMPY, EP_KIND_FREE_OBJ,
                                    EP_KIND_REALLOC_FAILED_LIBC};
    ep_log *log = fresh_log(5000);
    ep_model_event events[sizeof sizes / 8 * (sizeof addresses / 8) * (sizeof sites / 4) * 4];
    size_t count = 0;
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++) {
        ep_kind kind = kinds[i % 4];
        bool alloc = ep_kinds[kind].family == EP_FAMILY_ALLOC;
        events[count] = (ep_model_event){.ticks = 6000 + i,
                                         .kind = (uint8_t)kind,
                                         .id = sites[i / 4 % 5],
                                         .address = addresses[i / 20 % 9],
                                         .size = alloc ? (int64_t)sizes[i / 180 % 8] : -1};
        ep_model_put(log, &events[count++]);
    }

    ep_cursor cursor = ep_cursor_begin(log->chunk->header);

    for (size_t i = 0; i < count; i++) {
        assert_next_is(&cursor, &events[i]);
    }
    assert_ends(&cursor);
    end_log();
}
END_TEST

START_TEST(what_fits_takes_two_words_and_what_does_not_two_more_each)
{
    static const struct {
        uint64_t size, address;
        uint32_t site;
        size_t words;
    } cases[] = {
        {EP_PAYLOAD_MAX - 1, EP_ALLOC_ADDRESS_LIMIT - 8, EP_ALLOC_SITE_MAX, 2},
        {EP_PAYLOAD_MAX, 4096, 1, 4},
        {100, 4097, 1, 4},
        {100, EP_ALLOC_ADDRESS_LIMIT, 1, 4},
        {100, 4096, EP_ALLOC_SITE_MAX + 1, 4},
        {EP_PAYLOAD_MAX, 4097, EP_ALLOC_SITE_MAX + 1, 8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ep_log *log = fresh_log(5000);

        ep_log_put_block(log, 5001, EP_KIND_MALLOC_RAW, cases[i].size, cases[i].address,
                         cases[i].site);

        ck_assert_uint_eq(words_used(log), cases[i].words);
        end_log();
    }
}
END_TEST

/* ---- The clock's high half ------------------------------------------------------------------- */

START_TEST(a_sync_is_written_only_where_the_high_half_changes)
{
    ep_log *log = fresh_log(UINT64_C(0x1FFFFFFF0));
    static const uint64_t ticks[] = {0x1FFFFFFF1, 0x1FFFFFFFF, 0x200000000, 0x200000001,
                                     0x2FFFFFFFF, 0x500000000, 0x7FFFFFFFFFFFFFFF};
    static const size_t words[] = {1, 1, 3, 1, 1, 3, 3};
    size_t before = 0;

    for (int i = 0; i < 7; i++) {
        ep_log_put(log, ticks[i], EP_KIND_CALL, 7);
        ck_assert_uint_eq(words_used(log) - before, words[i]);
        before = words_used(log);
    }

    ep_cursor cursor = ep_cursor_begin(log->chunk->header);
    for (int i = 0; i < 7; i++) {
        ep_model_event event = {.ticks = ticks[i], .kind = EP_KIND_CALL, .id = 7, .size = -1};
        assert_next_is(&cursor, &event);
    }
    assert_ends(&cursor);
    end_log();
}
END_TEST

START_TEST(ticks_that_go_back_over_the_border_read_back)
{
    ep_log *log = fresh_log(UINT64_C(0x1FFFFFFF0));
    static const uint64_t ticks[] = {0x200000000, 0x1FFFFFFFF, 0x200000001};
    for (int i = 0; i < 3; i++) {
        ep_log_put(log, ticks[i], EP_KIND_CALL, 7);
    }

    ep_cursor cursor = ep_cursor_begin(log->chunk->header);

    for (int i = 0; i < 3; i++) {
        ep_model_event event = {.ticks = ticks[i], .kind = EP_KIND_CALL, .id = 7, .size = -1};
        assert_next_is(&cursor, &event);
    }
    end_log();
}
END_TEST

/* ---- Streams --------------------------------------------------------------------------------- */

/* Until the log left its chunk; that chunk is then in `full`. Returns: how many went into it. */
static size_t
fill_chunk(ep_log *log, uint64_t *random, uint64_t *ticks, ep_model_event *events,
           const ep_chunk_header **full)
{
    const ep_chunk *chunk = log->chunk;
    *full = chunk->header;
    for (size_t count = 0;; count++) {
        *ticks += ep_model_below(random, 100) ? ep_model_below(random, 1000)
                                              : ep_model_below(random, UINT64_C(3) << 32);
        events[count] = ep_model_random_event(random, *ticks);
        ep_model_put(log, &events[count]);
        if (log->chunk != chunk) {
            return count;    /* the last one opened the next chunk */
        }
    }
}

START_TEST(random_streams_read_back)
{
    ep_model_event *events = ep_calloc(EP_CHUNK_WORDS + 1, sizeof *events);
    for (uint64_t seed = 1; seed <= 5; seed++) {
        uint64_t random = seed, ticks = 5000;
        ep_log *log = fresh_log(ticks);
        const ep_chunk_header *header;

        size_t count = fill_chunk(log, &random, &ticks, events, &header);

        ep_cursor cursor = ep_cursor_begin(header);
        ep_record record = {0};
        for (size_t i = 0; i < count; i++) {
            bool more = ep_cursor_next(&cursor, &record);
            ep_model_event read = event_of(&record);
            if (!more || !same_event(&read, &events[i])) {
                ck_abort_msg("event %zu of seed %d reads back differently", i, (int)seed);
            }
        }
        assert_ends(&cursor);
        cursor = ep_cursor_begin(log->chunk->header);
        assert_next_is(&cursor, &events[count]);
        assert_ends(&cursor);
        end_log();
    }
    free(events);
}
END_TEST

START_TEST(the_longest_put_fits_behind_the_last_place_for_a_record)
{
    for (int before_end = 1; before_end <= 12; before_end++) {
        ep_log *log = fresh_log(5000);
        const ep_chunk_header *header = log->chunk->header;
        while (log->next < log->end - before_end) {
            ep_log_put(log, 5001, EP_KIND_CALL, 3);
        }
        const ep_model_event longest = {.ticks = UINT64_C(0x500000000),
                                        .kind = EP_KIND_MALLOC_RAW,
                                        .size = INT64_C(1) << 40,
                                        .address = UINT64_MAX,
                                        .id = EP_PAYLOAD_MAX};

        ep_model_put(log, &longest);

        ck_assert_ptr_eq(log->chunk->header, header);
        ck_assert(log->next < first_word(log) + EP_CHUNK_WORDS);
        ck_assert_uint_eq(atomic_load(log->next), 0);
        ep_cursor cursor = ep_cursor_begin(header);
        ep_record record = {0};
        while (ep_cursor_next(&cursor, &record) && record.kind == EP_KIND_CALL) {
        }
        ep_model_event read = event_of(&record);
        ck_assert(same_event(&read, &longest));
        end_log();
    }
}
END_TEST

/* ---- Taking back ----------------------------------------------------------------------------- */

static const ep_model_event before_block = {.ticks = 5001, .kind = EP_KIND_CALL, .id = 12347, .size = -1};
static const ep_model_event after_block = {.ticks = 5009, .kind = EP_KIND_CALL, .id = 4711, .size = -1};

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

/* Reads from the start. Returns: how many whole, right events there were. */
static size_t
read_live(const live *l)
{
    ep_cursor cursor = ep_cursor_begin(l->header);
    ep_record record = {0};
    uint64_t least = atomic_load_explicit(&l->written, memory_order_acquire);
    size_t count = 0;
    while (ep_cursor_next(&cursor, &record)) {
        ep_model_event read = event_of(&record), event = live_event(count);
        if (record.kind == EP_KIND_MALLOC_RAW) {
            /* One that is about to be taken back: nothing may come behind it. */
            if (l->take_back != TAKES_BLOCKS_BACK || ep_cursor_next(&cursor, &record)) {
                ck_abort_msg("event %zu is a block that was taken back", count);
            }
            break;
        }
        if (record.kind == EP_KIND_THROW) {
            /* About to be taken back, from the last one on: only such may come behind. */
            while (ep_cursor_next(&cursor, &record)) {
                if (l->take_back != TAKES_CALLS_BACK || record.kind != EP_KIND_THROW) {
                    ck_abort_msg("event %zu is read behind a call that was taken back", count);
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
    ck_assert_uint_ge(count, least);
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
            size_t count = read_live(&l);
            ck_assert_uint_ge(count, last);
            last = count;
        }

        ck_assert_uint_eq(read_live(&l), l.count);
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

/* The same without luck: what the reader holds is taken back and overwritten under its hands. */
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

/* ---- Damage ---------------------------------------------------------------------------------- */

START_TEST(a_record_of_no_known_kind_ends_the_reading)
{
    static const uint64_t words[] = {
        EP_WORD0(5003, 0, 77),                    /* kind 0 */
        EP_WORD0(5003, EP_KIND_ESCAPE, EP_ESCAPE_COUNT),    /* an escape of nothing known */
        EP_WORD0(5003, EP_KIND_ESCAPE, 12347),
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        ep_log *log = fresh_log(5000);
        ep_model_put(log, &before_block);
        _Atomic uint64_t *at = log->next;
        ep_model_put(log, &after_block);
        ep_model_put(log, &after_block);
        atomic_store(at, words[i]);

        ep_cursor cursor = ep_cursor_begin(log->chunk->header);
        ep_record record = {0};

        assert_next_is(&cursor, &before_block);
        ck_assert(!ep_cursor_next(&cursor, &record));
        ck_assert(cursor.damaged);
        ck_assert_ptr_eq(cursor.at, at);
        end_log();
    }
}
END_TEST

START_TEST(nothing_is_read_behind_what_a_sealed_chunk_used)
{
    ep_log *log = fresh_log(5000);
    ep_chunk_header *header = log->chunk->header;
    ep_model_put(log, &before_block);
    ep_model_put(log, &after_block);
    ep_log_next_chunk(log, 5020);
    ck_assert_uint_eq(header->used_words, 2);

    header->used_words = 1;

    ep_cursor cursor = ep_cursor_begin(header);
    assert_next_is(&cursor, &before_block);
    assert_ends(&cursor);
    end_log();
}
END_TEST

START_TEST(a_length_that_cannot_be_is_not_believed)
{
    ep_log *log = fresh_log(5000);
    ep_chunk_header *header = log->chunk->header;
    ep_model_put(log, &before_block);
    ep_log_next_chunk(log, 5020);

    header->used_words = UINT64_MAX / 2;

    ep_cursor cursor = ep_cursor_begin(header);
    assert_next_is(&cursor, &before_block);
    assert_ends(&cursor);
    end_log();
}
END_TEST

START_TEST(a_chunk_of_random_words_is_read_without_harm)
{
    ep_log *log = fresh_log(5000);
    uint64_t random = 12347;
    ep_chunk_header *header = log->chunk->header;
    ep_log_next_chunk(log, 5001);
    uint64_t *words = (uint64_t *)(header + 1);
    for (int round = 0; round < 20; round++) {
        header->used_words = EP_CHUNK_WORDS;
        for (size_t i = 0; i < EP_CHUNK_WORDS; i++) {
            /* Kinds that exist, nearly always, so that the reading gets far. */
            uint64_t kind = ep_model_below(&random, 5000) ? 1 + ep_model_below(&random, 39)
                                                          : ep_model_below(&random, 64);
            words[i] = EP_WORD0(ep_model_random(&random), kind, ep_model_below(&random, 1 << 25));
        }

        ep_cursor cursor = ep_cursor_begin(header);
        ep_record record = {0};
        size_t count = 0;
        while (ep_cursor_next(&cursor, &record)) {
            count += 1;
        }

        ck_assert_uint_le(count, EP_CHUNK_WORDS);
        ck_assert(cursor.at <= (const _Atomic uint64_t *)(words + EP_CHUNK_WORDS));
    }
    end_log();
}
END_TEST

EP_TEST_MAIN("log",
             kinds_of_an_operation_follow_the_domains,
             records_are_one_or_two_words,
             a_call_is_the_word_that_types_h_shows,
             every_kind_reads_back,
             every_size_address_and_site_reads_back,
             what_fits_takes_two_words_and_what_does_not_two_more_each,
             a_sync_is_written_only_where_the_high_half_changes,
             ticks_that_go_back_over_the_border_read_back,
             random_streams_read_back,
             the_longest_put_fits_behind_the_last_place_for_a_record,
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
             a_reader_never_reads_on_behind_calls_that_are_taken_back,
             a_reader_that_stood_on_calls_taken_back_ends_there,
             nothing_is_left_behind_a_call_that_was_taken_back,
             a_reader_never_reads_on_behind_a_block_that_is_taken_back,
             a_reader_that_stood_on_a_block_taken_back_ends_there,
             a_record_of_no_known_kind_ends_the_reading,
             nothing_is_read_behind_what_a_sealed_chunk_used,
             a_length_that_cannot_be_is_not_believed,
             a_chunk_of_random_words_is_read_without_harm)
