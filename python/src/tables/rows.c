/* Adds to each closing row what only its opening row knows; the contract is in rows.h. */
#include "rows.h"

#include <stdlib.h>

#include "array.h"
#include "memory.h"
#include "stream.h"

/* ---- Places and functions ----------------------------------------------------------------------- */

#define KEY_BEFORE (EP_KEY_FLOOR + 1)    /* of a call that was open at the start: no end has it, see
                                         close_below_top() */

#define UNSEEN INT32_MIN    /* instead of a function: no row had this id yet */
#define NUMBERLESS UINT32_MAX

/* What is known of an id, together: one load for both. */
typedef struct ep_rows_id {
    int32_t function;    /* -1: unknown */
    uint32_t number;     /* of its place; NUMBERLESS: no row has it as its place */
} rows_id;

/* What a kind does. A table instead of branches, see pair.c. */
typedef struct ep_rows_step {
    rows_id *ids;             /* sites or names */
    ep_call_effect effect;
    int32_t is_c;
    uint8_t role;             /* ep_block_role */
    bool moves;               /* a part of a realloc */
    uint8_t domain;
} step;

static EP_CHECKED ep_status
add_place(ep_rows *self, uint32_t place, uint32_t *number)
{
    if (!ep_grow((void **)&self->places, &self->place_capacity, self->place_count + 1,
                 sizeof *self->places)) {
        return EP_NOMEM;
    }
    *number = (uint32_t)self->place_count;
    self->places[self->place_count++] = place;
    return EP_OK;
}

/* Gives the function of an id a row in the map. */
static EP_CHECKED ep_status
add_function(ep_rows *self, uint8_t kind, uint32_t id)
{
    const ep_columns row = {.count = 1, .kind = &kind, .id = &id};
    return ep_functions_add(&self->functions, &row, 0);
}

/* The first row with this id. */
static EP_COLD EP_CHECKED ep_status
learn(ep_rows *self, uint8_t kind, uint32_t id)
{
    if (add_function(self, kind, id) != EP_OK) {
        return EP_NOMEM;
    }
    const ep_id_map *map = &self->functions.result.map;
    bool is_name = ep_kind_has_name(kind);
    rows_id *at = &self->steps[kind].ids[id];
    at->function = is_name ? map->name_function[id] : map->site_function[id];
    return is_name || at->number != NUMBERLESS ? EP_OK : add_place(self, id, &at->number);
}

uint32_t
ep_rows_number_of_site(ep_rows *rows, uint32_t site)
{
    rows_id *at = &rows->sites[site];
    if (at->number == NUMBERLESS && add_place(rows, site, &at->number) != EP_OK) {
        return UINT32_MAX;
    }
    return at->number;
}

/* ---- Calls --------------------------------------------------------------------------------------
 *
 * By the rules of pairing.h. A frame has the place of its call; nothing is kept of a call that ended. */

typedef struct frame {
    int32_t key;
    uint32_t number;
    uint64_t call;    /* in order of start; 0: the floor */
} frame;

typedef struct ep_rows_thread {
    frame *frames;    /* [0] is the floor */
    size_t depth, capacity;
    const ep_open_stack *before;    /* view; of frame 1 and so on, if their key is KEY_BEFORE */
    ep_absent_begin absent;
    ep_half_realloc moving;
    uint64_t moving_size;
} thread_state;

/* A block that was born where, according to the log, an older one lived. */
typedef struct ep_rows_suspect {
    uint64_t older_size;
    int64_t birth_ns;
    int32_t thread;
} suspect;

/* Room for `more` frames above the top, and one that may be written and not counted. */
static EP_CHECKED ep_status
reserve(thread_state *t, size_t more)
{
    size_t wanted = t->depth + more + 2;
    if (EP_LIKELY(wanted <= t->capacity)) {
        return EP_OK;
    }
    if (!ep_grow_raw((void **)&t->frames, &t->capacity, wanted, sizeof *t->frames)) {
        return EP_NOMEM;
    }
    t->frames[0] = (frame){.key = EP_KEY_FLOOR};
    return EP_OK;
}

static int32_t
key_of_frame(const ep_rows *self, const thread_state *t, const frame *at)
{
    if (at->key != KEY_BEFORE) {
        return at->key;
    }
    const ep_open_call *call = &t->before->calls[at - t->frames - 1];
    int32_t function = self->functions.result.map.site_function[call->site_id];
    return ep_call_key(function, self->steps[call->kind].is_c);
}

static uint64_t
order_of(const void *at)
{
    return ((const frame *)at)->call;
}

typedef struct stack_of_rows {
    const ep_rows *rows;
    const thread_state *thread;
} stack_of_rows;

