/* Lanes: the stacks of calls that one thread switches. */
#include "lanes.h"

#include <stdio.h>
#include <string.h>

#include "engine_parts.h"
#include "hash_index.h"
#include "memory.h"
#include "os.h"

/* What a stack has of the log's EP_TODO_* bits, besides those that follow from its thread entry. */
#define TODO_OF_STACK EP_TODO_MUTED

struct ep_lanes {
    ep_thread *carrier;         /* the entry of the thread itself */
    ep_lane *current;
    ep_lane **all;
    size_t count, capacity;
    ep_lane *first_free;
    /* By stack: linear probing, at most half full. Stacks are removed, which ep_hash_index cannot. */
    ep_lane **slots;
    size_t mask, used;
};

/* ---- By stack -------------------------------------------------------------------------------- */

static size_t
home_of(const ep_lanes *lanes, const void *stack)
{
    uint64_t key = (uintptr_t)stack;
    return ep_hash_words((uint32_t)(key >> 32), (uint32_t)key) & lanes->mask;
}

static ep_lane **
slot_of(const ep_lanes *lanes, const void *stack)
{
    size_t at = home_of(lanes, stack);
    while (lanes->slots[at] != NULL && lanes->slots[at]->stack != stack) {
        at = (at + 1) & lanes->mask;
    }
    return &lanes->slots[at];
}

static bool
reserve_slot(ep_lanes *lanes)
{
    size_t slots = lanes->slots != NULL ? lanes->mask + 1 : 0;
    if ((lanes->used + 1) * 2 <= slots) {
        return true;
    }
    size_t more = slots != 0 ? 2 * slots : 8;
    ep_lane **old = lanes->slots, **grown = ep_calloc(more, sizeof(ep_lane *));
    if (grown == NULL) {
        return false;
    }
    lanes->slots = grown;
    lanes->mask = more - 1;
    for (size_t i = 0; i < slots; i++) {
        if (old[i] != NULL) {
            *slot_of(lanes, old[i]->stack) = old[i];
        }
    }
    free(old);
    return true;
}

/* There is room: reserve_slot(). */
static void
give_lane(ep_lanes *lanes, ep_lane *lane, const void *stack)
{
    lane->stack = stack;
    *slot_of(lanes, stack) = lane;
    lanes->used += 1;
}

/* Entries that follow, and whose probing passed the removed one, move up. */
static void
remove_slot(ep_lanes *lanes, ep_lane **slot)
{
    size_t hole = (size_t)(slot - lanes->slots);
    lanes->slots[hole] = NULL;
    lanes->used -= 1;
    for (size_t at = (hole + 1) & lanes->mask; lanes->slots[at] != NULL; at = (at + 1) & lanes->mask) {
        size_t home = home_of(lanes, lanes->slots[at]->stack);
        if (((at - home) & lanes->mask) >= ((at - hole) & lanes->mask)) {
            lanes->slots[hole] = lanes->slots[at];
            lanes->slots[at] = NULL;
            hole = at;
        }
    }
}

/* ---- Lanes ----------------------------------------------------------------------------------- */

static ep_lane *
new_lane(ep_lanes *lanes, ep_thread *thread)
{
    ep_lane *lane = NULL;
    if (ep_grow((void **)&lanes->all, &lanes->capacity, lanes->count + 1, sizeof(ep_lane *)) &&
        (lane = ep_calloc(1, sizeof *lane)) != NULL) {
        lane->thread = thread;
        lanes->all[lanes->count++] = lane;
        ep_os_own_add(sizeof *lane);
    }
    return lane;
}

static void
make_free(ep_lanes *lanes, ep_lane *lane)
{
    lane->stack = NULL;
    lane->left_ns = 0;
    lane->next_free = lanes->first_free;
    lanes->first_free = lane;
}

/* A stack begins: what it has of the log is nothing. */
static void
make_empty(ep_lane *lane)
{
    lane->gate.depth = lane->gate.before = 0;
    lane->gate.generation = 0;
    lane->busy = lane->own_calls = lane->todo = 0;
    lane->label_set = 0;
    lane->own_is_recorded = false;
    lane->left_ns = 0;
}

