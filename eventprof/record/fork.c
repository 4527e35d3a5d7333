/* The engine around a fork. The child begins with empty logs: earlier events and the log file belong to the
 * parent. */
#include <errno.h>
#include <string.h>

#include "array.h"
#include "prefault.h"
#include "engine_parts.h"
#include "file.h"
#include "lanes.h"
#include "names.h"
#include "os.h"
#include "packing.h"

/* Its events are not recorded, which the parent's file says. */
static void
count_in_file(const ep_recorder *recorder)
{
    if (recorder->file != NULL) {
        ep_file_count_child_lost(recorder->file, ENOSYS);
    }
}

void
ep_engine_leave_parent(void)
{
    if (ep_engine.is_forking || ep_engine.is_orphan) {
        return;
    }
    ep_engine.is_orphan = true;
    ep_mutex_renew(&ep_engine_mutex);
    ep_file_after_bare_fork();
    ep_shared_kinds_set(&ep_engine.kinds, 0);
    for (ep_recorder *r = ep_engine.recorders; r != NULL; r = r->next) {
        if (r->state == EP_RECORDER_RUNNING) {
            count_in_file(r);
        }
        /* Not released: a chunk would be marked as free, in the parent's file. */
        r->file = NULL;
        r->kept_first = r->kept_end = 0;
        r->file_is_late = false;
    }
    ep_engine.recorders = ep_engine.file_recorder = NULL;
    ep_engine.logs = NULL;
    ep_engine.log_count = 0;
    ep_engine.partial_chunks = NULL;
    memset(ep_engine.free_chunks, 0, sizeof ep_engine.free_chunks);
    memset(ep_engine.free_slots, 0, sizeof ep_engine.free_slots);
}

void
ep_engine_before_fork(void)
{
    ep_engine_lock();
    if (ep_engine.is_orphan) {
        return;    /* our threads, which would be joined, are the parent's */
    }
    ep_engine.is_forking = true;
    ep_prefault_before_fork();
    ep_packing_before_fork();
    ep_names_before_fork();
    ep_file_before_fork();
    ep_columns_before_fork();
    EP_FAULT_POINT(FORK);
}

void
ep_engine_after_fork_in_parent(void)
{
    EP_FAULT_POINT(FORK_PARENT);
    if (ep_engine.is_orphan) {
        ep_engine_unlock();
        return;
    }
    ep_engine.is_forking = false;
    ep_columns_after_fork();
    ep_file_after_fork(false);
    ep_names_after_fork();
    ep_packing_after_fork();
    ep_prefault_after_fork();
    ep_engine_unlock();
}

/* In the child: replaces a slot of the parent's file by private memory with the same records. The pages
 * after the records may have been cut off. False: no memory; the slot is left as it is. */
static EP_ENGINE_LOCKED bool
make_private(ep_chunk *chunk)
{
    if (chunk->file == NULL) {
        return true;
    }
    ep_chunk_header *copy = ep_os_map(chunk->bytes);
    if (copy == NULL) {
        return false;
    }
    ep_cursor cursor = ep_cursor_begin(chunk->header);
    const _Atomic uint64_t *begin = cursor.at;
    ep_record record;
    while (ep_cursor_next(&cursor, &record)) {
    }
    memcpy(copy, chunk->header, sizeof *copy + (size_t)(cursor.at - begin) * 8);
    ep_os_unmap(chunk->header, chunk->bytes);
    if (chunk->rest != NULL) {
        chunk->rest = (_Atomic uint64_t *)((char *)copy + ((char *)chunk->rest - (char *)chunk->header));
    }
    chunk->header = copy;
    ep_file_release(chunk->file);
    chunk->file = NULL;
    ep_engine.chunks_mapped += 1;
    ep_engine.bytes_mapped += chunk->bytes;
    return true;
}

/* In the child. Returns: the running recorder whose file is the parent's, NULL if there is none. */
static EP_ENGINE_LOCKED ep_recorder *
leave_file_to_parent(void)
{
    ep_recorder *file_recorder = ep_engine.file_recorder;
    ep_engine.file_recorder = NULL;
    ep_prefault_use_file(NULL);
    ep_packing_use_file(NULL);
    ep_chunks_unmap_slots();
    if (file_recorder != NULL) {
        ep_file_abandon(file_recorder->file);
    }
    return file_recorder;
}

