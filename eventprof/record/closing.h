/* Which open call an end closes: the one rule of the engine's stacks (loss.c), of the limits in the
 * hook (gate.c) and of filters (trace/filter_apply.c). If their rules differed, a call could be open for
 * one and ended for another. trace/pair.c has the same rule for rows of functions. trace/verify.c checks
 * the results of the others, so it shares no code with them.
 *
 * An end closes the innermost open call of its name. Those above it ended without an end of their own:
 * the interpreter does not report the end of each C call. An end without such a call closes nothing:
 * its own call began before the window. */
#ifndef EP_CLOSING_H
#define EP_CLOSING_H

#include "names.h"

/* HOT. first_site: of the outermost call; the next is `stride` bytes on. Use EP_CLOSED_CALL. */
static inline size_t
ep_closed_call(const uint32_t *first_site, size_t stride, size_t depth, uint32_t name)
{
    const char *site = (const char *)first_site + depth * stride;
    for (; depth > 0; depth--) {
        site -= stride;
        if (ep_site_callee(*(const uint32_t *)(const void *)site) == name) {
            break;
        }
    }
    return depth;
}

/* How many of these open calls, outermost first, lie around the closed one and with it; 0: none is
 * closed. `site` names the field. */
#define EP_CLOSED_CALL(calls, site, depth, name) \
    ((depth) > 0 ? ep_closed_call(&(calls)->site, sizeof *(calls), depth, name) : 0)

#endif
