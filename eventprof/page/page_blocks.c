/* The charges of blocks, what their holders held, and where the tiles of births and deaths begin. */
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "endings.h"
#include "hash_index.h"
#include "memory.h"
#include "page.h"

/* ---- Candidates for places ------------------------------------------------------------------- */

static uint64_t
pair_of(int32_t function, int32_t line)
{
    return (uint64_t)(uint32_t)(function + 1) << 32 | (uint32_t)(line + 1);
}

static int
compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static int32_t
find_candidate(const ep_page *page, uint64_t pair)
{
    size_t low = 0, high = page->candidate_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (page->candidates[middle] <= pair) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return (int32_t)low;
}

static EP_CHECKED ep_status
take_candidates(ep_page *page)
{
    const ep_id_map *map = page->trace->input.map;
    size_t most = 2 * map->site_count + page->function_count + 1, count = 0;
    page->candidates = ep_array_new(most, sizeof *page->candidates);
    page->of_site = ep_array_new(map->site_count, sizeof *page->of_site);
    page->of_caller = ep_array_new(map->site_count, sizeof *page->of_caller);
    page->of_function = ep_array_new(page->function_count, sizeof *page->of_function);
    if (page->candidates == NULL || page->of_site == NULL || page->of_caller == NULL ||
        page->of_function == NULL) {
        return EP_NOMEM;
    }
    uint64_t *pairs = page->candidates;
    pairs[count++] = pair_of(-1, -1);
    for (size_t function = 0; function < page->function_count; function++) {
        pairs[count++] = pair_of((int32_t)function, -1);
    }
    for (size_t site = 0; site < map->site_count; site++) {
        /* Most sites of a process may not be in this trace. */
        if (map->site_function[site] >= 0 || map->site_line[site] >= 0) {
            pairs[count++] = pair_of(map->site_function[site], map->site_line[site]);
        }
        if (map->site_caller[site] >= 0) {
            pairs[count++] = pair_of(map->site_caller[site], map->site_line[site]);
        }
    }
    qsort(pairs, count, sizeof *pairs, compare);
    page->candidate_count = 0;
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || pairs[i] != pairs[page->candidate_count - 1]) {
            pairs[page->candidate_count++] = pairs[i];
        }
    }
    for (size_t function = 0; function < page->function_count; function++) {
        page->of_function[function] = find_candidate(page, pair_of((int32_t)function, -1));
    }
    for (size_t site = 0; site < map->site_count; site++) {
        int32_t function = map->site_function[site];
        page->of_site[site] = find_candidate(
            page, pair_of(function != EP_ID_UNSEEN ? function : -1, map->site_line[site]));
        page->of_caller[site] =
            map->site_caller[site] >= 0
                ? find_candidate(page, pair_of(map->site_caller[site], map->site_line[site]))
                : 0;
    }
    return EP_OK;
}

/* ---- Charges --------------------------------------------------------------------------------- */

typedef struct charge_finder {
    ep_page *page;
    size_t capacity;          /* of charges */
    ep_hash_index by_key;     /* of page->charges */
    int32_t last;             /* what was found last: often it is wanted again */
} charge_finder;

static bool
is_same(const ep_page_charge *a, const ep_page_charge *b)
{
    return a->function == b->function && a->line == b->line && a->own == b->own;
}

static bool
has_key(const void *charges, size_t row, const void *key)
{
    return is_same((const ep_page_charge *)charges + row, key);
}

static uint64_t
hash_of(const void *charges, size_t row)
{
    const ep_page_charge *charge = (const ep_page_charge *)charges + row;
    uint64_t hash = (uint64_t)(uint32_t)charge->function * UINT64_C(0x9E3779B97F4A7C15);
    hash = (hash ^ (uint32_t)charge->line) * UINT64_C(0xC2B2AE3D27D4EB4F);
    hash = (hash ^ (uint32_t)charge->own) * UINT64_C(0x165667B19E3779F9);
    return hash >> 32;
}

