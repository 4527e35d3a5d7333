#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "fault.h"
#include "guard.h"
#include "invariants.h"
#include "memory.h"
#include "mutex.h"
#include "names.h"
#include "os.h"
#include "quota.h"

struct ep_file {
    _Atomic uint32_t refs;
    ep_mutex lock;               /* protects length, cut and the text chunk */
    int descriptor;                     /* -1: closed */
    int alive;                          /* descriptor with the lock that shows that the process lives; -1:
                                         * none */
    char *path, *child_path;
    char *temporary;                    /* its name until it replaces the file at path; NULL: it is there */
    ep_file_header *header;             /* the head */
    size_t unit, head_bytes;
    uint64_t length;
    int guard;                          /* its number in guard.h */
    bool cut;                           /* another program made the file shorter */
    bool packs;
    bool in_family;                     /* it shares the room of quota.h */
    uint64_t room_bytes;                /* what its slots of events took of that room */
    _Atomic bool lacks_room;            /* it could not grow, because that room is full */
    ep_chunk_header *texts;             /* NULL: none yet, or no room */
    size_t text_bytes;                  /* of the slot of texts */
    _Atomic uint64_t *text_next;
    uint64_t text_sequence;
    /* The states; the copies of these fields in the header are for readers. */
    struct {
        ep_chunk_header *slot;          /* NULL: none yet */
        size_t bytes;                   /* of the slot */
    } states[2];
    uint32_t state_now;                 /* which of them counts */
    uint64_t dropped_sequence;          /* that of the state that counts */
};

/* Callers have the lock of the file. */
static bool is_cut_locked(ep_file *file) EP_REQUIRES(file->lock);
static void *extend(ep_file *file, size_t bytes) EP_REQUIRES(file->lock);
static ep_chunk_header *take_slot_locked(ep_file *file, size_t bytes) EP_REQUIRES(file->lock);
static bool next_text_chunk(ep_file *file, size_t words) EP_REQUIRES(file->lock);
static bool put_text_locked(ep_file *file, ep_file_text type, const uint32_t *fields, size_t field_count,
                            const char *bytes, size_t byte_count) EP_REQUIRES(file->lock);

#ifdef EP_CHECKS
static void check_file(const ep_file *file) EP_REQUIRES(file->lock);

/* Checks what the file's lock protects, so not `state_now`, which the engine's lock protects. */
static void
check_file(const ep_file *file)
{
    EP_INVARIANT(file->length >= file->head_bytes && (file->length - file->head_bytes) % file->unit == 0,
                 "%llu bytes, of which the head %zu, in units of %zu", (unsigned long long)file->length,
                 file->head_bytes, file->unit);
    if (file->texts != NULL) {
        const _Atomic uint64_t *first = (const _Atomic uint64_t *)(file->texts + 1);
        ptrdiff_t at = file->text_next - first;
        EP_INVARIANT(at >= 0 && (size_t)at < EP_CHUNK_WORDS_OF(file->text_bytes),
                     "the next text is at word %td of a slot of %zu bytes", at, file->text_bytes);
    }
}
#endif

/* ---- Slots: each makes the file longer, and is mapped ---------------------------------------- */

#define ZEROS_BYTES 65536

/* Allocates the slot's room on the disk: writing into a mapped hole on a full disk would raise SIGBUS. */
static bool
allocate(int descriptor, uint64_t offset, size_t bytes)
{
#ifdef __linux__
    int result;
    do {
        result = fallocate(descriptor, 0, (off_t)offset, (off_t)bytes);
    } while (result != 0 && errno == EINTR);
    if (result == 0) {
        return true;
    }
    if (errno != EOPNOTSUPP && errno != ENOSYS) {
        return false;
    }
#endif
    static const char zeros[ZEROS_BYTES];
    for (size_t done = 0; done < bytes;) {
        size_t left = bytes - done < sizeof zeros ? bytes - done : sizeof zeros;
        ssize_t written = pwrite(descriptor, zeros, left, (off_t)(offset + done));
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return false;
        }
        done += (size_t)written;
    }
    return true;
}

/* A file that was cut off is not made longer again, because there would be holes in between. */
static bool
is_cut_locked(ep_file *file)
{
    struct stat now;
    if (file->cut || file->descriptor < 0) {
        return file->cut;
    }
    if (ep_guard_was_hit(file->guard) ||
        (fstat(file->descriptor, &now) == 0 && (uint64_t)now.st_size < file->length)) {
        file->cut = true;
        atomic_fetch_or_explicit(&file->header->limits, EP_LIMIT_CUT, memory_order_relaxed);
    }
    return file->cut;
}

bool
ep_file_is_cut(ep_file *file)
{
    ep_mutex_lock(&file->lock);
    bool cut = is_cut_locked(file);
    ep_mutex_unlock(&file->lock);
    return cut;
}

bool
ep_file_lacks_room(const ep_file *file)
{
    return atomic_load_explicit(&file->lacks_room, memory_order_relaxed);
}

size_t
ep_file_slot_unit(const ep_file *file)
{
    return file->unit;
}

/* Returns: the next `bytes` of the file, zeroed; NULL as ep_file_take_slot(). */
static void *
extend(ep_file *file, size_t bytes)
{
    if (file->descriptor < 0 || ep_fault_now() || is_cut_locked(file)) {
        return NULL;
    }
    void *at = MAP_FAILED;
    if (allocate(file->descriptor, file->length, bytes)) {
        EP_FAULT_POINT(SPILL);
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->descriptor,
                  (off_t)file->length);
    }
    if (at == MAP_FAILED) {
        /* Gives back the room that fallocate took, so that others can use the disk. */
        (void)!ftruncate(file->descriptor, (off_t)file->length);
        return NULL;
    }
    file->length += bytes;
    ep_os_own_add((int64_t)bytes);    /* ep_os_unmap() takes them off */
    return at;
}

