/* Captures: the events that a recorder kept up to now and the counts of those it lost, for decode.c. */
#include <string.h>

#include "engine_parts.h"
#include "file.h"
#include "invariants.h"
#include "memory.h"
#include "os.h"
#include "packing.h"

ep_status
ep_capture_threads(ep_recorder *recorder, ep_capture *capture)
{
    size_t thread_count = ep_engine.thread_count + 1;
    capture->threads = ep_calloc(thread_count, sizeof *capture->threads);
    if (capture->threads == NULL) {
        return EP_NOMEM;
    }
    capture->thread_count = thread_count;
    for (size_t i = 0; i < thread_count && i < recorder->thread_capacity; i++) {
        const ep_window_thread *from = recorder->threads[i];
        if (from == NULL) {
            continue;
        }
        ep_window_thread *to = &capture->threads[i];
        memcpy(to->lost, from->lost, sizeof to->lost);
        if (ep_open_stack_copy(&from->open, &to->open) != EP_OK) {
            return EP_NOMEM;
        }
    }
    bool running = recorder->state == EP_RECORDER_RUNNING;
    for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
        uint64_t unlogged = recorder->unlogged[kind];
        if (running) {
            unlogged =
                atomic_load_explicit(&ep_engine.unlogged[kind], memory_order_relaxed) - unlogged;
        }
        if (ep_kinds_has(recorder->options.kinds, (unsigned)kind)) {
            capture->threads[0].lost[kind] += unlogged;
        }
    }
    if (!recorder->settled) {
        ep_loss_count_unsealed(recorder, capture);
    }
    return EP_OK;
}

void
ep_capture_free_threads(ep_capture *capture)
{
    for (size_t i = 0; i < capture->thread_count; i++) {
        free(capture->threads[i].open.calls);
    }
    free(capture->threads);
    capture->threads = NULL;
    capture->thread_count = 0;
}

static EP_ENGINE_LOCKED ep_status
capture_locked(ep_recorder *recorder, ep_capture *capture)
{
    size_t chunk_count = recorder->kept_end - recorder->kept_first;
    capture->chunks = ep_calloc(chunk_count, sizeof *capture->chunks);
    if (capture->chunks == NULL || ep_capture_threads(recorder, capture) != EP_OK) {
        return EP_NOMEM;
    }
    ep_status status = ep_resident_copy(capture->start.monotonic_ns, capture->stop.monotonic_ns,
                                        &capture->resident, &capture->resident_count);
    status = status ? status : ep_clock_map_add(&capture->clock, ep_engine.birth);
    status = status ? status : ep_clock_map_add(&capture->clock, capture->start);
    status = status ? status : ep_clock_map_add(&capture->clock, capture->stop);
    for (size_t i = 0; i < chunk_count && status == EP_OK; i++) {
        ep_chunk *chunk = recorder->kept[recorder->kept_first + i];
        if (chunk->file != NULL &&
            chunk->header->magic != (chunk->packed ? EP_FILE_PACKED_MAGIC : EP_CHUNK_MAGIC)) {
            capture->limits |= EP_LIMIT_CUT;    /* another program cut the chunk off with its file */
            continue;
        }
        capture->chunks[capture->chunk_count++] = chunk;
        chunk->refs += 1;
        /* The anchors that a log file has, so that it gives the same times. */
        if (recorder->file == NULL || recorder->file_is_late || chunk->file == recorder->file ||
            chunk->copy != NULL) {
            status = ep_clock_map_add(&capture->clock, chunk->header->opened);
        }
    }
    ep_clock_map_finish(&capture->clock);
    return status;
}

/* Whether all events of a packed chunk are in the window, so that their number is known. */
static bool
is_counted(const ep_capture *capture, const ep_chunk *chunk)
{
    const ep_chunk_header *header = chunk->header;
    return header->opened.ticks >= capture->start.ticks && header->sealed.ticks <= capture->stop.ticks &&
           header->sealed.ticks <= capture->full_ticks;
}

/* Replaces chunks of packed records by copies in memory. `counts`: leaves out those whose events were
 * counted. Without the engine's lock: the program goes on meanwhile. */
static ep_status
unpack_chunks(ep_capture *capture, bool counts)
{
    ep_status status = EP_OK;
    size_t kept = 0;
    for (size_t i = 0; i < capture->chunk_count; i++) {
        ep_chunk *chunk = capture->chunks[i], *copy = NULL;
        if (!chunk->packed || status == EP_NOMEM) {
            capture->chunks[kept++] = chunk;
            continue;
        }
        bool counted = counts && is_counted(capture, chunk);
        ep_status made = counted ? EP_OK : ep_packing_unpack(chunk, &copy);
        ep_engine_lock();
        capture->counted += counted ? chunk->packed_events : 0;
        if (made != EP_NOMEM) {
            ep_chunk_release(chunk);
        }
        if (copy != NULL) {
            ep_engine.chunks_mapped += 1;
            ep_engine.bytes_mapped += copy->bytes;
        }
        ep_engine_unlock();
        if (made == EP_FORMAT) {
            capture->limits |= EP_LIMIT_CUT;    /* another program changed the file */
            continue;
        }
        status = made;
        if (!counted) {
            capture->chunks[kept++] = made == EP_OK ? copy : chunk;
        }
    }
    capture->chunk_count = kept;
    return status;
}

