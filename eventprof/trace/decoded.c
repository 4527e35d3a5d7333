/* What was decoded: its columns, and its threads. */
#include "array.h"
#include "decode.h"
#include "memory.h"

/* ---- Columns --------------------------------------------------------------------------------- */

void
ep_columns_append(ep_columns *to, const ep_columns *from, size_t row, size_t rows, size_t *block)
{
    memcpy(to->time_ns + to->count, from->time_ns + row, rows * sizeof *to->time_ns);
    memcpy(to->kind + to->count, from->kind + row, rows * sizeof *to->kind);
    memcpy(to->thread + to->count, from->thread + row, rows * sizeof *to->thread);
    memcpy(to->id + to->count, from->id + row, rows * sizeof *to->id);
    size_t at = *block, until = ep_columns_block_of_row(from, at, row + rows), blocks = until - at;
    for (size_t i = 0; i < blocks; i++) {
        to->alloc_row[to->alloc_count + i] = from->alloc_row[at + i] - row + to->count;
    }
    memcpy(to->address + to->alloc_count, from->address + at, blocks * sizeof *to->address);
    memcpy(to->size + to->alloc_count, from->size + at, blocks * sizeof *to->size);
    to->count += rows;
    to->alloc_count += blocks;
    *block = until;
}

void
ep_columns_clear(ep_columns *columns)
{
    ep_column_free(columns->thread);
    if (columns->memory != NULL) {
        ep_column_free(columns->memory);
    } else {
        ep_column_free(columns->time_ns);
        ep_column_free(columns->kind);
        ep_column_free(columns->id);
        ep_column_free(columns->alloc_row);
        ep_column_free(columns->address);
        ep_column_free(columns->size);
    }
    *columns = (ep_columns){0};
}

/* Room for `count` elements at *at, which moves on; vectors like what is aligned. */
static size_t
take_room(size_t *at, size_t count, size_t size)
{
    size_t begin = *at;
    *at = (begin + count * size + 63) & ~(size_t)63;
    return begin;
}

bool
ep_columns_reserve(ep_columns *columns, size_t rows, size_t blocks)
{
    if (rows > SIZE_MAX / 64 || blocks > SIZE_MAX / 64) {
        return false;
    }
    size_t bytes = 0;
    size_t time_ns = take_room(&bytes, rows, sizeof *columns->time_ns);
    size_t id = take_room(&bytes, rows, sizeof *columns->id);
    size_t kind = take_room(&bytes, rows, sizeof *columns->kind);
    size_t alloc_row = take_room(&bytes, blocks, sizeof *columns->alloc_row);
    size_t address = take_room(&bytes, blocks, sizeof *columns->address);
    size_t size = take_room(&bytes, blocks, sizeof *columns->size);
    char *memory = ep_column_new(bytes, 1);
    if (memory == NULL) {
        return false;
    }
    columns->memory = memory;
    columns->time_ns = (int64_t *)(memory + time_ns);
    columns->id = (uint32_t *)(memory + id);
    columns->kind = (uint8_t *)(memory + kind);
    columns->alloc_row = (uint64_t *)(memory + alloc_row);
    columns->address = (uint64_t *)(memory + address);
    columns->size = (int64_t *)(memory + size);
    return true;
}

bool
ep_columns_own(const ep_columns *columns)
{
    if (columns->memory != NULL) {
        return ep_column_own(columns->thread) && ep_column_own(columns->memory);
    }
    return ep_column_own(columns->thread) && ep_column_own(columns->time_ns) &&
           ep_column_own(columns->kind) && ep_column_own(columns->id) &&
           ep_column_own(columns->alloc_row) && ep_column_own(columns->address) &&
           ep_column_own(columns->size);
}

