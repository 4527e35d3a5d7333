/* Everything that differs between operating systems; os_posix.c implements it. */
#ifndef EP_OS_H
#define EP_OS_H

#include <pthread.h>

#include "mutex.h"
#include "types.h"

/* Zeroed pages, private to the process. Returns: new (ep_os_unmap), or NULL. They count as the recorder's
 * own (below) from here to the unmapping. */
void *ep_os_map(size_t bytes);
void ep_os_unmap(void *at, size_t bytes);

/* Zeroed memory, of which the first `wiped` bytes are zero in a forked child (Linux 4.14), however it was
 * made. Returns: new (ep_os_free_wiped), or NULL. It does not count as the recorder's own. */
void *ep_os_calloc_wiped(size_t bytes, size_t wiped);
void ep_os_free_wiped(void *at, size_t bytes, size_t wiped);

/* Whether this process was forked, however, since ep_os_note_process() was called. False where the system
 * does not tell. Reads one word. */
bool ep_os_is_forked(void);
/* Once without threads, and in the child of a fork. Fails: false, no memory. */
bool ep_os_note_process(void);

/* Takes a lock. In a child of a bare system call the thread that has it may not exist: there the lock is
 * taken only if it is free. Returns: whether it was taken; always in other processes. */
EP_CHECKED bool ep_os_lock(ep_mutex *lock) EP_TRY_ACQUIRES(*lock);

/* Like ep_os_map(), already touched, on huge pages if the system has them. Parts of it may be unmapped. */
void *ep_os_map_touched(size_t bytes);

/* Call it for heap memory that is now written from begin to end: if it is large, there are fewer and larger
 * page faults (measured: decoding 20 M events took half the time). */
void ep_os_expect_use(void *at, size_t bytes);

/* Gives whole pages of heap memory back to the system. The memory may be freed, and holds anything. */
void ep_os_give_back(void *at, size_t bytes);

/* The size of a page of memory; at least 4096. */
size_t ep_os_page_bytes(void);

bool ep_os_path_exists(const char *path);

/* The kernel's id of the calling thread, of the process, and of the one that made it. */
uint64_t ep_os_thread_id(void);
uint64_t ep_os_process_id(void);
uint64_t ep_os_parent_process_id(void);

/* Whether this process has a thread of that id; true if the system does not say. A thread that has just
 * ended may still count. */
bool ep_os_thread_lives(uint64_t thread_id);

/* Whether this process has a thread besides the given ones; true if the system does not say. A main thread
 * that has ended does not count, although the system lists it until the process ends. */
bool ep_os_other_threads_live(const uint64_t *thread_ids, size_t count);

/* After pthread_join(): waits until the system does not count the thread any more, some milliseconds at
 * most. */
void ep_os_thread_await_end(uint64_t thread_id);

/* Lowers the priority of the calling thread for good. Does nothing where only a process has a priority. */
void ep_os_thread_lower_priority(void);

/* Processors that the calling thread may run on; at least 1. */
size_t ep_os_processor_count(void);

/* Nanoseconds of CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_BOOTTIME. */
int64_t ep_os_monotonic_ns(void);
int64_t ep_os_realtime_ns(void);
int64_t ep_os_boottime_ns(void);

/* For how long the calling thread ran, ever: 0.3 us. For how long it could have run, but others had the
 * processors, which takes tens of us to read; -1: unknown. */
int64_t ep_os_thread_ran_ns(void);
int64_t ep_os_thread_queued_ns(void);

/* Makes a condition for timed waits, which do not depend on the time of day. */
void ep_os_condition_init(pthread_cond_t *condition);
/* Like pthread_cond_wait(), but waits for at most about `ns`. */
void ep_os_condition_wait(pthread_cond_t *condition, ep_mutex *lock, int64_t ns) EP_REQUIRES(*lock);

/* The process's resident set; -1: the system does not say. Takes some microseconds. */
int64_t ep_os_resident_bytes(void);

/* Bytes of the process's memory that the recorder has for itself: mappings, and what was added here. A
 * mapping counts as a whole, although a part of it may not be touched yet: the pages after the last record
 * of a chunk. A caller that maps much more than it touches subtracts the rest again. */
int64_t ep_os_own_bytes(void);
void ep_os_own_add(int64_t bytes);

/* `on_exit` is called on every ending thread that set a non-NULL value, after two rounds of other
 * libraries' thread-exit destructors, which may still allocate; for a value that is set later than
 * that, in the next round. Install once a process. */
EP_CHECKED ep_status ep_os_thread_exit_install(void (*on_exit)(void *));
void ep_os_thread_exit_set(void *value);
/* Whether the calling thread's last round is over: `on_exit` will not be called again. */
bool ep_os_thread_exit_over(void);

/* Handlers around fork(), for the life of the process. */
EP_CHECKED ep_status ep_os_fork_install(void (*prepare)(void), void (*parent)(void),
                                        void (*child)(void));

#endif
