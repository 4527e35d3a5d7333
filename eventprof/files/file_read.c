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

#include "file_kinds.h"
#include "file_read.h"
#include "memory.h"

/* No recording lasts longer, and no clock is slower or faster: so that no product overflows. */
#define SPAN_TICKS_MAX (UINT64_C(1) << 53)
#define SPAN_NS_MAX (INT64_C(1) << 53)
#define NS_A_TICK_MAX 1000.0
#define NS_A_TICK_MIN 0.001
#define BLOCK_BYTES_MAX (UINT64_C(1) << 48)
#define COUNT_MAX (UINT64_C(1) << 52)
#define THREADS_MAX (UINT32_C(1) << 20)
#define TRIES 64
/* Slots without anything in a row, after which the file system is asked where there is more: a file
 * that claims a petabyte must not take its time. No writer leaves as many. */
#define EMPTY_SLOTS 256
/* Texts that found no room leave gaps in the ids. */
#define GAP_MAX 65536

struct ep_file_reader {
    int descriptor;
    uint64_t bytes;           /* of the file, when last looked at */
    ep_file_header header;
    ep_file_facts facts;
    ep_record_check *check;   /* to be filled; NULL: not wanted */
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
    uint32_t task;    /* 1 + string; 0: none */
    bool known;
} text_site;

typedef struct found_slot {
    uint64_t sequence, offset;
    size_t bytes;
} found_slot;

typedef struct loader {
    ep_file_reader *reader;
    bool last_try;                      /* what the writer takes away meanwhile is left out */
    bool outrun;                        /* it did: once more from the start */
    ep_file_header header;              /* as of this load */
    char *state;                        /* EP_FILE_STATE_LIMIT */
    uint64_t state_bytes;
    uint64_t dropped_sequence;
    found_slot *event_slots, *text_slots;
    size_t event_slot_count, event_slot_capacity, text_slot_count, text_slot_capacity;
    ep_chunk *chunks;
    size_t chunk_count, chunk_capacity;
    void **texts;                       /* text slots, whole */
    size_t text_count, text_capacity;
    uint64_t text_bytes;                /* of all of them */
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
    size_t window_count;
    uint32_t only_thread;               /* small; 0: all */
    size_t unknown_ids;
    ep_record_shape shape;
    uint64_t unknown_events;            /* of kinds that are not known here */
    ep_kind_set unknown_kinds;
} loader;

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
        return ep_fail_os(error, errno);
    }
    reader->bytes = stat.st_size > 0 ? (uint64_t)stat.st_size : 0;
    reader->facts.bytes = reader->bytes;
    return EP_OK;
}

/* False: no recording begins there. So that no sum of ticks or ns overflows later. */
static bool
is_plausible_start(const ep_file_header *header, uint32_t phase)
{
    return (uint64_t)header->start.monotonic_ns <= (uint64_t)INT64_MAX / 2 &&
           header->start.ticks <= UINT64_MAX / 4 &&
           (phase != EP_FILE_FINISHED || header->stop.ticks - header->start.ticks <= SPAN_TICKS_MAX);
}

#define SLOT_UNIT_MAX (UINT32_C(1) << 16)

static bool
is_slot_unit(const ep_file_header *header)
{
    uint32_t unit = header->slot_bytes;
    return header->major == 1 ? unit == EP_CHUNK_BYTES
                              : unit >= EP_CHUNK_BYTES_MIN && unit <= SLOT_UNIT_MAX && !(unit & (unit - 1));
}

static bool
is_plausible_head(const ep_file_header *header)
{
    return header->header_bytes >= sizeof *header && header->head_bytes % header->slot_bytes == 0 &&
           header->head_bytes >= EP_FILE_METADATA_OFFSET &&
           header->head_bytes <= EP_FILE_METADATA_OFFSET + EP_FILE_METADATA_LIMIT + SLOT_UNIT_MAX;
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
    if (header->major > EP_FILE_MAJOR) {
        return ep_fail(error, EP_FORMAT,
                       "version %u.%u of the log format; this eventprof reads up to %d: take a newer one",
                       header->major, header->minor, EP_FILE_MAJOR);
    }
    uint32_t phase = atomic_load_explicit(&header->phase, memory_order_relaxed);
    size_t offset = header->major == 0 ? offsetof(ep_file_header, major)
                    : header->header_bytes < EP_FILE_FIRST_HEADER_BYTES
                        ? offsetof(ep_file_header, header_bytes)
                    : !is_slot_unit(header) ? offsetof(ep_file_header, slot_bytes)
                    : header->major > 1 && !is_plausible_head(header)
                        ? offsetof(ep_file_header, head_bytes)
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
    /* It holds the lock as long as it lives. */
    if (flock(reader->descriptor, LOCK_SH | LOCK_NB) != 0) {
        return errno == EWOULDBLOCK;
    }
    (void)flock(reader->descriptor, LOCK_UN);
    return false;
}

