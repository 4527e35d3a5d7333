/* A model of allocators: guesses which address comes next, so that an address that was guessed takes one
 * byte in a file (archive_model.h, pack.c). */
#ifndef EP_PLACES_H
#define EP_PLACES_H

#include <string.h>

#include "types.h"

/* The most freed addresses that are remembered of a class. */
#define EP_FREE_LIST 32
#define EP_PLACE_CLASSES 128

typedef struct ep_free_list {
    uint64_t last;                      /* address allocated last */
    uint32_t count;
    uint64_t freed[EP_FREE_LIST];       /* freed addresses; the latest is the last */
} ep_free_list;

/* Returns: the size class of a block; blocks of a class share a free list. *stride: the distance of two
 * blocks of the class that lie side by side. Up to 512 bytes the classes are obmalloc's, of 16 bytes;
 * above, and in the domain raw, they are malloc's, which puts 8 bytes of its own before each block. */
static inline unsigned
ep_place_class(unsigned domain, uint64_t size, uint64_t *stride)
{
    size = size < INT64_MAX ? size : INT64_MAX;    /* the size may come from a damaged file */
    if (size <= 512 && (domain == EP_DOMAIN_MEM || domain == EP_DOMAIN_OBJ)) {
        unsigned class = size != 0 ? (unsigned)((size + 15) / 16) : 1;
        *stride = class * 16;
        return class;    /* 1..32 */
    }
    uint64_t taken = size <= 24 ? 32 : (size + 8 + 15) & ~UINT64_C(15);
    *stride = taken;
    if (taken <= 1024) {
        return 32 + (unsigned)(taken / 16 - 1);    /* 33..95 */
    }
    return 96 + (unsigned)(63 - __builtin_clzll(taken)) % 32;
}

/* Returns: how far below the top an address is; list->count: it is not in the list. */
static inline unsigned
ep_free_list_find(const ep_free_list *list, uint64_t address)
{
    unsigned depth = 0;
    while (depth < list->count && list->freed[list->count - 1 - depth] != address) {
        depth += 1;
    }
    return depth;
}

/* Takes a block off a free list: the `depth`-th from the top. */
static inline void
ep_free_list_take(ep_free_list *list, unsigned depth)
{
    uint32_t at = list->count - 1 - depth;
    memmove(&list->freed[at], &list->freed[at + 1], depth * sizeof list->freed[0]);
    list->count -= 1;
}

static inline void
ep_free_list_put(ep_free_list *list, uint64_t address)
{
    if (list->count == EP_FREE_LIST) {
        ep_free_list_take(list, EP_FREE_LIST - 1);
    }
    list->freed[list->count++] = address;
}

#endif
