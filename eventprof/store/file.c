#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guard.h"
#include "memory.h"
#include "names.h"
#include "os.h"

#define ZEROS_BYTES 65536

struct ep_file {
    _Atomic uint32_t refs;
    pthread_mutex_t lock;               /* of length, cut and the text chunk */
    int descriptor;                     /* -1: abandoned */
    int alive;                          /* holds the lock that says so; -1: none */
    char *path, *child_path;
    ep_file_header *header;             /* the head */
    size_t unit, head_bytes;
    uint64_t length;
    int guard;                          /* its number in guard.h */
    bool cut;                           /* somebody else made it shorter */
    ep_chunk_header *texts;             /* NULL: none yet, or no room */
    size_t text_bytes;                  /* of the slot of texts */
    _Atomic uint64_t *text_next;
    uint64_t text_sequence;
    /* The states; what the header says of them is for readers. */
    struct {
        ep_chunk_header *slot;          /* NULL: none yet */
        size_t bytes;                   /* of the slot */
    } states[2];
    uint32_t state_now;                 /* which of them counts */
    uint64_t dropped_sequence;          /* as the one that counts says */
};

_Atomic(ep_file *) ep_file_of_texts;
/* On a thread that writes all texts to another file: that file. */
static _Thread_local ep_file *other_file_of_texts;
/* Who holds it sees the file live; taken before the file's own. */
static pthread_mutex_t texts_lock = PTHREAD_MUTEX_INITIALIZER;

uint64_t
ep_sum64(const void *at, size_t bytes)
{
    const uint64_t factor = UINT64_C(0x9E3779B97F4A7C15);
    uint64_t sums[4] = {1, 2, 3, 4};
    const char *from = at;
    size_t i = 0;
    for (; i + 32 <= bytes; i += 32) {
        uint64_t words[4];
        memcpy(words, from + i, sizeof words);
        for (int lane = 0; lane < 4; lane++) {
            sums[lane] = (sums[lane] ^ words[lane]) * factor;
        }
    }
    for (; i + 8 <= bytes; i += 8) {
        uint64_t word;
        memcpy(&word, from + i, sizeof word);
        sums[0] = (sums[0] ^ word) * factor;
    }
    uint64_t sum = bytes;
    for (int lane = 0; lane < 4; lane++) {
        sum = (sum ^ sums[lane] ^ sums[lane] >> 29) * factor;
    }
    return sum;
}

/* ---- Slots ----------------------------------------------------------------------------------- */

/* Gives the slot its room on the disk: a write into a mapped hole of a full disk is a SIGBUS. */
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

/* A file that others cut is not made longer again: what lies between would be holes. */
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
    pthread_mutex_lock(&file->lock);
    bool cut = is_cut_locked(file);
    pthread_mutex_unlock(&file->lock);
    return cut;
}

size_t
ep_file_slot_unit(const ep_file *file)
{
    return file->unit;
}

/* Returns: the next `bytes` of the file, zeroed; NULL as ep_file_take_slot(). */
static void *
extend_locked(ep_file *file, size_t bytes)
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
        /* What fallocate made of it goes: others may use the disk. */
        (void)!ftruncate(file->descriptor, (off_t)file->length);
        return NULL;
    }
    file->length += bytes;
    return at;
}

static ep_chunk_header *
take_slot_locked(ep_file *file, size_t bytes)
{
    ep_chunk_header *slot = extend_locked(file, bytes);
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
    pthread_mutex_lock(&file->lock);
    ep_chunk_header *at = take_slot_locked(file, bytes);
    pthread_mutex_unlock(&file->lock);
    errno = error;
    return at;
}

/* Slots of texts and states double. */
static size_t
slot_bytes_for(const ep_file *file, size_t least, size_t before)
{
    size_t bytes = before > 0 ? 2 * before : file->unit;
    while (bytes < least) {
        bytes *= 2;
    }
    return bytes < EP_CHUNK_BYTES ? bytes : EP_CHUNK_BYTES;
}

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

/* Gives a state a slot of `bytes` and more, if there is room; else, false, it stays where it is. */
static bool
move_state(ep_file *file, uint32_t which, size_t bytes)
{
    size_t before = file->states[which].bytes;
    if (before == EP_CHUNK_BYTES) {
        return false;
    }
    size_t grown = slot_bytes_for(file, bytes, before);
    pthread_mutex_lock(&file->lock);
    ep_chunk_header *slot = take_slot_locked(file, grown);
    uint64_t end = file->length;
    pthread_mutex_unlock(&file->lock);
    if (slot == NULL) {
        return false;
    }
    slot->magic = EP_FILE_STATE_MAGIC;
    if (before > 0) {
        ep_os_unmap(file->states[which].slot, before);
    }
    file->states[which].slot = slot;
    file->states[which].bytes = grown;
    /* Nobody reads there until header->state says so, which is a release. */
    atomic_store_explicit(&file->header->state_offset[which], end - grown + sizeof *slot,
                          memory_order_relaxed);
    atomic_store_explicit(&file->header->state_room[which], grown - sizeof *slot, memory_order_relaxed);
    return true;
}

