/* Archives: damage, impossible claims, and writing that fails. */
#include "ep_archives.h"

/* ---- Damage ---------------------------------------------------------------------------------- */

/* What pair.c and summary.c rely on. */
static void
assert_is_sound(const ep_decoded *d)
{
    const ep_columns *c = &d->columns;
    ep_model_columns(c);
    int64_t sum = 0;
    for (size_t row = 0; row < c->count; row++) {
        bool name = ep_kinds[c->kind[row]].form == EP_FORM_CALL &&
                    ep_kinds[c->kind[row]].pairing == EP_PAIRING_CLOSES;
        ck_assert_ptr_nonnull(ep_kinds[c->kind[row]].name);
        ck_assert_int_ne(ep_kinds[c->kind[row]].form, EP_FORM_CONTROL);
        ck_assert_uint_lt((size_t)c->thread[row], d->thread_count);
        ck_assert_uint_lt(c->id[row], name ? ep_name_count() : ep_site_count());
        ck_assert(c->time_ns[row] >= 0 && c->time_ns[row] <= d->duration_ns);
    }
    for (size_t i = 0; i < c->alloc_count; i++) {
        unsigned kind = c->kind[c->alloc_row[i]];
        if (ep_kinds[kind].form != EP_FORM_ALLOC) {
            ck_assert_int_eq(c->size[i], -1);
        } else {
            ck_assert_int_ge(c->size[i], 0);
            if (ep_kinds[kind].pairing == EP_PAIRING_OPENS) {
                ck_assert_int_le(c->size[i], INT64_MAX - sum);
                sum += c->size[i];
            }
        }
    }
}

/* Opens what may be damaged. Returns: whether that is said. */
static bool
open_damaged(const uint8_t *bytes, size_t count)
{
    int fd = file_of(bytes, count);
    ep_archive *archive;
    ep_error error = {.text = ""};
    ep_status status = ep_archive_open(fd, &archive, &error);
    close(fd);
    if (status != EP_OK) {
        ck_assert_msg(status == EP_FORMAT || status == EP_UNSUPPORTED, "status %d", (int)status);
        ck_assert_str_ne(error.text, "");
        return true;
    }
    ep_decoded read;
    status = ep_archive_load(archive, &read, &error);
    bool reported = status != EP_OK;
    if (status == EP_OK) {
        const ep_archive_info *info = ep_archive_get_info(archive);
        assert_is_sound(&read);
        reported = info->damaged > 0;
        ck_assert_int_eq(reported, info->damage[0] != 0);
        ck_assert_int_eq(reported, read.damaged_chunks > 0);
        ep_decoded_clear(&read);
    } else {
        ck_assert_msg(status == EP_UNSUPPORTED, "status %d", (int)status);
    }
    ep_archive_close(archive);
    return reported;
}

START_TEST(a_truncated_file_opens_as_far_as_it_goes_and_says_so)
{
    setup();
    ep_decoded trace = make_trace(1, &small);
    uint8_t *bytes;
    size_t count = read_file(save(&trace), &bytes);

    for (size_t length = 0; length < count; length += ep_model_stride(3)) {
        ck_assert_msg(open_damaged(bytes, length), "length %zu", length);
    }

    ck_assert(!open_damaged(bytes, count));
    free(bytes);
    ep_decoded_clear(&trace);
}
END_TEST

START_TEST(no_flipped_byte_goes_unseen)
{
    setup();
    ep_decoded trace = make_trace(1, &small);
    uint8_t *bytes;
    size_t count = read_file(save(&trace), &bytes);

    for (size_t at = 0; at < count; at += ep_model_stride(3)) {
        uint8_t flip = (uint8_t)(1 + at * 37 % 255);
        bytes[at] ^= flip;
        ck_assert_msg(open_damaged(bytes, count), "byte %zu", at);
        bytes[at] ^= flip;
    }

    free(bytes);
    ep_decoded_clear(&trace);
}
END_TEST

/* A damaged section costs that section: its events count as lost. */
static void
damage_second_section(uint8_t *header, ep_section *section, uint64_t value)
{
    static int seen;
    (void)value;
    if (section->type == EP_SECTION_EVENTS && ++seen == 2) {
        header[EP_SECTION_HEADER_BYTES + 100] ^= 1;
    }
}

