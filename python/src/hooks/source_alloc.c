/* The source of allocator events: PyMem_SetAllocator for the domains RAW, MEM and OBJ.
 *
 * Each install makes a layer, {the allocator below, whether it records}, immortal because callers
 * read function and context unlocked and another tool may keep both for ever. A layer that somebody
 * wrapped, and that can therefore not be taken out, stays and passes through (tested with
 * tracemalloc in every order; restoring blindly crashes 3.12 and 3.13).
 *
 * The hooks call no C API but the allocator below and reading the thread state, and do not assume
 * the GIL. */
#include "compat.h"

#include <string.h>

#include "count_calls.h"
#include "engine.h"
#include "footprint.h"
#include "intern.h"
#include "memory.h"
#include "source.h"

#define DOMAIN_COUNT 3    /* of the interpreter: EP_DOMAIN_RAW, MEM, OBJ, in its numbering */

enum {
    DORMANT,           /* for ever */
    COUNTING,          /* for counters alone */
    RECORDING,
    RECORDING_COUNTING,
    RECORDING_PLAIN    /* for recorders alone, where all that the fast halves need is there */
};

typedef struct layer {
    PyMemAllocatorEx below;     /* constant */
    _Atomic uint8_t mode;
} layer;

static layer *installed[DOMAIN_COUNT];    /* not dormant; NULL: none. Under the GIL */
static bool recorded[DOMAIN_COUNT], counted[DOMAIN_COUNT];
/* A caller that read our function but still the old context (NULL, in all allocators known) while
 * we installed: the allocator that was there first. */
static PyMemAllocatorEx first_below[DOMAIN_COUNT];

_Atomic uint32_t ep_py_blocks_inside;
_Thread_local uint32_t ep_py_passing __attribute__((tls_model("initial-exec")));

_Atomic uintptr_t ep_footprint[EP_FOOTPRINT_SLOTS];
_Atomic bool ep_footprint_on, ep_footprint_boxes, ep_footprint_tables;
_Atomic int64_t ep_footprint_more_count;
static _Atomic uintptr_t footprint_more[EP_FOOTPRINT_MORE];

/* For what all hooks share: into each of them, with its domain a constant. Left to itself gcc calls
 * some of it, for 2 to 5 ns an event. */
#define INTO_HOOKS inline __attribute__((always_inline))

/* ---- Footprint: what does not fit into its table ---------------------------------------------- */

#define MORE_PROBES 16

