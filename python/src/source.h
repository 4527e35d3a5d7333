/* What feeds the engine. Rules for all sources: install once, for the union of what the recorders
 * want; remove only what is ours; if somebody took our place, go dormant and do not disturb
 * them. */
#ifndef EP_SOURCE_H
#define EP_SOURCE_H

#include "compat.h"

#include "log.h"
#include "types.h"

typedef struct ep_source {
    const char *name;
    uint64_t kinds;    /* bits of ep_kind that it can give */
    /* Makes the hook give `kinds`; 0 takes it out, which never fails. GIL held.
     * Fails: -1, exception set, nothing changed. */
    int (*adjust)(uint64_t kinds);
    /* Whether our hook is where we put it. False while something else sits there (displaced). */
    bool (*owns)(void);
    /* How often another tool had it for a while: gave it back, or its thread ended. What came
     * meanwhile is missing. NULL: nothing is missed while something else sits there. */
    uint64_t (*interruptions)(void);
} ep_source;

#define EP_SOURCE(name) extern const ep_source ep_source_##name;
#include "sources.def"
#undef EP_SOURCE

#define EP_KINDS_PYTHON                                                                     \
    (EP_KIND_BIT(EP_KIND_CALL) | EP_KIND_BIT(EP_KIND_RETURN) | EP_KIND_BIT(EP_KIND_YIELD) | \
     EP_KIND_BIT(EP_KIND_RESUME) | EP_KIND_BIT(EP_KIND_THROW) | EP_KIND_BIT(EP_KIND_UNWIND))
#define EP_KINDS_C                                                 \
    (EP_KIND_BIT(EP_KIND_C_CALL) | EP_KIND_BIT(EP_KIND_C_RETURN) | \
     EP_KIND_BIT(EP_KIND_C_EXCEPTION))
#define EP_KINDS_CALLS (EP_KINDS_PYTHON | EP_KINDS_C)
#define EP_KINDS_EXCEPTIONS                                      \
    (EP_KIND_BIT(EP_KIND_RAISE) | EP_KIND_BIT(EP_KIND_RERAISE) | \
     EP_KIND_BIT(EP_KIND_HANDLED) | EP_KIND_BIT(EP_KIND_STOP_ITERATION))
/* What happens inside of functions. */
#define EP_KINDS_INSIDE                                             \
    (EP_KIND_BIT(EP_KIND_LINE) | EP_KIND_BIT(EP_KIND_INSTRUCTION) | \
     EP_KIND_BIT(EP_KIND_BRANCH) | EP_KIND_BIT(EP_KIND_JUMP) | EP_KINDS_EXCEPTIONS)
/* Whatever functions do: what filters of functions are about. */
#define EP_KINDS_CODE (EP_KINDS_CALLS | EP_KINDS_INSIDE)

/* A hook that is only to take back what the mechanism allocates; no kind is 0. */
#define EP_KINDS_NONE EP_KIND_BIT(0)

/* What a program says of itself. */
#define EP_KINDS_USER                                              \
    (EP_KIND_BIT(EP_KIND_MARK) | EP_KIND_BIT(EP_KIND_SPAN_BEGIN) | \
     EP_KIND_BIT(EP_KIND_SPAN_END) | EP_KIND_BIT(EP_KIND_COUNTER) | EP_KIND_BIT(EP_KIND_FLOW))

/* Every kind of one allocator domain. */
static inline uint64_t
ep_kinds_of_domain(ep_domain domain)
{
    return EP_KIND_BIT(EP_KIND_MALLOC + domain) | EP_KIND_BIT(EP_KIND_CALLOC + domain) |
           EP_KIND_BIT(EP_KIND_REALLOC + domain) | EP_KIND_BIT(EP_KIND_REALLOC_FREE + domain) |
           EP_KIND_BIT(EP_KIND_REALLOC_FAILED + domain) | EP_KIND_BIT(EP_KIND_FREE + domain);
}

/* The library that native needs was preloaded. */
bool ep_py_native_available(void);

/* The profile source may evaluate frames itself where that is faster (evaluator.h). From its next
 * adjustment on. */
void ep_py_profile_allow_evaluator(bool allowed);

/* Monitoring is there (3.12+); else calls come from profile and the rest from trace. */
bool ep_py_monitoring_available(void);

/* Takes back the tables that the interpreter made for what it monitors in `code`, if the log ends with
 * them. Returns: whether it did. While ep_footprint_active(). */
bool ep_py_take_back_tables(ep_log *log, PyCodeObject *code);

#endif
