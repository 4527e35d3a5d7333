#include "merge.h"

#include <inttypes.h>
#include <stdio.h>

#include "memory.h"

typedef struct source {
    const ep_merge_part *part;
    size_t index;              /* among the parts */
    size_t row, block;         /* next to be taken */
    size_t resident;
    int64_t resident_bytes, resident_own;    /* the last sample */
    int32_t first_thread;      /* row of its first thread in the result */
} source;

static int64_t
next_time(const source *s)
{
    return s->part->decoded->columns.time_ns[s->row] + s->part->offset_ns;
}

/* Whether a comes before b; equal times by part, so that the result is one only. */
static bool
comes_before(const source *a, const source *b)
{
    int64_t x = next_time(a), y = next_time(b);
    return x < y || (x == y && a->index < b->index);
}

/* heap[0] may have to move down; the rest is a heap. */
static void
sift_down(source **heap, size_t count)
{
    source *moved = heap[0];
    size_t at = 0;
    for (size_t child = 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && comes_before(heap[child + 1], heap[child])) {
            child += 1;
        }
        if (!comes_before(heap[child], moved)) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

static ep_status
merge_threads(source *sources, size_t count, ep_decoded *out)
{
    size_t total = 0;
    int32_t processes = 0;    /* of the parts before */
    for (size_t i = 0; i < count; i++) {
        total += sources[i].part->decoded->thread_count;
    }
    out->threads = ep_calloc(total, sizeof *out->threads);
    out->read_threads = ep_calloc(total, sizeof *out->read_threads);
    if (out->threads == NULL || out->read_threads == NULL) {
        return EP_NOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        const ep_merge_part *part = sources[i].part;
        int32_t last_process = 0;
        sources[i].first_thread = (int32_t)out->thread_count;
        for (size_t k = 0; k < part->decoded->thread_count; k++) {
            const ep_trace_thread *from = &part->decoded->threads[k];
            ep_trace_thread *to = &out->threads[out->thread_count];
            ep_thread *thread = &out->read_threads[out->thread_count];
            *to = *from;
            to->open = (ep_open_stack){0};
            to->thread = thread;
            last_process = from->process > last_process ? from->process : last_process;
            to->process += processes;
            to->first_ns += part->offset_ns;
            to->last_ns += part->offset_ns;
            to->from_ns += part->offset_ns;
            to->until_ns = part->offset_ns +
                           (from->until_ns > 0 ? from->until_ns : part->decoded->duration_ns);
            out->thread_count += 1;
            const char *name = "?";
            if (from->thread != NULL) {
                thread->native_id = from->thread->native_id;
                bool named = atomic_load_explicit(&from->thread->named, memory_order_acquire);
                name = named ? from->thread->name : "";
            }
            snprintf(thread->name, sizeof thread->name, "%" PRIu64 "%s%.40s", part->process_id,
                     name[0] != 0 ? " " : "", name);
            atomic_store_explicit(&thread->named, true, memory_order_relaxed);
            if (ep_open_stack_copy(&from->open, &to->open) != EP_OK) {
                return EP_NOMEM;
            }
        }
        processes += last_process + 1;
    }
    return EP_OK;
}

static ep_status
reserve_rows(const source *sources, size_t count, ep_columns *c)
{
    size_t rows = 0, blocks = 0;
    for (size_t i = 0; i < count; i++) {
        rows += sources[i].part->decoded->columns.count;
        blocks += sources[i].part->decoded->columns.alloc_count;
    }
    c->thread = ep_realloc(NULL, rows, sizeof *c->thread);
    return ep_columns_reserve(c, rows, blocks) && c->thread != NULL ? EP_OK : EP_NOMEM;
}

static void
take_row(source *s, ep_columns *to)
{
    const ep_columns *from = &s->part->decoded->columns;
    size_t row = to->count++;
    to->time_ns[row] = from->time_ns[s->row] + s->part->offset_ns;
    to->kind[row] = from->kind[s->row];
    to->thread[row] = from->thread[s->row] + s->first_thread;
    to->id[row] = from->id[s->row];
    if (s->block < from->alloc_count && from->alloc_row[s->block] == s->row) {
        size_t block = to->alloc_count++;
        to->alloc_row[block] = row;
        bool is_value = ep_kinds[to->kind[row]].family == EP_FAMILY_VALUE;
        uint64_t mark = is_value ? 0 : (uint64_t)s->index << EP_MERGE_ADDRESS_BITS;
        to->address[block] = from->address[s->block] ^ mark;
        to->size[block] = from->size[s->block];
        s->block += 1;
    }
    s->row += 1;
}

static void
merge_rows(source *sources, size_t count, source **heap, ep_columns *to)
{
    size_t left = 0;
    for (size_t i = 0; i < count; i++) {
        if (sources[i].part->decoded->columns.count > 0) {
            heap[left++] = &sources[i];
        }
    }
    /* Insertion sort: a sorted list is a heap, and there are few sources. */
    for (size_t i = 1; i < left; i++) {
        source *s = heap[i];
        size_t at = i;
        for (; at > 0 && comes_before(s, heap[at - 1]); at--) {
            heap[at] = heap[at - 1];
        }
        heap[at] = s;
    }
    while (left > 0) {
        take_row(heap[0], to);
        if (heap[0]->row == heap[0]->part->decoded->columns.count) {
            heap[0] = heap[--left];
        }
        if (left > 0) {
            sift_down(heap, left);
        }
    }
}

/* The sum of all processes' resident sets, at each sample of one of them. The recorders' own part of it is
 * unknown where that of one process is. */
static ep_status
merge_resident(source *sources, size_t count, ep_decoded *out)
{
    size_t total = 0;
    for (size_t i = 0; i < count; i++) {
        total += sources[i].part->decoded->resident_count;
    }
    out->resident_ns = ep_calloc(total, sizeof *out->resident_ns);
    out->resident_bytes = ep_calloc(total, sizeof *out->resident_bytes);
    out->resident_own = ep_calloc(total, sizeof *out->resident_own);
    if (out->resident_ns == NULL || out->resident_bytes == NULL || out->resident_own == NULL) {
        return EP_NOMEM;
    }
    int64_t sum = 0, own = 0;
    size_t unknown = 0;    /* processes that were sampled, and whose own part is unknown */
    for (size_t at = 0; at < total; at++) {
        source *first = NULL;
        int64_t first_ns = 0;
        for (size_t i = 0; i < count; i++) {
            const ep_decoded *decoded = sources[i].part->decoded;
            if (sources[i].resident == decoded->resident_count) {
                continue;
            }
            int64_t ns = decoded->resident_ns[sources[i].resident] + sources[i].part->offset_ns;
            if (first == NULL || ns < first_ns) {
                first = &sources[i];
                first_ns = ns;
            }
        }
        const ep_decoded *sampled = first->part->decoded;
        if (first->resident > 0 && first->resident_own == 0) {
            unknown -= 1;
        }
        sum += sampled->resident_bytes[first->resident] - first->resident_bytes;
        own += sampled->resident_own[first->resident] - first->resident_own;
        first->resident_bytes = sampled->resident_bytes[first->resident];
        first->resident_own = sampled->resident_own[first->resident++];
        unknown += first->resident_own == 0;
        out->resident_ns[at] = first_ns;
        out->resident_bytes[at] = sum;
        out->resident_own[at] = unknown == 0 ? own : 0;
        out->resident_count = at + 1;
    }
    return EP_OK;
}

ep_status
ep_merge(const ep_merge_part *parts, size_t count, ep_decoded *out)
{
    if (count > EP_MERGE_PARTS_MAX) {
        return EP_ARGUMENT;
    }
    ep_decoded result = {0};
    source *sources = ep_calloc(count, sizeof *sources);
    source **heap = ep_calloc(count, sizeof *heap);
    ep_status status = sources != NULL && heap != NULL ? EP_OK : EP_NOMEM;
    for (size_t i = 0; i < count && status == EP_OK; i++) {
        const ep_decoded *decoded = parts[i].decoded;
        sources[i] = (source){.part = &parts[i], .index = i};
        int64_t end_ns = decoded->duration_ns + parts[i].offset_ns;
        result.duration_ns = end_ns > result.duration_ns ? end_ns : result.duration_ns;
        result.damaged_chunks += decoded->damaged_chunks;
    }
    status = status != EP_OK ? status : merge_threads(sources, count, &result);
    status = status != EP_OK ? status : merge_resident(sources, count, &result);
    status = status != EP_OK ? status : reserve_rows(sources, count, &result.columns);
    if (status == EP_OK) {
        merge_rows(sources, count, heap, &result.columns);
        *out = result;
    } else {
        ep_decoded_clear(&result);
    }
    free(heap);
    free(sources);
    return status;
}
