/* The columns of tiles. Several threads may make tiles at the same time. */
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "endings.h"
#include "memory.h"
#include "page.h"

/* ---- Scratch --------------------------------------------------------------------------------- */

void
ep_page_scratch_free(ep_page_scratch *scratch)
{
    free(scratch->planes);
    for (size_t i = 0; i < EP_PAGE_WIDE; i++) {
        free(scratch->wide[i]);
    }
    for (size_t i = 0; i < EP_PAGE_NARROW; i++) {
        free(scratch->narrow[i]);
    }
    free(scratch->slots);
    free(scratch->counts);
    free(scratch);
}

/* Scratch is used again: new memory for each tile would cost more than the tile. */
static ep_page_scratch *
scratch_take(ep_page *page)
{
    ep_mutex_lock(&page->lock);
    ep_page_scratch *scratch = page->idle;
    page->idle = scratch != NULL ? scratch->next : NULL;
    ep_mutex_unlock(&page->lock);
    if (scratch != NULL) {
        return scratch;
    }
    scratch = ep_calloc(1, sizeof *scratch);
    if (scratch == NULL) {
        return NULL;
    }
    scratch->planes = ep_array_new(page->tile, EP_PAGE_PLANES);
    bool whole = scratch->planes != NULL;
    for (size_t i = 0; i < EP_PAGE_WIDE; i++) {
        scratch->wide[i] = ep_array_new(page->tile, sizeof *scratch->wide[i]);
        whole = whole && scratch->wide[i] != NULL;
    }
    for (size_t i = 0; i < EP_PAGE_NARROW; i++) {
        scratch->narrow[i] = ep_array_new(page->tile, sizeof *scratch->narrow[i]);
        whole = whole && scratch->narrow[i] != NULL;
    }
    scratch->slots = ep_array_new(page->tile, sizeof *scratch->slots);
    scratch->counts = ep_array_new(page->function_count + 2, sizeof *scratch->counts);
    if (!whole || scratch->slots == NULL || scratch->counts == NULL) {
        ep_page_scratch_free(scratch);
        return NULL;
    }
    return scratch;
}

static void
scratch_give(ep_page *page, ep_page_scratch *scratch)
{
    ep_mutex_lock(&page->lock);
    scratch->next = page->idle;
    page->idle = scratch;
    ep_mutex_unlock(&page->lock);
}

/* first: the tile's first row, of `count` in all. */
static EP_CHECKED bool
part_open(ep_page *page, size_t first, size_t count, ep_page_part *part)
{
    size_t rest = count - first;
    *part = (ep_page_part){.scratch = scratch_take(page), .rows = rest < page->tile ? rest : page->tile};
    if (part->scratch == NULL) {
        return false;
    }
    part->planes.bytes = part->scratch->planes;
    return true;
}

void
ep_page_part_clear(ep_page *page, ep_page_part *part)
{
    if (part->scratch != NULL) {
        scratch_give(page, part->scratch);
    }
    free(part->astray.links);
    *part = (ep_page_part){0};
}

/* Where each row goes if rows are sorted by their keys; equal keys keep their order. counts: room for
 * key_count + 1. */
static void
sort_slots(const uint32_t *keys, size_t rows, size_t key_count, uint32_t *counts, uint32_t *slots)
{
    memset(counts, 0, (key_count + 1) * sizeof *counts);
    for (size_t i = 0; i < rows; i++) {
        counts[keys[i] + 1]++;
    }
    for (size_t key = 0; key < key_count; key++) {
        counts[key + 1] += counts[key];
    }
    for (size_t i = 0; i < rows; i++) {
        slots[i] = counts[keys[i]]++;
    }
}

/* The columns of times, of all rows: first the low bits of those where these are noise. */
static void
put_times(ep_page_part *part, uint64_t **columns, int count)
{
    for (int i = 0; i < count; i++) {
        part->low_bits[i] = ep_planes_put_low(&part->planes, columns[i], part->rows);
    }
    part->low_bytes = part->planes.size;
    for (int i = 0; i < count; i++) {
        ep_planes_put64(&part->planes, columns[i], part->rows);
    }
    part->times_bytes = part->planes.size - part->low_bytes;
}

/* ---- Calls ----------------------------------------------------------------------------------- */

