#include "trim.h"

#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "names.h"
#include "pair.h"

/* ---- Rows -------------------------------------------------------------------------------------- */

/* Labels that a thread has, and what they are, are written before they hold: those of the time before the
 * cut stay. */
static bool
is_label(uint8_t kind)
{
    return kind == EP_KIND_LABEL || kind == EP_KIND_LABEL_TEXT;
}

static bool
stays(const ep_trim *trim, const ep_columns *columns, size_t row)
{
    uint8_t kind = columns->kind[row];
    int64_t time_ns = columns->time_ns[row];
    return time_ns <= trim->until_ns && (time_ns >= trim->from_ns || is_label(kind)) &&
           !ep_kinds_has(trim->kinds_left_out, kind) &&
           (trim->threads_left_out == NULL || !trim->threads_left_out[columns->thread[row]]);
}

/* The calls that are open at from_ns, by thread. Fails: false; *open is the caller's to free. */
static bool
open_at(const ep_trim *trim, const ep_decoded *decoded, ep_open_stack *open)
{
    const ep_columns *columns = &decoded->columns;
    for (size_t i = 0; i < decoded->thread_count; i++) {
        if (ep_open_stack_copy(&decoded->threads[i].open, &open[i]) != EP_OK) {
            return false;
        }
    }
    bool cut = trim->from_ns > 0;
    for (size_t row = 0; cut && row < columns->count && columns->time_ns[row] < trim->from_ns; row++) {
        uint8_t kind = columns->kind[row];
        ep_open_stack *stack = &open[columns->thread[row]];
        size_t depth = stack->depth;
        ep_open_stack_apply(stack, kind, columns->id[row]);
        if (stack->depth == depth && ep_kinds_has(ep_kinds_that_open_calls, kind)) {
            return false;
        }
    }
    for (size_t i = 0; i < decoded->thread_count; i++) {
        size_t kept = 0;
        for (size_t at = 0; at < open[i].depth; at++) {
            ep_open_call *call = &open[i].calls[at];
            if (!ep_kinds_has(trim->kinds_left_out, call->kind)) {
                call->before |= cut;
                open[i].calls[kept++] = *call;
            }
        }
        open[i].depth = kept;
    }
    return true;
}

/* Threads keep their numbers. drop: room for a byte each row. */
static void
keep_rows(const ep_trim *trim, ep_decoded *decoded, uint8_t *drop)
{
    ep_columns *c = &decoded->columns;
    for (size_t row = 0; row < c->count; row++) {
        drop[row] = !stays(trim, c, row);
    }
    ep_decoded_keep_rows(decoded, drop);
    for (size_t row = 0; row < c->count; row++) {
        ep_trace_thread *thread = &decoded->threads[c->thread[row]];
        int64_t time_ns = c->time_ns[row] - trim->from_ns;
        c->time_ns[row] = time_ns > 0 ? time_ns : 0;
        thread->first_ns = thread->first_ns < 0 ? c->time_ns[row] : thread->first_ns;
        thread->last_ns = c->time_ns[row];
    }
}

static void
keep_resident(const ep_trim *trim, ep_decoded *decoded)
{
    size_t kept = 0;
    for (size_t i = 0; i < decoded->resident_count; i++) {
        int64_t at_ns = decoded->resident_ns[i];
        if (at_ns >= trim->from_ns && at_ns <= trim->until_ns) {
            decoded->resident_ns[kept] = at_ns - trim->from_ns;
            decoded->resident_bytes[kept] = decoded->resident_bytes[i];
            decoded->resident_own[kept++] = decoded->resident_own[i];
        }
    }
    decoded->resident_count = kept;
}

/* Takes the rows of threads of which nothing is left out of the table. rows: room for a number each. */
static void
keep_threads(const ep_trim *trim, ep_decoded *decoded, int32_t *rows)
{
    size_t kept = 0;
    for (size_t i = 0; i < decoded->thread_count; i++) {
        ep_trace_thread *thread = &decoded->threads[i];
        bool out = trim->threads_left_out != NULL && trim->threads_left_out[i];
        if (out || (!ep_any_counted(thread->recorded) && !ep_any_counted(thread->lost) &&
                    thread->open.depth == 0)) {
            free(thread->open.calls);
            continue;
        }
        rows[i] = (int32_t)kept;
        decoded->threads[kept++] = *thread;
    }
    decoded->thread_count = kept;
    for (size_t row = 0; row < decoded->columns.count; row++) {
        decoded->columns.thread[row] = rows[decoded->columns.thread[row]];
    }
}

