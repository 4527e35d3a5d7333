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

#include "archive_parts.h"

#include "array.h"
#include "memory.h"
#include "names.h"

struct ep_archive {
    int fd;
    uint64_t file_bytes;             /* when it was opened */
    ep_archive_info info;
    bool has_recording, loaded;
    ep_recording recording;
    int64_t duration_ns;
    uint64_t damaged_chunks;         /* of the trace, before it was saved */
    ep_section *sections;            /* in order of the file; without the index */
    size_t section_count, section_capacity;
    /* index = the file's id; [0] is none. Values: ids of the process */
    uint32_t *strings_at;            /* views of the texts below: offset, and behind the last */
    char *texts;
    size_t text_bytes, text_capacity, string_count, string_capacity;
    uint32_t *names, *sites;
    uint32_t *site_callee;           /* the file's name */
    size_t name_count, name_capacity, site_count, site_capacity, callee_capacity;
    ep_decoded decoded;              /* threads and resident samples; no events */
    size_t thread_capacity, thread_info_capacity, resident_capacity, bytes_capacity;
    ep_kind_info kinds[EP_KIND_COUNT];    /* ours, and those that only the file knows: without a name */
    /* reading a section */
    uint8_t *stored, *raw;
    size_t stored_capacity, raw_capacity;
    ep_packer packer;
    ep_error *error;                 /* of the call that is running */
};

static const char *const type_names[EP_SECTION_TYPE_COUNT] = {
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
};

/* ---- Damage ---------------------------------------------------------------------------------- */

/* Counts a part that cannot be read; of the first, says what it is, where, and why. */
static void
note_damage(ep_archive *a, const char *part, uint64_t number, uint64_t offset, const char *why)
{
    if (a->info.damaged++ == 0) {
        a->info.damage_offset = offset;
        snprintf(a->info.damage, sizeof a->info.damage, "%s %" PRIu64 " at offset %" PRIu64 ": %s",
                 part, number, offset, why);
    }
}

/* ---- Bytes of the file ----------------------------------------------------------------------- */

/* Fails: EP_IO; EP_FORMAT: the file ends before (it shrank, or `offset` was nonsense). */
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

/* What a section's header says is possible. Returns: NULL, or what is wrong. */
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
        /* A byte of time and one of kind an event, one of size or place more an allocation. */
        if (s->items == 0 || s->items > EP_BLOCK_EVENTS_MAX || s->items > s->raw_bytes / 2 ||
            s->blocks > s->items) {
            return "it claims more events than it can hold";
        }
    } else if (s->items > s->raw_bytes + 1) {
        return "it claims more items than it can hold";
    }
    return NULL;
}

/* The header at s->offset. Returns: NULL, or what is wrong; "" for a status other than EP_FORMAT,
 * in *status. */
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
        return ep_fail(a->error, EP_FORMAT, "it is no eventprof archive (offset 0)");
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
    /* First the version: what comes after it, the checksum too, may be another then. */
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

/* From the front, as far as headers are whole. */
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

/* *found: whether there is an index, and it could be read. Fails: not EP_FORMAT. */
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
    uint64_t least = EP_ARCHIVE_HEADER_BYTES;    /* parts neither overlap nor go back */
    for (size_t i = 0; i < index.items; i++) {
        ep_section s = {.offset = ep_load_le(&a->raw[i * entry], 8)};
        if (s.offset < least || s.offset > index.offset - EP_SECTION_HEADER_BYTES ||
            !ep_section_unpack(&a->raw[i * entry + 8], &s) || check_section(a, &s) != NULL) {
            a->section_count = 0;
            return EP_OK;
        }
        least = s.offset + EP_SECTION_HEADER_BYTES + s.stored_bytes;
        status = add_section(a, &s);
        if (status != EP_OK) {
            return status;
        }
    }
    *found = true;
    return EP_OK;
}

static void
fill_info(ep_archive *a)
{
    a->info.file_bytes = a->file_bytes;
    a->info.codec = ep_codec_names[EP_CODEC_RAW];
    for (size_t i = 0; i < a->section_count; i++) {
        const ep_section *s = &a->sections[i];
        if (s->type >= EP_SECTION_TYPE_COUNT || type_names[s->type] == NULL) {
            continue;
        }
        ep_archive_section *sum = &a->info.sections[s->type];
        if (s->type == EP_SECTION_EVENTS && sum->sections == 0 && s->codec < EP_CODEC_COUNT) {
            a->info.codec = ep_codec_names[s->codec];
        }
        sum->name = type_names[s->type];
        sum->sections += 1;
        sum->items += s->items;
        sum->raw_bytes += s->raw_bytes;
        sum->stored_bytes += s->stored_bytes;
    }
    a->info.events = a->info.sections[EP_SECTION_EVENTS].items;
}

