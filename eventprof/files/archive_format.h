/* Shared by the archive's writer and reader: sections, and the events. Other code includes archive.h, the
 * interface. */
#ifndef EP_ARCHIVE_FORMAT_H
#define EP_ARCHIVE_FORMAT_H

#include <string.h>

#include "archive.h"
#include "codec.h"
#include "types.h"

/* ---- The file, little-endian ------------------------------------------------------------------
 *
 *   [header 64][section][section]...[index section][trailer 32]
 *   section: [header 48][stored bytes]
 *
 * All offsets below are in bytes from the start of the part. */

/* Readers refuse other versions, but a higher minor one, of which they skip what they do not know. */
#define EP_ARCHIVE_MAJOR 1
#define EP_ARCHIVE_MINOR 4
/* The first eventprof that reads this major version. */
#define EP_ARCHIVE_READER "0.1.0"

#define EP_ARCHIVE_MAGIC "EVPARCH\n"    /* 8 bytes, and 4 bytes that a transfer as text would change */
#define EP_ARCHIVE_TRANSFER "\x89\r\n\x1a"
#define EP_ARCHIVE_END "EVPAREND"
#define EP_ARCHIVE_HEADER_BYTES 64
#define EP_SECTION_HEADER_BYTES 48
#define EP_TRAILER_BYTES 32
#define EP_VERSION_BYTES 16
#define EP_RECORDING_BYTES 128

/* A section that claims more is an error: no writer makes one, and a reader would allocate that much. */
#define EP_SECTION_RAW_MAX (UINT64_C(64) << 20)
/* Writers begin a new section when a section of many items has so many bytes. */
#define EP_SECTION_RAW_GOAL ((size_t)16 << 20)
/* raw <= RATIO * stored + SLACK. If a section would shrink by more than 1000, writers store it
 * uncompressed: events with real times are never that regular, and readers can refuse a small file that
 * claims to grow huge. */
#define EP_SECTION_RATIO_MAX 1100
#define EP_SECTION_RATIO_GOAL 1000
#define EP_SECTION_RATIO_SLACK 4096

/* Readers' sums of times and sizes stay below. */
#define EP_ARCHIVE_SUM_MAX (INT64_MAX / 2)
#define EP_ARCHIVE_COUNT_MAX (UINT64_C(1) << 56)

typedef enum ep_section_type {
    EP_SECTION_RECORDING = 1,
    EP_SECTION_METADATA,
    EP_SECTION_STRINGS,
    EP_SECTION_NAMES,
    EP_SECTION_SITES,
    EP_SECTION_THREADS,
    EP_SECTION_OPEN,
    EP_SECTION_RESIDENT,
    EP_SECTION_EVENTS,
    EP_SECTION_INDEX,
    EP_SECTION_TASKS,
    EP_SECTION_WINDOWS,
    EP_SECTION_KINDS,
    EP_SECTION_OWN,
    EP_SECTION_TYPE_COUNT
} ep_section_type;

_Static_assert(EP_SECTION_TYPE_COUNT == EP_ARCHIVE_SECTION_TYPES, "archive.h lists them");

/* A section's header. Bytes: type 4, codec 1, zero 3, raw 8, stored 8, items 8, blocks 8, crc of
 * the stored bytes 4, crc of the 44 before 4. */
typedef struct ep_section {
    uint64_t offset;          /* of its header; not in the header */
    uint32_t type;            /* ep_section_type, or a type of a later version */
    uint8_t codec;            /* ep_codec */
    uint64_t raw_bytes, stored_bytes;
    uint64_t items;           /* in it */
    uint64_t blocks;          /* EVENTS: allocator events; 0 elsewhere */
    uint32_t crc;
} ep_section;

void ep_section_pack(const ep_section *section, uint8_t to[EP_SECTION_HEADER_BYTES]);
/* False: its checksum is wrong. The caller sets section->offset. */
bool ep_section_unpack(const uint8_t from[EP_SECTION_HEADER_BYTES], ep_section *section);

/* ---- Sections of events (archive_coder.c, _encode.c, _decode.c) ------------------------------- */

/* Rows of a section of events: as many as writers put into one, and the most that readers accept. */
#define EP_SECTION_ROWS ((size_t)1 << 18)
#define EP_SECTION_ROWS_MAX ((size_t)1 << 20)

typedef struct ep_events_coder ep_events_coder;

/* The ids that both directions need. Ids of the file are dense, from 1; 0: none. */
typedef struct ep_events_ids {
    size_t site_count, name_count;      /* one more than the highest id of the file */
    const uint32_t *site_callee;        /* of the file, name by site of the file */
    const uint32_t *site_map;           /* writing: process -> file; reading: file -> process */
    const uint32_t *name_map;
    size_t site_map_count, name_map_count;
    size_t thread_count;
    const ep_kind_info *kinds;          /* reading: by kind; kinds that are unknown here have no name */
} ep_events_ids;

/* What encoding or decoding needs, reused for each section. ids: copied, its arrays are views. Returns:
 * new. Fails: NULL, out of memory. */
ep_events_coder *ep_events_coder_new(const ep_events_ids *ids, bool writes);
void ep_events_coder_free(ep_events_coder *coder);

/* Encodes rows [row, row + count). *block: index of the first allocator event at or after `row`;
 * afterwards of the first one after these rows. Returns: view of the bytes, until the next call. */
const uint8_t *ep_events_encode(ep_events_coder *coder, const ep_columns *columns, size_t row,
                                size_t count, size_t *block, size_t *bytes);

/* Totals over all sections of events of a file while they are read. */
typedef struct ep_events_totals {
    int64_t duration_ns;      /* no time is later */
    int64_t last_ns;          /* last time of the sections so far: times never go back */
    int64_t size_sum;         /* of what was allocated; at most EP_ARCHIVE_SUM_MAX */
    uint64_t (*recorded)[EP_KIND_COUNT];    /* by thread row */
    int64_t *first_ns, *last_of_thread_ns;  /* by thread row */
} ep_events_totals;

/* Appends a section's rows; the columns have room for section->items rows and section->blocks allocator
 * events. On failure the columns' counts and *totals are as before. Returns: NULL, or what is wrong
 * (static). */
EP_CHECKED const char *ep_events_decode(ep_events_coder *coder, const uint8_t *bytes, size_t count,
                                        const ep_section *section, ep_columns *columns,
                                        ep_events_totals *totals);

#endif
