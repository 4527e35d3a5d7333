#include "made.h"

#include "memory.h"
#include "pair.h"

static bool
has_value(uint8_t kind)
{
    return ep_kinds_has(ep_kinds_of_two_words, kind);
}

/* Returns: the error in a row, NULL if there is none. */
static const char *
make_row(const ep_made *from, size_t row, ep_decoded *out)
{
    ep_columns *c = &out->columns;
    int64_t time = from->time_ns[row];
    uint8_t kind = from->kind[row];
    int32_t thread = from->thread[row], ref = from->ref[row];
    if (time < (row > 0 ? c->time_ns[row - 1] : 0) || time > from->duration_ns) {
        return "times are not in order";
    }
    if (kind >= EP_KIND_COUNT || ep_kinds[kind].word == NULL || ep_kinds[kind].word[0] == 0) {
        return "there is no such kind";
    }
    if (thread < 0 || (size_t)thread >= out->thread_count) {
        return "there is no such thread";
    }
    bool closes = ep_kind_has_name(kind);
    if (ref < -1 || (ref >= 0 && (size_t)ref >= (closes ? from->function_count : from->site_count))) {
        return "there is no such function or place";
    }
    c->time_ns[row] = time;
    c->kind[row] = kind;
    c->thread[row] = thread;
    c->id[row] = ref < 0 ? 0 : closes ? from->names[ref]
                                      : from->sites[ref];
    if (has_value(kind)) {
        size_t block = c->alloc_count;
        if (block == from->block_count) {
            return "there are too few addresses";
        }
        c->alloc_row[block] = row;
        c->address[block] = from->address[block];
        c->size[block] = from->size[block];
        c->alloc_count += 1;
    }
    ep_trace_thread *t = &out->threads[thread];
    bool first = true;
    for (int k = 0; k < EP_KIND_COUNT && first; k++) {
        first = t->recorded[k] == 0;
    }
    t->first_ns = first ? time : t->first_ns;
    t->last_ns = time;
    t->recorded[kind] += 1;
    return NULL;
}

ep_status
ep_decoded_make(const ep_made *rows, ep_decoded *out, ep_error *error)
{
    ep_columns *c = &out->columns;
    if (rows->count > EP_PAIR_MAX || rows->duration_ns < 0) {
        return ep_fail(error, EP_ARGUMENT, "too many rows, or a negative duration");
    }
    c->thread = ep_calloc(rows->count, sizeof *c->thread);
    if (c->thread == NULL || !ep_columns_reserve(c, rows->count, rows->block_count)) {
        return EP_NOMEM;
    }
    for (size_t row = 0; row < rows->count; row++) {
        const char *wrong = make_row(rows, row, out);
        if (wrong != NULL) {
            return ep_fail(error, EP_ARGUMENT, "%s", wrong);
        }
        c->count = row + 1;
    }
    if (c->alloc_count != rows->block_count) {
        return ep_fail(error, EP_ARGUMENT, "there are too many addresses");
    }
    out->duration_ns = rows->duration_ns;
    return EP_OK;
}
