/* Several traces on one time line: of the processes of one program, or of several hosts. */
#ifndef EP_MERGE_H
#define EP_MERGE_H

#include "decode.h"
#include "types.h"

/* One of the traces that are merged. Its ids are of this process's name tables. */
typedef struct ep_merge_part {
    const ep_decoded *decoded;
    int64_t offset_ns;         /* of its start, on the common time line */
    uint64_t process_id;
} ep_merge_part;

/* Addresses of different processes are different blocks: the number of the part is added to them, from this
 * bit on. */
#define EP_MERGE_ADDRESS_BITS 48
#define EP_MERGE_PARTS_MAX 65535

/* Rows of all parts in order of time, of one part in its own order; threads of the parts one after
 * another, named "PID NAME"; resident sets summed up.
 * Returns: new in *out (ep_decoded_clear). Fails: EP_NOMEM, EP_ARGUMENT (too many parts); *out
 * untouched. */
EP_CHECKED ep_status ep_merge(const ep_merge_part *parts, size_t count, ep_decoded *out);

#endif
