/* The log file: a recording that is on file while it is made. doc/epr-log.rst specifies the bytes.
 *
 *   slot 0: header | metadata | state A | state B     slot n: a chunk of records, or of text
 *
 * Slots are EP_CHUNK_BYTES long and mapped shared, so that every record is in the kernel's page
 * cache the moment it is written: whatever ends the process, the file holds it. What a ring dropped
 * (counts, and the calls that were open where it now begins) is in two states that are written in
 * turn; one word says which of them counts.
 *
 * One process writes; a forked child has a file of its own and never touches this one. The file's
 * lock is a leaf: nothing is called under it but the C library. */
#ifndef EP_FILE_H
#define EP_FILE_H

#include "decode.h"
#include "engine.h"
#include "names.h"
#include "recording.h"
#include "types.h"

/* ---- Bytes ----------------------------------------------------------------------------------- */

#define EP_FILE_MAGIC "EVPLOG\x1a\n"
#define EP_FILE_MAJOR 1    /* readers refuse a higher one */
#define EP_FILE_MINOR 4    /* readers ignore what they do not know of a higher one */
#define EP_FILE_BYTE_ORDER UINT32_C(0x01020304)
#define EP_FILE_METADATA_OFFSET 4096
#define EP_FILE_METADATA_LIMIT (UINT64_C(65536) - EP_FILE_METADATA_OFFSET)
#define EP_FILE_STATE_OFFSET(which) (UINT64_C(65536) + (uint64_t)(which) * EP_FILE_STATE_BYTES)
#define EP_FILE_STATE_BYTES UINT64_C(491520)

_Static_assert(EP_FILE_STATE_OFFSET(2) <= EP_CHUNK_BYTES, "both states lie in slot 0");

typedef enum ep_file_phase {
    EP_FILE_NEW,          /* no recording yet */
    EP_FILE_RECORDING,
    EP_FILE_FINISHED      /* `stop` holds */
} ep_file_phase;

typedef struct ep_file_header {
    char magic[8];
    uint16_t major, minor;
    uint32_t byte_order;
    uint32_t header_bytes;             /* of this struct: a later one is longer */
    uint32_t slot_bytes;
    uint64_t process_id, parent_process_id;
    uint64_t kinds;
    uint32_t clock_mode;               /* ep_clock_mode */
    uint32_t only_thread;              /* id of the one thread that is wanted; 0: all */
    uint64_t step_ticks;
    ep_anchor birth, start, stop;
    int64_t start_realtime_ns, start_boottime_ns;
    int64_t start_resident_bytes, stop_resident_bytes;
    uint64_t metadata_bytes;
    uint64_t full_ticks;               /* events later than this are lost; all ones: it was not full */
    _Atomic uint32_t full_reason;      /* ep_full_reason */
    _Atomic uint32_t phase;            /* ep_file_phase */
    _Atomic uint32_t state;            /* which of the two counts */
    _Atomic uint32_t beat;             /* which of `beats` counts */
    ep_anchor beats[2];                /* an instant not long ago: for the slope of the clock */
    _Atomic uint64_t texts_lost;       /* names, sites and threads that found no room */
    char calls_from[16];               /* words of the package's: which hook calls came from, */
    char displaced[64];                /* and which were taken over by another tool */
    /* From minor version 1 on: ep_recording's, by hooks; at the stop. */
    uint64_t deep_calls, short_calls, functions_off;
    /* From minor version 4 on: of the file, this one included; it is never shorter. */
    _Atomic uint64_t slots;
} ep_file_header;

#define EP_FILE_FIRST_HEADER_BYTES offsetof(ep_file_header, deep_calls)    /* of minor version 0 */

_Static_assert(sizeof(ep_file_header) <= EP_FILE_METADATA_OFFSET, "the metadata lie behind it");

/* A state: this, then for each thread an ep_file_thread_state, its counts (kind, lost), its calls. */
typedef struct ep_file_state {
    uint64_t dropped_sequence;         /* the chunk whose loss was counted last: not to be read */
    uint32_t thread_count;
    uint32_t bytes;                    /* of what follows */
    uint64_t sum;                      /* ep_sum64() of what follows */
    uint64_t incomplete;               /* threads that found no room */
} ep_file_state;

typedef struct ep_file_thread_state {
    uint32_t thread_id, count_count, depth, reserved;
} ep_file_thread_state;

typedef struct ep_file_pair {
    uint64_t first, second;            /* kind, lost; or kind | before << 8, site of an open call */
} ep_file_pair;

/* Texts: a chunk with this magic whose records are of these types. */
#define EP_FILE_TEXT_MAGIC UINT32_C(0x4E505645) /* "EVPN" */

typedef enum ep_file_text {
    EP_FILE_TEXT_STRING = 1,    /* fields: id, bytes; then the bytes */
    EP_FILE_TEXT_NAME,          /* id, qualname, module, file, line, kind */
    EP_FILE_TEXT_SITE,          /* id, callee, caller, offset, line */
    EP_FILE_TEXT_THREAD         /* id, bytes, native id (low, high); then the bytes of its name */
} ep_file_text;

#define EP_FILE_STRING_LIMIT 65536    /* bytes of a text that are kept */

