/* Archives: the identity of saving and opening, and files that were kept. */
#include "ep_archives.h"

/* ---- Identity -------------------------------------------------------------------------------- */

START_TEST(save_and_open_is_the_identity)
{
    setup();
    const shape shapes[] = {
        small,
        {1, 1, 1, 1, 1, EP_MODEL_ALL_KINDS},
        {30000, 1, 100, 150, 0, EP_MODEL_CALL_KINDS},
        {30000, 1, 100, 150, 0, EP_MODEL_ALL_KINDS},
        {30000, 7, 1, 60000, 1, EP_MODEL_ALL_KINDS},
        {30000, 40, 10, 0, 20, EP_MODEL_ALL_KINDS},
        {2 * EP_SECTION_ROWS + 3, 3, 1000, 400, 50, EP_MODEL_ALL_KINDS},
        {EP_SECTION_ROWS, 2, 1000, 400, 50, EP_MODEL_ALL_KINDS & ~EP_MODEL_CALL_KINDS},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        ep_decoded trace = make_trace(4711 + i, &shapes[i]);

        ep_archive *archive = open_file(save(&trace));
        ep_decoded read = load(archive);

        const ep_archive_info *info = ep_archive_get_info(archive);
        ck_assert_str_eq(info->damage, "");
        ck_assert_uint_eq(info->events, trace.columns.count);
        ck_assert_uint_eq(info->events_written, trace.columns.count);
        assert_same_trace(&trace, &read);
        ep_decoded_clear(&read);
        ep_decoded_clear(&trace);
        ep_archive_close(archive);
    }
}
END_TEST

START_TEST(what_is_known_of_the_recording_comes_back)
{
    setup();
    ep_decoded trace = make_trace(1, &small);

    ep_archive *archive = open_file(save(&trace));

    const ep_recording *read = ep_archive_recording(archive), *saved = &some_recording;
    ck_assert_uint_eq(read->kinds, saved->kinds);
    ck_assert_uint_eq(read->start.ticks, saved->start.ticks);
    ck_assert_int_eq(read->start.monotonic_ns, saved->start.monotonic_ns);
    ck_assert_int_eq(read->start_realtime_ns, saved->start_realtime_ns);
    ck_assert_int_eq(read->start_boottime_ns, saved->start_boottime_ns);
    ck_assert_mem_eq(&read->frequency_hz, &saved->frequency_hz, sizeof read->frequency_hz);
    ck_assert_uint_eq(read->step_ticks, saved->step_ticks);
    ck_assert_uint_eq(read->process_id, saved->process_id);
    ck_assert_int_eq(read->full_reason, saved->full_reason);
    ck_assert_uint_eq(read->filtered, saved->filtered);
    ck_assert_int_eq(read->unfinished, saved->unfinished);
    ck_assert_str_eq(read->metadata, saved->metadata);
    ck_assert_uint_eq(read->metadata_bytes, saved->metadata_bytes);
    ck_assert_str_eq(ep_archive_get_info(archive)->writer, EP_VERSION);
    ep_archive_close(archive);
    ep_decoded_clear(&trace);
}
END_TEST

START_TEST(a_trace_of_nothing_is_an_archive)
{
    setup();
    ep_recording recording = {0};
    ep_decoded nothing = {0};
    int fd = ep_model_new_file();

    ck_assert_int_eq(ep_archive_write(fd, &recording, &nothing, NULL), EP_OK);

    ep_archive *archive = open_file(fd);
    ep_decoded read = load(archive);
    ck_assert_uint_eq(read.columns.count, 0);
    ck_assert_uint_eq(read.thread_count, 0);
    ck_assert_ptr_null(ep_archive_recording(archive)->metadata);
    ck_assert_str_eq(ep_archive_get_info(archive)->damage, "");
    ep_decoded_clear(&read);
    ep_archive_close(archive);
}
END_TEST

START_TEST(events_are_loaded_once)
{
    setup();
    ep_decoded trace = make_trace(1, &small);
    ep_archive *archive = open_file(save(&trace));
    ep_decoded read = load(archive), again;

    ck_assert_int_eq(ep_archive_load(archive, &again, NULL), EP_STATE);

    ep_decoded_clear(&read);
    ep_decoded_clear(&trace);
    ep_archive_close(archive);
}
END_TEST

START_TEST(sizes_that_pairing_filled_in_are_not_saved)
{
    setup();
    ep_decoded trace = make_trace(1, &small);
    ep_decoded paired = make_trace(1, &small);
    for (size_t i = 0; i < paired.columns.alloc_count; i++) {
        paired.columns.size[i] = paired.columns.size[i] < 0 ? 12347 : paired.columns.size[i];
    }

    ep_archive *archive = open_file(save(&paired));
    ep_decoded read = load(archive);

    assert_same_trace(&trace, &read);
    ep_decoded_clear(&read);
    ep_decoded_clear(&trace);
    ep_decoded_clear(&paired);
    ep_archive_close(archive);
}
END_TEST

