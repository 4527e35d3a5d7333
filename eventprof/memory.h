/* Heap memory of the core. The C library's, never Python's: hooks may need it without the GIL.
 *
 * A build with EP_FAULT_POINTS lets a test fail the n-th request from now on; other builds compile
 * the question away. */
#ifndef EP_MEMORY_H
#define EP_MEMORY_H

#include <limits.h>
#include <stdint.h>
#include <stdlib.h>

#include "types.h"

#ifdef EP_FAULT_POINTS
/* Requests (heap and maps) until one fails; negative: none will; EP_FAULT_ALWAYS: all do. Tests set
 * it. */
extern _Atomic long ep_fault_countdown;
#define EP_FAULT_ALWAYS LONG_MAX
bool ep_fault_now(void);
/* Called, if a test set it, between two steps of what a log file promises at any instant: a kill
 * would find the file like this. Under the engine's lock. */
extern void (*ep_fault_moment)(void);
#define EP_FAULT_MOMENT() (ep_fault_moment != NULL ? ep_fault_moment() : (void)0)
#else
static inline bool
ep_fault_now(void)
{
    return false;
}
#define EP_FAULT_MOMENT() ((void)0)
#endif

/* Zeroed room for count elements. Returns: new (free() releases it), or NULL. */
static inline void *
ep_calloc(size_t count, size_t size)
{
    return ep_fault_now() ? NULL : calloc(count ? count : 1, size);
}

/* As reallocarray: the old block stays valid on failure. */
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

/* As ep_grow, but the new room is not touched: large arrays that are filled once. */
bool ep_grow_raw(void **block, size_t *capacity, size_t need, size_t size);

#endif
