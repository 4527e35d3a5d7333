#include "gate.h"

#include <string.h>

#include "closing.h"
#include "invariants.h"
#include "memory.h"

ep_gate ep_gate_state = {.generation = 1};

/* Under the runtime's lock. */
static const ep_filter *filters[EP_GATE_FILTERS];
static size_t filter_count;
static struct {
    uint64_t generation;
    bool tracks;               /* some limit is on */
    uint32_t max_depth;        /* EP_DEPTH_UNLIMITED: any */
    uint64_t min_ticks;        /* 0: any */
    uint64_t from_ticks;       /* calls that began earlier are not removed */
    uint64_t late_ticks;       /* the time of begins that are written late; 0: none are */
    ep_recorder *only;
} limits = {.generation = 1, .max_depth = EP_DEPTH_UNLIMITED};

/* ---- Verdicts: whether calls of a name are wanted -------------------------------------------- */

static ep_gate_page *
page_of(uint32_t name_id)
{
    _Atomic(ep_gate_page *) *at = &ep_gate_state.pages[name_id >> EP_GATE_PAGE_BITS];
    ep_gate_page *page = atomic_load_explicit(at, memory_order_acquire);
    if (page != NULL) {
        return page;
    }
    ep_gate_page *made = ep_calloc(1, sizeof *made);
    /* Release; pairs with ep_gate_find(), which then sees a zeroed page. */
    if (made != NULL && !atomic_compare_exchange_strong_explicit(
                            at, &page, made, memory_order_acq_rel, memory_order_acquire)) {
        free(made);
        return page;
    }
    return made;
}

ep_verdict
ep_gate_decide(uint32_t name_id)
{
    ep_verdict verdict = (ep_gate_generation() & 0xFFFF) << 16;
    for (size_t i = 0; i < filter_count; i++) {
        verdict |= (uint32_t)ep_filter_includes(filters[i], name_id) << (8 + i);
        verdict |= (uint32_t)ep_filter_excludes(filters[i], name_id) << i;
    }
    ep_gate_page *page = page_of(name_id);
    if (page != NULL) {
        atomic_store_explicit(&page->verdict[name_id & (EP_GATE_PAGE_NAMES - 1)], verdict,
                              memory_order_relaxed);
    }
    return verdict;
}

bool
ep_verdict_excluded(ep_verdict verdict)
{
    uint32_t all = (1u << filter_count) - 1;
    return (verdict & all) == all;
}

size_t
ep_gate_count_left_out(uint32_t generation)
{
    size_t count = 0, name_count = ep_name_count();
    for (size_t id = 0; id < name_count; id++) {
        const ep_gate_page *page = atomic_load_explicit(
            &ep_gate_state.pages[id >> EP_GATE_PAGE_BITS], memory_order_acquire);
        count += page != NULL && atomic_load_explicit(
                                     &page->left_out_in[id & (EP_GATE_PAGE_NAMES - 1)],
                                     memory_order_relaxed) >= generation;
    }
    return count;
}

/* Verdicts hold 16 bits of the generation: when these wrap around, all old verdicts are removed. */
static void
next_generation(void)
{
    uint32_t generation = ep_gate_generation() + 1;
    if ((generation & 0xFFFF) == 0) {
        generation += 1;
        for (size_t i = 0; i < EP_GATE_PAGES; i++) {
            ep_gate_page *page =
                atomic_load_explicit(&ep_gate_state.pages[i], memory_order_acquire);
            if (page != NULL) {
                memset(page->verdict, 0, sizeof page->verdict);
            }
        }
    }
    atomic_store_explicit(&ep_gate_state.generation, generation, memory_order_relaxed);
}

/* ---- Calls that are open --------------------------------------------------------------------- */

/* Writes the begins of open calls that were left out, with a time just before the change. */
static void
put_late(ep_log *log, ep_gate_stack *stack, uint64_t ticks)
{
    for (size_t i = 0; i < stack->depth; i++) {
        if (stack->calls[i].at == NULL && ticks != 0) {
            ep_log_put(log, ticks, stack->calls[i].kind, stack->calls[i].site);
        }
    }
    stack->depth = stack->before = 0;
}

static EP_COLD bool
push(ep_gate_stack *stack, ep_gate_call call)
{
    if (!ep_grow((void **)&stack->calls, &stack->capacity, stack->depth + 1, sizeof call)) {
        return false;
    }
    stack->calls[stack->depth++] = call;
    return true;
}

