/* Records of other versions (file_kinds.h). */
#include "ep_check.h"

#include <string.h>

#include "file_kinds.h"
#include "log.h"

#define LATER 100    /* a kind that this version does not know */
#define OLD_WORD0(ticks, kind, payload) \
    ((uint64_t)(ticks) << 32 | (uint64_t)(kind) << 26 | (uint64_t)(payload))

static ep_record_shape
shape_of_version_1(void)
{
    static const ep_file_header header = {.major = 1, .minor = 4};
    return ep_record_shape_of(&header);
}

static ep_record_shape
shape_with_later(uint8_t words, ep_form form)
{
    ep_file_header header = {.major = 2};
    header.kind_table[LATER] = (ep_file_kind){words, (uint8_t)form, 0, EP_DOMAIN_NONE, "later"};
    return ep_record_shape_of(&header);
}

static ep_translation
translate(const ep_record_shape *shape, const uint64_t *from, size_t count, uint64_t *to)
{
    ep_translation translation = {
        .shape = shape,
        .asked = EP_KINDS_ALL,
        .start_ticks = 10,
        .stop_ticks = UINT64_MAX,
    };
    ep_translate_records(&translation, from, count, to);
    return translation;
}

START_TEST(version_1_gets_seven_bits_of_kind)
{
    const uint64_t old[] = {
        OLD_WORD0(11, EP_KIND_CALL, 5),
        OLD_WORD0(12, EP_KIND_FREE_LIBC, 6),
        0xABC0,
        OLD_WORD0(13, EP_KIND_SYNC, 0),
        UINT64_C(7) << 32,
    };
    const uint64_t expected[] = {
        EP_WORD0(11, EP_KIND_CALL, 5),
        EP_WORD0(12, EP_KIND_FREE_LIBC, 6),
        0xABC0,
        EP_WORD0(13, EP_KIND_SYNC, 0),
        UINT64_C(7) << 32,
    };
    ep_record_shape shape = shape_of_version_1();
    uint64_t now[5];

    ep_translation done = translate(&shape, old, 5, now);

    ck_assert(shape.differs);
    ck_assert_uint_eq(ep_translation_growth(&shape, old, 5), 0);
    ck_assert_uint_eq(done.read, 5);
    ck_assert_uint_eq(done.written, 5);
    ck_assert_mem_eq(now, expected, sizeof expected);
    ck_assert_uint_eq(done.high, UINT64_C(7) << 32);
}
END_TEST

START_TEST(sizes_of_version_1_without_room_are_escaped)
{
    const uint32_t size = (UINT32_C(1) << 25) + 12347;
    const uint64_t old[] = {
        OLD_WORD0(11, EP_KIND_MALLOC_RAW, size),
        1,
        OLD_WORD0(12, EP_KIND_ESCAPE, EP_ESCAPE_SIZE),
        UINT64_C(1) << 40,
        OLD_WORD0(12, EP_KIND_MALLOC_RAW, (1 << 26) - 1),
        2,
    };
    const uint64_t expected[] = {
        EP_WORD0(11, EP_KIND_ESCAPE, EP_ESCAPE_SIZE),
        size,
        EP_WORD0(11, EP_KIND_MALLOC_RAW, EP_PAYLOAD_MAX),
        1,
        EP_WORD0(12, EP_KIND_ESCAPE, EP_ESCAPE_SIZE),
        UINT64_C(1) << 40,
        EP_WORD0(12, EP_KIND_MALLOC_RAW, EP_PAYLOAD_MAX),
        2,
    };
    ep_record_shape shape = shape_of_version_1();
    uint64_t now[16];

    size_t growth = ep_translation_growth(&shape, old, 6);
    ep_translation done = translate(&shape, old, 6, now);

    ck_assert_uint_ge(growth, 2);
    ck_assert_uint_eq(done.written, 8);
    ck_assert_mem_eq(now, expected, sizeof expected);
}
END_TEST

