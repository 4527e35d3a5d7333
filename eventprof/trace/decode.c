/* Capture -> readers, one for each thread -> merged columns. The lanes of a thread (lanes.h), which write
 * to one log, have one reader: its batches are of one lane each. A reader turns its thread's records into
 * batches of rows that fit the processor's cache; merging copies runs of rows from the batches to the
 * result. The result is written once: on fresh memory that is most of the cost (17 bytes a call; measured:
 * 1.2 us a page, against 2 ns for decoding a record). */
#include "decode.h"

#include <string.h>

#include "array.h"
#include "decode_plain.h"
#include "invariants.h"
#include "memory.h"

#define BLOCK_ROWS 2048

/* ---- Reading one thread ---------------------------------------------------------------------- */

/* Ticks that need no further checks: they are in the window, before it was full, and in one stretch of the
 * clock. Valid for first <= ticks <= last. */
typedef struct plain_ticks {
    ep_clock_stretch stretch;
    uint64_t first, last;
} plain_ticks;

/* Records of one thread and its lanes that follow each other in one chunk; up to a record of another thread
 * or the chunk's end. */
typedef struct segment {
    ep_cursor begin;                    /* its address is not valid if chunks come from a source */
    size_t chunk;                       /* index in the capture */
    size_t from_word, limit_word;       /* position of `begin`, counted from the end of the chunk's
                                         * header */
    size_t next;                        /* next segment of the same thread: index + 1; 0: none */
} segment;

typedef struct reader {
    /* valid from listing on */
    struct reader *carrier;             /* which reads the records: of a lane, that of its thread */
    bool has_lanes;
    bool is_seen;                       /* a chunk that was looked through has wanted records of this id */
    size_t first_segment, last_segment; /* index + 1; 0: none */
    size_t words;                       /* words of its segments; there are at most so many rows */
    /* where it is */
    size_t segment;                     /* index + 1 of what `cursor` reads; 0: at the end */
    ep_cursor cursor;
    const ep_chunk_header *loaded;      /* chunk of the source that `cursor` reads; NULL: none */
    _Atomic uint64_t *copy;             /* records of a live chunk, that `cursor` reads; NULL: none */
    plain_ticks plain;
    struct reader *lane;                /* whose rows these are; mostly its own */
    ep_record held;                     /* of another lane: the first one of the next batch */
    bool holds;
    int64_t last_ns;                    /* time never goes backwards within a thread */
    /* Counted for this id by the reader of its carrier, which reads the records. */
    uint64_t recorded[EP_KIND_COUNT];
    uint64_t lost[EP_KIND_COUNT];
    int64_t lane_first_ns, lane_last_ns;
    bool has_rows;
    /* its rows: a batch that is filled again and again; or the result, if there is only one reader */
    ep_columns rows;
    size_t capacity;                    /* of rows.* */
    size_t alloc_capacity;
    /* merging */
    size_t row, block;                  /* next to be taken from `rows` */
    int32_t rows_thread;                /* lane->thread */
    int32_t thread;                     /* row in the thread table, of the id */
} reader;

struct ep_decoder {
    const ep_capture *capture;
    ep_chunk_source *source;            /* NULL: the chunks are in memory */
    ep_status status;                   /* the first failure of the source; readers end there */
    reader *readers;                    /* index = thread id */
    size_t reader_count;
    segment *segments;
    size_t segment_count, segment_capacity;
    ep_plain_mask masks[EP_PLAIN_KINDS];
    int64_t origin_ns;
    uint64_t damaged_chunks;
    size_t words_entered;               /* words of segments that were read, or are being read */
    reader **heap;                      /* readers that have rows; the one with the next row is first */
    size_t heap_count;
    ep_decoded head;                    /* all but the columns */
};

static plain_ticks
plain_ticks_at(const ep_decoder *d, uint64_t ticks)
{
    const ep_capture *capture = d->capture;
    plain_ticks plain = {
        .stretch = ep_clock_map_stretch(&capture->clock, ticks, d->origin_ns),
        .first = capture->start.ticks,
        .last = capture->stop.ticks < capture->full_ticks ? capture->stop.ticks : capture->full_ticks,
    };
    if (plain.first < plain.stretch.first_ticks) {
        plain.first = plain.stretch.first_ticks;
    }
    if (plain.last >= plain.stretch.last_ticks) {
        plain.last = plain.stretch.last_ticks - 1;
    }
    return plain;
}

