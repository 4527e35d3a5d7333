/* The source of waits: a thread stops, and goes on later.
 *
 * `with lock:` is no call that the interpreter reports, and a call of a C function that waits does not say
 * for what. Below, all of it is a few functions of the C library, which the interpreter and its extension
 * modules import: their slots are changed (import_tables.h) while waits are recorded.
 *
 *   for the interpreter's lock   pthread_cond_timedwait(), by the interpreter alone, 5 ms at a time
 *   for other locks              sem_wait(), sem_clockwait(), sem_timedwait(): what is free is taken by
 *                                sem_trywait(), which is left alone. Without a GIL, before that:
 *                                sched_yield(), some 40 times
 *   asleep                       clock_nanosleep()
 *   for I/O                      poll() and its relatives, and those that read, write, connect, accept
 *   for a process                waitpid() and its relatives
 *
 * Two events: the begin, and the end with the time between them. A call that seldom waits (read) has only
 * the end, if it took long. With the end comes what was waited for, and the number of the thread that let
 * this one go on, by sem_post(). What a process waits for at a pipe, another one writes: each write to a
 * pipe is an event.
 *
 * A thread that neither waits nor runs has no event: others have the processors, or it waits for what is
 * not replaced here. So each thread looks at its processor time every 10 ms, before its next event
 * (EP_TODO_PROCESSOR), and before it waits. The time since its last look that was neither work nor a
 * recorded wait is recorded as a wait that ends now: for a processor, as far as the system counted that,
 * and for `other` otherwise. */
#include "compat.h"

#include <errno.h>
#include <string.h>

#include "engine.h"
#include "import_tables.h"
#include "intern.h"
#include "errors.h"
#include "os.h"
#include "source.h"

static _Atomic uint32_t names[EP_WAIT_FOR_COUNT];    /* set before any wait is recorded */

uint32_t
ep_py_wait_name(ep_wait_for what)
{
    return atomic_load_explicit(&names[what], memory_order_relaxed);
}

#ifdef __linux__

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Of calls that usually do not wait. */
#define SHORTEST_CALL_NS 20000
/* A look before a wait, if the last one is so long ago. */
#define LOOK_NS 500000
/* Less is kept for the next look: what the system counted takes tens of us to read. */
#define SHORTEST_REST_NS 1000000

static ep_shared_kinds active;    /* what somebody records; 0: nothing */

/* ---- Who lets whom go on --------------------------------------------------------------------- */

#define WAITERS 256    /* a power of 2; who finds no place has no waker */
#define PROBES 8

/* A thread that waits for a semaphore. */
typedef struct waiter {
    _Atomic(const void *) semaphore;    /* NULL: free */
    _Atomic uint64_t waker;             /* the system's number of the thread that posted last; 0: nobody */
} waiter;

static waiter waiters[WAITERS];
static _Atomic uint32_t waiter_count;

static inline size_t
first_probe(const void *semaphore)
{
    uintptr_t at = (uintptr_t)semaphore >> 4;
    return (at ^ at >> 9) & (WAITERS - 1);
}

static waiter *
begin_waiting_for(const void *semaphore)
{
    size_t first = first_probe(semaphore);
    for (size_t i = 0; i < PROBES; i++) {
        waiter *at = &waiters[(first + i) & (WAITERS - 1)];
        const void *none = NULL;
        if (atomic_load_explicit(&at->semaphore, memory_order_relaxed) == NULL &&
            atomic_compare_exchange_strong(&at->semaphore, &none, semaphore)) {
            atomic_fetch_add(&waiter_count, 1);
            return at;
        }
    }
    return NULL;
}

static uint64_t
end_waiting(waiter *at)
{
    uint64_t waker = atomic_exchange_explicit(&at->waker, 0, memory_order_relaxed);
    atomic_store(&at->semaphore, NULL);
    atomic_fetch_sub(&waiter_count, 1);
    return waker;
}

/* HOT: each lock that is given back comes here. */
static inline void
note_waker(const void *semaphore)
{
    if (EP_LIKELY(atomic_load_explicit(&waiter_count, memory_order_relaxed) == 0)) {
        return;
    }
    ep_log *log = ep_log_current;
    size_t first = first_probe(semaphore);
    for (size_t i = 0; log != NULL && i < PROBES; i++) {
        waiter *at = &waiters[(first + i) & (WAITERS - 1)];
        if (atomic_load_explicit(&at->semaphore, memory_order_relaxed) == semaphore) {
            atomic_store_explicit(&at->waker, log->thread->native_id, memory_order_relaxed);
        }
    }
}

