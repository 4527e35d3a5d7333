#include "filter_apply.h"

#include <string.h>

#include "closing.h"
#include "array.h"

/* The filter's verdicts, computed once for each id. */
typedef struct verdicts {
    const ep_filter *filter;
    uint8_t *of_site, *of_name;    /* 0: not computed; 1: not wanted; 2: wanted */
} verdicts;

static bool
wants_site(verdicts *known, uint32_t site_id)
{
    uint8_t *verdict = &known->of_site[site_id];
    if (*verdict == 0) {
        const ep_site *site = ep_site_get(site_id);
        *verdict = site->callee == 0 || ep_filter_wants(known->filter, site->callee, site->caller)
                       ? 2
                       : 1;
    }
    return *verdict == 2;
}

static bool
wants_name(verdicts *known, uint32_t name_id)
{
    uint8_t *verdict = &known->of_name[name_id];
    if (*verdict == 0) {
        *verdict = name_id == 0 || ep_filter_wants(known->filter, name_id, 0) ? 2 : 1;
    }
    return *verdict == 2;
}

static bool
wants_audit(verdicts *known, uint32_t site_id)
{
    uint8_t *verdict = &known->of_site[site_id];
    if (*verdict == 0) {
        const ep_name *name = ep_name_get(ep_site_callee(site_id));
        *verdict = ep_filter_wants_audit(known->filter, ep_string_get(name->qualname)) ? 2 : 1;
    }
    return *verdict == 2;
}

/* Whether it is not a call of a function but a span or a run of the collector: filters keep it, and it does
 * not count for depth. */
static bool
is_no_function(uint32_t name_id)
{
    uint8_t kind = ep_name_get(name_id)->kind;
    return kind == EP_NAME_USER || kind == EP_NAME_GC || kind == EP_NAME_HPY;
}

#define NO_ROW SIZE_MAX

/* A call that is open. */
typedef struct open_call {
    uint32_t site;
    uint32_t inside;    /* depth of a call made from here */
    bool wanted;        /* by name */
    bool no_function;   /* a span, a run of the collector: no function's call */
    bool stays;         /* and not too deep */
    size_t row;         /* NO_ROW: before the rows */
} open_call;

typedef struct open_calls {
    open_call *at;
    size_t depth, capacity;
} open_calls;

/* The state while rows are filtered. */
typedef struct work {
    verdicts known;
    ep_columns *columns;
    open_calls *threads;
    uint8_t *drop;      /* index = row */
    /* For each row of an event inside of a function: 1 + the row of its call; 0: none, or another row.
     * NULL: no call is dropped after the events in it were seen. */
    size_t *inside;
    ep_filtered counts;
} work;

/* As ep_open_stack_apply(); `before`: it was open when the window began. False: no memory. */
static bool
open_one(work *w, open_calls *stack, uint32_t site, size_t row, bool before)
{
    if (!ep_grow((void **)&stack->at, &stack->capacity, stack->depth + 1, sizeof *stack->at)) {
        return false;
    }
    const ep_filter *filter = w->known.filter;
    uint32_t depth = stack->depth > 0 ? stack->at[stack->depth - 1].inside : 0;
    open_call call = {.site = site, .row = row, .no_function = is_no_function(ep_site_callee(site))};
    call.wanted = call.no_function || wants_site(&w->known, site);
    call.stays = call.no_function || (call.wanted && (before || !filter->limits_depth ||
                                                      depth <= filter->max_depth));
    call.inside = depth + (call.wanted && !before && !call.no_function);
    stack->at[stack->depth++] = call;
    return true;
}

static void
drop_open(work *w, const open_call *call)
{
    if (call->row != NO_ROW) {
        w->drop[call->row] = 1;
        w->counts.rows += !call->wanted;
        w->counts.deep_calls += call->wanted;
    }
}

/* Ends the calls that a closing row ends, and marks whether the row is dropped. */
static void
close_one(work *w, open_calls *stack, size_t row)
{
    uint32_t name = w->columns->id[row];
    const int64_t *time_ns = w->columns->time_ns;
    size_t at = EP_CLOSED_CALL(stack->at, site, stack->depth, name);
    if (at-- == 0) {
        if (!is_no_function(name) && !wants_name(&w->known, name)) {
            w->drop[row] = 1;
            w->counts.rows += 1;
        }
        return;
    }
    for (size_t i = at; i < stack->depth; i++) {
        open_call *call = &stack->at[i];
        if (call->stays && !call->no_function && call->row != NO_ROW &&
            time_ns[row] - time_ns[call->row] < w->known.filter->min_duration_ns) {
            w->drop[call->row] = 1;
            w->counts.short_calls += 1;
            call->stays = false;
        }
    }
    if (!stack->at[at].stays) {
        w->drop[row] = 1;
        w->counts.rows += !stack->at[at].wanted;
    }
    stack->depth = at;
}

