/* pair.h: blocks. */
#include "ep_program.h"
#include "worker.h"

#include <limits.h>

/* ---- Blocks: promises ------------------------------------------------------------------------ */

START_TEST(free_ends_the_block_and_learns_its_size)
{
    program *p = program_new();
    program_call(p, 0, EP_KIND_CALL, 1);
    program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 0x1000, 12347);
    program_call(p, 2, EP_KIND_CALL, 2);
    program_alloc(p, 2, EP_KIND_FREE_OBJ, 0x1000, -1);
    program_alloc(p, 0, EP_KIND_CALLOC_NUMPY, 0x2000, 5);

    ep_calls calls = program_calls(p);
    ep_blocks blocks = program_blocks(p, &calls);

    ck_assert_uint_eq(blocks.count, 2);
    ck_assert_uint_eq(blocks.address[0], 0x1000);
    ck_assert_int_eq(blocks.size[0], 12347);
    ck_assert_uint_eq(blocks.domain[0], EP_DOMAIN_OBJ);
    ck_assert_uint_eq(blocks.domain[1], EP_DOMAIN_NUMPY);
    ck_assert_int_eq(blocks.thread[0], 0);
    ck_assert_int_eq(blocks.free_thread[0], 2);
    ck_assert_int_eq(blocks.free_thread[1], -1);
    ck_assert_int_eq(blocks.start[0], 1);
    ck_assert_int_eq(blocks.end[0], 3);
    ck_assert_int_eq(blocks.end[1], -1);
    ck_assert_int_eq(blocks.call[0], 0);
    ck_assert_int_eq(blocks.freed_in[0], 1);
    ck_assert_int_eq(blocks.freed_in[1], -1);
    ck_assert_uint_eq(blocks.site[0], 1);
    ck_assert_int_eq(blocks.function[0], 1);
    ck_assert_int_eq(p->columns.size[1], 12347);
    ck_assert_int_eq(blocks.event_block[1], 0);
    ep_calls_clear(&calls);
    ep_blocks_clear(&blocks);
    program_free(p);
}
END_TEST

START_TEST(size_of_a_block_may_exceed_32_bits)
{
    static const int64_t sizes[] = {0, UINT32_MAX - 1, UINT32_MAX, INT64_C(1) << 40, INT64_MAX};
    for (size_t i = 0; i < 5; i++) {
        program *p = program_new();
        program_alloc(p, 0, EP_KIND_MALLOC_RAW, 8, sizes[i]);
        program_alloc(p, 0, EP_KIND_FREE_RAW, 8, -1);

        ep_blocks blocks = program_blocks(p, NULL);

        ck_assert_int_eq(p->columns.size[1], sizes[i]);
        ep_blocks_clear(&blocks);
        program_free(p);
    }
}
END_TEST

START_TEST(any_address_is_a_key)
{
    static const uint64_t addresses[] = {0, 1, 8, UINT64_MAX - 1, UINT64_MAX};
    program *p = program_new();
    for (int i = 0; i < 5; i++) program_alloc(p, 0, EP_KIND_MALLOC_RAW, addresses[i], i);
    for (int i = 4; i >= 0; i--) program_alloc(p, 0, EP_KIND_FREE_RAW, addresses[i], -1);

    ep_blocks blocks = program_blocks(p, NULL);

    for (uint32_t i = 0; i < 5; i++) ck_assert_uint_eq(blocks.death[i], 9 - i);
    ep_blocks_clear(&blocks);
    program_free(p);
}
END_TEST

START_TEST(realloc_makes_a_block_that_knows_the_previous)
{
    program *p = program_new();
    program_alloc(p, 0, EP_KIND_MALLOC_MEM, 8, 10);
    program_alloc(p, 0, EP_KIND_REALLOC_FREE_MEM, 8, -1);
    program_alloc(p, 1, EP_KIND_MALLOC_MEM, 8, 5);          /* had it at once */
    program_alloc(p, 0, EP_KIND_REALLOC_MEM, 16, 20);
    program_alloc(p, 0, EP_KIND_REALLOC_MEM, 24, 30);       /* its realloc_free was lost */

    ep_blocks blocks = program_blocks(p, NULL);

    static const int32_t previous[] = {-1, -1, 0, -1};
    for (int i = 0; i < 4; i++) ck_assert_int_eq(blocks.previous[i], previous[i]);
    ck_assert_uint_eq(blocks.flags[0], EP_BLOCK_MOVED);
    ck_assert_uint_eq(blocks.flags[1] | blocks.flags[2] | blocks.flags[3], 0);
    ep_blocks_clear(&blocks);
    program_free(p);
}
END_TEST