/* ---- What a semaphore stands for ---------------------------------------------------------------- */

/* Whether something is on this thread's stack, in the last few calls. */
static bool
is_on_stack(uintptr_t address)
{
    char here;
    intptr_t distance = (intptr_t)(address - (uintptr_t)&here);
    return distance > -(1 << 16) && distance < 1 << 16;
}

/* What a thread waits for that waits for a semaphore. */
typedef struct lock_waited_for {
    ep_wait_for what;
    uint64_t word;       /* an EP_WAIT_OBJECT_WORD(); 0: unknown */
    uintptr_t object;    /* of CRITICAL: that of Python which has the lock, if it is in one; 0: none */
} lock_waited_for;

#if EP_GIL_DISABLED
#define THREAD_ATTACHED 1    /* a thread's state */

/* False: there is nothing to read. */
static bool
read_memory(uintptr_t from, void *to, size_t bytes)
{
    /* NOLINTNEXTLINE(performance-no-int-to-ptr): of another thread's object, perhaps */
    struct iovec here = {to, bytes}, there = {(void *)from, bytes};
    return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == (ssize_t)bytes;
}

/* The name of an object's type: a name of events. A lock may be in something that is no object, and then
 * what seems to be its type is none. 0: unknown. Some microseconds. */
static uint32_t
name_of_type(uintptr_t object)
{
    uintptr_t type;
    PyTypeObject found, of_found;
    char text[64] = "";
    if (!read_memory(object + offsetof(PyObject, ob_type), &type, sizeof type) ||
        !read_memory(type, &found, sizeof found) ||
        !read_memory((uintptr_t)Py_TYPE((PyObject *)&found), &of_found, sizeof of_found) ||
        !(of_found.tp_flags & Py_TPFLAGS_TYPE_SUBCLASS) ||
        !read_memory((uintptr_t)found.tp_name, text, sizeof text - 1)) {
        return 0;
    }
    ep_name_text name = {.qualname = {text, strlen(text)}, .line = -1, .kind = EP_NAME_WAIT};
    return text[0] != '\0' ? ep_name_of_text(&name) : 0;
}

/* The innermost critical section is one that the thread is about to enter. */
static bool
enters_section(const PyThreadState *ts)
{
    /* NOLINTNEXTLINE(performance-no-int-to-ptr): two bits of it are marks */
    const PyCriticalSection *section = (const PyCriticalSection *)(ts->critical_section & ~(uintptr_t)3);
    return section != NULL && section->_cs_mutex == NULL;
}

/* Sets of a lock at an address: it may be an object's. */
static void
look_for_object(lock_waited_for *lock, uintptr_t address, const PyThreadState *ts)
{
    if (ts != NULL && enters_section(ts)) {
        lock->what = EP_WAIT_FOR_CRITICAL;
        uintptr_t object = address - offsetof(PyObject, ob_mutex);
        if (object % 16 == 0) {
            lock->object = object;
            lock->word = EP_WAIT_OBJECT_WORD(EP_WAIT_OBJECT_OBJECT, object >> 3);
        }
    }
}

/* Whether all threads are stopped, or this one waits until they are: the only one that waits attached. */
static bool
is_world_stopped(uintptr_t address, PyThreadState *ts)
{
    return ts != NULL && (address == (uintptr_t)&ts->state ||
                          __atomic_load_n(&ts->state, __ATOMIC_RELAXED) == THREAD_ATTACHED);
}

#else

static uint32_t
name_of_type(uintptr_t object)
{
    (void)object;
    return 0;
}

#endif

/* From 3.13 on, threads wait for most locks in one place of the interpreter (Python/parking_lot.c). Each
 * has a semaphore on its stack there, and right before it the address of what it waits for; and before
 * that, if that is a mutex, an address on its stack. */
