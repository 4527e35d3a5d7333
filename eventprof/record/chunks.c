/* The life of a chunk: it is mapped, or taken from a list of free chunks; a log writes it; it is sealed;
 * and it is free again when no recorder keeps it. */
#include <errno.h>
#include <string.h>

#include "prefault.h"
#include "engine_parts.h"
#include "file.h"
#include "memory.h"
#include "os.h"
#include "packing.h"

static EP_ENGINE_LOCKED bool
is_file_in_use(const ep_file *file)
{
    /* A forked child's recorder still has its parent's file until it makes its own. */
    const ep_recorder *recorder = ep_engine.file_recorder;
    return recorder != NULL && !ep_engine.file_recorder_is_child && recorder->file == file;
}

static unsigned
class_of(size_t bytes)
{
    return (unsigned)(63 - __builtin_clzll(bytes / EP_CHUNK_BYTES_MIN));
}

static EP_ENGINE_LOCKED void
unmap_chunk(ep_chunk *chunk)
{
    ep_os_unmap(chunk->header, chunk->bytes);
    if (chunk->file == NULL) {
        ep_engine.chunks_mapped -= 1;
        ep_engine.bytes_mapped -= chunk->bytes;
    }
    ep_file_release(chunk->file);
    ep_file_recorder_forget_copy(chunk);
    free(chunk);
}

/* ---- Sealed and released --------------------------------------------------------------------- */

void
ep_chunk_release(ep_chunk *chunk)
{
    if (--chunk->refs > 0) {
        return;
    }
    if (chunk->rest != NULL) {
        ep_chunk_seal_partial(chunk);    /* which calls this function again */
        return;
    }
    if (atomic_load_explicit(&chunk->header->state, memory_order_relaxed) != EP_CHUNK_SEALED) {
        return;    /* its owner still writes it, and will seal it */
    }
    if (chunk->packed || (chunk->file != NULL && !is_file_in_use(chunk->file))) {
        unmap_chunk(chunk);    /* that file is finished, and does not change any more */
        return;
    }
    ep_chunk **list =
        &(chunk->file != NULL ? ep_engine.free_slots : ep_engine.free_chunks)[class_of(chunk->bytes)];
    atomic_store_explicit(&chunk->header->state, EP_CHUNK_FREE, memory_order_release);
    EP_FAULT_POINT(RECYCLE);
    ep_file_recorder_forget_copy(chunk);
    chunk->next = *list;
    *list = chunk;
    if (chunk->file == NULL) {
        ep_engine.chunks_free += 1;
        ep_engine.bytes_free += chunk->bytes;
    }
}

void
ep_chunk_seal(ep_chunk *chunk, const _Atomic uint64_t *next)
{
    ep_chunk_header *header = chunk->header;
    header->sealed = ep_clock_anchor();
    header->used_words = (uint64_t)(next - (_Atomic uint64_t *)(header + 1));
    if (chunk->file != NULL) {
        header->sum = ep_sum64(header + 1, header->used_words * 8);
    }
    EP_FAULT_POINT(SEAL);
    atomic_store_explicit(&header->state, EP_CHUNK_SEALED, memory_order_release);
    EP_FAULT_POINT(SEALED);
    for (ep_recorder *r = ep_engine.recorders; r != NULL; r = r->next) {
        if (chunk->sequence >= r->full_sequence) {
            ep_loss_count(r, ep_cursor_begin(header), false, NULL);
            if (r == ep_engine.file_recorder) {
                ep_file_recorder_put_state(r, UINT64_MAX);
            }
        }
    }
    ep_recorder *file_recorder = ep_engine.file_recorder;
    if (file_recorder != NULL && chunk->file != file_recorder->file && !ep_engine.file_recorder_is_child &&
        ep_kept_has(file_recorder, chunk)) {
        ep_file_recorder_copy(file_recorder, chunk);
    }
    ep_packing_add(chunk);
    chunk->refs += 1;    /* so that release() sees the last reference */
    ep_chunk_release(chunk);
}

void
ep_chunk_seal_partial(ep_chunk *partial)
{
    for (ep_chunk **at = &ep_engine.partial_chunks; *at != NULL; at = &(*at)->next) {
        if (*at == partial) {
            *at = partial->next;
            break;
        }
    }
    _Atomic uint64_t *rest = partial->rest;
    partial->rest = NULL;
    ep_chunk_seal(partial, rest);
}

void
ep_chunks_leave(void)
{
    while (ep_engine.partial_chunks != NULL) {
        ep_chunk_seal_partial(ep_engine.partial_chunks);
    }
    for (ep_log *log = ep_engine.logs; log != NULL; log = log->next_log) {
        _Atomic uint64_t *first =
            log->chunk != NULL ? (_Atomic uint64_t *)(log->chunk->header + 1) : log->scratch;
        atomic_store_explicit(&log->end, first, memory_order_relaxed);
    }
}

