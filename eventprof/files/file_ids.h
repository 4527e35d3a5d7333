/* Ids of a file become ids of this process: for both readers, those of log files and of archives. Names
 * and sites of equal text have one id here, from however many files they come. */
#ifndef EP_FILE_IDS_H
#define EP_FILE_IDS_H

#include "names.h"

/* Index: the file's id; value: this process's, 0 for what the file does not describe. Ids of a file
 * begin with 1; [0] is none. */
typedef struct ep_id_table {
    uint32_t *ids;
    size_t count, capacity;    /* count: one more than the highest id, at least 1 once opened */
} ep_id_table;

typedef struct ep_file_ids {
    ep_id_table names, sites;
} ep_file_ids;

/* Empty. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_file_ids_open(ep_file_ids *ids);

/* Frees what it holds; a zeroed object is allowed. */
void ep_file_ids_clear(ep_file_ids *ids);

/* What the file says of its name `id`. Ids that are left out mean nothing. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_file_ids_put_name(ep_file_ids *ids, uint32_t id, const ep_name_text *text);

/* What the file says of its site `id`, once the site's names are here: callee and caller are ids of the
 * file, the task is this process's. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_file_ids_put_site(ep_file_ids *ids, uint32_t id, const ep_site *site);

/* A site that is here already runs in a task. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_file_ids_put_task(ep_file_ids *ids, uint32_t id, ep_text task);

/* HOT. Returns: this process's id; 0: the file does not describe it. */
static inline uint32_t
ep_id_here(const ep_id_table *table, uint32_t id)
{
    return EP_LIKELY(id < table->count) ? table->ids[id] : 0;
}

#endif
