/* A log file -> decoded columns. Slots are read into memory, never mapped: a file that shrinks
 * meanwhile must not kill the reader. What is read is checked record by record and its thread ids
 * are made small before decode.c, which trusts its input, sees it. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"
#include "memory.h"

/* No recording lasts longer, and no clock is slower or faster: so that no product overflows. */
#define SPAN_TICKS_MAX (UINT64_C(1) << 53)
#define SPAN_NS_MAX (INT64_C(1) << 53)
#define NS_A_TICK_MAX 1000.0
#define NS_A_TICK_MIN 0.001
#define BLOCK_BYTES_MAX (UINT64_C(1) << 48)
#define COUNT_MAX (UINT64_C(1) << 60)
#define TRIES 16

struct ep_file_reader {
    int descriptor;
    uint64_t bytes, slots;    /* of the file, when last looked at; a last slot that is cut counts */
    ep_file_header header;
    ep_file_facts facts;
};

/* Ids of the file to what they are here; index = id. */
typedef struct id_table {
    uint32_t *ids;
    size_t count, capacity;
} id_table;

typedef struct text_name {
    uint32_t qualname, module, file;
    int32_t line;
    uint32_t kind;
    bool known;
} text_name;

typedef struct text_site {
    uint32_t callee, caller;
    int32_t offset, line;
    bool known;
} text_site;

typedef struct loader {
    ep_file_reader *reader;
    ep_file_header header;              /* as of this load */
    char *state;                        /* EP_FILE_STATE_BYTES */
    uint64_t state_bytes;
    uint64_t dropped_sequence;
    ep_chunk *chunks;
    size_t chunk_count, chunk_capacity;
    void **texts;                       /* text slots, whole */
    size_t text_count, text_capacity;
    ep_thread *threads;                 /* index = small id; [0] is nobody */
    size_t thread_count, thread_capacity;
    uint64_t *thread_slots;             /* open addressing: file id << 24 | small id; 0: empty */
    size_t thread_mask;
    uint64_t last_ticks;                /* of all records of the window */
    ep_text *strings;
    size_t string_count, string_capacity;
    text_name *names;
    size_t name_count, name_capacity;
    text_site *sites;
    size_t site_count, site_capacity;
    id_table name_ids, site_ids;
    ep_window_thread *window;
    size_t unknown_ids;
} loader;

static EP_PRINTF(2, 3) ep_status
refuse(ep_error *error, const char *format, ...)
{
    if (error != NULL) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(error->text, sizeof error->text, format, arguments);
        va_end(arguments);
        error->os_error = 0;
    }
    return EP_FORMAT;
}

static ep_status
refuse_io(ep_error *error)
{
    int os_error = errno;
    if (error != NULL) {
        snprintf(error->text, sizeof error->text, "%s", strerror(os_error));
        error->os_error = os_error;
    }
    return EP_IO;
}

static EP_PRINTF(2, 3) void
note(ep_file_reader *reader, const char *format, ...)
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

/* Returns: bytes read, fewer at the file's end; -1 with errno. */
static int64_t
read_at(const ep_file_reader *reader, uint64_t offset, void *to, size_t bytes)
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

/* ---- Header ---------------------------------------------------------------------------------- */

static ep_status
read_size(ep_file_reader *reader, ep_error *error)
{
    struct stat stat;
    if (fstat(reader->descriptor, &stat) != 0) {
        return refuse_io(error);
    }
    reader->bytes = stat.st_size > 0 ? (uint64_t)stat.st_size : 0;
    reader->slots = (reader->bytes + EP_CHUNK_BYTES - 1) / EP_CHUNK_BYTES;
    reader->facts.bytes = reader->bytes;
    return EP_OK;
}

