#include "trace.h"

#include <stdlib.h>

#include "array.h"
#include "invariants.h"
#include "memory.h"
#include "os.h"
#include "waited.h"

void
ep_trace_of_capture(ep_capture *capture, uint32_t only_thread, ep_trace *out)
{
    *out = (ep_trace){
        .capture = *capture,
        .only_thread = only_thread,
        .recording = {
            .kinds = capture->kinds,
            .start = capture->start,
            .start_realtime_ns = capture->start_realtime_ns,
            /* Right if the system has not slept since then. */
            .start_boottime_ns =
                capture->start.monotonic_ns + ep_os_boottime_ns() - ep_os_monotonic_ns(),
            .frequency_hz = ep_clock_map_frequency_hz(&capture->clock),
            .step_ticks = ep_clock_step_ticks(),
            .process_id = ep_os_process_id(),
            .full_reason = capture->full_reason,
            .limits = capture->limits,
        },
    };
}

/* ---- What was made of rows ------------------------------------------------------------------- */

static void
drop_input(ep_trace *trace)
{
    free(trace->open);
    free(trace->open_from_ns);
    free(trace->open_until_ns);
    free(trace->thread_process);
    free(trace->thread_carrier);
    trace->open = NULL;
    trace->open_from_ns = trace->open_until_ns = NULL;
    trace->thread_process = trace->thread_carrier = NULL;
    trace->has_input = false;
}

void
ep_trace_rows_changed(ep_trace *trace)
{
    ep_functions_clear(&trace->functions);
    trace->has_functions = false;
    drop_input(trace);
}

void
ep_trace_clear(ep_trace *trace)
{
    for (int below = 0; below < 2; below++) {
        ep_call_memory_clear(&trace->memory[below]);
    }
    ep_curve_clear(&trace->curve);
    ep_lines_clear(&trace->lines);
    ep_column_free(trace->waited);
    ep_stacks_clear(&trace->stacks);
    ep_summary_clear(&trace->summary);
    ep_blocks_clear(&trace->blocks);
    ep_calls_clear(&trace->calls);
    ep_functions_clear(&trace->functions);
    ep_decoded_clear(&trace->decoded);
    ep_capture_clear(&trace->capture);
    if (trace->origin != NULL) {
        trace->origin->close(trace->origin);
    }
    ep_recording_clear(&trace->recording);
    ep_filter_clear(&trace->filter);
    drop_input(trace);
    *trace = (ep_trace){0};
}

/* ---- Events ---------------------------------------------------------------------------------- */

static ep_status
decode_capture(ep_trace *trace)
{
    ep_status status = ep_decode(&trace->capture, trace->only_thread, &trace->decoded);
    if (status == EP_OK && trace->check_records && !trace->record_check.done) {
        status = ep_check_records(&trace->capture, trace->only_thread, &trace->decoded,
                                  &trace->record_check);
    }
    return status;
}

static ep_status
reach_decoded(ep_trace *trace, ep_error *error)
{
    if (trace->has_decoded) {
        return EP_OK;
    }
    ep_status status = trace->origin != NULL ? trace->origin->load(trace->origin, trace, error)
                                             : decode_capture(trace);
    if (status != EP_OK) {
        return status;
    }
    ep_filtered dropped = {0};
    if (!ep_filter_is_empty(&trace->filter)) {
        status = ep_filter_apply(&trace->filter, &trace->decoded, &dropped);
    }
    if (status != EP_OK) {
        ep_decoded_clear(&trace->decoded);
        return status;
    }
    EP_CHECK_INVARIANTS(ep_columns_check(&trace->decoded.columns, trace->decoded.thread_count));
    trace->recording.filtered += dropped.rows;
    trace->recording.deep_calls += dropped.deep_calls;
    trace->recording.short_calls += dropped.short_calls;
    ep_capture_clear(&trace->capture);
    trace->has_decoded = true;
    return EP_OK;
}

/* ---- Pairs ----------------------------------------------------------------------------------- */

