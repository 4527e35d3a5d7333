/* The sections of an archive: its header, where each section is, and its bytes, unpacked. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "archive_parts.h"
#include "archive_read_parts.h"
#include "memory.h"

const char *const ep_section_names[EP_SECTION_TYPE_COUNT] = {
    [EP_SECTION_RECORDING] = "recording",
    [EP_SECTION_METADATA] = "metadata",
    [EP_SECTION_STRINGS] = "strings",
    [EP_SECTION_NAMES] = "names",
    [EP_SECTION_SITES] = "sites",
    [EP_SECTION_THREADS] = "threads",
    [EP_SECTION_OPEN] = "open calls",
    [EP_SECTION_RESIDENT] = "resident set",
    [EP_SECTION_EVENTS] = "events",
    [EP_SECTION_INDEX] = "index",
    [EP_SECTION_TASKS] = "tasks",
    [EP_SECTION_WINDOWS] = "windows",
    [EP_SECTION_KINDS] = "kinds",
    [EP_SECTION_OWN] = "recorder's own memory",
};

/* ---- Section headers ------------------------------------------------------------------------- */

void
ep_section_pack(const ep_section *section, uint8_t to[EP_SECTION_HEADER_BYTES])
{
    ep_store_le(&to[0], section->type, 4);
    ep_store_le(&to[4], section->codec, 4);
    ep_store_le(&to[8], section->raw_bytes, 8);
    ep_store_le(&to[16], section->stored_bytes, 8);
    ep_store_le(&to[24], section->items, 8);
    ep_store_le(&to[32], section->blocks, 8);
    ep_store_le(&to[40], section->crc, 4);
    ep_store_le(&to[44], ep_crc32(0, to, 44), 4);
}

bool
ep_section_unpack(const uint8_t from[EP_SECTION_HEADER_BYTES], ep_section *section)
{
    if (!ep_crc32_is((uint32_t)ep_load_le(&from[44], 4), from, 44)) {
        return false;
    }
    section->type = (uint32_t)ep_load_le(&from[0], 4);
    section->codec = from[4];
    section->raw_bytes = ep_load_le(&from[8], 8);
    section->stored_bytes = ep_load_le(&from[16], 8);
    section->items = ep_load_le(&from[24], 8);
    section->blocks = ep_load_le(&from[32], 8);
    section->crc = (uint32_t)ep_load_le(&from[40], 4);
    return true;
}

/* ---- Read ------------------------------------------------------------------------------------ */

void
ep_archive_note_damage(ep_archive *a, const char *part, uint64_t number, uint64_t offset, const char *why)
{
    if (a->info.damaged++ == 0) {
        a->info.damage_offset = offset;
        snprintf(a->info.damage, sizeof a->info.damage, "%s %" PRIu64 " at offset %" PRIu64 ": %s",
                 part, number, offset, why);
    }
}

/* Fails: EP_IO; EP_FORMAT: the file ends before (it shrank, or `offset` is wrong). */
static ep_status
read_at(ep_archive *a, uint64_t offset, uint8_t *to, size_t bytes)
{
    while (bytes > 0) {
        ssize_t got = pread(a->fd, to, bytes, (off_t)offset);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            int cause = errno;
            ep_fail(a->error, EP_IO, "%s", strerror(cause));
            errno = cause;
            return EP_IO;
        }
        if (got == 0) {
            return ep_fail(a->error, EP_FORMAT, "the file ends at offset %" PRIu64, offset);
        }
        to += got;
        offset += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return EP_OK;
}

/* Checks whether the numbers of a section's header are possible. Returns: NULL, or the error. */
static const char *
check_section(const ep_archive *a, const ep_section *s)
{
    uint64_t room = a->file_bytes - s->offset - EP_SECTION_HEADER_BYTES;
    if (s->stored_bytes > room) {
        return "the file ends within it";
    }
    if (s->raw_bytes > EP_SECTION_RAW_MAX || s->stored_bytes > EP_SECTION_RAW_MAX) {
        return "it claims more than 64 MiB";
    }
    if (s->raw_bytes > s->stored_bytes * EP_SECTION_RATIO_MAX + EP_SECTION_RATIO_SLACK) {
        return "it claims to hold more than its bytes can";
    }
    if (s->type == EP_SECTION_EVENTS) {
        /* An event takes at least one byte of time and one of kind, an allocation one more of size and of
         * place. */
        if (s->items == 0 || s->items > EP_SECTION_ROWS_MAX || s->items > s->raw_bytes / 2 ||
            s->blocks > s->items) {
            return "it claims more events than it can hold";
        }
    } else if (s->items > s->raw_bytes + 1) {
        return "it claims more items than it can hold";
    }
    return NULL;
}

/* Reads the header at s->offset. Returns: NULL, or the error; "" for a status other than EP_FORMAT, which
 * is in *status. */
