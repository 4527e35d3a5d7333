/* The source of what C libraries allocate: domain libc.
 *
 * shim.c, preloaded, calls the hooks here. They run wherever the program calls malloc(): on threads that
 * Python does not know, in thread-exit destructors, inside of the C library and of the allocators of the
 * other domains. These blocks are not recorded:
 *   - those that are allocated while the thread's busy flag is set: for our own hooks, and by the
 *     allocators of other domains while these are recorded, unless another recorder has this domain and
 *     not those (ep_py_blocks_inside);
 *   - those of this extension, which the caller's address shows (memory of traces, tables);
 *   - those that the C library allocates for the engine, while the calling thread is in the engine;
 *   - those of the dynamic loader: it holds locks that the engine waits for when it starts a thread.
 *
 * mmap() is recorded as calloc, mremap() as realloc, munmap() as free, but only for anonymous pages that
 * may be touched, not for files. A munmap() may free a part of a mapping, or several mappings: a table
 * of the recorded mappings shows which. */
#include "compat.h"

#include <stdlib.h>
#include <string.h>

#ifdef __linux__
#include <dlfcn.h>
#include <link.h>
#include <sys/auxv.h>
#endif

#include "engine.h"
#include "intern.h"
#include "errors.h"
#include "shim.h"
#include "source.h"

#define INTO_HOOKS inline __attribute__((always_inline))

/* Program text of a library. */
typedef struct image {
    uintptr_t start, bytes;
} image;

static ep_shim *shim;          /* NULL: not preloaded, or not looked for yet */
static ep_shim_below below;    /* copy of the shim's */
static image own_image, loader_image;
static _Atomic bool recording;

/* ---- Hooks ----------------------------------------------------------------------------------- */

static INTO_HOOKS bool
is_from(const image *searched, const void *caller)
{
    return (uintptr_t)caller - searched->start < searched->bytes;
}

/* Whether a block that this extension seems to allocate may be the program's: a hook of ours called the
 * allocator below, and that allocator ended in a jump to malloc(), as Python's of the RAW domain does. */
static EP_COLD bool
is_below(const ep_log *log)
{
    return ep_py_passing != 0 || (log != NULL && log->busy != 0);
}

/* For a thread without a log: makes it. NULL: the C library allocates for the engine itself, or there is
 * no memory for a log (counted). */
static EP_COLD ep_log *
first_log(ep_kind kind)
{
    if (ep_engine_inside != 0) {
        return NULL;
    }
    ep_log *log = ep_log_mine();
    if (log == NULL) {
        ep_engine_count_unlogged(kind);
        return NULL;
    }
    log->busy = EP_BUSY_OWN | EP_BUSY_IN(EP_DOMAIN_LIBC);
    return log;
}

/* HOT. The log to write to, with its busy flag set; NULL: pass through. */
static INTO_HOOKS ep_log *
enter(ep_kind kind, const void *caller)
{
    if (EP_UNLIKELY(!atomic_load_explicit(&recording, memory_order_relaxed)) ||
        EP_UNLIKELY(is_from(&loader_image, caller))) {
        return NULL;
    }
    ep_log *log = ep_log_current;
    if (EP_UNLIKELY(is_from(&own_image, caller)) && !is_below(log)) {
        return NULL;
    }
    if (EP_UNLIKELY(log == NULL)) {
        return first_log(kind);
    }
    if (EP_UNLIKELY(ep_engine_inside != 0)) {
        return NULL;
    }
    return ep_py_enter_allocator(log, EP_DOMAIN_LIBC) ? log : NULL;
}

static INTO_HOOKS void
leave(ep_log *log)
{
    ep_py_leave_allocator(log, EP_DOMAIN_LIBC);
}

static EP_COLD uint32_t
find_site(ep_log *log, ep_frame *frame)
{
    uint32_t site = ep_block_site_find_recent(&log->recent, ep_frame_instruction(frame));
    return site != 0 ? site : ep_py_block_site_slow(frame);
}

/* HOT. The site where a frame executes. */
static INTO_HOOKS uint32_t
site_of(ep_log *log, ep_frame *frame)
{
    ep_recent *recent = &log->recent;
    uintptr_t instruction = ep_frame_instruction(frame);
    uint32_t site = ep_library_site_recent(recent, instruction);
    if (EP_LIKELY(site != 0)) {
        return site;
    }
    site = ep_block_site_recent(recent, instruction);
    if (EP_UNLIKELY(site == 0)) {
        return find_site(log, frame);    /* the site may be of the frame's caller, so it must not be kept */
    }
    recent->library_instruction = instruction;
    recent->library_site = site;
    return site;
}

