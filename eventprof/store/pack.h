/* Packs the records of a chunk: 8 or 16 bytes an event become 1 to 2, without loss. Packing and unpacking
 * need no other chunk. doc/epr-log.rst specifies the bytes. */
#ifndef EP_PACK_H
#define EP_PACK_H

#include "format.h"
#include "types.h"

/* The memory that packing and unpacking need, about 5 MiB; reused for each chunk. */
typedef struct ep_chunk_packer ep_chunk_packer;

/* Returns: new. Fails: NULL, out of memory. */
ep_chunk_packer *ep_chunk_packer_new(void);
void ep_chunk_packer_free(ep_chunk_packer *packer);    /* NULL is fine */

/* For reading a file: `table` is its header's, with the kinds that its writer knew. */
void ep_chunk_packer_use_kinds(ep_chunk_packer *packer, const ep_file_kind table[EP_KIND_COUNT]);

/* Packs `count` words of records, at most EP_CHUNK_WORDS. ticks: of the chunk's `opened`. *packed: a view,
 * until the next call; *bytes: its length. The words may be anything: if one of them is not a record of
 * this version, all of them are compressed as they are, which packs less well. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_chunk_pack(ep_chunk_packer *packer, const uint64_t *words, size_t count,
                                   uint64_t ticks, const uint8_t **packed, size_t *bytes);

/* Writes exactly `count` words. The packed bytes may be anything. Fails: EP_FORMAT (they are damaged, or
 * this build lacks their codec; *why says which, static), EP_NOMEM. */
EP_CHECKED ep_status ep_chunk_unpack(ep_chunk_packer *packer, const uint8_t *packed, size_t bytes,
                                     uint64_t ticks, uint64_t *words, size_t count, const char **why);

#endif