START_TEST(realloc_in_another_domain_is_not_of_that_block)
{
    program *p = program_new();
    program_alloc(p, 0, EP_KIND_MALLOC_MEM, 8, 10);
    program_alloc(p, 0, EP_KIND_REALLOC_FREE_MEM, 8, -1);
    program_alloc(p, 0, EP_KIND_REALLOC_RAW, 16, 20);

    ep_blocks blocks = program_blocks(p, NULL);

    ck_assert_int_eq(blocks.previous[1], -1);
    ep_blocks_clear(&blocks);
    program_free(p);
}
END_TEST

START_TEST(realloc_of_an_unknown_block_has_no_previous)
{
    program *p = program_new();
    program_alloc(p, 0, EP_KIND_REALLOC_FREE_MEM, 8, -1);
    program_alloc(p, 0, EP_KIND_REALLOC_MEM, 16, 20);

    ep_blocks blocks = program_blocks(p, NULL);

    ck_assert_int_eq(blocks.previous[0], -1);
    ck_assert_uint_eq(blocks.older_count, 1);
    ck_assert_int_eq(p->columns.size[0], -1);
    ep_blocks_clear(&blocks);
    program_free(p);
}
END_TEST

START_TEST(block_survives_a_realloc_that_failed)
{
    program *p = program_new();
    program_alloc(p, 0, EP_KIND_MALLOC_MEM, 8, 10);
    program_alloc(p, 0, EP_KIND_REALLOC_FREE_MEM, 8, -1);
    program_alloc(p, 0, EP_KIND_REALLOC_FAILED_MEM, 8, INT64_C(1) << 60);
    program_alloc(p, 0, EP_KIND_FREE_MEM, 8, -1);

    ep_blocks blocks = program_blocks(p, NULL);

    ck_assert_uint_eq(blocks.count, 1);
    ck_assert_uint_eq(blocks.death[0], 3);
    ck_assert_int_eq(blocks.event_block[1], -1);
    ck_assert_int_eq(blocks.event_block[2], -1);
    ck_assert_uint_ne(blocks.flags[0] & EP_BLOCK_REVIVED, 0);
    ck_assert_uint_eq(blocks.flags[0] & EP_BLOCK_MOVED, 0);
    ep_blocks_clear(&blocks);
    program_free(p);
}
END_TEST

START_TEST(failed_realloc_without_its_first_half_changes_nothing)
{
    program *p = program_new();
    program_alloc(p, 0, EP_KIND_MALLOC_MEM, 8, 10);
    program_alloc(p, 0, EP_KIND_REALLOC_FAILED_MEM, 8, 20);
    program_alloc(p, 0, EP_KIND_REALLOC_FREE_MEM, 16, -1);
    program_alloc(p, 0, EP_KIND_REALLOC_FAILED_MEM, 16, 20);

    ep_blocks blocks = program_blocks(p, NULL);

    ck_assert_uint_eq(blocks.count, 1);
    ck_assert_uint_eq(blocks.death[0], EP_ROW_NONE);
    ck_assert_uint_eq(blocks.flags[0], 0);
    ep_blocks_clear(&blocks);
    program_free(p);
}
END_TEST

