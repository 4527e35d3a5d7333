/* Opening a log file: its header, and whether its writer lives. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file_read_parts.h"
#include "memory.h"

EP_PRINTF(2, 3) void
ep_reader_note(ep_file_reader *reader, const char *format, ...)
{
    ep_file_facts *facts = &reader->facts;
    if (facts->note_count < EP_FILE_NOTES) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(facts->notes[facts->note_count], sizeof facts->notes[0], format, arguments);
        va_end(arguments);
    }
    facts->note_count += 1;
}

int64_t
ep_reader_read_at(const ep_file_reader *reader, uint64_t offset, void *to, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t got = pread(reader->descriptor, (char *)to + done, bytes - done,
                            (off_t)(offset + done));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return -1;
        }
        if (got == 0) {
            break;
        }
        done += (size_t)got;
    }
    return (int64_t)done;
}

ep_status
ep_reader_read_size(ep_file_reader *reader, ep_error *error)
{
    struct stat stat;
    if (fstat(reader->descriptor, &stat) != 0) {
        return ep_fail_os(error, errno);
    }
    reader->bytes = stat.st_size > 0 ? (uint64_t)stat.st_size : 0;
    reader->facts.bytes = reader->bytes;
    return EP_OK;
}

/* False: a recording cannot begin at such a time. With this check no sum of ticks or ns overflows later. */
static bool
is_plausible_start(const ep_file_header *header, uint32_t phase)
{
    return (uint64_t)header->start.monotonic_ns <= (uint64_t)INT64_MAX / 2 &&
           header->start.ticks <= UINT64_MAX / 4 &&
           (phase != EP_FILE_FINISHED || header->stop.ticks - header->start.ticks <= EP_SPAN_TICKS_MAX);
}

#define SLOT_UNIT_MAX (UINT32_C(1) << 16)

static bool
is_slot_unit(const ep_file_header *header)
{
    uint32_t unit = header->slot_bytes;
    return unit >= EP_CHUNK_BYTES_MIN && unit <= SLOT_UNIT_MAX && !(unit & (unit - 1));
}

static bool
is_plausible_head(const ep_file_header *header)
{
    return header->head_bytes % header->slot_bytes == 0 && header->head_bytes >= EP_FILE_METADATA_OFFSET &&
           header->head_bytes <= EP_FILE_METADATA_OFFSET + EP_FILE_METADATA_LIMIT + SLOT_UNIT_MAX;
}

/* A later minor version has fields and kinds that are not known here. */
static bool
is_read_here(const ep_file_header *header)
{
    return header->major == EP_FILE_MAJOR ||
           (header->major == EP_FILE_MAJOR_UNPACKED && header->minor >= EP_FILE_MINOR);
}

static ep_status
check_header(const ep_file_header *header, int64_t got, ep_error *error)
{
    if (got < 8 || memcmp(header->magic, EP_FILE_MAGIC, 8) != 0) {
        return ep_fail(error, EP_FORMAT,
                       "not a log file of eventprof: it does not begin with its magic (offset 0)");
    }
    if ((size_t)got < sizeof *header) {
        return ep_fail(error, EP_FORMAT,
                       "cut off at byte %" PRId64 ", inside of its header: nothing is left", got);
    }
    if (header->byte_order != EP_FILE_BYTE_ORDER) {
        return ep_fail(error, EP_FORMAT,
                       "written on a machine of another byte order, or damaged (offset 12)");
    }
    if (header->major != 0 && !is_read_here(header)) {
        return ep_fail(error, EP_FORMAT,
                       "version %u.%u of the log format; this eventprof reads %d.%d and %d.0%s",
                       header->major, header->minor, EP_FILE_MAJOR_UNPACKED, EP_FILE_MINOR, EP_FILE_MAJOR,
                       header->major > EP_FILE_MAJOR ? ": use a newer one" : "");
    }
    uint32_t phase = atomic_load_explicit(&header->phase, memory_order_relaxed);
    size_t offset = header->major == 0                      ? offsetof(ep_file_header, major)
                    : header->header_bytes < sizeof *header ? offsetof(ep_file_header, header_bytes)
                    : !is_slot_unit(header)                 ? offsetof(ep_file_header, slot_bytes)
                    : !is_plausible_head(header)            ? offsetof(ep_file_header, head_bytes)
                    : header->metadata_bytes > EP_FILE_METADATA_LIMIT
                        ? offsetof(ep_file_header, metadata_bytes)
                    : phase > EP_FILE_FINISHED           ? offsetof(ep_file_header, phase)
                    : !is_plausible_start(header, phase) ? offsetof(ep_file_header, start)
                                                         : 0;
    if (offset == 0) {
        return EP_OK;
    }
    return ep_fail(error, EP_FORMAT, "its header is damaged (offset %zu): nothing can be read", offset);
}

