/* The hooks of source_alloc.c, which alone includes this: for each domain and operation a fast half,
 * for the usual cases, and a slow one. A header, so that all of it is one object:
 * a call into another object makes the fast halves save registers, 3 instructions an event. */
#ifndef EP_ALLOC_HOOKS_H
#define EP_ALLOC_HOOKS_H

#include "compat.h"

#include <string.h>

#include "count_calls.h"
#include "engine.h"
#include "footprint.h"
#include "inner_blocks.h"
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

/* While we install, a caller may have read our function but still the old context (NULL in all known
 * allocators). Returns: the allocator that was there first. */
static PyMemAllocatorEx first_below[DOMAIN_COUNT];

/* What all hooks share is inlined into each of them, where its domain is a constant. Otherwise gcc calls
 * some of these functions, for 2 to 5 ns an event. */
#define INTO_HOOKS inline __attribute__((always_inline))

/* ---- Hooks, slow ---------------------------------------------------------------------------- */

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
#if !EP_STATE_IS_OF_THREAD
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

#define SLOW_HALF __attribute__((noinline))

/* Whether this free may belong to a C stack that is being exchanged (greenlet). Then the frame must not
 * be read. */
static inline bool
stack_may_be_torn(ep_domain domain)
{
    return EP_FRAMES_NEED_STACK && domain == EP_DOMAIN_MEM &&
           EP_UNLIKELY(atomic_load_explicit(&ep_py_greenlets, memory_order_relaxed));
}

/* For counters. Returns: NULL if nothing is counted. */
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

/* What was allocated right before a free was not allocated for an event. (Recorders find such blocks as
 * the last record; a free is not one.) */
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
    (void)ep_omits_forget((uintptr_t)block);
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

/* A block that our own code allocates is listed (omitted.h), and is not an event. A block that our own code
 * frees is an event, unless it is listed. Where such blocks are events, they have no line
 * (ep_py_mute_calls). */

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
begin_passing(ep_log *log, ep_domain domain, size_t bytes)
{
    log->asked = bytes;
    log->busy = EP_BUSY_OWN | EP_BUSY_IN(domain);
    ep_py_passing++;
}

static inline void
end_passing(ep_log *log)
{
    ep_py_passing--;
    log->busy = EP_BUSY_OWN;
}

static EP_COLD void
put_own(ep_log *log, ep_kind kind, ep_domain domain, size_t size, void *block)
{
    ep_py_begin_event(log);
    (void)ep_omits_forget((uintptr_t)block);
    ep_log_put_block(log, ep_clock_ticks(), kind + domain, size, (uintptr_t)block, 0);
    ep_py_end_event(log);
}

/* An object of the program that our code drops may be queued for its thread: that thread frees the chunk of
 * the queue as the program, so its allocation is an event, too. Our own code has no blocks of RAW. */
static inline bool
is_of_queue(ep_domain domain, size_t size)
{
    return EP_GIL_DISABLED && domain == EP_DOMAIN_RAW && size == EP_QUEUE_CHUNK_BYTES;
}

static inline void
list_or_put(ep_log *log, ep_kind kind, ep_domain domain, size_t size, void *block)
{
    if (log->own_is_recorded || is_of_queue(domain, size)) {
        put_own(log, kind, domain, size, block);
    } else {
        ep_omitted_list((uintptr_t)block);
    }
}

/* The records are those of slow_realloc(). */
static EP_COLD void *
put_own_realloc(ep_log *log, const layer *own, void *old, size_t size, ep_domain domain)
{
    bool listed = ep_omits_forget((uintptr_t)old);
    if (!listed) {
        ep_py_begin_event(log);
        ep_log_put_free(log, ep_clock_ticks(), EP_KIND_REALLOC_FREE + domain, 0, (uintptr_t)old);
        ep_py_end_event(log);
    }
    begin_passing(log, domain, size);
    void *block = own->below.realloc(own->below.ctx, old, size);
    end_passing(log);
    if (block != NULL) {
        put_own(log, listed ? EP_KIND_MALLOC : EP_KIND_REALLOC, domain, size, block);
    } else if (!listed) {
        put_own(log, EP_KIND_REALLOC_FAILED, domain, size, old);
    }
    return block;
}

