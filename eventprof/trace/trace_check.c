/* What always holds of decoded columns and of calls, whatever was in a file. See invariants.h; verify.c
 * judges what was recorded. */
#include "invariants.h"

#ifdef EP_CHECKS

#include <inttypes.h>

#include "decode.h"
#include "pair.h"

void
ep_columns_check(const ep_columns *columns, size_t thread_count)
{
    size_t next = 0;
    for (size_t row = 0; row < columns->count; row++) {
        unsigned kind = columns->kind[row];
        EP_INVARIANT(row == 0 || columns->time_ns[row] >= columns->time_ns[row - 1],
                     "row %zu at %" PRId64 " ns, the one before at %" PRId64, row, columns->time_ns[row],
                     columns->time_ns[row - 1]);
        EP_INVARIANT(ep_kinds_has(ep_kinds_of_events, kind), "row %zu is of kind %u", row, kind);
        EP_INVARIANT(columns->thread[row] >= 0 && (size_t)columns->thread[row] < thread_count,
                     "row %zu is of thread %" PRId32 " of %zu", row, columns->thread[row], thread_count);
        if (ep_kinds_has(ep_kinds_of_two_words, kind)) {
            EP_INVARIANT(next < columns->alloc_count && columns->alloc_row[next] == row,
                         "row %zu is not the %zuth block event", row, next);
            next += 1;
        }
    }
    EP_INVARIANT(next == columns->alloc_count, "%zu events of blocks, counted were %zu", next,
                 columns->alloc_count);
}

void
ep_calls_check(const ep_calls *calls)
{
    EP_INVARIANT(calls->before_count <= calls->count, "%zu of %zu calls open at start", calls->before_count,
                 calls->count);
    for (size_t call = 0; call < calls->count; call++) {
        uint32_t opened = calls->open_row[call], closed = calls->close_row[call];
        int32_t parent = calls->parent[call];
        EP_INVARIANT((opened == EP_ROW_NONE) == (call < calls->before_count),
                     "call %zu is opened by row %" PRIu32, call, opened);
        EP_INVARIANT(opened == EP_ROW_NONE || closed == EP_ROW_NONE || closed > opened,
                     "call %zu is opened by row %" PRIu32 " and ended by row %" PRIu32, call, opened,
                     closed);
        EP_INVARIANT(parent >= -1 && parent < (int64_t)call, "call %zu is within call %" PRId32, call,
                     parent);
        EP_INVARIANT(parent < 0 || ep_call_thread(calls, (size_t)parent) == ep_call_thread(calls, call),
                     "call %zu is within call %" PRId32 " of another thread", call, parent);
    }
}

#endif