static lock_waited_for
lock_of(const void *semaphore)
{
    lock_waited_for lock = {.what = EP_WAIT_FOR_LOCK};
    if (!is_on_stack((uintptr_t)semaphore)) {
        lock.word = EP_WAIT_OBJECT_WORD(EP_WAIT_OBJECT_LOCK, (uintptr_t)semaphore >> 3);
        return lock;
    }
#if EP_HAS_PARKING_LOT
    const uintptr_t *words = semaphore;
    uintptr_t of_mutex = words[-2], address = words[-1];
    bool is_mutex = address != 0 && is_on_stack(of_mutex);
    if (is_mutex) {
        lock.word = EP_WAIT_OBJECT_WORD(EP_WAIT_OBJECT_LOCK, address >> 3);
    }
#if EP_GIL_DISABLED
    PyThreadState *ts = PyGILState_GetThisThreadState();
    if (is_mutex) {
        look_for_object(&lock, address, ts);
    } else if (of_mutex == 0 && is_world_stopped(address, ts)) {
        lock.what = EP_WAIT_FOR_WORLD;
    }
#endif
#endif
    return lock;
}

/* ---- Objects that are loaded later ------------------------------------------------------------ */

static _Atomic bool changing_slots;
static _Atomic uint64_t changes_seen;    /* of the loaded objects */
static void put_slots_again(void);

/* Some 100 ns. Not in waits for the interpreter's lock, in which its mutex is held. */
static void
look_for_objects(void)
{
    uint64_t changes = ep_py_objects_changes();
    if (EP_LIKELY(changes == atomic_load_explicit(&changes_seen, memory_order_relaxed)) ||
        atomic_exchange(&changing_slots, true)) {
        return;
    }
    atomic_store_explicit(&changes_seen, changes, memory_order_relaxed);
    if (ep_shared_kinds_get(&active) != 0) {
        put_slots_again();
    }
    atomic_store(&changing_slots, false);
}

/* ---- Events ---------------------------------------------------------------------------------- */

/* A thread's own frame stays where it is while the thread waits, with or without the interpreter's lock. */
static ep_frame *
frame_of_thread(void)
{
    PyThreadState *ts = PyGILState_GetThisThreadState();
    if (ts == NULL || !ep_py_sites_usable || !ep_py_is_own_interpreter(ts)) {
        return NULL;
    }
    return ep_frame_of_program(ep_frame_current(ts));
}

/* As above, before any event: greenlet frees blocks in the middle of a switch, where Python before 3.13 has
 * no frame that can be read. It does not wait there. */
static ep_frame *
frame_before_event(void)
{
    bool may_switch =
        EP_FRAMES_NEED_STACK && atomic_load_explicit(&ep_py_greenlets, memory_order_relaxed);
    return may_switch ? NULL : frame_of_thread();
}

/* A wait that goes on. */
typedef struct stopped {
    ep_log *log;               /* NULL: it is not recorded */
    int64_t start_ns;
    int64_t ns;                /* after wait_ended() */
    uint32_t site;
    ep_wait_for what;
    bool has_begin;
    int error;                 /* errno, from wait_ended() to put_end() */
} stopped;

/* A thread's last look at its processor time. */
typedef struct look {
    uint64_t recording;     /* of `recordings`, then */
    int64_t at_ns, ran_ns;
    int64_t queued_ns;      /* when it was read last, and in spins since then; -1: unknown */
    int64_t waited_ns;      /* since then, in waits that are events */
    int64_t rest_ns;        /* neither, and not yet an event */
} look;

static _Thread_local look last_look;
static _Atomic uint64_t recordings = 1;    /* how often waits began to be recorded, or a child was forked */

static void
put_rest(ep_log *log, ep_wait_for what, int64_t ns)
{
    if (ns > 0) {
        uint32_t site = ep_py_place_unattached(ep_py_wait_name(what),
                                               frame_before_event());
        uint64_t ticks = ep_clock_ticks();
        ep_log_put_value_at(log, ep_ticks_halves(ticks), EP_KIND_WAIT, site, EP_WAIT_WORD(what, ns));
        log->not_before = ticks;
    }
}