/* HOT. The site where the thread executes Python code; 0: it does not, or it does not hold the GIL. */
static INTO_HOOKS uint32_t
site_now(ep_log *log)
{
    PyThreadState *ts = ep_py_attached_state();
    if (EP_UNLIKELY(ts == NULL || !ep_py_sites_usable)) {
        return 0;
    }
    if (EP_FRAMES_NEED_STACK &&
        EP_UNLIKELY(atomic_load_explicit(&ep_py_greenlets, memory_order_relaxed))) {
        return 0;    /* the pointer to the frame may be on a C stack that greenlet is exchanging */
    }
    ep_frame *frame = ep_frame_of_program(ep_frame_current(ts));
    if (EP_UNLIKELY(frame == NULL)) {
        return 0;
    }
    return site_of(log, frame);
}

static INTO_HOOKS ep_ticks
ticks_now(void)
{
    return ep_clock_is_counter() ? ep_clock_counter_halves()
                                 : ep_ticks_halves(ep_clock_ticks_slow());
}

/* The clock is read first, which takes 1.5 ns an event less than reading it last, as source_alloc.c does:
 * there the interpreter's work follows, here a library's next call, which finds the site in the cache. */
static INTO_HOOKS void
put_block(ep_log *log, ep_kind kind, size_t size, const void *block)
{
    ep_ticks ticks = ticks_now();
    uint32_t site = site_now(log);
    uint32_t within = EP_BUSY_AROUND(log->busy, EP_DOMAIN_LIBC);
    if (EP_UNLIKELY(within != 0)) {
        ep_log_put_block_within(log, ep_ticks_whole(ticks), kind, size, (uintptr_t)block, site,
                                within);
    } else {
        ep_log_put_block_at(log, ticks, kind, size, (uintptr_t)block, site, true);
    }
}

/* Before the real free: afterwards another thread may be given the address. */
static INTO_HOOKS void
put_free(ep_log *log, ep_kind kind, const void *block)
{
    ep_ticks ticks = ticks_now();
    uint32_t site = site_now(log);
    uint32_t within = EP_BUSY_AROUND(log->busy, EP_DOMAIN_LIBC);
    if (EP_UNLIKELY(within != 0)) {
        ep_log_put_free_within(log, ep_ticks_whole(ticks), kind, site, (uintptr_t)block, within);
    } else {
        ep_log_put_free_at(log, ticks, kind, site, (uintptr_t)block);
    }
}

static void *
hook_malloc(size_t size, const void *caller)
{
    ep_log *log = enter(EP_KIND_MALLOC_LIBC, caller);
    if (log == NULL) {
        return below.malloc(size);
    }
    void *block = below.malloc(size);
    if (EP_LIKELY(block != NULL)) {
        put_block(log, EP_KIND_MALLOC_LIBC, size, block);
    }
    leave(log);
    return block;
}

static void *
hook_calloc(size_t count, size_t size, const void *caller)
{
    ep_log *log = enter(EP_KIND_CALLOC_LIBC, caller);
    if (log == NULL) {
        return below.calloc(count, size);
    }
    void *block = below.calloc(count, size);
    if (EP_LIKELY(block != NULL)) {
        put_block(log, EP_KIND_CALLOC_LIBC, count * size, block);
    }
    leave(log);
    return block;
}

/* realloc(p, 0) frees the block in the GNU library; in other libraries it gives a block of no bytes. */
static void *
hook_realloc(void *old, size_t size, const void *caller)
{
    ep_log *log = enter(EP_KIND_REALLOC_LIBC, caller);
    if (log == NULL) {
        return below.realloc(old, size);
    }
    bool moves = old != NULL && size != 0;
    if (old != NULL) {
        put_free(log, moves ? EP_KIND_REALLOC_FREE_LIBC : EP_KIND_FREE_LIBC, old);
    }
    void *block = below.realloc(old, size);
    if (EP_LIKELY(block != NULL)) {
        put_block(log, moves ? EP_KIND_REALLOC_LIBC : EP_KIND_MALLOC_LIBC, size, block);
    } else if (moves) {
        put_block(log, EP_KIND_REALLOC_FAILED_LIBC, size, old);
    }
    leave(log);
    return block;
}

static void
hook_free(void *block, const void *caller)
{
    ep_log *log = EP_LIKELY(block != NULL) ? enter(EP_KIND_FREE_LIBC, caller) : NULL;
    if (log == NULL) {
        below.free(block);
        return;
    }
    put_free(log, EP_KIND_FREE_LIBC, block);
    below.free(block);
    leave(log);
}

static void *
hook_ask(const void *caller)
{
    return enter(EP_KIND_MALLOC_LIBC, caller);
}

