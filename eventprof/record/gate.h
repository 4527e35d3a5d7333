/* The filters in the hook: the union of the running recorders' filters. A call that no recorder wants is
 * left out here, and costs neither a record nor, if the interpreter can switch its code off, a call of the
 * hook. Each trace applies its own filter once more (filter.h), so it is never wrong to leave out too
 * little.
 *
 * Names: each has a verdict, which is computed when it is first needed. Each set of recorders has a
 * generation; verdicts of other generations are computed again. Calls: to limit depth and duration, a
 * thread keeps a stack of its open calls. It does so only while a recorder has such a limit.
 *
 * Callers hold the runtime's lock, both to ask and to change the gate. */
#ifndef EP_GATE_H
#define EP_GATE_H

#include "engine.h"
#include "filter.h"
#include "log.h"
#include "names.h"
#include "types.h"

/* The number of filters in a verdict; with more recorders nothing is left out. */
#define EP_GATE_FILTERS 8

/* 31..16 generation, 15..8 filters that include the name, 7..0 filters that exclude it. */
typedef uint32_t ep_verdict;

#define EP_VERDICT_GENERATION(verdict) ((verdict) >> 16)

#define EP_GATE_PAGE_BITS 16
#define EP_GATE_PAGE_NAMES (1u << EP_GATE_PAGE_BITS)
#define EP_GATE_PAGES ((EP_PAYLOAD_MAX >> EP_GATE_PAGE_BITS) + 1)

typedef struct ep_gate_page {
    _Atomic uint32_t verdict[EP_GATE_PAGE_NAMES];
    /* The last generation in which calls of the name were left out; 0: none. */
    _Atomic uint32_t left_out_in[EP_GATE_PAGE_NAMES];
} ep_gate_page;

/* Written by ep_gate_prepare() and ep_gate_open() only. */
typedef struct ep_gate {
    _Atomic bool names;              /* hooks must ask for verdicts */
    _Atomic bool calls;              /* hooks must write calls by ep_gate_put_open() and
                                      * ep_gate_put_close() */
    _Atomic uint32_t generation;     /* of verdicts; from 1 */
    _Atomic uint8_t any_callee;      /* filters that may include a function without a file */
    _Atomic(ep_gate_page *) pages[EP_GATE_PAGES];
} ep_gate;

extern ep_gate ep_gate_state;

static inline bool
ep_gate_asks_names(void)
{
    return atomic_load_explicit(&ep_gate_state.names, memory_order_relaxed);
}

static inline bool
ep_gate_asks_calls(void)
{
    return atomic_load_explicit(&ep_gate_state.calls, memory_order_relaxed);
}

static inline bool
ep_gate_is_on(void)
{
    return ep_gate_asks_names() || ep_gate_asks_calls();
}

static inline uint32_t
ep_gate_generation(void)
{
    return atomic_load_explicit(&ep_gate_state.generation, memory_order_relaxed);
}

/* HOT. False: there is no verdict yet; call ep_gate_decide(). */
static inline bool
ep_gate_find(uint32_t name_id, ep_verdict *out)
{
    ep_gate_page *page = atomic_load_explicit(&ep_gate_state.pages[name_id >> EP_GATE_PAGE_BITS],
                                              memory_order_acquire);
    if (EP_UNLIKELY(page == NULL)) {
        return false;
    }
    *out = atomic_load_explicit(&page->verdict[name_id & (EP_GATE_PAGE_NAMES - 1)],
                                memory_order_relaxed);
    return EP_VERDICT_GENERATION(*out) == (ep_gate_generation() & 0xFFFF);
}

/* Computes the verdict; the name must have its text. Without memory the verdict is not kept. */
EP_COLD ep_verdict ep_gate_decide(uint32_t name_id);

/* Whether any recorder wants calls of this Python function. */
static inline bool
ep_verdict_wants(ep_verdict verdict)
{
    return (verdict >> 8 & ~verdict & 0xFF) != 0;
}

/* Like ep_verdict_wants(), for a function that is not in Python; caller 0: unknown. */
static inline bool
ep_verdict_wants_from(ep_verdict callee, ep_verdict caller)
{
    return ep_verdict_wants(callee | caller);
}

/* Whether a call by `caller` of some function that is not in Python may be wanted. */
static inline bool
ep_verdict_wants_any_from(ep_verdict caller)
{
    uint8_t any = atomic_load_explicit(&ep_gate_state.any_callee, memory_order_relaxed);
    return ep_verdict_wants(caller | (uint32_t)any << 8);
}

/* Whether every filter excludes the name by itself. */
bool ep_verdict_excluded(ep_verdict verdict);

/* Remembers that calls of the name were left out, for ep_gate_count_left_out(). */
static inline void
ep_gate_note(uint32_t name_id)
{
    ep_gate_page *page = atomic_load_explicit(&ep_gate_state.pages[name_id >> EP_GATE_PAGE_BITS],
                                              memory_order_acquire);
    if (EP_LIKELY(page != NULL)) {
        atomic_store_explicit(&page->left_out_in[name_id & (EP_GATE_PAGE_NAMES - 1)],
                              ep_gate_generation(), memory_order_relaxed);
    }
}

/* Names whose calls were left out in this generation or a later one. */
size_t ep_gate_count_left_out(uint32_t generation);

/* ---- Calls that are open --------------------------------------------------------------------- */

/* The calling thread's innermost call of `site` that was described as open when the window began had not
 * begun: it begins now. */
void ep_gate_begin_again(ep_log *log, uint32_t site);

/* Use these instead of ep_log_put() while ep_gate_asks_calls(). */
void ep_gate_put_open(ep_log *log, uint64_t ticks, ep_kind kind, uint32_t site);
void ep_gate_put_close(ep_log *log, uint64_t ticks, ep_kind kind, uint32_t name);

/* Whether the thread's innermost call is left out because of its depth; events in it are then left out,
 * too. */
bool ep_gate_is_deep(ep_log *log);

/* ---- Changing it ----------------------------------------------------------------------------- */

/* Call it before the set of recorders of calls changes. `filters` are those of the new set (views, until
 * the next change). Limits are switched off: the begin and the end of a call must be treated alike.
 *
 * Calls that were left out because of their depth and are still open are written late, with a time just
 * before the change, by each thread at its next event. The recorder with the limit drops them again when
 * its trace is read, and a new recorder finds them open. */
void ep_gate_prepare(const ep_filter *const *filters, size_t count);

/* Call it after the change, with the same filters. `only`: the recorder, if it has been the only one since
 * its start; its open calls are described, and its depth is limited from here on. NULL: depth is not
 * limited, because the depth of a call differs between two windows. Short calls that begin from here on are
 * removed again. */
void ep_gate_open(ep_recorder *only, const ep_filter *const *filters, size_t count);

/* In a forked child, before the two above: its windows begin again, with all open calls described. */
void ep_gate_after_fork(void);

/* Call it before a capture is taken: the calls that are open now are not removed any more. */
void ep_gate_keep_open(void);

#endif
