#include "engine.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "ahead.h"
#include "file.h"
#include "gate.h"
#include "memory.h"
#include "names.h"
#include "os.h"

/* Bytes of free chunks kept for the next recording once nothing records: enough for a few threads; and
 * while a recorder that is given up starts anew. */
#define SPARE_BYTES_WHEN_IDLE (4 * EP_CHUNK_BYTES)
#define SPARE_BYTES_WHEN_RESTARTED (64 * EP_CHUNK_BYTES)
/* A dead thread's chunk goes to the next new thread while this much of it is left. */
#define PARTIAL_MIN_WORDS 64
/* A chunk is no larger than this part of a limit and thread: so much of a ring is dropped at once. */
#define LIMIT_PARTS 4
/* Sizes of chunks: EP_CHUNK_BYTES_MIN << 0 to 8. */
#define CLASS_COUNT 9
/* Fewer logs than this are not searched for those of dead threads. */
#define MANY_LOGS 16

static struct {
    pthread_mutex_t lock;
    ep_log *logs;
    size_t log_count;
    size_t look_at;                   /* how many logs there must be before dead ones are looked for */
    ep_thread **threads;              /* index = id - 1 */
    size_t thread_count, thread_capacity;
    bool filer_is_child;              /* forked: its file is still to be made */
    size_t expected_count;            /* threads with an entry and no log yet */
    ep_recorder *recorders;           /* started and not settled */
    size_t running_count;
    ep_chunk *free_chunks[CLASS_COUNT];    /* of memory, by size */
    ep_chunk *partial_chunks;
    ep_recorder *filer;               /* running, with a file that is its own; NULL: none */
    ep_chunk *free_slots[CLASS_COUNT];     /* of that file */
    uint64_t slot_bytes;              /* of all its slots for records */
    size_t chunks_mapped, chunks_free, bytes_mapped, bytes_free;    /* of memory */
    uint64_t next_sequence;
    ep_anchor birth;                  /* far from any window, for the slope of the clock */
    ep_shared_kinds kinds;
    _Atomic uint64_t unlogged[EP_KIND_COUNT];
    uint64_t left_out[EP_LEFT_OUT_COUNT];    /* by threads that ended */
    bool initialised;
} engine = {.lock = PTHREAD_MUTEX_INITIALIZER};

_Thread_local uint32_t ep_engine_inside;
size_t ep_engine_first_bytes;

static void
lock_engine(void)
{
    ep_engine_inside += 1;
    pthread_mutex_lock(&engine.lock);
}

static void
unlock_engine(void)
{
    pthread_mutex_unlock(&engine.lock);
    ep_engine_inside -= 1;
}

/* ---- Stacks of open calls -------------------------------------------------------------------- */

ep_status
ep_open_stack_copy(const ep_open_stack *from, ep_open_stack *to)
{
    if (from->depth == 0) {
        return EP_OK;
    }
    to->calls = ep_calloc(from->depth, sizeof *to->calls);
    if (to->calls == NULL) {
        return EP_NOMEM;
    }
    memcpy(to->calls, from->calls, from->depth * sizeof *to->calls);
    to->depth = to->capacity = from->depth;
    return EP_OK;
}

void
ep_open_stack_apply(ep_open_stack *stack, unsigned kind, uint32_t id)
{
    if (ep_kinds[kind].family != EP_FAMILY_CALL) {
        return;
    }
    if (ep_kinds[kind].pairing == EP_PAIRING_OPENS) {
        if (!ep_grow((void **)&stack->calls, &stack->capacity, stack->depth + 1,
                     sizeof *stack->calls)) {
            return;    /* this call's end will be unmatched, and counted as such */
        }
        stack->calls[stack->depth++] = (ep_open_call){.site_id = id, .kind = (uint8_t)kind};
        return;
    }
    /* A close without its open on top: either calls above it ended unseen (a C call whose return
     * the interpreter did not report), or its own open was before the window. */
    for (size_t i = stack->depth; i-- > 0;) {
        if (ep_site_callee(stack->calls[i].site_id) == id) {
            stack->depth = i;
            return;
        }
    }
}

/* ---- Recorders and chunks, under the lock ---------------------------------------------------- */

/* Returns: view into the recorder, or NULL without memory. */
static ep_window_thread *
window_thread(ep_recorder *recorder, uint64_t thread_id)
{
    if (thread_id >= recorder->thread_capacity &&
        !ep_grow((void **)&recorder->threads, &recorder->thread_capacity, thread_id + 1,
                 sizeof *recorder->threads)) {
        return NULL;
    }
    ep_window_thread **at = &recorder->threads[thread_id];
    if (*at == NULL) {
        *at = ep_calloc(1, sizeof **at);
    }
    return *at;
}

/* ep_open_stack_apply() for the call family, its usual cases inline. */
static inline void
apply_call(ep_open_stack *stack, unsigned kind, uint32_t id)
{
    size_t depth = stack->depth;
    if (ep_kinds_has(ep_kinds_that_open_calls, kind)) {
        if (EP_LIKELY(depth < stack->capacity)) {
            stack->calls[depth] = (ep_open_call){.site_id = id, .kind = (uint8_t)kind};
            stack->depth = depth + 1;
            return;
        }
    } else if (depth > 0 && ep_site_callee(stack->calls[depth - 1].site_id) == id) {
        stack->depth = depth - 1;
        return;
    }
    ep_open_stack_apply(stack, kind, id);
}

/* The bulk of count_lost(): a sealed chunk's records up to the next that is not an event, all of one
 * thread, none before the word-0 tick `first`. The writer waits meanwhile. ns an event of a full ring,
 * by sampling, with ep_cursor_next() and a call per open and close -> like this: 7.7 -> 4.2 (object
 * churn, allocations), 5.2 -> 2.7 (richards, calls). */
static void
count_plain(ep_cursor *cursor, ep_kind_set kinds, uint32_t first, bool fold, ep_window_thread *thread)
{
    uint32_t count[2][EP_KIND_COUNT] = {{0}};    /* two: one would be a chain through memory */
    const _Atomic uint64_t *at = cursor->at;
    for (size_t i = 0; at < cursor->limit; i++) {
        /* Relaxed: sealed. */
        uint64_t word0 = atomic_load_explicit(at, memory_order_relaxed);
        unsigned kind = EP_WORD0_KIND(word0);
        if (EP_UNLIKELY(EP_WORD0_TICKS(word0) < first)) {
            break;
        }
        if (kind - 1u <= EP_KIND_C_EXCEPTION - 1u) {
            if (fold && ep_kinds_has(kinds, kind)) {
                apply_call(&thread->open, kind, EP_WORD0_PAYLOAD(word0));
            }
            at += 1;
        } else if (kind - EP_KIND_MALLOC <= EP_KIND_REALLOC_FAILED_LIBC - EP_KIND_MALLOC) {
            at += 2;
        } else if (ep_kinds[kind].words != 0 && ep_kinds[kind].family != EP_FAMILY_CONTROL) {
            if (fold && ep_kinds_has(kinds & ep_kinds_of_calls, kind)) {
                apply_call(&thread->open, kind, EP_WORD0_PAYLOAD(word0));
            }
            at += ep_kinds[kind].words;
        } else {
            break;
        }
        count[i & 1][kind] += 1;
    }
    cursor->at = at;
    for (unsigned kind = 0; kind < EP_KIND_COUNT; kind++) {
        if (ep_kinds_has(kinds, kind)) {
            thread->lost[kind] += (uint64_t)count[0][kind] + count[1][kind];
        }
    }
}

/* Counts what `cursor` still yields of the window as lost: into the recorder, folding calls if
 * `fold`; or into `capture`, if that is not NULL. */
