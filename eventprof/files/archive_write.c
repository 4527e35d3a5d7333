/* A trace -> an archive: first the small sections that all others need (names, sites, threads), so that a
 * file whose end is missing can still be read; then sections of events; then the index. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "archive_format.h"

#include "array.h"
#include "names.h"

struct ep_archive_writer {
    int fd;
    ep_error *error;
    const ep_recording *recording;   /* these three while all but the events is written */
    const ep_decoded *decoded;
    const ep_id_map *map;
    uint64_t events;                 /* that are still to come */
    ep_events_coder *coder;          /* NULL: there are no events */
    ep_columns rows;                 /* of the next section of events */
    uint64_t offset;                 /* in the file */
    /* the section that is being filled */
    uint8_t *bytes;
    size_t count, capacity;
    uint64_t items;
    uint8_t *packed;
    size_t packed_capacity;
    ep_packer packer;
    ep_section *index;               /* all sections so far */
    size_t index_count, index_capacity;
    /* ids: index = the process's, value = the file's; 0: not in the file */
    uint32_t *sites, *names, *strings;
    size_t site_count, name_count, string_count;    /* counts of the process when writing began */
    uint32_t *site_callee;           /* index = the file's site */
    size_t open_row, open_before;    /* of put_open(): the thread of the next call, and how many calls the
                                      * threads before it have */
    size_t file_sites, file_names, file_strings;    /* one more than the highest id in the file */
};

typedef struct ep_archive_writer writer;

void
ep_archive_writer_close(ep_archive_writer *w)
{
    if (w == NULL) {
        return;
    }
    int cause = errno;    /* free() may change it */
    ep_columns_clear(&w->rows);
    ep_events_coder_free(w->coder);
    free(w->bytes);
    free(w->packed);
    ep_packer_clear(&w->packer);
    free(w->index);
    free(w->sites);
    free(w->names);
    free(w->strings);
    free(w->site_callee);
    free(w);
    errno = cause;
}

/* ---- Out ------------------------------------------------------------------------------------- */

static ep_status
write_all(writer *w, const uint8_t *at, size_t bytes)
{
    while (bytes > 0) {
        ssize_t written = write(w->fd, at, bytes);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            int cause = written < 0 ? errno : ENOSPC;
            ep_fail(w->error, EP_IO, "%s", strerror(cause));
            errno = cause;
            return EP_IO;
        }
        at += written;
        w->offset += (uint64_t)written;
        bytes -= (size_t)written;
    }
    return EP_OK;
}

/* Writes one section. Small sections, and those that compression hardly makes smaller, are not
 * compressed. */
static ep_status
write_section(writer *w, ep_section_type type, const uint8_t *bytes, size_t count, uint64_t items,
              uint64_t blocks)
{
    ep_codec codec = count >= 64 ? ep_codec_best() : EP_CODEC_RAW;
    size_t bound = ep_codec_bound(codec, count), stored = 0;
    if (!ep_grow_raw((void **)&w->packed, &w->packed_capacity, bound + 1, 1)) {
        return EP_NOMEM;
    }
    ep_status status = ep_pack(&w->packer, codec, bytes, count, w->packed, &stored);
    if (status != EP_OK) {
        return status;
    }
    const uint8_t *out = w->packed;
    if (stored >= count || count / EP_SECTION_RATIO_GOAL > stored) {
        codec = EP_CODEC_RAW;
        out = bytes;
        stored = count;
    }
    if (!ep_grow((void **)&w->index, &w->index_capacity, w->index_count + 1, sizeof *w->index)) {
        return EP_NOMEM;
    }
    ep_section section = {
        .offset = w->offset,
        .type = type,
        .codec = (uint8_t)codec,
        .raw_bytes = count,
        .stored_bytes = stored,
        .items = items,
        .blocks = blocks,
        .crc = ep_crc32(0, out, stored),
    };
    uint8_t header[EP_SECTION_HEADER_BYTES];
    ep_section_pack(&section, header);
    w->index[w->index_count++] = section;
    status = write_all(w, header, sizeof header);
    return status != EP_OK ? status : write_all(w, out, stored);
}

