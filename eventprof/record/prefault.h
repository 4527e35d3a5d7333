/* Chunks touched before the writer needs them: the first touch of memory costs more than the whole
 * record (2.7 to 3.7 ns per 8 bytes, measured), so a background thread takes it off the writer.
 *
 * The thread also samples the resident set (resident.h), and tells threads when to look at their processor
 * time (ep_engine_remind_threads). It exists only while chunks are being used up, or
 * samples are wanted, and a thread of the program has a log: a process ends with its last thread, which
 * must not be this one. It runs no Python, and blocks all signals but SIGBUS (guard.h). It is joined before
 * a fork: os.fork() counts the process's threads right afterwards, and would warn the user about this
 * thread. */
#ifndef EP_PREFAULT_H
#define EP_PREFAULT_H

#include "engine.h"

/* The largest size of the chunks that are ready or being made. */
#define EP_PREFAULT_BYTES (4 * EP_CHUNK_BYTES)

/* A touched mapping of EP_CHUNK_BYTES, or NULL if none is ready. Either way more are made ready
 * from now on, by a thread that is started if need be. Returns: new (ep_os_unmap). */
void *ep_prefault_take(void) EP_ENGINE_LOCKED;

/* Cleared by tests that make requests fail (fault.h): the thread could meet the failure that is meant for
 * the writer. */
extern bool ep_prefault_may_sample;

/* Whether the resident set is sampled from now on. */
void ep_prefault_sample(bool wanted) EP_ENGINE_LOCKED;

/* Whether threads are told from now on to look at their processor time, every 10 ms. */
void ep_prefault_remind(bool wanted) EP_ENGINE_LOCKED;

/* Continues to sample and to remind, if that is wanted, after the thread was ended (a fork, a pause, a
 * file that was replaced). In cold paths. */
void ep_prefault_go_on(void) EP_ENGINE_LOCKED;

/* The kernel's id of the thread; 0: there is none, or it has just been started. */
uint64_t ep_prefault_thread_id(void) EP_ENGINE_LOCKED;

/* Ends the thread, and frees the ready chunks. */
void ep_prefault_stop(void);

/* Ends the thread and keeps the ready chunks. ep_prefault_take() and ep_prefault_go_on() start it again. */
void ep_prefault_pause(void) EP_ENGINE_LOCKED;

/* As ep_prefault_stop(). From now on ready chunks are slots of the file; NULL: memory. */
void ep_prefault_use_file(ep_file *file) EP_ENGINE_LOCKED;

/* Starts a thread that blocks all signals but SIGBUS. False: the system refuses. */
bool ep_prefault_start_thread(pthread_t *thread, void *(*run)(void *));

/* Waits until the kernel has forgotten a thread that was joined, before a fork: os.fork() counts the
 * process's threads. thread_id: 0, nothing to do; it becomes 0. */
void ep_prefault_await_end(uint64_t *thread_id);

/* Around fork(). */
void ep_prefault_before_fork(void) EP_ENGINE_LOCKED;
void ep_prefault_after_fork(void) EP_ENGINE_LOCKED;

#endif