static ep_status
reach_input(ep_trace *trace)
{
    const ep_decoded *decoded = &trace->decoded;
    if (trace->has_input) {
        return EP_OK;
    }
    trace->open = ep_calloc(decoded->thread_count, sizeof *trace->open);
    trace->open_from_ns = ep_calloc(decoded->thread_count, sizeof *trace->open_from_ns);
    trace->open_until_ns = ep_calloc(decoded->thread_count, sizeof *trace->open_until_ns);
    ep_status status =
        ep_thread_processes(decoded->threads, decoded->thread_count, &trace->thread_process);
    if (status == EP_OK) {
        status = ep_thread_carriers(decoded->threads, decoded->thread_count, &trace->thread_carrier);
    }
    if (status != EP_OK || trace->open == NULL || trace->open_from_ns == NULL ||
        trace->open_until_ns == NULL) {
        drop_input(trace);
        return EP_NOMEM;
    }
    bool lost = false;
    for (size_t i = 0; i < decoded->thread_count; i++) {
        const ep_trace_thread *thread = &decoded->threads[i];
        lost = lost || ep_any_counted(thread->lost);
        trace->open[i] = thread->open;
        trace->open_from_ns[i] = ep_open_from_ns(thread, trace->recording.full_reason);
        trace->open_until_ns[i] = ep_open_until_ns(thread, decoded->duration_ns);
    }
    /* Full: the head is whole, the tail is missing. Otherwise a ring lost its head. */
    bool tail = trace->recording.full_reason != EP_FULL_NOT;
    trace->input = (ep_pair_input){
        .columns = &trace->decoded.columns,
        .map = &trace->functions.map,
        .thread_count = decoded->thread_count,
        .open_at_start = trace->open,
        .open_from_ns = trace->open_from_ns,
        .open_until_ns = trace->open_until_ns,
        .thread_process = trace->thread_process,
        .thread_carrier = trace->thread_carrier,
        .length_ns = decoded->duration_ns,
        .lost_from_ns = !lost || tail ? EP_NOTHING_LOST : 0,
    };
    trace->has_input = true;
    return EP_OK;
}

static ep_status
reach_functions(ep_trace *trace)
{
    ep_status status = EP_OK;
    if (!trace->has_functions) {
        status = ep_functions_build(&trace->decoded, &trace->functions);
        trace->has_functions = status == EP_OK;
    }
    return status;
}

static ep_status
reach_calls(ep_trace *trace)
{
    ep_status status = reach_functions(trace);
    if (status == EP_OK && !trace->has_calls) {
        ep_work work;
        ep_work_begin(&work, trace->watcher, "pairing calls");
        status = ep_pair_calls(&trace->input, &work.progress, &trace->calls);
        ep_work_end(&work);
        trace->has_calls = status == EP_OK;
        if (trace->has_calls) {
            EP_CHECK_INVARIANTS(ep_calls_check(&trace->calls));
        }
    }
    return status;
}

static ep_status
reach_blocks_alone(ep_trace *trace)
{
    ep_status status = EP_OK;
    if (!trace->has_blocks) {
        ep_work work;
        ep_work_begin(&work, trace->watcher, "pairing blocks");
        status = ep_pair_blocks(&trace->input, &work.progress, &trace->blocks);
        ep_work_end(&work);
        trace->has_blocks = status == EP_OK;
    }
    return status;
}

/* Pairs calls and blocks at the same time if that is faster, else one after the other. */
static ep_status
reach_blocks(ep_trace *trace)
{
    ep_work work;
    ep_work_begin(&work, trace->watcher, "pairing blocks");
    ep_blocks_worker *worker = NULL;
    if (!trace->has_calls && !trace->has_blocks) {
        worker = ep_pair_blocks_begin(&trace->input, &work.progress);
    }
    ep_status status = reach_calls(trace);
    if (worker != NULL) {
        ep_status of_blocks = ep_pair_blocks_join(worker, status == EP_OK, &trace->blocks);
        trace->has_blocks = of_blocks == EP_OK;
        status = status != EP_OK ? status : of_blocks;
    }
    ep_work_end(&work);
    return status == EP_OK ? reach_blocks_alone(trace) : status;
}

/* ---- Sums ------------------------------------------------------------------------------------ */

static ep_status
reach_stacks(ep_trace *trace)
{
    ep_status status = reach_calls(trace);
    if (status == EP_OK && !trace->has_stacks) {
        status = ep_summary_stacks(&trace->calls, &trace->stacks);
        trace->has_stacks = status == EP_OK;
    }
    return status;
}

