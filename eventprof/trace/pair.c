/* Pairs calls with their ends; the contract is in pair.h. summary.c has the statistics of calls. */
#include "array.h"
#include "pair.h"

/* ---- The stacks ------------------------------------------------------------------------------ */

typedef struct frame {
    int32_t call;    /* grows from frame to frame: parents come first */
    int32_t key;
} frame;

/* A thread's open calls: frames[1] .. frames[depth], the outermost first. frames[0] is the floor,
 * {-1, EP_KEY_FLOOR}. */
typedef struct call_stack {
    frame *frames;
    size_t depth;
    size_t capacity;
    ep_absent_begin absent;
} call_stack;

typedef struct stack_step {
    const int32_t *functions;    /* by id; `limit` stands for all ids beyond */
    uint32_t limit;
    int32_t is_c;
    ep_call_effect effect;
    uint8_t flags;               /* for the call that it closes */
} stack_step;

typedef struct call_pairing {
    ep_calls calls;             /* arrays with one element to spare, see pair_run() */
    int32_t *site_functions;    /* as the map's, with a -1 at the end */
    int32_t *name_functions;
    call_stack *stacks;         /* by thread */
    stack_step steps[EP_KIND_COUNT];
} call_pairing;

static void
call_pairing_clear(call_pairing *pairing, size_t thread_count)
{
    for (size_t thread = 0; pairing->stacks != NULL && thread < thread_count; thread++) {
        free(pairing->stacks[thread].frames);
    }
    free(pairing->stacks);
    free(pairing->site_functions);
    free(pairing->name_functions);
    ep_calls_clear(&pairing->calls);
}

/* Room for `more` frames above the top, and one that may be written and not counted. */
static EP_CHECKED ep_status
stack_reserve(call_stack *stack, size_t more)
{
    size_t wanted = stack->depth + more + 2;
    if (EP_LIKELY(wanted <= stack->capacity)) {
        return EP_OK;
    }
    if (!ep_grow_raw((void **)&stack->frames, &stack->capacity, wanted, sizeof *stack->frames)) {
        return EP_NOMEM;
    }
    stack->frames[0] = (frame){.call = -1, .key = EP_KEY_FLOOR};
    return EP_OK;
}

/* Returns: new, `functions` with a -1 at the end. Fails: NULL, out of memory. */
static int32_t *
with_unknown(const int32_t *functions, size_t count)
{
    int32_t *copy = ep_array_new(count + 1, sizeof *copy);
    if (copy != NULL) {
        if (count > 0) {
            memcpy(copy, functions, count * sizeof *copy);
        }
        copy[count] = -1;
    }
    return copy;
}

static void
fill_steps(call_pairing *pairing, const ep_id_map *map)
{
    static const int32_t unknown = -1;

    for (unsigned kind = 0; kind < EP_KIND_COUNT; kind++) {
        stack_step *step = &pairing->steps[kind];
        step->effect = ep_call_effect_of(kind);
        step->is_c = ep_kinds_has(ep_kinds_c, kind);
        step->functions = &unknown;
        if (step->effect.opens) {
            step->functions = pairing->site_functions;
            step->limit = (uint32_t)map->site_count;
        }
        if (step->effect.closes) {
            step->functions = pairing->name_functions;
            step->limit = (uint32_t)map->name_count;
            step->flags |= ep_kinds_has(EP_KINDS_RAISED, kind) ? EP_CALL_RAISED : 0;
            step->flags |= kind == EP_KIND_YIELD ? EP_CALL_YIELDED : 0;
        }
    }
}

static int32_t
key_of(const stack_step *step, uint32_t id)
{
    return ep_call_key(step->functions[id < step->limit ? id : step->limit], step->is_c);
}

/* ---- Before, during and after the window ----------------------------------------------------- */

static size_t
count_before(const ep_pair_input *input)
{
    size_t count = 0;
    if (input->open_at_start != NULL) {
        for (size_t thread = 0; thread < input->thread_count; thread++) {
            count += input->open_at_start[thread].depth;
        }
    }
    return count;
}

