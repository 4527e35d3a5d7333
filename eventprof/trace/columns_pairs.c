/* Columns of the tables calls and allocations that are not made by pairing (pair.h). */
#include <string.h>

#include "columns_parts.h"
#include "names.h"

/* ---- calls ----------------------------------------------------------------------------------- */

void
ep_fill_call_name(const ep_trace *trace, void *to)
{
    memcpy(to, trace->calls.function, trace->calls.count * sizeof *trace->calls.function);
    ep_functions_to_strings(&trace->functions, to, trace->calls.count, EP_NAME_PART_QUALNAME);
}

void
ep_fill_call_file(const ep_trace *trace, void *to)
{
    memcpy(to, trace->calls.function, trace->calls.count * sizeof *trace->calls.function);
    ep_functions_to_strings(&trace->functions, to, trace->calls.count, EP_NAME_PART_FILE);
}

void
ep_fill_call_first_line(const ep_trace *trace, void *to)
{
    int32_t *line = to;
    for (size_t call = 0; call < trace->calls.count; call++) {
        int32_t function = trace->calls.function[call];
        int32_t first = function >= 0 ? ep_name_get(trace->functions.name_id[function])->line : 0;
        line[call] = first > 0 ? first : -1;
    }
}

void
ep_fill_call_caller(const ep_trace *trace, void *to)
{
    const int32_t *by_site = trace->functions.map.site_caller;
    int32_t *caller = to;
    for (size_t call = 0; call < trace->calls.count; call++) {
        caller[call] = by_site[ep_call_site(&trace->calls, call)];
    }
}

void
ep_fill_call_line(const ep_trace *trace, void *to)
{
    const int32_t *by_site = trace->functions.map.site_line;
    int32_t *line = to;
    for (size_t call = 0; call < trace->calls.count; call++) {
        line[call] = by_site[ep_call_site(&trace->calls, call)];
    }
}

/* String ids: the task of the call's site, or else that of its parent. */
void
ep_fill_call_task(const ep_trace *trace, void *to)
{
    const int32_t *parent = trace->calls.parent;
    int32_t *task = to;
    for (size_t call = 0; call < trace->calls.count; call++) {
        uint32_t own = ep_site_get(ep_call_site(&trace->calls, call))->task;
        task[call] = own != 0 ? (int32_t)own - 1 : parent[call] >= 0 ? task[parent[call]]
                                                                     : -1;
    }
}

/* ---- allocations ----------------------------------------------------------------------------- */

void
ep_fill_block_name(const ep_trace *trace, void *to)
{
    memcpy(to, trace->blocks.function, trace->blocks.count * sizeof *trace->blocks.function);
    ep_functions_to_strings(&trace->functions, to, trace->blocks.count, EP_NAME_PART_QUALNAME);
}

void
ep_fill_block_line(const ep_trace *trace, void *to)
{
    const int32_t *by_site = trace->functions.map.site_line;
    int32_t *line = to;
    for (size_t block = 0; block < trace->blocks.count; block++) {
        line[block] = by_site[ep_block_site(&trace->blocks, block)];
    }
}
