/* Hashes of texts, for tables and for keys that are made from text. */
#ifndef EP_HASH_H
#define EP_HASH_H

#include "types.h"

/* The hash of no bytes. */
#define EP_HASH_EMPTY UINT64_C(0xCBF29CE484222325)

/* FNV-1a. hash: of the bytes before these, or EP_HASH_EMPTY. */
static inline uint64_t
ep_hash_bytes(uint64_t hash, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001B3);
    }
    return hash;
}

#endif
