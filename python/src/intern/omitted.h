/* Blocks whose allocation was left out of the recording, so that their free must be left out, too: what our
 * own code allocates (own_blocks.h), and what the interpreter allocates to call a hook, as far as the table
 * of footprint.h has no room for it.
 *
 * One table for all threads: a block may be freed on another thread than the one that made it, and the
 * interpreter's caches hand it on while our code still runs. A block is listed when it is allocated, and
 * taken from the list when it is freed, by whomever, or when an event allocates at its address. If there is
 * no room, the free of the block will be recorded, as one of an unknown block. */
#ifndef EP_OMITTED_H
#define EP_OMITTED_H

#include "compat.h"

#include <stdatomic.h>

#define EP_OMITTED_SLOTS 262144
#define EP_OMITTED_PROBES 16
extern EP_HIDDEN _Atomic uintptr_t ep_omitted[EP_OMITTED_SLOTS];

/* Bits 4-19 of an address, which are unique within an arena of 1 MiB. */
#define EP_BLOCK_INDEXES 65536
static inline size_t
ep_block_index(uintptr_t address)
{
    /* Without a GIL each thread has segments of its own, aligned to 32 MiB, and all begin alike. */
    uintptr_t segment = EP_GIL_DISABLED ? address >> 25 << 8 : 0;
    return (address >> 4 ^ segment) & (EP_BLOCK_INDEXES - 1);
}

/* How many blocks of each index are listed: the hooks look into the table only where there are some. (While
 * nothing is listed these are pages of zeros, all of them one page in the processor's cache.) */
extern EP_HIDDEN _Atomic uint16_t ep_omitted_of_index[EP_BLOCK_INDEXES];

/* What the hooks of allocators must look at; 0: nothing. The number of listed blocks in units of
 * EP_OMITTED_ONE; and whether the table of footprint.h is used. */
#define EP_OMITTED_FOOTPRINT UINT32_C(1)
#define EP_OMITTED_ONE UINT32_C(2)
extern EP_HIDDEN _Atomic uint32_t ep_omitted_state;

static inline _Atomic uintptr_t *
ep_omitted_slot(uintptr_t address, size_t probe)
{
    size_t hash = (size_t)((uint64_t)(address >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 32);
    return &ep_omitted[(hash + probe) & (EP_OMITTED_SLOTS - 1)];
}

/* It only accesses memory. */
EP_COLD void ep_omitted_list(uintptr_t address);

/* Whether it was listed. For almost all blocks that are not listed this reads one word. Each object file
 * has its own copy, where the compiler sees which registers it does not change: a call into another one
 * costs the allocator hooks 3 instructions more, of 71 to 82. */
static EP_COLD __attribute__((unused)) bool
ep_omitted_unlist(uintptr_t address)
{
    _Atomic uint16_t *count = &ep_omitted_of_index[ep_block_index(address)];
    if (EP_LIKELY(atomic_load_explicit(count, memory_order_relaxed) == 0)) {
        return false;
    }
    for (size_t probe = 0; probe < EP_OMITTED_PROBES; probe++) {
        _Atomic uintptr_t *slot = ep_omitted_slot(address, probe);
        uintptr_t found = atomic_load_explicit(slot, memory_order_relaxed);
        if (found == address && atomic_compare_exchange_strong_explicit(
                                    slot, &found, 0, memory_order_relaxed, memory_order_relaxed)) {
            atomic_fetch_sub_explicit(&ep_omitted_state, EP_OMITTED_ONE, memory_order_relaxed);
            atomic_fetch_sub_explicit(count, 1, memory_order_relaxed);
            return true;
        }
    }
    return false;
}

/* Nothing is listed: while no block is recorded. Of blocks that our code freed unseen the list would keep
 * the addresses. */
void ep_omitted_clear(void);

#endif
