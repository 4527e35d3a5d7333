/* Columns of all events, of large traces in removed files; the contract is in array.h. */
#include <stdatomic.h>
#include <stdio.h>

#ifdef __linux__
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>
#endif

#include "array.h"
#include "mutex.h"

/* A column of at least EP_ARRAY_ALIGN_FROM bytes. */
typedef struct large_column {
    void *at;
    size_t bytes;
    bool in_file;
    bool is_shared;    /* its file is mapped by a process that was forked, or by its parent, too */
} large_column;

static ep_mutex lock = EP_MUTEX_INIT;

static struct {
    large_column *list EP_GUARDED_BY(lock);
    size_t count EP_GUARDED_BY(lock), capacity EP_GUARDED_BY(lock);
    size_t in_memory EP_GUARDED_BY(lock);    /* bytes */
    size_t most_in_memory EP_GUARDED_BY(lock);
    _Atomic size_t in_files;                 /* bytes; written with the lock */
    ep_column_refusal refusal EP_GUARDED_BY(lock);    /* bytes 0: none since it was taken */
} columns = {.most_in_memory = EP_COLUMNS_IN_MEMORY};

/* ---- Files ----------------------------------------------------------------------------------- */

#ifdef __linux__

#define MAGIC_OF_TMPFS 0x01021994
#define MAGIC_OF_RAMFS 0x858458f6

/* Whether files there take memory: then a column may as well be memory. */
static bool
is_memory(const char *folder)
{
    struct statfs facts;
    return statfs(folder, &facts) != 0 || (unsigned long)facts.f_type == MAGIC_OF_TMPFS ||
           (unsigned long)facts.f_type == MAGIC_OF_RAMFS;
}

/* Returns: an open file without a name; -1: there cannot be one. */
static int
nameless_file(const char *folder)
{
    int file = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600);
    if (file >= 0) {
        return file;
    }
    char path[512];
    int length = snprintf(path, sizeof path, "%s/eventprof-XXXXXX", folder);
    if (length < 0 || (size_t)length >= sizeof path) {
        return -1;
    }
    file = mkostemp(path, O_CLOEXEC);
    if (file >= 0) {
        (void)unlink(path);
    }
    return file;
}

#define FOLDERS 3
#define MOST_FOLDER_BYTES sizeof((ep_column_refusal *)NULL)->folder
#define COPY_BYTES ((size_t)8 << 20)

/* Empty ones are left out. */
static char folders[FOLDERS][MOST_FOLDER_BYTES] EP_GUARDED_BY(lock) = {"", "", "/var/tmp"};

void
ep_columns_read_environment(void)
{
    const char *found[] = {getenv("EVENTPROF_TMPDIR"), getenv("TMPDIR")};
    ep_mutex_lock(&lock);
    for (size_t i = 0; i < sizeof found / sizeof *found; i++) {
        size_t bytes = found[i] != NULL && found[i][0] == '/' ? strlen(found[i]) + 1 : 0;
        bytes = bytes <= MOST_FOLDER_BYTES ? bytes : 0;
        folders[i][0] = 0;
        memcpy(folders[i], bytes != 0 ? found[i] : "", bytes);
    }
    ep_mutex_unlock(&lock);
}

/* Returns: a file in one of the folders, an index below FOLDERS; -1: there cannot be one. */
EP_REQUIRES(lock)
static int
file_in(size_t which)
{
    const char *folder = folders[which];
    return folder[0] == '/' && !is_memory(folder) ? nameless_file(folder) : -1;
}

bool
ep_columns_have_files(void)
{
    int error = errno;
    bool have = false;
    if (!ep_os_lock(&lock)) {
        return false;
    }
    for (size_t i = 0; i < FOLDERS && !have; i++) {
        int file = file_in(i);
        have = file >= 0;
        if (have) {
            close(file);
        }
    }
    ep_mutex_unlock(&lock);
    errno = error;
    return have;
}