static ep_status
read_header(ep_file_reader *reader, ep_error *error)
{
    ep_file_header *header = &reader->header;
    int64_t got = read_at(reader, 0, header, sizeof *header);
    if (got < 0) {
        return refuse_io(error);
    }
    if (got < 8 || memcmp(header->magic, EP_FILE_MAGIC, 8) != 0) {
        return refuse(error, "not a log file of eventprof: it does not begin with its magic");
    }
    if ((size_t)got < sizeof *header) {
        return refuse(error, "cut off at byte %" PRId64 ", inside of its header: nothing is left", got);
    }
    if (header->byte_order != EP_FILE_BYTE_ORDER) {
        return refuse(error, "written on a machine of another byte order (offset 12)");
    }
    if (header->major > EP_FILE_MAJOR) {
        return refuse(error,
                      "version %u.%u of the log format; this eventprof reads up to %d: take a newer one",
                      header->major, header->minor, EP_FILE_MAJOR);
    }
    if (header->slot_bytes != EP_CHUNK_BYTES || header->header_bytes < sizeof *header ||
        header->metadata_bytes > EP_FILE_METADATA_LIMIT) {
        return refuse(error, "its header is damaged (slots of %u bytes, header of %u, metadata of "
                             "%" PRIu64 ")",
                      header->slot_bytes, header->header_bytes, header->metadata_bytes);
    }
    ep_file_facts *facts = &reader->facts;
    uint32_t phase = atomic_load_explicit(&header->phase, memory_order_relaxed);
    if (phase > EP_FILE_FINISHED) {
        return refuse(error, "its header is damaged (phase %u)", phase);
    }
    facts->major = header->major;
    facts->minor = header->minor;
    facts->phase = (ep_file_phase)phase;
    facts->counter = header->clock_mode == EP_CLOCK_COUNTER;
    facts->only_thread = header->only_thread;
    facts->parent_process_id = header->parent_process_id;
    facts->texts_lost = atomic_load_explicit(&header->texts_lost, memory_order_relaxed);
    memcpy(facts->calls_from, header->calls_from, sizeof facts->calls_from - 1);
    memcpy(facts->displaced, header->displaced, sizeof facts->displaced - 1);
    facts->writer_lives = false;
    if (facts->phase != EP_FILE_FINISHED) {
        /* The writer holds it as long as it lives. */
        if (flock(reader->descriptor, LOCK_SH | LOCK_NB) == 0) {
            (void)flock(reader->descriptor, LOCK_UN);
        } else {
            facts->writer_lives = errno == EWOULDBLOCK;
        }
    }
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
    ep_status status = read_size(reader, error);
    status = status != EP_OK ? status : read_header(reader, error);
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

/* ---- Threads --------------------------------------------------------------------------------- */

#define SMALL_ID_BITS 24

static bool
grow_thread_slots(loader *l)
{
    size_t mask = l->thread_mask ? l->thread_mask * 2 + 1 : 255;
    uint64_t *slots = ep_calloc(mask + 1, sizeof *slots);
    if (slots == NULL) {
        return false;
    }
    for (size_t i = 1; i < l->thread_count; i++) {
        size_t slot = l->threads[i].id * UINT64_C(0x9E3779B97F4A7C15) >> 32;
        while (slots[slot & mask] != 0) {
            slot++;
        }
        slots[slot & mask] = (uint64_t)l->threads[i].id << SMALL_ID_BITS | i;
    }
    free(l->thread_slots);
    l->thread_slots = slots;
    l->thread_mask = mask;
    return true;
}

/* The small id of a thread of the file, made at first sight. Returns: 0 without memory, or if the
 * id cannot be one. While loading, ep_thread.id is the file's. */
static uint32_t
small_thread_id(loader *l, uint64_t id)
{
    if (id == 0 || id > UINT32_MAX || l->thread_count >> SMALL_ID_BITS != 0) {
        return 0;
    }
    if (l->thread_count * 2 >= l->thread_mask && !grow_thread_slots(l)) {
        return 0;
    }
    size_t slot = (uint32_t)id * UINT64_C(0x9E3779B97F4A7C15) >> 32;
    for (; l->thread_slots[slot & l->thread_mask] != 0; slot++) {
        uint64_t entry = l->thread_slots[slot & l->thread_mask];
        if (entry >> SMALL_ID_BITS == id) {
            return (uint32_t)entry & ((1u << SMALL_ID_BITS) - 1);
        }
    }
    if (!ep_grow((void **)&l->threads, &l->thread_capacity, l->thread_count + 1, sizeof *l->threads)) {
        return 0;
    }
    uint32_t small = (uint32_t)l->thread_count++;
    l->threads[small].id = (uint32_t)id;
    l->thread_slots[slot & l->thread_mask] = id << SMALL_ID_BITS | small;
    return small;
}

/* ---- Chunks of events ------------------------------------------------------------------------ */

/* Walks the records of a chunk in memory: makes thread ids small, notes the last ticks of the
 * window, and ends the chunk in front of what cannot be a record. Returns: bytes of the chunk that
 * are whole. */
static size_t
check_records(loader *l, ep_chunk_header *header, size_t words, uint64_t stop_ticks)
{
    uint64_t *const begin = (uint64_t *)(header + 1), *at = begin;
    uint64_t *const end = begin + words;
    const uint64_t start = l->header.start.ticks;
    uint64_t high = header->opened.ticks >> 32 << 32, last = l->last_ticks;
    while (at < end && *at != 0) {
        unsigned kind = EP_WORD0_KIND(*at);
        const ep_kind_info *info = &ep_kinds[kind];
        uint64_t ticks = high | EP_WORD0_TICKS(*at);
        if (info->name == NULL || at + info->words > end) {
            break;
        }
        if (kind == EP_KIND_SYNC) {
            high = at[1] >> 32 << 32;
        } else if (kind == EP_KIND_THREAD) {
            uint32_t small = small_thread_id(l, at[1]);
            if (small == 0) {
                break;
            }
            at[1] = small;
        } else if (kind == EP_KIND_ESCAPE) {
            uint32_t what = EP_WORD0_PAYLOAD(*at);
            if (what >= EP_ESCAPE_COUNT || (what == EP_ESCAPE_SIZE && at[1] > BLOCK_BYTES_MAX) ||
                (what == EP_ESCAPE_SITE && at[1] > EP_PAYLOAD_MAX)) {
                break;
            }
        } else if (ticks >= start && ticks <= stop_ticks) {
            if (ticks - start > SPAN_TICKS_MAX) {
                break;
            }
            last = ticks > last ? ticks : last;
        }
        at += info->words;
    }
    l->last_ticks = last;
    size_t whole = (size_t)(at - begin);
    header->used_words = whole;
    return whole;
}

/* Of a chunk that its owner writes meanwhile: what two reads agree on, and the first of them saw
 * published, is whole. */
static ep_status
read_live(const ep_file_reader *reader, uint64_t offset, ep_chunk_header *chunk, size_t *words)
{
    ep_chunk_header *again = ep_calloc(EP_CHUNK_BYTES, 1);
    if (again == NULL) {
        return EP_NOMEM;
    }
    int64_t got = read_at(reader, offset, again, EP_CHUNK_BYTES);
    if (got < (int64_t)sizeof *again || again->sequence != chunk->sequence) {
        *words = 0;    /* another chunk by now: not this one's records */
    } else {
        const uint64_t *before = (uint64_t *)(chunk + 1), *after = (uint64_t *)(again + 1);
        size_t at = 0, limit = ((size_t)got - sizeof *again) / 8;
        limit = limit < *words ? limit : *words;
        while (at < limit && before[at] != 0 && before[at] == after[at]) {
            size_t length = ep_kinds[EP_WORD0_KIND(before[at])].words;
            if (length == 0 || at + length > limit) {
                break;
            }
            at += length;
        }
        memcpy(chunk, again, sizeof *again + at * 8);
        *words = at;
    }
    free(again);
    return EP_OK;
}

static ep_status
add_chunk(loader *l, uint64_t slot, uint64_t stop_ticks)
{
    ep_file_reader *reader = l->reader;
    uint64_t offset = slot * EP_CHUNK_BYTES;
    ep_chunk_header *chunk = ep_calloc(EP_CHUNK_BYTES, 1);
    if (chunk == NULL ||
        !ep_grow((void **)&l->chunks, &l->chunk_capacity, l->chunk_count + 1, sizeof *l->chunks)) {
        free(chunk);
        return EP_NOMEM;
    }
    int64_t got = read_at(reader, offset, chunk, EP_CHUNK_BYTES);
    if (got < (int64_t)sizeof *chunk) {
        free(chunk);
        return got < 0 ? EP_IO : EP_OK;
    }
    bool sealed = atomic_load_explicit(&chunk->state, memory_order_relaxed) == EP_CHUNK_SEALED;
    size_t words = ((size_t)got - sizeof *chunk) / 8, claimed = chunk->used_words;
    if (sealed) {
        words = claimed < words ? claimed : words;
    } else if (reader->facts.writer_lives) {
        ep_status status = read_live(reader, offset, chunk, &words);
        if (status != EP_OK) {
            free(chunk);
            return status;
        }
    }
    bool right_sum = !sealed || (words == claimed && chunk->sum == ep_sum64(chunk + 1, words * 8));
    uint32_t thread = small_thread_id(l, chunk->thread_id);
    if (thread == 0) {
        note(reader, "chunk at offset %" PRIu64 ": of thread %" PRIu64 ", which cannot be", offset,
             chunk->thread_id);
        free(chunk);
        return EP_OK;
    }
    chunk->thread_id = thread;
    size_t whole = check_records(l, chunk, words, stop_ticks);
    if (!right_sum || (sealed && whole != words)) {
        note(reader, "chunk at offset %" PRIu64 ": damaged; %zu of %zu bytes of records were read",
             offset, whole * 8, claimed > EP_CHUNK_WORDS ? (size_t)EP_CHUNK_WORDS * 8 : claimed * 8);
    } else if (!sealed && (uint64_t)got < EP_CHUNK_BYTES && whole == words) {
        note(reader, "chunk at offset %" PRIu64 ": the file ends in it, at byte %" PRIu64, offset,
             offset + (uint64_t)got);
    }
    atomic_store_explicit(&chunk->state, EP_CHUNK_SEALED, memory_order_relaxed);
    l->chunks[l->chunk_count++] = (ep_chunk){.header = chunk};
    return EP_OK;
}

static int
by_sequence(const void *a, const void *b)
{
    uint64_t x = ((const ep_chunk *)a)->header->sequence, y = ((const ep_chunk *)b)->header->sequence;
    return (x > y) - (x < y);
}

static int
texts_by_sequence(const void *a, const void *b)
{
    const ep_chunk_header *const *x = a, *const *y = b;
    return ((*x)->sequence > (*y)->sequence) - ((*x)->sequence < (*y)->sequence);
}

static ep_status
add_text_slot(loader *l, uint64_t slot)
{
    ep_chunk_header *texts = ep_calloc(EP_CHUNK_BYTES, 1);
    if (texts == NULL || !ep_grow((void **)&l->texts, &l->text_capacity, l->text_count + 1,
                                  sizeof *l->texts)) {
        free(texts);
        return EP_NOMEM;
    }
    if (read_at(l->reader, slot * EP_CHUNK_BYTES, texts, EP_CHUNK_BYTES) < 0) {
        free(texts);
        return EP_IO;
    }
    if (atomic_load_explicit(&texts->state, memory_order_relaxed) == EP_CHUNK_SEALED &&
        (texts->used_words > EP_CHUNK_WORDS ||
         texts->sum != ep_sum64(texts + 1, texts->used_words * 8))) {
        note(l->reader, "names at offset %" PRIu64 ": damaged", slot * EP_CHUNK_BYTES);
    }
    l->texts[l->text_count++] = texts;
    return EP_OK;
}

/* The events first, then the texts: what a record refers to was written before it. */
static ep_status
read_slots(loader *l, uint64_t stop_ticks)
{
    ep_file_reader *reader = l->reader;
    ep_file_facts *facts = &reader->facts;
    facts->event_slots = facts->text_slots = facts->other_slots = 0;
    for (int texts = 0; texts < 2; texts++) {
        for (uint64_t slot = 1; slot < reader->slots; slot++) {
            ep_chunk_header header;
            int64_t got = read_at(reader, slot * EP_CHUNK_BYTES, &header, sizeof header);
            if (got < 0) {
                return EP_IO;
            }
            uint32_t state = atomic_load_explicit(&header.state, memory_order_relaxed);
            bool whole = (size_t)got == sizeof header && state != EP_CHUNK_FREE;
            bool of_text = whole && header.magic == EP_FILE_TEXT_MAGIC;
            bool of_events = whole && header.magic == EP_CHUNK_MAGIC &&
                             atomic_load_explicit(&header.wanted, memory_order_relaxed) != 0 &&
                             header.sequence != l->dropped_sequence;
            ep_status status = EP_OK;
            if (texts && of_text) {
                facts->text_slots += 1;
                status = add_text_slot(l, slot);
            } else if (!texts && of_events) {
                facts->event_slots += 1;
                status = add_chunk(l, slot, stop_ticks);
            } else if (!texts && !of_text) {
                facts->other_slots += 1;
            }
            if (status != EP_OK) {
                return status;
            }
        }
    }
    if (l->chunk_count > 1) {
        qsort(l->chunks, l->chunk_count, sizeof *l->chunks, by_sequence);
    }
    if (l->text_count > 1) {
        qsort(l->texts, l->text_count, sizeof *l->texts, texts_by_sequence);
    }
    return EP_OK;
}

/* ---- Texts ----------------------------------------------------------------------------------- */

/* Makes index `id` of a table; ids are dense, so that one far beyond the file's length is damage. */
static bool
reach_id(const loader *l, void **table, size_t *count, size_t *capacity, uint32_t id, size_t size)
{
    if (id > l->reader->bytes / 16 || !ep_grow(table, capacity, (size_t)id + 1, size)) {
        return false;
    }
    *count = id >= *count ? (size_t)id + 1 : *count;
    return true;
}

static void
read_text_record(loader *l, uint32_t type, const uint32_t *fields, size_t bytes)
{
    uint32_t id = fields[0];
    const char *tail;
    switch (type) {
        case EP_FILE_TEXT_STRING:
            tail = (const char *)(fields + 2);
            if (bytes >= 8 && fields[1] <= bytes - 8 &&
                reach_id(l, (void **)&l->strings, &l->string_count, &l->string_capacity, id,
                         sizeof *l->strings)) {
                l->strings[id] = (ep_text){tail, fields[1]};
            }
            break;
        case EP_FILE_TEXT_NAME:
            if (bytes >= 24 && fields[5] < EP_NAME_KIND_COUNT &&
                reach_id(l, (void **)&l->names, &l->name_count, &l->name_capacity, id,
                         sizeof *l->names)) {
                l->names[id] = (text_name){fields[1], fields[2], fields[3], (int32_t)fields[4],
                                           fields[5], true};
            }
            break;
        case EP_FILE_TEXT_SITE:
            if (bytes >= 20 && reach_id(l, (void **)&l->sites, &l->site_count, &l->site_capacity, id,
                                        sizeof *l->sites)) {
                l->sites[id] = (text_site){fields[1], fields[2], (int32_t)fields[3],
                                           (int32_t)fields[4], true};
            }
            break;
        case EP_FILE_TEXT_THREAD:
            tail = (const char *)(fields + 4);
            if (bytes >= 16 && fields[1] <= bytes - 16) {
                uint32_t small = small_thread_id(l, id);
                ep_thread *thread = &l->threads[small];
                if (small != 0) {
                    thread->native_id = fields[2] | (uint64_t)fields[3] << 32;
                    if (fields[1] > 0 && fields[1] < EP_THREAD_NAME_BYTES) {
                        memcpy(thread->name, tail, fields[1]);
                        thread->name[fields[1]] = 0;
                        atomic_store_explicit(&thread->named, true, memory_order_relaxed);
                    }
                }
            }
            break;
        default:
            break;    /* of a later version */
    }
}

static void
read_texts(loader *l)
{
    for (size_t i = 0; i < l->text_count; i++) {
        const ep_chunk_header *header = l->texts[i];
        const uint64_t *at = (const uint64_t *)(header + 1), *end = at + EP_CHUNK_WORDS;
        while (at < end && *at != 0) {
            uint64_t words = (uint32_t)*at;
            if (words < 2 || words > (uint64_t)(end - at)) {
                note(l->reader, "names: a record of %" PRIu64 " words cannot be", words);
                break;
            }
            read_text_record(l, (uint32_t)(*at >> 32), (const uint32_t *)(at + 1), (words - 1) * 8);
            at += words;
        }
    }
}

static ep_text
string_of(const loader *l, uint32_t id)
{
    return id < l->string_count ? l->strings[id] : (ep_text){NULL, 0};
}

/* Code that only an allocator hook met has no module; others of its file do. */
static void
complete_modules(loader *l)
{
    uint32_t *module_of_file = ep_realloc(NULL, l->string_count + 1, sizeof *module_of_file);
    if (module_of_file == NULL) {
        return;
    }
    memset(module_of_file, 0xFF, (l->string_count + 1) * sizeof *module_of_file);
    for (size_t i = 0; i < l->name_count; i++) {
        const text_name *name = &l->names[i];
        if (name->known && name->file < l->string_count && name->module < l->string_count) {
            module_of_file[name->file] = name->module;
        }
    }
    for (size_t i = 0; i < l->name_count; i++) {
        text_name *name = &l->names[i];
        if (name->known && name->file < l->string_count && name->module >= l->string_count) {
            name->module = module_of_file[name->file];
        }
    }
    free(module_of_file);
}

static ep_status
map_ids(loader *l)
{
    complete_modules(l);
    l->name_ids = (id_table){.ids = ep_calloc(l->name_count + 1, sizeof(uint32_t)), .count = l->name_count};
    l->site_ids = (id_table){.ids = ep_calloc(l->site_count + 1, sizeof(uint32_t)), .count = l->site_count};
    if (l->name_ids.ids == NULL || l->site_ids.ids == NULL) {
        return EP_NOMEM;
    }
    for (size_t i = 1; i < l->name_count; i++) {
        const text_name *from = &l->names[i];
        ep_name_text text = {
            .qualname = string_of(l, from->qualname),
            .module = string_of(l, from->module),
            .file = string_of(l, from->file),
            .line = from->line,
            .kind = (ep_name_kind)from->kind,
        };
        if (from->known && (l->name_ids.ids[i] = ep_name_of_text(&text)) == 0) {
            return EP_NOMEM;
        }
    }
    for (size_t i = 1; i < l->site_count; i++) {
        const text_site *from = &l->sites[i];
        ep_site site = {
            .callee = from->callee < l->name_count ? l->name_ids.ids[from->callee] : 0,
            .caller = from->caller < l->name_count ? l->name_ids.ids[from->caller] : 0,
            .offset = from->offset,
            .line = from->line == EP_LINE_PENDING ? -1 : from->line,
        };
        if (from->known && (l->site_ids.ids[i] = ep_site_of_names(&site)) == 0) {
            return EP_NOMEM;
        }
    }
    return EP_OK;
}

/* ---- State ----------------------------------------------------------------------------------- */

/* The state that counts now, checked. A writer may go on to the other one, and back, while we read:
 * then once more. */
static ep_status
read_state(loader *l, ep_error *error)
{
    ep_file_reader *reader = l->reader;
    l->state_bytes = 0;
    l->dropped_sequence = UINT64_MAX;
    for (int attempt = 0; attempt < TRIES; attempt++) {
        uint32_t which = atomic_load_explicit(&reader->header.state, memory_order_relaxed) & 1;
        uint64_t offset = EP_FILE_STATE_OFFSET(which);
        ep_file_state state;
        int64_t got = read_at(reader, offset, l->state, EP_FILE_STATE_BYTES);
        if (got < 0) {
            return refuse_io(error);
        }
        if ((size_t)got < sizeof state) {
            note(reader, "the file ends at byte %" PRIu64 ", before its first chunk", reader->bytes);
            return EP_OK;
        }
        memcpy(&state, l->state, sizeof state);
        if (state.thread_count == 0 && state.bytes == 0 && state.sum == 0) {
            return EP_OK;    /* nothing was lost yet, and nothing open */
        }
        if (state.bytes <= (uint64_t)got - sizeof state &&
            state.sum == ep_sum64(l->state + sizeof state, state.bytes)) {
            l->state_bytes = state.bytes;
            l->dropped_sequence = state.dropped_sequence;
            if (state.incomplete > 0) {
                note(reader, "loss and open calls of %" PRIu64 " threads found no room", state.incomplete);
            }
            return EP_OK;
        }
        ep_status status = read_header(reader, error);
        if (status != EP_OK) {
            return status;
        }
    }
    note(reader, "the counts of what was lost are damaged");
    return EP_OK;
}

/* The windows of the threads, from the state. Threads and sites are known. */
static ep_status
fill_window(loader *l)
{
    l->window = ep_calloc(l->thread_count, sizeof *l->window);
    if (l->window == NULL) {
        return EP_NOMEM;
    }
    const char *at = l->state + sizeof(ep_file_state), *end = at + l->state_bytes;
    while ((size_t)(end - at) >= sizeof(ep_file_thread_state)) {
        ep_file_thread_state head;
        memcpy(&head, at, sizeof head);
        at += sizeof head;
        uint64_t pairs = (uint64_t)head.count_count + head.depth;
        uint32_t small = head.thread_id != 0 ? small_thread_id(l, head.thread_id) : 0;
        if (pairs > (size_t)(end - at) / sizeof(ep_file_pair) || small >= l->thread_count ||
            (small == 0 && head.thread_id != 0)) {
            note(l->reader, "the counts of what was lost are damaged");
            break;
        }
        ep_window_thread *thread = &l->window[small];
        for (uint64_t i = 0; i < pairs; i++) {
            ep_file_pair pair;
            memcpy(&pair, at, sizeof pair);
            at += sizeof pair;
            if (i < head.count_count) {
                if (pair.first < EP_KIND_COUNT && pair.second <= COUNT_MAX) {
                    thread->lost[pair.first] = pair.second;
                }
                continue;
            }
            ep_open_stack *open = &thread->open;
            unsigned kind = (unsigned)pair.first & 63;
            if (ep_kinds[kind].family != EP_FAMILY_CALL || ep_kinds[kind].pairing != EP_PAIRING_OPENS) {
                continue;
            }
            if (!ep_grow((void **)&open->calls, &open->capacity, open->depth + 1, sizeof *open->calls)) {
                return EP_NOMEM;
            }
            open->calls[open->depth++] =
                (ep_open_call){.site_id = (uint32_t)pair.second,
                               .kind = (uint8_t)kind,
                               .before = pair.first >> 8 & 1};
        }
    }
    return EP_OK;
}

/* Threads that only the state knows get their small id before the window is made. */
static void
name_threads_of_state(loader *l)
{
    const char *at = l->state + sizeof(ep_file_state), *end = at + l->state_bytes;
    while ((size_t)(end - at) >= sizeof(ep_file_thread_state)) {
        ep_file_thread_state head;
        memcpy(&head, at, sizeof head);
        at += sizeof head;
        uint64_t bytes = ((uint64_t)head.count_count + head.depth) * sizeof(ep_file_pair);
        if (bytes > (size_t)(end - at)) {
            break;
        }
        (void)small_thread_id(l, head.thread_id);
        at += bytes;
    }
}

/* ---- All together ---------------------------------------------------------------------------- */

/* Between two instants lies a clock as clocks are. */
static bool
is_plausible(ep_anchor a, ep_anchor b)
{
    if (b.ticks <= a.ticks || b.ticks - a.ticks > SPAN_TICKS_MAX || b.monotonic_ns <= a.monotonic_ns ||
        (uint64_t)b.monotonic_ns - (uint64_t)a.monotonic_ns > (uint64_t)SPAN_NS_MAX) {
        return false;
    }
    double ns_a_tick = (double)(b.monotonic_ns - a.monotonic_ns) / (double)(b.ticks - a.ticks);
    return ns_a_tick >= NS_A_TICK_MIN && ns_a_tick <= NS_A_TICK_MAX;
}

/* Anchors whose slope to the start is what clocks have; the last one extends the first line. */
static ep_status
build_clock(loader *l, ep_clock_map *map)
{
    const ep_file_header *header = &l->header;
    const ep_anchor start = header->start;
    ep_status status = ep_clock_map_add(map, start);
    /* Finished: what the recorder's own trace takes, so that times are the same. */
    bool finished = l->reader->facts.phase == EP_FILE_FINISHED;
    const ep_anchor others[] = {header->birth, finished ? header->stop : header->beats[0],
                                header->beats[1]};
    for (size_t i = 0; i < (finished ? 2u : 3u) && status == EP_OK; i++) {
        if (is_plausible(start, others[i]) || is_plausible(others[i], start)) {
            status = ep_clock_map_add(map, others[i]);
        }
    }
    for (size_t i = 0; i < l->chunk_count && status == EP_OK; i++) {
        ep_anchor opened = l->chunks[i].header->opened;
        if (is_plausible(start, opened)) {
            status = ep_clock_map_add(map, opened);
        }
    }
    if (status != EP_OK) {
        return status;
    }
    ep_clock_map_finish(map);
    /* Two plausible anchors may make an implausible line with each other. */
    size_t kept = 1;
    for (size_t i = 1; i < map->count; i++) {
        if (is_plausible(map->anchors[kept - 1], map->anchors[i])) {
            map->anchors[kept++] = map->anchors[i];
        }
    }
    if (kept == 1) {
        map->anchors[kept++] = (ep_anchor){map->anchors[0].ticks + 1, map->anchors[0].monotonic_ns + 1};
    }
    map->count = kept;
    return EP_OK;
}

/* File ids in the columns become ids of this process. */
static void
translate(loader *l, ep_decoded *decoded)
{
    const id_table *names = &l->name_ids, *sites = &l->site_ids;
    ep_columns *c = &decoded->columns;
    const id_table *table[EP_KIND_COUNT];
    for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
        bool closes = ep_kinds[kind].family == EP_FAMILY_CALL &&
                      ep_kinds[kind].pairing == EP_PAIRING_CLOSES;
        table[kind] = closes ? names : sites;
    }
    for (size_t row = 0; row < c->count; row++) {
        const id_table *ids = table[c->kind[row]];
        uint32_t id = c->id[row];
        uint32_t mine = id < ids->count ? ids->ids[id] : 0;
        l->unknown_ids += mine == 0 && id != 0;
        c->id[row] = mine;
    }
    for (size_t i = 0; i < decoded->thread_count; i++) {
        ep_open_stack *open = &decoded->threads[i].open;
        for (size_t k = 0; k < open->depth; k++) {
            uint32_t id = open->calls[k].site_id;
            open->calls[k].site_id = id < sites->count ? sites->ids[id] : 0;
        }
    }
}