static EP_COLD void *
own_malloc(ep_log *log, const layer *own, size_t size, ep_domain domain)
{
    begin_passing(log, domain, size);
    void *block = own->below.malloc(own->below.ctx, size);
    end_passing(log);
    if (block != NULL) {
        list_or_put(log, EP_KIND_MALLOC, domain, size, block);
    }
    return block;
}

static EP_COLD void *
own_calloc(ep_log *log, const layer *own, size_t count, size_t size, ep_domain domain)
{
    begin_passing(log, domain, count * size);
    void *block = own->below.calloc(own->below.ctx, count, size);
    end_passing(log);
    if (block != NULL) {
        list_or_put(log, EP_KIND_CALLOC, domain, count * size, block);
    }
    return block;
}

static EP_COLD void *
own_realloc(ep_log *log, layer *own, void *old, size_t size, ep_domain domain,
            void *(*slow)(void *, void *, size_t))
{
    if (log->own_is_recorded) {
        return old != NULL ? put_own_realloc(log, own, old, size, domain)
                           : own_malloc(log, own, size, domain);
    }
    if (old != NULL && !ep_omits_forget((uintptr_t)old)) {
        ep_py_begin_event(log);
        void *moved = slow(own, old, size);
        ep_py_end_event(log);
        return moved;
    }
    begin_passing(log, domain, size);
    void *block = own->below.realloc(own->below.ctx, old, size);
    end_passing(log);
    if (block != NULL || old != NULL) {
        ep_omitted_list((uintptr_t)(block != NULL ? block : old));
    }
    return block;
}

static EP_COLD void
own_free(ep_log *log, layer *own, void *block, ep_domain domain, void (*slow)(void *, void *))
{
    if (block != NULL && !ep_omits_forget((uintptr_t)block)) {
        ep_py_begin_event(log);
        slow(own, block);
        ep_py_end_event(log);
        return;
    }
    begin_passing(log, domain, 0);
    own->below.free(own->below.ctx, block);
    end_passing(log);
}

/* ---- What an allocator takes for itself -------------------------------------------------------- */

/* The outermost allocator notes what it is asked for. */
static INTO_HOOKS void
note_asked(ep_log *log, ep_domain domain, size_t bytes)
{
    if (domain != EP_DOMAIN_RAW && EP_BUSY_AROUND(log->busy, domain) == 0) {
        log->asked = bytes;
    }
}

/* HOT. RAW asks no other allocator. */
static INTO_HOOKS void
note_asked_first(ep_log *log, ep_domain domain, size_t bytes)
{
    if (domain != EP_DOMAIN_RAW) {
        log->asked = bytes;
    }
}

/* In the hook of RAW, called by another allocator, with the block that it got. within: as in
 * ep_inner_list(). */
static INTO_HOOKS void
list_inner(const ep_log *log, ep_domain domain, const void *block, size_t bytes, uint32_t within)
{
    if (domain == EP_DOMAIN_RAW && log != NULL && EP_BUSY_AROUND(log->busy, domain) != 0 &&
        ep_inner_is(log, bytes) && block != NULL) {
        ep_inner_list(block, within);
    }
}

static INTO_HOOKS bool
unlist_inner(ep_domain domain, const void *block, uint32_t *within)
{
    return domain == EP_DOMAIN_RAW && ep_inner_any() && ep_inner_unlist(block, within);
}

/* Frees what was allocated within other domains, and is freed outside of them. */
static EP_COLD void
put_inner_free(ep_log *log, ep_domain domain, const void *block, uint32_t within)
{
    if (within != 0) {
        ep_log_put_free_within(log, ep_clock_ticks(), EP_KIND_FREE + domain, 0, (uintptr_t)block, within);
    }
}

/* ---- Hooks, slow, for each operation ---------------------------------------------------------- */

static INTO_HOOKS void *
slow_malloc(void *context, size_t size, ep_domain domain)
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
        list_inner(records ? ep_log_current : NULL, domain, passed, size, 0);
        return passed;
    }
    note_asked(log, domain, size);
    ep_py_begin_below(log);
    void *block = below->malloc(below->ctx, size);
    ep_py_end_below(log);
    if (block != NULL) {
        put_block(log, EP_KIND_MALLOC, domain, size, block);
        list_inner(log, domain, block, size, EP_BUSY_AROUND(log->busy, domain));
    }
    ep_py_leave_allocator(log, domain);
    return block;
}

