/* Heap memory of the core. It is the C library's, never Python's, because hooks may need it without the
 * GIL.
 *
 * A test can make the n-th request from now on fail: fault.h. */
#ifndef EP_MEMORY_H
#define EP_MEMORY_H

#include <stdint.h>
#include <stdlib.h>

#include "fault.h"
#include "types.h"

/* Zeroed room for count elements. Returns: new (free() releases it), or NULL. */
static inline void *
ep_calloc(size_t count, size_t size)
{
    return ep_fault_now() ? NULL : calloc(count ? count : 1, size);
}

/* Like free(), for the last statement of a function that other images call. It is not a tail call, so the
 * return address is in this library; source_native.c recognises our own blocks by that. */
static inline void
ep_free(void *block)
{
    free(block);
    __asm__ volatile("" ::: "memory");
}

/* Like reallocarray(): on failure the old block stays valid. */
static inline void *
ep_realloc(void *block, size_t count, size_t size)
{
    if (ep_fault_now() || (size != 0 && count > SIZE_MAX / size)) {
        return NULL;
    }
    size_t bytes = count * size;
    return realloc(block, bytes != 0 ? bytes : 1);
}

/* Grows *block (elements of `size` bytes) so that index `need - 1` exists, at least doubling; the
 * new room is zeroed. Fails: false, nothing changed. */
bool ep_grow(void **block, size_t *capacity, size_t need, size_t size);

/* Like ep_grow(), but the new room is not zeroed: for large arrays that are filled once. */
bool ep_grow_raw(void **block, size_t *capacity, size_t need, size_t size);

#endif