START_TEST(values_are_no_blocks_and_part_no_realloc)
{
    program *p = program_new();
    program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 0x1000, 16);
    program_alloc(p, 0, EP_KIND_CREATE, 0x1000, -1);
    program_alloc(p, 0, EP_KIND_REALLOC_FREE_OBJ, 0x1000, -1);
    program_alloc(p, 0, EP_KIND_COUNTER, 0x1000, -1);
    program_alloc(p, 0, EP_KIND_REALLOC_OBJ, 0x2000, 32);
    program_alloc(p, 0, EP_KIND_DESTROY, 0x2000, -1);

    ep_blocks blocks = program_blocks(p, NULL);

    ck_assert_uint_eq(blocks.count, 2);
    ck_assert_uint_eq(blocks.older_count, 0);
    ck_assert_int_eq(blocks.previous[1], 0);
    ck_assert_uint_eq(blocks.death[0], 2);
    ck_assert_uint_eq(blocks.death[1], EP_ROW_NONE);
    ck_assert_int_eq(blocks.event_block[1], -1);
    ck_assert_int_eq(blocks.event_block[5], -1);
    ck_assert_int_eq(p->columns.size[3], -1);
    ep_blocks_clear(&blocks);
    program_free(p);
}
END_TEST

START_TEST(unknown_frees_are_older_until_something_may_be_lost)
{
    program *p = program_new();
    program_alloc(p, 0, EP_KIND_FREE_OBJ, 8, -1);
    program_alloc(p, 0, EP_KIND_FREE_OBJ, 16, -1);
    program_alloc(p, 0, EP_KIND_FREE_OBJ, 24, -1);
    p->input.lost_from_ns = 1;

    ep_blocks blocks = program_blocks(p, NULL);

    ck_assert_uint_eq(blocks.older_count, 1);
    ck_assert_uint_eq(blocks.malloc_lost_count, 2);
    ck_assert_int_eq(p->columns.size[0], -1);
    ep_blocks_clear(&blocks);
    program_free(p);
}
END_TEST

/* A block, another one at the same address on thread 1, and `after` ns later a free by `thread`. */
static ep_blocks
blocks_of_one_address(program *p, int64_t after, int32_t thread)
{
    program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 8, 10);
    program_alloc(p, 1, EP_KIND_MALLOC_OBJ, 8, 20);
    p->now = 1 + after;
    program_alloc(p, thread, EP_KIND_FREE_OBJ, 8, -1);
    program_alloc(p, 1, EP_KIND_FREE_OBJ, 8, -1);
    return program_blocks(p, NULL);
}

START_TEST(late_free_of_another_thread_is_mended)
{
    program *p = program_new();

    ep_blocks blocks = blocks_of_one_address(p, EP_PAIR_SKEW_NS, 0);

    ck_assert_uint_eq(blocks.death[0], 2);
    ck_assert_uint_eq(blocks.death[1], 3);
    ck_assert_uint_ne(blocks.flags[0] & EP_BLOCK_MENDED, 0);
    ck_assert_uint_eq(blocks.mended_count, 1);
    ck_assert_uint_eq(blocks.free_lost_count, 0);
    ck_assert_int_eq(p->columns.size[2], 10);
    ck_assert_int_eq(p->columns.size[3], 20);
    ep_blocks_clear(&blocks);
    program_free(p);
}
END_TEST

START_TEST(free_of_the_same_thread_leaves_the_older_free_lost)
{
    program *p = program_new();

    ep_blocks blocks = blocks_of_one_address(p, 1, 1);

    ck_assert_uint_eq(blocks.death[0], 1);
    ck_assert_uint_eq(blocks.death[1], 2);
    ck_assert_uint_eq(blocks.flags[0], EP_BLOCK_FREE_LOST);
    ck_assert_int_eq(blocks.end[0], 1);
    ck_assert_int_eq(blocks.free_thread[0], -1);
    ck_assert_uint_eq(blocks.free_lost_count, 1);
    ck_assert_int_eq(blocks.free_lost[0], 0);
    ck_assert_uint_eq(blocks.older_count, 1);
    ep_blocks_clear(&blocks);
    program_free(p);
}
END_TEST

START_TEST(free_much_later_leaves_the_older_free_lost)
{
    program *p = program_new();

    ep_blocks blocks = blocks_of_one_address(p, EP_PAIR_SKEW_NS + 1, 0);

    ck_assert_uint_eq(blocks.death[0], 1);
    ck_assert_uint_eq(blocks.death[1], 2);
    ck_assert_uint_eq(blocks.mended_count, 0);
    ep_blocks_clear(&blocks);
    program_free(p);
}
END_TEST

