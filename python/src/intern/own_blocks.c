/* A short list of the blocks that our own code holds, searched from its end, where the latest block is. */
#include "own_blocks.h"

#include "invariants.h"
#include "os.h"

static uint32_t
enter(uint32_t as)
{
    ep_log *log = ep_log_current;
    uint32_t busy = 0;
    if (log != NULL) {
        busy = log->busy;
        if (busy == 0 || log->own_blocks.are_events) {
            log->own_blocks.count = 0;
            log->own_blocks.is_full = false;
        }
        busy |= log->own_blocks.are_events ? EP_BUSY_EVENTS : 0;
        log->own_blocks.are_events = false;
        log->busy = as;
    }
    return busy;
}

uint32_t
ep_py_enter_own(void)
{
    ep_log *log = ep_log_current;
    /* Within ep_py_enter_ours() all frees are our own, also in nested code. */
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
        ep_log_current->busy = busy & ~EP_BUSY_EVENTS;
        ep_log_current->own_blocks.are_events = (busy & EP_BUSY_EVENTS) != 0;
    }
}

/* ---- Muted ----------------------------------------------------------------------------------- */

#define MUTED_BYTES (EP_MUTED_BLOCKS * sizeof(uintptr_t))
#define MUTED_PROBES 16

bool
ep_py_mute(void)
{
    ep_log *log = ep_log_mine();
    if (log == NULL || log->busy != 0 || (log->fresh & EP_FRESH_MUTED)) {
        return false;
    }
    log->own_blocks.muted = ep_os_map(MUTED_BYTES);
    if (log->own_blocks.muted == NULL) {
        return false;
    }
    log->fresh |= EP_FRESH_MUTED;
    log->busy = EP_BUSY_OWN;
    return true;
}

bool
ep_py_mute_calls(void)
{
    ep_log *log = ep_log_mine();
    if (log == NULL || log->busy != 0 || (log->fresh & EP_FRESH_MUTED)) {
        return false;
    }
    log->fresh |= EP_FRESH_MUTED;
    log->busy = EP_BUSY_OWN;
    log->own_blocks.count = 0;
    log->own_blocks.is_full = false;
    log->own_blocks.are_events = true;
    return true;
}

void
ep_py_unmute(void (*left)(uintptr_t address))
{
    ep_log *log = ep_log_current;
    if (log != NULL && (log->fresh & EP_FRESH_MUTED)) {    /* not set in a child that was forked
                                                            * meanwhile */
        log->fresh &= ~EP_FRESH_MUTED;
        log->busy = 0;
        log->own_blocks.are_events = false;
        if (log->own_blocks.muted != NULL) {
            for (size_t slot = 0; left != NULL && slot < EP_MUTED_BLOCKS; slot++) {
                if (log->own_blocks.muted[slot] != 0) {
                    left(log->own_blocks.muted[slot]);
                }
            }
            ep_os_unmap(log->own_blocks.muted, MUTED_BYTES);
            log->own_blocks.muted = NULL;
        }
    }
}

/* Replaces `found` by `put` in the slots for the address. False: it is not there. */
static bool
exchange_muted(const ep_log *log, uintptr_t address, uintptr_t found, uintptr_t put)
{
    size_t hash = (size_t)((uint64_t)(address >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 32);
    for (size_t probe = 0; probe < MUTED_PROBES; probe++) {
        uintptr_t *slot = &log->own_blocks.muted[(hash + probe) & (EP_MUTED_BLOCKS - 1)];
        if (*slot == found) {
            *slot = put;
            return true;
        }
    }
    return false;
}

/* ---- The list -------------------------------------------------------------------------------- */

#ifdef EP_CHECKS
/* An address is given out once until it is freed. */
static void
check_list(const ep_own_blocks *own)
{
    EP_INVARIANT(own->count <= EP_OWN_BLOCKS, "%u own blocks", (unsigned)own->count);
    for (uint32_t i = 0; i + 1 < own->count; i++) {
        EP_INVARIANT(own->address[i] != own->address[own->count - 1], "own block %#zx is listed twice",
                     (size_t)own->address[i]);
    }
}
#endif

void
ep_py_list_own_block(ep_log *log, uintptr_t address)
{
    ep_own_blocks *own = &log->own_blocks;
    if (own->muted != NULL) {
        (void)exchange_muted(log, address, 0, address);    /* no free slot: the free of this block will be
                                                            * unknown */
    } else if (own->count < EP_OWN_BLOCKS) {
        own->address[own->count++] = address;
        EP_CHECK_INVARIANTS(check_list(own));
    } else {
        own->is_full = true;
    }
}

bool
ep_py_unlist_own_block(ep_log *log, uintptr_t address)
{
    ep_own_blocks *own = &log->own_blocks;
    if (own->muted != NULL) {
        return exchange_muted(log, address, address, 0);
    }
    for (uint32_t i = own->count; i-- > 0;) {
        if (own->address[i] == address) {
            own->address[i] = own->address[--own->count];
            return true;
        }
    }
    return own->is_full;
}