/* The log is busy. asks: may read what the system counted. */
static void
look_at_processor(ep_log *log, int64_t now_ns, bool asks)
{
    look *l = &last_look;
    uint64_t recording = atomic_load_explicit(&recordings, memory_order_relaxed);
    int64_t ran_ns = ep_os_thread_ran_ns();
    if (l->recording != recording) {
        *l = (look){.recording = recording, .queued_ns = asks ? ep_os_thread_queued_ns() : -1};
    } else {
        int64_t rest_ns = l->rest_ns + (now_ns - l->at_ns) - l->waited_ns - (ran_ns - l->ran_ns);
        l->rest_ns = rest_ns > 0 ? rest_ns : 0;
    }
    l->at_ns = now_ns;
    l->ran_ns = ran_ns;
    l->waited_ns = 0;
    if (asks && l->rest_ns >= SHORTEST_REST_NS) {
        int64_t queued_ns = ep_os_thread_queued_ns();
        int64_t part_ns = queued_ns >= 0 && l->queued_ns >= 0 ? queued_ns - l->queued_ns : 0;
        part_ns = part_ns > 0 ? part_ns : 0;
        part_ns = part_ns < l->rest_ns ? part_ns : l->rest_ns;
        put_rest(log, EP_WAIT_FOR_OTHER, l->rest_ns - part_ns);
        put_rest(log, EP_WAIT_FOR_PROCESSOR, part_ns);
        l->queued_ns = queued_ns;
        l->rest_ns = 0;
    }
}

/* Before an event, when EP_TODO_PROCESSOR is set. */
static void
look_before_event(ep_log *log)
{
    if (ep_shared_kinds_get(&active) == 0) {
        return;
    }
    int error = errno;
    uint32_t busy = log->busy;
    log->busy = EP_BUSY_OWN;
    look_at_processor(log, ep_os_monotonic_ns(), true);
    log->busy = busy;
    errno = error;
}

/* Threads of libraries, which never run Python code, are not recorded. One of Python waits for the
 * interpreter's lock before its first event. NULL: none. */
static ep_log *
log_of_thread(ep_wait_for what)
{
    ep_log *log = ep_log_current;
    if (EP_LIKELY(log != NULL) ||
        (what != EP_WAIT_FOR_GIL && PyGILState_GetThisThreadState() == NULL)) {
        return log;
    }
    return ep_log_mine();
}

/* usual: whether such a call waits; its begin is an event. object: of Python, whose lock it waits for; 0:
 * none. */
static EP_COLD stopped
begin_wait(ep_wait_for what, bool usual, uintptr_t object)
{
    stopped w = {.log = NULL, .what = what, .has_begin = usual};
    if (ep_shared_kinds_get(&active) == 0 || ep_engine_inside != 0) {
        return w;
    }
    int error = errno;
    ep_log *log = log_of_thread(what);
    if (log == NULL || log->busy != 0) {
        errno = error;
        return w;
    }
    log->busy = EP_BUSY_OWN;
    if (what != EP_WAIT_FOR_GIL) {
        look_for_objects();
    }
    w.log = log;
    int64_t now_ns = ep_os_monotonic_ns();
    if (now_ns - last_look.at_ns >= LOOK_NS) {
        look_at_processor(log, now_ns, what != EP_WAIT_FOR_GIL);
    }
    uint32_t name = object != 0 ? name_of_type(object) : 0;
    w.site = ep_py_place_unattached(name != 0 ? name : ep_py_wait_name(what), frame_of_thread());
    if (usual) {
        ep_log_put_value_at(log, ep_ticks_halves(ep_clock_ticks()), EP_KIND_WAIT_BEGIN, w.site,
                            EP_WAIT_WORD(what, 0));
    }
    log->busy = 0;
    w.start_ns = ep_os_monotonic_ns();
    errno = error;
    return w;
}

/* Returns: whether the end is an event; put_end() follows then. */
static EP_COLD bool
wait_ended(stopped *w)
{
    if (w->log == NULL) {
        return false;
    }
    w->ns = ep_os_monotonic_ns() - w->start_ns;
    w->ns = w->ns > 0 ? w->ns : 0;
    w->error = errno;
    return w->has_begin || w->ns >= SHORTEST_CALL_NS;
}

/* waker: the system's number of the thread that let this one go on; 0: unknown. object: an
 * EP_WAIT_OBJECT_WORD(); 0: unknown. */
