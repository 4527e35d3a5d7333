/* Windows: a recorder starts, stops, and is cleared. */
#include <string.h>

#include "prefault.h"
#include "engine_parts.h"
#include "file.h"
#include "invariants.h"
#include "memory.h"
#include "os.h"
#include "packing.h"

/* While a recorder is started again, so many bytes of its free chunks are kept. */
#define SPARE_BYTES_WHEN_RESTARTED (64 * EP_CHUNK_BYTES)

void
ep_recorder_init(ep_recorder *recorder, const ep_recorder_options *options)
{
    *recorder = (ep_recorder){
        .options = *options, .full_ticks = UINT64_MAX, .full_sequence = UINT64_MAX};
}

void
ep_recorder_set_file(ep_recorder *recorder, ep_file *file)
{
    ep_file_release(recorder->file);
    recorder->file = file;
}

static void
unlink_recorder(ep_recorder *recorder)
{
    for (ep_recorder **at = &ep_engine.recorders; *at != NULL; at = &(*at)->next) {
        if (*at == recorder) {
            *at = recorder->next;
            return;
        }
    }
}

void
ep_recorder_settle(ep_recorder *recorder)
{
    ep_loss_count_unsealed(recorder, NULL);
    recorder->settled = true;
    unlink_recorder(recorder);
}

/* A window must not have ticks of two clocks: each log leaves its chunk, and no later record belongs to a
 * stopped recorder. Only while no recorder runs. */
static EP_ENGINE_LOCKED void
leave_clock(void)
{
    while (ep_engine.recorders != NULL) {
        ep_recorder_settle(ep_engine.recorders);
    }
    ep_chunks_leave();
    for (ep_log *log = ep_engine.logs; log != NULL; log = log->next_log) {
        log->closed = true;
    }
}

static int
by_sequence(const void *a, const void *b)
{
    uint64_t x = (*(ep_chunk *const *)a)->sequence;
    uint64_t y = (*(ep_chunk *const *)b)->sequence;
    return (x > y) - (x < y);
}

/* The resident set is sampled while allocations are recorded, the processor time while waits are. */
static EP_ENGINE_LOCKED void
sample_regularly(void)
{
    ep_kind_set kinds = ep_engine_kinds();
    ep_prefault_sample((kinds & ep_kinds_of_domains(UINT64_MAX)) != 0);
    bool reminds = ep_kinds_has(kinds, EP_KIND_WAIT);
    if (reminds) {
        ep_engine_mark_logs(EP_TODO_PROCESSOR);    /* a first look, with which later ones are compared */
    }
    ep_prefault_remind(reminds);
}