static EP_CHECKED ep_status
call_pairing_open(call_pairing *pairing, const ep_pair_input *input)
{
    const ep_columns *columns = input->columns;
    ep_calls *calls = &pairing->calls;
    size_t before_count = count_before(input);
    if (before_count > EP_PAIR_MAX || columns->count > EP_PAIR_MAX - before_count) {
        return EP_ARGUMENT;
    }
    /* Room as if every row opened a call; elements that are never written cost no memory. One spare element
     * is for pair_run(). */
    size_t room = before_count + columns->count + 1;

    calls->input = input;
    calls->open_row = ep_column_new(room, sizeof *calls->open_row);
    calls->close_row = ep_column_new(room, sizeof *calls->close_row);
    calls->parent = ep_column_new(room, sizeof *calls->parent);
    calls->flags = ep_column_new(room, sizeof *calls->flags);
    calls->row_call = ep_column_new(columns->count, sizeof *calls->row_call);
    calls->before = ep_array_new(before_count, sizeof *calls->before);
    pairing->site_functions = with_unknown(input->map->site_function, input->map->site_count);
    pairing->name_functions = with_unknown(input->map->name_function, input->map->name_count);
    pairing->stacks = ep_calloc(input->thread_count, sizeof *pairing->stacks);
    if (calls->open_row == NULL || calls->close_row == NULL || calls->parent == NULL ||
        calls->flags == NULL || calls->row_call == NULL || calls->before == NULL ||
        pairing->site_functions == NULL || pairing->name_functions == NULL ||
        pairing->stacks == NULL) {
        return EP_NOMEM;
    }
    fill_steps(pairing, input->map);
    return EP_OK;
}

/* The calls that were open at the window's start: the first of all calls, and the first frames. */
static EP_CHECKED ep_status
push_before(call_pairing *pairing)
{
    ep_calls *calls = &pairing->calls;
    const ep_pair_input *input = calls->input;

    for (size_t thread = 0; thread < input->thread_count; thread++) {
        call_stack *stack = &pairing->stacks[thread];
        const ep_open_stack *open = input->open_at_start ? &input->open_at_start[thread] : NULL;
        size_t depth = open != NULL ? open->depth : 0;
        if (stack_reserve(stack, depth) != EP_OK) {
            return EP_NOMEM;
        }
        for (size_t i = 0; i < depth; i++) {
            const ep_open_call *from = &open->calls[i];
            size_t call = calls->count++;
            calls->before[calls->before_count++] = (ep_call_before){
                .thread = (int32_t)thread,
                .site = from->site_id,
                .kind = from->kind,
            };
            calls->open_row[call] = EP_ROW_NONE;
            calls->flags[call] = 0;
            calls->parent[call] = stack->frames[stack->depth].call;
            stack->frames[++stack->depth] = (frame){
                .call = (int32_t)call,
                .key = key_of(&pairing->steps[from->kind], from->site_id),
            };
        }
    }
    return EP_OK;
}

static uint64_t
order_of(const void *at)
{
    return (uint64_t)((const frame *)at)->call;
}

static bool
has_key(const void *unused, const void *at, uintptr_t key)
{
    (void)unused;
    return (uintptr_t)((const frame *)at)->key == key;
}

/* Handles an end that does not fit the call on top; see ep_pair_calls().
 * Returns: the new top. */
static EP_COLD frame *
close_below_top(ep_calls *calls, call_stack *stack, frame *top, int32_t key, uint8_t flags,
                uint32_t row, int32_t next_call)
{
    ep_frames frames = {top, stack->frames, sizeof *top};
    const frame *begin = ep_find_begin(&stack->absent, frames, (uintptr_t)key, (uint64_t)next_call,
                                       order_of, has_key, NULL);
    if (begin == NULL) {
        calls->row_call[row] = -1;
        calls->unmatched_count++;
        return top;
    }
    frame *found = &stack->frames[begin - stack->frames];
    for (; top > found; top--) {
        calls->close_row[top->call] = row;
        calls->flags[top->call] = EP_CALL_END_UNSEEN;
        calls->end_unseen_count++;
    }
    calls->close_row[found->call] = row;
    calls->flags[found->call] = flags;
    calls->row_call[row] = found->call;
    return found - 1;
}

/* HOT, budget 3 ns an event. Rows from .. to - 1 are all of this stack's thread, which has room.
 *
 * Each row, whatever its kind is, writes the begin of the next call, `next`, a frame above the top, and an
 * end: for the call on top if the row closes it, else for `next`. Then next and top move or stay. Elements
 * that were written without need are overwritten by the next begin, or are the spare element of all
 * arrays. */
static void
pair_run(call_pairing *pairing, call_stack *stack, size_t from, size_t to)
{
    ep_calls *calls = &pairing->calls;
    const uint8_t *kinds = calls->input->columns->kind;
    const uint32_t *ids = calls->input->columns->id;
    uint32_t *open_row = calls->open_row;
    uint32_t *close_row = calls->close_row;
    int32_t *parent = calls->parent;
    uint8_t *flags = calls->flags;
    int32_t *row_call = calls->row_call;
    frame *top = &stack->frames[stack->depth];
    int32_t next = (int32_t)calls->count;

    for (size_t row = from; row < to; row++) {
        const stack_step *step = &pairing->steps[kinds[row]];
        int32_t key = key_of(step, ids[row]);
        int32_t call = top->call;

        if (EP_UNLIKELY(ep_ends_below_top(top->key, key, step->effect.closes))) {
            top = close_below_top(calls, stack, top, key, step->flags, (uint32_t)row, next);
            continue;
        }
        int32_t ended = ep_choose(step->effect.closes, call, next);
        row_call[row] = ep_choose(step->effect.opens, next, call);
        open_row[next] = (uint32_t)row;
        parent[next] = call;
        close_row[ended] = (uint32_t)row;
        flags[ended] = step->flags;
        top[1].call = next;
        top[1].key = key;
        top += step->effect.closes - step->effect.opens;
        next -= step->effect.opens;
    }
    calls->count = (size_t)next;
    stack->depth = (size_t)(top - stack->frames);
}