static void
count_lost(ep_recorder *recorder, ep_cursor cursor, bool fold, ep_capture *capture)
{
    bool running = recorder->state == EP_RECORDER_RUNNING;
    uint64_t start = recorder->start.ticks;
    uint64_t stop = capture != NULL ? capture->stop.ticks : running ? UINT64_MAX
                                                                    : recorder->stop.ticks;
    ep_record record = {0};
    ep_window_thread *thread = NULL;
    uint64_t thread_id = UINT64_MAX;
    for (;;) {
        if (thread != NULL && thread_id == cursor.thread_id && stop == UINT64_MAX && !cursor.live &&
            !cursor.escaped && cursor.high + UINT32_MAX >= start) {
            count_plain(&cursor, recorder->options.kinds,
                        start > cursor.high ? (uint32_t)(start - cursor.high) : 0, fold, thread);
        }
        if (!ep_cursor_next(&cursor, &record) || record.ticks > stop) {
            break;
        }
        if (record.ticks < start || !ep_record_is_for(&record, recorder->options.kinds)) {
            continue;
        }
        if (EP_UNLIKELY(cursor.thread_id != thread_id)) {
            thread_id = cursor.thread_id;
            thread = capture != NULL ? &capture->threads[thread_id]
                                     : window_thread(recorder, thread_id);
        }
        if (EP_UNLIKELY(thread == NULL)) {
            /* Of no thread, then. While it runs this is a baseline: less of it is more at stop. */
            recorder->unlogged[record.kind] += running ? UINT64_MAX : 1;
            continue;
        }
        thread->lost[record.kind] += 1;
        if (fold) {
            ep_open_stack_apply(&thread->open, record.kind, record.id);
        }
    }
}

static void make_child_file(void);
static void leave_cut_file(void);
static void seal_partial_chunk(ep_chunk *partial);
static void unmap_chunk(ep_chunk *chunk);
static void forget_copy(ep_chunk *chunk);

static bool
is_file_in_use(const ep_file *file)
{
    /* A forked child's recorder still has its parent's file until it makes its own. */
    return engine.filer != NULL && !engine.filer_is_child && engine.filer->file == file;
}

static unsigned
class_of(size_t bytes)
{
    return (unsigned)(63 - __builtin_clzll(bytes / EP_CHUNK_BYTES_MIN));
}

static void
release_chunk(ep_chunk *chunk)
{
    if (--chunk->refs > 0) {
        return;
    }
    if (chunk->rest != NULL) {
        seal_partial_chunk(chunk);    /* comes back here */
        return;
    }
    if (atomic_load_explicit(&chunk->header->state, memory_order_relaxed) != EP_CHUNK_SEALED) {
        return;    /* its owner's, until that seals it */
    }
    if (chunk->file != NULL && !is_file_in_use(chunk->file)) {
        unmap_chunk(chunk);    /* that file is done, and stays as it is */
        return;
    }
    ep_chunk **list =
        &(chunk->file != NULL ? engine.free_slots : engine.free_chunks)[class_of(chunk->bytes)];
    atomic_store_explicit(&chunk->header->state, EP_CHUNK_FREE, memory_order_release);
    EP_FAULT_POINT(RECYCLE);
    forget_copy(chunk);
    chunk->next = *list;
    *list = chunk;
    if (chunk->file == NULL) {
        engine.chunks_free += 1;
        engine.bytes_free += chunk->bytes;
    }
}

/* ---- The log file of a recorder, under the lock ---------------------------------------------- */

static void
put_file_state(ep_recorder *recorder, uint64_t dropped_sequence)
{
    if (!engine.filer_is_child) {
        ep_file_put_state(recorder->file, dropped_sequence, recorder->threads,
                          recorder->thread_capacity);
    }
}

static bool
keeps(const ep_recorder *recorder, const ep_chunk *chunk)
{
    for (size_t i = recorder->kept_first; i < recorder->kept_end; i++) {
        if (recorder->kept[i] == chunk) {
            return true;
        }
    }
    return false;
}

/* The words of a chunk, sealed or so far; 0: none of them is of the recorder's window. */
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
chunk_bytes_for(size_t least)
{
    size_t bytes = ep_os_page_bytes();
    while (bytes < least && bytes < EP_CHUNK_BYTES) {
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
    memcpy(copy + 1, chunk->header + 1, words * 8);
    copy->used_words = words;
    copy->sum = ep_sum64(copy + 1, words * 8);
    atomic_store_explicit(&copy->state, EP_CHUNK_SEALED, memory_order_relaxed);
    /* Release, and last: from here on a reader takes it. */
    atomic_store_explicit(&copy->wanted, 1, memory_order_release);
    return copy;
}

/* A chunk of memory, or of a file of before, that was in use when the recorder started: a thread that
 * holds no lock of the runtime's may have written there once more. Sealed, or its records so far. */
static void
copy_to_file(ep_recorder *recorder, ep_chunk *chunk)
{
    size_t words = words_of_window(recorder, chunk);
    if (words == 0 || chunk->copy_file == recorder->file) {
        return;
    }
    forget_copy(chunk);    /* in a file of before */
    ep_chunk_header *copy = write_copy(recorder, chunk, words);
    if (copy == NULL) {
        return;
    }
    chunk->copy = copy;
    chunk->copy_file = ep_file_hold(recorder->file);
}

static void
forget_copy(ep_chunk *chunk)
{
    if (chunk->copy != NULL) {
        ep_os_unmap(chunk->copy, chunk->copy->bytes);
        ep_file_release(chunk->copy_file);
        chunk->copy = NULL;
        chunk->copy_file = NULL;
    }
}

/* The recorder dropped it, and counted what was in it. */
static void
drop_from_file(ep_recorder *recorder, ep_chunk *chunk)
{
    ep_chunk_header *header = chunk->file == recorder->file        ? chunk->header
                              : chunk->copy_file == recorder->file ? chunk->copy
                                                                   : NULL;
    /* First the state, which names the chunk: after a kill in between it is not counted twice. */
    EP_FAULT_POINT(DROP);
    put_file_state(recorder, chunk->sequence);
    EP_FAULT_POINT(DROPPED);
    if (header != NULL) {
        atomic_store_explicit(&header->wanted, 0, memory_order_release);
    }
    EP_FAULT_POINT(UNWANTED);
}

/* No log goes on where it is. Those that are there may be met once more: by a thread that holds no
 * lock of the runtime's. */
static void
leave_chunks(void)
{
    while (engine.partial_chunks != NULL) {
        seal_partial_chunk(engine.partial_chunks);
    }
    for (ep_log *log = engine.logs; log != NULL; log = log->next_log) {
        _Atomic uint64_t *first =
            log->chunk != NULL ? (_Atomic uint64_t *)(log->chunk->header + 1) : log->scratch;
        atomic_store_explicit(&log->end, first, memory_order_relaxed);
    }
}

/* No log goes on in a chunk that is larger: what it has room for would be more than a new recorder is to
 * keep. */
static void
leave_large_chunks(size_t bytes)
{
    for (ep_log *log = engine.logs; log != NULL; log = log->next_log) {
        if (log->chunk != NULL && log->chunk->bytes > bytes) {
            atomic_store_explicit(&log->end, (_Atomic uint64_t *)(log->chunk->header + 1),
                                  memory_order_relaxed);
        }
    }
    for (ep_chunk *chunk = engine.partial_chunks, *next; chunk != NULL; chunk = next) {
        next = chunk->next;
        if (chunk->bytes > bytes) {
            seal_partial_chunk(chunk);
        }
    }
}

/* `next`: the first unused word. After this nobody writes there. */
static void
seal_chunk(ep_chunk *chunk, const _Atomic uint64_t *next)
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
    for (ep_recorder *r = engine.recorders; r != NULL; r = r->next) {
        if (chunk->sequence >= r->full_sequence) {
            count_lost(r, ep_cursor_begin(header), false, NULL);
            if (r == engine.filer) {
                put_file_state(r, UINT64_MAX);
            }
        }
    }
    if (engine.filer != NULL && chunk->file != engine.filer->file && !engine.filer_is_child &&
        keeps(engine.filer, chunk)) {
        copy_to_file(engine.filer, chunk);
    }
    chunk->refs += 1;    /* so that release() sees the last one go */
    release_chunk(chunk);
}

static void
seal_partial_chunk(ep_chunk *partial)
{
    for (ep_chunk **at = &engine.partial_chunks; *at != NULL; at = &(*at)->next) {
        if (*at == partial) {
            *at = partial->next;
            break;
        }
    }
    _Atomic uint64_t *rest = partial->rest;
    partial->rest = NULL;
    seal_chunk(partial, rest);
}

/* What a chunk that the recorder keeps counts against its limit. */
static uint64_t
charge_of(const ep_recorder *recorder, const ep_chunk *chunk)
{
    return chunk->sequence >= recorder->first_sequence ? chunk->bytes : 0;
}

