#include "filter.h"

#include <string.h>

#include "memory.h"

/* ---- Globs ----------------------------------------------------------------------------------- */

/* Whether `byte` is in the set that `pattern` begins with; *behind: one past its ']'. A set that is
 * not closed matches a literal '['. */
static bool
in_set(const char *pattern, unsigned char byte, const char **behind)
{
    const char *at = pattern + 1;
    bool negated = *at == '!', found = false;
    at += negated;
    const char *first = at;
    for (; *at != 0 && (*at != ']' || at == first); at++) {
        unsigned char low = (unsigned char)*at, high = low;
        if (at[1] == '-' && at[2] != 0 && at[2] != ']') {
            high = (unsigned char)at[2];
            at += 2;
        }
        found = found || (low <= byte && byte <= high);
    }
    if (*at == 0) {
        *behind = pattern + 1;
        return byte == '[';
    }
    *behind = at + 1;
    return found != negated;
}

bool
ep_glob_match(const char *pattern, ep_text text)
{
    /* Only the last star is ever tried again: what an earlier one took was the least, and that is
     * never worse. */
    const char *star = NULL;
    size_t star_took = 0, at = 0;
    while (at < text.bytes) {
        const char *next = pattern + 1;
        unsigned char byte = (unsigned char)text.at[at];
        bool matches;
        if (*pattern == '*') {
            star = next;
            star_took = at;
            pattern = next;
            continue;
        }
        if (*pattern == '[') {
            matches = in_set(pattern, byte, &next);
        } else {
            matches = *pattern == '?' || (*pattern != 0 && (unsigned char)*pattern == byte);
        }
        if (matches) {
            pattern = next;
            at += 1;
        } else if (star != NULL) {
            pattern = star;
            at = ++star_took;
        } else {
            return false;
        }
    }
    while (*pattern == '*') {
        pattern += 1;
    }
    return *pattern == 0;
}

/* ---- Filters --------------------------------------------------------------------------------- */

static const char *const area_words[EP_AREA_COUNT] = {
    [EP_AREA_STDLIB] = "stdlib",
    [EP_AREA_SITE_PACKAGES] = "site-packages",
};

static ep_area
area_of_word(const char *pattern)
{
    for (int area = 1; area < EP_AREA_COUNT; area++) {
        if (strcmp(pattern, area_words[area]) == 0) {
            return (ep_area)area;
        }
    }
    return EP_AREA_NONE;
}

static ep_status
add_pattern(char ***list, size_t *count, size_t *capacity, const char *pattern)
{
    size_t bytes = strlen(pattern) + 1;
    if (!ep_grow((void **)list, capacity, *count + 1, sizeof **list)) {
        return EP_NOMEM;
    }
    char *copy = ep_calloc(bytes, 1);
    if (copy == NULL) {
        return EP_NOMEM;
    }
    memcpy(copy, pattern, bytes);
    (*list)[(*count)++] = copy;
    return EP_OK;
}

ep_status
ep_filter_add(ep_filter *filter, bool include, const char *pattern)
{
    ep_area area = area_of_word(pattern);
    if (area != EP_AREA_NONE) {
        *(include ? &filter->include_areas : &filter->exclude_areas) |= 1u << area;
        return EP_OK;
    }
    char ***list = include ? &filter->include : &filter->exclude;
    size_t *count = include ? &filter->include_count : &filter->exclude_count;
    size_t *capacity = include ? &filter->include_capacity : &filter->exclude_capacity;
    return add_pattern(list, count, capacity, pattern);
}

ep_status
ep_filter_add_audit(ep_filter *filter, const char *pattern)
{
    return add_pattern(&filter->audit, &filter->audit_count, &filter->audit_capacity, pattern);
}

bool
ep_filter_wants_audit(const ep_filter *filter, ep_text event)
{
    bool wanted = filter->audit_count == 0 || (event.bytes == sizeof EP_AUDIT_OTHER - 1 &&
                                               memcmp(event.at, EP_AUDIT_OTHER, event.bytes) == 0);
    for (size_t i = 0; i < filter->audit_count && !wanted; i++) {
        wanted = ep_glob_match(filter->audit[i], event);
    }
    return wanted;
}
void
ep_filter_clear(ep_filter *filter)
{
    for (size_t i = 0; i < filter->include_count; i++) {
        free(filter->include[i]);
    }
    for (size_t i = 0; i < filter->exclude_count; i++) {
        free(filter->exclude[i]);
    }
    for (size_t i = 0; i < filter->audit_count; i++) {
        free(filter->audit[i]);
    }
    free(filter->include);
    free(filter->exclude);
    free(filter->audit);
    *filter = (ep_filter){0};
}

