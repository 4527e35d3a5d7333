/* Shared by the files of the engine: its state, and the functions that they call in each other. Other code
 * includes engine.h, the interface.
 * Each file answers a question of its own (README.md); the header is one, because the state is one, under
 * one lock, and all of them change it. */
#ifndef EP_ENGINE_PARTS_H
#define EP_ENGINE_PARTS_H

#include "engine.h"

/* Bytes of free chunks kept for the next recording once nothing records: enough for a few threads. */
#define EP_SPARE_BYTES_WHEN_IDLE (4 * EP_CHUNK_BYTES)
/* Sizes of chunks: EP_CHUNK_BYTES_MIN << 0 to 8. */
#define EP_CHUNK_CLASS_COUNT 9

struct ep_engine {
    ep_log *logs;
    size_t log_count;
    size_t look_at;                   /* logs of dead threads are searched when there are so many logs */
    ep_thread **threads;              /* index = id - 1 */
    size_t thread_count, thread_capacity;
    bool file_recorder_is_child;              /* in a forked child: the file is not made yet */
    size_t expected_count;            /* threads with an entry and no log yet */
    ep_recorder *recorders;           /* started and not settled */
    size_t running_count;
    ep_chunk *free_chunks[EP_CHUNK_CLASS_COUNT];    /* chunks that are memory, by size */
    ep_chunk *partial_chunks;
    ep_recorder *file_recorder;        /* the running recorder whose file takes the chunks; NULL: none */
    ep_chunk *free_slots[EP_CHUNK_CLASS_COUNT];     /* of that file */
    uint64_t slot_bytes;              /* the sum of all its slots for records */
    size_t chunks_mapped, chunks_free, bytes_mapped, bytes_free;    /* of memory */
    uint64_t next_sequence;
    ep_anchor birth;                  /* an early anchor, for the slope of the clock */
    ep_shared_kinds kinds;
    _Atomic uint64_t unlogged[EP_KIND_COUNT];
    uint64_t left_out[EP_LEFT_OUT_COUNT];    /* by threads that ended */
    bool initialised;
    bool is_forking;                  /* between the handlers of fork(); the lock is held */
    bool is_orphan;                   /* see ep_engine_leave_parent() */
};

extern EP_HIDDEN struct ep_engine ep_engine EP_GUARDED_BY(ep_engine_mutex);

/* ---- engine.c -------------------------------------------------------------------------------- */

void ep_engine_lock(void) EP_ACQUIRES(ep_engine_mutex);
bool ep_engine_try_lock(void) EP_TRY_ACQUIRES(ep_engine_mutex);
void ep_engine_unlock(void) EP_RELEASES(ep_engine_mutex);

/* Sets EP_TODO_* of all logs that there are. */
void ep_engine_mark_logs(uint32_t todo) EP_ENGINE_LOCKED;

/* The set of kinds that hooks see becomes the union of what the running recorders want. */
void ep_engine_update_kinds(void) EP_ENGINE_LOCKED;

/* ---- engine_check.c: only in builds with EP_CHECKS ------------------------------------------- */

#ifdef EP_CHECKS
void ep_engine_check(void) EP_ENGINE_LOCKED;
/* One recorder, with its windows of threads: what they lost, and the calls that were open. */
void ep_recorder_check(const ep_recorder *recorder) EP_ENGINE_LOCKED;
#endif

/* ---- loss.c ---------------------------------------------------------------------------------- */

/* Returns: view into the recorder, or NULL without memory. */
ep_window_thread *ep_recorder_thread(ep_recorder *recorder, uint64_t thread_id) EP_ENGINE_LOCKED;

/* Counts the remaining records of `cursor` that belong to the window as lost: in the recorder, and folds
 * calls if `fold`; or in `capture`, if that is not NULL. */
void ep_loss_count(ep_recorder *recorder, ep_cursor cursor, bool fold, ep_capture *capture)
    EP_ENGINE_LOCKED;

/* The records of a log that has no chunk are counted now; they will be overwritten. */
void ep_loss_count_scratch(const ep_log *log) EP_ENGINE_LOCKED;

/* Counts, for a capture, the events that a recorder lost in chunks that are not sealed yet. They are
 * counted in the recorder when the chunk is sealed. */
void ep_loss_count_unsealed(ep_recorder *recorder, ep_capture *capture) EP_ENGINE_LOCKED;