static bool
has_key(const void *stack, const void *at, uintptr_t key)
{
    const stack_of_rows *in = stack;
    return (uintptr_t)key_of_frame(in->rows, in->thread, at) == key;
}

/* An end that does not fit the call on top, or of a call that was open at the start. These have no place
 * before a row shows it. *number: of the end's place. */
static EP_COLD EP_CHECKED ep_status
close_below_top(ep_rows *self, thread_state *t, frame **top, int32_t key, uint32_t name,
                uint32_t *number)
{
    ep_frames frames = {*top, t->frames, sizeof **top};
    const frame *found = ep_find_begin(&t->absent, frames, (uintptr_t)key, self->calls_begun + 1, order_of,
                                       has_key, &(stack_of_rows){self, t});
    if (found == NULL) {
        rows_id *at = &self->names[name];
        ep_status status =
            at->number != NUMBERLESS ? EP_OK : add_place(self, name | EP_ROWS_IS_NAME, &at->number);
        *number = at->number;
        return status;
    }
    *top = &t->frames[found - t->frames - 1];
    if (found->key == KEY_BEFORE) {
        *number = ep_rows_number_of_site(self, t->before->calls[found - t->frames - 1].site_id);
        return *number != NUMBERLESS ? EP_OK : EP_NOMEM;
    }
    *number = found->number;
    return EP_OK;
}

/* HOT, budget 3 ns an event. Rows from .. to - 1 are all of this thread, which has room. */
static EP_CHECKED ep_status
place_run(ep_rows *self, thread_state *t, const ep_columns *columns, size_t from, size_t to,
          uint32_t *numbers)
{
    const uint8_t *kinds = columns->kind;
    const uint32_t *ids = columns->id;
    const step *const steps = self->steps;
    frame *top = &t->frames[t->depth];
    uint64_t begun = self->calls_begun;
    for (size_t row = from; row < to; row++) {
        const step *s = &steps[kinds[row]];
        rows_id id = s->ids[ids[row]];
        if (EP_UNLIKELY(id.function == UNSEEN)) {
            if (learn(self, kinds[row], ids[row]) != EP_OK) {
                return EP_NOMEM;
            }
            id = s->ids[ids[row]];
        }
        int32_t key = ep_call_key(id.function, s->is_c);
        int32_t opens = s->effect.opens, closes = s->effect.closes;
        if (EP_UNLIKELY(ep_ends_below_top(top->key, key, closes))) {
            self->calls_begun = begun;
            if (close_below_top(self, t, &top, key, ids[row], &numbers[row - from]) != EP_OK) {
                return EP_NOMEM;
            }
            continue;
        }
        numbers[row - from] = (uint32_t)ep_choose(closes, (int32_t)top->number, (int32_t)id.number);
        top[1] = (frame){.key = key, .number = id.number, .call = begun + 1};
        top += closes - opens;
        begun += (uint64_t)(-opens);
    }
    self->calls_begun = begun;
    t->depth = (size_t)(top - t->frames);
    return EP_OK;
}

static EP_CHECKED ep_status
place_rows(ep_rows *self, const ep_batch *batch)
{
    const int32_t *threads = batch->columns->thread;
    for (size_t from = batch->from, to; from < batch->to; from = to) {
        to = self->thread_count == 1 ? batch->to : from + 1;
        while (to < batch->to && threads[to] == threads[from]) {
            to++;
        }
        thread_state *t = &self->threads[threads[from]];
        if (EP_UNLIKELY(reserve(t, to - from) != EP_OK) ||
            place_run(self, t, batch->columns, from, to, &self->numbers[from - batch->from]) != EP_OK) {
            return EP_NOMEM;
        }
    }
    return EP_OK;
}

/* ---- Blocks -------------------------------------------------------------------------------------
 *
 * By the rules of pairing.h. The origin of a live block is PLAIN or, of a suspect, its index + 2. */

#define PLAIN 1

/* A block is born where another one lives: a later event may show how the older one ended. */
static EP_COLD EP_CHECKED ep_status
add_suspect(ep_rows *self, ep_live_entry *at, int64_t time_ns, int32_t thread, uint32_t *origin)
{
    if (self->suspect_count >= UINT32_MAX - 2 ||
        !ep_grow((void **)&self->suspects, &self->suspect_capacity, self->suspect_count + 1,
                 sizeof *self->suspects)) {
        return EP_NOMEM;
    }
    self->suspects[self->suspect_count++] = (suspect){
        .older_size = ep_live_at(&self->blocks, at).size,
        .birth_ns = time_ns,
        .thread = thread,
    };
    *origin = (uint32_t)self->suspect_count + 1;
    ep_live_take(&self->blocks, at);
    return EP_OK;
}

