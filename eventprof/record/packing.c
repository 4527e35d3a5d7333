#include "packing.h"

#include <string.h>

#include "prefault.h"
#include "engine_parts.h"
#include "file.h"
#include "memory.h"
#include "os.h"
#include "pack.h"

/* The most jobs at a time. If the program fills chunks faster than they are packed, the chunks without a
 * job are packed when the recording ends (ep_packing_finish). */
#define JOBS_MAX 1024

typedef struct job {
    ep_chunk *chunk;         /* a reference */
    ep_chunk_header *to;     /* the packed slot; NULL: it would not be smaller, or found no room */
    uint64_t events;         /* events of the chunk that the file's recorder wants */
} job;

static ep_mutex lock = EP_MUTEX_INIT;
#define TAKES_LOCK EP_ACQUIRES(lock)
#define GIVES_LOCK EP_RELEASES(lock)
static pthread_cond_t has_job = PTHREAD_COND_INITIALIZER;    /* the thread waits for jobs */
static pthread_cond_t has_packed = PTHREAD_COND_INITIALIZER;    /* ep_packing_wait() waits for the thread */

static struct {
    /* the thread reads them, and they change only while it does not run */
    ep_file *file;
    ep_kind_set kinds;          /* that the file's recorder wants */
    ep_chunk_packer *packer;    /* the thread's; NULL: none yet */
    /* the thread has the jobs from `packed` on, and the engine's lock those before */
    job jobs[JOBS_MAX];         /* a ring: [first, packed) are packed, [packed, end) wait */
    size_t first, end;          /* changed under both locks, and read under either */
    size_t packed EP_GUARDED_BY(lock);
    uint64_t thread_id EP_GUARDED_BY(lock);    /* the kernel's, of the last thread; 0: there was none */
    bool ending EP_GUARDED_BY(lock);           /* the thread shall end */
    bool running EP_GUARDED_BY(ep_engine_mutex);    /* there is a thread, which must be joined */
    pthread_t thread EP_GUARDED_BY(ep_engine_mutex);
} packing;

/* ---- One chunk ------------------------------------------------------------------------------- */

/* Packs a chunk into a new slot, which readers do not take before commit(). Returns: NULL if the slot would
 * not be smaller than the chunk, or if there is no room. */
static ep_chunk_header *
pack_chunk(ep_chunk_packer *packer, ep_file *file, const ep_chunk *chunk)
{
    const ep_chunk_header *from = chunk->header;
    const uint8_t *packed;
    size_t bytes, unit = ep_file_slot_unit(file);
    if (chunk->bytes <= unit || from->used_words > EP_CHUNK_WORDS_OF(chunk->bytes) ||
        ep_chunk_pack(packer, (const uint64_t *)(from + 1), from->used_words, from->opened.ticks, &packed,
                      &bytes) != EP_OK) {
        return NULL;
    }
    size_t slot = (sizeof *from + bytes + unit - 1) & ~(unit - 1);
    if (slot >= chunk->bytes) {
        return NULL;
    }
    ep_chunk_header *to = ep_file_take_slot(file, slot);
    if (to == NULL) {
        return NULL;
    }
    to->sequence = from->sequence;
    to->thread_id = from->thread_id;
    to->opened = from->opened;
    to->sealed = from->sealed;
    to->used_words = from->used_words;
    to->shared = from->shared;
    to->resident_bytes = from->resident_bytes;
    to->own_bytes = from->own_bytes;
    to->sum = from->sum;
    to->packed_bytes = (uint32_t)bytes;
    memcpy(to + 1, packed, bytes);
    return to;
}

static uint64_t
count_events(const ep_chunk *chunk, ep_kind_set kinds)
{
    ep_cursor cursor = ep_cursor_begin(chunk->header);
    ep_record record = {0};
    uint64_t count = 0;
    while (ep_cursor_next(&cursor, &record)) {
        count += ep_record_is_for(&record, kinds);
    }
    return count;
}