/* ---- Versions -------------------------------------------------------------------------------- */

START_TEST(a_newer_major_is_refused_by_name)
{
    setup();
    ep_decoded trace = make_trace(1, &small);
    uint8_t *bytes;
    size_t count = read_file(save(&trace), &bytes);
    ep_store_le(&bytes[12], EP_ARCHIVE_MAJOR + 1, 2);
    memcpy(&bytes[16], "7.8.9\0", 6);
    ep_store_le(&bytes[60], ep_crc32(0, bytes, 60), 4);
    ep_archive *archive;
    ep_error error = {.text = ""};

    int fd = file_of(bytes, count);
    ck_assert_int_eq(ep_archive_open(fd, &archive, &error), EP_UNSUPPORTED);

    ck_assert_ptr_nonnull(strstr(error.text, "use eventprof 7.8.9 or later"));
    close(fd);
    free(bytes);
    ep_decoded_clear(&trace);
}
END_TEST

START_TEST(an_older_version_is_refused_by_name)
{
    setup();
    ep_decoded trace = make_trace(1, &small);
    uint8_t *bytes;
    size_t count = read_file(save(&trace), &bytes);
    ep_store_le(&bytes[14], EP_ARCHIVE_MINOR - 1, 2);
    ep_store_le(&bytes[60], ep_crc32(0, bytes, 60), 4);
    ep_archive *archive;
    ep_error error = {.text = ""};

    int fd = file_of(bytes, count);
    ck_assert_int_eq(ep_archive_open(fd, &archive, &error), EP_UNSUPPORTED);

    ck_assert_ptr_nonnull(strstr(error.text, "it has format 1.3"));
    ck_assert_ptr_nonnull(strstr(error.text, "reads format 1.4"));
    close(fd);
    free(bytes);
    ep_decoded_clear(&trace);
}
END_TEST

/* A newer minor version: more sections, of types that we do not know, and a longer recording. */
static void
rename_resident(uint8_t *header, ep_section *section, uint64_t value)
{
    if (section->type == EP_SECTION_RESIDENT) {
        ep_section changed = *section;
        changed.type = (uint32_t)value;
        ep_section_pack(&changed, header);
    }
}

START_TEST(sections_of_unknown_types_are_skipped)
{
    setup();
    ep_decoded trace = make_trace(1, &small);
    uint8_t *bytes;
    size_t count = read_file(save(&trace), &bytes);
    ep_store_le(&bytes[14], EP_ARCHIVE_MINOR + 1, 2);
    ep_store_le(&bytes[60], ep_crc32(0, bytes, 60), 4);
    each_section(bytes, rename_resident, 99);

    ep_archive *archive = open_file(file_of(bytes, count - EP_TRAILER_BYTES));
    ep_decoded read = load(archive);

    ck_assert_uint_eq(read.columns.count, trace.columns.count);
    ck_assert_uint_eq(read.resident_count, 0);
    free(bytes);
    ep_decoded_clear(&read);
    ep_decoded_clear(&trace);
    ep_archive_close(archive);
}
END_TEST

