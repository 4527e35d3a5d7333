/* Shared by the files that read a log file. Other code includes file_read.h, the interface. */
#ifndef EP_FILE_READ_PARTS_H
#define EP_FILE_READ_PARTS_H

#include "file_ids.h"
#include "file_kinds.h"
#include "file_read.h"
#include "hash_index.h"
#include "pack.h"

/* Limits for the length of a recording and the rate of a clock, so that no product overflows. */
#define EP_SPAN_TICKS_MAX (UINT64_C(1) << 53)
#define EP_READ_TRIES 64

struct ep_file_reader {
    int descriptor;
    uint64_t bytes;           /* of the file, when last looked at */
    ep_file_header header;
    ep_file_facts facts;
    ep_record_check *check;   /* to be filled; NULL: not wanted */
};

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
    size_t chunk_bytes;    /* of the chunk in memory; more than `bytes` if the slot is packed */
    bool packed;
} ep_found_slot;

/* Where the records are of a chunk of which only the header was read. */
typedef struct ep_chunk_place {
    ep_found_slot slot;
    bool checked;    /* errors in them were noted */
} ep_chunk_place;

typedef struct ep_loader {
    ep_file_reader *reader;
    bool streams;                       /* only headers of chunks are kept; their records are read again */
    bool threads_known;                 /* no further thread gets a small id */
    bool last_try;                      /* chunks that the writer reuses meanwhile are left out */
    bool outrun;                        /* the writer reused a chunk: read once more from the start */
    ep_file_header header;              /* at the time of this load */
    char *state;                        /* EP_FILE_STATE_LIMIT */
    uint64_t state_bytes;
    uint64_t dropped_sequence;
    ep_found_slot *event_slots, *text_slots;
    size_t event_slot_count, event_slot_capacity, text_slot_count, text_slot_capacity;
    ep_chunk *chunks;
    size_t chunk_count, chunk_capacity;
    ep_chunk_place *places;             /* of each chunk */
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
    ep_read_name *names;
    size_t name_count, name_capacity;
    ep_read_site *sites;
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
} ep_loader;

/* ---- file_read_header.c ---------------------------------------------------------------------- */

/* Notes that something is missing or damaged. */
EP_PRINTF(2, 3) void ep_reader_note(ep_file_reader *reader, const char *format, ...);

/* Returns: bytes read, fewer at the file's end; -1 with errno. */
int64_t ep_reader_read_at(const ep_file_reader *reader, uint64_t offset, void *to, size_t bytes);

/* Reads the length of the file again, which may have changed. */
ep_status ep_reader_read_size(ep_file_reader *reader, ep_error *error);

/* Reads and checks the header, and fills in the facts. */
ep_status ep_reader_read_header(ep_file_reader *reader, ep_error *error);

/* ---- file_read_threads.c --------------------------------------------------------------------- */

/* The small id of a thread of the file, made at first sight. Returns: 0 without memory, or if the
 * id cannot be one. While loading, ep_thread.id is the file's. */
uint32_t ep_loader_thread_id(ep_loader *l, uint64_t id);

/* Sorts small ids by the ids of the file, so that rows are in the order of the program's own trace. Before,
 * they are in the order in which threads were seen. Afterwards no new small id is given. */
ep_status ep_loader_sort_threads(ep_loader *l);

/* ---- file_read_slots.c ----------------------------------------------------------------------- */

/* Reads the oldest events first, because a ring overwrites these first. Texts are read last, because a text
 * is written before the records that refer to it. */
ep_status ep_loader_read_slots(ep_loader *l, uint64_t stop_ticks, ep_error *error);

/* Reads a slot into `chunk`, which has room for the chunk and two more words, zeroed. notes: errors are
 * noted (ep_reader_note). *out: whether it is a chunk; it is then sealed, and its used words are complete
 * records. Fails: EP_IO, EP_NOMEM. */
EP_CHECKED ep_status ep_loader_read_chunk(ep_loader *l, const ep_found_slot *found, uint64_t stop_ticks,
                                          bool notes, ep_chunk_header *chunk, bool *out);

/* ---- file_read_texts.c ----------------------------------------------------------------------- */

/* Reads names, sites and threads from the slots of texts. */
void ep_loader_read_texts(ep_loader *l);

/* Interns all names and sites that were read. */
ep_status ep_loader_map_ids(ep_loader *l);

/* Ids of the file become ids of this process: in rows from `from` on. functions: is told of them; may be
 * NULL. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_loader_translate_rows(ep_loader *l, ep_columns *columns, size_t from,
                                              ep_functions_builder *functions);

/* Like ep_loader_translate_rows(), in the stacks of open calls of the window. */
void ep_loader_translate_window(ep_loader *l);

/* ---- file_read_state.c ----------------------------------------------------------------------- */

/* Reads and checks the state that counts now. If a writer switches to the other state and back meanwhile,
 * it is read again. */
ep_status ep_loader_read_state(ep_loader *l, ep_error *error);

/* Gives small ids to threads that only the state or the header mentions, before the window is made. */
void ep_loader_name_threads(ep_loader *l);

/* Fills the windows of the threads from the state. Threads and sites must be known. */
ep_status ep_loader_fill_window(ep_loader *l);

#endif
