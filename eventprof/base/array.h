/* Large arrays that are written once, from end to end. For small or growing arrays, see memory.h.
 *
 * ep_array_new() and its neighbours give heap memory, which free() releases. A column of all events is made
 * by ep_column_new(): of a large trace it lies in a file, and ep_column_free() releases it. */
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

/* ---- Columns --------------------------------------------------------------------------------- */

/* Columns in memory take at most this much, of all traces of the process together. Any other large column
 * lies in a removed file of its own, so that the kernel can write its pages out: a process with a limit of
 * its memory can read a trace of any size. Its first touch costs no more (measured: 0.44 ns a byte).
 *
 * The file lies in $EVENTPROF_TMPDIR, $TMPDIR or /var/tmp, the first of them that is on a disk; its space
 * is taken at once, because a full disk would be a SIGBUS later. Without a folder, space, or on systems
 * other than Linux the column is memory all the same.
 *
 * A forked child shares the file. So nothing is written into a column that others have read, unless each
 * process would write the same there, or it is made the process's own before (ep_column_own()). */
#define EP_COLUMNS_IN_MEMORY ((size_t)128 << 20)

/* Like ep_array_new(); release it by ep_column_free(). */
EP_CHECKED void *ep_column_new(size_t count, size_t size);
EP_CHECKED void *ep_column_new_zeroed(size_t count, size_t size);

/* Like ep_column_new(), for a count that a file claims, on 4 KiB pages: if the count is wrong, little is
 * ever written there, and clearing a huge page takes 0.2 ms. */
EP_CHECKED void *ep_column_new_claimed(size_t count, size_t size);

/* Also releases what malloc() gave; NULL is allowed. */
void ep_column_free(void *column);

/* Call it before writing into a column that may be older than a fork: the process then gets a copy of the
 * column's file, at the same address, and the other process does not see what is written. NULL is allowed.
 * Fails: false, there is no room on the disk. */
EP_CHECKED bool ep_column_own(void *column);

/* Takes the columns in files out of the resident set; their pages stay in the page cache, and come back
 * when they are touched. Long steps call it between rows, every EP_COLUMN_ROWS, and so does
 * ep_progress_tell(). Any thread may use the columns meanwhile. */
void ep_columns_give_back(void);
#define EP_COLUMN_ROWS ((size_t)1 << 20)

/* Reads from the environment where columns may lie. Call it once, when the program begins: later another
 * thread may change the environment while it is read. Until it is called, columns lie in /var/tmp. */
void ep_columns_read_environment(void);

/* Whether there is a folder on a disk for columns; it may have no room. */
bool ep_columns_have_files(void);

/* How many bytes of columns lie in files now. */
size_t ep_columns_in_files(void);

/* Around fork(). */
void ep_columns_before_fork(void);
void ep_columns_after_fork(void);

/* Why a large column is not in a file: for the message if memory runs out then. */
typedef struct ep_column_refusal {
    size_t bytes;        /* of the column */
    int os_error;        /* of the first folder that refused; 0: no folder is on a disk */
    char folder[512];    /* the folder; "": no folder is on a disk */
} ep_column_refusal;

/* The last refusal, once: the next call does not have it. False: there was none since then. */
bool ep_columns_take_refusal(ep_column_refusal *out);

/* For the test: columns in memory take at most `bytes`. Returns: how much it was. */
size_t ep_columns_set_in_memory(size_t bytes);

/* Fills a column of an object that has `count` rows and a set of `filled` bits. wanted: the bit of
 * the column, or 0; value: an expression of the row `i`. Returns EP_NOMEM from the caller. */
#define EP_COLUMN_FILL(object, column, wanted, value)                                    \
    do {                                                                                 \
        if (((wanted) & ~(object)->filled) != 0) {                                       \
            (object)->column = ep_column_new((object)->count, sizeof *(object)->column); \
            if ((object)->column == NULL) {                                              \
                return EP_NOMEM;                                                         \
            }                                                                            \
            for (size_t from_ = 0, end_; from_ < (object)->count; from_ = end_) {        \
                end_ = ep_column_part(from_, (object)->count);                           \
                for (size_t i = from_; i < end_; i++) {                                  \
                    (object)->column[i] = (value);                                       \
                }                                                                        \
            }                                                                            \
            (object)->filled |= (wanted);                                                \
        }                                                                                \
    } while (0)

/* For loops over all rows: gives columns back now and then. */
static inline void
ep_column_row(size_t row)
{
    if (EP_UNLIKELY((row & (EP_COLUMN_ROWS - 1)) == EP_COLUMN_ROWS - 1)) {
        ep_columns_give_back();
    }
}

/* For loops in which a test in each row would cost: gives columns back, and returns the end of the part
 * that begins at row `from`. */
static inline size_t
ep_column_part(size_t from, size_t count)
{
    if (from > 0) {
        ep_columns_give_back();
    }
    return count - from > EP_COLUMN_ROWS ? from + EP_COLUMN_ROWS : count;
}

#endif
