/* Makes decoded columns from rows of another tool's recording; for the importers. */
#ifndef EP_MADE_H
#define EP_MADE_H

#include "decode.h"
#include "types.h"

/* Views, all of them. */
typedef struct ep_made {
    size_t count, block_count;    /* rows; rows with an address and a size */
    const int64_t *time_ns;       /* never decreasing, 0 to duration_ns */
    const uint8_t *kind;
    const int32_t *thread;
    const int32_t *ref;           /* index of a function for ends of calls, else of a site; -1: unknown */
    const uint64_t *address;      /* block_count long, as ep_columns has them */
    const int64_t *size;
    const uint32_t *names;        /* name ids by function */
    size_t function_count;
    const uint32_t *sites;        /* site ids by site */
    size_t site_count;
    int64_t duration_ns;
} ep_made;

/* Fills *out, which has its threads already and nothing else. The caller clears *out, also after a failure.
 * Fails: EP_ARGUMENT (error names the fault in the rows), EP_NOMEM. */
EP_CHECKED ep_status ep_decoded_make(const ep_made *rows, ep_decoded *out, ep_error *error);

#endif