size_t
ep_columns_block_of_row(const ep_columns *columns, size_t from, size_t row)
{
    size_t low = from, high = columns->alloc_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (columns->alloc_row[middle] < row) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* ---- Threads --------------------------------------------------------------------------------- */

void
ep_decoded_clear(ep_decoded *decoded)
{
    ep_columns_clear(&decoded->columns);
    free(decoded->resident_ns);
    free(decoded->resident_bytes);
    free(decoded->resident_own);
    for (size_t i = 0; i < decoded->thread_count; i++) {
        free(decoded->threads[i].open.calls);
    }
    free(decoded->threads);
    free(decoded->read_threads);
    *decoded = (ep_decoded){0};
}

void
ep_decoded_keep_rows(ep_decoded *decoded, const uint8_t *drop)
{
    ep_columns *c = &decoded->columns;
    size_t kept = 0, block = 0, kept_blocks = 0;
    for (size_t row = 0; row < c->count; row++) {
        ep_column_row(row);
        bool has_block = block < c->alloc_count && c->alloc_row[block] == row;
        if (drop[row]) {
            decoded->threads[c->thread[row]].recorded[c->kind[row]] -= 1;
            block += has_block;
            continue;
        }
        if (has_block) {
            c->alloc_row[kept_blocks] = kept;
            c->address[kept_blocks] = c->address[block];
            c->size[kept_blocks++] = c->size[block++];
        }
        c->time_ns[kept] = c->time_ns[row];
        c->kind[kept] = c->kind[row];
        c->thread[kept] = c->thread[row];
        c->id[kept++] = c->id[row];
    }
    c->count = kept;
    c->alloc_count = kept_blocks;
}

static uint64_t
sum(const uint64_t counts[EP_KIND_COUNT])
{
    uint64_t total = 0;
    for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
        total += counts[kind];
    }
    return total;
}

int64_t
ep_open_from_ns(const ep_trace_thread *thread, ep_full_reason full_reason)
{
    bool has_rows = ep_any_counted(thread->recorded);
    bool lost_head = full_reason == EP_FULL_NOT && ep_any_counted(thread->lost) && has_rows;
    int64_t from_ns = lost_head ? thread->first_ns : thread->from_ns;
    /* A damaged archive may have events outside of what it says: no call is negative. */
    return has_rows && thread->first_ns < from_ns ? thread->first_ns : from_ns;
}

int64_t
ep_open_until_ns(const ep_trace_thread *thread, int64_t duration_ns)
{
    int64_t until_ns = thread->until_ns > 0 ? thread->until_ns : duration_ns;
    return ep_any_counted(thread->recorded) && thread->last_ns > until_ns ? thread->last_ns : until_ns;
}

size_t
ep_process_count(const ep_trace_thread *threads, size_t count)
{
    int32_t last = 0;
    for (size_t i = 0; i < count; i++) {
        last = threads[i].process > last ? threads[i].process : last;
    }
    return (size_t)last + 1;
}

ep_status
ep_thread_processes(const ep_trace_thread *threads, size_t count, int32_t **out)
{
    *out = NULL;
    if (ep_process_count(threads, count) == 1) {
        return EP_OK;
    }
    int32_t *processes = ep_calloc(count, sizeof *processes);
    if (processes == NULL) {
        return EP_NOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        processes[i] = threads[i].process;
    }
    *out = processes;
    return EP_OK;
}

typedef struct numbered {
    uint64_t native_id;
    int32_t process, row;
} numbered;

static int
by_number(const void *a, const void *b)
{
    const numbered *x = a, *y = b;
    if (x->process != y->process) {
        return (x->process > y->process) - (x->process < y->process);
    }
    if (x->native_id != y->native_id) {
        return x->native_id > y->native_id ? 1 : -1;
    }
    return (x->row > y->row) - (x->row < y->row);
}

/* Lanes of a thread have its number of the system. So have threads that lived one after the other; they
 * never take turns. */
ep_status
ep_thread_carriers(const ep_trace_thread *threads, size_t count, int32_t **out)
{
    *out = NULL;
    numbered *sorted = ep_calloc(count + 1, sizeof *sorted);
    int32_t *carriers = ep_calloc(count + 1, sizeof *carriers);
    bool any = false;
    if (sorted == NULL || carriers == NULL) {
        free(sorted);
        free(carriers);
        return EP_NOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        const ep_thread *thread = threads[i].thread;
        sorted[i] = (numbered){thread != NULL ? thread->native_id : 0, threads[i].process, (int32_t)i};
    }
    qsort(sorted, count, sizeof *sorted, by_number);
    for (size_t i = 0, first = 0; i < count; i++) {
        bool is_same = sorted[i].native_id != 0 && sorted[i].native_id == sorted[first].native_id &&
                       sorted[i].process == sorted[first].process;
        first = is_same ? first : i;
        carriers[sorted[i].row] = sorted[first].row;
        any = any || first != i;
    }
    free(sorted);
    if (any) {
        *out = carriers;
    } else {
        free(carriers);
    }
    return EP_OK;
}

uint64_t
ep_decoded_events(const ep_decoded *decoded)
{
    uint64_t events = 0;
    for (size_t i = 0; i < decoded->thread_count; i++) {
        events += sum(decoded->threads[i].recorded);
    }
    return events;
}