/* The row of the page that has a call. */
static size_t
find_row(const ep_page *page, size_t place)
{
    size_t low = 0, high = page->row_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if ((size_t)page->rows[middle].first <= place) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

ep_status
ep_page_call_tile(ep_page *page, size_t tile, ep_page_part *out)
{
    const ep_calls *calls = &page->trace->calls;
    const ep_id_map *map = page->trace->input.map;
    if (tile > page->call_count / page->tile || tile * page->tile >= page->call_count) {
        return EP_ARGUMENT;
    }
    size_t first = tile * page->tile;
    ep_page_part part;
    if (!part_open(page, first, page->call_count, &part)) {
        return EP_NOMEM;
    }
    const size_t rows = part.rows;
    ep_page_scratch *s = part.scratch;
    int64_t *gap = (int64_t *)s->wide[0], end = 0;
    uint64_t *duration = s->wide[1];
    uint32_t *function = s->narrow[0], *kind = s->narrow[1], *flags = s->narrow[2], *line = s->narrow[3],
             *task = s->narrow[4];
    part.begins = (int32_t *)s->narrow[5];
    size_t row = find_row(page, first);
    size_t next = first;    /* where a row, or the tile, begins */
    for (size_t i = 0; i < rows; i++) {
        size_t place = first + i, call = (size_t)page->order[place];
        int64_t start = page->start[place], until = ep_page_call_end(page, call);
        if (place == next) {
            part.begins[part.begin_count++] = (int32_t)place;
            next = (size_t)page->rows[row].first + (size_t)page->rows[row].count;
            row++;
            end = start;
        }
        gap[i] = start - end;
        part.is_signed |= gap[i] < 0;
        end = until > start ? until : start;
        duration[i] = (uint64_t)(end - start);
        uint32_t site = ep_call_site(calls, call);
        site = site < map->site_count ? site : 0;
        int32_t known = calls->function[call];
        function[i] = known >= 0 ? (uint32_t)known : (uint32_t)page->function_count;
        int32_t code = page->codes[ep_call_kind(calls, call)];
        kind[i] = code == page->usual[known + 1] ? 0 : (uint32_t)code + 1;
        flags[i] = calls->flags[call];
        line[i] = map->site_line[site] > 0 ? (uint32_t)map->site_line[site] : 0;
        task[i] = page->task != NULL ? (uint32_t)(page->task[call] + 1) : 0;
    }
    sort_slots(function, rows, page->function_count + 1, s->counts, s->slots);
    uint64_t *gaps = s->wide[2], *durations = s->wide[0];    /* in place of the unsorted gaps */
    for (size_t i = 0; i < rows; i++) {
        gaps[s->slots[i]] = part.is_signed ? ep_zigzag(gap[i]) : (uint64_t)gap[i];
    }
    for (size_t i = 0; i < rows; i++) {
        durations[s->slots[i]] = duration[i];
    }
    put_times(&part, (uint64_t *[]){gaps, durations}, 2);
    ep_planes_put32(&part.planes, function, rows);
    ep_planes_put32(&part.planes, kind, rows);
    ep_planes_put32(&part.planes, flags, rows);
    ep_planes_put32(&part.planes, line, rows);
    ep_planes_put32(&part.planes, task, rows);
    *out = part;
    return EP_OK;
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

/* Adds to the curves; in between, what belongs to one bin is summed up here. */
typedef struct curve_adder {
    ep_page *page;
    int bin;
    int64_t sums[EP_PAGE_HOLDERS][EP_PAGE_BANDS_MAX + 1];
} curve_adder;

static void
curve_flush(curve_adder *adder)
{
    for (int by = 0; by < EP_PAGE_HOLDERS; by++) {
        _Atomic int64_t *to = adder->page->curve[by] + (ptrdiff_t)adder->bin * adder->page->bands[by];
        for (int band = 0; band < adder->page->bands[by]; band++) {
            if (adder->sums[by][band] != 0) {
                atomic_fetch_add_explicit(&to[band], adder->sums[by][band], memory_order_relaxed);
            }
        }
    }
    memset(adder->sums, 0, sizeof adder->sums);
}

static void
curve_add(curve_adder *adder, int64_t time, size_t block, int64_t bytes)
{
    const ep_page *page = adder->page;
    while (adder->bin < EP_PAGE_BINS - 1 && time >= page->edges[adder->bin]) {
        curve_flush(adder);
        adder->bin++;
    }
    const ep_page_charge *charge = &page->charges[page->charge_of[block]];
    for (int by = 0; by < EP_PAGE_HOLDERS; by++) {
        adder->sums[by][charge->band[by]] += bytes;
    }
}

/* A tile of blocks while it is made. */
typedef struct block_tile {
    ep_page *page;
    ep_page_part *part;
    curve_adder adder;
    size_t first;         /* number of its first event */
    size_t count;         /* of events so far */
    int64_t *time;        /* grains */
    uint32_t *row;        /* zigzag: less that of the event before */
    uint32_t *born;       /* 1: a birth */
    int64_t *size;        /* of births */
    uint32_t *charge;     /* of births */
    uint32_t *back;       /* of deaths: the block is so many births before */
    size_t deaths;
    int64_t row_before;
} block_tile;

/* call: -1: none. */
static EP_CHECKED bool
put_event(block_tile *tile, int64_t time_ns, int32_t call, bool is_birth)
{
    ep_page *page = tile->page;
    size_t i = tile->count++;
    int64_t time = ep_page_grains(page, time_ns);
    int64_t row_here = 0;    /* 0: no call */
    tile->time[i] = time;
    if (call >= 0) {
        const ep_page_call *known = &page->calls[call];
        const ep_page_row *row = &page->rows[known->row];
        row_here = (int64_t)known->row + 1;
        if (EP_UNLIKELY(!ep_page_finds(page, row, known->place, time)) &&
            !ep_page_link_add(&tile->part->astray, (int32_t)(tile->first + i), known->place)) {
            return false;
        }
    }
    tile->row[i] = (uint32_t)ep_zigzag(row_here - tile->row_before);
    tile->row_before = row_here;
    tile->born[i] = is_birth;
    return true;
}

static EP_CHECKED bool
put_death(block_tile *tile, int64_t time, int32_t call, size_t births, int32_t block)
{
    int64_t size = ep_block_size(&tile->page->trace->blocks, (size_t)block);
    curve_add(&tile->adder, time, (size_t)block, size > 0 ? -size : 0);
    tile->back[tile->deaths++] = (uint32_t)(births - (size_t)block);
    return put_event(tile, time, call, false);
}

static EP_CHECKED bool
put_birth(block_tile *tile, int64_t time, int32_t call, size_t block)
{
    ep_page *page = tile->page;
    int64_t size = ep_block_size(&page->trace->blocks, block);
    size = size > 0 ? size : 0;
    curve_add(&tile->adder, time, block, size);
    size_t i = tile->part->births++;
    tile->size[i] = size;
    tile->charge[i] = (uint32_t)page->charge_of[block];
    return put_event(tile, time, call, true);
}

static EP_CHECKED bool
put_events(block_tile *tile, const ep_page_mark *mark, size_t rows)
{
    const ep_trace *trace = tile->page->trace;
    const ep_blocks *blocks = &trace->blocks;
    const ep_columns *columns = trace->input.columns;
    const ep_block_ending *ending = ep_blocks_ending_of(blocks, mark->gone);
    size_t lost = mark->lost, gone = mark->gone, born = mark->births;
    for (size_t event = mark->event; tile->count < rows; event++) {
        while (ending != NULL && ending->event <= event && tile->count < rows) {
            if (!put_death(tile, ending->end_ns + 1, -1, born, (int32_t)blocks->gone[gone++])) {
                return false;
            }
            ending = gone < ending->gone_to ? ending : ep_blocks_ending_of(blocks, gone);
        }
        if (tile->count == rows) {
            break;
        }
        int32_t block = blocks->event_block[event];
        if (block < 0) {
            continue;
        }
        size_t row = ep_alloc_row(&trace->input, event);
        int64_t time = columns->time_ns[row];
        int32_t call = trace->calls.row_call[row];
        if ((size_t)block != born) {
            if (!put_death(tile, time, call, born, block)) {
                return false;
            }
            continue;
        }
        for (; lost < blocks->free_lost_count && tile->count < rows; lost++) {
            int32_t older = blocks->free_lost[lost];
            if (blocks->death[older] != event) {
                break;
            }
            if (!put_death(tile, time, -1, born, older)) {
                return false;
            }
        }
        if (tile->count < rows) {
            if (!put_birth(tile, time, call, born)) {
                return false;
            }
            born++;
        }
    }
    curve_flush(&tile->adder);
    return true;
}

static int
bin_of(const ep_page *page, int64_t time)
{
    int low = 0, high = EP_PAGE_BINS - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        if (page->edges[middle] <= time) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

ep_status
ep_page_block_tile(ep_page *page, size_t number, ep_page_part *out)
{
    if (number >= page->mark_count || page->curve[0] == NULL || page->curve[1] == NULL ||
        page->curve[2] == NULL) {
        return EP_ARGUMENT;
    }
    const ep_page_mark *mark = &page->marks[number];
    size_t first = number * page->tile;
    ep_page_part part;
    if (!part_open(page, first, page->event_count, &part)) {
        return EP_NOMEM;
    }
    const size_t rows = part.rows;
    ep_page_scratch *s = part.scratch;
    block_tile tile = {
        .page = page,
        .part = &part,
        .first = first,
        .time = (int64_t *)s->wide[0],
        .size = (int64_t *)s->wide[1],
        .row = s->narrow[0],
        .born = s->narrow[1],
        .charge = s->narrow[2],
        .back = s->narrow[3],
    };
    const ep_pair_input *input = &page->trace->input;
    const ep_block_ending *ending = ep_blocks_ending_of(&page->trace->blocks, mark->gone);
    int64_t begin = ending != NULL && ending->event <= mark->event
                        ? ending->end_ns + 1
                        : input->columns->time_ns[ep_alloc_row(input, mark->event)];
    tile.adder = (curve_adder){.page = page, .bin = bin_of(page, begin)};
    if (!put_events(&tile, mark, rows)) {
        ep_page_part_clear(page, &part);
        return EP_NOMEM;
    }
    part.start = tile.time[0];
    uint64_t *steps = s->wide[2];
    for (size_t i = 0; i < rows; i++) {
        steps[i] = (uint64_t)(tile.time[i] - tile.time[i > 0 ? i - 1 : 0]);
    }
    put_times(&part, (uint64_t *[]){steps}, 1);
    ep_planes_put_bits(&part.planes, tile.born, rows);
    ep_planes_put32(&part.planes, tile.back, tile.deaths);
    ep_planes_put32(&part.planes, tile.row, rows);
    ep_planes_put64(&part.planes, (uint64_t *)tile.size, part.births);
    ep_planes_put32(&part.planes, tile.charge, part.births);
    *out = part;
    return EP_OK;
}
