/* The file recorder is the running recorder whose log file takes the chunks. This file writes its log
 * file, and the log files of the recorders that run beside it. store/format.h has the bytes. */
#include <stdlib.h>
#include <string.h>

#include "prefault.h"
#include "engine_parts.h"
#include "file.h"
#include "memory.h"
#include "os.h"
#include "packing.h"

void
ep_file_recorder_put_state(ep_recorder *recorder, uint64_t dropped_sequence)
{
    if (!ep_engine.file_recorder_is_child) {
        ep_file_put_state(recorder->file, dropped_sequence, recorder->threads,
                          recorder->thread_capacity);
    }
}

/* ---- Copies of chunks that are not slots of the file ----------------------------------------- */

/* The number of words of a chunk, up to now if it is not sealed; 0: none is of the recorder's window. */
static size_t
words_of_window(const ep_recorder *recorder, const ep_chunk *chunk)
{
    ep_cursor cursor = ep_cursor_begin(chunk->header);
    const _Atomic uint64_t *begin = cursor.at;
    ep_record record = {0};
    bool found = false;
    while (ep_cursor_next(&cursor, &record)) {
        found = found || record.ticks >= recorder->start.ticks;
    }
    return found ? (size_t)(cursor.at - begin) : 0;
}

static size_t
chunk_bytes_for(size_t needed)
{
    size_t bytes = ep_os_page_bytes();
    while (bytes < needed && bytes < EP_CHUNK_BYTES) {
        bytes *= 2;
    }
    return bytes;
}

/* Returns: a mapped slot of the recorder's file with these words, sealed; NULL: no room. */
static ep_chunk_header *
write_copy(ep_recorder *recorder, const ep_chunk *chunk, size_t words)
{
    size_t bytes = chunk_bytes_for(sizeof(ep_chunk_header) + (words + 1) * 8);
    ep_chunk_header *copy = ep_file_take_slot(recorder->file, bytes);
    if (copy == NULL) {
        return NULL;
    }
    atomic_store_explicit(&copy->wanted, 0, memory_order_relaxed);
    copy->sequence = chunk->sequence;
    copy->thread_id = chunk->header->thread_id;
    copy->opened = chunk->header->opened;
    copy->sealed = chunk->header->sealed;
    copy->shared = chunk->header->shared;
    copy->resident_bytes = chunk->header->resident_bytes;
    copy->own_bytes = chunk->header->own_bytes;
    memcpy(copy + 1, chunk->header + 1, words * 8);
    copy->used_words = words;
    copy->sum = ep_sum64(copy + 1, words * 8);
    atomic_store_explicit(&copy->state, EP_CHUNK_SEALED, memory_order_relaxed);
    /* Release, and stored last: from here on a reader reads the chunk. */
    atomic_store_explicit(&copy->wanted, 1, memory_order_release);
    return copy;
}

void
ep_file_recorder_copy(ep_recorder *recorder, ep_chunk *chunk)
{
    size_t words = words_of_window(recorder, chunk);
    if (words == 0 || chunk->copy_file == recorder->file) {
        return;
    }
    ep_file_recorder_forget_copy(chunk);    /* the copy is in an earlier file */
    ep_chunk_header *copy = write_copy(recorder, chunk, words);
    if (copy == NULL) {
        return;
    }
    chunk->copy = copy;
    chunk->copy_file = ep_file_hold(recorder->file);
}

void
ep_file_recorder_forget_copy(ep_chunk *chunk)
{
    if (chunk->copy != NULL) {
        ep_os_unmap(chunk->copy, chunk->copy->bytes);
        ep_file_release(chunk->copy_file);
        chunk->copy = NULL;
        chunk->copy_file = NULL;
    }
}

void
ep_file_recorder_drop(ep_recorder *recorder, ep_chunk *chunk)
{
    ep_chunk_header *header = chunk->file == recorder->file        ? chunk->header
                              : chunk->copy_file == recorder->file ? chunk->copy
                                                                   : NULL;
    /* The state, which names the chunk, is written first: after a kill in between the chunk is not counted
     * twice. */
    EP_FAULT_POINT(DROP);
    ep_file_recorder_put_state(recorder, chunk->sequence);
    EP_FAULT_POINT(DROPPED);
    if (header != NULL) {
        atomic_store_explicit(&header->wanted, 0, memory_order_release);
    }
    EP_FAULT_POINT(UNWANTED);
}

/* ---- Begin and end --------------------------------------------------------------------------- */

