/* Drops the rows of decoded columns that a filter (filter.h) does not want. */
#ifndef EP_FILTER_APPLY_H
#define EP_FILTER_APPLY_H

#include "decode.h"
#include "filter.h"
#include "types.h"

/* Counts of what ep_filter_apply() dropped. */
typedef struct ep_filtered {
    uint64_t rows;           /* rows of calls, of their ends and of events inside, dropped by name */
    uint64_t deep_calls;     /* by max_depth */
    uint64_t short_calls;    /* by min_duration */
} ep_filtered;

/* Drops the rows of unwanted calls and of their ends, and removes unwanted calls from the stacks of open
 * calls. Fails: EP_NOMEM, nothing changed. */
EP_CHECKED ep_status ep_filter_apply(const ep_filter *filter, ep_decoded *decoded,
                                     ep_filtered *dropped);

#endif
