/* POSIX (Linux, macOS) behind os.h, and the heap helpers that need a .c file. */
#include "os.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <dirent.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#elif defined(__APPLE__)
#include <mach/mach.h>
#endif

#include "memory.h"

#ifdef EP_FAULT_POINTS
_Atomic long ep_fault_countdown = -1;
void (*_Atomic ep_fault_handler)(ep_fault_point point);

bool
ep_fault_now(void)
{
    long left = atomic_load_explicit(&ep_fault_countdown, memory_order_relaxed);
    if (left < 0 || left == EP_FAULT_ALWAYS) {
        return left == EP_FAULT_ALWAYS;
    }
    return atomic_fetch_sub_explicit(&ep_fault_countdown, 1, memory_order_relaxed) == 0;
}
#endif

bool
ep_grow_raw(void **block, size_t *capacity, size_t need, size_t size)
{
    if (need <= *capacity) {
        return true;
    }
    size_t grown = *capacity ? *capacity : 16;
    while (grown < need) {
        grown *= 2;
    }
    void *moved = ep_realloc(*block, grown, size);
    if (moved == NULL) {
        return false;
    }
    *block = moved;
    *capacity = grown;
    return true;
}

bool
ep_grow(void **block, size_t *capacity, size_t need, size_t size)
{
    size_t before = *capacity;
    if (!ep_grow_raw(block, capacity, need, size)) {
        return false;
    }
    if (*capacity > before) {
        memset((char *)*block + before * size, 0, (*capacity - before) * size);
    }
    return true;
}

static _Atomic int64_t own_bytes;

int64_t
ep_os_own_bytes(void)
{
    return atomic_load_explicit(&own_bytes, memory_order_relaxed);
}

void
ep_os_own_add(int64_t bytes)
{
    /* Relaxed: a sum for statistics. */
    (void)atomic_fetch_add_explicit(&own_bytes, bytes, memory_order_relaxed);
}

void *
ep_os_map(size_t bytes)
{
    if (ep_fault_now()) {
        return NULL;
    }
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        return NULL;
    }
#ifdef MADV_NOHUGEPAGE
    /* Most of it may never be touched, and the writer must not wait for a huge page. */
    (void)madvise(at, bytes, MADV_NOHUGEPAGE);
#endif
    ep_os_own_add((int64_t)bytes);
    return at;
}

static size_t
round_up(size_t bytes)
{
    size_t page = ep_os_page_bytes();
    return (bytes + page - 1) / page * page;
}

/* The leak checker does not look for pointers in mappings. */
#ifdef __SANITIZE_ADDRESS__
void __lsan_register_root_region(const void *at, size_t bytes);
void __lsan_unregister_root_region(const void *at, size_t bytes);
#else
#define __lsan_register_root_region(at, bytes) ((void)0)
#define __lsan_unregister_root_region(at, bytes) ((void)0)
#endif

void *
ep_os_calloc_wiped(size_t bytes, size_t wiped)
{
    if (ep_fault_now()) {
        return NULL;
    }
    size_t first = round_up(wiped);
    size_t rest = round_up(bytes - wiped);
    char *at = mmap(NULL, first + rest, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        return NULL;
    }
#ifdef MADV_WIPEONFORK
    (void)madvise(at, first, MADV_WIPEONFORK);
#endif
    __lsan_register_root_region(at, first + rest);
    return at + first - wiped;
}

void
ep_os_free_wiped(void *at, size_t bytes, size_t wiped)
{
    size_t first = round_up(wiped), rest = round_up(bytes - wiped);
    char *begin = (char *)at + wiped - first;
    __lsan_unregister_root_region(begin, first + rest);
    munmap(begin, first + rest);
}

static uint32_t *same_process;    /* points to 1; to 0 in a forked child. NULL: not noted yet */

bool
ep_os_is_forked(void)
{
    return same_process != NULL && *(volatile uint32_t *)same_process == 0;
}

bool
ep_os_lock(ep_mutex *lock)
{
    if (EP_UNLIKELY(ep_os_is_forked())) {
        return ep_mutex_try(lock);
    }
    ep_mutex_lock(lock);
    return true;
}

bool
ep_os_note_process(void)
{
    if (same_process == NULL) {
        same_process = ep_os_calloc_wiped(sizeof *same_process, sizeof *same_process);
    }
    if (same_process != NULL) {
        *same_process = 1;
    }
    return same_process != NULL;
}

#define HUGE_BYTES (UINT64_C(1) << 21)
#define PAGE_BYTES 4096

static void *
map_huge(size_t bytes)
{
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || ((uintptr_t)at & (HUGE_BYTES - 1)) == 0) {
        return at != MAP_FAILED ? at : NULL;    /* since Linux 6.7 always */
    }
    (void)munmap(at, bytes);
    at = mmap(NULL, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        return NULL;
    }
    size_t before = -(uintptr_t)at & (HUGE_BYTES - 1);
    if (before > 0) {
        (void)munmap(at, before);
    }
    (void)munmap(at + before + bytes, HUGE_BYTES - before);
    return at + before;
}