ep_status
ep_recorder_start(ep_recorder *recorder, ep_error *error)
{
    if (recorder->state != EP_RECORDER_NEW) {
        return ep_fail(error, EP_STATE, "the recorder was started before");
    }
    ep_engine_lock();
    if (ep_engine.is_orphan) {
        ep_engine_unlock();
        return ep_fail(error, EP_STATE,
                       "this process was forked by a bare system call, not by fork(): nothing can be "
                       "recorded in it");
    }
    ep_clock_mode mode = recorder->options.clock;
    if (recorder->options.clock_any) {
        mode = ep_engine.running_count > 0 ? ep_clock_current
               : ep_clock_counter_usable() ? EP_CLOCK_COUNTER
                                           : EP_CLOCK_MONOTONIC;
    }
    if (mode != ep_clock_current) {
        if (ep_engine.running_count > 0) {
            ep_engine_unlock();
            return ep_fail(error, EP_STATE,
                           "another recorder runs on another clock; stop it first, or pass clock='auto'");
        }
        leave_clock();
        if (ep_clock_choose(mode) != EP_OK) {
            ep_engine_unlock();
            return ep_fail(error, EP_UNSUPPORTED,
                           "this system has no invariant processor counter; pass clock='monotonic'");
        }
        ep_engine.birth = ep_clock_anchor();
    }
    ep_threads_forget_dead();
    recorder->file_is_late = recorder->file != NULL && ep_engine.file_recorder != NULL;
    bool files = recorder->file != NULL && !recorder->file_is_late;
    if (recorder->file_is_late) {
        ep_file_put_limit(recorder->file, EP_LIMIT_LATE);
    }
    if (files) {
        ep_chunks_leave();
        ep_engine.file_recorder = recorder;
        ep_engine.slot_bytes = 0;
        ep_file_recorder_begin_texts(recorder->file);
        ep_prefault_use_file(recorder->file);
        ep_file_recorder_pack(recorder);
    }
    recorder->first_sequence = ep_engine.next_sequence;
    ep_chunks_leave_large(ep_kept_largest_chunk(recorder));
    bool kept = true;
    for (ep_log *log = ep_engine.logs; log != NULL; log = log->next_log) {
        kept = kept && (log->chunk == NULL || log->closed || ep_kept_add(recorder, log->chunk));
    }
    for (ep_chunk *chunk = ep_engine.partial_chunks; chunk != NULL; chunk = chunk->next) {
        kept = kept && ep_kept_add(recorder, chunk);
    }
    if (!kept) {
        ep_kept_release(recorder);
        if (files) {
            ep_file_end_texts();
            ep_prefault_use_file(NULL);
            ep_packing_use_file(NULL);
            ep_engine.file_recorder = NULL;
        }
        ep_engine_unlock();
        return ep_fail(error, EP_NOMEM, "no memory for a recorder");
    }
    if (recorder->kept_end > 1) {
        qsort(recorder->kept, recorder->kept_end, sizeof *recorder->kept, by_sequence);
    }
    for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
        recorder->unlogged[kind] =
            atomic_load_explicit(&ep_engine.unlogged[kind], memory_order_relaxed);
    }
    recorder->next = ep_engine.recorders;
    ep_engine.recorders = recorder;
    if (ep_engine.running_count == 0) {
        ep_resident_begin();
    }
    ep_engine.running_count += 1;
    recorder->state = EP_RECORDER_RUNNING;
    ep_engine_update_kinds();
    recorder->start_realtime_ns = ep_os_realtime_ns();
    ep_resident held = ep_resident_now();
    recorder->start_resident_bytes = held.bytes;
    recorder->start_own_bytes = held.own_bytes;
    recorder->start = ep_clock_anchor();
    if (files) {
        EP_FAULT_POINT(START);
        ep_file_recorder_begin(recorder);
        EP_FAULT_POINT(STARTED);
    }
    sample_regularly();
    EP_CHECK_INVARIANTS(ep_names_check());
    ep_engine_unlock();
    return EP_OK;
}

static EP_ENGINE_LOCKED void
stop_locked(ep_recorder *recorder)
{
    recorder->stop = ep_clock_anchor();
    ep_resident held = ep_resident_now();
    recorder->stop_resident_bytes = held.bytes;
    recorder->stop_own_bytes = held.own_bytes;
    recorder->state = EP_RECORDER_STOPPED;
    ep_engine.running_count -= 1;
    ep_engine_update_kinds();
    for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
        recorder->unlogged[kind] =
            atomic_load_explicit(&ep_engine.unlogged[kind], memory_order_relaxed) -
            recorder->unlogged[kind];
    }
    if (recorder == ep_engine.file_recorder) {
        EP_FAULT_POINT(STOP);
        if (ep_engine.file_recorder_is_child) {
            ep_file_recorder_make_child_file();    /* it had no event; then an empty file says so */
        }
        if (recorder == ep_engine.file_recorder && ep_file_is_cut(recorder->file)) {
            ep_file_recorder_leave_cut();
        }
        if (recorder == ep_engine.file_recorder) {
            ep_file_recorder_end(recorder);
        }
    }
    if (recorder->file != NULL && (recorder->limits & EP_LIMIT_CUT)) {
        ep_file_recorder_end_cut(recorder);
    } else if (recorder->file_is_late) {
        ep_file_recorder_write_late(recorder);
    }
    sample_regularly();
    if (ep_engine.running_count == 0) {
        ep_prefault_stop();
        ep_chunks_trim(EP_SPARE_BYTES_WHEN_IDLE);
    }
}

ep_status
ep_recorder_stop(ep_recorder *recorder, ep_error *error)
{
    ep_engine_lock();
    bool running = recorder->state == EP_RECORDER_RUNNING;
    if (running && ep_engine.is_orphan) {
        recorder->stop = recorder->start;    /* what was recorded is the parent's */
        recorder->state = EP_RECORDER_STOPPED;
    } else if (running) {
        stop_locked(recorder);
        EP_CHECK_INVARIANTS(ep_recorder_check(recorder));
        EP_CHECK_INVARIANTS(ep_names_check());
    }
    ep_engine_unlock();
    return running ? EP_OK : ep_fail(error, EP_STATE, "the recorder is not running");
}

