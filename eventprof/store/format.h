/* The bytes of a log file, for its writer (file.h) and its readers. doc/epr-log.rst specifies them.
 *
 *   head: header | metadata     slot, slot, ...: each a chunk of records, of text, or a state
 *
 * Slots are as long as the first header in them says, 4 KiB to 1 MiB. Two states, written in turn, describe
 * the events that a ring dropped: their counts, and the calls that were open where the ring now begins. One
 * word of the header says which state counts. */
#ifndef EP_FORMAT_H
#define EP_FORMAT_H

#include <stddef.h>

#include "types.h"

#define EP_FILE_MAGIC "EVPLOG\x1a\n"
/* Readers refuse other versions, but a higher minor one, of which they ignore what they do not know. */
#define EP_FILE_MAJOR 3             /* of files whose chunks may be packed; minor 0 */
#define EP_FILE_MAJOR_UNPACKED 2    /* of files whose chunks are not packed, */
#define EP_FILE_MINOR 2             /* and their minor version */
#define EP_FILE_BYTE_ORDER UINT32_C(0x01020304)
#define EP_FILE_METADATA_OFFSET 4096
#define EP_FILE_METADATA_LIMIT (UINT64_C(65536) - EP_FILE_METADATA_OFFSET)
/* A state has one slot: it cannot be longer. */
#define EP_FILE_STATE_LIMIT (EP_CHUNK_BYTES - EP_CHUNK_HEADER_BYTES)

typedef enum ep_file_phase {
    EP_FILE_NEW,          /* no recording yet */
    EP_FILE_RECORDING,
    EP_FILE_FINISHED      /* `stop` is valid */
} ep_file_phase;

typedef enum ep_full_reason {
    EP_FULL_NOT,
    EP_FULL_LIMIT,
    EP_FULL_NOMEM,
    EP_FULL_DISK     /* its file cannot grow */
} ep_full_reason;

#define EP_FILE_KIND_WORD_BYTES 20
#define EP_FILE_WORKER_BYTES 64

/* Describes a kind of event for readers that do not know it. */
typedef struct ep_file_kind {
    uint8_t words;                     /* length of its records in 64-bit words; 0: there is none */
    uint8_t form, pairing, domain;   /* ep_form, ep_pairing, ep_domain */
    char word[EP_FILE_KIND_WORD_BYTES];    /* as the event column has it; ended by a zero */
} ep_file_kind;

typedef struct ep_file_header {
    char magic[8];
    uint16_t major, minor;
    uint32_t byte_order;
    uint32_t header_bytes;             /* size of this struct; a later version's may be larger */
    uint32_t slot_bytes;               /* slots begin and end at multiples of this */
    uint64_t process_id, parent_process_id;
    uint64_t kinds;                    /* below 64 that were asked for: ep_file_kinds() */
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
    ep_anchor beats[2];                /* recent anchors, for the slope of the clock */
    _Atomic uint64_t texts_lost;       /* names, sites and threads that found no room */
    char calls_from[16];               /* words of the package: the hook for calls, */
    char displaced[64];                /* and the hooks that another tool took over */
    /* ep_recording's, by hooks; at the stop. */
    uint64_t deep_calls, short_calls, functions_off;
    /* The length of the file in units of slot_bytes; it is never shorter. */
    _Atomic uint64_t slots;
    /* Where the first slot begins, where the two states do, and their room. */
    uint64_t head_bytes;
    _Atomic uint64_t state_offset[2];    /* 0: not written yet */
    _Atomic uint64_t state_room[2];
    _Atomic uint32_t limits;             /* bits: EP_LIMIT_... */
    _Atomic uint32_t children_lost;      /* forked processes that could not write a file of their own */
    _Atomic uint32_t children_error;     /* errno of the last of them */
    uint32_t reserved;
    uint64_t kinds_high;                 /* as `kinds`, from 64 on */
    ep_file_kind kind_table[EP_KIND_COUNT];    /* index = kind */
    int64_t start_own_bytes, stop_own_bytes;    /* of the resident set; 0: unknown */
    /* What a pool or a server calls the process; UTF-8, zeros: it has no such name, or the file is of a
     * version without it. */
    char worker[EP_FILE_WORKER_BYTES];
} ep_file_header;

/* A header without `worker`, after which there are zeros. */
#define EP_FILE_HEADER_BYTES_MIN offsetof(ep_file_header, worker)

/* The kinds that were asked for. */
static inline ep_kind_set
ep_file_kinds(const ep_file_header *header)
{
    return (ep_kind_set)header->kinds_high << 64 | header->kinds;
}

static inline void
ep_file_set_kinds(ep_file_header *header, ep_kind_set kinds)
{
    header->kinds = (uint64_t)kinds;
    header->kinds_high = (uint64_t)(kinds >> 64);
}

/* Events that limited the file while the recording went on. */
#define EP_LIMIT_SMALL_DISK 1u    /* the disk was full before the buffer was: it holds less than that */
#define EP_LIMIT_CUT 2u           /* another program cut the file off; later events are not in it */
#define EP_LIMIT_ROOM 8u          /* the files of all processes had reached their limit: it holds less than
                                     its buffer */
#define EP_LIMIT_LATE 4u          /* another recorder's file took the events: this one is written
                                     when its recorder stops */

_Static_assert(sizeof(ep_file_header) <= EP_FILE_METADATA_OFFSET, "the metadata lie after it");

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

/* A slot with this magic holds a state, after a chunk's header. */
#define EP_FILE_STATE_MAGIC UINT32_C(0x53505645) /* "EVPS" */

/* A slot with this magic holds a chunk whose records are packed (pack.h), after its header. Its `bytes`
 * are the slot's; `used_words`, `sum` and all else are of the chunk as it was. While
 * the chunk's own slot is there, too, that slot is not to be read. */
#define EP_FILE_PACKED_MAGIC UINT32_C(0x50505645) /* "EVPP" */

/* Texts: a chunk with this magic whose records are of these types. */
#define EP_FILE_TEXT_MAGIC UINT32_C(0x4E505645) /* "EVPN" */

typedef enum ep_file_text {
    EP_FILE_TEXT_STRING = 1,    /* fields: id, bytes; then the bytes */
    EP_FILE_TEXT_NAME,          /* id, qualname, module, file, line, kind */
    EP_FILE_TEXT_SITE,          /* id, callee, caller, offset, line */
    EP_FILE_TEXT_THREAD,        /* id, bytes, native id (low, high); then the bytes of its name */
    EP_FILE_TEXT_RESIDENT,      /* CLOCK_MONOTONIC in ns (low, high), the resident set then (low, high),
                                   the recorder's own part of it (low, high; 0: unknown) */
    EP_FILE_TEXT_LANE           /* id of a thread that is a lane (lanes.h), id of the thread that runs it */
} ep_file_text;

#define EP_FILE_STRING_LIMIT 65536    /* bytes of a text that are kept */

/* Four sums over every fourth word, folded. Not cryptographic; cheap enough for every sealed
 * chunk: 0.05 ms a MiB, measured. `bytes` is a multiple of 8. */
uint64_t ep_sum64(const void *at, size_t bytes);

#endif
