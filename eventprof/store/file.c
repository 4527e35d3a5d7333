#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file_parts.h"
#include "guard.h"
#include "memory.h"
#include "os.h"
#include "quota.h"

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
    pthread_mutex_destroy(&file->lock);
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
    file->header = ep_file_extend_locked(file, file->head_bytes);
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
    if (!ep_file_move_state(file, 0, 0) || !ep_file_move_state(file, 1, 0)) {
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
    pthread_mutex_lock(&file->lock);
    ep_file_seal_texts(file);
    EP_FAULT_POINT(FINISH);
    atomic_store_explicit(&file->header->phase, EP_FILE_FINISHED, memory_order_release);
    EP_FAULT_POINT(FINISHED);
    if (file->descriptor >= 0) {
        if (!ep_file_is_cut_locked(file)) {
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
