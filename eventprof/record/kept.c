/* The chunks that a recorder keeps; its limit and its policy decide how many. */
#include <string.h>

#include "prefault.h"
#include "engine_parts.h"
#include "file.h"
#include "memory.h"
#include "os.h"
#include "packing.h"

/* A thread's share of the limit holds at least so many chunks, because a ring drops a whole chunk at
 * once. */
#define LIMIT_PARTS 4

/* The chunk to drop is chosen among so many of the oldest. */
#define COMPARED 32

bool
ep_kept_has(const ep_recorder *recorder, const ep_chunk *chunk)
{
    for (size_t i = recorder->kept_first; i < recorder->kept_end; i++) {
        if (recorder->kept[i] == chunk) {
            return true;
        }
    }
    return false;
}

/* The bytes of a kept chunk that count against the recorder's limit. */
static uint64_t
charge_of(const ep_recorder *recorder, const ep_chunk *chunk)
{
    return chunk->sequence >= recorder->first_sequence ? chunk->bytes : 0;
}

bool
ep_kept_add(ep_recorder *recorder, ep_chunk *chunk)
{
    if (recorder->kept_end == recorder->kept_capacity && recorder->kept_first > 0) {
        size_t count = recorder->kept_end - recorder->kept_first;
        memmove(recorder->kept, &recorder->kept[recorder->kept_first],
                count * sizeof *recorder->kept);
        recorder->kept_first = 0;
        recorder->kept_end = count;
    }
    if (!ep_grow((void **)&recorder->kept, &recorder->kept_capacity, recorder->kept_end + 1,
                 sizeof *recorder->kept)) {
        return false;
    }
    recorder->kept[recorder->kept_end++] = chunk;
    recorder->charged_bytes += charge_of(recorder, chunk);
    chunk->refs += 1;
    if (recorder == ep_engine.file_recorder && chunk->file != NULL && chunk->file == recorder->file) {
        /* Release: whoever reads `wanted` sees the complete header. */
        atomic_store_explicit(&chunk->header->wanted, 1, memory_order_release);
    }
    return true;
}

void
ep_kept_release(ep_recorder *recorder)
{
    while (recorder->kept_first < recorder->kept_end) {
        ep_chunk_release(recorder->kept[recorder->kept_first++]);
    }
    recorder->kept_first = recorder->kept_end = 0;
    recorder->charged_bytes = 0;
}

/* The ticks of the last record of a chunk to which no thread writes. */
static uint64_t
last_ticks_of(const ep_chunk *chunk)
{
    ep_cursor cursor = ep_cursor_begin(chunk->header);
    ep_record record = {0};
    while (ep_cursor_next(&cursor, &record)) {
    }
    return record.ticks;
}

/* Index of the chunk to drop: the one that was sealed first among the first few. A thread that records
 * seldom seals an old chunk that has new events, which would be lost before older ones of other threads.
 * Chunks of one thread must be dropped in their order: a chunk that is not sealed is taken only before all
 * others. Returns: kept_end if no chunk may be dropped. */
static size_t
find_oldest(const ep_recorder *recorder)
{
    size_t oldest = recorder->kept_end, seen = 0;
    uint64_t oldest_ticks = UINT64_MAX;
    for (size_t i = recorder->kept_first; i < recorder->kept_end && seen < COMPARED; i++) {
        const ep_chunk *chunk = recorder->kept[i];
        const ep_chunk_header *header = chunk->header;
        if (chunk->rest != NULL && seen == 0) {
            return i;
        }
        if (atomic_load_explicit(&header->state, memory_order_relaxed) != EP_CHUNK_SEALED) {
            continue;
        }
        seen += 1;
        if (header->sealed.ticks < oldest_ticks) {
            oldest = i;
            oldest_ticks = header->sealed.ticks;
        }
    }
    return oldest;
}

