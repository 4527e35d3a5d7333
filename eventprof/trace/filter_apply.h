/* Drops the rows of decoded columns that a filter (filter.h) does not want. */
#ifndef EP_FILTER_APPLY_H
#define EP_FILTER_APPLY_H

#include "decode.h"
#include "filter.h"
#include "types.h"

/* What ep_filter_apply() dropped. */
typedef struct ep_filtered {
    uint64_t rows;           /* of calls, ends of calls and what is inside, by name */
    uint64_t deep_calls;     /* by max_depth */
    uint64_t short_calls;    /* by min_duration */
} ep_filtered;

/* Drops the call rows that are not wanted, with their ends, and takes unwanted calls off the open
 * stacks. Fails: EP_NOMEM, nothing changed. */
EP_CHECKED ep_status ep_filter_apply(const ep_filter *filter, ep_decoded *decoded,
                                     ep_filtered *dropped);

#endif
