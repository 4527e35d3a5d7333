/* Keeps the blocks that the hook mechanism itself allocates out of the recording. footprint.c has the
 * tables and the functions that are seldom called.
 *
 * Before the interpreter calls a hook, it may make an int of an offset, or a frame object. These blocks are
 * allocated before our callback begins, so the busy flag cannot leave them out. But when the callback
 * begins, such a block is the thread's last record, and its address is known. So the record is taken back,
 * and the address is listed here, so that the free of the block is not recorded either. Of 161,806 events
 * of a program 51,009 were such blocks; 3 remained. */
#ifndef EP_FOOTPRINT_H
#define EP_FOOTPRINT_H

#include "compat.h"

#include <stdatomic.h>

#include "log.h"
#include "omitted.h"

#define EP_FOOTPRINT_SLOTS EP_BLOCK_INDEXES

/* One table for all threads: a block may be freed on another thread than the one that made it. Often two
 * blocks of two arenas have the same index (a call in a loop and what it calls gave thousands of unknown
 * frees), so each index has two places. Of three such blocks (25,000 calls deep, every third) the oldest
 * moves to the larger table of omitted.h. */
extern EP_HIDDEN _Atomic uintptr_t ep_footprint[EP_FOOTPRINT_SLOTS];

/* Nothing is listed: before the first block is recorded. */
void ep_footprint_clear(void);

/* Whether call hooks and allocator hooks are both installed. Otherwise the table is not used. */
static inline bool
ep_footprint_active(void)
{
    return (atomic_load_explicit(&ep_omitted_state, memory_order_relaxed) & EP_OMITTED_FOOTPRINT) != 0;
}

void ep_footprint_use(bool wanted);

static inline void
ep_footprint_put(size_t index, uintptr_t address)
{
    atomic_store_explicit(&ep_footprint[index], address, memory_order_relaxed);
}

/* HOT. In a callback: lists `address`, which is a block of the mechanism's. Most such blocks are freed
 * soon, but the tables of a code object live as long as the object (ints of offsets replaced 2000 of 2000
 * in the table). So the entry at the first place stays. The entry at the second place is replaced: the free
 * of its block will be recorded, as one of an unknown block. */
static inline bool
ep_footprint_take(ep_log *log, uintptr_t address)
{
    if (address == 0 || ep_log_last_block(log) != address) {
        return false;
    }
    ep_log_take_back(log);
    size_t index = ep_block_index(address);
    uintptr_t before = atomic_load_explicit(&ep_footprint[index], memory_order_relaxed);
    ep_footprint_put(EP_LIKELY(before == 0 || before == address) ? index : index ^ 1, address);
    return true;
}

/* Takes back a block that lives as long as a call: makes room in the table. Threads may overwrite each
 * other's entries here; each lost entry becomes one unknown free. */
static inline bool
ep_footprint_take_lasting(ep_log *log, uintptr_t address)
{
    if (address == 0 || ep_log_last_block(log) != address) {
        return false;
    }
    size_t index = ep_block_index(address);
    uintptr_t before = atomic_load_explicit(&ep_footprint[index], memory_order_relaxed);
    if (EP_UNLIKELY(before != 0 && before != address)) {
        uintptr_t oldest = atomic_load_explicit(&ep_footprint[index ^ 1], memory_order_relaxed);
        if (oldest != 0 && oldest != address) {
            ep_omitted_list(oldest);
        }
        ep_footprint_put(index ^ 1, before);
        ep_footprint_put(index, 0);
    }
    return ep_footprint_take(log, address);
}

/* Of three blocks and more in a row. */
static inline bool
ep_footprint_take_far(ep_log *log, uintptr_t address)
{
    if (!ep_log_ends_with_block(log, address)) {
        return false;
    }
    if (ep_log_last_block(log) == 0) {
        log->last_block = log->next - 2;
        log->block_before = NULL;
    }
    return ep_footprint_take_lasting(log, address);
}

/* True while lines or instructions are recorded. From 3.12 on the interpreter then keeps tables for each
 * code object: of all blocks of the mechanism these live the longest. */
extern EP_HIDDEN _Atomic bool ep_footprint_tables;

/* Removes the tables that the interpreter made to monitor `code` from the log, if the log ends with
 * them. Returns: whether it did. Only while ep_footprint_active(). */
bool ep_py_take_back_tables(ep_log *log, PyCodeObject *code);

static inline bool
ep_footprint_has_tables(void)
{
    return atomic_load_explicit(&ep_footprint_tables, memory_order_relaxed);
}

/* Not 0: something is listed, or may be soon. */
static inline uint32_t
ep_omits(void)
{
    return atomic_load_explicit(&ep_omitted_state, memory_order_relaxed);
}

/* HOT. Whether `address` is listed, here or in omitted.h; it no longer is. Free: do not record. Malloc: the
 * block's free was not seen; the new one is the program's. omits: ep_omits(), which is not 0. */
static inline bool
ep_omits_unlist(uint32_t omits, uintptr_t address)
{
    size_t index = ep_block_index(address);
    _Atomic uintptr_t *slot = &ep_footprint[index];
    if (atomic_load_explicit(slot, memory_order_relaxed) != address) {
        slot = &ep_footprint[index ^ 1];
        if (EP_LIKELY(atomic_load_explicit(slot, memory_order_relaxed) != address)) {
            return EP_UNLIKELY(omits >= EP_OMITTED_ONE) && ep_omitted_unlist(address);
        }
    }
    atomic_store_explicit(slot, 0, memory_order_relaxed);
    return true;
}

static inline bool
ep_omits_forget(uintptr_t address)
{
    uint32_t omits = ep_omits();
    return omits != 0 && ep_omits_unlist(omits, address);
}

/* 3.12 and 3.13, profile backend: the boxed offset is not passed to the callback, but it is the last
 * record, has 24 to 48 bytes, and is an int equal to the offset of the current instruction. With a range
 * around the offset instead of equality, 50 of the program's ints were taken for it. */
extern EP_HIDDEN _Atomic bool ep_footprint_boxes;
bool ep_footprint_take_box(ep_log *log);

static inline bool
ep_footprint_has_boxes(void)
{
    return atomic_load_explicit(&ep_footprint_boxes, memory_order_relaxed);
}

#endif
