/* What the files that read a log file share. Nobody else includes this; file_read.h is the interface. */
#ifndef EP_FILE_READ_PARTS_H
#define EP_FILE_READ_PARTS_H

#include "file_kinds.h"
#include "file_read.h"

/* No recording lasts longer, and no clock is slower or faster: so that no product overflows. */
#define EP_SPAN_TICKS_MAX (UINT64_C(1) << 53)
#define EP_READ_TRIES 64

struct ep_file_reader {
    int descriptor;
    uint64_t bytes;           /* of the file, when last looked at */
    ep_file_header header;
    ep_file_facts facts;
    ep_record_check *check;   /* to be filled; NULL: not wanted */
};

/* Ids of the file to what they are here; index = id. */
typedef struct ep_id_table {
    uint32_t *ids;
    size_t count, capacity;
} ep_id_table;

typedef struct ep_read_name {
    uint32_t qualname, module, file;
    int32_t line;
    uint32_t kind;
    bool known;
} ep_read_name;

typedef struct ep_read_site {
    uint32_t callee, caller;
    int32_t offset, line;
    uint32_t task;    /* 1 + string; 0: none */
    bool known;
} ep_read_site;

typedef struct ep_found_slot {
    uint64_t sequence, offset;
    size_t bytes;
} ep_found_slot;

/* Where a chunk that is a header alone has its records. */
typedef struct ep_chunk_place {
    ep_found_slot slot;
    bool checked;    /* what is wrong with them was noted */
} ep_chunk_place;

typedef struct ep_loader {
    ep_file_reader *reader;
    bool streams;                       /* chunks are headers alone; their records are read again */
    bool threads_known;                 /* no other gets a small id */
    bool last_try;                      /* what the writer takes away meanwhile is left out */
    bool outrun;                        /* it did: once more from the start */
    ep_file_header header;              /* as of this load */
    char *state;                        /* EP_FILE_STATE_LIMIT */
    uint64_t state_bytes;
    uint64_t dropped_sequence;
    ep_found_slot *event_slots, *text_slots;
    size_t event_slot_count, event_slot_capacity, text_slot_count, text_slot_capacity;
    ep_chunk *chunks;
    size_t chunk_count, chunk_capacity;
    ep_chunk_place *places;             /* of each chunk */
    size_t place_capacity;
    void **texts;                       /* text slots, whole */
    size_t text_count, text_capacity;
    uint64_t text_bytes;                /* of all of them */
    ep_thread *threads;                 /* index = small id; [0] is nobody */
    size_t thread_count, thread_capacity;
    ep_resident *resident;              /* samples, as they were written */
    size_t resident_count, resident_capacity;
    uint64_t *thread_slots;             /* open addressing: file id << 24 | small id; 0: empty */
    size_t thread_mask;
    uint64_t last_ticks;                /* of all records of the window */
    ep_text *strings;
    size_t string_count, string_capacity;
    ep_read_name *names;
    size_t name_count, name_capacity;
    ep_read_site *sites;
    size_t site_count, site_capacity;
    ep_id_table name_ids, site_ids;
    ep_window_thread *window;
    size_t window_count;
    uint32_t only_thread;               /* small; 0: all */
    size_t unknown_ids;
    ep_record_shape shape;
    uint64_t unknown_events;            /* of kinds that are not known here */
    ep_kind_set unknown_kinds;
} ep_loader;

/* ---- file_read_header.c ---------------------------------------------------------------------- */

/* Something is missing, or damaged. */
EP_PRINTF(2, 3) void ep_reader_note(ep_file_reader *reader, const char *format, ...);

/* Returns: bytes read, fewer at the file's end; -1 with errno. */
int64_t ep_reader_read_at(const ep_file_reader *reader, uint64_t offset, void *to, size_t bytes);

/* The file may be longer, or shorter, by now. */
ep_status ep_reader_read_size(ep_file_reader *reader, ep_error *error);

/* Reads and checks the header, and fills the facts that it shows. */
ep_status ep_reader_read_header(ep_file_reader *reader, ep_error *error);

/* ---- file_read_threads.c --------------------------------------------------------------------- */

/* The small id of a thread of the file, made at first sight. Returns: 0 without memory, or if the
 * id cannot be one. While loading, ep_thread.id is the file's. */
uint32_t ep_loader_thread_id(ep_loader *l, uint64_t id);

/* Small ids in the order of the file's, so that rows are in the order of the program's own trace:
 * until now they are in order of sight. No small id is given after this but for a known id. */
ep_status ep_loader_sort_threads(ep_loader *l);

/* Room for a chunk of that length: translated, each two words of version 1 may become four. */
static inline size_t
ep_loader_chunk_room(const ep_loader *l, size_t bytes)
{
    return l->header.major == 1 ? bytes * 2 : bytes;
}

/* ---- file_read_slots.c ----------------------------------------------------------------------- */

/* The oldest events first, because a ring takes those away first; the texts last: what a record
 * refers to was written before it. */
ep_status ep_loader_read_slots(ep_loader *l, uint64_t stop_ticks, ep_error *error);

/* Reads what is in a slot into `chunk`, which has room for it and two words more, zeroed; tells: notes
 * what is wrong with it. *out: whether it is a chunk; then it is sealed, and its used words are whole.
 * Fails: EP_IO, EP_NOMEM. */
EP_CHECKED ep_status ep_loader_read_chunk(ep_loader *l, const ep_found_slot *found, uint64_t stop_ticks,
                                          bool tells, ep_chunk_header *chunk, bool *out);

/* ---- file_read_texts.c ----------------------------------------------------------------------- */

/* Takes names, sites and threads from the slots of texts. */
void ep_loader_read_texts(ep_loader *l);

/* Makes names and sites of this process of all that were read. */
ep_status ep_loader_map_ids(ep_loader *l);

/* Ids of the file become ids of this process: in rows from `from` on. */
void ep_loader_translate_rows(ep_loader *l, ep_columns *columns, size_t from);

/* The same in the stacks of open calls of the window. */
void ep_loader_translate_window(ep_loader *l);

/* ---- file_read_state.c ----------------------------------------------------------------------- */

/* The state that counts now, checked. A writer may go on to the other one, and back, while we read:
 * then once more. */
ep_status ep_loader_read_state(ep_loader *l, ep_error *error);

/* Threads that only the state or the header knows get their small id before the window is made. */
void ep_loader_name_threads(ep_loader *l);

/* The windows of the threads, from the state. Threads and sites are known. */
ep_status ep_loader_fill_window(ep_loader *l);

#endif