/* Reads records while they need no further checks. The chunk is sealed: no thread writes to it. */
static void
read_plain(const ep_decoder *d, reader *r)
{
    ep_plain plain = {
        .limit = (const uint64_t *)r->cursor.limit,
        .kinds = d->capture->kinds,
        .masks = d->masks,
        .high = r->cursor.high,
        .first_ticks = r->plain.first,
        .last_ticks = r->plain.last,
        .stretch = r->plain.stretch,
        .rows = &r->rows,
        .capacity = r->capacity,
        .alloc_capacity = r->alloc_capacity,
        .at = (const uint64_t *)r->cursor.at,
        .last_ns = r->last_ns,
        .recorded = r->lane->recorded,
    };
    ep_plain_read(&plain);
    r->cursor.at = (const _Atomic uint64_t *)plain.at;
    r->last_ns = plain.last_ns;
}

/* Appends one record that was read by the slow path. */
static void
append_record(reader *r, const ep_record *record)
{
    ep_columns *c = &r->rows;
    int64_t time_ns = ep_clock_stretch_ns(&r->plain.stretch, record->ticks);
    time_ns = time_ns > r->last_ns ? time_ns : r->last_ns;
    r->last_ns = time_ns;
    if (EP_UNLIKELY(!r->lane->has_rows)) {
        r->lane->has_rows = true;
        r->lane->lane_first_ns = time_ns;
    }
    size_t row = c->count++;
    c->time_ns[row] = time_ns;
    c->kind[row] = (uint8_t)record->kind;
    c->id[row] = record->id;
    r->lane->recorded[record->kind] += 1;
    if (ep_kinds[record->kind].words == 2) {
        size_t block = c->alloc_count++;
        c->alloc_row[block] = row;
        c->address[block] = record->address;
        c->size[block] =
            ep_kinds[record->kind].form == EP_FORM_ALLOC ? (int64_t)record->size : -1;
    }
}

static void
leave_chunk(ep_decoder *d, reader *r)
{
    free(r->copy);
    r->copy = NULL;
    if (r->loaded != NULL) {
        d->source->let_go(d->source, r->loaded);
        r->loaded = NULL;
    }
}

/* A copy is read by vectors: 22 and 11 instructions a call instead of 100. */
static void
copy_live(ep_decoder *d, reader *r)
{
    size_t most = (size_t)(r->cursor.limit - r->cursor.at);
    r->copy = ep_array_new(most + 2, sizeof *r->copy);
    if (r->copy == NULL) {
        d->status = EP_NOMEM;
        r->segment = 0;
        return;
    }
    size_t words = ep_cursor_copy(&r->cursor, (uint64_t *)r->copy);
    r->cursor.at = r->copy;
    r->cursor.limit = r->copy + words;
    r->cursor.may_change = false;
    r->cursor.last = NULL;
}

/* Moves the cursor to the begin of a segment (index + 1; 0: the end). */
static void
enter_segment(ep_decoder *d, reader *r, size_t index)
{
    leave_chunk(d, r);
    r->segment = d->status == EP_OK ? index : 0;
    if (r->segment == 0) {
        return;
    }
    const segment *s = &d->segments[r->segment - 1];
    r->cursor = s->begin;
    d->words_entered += s->limit_word - s->from_word;
    if (d->source == NULL) {
        if (r->cursor.may_change) {
            copy_live(d, r);
        }
        return;
    }
    d->status = d->source->load(d->source, s->chunk, &r->loaded);
    if (d->status != EP_OK) {
        r->loaded = NULL;
        r->segment = 0;
        return;
    }
    /* The words that can be read now, which may be fewer than were seen before. */
    size_t words = (size_t)r->loaded->used_words;
    const _Atomic uint64_t *at = (const _Atomic uint64_t *)(r->loaded + 1);
    r->cursor.at = at + (s->from_word < words ? s->from_word : words);
    r->cursor.limit = at + (s->limit_word < words ? s->limit_word : words);
}

static void
next_segment(ep_decoder *d, reader *r)
{
    d->damaged_chunks += r->cursor.damaged;
    enter_segment(d, r, d->segments[r->segment - 1].next);
}

/* The id's own reader; NULL: the thread attached after the capture, so its records are later than the
 * window. */
