#include "guard.h"

#ifdef __linux__

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "os.h"

#define GUARD_COUNT 64

/* A file as /proc/self/maps names it: fstat() says another device on some file systems. */
typedef struct guarded {
    _Atomic uint64_t device;    /* major << 32 | minor */
    _Atomic uint64_t inode;     /* 0: unused */
    _Atomic bool hit;
} guarded;

/* For adding and removing files; the handler does not take it. */
static ep_mutex lock = EP_MUTEX_INIT;
#define TAKES_LOCK EP_ACQUIRES(lock)
#define GIVES_LOCK EP_RELEASES(lock)

static struct {
    int count EP_GUARDED_BY(lock);
    guarded files[GUARD_COUNT];
    struct sigaction previous;
} guard;

/* ---- /proc/self/maps, read where nothing may be allocated or locked --------------------------- */

typedef struct mapping {
    uintptr_t start, end;
    bool shared;
    uint64_t device, inode;
} mapping;

typedef struct maps_reader {
    int descriptor;
    char text[1024];
    size_t at, end;
} maps_reader;

/* Returns: the next byte; -1 at the end. */
static int
next_byte(maps_reader *reader)
{
    if (reader->at == reader->end) {
        ssize_t got;
        do {
            got = read(reader->descriptor, reader->text, sizeof reader->text);
        } while (got < 0 && errno == EINTR);
        if (got <= 0) {
            return -1;
        }
        reader->at = 0;
        reader->end = (size_t)got;
    }
    return (unsigned char)reader->text[reader->at++];
}

/* A number, and the byte after it in *after. */
static uint64_t
read_number(maps_reader *reader, unsigned base, int *after)
{
    uint64_t number = 0;
    for (;;) {
        int byte = *after = next_byte(reader);
        int digit = byte >= '0' && byte <= '9' ? byte - '0' : byte >= 'a' && byte <= 'f' ? byte - 'a' + 10
                                                                                         : -1;
        if (digit < 0 || (unsigned)digit >= base) {
            return number;
        }
        number = number * base + (unsigned)digit;
    }
}

/* A line: "7f00-7f10 rw-s 00001000 08:01 12345   /path". False: there is no more. */
static bool
next_mapping(maps_reader *reader, mapping *out)
{
    int after;
    out->start = (uintptr_t)read_number(reader, 16, &after);
    if (after != '-') {
        return false;
    }
    out->end = (uintptr_t)read_number(reader, 16, &after);
    for (int i = 0; i < 3; i++) {
        (void)next_byte(reader);
    }
    out->shared = next_byte(reader) == 's';
    (void)next_byte(reader);
    (void)read_number(reader, 16, &after);
    out->device = read_number(reader, 16, &after) << 32;
    out->device |= read_number(reader, 16, &after);
    out->inode = read_number(reader, 10, &after);
    while (after != '\n' && after >= 0) {
        after = next_byte(reader);
    }
    return true;
}

static bool
find_mapping(uintptr_t address, mapping *out)
{
    maps_reader reader = {.descriptor = open("/proc/self/maps", O_RDONLY | O_CLOEXEC)};
    if (reader.descriptor < 0) {
        return false;
    }
    bool found = false;
    while (!found && next_mapping(&reader, out)) {
        found = address >= out->start && address < out->end;
    }
    close(reader.descriptor);
    return found && out->shared && out->inode != 0;
}

/* ---- The handler ----------------------------------------------------------------------------- */

/* The pages after the address are gone, too. All of the mapping after it becomes memory, so that the
 * handler is not called again for each page. */