START_TEST(deaths_are_told_apart_by_flags)
{
    program *p = program_new();
    program_call(p, 0, EP_KIND_CALL, 1);
    program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 8, 1);     /* freed next, by this call */
    program_alloc(p, 0, EP_KIND_FREE_OBJ, 8, -1);
    program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 8, 2);     /* by this call, not next */
    program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 16, 3);    /* next, but by another call */
    program_alloc(p, 0, EP_KIND_FREE_OBJ, 8, -1);
    program_call(p, 0, EP_KIND_RETURN, NAME_OF(1));
    program_alloc(p, 0, EP_KIND_FREE_OBJ, 16, -1);
    program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 24, 4);    /* next, outside all calls */
    program_alloc(p, 1, EP_KIND_MALLOC_OBJ, 32, 5);    /* next, but by another thread */
    program_alloc(p, 0, EP_KIND_FREE_OBJ, 24, -1);
    program_alloc(p, 0, EP_KIND_FREE_OBJ, 32, -1);

    ep_calls calls = program_calls(p);
    ep_blocks blocks = program_blocks(p, &calls);

    static const uint8_t want[] = {
        EP_BLOCK_BRIEF | EP_BLOCK_LOCAL,
        EP_BLOCK_LOCAL,
        EP_BLOCK_BRIEF,
        EP_BLOCK_BRIEF,
        0,
    };
    for (int i = 0; i < 5; i++) ck_assert_uint_eq(blocks.flags[i], want[i]);
    ep_calls_clear(&calls);
    ep_blocks_clear(&blocks);
    program_free(p);
}
END_TEST

START_TEST(moment_counts_the_events_up_to_a_time)
{
    program *p = program_new();
    for (int i = 0; i < 3; i++) {
        p->now = 10;
        program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 8 * (uint64_t)i, 1);
    }
    p->now = 20;
    program_alloc(p, 0, EP_KIND_FREE_OBJ, 0, -1);

    static const int64_t times[] = {-1, 9, 10, 19, 20, 1000};
    static const size_t moments[] = {0, 0, 3, 3, 4, 4};
    for (int i = 0; i < 6; i++) {
        ck_assert_uint_eq(ep_blocks_moment(&p->input, times[i]), moments[i]);
    }
    program_free(p);
}
END_TEST

START_TEST(many_blocks_may_be_alive)
{
    program *p = program_new();
    for (uint64_t i = 0; i < 50000; i++) program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 16 * i, 1);
    for (uint64_t i = 0; i < 50000; i++) program_alloc(p, 0, EP_KIND_FREE_OBJ, 16 * i, -1);

    ep_blocks blocks = program_blocks(p, NULL);

    for (uint32_t i = 0; i < 50000; i++) ck_assert_uint_eq(blocks.death[i], 50000 + i);
    ep_blocks_clear(&blocks);
    program_free(p);
}
END_TEST

/* Quadratic work would not end: one address a million times, and 250,000 addresses once, with few
 * alive at any time. */
START_TEST(reused_addresses_stay_linear)
{
    program *p = program_new();
    for (uint64_t i = 0; i < 1000000; i++) {
        program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 0x1000, (int64_t)i);
        program_alloc(p, 0, EP_KIND_FREE_OBJ, 0x1000, -1);
        if (i % 4 == 0) {
            program_alloc(p, 0, EP_KIND_MALLOC_OBJ, 0x100000 + 16 * i, 1);
        }
        if (i % 4 == 0 && i >= 400) {
            program_alloc(p, 0, EP_KIND_FREE_OBJ, 0x100000 + 16 * (i - 400), -1);
        }
    }

    ep_blocks blocks;
    ck_assert_int_eq(ep_pair_blocks(&p->input, NULL, &blocks), EP_OK);

    size_t alive = 0;
    for (size_t i = 0; i < blocks.count; i++) alive += blocks.death[i] == EP_ROW_NONE;
    ck_assert_uint_eq(alive, 100);
    ck_assert_uint_eq(blocks.older_count, 0);
    ep_blocks_clear(&blocks);
    program_free(p);
}
END_TEST

/* ---- Blocks: random programs ----------------------------------------------------------------- */