static bool
is_kept(const ep_recorder *recorder, const ep_chunk *chunk)
{
    size_t at = recorder->kept_end;
    while (at > recorder->kept_first && recorder->kept[at - 1]->sequence > chunk->sequence) {
        at -= 1;
    }
    return at > recorder->kept_first && recorder->kept[at - 1] == chunk;
}

/* Makes the packed slot the chunk's, and frees the slot that the chunk had. `refs`: the references that the
 * recorder and the caller have; with more, a trace reads the chunk, which must then stay where it is.
 * Returns: false, nothing changed. */
static EP_ENGINE_LOCKED bool
commit(ep_recorder *recorder, const job *done, uint32_t refs)
{
    ep_chunk *chunk = done->chunk;
    ep_chunk_header *to = done->to;
    if (chunk->refs != refs || chunk->packed || chunk->header->magic != EP_CHUNK_MAGIC ||
        !is_kept(recorder, chunk)) {
        return false;
    }
    ep_chunk *own = ep_calloc(1, sizeof *own);
    if (own == NULL) {
        return false;
    }
    *own = (ep_chunk){.header = chunk->header,
                      .bytes = chunk->bytes,
                      .refs = 1,
                      .sequence = chunk->sequence,
                      .file = ep_file_hold(chunk->file)};
    to->magic = EP_FILE_PACKED_MAGIC;
    atomic_store_explicit(&to->wanted, 1, memory_order_relaxed);
    /* Release: a reader that sees the state sees the whole slot. From here on readers take the packed
     * slot. */
    atomic_store_explicit(&to->state, EP_CHUNK_SEALED, memory_order_release);
    EP_FAULT_POINT(PACKED);
    atomic_store_explicit(&own->header->wanted, 0, memory_order_release);
    EP_FAULT_POINT(UNPACKED);
    if (chunk->sequence >= recorder->first_sequence) {
        recorder->charged_bytes -= chunk->bytes - to->bytes;
    }
    ep_engine.slot_bytes += to->bytes;
    chunk->header = to;
    chunk->bytes = to->bytes;
    chunk->packed = true;
    chunk->packed_events = done->events;
    ep_chunk_release(own);
    return true;
}

/* Gives a packed slot up. Its state is FREE still, so readers skip it; ep_file_compact() fills it or gives
 * its room back. */
static void
discard(ep_chunk_header *to)
{
    if (to != NULL) {
        ep_os_unmap(to, to->bytes);
    }
}

/* ---- The thread ------------------------------------------------------------------------------ */

static void *
run(void *unused)
{
    (void)unused;
    ep_engine_inside = 1;    /* for the whole thread: see prefault.c */
    ep_os_thread_lower_priority();
    ep_mutex_lock(&lock);
    packing.thread_id = ep_os_thread_id();
    while (!packing.ending) {
        if (packing.packed == packing.end) {
            ep_mutex_wait(&lock, &has_job);
            continue;
        }
        job *next = &packing.jobs[packing.packed % JOBS_MAX];
        ep_mutex_unlock(&lock);
        if (packing.packer == NULL) {
            packing.packer = ep_chunk_packer_new();
        }
        if (packing.packer != NULL) {
            next->to = pack_chunk(packing.packer, packing.file, next->chunk);
            next->events = next->to != NULL ? count_events(next->chunk, packing.kinds) : 0;
        }
        ep_mutex_lock(&lock);
        packing.packed += 1;
        pthread_cond_signal(&has_packed);
    }
    ep_mutex_unlock(&lock);
    return NULL;
}

static EP_ENGINE_LOCKED void
join_thread(void)
{
    ep_mutex_lock(&lock);
    packing.ending = true;
    pthread_cond_signal(&has_job);
    ep_mutex_unlock(&lock);
    if (packing.running) {
        pthread_join(packing.thread, NULL);    /* waits at most until one chunk is packed: 2 ms */
    }
    ep_mutex_lock(&lock);
    packing.running = packing.ending = false;
    ep_mutex_unlock(&lock);
}

