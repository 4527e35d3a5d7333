/* Files -> batches -> folds. */
#include "reading.h"

#include <string.h>

#include "memory.h"

/* ---- Batches of rows that a source appends ------------------------------------------------------ */

/* Moves the rows that were not given yet to the front of the columns. */
static void
slide(ep_sliding_stream *s)
{
    ep_columns *c = &s->columns;
    if (s->from == 0) {
        return;    /* before the first append there are no arrays */
    }
    size_t rows = c->count - s->from, blocks = c->alloc_count - s->block;
    memmove(c->time_ns, c->time_ns + s->from, rows * sizeof *c->time_ns);
    memmove(c->kind, c->kind + s->from, rows * sizeof *c->kind);
    memmove(c->thread, c->thread + s->from, rows * sizeof *c->thread);
    memmove(c->id, c->id + s->from, rows * sizeof *c->id);
    for (size_t i = 0; i < blocks; i++) {
        c->alloc_row[i] = c->alloc_row[s->block + i] - s->from;
    }
    memmove(c->address, c->address + s->block, blocks * sizeof *c->address);
    memmove(c->size, c->size + s->block, blocks * sizeof *c->size);
    c->count = rows;
    c->alloc_count = blocks;
    s->safe -= s->from;
    s->from = s->block = 0;
}

static EP_COLD EP_CHECKED ep_status
grow(ep_sliding_stream *s, size_t capacity)
{
    ep_columns *old = &s->columns, larger = {0};
    larger.thread = ep_realloc(NULL, capacity, sizeof *larger.thread);
    if (larger.thread == NULL || !ep_columns_reserve(&larger, capacity, capacity)) {
        ep_columns_clear(&larger);
        return EP_NOMEM;
    }
    size_t rows = larger.count = old->count, blocks = larger.alloc_count = old->alloc_count;
    if (s->capacity > 0) {
        memcpy(larger.time_ns, old->time_ns, rows * sizeof *old->time_ns);
        memcpy(larger.kind, old->kind, rows * sizeof *old->kind);
        memcpy(larger.thread, old->thread, rows * sizeof *old->thread);
        memcpy(larger.id, old->id, rows * sizeof *old->id);
        memcpy(larger.alloc_row, old->alloc_row, blocks * sizeof *old->alloc_row);
        memcpy(larger.address, old->address, blocks * sizeof *old->address);
        memcpy(larger.size, old->size, blocks * sizeof *old->size);
    }
    ep_columns_clear(old);
    *old = larger;
    s->capacity = capacity;
    return EP_OK;
}

/* The number of rows that may be given: rows that are EP_PAIR_SKEW_NS later follow them, or nothing more
 * comes. */
