/* Shared by the archive's writer and reader: sections, checksums, codecs, and the events. In names of
 * functions and constants here a "block" is the events of one section. Other code includes archive.h. */
#ifndef EP_ARCHIVE_PARTS_H
#define EP_ARCHIVE_PARTS_H

#include <string.h>

#include "archive.h"
#include "types.h"

/* ---- The file, little-endian ------------------------------------------------------------------
 *
 *   [header 64][section][section]...[index section][trailer 32]
 *   section: [header 48][stored bytes]
 *
 * All offsets below are in bytes from the start of the part. */

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
#define EP_RECORDING_FIRST_FIELDS 13    /* in the first versions */

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

typedef enum ep_codec {
    EP_CODEC_RAW,
    EP_CODEC_ZLIB,
    EP_CODEC_ZSTD,
    EP_CODEC_COUNT
} ep_codec;

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

/* ---- Bytes ----------------------------------------------------------------------------------- */

static inline void
ep_store_le(uint8_t *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        to[i] = (uint8_t)(value >> 8 * i);
    }
}

static inline uint64_t
ep_load_le(const uint8_t *from, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) {
        value |= (uint64_t)from[i] << 8 * i;
    }
    return value;
}

#define EP_VARINT_BYTES 10

/* 7 bits a byte, the lowest first; the high bit says that more follow. Returns: one past the last byte. */
static inline uint8_t *
ep_store_varint(uint8_t *to, uint64_t value)
{
    while (value >= 0x80) {
        *to++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *to++ = (uint8_t)value;
    return to;
}

/* 0 -1 1 -2 2... -> 0 1 2 3 4... */
static inline uint64_t
ep_zigzag(int64_t value)
{
    return (uint64_t)value << 1 ^ (value < 0 ? UINT64_MAX : 0);
}

static inline int64_t
ep_unzigzag(uint64_t value)
{
    return (int64_t)(value >> 1 ^ (value & 1 ? UINT64_MAX : 0));
}

/* Bytes that are read from front to back; a view. Once it is `bad`, everything read is 0. */
typedef struct ep_input {
    const uint8_t *at, *end;
    bool bad;
} ep_input;

uint64_t ep_input_varint_slow(ep_input *input);

static inline uint64_t
ep_input_varint(ep_input *input)
{
    if (EP_LIKELY(input->at < input->end && *input->at < 0x80)) {
        return *input->at++;
    }
    return ep_input_varint_slow(input);
}

static inline uint8_t
ep_input_byte(ep_input *input)
{
    if (EP_UNLIKELY(input->at == input->end)) {
        input->bad = true;
        return 0;
    }
    return *input->at++;
}

uint64_t ep_input_le(ep_input *input, int bytes);
/* NULL: there are fewer bytes. */
const uint8_t *ep_input_take(ep_input *input, uint64_t bytes);

/* ---- Checksums and codecs (archive_codec.c) -------------------------------------------------- */

/* CRC-32 as in zlib and PNG. Begin with 0, and continue with the result. */
uint32_t ep_crc32(uint32_t crc, const void *bytes, size_t count);

/* Whether it is the checksum of these bytes; for readers. */
bool ep_crc32_is(uint32_t crc, const void *bytes, size_t count);

extern const char *const ep_codec_names[EP_CODEC_COUNT];

/* The codec that this build writes. */
ep_codec ep_codec_best(void);
bool ep_codec_usable(unsigned codec);

/* The largest compressed size of `bytes`. */
size_t ep_codec_bound(ep_codec codec, size_t bytes);

/* The state of a codec, reused for each section. A zeroed one is ready; ep_packer_clear() frees it. */
typedef struct ep_packer {
    void *compress, *decompress;
} ep_packer;

void ep_packer_clear(ep_packer *packer);

/* Compresses to `to`, which has ep_codec_bound() bytes. *stored: the compressed size. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_pack(ep_packer *packer, ep_codec codec, const uint8_t *from, size_t bytes,
                             uint8_t *to, size_t *stored);

/* Fails: EP_NOMEM, EP_FORMAT (the result is not exactly raw_bytes long). */
EP_CHECKED ep_status ep_unpack(ep_packer *packer, ep_codec codec, const uint8_t *from,
                               size_t stored_bytes, uint8_t *to, size_t raw_bytes);

/* ---- Blocks of events (archive_block.c, _encode.c, _decode.c) --------------------------------- */

/* Events of a block that is written; readers take up to MAX. */
#define EP_BLOCK_EVENTS ((size_t)1 << 18)
#define EP_BLOCK_EVENTS_MAX ((size_t)1 << 20)

typedef struct ep_block_coder ep_block_coder;

/* The ids that both directions need. Ids of the file are dense, from 1; 0: none. */
typedef struct ep_block_names {
    size_t site_count, name_count;      /* one more than the highest id of the file */
    const uint32_t *site_callee;        /* of the file, name by site of the file */
    const uint32_t *site_map;           /* writing: process -> file; reading: file -> process */
    const uint32_t *name_map;
    size_t site_map_count, name_map_count;
    size_t thread_count;
    const ep_kind_info *kinds;          /* reading: by kind; kinds that are unknown here have no name */
} ep_block_names;

/* names: a view. Returns: new. Fails: NULL, out of memory. */
ep_block_coder *ep_block_coder_new(const ep_block_names *names, bool writes);
void ep_block_coder_free(ep_block_coder *coder);

/* Encodes rows [row, row + count); *block: the first allocator event at or behind `row`, moves on.
 * Returns: view of the bytes, until the next call. */
const uint8_t *ep_block_encode(ep_block_coder *coder, const ep_columns *columns, size_t row,
                               size_t count, size_t *block, size_t *bytes);

/* Totals over all sections of events of a file while they are read. */
typedef struct ep_block_totals {
    int64_t duration_ns;      /* no time is later */
    int64_t last_ns;          /* last time of the sections so far: times never go back */
    int64_t size_sum;         /* of what was allocated; at most EP_ARCHIVE_SUM_MAX */
    uint64_t (*recorded)[EP_KIND_COUNT];    /* by thread row */
    int64_t *first_ns, *last_of_thread_ns;  /* by thread row */
} ep_block_totals;

/* Appends a block's rows; there is room for section->items and ->blocks of them. On failure the
 * columns' counts and *totals are as before. Returns: NULL, or what is wrong (static). */
EP_CHECKED const char *ep_block_decode(ep_block_coder *coder, const uint8_t *bytes, size_t count,
                                       const ep_section *section, ep_columns *columns,
                                       ep_block_totals *totals);

#endif
