/* log.h: what is put is what is read. */
#include "ep_logs.h"

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
        bool alone = info->form == EP_FORM_CALL || info->form == EP_FORM_POINT;
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
        bool alloc = ep_kinds[kind].form == EP_FORM_ALLOC;
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
        bool alloc = ep_kinds[kind].form == EP_FORM_ALLOC;
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
             a_record_of_no_known_kind_ends_the_reading,
             nothing_is_read_behind_what_a_sealed_chunk_used,
             a_length_that_cannot_be_is_not_believed,
             a_chunk_of_random_words_is_read_without_harm)
