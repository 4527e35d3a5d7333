#include "ahead.h"

#include <pthread.h>
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

bool ep_ahead_may_sample = true;

static pthread_once_t wake_once = PTHREAD_ONCE_INIT;

static struct {
    pthread_mutex_t join_lock;    /* held by the one caller that joins; taken before the other lock */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    uint64_t thread_id;           /* the kernel's, of the last thread; 0: there was none */
    bool running;                 /* thread is to be joined */
    bool ending;
    bool samples;                 /* samples of the resident set are wanted */
    bool makes;                   /* a chunk was taken, so the thread makes new ones */
    void *ready[READY_COUNT];
    int count;
    ep_file *file;                /* chunks are slots of this file; NULL: chunks are memory */
} ahead = {.join_lock = PTHREAD_MUTEX_INITIALIZER,
           .lock = PTHREAD_MUTEX_INITIALIZER};

static void
make_wake(void)
{
    ep_os_condition_init(&ahead.wake);
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

static void *
run(void *unused)
{
    (void)unused;
    ep_engine_inside = 1;    /* for the whole thread: an event on it would wait for a lock whose holder
                              * waits for this thread */
    pthread_mutex_lock(&ahead.lock);
    ahead.thread_id = ep_os_thread_id();
    while (!ahead.ending) {
        if (ep_quota_must_tell()) {
            pthread_mutex_unlock(&ahead.lock);
            ep_quota_look();
            pthread_mutex_lock(&ahead.lock);
            continue;
        }
        if (ahead.samples) {
            pthread_mutex_unlock(&ahead.lock);
            int64_t left_ns = ep_resident_sample();
            pthread_mutex_lock(&ahead.lock);
            if (!ahead.ending && (!ahead.makes || ahead.count >= READY_ENOUGH)) {
                ep_os_condition_wait(&ahead.wake, &ahead.lock, left_ns);
                continue;
            }
        } else if (!ahead.makes || ahead.count >= READY_ENOUGH) {
            pthread_cond_wait(&ahead.wake, &ahead.lock);
            continue;
        }
        ep_file *file = ahead.file;    /* it only changes while this thread does not run */
        pthread_mutex_unlock(&ahead.lock);
        char *made;
        int count = map_touched(file, &made);
        pthread_mutex_lock(&ahead.lock);
        if (count == 0) {
            ahead.makes = false;    /* no memory: the writer will notice that itself */
        }
        while (count-- > 0) {
            ahead.ready[ahead.count++] = made + (size_t)count * EP_CHUNK_BYTES;
        }
    }
    pthread_mutex_unlock(&ahead.lock);
    return NULL;
}

/* The thread blocks signals, so that the program's handlers run on the program's threads only. */
bool
ep_ahead_start_thread(pthread_t *thread, void *(*run_it)(void *))
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
ep_ahead_await_end(uint64_t *thread_id)
{
    if (*thread_id != 0) {
        ep_os_thread_await_end(*thread_id);
        *thread_id = 0;
    }
}

static void
start_thread(void)
{
    (void)pthread_once(&wake_once, make_wake);
    ahead.ending = false;
    ahead.running = ep_ahead_start_thread(&ahead.thread, run);
}

void *
ep_ahead_take(void)
{
    pthread_mutex_lock(&ahead.lock);
    void *taken = ahead.count > 0 ? ahead.ready[--ahead.count] : NULL;
    ahead.makes = true;
    if (!ahead.running) {
        start_thread();
    } else {
        pthread_cond_signal(&ahead.wake);
    }
    pthread_mutex_unlock(&ahead.lock);
    return taken;
}

void
ep_ahead_sample(bool wanted)
{
    pthread_mutex_lock(&ahead.lock);
    ahead.samples = wanted && ep_ahead_may_sample;
    if (ahead.samples && !ahead.running) {
        start_thread();
    } else if (ahead.running) {
        pthread_cond_signal(&ahead.wake);
    }
    pthread_mutex_unlock(&ahead.lock);
}

void
ep_ahead_go_on(void)
{
    pthread_mutex_lock(&ahead.lock);
    if (ahead.samples && !ahead.running) {
        start_thread();
    }
    pthread_mutex_unlock(&ahead.lock);
}

uint64_t
ep_ahead_thread_id(void)
{
    pthread_mutex_lock(&ahead.lock);
    uint64_t id = ahead.running ? ahead.thread_id : 0;
    pthread_mutex_unlock(&ahead.lock);
    return id;
}

/* Ends the thread. Returns with the lock held. */
static void
join_thread_and_lock(void)
{
    pthread_mutex_lock(&ahead.join_lock);
    pthread_mutex_lock(&ahead.lock);
    if (ahead.running) {
        ahead.ending = true;
        pthread_cond_signal(&ahead.wake);
        pthread_mutex_unlock(&ahead.lock);
        pthread_join(ahead.thread, NULL);    /* waits at most until one chunk is touched: 0.5 ms */
        pthread_mutex_lock(&ahead.lock);
        ahead.running = ahead.makes = false;
    }
    pthread_mutex_unlock(&ahead.join_lock);
}

void
ep_ahead_stop(void)
{
    ep_ahead_use_file(ahead.file);
}

void
ep_ahead_pause(void)
{
    join_thread_and_lock();
    pthread_mutex_unlock(&ahead.lock);
}

void
ep_ahead_use_file(ep_file *file)
{
    join_thread_and_lock();
    while (ahead.count > 0) {
        ep_os_unmap(ahead.ready[--ahead.count], EP_CHUNK_BYTES);
    }
    ahead.file = file;
    pthread_mutex_unlock(&ahead.lock);
}

void
ep_ahead_before_fork(void)
{
    join_thread_and_lock();
    ep_ahead_await_end(&ahead.thread_id);
}

void
ep_ahead_after_fork(void)
{
    pthread_mutex_unlock(&ahead.lock);
}
