/* Replays a trace: order, ids, calls, blocks and counts. */
#include "verify.h"

#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "memory.h"

const ep_trace_fault_info ep_trace_faults[EP_TRACE_FAULT_COUNT] = {
#define EP_TRACE_FAULT(NAME, sort_word, means) [EP_TRACE_FAULT_##NAME] = {sort_word, means},
#include "trace_faults.def"
#undef EP_TRACE_FAULT
};

/* ---- Faults ---------------------------------------------------------------------------------- */

static void
add_fault(ep_verification *verification, const ep_trace_fault *fault)
{
    verification->counts[fault->sort]++;
    /* Faults nearly always come in order of rows; one that a later event confirms is moved forward. */
    size_t at = verification->count;
    if (at == verification->limit) {
        if (verification->faults[at - 1].row <= fault->row) {
            return;
        }
        at--;
    } else {
        verification->count++;
    }
    for (; at > 0 && verification->faults[at - 1].row > fault->row; at--) {
        verification->faults[at] = verification->faults[at - 1];
    }
    verification->faults[at] = *fault;
}

void
ep_verification_clear(ep_verification *verification)
{
    free(verification->faults);
    *verification = (ep_verification){0};
}

static void
report(ep_verification *to, bool excused, const ep_trace_fault *fault)
{
    if (excused) {
        to->excused[fault->sort]++;
    } else {
        add_fault(to, fault);
    }
}