START_TEST(what_is_no_archive_is_said_to_be_none)
{
    static const struct {
        const char *bytes;
        size_t count;
        const char *says;
    } files[] = {
        {"", 0, "empty"},
        {"PK\3\4 something else that is long enough for a header, or so one would like to think", 80,
         "not an archive of eventprof"},
        {"EVP", 3, "within its header"},
        {"EVPARCH\r\n\x89\r\n\x1a 4567890123456789012345678901234567890123456789012345", 64,
         "transfer it again"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        int fd = file_of((const uint8_t *)files[i].bytes, files[i].count);
        ep_archive *archive;
        ep_error error = {.text = ""};

        ck_assert_int_eq(ep_archive_open(fd, &archive, &error), EP_FORMAT);

        ck_assert_msg(strstr(error.text, files[i].says) != NULL, "%s", error.text);
        close(fd);
    }
}
END_TEST

START_TEST(a_directory_is_an_error_of_the_system)
{
    int fd = open("/tmp", O_RDONLY | O_DIRECTORY);
    ep_archive *archive;
    ep_error error = {.text = ""};

    ck_assert_int_eq(ep_archive_open(fd, &archive, &error), EP_IO);

    ck_assert_int_eq(errno, EISDIR);
    close(fd);
}
END_TEST

START_TEST(a_file_that_shrinks_after_opening_is_damage)
{
    setup();
    ep_decoded trace = make_trace(1, &small);
    int fd = save(&trace);
    ep_archive *archive;
    ck_assert_int_eq(ep_archive_open(fd, &archive, NULL), EP_OK);
    ck_assert_int_eq(ftruncate(fd, 100), 0);

    ep_decoded read = load(archive);

    ck_assert_uint_eq(read.columns.count, 0);
    ck_assert_uint_eq(read.damaged_chunks, 1);
    ck_assert_ptr_nonnull(strstr(ep_archive_get_info(archive)->damage, "the file ends within it"));
    ep_decoded_clear(&read);
    ep_decoded_clear(&trace);
    ep_archive_close(archive);
    close(fd);
}
END_TEST

/* ---- The oldest files ------------------------------------------------------------------------ */

static uint32_t
digest(const ep_columns *c)
{
    uint32_t crc = ep_crc32(0, c->time_ns, c->count * sizeof *c->time_ns);
    crc = ep_crc32(crc, c->kind, c->count * sizeof *c->kind);
    crc = ep_crc32(crc, c->thread, c->count * sizeof *c->thread);
    crc = ep_crc32(crc, c->alloc_row, c->alloc_count * sizeof *c->alloc_row);
    crc = ep_crc32(crc, c->address, c->alloc_count * sizeof *c->address);
    crc = ep_crc32(crc, c->size, c->alloc_count * sizeof *c->size);
    for (size_t row = 0; row < c->count; row++) {
        /* Ids are the process's: what they stand for is the file's. */
        unsigned kind = c->kind[row];
        bool name = ep_kinds[kind].form == EP_FORM_CALL &&
                    ep_kinds[kind].pairing == EP_PAIRING_CLOSES;
        int32_t line = name ? ep_name_get(c->id[row])->line : ep_site_get(c->id[row])->line;
        crc = ep_crc32(crc, &line, sizeof line);
    }
    return crc;
}

/* Written by the format and codec in the name, and kept for ever. A build with that codec makes
 * today's in the directory EP_ARCHIVE_CORPUS_WRITE. */
START_TEST(files_that_were_kept_open)
{
    setup();
    static const struct {
        const char *name, *codec;
        size_t events, blocks, threads;
        int64_t duration_ns;
        uint32_t digest;
    } files[] = {
        {"archive-1.4-zstd.epr", "zstd", 1000, 304, 6, 1533891, 0x09E08A22},
        {"archive-1.4-zlib.epr", "zlib", 1000, 283, 6, 162110, 0x2575DBBC},
        {"archive-1.4-raw.epr", "raw", 1000, 270, 6, 844939, 0xA2F1E235},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const char *write_to = getenv("EP_ARCHIVE_CORPUS_WRITE");
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", write_to != NULL ? write_to : EP_TEST_DATA,
                 files[i].name);
        if (write_to != NULL && strcmp(files[i].codec, ep_codec_names[ep_codec_best()]) == 0) {
            const shape made = {1000, 6, 100, 300, 9, EP_MODEL_ALL_KINDS};
            ep_decoded trace = make_trace(2026 + i, &made);
            int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
            ck_assert_int_eq(ep_archive_write(fd, &some_recording, &trace, NULL), EP_OK);
            close(fd);
            ep_decoded_clear(&trace);
        }
        int fd = open(path, O_RDONLY);
        ck_assert_msg(fd >= 0, "%s", path);
        ep_archive *archive;
        ep_error error = {.text = ""};
        ep_status status = ep_archive_open(fd, &archive, &error);
        close(fd);
        if (status == EP_UNSUPPORTED) {    /* this build lacks the codec */
            ck_assert_msg(strstr(error.text, files[i].codec) != NULL, "%s", error.text);
            continue;
        }
        ck_assert_msg(status == EP_OK, "%s: %s", path, error.text);
        ep_decoded read = load(archive);
        const ep_archive_info *info = ep_archive_get_info(archive);
        ck_assert_str_eq(info->codec, files[i].codec);
        ck_assert_str_eq(info->damage, "");
        ck_assert_msg(read.columns.count == files[i].events &&
                          read.columns.alloc_count == files[i].blocks &&
                          read.thread_count == files[i].threads &&
                          read.duration_ns == files[i].duration_ns &&
                          digest(&read.columns) == files[i].digest,
                      "%s: %zu, %zu, %zu, %lld, 0x%08X", path, read.columns.count,
                      read.columns.alloc_count, read.thread_count, (long long)read.duration_ns,
                      digest(&read.columns));
        ep_decoded_clear(&read);
        ep_archive_close(archive);
    }
}
END_TEST

START_TEST(checksums_are_those_of_zlib)
{
    ck_assert_uint_eq(ep_crc32(0, "123456789", 9), 0xCBF43926);
    ck_assert_uint_eq(ep_crc32(ep_crc32(0, "12345", 5), "6789", 4), 0xCBF43926);
    ck_assert_uint_eq(ep_crc32(0, "", 0), 0);
}
END_TEST

EP_TEST_MAIN("archive",
             save_and_open_is_the_identity,
             what_is_known_of_the_recording_comes_back,
             a_trace_of_nothing_is_an_archive,
             events_are_loaded_once,
             sizes_that_pairing_filled_in_are_not_saved,
             a_newer_major_is_refused_by_name,
             an_older_version_is_refused_by_name,
             sections_of_unknown_types_are_skipped,
             what_is_no_archive_is_said_to_be_none,
             a_directory_is_an_error_of_the_system,
             a_file_that_shrinks_after_opening_is_damage,
             files_that_were_kept_open,
             checksums_are_those_of_zlib)
