/* The library that `eventprof run --native` preloads: malloc and its relatives, on their way to the C
 * library's. It has no Python, no lock, no thread-local variable and no memory of its own but a few
 * pages for the time before the functions below are found; recording is the extension's
 * (source_native.c), which hangs its hooks in here while somebody records. */
/* With it, mmap() here would get the name of mmap64(). */
#undef _FILE_OFFSET_BITS

#include "shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define CALLER __builtin_return_address(0)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define COLD __attribute__((cold, noinline))

static void *early_malloc(size_t size);
static void *early_calloc(size_t count, size_t size);
static void *early_realloc(void *old, size_t size);
static void early_free(void *block);

/* Protected: no other library can replace it, so it is reached without the linker's table. */
__attribute__((visibility("protected"))) ep_shim eventprof_shim = {
    .version = EP_SHIM_VERSION,
    .below = {early_malloc, early_calloc, early_realloc, early_free},
};

_Static_assert(sizeof(off_t) == 8, "mmap() and mmap64() are one");

static struct {
    int (*posix_memalign)(void **out, size_t alignment, size_t size);
    void *(*aligned_alloc)(size_t alignment, size_t size);
    void *(*memalign)(size_t alignment, size_t size);
    void *(*valloc)(size_t size);
    void *(*pvalloc)(size_t size);
    void *(*mmap)(void *at, size_t bytes, int protection, int flags, int file, off_t offset);
    int (*munmap)(void *at, size_t bytes);
    void *(*mremap)(void *at, size_t bytes, size_t new_bytes, int flags, ...);
} below;

/* ---- Before the functions below are known ---------------------------------------------------- */

/* Memory for dlsym(), which may call malloc() before the real malloc() is found. Never reused. */
static _Alignas(16) char first_blocks[16384];
static size_t first_used;

static int
is_first_block(const void *block)
{
    return (uintptr_t)block - (uintptr_t)first_blocks < sizeof first_blocks;
}

/* Gives a zeroed block, whose size is in the 16 bytes before it. Only one thread runs at that time. */
static COLD void *
first_block(size_t size)
{
    size_t bytes = (size + 31) & ~(size_t)15;
    if (size > sizeof first_blocks || bytes > sizeof first_blocks - first_used) {
        errno = ENOMEM;
        return NULL;
    }
    char *at = first_blocks + first_used;
    first_used += bytes;
    memcpy(at, &size, sizeof size);
    return at + 16;
}

static void
find(void *function, const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (found != NULL) {
        memcpy(function, &found, sizeof found);
    }
}

/* Finds the C library's functions, once. What dlsym() allocates meanwhile comes from first_blocks. */
static COLD void
find_all(void)
{
    static int finding;
    if (finding) {
        return;
    }
    finding = 1;
    ep_shim_below found = eventprof_shim.below;
    find(&below.posix_memalign, "posix_memalign");
    find(&below.aligned_alloc, "aligned_alloc");
    find(&below.memalign, "memalign");
    find(&below.valloc, "valloc");
    find(&below.pvalloc, "pvalloc");
    find(&below.mmap, "mmap");
    find(&below.munmap, "munmap");
    find(&below.mremap, "mremap");
    find(&found.malloc, "malloc");
    find(&found.calloc, "calloc");
    find(&found.realloc, "realloc");
    find(&found.free, "free");
    eventprof_shim.below = found;
}

/* Constructors of other libraries may have allocated, and so called find_all(), before: the result is
 * the same. */
static __attribute__((constructor)) void
begin(void)
{
    find_all();
}

static int
is_early(void)
{
    find_all();
    return eventprof_shim.below.malloc == early_malloc;
}

static COLD void *
early_malloc(size_t size)
{
    return is_early() ? first_block(size) : eventprof_shim.below.malloc(size);
}

static COLD void *
early_calloc(size_t count, size_t size)
{
    if (is_early()) {
        return first_block(size != 0 && count > SIZE_MAX / size ? SIZE_MAX : count * size);
    }
    return eventprof_shim.below.calloc(count, size);
}

