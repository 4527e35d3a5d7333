/* Columns of the table events that are computed from the decoded columns. */
#include <math.h>
#include <string.h>

#include "columns_parts.h"
#include "names.h"

void
ep_fill_event_function(const ep_trace *trace, void *to)
{
    const ep_columns *c = &trace->decoded.columns;
    const ep_id_map *map = &trace->functions.map;
    /* One table a kind: closing kinds name a name, the others a site. */
    const int32_t *table[EP_KIND_COUNT];
    for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
        table[kind] = ep_kind_has_name((unsigned)kind) ? map->name_function : map->site_function;
    }
    int32_t *function = to;
    for (size_t row = 0; row < c->count; row++) {
        function[row] = table[c->kind[row]][c->id[row]];
    }
}

void
ep_fill_event_name(const ep_trace *trace, void *to)
{
    ep_fill_event_function(trace, to);
    ep_functions_to_strings(&trace->functions, to, trace->decoded.columns.count, EP_NAME_PART_QUALNAME);
}

/* Calls and their ends: the function's first line. Allocations: the line that was executing. */
void
ep_fill_event_line(const ep_trace *trace, void *to)
{
    const ep_columns *c = &trace->decoded.columns;
    const ep_id_map *map = &trace->functions.map;
    int32_t *line = to;
    for (size_t row = 0; row < c->count; row++) {
        const ep_kind_info *info = &ep_kinds[c->kind[row]];
        uint32_t id = c->id[row];
        if (info->form != EP_FORM_CALL) {
            line[row] = map->site_line[id];
            continue;
        }
        uint32_t name = info->has_name ? id : ep_site_callee(id);
        line[row] = ep_name_get(name)->line > 0 ? ep_name_get(name)->line : -1;
    }
}

/* For calls and their ends: the caller of the function. For marks and other events of the program: where
 * they were made. Allocator events, lines and other events inside of functions have no caller. */
static void
fill_caller_from(const ep_trace *trace, int32_t *to, const int32_t *by_site)
{
    const ep_columns *c = &trace->decoded.columns;
    for (size_t row = 0; row < c->count; row++) {
        const ep_kind_info *info = &ep_kinds[c->kind[row]];
        int32_t call = trace->calls.row_call[row];
        if (info->form == EP_FORM_POINT || info->form == EP_FORM_VALUE) {
            to[row] = trace->functions.map.site_caller[c->id[row]] >= 0 ? by_site[c->id[row]] : -1;
        } else if (info->form != EP_FORM_CALL) {
            to[row] = -1;
        } else if (info->pairing == EP_PAIRING_OPENS) {
            to[row] = by_site[c->id[row]];
        } else {
            to[row] = call >= 0 ? by_site[ep_call_site(&trace->calls, (size_t)call)] : -1;
        }
    }
}

void
ep_fill_event_caller(const ep_trace *trace, void *to)
{
    fill_caller_from(trace, to, trace->functions.map.site_caller);
}

void
ep_fill_event_caller_line(const ep_trace *trace, void *to)
{
    fill_caller_from(trace, to, trace->functions.map.site_line);
}

void
ep_fill_event_depth(const ep_trace *trace, void *to)
{
    ep_calls_row_depth(&trace->calls, 0, trace->decoded.columns.count, to);
}

void
ep_fill_event_address(const ep_trace *trace, void *to)
{
    const ep_columns *c = &trace->decoded.columns;
    uint64_t *address = to;
    memset(address, 0, c->count * sizeof *address);
    for (size_t i = 0; i < c->alloc_count; i++) {
        unsigned kind = c->kind[c->alloc_row[i]];
        bool is_address = ep_kinds[kind].form != EP_FORM_VALUE ||
                          ep_kinds[kind].group == EP_GROUP_OBJECT;
        address[c->alloc_row[i]] = is_address ? c->address[i] : 0;
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
        default:
            value = ep_kinds[kind].form == EP_FORM_VALUE && ep_kinds[kind].group != EP_GROUP_OBJECT
                        ? (double)word
                        : NAN;
            break;
    }
    return value;
}

void
ep_fill_event_value(const ep_trace *trace, void *to)
{
    const ep_columns *c = &trace->decoded.columns;
    double *value = to;
    for (size_t row = 0; row < c->count; row++) {
        value[row] = NAN;
    }
    for (size_t i = 0; i < c->alloc_count; i++) {
        value[c->alloc_row[i]] = value_of(c->kind[c->alloc_row[i]], c->address[i]);
    }
}

/* The word as it was recorded. */
void
ep_fill_event_word(const ep_trace *trace, void *to)
{
    const ep_columns *c = &trace->decoded.columns;
    uint64_t *word = to;
    memset(word, 0, c->count * sizeof *word);
    for (size_t i = 0; i < c->alloc_count; i++) {
        word[c->alloc_row[i]] = c->address[i];
    }
}

void
ep_fill_event_size(const ep_trace *trace, void *to)
{
    const ep_columns *c = &trace->decoded.columns;
    int64_t *size = to;
    memset(size, 0xFF, c->count * sizeof *size);    /* -1 */
    for (size_t i = 0; i < c->alloc_count; i++) {
        size[c->alloc_row[i]] = c->size[i];
    }
}

void
ep_fill_event_domain(const ep_trace *trace, void *to)
{
    const ep_columns *c = &trace->decoded.columns;
    int8_t code[EP_KIND_COUNT], *domain = to;
    for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
        code[kind] = ep_kinds[kind].domain == EP_DOMAIN_NONE ? -1 : (int8_t)ep_kinds[kind].domain;
    }
    for (size_t row = 0; row < c->count; row++) {
        domain[row] = code[c->kind[row]];
    }
}

/* Bytes; -1: not such a row, or unknown. */
void
ep_fill_event_offset(const ep_trace *trace, void *to)
{
    const ep_columns *c = &trace->decoded.columns;
    int32_t *offset = to;
    for (size_t row = 0; row < c->count; row++) {
        offset[row] = ep_kind_is_inside(c->kind[row]) ? ep_site_get(c->id[row])->offset : -1;
    }
}

/* String ids. */
void
ep_fill_event_opcode(const ep_trace *trace, void *to)
{
    const ep_columns *c = &trace->decoded.columns;
    int32_t *opcode = to;
    for (size_t row = 0; row < c->count; row++) {
        opcode[row] = c->kind[row] == EP_KIND_INSTRUCTION
                          ? (int32_t)ep_site_get(c->id[row])->task - 1
                          : -1;
    }
}
