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

ep_status
ep_filter_add(ep_filter *filter, bool include, const char *pattern)
{
    char ***list = include ? &filter->include : &filter->exclude;
    size_t *count = include ? &filter->include_count : &filter->exclude_count;
    size_t *capacity = include ? &filter->include_capacity : &filter->exclude_capacity;
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

void
ep_filter_clear(ep_filter *filter)
{
    for (size_t i = 0; i < filter->include_count; i++) {
        free(filter->include[i]);
    }
    for (size_t i = 0; i < filter->exclude_count; i++) {
        free(filter->exclude[i]);
    }
    free(filter->include);
    free(filter->exclude);
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
        if ((module.at != NULL && ep_glob_match(patterns[i], module)) ||
            (file.at != NULL && ep_glob_match(patterns[i], file)) ||
            (qualname.at != NULL && ep_glob_match(patterns[i], qualname)) ||
            (full.at != NULL && ep_glob_match(patterns[i], full))) {
            return true;
        }
    }
    return false;
}

bool
ep_filter_wants(const ep_filter *filter, uint32_t name_id, uint32_t caller)
{
    if (any_matches(filter->exclude, filter->exclude_count, name_id)) {
        return false;
    }
    if (ep_name_get(name_id)->kind == EP_NAME_PYTHON) {
        return filter->include_count == 0 ||
               any_matches(filter->include, filter->include_count, name_id);
    }
    return (filter->include_count == 0 ||
            any_matches(filter->include, filter->include_count, name_id) ||
            (caller != 0 && any_matches(filter->include, filter->include_count, caller))) &&
           (caller == 0 || !any_matches(filter->exclude, filter->exclude_count, caller));
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

/* Whether a row stays. An end goes with its call, as the stack tells; without one, by its own
 * name. */
static bool
keeps_row(verdicts *known, ep_open_stack *stack, unsigned kind, uint32_t id)
{
    if (ep_kinds[kind].family != EP_FAMILY_CALL) {
        return true;
    }
    if (ep_kinds[kind].pairing == EP_PAIRING_OPENS) {
        ep_open_stack_apply(stack, kind, id);
        return wants_site(known, id);
    }
    size_t before = stack->depth;
    ep_open_stack_apply(stack, kind, id);
    return stack->depth < before ? wants_site(known, stack->calls[stack->depth].site_id)
                                 : wants_name(known, id);
}

static void
filter_stack(verdicts *known, ep_open_stack *stack)
{
    size_t kept = 0;
    for (size_t i = 0; i < stack->depth; i++) {
        if (wants_site(known, stack->calls[i].site_id)) {
            stack->calls[kept++] = stack->calls[i];
        }
    }
    stack->depth = kept;
}

static void
filter_rows(verdicts *known, ep_open_stack *stacks, ep_decoded *decoded)
{
    ep_columns *c = &decoded->columns;
    size_t kept = 0, block = 0;
    for (size_t row = 0; row < c->count; row++) {
        if (!keeps_row(known, &stacks[c->thread[row]], c->kind[row], c->id[row])) {
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

ep_status
ep_filter_apply(const ep_filter *filter, ep_decoded *decoded, uint64_t *dropped)
{
    size_t count = decoded->columns.count;
    verdicts known = {.filter = filter,
                      .of_site = ep_calloc(ep_site_count(), 1),
                      .of_name = ep_calloc(ep_name_count(), 1)};
    ep_open_stack *stacks = ep_calloc(decoded->thread_count, sizeof *stacks);
    ep_status status =
        known.of_site != NULL && known.of_name != NULL && stacks != NULL ? EP_OK : EP_NOMEM;
    for (size_t i = 0; i < decoded->thread_count && status == EP_OK; i++) {
        const ep_open_stack *open = &decoded->threads[i].open;
        for (size_t j = 0; j < open->depth; j++) {
            ep_open_stack_apply(&stacks[i], open->calls[j].kind, open->calls[j].site_id);
        }
        status = stacks[i].depth == open->depth ? EP_OK : EP_NOMEM;
    }
    if (status == EP_OK) {
        filter_rows(&known, stacks, decoded);
        for (size_t i = 0; i < decoded->thread_count; i++) {
            filter_stack(&known, &decoded->threads[i].open);
        }
        *dropped = count - decoded->columns.count;
    }
    for (size_t i = 0; stacks != NULL && i < decoded->thread_count; i++) {
        free(stacks[i].calls);
    }
    free(stacks);
    free(known.of_site);
    free(known.of_name);
    return status;
}