/* old: NULL, as first blocks do not come here. */
static COLD void *
early_realloc(void *old, size_t size)
{
    return is_early() ? first_block(size) : eventprof_shim.below.realloc(old, size);
}

static COLD void
early_free(void *block)
{
    if (!is_early()) {
        eventprof_shim.below.free(block);
    }
}

/* Acquire; pairs with the release in source_native.c: what the hooks need is there. */
static inline const ep_shim_hooks *
hooks_now(void)
{
    return atomic_load_explicit(&eventprof_shim.hooks, memory_order_acquire);
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

EXPORT void *
malloc(size_t size)
{
    const ep_shim_hooks *hooks = hooks_now();
    if (UNLIKELY(hooks != NULL)) {
        return hooks->malloc(size, CALLER);
    }
    return eventprof_shim.below.malloc(size);
}

EXPORT void *
calloc(size_t count, size_t size)
{
    const ep_shim_hooks *hooks = hooks_now();
    if (UNLIKELY(hooks != NULL)) {
        return hooks->calloc(count, size, CALLER);
    }
    return eventprof_shim.below.calloc(count, size);
}

static COLD void *
move_first_block(void *old, size_t size)
{
    size_t old_size;
    memcpy(&old_size, (char *)old - 16, sizeof old_size);
    void *block = malloc(size);
    if (block != NULL) {
        memcpy(block, old, old_size < size ? old_size : size);
    }
    return block;
}

static inline void *
resize(void *old, size_t size, const void *caller)
{
    if (UNLIKELY(is_first_block(old))) {
        return move_first_block(old, size);
    }
    const ep_shim_hooks *hooks = hooks_now();
    if (UNLIKELY(hooks != NULL)) {
        return hooks->realloc(old, size, caller);
    }
    return eventprof_shim.below.realloc(old, size);
}

EXPORT void *
realloc(void *old, size_t size)
{
    return resize(old, size, CALLER);
}

EXPORT void *
reallocarray(void *old, size_t count, size_t size)
{
    if (size != 0 && count > SIZE_MAX / size) {
        errno = ENOMEM;
        return NULL;
    }
    return resize(old, count * size, CALLER);
}

EXPORT void
free(void *block)
{
    if (UNLIKELY(is_first_block(block))) {
        return;
    }
    const ep_shim_hooks *hooks = hooks_now();
    if (UNLIKELY(hooks != NULL)) {
        hooks->free(block, CALLER);
        return;
    }
    eventprof_shim.below.free(block);
}

/* ---- Aligned blocks -------------------------------------------------------------------------- */

/* call: an expression that allocates the block. */
#define ALIGNED(function, size, call)                        \
    if (UNLIKELY(below.function == NULL)) {                  \
        find_all();                                          \
    }                                                        \
    if (UNLIKELY(below.function == NULL)) {                  \
        errno = ENOMEM;                                      \
        return NULL;                                         \
    }                                                        \
    const ep_shim_hooks *hooks = hooks_now();                \
    void *asked = hooks != NULL ? hooks->ask(CALLER) : NULL; \
    void *block = below.function call;                       \
    if (asked != NULL) {                                     \
        hooks->tell(asked, block, size);                     \
    }                                                        \
    return block

EXPORT int
posix_memalign(void **out, size_t alignment, size_t size)
{
    if (UNLIKELY(below.posix_memalign == NULL)) {
        find_all();
    }
    if (UNLIKELY(below.posix_memalign == NULL)) {
        return ENOMEM;
    }
    const ep_shim_hooks *hooks = hooks_now();
    void *asked = hooks != NULL ? hooks->ask(CALLER) : NULL;
    int status = below.posix_memalign(out, alignment, size);
    if (asked != NULL) {
        hooks->tell(asked, status == 0 ? *out : NULL, size);
    }
    return status;
}

EXPORT void *
aligned_alloc(size_t alignment, size_t size)
{
    ALIGNED(aligned_alloc, size, (alignment, size));
}

EXPORT void *
memalign(size_t alignment, size_t size)
{
    ALIGNED(memalign, size, (alignment, size));
}

EXPORT void *
valloc(size_t size)
{
    ALIGNED(valloc, size, (size));
}

EXPORT void *
pvalloc(size_t size)
{
    ALIGNED(pvalloc, size, (size));
}

/* ---- Pages ----------------------------------------------------------------------------------- */

/* Whether the system accepts the address. If not, the call fails and is no event. */
static inline int
is_on_page(const void *at)
{
    return ((uintptr_t)at & 4095) == 0;
}

static void *
map(void *at, size_t bytes, int protection, int flags, int file, off_t offset, const void *caller)
{
    const ep_shim_hooks *hooks = hooks_now();
    /* With MAP_FIXED the new mapping replaces what was there. */
    void *from = (flags & MAP_FIXED) != 0 && is_on_page(at) && bytes != 0 ? at : NULL;
    /* Not of a file, and not only reserved addresses: a program that asks for MAP_NORESERVE will use a
     * small part. */
    int is_memory = (flags & (MAP_ANONYMOUS | MAP_NORESERVE)) == MAP_ANONYMOUS && protection != PROT_NONE;
    void *asked = hooks != NULL && (from != NULL || is_memory)
                      ? hooks->ask_pages(from, bytes, EP_SHIM_PAGES_ANEW, caller)
                      : NULL;
    void *pages = below.mmap != NULL
                      ? below.mmap(at, bytes, protection, flags, file, offset)
                      : (void *)syscall(SYS_mmap, at, bytes, protection, flags, file, offset);
    if (asked != NULL) {
        hooks->tell_pages(asked, pages != MAP_FAILED && is_memory ? pages : NULL, bytes,
                          EP_SHIM_PAGES_ANEW);
    }
    return pages;
}

EXPORT void *
mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset)
{
    return map(at, bytes, protection, flags, file, offset, CALLER);
}

