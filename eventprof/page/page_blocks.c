/* The holders of blocks, and where the tiles of births and deaths begin. */
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "endings.h"
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
        page->of_site[site] =
            find_candidate(page, pair_of(map->site_function[site], map->site_line[site]));
        page->of_caller[site] =
            map->site_caller[site] >= 0
                ? find_candidate(page, pair_of(map->site_caller[site], map->site_line[site]))
                : 0;
    }
    return EP_OK;
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

static void
hold(ep_page_held *held, int32_t at, double at_peak, double area)
{
    held->held[at] += at_peak;
    held->area[at] += area;
}

/* Moves the sums of used candidates to the begin: they are the places then. */
static void
number_places(ep_page *page, const uint8_t *used)
{
    page->place_count = 0;
    for (size_t candidate = 0; candidate < page->candidate_count; candidate++) {
        page->number[candidate] = -1;
        if (candidate > 0 && !used[candidate]) {
            continue;
        }
        size_t place = page->place_count++;
        page->number[candidate] = (int32_t)place;
        page->places[place] = (int32_t)candidate;
        for (int by = 1; by < EP_PAGE_HOLDERS; by++) {
            page->held[by].held[place] = page->held[by].held[candidate];
            page->held[by].area[place] = page->held[by].area[candidate];
        }
    }
    page->held[1].count = page->held[2].count = page->place_count;
}

static int64_t
event_time(const ep_page *page, size_t event)
{
    return page->trace->input.columns->time_ns[ep_alloc_row(&page->trace->input, event)];
}

static void
take_block(ep_page *page, size_t block, const ep_page_wanted *wanted, uint8_t *used)
{
    const ep_blocks *blocks = &page->trace->blocks;
    int64_t start = event_time(page, blocks->birth[block]), size = ep_block_size(blocks, block);
    int64_t end = blocks->death[block] != EP_ROW_NONE ? event_time(page, blocks->death[block])
                                                      : ep_block_gone_ns(blocks, block);
    bool dies = end >= 0;
    end = dies ? end : wanted->duration_ns;
    ep_page_holders of = ep_page_holders_of(page, block);
    double bytes = size > 0 ? (double)size : 0;
    double at_peak = start <= wanted->peak_ns && (!dies || end > wanted->peak_ns) ? bytes : 0;
    double area = bytes * (double)(end - start);
    hold(&page->held[0], of.function, at_peak, area);
    hold(&page->held[1], of.line, at_peak, area);
    hold(&page->held[2], of.own, at_peak, area);
    used[of.line] = used[of.own] = 1;
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
take_events(ep_page *page, const ep_page_wanted *wanted, uint8_t *used)
{
    const ep_blocks *blocks = &page->trace->blocks;
    const size_t events = page->trace->input.columns->alloc_count;
    const ep_block_ending *ending = ep_blocks_ending_of(blocks, 0);
    ep_page_mark at = {0};
    size_t capacity = 0;
    for (; at.event <= events; at.event++) {
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
            take_block(page, at.births, wanted, used);
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
    uint8_t *used = ep_calloc(page->candidate_count, 1);
    page->number = ep_array_new(page->candidate_count, sizeof *page->number);
    page->places = ep_array_new(page->candidate_count, sizeof *page->places);
    if (used == NULL || page->number == NULL || page->places == NULL ||
        !held_open(&page->held[0], page->function_count + 1) ||
        !held_open(&page->held[1], page->candidate_count) ||
        !held_open(&page->held[2], page->candidate_count)) {
        free(used);
        return EP_NOMEM;
    }
    status = take_events(page, wanted, used);
    number_places(page, used);
    free(used);
    return status;
}

ep_status
ep_page_set_bands(ep_page *page, int by, const int64_t *holders, size_t count)
{
    size_t room = by == 0 ? page->function_count + 1 : page->place_count;
    if (count > EP_PAGE_BANDS_MAX || page->band[by] != NULL) {
        return EP_ARGUMENT;
    }
    page->band[by] = ep_array_new(room, 1);
    page->curve[by] = ep_calloc(EP_PAGE_BINS * (count + 1), sizeof *page->curve[by]);
    if (page->band[by] == NULL || page->curve[by] == NULL) {
        return EP_NOMEM;
    }
    memset(page->band[by], (int)count, room);
    page->bands[by] = (int)count + 1;
    for (size_t band = 0; band < count; band++) {
        if (holders[band] < 0 || (size_t)holders[band] >= room) {
            return EP_ARGUMENT;
        }
        page->band[by][holders[band]] = (uint8_t)band;
    }
    return EP_OK;
}
