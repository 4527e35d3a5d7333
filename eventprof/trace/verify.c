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

/* An event that is replayed. */
typedef struct event {
    size_t row;            /* its number in the whole */
    int64_t time_ns;
    int32_t thread;
    uint32_t id;
    unsigned kind;
    bool has_block;        /* the next two are known */
    uint64_t address;
    int64_t size;
} event;

static ep_trace_fault
fault_of(ep_trace_fault_sort sort, size_t row, int32_t thread, int64_t time_ns, unsigned kind)
{
    return (ep_trace_fault){
        .sort = sort,
        .row = row,
        .thread = thread,
        .time_ns = time_ns,
        .kind = kind,
        .other_row = EP_TRACE_FAULT_NO_ROW,
    };
}

static ep_trace_fault
fault_at(const event *e, ep_trace_fault_sort sort)
{
    return fault_of(sort, e->row, e->thread, e->time_ns, e->kind);
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

/* Replays mallocs and frees.
 *
 * Two events of different threads may be in the wrong order, by up to EP_PAIR_SKEW_NS. So an event that
 * looks wrong is judged at the next event of the same address: only that shows whether the two were
 * swapped. */

/* With more addresses, those of freed blocks are forgotten: 128 MiB. */
#define REMEMBERED_SLOTS ((size_t)1 << 22)
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

/* What is needed of the last event of an address. */
typedef struct seen_event {
    int64_t time_ns;
    uint32_t row;
    int32_t thread;
} seen_event;

typedef struct address_slot {
    uint64_t address;
    seen_event last;
    uint32_t other;       /* the row before that: the birth of the freed block, or of the block that lived
                           * there */
    uint8_t state;        /* address_state; 0: an empty slot */
    uint8_t kind;         /* of the last event */
    bool other_is_early;  /* an event after `other` may be lost */
} address_slot;

_Static_assert(sizeof(address_slot) == 32, "as verify.h says");

/* A thread's last realloc_free whose realloc is still to come. */
typedef struct moving_block {
    uint32_t row;         /* EP_ROW_NONE: none */
    unsigned domain;
    bool seen;            /* the thread had allocator events */
    uint64_t address;
    seen_event before;    /* the event of the address before the realloc_free, if there is one, */
    uint8_t before_kind;  /* and its kind */
} moving_block;

typedef struct block_verifier {
    const ep_verify_input *input;
    ep_verification *to;
    ep_kind_set kinds;         /* kinds of domains that were recorded completely */
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

static void
set_last(address_slot *slot, const event *e)
{
    slot->last = (seen_event){.time_ns = e->time_ns, .row = (uint32_t)e->row, .thread = e->thread};
    slot->kind = (uint8_t)e->kind;
}

/* Whether two events may be in the wrong order. */
static bool
may_be_swapped(const seen_event *earlier, const event *later)
{
    return earlier->thread != later->thread && later->time_ns - earlier->time_ns <= EP_PAIR_SKEW_NS;
}

/* The last event becomes the one before the next. */
static void
set_other(const block_verifier *blocks, address_slot *slot)
{
    slot->other = slot->last.row;
    slot->other_is_early = slot->last.time_ns <= blocks->input->lost_until_ns;
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
    return excuses_all(blocks) || slot->other_is_early;
}

/* Reports a block that was made where another lived, or freed twice. */
static EP_COLD void
report_suspect(block_verifier *blocks, const address_slot *slot, bool excused)
{
    ep_trace_fault_sort sort = slot->state == STATE_LIVE_SUSPECT ? EP_TRACE_FAULT_ADDRESS_LIVES
                                                                 : EP_TRACE_FAULT_FREED_TWICE;
    const seen_event *last = &slot->last;
    ep_trace_fault fault = fault_of(sort, last->row, last->thread, last->time_ns, slot->kind);
    fault.address = slot->address;
    fault.other_row = slot->other;
    excused = excused || may_be_lost(blocks, slot) ||
              (sort == EP_TRACE_FAULT_FREED_TWICE && blocks->input->hook_frees);
    report(blocks->to, excused, &fault);
}

/* ---- Events ---------------------------------------------------------------------------------- */

static void
give_birth(block_verifier *blocks, address_slot *slot, const event *e)
{
    if (slot->state == STATE_FREED_SUSPECT && may_be_swapped(&slot->last, e)) {
        /* The earlier free was the free of this block. */
        slot->state = may_be_lost(blocks, slot) ? STATE_MAYBE_LIVE : STATE_FREED;
        return;
    }
    if (is_suspect(slot)) {
        report_suspect(blocks, slot, false);
    }
    if (slot->state == STATE_LIVE || slot->state == STATE_LIVE_SUSPECT) {
        set_other(blocks, slot);
        slot->state = STATE_LIVE_SUSPECT;
    } else {
        bool doubt = slot->state == STATE_FREED_OLDER && may_be_swapped(&slot->last, e);
        slot->state = doubt ? STATE_MAYBE_LIVE : STATE_LIVE;
    }
    set_last(slot, e);
}

static void
give_death(block_verifier *blocks, address_slot *slot, const event *e)
{
    if (slot->state == STATE_LIVE_SUSPECT && may_be_swapped(&slot->last, e)) {
        /* It was the free of the earlier block. */
        slot->state = may_be_lost(blocks, slot) ? STATE_MAYBE_LIVE : STATE_LIVE;
        return;
    }
    if (is_suspect(slot)) {
        report_suspect(blocks, slot, false);
    }
    set_other(blocks, slot);
    if (slot->state == STATE_FREED_SUSPECT || slot->state == STATE_FREED ||
        slot->state == STATE_FREED_OLDER) {
        slot->state = STATE_FREED_SUSPECT;
    } else {
        slot->state = slot->state == STATE_NONE ? STATE_FREED_OLDER : STATE_FREED;
    }
    set_last(slot, e);
}

/* A realloc failed: its realloc_free did not happen. */
static void
revive(block_verifier *blocks, const moving_block *moving)
{
    address_slot *slot = find(blocks, moving->address);
    if (slot->last.row != moving->row || slot->state == STATE_NONE || lives(slot)) {
        return;
    }
    bool known = slot->state == STATE_FREED;
    if (slot->state == STATE_FREED_SUSPECT) {
        report_suspect(blocks, slot, false);
    }
    slot->last = known ? moving->before : slot->last;
    slot->kind = known ? moving->before_kind : slot->kind;
    slot->state = known ? STATE_LIVE : STATE_UNKNOWN;
}

static void
report_alone(block_verifier *blocks, const event *e, uint32_t other, bool excused)
{
    ep_trace_fault fault = fault_at(e, EP_TRACE_FAULT_REALLOC_ALONE);
    fault.other_row = other == EP_ROW_NONE ? EP_TRACE_FAULT_NO_ROW : other;
    report(blocks->to, excused || excuses_all(blocks), &fault);
}

/* Between the two halves of a realloc its thread has no other allocator event. */
static void
follow_realloc(block_verifier *blocks, const event *e)
{
    unsigned kind = e->kind;
    moving_block *moving = &blocks->moving[e->thread];
    bool second = ep_kind_is(kind, EP_KIND_REALLOC) || ep_kind_is(kind, EP_KIND_REALLOC_FAILED);
    bool fits = moving->row != EP_ROW_NONE && second && moving->domain == ep_kinds[kind].domain;
    if (moving->row != EP_ROW_NONE && !fits) {
        report_alone(blocks, e, moving->row, false);
    } else if (second && !fits) {
        /* The window, or what a ring kept, may begin between the halves. */
        report_alone(blocks, e, EP_ROW_NONE, !moving->seen);
    } else if (ep_kind_is(kind, EP_KIND_REALLOC_FAILED)) {
        revive(blocks, moving);
    }
    moving->row = ep_kind_is(kind, EP_KIND_REALLOC_FREE) ? (uint32_t)e->row : EP_ROW_NONE;
    moving->domain = ep_kinds[kind].domain;
    moving->address = e->address;
    moving->seen = true;
}

static void
check_block(block_verifier *blocks, const event *e)
{
    bool opens = ep_kinds[e->kind].pairing == EP_PAIRING_OPENS;
    /* A request that failed may have been of any size; a free's size is that of its block, or -1. */
    if ((opens && (e->size < 0 || e->size > BLOCK_BYTES_MAX)) || e->size < -1) {
        ep_trace_fault fault = fault_at(e, EP_TRACE_FAULT_BLOCK_SIZE);
        fault.expected = BLOCK_BYTES_MAX;
        fault.found = e->size;
        fault.address = e->address;
        report(blocks->to, false, &fault);
    }
    if (e->address == 0) {
        ep_trace_fault fault = fault_at(e, EP_TRACE_FAULT_BLOCK_ADDRESS);
        report(blocks->to, false, &fault);
    }
}

/* HOT, one look into the table an event. */
static EP_CHECKED ep_status
next_block(block_verifier *blocks, const event *e)
{
    const ep_kind_info *info = &ep_kinds[e->kind];
    if (info->form == EP_FORM_VALUE) {
        return EP_OK;
    }
    check_block(blocks, e);
    if (!ep_kinds_has(blocks->kinds, e->kind)) {
        return EP_OK;
    }
    follow_realloc(blocks, e);
    if (info->pairing == EP_PAIRING_NEITHER) {
        return EP_OK;
    }
    address_slot *slot = find(blocks, e->address);
    if (slot->state == STATE_NONE && EP_UNLIKELY(blocks->used >= blocks->capacity / 8 * 5)) {
        if (rebuild(blocks) != EP_OK) {
            return EP_NOMEM;
        }
        slot = find(blocks, e->address);
    }
    blocks->used += slot->state == STATE_NONE;
    slot->address = e->address;
    if (info->pairing == EP_PAIRING_OPENS) {
        give_birth(blocks, slot, e);
    } else {
        blocks->moving[e->thread].before = slot->last;
        blocks->moving[e->thread].before_kind = slot->kind;
        give_death(blocks, slot, e);
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

int64_t
ep_lost_until_ns(const ep_trace_thread *threads, size_t count)
{
    int64_t until = -1;
    for (size_t i = 0; i < count; i++) {
        uint64_t lost = 0, recorded = 0;
        for (unsigned kind = 0; kind < EP_KIND_COUNT; kind++) {
            lost += ep_kinds[kind].domain != EP_DOMAIN_NONE ? threads[i].lost[kind] : 0;
            recorded += threads[i].recorded[kind];
        }
        int64_t first_ns = recorded > 0 ? threads[i].first_ns : INT64_MAX;
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
            bool late = end_ns - slot->last.time_ns <= EP_PAIR_SKEW_NS;
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

typedef struct replayed_thread {
    uint64_t rows[EP_KIND_COUNT];    /* events of a kind */
    int64_t first_ns, last_ns;
    bool is_seen;                    /* it has rows: both times are valid */
    call_stack stack;
} replayed_thread;

struct ep_verifier {
    ep_verify_input input;
    ep_verification result;
    block_verifier blocks;
    ep_kind_set call_kinds;          /* groups of calls whose begins and ends were all recorded */
    replayed_thread *threads;
    size_t rows;                     /* so far */
    int64_t before_ns;               /* time of the last */
};

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
end_may_be_older(const ep_verifier *v, call_stack *stack, unsigned kind)
{
    open_call *top = stack->depth > 0 ? &stack->calls[stack->depth - 1] : NULL;
    bool no_python = (v->call_kinds & EP_KIND_BIT(EP_KIND_CALL)) == 0;
    if (v->input.damaged || v->input.calls_displaced || ep_kinds[kind].group == EP_GROUP_SPAN) {
        return true;
    }
    if (top == NULL) {
        /* When a window begins, only open calls of Python functions are known. */
        return v->input.filtered || (is_c(kind) && no_python) || ep_kinds[kind].group == EP_GROUP_GC;
    }
    if (top->row != EP_ROW_NONE) {
        return false;
    }
    bool fresh = top->fresh;
    top->fresh = false;
    return v->input.filtered || (is_c(kind) && (fresh || no_python)) ||
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
end_call(ep_verifier *v, call_stack *stack, const event *e, int64_t key)
{
    if (EP_LIKELY(stack->depth > 0 && stack->calls[stack->depth - 1].key == key)) {
        pop_to(stack, stack->depth - 1);
        return;
    }
    const open_call *top = stack->depth > 0 ? &stack->calls[stack->depth - 1] : NULL;
    size_t found = search(stack, key);
    ep_trace_fault fault = fault_at(e, EP_TRACE_FAULT_END_WITHOUT_CALL);
    fault.found = function_of_key(key);
    fault.expected = -1;
    if (top != NULL) {
        fault.sort = found > 0 ? EP_TRACE_FAULT_END_MISSING : EP_TRACE_FAULT_END_OF_ANOTHER;
        fault.expected = function_of_key(top->key);
        fault.other_row = top->row != EP_ROW_NONE ? top->row : EP_TRACE_FAULT_NO_ROW;
    }
    if (found > 0) {
        bool excused = v->input.damaged || v->input.calls_displaced ||
                       only_spans(stack, found);
        report(&v->result, excused, &fault);
        pop_to(stack, found - 1);
    } else {
        report(&v->result, end_may_be_older(v, stack, e->kind), &fault);
    }
}

static EP_CHECKED ep_status
replay_call(ep_verifier *v, const event *e)
{
    const ep_id_map *map = v->input.map;
    bool closes = ep_kinds[e->kind].pairing == EP_PAIRING_CLOSES;
    int32_t function = function_of(map, closes, e->id);
    if (EP_UNLIKELY(function < 0)) {
        bool beyond = e->id >= (closes ? map->name_count : map->site_count);
        ep_trace_fault_sort sort =
            closes || !beyond ? EP_TRACE_FAULT_UNKNOWN_FUNCTION : EP_TRACE_FAULT_UNKNOWN_SITE;
        ep_trace_fault fault = fault_at(e, sort);
        fault.expected = (int64_t)(closes ? map->name_count : map->site_count);
        fault.found = e->id;
        report(&v->result, v->input.damaged, &fault);
    }
    if (!ep_kinds_has(v->call_kinds, e->kind)) {
        return EP_OK;
    }
    call_stack *stack = &v->threads[e->thread].stack;
    if (!closes) {
        return push(stack, KEY(function, is_c(e->kind)), (uint32_t)e->row, e->kind);
    }
    end_call(v, stack, e, KEY(function, is_c(e->kind)));
    return EP_OK;
}

static EP_CHECKED ep_status
push_open_calls(ep_verifier *v)
{
    for (size_t thread = 0; thread < v->input.thread_count; thread++) {
        const ep_open_stack *open = &v->input.threads[thread].open;
        for (size_t i = 0; i < open->depth; i++) {
            const ep_open_call *call = &open->calls[i];
            if (!ep_kinds_has(v->call_kinds, call->kind)) {
                continue;
            }
            int64_t key = KEY(function_of(v->input.map, false, call->site_id), is_c(call->kind));
            if (push(&v->threads[thread].stack, key, EP_ROW_NONE, call->kind) != EP_OK) {
                return EP_NOMEM;
            }
        }
    }
    return EP_OK;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

/* Whether the replay can use the event. */
static bool
check_row(ep_verifier *v, const event *e)
{
    const ep_verify_input *input = &v->input;
    unsigned kind = e->kind;
    bool known_kind = kind < EP_KIND_COUNT && ep_kinds[kind].name != NULL &&
                      ep_kinds[kind].form != EP_FORM_CONTROL;
    bool known_thread = e->thread >= 0 && (size_t)e->thread < input->thread_count;
    if (EP_UNLIKELY(e->time_ns < v->before_ns && e->row > 0)) {
        ep_trace_fault fault = fault_at(e, EP_TRACE_FAULT_TIME_BACK);
        fault.other_row = e->row - 1;
        fault.expected = v->before_ns;
        fault.found = e->time_ns;
        report(&v->result, false, &fault);
    }
    v->before_ns = e->time_ns;
    if (EP_UNLIKELY(e->time_ns < 0 || e->time_ns > input->duration_ns)) {
        ep_trace_fault fault = fault_at(e, EP_TRACE_FAULT_TIME_OUTSIDE);
        fault.expected = input->duration_ns;
        fault.found = e->time_ns;
        report(&v->result, false, &fault);
    }
    if (EP_UNLIKELY(!known_thread)) {
        ep_trace_fault fault = fault_at(e, EP_TRACE_FAULT_UNKNOWN_THREAD);
        fault.expected = (int64_t)input->thread_count;
        fault.found = e->thread;
        report(&v->result, false, &fault);
    }
    if (EP_UNLIKELY(!known_kind || !ep_kinds_has(input->kinds, kind))) {
        ep_trace_fault fault = fault_at(e, EP_TRACE_FAULT_UNKNOWN_KIND);
        fault.found = kind;
        report(&v->result, false, &fault);
    }
    if (EP_UNLIKELY(known_kind && (ep_kinds[kind].words == 2) != e->has_block)) {
        ep_trace_fault fault = fault_at(e, EP_TRACE_FAULT_BLOCK_ROWS);
        report(&v->result, false, &fault);
        return false;
    }
    return known_kind && known_thread;
}

static void
check_site(ep_verifier *v, const event *e)
{
    if (EP_UNLIKELY(e->id >= v->input.map->site_count)) {
        ep_trace_fault fault = fault_at(e, EP_TRACE_FAULT_UNKNOWN_SITE);
        fault.expected = (int64_t)v->input.map->site_count;
        fault.found = e->id;
        report(&v->result, v->input.damaged, &fault);
    }
}

static EP_CHECKED ep_status
replay(ep_verifier *v, const event *e)
{
    replayed_thread *thread = &v->threads[e->thread];
    thread->rows[e->kind]++;
    thread->first_ns = thread->is_seen ? thread->first_ns : e->time_ns;
    thread->last_ns = e->time_ns;
    thread->is_seen = true;
    if (ep_kinds[e->kind].form == EP_FORM_CALL) {
        return replay_call(v, e);
    }
    check_site(v, e);
    return e->has_block ? next_block(&v->blocks, e) : EP_OK;
}

ep_status
ep_verifier_add(ep_verifier *v, const ep_columns *c, size_t from, size_t to, size_t *block)
{
    if (to - from > EP_PAIR_MAX - v->rows) {
        return EP_ARGUMENT;
    }
    for (size_t row = from; row < to; row++) {
        while (*block < c->alloc_count && c->alloc_row[*block] < row) {
            *block += 1;    /* out of order: its row was replayed without it */
        }
        event e = {
            .row = v->rows++,
            .time_ns = c->time_ns[row],
            .thread = c->thread[row],
            .id = c->id[row],
            .kind = c->kind[row],
            .has_block = *block < c->alloc_count && c->alloc_row[*block] == row,
        };
        if (e.has_block) {
            e.address = c->address[*block];
            e.size = c->size[*block];
            *block += 1;
        }
        if (EP_LIKELY(check_row(v, &e)) && replay(v, &e) != EP_OK) {
            return EP_NOMEM;
        }
    }
    return EP_OK;
}

/* ---- Counts ---------------------------------------------------------------------------------- */

static void
check_counts(ep_verifier *v, size_t row)
{
    const ep_trace_thread *known = &v->input.threads[row];
    const replayed_thread *replayed = &v->threads[row];
    ep_trace_fault fault = {
        .sort = EP_TRACE_FAULT_COUNTS,
        .row = EP_TRACE_FAULT_NO_ROW,
        .other_row = EP_TRACE_FAULT_NO_ROW,
        .thread = (int32_t)row,
    };
    uint64_t recorded = 0, rows = 0;
    bool same = true, possible = true;
    for (unsigned kind = 0; kind < EP_KIND_COUNT; kind++) {
        recorded += known->recorded[kind];
        rows += replayed->rows[kind];
        same = same && known->recorded[kind] == replayed->rows[kind];
        possible = possible && (known->lost[kind] == 0 || ep_kinds_has(v->input.kinds, kind));
    }
    if (!same || !possible) {
        fault.expected = (int64_t)recorded;
        fault.found = (int64_t)rows;
        report(&v->result, false, &fault);
    }
    if (rows == 0 || recorded == 0) {
        return;
    }
    int64_t first_ns = replayed->first_ns, last_ns = replayed->last_ns;
    /* A filter does not change the first and last time of a thread. */
    bool fits = v->input.filtered ? known->first_ns <= first_ns && known->last_ns >= last_ns
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

ep_status
ep_verifier_open(const ep_verify_input *input, size_t limit, ep_verifier **out)
{
    ep_verifier *v = ep_calloc(1, sizeof *v);
    if (v == NULL) {
        return EP_NOMEM;
    }
    v->input = *input;
    v->result.limit = limit > 0 ? limit : 1;
    v->result.faults = ep_calloc(v->result.limit, sizeof *v->result.faults);
    v->threads = ep_calloc(input->thread_count, sizeof *v->threads);
    v->call_kinds = whole_sorts_of_calls(input->kinds);
    ep_status status = v->result.faults != NULL && v->threads != NULL ? EP_OK : EP_NOMEM;
    status = status != EP_OK ? status : open_blocks(&v->blocks, &v->input, &v->result);
    status = status != EP_OK ? status : push_open_calls(v);
    if (status != EP_OK) {
        ep_verifier_close(v);
        return status;
    }
    *out = v;
    return EP_OK;
}

bool
ep_verifier_assumed(const ep_verifier *v, const ep_verify_input *known)
{
    return v->input.thread_count == known->thread_count && v->input.kinds == known->kinds &&
           v->input.duration_ns == known->duration_ns && v->input.damaged == known->damaged &&
           v->input.lost_until_ns == known->lost_until_ns;
}

void
ep_verifier_end(ep_verifier *v, const ep_verify_input *known, ep_verification *out)
{
    v->input = *known;
    finish_blocks(&v->blocks);
    for (size_t i = 0; i < known->thread_count; i++) {
        check_counts(v, i);
    }
    *out = v->result;
    v->result = (ep_verification){0};
}

void
ep_verifier_close(ep_verifier *v)
{
    if (v == NULL) {
        return;
    }
    for (size_t i = 0; v->threads != NULL && i < v->input.thread_count; i++) {
        free(v->threads[i].stack.calls);
    }
    free(v->threads);
    close_blocks(&v->blocks);
    ep_verification_clear(&v->result);
    free(v);
}

ep_status
ep_verify(const ep_columns *columns, const ep_verify_input *input, size_t limit, ep_verification *out)
{
    ep_verifier *v;
    size_t block = 0;
    ep_status status = ep_verifier_open(input, limit, &v);
    if (status != EP_OK) {
        return status;
    }
    status = ep_verifier_add(v, columns, 0, columns->count, &block);
    if (status == EP_OK) {
        ep_verifier_end(v, input, out);
    }
    ep_verifier_close(v);
    return status;
}

/* ---- Records --------------------------------------------------------------------------------- */

/* At each end of the window one hook may write a record late, or remove one. */
#define UNSURE_EVENTS 4

ep_status
ep_record_checker_open(ep_record_checker *checker, const ep_capture *capture, uint32_t only_thread)
{
    *checker = (ep_record_checker){
        .capture = capture,
        .only_thread = only_thread,
        .last = ep_calloc(capture->thread_count, sizeof *checker->last),
        .found = {.chunks = capture->chunk_count},
    };
    return checker->last != NULL ? EP_OK : EP_NOMEM;
}

void
ep_record_checker_add(ep_record_checker *checker, const ep_chunk_header *header)
{
    const ep_capture *capture = checker->capture;
    ep_record_check *found = &checker->found;
    ep_cursor cursor = ep_cursor_begin(header);
    ep_record record = {0};
    found->unsure_count += cursor.may_change ? UNSURE_EVENTS : 0;
    while (ep_cursor_next(&cursor, &record)) {
        found->records++;
        if (record.ticks < capture->start.ticks || record.ticks > capture->stop.ticks ||
            !ep_record_is_for(&record, capture->kinds) ||
            !ep_capture_wants(capture, checker->only_thread, cursor.thread_id)) {
            continue;
        }
        found->record_count += record.ticks <= capture->full_ticks;
        if (cursor.thread_id >= capture->thread_count) {
            continue;
        }
        uint64_t *before = &checker->last[cursor.thread_id];
        if (record.ticks < *before && *before - record.ticks > checker->worst) {
            checker->worst = *before - record.ticks;
            checker->worst_at = record.ticks;
            found->back_thread_id = (uint32_t)cursor.thread_id;
        }
        *before = record.ticks;
    }
}

void
ep_record_checker_end(ep_record_checker *checker, const ep_decoded *decoded, ep_record_check *out)
{
    ep_record_check *found = &checker->found;
    uint64_t worst = checker->worst, worst_at = checker->worst_at;
    if (worst > 0) {
        ep_clock_stretch stretch = ep_clock_map_stretch(&checker->capture->clock, worst_at, 0);
        found->back_ns = ep_clock_stretch_ns(&stretch, worst_at + worst) -
                         ep_clock_stretch_ns(&stretch, worst_at);
    }
    for (size_t i = 0; i < decoded->thread_count; i++) {
        for (unsigned kind = 0; kind < EP_KIND_COUNT; kind++) {
            found->decoded_count += decoded->threads[i].recorded[kind];
        }
    }
    found->done = true;
    *out = *found;
}

void
ep_record_checker_clear(ep_record_checker *checker)
{
    free(checker->last);
    *checker = (ep_record_checker){0};
}

ep_status
ep_check_records(const ep_capture *capture, uint32_t only_thread, const ep_decoded *decoded,
                 ep_record_check *out)
{
    ep_record_checker checker;
    ep_status status = ep_record_checker_open(&checker, capture, only_thread);
    for (size_t i = 0; i < capture->chunk_count && status == EP_OK; i++) {
        ep_record_checker_add(&checker, capture->chunks[i]->header);
    }
    if (status == EP_OK) {
        ep_record_checker_end(&checker, decoded, out);
    }
    ep_record_checker_clear(&checker);
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