static INTO_HOOKS void *
slow_calloc(void *context, size_t count, size_t size, ep_domain domain)
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
        list_inner(records ? ep_log_current : NULL, domain, passed, count * size, 0);
        return passed;
    }
    note_asked(log, domain, count * size);
    ep_py_begin_below(log);
    void *block = below->calloc(below->ctx, count, size);
    ep_py_end_below(log);
    if (block != NULL) {
        put_block(log, EP_KIND_CALLOC, domain, count * size, block);
        list_inner(log, domain, block, count * size, EP_BUSY_AROUND(log->busy, domain));
    }
    ep_py_leave_allocator(log, domain);
    return block;
}

/* The old block's record before the real call, because afterwards another thread may be given its
 * address; the new one's after it. */
static INTO_HOOKS void *
slow_realloc(void *context, void *old, size_t size, ep_domain domain,
             void *(*slow)(void *, void *, size_t))
{
    layer *own = context;
    bool records = is_recording(own);
    const PyMemAllocatorEx *below = allocator_below(own, domain);
    ep_log *log = enter(records, EP_KIND_REALLOC, domain);
    if (log == NULL) {
        if (is_in_own_code(records)) {
            return own_realloc(ep_log_current, own, old, size, domain, slow);
        }
        ep_py_passing++;
        bool was_inner = unlist_inner(domain, old, NULL);
        void *passed = below->realloc(below->ctx, old, size);
        ep_py_passing--;
        if (was_inner && passed == NULL) {
            ep_inner_list(old, 0);
        }
        list_inner(records ? ep_log_current : NULL, domain, passed, size, 0);
        return passed;
    }
    bool listed = old != NULL && ep_omits_forget((uintptr_t)old);
    (void)unlist_inner(domain, old, NULL);
    if (old != NULL && !listed) {
        put_free(log, EP_KIND_REALLOC_FREE, domain, old);
    }
    note_asked(log, domain, size);
    ep_py_begin_below(log);
    void *block = below->realloc(below->ctx, old, size);
    ep_py_end_below(log);
    if (block != NULL) {
        put_block(log, old != NULL && !listed ? EP_KIND_REALLOC : EP_KIND_MALLOC, domain, size, block);
        list_inner(log, domain, block, size, EP_BUSY_AROUND(log->busy, domain));
    } else if (old != NULL && !listed) {
        put_block(log, EP_KIND_REALLOC_FAILED, domain, size, old);
    }
    ep_py_leave_allocator(log, domain);
    return block;
}

static INTO_HOOKS void
slow_free(void *context, void *block, ep_domain domain, void (*slow)(void *, void *))
{
    layer *own = context;
    bool records = is_recording(own);
    const PyMemAllocatorEx *below = allocator_below(own, domain);
    ep_log *log = block != NULL ? enter(records, EP_KIND_FREE, domain) : NULL;
    if (log == NULL) {
        if (is_in_own_code(records)) {
            own_free(ep_log_current, own, block, domain, slow);
            return;
        }
        (void)unlist_inner(domain, block, NULL);
        ep_py_passing++;
        below->free(below->ctx, block);
        ep_py_passing--;
        return;
    }
    uint32_t within = 0;
    bool is_inner = unlist_inner(domain, block, &within);
    if (EP_UNLIKELY(ep_footprint_has_boxes()) &&
        ep_log_last_block(log) == (uintptr_t)block) {
        (void)ep_footprint_take_box(log);
    }
    if (is_inner && EP_BUSY_AROUND(log->busy, domain) == 0) {
        put_inner_free(log, domain, block, within);
    } else if (!ep_omits_forget((uintptr_t)block)) {
        put_free(log, EP_KIND_FREE, domain, block);
    }
    ep_py_begin_below(log);
    below->free(below->ctx, block);
    ep_py_leave_allocator(log, domain);
}

/* ---- Hooks, the fast halves ------------------------------------------------------------------ */

