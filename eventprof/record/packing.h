/* Packs the sealed chunks of a log file while the program runs: on a thread of its own, of low priority.
 *
 *   1. A chunk is sealed: ep_packing_add() makes a job.
 *   2. The thread packs the chunk into a new slot, which no reader takes yet.
 *   3. Some thread needs a chunk: ep_packing_commit() makes the packed slot valid, and the slot that the
 *      chunk had is free for the next chunk.
 *
 * So the file has each event at every instant; for a moment it has a chunk twice, and readers take the
 * packed slot. Like prefault.h's, the thread runs no Python, blocks all signals but SIGBUS, and is joined
 * before a fork and when the program's last thread ends. It never takes the engine's lock. */
#ifndef EP_PACKING_H
#define EP_PACKING_H

#include "engine.h"

/* From now on chunks of this file are packed; NULL: of none. Jobs that are not committed are dropped: their
 * chunks stay as they were. */
void ep_packing_use_file(ep_file *file) EP_ENGINE_LOCKED;

/* The kinds that the file's recorder wants, for ep_chunk.packed_events. */
void ep_packing_count(ep_kind_set kinds) EP_ENGINE_LOCKED;

/* The chunk was sealed. Does nothing if it is not one of the file's. */
void ep_packing_add(ep_chunk *chunk) EP_ENGINE_LOCKED;

/* Gives packed chunks their new slots. Cheap if there are none. */
void ep_packing_commit(void) EP_ENGINE_LOCKED;

/* For a caller that has no room: waits until one more chunk is packed, some milliseconds, and gives the
 * chunk its new slot, which frees the larger old one. False: no job is left to wait for. */
bool ep_packing_wait(void) EP_ENGINE_LOCKED;

/* At the stop: packs what is sealed and not packed yet, on the calling thread, then compacts the file. */
void ep_packing_finish(ep_recorder *recorder) EP_ENGINE_LOCKED;

/* Makes a copy in memory of what a packed chunk was before. Returns: new, with one reference, in
 * *out. Fails: EP_NOMEM; EP_FORMAT, another program changed the file. */
EP_CHECKED ep_status ep_packing_unpack(const ep_chunk *chunk, ep_chunk **out);

/* The kernel's id of the thread; 0: there is none, or it has just been started. */
uint64_t ep_packing_thread_id(void) EP_ENGINE_LOCKED;

/* Ends the thread. Jobs stay; the next ep_packing_add() starts it again. */
void ep_packing_pause(void) EP_ENGINE_LOCKED;

/* Around fork(). */
void ep_packing_before_fork(void) EP_ENGINE_LOCKED;
void ep_packing_after_fork(void) EP_ENGINE_LOCKED;

#endif