static bool
replace_from(uintptr_t address)
{
    mapping found;
    if (!find_mapping(address, &found)) {
        return false;
    }
    for (int i = 0; i < GUARD_COUNT; i++) {
        guarded *file = &guard.files[i];
        if (atomic_load_explicit(&file->inode, memory_order_acquire) == found.inode &&
            atomic_load_explicit(&file->device, memory_order_relaxed) == found.device) {
            uintptr_t page = address & ~(uintptr_t)(ep_os_page_bytes() - 1);
            atomic_store_explicit(&file->hit, true, memory_order_relaxed);
            return mmap((void *)page, found.end - page, PROT_READ | PROT_WRITE,
                        MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED;
        }
    }
    return false;
}

static void
on_bus_error(int number, siginfo_t *info, void *context)
{
    int error = errno;
    bool done = info->si_code > 0 && replace_from((uintptr_t)info->si_addr);
    errno = error;
    if (done) {
        return;    /* the access is repeated */
    }
    const struct sigaction *previous = &guard.previous;
    if (previous->sa_flags & SA_SIGINFO) {
        previous->sa_sigaction(number, info, context);
    } else if (previous->sa_handler == SIG_DFL || (previous->sa_handler == SIG_IGN && info->si_code > 0)) {
        /* The process ends as it would without this handler: by the repeated access, or by the signal if
         * another process sent it. */
        struct sigaction by_default = {.sa_handler = SIG_DFL};
        sigaction(number, &by_default, NULL);
        if (info->si_code <= 0) {
            raise(number);
        }
    } else if (previous->sa_handler != SIG_IGN) {
        previous->sa_handler(number);
    }
}

static void
install(void)
{
    const int flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    struct sigaction ours = {.sa_sigaction = on_bus_error, .sa_flags = flags};
    sigemptyset(&ours.sa_mask);
    struct sigaction there;
    /* Our handler may still be there: the program may have installed its own over it and removed that
     * again. */
    if (sigaction(SIGBUS, NULL, &there) == 0 &&
        !((there.sa_flags & SA_SIGINFO) && there.sa_sigaction == on_bus_error)) {
        guard.previous = there;
        sigaction(SIGBUS, &ours, NULL);
    }
}

static void
take_away(void)
{
    struct sigaction there;
    if (sigaction(SIGBUS, NULL, &there) == 0 && (there.sa_flags & SA_SIGINFO) &&
        there.sa_sigaction == on_bus_error) {
        sigaction(SIGBUS, &guard.previous, NULL);
    }
}

/* ---- Files ----------------------------------------------------------------------------------- */

int
ep_guard_begin(const void *at)
{
    mapping found;
    if (!find_mapping((uintptr_t)at, &found)) {
        return EP_GUARD_NONE;
    }
    int number = EP_GUARD_NONE;
    if (!ep_os_lock(&lock)) {
        return EP_GUARD_NONE;
    }
    for (int i = 0; i < GUARD_COUNT && number < 0; i++) {
        guarded *file = &guard.files[i];
        if (atomic_load_explicit(&file->inode, memory_order_relaxed) == 0) {
            number = i;
            atomic_store_explicit(&file->hit, false, memory_order_relaxed);
            atomic_store_explicit(&file->device, found.device, memory_order_relaxed);
            /* Release; pairs with the handler's acquire: whoever sees the inode sees the device, too. */
            atomic_store_explicit(&file->inode, found.inode, memory_order_release);
        }
    }
    if (number >= 0 && guard.count++ == 0) {
        install();
    }
    ep_mutex_unlock(&lock);
    return number;
}

void
ep_guard_end(int number)
{
    if (number < 0 || !ep_os_lock(&lock)) {
        return;
    }
    atomic_store_explicit(&guard.files[number].inode, 0, memory_order_relaxed);
    if (--guard.count == 0) {
        take_away();
    }
    ep_mutex_unlock(&lock);
}

bool
ep_guard_was_hit(int number)
{
    return number >= 0 && atomic_load_explicit(&guard.files[number].hit, memory_order_relaxed);
}

TAKES_LOCK void
ep_guard_before_fork(void)
{
    ep_mutex_lock(&lock);
}

GIVES_LOCK void
ep_guard_after_fork(void)
{
    ep_mutex_unlock(&lock);
}

#else

int
ep_guard_begin(const void *at)
{
    (void)at;
    return EP_GUARD_NONE;
}

void
ep_guard_end(int number)
{
    (void)number;
}

bool
ep_guard_was_hit(int number)
{
    (void)number;
    return false;
}

void
ep_guard_before_fork(void)
{
}

void
ep_guard_after_fork(void)
{
}

#endif