/* ep_file_take_slot() if the caller has the lock. */
static ep_chunk_header *
take_slot_locked(ep_file *file, size_t bytes)
{
    ep_chunk_header *slot = extend(file, bytes);
    if (slot == NULL) {
        return NULL;
    }
    slot->bytes = (uint32_t)bytes;
    slot->magic = EP_CHUNK_MAGIC;
    atomic_store_explicit(&file->header->slots, file->length / file->unit, memory_order_release);
    EP_FAULT_POINT(SPILLED);
    return slot;
}

ep_chunk_header *
ep_file_take_slot(ep_file *file, size_t bytes)
{
    int error = errno;
    ep_mutex_lock(&file->lock);
    ep_chunk_header *at = NULL;
    /* Only slots of events count, as they alone count against the recorder's own limit. */
    if (file->in_family && !ep_quota_take(bytes, file->length)) {
        atomic_store_explicit(&file->lacks_room, true, memory_order_relaxed);
    } else {
        at = take_slot_locked(file, bytes);
        if (at != NULL) {
            file->room_bytes += bytes;
        } else if (file->in_family) {
            ep_quota_give(bytes);
        }
    }
    EP_CHECK_INVARIANTS(check_file(file));
    ep_mutex_unlock(&file->lock);
    errno = error;
    return at;
}

/* The next length of a slot for texts or states: twice that of the one before. */
static size_t
slot_bytes_for(const ep_file *file, size_t needed, size_t before)
{
    size_t bytes = before > 0 ? 2 * before : file->unit;
    while (bytes < needed) {
        bytes *= 2;
    }
    return bytes < EP_CHUNK_BYTES ? bytes : EP_CHUNK_BYTES;
}

/* ---- The header ------------------------------------------------------------------------------ */

void
ep_file_put_start(ep_file *file, const ep_file_start *start)
{
    ep_file_header *header = file->header;
    ep_file_set_kinds(header, start->kinds);
    header->clock_mode = start->clock_mode;
    header->only_thread = start->only_thread;
    header->step_ticks = ep_clock_step_ticks();
    header->birth = start->birth;
    header->start = start->start;
    header->start_realtime_ns = start->start_realtime_ns;
    header->start_boottime_ns = ep_os_boottime_ns() - ep_os_monotonic_ns() + start->start.monotonic_ns;
    header->start_resident_bytes = start->start_resident_bytes;
    header->start_own_bytes = start->start_own_bytes;
    header->beats[0] = start->start;
    /* Release: a reader that sees the phase sees all of these fields. */
    atomic_store_explicit(&header->phase, EP_FILE_RECORDING, memory_order_release);
}

void
ep_file_put_full(ep_file *file, uint64_t ticks, ep_full_reason reason)
{
    file->header->full_ticks = ticks;
    atomic_store_explicit(&file->header->full_reason, reason, memory_order_release);
}

void
ep_file_put_limit(ep_file *file, uint32_t limit)
{
    atomic_fetch_or_explicit(&file->header->limits, limit, memory_order_relaxed);
}

uint32_t
ep_file_get_children_lost(const ep_file *file, int *os_error)
{
    *os_error = (int)atomic_load_explicit(&file->header->children_error, memory_order_relaxed);
    return atomic_load_explicit(&file->header->children_lost, memory_order_relaxed);
}

void
ep_file_count_child_lost(const ep_file *file, int os_error)
{
    atomic_store_explicit(&file->header->children_error, (uint32_t)os_error, memory_order_relaxed);
    atomic_fetch_add_explicit(&file->header->children_lost, 1, memory_order_relaxed);
}

void
ep_file_put_stop(ep_file *file, ep_anchor stop, int64_t resident_bytes, int64_t own_bytes)
{
    file->header->stop = stop;
    file->header->stop_resident_bytes = resident_bytes;
    file->header->stop_own_bytes = own_bytes;
}

void
ep_file_put_calls_from(ep_file *file, const char *name)
{
    strncpy(file->header->calls_from, name, sizeof file->header->calls_from - 1);
}

void
ep_file_put_displaced(ep_file *file, const char *name)
{
    char *names = file->header->displaced;
    size_t used = strnlen(names, sizeof file->header->displaced);
    /* There is no room for all names, but no program displaces all hooks. */
    if (used + strlen(name) + 2 <= sizeof file->header->displaced) {
        stpcpy(stpcpy(names + used, name), " ");
    }
}

void
ep_file_put_left_out(ep_file *file, uint64_t deep_calls, uint64_t short_calls, uint64_t functions_off)
{
    file->header->deep_calls = deep_calls;
    file->header->short_calls = short_calls;
    file->header->functions_off = functions_off;
}

void
ep_file_put_beat(ep_file *file, ep_anchor anchor)
{
    ep_file_header *header = file->header;
    uint32_t next = atomic_load_explicit(&header->beat, memory_order_relaxed) ^ 1;
    header->beats[next & 1] = anchor;
    atomic_store_explicit(&header->beat, next & 1, memory_order_release);
}

/* ---- The states ------------------------------------------------------------------------------ */