static bool
is_zero(const char *at, size_t bytes)
{
    return at[0] == 0 && memcmp(at, at + 1, bytes - 1) == 0;
}

/* ---- Life ------------------------------------------------------------------------------------ */

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
    pthread_mutex_destroy(&file->lock);
    free(file->path);
    free(file->child_path);
    free(file);
}

static char *
copy_string(const char *text)
{
    char *copy = ep_calloc(strlen(text) + 1, 1);
    return copy != NULL ? strcpy(copy, text) : NULL;
}

/* A new file of that name. Fails: -1, errno. */
static int
open_new(const char *path, bool replace)
{
    if (replace) {
        struct stat there;
        /* Never truncated: somebody may have it mapped. */
        if (lstat(path, &there) == 0 && (S_ISREG(there.st_mode) || S_ISLNK(there.st_mode)) &&
            unlink(path) != 0) {
            return -1;
        }
    }
    return open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
}

/* Locks the file as long as the process lives: how a reader knows that more may come. Not by the
 * descriptor that is mapped: a forked child inherits the mappings, and a lock lives as long as they
 * do. Returns: the descriptor that holds it, or -1. */
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

/* Returns: new (free), or NULL. */
static char *
expand(const char *pattern, uint64_t process_id)
{
    size_t room = strlen(pattern) * 20 + 1;
    char *path = ep_calloc(room, 1);
    size_t at = 0;
    for (const char *from = pattern; path != NULL && *from != 0; from++) {
        if (from[0] == '%' && from[1] == 'p') {
            at += (size_t)snprintf(path + at, room - at, "%" PRIu64, process_id);
            from++;
        } else {
            from += from[0] == '%' && from[1] == '%';
            path[at++] = *from;
        }
    }
    return path;
}

static void
fill_kind_table(ep_file_kind table[EP_KIND_COUNT])
{
    for (unsigned kind = 0; kind < EP_KIND_COUNT; kind++) {
        const ep_kind_info *info = &ep_kinds[kind];
        if (info->name != NULL) {
            table[kind] = (ep_file_kind){info->words, info->family, info->pairing, info->domain, {0}};
            strncpy(table[kind].word, info->word, EP_FILE_KIND_WORD_BYTES - 1);
        }
    }
}

