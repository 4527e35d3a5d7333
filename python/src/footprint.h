/* Keeping what the hook mechanism itself allocates out of the data.
 *
 * Before it calls us the interpreter may box an offset or make a frame object. Those blocks are
 * born outside our callback, so they cannot be bracketed; but when the callback begins, such a
 * block is the thread's last record, and its address is known. It is taken back, and its address
 * entered here, so that its free passes unrecorded, too: 51,009 foreign events of 161,806
 * became 3. */
#ifndef EP_FOOTPRINT_H
#define EP_FOOTPRINT_H

#include <stdatomic.h>

#include "log.h"

#define EP_FOOTPRINT_SLOTS 65536

/* One process-wide table: blocks are freed on other threads than they were made on. Index: bits
 * 4-19, unique within a 1 MiB arena. An evicted entry is one unknown free: harmless. */
extern EP_HIDDEN _Atomic uintptr_t ep_footprint[EP_FOOTPRINT_SLOTS];

/* Whether call hooks and allocator hooks are both in: otherwise the table is not looked at. */
extern EP_HIDDEN _Atomic bool ep_footprint_on;

static inline _Atomic uintptr_t *
ep_footprint_slot(uintptr_t address)
{
    return &ep_footprint[address >> 4 & (EP_FOOTPRINT_SLOTS - 1)];
}

static inline bool
ep_footprint_active(void)
{
    return atomic_load_explicit(&ep_footprint_on, memory_order_relaxed);
}

/* HOT. In a callback: `address` is known to be the mechanism's. */
static inline bool
ep_footprint_take(ep_log *log, uintptr_t address)
{
    if (address == 0 || ep_log_last_block(log) != address) {
        return false;
    }
    ep_log_take_back(log);
    atomic_store_explicit(ep_footprint_slot(address), address, memory_order_relaxed);
    return true;
}

/* HOT. Whether `address` is listed; it no longer is. Free: do not record. Malloc: the block's free
 * was not seen; the new one is the program's. Only while active. */
static inline bool
ep_footprint_unlist(uintptr_t address)
{
    _Atomic uintptr_t *slot = ep_footprint_slot(address);
    if (EP_LIKELY(atomic_load_explicit(slot, memory_order_relaxed) != address)) {
        return false;
    }
    atomic_store_explicit(slot, 0, memory_order_relaxed);
    return true;
}

static inline bool
ep_footprint_forget(uintptr_t address)
{
    return ep_footprint_active() && ep_footprint_unlist(address);
}

/* 3.12 and 3.13, profile backend: the boxed offset is not passed to the callback, but it is the
 * last record, 24 to 48 bytes, and an int equal to the offset of the current instruction. A window
 * around the offset instead of equality ate 50 of the program's ints. */
extern EP_HIDDEN _Atomic bool ep_footprint_boxes;
bool ep_footprint_take_box(ep_log *log);

static inline bool
ep_footprint_has_boxes(void)
{
    return atomic_load_explicit(&ep_footprint_boxes, memory_order_relaxed);
}

#endif