void *
ep_os_map_touched(size_t bytes)
{
    if (ep_fault_now()) {
        return NULL;
    }
    char *at = map_huge(bytes);
    if (at == NULL) {
        return NULL;
    }
    ep_os_own_add((int64_t)bytes);
#ifdef MADV_HUGEPAGE
    (void)madvise(at, bytes, MADV_HUGEPAGE);
#endif
#ifdef MADV_POPULATE_WRITE
    if (madvise(at, bytes, MADV_POPULATE_WRITE) == 0) {
        return at;
    }
#endif
    for (size_t i = 0; i < bytes; i += PAGE_BYTES) {
        *(volatile char *)(at + i) = 0;
    }
    return at;
}

size_t
ep_os_page_bytes(void)
{
    long bytes = sysconf(_SC_PAGESIZE);
    return bytes > PAGE_BYTES ? (size_t)bytes : PAGE_BYTES;
}

void
ep_os_unmap(void *at, size_t bytes)
{
    (void)munmap(at, bytes);
    ep_os_own_add(-(int64_t)bytes);
}

void
ep_os_expect_use(void *at, size_t bytes)
{
#ifdef MADV_HUGEPAGE
    const uintptr_t huge = HUGE_BYTES;
    uintptr_t first = ((uintptr_t)at + huge - 1) & ~(huge - 1);
    uintptr_t end = ((uintptr_t)at + bytes) & ~(huge - 1);
    if (end > first) {
        (void)madvise((void *)first, end - first, MADV_HUGEPAGE);
    }
#else
    (void)at;
    (void)bytes;
#endif
}

void
ep_os_give_back(void *at, size_t bytes)
{
    uintptr_t page = ep_os_page_bytes();
    uintptr_t first = ((uintptr_t)at + page - 1) & ~(page - 1), end = ((uintptr_t)at + bytes) & ~(page - 1);
    if (end > first) {
        (void)madvise((void *)first, end - first, MADV_DONTNEED);
    }
}

bool
ep_os_path_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

uint64_t
ep_os_thread_id(void)
{
#ifdef __linux__
    return (uint64_t)syscall(SYS_gettid);
#else
    uint64_t id = 0;
    pthread_threadid_np(NULL, &id);
    return id;
#endif
}

uint64_t
ep_os_process_id(void)
{
    return (uint64_t)getpid();
}

uint64_t
ep_os_parent_process_id(void)
{
    return (uint64_t)getppid();
}

static int64_t
clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

bool
ep_os_thread_lives(uint64_t thread_id)
{
#ifdef __linux__
    int error = errno;
    bool lives = syscall(SYS_tgkill, getpid(), (pid_t)thread_id, 0) == 0 || errno != ESRCH;
    errno = error;
    return lives;
#else
    (void)thread_id;
    return true;
#endif
}

#ifdef __linux__
/* Whether the main thread has ended: it stays listed, as a zombie. */
static bool
is_main_thread_over(void)
{
    char text[512];
    int file = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t bytes = file >= 0 ? read(file, text, sizeof text - 1) : -1;
    if (file >= 0) {
        close(file);
    }
    if (bytes <= 0) {
        return false;
    }
    text[bytes] = 0;
    const char *name_end = strrchr(text, ')');    /* the name may have a parenthesis, too */
    return name_end != NULL && name_end[1] == ' ' && strchr("ZX", name_end[2]) != NULL;
}
#endif

bool
ep_os_other_threads_live(const uint64_t *thread_ids, size_t count)
{
#ifdef __linux__
    DIR *tasks = opendir("/proc/self/task");
    if (tasks == NULL) {
        return true;
    }
    bool found = false;
    const struct dirent *entry;
    while (!found && (entry = readdir(tasks)) != NULL) {
        uint64_t id = strtoull(entry->d_name, NULL, 10);
        found = id != 0;    /* 0: "." and ".." */
        for (size_t i = 0; found && i < count; i++) {
            found = id != thread_ids[i];
        }
        found = found && !(id == ep_os_process_id() && is_main_thread_over());
    }
    closedir(tasks);
    return found;
#else
    (void)thread_ids;
    (void)count;
    return true;
#endif
}

void
ep_os_thread_await_end(uint64_t thread_id)
{
#ifdef __linux__
    /* pthread_join() returns when the thread has left its stack; on a busy machine the kernel removes the
     * thread later. */
    for (int i = 0; i < 1000 && ep_os_thread_lives(thread_id); i++) {
        (void)sched_yield();
    }
#else
    (void)thread_id;
#endif
}

/* Beside a busy thread of the usual priority, the thread gets a quarter of a processor. A caller may have
 * to wait for the thread: with a still lower priority that would take long. */
#define LOWER_PRIORITY 5

void
ep_os_thread_lower_priority(void)
{
#ifdef __linux__
    (void)setpriority(PRIO_PROCESS, (id_t)ep_os_thread_id(), LOWER_PRIORITY);
#endif
}

