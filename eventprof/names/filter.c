#include "filter.h"

#include <string.h>

#include "memory.h"

/* ---- Globs ----------------------------------------------------------------------------------- */

/* A text, or two with a point between them. */
typedef struct joined_text {
    ep_text first, second;    /* second.at NULL: one text */
} joined_text;

static size_t
joined_bytes(const joined_text *text)
{
    return text->second.at != NULL ? text->first.bytes + 1 + text->second.bytes : text->first.bytes;
}

static unsigned char
joined_byte(const joined_text *text, size_t at)
{
    if (at < text->first.bytes) {
        return (unsigned char)text->first.at[at];
    }
    return at == text->first.bytes ? '.' : (unsigned char)text->second.at[at - text->first.bytes - 1];
}

/* A character is a byte with the continuation bytes of UTF-8 after it: those bytes as one number, which
 * orders characters as their codes do. What is not UTF-8 is taken byte by byte. */
#define MOST_BYTES 4

static bool
continues(unsigned char first, unsigned char byte)
{
    return first >= 0xC0 && (byte & 0xC0) == 0x80;
}

static uint32_t
character_of_pattern(const char **at)
{
    const unsigned char *byte = (const unsigned char *)*at;
    uint32_t found = byte[0];
    size_t bytes = 1;
    for (; bytes < MOST_BYTES && continues(byte[0], byte[bytes]); bytes++) {
        found = found << 8 | byte[bytes];
    }
    *at += bytes;
    return found;
}

static uint32_t
character_of_text(const joined_text *text, size_t *at)
{
    unsigned char first = joined_byte(text, *at);
    uint32_t found = first;
    size_t end = joined_bytes(text), from = *at;
    for (*at += 1; *at < end && *at - from < MOST_BYTES && continues(first, joined_byte(text, *at));
         *at += 1) {
        found = found << 8 | joined_byte(text, *at);
    }
    return found;
}

/* Whether a character is in the set that `pattern` begins with; *rest: one past its ']'. A set that is
 * not closed matches a literal '['. */
static bool
in_set(const char *pattern, uint32_t character, const char **rest)
{
    const char *at = pattern + 1;
    bool negated = *at == '!', found = false;
    at += negated;
    const char *first = at;
    while (*at != 0 && (*at != ']' || at == first)) {
        uint32_t low = character_of_pattern(&at), high = low;
        if (*at == '-' && at[1] != 0 && at[1] != ']') {
            at += 1;
            high = character_of_pattern(&at);
        }
        found = found || (low <= character && character <= high);
    }
    if (*at == 0) {
        *rest = pattern + 1;
        return character == '[';
    }
    *rest = at + 1;
    return found != negated;
}

static bool
matches_joined(const char *pattern, const joined_text *text)
{
    /* Only the last star is ever tried again: an earlier star took as little as possible, and taking more
     * never helps. */
    const char *star = NULL;
    size_t star_took = 0, at = 0, bytes = joined_bytes(text);
    while (at < bytes) {
        const char *next = pattern + 1;
        size_t after = at;
        uint32_t character = character_of_text(text, &after);
        bool matches;
        if (*pattern == '*') {
            star = next;
            star_took = at;
            pattern = next;
            continue;
        }
        if (*pattern == '[') {
            matches = in_set(pattern, character, &next);
        } else if (*pattern == '?') {
            matches = true;
        } else {
            next = pattern;
            matches = *pattern != 0 && character_of_pattern(&next) == character;
        }
        if (matches) {
            pattern = next;
            at = after;
        } else if (star != NULL) {
            pattern = star;
            (void)character_of_text(text, &star_took);
            at = star_took;
        } else {
            return false;
        }
    }
    while (*pattern == '*') {
        pattern += 1;
    }
    return *pattern == 0;
}

bool
ep_glob_match(const char *pattern, ep_text text)
{
    return matches_joined(pattern, &(joined_text){.first = text});
}

/* ---- Filters --------------------------------------------------------------------------------- */

/* The area of a word of include and exclude; EP_AREA_COUNT: it is a glob. */
static ep_area
area_of_word(const char *pattern)
{
    return strcmp(pattern, "stdlib") == 0          ? EP_AREA_STDLIB
           : strcmp(pattern, "site-packages") == 0 ? EP_AREA_INSTALLED
                                                   : EP_AREA_COUNT;
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
    if (area != EP_AREA_COUNT) {
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

static ep_name_text
text_of(uint32_t name_id)
{
    const ep_name *name = ep_name_get(name_id);
    return (ep_name_text){.qualname = ep_string_get(name->qualname),
                          .module = ep_string_get(name->module),
                          .file = ep_string_get(name->file)};
}

static bool
matches_function(const char *pattern, const ep_name_text *function)
{
    ep_text name = function->qualname, module = function->module, file = function->file;
    if (file.at != NULL && ep_glob_match(pattern, file)) {
        return true;
    }
    if (strchr(pattern, '/') != NULL) {
        return false;
    }
    return (module.at != NULL && ep_glob_match(pattern, module)) ||
           (name.at != NULL && ep_glob_match(pattern, name)) ||
           (module.at != NULL && name.at != NULL &&
            matches_joined(pattern, &(joined_text){module, name}));
}

static bool
any_matches(unsigned areas, char *const *patterns, size_t count, const ep_name_text *function)
{
    bool found = areas != 0 && (areas & 1u << ep_area_of_place(function->module, function->file));
    for (size_t i = 0; i < count && !found; i++) {
        found = matches_function(patterns[i], function);
    }
    return found;
}

bool
ep_filter_includes_text(const ep_filter *filter, const ep_name_text *function)
{
    return ep_filter_includes_all(filter) ||
           any_matches(filter->include_areas, filter->include, filter->include_count, function);
}

bool
ep_filter_includes(const ep_filter *filter, uint32_t name_id)
{
    ep_name_text function = text_of(name_id);
    return ep_filter_includes_text(filter, &function);
}

bool
ep_filter_excludes(const ep_filter *filter, uint32_t name_id)
{
    ep_name_text function = text_of(name_id);
    return any_matches(filter->exclude_areas, filter->exclude, filter->exclude_count, &function);
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