/* A free of a suspect's address. True: it was that of the older block, logged too late. */
static EP_COLD bool
is_late(const ep_rows *self, const ep_live_entry *at, int64_t time_ns, int32_t thread)
{
    const suspect *s = &self->suspects[at->origin - 2];
    return ep_free_is_late(s->thread, s->birth_ns, thread, time_ns);
}

static EP_INLINE EP_CHECKED ep_status
birth(ep_rows *self, const ep_columns *c, size_t event, size_t row)
{
    uint64_t address = c->address[event], size = c->size[event] > 0 ? (uint64_t)c->size[event] : 0;
    uint32_t origin = PLAIN;
    ep_live_entry *at = ep_live_find(&self->blocks, address);
    if (EP_UNLIKELY(at->origin != 0)) {
        if (add_suspect(self, at, c->time_ns[row], c->thread[row], &origin) != EP_OK) {
            return EP_NOMEM;
        }
        at = ep_live_find(&self->blocks, address);
    }
    return ep_live_put(&self->blocks, at, address, size, origin, 0);
}

/* Returns: the change; *known: whether the block is. */
static EP_INLINE int64_t
death(ep_rows *self, const ep_columns *c, size_t event, size_t row, bool *known)
{
    ep_live_entry *at = ep_live_find(&self->blocks, c->address[event]);
    *known = at->origin != 0;
    if (at->origin == 0) {
        return 0;
    }
    if (EP_UNLIKELY(at->origin != PLAIN) && is_late(self, at, c->time_ns[row], c->thread[row])) {
        int64_t change = -(int64_t)self->suspects[at->origin - 2].older_size;
        at->origin = PLAIN;
        return change;
    }
    int64_t change = -(int64_t)ep_live_at(&self->blocks, at).size;
    ep_live_take(&self->blocks, at);
    return change;
}

/* A realloc failed: its realloc_free did not happen. Unless another thread was given the address since
 * then, so that it did end. */
static EP_COLD EP_CHECKED ep_status
failure(ep_rows *self, const ep_columns *c, size_t event, size_t row, int64_t *change)
{
    thread_state *t = &self->threads[c->thread[row]];
    uint64_t address = c->address[event];
    ep_live_entry *at = ep_live_find(&self->blocks, address);
    bool is_its = ep_half_realloc_revives(&t->moving, self->steps[c->kind[row]].domain, address) &&
                  at->origin == 0;
    *change = is_its ? (int64_t)t->moving_size : 0;
    return is_its ? ep_live_put(&self->blocks, at, address, t->moving_size, PLAIN, 0) : EP_OK;
}

#define PREFETCH_EVENTS 16

/* HOT, budget 5 ns an allocator event with its block in cache. */
static EP_CHECKED ep_status
change_rows(ep_rows *self, const ep_batch *batch)
{
    const ep_columns *c = batch->columns;
    for (size_t event = batch->alloc_from; event < c->alloc_count; event++) {
        size_t row = c->alloc_row[event];
        if (row >= batch->to) {
            break;
        }
        if (EP_LIKELY(event + PREFETCH_EVENTS < c->alloc_count)) {
            ep_live_expect(&self->blocks, c->address[event + PREFETCH_EVENTS]);
        }
        const step *s = &self->steps[c->kind[row]];
        ep_status status = EP_OK;
        int64_t change = 0;
        if (s->role == EP_BLOCK_BIRTH) {
            change = c->size[event];
            status = birth(self, c, event, row);
            if (s->moves) {
                self->threads[c->thread[row]].moving.waits = false;
            }
        } else if (s->role == EP_BLOCK_DEATH) {
            bool known;
            change = death(self, c, event, row, &known);
            if (s->moves) {
                thread_state *t = &self->threads[c->thread[row]];
                t->moving = (ep_half_realloc){true, known, s->domain, c->address[event]};
                t->moving_size = (uint64_t)-change;
            }
        } else if (s->role == EP_BLOCK_FAILURE) {
            status = failure(self, c, event, row, &change);
        }
        if (EP_UNLIKELY(status != EP_OK)) {
            return status;
        }
        self->changes[event - batch->alloc_from] = change;
    }
    return EP_OK;
}

/* ---- The fold -------------------------------------------------------------------------------- */

