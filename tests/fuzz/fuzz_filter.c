/* Whatever a pattern and a text are, a glob matches what its words say (filter.h), in bounded time, and a
 * filter of such patterns can be asked.
 *
 *   the bytes up to the first 0    a pattern
 *   the rest                       a text, and a name with that text */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "filter.h"
#include "names.h"

#define LONGEST 24    /* the model takes its time */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* One past the ']' of the set that `pattern` begins with; NULL: it is not closed. */
static const char *
end_of_set(const char *pattern)
{
    const char *first = pattern + 1 + (pattern[1] == '!');
    for (const char *at = first; *at != 0; at++) {
        if (*at == ']' && at > first) {
            return at + 1;
        }
        if (at[1] == '-' && at[2] != 0 && at[2] != ']') {
            at += 2;
        }
    }
    return NULL;
}

static bool
is_in_set(const char *pattern, const char *end, unsigned char byte)
{
    bool negated = pattern[1] == '!', found = false;
    for (const char *at = pattern + 1 + negated; at < end - 1; at++) {
        unsigned char low = (unsigned char)at[0], high = low;
        if (at[1] == '-' && at + 2 < end - 1) {
            high = (unsigned char)at[2];
            at += 2;
        }
        found = found || (low <= byte && byte <= high);
    }
    return found != negated;
}

/* The rule in words, every choice tried. */
static bool
model(const char *pattern, const unsigned char *text, size_t bytes)
{
    if (*pattern == 0) {
        return bytes == 0;
    }
    if (*pattern == '*') {
        return model(pattern + 1, text, bytes) || (bytes > 0 && model(pattern, text + 1, bytes - 1));
    }
    if (bytes == 0) {
        return false;
    }
    const char *end = *pattern == '[' ? end_of_set(pattern) : NULL;
    bool fits = end != NULL ? is_in_set(pattern, end, text[0])
                            : *pattern == '?' || (unsigned char)*pattern == text[0];
    return fits && model(end != NULL ? end : pattern + 1, text + 1, bytes - 1);
}

static size_t
stars(const char *pattern)
{
    size_t count = 0;
    for (; *pattern != 0; pattern++) {
        count += *pattern == '*';
    }
    return count;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = memchr(data, 0, size);
    if (zero == NULL) {
        return 0;
    }
    const char *pattern = (const char *)data;
    size_t bytes = size - (size_t)(zero - data) - 1;
    ep_text text = {(const char *)zero + 1, bytes};
    bool matches = ep_glob_match(pattern, text);
    if (bytes <= LONGEST && stars(pattern) <= 4 && matches != model(pattern, zero + 1, bytes)) {
        fprintf(stderr, "'%s' %s\n", pattern, matches ? "matches, and should not" : "should match");
        abort();
    }

    /* Few names: they are kept for ever. */
    static uint32_t names[64];
    if (names[0] == 0 && ep_names_init() != EP_OK) {
        abort();
    }
    uint32_t *name = &names[(zero - data) & 63];
    if (*name == 0) {
        ep_name_text of = {.qualname = text,
                           .module = {"a.module", 8},
                           .file = {"/a/folder/file.py", 17},
                           .line = 1,
                           .kind = EP_NAME_PYTHON};
        *name = ep_name_of_text(&of);
    }
    ep_filter filter = {0};
    if (ep_filter_add(&filter, bytes & 1, pattern) != EP_OK) {
        abort();
    }
    bool included = ep_filter_includes(&filter, *name), excluded = ep_filter_excludes(&filter, *name);
    if (ep_filter_wants(&filter, *name, 0) != (included && !excluded)) {
        abort();
    }
    (void)ep_filter_includes_without_file(&filter);
    ep_filter_clear(&filter);
    return 0;
}
