#include "merge.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "memory.h"

typedef struct source {
    const ep_columns *columns;    /* of the feed; NULL: it was not asked yet */
    ep_merge_feed *feed;
    size_t row, block;            /* next to be taken */
    size_t index;                 /* among the parts */
    int64_t offset_ns;
    int32_t first_thread;         /* row of its first thread in the result */
    uint64_t mark;                /* added to its addresses */
} source;

struct ep_merger {
    source *sources;
    source **heap;
    size_t count, left;
};

static int64_t
next_time(const source *s)
{
    return (s->columns != NULL ? s->columns->time_ns[s->row] : 0) + s->offset_ns;
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

/* ---- Rows ------------------------------------------------------------------------------------ */

/* No part has a row before its start. It is asked for rows when that is reached: of a thousand processes
 * one after another, few are read at the same time. */
static void
begin(ep_merger *merger)
{
    merger->left = merger->count;
    /* Insertion sort: a sorted list is a heap, and parts mostly come in order of their starts. */
    for (size_t i = 0; i < merger->left; i++) {
        source *s = &merger->sources[i];
        size_t at = i;
        for (; at > 0 && comes_before(s, merger->heap[at - 1]); at--) {
            merger->heap[at] = merger->heap[at - 1];
        }
        merger->heap[at] = s;
    }
}

ep_status
ep_merger_open(const ep_merge_part *parts, ep_merge_feed *const *feeds, size_t count, ep_merger **out)
{
    ep_merger *merger = ep_calloc(1, sizeof *merger);
    if (merger == NULL) {
        return EP_NOMEM;
    }
    merger->count = count;
    merger->sources = ep_calloc(count + 1, sizeof *merger->sources);
    merger->heap = ep_calloc(count + 1, sizeof *merger->heap);
    if (merger->sources == NULL || merger->heap == NULL) {
        ep_merger_close(merger);
        return EP_NOMEM;
    }
    size_t threads = 0, processes = 0;
    for (size_t i = 0; i < count; i++) {
        merger->sources[i] = (source){
            .feed = feeds[i],
            .index = i,
            .offset_ns = parts[i].offset_ns,
            .first_thread = (int32_t)threads,
            .mark = (uint64_t)processes << EP_MERGE_ADDRESS_BITS,
        };
        threads += parts[i].decoded->thread_count;
        processes += ep_process_count(parts[i].decoded->threads, parts[i].decoded->thread_count);
    }
    begin(merger);
    *out = merger;
    return EP_OK;
}

void
ep_merger_close(ep_merger *merger)
{
    if (merger != NULL) {
        free(merger->sources);
        free(merger->heap);
        free(merger);
    }
}

/* Asks for the next rows of a part. *out: whether there are any. */
static EP_CHECKED ep_status
feed(source *s, bool *out)
{
    s->row = s->block = 0;
    ep_status status = s->feed->more(s->feed, &s->columns);
    *out = status == EP_OK && s->columns->count > 0;
    return status;
}

/* HOT, budget 5 ns a row. Takes the rows of a part that come before those of another; NULL: all. */
static void
take_rows(source *s, const source *rival, ep_columns *to, size_t limit)
{
    const ep_columns *from = s->columns;
    /* Of equal times that of the lower part comes first. */
    int64_t until_ns = rival != NULL ? next_time(rival) + (s->index < rival->index) : INT64_MAX;
    size_t row = s->row, block = s->block, at = to->count, last = from->count;
    last = last - row > limit - at ? row + (limit - at) : last;
    int64_t offset_ns = s->offset_ns, time_ns;
    while (row < last && (time_ns = from->time_ns[row] + offset_ns) < until_ns) {
        to->time_ns[at] = time_ns;
        to->kind[at] = from->kind[row];
        to->thread[at] = from->thread[row] + s->first_thread;
        to->id[at] = from->id[row];
        if (block < from->alloc_count && from->alloc_row[block] == row) {
            size_t to_block = to->alloc_count++;
            bool is_value = ep_kinds[from->kind[row]].form == EP_FORM_VALUE;
            to->alloc_row[to_block] = at;
            to->address[to_block] = from->address[block] + (is_value ? 0 : s->mark);
            to->size[to_block] = from->size[block];
            block++;
        }
        row++;
        at++;
    }
    s->row = row;
    s->block = block;
    to->count = at;
}

ep_status
ep_merger_next(ep_merger *merger, ep_columns *to, size_t limit)
{
    while (merger->left > 0 && to->count < limit) {
        source **heap = merger->heap, *s = heap[0];
        const source *rival = merger->left > 1 ? heap[1] : NULL;
        if (merger->left > 2 && comes_before(heap[2], rival)) {
            rival = heap[2];
        }
        if (s->columns != NULL) {
            take_rows(s, rival, to, limit);
        }
        if (s->columns == NULL || s->row == s->columns->count) {
            bool any;
            ep_status status = feed(s, &any);
            if (status != EP_OK) {
                return status;
            }
            if (!any) {
                heap[0] = heap[--merger->left];
            }
        }
        if (merger->left > 1) {
            sift_down(heap, merger->left);
        }
    }
    return EP_OK;
}

/* ---- All but the rows ------------------------------------------------------------------------ */

static ep_status
merge_threads(const ep_merge_part *parts, size_t count, ep_decoded *out)
{
    size_t total = 0;
    int32_t processes = 0;    /* of the parts before */
    for (size_t i = 0; i < count; i++) {
        total += parts[i].decoded->thread_count;
    }
    out->threads = ep_calloc(total, sizeof *out->threads);
    out->read_threads = ep_calloc(total, sizeof *out->read_threads);
    if (out->threads == NULL || out->read_threads == NULL) {
        return EP_NOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        const ep_merge_part *part = &parts[i];
        for (size_t k = 0; k < part->decoded->thread_count; k++) {
            const ep_trace_thread *from = &part->decoded->threads[k];
            ep_trace_thread *to = &out->threads[out->thread_count];
            ep_thread *thread = &out->read_threads[out->thread_count];
            *to = *from;
            to->open = (ep_open_stack){0};
            to->thread = thread;
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
            /* All three fit: 20 digits, and what is kept of the two names. */
            bool has_worker = part->worker[0] != 0;
            int of_worker = (int)ep_text_cut((ep_text){part->worker, strlen(part->worker)}, 20);
            int of_name = (int)ep_text_cut((ep_text){name, strlen(name)}, has_worker ? 20 : 40);
            snprintf(thread->name, sizeof thread->name, "%" PRIu64 "%s%.*s%s%.*s", part->process_id,
                     of_worker > 0 ? " " : "", of_worker, part->worker, of_name > 0 ? " " : "", of_name,
                     name);
            atomic_store_explicit(&thread->named, true, memory_order_relaxed);
            if (ep_open_stack_copy(&from->open, &to->open) != EP_OK) {
                return EP_NOMEM;
            }
        }
        processes += (int32_t)ep_process_count(part->decoded->threads, part->decoded->thread_count);
    }
    return EP_OK;
}

/* One sample of a part's resident set; or its end, if others go on: an ended process has no memory. */
typedef struct sample {
    int64_t time_ns;
    size_t part, row;    /* row: resident_count at the end */
} sample;

/* What a part has at the moment. */
typedef struct resident {
    int64_t bytes, own;
    bool unknown;    /* it was sampled, and the recorder's own part of it is unknown */
} resident;

static int
by_time(const void *a, const void *b)
{
    const sample *x = a, *y = b;
    if (x->time_ns != y->time_ns) {
        return x->time_ns > y->time_ns ? 1 : -1;
    }
    if (x->part != y->part) {
        return x->part > y->part ? 1 : -1;
    }
    return (x->row > y->row) - (x->row < y->row);
}

/* Lists the samples of all parts in order of time. Returns: how many. */
static size_t
list_samples(const ep_merge_part *parts, size_t count, int64_t duration_ns, sample *out)
{
    size_t made = 0;
    for (size_t i = 0; i < count; i++) {
        const ep_decoded *decoded = parts[i].decoded;
        int64_t end_ns = decoded->duration_ns + parts[i].offset_ns;
        for (size_t row = 0; row < decoded->resident_count; row++) {
            int64_t time_ns = decoded->resident_ns[row] + parts[i].offset_ns;
            out[made++] = (sample){time_ns, i, row};
            end_ns = time_ns > end_ns ? time_ns : end_ns;
        }
        if (decoded->resident_count > 0 && end_ns < duration_ns) {
            out[made++] = (sample){end_ns, i, decoded->resident_count};
        }
    }
    qsort(out, made, sizeof *out, by_time);
    return made;
}

/* The sum of all processes' resident sets, at each sample of one of them and at each end. The recorders'
 * own part of it is unknown where that of one process is. */
static EP_CHECKED ep_status
merge_resident(const ep_merge_part *parts, size_t count, ep_decoded *out)
{
    size_t total = count;
    for (size_t i = 0; i < count; i++) {
        total += parts[i].decoded->resident_count;
    }
    sample *samples = ep_calloc(total + 1, sizeof *samples);
    resident *latest = ep_calloc(count + 1, sizeof *latest);
    out->resident_ns = ep_calloc(total, sizeof *out->resident_ns);
    out->resident_bytes = ep_calloc(total, sizeof *out->resident_bytes);
    out->resident_own = ep_calloc(total, sizeof *out->resident_own);
    bool room = samples != NULL && latest != NULL && out->resident_ns != NULL &&
                out->resident_bytes != NULL && out->resident_own != NULL;
    total = room ? list_samples(parts, count, out->duration_ns, samples) : 0;
    resident sum = {0};
    size_t unknown = 0;
    for (size_t at = 0; at < total; at++) {
        const sample *s = &samples[at];
        const ep_decoded *decoded = parts[s->part].decoded;
        resident now = {0};
        if (s->row < decoded->resident_count) {
            now.bytes = decoded->resident_bytes[s->row];
            now.own = decoded->resident_own[s->row];
            now.unknown = now.own == 0;
        }
        resident *before = &latest[s->part];
        sum.bytes += now.bytes - before->bytes;
        sum.own += now.own - before->own;
        unknown = unknown + now.unknown - before->unknown;
        *before = now;
        out->resident_ns[at] = s->time_ns;
        out->resident_bytes[at] = sum.bytes;
        out->resident_own[at] = unknown == 0 ? sum.own : 0;
    }
    out->resident_count = total;
    free(samples);
    free(latest);
    return room ? EP_OK : EP_NOMEM;
}

ep_status
ep_merge_heads(const ep_merge_part *parts, size_t count, ep_decoded *out)
{
    size_t processes = 0;
    for (size_t i = 0; i < count && count <= EP_MERGE_PARTS_MAX; i++) {
        processes += ep_process_count(parts[i].decoded->threads, parts[i].decoded->thread_count);
    }
    if (count > EP_MERGE_PARTS_MAX || processes > EP_MERGE_PARTS_MAX) {
        return EP_ARGUMENT;
    }
    ep_decoded result = {0};
    for (size_t i = 0; i < count; i++) {
        const ep_decoded *decoded = parts[i].decoded;
        int64_t end_ns = decoded->duration_ns + parts[i].offset_ns;
        result.duration_ns = end_ns > result.duration_ns ? end_ns : result.duration_ns;
        result.damaged_chunks += decoded->damaged_chunks;
    }
    ep_status status = merge_threads(parts, count, &result);
    status = status != EP_OK ? status : merge_resident(parts, count, &result);
    if (status == EP_OK) {
        *out = result;
    } else {
        ep_decoded_clear(&result);
    }
    return status;
}
