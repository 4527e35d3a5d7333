#include "filter.h"

#include <string.h>

#include "memory.h"

/* ---- Globs ----------------------------------------------------------------------------------- */

/* Whether `byte` is in the set that `pattern` begins with; *rest: one past its ']'. A set that is
 * not closed matches a literal '['. */
static bool
in_set(const char *pattern, unsigned char byte, const char **rest)
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
        *rest = pattern + 1;
        return byte == '[';
    }
    *rest = at + 1;
    return found != negated;
}

bool
ep_glob_match(const char *pattern, ep_text text)
{
    /* Only the last star is ever tried again: an earlier star took as little as possible, and taking more
     * never helps. */
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
