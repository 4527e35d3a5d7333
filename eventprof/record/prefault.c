#include "prefault.h"

#include <signal.h>

#include "engine.h"
#include "file.h"
#include "memory.h"
#include "os.h"
#include "resident.h"
#include "quota.h"

/* If fewer chunks are ready, more are made. In memory two are made at once: together they are one huge
 * page. */
#define READY_ENOUGH 2
#define READY_COUNT (READY_ENOUGH + 1)
#define MADE_AT_ONCE 2
#define PAGE_BYTES 4096

bool ep_prefault_may_sample = true;

static pthread_once_t wake_once = PTHREAD_ONCE_INIT;

/* Held by the one caller that joins the thread; taken before the other lock. */
static ep_mutex join_lock = EP_MUTEX_INIT;
static ep_mutex lock = EP_MUTEX_INIT;
#define LOCKED EP_REQUIRES(lock)
#define TAKES_LOCK EP_ACQUIRES(lock)
#define GIVES_LOCK EP_RELEASES(lock)
static pthread_cond_t wake;

static struct {
    pthread_t thread;
    uint64_t thread_id;           /* the kernel's, of the last thread; 0: there was none */
    bool running;                 /* thread is to be joined */
    bool ending;
    bool samples;                 /* samples of the resident set are wanted */
    bool reminds;                 /* threads are told to look at their processor time */
    bool makes;                   /* a chunk was taken, so the thread makes new ones */
    void *ready[READY_COUNT];
    int count;
    ep_file *file;                /* chunks are slots of this file; NULL: chunks are memory */
} prefault EP_GUARDED_BY(lock);

static void
make_wake(void)
{
    ep_os_condition_init(&wake);
}

/* Makes one chunk or two. Returns: how many; they follow each other at *made. */
static int
map_touched(ep_file *file, char **made)
{
    if (file == NULL) {
        *made = ep_os_map_touched(MADE_AT_ONCE * EP_CHUNK_BYTES);
        return *made != NULL ? MADE_AT_ONCE : 0;
    }
    char *at = *made = (char *)ep_file_take_slot(file, EP_CHUNK_BYTES);
    /* The first page has the slot's header. */
    for (size_t i = PAGE_BYTES; at != NULL && i < EP_CHUNK_BYTES; i += PAGE_BYTES) {
        *(volatile char *)(at + i) = 0;
    }
    return at != NULL ? 1 : 0;
}

/* Whether the thread does something every few milliseconds. */
static inline LOCKED bool
is_regular(void)
{
    return prefault.samples || prefault.reminds;
}

static void *
run(void *unused)
{
    (void)unused;
    ep_engine_inside = 1;    /* for the whole thread: an event on it would wait for a lock whose holder
                              * waits for this thread */
    ep_mutex_lock(&lock);
    prefault.thread_id = ep_os_thread_id();
    while (!prefault.ending) {
        if (ep_quota_must_tell()) {
            ep_mutex_unlock(&lock);
            ep_quota_look();
            ep_mutex_lock(&lock);
            continue;
        }
        if (is_regular()) {
            bool samples = prefault.samples, reminds = prefault.reminds;
            ep_mutex_unlock(&lock);
            int64_t left_ns = samples ? ep_resident_sample() : INT64_MAX;
            int64_t next_ns = reminds ? ep_engine_remind_threads() : INT64_MAX;
            left_ns = next_ns < left_ns ? next_ns : left_ns;
            ep_mutex_lock(&lock);
            if (prefault.ending) {
                continue;    /* there may be no room for more chunks */
            }
            if (!prefault.makes || prefault.count >= READY_ENOUGH) {
                ep_os_condition_wait(&wake, &lock, left_ns);
                continue;
            }
        } else if (!prefault.makes || prefault.count >= READY_ENOUGH) {
            ep_mutex_wait(&lock, &wake);
            continue;
        }
        ep_file *file = prefault.file;    /* it only changes while this thread does not run */
        ep_mutex_unlock(&lock);
        char *made;
        int count = map_touched(file, &made);
        ep_mutex_lock(&lock);
        if (count == 0) {
            prefault.makes = false;    /* no memory: the writer will notice that itself */
        }
        while (count-- > 0) {
            prefault.ready[prefault.count++] = made + (size_t)count * EP_CHUNK_BYTES;
        }
    }
    ep_mutex_unlock(&lock);
    return NULL;
}

