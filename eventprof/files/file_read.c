/* A log file -> decoded columns. Slots are read into memory, never mapped: a file that shrinks
 * meanwhile must not kill the reader. Records are checked one by one, and their thread ids are replaced by
 * small ones, before they reach decode.c, which trusts its input. */
#include "file_read.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "array.h"
#include "file_ids.h"
#include "file_kinds.h"
#include "hash_index.h"
#include "memory.h"
#include "pack.h"

/* Limits for the length of a recording and the rate of a clock, so that no product overflows. */
#define SPAN_TICKS_MAX (UINT64_C(1) << 53)
#define READ_TRIES 64

struct ep_file_reader {
    int descriptor;
    uint64_t bytes;           /* of the file, when last looked at */
    ep_file_header header;
    ep_file_facts facts;
    ep_record_check *check;   /* to be filled; NULL: not wanted */
};

typedef struct read_name {
    uint32_t qualname, module, file;
    int32_t line;
    uint32_t kind;
    bool known;
} read_name;

typedef struct read_site {
    uint32_t callee, caller;
    int32_t offset, line;
    uint32_t task;    /* 1 + string; 0: none */
    bool known;
} read_site;

typedef struct found_slot {
    uint64_t sequence, offset;
    size_t bytes;
    size_t chunk_bytes;    /* of the chunk in memory; more than `bytes` if the slot is packed */
    bool packed;
} found_slot;

/* Where the records are of a chunk of which only the header was read. */
typedef struct chunk_place {
    found_slot slot;
    bool checked;    /* errors in them were noted */
    bool counted;    /* by the record check */
} chunk_place;

typedef struct loader {
    ep_file_reader *reader;
    bool streams;                       /* only headers of chunks are kept; their records are read again */
    bool threads_known;                 /* no further thread gets a small id */
    bool last_try;                      /* chunks that the writer reuses meanwhile are left out */
    bool outrun;                        /* the writer reused a chunk: read once more from the start */
    ep_file_header header;              /* at the time of this load */
    char *state;                        /* EP_FILE_STATE_LIMIT */
    uint64_t state_bytes;
    uint64_t dropped_sequence;
    found_slot *event_slots, *text_slots;
    size_t event_slot_count, event_slot_capacity, text_slot_count, text_slot_capacity;
    ep_chunk *chunks;
    size_t chunk_count, chunk_capacity;
    chunk_place *places;             /* of each chunk */
    size_t place_capacity;
    ep_chunk_packer *packer;            /* NULL until the first packed slot */
    ep_chunk_header *packed;            /* a packed slot; the same */
    void **texts;                       /* text slots, whole */
    size_t text_count, text_capacity;
    uint64_t text_bytes;                /* of all of them */
    ep_thread *threads;                 /* index = small id; [0] is no thread */
    size_t thread_count, thread_capacity;
    ep_resident *resident;              /* samples, as they were written */
    size_t resident_count, resident_capacity;
    uint32_t *file_ids;                 /* of threads, by small id; [0] unused */
    size_t file_id_capacity;
    ep_hash_index small_ids;            /* rows of file_ids */
    uint64_t last_ticks;                /* of all records of the window */
    ep_text *strings;
    size_t string_count, string_capacity;
    read_name *names;
    size_t name_count, name_capacity;
    read_site *sites;
    size_t site_count, site_capacity;
    ep_file_ids ids;
    uint32_t *met;    /* of names, then of sites: what rows mentioned, ids of this process; 0: not yet */
    ep_window_thread *window;
    size_t window_count;
    uint32_t only_thread;               /* small; 0: all */
    size_t unknown_ids;
    ep_record_shape shape;
    uint64_t unknown_events;            /* of kinds that are not known here */
    ep_kind_set unknown_kinds;
} loader;

/* ---- Opening a log file: its header, and whether its writer lives ---------------------------- */

/* Notes that something is missing or damaged. */
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

/* Reads the length of the file again, which may have changed. */
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

/* False: a recording cannot begin at such a time. With this check no sum of ticks or ns overflows later. */
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
    size_t offset = header->major == 0 ? offsetof(ep_file_header, major)
                    : header->header_bytes < EP_FILE_HEADER_BYTES_MIN
                        ? offsetof(ep_file_header, header_bytes)
                    : !is_slot_unit(header)      ? offsetof(ep_file_header, slot_bytes)
                    : !is_plausible_head(header) ? offsetof(ep_file_header, head_bytes)
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