/* Four sums over every fourth word, folded. Not cryptographic; cheap enough for every sealed
 * chunk: 0.05 ms a MiB, measured. `bytes` is a multiple of 8. */
uint64_t ep_sum64(const void *at, size_t bytes);

/* ---- Writing --------------------------------------------------------------------------------- */

/* Paths are patterns: %p is the process's number, %% a %. */
typedef struct ep_file_options {
    const char *path;
    const char *child_path;            /* of forked children */
    bool replace;                      /* a regular file that is there goes */
    const char *metadata;              /* JSON */
    size_t metadata_bytes;
} ep_file_options;

/* Copies what it is given. Returns: new in *out, one reference. Fails: EP_NOMEM, EP_IO (with
 * error->os_error), EP_ARGUMENT (metadata too long); no file is left. */
EP_CHECKED ep_status ep_file_create(const ep_file_options *options, ep_file **out, ep_error *error);

ep_file *ep_file_hold(ep_file *file);
/* The last reference closes the file. */
void ep_file_release(ep_file *file);

/* Returns: view. */
const char *ep_file_path(const ep_file *file);
ep_file_header *ep_file_get_header(ep_file *file);

/* A zeroed slot, its room on the disk given: writing into it cannot fail any more. Unmap it with
 * ep_os_unmap(). Returns: NULL if the disk is full or the system refuses. */
void *ep_file_take_slot(ep_file *file);

/* From here on every name, site and thread is written to it, after all those that there are.
 * One file at a time has them. Under the engine's lock. */
void ep_file_begin_texts(ep_file *file);
void ep_file_end_texts(void);

/* Publishes what was lost, and that the chunk `dropped_sequence` is (UINT64_MAX: none). */
void ep_file_put_state(ep_file *file, uint64_t dropped_sequence, ep_window_thread *const *threads,
                       size_t thread_count);
void ep_file_put_beat(ep_file *file, ep_anchor anchor);

/* The recording is over: cuts off the slots that nobody used. */
void ep_file_finish(ep_file *file);

/* Around fork(), under the engine's lock. In the child no file has the texts any more, and the
 * parent's is left as it is. */
void ep_file_before_fork(void);
void ep_file_after_fork(bool child);
void ep_file_abandon(ep_file *file);

/* For a child of the process that made `parent`: a file beside it, at the path that its pid gives.
 * Returns: new, or NULL. */
ep_file *ep_file_create_for_child(const ep_file *parent);

/* ---- What the engine and the name tables tell it (no-ops while no file has the texts) --------- */

extern _Atomic(ep_file *) ep_file_of_texts;

void ep_file_put_string(uint32_t id, ep_text text);
void ep_file_put_name(uint32_t id, const ep_name *name);
void ep_file_put_site(uint32_t id, const ep_site *site);
void ep_file_put_thread(const ep_thread *thread);

static inline bool
ep_file_wants_texts(void)
{
    return atomic_load_explicit(&ep_file_of_texts, memory_order_relaxed) != NULL;
}

/* ---- Reading --------------------------------------------------------------------------------- */

typedef struct ep_file_reader ep_file_reader;

#define EP_FILE_NOTES 8

/* What the file shows of itself; grows more exact when the events are loaded. */
typedef struct ep_file_facts {
    uint16_t major, minor;
    ep_file_phase phase;
    bool writer_lives;             /* more may come */
    bool counter;                  /* its clock is the processor's counter */
    uint64_t bytes;
    uint64_t event_slots, text_slots, other_slots;    /* other: given up, or never used */
    uint64_t only_thread;
    uint64_t parent_process_id;
    uint64_t texts_lost;
    char calls_from[16], displaced[64];    /* as in the header, terminated */
    uint64_t note_count;           /* what is missing or damaged, the first of it in words */
    char notes[EP_FILE_NOTES][160];
} ep_file_facts;

/* Reads and checks the header; takes the descriptor over. Anything may be in the file: nothing is
 * believed, and no more memory is taken than a few times its length. Returns: new in *out
 * (ep_file_close). Fails: EP_FORMAT, EP_IO, EP_NOMEM. */
EP_CHECKED ep_status ep_file_open(int descriptor, ep_file_reader **out, ep_error *error);
void ep_file_close(ep_file_reader *reader);

const ep_file_facts *ep_file_get_facts(const ep_file_reader *reader);

/* Every event of the file, as of now, with ids of this process; may be called again while the
 * writer lives. *recording is filled (ep_recording_clear). Returns: new in *out (ep_decoded_clear).
 * Fails: EP_FORMAT, EP_IO, EP_NOMEM; nothing to clear then. */
EP_CHECKED ep_status ep_file_load(ep_file_reader *reader, ep_recording *recording, ep_decoded *out,
                                  ep_error *error);

/* The next load looks at the records once more, for verify.h. out: until the reader is closed. */
typedef struct ep_record_check ep_record_check;
void ep_file_check_records(ep_file_reader *reader, ep_record_check *out);

/* The recording without its events. */
EP_CHECKED ep_status ep_file_describe(ep_file_reader *reader, ep_recording *recording,
                                      ep_error *error);

#endif