START_TEST(a_damaged_section_is_left_out_and_counted_as_lost)
{
    setup();
    const shape long_one = {3 * EP_SECTION_ROWS, 3, 1000, 400, 50, EP_MODEL_ALL_KINDS};
    ep_decoded trace = make_trace(1, &long_one);
    uint8_t *bytes;
    size_t count = read_file(save(&trace), &bytes);
    each_section(bytes, damage_second_section, 0);

    ep_archive *archive = open_file(file_of(bytes, count));
    ep_decoded read = load(archive);

    const ep_archive_info *info = ep_archive_get_info(archive);
    ck_assert_ptr_nonnull(strstr(info->damage, "events section 2 at offset "));
    ck_assert_uint_eq(read.columns.count, 2 * EP_SECTION_ROWS);
    ck_assert_uint_eq(read.damaged_chunks, 1);
    assert_is_sound(&read);
    for (size_t i = 0; i < read.thread_count; i++) {
        for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
            ck_assert_uint_eq(read.threads[i].recorded[kind] + read.threads[i].lost[kind],
                              trace.threads[i].recorded[kind] + trace.threads[i].lost[kind]);
        }
    }
    free(bytes);
    ep_decoded_clear(&read);
    ep_decoded_clear(&trace);
    ep_archive_close(archive);
}
END_TEST

/* ---- Claims that are whole by their checksums and still not possible ------------------------- */

enum {
    CLAIM_RAW,
    CLAIM_ITEMS,
    CLAIM_BLOCKS,
    CLAIM_STORED,
    CLAIM_CODEC,
    CLAIM_TYPE,
    CLAIM_COUNT
};

static void
claim(uint8_t *header, ep_section *section, uint64_t value)
{
    static const uint64_t values[] = {0, 1, 7, UINT64_C(1) << 20, UINT64_C(60) << 20,
                                      UINT64_C(1) << 40, INT64_MAX, UINT64_MAX - 47, UINT64_MAX};
    ep_section changed = *section;
    uint64_t target = value / (CLAIM_COUNT * 9), to = values[value % 9];
    if (section->type != target) {
        return;
    }
    switch (value / 9 % CLAIM_COUNT) {
        case CLAIM_RAW:    changed.raw_bytes = to; break;
        case CLAIM_ITEMS:  changed.items = to; break;
        case CLAIM_BLOCKS: changed.blocks = to; break;
        case CLAIM_STORED: changed.stored_bytes = to; break;
        case CLAIM_CODEC:  changed.codec = (uint8_t)to; break;
        default:           changed.type = (uint32_t)to; break;
    }
    ep_section_pack(&changed, header);
}

START_TEST(impossible_claims_of_headers_do_no_harm)
{
    setup();
    ep_decoded trace = make_trace(1, &small);
    uint8_t *bytes, *changed;
    size_t count = read_file(save(&trace), &bytes);
    changed = ep_calloc(count, 1);

    for (uint64_t value = 0; value < EP_SECTION_TYPE_COUNT * CLAIM_COUNT * 9;
         value += ep_model_stride(2)) {
        memcpy(changed, bytes, count);
        each_section(changed, claim, value);
        open_damaged(changed, count);                       /* the index says otherwise */
        open_damaged(changed, count - EP_TRAILER_BYTES);    /* there is no index */
    }

    free(changed);
    free(bytes);
    ep_decoded_clear(&trace);
}
END_TEST

typedef struct edit {
    ep_section_type type;
    uint64_t random;
} edit;

