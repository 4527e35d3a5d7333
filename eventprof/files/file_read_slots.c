/* The slots of a log file: lists them and checks their records. A running writer changes them meanwhile. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "file_read_parts.h"
#include "memory.h"

#define BLOCK_BYTES_MAX (UINT64_C(1) << 48)
/* After so many empty slots in a row, the file system is asked where data follow: reading a file that
 * claims a petabyte must not take long. No writer leaves so many. */
#define EMPTY_SLOTS 256

/* ---- Records --------------------------------------------------------------------------------- */

/* Kinds whose records need no check but that of their ticks. */
#define EP_KIND_IS(form, domain, pairing, group) ((form) != EP_FORM_CONTROL)
static const ep_kind_set plain_kinds =
#include "kind_set.def"
    ;

/* HOT, budget 2 ns a record. The position of the next record depends on the kind of this one, which
 * processors predict (see read_each() in decode_plain.c). Walks over records that need no look, up to the
 * last word: their ticks are at most `span` after the start. Returns: where it stopped. *last: the last
 * ticks so far. */
static uint64_t *
skip_plain(uint64_t *at, const uint64_t *end, uint64_t high, uint64_t start, uint64_t span, uint64_t *last)
{
    const uint64_t plain = (uint64_t)plain_kinds, two_words = (uint64_t)ep_kinds_of_two_words;
    const uint64_t *const begin = at;
    uint64_t last_since = 0;
    while (at + 1 < end) {
        unsigned kind = EP_WORD0_KIND(*at);
        uint64_t since = (high | EP_WORD0_TICKS(*at)) - start;
        if (kind > 63 || (plain >> kind & 1) == 0 || since > span) {
            break;
        }
        last_since = since > last_since ? since : last_since;
        at += 1;
        if ((two_words >> kind & 1) != 0) {
            EP_KEEP_BRANCH(at);
            at += 1;
        }
    }
    if (at != begin && start + last_since > *last) {
        *last = start + last_since;
    }
    return at;
}

/* Walks over the records of a chunk in memory: replaces thread ids by small ones, notes the last ticks of
 * the window, and ends the chunk before the first word that cannot begin a record. *stopped: there is such
 * a word, and it is not the end of what was written. Returns: words of complete records. */
static size_t
check_records(ep_loader *l, ep_chunk_header *header, size_t words, uint64_t stop_ticks, bool *stopped)
{
    uint64_t *const begin = (uint64_t *)(header + 1), *at = begin;
    uint64_t *const end = begin + words;
    const uint64_t start = l->header.start.ticks;
    uint64_t high = header->opened.ticks >> 32 << 32, last = l->last_ticks;
    const uint64_t *huge = NULL;    /* an ESCAPE of a size that no block can have: of a request that
                                     * failed */
    uint64_t span = stop_ticks < start ? 0 : stop_ticks - start;
    span = span < EP_SPAN_TICKS_MAX ? span : EP_SPAN_TICKS_MAX;
    for (;;) {
        if (huge == NULL && start <= stop_ticks) {
            at = skip_plain(at, end, high, start, span, &last);
        }
        if (at >= end || *at == 0) {
            break;
        }
        unsigned kind = EP_WORD0_KIND(*at);
        const ep_kind_info *info = &ep_kinds[kind];
        uint64_t ticks = high | EP_WORD0_TICKS(*at);
        if (info->name == NULL || at + info->words > end) {
            break;
        }
        if (kind == EP_KIND_SYNC) {
            high = at[1] >> 32 << 32;
        } else if (kind == EP_KIND_THREAD) {
            uint32_t small = ep_loader_thread_id(l, at[1]);
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
        } else if (huge != NULL && info->form == EP_FORM_ALLOC && info->pairing == EP_PAIRING_OPENS) {
            at = (uint64_t *)huge;
            break;
        } else if (ticks >= start && ticks <= stop_ticks) {
            if (ticks - start > EP_SPAN_TICKS_MAX) {
                break;
            }
            last = ticks > last ? ticks : last;
        }
        huge = info->form == EP_FORM_ALLOC ? NULL : huge;
        at += info->words;
    }
    l->last_ticks = last;
    size_t whole = (size_t)(at - begin);
    header->used_words = whole;
    *stopped = at < end && *at != 0;
    return whole;
}

