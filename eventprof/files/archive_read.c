/* An archive -> a trace. Everything in a file may be wrong: each number is checked against the bytes
 * that are there before memory is taken for it or an array indexed by it.
 *
 *   header -> sections, by the index or else by walking -> recording, names, threads -> [events] */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive_format.h"
#include "array.h"
#include "file_ids.h"
#include "memory.h"
#include "names.h"

struct ep_archive {
    int fd;
    uint64_t file_bytes;             /* when it was opened */
    ep_archive_info info;
    ep_archive_info opened;          /* as it was before events were read */
    bool has_recording, loaded;
    ep_recording recording;
    int64_t duration_ns;
    uint64_t damaged_chunks;         /* of the trace, before it was saved */
    ep_section *sections;            /* in order of the file; without the index */
    size_t section_count, section_capacity;
    uint32_t *strings_at;            /* views of the texts below: offset, and after the last */
    char *texts;
    size_t text_bytes, text_capacity, string_count, string_capacity;
    ep_file_ids ids;
    uint32_t *site_callee;           /* index: the file's site; the file's name */
    size_t callee_capacity;
    ep_decoded decoded;              /* threads and resident samples; no events */
    size_t thread_capacity, thread_info_capacity, resident_capacity, bytes_capacity, own_capacity;
    ep_kind_info kinds[EP_KIND_COUNT];    /* the kinds of this version, and those that only the file has:
                                           * without a name */
    /* reading a section */
    uint8_t *stored, *raw;
    size_t stored_capacity, raw_capacity;
    ep_packer packer;
    ep_error *error;                 /* of the current call */
};

