/* What belongs together in a stream of events: the one rule of the columns of calls and blocks
 * (trace/pair.c, pair_blocks.c), of the tree (folds/tree.c), of the drop-in's rows
 * (python/src/tables/rows.c) and of the counters (count/count.c). If their rules differed, a call or a
 * block could have one end in a table and another end in the tree. Each user brings its own frame of a
 * call and its own entry of a block. record/closing.h has the rule of calls for stacks of sites.
 * trace/verify.c checks the results, so it shares no code with this.
 *
 * Calls: an end closes the innermost open call of its key. The calls above it ended without an end of
 * their own. An end without such a call closes nothing: its begin was not recorded.
 *
 * Blocks: an address has one live block. A block that is born where another one lives (a *suspect*)
 * shows that the end of the older one was lost, or was logged too late: see ep_free_is_late(). */
#ifndef EP_PAIRING_H
#define EP_PAIRING_H

#include "types.h"

/* ---- Calls ----------------------------------------------------------------------------------- */

/* An end fits a call when their keys are equal. function: a row of the function table, -1: unknown. */
static inline int32_t
ep_call_key(int32_t function, int32_t is_c)
{
    return function * 2 + is_c;
}

#define EP_KEY_FLOOR INT32_MIN    /* of the frame below all calls: no end has it */

/* The effect of a kind on a stack. It is a table and not branches, because processors cannot predict
 * whether a program calls or returns next (random trees: 4.4 ns an event in all against 11). */
typedef struct ep_call_effect {
    int32_t opens, closes;    /* -1: yes, 0: no; as masks, or compilers make branches again */
} ep_call_effect;

static inline ep_call_effect
ep_call_effect_of(unsigned kind)
{
    return (ep_call_effect){
        .opens = ep_kinds_has(ep_kinds_that_open_calls, kind) ? -1 : 0,
        .closes = ep_kind_has_name(kind) ? -1 : 0,
    };
}

/* Whether an event closes a call, but not the one on top: ep_find_begin() knows which. */
static EP_INLINE bool
ep_ends_below_top(int32_t top_key, int32_t key, int32_t closes)
{
    return ((top_key ^ key) & closes) != 0;
}

/* mask: of ep_call_effect. */
static EP_INLINE int32_t
ep_choose(int32_t mask, int32_t yes, int32_t no)
{
    return no ^ ((yes ^ no) & mask);
}

/* The last search of a stack without a result: no frame with an order below `before` has the key. So a
 * deep stack is not searched again for each end. Zeroed: there was no search. */
typedef struct ep_absent_begin {
    uintptr_t key;
    uint64_t before;
} ep_absent_begin;

/* Open calls: from the frame on top down to the floor, which is no call. */
typedef struct ep_frames {
    const void *top, *floor;
    size_t stride;
} ep_frames;

/* Grows from frame to frame: the number of a call, or its time. */
typedef uint64_t ep_frame_order(const void *frame);
typedef bool ep_frame_has_key(const void *context, const void *frame, uintptr_t key);

/* The frame that an end of this key closes. before: the order that the next call will have, at least.
 * NULL: there is none, and `absent` knows that. */
static EP_INLINE const void *
ep_find_begin(ep_absent_begin *absent, ep_frames frames, uintptr_t key, uint64_t before,
              ep_frame_order *order_of, ep_frame_has_key *has_key, const void *context)
{
    for (const char *frame = frames.top; frame != frames.floor; frame -= frames.stride) {
        if (absent->key == key && order_of(frame) < absent->before) {
            break;
        }
        if (has_key(context, frame, key)) {
            return frame;
        }
    }
    *absent = (ep_absent_begin){key, before};
    return NULL;
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

/* The effect of an allocator event on its block. */
typedef enum ep_block_role {
    EP_BLOCK_VALUE,      /* none: a record with an address */
    EP_BLOCK_BIRTH,
    EP_BLOCK_DEATH,
    EP_BLOCK_FAILURE     /* a realloc failed: its realloc_free did not happen */
} ep_block_role;

static inline ep_block_role
ep_block_role_of(unsigned kind)
{
    const ep_kind_info *info = &ep_kinds[kind];
    if (info->form == EP_FORM_ALLOC) {
        return info->pairing == EP_PAIRING_OPENS ? EP_BLOCK_BIRTH : EP_BLOCK_FAILURE;
    }
    return info->form == EP_FORM_FREE ? EP_BLOCK_DEATH : EP_BLOCK_VALUE;
}

/* Whether it is this allocator operation, in any domain. first: EP_KIND_MALLOC, EP_KIND_FREE, ... */
static inline bool
ep_kind_is(unsigned kind, unsigned first)
{
    return kind - first < EP_DOMAIN_COUNT;
}

/* Whether the kind is one of the two events of a realloc. */
static inline bool
ep_kind_moves(unsigned kind)
{
    return ep_kind_is(kind, EP_KIND_REALLOC) || ep_kind_is(kind, EP_KIND_REALLOC_FREE);
}

/* How far the clocks of two threads may differ: 7 times the largest difference in 598,000 hand-overs
 * between threads. */
#define EP_PAIR_SKEW_NS 100000

/* Whether the free of a suspect's address is that of the older block, logged too late: another thread
 * freed it, and at once. Then the suspect lives on. */
static EP_INLINE bool
ep_free_is_late(int32_t birth_thread, int64_t birth_ns, int32_t thread, int64_t time_ns)
{
    return thread != birth_thread && time_ns - birth_ns <= EP_PAIR_SKEW_NS;
}

/* A thread's realloc_free whose realloc has not come yet. */
typedef struct ep_half_realloc {
    bool waits, known;    /* known: the block is */
    uint8_t domain;
    uint64_t address;
} ep_half_realloc;

/* A realloc failed. Whether the block that its realloc_free ended lives again: unless another thread
 * was given the address since then, which is the caller's to know. */
static inline bool
ep_half_realloc_revives(ep_half_realloc *half, uint8_t domain, uint64_t address)
{
    bool revives = half->waits && half->known && half->domain == domain && half->address == address;
    half->waits = false;
    return revives;
}

#endif
