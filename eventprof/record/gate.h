/* What hooks ask before they record: the union of the running recorders' filters. What no recorder
 * wants is left out here, and costs neither a record nor, where the interpreter can switch its code
 * off, a call of the hook. Each trace applies its own filter once more (filter.h), so leaving too
 * little out is never wrong.
 *
 * Names: a verdict for each, made when it is first asked for. Sets of recorders have generations; a
 * verdict of another generation is made anew.
 * Calls: depth and duration need to know which calls are open. A thread keeps a stack of them while
 * somebody asks for these limits, and only then.
 *
 * Sources hold the runtime's lock while they ask; so does whoever changes the gate. */
#ifndef EP_GATE_H
#define EP_GATE_H

#include "engine.h"
#include "filter.h"
#include "log.h"
#include "names.h"
#include "types.h"

/* Bits of a verdict; with more recorders nothing is left out. */
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
    _Atomic bool names;              /* ask verdicts */
    _Atomic bool calls;              /* put calls by ep_gate_put_open() and ep_gate_put_close() */
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

/* HOT. False: it is to be made, by ep_gate_decide(). */
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

/* Makes the verdict; the name's text must be there. Without memory it is not kept. */
EP_COLD ep_verdict ep_gate_decide(uint32_t name_id);

/* Whether calls of a Python function are wanted by anybody. */
static inline bool
ep_verdict_wants(ep_verdict verdict)
{
    return (verdict >> 8 & ~verdict & 0xFF) != 0;
}

/* Whether calls of a function that is not in Python are; caller 0: none is known. */
static inline bool
ep_verdict_wants_from(ep_verdict callee, ep_verdict caller)
{
    return ep_verdict_wants(callee | caller);
}

/* Whether `caller` may call such a function that is wanted. */
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

/* The calling thread's innermost call of `site` that was open when the window began begins now, after
 * all. */
void ep_gate_begin_again(ep_log *log, uint32_t site);

/* In place of ep_log_put() while ep_gate_asks_calls(). */
void ep_gate_put_open(ep_log *log, uint64_t ticks, ep_kind kind, uint32_t site);
void ep_gate_put_close(ep_log *log, uint64_t ticks, ep_kind kind, uint32_t name);

/* Whether the thread's innermost call is left out for its depth: what happens in it is, too. */
bool ep_gate_is_deep(ep_log *log);

/* ---- Changing it ----------------------------------------------------------------------------- */

/* Before the set of recorders of calls changes: `filters` are those of the new set (views, until the
 * next change), and limits are lifted: a change between a call and its end must not part them.
 *
 * Verdicts are of one set. Calls left out for depth and still open are recorded late, with a tick
 * before the change, by each thread at its next event: the recorder that asked for the limit drops
 * them itself, and a new one finds them open. */
void ep_gate_prepare(const ep_filter *const *filters, size_t count);

/* After it changed, with the same filters. `only`: the recorder, if it is the only one and was so
 * since its start, with its open calls described; its depth is limited from here on. NULL: nobody's
 * is; the levels of one thread are not the same for two windows. Short calls are taken back that
 * begin from here on. */
void ep_gate_open(ep_recorder *only, const ep_filter *const *filters, size_t count);

/* In the child, before the two above: its windows began anew, and all that is open was named. */
void ep_gate_after_fork(void);

/* A capture is about to be taken: what is open now stays. */
void ep_gate_keep_open(void);

#endif