#ifdef EP_CHECKS
/* Checks only the innermost call: a stack may be deep, and this runs at each call. */
static void
check_stack(const ep_gate_stack *stack)
{
    EP_INVARIANT(stack->depth <= stack->capacity, "%zu open calls, room for %zu", stack->depth,
                 stack->capacity);
    EP_INVARIANT(stack->before <= stack->depth, "%zu of %zu open calls were open before", stack->before,
                 stack->depth);
    if (stack->depth > 0) {
        const ep_gate_call *call = &stack->calls[stack->depth - 1];
        EP_INVARIANT(ep_kinds_has(ep_kinds_that_open_calls, call->kind), "an open call of kind %u",
                     call->kind);
        EP_INVARIANT(call->site < ep_site_count(), "an open call of site %u", (unsigned)call->site);
        EP_INVARIANT(stack->depth <= stack->before || stack->depth - 1 == stack->before ||
                         call->ticks >= call[-1].ticks,
                     "open call %zu began before the one around it", stack->depth);
    }
}
#endif

static EP_COLD void
begin_anew(ep_log *log, ep_gate_stack *stack)
{
    put_late(log, stack, limits.late_ticks);
    stack->generation = limits.generation;
    stack->records_all = false;
    ep_open_stack open = {0};
    if (limits.only != NULL &&
        ep_recorder_get_open(limits.only, log->thread->id, &open) != EP_OK) {
        stack->records_all = true;
    }
    for (size_t i = 0; i < open.depth && !stack->records_all; i++) {
        /* Any address that is not a record's: the call counts as recorded. */
        stack->records_all = !push(stack, (ep_gate_call){.at = log->scratch,
                                                         .site = open.calls[i].site_id,
                                                         .kind = open.calls[i].kind});
    }
    stack->before = stack->depth;
    free(open.calls);
    EP_CHECK_INVARIANTS(check_stack(stack));
}

void
ep_gate_begin_again(ep_log *log, uint32_t site)
{
    ep_gate_stack *stack = &log->gate;
    if (stack->generation != limits.generation) {
        return;    /* its open calls were described by the recorder's start */
    }
    for (size_t i = stack->before; i-- > 0;) {
        if (stack->calls[i].site == site) {
            stack->depth -= 1;
            stack->before -= 1;
            memmove(&stack->calls[i], &stack->calls[i + 1],
                    (stack->depth - i) * sizeof *stack->calls);
            return;
        }
    }
}

/* Returns: NULL if the thread's calls are not tracked. */
static inline ep_gate_stack *
stack_of(ep_log *log)
{
    ep_gate_stack *stack = &log->gate;
    if (EP_UNLIKELY(stack->generation != limits.generation)) {
        begin_anew(log, stack);
    }
    return limits.tracks && !stack->records_all ? stack : NULL;
}

static inline void
count(ep_gate_stack *stack, ep_left_out what)
{
    /* One writer: no read-modify-write is needed. */
    uint64_t now = atomic_load_explicit(&stack->left_out[what], memory_order_relaxed);
    atomic_store_explicit(&stack->left_out[what], now + 1, memory_order_relaxed);
}

void
ep_gate_put_open(ep_log *log, uint64_t ticks, ep_kind kind, uint32_t site)
{
    ep_gate_stack *stack = stack_of(log);
    if (stack == NULL) {
        ep_log_put(log, ticks, kind, site);
        return;
    }
    bool deep = stack->depth - stack->before > limits.max_depth;
    ep_gate_call call = {.ticks = ticks, .site = site, .kind = (uint8_t)kind};
    if (EP_UNLIKELY(stack->depth == stack->capacity)) {
        if (!push(stack, call)) {
            /* Writes all open calls that were left out: from here on the thread's calls are all
             * recorded. */
            put_late(log, stack, ticks);
            stack->records_all = true;
            ep_log_put(log, ticks, kind, site);
            return;
        }
        stack->depth -= 1;
    }
    if (deep) {
        count(stack, EP_LEFT_OUT_DEEP);
    } else {
        ep_log_put(log, ticks, kind, site);
        call.at = log->next - 1;
    }
    stack->calls[stack->depth++] = call;
    EP_CHECK_INVARIANTS(check_stack(stack));
}

bool
ep_gate_is_deep(ep_log *log)
{
    const ep_gate_stack *stack = stack_of(log);
    return stack != NULL && stack->depth > 0 && stack->calls[stack->depth - 1].at == NULL;
}