bool
ep_kept_drop_oldest(ep_recorder *recorder)
{
    size_t at = find_oldest(recorder);
    if (at == recorder->kept_end) {
        return false;
    }
    ep_chunk *chunk = recorder->kept[at];
    uint64_t ended = chunk->header->sealed.ticks;
    if (chunk->rest != NULL) {
        ended = last_ticks_of(chunk);    /* it is sealed only now */
        ep_chunk_seal_partial(chunk);
    }
    ep_loss_count(recorder, ep_cursor_begin(chunk->header), true, NULL);
    if (recorder == ep_engine.file_recorder) {
        ep_file_recorder_drop(recorder, chunk);
    }
    memmove(&recorder->kept[recorder->kept_first + 1], &recorder->kept[recorder->kept_first],
            (at - recorder->kept_first) * sizeof *recorder->kept);
    recorder->kept_first += 1;
    recorder->charged_bytes -= charge_of(recorder, chunk);
    recorder->dropped_ticks = ended > recorder->dropped_ticks ? ended : recorder->dropped_ticks;
    ep_chunk_release(chunk);
    return true;
}

/* ---- Limits ---------------------------------------------------------------------------------- */

void
ep_kept_become_full(ep_recorder *recorder, uint64_t ticks, ep_full_reason reason)
{
    if (recorder->full_reason == EP_FULL_NOT) {
        recorder->full_reason = reason;
        recorder->full_ticks = ticks - 1;
        recorder->full_sequence = ep_engine.next_sequence;
        if (recorder == ep_engine.file_recorder && !ep_engine.file_recorder_is_child) {
            ep_file_put_full(recorder->file, recorder->full_ticks, reason);
            ep_prefault_use_file(NULL);
        }
    }
}

uint64_t
ep_kept_limit(const ep_recorder *recorder)
{
    uint64_t limit = recorder->options.limit_bytes;
    return limit > EP_LIMIT_BYTES_MIN ? limit : EP_LIMIT_BYTES_MIN;
}

/* The largest size of a chunk that is at most `room`; the smallest size if none is. */
static size_t
chunk_bytes_in(uint64_t room)
{
    size_t bytes = ep_os_page_bytes();
    while (bytes < EP_CHUNK_BYTES && 2 * bytes <= room) {
        bytes *= 2;
    }
    return bytes;
}

size_t
ep_kept_largest_chunk(const ep_recorder *recorder)
{
    size_t threads = ep_engine.log_count > 0 ? ep_engine.log_count : 1;
    return recorder->options.on_full == EP_ON_FULL_GROW || ep_engine_first_bytes > 0
               ? EP_CHUNK_BYTES
               : chunk_bytes_in(ep_kept_limit(recorder) / (LIMIT_PARTS * threads));
}

void
ep_kept_apply_limit(ep_recorder *recorder, uint64_t ticks, bool first, size_t *bytes)
{
    if (recorder->options.on_full == EP_ON_FULL_GROW) {
        return;
    }
    size_t largest = ep_kept_largest_chunk(recorder);
    *bytes = *bytes < largest ? *bytes : largest;
    uint64_t limit = ep_kept_limit(recorder);
    bool overwrites = recorder->options.on_full == EP_ON_FULL_OVERWRITE;
    /* Until no sealed chunk is left. */
    while (overwrites && recorder->charged_bytes + *bytes > limit && ep_kept_drop_oldest(recorder)) {
    }
    while (recorder == ep_engine.file_recorder && recorder->charged_bytes + *bytes > limit &&
           ep_packing_wait()) {
    }
    if (recorder->charged_bytes + *bytes <= limit) {
        return;
    }
    uint64_t room = recorder->charged_bytes < limit ? limit - recorder->charged_bytes : 0;
    *bytes = chunk_bytes_in(room);
    if (*bytes > room && !overwrites && !first) {
        ep_kept_become_full(recorder, ticks, EP_FULL_LIMIT);
    }
}

bool
ep_kept_takes(const ep_recorder *recorder)
{
    return recorder->state == EP_RECORDER_RUNNING && recorder->full_reason == EP_FULL_NOT;
}
