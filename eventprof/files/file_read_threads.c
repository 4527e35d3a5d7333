/* Small ids for the threads of a log file while it is loaded, in the order of the file's ids. */
#include <string.h>

#include "file_read_parts.h"
#include "memory.h"

#define THREADS_MAX (UINT32_C(1) << 20)

static uint64_t
hash_of_id(const void *file_ids, size_t small)
{
    return ((const uint32_t *)file_ids)[small] * UINT64_C(0x9E3779B97F4A7C15) >> 32;
}

static bool
is_id(const void *file_ids, size_t small, const void *key)
{
    return ((const uint32_t *)file_ids)[small] == *(const uint32_t *)key;
}

static uint32_t *
slot_of(const ep_loader *l, uint32_t id)
{
    return ep_hash_index_slot(&l->small_ids, hash_of_id(&id, 0), is_id, l->file_ids, &id);
}

uint32_t
ep_loader_thread_id(ep_loader *l, uint64_t id)
{
    if (id == 0 || id > UINT32_MAX || !ep_hash_index_reserve(&l->small_ids, hash_of_id, l->file_ids)) {
        return 0;
    }
    uint32_t *slot = slot_of(l, (uint32_t)id);
    if (*slot != 0) {
        return *slot - 1;
    }
    if (l->threads_known || l->thread_count > THREADS_MAX ||
        !ep_grow((void **)&l->threads, &l->thread_capacity, l->thread_count + 1, sizeof *l->threads) ||
        !ep_grow((void **)&l->file_ids, &l->file_id_capacity, l->thread_count + 1,
                 sizeof *l->file_ids)) {
        return 0;
    }
    uint32_t small = (uint32_t)l->thread_count++;
    l->threads[small].id = l->file_ids[small] = (uint32_t)id;
    ep_hash_index_add(&l->small_ids, slot, small);
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
    memcpy(ids, l->file_ids, l->thread_count * sizeof *ids);
    qsort(&l->threads[1], l->thread_count - 1, sizeof *l->threads, by_id);
    ep_hash_index_empty(&l->small_ids);
    for (size_t i = 1; i < l->thread_count; i++) {
        l->file_ids[i] = l->threads[i].id;
        ep_hash_index_add(&l->small_ids, slot_of(l, l->file_ids[i]), i);
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