/* Copies words of the header, and a zero; of damaged ones nothing. `to` is of `bytes` + 1.
 * Returns: whether they are whole. */
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

static ep_status
read_header(ep_file_reader *reader, ep_error *error)
{
    ep_file_header *header = &reader->header;
    bool written = has_writer(reader);    /* asked first: without one, what is read is the last of it */
    int64_t got;
    uint32_t phase, before = EP_FILE_NEW;
    for (;;) {
        got = read_at(reader, 0, header, sizeof *header);
        if (got < 0) {
            return ep_fail_os(error, errno);
        }
        phase = (size_t)got == sizeof *header
                    ? atomic_load_explicit(&header->phase, memory_order_relaxed)
                    : EP_FILE_NEW;
        if (phase == before || phase == EP_FILE_NEW) {
            break;
        }
        before = phase;    /* it may have come to this between two bytes: what goes with it is there now */
    }
    ep_status status = check_header(header, got, error);
    if (status != EP_OK) {
        return status;
    }
    if (header->header_bytes < sizeof *header) {
        /* What this version did not have yet is 0. */
        memset((char *)header + header->header_bytes, 0, sizeof *header - header->header_bytes);
    }
    if (header->major == 1) {
        header->head_bytes = EP_CHUNK_BYTES;
        for (uint32_t i = 0; i < 2; i++) {
            atomic_init(&header->state_offset[i], EP_FILE_1_STATE_OFFSET(i));
            atomic_init(&header->state_room[i], EP_FILE_1_STATE_BYTES);
        }
    }
    ep_file_facts *facts = &reader->facts;
    facts->major = header->major;
    facts->minor = header->minor;
    facts->phase = (ep_file_phase)phase;
    facts->counter = header->clock_mode == EP_CLOCK_COUNTER;
    facts->only_thread = header->only_thread;
    facts->parent_process_id = header->parent_process_id;
    facts->texts_lost = atomic_load_explicit(&header->texts_lost, memory_order_relaxed);
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
    if (id == 0 || id > UINT32_MAX) {
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
    if (l->thread_count > THREADS_MAX ||
        !ep_grow((void **)&l->threads, &l->thread_capacity, l->thread_count + 1, sizeof *l->threads)) {
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
    const uint64_t *huge = NULL;    /* an ESCAPE of a size that no block has: of a request that failed */
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
            atomic_store_explicit(&header->shared, 1, memory_order_relaxed);
        } else if (kind == EP_KIND_ESCAPE) {
            uint32_t what = EP_WORD0_PAYLOAD(*at);
            if (what >= EP_ESCAPE_COUNT || (what == EP_ESCAPE_SIZE && at[1] > INT64_MAX) ||
                (what == EP_ESCAPE_SITE && at[1] > EP_PAYLOAD_MAX) ||
                (what == EP_ESCAPE_WITHIN && at[1] >> EP_DOMAIN_COUNT != 0)) {
                break;
            }
            huge = what == EP_ESCAPE_SIZE ? at[1] > BLOCK_BYTES_MAX ? at : NULL : huge;
        } else if (huge != NULL && info->family == EP_FAMILY_ALLOC && info->pairing == EP_PAIRING_OPENS) {
            at = (uint64_t *)huge;
            break;
        } else if (ticks >= start && ticks <= stop_ticks) {
            if (ticks - start > SPAN_TICKS_MAX) {
                break;
            }
            last = ticks > last ? ticks : last;
        }
        huge = info->family == EP_FAMILY_ALLOC ? NULL : huge;
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
read_live(const loader *l, uint64_t offset, size_t bytes, ep_chunk_header *chunk, size_t *words)
{
    ep_chunk_header *again = ep_calloc(bytes, 1);
    if (again == NULL) {
        return EP_NOMEM;
    }
    int64_t got = read_at(l->reader, offset, again, bytes);
    if (got < (int64_t)sizeof *again || again->sequence != chunk->sequence) {
        *words = 0;    /* another chunk by now: not this one's records */
    } else {
        const uint64_t *before = (uint64_t *)(chunk + 1), *after = (uint64_t *)(again + 1);
        size_t at = 0, limit = ((size_t)got - sizeof *again) / 8;
        limit = limit < *words ? limit : *words;
        while (at < limit && before[at] != 0 && before[at] == after[at]) {
            size_t length = ep_record_words(&l->shape, before[at]);
            /* The whole record: it may have been taken back meanwhile, and another begun there. */
            if (length == 0 || at + length > limit ||
                memcmp(before + at, after + at, length * 8) != 0) {
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

/* A writer that lives may have given the slot to another chunk while we read: its header is written
 * before its records are. */
static bool
is_still(const ep_file_reader *reader, const found_slot *found)
{
    ep_chunk_header now;
    return !reader->facts.writer_lives ||
           (read_at(reader, found->offset, &now, sizeof now) == sizeof now &&
            now.sequence == found->sequence);
}

/* Whether the file is as long as its writer left it; a finished one may end inside of its last slot. */
static bool
is_whole(const ep_file_reader *reader)
{
    const ep_file_header *header = &reader->header;
    uint64_t units = atomic_load_explicit(&header->slots, memory_order_relaxed);
    return header->major > 1 && units <= UINT64_MAX / header->slot_bytes &&
           reader->bytes >= units * header->slot_bytes;
}

/* The chunk with its records as this version has them, `growth` words longer. *words: how many there are, and
 * then are; *read: how many of them could be read. Returns: in place of `chunk`, which is taken over; NULL: no
 * memory. */
static ep_chunk_header *
translate_chunk(loader *l, ep_chunk_header *chunk, size_t growth, uint64_t stop_ticks, size_t *words,
                size_t *read)
{
    ep_chunk_header *to = chunk;
    if (growth != 0) {
        to = ep_calloc(sizeof *to + (*words + growth + 1) * 8, 1);
        if (to == NULL) {
            free(chunk);
            return NULL;
        }
        memcpy(to, chunk, sizeof *to);
    }
    ep_translation translation = {
        .shape = &l->shape,
        .asked = ep_file_kinds(&l->header),
        .high = chunk->opened.ticks >> 32 << 32,
        .start_ticks = l->header.start.ticks,
        .stop_ticks = stop_ticks,
    };
    ep_translate_records(&translation, (uint64_t *)(chunk + 1), *words, (uint64_t *)(to + 1));
    l->unknown_events += translation.unknown_events;
    l->unknown_kinds |= translation.unknown_kinds;
    *words = translation.written;
    *read = translation.read;
    if (to != chunk) {
        free(chunk);
    }
    return to;
}

static ep_status
add_chunk(loader *l, const found_slot *found, uint64_t stop_ticks)
{
    ep_file_reader *reader = l->reader;
    const uint64_t offset = found->offset;
    ep_chunk_header *chunk = ep_calloc(found->bytes, 1);
    if (chunk == NULL ||
        !ep_grow((void **)&l->chunks, &l->chunk_capacity, l->chunk_count + 1, sizeof *l->chunks)) {
        free(chunk);
        return EP_NOMEM;
    }
    int64_t got = read_at(reader, offset, chunk, found->bytes);
    if (got < (int64_t)sizeof *chunk) {
        free(chunk);
        return got < 0 ? EP_IO : EP_OK;
    }
    bool sealed = atomic_load_explicit(&chunk->state, memory_order_relaxed) == EP_CHUNK_SEALED;
    size_t words = ((size_t)got - sizeof *chunk) / 8, claimed = chunk->used_words;
    if (sealed) {
        words = claimed < words ? claimed : words;
    } else if (reader->facts.writer_lives) {
        ep_status status = read_live(l, offset, found->bytes, chunk, &words);
        if (status != EP_OK) {
            free(chunk);
            return status;
        }
    }
    if (chunk->sequence != found->sequence || !is_still(reader, found)) {
        free(chunk);
        l->outrun = true;
        return EP_OK;
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
    const size_t there = words;
    size_t read = words, growth = 0;
    if (l->shape.differs) {
        growth = ep_translation_growth(&l->shape, (uint64_t *)(chunk + 1), words);
        chunk = translate_chunk(l, chunk, growth, stop_ticks, &words, &read);
        if (chunk == NULL) {
            return EP_NOMEM;
        }
    }
    size_t whole = check_records(l, chunk, words, stop_ticks);
    bool all = whole == words && read == there;
    if (!right_sum || (sealed && !all)) {
        note(reader, "chunk at offset %" PRIu64 ": damaged; %zu of %zu bytes of records were read",
             offset, (whole == words ? read : whole) * 8,
             claimed > EP_CHUNK_WORDS_OF(found->bytes) ? (size_t)EP_CHUNK_WORDS_OF(found->bytes) * 8
                                                       : claimed * 8);
    } else if (!sealed && (uint64_t)got < found->bytes && all && !is_whole(reader)) {
        note(reader, "chunk at offset %" PRIu64 ": the file ends in it, at byte %" PRIu64, offset,
             offset + (uint64_t)got);
    }
    atomic_store_explicit(&chunk->state, EP_CHUNK_SEALED, memory_order_relaxed);
    chunk->bytes = (uint32_t)(found->bytes + growth * 8);
    /* Most of a killed program's last chunks are empty. */
    ep_chunk_header *fitting = realloc(chunk, sizeof *chunk + (whole + 2) * 8);
    chunk = fitting != NULL ? fitting : chunk;
    l->chunks[l->chunk_count++] = (ep_chunk){.header = chunk};
    return EP_OK;
}

static int
by_sequence(const void *a, const void *b)
{
    const found_slot *x = a, *y = b;
    return (x->sequence > y->sequence) - (x->sequence < y->sequence);
}

static ep_status
add_text_slot(loader *l, const found_slot *found)
{
    ep_chunk_header *texts = ep_calloc(found->bytes, 1);
    if (texts == NULL || !ep_grow((void **)&l->texts, &l->text_capacity, l->text_count + 1,
                                  sizeof *l->texts)) {
        free(texts);
        return EP_NOMEM;
    }
    if (read_at(l->reader, found->offset, texts, found->bytes) < 0) {
        free(texts);
        return EP_IO;
    }
    if (atomic_load_explicit(&texts->state, memory_order_relaxed) == EP_CHUNK_SEALED &&
        (texts->used_words > EP_CHUNK_WORDS_OF(found->bytes) ||
         texts->sum != ep_sum64(texts + 1, texts->used_words * 8))) {
        note(l->reader, "names at offset %" PRIu64 ": damaged", found->offset);
    }
    texts->bytes = (uint32_t)found->bytes;
    l->text_bytes += found->bytes;
    l->texts[l->text_count++] = texts;
    return EP_OK;
}

/* The first place from `offset` on at which there may be anything, in steps of the unit. */
static uint64_t
skip_hole(const ep_file_reader *reader, uint64_t offset)
{
    off_t data = lseek(reader->descriptor, (off_t)offset, SEEK_DATA);
    if (data < 0) {
        return errno == ENXIO ? reader->bytes : offset;
    }
    uint64_t found = (uint64_t)data / reader->header.slot_bytes * reader->header.slot_bytes;
    return found > offset ? found : offset;
}

static bool
add_slot(found_slot **list, size_t *count, size_t *capacity, uint64_t sequence, uint64_t offset,
         size_t bytes)
{
    if (!ep_grow((void **)list, capacity, *count + 1, sizeof **list)) {
        return false;
    }
    (*list)[(*count)++] = (found_slot){sequence, offset, bytes};
    return true;
}

/* The length of the slot that begins with this header; 0: none does. Of version 1, all have the same. */
static size_t
slot_bytes_of(const ep_file_reader *reader, const ep_chunk_header *header)
{
    if (reader->header.major == 1) {
        return EP_CHUNK_BYTES;
    }
    bool known = header->magic == EP_CHUNK_MAGIC || header->magic == EP_FILE_TEXT_MAGIC ||
                 header->magic == EP_FILE_STATE_MAGIC;
    return known && header->bytes > 0 && header->bytes <= EP_CHUNK_BYTES &&
                   header->bytes % reader->header.slot_bytes == 0
               ? header->bytes
               : 0;
}

/* Which slots hold texts, and which events of chunks up to `last_sequence`; in order of sequence. */
static ep_status
list_slots(loader *l, uint64_t last_sequence)
{
    ep_file_reader *reader = l->reader;
    ep_file_facts *facts = &reader->facts;
    size_t empty = 0, bytes;
    l->event_slot_count = l->text_slot_count = 0;
    facts->other_slots = 0;
    for (uint64_t at = reader->header.head_bytes; at < reader->bytes; at += bytes) {
        if (empty == EMPTY_SLOTS) {
            uint64_t next = skip_hole(reader, at);
            facts->other_slots += next != at;
            at = next;
            empty = 0;
            if (at >= reader->bytes) {
                break;
            }
        }
        ep_chunk_header header = {0};
        int64_t got = read_at(reader, at, &header, sizeof header);
        if (got < 0) {
            return EP_IO;
        }
        bytes = slot_bytes_of(reader, &header);
        bool whole = bytes > 0 && (size_t)got == sizeof header &&
                     atomic_load_explicit(&header.state, memory_order_relaxed) != EP_CHUNK_FREE;
        bool room = true;
        if (whole && header.magic == EP_FILE_TEXT_MAGIC) {
            room = add_slot(&l->text_slots, &l->text_slot_count, &l->text_slot_capacity, header.sequence,
                            at, bytes);
        } else if (whole && header.magic == EP_CHUNK_MAGIC && header.sequence <= last_sequence &&
                   atomic_load_explicit(&header.wanted, memory_order_relaxed) != 0 &&
                   header.sequence != l->dropped_sequence) {
            room = add_slot(&l->event_slots, &l->event_slot_count, &l->event_slot_capacity,
                            header.sequence, at, bytes);
        } else {
            facts->other_slots += header.magic != EP_FILE_STATE_MAGIC;
        }
        if (!room) {
            return EP_NOMEM;
        }
        empty = header.magic == 0 ? empty + 1 : 0;
        /* What is no slot is damaged, or was never used: the next may begin at any page. */
        bytes = bytes > 0 ? bytes : reader->header.slot_bytes;
    }
    if (l->event_slot_count > 1) {
        qsort(l->event_slots, l->event_slot_count, sizeof *l->event_slots, by_sequence);
    }
    if (l->text_slot_count > 1) {
        qsort(l->text_slots, l->text_slot_count, sizeof *l->text_slots, by_sequence);
    }
    facts->event_slots = l->event_slot_count;
    facts->text_slots = l->text_slot_count;
    return EP_OK;
}

/* The chunk that the state of this moment says was dropped last. */
static uint64_t
read_dropped_sequence(const ep_file_reader *reader)
{
    ep_file_header header;
    ep_file_state state;
    if (read_at(reader, 0, &header, sizeof header) != sizeof header) {
        return UINT64_MAX;
    }
    uint32_t which = atomic_load_explicit(&header.state, memory_order_relaxed) & 1;
    uint64_t offset = header.major == 1
                          ? EP_FILE_1_STATE_OFFSET(which)
                          : atomic_load_explicit(&header.state_offset[which], memory_order_relaxed);
    if (offset > INT64_MAX || read_at(reader, offset, &state, sizeof state) != sizeof state) {
        return UINT64_MAX;
    }
    return state.sum == 0 ? UINT64_MAX : state.dropped_sequence;
}

/* The chunks that there are at one instant, of a file whose writer goes on. All that were opened up
 * to the last that a first look saw are there at the second look; what a thread wrote into the ones
 * before is then whole. A chunk that was dropped since the state was read is in neither. */
static ep_status
list_slots_of_living(loader *l, ep_error *error)
{
    ep_status status = list_slots(l, UINT64_MAX);
    if (status == EP_OK && l->event_slot_count > 0) {
        uint64_t last = l->event_slots[l->event_slot_count - 1].sequence;
        status = read_size(l->reader, error);
        status = status != EP_OK ? status : list_slots(l, last);
    }
    l->outrun = read_dropped_sequence(l->reader) != l->dropped_sequence;
    return status;
}

/* The oldest events first, because a ring takes those away first; the texts last: what a record
 * refers to was written before it. */
static ep_status
read_slots(loader *l, uint64_t stop_ticks, ep_error *error)
{
    ep_file_reader *reader = l->reader;
    ep_status status = reader->facts.writer_lives ? list_slots_of_living(l, error)
                                                  : list_slots(l, UINT64_MAX);
    for (size_t i = 0; i < l->event_slot_count && status == EP_OK; i++) {
        if (l->outrun && !l->last_try) {
            return EP_OK;
        }
        status = add_chunk(l, &l->event_slots[i], stop_ticks);
    }
    if (status == EP_OK && reader->facts.writer_lives) {
        status = read_size(reader, error);
        status = status != EP_OK ? status : list_slots(l, 0);
        reader->facts.event_slots = l->chunk_count;
    }
    for (size_t i = 0; i < l->text_slot_count && status == EP_OK; i++) {
        status = add_text_slot(l, &l->text_slots[i]);
    }
    return status;
}

/* ---- Texts ----------------------------------------------------------------------------------- */

/* Makes index `id` of a table; ids are dense, so that one beyond all that the texts have room for is
 * damage. */
static bool
reach_id(const loader *l, void **table, size_t *count, size_t *capacity, uint32_t id, size_t size)
{
    if (id > l->text_bytes / 16 + GAP_MAX ||
        !ep_grow(table, capacity, (size_t)id + 1, size)) {
        return false;
    }
    *count = id >= *count ? (size_t)id + 1 : *count;
    return true;
}

/* Length of the character there; 0: there is none. UTF-8, with surrogates as three bytes. */
static size_t
character_bytes(const unsigned char *at, size_t left)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t bytes = at[0] < 0x80 ? 1 : at[0] >> 5 == 6 ? 2
                                  : at[0] >> 4 == 14  ? 3
                                  : at[0] >> 3 == 30  ? 4
                                                      : 0;
    if (bytes < 2 || bytes > left) {
        return bytes < 2 ? bytes : 0;
    }
    uint32_t code = at[0] & (0x7Fu >> bytes);
    for (size_t i = 1; i < bytes; i++) {
        if (at[i] >> 6 != 2) {
            return 0;
        }
        code = code << 6 | (at[i] & 63);
    }
    return code >= least[bytes] && code <= 0x10FFFF ? bytes : 0;
}

/* Text of a file becomes text: a long one was cut anywhere, and a damaged one is anything. */
static void
mend_text(char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        size_t length = character_bytes((unsigned char *)text + at, bytes - at);
        if (length == 0) {
            text[at] = '?';
            length = 1;
        }
        at += length;
    }
}

static void
read_text_record(loader *l, uint32_t type, uint32_t *fields, size_t bytes)
{
    uint32_t id = fields[0];
    char *tail;
    switch (type) {
        case EP_FILE_TEXT_STRING:
            tail = (char *)(fields + 2);
            if (bytes >= 8 && fields[1] <= bytes - 8 &&
                reach_id(l, (void **)&l->strings, &l->string_count, &l->string_capacity, id,
                         sizeof *l->strings)) {
                mend_text(tail, fields[1]);
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
                                           (int32_t)fields[4], bytes >= 24 ? fields[5] : 0, true};
            }
            break;
        case EP_FILE_TEXT_THREAD:
            tail = (char *)(fields + 4);
            if (bytes >= 16 && fields[1] <= bytes - 16) {
                uint32_t small = small_thread_id(l, id);
                ep_thread *thread = &l->threads[small];
                if (small != 0) {
                    thread->native_id = fields[2] | (uint64_t)fields[3] << 32;
                    if (fields[1] > 0 && fields[1] < EP_THREAD_NAME_BYTES) {
                        mend_text(tail, fields[1]);
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
        ep_chunk_header *header = l->texts[i];
        uint64_t *at = (uint64_t *)(header + 1), *end = at + ep_chunk_words(header);
        while (at < end && *at != 0) {
            uint64_t words = (uint32_t)*at;
            if (words < 2 || words > (uint64_t)(end - at)) {
                note(l->reader, "names: a record of %" PRIu64 " words cannot be", words);
                break;
            }
            read_text_record(l, (uint32_t)(*at >> 32), (uint32_t *)(at + 1), (words - 1) * 8);
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
            .task = from->task != 0 ? ep_string_add(string_of(l, from->task - 1)) + 1 : 0,
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
        uint64_t offset = atomic_load_explicit(&reader->header.state_offset[which], memory_order_relaxed);
        uint64_t room = atomic_load_explicit(&reader->header.state_room[which], memory_order_relaxed);
        if (offset == 0) {
            return EP_OK;
        }
        if (offset > INT64_MAX || room > EP_FILE_STATE_LIMIT) {
            break;
        }
        ep_file_state state;
        int64_t got = read_at(reader, offset, l->state, (size_t)room);
        if (got < 0) {
            return ep_fail_os(error, errno);
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
    l->window_count = l->thread_count;
    l->window = ep_calloc(l->window_count, sizeof *l->window);
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
        if (pairs > (size_t)(end - at) / sizeof(ep_file_pair) || small >= l->window_count ||
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
                if (pair.first < EP_KIND_COUNT && ep_kinds_has(ep_kinds_of_events, (unsigned)pair.first) &&
                    pair.second <= COUNT_MAX) {
                    thread->lost[pair.first] = pair.second;
                }
                continue;
            }
            ep_open_stack *open = &thread->open;
            unsigned kind = (unsigned)pair.first & (EP_KIND_COUNT - 1);
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

static int
by_id(const void *a, const void *b)
{
    const ep_thread *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* Small ids in the order of the file's, so that rows are in the order of the program's own trace:
 * until now they are in order of sight. No small id is given after this but for a known id. */
static ep_status
sort_threads(loader *l)
{
    bool sorted = true;
    for (size_t i = 2; i < l->thread_count; i++) {
        sorted = sorted && l->threads[i].id > l->threads[i - 1].id;
    }
    if (sorted) {
        return EP_OK;
    }
    uint32_t *ids = ep_calloc(l->thread_count, sizeof *ids);
    if (ids == NULL) {
        return EP_NOMEM;
    }
    for (size_t i = 0; i < l->thread_count; i++) {
        ids[i] = l->threads[i].id;
    }
    qsort(&l->threads[1], l->thread_count - 1, sizeof *l->threads, by_id);
    for (size_t i = 1; i < l->thread_count; i++) {
        size_t slot = l->threads[i].id * UINT64_C(0x9E3779B97F4A7C15) >> 32;
        while (l->thread_slots[slot & l->thread_mask] >> SMALL_ID_BITS != l->threads[i].id) {
            slot++;
        }
        l->thread_slots[slot & l->thread_mask] = (uint64_t)l->threads[i].id << SMALL_ID_BITS | i;
    }
    l->only_thread = small_thread_id(l, ids[l->only_thread]);
    for (size_t i = 0; i < l->chunk_count; i++) {
        ep_chunk_header *header = l->chunks[i].header;
        header->thread_id = small_thread_id(l, ids[header->thread_id]);
        uint64_t *at = (uint64_t *)(header + 1), *end = at + header->used_words;
        bool shared = atomic_load_explicit(&header->shared, memory_order_relaxed);
        while (shared && at < end) {
            if (EP_WORD0_KIND(*at) == EP_KIND_THREAD) {
                at[1] = small_thread_id(l, ids[at[1]]);
            }
            at += ep_kinds[EP_WORD0_KIND(*at)].words;
        }
    }
    free(ids);
    return EP_OK;
}

/* Threads that only the state or the header knows get their small id before the window is made. */
static void
name_threads_of_state(loader *l)
{
    l->only_thread = small_thread_id(l, l->header.only_thread);
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
    /* Finished: what the recorder's own trace takes, so that times are the same. Else the beat that
     * counts; the other one may be half written. */
    bool finished = l->reader->facts.phase == EP_FILE_FINISHED;
    uint32_t beat = atomic_load_explicit(&header->beat, memory_order_relaxed) & 1;
    const ep_anchor others[] = {header->birth, finished ? header->stop : header->beats[beat]};
    for (size_t i = 0; i < 2 && status == EP_OK; i++) {
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
        table[kind] = ep_kind_has_name((unsigned)kind) ? names : sites;
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
        .kinds = ep_file_kinds(header) & (ep_kinds_of_events | EP_KIND_BIT(0)),
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
        .limits = atomic_load_explicit(&header->limits, memory_order_relaxed),
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
        return ep_fail_os(error, errno);
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
    for (size_t i = 0; l->window != NULL && i < l->window_count; i++) {
        free(l->window[i].open.calls);
    }
    free(l->window);
    free(l->event_slots);
    free(l->text_slots);
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
        .kinds = ep_file_kinds(header) & (ep_kinds_of_events | EP_KIND_BIT(0)),
        .start = header->start,
        .stop = finished ? header->stop : (ep_anchor){.ticks = l->last_ticks},
        .start_realtime_ns = header->start_realtime_ns,
        .start_resident_bytes = header->start_resident_bytes,
        .stop_resident_bytes = finished ? header->stop_resident_bytes : -1,
        .full_ticks = recording->full_reason == EP_FULL_NOT          ? UINT64_MAX
                      : header->full_ticks + 1 < header->start.ticks ? header->start.ticks
                                                                     : header->full_ticks,
        .full_reason = recording->full_reason,
        .chunks = chunks,
        .chunk_count = l->chunk_count,
        .threads = l->window,
        .thread_count = l->window_count,
        .clock = map,
        .read_threads = l->threads,
    };
    status = ep_decode(&capture, l->only_thread, out);
    if (status == EP_OK && l->reader->check != NULL) {
        ep_check_records(&capture, l->only_thread, out, l->reader->check);
    }
    if (status == EP_OK) {
        out->read_threads = l->threads;
        l->threads = NULL;
        translate(l, out);
        if (l->unknown_ids > 0) {
            note(l->reader, "%zu events name a function or place that is not in the file", l->unknown_ids);
        }
        out->damaged_chunks += l->reader->facts.note_count;
        l->reader->facts.unknown_events = l->unknown_events;
        ep_unknown_words(header, l->unknown_kinds, l->reader->facts.unknown_words,
                         sizeof l->reader->facts.unknown_words);
    } else {
        ep_recording_clear(recording);
    }
    ep_clock_map_free(&map);
    free(chunks);
    return status;
}

/* A program that lives makes its file longer, and shorter, while we look. */
static void
note_lost_slots(ep_file_reader *reader)
{
    uint64_t slots = atomic_load_explicit(&reader->header.slots, memory_order_relaxed);
    uint64_t unit = reader->header.slot_bytes;
    if (!reader->facts.writer_lives && slots > 0 &&
        (slots > UINT64_MAX / unit || reader->bytes < slots * unit)) {
        note(reader, "the file ends at byte %" PRIu64 ", before the end of its %" PRIu64 " KiB",
             reader->bytes, slots > UINT64_MAX / unit ? UINT64_MAX : slots * (unit / 1024));
    }
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
    l->state = ep_calloc(EP_FILE_STATE_LIMIT, 1);
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
    l->shape = ep_record_shape_of(&l->header);
    note_lost_slots(reader);
    if (reader->facts.words_damaged) {
        note(reader, "words of its header are damaged, behind offset %zu: which hook saw calls",
             offsetof(ep_file_header, calls_from));
    }
    bool finished = reader->facts.phase == EP_FILE_FINISHED;
    l->last_ticks = l->header.start.ticks;
    status = read_slots(l, finished ? l->header.stop.ticks : UINT64_MAX, error);
    if (status == EP_IO) {
        return ep_fail_os(error, errno);
    }
    if (status != EP_OK || (l->outrun && !l->last_try)) {
        return status;
    }
    if (l->outrun) {
        note(reader, "the program records faster than this can be read: some events are missing");
    }
    read_texts(l);
    name_threads_of_state(l);
    status = sort_threads(l);
    status = status != EP_OK ? status : map_ids(l);
    status = status != EP_OK ? status : fill_window(l);
    return status != EP_OK ? status : decode_all(l, recording, out, error);
}

ep_status
ep_file_load(ep_file_reader *reader, ep_recording *recording, ep_decoded *out, ep_error *error)
{
    for (int attempt = 1;; attempt++) {
        loader l = {.reader = reader, .last_try = attempt == TRIES};
        ep_status status = load(&l, recording, out, error);
        bool again = status == EP_OK && l.outrun && !l.last_try;
        clear_loader(&l);
        if (!again) {
            return status;
        }
    }
}

void
ep_file_check_records(ep_file_reader *reader, ep_record_check *out)
{
    reader->check = out;
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