bool
ep_lanes_begin(ep_log *log, const void *stack, bool own)
{
    ep_lanes *lanes = log->lanes;
    if (lanes == NULL) {
        lanes = ep_calloc(1, sizeof *lanes);
        ep_lane *lane = lanes != NULL ? new_lane(lanes, log->thread) : NULL;
        if (lane == NULL || !reserve_slot(lanes)) {
            free(lane);
            free(lanes != NULL ? lanes->all : NULL);
            free(lanes);
            return false;
        }
        lanes->carrier = log->thread;
        lanes->current = lane;
        log->lanes = lanes;
    }
    ep_lane *running = own ? lanes->all[0] : lanes->current;
    if (running != lanes->current) {
        ep_lanes_switch(log, running, ep_clock_ticks());
    }
    if (lanes->used != 0) {
        memset(lanes->slots, 0, (lanes->mask + 1) * sizeof *lanes->slots);
    }
    lanes->used = 0;
    lanes->first_free = NULL;
    for (size_t i = lanes->count; i-- > 1;) {
        if (lanes->all[i] != running) {
            make_free(lanes, lanes->all[i]);
        }
    }
    /* The lane of the thread itself is for no other stack: its name is the thread's. */
    lanes->all[0]->stack = NULL;
    give_lane(lanes, running, stack);
    return true;
}

ep_lane *
ep_lanes_current(const ep_log *log)
{
    return log->lanes->current;
}

ep_lane *
ep_lanes_find(const ep_log *log, const void *stack)
{
    return *slot_of(log->lanes, stack);
}

/* Ticks at which the oldest running recorder began. */
static uint64_t
oldest_window(void)
{
    uint64_t oldest = UINT64_MAX;
    ep_engine_lock();
    for (const ep_recorder *r = ep_engine.recorders; r != NULL; r = r->next) {
        if (r->state == EP_RECORDER_RUNNING && r->start.ticks < oldest) {
            oldest = r->start.ticks;
        }
    }
    ep_engine_unlock();
    return oldest;
}

static ep_lane *
new_named_lane(ep_lanes *lanes)
{
    ep_lane *lane = NULL;
    ep_engine_lock();
    ep_thread *thread = ep_thread_new_lane(lanes->carrier, (uint32_t)lanes->count);
    ep_engine_unlock();
    if (thread != NULL) {
        lane = new_lane(lanes, thread);
    }
    return lane;
}

ep_lane *
ep_lanes_add(ep_log *log, const void *stack, bool own, bool has_calls)
{
    ep_lanes *lanes = log->lanes;
    if (!reserve_slot(lanes)) {
        return NULL;
    }
    own = own && lanes->all[0]->stack == NULL;
    ep_lane *lane = own ? lanes->all[0] : lanes->first_free;
    if (lane != NULL && has_calls && lane->left_ticks >= oldest_window()) {
        own = false;
        lane = NULL;
    }
    if (lane == NULL) {
        lane = new_named_lane(lanes);
    } else if (!own) {
        lanes->first_free = lane->next_free;
    }
    if (lane != NULL) {
        make_empty(lane);
        lane->left_ticks = 0;
        give_lane(lanes, lane, stack);
    }
    return lane;
}

void
ep_lanes_end(ep_log *log, ep_lane *lane)
{
    ep_lanes *lanes = log->lanes;
    remove_slot(lanes, slot_of(lanes, lane->stack));
    if (lane != lanes->all[0]) {
        make_free(lanes, lane);
    } else {
        lane->stack = NULL;
    }
}

static void
move_gate(ep_gate_stack *to, const ep_gate_stack *from)
{
    to->calls = from->calls;
    to->depth = from->depth;
    to->capacity = from->capacity;
    to->before = from->before;
    to->generation = from->generation;
    to->records_all = from->records_all;
}