/* The oldest chunk that nobody writes any more. False if there is none. */
static bool
drop_oldest(ep_recorder *recorder)
{
    for (size_t i = recorder->kept_first; i < recorder->kept_end; i++) {
        ep_chunk *chunk = recorder->kept[i];
        if (chunk->rest != NULL) {
            seal_partial_chunk(chunk);
        }
        if (atomic_load_explicit(&chunk->header->state, memory_order_relaxed) != EP_CHUNK_SEALED) {
            continue;
        }
        count_lost(recorder, ep_cursor_begin(chunk->header), true, NULL);
        if (recorder == engine.filer) {
            drop_from_file(recorder, chunk);
        }
        memmove(&recorder->kept[recorder->kept_first + 1], &recorder->kept[recorder->kept_first],
                (i - recorder->kept_first) * sizeof *recorder->kept);
        recorder->kept_first += 1;
        recorder->charged_bytes -= charge_of(recorder, chunk);
        release_chunk(chunk);
        return true;
    }
    return false;
}

static void
become_full(ep_recorder *recorder, uint64_t ticks, ep_full_reason reason)
{
    if (recorder->full_reason == EP_FULL_NOT) {
        recorder->full_reason = reason;
        recorder->full_ticks = ticks - 1;
        recorder->full_sequence = engine.next_sequence;
        if (recorder == engine.filer && !engine.filer_is_child) {
            ep_file_header *header = ep_file_get_header(recorder->file);
            header->full_ticks = recorder->full_ticks;
            atomic_store_explicit(&header->full_reason, reason, memory_order_release);
            ep_ahead_use_file(NULL);
        }
    }
}

static uint64_t
limit_of(const ep_recorder *recorder)
{
    uint64_t limit = recorder->options.limit_bytes;
    return limit > EP_LIMIT_BYTES_MIN ? limit : EP_LIMIT_BYTES_MIN;
}

/* The largest size of a chunk that is no more than `room`; the smallest one, if all are. */
static size_t
chunk_bytes_in(uint64_t room)
{
    size_t bytes = ep_os_page_bytes();
    while (bytes < EP_CHUNK_BYTES && 2 * bytes <= room) {
        bytes *= 2;
    }
    return bytes;
}

/* The largest chunk for a thread of those that live: one of 1 MiB for each would be most of a small buffer,
 * and of no use to the others. */
static size_t
largest_chunk(const ep_recorder *recorder)
{
    size_t threads = engine.log_count > 0 ? engine.log_count : 1;
    return recorder->options.on_full == EP_ON_FULL_GROW || ep_engine_first_bytes > 0
               ? EP_CHUNK_BYTES
               : chunk_bytes_in(limit_of(recorder) / (LIMIT_PARTS * threads));
}

/* Makes up its mind about one chunk more, of *bytes or, if that is too much, of less, for a record at
 * `ticks`. `first`: the thread has none, and gets one of the smallest in any case. */
static void
apply_limit(ep_recorder *recorder, uint64_t ticks, bool first, size_t *bytes)
{
    if (recorder->options.on_full == EP_ON_FULL_GROW) {
        return;
    }
    size_t largest = largest_chunk(recorder);
    *bytes = *bytes < largest ? *bytes : largest;
    uint64_t limit = limit_of(recorder);
    bool overwrites = recorder->options.on_full == EP_ON_FULL_OVERWRITE;
    /* Until none is left that nobody writes. */
    while (overwrites && recorder->charged_bytes + *bytes > limit && drop_oldest(recorder)) {
    }
    if (recorder->charged_bytes + *bytes <= limit) {
        return;
    }
    uint64_t room = recorder->charged_bytes < limit ? limit - recorder->charged_bytes : 0;
    *bytes = chunk_bytes_in(room);
    if (*bytes > room && !overwrites && !first) {
        become_full(recorder, ticks, EP_FULL_LIMIT);
    }
}

/* Whether it keeps the chunks that are opened now. */
static bool
takes_chunks(const ep_recorder *recorder)
{
    return recorder->state == EP_RECORDER_RUNNING && recorder->full_reason == EP_FULL_NOT;
}

/* Appends; chunks are opened in order of sequence. Fails: false, nothing changed. */
static bool
keep_chunk(ep_recorder *recorder, ep_chunk *chunk)
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
    if (recorder == engine.filer && chunk->file != NULL && chunk->file == recorder->file) {
        /* Release: its header is whole. */
        atomic_store_explicit(&chunk->header->wanted, 1, memory_order_release);
    }
    return true;
}

/* Whether chunks are made ready for the file ahead of need: what is ready counts, too. */
static bool
has_room_ahead(const ep_recorder *recorder)
{
    return recorder->options.on_full == EP_ON_FULL_GROW ||
           engine.slot_bytes + EP_AHEAD_BYTES <= limit_of(recorder);
}

/* Returns: NULL without memory, or room on the disk. */
static ep_chunk *
map_chunk(size_t bytes, ep_recorder *filer)
{
    ep_chunk *chunk = ep_calloc(1, sizeof *chunk);
    if (chunk == NULL) {
        return NULL;
    }
    if (bytes == EP_CHUNK_BYTES && (filer == NULL || has_room_ahead(filer))) {
        chunk->header = ep_ahead_take();
    }
    if (chunk->header == NULL) {
        chunk->header = filer != NULL ? ep_file_take_slot(filer->file, bytes) : ep_os_map(bytes);
    }
    if (chunk->header == NULL) {
        free(chunk);
        return NULL;
    }
    chunk->bytes = (uint32_t)bytes;
    if (filer != NULL) {
        chunk->file = ep_file_hold(filer->file);
        engine.slot_bytes += bytes;
    } else {
        engine.chunks_mapped += 1;
        engine.bytes_mapped += bytes;
    }
    return chunk;
}

static void
unmap_chunk(ep_chunk *chunk)
{
    ep_os_unmap(chunk->header, chunk->bytes);
    if (chunk->file == NULL) {
        engine.chunks_mapped -= 1;
        engine.bytes_mapped -= chunk->bytes;
    }
    ep_file_release(chunk->file);
    forget_copy(chunk);
    free(chunk);
}

/* Returns: NULL if there is none of that size. */
static ep_chunk *
pop_free_chunk(unsigned class)
{
    ep_chunk *chunk = engine.free_chunks[class];
    if (chunk != NULL) {
        engine.free_chunks[class] = chunk->next;
        engine.chunks_free -= 1;
        engine.bytes_free -= chunk->bytes;
    }
    return chunk;
}