void
ep_chunks_leave_large(size_t bytes)
{
    for (ep_log *log = ep_engine.logs; log != NULL; log = log->next_log) {
        if (log->chunk != NULL && log->chunk->bytes > bytes) {
            atomic_store_explicit(&log->end, (_Atomic uint64_t *)(log->chunk->header + 1),
                                  memory_order_relaxed);
        }
    }
    for (ep_chunk *chunk = ep_engine.partial_chunks, *next; chunk != NULL; chunk = next) {
        next = chunk->next;
        if (chunk->bytes > bytes) {
            ep_chunk_seal_partial(chunk);
        }
    }
}

/* ---- Mapped and free ------------------------------------------------------------------------- */

/* Whether chunks may be prepared for the file in advance; prepared chunks count against the limit, too. */
static EP_ENGINE_LOCKED bool
has_room_ahead(const ep_recorder *recorder)
{
    return recorder->options.on_full == EP_ON_FULL_GROW ||
           ep_engine.slot_bytes + EP_PREFAULT_BYTES <= ep_kept_limit(recorder);
}

/* Returns: NULL without memory, or room on the disk. */
static EP_ENGINE_LOCKED ep_chunk *
map_chunk(size_t bytes, ep_recorder *file_recorder)
{
    ep_chunk *chunk = ep_calloc(1, sizeof *chunk);
    if (chunk == NULL) {
        return NULL;
    }
    ep_prefault_go_on();
    if (bytes == EP_CHUNK_BYTES && (file_recorder == NULL || has_room_ahead(file_recorder))) {
        chunk->header = ep_prefault_take();
    }
    if (chunk->header == NULL) {
        chunk->header =
            file_recorder != NULL ? ep_file_take_slot(file_recorder->file, bytes) : ep_os_map(bytes);
    }
    if (chunk->header == NULL) {
        free(chunk);
        return NULL;
    }
    chunk->bytes = (uint32_t)bytes;
    if (file_recorder != NULL) {
        chunk->file = ep_file_hold(file_recorder->file);
        ep_engine.slot_bytes += bytes;
    } else {
        ep_engine.chunks_mapped += 1;
        ep_engine.bytes_mapped += bytes;
    }
    return chunk;
}

/* Returns: NULL if there is none of that size. */
static EP_ENGINE_LOCKED ep_chunk *
pop_free_chunk(unsigned class)
{
    ep_chunk *chunk = ep_engine.free_chunks[class];
    if (chunk != NULL) {
        ep_engine.free_chunks[class] = chunk->next;
        ep_engine.chunks_free -= 1;
        ep_engine.bytes_free -= chunk->bytes;
    }
    return chunk;
}

static EP_ENGINE_LOCKED ep_chunk *
pop_free_slot(unsigned class)
{
    ep_chunk *chunk = ep_engine.free_slots[class];
    if (chunk != NULL) {
        ep_engine.free_slots[class] = chunk->next;
    }
    return chunk;
}

/* The largest of these classes and smaller ones, else the next larger one. */
static ep_chunk *
pop_nearest(ep_chunk *(*pop)(unsigned class), unsigned class)
{
    ep_chunk *chunk = NULL;
    for (unsigned i = class + 1; chunk == NULL && i-- > 0;) {
        chunk = pop(i);
    }
    for (unsigned i = class + 1; chunk == NULL && i < EP_CHUNK_CLASS_COUNT; i++) {
        chunk = pop(i);
    }
    return chunk;
}

void
ep_chunks_trim(size_t spare_bytes)
{
    for (unsigned class = EP_CHUNK_CLASS_COUNT; class --> 0;) {
        ep_chunk *chunk;
        while (ep_engine.bytes_free > spare_bytes && (chunk = pop_free_chunk(class)) != NULL) {
            unmap_chunk(chunk);
        }
    }
}

void
ep_chunks_unmap_slots(void)
{
    for (unsigned class = 0; class < EP_CHUNK_CLASS_COUNT; class ++) {
        ep_chunk *chunk;
        while ((chunk = pop_free_slot(class)) != NULL) {
            unmap_chunk(chunk);
        }
    }
    ep_engine.slot_bytes = 0;
}

/* ---- Found ----------------------------------------------------------------------------------- */