/* Like mmap(): off_t has 64 bits on all systems that the shim is built for. */
EXPORT void *
mmap64(void *at, size_t bytes, int protection, int flags, int file, off_t offset)
{
    return map(at, bytes, protection, flags, file, offset, CALLER);
}

EXPORT int
munmap(void *at, size_t bytes)
{
    const ep_shim_hooks *hooks = hooks_now();
    void *asked = hooks != NULL && is_on_page(at) && bytes != 0
                      ? hooks->ask_pages(at, bytes, EP_SHIM_PAGES_ANEW, CALLER)
                      : NULL;
    int status = below.munmap != NULL ? below.munmap(at, bytes)
                                      : (int)syscall(SYS_munmap, at, bytes);
    if (asked != NULL) {
        hooks->tell_pages(asked, NULL, 0, EP_SHIM_PAGES_ANEW);
    }
    return status;
}

EXPORT void *
mremap(void *at, size_t bytes, size_t new_bytes, int flags, ...)
{
    void *wanted = NULL;
    if ((flags & MREMAP_FIXED) != 0) {
        va_list rest;
        va_start(rest, flags);
        wanted = va_arg(rest, void *);
        va_end(rest);
    }
    const ep_shim_hooks *hooks = hooks_now();
    void *asked = hooks != NULL ? hooks->ask_pages(at, bytes, EP_SHIM_PAGES_MOVE, CALLER) : NULL;
    void *pages = below.mremap != NULL
                      ? below.mremap(at, bytes, new_bytes, flags, wanted)
                      : (void *)syscall(SYS_mremap, at, bytes, new_bytes, flags, wanted);
    if (asked != NULL && pages != MAP_FAILED) {
        hooks->tell_pages(asked, pages, new_bytes, EP_SHIM_PAGES_MOVE);
    } else if (asked != NULL) {
        hooks->tell_pages(asked, at, bytes, EP_SHIM_PAGES_MOVED_NOT);
    }
    return pages;
}