size_t
ep_os_processor_count(void)
{
#ifdef __linux__
    cpu_set_t set;    /* fails if there are more processors than the set holds */
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        return (size_t)CPU_COUNT(&set);
    }
#endif
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? (size_t)count : 1;
}

int64_t
ep_os_monotonic_ns(void)
{
#ifdef __APPLE__
    /* The ns of mach_absolute_time(), as Python's time.monotonic_ns() gives them. CLOCK_MONOTONIC has whole
     * microseconds there, and runs while the machine sleeps. */
    return (int64_t)clock_gettime_nsec_np(CLOCK_UPTIME_RAW);
#else
    return clock_ns(CLOCK_MONOTONIC);
#endif
}

int64_t
ep_os_realtime_ns(void)
{
    return clock_ns(CLOCK_REALTIME);
}

int64_t
ep_os_boottime_ns(void)
{
#ifdef CLOCK_BOOTTIME
    return clock_ns(CLOCK_BOOTTIME);
#else
    return clock_ns(CLOCK_MONOTONIC);
#endif
}

int64_t
ep_os_thread_ran_ns(void)
{
    return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

int64_t
ep_os_thread_queued_ns(void)
{
    int64_t queued_ns = -1;
#ifdef __linux__
    /* Linux, Documentation/scheduler/sched-stats.rst: ns on the processor, ns on a run queue, slices. */
    char text[64] = "";
    int file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    ssize_t bytes = file >= 0 ? read(file, text, sizeof text - 1) : -1;
    char *second = bytes > 0 ? strchr(text, ' ') : NULL;
    if (second != NULL) {
        queued_ns = strtoll(second, NULL, 10);
    }
    if (file >= 0) {
        (void)close(file);
    }
#endif
    return queued_ns;
}

void
ep_os_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t how;
    pthread_condattr_init(&how);
#ifdef __linux__
    pthread_condattr_setclock(&how, CLOCK_MONOTONIC);
#endif
    pthread_cond_init(condition, &how);
    pthread_condattr_destroy(&how);
}

void
ep_os_condition_wait(pthread_cond_t *condition, ep_mutex *lock, int64_t ns)
{
#ifdef __linux__
    int64_t end = ep_os_monotonic_ns() + ns;
    struct timespec until = {.tv_sec = (time_t)(end / 1000000000), .tv_nsec = (long)(end % 1000000000)};
    (void)pthread_cond_timedwait(condition, &lock->os, &until);
#else
    struct timespec length = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    (void)pthread_cond_timedwait_relative_np(condition, &lock->os, &length);
#endif
}

int64_t
ep_os_resident_bytes(void)
{
#ifdef __linux__
    /* Without stdio: it allocates, and the reader may be inside of an allocator. */
    int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return -1;
    }
    char text[128];
    ssize_t bytes = read(file, text, sizeof text - 1);
    close(file);
    if (bytes <= 0) {
        return -1;
    }
    text[bytes] = 0;
    const char *second = strchr(text, ' ');
    return second != NULL ? (int64_t)strtoll(second, NULL, 10) * sysconf(_SC_PAGESIZE) : -1;
#elif defined(__APPLE__)
    mach_task_basic_info_data_t info;
    mach_msg_type_number_t count = MACH_TASK_BASIC_INFO_COUNT;
    kern_return_t result = task_info(mach_task_self(), MACH_TASK_BASIC_INFO, (task_info_t)&info, &count);
    return result == KERN_SUCCESS ? (int64_t)info.resident_size : -1;
#else
    return -1;
#endif
}

/* ---- End of a thread ------------------------------------------------------------------------- */

static pthread_key_t exit_key;
static void (*exit_handler)(void *);
static _Thread_local int exit_rounds;

/* pthread runs destructors in rounds while any key is set, PTHREAD_DESTRUCTOR_ITERATIONS at most.
 * We wait for the second round, so that allocations in other libraries' destructors are recorded. We do not
 * wait for the last round: a thread whose value is first set in a destructor may not reach it, and its log
 * would never be released. */
static void
exit_round(void *value)
{
    if (++exit_rounds == 1) {
        pthread_setspecific(exit_key, value);
        return;
    }
    exit_handler(value);
}

ep_status
ep_os_thread_exit_install(void (*on_exit)(void *))
{
    exit_handler = on_exit;
    return pthread_key_create(&exit_key, exit_round) == 0 ? EP_OK : EP_NOMEM;
}

void
ep_os_thread_exit_set(void *value)
{
    (void)pthread_setspecific(exit_key, value);    /* if it fails, the log is never given back; nothing else
                                                    * happens */
}

bool
ep_os_thread_exit_over(void)
{
    return exit_rounds >= PTHREAD_DESTRUCTOR_ITERATIONS;
}

ep_status
ep_os_fork_install(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
    return pthread_atfork(prepare, parent, child) == 0 ? EP_OK : EP_NOMEM;
}