ep_status
ep_trim_apply(const ep_trim *trim, ep_decoded *decoded)
{
    size_t thread_count = decoded->thread_count;
    ep_open_stack *open = ep_calloc(thread_count, sizeof *open);
    int32_t *rows = ep_calloc(thread_count, sizeof *rows);
    uint8_t *drop = ep_calloc(decoded->columns.count, 1);
    bool done = open != NULL && rows != NULL && drop != NULL && open_at(trim, decoded, open) &&
                ep_columns_own(&decoded->columns);
    bool merged = ep_process_count(decoded->threads, thread_count) > 1;
    for (size_t i = 0; done && i < thread_count; i++) {
        ep_trace_thread *thread = &decoded->threads[i];
        bool out = trim->threads_left_out != NULL && trim->threads_left_out[i];
        free(thread->open.calls);
        thread->open = open[i];
        open[i] = (ep_open_stack){0};
        thread->open.depth = out ? 0 : thread->open.depth;
        thread->first_ns = -1;
        thread->last_ns = 0;
        int64_t from_ns = thread->from_ns - trim->from_ns;
        thread->from_ns = from_ns > 0 ? from_ns : 0;
        if (thread->until_ns > 0) {
            int64_t until_ns = (thread->until_ns < trim->until_ns ? thread->until_ns : trim->until_ns) -
                               trim->from_ns;
            thread->until_ns = until_ns > thread->from_ns ? until_ns : thread->from_ns + 1;
        }
    }
    if (done) {
        keep_rows(trim, decoded, drop);
        keep_resident(trim, decoded);
        for (size_t i = 0; i < thread_count; i++) {
            ep_trace_thread *thread = &decoded->threads[i];
            thread->first_ns = thread->first_ns > 0 ? thread->first_ns : 0;
        }
        if (!merged) {
            keep_threads(trim, decoded, rows);
        }
        int64_t until_ns = trim->until_ns < decoded->duration_ns ? trim->until_ns : decoded->duration_ns;
        decoded->duration_ns = until_ns > trim->from_ns ? until_ns - trim->from_ns : 0;
    }
    for (size_t i = 0; open != NULL && i < thread_count; i++) {
        free(open[i].calls);
    }
    free(open);
    free(rows);
    free(drop);
    return done ? EP_OK : EP_NOMEM;
}

/* ---- Values of labels --------------------------------------------------------------------------- */

/* The bytes of a LABEL_TEXT: the lowest of the word has how many of the others count, and whether more
 * follow. */
#define TEXT_BYTES 7u
#define TEXT_GOES_ON 128u

/* The value that a thread is in the middle of. */
typedef struct label_value {
    char *bytes;
    size_t count, capacity;
    size_t *blocks;    /* where its parts are in the columns of values */
    size_t block_count, block_capacity;
} label_value;

typedef bool (*whole_value)(void *context, const label_value *value);

static bool
add_part(label_value *value, size_t block, uint64_t word)
{
    size_t bytes = word & TEXT_BYTES;
    if (!ep_grow((void **)&value->bytes, &value->capacity, value->count + TEXT_BYTES, 1) ||
        !ep_grow((void **)&value->blocks, &value->block_capacity, value->block_count + 1,
                 sizeof *value->blocks)) {
        return false;
    }
    for (size_t i = 0; i < bytes; i++) {
        value->bytes[value->count++] = (char)(word >> 8 * (i + 1) & 255);
    }
    value->blocks[value->block_count++] = block;
    return true;
}

/* Calls `take` with each value that has its end. Fails: EP_NOMEM; EP_STATE: take gave false. */
static ep_status
each_value(const ep_decoded *decoded, whole_value take, void *context)
{
    const ep_columns *columns = &decoded->columns;
    label_value *threads = ep_calloc(decoded->thread_count, sizeof *threads);
    ep_status status = threads == NULL ? EP_NOMEM : EP_OK;
    for (size_t block = 0; status == EP_OK && block < columns->alloc_count; block++) {
        size_t row = columns->alloc_row[block];
        if (columns->kind[row] != EP_KIND_LABEL_TEXT) {
            continue;
        }
        label_value *value = &threads[columns->thread[row]];
        uint64_t word = columns->address[block];
        if (!add_part(value, block, word)) {
            status = EP_NOMEM;
        } else if ((word & TEXT_GOES_ON) == 0) {
            status = take(context, value) ? EP_OK : EP_STATE;
            value->count = value->block_count = 0;
        }
    }
    for (size_t i = 0; threads != NULL && i < decoded->thread_count; i++) {
        free(threads[i].bytes);
        free(threads[i].blocks);
    }
    free(threads);
    return status;
}