static void
hook_tell(void *asked, void *block, size_t size)
{
    ep_log *log = asked;
    if (block != NULL) {
        put_block(log, EP_KIND_MALLOC_LIBC, size, block);
    }
    leave(log);
}

/* ---- Pages ----------------------------------------------------------------------------------- */

#define PAGES_MAX 16384

typedef struct mapping {
    uintptr_t start, end;
} mapping;

/* Mappings that were recorded and not unmapped, in order of address. A fork waits for the engine's lock,
 * and under it nothing is recorded. */
static mapping mappings[PAGES_MAX] EP_GUARDED_BY(ep_engine_mutex);
static size_t mapping_count EP_GUARDED_BY(ep_engine_mutex);

/* The index of the first mapping that ends above `at`. */
static EP_ENGINE_LOCKED size_t
mapping_above(uintptr_t at)
{
    size_t low = 0, high = mapping_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (mappings[middle].end <= at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

typedef struct page_change {
    mapping asked;
    mapping found;    /* start 0: none */
    bool done;
} page_change;

static EP_ENGINE_LOCKED void
add_mapping(mapping added)
{
    size_t at = mapping_above(added.start);
    memmove(&mappings[at + 1], &mappings[at], (mapping_count - at) * sizeof *mappings);
    mappings[at] = added;
    mapping_count += 1;
}

static EP_ENGINE_LOCKED void
add_asked(void *context)
{
    page_change *change = context;
    change->done = mapping_count < PAGES_MAX;
    if (change->done) {
        add_mapping(change->asked);
    }
}

static EP_ENGINE_LOCKED void
remove_at(size_t at)
{
    mapping_count -= 1;
    memmove(&mappings[at], &mappings[at + 1], (mapping_count - at) * sizeof *mappings);
}

/* Takes the next mapping that shares pages with the range out of the table, and puts back what remains of
 * it. */
static EP_ENGINE_LOCKED void
cut_asked(void *context)
{
    page_change *change = context;
    size_t at = mapping_above(change->asked.start);
    change->found = (mapping){0, 0};
    if (at == mapping_count || mappings[at].start >= change->asked.end) {
        return;
    }
    mapping found = change->found = mappings[at];
    remove_at(at);
    if (found.start < change->asked.start) {
        add_mapping((mapping){found.start, change->asked.start});
    }
    change->done = found.end > change->asked.end && mapping_count < PAGES_MAX;
    if (change->done) {
        add_mapping((mapping){change->asked.end, found.end});
    }
}

/* Takes the mapping that is exactly the range that was asked for, if there is one. */
static EP_ENGINE_LOCKED void
take_asked(void *context)
{
    page_change *change = context;
    size_t at = mapping_above(change->asked.start);
    change->done = at < mapping_count && mappings[at].start == change->asked.start &&
                   mappings[at].end == change->asked.end;
    if (change->done) {
        remove_at(at);
    }
}

static EP_ENGINE_LOCKED void
forget_all(void *unused)
{
    (void)unused;
    mapping_count = 0;
}

static mapping
whole_pages(const void *at, size_t bytes)
{
    uintptr_t mask = (uintptr_t)4095;
    return (mapping){(uintptr_t)at, ((uintptr_t)at + bytes + mask) & ~mask};
}

/* Writes what a munmap() did to a mapping: a free if nothing stays; a realloc to the part that stays; if a
 * part in the middle goes, also a calloc of the second part that stays. */
static void
put_cut(ep_log *log, const page_change *cut)
{
    bool before = cut->found.start < cut->asked.start;
    put_free(log, before || cut->done ? EP_KIND_REALLOC_FREE_LIBC : EP_KIND_FREE_LIBC,
             (void *)cut->found.start);
    if (before) {
        put_block(log, EP_KIND_REALLOC_LIBC, cut->asked.start - cut->found.start,
                  (void *)cut->found.start);
    }
    if (cut->done) {
        put_block(log, before ? EP_KIND_CALLOC_LIBC : EP_KIND_REALLOC_LIBC,
                  cut->found.end - cut->asked.end, (void *)cut->asked.end);
    }
}

static void *
hook_ask_pages(void *from, size_t bytes, ep_shim_pages how, const void *caller)
{
    ep_log *log = enter(EP_KIND_CALLOC_LIBC, caller);
    if (log == NULL || from == NULL) {
        return log;
    }
    page_change change = {.asked = whole_pages(from, bytes)};
    if (how == EP_SHIM_PAGES_MOVE) {
        ep_engine_alone(take_asked, &change);
        if (!change.done) {
            leave(log);
            return NULL;
        }
        put_free(log, EP_KIND_REALLOC_FREE_LIBC, from);
        return log;
    }
    do {
        ep_engine_alone(cut_asked, &change);
        if (change.found.start != 0) {
            put_cut(log, &change);
        }
    } while (change.found.start != 0);
    return log;
}

static void
hook_tell_pages(void *asked, void *to, size_t bytes, ep_shim_pages how)
{
    ep_log *log = asked;
    ep_kind kind = how == EP_SHIM_PAGES_ANEW   ? EP_KIND_CALLOC_LIBC
                   : how == EP_SHIM_PAGES_MOVE ? EP_KIND_REALLOC_LIBC
                                               : EP_KIND_REALLOC_FAILED_LIBC;
    if (to != NULL) {
        page_change change = {.asked = whole_pages(to, bytes)};
        ep_engine_alone(add_asked, &change);
        if (change.done) {
            put_block(log, kind, bytes, to);
        } else {
            ep_engine_count_unlogged(kind);
        }
    }
    leave(log);
}

static const ep_shim_hooks hooks = {
    .malloc = hook_malloc,
    .calloc = hook_calloc,
    .realloc = hook_realloc,
    .free = hook_free,
    .ask = hook_ask,
    .tell = hook_tell,
    .ask_pages = hook_ask_pages,
    .tell_pages = hook_tell_pages,
};

/* ---- In and out ------------------------------------------------------------------------------ */

#ifdef __linux__

/* Finds the image that `of->start` is an address in. */
static int
visit_image(struct dl_phdr_info *info, size_t info_bytes, void *context)
{
    (void)info_bytes;
    image *searched = context;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        uintptr_t bytes = info->dlpi_phdr[i].p_memsz;
        if (info->dlpi_phdr[i].p_type == PT_LOAD && (info->dlpi_phdr[i].p_flags & PF_X) != 0 &&
            searched->start - start < bytes) {
            *searched = (image){start, bytes};
            return 1;
        }
    }
    return 0;
}

/* Finds the loader's image. Only the address of its first page is known. */
static int
visit_loader(struct dl_phdr_info *info, size_t info_bytes, void *context)
{
    (void)info_bytes;
    image *searched = context;
    if (info->dlpi_addr != getauxval(AT_BASE) || info->dlpi_addr == 0) {
        return 0;
    }
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type == PT_LOAD && (info->dlpi_phdr[i].p_flags & PF_X) != 0) {
            *searched = (image){info->dlpi_addr + info->dlpi_phdr[i].p_vaddr,
                                info->dlpi_phdr[i].p_memsz};
        }
    }
    return 1;
}