/* Writes the bytes that were put since the last section as a section; none if there are no bytes. */
static ep_status
end_section(writer *w, ep_section_type type)
{
    ep_status status =
        w->items > 0 ? write_section(w, type, w->bytes, w->count, w->items, 0) : EP_OK;
    w->count = 0;
    w->items = 0;
    return status;
}

/* Between items: ends the section if it is long enough. */
static ep_status
next_item(writer *w, ep_section_type type)
{
    w->items += 1;
    return w->count >= EP_SECTION_RAW_GOAL ? end_section(w, type) : EP_OK;
}

/* Room for `bytes` more. Fails: NULL. */
static uint8_t *
reserve(writer *w, size_t bytes)
{
    if (!ep_grow_raw((void **)&w->bytes, &w->capacity, w->count + bytes, 1)) {
        return NULL;
    }
    return w->bytes + w->count;
}

/* `to`: the pointer that reserve() returned, plus the bytes that were stored there. */
static void
advance(writer *w, const uint8_t *to)
{
    w->count = (size_t)(to - w->bytes);
}

static ep_status
write_header(writer *w)
{
    uint8_t header[EP_ARCHIVE_HEADER_BYTES] = {0};
    memcpy(&header[0], EP_ARCHIVE_MAGIC, 8);
    memcpy(&header[8], EP_ARCHIVE_TRANSFER, 4);
    ep_store_le(&header[12], EP_ARCHIVE_MAJOR, 2);
    ep_store_le(&header[14], EP_ARCHIVE_MINOR, 2);
    snprintf((char *)&header[16], EP_VERSION_BYTES, "%s", EP_ARCHIVE_READER);
    snprintf((char *)&header[32], EP_VERSION_BYTES, "%s", EP_VERSION);
    ep_store_le(&header[60], ep_crc32(0, header, 60), 4);
    return write_all(w, header, sizeof header);
}

static ep_status
write_recording(writer *w)
{
    const ep_recording *r = w->recording;
    uint64_t frequency;
    memcpy(&frequency, &r->frequency_hz, 8);
    const uint64_t fields[] = {
        (uint64_t)r->kinds,    /* the others: write_kinds() */
        r->start.ticks,
        (uint64_t)r->start.monotonic_ns,
        (uint64_t)r->start_realtime_ns,
        (uint64_t)r->start_boottime_ns,
        frequency,
        r->step_ticks,
        r->process_id,
        r->filtered,
        (uint64_t)w->decoded->duration_ns,
        w->events,
        w->decoded->damaged_chunks,
        (uint64_t)r->full_reason | (uint64_t)r->unfinished << 32 | (uint64_t)(r->limits & 3) << 33 |
            (uint64_t)((r->limits & EP_LIMIT_ROOM) != 0) << 35,
        r->deep_calls,
        r->short_calls,
        r->functions_off,
    };
    _Static_assert(sizeof fields == EP_RECORDING_BYTES, "as the page says");
    uint8_t bytes[EP_RECORDING_BYTES];
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        ep_store_le(&bytes[8 * i], fields[i], 8);
    }
    return write_section(w, EP_SECTION_RECORDING, bytes, sizeof bytes, 1, 0);
}

/* ---- Sections of items ----------------------------------------------------------------------- */

/* A section of items. */
typedef struct item_writer {
    ep_section_type type;
    size_t count;            /* put() is called for 0 to count - 1 */
    size_t most_bytes;       /* of an item without its text, for which put() reserves more */
    /* Stores the item of number i. Returns: its end; `to`: there is no such item; NULL: no memory. */
    uint8_t *(*put)(writer *w, size_t i, uint8_t *to);
} item_writer;

static ep_status
write_items(writer *w, const item_writer *items)
{
    ep_status status = EP_OK;
    for (size_t i = 0; i < items->count && status == EP_OK; i++) {
        size_t before = w->count;
        uint8_t *to = reserve(w, items->most_bytes);
        to = to != NULL ? items->put(w, i, to) : NULL;
        if (to == NULL) {
            return EP_NOMEM;
        }
        advance(w, to);
        status = w->count != before ? next_item(w, items->type) : EP_OK;
    }
    return status != EP_OK ? status : end_section(w, items->type);
}

static uint8_t *
store_varints(uint8_t *to, const uint64_t *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        to = ep_store_varint(to, values[i]);
    }
    return to;
}

