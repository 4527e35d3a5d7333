#include "inner_blocks.h"

/* A sub-interpreter has some 3 tables, and one more for each 256 MiB. */
#define SLOTS 16384
#define PROBES 32

_Atomic uint32_t ep_inner_count;

/* An address, which is a multiple of 16, and the domains around it in its low bits; 0: free. */
static _Atomic uintptr_t listed[SLOTS];
#define DOMAINS ((uintptr_t)15)

static _Atomic uintptr_t *
slot_of(uintptr_t address, size_t probe)
{
    size_t hash = (size_t)((uint64_t)(address >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 40);
    return &listed[(hash + probe) & (SLOTS - 1)];
}

void
ep_inner_list(const void *block, uint32_t within)
{
    PyThreadState *ts = ep_thread_state();
    uintptr_t address = (uintptr_t)block;
    if (ts == NULL || ts->interp == PyInterpreterState_Main() || (address & DOMAINS)) {
        return;
    }
    for (size_t probe = 0; probe < PROBES; probe++) {
        uintptr_t none = 0;
        /* Relaxed: who frees a block got its address from the thread that allocated it, so the order is
         * there. The count is only compared with 0, and raised before the address can be freed. */
        if (atomic_compare_exchange_strong_explicit(slot_of(address, probe), &none,
                                                    address | (within & DOMAINS), memory_order_relaxed,
                                                    memory_order_relaxed)) {
            atomic_fetch_add_explicit(&ep_inner_count, 1, memory_order_relaxed);
            return;
        }
    }
}

bool
ep_inner_unlist(const void *block, uint32_t *within)
{
    uintptr_t address = (uintptr_t)block;
    for (size_t probe = 0; probe < PROBES && block != NULL; probe++) {
        _Atomic uintptr_t *slot = slot_of(address, probe);
        uintptr_t found = atomic_load_explicit(slot, memory_order_relaxed);
        if ((found & ~DOMAINS) == address &&
            atomic_compare_exchange_strong_explicit(slot, &found, 0, memory_order_relaxed,
                                                    memory_order_relaxed)) {
            atomic_fetch_sub_explicit(&ep_inner_count, 1, memory_order_relaxed);
            if (within != NULL) {
                *within = (uint32_t)(found & DOMAINS);
            }
            return true;
        }
    }
    return false;
}

void
ep_inner_clear(void)
{
    if (ep_inner_any()) {
        for (size_t i = 0; i < SLOTS; i++) {
            atomic_store_explicit(&listed[i], 0, memory_order_relaxed);
        }
        atomic_store_explicit(&ep_inner_count, 0, memory_order_relaxed);
    }
}
