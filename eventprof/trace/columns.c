#include "columns.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "columns_parts.h"
#include "names.h"

/* ---- The list -------------------------------------------------------------------------------- */

#define NAMED(table_, name_, type_) .name = #name_, .table = EP_TABLE_##table_, .type = EP_TYPE_##type_
#define SAID(unit_, meaning_, more_) .unit = unit_, .meaning = meaning_, .more = more_
#define EP_COLUMN(table, name, type, reading_, source, null, unit, meaning, more) \
    {                                                                             \
        NAMED(table, name, type),                                                 \
        .reading = EP_READ_##reading_,                                            \
        source,                                                                   \
        null,                                                                     \
        SAID(unit, meaning, more),                                                \
    },
#define EP_INNER(table, name, type, source) \
    {                                       \
        NAMED(table, name, type),           \
        .inner = true,                      \
        source,                             \
        NEVER,                              \
        SAID("", "", ""),                   \
    },
#define VIEW(step_, pairs_, field) \
    .step = EP_STEP_##step_, .pairs = (pairs_), .array_at = offsetof(ep_trace, field)
#define ROWS(step_, field, row, member)                                                    \
    .step = EP_STEP_##step_, .array_at = offsetof(ep_trace, field), .stride = sizeof(row), \
    .member_at = offsetof(row, member)
#define FILL(step_, pairs_, function) \
    .step = EP_STEP_##step_, .pairs = (pairs_), .fill = ep_fill_##function
#define BLOCKS(step_, otherwise_, function)                                 \
    .step = EP_STEP_##step_, .fill = ep_fill_##function, .of_blocks = true, \
    .otherwise = (otherwise_)
#define NEVER .null = EP_NULL_NEVER, .null_if = ""
#define NEGATIVE(when) .null = EP_NULL_NEGATIVE, .null_if = (when)
#define ZERO(when) .null = EP_NULL_ZERO, .null_if = (when)
#define NOT_A_NUMBER(when) .null = EP_NULL_NAN, .null_if = (when)
#define NO_LINES .null = EP_NULL_NO_LINES, .null_if = "no lines recorded"
#define NO_MEMORY .null = EP_NULL_NO_MEMORY, .null_if = "no memory recorded"
#define NO_LOCK .null = EP_NULL_NO_LOCK, .null_if = "no interpreter lock"

const ep_column ep_table_columns[] = {
#include "columns.def"
    {.name = NULL},
};

const char *const ep_table_names[EP_TABLE_COUNT] = {
    [EP_TABLE_EVENTS] = "events",
    [EP_TABLE_CALLS] = "calls",
    [EP_TABLE_ALLOCATIONS] = "allocations",
    [EP_TABLE_FUNCTIONS] = "functions",
    [EP_TABLE_LINES] = "lines",
    [EP_TABLE_MEMORY] = "memory",
    [EP_TABLE_THREADS] = "threads",
};

const char *const ep_name_kind_words[EP_NAME_KIND_COUNT] = {
    [EP_NAME_PYTHON] = "python",
    [EP_NAME_C] = "c",
    [EP_NAME_TYPE] = "type",
    [EP_NAME_OBJECT] = "object",
    [EP_NAME_USER] = "user",
    [EP_NAME_GC] = "gc",
    [EP_NAME_AUDIT] = "audit",
    [EP_NAME_HPY] = "hpy",
};

size_t
ep_type_bytes(ep_type type)
{
    static const uint8_t bytes[] = {
        [EP_TYPE_INT8] = 1,
        [EP_TYPE_UINT8] = 1,
        [EP_TYPE_INT16] = 2,
        [EP_TYPE_INT32] = 4,
        [EP_TYPE_UINT32] = 4,
        [EP_TYPE_INT64] = 8,
        [EP_TYPE_UINT64] = 8,
        [EP_TYPE_FLOAT64] = 8,
    };
    return bytes[type];
}

const ep_column *
ep_column_find(ep_table table, const char *name)
{
    for (const ep_column *column = ep_table_columns; column->name != NULL; column++) {
        if (column->table == table && strcmp(column->name, name) == 0) {
            return column;
        }
    }
    return NULL;
}

/* ---- Texts ----------------------------------------------------------------------------------- */

/* Words for tree rows that are not interpreter calls: the word of their group. */
static const char *
word_of_call(const ep_kind_info *info)
{
    bool opens = info->form == EP_FORM_CALL && info->pairing == EP_PAIRING_OPENS;
    return opens && info->group != EP_GROUP_PYTHON && info->group != EP_GROUP_C
               ? ep_kind_group_words[info->group]
               : info->word;
}

ep_text
ep_column_text(const ep_column *column, int64_t code)
{
    static const char *const domains[] = {
        [EP_DOMAIN_RAW] = "raw",
        [EP_DOMAIN_MEM] = "mem",
        [EP_DOMAIN_OBJ] = "obj",
        [EP_DOMAIN_NUMPY] = "numpy",
        [EP_DOMAIN_LIBC] = "libc",
    };
    const char *word = NULL;
    if (code < 0) {
        return (ep_text){0};
    }
    switch ((ep_reading)column->reading) {
        case EP_READ_NUMBER:
        case EP_READ_ADDRESS:
            break;
        case EP_READ_EVENT:
            word = code < EP_KIND_COUNT ? ep_kinds[code].word : NULL;
            break;
        case EP_READ_CALL:
            word = code < EP_KIND_COUNT ? word_of_call(&ep_kinds[code]) : NULL;
            break;
        case EP_READ_DOMAIN:
            word = code < EP_DOMAIN_COUNT ? domains[code] : NULL;
            break;
        case EP_READ_FUNCTION:
            word = code < EP_NAME_KIND_COUNT ? ep_name_kind_words[code] : NULL;
            break;
        case EP_READ_STRING:
            return (size_t)code < ep_string_count() ? ep_string_get((uint32_t)code) : (ep_text){0};
    }
    return (ep_text){word, word != NULL ? strlen(word) : 0};
}