/* Reads and checks the header, and fills in the facts. */
static ep_status
read_header(ep_file_reader *reader, ep_error *error)
{
    ep_file_header *header = &reader->header;
    bool written = has_writer(reader);    /* asked first: if there is no writer, the bytes that are read are
                                           * final */
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
    memcpy(facts->worker, header->worker, sizeof facts->worker - 1);
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

/* ---- Threads: small ids while the file is loaded, in the order of the file's ids ------------- */

#define THREADS_MAX (UINT32_C(1) << 20)

static uint64_t
hash_of_id(const void *file_ids, size_t small)
{
    return ((const uint32_t *)file_ids)[small] * UINT64_C(0x9E3779B97F4A7C15) >> 32;
}

static bool
is_id(const void *file_ids, size_t small, const void *key)
{
    return ((const uint32_t *)file_ids)[small] == *(const uint32_t *)key;
}

static uint32_t *
slot_of(const loader *l, uint32_t id)
{
    return ep_hash_index_slot(&l->small_ids, hash_of_id(&id, 0), is_id, l->file_ids, &id);
}

/* The small id of a thread of the file, made at first sight. Returns: 0 without memory, or if the
 * id cannot be one. While loading, ep_thread.id is the file's. */
static uint32_t
small_id(loader *l, uint64_t id)
{
    if (id == 0 || id > UINT32_MAX || !ep_hash_index_reserve(&l->small_ids, hash_of_id, l->file_ids)) {
        return 0;
    }
    uint32_t *slot = slot_of(l, (uint32_t)id);
    if (*slot != 0) {
        return *slot - 1;
    }
    if (l->threads_known || l->thread_count > THREADS_MAX ||
        !ep_grow((void **)&l->threads, &l->thread_capacity, l->thread_count + 1, sizeof *l->threads) ||
        !ep_grow((void **)&l->file_ids, &l->file_id_capacity, l->thread_count + 1,
                 sizeof *l->file_ids)) {
        return 0;
    }
    uint32_t small = (uint32_t)l->thread_count++;
    l->threads[small].id = l->file_ids[small] = (uint32_t)id;
    ep_hash_index_add(&l->small_ids, slot, small);
    return small;
}

static int
by_id(const void *a, const void *b)
{
    const ep_thread *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* Sorts small ids by the ids of the file, so that rows are in the order of the program's own trace. Before,
 * they are in the order in which threads were seen. Afterwards no new small id is given. */
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
    memcpy(ids, l->file_ids, l->thread_count * sizeof *ids);
    qsort(&l->threads[1], l->thread_count - 1, sizeof *l->threads, by_id);
    ep_hash_index_empty(&l->small_ids);
    for (size_t i = 1; i < l->thread_count; i++) {
        l->file_ids[i] = l->threads[i].id;
        ep_hash_index_add(&l->small_ids, slot_of(l, l->file_ids[i]), i);
    }
    l->only_thread = small_id(l, ids[l->only_thread]);
    for (size_t i = 0; i < l->chunk_count; i++) {
        ep_chunk_header *header = l->chunks[i].header;
        header->thread_id = small_id(l, ids[header->thread_id]);
        uint64_t *at = (uint64_t *)(header + 1), *end = at + header->used_words;
        bool shared = atomic_load_explicit(&header->shared, memory_order_relaxed);
        while (shared && !l->streams && at < end) {
            if (EP_WORD0_KIND(*at) == EP_KIND_THREAD) {
                at[1] = small_id(l, ids[at[1]]);
            }
            at += ep_kinds[EP_WORD0_KIND(*at)].words;
        }
    }
    free(ids);
    return EP_OK;
}

/* ---- The state: lost events by thread, and the calls that are open where the records begin --- */

#define COUNT_MAX (UINT64_C(1) << 52)

/* Reads and checks the state that counts now. If a writer switches to the other state and back meanwhile,
 * it is read again. */
static ep_status
read_state(loader *l, ep_error *error)
{
    ep_file_reader *reader = l->reader;
    l->state_bytes = 0;
    l->dropped_sequence = UINT64_MAX;
    for (int attempt = 0; attempt < READ_TRIES; attempt++) {
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
            note(reader, "the file ends at byte %" PRIu64 ", before its first chunk",
                 reader->bytes);
            return EP_OK;
        }
        memcpy(&state, l->state, sizeof state);
        if (state.thread_count == 0 && state.bytes == 0 && state.sum == 0) {
            return EP_OK;    /* nothing was lost yet, and no call is open */
        }
        if (state.bytes <= (uint64_t)got - sizeof state &&
            state.sum == ep_sum64(l->state + sizeof state, state.bytes)) {
            l->state_bytes = state.bytes;
            l->dropped_sequence = state.dropped_sequence;
            if (state.incomplete > 0) {
                note(reader, "loss and open calls of %" PRIu64 " threads found no room",
                     state.incomplete);
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

/* Gives small ids to threads that only the state or the header mentions, before the window is made. */
static void
name_threads(loader *l)
{
    l->only_thread = small_id(l, l->header.only_thread);
    const char *at = l->state + sizeof(ep_file_state), *end = at + l->state_bytes;
    while ((size_t)(end - at) >= sizeof(ep_file_thread_state)) {
        ep_file_thread_state head;
        memcpy(&head, at, sizeof head);
        at += sizeof head;
        uint64_t bytes = ((uint64_t)head.count_count + head.depth) * sizeof(ep_file_pair);
        if (bytes > (size_t)(end - at)) {
            break;
        }
        (void)small_id(l, head.thread_id);
        at += bytes;
    }
}

/* Fills the windows of the threads from the state. Threads and sites must be known. */
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
        uint32_t small = head.thread_id != 0 ? small_id(l, head.thread_id) : 0;
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
            if (ep_kinds[kind].form != EP_FORM_CALL || ep_kinds[kind].pairing != EP_PAIRING_OPENS) {
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

/* ---- Records of a chunk ---------------------------------------------------------------------- */

#define BLOCK_BYTES_MAX (UINT64_C(1) << 48)

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
check_records(loader *l, ep_chunk_header *header, size_t words, uint64_t stop_ticks, bool *stopped)
{
    uint64_t *const begin = (uint64_t *)(header + 1), *at = begin;
    uint64_t *const end = begin + words;
    const uint64_t start = l->header.start.ticks;
    uint64_t high = header->opened.ticks >> 32 << 32, last = l->last_ticks;
    const uint64_t *huge = NULL;    /* an ESCAPE of a size that no block can have: of a request that
                                     * failed */
    uint64_t span = stop_ticks < start ? 0 : stop_ticks - start;
    span = span < SPAN_TICKS_MAX ? span : SPAN_TICKS_MAX;
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
            uint32_t small = small_id(l, at[1]);
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
            if (ticks - start > SPAN_TICKS_MAX) {
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
read_live(const loader *l, uint64_t offset, size_t bytes, ep_chunk_header *chunk, size_t *words)
{
    ep_chunk_header *again = ep_calloc(bytes, 1);
    if (again == NULL) {
        return EP_NOMEM;
    }
    /* Acquire; pairs with ep_log_publish(): what the second read sees of a record is not older than its
     * word 0 in the first read. */
    atomic_thread_fence(memory_order_acquire);
    int64_t got = read_at(l->reader, offset, again, bytes);
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
is_still(const ep_file_reader *reader, const found_slot *found)
{
    ep_chunk_header now;
    /* Acquire; pairs with the release of the new chunk's records: whoever read one sees the new header. */
    atomic_thread_fence(memory_order_acquire);
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
    return units <= UINT64_MAX / header->slot_bytes &&
           reader->bytes >= units * header->slot_bytes;
}

/* Leaves out the records of a chunk whose kinds are unknown. notes: counts what is left out. *words:
 * the number of words, before and after; *read: how many of them could be read; *stopped: what follows them
 * is no record, and not the end of what was written. */
static void
translate_chunk(loader *l, ep_chunk_header *chunk, uint64_t stop_ticks, bool notes, size_t *words,
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
note_impossible_thread(ep_file_reader *reader, const found_slot *found, const ep_chunk_header *chunk)
{
    note(reader, "chunk at offset %" PRIu64 ": of thread %" PRIu64 ", which cannot be",
         found->offset, chunk->thread_id);
}

/* Reads a packed slot, whose records become those of a sealed chunk. *got: as of read_at(), of
 * the chunk; 0: it is damaged. Fails: EP_NOMEM. */
static ep_status
read_packed(loader *l, const found_slot *found, bool notes, ep_chunk_header *chunk, int64_t *got)
{
    if (l->packer == NULL && (l->packer = ep_chunk_packer_new()) != NULL) {
        ep_chunk_packer_use_kinds(l->packer, l->header.kind_table);
    }
    l->packed = l->packed != NULL ? l->packed : ep_calloc(EP_CHUNK_BYTES, 1);
    if (l->packer == NULL || l->packed == NULL) {
        return EP_NOMEM;
    }
    ep_chunk_header *packed = l->packed;
    int64_t there = read_at(l->reader, found->offset, packed, found->bytes);
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
        note(l->reader, "chunk at offset %" PRIu64 ": %s; its %zu bytes of records are missing",
             found->offset, why, words * 8);
    }
    if (status == EP_FORMAT) {
        *got = 0;
        return EP_OK;
    }
    return status;
}

/* Reads a slot into `chunk`, which has room for the chunk and two more words, zeroed. notes: errors are
 * noted (note()). *out: whether it is a chunk; it is then sealed, and its used words are complete
 * records. Fails: EP_IO, EP_NOMEM. */
static EP_CHECKED ep_status
read_chunk(loader *l, const found_slot *found, uint64_t stop_ticks, bool notes,
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
        got = read_at(reader, offset, chunk, found->bytes);
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
    uint32_t thread = small_id(l, chunk->thread_id);
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
        note(reader,
             "chunk at offset %" PRIu64 ": damaged; %zu of %zu bytes of records were read",
             offset, good, (claimed < room ? claimed : room) * 8);
    } else if (notes && !sealed && (uint64_t)got < found->bytes && (all || stopped || unreadable) &&
               !is_whole(reader)) {
        note(reader, "chunk at offset %" PRIu64 ": the file ends in it, at byte %" PRIu64, offset,
             offset + (uint64_t)got);
    } else if (notes && !sealed && !reader->facts.writer_lives && (stopped || unreadable)) {
        /* Its owner did not come to say how many there are: it was killed, or has not ended yet. */
        note(reader,
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
is_header_enough(const loader *l, const ep_chunk_header *chunk)
{
    return l->streams && l->reader->facts.phase == EP_FILE_FINISHED && l->header.only_thread == 0 &&
           atomic_load_explicit(&chunk->state, memory_order_relaxed) == EP_CHUNK_SEALED &&
           !atomic_load_explicit(&chunk->shared, memory_order_relaxed);
}

static ep_status
add_chunk(loader *l, const found_slot *found, uint64_t stop_ticks)
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
    if (l->streams && read_at(l->reader, found->offset, chunk, sizeof *chunk) == sizeof *chunk &&
        chunk->sequence == found->sequence && is_header_enough(l, chunk)) {
        uint32_t thread = small_id(l, chunk->thread_id);
        if (thread == 0) {
            note_impossible_thread(l->reader, found, chunk);
        }
        chunk->thread_id = thread;
        chunk->bytes = (uint32_t)found->chunk_bytes;
        chunk->magic = EP_CHUNK_MAGIC;
        is_chunk = thread != 0;
        whole = false;
    } else {
        status = read_chunk(l, found, stop_ticks, true, chunk, &is_chunk);
    }
    if (status != EP_OK || !is_chunk) {
        free(chunk);
        return status;
    }
    /* The last chunks of a killed program are mostly empty. */
    size_t kept = l->streams ? 0 : chunk->used_words;
    ep_chunk_header *fitting = realloc(chunk, sizeof *chunk + (kept + 2) * 8);
    chunk = fitting != NULL ? fitting : chunk;
    l->places[l->chunk_count] = (chunk_place){.slot = *found, .checked = whole};
    l->chunks[l->chunk_count++] = (ep_chunk){.header = chunk};
    return EP_OK;
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

/* ---- Slots ----------------------------------------------------------------------------------- */

/* Lists the slots and reads what is in them. A running writer changes them meanwhile. */

/* After so many empty slots in a row, the file system is asked where data follow: reading a file that
 * claims a petabyte must not take long. No writer leaves so many. */
#define EMPTY_SLOTS 256

static int
by_sequence(const void *a, const void *b)
{
    const found_slot *x = a, *y = b;
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
drop_unpacked_twins(loader *l)
{
    size_t kept = 0;
    for (size_t i = 0; i < l->event_slot_count; i++) {
        const found_slot *before = kept > 0 ? &l->event_slots[kept - 1] : NULL;
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
add_slot(found_slot **list, size_t *count, size_t *capacity, const found_slot *slot)
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
    int64_t got = read_at(reader, at, words, sizeof words);
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
        note(reader,
             "from offset %" PRIu64 " on: the header of a slot is damaged; %" PRIu64
             " KiB of records or names are missing",
             stray->first, stray->count * (reader->header.slot_bytes / 1024));
    }
}

/* Lists the slots with texts, and those with events of chunks up to `last_sequence`, in order of
 * sequence. */
static ep_status
list_slots(loader *l, uint64_t last_sequence)
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
        int64_t got = read_at(reader, at, &header, sizeof header);
        if (got < 0) {
            return EP_IO;
        }
        bytes = slot_bytes_of(reader, &header);
        bool whole = bytes > 0 && (size_t)got == sizeof header &&
                     atomic_load_explicit(&header.state, memory_order_relaxed) != EP_CHUNK_FREE;
        found_slot slot = {.sequence = header.sequence,
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
    if (read_at(reader, 0, &header, sizeof header) != sizeof header) {
        return UINT64_MAX;
    }
    uint32_t which = atomic_load_explicit(&header.state, memory_order_relaxed) & 1;
    uint64_t offset = atomic_load_explicit(&header.state_offset[which], memory_order_relaxed);
    if (offset > INT64_MAX || read_at(reader, offset, &state, sizeof state) != sizeof state) {
        return UINT64_MAX;
    }
    return state.sum == 0 ? UINT64_MAX : state.dropped_sequence;
}

/* Lists the chunks at one instant of a file that is still written. The second look has all chunks up to the
 * last one that the first look found, and what a thread wrote into earlier chunks is complete then. A chunk
 * that was dropped after the state was read is left out. */
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

/* Where a chunk is now whose slot was reused after it was packed, or which was moved when the file was
 * finished. Looks through the whole file; only the last few chunks of a running program need it. */
static bool
find_packed(const ep_file_reader *reader, uint64_t sequence, found_slot *out)
{
    ep_chunk_header header;
    size_t bytes;
    for (uint64_t at = reader->header.head_bytes;
         read_at(reader, at, &header, sizeof header) == sizeof header; at += bytes) {
        bytes = slot_bytes_of(reader, &header);
        if (bytes > 0 && header.magic == EP_FILE_PACKED_MAGIC && header.sequence == sequence &&
            atomic_load_explicit(&header.state, memory_order_relaxed) == EP_CHUNK_SEALED) {
            *out = (found_slot){sequence, at, bytes, unpacked_bytes_of(&header), true};
            return true;
        }
        bytes = bytes > 0 ? bytes : reader->header.slot_bytes;
    }
    return false;
}

/* As add_chunk(). If the chunk's slot was reused meanwhile, adds the chunk from its new slot. */
static ep_status
add_chunk_of_living(loader *l, const found_slot *found, uint64_t stop_ticks)
{
    const bool before = l->outrun;
    l->outrun = false;
    ep_status status = add_chunk(l, found, stop_ticks);
    found_slot moved;
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

/* Reads the oldest events first, because a ring overwrites these first. Texts are read last, because a text
 * is written before the records that refer to it. */
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
        status = add_chunk_of_living(l, &l->event_slots[i], stop_ticks);
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

/* ---- Texts: names and sites, which become ids of this process -------------------------------- */

/* Texts that found no room leave gaps in the ids. */
#define GAP_MAX 65536

/* Makes room for index `id` in a table. Ids are dense: an id that is larger than the number of texts that
 * fit into the file is damage. */
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
    static const uint32_t lowest[] = {0, 0, 0x80, 0x800, 0x10000};
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
    return code >= lowest[bytes] && code <= 0x10FFFF ? bytes : 0;
}

/* Makes valid UTF-8 of a text of a file: a long text may be cut within a character, and a damaged one may
 * hold any bytes. */
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

/* Of its low and its high half. */
static int64_t
get_int64(const uint32_t *fields, size_t at)
{
    return (int64_t)(fields[at] | (uint64_t)fields[at + 1] << 32);
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
                l->names[id] = (read_name){fields[1], fields[2], fields[3], (int32_t)fields[4],
                                           fields[5], true};
            }
            break;
        case EP_FILE_TEXT_SITE:
            if (bytes >= 20 && reach_id(l, (void **)&l->sites, &l->site_count, &l->site_capacity, id,
                                        sizeof *l->sites)) {
                l->sites[id] = (read_site){fields[1], fields[2], (int32_t)fields[3],
                                           (int32_t)fields[4], bytes >= 24 ? fields[5] : 0, true};
            }
            break;
        case EP_FILE_TEXT_THREAD:
            tail = (char *)(fields + 4);
            if (bytes >= 16 && fields[1] <= bytes - 16) {
                uint32_t small = small_id(l, id);
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
        case EP_FILE_TEXT_LANE: {
            uint32_t small = bytes >= 8 ? small_id(l, id) : 0;
            if (small != 0) {
                l->threads[small].carrier_id = fields[1];    /* the file's id: make_capture() */
            }
            break;
        }
        case EP_FILE_TEXT_RESIDENT:
            if (bytes >= 24 && ep_grow((void **)&l->resident, &l->resident_capacity, l->resident_count + 1,
                                       sizeof *l->resident)) {
                l->resident[l->resident_count++] =
                    (ep_resident){get_int64(fields, 0), get_int64(fields, 2), get_int64(fields, 4)};
            }
            break;
        default:
            break;    /* of a later version */
    }
}

/* Reads names, sites and threads from the slots of texts. */
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

/* ---- Ids of this process --------------------------------------------------------------------- */

static ep_text
string_of(const loader *l, uint32_t id)
{
    return id < l->string_count ? l->strings[id] : (ep_text){NULL, 0};
}

/* "<string>" and "<stdin>" name no file: code of many modules has them. "<frozen NAME>" does, because each
 * frozen module has its own. */
static bool
is_no_file(ep_text name)
{
    static const char frozen[] = "<frozen ";
    return name.bytes > 0 && name.at[0] == '<' &&
           (name.bytes < sizeof frozen - 1 || memcmp(name.at, frozen, sizeof frozen - 1) != 0);
}

/* Code that only an allocator hook has seen has no module; it gets that of other code in its file. */
static void
complete_modules(loader *l)
{
    uint32_t *module_of_file = ep_realloc(NULL, l->string_count + 1, sizeof *module_of_file);
    if (module_of_file == NULL) {
        return;
    }
    memset(module_of_file, 0xFF, (l->string_count + 1) * sizeof *module_of_file);
    for (size_t i = 0; i < l->name_count; i++) {
        const read_name *name = &l->names[i];
        if (name->known && name->file < l->string_count && name->module < l->string_count &&
            !is_no_file(string_of(l, name->file))) {
            module_of_file[name->file] = name->module;
        }
    }
    for (size_t i = 0; i < l->name_count; i++) {
        read_name *name = &l->names[i];
        if (name->known && name->file < l->string_count && name->module >= l->string_count) {
            name->module = module_of_file[name->file];
        }
    }
    free(module_of_file);
}

/* Interns all names and sites that were read. */
static ep_status
map_ids(loader *l)
{
    complete_modules(l);
    ep_status status = ep_file_ids_open(&l->ids);
    for (size_t i = 1; i < l->name_count && status == EP_OK; i++) {
        const read_name *from = &l->names[i];
        ep_name_text text = {
            .qualname = string_of(l, from->qualname),
            .module = string_of(l, from->module),
            .file = string_of(l, from->file),
            .line = from->line,
            .kind = (ep_name_kind)from->kind,
        };
        status = from->known ? ep_file_ids_put_name(&l->ids, (uint32_t)i, &text) : EP_OK;
    }
    for (size_t i = 1; i < l->site_count && status == EP_OK; i++) {
        const read_site *from = &l->sites[i];
        ep_site site = {
            .callee = from->callee,
            .caller = from->caller,
            .offset = from->offset,
            .line = from->line,
            .task = from->task != 0 ? ep_string_add(string_of(l, from->task - 1)) + 1 : 0,
        };
        status = from->known ? ep_file_ids_put_site(&l->ids, (uint32_t)i, &site) : EP_OK;
    }
    return status;
}

/* An id that has not been met, or means nothing. *here: this process's. */
static EP_COLD EP_CHECKED ep_status
meet_id(loader *l, bool is_name, uint32_t id, ep_functions_builder *functions, uint32_t *here)
{
    const ep_id_table *table = is_name ? &l->ids.names : &l->ids.sites;
    *here = ep_id_here(table, id);
    l->unknown_ids += *here == 0 && id != 0;
    if (*here != 0) {
        l->met[is_name ? id : l->ids.names.count + id] = *here;
    }
    return functions != NULL ? ep_functions_add_id(functions, is_name, *here) : EP_OK;
}

/* HOT, 1 ns a row. Ids of the file become ids of this process: in rows from `from` on. functions: is told
 * of them; may be NULL. Fails: EP_NOMEM. */
static EP_CHECKED ep_status
translate_rows(loader *l, ep_columns *c, size_t from, ep_functions_builder *functions)
{
    const size_t names = l->ids.names.count, sites = l->ids.sites.count;
    if (l->met == NULL && (l->met = ep_calloc(names + sites, sizeof *l->met)) == NULL) {
        return EP_NOMEM;
    }
    struct {
        uint32_t *ids;
        size_t count;
    } met[EP_KIND_COUNT];
    for (unsigned kind = 0; kind < EP_KIND_COUNT; kind++) {
        met[kind].ids = ep_kind_has_name(kind) ? l->met : l->met + names;
        met[kind].count = ep_kind_has_name(kind) ? names : sites;
    }
    for (size_t row = from, end; row < c->count;) {
        for (end = ep_column_part(row, c->count); row < end; row++) {
            unsigned kind = c->kind[row];
            uint32_t id = c->id[row], here = EP_LIKELY(id < met[kind].count) ? met[kind].ids[id] : 0;
            if (EP_UNLIKELY(here == 0)) {
                ep_status status = meet_id(l, ep_kind_has_name(kind), id, functions, &here);
                if (status != EP_OK) {
                    return status;
                }
            }
            c->id[row] = here;
        }
    }
    return EP_OK;
}

/* Like translate_rows(), in the stacks of open calls of the window. */
static void
translate_window(loader *l)
{
    for (size_t i = 0; i < l->window_count; i++) {
        ep_open_stack *open = &l->window[i].open;
        for (size_t k = 0; k < open->depth; k++) {
            open->calls[k].site_id = ep_id_here(&l->ids.sites, open->calls[k].site_id);
        }
    }
}

/* ---- Clock and recording --------------------------------------------------------------------- */

#define SPAN_NS_MAX (INT64_C(1) << 53)
#define NS_A_TICK_MAX 1000.0
#define NS_A_TICK_MIN 0.001

/* Whether the rate between two anchors is possible for a real clock. */
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

/* Uses the anchors whose slope to the start is possible for a clock; the last one extends the first
 * line. */
static ep_status
build_clock(loader *l, ep_clock_map *map)
{
    const ep_file_header *header = &l->header;
    const ep_anchor start = header->start;
    ep_status status = ep_clock_map_add(map, start);
    /* If finished: the anchors that the recorder's own trace uses, so that times are the same. Otherwise
     * the beat that counts; the other one may be half written. */
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
    /* The line between two plausible anchors may be implausible. */
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
    int64_t got = read_at(l->reader, EP_FILE_METADATA_OFFSET, recording->metadata,
                          header->metadata_bytes);
    if (got < 0) {
        ep_recording_clear(recording);
        return ep_fail_os(error, errno);
    }
    recording->metadata_bytes = (size_t)got;
    return EP_OK;
}

/* ---- Everything that a decoder needs --------------------------------------------------------- */

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
    free(l->places);
    free(l->texts);
    free(l->threads);
    free(l->file_ids);
    ep_hash_index_free(&l->small_ids);
    free(l->strings);
    free(l->names);
    free(l->sites);
    ep_file_ids_clear(&l->ids);
    free(l->met);
    free(l->resident);
    free(l->state);
    ep_chunk_packer_free(l->packer);
    free(l->packed);
}

/* The chunks of a file, as input for a decoder. */
typedef struct file_capture {
    ep_capture capture;
    ep_clock_map map;
    ep_chunk **chunks;
} file_capture;

static void
clear_capture(file_capture *c)
{
    ep_clock_map_free(&c->map);
    free(c->chunks);
    *c = (file_capture){0};
}

/* Returns: new in *out (clear_capture), with views into the loader, and in *recording. */
static ep_status
make_capture(loader *l, file_capture *out, ep_recording *recording, ep_error *error)
{
    ep_file_header *header = &l->header;
    bool finished = l->reader->facts.phase == EP_FILE_FINISHED;
    *out = (file_capture){.chunks = ep_calloc(l->chunk_count, sizeof *out->chunks)};
    ep_status status = out->chunks != NULL ? build_clock(l, &out->map) : EP_NOMEM;
    if (status == EP_OK) {
        status = fill_recording(l, &out->map, recording, error);
    }
    if (status != EP_OK) {
        clear_capture(out);
        return status;
    }
    for (size_t i = 0; i < l->chunk_count; i++) {
        out->chunks[i] = &l->chunks[i];
    }
    for (size_t i = 0; i < l->thread_count; i++) {
        ep_thread *thread = &l->threads[i];
        uint32_t carrier = thread->carrier_id, slot = carrier != 0 ? *slot_of(l, carrier) : 0;
        thread->id = (uint32_t)i;
        /* The thread itself is no lane. */
        thread->carrier_id = slot > 1 && l->threads[slot - 1].carrier_id == 0 ? slot - 1 : 0;
    }
    translate_window(l);
    out->capture = (ep_capture){
        .kinds = ep_file_kinds(header) & (ep_kinds_of_events | EP_KIND_BIT(0)),
        .start = header->start,
        .stop = finished ? header->stop : (ep_anchor){.ticks = l->last_ticks},
        .start_realtime_ns = header->start_realtime_ns,
        .start_resident_bytes = header->start_resident_bytes,
        .stop_resident_bytes = finished ? header->stop_resident_bytes : -1,
        .start_own_bytes = header->start_own_bytes,
        .stop_own_bytes = header->stop_own_bytes,
        .full_ticks = recording->full_reason == EP_FULL_NOT          ? UINT64_MAX
                      : header->full_ticks + 1 < header->start.ticks ? header->start.ticks
                                                                     : header->full_ticks,
        .full_reason = recording->full_reason,
        .chunks = out->chunks,
        .chunk_count = l->chunk_count,
        .threads = l->window,
        .thread_count = l->window_count,
        .clock = out->map,
        .read_threads = l->threads,
        .resident = l->resident,
        .resident_count = l->resident_count,
    };
    return EP_OK;
}

/* After all rows were translated: passes the threads that they refer to on to `out`. */
static void
settle_decoded(loader *l, ep_decoded *out)
{
    out->read_threads = l->threads;
    l->threads = NULL;
    if (l->unknown_ids > 0) {
        note(l->reader, "%zu events name a function or place that is not in the file",
             l->unknown_ids);
    }
    out->damaged_chunks += l->reader->facts.note_count;
    l->reader->facts.unknown_events = l->unknown_events;
    ep_unknown_words(&l->header, l->unknown_kinds, l->reader->facts.unknown_words,
                     sizeof l->reader->facts.unknown_words);
}

static ep_status
decode_all(loader *l, ep_recording *recording, ep_decoded *out, ep_error *error)
{
    file_capture file;
    ep_status status = make_capture(l, &file, recording, error);
    if (status != EP_OK) {
        return status;
    }
    status = ep_decode(&file.capture, l->only_thread, out);
    if (status == EP_OK && l->reader->check != NULL) {
        status = ep_check_records(&file.capture, l->only_thread, out, l->reader->check);
    }
    if (status == EP_OK) {
        status = translate_rows(l, &out->columns, 0, NULL);
        if (status != EP_OK) {
            ep_decoded_clear(out);
        }
    }
    if (status == EP_OK) {
        settle_decoded(l, out);
    } else {
        ep_recording_clear(recording);
    }
    clear_capture(&file);
    return status;
}

/* A running program makes its file longer and shorter while it is read. */
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

/* Reads everything that a capture needs. */
static ep_status
load(loader *l, ep_error *error)
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
    if (reader->facts.awaits_stop && !reader->facts.writer_lives) {
        note(reader, "the events: it ran beside a recorder with a file, and was not stopped; "
                     "what both recorded is in the other file");
    }
    if (reader->facts.words_damaged) {
        note(reader, "words of its header are damaged, after offset %zu: which hook saw calls",
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
    name_threads(l);
    status = sort_threads(l);
    status = status != EP_OK ? status : map_ids(l);
    return status != EP_OK ? status : fill_window(l);
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

/* ---- Batch by batch -------------------------------------------------------------------------- */

struct ep_file_stream {
    ep_chunk_source source;    /* the first member */
    loader loader;
    file_capture file;
    ep_decoder *decoder;
    uint64_t stop_ticks;
    bool leaves_ids;
    ep_functions_builder *functions;    /* view: told of each row; or NULL */
    ep_chunk_header *spare;    /* a buffer of the largest chunk, for the next; may be NULL */
    /* If the reader has a check: of chunks that nobody shares, while they are decoded. */
    ep_record_checker checker;
    bool checks_loaded;
};

static void
count_records(ep_file_stream *s, size_t index, const ep_chunk_header *chunk)
{
    chunk_place *place = &s->loader.places[index];
    if (!place->counted) {
        place->counted = true;
        ep_record_checker_add(&s->checker, chunk);
    }
}

static ep_status
load_chunk(ep_chunk_source *source, size_t index, const ep_chunk_header **out)
{
    ep_file_stream *s = (ep_file_stream *)source;
    chunk_place *place = &s->loader.places[index];
    bool large = place->slot.chunk_bytes == EP_CHUNK_BYTES, is_chunk;
    ep_chunk_header *chunk = large ? s->spare : NULL;
    s->spare = large ? NULL : s->spare;
    if (chunk == NULL) {
        chunk = ep_calloc(place->slot.chunk_bytes + 16, 1);
    }
    if (chunk == NULL) {
        return EP_NOMEM;
    }
    ep_status status = read_chunk(&s->loader, &place->slot, s->stop_ticks, !place->checked, chunk,
                                  &is_chunk);
    place->checked = true;
    if (status != EP_OK) {
        free(chunk);
        return status;
    }
    if (!is_chunk) {    /* the slot was reused since it was found, because somebody writes to the file */
        chunk->used_words = 0;
        chunk->bytes = (uint32_t)place->slot.chunk_bytes;
    }
    memset((uint64_t *)(chunk + 1) + chunk->used_words, 0, 16);    /* the rest of an earlier chunk */
    if (s->checks_loaded) {
        count_records(s, index, chunk);
    }
    *out = chunk;
    return EP_OK;
}

static void
let_chunk_go(ep_chunk_source *source, const ep_chunk_header *chunk)
{
    ep_file_stream *s = (ep_file_stream *)source;
    ep_chunk_header *owned_chunk = (ep_chunk_header *)chunk;
    if (s->spare == NULL && chunk->bytes == EP_CHUNK_BYTES) {
        s->spare = owned_chunk;
    } else {
        free(owned_chunk);
    }
}

/* The decoder loads the chunks of each thread in order, but those that several threads share again and
 * again. */
static bool
any_shared(const ep_capture *capture)
{
    bool any = false;
    for (size_t i = 0; i < capture->chunk_count && !any; i++) {
        any = atomic_load_explicit(&capture->chunks[i]->header->shared, memory_order_relaxed) != 0;
    }
    for (size_t id = 0; id < capture->thread_count && !any; id++) {
        any = ep_capture_carrier(capture, id) != id;
    }
    return any;
}

static EP_CHECKED ep_status
open_check(ep_file_stream *s)
{
    if (s->loader.reader->check == NULL) {
        return EP_OK;
    }
    s->checks_loaded = !any_shared(&s->file.capture);
    return ep_record_checker_open(&s->checker, &s->file.capture, s->loader.only_thread);
}

/* Counts the chunks that were not decoded, too. */
static EP_CHECKED ep_status
end_check(ep_file_stream *s, const ep_decoded *decoded)
{
    ep_record_check *check = s->loader.reader->check;
    for (size_t i = 0; i < s->file.capture.chunk_count && check != NULL; i++) {
        const ep_chunk_header *chunk;
        if (s->loader.places[i].counted) {
            continue;
        }
        ep_status status = s->source.load(&s->source, i, &chunk);
        if (status != EP_OK) {
            return status;
        }
        count_records(s, i, chunk);
        s->source.let_go(&s->source, chunk);
    }
    if (check != NULL) {
        ep_record_checker_end(&s->checker, decoded, check);
    }
    return EP_OK;
}

ep_status
ep_file_stream_open(ep_file_reader *reader, ep_recording *recording, ep_file_stream **out,
                    ep_error *error)
{
    if (reader->facts.writer_lives) {
        return ep_fail(error, EP_STATE, "a program still records into it");
    }
    ep_file_stream *s = ep_calloc(1, sizeof *s);
    if (s == NULL) {
        return EP_NOMEM;
    }
    s->source = (ep_chunk_source){.load = load_chunk, .let_go = let_chunk_go};
    s->loader = (loader){.reader = reader, .streams = true, .last_try = true};
    ep_status status = load(&s->loader, error);
    if (status == EP_OK) {
        status = make_capture(&s->loader, &s->file, recording, error);
    }
    if (status == EP_OK) {
        s->loader.threads_known = true;
        s->stop_ticks = reader->facts.phase == EP_FILE_FINISHED ? s->loader.header.stop.ticks : UINT64_MAX;
        status = open_check(s);
        status = status != EP_OK ? status
                                 : ep_decoder_open(&s->file.capture, s->loader.only_thread, &s->source,
                                                   &s->decoder);
        if (status != EP_OK) {
            ep_recording_clear(recording);
        }
    }
    if (status != EP_OK) {
        ep_file_stream_close(s);
        return status;
    }
    *out = s;
    return EP_OK;
}

void
ep_file_stream_leave_ids(ep_file_stream *stream)
{
    stream->leaves_ids = true;
}

void
ep_file_stream_tell(ep_file_stream *stream, ep_functions_builder *functions)
{
    stream->functions = functions;
}

const ep_decoded *
ep_file_stream_head(const ep_file_stream *stream)
{
    return ep_decoder_head(stream->decoder);
}

ep_status
ep_file_stream_next(ep_file_stream *s, ep_columns *to, size_t limit, ep_error *error)
{
    size_t from = to->count;
    ep_status status = ep_decoder_next(s->decoder, to, limit);
    if (status == EP_OK && !s->leaves_ids) {
        status = translate_rows(&s->loader, to, from, s->functions);
    }
    return status == EP_IO ? ep_fail_os(error, errno) : status;
}

void
ep_file_stream_progress(const ep_file_stream *s, size_t *done, size_t *total)
{
    ep_decoder_progress(s->decoder, done, total);
}

ep_status
ep_file_stream_end(ep_file_stream *s, ep_decoded *out, ep_error *error)
{
    ep_decoder_end(s->decoder, out);
    ep_status status = end_check(s, out);
    settle_decoded(&s->loader, out);
    if (status != EP_OK) {
        ep_decoded_clear(out);
    }
    return status == EP_IO ? ep_fail_os(error, errno) : status;
}

void
ep_file_stream_close(ep_file_stream *s)
{
    if (s == NULL) {
        return;
    }
    ep_decoder_close(s->decoder);
    ep_record_checker_clear(&s->checker);
    free(s->spare);
    clear_capture(&s->file);
    clear_loader(&s->loader);
    free(s);
}

/* ---- All at once ----------------------------------------------------------------------------- */

/* Reads a file that nobody writes to any more, chunk by chunk. */
static ep_status
load_ended(ep_file_reader *reader, ep_recording *recording, ep_decoded *out, ep_error *error)
{
    ep_file_stream *s;
    ep_status status = ep_file_stream_open(reader, recording, &s, error);
    if (status != EP_OK) {
        return status;
    }
    ep_columns columns;
    ep_decoded read = {0};
    status = ep_decoder_take_all(s->decoder, &columns);
    if (status == EP_OK) {
        status = translate_rows(&s->loader, &columns, 0, NULL);
    }
    status = status == EP_IO ? ep_fail_os(error, errno) : status;
    status = status != EP_OK ? status : ep_file_stream_end(s, &read, error);
    if (status == EP_OK) {
        read.columns = columns;
        *out = read;
    } else {
        ep_columns_clear(&columns);
        ep_recording_clear(recording);
    }
    ep_file_stream_close(s);
    return status;
}

ep_status
ep_file_load(ep_file_reader *reader, ep_recording *recording, ep_decoded *out, ep_error *error)
{
    if (!reader->facts.writer_lives) {
        return load_ended(reader, recording, out, error);
    }
    for (int attempt = 1;; attempt++) {
        loader l = {.reader = reader, .last_try = attempt == READ_TRIES};
        ep_status status = load(&l, error);
        bool again = status == EP_OK && l.outrun && !l.last_try;
        if (status == EP_OK && !again) {
            status = decode_all(&l, recording, out, error);
        }
        clear_loader(&l);
        if (!again) {
            return status;
        }
    }
}
