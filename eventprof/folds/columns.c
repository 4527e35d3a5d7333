#include "columns.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "by_function.h"
#include "names.h"

/* ---- The functions that fill columns, below: one for each FILL and BLOCKS of the list -------- */

#define EP_COLUMN(table, name, type, reading, source, null, unit, meaning, more) source
#define EP_INNER(table, name, type, source) source
#define VIEW(step, pairs, field)
#define ROWS(step, field, row, member)
/* They write a value for each row of a part of the table. */
#define FILL(step, pairs, function) \
    static void fill_##function(const ep_trace *trace, ep_part part, void *to);
#define BLOCKS(step, otherwise, function) \
    static void fill_##function(const ep_trace *trace, ep_part part, void *to);
#include "columns.def"
#undef EP_COLUMN
#undef EP_INNER
#undef VIEW
#undef ROWS
#undef FILL
#undef BLOCKS

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
    .step = EP_STEP_##step_, .pairs = (pairs_), .fill = fill_##function
#define BLOCKS(step_, otherwise_, function)                              \
    .step = EP_STEP_##step_, .fill = fill_##function, .of_blocks = true, \
    .otherwise = (otherwise_)
#define NEVER .null = EP_NULL_NEVER, .null_if = ""
#define NEGATIVE(when) .null = EP_NULL_NEGATIVE, .null_if = (when)
#define ZERO(when) .null = EP_NULL_ZERO, .null_if = (when)
#define NOT_A_NUMBER(when) .null = EP_NULL_NAN, .null_if = (when)
#define NO_LINES .null = EP_NULL_NO_LINES, .null_if = "no lines recorded"
#define NO_MEMORY .null = EP_NULL_NO_MEMORY, .null_if = "no memory recorded"
#define NO_WAITS .null = EP_NULL_NO_WAITS, .null_if = "no waits recorded"
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
    [EP_NAME_WAIT] = "wait",
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
    if (status == EP_OK && (column->step == EP_STEP_SUMMARY || column->step == EP_STEP_LENGTHS)) {
        status = ep_fold_functions(trace, column->step == EP_STEP_LENGTHS, error);
    }
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
ep_column_fill(const ep_trace *trace, const ep_column *column, ep_part rows, void *to)
{
    size_t bytes = ep_type_bytes(column->type);
    for (size_t done = 0, end; done < rows.count; done = end) {    /* without rows there may be no array */
        end = ep_column_part(done, rows.count);
        ep_part part = {rows.first + done, end - done};
        char *at = (char *)to + done * bytes;
        if (column->fill != NULL) {
            column->fill(trace, part, at);
        } else if (column->stride == 0) {
            memcpy(at, (const char *)array_of(trace, column) + part.first * bytes, part.count * bytes);
        } else {
            ep_rows_gather((const char *)array_of(trace, column) + part.first * column->stride, part.count,
                           column->stride, column->member_at, bytes, at);
        }
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
        values.owned = ep_column_new(values.count, ep_type_bytes(column->type));
        if (values.owned == NULL) {
            return EP_NOMEM;
        }
        ep_column_fill(trace, column, (ep_part){0, values.count}, values.owned);
        values.at = values.owned;
    }
    *out = values;
    return EP_OK;
}

void
ep_values_clear(ep_values *values)
{
    ep_column_free(values->owned);
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
            return !trace->no_lock || ep_kinds_has(trace->recording.kinds, EP_KIND_WAIT);
        case EP_NULL_NO_WAITS:
            return ep_kinds_has(trace->recording.kinds, EP_KIND_WAIT);
    }
    return true;
}

/* ---- Names and files of functions ------------------------------------------------------------ */

typedef enum name_part {
    PART_QUALNAME,
    PART_MODULE,
    PART_FILE
} name_part;

static int32_t
string_of(const ep_name *name, name_part part)
{
    uint32_t string = part == PART_QUALNAME ? name->qualname
                      : part == PART_MODULE ? name->module
                                            : name->file;
    return string != EP_STRING_NONE ? (int32_t)string : -1;
}