static ep_trace_fault
fault_at(const ep_verify_input *input, ep_trace_fault_sort sort, size_t row)
{
    return (ep_trace_fault){
        .sort = sort,
        .row = row,
        .thread = input->columns->thread[row],
        .time_ns = input->columns->time_ns[row],
        .other_row = EP_TRACE_FAULT_NO_ROW,
    };
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

/* Replays mallocs and frees.
 *
 * Two events of different threads may be in the wrong order, by up to EP_PAIR_SKEW_NS. So an event that
 * looks wrong is judged at the next event of the same address: only that shows whether the two were
 * swapped. */

/* With more addresses, those of freed blocks are forgotten. */
#define REMEMBERED_SLOTS ((size_t)1 << 23)
#define FIRST_SHIFT (64 - 12)

#define BLOCK_BYTES_MAX (INT64_C(1) << 48)

typedef enum address_state {
    STATE_NONE,            /* an empty slot */
    STATE_UNKNOWN,         /* a realloc of an older block failed: it may live */
    STATE_LIVE,
    STATE_MAYBE_LIVE,      /* live or freed: two threads' events may be swapped, or one is missing */
    STATE_LIVE_SUSPECT,    /* another block lived there */
    STATE_FREED,
    STATE_FREED_OLDER,     /* it was not seen before */
    STATE_FREED_SUSPECT    /* it was freed already */
} address_state;

typedef struct address_slot {
    uint64_t address;
    uint32_t row;      /* of its last event */
    uint32_t other;    /* the event before that: the birth of the freed block, or of the block that lived
                        * there */
    uint32_t state;    /* address_state; 0: an empty slot */
} address_slot;

/* A thread's last realloc_free whose realloc is still to come. */
typedef struct moving_block {
    uint32_t row;      /* EP_ROW_NONE: none */
    bool seen;         /* the thread had allocator events */
    uint64_t address;
} moving_block;

typedef struct block_verifier {
    const ep_verify_input *input;
    ep_verification *to;
    ep_kind_set kinds;         /* kinds of domains that were recorded completely */
    int64_t lost_until_ns;     /* an event up to here may be lost; -1: none was */
    address_slot *slots;
    size_t capacity, used, live;
    unsigned shift;            /* 64 - log2(capacity) */
    moving_block *moving;         /* by thread */
} block_verifier;

static bool
lives(const address_slot *slot)
{
    return slot->state >= STATE_UNKNOWN && slot->state <= STATE_LIVE_SUSPECT;
}

static bool
is_suspect(const address_slot *slot)
{
    return slot->state == STATE_LIVE_SUSPECT || slot->state == STATE_FREED_SUSPECT;
}

/* ---- The table: open addressing, linear probing; see pair_blocks.c --------------------------- */

static address_slot *
find(const block_verifier *blocks, uint64_t address)
{
    size_t at = (size_t)((address ^ address >> 12) * UINT64_C(0x9e3779b97f4a7c15) >> blocks->shift);
    while (blocks->slots[at].state != STATE_NONE && blocks->slots[at].address != address) {
        at = (at + 1) & (blocks->capacity - 1);
    }
    return &blocks->slots[at];
}

static EP_CHECKED ep_status
open_table(block_verifier *blocks, unsigned shift)
{
    size_t capacity = (size_t)1 << (64 - shift);
    address_slot *slots = ep_array_new_zeroed(capacity, sizeof *slots);
    if (slots == NULL) {
        return EP_NOMEM;
    }
    blocks->slots = slots;
    blocks->capacity = capacity;
    blocks->shift = shift;
    return EP_OK;
}

static EP_COLD EP_CHECKED ep_status
rebuild(block_verifier *blocks)
{
    address_slot *old = blocks->slots;
    size_t old_capacity = blocks->capacity, live = 0;
    for (size_t i = 0; i < old_capacity; i++) {
        live += lives(&old[i]) || is_suspect(&old[i]);
    }
    bool keep_all = old_capacity < REMEMBERED_SLOTS;
    bool larger = keep_all || live > old_capacity / 8 * 3;
    if (open_table(blocks, larger ? blocks->shift - 1 : blocks->shift) != EP_OK) {
        return EP_NOMEM;
    }
    blocks->used = 0;
    for (size_t i = 0; i < old_capacity; i++) {
        if (old[i].state != STATE_NONE && (keep_all || lives(&old[i]) || is_suspect(&old[i]))) {
            *find(blocks, old[i].address) = old[i];
            blocks->used++;
        }
    }
    free(old);
    return EP_OK;
}

/* ---- Suspicions ------------------------------------------------------------------------------ */

static int64_t
time_of(const block_verifier *blocks, uint32_t row)
{
    return blocks->input->columns->time_ns[row];
}

/* Whether two rows may be in the wrong order. */
static bool
may_be_swapped(const block_verifier *blocks, uint32_t earlier, uint32_t later)
{
    const ep_columns *c = blocks->input->columns;
    return c->thread[earlier] != c->thread[later] &&
           c->time_ns[later] - c->time_ns[earlier] <= EP_PAIR_SKEW_NS;
}

static bool
excuses_all(const block_verifier *blocks)
{
    const ep_verify_input *input = blocks->input;
    return input->damaged || input->one_thread || input->memory_displaced;
}

/* Whether an event between the two rows of a suspect may be missing. */
static bool
may_be_lost(const block_verifier *blocks, const address_slot *slot)
{
    return excuses_all(blocks) || time_of(blocks, slot->other) <= blocks->lost_until_ns;
}

/* Reports a block that was made where another lived, or freed twice. */
static EP_COLD void
report_suspect(block_verifier *blocks, const address_slot *slot, bool excused)
{
    ep_trace_fault_sort sort = slot->state == STATE_LIVE_SUSPECT ? EP_TRACE_FAULT_ADDRESS_LIVES
                                                                 : EP_TRACE_FAULT_FREED_TWICE;
    ep_trace_fault fault = fault_at(blocks->input, sort, slot->row);
    fault.address = slot->address;
    fault.other_row = slot->other;
    excused = excused || may_be_lost(blocks, slot) ||
              (sort == EP_TRACE_FAULT_FREED_TWICE && blocks->input->hook_frees);
    report(blocks->to, excused, &fault);
}

/* ---- Events ---------------------------------------------------------------------------------- */

static void
give_birth(block_verifier *blocks, address_slot *slot, uint32_t row)
{
    if (slot->state == STATE_FREED_SUSPECT && may_be_swapped(blocks, slot->row, row)) {
        /* The earlier free was the free of this block. */
        slot->state = may_be_lost(blocks, slot) ? STATE_MAYBE_LIVE : STATE_FREED;
        return;
    }
    if (is_suspect(slot)) {
        report_suspect(blocks, slot, false);
    }
    if (slot->state == STATE_LIVE || slot->state == STATE_LIVE_SUSPECT) {
        slot->other = slot->row;
        slot->state = STATE_LIVE_SUSPECT;
    } else {
        bool doubt = slot->state == STATE_FREED_OLDER && may_be_swapped(blocks, slot->row, row);
        slot->state = doubt ? STATE_MAYBE_LIVE : STATE_LIVE;
    }
    slot->row = row;
}

static void
give_death(block_verifier *blocks, address_slot *slot, uint32_t row)
{
    if (slot->state == STATE_LIVE_SUSPECT && may_be_swapped(blocks, slot->row, row)) {
        /* It was the free of the earlier block. */
        slot->state = may_be_lost(blocks, slot) ? STATE_MAYBE_LIVE : STATE_LIVE;
        return;
    }
    if (is_suspect(slot)) {
        report_suspect(blocks, slot, false);
    }
    slot->other = slot->row;
    if (slot->state == STATE_FREED_SUSPECT || slot->state == STATE_FREED ||
        slot->state == STATE_FREED_OLDER) {
        slot->state = STATE_FREED_SUSPECT;
    } else {
        slot->state = slot->state == STATE_NONE ? STATE_FREED_OLDER : STATE_FREED;
    }
    slot->row = row;
}

/* A realloc failed: its realloc_free did not happen. */
static void
revive(block_verifier *blocks, uint64_t address, uint32_t freed_row)
{
    address_slot *slot = find(blocks, address);
    if (slot->row != freed_row || slot->state == STATE_NONE || lives(slot)) {
        return;
    }
    bool known = slot->state == STATE_FREED;
    if (slot->state == STATE_FREED_SUSPECT) {
        report_suspect(blocks, slot, false);
    }
    slot->row = known ? slot->other : freed_row;
    slot->state = known ? STATE_LIVE : STATE_UNKNOWN;
}

static void
report_alone(block_verifier *blocks, uint32_t row, uint32_t other, bool excused)
{
    ep_trace_fault fault = fault_at(blocks->input, EP_TRACE_FAULT_REALLOC_ALONE, row);
    fault.other_row = other == EP_ROW_NONE ? EP_TRACE_FAULT_NO_ROW : other;
    report(blocks->to, excused || excuses_all(blocks), &fault);
}

/* Between the two halves of a realloc its thread has no other allocator event. */
static void
follow_realloc(block_verifier *blocks, size_t event, uint32_t row)
{
    const ep_columns *c = blocks->input->columns;
    unsigned kind = c->kind[row];
    moving_block *moving = &blocks->moving[c->thread[row]];
    bool second = ep_kind_is(kind, EP_KIND_REALLOC) || ep_kind_is(kind, EP_KIND_REALLOC_FAILED);
    bool fits = moving->row != EP_ROW_NONE && second &&
                ep_kinds[c->kind[moving->row]].domain == ep_kinds[kind].domain;
    if (moving->row != EP_ROW_NONE && !fits) {
        report_alone(blocks, row, moving->row, false);
    } else if (second && !fits) {
        /* The window, or what a ring kept, may begin between the halves. */
        report_alone(blocks, row, EP_ROW_NONE, !moving->seen);
    } else if (ep_kind_is(kind, EP_KIND_REALLOC_FAILED)) {
        revive(blocks, moving->address, moving->row);
    }
    moving->row = ep_kind_is(kind, EP_KIND_REALLOC_FREE) ? row : EP_ROW_NONE;
    moving->address = c->address[event];
    moving->seen = true;
}

static void
check_block(block_verifier *blocks, size_t event, uint32_t row)
{
    const ep_columns *c = blocks->input->columns;
    const ep_kind_info *info = &ep_kinds[c->kind[row]];
    int64_t size = c->size[event];
    bool opens = info->pairing == EP_PAIRING_OPENS;
    /* A request that failed may have been of any size; a free's size is that of its block, or -1. */
    if ((opens && (size < 0 || size > BLOCK_BYTES_MAX)) || size < -1) {
        ep_trace_fault fault = fault_at(blocks->input, EP_TRACE_FAULT_BLOCK_SIZE, row);
        fault.expected = BLOCK_BYTES_MAX;
        fault.found = size;
        fault.address = c->address[event];
        report(blocks->to, false, &fault);
    }
    if (c->address[event] == 0) {
        ep_trace_fault fault = fault_at(blocks->input, EP_TRACE_FAULT_BLOCK_ADDRESS, row);
        report(blocks->to, false, &fault);
    }
}

/* HOT, one look into the table an event. */
static EP_CHECKED ep_status
next_block(block_verifier *blocks, size_t event)
{
    const ep_columns *c = blocks->input->columns;
    uint32_t row = (uint32_t)c->alloc_row[event];
    const ep_kind_info *info = &ep_kinds[c->kind[row]];
    if (info->form == EP_FORM_VALUE) {
        return EP_OK;
    }
    check_block(blocks, event, row);
    if (!ep_kinds_has(blocks->kinds, c->kind[row])) {
        return EP_OK;
    }
    follow_realloc(blocks, event, row);
    if (info->pairing == EP_PAIRING_NEITHER) {
        return EP_OK;
    }
    address_slot *slot = find(blocks, c->address[event]);
    if (slot->state == STATE_NONE && EP_UNLIKELY(blocks->used >= blocks->capacity / 8 * 5)) {
        if (rebuild(blocks) != EP_OK) {
            return EP_NOMEM;
        }
        slot = find(blocks, c->address[event]);
    }
    blocks->used += slot->state == STATE_NONE;
    slot->address = c->address[event];
    if (info->pairing == EP_PAIRING_OPENS) {
        give_birth(blocks, slot, row);
    } else {
        give_death(blocks, slot, row);
    }
    return EP_OK;
}

/* ---- The whole ------------------------------------------------------------------------------- */

/* Kinds of the domains whose kinds were all asked for: in others a free or malloc may be missing. */
static ep_kind_set
whole_domains(ep_kind_set kinds)
{
    ep_kind_set whole = 0;
    for (unsigned domain = 0; domain < EP_DOMAIN_COUNT; domain++) {
        ep_kind_set of_domain = ep_kinds_of_domains(UINT64_C(1) << domain);
        whole |= (kinds & of_domain) == of_domain ? of_domain : 0;
    }
    return whole;
}

/* The time until which allocator events may be missing: a ring loses those before a thread's first event.
 * -1: none are missing. */
static int64_t
lost_until(const ep_verify_input *input)
{
    int64_t until = -1;
    for (size_t i = 0; i < input->thread_count && !input->lost_tail; i++) {
        const ep_trace_thread *thread = &input->threads[i];
        uint64_t lost = 0, recorded = 0;
        for (unsigned kind = 0; kind < EP_KIND_COUNT; kind++) {
            lost += ep_kinds[kind].domain != EP_DOMAIN_NONE ? thread->lost[kind] : 0;
            recorded += thread->recorded[kind];
        }
        int64_t first_ns = recorded > 0 ? thread->first_ns : INT64_MAX;
        until = lost > 0 && first_ns > until ? first_ns : until;
    }
    return until;
}

static EP_CHECKED ep_status
open_blocks(block_verifier *blocks, const ep_verify_input *input, ep_verification *to)
{
    *blocks = (block_verifier){
        .input = input,
        .to = to,
        .kinds = whole_domains(input->kinds),
        .lost_until_ns = lost_until(input),
        .moving = ep_calloc(input->thread_count, sizeof *blocks->moving),
    };
    if (blocks->moving == NULL) {
        return EP_NOMEM;
    }
    for (size_t i = 0; i < input->thread_count; i++) {
        blocks->moving[i].row = EP_ROW_NONE;
    }
    return open_table(blocks, FIRST_SHIFT);
}

/* Judges the events that no later event of their address has confirmed. */
static void
finish_blocks(block_verifier *blocks)
{
    int64_t end_ns = blocks->input->duration_ns;
    for (size_t i = 0; i < blocks->capacity; i++) {
        const address_slot *slot = &blocks->slots[i];
        if (is_suspect(slot)) {
            bool late = end_ns - time_of(blocks, slot->row) <= EP_PAIR_SKEW_NS;
            report_suspect(blocks, slot, late && blocks->input->thread_count > 1);
        }
    }
}

static void
close_blocks(block_verifier *blocks)
{
    free(blocks->slots);
    free(blocks->moving);
    *blocks = (block_verifier){0};
}

/* ---- Calls ----------------------------------------------------------------------------------- */

#define KEY(function, is_c) ((int64_t)(function) * 2 + (is_c))

typedef struct open_call {
    int64_t key;
    uint32_t row;      /* EP_ROW_NONE: open before the first recorded event */
    bool fresh;        /* open then, and so may be a C call that it made, whose begin was not seen. When it
                          makes another call, that C call has ended */
    bool span;         /* a span: the program decides where it begins and ends */
} open_call;

typedef struct call_stack {
    open_call *calls;
    size_t depth, capacity;
    /* No call below `searched` has this key: an end without a call need not search them again. */
    int64_t absent_key;
    size_t searched;
} call_stack;

typedef struct verifier {
    const ep_verify_input *input;
    ep_verification result;
    block_verifier blocks;
    ep_kind_set call_kinds;          /* groups of calls whose begins and ends were all recorded */
    call_stack *stacks;              /* by thread */
    uint64_t (*rows)[EP_KIND_COUNT]; /* by thread: events of a kind */
    size_t *first, *last;            /* by thread: rows; NO_ROW: none */
} verifier;

static int32_t
function_of(const ep_id_map *map, bool names, uint32_t id)
{
    return names ? ep_name_function(map, id) : ep_site_function(map, id);
}

static bool
is_c(unsigned kind)
{
    return ep_kinds[kind].group == EP_GROUP_C;
}

static EP_CHECKED ep_status
push(call_stack *stack, int64_t key, uint32_t row, unsigned kind)
{
    if (stack->depth > 0 && (key & 1) != 0) {
        stack->calls[stack->depth - 1].fresh = false;
    }
    if (!ep_grow_raw((void **)&stack->calls, &stack->capacity, stack->depth + 1,
                     sizeof *stack->calls)) {
        return EP_NOMEM;
    }
    stack->calls[stack->depth++] = (open_call){
        .key = key,
        .row = row,
        .fresh = row == EP_ROW_NONE,
        .span = ep_kinds[kind].group == EP_GROUP_SPAN,
    };
    return EP_OK;
}

static void
pop_to(call_stack *stack, size_t depth)
{
    stack->depth = depth;
    if (stack->searched > depth) {
        stack->searched = depth;
    }
}

/* The index of the innermost call with this key, plus 1; 0: there is none. */
static size_t
search(call_stack *stack, int64_t key)
{
    size_t floor = stack->absent_key == key ? stack->searched : 0;
    size_t at = stack->depth;
    while (at > floor && stack->calls[at - 1].key != key) {
        at--;
    }
    if (at > floor) {
        return at;
    }
    stack->absent_key = key;
    stack->searched = stack->depth;
    return 0;
}

/* Whether an end without a call is excused: the call may be older than the recording, or filters may have
 * left it out. */
static bool
end_may_be_older(const verifier *v, call_stack *stack, unsigned kind)
{
    open_call *top = stack->depth > 0 ? &stack->calls[stack->depth - 1] : NULL;
    bool no_python = (v->call_kinds & EP_KIND_BIT(EP_KIND_CALL)) == 0;
    if (v->input->damaged || v->input->calls_displaced || ep_kinds[kind].group == EP_GROUP_SPAN) {
        return true;
    }
    if (top == NULL) {
        /* When a window begins, only open calls of Python functions are known. */
        return v->input->filtered || (is_c(kind) && no_python) || ep_kinds[kind].group == EP_GROUP_GC;
    }
    if (top->row != EP_ROW_NONE) {
        return false;
    }
    bool fresh = top->fresh;
    top->fresh = false;
    return v->input->filtered || (is_c(kind) && (fresh || no_python)) ||
           ep_kinds[kind].group == EP_GROUP_GC;
}

/* Whether only spans are open above the first `depth` calls: the program left them open. */
static bool
only_spans(const call_stack *stack, size_t depth)
{
    bool only = true;
    for (size_t at = depth; at < stack->depth && only; at++) {
        only = stack->calls[at].span;
    }
    return only;
}

static int64_t
function_of_key(int64_t key)
{
    return key >> 1;
}

/* HOT, except for ends that do not fit. */
static void
end_call(verifier *v, call_stack *stack, size_t row, int64_t key)
{
    if (EP_LIKELY(stack->depth > 0 && stack->calls[stack->depth - 1].key == key)) {
        pop_to(stack, stack->depth - 1);
        return;
    }
    unsigned kind = v->input->columns->kind[row];
    const open_call *top = stack->depth > 0 ? &stack->calls[stack->depth - 1] : NULL;
    size_t found = search(stack, key);
    ep_trace_fault fault = fault_at(v->input, EP_TRACE_FAULT_END_WITHOUT_CALL, row);
    fault.found = function_of_key(key);
    fault.expected = -1;
    if (top != NULL) {
        fault.sort = found > 0 ? EP_TRACE_FAULT_END_MISSING : EP_TRACE_FAULT_END_OF_ANOTHER;
        fault.expected = function_of_key(top->key);
        fault.other_row = top->row != EP_ROW_NONE ? top->row : EP_TRACE_FAULT_NO_ROW;
    }
    if (found > 0) {
        bool excused = v->input->damaged || v->input->calls_displaced ||
                       only_spans(stack, found);
        report(&v->result, excused, &fault);
        pop_to(stack, found - 1);
    } else {
        report(&v->result, end_may_be_older(v, stack, kind), &fault);
    }
}

static EP_CHECKED ep_status
replay_call(verifier *v, size_t row)
{
    const ep_columns *c = v->input->columns;
    const ep_id_map *map = v->input->map;
    unsigned kind = c->kind[row];
    uint32_t id = c->id[row];
    bool closes = ep_kinds[kind].pairing == EP_PAIRING_CLOSES;
    int32_t function = function_of(map, closes, id);
    if (EP_UNLIKELY(function < 0)) {
        bool beyond = id >= (closes ? map->name_count : map->site_count);
        ep_trace_fault_sort sort =
            closes || !beyond ? EP_TRACE_FAULT_UNKNOWN_FUNCTION : EP_TRACE_FAULT_UNKNOWN_SITE;
        ep_trace_fault fault = fault_at(v->input, sort, row);
        fault.expected = (int64_t)(closes ? map->name_count : map->site_count);
        fault.found = id;
        report(&v->result, v->input->damaged, &fault);
    }
    if (!ep_kinds_has(v->call_kinds, kind)) {
        return EP_OK;
    }
    call_stack *stack = &v->stacks[c->thread[row]];
    if (!closes) {
        return push(stack, KEY(function, is_c(kind)), (uint32_t)row, kind);
    }
    end_call(v, stack, row, KEY(function, is_c(kind)));
    return EP_OK;
}

static EP_CHECKED ep_status
push_open_calls(verifier *v)
{
    for (size_t thread = 0; thread < v->input->thread_count; thread++) {
        const ep_open_stack *open = &v->input->threads[thread].open;
        for (size_t i = 0; i < open->depth; i++) {
            const ep_open_call *call = &open->calls[i];
            if (!ep_kinds_has(v->call_kinds, call->kind)) {
                continue;
            }
            int64_t key = KEY(function_of(v->input->map, false, call->site_id), is_c(call->kind));
            if (push(&v->stacks[thread], key, EP_ROW_NONE, call->kind) != EP_OK) {
                return EP_NOMEM;
            }
        }
    }
    return EP_OK;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

/* Whether the replay can use the row. */
static bool
check_row(verifier *v, size_t row, bool has_block)
{
    const ep_verify_input *input = v->input;
    const ep_columns *c = input->columns;
    unsigned kind = c->kind[row];
    int64_t time_ns = c->time_ns[row], before_ns = row > 0 ? c->time_ns[row - 1] : 0;
    bool known_kind = kind < EP_KIND_COUNT && ep_kinds[kind].name != NULL &&
                      ep_kinds[kind].form != EP_FORM_CONTROL;
    bool known_thread = c->thread[row] >= 0 && (size_t)c->thread[row] < input->thread_count;
    if (EP_UNLIKELY(time_ns < before_ns && row > 0)) {
        ep_trace_fault fault = fault_at(input, EP_TRACE_FAULT_TIME_BACK, row);
        fault.other_row = row - 1;
        fault.expected = before_ns;
        fault.found = time_ns;
        report(&v->result, false, &fault);
    }
    if (EP_UNLIKELY(time_ns < 0 || time_ns > input->duration_ns)) {
        ep_trace_fault fault = fault_at(input, EP_TRACE_FAULT_TIME_OUTSIDE, row);
        fault.expected = input->duration_ns;
        fault.found = time_ns;
        report(&v->result, false, &fault);
    }
    if (EP_UNLIKELY(!known_thread)) {
        ep_trace_fault fault = fault_at(input, EP_TRACE_FAULT_UNKNOWN_THREAD, row);
        fault.expected = (int64_t)input->thread_count;
        fault.found = c->thread[row];
        report(&v->result, false, &fault);
    }
    if (EP_UNLIKELY(!known_kind || !ep_kinds_has(input->kinds, kind))) {
        ep_trace_fault fault = fault_at(input, EP_TRACE_FAULT_UNKNOWN_KIND, row);
        fault.found = kind;
        report(&v->result, false, &fault);
    }
    if (EP_UNLIKELY(known_kind && (ep_kinds[kind].words == 2) != has_block)) {
        ep_trace_fault fault = fault_at(input, EP_TRACE_FAULT_BLOCK_ROWS, row);
        report(&v->result, false, &fault);
        return false;
    }
    return known_kind && known_thread;
}

static void
check_site(verifier *v, size_t row)
{
    const ep_columns *c = v->input->columns;
    if (EP_UNLIKELY(c->id[row] >= v->input->map->site_count)) {
        ep_trace_fault fault = fault_at(v->input, EP_TRACE_FAULT_UNKNOWN_SITE, row);
        fault.expected = (int64_t)v->input->map->site_count;
        fault.found = c->id[row];
        report(&v->result, v->input->damaged, &fault);
    }
}

static EP_CHECKED ep_status
replay_rows(verifier *v, const ep_progress *progress)
{
    const ep_columns *c = v->input->columns;
    size_t block = 0;
    for (size_t row = 0; row < c->count; row++) {
        while (block < c->alloc_count && c->alloc_row[block] < row) {
            block++;    /* out of order: its row was replayed without it */
        }
        bool has_block = block < c->alloc_count && c->alloc_row[block] == row;
        if (EP_LIKELY(check_row(v, row, has_block))) {
            int32_t thread = c->thread[row];
            v->rows[thread][c->kind[row]]++;
            v->first[thread] = v->first[thread] == EP_TRACE_FAULT_NO_ROW ? row : v->first[thread];
            v->last[thread] = row;
            ep_status status = EP_OK;
            if (ep_kinds[c->kind[row]].form == EP_FORM_CALL) {
                status = replay_call(v, row);
            } else {
                check_site(v, row);
                status = has_block ? next_block(&v->blocks, block) : EP_OK;
            }
            if (EP_UNLIKELY(status != EP_OK)) {
                return status;
            }
        }
        block += has_block;
        if ((row + 1) % EP_PROGRESS_ROWS == 0 && !ep_progress_tell(progress, row + 1, c->count)) {
            return EP_STATE;
        }
    }
    return EP_OK;
}

/* ---- Counts ---------------------------------------------------------------------------------- */

static void
check_counts(verifier *v, size_t thread)
{
    const ep_trace_thread *known = &v->input->threads[thread];
    ep_trace_fault fault = {
        .sort = EP_TRACE_FAULT_COUNTS,
        .row = EP_TRACE_FAULT_NO_ROW,
        .other_row = EP_TRACE_FAULT_NO_ROW,
        .thread = (int32_t)thread,
    };
    uint64_t recorded = 0, rows = 0;
    bool same = true, possible = true;
    for (unsigned kind = 0; kind < EP_KIND_COUNT; kind++) {
        recorded += known->recorded[kind];
        rows += v->rows[thread][kind];
        same = same && known->recorded[kind] == v->rows[thread][kind];
        possible = possible && (known->lost[kind] == 0 || ep_kinds_has(v->input->kinds, kind));
    }
    if (!same || !possible) {
        fault.expected = (int64_t)recorded;
        fault.found = (int64_t)rows;
        report(&v->result, false, &fault);
    }
    if (rows == 0 || recorded == 0) {
        return;
    }
    const int64_t *time_ns = v->input->columns->time_ns;
    int64_t first_ns = time_ns[v->first[thread]], last_ns = time_ns[v->last[thread]];
    /* A filter does not change the first and last time of a thread. */
    bool fits = v->input->filtered ? known->first_ns <= first_ns && known->last_ns >= last_ns
                                   : known->first_ns == first_ns && known->last_ns == last_ns;
    if (!fits) {
        bool first = known->first_ns != first_ns;
        fault.sort = EP_TRACE_FAULT_THREAD_TIMES;
        fault.expected = first ? known->first_ns : known->last_ns;
        fault.found = first ? first_ns : last_ns;
        report(&v->result, false, &fault);
    }
}

/* ---- The whole ------------------------------------------------------------------------------- */

/* The calls of groups whose kinds were all asked for: in other groups a begin or an end may be missing. */
static ep_kind_set
whole_sorts_of_calls(ep_kind_set asked)
{
    ep_kind_set of_group[EP_GROUP_COUNT] = {0}, whole = 0;
    for (unsigned kind = 0; kind < EP_KIND_COUNT; kind++) {
        of_group[ep_kinds[kind].group] |= ep_kinds_of_calls & EP_KIND_BIT(kind);
    }
    for (size_t group = 0; group < EP_GROUP_COUNT; group++) {
        whole |= (asked & of_group[group]) == of_group[group] ? of_group[group] : 0;
    }
    return whole;
}

static EP_CHECKED ep_status
open_verifier(verifier *v, size_t limit)
{
    size_t threads = v->input->thread_count;
    v->result.limit = limit > 0 ? limit : 1;
    v->result.faults = ep_calloc(v->result.limit, sizeof *v->result.faults);
    v->stacks = ep_calloc(threads, sizeof *v->stacks);
    v->rows = ep_calloc(threads, sizeof *v->rows);
    v->first = ep_realloc(NULL, threads, sizeof *v->first);
    v->last = ep_realloc(NULL, threads, sizeof *v->last);
    if (v->result.faults == NULL || v->stacks == NULL || v->rows == NULL || v->first == NULL ||
        v->last == NULL) {
        return EP_NOMEM;
    }
    for (size_t i = 0; i < threads; i++) {
        v->first[i] = v->last[i] = EP_TRACE_FAULT_NO_ROW;
    }
    v->call_kinds = whole_sorts_of_calls(v->input->kinds);
    ep_status status = open_blocks(&v->blocks, v->input, &v->result);
    return status != EP_OK ? status : push_open_calls(v);
}

static void
close_verifier(verifier *v)
{
    for (size_t i = 0; v->stacks != NULL && i < v->input->thread_count; i++) {
        free(v->stacks[i].calls);
    }
    free(v->stacks);
    free(v->rows);
    free(v->first);
    free(v->last);
    close_blocks(&v->blocks);
    ep_verification_clear(&v->result);
}

ep_status
ep_verify(const ep_verify_input *input, size_t limit, const ep_progress *progress,
          ep_verification *out)
{
    if (input->columns->count > EP_PAIR_MAX) {
        return EP_ARGUMENT;
    }
    verifier v = {.input = input};
    ep_status status = open_verifier(&v, limit);
    if (status == EP_OK) {
        status = replay_rows(&v, progress);
    }
    if (status == EP_OK) {
        finish_blocks(&v.blocks);
        for (size_t i = 0; i < input->thread_count; i++) {
            check_counts(&v, i);
        }
        *out = v.result;
        v.result = (ep_verification){0};
    }
    close_verifier(&v);
    return status;
}

/* ---- Records --------------------------------------------------------------------------------- */

/* At each end of the window one hook may write a record late, or remove one. */
#define UNSURE_EVENTS 4

ep_status
ep_check_records(const ep_capture *capture, uint32_t only_thread, ep_chunk_source *source,
                 const ep_decoded *decoded, ep_record_check *out)
{
    ep_status status = EP_OK;
    ep_record_check check = {.done = true, .chunks = capture->chunk_count};
    uint64_t *last = ep_calloc(capture->thread_count, sizeof *last);    /* last ticks, by thread id */
    uint64_t worst = 0, worst_at = 0;
    for (size_t i = 0; i < capture->chunk_count && status == EP_OK; i++) {
        const ep_chunk_header *header = capture->chunks[i]->header;
        status = source != NULL ? source->load(source, i, &header) : EP_OK;
        if (status != EP_OK) {
            break;
        }
        ep_cursor cursor = ep_cursor_begin(header);
        ep_record record = {0};
        check.unsure_count += cursor.may_change ? UNSURE_EVENTS : 0;
        while (ep_cursor_next(&cursor, &record)) {
            check.records++;
            if (record.ticks < capture->start.ticks || record.ticks > capture->stop.ticks ||
                !ep_record_is_for(&record, capture->kinds) ||
                !ep_capture_wants(capture, only_thread, cursor.thread_id)) {
                continue;
            }
            check.record_count += record.ticks <= capture->full_ticks;
            if (last == NULL || cursor.thread_id >= capture->thread_count) {
                continue;
            }
            uint64_t *before = &last[cursor.thread_id];
            if (record.ticks < *before && *before - record.ticks > worst) {
                worst = *before - record.ticks;
                worst_at = record.ticks;
                check.back_thread_id = (uint32_t)cursor.thread_id;
            }
            *before = record.ticks;
        }
        if (source != NULL) {
            source->let_go(source, header);
        }
    }
    if (worst > 0) {
        ep_clock_stretch stretch = ep_clock_map_stretch(&capture->clock, worst_at, 0);
        check.back_ns = ep_clock_stretch_ns(&stretch, worst_at + worst) -
                        ep_clock_stretch_ns(&stretch, worst_at);
    }
    for (size_t i = 0; i < decoded->thread_count; i++) {
        for (unsigned kind = 0; kind < EP_KIND_COUNT; kind++) {
            check.decoded_count += decoded->threads[i].recorded[kind];
        }
    }
    free(last);
    if (status == EP_OK) {
        *out = check;
    }
    return status;
}

void
ep_verify_records(const ep_record_check *check, const ep_trace_thread *threads,
                  size_t thread_count, ep_verification *verification)
{
    uint64_t more = check->decoded_count > check->record_count
                        ? check->decoded_count - check->record_count
                        : check->record_count - check->decoded_count;
    ep_trace_fault fault = {
        .sort = EP_TRACE_FAULT_COUNTS,
        .row = EP_TRACE_FAULT_NO_ROW,
        .other_row = EP_TRACE_FAULT_NO_ROW,
        .thread = -1,
        .expected = (int64_t)check->record_count,
        .found = (int64_t)check->decoded_count,
    };
    if (more > check->unsure_count) {
        add_fault(verification, &fault);
    }
    if (check->back_ns > EP_PAIR_SKEW_NS) {
        fault.sort = EP_TRACE_FAULT_CLOCK_BACK;
        fault.expected = EP_PAIR_SKEW_NS;
        fault.found = check->back_ns;
        for (size_t i = 0; i < thread_count; i++) {
            bool is = threads[i].thread != NULL && threads[i].thread->id == check->back_thread_id;
            fault.thread = is ? (int32_t)i : fault.thread;
        }
        add_fault(verification, &fault);
    }
}
