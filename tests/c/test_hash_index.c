/* base/hash_index.h: rows are found by their keys, whatever their hashes. */
#include "ep_check.h"

#include "fault.h"
#include "hash_index.h"

#define ROWS 12347

typedef struct pair {
    uint32_t a, b;
} pair;

static pair pairs[ROWS];

static uint64_t
hash_of_pair(const void *rows, size_t row)
{
    const pair *found = (const pair *)rows + row;
    return ep_hash_words(found->a, found->b);
}

/* Of all pairs the same: the last slot, so that the search goes on at the first one. */
static uint64_t
worst_hash(const void *rows, size_t row)
{
    (void)rows, (void)row;
    return UINT64_MAX;
}

static bool
is_pair(const void *rows, size_t row, const void *key)
{
    const pair *found = (const pair *)rows + row, *wanted = key;
    return found->a == wanted->a && found->b == wanted->b;
}

/* The row of a pair, -1 if it has none. */
static long
row_of(const ep_hash_index *index, ep_hash_of_row *hash_of, pair wanted)
{
    return (long)*ep_hash_index_slot(index, hash_of(&wanted, 0), is_pair, pairs, &wanted) - 1;
}

static void
add(ep_hash_index *index, ep_hash_of_row *hash_of, size_t row)
{
    ck_assert(ep_hash_index_reserve(index, hash_of, pairs));
    uint32_t *slot = ep_hash_index_slot(index, hash_of(pairs, row), is_pair, pairs, &pairs[row]);
    ck_assert_uint_eq(*slot, 0);
    ep_hash_index_add(index, slot, row);
}

/* An index of `count` different pairs. */
static ep_hash_index
index_of(ep_hash_of_row *hash_of, size_t count)
{
    ep_hash_index index = {0};
    for (size_t row = 0; row < count; row++) {
        pairs[row] = (pair){(uint32_t)(row / 7), (uint32_t)(row % 7) << 20};
        add(&index, hash_of, row);
    }
    return index;
}

START_TEST(each_row_is_found_by_its_key_and_no_other_key_is_found)
{
    ep_hash_index index = index_of(hash_of_pair, ROWS);

    for (size_t row = 0; row < ROWS; row++) {
        ck_assert_int_eq(row_of(&index, hash_of_pair, pairs[row]), (long)row);
        pair other = {pairs[row].a, pairs[row].b + 1};
        ck_assert_int_eq(row_of(&index, hash_of_pair, other), -1);
    }
    ck_assert_uint_eq(index.used, ROWS);
    ck_assert_uint_le(2 * index.used, index.mask + 1);
    ep_hash_index_free(&index);
    ck_assert_ptr_null(index.slots);
}
END_TEST

START_TEST(rows_of_one_hash_are_all_found)
{
    ep_hash_index index = index_of(worst_hash, 301);

    for (size_t row = 0; row < 301; row++) {
        ck_assert_int_eq(row_of(&index, worst_hash, pairs[row]), (long)row);
    }
    ck_assert_int_eq(row_of(&index, worst_hash, (pair){1, 1}), -1);
    ep_hash_index_free(&index);
}
END_TEST

START_TEST(an_opened_index_has_room_for_the_rows_that_were_asked_for)
{
    ep_hash_index index;
    ck_assert_int_eq(ep_hash_index_open(&index, 3001), EP_OK);
    const uint32_t *slots = index.slots;

    for (size_t row = 0; row < 3001; row++) {
        pairs[row] = (pair){(uint32_t)row, 0};
        add(&index, hash_of_pair, row);
    }

    ck_assert_ptr_eq(index.slots, slots);
    ck_assert_uint_eq(ep_hash_index_bytes(&index), 8192 * sizeof *index.slots);
    ep_hash_index_free(&index);
    ck_assert_uint_eq(ep_hash_index_bytes(&index), 0);
}
END_TEST

START_TEST(an_emptied_index_finds_nothing_and_can_be_filled_again)
{
    ep_hash_index index = index_of(hash_of_pair, 1000);

    ep_hash_index_empty(&index);
    ck_assert_int_eq(row_of(&index, hash_of_pair, pairs[999]), -1);
    add(&index, hash_of_pair, 999);

    ck_assert_int_eq(row_of(&index, hash_of_pair, pairs[999]), 999);
    ck_assert_int_eq(row_of(&index, hash_of_pair, pairs[998]), -1);
    ck_assert_uint_eq(index.used, 1);
    ep_hash_index_free(&index);
    ep_hash_index_empty(&index);    /* without slots, too */
}
END_TEST

#ifdef EP_FAULT_POINTS
START_TEST(without_memory_to_grow_the_rows_are_still_found)
{
    ep_hash_index index = index_of(hash_of_pair, 128);
    ck_assert_uint_eq(index.mask + 1, 256);

    atomic_store(&ep_fault_countdown, 0);
    bool has_room = ep_hash_index_reserve(&index, hash_of_pair, pairs);
    atomic_store(&ep_fault_countdown, -1);

    ck_assert(!has_room);
    for (size_t row = 0; row < 128; row++) {
        ck_assert_int_eq(row_of(&index, hash_of_pair, pairs[row]), (long)row);
    }
    ep_hash_index_free(&index);
}
END_TEST
#endif

EP_TEST_MAIN("hash_index", each_row_is_found_by_its_key_and_no_other_key_is_found,
             rows_of_one_hash_are_all_found, an_opened_index_has_room_for_the_rows_that_were_asked_for,
             an_emptied_index_finds_nothing_and_can_be_filled_again,
#ifdef EP_FAULT_POINTS
             without_memory_to_grow_the_rows_are_still_found,
#endif
)
