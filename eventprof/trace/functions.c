/* Rows of the function table for the ids that events mention, in order of first mention. */
#include "decode.h"

#include <string.h>

#include "array.h"
#include "memory.h"
#include "names.h"

/* name_ids: of the rows. key: an ep_name. */
static bool
has_text(const void *name_ids, size_t row, const void *key)
{
    const ep_name *a = ep_name_get(((const uint32_t *)name_ids)[row]), *b = key;
    return a->qualname == b->qualname && a->module == b->module && a->file == b->file &&
           a->line == b->line && a->kind == b->kind;
}

static uint64_t
text_hash(const ep_name *name)
{
    uint64_t hash = name->qualname * UINT64_C(0x9E3779B97F4A7C15);
    hash = (hash ^ name->module) * UINT64_C(0xC2B2AE3D27D4EB4F);
    hash = (hash ^ name->file ^ (uint64_t)(uint32_t)name->line << 32) * UINT64_C(0x165667B19E3779F9);
    return hash >> 20;
}

static uint64_t
hash_of_row(const void *name_ids, size_t row)
{
    return text_hash(ep_name_get(((const uint32_t *)name_ids)[row]));
}

#define UNSEEN EP_ID_UNSEEN
#define NO_MEMORY (-3)

/* The row of a name, made if it is new. -1: no name. Fails: NO_MEMORY. */
static int32_t
function_of(ep_functions_builder *b, uint32_t name_id)
{
    int32_t *known = &b->result.map.name_function[name_id];
    if (name_id == 0) {
        *known = -1;
    }
    if (*known != UNSEEN) {
        return *known;
    }
    if (!ep_hash_index_reserve(&b->by_text, hash_of_row, b->result.name_id)) {
        return NO_MEMORY;
    }
    const ep_name *name = ep_name_get(name_id);
    uint32_t *slot =
        ep_hash_index_slot(&b->by_text, text_hash(name), has_text, b->result.name_id, name);
    if (*slot != 0) {
        return *known = (int32_t)*slot - 1;
    }
    if (!ep_grow((void **)&b->result.name_id, &b->capacity, b->result.count + 1,
                 sizeof *b->result.name_id)) {
        return NO_MEMORY;
    }
    b->result.name_id[b->result.count] = name_id;
    ep_hash_index_add(&b->by_text, slot, b->result.count++);
    b->result.map.function_count = b->result.count;    /* folds read it when all rows are there */
    return *known = (int32_t)b->result.count - 1;
}

/* Sites of calls name the callee; sites of allocations the function that was executing. */
static bool
map_site(ep_functions_builder *b, uint32_t site_id)
{
    ep_id_map *map = &b->result.map;
    if (map->site_function[site_id] != UNSEEN) {
        return true;
    }
    const ep_site *site = ep_site_get(site_id);
    int32_t callee = function_of(b, site->callee), caller = function_of(b, site->caller);
    if (callee == NO_MEMORY || caller == NO_MEMORY) {
        return false;
    }
    map->site_function[site_id] = site->callee != 0 ? callee : caller;
    map->site_caller[site_id] = site->callee != 0 ? caller : -1;
    map->site_line[site_id] = site->line > 0 ? site->line : -1;
    return true;
}

ep_status
ep_functions_add_id(ep_functions_builder *b, bool is_name, uint32_t id)
{
    bool added = is_name ? function_of(b, id) != NO_MEMORY : map_site(b, id);
    return added ? EP_OK : EP_NOMEM;
}

/* HOT, 1 ns a row: nearly always the id was seen before. */
ep_status
ep_functions_add(ep_functions_builder *b, const ep_columns *columns, size_t from)
{
    const int32_t *maps[EP_KIND_COUNT];
    for (unsigned kind = 0; kind < EP_KIND_COUNT; kind++) {
        maps[kind] = ep_kind_has_name(kind) ? b->result.map.name_function : b->result.map.site_function;
    }
    for (size_t row = from, end; row < columns->count;) {
        for (end = ep_column_part(row, columns->count); row < end; row++) {
            unsigned kind = columns->kind[row];
            uint32_t id = columns->id[row];
            if (EP_UNLIKELY(maps[kind][id] == UNSEEN) &&
                ep_functions_add_id(b, ep_kind_has_name(kind), id) != EP_OK) {
                return EP_NOMEM;
            }
        }
    }
    return EP_OK;
}

ep_status
ep_functions_begin(ep_functions_builder *b, const ep_trace_thread *threads, size_t thread_count)
{
    *b = (ep_functions_builder){0};
    ep_id_map *map = &b->result.map;
    map->site_count = ep_site_count();
    map->name_count = ep_name_count();
    map->site_function = ep_realloc(NULL, map->site_count, sizeof *map->site_function);
    map->site_caller = ep_realloc(NULL, map->site_count, sizeof *map->site_caller);
    map->site_line = ep_realloc(NULL, map->site_count, sizeof *map->site_line);
    map->name_function = ep_realloc(NULL, map->name_count, sizeof *map->name_function);
    if (map->site_function == NULL || map->site_caller == NULL || map->site_line == NULL ||
        map->name_function == NULL) {
        return EP_NOMEM;
    }
    for (size_t i = 0; i < map->site_count; i++) {
        map->site_function[i] = UNSEEN;
        map->site_caller[i] = map->site_line[i] = -1;
    }
    for (size_t i = 0; i < map->name_count; i++) {
        map->name_function[i] = UNSEEN;
    }
    for (size_t i = 0; i < thread_count; i++) {
        const ep_open_stack *open = &threads[i].open;
        for (size_t j = 0; j < open->depth; j++) {
            if (!map_site(b, open->calls[j].site_id)) {
                return EP_NOMEM;
            }
        }
    }
    return EP_OK;
}

void
ep_functions_end(ep_functions_builder *b, ep_functions *out)
{
    /* Rows of a damaged file whose ids are in no map are taken for those of id 0. */
    ep_id_map *map = &b->result.map;
    map->site_function[0] = map->site_function[0] == UNSEEN ? -1 : map->site_function[0];
    map->name_function[0] = map->name_function[0] == UNSEEN ? -1 : map->name_function[0];
    map->function_count = b->result.count;
    *out = b->result;
    b->result = (ep_functions){0};
    ep_functions_drop(b);
}

void
ep_functions_drop(ep_functions_builder *b)
{
    ep_functions_clear(&b->result);
    ep_hash_index_free(&b->by_text);
    *b = (ep_functions_builder){0};
}

ep_status
ep_functions_build(const ep_decoded *decoded, ep_functions *out)
{
    ep_functions_builder b;
    ep_status status = ep_functions_begin(&b, decoded->threads, decoded->thread_count);
    if (status == EP_OK) {
        status = ep_functions_add(&b, &decoded->columns, 0);
    }
    if (status != EP_OK) {
        ep_functions_drop(&b);
        return status;
    }
    ep_functions_end(&b, out);
    return EP_OK;
}

void
ep_functions_clear(ep_functions *functions)
{
    free(functions->map.site_function);
    free(functions->map.site_caller);
    free(functions->map.site_line);
    free(functions->map.name_function);
    free(functions->name_id);
    *functions = (ep_functions){0};
}
