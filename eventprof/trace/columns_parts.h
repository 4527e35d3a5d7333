/* The functions that fill columns: one for each FILL and BLOCKS of columns.def. */
#ifndef EP_COLUMNS_PARTS_H
#define EP_COLUMNS_PARTS_H

#include "columns.h"

/* Writes a value for each row of the table. */
#define EP_COLUMN(table, name, type, reading, source, null, unit, meaning, more) source
#define EP_INNER(table, name, type, source) source
#define VIEW(step, pairs, field)
#define ROWS(step, field, row, member)
#define FILL(step, pairs, function) void ep_fill_##function(const ep_trace *trace, void *to);
#define BLOCKS(step, otherwise, function) void ep_fill_##function(const ep_trace *trace, void *to);
#include "columns.def"
#undef EP_COLUMN
#undef EP_INNER
#undef VIEW
#undef ROWS
#undef FILL
#undef BLOCKS

typedef enum ep_name_part {
    EP_NAME_PART_QUALNAME,
    EP_NAME_PART_MODULE,
    EP_NAME_PART_FILE
} ep_name_part;

/* Replaces rows of functions by ids of their strings; -1: unknown, of either. */
void ep_functions_to_strings(const ep_functions *functions, int32_t *rows, size_t count, ep_name_part part);

#endif
