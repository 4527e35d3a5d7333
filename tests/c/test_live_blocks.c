/* folds/live_blocks.h and the memory of a tree: what is promised for each block and each node. */
#include "ep_program.h"

#include "live_blocks.h"
#include "stream.h"
#include "tree.h"

/* ---- Against a plain array ------------------------------------------------------------------- */

#define MODEL 4096

/* Addresses of few kinds: near each other, and far apart; some hashes are near the last home. */
static uint64_t
address_of(uint64_t number, uint64_t seed)
{
    return seed % 2 == 0 ? 0x7f0000000000 + number * 16 : (number + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

static uint64_t
size_of(uint64_t number)
{
    return number % 7 == 0 ? UINT64_C(0x123456789a) + number : number % 5 == 0 ? INT32_MAX
                                                                               : number;
}

START_TEST(table_has_what_was_put_and_not_taken)
{
    for (uint64_t seed = 1; seed < 5; seed++) {
        uint64_t random = seed;
        ep_live_blocks blocks;
        static uint32_t calls[MODEL];    /* 0: not in the table */
        memset(calls, 0, sizeof calls);
        size_t used = 0;
        ck_assert_int_eq(ep_live_open(&blocks), EP_OK);

        for (uint32_t step = 1; step < 100000; step++) {
            uint64_t number = below(&random, step % 20000 < 10000 ? MODEL : MODEL / 16);
            uint64_t address = address_of(number, seed);
            ep_live_entry *at = ep_live_find(&blocks, address);
            ck_assert_int_eq(at->origin != 0, calls[number] != 0);
            if (calls[number] != 0) {
                ep_live_block block = ep_live_at(&blocks, at);
                ck_assert_uint_eq(block.address, address);
                ck_assert_uint_eq(block.size, size_of(number));
                ck_assert_uint_eq(block.call, calls[number]);
                ck_assert_uint_eq(block.origin, number + 1);
                ep_live_take(&blocks, at);
                calls[number] = 0;
                used--;
            } else {
                ck_assert_int_eq(ep_live_put(&blocks, at, address, size_of(number), (uint32_t)number + 1,
                                             step),
                                 EP_OK);
                calls[number] = step;
                used++;
            }
            ck_assert_uint_eq(blocks.used, used);
        }
        for (uint64_t number = 0; number < MODEL; number++) {
            ck_assert_int_eq(ep_live_find(&blocks, address_of(number, seed))->origin != 0,
                             calls[number] != 0);
        }
        ep_live_clear(&blocks);
    }
}
END_TEST

/* The inverse of the hash, for the high half of its result. */
static uint64_t
address_with_hash(uint64_t hash)
{
    uint64_t mixed = hash * UINT64_C(0xf1de83e19937733d), address = mixed;
    for (int i = 0; i < 6; i++) address = mixed ^ address >> 12;
    return address;
}

START_TEST(blocks_of_one_home_at_the_end_of_the_table_are_found)
{
    ep_live_blocks blocks;
    ck_assert_int_eq(ep_live_open(&blocks), EP_OK);

    for (uint64_t i = 0; i < 6000; i++) {
        uint64_t address = address_with_hash(UINT64_MAX - i);
        ep_live_entry *at = ep_live_find(&blocks, address);
        ck_assert_uint_eq(at->origin, 0);
        ck_assert_int_eq(ep_live_put(&blocks, at, address, i, 1, 0), EP_OK);
    }
    for (uint64_t i = 0; i < 6000; i++) {
        ep_live_entry *at = ep_live_find(&blocks, address_with_hash(UINT64_MAX - i));
        ck_assert_uint_ne(at->origin, 0);
        ck_assert_uint_eq(ep_live_at(&blocks, at).size, i);
    }

    ck_assert_uint_lt(blocks.end, 8 * 6000);
    ep_live_clear(&blocks);
}
END_TEST

/* ---- The promise ----------------------------------------------------------------------------- */

START_TEST(a_block_takes_24_bytes)
{
    ep_live_blocks blocks;
    ck_assert_int_eq(ep_live_open(&blocks), EP_OK);
    uint64_t address = 0x7f0000000000;

    while (blocks.used < 2100000) {
        address += 16 + blocks.used % 3 * 512;
        ck_assert_int_eq(ep_live_put(&blocks, ep_live_find(&blocks, address), address, 16, 1, 0), EP_OK);
        bool is_small = blocks.count <= EP_LIVE_LARGE_COUNT;    /* it doubles: up to 28 MiB more */
        size_t bytes = blocks.end * sizeof *blocks.entries + blocks.large_capacity * sizeof *blocks.large;
        ck_assert_uint_le(bytes, 24 * blocks.used + (is_small ? (size_t)29 << 20 : 0));
    }

    ck_assert_uint_gt(blocks.count, EP_LIVE_LARGE_COUNT);
    ep_live_clear(&blocks);
}
END_TEST

/* Returns: new. */
static ep_tree
tree_of(program *p, size_t threads)
{
    static int32_t unknown[SITES];
    memset(unknown, 0xff, sizeof unknown);
    p->map.site_caller = p->map.site_line = unknown;
    ep_fold_facts facts = {
        .map = &p->map,
        .thread_count = threads,
        .length_ns = p->input.length_ns,
    };
    ep_tree tree;
    ep_tree_open(&tree, 0);
    ep_fold *fold = &tree.fold;
    ep_column_stream stream;
    ep_column_stream_open(&stream, &p->columns);
    ck_assert_int_eq(ep_fold_run(&stream.stream, &facts, &fold, 1, NULL), EP_OK);
    return tree;
}

START_TEST(a_node_takes_128_bytes)
{
    program *p = program_new();
    for (uint32_t depth = 0; depth < 40000; depth++) {
        program_call(p, 0, EP_KIND_CALL, 1 + depth % (SITES - 1));
    }

    ep_tree tree = tree_of(p, 1);

    ck_assert_uint_eq(tree.node_count, 40001);
    size_t bytes = tree.node_count * sizeof *tree.nodes +
                   (tree.children.mask + 1) * sizeof *tree.children.slots;
    ck_assert_uint_le(bytes, 128 * tree.node_count);
    tree.fold.type->clear(&tree.fold);
    program_free(p);
}
END_TEST

START_TEST(threads_that_keep_no_block_leave_nothing)
{
    const int32_t threads = 30000, one_of = 100;
    program *p = program_new();
    for (int32_t thread = 0; thread < threads; thread++) {
        uint64_t address = 0x7f0000000000 + (uint64_t)thread * 64;
        program_alloc(p, thread, EP_KIND_MALLOC, address, thread);
        program_alloc(p, thread, EP_KIND_MALLOC, address + 16, 1);
        if (thread % one_of != 0)
            program_alloc(p, thread, EP_KIND_FREE, address, -1);
        program_alloc(p, thread, EP_KIND_FREE, address + 16, -1);
    }

    ep_tree tree = tree_of(p, (size_t)threads);

    ck_assert_uint_eq(tree.live_blocks, threads / one_of);
    ck_assert_uint_eq(tree.by_address.used, threads / one_of);
    ck_assert_uint_le(tree.origin_count, 4096);
    for (size_t i = 0; i < tree.by_address.end; i++) {
        const ep_live_entry *entry = &tree.by_address.entries[i];
        if (entry->origin != 0) {
            /* The owner of a block is still the thread that made it: its number is the size. */
            ck_assert_uint_eq(tree.origins[entry->origin].owner >> 3, entry->size);
        }
    }
    tree.fold.type->clear(&tree.fold);
    program_free(p);
}
END_TEST

EP_TEST_MAIN("live_blocks", table_has_what_was_put_and_not_taken,
             blocks_of_one_home_at_the_end_of_the_table_are_found, a_block_takes_24_bytes,
             a_node_takes_128_bytes, threads_that_keep_no_block_leave_nothing)