static EP_COLD void
put_end(const stopped *w, uint64_t waker, uint64_t object)
{
    last_look.waited_ns += w->ns;
    w->log->busy = EP_BUSY_OWN;
    ep_ticks ticks = ep_ticks_halves(ep_clock_ticks());
    if (object != 0) {
        ep_log_put_value_at(w->log, ticks, EP_KIND_WAIT_OBJECT, w->site, object);
    }
    if (waker != 0) {
        ep_log_put_value_at(w->log, ticks, EP_KIND_WAKER, w->site, waker);
    }
    ep_log_put_value_at(w->log, ticks, EP_KIND_WAIT, w->site, EP_WAIT_WORD(w->what, w->ns));
    w->log->busy = 0;
    errno = w->error;
}

/* After a part of a spin for a lock: an end without a begin, as no other wait for a lock has it. Meanwhile
 * the thread was in the queue for a processor. */
static EP_COLD void
end_spin(stopped *w)
{
    if (ep_shared_kinds_get(&active) == 0 || ep_engine_inside != 0) {
        return;
    }
    int error = errno;
    ep_log *log = log_of_thread(EP_WAIT_FOR_LOCK);
    if (log != NULL && log->busy == 0) {
        log->busy = EP_BUSY_OWN;
        w->site = ep_py_place_unattached(
            ep_py_wait_name(EP_WAIT_FOR_LOCK), frame_of_thread());
        log->busy = 0;
        last_look.queued_ns += last_look.queued_ns >= 0 ? ep_os_monotonic_ns() - w->start_ns : 0;
        w->log = log;
        if (wait_ended(w)) {
            put_end(w, 0, 0);
        }
    }
    errno = error;
}

/* ---- What is waited for ---------------------------------------------------------------------- */

/* Files whose sort is known; who has a larger number is asked for each time. */
#define KNOWN_FILES 1024
enum {
    FILE_UNKNOWN,
    FILE_IS_PIPE,
    FILE_IS_NO_PIPE
};
static _Atomic uint8_t known_files[KNOWN_FILES];

static void
forget_file(int file)
{
    if (file >= 0 && file < KNOWN_FILES) {
        atomic_store_explicit(&known_files[file], FILE_UNKNOWN, memory_order_relaxed);
    }
}

/* Some 150 ns. */
static uint64_t
object_of_file(int file)
{
    struct stat found;
    if (fstat(file, &found) != 0) {
        return 0;
    }
    ep_wait_object object = EP_WAIT_OBJECT_DEVICE;
    switch (found.st_mode & S_IFMT) {
        case S_IFREG:
        case S_IFDIR:  object = EP_WAIT_OBJECT_FILE; break;
        case S_IFIFO:  object = EP_WAIT_OBJECT_PIPE; break;
        case S_IFSOCK: object = EP_WAIT_OBJECT_SOCKET; break;
        case S_IFCHR:  object = isatty(file) ? EP_WAIT_OBJECT_TERMINAL : EP_WAIT_OBJECT_DEVICE; break;
        case 0:        return EP_WAIT_OBJECT_WORD(EP_WAIT_OBJECT_EVENTS, 0);    /* one inode for all */
        default:       break;
    }
    return EP_WAIT_OBJECT_WORD(object, found.st_ino);
}

/* Of those that are ready, the first. */
static uint64_t
object_of_files(const struct pollfd *files, nfds_t count, int ready)
{
    for (nfds_t i = 0; i < count && ready > 0; i++) {
        if (files[i].revents != 0) {
            return object_of_file(files[i].fd);
        }
    }
    return count == 1 ? object_of_file(files[0].fd) : 0;
}

/* Of those that may be read, the first. */
static uint64_t
object_of_set(int count, const fd_set *reads, int ready)
{
    for (int file = 0; file < count && reads != NULL && ready > 0; file++) {
        if (FD_ISSET(file, reads)) {
            return object_of_file(file);
        }
    }
    return 0;
}

static uint64_t
object_of_process(pid_t ended, pid_t asked)
{
    pid_t process = ended > 0 ? ended : asked;
    return process > 0 ? EP_WAIT_OBJECT_WORD(EP_WAIT_OBJECT_PROCESS, process) : 0;
}