/* Moves a state to a slot of at least `bytes`. False: there is no room, and it stays where it is. */
static bool
move_state(ep_file *file, uint32_t which, size_t bytes)
{
    size_t before = file->states[which].bytes;
    if (before == EP_CHUNK_BYTES) {
        return false;
    }
    size_t grown = slot_bytes_for(file, bytes, before);
    ep_mutex_lock(&file->lock);
    ep_chunk_header *slot = take_slot_locked(file, grown);
    uint64_t end = file->length;
    ep_mutex_unlock(&file->lock);
    if (slot == NULL) {
        return false;
    }
    slot->magic = EP_FILE_STATE_MAGIC;
    if (before > 0) {
        ep_os_unmap(file->states[which].slot, before);
    }
    file->states[which].slot = slot;
    file->states[which].bytes = grown;
    /* No reader reads there until header->state is stored, with release. */
    atomic_store_explicit(&file->header->state_offset[which], end - grown + sizeof *slot,
                          memory_order_relaxed);
    atomic_store_explicit(&file->header->state_room[which], grown - sizeof *slot, memory_order_relaxed);
    return true;
}

/* Appends a thread. False: no room. */
static bool
put_thread_state(char **at, const char *end, uint32_t thread_id, const ep_window_thread *thread)
{
    ep_file_thread_state head = {.thread_id = thread_id, .depth = (uint32_t)thread->open.depth};
    for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
        head.count_count += thread->lost[kind] != 0;
    }
    size_t pairs = head.count_count + thread->open.depth;
    if (pairs == 0) {
        return true;
    }
    if (sizeof head + pairs * sizeof(ep_file_pair) > (size_t)(end - *at)) {
        return false;
    }
    memcpy(*at, &head, sizeof head);
    ep_file_pair *pair = (ep_file_pair *)(*at + sizeof head);
    for (uint64_t kind = 0; kind < EP_KIND_COUNT; kind++) {
        if (thread->lost[kind] != 0) {
            *pair++ = (ep_file_pair){kind, thread->lost[kind]};
        }
    }
    for (size_t i = 0; i < thread->open.depth; i++) {
        const ep_open_call *call = &thread->open.calls[i];
        *pair++ = (ep_file_pair){call->kind | (uint64_t)call->before << 8, call->site_id};
    }
    *at = (char *)pair;
    return true;
}

static size_t
state_bytes_for(ep_window_thread *const *threads, size_t thread_count)
{
    size_t bytes = sizeof(ep_chunk_header) + sizeof(ep_file_state);
    for (size_t i = 0; i < thread_count; i++) {
        if (threads[i] != NULL) {
            size_t pairs = threads[i]->open.depth;
            for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
                pairs += threads[i]->lost[kind] != 0;
            }
            bytes += pairs > 0 ? sizeof(ep_file_thread_state) + pairs * sizeof(ep_file_pair) : 0;
        }
    }
    return bytes;
}

void
ep_file_put_state(ep_file *file, uint64_t dropped_sequence, ep_window_thread *const *threads,
                  size_t thread_count)
{
    ep_file_header *header = file->header;
    uint32_t next = file->state_now ^ 1;
    size_t need = state_bytes_for(threads, thread_count);
    if (need > file->states[next].bytes) {
        (void)move_state(file, next, need);
    }
    if (dropped_sequence == UINT64_MAX) {
        dropped_sequence = file->dropped_sequence;    /* so that a reader sees that a chunk was dropped */
    }
    char *begin = (char *)(file->states[next].slot + 1);
    const char *end = (char *)file->states[next].slot + file->states[next].bytes;
    char *body = begin + sizeof(ep_file_state), *at = body;
    ep_file_state state = {.dropped_sequence = dropped_sequence};
    /* The previous state must be valid before the older one is overwritten here, also after a kill. */
    atomic_thread_fence(memory_order_release);
    for (size_t i = 0; i < thread_count; i++) {
        if (threads[i] == NULL) {
            continue;
        }
        char *before = at;
        if (!put_thread_state(&at, end, (uint32_t)i, threads[i])) {
            state.incomplete += 1;
        }
        state.thread_count += at != before;
    }
    state.bytes = (uint32_t)(at - body);
    state.sum = ep_sum64(body, state.bytes);
    memcpy(begin, &state, sizeof state);
    EP_FAULT_POINT(STATE);
    /* Release: a reader that sees the index sees the state, also after a kill at any instruction. */
    atomic_store_explicit(&header->state, next, memory_order_release);
    file->state_now = next;
    file->dropped_sequence = dropped_sequence;
}

/* ---- Texts: strings, names, sites and threads, written as they are made ---------------------- */

_Atomic(ep_file *) ep_file_of_texts;
/* On a thread that writes all texts to another file: that file. */
static _Thread_local ep_file *other_file_of_texts;
/* While it is held, the file stays open; taken before the file's own lock. */
static ep_mutex texts_lock = EP_MUTEX_INIT;
#define TAKES_LOCK EP_ACQUIRES(texts_lock)
#define GIVES_LOCK EP_RELEASES(texts_lock)

static char worker_name[EP_FILE_WORKER_BYTES] EP_GUARDED_BY(texts_lock);

/* Seals the slot of texts with its length and sum, and unmaps it. */
static void
seal_texts(ep_file *file)
{
    ep_chunk_header *texts = file->texts;
    if (texts == NULL) {
        return;
    }
    texts->used_words = (uint64_t)(file->text_next - (_Atomic uint64_t *)(texts + 1));
    texts->sum = ep_sum64(texts + 1, texts->used_words * 8);
    atomic_store_explicit(&texts->state, EP_CHUNK_SEALED, memory_order_release);
    ep_os_unmap(texts, file->text_bytes);
    file->texts = NULL;
}

