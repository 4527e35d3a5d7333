/* Counts calls that lie in a call which did not make them; the contract is in trace.h. */
#include "array.h"
#include "trace.h"

static bool
has_every_call(const ep_trace *trace)
{
    const ep_recording *r = &trace->recording;
    return (r->kinds & ep_kinds_python) == ep_kinds_python && r->filtered == 0 && r->deep_calls == 0 &&
           r->short_calls == 0 && r->functions_off == 0 && trace->input.lost_from_ns == EP_NOTHING_LOST;
}

/* Whether a call of `function` is around `call`. */
static bool
is_inside(const ep_calls *calls, int32_t call, int32_t function)
{
    for (int32_t around = calls->parent[call]; around >= 0; around = calls->parent[around]) {
        if (ep_call_function(calls, (size_t)around) == function) {
            return true;
        }
    }
    return false;
}

/* Throws into a generator are not counted: the caller of a throw is the generator that delegates to it,
 * which need not run.
 *
 * Calls at the entry of a function, before the interpreter reports that function, are not counted either:
 * calls of signal handlers, and of finalizers that a collection runs. That function begins next, or never
 * (if an exception interrupted it). The function that a greenlet continues has begun before: it is open, or
 * it ended in the wrong place. */
ep_status
ep_trace_count_misplaced(const ep_trace *trace, size_t *out)
{
    const ep_calls *calls = &trace->calls;
    const int32_t *callers = trace->functions.map.site_caller;
    *out = 0;
    if (!has_every_call(trace)) {
        return EP_OK;
    }
    int32_t *around = ep_column_new(calls->count, sizeof *around);    /* nearest Python call */
    int32_t *next = ep_column_new(calls->count, sizeof *next);    /* function of its next call */
    if (around == NULL || next == NULL) {
        ep_column_free(around);
        ep_column_free(next);
        return EP_NOMEM;
    }
    for (size_t call = 0; call < calls->count; call++) {
        ep_column_row(call);
        int32_t parent = calls->parent[call];
        uint8_t of_parent = parent >= 0 ? ep_call_kind(calls, (size_t)parent) : EP_KIND_CALL;
        bool in_python = ep_kinds[of_parent].group == EP_GROUP_PYTHON;
        around[call] = in_python ? parent : around[parent];
        next[call] = -1;
    }
    for (size_t call = calls->count; call-- > 0;) {
        ep_column_row(call);
        uint8_t kind = ep_call_kind(calls, call);
        int32_t caller = callers[ep_call_site(calls, call)], parent = around[call];
        if ((kind != EP_KIND_CALL && kind != EP_KIND_RESUME) || caller < 0 || parent < 0) {
            continue;
        }
        if (ep_call_function(calls, (size_t)parent) != caller) {
            bool had_begun = next[parent] != caller &&
                             (calls->end_unseen_count != 0 || is_inside(calls, parent, caller));
            if (!had_begun) {
                continue;
            }
            *out += 1;
        }
        next[parent] = ep_call_function(calls, call);
    }
    ep_column_free(around);
    ep_column_free(next);
    return EP_OK;
}
