/* Which calls a recorder wants: include and exclude, max_depth, min_duration.
 *
 * Applied to decoded columns (filter_apply.h): that is what the words mean. Hooks leave out what
 * nobody wants before it is recorded (gate.h), and must give the same calls.
 *
 * In this order:
 * 1. include, exclude: by name, see ep_filter_wants(). What an unwanted call called stays, if it is
 *    wanted itself; its parent is then the nearest call around it that stays.
 * 2. max_depth: of what 1. left, calls nested deeper than that go. Counted on each thread from what
 *    was open when the window began, which stays: a call made from there has depth 0.
 * 3. min_duration: of what 2. left, calls that ended within the window and took less go. A call
 *    whose own end was not seen took at most until that of the call around it. Children take no
 *    longer than their parents, so whole subtrees go. A generator's runs are calls of their own.
 *
 * An end goes with its call. So does what happens inside of a Python function (lines, instructions,
 * exceptions, branches, jumps); where its calls are not recorded, 1. alone decides.
 * Allocator events are never filtered: memory is counted whole or not at
 * all, and so is the function that made a block, wanted or not. */
#ifndef EP_FILTER_H
#define EP_FILTER_H

#include "names.h"
#include "types.h"

/* Parts of the world that a word stands for, in place of a glob. */
typedef enum ep_area {
    EP_AREA_NONE,
    EP_AREA_STDLIB,           /* "stdlib" */
    EP_AREA_SITE_PACKAGES,    /* "site-packages" */
    EP_AREA_COUNT
} ep_area;

#define EP_DEPTH_UNLIMITED UINT32_MAX

typedef struct ep_filter {
    char **include, **exclude;    /* owned, terminated */
    size_t include_count, exclude_count;
    size_t include_capacity, exclude_capacity;
    char **audit;                 /* the same, of audit events; none: all that there are */
    size_t audit_count, audit_capacity;
    unsigned include_areas, exclude_areas;    /* bits of ep_area */
    bool limits_depth;
    uint32_t max_depth;           /* valid if limits_depth */
    int64_t min_duration_ns;      /* 0: any */
} ep_filter;

/* Whether `text` matches a glob: * any run (of any characters, '/' and '.' too), ? any one byte,
 * [a-z] a set, [!a-z] its complement; a '[' that is never closed stands for itself. Time at most
 * pattern x text, whatever the stars. */
bool ep_glob_match(const char *pattern, ep_text text);

/* Copies the pattern, or takes an area's word. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_filter_add(ep_filter *filter, bool include, const char *pattern);
void ep_filter_clear(ep_filter *filter);

/* The name of audit events that are too many to have names: any recorder of some may want it. */
#define EP_AUDIT_OTHER "(another audit event)"

/* A pattern of audit events. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_filter_add_audit(ep_filter *filter, const char *pattern);
bool ep_filter_wants_audit(const ep_filter *filter, ep_text event);

/* Says what an area is, once a process, before filters are asked: files below a folder (no glob; the
 * longest folder decides) and, of functions that have no file, those of a module and of what is in
 * it. Copies. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_area_add_folder(ep_area area, ep_text folder);
EP_CHECKED ep_status ep_area_add_module(ep_area area, ep_text module);

/* Where a name's function lives. */
ep_area ep_area_of(uint32_t name_id);

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

/* Whether a pattern of the list matches the name: its module, its file, its qualified name, or
 * module.qualified_name. A pattern with a '/' is matched against the file only. */
bool ep_filter_includes(const ep_filter *filter, uint32_t name_id);    /* or there is none */
bool ep_filter_excludes(const ep_filter *filter, uint32_t name_id);

/* Whether an include may match a function that has no file. */
bool ep_filter_includes_without_file(const ep_filter *filter);

/* Whether calls of the function are wanted. Exclude wins over include; without includes, all are
 * included. A function that is not in Python has no file of its own: it is included with `caller`
 * (name id; 0: unknown, then only if it matches itself), and excluded with it. */
bool ep_filter_wants(const ep_filter *filter, uint32_t name_id, uint32_t caller);

#endif