ep_status
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
    pthread_mutex_init(&file->lock, NULL);
    atomic_init(&file->refs, 1);
    file->descriptor = file->alive = -1;
    file->guard = EP_GUARD_NONE;
    file->dropped_sequence = UINT64_MAX;
    file->unit = ep_os_page_bytes();
    file->head_bytes = (EP_FILE_METADATA_OFFSET + options->metadata_bytes + file->unit - 1) &
                       ~(file->unit - 1);
    file->path = expand(options->path, ep_os_process_id());
    file->child_path = copy_string(options->child_path);
    if (file->path == NULL || file->child_path == NULL) {
        free_file(file);
        return EP_NOMEM;
    }
    file->descriptor = open_new(file->path, options->replace);
    if (file->descriptor < 0) {
        int os_error = errno;
        free_file(file);
        return ep_fail_os(error, os_error);
    }
    file->alive = lock_alive(file->path, file->descriptor);
    errno = 0;
    file->header = extend_locked(file, file->head_bytes);
    if (file->header == NULL) {
        int os_error = errno;
        (void)unlink(file->path);
        free_file(file);
        return os_error == 0 ? EP_NOMEM : ep_fail_os(error, os_error);
    }
    file->guard = ep_guard_begin(file->header);
    ep_file_header *header = file->header;
    memcpy((char *)header + EP_FILE_METADATA_OFFSET, options->metadata, options->metadata_bytes);
    *header = (ep_file_header){
        .major = EP_FILE_MAJOR,
        .minor = EP_FILE_MINOR,
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
    /* Now: on a disk that is full later there is room to say so. */
    errno = 0;
    if (!move_state(file, 0, 0) || !move_state(file, 1, 0)) {
        int os_error = errno;
        (void)unlink(file->path);
        free_file(file);
        return os_error == 0 ? EP_NOMEM : ep_fail_os(error, os_error);
    }
    /* Not as an initializer: gcc 15 and later take a text without its zero for a slip. */
    memcpy(header->magic, EP_FILE_MAGIC, sizeof header->magic);
    *out = file;
    return EP_OK;
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
ep_file_is_at(const ep_file *file, const char *pattern)
{
    char *path = expand(pattern, ep_os_process_id());
    bool is = path != NULL && strcmp(path, file->path) == 0;
    free(path);
    return is;
}

ep_file_header *
ep_file_get_header(ep_file *file)
{
    return file->header;
}

/* Where the last slot ends that holds something, without the pages at its end that nobody wrote to; but
 * for one: a thread that holds no lock of the runtime's may be in the middle of a record. */
static uint64_t
used_length(const ep_file *file)
{
    uint64_t last = 0;
    uint32_t last_bytes = 0;
    ep_chunk_header slot;
    for (uint64_t at = file->head_bytes; at + sizeof slot <= file->length; at += slot.bytes) {
        if (pread(file->descriptor, &slot, sizeof slot, (off_t)at) != sizeof slot || slot.bytes == 0) {
            return file->length;    /* others wrote into it */
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
    pthread_mutex_lock(&file->lock);
    seal_texts(file);
    EP_FAULT_POINT(FINISH);
    atomic_store_explicit(&file->header->phase, EP_FILE_FINISHED, memory_order_release);
    EP_FAULT_POINT(FINISHED);
    if (file->descriptor >= 0) {
        if (!is_cut_locked(file)) {
            file->length = used_length(file);
            atomic_store_explicit(&file->header->slots, file->length / file->unit, memory_order_release);
            (void)!ftruncate(file->descriptor, (off_t)file->length);
        }
        /* Not at the last release: a trace may keep the chunks for long. */
        close_descriptors(file);
    }
    pthread_mutex_unlock(&file->lock);
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
        .replace = true,    /* it is of another process of this number, long ago */
        .metadata = (const char *)parent->header + EP_FILE_METADATA_OFFSET,
        .metadata_bytes = parent->header->metadata_bytes,
    };
    ep_file *file;
    ep_error error = {.os_error = 0};
    if (ep_file_create(&options, &file, &error) != EP_OK) {
        int os_error = error.os_error != 0 ? error.os_error : ENOMEM;
        atomic_store_explicit(&parent->header->children_error, (uint32_t)os_error, memory_order_relaxed);
        atomic_fetch_add_explicit(&parent->header->children_lost, 1, memory_order_relaxed);
        return NULL;
    }
    memcpy(file->header->calls_from, parent->header->calls_from, sizeof file->header->calls_from);
    return file;
}

/* ---- States ---------------------------------------------------------------------------------- */

void
ep_file_put_beat(ep_file *file, ep_anchor anchor)
{
    ep_file_header *header = file->header;
    uint32_t next = atomic_load_explicit(&header->beat, memory_order_relaxed) ^ 1;
    header->beats[next & 1] = anchor;
    atomic_store_explicit(&header->beat, next & 1, memory_order_release);
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
        dropped_sequence = file->dropped_sequence;    /* so that a reader sees that there was one */
    }
    char *begin = (char *)(file->states[next].slot + 1);
    const char *end = (char *)file->states[next].slot + file->states[next].bytes;
    char *body = begin + sizeof(ep_file_state), *at = body;
    ep_file_state state = {.dropped_sequence = dropped_sequence};
    /* The state before this one counts before the one that goes is overwritten: after a kill, too. */
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
    /* Release: who sees the index sees the state, after a kill at any instruction as well. */
    atomic_store_explicit(&header->state, next, memory_order_release);
    file->state_now = next;
    file->dropped_sequence = dropped_sequence;
}

/* ---- Texts ----------------------------------------------------------------------------------- */

static bool
next_text_chunk(ep_file *file, size_t words)
{
    size_t least = sizeof(ep_chunk_header) + (words + 1) * 8;
    size_t bytes = slot_bytes_for(file, least, file->text_bytes);
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
 * terminator behind it. False: no room. */
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
    int os_error = errno;    /* the program's: hooks come here */
    pthread_mutex_lock(&texts_lock);
    ep_file *file = other_file_of_texts;
    if (file == NULL) {
        file = atomic_load_explicit(&ep_file_of_texts, memory_order_relaxed);
    }
    if (file != NULL) {
        pthread_mutex_lock(&file->lock);
        if (!put_text_locked(file, type, fields, field_count, bytes, byte_count)) {
            atomic_fetch_add_explicit(&file->header->texts_lost, 1, memory_order_relaxed);
        }
        pthread_mutex_unlock(&file->lock);
    }
    pthread_mutex_unlock(&texts_lock);
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
    /* Version 1.1 had five; few have a sixth. */
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
}

static const ep_names_sink names_sink = {
    .string = put_string,
    .name = put_name,
    .site = put_site,
};

static void
set_file_of_texts(void *file)
{
    pthread_mutex_lock(&texts_lock);
    atomic_store_explicit(&ep_file_of_texts, file, memory_order_release);
    atomic_store_explicit(&ep_names_sink_now, file != NULL ? &names_sink : NULL, memory_order_release);
    pthread_mutex_unlock(&texts_lock);
}

void
ep_file_begin_texts(ep_file *file)
{
    ep_names_tell_all(&names_sink, set_file_of_texts, file);
}

static void
set_other_file_of_texts(void *file)
{
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

void
ep_file_before_fork(void)
{
    pthread_mutex_lock(&texts_lock);
    ep_guard_before_fork();
}

void
ep_file_after_fork(bool child)
{
    ep_guard_after_fork();
    if (child) {
        atomic_store_explicit(&ep_file_of_texts, NULL, memory_order_relaxed);
        atomic_store_explicit(&ep_names_sink_now, NULL, memory_order_relaxed);
    }
    pthread_mutex_unlock(&texts_lock);
}