static inline reader *
reader_of(const ep_decoder *d, uint64_t thread_id)
{
    return EP_LIKELY(thread_id < d->reader_count) ? &d->readers[thread_id] : NULL;
}

static inline reader *
carrier_of(const ep_decoder *d, uint64_t thread_id)
{
    reader *r = reader_of(d, thread_id);
    return r != NULL ? r->carrier : NULL;
}

static inline bool
is_wanted(const ep_capture *capture, const ep_record *record)
{
    return record->ticks >= capture->start.ticks && record->ticks <= capture->stop.ticks &&
           ep_record_is_for(record, capture->kinds);
}

/* Appends to r->rows, until they are full, the thread has no more records, or the next one is of another
 * lane. */
static void
read_rows(ep_decoder *d, reader *r)
{
    const ep_capture *capture = d->capture;
    ep_record record = {0};
    size_t before = r->rows.count;
    while (r->segment != 0 && r->rows.count < r->capacity &&
           r->rows.alloc_count < r->alloc_capacity) {
        if (EP_UNLIKELY(r->holds)) {
            record = r->held;
            r->holds = false;
        } else if (!ep_cursor_next(&r->cursor, &record) || carrier_of(d, r->cursor.thread_id) != r) {
            next_segment(d, r);
            continue;
        }
        if (!is_wanted(capture, &record)) {
            continue;
        }
        reader *lane = reader_of(d, r->cursor.thread_id);
        if (record.ticks > capture->full_ticks) {
            lane->lost[record.kind] += 1;
            continue;
        }
        if (EP_UNLIKELY(lane != r->lane)) {
            if (r->rows.count > before) {
                r->held = record;
                r->holds = true;
                break;
            }
            r->lane = lane;
        }
        if (record.ticks < r->plain.first || record.ticks > r->plain.last) {
            r->plain = plain_ticks_at(d, record.ticks);
        }
        append_record(r, &record);
        if (!r->cursor.may_change) {
            read_plain(d, r);
        }
    }
    if (r->rows.count > before) {
        r->lane->lane_last_ns = r->last_ns;
        r->rows_thread = r->lane->thread;
    }
}

/* ---- Which thread wrote which records -------------------------------------------------------- */

static ep_status
add_segment(ep_decoder *d, size_t chunk, const ep_chunk_header *header, const ep_cursor *begin,
            uint64_t thread_id, const _Atomic uint64_t *end)
{
    reader *r = carrier_of(d, thread_id);
    if (r == NULL) {
        return EP_OK;
    }
    if (!ep_grow((void **)&d->segments, &d->segment_capacity, d->segment_count + 1,
                 sizeof *d->segments)) {
        return EP_NOMEM;
    }
    const _Atomic uint64_t *words = (const _Atomic uint64_t *)(header + 1);
    d->segments[d->segment_count++] = (segment){
        .begin = *begin,
        .chunk = chunk,
        .from_word = (size_t)(begin->at - words),
        .limit_word = (size_t)(end - words),
    };
    d->segments[d->segment_count - 1].begin.limit = (_Atomic uint64_t *)end;
    if (r->last_segment != 0) {
        d->segments[r->last_segment - 1].next = d->segment_count;
    } else {
        r->first_segment = d->segment_count;
    }
    r->last_segment = d->segment_count;
    r->words += (size_t)(end - begin->at);
    return EP_OK;
}

/* No other thread writes to a sealed chunk, nor to the calling thread's own chunk. A small trace is often
 * only that chunk. */
static ep_cursor
cursor_at(const ep_chunk_header *header)
{
    ep_cursor cursor = ep_cursor_begin(header);
    const ep_log *own = ep_log_current;
    if (cursor.may_change && own != NULL && own->chunk != NULL && own->chunk->header == header) {
        cursor.may_change = false;
        cursor.limit = own->next;
    }
    return cursor;
}

static void
see(ep_decoder *d, uint64_t thread_id, const ep_record *record)
{
    reader *lane = reader_of(d, thread_id);
    if (lane != NULL && is_wanted(d->capture, record)) {
        lane->is_seen = true;
    }
}

