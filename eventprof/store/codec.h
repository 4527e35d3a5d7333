/* Small parts of compressed files: numbers as bytes, checksums, and the codecs that the build found. */
#ifndef EP_CODEC_H
#define EP_CODEC_H

#include "types.h"

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

/* ---- Checksums and codecs -------------------------------------------------------------------- */

typedef enum ep_codec {
    EP_CODEC_RAW,
    EP_CODEC_ZLIB,
    EP_CODEC_ZSTD,
    EP_CODEC_COUNT
} ep_codec;

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

/* The state of a codec, reused for each section or chunk. A zeroed one is ready; ep_packer_clear() frees
 * it. */
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

#endif