/* ---- Sections of items ----------------------------------------------------------------------- */

/* One item of a section. Returns: EP_OK, EP_NOMEM, or EP_FORMAT with a->error's text. */
typedef ep_status item_reader(ep_archive *a, ep_input *in);

static ep_status
read_recording(ep_archive *a, ep_input *in)
{
    uint64_t fields[EP_RECORDING_BYTES / 8];
    for (size_t i = 0; i < EP_RECORDING_BYTES / 8; i++) {
        /* The first writers did not have the last ones. */
        bool there = i < EP_RECORDING_FIRST_FIELDS || in->end - in->at >= 8;
        fields[i] = there ? ep_input_le(in, 8) : 0;
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
    a->duration_ns = (int64_t)fields[9];
    a->info.events_written = fields[10];
    a->damaged_chunks = fields[11];
    uint32_t reason = (uint32_t)fields[12];
    r->full_reason = (ep_full_reason)reason;
    r->unfinished = fields[12] >> 32 & 1;
    r->limits = fields[12] >> 33 & 3;
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

/* Of a kind that is not known here, what its events take of the streams: they are read, and left out. */
static ep_status
read_kind(ep_archive *a, ep_input *in)
{
    uint64_t kind = ep_input_varint(in), flags = ep_input_varint(in), family = ep_input_varint(in);
    uint64_t domain = ep_input_varint(in), pairing = ep_input_varint(in), bytes = ep_input_varint(in);
    const uint8_t *word = ep_input_take(in, bytes);
    if (word == NULL || kind == 0 || kind >= EP_KIND_COUNT || family >= EP_FAMILY_CONTROL ||
        domain > EP_DOMAIN_NONE || pairing > EP_PAIRING_CLOSES) {
        in->bad = true;
        return EP_OK;
    }
    ep_kind_info *info = &a->kinds[kind];
    if (info->name != NULL) {
        a->recording.kinds |= flags & 1 ? EP_KIND_BIT(kind) : 0;
        return EP_OK;
    }
    bool one_word = family == EP_FAMILY_CALL || family == EP_FAMILY_POINT;
    *info = (ep_kind_info){
        .family = (uint8_t)family,
        .domain = (uint8_t)domain,
        .pairing = (uint8_t)pairing,
        .words = one_word ? 1 : 2,
        .has_name = family == EP_FAMILY_CALL && pairing == EP_PAIRING_CLOSES,
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
    if (in->bad || kind >= EP_NAME_KIND_COUNT || a->name_count >= EP_PAYLOAD_MAX) {
        in->bad = true;
        return EP_OK;
    }
    text.kind = (ep_name_kind)kind;
    if (!ep_grow((void **)&a->names, &a->name_capacity, a->name_count + 1, sizeof *a->names)) {
        return EP_NOMEM;
    }
    uint32_t id = ep_name_of_text(&text);
    a->names[a->name_count++] = id;
    return id != 0 ? EP_OK : EP_NOMEM;
}

static ep_status
read_site(ep_archive *a, ep_input *in)
{
    uint64_t callee = ep_input_varint(in), caller = ep_input_varint(in);
    ep_site site = {.offset = get_int32(in)};
    site.line = get_int32(in);
    if (in->bad || callee >= a->name_count || caller >= a->name_count ||
        a->site_count >= EP_PAYLOAD_MAX) {
        in->bad = true;
        return EP_OK;
    }
    site.line = site.line == EP_LINE_PENDING ? -1 : site.line;
    site.callee = a->names[callee];
    site.caller = a->names[caller];
    if (!ep_grow((void **)&a->sites, &a->site_capacity, a->site_count + 1, sizeof *a->sites) ||
        !ep_grow((void **)&a->site_callee, &a->callee_capacity, a->site_count + 1,
                 sizeof *a->site_callee)) {
        return EP_NOMEM;
    }
    uint32_t id = ep_site_of_names(&site);
    a->site_callee[a->site_count] = (uint32_t)callee;
    a->sites[a->site_count++] = id;
    return id != 0 ? EP_OK : EP_NOMEM;
}

/* What runs the callee of a site that was read before. */
static ep_status
read_task(ep_archive *a, ep_input *in)
{
    uint64_t site = ep_input_varint(in);
    ep_text text = string_of(a, in);
    if (in->bad || site == 0 || site >= a->site_count || text.at == NULL) {
        in->bad = true;
        return EP_OK;
    }
    uint32_t string = ep_string_add(text);
    ep_site with_task = *ep_site_get(a->sites[site]);
    with_task.task = string + 1;
    uint32_t id = string != EP_STRING_NONE ? ep_site_of_names(&with_task) : 0;
    a->sites[site] = id != 0 ? id : a->sites[site];
    return id != 0 ? EP_OK : EP_NOMEM;
}

/* Returns: how many events are of kinds that are not known here. */
static uint64_t
get_counts(ep_archive *a, ep_input *in, uint64_t counts[EP_KIND_COUNT])
{
    uint64_t pairs = ep_input_varint(in), unknown = 0;
    for (uint64_t i = 0; i < pairs && !in->bad; i++) {
        uint64_t kind = ep_input_varint(in), count = ep_input_varint(in);
        if (kind >= EP_KIND_COUNT || a->kinds[kind].words == 0 ||
            a->kinds[kind].family == EP_FAMILY_CONTROL || count > EP_ARCHIVE_COUNT_MAX) {
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
    /* Sums of times over threads are to fit; and a row is an int32. */
    in->bad = in->bad || d->thread_count > INT32_MAX ||
              (uint64_t)a->duration_ns > EP_ARCHIVE_SUM_MAX / d->thread_count;
    return EP_OK;
}

static ep_status
read_open(ep_archive *a, ep_input *in)
{
    uint64_t row = ep_input_varint(in), kind = ep_input_varint(in), site = ep_input_varint(in);
    if (in->bad || row >= a->decoded.thread_count || site >= a->site_count ||
        !(kind == EP_KIND_CALL || kind == EP_KIND_RESUME || kind == EP_KIND_THROW ||
          kind == EP_KIND_C_CALL)) {
        in->bad = true;
        return EP_OK;
    }
    ep_open_stack *open = &a->decoded.threads[row].open;
    if (!ep_grow((void **)&open->calls, &open->capacity, open->depth + 1, sizeof *open->calls)) {
        return EP_NOMEM;
    }
    open->calls[open->depth++] = (ep_open_call){.site_id = a->sites[site], .kind = (uint8_t)kind};
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
    /* Sampled to the stop, which may be later than where the buffer was full. */
    int64_t time_ns = get_time(in, EP_ARCHIVE_SUM_MAX), bytes = ep_unzigzag(ep_input_varint(in));
    if (in->bad || bytes < 0 ||
        (d->resident_count > 0 && time_ns < d->resident_ns[d->resident_count - 1])) {
        in->bad = true;
        return EP_OK;
    }
    if (!ep_grow((void **)&d->resident_ns, &a->resident_capacity, d->resident_count + 1,
                 sizeof *d->resident_ns) ||
        !ep_grow((void **)&d->resident_bytes, &a->bytes_capacity, d->resident_count + 1,
                 sizeof *d->resident_bytes)) {
        return EP_NOMEM;
    }
    d->resident_ns[d->resident_count] = time_ns;
    d->resident_bytes[d->resident_count++] = bytes;
    return EP_OK;
}

/* In the order in which they need each other. */
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
        *wrong = "what it holds is not possible";
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
        const char *wrong, *name = type_names[s->type];
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
    a->name_count = a->site_count = 1;
    memcpy(a->kinds, ep_kinds, sizeof a->kinds);
    if (!ep_grow((void **)&a->names, &a->name_capacity, 1, sizeof *a->names) ||
        !ep_grow((void **)&a->sites, &a->site_capacity, 1, sizeof *a->sites) ||
        !ep_grow((void **)&a->site_callee, &a->callee_capacity, 1, sizeof *a->site_callee)) {
        return EP_NOMEM;
    }
    for (size_t i = 0; i < sizeof readers / sizeof *readers && status == EP_OK; i++) {
        status = read_sections_of(a, i);
        if (status == EP_OK && i == 0 && !a->has_recording) {
            return ep_fail(a->error, EP_FORMAT, "it says nothing of its recording (%s)",
                           a->info.damage);
        }
    }
    ep_decoded *d = &a->decoded;
    /* Not before: the array moved while it grew. */
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
    free(a->names);
    free(a->sites);
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
    c->time_ns = ep_array_new_claimed(rows, sizeof *c->time_ns);
    c->kind = ep_array_new_claimed(rows, sizeof *c->kind);
    c->thread = ep_array_new_claimed(rows, sizeof *c->thread);
    c->id = ep_array_new_claimed(rows, sizeof *c->id);
    c->alloc_row = ep_array_new_claimed(blocks, sizeof *c->alloc_row);
    c->address = ep_array_new_claimed(blocks, sizeof *c->address);
    c->size = ep_array_new_claimed(blocks, sizeof *c->size);
    return c->time_ns != NULL && c->kind != NULL && c->thread != NULL && c->id != NULL &&
                   c->alloc_row != NULL && c->address != NULL && c->size != NULL
               ? EP_OK
               : EP_NOMEM;
}

static ep_status
load_blocks(ep_archive *a, ep_block_coder *coder, ep_columns *columns, ep_block_totals *totals)
{
    uint64_t number = 0;
    for (size_t i = 0; i < a->section_count; i++) {
        const ep_section *s = &a->sections[i];
        if (s->type != EP_SECTION_EVENTS) {
            continue;
        }
        const char *wrong;
        number += 1;
        ep_status status = read_section(a, s, &wrong);
        if (status == EP_OK) {
            wrong = ep_block_decode(coder, a->raw, (size_t)s->raw_bytes, s, columns, totals);
            status = wrong != NULL ? EP_FORMAT : EP_OK;
        }
        if (status == EP_FORMAT) {
            note_damage(a, "block", number, s->offset, wrong);
        } else if (status != EP_OK) {
            return status;
        }
    }
    return EP_OK;
}

/* What was recorded and is not there is lost. */
static void
settle_threads(ep_decoded *d, const ep_block_totals *totals)
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

static ep_status
load(ep_archive *a, ep_block_coder *coder, ep_decoded *out, ep_block_totals *totals)
{
    ep_decoded *known = &a->decoded;
    uint64_t blocks = 0;
    for (size_t i = 0; i < a->section_count; i++) {
        blocks += a->sections[i].type == EP_SECTION_EVENTS ? a->sections[i].blocks : 0;
    }
    totals->duration_ns = a->duration_ns;
    totals->recorded = ep_calloc(known->thread_count, sizeof *totals->recorded);
    totals->first_ns = ep_realloc(NULL, known->thread_count, sizeof *totals->first_ns);
    totals->last_of_thread_ns = ep_calloc(known->thread_count, sizeof *totals->last_of_thread_ns);
    if (totals->recorded == NULL || totals->first_ns == NULL || totals->last_of_thread_ns == NULL) {
        return EP_NOMEM;
    }
    for (size_t i = 0; i < known->thread_count; i++) {
        totals->first_ns[i] = -1;
    }
    ep_columns columns = {0};
    const ep_archive_info before = a->info;
    ep_status status = columns_new(&columns, (size_t)a->info.events, (size_t)blocks);
    if (status == EP_OK) {
        status = load_blocks(a, coder, &columns, totals);
    }
    if (status != EP_OK) {
        ep_decoded none = {.columns = columns};
        ep_decoded_clear(&none);
        a->info = before;
        return status;
    }
    settle_threads(known, totals);
    a->info.events = columns.count;
    known->columns = columns;
    known->duration_ns = a->duration_ns;
    known->damaged_chunks = a->damaged_chunks + a->info.damaged;
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
    const ep_block_names names = {
        .site_count = a->site_count,
        .name_count = a->name_count,
        .site_callee = a->site_callee,
        .site_map = a->sites,
        .name_map = a->names,
        .thread_count = a->decoded.thread_count,
        .kinds = a->kinds,
    };
    ep_block_totals totals = {0};
    ep_block_coder *coder = ep_block_coder_new(&names, false);
    a->error = error;
    ep_status status = coder != NULL ? load(a, coder, out, &totals) : EP_NOMEM;
    a->error = NULL;
    a->loaded = status == EP_OK;
    int cause = errno;
    ep_block_coder_free(coder);
    free(totals.recorded);
    free(totals.first_ns);
    free(totals.last_of_thread_ns);
    errno = cause;
    return status;
}
