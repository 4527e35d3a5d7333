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

/* Bytes of the first character of a text that is not empty. */
static size_t
character(const unsigned char *text, size_t bytes)
{
    size_t length = 1;
    while (text[0] >= 0xC0 && length < 4 && length < bytes && text[length] >= 0x80 && text[length] < 0xC0) {
        length++;
    }
    return length;
}

static size_t
character_of(const char *pattern)
{
    return character((const unsigned char *)pattern, strlen(pattern));
}

/* As bytes are, and then as their numbers of bytes are. */
static int
compare(const char *left, size_t left_bytes, const char *right, size_t right_bytes)
{
    if (left_bytes != right_bytes) {
        return left_bytes < right_bytes ? -1 : 1;
    }
    return memcmp(left, right, left_bytes);
}

/* One past the ']' of the set that `pattern` begins with, NULL: it is not closed; *found: whether the
 * character is in it. */
static const char *
end_of_set(const char *pattern, const char *text, size_t bytes, bool *found)
{
    bool negated = pattern[1] == '!', is_in = false;
    const char *first = pattern + 1 + negated;
    for (const char *at = first; *at != 0;) {
        if (*at == ']' && at > first) {
            *found = is_in != negated;
            return at + 1;
        }
        const char *low = at;
        size_t low_bytes = character_of(low);
        const char *high = low;
        at += low_bytes;
        if (at[0] == '-' && at[1] != 0 && at[1] != ']') {
            high = at + 1;
            at = high + character_of(high);
        }
        is_in = is_in || (compare(low, low_bytes, text, bytes) <= 0 &&
                          compare(text, bytes, high, character_of(high)) <= 0);
    }
    return NULL;
}

/* The rule in words, every choice tried. */
static bool
model(const char *pattern, const unsigned char *text, size_t bytes)
{
    if (*pattern == 0) {
        return bytes == 0;
    }
    size_t first = bytes > 0 ? character(text, bytes) : 0;
    if (*pattern == '*') {
        return model(pattern + 1, text, bytes) ||
               (bytes > 0 && model(pattern, text + first, bytes - first));
    }
    if (bytes == 0) {
        return false;
    }
    bool fits = false;
    const char *end =
        *pattern == '[' ? end_of_set(pattern, (const char *)text, first, &fits) : NULL;
    if (end == NULL) {
        end = pattern + character_of(pattern);
        fits = *pattern == '?' ||
               compare(pattern, character_of(pattern), (const char *)text, first) == 0;
    }
    return fits && model(end, text + first, bytes - first);
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
        ep_name_text name_text = {.qualname = text,
                                  .module = {"a.module", 8},
                                  .file = {"/a/folder/file.py", 17},
                                  .line = 1,
                                  .kind = EP_NAME_PYTHON};
        *name = ep_name_of_text(&name_text);
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
