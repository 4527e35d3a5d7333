/* Log files: damage that is told, and failures of the system. */
#include "ep_files.h"

/* ---- Damage ---------------------------------------------------------------------------------- */

/* A file of one ring and some threads, in memory. Returns: a descriptor. */
static int
some_file(bool finished, uint64_t *events)
{
    const char *path = new_path();
    uint64_t random = 1;
    ep_recorder recorder;
    start(&recorder, path, 2, EP_ON_FULL_OVERWRITE);
    emit(&random, 200000);
    emit_on_threads(3, 2, 3, 1000);
    emit(&random, 1000);
    int copy = finished ? -1 : snapshot(path);
    ep_model_stop(&recorder);
    copy = finished ? snapshot(path) : copy;
    loaded l = load(path);
    *events = ep_model_total(&l.decoded);
    clear(&l);
    ep_recorder_clear(&recorder);
    unlink(path);
    return copy;
}

/* Opens, or is refused with a reason; never more events than there were. */
static void
assert_survived(int copy, uint64_t events)
{
    loaded l;
    ep_status status = try_load(dup(copy), &l);
    ck_assert(status == EP_OK || status == EP_FORMAT);
    if (status == EP_OK) {
        ep_model_columns(&l.decoded.columns);
        ck_assert_uint_le(l.decoded.columns.count, events);
        clear(&l);
    }
}

static uint64_t
size_of(int descriptor)
{
    struct stat stat;
    ck_assert_int_eq(fstat(descriptor, &stat), 0);
    return (uint64_t)stat.st_size;
}

static void
punch_hole(int descriptor, off_t at, off_t bytes)
{
#ifdef __linux__
    const int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    ck_assert_int_eq(fallocate(descriptor, mode, at, bytes), 0);
#else
    struct fpunchhole hole = {.fp_offset = at, .fp_length = bytes};
    ck_assert_int_eq(fcntl(descriptor, F_PUNCHHOLE, &hole), 0);
#endif
}

static ep_file_header
header_of(int descriptor)
{
    ep_file_header header;
    ck_assert_int_eq(pread(descriptor, &header, sizeof header, 0), sizeof header);
    return header;
}

START_TEST(a_cut_file_opens_as_far_as_it_is_whole)
{
    setup();
    for (int finished = 0; finished < 2; finished++) {
        uint64_t events, random = 1, size;
        int copy = some_file(finished, &events);
        size = size_of(copy);
        uint64_t last = UINT64_MAX;
        const uint64_t step = 64 * EP_CHUNK_BYTES_MIN;
        for (uint64_t steps = (size + step - 1) / step; steps-- > 0;) {
            uint64_t length = (steps + 1) * step < size ? (steps + 1) * step : size;
            ck_assert_int_eq(ftruncate(copy, (off_t)length), 0);
            loaded l;
            ck_assert_int_eq(try_load(dup(copy), &l), EP_OK);
            ck_assert_uint_le(ep_model_total(&l.decoded), last);
            ck_assert_uint_eq(l.facts.note_count > 0, length < size);
            last = ep_model_total(&l.decoded);
            clear(&l);
            for (size_t i = 0; i < ep_model_work(10); i++) {
                uint64_t at = steps * step + ep_model_below(&random, length - steps * step);
                ck_assert_int_eq(ftruncate(copy, (off_t)at), 0);
                assert_survived(copy, events);
            }
        }
        for (size_t at = 0; at <= sizeof(ep_file_header); at += 8) {
            ck_assert_int_eq(ftruncate(copy, (off_t)(sizeof(ep_file_header) - at)), 0);
            loaded l;
            ck_assert_int_eq(try_load(dup(copy), &l), at == 0 ? EP_OK : EP_FORMAT);
            if (at == 0) {
                clear(&l);
            }
        }
        close(copy);
    }
}
END_TEST