/* Before a write. */
static void
note_write(const stopped *w, int file)
{
    bool is_small = file >= 0 && file < KNOWN_FILES;
    uint8_t known = FILE_UNKNOWN;
    if (is_small) {
        known = atomic_load_explicit(&known_files[file], memory_order_relaxed);
    }
    if (w->log == NULL || known == FILE_IS_NO_PIPE) {
        return;
    }
    int error = errno;
    uint64_t object = object_of_file(file);
    bool is_pipe = (object & 15) == EP_WAIT_OBJECT_PIPE && object != 0;
    if (is_small && known == FILE_UNKNOWN) {
        atomic_store_explicit(&known_files[file], is_pipe ? FILE_IS_PIPE : FILE_IS_NO_PIPE,
                              memory_order_relaxed);
    }
    if (is_pipe) {
        w->log->busy = EP_BUSY_OWN;
        ep_log_put_value_at(w->log, ep_ticks_halves(ep_clock_ticks()), EP_KIND_PIPE_WRITE, w->site,
                            object);
        w->log->busy = 0;
    }
    errno = error;
}

/* ---- Replacements ---------------------------------------------------------------------------- */

/* X(function, its type, what is waited for, whether this call usually waits, for which object, as `result`
 * tells, parameters, arguments) */
/* clang-format off */
#define CALLS(X)                                                                                        \
    X(clock_nanosleep, int, SLEEP, true, 0,                                                             \
      (clockid_t clock, int flags, const struct timespec *time, struct timespec *rest),                 \
      (clock, flags, time, rest))                                                                       \
    X(poll, int, IO, limit_ms != 0, object_of_files(files, count, result),                              \
      (struct pollfd *files, nfds_t count, int limit_ms), (files, count, limit_ms))                     \
    X(epoll_wait, int, IO, limit_ms != 0, object_of_file(file),                                         \
      (int file, struct epoll_event *events, int count, int limit_ms), (file, events, count, limit_ms)) \
    X(select, int, IO, limit == NULL || limit->tv_sec != 0 || limit->tv_usec != 0,                      \
      object_of_set(count, reads, result),                                                              \
      (int count, fd_set *reads, fd_set *writes, fd_set *fails, struct timeval *limit),                 \
      (count, reads, writes, fails, limit))                                                             \
    X(accept4, int, IO, true, object_of_file(file),                                                     \
      (int file, struct sockaddr *from, socklen_t *bytes, int flags), (file, from, bytes, flags))       \
    X(connect, int, IO, true, object_of_file(file),                                                     \
      (int file, const struct sockaddr *to, socklen_t bytes), (file, to, bytes))                        \
    X(read, ssize_t, IO, false, object_of_file(file),                                                   \
      (int file, void *to, size_t bytes), (file, to, bytes))                                            \
    X(recv, ssize_t, IO, false, object_of_file(file),                                                   \
      (int file, void *to, size_t bytes, int flags), (file, to, bytes, flags))                          \
    X(recvfrom, ssize_t, IO, false, object_of_file(file),                                               \
      (int file, void *to, size_t bytes, int flags, struct sockaddr *from, socklen_t *from_bytes),      \
      (file, to, bytes, flags, from, from_bytes))                                                       \
    X(recvmsg, ssize_t, IO, false, object_of_file(file),                                                \
      (int file, struct msghdr *message, int flags), (file, message, flags))                            \
    X(send, ssize_t, IO, false, object_of_file(file),                                                   \
      (int file, const void *from, size_t bytes, int flags), (file, from, bytes, flags))                \
    X(sendmsg, ssize_t, IO, false, object_of_file(file),                                                \
      (int file, const struct msghdr *message, int flags), (file, message, flags))                      \
    X(fsync, int, IO, false, object_of_file(file), (int file), (file))                                  \
    X(waitpid, pid_t, PROCESS, !(flags & WNOHANG), object_of_process(result, process),                  \
      (pid_t process, int *status, int flags), (process, status, flags))                                \
    X(wait4, pid_t, PROCESS, !(flags & WNOHANG), object_of_process(result, process),                    \
      (pid_t process, int *status, int flags, struct rusage *usage), (process, status, flags, usage))   \
    X(waitid, int, PROCESS, !(flags & WNOHANG),                                                         \
      object_of_process(result == 0 && about != NULL ? about->si_pid : 0, type == P_PID ? (pid_t)id : 0), \
      (idtype_t type, id_t id, siginfo_t *about, int flags), (type, id, about, flags))                  \
    X(pthread_cond_timedwait, int, GIL, true, 0,                                                        \
      (pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until),                \
      (condition, mutex, until))                                                                        \
    X(pthread_cond_wait, int, GIL, true, 0, (pthread_cond_t *condition, pthread_mutex_t *mutex),        \
      (condition, mutex))

