/* A hash table of row numbers: it finds the rows of an array by their keys.
 *
 * The array and the keys are the user's; the index has 4 bytes a slot. Rows are added, never removed. The
 * index uses open addressing with linear probing, and at least half of its slots are free.
 *
 *     rows    0: "call"   1: "main"   2: "read"
 *     slots   [ 2 ] [ 0 ] [ 0 ] [ 1 ] [ 3 ] [ 0 ] [ 0 ] [ 0 ]      row + 1; 0: free
 *
 *     if (!ep_hash_index_reserve(&index, hash_of_word, words)) {
 *         return EP_NOMEM;
 *     }
 *     uint32_t *slot = ep_hash_index_slot(&index, hash, is_word, words, &wanted);
 *     if (*slot == 0) {
 *         words[count] = wanted;
 *         ep_hash_index_add(&index, slot, count++);
 *     }
 *
 * Tables whose rules are others:
 *   names/names.h          hooks read it without a lock
 *   folds/live_blocks.h    blocks are removed
 *   intern/omitted.h       a set of addresses that hooks change without a lock. They first read a count for
 *                          some bits of the address, inlined, because most blocks are not in the set
 *   hooks/inner_blocks.h   such a set, of few blocks: an entry has the block's domains, too, so that one
 *                          exchange removes both; hooks only ask whether it has any block
 *   hooks/source_audit.c   texts that are found without a lock; an entry is memory of its own and is never
 *                          removed, so it is published by release, not relaxed as in the two sets */
#ifndef EP_HASH_INDEX_H
#define EP_HASH_INDEX_H

#include <stdlib.h>
#include <string.h>

#include "types.h"

/* Zeroed: empty. ep_hash_index_free() releases it. */
typedef struct ep_hash_index {
    uint32_t *slots;    /* row + 1; 0: free */
    size_t mask;        /* slots - 1; the number of slots is a power of two */
    size_t used;        /* slots that are not free */
} ep_hash_index;

/* The hash of a row's key. The home of the row is in its low bits. rows: as the user passed them. */
typedef uint64_t ep_hash_of_row(const void *rows, size_t row);
/* Whether the row has the key. */
typedef bool ep_row_has_key(const void *rows, size_t row, const void *key);

/* The hash of two words: keys that differ in few low bits of either have different homes. */
static inline uint64_t
ep_hash_words(uint32_t a, uint32_t b)
{
    uint64_t key = ((uint64_t)a << 32 | b) * UINT64_C(0x9E3779B97F4A7C15);
    return key ^ key >> 29;
}

/* Twice the slots, or the first ones. Fails: false, nothing has changed. */
EP_COLD EP_CHECKED bool ep_hash_index_grow(ep_hash_index *index, ep_hash_of_row *hash_of, const void *rows);

/* Makes sure that there is room for one more row. The rows that were added before must still be there.
 * Fails: false, out of memory. */
static EP_INLINE EP_CHECKED bool
ep_hash_index_reserve(ep_hash_index *index, ep_hash_of_row *hash_of, const void *rows)
{
    return EP_LIKELY((index->used + 1) * 2 <= index->mask + 1) ||
           ep_hash_index_grow(index, hash_of, rows);
}

/* An empty index that has room for so many rows. Returns: new. Fails: EP_NOMEM, *index is empty. */
EP_CHECKED ep_status ep_hash_index_open(ep_hash_index *index, size_t rows);

/* The slot of the row that has the key, or the free slot where this row belongs: valid until the next
 * ep_hash_index_reserve(). The index must have slots. has_key should be a constant: then it is inlined. */
static EP_INLINE uint32_t *
ep_hash_index_slot(const ep_hash_index *index, uint64_t hash, ep_row_has_key *has_key, const void *rows,
                   const void *key)
{
    for (size_t at = (size_t)hash & index->mask;; at = (at + 1) & index->mask) {
        uint32_t *slot = &index->slots[at];
        if (*slot == 0 || has_key(rows, *slot - 1, key)) {
            return slot;
        }
    }
}

/* Adds a row. slot: the free one from ep_hash_index_slot(), after ep_hash_index_reserve(). */
static inline void
ep_hash_index_add(ep_hash_index *index, uint32_t *slot, size_t row)
{
    *slot = (uint32_t)row + 1;
    index->used++;
}

/* Removes all rows; the slots stay. */
static inline void
ep_hash_index_empty(ep_hash_index *index)
{
    if (index->used != 0) {
        memset(index->slots, 0, (index->mask + 1) * sizeof *index->slots);
        index->used = 0;
    }
}

/* The memory of the index. */
static inline size_t
ep_hash_index_bytes(const ep_hash_index *index)
{
    return index->slots != NULL ? (index->mask + 1) * sizeof *index->slots : 0;
}

static inline void
ep_hash_index_free(ep_hash_index *index)
{
    free(index->slots);
    *index = (ep_hash_index){0};
}

#ifdef EP_CHECKS
/* Half of the slots are free; each row is found from its home. */
void ep_hash_index_check(const ep_hash_index *index, ep_hash_of_row *hash_of, const void *rows);
#endif

#endif