/* ---- Jobs ------------------------------------------------------------------------------------ */

void
ep_packing_add(ep_chunk *chunk)
{
    if (packing.file == NULL || chunk->file != packing.file) {
        return;
    }
    ep_mutex_lock(&lock);
    bool room = packing.end - packing.first < JOBS_MAX;
    if (room) {
        packing.jobs[packing.end++ % JOBS_MAX] = (job){.chunk = chunk};
        chunk->refs += 1;
        pthread_cond_signal(&has_job);
    }
    ep_mutex_unlock(&lock);
    if (room && !packing.running) {
        packing.running = ep_prefault_start_thread(&packing.thread, run);
    }
}

void
ep_packing_commit(void)
{
    if (packing.file == NULL) {
        return;
    }
    ep_mutex_lock(&lock);
    size_t packed = packing.packed;
    ep_mutex_unlock(&lock);
    while (packing.first < packed) {
        /* The thread does not look at jobs below `packed`. */
        job done = packing.jobs[packing.first % JOBS_MAX];
        bool cut = ep_file_is_cut(packing.file);
        if (done.to != NULL && (cut || !commit(ep_engine.file_recorder, &done, 2))) {
            discard(done.to);
        }
        ep_chunk_release(done.chunk);
        ep_mutex_lock(&lock);
        packing.first += 1;
        ep_mutex_unlock(&lock);
    }
}

bool
ep_packing_wait(void)
{
    if (packing.file == NULL || packing.first == packing.end) {
        return false;
    }
    packing.running = packing.running || ep_prefault_start_thread(&packing.thread, run);
    if (!packing.running) {
        return false;
    }
    ep_mutex_lock(&lock);
    while (packing.packed == packing.first) {
        ep_mutex_wait(&lock, &has_packed);
    }
    ep_mutex_unlock(&lock);
    ep_packing_commit();
    return true;
}

uint64_t
ep_packing_thread_id(void)
{
    ep_mutex_lock(&lock);
    uint64_t id = packing.running ? packing.thread_id : 0;
    ep_mutex_unlock(&lock);
    return id;
}

void
ep_packing_pause(void)
{
    join_thread();
}

void
ep_packing_count(ep_kind_set kinds)
{
    packing.kinds = kinds;
}

void
ep_packing_use_file(ep_file *file)
{
    join_thread();
    while (packing.first < packing.end) {
        job left = packing.jobs[packing.first++ % JOBS_MAX];
        discard(left.to);
        ep_chunk_release(left.chunk);
    }
    ep_mutex_lock(&lock);
    packing.first = packing.packed = packing.end = 0;
    ep_mutex_unlock(&lock);
    ep_chunk_packer_free(packing.packer);
    packing.packer = NULL;
    packing.file = file;
}

/* Seals the chunk of the calling thread, which does not write to it now. Other threads may be writing:
 * their chunks stay as they are, and are not packed. */
static EP_ENGINE_LOCKED void
seal_own_chunk(const ep_file *file)
{
    ep_log *log = ep_log_current;
    if (log == NULL || log->chunk == NULL || log->chunk->file != file) {
        return;
    }
    ep_chunk *own = log->chunk;
    const _Atomic uint64_t *next = log->next;
    ep_log_use_scratch(log, ep_clock_ticks());
    log->next_bytes = ep_chunk_first_bytes();    /* a later recording begins with a small chunk */
    /* `end` at the begin: the next record takes a new chunk. */
    atomic_store_explicit(&log->end, log->scratch, memory_order_relaxed);
    ep_chunk_seal(own, next);
}