/* After these a number may be another file's: X(function, its type, number, parameters, arguments). */
#define REOPENERS(X)                                                              \
    X(close, int, file, (int file), (file))                                       \
    X(dup2, int, to, (int from, int to), (from, to))                              \
    X(dup3, int, to, (int from, int to, int flags), (from, to, flags))

/* musl declares none. Its type alone is asked for here: it is found by its name, where there is one. */
int sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *until);

/* For locks: X(function, parameters, arguments). */
#define LOCKS(X)                                                                                        \
    X(sem_wait, (sem_t *semaphore), (semaphore))                                                        \
    X(sem_clockwait, (sem_t *semaphore, clockid_t clock, const struct timespec *until),                 \
      (semaphore, clock, until))                                                                        \
    X(sem_timedwait, (sem_t *semaphore, const struct timespec *until), (semaphore, until))
/* clang-format on */

enum {
#define AT_PLACE(name, ...) AT_##name,
    CALLS(AT_PLACE)
    REOPENERS(AT_PLACE)
        LOCKS(AT_PLACE) AT_write,
    AT_sem_post,
    AT_sched_yield,    /* the last: with a GIL it stays as it is */
    SWAP_COUNT
};

static ep_py_swap swaps_by_name[SWAP_COUNT];
static ep_py_swaps swaps = {.all = swaps_by_name,
                            .count = EP_GIL_DISABLED ? SWAP_COUNT : AT_sched_yield};

#define BELOW(name) ((__typeof__(&name))ep_py_swap_below(&swaps_by_name[AT_##name]))

