/* The order of calls on the page, and what is known of each without its tile. */
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "memory.h"
#include "names.h"
#include "page.h"

/* ---- Rows ------------------------------------------------------------------------------------ */

/* Rows in the order in which their first calls begin. */
typedef struct early_row {
    int32_t below;     /* the row one deeper; -1: none yet */
    int32_t count;     /* of calls */
    int32_t number;    /* in the order of the page */
} early_row;

typedef struct early_rows {
    size_t count, capacity;
    early_row *rows;
    int32_t *top;      /* by thread; -1: no calls yet */
} early_rows;

static EP_CHECKED bool
add_row(early_rows *early, int32_t *number)
{
    if (!ep_grow((void **)&early->rows, &early->capacity, early->count + 1, sizeof *early->rows)) {
        return false;
    }
    *number = (int32_t)early->count++;
    early->rows[*number] = (early_row){.below = -1};
    return true;
}

/* The row of a call whose parent has one already. Fails: -1. */
static int32_t
row_of(ep_page *page, early_rows *early, size_t call)
{
    const ep_calls *calls = &page->trace->calls;
    int32_t parent = calls->parent[call], row;
    if (parent < 0) {
        int32_t *top = &early->top[ep_call_thread(calls, call)];
        return *top >= 0 || add_row(early, top) ? *top : -1;
    }
    int32_t above = page->calls[parent].row;
    row = early->rows[above].below;
    if (EP_UNLIKELY(row < 0)) {
        if (!add_row(early, &row)) {
            return -1;
        }
        early->rows[above].below = row;
    }
    return row;
}

/* Numbers the rows by thread and depth. */
static EP_CHECKED bool
number_rows(ep_page *page, early_rows *early)
{
    page->row_count = early->count;
    page->rows = ep_array_new(early->count, sizeof *page->rows);
    if (page->rows == NULL) {
        return false;
    }
    int32_t number = 0, first = 0;
    for (size_t thread = 0; thread < page->trace->input.thread_count; thread++) {
        int32_t depth = 0;
        for (int32_t row = early->top[thread]; row >= 0; row = early->rows[row].below) {
            early->rows[row].number = number;
            page->rows[number] = (ep_page_row){
                .thread = (int32_t)thread,
                .depth = depth,
                .first = first,
                .count = early->rows[row].count,
                .above = depth > 0 ? number - 1 : -1,
            };
            first += early->rows[row].count;
            number++;
            depth++;
        }
    }
    return true;
}

/* What the blocks of a call are charged to; its parent's is known. The rules are those of Tree.owners. */
static int32_t
owner_of(const ep_page *page, size_t call)
{
    const ep_calls *calls = &page->trace->calls;
    const ep_id_map *map = page->trace->input.map;
    int32_t function = calls->function[call], parent = calls->parent[call];
    if (function >= 0 && page->own[function]) {
        return page->of_function[function];
    }
    uint32_t site = ep_call_site(calls, call);
    site = site < map->site_count ? site : 0;
    int32_t caller = map->site_caller[site];
    if (caller >= 0 && page->own[caller]) {
        return page->of_caller[site];
    }
    return parent >= 0 ? page->calls[parent].owner : 0;
}

static EP_CHECKED ep_status
order_calls(ep_page *page, early_rows *early)
{
    size_t threads = page->trace->input.thread_count;
    early->top = ep_array_new(threads, sizeof *early->top);
    if (early->top == NULL) {
        return EP_NOMEM;
    }
    memset(early->top, -1, threads * sizeof *early->top);
    for (size_t call = 0; call < page->call_count; call++) {
        ep_column_row(call);
        int32_t row = row_of(page, early, call);
        if (row < 0) {
            return EP_NOMEM;
        }
        page->calls[call].row = row;
        page->calls[call].owner = owner_of(page, call);
        early->rows[row].count++;
    }
    if (!number_rows(page, early)) {
        return EP_NOMEM;
    }
    /* From here on a row's count says how many of its calls have a place. */
    for (size_t row = 0; row < page->row_count; row++) {
        early->rows[row].count = 0;
    }
    for (size_t call = 0; call < page->call_count; call++) {
        ep_column_row(call);
        early_row *row = &early->rows[page->calls[call].row];
        int32_t place = page->rows[row->number].first + row->count++;
        page->calls[call].place = place;
        page->calls[call].row = row->number;
        page->order[place] = (int32_t)call;
    }
    return EP_OK;
}

/* ---- Starts, the coarse picture, orphans ----------------------------------------------------- */

bool
ep_page_link_add(ep_page_links *links, int32_t from, int32_t to)
{
    if (!ep_grow_raw((void **)&links->links, &links->capacity, links->count + 1, sizeof *links->links)) {
        return false;
    }
    links->links[links->count++] = (ep_page_link){from, to};
    return true;
}

/* Whether the page would not find the call's parent, or would find one where there is none. */
static bool
is_orphan(const ep_page *page, const ep_page_row *row, int32_t parent, int64_t start)
{
    if (row->above < 0) {
        return false;
    }
    const ep_page_row *above = &page->rows[row->above];
    return parent >= 0 ? !ep_page_finds(page, above, parent, start)
                       : page->start[above->first] <= start;
}

