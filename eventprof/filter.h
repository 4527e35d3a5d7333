/* include / exclude: which functions a recorder wants the calls of. Globs over a name's texts; what
 * they apply to is said in ep_filter_wants(). Allocator events are never filtered: memory is
 * counted whole or not at all. */
#ifndef EP_FILTER_H
#define EP_FILTER_H

#include "decode.h"
#include "names.h"
#include "types.h"

typedef struct ep_filter {
    char **include, **exclude;    /* owned, terminated */
    size_t include_count, exclude_count;
    size_t include_capacity, exclude_capacity;
} ep_filter;

/* Whether `text` matches a glob: * any run (of any characters, '/' and '.' too), ? any one byte,
 * [a-z] a set, [!a-z] its complement; a '[' that is never closed stands for itself. Time at most
 * pattern x text, whatever the stars. */
bool ep_glob_match(const char *pattern, ep_text text);

/* Copies the pattern. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_filter_add(ep_filter *filter, bool include, const char *pattern);
void ep_filter_clear(ep_filter *filter);

static inline bool
ep_filter_is_empty(const ep_filter *filter)
{
    return filter->include_count == 0 && filter->exclude_count == 0;
}

/* Whether calls of the function are wanted. A pattern matches a name by its module, its file, its
 * qualified name, or module.qualified_name. Exclude wins over include; without includes, all are
 * included. A function that is not in Python has no file of its own: it is included with `caller`
 * (name id; 0: unknown, then only if it matches itself). */
bool ep_filter_wants(const ep_filter *filter, uint32_t name_id, uint32_t caller);

/* Drops the call rows that are not wanted, with their ends, and takes unwanted calls off the open
 * stacks. *dropped: rows. Fails: EP_NOMEM, nothing changed. */
EP_CHECKED ep_status ep_filter_apply(const ep_filter *filter, ep_decoded *decoded, uint64_t *dropped);

#endif