/* The usual cases. All others go to the slow hook before anything is changed.
 *
 * The clock is read last. On some processors the code that follows waits for it (12 to 15 ns), but the
 * loads before it continue meanwhile, such as the chain that ends with the site. The site of a new block
 * is found before the block is allocated. */

static INTO_HOOKS bool
is_plain(const layer *own)
{
    return EP_LIKELY(own != NULL) &&
           EP_LIKELY(atomic_load_explicit(&own->mode, memory_order_relaxed) == RECORDING_PLAIN) &&
           EP_LIKELY(ep_log_current != NULL) && ep_clock_is_counter();
}

static SLOW_HALF uint32_t
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
#if !EP_STATE_IS_OF_THREAD
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
    uint32_t omits = ep_omits();
    if (EP_UNLIKELY(omits != 0)) {
        (void)ep_omits_unlist(omits, (uintptr_t)block);
        ep_log_put_block_at(log, ep_clock_counter_halves(), kind, size, (uintptr_t)block, site, false);
    } else {
        ep_log_put_block_at(log, ep_clock_counter_halves(), kind, size, (uintptr_t)block, site, true);
    }
}

static INTO_HOOKS void *
fast_malloc(layer *own, size_t size, ep_domain domain, void *(*slow)(void *, size_t))
{
    ep_log *log = ep_log_current;
    if (log->busy) {
        if (EP_UNLIKELY(ep_py_lists_own_blocks(log))) {
            return own_malloc(log, own, size, domain);
        }
        return domain == EP_DOMAIN_RAW && ep_inner_is(log, size) ? slow(own, size)
                                                                 : own->below.malloc(own->below.ctx, size);
    }
    uint32_t site = site_now(log);
    if (EP_UNLIKELY(site > EP_ALLOC_SITE_MAX)) {
        return slow(own, size);
    }
    log->busy = EP_BUSY_IN(domain);
    note_asked_first(log, domain, size);
    void *block = own->below.malloc(own->below.ctx, size);
    if (EP_LIKELY(block != NULL)) {
        put_block_now(log, EP_KIND_MALLOC + domain, size, block, site);
    }
    log->busy = 0;
    return block;
}

static INTO_HOOKS void *
fast_calloc(layer *own, size_t count, size_t size, ep_domain domain,
            void *(*slow)(void *, size_t, size_t))
{
    ep_log *log = ep_log_current;
    if (log->busy) {
        if (EP_UNLIKELY(ep_py_lists_own_blocks(log))) {
            return own_calloc(log, own, count, size, domain);
        }
        return domain == EP_DOMAIN_RAW && ep_inner_is(log, count * size)
                   ? slow(own, count, size)
                   : own->below.calloc(own->below.ctx, count, size);
    }
    uint32_t site = site_now(log);
    if (EP_UNLIKELY(site > EP_ALLOC_SITE_MAX)) {
        return slow(own, count, size);
    }
    log->busy = EP_BUSY_IN(domain);
    note_asked_first(log, domain, count * size);
    void *block = own->below.calloc(own->below.ctx, count, size);
    if (EP_LIKELY(block != NULL)) {
        put_block_now(log, EP_KIND_CALLOC + domain, count * size, block, site);
    }
    log->busy = 0;
    return block;
}