void
ep_file_recorder_begin(ep_recorder *recorder)
{
    ep_file_start start = {
        .kinds = recorder->options.kinds,
        .clock_mode = ep_clock_current,
        .only_thread = recorder->file_thread,
        .birth = ep_engine.birth,
        .start = recorder->start,
        .start_realtime_ns = recorder->start_realtime_ns,
        .start_resident_bytes = recorder->start_resident_bytes,
        .start_own_bytes = recorder->start_own_bytes,
    };
    ep_file_put_start(recorder->file, &start);
}

void
ep_file_recorder_pack(ep_recorder *recorder)
{
    /* A ring drops its oldest chunks, and reads them for that: they are packed at the end. */
    bool now = ep_file_packs(recorder->file) && recorder->options.on_full != EP_ON_FULL_OVERWRITE;
    ep_packing_use_file(now ? recorder->file : NULL);
    ep_packing_count(recorder->options.kinds);
}

static EP_ENGINE_LOCKED void
put_all_threads(void)
{
    const ep_thread *thread;
    for (uint32_t id = 1; (thread = ep_engine_thread_locked(id)) != NULL; id++) {
        ep_file_put_thread(thread);
    }
}

void
ep_file_recorder_begin_texts(ep_file *file)
{
    ep_file_begin_texts(file);
    put_all_threads();
}

void
ep_file_recorder_make_child_file(void)
{
    ep_recorder *recorder = ep_engine.file_recorder;
    ep_file *file = ep_file_create_for_child(recorder->file);
    ep_file_release(recorder->file);
    recorder->file = file;
    recorder->limits = 0;
    ep_engine.file_recorder_is_child = false;
    if (file == NULL) {
        ep_engine.file_recorder = NULL;    /* record into memory, as if there was no file */
        return;
    }
    EP_FAULT_POINT(FORK_FILE);
    ep_file_recorder_begin_texts(file);
    ep_prefault_use_file(file);
    ep_file_recorder_pack(recorder);
    ep_file_recorder_begin(recorder);
    ep_file_recorder_put_state(recorder, UINT64_MAX);
}

/* Writes the last state. It also counts lost events of chunks that are not sealed yet, and events of chunks
 * that found no room on the disk: `unwritten` says which, by their index in `kept`; NULL: none. */
static EP_ENGINE_LOCKED void
put_final_state(ep_recorder *recorder, const bool *unwritten)
{
    ep_capture capture = {.stop = recorder->stop};
    if (ep_capture_threads(recorder, &capture) == EP_OK) {
        for (size_t i = recorder->kept_first; unwritten != NULL && i < recorder->kept_end; i++) {
            if (unwritten[i - recorder->kept_first]) {
                ep_loss_count(recorder, ep_cursor_begin(recorder->kept[i]->header), false, &capture);
            }
        }
        ep_window_thread **threads = ep_calloc(capture.thread_count, sizeof *threads);
        for (size_t i = 0; threads != NULL && i < capture.thread_count; i++) {
            threads[i] = &capture.threads[i];
        }
        if (threads != NULL) {
            ep_file_put_state(recorder->file, UINT64_MAX, threads, capture.thread_count);
        }
        free(threads);
    }
    ep_capture_free_threads(&capture);
}

void
ep_file_recorder_end(ep_recorder *recorder)
{
    ep_chunks_leave();
    for (size_t i = recorder->kept_first; i < recorder->kept_end; i++) {
        if (recorder->kept[i]->file != recorder->file) {
            ep_file_recorder_copy(recorder, recorder->kept[i]);
        }
    }
    ep_packing_finish(recorder);
    EP_FAULT_POINT(STOP_STATE);
    put_final_state(recorder, NULL);
    EP_FAULT_POINT(STOP_STATED);
    ep_file_put_stop(recorder->file, recorder->stop, recorder->stop_resident_bytes,
                     recorder->stop_own_bytes);
    ep_file_end_texts();
    ep_prefault_use_file(NULL);
    ep_file_finish(recorder->file);
    ep_engine.file_recorder = NULL;
    ep_chunks_unmap_slots();
}

/* Writes the samples of the resident set that were taken while another file received them. */
static void
put_resident(const ep_recorder *recorder)
{
    ep_resident *samples;
    size_t count;
    if (ep_resident_copy(recorder->start.monotonic_ns, recorder->stop.monotonic_ns, &samples, &count) !=
        EP_OK) {
        return;    /* no memory: the chunks have some */
    }
    for (size_t i = 0; i < count; i++) {
        ep_file_put_resident(samples[i].monotonic_ns, samples[i].bytes, samples[i].own_bytes);
    }
    free(samples);
}