/* Replaces rows of functions by ids of their strings; -1: unknown, of either. */
static void
functions_to_strings(const ep_functions *functions, int32_t *rows, size_t count, name_part part)
{
    for (size_t i = 0; i < count; i++) {
        rows[i] = rows[i] >= 0 ? string_of(ep_name_get(functions->name_id[rows[i]]), part) : -1;
    }
}

/* ---- events ---------------------------------------------------------------------------------- */

static void
fill_event_function(const ep_trace *trace, ep_part part, void *to)
{
    const ep_columns *c = &trace->decoded.columns;
    const ep_id_map *map = &trace->functions.map;
    /* One table a kind: closing kinds name a name, the others a site. */
    const int32_t *table[EP_KIND_COUNT];
    for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
        table[kind] = ep_kind_has_name((unsigned)kind) ? map->name_function : map->site_function;
    }
    int32_t *function = to;
    for (size_t i = 0; i < part.count; i++) {
        size_t row = part.first + i;
        function[i] = table[c->kind[row]][c->id[row]];
    }
}

static void
fill_event_name(const ep_trace *trace, ep_part part, void *to)
{
    fill_event_function(trace, part, to);
    functions_to_strings(&trace->functions, to, part.count, PART_QUALNAME);
}

/* Calls and their ends: the function's first line. Allocations: the line that was executing. */
static void
fill_event_line(const ep_trace *trace, ep_part part, void *to)
{
    const ep_columns *c = &trace->decoded.columns;
    const ep_id_map *map = &trace->functions.map;
    int32_t *line = to;
    for (size_t i = 0; i < part.count; i++) {
        size_t row = part.first + i;
        const ep_kind_info *info = &ep_kinds[c->kind[row]];
        uint32_t id = c->id[row];
        if (info->form != EP_FORM_CALL) {
            line[i] = map->site_line[id];
            continue;
        }
        uint32_t name = info->has_name ? id : ep_site_callee(id);
        line[i] = ep_name_get(name)->line > 0 ? ep_name_get(name)->line : -1;
    }
}

/* For calls and their ends: the caller of the function. For marks and other events of the program: where
 * they were made. Allocator events, lines and other events inside of functions have no caller. */
static void
fill_caller_from(const ep_trace *trace, ep_part part, int32_t *to, const int32_t *by_site)
{
    const ep_columns *c = &trace->decoded.columns;
    for (size_t i = 0; i < part.count; i++) {
        size_t row = part.first + i;
        const ep_kind_info *info = &ep_kinds[c->kind[row]];
        int32_t call = trace->calls.row_call[row];
        if (info->form == EP_FORM_POINT || info->form == EP_FORM_VALUE) {
            to[i] = trace->functions.map.site_caller[c->id[row]] >= 0 ? by_site[c->id[row]] : -1;
        } else if (info->form != EP_FORM_CALL) {
            to[i] = -1;
        } else if (info->pairing == EP_PAIRING_OPENS) {
            to[i] = by_site[c->id[row]];
        } else {
            to[i] = call >= 0 ? by_site[ep_call_site(&trace->calls, (size_t)call)] : -1;
        }
    }
}

static void
fill_event_caller(const ep_trace *trace, ep_part part, void *to)
{
    fill_caller_from(trace, part, to, trace->functions.map.site_caller);
}

static void
fill_event_caller_line(const ep_trace *trace, ep_part part, void *to)
{
    fill_caller_from(trace, part, to, trace->functions.map.site_line);
}

static void
fill_event_depth(const ep_trace *trace, ep_part part, void *to)
{
    ep_calls_row_depth(&trace->calls, part.first, part.count, to);
}

/* The allocator events of a part's rows: *from up to the one that is returned. */
static size_t
events_of(const ep_columns *c, ep_part part, size_t *from)
{
    *from = ep_columns_block_of_row(c, 0, part.first);
    return ep_columns_block_of_row(c, *from, part.first + part.count);
}

