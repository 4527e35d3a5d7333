/* The tables of a trace, column by column; columns.def lists them.
 *
 *     ep_values values;
 *     status = ep_trace_get(&trace, ep_column_find(EP_TABLE_CALLS, "duration"), &values, &error);
 *     for (size_t row = 0; row < values.count; row++) add(((const int64_t *)values.at)[row]);
 *     ep_values_clear(&values);
 */
#ifndef EP_COLUMNS_H
#define EP_COLUMNS_H

#include "trace.h"
#include "types.h"

typedef enum ep_table {
    EP_TABLE_EVENTS,
    EP_TABLE_CALLS,
    EP_TABLE_ALLOCATIONS,
    EP_TABLE_FUNCTIONS,
    EP_TABLE_LINES,
    EP_TABLE_MEMORY,
    EP_TABLE_THREADS,
    EP_TABLE_COUNT
} ep_table;

/* Of an element. */
typedef enum ep_type {
    EP_TYPE_INT8,
    EP_TYPE_UINT8,
    EP_TYPE_INT16,
    EP_TYPE_INT32,
    EP_TYPE_UINT32,
    EP_TYPE_INT64,
    EP_TYPE_UINT64,
    EP_TYPE_FLOAT64
} ep_type;

/* What an element stands for. All but the first two are codes of texts: ep_column_text(). */
typedef enum ep_reading {
    EP_READ_NUMBER,
    EP_READ_ADDRESS,     /* a number, shown in base 16 */
    EP_READ_EVENT,       /* ep_kind: the word of the event */
    EP_READ_CALL,        /* ep_kind: how a call began, or what else it is */
    EP_READ_DOMAIN,      /* ep_domain */
    EP_READ_FUNCTION,    /* ep_name_kind */
    EP_READ_STRING       /* a string id */
} ep_reading;

/* Which elements mean "unknown". */
typedef enum ep_null {
    EP_NULL_NEVER,
    EP_NULL_NEGATIVE,
    EP_NULL_ZERO,
    EP_NULL_NAN,
    EP_NULL_NO_LINES,    /* all, where lines were not recorded */
    EP_NULL_NO_MEMORY,   /* all, where allocations were not recorded */
    EP_NULL_NO_LOCK,     /* all, where the interpreter had no lock */
    EP_NULL_NO_WAITS     /* all, where waits were not recorded */
} ep_null;

/* Rows of a table. */
typedef struct ep_part {
    size_t first, count;
} ep_part;

typedef struct ep_column {
    const char *name;
    uint8_t table;           /* ep_table */
    uint8_t type;            /* ep_type */
    uint8_t reading;         /* ep_reading */
    uint8_t null;            /* ep_null */
    bool inner;              /* no table shows it */
    const char *null_if;     /* when it is unknown; "": never */
    const char *unit;        /* "": none */
    const char *meaning, *more;    /* what describe() says, and what the page adds */
    /* Where its values are: columns.c. */
    ep_step step;
    unsigned pairs;          /* columns of calls or blocks (pair.h) that must be filled */
    void (*fill)(const ep_trace *trace, ep_part part, void *to);    /* NULL: they are in an array */
    size_t array_at;         /* of the array's pointer in ep_trace */
    size_t stride, member_at;    /* in an array of structs; stride 0: the array is the column itself */
    bool of_blocks;          /* without blocks and values each element is `otherwise`: */
    int8_t otherwise;
} ep_column;

extern EP_HIDDEN const ep_column ep_table_columns[];    /* in order of tables; ended by name NULL */
extern EP_HIDDEN const char *const ep_table_names[EP_TABLE_COUNT];
extern EP_HIDDEN const char *const ep_name_kind_words[EP_NAME_KIND_COUNT];

size_t ep_type_bytes(ep_type type);

/* Returns: view, static; NULL: the table has no such column. */
const ep_column *ep_column_find(ep_table table, const char *name);

/* The text that a code of a column stands for. Returns: view, immortal; .at NULL: unknown, or a column of
 * numbers. */
ep_text ep_column_text(const ep_column *column, int64_t code);

/* ---- Values ---------------------------------------------------------------------------------- */

/* Computes everything that a column's values depend on. Fails: as ep_trace_reach(). */
EP_CHECKED ep_status ep_column_reach(ep_trace *trace, const ep_column *column, ep_error *error);

/* The next three need ep_column_reach(). */

/* Rows of the column's table. */
size_t ep_column_count(const ep_trace *trace, const ep_column *column);

/* Returns: view, until the trace is cleared; NULL: the values must be filled in. */
const void *ep_column_view(const ep_trace *trace, const ep_column *column);

/* Whether each value is column->otherwise. */
static inline bool
ep_column_is_constant(const ep_trace *trace, const ep_column *column)
{
    return column->of_blocks && trace->decoded.columns.alloc_count == 0;
}

/* Writes the values of some rows, of ep_column_count(). */
void ep_column_fill(const ep_trace *trace, const ep_column *column, ep_part rows, void *to);

/* Copies `bytes` at member_at of each of `count` structs that are `stride` bytes long. */
void ep_rows_gather(const void *rows, size_t count, size_t stride, size_t member_at, size_t bytes,
                    void *to);

/* A column's values, in the trace or in memory of their own. */
typedef struct ep_values {
    size_t count;
    const void *at;    /* elements of the column's type; view into the trace, or into `owned` */
    void *owned;
} ep_values;

/* Returns through out: new (ep_values_clear); untouched on failure. column: NULL is EP_ARGUMENT.
 * Fails: as ep_trace_reach(). */
EP_CHECKED ep_status ep_trace_get(ep_trace *trace, const ep_column *column, ep_values *out,
                                  ep_error *error);
void ep_values_clear(ep_values *values);

/* Whether an element is known. */
bool ep_value_is_known(const ep_trace *trace, const ep_column *column, const ep_values *values, size_t row);

/* An element as a whole number; a FLOAT64 loses its fraction. */
int64_t ep_value_int64(const ep_column *column, const ep_values *values, size_t row);

#endif
