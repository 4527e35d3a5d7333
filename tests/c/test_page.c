/* page.h: tiles of any size say the same, whoever makes them. tests/python/page/test_page_data.py compares
 * them with the tables. */
#include "ep_program.h"

#include <pthread.h>

#include "fault.h"
#include "page.h"

/* ---- Tools ----------------------------------------------------------------------------------- */

typedef struct sheet {
    program *p;
    ep_id_map map;
    int32_t caller[SITES], line[SITES];
    ep_trace trace;
} sheet;

/* Few addresses, so that frees are lost; on some threads calls end late. Of a family, two of the threads
 * are a process that ends halfway. Returns: new, for sheet_free(). */
static sheet *
sheet_new(uint64_t seed, int events, bool is_family)
{
    static const int32_t process[THREADS] = {[3] = 1, [4] = 1};
    sheet *s = must(calloc(1, sizeof *s));
    program *p = s->p = program_new();
    uint64_t random = seed;
    program_open(p, 1, EP_KIND_CALL, 3);
    for (int i = 0; i < events; i++) {
        program_hold_time(p, one_in(&random, 3));
        int32_t thread = (int32_t)below(&random, is_family && i > events / 2 ? 3 : THREADS);
        uint32_t site = random_site(&random);
        p->until_ns[thread] = p->now;
        switch (below(&random, 5)) {
            case 0:
                program_call(p, thread, EP_KIND_CALL, site);
                break;
            case 1:
                program_call(p, thread, EP_KIND_RETURN, NAME_OF(below(&random, FUNCTIONS)));
                break;
            case 2:
                program_alloc(p, thread, EP_KIND_FREE_OBJ, 64 * below(&random, 20), -1);
                break;
            default:
                program_alloc(p, thread, EP_KIND_MALLOC_OBJ, 64 * below(&random, 20),
                              (int64_t)below(&random, 999));
                p->columns.id[p->columns.count - 1] = site;
        }
    }
    if (is_family) {
        int64_t end_ns = p->until_ns[3] > p->until_ns[4] ? p->until_ns[3] : p->until_ns[4];
        p->until_ns[3] = p->until_ns[4] = end_ns;
        p->input.thread_process = process;
        p->input.open_until_ns = p->until_ns;
    }
    s->map = p->map;
    for (int32_t site = 0; site < SITES; site++) {
        s->caller[site] = site % 3 == 0 ? -1 : (site + 2) % FUNCTIONS;
        s->line[site] = site % 5 - 1;
    }
    s->map.site_caller = s->caller;
    s->map.site_line = s->line;
    p->input.map = &s->map;
    s->trace.input = p->input;
    s->trace.calls = program_calls(p);
    s->trace.blocks = program_blocks(p, &s->trace.calls);
    return s;
}

static void
sheet_free(sheet *s)
{
    ep_calls_clear(&s->trace.calls);
    ep_blocks_clear(&s->trace.blocks);
    program_free(s->p);
    free(s);
}

static ep_status
open_page(const sheet *s, size_t tile, ep_page **out)
{
    static const uint8_t own[FUNCTIONS] = {[1] = 1, [4] = 1}, codes[256] = {[EP_KIND_RESUME] = 1};
    ep_page_wanted wanted = {
        .grain = 3,
        .tile = tile,
        .group = 16,
        .own = own,
        .codes = codes,
        .peak_ns = s->p->now / 2,
        .duration_ns = s->p->now,
    };
    return ep_page_open(&s->trace, &wanted, out);
}

static ep_page *
page_of(const sheet *s, size_t tile)
{
    ep_page *page = NULL;
    ck_assert_int_eq(open_page(s, tile, &page), EP_OK);
    int64_t holder = 1;
    for (int by = 0; by < EP_PAGE_HOLDERS; by++) {
        ck_assert_int_eq(ep_page_set_bands(page, by, &holder, 1), EP_OK);
    }
    return page;
}

