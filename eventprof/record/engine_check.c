/* The invariants of the engine's lists, which hold whenever nobody has its lock. See invariants.h. */
#include "invariants.h"

#ifdef EP_CHECKS

#include <inttypes.h>

#include "engine_parts.h"
#include "names.h"
#include "os.h"

/* If the engine has at most so many threads, chunks and recorders, it is checked whenever its lock is given
 * back. If it has more, it is checked only each so many times, so that tests with many end in time. */
#define SELDOM 256

/* ---- Stacks of open calls -------------------------------------------------------------------- */

void
ep_open_stack_check(const ep_open_stack *stack)
{
    size_t site_count = ep_site_count();
    EP_INVARIANT(stack->depth <= stack->capacity, "%zu open calls, room for %zu", stack->depth,
                 stack->capacity);
    for (size_t i = 0; i < stack->depth; i++) {
        const ep_open_call *call = &stack->calls[i];
        EP_INVARIANT(ep_kinds_has(ep_kinds_that_open_calls, call->kind), "open call %zu is of kind %u", i,
                     call->kind);
        EP_INVARIANT(call->site_id < site_count, "open call %zu has site %" PRIu32 " of %zu", i,
                     call->site_id, site_count);
        EP_INVARIANT(!call->unsettled || call->before, "open call %zu is unsettled", i);
    }
}

/* ---- Chunks ---------------------------------------------------------------------------------- */

static unsigned
state_of(const ep_chunk *chunk)
{
    return atomic_load_explicit(&chunk->header->state, memory_order_relaxed);
}

/* Does not read the header of a slot: another program may have cut the file off. */
static void
check_chunk(const ep_chunk *chunk)
{
    EP_INVARIANT(chunk->bytes >= EP_CHUNK_BYTES_MIN && chunk->bytes <= EP_CHUNK_BYTES &&
                     (chunk->packed || (chunk->bytes & (chunk->bytes - 1)) == 0),
                 "a chunk has %" PRIu32 " bytes", chunk->bytes);
    EP_INVARIANT((chunk->copy != NULL) == (chunk->copy_file != NULL), "chunk %" PRIu64 "'s copy",
                 chunk->sequence);
    EP_INVARIANT(!chunk->packed || (chunk->file != NULL && chunk->copy == NULL && chunk->rest == NULL),
                 "chunk %" PRIu64 " is packed", chunk->sequence);
}

static EP_ENGINE_LOCKED void
check_free_chunks(void)
{
    size_t count = 0, bytes = 0;
    for (unsigned class = 0; class < EP_CHUNK_CLASS_COUNT; class ++) {
        for (const ep_chunk *chunk = ep_engine.free_chunks[class]; chunk != NULL; chunk = chunk->next) {
            check_chunk(chunk);
            EP_INVARIANT(chunk->bytes == EP_CHUNK_BYTES_MIN << class, "%" PRIu32 " bytes in class %u",
                         chunk->bytes, class);
            EP_INVARIANT(chunk->file == NULL && state_of(chunk) == EP_CHUNK_FREE, "free chunk in state %u",
                         state_of(chunk));
            EP_INVARIANT(chunk->refs == 0 && chunk->rest == NULL && chunk->copy == NULL,
                         "free chunk with %" PRIu32 " references", chunk->refs);
            count += 1;
            bytes += chunk->bytes;
        }
        for (const ep_chunk *slot = ep_engine.free_slots[class]; slot != NULL; slot = slot->next) {
            check_chunk(slot);
            EP_INVARIANT(slot->bytes == EP_CHUNK_BYTES_MIN << class, "%" PRIu32 " bytes in class %u",
                         slot->bytes, class);
            EP_INVARIANT(slot->file != NULL && slot->refs == 0 && slot->rest == NULL,
                         "free slot with %" PRIu32 " references", slot->refs);
        }
    }
    EP_INVARIANT(count == ep_engine.chunks_free && bytes == ep_engine.bytes_free,
                 "%zu free chunks of %zu bytes, counted were %zu of %zu", count, bytes,
                 ep_engine.chunks_free, ep_engine.bytes_free);
    EP_INVARIANT(count <= ep_engine.chunks_mapped && bytes <= ep_engine.bytes_mapped,
                 "%zu free chunks, %zu mapped", count, ep_engine.chunks_mapped);
}