static size_t
safe_rows(const ep_sliding_stream *s)
{
    const ep_columns *c = &s->columns;
    if (s->ended || c->count == 0) {
        return c->count;
    }
    int64_t limit_ns = c->time_ns[c->count - 1] - EP_PAIR_SKEW_NS;
    size_t low = s->from, high = c->count;    /* rows before low are safe, none from high on */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (c->time_ns[middle] <= limit_ns) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static EP_CHECKED ep_status
append(ep_sliding_stream *s)
{
    size_t room = s->source->room(s->source), before = s->columns.count;
    if (room == 0) {
        s->ended = true;
        return EP_OK;
    }
    size_t wanted = before + room;
    if (wanted > s->capacity) {
        ep_status status = grow(s, wanted + wanted / 4);
        if (status != EP_OK) {
            return status;
        }
    }
    ep_status status = s->source->append(s->source, &s->columns, wanted);
    return status != EP_OK || s->functions == NULL || s->source_tells
               ? status
               : ep_functions_add(s->functions, &s->columns, before);
}

static ep_status
sliding_next(ep_stream *stream, ep_batch *out)
{
    ep_sliding_stream *s = (ep_sliding_stream *)stream;
    ep_columns *c = &s->columns;
    if (s->from == s->safe && !s->ended) {
        slide(s);
    }
    while (s->from == s->safe && !s->ended) {
        ep_status status = append(s);
        if (status != EP_OK) {
            return status;
        }
        s->safe = safe_rows(s);
    }
    size_t to = s->safe - s->from > EP_STREAM_ROWS ? s->from + EP_STREAM_ROWS : s->safe;
    *out = (ep_batch){.columns = c, .from = s->from, .to = to, .alloc_from = s->block};
    while (s->block < c->alloc_count && c->alloc_row[s->block] < to) {
        s->block++;
    }
    s->from = to;
    return EP_OK;
}

void
ep_sliding_stream_open(ep_sliding_stream *stream, ep_row_source *source, ep_functions_builder *functions)
{
    *stream = (ep_sliding_stream){
        .stream = {.next = sliding_next},
        .source = source,
        .functions = functions,
    };
}

void
ep_sliding_stream_clear(ep_sliding_stream *stream)
{
    ep_columns_clear(&stream->columns);
}

/* ---- A pass ------------------------------------------------------------------------------------- */

void
ep_pass_clear(ep_pass *pass)
{
    ep_recording_clear(&pass->recording);
    ep_decoded_clear(&pass->head);
    ep_functions_clear(&pass->functions);
}

/* What a source knows before its first event. */
typedef struct known {
    const ep_decoded *head;
    ep_full_reason full_reason;
    bool has_lock;
} known;

static bool
ask_for_ids(ep_fold *const *folds, size_t count)
{
    bool asks = false;
    for (size_t i = 0; i < count; i++) {
        asks = asks || !folds[i]->type->without_ids;
    }
    return asks;
}

/* Runs the folds; the functions of the pass are new where that succeeds. */
static ep_status
run(ep_sliding_stream *stream, const known *of, ep_fold *const *folds, size_t count,
    const ep_progress *progress, ep_pass *pass)
{
    const ep_decoded *head = of->head;
    size_t threads = head->thread_count;
    ep_open_stack *open = ep_calloc(threads + 1, sizeof *open);    /* views */
    int64_t *from_ns = ep_calloc(threads + 1, sizeof *from_ns);
    int64_t *until_ns = ep_calloc(threads + 1, sizeof *until_ns);
    int32_t *processes = NULL;
    ep_status status = open != NULL && from_ns != NULL && until_ns != NULL ? EP_OK : EP_NOMEM;
    status = status != EP_OK ? status : ep_thread_processes(head->threads, threads, &processes);
    for (size_t i = 0; i < threads && status == EP_OK; i++) {
        open[i] = head->threads[i].open;
        from_ns[i] = ep_open_from_ns(&head->threads[i], of->full_reason);
        until_ns[i] = ep_open_until_ns(&head->threads[i], head->duration_ns);
    }
    ep_functions_builder *builder = stream->functions;
    if (status == EP_OK && builder != NULL) {
        status = ep_functions_begin(builder, head->threads, threads);
    }
    if (status == EP_OK) {
        ep_fold_facts facts = {
            .map = builder != NULL ? &builder->result.map : NULL,
            .thread_count = threads,
            .open_at_start = open,
            .open_from_ns = from_ns,
            .open_until_ns = until_ns,
            .thread_process = processes,
            .length_ns = head->duration_ns,
            .has_lock = of->has_lock,
        };
        status = ep_fold_run(&stream->stream, &facts, folds, count, progress);
    }
    pass->has_functions = status == EP_OK && builder != NULL;
    if (pass->has_functions) {
        ep_functions_end(builder, &pass->functions);
    } else if (builder != NULL) {
        ep_functions_drop(builder);
    }
    ep_sliding_stream_clear(stream);
    free(open);
    free(from_ns);
    free(until_ns);
    free(processes);
    return status;
}

/* ---- Logs and merged traces --------------------------------------------------------------------- */

/* Gives rows as long as there are any: how many come is not known before. One of `log` and `merged`. */
typedef struct rows_source {
    ep_row_source source;
    ep_sliding_stream stream;
    ep_file_stream *log;
    ep_merged_stream *merged;
    ep_error *error;
    bool ended;
} rows_source;

static size_t
rows_room(ep_row_source *source)
{
    return ((const rows_source *)source)->ended ? 0 : EP_STREAM_ROWS;
}

static ep_status
rows_append(ep_row_source *source, ep_columns *columns, size_t limit)
{
    rows_source *s = (rows_source *)source;
    size_t before = columns->count, *done = &s->stream.stream.done, *total = &s->stream.stream.total;
    ep_status status;
    if (s->log != NULL) {
        status = ep_file_stream_next(s->log, columns, limit, s->error);
        ep_file_stream_progress(s->log, done, total);
    } else {
        status = ep_merged_stream_next(s->merged, columns, limit, s->error);
        ep_merged_stream_progress(s->merged, done, total);
    }
    s->ended = columns->count == before;
    return status;
}

static ep_status
pass_log(ep_file_reader *reader, bool with_ids, bool has_lock, ep_fold *const *folds, size_t count,
         const ep_progress *progress, ep_pass *out, ep_error *error)
{
    ep_pass pass = {0};
    ep_functions_builder functions = {0};
    rows_source s = {.source = {.room = rows_room, .append = rows_append}, .error = error};
    ep_status status = ep_file_stream_open(reader, &pass.recording, &s.log, error);
    if (status != EP_OK) {
        return status;
    }
    if (!with_ids) {
        ep_file_stream_leave_ids(s.log);
    }
    known of = {
        .head = ep_file_stream_head(s.log),
        .full_reason = pass.recording.full_reason,
        .has_lock = has_lock,
    };
    ep_sliding_stream_open(&s.stream, &s.source, with_ids ? &functions : NULL);
    s.stream.source_tells = with_ids;
    if (with_ids) {
        ep_file_stream_tell(s.log, &functions);
    }
    status = run(&s.stream, &of, folds, count, progress, &pass);
    if (status == EP_OK) {
        ep_file_stream_end(s.log, &pass.head);
        *out = pass;
    } else {
        ep_pass_clear(&pass);
    }
    ep_file_stream_close(s.log);
    return status;
}

ep_status
ep_fold_log(ep_file_reader *reader, bool has_lock, ep_fold *const *folds, size_t count,
            const ep_progress *progress, ep_pass *out, ep_error *error)
{
    bool with_ids = ask_for_ids(folds, count);
    ep_status status = pass_log(reader, with_ids, has_lock, folds, count, progress, out, error);
    const ep_file_facts *facts = ep_file_get_facts(reader);
    if (status != EP_OK || with_ids || (facts->phase == EP_FILE_FINISHED && facts->note_count == 0)) {
        return status;
    }
    /* What is missing from a damaged file is told by its ids, too. */
    ep_pass_clear(out);
    for (size_t i = 0; i < count; i++) {
        folds[i]->type->clear(folds[i]);
    }
    return pass_log(reader, true, has_lock, folds, count, progress, out, error);
}

ep_status
ep_fold_merged(ep_trace *trace, bool has_lock, ep_fold *const *folds, size_t count,
               const ep_progress *progress, ep_pass *out, ep_error *error)
{
    ep_pass pass = {0};
    ep_functions_builder functions = {0};
    rows_source s = {.source = {.room = rows_room, .append = rows_append}, .error = error};
    ep_status status = ep_merged_stream_open(trace, &s.merged, error);
    if (status != EP_OK) {
        return status;
    }
    known of = {
        .head = ep_merged_stream_head(s.merged),
        .full_reason = ep_merged_stream_full_reason(s.merged),
        .has_lock = has_lock,
    };
    ep_sliding_stream_open(&s.stream, &s.source, ask_for_ids(folds, count) ? &functions : NULL);
    status = run(&s.stream, &of, folds, count, progress, &pass);
    status = status != EP_OK ? status : ep_merged_stream_end(s.merged);
    if (status == EP_OK) {
        *out = pass;
    } else {
        ep_pass_clear(&pass);
    }
    ep_merged_stream_close(s.merged);
    return status;
}

/* ---- Archives ----------------------------------------------------------------------------------- */

typedef struct archive_source {
    ep_row_source source;
    ep_sliding_stream stream;
    ep_archive_stream *blocks;
    ep_error *error;
} archive_source;

static size_t
archive_room(ep_row_source *source)
{
    return ep_archive_stream_room(((const archive_source *)source)->blocks);
}

static ep_status
archive_append(ep_row_source *source, ep_columns *columns, size_t limit)
{
    archive_source *s = (archive_source *)source;
    (void)limit;    /* the same as the result of archive_room() */
    size_t before = columns->count;
    ep_status status = ep_archive_stream_next(s->blocks, columns, s->error);
    s->stream.stream.done += columns->count - before;
    return status;
}

ep_status
ep_fold_archive(ep_archive *archive, bool has_lock, ep_fold *const *folds, size_t count,
                const ep_progress *progress, ep_pass *out, ep_error *error)
{
    ep_pass pass = {0};
    ep_functions_builder functions = {0};
    archive_source s = {.source = {.room = archive_room, .append = archive_append}, .error = error};
    ep_status status = ep_archive_stream_open(archive, &s.blocks, error);
    if (status != EP_OK) {
        return status;
    }
    known of = {
        .head = ep_archive_head(archive),
        .full_reason = ep_archive_recording(archive)->full_reason,
        .has_lock = has_lock,
    };
    ep_sliding_stream_open(&s.stream, &s.source, ask_for_ids(folds, count) ? &functions : NULL);
    s.stream.stream.total = (size_t)ep_archive_get_info(archive)->events;
    status = run(&s.stream, &of, folds, count, progress, &pass);
    if (status == EP_OK) {
        ep_archive_stream_end(s.blocks);
        *out = pass;
    }
    ep_archive_stream_close(s.blocks);
    return status;
}
