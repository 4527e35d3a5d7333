/* A list as short as what our own code holds at a time: searched from its end, where the last one is. */
#include "own_blocks.h"

static uint32_t
enter(uint32_t as)
{
    ep_log *log = ep_log_current;
    uint32_t busy = 0;
    if (log != NULL) {
        busy = log->busy;
        if (busy == 0) {
            log->own_blocks.count = 0;
            log->own_blocks.is_full = false;
        }
        log->busy = as;
    }
    return busy;
}

uint32_t
ep_py_enter_own(void)
{
    ep_log *log = ep_log_current;
    /* Nested in what is all ours, it is so, too. */
    return enter(log != NULL && (log->busy & EP_BUSY_OURS) ? log->busy : EP_BUSY_OWN);
}

uint32_t
ep_py_enter_ours(void)
{
    return enter(EP_BUSY_OWN | EP_BUSY_OURS);
}

void
ep_py_leave_own(uint32_t busy)
{
    if (ep_log_current != NULL) {
        ep_log_current->busy = busy;
    }
}

void
ep_py_list_own_block(ep_log *log, uintptr_t address)
{
    ep_own_blocks *own = &log->own_blocks;
    if (own->count < EP_OWN_BLOCKS) {
        own->address[own->count++] = address;
    } else {
        own->is_full = true;
    }
}

bool
ep_py_unlist_own_block(ep_log *log, uintptr_t address)
{
    ep_own_blocks *own = &log->own_blocks;
    for (uint32_t i = own->count; i-- > 0;) {
        if (own->address[i] == address) {
            own->address[i] = own->address[--own->count];
            return true;
        }
    }
    return own->is_full;
}