/* An allocator of an imagined program: a list of what is in use. */
typedef struct heap {
    program *p;
    uint64_t random;
    struct held {
        uint64_t address;
        int32_t block;
    } *held;
    size_t held_count;
    uint64_t *spare;       /* addresses to give out again */
    size_t spare_count;
    uint64_t fresh;
    /* what should come out, by block */
    size_t count;
    uint32_t *birth;
    uint32_t *death;
    int32_t *previous;
    size_t mended;
} heap;

static heap *
heap_new(uint64_t seed, size_t events)
{
    heap *h = must(calloc(1, sizeof *h));
    h->p = program_new();
    h->random = seed;
    h->fresh = 0x10000;
    h->held = must(calloc(events + 4, sizeof *h->held));
    h->spare = must(calloc(events + 4, sizeof *h->spare));
    h->birth = must(calloc(events + 4, sizeof *h->birth));
    h->death = must(calloc(events + 4, sizeof *h->death));
    h->previous = must(calloc(events + 4, sizeof *h->previous));
    return h;
}

static void
heap_free(heap *h)
{
    program_free(h->p);
    free(h->held);
    free(h->spare);
    free(h->birth);
    free(h->death);
    free(h->previous);
    free(h);
}

static void
heap_malloc(heap *h, int32_t thread, unsigned operation, uint64_t address, int32_t previous)
{
    size_t event = program_alloc(h->p, thread, operation + EP_DOMAIN_MEM, address,
                                 (int64_t)below(&h->random, 500));
    int32_t block = (int32_t)h->count++;
    h->birth[block] = (uint32_t)event;
    h->death[block] = EP_ROW_NONE;
    h->previous[block] = previous;
    h->held[h->held_count++] = (struct held){.address = address, .block = block};
}

/* Returns: an address that nobody has. */
static uint64_t
heap_address(heap *h)
{
    if (h->spare_count > 0 && !one_in(&h->random, 3)) {
        return h->spare[--h->spare_count];
    }
    return h->fresh += 16 * (1 + below(&h->random, 5));
}

static struct held
heap_take(heap *h)
{
    size_t i = below(&h->random, h->held_count);
    struct held taken = h->held[i];
    h->held[i] = h->held[--h->held_count];
    return taken;
}

static void
heap_step(heap *h)
{
    int32_t thread = (int32_t)below(&h->random, THREADS);
    uint64_t what = below(&h->random, 16);
    if (h->held_count == 0 || what < 7) {
        heap_malloc(h, thread, one_in(&h->random, 4) ? EP_KIND_CALLOC : EP_KIND_MALLOC,
                    heap_address(h), -1);
        return;
    }
    struct held held = heap_take(h);
    if (what < 12) {
        size_t event = program_alloc(h->p, thread, EP_KIND_FREE_MEM, held.address, -1);
        h->death[held.block] = (uint32_t)event;
        h->spare[h->spare_count++] = held.address;
    } else if (what < 14) {
        uint64_t address = one_in(&h->random, 2) ? held.address : heap_address(h);
        size_t event = program_alloc(h->p, thread, EP_KIND_REALLOC_FREE_MEM, held.address, -1);
        h->death[held.block] = (uint32_t)event;
        heap_malloc(h, thread, EP_KIND_REALLOC, address, held.block);
    } else if (what < 15) {
        program_alloc(h->p, thread, EP_KIND_REALLOC_FREE_MEM, held.address, -1);
        program_alloc(h->p, thread, EP_KIND_REALLOC_FAILED_MEM, held.address, 1 << 30);
        h->held[h->held_count++] = held;
    } else {
        /* Freed, and given out again on the next thread, whose clock is ahead. */
        heap_malloc(h, (thread + 1) % THREADS, EP_KIND_MALLOC, held.address, -1);
        size_t event = program_alloc(h->p, thread, EP_KIND_FREE_MEM, held.address, -1);
        h->death[held.block] = (uint32_t)event;
        h->mended++;
    }
}