/* An event inside of a function is dropped if its call is dropped. */
static void
judge_inside(work *w, const open_calls *stack, size_t row)
{
    uint32_t name = ep_site_get(w->columns->id[row])->caller;
    const open_call *call = stack->depth > 0 ? &stack->at[stack->depth - 1] : NULL;
    if (call != NULL && ep_site_callee(call->site) != name) {
        call = NULL;
    }
    if (!wants_name(&w->known, name)) {
        w->drop[row] = 1;
        w->counts.rows += 1;
    } else if (call != NULL && !call->stays) {
        w->drop[row] = 1;
    } else if (call != NULL && call->row != NO_ROW && w->inside != NULL) {
        w->inside[row] = call->row + 1;
    }
}

static void
drop_inside_of_short_calls(work *w)
{
    for (size_t row = 0; w->inside != NULL && row < w->columns->count; row++) {
        if (w->inside[row] != 0 && w->drop[w->inside[row] - 1]) {
            w->drop[row] = 1;
        }
    }
}

static bool
judge_rows(work *w)
{
    const ep_columns *c = w->columns;
    for (size_t row = 0; row < c->count; row++) {
        ep_column_row(row);
        const ep_kind_info *info = &ep_kinds[c->kind[row]];
        open_calls *stack = &w->threads[c->thread[row]];
        if (c->kind[row] == EP_KIND_AUDIT) {
            /* It may be an audit event that only another recorder asked for. */
            w->drop[row] = !wants_audit(&w->known, c->id[row]);
        }
        if (ep_kind_is_inside(c->kind[row])) {
            judge_inside(w, stack, row);
        }
        if (info->form != EP_FORM_CALL) {
            continue;
        }
        if (info->pairing == EP_PAIRING_CLOSES) {
            close_one(w, stack, row);
            continue;
        }
        if (!open_one(w, stack, c->id[row], row, false)) {
            return false;
        }
        if (!stack->at[stack->depth - 1].stays) {
            drop_open(w, &stack->at[stack->depth - 1]);
        }
    }
    drop_inside_of_short_calls(w);
    return true;
}

/* Pushes the calls that were open where the rows begin. Calls whose begin a ring lost are not `before`. */
static bool
begin_thread(work *w, open_calls *stack, const ep_open_stack *open, uint8_t *stays)
{
    for (size_t i = 0; i < open->depth; i++) {
        if (!open_one(w, stack, open->calls[i].site_id, NO_ROW, open->calls[i].before)) {
            return false;
        }
        stays[i] = stack->at[i].stays;
    }
    return true;
}

static void
filter_stack(ep_open_stack *stack, const uint8_t *stays)
{
    size_t kept = 0;
    for (size_t i = 0; i < stack->depth; i++) {
        if (stays[i]) {
            stack->calls[kept++] = stack->calls[i];
        }
    }
    stack->depth = kept;
}

static bool
any_inside(const ep_columns *columns)
{
    for (size_t row = 0; row < columns->count; row++) {
        ep_column_row(row);
        if (ep_kind_is_inside(columns->kind[row])) {
            return true;
        }
    }
    return false;
}

ep_status
ep_filter_apply(const ep_filter *filter, ep_decoded *decoded, ep_filtered *dropped)
{
    size_t thread_count = decoded->thread_count, open_count = 0;
    for (size_t i = 0; i < thread_count; i++) {
        open_count += decoded->threads[i].open.depth;
    }
    work w = {.known = {.filter = filter,
                        .of_site = ep_calloc(ep_site_count(), 1),
                        .of_name = ep_calloc(ep_name_count(), 1)},
              .columns = &decoded->columns,
              .threads = ep_calloc(thread_count, sizeof *w.threads),
              .drop = ep_column_new_zeroed(decoded->columns.count, 1)};
    uint8_t *stays = ep_calloc(open_count, 1);
    bool done = w.known.of_site != NULL && w.known.of_name != NULL && w.threads != NULL &&
                w.drop != NULL && stays != NULL;
    if (done && filter->min_duration_ns > 0 && any_inside(&decoded->columns)) {
        w.inside = ep_column_new_zeroed(decoded->columns.count, sizeof *w.inside);
        done = w.inside != NULL;
    }
    for (size_t i = 0, first = 0; i < thread_count && done; i++) {
        const ep_open_stack *open = &decoded->threads[i].open;
        done = begin_thread(&w, &w.threads[i], open, &stays[first]);
        first += open->depth;
    }
    done = done && judge_rows(&w);
    if (done) {
        ep_decoded_keep_rows(decoded, w.drop);
        for (size_t i = 0, first = 0; i < thread_count; i++) {
            size_t depth = decoded->threads[i].open.depth;
            filter_stack(&decoded->threads[i].open, &stays[first]);
            first += depth;
        }
        *dropped = w.counts;
    }
    for (size_t i = 0; w.threads != NULL && i < thread_count; i++) {
        free(w.threads[i].at);
    }
    free(w.threads);
    ep_column_free(w.drop);
    ep_column_free(w.inside);
    free(stays);
    free(w.known.of_site);
    free(w.known.of_name);
    return done ? EP_OK : EP_NOMEM;
}
