/* Columns of the small tables: functions, lines, threads. */
#include <string.h>

#include "columns_parts.h"
#include "names.h"

/* ---- functions ------------------------------------------------------------------------------- */

static int32_t
string_of(const ep_name *name, ep_name_part part)
{
    uint32_t string = part == EP_NAME_PART_QUALNAME ? name->qualname
                      : part == EP_NAME_PART_MODULE ? name->module
                                                    : name->file;
    return string != EP_STRING_NONE ? (int32_t)string : -1;
}

void
ep_functions_to_strings(const ep_functions *functions, int32_t *rows, size_t count, ep_name_part part)
{
    for (size_t i = 0; i < count; i++) {
        rows[i] = rows[i] >= 0 ? string_of(ep_name_get(functions->name_id[rows[i]]), part) : -1;
    }
}

static void
fill_function_string(const ep_trace *trace, int32_t *string, ep_name_part part)
{
    for (size_t row = 0; row < trace->functions.count; row++) {
        string[row] = string_of(ep_name_get(trace->functions.name_id[row]), part);
    }
}

void
ep_fill_function_name(const ep_trace *trace, void *to)
{
    fill_function_string(trace, to, EP_NAME_PART_QUALNAME);
}

void
ep_fill_function_module(const ep_trace *trace, void *to)
{
    fill_function_string(trace, to, EP_NAME_PART_MODULE);
}

void
ep_fill_function_file(const ep_trace *trace, void *to)
{
    fill_function_string(trace, to, EP_NAME_PART_FILE);
}

void
ep_fill_function_line(const ep_trace *trace, void *to)
{
    int32_t *line = to;
    for (size_t row = 0; row < trace->functions.count; row++) {
        int32_t first = ep_name_get(trace->functions.name_id[row])->line;
        line[row] = first > 0 ? first : -1;
    }
}

void
ep_fill_function_kind(const ep_trace *trace, void *to)
{
    uint8_t *kind = to;
    for (size_t row = 0; row < trace->functions.count; row++) {
        kind[row] = ep_name_get(trace->functions.name_id[row])->kind;
    }
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void
fill_line_string(const ep_trace *trace, int32_t *string, ep_name_part part)
{
    for (size_t row = 0; row < trace->lines.count; row++) {
        string[row] = trace->lines.rows[row].function;
    }
    ep_functions_to_strings(&trace->functions, string, trace->lines.count, part);
}

void
ep_fill_line_name(const ep_trace *trace, void *to)
{
    fill_line_string(trace, to, EP_NAME_PART_QUALNAME);
}

void
ep_fill_line_file(const ep_trace *trace, void *to)
{
    fill_line_string(trace, to, EP_NAME_PART_FILE);
}

/* ---- threads --------------------------------------------------------------------------------- */

void
ep_fill_thread_name(const ep_trace *trace, void *to)
{
    int32_t *string = to;
    for (size_t row = 0; row < trace->decoded.thread_count; row++) {
        const char *name = ep_trace_thread_name(&trace->decoded.threads[row]);
        uint32_t id = name != NULL ? ep_string_add((ep_text){name, strlen(name)}) : EP_STRING_NONE;
        string[row] = id != EP_STRING_NONE ? (int32_t)id : -1;
    }
}

void
ep_fill_thread_native_id(const ep_trace *trace, void *to)
{
    int64_t *id = to;
    for (size_t row = 0; row < trace->decoded.thread_count; row++) {
        const ep_thread *thread = trace->decoded.threads[row].thread;
        id[row] = thread != NULL ? (int64_t)thread->native_id : 0;
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

void
ep_fill_thread_first(const ep_trace *trace, void *to)
{
    int64_t *first = to;
    for (size_t row = 0; row < trace->decoded.thread_count; row++) {
        const ep_trace_thread *thread = &trace->decoded.threads[row];
        first[row] = sum(thread->recorded) > 0 ? thread->first_ns : -1;
    }
}

void
ep_fill_thread_last(const ep_trace *trace, void *to)
{
    int64_t *last = to;
    for (size_t row = 0; row < trace->decoded.thread_count; row++) {
        const ep_trace_thread *thread = &trace->decoded.threads[row];
        last[row] = sum(thread->recorded) > 0 ? thread->last_ns : -1;
    }
}

void
ep_fill_thread_recorded(const ep_trace *trace, void *to)
{
    int64_t *recorded = to;
    for (size_t row = 0; row < trace->decoded.thread_count; row++) {
        recorded[row] = sum(trace->decoded.threads[row].recorded);
    }
}

void
ep_fill_thread_lost(const ep_trace *trace, void *to)
{
    int64_t *lost = to;
    for (size_t row = 0; row < trace->decoded.thread_count; row++) {
        lost[row] = sum(trace->decoded.threads[row].lost);
    }
}
