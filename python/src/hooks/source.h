/* Sources make events and write them to the engine's logs. Rules for all sources: install once, for all
 * kinds that any recorder wants; remove only what is ours; if another tool took our hook, go dormant and
 * do not disturb it. */
#ifndef EP_SOURCE_H
#define EP_SOURCE_H

#include "compat.h"

#include "log.h"
#include "types.h"

typedef struct ep_source {
    const char *name;
    ep_kind_set kinds;    /* kinds that it can record */
    /* Makes the hook record `kinds`; 0 removes the hook, which never fails. GIL held.
     * Fails: -1, exception set, nothing changed. */
    int (*adjust)(ep_kind_set kinds);
    /* Whether our hook is still installed. False while another tool's is in its place (displaced). */
    bool (*owns)(void);
    /* How often another tool had the hook for a while, until it gave the hook back or its thread ended.
     * Events in between are missing. NULL: this source misses nothing then. */
    uint64_t (*interruptions)(void);
} ep_source;

#define EP_SOURCE(name, hook) extern const ep_source ep_source_##name;
#include "sources.def"
#undef EP_SOURCE

/* Kinds of which each event belongs to a function: filters of functions apply to these. */
#define EP_KINDS_CODE (ep_kinds_python | ep_kinds_c | ep_kinds_inside)

/* A set for a hook that records nothing, and only takes back what the mechanism allocates. No event has
 * kind 0. */
#define EP_KINDS_NONE EP_KIND_BIT(0)

/* Every kind of one allocator domain. */
static inline ep_kind_set
ep_kinds_of_domain(ep_domain domain)
{
    return ep_kinds_of_domains(UINT64_C(1) << domain);
}

/* An allocator may take its block from another allocator: OBJ from RAW, RAW from the C library. A block
 * belongs to the outermost recorded domain. If two recorders record different domains, the block is
 * written twice, and the inner record says which domain is around it (EP_ESCAPE_WITHIN). This has the
 * bits of the domains, 1 << ep_domain, for which that is so. */
extern EP_HIDDEN _Atomic uint32_t ep_py_blocks_inside;

/* Above 0 while the thread is in an allocator that our hook called for the program, and no event of it
 * is recorded. */
extern EP_HIDDEN _Thread_local uint32_t ep_py_passing;

/* busy: of the thread's log, not 0. */
static inline bool
ep_py_is_block_wanted_inside(uint32_t busy, ep_domain domain)
{
    return !(busy & (EP_BUSY_OWN | EP_BUSY_IN(domain))) &&
           (atomic_load_explicit(&ep_py_blocks_inside, memory_order_relaxed) >> domain & 1);
}

/* HOT. For the hooks of allocators: enters the allocator of a domain. False: this block is not an event,
 * because it is our own, or another allocator asked for it; nothing is changed then. */
static inline bool
ep_py_enter_allocator(ep_log *log, ep_domain domain)
{
    uint32_t busy = log->busy;
    if (EP_UNLIKELY(busy != 0) && !ep_py_is_block_wanted_inside(busy, domain)) {
        return false;
    }
    log->busy = busy | EP_BUSY_OWN | EP_BUSY_IN(domain);
    return true;
}

/* Around the call of the allocator below: what that allocator allocates is not our own. */
static inline void
ep_py_begin_below(ep_log *log)
{
    log->busy &= ~EP_BUSY_OWN;
}

static inline void
ep_py_end_below(ep_log *log)
{
    log->busy |= EP_BUSY_OWN;
}

static inline void
ep_py_leave_allocator(ep_log *log, ep_domain domain)
{
    log->busy &= ~(EP_BUSY_OWN | EP_BUSY_IN(domain));
}

/* The library that native needs was preloaded. */
bool ep_py_native_available(void);

/* Whether the functions by which threads wait can be replaced here. The first call finds them, as the first
 * start would. GIL held. */
bool ep_py_waits_available(void);

/* The name id of what is waited for; 0: waits were never recorded. */
uint32_t ep_py_wait_name(ep_wait_for what);

/* Whether the profile source may evaluate frames itself, where that is faster (evaluator.h). Takes effect
 * at its next adjustment. */
void ep_py_profile_allow_evaluator(bool allowed);

/* Whether the interpreter has sys.monitoring (3.12+). If not, calls come from the profile source, and
 * events inside of functions from the trace source. */
bool ep_py_monitoring_available(void);

#endif