static EP_ENGINE_LOCKED void
check_partial_chunks(void)
{
    for (const ep_chunk *chunk = ep_engine.partial_chunks; chunk != NULL; chunk = chunk->next) {
        const _Atomic uint64_t *words = (const _Atomic uint64_t *)(chunk->header + 1);
        check_chunk(chunk);
        EP_INVARIANT(chunk->rest >= words && chunk->rest <= words + EP_CHUNK_WORDS_OF(chunk->bytes),
                     "the rest of chunk %" PRIu64, chunk->sequence);
        EP_INVARIANT(chunk->refs > 0, "partial chunk %" PRIu64 " is kept by nobody", chunk->sequence);
        EP_INVARIANT(chunk->file != NULL || state_of(chunk) == EP_CHUNK_OPEN,
                     "partial chunk %" PRIu64 " in state %u", chunk->sequence, state_of(chunk));
    }
}

/* ---- Threads --------------------------------------------------------------------------------- */

/* Checks of other threads' logs only what changes under the lock. */
static void
check_log(const ep_log *log)
{
    EP_INVARIANT(log->thread != NULL && log->thread->attached, "a log without a thread");
    bool has_chunk = log->chunk != NULL;
    if (has_chunk) {
        check_chunk(log->chunk);
        EP_INVARIANT(log->chunk->rest == NULL, "thread %" PRIu32 "'s chunk is partial", log->thread->id);
        EP_INVARIANT(log->chunk->file != NULL || state_of(log->chunk) == EP_CHUNK_OPEN,
                     "thread %" PRIu32 "'s chunk is in state %u", log->thread->id, state_of(log->chunk));
    }
    const _Atomic uint64_t *first =
        has_chunk ? (const _Atomic uint64_t *)(log->chunk->header + 1) : log->scratch;
    size_t words = has_chunk ? EP_CHUNK_WORDS_OF(log->chunk->bytes) : EP_SCRATCH_WORDS;
    const _Atomic uint64_t *end = atomic_load_explicit(&log->end, memory_order_relaxed);
    EP_INVARIANT(end == first || end == first + words - EP_CHUNK_SLACK_WORDS,
                 "thread %" PRIu32 "'s log ends at word %td of %zu", log->thread->id, end - first, words);
    if (log == ep_log_current) {
        EP_INVARIANT(log->next >= first && log->next < first + words,
                     "thread %" PRIu32 "'s next record is at word %td of %zu", log->thread->id,
                     log->next - first, words);
        EP_INVARIANT((has_chunk && log->chunk->file != NULL) ||
                         atomic_load_explicit(log->next, memory_order_relaxed) == 0,
                     "thread %" PRIu32 "'s log does not end in a zero", log->thread->id);
    }
}

static EP_ENGINE_LOCKED void
check_threads(void)
{
    size_t logs = 0, expected = 0;
    for (const ep_log *log = ep_engine.logs; log != NULL; log = log->next_log) {
        check_log(log);
        logs += 1;
    }
    EP_INVARIANT(logs == ep_engine.log_count, "%zu logs, counted were %zu", logs, ep_engine.log_count);
    for (size_t i = 0; i < ep_engine.thread_count; i++) {
        const ep_thread *thread = ep_engine.threads[i];
        EP_INVARIANT(thread->id == i + 1, "thread %" PRIu32 " at %zu", thread->id, i);
        EP_INVARIANT(thread->unsettled_count <= EP_UNSETTLED_MAX, "%" PRIu32 " unsettled calls",
                     thread->unsettled_count);
        EP_INVARIANT(thread->thrown_count <= EP_THROWN_MAX, "%" PRIu32 " thrown slices",
                     thread->thrown_count);
        expected +=
            !thread->attached && !atomic_load_explicit(&thread->exited, memory_order_relaxed);
    }
    EP_INVARIANT(expected == ep_engine.expected_count, "%zu threads are expected, counted were %zu",
                 expected, ep_engine.expected_count);
}

/* ---- Windows --------------------------------------------------------------------------------- */