/* Returns: the number; -1: no memory. */
static int32_t
find_charge(charge_finder *finder, const ep_page_charge *wanted)
{
    ep_page *page = finder->page;
    if (finder->last >= 0 && is_same(&page->charges[finder->last], wanted)) {
        return finder->last;
    }
    if (!ep_hash_index_reserve(&finder->by_key, hash_of, page->charges)) {
        return -1;
    }
    uint32_t *slot =
        ep_hash_index_slot(&finder->by_key, hash_of(wanted, 0), has_key, page->charges, wanted);
    if (*slot == 0) {
        if (!ep_grow_raw((void **)&page->charges, &finder->capacity, page->charge_count + 1,
                         sizeof *page->charges)) {
            return -1;
        }
        page->charges[page->charge_count] = *wanted;
        ep_hash_index_add(&finder->by_key, slot, page->charge_count++);
    }
    finder->last = (int32_t)*slot - 1;
    return finder->last;
}

/* A block's holders, from its birth. */
static ep_page_charge
holders_of(const ep_page *page, size_t block)
{
    const ep_trace *trace = page->trace;
    const ep_columns *columns = trace->input.columns;
    size_t row = ep_alloc_row(&trace->input, trace->blocks.birth[block]);
    int32_t call = trace->calls.row_call[row];
    uint32_t site = columns->id[row];
    const ep_id_map *map = trace->input.map;
    site = site < map->site_count ? site : 0;
    int32_t executing = map->site_function[site];
    ep_page_charge charged = {0};
    charged.function = (call >= 0 ? trace->calls.function[call] : executing) + 1;
    charged.line = page->of_site[site];
    int32_t owner = call >= 0 ? page->calls[call].owner : 0;
    charged.own = executing >= 0 && page->own[executing] ? charged.line : owner;
    return charged;
}

/* ---- What holders held ----------------------------------------------------------------------- */

static EP_CHECKED bool
held_open(ep_page_held *held, size_t count)
{
    held->count = count;
    held->held = ep_calloc(count, sizeof *held->held);
    held->area = ep_calloc(count, sizeof *held->area);
    return held->held != NULL && held->area != NULL;
}

/* The candidates that charges have are the places. */
static EP_CHECKED ep_status
number_places(ep_page *page)
{
    page->number = ep_calloc(page->candidate_count, sizeof *page->number);
    page->places = ep_array_new(page->candidate_count, sizeof *page->places);
    if (page->number == NULL || page->places == NULL) {
        return EP_NOMEM;
    }
    page->number[0] = 1;
    for (size_t charge = 0; charge < page->charge_count; charge++) {
        page->number[page->charges[charge].line] = page->number[page->charges[charge].own] = 1;
    }
    for (size_t candidate = 0; candidate < page->candidate_count; candidate++) {
        bool used = page->number[candidate] != 0;
        page->number[candidate] = used ? (int32_t)page->place_count : -1;
        if (used) {
            page->places[page->place_count++] = (int32_t)candidate;
        }
    }
    return EP_OK;
}

static EP_CHECKED ep_status
sum_up_held(ep_page *page)
{
    for (int by = 0; by < EP_PAGE_HOLDERS; by++) {
        ep_page_held *held = &page->held[by];
        if (!held_open(held, by == 0 ? page->function_count + 1 : page->place_count)) {
            return EP_NOMEM;
        }
        for (size_t i = 0; i < page->charge_count; i++) {
            int32_t holder = ep_page_holder(page, &page->charges[i], by);
            held->held[holder] += page->charges[i].held;
            held->area[holder] += page->charges[i].area;
        }
    }
    return EP_OK;
}

/* ---- Events ---------------------------------------------------------------------------------- */

static int64_t
event_time(const ep_page *page, size_t event)
{
    return page->trace->input.columns->time_ns[ep_alloc_row(&page->trace->input, event)];
}

static EP_CHECKED bool
take_block(charge_finder *finder, size_t block, const ep_page_wanted *wanted)
{
    ep_page *page = finder->page;
    const ep_blocks *blocks = &page->trace->blocks;
    int64_t start = event_time(page, blocks->birth[block]), size = ep_block_size(blocks, block);
    int64_t end = blocks->death[block] != EP_ROW_NONE ? event_time(page, blocks->death[block])
                                                      : ep_block_gone_ns(blocks, block);
    bool dies = end >= 0;
    end = dies ? end : wanted->duration_ns;
    ep_page_charge charged = holders_of(page, block);
    int32_t number = find_charge(finder, &charged);
    if (number < 0) {
        return false;
    }
    page->charge_of[block] = number;
    double bytes = size > 0 ? (double)size : 0;
    bool at_peak = start <= wanted->peak_ns && (!dies || end > wanted->peak_ns);
    page->charges[number].held += at_peak ? bytes : 0;
    page->charges[number].area += bytes * (double)(end - start);
    return true;
}