/* Whether the log ends with this call's record. */
static inline bool
is_last_record(const ep_log *log, const ep_gate_call *call)
{
    return call->at == log->next - 1 &&
           atomic_load_explicit(call->at, memory_order_relaxed) ==
               EP_WORD0(call->ticks, call->kind, call->site);
}

void
ep_gate_put_close(ep_log *log, uint64_t ticks, ep_kind kind, uint32_t name)
{
    ep_gate_stack *stack = stack_of(log);
    size_t at = stack != NULL ? EP_CLOSED_CALL(stack->calls, site, stack->depth, name) : 0;
    if (at == 0) {
        ep_log_put(log, ticks, kind, name);
        return;
    }
    const ep_gate_call *call = &stack->calls[at - 1];
    stack->depth = at - 1;
    if (stack->before > stack->depth) {
        stack->before = stack->depth;
    }
    EP_CHECK_INVARIANTS(check_stack(stack));
    if (call->at == NULL) {
        return;
    }
    if (ticks - call->ticks < limits.min_ticks && call->ticks >= limits.from_ticks &&
        is_last_record(log, call)) {
        ep_log_take_back_call(log);
        count(stack, EP_LEFT_OUT_SHORT);
        return;
    }
    ep_log_put(log, ticks, kind, name);
}

/* ---- Changing it ----------------------------------------------------------------------------- */

static bool
has_limits(const ep_filter *filter)
{
    return filter->limits_depth || filter->min_duration_ns > 0;
}

void
ep_gate_prepare(const ep_filter *const *new_filters, size_t new_count)
{
    bool names = new_count > 0 && new_count <= EP_GATE_FILTERS, calls = false;
    uint8_t any_callee = 0;
    for (size_t i = 0; i < new_count; i++) {
        names = names && ep_filter_names_any(new_filters[i]);
        calls = calls || has_limits(new_filters[i]);
    }
    filter_count = names ? new_count : 0;
    for (size_t i = 0; i < filter_count; i++) {
        filters[i] = new_filters[i];
        any_callee |= (uint8_t)(ep_filter_includes_without_file(filters[i]) << i);
    }
    next_generation();
    atomic_store_explicit(&ep_gate_state.any_callee, any_callee, memory_order_relaxed);
    atomic_store_explicit(&ep_gate_state.names, names, memory_order_relaxed);
    atomic_store_explicit(&ep_gate_state.calls, calls, memory_order_relaxed);
    if (!calls) {
        limits.late_ticks = 0;    /* the recorder of these calls has stopped, and the clock may change */
    } else if (limits.max_depth != EP_DEPTH_UNLIMITED) {
        limits.late_ticks = ep_clock_ticks();
    }
    limits.tracks = false;
    limits.max_depth = EP_DEPTH_UNLIMITED;
    limits.min_ticks = 0;
    limits.only = NULL;
    limits.generation += 1;
}

/* A number of ticks that is less than `ns` even if the clock map's slope changes a little. 0: unknown. */
static uint64_t
ticks_below(int64_t ns)
{
    ep_anchor birth = ep_engine_birth(), now = ep_clock_anchor();
    int64_t since = now.monotonic_ns - birth.monotonic_ns;
    if (since < 1000000) {
        return 0;
    }
    double ticks = 0.95 * (double)ns * (double)(now.ticks - birth.ticks) / (double)since;
    /* More than half of the counter's low word gains nothing: so long calls have other calls inside. */
    return ticks < 2e9 ? (uint64_t)ticks : 2000000000;
}

void
ep_gate_open(ep_recorder *only, const ep_filter *const *now, size_t now_count)
{
    int64_t min_ns = now_count > 0 ? INT64_MAX : 0;
    for (size_t i = 0; i < now_count; i++) {
        min_ns = now[i]->min_duration_ns < min_ns ? now[i]->min_duration_ns : min_ns;
    }
    limits.only = only;
    limits.max_depth = EP_DEPTH_UNLIMITED;
    if (only != NULL && now_count == 1 && now[0]->limits_depth) {
        limits.max_depth = now[0]->max_depth;
    }
    limits.min_ticks = min_ns > 0 ? ticks_below(min_ns) : 0;
    limits.tracks = limits.max_depth != EP_DEPTH_UNLIMITED || limits.min_ticks > 0;
    limits.generation += 1;
    limits.from_ticks = ep_clock_ticks();
}

void
ep_gate_after_fork(void)
{
    limits.late_ticks = 0;
    limits.max_depth = EP_DEPTH_UNLIMITED;
}

void
ep_gate_keep_open(void)
{
    limits.from_ticks = ep_clock_ticks();
}