/* For ep_file_compact(): the chunk whose slot was moved is read at its new mapping. */
static void
note_moved(void *context, ep_chunk_header *to)
{
    ep_recorder *recorder = context;
    size_t low = recorder->kept_first, high = recorder->kept_end;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (recorder->kept[middle]->sequence < to->sequence) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    ep_chunk *chunk = low < recorder->kept_end ? recorder->kept[low] : NULL;
    if (chunk != NULL && chunk->sequence == to->sequence && chunk->packed) {
        ep_os_unmap(chunk->header, chunk->bytes);
        chunk->header = to;
    } else {
        ep_os_unmap(to, to->bytes);
    }
}

void
ep_packing_finish(ep_recorder *recorder)
{
    if (!ep_file_packs(recorder->file)) {
        return;
    }
    join_thread();
    ep_packing_commit();
    ep_chunk_packer *packer = packing.packer != NULL ? packing.packer : ep_chunk_packer_new();
    packing.packer = NULL;
    ep_packing_use_file(NULL);
    seal_own_chunk(recorder->file);
    for (size_t i = recorder->kept_first; packer != NULL && i < recorder->kept_end; i++) {
        ep_chunk *chunk = recorder->kept[i];
        bool sealed = atomic_load_explicit(&chunk->header->state, memory_order_relaxed) ==
                      EP_CHUNK_SEALED;
        if (chunk->packed || chunk->file != recorder->file || !sealed || chunk->refs != 1) {
            continue;
        }
        job last = {.chunk = chunk, .to = pack_chunk(packer, recorder->file, chunk)};
        last.events = last.to != NULL ? count_events(chunk, recorder->options.kinds) : 0;
        if (last.to != NULL && !commit(recorder, &last, 1)) {
            discard(last.to);
        }
    }
    ep_chunk_packer_free(packer);
    ep_prefault_use_file(NULL);    /* slots that were prepared become free ones, which compacting can use */
    ep_file_compact(recorder->file, note_moved, recorder);
}

/* ---- Read again ------------------------------------------------------------------------------ */

ep_status
ep_packing_unpack(const ep_chunk *chunk, ep_chunk **out)
{
    const ep_chunk_header *from = chunk->header;
    /* Two words more, as a decoder may read past the last one. Chunks that were never packed have them,
     * too. */
    size_t bytes = EP_CHUNK_BYTES_MIN, words = from->used_words;
    while (bytes < EP_CHUNK_BYTES && EP_CHUNK_WORDS_OF(bytes) < words + 2) {
        bytes *= 2;
    }
    if (from->magic != EP_FILE_PACKED_MAGIC || words + 2 > EP_CHUNK_WORDS_OF(bytes) ||
        from->packed_bytes > chunk->bytes - sizeof *from) {
        return EP_FORMAT;
    }
    ep_chunk_packer *packer = ep_chunk_packer_new();
    ep_chunk *made = ep_calloc(1, sizeof *made);
    ep_chunk_header *to = ep_os_map(bytes);
    const char *why;
    ep_status status = EP_NOMEM;
    if (packer != NULL && made != NULL && to != NULL) {
        status = ep_chunk_unpack(packer, (const uint8_t *)(from + 1), from->packed_bytes,
                                 from->opened.ticks, (uint64_t *)(to + 1), words, &why);
    }
    ep_chunk_packer_free(packer);
    if (status != EP_OK) {
        free(made);
        if (to != NULL) {
            ep_os_unmap(to, bytes);
        }
        return status;
    }
    *to = *from;
    to->magic = EP_CHUNK_MAGIC;
    to->bytes = (uint32_t)bytes;
    to->packed_bytes = 0;
    *made = (ep_chunk){
        .header = to, .bytes = (uint32_t)bytes, .refs = 1, .sequence = chunk->sequence};
    *out = made;
    return EP_OK;
}

/* ---- Fork ------------------------------------------------------------------------------------ */

TAKES_LOCK void
ep_packing_before_fork(void)
{
    join_thread();
    ep_mutex_lock(&lock);
    ep_prefault_await_end(&packing.thread_id);
}

GIVES_LOCK void
ep_packing_after_fork(void)
{
    ep_mutex_unlock(&lock);
}