static ep_status
reach_waited(ep_trace *trace)
{
    ep_status status = reach_calls(trace);
    if (status == EP_OK && !trace->has_waited) {
        int64_t *waited = ep_column_new_zeroed(trace->calls.count, sizeof *waited);
        status = waited == NULL ? EP_NOMEM : EP_OK;
        bool by_waits = ep_kinds_has(trace->recording.kinds, EP_KIND_WAIT);
        if (status == EP_OK && (by_waits || !trace->no_lock)) {
            status = ep_calls_waited(&trace->calls, by_waits, waited);
        }
        if (status != EP_OK) {
            ep_column_free(waited);
            return status;
        }
        trace->waited = waited;
        trace->has_waited = true;
    }
    return status;
}

static ep_status
reach_lines(ep_trace *trace)
{
    ep_status status = reach_blocks(trace);
    if (status == EP_OK && !trace->has_lines) {
        ep_work work;
        ep_work_begin(&work, trace->watcher, "timing lines");
        status = ep_lines_build(&trace->input, &trace->calls, &trace->blocks, &work.progress,
                                &trace->lines);
        ep_work_end(&work);
        trace->has_lines = status == EP_OK;
    }
    return status;
}

static ep_status
reach_curve(ep_trace *trace)
{
    ep_status status = reach_blocks_alone(trace);
    if (status == EP_OK && !trace->has_curve) {
        status = ep_summary_curve(&trace->blocks, EP_DOMAINS_ALL, &trace->curve);
        trace->has_curve = status == EP_OK;
    }
    return status;
}

static ep_status
reach_call_memory(ep_trace *trace, bool below)
{
    ep_status status = reach_blocks(trace);
    if (status == EP_OK && !trace->has_memory[below]) {
        status = ep_summary_call_memory(&trace->calls, &trace->blocks, below, &trace->memory[below]);
        trace->has_memory[below] = status == EP_OK;
    }
    return status;
}

ep_status
ep_trace_reach(ep_trace *trace, ep_step step, ep_error *error)
{
    ep_error unused;
    bool needs_head = step == EP_STEP_HEAD || (step == EP_STEP_NAMES && trace->has_functions);
    if (needs_head && trace->head != NULL) {
        return EP_OK;
    }
    ep_status status = reach_decoded(trace, error != NULL ? error : &unused);
    if (status == EP_OK && step != EP_STEP_HEAD && step != EP_STEP_DECODED) {
        status = reach_input(trace);
    }
    if (status != EP_OK) {
        return status;
    }
    switch (step) {
        case EP_STEP_HEAD:
        case EP_STEP_DECODED:
            break;
        case EP_STEP_NAMES:
        case EP_STEP_FUNCTIONS:
        case EP_STEP_SUMMARY:
        case EP_STEP_LENGTHS:
            return reach_functions(trace);
        case EP_STEP_CALLS:
            return reach_calls(trace);
        case EP_STEP_BLOCKS:
            return reach_blocks(trace);
        case EP_STEP_BLOCKS_ALONE:
            return reach_blocks_alone(trace);
        case EP_STEP_STACKS:
            return reach_stacks(trace);
        case EP_STEP_WAITED:
            return reach_waited(trace);
        case EP_STEP_LINES:
            return reach_lines(trace);
        case EP_STEP_CURVE:
            return reach_curve(trace);
        case EP_STEP_CALL_MEMORY:
            return reach_call_memory(trace, false);
        case EP_STEP_CALL_MEMORY_BELOW:
            return reach_call_memory(trace, true);
    }
    return EP_OK;
}

/* ---- Functions on the whole trace ------------------------------------------------------------ */

const char *
ep_trace_thread_name(const ep_trace_thread *thread)
{
    /* Acquire: pairs with ep_thread_set_name(). */
    bool named = thread->thread != NULL &&
                 atomic_load_explicit(&thread->thread->named, memory_order_acquire);
    return named ? thread->thread->name : NULL;
}

uint64_t
ep_trace_lost(const ep_trace *trace)
{
    uint64_t lost = 0;
    const ep_decoded *head = ep_trace_head(trace);
    bool is_read = trace->has_decoded || trace->head != NULL;
    size_t count = is_read ? head->thread_count : trace->capture.thread_count;
    for (size_t i = 0; i < count; i++) {
        const uint64_t *lost_by_kind = is_read ? head->threads[i].lost : trace->capture.threads[i].lost;
        for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
            lost += lost_by_kind[kind];
        }
    }
    return lost;
}