static bool
any_matches(char *const *patterns, size_t count, uint32_t name_id)
{
    const ep_name *name = ep_name_get(name_id);
    ep_text qualname = ep_string_get(name->qualname), module = ep_string_get(name->module);
    ep_text file = ep_string_get(name->file);
    char stack[512];
    ep_text full = {NULL, 0};
    if (module.at != NULL && qualname.at != NULL &&
        module.bytes + qualname.bytes + 1 <= sizeof stack) {
        memcpy(stack, module.at, module.bytes);
        stack[module.bytes] = '.';
        memcpy(stack + module.bytes + 1, qualname.at, qualname.bytes);
        full = (ep_text){stack, module.bytes + 1 + qualname.bytes};
    }
    for (size_t i = 0; i < count; i++) {
        bool file_only = strchr(patterns[i], '/') != NULL;
        if ((file.at != NULL && ep_glob_match(patterns[i], file)) ||
            (!file_only && ((module.at != NULL && ep_glob_match(patterns[i], module)) ||
                            (qualname.at != NULL && ep_glob_match(patterns[i], qualname)) ||
                            (full.at != NULL && ep_glob_match(patterns[i], full))))) {
            return true;
        }
    }
    return false;
}

static bool
in_areas(unsigned areas, uint32_t name_id)
{
    return areas != 0 && (areas & 1u << ep_area_of(name_id));
}

bool
ep_filter_includes(const ep_filter *filter, uint32_t name_id)
{
    return ep_filter_includes_all(filter) || in_areas(filter->include_areas, name_id) ||
           any_matches(filter->include, filter->include_count, name_id);
}

bool
ep_filter_excludes(const ep_filter *filter, uint32_t name_id)
{
    return in_areas(filter->exclude_areas, name_id) ||
           any_matches(filter->exclude, filter->exclude_count, name_id);
}

bool
ep_filter_includes_without_file(const ep_filter *filter)
{
    bool may = ep_filter_includes_all(filter) || filter->include_areas != 0;
    for (size_t i = 0; i < filter->include_count && !may; i++) {
        may = strchr(filter->include[i], '/') == NULL;
    }
    return may;
}

/* gate.c computes the same from bits. */
bool
ep_filter_wants(const ep_filter *filter, uint32_t name_id, uint32_t caller)
{
    if (ep_filter_excludes(filter, name_id)) {
        return false;
    }
    if (ep_name_get(name_id)->kind == EP_NAME_PYTHON || caller == 0) {
        return ep_filter_includes(filter, name_id);
    }
    return (ep_filter_includes(filter, name_id) || ep_filter_includes(filter, caller)) &&
           !ep_filter_excludes(filter, caller);
}

/* ---- Areas ----------------------------------------------------------------------------------- */

typedef struct place {
    char *text;
    size_t bytes;
    ep_area area;
} place;

static struct {
    place *at;
    size_t count, capacity;
} folders, modules;

static ep_status
add_place(place **at, size_t *count, size_t *capacity, ep_area area, ep_text text)
{
    char *copy = ep_calloc(text.bytes + 1, 1);
    if (copy == NULL || !ep_grow((void **)at, capacity, *count + 1, sizeof **at)) {
        free(copy);
        return EP_NOMEM;
    }
    memcpy(copy, text.at, text.bytes);
    (*at)[(*count)++] = (place){copy, text.bytes, area};
    return EP_OK;
}

ep_status
ep_area_add_folder(ep_area area, ep_text folder)
{
    return add_place(&folders.at, &folders.count, &folders.capacity, area, folder);
}

ep_status
ep_area_add_module(ep_area area, ep_text module)
{
    return add_place(&modules.at, &modules.count, &modules.capacity, area, module);
}

static bool
begins(ep_text text, const place *with, char then)
{
    return text.bytes > with->bytes && text.at[with->bytes] == then &&
           memcmp(text.at, with->text, with->bytes) == 0;
}

static ep_area
area_of_file(ep_text file)
{
    static const char frozen[] = "<frozen ";
    if (file.bytes >= sizeof frozen - 1 && memcmp(file.at, frozen, sizeof frozen - 1) == 0) {
        return EP_AREA_STDLIB;
    }
    const place *longest = NULL;
    for (size_t i = 0; i < folders.count; i++) {
        const place *folder = &folders.at[i];
        if (begins(file, folder, '/') && (longest == NULL || folder->bytes > longest->bytes)) {
            longest = folder;
        }
    }
    return longest != NULL ? longest->area : EP_AREA_NONE;
}

ep_area
ep_area_of(uint32_t name_id)
{
    const ep_name *name = ep_name_get(name_id);
    ep_text file = ep_string_get(name->file), module = ep_string_get(name->module);
    if (file.at != NULL) {
        return area_of_file(file);
    }
    for (size_t i = 0; module.at != NULL && i < modules.count; i++) {
        const place *known = &modules.at[i];
        if (begins(module, known, '.') ||
            (module.bytes == known->bytes && memcmp(module.at, known->text, known->bytes) == 0)) {
            return known->area;
        }
    }
    return EP_AREA_NONE;
}