/* Rewrites a file, with one section's content changed and all checksums right. Returns: bytes. */
static size_t
rewrite(const uint8_t *from, uint8_t *to, edit *e)
{
    ep_section section = {.offset = EP_ARCHIVE_HEADER_BYTES};
    ep_packer packer = {0};
    size_t at = EP_ARCHIVE_HEADER_BYTES;
    memcpy(to, from, at);
    for (;;) {
        ck_assert(ep_section_unpack(from + section.offset, &section));
        if (section.type == EP_SECTION_INDEX) {
            break;
        }
        const uint8_t *stored = from + section.offset + EP_SECTION_HEADER_BYTES;
        uint8_t *raw = to + at + EP_SECTION_HEADER_BYTES;
        ck_assert_int_eq(ep_unpack(&packer, section.codec, stored, section.stored_bytes, raw,
                                   section.raw_bytes),
                         EP_OK);
        ep_section changed = section;
        for (int i = 0; i < 2 && section.type == e->type && section.raw_bytes > 0; i++) {
            uint64_t where = ep_model_below(&e->random, section.raw_bytes);
            static const uint8_t telling[] = {0, 1, 2, 63, 127, 128, 191, 192, 254, 255};
            raw[where] = telling[ep_model_below(&e->random, sizeof telling)];
        }
        changed.codec = EP_CODEC_RAW;
        changed.stored_bytes = section.raw_bytes;
        changed.crc = ep_crc32(0, raw, section.raw_bytes);
        ep_section_pack(&changed, to + at);
        at += EP_SECTION_HEADER_BYTES + section.raw_bytes;
        section.offset += EP_SECTION_HEADER_BYTES + section.stored_bytes;
    }
    ep_packer_clear(&packer);
    return at;
}

START_TEST(nonsense_behind_right_checksums_does_no_harm)
{
    setup();
    ep_decoded trace = make_trace(1, &small);
    uint8_t *bytes;
    size_t count = read_file(save(&trace), &bytes);
    uint8_t *changed = ep_calloc(count, 20);
    size_t rounds = ep_model_work(1500);

    for (int type = EP_SECTION_RECORDING; type < EP_SECTION_INDEX; type++) {
        edit e = {(ep_section_type)type, (uint64_t)type * 12347};
        for (size_t i = 0; i < rounds; i++) {
            open_damaged(changed, rewrite(bytes, changed, &e));
        }
    }

    free(changed);
    free(bytes);
    ep_decoded_clear(&trace);
}
END_TEST

/* ---- Writing that fails ---------------------------------------------------------------------- */

START_TEST(a_full_disk_is_an_error_of_the_system)
{
    setup();
    ep_decoded trace = make_trace(1, &small);
    int fd = open("/dev/full", O_WRONLY);
    ck_assert_int_ge(fd, 0);
    ep_error error = {.text = ""};

    errno = 0;
    ck_assert_int_eq(ep_archive_write(fd, &some_recording, &trace, &error), EP_IO);

    ck_assert_int_eq(errno, ENOSPC);
    ck_assert_str_eq(error.text, strerror(ENOSPC));
    close(fd);
    ep_decoded_clear(&trace);
}
END_TEST

#ifdef EP_FAULT_POINTS

START_TEST(without_memory_saving_and_opening_fail_and_work_again)
{
    setup();
    ep_decoded trace = make_trace(1, &small);
    int failures = 0;

    for (int nth = 0;; nth++) {
        int fd = ep_model_new_file();
        ep_archive *archive = NULL;
        ep_decoded read;
        atomic_store(&ep_fault_countdown, nth);
        ep_status status = ep_archive_write(fd, &some_recording, &trace, NULL);
        status = status != EP_OK ? status : ep_archive_open(fd, &archive, NULL);
        status = status != EP_OK ? status : ep_archive_load(archive, &read, NULL);
        bool reached = atomic_load(&ep_fault_countdown) < 0;
        atomic_store(&ep_fault_countdown, -1);

        ck_assert_int_eq(status, reached ? EP_NOMEM : EP_OK);
        if (archive != NULL && status != EP_OK) {
            status = ep_archive_load(archive, &read, NULL);    /* it is as before */
        }
        if (archive != NULL) {
            ck_assert_int_eq(status, EP_OK);
            assert_same_trace(&trace, &read);
            ep_decoded_clear(&read);
        }
        ep_archive_close(archive);
        close(fd);
        failures += reached;
        if (!reached) {
            break;
        }
    }

    ck_assert_int_gt(failures, 50);
    ep_decoded_clear(&trace);
}
END_TEST

#endif

EP_TEST_MAIN("archive_damage",
             a_truncated_file_opens_as_far_as_it_goes_and_says_so,
             no_flipped_byte_goes_unseen,
             a_damaged_section_is_left_out_and_counted_as_lost,
             impossible_claims_of_headers_do_no_harm,
             nonsense_behind_right_checksums_does_no_harm,
#ifdef EP_FAULT_POINTS
             without_memory_saving_and_opening_fail_and_work_again,
#endif
             a_full_disk_is_an_error_of_the_system)