static size_t
tiles_of(const ep_page *page)
{
    return (page->event_count + page->tile - 1) / page->tile;
}

static uint64_t
joined(const uint8_t *planes, size_t bytes, size_t rows, size_t row)
{
    uint64_t value = 0;
    for (size_t byte = 0; byte < bytes; byte++) {
        value |= (uint64_t)planes[byte * rows + row] << (8 * byte);
    }
    return value;
}

/* A value of a column of `rows` rows that begins at `planes`; *end: where the next column begins. */
static uint64_t
value_in(const uint8_t *planes, ep_planes_form form, size_t rows, size_t row, const uint8_t **end)
{
    uint64_t value = joined(planes, form.width, rows, row);
    planes += form.width * rows;
    size_t place = 0;
    for (size_t i = 0; i < form.rows; i++) {
        place += joined(planes, EP_PLANES_PLACE, form.rows, i);
        if (place == row) {
            const uint8_t *more = planes + (size_t)EP_PLANES_PLACE * form.rows;
            value |= joined(more, form.more, form.rows, i) << (8 * form.width);
        }
    }
    *end = planes + (size_t)(EP_PLANES_PLACE + form.more) * form.rows;
    return value;
}

static int64_t
unzigzag(uint64_t value)
{
    return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
}

/* The columns of a tile of blocks. */
enum {
    STEP,
    BORN,      /* bits */
    BACK,      /* of deaths */
    ROW,       /* zigzag */
    SIZE,      /* of births, like the next */
    CHARGE,
};

static uint64_t
value_at(const ep_page_part *part, int column, size_t row)
{
    const size_t all = part->rows, births = part->births;
    const size_t rows[] = {all, (all + 7) / 8, all - births, all, births, births};
    const uint8_t *planes = part->planes.bytes + part->low_bytes;
    uint64_t value = 0;
    for (int at = 0; at <= column; at++) {
        value = value_in(planes, part->planes.forms[at], rows[at], at == column ? row : 0, &planes);
    }
    return value;
}

static bool
is_birth(const ep_page_part *part, size_t row)
{
    return value_at(part, BORN, row / 8) >> (row % 8) & 1;
}

/* ---- Tests ----------------------------------------------------------------------------------- */

START_TEST(planes_have_one_byte_of_each_row)
{
    uint8_t room[64];
    ep_planes planes = {.bytes = room};

    ep_planes_put32(&planes, (uint32_t[]){1, 258, 3}, 3);
    ep_planes_put32(&planes, (uint32_t[]){0, 0}, 2);
    ep_planes_put64(&planes, (uint64_t[]){UINT64_MAX, 1}, 2);

    ck_assert_int_eq(planes.count, 3);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(planes.forms[i].width, ((int[]){2, 0, 8})[i]);
        ck_assert_int_eq(planes.forms[i].rows, 0);
    }
    ck_assert_uint_eq(planes.size, 6 + 16);
    ck_assert_mem_eq(room, ((uint8_t[]){1, 2, 3, 0, 1, 0, 255, 1, 255, 0}), 10);
    ck_assert_uint_eq(ep_zigzag(-3), 5);
    ck_assert_uint_eq(ep_zigzag(INT64_MIN), UINT64_MAX);
}
END_TEST