void
ep_lanes_switch(ep_log *log, ep_lane *to, uint64_t ticks)
{
    ep_lane *from = log->lanes->current;
    from->left_ticks = ticks;
    move_gate(&from->gate, &log->gate);
    from->busy = log->busy;
    from->own_calls = log->own_calls;
    from->own_is_recorded = log->own_is_recorded;
    from->label_set = log->label_set;
    from->todo = log->todo & TODO_OF_STACK;

    ep_thread *thread = to->thread;
    atomic_store_explicit(&log->thread, thread, memory_order_relaxed);
    if (log->chunk != NULL) {
        /* Before the record: a reader that sees the record sees this. */
        atomic_store_explicit(&log->chunk->header->shared, 1, memory_order_relaxed);
    }
    ep_log_put_value_at(log, ep_ticks_halves(ticks), EP_KIND_THREAD, 0, thread->id);

    move_gate(&log->gate, &to->gate);
    log->busy = to->busy;
    log->own_calls = to->own_calls;
    log->own_is_recorded = to->own_is_recorded;
    log->label_set = to->label_set;
    log->label_version = UINT64_MAX;    /* contexts are switched with stacks: compare the sets */
    log->todo &= ~(TODO_OF_STACK | EP_TODO_UNSETTLED | EP_TODO_THROWN);
    log->todo |= to->todo | (thread->unsettled_count != 0 ? EP_TODO_UNSETTLED : 0) |
                 (thread->thrown_count != 0 || thread->thrown_dropped != 0 ? EP_TODO_THROWN : 0);
    log->lanes->current = to;
}

/* ---- Windows --------------------------------------------------------------------------------- */

static EP_ENGINE_LOCKED bool
is_new_to(const ep_lane *lane, const ep_recorder *r)
{
    return r->state == EP_RECORDER_RUNNING && r->start.ticks > lane->left_ticks &&
           (r->options.kinds & ep_kinds_python) != 0;
}

bool
ep_lanes_is_new_to_window(const ep_lane *lane)
{
    bool is_new = false;
    ep_engine_lock();
    for (const ep_recorder *r = ep_engine.recorders; r != NULL && !is_new; r = r->next) {
        is_new = is_new_to(lane, r);
    }
    ep_engine_unlock();
    return is_new;
}

ep_status
ep_lanes_set_open(const ep_lane *lane, const ep_open_call *calls, size_t depth)
{
    ep_status status = EP_OK;
    ep_engine_lock();
    for (ep_recorder *r = ep_engine.recorders; r != NULL && status == EP_OK; r = r->next) {
        if (is_new_to(lane, r)) {
            status = ep_recorder_set_open_locked(r, lane->thread->id, calls, depth);
        }
    }
    ep_engine_unlock();
    return status;
}

/* ---- The log --------------------------------------------------------------------------------- */

ep_thread *
ep_lanes_carrier(const ep_log *log)
{
    return log->lanes != NULL ? log->lanes->carrier : log->thread;
}

void
ep_lanes_free(ep_log *log)
{
    ep_lanes *lanes = log->lanes;
    for (size_t i = 0; lanes != NULL && i < lanes->count; i++) {
        ep_lane *lane = lanes->all[i];
        if (lane != lanes->current) {    /* whose gate is the log's */
            free(lane->gate.calls);
        }
        free(lane);
        ep_os_own_add(-(int64_t)sizeof *lane);
    }
    if (lanes != NULL) {
        free(lanes->all);
        free(lanes->slots);
        free(lanes);
    }
    log->lanes = NULL;
}

void
ep_lanes_set_exited(ep_log *log, bool exited)
{
    atomic_store_explicit(&log->thread->exited, exited, memory_order_relaxed);
    for (size_t i = 0; log->lanes != NULL && i < log->lanes->count; i++) {
        atomic_store_explicit(&log->lanes->all[i]->thread->exited, exited, memory_order_relaxed);
    }
}

void
ep_lanes_set_native_id(ep_log *log, uint64_t native_id)
{
    log->thread->native_id = native_id;
    for (size_t i = 0; log->lanes != NULL && i < log->lanes->count; i++) {
        log->lanes->all[i]->thread->native_id = native_id;
    }
}