static ep_status
fill_recording(loader *l, const ep_clock_map *map, ep_recording *recording, ep_error *error)
{
    const ep_file_header *header = &l->header;
    *recording = (ep_recording){
        .kinds = header->kinds,
        .start = header->start,
        .start_realtime_ns = header->start_realtime_ns,
        .start_boottime_ns = header->start_boottime_ns,
        .frequency_hz = map->count > 1 ? ep_clock_map_frequency_hz(map) : 0,
        .step_ticks = header->step_ticks,
        .process_id = header->process_id,
        .deep_calls = header->deep_calls,
        .short_calls = header->short_calls,
        .functions_off = header->functions_off,
        .full_reason = (ep_full_reason)atomic_load_explicit(&header->full_reason, memory_order_relaxed),
        .unfinished = l->reader->facts.phase != EP_FILE_FINISHED,
    };
    if (recording->full_reason > EP_FULL_DISK) {
        recording->full_reason = EP_FULL_NOT;
    }
    recording->metadata = ep_calloc(header->metadata_bytes + 1, 1);
    if (recording->metadata == NULL) {
        return EP_NOMEM;
    }
    int64_t got = read_at(l->reader, EP_FILE_METADATA_OFFSET, recording->metadata, header->metadata_bytes);
    if (got < 0) {
        ep_recording_clear(recording);
        return refuse_io(error);
    }
    recording->metadata_bytes = (size_t)got;
    return EP_OK;
}

