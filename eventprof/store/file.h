/* Writes the log file: a recording that is in a file while it is made. format.h has the bytes.
 *
 * Slots are mapped shared, so that every record is in the kernel's page cache as soon as it is written:
 * however the process ends, the file has it.
 *
 * One process writes; a forked child has its own file and never touches this one. Only the C library is
 * called under the file's lock. */
#ifndef EP_FILE_H
#define EP_FILE_H

#include "clock.h"
#include "format.h"
#include "thread.h"
#include "types.h"

typedef struct ep_file ep_file;

/* Paths are patterns: %p stands for the process id, %% for a %. %u stands for nothing, or for -2, -3 and so
 * on if the file exists: then nothing is replaced, and the file's folder is made if it is missing. */
typedef struct ep_file_options {
    const char *path;
    const char *child_path;            /* of forked children */
    bool replace;                      /* replace an existing regular file: by ep_file_put_in_place() */
    /* Take the first unused name, also if the path has no %u; so it is with %p if nothing is replaced. */
    bool unused;
    bool packs;                        /* its chunks may be packed */
    const char *metadata;              /* JSON */
    size_t metadata_bytes;
} ep_file_options;

/* Copies the options. Returns: new in *out, one reference. Fails: EP_NOMEM, EP_IO (with
 * error->os_error), EP_ARGUMENT (metadata too long); no file is left. */
EP_CHECKED ep_status ep_file_create(const ep_file_options *options, ep_file **out, ep_error *error);

/* Lets the file replace what is at its path. Until then it has a temporary name beside it, and the old file
 * is whole: the caller may find that nothing can be recorded. No-op for a file that replaces nothing.
 * Fails: EP_IO, and the old file is still there. */
EP_CHECKED ep_status ep_file_put_in_place(ep_file *file, ep_error *error);

/* Removes the file from its folder, in which nothing was recorded. What it was to replace stays. */
void ep_file_remove(const ep_file *file);

ep_file *ep_file_hold(ep_file *file);
/* The last reference closes the file. */
void ep_file_release(ep_file *file);

/* Returns: view. */
const char *ep_file_path(const ep_file *file);
bool ep_file_packs(const ep_file *file);
/* Whether the pattern, in this process, gives the path of that file. */
bool ep_file_is_at(const ep_file *file, const char *pattern);

/* Lengths of slots are multiples of this: pages. */
size_t ep_file_slot_unit(const ep_file *file);

/* A slot of that length (a multiple of the unit, at most EP_CHUNK_BYTES), zeroed, with a chunk's header
 * that says FREE. Its room on the disk is allocated, so writing into it cannot fail. Unmap it with
 * ep_os_unmap(). Returns: NULL if the disk is full, the system refuses, or the file was cut off. */
ep_chunk_header *ep_file_take_slot(ep_file *file, size_t bytes);

/* Whether the file could not grow because the limit of all processes was reached (quota.h), not because the
 * disk was full. */
bool ep_file_lacks_room(const ep_file *file);

/* Whether another program made the file shorter. After that no more slots are given, and the length of the
 * file is not changed. Takes some 0.3 us. */
bool ep_file_is_cut(ep_file *file);

/* Writes all names and sites to the file, and from here on each new one; the caller writes threads. Only
 * one file at a time gets them. Under the engine's lock. */
void ep_file_begin_texts(ep_file *file);
void ep_file_end_texts(void);

/* Writes all names and sites to this file, although another file gets the new ones; until the end, texts of
 * the calling thread go to this file, too. Under the engine's lock. */
void ep_file_begin_other_texts(ep_file *file);
void ep_file_end_other_texts(void);

/* ---- The header; only these functions write it ------------------------------------------------ */

typedef struct ep_file_start {
    ep_kind_set kinds;
    ep_clock_mode clock_mode;
    uint32_t only_thread;              /* 0: all */
    ep_anchor birth, start;
    int64_t start_realtime_ns;
    int64_t start_resident_bytes;      /* -1: unknown */
    int64_t start_own_bytes;           /* 0: unknown */
} ep_file_start;