START_TEST(pages_that_were_lost_are_missing_and_said_so)
{
    setup();
    uint64_t events, random = 1;
    int copy = some_file(true, &events);
    uint64_t size = size_of(copy);
    for (size_t i = 0; i < ep_model_work(60); i++) {
        int holed = copy_of(copy);
        off_t at = (off_t)(ep_model_below(&random, size / 4096 - 1) * 4096 + 4096);
        punch_hole(holed, at, 4096);
        assert_survived(holed, events);
        close(holed);
    }
    close(copy);
}
END_TEST

START_TEST(bytes_that_were_changed_never_crash_the_reader)
{
    setup();
    uint64_t events, random = 1;
    for (int finished = 0; finished < 2; finished++) {
        int copy = some_file(finished, &events);
        uint64_t size = size_of(copy);
        for (uint64_t i = 0; i < ep_model_work(ep_model_is_short() ? 150 : 300); i++) {
            /* Mostly where the structure is: headers, first records, states. */
            uint64_t slot = ep_model_below(&random, size / EP_CHUNK_BYTES_MIN) * EP_CHUNK_BYTES_MIN;
            uint64_t at = ep_model_below(&random, 2) ? ep_model_below(&random, size)
                          : ep_model_below(&random, 4) == 0
                              ? header_of(copy).state_offset[0] + ep_model_below(&random, 2000)
                              : slot + ep_model_below(&random, 500);
            uint8_t before, after = (uint8_t)ep_model_random(&random);
            ck_assert_int_eq(pread(copy, &before, 1, (off_t)at), 1);
            ck_assert_int_eq(pwrite(copy, &after, 1, (off_t)at), 1);
            loaded l;
            ep_status status = try_load(dup(copy), &l);
            ck_assert(status == EP_OK || status == EP_FORMAT);
            if (status == EP_OK) {
                ep_model_columns(&l.decoded.columns);
                clear(&l);
            }
            ck_assert_int_eq(pwrite(copy, &before, 1, (off_t)at), 1);
        }
        close(copy);
    }
}
END_TEST

START_TEST(changed_records_of_a_sealed_chunk_are_told)
{
    setup();
    uint64_t events;
    int copy = some_file(true, &events);
    ep_chunk_header header;
    off_t slot = (off_t)header_of(copy).head_bytes;
    do {
        ck_assert_int_eq(pread(copy, &header, sizeof header, slot), sizeof header);
        slot += header.bytes;
    } while (header.magic != EP_CHUNK_MAGIC || atomic_load(&header.state) != EP_CHUNK_SEALED ||
             header.used_words < 1000);
    uint64_t word;
    slot += -(off_t)header.bytes + EP_CHUNK_HEADER_BYTES + 80 * 8;
    ck_assert_int_eq(pread(copy, &word, 8, slot), 8);
    word ^= 1;
    ck_assert_int_eq(pwrite(copy, &word, 8, slot), 8);

    loaded l;
    ck_assert_int_eq(try_load(copy, &l), EP_OK);

    ck_assert_uint_ge(l.facts.note_count, 1);
    ck_assert_ptr_nonnull(strstr(l.facts.notes[0], "offset"));
    ck_assert_uint_ge(l.decoded.damaged_chunks, 1);
    clear(&l);
}
END_TEST

START_TEST(what_is_no_log_is_refused)
{
    setup();
    static const char *const bytes[] = {"", "EVP", "EVPLOG\x1a\n", "not a log file at all",
                                        "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"};
    for (size_t i = 0; i < 5; i++) {
        int fd = ep_model_new_file();
        loaded l;
        ck_assert_int_eq(pwrite(fd, bytes[i], strlen(bytes[i]), 0), (ssize_t)strlen(bytes[i]));
        ck_assert_int_eq(try_load(fd, &l), EP_FORMAT);
    }
}
END_TEST