/* Threads that ended left the rest of their chunk to others: a segment begins where the thread changes. */
static ep_status
add_shared_chunk(ep_decoder *d, size_t chunk, const ep_chunk_header *header)
{
    ep_cursor begin = cursor_at(header), cursor = begin, before = begin;
    ep_record record;
    while (ep_cursor_next(&cursor, &record)) {
        see(d, cursor.thread_id, &record);
        if (EP_UNLIKELY(cursor.thread_id != before.thread_id) &&
            carrier_of(d, cursor.thread_id) != carrier_of(d, before.thread_id)) {
            ep_status status = add_segment(d, chunk, header, &begin, before.thread_id, before.at);
            if (status != EP_OK) {
                return status;
            }
            begin = before;
        }
        before = cursor;
    }
    /* Later records are of another thread, or later than the window; reading them is allowed. */
    return add_segment(d, chunk, header, &begin, before.thread_id, cursor.limit);
}

/* All of its records are of one lane, or of one thread. Whether a lane has rows shows only in its
 * records. */
static ep_status
add_unshared_chunk(ep_decoder *d, size_t chunk, const ep_chunk_header *header)
{
    ep_cursor begin = cursor_at(header), cursor = begin;
    ep_record record;
    reader *lane = reader_of(d, begin.thread_id);
    while (lane != NULL && lane->carrier->has_lanes && !lane->is_seen && ep_cursor_next(&cursor, &record)) {
        see(d, begin.thread_id, &record);
    }
    return add_segment(d, chunk, header, &begin, begin.thread_id, begin.limit);
}

static ep_status
add_chunk(ep_decoder *d, size_t chunk)
{
    const ep_chunk_header *header = d->capture->chunks[chunk]->header;
    bool is_shared = atomic_load_explicit(&header->shared, memory_order_relaxed) != 0;
    const reader *lane = reader_of(d, header->thread_id);
    bool is_read = is_shared || (lane != NULL && lane->carrier->has_lanes && !lane->is_seen);
    if (d->source == NULL || !is_read) {
        return is_shared ? add_shared_chunk(d, chunk, header) : add_unshared_chunk(d, chunk, header);
    }
    ep_status status = d->source->load(d->source, chunk, &header);
    if (status == EP_OK) {
        status = is_shared ? add_shared_chunk(d, chunk, header) : add_unshared_chunk(d, chunk, header);
        d->source->let_go(d->source, header);
    }
    return status;
}

/* Reads the first batch. Afterwards a reader without rows is at its end. */
static ep_status
begin_reading(ep_decoder *d, reader *r)
{
    r->capacity = r->alloc_capacity = r->words + 1 < BLOCK_ROWS ? r->words + 1 : BLOCK_ROWS;
    if (!ep_columns_reserve(&r->rows, r->capacity, r->alloc_capacity)) {
        return EP_NOMEM;
    }
    r->plain = (plain_ticks){.first = 1};    /* contains no ticks */
    enter_segment(d, r, r->first_segment);
    read_rows(d, r);
    if (r->rows.count == 0) {
        ep_columns_clear(&r->rows);
    }
    return EP_OK;
}

/* ---- Merging threads ------------------------------------------------------------------------- */

/* Whether a's next row comes before b's. Equal times: the lower thread first. */
static bool
earlier(const reader *a, const reader *b)
{
    int64_t x = a->rows.time_ns[a->row], y = b->rows.time_ns[b->row];
    return x < y || (x == y && a->rows_thread < b->rows_thread);
}

static void
sift_down(reader **heap, size_t count, size_t at)
{
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= count) {
            return;
        }
        if (child + 1 < count && earlier(heap[child + 1], heap[child])) {
            child += 1;
        }
        if (!earlier(heap[child], heap[at])) {
            return;
        }
        reader *moved = heap[at];
        heap[at] = heap[child];
        heap[child] = moved;
        at = child;
    }
}

/* One past the last row of heap[0] that comes before every other reader's next. Threads take turns
 * in long runs (the GIL's 5 ms), so the end is searched by doubling steps. */
static size_t
run_end(reader *const *heap, size_t count)
{
    const reader *first = heap[0];
    if (count == 1) {
        return first->rows.count;
    }
    const reader *second = heap[1];
    if (count > 2 && earlier(heap[2], second)) {
        second = heap[2];
    }
    int64_t limit = second->rows.time_ns[second->row];
    bool wins_ties = first->rows_thread < second->rows_thread;
    const int64_t *time_ns = first->rows.time_ns;
    size_t low = first->row, step = 1, count_rows = first->rows.count;
#define BEFORE(row) (time_ns[row] < limit || (wins_ties && time_ns[row] == limit))
    while (low + step < count_rows && BEFORE(low + step)) {
        low += step;
        step *= 2;
    }
    size_t high = low + step < count_rows ? low + step : count_rows;    /* BEFORE(low), not (high) */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (BEFORE(middle)) {
            low = middle;
        } else {
            high = middle;
        }
    }