static const char *const section_names[EP_SECTION_TYPE_COUNT] = {
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

/* Counts a part that cannot be read. Of the first one it notes what it is, its offset, and the reason. */
static void
note_damage(ep_archive *a, const char *part, uint64_t number, uint64_t offset, const char *why)
{
    if (a->info.damaged++ == 0) {
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

/* Reads a section's bytes and unpacks them to a->raw. Fails: EP_FORMAT, with *wrong; EP_IO;
 * EP_NOMEM; EP_UNSUPPORTED. */
static ep_status
read_section(ep_archive *a, const ep_section *s, const char **wrong)
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
        note_damage(a, "header", 1, s->offset, "it is damaged; the index has it, too");
    }
    status = ep_unpack(&a->packer, s->codec, bytes, stored, a->raw, raw);
    if (status == EP_FORMAT) {
        *wrong = "it cannot be decompressed";
    }
    return status;
}

/* ---- Header and sections --------------------------------------------------------------------- */

/* Fails: EP_FORMAT, EP_UNSUPPORTED, EP_IO. */
static ep_status
read_header(ep_archive *a)
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

/* Lists the sections from the front, as far as headers are right. */
static ep_status
walk_sections(ep_archive *a)
{
    ep_section s = {.offset = EP_ARCHIVE_HEADER_BYTES};
    for (;;) {
        if (s.offset == a->file_bytes) {
            note_damage(a, "part", a->section_count + 1, s.offset, "the file ends here");
            return EP_OK;
        }
        ep_status status;
        const char *wrong = read_section_header(a, &s, &status);
        if (wrong != NULL && *wrong == 0) {
            return status;
        }
        if (wrong != NULL) {
            note_damage(a, "part", a->section_count + 1, s.offset, wrong);
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

/* *found: whether there is an index that could be read. Never fails with EP_FORMAT. */
static ep_status
read_index(ep_archive *a, bool *found)
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
    status = read_section(a, &index, &wrong);
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

/* Fills what ep_archive_get_info() returns from the sections' headers. */
static void
fill_info(ep_archive *a)
{
    a->info.file_bytes = a->file_bytes;
    a->info.codec = ep_codec_names[EP_CODEC_RAW];
    for (size_t i = 0; i < a->section_count; i++) {
        const ep_section *s = &a->sections[i];
        if (s->type >= EP_SECTION_TYPE_COUNT || section_names[s->type] == NULL) {
            continue;
        }
        ep_archive_section *sum = &a->info.sections[s->type];
        if (s->type == EP_SECTION_EVENTS && sum->sections == 0 && s->codec < EP_CODEC_COUNT) {
            a->info.codec = ep_codec_names[s->codec];
        }
        sum->name = section_names[s->type];
        sum->sections += 1;
        sum->items += s->items;
        sum->raw_bytes += s->raw_bytes;
        sum->stored_bytes += s->stored_bytes;
    }
    a->info.events = a->info.sections[EP_SECTION_EVENTS].items;
}

/* ---- Items of sections, except the events ---------------------------------------------------- */

/* One item of a section. Returns: EP_OK, EP_NOMEM, or EP_FORMAT with a->error's text. */
typedef ep_status item_reader(ep_archive *a, ep_input *in);

static ep_status
read_recording(ep_archive *a, ep_input *in)
{
    uint64_t fields[EP_RECORDING_BYTES / 8];
    for (size_t i = 0; i < EP_RECORDING_BYTES / 8; i++) {
        fields[i] = ep_input_le(in, 8);
    }
    in->at = in->end;    /* later minor versions may have more */
    ep_recording *r = &a->recording;
    r->kinds = fields[0];
    r->start = (ep_anchor){fields[1], (int64_t)fields[2]};
    r->start_realtime_ns = (int64_t)fields[3];
    r->start_boottime_ns = (int64_t)fields[4];
    memcpy(&r->frequency_hz, &fields[5], 8);
    r->step_ticks = fields[6];
    r->process_id = fields[7];
    r->filtered = fields[8];
    a->duration_ns = a->decoded.duration_ns = (int64_t)fields[9];
    a->info.events_written = fields[10];
    a->damaged_chunks = fields[11];
    uint32_t reason = (uint32_t)fields[12];
    r->full_reason = (ep_full_reason)reason;
    r->unfinished = fields[12] >> 32 & 1;
    r->limits = (fields[12] >> 33 & 3) | ((fields[12] >> 35 & 1) != 0 ? EP_LIMIT_ROOM : 0);
    r->deep_calls = fields[13];
    r->short_calls = fields[14];
    r->functions_off = fields[15];
    if (a->has_recording || reason > EP_FULL_DISK || fields[13] > EP_ARCHIVE_COUNT_MAX ||
        fields[14] > EP_ARCHIVE_COUNT_MAX || fields[15] > EP_ARCHIVE_COUNT_MAX ||
        !isfinite(r->frequency_hz) ||
        r->frequency_hz < 0 || fields[9] > EP_ARCHIVE_SUM_MAX || fields[8] > EP_ARCHIVE_COUNT_MAX ||
        fields[10] > EP_ARCHIVE_COUNT_MAX || fields[11] > EP_ARCHIVE_COUNT_MAX) {
        in->bad = true;
    }
    a->has_recording = true;
    return EP_OK;
}

/* For a kind that is unknown here: how much its events take from the streams. They are read and left
 * out. */
static ep_status
read_kind(ep_archive *a, ep_input *in)
{
    uint64_t kind = ep_input_varint(in), flags = ep_input_varint(in), form = ep_input_varint(in);
    uint64_t domain = ep_input_varint(in), pairing = ep_input_varint(in), bytes = ep_input_varint(in);
    const uint8_t *word = ep_input_take(in, bytes);
    if (word == NULL || kind == 0 || kind >= EP_KIND_COUNT || form >= EP_FORM_CONTROL ||
        domain > EP_DOMAIN_NONE || pairing > EP_PAIRING_CLOSES) {
        in->bad = true;
        return EP_OK;
    }
    ep_kind_info *info = &a->kinds[kind];
    if (info->name != NULL) {
        a->recording.kinds |= flags & 1 ? EP_KIND_BIT(kind) : 0;
        return EP_OK;
    }
    bool one_word = form == EP_FORM_CALL || form == EP_FORM_POINT;
    *info = (ep_kind_info){
        .form = (uint8_t)form,
        .domain = (uint8_t)domain,
        .pairing = (uint8_t)pairing,
        .words = one_word ? 1 : 2,
        .has_name = form == EP_FORM_CALL && pairing == EP_PAIRING_CLOSES,
    };
    size_t before = strlen(a->info.unknown_words);
    snprintf(a->info.unknown_words + before, sizeof a->info.unknown_words - before, "%s%.*s",
             before > 0 ? ", " : "", (int)(bytes < 64 ? bytes : 64), (const char *)word);
    return EP_OK;
}

static ep_status
read_metadata(ep_archive *a, ep_input *in)
{
    size_t bytes = (size_t)(in->end - in->at);
    if (a->recording.metadata != NULL) {
        in->bad = true;
        return EP_OK;
    }
    a->recording.metadata = ep_realloc(NULL, bytes + 1, 1);
    if (a->recording.metadata == NULL) {
        return EP_NOMEM;
    }
    memcpy(a->recording.metadata, ep_input_take(in, bytes), bytes);
    a->recording.metadata[bytes] = 0;
    a->recording.metadata_bytes = bytes;
    return EP_OK;
}

static ep_status
read_string(ep_archive *a, ep_input *in)
{
    uint64_t bytes = ep_input_varint(in);
    const uint8_t *at = ep_input_take(in, bytes);
    if (at == NULL || a->text_bytes + bytes > UINT32_MAX) {
        in->bad = true;
        return EP_OK;
    }
    if (!ep_grow((void **)&a->strings_at, &a->string_capacity, a->string_count + 2,
                 sizeof *a->strings_at) ||
        !ep_grow_raw((void **)&a->texts, &a->text_capacity, a->text_bytes + bytes + 1, 1)) {
        return EP_NOMEM;
    }
    memcpy(a->texts + a->text_bytes, at, bytes);
    a->strings_at[a->string_count] = (uint32_t)a->text_bytes;
    a->text_bytes += bytes;
    a->strings_at[++a->string_count] = (uint32_t)a->text_bytes;
    return EP_OK;
}

/* String of the file: 0 is none. */
static ep_text
string_of(const ep_archive *a, ep_input *in)
{
    uint64_t id = ep_input_varint(in);
    if (id == 0 || id > a->string_count) {
        in->bad = in->bad || id != 0;
        return (ep_text){NULL, 0};
    }
    uint32_t at = a->strings_at[id - 1];
    return (ep_text){a->texts + at, a->strings_at[id] - at};
}

static int32_t
get_int32(ep_input *in)
{
    int64_t value = ep_unzigzag(ep_input_varint(in));
    if (value != (int32_t)value) {
        in->bad = true;
    }
    return (int32_t)value;
}

static ep_status
read_name(ep_archive *a, ep_input *in)
{
    ep_name_text text = {.qualname = string_of(a, in)};
    text.module = string_of(a, in);
    text.file = string_of(a, in);
    text.line = get_int32(in);
    uint64_t kind = ep_input_varint(in);
    if (in->bad || kind >= EP_NAME_KIND_COUNT || a->ids.names.count >= EP_PAYLOAD_MAX) {
        in->bad = true;
        return EP_OK;
    }
    text.kind = (ep_name_kind)kind;
    return ep_file_ids_put_name(&a->ids, (uint32_t)a->ids.names.count, &text);
}

static ep_status
read_site(ep_archive *a, ep_input *in)
{
    uint64_t callee = ep_input_varint(in), caller = ep_input_varint(in);
    ep_site site = {.callee = (uint32_t)callee, .caller = (uint32_t)caller, .offset = get_int32(in)};
    site.line = get_int32(in);
    size_t id = a->ids.sites.count;
    if (in->bad || callee >= a->ids.names.count || caller >= a->ids.names.count || id >= EP_PAYLOAD_MAX) {
        in->bad = true;
        return EP_OK;
    }
    if (!ep_grow((void **)&a->site_callee, &a->callee_capacity, id + 1, sizeof *a->site_callee)) {
        return EP_NOMEM;
    }
    a->site_callee[id] = (uint32_t)callee;
    return ep_file_ids_put_site(&a->ids, (uint32_t)id, &site);
}

/* The task that runs the callee of a site that was read before. */
static ep_status
read_task(ep_archive *a, ep_input *in)
{
    uint64_t site = ep_input_varint(in);
    ep_text text = string_of(a, in);
    if (in->bad || site == 0 || site >= a->ids.sites.count || text.at == NULL) {
        in->bad = true;
        return EP_OK;
    }
    return ep_file_ids_put_task(&a->ids, (uint32_t)site, text);
}

/* Returns: how many events are of kinds that are not known here. */
static uint64_t
get_counts(ep_archive *a, ep_input *in, uint64_t counts[EP_KIND_COUNT])
{
    uint64_t pairs = ep_input_varint(in), unknown = 0;
    for (uint64_t i = 0; i < pairs && !in->bad; i++) {
        uint64_t kind = ep_input_varint(in), count = ep_input_varint(in);
        if (kind >= EP_KIND_COUNT || a->kinds[kind].words == 0 ||
            a->kinds[kind].form == EP_FORM_CONTROL || count > EP_ARCHIVE_COUNT_MAX) {
            in->bad = true;
            break;
        }
        if (a->kinds[kind].name != NULL) {
            counts[kind] = count;
        } else {
            unknown += count;
        }
    }
    return unknown;
}

static int64_t
get_time(ep_input *in, int64_t latest_ns)
{
    int64_t time_ns = ep_unzigzag(ep_input_varint(in));
    in->bad = in->bad || time_ns < 0 || time_ns > latest_ns;
    return time_ns;
}

static ep_status
read_thread(ep_archive *a, ep_input *in)
{
    ep_decoded *d = &a->decoded;
    if (!ep_grow((void **)&d->threads, &a->thread_capacity, d->thread_count + 1,
                 sizeof *d->threads) ||
        !ep_grow((void **)&d->read_threads, &a->thread_info_capacity, d->thread_count + 1,
                 sizeof *d->read_threads)) {
        return EP_NOMEM;
    }
    ep_trace_thread *thread = &d->threads[d->thread_count];
    ep_thread *who = &d->read_threads[d->thread_count];
    uint64_t flags = ep_input_varint(in), id = ep_input_varint(in), native = ep_input_varint(in);
    uint64_t name_bytes = ep_input_varint(in);
    const uint8_t *name = ep_input_take(in, name_bytes);
    if (name == NULL || name_bytes >= EP_THREAD_NAME_BYTES || id > UINT32_MAX || native > INT64_MAX) {
        in->bad = true;
        return EP_OK;
    }
    *thread = (ep_trace_thread){0};
    *who = (ep_thread){.id = (uint32_t)id, .native_id = native, .attached = (flags & 1) != 0};
    memcpy(who->name, name, name_bytes);
    atomic_store_explicit(&who->named, (flags & 2) != 0, memory_order_relaxed);
    thread->first_ns = get_time(in, a->duration_ns);
    thread->last_ns = get_time(in, a->duration_ns);
    a->info.unknown_events += get_counts(a, in, thread->recorded);
    (void)get_counts(a, in, thread->lost);
    d->thread_count += 1;
    /* Sums of times over threads must not overflow, and a row number must fit an int32. */
    in->bad = in->bad || d->thread_count > INT32_MAX ||
              (uint64_t)a->duration_ns > EP_ARCHIVE_SUM_MAX / d->thread_count;
    return EP_OK;
}

static ep_status
read_open(ep_archive *a, ep_input *in)
{
    uint64_t row = ep_input_varint(in), kind = ep_input_varint(in), site = ep_input_varint(in);
    if (in->bad || row >= a->decoded.thread_count || site >= a->ids.sites.count ||
        kind >= EP_KIND_COUNT || ep_kinds[kind].form != EP_FORM_CALL ||
        ep_kinds[kind].pairing != EP_PAIRING_OPENS) {
        in->bad = true;
        return EP_OK;
    }
    ep_open_stack *open = &a->decoded.threads[row].open;
    if (!ep_grow((void **)&open->calls, &open->capacity, open->depth + 1, sizeof *open->calls)) {
        return EP_NOMEM;
    }
    open->calls[open->depth++] = (ep_open_call){
        .site_id = ep_id_here(&a->ids.sites, (uint32_t)site), .kind = (uint8_t)kind};
    return EP_OK;
}

static ep_status
read_window(ep_archive *a, ep_input *in)
{
    uint64_t row = ep_input_varint(in);
    int64_t from_ns = get_time(in, a->duration_ns), until_ns = get_time(in, a->duration_ns);
    if (in->bad || row >= a->decoded.thread_count || from_ns > until_ns) {
        in->bad = true;
        return EP_OK;
    }
    a->decoded.threads[row].from_ns = from_ns;
    a->decoded.threads[row].until_ns = until_ns;
    return EP_OK;
}

static ep_status
read_resident(ep_archive *a, ep_input *in)
{
    ep_decoded *d = &a->decoded;
    /* Samples go on to the stop, which may be later than the time when the buffer was full. */
    int64_t time_ns = get_time(in, EP_ARCHIVE_SUM_MAX), bytes = ep_unzigzag(ep_input_varint(in));
    if (in->bad || bytes < 0 ||
        (d->resident_count > 0 && time_ns < d->resident_ns[d->resident_count - 1])) {
        in->bad = true;
        return EP_OK;
    }
    if (!ep_grow((void **)&d->resident_ns, &a->resident_capacity, d->resident_count + 1,
                 sizeof *d->resident_ns) ||
        !ep_grow((void **)&d->resident_bytes, &a->bytes_capacity, d->resident_count + 1,
                 sizeof *d->resident_bytes) ||
        !ep_grow((void **)&d->resident_own, &a->own_capacity, d->resident_count + 1,
                 sizeof *d->resident_own)) {
        return EP_NOMEM;
    }
    d->resident_ns[d->resident_count] = time_ns;
    d->resident_own[d->resident_count] = 0;
    d->resident_bytes[d->resident_count++] = bytes;
    return EP_OK;
}

static ep_status
read_own(ep_archive *a, ep_input *in)
{
    ep_decoded *d = &a->decoded;
    uint64_t row = ep_input_varint(in), own = ep_input_varint(in);
    if (d->resident_count == 0) {
        return EP_OK;    /* the section of the samples is damaged, and counted as such */
    }
    if (in->bad || row >= d->resident_count || own > (uint64_t)d->resident_bytes[row]) {
        in->bad = true;
        return EP_OK;
    }
    d->resident_own[row] = (int64_t)own;
    return EP_OK;
}

/* In this order: later sections refer to earlier ones. */
static const struct {
    ep_section_type type;
    item_reader *read;
    bool needed;             /* without it, nothing can be read */
} readers[] = {
    {EP_SECTION_RECORDING, read_recording, true},
    {EP_SECTION_KINDS, read_kind, false},
    {EP_SECTION_METADATA, read_metadata, false},
    {EP_SECTION_STRINGS, read_string, true},
    {EP_SECTION_NAMES, read_name, true},
    {EP_SECTION_SITES, read_site, true},
    {EP_SECTION_TASKS, read_task, false},
    {EP_SECTION_THREADS, read_thread, true},
    {EP_SECTION_OPEN, read_open, true},
    {EP_SECTION_WINDOWS, read_window, false},
    {EP_SECTION_RESIDENT, read_resident, false},
    {EP_SECTION_OWN, read_own, false},
};

/* Reads the items of one section. Fails: EP_FORMAT, with *wrong. */
static ep_status
read_items(ep_archive *a, const ep_section *s, item_reader *read, const char **wrong)
{
    ep_status status = read_section(a, s, wrong);
    if (status != EP_OK) {
        return status;
    }
    ep_input in = {.at = a->raw, .end = a->raw + s->raw_bytes};
    for (uint64_t i = 0; i < s->items && !in.bad; i++) {
        status = read(a, &in);
        if (status != EP_OK) {
            return status;
        }
    }
    if (in.bad || in.at != in.end) {
        *wrong = "its content is not possible";
        return EP_FORMAT;
    }
    return EP_OK;
}

static ep_status
read_sections_of(ep_archive *a, size_t which)
{
    for (size_t i = 0; i < a->section_count; i++) {
        const ep_section *s = &a->sections[i];
        if (s->type != (uint32_t)readers[which].type) {
            continue;
        }
        const char *wrong, *name = section_names[s->type];
        ep_status status = read_items(a, s, readers[which].read, &wrong);
        if (status == EP_FORMAT && !readers[which].needed) {
            note_damage(a, name, 1, s->offset, wrong);
        } else if (status == EP_FORMAT) {
            return ep_fail(a->error, EP_FORMAT,
                           "its %s at offset %" PRIu64 ": %s; without them nothing can be read",
                           name, s->offset, wrong);
        } else if (status != EP_OK) {
            return status;
        }
    }
    return EP_OK;
}

/* Everything but the events; the sections are known. Fails: EP_NOMEM, EP_FORMAT with a->error's text. */
static ep_status
read_all_items(ep_archive *a)
{
    memcpy(a->kinds, ep_kinds, sizeof a->kinds);
    if (ep_file_ids_open(&a->ids) != EP_OK ||
        !ep_grow((void **)&a->site_callee, &a->callee_capacity, 1, sizeof *a->site_callee)) {
        return EP_NOMEM;
    }
    ep_status status = EP_OK;
    for (size_t i = 0; i < sizeof readers / sizeof *readers && status == EP_OK; i++) {
        status = read_sections_of(a, i);
        if (status == EP_OK && i == 0 && !a->has_recording) {
            return ep_fail(a->error, EP_FORMAT, "what it says about its recording cannot be read (%s)",
                           a->info.damage);
        }
    }
    return status;
}

/* ---- Opening --------------------------------------------------------------------------------- */

static ep_status
read_all_but_events(ep_archive *a)
{
    bool has_index;
    ep_status status = read_header(a);
    if (status == EP_OK) {
        status = read_index(a, &has_index);
    }
    if (status == EP_OK && !has_index) {
        status = walk_sections(a);
        if (status == EP_OK && a->info.damaged == 0) {
            note_damage(a, "index", 1, a->file_bytes, "it cannot be read, all else can");
        }
    }
    if (status != EP_OK) {
        return status;
    }
    fill_info(a);
    status = read_all_items(a);
    ep_decoded *d = &a->decoded;
    /* Only now, because the array moved while it grew. */
    for (size_t i = 0; i < d->thread_count; i++) {
        d->threads[i].thread = d->read_threads[i].attached ? &d->read_threads[i] : NULL;
    }
    if (status == EP_OK && d->thread_count == 0 && a->info.events_written > 0) {
        return ep_fail(a->error, EP_FORMAT, "%s: nothing of its events is left",
                       a->info.damage);
    }
    return status;
}

ep_status
ep_archive_open(int fd, ep_archive **out, ep_error *error)
{
    struct stat facts;
    ep_archive *a = ep_calloc(1, sizeof *a);
    if (a == NULL) {
        return EP_NOMEM;
    }
    a->error = error;
    a->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    ep_status status = EP_OK;
    if (a->fd < 0 || fstat(a->fd, &facts) != 0) {
        int cause = errno;
        status = ep_fail(error, EP_IO, "%s", strerror(cause));
        errno = cause;
    } else {
        a->file_bytes = facts.st_size > 0 ? (uint64_t)facts.st_size : 0;
        status = read_all_but_events(a);
    }
    a->error = NULL;
    if (status != EP_OK) {
        int cause = errno;
        ep_archive_close(a);
        errno = cause;
        return status;
    }
    a->opened = a->info;
    *out = a;
    return EP_OK;
}

void
ep_archive_close(ep_archive *a)
{
    if (a == NULL) {
        return;
    }
    if (a->fd >= 0) {
        close(a->fd);
    }
    ep_recording_clear(&a->recording);
    ep_decoded_clear(&a->decoded);
    ep_packer_clear(&a->packer);
    free(a->sections);
    free(a->strings_at);
    free(a->texts);
    ep_file_ids_clear(&a->ids);
    free(a->site_callee);
    free(a->stored);
    free(a->raw);
    free(a);
}

const ep_recording *
ep_archive_recording(const ep_archive *archive)
{
    return &archive->recording;
}

const ep_archive_info *
ep_archive_get_info(const ep_archive *archive)
{
    return &archive->info;
}

/* ---- Events ---------------------------------------------------------------------------------- */

static ep_status
columns_new(ep_columns *c, size_t rows, size_t blocks)
{
    c->time_ns = ep_column_new_claimed(rows, sizeof *c->time_ns);
    c->kind = ep_column_new_claimed(rows, sizeof *c->kind);
    c->thread = ep_column_new_claimed(rows, sizeof *c->thread);
    c->id = ep_column_new_claimed(rows, sizeof *c->id);
    c->alloc_row = ep_column_new_claimed(blocks, sizeof *c->alloc_row);
    c->address = ep_column_new_claimed(blocks, sizeof *c->address);
    c->size = ep_column_new_claimed(blocks, sizeof *c->size);
    return c->time_ns != NULL && c->kind != NULL && c->thread != NULL && c->id != NULL &&
                   c->alloc_row != NULL && c->address != NULL && c->size != NULL
               ? EP_OK
               : EP_NOMEM;
}

/* Appends the rows of a section of events, number `number` in the file. A damaged section is left out. */
static ep_status
load_section(ep_archive *a, ep_events_coder *coder, const ep_section *s, uint64_t number,
             ep_columns *columns, ep_events_totals *totals)
{
    const char *wrong;
    ep_status status = read_section(a, s, &wrong);
    if (status == EP_OK) {
        wrong = ep_events_decode(coder, a->raw, (size_t)s->raw_bytes, s, columns, totals);
        status = wrong != NULL ? EP_FORMAT : EP_OK;
    }
    if (status == EP_FORMAT) {
        note_damage(a, "events section", number, s->offset, wrong);
        status = EP_OK;
    }
    return status;
}

static ep_status
load_sections(ep_archive *a, ep_events_coder *coder, ep_columns *columns, ep_events_totals *totals)
{
    uint64_t number = 0;
    ep_status status = EP_OK;
    for (size_t i = 0; i < a->section_count && status == EP_OK; i++) {
        if (a->sections[i].type == EP_SECTION_EVENTS) {
            status = load_section(a, coder, &a->sections[i], ++number, columns, totals);
            ep_columns_give_back();
        }
    }
    return status;
}

/* Events that were recorded and could not be read count as lost. */
static void
settle_threads(ep_decoded *d, const ep_events_totals *totals)
{
    for (size_t i = 0; i < d->thread_count; i++) {
        ep_trace_thread *thread = &d->threads[i];
        bool same = true;
        for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
            uint64_t is = totals->recorded[i][kind], was = thread->recorded[kind];
            thread->lost[kind] += was > is ? was - is : 0;
            thread->recorded[kind] = is;
            same = same && was == is;
        }
        if (!same || totals->first_ns[i] >= 0) {
            thread->first_ns = totals->first_ns[i] >= 0 ? totals->first_ns[i] : 0;
            thread->last_ns = totals->last_of_thread_ns[i];
        }
    }
}

/* Fails: EP_NOMEM; clear_totals() frees what was allocated. */
static ep_status
begin_totals(const ep_archive *a, ep_events_totals *totals)
{
    size_t count = a->decoded.thread_count;
    *totals = (ep_events_totals){.duration_ns = a->duration_ns};
    totals->recorded = ep_calloc(count, sizeof *totals->recorded);
    totals->first_ns = ep_realloc(NULL, count, sizeof *totals->first_ns);
    totals->last_of_thread_ns = ep_calloc(count, sizeof *totals->last_of_thread_ns);
    if (totals->recorded == NULL || totals->first_ns == NULL || totals->last_of_thread_ns == NULL) {
        return EP_NOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        totals->first_ns[i] = -1;
    }
    return EP_OK;
}

static void
clear_totals(ep_events_totals *totals)
{
    free(totals->recorded);
    free(totals->first_ns);
    free(totals->last_of_thread_ns);
}

static ep_events_coder *
new_coder(const ep_archive *a)
{
    const ep_events_ids ids = {
        .site_count = a->ids.sites.count,
        .name_count = a->ids.names.count,
        .site_callee = a->site_callee,
        .site_map = a->ids.sites.ids,
        .name_map = a->ids.names.ids,
        .thread_count = a->decoded.thread_count,
        .kinds = a->kinds,
    };
    return ep_events_coder_new(&ids, false);
}

/* Sets what is known after all sections were read. */
static void
settle(ep_archive *a, const ep_events_totals *totals, uint64_t events)
{
    settle_threads(&a->decoded, totals);
    a->info.events = events;
    a->decoded.duration_ns = a->duration_ns;
    a->decoded.damaged_chunks = a->damaged_chunks + a->info.damaged;
}

static ep_status
load(ep_archive *a, ep_events_coder *coder, ep_decoded *out, ep_events_totals *totals)
{
    ep_decoded *known = &a->decoded;
    uint64_t blocks = 0;
    for (size_t i = 0; i < a->section_count; i++) {
        blocks += a->sections[i].type == EP_SECTION_EVENTS ? a->sections[i].blocks : 0;
    }
    ep_columns columns = {0};
    const ep_archive_info before = a->info;
    a->info = a->opened;
    ep_status status = columns_new(&columns, (size_t)a->info.events, (size_t)blocks);
    if (status == EP_OK) {
        status = load_sections(a, coder, &columns, totals);
    }
    if (status != EP_OK) {
        ep_decoded none = {.columns = columns};
        ep_decoded_clear(&none);
        a->info = before;
        return status;
    }
    settle(a, totals, columns.count);
    known->columns = columns;
    *out = *known;
    *known = (ep_decoded){0};
    return EP_OK;
}

ep_status
ep_archive_load(ep_archive *a, ep_decoded *out, ep_error *error)
{
    if (a->loaded) {
        return ep_fail(error, EP_STATE, "the events of this archive were loaded already");
    }
    ep_events_totals totals;
    ep_events_coder *coder = new_coder(a);
    ep_status status = begin_totals(a, &totals);
    a->error = error;
    status = coder == NULL ? EP_NOMEM : status != EP_OK ? status
                                                        : load(a, coder, out, &totals);
    a->error = NULL;
    a->loaded = status == EP_OK;
    int cause = errno;
    ep_events_coder_free(coder);
    clear_totals(&totals);
    errno = cause;
    return status;
}

/* ---- Batch by batch -------------------------------------------------------------------------- */

struct ep_archive_stream {
    ep_archive *archive;
    ep_events_coder *coder;
    ep_events_totals totals;
    size_t section;      /* the next of events; the number of sections: none */
    uint64_t number;     /* of sections of events read so far */
    uint64_t events;     /* so far */
};

static void
find_section(ep_archive_stream *s)
{
    const ep_archive *a = s->archive;
    while (s->section < a->section_count && a->sections[s->section].type != EP_SECTION_EVENTS) {
        s->section++;
    }
}

ep_status
ep_archive_stream_open(ep_archive *a, ep_archive_stream **out, ep_error *error)
{
    if (a->loaded) {
        return ep_fail(error, EP_STATE, "the events of this archive were loaded already");
    }
    ep_archive_stream *s = ep_calloc(1, sizeof *s);
    if (s == NULL) {
        return EP_NOMEM;
    }
    s->archive = a;
    s->coder = new_coder(a);
    if (begin_totals(a, &s->totals) != EP_OK || s->coder == NULL) {
        ep_archive_stream_close(s);
        return EP_NOMEM;
    }
    a->info = a->opened;
    a->decoded.duration_ns = a->duration_ns;
    find_section(s);
    *out = s;
    return EP_OK;
}

const ep_decoded *
ep_archive_head(const ep_archive *archive)
{
    return &archive->decoded;
}

void
ep_archive_set_processes(ep_archive *a, const size_t *threads, size_t count)
{
    size_t process = 0, last = count > 0 ? threads[0] : 0;    /* the first thread after the process */
    for (size_t i = 0; i < a->decoded.thread_count; i++) {
        while (i >= last && process + 1 < count) {
            last += threads[++process];
        }
        a->decoded.threads[i].process = (int32_t)process;
    }
}

size_t
ep_archive_stream_room(const ep_archive_stream *s)
{
    const ep_archive *a = s->archive;
    return s->section < a->section_count ? (size_t)a->sections[s->section].items : 0;
}

ep_status
ep_archive_stream_next(ep_archive_stream *s, ep_columns *to, ep_error *error)
{
    ep_archive *a = s->archive;
    size_t before = to->count;
    a->error = error;
    ep_status status = load_section(a, s->coder, &a->sections[s->section], ++s->number, to, &s->totals);
    a->error = NULL;
    s->events += to->count - before;
    s->section++;
    find_section(s);
    return status;
}

void
ep_archive_stream_end(ep_archive_stream *s)
{
    settle(s->archive, &s->totals, s->events);
}

void
ep_archive_stream_close(ep_archive_stream *s)
{
    if (s == NULL) {
        return;
    }
    /* Of many archives that are read one after another, one needs the room for a section. */
    ep_archive *a = s->archive;
    free(a->stored);
    free(a->raw);
    a->stored = a->raw = NULL;
    a->stored_capacity = a->raw_capacity = 0;
    ep_events_coder_free(s->coder);
    clear_totals(&s->totals);
    free(s);
}