static void
fill_steps(ep_rows *self)
{
    for (unsigned kind = 0; kind < EP_KIND_COUNT; kind++) {
        bool closes = ep_kind_has_name(kind);
        self->steps[kind] = (step){
            .ids = closes ? self->names : self->sites,
            .effect = ep_call_effect_of(kind),
            .is_c = ep_kinds_has(ep_kinds_c, kind),
            .role = (uint8_t)ep_block_role_of(kind),
            .moves = ep_kind_moves(kind),
            .domain = (uint8_t)ep_kinds[kind].domain,
        };
    }
}

/* Forgets what is of one recording alone. */
static void
drop_recording(ep_rows *self)
{
    for (size_t i = 0; self->threads != NULL && i < self->thread_count; i++) {
        free(self->threads[i].frames);
    }
    free(self->threads);
    self->threads = NULL;
    self->thread_count = 0;
    self->suspect_count = 0;
    ep_live_clear(&self->blocks);
}

static void
rows_clear(ep_fold *fold)
{
    ep_rows *self = (ep_rows *)fold;
    drop_recording(self);
    ep_functions_drop(&self->functions);
    free(self->sites);
    free(self->names);
    free(self->steps);
    free(self->suspects);
    free(self->numbers);
    free(self->changes);
    free(self->places);
    *self = (ep_rows){.fold = self->fold};
}

static EP_CHECKED ep_status
push_before(ep_rows *self, thread_state *t, const ep_open_stack *open)
{
    if (reserve(t, open->depth) != EP_OK) {
        return EP_NOMEM;
    }
    t->before = open;
    for (size_t i = 0; i < open->depth; i++) {
        const ep_open_call *from = &open->calls[i];
        if (add_function(self, from->kind, from->site_id) != EP_OK) {
            return EP_NOMEM;
        }
        t->frames[++t->depth] = (frame){.key = KEY_BEFORE, .call = ++self->calls_begun};
    }
    return EP_OK;
}

static ep_status
rows_begin(ep_fold *fold, const ep_fold_facts *facts)
{
    ep_rows *self = (ep_rows *)fold;
    drop_recording(self);
    self->threads = ep_calloc(facts->thread_count + 1, sizeof *self->threads);
    if (self->threads == NULL) {
        return EP_NOMEM;
    }
    self->thread_count = facts->thread_count;
    ep_status status = ep_live_open(&self->blocks);
    for (size_t i = 0; i < facts->thread_count && facts->open_at_start != NULL && status == EP_OK; i++) {
        status = push_before(self, &self->threads[i], &facts->open_at_start[i]);
    }
    return status;
}

static ep_status
rows_events(ep_fold *fold, const ep_batch *batch)
{
    ep_rows *self = (ep_rows *)fold;
    size_t rows = batch->to - batch->from;
    if (rows > self->capacity) {
        free(self->numbers);
        free(self->changes);
        self->numbers = ep_calloc(rows, sizeof *self->numbers);
        self->changes = ep_calloc(rows, sizeof *self->changes);
        self->capacity = self->numbers != NULL && self->changes != NULL ? rows : 0;
        if (self->capacity == 0) {
            return EP_NOMEM;
        }
    }
    ep_status status = place_rows(self, batch);
    status = status != EP_OK ? status : change_rows(self, batch);
    return status != EP_OK ? status : self->take(self, batch, self->numbers, self->changes);
}

static ep_status
rows_end(ep_fold *fold)
{
    (void)fold;
    return EP_OK;
}

static const ep_fold_type rows_type = {
    .name = "rows",
    .begin = rows_begin,
    .events = rows_events,
    .end = rows_end,
    .clear = rows_clear,
};

ep_status
ep_rows_open(ep_rows *rows, ep_status (*take)(ep_rows *rows, const ep_batch *batch,
                                              const uint32_t *numbers, const int64_t *changes))
{
    *rows = (ep_rows){.fold = {.type = &rows_type}, .take = take};
    if (ep_functions_begin(&rows->functions, NULL, 0) != EP_OK) {
        return EP_NOMEM;
    }
    size_t sites = rows->functions.result.map.site_count, names = rows->functions.result.map.name_count;
    rows->sites = ep_calloc(sites + 1, sizeof *rows->sites);
    rows->names = ep_calloc(names + 1, sizeof *rows->names);
    rows->steps = ep_calloc(EP_KIND_COUNT, sizeof *rows->steps);
    if (rows->sites == NULL || rows->names == NULL || rows->steps == NULL) {
        return EP_NOMEM;
    }
    for (size_t i = 0; i < sites; i++) {
        rows->sites[i] = (rows_id){.function = UNSEEN, .number = NUMBERLESS};
    }
    for (size_t i = 0; i < names; i++) {
        rows->names[i] = (rows_id){.function = UNSEEN, .number = NUMBERLESS};
    }
    fill_steps(rows);
    return EP_OK;
}