#define STORE(to, ...)                                 \
    store_varints(to, (const uint64_t[]){__VA_ARGS__}, \
                  sizeof (uint64_t[]){__VA_ARGS__} / sizeof(uint64_t))

/* ---- Kinds, metadata ------------------------------------------------------------------------- */

/* Whether some thread has a count of this kind. */
static bool
is_counted(const writer *w, size_t kind)
{
    for (size_t i = 0; i < w->decoded->thread_count; i++) {
        const ep_trace_thread *thread = &w->decoded->threads[i];
        if (thread->recorded[kind] != 0 || thread->lost[kind] != 0) {
            return true;
        }
    }
    return false;
}

/* The kinds that were asked for, and those that have counts. */
static uint8_t *
put_kind(writer *w, size_t kind, uint8_t *to)
{
    bool asked = ep_kinds_has(w->recording->kinds, (unsigned)kind);
    if (!ep_kinds_has(ep_kinds_of_events, (unsigned)kind) || (!asked && !is_counted(w, kind))) {
        return to;
    }
    const ep_kind_info *info = &ep_kinds[kind];
    size_t bytes = strlen(info->word);
    to = reserve(w, 6 * EP_VARINT_BYTES + bytes);
    if (to == NULL) {
        return NULL;
    }
    to = STORE(to, kind, asked, info->form, info->domain, info->pairing, bytes);
    memcpy(to, info->word, bytes);
    return to + bytes;
}

static ep_status
write_metadata(writer *w)
{
    const ep_recording *r = w->recording;
    if (r->metadata == NULL) {
        return EP_OK;
    }
    if (r->metadata_bytes > EP_SECTION_RAW_MAX) {
        return ep_fail(w->error, EP_ARGUMENT, "the metadata has %zu bytes; 64 MiB fit",
                       r->metadata_bytes);
    }
    return write_section(w, EP_SECTION_METADATA, (const uint8_t *)r->metadata, r->metadata_bytes, 1,
                         0);
}

/* ---- Names, sites, strings: those that the trace mentions ------------------------------------ */

static void
mark(uint32_t *map, size_t count, uint32_t id)
{
    if (id < count) {
        map[id] = 1;
    }
}

/* Turns marks into ids of the file, in order of the process's. Id 0 stays "none". Returns: one more
 * than the highest. */
static size_t
number_marked(uint32_t *map, size_t count)
{
    uint32_t next = 1;
    map[0] = 0;
    for (size_t i = 1; i < count; i++) {
        map[i] = map[i] ? next++ : 0;
    }
    return next;
}

static void
mark_seen(uint32_t *marks, const int32_t *functions, size_t count)
{
    for (size_t id = 0; id < count; id++) {
        marks[id] = functions[id] != EP_ID_UNSEEN;
    }
}

/* String id -> string of the file; 0: unknown. */
static uint32_t
string_of(const writer *w, uint32_t id)
{
    return id < w->string_count ? w->strings[id] : 0;
}

static ep_status
number_ids(writer *w)
{
    w->site_count = w->map->site_count;
    w->name_count = w->map->name_count;
    w->string_count = ep_string_count();
    w->sites = ep_calloc(w->site_count, sizeof *w->sites);
    w->names = ep_calloc(w->name_count, sizeof *w->names);
    w->strings = ep_calloc(w->string_count, sizeof *w->strings);
    if (w->sites == NULL || w->names == NULL || w->strings == NULL) {
        return EP_NOMEM;
    }
    mark_seen(w->sites, w->map->site_function, w->site_count);
    mark_seen(w->names, w->map->name_function, w->name_count);
    w->file_sites = number_marked(w->sites, w->site_count);
    for (uint32_t id = 1; id < w->site_count; id++) {
        if (w->sites[id] != 0) {
            mark(w->names, w->name_count, ep_site_get(id)->callee);
            mark(w->names, w->name_count, ep_site_get(id)->caller);
            if (ep_site_get(id)->task != 0) {
                mark(w->strings, w->string_count, ep_site_get(id)->task - 1);
            }
        }
    }
    w->file_names = number_marked(w->names, w->name_count);
    for (uint32_t id = 1; id < w->name_count; id++) {
        if (w->names[id] != 0) {
            const ep_name *name = ep_name_get(id);
            mark(w->strings, w->string_count, name->qualname);
            mark(w->strings, w->string_count, name->module);
            mark(w->strings, w->string_count, name->file);
        }
    }
    /* Here string 0 is an ordinary string. */
    w->file_strings = 1;
    for (size_t i = 0; i < w->string_count; i++) {
        w->strings[i] = w->strings[i] ? (uint32_t)w->file_strings++ : 0;
    }
    w->site_callee = ep_calloc(w->file_sites, sizeof *w->site_callee);
    return w->site_callee != NULL ? EP_OK : EP_NOMEM;
}