static void
clear_loader(loader *l)
{
    for (size_t i = 0; i < l->chunk_count; i++) {
        free(l->chunks[i].header);
    }
    for (size_t i = 0; i < l->text_count; i++) {
        free(l->texts[i]);
    }
    for (size_t i = 0; l->window != NULL && i < l->thread_count; i++) {
        free(l->window[i].open.calls);
    }
    free(l->window);
    free(l->chunks);
    free(l->texts);
    free(l->threads);
    free(l->thread_slots);
    free(l->strings);
    free(l->names);
    free(l->sites);
    free(l->name_ids.ids);
    free(l->site_ids.ids);
    free(l->state);
}

static ep_status
decode_all(loader *l, ep_recording *recording, ep_decoded *out, ep_error *error)
{
    ep_file_header *header = &l->header;
    bool finished = l->reader->facts.phase == EP_FILE_FINISHED;
    ep_clock_map map = {0};
    ep_chunk **chunks = ep_calloc(l->chunk_count, sizeof *chunks);
    ep_status status = chunks != NULL ? build_clock(l, &map) : EP_NOMEM;
    if (status == EP_OK) {
        status = fill_recording(l, &map, recording, error);
    }
    if (status != EP_OK) {
        ep_clock_map_free(&map);
        free(chunks);
        return status;
    }
    for (size_t i = 0; i < l->chunk_count; i++) {
        chunks[i] = &l->chunks[i];
    }
    for (size_t i = 0; i < l->thread_count; i++) {
        l->threads[i].id = (uint32_t)i;
    }
    ep_capture capture = {
        .kinds = header->kinds,
        .start = header->start,
        .stop = finished ? header->stop : (ep_anchor){.ticks = l->last_ticks},
        .start_realtime_ns = header->start_realtime_ns,
        .start_resident_bytes = header->start_resident_bytes,
        .stop_resident_bytes = finished ? header->stop_resident_bytes : -1,
        .full_ticks = recording->full_reason != EP_FULL_NOT ? header->full_ticks : UINT64_MAX,
        .full_reason = recording->full_reason,
        .chunks = chunks,
        .chunk_count = l->chunk_count,
        .threads = l->window,
        .thread_count = l->thread_count,
        .clock = map,
        .read_threads = l->threads,
    };
    uint32_t only = header->only_thread != 0 ? small_thread_id(l, header->only_thread) : 0;
    status = ep_decode(&capture, only, out);
    if (status == EP_OK) {
        out->read_threads = l->threads;
        l->threads = NULL;
        translate(l, out);
        if (l->unknown_ids > 0) {
            note(l->reader, "%zu events name a function or place that is not in the file", l->unknown_ids);
        }
        out->damaged_chunks += l->reader->facts.note_count;
    } else {
        ep_recording_clear(recording);
    }
    ep_clock_map_free(&map);
    free(chunks);
    return status;
}