static ep_chunk *
pop_free_slot(unsigned class)
{
    ep_chunk *chunk = engine.free_slots[class];
    if (chunk != NULL) {
        engine.free_slots[class] = chunk->next;
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
    for (unsigned i = class + 1; chunk == NULL && i < CLASS_COUNT; i++) {
        chunk = pop(i);
    }
    return chunk;
}

static void
trim_free_chunks(size_t spare_bytes)
{
    for (unsigned class = CLASS_COUNT; class --> 0;) {
        ep_chunk *chunk;
        while (engine.bytes_free > spare_bytes && (chunk = pop_free_chunk(class)) != NULL) {
            unmap_chunk(chunk);
        }
    }
}

/* A slot of the file, if somebody records into one. */
static ep_chunk *
find_slot(uint64_t ticks, size_t bytes)
{
    if (engine.filer != NULL && engine.filer_is_child) {
        make_child_file();
    }
    if (engine.filer != NULL && ep_file_is_cut(engine.filer->file)) {
        leave_cut_file();
    }
    ep_recorder *recorder = engine.filer;
    if (recorder == NULL || !takes_chunks(recorder)) {
        return NULL;
    }
    unsigned class = class_of(bytes);
    ep_chunk *chunk = pop_free_slot(class);
    if (chunk == NULL && recorder->options.on_full != EP_ON_FULL_GROW &&
        engine.slot_bytes + bytes > limit_of(recorder)) {
        /* What was dropped has other sizes. */
        chunk = pop_nearest(pop_free_slot, class);
    }
    size_t smallest = ep_os_page_bytes();
    for (size_t less = bytes; chunk == NULL && less >= smallest; less /= 2) {
        chunk = map_chunk(less, recorder);    /* what is left of a disk */
    }
    if (chunk == NULL) {
        chunk = pop_nearest(pop_free_slot, class);
    }
    if (chunk == NULL && recorder->options.on_full == EP_ON_FULL_OVERWRITE) {
        recorder->limits |= EP_LIMIT_SMALL_DISK;
        atomic_fetch_or_explicit(&ep_file_get_header(recorder->file)->limits, EP_LIMIT_SMALL_DISK,
                                 memory_order_relaxed);
        while (chunk == NULL && drop_oldest(recorder)) {
            chunk = pop_nearest(pop_free_slot, class);
        }
    }
    if (chunk == NULL) {
        become_full(recorder, ticks, EP_FULL_DISK);
    }
    return chunk;
}

/* Unmaps free chunks of other sizes, up to as many bytes as are to be mapped. */
static void
make_way(size_t bytes)
{
    trim_free_chunks(engine.bytes_free > bytes ? engine.bytes_free - bytes : 0);
}

/* A chunk for the next records, after every recorder made up its mind about its limit; of `bytes`, or of
 * less. `first`: the thread has none yet, so it gets one beyond the limit. Returns: NULL without memory. */
static ep_chunk *
find_chunk(uint64_t ticks, size_t bytes, bool first)
{
    for (ep_recorder *r = engine.recorders; r != NULL; r = r->next) {
        if (takes_chunks(r)) {
            apply_limit(r, ticks, first, &bytes);
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
    for (ep_recorder *r = engine.recorders; r != NULL; r = r->next) {
        if (!takes_chunks(r)) {
            continue;
        }
        if (r->options.on_full != EP_ON_FULL_OVERWRITE) {
            become_full(r, ticks, EP_FULL_NOMEM);
            continue;
        }
        while (engine.chunks_free == 0 && drop_oldest(r)) {
        }
    }
    return pop_nearest(pop_free_chunk, class);
}

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

static void
use_scratch(ep_log *log, uint64_t ticks)
{
    log->chunk = NULL;
    write_into(log, log->scratch, log->scratch + EP_SCRATCH_WORDS - EP_CHUNK_SLACK_WORDS, ticks);
    /* The high half is found by a SYNC, as for any reader that enters in the middle. */
    log->high = ~log->high;
}

static void
use_chunk(ep_log *log, ep_chunk *chunk, uint64_t ticks)
{
    ep_chunk_header *header = chunk->header;
    /* It said FREE before anything of it changes: after a kill, too. */
    atomic_thread_fence(memory_order_release);
    header->magic = EP_CHUNK_MAGIC;
    header->bytes = chunk->bytes;
    header->sequence = chunk->sequence = engine.next_sequence++;
    header->thread_id = log->thread->id;
    header->opened = ep_clock_anchor();
    header->used_words = 0;
    header->resident_bytes = ep_os_resident_bytes();
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
    for (ep_recorder *r = engine.recorders; r != NULL; r = r->next) {
        /* A stopped one: the thread read the clock before the stop, and came here after it. */
        bool wanted = r->state == EP_RECORDER_RUNNING || ticks <= r->stop.ticks;
        if (wanted && r->full_reason == EP_FULL_NOT && !keep_chunk(r, chunk)) {
            become_full(r, ticks, EP_FULL_NOMEM);
            r->full_sequence = chunk->sequence;
        }
    }
    EP_FAULT_POINT(KEPT);
}

/* What is left of a dead thread's chunk. */
static void
use_partial(ep_log *log, ep_chunk *chunk, uint64_t ticks)
{
    engine.partial_chunks = chunk->next;
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
    log->high = ~log->high;    /* the other thread's high half is not ours: a SYNC comes first */
}

static void
count_scratch(ep_recorder *recorder, const ep_log *log, ep_capture *capture)
{
    if (log->closed) {
        return;    /* counted when the clock changed */
    }
    ep_cursor cursor = {.at = log->scratch,
                        .limit = log->scratch + EP_SCRATCH_WORDS - 1,
                        .thread_id = log->thread->id,
                        .live = true};
    count_lost(recorder, cursor, false, capture);
}

/* The records of a log that has no chunk are counted now; they will be overwritten. */
static void
empty_scratch(const ep_log *log)
{
    for (ep_recorder *r = engine.recorders; r != NULL; r = r->next) {
        count_scratch(r, log, NULL);
        if (r == engine.filer) {
            put_file_state(r, UINT64_MAX);
        }
    }
}

/* What a recorder lost in places that are not sealed yet; at sealing it is counted for good. */
static void
count_unsealed(ep_recorder *recorder, ep_capture *capture)
{
    for (ep_log *log = engine.logs; log != NULL; log = log->next_log) {
        if (log->chunk == NULL) {
            count_scratch(recorder, log, capture);
        } else if (log->chunk->sequence >= recorder->full_sequence) {
            count_lost(recorder, ep_cursor_begin(log->chunk->header), false, capture);
        }
    }
    for (ep_chunk *chunk = engine.partial_chunks; chunk != NULL; chunk = chunk->next) {
        if (chunk->sequence >= recorder->full_sequence) {
            count_lost(recorder, ep_cursor_begin(chunk->header), false, capture);
        }
    }
}

/* What it lost, and the calls open where its records begin, by thread; counted up to now. */
static ep_status
capture_threads(ep_recorder *recorder, ep_capture *capture)
{
    size_t thread_count = engine.thread_count + 1;
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
                atomic_load_explicit(&engine.unlogged[kind], memory_order_relaxed) - unlogged;
        }
        if (ep_kinds_has(recorder->options.kinds, (unsigned)kind)) {
            capture->threads[0].lost[kind] += unlogged;
        }
    }
    if (!recorder->settled) {
        count_unsealed(recorder, capture);
    }
    return EP_OK;
}

static void
free_capture_threads(ep_capture *capture)
{
    for (size_t i = 0; i < capture->thread_count; i++) {
        free(capture->threads[i].open.calls);
    }
    free(capture->threads);
    capture->threads = NULL;
    capture->thread_count = 0;
}

static void
unlink_recorder(ep_recorder *recorder)
{
    for (ep_recorder **at = &engine.recorders; *at != NULL; at = &(*at)->next) {
        if (*at == recorder) {
            *at = recorder->next;
            return;
        }
    }
}

/* From here on a stopped recorder has nothing to do with what is written. */
static void
settle_recorder(ep_recorder *recorder)
{
    count_unsealed(recorder, NULL);
    recorder->settled = true;
    unlink_recorder(recorder);
}

static size_t
first_bytes(void)
{
    return ep_engine_first_bytes > 0 ? ep_engine_first_bytes : ep_os_page_bytes();
}

/* Twice as large after one that was full, half after one that was left half empty. */
static void
choose_next_size(ep_log *log)
{
    uint32_t bytes = log->chunk->bytes;
    size_t used = (size_t)(log->next - (_Atomic uint64_t *)(log->chunk->header + 1)) * 8;
    log->next_bytes = used >= bytes / 2       ? bytes < EP_CHUNK_BYTES ? 2 * bytes : bytes
                      : bytes > first_bytes() ? bytes / 2
                                              : bytes;
}

void
ep_log_next_chunk(ep_log *log, uint64_t ticks)
{
    int error = errno;    /* the program's: we are inside of somebody's call */
    lock_engine();
    bool first = log->next_bytes == 0;
    if (log->chunk != NULL) {
        choose_next_size(log);
        ep_chunk *full = log->chunk;
        const _Atomic uint64_t *next = log->next;
        /* It may be unmapped now. Nothing is in the scratch, so that nobody counts it. */
        use_scratch(log, ticks);
        seal_chunk(full, next);
    } else {
        empty_scratch(log);
    }
    ep_chunk *chunk = find_chunk(ticks, first ? first_bytes() : log->next_bytes, first);
    if (chunk != NULL) {
        use_chunk(log, chunk, ticks);
    } else {
        use_scratch(log, ticks);
    }
    unlock_engine();
    errno = error;
}

/* ---- Threads --------------------------------------------------------------------------------- */

/* Returns: immortal, or NULL without memory. */
static ep_thread *
new_thread(uint64_t native_id)
{
    if (!ep_grow((void **)&engine.threads, &engine.thread_capacity, engine.thread_count + 1,
                 sizeof *engine.threads)) {
        return NULL;
    }
    ep_thread *thread = ep_calloc(1, sizeof *thread);
    if (thread == NULL) {
        return NULL;
    }
    thread->id = (uint32_t)engine.thread_count + 1;
    thread->native_id = native_id;
    engine.threads[engine.thread_count++] = thread;
    if (ep_file_wants_texts()) {
        ep_file_put_thread(thread);
    }
    return thread;
}

/* From the newest: the system gives ids of dead threads again. */
static ep_thread *
find_thread(uint64_t native_id)
{
    for (size_t i = engine.thread_count; i-- > 0;) {
        ep_thread *thread = engine.threads[i];
        if (thread->native_id == native_id) {
            return atomic_load_explicit(&thread->exited, memory_order_relaxed) ? NULL : thread;
        }
    }
    return NULL;
}

/* The calling thread's entry: one that a recorder's start expected, or a new one. */
static ep_thread *
register_thread(void)
{
    uint64_t native_id = ep_os_thread_id();
    ep_thread *thread = engine.expected_count > 0 ? find_thread(native_id) : NULL;
    if (thread != NULL && !thread->attached) {
        engine.expected_count -= 1;
    } else {
        thread = new_thread(native_id);
    }
    if (thread != NULL) {
        thread->attached = true;
    }
    return thread;
}

static void give_back_log(ep_log *log);

/* A thread that was first heard of in the last round of its destructors never came back with its log.
 * Looked for whenever there are twice as many logs as the last time left: so they are at most half of
 * all, and a program of few threads pays nothing. */
static void
give_back_dead_logs(void)
{
    if (engine.log_count < engine.look_at || engine.log_count < MANY_LOGS) {
        return;
    }
    for (ep_log *log = engine.logs, *next; log != NULL; log = next) {
        next = log->next_log;
        if (!ep_os_thread_lives(log->thread->native_id)) {
            give_back_log(log);
        }
    }
    engine.look_at = 2 * engine.log_count;
}

static ep_log *
attach(void)
{
    /* After the last round nobody would give the log back. */
    ep_log *log = ep_os_thread_exit_over() ? NULL : ep_calloc(1, sizeof *log);
    if (log == NULL) {
        return NULL;
    }
    log->fresh = EP_FRESH_NAMELESS;
    uint64_t ticks = ep_clock_ticks();
    lock_engine();
    give_back_dead_logs();
    log->thread = register_thread();
    if (log->thread == NULL) {
        unlock_engine();
        free(log);
        return NULL;
    }
    if (log->thread->doubted_count != 0) {
        log->fresh |= EP_FRESH_DOUBTED;
    }
    log->next_log = engine.logs;
    engine.logs = log;
    engine.log_count += 1;
    EP_FAULT_POINT(ATTACH);
    ep_chunk *chunk;
    if (engine.partial_chunks != NULL) {
        use_partial(log, engine.partial_chunks, ticks);
    } else if ((chunk = find_chunk(ticks, first_bytes(), true)) != NULL) {
        use_chunk(log, chunk, ticks);
    } else {
        use_scratch(log, ticks);
    }
    unlock_engine();
    ep_log_current = log;
    ep_os_thread_exit_set(log);
    return log;
}

ep_log *
ep_log_attach(void)
{
    int error = errno;
    ep_engine_inside += 1;
    ep_log *log = attach();
    ep_engine_inside -= 1;
    errno = error;
    return log;
}

static void
unlink_log(ep_log *log)
{
    for (ep_log **at = &engine.logs; *at != NULL; at = &(*at)->next_log) {
        if (*at == log) {
            *at = log->next_log;
            engine.log_count -= 1;
            return;
        }
    }
}

static void
add_left_out(const ep_log *log, uint64_t *counts)
{
    for (int i = 0; i < EP_LEFT_OUT_COUNT; i++) {
        counts[i] += atomic_load_explicit(&log->gate.left_out[i], memory_order_relaxed);
    }
}

static void
free_log(ep_log *log)
{
    add_left_out(log, engine.left_out);
    free(log->gate.calls);
    free(log);
}

void
ep_engine_left_out(uint64_t *counts)
{
    lock_engine();
    memcpy(counts, engine.left_out, sizeof engine.left_out);
    for (const ep_log *log = engine.logs; log != NULL; log = log->next_log) {
        add_left_out(log, counts);
    }
    unlock_engine();
}

void
ep_engine_alone(void (*then)(void *), void *context)
{
    lock_engine();
    then(context);
    unlock_engine();
}

ep_anchor
ep_engine_birth(void)
{
    lock_engine();
    ep_anchor birth = engine.birth;
    unlock_engine();
    return birth;
}

/* Its owner is no more, or in its last moments. */
static void
give_back_log(ep_log *log)
{
    /* Below zero if the log was closed. */
    ptrdiff_t left = atomic_load_explicit(&log->end, memory_order_relaxed) - log->next;
    if (log->chunk == NULL) {
        empty_scratch(log);
    } else if (log->chunk->refs > 0 && left >= PARTIAL_MIN_WORDS) {
        log->chunk->rest = log->next;
        log->chunk->next = engine.partial_chunks;
        engine.partial_chunks = log->chunk;
    } else {
        seal_chunk(log->chunk, log->next);
    }
    unlink_log(log);
    atomic_store_explicit(&log->thread->exited, true, memory_order_relaxed);
    if (engine.running_count == 0) {
        trim_free_chunks(SPARE_BYTES_WHEN_IDLE);
    }
    free_log(log);
}

static void
on_thread_exit(void *value)
{
    ep_log_current = NULL;    /* what still allocates on this thread gets a log anew, see attach */
    lock_engine();
    EP_FAULT_POINT(DETACH);
    give_back_log(value);
    unlock_engine();
}

void
ep_thread_set_name(ep_thread *thread, ep_text name)
{
    if (atomic_load_explicit(&thread->named, memory_order_relaxed) || name.at == NULL) {
        return;
    }
    size_t bytes = name.bytes < EP_THREAD_NAME_BYTES - 1 ? name.bytes : EP_THREAD_NAME_BYTES - 1;
    while (bytes < name.bytes && bytes > 0 && ((unsigned char)name.at[bytes] & 0xC0) == 0x80) {
        bytes -= 1;    /* cut between characters */
    }
    memcpy(thread->name, name.at, bytes);
    thread->name[bytes] = 0;
    atomic_store_explicit(&thread->named, true, memory_order_release);
    /* Without a look whether a file wants it: one that begins now could miss the name, and we it. */
    ep_file_put_thread(thread);
}

const ep_thread *
ep_engine_thread_locked(uint32_t id)
{
    return id > 0 && id <= engine.thread_count ? engine.threads[id - 1] : NULL;
}

const ep_thread *
ep_engine_thread(uint32_t id)
{
    lock_engine();
    const ep_thread *thread = ep_engine_thread_locked(id);
    unlock_engine();
    return thread;
}

ep_thread *
ep_engine_thread_by_native_id(uint64_t native_id, bool expect)
{
    lock_engine();
    ep_thread *thread = find_thread(native_id);
    if (thread == NULL && expect) {
        thread = new_thread(native_id);
        engine.expected_count += thread != NULL;
    }
    unlock_engine();
    return thread;
}

ep_thread_place
ep_engine_place_of(const ep_thread *thread)
{
    ep_thread_place place = {0};
    lock_engine();
    for (const ep_log *log = engine.logs; log != NULL; log = log->next_log) {
        if (log->thread == thread) {
            place = (ep_thread_place){.busy = log->busy != 0, .next = log->next};
            break;
        }
    }
    unlock_engine();
    return place;
}

/* ---- Calls at their entry -------------------------------------------------------------------- */

void
ep_engine_doubt(ep_thread *thread, const void *frame, uint32_t site)
{
    uint32_t i = 0;
    while (i < thread->doubted_count && thread->doubted[i].frame != frame) {
        i++;
    }
    if (i == EP_DOUBTED_MAX) {
        return;
    }
    thread->doubted[i].frame = frame;
    thread->doubted[i].site = site;
    thread->doubted_count += i == thread->doubted_count;
    lock_engine();
    for (ep_log *log = engine.logs; log != NULL; log = log->next_log) {
        if (log->thread == thread) {
            log->fresh |= EP_FRESH_DOUBTED;
        }
    }
    unlock_engine();
}

/* The innermost doubted call of `site`: inner ones are settled first. */
static void
settle_open(ep_open_stack *open, uint32_t site, bool begins)
{
    for (size_t i = open->depth; i-- > 0;) {
        ep_open_call *call = &open->calls[i];
        if (call->doubted && call->site_id == site) {
            call->doubted = false;
            if (begins) {
                open->depth -= 1;
                memmove(call, call + 1, (open->depth - i) * sizeof *call);
            }
            return;
        }
    }
}

void
ep_engine_settle(ep_thread *thread, uint32_t index, bool begins)
{
    uint32_t site = thread->doubted[index].site;
    thread->doubted_count -= 1;
    memmove(&thread->doubted[index], &thread->doubted[index + 1],
            (thread->doubted_count - index) * sizeof *thread->doubted);
    lock_engine();
    for (ep_recorder *r = engine.recorders; r != NULL; r = r->next) {
        if (r->state == EP_RECORDER_RUNNING && thread->id < r->thread_capacity &&
            r->threads[thread->id] != NULL) {
            settle_open(&r->threads[thread->id]->open, site, begins);
            if (begins && r == engine.filer) {
                put_file_state(r, UINT64_MAX);
            }
        }
    }
    unlock_engine();
    if (begins) {
        ep_gate_begin_again(ep_log_current, site);
    }
}

/* ---- Start, stop ----------------------------------------------------------------------------- */

ep_kind_set
ep_engine_kinds(void)
{
    return ep_shared_kinds_get(&engine.kinds);
}

void
ep_engine_count_unlogged(ep_kind kind)
{
    atomic_fetch_add_explicit(&engine.unlogged[kind], 1, memory_order_relaxed);
}

static void
update_kinds(void)
{
    ep_kind_set kinds = 0;
    for (ep_recorder *r = engine.recorders; r != NULL; r = r->next) {
        kinds |= r->state == EP_RECORDER_RUNNING ? r->options.kinds : 0;
    }
    ep_shared_kinds_set(&engine.kinds, kinds);
}

void
ep_recorder_init(ep_recorder *recorder, const ep_recorder_options *options)
{
    *recorder = (ep_recorder){
        .options = *options, .full_ticks = UINT64_MAX, .full_sequence = UINT64_MAX};
}

static int
by_sequence(const void *a, const void *b)
{
    uint64_t x = (*(ep_chunk *const *)a)->sequence;
    uint64_t y = (*(ep_chunk *const *)b)->sequence;
    return (x > y) - (x < y);
}

static void
release_kept(ep_recorder *recorder)
{
    while (recorder->kept_first < recorder->kept_end) {
        release_chunk(recorder->kept[recorder->kept_first++]);
    }
    recorder->kept_first = recorder->kept_end = 0;
    recorder->charged_bytes = 0;
}

static void
begin_file(ep_recorder *recorder)
{
    ep_file_header *header = ep_file_get_header(recorder->file);
    ep_file_set_kinds(header, recorder->options.kinds);
    header->clock_mode = ep_clock_current;
    header->only_thread = recorder->file_thread;
    header->step_ticks = ep_clock_step_ticks();
    header->birth = engine.birth;
    header->start = recorder->start;
    header->start_realtime_ns = recorder->start_realtime_ns;
    header->start_boottime_ns =
        ep_os_boottime_ns() - ep_os_monotonic_ns() + recorder->start.monotonic_ns;
    header->start_resident_bytes = recorder->start_resident_bytes;
    header->beats[0] = recorder->start;
    atomic_store_explicit(&header->phase, EP_FILE_RECORDING, memory_order_release);
}

static void
put_all_threads(void)
{
    const ep_thread *thread;
    for (uint32_t id = 1; (thread = ep_engine_thread_locked(id)) != NULL; id++) {
        ep_file_put_thread(thread);
    }
}

/* Under the lock: names, sites and threads are written to the file from here on, and all that there are. */
static void
begin_texts(ep_file *file)
{
    ep_file_begin_texts(file);
    put_all_threads();
}

/* A forked child's file is made when it has something to say: many a child just becomes another
 * program. */
static void
make_child_file(void)
{
    ep_recorder *recorder = engine.filer;
    ep_file *file = ep_file_create_for_child(recorder->file);
    ep_file_release(recorder->file);
    recorder->file = file;
    recorder->limits = 0;
    engine.filer_is_child = false;
    if (file == NULL) {
        engine.filer = NULL;    /* in memory, then, as if there was no file */
        return;
    }
    EP_FAULT_POINT(FORK_FILE);
    begin_texts(file);
    ep_ahead_use_file(file);
    begin_file(recorder);
    put_file_state(recorder, UINT64_MAX);
}

static void
unmap_free_slots(void)
{
    for (unsigned class = 0; class < CLASS_COUNT; class ++) {
        ep_chunk *chunk;
        while ((chunk = pop_free_slot(class)) != NULL) {
            unmap_chunk(chunk);
        }
    }
    engine.slot_bytes = 0;
}

/* The header of a chunk of a file that others cut: where it was is nothing, and what was behind is gone. */
static void
mend_header(ep_chunk *chunk)
{
    ep_chunk_header *header = chunk->header;
    if (header->magic == EP_CHUNK_MAGIC) {
        return;
    }
    const ep_log *writer = engine.logs;
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

/* Somebody else made the file shorter. It is left as it is; what comes is kept in memory. */
static void
leave_cut_file(void)
{
    ep_recorder *recorder = engine.filer;
    recorder->limits |= EP_LIMIT_CUT;
    ep_file_end_texts();
    ep_ahead_use_file(NULL);
    for (size_t i = recorder->kept_first; i < recorder->kept_end; i++) {
        if (recorder->kept[i]->file == recorder->file) {
            mend_header(recorder->kept[i]);
        }
    }
    for (ep_log *log = engine.logs; log != NULL; log = log->next_log) {
        if (log->chunk != NULL && log->chunk->file == recorder->file) {
            mend_header(log->chunk);
        }
    }
    leave_chunks();
    engine.filer = NULL;
    unmap_free_slots();
}

/* With what is counted when a chunk is sealed, which is not yet, and what found no room on the disk:
 * chunks that `unwritten` says, by their place among those kept; NULL: none. */
static void
put_final_state(ep_recorder *recorder, const bool *unwritten)
{
    ep_capture capture = {.stop = recorder->stop};
    if (capture_threads(recorder, &capture) == EP_OK) {
        for (size_t i = recorder->kept_first; unwritten != NULL && i < recorder->kept_end; i++) {
            if (unwritten[i - recorder->kept_first]) {
                count_lost(recorder, ep_cursor_begin(recorder->kept[i]->header), false, &capture);
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
    free_capture_threads(&capture);
}

/* What is left of it says what it lacks. */
static void
end_cut_file(ep_recorder *recorder)
{
    size_t count = recorder->kept_end - recorder->kept_first;
    bool *unwritten = ep_calloc(count, sizeof *unwritten);
    for (size_t i = 0; unwritten != NULL && i < count; i++) {
        unwritten[i] = recorder->kept[recorder->kept_first + i]->file != recorder->file;
    }
    put_final_state(recorder, unwritten);
    free(unwritten);
    ep_file_header *header = ep_file_get_header(recorder->file);
    header->stop = recorder->stop;
    header->stop_resident_bytes = recorder->stop_resident_bytes;
    ep_file_finish(recorder->file);
}

/* The file of a recorder that ran beside one that has a file: all of it, at its stop. */
static void
write_late_file(ep_recorder *recorder)
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
    begin_file(recorder);
    ep_file_begin_other_texts(recorder->file);
    put_all_threads();
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
    ep_file_header *header = ep_file_get_header(recorder->file);
    header->stop = recorder->stop;
    header->stop_resident_bytes = recorder->stop_resident_bytes;
    ep_full_reason reason = whole ? recorder->full_reason : EP_FULL_DISK;
    header->full_ticks = recorder->full_ticks;
    atomic_store_explicit(&header->full_reason, reason, memory_order_release);
    recorder->limits |= ep_file_is_cut(recorder->file) ? EP_LIMIT_CUT : 0;
    ep_file_finish(recorder->file);
}

static void
end_file(ep_recorder *recorder)
{
    leave_chunks();
    for (size_t i = recorder->kept_first; i < recorder->kept_end; i++) {
        if (recorder->kept[i]->file != recorder->file) {
            copy_to_file(recorder, recorder->kept[i]);
        }
    }
    EP_FAULT_POINT(STOP_STATE);
    put_final_state(recorder, NULL);
    EP_FAULT_POINT(STOP_STATED);
    ep_file_header *header = ep_file_get_header(recorder->file);
    header->stop = recorder->stop;
    header->stop_resident_bytes = recorder->stop_resident_bytes;
    ep_file_end_texts();
    ep_ahead_use_file(NULL);
    ep_file_finish(recorder->file);
    engine.filer = NULL;
    unmap_free_slots();
}

/* A window must not meet ticks of two clocks: no log goes on where it is, and no recorder that is
 * stopped looks at what comes. Only while nothing runs. */
static void
leave_clock(void)
{
    while (engine.recorders != NULL) {
        settle_recorder(engine.recorders);
    }
    leave_chunks();
    for (ep_log *log = engine.logs; log != NULL; log = log->next_log) {
        log->closed = true;
    }
}

void
ep_recorder_set_file(ep_recorder *recorder, ep_file *file, uint32_t only_thread)
{
    ep_file_release(recorder->file);
    recorder->file = file;
    recorder->file_thread = only_thread;
}

/* Of the threads that an earlier start expected, some ended without an event. A new thread that the
 * system gives such an id would take the entry, and with it calls that it never made. */
static void
forget_dead_threads(void)
{
    for (size_t i = engine.thread_count; engine.expected_count > 0 && i-- > 0;) {
        ep_thread *thread = engine.threads[i];
        if (!thread->attached && !atomic_load_explicit(&thread->exited, memory_order_relaxed) &&
            !ep_os_thread_lives(thread->native_id)) {
            atomic_store_explicit(&thread->exited, true, memory_order_relaxed);
            engine.expected_count -= 1;
        }
    }
}

ep_status
ep_recorder_start(ep_recorder *recorder, ep_error *error)
{
    if (recorder->state != EP_RECORDER_NEW) {
        return ep_fail(error, EP_STATE, "the recorder was started before");
    }
    lock_engine();
    ep_clock_mode mode = recorder->options.clock;
    if (recorder->options.clock_any) {
        mode = engine.running_count > 0    ? ep_clock_current
               : ep_clock_counter_usable() ? EP_CLOCK_COUNTER
                                           : EP_CLOCK_MONOTONIC;
    }
    if (mode != ep_clock_current) {
        if (engine.running_count > 0) {
            unlock_engine();
            return ep_fail(error, EP_STATE,
                           "another recorder runs on another clock; stop it first, or pass clock='auto'");
        }
        leave_clock();
        if (ep_clock_choose(mode) != EP_OK) {
            unlock_engine();
            return ep_fail(error, EP_UNSUPPORTED,
                           "this system has no invariant processor counter; pass clock='monotonic'");
        }
        engine.birth = ep_clock_anchor();
    }
    forget_dead_threads();
    recorder->file_is_late = recorder->file != NULL && engine.filer != NULL;
    bool files = recorder->file != NULL && !recorder->file_is_late;
    if (files) {
        leave_chunks();
        engine.filer = recorder;
        engine.slot_bytes = 0;
        begin_texts(recorder->file);
        ep_ahead_use_file(recorder->file);
    }
    recorder->first_sequence = engine.next_sequence;
    leave_large_chunks(largest_chunk(recorder));
    bool kept = true;
    for (ep_log *log = engine.logs; log != NULL; log = log->next_log) {
        kept = kept && (log->chunk == NULL || log->closed || keep_chunk(recorder, log->chunk));
    }
    for (ep_chunk *chunk = engine.partial_chunks; chunk != NULL; chunk = chunk->next) {
        kept = kept && keep_chunk(recorder, chunk);
    }
    if (!kept) {
        release_kept(recorder);
        if (files) {
            ep_file_end_texts();
            ep_ahead_use_file(NULL);
            engine.filer = NULL;
        }
        unlock_engine();
        return ep_fail(error, EP_NOMEM, "no memory for a recorder");
    }
    if (recorder->kept_end > 1) {
        qsort(recorder->kept, recorder->kept_end, sizeof *recorder->kept, by_sequence);
    }
    for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
        recorder->unlogged[kind] =
            atomic_load_explicit(&engine.unlogged[kind], memory_order_relaxed);
    }
    recorder->next = engine.recorders;
    engine.recorders = recorder;
    engine.running_count += 1;
    recorder->state = EP_RECORDER_RUNNING;
    update_kinds();
    recorder->start_realtime_ns = ep_os_realtime_ns();
    recorder->start_resident_bytes = ep_os_resident_bytes();
    recorder->start = ep_clock_anchor();
    if (files) {
        EP_FAULT_POINT(START);
        begin_file(recorder);
        EP_FAULT_POINT(STARTED);
    }
    unlock_engine();
    return EP_OK;
}

static void
stop_locked(ep_recorder *recorder)
{
    recorder->stop = ep_clock_anchor();
    recorder->stop_resident_bytes = ep_os_resident_bytes();
    recorder->state = EP_RECORDER_STOPPED;
    engine.running_count -= 1;
    update_kinds();
    for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
        recorder->unlogged[kind] =
            atomic_load_explicit(&engine.unlogged[kind], memory_order_relaxed) -
            recorder->unlogged[kind];
    }
    if (recorder == engine.filer) {
        EP_FAULT_POINT(STOP);
        if (engine.filer_is_child) {
            make_child_file();    /* it had no event of its own; a file of none says so */
        }
        if (recorder == engine.filer && ep_file_is_cut(recorder->file)) {
            leave_cut_file();
        }
        if (recorder == engine.filer) {
            end_file(recorder);
        }
    }
    if (recorder->file != NULL && (recorder->limits & EP_LIMIT_CUT)) {
        end_cut_file(recorder);
    } else if (recorder->file_is_late) {
        write_late_file(recorder);
    }
    if (engine.running_count == 0) {
        ep_ahead_stop();
        trim_free_chunks(SPARE_BYTES_WHEN_IDLE);
    }
}

ep_status
ep_recorder_stop(ep_recorder *recorder, ep_error *error)
{
    lock_engine();
    bool running = recorder->state == EP_RECORDER_RUNNING;
    if (running) {
        stop_locked(recorder);
    }
    unlock_engine();
    return running ? EP_OK : ep_fail(error, EP_STATE, "the recorder is not running");
}

ep_status
ep_recorder_set_open(ep_recorder *recorder, uint32_t thread_id, const ep_open_call *calls,
                     size_t depth)
{
    ep_status status = EP_NOMEM;
    lock_engine();
    ep_window_thread *thread = window_thread(recorder, thread_id);
    if (thread != NULL &&
        ep_grow((void **)&thread->open.calls, &thread->open.capacity, depth, sizeof *calls)) {
        if (depth > 0) {
            memcpy(thread->open.calls, calls, depth * sizeof *calls);
        }
        for (size_t i = 0; i < depth; i++) {
            thread->open.calls[i].before = true;
        }
        thread->open.depth = depth;
        status = EP_OK;
        if (recorder == engine.filer) {
            put_file_state(recorder, UINT64_MAX);
        }
    }
    unlock_engine();
    return status;
}

ep_status
ep_recorder_get_open(const ep_recorder *recorder, uint32_t thread_id, ep_open_stack *out)
{
    ep_status status = EP_OK;
    ep_open_stack open = {0};
    lock_engine();
    const ep_window_thread *thread =
        thread_id < recorder->thread_capacity ? recorder->threads[thread_id] : NULL;
    if (thread != NULL) {
        status = ep_open_stack_copy(&thread->open, &open);
    }
    unlock_engine();
    if (status == EP_OK) {
        *out = open;
    }
    return status;
}

static void
clear_recorder(ep_recorder *recorder, size_t spare_bytes)
{
    lock_engine();
    if (recorder->state == EP_RECORDER_RUNNING) {
        stop_locked(recorder);
    }
    unlink_recorder(recorder);
    release_kept(recorder);
    if (engine.running_count == 0) {
        trim_free_chunks(spare_bytes);
    }
    unlock_engine();
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
    clear_recorder(recorder, SPARE_BYTES_WHEN_IDLE);
}

void
ep_recorder_clear_to_start(ep_recorder *recorder)
{
    clear_recorder(recorder, SPARE_BYTES_WHEN_RESTARTED);
}

/* ---- Captures -------------------------------------------------------------------------------- */

static ep_status
capture_locked(ep_recorder *recorder, ep_capture *capture)
{
    size_t chunk_count = recorder->kept_end - recorder->kept_first;
    capture->chunks = ep_calloc(chunk_count, sizeof *capture->chunks);
    if (capture->chunks == NULL || capture_threads(recorder, capture) != EP_OK) {
        return EP_NOMEM;
    }
    ep_status status = ep_clock_map_add(&capture->clock, engine.birth);
    status = status ? status : ep_clock_map_add(&capture->clock, capture->start);
    status = status ? status : ep_clock_map_add(&capture->clock, capture->stop);
    for (size_t i = 0; i < chunk_count && status == EP_OK; i++) {
        ep_chunk *chunk = recorder->kept[recorder->kept_first + i];
        if (chunk->file != NULL && chunk->header->magic != EP_CHUNK_MAGIC) {
            capture->limits |= EP_LIMIT_CUT;    /* others cut it off with its file */
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

ep_status
ep_capture_take(ep_recorder *recorder, ep_capture *out, ep_error *error)
{
    if (recorder->state == EP_RECORDER_NEW) {
        return ep_fail(error, EP_STATE, "the recorder was not started");
    }
    lock_engine();
    bool running = recorder->state == EP_RECORDER_RUNNING;
    ep_capture capture = {
        .kinds = recorder->options.kinds,
        .start = recorder->start,
        .start_realtime_ns = recorder->start_realtime_ns,
        .start_resident_bytes = recorder->start_resident_bytes,
        .stop_resident_bytes =
            running ? ep_os_resident_bytes() : recorder->stop_resident_bytes,
        .stop = running ? ep_clock_anchor() : recorder->stop,
        .full_ticks = recorder->full_ticks,
        .full_reason = recorder->full_reason,
        .limits = recorder->limits,
    };
    ep_status status = capture_locked(recorder, &capture);
    unlock_engine();
    if (status != EP_OK) {
        ep_capture_clear(&capture);
        return ep_fail(error, status, "no memory for a trace");
    }
    *out = capture;
    return EP_OK;
}

void
ep_capture_clear(ep_capture *capture)
{
    lock_engine();
    for (size_t i = 0; i < capture->chunk_count; i++) {
        release_chunk(capture->chunks[i]);
    }
    if (engine.running_count == 0) {
        trim_free_chunks(SPARE_BYTES_WHEN_IDLE);
    }
    unlock_engine();
    free_capture_threads(capture);
    free(capture->chunks);
    ep_clock_map_free(&capture->clock);
    *capture = (ep_capture){0};
}

ep_engine_stats
ep_engine_get_stats(void)
{
    lock_engine();
    ep_engine_stats stats = {
        .chunks_mapped = engine.chunks_mapped,
        .chunks_free = engine.chunks_free,
        .bytes_mapped = engine.bytes_mapped,
        .bytes_free = engine.bytes_free,
        .threads = engine.thread_count,
    };
    for (ep_log *log = engine.logs; log != NULL; log = log->next_log) {
        stats.logs += 1;
    }
    unlock_engine();
    return stats;
}

ep_recorder_stats
ep_recorder_get_stats(const ep_recorder *recorder)
{
    lock_engine();
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
    unlock_engine();
    return stats;
}

/* ---- Life of the process --------------------------------------------------------------------- */

static void
before_fork(void)
{
    lock_engine();
    ep_ahead_before_fork();
    ep_names_before_fork();
    ep_file_before_fork();
    EP_FAULT_POINT(FORK);
}

static void
after_fork_in_parent(void)
{
    EP_FAULT_POINT(FORK_PARENT);
    ep_file_after_fork(false);
    ep_names_after_fork();
    ep_ahead_after_fork();
    unlock_engine();
}

/* In the child: a slot of the parent's file becomes memory of ours, with the records that are in it. What
 * is behind them may have been cut off. False: no memory; the slot is left as it is. */
static bool
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
    engine.chunks_mapped += 1;
    engine.bytes_mapped += chunk->bytes;
    return true;
}

/* In the child. Returns: the running recorder whose file is the parent's, NULL if there is none. */
static ep_recorder *
leave_file_to_parent(void)
{
    ep_recorder *filer = engine.filer;
    engine.filer = NULL;
    ep_ahead_use_file(NULL);
    unmap_free_slots();
    if (filer != NULL) {
        ep_file_abandon(filer->file);
    }
    return filer;
}

/* The child begins with empty logs: what was recorded before belongs to the parent. Only the
 * forking thread exists here. */
static void
after_fork_in_child(void)
{
    EP_FAULT_POINT(FORK_CHILD);
    ep_file_after_fork(true);
    ep_names_after_fork();
    ep_ahead_after_fork();
    ep_recorder *filer = leave_file_to_parent();
    EP_FAULT_POINT(FORK_LEFT);
    ep_recorder *running = NULL;
    while (engine.recorders != NULL) {
        ep_recorder *r = engine.recorders;
        if (r->state == EP_RECORDER_RUNNING) {
            engine.recorders = r->next;
            r->next = running;
            running = r;
        } else {
            settle_recorder(r);
        }
    }
    ep_log *mine = ep_log_current;
    while (engine.logs != NULL) {
        ep_log *log = engine.logs;
        unlink_log(log);
        atomic_store_explicit(&log->thread->exited, log != mine, memory_order_relaxed);
        if (log->chunk != NULL && make_private(log->chunk)) {
            /* The zero word alone says how far the other threads had come. */
            seal_chunk(log->chunk,
                       (_Atomic uint64_t *)(log->chunk->header + 1) + EP_CHUNK_WORDS_OF(log->chunk->bytes));
        }
        if (log != mine) {
            free_log(log);
        }
    }
    while (engine.partial_chunks != NULL) {
        ep_chunk *partial = engine.partial_chunks;
        if (make_private(partial)) {
            seal_partial_chunk(partial);
        } else {
            engine.partial_chunks = partial->next;
        }
    }
    for (size_t i = 0; i < engine.thread_count; i++) {
        ep_thread *thread = engine.threads[i];
        if (!thread->attached) {    /* expected; and not here */
            atomic_store_explicit(&thread->exited, true, memory_order_relaxed);
        }
    }
    engine.expected_count = 0;
    engine.recorders = running;
    for (ep_recorder *r = running; r != NULL; r = r->next) {
        if (r->file_is_late && !r->file_is_parents) {
            ep_file_abandon(r->file);
            r->file_is_parents = true;
        }
        release_kept(r);
        r->first_sequence = engine.next_sequence;
        r->full_reason = EP_FULL_NOT;
        r->full_ticks = r->full_sequence = UINT64_MAX;
        for (size_t i = 0; i < r->thread_capacity; i++) {
            if (r->threads[i] != NULL) {
                memset(r->threads[i]->lost, 0, sizeof r->threads[i]->lost);
                r->threads[i]->open.depth = 0;
            }
        }
        for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
            r->unlogged[kind] = atomic_load_explicit(&engine.unlogged[kind], memory_order_relaxed);
        }
        r->start_realtime_ns = ep_os_realtime_ns();
        r->start_resident_bytes = ep_os_resident_bytes();
        r->start = ep_clock_anchor();
    }
    if (mine != NULL) {
        mine->thread->native_id = ep_os_thread_id();
        mine->next_log = NULL;
        engine.logs = mine;
        engine.log_count = 1;
        mine->next_bytes = 0;    /* most children do little */
        uint64_t ticks = ep_clock_ticks();
        use_scratch(mine, ticks);    /* its chunk may be unmapped by now */
        ep_chunk *chunk = filer == NULL ? find_chunk(ticks, first_bytes(), true) : NULL;
        if (chunk != NULL) {
            use_chunk(mine, chunk, ticks);
        } else if (filer != NULL) {
            /* The first record asks for a chunk, and so for a file. */
            atomic_store_explicit(&mine->end, mine->scratch, memory_order_relaxed);
        }
    }
    engine.filer = filer;
    engine.filer_is_child = filer != NULL;
    unlock_engine();
}

ep_status
ep_engine_init(void)
{
    if (engine.initialised) {
        return EP_OK;
    }
    ep_status status = ep_os_thread_exit_install(on_thread_exit);
    if (status == EP_OK) {
        status = ep_os_fork_install(before_fork, after_fork_in_parent, after_fork_in_child);
    }
    if (status == EP_OK && ep_clock_counter_usable()) {
        status = ep_clock_choose(EP_CLOCK_COUNTER);
    }
    if (status == EP_OK) {
        engine.birth = ep_clock_anchor();
        engine.initialised = true;
    }
    return status;
}