/* ---- Reading ------------------------------------------------------------------------------------ */

/* Rows of a batch: with their places and changes they fit into the processor's second cache. */
#define BATCH_ROWS ((size_t)1 << 14)

/* The events of a capture, each once: a batch overwrites the one before. */
typedef struct capture_stream {
    ep_stream stream;
    ep_decoder *decoder;
    ep_columns columns;
} capture_stream;

static ep_status
next_of_capture(ep_stream *stream, ep_batch *out)
{
    capture_stream *self = (capture_stream *)stream;
    self->columns.count = self->columns.alloc_count = 0;
    ep_status status = ep_decoder_next(self->decoder, &self->columns, BATCH_ROWS);
    ep_decoder_progress(self->decoder, &self->stream.done, &self->stream.total);
    *out = (ep_batch){.columns = &self->columns, .to = self->columns.count};
    return status;
}

static uint64_t
lost_of(const ep_decoded *decoded)
{
    uint64_t lost = 0;
    for (size_t i = 0; i < decoded->thread_count; i++) {
        for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
            lost += decoded->threads[i].lost[kind];
        }
    }
    return lost;
}

/* The open calls of each thread. Returns: new, of views. Fails: NULL, out of memory. */
static ep_open_stack *
open_of(const ep_decoded *head)
{
    ep_open_stack *open = ep_calloc(head->thread_count + 1, sizeof *open);
    for (size_t i = 0; open != NULL && i < head->thread_count; i++) {
        open[i] = head->threads[i].open;
    }
    return open;
}

static EP_CHECKED ep_status
run(ep_rows *rows, ep_stream *stream, const ep_decoded *head, const ep_progress *progress)
{
    ep_open_stack *open = open_of(head);
    if (open == NULL) {
        return EP_NOMEM;
    }
    ep_fold_facts facts = {
        .thread_count = head->thread_count,
        .open_at_start = open,
        .length_ns = head->duration_ns,
    };
    rows->of_threads = head->threads;
    ep_fold *fold = &rows->fold;
    ep_status status = ep_fold_run(stream, &facts, &fold, 1, progress);
    drop_recording(rows);
    free(open);
    return status;
}

static EP_CHECKED ep_status
read_capture(ep_rows *rows, const ep_trace *trace, uint64_t *lost, const ep_progress *progress)
{
    capture_stream s = {.stream = {.next = next_of_capture}};
    ep_decoded end = {0};
    s.columns.thread = ep_realloc(NULL, BATCH_ROWS, sizeof *s.columns.thread);
    bool has_room = s.columns.thread != NULL && ep_columns_reserve(&s.columns, BATCH_ROWS, BATCH_ROWS);
    ep_status status = has_room ? EP_OK : EP_NOMEM;
    if (status == EP_OK) {
        status = ep_decoder_open(&trace->capture, trace->only_thread, NULL, &s.decoder);
    }
    if (status == EP_OK) {
        status = run(rows, &s.stream, ep_decoder_head(s.decoder), progress);
        ep_decoder_end(s.decoder, &end);
        *lost = lost_of(&end);
        ep_decoded_clear(&end);
        ep_decoder_close(s.decoder);
    }
    ep_columns_clear(&s.columns);
    return status;
}

/* A filter needs all events before it can say which to drop. */
static bool
is_capture(const ep_trace *trace)
{
    return trace->origin == NULL && !trace->has_decoded && !trace->check_records &&
           ep_filter_is_empty(&trace->filter);
}

ep_status
ep_rows_read(ep_rows *rows, ep_trace *trace, uint64_t *lost, ep_error *error)
{
    bool by_batches = is_capture(trace);
    ep_status status = by_batches ? EP_OK : ep_trace_reach(trace, EP_STEP_DECODED, error);
    if (status != EP_OK) {
        return status;
    }
    ep_work work;
    ep_work_begin(&work, trace->watcher, "making rows");
    if (by_batches) {
        status = read_capture(rows, trace, lost, &work.progress);
    } else {
        ep_column_stream stream;
        ep_column_stream_open(&stream, &trace->decoded.columns);
        status = run(rows, &stream.stream, &trace->decoded, &work.progress);
        *lost = lost_of(&trace->decoded);
    }
    ep_work_end(&work);
    return status;
}

size_t
ep_rows_most(const ep_trace *trace)
{
    size_t words = trace->decoded.columns.count;
    for (size_t i = 0; i < trace->capture.chunk_count; i++) {
        const ep_chunk_header *header = trace->capture.chunks[i]->header;
        words += (size_t)(ep_cursor_begin(header).limit - (const _Atomic uint64_t *)(header + 1));
    }
    return words;
}