static EP_ENGINE_LOCKED void
check_kept(const ep_recorder *recorder)
{
    uint64_t charged = 0, before = 0;
    EP_INVARIANT(recorder->kept_first <= recorder->kept_end &&
                     recorder->kept_end <= recorder->kept_capacity,
                 "keeps %zu to %zu of %zu", recorder->kept_first, recorder->kept_end,
                 recorder->kept_capacity);
    for (size_t i = recorder->kept_first; i < recorder->kept_end; i++) {
        const ep_chunk *chunk = recorder->kept[i];
        check_chunk(chunk);
        EP_INVARIANT(chunk->refs > 0, "kept chunk %" PRIu64 " is kept by nobody", chunk->sequence);
        EP_INVARIANT(chunk->file != NULL || state_of(chunk) != EP_CHUNK_FREE,
                     "kept chunk %" PRIu64 " is free", chunk->sequence);
        EP_INVARIANT(i == recorder->kept_first || chunk->sequence > before,
                     "keeps chunk %" PRIu64 " after %" PRIu64, chunk->sequence, before);
        EP_INVARIANT(chunk->sequence < ep_engine.next_sequence, "chunk %" PRIu64 " of %" PRIu64,
                     chunk->sequence, ep_engine.next_sequence);
        before = chunk->sequence;
        charged += chunk->sequence >= recorder->first_sequence ? chunk->bytes : 0;
    }
    EP_INVARIANT(charged == recorder->charged_bytes, "keeps %" PRIu64 " bytes, counted were %" PRIu64,
                 charged, recorder->charged_bytes);
}

/* Checks that a recorder lost only events of kinds that it records. */
static void
check_lost(const ep_recorder *recorder, const ep_window_thread *thread, size_t id)
{
    for (unsigned kind = 0; kind < EP_KIND_COUNT; kind++) {
        EP_INVARIANT(thread->lost[kind] == 0 || ep_kinds_has(recorder->options.kinds, kind),
                     "thread %zu lost %" PRIu64 " events of kind %u, which is not recorded", id,
                     thread->lost[kind], kind);
    }
}

void
ep_recorder_check(const ep_recorder *recorder)
{
    check_kept(recorder);
    EP_INVARIANT((recorder->full_reason == EP_FULL_NOT) == (recorder->full_sequence == UINT64_MAX),
                 "full because of %d, from chunk %" PRIu64, (int)recorder->full_reason,
                 recorder->full_sequence);
    EP_INVARIANT(!recorder->file_is_late || recorder->file != NULL, "a late file that is none");
    for (size_t id = 0; id < recorder->thread_capacity; id++) {
        const ep_window_thread *thread = recorder->threads[id];
        if (thread != NULL) {
            EP_INVARIANT(id <= ep_engine.thread_count, "window of thread %zu of %zu", id,
                         ep_engine.thread_count);
            ep_open_stack_check(&thread->open);
            check_lost(recorder, thread, id);
        }
    }
}

static EP_ENGINE_LOCKED void
check_recorders(void)
{
    size_t running = 0;
    ep_kind_set kinds = 0;
    bool has_filer = ep_engine.file_recorder == NULL;
    for (const ep_recorder *r = ep_engine.recorders; r != NULL; r = r->next) {
        EP_INVARIANT(r->state != EP_RECORDER_NEW && !r->settled, "a listed recorder in state %d",
                     (int)r->state);
        check_kept(r);
        running += r->state == EP_RECORDER_RUNNING;
        kinds |= r->state == EP_RECORDER_RUNNING ? r->options.kinds : 0;
        has_filer = has_filer || r == ep_engine.file_recorder;
    }
    EP_INVARIANT(running == ep_engine.running_count, "%zu recorders run, counted were %zu", running,
                 ep_engine.running_count);
    EP_INVARIANT(kinds == ep_engine_kinds(), "hooks see other kinds than the %zu recorders want", running);
    EP_INVARIANT(has_filer, "the recorder with the file is not listed");
    EP_INVARIANT(!ep_engine.file_recorder_is_child || ep_engine.file_recorder != NULL,
                 "a child's file, no recorder");
}

static EP_ENGINE_LOCKED size_t
size_of_engine(void)
{
    size_t size = ep_engine.thread_count + ep_engine.log_count + ep_engine.chunks_free;
    for (const ep_recorder *r = ep_engine.recorders; r != NULL; r = r->next) {
        size += 1 + r->kept_end - r->kept_first;
    }
    return size;
}

void
ep_engine_check(void)
{
    static unsigned calls;
    if (size_of_engine() > SELDOM && calls++ % SELDOM != 0) {
        return;
    }
    check_free_chunks();
    check_partial_chunks();
    check_threads();
    check_recorders();
}

#endif