START_TEST(all_ones_and_random_bytes_are_survived)
{
    setup();
    uint64_t events, random = 1, block[512];
    int copy = some_file(true, &events);
    uint64_t size = size_of(copy);
    for (int ones = 0; ones < 2; ones++) {
        for (uint64_t from = 0; from < size; from += EP_CHUNK_BYTES / 2) {
            int fd = copy_of(copy);
            for (int i = 0; i < 8; i++) {
                for (size_t k = 0; k < 512; k++) {
                    block[k] = ones ? UINT64_MAX : ep_model_random(&random);
                }
                ck_assert_int_eq(pwrite(fd, block, 4096, (off_t)(from + (uint64_t)i * 4096)), 4096);
            }
            loaded l;
            if (try_load(fd, &l) == EP_OK) {
                ep_model_columns(&l.decoded.columns);
                clear(&l);
            }
        }
    }
    close(copy);
}
END_TEST

/* Writes a header with one change into a copy and loads it. */
#define LOAD_WITH(copy, field, value, out)                                          \
    ({                                                                              \
        int fd_ = copy_of(copy);                                                    \
        ep_file_header header_;                                                     \
        ck_assert_int_eq(pread(fd_, &header_, sizeof header_, 0), sizeof header_);  \
        header_.field = (value);                                                    \
        ck_assert_int_eq(pwrite(fd_, &header_, sizeof header_, 0), sizeof header_); \
        try_load(fd_, (out));                                                       \
    })

START_TEST(versions_and_sizes_that_lie)
{
    setup();
    uint64_t events;
    int copy = some_file(true, &events);
    loaded l;
    ck_assert_int_eq(LOAD_WITH(copy, major, EP_FILE_MAJOR + 1, &l), EP_FORMAT);
    ck_assert_int_eq(LOAD_WITH(copy, byte_order, 0x04030201, &l), EP_FORMAT);
    ck_assert_int_eq(LOAD_WITH(copy, header_bytes, 8, &l), EP_FORMAT);
    ck_assert_int_eq(LOAD_WITH(copy, slot_bytes, 4097, &l), EP_FORMAT);
    ck_assert_int_eq(LOAD_WITH(copy, metadata_bytes, UINT64_MAX, &l), EP_FORMAT);
    ck_assert_int_eq(LOAD_WITH(copy, phase, 77, &l), EP_FORMAT);
    ck_assert_int_eq(LOAD_WITH(copy, start.monotonic_ns, -1, &l), EP_FORMAT);
    ck_assert_int_eq(LOAD_WITH(copy, start.ticks, UINT64_MAX, &l), EP_FORMAT);
    ck_assert_int_eq(LOAD_WITH(copy, stop.ticks, 0, &l), EP_FORMAT);

    ck_assert_int_eq(LOAD_WITH(copy, minor, EP_FILE_MINOR + 7, &l), EP_OK);
    ck_assert_uint_eq(l.facts.minor, EP_FILE_MINOR + 7);
    ck_assert_uint_eq(ep_model_total(&l.decoded), events);
    clear(&l);
    ck_assert_int_eq(LOAD_WITH(copy, header_bytes, sizeof(ep_file_header) + 64, &l), EP_OK);
    ck_assert_uint_eq(ep_model_total(&l.decoded), events);
    clear(&l);
    close(copy);
}
END_TEST

START_TEST(the_refusal_of_another_version_names_it)
{
    setup();
    static const struct {
        uint16_t major, minor;
        const char *text;
    } refused[] = {
        {77, 1, "version 77.1 of the log format; this eventprof reads 2.2 and 3.0: use a newer one"},
        {2, 1, "version 2.1 of the log format; this eventprof reads 2.2 and 3.0"},
        {1, 4, "version 1.4 of the log format; this eventprof reads 2.2 and 3.0"},
    };
    uint64_t events;
    int file = some_file(true, &events);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        int copy = dup(file);
        uint16_t version[] = {refused[i].major, refused[i].minor};
        ck_assert_int_eq(pwrite(copy, version, 4, offsetof(ep_file_header, major)), 4);
        ep_file_reader *reader;
        ep_error error = {.text = ""};

        ck_assert_int_eq(ep_file_open(copy, &reader, &error), EP_FORMAT);

        ck_assert_str_eq(error.text, refused[i].text);
    }
    close(file);
}
END_TEST