static uint8_t *
put_string(writer *w, size_t id, uint8_t *to)
{
    if (w->strings[id] == 0) {
        return to;
    }
    ep_text text = ep_string_get((uint32_t)id);
    if (text.bytes > EP_SECTION_RAW_GOAL) {
        text.bytes = 0;    /* no name is so long */
    }
    to = reserve(w, EP_VARINT_BYTES + text.bytes);
    if (to == NULL) {
        return NULL;
    }
    to = ep_store_varint(to, text.bytes);
    memcpy(to, text.at, text.bytes);
    return to + text.bytes;
}

static uint8_t *
put_name(writer *w, size_t id, uint8_t *to)
{
    if (w->names[id] == 0) {
        return to;
    }
    const ep_name *name = ep_name_get((uint32_t)id);
    return STORE(to, string_of(w, name->qualname), string_of(w, name->module), string_of(w, name->file),
                 ep_zigzag(name->line), name->kind);
}

static uint8_t *
put_site(writer *w, size_t id, uint8_t *to)
{
    if (w->sites[id] == 0) {
        return to;
    }
    const ep_site *site = ep_site_get((uint32_t)id);
    uint32_t callee = site->callee < w->name_count ? w->names[site->callee] : 0;
    uint32_t caller = site->caller < w->name_count ? w->names[site->caller] : 0;
    w->site_callee[w->sites[id]] = callee;
    return STORE(to, callee, caller, ep_zigzag(site->offset),
                 ep_zigzag(site->line == EP_LINE_PENDING ? -1 : site->line));
}

/* Tasks of the sites that have one. If no site has a task, there is no such section. */
static uint8_t *
put_task(writer *w, size_t id, uint8_t *to)
{
    uint32_t task = w->sites[id] != 0 ? ep_site_get((uint32_t)id)->task : 0;
    if (task == 0 || string_of(w, task - 1) == 0) {
        return to;
    }
    return STORE(to, w->sites[id], string_of(w, task - 1));
}

/* ---- Threads, open calls, the resident set --------------------------------------------------- */

static uint8_t *
store_counts(uint8_t *to, const uint64_t counts[EP_KIND_COUNT])
{
    unsigned pairs = 0;
    for (unsigned kind = 0; kind < EP_KIND_COUNT; kind++) {
        pairs += counts[kind] != 0;
    }
    to = ep_store_varint(to, pairs);
    for (unsigned kind = 0; kind < EP_KIND_COUNT; kind++) {
        if (counts[kind] != 0) {
            to = STORE(to, kind, counts[kind]);
        }
    }
    return to;
}

static uint8_t *
put_thread(writer *w, size_t i, uint8_t *to)
{
    const ep_trace_thread *thread = &w->decoded->threads[i];
    const ep_thread *who = thread->thread;
    /* Acquire: pairs with ep_thread_set_name(). */
    bool named = who != NULL && atomic_load_explicit(&who->named, memory_order_acquire);
    size_t name_bytes = named ? strlen(who->name) : 0;
    to = STORE(to, (who != NULL) | (named ? 2u : 0u), who != NULL ? who->id : 0,
               who != NULL ? who->native_id : 0, name_bytes);
    memcpy(to, named ? who->name : "", name_bytes);
    to += name_bytes;
    to = STORE(to, ep_zigzag(thread->first_ns), ep_zigzag(thread->last_ns));
    to = store_counts(to, thread->recorded);
    return store_counts(to, thread->lost);
}

