/* Preloaded, it makes the n-th call of a system or library function fail that eventprof's extension
 * makes: the build is the one that users have. test_failing.py says which n.
 *
 * Whose call it is, is told by the return address: tail calls are not seen, and there are none. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

static _Atomic long left = -1;    /* calls until one fails; below 0: none will */
static uintptr_t begin, end;      /* the extension's code */
static bool fail_mallocs;

void ep_fail_arm(long nth, uintptr_t from, uintptr_t to, int mallocs);
long ep_fail_disarm(void);

/* Calls from code in [from, to) count from here on. Not malloc() if that is the program's, which comes
 * there through an allocator hook; the core itself only asks for zeroed memory. */
void
ep_fail_arm(long nth, uintptr_t from, uintptr_t to, int mallocs)
{
    fail_mallocs = mallocs != 0;
    begin = from;
    end = to;
    atomic_store(&left, nth);
}

/* Returns: how many more calls it would have waited for; below 0: one failed. */
long
ep_fail_disarm(void)
{
    return atomic_exchange(&left, -1);
}

static bool
fails(const void *caller, int error)
{
    if (atomic_load_explicit(&left, memory_order_relaxed) < 0 || (uintptr_t)caller < begin ||
        (uintptr_t)caller >= end) {
        return false;
    }
    if (atomic_fetch_sub(&left, 1) != 0) {
        return false;
    }
    errno = error;
    return true;
}

#define REAL(type, name, ...)                 \
    static type (*real)(__VA_ARGS__);         \
    if (real == NULL) {                       \
        void *found = dlsym(RTLD_NEXT, name); \
        memcpy(&real, &found, sizeof real);   \
    }
#define CALLER __builtin_return_address(0)

void *
mmap64(void *at, size_t bytes, int protection, int flags, int descriptor, off_t offset)
{
    REAL(void *, "mmap64", void *, size_t, int, int, int, off_t)
    return fails(CALLER, ENOMEM) ? MAP_FAILED : real(at, bytes, protection, flags, descriptor, offset);
}

/* calloc() must not ask dlsym(), which calls it: the library has it by another name. */
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_malloc(size_t size);
extern void *__libc_realloc(void *block, size_t size);

void *
calloc(size_t count, size_t size)
{
    return fails(CALLER, ENOMEM) ? NULL : __libc_calloc(count, size);
}

void *
malloc(size_t size)
{
    return fail_mallocs && fails(CALLER, ENOMEM) ? NULL : __libc_malloc(size);
}

void *
realloc(void *block, size_t size)
{
    return fails(CALLER, ENOMEM) ? NULL : __libc_realloc(block, size);
}

void *
aligned_alloc(size_t alignment, size_t bytes)
{
    REAL(void *, "aligned_alloc", size_t, size_t)
    return fails(CALLER, ENOMEM) ? NULL : real(alignment, bytes);
}

int
pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument)
{
    REAL(int, "pthread_create", pthread_t *, const pthread_attr_t *, void *(*)(void *), void *)
    return fails(CALLER, EAGAIN) ? EAGAIN : real(thread, attributes, body, argument);
}

int
ftruncate64(int descriptor, off_t length)
{
    REAL(int, "ftruncate64", int, off_t)
    return fails(CALLER, EIO) ? -1 : real(descriptor, length);
}

int
fallocate64(int descriptor, int mode, off_t offset, off_t length)
{
    REAL(int, "fallocate64", int, int, off_t, off_t)
    return fails(CALLER, ENOSPC) ? -1 : real(descriptor, mode, offset, length);
}

int
flock(int descriptor, int operation)
{
    REAL(int, "flock", int, int)
    return fails(CALLER, ENOLCK) ? -1 : real(descriptor, operation);
}

int
open64(const char *path, int flags, ...)
{
    REAL(int, "open64", const char *, int, ...)
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    return fails(CALLER, EMFILE) ? -1 : real(path, flags, mode);
}

ssize_t
write(int descriptor, const void *from, size_t bytes)
{
    REAL(ssize_t, "write", int, const void *, size_t)
    return fails(CALLER, ENOSPC) ? -1 : real(descriptor, from, bytes);
}

ssize_t
pwrite64(int descriptor, const void *from, size_t bytes, off_t offset)
{
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off_t)
    return fails(CALLER, EIO) ? -1 : real(descriptor, from, bytes, offset);
}

ssize_t
pread64(int descriptor, void *to, size_t bytes, off_t offset)
{
    REAL(ssize_t, "pread64", int, void *, size_t, off_t)
    return fails(CALLER, EIO) ? -1 : real(descriptor, to, bytes, offset);
}

int
fsync(int descriptor)
{
    REAL(int, "fsync", int)
    return fails(CALLER, EIO) ? -1 : real(descriptor);
}

int
msync(void *at, size_t bytes, int flags)
{
    REAL(int, "msync", void *, size_t, int)
    return fails(CALLER, EIO) ? -1 : real(at, bytes, flags);
}