static void
give_back(void *at, size_t bytes)
{
    (void)madvise(at, bytes, MADV_DONTNEED);
}

/* Whether all of the bytes are in the file now. They leave the resident set meanwhile. */
static bool
write_all(int file, const char *from, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        size_t part = bytes - done < COPY_BYTES ? bytes - done : COPY_BYTES;
        ssize_t written = pwrite(file, from + done, part, (off_t)done);
        if (written < 0 && errno != EINTR) {
            return false;
        }
        size_t more = written > 0 ? (size_t)written : 0;
        give_back((void *)(uintptr_t)(from + done), more);
        done += more;
    }
    return true;
}

/* os_error 0: the folder did not refuse. */
static void
note_refusal(ep_column_refusal *refusal, const char *folder, int os_error)
{
    if (os_error != 0 && refusal->os_error == 0) {
        refusal->os_error = os_error;
        memcpy(refusal->folder, folder, sizeof refusal->folder);
    }
}

/* Returns: a mapping of a file of its own; NULL: there is no room for one. old: the mapping is a copy of
 * that one, and takes its place; NULL: the mapping is anywhere, and zero. */
EP_REQUIRES(lock)
static void *
map_file(size_t bytes, void *old)
{
    int error = errno;
    void *at = NULL;
    ep_column_refusal refusal = {.bytes = bytes};
    for (size_t i = 0; i < FOLDERS && at == NULL; i++) {
        errno = 0;
        int file = file_in(i);
        if (file < 0) {
            note_refusal(&refusal, folders[i], errno);
            continue;
        }
        if (fallocate(file, 0, 0, (off_t)bytes) == 0 && (old == NULL || write_all(file, old, bytes))) {
            int flags = MAP_SHARED | (old != NULL ? MAP_FIXED : 0);
            at = mmap(old, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
            at = at != MAP_FAILED ? at : NULL;
        }
        note_refusal(&refusal, folders[i], at == NULL ? errno : 0);
        close(file);    /* the mapping keeps it */
    }
    if (at == NULL) {
        columns.refusal = refusal;
    }
    errno = error;
    return at;
}

static void
unmap(void *at, size_t bytes)
{
    (void)munmap(at, bytes);
}

#else

void
ep_columns_read_environment(void)
{
}

bool
ep_columns_have_files(void)
{
    return false;
}

static void *
map_file(size_t bytes, void *old)
{
    (void)bytes;
    (void)old;
    return NULL;
}

static void
unmap(void *at, size_t bytes)
{
    (void)at;
    (void)bytes;
}

static void
give_back(void *at, size_t bytes)
{
    (void)at;
    (void)bytes;
}

#endif

/* ---- Columns --------------------------------------------------------------------------------- */

/* A large one. *zeroed: whether it is known to be zero. Fails: NULL, out of memory. */
static void *
new_large(size_t count, size_t size, size_t untouched, bool *zeroed)
{
    if (count > SIZE_MAX / 2 / size || !ep_os_lock(&lock)) {
        return NULL;
    }
    large_column column = {.bytes = count * size};
    bool has_room = ep_grow_raw((void **)&columns.list, &columns.capacity, columns.count + 1,
                                sizeof *columns.list);
    if (has_room && (column.bytes > columns.most_in_memory ||
                     columns.in_memory > columns.most_in_memory - column.bytes)) {
        column.at = map_file(column.bytes, NULL);
        column.in_file = *zeroed = column.at != NULL;
    }
    if (has_room && column.at == NULL) {
        column.at = ep_array_new_but(count, size, untouched);
    }
    if (column.at != NULL) {
        columns.list[columns.count++] = column;
        columns.in_memory += column.in_file ? 0 : column.bytes;
        size_t in_files = atomic_load_explicit(&columns.in_files, memory_order_relaxed);
        in_files += column.in_file ? column.bytes : 0;
        atomic_store_explicit(&columns.in_files, in_files, memory_order_relaxed);
    }
    ep_mutex_unlock(&lock);
    return column.at;
}

static void *
new_column(size_t count, size_t size, size_t untouched, bool *zeroed)
{
    return count >= (EP_ARRAY_ALIGN_FROM + size - 1) / size ? new_large(count, size, untouched, zeroed)
                                                            : ep_array_new(count, size);
}

void *
ep_column_new(size_t count, size_t size)
{
    bool zeroed;
    return new_column(count, size, 0, &zeroed);
}

void *
ep_column_new_claimed(size_t count, size_t size)
{
    bool zeroed;
    return new_column(count, size, EP_ARRAY_ALIGN, &zeroed);
}

void *
ep_column_new_zeroed(size_t count, size_t size)
{
    bool zeroed = false;
    void *column = new_column(count, size, 0, &zeroed);
    if (column != NULL && !zeroed) {
        memset(column, 0, count * size);
    }
    return column;
}

void
ep_column_free(void *column)
{
    large_column found = {.at = column};
    /* All large columns begin on a page. */
    if (((uintptr_t)column & 4095) == 0 && column != NULL) {
        if (!ep_os_lock(&lock)) {
            return;    /* it may be a file, which free() does not know */
        }
        for (size_t i = columns.count; i-- > 0;) {
            if (columns.list[i].at != column) {
                continue;
            }
            found = columns.list[i];
            columns.list[i] = columns.list[--columns.count];
            columns.in_memory -= found.in_file ? 0 : found.bytes;
            size_t in_files = atomic_load_explicit(&columns.in_files, memory_order_relaxed);
            in_files -= found.in_file ? found.bytes : 0;
            atomic_store_explicit(&columns.in_files, in_files, memory_order_relaxed);
            break;
        }
        ep_mutex_unlock(&lock);
    }
    if (found.in_file) {
        unmap(column, found.bytes);
    } else {
        ep_free(column);
    }
}

bool
ep_column_own(void *column)
{
    if (ep_columns_in_files() == 0 || column == NULL) {
        return true;
    }
    if (!ep_os_lock(&lock)) {
        return false;
    }
    bool done = true;
    for (size_t i = 0; i < columns.count; i++) {
        large_column *found = &columns.list[i];
        if (found->at == column && found->is_shared) {
            done = map_file(found->bytes, column) != NULL;
            found->is_shared = !done;
        }
    }
    ep_mutex_unlock(&lock);
    return done;
}

void
ep_columns_give_back(void)
{
    if (ep_columns_in_files() == 0 || !ep_os_lock(&lock)) {
        return;
    }
    for (size_t i = 0; i < columns.count; i++) {
        if (columns.list[i].in_file) {
            give_back(columns.list[i].at, columns.list[i].bytes);
        }
    }
    ep_mutex_unlock(&lock);
}

size_t
ep_columns_in_files(void)
{
    /* Relaxed: a thread that made such a column sees that. */
    return atomic_load_explicit(&columns.in_files, memory_order_relaxed);
}

EP_ACQUIRES(lock)
void
ep_columns_before_fork(void)
{
    ep_mutex_lock(&lock);
    for (size_t i = 0; i < columns.count; i++) {
        columns.list[i].is_shared = columns.list[i].in_file;
    }
}

EP_RELEASES(lock)
void
ep_columns_after_fork(void)
{
    ep_mutex_unlock(&lock);
}

bool
ep_columns_take_refusal(ep_column_refusal *out)
{
    if (!ep_os_lock(&lock)) {
        return false;
    }
    *out = columns.refusal;
    columns.refusal = (ep_column_refusal){0};
    ep_mutex_unlock(&lock);
    return out->bytes > 0;
}

size_t
ep_columns_set_in_memory(size_t bytes)
{
    ep_mutex_lock(&lock);
    size_t before = columns.most_in_memory;
    columns.most_in_memory = bytes;
    ep_mutex_unlock(&lock);
    return before;
}
