/* Writing the log file: a recording that is on file while it is made. format.h has its bytes.
 *
 * Slots are mapped shared, so that every record is in the kernel's page cache the moment it is written:
 * whatever ends the process, the file holds it.
 *
 * One process writes; a forked child has a file of its own and never touches this one. The file's
 * lock is a leaf: nothing is called under it but the C library. */
#ifndef EP_FILE_H
#define EP_FILE_H

#include "clock.h"
#include "format.h"
#include "thread.h"
#include "types.h"

typedef struct ep_file ep_file;

/* Paths are patterns: %p is the process's number, %% a %. */
typedef struct ep_file_options {
    const char *path;
    const char *child_path;            /* of forked children */
    bool replace;                      /* a regular file that is there goes */
    const char *metadata;              /* JSON */
    size_t metadata_bytes;
} ep_file_options;

/* Copies what it is given. Returns: new in *out, one reference. Fails: EP_NOMEM, EP_IO (with
 * error->os_error), EP_ARGUMENT (metadata too long); no file is left. */
EP_CHECKED ep_status ep_file_create(const ep_file_options *options, ep_file **out, ep_error *error);

ep_file *ep_file_hold(ep_file *file);
/* The last reference closes the file. */
void ep_file_release(ep_file *file);

/* Returns: view. */
const char *ep_file_path(const ep_file *file);
/* Whether the pattern gives this process the path of that file. */
bool ep_file_is_at(const ep_file *file, const char *pattern);

/* Lengths of slots are multiples of this: pages. */
size_t ep_file_slot_unit(const ep_file *file);

/* A slot of that length, a multiple of the unit, EP_CHUNK_BYTES at most: zeroed but for a chunk's header
 * that says FREE. Its room on the disk is given: writing into it cannot fail for want of it. Unmap it
 * with ep_os_unmap(). Returns: NULL if the disk is full, the system refuses, or the file was cut. */
ep_chunk_header *ep_file_take_slot(ep_file *file, size_t bytes);

/* Whether somebody else made the file shorter than it was written. Once it was, no slot is given any
 * more, and its length is left as it is. Some 0.3 us. */
bool ep_file_is_cut(ep_file *file);

/* From here on every name and site is written to it, after all those that there are; threads are for
 * the caller to put. One file at a time has them. Under the engine's lock. */
void ep_file_begin_texts(ep_file *file);
void ep_file_end_texts(void);

/* Writes every name and site that there is to this file, whichever file has them otherwise; what the
 * calling thread puts until the end goes there, too. Under the engine's lock. */
void ep_file_begin_other_texts(ep_file *file);
void ep_file_end_other_texts(void);

/* ---- What its header says: written here alone ------------------------------------------------- */

typedef struct ep_file_start {
    ep_kind_set kinds;
    ep_clock_mode clock_mode;
    uint32_t only_thread;              /* 0: all */
    ep_anchor birth, start;
    int64_t start_realtime_ns;
    int64_t start_resident_bytes;      /* -1: unknown */
} ep_file_start;

/* The recording begins. */
void ep_file_put_start(ep_file *file, const ep_file_start *start);

/* Events later than `ticks` are lost, and why. */
void ep_file_put_full(ep_file *file, uint64_t ticks, ep_full_reason reason);

/* Adds to what befell the file: EP_LIMIT_... */
void ep_file_put_limit(ep_file *file, uint32_t limit);

/* Returns: how many forked children could not write a file; in *os_error why not the last of them. */
uint32_t ep_file_get_children_lost(const ep_file *file, int *os_error);

/* An instant not long ago. */
void ep_file_put_beat(ep_file *file, ep_anchor anchor);

/* The recording ended then; ep_file_finish() says so to readers. */
void ep_file_put_stop(ep_file *file, ep_anchor stop, int64_t resident_bytes);

/* Which hook calls come from. Copies. */
void ep_file_put_calls_from(ep_file *file, const char *name);

/* A hook that another tool took over. Copies; left out once there is no room. */
void ep_file_put_displaced(ep_file *file, const char *name);

/* How many calls, and functions, hooks left out: see ep_recording. */
void ep_file_put_left_out(ep_file *file, uint64_t deep_calls, uint64_t short_calls, uint64_t functions_off);

/* Publishes what was lost, and that the chunk `dropped_sequence` is (UINT64_MAX: none). */
void ep_file_put_state(ep_file *file, uint64_t dropped_sequence, ep_window_thread *const *threads,
                       size_t thread_count);

/* ---- Its end --------------------------------------------------------------------------------- */

/* The recording is over: cuts off what nobody used at its end. */
void ep_file_finish(ep_file *file);

/* Around fork(), under the engine's lock. In the child no file has the texts any more, and the
 * parent's is left as it is. */
void ep_file_before_fork(void);
void ep_file_after_fork(bool child);
void ep_file_abandon(ep_file *file);

/* For a child of the process that made `parent`: a file beside it, at the path that its pid gives.
 * Returns: new; or NULL, and the parent's file says that there is such a child. */
ep_file *ep_file_create_for_child(const ep_file *parent);

/* ---- What the engine tells it (no-ops while no file has the texts) ---------------------------- */

extern _Atomic(ep_file *) ep_file_of_texts;

void ep_file_put_thread(const ep_thread *thread);
/* A sample of the resident set; to the file that takes texts, if there is one. */
void ep_file_put_resident(int64_t monotonic_ns, int64_t bytes);

static inline bool
ep_file_wants_texts(void)
{
    return atomic_load_explicit(&ep_file_of_texts, memory_order_relaxed) != NULL;
}

#endif
