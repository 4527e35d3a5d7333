#include "hash_index.h"

#include "array.h"
#include "invariants.h"

#define FIRST_SLOTS 256

static EP_CHECKED bool
open_slots(ep_hash_index *index, size_t slots)
{
    *index = (ep_hash_index){.slots = ep_array_new_zeroed(slots, sizeof *index->slots)};
    index->mask = index->slots != NULL ? slots - 1 : 0;
    return index->slots != NULL;
}

ep_status
ep_hash_index_open(ep_hash_index *index, size_t rows)
{
    size_t slots = FIRST_SLOTS;
    while (slots / 2 < rows) {
        slots *= 2;
    }
    return open_slots(index, slots) ? EP_OK : EP_NOMEM;
}

bool
ep_hash_index_grow(ep_hash_index *index, ep_hash_of_row *hash_of, const void *rows)
{
    ep_hash_index larger;
    if (!open_slots(&larger, index->slots != NULL ? 2 * (index->mask + 1) : FIRST_SLOTS)) {
        return false;
    }
    for (size_t i = 0; index->slots != NULL && i <= index->mask; i++) {
        if (index->slots[i] != 0) {
            size_t at = (size_t)hash_of(rows, index->slots[i] - 1) & larger.mask;
            while (larger.slots[at] != 0) {
                at = (at + 1) & larger.mask;
            }
            larger.slots[at] = index->slots[i];
        }
    }
    larger.used = index->used;
    free(index->slots);
    *index = larger;
    EP_CHECK_INVARIANTS(ep_hash_index_check(index, hash_of, rows));
    return true;
}

#ifdef EP_CHECKS

void
ep_hash_index_check(const ep_hash_index *index, ep_hash_of_row *hash_of, const void *rows)
{
    size_t used = 0;
    for (size_t i = 0; index->slots != NULL && i <= index->mask; i++) {
        used += index->slots[i] != 0;
    }
    EP_INVARIANT(used == index->used && used <= (index->mask + 1) / 2, "%zu of %zu slots, counted were %zu",
                 used, index->mask + 1, index->used);
    for (size_t i = 0; used != 0 && i <= index->mask; i++) {
        if (index->slots[i] != 0) {
            size_t at = (size_t)hash_of(rows, index->slots[i] - 1) & index->mask;
            while (index->slots[at] != 0 && at != i) {
                at = (at + 1) & index->mask;
            }
            EP_INVARIANT(at == i, "row %u is not found", (unsigned)index->slots[i] - 1);
        }
    }
}

#endif