/* Not while blocks may be our own or the mechanism's: the slow hook knows. */
static INTO_HOOKS void *
fast_realloc(layer *own, void *old, size_t size, ep_domain domain,
             void *(*slow)(void *, void *, size_t))
{
    ep_log *log = ep_log_current;
    if (log->busy) {
        if (EP_UNLIKELY(ep_py_lists_own_blocks(log))) {
            return own_realloc(log, own, old, size, domain, slow);
        }
        return domain == EP_DOMAIN_RAW && ep_inner_is(log, size)
                   ? slow(own, old, size)
                   : own->below.realloc(own->below.ctx, old, size);
    }
    uint32_t site = site_now(log);
    if (EP_UNLIKELY(site > EP_ALLOC_SITE_MAX)) {
        return slow(own, old, size);
    }
    log->busy = EP_BUSY_IN(domain);
    note_asked_first(log, domain, size);
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
fast_free(layer *own, void *block, ep_domain domain, void (*slow)(void *, void *))
{
    ep_log *log = ep_log_current;
    if (log->busy) {
        if (EP_UNLIKELY(ep_py_lists_own_blocks(log))) {
            own_free(log, own, block, domain, slow);
        } else {
            own->below.free(own->below.ctx, block);
        }
        return;
    }
    if (EP_LIKELY(!ep_omits_forget((uintptr_t)block))) {
        uint32_t site = site_now(log);
        ep_log_put_free_at(log, ep_clock_counter_halves(), EP_KIND_FREE + domain, site,
                           (uintptr_t)block);
    }
    log->busy = EP_BUSY_IN(domain);
    own->below.free(own->below.ctx, block);
    log->busy = 0;
}

#define HOOKS(name, DOMAIN)                                                                      \
    static SLOW_HALF void *name##_malloc_slow(void *context, size_t size)                        \
    {                                                                                            \
        ep_count_thread *counting = enter_counting(context, DOMAIN);                             \
        void *block = slow_malloc(context, size, DOMAIN);                                        \
        leave_counting(counting, size, block);                                                   \
        return block;                                                                            \
    }                                                                                            \
    static SLOW_HALF void *name##_calloc_slow(void *context, size_t count, size_t size)          \
    {                                                                                            \
        ep_count_thread *counting = enter_counting(context, DOMAIN);                             \
        void *block = slow_calloc(context, count, size, DOMAIN);                                 \
        leave_counting(counting, count * size, block);                                           \
        return block;                                                                            \
    }                                                                                            \
    static SLOW_HALF void *name##_realloc_slow(void *context, void *old, size_t size)            \
    {                                                                                            \
        ep_count_thread *counting = enter_counting(context, DOMAIN);                             \
        void *block = slow_realloc(context, old, size, DOMAIN, name##_realloc_slow);             \
        leave_counting(counting, size, block);                                                   \
        return block;                                                                            \
    }                                                                                            \
    static SLOW_HALF void name##_free_slow(void *context, void *block)                           \
    {                                                                                            \
        count_free(context);                                                                     \
        slow_free(context, block, DOMAIN, name##_free_slow);                                     \
    }                                                                                            \
    static void *name##_malloc(void *context, size_t size)                                       \
    {                                                                                            \
        return is_plain(context) ? fast_malloc(context, size, DOMAIN, name##_malloc_slow)        \
                                 : name##_malloc_slow(context, size);                            \
    }                                                                                            \
    static void *name##_calloc(void *context, size_t count, size_t size)                         \
    {                                                                                            \
        return is_plain(context) ? fast_calloc(context, count, size, DOMAIN, name##_calloc_slow) \
                                 : name##_calloc_slow(context, count, size);                     \
    }                                                                                            \
    static void *name##_realloc(void *context, void *old, size_t size)                           \
    {                                                                                            \
        return is_plain(context) && ep_omits() == 0 &&                                           \
                       !(DOMAIN == EP_DOMAIN_RAW && ep_inner_any())                              \
                   ? fast_realloc(context, old, size, DOMAIN, name##_realloc_slow)               \
                   : name##_realloc_slow(context, old, size);                                    \
    }                                                                                            \
    static void name##_free(void *context, void *block)                                          \
    {                                                                                            \
        if (is_plain(context) && block != NULL && !ep_footprint_has_boxes() &&                   \
            !stack_may_be_torn(DOMAIN) && !(DOMAIN == EP_DOMAIN_RAW && ep_inner_any())) {        \
            fast_free(context, block, DOMAIN, name##_free_slow);                                 \
        } else {                                                                                 \
            name##_free_slow(context, block);                                                    \
        }                                                                                        \
    }

HOOKS(raw, EP_DOMAIN_RAW)
HOOKS(mem, EP_DOMAIN_MEM)
HOOKS(obj, EP_DOMAIN_OBJ)

static const PyMemAllocatorEx hooks[DOMAIN_COUNT] = {
    [EP_DOMAIN_RAW] = {NULL, raw_malloc, raw_calloc, raw_realloc, raw_free},
    [EP_DOMAIN_MEM] = {NULL, mem_malloc, mem_calloc, mem_realloc, mem_free},
    [EP_DOMAIN_OBJ] = {NULL, obj_malloc, obj_calloc, obj_realloc, obj_free},
};

#endif