void
ep_file_recorder_write_late(ep_recorder *recorder)
{
    if (recorder->file_is_parents) {
        ep_file *file = ep_file_create_for_child(recorder->file);
        ep_file_release(recorder->file);
        recorder->file = file;
        if (file == NULL) {
            return;
        }
    }
    size_t count = recorder->kept_end - recorder->kept_first;
    bool *unwritten = ep_calloc(count, sizeof *unwritten);
    ep_file_recorder_begin(recorder);
    ep_file_begin_other_texts(recorder->file);
    put_all_threads();
    put_resident(recorder);
    ep_file_end_other_texts();
    bool whole = true;
    for (size_t i = 0; i < count; i++) {
        const ep_chunk *chunk = recorder->kept[recorder->kept_first + i];
        size_t words = words_of_window(recorder, chunk);
        ep_chunk_header *copy = words > 0 ? write_copy(recorder, chunk, words) : NULL;
        if (copy != NULL) {
            ep_os_unmap(copy, copy->bytes);
        } else if (words > 0) {
            whole = false;
            if (unwritten != NULL) {
                unwritten[i] = true;
            }
        }
    }
    put_final_state(recorder, unwritten);
    free(unwritten);
    ep_file_put_stop(recorder->file, recorder->stop, recorder->stop_resident_bytes,
                     recorder->stop_own_bytes);
    ep_full_reason reason = whole ? recorder->full_reason : EP_FULL_DISK;
    ep_file_put_full(recorder->file, recorder->full_ticks, reason);
    recorder->limits |= ep_file_is_cut(recorder->file) ? EP_LIMIT_CUT : 0;
    ep_file_finish(recorder->file);
}

/* ---- Files that other programs cut off ------------------------------------------------------- */

/* Restores the header of a chunk of a file that was cut off: zeroed memory replaced it, and its records are
 * gone. */
static EP_ENGINE_LOCKED void
mend_header(ep_chunk *chunk)
{
    ep_chunk_header *header = chunk->header;
    if (header->magic == EP_CHUNK_MAGIC || chunk->packed) {
        return;
    }
    const ep_log *writer = ep_engine.logs;
    while (writer != NULL && writer->chunk != chunk) {
        writer = writer->next_log;
    }
    bool open = writer != NULL || chunk->rest != NULL;
    *header = (ep_chunk_header){.magic = EP_CHUNK_MAGIC,
                                .state = open ? EP_CHUNK_OPEN : EP_CHUNK_SEALED,
                                .sequence = chunk->sequence,
                                .thread_id = writer != NULL ? writer->thread->id : 0,
                                .opened = ep_clock_anchor(),
                                .sealed = ep_clock_anchor(),
                                .bytes = chunk->bytes,
                                .resident_bytes = -1};
}

void
ep_file_recorder_leave_cut(void)
{
    ep_recorder *recorder = ep_engine.file_recorder;
    recorder->limits |= EP_LIMIT_CUT;
    ep_file_end_texts();
    ep_prefault_use_file(NULL);
    ep_packing_use_file(NULL);
    for (size_t i = recorder->kept_first; i < recorder->kept_end; i++) {
        if (recorder->kept[i]->file == recorder->file) {
            mend_header(recorder->kept[i]);
        }
    }
    for (ep_log *log = ep_engine.logs; log != NULL; log = log->next_log) {
        if (log->chunk != NULL && log->chunk->file == recorder->file) {
            mend_header(log->chunk);
        }
    }
    ep_chunks_leave();
    ep_engine.file_recorder = NULL;
    ep_chunks_unmap_slots();
}

void
ep_file_recorder_end_cut(ep_recorder *recorder)
{
    size_t count = recorder->kept_end - recorder->kept_first;
    bool *unwritten = ep_calloc(count, sizeof *unwritten);
    for (size_t i = 0; unwritten != NULL && i < count; i++) {
        unwritten[i] = recorder->kept[recorder->kept_first + i]->file != recorder->file;
    }
    put_final_state(recorder, unwritten);
    free(unwritten);
    ep_file_put_stop(recorder->file, recorder->stop, recorder->stop_resident_bytes,
                     recorder->stop_own_bytes);
    ep_file_finish(recorder->file);
}