START_TEST(planes_that_few_rows_need_are_left_out)
{
    enum {
        ROWS = 4 * EP_PLANES_RARE
    };
    static uint64_t values[ROWS];
    static uint8_t room[8 * ROWS];
    for (size_t i = 0; i < ROWS; i++) {
        values[i] = i % 7;
    }
    values[3] = 1 << 20 | 5;
    values[700] = UINT64_MAX;
    values[ROWS - 1] = 256;
    ep_planes planes = {.bytes = room};
    const uint8_t *end;

    ep_planes_put64(&planes, values, ROWS);

    ck_assert_int_eq(planes.forms[0].width, 1);
    ck_assert_int_eq(planes.forms[0].more, 7);
    ck_assert_int_eq(planes.forms[0].rows, 3);
    for (size_t i = 0; i < ROWS; i++) {
        ck_assert_uint_eq(value_in(room, planes.forms[0], ROWS, i, &end), values[i]);
    }
    ck_assert_uint_eq(planes.size, (size_t)(end - room));
    values[5] = values[6] = 300;    /* too many */
    planes = (ep_planes){.bytes = room};
    ep_planes_put64(&planes, values, ROWS);
    ck_assert_int_eq(planes.forms[0].width, 2);
    ck_assert_int_eq(planes.forms[0].rows, 2);
}
END_TEST

START_TEST(bits_are_eight_to_a_byte)
{
    uint8_t room[4];
    ep_planes planes = {.bytes = room};

    ep_planes_put_bits(&planes, (uint32_t[]){1, 0, 1, 1, 0, 0, 0, 1, 0, 1}, 10);
    ep_planes_put_bits(&planes, NULL, 0);

    ck_assert_uint_eq(planes.size, 2);
    ck_assert_int_eq(planes.count, 2);
    ck_assert_uint_eq(room[0], 0x8D);
    ck_assert_uint_eq(room[1], 0x02);
}
END_TEST

START_TEST(low_bits_are_apart_where_they_are_noise)
{
    enum {
        ROWS = 1001
    };
    static uint64_t values[ROWS], before[ROWS];
    uint8_t room[ROWS];
    uint64_t random = 5;
    for (size_t i = 0; i < ROWS; i++) {
        values[i] = before[i] = below(&random, 1 << 20);
    }
    ep_planes planes = {.bytes = room};

    ck_assert_int_eq(ep_planes_put_low(&planes, values, ROWS), EP_PLANES_LOW);
    ck_assert_uint_eq(planes.size, (ROWS + 1) / 2);
    ck_assert_int_eq(planes.count, 0);
    for (size_t i = 0; i < ROWS; i++) {
        size_t half = planes.size;
        uint64_t low = i < half ? room[i] % 16u : room[i - half] / 16u;
        ck_assert_uint_eq(values[i] << EP_PLANES_LOW | low, before[i]);
    }

    for (size_t i = 0; i < ROWS; i++) {
        values[i] = before[i] = 40 + below(&random, 4);
    }
    ck_assert_int_eq(ep_planes_put_low(&planes, values, ROWS), 0);
    ck_assert_int_eq(ep_planes_put_low(&planes, values, 0), 0);
    ck_assert_mem_eq(values, before, sizeof values);
    ck_assert_uint_eq(planes.size, (ROWS + 1) / 2);
}
END_TEST

/* A tile may begin between the end of a block whose free was lost and the birth that ends it, and among the
 * blocks that end with their process. */