/* A petabyte of nothing is no work, and no memory. */
START_TEST(a_file_that_claims_a_size_takes_neither_time_nor_memory)
{
    setup();
    uint64_t events;
    int copy = some_file(true, &events);
    ck_assert_int_eq(ftruncate(copy, (off_t)1 << 50), 0);
    loaded l;

    ck_assert_int_eq(try_load(copy, &l), EP_OK);

    ck_assert_uint_eq(ep_model_total(&l.decoded), events);
    clear(&l);
}
END_TEST

START_TEST(a_thread_only_the_header_or_the_state_knows)
{
    setup();
    uint64_t events;
    int copy = some_file(true, &events);
    loaded l;
    ck_assert_int_eq(LOAD_WITH(copy, only_thread, 12347, &l), EP_OK);
    ck_assert_uint_eq(l.decoded.columns.count, 0);
    clear(&l);
    /* Two threads, the second of which claims more than there is. */
    struct {
        ep_file_state state;
        ep_file_thread_state head[2];
        uint64_t more[8];
    } body = {.head = {{.thread_id = 12348}, {.thread_id = 12349, .count_count = 99}}};
    body.state = (ep_file_state){.dropped_sequence = UINT64_MAX,
                                 .thread_count = 2,
                                 .bytes = 96,
                                 .sum = ep_sum64(body.head, 96)};
    for (uint64_t which = 0; which < 2; which++) {
        off_t offset = (off_t)header_of(copy).state_offset[which];
        ck_assert_int_eq(pwrite(copy, &body, sizeof body, offset), sizeof body);
    }
    ck_assert_int_eq(try_load(copy, &l), EP_OK);
    ck_assert_uint_ge(l.facts.note_count, 1);
    clear(&l);
}
END_TEST

#ifdef EP_FAULT_POINTS

/* ---- Failure --------------------------------------------------------------------------------- */

/* Each request for memory or room fails once: the start fails and leaves nothing, or the recorder
 * goes on, and its file says as much as it does. */
START_TEST(what_fails_on_the_writing_side_fails_cleanly)
{
    setup();
    int failed_starts = 0, full = 0;
    /* First what the start asks for, each; then what is asked for while events are written. */
    for (long nth = 0; nth < 60; nth += nth < 20 ? 1 : (long)ep_model_stride(3)) {
        uint64_t random = 1;
        const char *path = new_path();
        char child_path[80];
        snprintf(child_path, sizeof child_path, "%s-%%p", path);
        ep_file_options file_options = {
            .path = path, .child_path = child_path, .metadata = "{}", .metadata_bytes = 2};
        ep_recorder_options options = {.kinds = EP_MODEL_ALL_KINDS,
                                       .limit_bytes = 2 * EP_CHUNK_BYTES,
                                       .on_full = nth % 2 ? EP_ON_FULL_OVERWRITE : EP_ON_FULL_GROW,
                                       .clock = EP_CLOCK_INJECTED};
        ep_recorder recorder;
        ep_file *file;
        ep_recorder_init(&recorder, &options);
        atomic_store(&ep_fault_countdown, nth);
        ep_status status = ep_file_create(&file_options, &file, NULL);
        if (status != EP_OK) {
            atomic_store(&ep_fault_countdown, -1);
            ck_assert_int_eq(access(path, F_OK), -1);
            failed_starts += 1;
            continue;
        }
        ep_recorder_set_file(&recorder, file);
        status = ep_recorder_start(&recorder, NULL);
        if (status == EP_OK) {
            emit(&random, 150000);
            emit_on_threads(1, 2, 1, 1000);
        }
        atomic_store(&ep_fault_countdown, -1);
        if (status == EP_OK) {
            emit(&random, 150000);
            ep_model_stop(&recorder);
            full += recorder.full_reason == EP_FULL_DISK;
            loaded l = load(path);
            ep_decoded memory = ep_model_decode(&recorder);
            if (l.facts.texts_lost == 0) {
                assert_same(&l.decoded, &memory);
            } else {
                assert_same_threads(&l.decoded, &memory);
            }
            ep_decoded_clear(&memory);
            clear(&l);
        } else {
            failed_starts += 1;
        }
        ep_recorder_clear(&recorder);
        unlink(path);
    }
    ck_assert_int_gt(failed_starts, 3);
    ck_assert_int_gt(full, 0);
}
END_TEST