static void
fill_event_address(const ep_trace *trace, ep_part part, void *to)
{
    const ep_columns *c = &trace->decoded.columns;
    uint64_t *address = to;
    memset(address, 0, part.count * sizeof *address);
    size_t from, end = events_of(c, part, &from);
    for (size_t event = from; event < end; event++) {
        unsigned kind = c->kind[c->alloc_row[event]];
        bool is_address = ep_kinds[kind].form != EP_FORM_VALUE ||
                          ep_kinds[kind].group == EP_GROUP_OBJECT;
        address[c->alloc_row[event] - part.first] = is_address ? c->address[event] : 0;
    }
}

/* The value of an event of the form VALUE as a number. */
static double
value_of(unsigned kind, uint64_t word)
{
    double value = NAN;
    switch (kind) {
        case EP_KIND_COUNTER:
            memcpy(&value, &word, sizeof value);
            break;
        case EP_KIND_GC_COLLECTED:
            value = (double)(uint32_t)word;
            break;
        case EP_KIND_FLOW:
            value = (double)(word >> 2);
            break;
        case EP_KIND_WAIT_BEGIN:
        case EP_KIND_WAIT:
            value = (double)EP_WAIT_NS(word);
            break;
        default:
            value = ep_kinds[kind].form == EP_FORM_VALUE && ep_kinds[kind].group != EP_GROUP_OBJECT
                        ? (double)word
                        : NAN;
            break;
    }
    return value;
}

static void
fill_event_value(const ep_trace *trace, ep_part part, void *to)
{
    const ep_columns *c = &trace->decoded.columns;
    double *value = to;
    for (size_t i = 0; i < part.count; i++) {
        value[i] = NAN;
    }
    size_t from, end = events_of(c, part, &from);
    for (size_t event = from; event < end; event++) {
        value[c->alloc_row[event] - part.first] = value_of(c->kind[c->alloc_row[event]], c->address[event]);
    }
}

/* The word as it was recorded. */
static void
fill_event_word(const ep_trace *trace, ep_part part, void *to)
{
    const ep_columns *c = &trace->decoded.columns;
    uint64_t *word = to;
    memset(word, 0, part.count * sizeof *word);
    size_t from, end = events_of(c, part, &from);
    for (size_t event = from; event < end; event++) {
        word[c->alloc_row[event] - part.first] = c->address[event];
    }
}

static void
fill_event_size(const ep_trace *trace, ep_part part, void *to)
{
    const ep_columns *c = &trace->decoded.columns;
    int64_t *size = to;
    memset(size, 0xFF, part.count * sizeof *size);    /* -1 */
    size_t from, end = events_of(c, part, &from);
    for (size_t event = from; event < end; event++) {
        size[c->alloc_row[event] - part.first] = c->size[event];
    }
}

static void
fill_event_domain(const ep_trace *trace, ep_part part, void *to)
{
    const ep_columns *c = &trace->decoded.columns;
    int8_t code[EP_KIND_COUNT], *domain = to;
    for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
        code[kind] = ep_kinds[kind].domain == EP_DOMAIN_NONE ? -1 : (int8_t)ep_kinds[kind].domain;
    }
    for (size_t i = 0; i < part.count; i++) {
        size_t row = part.first + i;
        domain[i] = code[c->kind[row]];
    }
}

/* Bytes; -1: not such a row, or unknown. */
static void
fill_event_offset(const ep_trace *trace, ep_part part, void *to)
{
    const ep_columns *c = &trace->decoded.columns;
    int32_t *offset = to;
    for (size_t i = 0; i < part.count; i++) {
        size_t row = part.first + i;
        offset[i] = ep_kind_is_inside(c->kind[row]) ? ep_site_get(c->id[row])->offset : -1;
    }
}

