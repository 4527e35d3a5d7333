/* How long calls waited for the interpreter's lock: see waited.h. */
#include "waited.h"

#include <string.h>

#include "array.h"
#include "memory.h"

ep_status
ep_tenure_clocks_open(ep_tenure_clocks *clocks, const int32_t *thread_process, size_t thread_count)
{
    *clocks = (ep_tenure_clocks){.one = {.holder = -1}, .count = 1, .thread_process = thread_process};
    for (size_t thread = 0; thread_process != NULL && thread < thread_count; thread++) {
        size_t needed = (size_t)thread_process[thread] + 1;
        clocks->count = clocks->count < needed ? needed : clocks->count;
    }
    clocks->one.own_ns = ep_calloc(thread_count + 1, sizeof *clocks->one.own_ns);
    if (clocks->one.own_ns == NULL) {
        return EP_NOMEM;
    }
    if (clocks->count > 1) {
        clocks->several = ep_calloc(clocks->count, sizeof *clocks->several);
        if (clocks->several == NULL) {
            ep_tenure_clocks_clear(clocks);
            return EP_NOMEM;
        }
    }
    for (size_t process = 0; clocks->several != NULL && process < clocks->count; process++) {
        clocks->several[process] = clocks->one;
    }
    return EP_OK;
}

void
ep_tenure_clocks_clear(ep_tenure_clocks *clocks)
{
    free(clocks->one.own_ns);
    free(clocks->several);
    *clocks = (ep_tenure_clocks){.one = {.holder = -1}};
}

static void
stop(ep_tenure_clock *clock)
{
    if (clock->holder >= 0) {
        int64_t length_ns = clock->last_ns - clock->start_ns;
        clock->ended_ns += length_ns;
        clock->own_ns[clock->holder] += length_ns;
        clock->holder = -1;
    }
}

void
ep_tenure_clocks_stop(ep_tenure_clocks *clocks)
{
    for (size_t process = 0; process < clocks->count; process++) {
        stop(ep_tenure_clock_of_process(clocks, process));
    }
}

/* Ends the calls of a thread from the innermost open one up to `last`. */
static int32_t
end_calls(const ep_calls *calls, int32_t innermost, int32_t last, int64_t others_ns, int64_t *waited)
{
    int32_t call = innermost;
    while (call >= 0 && call != last) {
        waited[call] += others_ns;
        call = calls->parent[call];
    }
    if (call < 0) {
        return -1;
    }
    waited[call] += others_ns;
    return calls->parent[call];
}

ep_status
ep_calls_waited(const ep_calls *calls, int64_t *waited)
{
    const ep_columns *columns = calls->input->columns;
    size_t threads = calls->input->thread_count;
    if (calls->count == 0) {
        return EP_OK;
    }
    if (threads < 2) {
        return EP_OK;
    }
    ep_tenure_clocks clocks;
    int32_t *innermost = ep_array_new(threads, sizeof *innermost);
    const int32_t *processes = calls->input->thread_process;
    if (innermost == NULL || ep_tenure_clocks_open(&clocks, processes, threads) != EP_OK) {
        free(innermost);
        return EP_NOMEM;
    }
    memset(innermost, -1, threads * sizeof *innermost);
    for (size_t call = 0; call < calls->before_count; call++) {
        innermost[calls->before[call].thread] = (int32_t)call;
    }
    const ep_kind_set under_lock = ep_kinds_under_lock();
    for (size_t row = 0; row < columns->count; row++) {
        ep_column_row(row);
        int32_t thread = columns->thread[row], call = calls->row_call[row];
        ep_tenure_clock *clock = ep_tenure_clock_of(&clocks, thread);
        if (ep_kinds_has(under_lock, columns->kind[row])) {
            ep_tenure_event(clock, thread, columns->time_ns[row]);
        }
        if (call < 0) {
            continue;
        }
        if (calls->open_row[call] == row) {
            waited[call] = -ep_tenure_others_ns(clock, thread);
            innermost[thread] = call;
        } else if (calls->close_row[call] == row) {
            innermost[thread] = end_calls(calls, innermost[thread], call,
                                          ep_tenure_others_ns(clock, thread), waited);
        }
    }
    ep_tenure_clocks_stop(&clocks);
    for (size_t thread = 0; thread < threads; thread++) {
        const ep_tenure_clock *clock = ep_tenure_clock_of(&clocks, (int32_t)thread);
        end_calls(calls, innermost[thread], -1, ep_tenure_others_ns(clock, (int32_t)thread), waited);
    }
    ep_tenure_clocks_clear(&clocks);
    free(innermost);
    return EP_OK;
}
