/* The function table: one row for all names with the same text, in order of first mention. */
#ifndef EP_FUNCTIONS_H
#define EP_FUNCTIONS_H

#include "decoded.h"
#include "hash_index.h"
#include "types.h"

struct ep_decoded;
struct ep_trace_thread;

/* A row of the function table stands for all names with the same text: for instance a class that was made
 * again, or two code objects of one def. */
typedef struct ep_functions {
    ep_id_map map;
    size_t count;
    uint32_t *name_id;                  /* one of the row's names */
} ep_functions;

/* Makes rows for the functions that the columns and open calls mention, in order of first mention.
 * Returns: new in *out. Fails: EP_NOMEM, *out untouched. */
EP_CHECKED ep_status ep_functions_build(const struct ep_decoded *decoded, ep_functions *out);
void ep_functions_clear(ep_functions *functions);

/* ep_functions_build() step by step, for events that are never all in memory: the open calls first, then
 * the events in order. In between, the map is valid for ids that were mentioned so far. */
typedef struct ep_functions_builder {
    ep_functions result;
    size_t capacity;         /* of result.name_id */
    ep_hash_index by_text;   /* rows of result.name_id, by the texts of the name */
} ep_functions_builder;

/* All ids of the events must be interned already. Returns: new (ep_functions_drop, also after a failure).
 * Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_functions_begin(ep_functions_builder *builder,
                                        const struct ep_trace_thread *threads, size_t thread_count);
/* Rows from `from` on. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_functions_add(ep_functions_builder *builder, const ep_columns *columns,
                                      size_t from);
/* One id: of a name, or of a site. The same id may come again. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_functions_add_id(ep_functions_builder *builder, bool is_name, uint32_t id);
/* Moves the table to *out; the builder is empty afterwards. Returns: new in *out. */
void ep_functions_end(ep_functions_builder *builder, ep_functions *out);
/* A zeroed or ended builder is allowed. */
void ep_functions_drop(ep_functions_builder *builder);

#endif