#define REPLACE_CALL(name, type, what, usual, object, parameters, arguments) \
    static type replaced_##name parameters                                   \
    {                                                                        \
        stopped w = begin_wait(EP_WAIT_FOR_##what, (usual), 0);              \
        type result = BELOW(name) arguments;                                 \
        if (wait_ended(&w)) {                                                \
            put_end(&w, 0, (object));                                        \
        }                                                                    \
        return result;                                                       \
    }
CALLS(REPLACE_CALL)

static ssize_t
replaced_write(int file, const void *from, size_t bytes)
{
    stopped w = begin_wait(EP_WAIT_FOR_IO, false, 0);
    note_write(&w, file);
    ssize_t result = BELOW(write)(file, from, bytes);
    if (wait_ended(&w)) {
        put_end(&w, 0, object_of_file(file));
    }
    return result;
}

#define REPLACE_REOPENER(name, type, number, parameters, arguments) \
    static type replaced_##name parameters                          \
    {                                                               \
        forget_file(number);                                        \
        type result = BELOW(name) arguments;                        \
        forget_file(number);                                        \
        return result;                                              \
    }
REOPENERS(REPLACE_REOPENER)

#define REPLACE_LOCK(name, parameters, arguments)             \
    static int replaced_##name parameters                     \
    {                                                         \
        waiter *at = begin_waiting_for(semaphore);            \
        lock_waited_for lock = lock_of(semaphore);            \
        stopped w = begin_wait(lock.what, true, lock.object); \
        int result = BELOW(name) arguments;                   \
        uint64_t waker = at != NULL ? end_waiting(at) : 0;    \
        if (wait_ended(&w)) {                                 \
            put_end(&w, result == 0 ? waker : 0, lock.word);  \
        }                                                     \
        return result;                                        \
    }
LOCKS(REPLACE_LOCK)

static int
replaced_sem_post(sem_t *semaphore)
{
    note_waker(semaphore);
    return BELOW(sem_post)(semaphore);
}

/* Without a GIL a thread that wants a lock calls it again and again before it sleeps, which takes long
 * where others have the processors. Short calls cost two readings of the clock. os.sched_yield() is called
 * by threads that are not attached, and waits for no lock. A lock that is taken in a spin has no waker:
 * nobody posted a semaphore. */
static int
replaced_sched_yield(void)
{
    stopped w = {.what = EP_WAIT_FOR_LOCK, .start_ns = ep_os_monotonic_ns()};
    int result = BELOW(sched_yield)();
    if (EP_UNLIKELY(ep_os_monotonic_ns() - w.start_ns >= SHORTEST_CALL_NS) && ep_thread_state() != NULL) {
        end_spin(&w);
    }
    return result;
}

static ep_py_swap swaps_by_name[SWAP_COUNT] = {
#define SWAP_CALL(function, type, what, ...)                                  \
    [AT_##function] = {.name = #function,                                     \
                       .replacement = (void *)(uintptr_t)replaced_##function, \
                       .interpreter_only = EP_WAIT_FOR_##what == EP_WAIT_FOR_GIL},
#define SWAP_OTHER(function, ...) \
    [AT_##function] = {.name = #function, .replacement = (void *)(uintptr_t)replaced_##function},
    CALLS(SWAP_CALL) REOPENERS(SWAP_OTHER) LOCKS(SWAP_OTHER) SWAP_OTHER(write) SWAP_OTHER(sem_post)
        [AT_sched_yield] = {.name = "sched_yield",
                            .replacement = (void *)(uintptr_t)replaced_sched_yield,
                            .interpreter_only = true}};

/* ---- In and out ------------------------------------------------------------------------------ */

static void
put_slots_again(void)
{
    (void)ep_py_swaps_put(&swaps);
}

/* In a forked child no other thread waits. */
static void
forget_waiters(void)
{
    memset(waiters, 0, sizeof waiters);
    atomic_fetch_add(&recordings, 1);    /* its processor time begins anew */
    atomic_store(&changing_slots, false);
    atomic_store(&waiter_count, 0);
}

/* Fails: -1, exception set. */
static int
prepare(void)
{
    static bool watches_forks;
    for (int what = 0; what < EP_WAIT_FOR_COUNT; what++) {
        const char *word = ep_wait_words[what];
        ep_name_text name = {
            .qualname = {word, strlen(word)}, .line = -1, .kind = EP_NAME_WAIT};
        atomic_store_explicit(&names[what], ep_name_of_text(&name), memory_order_relaxed);
    }
    if (!watches_forks && pthread_atfork(NULL, NULL, forget_waiters) != 0) {
        PyErr_NoMemory();
        return -1;
    }
    watches_forks = true;
    for (int file = 0; file < KNOWN_FILES; file++) {
        forget_file(file);    /* nobody saw which were closed */
    }
    ep_py_look_at_processor = look_before_event;
    atomic_store_explicit(&changes_seen, ep_py_objects_changes(), memory_order_relaxed);
    if (ep_py_swaps_put(&swaps) == 0) {
        PyErr_SetString(ep_py_error(EP_ERROR_UNSUPPORTED),
                        "the functions by which this interpreter waits cannot be replaced; record without "
                        "waits=True");
        return -1;
    }
    return 0;
}

static void
begin_to_change(void)
{
    while (atomic_exchange(&changing_slots, true)) {
        sched_yield();    /* some 100 us at the most */
    }
}

bool
ep_py_waits_available(void)
{
    begin_to_change();
    bool can = ep_py_swaps_put(&swaps) != 0;
    if (ep_shared_kinds_get(&active) == 0) {
        ep_py_swaps_take_back(&swaps);
    }
    atomic_store(&changing_slots, false);
    return can;
}

static int
adjust(ep_kind_set kinds)
{
    ep_kind_set were = ep_shared_kinds_get(&active);
    if (kinds == 0 && were == 0) {
        return 0;    /* a look at all tables would be ten times the work of a start */
    }
    begin_to_change();
    int status = kinds != 0 ? prepare() : 0;
    if (status == 0) {
        atomic_fetch_add(&recordings, were == 0);
        ep_shared_kinds_set(&active, kinds);
    }
    if (kinds == 0) {
        ep_py_swaps_take_back(&swaps);
    }
    atomic_store(&changing_slots, false);
    return status;
}

static bool
owns(void)
{
    return true;
}

#else

bool
ep_py_waits_available(void)
{
    return false;
}

static int
adjust(ep_kind_set kinds)
{
    if (kinds == 0) {
        return 0;
    }
    PyErr_SetString(ep_py_error(EP_ERROR_UNSUPPORTED),
                    "waits are recorded on Linux alone; record without waits=True");
    return -1;
}

static bool
owns(void)
{
    return true;
}

#endif

const ep_source ep_source_waits = {
    .name = "waits",
    .kinds = ep_kinds_waits,
    .adjust = adjust,
    .owns = owns,
};