static ep_status
load(loader *l, ep_recording *recording, ep_decoded *out, ep_error *error)
{
    ep_file_reader *reader = l->reader;
    reader->facts.note_count = 0;
    ep_status status = read_size(reader, error);
    status = status != EP_OK ? status : read_header(reader, error);
    if (status != EP_OK) {
        return status;
    }
    l->state = ep_calloc(EP_FILE_STATE_BYTES, 1);
    if (l->state == NULL ||
        !ep_grow((void **)&l->threads, &l->thread_capacity, 1, sizeof *l->threads)) {
        return EP_NOMEM;
    }
    l->thread_count = 1;
    status = read_state(l, error);
    if (status != EP_OK) {
        return status;
    }
    l->header = reader->header;
    bool finished = reader->facts.phase == EP_FILE_FINISHED;
    if (finished && l->header.stop.ticks - l->header.start.ticks > SPAN_TICKS_MAX) {
        return refuse(error, "its header is damaged (from tick %" PRIu64 " to %" PRIu64 ")",
                      l->header.start.ticks, l->header.stop.ticks);
    }
    if ((uint64_t)l->header.start.monotonic_ns > (uint64_t)INT64_MAX / 2 ||
        l->header.start.ticks > UINT64_MAX / 2) {
        return refuse(error, "its header is damaged (it starts at %" PRId64 " ns)",
                      l->header.start.monotonic_ns);
    }
    l->last_ticks = l->header.start.ticks;
    status = read_slots(l, finished ? l->header.stop.ticks : UINT64_MAX);
    if (status == EP_IO) {
        return refuse_io(error);
    }
    if (status != EP_OK) {
        return status;
    }
    read_texts(l);
    name_threads_of_state(l);
    status = map_ids(l);
    status = status != EP_OK ? status : fill_window(l);
    return status != EP_OK ? status : decode_all(l, recording, out, error);
}

