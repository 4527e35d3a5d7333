/* The source of allocator events: PyMem_SetAllocator for the domains RAW, MEM and OBJ.
 *
 * Each install makes a layer, {the allocator below, whether it records}, immortal because callers
 * read function and context unlocked and another tool may keep both for ever. A layer that somebody
 * wrapped, and that can therefore not be taken out, stays and passes through (tested with
 * tracemalloc in every order; restoring blindly crashes 3.12 and 3.13).
 *
 * The hooks call no C API but the allocator below and reading the thread state, and do not assume
 * the GIL. */
#include "alloc_hooks.h"

static layer *installed[DOMAIN_COUNT];    /* not dormant; NULL: none. Under the GIL */
static bool recorded[DOMAIN_COUNT], counted[DOMAIN_COUNT];

_Atomic uint32_t ep_py_blocks_inside;
_Thread_local uint32_t ep_py_passing;

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

/* Removes dormant layers that are on top again, because the tool that wrapped them has removed itself.
 * Otherwise each such round would leave one more layer in the way of every allocation. */
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
                                                           : EP_STATE_IS_OF_THREAD ||
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
        ep_inner_clear();
        ep_footprint_clear();    /* 512 KiB: not for a recorder of calls alone */
    }
#if !EP_STATE_IS_OF_THREAD
    /* Otherwise this thread's blocks of RAW would have no site until it allocates in another domain. */
    if (kinds != 0 && ep_log_mine() != NULL) {
        ep_log_mine()->state = PyThreadState_Get();
    }
#endif
    /* Domains are added first: if memory is missing for that, nothing has changed. */
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