static bool
next_text_chunk(ep_file *file, size_t words)
{
    size_t needed = sizeof(ep_chunk_header) + (words + 1) * 8;
    size_t bytes = slot_bytes_for(file, needed, file->text_bytes);
    ep_chunk_header *fresh = take_slot_locked(file, bytes);
    if (fresh == NULL) {
        return false;
    }
    EP_FAULT_POINT(TEXT_SLOT);
    seal_texts(file);
    file->text_bytes = bytes;
    fresh->sequence = file->text_sequence++;
    fresh->magic = EP_FILE_TEXT_MAGIC;
    file->texts = fresh;
    file->text_next = (_Atomic uint64_t *)(fresh + 1);
    atomic_store_explicit(&fresh->state, EP_CHUNK_OPEN, memory_order_release);
    return true;
}

/* A record: fields as 32-bit words, then bytes, padded; the first word is published last, after the
 * terminator after it. False: no room. */
static bool
put_text_locked(ep_file *file, ep_file_text type, const uint32_t *fields, size_t field_count,
                const char *bytes, size_t byte_count)
{
    size_t words = 1 + (field_count * 4 + byte_count + 7) / 8;
    size_t left = 0;
    if (file->texts != NULL) {
        left = (size_t)((_Atomic uint64_t *)(file->texts + 1) + EP_CHUNK_WORDS_OF(file->text_bytes) -
                        file->text_next);
    }
    if (words >= left && !next_text_chunk(file, words)) {
        return false;
    }
    _Atomic uint64_t *at = file->text_next;
    char *body = (char *)(at + 1);
    memcpy(body, fields, field_count * 4);
    if (byte_count > 0) {
        memcpy(body + field_count * 4, bytes, byte_count);
    }
    atomic_store_explicit(&at[words], 0, memory_order_relaxed);
    EP_FAULT_POINT(TEXT);
    atomic_store_explicit(&at[0], (uint64_t)type << 32 | words, memory_order_release);
    file->text_next = at + words;
    return true;
}

static void
put_text(ep_file_text type, const uint32_t *fields, size_t field_count, const char *bytes,
         size_t byte_count)
{
    if (EP_UNLIKELY(ep_os_is_forked())) {
        return;    /* the file is the parent's */
    }
    int os_error = errno;    /* errno is the program's: hooks call this */
    ep_mutex_lock(&texts_lock);
    ep_file *file = other_file_of_texts;
    if (file == NULL) {
        file = atomic_load_explicit(&ep_file_of_texts, memory_order_relaxed);
    }
    if (file != NULL) {
        ep_mutex_lock(&file->lock);
        if (!put_text_locked(file, type, fields, field_count, bytes, byte_count)) {
            atomic_fetch_add_explicit(&file->header->texts_lost, 1, memory_order_relaxed);
        }
        EP_CHECK_INVARIANTS(check_file(file));
        ep_mutex_unlock(&file->lock);
    }
    ep_mutex_unlock(&texts_lock);
    errno = os_error;
}

static void
put_string(uint32_t id, ep_text text)
{
    size_t bytes = text.bytes < EP_FILE_STRING_LIMIT ? text.bytes : EP_FILE_STRING_LIMIT;
    uint32_t fields[] = {id, (uint32_t)bytes};
    put_text(EP_FILE_TEXT_STRING, fields, 2, text.at, bytes);
}

static void
put_name(uint32_t id, const ep_name *name)
{
    uint32_t fields[] = {id, name->qualname, name->module, name->file, (uint32_t)name->line, name->kind};
    put_text(EP_FILE_TEXT_NAME, fields, 6, NULL, 0);
}

static void
put_site(uint32_t id, const ep_site *site)
{
    uint32_t fields[] = {id, site->callee, site->caller, (uint32_t)site->offset, (uint32_t)site->line,
                         site->task};
    /* Few sites have a sixth. */
    put_text(EP_FILE_TEXT_SITE, fields, site->task != 0 ? 6 : 5, NULL, 0);
}

void
ep_file_put_thread(const ep_thread *thread)
{
    bool named = atomic_load_explicit(&thread->named, memory_order_acquire);
    size_t bytes = named ? strlen(thread->name) : 0;
    uint32_t fields[] = {thread->id, (uint32_t)bytes, (uint32_t)thread->native_id,
                         (uint32_t)(thread->native_id >> 32)};
    put_text(EP_FILE_TEXT_THREAD, fields, 4, thread->name, bytes);
    if (thread->carrier_id != 0) {
        uint32_t lane[] = {thread->id, thread->carrier_id};
        put_text(EP_FILE_TEXT_LANE, lane, 2, NULL, 0);
    }
}

void
ep_file_put_resident(int64_t monotonic_ns, int64_t bytes, int64_t own_bytes)
{
    uint32_t fields[] = {(uint32_t)monotonic_ns, (uint32_t)((uint64_t)monotonic_ns >> 32),
                         (uint32_t)bytes, (uint32_t)((uint64_t)bytes >> 32),
                         (uint32_t)own_bytes, (uint32_t)((uint64_t)own_bytes >> 32)};
    put_text(EP_FILE_TEXT_RESIDENT, fields, 6, NULL, 0);
}

static const ep_names_sink names_sink = {
    .string = put_string,
    .name = put_name,
    .site = put_site,
};

static EP_REQUIRES(texts_lock) void put_worker_locked(ep_file *file)
{
    if (file != NULL) {
        memcpy(file->header->worker, worker_name, sizeof worker_name);
    }
}

void
ep_file_name_worker(ep_text name, bool replace)
{
    size_t bytes = ep_text_cut(name, EP_FILE_WORKER_BYTES - 1);
    ep_mutex_lock(&texts_lock);
    if (bytes > 0 && (replace || worker_name[0] == 0)) {
        memset(worker_name, 0, sizeof worker_name);
        memcpy(worker_name, name.at, bytes);
        put_worker_locked(atomic_load_explicit(&ep_file_of_texts, memory_order_relaxed));
    }
    ep_mutex_unlock(&texts_lock);
}

