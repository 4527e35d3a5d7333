#include "file_ids.h"

#include "memory.h"

static ep_status
put(ep_id_table *table, uint32_t id, uint32_t here)
{
    if (here == 0 || !ep_grow((void **)&table->ids, &table->capacity, (size_t)id + 1, sizeof *table->ids)) {
        return EP_NOMEM;
    }
    table->ids[id] = here;
    table->count = id >= table->count ? (size_t)id + 1 : table->count;
    return EP_OK;
}

ep_status
ep_file_ids_open(ep_file_ids *ids)
{
    *ids = (ep_file_ids){0};
    if (!ep_grow((void **)&ids->names.ids, &ids->names.capacity, 1, sizeof *ids->names.ids) ||
        !ep_grow((void **)&ids->sites.ids, &ids->sites.capacity, 1, sizeof *ids->sites.ids)) {
        ep_file_ids_clear(ids);
        return EP_NOMEM;
    }
    ids->names.count = ids->sites.count = 1;
    return EP_OK;
}

void
ep_file_ids_clear(ep_file_ids *ids)
{
    free(ids->names.ids);
    free(ids->sites.ids);
    *ids = (ep_file_ids){0};
}

ep_status
ep_file_ids_put_name(ep_file_ids *ids, uint32_t id, const ep_name_text *text)
{
    return put(&ids->names, id, ep_name_of_text(text));
}

ep_status
ep_file_ids_put_site(ep_file_ids *ids, uint32_t id, const ep_site *site)
{
    ep_site here = *site;
    here.callee = ep_id_here(&ids->names, site->callee);
    here.caller = ep_id_here(&ids->names, site->caller);
    /* Nobody can compute it any more. */
    here.line = site->line == EP_LINE_PENDING ? -1 : site->line;
    return put(&ids->sites, id, ep_site_of_names(&here));
}

ep_status
ep_file_ids_put_task(ep_file_ids *ids, uint32_t id, ep_text task)
{
    uint32_t string = ep_string_add(task);
    ep_site here = *ep_site_get(ep_id_here(&ids->sites, id));
    here.task = string + 1;
    return string != EP_STRING_NONE ? put(&ids->sites, id, ep_site_of_names(&here)) : EP_NOMEM;
}