#undef BEFORE
    return high;
}

static void
take_run(ep_columns *to, reader *from, size_t end)
{
    const ep_columns *c = &from->rows;
    size_t rows = end - from->row;
    memcpy(&to->time_ns[to->count], &c->time_ns[from->row], rows * sizeof *c->time_ns);
    memcpy(&to->kind[to->count], &c->kind[from->row], rows * sizeof *c->kind);
    memcpy(&to->id[to->count], &c->id[from->row], rows * sizeof *c->id);
    int32_t thread = from->rows_thread;    /* read once: the stores could change it */
    for (size_t i = 0; i < rows; i++) {
        to->thread[to->count + i] = thread;
    }
    for (; from->block < c->alloc_count && c->alloc_row[from->block] < end; from->block++) {
        to->alloc_row[to->alloc_count] = c->alloc_row[from->block] - from->row + to->count;
        to->address[to->alloc_count] = c->address[from->block];
        to->size[to->alloc_count] = c->size[from->block];
        to->alloc_count += 1;
    }
    to->count += rows;
    from->row = end;
}

/* Reads rows of the only reader where they are wanted: they need no merging. All rows of its batch have
 * been taken. The capacities are those of `to`. */
static void
read_in_place(ep_decoder *d, reader *r, ep_columns *to, size_t capacity, size_t alloc_capacity)
{
    const ep_columns batch = r->rows;
    const size_t batch_capacity = r->capacity, batch_alloc_capacity = r->alloc_capacity;
    r->rows = *to;
    r->capacity = capacity;
    r->alloc_capacity = alloc_capacity;
    read_rows(d, r);
    *to = r->rows;
    r->rows = batch;
    r->capacity = batch_capacity;
    r->alloc_capacity = batch_alloc_capacity;
}

/* Takes all rows of the only reader. The threads of `to` are zero. */
static void
take_all(ep_decoder *d, reader *r, ep_columns *to, size_t capacity, size_t alloc_capacity)
{
    take_run(to, r, r->rows.count);
    size_t from = 0, limit;
    do {
        limit = ep_column_part(to->count, capacity);
        read_in_place(d, r, to, limit, alloc_capacity);
        for (size_t i = from; r->thread != 0 && i < to->count; i++) {
            to->thread[i] = r->thread;
        }
        from = to->count;
    } while (to->count == limit && limit < capacity);
}

/* The batch of a reader is empty: reads the next one. From the only reader as much as is wanted is read in
 * place first, if `to` has room for as many blocks. */
static void
read_more(ep_decoder *d, reader *r, ep_columns *to, size_t limit, bool in_place)
{
    r->rows.count = r->rows.alloc_count = r->row = r->block = 0;
    if (d->heap_count == 1 && in_place && !r->has_lanes) {
        size_t from = to->count;
        read_in_place(d, r, to, limit, limit);
        for (size_t i = from; i < to->count; i++) {
            to->thread[i] = r->thread;
        }
    }
    read_rows(d, r);
}

/* Appends merged rows until there are `limit`, or no more. The columns have room for as many rows and, to
 * read in place, as many blocks. */
static void
merge_rows(ep_decoder *d, ep_columns *to, size_t limit, bool in_place)
{
    reader **heap = d->heap;
    while (d->heap_count > 0 && to->count < limit) {
        reader *first = heap[0];
        size_t end = run_end(heap, d->heap_count), room = limit - to->count;
        take_run(to, first, end - first->row < room ? end : first->row + room);
        if (first->row == first->rows.count) {
            read_more(d, first, to, limit, in_place);
            if (first->rows.count == 0) {
                ep_columns_clear(&first->rows);
                heap[0] = heap[--d->heap_count];
            }
        }
        sift_down(heap, d->heap_count, 0);
    }
}

static bool
may_have_blocks(const ep_capture *capture)
{
    return (capture->kinds & ep_kinds_of_two_words) != 0;
}