#define RUN_STRIDE 64

/* The end of the longest stretch of rows from `from` that are all of one thread. */
static size_t
run_end(const int32_t *threads, size_t from, size_t limit)
{
    size_t to = from + 1;
    while (to < limit && threads[to] == threads[from]) {
        /* Long runs in strides, which memcmp makes of vectors (0.1 ns a row against 0.6). */
        bool can_stride = to - from >= RUN_STRIDE && limit - to >= RUN_STRIDE;
        bool is_same = can_stride && memcmp(&threads[to - RUN_STRIDE], &threads[to],
                                            RUN_STRIDE * sizeof *threads) == 0;
        to += is_same ? RUN_STRIDE : 1;
    }
    return to;
}

static EP_CHECKED ep_status
pair_rows(call_pairing *pairing, const ep_progress *progress)
{
    const ep_pair_input *input = pairing->calls.input;
    const ep_columns *columns = input->columns;
    const int32_t *threads = columns->thread;
    size_t to;

    for (size_t from = 0; from < columns->count; from = to) {
        size_t limit = (from / EP_PROGRESS_ROWS + 1) * EP_PROGRESS_ROWS;
        if (limit > columns->count) {
            limit = columns->count;
        }
        to = input->thread_count == 1 ? limit : run_end(threads, from, limit);
        call_stack *stack = &pairing->stacks[threads[from]];
        if (stack_reserve(stack, to - from) != EP_OK) {
            return EP_NOMEM;
        }
        pair_run(pairing, stack, from, to);
        if (to == limit && !ep_progress_tell(progress, to, columns->count)) {
            return EP_STATE;
        }
    }
    return EP_OK;
}

/* Calls that are still on the stacks are open at the end. */
static void
leave_open(call_pairing *pairing)
{
    ep_calls *calls = &pairing->calls;
    for (size_t thread = 0; thread < calls->input->thread_count; thread++) {
        const call_stack *stack = &pairing->stacks[thread];
        for (size_t i = 1; i <= stack->depth; i++) {
            calls->close_row[stack->frames[i].call] = EP_ROW_NONE;
            calls->flags[stack->frames[i].call] = EP_CALL_OPEN_AT_END;
        }
    }
    for (size_t call = 0; call < calls->before_count; call++) {
        calls->flags[call] |= EP_CALL_OPEN_AT_START;
    }
}

ep_status
ep_pair_calls(const ep_pair_input *input, const ep_progress *progress, ep_calls *out)
{
    call_pairing pairing = {0};
    ep_status status = call_pairing_open(&pairing, input);
    if (status == EP_OK) {
        status = push_before(&pairing);
    }
    if (status == EP_OK) {
        status = pair_rows(&pairing, progress);
    }
    if (status == EP_OK) {
        leave_open(&pairing);
        *out = pairing.calls;
        pairing.calls = (ep_calls){0};
    }
    call_pairing_clear(&pairing, input->thread_count);
    return status;
}

void
ep_calls_clear(ep_calls *calls)
{
    ep_column_free(calls->open_row);
    ep_column_free(calls->close_row);
    ep_column_free(calls->parent);
    ep_column_free(calls->flags);
    ep_column_free(calls->row_call);
    ep_column_free(calls->before);
    ep_column_free(calls->start);
    ep_column_free(calls->duration);
    ep_column_free(calls->self);
    ep_column_free(calls->thread);
    ep_column_free(calls->function);
    ep_column_free(calls->site);
    ep_column_free(calls->kind);
    ep_column_free(calls->depth);
    *calls = (ep_calls){0};
}

/* ---- Columns --------------------------------------------------------------------------------- */

/* The calls of thread 0 in order, then those of thread 1, and so on.
 * Returns: new. Fails: NULL, out of memory. */