ep_status
ep_recorder_set_open_locked(ep_recorder *recorder, uint32_t thread_id, const ep_open_call *calls,
                            size_t depth)
{
    ep_status status = EP_NOMEM;
    ep_window_thread *thread = ep_recorder_thread(recorder, thread_id);
    if (thread != NULL &&
        ep_grow((void **)&thread->open.calls, &thread->open.capacity, depth, sizeof *calls)) {
        if (depth > 0) {
            memcpy(thread->open.calls, calls, depth * sizeof *calls);
        }
        for (size_t i = 0; i < depth; i++) {
            thread->open.calls[i].before = true;
        }
        thread->open.depth = depth;
        EP_CHECK_INVARIANTS(ep_open_stack_check(&thread->open));
        status = EP_OK;
        if (recorder == ep_engine.file_recorder) {
            ep_file_recorder_put_state(recorder, UINT64_MAX);
        }
    }
    return status;
}

ep_status
ep_recorder_set_open(ep_recorder *recorder, uint32_t thread_id, const ep_open_call *calls,
                     size_t depth)
{
    ep_engine_lock();
    ep_status status = ep_recorder_set_open_locked(recorder, thread_id, calls, depth);
    ep_engine_unlock();
    return status;
}

ep_status
ep_recorder_get_open(const ep_recorder *recorder, uint32_t thread_id, ep_open_stack *out)
{
    ep_status status = EP_OK;
    ep_open_stack open = {0};
    ep_engine_lock();
    const ep_window_thread *thread =
        thread_id < recorder->thread_capacity ? recorder->threads[thread_id] : NULL;
    if (thread != NULL) {
        status = ep_open_stack_copy(&thread->open, &open);
    }
    ep_engine_unlock();
    if (status == EP_OK) {
        *out = open;
    }
    return status;
}

static void
clear_recorder(ep_recorder *recorder, size_t spare_bytes)
{
    ep_engine_lock();
    if (recorder->state == EP_RECORDER_RUNNING) {
        stop_locked(recorder);
    }
    unlink_recorder(recorder);
    ep_kept_release(recorder);
    if (ep_engine.running_count == 0) {
        ep_chunks_trim(spare_bytes);
    }
    ep_engine_unlock();
    free(recorder->kept);
    for (size_t i = 0; i < recorder->thread_capacity; i++) {
        if (recorder->threads[i] != NULL) {
            free(recorder->threads[i]->open.calls);
            free(recorder->threads[i]);
        }
    }
    free(recorder->threads);
    ep_file_release(recorder->file);
    ep_recorder_options options = recorder->options;
    ep_recorder_init(recorder, &options);
    recorder->state = EP_RECORDER_STOPPED;
    recorder->settled = true;
}

void
ep_recorder_clear(ep_recorder *recorder)
{
    clear_recorder(recorder, EP_SPARE_BYTES_WHEN_IDLE);
}

void
ep_recorder_clear_to_start(ep_recorder *recorder)
{
    clear_recorder(recorder, SPARE_BYTES_WHEN_RESTARTED);
}

ep_recorder_stats
ep_recorder_get_stats(const ep_recorder *recorder)
{
    ep_engine_lock();
    ep_recorder_stats stats = {
        .chunks = recorder->kept_end - recorder->kept_first,
        .list_bytes = recorder->kept_capacity * sizeof *recorder->kept +
                      recorder->thread_capacity * sizeof *recorder->threads,
    };
    for (size_t i = recorder->kept_first; i < recorder->kept_end; i++) {
        stats.chunk_bytes += recorder->kept[i]->bytes;
        stats.file_bytes += recorder->kept[i]->file != NULL ? recorder->kept[i]->bytes : 0;
    }
    for (size_t i = 0; i < recorder->thread_capacity; i++) {
        const ep_window_thread *thread = recorder->threads[i];
        if (thread != NULL) {
            stats.list_bytes += sizeof *thread + thread->open.capacity * sizeof *thread->open.calls;
        }
    }
    ep_engine_unlock();
    return stats;
}