/* All rows of all readers. */
static ep_status
merge(ep_decoder *d, ep_columns *to)
{
    size_t rows = 0;
    for (size_t i = 0; i < d->heap_count; i++) {
        rows += d->heap[i]->words;
    }
    /* A row takes at least one word, a block two. Elements that are never written cost no memory. */
    size_t blocks = may_have_blocks(d->capture) ? rows / 2 + 1 : 1;
    /* With one thread all rows are zero, and their memory is not touched; not in a file either. */
    bool is_one = d->heap_count == 1 && !d->heap[0]->has_lanes;
    bool all_zero = is_one && d->heap[0]->thread == 0;
    to->thread = all_zero ? ep_calloc(rows, sizeof *to->thread)
                          : ep_column_new(rows, sizeof *to->thread);
    if (to->thread == NULL || !ep_columns_reserve(to, rows, blocks)) {
        return EP_NOMEM;
    }
    if (all_zero) {
        ep_os_expect_use(to->thread, rows * sizeof *to->thread);
    }
    if (is_one) {
        take_all(d, d->heap[0], to, rows, blocks);
        return d->status;
    }
    size_t limit;
    do {
        limit = ep_column_part(to->count, rows);
        merge_rows(d, to, limit, false);
    } while (to->count == limit && limit < rows);
    return d->status;
}

/* ---- The whole ------------------------------------------------------------------------------- */

/* Begins to read each thread. Threads with events, loss or open calls get their rows, in order of id. */
static ep_status
list_threads(ep_decoder *d, uint32_t only_thread)
{
    ep_decoded *out = &d->head;
    out->threads = ep_calloc(d->reader_count, sizeof *out->threads);
    if (out->threads == NULL) {
        return EP_NOMEM;
    }
    for (size_t id = 0; id < d->reader_count; id++) {
        reader *r = &d->readers[id];
        const ep_window_thread *window = &d->capture->threads[id];
        if (!ep_capture_wants(d->capture, only_thread, id)) {
            continue;
        }
        if (r->first_segment != 0 && begin_reading(d, r) != EP_OK) {
            return EP_NOMEM;
        }
        bool has_rows = r->carrier->has_lanes ? r->is_seen : r->rows.count > 0;
        if (r->rows.count > 0) {
            d->heap[d->heap_count++] = r;
        }
        if (!has_rows && !window->open.depth && !ep_any_counted(r->lost) &&
            !ep_any_counted(window->lost)) {
            continue;
        }
        ep_trace_thread *thread = &out->threads[out->thread_count];
        const ep_thread *read = d->capture->read_threads;
        thread->thread = read != NULL && id > 0 ? &read[id] : ep_engine_thread((uint32_t)id);
        r->thread = (int32_t)out->thread_count++;
        if (ep_open_stack_copy(&window->open, &thread->open) != EP_OK) {
            return EP_NOMEM;
        }
    }
    return EP_OK;
}

/* Sets the facts about the threads that are known now. */
static void
settle_threads(ep_decoder *d)
{
    ep_decoded *out = &d->head;
    for (size_t i = 0; i < out->thread_count; i++) {
        ep_trace_thread *thread = &out->threads[i];
        size_t id = thread->thread != NULL ? thread->thread->id : 0;
        const reader *r = &d->readers[id];
        memcpy(thread->recorded, r->recorded, sizeof thread->recorded);
        for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
            thread->lost[kind] = d->capture->threads[id].lost[kind] + r->lost[kind];
        }
        thread->first_ns = r->lane_first_ns;
        thread->last_ns = r->lane_last_ns;
    }
}

static int64_t
window_ns(const ep_capture *capture, int64_t origin_ns)
{
    uint64_t end = capture->full_ticks < capture->stop.ticks ? capture->full_ticks : capture->stop.ticks;
    ep_clock_stretch stretch = ep_clock_map_stretch(&capture->clock, end, origin_ns);
    int64_t length = ep_clock_stretch_ns(&stretch, end);
    return length > 0 ? length : 0;
}

/* Chunks are opened under the lock, in order of sequence, and samples follow each other; the clock may step
 * back a little. */