void
ep_file_get_worker(char worker[EP_FILE_WORKER_BYTES])
{
    ep_mutex_lock(&texts_lock);
    memcpy(worker, worker_name, sizeof worker_name);
    ep_mutex_unlock(&texts_lock);
}

static void
set_file_of_texts(void *file)
{
    ep_mutex_lock(&texts_lock);
    put_worker_locked(file);
    atomic_store_explicit(&ep_file_of_texts, file, memory_order_release);
    atomic_store_explicit(&ep_names_sink_now, file != NULL ? &names_sink : NULL, memory_order_release);
    ep_mutex_unlock(&texts_lock);
}

void
ep_file_begin_texts(ep_file *file)
{
    ep_names_tell_all(&names_sink, set_file_of_texts, file);
}

static void
set_other_file_of_texts(void *file)
{
    ep_mutex_lock(&texts_lock);
    put_worker_locked(file);
    ep_mutex_unlock(&texts_lock);
    other_file_of_texts = file;
}

void
ep_file_begin_other_texts(ep_file *file)
{
    ep_names_tell_all(&names_sink, set_other_file_of_texts, file);
}

void
ep_file_end_other_texts(void)
{
    set_other_file_of_texts(NULL);
}

void
ep_file_end_texts(void)
{
    set_file_of_texts(NULL);
}

TAKES_LOCK void
ep_file_before_fork(void)
{
    ep_mutex_lock(&texts_lock);
    ep_guard_before_fork();
}

GIVES_LOCK void
ep_file_after_fork(bool child)
{
    ep_guard_after_fork();
    if (child) {
        memset(worker_name, 0, sizeof worker_name);    /* it is the parent's */
        atomic_store_explicit(&ep_file_of_texts, NULL, memory_order_relaxed);
        atomic_store_explicit(&ep_names_sink_now, NULL, memory_order_relaxed);
    }
    ep_mutex_unlock(&texts_lock);
}

void
ep_file_after_bare_fork(void)
{
    ep_mutex_renew(&texts_lock);
    atomic_store_explicit(&ep_file_of_texts, NULL, memory_order_relaxed);
    atomic_store_explicit(&ep_names_sink_now, NULL, memory_order_relaxed);
}

/* ---- The end of a file with packed chunks ---------------------------------------------------- */

/* Compacts a file with packed chunks when its recording ends: packed slots move from the end of the file
 * into free slots before them, so that the file can be cut off there. Slots that are still free in between
 * become holes, which take no room on the disk. */

typedef struct listed_slot {
    uint64_t offset;
    uint32_t bytes;
    bool packed;    /* else it is free */
} listed_slot;

typedef struct slot_list {
    listed_slot *list;
    size_t count, capacity;
} slot_list;

/* Lists the packed and the free slots. Returns: false without memory, or if another program changed the
 * file. */
static bool
list_slots(const ep_file *file, slot_list *out)
{
    ep_chunk_header header;
    for (uint64_t at = file->head_bytes; at < file->length; at += header.bytes) {
        if (pread(file->descriptor, &header, sizeof header, (off_t)at) != sizeof header ||
            header.bytes == 0) {
            return false;
        }
        uint32_t state = atomic_load_explicit(&header.state, memory_order_relaxed);
        bool packed = header.magic == EP_FILE_PACKED_MAGIC && state == EP_CHUNK_SEALED;
        if (packed || (header.magic == EP_CHUNK_MAGIC && state == EP_CHUNK_FREE)) {
            if (!ep_grow((void **)&out->list, &out->capacity, out->count + 1, sizeof *out->list)) {
                return false;
            }
            out->list[out->count++] = (listed_slot){at, header.bytes, packed};
        }
    }
    return true;
}

/* Makes these bytes of the file a free slot. */
static bool
put_free_slot(const ep_file *file, uint64_t offset, uint32_t bytes)
{
    ep_chunk_header header = {.magic = EP_CHUNK_MAGIC, .bytes = bytes};
    return pwrite(file->descriptor, &header, sizeof header, (off_t)offset) == sizeof header;
}

/* Moves a packed slot into a free one, which is at least as long; `to` becomes what is left of it. If the
 * process is killed meanwhile, the file has the chunk once, or twice with the same contents. Returns: the
 * mapping of the new slot; NULL: nothing has moved. */
static ep_chunk_header *
move_slot(ep_file *file, const listed_slot *from, listed_slot *to)
{
    ep_chunk_header header;
    char *at = mmap(NULL, from->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->descriptor,
                    (off_t)to->offset);
    if (at == MAP_FAILED) {
        return NULL;
    }
    const size_t rest = from->bytes - sizeof header;
    uint32_t left = to->bytes - from->bytes;
    bool whole = pread(file->descriptor, &header, sizeof header, (off_t)from->offset) == sizeof header &&
                 pread(file->descriptor, at + sizeof header, rest,
                       (off_t)(from->offset + sizeof header)) == (ssize_t)rest &&
                 (left == 0 || put_free_slot(file, to->offset + from->bytes, left)) &&
                 /* The header last: from here on the new slot is valid. */
                 pwrite(file->descriptor, &header, sizeof header, (off_t)to->offset) == sizeof header;
    if (!whole) {
        (void)munmap(at, from->bytes);
        return NULL;
    }
    EP_FAULT_POINT(MOVED);
    (void)put_free_slot(file, from->offset, from->bytes);
    to->offset += from->bytes;
    to->bytes = left;
    ep_os_own_add(from->bytes);    /* ep_os_unmap() takes them off */
    return (ep_chunk_header *)at;
}