static void
births_and_deaths_are_the_same(bool is_family)
{
    sheet *s = sheet_new(7, 3000, is_family);
    const ep_blocks *blocks = &s->trace.blocks;
    ep_page *whole = page_of(s, 100000);
    ep_page_part all;
    ck_assert_int_eq(ep_page_block_tile(whole, 0, &all), EP_OK);
    ck_assert_uint_eq(all.rows, whole->event_count);
    ck_assert_uint_gt(blocks->free_lost_count, 100);
    size_t ends = blocks->gone_count;
    for (size_t block = 0; block < blocks->count; block++) {
        ends += blocks->death[block] != EP_ROW_NONE;
    }
    ck_assert_uint_eq(all.rows, blocks->count + ends);
    ck_assert_int_eq(blocks->gone_count > 0, is_family);

    for (size_t tile = 1; tile < 40; tile += 6) {
        ep_page *page = page_of(s, tile);
        size_t event = 0, birth = 0, death = 0, astray = 0;
        int64_t all_row = 0;
        for (size_t n = 0; n < tiles_of(page); n++) {
            ep_page_part part;
            ck_assert_int_eq(ep_page_block_tile(page, n, &part), EP_OK);
            int64_t call_row = 0;    /* the column has differences, from 0 at the begin of a tile */
            for (size_t row = 0; row < part.rows; row++, event++) {
                ck_assert_int_eq(is_birth(&part, row), is_birth(&all, event));
                call_row += unzigzag(value_at(&part, ROW, row));
                all_row += unzigzag(value_at(&all, ROW, event));
                ck_assert_int_eq(call_row, all_row);
            }
            for (size_t row = 0; row < part.rows - part.births; row++, death++) {
                ck_assert_uint_eq(value_at(&part, BACK, row), value_at(&all, BACK, death));
            }
            for (size_t row = 0; row < part.births; row++, birth++) {
                for (int column = SIZE; column <= CHARGE; column++) {
                    ck_assert_uint_eq(value_at(&part, column, row), value_at(&all, column, birth));
                }
            }
            astray += part.astray.count;
            ep_page_part_clear(page, &part);
        }
        ck_assert_uint_eq(event, all.rows);
        ck_assert_uint_eq(birth, s->trace.blocks.count);
        ck_assert_uint_eq(astray, all.astray.count);
        for (int by = 0; by < EP_PAGE_HOLDERS; by++) {
            for (size_t i = 0; i < 2 * EP_PAGE_BINS; i++) {
                ck_assert_int_eq(atomic_load(&page->curve[by][i]), atomic_load(&whole->curve[by][i]));
            }
        }
        ck_assert_int_eq(ep_page_block_tile(page, tiles_of(page), &all), EP_ARGUMENT);
        ck_assert_int_eq(ep_page_call_tile(page, SIZE_MAX / 2, &all), EP_ARGUMENT);
        ep_page_close(page);
    }
    ep_page_part_clear(whole, &all);
    ep_page_close(whole);
    sheet_free(s);
}

/* Charges are numbered by a hash table that grows; every block has the holders that its birth says. */
START_TEST(blocks_have_their_holders)
{
    sheet *s = sheet_new(13, 20000, false);
    ep_page *page = page_of(s, 64);
    const ep_trace *trace = &s->trace;
    for (size_t block = 0; block < trace->blocks.count; block++) {
        size_t row = ep_alloc_row(&trace->input, trace->blocks.birth[block]);
        int32_t call = trace->calls.row_call[row], site = (int32_t)trace->input.columns->id[row];
        int32_t executing = s->map.site_function[site];
        const ep_page_charge *charge = &page->charges[page->charge_of[block]];
        ck_assert_int_eq(ep_page_holder(page, charge, 0) - 1,
                         call >= 0 ? trace->calls.function[call] : executing);
        uint64_t line = page->candidates[page->places[ep_page_holder(page, charge, 1)]];
        ck_assert_int_eq((int32_t)(line >> 32) - 1, executing);
        ck_assert_int_eq((int32_t)(uint32_t)line - 1, s->line[site]);
    }
    ck_assert_uint_gt(page->charge_count, 64);
    for (size_t a = 0; a < page->charge_count; a++) {
        for (size_t b = 0; b < a; b++) {
            ck_assert(memcmp(&page->charges[a], &page->charges[b], 3 * sizeof(int32_t)) != 0);
        }
    }
    ep_page_close(page);
    sheet_free(s);
}
END_TEST

START_TEST(births_and_deaths_do_not_depend_on_where_tiles_begin)
{
    births_and_deaths_are_the_same(false);
    births_and_deaths_are_the_same(true);
}
END_TEST

typedef struct half {
    ep_page *page;
    size_t first;
} half;

