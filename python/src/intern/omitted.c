#include "omitted.h"

_Atomic uintptr_t ep_omitted[EP_OMITTED_SLOTS];
_Atomic uint16_t ep_omitted_of_index[EP_BLOCK_INDEXES];
_Atomic uint32_t ep_omitted_state;

/* The count comes before the block and goes after it: who knows the address finds both. */
void
ep_omitted_list(uintptr_t address)
{
    _Atomic uint16_t *count = &ep_omitted_of_index[ep_block_index(address)];
    if (atomic_load_explicit(count, memory_order_relaxed) > UINT16_MAX / 2) {
        return;
    }
    atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
    for (size_t probe = 0; probe < EP_OMITTED_PROBES; probe++) {
        uintptr_t found = 0;
        if (atomic_compare_exchange_strong_explicit(ep_omitted_slot(address, probe), &found, address,
                                                    memory_order_relaxed, memory_order_relaxed)) {
            atomic_fetch_add_explicit(&ep_omitted_state, EP_OMITTED_ONE, memory_order_relaxed);
            return;
        }
        if (found == address) {
            break;    /* its free was not seen */
        }
    }
    atomic_fetch_sub_explicit(count, 1, memory_order_relaxed);
}

void
ep_omitted_clear(void)
{
    if (atomic_load_explicit(&ep_omitted_state, memory_order_relaxed) < EP_OMITTED_ONE) {
        return;
    }
    for (size_t i = 0; i < EP_OMITTED_SLOTS; i++) {
        uintptr_t address = atomic_load_explicit(&ep_omitted[i], memory_order_relaxed);
        if (address != 0) {
            (void)ep_omitted_unlist(address);
        }
    }
}