/* ---- chunks.c -------------------------------------------------------------------------------- */

/* Drops one reference. */
void ep_chunk_release(ep_chunk *chunk) EP_ENGINE_LOCKED;

/* `next`: the first unused word. No thread writes there afterwards. */
void ep_chunk_seal(ep_chunk *chunk, const _Atomic uint64_t *next) EP_ENGINE_LOCKED;

/* Seals a chunk of a dead thread, so that no new thread continues in it. */
void ep_chunk_seal_partial(ep_chunk *partial) EP_ENGINE_LOCKED;

/* Makes each log leave its chunk at its next record. A thread without the runtime's lock may still write
 * one record there. */
void ep_chunks_leave(void) EP_ENGINE_LOCKED;

/* Makes each log leave a chunk that is larger than `bytes`: such a chunk is more than a new recorder may
 * keep. */
void ep_chunks_leave_large(size_t bytes) EP_ENGINE_LOCKED;

/* Unmaps free chunks of memory until no more than these bytes are kept. */
void ep_chunks_trim(size_t spare_bytes) EP_ENGINE_LOCKED;

/* Unmaps the free slots of the file_recorder's file. */
void ep_chunks_unmap_slots(void) EP_ENGINE_LOCKED;

/* A chunk of `bytes` or less for the next records, after the limit of each recorder was applied. `first`:
 * the thread has no chunk yet, so it gets one even beyond the limit. Returns: NULL without memory. */
ep_chunk *ep_chunk_find(uint64_t ticks, size_t bytes, bool first) EP_ENGINE_LOCKED;

/* The log continues in its scratch words, which are overwritten again and again: it has no chunk. */
void ep_log_use_scratch(ep_log *log, uint64_t ticks) EP_ENGINE_LOCKED;

/* The log continues in a free chunk, which all running recorders keep. */
void ep_log_use_chunk(ep_log *log, ep_chunk *chunk, uint64_t ticks) EP_ENGINE_LOCKED;

/* The log continues in the rest of a dead thread's chunk. */
void ep_log_use_partial(ep_log *log, ep_chunk *chunk, uint64_t ticks) EP_ENGINE_LOCKED;

/* The size of a thread's first chunk. */
size_t ep_chunk_first_bytes(void) EP_ENGINE_LOCKED;

/* ---- kept.c ---------------------------------------------------------------------------------- */

bool ep_kept_has(const ep_recorder *recorder, const ep_chunk *chunk) EP_ENGINE_LOCKED;

/* Appends; chunks are opened in order of sequence. Fails: false, nothing changed. */
bool ep_kept_add(ep_recorder *recorder, ep_chunk *chunk) EP_ENGINE_LOCKED;

/* Drops the references to all kept chunks. */
void ep_kept_release(ep_recorder *recorder) EP_ENGINE_LOCKED;

/* Drops the oldest sealed chunk. False if there is none. */
bool ep_kept_drop_oldest(ep_recorder *recorder) EP_ENGINE_LOCKED;

/* From `ticks` on the recorder keeps no new chunks; later events are counted as lost. */
void ep_kept_become_full(ep_recorder *recorder, uint64_t ticks, ep_full_reason reason) EP_ENGINE_LOCKED;

/* In bytes. */
uint64_t ep_kept_limit(const ep_recorder *recorder) EP_ENGINE_LOCKED;

/* The largest chunk for one of the living threads: 1 MiB for each thread would be most of a small buffer,
 * and other threads could not use it. */
size_t ep_kept_largest_chunk(const ep_recorder *recorder) EP_ENGINE_LOCKED;

/* Applies the limit before one more chunk for a record at `ticks`: of *bytes, or less if that is too much.
 * `first`: the thread has no chunk, and gets one of the smallest size in any case. */
void ep_kept_apply_limit(ep_recorder *recorder, uint64_t ticks, bool first, size_t *bytes) EP_ENGINE_LOCKED;

/* Whether the recorder keeps chunks that are opened now. */
bool ep_kept_takes(const ep_recorder *recorder) EP_ENGINE_LOCKED;

/* ---- file_recorder.c --------------------------------------------------------------------------------- */

/* Writes the recorder's counts of lost events and its open calls to its file, like ep_file_put_state(). */
void ep_file_recorder_put_state(ep_recorder *recorder, uint64_t dropped_sequence) EP_ENGINE_LOCKED;