/* A slot of the file, if a running recorder has one. */
static EP_ENGINE_LOCKED ep_chunk *
find_slot(uint64_t ticks, size_t bytes)
{
    if (ep_engine.file_recorder != NULL && ep_engine.file_recorder_is_child) {
        ep_file_recorder_make_child_file();
    }
    if (ep_engine.file_recorder != NULL && ep_file_is_cut(ep_engine.file_recorder->file)) {
        ep_file_recorder_leave_cut();
    }
    ep_recorder *recorder = ep_engine.file_recorder;
    if (recorder == NULL || !ep_kept_takes(recorder)) {
        return NULL;
    }
    unsigned class = class_of(bytes);
    ep_chunk *chunk = pop_free_slot(class);
    if (chunk == NULL && recorder->options.on_full != EP_ON_FULL_GROW &&
        ep_engine.slot_bytes + bytes > ep_kept_limit(recorder)) {
        /* The dropped chunks have other sizes. */
        chunk = pop_nearest(pop_free_slot, class);
    }
    size_t smallest = ep_os_page_bytes();
    for (size_t less = bytes; chunk == NULL && less >= smallest; less /= 2) {
        chunk = map_chunk(less, recorder);    /* the rest of a disk */
    }
    if (chunk == NULL) {
        chunk = pop_nearest(pop_free_slot, class);
    }
    while (chunk == NULL && ep_packing_wait()) {
        chunk = pop_nearest(pop_free_slot, class);
    }
    if (chunk == NULL && recorder->options.on_full == EP_ON_FULL_OVERWRITE) {
        uint32_t limit = ep_file_lacks_room(recorder->file) ? EP_LIMIT_ROOM : EP_LIMIT_SMALL_DISK;
        recorder->limits |= limit;
        ep_file_put_limit(recorder->file, limit);
        while (chunk == NULL && ep_kept_drop_oldest(recorder)) {
            chunk = pop_nearest(pop_free_slot, class);
        }
    }
    if (chunk == NULL) {
        ep_kept_become_full(recorder, ticks,
                            ep_file_lacks_room(recorder->file) ? EP_FULL_LIMIT : EP_FULL_DISK);
    }
    return chunk;
}

/* Unmaps free chunks of other sizes, at most as many bytes as will be mapped. */
static EP_ENGINE_LOCKED void
make_way(size_t bytes)
{
    ep_chunks_trim(ep_engine.bytes_free > bytes ? ep_engine.bytes_free - bytes : 0);
}

ep_chunk *
ep_chunk_find(uint64_t ticks, size_t bytes, bool first)
{
    ep_packing_commit();    /* before the limits are applied: packed chunks are smaller */
    for (ep_recorder *r = ep_engine.recorders; r != NULL; r = r->next) {
        if (ep_kept_takes(r)) {
            ep_kept_apply_limit(r, ticks, first, &bytes);
        }
    }
    unsigned class = class_of(bytes);
    ep_chunk *chunk = find_slot(ticks, bytes);
    if (chunk == NULL) {
        chunk = pop_free_chunk(class);
    }
    if (chunk == NULL) {
        make_way(bytes);
        chunk = map_chunk(bytes, NULL);
    }
    if (chunk == NULL && bytes > ep_os_page_bytes()) {
        chunk = map_chunk(ep_os_page_bytes(), NULL);
    }
    if (chunk != NULL) {
        return chunk;
    }
    for (ep_recorder *r = ep_engine.recorders; r != NULL; r = r->next) {
        if (!ep_kept_takes(r)) {
            continue;
        }
        if (r->options.on_full != EP_ON_FULL_OVERWRITE) {
            ep_kept_become_full(r, ticks, EP_FULL_NOMEM);
            continue;
        }
        while (ep_engine.chunks_free == 0 && ep_kept_drop_oldest(r)) {
        }
    }
    return pop_nearest(pop_free_chunk, class);
}

/* ---- Written --------------------------------------------------------------------------------- */

static void
write_into(ep_log *log, _Atomic uint64_t *next, _Atomic uint64_t *end, uint64_t ticks)
{
    log->next = next;
    atomic_store_explicit(&log->end, end, memory_order_relaxed);
    log->closed = false;
    log->last_block = log->block_before = NULL;
    log->high = (uint32_t)(ticks >> 32);
    atomic_store_explicit(next, 0, memory_order_release);
}

void
ep_log_use_scratch(ep_log *log, uint64_t ticks)
{
    log->chunk = NULL;
    log->scratch_thread = log->thread->id;
    write_into(log, log->scratch, log->scratch + EP_SCRATCH_WORDS - EP_CHUNK_SLACK_WORDS, ticks);
    /* No high half is equal to it, so a SYNC comes first. */
    log->high = ~log->high;
}