typedef struct numbered_taker {
    ep_label_taker take;
    void *context;
    size_t number;
} numbered_taker;

static bool
tell(void *context, const label_value *value)
{
    numbered_taker *to = context;
    return to->take(to->context, to->number++, (ep_text){value->bytes, value->count});
}

ep_status
ep_label_values(const ep_decoded *decoded, ep_label_taker take, void *context)
{
    return each_value(decoded, tell, &(numbered_taker){take, context, 0});
}

typedef struct new_labels {
    const ep_rename *rename;
    uint64_t *words;    /* the column of values; NULL: only compare lengths */
    size_t number;
} new_labels;

static bool
put_value(void *context, const label_value *value)
{
    new_labels *to = context;
    const ep_rename *rename = to->rename;
    if (to->number == rename->label_count || rename->labels[to->number].bytes != value->count) {
        return false;
    }
    ep_text text = rename->labels[to->number++];
    for (size_t part = 0, at = 0; to->words != NULL && part < value->block_count; part++) {
        uint64_t *word = &to->words[value->blocks[part]];
        size_t bytes = *word & TEXT_BYTES;
        *word &= 255;
        for (size_t i = 0; i < bytes; i++) {
            *word |= (uint64_t)(unsigned char)text.at[at++] << 8 * (i + 1);
        }
    }
    return true;
}

/* ---- Names ------------------------------------------------------------------------------------- */

static uint32_t
name_for(const ep_rename *rename, uint32_t name_id)
{
    int32_t row = ep_name_function(rename->map, name_id);
    return row < 0 ? 0 : rename->names[row];
}

/* The site with other names. Fails: 0. */
static uint32_t
site_for(const ep_rename *rename, uint32_t site_id, uint32_t *known)
{
    if (known[site_id] == 0) {
        ep_site site = *ep_site_get(site_id);
        site.callee = name_for(rename, site.callee);
        site.caller = name_for(rename, site.caller);
        if (site.task > 0) {
            site.task = site.task <= rename->task_count ? rename->tasks[site.task - 1] + 1 : 0;
        }
        known[site_id] = ep_site_of_names(&site);
    }
    return known[site_id];
}

ep_status
ep_rename_apply(const ep_rename *rename, ep_decoded *decoded)
{
    ep_columns *columns = &decoded->columns;
    new_labels labels = {.rename = rename};
    ep_status status = each_value(decoded, put_value, &labels);
    if (status != EP_OK || labels.number != rename->label_count) {
        return status == EP_NOMEM ? EP_NOMEM : EP_ARGUMENT;
    }
    /* All new sites first: until then nothing is changed. */
    uint32_t *sites = ep_calloc(ep_site_count(), sizeof *sites);
    status = sites == NULL ? EP_NOMEM : EP_OK;
    for (size_t row = 0; status == EP_OK && row < columns->count; row++) {
        bool is_site = !ep_kind_has_name(columns->kind[row]) && columns->id[row] != 0;
        if (is_site && site_for(rename, columns->id[row], sites) == 0) {
            status = EP_NOMEM;
        }
    }
    for (size_t i = 0; status == EP_OK && i < decoded->thread_count; i++) {
        const ep_open_stack *open = &decoded->threads[i].open;
        for (size_t at = 0; at < open->depth; at++) {
            if (open->calls[at].site_id != 0 && site_for(rename, open->calls[at].site_id, sites) == 0) {
                status = EP_NOMEM;
            }
        }
    }
    if (status == EP_OK && !ep_columns_own(columns)) {
        status = EP_NOMEM;
    }
    if (status != EP_OK) {
        free(sites);
        return status;
    }
    labels = (new_labels){.rename = rename, .words = columns->address};
    status = each_value(decoded, put_value, &labels);
    for (size_t row = 0; status == EP_OK && row < columns->count; row++) {
        uint32_t *id = &columns->id[row];
        *id = ep_kind_has_name(columns->kind[row]) ? name_for(rename, *id) : sites[*id];
    }
    for (size_t i = 0; status == EP_OK && i < decoded->thread_count; i++) {
        const ep_open_stack *open = &decoded->threads[i].open;
        for (size_t at = 0; at < open->depth; at++) {
            open->calls[at].site_id = sites[open->calls[at].site_id];
        }
    }
    free(sites);
    return status;
}