/* String ids. */
static void
fill_event_opcode(const ep_trace *trace, ep_part part, void *to)
{
    const ep_columns *c = &trace->decoded.columns;
    int32_t *opcode = to;
    for (size_t i = 0; i < part.count; i++) {
        size_t row = part.first + i;
        opcode[i] = c->kind[row] == EP_KIND_INSTRUCTION
                        ? (int32_t)ep_site_get(c->id[row])->task - 1
                        : -1;
    }
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void
fill_call_name(const ep_trace *trace, ep_part part, void *to)
{
    memcpy(to, trace->calls.function + part.first, part.count * sizeof *trace->calls.function);
    functions_to_strings(&trace->functions, to, part.count, PART_QUALNAME);
}

static void
fill_call_file(const ep_trace *trace, ep_part part, void *to)
{
    memcpy(to, trace->calls.function + part.first, part.count * sizeof *trace->calls.function);
    functions_to_strings(&trace->functions, to, part.count, PART_FILE);
}

static void
fill_call_first_line(const ep_trace *trace, ep_part part, void *to)
{
    int32_t *line = to;
    for (size_t i = 0; i < part.count; i++) {
        size_t call = part.first + i;
        int32_t function = trace->calls.function[call];
        int32_t first = function >= 0 ? ep_name_get(trace->functions.name_id[function])->line : 0;
        line[i] = first > 0 ? first : -1;
    }
}

static void
fill_call_caller(const ep_trace *trace, ep_part part, void *to)
{
    const int32_t *by_site = trace->functions.map.site_caller;
    int32_t *caller = to;
    for (size_t i = 0; i < part.count; i++) {
        size_t call = part.first + i;
        caller[i] = by_site[ep_call_site(&trace->calls, call)];
    }
}

static void
fill_call_line(const ep_trace *trace, ep_part part, void *to)
{
    const int32_t *by_site = trace->functions.map.site_line;
    int32_t *line = to;
    for (size_t i = 0; i < part.count; i++) {
        size_t call = part.first + i;
        line[i] = by_site[ep_call_site(&trace->calls, call)];
    }
}

/* String ids: the task of the call's site, or else that of its parent. */
static void
fill_call_task(const ep_trace *trace, ep_part part, void *to)
{
    const int32_t *parent = trace->calls.parent;
    int32_t *task = to;
    for (size_t i = 0; i < part.count; i++) {
        int32_t call = (int32_t)(part.first + i);
        uint32_t found = 0;
        /* Up to a call that has a task, or whose task is known here. */
        do {
            found = ep_site_get(ep_call_site(&trace->calls, (size_t)call))->task;
            call = parent[call];
        } while (found == 0 && call >= 0 && (size_t)call < part.first);
        task[i] = found != 0 ? (int32_t)found - 1 : call >= 0 ? task[(size_t)call - part.first]
                                                              : -1;
    }
}

/* ---- allocations ----------------------------------------------------------------------------- */

static void
fill_block_name(const ep_trace *trace, ep_part part, void *to)
{
    memcpy(to, trace->blocks.function + part.first, part.count * sizeof *trace->blocks.function);
    functions_to_strings(&trace->functions, to, part.count, PART_QUALNAME);
}

static void
fill_block_line(const ep_trace *trace, ep_part part, void *to)
{
    const int32_t *by_site = trace->functions.map.site_line;
    int32_t *line = to;
    for (size_t i = 0; i < part.count; i++) {
        size_t block = part.first + i;
        line[i] = by_site[ep_block_site(&trace->blocks, block)];
    }
}

/* ---- functions ------------------------------------------------------------------------------- */

static void
fill_function_string(const ep_trace *trace, ep_part part, int32_t *string, name_part what)
{
    for (size_t i = 0; i < part.count; i++) {
        string[i] = string_of(ep_name_get(trace->functions.name_id[part.first + i]), what);
    }
}

static void
fill_function_name(const ep_trace *trace, ep_part part, void *to)
{
    fill_function_string(trace, part, to, PART_QUALNAME);
}

static void
fill_function_module(const ep_trace *trace, ep_part part, void *to)
{
    fill_function_string(trace, part, to, PART_MODULE);
}

static void
fill_function_file(const ep_trace *trace, ep_part part, void *to)
{
    fill_function_string(trace, part, to, PART_FILE);
}

static void
fill_function_line(const ep_trace *trace, ep_part part, void *to)
{
    int32_t *line = to;
    for (size_t i = 0; i < part.count; i++) {
        size_t row = part.first + i;
        int32_t first = ep_name_get(trace->functions.name_id[row])->line;
        line[i] = first > 0 ? first : -1;
    }
}

static void
fill_function_kind(const ep_trace *trace, ep_part part, void *to)
{
    uint8_t *kind = to;
    for (size_t i = 0; i < part.count; i++) {
        size_t row = part.first + i;
        kind[i] = ep_name_get(trace->functions.name_id[row])->kind;
    }
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void
fill_line_string(const ep_trace *trace, ep_part part, int32_t *string, name_part what)
{
    for (size_t i = 0; i < part.count; i++) {
        string[i] = trace->lines.rows[part.first + i].function;
    }
    functions_to_strings(&trace->functions, string, part.count, what);
}

static void
fill_line_name(const ep_trace *trace, ep_part part, void *to)
{
    fill_line_string(trace, part, to, PART_QUALNAME);
}

static void
fill_line_file(const ep_trace *trace, ep_part part, void *to)
{
    fill_line_string(trace, part, to, PART_FILE);
}

/* ---- threads --------------------------------------------------------------------------------- */

static void
fill_thread_name(const ep_trace *trace, ep_part part, void *to)
{
    int32_t *string = to;
    for (size_t i = 0; i < part.count; i++) {
        size_t row = part.first + i;
        const char *name = ep_trace_thread_name(&trace->decoded.threads[row]);
        uint32_t id = name != NULL ? ep_string_add((ep_text){name, strlen(name)}) : EP_STRING_NONE;
        string[i] = id != EP_STRING_NONE ? (int32_t)id : -1;
    }
}

static void
fill_thread_native_id(const ep_trace *trace, ep_part part, void *to)
{
    int64_t *id = to;
    for (size_t i = 0; i < part.count; i++) {
        size_t row = part.first + i;
        const ep_thread *thread = trace->decoded.threads[row].thread;
        id[i] = thread != NULL ? (int64_t)thread->native_id : 0;
    }
}

static int64_t
sum(const uint64_t counts[EP_KIND_COUNT])
{
    uint64_t all = 0;
    for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
        all += counts[kind];
    }
    return (int64_t)all;
}

static void
fill_thread_first(const ep_trace *trace, ep_part part, void *to)
{
    int64_t *first = to;
    for (size_t i = 0; i < part.count; i++) {
        size_t row = part.first + i;
        const ep_trace_thread *thread = &trace->decoded.threads[row];
        first[i] = sum(thread->recorded) > 0 ? thread->first_ns : -1;
    }
}

static void
fill_thread_last(const ep_trace *trace, ep_part part, void *to)
{
    int64_t *last = to;
    for (size_t i = 0; i < part.count; i++) {
        size_t row = part.first + i;
        const ep_trace_thread *thread = &trace->decoded.threads[row];
        last[i] = sum(thread->recorded) > 0 ? thread->last_ns : -1;
    }
}

static void
fill_thread_recorded(const ep_trace *trace, ep_part part, void *to)
{
    int64_t *recorded = to;
    for (size_t i = 0; i < part.count; i++) {
        size_t row = part.first + i;
        recorded[i] = sum(trace->decoded.threads[row].recorded);
    }
}

static void
fill_thread_lost(const ep_trace *trace, ep_part part, void *to)
{
    int64_t *lost = to;
    for (size_t i = 0; i < part.count; i++) {
        size_t row = part.first + i;
        lost[i] = sum(trace->decoded.threads[row].lost);
    }
}