START_TEST(random_allocations_are_rebuilt_exactly)
{
    for (uint64_t seed = 0; seed < 40; seed++) {
        size_t steps = seed * seed * 20;
        heap *h = heap_new(seed, 2 * steps);
        for (size_t i = 0; i < steps; i++) heap_step(h);

        ep_blocks blocks = program_blocks(h->p, NULL);

        ck_assert_uint_eq(blocks.count, h->count);
        ck_assert_uint_eq(blocks.mended_count, h->mended);
        ck_assert_uint_eq(blocks.free_lost_count + blocks.malloc_lost_count, 0);
        ck_assert_uint_eq(blocks.older_count, 0);
        for (size_t i = 0; i < h->count; i++) {
            ck_assert_uint_eq(blocks.birth[i], h->birth[i]);
            ck_assert_uint_eq(blocks.death[i], h->death[i]);
            ck_assert_int_eq(blocks.previous[i], h->previous[i]);
        }
        ep_blocks_clear(&blocks);
        heap_free(h);
    }
}
END_TEST

/* ---- Blocks: any stream ---------------------------------------------------------------------- */

#define ADDRESSES 6

/* pair.h to the letter, for few addresses and without a table: who lives where, and who was there
 * before. */
typedef struct plain_pairing {
    int32_t living[ADDRESSES];     /* block; -1: none */
    int32_t older[ADDRESSES];      /* that `living` was born on top of; -1: none, or settled */
    int32_t moving[THREADS];       /* allocator event; -1: none */
    uint32_t death[20000];         /* by block */
    int32_t previous[20000];
    uint8_t flags[20000];
    int32_t on_top_of[20000];
    int32_t event_block[20000];    /* by event */
    int32_t count;
    size_t unknown;
} plain_pairing;

static void
plain_death(plain_pairing *plain, const ep_blocks *blocks, int32_t event)
{
    const ep_columns *columns = blocks->input->columns;
    size_t row = columns->alloc_row[event];
    uint64_t at = columns->address[event];
    int32_t block = plain->living[at];
    plain->event_block[event] = -1;
    if (ep_kind_is(columns->kind[row], EP_KIND_REALLOC_FREE)) {
        plain->moving[columns->thread[row]] = event;
    }
    if (block < 0) {
        plain->unknown++;
        return;
    }
    size_t birth_row = columns->alloc_row[blocks->birth[block]];
    int32_t ended = block;
    if (plain->older[at] >= 0 && columns->thread[birth_row] != columns->thread[row] &&
        columns->time_ns[row] - columns->time_ns[birth_row] <= EP_PAIR_SKEW_NS) {
        ended = plain->older[at];
        plain->flags[ended] |= EP_BLOCK_MENDED;
    } else {
        plain->living[at] = -1;
    }
    plain->older[at] = -1;
    plain->death[ended] = (uint32_t)event;
    plain->event_block[event] = ended;
}

static int32_t
plain_take_moving(plain_pairing *plain, const ep_columns *columns, int32_t event)
{
    size_t row = columns->alloc_row[event];
    int32_t from = plain->moving[columns->thread[row]];
    plain->moving[columns->thread[row]] = -1;
    if (from < 0 || ep_kinds[columns->kind[columns->alloc_row[from]]].domain !=
                        ep_kinds[columns->kind[row]].domain) {
        return -1;
    }
    return from;
}

static void
plain_event(plain_pairing *plain, const ep_blocks *blocks, int32_t event)
{
    const ep_columns *columns = blocks->input->columns;
    const ep_kind_info *info = ep_alloc_kind(blocks->input, (size_t)event);
    uint64_t at = columns->address[event];
    if (info->pairing == EP_PAIRING_CLOSES) {
        plain_death(plain, blocks, event);
    } else if (info->pairing == EP_PAIRING_OPENS) {
        int32_t block = plain->count++;
        bool moved = strcmp(info->word, "realloc") == 0;
        int32_t from = moved ? plain_take_moving(plain, columns, event) : -1;
        plain->previous[block] = from >= 0 ? plain->event_block[from] : -1;
        plain->event_block[event] = block;
        plain->death[block] = EP_ROW_NONE;
        plain->on_top_of[block] = plain->older[at] = plain->living[at];
        plain->living[at] = block;
    } else {
        int32_t from = plain_take_moving(plain, columns, event);
        plain->event_block[event] = -1;
        if (from >= 0 && columns->address[from] == at && plain->event_block[from] >= 0 &&
            plain->living[at] < 0) {
            int32_t block = plain->event_block[from];
            plain->event_block[from] = -1;
            plain->death[block] = EP_ROW_NONE;
            plain->flags[block] |= EP_BLOCK_REVIVED;
            plain->living[at] = block;
        }
    }
}

