#include "picked.h"

#include "memory.h"

typedef struct frame {
    int32_t key, function, caller;
    uint64_t call;            /* its row */
    int64_t start_ns;
    int64_t blocked_ns;       /* in calls inside that ended */
    uint64_t inside;
    uint8_t flags;            /* ep_call_flag, as far as they are known when it begins */
    bool is_charged;          /* its blocks are charged to the line of the choice */
} frame;

typedef struct ep_picked_thread {
    frame *frames;            /* [0] is the floor */
    size_t depth, capacity;
    ep_absent_begin absent;
    uint32_t *open;           /* by place: open calls of the function; NULL: none so far */
    ep_moved_block moved;
} picked_thread;

static uint64_t
order_of(const void *at)
{
    return ((const frame *)at)->call;
}

static bool
has_key(const void *unused, const void *at, uintptr_t key)
{
    (void)unused;
    return (uintptr_t)((const frame *)at)->key == key;
}

static bool
has(const uint8_t *mask, size_t count, int32_t function)
{
    return mask != NULL && function >= 0 && (size_t)function < count && mask[function] != 0;
}

/* ---- Calls that are picked ------------------------------------------------------------------- */

static uint32_t
place_of(const ep_picked *p, int32_t function)
{
    return function >= 0 && (size_t)function < p->choice.function_count ? p->place[function] : 0;
}

/* Whether a call stays after so many halvings; 32 of them would leave one in 4 billion. */
static bool
stays(uint64_t call, unsigned halvings)
{
    uint64_t hash = (call + 1) * UINT64_C(0x9e3779b97f4a7c15) >> 32;
    return (hash & ((UINT64_C(1) << halvings) - 1)) == 0;
}

/* Leaves calls of a function out: first short ones, and if too few are short, of all. */
static void
thin_out(ep_picked *p, int32_t function, uint32_t place)
{
    bool all = p->sums[function].kept > EP_PICKED_MOST / 2;
    unsigned halvings = ++p->halvings[place];
    size_t to = 0;
    for (size_t i = 0; i < p->count; i++) {
        const ep_picked_call *call = &p->calls[i];
        bool leaves = call->function == function && !stays(call->call, halvings) &&
                      (all || call->duration_ns < p->choice.kept_ns);
        p->held[place] -= leaves;
        p->calls[to] = *call;
        to += !leaves;
    }
    p->count = to;
}

static EP_CHECKED ep_status
pick(ep_picked *p, const ep_picked_call *call)
{
    uint32_t place = place_of(p, call->function) - 1;
    ep_picked_sums *sums = &p->sums[call->function];
    bool is_long = call->duration_ns >= p->choice.kept_ns;
    sums->calls += 1;
    sums->kept += is_long;
    sums->total_ns += call->duration_ns;
    bool all = sums->kept > EP_PICKED_MOST / 2;
    if (!stays(call->call, p->halvings[place]) && (all || !is_long)) {
        return EP_OK;
    }
    if (!ep_grow_raw((void **)&p->calls, &p->capacity, p->count + 1, sizeof *p->calls)) {
        return EP_NOMEM;
    }
    p->calls[p->count++] = *call;
    p->held[place] += 1;
    if (p->held[place] > EP_PICKED_MOST && p->halvings[place] < 32) {
        thin_out(p, call->function, place);
    }
    return EP_OK;
}

/* ---- Calls ----------------------------------------------------------------------------------- */

/* A call is charged like the nearest call above it that is own, or that own code made. */
static bool
is_charged(const ep_picked *p, const picked_thread *t, uint32_t site, const frame *call)
{
    const ep_picked_choice *choice = &p->choice;
    const ep_id_map *map = p->facts.map;
    bool is_own = has(choice->own, choice->function_count, call->function);
    bool by_own = has(choice->own, choice->function_count, call->caller);
    if (!is_own && !by_own && t->depth > 0) {
        return t->frames[t->depth].is_charged;
    }
    int32_t line = site < map->site_count ? map->site_line[site] : -1;
    return call->function == choice->function ||
           (!is_own && call->caller == choice->function && line == choice->line);
}