static void
give_room_back(const ep_file *file, const listed_slot *free_slot)
{
#ifdef FALLOC_FL_PUNCH_HOLE
    /* The first page stays: the slot's header, with its length, is there. */
    if (free_slot->bytes > file->unit) {
        (void)!fallocate(file->descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                         (off_t)(free_slot->offset + file->unit), (off_t)(free_slot->bytes - file->unit));
    }
#else
    (void)file, (void)free_slot;
#endif
}

void
ep_file_compact(ep_file *file, void (*moved)(void *, ep_chunk_header *), void *context)
{
    ep_mutex_lock(&file->lock);
    slot_list s = {0};
    if (file->descriptor >= 0 && !is_cut_locked(file) && list_slots(file, &s)) {
        size_t first = 0;    /* no slot before it is free */
        for (size_t from = s.count; from-- > 0;) {
            if (!s.list[from].packed) {
                continue;
            }
            for (size_t to = first; to < from; to++) {
                listed_slot *target = &s.list[to];
                bool is_free = !target->packed && target->bytes > 0;
                first += to == first && !is_free;
                if (is_free && target->bytes >= s.list[from].bytes) {
                    ep_chunk_header *at = move_slot(file, &s.list[from], target);
                    if (at != NULL) {
                        s.list[from].packed = false;
                        moved(context, at);
                    }
                    break;
                }
            }
        }
        for (size_t i = 0; i < s.count; i++) {
            if (!s.list[i].packed) {
                give_room_back(file, &s.list[i]);
            }
        }
    }
    free(s.list);
    ep_mutex_unlock(&file->lock);
}

/* ---- The life of a file ---------------------------------------------------------------------- */

/* So many names are tried for a file; each was a process with the same id. */
#define UNUSED_NAMES_MAX 10000

static void
close_descriptors(ep_file *file)
{
    if (file->descriptor >= 0) {
        close(file->descriptor);
    }
    if (file->alive >= 0) {
        close(file->alive);
    }
    file->descriptor = file->alive = -1;
}

static void
free_file(ep_file *file)
{
    if (file->header != NULL) {
        ep_os_unmap(file->header, file->head_bytes);
    }
    if (file->texts != NULL) {
        ep_os_unmap(file->texts, file->text_bytes);
    }
    for (int i = 0; i < 2; i++) {
        if (file->states[i].slot != NULL) {
            ep_os_unmap(file->states[i].slot, file->states[i].bytes);
        }
    }
    ep_guard_end(file->guard);
    close_descriptors(file);
    pthread_mutex_destroy(&file->lock.os);
    free(file->path);
    free(file->child_path);
    free(file->temporary);
    free(file);
}

static char *
copy_string(const char *text)
{
    char *copy = ep_calloc(strlen(text) + 1, 1);
    return copy != NULL ? strcpy(copy, text) : NULL;
}

static const char *
name_now(const ep_file *file)
{
    return file->temporary != NULL ? file->temporary : file->path;
}

/* A new file of that name, which only its owner may read: it has paths and arguments. Fails: -1, errno. */
static int
open_new(const char *path)
{
    return open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
}

/* The name of a new file until it replaces the one at `path`, which stays if the recording cannot begin.
 * An existing file is never truncated, because another process may have mapped it. Returns: new (free); or
 * NULL, without memory or if there is nothing at `path` that can be replaced: then *replaces is false. */
static char *
temporary_name(const char *path, bool *replaces)
{
    struct stat there;
    *replaces = lstat(path, &there) == 0 && (S_ISREG(there.st_mode) || S_ISLNK(there.st_mode));
    if (!*replaces) {
        return NULL;
    }
    const char *end = strrchr(path, '/');
    int folder = end != NULL ? (int)(end - path) + 1 : 0;
    size_t room = (size_t)folder + 64;
    char *name = ep_calloc(room, 1);
    if (name != NULL) {
        (void)snprintf(name, room, "%.*s.eventprof-%" PRIu64 "-%" PRIx64 ".part", folder, path,
                       ep_os_process_id(), (uint64_t)ep_os_monotonic_ns());
    }
    return name;
}

/* Locks the file as long as the process lives, so that a reader knows that more events may come. It uses
 * another descriptor than the mappings: a forked child inherits the mappings, and a lock on that descriptor
 * would live as long as they do. Returns: the descriptor with the lock, or -1. */
static int
lock_alive(const char *path, int descriptor)
{
    struct stat ours, opened;
    int alive = open(path, O_RDONLY | O_CLOEXEC);
    if (alive >= 0 && (fstat(descriptor, &ours) != 0 || fstat(alive, &opened) != 0 ||
                       ours.st_ino != opened.st_ino || ours.st_dev != opened.st_dev ||
                       flock(alive, LOCK_EX | LOCK_NB) != 0)) {
        close(alive);
        alive = -1;
    }
    return alive;
}

/* %u becomes nothing for the first number, then -2, -3. Returns: new (free), or NULL. */
static char *
expand(const char *pattern, uint64_t process_id, unsigned number)
{
    size_t room = strlen(pattern) * 20 + 1;
    char *path = ep_calloc(room, 1);
    size_t at = 0;
    for (const char *from = pattern; path != NULL && *from != 0; from++) {
        if (from[0] == '%' && from[1] == 'p') {
            at += (size_t)snprintf(path + at, room - at, "%" PRIu64, process_id);
            from++;
        } else if (from[0] == '%' && from[1] == 'u') {
            at += number > 1 ? (size_t)snprintf(path + at, room - at, "-%u", number) : 0;
            from++;
        } else {
            from += from[0] == '%' && from[1] == '%';
            path[at++] = *from;
        }
    }
    return path;
}