/* The recording begins. */
void ep_file_put_start(ep_file *file, const ep_file_start *start);

/* Notes that events later than `ticks` are lost, and why. */
void ep_file_put_full(ep_file *file, uint64_t ticks, ep_full_reason reason);

/* Adds a bit of EP_LIMIT_... */
void ep_file_put_limit(ep_file *file, uint32_t limit);

/* Returns: the number of forked children that could not write a file; *os_error: the error of the last
 * one. */
uint32_t ep_file_get_children_lost(const ep_file *file, int *os_error);

/* One more; a child may call this with its parent's file. */
void ep_file_count_child_lost(const ep_file *file, int os_error);

/* Writes an anchor of the current time. */
void ep_file_put_beat(ep_file *file, ep_anchor anchor);

/* The time of the recording's end; ep_file_finish() makes it valid for readers. */
void ep_file_put_stop(ep_file *file, ep_anchor stop, int64_t resident_bytes, int64_t own_bytes);

/* The name of the hook for calls. Copies. */
void ep_file_put_calls_from(ep_file *file, const char *name);

/* A hook that another tool took over. Copies; left out once there is no room. */
void ep_file_put_displaced(ep_file *file, const char *name);

/* The numbers of calls and functions that hooks left out: see ep_recording. */
void ep_file_put_left_out(ep_file *file, uint64_t deep_calls, uint64_t short_calls, uint64_t functions_off);

/* Publishes the counts of lost events, and that they contain the chunk `dropped_sequence` (UINT64_MAX:
 * none). */
void ep_file_put_state(ep_file *file, uint64_t dropped_sequence, ep_window_thread *const *threads,
                       size_t thread_count);

/* ---- Its end --------------------------------------------------------------------------------- */

/* Moves packed slots to the front, so that the file can be cut off; before ep_file_finish(), when nobody
 * takes slots any more. moved(context, slot) gets each at its new place, mapped: it is still mapped at its
 * old one. */
void ep_file_compact(ep_file *file, void (*moved)(void *, ep_chunk_header *), void *context);

/* Finishes the file: cuts off unused slots at its end. */
void ep_file_finish(ep_file *file);

/* Around fork(), under the engine's lock. In the child no file gets texts any more, and the parent's file
 * is not touched. */
void ep_file_before_fork(void);
void ep_file_after_fork(bool child);
void ep_file_abandon(ep_file *file);

/* In a child of which no handler was told: no file gets texts any more, and no lock is held. */
void ep_file_after_bare_fork(void);

/* For a forked child of the process that made `parent`: makes the child's file, at the path for its process
 * id. Returns: new; or NULL, and the parent's file counts the child. */
ep_file *ep_file_create_for_child(const ep_file *parent);

/* ---- Called by the engine (no-ops while no file gets the texts) ------------------------------- */

extern _Atomic(ep_file *) ep_file_of_texts;

/* What a pool or a server calls this process, for its files: cut to EP_FILE_WORKER_BYTES. A forked child
 * has none until it is given one. replace: also if it has one. A reader that looks just now may see half of
 * it. */
void ep_file_name_worker(ep_text name, bool replace);
/* Copies it, terminated; empty: there is none. */
void ep_file_get_worker(char worker[EP_FILE_WORKER_BYTES]);

void ep_file_put_thread(const ep_thread *thread);
/* A sample of the resident set, and what of it is the recorder's own; to the file that takes texts, if
 * there is one. */
void ep_file_put_resident(int64_t monotonic_ns, int64_t bytes, int64_t own_bytes);

static inline bool
ep_file_wants_texts(void)
{
    return atomic_load_explicit(&ep_file_of_texts, memory_order_relaxed) != NULL;
}

#endif