static EP_CHECKED ep_status
take_row(ep_page *page, const ep_page_row *row, uint32_t *found)
{
    const ep_calls *calls = &page->trace->calls;
    ep_page_coarse *coarse = NULL;
    for (int32_t at = 0; at < row->count; at++) {
        int32_t place = row->first + at;
        ep_column_row((size_t)place);
        size_t call = (size_t)page->order[place];
        int32_t function = calls->function[call], parent = calls->parent[call];
        int64_t start = ep_page_grains(page, ep_call_start(calls, call));
        int64_t end = ep_page_call_end(page, call);
        end = end > start ? end : start;
        page->start[place] = start;
        if (at % page->group == 0) {
            coarse = &page->coarse[page->coarse_count++];
            *coarse = (ep_page_coarse){.start = start, .longest = -1};
        }
        coarse->end = end;
        coarse->sum += end - start;
        if (end - start > coarse->longest) {
            coarse->longest = end - start;
            coarse->function = function;
        }
        found[(size_t)(function + 1) * page->code_count + page->codes[ep_call_kind(calls, call)]]++;
        parent = parent >= 0 ? page->calls[parent].place : -1;
        if (EP_UNLIKELY(is_orphan(page, row, parent, start)) &&
            !ep_page_link_add(&page->orphans, place, parent)) {
            return EP_NOMEM;
        }
    }
    return EP_OK;
}

static EP_CHECKED ep_status
take_rows(ep_page *page)
{
    size_t functions = page->function_count + 1, group = (size_t)page->group, coarse = 0;
    for (size_t row = 0; row < page->row_count; row++) {
        coarse += ((size_t)page->rows[row].count + group - 1) / group;
    }
    uint32_t *found = ep_calloc(functions * page->code_count, sizeof *found);
    page->usual = ep_array_new(functions, sizeof *page->usual);
    page->coarse = ep_column_new(coarse, sizeof *page->coarse);
    ep_status status = EP_NOMEM;
    if (found != NULL && page->usual != NULL && page->coarse != NULL) {
        status = EP_OK;
        for (size_t row = 0; status == EP_OK && row < page->row_count; row++) {
            status = take_row(page, &page->rows[row], found);
        }
        page->start[page->call_count] = INT64_MAX;
        for (size_t function = 0; function < functions; function++) {
            const uint32_t *counts = found + function * page->code_count;
            int32_t most = 0;
            for (size_t code = 1; code < page->code_count; code++) {
                most = counts[code] > counts[most] ? (int32_t)code : most;
            }
            page->usual[function] = most;
        }
    }
    free(found);
    return status;
}

ep_status
ep_page_take_calls(ep_page *page)
{
    page->call_count = page->trace->calls.count;
    page->calls = ep_column_new(page->call_count, sizeof *page->calls);
    page->order = ep_column_new(page->call_count, sizeof *page->order);
    page->start = ep_column_new(page->call_count + 1, sizeof *page->start);
    if (page->calls == NULL || page->order == NULL || page->start == NULL) {
        return EP_NOMEM;
    }
    early_rows early = {0};
    ep_status status = order_calls(page, &early);
    free(early.rows);
    free(early.top);
    return status == EP_OK ? take_rows(page) : status;
}

/* ---- Questions ------------------------------------------------------------------------------- */

bool
ep_page_has_tasks(const ep_trace *trace)
{
    const ep_id_map *map = trace->input.map;
    for (size_t call = 0; call < trace->calls.before_count; call++) {
        if (ep_site_get(trace->calls.before[call].site)->task != 0) {
            return true;
        }
    }
    for (uint32_t site = 1; site < map->site_count; site++) {
        if (map->site_function[site] >= 0 && ep_site_get(site)->task != 0) {
            return true;
        }
    }
    return false;
}

ep_status
ep_page_longest(const ep_page *page, ep_page_question *questions, size_t count)
{
    const ep_calls *calls = &page->trace->calls;
    const ep_id_map *map = page->trace->input.map;
    uint8_t *wanted = ep_calloc(page->function_count + 1, 1);
    if (wanted == NULL) {
        return EP_NOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        int32_t function = questions[i].function;
        questions[i].place = -1;
        questions[i].duration = -1;
        if (function >= 0 && (size_t)function < page->function_count) {
            wanted[function] = 1;
        }
    }
    for (size_t place = 0; place < page->call_count; place++) {
        ep_column_row(place);
        size_t call = (size_t)page->order[place];
        int32_t function = calls->function[call];
        if (function < 0 || !wanted[function]) {
            continue;
        }
        uint32_t site = ep_call_site(calls, call);
        site = site < map->site_count ? site : 0;
        int64_t duration = ep_page_call_end(page, call) - page->start[place];
        for (size_t i = 0; i < count; i++) {
            ep_page_question *q = &questions[i];
            if (q->function == function && duration > q->duration &&
                (q->caller == -2 ||
                 (q->caller == map->site_caller[site] && q->line == map->site_line[site]))) {
                q->place = (int32_t)place;
                q->duration = duration;
            }
        }
    }
    free(wanted);
    return EP_OK;
}