static ep_status
take(ep_recorder *recorder, bool counts, ep_capture *out, ep_error *error)
{
    if (recorder->state == EP_RECORDER_NEW) {
        return ep_fail(error, EP_STATE, "the recorder was not started");
    }
    ep_engine_lock();
    bool running = recorder->state == EP_RECORDER_RUNNING;
    ep_resident held = {0, recorder->stop_resident_bytes, recorder->stop_own_bytes};
    if (running) {
        held = ep_resident_now();
    }
    ep_capture capture = {
        .kinds = recorder->options.kinds,
        .start = recorder->start,
        .start_realtime_ns = recorder->start_realtime_ns,
        .start_resident_bytes = recorder->start_resident_bytes,
        .stop_resident_bytes = held.bytes,
        .start_own_bytes = recorder->start_own_bytes,
        .stop_own_bytes = held.own_bytes,
        .stop = running ? ep_clock_anchor() : recorder->stop,
        .full_ticks = recorder->full_ticks,
        .full_reason = recorder->full_reason,
        .limits = recorder->limits,
        .dropped_ticks = recorder->dropped_ticks,
    };
    EP_CHECK_INVARIANTS(ep_recorder_check(recorder));
    ep_status status = capture_locked(recorder, &capture);
    ep_engine_unlock();
    status = status == EP_OK ? unpack_chunks(&capture, counts) : status;
    if (status != EP_OK) {
        ep_capture_clear(&capture);
        return ep_fail(error, status, "no memory for a trace");
    }
    *out = capture;
    return EP_OK;
}

ep_status
ep_capture_take(ep_recorder *recorder, ep_capture *out, ep_error *error)
{
    return take(recorder, false, out, error);
}

ep_status
ep_capture_take_to_count(ep_recorder *recorder, uint32_t only_thread, ep_capture *out, ep_error *error)
{
    return take(recorder, only_thread == 0, out, error);
}

uint32_t
ep_capture_carrier(const ep_capture *capture, uint64_t thread_id)
{
    const ep_thread *thread = NULL;
    if (thread_id < capture->thread_count) {
        thread = capture->read_threads != NULL ? &capture->read_threads[thread_id]
                                               : ep_engine_thread((uint32_t)thread_id);
    }
    return thread != NULL && thread->carrier_id != 0 ? thread->carrier_id : (uint32_t)thread_id;
}

/* Applies the calls of one chunk that are older than the window to the stacks of open calls. */
static void
fold_before(ep_capture *capture, const ep_chunk *chunk, uint64_t from_ticks)
{
    ep_cursor cursor = ep_cursor_begin(chunk->header);
    ep_record record = {0};
    while (ep_cursor_next(&cursor, &record) && record.ticks < capture->start.ticks) {
        if (record.ticks >= from_ticks && ep_record_is_for(&record, capture->kinds) &&
            cursor.thread_id < capture->thread_count) {
            ep_open_stack_apply(&capture->threads[cursor.thread_id].open, record.kind, record.id);
        }
    }
}

void
ep_capture_keep_last(ep_capture *capture, int64_t last_ns)
{
    ep_anchor before = capture->start;
    int64_t first_ns = capture->stop.monotonic_ns - last_ns;
    uint64_t first = first_ns > before.monotonic_ns ? ep_clock_map_ticks(&capture->clock, first_ns) : 0;
    first = first > capture->dropped_ticks ? first : capture->dropped_ticks + 1;
    if (capture->dropped_ticks == 0 && first <= before.ticks) {
        return;
    }
    first = first < capture->stop.ticks ? first : capture->stop.ticks - 1;
    ep_clock_stretch stretch = ep_clock_map_stretch(&capture->clock, first, 0);
    capture->start = (ep_anchor){.ticks = first, .monotonic_ns = ep_clock_stretch_ns(&stretch, first)};
    capture->start_realtime_ns += capture->start.monotonic_ns - before.monotonic_ns;
    capture->start_resident_bytes = -1;
    for (size_t i = 0; i < capture->chunk_count; i++) {
        fold_before(capture, capture->chunks[i], before.ticks);
    }
    /* Lost events of thread 0 had no log: their times are unknown. */
    for (size_t i = 1; i < capture->thread_count; i++) {
        memset(capture->threads[i].lost, 0, sizeof capture->threads[i].lost);
    }
}

uint64_t
ep_recorder_count_lost(ep_recorder *recorder, uint32_t only_thread)
{
    ep_capture capture = {.stop = recorder->stop};
    uint64_t lost = 0;
    ep_engine_lock();
    if (recorder->state == EP_RECORDER_RUNNING) {
        capture.stop = ep_clock_anchor();
    }
    ep_status status = ep_capture_threads(recorder, &capture);
    ep_engine_unlock();
    for (size_t id = 0; id < capture.thread_count && status == EP_OK; id++) {
        bool wanted = ep_capture_wants(&capture, only_thread, id);
        for (int kind = 0; kind < EP_KIND_COUNT && wanted; kind++) {
            lost += capture.threads[id].lost[kind];
        }
    }
    ep_capture_free_threads(&capture);
    return lost;
}

void
ep_capture_clear(ep_capture *capture)
{
    ep_engine_lock();
    for (size_t i = 0; i < capture->chunk_count; i++) {
        ep_chunk_release(capture->chunks[i]);
    }
    if (ep_engine.running_count == 0) {
        ep_chunks_trim(EP_SPARE_BYTES_WHEN_IDLE);
    }
    ep_engine_unlock();
    ep_capture_free_threads(capture);
    free(capture->chunks);
    free(capture->resident);
    ep_clock_map_free(&capture->clock);
    *capture = (ep_capture){0};
}