void
ep_log_use_chunk(ep_log *log, ep_chunk *chunk, uint64_t ticks)
{
    ep_chunk_header *header = chunk->header;
    /* The state was FREE before anything else changes, so that after a kill the file is right, too. */
    atomic_thread_fence(memory_order_release);
    header->magic = EP_CHUNK_MAGIC;
    header->bytes = chunk->bytes;
    header->sequence = chunk->sequence = ep_engine.next_sequence++;
    header->thread_id = log->thread->id;
    header->opened = ep_clock_anchor();
    header->used_words = 0;
    ep_resident held = ep_resident_now();
    header->resident_bytes = held.bytes;
    header->own_bytes = held.own_bytes;
    atomic_store_explicit(&header->shared, 0, memory_order_relaxed);
    atomic_store_explicit(&header->wanted, 0, memory_order_relaxed);
    if (chunk->file != NULL && is_file_in_use(chunk->file)) {
        ep_file_put_beat(chunk->file, header->opened);
    }
    log->chunk = chunk;
    _Atomic uint64_t *words = (_Atomic uint64_t *)(header + 1);
    log->next_bytes = chunk->bytes;
    write_into(log, words, words + EP_CHUNK_WORDS_OF(chunk->bytes) - EP_CHUNK_SLACK_WORDS,
               header->opened.ticks);
    EP_FAULT_POINT(OPEN);
    atomic_store_explicit(&header->state, EP_CHUNK_OPEN, memory_order_release);
    EP_FAULT_POINT(OPENED);
    for (ep_recorder *r = ep_engine.recorders; r != NULL; r = r->next) {
        /* A stopped recorder: the thread may have read the clock before the stop, and come here after
         * it. */
        bool wanted = r->state == EP_RECORDER_RUNNING || ticks <= r->stop.ticks;
        if (wanted && r->full_reason == EP_FULL_NOT && !ep_kept_add(r, chunk)) {
            ep_kept_become_full(r, ticks, EP_FULL_NOMEM);
            r->full_sequence = chunk->sequence;
        }
    }
    EP_FAULT_POINT(KEPT);
}

void
ep_log_use_partial(ep_log *log, ep_chunk *chunk, uint64_t ticks)
{
    ep_engine.partial_chunks = chunk->next;
    atomic_store_explicit(&chunk->header->shared, 1, memory_order_relaxed);
    log->chunk = chunk;
    _Atomic uint64_t *words = (_Atomic uint64_t *)(chunk->header + 1);
    log->next_bytes = chunk->bytes;
    write_into(log, chunk->rest, words + EP_CHUNK_WORDS_OF(chunk->bytes) - EP_CHUNK_SLACK_WORDS, ticks);
    chunk->rest = NULL;
    _Atomic uint64_t *at = log->next;
    atomic_store_explicit(&at[1], log->thread->id, memory_order_relaxed);
    ep_log_publish(at, 2, EP_WORD0(ticks, EP_KIND_THREAD, 0));
    log->next = at + 2;
    log->high = ~log->high;    /* the other thread's high half may differ: a SYNC comes first */
}

size_t
ep_chunk_first_bytes(void)
{
    return ep_engine_first_bytes > 0 ? ep_engine_first_bytes : ep_os_page_bytes();
}

/* Twice as large after one that was full, half after one that was left half empty. */
static EP_ENGINE_LOCKED void
choose_next_size(ep_log *log)
{
    uint32_t bytes = log->chunk->bytes;
    size_t used = (size_t)(log->next - (_Atomic uint64_t *)(log->chunk->header + 1)) * 8;
    log->next_bytes = used >= bytes / 2                ? bytes < EP_CHUNK_BYTES ? 2 * bytes : bytes
                      : bytes > ep_chunk_first_bytes() ? bytes / 2
                                                       : bytes;
}

void
ep_log_next_chunk(ep_log *log, uint64_t ticks)
{
    int error = errno;    /* errno is the program's: a hook runs inside of its calls */
    if (EP_UNLIKELY(ep_os_is_forked())) {
        ep_engine_leave_parent();
        /* Without a lock, which another thread may have held at the fork. log->chunk stays: the handler of
         * an ordinary fork, which may run later, looks at it. */
        log->scratch_thread = log->thread->id;
        write_into(log, log->scratch, log->scratch + EP_SCRATCH_WORDS - EP_CHUNK_SLACK_WORDS, ticks);
        errno = error;
        return;
    }
    ep_engine_lock();
    bool first = log->next_bytes == 0;
    if (log->chunk != NULL) {
        choose_next_size(log);
        ep_chunk *full = log->chunk;
        const _Atomic uint64_t *next = log->next;
        /* The full chunk may be unmapped now. The scratch is empty, so no records are counted twice. */
        ep_log_use_scratch(log, ticks);
        ep_chunk_seal(full, next);
    } else {
        ep_loss_count_scratch(log);
    }
    ep_chunk *chunk = ep_chunk_find(ticks, first ? ep_chunk_first_bytes() : log->next_bytes, first);
    if (chunk != NULL) {
        ep_log_use_chunk(log, chunk, ticks);
    } else {
        ep_log_use_scratch(log, ticks);
    }
    ep_engine_unlock();
    errno = error;
}
