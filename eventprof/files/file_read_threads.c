/* Small ids for the threads of a log file while it is loaded, in the order of the file's ids. */
#include <string.h>

#include "file_read_parts.h"
#include "memory.h"

#define THREADS_MAX (UINT32_C(1) << 20)

#define SMALL_ID_BITS 24

static bool
grow_thread_slots(ep_loader *l)
{
    size_t mask = l->thread_mask ? l->thread_mask * 2 + 1 : 255;
    uint64_t *slots = ep_calloc(mask + 1, sizeof *slots);
    if (slots == NULL) {
        return false;
    }
    for (size_t i = 1; i < l->thread_count; i++) {
        size_t slot = l->threads[i].id * UINT64_C(0x9E3779B97F4A7C15) >> 32;
        while (slots[slot & mask] != 0) {
            slot++;
        }
        slots[slot & mask] = (uint64_t)l->threads[i].id << SMALL_ID_BITS | i;
    }
    free(l->thread_slots);
    l->thread_slots = slots;
    l->thread_mask = mask;
    return true;
}

uint32_t
ep_loader_thread_id(ep_loader *l, uint64_t id)
{
    if (id == 0 || id > UINT32_MAX) {
        return 0;
    }
    if (!l->threads_known && l->thread_count * 2 >= l->thread_mask && !grow_thread_slots(l)) {
        return 0;
    }
    size_t slot = (uint32_t)id * UINT64_C(0x9E3779B97F4A7C15) >> 32;
    for (; l->thread_slots[slot & l->thread_mask] != 0; slot++) {
        uint64_t entry = l->thread_slots[slot & l->thread_mask];
        if (entry >> SMALL_ID_BITS == id) {
            return (uint32_t)entry & ((1u << SMALL_ID_BITS) - 1);
        }
    }
    if (l->threads_known || l->thread_count > THREADS_MAX ||
        !ep_grow((void **)&l->threads, &l->thread_capacity, l->thread_count + 1, sizeof *l->threads)) {
        return 0;
    }
    uint32_t small = (uint32_t)l->thread_count++;
    l->threads[small].id = (uint32_t)id;
    l->thread_slots[slot & l->thread_mask] = id << SMALL_ID_BITS | small;
    return small;
}

static int
by_id(const void *a, const void *b)
{
    const ep_thread *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

ep_status
ep_loader_sort_threads(ep_loader *l)
{
    bool sorted = true;
    for (size_t i = 2; i < l->thread_count; i++) {
        sorted = sorted && l->threads[i].id > l->threads[i - 1].id;
    }
    if (sorted) {
        return EP_OK;
    }
    uint32_t *ids = ep_calloc(l->thread_count, sizeof *ids);
    if (ids == NULL) {
        return EP_NOMEM;
    }
    for (size_t i = 0; i < l->thread_count; i++) {
        ids[i] = l->threads[i].id;
    }
    qsort(&l->threads[1], l->thread_count - 1, sizeof *l->threads, by_id);
    for (size_t i = 1; i < l->thread_count; i++) {
        size_t slot = l->threads[i].id * UINT64_C(0x9E3779B97F4A7C15) >> 32;
        while (l->thread_slots[slot & l->thread_mask] >> SMALL_ID_BITS != l->threads[i].id) {
            slot++;
        }
        l->thread_slots[slot & l->thread_mask] = (uint64_t)l->threads[i].id << SMALL_ID_BITS | i;
    }
    l->only_thread = ep_loader_thread_id(l, ids[l->only_thread]);
    for (size_t i = 0; i < l->chunk_count; i++) {
        ep_chunk_header *header = l->chunks[i].header;
        header->thread_id = ep_loader_thread_id(l, ids[header->thread_id]);
        uint64_t *at = (uint64_t *)(header + 1), *end = at + header->used_words;
        bool shared = atomic_load_explicit(&header->shared, memory_order_relaxed);
        while (shared && !l->streams && at < end) {
            if (EP_WORD0_KIND(*at) == EP_KIND_THREAD) {
                at[1] = ep_loader_thread_id(l, ids[at[1]]);
            }
            at += ep_kinds[EP_WORD0_KIND(*at)].words;
        }
    }
    free(ids);
    return EP_OK;
}