/* Open calls of all threads: the calls of the threads before come first. */
static size_t
count_open(const writer *w)
{
    size_t count = 0;
    for (size_t i = 0; i < w->decoded->thread_count; i++) {
        count += w->decoded->threads[i].open.depth;
    }
    return count;
}

static uint8_t *
put_open(writer *w, size_t i, uint8_t *to)
{
    while (i - w->open_before >= w->decoded->threads[w->open_row].open.depth) {
        w->open_before += w->decoded->threads[w->open_row++].open.depth;
    }
    const ep_open_call *call = &w->decoded->threads[w->open_row].open.calls[i - w->open_before];
    return STORE(to, w->open_row, call->kind, call->site_id < w->site_count ? w->sites[call->site_id] : 0);
}

/* For a merged trace: the time in which each thread's process was recorded, if that is not the whole
 * window. */
static uint8_t *
put_window(writer *w, size_t i, uint8_t *to)
{
    const ep_trace_thread *thread = &w->decoded->threads[i];
    bool whole = thread->from_ns == 0 && thread->until_ns == w->decoded->duration_ns;
    if (thread->until_ns == 0 || whole) {
        return to;
    }
    return STORE(to, i, ep_zigzag(thread->from_ns), ep_zigzag(thread->until_ns));
}

static uint8_t *
put_resident(writer *w, size_t i, uint8_t *to)
{
    return STORE(to, ep_zigzag(w->decoded->resident_ns[i]), ep_zigzag(w->decoded->resident_bytes[i]));
}

static uint8_t *
put_own(writer *w, size_t i, uint8_t *to)
{
    int64_t own_bytes = w->decoded->resident_own[i];
    return own_bytes != 0 ? STORE(to, i, (uint64_t)own_bytes) : to;
}

static ep_status
write_kinds(writer *w)
{
    return write_items(w, &(item_writer){EP_SECTION_KINDS, EP_KIND_COUNT, 6 * EP_VARINT_BYTES, put_kind});
}

/* In this order: items refer to those of earlier sections. archive_read.c has the readers. */
static ep_status
write_all_items(writer *w)
{
    const size_t threads = w->decoded->thread_count, varint = EP_VARINT_BYTES;
    const size_t thread_bytes = (8 + 4 * EP_KIND_COUNT) * varint + EP_THREAD_NAME_BYTES;
    const item_writer sections[] = {
        {EP_SECTION_STRINGS, w->string_count, varint, put_string},
        {EP_SECTION_NAMES, w->name_count, 5 * varint, put_name},
        {EP_SECTION_SITES, w->site_count, 4 * varint, put_site},
        {EP_SECTION_TASKS, w->site_count, 2 * varint, put_task},
        {EP_SECTION_THREADS, threads, thread_bytes, put_thread},
        {EP_SECTION_OPEN, count_open(w), 3 * varint, put_open},
        {EP_SECTION_WINDOWS, threads, 3 * varint, put_window},
        {EP_SECTION_RESIDENT, w->decoded->resident_count, 2 * varint, put_resident},
        {EP_SECTION_OWN, w->decoded->resident_count, 2 * varint, put_own},
    };
    ep_status status = EP_OK;
    for (size_t i = 0; i < sizeof sections / sizeof *sections && status == EP_OK; i++) {
        status = write_items(w, &sections[i]);
    }
    return status;
}

/* ---- Events and index ------------------------------------------------------------------------ */

static ep_status
begin_events(writer *w)
{
    const ep_events_ids ids = {
        .site_count = w->file_sites,
        .name_count = w->file_names,
        .site_callee = w->site_callee,
        .site_map = w->sites,
        .name_map = w->names,
        .site_map_count = w->site_count,
        .name_map_count = w->name_count,
        .thread_count = w->decoded->thread_count,
    };
    if (w->events == 0) {
        return EP_OK;
    }
    w->coder = ep_events_coder_new(&ids, true);
    w->rows.thread = ep_realloc(NULL, EP_SECTION_ROWS, sizeof *w->rows.thread);
    bool has_room = ep_columns_reserve(&w->rows, EP_SECTION_ROWS, EP_SECTION_ROWS);
    return w->coder != NULL && w->rows.thread != NULL && has_room ? EP_OK : EP_NOMEM;
}

