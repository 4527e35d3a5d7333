/* Decoded columns -> functions: a row for each that an event or an open call mentions. */
#ifndef EP_FUNCTIONS_H
#define EP_FUNCTIONS_H

#include "decode.h"
#include "types.h"

/* One row of the function table: what several names (a type that died and came again, two code
 * objects of one def) share the text of. */
typedef struct ep_functions {
    ep_id_map map;
    size_t count;
    uint32_t *name_id;                  /* one of the row's names */
} ep_functions;

/* Rows for what the columns and open stacks mention, in order of first mention.
 * Returns: new in *out. Fails: EP_NOMEM, *out untouched. */
EP_CHECKED ep_status ep_functions_build(const ep_decoded *decoded, ep_functions *out);
void ep_functions_clear(ep_functions *functions);

#endif
