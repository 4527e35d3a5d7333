/* Records of a later version (file_kinds.h). */
#include "ep_check.h"

#include "file_kinds.h"
#include "log.h"

#define LATER 100    /* a kind that this version does not know */

static ep_record_shape
shape_with_later(uint8_t words, ep_form form)
{
    ep_file_header header = {.major = 2};
    header.kind_table[LATER] = (ep_file_kind){words, (uint8_t)form, 0, EP_DOMAIN_NONE, "later"};
    return ep_record_shape_of(&header);
}

static ep_translation
translate(const ep_record_shape *shape, uint64_t *records, size_t count)
{
    ep_translation translation = {
        .shape = shape,
        .asked = ~(ep_kind_set)0,
        .start_ticks = 10,
        .stop_ticks = UINT64_MAX,
    };
    ep_translate_records(&translation, records, count);
    return translation;
}

START_TEST(unknown_kinds_are_left_out_and_counted)
{
    uint64_t records[] = {
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

    ep_translation done = translate(&shape, records, 8);

    ck_assert(shape.differs);
    ck_assert_uint_eq(done.read, 8);
    ck_assert_uint_eq(done.written, 2);
    ck_assert_mem_eq(records, expected, sizeof expected);
    ck_assert_uint_eq(done.unknown_events, 1);
    ck_assert(done.unknown_kinds == EP_KIND_BIT(LATER));
}
END_TEST

START_TEST(what_an_unknown_allocation_escapes_goes_with_it)
{
    uint64_t records[] = {
        EP_WORD0(11, EP_KIND_ESCAPE, EP_ESCAPE_ADDRESS),
        3,
        EP_WORD0(11, LATER, 1),
        1,
        EP_WORD0(12, EP_KIND_MALLOC_OBJ, 56),
        2,
    };
    const uint64_t expected[] = {EP_WORD0(12, EP_KIND_MALLOC_OBJ, 56), 2};
    ep_record_shape shape = shape_with_later(2, EP_FORM_ALLOC);

    ep_translation done = translate(&shape, records, 6);

    ck_assert_uint_eq(done.written, 2);
    ck_assert_mem_eq(records, expected, sizeof expected);
}
END_TEST

START_TEST(a_kind_of_no_row_ends_the_records)
{
    uint64_t records[] = {EP_WORD0(11, EP_KIND_CALL, 5), EP_WORD0(12, LATER + 1, 3), 4};
    ep_record_shape shape = shape_with_later(2, EP_FORM_VALUE);
    ep_record_shape control = shape_with_later(2, EP_FORM_CONTROL);

    ep_translation done = translate(&shape, records, 3);

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

EP_TEST_MAIN("file_kinds", unknown_kinds_are_left_out_and_counted,
             what_an_unknown_allocation_escapes_goes_with_it, a_kind_of_no_row_ends_the_records,
             words_of_unknown_kinds_are_told)