static const char *
read_section_header(ep_archive *a, ep_section *s, ep_status *status)
{
    uint8_t header[EP_SECTION_HEADER_BYTES];
    *status = EP_OK;
    if (s->offset > a->file_bytes || a->file_bytes - s->offset < sizeof header) {
        return "the file ends within it";
    }
    *status = read_at(a, s->offset, header, sizeof header);
    if (*status != EP_OK) {
        return *status == EP_FORMAT ? "the file ends within it" : "";
    }
    if (!ep_section_unpack(header, s)) {
        return "its header's checksum is wrong";
    }
    return check_section(a, s);
}

ep_status
ep_archive_read_section(ep_archive *a, const ep_section *s, const char **wrong)
{
    *wrong = "";
    if (s->codec >= EP_CODEC_COUNT) {
        *wrong = "its codec is unknown";
        return EP_FORMAT;
    }
    if (!ep_codec_usable(s->codec)) {
        return ep_fail(a->error, EP_UNSUPPORTED,
                       "it is compressed with %s, which this build of eventprof lacks; use "
                       "one that was built with lib%s",
                       ep_codec_names[s->codec],
                       s->codec == EP_CODEC_ZSTD ? "zstd" : "z");
    }
    size_t stored = (size_t)s->stored_bytes, raw = (size_t)s->raw_bytes;
    if (!ep_grow_raw((void **)&a->stored, &a->stored_capacity, EP_SECTION_HEADER_BYTES + stored, 1) ||
        !ep_grow_raw((void **)&a->raw, &a->raw_capacity, raw + 1, 1)) {
        return EP_NOMEM;
    }
    ep_status status = read_at(a, s->offset, a->stored, EP_SECTION_HEADER_BYTES + stored);
    const uint8_t *bytes = a->stored + EP_SECTION_HEADER_BYTES;
    if (status == EP_FORMAT) {
        *wrong = "the file ends within it";
    }
    if (status != EP_OK) {
        return status;
    }
    if (!ep_crc32_is(s->crc, bytes, stored)) {
        *wrong = "its checksum is wrong";
        return EP_FORMAT;
    }
    uint8_t header[EP_SECTION_HEADER_BYTES];
    ep_section_pack(s, header);
    if (memcmp(header, a->stored, sizeof header) != 0) {
        ep_archive_note_damage(a, "header", 1, s->offset, "it is damaged; the index has it, too");
    }
    status = ep_unpack(&a->packer, s->codec, bytes, stored, a->raw, raw);
    if (status == EP_FORMAT) {
        *wrong = "it cannot be decompressed";
    }
    return status;
}

/* ---- Header and sections --------------------------------------------------------------------- */

ep_status
ep_archive_read_header(ep_archive *a)
{
    uint8_t header[EP_ARCHIVE_HEADER_BYTES] = {0};
    size_t here = a->file_bytes < sizeof header ? (size_t)a->file_bytes : sizeof header;
    ep_status status = read_at(a, 0, header, here);
    if (status != EP_OK) {
        return status;
    }
    if (here == 0) {
        return ep_fail(a->error, EP_FORMAT, "it is empty");
    }
    if (memcmp(header, EP_ARCHIVE_MAGIC, here < 7 ? here : 7) != 0) {
        return ep_fail(a->error, EP_FORMAT, "it is not an archive of eventprof (offset 0)");
    }
    if (here < sizeof header) {
        return ep_fail(a->error, EP_FORMAT,
                       "it ends within its header, at offset %zu: nothing of it is left",
                       here);
    }
    if (memcmp(header, EP_ARCHIVE_MAGIC EP_ARCHIVE_TRANSFER, 12) != 0) {
        return ep_fail(a->error, EP_FORMAT,
                       "it was changed on its way here, as text is (offset 7): transfer it "
                       "again, as binary");
    }
    /* The version comes first: in another version everything after it may differ, even the checksum. */
    a->info.major = (unsigned)ep_load_le(&header[12], 2);
    a->info.minor = (unsigned)ep_load_le(&header[14], 2);
    memcpy(a->info.writer, &header[32], EP_VERSION_BYTES);
    for (char *at = a->info.writer; *at != 0; at++) {
        *at = *at > ' ' && *at < 127 ? *at : '?';
    }
    bool whole = ep_crc32_is((uint32_t)ep_load_le(&header[60], 4), header, 60);
    if (whole && a->info.major != EP_ARCHIVE_MAJOR) {
        char reader[EP_VERSION_BYTES + 1] = "";
        memcpy(reader, &header[16], EP_VERSION_BYTES);
        return ep_fail(a->error, EP_UNSUPPORTED,
                       "it has format %u, and this is eventprof %s, which reads format %d: "
                       "use eventprof %s or later",
                       a->info.major, EP_VERSION, EP_ARCHIVE_MAJOR, reader);
    }
    if (whole && a->info.minor < EP_ARCHIVE_MINOR) {
        return ep_fail(a->error, EP_UNSUPPORTED,
                       "it has format %u.%u, and this is eventprof %s, which reads format %d.%d",
                       a->info.major, a->info.minor, EP_VERSION, EP_ARCHIVE_MAJOR, EP_ARCHIVE_MINOR);
    }
    if (!whole) {
        return ep_fail(a->error, EP_FORMAT, "its header's checksum is wrong (offset 60)");
    }
    return EP_OK;
}

