/* Which calls a recorder wants: include and exclude, max_depth, min_duration.
 *
 * filter_apply.h applies the rules to decoded columns, and so defines them. Hooks leave out calls that no
 * recorder wants before they are recorded (gate.h); the result must be the same.
 *
 * In this order:
 * 1. include, exclude: by name, see ep_filter_wants(). Leaving out a call does not leave out the calls that
 *    it made; their parent is then the nearest remaining call around them.
 * 2. max_depth: of the calls that 1. kept, those nested deeper are left out. Depth is counted on each
 *    thread from the calls that were open when the window began, which stay: a call made from there has
 *    depth 0.
 * 3. min_duration: of the calls that 2. kept, those that ended within the window and took less time are
 *    left out. A call whose end was not seen counts as ended with the call around it. Children take no
 *    longer than their parents, so whole subtrees are left out. Each slice of a generator counts as a call.
 *
 * The end of a call is left out with the call. So are the events inside of a Python function (lines,
 * instructions, exceptions, branches, jumps); if calls are not recorded, only rule 1 decides about them.
 * Allocator events are never filtered: all memory is counted, or none. The function that made a block is
 * kept with it, even if calls of that function are left out. */
#ifndef EP_FILTER_H
#define EP_FILTER_H

#include "areas.h"
#include "names.h"
#include "types.h"

#define EP_DEPTH_UNLIMITED UINT32_MAX

typedef struct ep_filter {
    char **include, **exclude;    /* owned, terminated */
    size_t include_count, exclude_count;
    size_t include_capacity, exclude_capacity;
    char **audit;                 /* patterns of audit events; none: all audit events */
    size_t audit_count, audit_capacity;
    unsigned include_areas, exclude_areas;    /* bits of ep_area: the words "stdlib", "site-packages" */
    bool limits_depth;
    uint32_t max_depth;           /* valid if limits_depth */
    int64_t min_duration_ns;      /* 0: any */
} ep_filter;

/* Whether `text` matches a glob: * any run (of any characters, '/' and '.' too), ? any one character of
 * UTF-8, [a-z] a set, [!a-z] its complement; a '[' that is never closed stands for itself. The time is at
 * most pattern x text, for any number of stars. */
bool ep_glob_match(const char *pattern, ep_text text);

/* Copies the pattern, or takes the word of an area. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_filter_add(ep_filter *filter, bool include, const char *pattern);
void ep_filter_clear(ep_filter *filter);

/* The name of audit events after too many different names: each recorder of audit events may want it. */
#define EP_AUDIT_OTHER "(another audit event)"

/* A pattern of audit events. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_filter_add_audit(ep_filter *filter, const char *pattern);
bool ep_filter_wants_audit(const ep_filter *filter, ep_text event);

static inline bool
ep_filter_names_any(const ep_filter *filter)
{
    return filter->include_count != 0 || filter->exclude_count != 0 ||
           filter->include_areas != 0 || filter->exclude_areas != 0;
}

static inline bool
ep_filter_includes_all(const ep_filter *filter)
{
    return filter->include_count == 0 && filter->include_areas == 0;
}

static inline bool
ep_filter_is_empty(const ep_filter *filter)
{
    return !ep_filter_names_any(filter) && !filter->limits_depth && filter->min_duration_ns == 0 &&
           filter->audit_count == 0;
}

/* Whether a pattern of the list matches the function: its module, its file, its qualified name, or
 * module.qualified_name. A pattern with a '/' is matched against the file only. */
bool ep_filter_includes_text(const ep_filter *filter, const ep_name_text *function);    /* or no include */
bool ep_filter_includes(const ep_filter *filter, uint32_t name_id);
bool ep_filter_excludes(const ep_filter *filter, uint32_t name_id);

/* Whether an include may match a function that has no file. */
bool ep_filter_includes_without_file(const ep_filter *filter);

/* Whether calls of the function are wanted. A function that matches exclude is not, even if it matches
 * include; without includes, all are included. A C function has no file: it is also included or excluded
 * with `caller` (name id; 0: unknown, then only its own name counts). */
bool ep_filter_wants(const ep_filter *filter, uint32_t name_id, uint32_t caller);

#endif