START_TEST(a_disk_that_stays_full_is_said_so)
{
    setup();
    for (int policy = EP_ON_FULL_OVERWRITE; policy <= EP_ON_FULL_GROW; policy++) {
        uint64_t random = 1;
        const char *path = new_path();
        ep_recorder recorder;
        start(&recorder, path, 9, (ep_on_full)policy);
        emit(&random, 1000);
        struct rlimit limit, before;
        ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
        limit = (struct rlimit){6 << 20, before.rlim_max};
        signal(SIGXFSZ, SIG_IGN);
        ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
        emit(&random, 800000);
        ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
        loaded killed = load(path);
        ep_model_stop(&recorder);

        bool ring = policy == EP_ON_FULL_OVERWRITE;
        ck_assert_int_eq(recorder.full_reason, ring ? EP_FULL_NOT : EP_FULL_DISK);
        assert_same_as_file(&recorder, path);
        ck_assert_int_eq(killed.recording.full_reason, recorder.full_reason);
        loaded l = load(path);
        ck_assert_uint_eq(ep_model_total(&l.decoded), 801000);
        /* Full, the file of a killed program does not know what was lost since a chunk was sealed. */
        ck_assert_uint_le(ep_model_total(&killed.decoded), 801000);
        ck_assert_uint_ge(ep_model_total(&killed.decoded), ring ? 801000 : killed.decoded.columns.count);
        clear(&l);
        clear(&killed);
        ep_recorder_clear(&recorder);
        unlink(path);
    }
}
END_TEST

START_TEST(what_fails_on_the_reading_side_fails_cleanly)
{
    setup();
    uint64_t events;
    int copy = some_file(true, &events);
    bool reached = true;
    for (long nth = 0; reached && nth < 500; nth++) {
        loaded l;
        int fd = dup(copy);
        atomic_store(&ep_fault_countdown, nth);
        ep_status status = try_load(fd, &l);
        reached = atomic_load(&ep_fault_countdown) < 0;
        atomic_store(&ep_fault_countdown, -1);
        ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
        if (status == EP_OK) {
            ck_assert_uint_le(l.decoded.columns.count, events);
            clear(&l);
        } else {
            ck_assert_int_eq(status, EP_NOMEM);
        }
    }
    ck_assert(!reached);
    close(copy);
}
END_TEST

#endif

EP_TEST_MAIN("file_damage",
             a_cut_file_opens_as_far_as_it_is_whole,
             pages_that_were_lost_are_missing_and_said_so,
             bytes_that_were_changed_never_crash_the_reader,
             changed_records_of_a_sealed_chunk_are_told,
             what_is_no_log_is_refused,
             all_ones_and_random_bytes_are_survived,
             versions_and_sizes_that_lie,
             the_refusal_of_another_version_names_it,
             a_file_that_claims_a_size_takes_neither_time_nor_memory,
#ifdef EP_FAULT_POINTS
             what_fails_on_the_writing_side_fails_cleanly,
             a_disk_that_stays_full_is_said_so,
             what_fails_on_the_reading_side_fails_cleanly,
#endif
             a_thread_only_the_header_or_the_state_knows)
