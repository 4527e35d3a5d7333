/* The items of an archive's sections, except the events. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "archive_parts.h"
#include "archive_read_parts.h"
#include "memory.h"
#include "names.h"

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
    a->duration_ns = (int64_t)fields[9];
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
    ep_status status = ep_archive_read_section(a, s, wrong);
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
        const char *wrong, *name = ep_section_names[s->type];
        ep_status status = read_items(a, s, readers[which].read, &wrong);
        if (status == EP_FORMAT && !readers[which].needed) {
            ep_archive_note_damage(a, name, 1, s->offset, wrong);
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

ep_status
ep_archive_read_all_items(ep_archive *a)
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
