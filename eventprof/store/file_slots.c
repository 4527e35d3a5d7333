/* The slots of a log file: each makes the file longer, and is mapped. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fault.h"
#include "file_parts.h"
#include "guard.h"
#include "invariants.h"
#include "os.h"
#include "quota.h"

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

bool
ep_file_is_cut_locked(ep_file *file)
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
    bool cut = ep_file_is_cut_locked(file);
    pthread_mutex_unlock(&file->lock);
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

void *
ep_file_extend_locked(ep_file *file, size_t bytes)
{
    if (file->descriptor < 0 || ep_fault_now() || ep_file_is_cut_locked(file)) {
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

ep_chunk_header *
ep_file_take_slot_locked(ep_file *file, size_t bytes)
{
    ep_chunk_header *slot = ep_file_extend_locked(file, bytes);
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
    ep_chunk_header *at = NULL;
    /* Only slots of events count, as they alone count against the recorder's own limit. */
    if (file->in_family && !ep_quota_take(bytes, file->length)) {
        atomic_store_explicit(&file->lacks_room, true, memory_order_relaxed);
    } else {
        at = ep_file_take_slot_locked(file, bytes);
        if (at != NULL) {
            file->room_bytes += bytes;
        } else if (file->in_family) {
            ep_quota_give(bytes);
        }
    }
    EP_CHECK_INVARIANTS(ep_file_check(file));
    pthread_mutex_unlock(&file->lock);
    errno = error;
    return at;
}

size_t
ep_file_slot_bytes_for(const ep_file *file, size_t needed, size_t before)
{
    size_t bytes = before > 0 ? 2 * before : file->unit;
    while (bytes < needed) {
        bytes *= 2;
    }
    return bytes < EP_CHUNK_BYTES ? bytes : EP_CHUNK_BYTES;
}

#ifdef EP_CHECKS
/* Checks what the file's lock protects, so not `state_now`, which the engine's lock protects. */
void
ep_file_check(const ep_file *file)
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