/* Counts an event, with which a tile may begin: `here` says where. */
static EP_CHECKED bool
count_event(ep_page *page, size_t *capacity, const ep_page_mark *here)
{
    if (page->event_count++ % page->tile != 0) {
        return true;
    }
    if (!ep_grow_raw((void **)&page->marks, capacity, page->mark_count + 1, sizeof *page->marks)) {
        return false;
    }
    page->marks[page->mark_count++] = *here;
    return true;
}

static EP_CHECKED ep_status
take_events(charge_finder *finder, const ep_page_wanted *wanted)
{
    ep_page *page = finder->page;
    const ep_blocks *blocks = &page->trace->blocks;
    const size_t events = page->trace->input.columns->alloc_count;
    const ep_block_ending *ending = ep_blocks_ending_of(blocks, 0);
    ep_page_mark at = {0};
    size_t capacity = 0;
    for (; at.event <= events; at.event++) {
        ep_column_row(at.event);
        while (ending != NULL && ending->event <= at.event) {
            if (!count_event(page, &capacity, &at)) {
                return EP_NOMEM;
            }
            ending = ++at.gone < ending->gone_to ? ending : ep_blocks_ending_of(blocks, at.gone);
        }
        int32_t block = at.event < events ? blocks->event_block[at.event] : -1;
        if (block < 0) {
            continue;
        }
        bool is_birth = (uint32_t)block == at.births;
        /* Blocks whose free was lost end where their address was given to another block. */
        while (is_birth && at.lost < blocks->free_lost_count &&
               blocks->death[blocks->free_lost[at.lost]] == at.event) {
            if (!count_event(page, &capacity, &at)) {
                return EP_NOMEM;
            }
            at.lost++;
        }
        if (!count_event(page, &capacity, &at)) {
            return EP_NOMEM;
        }
        if (is_birth) {
            if (!take_block(finder, at.births, wanted)) {
                return EP_NOMEM;
            }
            at.births++;
        }
    }
    return EP_OK;
}

ep_status
ep_page_take_blocks(ep_page *page, const ep_page_wanted *wanted)
{
    ep_status status = take_candidates(page);
    if (status != EP_OK) {
        return status;
    }
    status = ep_page_take_calls(page);    /* it needs candidates for the owners of calls */
    if (status != EP_OK) {
        return status;
    }
    page->block_count = page->trace->blocks.count;
    page->charge_of = ep_column_new(page->block_count, sizeof *page->charge_of);
    charge_finder finder = {.page = page, .last = -1};
    status = page->charge_of != NULL ? take_events(&finder, wanted) : EP_NOMEM;
    ep_hash_index_free(&finder.by_key);
    if (status == EP_OK) {
        status = number_places(page);
    }
    return status == EP_OK ? sum_up_held(page) : status;
}

ep_status
ep_page_set_bands(ep_page *page, int by, const int64_t *holders, size_t count)
{
    size_t room = page->held[by].count;
    if (count > EP_PAGE_BANDS_MAX || page->curve[by] != NULL) {
        return EP_ARGUMENT;
    }
    for (size_t band = 0; band < count; band++) {
        if (holders[band] < 0 || (size_t)holders[band] >= room) {
            return EP_ARGUMENT;
        }
    }
    uint8_t *band_of = ep_array_new(room, 1);
    _Atomic int64_t *curve = ep_calloc(EP_PAGE_BINS * (count + 1), sizeof *curve);
    if (band_of == NULL || curve == NULL) {
        free(band_of);
        free(curve);
        return EP_NOMEM;
    }
    page->curve[by] = curve;
    memset(band_of, (int)count, room);
    for (size_t band = 0; band < count; band++) {
        band_of[holders[band]] = (uint8_t)band;
    }
    for (size_t i = 0; i < page->charge_count; i++) {
        page->charges[i].band[by] = band_of[ep_page_holder(page, &page->charges[i], by)];
    }
    page->bands[by] = (int)count + 1;
    free(band_of);
    return EP_OK;
}
