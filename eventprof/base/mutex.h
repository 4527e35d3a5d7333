/* Locks, and the words by which clang checks what they protect.
 *
 *   static ep_mutex lock = EP_MUTEX_INIT;
 *   #define LOCKED EP_REQUIRES(lock)
 *   static size_t count EP_GUARDED_BY(lock);    read and written with the lock alone
 *   static LOCKED void add(void);               called with the lock alone
 *
 * ./dev lint compiles with clang's -Wthread-safety and -Werror; for gcc the words are empty. Of a struct
 * whose fields a lock protects the lock is a variable beside it, because in C a field cannot name another
 * field. What is only written by one thread, or before others can see it, has no such word: its comment
 * says so. */
#ifndef EP_MUTEX_H
#define EP_MUTEX_H

#include <pthread.h>
#include <stdbool.h>

#ifdef __clang__
#define EP_THREAD_SAFETY(...) __attribute__((__VA_ARGS__))
#else
#define EP_THREAD_SAFETY(...)
#endif

/* A variable or field: who reads or writes it has the lock. What a pointer points to is not meant. */
#define EP_GUARDED_BY(lock) EP_THREAD_SAFETY(guarded_by(lock))
/* A function: its caller has the lock, before and after. */
#define EP_REQUIRES(...) EP_THREAD_SAFETY(requires_capability(__VA_ARGS__))
/* A function: it takes the lock, and its caller has it afterwards; gives it back. */
#define EP_ACQUIRES(...) EP_THREAD_SAFETY(acquire_capability(__VA_ARGS__))
#define EP_RELEASES(...) EP_THREAD_SAFETY(release_capability(__VA_ARGS__))
/* A function: it takes the lock if it returns true. */
#define EP_TRY_ACQUIRES(...) EP_THREAD_SAFETY(try_acquire_capability(true, __VA_ARGS__))
/* A function that is not checked; a comment says why it may do what it does. */
#define EP_NOT_CHECKED EP_THREAD_SAFETY(no_thread_safety_analysis)

typedef struct EP_THREAD_SAFETY(capability("mutex")) ep_mutex {
    pthread_mutex_t os;
} ep_mutex;

#define EP_MUTEX_INIT {PTHREAD_MUTEX_INITIALIZER}

/* Not checked: clang knows nothing of the system's locks. */
static inline void ep_mutex_lock(ep_mutex *mutex) EP_ACQUIRES(*mutex) EP_NOT_CHECKED;
static inline bool ep_mutex_try(ep_mutex *mutex) EP_TRY_ACQUIRES(*mutex) EP_NOT_CHECKED;
static inline void ep_mutex_unlock(ep_mutex *mutex) EP_RELEASES(*mutex) EP_NOT_CHECKED;
static inline void ep_mutex_wait(ep_mutex *mutex, pthread_cond_t *condition) EP_REQUIRES(*mutex);

static inline void
ep_mutex_lock(ep_mutex *mutex)
{
    pthread_mutex_lock(&mutex->os);
}

static inline bool
ep_mutex_try(ep_mutex *mutex)
{
    return pthread_mutex_trylock(&mutex->os) == 0;
}

static inline void
ep_mutex_unlock(ep_mutex *mutex)
{
    pthread_mutex_unlock(&mutex->os);
}

/* Gives the lock back while it waits. */
static inline void
ep_mutex_wait(ep_mutex *mutex, pthread_cond_t *condition)
{
    pthread_cond_wait(condition, &mutex->os);
}

/* As if nobody had it: in a child of a fork whose threads are gone, and before its first use. */
static inline void
ep_mutex_renew(ep_mutex *mutex)
{
    pthread_mutex_init(&mutex->os, NULL);
}

#endif