/* flags: EP_CALL_OPEN_AT_START or none. */
static EP_CHECKED ep_status
begin_call(ep_picked *p, picked_thread *t, unsigned kind, uint32_t site, int64_t time_ns, uint8_t flags)
{
    const ep_id_map *map = p->facts.map;
    int32_t function = ep_site_function(map, site);
    frame call = {
        .key = ep_call_key(function, ep_kinds_has(ep_kinds_c, kind)),
        .function = function,
        .caller = site < map->site_count ? map->site_caller[site] : -1,
        .call = p->begun++,
        .start_ns = time_ns,
        .flags = flags,
    };
    call.is_charged = p->choice.with_blocks && is_charged(p, t, site, &call);
    uint32_t place = place_of(p, function);
    if (place != 0) {
        if (t->open == NULL) {
            t->open = ep_calloc(p->place_count, sizeof *t->open);
        }
        if (t->open == NULL) {
            return EP_NOMEM;
        }
        call.flags |= t->open[place - 1]++ > 0 ? EP_CALL_RECURSIVE : 0;
    }
    if (!ep_grow_raw((void **)&t->frames, &t->capacity, t->depth + 2, sizeof *t->frames)) {
        return EP_NOMEM;
    }
    t->frames[++t->depth] = call;
    return EP_OK;
}

/* Ends the call on top. */
static EP_CHECKED ep_status
pop(ep_picked *p, picked_thread *t, int64_t time_ns, uint8_t flags)
{
    const frame *call = &t->frames[t->depth--];
    frame *around = &t->frames[t->depth];
    int64_t duration_ns = time_ns - call->start_ns, blocked_ns = call->blocked_ns;
    uint32_t place = place_of(p, call->function);
    blocked_ns += has(p->choice.blocking, p->choice.function_count, call->function) ? duration_ns : 0;
    around->blocked_ns += blocked_ns;
    around->inside += call->inside + 1;
    if (place == 0) {
        return EP_OK;
    }
    t->open[place - 1] -= 1;
    flags |= call->flags;
    if ((flags & p->choice.without) != 0) {
        return EP_OK;
    }
    return pick(p, &(ep_picked_call){
                       .call = call->call,
                       .inside = call->inside + 1,
                       .start_ns = call->start_ns,
                       .duration_ns = duration_ns,
                       .blocked_ns = blocked_ns,
                       .thread = (int32_t)(t - p->threads),
                       .function = call->function,
                       .caller = call->caller,
                       .flags = flags,
                   });
}

static EP_CHECKED ep_status
end_call(ep_picked *p, picked_thread *t, unsigned kind, uint32_t name, int64_t time_ns)
{
    int32_t key = ep_call_key(ep_name_function(p->facts.map, name), ep_kinds_has(ep_kinds_c, kind));
    const frame *found = &t->frames[t->depth];
    if (EP_UNLIKELY(t->depth == 0 || found->key != key)) {
        ep_frames frames = {found, t->frames, sizeof *t->frames};
        found = ep_find_begin(&t->absent, frames, (uintptr_t)key, p->begun, order_of, has_key, NULL);
        if (found == NULL) {
            return EP_OK;
        }
    }
    size_t depth = (size_t)(found - t->frames);
    ep_status status = EP_OK;
    while (t->depth > depth && status == EP_OK) {
        status = pop(p, t, time_ns, EP_CALL_END_UNSEEN);
    }
    uint8_t flags = (ep_kinds_has(EP_KINDS_RAISED, kind) ? EP_CALL_RAISED : 0) |
                    (kind == EP_KIND_YIELD ? EP_CALL_YIELDED : 0);
    return status != EP_OK ? status : pop(p, t, time_ns, flags);
}

/* ---- The fold -------------------------------------------------------------------------------- */

static EP_CHECKED ep_status
open_places(ep_picked *p)
{
    size_t count = p->choice.function_count;
    p->place = ep_calloc(count, sizeof *p->place);
    p->sums = ep_calloc(count, sizeof *p->sums);
    for (size_t i = 0; p->place != NULL && i < count; i++) {
        p->place[i] = p->choice.functions[i] != 0 ? (uint32_t)++p->place_count : 0;
    }
    p->held = ep_calloc(p->place_count, sizeof *p->held);
    p->halvings = ep_calloc(p->place_count, sizeof *p->halvings);
    bool has_memory = p->place != NULL && p->sums != NULL && p->held != NULL && p->halvings != NULL;
    return has_memory ? EP_OK : EP_NOMEM;
}