/* The thread blocks signals, so that the program's handlers run on the program's threads only. */
bool
ep_prefault_start_thread(pthread_t *thread, void *(*run_it)(void *))
{
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);    /* its own accesses may raise SIGBUS (guard.h); blocked, that would end the
                                 * process */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = !ep_fault_now() && pthread_create(thread, NULL, run_it, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

void
ep_prefault_await_end(uint64_t *thread_id)
{
    if (*thread_id != 0) {
        ep_os_thread_await_end(*thread_id);
        *thread_id = 0;
    }
}

static LOCKED void
start_thread(void)
{
    (void)pthread_once(&wake_once, make_wake);
    prefault.ending = false;
    prefault.running = ep_prefault_start_thread(&prefault.thread, run);
}

void *
ep_prefault_take(void)
{
    ep_mutex_lock(&lock);
    void *taken = prefault.count > 0 ? prefault.ready[--prefault.count] : NULL;
    prefault.makes = true;
    if (!prefault.running) {
        start_thread();
    } else {
        pthread_cond_signal(&wake);
    }
    ep_mutex_unlock(&lock);
    return taken;
}

static LOCKED void
start_or_wake(void)
{
    if (is_regular() && !prefault.running) {
        start_thread();
    } else if (prefault.running) {
        pthread_cond_signal(&wake);
    }
}

void
ep_prefault_sample(bool wanted)
{
    ep_mutex_lock(&lock);
    prefault.samples = wanted && ep_prefault_may_sample;
    start_or_wake();
    ep_mutex_unlock(&lock);
}

void
ep_prefault_remind(bool wanted)
{
    ep_mutex_lock(&lock);
    prefault.reminds = wanted;
    start_or_wake();
    ep_mutex_unlock(&lock);
}

void
ep_prefault_go_on(void)
{
    ep_mutex_lock(&lock);
    if (is_regular() && !prefault.running) {
        start_thread();
    }
    ep_mutex_unlock(&lock);
}

uint64_t
ep_prefault_thread_id(void)
{
    ep_mutex_lock(&lock);
    uint64_t id = prefault.running ? prefault.thread_id : 0;
    ep_mutex_unlock(&lock);
    return id;
}

/* Ends the thread. */
static TAKES_LOCK void
join_thread_and_lock(void)
{
    ep_mutex_lock(&join_lock);
    ep_mutex_lock(&lock);
    if (prefault.running) {
        prefault.ending = true;
        pthread_cond_signal(&wake);
        pthread_t thread = prefault.thread;
        ep_mutex_unlock(&lock);
        pthread_join(thread, NULL);    /* waits at most until one chunk is touched: 0.5 ms */
        ep_mutex_lock(&lock);
        prefault.running = prefault.makes = false;
    }
    ep_mutex_unlock(&join_lock);
}

static LOCKED void
free_ready(void)
{
    while (prefault.count > 0) {
        ep_os_unmap(prefault.ready[--prefault.count], EP_CHUNK_BYTES);
    }
}

void
ep_prefault_stop(void)
{
    join_thread_and_lock();
    free_ready();
    ep_mutex_unlock(&lock);
}

void
ep_prefault_pause(void)
{
    join_thread_and_lock();
    ep_mutex_unlock(&lock);
}

void
ep_prefault_use_file(ep_file *file)
{
    join_thread_and_lock();
    free_ready();
    prefault.file = file;
    ep_mutex_unlock(&lock);
}

TAKES_LOCK void
ep_prefault_before_fork(void)
{
    join_thread_and_lock();
    ep_prefault_await_end(&prefault.thread_id);
}

GIVES_LOCK void
ep_prefault_after_fork(void)
{
    ep_mutex_unlock(&lock);
}