static void
find_shim(void)
{
    ep_shim *found = dlsym(RTLD_DEFAULT, EP_SHIM_SYMBOL);
    if (shim != NULL || found == NULL || found->version != EP_SHIM_VERSION) {
        return;
    }
    below = found->below;
    image own = {(uintptr_t)hook_malloc, 0};
    if (dl_iterate_phdr(visit_image, &own) == 1) {
        own_image = own;
    }
    (void)dl_iterate_phdr(visit_loader, &loader_image);
    shim = found;
}

#else

static void
find_shim(void)
{
}

#endif

bool
ep_py_native_available(void)
{
    find_shim();
    return shim != NULL;
}

static int
adjust(ep_kind_set kinds)
{
    if (kinds == 0 && shim == NULL) {
        return 0;
    }
    if (!ep_py_native_available()) {
        PyErr_SetString(ep_py_error(EP_ERROR_UNSUPPORTED),
                        "what C libraries allocate is seen by a library that is loaded before Python: "
                        "start the program by 'eventprof run --native'");
        return -1;
    }
    bool was = atomic_load_explicit(&recording, memory_order_relaxed);
    if (kinds != 0 && !was) {
        ep_engine_alone(forget_all, NULL);    /* mappings may have been unmapped while nothing recorded */
    }
    atomic_store_explicit(&recording, kinds != 0, memory_order_relaxed);
    /* Release; pairs with the shim's acquire: the hooks have all that they need. A thread that is in one
     * of them goes on there: they stay, and an event after the stop is in no window. */
    atomic_store_explicit(&shim->hooks, kinds != 0 ? &hooks : NULL, memory_order_release);
    return 0;
}

static bool
owns(void)
{
    return shim == NULL || !atomic_load_explicit(&recording, memory_order_relaxed) ||
           atomic_load_explicit(&shim->hooks, memory_order_relaxed) == &hooks;
}

const ep_source ep_source_native = {
    .name = "native",
    .kinds = ep_kinds_libc,
    .adjust = adjust,
    .owns = owns,
};