/* New: the pairing of a whole window. */
static plain_pairing *
plain_new(const ep_blocks *blocks)
{
    plain_pairing *plain = must(calloc(1, sizeof *plain));
    memset(plain->living, -1, sizeof plain->living);
    memset(plain->older, -1, sizeof plain->older);
    memset(plain->moving, -1, sizeof plain->moving);
    for (size_t event = 0; event < blocks->input->columns->alloc_count; event++) {
        plain_event(plain, blocks, (int32_t)event);
    }
    for (int32_t block = 0; block < plain->count; block++) {
        int32_t older = plain->on_top_of[block];
        if (older >= 0 && plain->death[older] == EP_ROW_NONE) {
            plain->death[older] = blocks->birth[block];
            plain->flags[older] |= EP_BLOCK_FREE_LOST;
        }
    }
    return plain;
}

START_TEST(any_allocations_are_paired_as_by_search)
{
    static const unsigned operations[] = {
        EP_KIND_MALLOC,
        EP_KIND_CALLOC,
        EP_KIND_REALLOC,
        EP_KIND_REALLOC_FREE,
        EP_KIND_FREE,
        EP_KIND_REALLOC_FAILED,
        EP_KIND_REALLOC_FREE,
        EP_KIND_FREE,
    };
    for (uint64_t seed = 0; seed < 60; seed++) {
        uint64_t random = seed;
        program *p = program_new();
        for (int i = 0; i < 3000; i++) {
            unsigned operation = operations[below(&random, 8)];
            unsigned kind = operation + (unsigned)below(&random, 1 + seed % 3);
            bool is_free = ep_kinds[kind].form == EP_FORM_FREE;
            int64_t size = is_free ? -1 : (int64_t)below(&random, 100);
            program_alloc(p, (int32_t)below(&random, 3), kind, below(&random, ADDRESSES), size);
            p->now += one_in(&random, 3) ? (int64_t)below(&random, 2 * EP_PAIR_SKEW_NS) : 0;
        }

        ep_blocks blocks;
        ck_assert_int_eq(ep_pair_blocks(&p->input, NULL, &blocks), EP_OK);

        plain_pairing *plain = plain_new(&blocks);
        ck_assert_int_eq(blocks.count, plain->count);
        ck_assert_uint_eq(blocks.older_count, plain->unknown);
        for (int32_t i = 0; i < plain->count; i++) {
            ck_assert_uint_eq(blocks.death[i], plain->death[i]);
            ck_assert_int_eq(blocks.previous[i], plain->previous[i]);
            ck_assert_uint_eq(blocks.flags[i], plain->flags[i]);
        }
        for (size_t event = 0; event < p->columns.alloc_count; event++) {
            ck_assert_int_eq(blocks.event_block[event], plain->event_block[event]);
        }
        free(plain);
        ep_blocks_clear(&blocks);
        program_free(p);
    }
}
END_TEST

EP_TEST_MAIN("pair_blocks",
             free_ends_the_block_and_learns_its_size,
             size_of_a_block_may_exceed_32_bits,
             any_address_is_a_key,
             realloc_makes_a_block_that_knows_the_previous,
             realloc_in_another_domain_is_not_of_that_block,
             realloc_of_an_unknown_block_has_no_previous,
             block_survives_a_realloc_that_failed,
             failed_realloc_without_its_first_half_changes_nothing,
             values_are_no_blocks_and_part_no_realloc,
             unknown_frees_are_older_until_something_may_be_lost,
             late_free_of_another_thread_is_mended,
             free_of_the_same_thread_leaves_the_older_free_lost,
             free_much_later_leaves_the_older_free_lost,
             deaths_are_told_apart_by_flags,
             moment_counts_the_events_up_to_a_time,
             many_blocks_may_be_alive,
             reused_addresses_stay_linear,
             random_allocations_are_rebuilt_exactly,
             any_allocations_are_paired_as_by_search)