/* ---- Applying -------------------------------------------------------------------------------- */

/* Verdicts, asked once an id. */
typedef struct verdicts {
    const ep_filter *filter;
    uint8_t *of_site, *of_name;    /* 0: not asked; 1: no; 2: yes */
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

/* Hooks have no gate for what is no function's call: it stays, and is no level of depth. */
static bool
is_apart(uint32_t name_id)
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
    bool apart;         /* a span, a run of the collector: no function's call */
    bool stays;         /* and not too deep */
    size_t row;         /* NO_ROW: before the rows */
} open_call;

typedef struct open_calls {
    open_call *at;
    size_t depth, capacity;
} open_calls;

/* What is done to the rows. */
typedef struct work {
    verdicts known;
    ep_columns *columns;
    open_calls *threads;
    uint8_t *drop;      /* index = row */
    /* Of rows that happened inside of a function, by index: 1 + that of the call's row; 0: none, or not
     * such a row. NULL: calls are not dropped after what happened in them. */
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
    open_call call = {.site = site, .row = row, .apart = is_apart(ep_site_callee(site))};
    call.wanted = call.apart || wants_site(&w->known, site);
    call.stays = call.apart || (call.wanted && (before || !filter->limits_depth ||
                                                depth <= filter->max_depth));
    call.inside = depth + (call.wanted && !before && !call.apart);
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

/* Ends what a closing row ends, and says whether the row goes. */
static void
close_one(work *w, open_calls *stack, size_t row)
{
    uint32_t name = w->columns->id[row];
    const int64_t *time_ns = w->columns->time_ns;
    size_t at = stack->depth;
    while (at > 0 && ep_site_callee(stack->at[at - 1].site) != name) {
        at -= 1;
    }
    if (at-- == 0) {
        if (!is_apart(name) && !wants_name(&w->known, name)) {
            w->drop[row] = 1;
            w->counts.rows += 1;
        }
        return;
    }
    for (size_t i = at; i < stack->depth; i++) {
        open_call *call = &stack->at[i];
        if (call->stays && !call->apart && call->row != NO_ROW &&
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

/* What happened inside of a function goes with the calls of it. */
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
        const ep_kind_info *info = &ep_kinds[c->kind[row]];
        open_calls *stack = &w->threads[c->thread[row]];
        if (c->kind[row] == EP_KIND_AUDIT) {
            /* What another recorder asked for. */
            w->drop[row] = !wants_audit(&w->known, c->id[row]);
        }
        if (ep_kind_is_inside(c->kind[row])) {
            judge_inside(w, stack, row);
        }
        if (info->family != EP_FAMILY_CALL) {
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

/* Enters the calls that were open when the rows began. Those that a ring lost are not `before`. */
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

static void
filter_rows(const uint8_t *drop, ep_decoded *decoded)
{
    ep_columns *c = &decoded->columns;
    size_t kept = 0, block = 0;
    for (size_t row = 0; row < c->count; row++) {
        if (drop[row]) {
            decoded->threads[c->thread[row]].recorded[c->kind[row]] -= 1;
            continue;
        }
        while (block < c->alloc_count && c->alloc_row[block] < row) {
            block += 1;
        }
        if (block < c->alloc_count && c->alloc_row[block] == row) {
            c->alloc_row[block++] = kept;
        }
        c->time_ns[kept] = c->time_ns[row];
        c->kind[kept] = c->kind[row];
        c->thread[kept] = c->thread[row];
        c->id[kept] = c->id[row];
        kept += 1;
    }
    c->count = kept;
}

static bool
any_inside(const ep_columns *columns)
{
    for (size_t row = 0; row < columns->count; row++) {
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
              .drop = ep_calloc(decoded->columns.count, 1)};
    uint8_t *stays = ep_calloc(open_count, 1);
    bool done = w.known.of_site != NULL && w.known.of_name != NULL && w.threads != NULL &&
                w.drop != NULL && stays != NULL;
    if (done && filter->min_duration_ns > 0 && any_inside(&decoded->columns)) {
        w.inside = ep_calloc(decoded->columns.count, sizeof *w.inside);
        done = w.inside != NULL;
    }
    for (size_t i = 0, first = 0; i < thread_count && done; i++) {
        const ep_open_stack *open = &decoded->threads[i].open;
        done = begin_thread(&w, &w.threads[i], open, &stays[first]);
        first += open->depth;
    }
    done = done && judge_rows(&w);
    if (done) {
        filter_rows(w.drop, decoded);
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
    free(w.drop);
    free(w.inside);
    free(stays);
    free(w.known.of_site);
    free(w.known.of_name);
    return done ? EP_OK : EP_NOMEM;
}
