/* Packs the sealed chunks of a log file while the program runs: on a thread of its own, of low priority.
 *
 *   seal --> packing_add: a job --> the thread packs it into a new slot, which no reader sees yet
 *        --> packing_commit, with the next chunk that anybody needs: the packed slot becomes valid, the
 *            chunk's own slot is not wanted any more, and is free for the next chunk
 *
 * So the file has each event at every instant; for a moment a chunk is there twice, and readers take the
 * packed one. Like ahead.h's, the thread runs no Python, blocks all signals but SIGBUS, and is joined
 * before a fork. All functions are called under the engine's lock, which the thread never takes. */
#ifndef EP_PACKING_H
#define EP_PACKING_H

#include "engine.h"

/* Chunks of this file are packed from now on; NULL: none are. What is not committed stays as it was. */
void ep_packing_use_file(ep_file *file);

/* The kinds that the file's recorder wants, for ep_chunk.packed_events. */
void ep_packing_count(ep_kind_set kinds);

/* The chunk was sealed. Does nothing if it is not one of the file's. */
void ep_packing_add(ep_chunk *chunk);

/* Gives packed chunks their new slots. Cheap if there are none. */
void ep_packing_commit(void);

/* Waits until one more chunk is packed, at most some milliseconds, and gives it its new slot: the caller
 * has no room otherwise. False: there is none to wait for. */
bool ep_packing_wait(void);

/* At the end: packs whatever is sealed and not packed yet, on the calling thread. */
void ep_packing_finish(ep_recorder *recorder);

/* A copy of a packed chunk in memory, as it was. Without the engine's lock. Returns: new, with one
 * reference, in *out. Fails: EP_NOMEM; EP_FORMAT, somebody else changed the file. */
EP_CHECKED ep_status ep_packing_unpack(const ep_chunk *chunk, ep_chunk **out);

/* Around fork(). */
void ep_packing_before_fork(void);
void ep_packing_after_fork(void);

#endif