static bool
has_writer(const ep_file_reader *reader)
{
    /* The writer holds the lock as long as it lives. */
    if (flock(reader->descriptor, LOCK_SH | LOCK_NB) != 0) {
        return errno == EWOULDBLOCK;
    }
    (void)flock(reader->descriptor, LOCK_UN);
    return false;
}

/* Copies words of the header and a zero; if they are damaged, only a zero. `to` has `bytes` + 1 bytes.
 * Returns: whether they are undamaged. */
static bool
copy_words(char *to, const char *from, size_t bytes)
{
    size_t length = strnlen(from, bytes);
    bool whole = true;
    for (size_t i = 0; i < length; i++) {
        whole = whole && from[i] >= ' ' && from[i] <= '~';
    }
    length = whole ? length : 0;
    memcpy(to, from, length);
    to[length] = 0;
    return whole;
}

ep_status
ep_reader_read_header(ep_file_reader *reader, ep_error *error)
{
    ep_file_header *header = &reader->header;
    bool written = has_writer(reader);    /* asked first: if there is no writer, the bytes that are read are
                                           * final */
    int64_t got;
    uint32_t phase, before = EP_FILE_NEW;
    for (;;) {
        got = ep_reader_read_at(reader, 0, header, sizeof *header);
        if (got < 0) {
            return ep_fail_os(error, errno);
        }
        phase = (size_t)got == sizeof *header
                    ? atomic_load_explicit(&header->phase, memory_order_relaxed)
                    : EP_FILE_NEW;
        if (phase == before || phase == EP_FILE_NEW) {
            break;
        }
        before = phase;    /* the phase changed while the header was read: read once more, with the fields
                            * of this phase */
    }
    ep_status status = check_header(header, got, error);
    if (status != EP_OK) {
        return status;
    }
    ep_file_facts *facts = &reader->facts;
    facts->major = header->major;
    facts->minor = header->minor;
    facts->phase = (ep_file_phase)phase;
    facts->counter = header->clock_mode == EP_CLOCK_COUNTER;
    facts->only_thread = header->only_thread;
    facts->parent_process_id = header->parent_process_id;
    facts->texts_lost = atomic_load_explicit(&header->texts_lost, memory_order_relaxed);
    facts->awaits_stop =
        facts->phase != EP_FILE_FINISHED &&
        (atomic_load_explicit(&header->limits, memory_order_relaxed) & EP_LIMIT_LATE) != 0;
    facts->children_lost = atomic_load_explicit(&header->children_lost, memory_order_relaxed);
    facts->children_error = atomic_load_explicit(&header->children_error, memory_order_relaxed);
    bool whole = copy_words(facts->calls_from, header->calls_from, sizeof facts->calls_from - 1);
    whole = copy_words(facts->displaced, header->displaced, sizeof facts->displaced - 1) && whole;
    facts->words_damaged = !whole;
    facts->writer_lives = written && facts->phase != EP_FILE_FINISHED;
    return EP_OK;
}

ep_status
ep_file_open(int descriptor, ep_file_reader **out, ep_error *error)
{
    ep_file_reader *reader = ep_calloc(1, sizeof *reader);
    if (reader == NULL) {
        close(descriptor);
        return EP_NOMEM;
    }
    reader->descriptor = descriptor;
    ep_status status = ep_reader_read_size(reader, error);
    status = status != EP_OK ? status : ep_reader_read_header(reader, error);
    if (status != EP_OK) {
        ep_file_close(reader);
        return status;
    }
    *out = reader;
    return EP_OK;
}

void
ep_file_close(ep_file_reader *reader)
{
    close(reader->descriptor);
    free(reader);
}

const ep_file_facts *
ep_file_get_facts(const ep_file_reader *reader)
{
    return &reader->facts;
}
