#include "event_rows.h"

#include "array.h"
#include "memory.h"

typedef struct frame {
    int32_t key;
    uint32_t site;
    uint64_t order;
    uint8_t kind;
} frame;

typedef struct ep_event_rows_thread {
    frame *frames;    /* [0] is the floor */
    size_t depth, capacity;
    uint64_t calls;   /* that began */
    ep_absent_begin absent;
    ep_moved_block moved;
} rows_thread;

/* ---- Calls ----------------------------------------------------------------------------------- */

static EP_CHECKED ep_status
push(ep_event_rows *rows, rows_thread *t, unsigned kind, uint32_t site)
{
    if (!ep_grow_raw((void **)&t->frames, &t->capacity, t->depth + 2, sizeof *t->frames)) {
        return EP_NOMEM;
    }
    int32_t key =
        ep_call_key(ep_site_function(rows->facts.map, site), ep_kinds_has(ep_kinds_c, kind));
    t->frames[++t->depth] = (frame){key, site, ++t->calls, (uint8_t)kind};
    return EP_OK;
}

static uint64_t
order_of(const void *at)
{
    return ((const frame *)at)->order;
}

static bool
has_key(const void *unused, const void *at, uintptr_t key)
{
    (void)unused;
    return (uintptr_t)((const frame *)at)->key == key;
}

