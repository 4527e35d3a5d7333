/* Large arrays that are written once, from end to end: the columns of a trace. free() releases
 * them. For small or growing arrays, see memory.h. */
#ifndef EP_ARRAY_H
#define EP_ARRAY_H

#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "os.h"
#include "types.h"

/* From this size on an array begins on a boundary of huge pages, and asks for them: the first touch of 4
 * KiB pages costs more than decoding (0.43 ns a byte against 0.18), and a hash table has more TLB misses
 * (blocks: 25 ns an event against 20, where the array begins anywhere). */
#define EP_ARRAY_ALIGN ((size_t)2 << 20)
#define EP_ARRAY_ALIGN_FROM ((size_t)2 << 20)

/* Like ep_array_new(), but the first `untouched` bytes are left on 4 KiB pages. */
static inline EP_CHECKED void *
ep_array_new_but(size_t count, size_t size, size_t untouched)
{
    if (ep_fault_now() || count > SIZE_MAX / 2 / size) {
        return NULL;
    }
    size_t bytes = count * size;
    if (bytes < EP_ARRAY_ALIGN_FROM) {
        return malloc(bytes != 0 ? bytes : 1);
    }
    bytes = (bytes + EP_ARRAY_ALIGN - 1) & ~(EP_ARRAY_ALIGN - 1);
    void *array = aligned_alloc(EP_ARRAY_ALIGN, bytes);
    if (array != NULL) {
        ep_os_expect_use((char *)array + untouched, bytes - untouched);
    }
    return array;
}

/* `count` elements of `size` bytes, not initialised; an empty array is not NULL.
 * Returns: new. Fails: NULL, out of memory. */
static inline EP_CHECKED void *
ep_array_new(size_t count, size_t size)
{
    return ep_array_new_but(count, size, 0);
}

/* Like ep_array_new(), for a count that a file claims, on 4 KiB pages: if the count is wrong, little is
 * ever written there, and clearing a huge page takes 0.2 ms. */
static inline EP_CHECKED void *
ep_array_new_claimed(size_t count, size_t size)
{
    return ep_array_new_but(count, size, EP_ARRAY_ALIGN);
}

/* Like ep_array_new(), with every byte zero. */
static inline EP_CHECKED void *
ep_array_new_zeroed(size_t count, size_t size)
{
    void *array = ep_array_new(count, size);
    if (array != NULL) {
        memset(array, 0, count * size);
    }
    return array;
}

/* Fills a column of an object that has `count` rows and a set of `filled` bits. wanted: the bit of
 * the column, or 0; value: an expression of the row `i`. Returns EP_NOMEM from the caller. */
#define EP_ARRAY_FILL(object, column, wanted, value)                                    \
    do {                                                                                \
        if (((wanted) & ~(object)->filled) != 0) {                                      \
            (object)->column = ep_array_new((object)->count, sizeof *(object)->column); \
            if ((object)->column == NULL) {                                             \
                return EP_NOMEM;                                                        \
            }                                                                           \
            for (size_t i = 0; i < (object)->count; i++) {                              \
                (object)->column[i] = (value);                                          \
            }                                                                           \
            (object)->filled |= (wanted);                                               \
        }                                                                               \
    } while (0)

#endif