ep_status
ep_file_load(ep_file_reader *reader, ep_recording *recording, ep_decoded *out, ep_error *error)
{
    ep_status status = EP_OK;
    for (int attempt = 0; attempt < TRIES; attempt++) {
        loader l = {.reader = reader};
        status = load(&l, recording, out, error);
        uint64_t dropped = l.dropped_sequence;
        clear_loader(&l);
        if (status != EP_OK || !reader->facts.writer_lives) {
            break;
        }
        /* A ring that dropped a chunk meanwhile: it would be neither in the events nor in the loss. */
        loader now = {.reader = reader, .state = ep_calloc(EP_FILE_STATE_BYTES, 1)};
        status = now.state != NULL ? read_header(reader, error) : EP_NOMEM;
        status = status != EP_OK ? status : read_state(&now, error);
        free(now.state);
        if (status == EP_OK && now.dropped_sequence == dropped) {
            break;
        }
        if (status == EP_OK && attempt == TRIES - 1) {
            note(reader, "the program records faster than this can be read: some events are missing");
            break;
        }
        ep_decoded_clear(out);
        ep_recording_clear(recording);
        if (status != EP_OK) {
            break;
        }
    }
    return status;
}

ep_status
ep_file_describe(ep_file_reader *reader, ep_recording *recording, ep_error *error)
{
    loader l = {.reader = reader, .header = reader->header};
    ep_clock_map map = {0};
    ep_status status = build_clock(&l, &map);
    status = status != EP_OK ? status : fill_recording(&l, &map, recording, error);
    ep_clock_map_free(&map);
    return status;
}