/* The frame that an end closes; NULL: there is none. */
static const frame *
find_begin(const ep_event_rows *rows, rows_thread *t, unsigned kind, uint32_t name)
{
    int32_t key =
        ep_call_key(ep_name_function(rows->facts.map, name), ep_kinds_has(ep_kinds_c, kind));
    const frame *top = &t->frames[t->depth];
    if (EP_LIKELY(t->depth > 0 && top->key == key)) {
        return top;
    }
    ep_frames frames = {top, t->frames, sizeof *t->frames};
    return ep_find_begin(&t->absent, frames, (uintptr_t)key, t->calls + 1, order_of, has_key, NULL);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static bool
is_chosen(const ep_event_rows *rows, const ep_columns *c, size_t row)
{
    const ep_row_choice *choice = &rows->choice;
    unsigned kind = c->kind[row];
    if (c->time_ns[row] < choice->from_ns || c->time_ns[row] >= choice->to_ns ||
        !ep_kinds_has(choice->kinds, kind)) {
        return false;
    }
    size_t thread = (size_t)c->thread[row];
    if (choice->threads != NULL && (thread >= choice->thread_count || !choice->threads[thread])) {
        return false;
    }
    if (choice->functions == NULL) {
        return true;
    }
    const ep_id_map *map = rows->facts.map;
    uint32_t id = c->id[row];
    int32_t function = ep_kind_has_name(kind) ? ep_name_function(map, id) : ep_site_function(map, id);
    return function >= 0 && (size_t)function < choice->function_count && choice->functions[function];
}

/* Gives the batch away. Fails: EP_STATE. */
static EP_CHECKED ep_status
give(ep_event_rows *rows)
{
    ep_trace *batch = &rows->batch;
    size_t count = batch->decoded.columns.count;
    if (count > 0 && !rows->stopped) {
        batch->functions.map = *rows->facts.map;
        batch->calls.before_count = batch->calls.count = count;
        rows->stopped = !rows->take(rows->context, batch, rows->numbers);
        batch->functions.map = (ep_id_map){0};
    }
    batch->decoded.columns.count = batch->decoded.columns.alloc_count = 0;
    return rows->stopped ? EP_STATE : EP_OK;
}

static bool
is_by_own_code(const ep_event_rows *rows, uint32_t site)
{
    const ep_id_map *map = rows->facts.map;
    int32_t caller = site < map->site_count ? map->site_caller[site] : -1;
    return caller >= 0 && (size_t)caller < rows->choice.own_count && rows->choice.own[caller];
}

/* call: as of append(). */
static uint32_t
own_site(const ep_event_rows *rows, const rows_thread *t, unsigned kind, uint32_t id, const frame *call)
{
    if (!ep_kind_has_name(kind) && is_by_own_code(rows, id)) {
        return id;
    }
    const frame *at = call != NULL ? call : t->frames;
    while (at != t->frames && !is_by_own_code(rows, at->site)) {
        at--;
    }
    return at != t->frames ? at->site : 0;
}

/* Appends a row. call: that it opens or ends, or that is around it; NULL: none. depth: as of the column. */
static void
append(ep_event_rows *rows, const ep_columns *c, size_t row, const frame *call, int32_t depth)
{
    ep_columns *to = &rows->batch.decoded.columns;
    ep_calls *calls = &rows->batch.calls;
    size_t at = to->count++;
    to->time_ns[at] = c->time_ns[row];
    to->kind[at] = c->kind[row];
    to->thread[at] = c->thread[row];
    to->id[at] = c->id[row];
    rows->numbers[at] = rows->row;
    /* A call of its own for each row, open before all of them. */
    calls->row_call[at] = call != NULL ? (int32_t)at : -1;
    calls->depth[at] = depth - (ep_kinds[c->kind[row]].form != EP_FORM_CALL);
    calls->before[at] = (ep_call_before){.thread = c->thread[row]};
    if (call != NULL) {
        calls->before[at].site = call->site;
        calls->before[at].kind = call->kind;
    }
}

static EP_CHECKED ep_status
next_row(ep_event_rows *rows, const ep_columns *c, size_t row, size_t *event)
{
    unsigned kind = c->kind[row];
    rows_thread *t = &rows->threads[c->thread[row]];
    bool has_block = *event < c->alloc_count && c->alloc_row[*event] == row;
    bool chosen = is_chosen(rows, c, row);
    ep_live_block ended = {0};
    ep_status status = EP_OK;
    if (has_block) {
        status = ep_follow_block(&rows->blocks, &t->moved, c, *event, (ep_block_note){.origin = 1}, &ended);
    }
    const frame *call = &t->frames[t->depth];
    if (ep_kind_has_name(kind)) {
        call = find_begin(rows, t, kind, c->id[row]);
        t->depth = call != NULL ? (size_t)(call - t->frames) - 1 : t->depth;
    } else if (ep_kinds_has(ep_kinds_that_open_calls, kind)) {
        status = status != EP_OK ? status : push(rows, t, kind, c->id[row]);
        call = &t->frames[t->depth];
    }
    if (EP_UNLIKELY(status != EP_OK)) {
        return status;
    }
    if (chosen) {
        ep_columns *to = &rows->batch.decoded.columns;
        bool has_call = call != NULL && call != t->frames;
        size_t around = has_call ? (size_t)(call - t->frames) : 0;
        bool is_call = ep_kinds[kind].form == EP_FORM_CALL;
        append(rows, c, row, has_call ? call : NULL, (int32_t)(around - (has_call && is_call)));
        if (rows->own != NULL) {
            rows->own[to->count - 1] = (ep_own_row){
                .call = has_call ? call->order : 0,
                .site = own_site(rows, t, kind, c->id[row], has_call ? call : NULL),
            };
        }
        if (has_block) {
            to->alloc_row[to->alloc_count] = to->count - 1;
            to->address[to->alloc_count] = c->address[*event];
            to->size[to->alloc_count++] = ended.origin != 0 ? (int64_t)ended.size : c->size[*event];
        }
    }
    *event += has_block;
    rows->row++;
    return chosen && rows->batch.decoded.columns.count == EP_EVENT_ROWS_BATCH ? give(rows) : EP_OK;
}

/* ---- The fold -------------------------------------------------------------------------------- */

static EP_CHECKED ep_status
open_batch(ep_event_rows *rows)
{
    ep_trace *batch = &rows->batch;
    ep_columns *columns = &batch->decoded.columns;
    batch->has_decoded = batch->has_functions = batch->has_calls = true;
    batch->calls.filled = EP_CALLS_DEPTH;
    batch->calls.input = &batch->input;
    batch->input.columns = columns;
    batch->input.map = &batch->functions.map;
    columns->thread = ep_array_new(EP_EVENT_ROWS_BATCH, sizeof *columns->thread);
    batch->calls.row_call = ep_array_new(EP_EVENT_ROWS_BATCH, sizeof *batch->calls.row_call);
    batch->calls.depth = ep_array_new(EP_EVENT_ROWS_BATCH, sizeof *batch->calls.depth);
    batch->calls.before = ep_array_new(EP_EVENT_ROWS_BATCH, sizeof *batch->calls.before);
    rows->numbers = ep_array_new(EP_EVENT_ROWS_BATCH, sizeof *rows->numbers);
    if (rows->choice.own != NULL) {
        rows->own = ep_array_new(EP_EVENT_ROWS_BATCH, sizeof *rows->own);
    }
    bool has_memory = columns->thread != NULL && batch->calls.row_call != NULL &&
                      batch->calls.depth != NULL && batch->calls.before != NULL &&
                      rows->numbers != NULL &&
                      (rows->own != NULL || rows->choice.own == NULL) &&
                      ep_columns_reserve(columns, EP_EVENT_ROWS_BATCH, EP_EVENT_ROWS_BATCH);
    return has_memory ? ep_followed_open(&rows->blocks, rows->facts.thread_count) : EP_NOMEM;
}

static ep_status
rows_begin(ep_fold *fold, const ep_fold_facts *facts)
{
    ep_event_rows *rows = (ep_event_rows *)fold;
    rows->facts = *facts;
    rows->threads = ep_calloc(facts->thread_count, sizeof *rows->threads);
    ep_status status = rows->threads != NULL ? open_batch(rows) : EP_NOMEM;
    for (size_t thread = 0; thread < facts->thread_count && status == EP_OK; thread++) {
        rows_thread *t = &rows->threads[thread];
        const ep_open_stack *open = facts->open_at_start ? &facts->open_at_start[thread] : NULL;
        if (!ep_grow((void **)&t->frames, &t->capacity, 2, sizeof *t->frames)) {
            return EP_NOMEM;
        }
        t->frames[0] = (frame){.key = EP_KEY_FLOOR};
        for (size_t i = 0; open != NULL && i < open->depth && status == EP_OK; i++) {
            status = push(rows, t, open->calls[i].kind, open->calls[i].site_id);
        }
    }
    return status;
}

static ep_status
rows_events(ep_fold *fold, const ep_batch *batch)
{
    ep_event_rows *rows = (ep_event_rows *)fold;
    size_t event = batch->alloc_from;
    ep_status status = EP_OK;
    for (size_t row = batch->from; row < batch->to && status == EP_OK; row++) {
        if (EP_UNLIKELY(batch->columns->time_ns[row] >= rows->choice.to_ns)) {
            status = give(rows);
            rows->stopped = true;
            return EP_STATE;
        }
        status = next_row(rows, batch->columns, row, &event);
    }
    return status;
}

static ep_status
rows_end(ep_fold *fold)
{
    return give((ep_event_rows *)fold);
}

static void
rows_clear(ep_fold *fold)
{
    ep_event_rows *rows = (ep_event_rows *)fold;
    for (size_t i = 0; rows->threads != NULL && i < rows->facts.thread_count; i++) {
        free(rows->threads[i].frames);
    }
    free(rows->threads);
    free(rows->numbers);
    free(rows->own);
    free(rows->batch.calls.row_call);
    free(rows->batch.calls.depth);
    free(rows->batch.calls.before);
    ep_columns_clear(&rows->batch.decoded.columns);
    ep_followed_clear(&rows->blocks);
}

void
ep_event_rows_open(ep_event_rows *rows)
{
    static const ep_fold_type type = {
        .name = "rows",
        .begin = rows_begin,
        .events = rows_events,
        .end = rows_end,
        .clear = rows_clear,
    };
    *rows = (ep_event_rows){
        .fold = {.type = &type},
        .choice = {.from_ns = INT64_MIN, .to_ns = INT64_MAX, .kinds = ~(ep_kind_set)0},
    };
}