void
ep_engine_after_fork_in_child(void)
{
    EP_FAULT_POINT(FORK_CHILD);
    if (ep_engine.is_orphan) {
        ep_engine_unlock();
        return;
    }
    (void)!ep_os_note_process();
    ep_engine.is_forking = false;
    ep_columns_after_fork();
    ep_file_after_fork(true);
    ep_names_after_fork();
    ep_packing_after_fork();
    ep_prefault_after_fork();
    ep_recorder *file_recorder = leave_file_to_parent();
    EP_FAULT_POINT(FORK_LEFT);
    ep_recorder *running = NULL;
    while (ep_engine.recorders != NULL) {
        ep_recorder *r = ep_engine.recorders;
        if (r->state == EP_RECORDER_RUNNING) {
            ep_engine.recorders = r->next;
            r->next = running;
            running = r;
        } else {
            ep_recorder_settle(r);
        }
    }
    ep_log *own_log = ep_log_current;
    while (ep_engine.logs != NULL) {
        ep_log *log = ep_engine.logs;
        ep_log_unlink(log);
        ep_lanes_set_exited(log, log != own_log);
        if (log->chunk != NULL && make_private(log->chunk)) {
            /* Only the zero word shows how far the other threads had written. */
            _Atomic uint64_t *words = (_Atomic uint64_t *)(log->chunk->header + 1);
            ep_chunk_seal(log->chunk, words + EP_CHUNK_WORDS_OF(log->chunk->bytes));
        }
        if (log != own_log) {
            ep_log_free(log);
        }
    }
    while (ep_engine.partial_chunks != NULL) {
        ep_chunk *partial = ep_engine.partial_chunks;
        if (make_private(partial)) {
            ep_chunk_seal_partial(partial);
        } else {
            ep_engine.partial_chunks = partial->next;
        }
    }
    for (size_t i = 0; i < ep_engine.thread_count; i++) {
        ep_thread *thread = ep_engine.threads[i];
        if (!thread->attached) {    /* an expected thread, which does not exist in the child */
            atomic_store_explicit(&thread->exited, true, memory_order_relaxed);
        }
    }
    ep_engine.expected_count = 0;
    ep_engine.recorders = running;
    for (ep_recorder *r = running; r != NULL; r = r->next) {
        if (r->file_is_late && !r->file_is_parents) {
            ep_file_abandon(r->file);
            r->file_is_parents = true;
        }
        ep_kept_release(r);
        r->first_sequence = ep_engine.next_sequence;
        r->full_reason = EP_FULL_NOT;
        r->full_ticks = r->full_sequence = UINT64_MAX;
        r->dropped_ticks = 0;
        for (size_t i = 0; i < r->thread_capacity; i++) {
            if (r->threads[i] != NULL) {
                memset(r->threads[i]->lost, 0, sizeof r->threads[i]->lost);
                r->threads[i]->open.depth = 0;
            }
        }
        for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
            r->unlogged[kind] = atomic_load_explicit(&ep_engine.unlogged[kind], memory_order_relaxed);
        }
        r->start_realtime_ns = ep_os_realtime_ns();
        ep_resident held = ep_resident_now();
        r->start_resident_bytes = held.bytes;
        r->start_own_bytes = held.own_bytes;
        r->start = ep_clock_anchor();
    }
    if (own_log != NULL) {
        ep_lanes_set_native_id(own_log, ep_os_thread_id());
        own_log->next_log = NULL;
        ep_engine.logs = own_log;
        ep_engine.log_count = 1;
        own_log->next_bytes = 0;    /* a small chunk, because most children do little */
        uint64_t ticks = ep_clock_ticks();
        ep_log_use_scratch(own_log, ticks);    /* its chunk may be unmapped already */
        ep_chunk *chunk = file_recorder == NULL ? ep_chunk_find(ticks, ep_chunk_first_bytes(), true) : NULL;
        if (chunk != NULL) {
            ep_log_use_chunk(own_log, chunk, ticks);
        } else if (file_recorder != NULL) {
            /* So the first record needs a chunk, and the child's file is made. */
            atomic_store_explicit(&own_log->end, own_log->scratch, memory_order_relaxed);
        }
    }
    ep_engine.file_recorder = file_recorder;
    ep_engine.file_recorder_is_child = file_recorder != NULL;
    ep_engine_unlock();
}