static _Atomic uintptr_t *
more_slot(uintptr_t address, size_t probe)
{
    size_t hash = (size_t)((uint64_t)(address >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 32);
    return &footprint_more[(hash + probe) & (EP_FOOTPRINT_MORE - 1)];
}

/* One that finds no place is one unknown free. */
void
ep_footprint_list_more(uintptr_t address)
{
    for (size_t probe = 0; probe < MORE_PROBES; probe++) {
        uintptr_t empty = 0;
        if (atomic_compare_exchange_strong_explicit(more_slot(address, probe), &empty, address,
                                                    memory_order_relaxed, memory_order_relaxed)) {
            atomic_fetch_add_explicit(&ep_footprint_more_count, 1, memory_order_relaxed);
            return;
        }
        if (empty == address) {
            return;
        }
    }
}

bool
ep_footprint_unlist_more(uintptr_t address)
{
    for (size_t probe = 0; probe < MORE_PROBES; probe++) {
        uintptr_t found = address;
        if (atomic_compare_exchange_strong_explicit(more_slot(address, probe), &found, 0,
                                                    memory_order_relaxed, memory_order_relaxed)) {
            atomic_fetch_sub_explicit(&ep_footprint_more_count, 1, memory_order_relaxed);
            return true;
        }
    }
    return false;
}

static void
clear_footprint(void)
{
    for (size_t i = 0; i < EP_FOOTPRINT_SLOTS; i++) {
        atomic_store_explicit(&ep_footprint[i], 0, memory_order_relaxed);
    }
    if (atomic_load_explicit(&ep_footprint_more_count, memory_order_relaxed) != 0) {
        for (size_t i = 0; i < EP_FOOTPRINT_MORE; i++) {
            atomic_store_explicit(&footprint_more[i], 0, memory_order_relaxed);
        }
        atomic_store_explicit(&ep_footprint_more_count, 0, memory_order_relaxed);
    }
}

/* ---- Hooks, whole ---------------------------------------------------------------------------- */

static inline const PyMemAllocatorEx *
allocator_below(const layer *own, ep_domain domain)
{
    return EP_LIKELY(own != NULL) ? &own->below : &first_below[domain];
}

/* HOT. The log to write to, with its busy flag set; NULL: pass through. */
static INTO_HOOKS ep_log *
enter(bool records, ep_kind kind, ep_domain domain)
{
    if (!records) {
        return NULL;
    }
    ep_log *log = ep_log_mine();
    if (EP_UNLIKELY(log == NULL)) {
        ep_engine_count_unlogged(kind + domain);
        return NULL;
    }
    return ep_py_enter_allocator(log, domain) ? log : NULL;
}

/* The calling thread's state if the thread is attached, else NULL. */
static inline PyThreadState *
attached_state(ep_log *log, ep_domain domain)
{
    PyThreadState *ts = ep_thread_state();
#if PY_VERSION_HEX < 0x030C0000
    /* 3.11 gives the state of whichever thread has the GIL. */
    if (domain == EP_DOMAIN_RAW) {
        if (ts == NULL || ts != log->state || ts->thread_id != PyThread_get_thread_ident()) {
            return NULL;
        }
    } else {
        log->state = ts;
    }
#else
    (void)log;
    (void)domain;
#endif
    return ts;
}

#define WHOLE __attribute__((noinline))

/* Whether this free may be of a C stack that is being exchanged: no frame is to be looked for then. */
static inline bool
stack_may_be_torn(ep_domain domain)
{
    return EP_FRAMES_NEED_STACK && domain == EP_DOMAIN_MEM &&
           EP_UNLIKELY(atomic_load_explicit(&ep_py_greenlets, memory_order_relaxed));
}

/* For counters, around whatever recorders do. Returns: NULL: nothing is counted. */
static INTO_HOOKS ep_count_thread *
enter_counting(const layer *own, ep_domain domain)
{
    uint8_t mode = own != NULL ? atomic_load_explicit(&own->mode, memory_order_relaxed) : DORMANT;
    if (mode != COUNTING && mode != RECORDING_COUNTING) {
        return NULL;
    }
    ep_count_thread *thread = ep_count_current;
    bool is_inner = EP_LIKELY(thread != NULL) && thread->busy != 0;
    if (is_inner || (mode != COUNTING && ep_log_current != NULL && (ep_log_current->busy & EP_BUSY_OWN))) {
        return NULL;    /* the second: the recorders' own cold code */
    }
    if (EP_LIKELY(thread != NULL && thread->fast_in == ep_count_now_generation())) {
        thread->busy = 1;
        return thread;
    }
    PyThreadState *ts = domain == EP_DOMAIN_RAW || stack_may_be_torn(domain) ? NULL : ep_thread_state();
    return ep_py_count_enter_block(ts);
}

/* thread: NULL: nothing is counted. */
static INTO_HOOKS void
leave_counting(ep_count_thread *thread, uint64_t bytes, const void *block)
{
    if (thread != NULL) {
        if (block != NULL) {
            ep_count_add_block(thread, bytes, (uintptr_t)block);
        }
        thread->busy = 0;
    }
}

/* What was made before a free is no event's: the recorders' rule, by which the last record is a block. */
static INTO_HOOKS void
count_free(const layer *own)
{
    ep_count_thread *thread = ep_count_current;
    if (thread != NULL && thread->busy == 0 && own != NULL &&
        atomic_load_explicit(&own->mode, memory_order_relaxed) != DORMANT) {
        ep_count_keep_blocks(thread);
    }
}

static INTO_HOOKS void
put_block(ep_log *log, ep_kind kind, ep_domain domain, size_t size, void *block)
{
    uint64_t ticks = ep_clock_ticks();
    (void)ep_footprint_forget((uintptr_t)block);
    uint32_t site = ep_py_block_site(attached_state(log, domain));
    uint32_t within = EP_BUSY_AROUND(log->busy, domain);
    if (EP_UNLIKELY(within != 0)) {
        ep_log_put_block_within(log, ticks, kind + domain, size, (uintptr_t)block, site, within);
    } else {
        ep_log_put_block(log, ticks, kind + domain, size, (uintptr_t)block, site);
    }
}

static INTO_HOOKS void
put_free(ep_log *log, ep_kind kind, ep_domain domain, void *block)
{
    uint64_t ticks = ep_clock_ticks();
    PyThreadState *ts = attached_state(log, domain);
    uint32_t site = stack_may_be_torn(domain) ? 0 : ep_py_block_site(ts);
    uint32_t within = EP_BUSY_AROUND(log->busy, domain);
    if (EP_UNLIKELY(within != 0)) {
        ep_log_put_free_within(log, ticks, kind + domain, site, (uintptr_t)block, within);
    } else {
        ep_log_put_free(log, ticks, kind + domain, site, (uintptr_t)block);
    }
}

/* ---- In our own code -------------------------------------------------------------------------- */

/* What is made there is no event, and is listed; what is freed there is an event unless it is listed. */

static INTO_HOOKS bool
is_recording(const layer *own)
{
    return own != NULL && atomic_load_explicit(&own->mode, memory_order_relaxed) >= RECORDING;
}

/* Where nothing was entered. */
static INTO_HOOKS bool
is_in_own_code(bool records)
{
    return records && EP_UNLIKELY(ep_log_current != NULL && ep_py_lists_own_blocks(ep_log_current));
}

/* Around the allocator below, which may ask another one. */
static inline void
begin_passing(ep_log *log, ep_domain domain)
{
    log->busy = EP_BUSY_OWN | EP_BUSY_IN(domain);
    ep_py_passing++;
}

static inline void
end_passing(ep_log *log)
{
    ep_py_passing--;
    log->busy = EP_BUSY_OWN;
}

static EP_COLD void *
own_malloc(ep_log *log, const layer *own, size_t size, ep_domain domain)
{
    begin_passing(log, domain);
    void *block = own->below.malloc(own->below.ctx, size);
    end_passing(log);
    if (block != NULL) {
        ep_py_list_own_block(log, (uintptr_t)block);
    }
    return block;
}

static EP_COLD void *
own_calloc(ep_log *log, const layer *own, size_t count, size_t size, ep_domain domain)
{
    begin_passing(log, domain);
    void *block = own->below.calloc(own->below.ctx, count, size);
    end_passing(log);
    if (block != NULL) {
        ep_py_list_own_block(log, (uintptr_t)block);
    }
    return block;
}

static EP_COLD void *
own_realloc(ep_log *log, layer *own, void *old, size_t size, ep_domain domain,
            void *(*whole)(void *, void *, size_t))
{
    if (old != NULL && !ep_py_unlist_own_block(log, (uintptr_t)old)) {
        ep_py_begin_event(log);
        void *moved = whole(own, old, size);
        ep_py_end_event(log);
        return moved;
    }
    begin_passing(log, domain);
    void *block = own->below.realloc(own->below.ctx, old, size);
    end_passing(log);
    if (block != NULL || old != NULL) {
        ep_py_list_own_block(log, (uintptr_t)(block != NULL ? block : old));
    }
    return block;
}

static EP_COLD void
own_free(ep_log *log, layer *own, void *block, ep_domain domain, void (*whole)(void *, void *))
{
    if (block != NULL && !ep_py_unlist_own_block(log, (uintptr_t)block)) {
        ep_py_begin_event(log);
        whole(own, block);
        ep_py_end_event(log);
        return;
    }
    begin_passing(log, domain);
    own->below.free(own->below.ctx, block);
    end_passing(log);
}

/* ---- Hooks, whole, for each operation ---------------------------------------------------------- */

static INTO_HOOKS void *
whole_malloc(void *context, size_t size, ep_domain domain)
{
    layer *own = context;
    bool records = is_recording(own);
    const PyMemAllocatorEx *below = allocator_below(own, domain);
    ep_log *log = enter(records, EP_KIND_MALLOC, domain);
    if (log == NULL) {
        if (is_in_own_code(records)) {
            return own_malloc(ep_log_current, own, size, domain);
        }
        ep_py_passing++;
        void *passed = below->malloc(below->ctx, size);
        ep_py_passing--;
        return passed;
    }
    ep_py_begin_below(log);
    void *block = below->malloc(below->ctx, size);
    ep_py_end_below(log);
    if (block != NULL) {
        put_block(log, EP_KIND_MALLOC, domain, size, block);
    }
    ep_py_leave_allocator(log, domain);
    return block;
}

static INTO_HOOKS void *
whole_calloc(void *context, size_t count, size_t size, ep_domain domain)
{
    layer *own = context;
    bool records = is_recording(own);
    const PyMemAllocatorEx *below = allocator_below(own, domain);
    ep_log *log = enter(records, EP_KIND_CALLOC, domain);
    if (log == NULL) {
        if (is_in_own_code(records)) {
            return own_calloc(ep_log_current, own, count, size, domain);
        }
        ep_py_passing++;
        void *passed = below->calloc(below->ctx, count, size);
        ep_py_passing--;
        return passed;
    }
    ep_py_begin_below(log);
    void *block = below->calloc(below->ctx, count, size);
    ep_py_end_below(log);
    if (block != NULL) {
        put_block(log, EP_KIND_CALLOC, domain, count * size, block);
    }
    ep_py_leave_allocator(log, domain);
    return block;
}

/* The old block's record before the real call, because afterwards another thread may be given its
 * address; the new one's after it. */
static INTO_HOOKS void *
whole_realloc(void *context, void *old, size_t size, ep_domain domain,
              void *(*whole)(void *, void *, size_t))
{
    layer *own = context;
    bool records = is_recording(own);
    const PyMemAllocatorEx *below = allocator_below(own, domain);
    ep_log *log = enter(records, EP_KIND_REALLOC, domain);
    if (log == NULL) {
        if (is_in_own_code(records)) {
            return own_realloc(ep_log_current, own, old, size, domain, whole);
        }
        ep_py_passing++;
        void *passed = below->realloc(below->ctx, old, size);
        ep_py_passing--;
        return passed;
    }
    bool listed = old != NULL && ep_footprint_forget((uintptr_t)old);
    if (old != NULL && !listed) {
        put_free(log, EP_KIND_REALLOC_FREE, domain, old);
    }
    ep_py_begin_below(log);
    void *block = below->realloc(below->ctx, old, size);
    ep_py_end_below(log);
    if (block != NULL) {
        put_block(log, old != NULL && !listed ? EP_KIND_REALLOC : EP_KIND_MALLOC, domain, size, block);
    } else if (old != NULL && !listed) {
        put_block(log, EP_KIND_REALLOC_FAILED, domain, size, old);
    }
    ep_py_leave_allocator(log, domain);
    return block;
}

static INTO_HOOKS void
whole_free(void *context, void *block, ep_domain domain, void (*whole)(void *, void *))
{
    layer *own = context;
    bool records = is_recording(own);
    const PyMemAllocatorEx *below = allocator_below(own, domain);
    ep_log *log = block != NULL ? enter(records, EP_KIND_FREE, domain) : NULL;
    if (log == NULL) {
        if (is_in_own_code(records)) {
            own_free(ep_log_current, own, block, domain, whole);
            return;
        }
        ep_py_passing++;
        below->free(below->ctx, block);
        ep_py_passing--;
        return;
    }
    if (EP_UNLIKELY(ep_footprint_has_boxes()) &&
        ep_log_last_block(log) == (uintptr_t)block) {
        (void)ep_footprint_take_box(log);
    }
    if (!ep_footprint_forget((uintptr_t)block)) {
        put_free(log, EP_KIND_FREE, domain, block);
    }
    ep_py_begin_below(log);
    below->free(below->ctx, block);
    ep_py_leave_allocator(log, domain);
}

/* ---- Hooks, the fast halves ------------------------------------------------------------------ */

/* Where nothing is out of the ordinary; the rest goes to the whole hook, before anything is done.
 *
 * The clock is read last: what follows it in the program waits for it on some processors (of 12 to
 * 15 ns), but what came before it goes on meanwhile, such as the chain of loads that ends with the
 * site. That of a new block is known before it is made. */

static INTO_HOOKS bool
is_plain(const layer *own)
{
    return EP_LIKELY(own != NULL) &&
           EP_LIKELY(atomic_load_explicit(&own->mode, memory_order_relaxed) == RECORDING_PLAIN) &&
           EP_LIKELY(ep_log_current != NULL) && ep_clock_is_counter();
}

static WHOLE uint32_t
find_site(ep_log *log, ep_frame *frame)
{
    uint32_t site = ep_block_site_find_recent(&log->recent, ep_frame_instruction(frame));
    if (EP_UNLIKELY(site == 0)) {
        log->busy = 1;
        site = ep_py_block_site_slow(frame);
        log->busy = 0;
    }
    return site;
}

/* HOT. As ep_py_block_site(). */
static INTO_HOOKS uint32_t
site_now(ep_log *log)
{
    PyThreadState *ts = ep_thread_state_unasked();
#if PY_VERSION_HEX < 0x030C0000
    log->state = ts;
#endif
    ep_frame *frame =
        EP_LIKELY(ts != NULL) ? ep_frame_of_program(ep_frame_current(ts)) : NULL;
    if (EP_UNLIKELY(frame == NULL)) {
        return 0;
    }
    uint32_t site = ep_block_site_recent(&log->recent, ep_frame_instruction(frame));
    return EP_LIKELY(site != 0) ? site : find_site(log, frame);
}

static INTO_HOOKS void
put_block_now(ep_log *log, ep_kind kind, size_t size, void *block, uint32_t site)
{
    ep_ticks ticks = ep_clock_counter_halves();
    if (EP_UNLIKELY(ep_footprint_active())) {
        (void)ep_footprint_unlist((uintptr_t)block);
        ep_log_put_block_at(log, ticks, kind, size, (uintptr_t)block, site, false);
    } else {
        ep_log_put_block_at(log, ticks, kind, size, (uintptr_t)block, site, true);
    }
}

static INTO_HOOKS void *
fast_malloc(layer *own, size_t size, ep_domain domain, void *(*whole)(void *, size_t))
{
    ep_log *log = ep_log_current;
    if (log->busy) {
        return EP_UNLIKELY(ep_py_lists_own_blocks(log)) ? own_malloc(log, own, size, domain)
                                                        : own->below.malloc(own->below.ctx, size);
    }
    uint32_t site = site_now(log);
    if (EP_UNLIKELY(site > EP_ALLOC_SITE_MAX)) {
        return whole(own, size);
    }
    log->busy = EP_BUSY_IN(domain);
    void *block = own->below.malloc(own->below.ctx, size);
    if (EP_LIKELY(block != NULL)) {
        put_block_now(log, EP_KIND_MALLOC + domain, size, block, site);
    }
    log->busy = 0;
    return block;
}

static INTO_HOOKS void *
fast_calloc(layer *own, size_t count, size_t size, ep_domain domain,
            void *(*whole)(void *, size_t, size_t))
{
    ep_log *log = ep_log_current;
    if (log->busy) {
        return EP_UNLIKELY(ep_py_lists_own_blocks(log))
                   ? own_calloc(log, own, count, size, domain)
                   : own->below.calloc(own->below.ctx, count, size);
    }
    uint32_t site = site_now(log);
    if (EP_UNLIKELY(site > EP_ALLOC_SITE_MAX)) {
        return whole(own, count, size);
    }
    log->busy = EP_BUSY_IN(domain);
    void *block = own->below.calloc(own->below.ctx, count, size);
    if (EP_LIKELY(block != NULL)) {
        put_block_now(log, EP_KIND_CALLOC + domain, count * size, block, site);
    }
    log->busy = 0;
    return block;
}

/* Not while blocks may be the mechanism's: the whole hook knows. */
static INTO_HOOKS void *
fast_realloc(layer *own, void *old, size_t size, ep_domain domain,
             void *(*whole)(void *, void *, size_t))
{
    ep_log *log = ep_log_current;
    if (log->busy) {
        return EP_UNLIKELY(ep_py_lists_own_blocks(log))
                   ? own_realloc(log, own, old, size, domain, whole)
                   : own->below.realloc(own->below.ctx, old, size);
    }
    uint32_t site = site_now(log);
    if (EP_UNLIKELY(site > EP_ALLOC_SITE_MAX)) {
        return whole(own, old, size);
    }
    log->busy = EP_BUSY_IN(domain);
    if (old != NULL) {
        ep_log_put_free_at(log, ep_clock_counter_halves(), EP_KIND_REALLOC_FREE + domain, site,
                           (uintptr_t)old);
    }
    void *block = own->below.realloc(own->below.ctx, old, size);
    if (EP_LIKELY(block != NULL)) {
        put_block_now(log, (old != NULL ? EP_KIND_REALLOC : EP_KIND_MALLOC) + domain, size, block,
                      site);
    } else if (old != NULL) {
        put_block_now(log, EP_KIND_REALLOC_FAILED + domain, size, old, site);
    }
    log->busy = 0;
    return block;
}

static INTO_HOOKS void
fast_free(layer *own, void *block, ep_domain domain, void (*whole)(void *, void *))
{
    ep_log *log = ep_log_current;
    if (log->busy) {
        if (EP_UNLIKELY(ep_py_lists_own_blocks(log))) {
            own_free(log, own, block, domain, whole);
        } else {
            own->below.free(own->below.ctx, block);
        }
        return;
    }
    if (EP_LIKELY(!ep_footprint_forget((uintptr_t)block))) {
        uint32_t site = site_now(log);
        ep_log_put_free_at(log, ep_clock_counter_halves(), EP_KIND_FREE + domain, site,
                           (uintptr_t)block);
    }
    log->busy = EP_BUSY_IN(domain);
    own->below.free(own->below.ctx, block);
    log->busy = 0;
}

#define HOOKS(name, DOMAIN)                                                                       \
    static WHOLE void *name##_malloc_whole(void *context, size_t size)                            \
    {                                                                                             \
        ep_count_thread *counting = enter_counting(context, DOMAIN);                              \
        void *block = whole_malloc(context, size, DOMAIN);                                        \
        leave_counting(counting, size, block);                                                    \
        return block;                                                                             \
    }                                                                                             \
    static WHOLE void *name##_calloc_whole(void *context, size_t count, size_t size)              \
    {                                                                                             \
        ep_count_thread *counting = enter_counting(context, DOMAIN);                              \
        void *block = whole_calloc(context, count, size, DOMAIN);                                 \
        leave_counting(counting, count * size, block);                                            \
        return block;                                                                             \
    }                                                                                             \
    static WHOLE void *name##_realloc_whole(void *context, void *old, size_t size)                \
    {                                                                                             \
        ep_count_thread *counting = enter_counting(context, DOMAIN);                              \
        void *block = whole_realloc(context, old, size, DOMAIN, name##_realloc_whole);            \
        leave_counting(counting, size, block);                                                    \
        return block;                                                                             \
    }                                                                                             \
    static WHOLE void name##_free_whole(void *context, void *block)                               \
    {                                                                                             \
        count_free(context);                                                                      \
        whole_free(context, block, DOMAIN, name##_free_whole);                                    \
    }                                                                                             \
    static void *name##_malloc(void *context, size_t size)                                        \
    {                                                                                             \
        return is_plain(context) ? fast_malloc(context, size, DOMAIN, name##_malloc_whole)        \
                                 : name##_malloc_whole(context, size);                            \
    }                                                                                             \
    static void *name##_calloc(void *context, size_t count, size_t size)                          \
    {                                                                                             \
        return is_plain(context) ? fast_calloc(context, count, size, DOMAIN, name##_calloc_whole) \
                                 : name##_calloc_whole(context, count, size);                     \
    }                                                                                             \
    static void *name##_realloc(void *context, void *old, size_t size)                            \
    {                                                                                             \
        return is_plain(context) && !ep_footprint_active()                                        \
                   ? fast_realloc(context, old, size, DOMAIN, name##_realloc_whole)               \
                   : name##_realloc_whole(context, old, size);                                    \
    }                                                                                             \
    static void name##_free(void *context, void *block)                                           \
    {                                                                                             \
        if (is_plain(context) && block != NULL && !ep_footprint_has_boxes() &&                    \
            !stack_may_be_torn(DOMAIN)) {                                                         \
            fast_free(context, block, DOMAIN, name##_free_whole);                                 \
        } else {                                                                                  \
            name##_free_whole(context, block);                                                    \
        }                                                                                         \
    }

HOOKS(raw, EP_DOMAIN_RAW)
HOOKS(mem, EP_DOMAIN_MEM)
HOOKS(obj, EP_DOMAIN_OBJ)

static const PyMemAllocatorEx hooks[DOMAIN_COUNT] = {
    [EP_DOMAIN_RAW] = {NULL, raw_malloc, raw_calloc, raw_realloc, raw_free},
    [EP_DOMAIN_MEM] = {NULL, mem_malloc, mem_calloc, mem_realloc, mem_free},
    [EP_DOMAIN_OBJ] = {NULL, obj_malloc, obj_calloc, obj_realloc, obj_free},
};

/* ---- In and out ------------------------------------------------------------------------------ */

static bool
is_on_top(ep_domain domain)
{
    PyMemAllocatorEx now;
    PyMem_GetAllocator((PyMemAllocatorDomain)domain, &now);
    return now.ctx == installed[domain] && now.malloc == hooks[domain].malloc;
}

typedef struct placement {
    ep_domain domain;
    const PyMemAllocatorEx *allocator;
} placement;

static void
place_alone(void *context)
{
    placement *wanted = context;
    PyMemAllocatorEx allocator = *wanted->allocator;
    PyMem_SetAllocator((PyMemAllocatorDomain)wanted->domain, &allocator);
}

/* Function and context are read one after the other: no attached thread may be between them. */
static void
set_allocator(ep_domain domain, const PyMemAllocatorEx *allocator)
{
    placement wanted = {domain, allocator};
    ep_py_alone(place_alone, &wanted);
}

/* Takes out dormant layers that have come to the top again: a tool that wrapped one put it back
 * when it left. Otherwise every such round would leave one more on every allocation's way. */
static void
take_out_dormant(ep_domain domain)
{
    for (;;) {
        PyMemAllocatorEx now;
        PyMem_GetAllocator((PyMemAllocatorDomain)domain, &now);
        layer *own = now.ctx;
        if (now.malloc != hooks[domain].malloc || own == NULL ||
            atomic_load_explicit(&own->mode, memory_order_relaxed) != DORMANT) {
            return;
        }
        set_allocator(domain, &own->below);
    }
}

static void
take_out(ep_domain domain)
{
    layer *own = installed[domain];
    if (own == NULL) {
        return;
    }
    atomic_store_explicit(&own->mode, DORMANT, memory_order_relaxed);
    installed[domain] = NULL;
    take_out_dormant(domain);
}

/* 3.11 must look whose thread state it is that it reads without the GIL. */
static bool
may_be_plain(ep_domain domain)
{
    return ep_py_sites_usable && (EP_THREAD_STATE_IS_LOCAL ? !ep_thread_state_is_asked()
                                                           : PY_VERSION_HEX >= 0x030C0000 ||
                                                                 domain != EP_DOMAIN_RAW);
}

static uint8_t
mode_of(ep_domain domain)
{
    if (!recorded[domain]) {
        return counted[domain] ? COUNTING : DORMANT;
    }
    bool has_inner = atomic_load_explicit(&ep_py_blocks_inside, memory_order_relaxed) != 0;
    return counted[domain]                      ? RECORDING_COUNTING
           : may_be_plain(domain) && !has_inner ? RECORDING_PLAIN
                                                : RECORDING;
}

static int
put_in(ep_domain domain)
{
    layer *own = ep_calloc(1, sizeof *own);
    if (own == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    take_out_dormant(domain);
    PyMem_GetAllocator((PyMemAllocatorDomain)domain, &own->below);
    if (first_below[domain].malloc == NULL) {
        first_below[domain] = own->below;
    }
    atomic_store_explicit(&own->mode, mode_of(domain), memory_order_relaxed);
    installed[domain] = own;
    PyMemAllocatorEx hook = hooks[domain];
    hook.ctx = own;
    set_allocator(domain, &hook);
    return 0;
}

/* Makes the domain's layer what recorders and counters want of it. Fails: -1, exception set, as before. */
static int
set_wanted(ep_domain domain, bool to_record, bool to_count)
{
    bool was_recorded = recorded[domain], was_counted = counted[domain];
    recorded[domain] = to_record;
    counted[domain] = to_count;
    if (!to_record && !to_count) {
        take_out(domain);
    } else if (installed[domain] != NULL) {
        atomic_store_explicit(&installed[domain]->mode, mode_of(domain), memory_order_relaxed);
    } else if (put_in(domain) < 0) {
        recorded[domain] = was_recorded;
        counted[domain] = was_counted;
        return -1;
    }
    return 0;
}

static int
adjust(ep_kind_set kinds)
{
    bool was_out = !recorded[0] && !recorded[1] && !recorded[2];
    bool had[DOMAIN_COUNT];
    memcpy(had, recorded, sizeof had);
    ep_py_look_for_greenlets();
    if (was_out && kinds != 0) {
        clear_footprint();    /* 512 KiB: not for a recorder of calls alone */
    }
#if PY_VERSION_HEX < 0x030C0000
    /* Else this thread's blocks of RAW had no place until it asked for one of another domain. */
    if (kinds != 0 && ep_log_mine() != NULL) {
        ep_log_mine()->state = PyThreadState_Get();
    }
#endif
    /* What is added first: if there is no memory, nothing has changed. */
    for (int domain = 0; domain < DOMAIN_COUNT; domain++) {
        if ((kinds & ep_kinds_of_domain((ep_domain)domain)) &&
            set_wanted((ep_domain)domain, true, counted[domain]) < 0) {
            while (domain-- > 0) {
                (void)!set_wanted((ep_domain)domain, had[domain], counted[domain]);
            }
            return -1;
        }
    }
    for (int domain = 0; domain < DOMAIN_COUNT; domain++) {
        if (!(kinds & ep_kinds_of_domain((ep_domain)domain))) {
            (void)!set_wanted((ep_domain)domain, false, counted[domain]);
        }
    }
    return 0;
}

int
ep_py_alloc_count(unsigned domains)
{
    bool had[DOMAIN_COUNT];
    memcpy(had, counted, sizeof had);
    ep_py_look_for_greenlets();
    for (int domain = 0; domain < DOMAIN_COUNT; domain++) {
        if (set_wanted((ep_domain)domain, recorded[domain], (domains >> domain & 1) != 0) < 0) {
            while (domain-- > 0) {
                (void)!set_wanted((ep_domain)domain, recorded[domain], had[domain]);
            }
            return -1;
        }
    }
    return 0;
}

static bool
owns(void)
{
    for (int domain = 0; domain < DOMAIN_COUNT; domain++) {
        if (installed[domain] != NULL && !is_on_top((ep_domain)domain)) {
            return false;
        }
    }
    return true;
}

bool
ep_py_alloc_owns(void)
{
    return owns();
}

const ep_source ep_source_alloc = {
    .name = "alloc",
    .kinds = ep_kinds_raw | ep_kinds_mem | ep_kinds_obj,
    .adjust = adjust,
    .owns = owns,
};
