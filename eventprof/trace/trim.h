/* Cuts a decoded trace down to a part of the recording, and gives its texts other ones. */
#ifndef EP_TRIM_H
#define EP_TRIM_H

#include "decode.h"
#include "types.h"

typedef struct ep_trim {
    int64_t from_ns, until_ns;        /* rows from the first to the second, both inside */
    const bool *threads_left_out;     /* index = thread row; NULL: none is */
    ep_kind_set kinds_left_out;
} ep_trim;

/* Drops all other rows, as if the recorder had run for that time only: times count from from_ns, calls
 * that are open then are the open calls of their threads, and labels that a thread has then are set at the
 * start. A thread without rows, open calls and loss has no row any more, unless the trace is merged of
 * several processes, whose threads are counted. Loss stays as it was: when an event was lost is not known.
 * from_ns and until_ns: 0 <= from <= until. Fails: EP_NOMEM, nothing changed. */
EP_CHECKED ep_status ep_trim_apply(const ep_trim *trim, ep_decoded *decoded);

/* ---- Other texts ------------------------------------------------------------------------------ */

/* Each value of a label, in order of its end, as often as it is written. `take` returns false to stop. */
typedef bool (*ep_label_taker)(void *context, size_t number, ep_text value);
/* Fails: EP_NOMEM; EP_STATE: it was stopped. */
EP_CHECKED ep_status ep_label_values(const ep_decoded *decoded, ep_label_taker take, void *context);

typedef struct ep_rename {
    const ep_id_map *map;             /* of the decoded rows */
    const uint32_t *names;            /* index = row of the function table: the new name id */
    const uint32_t *tasks;            /* index = string id: the new string id of a task; task_count long */
    size_t task_count;
    const ep_text *labels;            /* by number, as ep_label_values() has them, each as long as it was */
    size_t label_count;
} ep_rename;

/* Rows and open calls refer to the new names afterwards; sites keep their offsets and lines.
 * Fails: EP_NOMEM, nothing changed; EP_ARGUMENT: a label has another length, or there is another number of
 * labels. */
EP_CHECKED ep_status ep_rename_apply(const ep_rename *rename, ep_decoded *decoded);

#endif