static uint32_t *
calls_by_thread(const ep_calls *calls)
{
    size_t thread_count = calls->input->thread_count;
    size_t *next = ep_calloc(thread_count + 1, sizeof *next);
    uint32_t *order = ep_column_new(calls->count, sizeof *order);
    if (next == NULL || order == NULL) {
        free(next);
        ep_column_free(order);
        return NULL;
    }
    for (size_t call = 0; call < calls->count; call++) {
        ep_column_row(call);
        next[ep_call_thread(calls, call) + 1]++;
    }
    for (size_t thread = 1; thread < thread_count; thread++) {
        next[thread] += next[thread - 1];
    }
    for (size_t call = 0; call < calls->count; call++) {
        ep_column_row(call);
        order[next[ep_call_thread(calls, call)]++] = (uint32_t)call;
    }
    free(next);
    return order;
}

/* Sets EP_CALL_RECURSIVE. Thread by thread, because the count of open calls of a function is a
 * thread's own, and an array of all threads by all functions can be larger than the trace. */
static EP_CHECKED ep_status
mark_recursive(ep_calls *calls)
{
    size_t function_count = calls->input->map->function_count;
    uint32_t *order = calls->input->thread_count > 1 ? calls_by_thread(calls) : NULL;
    int32_t *open = ep_calloc(function_count + 1, sizeof *open);
    if (open == NULL || (order == NULL && calls->input->thread_count > 1)) {
        ep_column_free(order);
        free(open);
        return EP_NOMEM;
    }
    int32_t innermost = -1;
    for (size_t i = 0; i < calls->count; i++) {
        ep_column_row(i);
        int32_t call = order != NULL ? (int32_t)order[i] : (int32_t)i;
        /* Calls inside of the parent have ended. A thread's first call has parent -1. */
        while (innermost != calls->parent[call]) {
            open[calls->function[innermost] + 1]--;
            innermost = calls->parent[innermost];
        }
        if (open[calls->function[call] + 1]++ > 0) {
            calls->flags[call] |= EP_CALL_RECURSIVE;
        }
        innermost = call;
    }
    ep_column_free(order);
    free(open);
    calls->filled |= EP_CALLS_RECURSIVE;
    return EP_OK;
}

/* A call's time less that of its children. */
static EP_CHECKED ep_status
fill_self(ep_calls *calls)
{
    calls->self = ep_column_new(calls->count, sizeof *calls->self);
    if (calls->self == NULL) {
        return EP_NOMEM;
    }
    for (size_t from = 0, end; from < calls->count; from = end) {
        end = ep_column_part(from, calls->count);
        for (size_t call = from; call < end; call++) {
            calls->self[call] = calls->duration[call];
            if (calls->parent[call] >= 0) {
                calls->self[calls->parent[call]] -= calls->duration[call];
            }
        }
    }
    calls->filled |= EP_CALLS_SELF;
    return EP_OK;
}

ep_status
ep_calls_fill(ep_calls *calls, unsigned wanted)
{
    if ((wanted & EP_CALLS_SELF) != 0) {
        wanted |= EP_CALLS_DURATION;
    }
    if ((wanted & EP_CALLS_RECURSIVE) != 0) {
        wanted |= EP_CALLS_FUNCTION;
    }
    EP_COLUMN_FILL(calls, start, wanted & EP_CALLS_START,
                   ep_call_start(calls, i));
    EP_COLUMN_FILL(calls, duration, wanted & EP_CALLS_DURATION,
                   ep_call_end(calls, i) - ep_call_start(calls, i));
    EP_COLUMN_FILL(calls, thread, wanted & EP_CALLS_THREAD,
                   ep_call_thread(calls, i));
    EP_COLUMN_FILL(calls, function, wanted & EP_CALLS_FUNCTION,
                   ep_call_function(calls, i));
    EP_COLUMN_FILL(calls, site, wanted & EP_CALLS_SITE,
                   ep_call_site(calls, i));
    EP_COLUMN_FILL(calls, kind, wanted & EP_CALLS_KIND,
                   ep_call_kind(calls, i));
    EP_COLUMN_FILL(calls, depth, wanted & EP_CALLS_DEPTH,
                   calls->parent[i] < 0 ? 0 : calls->depth[calls->parent[i]] + 1);

    unsigned missing = wanted & ~calls->filled;
    if ((missing & EP_CALLS_SELF) != 0 && fill_self(calls) != EP_OK) {
        return EP_NOMEM;
    }
    if ((missing & EP_CALLS_RECURSIVE) != 0 && mark_recursive(calls) != EP_OK) {
        return EP_NOMEM;
    }
    return EP_OK;
}

void
ep_calls_row_depth(const ep_calls *calls, size_t first, size_t count, int32_t *out)
{
    const uint8_t *kinds = calls->input->columns->kind;

    for (size_t i = 0; i < count; i++) {
        int32_t call = calls->row_call[first + i];
        const ep_kind_info *info = &ep_kinds[kinds[first + i]];
        if (call < 0) {
            out[i] = ep_kind_has_name(kinds[first + i]) ? -1 : 0;
        } else {
            out[i] = calls->depth[call] + (info->form != EP_FORM_CALL);
        }
    }
}