static void *
make_every_second(void *context)
{
    half *share = context;
    for (size_t n = share->first; n < tiles_of(share->page); n += 2) {
        ep_page_part part;
        ck_assert_int_eq(ep_page_block_tile(share->page, n, &part), EP_OK);
        ep_page_part_clear(share->page, &part);
        if (n * share->page->tile < share->page->call_count) {
            ck_assert_int_eq(ep_page_call_tile(share->page, n, &part), EP_OK);
            ep_page_part_clear(share->page, &part);
        }
    }
    return NULL;
}

START_TEST(two_threads_make_tiles_at_the_same_time)
{
    sheet *s = sheet_new(11, 20000, false);
    ep_page *page = page_of(s, 64), *alone = page_of(s, 100000);
    half halves[2] = {{page, 0}, {page, 1}};
    pthread_t thread;

    ck_assert_int_eq(pthread_create(&thread, NULL, make_every_second, &halves[1]), 0);
    make_every_second(&halves[0]);
    pthread_join(thread, NULL);

    make_every_second(&(half){alone, 0});
    for (int by = 0; by < EP_PAGE_HOLDERS; by++) {
        for (size_t i = 0; i < 2 * EP_PAGE_BINS; i++) {
            ck_assert_int_eq(atomic_load(&page->curve[by][i]), atomic_load(&alone->curve[by][i]));
        }
    }
    ep_page_close(page);
    ep_page_close(alone);
    sheet_free(s);
}
END_TEST

START_TEST(a_band_of_no_holder_is_refused)
{
    sheet *s = sheet_new(3, 200, false);
    ep_page *page = NULL;
    ep_page_part part;
    ck_assert_int_eq(open_page(s, 64, &page), EP_OK);
    int64_t holders[EP_PAGE_BANDS_MAX + 1] = {0};

    ck_assert_int_eq(ep_page_block_tile(page, 0, &part), EP_ARGUMENT);
    ck_assert_int_eq(ep_page_set_bands(page, 0, holders, EP_PAGE_BANDS_MAX + 1), EP_ARGUMENT);
    holders[0] = FUNCTIONS + 1;
    ck_assert_int_eq(ep_page_set_bands(page, 0, holders, 1), EP_ARGUMENT);
    ck_assert_int_eq(ep_page_block_tile(page, 0, &part), EP_ARGUMENT);

    ep_page_close(page);
    sheet_free(s);
}
END_TEST

#ifdef EP_FAULT_POINTS
/* Whichever request for memory fails, nothing is left. */
START_TEST(without_memory_there_is_no_page)
{
    sheet *s = sheet_new(5, 2000, false);
    bool reached = true;
    for (long nth = 0; reached; nth++) {
        ep_page *page = NULL;
        ep_page_part part;
        int64_t holder = 1;
        atomic_store(&ep_fault_countdown, nth);
        ep_status status = open_page(s, 64, &page);
        for (int by = 0; by < EP_PAGE_HOLDERS && status == EP_OK; by++) {
            status = ep_page_set_bands(page, by, &holder, 1);
        }
        for (size_t n = 0; status == EP_OK && n < tiles_of(page); n++) {
            status = ep_page_block_tile(page, n, &part);
            if (status == EP_OK) {
                ep_page_part_clear(page, &part);
            }
        }
        reached = atomic_load(&ep_fault_countdown) < 0;
        atomic_store(&ep_fault_countdown, -1);
        ck_assert_int_eq(status, reached ? EP_NOMEM : EP_OK);
        ep_page_close(page);
    }
    sheet_free(s);
}
END_TEST
#define FAULT_TESTS , without_memory_there_is_no_page
#else
#define FAULT_TESTS
#endif

EP_TEST_MAIN("page", planes_have_one_byte_of_each_row, planes_that_few_rows_need_are_left_out,
             bits_are_eight_to_a_byte, low_bits_are_apart_where_they_are_noise, blocks_have_their_holders,
             births_and_deaths_do_not_depend_on_where_tiles_begin, two_threads_make_tiles_at_the_same_time,
             a_band_of_no_holder_is_refused FAULT_TESTS)
