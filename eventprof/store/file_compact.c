/* Compacts a file with packed chunks when its recording ends: packed slots move from the end of the file
 * into free slots before them, so that the file can be cut off there. Slots that are still free in between
 * become holes, which take no room on the disk. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fault.h"
#include "file_parts.h"
#include "memory.h"
#include "os.h"

typedef struct slot {
    uint64_t offset;
    uint32_t bytes;
    bool packed;    /* else it is free */
} slot;

typedef struct slots {
    slot *list;
    size_t count, capacity;
} slots;

/* Lists the packed and the free slots. Returns: false without memory, or if another program changed the
 * file. */
static bool
list_slots(const ep_file *file, slots *out)
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
            out->list[out->count++] = (slot){at, header.bytes, packed};
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
move_slot(ep_file *file, const slot *from, slot *to)
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
give_room_back(const ep_file *file, const slot *free_slot)
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
    pthread_mutex_lock(&file->lock);
    slots s = {0};
    if (file->descriptor >= 0 && !ep_file_is_cut_locked(file) && list_slots(file, &s)) {
        size_t first = 0;    /* no slot before it is free */
        for (size_t from = s.count; from-- > 0;) {
            if (!s.list[from].packed) {
                continue;
            }
            for (size_t to = first; to < from; to++) {
                slot *target = &s.list[to];
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
    pthread_mutex_unlock(&file->lock);
}
