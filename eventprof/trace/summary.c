/* Memory by call; memory over time is in summary_memory.c. */
#include "summary.h"

#include "array.h"

void
ep_summary_clear(ep_summary *summary)
{
    free(summary->rows);
    *summary = (ep_summary){0};
}

/* ---- Memory by call -------------------------------------------------------------------------- */

static void
add_call_events(ep_call_memory *memory, const ep_calls *calls, const ep_blocks *blocks)
{
    const ep_pair_input *input = blocks->input;
    for (size_t event = 0; event < input->columns->alloc_count; event++) {
        ep_column_row(event);
        int32_t block = blocks->event_block[event];
        int32_t call = calls->row_call[ep_alloc_row(input, event)];
        if (block < 0 || call < 0) {
            continue;
        }
        int64_t size = input->columns->size[event];
        bool born = blocks->birth[block] == event;
        memory->allocated[call] += born ? size : 0;
        memory->freed[call] += born ? 0 : size;
        memory->blocks[call] += born;
    }
}

/* Children come after their parents, so one pass from the end is enough. */
static void
add_below(ep_call_memory *memory, const ep_calls *calls)
{
    for (size_t call = calls->count; call-- > 0;) {
        ep_column_row(call);
        int32_t parent = calls->parent[call];
        if (parent >= 0) {
            memory->allocated[parent] += memory->allocated[call];
            memory->freed[parent] += memory->freed[call];
            memory->blocks[parent] += memory->blocks[call];
        }
    }
}

ep_status
ep_summary_call_memory(const ep_calls *calls, const ep_blocks *blocks, bool below,
                       ep_call_memory *out)
{
    ep_call_memory memory = {.count = calls->count};
    memory.allocated = ep_column_new_zeroed(calls->count, sizeof *memory.allocated);
    memory.freed = ep_column_new_zeroed(calls->count, sizeof *memory.freed);
    memory.blocks = ep_column_new_zeroed(calls->count, sizeof *memory.blocks);
    if (memory.allocated == NULL || memory.freed == NULL || memory.blocks == NULL) {
        ep_call_memory_clear(&memory);
        return EP_NOMEM;
    }
    add_call_events(&memory, calls, blocks);
    if (below) {
        add_below(&memory, calls);
    }
    *out = memory;
    return EP_OK;
}

void
ep_call_memory_clear(ep_call_memory *memory)
{
    ep_column_free(memory->allocated);
    ep_column_free(memory->freed);
    ep_column_free(memory->blocks);
    *memory = (ep_call_memory){0};
}