/* Copies a chunk to the recorder's file that is memory or a slot of an earlier file, and was in use when
 * the recorder started: a thread without the runtime's lock may have written one more record there. If the
 * chunk is not sealed, the records so far are copied. */
void ep_file_recorder_copy(ep_recorder *recorder, ep_chunk *chunk) EP_ENGINE_LOCKED;

/* Separates the chunk from its copy in a file. */
void ep_file_recorder_forget_copy(ep_chunk *chunk) EP_ENGINE_LOCKED;

/* The recorder has dropped the chunk and counted its events. */
void ep_file_recorder_drop(ep_recorder *recorder, ep_chunk *chunk) EP_ENGINE_LOCKED;

/* Writes to the file's header what is recorded, and that recording has begun. */
void ep_file_recorder_begin(ep_recorder *recorder) EP_ENGINE_LOCKED;

/* Begins to pack the chunks of the recorder's file, if that is wanted. */
void ep_file_recorder_pack(ep_recorder *recorder) EP_ENGINE_LOCKED;

/* Writes all names, sites and threads to the file, and from here on each new one. */
void ep_file_recorder_begin_texts(ep_file *file) EP_ENGINE_LOCKED;

/* Makes a forked child's file. This is done at its first event, because many children only exec another
 * program. */
void ep_file_recorder_make_child_file(void) EP_ENGINE_LOCKED;

/* At the stop: copies the chunks that are not in the file yet, and finishes the file. */
void ep_file_recorder_end(ep_recorder *recorder) EP_ENGINE_LOCKED;

/* At the stop of a recorder that ran beside another one with a file: writes its whole file. */
void ep_file_recorder_write_late(ep_recorder *recorder) EP_ENGINE_LOCKED;

/* Another program made the file shorter. The file is left as it is, and later events are kept in memory. */
void ep_file_recorder_leave_cut(void) EP_ENGINE_LOCKED;

/* Notes in the rest of such a file that events are missing. */
void ep_file_recorder_end_cut(ep_recorder *recorder) EP_ENGINE_LOCKED;

/* ---- threads.c ------------------------------------------------------------------------------- */

/* Removes expected threads that ended without an event. Otherwise a new thread with the same id would take
 * the entry, and with it calls that it never made. */
void ep_threads_forget_dead(void) EP_ENGINE_LOCKED;

/* The entry of a lane: the number-th stack of calls of a thread. Returns: immortal, or NULL without
 * memory. */
ep_thread *ep_thread_new_lane(const ep_thread *carrier, uint32_t number) EP_ENGINE_LOCKED;

void ep_log_unlink(ep_log *log) EP_ENGINE_LOCKED;
void ep_log_free(ep_log *log) EP_ENGINE_LOCKED;

/* The handler for ep_os_thread_exit_install(). */
void ep_log_on_thread_exit(void *value);

/* ---- windows.c ------------------------------------------------------------------------------- */

/* ep_recorder_set_open(). */
EP_CHECKED ep_status ep_recorder_set_open_locked(ep_recorder *recorder, uint32_t thread_id,
                                                 const ep_open_call *calls, size_t depth) EP_ENGINE_LOCKED;

/* From here on no record belongs to the stopped recorder. */
void ep_recorder_settle(ep_recorder *recorder) EP_ENGINE_LOCKED;

/* ---- capture.c ------------------------------------------------------------------------------- */

/* Fills in the lost events up to now, and the calls that are open where the records begin, by thread. */
ep_status ep_capture_threads(ep_recorder *recorder, ep_capture *capture) EP_ENGINE_LOCKED;

void ep_capture_free_threads(ep_capture *capture);

/* ---- fork.c ---------------------------------------------------------------------------------- */

/* In a child that was made by a bare system call (clone, fork), of which no handler was told: nothing is
 * recorded here any more, and what belongs to the parent is not touched. Locks may have been held by
 * threads that do not exist in the child, so clang does not check it. Does nothing within an ordinary
 * fork. */
void ep_engine_leave_parent(void) EP_NOT_CHECKED;

void ep_engine_before_fork(void) EP_ACQUIRES(ep_engine_mutex);
void ep_engine_after_fork_in_parent(void) EP_RELEASES(ep_engine_mutex);

/* The child begins with empty logs: what was recorded before belongs to the parent. Only the
 * forking thread exists here. */
void ep_engine_after_fork_in_child(void) EP_RELEASES(ep_engine_mutex);

#endif
