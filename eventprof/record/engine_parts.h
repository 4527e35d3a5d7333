/* What the files of the engine share: its state, and the functions that they call in each other. Nobody
 * else includes this; engine.h is the interface. The caller holds the engine's lock, except where a comment
 * says otherwise. */
#ifndef EP_ENGINE_PARTS_H
#define EP_ENGINE_PARTS_H

#include <pthread.h>

#include "engine.h"

/* Bytes of free chunks kept for the next recording once nothing records: enough for a few threads. */
#define EP_SPARE_BYTES_WHEN_IDLE (4 * EP_CHUNK_BYTES)
/* Sizes of chunks: EP_CHUNK_BYTES_MIN << 0 to 8. */
#define EP_CHUNK_CLASS_COUNT 9

struct ep_engine {
    pthread_mutex_t lock;
    ep_log *logs;
    size_t log_count;
    size_t look_at;                   /* how many logs there must be before dead ones are looked for */
    ep_thread **threads;              /* index = id - 1 */
    size_t thread_count, thread_capacity;
    bool filer_is_child;              /* forked: the file is still to be made */
    size_t expected_count;            /* threads with an entry and no log yet */
    ep_recorder *recorders;           /* started and not settled */
    size_t running_count;
    ep_chunk *free_chunks[EP_CHUNK_CLASS_COUNT];    /* of memory, by size */
    ep_chunk *partial_chunks;
    ep_recorder *filer;               /* running, with a file that is its own; NULL: none */
    ep_chunk *free_slots[EP_CHUNK_CLASS_COUNT];     /* of that file */
    uint64_t slot_bytes;              /* of all its slots for records */
    size_t chunks_mapped, chunks_free, bytes_mapped, bytes_free;    /* of memory */
    uint64_t next_sequence;
    ep_anchor birth;                  /* far from any window, for the slope of the clock */
    ep_shared_kinds kinds;
    _Atomic uint64_t unlogged[EP_KIND_COUNT];
    uint64_t left_out[EP_LEFT_OUT_COUNT];    /* by threads that ended */
    bool initialised;
};

extern EP_HIDDEN struct ep_engine ep_engine;

/* ---- engine.c -------------------------------------------------------------------------------- */

/* Without the lock. */
void ep_engine_lock(void);
void ep_engine_unlock(void);

/* The set of kinds that hooks see becomes the union of what the running recorders want. */
void ep_engine_update_kinds(void);

/* ---- engine_check.c: in builds with EP_CHECKS alone ------------------------------------------ */

#ifdef EP_CHECKS
void ep_engine_check(void);
/* One recorder, with its windows of threads: what they lost, and the calls that were open. */
void ep_recorder_check(const ep_recorder *recorder);
#endif

/* ---- loss.c ---------------------------------------------------------------------------------- */

/* Returns: view into the recorder, or NULL without memory. */
ep_window_thread *ep_recorder_thread(ep_recorder *recorder, uint64_t thread_id);

/* Counts what `cursor` still yields of the window as lost: into the recorder, folding calls if
 * `fold`; or into `capture`, if that is not NULL. */
void ep_loss_count(ep_recorder *recorder, ep_cursor cursor, bool fold, ep_capture *capture);

/* The records of a log that has no chunk are counted now; they will be overwritten. */
void ep_loss_count_scratch(const ep_log *log);

/* What a recorder lost in places that are not sealed yet; at sealing it is counted for good. */
void ep_loss_count_unsealed(ep_recorder *recorder, ep_capture *capture);

/* ---- chunks.c -------------------------------------------------------------------------------- */

/* One who kept it does so no more. */
void ep_chunk_release(ep_chunk *chunk);

/* `next`: the first unused word. After this nobody writes there. */
void ep_chunk_seal(ep_chunk *chunk, const _Atomic uint64_t *next);

/* The rest that a dead thread left in it is for nobody. */
void ep_chunk_seal_partial(ep_chunk *partial);

/* No log goes on where it is. Those that are there may be met once more: by a thread that holds no
 * lock of the runtime's. */
void ep_chunks_leave(void);

/* No log goes on in a chunk that is larger: what it has room for would be more than a new recorder is to
 * keep. */
void ep_chunks_leave_large(size_t bytes);

void ep_chunk_unmap(ep_chunk *chunk);

/* Unmaps free chunks of memory until no more than these bytes are kept. */
void ep_chunks_trim(size_t spare_bytes);

/* Unmaps the free slots of the filer's file. */
void ep_chunks_unmap_slots(void);

/* A chunk for the next records, after every recorder made up its mind about its limit; of `bytes`, or of
 * less. `first`: the thread has none yet, so it gets one beyond the limit. Returns: NULL without memory. */
ep_chunk *ep_chunk_find(uint64_t ticks, size_t bytes, bool first);