static ep_status
write_events(writer *w)
{
    ep_columns *c = &w->rows;
    size_t block = 0, bytes;
    const uint8_t *at = ep_events_encode(w->coder, c, 0, c->count, &block, &bytes);
    ep_status status = write_section(w, EP_SECTION_EVENTS, at, bytes, c->count, c->alloc_count);
    c->count = c->alloc_count = 0;
    ep_columns_give_back();
    return status;
}

static ep_status
write_index(writer *w)
{
    size_t entry = 8 + EP_SECTION_HEADER_BYTES;
    uint64_t offset = w->offset;
    uint8_t *to = reserve(w, w->index_count * entry);
    if (to == NULL) {
        return EP_NOMEM;
    }
    for (size_t i = 0; i < w->index_count; i++) {
        ep_store_le(to, w->index[i].offset, 8);
        ep_section_pack(&w->index[i], to + 8);
        to += entry;
    }
    advance(w, to);
    w->items = w->index_count;
    ep_status status = end_section(w, EP_SECTION_INDEX);
    if (status != EP_OK) {
        return status;
    }
    uint8_t trailer[EP_TRAILER_BYTES] = {0};
    ep_store_le(&trailer[0], offset, 8);
    ep_store_le(&trailer[8], w->offset, 8);
    memcpy(&trailer[20], EP_ARCHIVE_END, 8);
    ep_store_le(&trailer[28], ep_crc32(0, trailer, 28), 4);
    return write_all(w, trailer, sizeof trailer);
}

ep_status
ep_archive_begin(int fd, const ep_recording *recording, const ep_decoded *head, const ep_id_map *map,
                 ep_archive_writer **out, ep_error *error)
{
    static ep_status (*const steps[])(writer *) = {
        write_header,
        write_recording,
        write_kinds,
        write_metadata,
        number_ids,
        write_all_items,
        begin_events,
    };
    writer *w = ep_calloc(1, sizeof *w);
    if (w == NULL) {
        return EP_NOMEM;
    }
    w->fd = fd;
    w->error = error;
    w->recording = recording;
    w->decoded = head;
    w->map = map;
    w->events = ep_decoded_events(head);
    ep_status status = EP_OK;
    for (size_t i = 0; i < sizeof steps / sizeof *steps && status == EP_OK; i++) {
        status = steps[i](w);
    }
    if (status != EP_OK) {
        ep_archive_writer_close(w);
        return status;
    }
    *out = w;
    return EP_OK;
}

ep_status
ep_archive_add(ep_archive_writer *w, const ep_columns *columns, size_t from, size_t to, size_t *block)
{
    ep_status status = EP_OK;
    if (to - from > w->events) {
        return ep_fail(w->error, EP_FORMAT, "the recording was changed while it was read");
    }
    w->events -= to - from;
    for (size_t row = from, rows; row < to && status == EP_OK; row += rows) {
        size_t room = EP_SECTION_ROWS - w->rows.count;
        rows = to - row < room ? to - row : room;
        ep_columns_append(&w->rows, columns, row, rows, block);
        status = rows == room ? write_events(w) : EP_OK;
    }
    return status;
}

ep_status
ep_archive_end(ep_archive_writer *w)
{
    if (w->events > 0) {
        return ep_fail(w->error, EP_FORMAT, "the recording was changed while it was read");
    }
    ep_status status = w->rows.count > 0 ? write_events(w) : EP_OK;
    return status != EP_OK ? status : write_index(w);
}

ep_status
ep_archive_write(int fd, const ep_recording *recording, const ep_decoded *decoded, ep_error *error)
{
    ep_functions functions;
    ep_archive_writer *w = NULL;
    size_t block = 0;
    ep_status status = ep_functions_build(decoded, &functions);
    if (status != EP_OK) {
        return status;
    }
    status = ep_archive_begin(fd, recording, decoded, &functions.map, &w, error);
    if (status == EP_OK) {
        status = ep_archive_add(w, &decoded->columns, 0, decoded->columns.count, &block);
    }
    status = status != EP_OK ? status : ep_archive_end(w);
    int cause = errno;
    ep_functions_clear(&functions);
    ep_archive_writer_close(w);
    errno = cause;
    return status;
}
