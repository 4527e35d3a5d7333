/* decode_plain.h: whichever way the processor allows, the rows are those of one record at a time. */
#include <string.h>

#include "ep_check.h"
#include "decode_plain.h"

#define WORDS 6000
#define LAST_KIND EP_KIND_DESTROY
#define ALL_KINDS ((EP_KIND_BIT(LAST_KIND) - 1) * 2)
#define HIGH (UINT64_C(7) << 32)

/* ---- Streams --------------------------------------------------------------------------------- */

static uint64_t random_state;

/* splitmix64 */
static uint64_t
below(uint64_t limit)
{
    uint64_t z = (random_state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (z ^ (z >> 31)) % limit;
}

typedef struct stream_shape {
    uint64_t block_every;      /* records: on average one of so many is a block's; 0: none */
    uint64_t odd_every;        /* one of so many is of no kind, or CONTROL */
    uint64_t back_every;       /* one of so many is earlier than the one before */
    uint64_t first_low;        /* ticks of the first record */
    uint64_t longest_step;     /* between two ticks */
} stream_shape;

/* One word more than `WORDS` is there, as in a chunk. */
static void
fill_words(uint64_t *words, const stream_shape *shape)
{
    uint64_t low = shape->first_low;
    for (size_t i = 0; i < WORDS + 1; i++) {
        bool block = shape->block_every != 0 && below(shape->block_every) == 0;
        bool odd = shape->odd_every != 0 && below(shape->odd_every) == 0;
        bool back = shape->back_every != 0 && below(shape->back_every) == 0;
        uint64_t kind = block ? EP_KIND_MALLOC_RAW + below(LAST_KIND - EP_KIND_MALLOC_RAW + 1)
                              : 1 + below(EP_KIND_C_EXCEPTION);
        kind = odd ? below(2) * (LAST_KIND + 1 + below(63 - LAST_KIND)) : kind;
        low += below(shape->longest_step + 1);
        words[i] = EP_WORD0(back ? low - below(1000) : low, kind, below(EP_PAYLOAD_MAX + 1));
        if (!odd && i < WORDS && ep_kinds[kind].words == 2) {
            words[++i] = below(UINT64_MAX);
        }
    }
}

/* ---- Reading --------------------------------------------------------------------------------- */

typedef struct result {
    ep_columns rows;
    int64_t time_ns[WORDS];
    uint8_t kind[WORDS];
    uint32_t id[WORDS];
    uint64_t alloc_row[WORDS], address[WORDS];
    int64_t size[WORDS];
    uint64_t recorded[EP_KIND_COUNT];
    size_t words;
    int64_t last_ns;
} result;

static result *
read_by(ep_plain_way way, const uint64_t *words, const ep_plain *asked)
{
    result *r = calloc(1, sizeof *r);
    ck_assert_ptr_nonnull(r);
    r->rows = (ep_columns){.time_ns = r->time_ns,
                           .kind = r->kind,
                           .id = r->id,
                           .alloc_row = r->alloc_row,
                           .address = r->address,
                           .size = r->size};
    ep_plain_mask masks[EP_PLAIN_KINDS];
    ep_plain_find_masks(asked->kinds, masks);
    ep_plain plain = *asked;
    plain.masks = masks;
    plain.at = words;
    plain.limit = words + WORDS;
    plain.rows = &r->rows;
    plain.recorded = r->recorded;
    ep_plain_use(way);
    ep_plain_read(&plain);
    r->words = (size_t)(plain.at - words);
    r->last_ns = plain.last_ns;
    return r;
}

static void
assert_same(const result *a, const result *b, int seed)
{
    size_t rows = b->rows.count, blocks = b->rows.alloc_count;
    if (a->words != b->words || a->rows.count != rows || a->rows.alloc_count != blocks ||
        a->last_ns != b->last_ns || memcmp(a->time_ns, b->time_ns, rows * 8) != 0 ||
        memcmp(a->kind, b->kind, rows) != 0 || memcmp(a->id, b->id, rows * 4) != 0 ||
        memcmp(a->alloc_row, b->alloc_row, blocks * 8) != 0 ||
        memcmp(a->address, b->address, blocks * 8) != 0 ||
        memcmp(a->size, b->size, blocks * 8) != 0 ||
        memcmp(a->recorded, b->recorded, sizeof a->recorded) != 0) {
        ck_abort_msg("seed %d: %zu rows of %zu words, one by one %zu of %zu, or they differ", seed,
                     a->rows.count, a->words, rows, b->words);
    }
}

/* Returns: rows in all. */
static size_t
assert_all_ways_agree(int seed, const stream_shape *shape, const ep_plain *asked)
{
    static uint64_t words[WORDS + 1];
    random_state = (uint64_t)seed;
    fill_words(words, shape);
    result *expected = read_by(EP_PLAIN_ONE_BY_ONE, words, asked);
    size_t rows = expected->rows.count;
    for (int way = 0; way < EP_PLAIN_WAY_COUNT; way++) {
        if (ep_plain_can((ep_plain_way)way)) {
            result *found = read_by((ep_plain_way)way, words, asked);
            assert_same(found, expected, seed);
            free(found);
        }
    }
    free(expected);
    return rows;
}

static ep_plain
plain_ticks(double scale, double base_ns)
{
    return (ep_plain){
        .kinds = ALL_KINDS,
        .high = HIGH,
        .first_ticks = HIGH + 1000,
        .last_ticks = HIGH + UINT32_MAX - 1000,
        .stretch = {.last_ticks = UINT64_MAX,
                    .base_ticks = HIGH - 12345,
                    .base_ns = base_ns,
                    .scale = scale},
        .capacity = WORDS,
        .alloc_capacity = WORDS,
    };
}

START_TEST(all_ways_give_the_same_rows)
{
    const stream_shape shapes[] = {
        {0, 0, 0, 1000, 100},            /* calls alone */
        {0, 0, 0, 1000, 0},              /* all at once */
        {0, 0, 0, 1000, 1000000},        /* up to where ticks are no longer plain */
        {0, 2000, 500, 1000, 100},
        {0, 500, 0, 1000, 100},
        {4, 0, 0, 1000, 100},            /* mixed */
        {100, 0, 0, 1000, 100},
        {3, 3000, 100, 1000, 100},
        {500, 0, 30, 1000, 100},
        {0, 0, 0, 10, 100},              /* the first is not plain */
        {0, 0, 0, UINT32_MAX - 50000, 100},
    };
    const double scales[] = {0.38461538461538464, 1.0, 41.666, 0.0};

    size_t rows = 0;
    for (int seed = 0; seed < 40; seed++) {
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            ep_plain asked = plain_ticks(scales[seed % 4], seed % 3 == 0 ? -0.75 : 1e9 * seed + 0.3);
            rows += assert_all_ways_agree(1 + seed * 100 + (int)i, &shapes[i], &asked);
        }
    }

    ck_assert_uint_gt(rows, 500000);
}
END_TEST