/* The pattern with %u before the suffix. Returns: new (free), or NULL. */
static char *
with_number(const char *pattern)
{
    size_t length = strlen(pattern);
    const char *folder_end = strrchr(pattern, '/'), *dot = strrchr(pattern, '.');
    const char *name = folder_end != NULL ? folder_end + 1 : pattern;
    size_t stem = dot != NULL && dot > name ? (size_t)(dot - pattern) : length;
    char *numbered = ep_calloc(length + 3, 1);
    if (numbered != NULL) {
        (void)snprintf(numbered, length + 3, "%.*s%%u%s", (int)stem, pattern, pattern + stem);
    }
    return numbered;
}

static bool
has_directive(const char *pattern, char letter)
{
    for (const char *at = pattern; *at != 0; at += 1 + (*at == '%' && at[1] != 0)) {
        if (at[0] == '%' && at[1] == letter) {
            return true;
        }
    }
    return false;
}

/* Makes the folder of a path, not those above it; it may exist already. */
static bool
make_folder(char *path)
{
    char *end = strrchr(path, '/');
    if (end == NULL) {
        return false;
    }
    *end = 0;
    bool made = mkdir(path, 0700) == 0 || errno == EEXIST;
    *end = '/';
    return made;
}

/* A file of the first name that is not used: process ids come back, and an earlier process's file is not
 * replaced. makes_folder: its folder is made if need be. Returns: EP_OK, with file->path and
 * file->descriptor (-1: errno says why), or EP_NOMEM. */
static ep_status
open_unused(ep_file *file, const char *pattern, bool makes_folder)
{
    for (unsigned number = 1; number < UNUSED_NAMES_MAX; number++) {
        free(file->path);
        file->path = expand(pattern, ep_os_process_id(), number);
        if (file->path == NULL) {
            return EP_NOMEM;
        }
        file->descriptor = open_new(file->path);
        if (file->descriptor < 0 && errno == ENOENT && makes_folder && make_folder(file->path)) {
            file->descriptor = open_new(file->path);
        }
        if (file->descriptor >= 0 || errno != EEXIST) {
            break;
        }
    }
    return EP_OK;
}

static void
fill_kind_table(ep_file_kind table[EP_KIND_COUNT])
{
    for (unsigned kind = 0; kind < EP_KIND_COUNT; kind++) {
        const ep_kind_info *info = &ep_kinds[kind];
        if (info->name != NULL) {
            table[kind] = (ep_file_kind){info->words, info->form, info->pairing, info->domain, {0}};
            strncpy(table[kind].word, info->word, EP_FILE_KIND_WORD_BYTES - 1);
        }
    }
}

/* Opens the file that file->path names, or that it will replace: then it has file->temporary. Returns:
 * EP_OK, with file->descriptor (-1: errno says why), or EP_NOMEM. */
static ep_status
open_as_asked(ep_file *file, const ep_file_options *options)
{
    if (has_directive(options->path, 'u')) {
        return open_unused(file, options->path, true);
    }
    /* A process that was forked has a file already when it starts another Python by exec. */
    if (options->unused || (!options->replace && has_directive(options->path, 'p'))) {
        char *pattern = with_number(options->path);
        ep_status status = pattern != NULL ? open_unused(file, pattern, false) : EP_NOMEM;
        int os_error = errno;
        free(pattern);
        errno = os_error;
        return status;
    }
    bool replaces = false;
    if (options->replace) {
        file->temporary = temporary_name(file->path, &replaces);
        if (replaces && file->temporary == NULL) {
            return EP_NOMEM;
        }
    }
    file->descriptor = open_new(name_now(file));
    return EP_OK;
}

/* Removes a file that cannot be made. */
static ep_status
fail_new(ep_file *file, int os_error, ep_error *error)
{
    if (file->descriptor >= 0) {
        ep_file_remove(file);
    }
    free_file(file);
    return os_error == 0 ? EP_NOMEM : ep_fail_os(error, os_error);
}

/* Not checked: no other thread has the file yet. */
EP_NOT_CHECKED ep_status
ep_file_create(const ep_file_options *options, ep_file **out, ep_error *error)
{
    if (options->metadata_bytes > EP_FILE_METADATA_LIMIT) {
        return ep_fail(error, EP_ARGUMENT, "metadata of %zu bytes; a log file holds %" PRIu64,
                       options->metadata_bytes, EP_FILE_METADATA_LIMIT);
    }
    ep_file *file = ep_calloc(1, sizeof *file);
    if (file == NULL) {
        return EP_NOMEM;
    }
    ep_mutex_renew(&file->lock);
    atomic_init(&file->refs, 1);
    file->descriptor = file->alive = -1;
    file->guard = EP_GUARD_NONE;
    file->dropped_sequence = UINT64_MAX;
    file->unit = ep_os_page_bytes();
    file->packs = options->packs;
    file->in_family = has_directive(options->child_path, 'u');
    file->head_bytes = (EP_FILE_METADATA_OFFSET + options->metadata_bytes + file->unit - 1) &
                       ~(file->unit - 1);
    file->path = expand(options->path, ep_os_process_id(), 1);
    file->child_path = copy_string(options->child_path);
    if (file->path == NULL || file->child_path == NULL) {
        free_file(file);
        return EP_NOMEM;
    }
    if (open_as_asked(file, options) != EP_OK) {
        return fail_new(file, 0, error);
    }
    if (file->descriptor < 0) {
        return fail_new(file, errno, error);
    }
    file->alive = lock_alive(name_now(file), file->descriptor);
    errno = 0;
    file->header = extend(file, file->head_bytes);
    if (file->header == NULL) {
        return fail_new(file, errno, error);
    }
    file->guard = ep_guard_begin(file->header);
    ep_file_header *header = file->header;
    memcpy((char *)header + EP_FILE_METADATA_OFFSET, options->metadata, options->metadata_bytes);
    *header = (ep_file_header){
        .major = options->packs ? EP_FILE_MAJOR : EP_FILE_MAJOR_UNPACKED,
        .minor = options->packs ? 0 : EP_FILE_MINOR,
        .byte_order = EP_FILE_BYTE_ORDER,
        .header_bytes = sizeof *header,
        .slot_bytes = (uint32_t)file->unit,
        .process_id = ep_os_process_id(),
        .parent_process_id = ep_os_parent_process_id(),
        .metadata_bytes = options->metadata_bytes,
        .full_ticks = UINT64_MAX,
        .start_resident_bytes = -1,
        .stop_resident_bytes = -1,
        .slots = file->length / file->unit,
        .head_bytes = file->head_bytes,
    };
    fill_kind_table(header->kind_table);
    /* Done now, so that there is room for the state if the disk is full later. */
    errno = 0;
    if (!move_state(file, 0, 0) || !move_state(file, 1, 0)) {
        return fail_new(file, errno, error);
    }
    /* Not as an initializer: gcc 15 and later warn about a text without its zero. */
    memcpy(header->magic, EP_FILE_MAGIC, sizeof header->magic);
    *out = file;
    return EP_OK;
}