/* Reads a chunk that its owner still writes, twice: records that both reads agree on, and that the first
 * read saw as published, are complete. */
static ep_status
read_live(const ep_loader *l, uint64_t offset, size_t bytes, ep_chunk_header *chunk, size_t *words)
{
    ep_chunk_header *again = ep_calloc(bytes, 1);
    if (again == NULL) {
        return EP_NOMEM;
    }
    /* Acquire; pairs with ep_log_publish(): what the second read sees of a record is not older than its
     * word 0 in the first read. */
    atomic_thread_fence(memory_order_acquire);
    int64_t got = ep_reader_read_at(l->reader, offset, again, bytes);
    if (got < (int64_t)sizeof *again || again->sequence != chunk->sequence) {
        *words = 0;    /* the slot has another chunk now, with other records */
    } else {
        const uint64_t *before = (uint64_t *)(chunk + 1), *after = (uint64_t *)(again + 1);
        size_t at = 0, limit = ((size_t)got - sizeof *again) / 8;
        limit = limit < *words ? limit : *words;
        while (at < limit && before[at] != 0 && before[at] == after[at]) {
            size_t length = ep_record_words(&l->shape, before[at]);
            /* Compares the whole record: it may have been removed meanwhile, and another one written
             * there. */
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

/* A running writer may have reused the slot for another chunk while it was read; then the header has
 * changed, because it is written before the records. */
static bool
is_still(const ep_file_reader *reader, const ep_found_slot *found)
{
    ep_chunk_header now;
    /* Acquire; pairs with the release of the new chunk's records: whoever read one sees the new header. */
    atomic_thread_fence(memory_order_acquire);
    return !reader->facts.writer_lives ||
           (ep_reader_read_at(reader, found->offset, &now, sizeof now) == sizeof now &&
            now.sequence == found->sequence);
}

/* Whether the file is as long as its writer left it; a finished one may end inside of its last slot. */
static bool
is_whole(const ep_file_reader *reader)
{
    const ep_file_header *header = &reader->header;
    uint64_t units = atomic_load_explicit(&header->slots, memory_order_relaxed);
    return units <= UINT64_MAX / header->slot_bytes &&
           reader->bytes >= units * header->slot_bytes;
}

/* Leaves out the records of a chunk whose kinds are unknown. notes: counts what is left out. *words:
 * the number of words, before and after; *read: how many of them could be read; *stopped: what follows them
 * is no record, and not the end of what was written. */
static void
translate_chunk(ep_loader *l, ep_chunk_header *chunk, uint64_t stop_ticks, bool notes, size_t *words,
                size_t *read, bool *stopped)
{
    uint64_t *records = (uint64_t *)(chunk + 1);
    ep_translation translation = {
        .shape = &l->shape,
        .asked = ep_file_kinds(&l->header),
        .high = chunk->opened.ticks >> 32 << 32,
        .start_ticks = l->header.start.ticks,
        .stop_ticks = stop_ticks,
    };
    ep_translate_records(&translation, records, *words);
    if (notes) {
        l->unknown_events += translation.unknown_events;
        l->unknown_kinds |= translation.unknown_kinds;
    }
    *stopped = translation.read < *words && records[translation.read] != 0;
    *words = translation.written;
    *read = translation.read;
}

static void
note_impossible_thread(ep_file_reader *reader, const ep_found_slot *found, const ep_chunk_header *chunk)
{
    ep_reader_note(reader, "chunk at offset %" PRIu64 ": of thread %" PRIu64 ", which cannot be",
                   found->offset, chunk->thread_id);
}

/* Reads a packed slot, whose records become those of a sealed chunk. *got: as of ep_reader_read_at(), of
 * the chunk; 0: it is damaged. Fails: EP_NOMEM. */
static ep_status
read_packed(ep_loader *l, const ep_found_slot *found, bool notes, ep_chunk_header *chunk, int64_t *got)
{
    if (l->packer == NULL && (l->packer = ep_chunk_packer_new()) != NULL) {
        ep_chunk_packer_use_kinds(l->packer, l->header.kind_table);
    }
    l->packed = l->packed != NULL ? l->packed : ep_calloc(EP_CHUNK_BYTES, 1);
    if (l->packer == NULL || l->packed == NULL) {
        return EP_NOMEM;
    }
    ep_chunk_header *packed = l->packed;
    int64_t there = ep_reader_read_at(l->reader, found->offset, packed, found->bytes);
    if (there < (int64_t)sizeof *packed) {
        *got = there;
        return EP_OK;
    }
    size_t room = EP_CHUNK_WORDS_OF(found->chunk_bytes);
    size_t words = packed->used_words < room ? packed->used_words : room;
    *got = (int64_t)(sizeof *chunk + words * 8);
    const char *why = "the file ends in it";
    ep_status status = EP_FORMAT;
    if (packed->packed_bytes <= (uint64_t)there - sizeof *packed) {
        status = ep_chunk_unpack(l->packer, (uint8_t *)(packed + 1), packed->packed_bytes,
                                 packed->opened.ticks, (uint64_t *)(chunk + 1), words, &why);
    }
    *chunk = *packed;
    chunk->magic = EP_CHUNK_MAGIC;
    atomic_store_explicit(&chunk->state, EP_CHUNK_SEALED, memory_order_relaxed);
    if (status == EP_FORMAT && notes && is_still(l->reader, found)) {
        ep_reader_note(l->reader, "chunk at offset %" PRIu64 ": %s; its %zu bytes of records are missing",
                       found->offset, why, words * 8);
    }
    if (status == EP_FORMAT) {
        *got = 0;
        return EP_OK;
    }
    return status;
}

ep_status
ep_loader_read_chunk(ep_loader *l, const ep_found_slot *found, uint64_t stop_ticks, bool notes,
                     ep_chunk_header *chunk, bool *out)
{
    ep_file_reader *reader = l->reader;
    const uint64_t offset = found->offset;
    *out = false;
    int64_t got;
    if (found->packed) {
        ep_status status = read_packed(l, found, notes, chunk, &got);
        if (status != EP_OK) {
            return status;
        }
    } else {
        got = ep_reader_read_at(reader, offset, chunk, found->bytes);
    }
    if (got < (int64_t)sizeof *chunk) {
        l->outrun = l->outrun || !is_still(reader, found);
        return got < 0 ? EP_IO : EP_OK;
    }
    bool sealed = atomic_load_explicit(&chunk->state, memory_order_relaxed) == EP_CHUNK_SEALED;
    size_t words = ((size_t)got - sizeof *chunk) / 8, claimed = chunk->used_words;
    if (sealed) {
        words = claimed < words ? claimed : words;
    } else if (reader->facts.writer_lives) {
        ep_status status = read_live(l, offset, found->bytes, chunk, &words);
        if (status != EP_OK) {
            return status;
        }
    }
    if (chunk->sequence != found->sequence || !is_still(reader, found)) {
        l->outrun = true;
        return EP_OK;
    }
    bool right_sum = !sealed || (words == claimed && chunk->sum == ep_sum64(chunk + 1, words * 8));
    uint32_t thread = ep_loader_thread_id(l, chunk->thread_id);
    if (thread == 0) {
        if (notes) {
            note_impossible_thread(reader, found, chunk);
        }
        return EP_OK;
    }
    chunk->thread_id = thread;
    const size_t there = words;
    size_t read = words;
    bool unreadable = false, stopped;
    if (l->shape.differs) {
        translate_chunk(l, chunk, stop_ticks, notes, &words, &read, &unreadable);
    }
    size_t whole = check_records(l, chunk, words, stop_ticks, &stopped);
    bool all = whole == words && read == there;
    size_t good = (whole == words ? read : whole) * 8;
    if (notes && (!right_sum || (sealed && !all))) {
        size_t room = EP_CHUNK_WORDS_OF(found->chunk_bytes);
        ep_reader_note(reader,
                       "chunk at offset %" PRIu64 ": damaged; %zu of %zu bytes of records were read",
                       offset, good, (claimed < room ? claimed : room) * 8);
    } else if (notes && !sealed && (uint64_t)got < found->bytes && (all || stopped || unreadable) &&
               !is_whole(reader)) {
        ep_reader_note(reader, "chunk at offset %" PRIu64 ": the file ends in it, at byte %" PRIu64, offset,
                       offset + (uint64_t)got);
    } else if (notes && !sealed && !reader->facts.writer_lives && (stopped || unreadable)) {
        /* Its owner did not come to say how many there are: it was killed, or has not ended yet. */
        ep_reader_note(reader,
                       "chunk at offset %" PRIu64 ": damaged; the first %zu bytes of records were read",
                       offset, good);
    }
    atomic_store_explicit(&chunk->state, EP_CHUNK_SEALED, memory_order_relaxed);
    chunk->bytes = (uint32_t)found->chunk_bytes;
    *out = true;
    return EP_OK;
}

/* Whether the header of a chunk is enough for now, so that a fold reads its records later. It is not enough
 *   - while the file is still written;
 *   - if threads share the chunk: only the records say which threads;
 *   - in a trace of one thread: chunks of other threads are never read later, so damage in them would not
 *     be noted. */
static bool
is_header_enough(const ep_loader *l, const ep_chunk_header *chunk)
{
    return l->streams && l->reader->facts.phase == EP_FILE_FINISHED && l->header.only_thread == 0 &&
           atomic_load_explicit(&chunk->state, memory_order_relaxed) == EP_CHUNK_SEALED &&
           !atomic_load_explicit(&chunk->shared, memory_order_relaxed);
}

static ep_status
add_chunk(ep_loader *l, const ep_found_slot *found, uint64_t stop_ticks)
{
    /* Two more words, because a decoder may read past the last one. */
    ep_chunk_header *chunk = ep_calloc(found->chunk_bytes + 16, 1);
    if (chunk == NULL ||
        !ep_grow((void **)&l->chunks, &l->chunk_capacity, l->chunk_count + 1, sizeof *l->chunks) ||
        !ep_grow((void **)&l->places, &l->place_capacity, l->chunk_count + 1, sizeof *l->places)) {
        free(chunk);
        return EP_NOMEM;
    }
    bool is_chunk = false, whole = true;
    ep_status status = EP_OK;
    if (l->streams && ep_reader_read_at(l->reader, found->offset, chunk, sizeof *chunk) == sizeof *chunk &&
        chunk->sequence == found->sequence && is_header_enough(l, chunk)) {
        uint32_t thread = ep_loader_thread_id(l, chunk->thread_id);
        if (thread == 0) {
            note_impossible_thread(l->reader, found, chunk);
        }
        chunk->thread_id = thread;
        chunk->bytes = (uint32_t)found->chunk_bytes;
        chunk->magic = EP_CHUNK_MAGIC;
        is_chunk = thread != 0;
        whole = false;
    } else {
        status = ep_loader_read_chunk(l, found, stop_ticks, true, chunk, &is_chunk);
    }
    if (status != EP_OK || !is_chunk) {
        free(chunk);
        return status;
    }
    /* The last chunks of a killed program are mostly empty. */
    size_t kept = l->streams ? 0 : chunk->used_words;
    ep_chunk_header *fitting = realloc(chunk, sizeof *chunk + (kept + 2) * 8);
    chunk = fitting != NULL ? fitting : chunk;
    l->places[l->chunk_count] = (ep_chunk_place){.slot = *found, .checked = whole};
    l->chunks[l->chunk_count++] = (ep_chunk){.header = chunk};
    return EP_OK;
}

static ep_status
add_text_slot(ep_loader *l, const ep_found_slot *found)
{
    ep_chunk_header *texts = ep_calloc(found->bytes, 1);
    if (texts == NULL || !ep_grow((void **)&l->texts, &l->text_capacity, l->text_count + 1,
                                  sizeof *l->texts)) {
        free(texts);
        return EP_NOMEM;
    }
    if (ep_reader_read_at(l->reader, found->offset, texts, found->bytes) < 0) {
        free(texts);
        return EP_IO;
    }
    if (atomic_load_explicit(&texts->state, memory_order_relaxed) == EP_CHUNK_SEALED &&
        (texts->used_words > EP_CHUNK_WORDS_OF(found->bytes) ||
         texts->sum != ep_sum64(texts + 1, texts->used_words * 8))) {
        ep_reader_note(l->reader, "names at offset %" PRIu64 ": damaged", found->offset);
    }
    texts->bytes = (uint32_t)found->bytes;
    l->text_bytes += found->bytes;
    l->texts[l->text_count++] = texts;
    return EP_OK;
}

/* ---- Slots ----------------------------------------------------------------------------------- */

static int
by_sequence(const void *a, const void *b)
{
    const ep_found_slot *x = a, *y = b;
    if (x->sequence != y->sequence) {
        return x->sequence > y->sequence ? 1 : -1;
    }
    if (x->packed != y->packed) {
        return x->packed ? -1 : 1;
    }
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Drops the second copy of chunks that the file has twice: its writer was killed after a packed slot became
 * valid and before the chunk's own slot was freed, or while a packed slot was moved. */
static void
drop_unpacked_twins(ep_loader *l)
{
    size_t kept = 0;
    for (size_t i = 0; i < l->event_slot_count; i++) {
        const ep_found_slot *before = kept > 0 ? &l->event_slots[kept - 1] : NULL;
        if (before == NULL || !before->packed || before->sequence != l->event_slots[i].sequence) {
            l->event_slots[kept++] = l->event_slots[i];
        }
    }
    l->event_slot_count = kept;
}

/* The first offset from `offset` on, in multiples of the unit, that is not in a hole of the file. */
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
add_slot(ep_found_slot **list, size_t *count, size_t *capacity, const ep_found_slot *slot)
{
    if (!ep_grow((void **)list, capacity, *count + 1, sizeof **list)) {
        return false;
    }
    (*list)[(*count)++] = *slot;
    return true;
}

/* The length of the slot that begins with this header; 0: it is not a slot's. */
static size_t
slot_bytes_of(const ep_file_reader *reader, const ep_chunk_header *header)
{
    bool known = header->magic == EP_CHUNK_MAGIC || header->magic == EP_FILE_TEXT_MAGIC ||
                 header->magic == EP_FILE_STATE_MAGIC ||
                 (header->magic == EP_FILE_PACKED_MAGIC && reader->header.major == EP_FILE_MAJOR);
    return known && header->bytes > 0 && header->bytes <= EP_CHUNK_BYTES &&
                   header->bytes % reader->header.slot_bytes == 0
               ? header->bytes
               : 0;
}

/* Memory for the chunk of a packed slot: as long as the chunk was, or less. */
static size_t
unpacked_bytes_of(const ep_chunk_header *header)
{
    size_t bytes = EP_CHUNK_BYTES_MIN;
    while (bytes < EP_CHUNK_BYTES && EP_CHUNK_WORDS_OF(bytes) < header->used_words) {
        bytes *= 2;
    }
    return bytes;
}

/* Pages with data that are in no slot: a header was damaged, and what it told of is not found. */
typedef struct stray_pages {
    uint64_t first, count;    /* first: an offset */
} stray_pages;

/* Notes the page at an offset where no slot begins, unless it is empty: then it was never used. A running
 * writer may have made it a slot since its header was read, and a later version may know more slots. */
static void
look_for_stray(const ep_file_reader *reader, uint64_t at, stray_pages *stray)
{
    uint64_t words[512];
    if (reader->header.minor > EP_FILE_MINOR || reader->facts.writer_lives) {
        return;
    }
    int64_t got = ep_reader_read_at(reader, at, words, sizeof words);
    for (size_t i = 0; got > 0 && i < (size_t)got / 8; i++) {
        if (words[i] != 0) {
            stray->first = stray->count == 0 ? at : stray->first;
            stray->count += 1;
            return;
        }
    }
}

static void
note_stray(ep_file_reader *reader, const stray_pages *stray)
{
    if (stray->count > 0) {
        ep_reader_note(reader,
                       "from offset %" PRIu64 " on: the header of a slot is damaged; %" PRIu64
                       " KiB of records or names are missing",
                       stray->first, stray->count * (reader->header.slot_bytes / 1024));
    }
}

/* Lists the slots with texts, and those with events of chunks up to `last_sequence`, in order of
 * sequence. */
static ep_status
list_slots(ep_loader *l, uint64_t last_sequence)
{
    ep_file_reader *reader = l->reader;
    ep_file_facts *facts = &reader->facts;
    size_t empty = 0, bytes;
    stray_pages stray = {0};
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
        int64_t got = ep_reader_read_at(reader, at, &header, sizeof header);
        if (got < 0) {
            return EP_IO;
        }
        bytes = slot_bytes_of(reader, &header);
        bool whole = bytes > 0 && (size_t)got == sizeof header &&
                     atomic_load_explicit(&header.state, memory_order_relaxed) != EP_CHUNK_FREE;
        ep_found_slot slot = {.sequence = header.sequence,
                              .offset = at,
                              .bytes = bytes,
                              .packed = header.magic == EP_FILE_PACKED_MAGIC};
        slot.chunk_bytes = slot.packed ? unpacked_bytes_of(&header) : bytes;
        uint32_t state = atomic_load_explicit(&header.state, memory_order_relaxed);
        bool is_chunk = slot.packed ? state == EP_CHUNK_SEALED : header.magic == EP_CHUNK_MAGIC;
        bool room = true;
        if (whole && header.magic == EP_FILE_TEXT_MAGIC) {
            room = add_slot(&l->text_slots, &l->text_slot_count, &l->text_slot_capacity, &slot);
        } else if (whole && is_chunk && header.sequence <= last_sequence &&
                   atomic_load_explicit(&header.wanted, memory_order_relaxed) != 0 &&
                   header.sequence != l->dropped_sequence) {
            room = add_slot(&l->event_slots, &l->event_slot_count, &l->event_slot_capacity, &slot);
        } else {
            facts->other_slots += header.magic != EP_FILE_STATE_MAGIC;
        }
        if (!room) {
            return EP_NOMEM;
        }
        empty = header.magic == 0 ? empty + 1 : 0;
        if (bytes == 0) {    /* damaged or never used: the next slot may begin at any page */
            look_for_stray(reader, at, &stray);
            bytes = reader->header.slot_bytes;
        }
    }
    note_stray(reader, &stray);
    if (l->event_slot_count > 1) {
        qsort(l->event_slots, l->event_slot_count, sizeof *l->event_slots, by_sequence);
        drop_unpacked_twins(l);
    }
    if (l->text_slot_count > 1) {
        qsort(l->text_slots, l->text_slot_count, sizeof *l->text_slots, by_sequence);
    }
    facts->event_slots = l->event_slot_count;
    facts->text_slots = l->text_slot_count;
    return EP_OK;
}

/* The chunk that was dropped last, according to the current state. */
static uint64_t
read_dropped_sequence(const ep_file_reader *reader)
{
    ep_file_header header;
    ep_file_state state;
    if (ep_reader_read_at(reader, 0, &header, sizeof header) != sizeof header) {
        return UINT64_MAX;
    }
    uint32_t which = atomic_load_explicit(&header.state, memory_order_relaxed) & 1;
    uint64_t offset = atomic_load_explicit(&header.state_offset[which], memory_order_relaxed);
    if (offset > INT64_MAX || ep_reader_read_at(reader, offset, &state, sizeof state) != sizeof state) {
        return UINT64_MAX;
    }
    return state.sum == 0 ? UINT64_MAX : state.dropped_sequence;
}

/* Lists the chunks at one instant of a file that is still written. The second look has all chunks up to the
 * last one that the first look found, and what a thread wrote into earlier chunks is complete then. A chunk
 * that was dropped after the state was read is left out. */
static ep_status
list_slots_of_living(ep_loader *l, ep_error *error)
{
    ep_status status = list_slots(l, UINT64_MAX);
    if (status == EP_OK && l->event_slot_count > 0) {
        uint64_t last = l->event_slots[l->event_slot_count - 1].sequence;
        status = ep_reader_read_size(l->reader, error);
        status = status != EP_OK ? status : list_slots(l, last);
    }
    l->outrun = read_dropped_sequence(l->reader) != l->dropped_sequence;
    return status;
}

/* Where a chunk is now whose slot was reused after it was packed, or which was moved when the file was
 * finished. Looks through the whole file; only the last few chunks of a running program need it. */
static bool
find_packed(const ep_file_reader *reader, uint64_t sequence, ep_found_slot *out)
{
    ep_chunk_header header;
    size_t bytes;
    for (uint64_t at = reader->header.head_bytes;
         ep_reader_read_at(reader, at, &header, sizeof header) == sizeof header; at += bytes) {
        bytes = slot_bytes_of(reader, &header);
        if (bytes > 0 && header.magic == EP_FILE_PACKED_MAGIC && header.sequence == sequence &&
            atomic_load_explicit(&header.state, memory_order_relaxed) == EP_CHUNK_SEALED) {
            *out = (ep_found_slot){sequence, at, bytes, unpacked_bytes_of(&header), true};
            return true;
        }
        bytes = bytes > 0 ? bytes : reader->header.slot_bytes;
    }
    return false;
}

/* As add_chunk(). If the chunk's slot was reused meanwhile, adds the chunk from its new slot. */
static ep_status
add_chunk_of_living(ep_loader *l, const ep_found_slot *found, uint64_t stop_ticks)
{
    const bool before = l->outrun;
    l->outrun = false;
    ep_status status = add_chunk(l, found, stop_ticks);
    ep_found_slot moved;
    for (int i = 0; i < 3 && status == EP_OK && l->outrun && l->header.major == EP_FILE_MAJOR; i++) {
        if (!find_packed(l->reader, found->sequence, &moved)) {
            break;
        }
        l->outrun = false;
        status = add_chunk(l, &moved, stop_ticks);
    }
    l->outrun = l->outrun || before;
    return status;
}

ep_status
ep_loader_read_slots(ep_loader *l, uint64_t stop_ticks, ep_error *error)
{
    ep_file_reader *reader = l->reader;
    ep_status status = reader->facts.writer_lives ? list_slots_of_living(l, error)
                                                  : list_slots(l, UINT64_MAX);
    for (size_t i = 0; i < l->event_slot_count && status == EP_OK; i++) {
        if (l->outrun && !l->last_try) {
            return EP_OK;
        }
        status = add_chunk_of_living(l, &l->event_slots[i], stop_ticks);
    }
    if (status == EP_OK && reader->facts.writer_lives) {
        status = ep_reader_read_size(reader, error);
        status = status != EP_OK ? status : list_slots(l, 0);
        reader->facts.event_slots = l->chunk_count;
    }
    for (size_t i = 0; i < l->text_slot_count && status == EP_OK; i++) {
        status = add_text_slot(l, &l->text_slots[i]);
    }
    return status;
}