START_TEST(ids_of_version_1_without_room_are_unknown)
{
    const uint64_t old[] = {OLD_WORD0(11, EP_KIND_CALL, (1 << 26) - 5)};
    ep_record_shape shape = shape_of_version_1();
    uint64_t now[1];

    translate(&shape, old, 1, now);

    ck_assert_uint_eq(now[0], EP_WORD0(11, EP_KIND_CALL, EP_PAYLOAD_MAX));
}
END_TEST

START_TEST(unknown_kinds_are_left_out_and_counted)
{
    const uint64_t later[] = {
        EP_WORD0(9, LATER, 1),    /* before the window */
        1,
        2,
        EP_WORD0(11, EP_KIND_CALL, 5),
        EP_WORD0(12, LATER, 3),
        4,
        5,
        EP_WORD0(13, EP_KIND_RETURN, 6),
    };
    const uint64_t expected[] = {EP_WORD0(11, EP_KIND_CALL, 5), EP_WORD0(13, EP_KIND_RETURN, 6)};
    ep_record_shape shape = shape_with_later(3, EP_FORM_VALUE);
    uint64_t now[8];

    memcpy(now, later, sizeof now);
    ep_translation done = translate(&shape, now, 8, now);    /* in place, as it only gets shorter */

    ck_assert(shape.differs);
    ck_assert_uint_eq(done.read, 8);
    ck_assert_uint_eq(done.written, 2);
    ck_assert_mem_eq(now, expected, sizeof expected);
    ck_assert_uint_eq(done.unknown_events, 1);
    ck_assert(done.unknown_kinds == EP_KIND_BIT(LATER));
}
END_TEST

START_TEST(what_an_unknown_allocation_escapes_goes_with_it)
{
    const uint64_t later[] = {
        EP_WORD0(11, EP_KIND_ESCAPE, EP_ESCAPE_ADDRESS),
        3,
        EP_WORD0(11, LATER, 1),
        1,
        EP_WORD0(12, EP_KIND_MALLOC_OBJ, 56),
        2,
    };
    const uint64_t expected[] = {EP_WORD0(12, EP_KIND_MALLOC_OBJ, 56), 2};
    ep_record_shape shape = shape_with_later(2, EP_FORM_ALLOC);
    uint64_t now[6];

    ep_translation done = translate(&shape, later, 6, now);

    ck_assert_uint_eq(done.written, 2);
    ck_assert_mem_eq(now, expected, sizeof expected);
}
END_TEST

START_TEST(a_kind_of_no_row_ends_the_records)
{
    const uint64_t later[] = {EP_WORD0(11, EP_KIND_CALL, 5), EP_WORD0(12, LATER + 1, 3), 4};
    ep_record_shape shape = shape_with_later(2, EP_FORM_VALUE);
    ep_record_shape control = shape_with_later(2, EP_FORM_CONTROL);
    uint64_t now[3];

    ep_translation done = translate(&shape, later, 3, now);

    ck_assert_uint_eq(done.read, 1);
    ck_assert_uint_eq(control.words[LATER], 0);
    ck_assert(!control.differs);
}
END_TEST

START_TEST(words_of_unknown_kinds_are_told)
{
    ep_file_header header = {.major = 2};
    char words[16];
    header.kind_table[LATER] = (ep_file_kind){1, EP_FORM_POINT, 0, EP_DOMAIN_NONE, "later"};
    header.kind_table[LATER + 1] = (ep_file_kind){1, EP_FORM_POINT, 0, EP_DOMAIN_NONE, "a\x01"};

    ep_unknown_words(&header, EP_KIND_BIT(LATER) | EP_KIND_BIT(LATER + 1), words, sizeof words);

    ck_assert_str_eq(words, "later, kind 101");
}
END_TEST

EP_TEST_MAIN("file_kinds", version_1_gets_seven_bits_of_kind, sizes_of_version_1_without_room_are_escaped,
             ids_of_version_1_without_room_are_unknown, unknown_kinds_are_left_out_and_counted,
             what_an_unknown_allocation_escapes_goes_with_it, a_kind_of_no_row_ends_the_records,
             words_of_unknown_kinds_are_told)