ep_status
ep_file_put_in_place(ep_file *file, ep_error *error)
{
    if (file->temporary != NULL && rename(file->temporary, file->path) != 0) {
        return ep_fail_os(error, errno);
    }
    free(file->temporary);
    file->temporary = NULL;
    return EP_OK;
}

void
ep_file_remove(const ep_file *file)
{
    (void)unlink(name_now(file));
}

ep_file *
ep_file_hold(ep_file *file)
{
    atomic_fetch_add_explicit(&file->refs, 1, memory_order_relaxed);
    return file;
}

void
ep_file_release(ep_file *file)
{
    if (file != NULL && atomic_fetch_sub_explicit(&file->refs, 1, memory_order_acq_rel) == 1) {
        free_file(file);
    }
}

const char *
ep_file_path(const ep_file *file)
{
    return file->path;
}

bool
ep_file_packs(const ep_file *file)
{
    return file->packs;
}

bool
ep_file_is_at(const ep_file *file, const char *pattern)
{
    char *path = expand(pattern, ep_os_process_id(), 1);
    bool is = path != NULL && strcmp(path, file->path) == 0;
    free(path);
    return is;
}

static bool
is_zero(const char *at, size_t bytes)
{
    return at[0] == 0 && memcmp(at, at + 1, bytes - 1) == 0;
}

/* The end of the last used slot, without its unwritten pages except one: a thread without the runtime's
 * lock may be in the middle of a record. */
static uint64_t
used_length(const ep_file *file)
{
    uint64_t last = 0;
    uint32_t last_bytes = 0;
    ep_chunk_header slot;
    for (uint64_t at = file->head_bytes; at + sizeof slot <= file->length; at += slot.bytes) {
        if (pread(file->descriptor, &slot, sizeof slot, (off_t)at) != sizeof slot || slot.bytes == 0) {
            return file->length;    /* another process changed it */
        }
        if (slot.magic != EP_CHUNK_MAGIC ||
            atomic_load_explicit(&slot.state, memory_order_relaxed) != EP_CHUNK_FREE) {
            last = at;
            last_bytes = slot.bytes;
        }
    }
    if (last == 0) {
        return file->head_bytes;
    }
    char *at = mmap(NULL, last_bytes, PROT_READ, MAP_SHARED, file->descriptor, (off_t)last);
    if (at == MAP_FAILED) {
        return last + last_bytes;
    }
    uint64_t used = last_bytes;
    while (used > file->unit && is_zero(at + used - file->unit, file->unit)) {
        used -= file->unit;
    }
    (void)munmap(at, last_bytes);
    return last + (used < last_bytes ? used + file->unit : used);
}

void
ep_file_finish(ep_file *file)
{
    ep_mutex_lock(&file->lock);
    seal_texts(file);
    EP_FAULT_POINT(FINISH);
    atomic_store_explicit(&file->header->phase, EP_FILE_FINISHED, memory_order_release);
    EP_FAULT_POINT(FINISHED);
    if (file->descriptor >= 0) {
        if (!is_cut_locked(file)) {
            uint64_t used = used_length(file);
            if (file->in_family) {
                uint64_t less = file->length - used;
                ep_quota_give(less < file->room_bytes ? less : file->room_bytes);
            }
            file->length = used;
            atomic_store_explicit(&file->header->slots, file->length / file->unit, memory_order_release);
            (void)!ftruncate(file->descriptor, (off_t)file->length);
        }
        /* Not at the last release, because a trace may keep the chunks for a long time. */
        close_descriptors(file);
    }
    ep_mutex_unlock(&file->lock);
}

void
ep_file_abandon(ep_file *file)
{
    close_descriptors(file);
}

ep_file *
ep_file_create_for_child(const ep_file *parent)
{
    ep_file_options options = {
        .path = parent->child_path,
        .child_path = parent->child_path,
        .unused = true,    /* an existing file is of an earlier process with the same id */
        .packs = parent->packs,
        .metadata = (const char *)parent->header + EP_FILE_METADATA_OFFSET,
        .metadata_bytes = parent->header->metadata_bytes,
    };
    ep_file *file;
    ep_error error = {.os_error = 0};
    if (ep_file_create(&options, &file, &error) != EP_OK) {
        int os_error = error.os_error != 0 ? error.os_error : ENOMEM;
        ep_file_count_child_lost(parent, os_error);
        return NULL;
    }
    memcpy(file->header->calls_from, parent->header->calls_from, sizeof file->header->calls_from);
    return file;
}