static ep_status
picked_begin(ep_fold *fold, const ep_fold_facts *facts)
{
    ep_picked *p = (ep_picked *)fold;
    p->facts = *facts;
    p->threads = ep_calloc(facts->thread_count, sizeof *p->threads);
    ep_status status = p->threads != NULL ? open_places(p) : EP_NOMEM;
    if (status == EP_OK && p->choice.with_blocks) {
        status = ep_followed_open(&p->blocks, facts->thread_count);
    }
    for (size_t thread = 0; thread < facts->thread_count && status == EP_OK; thread++) {
        picked_thread *t = &p->threads[thread];
        const ep_open_stack *open = facts->open_at_start ? &facts->open_at_start[thread] : NULL;
        int64_t from_ns = facts->open_from_ns != NULL ? facts->open_from_ns[thread] : 0;
        if (!ep_grow((void **)&t->frames, &t->capacity, 2, sizeof *t->frames)) {
            return EP_NOMEM;
        }
        t->frames[0] = (frame){.key = EP_KEY_FLOOR};
        for (size_t i = 0; open != NULL && i < open->depth && status == EP_OK; i++) {
            status = begin_call(p, t, open->calls[i].kind, open->calls[i].site_id, from_ns,
                                EP_CALL_OPEN_AT_START);
        }
    }
    return status;
}

static EP_CHECKED ep_status
next_block(ep_picked *p, picked_thread *t, const ep_columns *c, size_t event)
{
    unsigned kind = c->kind[c->alloc_row[event]];
    /* As in the table of allocations: a block without bytes is none, but its row counts. */
    bool counts = t->depth > 0 && t->frames[t->depth].is_charged && c->size[event] > 0;
    ep_block_note note = {counts ? 2 : 1, (uint32_t)p->births};
    ep_live_block ended;
    p->births += ep_block_role_of(kind) == EP_BLOCK_BIRTH;
    return ep_follow_block(&p->blocks, &t->moved, c, event, note, &ended);
}

static ep_status
picked_events(ep_fold *fold, const ep_batch *batch)
{
    ep_picked *p = (ep_picked *)fold;
    const ep_columns *c = batch->columns;
    size_t event = batch->alloc_from;
    for (size_t row = batch->from; row < batch->to; row++) {
        unsigned kind = c->kind[row];
        picked_thread *t = &p->threads[c->thread[row]];
        ep_status status = EP_OK;
        if (ep_kind_has_name(kind)) {
            status = end_call(p, t, kind, c->id[row], c->time_ns[row]);
        } else if (ep_kinds_has(ep_kinds_that_open_calls, kind)) {
            status = begin_call(p, t, kind, c->id[row], c->time_ns[row], 0);
        }
        if (event < c->alloc_count && c->alloc_row[event] == row) {
            status = p->choice.with_blocks && status == EP_OK ? next_block(p, t, c, event) : status;
            event++;
        }
        if (EP_UNLIKELY(status != EP_OK)) {
            return status;
        }
    }
    return EP_OK;
}

static ep_status
picked_end(ep_fold *fold)
{
    ep_picked *p = (ep_picked *)fold;
    ep_status status = EP_OK;
    for (size_t thread = 0; thread < p->facts.thread_count; thread++) {
        const int64_t *until_ns = p->facts.open_until_ns;
        int64_t end_ns = until_ns != NULL ? until_ns[thread] : p->facts.length_ns;
        while (p->threads[thread].depth > 0 && status == EP_OK) {
            status = pop(p, &p->threads[thread], end_ns, EP_CALL_OPEN_AT_END);
        }
    }
    for (size_t i = 0; p->choice.with_blocks && i < p->blocks.live.end; i++) {
        const ep_live_entry *entry = &p->blocks.live.entries[i];
        if (entry->origin == 2) {
            p->quarters[(uint64_t)entry->call * 4 / p->births] += 1;
        }
    }
    return status;
}

static void
picked_clear(ep_fold *fold)
{
    ep_picked *p = (ep_picked *)fold;
    for (size_t i = 0; p->threads != NULL && i < p->facts.thread_count; i++) {
        free(p->threads[i].frames);
        free(p->threads[i].open);
    }
    free(p->threads);
    free(p->calls);
    free(p->sums);
    free(p->place);
    free(p->held);
    free(p->halvings);
    ep_followed_clear(&p->blocks);
    ep_picked_open(p, &p->choice);
}

void
ep_picked_open(ep_picked *picked, const ep_picked_choice *choice)
{
    static const ep_fold_type type = {
        .name = "picked",
        .begin = picked_begin,
        .events = picked_events,
        .end = picked_end,
        .clear = picked_clear,
    };
    ep_picked_choice copy = *choice;    /* it may be the fold's own */
    *picked = (ep_picked){.fold = {.type = &type}, .choice = copy};
}
