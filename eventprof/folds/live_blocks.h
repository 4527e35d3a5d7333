/* The live blocks of a program by address, in 24 bytes each.
 *
 *   entries   [ A . B C D . . E F . . | . . ]       20 bytes each
 *              0                    count   end     a search ends at an empty entry
 *
 * Open addressing: a block is in the entry that the hash of its address says, its home, or in the first
 * empty one after that. Homes are in order of the hash, and do not wrap around. A large table has nine of
 * ten entries in use, and grows by a sixteenth in place, from the end to the begin. A small one has half
 * of them in use, and doubles: searches are shorter (by 7 % of the time of a tree). When its addresses are
 * used up a table is copied by pieces, and the old ones go back to the system. */
#ifndef EP_LIVE_BLOCKS_H
#define EP_LIVE_BLOCKS_H

#include "pair.h"
#include "types.h"

/* From so many entries on, 40 MiB, it grows by a sixteenth. A block that stays then costs 0.5 us: until the
 * table is twice as large, all blocks are moved sixteen times. */
#define EP_LIVE_LARGE_COUNT ((size_t)1 << 21)

/* Read and written as a word, but aligned as a half: 20 bytes need no padding. */
typedef uint64_t ep_live_address __attribute__((aligned(4)));

typedef struct ep_live_entry {
    ep_live_address address;
    uint32_t size;           /* from EP_LIVE_LARGE_SIZE on: a row of `large` */
    uint32_t origin, call;   /* the caller's; origin 0: an empty entry */
} ep_live_entry;

_Static_assert(sizeof(ep_live_entry) == 20, "nine of ten are used: 24 bytes a block");

#define EP_LIVE_LARGE_SIZE (UINT32_C(1) << 31)

typedef struct ep_live_block {
    uint64_t address, size;
    uint32_t origin, call;
} ep_live_block;

typedef struct ep_live_blocks {
    ep_live_entry *entries;
    size_t count;            /* homes; below 2^32 */
    size_t end;              /* entries; the last one is empty */
    size_t room;             /* entries that have addresses; those from `end` on are not touched */
    size_t used, limit;      /* blocks; how many before it grows */
    uint64_t *large;         /* sizes of 2 GiB and more; or, of a free row, the next free one + 1 */
    size_t large_count, large_capacity, large_free;    /* large_free: row + 1; 0: none */
} ep_live_blocks;

/* Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_live_open(ep_live_blocks *blocks);
void ep_live_clear(ep_live_blocks *blocks);

/* Adds a block that needs a larger table or has a large size. Fails: EP_NOMEM. */
EP_COLD EP_CHECKED ep_status ep_live_put_slow(ep_live_blocks *blocks, const ep_live_block *block);

/* A block begins at an address that is still in use; event: the row of its columns' allocator events. True:
 * the next event of that address is a free by another thread, within the difference that clocks may have.
 * Then that free ends the older block. */
EP_COLD bool ep_live_is_freed_late(const ep_columns *columns, size_t event, size_t thread_count);

/* ---- For each event -------------------------------------------------------------------------- */

static EP_INLINE uint64_t
ep_live_hash(uint64_t address)
{
    return (address ^ address >> 12) * UINT64_C(0x9e3779b97f4a7c15);
}

static EP_INLINE size_t
ep_live_home(const ep_live_blocks *blocks, uint64_t address)
{
    return (size_t)((ep_live_hash(address) >> 32) * blocks->count >> 32);
}

/* The entry of an address, or the empty one where it belongs; valid until the table changes. */
static EP_INLINE ep_live_entry *
ep_live_find(const ep_live_blocks *blocks, uint64_t address)
{
    ep_live_entry *at = &blocks->entries[ep_live_home(blocks, address)];
    while (at->origin != 0 && at->address != address) {
        at++;
    }
    return at;
}

static EP_INLINE ep_live_block
ep_live_at(const ep_live_blocks *blocks, const ep_live_entry *at)
{
    bool is_large = at->size >= EP_LIVE_LARGE_SIZE;
    uint64_t size = EP_UNLIKELY(is_large) ? blocks->large[at->size - EP_LIVE_LARGE_SIZE] : at->size;
    return (ep_live_block){at->address, size, at->origin, at->call};
}

/* Adds a block. at: what ep_live_find() gave for its address; empty. Fails: EP_NOMEM. */
static EP_INLINE EP_CHECKED ep_status
ep_live_put(ep_live_blocks *blocks, ep_live_entry *at, uint64_t address, uint64_t size, uint32_t origin,
            uint32_t call)
{
    if (EP_UNLIKELY(blocks->used >= blocks->limit || at == &blocks->entries[blocks->end - 1] ||
                    size >= EP_LIVE_LARGE_SIZE)) {
        return ep_live_put_slow(blocks, &(ep_live_block){address, size, origin, call});
    }
    *at = (ep_live_entry){address, (uint32_t)size, origin, call};
    blocks->used++;
    return EP_OK;
}

/* Takes a block out of the table, and moves later ones up, so that a search may end at an empty entry. */
static EP_INLINE void
ep_live_take(ep_live_blocks *blocks, ep_live_entry *at)
{
    if (EP_UNLIKELY(at->size >= EP_LIVE_LARGE_SIZE)) {
        size_t row = at->size - EP_LIVE_LARGE_SIZE;
        blocks->large[row] = blocks->large_free;
        blocks->large_free = row + 1;
    }
    ep_live_entry *hole = at;
    for (const ep_live_entry *next = at + 1; next->origin != 0; next++) {
        if (&blocks->entries[ep_live_home(blocks, next->address)] <= hole) {
            *hole = *next;
            hole = (ep_live_entry *)next;
        }
    }
    hole->origin = 0;
    blocks->used--;
}

/* ---- The life of each block ------------------------------------------------------------------ */

/* By the rules of pairing.h, for folds that ask little of a block; the tree has its own. */
typedef struct ep_followed_blocks {
    ep_live_blocks live;
    size_t thread_count;
    ep_live_block *late;         /* blocks whose free was logged too late */
    size_t late_count, late_capacity;
} ep_followed_blocks;

/* Of each thread; zeroed at first. */
typedef struct ep_moved_block {
    ep_half_realloc half;
    ep_live_block block;         /* that its realloc_free ended */
} ep_moved_block;

/* What the caller wants to know of a block. origin: not 0. */
typedef struct ep_block_note {
    uint32_t origin, call;
} ep_block_note;

/* Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_followed_open(ep_followed_blocks *blocks, size_t thread_count);
void ep_followed_clear(ep_followed_blocks *blocks);
/* An allocator event. note: of the block that it begins. *ended: the block that it ends, if it is known;
 * else untouched. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_follow_block(ep_followed_blocks *blocks, ep_moved_block *moved,
                                     const ep_columns *columns, size_t event, ep_block_note note,
                                     ep_live_block *ended);

/* ---- Soon ------------------------------------------------------------------------------------ */

/* An event at that address follows soon. Always inline: gcc takes a function that only fetches for one
 * without an effect, and drops the call. */
static EP_INLINE void
ep_live_expect(const ep_live_blocks *blocks, uint64_t address)
{
    const char *home = (const char *)&blocks->entries[ep_live_home(blocks, address)];
    __builtin_prefetch(home, 1);
    __builtin_prefetch(home + 39, 1);
}

#endif