START_TEST(all_ways_end_where_there_is_no_room)
{
    const stream_shape shape = {50, 0, 0, 1000, 100};

    for (int seed = 1; seed < 200; seed++) {
        ep_plain asked = plain_ticks(1.0, 0);
        asked.capacity = below(WORDS);
        asked.alloc_capacity = seed % 2 == 0 ? WORDS : 1 + below(40);
        assert_all_ways_agree(seed, &shape, &asked);
    }
}
END_TEST

START_TEST(all_ways_leave_out_what_is_not_wanted)
{
    const stream_shape shape = {10, 0, 0, 1000, 100};

    for (int seed = 1; seed < 100; seed++) {
        ep_plain asked = plain_ticks(1.0, 0);
        asked.kinds = ALL_KINDS & below(UINT64_MAX);
        asked.kinds |= seed % 2 == 0 ? (EP_KIND_BIT(EP_KIND_C_EXCEPTION) - 1) * 2 : 0;
        assert_all_ways_agree(seed, &shape, &asked);
    }
}
END_TEST

/* The vectors' numbers are exact in a double only; what is beyond is read one by one. */
START_TEST(all_ways_give_the_same_times_at_the_ends_of_numbers)
{
    const stream_shape shape = {0, 0, 0, 1000, 100};
    const double bases_ns[] = {-1e6, -0.5, 0, 0.999, 4e15, 9e15, 1e18};
    const uint64_t bases[] = {HIGH, 0, HIGH + 5000, HIGH - (UINT64_C(1) << 51), HIGH + (UINT64_C(1) << 60)};

    int seed = 0;
    for (size_t i = 0; i < sizeof bases_ns / sizeof *bases_ns; i++) {
        for (size_t j = 0; j < sizeof bases / sizeof *bases; j++) {
            for (int last = 0; last < 3; last++) {
                ep_plain asked = plain_ticks(0.5, bases_ns[i]);
                asked.stretch.base_ticks = bases[j];
                asked.last_ns = last * 100000;
                assert_all_ways_agree(++seed, &shape, &asked);
            }
        }
    }
}
END_TEST

EP_TEST_MAIN("decode_plain",
             all_ways_give_the_same_rows,
             all_ways_end_where_there_is_no_room,
             all_ways_leave_out_what_is_not_wanted,
             all_ways_give_the_same_times_at_the_ends_of_numbers)