/* The log goes on in its scratch, where the next record overwrites: it has no chunk. */
void ep_log_use_scratch(ep_log *log, uint64_t ticks);

/* The log goes on in a free chunk, which all recorders that run keep. */
void ep_log_use_chunk(ep_log *log, ep_chunk *chunk, uint64_t ticks);

/* The log goes on in what a dead thread left of its chunk. */
void ep_log_use_partial(ep_log *log, ep_chunk *chunk, uint64_t ticks);

/* The size of a thread's first chunk. */
size_t ep_chunk_first_bytes(void);

/* ---- kept.c ---------------------------------------------------------------------------------- */

bool ep_kept_has(const ep_recorder *recorder, const ep_chunk *chunk);

/* Appends; chunks are opened in order of sequence. Fails: false, nothing changed. */
bool ep_kept_add(ep_recorder *recorder, ep_chunk *chunk);

/* Gives all of them back. */
void ep_kept_release(ep_recorder *recorder);

/* The oldest chunk that nobody writes any more. False if there is none. */
bool ep_kept_drop_oldest(ep_recorder *recorder);

/* From `ticks` on it keeps nothing new; what comes is counted. */
void ep_kept_become_full(ep_recorder *recorder, uint64_t ticks, ep_full_reason reason);

/* In bytes. */
uint64_t ep_kept_limit(const ep_recorder *recorder);

/* The largest chunk for a thread of those that live: one of 1 MiB for each would be most of a small buffer,
 * and of no use to the others. */
size_t ep_kept_largest_chunk(const ep_recorder *recorder);

/* Makes up its mind about one chunk more, of *bytes or, if that is too much, of less, for a record at
 * `ticks`. `first`: the thread has none, and gets one of the smallest in any case. */
void ep_kept_apply_limit(ep_recorder *recorder, uint64_t ticks, bool first, size_t *bytes);

/* Whether it keeps the chunks that are opened now. */
bool ep_kept_takes(const ep_recorder *recorder);

/* ---- filer.c --------------------------------------------------------------------------------- */

/* Writes what the recorder lost, and its open calls, to its file; as ep_file_put_state(). */
void ep_filer_put_state(ep_recorder *recorder, uint64_t dropped_sequence);

/* A chunk of memory, or of a file of before, that was in use when the recorder started: a thread that
 * holds no lock of the runtime's may have written there once more. Sealed, or its records so far. */
void ep_filer_copy(ep_recorder *recorder, ep_chunk *chunk);

/* The chunk and its copy in a file go different ways. */
void ep_filer_forget_copy(ep_chunk *chunk);

/* The recorder dropped it, and counted what was in it. */
void ep_filer_drop(ep_recorder *recorder, ep_chunk *chunk);

/* The header of its file says what is recorded, and that it is. */
void ep_filer_begin(ep_recorder *recorder);

/* Names, sites and threads are written to the file from here on, and all that there are. */
void ep_filer_begin_texts(ep_file *file);

/* A forked child's file is made when it has something to say: many a child just becomes another
 * program. */
void ep_filer_make_child_file(void);

/* At the stop: what is not in its file yet is copied, and the file is finished. */
void ep_filer_end(ep_recorder *recorder);

/* The file of a recorder that ran beside one that has a file: all of it, at its stop. */
void ep_filer_write_late(ep_recorder *recorder);

/* Somebody else made the file shorter. It is left as it is; what comes is kept in memory. */
void ep_filer_leave_cut(void);

/* What is left of it says what it lacks. */
void ep_filer_end_cut(ep_recorder *recorder);

/* ---- threads.c ------------------------------------------------------------------------------- */

/* Of the threads that an earlier start expected, some ended without an event. A new thread that the
 * system gives such an id would take the entry, and with it calls that it never made. */
void ep_threads_forget_dead(void);

void ep_log_unlink(ep_log *log);
void ep_log_free(ep_log *log);

/* Of ep_os_thread_exit_install(); without the lock. */
void ep_log_on_thread_exit(void *value);

/* ---- windows.c ------------------------------------------------------------------------------- */

/* From here on a stopped recorder has nothing to do with what is written. */
void ep_recorder_settle(ep_recorder *recorder);

/* ---- capture.c ------------------------------------------------------------------------------- */

/* What it lost, and the calls open where its records begin, by thread; counted up to now. */
ep_status ep_capture_threads(ep_recorder *recorder, ep_capture *capture);

void ep_capture_free_threads(ep_capture *capture);

/* ---- fork.c ---------------------------------------------------------------------------------- */

/* Takes the lock; the other two give it back. */
void ep_engine_before_fork(void);
void ep_engine_after_fork_in_parent(void);

/* The child begins with empty logs: what was recorded before belongs to the parent. Only the
 * forking thread exists here. */
void ep_engine_after_fork_in_child(void);

#endif