/* ---- Values ---------------------------------------------------------------------------------- */

ep_status
ep_column_reach(ep_trace *trace, const ep_column *column, ep_error *error)
{
    ep_status status = ep_trace_reach(trace, column->step, error);
    if (status != EP_OK || column->pairs == 0) {
        return status;
    }
    return column->step == EP_STEP_CALLS
               ? ep_calls_fill(&trace->calls, column->pairs)
               : ep_blocks_fill(&trace->blocks, &trace->calls, column->pairs);
}

size_t
ep_column_count(const ep_trace *trace, const ep_column *column)
{
    switch ((ep_table)column->table) {
        case EP_TABLE_EVENTS:
            return trace->decoded.columns.count;
        case EP_TABLE_CALLS:
            return trace->calls.count;
        case EP_TABLE_ALLOCATIONS:
            return trace->blocks.count;
        case EP_TABLE_FUNCTIONS:
            return trace->functions.count;
        case EP_TABLE_LINES:
            return trace->lines.count;
        case EP_TABLE_MEMORY:
            return trace->curve.count;
        case EP_TABLE_THREADS:
            return trace->decoded.thread_count;
        case EP_TABLE_COUNT:
            break;
    }
    return 0;
}

static const void *
array_of(const ep_trace *trace, const ep_column *column)
{
    return *(const void *const *)((const char *)trace + column->array_at);
}

const void *
ep_column_view(const ep_trace *trace, const ep_column *column)
{
    return column->fill == NULL && column->stride == 0 ? array_of(trace, column) : NULL;
}

void
ep_column_fill(const ep_trace *trace, const ep_column *column, void *to)
{
    size_t count = ep_column_count(trace, column), bytes = ep_type_bytes(column->type);
    if (count == 0) {
        return;    /* without rows there may be no array */
    }
    if (column->fill != NULL) {
        column->fill(trace, to);
    } else if (column->stride == 0) {
        memcpy(to, array_of(trace, column), count * bytes);
    } else {
        ep_rows_gather(array_of(trace, column), count, column->stride, column->member_at, bytes, to);
    }
}

void
ep_rows_gather(const void *rows, size_t count, size_t stride, size_t member_at, size_t bytes, void *to)
{
    const char *from = (const char *)rows + (count > 0 ? member_at : 0);
    if (bytes == 8) {    /* the size is a constant here, so the compiler makes it one instruction */
        for (size_t row = 0; row < count; row++) {
            memcpy((char *)to + row * 8, from + row * stride, 8);
        }
        return;
    }
    for (size_t row = 0; row < count; row++) {
        memcpy((char *)to + row * bytes, from + row * stride, bytes);
    }
}

ep_status
ep_trace_get(ep_trace *trace, const ep_column *column, ep_values *out, ep_error *error)
{
    if (column == NULL) {
        return ep_fail(error, EP_ARGUMENT, "no such column");
    }
    ep_status status = ep_column_reach(trace, column, error);
    if (status != EP_OK) {
        return status;
    }
    ep_values values = {
        .count = ep_column_count(trace, column),
        .at = ep_column_view(trace, column),
    };
    if (values.at == NULL) {
        values.owned = ep_array_new(values.count, ep_type_bytes(column->type));
        if (values.owned == NULL) {
            return EP_NOMEM;
        }
        ep_column_fill(trace, column, values.owned);
        values.at = values.owned;
    }
    *out = values;
    return EP_OK;
}

void
ep_values_clear(ep_values *values)
{
    free(values->owned);
    *values = (ep_values){0};
}

int64_t
ep_value_int64(const ep_column *column, const ep_values *values, size_t row)
{
    switch ((ep_type)column->type) {
        case EP_TYPE_INT8:
            return ((const int8_t *)values->at)[row];
        case EP_TYPE_UINT8:
            return ((const uint8_t *)values->at)[row];
        case EP_TYPE_INT16:
            return ((const int16_t *)values->at)[row];
        case EP_TYPE_INT32:
            return ((const int32_t *)values->at)[row];
        case EP_TYPE_UINT32:
            return ((const uint32_t *)values->at)[row];
        case EP_TYPE_INT64:
            return ((const int64_t *)values->at)[row];
        case EP_TYPE_UINT64:
            return (int64_t)((const uint64_t *)values->at)[row];
        case EP_TYPE_FLOAT64:
            return (int64_t)((const double *)values->at)[row];
    }
    return 0;
}

bool
ep_value_is_known(const ep_trace *trace, const ep_column *column, const ep_values *values, size_t row)
{
    switch ((ep_null)column->null) {
        case EP_NULL_NEVER:
            return true;
        case EP_NULL_NEGATIVE:
            return column->type == EP_TYPE_FLOAT64 ? ((const double *)values->at)[row] >= 0
                                                   : ep_value_int64(column, values, row) >= 0;
        case EP_NULL_ZERO:
            return ep_value_int64(column, values, row) != 0;
        case EP_NULL_NAN:
            return !isnan(((const double *)values->at)[row]);
        case EP_NULL_NO_LINES:
            return ep_kinds_has(trace->recording.kinds, EP_KIND_LINE);
        case EP_NULL_NO_MEMORY:
            return (trace->recording.kinds & ep_kinds_of_domains(EP_DOMAINS_ALL)) != 0;
        case EP_NULL_NO_LOCK:
            return !trace->no_lock;
    }
    return true;
}