static ep_status
add_section(ep_archive *a, const ep_section *s)
{
    if (!ep_grow((void **)&a->sections, &a->section_capacity, a->section_count + 1,
                 sizeof *a->sections)) {
        return EP_NOMEM;
    }
    a->sections[a->section_count++] = *s;
    return EP_OK;
}

ep_status
ep_archive_walk_sections(ep_archive *a)
{
    ep_section s = {.offset = EP_ARCHIVE_HEADER_BYTES};
    for (;;) {
        if (s.offset == a->file_bytes) {
            ep_archive_note_damage(a, "part", a->section_count + 1, s.offset, "the file ends here");
            return EP_OK;
        }
        ep_status status;
        const char *wrong = read_section_header(a, &s, &status);
        if (wrong != NULL && *wrong == 0) {
            return status;
        }
        if (wrong != NULL) {
            ep_archive_note_damage(a, "part", a->section_count + 1, s.offset, wrong);
            return EP_OK;
        }
        if (s.type == EP_SECTION_INDEX) {
            return EP_OK;
        }
        status = add_section(a, &s);
        if (status != EP_OK) {
            return status;
        }
        s.offset += EP_SECTION_HEADER_BYTES + s.stored_bytes;
    }
}

ep_status
ep_archive_read_index(ep_archive *a, bool *found)
{
    uint8_t trailer[EP_TRAILER_BYTES];
    *found = false;
    if (a->file_bytes < EP_ARCHIVE_HEADER_BYTES + EP_TRAILER_BYTES) {
        return EP_OK;
    }
    ep_status status = read_at(a, a->file_bytes - sizeof trailer, trailer, sizeof trailer);
    if (status != EP_OK) {
        return status == EP_FORMAT ? EP_OK : status;
    }
    ep_section index = {.offset = ep_load_le(&trailer[0], 8)};
    if (memcmp(&trailer[20], EP_ARCHIVE_END, 8) != 0 ||
        !ep_crc32_is((uint32_t)ep_load_le(&trailer[28], 4), trailer, 28) ||
        ep_load_le(&trailer[8], 8) != a->file_bytes - sizeof trailer) {
        return EP_OK;
    }
    const char *wrong = read_section_header(a, &index, &status);
    if (wrong != NULL) {
        return *wrong == 0 ? status : EP_OK;
    }
    if (index.type != EP_SECTION_INDEX) {
        return EP_OK;
    }
    status = ep_archive_read_section(a, &index, &wrong);
    if (status != EP_OK) {
        return status == EP_FORMAT ? EP_OK : status;
    }
    const size_t entry = 8 + EP_SECTION_HEADER_BYTES;
    if (index.raw_bytes != index.items * entry) {
        return EP_OK;
    }
    a->section_count = 0;
    uint64_t lowest = EP_ARCHIVE_HEADER_BYTES;    /* parts neither overlap nor go back */
    for (size_t i = 0; i < index.items; i++) {
        ep_section s = {.offset = ep_load_le(&a->raw[i * entry], 8)};
        if (s.offset < lowest || s.offset > index.offset - EP_SECTION_HEADER_BYTES ||
            !ep_section_unpack(&a->raw[i * entry + 8], &s) || check_section(a, &s) != NULL) {
            a->section_count = 0;
            return EP_OK;
        }
        lowest = s.offset + EP_SECTION_HEADER_BYTES + s.stored_bytes;
        status = add_section(a, &s);
        if (status != EP_OK) {
            return status;
        }
    }
    *found = true;
    return EP_OK;
}

void
ep_archive_fill_info(ep_archive *a)
{
    a->info.file_bytes = a->file_bytes;
    a->info.codec = ep_codec_names[EP_CODEC_RAW];
    for (size_t i = 0; i < a->section_count; i++) {
        const ep_section *s = &a->sections[i];
        if (s->type >= EP_SECTION_TYPE_COUNT || ep_section_names[s->type] == NULL) {
            continue;
        }
        ep_archive_section *sum = &a->info.sections[s->type];
        if (s->type == EP_SECTION_EVENTS && sum->sections == 0 && s->codec < EP_CODEC_COUNT) {
            a->info.codec = ep_codec_names[s->codec];
        }
        sum->name = ep_section_names[s->type];
        sum->sections += 1;
        sum->items += s->items;
        sum->raw_bytes += s->raw_bytes;
        sum->stored_bytes += s->stored_bytes;
    }
    a->info.events = a->info.sections[EP_SECTION_EVENTS].items;
}
