/* Replays mallocs and frees; the contract is in verify.h.
 *
 * Two events of different threads may be in the wrong order, by up to EP_PAIR_SKEW_NS. So an event that
 * looks wrong is judged at the next event of the same address: only that shows whether the two were
 * swapped. */
#include <stdlib.h>

#include "array.h"
#include "memory.h"
#include "verify_parts.h"

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

static bool
lives(const ep_address *slot)
{
    return slot->state >= STATE_UNKNOWN && slot->state <= STATE_LIVE_SUSPECT;
}

static bool
is_suspect(const ep_address *slot)
{
    return slot->state == STATE_LIVE_SUSPECT || slot->state == STATE_FREED_SUSPECT;
}

/* ---- The table: open addressing, linear probing; see pair_blocks.c --------------------------- */

static ep_address *
find(const ep_block_verifier *blocks, uint64_t address)
{
    size_t at = (size_t)((address ^ address >> 12) * UINT64_C(0x9e3779b97f4a7c15) >> blocks->shift);
    while (blocks->slots[at].state != STATE_NONE && blocks->slots[at].address != address) {
        at = (at + 1) & (blocks->capacity - 1);
    }
    return &blocks->slots[at];
}

static EP_CHECKED ep_status
open_table(ep_block_verifier *blocks, unsigned shift)
{
    size_t capacity = (size_t)1 << (64 - shift);
    ep_address *slots = ep_array_new_zeroed(capacity, sizeof *slots);
    if (slots == NULL) {
        return EP_NOMEM;
    }
    blocks->slots = slots;
    blocks->capacity = capacity;
    blocks->shift = shift;
    return EP_OK;
}

static EP_COLD EP_CHECKED ep_status
rebuild(ep_block_verifier *blocks)
{
    ep_address *old = blocks->slots;
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
time_of(const ep_block_verifier *blocks, uint32_t row)
{
    return blocks->input->columns->time_ns[row];
}

/* Whether two rows may be in the wrong order. */
static bool
may_be_swapped(const ep_block_verifier *blocks, uint32_t earlier, uint32_t later)
{
    const ep_columns *c = blocks->input->columns;
    return c->thread[earlier] != c->thread[later] &&
           c->time_ns[later] - c->time_ns[earlier] <= EP_PAIR_SKEW_NS;
}

static bool
excuses_all(const ep_block_verifier *blocks)
{
    const ep_verify_input *input = blocks->input;
    return input->damaged || input->one_thread || input->memory_displaced;
}

/* Whether an event between the two rows of a suspect may be missing. */
static bool
may_be_lost(const ep_block_verifier *blocks, const ep_address *slot)
{
    return excuses_all(blocks) || time_of(blocks, slot->other) <= blocks->lost_until_ns;
}

/* Reports a block that was made where another lived, or freed twice. */
static EP_COLD void
report_suspect(ep_block_verifier *blocks, const ep_address *slot, bool excused)
{
    ep_finding_sort sort = slot->state == STATE_LIVE_SUSPECT ? EP_FINDING_ADDRESS_LIVES
                                                             : EP_FINDING_FREED_TWICE;
    ep_finding finding = ep_verify_at(blocks->input, sort, slot->row);
    finding.address = slot->address;
    finding.other_row = slot->other;
    excused = excused || may_be_lost(blocks, slot) ||
              (sort == EP_FINDING_FREED_TWICE && blocks->input->hook_frees);
    ep_verify_report(blocks->to, excused, &finding);
}

/* ---- Events ---------------------------------------------------------------------------------- */

static void
give_birth(ep_block_verifier *blocks, ep_address *slot, uint32_t row)
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
give_death(ep_block_verifier *blocks, ep_address *slot, uint32_t row)
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
revive(ep_block_verifier *blocks, uint64_t address, uint32_t freed_row)
{
    ep_address *slot = find(blocks, address);
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
report_alone(ep_block_verifier *blocks, uint32_t row, uint32_t other, bool excused)
{
    ep_finding finding = ep_verify_at(blocks->input, EP_FINDING_REALLOC_ALONE, row);
    finding.other_row = other == EP_ROW_NONE ? EP_FINDING_NO_ROW : other;
    ep_verify_report(blocks->to, excused || excuses_all(blocks), &finding);
}

/* Between the two halves of a realloc its thread has no other allocator event. */
static void
follow_realloc(ep_block_verifier *blocks, size_t event, uint32_t row)
{
    const ep_columns *c = blocks->input->columns;
    unsigned kind = c->kind[row];
    ep_moving *moving = &blocks->moving[c->thread[row]];
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
check_block(ep_block_verifier *blocks, size_t event, uint32_t row)
{
    const ep_columns *c = blocks->input->columns;
    const ep_kind_info *info = &ep_kinds[c->kind[row]];
    int64_t size = c->size[event];
    bool opens = info->pairing == EP_PAIRING_OPENS;
    /* A request that failed may have been of any size; a free's size is that of its block, or -1. */
    if ((opens && (size < 0 || size > BLOCK_BYTES_MAX)) || size < -1) {
        ep_finding finding = ep_verify_at(blocks->input, EP_FINDING_BLOCK_SIZE, row);
        finding.expected = BLOCK_BYTES_MAX;
        finding.found = size;
        finding.address = c->address[event];
        ep_verify_report(blocks->to, false, &finding);
    }
    if (c->address[event] == 0) {
        ep_finding finding = ep_verify_at(blocks->input, EP_FINDING_BLOCK_ADDRESS, row);
        ep_verify_report(blocks->to, false, &finding);
    }
}

/* HOT, one look into the table an event. */
ep_status
ep_block_verifier_next(ep_block_verifier *blocks, size_t event)
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
    ep_address *slot = find(blocks, c->address[event]);
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

ep_status
ep_block_verifier_open(ep_block_verifier *blocks, const ep_verify_input *input, ep_verification *to)
{
    *blocks = (ep_block_verifier){
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
void
ep_block_verifier_finish(ep_block_verifier *blocks)
{
    int64_t end_ns = blocks->input->duration_ns;
    for (size_t i = 0; i < blocks->capacity; i++) {
        const ep_address *slot = &blocks->slots[i];
        if (is_suspect(slot)) {
            bool late = end_ns - time_of(blocks, slot->row) <= EP_PAIR_SKEW_NS;
            report_suspect(blocks, slot, late && blocks->input->thread_count > 1);
        }
    }
}

void
ep_block_verifier_close(ep_block_verifier *blocks)
{
    free(blocks->slots);
    free(blocks->moving);
    *blocks = (ep_block_verifier){0};
}
