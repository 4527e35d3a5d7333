/* How long calls waited for the interpreter's lock: see waited.h. */
#include "waited.h"

#include <string.h>

#include "array.h"
#include "memory.h"

ep_status
ep_tenure_clocks_open(ep_tenure_clocks *clocks, const int32_t *thread_process,
                      const int32_t *thread_carrier, size_t thread_count)
{
    *clocks = (ep_tenure_clocks){.one = {.holder = -1, .carrier = thread_carrier},
                                 .count = 1,
                                 .thread_process = thread_process};
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

/* A call ends when its thread had waited for so long. */
static int32_t
end_call(const ep_calls *calls, int32_t call, int64_t waited_ns, int64_t *waited)
{
    int64_t length_ns = ep_call_end(calls, (size_t)call) - ep_call_start(calls, (size_t)call);
    waited[call] += waited_ns;
    waited[call] = waited[call] < length_ns ? waited[call] : length_ns;
    return calls->parent[call];
}

/* Ends the calls of a thread from the innermost open one up to `last`. */
static int32_t
end_calls(const ep_calls *calls, int32_t innermost, int32_t last, int64_t waited_ns, int64_t *waited)
{
    int32_t call = innermost;
    while (call >= 0 && call != last) {
        call = end_call(calls, call, waited_ns, waited);
    }
    return call < 0 ? -1 : end_call(calls, call, waited_ns, waited);
}

/* Takes a wait from the calls that began while it went on: they are the innermost ones. */
static void
leave_out_later(const ep_calls *calls, int32_t innermost, int64_t time_ns, int64_t ns, int64_t *waited)
{
    for (int32_t call = innermost; call >= 0; call = calls->parent[call]) {
        int64_t before_ns = ns - (time_ns - ep_call_start(calls, (size_t)call));
        if (before_ns <= 0) {
            break;
        }
        waited[call] -= before_ns;
    }
}

/* How long a thread waited so far, by the events of waits or by tenures. */
typedef struct meter {
    bool by_waits;
    ep_waiting *waiting;          /* by thread */
    ep_tenure_clocks clocks;
} meter;

static int64_t
read_meter(meter *m, int32_t thread)
{
    if (m->by_waits) {
        return m->waiting[thread].waited_ns;
    }
    return ep_tenure_others_ns(ep_tenure_clock_of(&m->clocks, thread), thread);
}

ep_status
ep_calls_waited(const ep_calls *calls, bool by_waits, int64_t *waited)
{
    const ep_columns *columns = calls->input->columns;
    size_t threads = calls->input->thread_count;
    if (calls->count == 0 || (!by_waits && threads < 2)) {
        return EP_OK;
    }
    meter m = {.by_waits = by_waits, .waiting = ep_calloc(threads, sizeof *m.waiting)};
    int32_t *innermost = ep_array_new(threads, sizeof *innermost);
    const int32_t *processes = calls->input->thread_process;
    if (m.waiting == NULL || innermost == NULL ||
        ep_tenure_clocks_open(&m.clocks, processes, calls->input->thread_carrier, threads) != EP_OK) {
        free(innermost);
        free(m.waiting);
        return EP_NOMEM;
    }
    memset(innermost, -1, threads * sizeof *innermost);
    for (size_t call = 0; call < calls->before_count; call++) {
        innermost[calls->before[call].thread] = (int32_t)call;
    }
    const ep_kind_set under_lock = by_waits ? 0 : ep_kinds_under_lock();
    size_t block = 0;
    for (size_t row = 0; row < columns->count; row++) {
        ep_column_row(row);
        int32_t thread = columns->thread[row], call = calls->row_call[row];
        unsigned kind = columns->kind[row];
        if (ep_kinds_has(under_lock, kind)) {
            ep_tenure_event(ep_tenure_clock_of(&m.clocks, thread), thread, columns->time_ns[row]);
        }
        if (ep_kinds_has(ep_kinds_of_two_words, kind)) {
            uint64_t word = columns->address[block++];
            if (kind == EP_KIND_WAIT) {
                int64_t time_ns = columns->time_ns[row];
                int64_t ns = ep_waiting_end(&m.waiting[thread], time_ns, word);
                leave_out_later(calls, innermost[thread], time_ns, ns, waited);
            } else if (kind == EP_KIND_WAIT_BEGIN) {
                ep_waiting_begin(&m.waiting[thread], columns->time_ns[row], word);
            }
        }
        if (call < 0) {
            continue;
        }
        if (calls->open_row[call] == row) {
            waited[call] = -read_meter(&m, thread);
            innermost[thread] = call;
        } else if (calls->close_row[call] == row) {
            innermost[thread] = end_calls(calls, innermost[thread], call, read_meter(&m, thread), waited);
        }
    }
    ep_tenure_clocks_stop(&m.clocks);
    for (size_t thread = 0; thread < threads; thread++) {
        (void)ep_waiting_stop(&m.waiting[thread], calls->input->length_ns);
        end_calls(calls, innermost[thread], -1, read_meter(&m, (int32_t)thread), waited);
    }
    ep_tenure_clocks_clear(&m.clocks);
    free(innermost);
    free(m.waiting);
    return EP_OK;
}
