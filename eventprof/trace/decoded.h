/* Columns: what decoding makes of records, and all that is computed of a trace reads. */
#ifndef EP_DECODED_H
#define EP_DECODED_H

#include "types.h"

/* Every event of one recorder's window, in order of time; rows of one thread keep their order.
 * All arrays are owned by this struct, `count` or `alloc_count` long.
 * A row's `id` is a name id for kinds that close a call, and else a site id (0: no site). */
typedef struct ep_columns {
    size_t count;
    int64_t *time_ns;      /* since the window's start; never decreasing */
    uint8_t *kind;         /* ep_kind; never a CONTROL kind */
    int32_t *thread;       /* row in the trace's thread table */
    uint32_t *id;
    /* Allocator events and those of the form VALUE, in row order. */
    size_t alloc_count;
    uint64_t *alloc_row;   /* index into the arrays above */
    uint64_t *address;     /* of the block; realloc_failed: of the old block; VALUE: the value */
    int64_t *size;         /* bytes asked for; -1 on free and realloc_free until paired (pair.h), VALUE */
    void *memory;          /* the block that holds all arrays but `thread`; NULL: each array is a block */
} ep_columns;

/* Makes room in empty columns, except for the thread. Fails: false; the columns own what was allocated. */
bool ep_columns_reserve(ep_columns *columns, size_t rows, size_t blocks);

/* Before writing into columns that others may have read (ep_column_own()). Fails: false, no room. */
bool ep_columns_own(const ep_columns *columns);
/* The first allocator event, of those from `from` on, at or after a row. */
size_t ep_columns_block_of_row(const ep_columns *columns, size_t from, size_t row);
/* Appends some rows of other columns, with their allocator events from `*block` on. There is room. *block:
 * afterwards the first one after these rows. */
void ep_columns_append(ep_columns *to, const ep_columns *from, size_t row, size_t rows, size_t *block);
void ep_columns_clear(ep_columns *columns);

/* In a map, in place of a row: no event and no open call mentions the id. As unknown as -1. */
#define EP_ID_UNSEEN (-2)

/* ids -> rows of the trace's function table. -1: unknown. Built once a trace (functions.h). */
typedef struct ep_id_map {
    size_t site_count;                /* arrays are this long; index = site id; [0] is "no site" */
    int32_t *site_function;           /* calls: the callee; allocator events: the executing function */
    int32_t *site_caller;             /* calls: the calling function; allocator events: -1 */
    int32_t *site_line;               /* the line of the call or of the allocation; -1: unknown */
    size_t name_count;
    int32_t *name_function;           /* index = name id */
    size_t function_count;
} ep_id_map;

#endif