static void
add_resident(ep_decoded *result, int64_t time_ns, int64_t bytes, int64_t own_bytes)
{
    size_t at = result->resident_count++;
    int64_t last_ns = at > 0 ? result->resident_ns[at - 1] : 0;
    result->resident_ns[at] = time_ns > last_ns ? time_ns : last_ns;
    result->resident_bytes[at] = bytes;
    /* What a damaged file says cannot be more than the whole. */
    result->resident_own[at] = own_bytes > 0 && own_bytes <= bytes ? own_bytes : 0;
}

/* Of a damaged file both may be anything. */
static int64_t
ns_between(int64_t from_ns, int64_t to_ns)
{
    return (int64_t)((uint64_t)to_ns - (uint64_t)from_ns);
}

/* Adds the samples of the helper thread up to a time, from *next on. */
static void
add_samples(const ep_capture *capture, ep_decoded *result, int64_t end_ns, size_t *next)
{
    for (; *next < capture->resident_count; *next += 1) {
        ep_resident sample = capture->resident[*next];
        int64_t time_ns = ns_between(capture->start.monotonic_ns, sample.monotonic_ns);
        if (time_ns > end_ns) {
            return;
        }
        if (time_ns >= 0 && sample.bytes >= 0) {
            add_resident(result, time_ns, sample.bytes, sample.own_bytes);
        }
    }
}

static void
add_resident_at(const ep_decoder *d, ep_decoded *result, uint64_t ticks, int64_t bytes,
                int64_t own_bytes, size_t *next)
{
    const ep_capture *capture = d->capture;
    if (bytes < 0 || ticks < capture->start.ticks || ticks > capture->stop.ticks) {
        return;
    }
    ep_clock_stretch stretch = ep_clock_map_stretch(&capture->clock, ticks, d->origin_ns);
    int64_t time_ns = ep_clock_stretch_ns(&stretch, ticks);
    add_samples(capture, result, time_ns, next);
    add_resident(result, time_ns, bytes, own_bytes);
}

static ep_status
list_resident(ep_decoder *d)
{
    const ep_capture *capture = d->capture;
    ep_decoded *result = &d->head;
    size_t most = capture->chunk_count + capture->resident_count + 2, next = 0;
    result->resident_ns = ep_calloc(most, sizeof *result->resident_ns);
    result->resident_bytes = ep_calloc(most, sizeof *result->resident_bytes);
    result->resident_own = ep_calloc(most, sizeof *result->resident_own);
    if (result->resident_ns == NULL || result->resident_bytes == NULL || result->resident_own == NULL) {
        return EP_NOMEM;
    }
    add_resident_at(d, result, capture->start.ticks, capture->start_resident_bytes,
                    capture->start_own_bytes, &next);
    for (size_t i = 0; i < capture->chunk_count; i++) {
        const ep_chunk_header *header = capture->chunks[i]->header;
        add_resident_at(d, result, header->opened.ticks, header->resident_bytes, header->own_bytes, &next);
    }
    bool ended = capture->stop.monotonic_ns > capture->start.monotonic_ns;
    int64_t length_ns = ns_between(capture->start.monotonic_ns, capture->stop.monotonic_ns);
    add_samples(capture, result, ended ? length_ns : result->duration_ns, &next);
    add_resident_at(d, result, capture->stop.ticks, capture->stop_resident_bytes,
                    capture->stop_own_bytes, &next);
    return EP_OK;
}

ep_status
ep_decoder_open(const ep_capture *capture, uint32_t only_thread, ep_chunk_source *source, ep_decoder **out)
{
    ep_decoder *d = ep_calloc(1, sizeof *d);
    if (d == NULL) {
        return EP_NOMEM;
    }
    *d = (ep_decoder){.capture = capture, .source = source, .reader_count = capture->thread_count};
    ep_plain_find_masks(capture->kinds, d->masks);
    ep_clock_stretch stretch = ep_clock_map_stretch(&capture->clock, capture->start.ticks, 0);
    d->origin_ns = ep_clock_stretch_ns(&stretch, capture->start.ticks);
    d->head.duration_ns = window_ns(capture, d->origin_ns);
    d->readers = ep_calloc(d->reader_count, sizeof *d->readers);
    d->heap = ep_calloc(d->reader_count, sizeof *d->heap);
    ep_status status = d->readers != NULL && d->heap != NULL ? EP_OK : EP_NOMEM;
    for (size_t i = 0; i < d->reader_count && status == EP_OK; i++) {
        reader *carrier = &d->readers[ep_capture_carrier(capture, i)];
        carrier->has_lanes = carrier->has_lanes || carrier != &d->readers[i];
        d->readers[i].carrier = carrier;
        d->readers[i].lane = &d->readers[i];
    }
    for (size_t i = 0; i < capture->chunk_count && status == EP_OK; i++) {
        status = add_chunk(d, i);
    }
    status = status != EP_OK ? status : list_threads(d, only_thread);
    status = status != EP_OK ? status : d->status;
    status = status != EP_OK ? status : list_resident(d);
    if (status != EP_OK) {
        ep_decoder_close(d);
        return status;
    }
    settle_threads(d);
    for (size_t i = 0; i < d->heap_count; i++) {
        d->heap[i]->rows_thread = d->heap[i]->lane->thread;    /* the first batches were read before */
    }
    for (size_t i = d->heap_count; i-- > 0;) {
        sift_down(d->heap, d->heap_count, i);
    }
    *out = d;
    return EP_OK;
}

const ep_decoded *
ep_decoder_head(const ep_decoder *d)
{
    return &d->head;
}

ep_status
ep_decoder_next(ep_decoder *d, ep_columns *to, size_t limit)
{
    merge_rows(d, to, limit, true);
    return d->status;
}

ep_status
ep_decoder_take_all(ep_decoder *d, ep_columns *out)
{
    *out = (ep_columns){0};
    return d->heap_count > 0 ? merge(d, out) : EP_OK;
}

void
ep_decoder_progress(const ep_decoder *d, size_t *done, size_t *total)
{
    *done = d->words_entered;
    *total = 0;
    for (size_t i = 0; i < d->segment_count; i++) {
        *total += d->segments[i].limit_word - d->segments[i].from_word;
    }
}

void
ep_decoder_end(ep_decoder *d, ep_decoded *out)
{
    settle_threads(d);
    d->head.damaged_chunks = d->damaged_chunks;
    *out = d->head;
    d->head = (ep_decoded){0};
}

void
ep_decoder_close(ep_decoder *d)
{
    if (d == NULL) {
        return;
    }
    for (size_t i = 0; d->readers != NULL && i < d->reader_count; i++) {
        leave_chunk(d, &d->readers[i]);
        ep_columns_clear(&d->readers[i].rows);
    }
    ep_decoded_clear(&d->head);
    free(d->readers);
    free(d->segments);
    free(d->heap);
    free(d);
}

ep_status
ep_decode(const ep_capture *capture, uint32_t only_thread, ep_decoded *out)
{
    ep_decoder *d;
    ep_columns columns;
    ep_status status = ep_decoder_open(capture, only_thread, NULL, &d);
    if (status != EP_OK) {
        return status;
    }
    status = ep_decoder_take_all(d, &columns);
    if (status == EP_OK) {
        ep_decoder_end(d, out);
        out->columns = columns;
        EP_CHECK_INVARIANTS(ep_columns_check(&out->columns, out->thread_count));
    } else {
        ep_columns_clear(&columns);
    }
    ep_decoder_close(d);
    return status;
}

void
ep_capture_count(const ep_capture *capture, uint32_t only_thread, uint64_t recorded[EP_KIND_COUNT],
                 uint64_t lost[EP_KIND_COUNT])
{
    memset(recorded, 0, EP_KIND_COUNT * sizeof *recorded);
    memset(lost, 0, EP_KIND_COUNT * sizeof *lost);
    for (size_t i = 0; i < capture->thread_count; i++) {
        bool wanted = ep_capture_wants(capture, only_thread, i);
        for (int kind = 0; kind < EP_KIND_COUNT && wanted; kind++) {
            lost[kind] += capture->threads[i].lost[kind];
        }
    }
    for (size_t i = 0; i < capture->chunk_count; i++) {
        ep_cursor cursor = ep_cursor_begin(capture->chunks[i]->header);
        ep_record record = {0};
        while (ep_cursor_next(&cursor, &record)) {
            if (record.ticks < capture->start.ticks || record.ticks > capture->stop.ticks ||
                !ep_record_is_for(&record, capture->kinds) ||
                cursor.thread_id >= capture->thread_count ||    /* as in add_segment() */
                !ep_capture_wants(capture, only_thread, cursor.thread_id)) {
                continue;
            }
            uint64_t *counts = record.ticks > capture->full_ticks ? lost : recorded;
            counts[record.kind] += 1;
        }
    }
}
