/* Files -> batches -> folds. */
#include "reading.h"

#include <string.h>

#include "memory.h"

/* ---- Batches of rows that a source appends ------------------------------------------------------ */

/* Puts the rows from `row` on, and the allocator events from `block` on, to the front of `to`, which may be
 * the same columns, and has room for them. */
static void
copy_rows(ep_columns *to, const ep_columns *c, size_t row, size_t block)
{
    size_t rows = c->count - row, blocks = c->alloc_count - block;
    memmove(to->time_ns, c->time_ns + row, rows * sizeof *c->time_ns);
    memmove(to->kind, c->kind + row, rows * sizeof *c->kind);
    memmove(to->thread, c->thread + row, rows * sizeof *c->thread);
    memmove(to->id, c->id + row, rows * sizeof *c->id);
    for (size_t i = 0; i < blocks; i++) {
        to->alloc_row[i] = c->alloc_row[block + i] - row;
    }
    memmove(to->address, c->address + block, blocks * sizeof *c->address);
    memmove(to->size, c->size + block, blocks * sizeof *c->size);
    to->count = rows;
    to->alloc_count = blocks;
}

static EP_COLD EP_CHECKED ep_status
grow(ep_columns *columns, size_t *capacity, size_t wanted)
{
    ep_columns larger = {0};
    larger.thread = ep_realloc(NULL, wanted, sizeof *larger.thread);
    if (larger.thread == NULL || !ep_columns_reserve(&larger, wanted, wanted)) {
        ep_columns_clear(&larger);
        return EP_NOMEM;
    }
    if (*capacity > 0) {
        copy_rows(&larger, columns, 0, 0);
    }
    ep_columns_clear(columns);
    *columns = larger;
    *capacity = wanted;
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

/* Appends what the source has next. *ended: it has nothing more. */
static EP_CHECKED ep_status
append(const ep_sliding_stream *s, ep_columns *columns, size_t *capacity, bool *ended)
{
    size_t room = s->source->room(s->source), before = columns->count;
    *ended = room == 0;
    if (room == 0) {
        return EP_OK;
    }
    size_t wanted = before + room;
    if (wanted > *capacity) {
        ep_status status = grow(columns, capacity, wanted + wanted / 4);
        if (status != EP_OK) {
            return status;
        }
    }
    ep_status status = s->source->append(s->source, columns, wanted);
    return status != EP_OK || s->functions == NULL || s->source_tells
               ? status
               : ep_functions_add(s->functions, columns, before);
}

/* What follows the columns, or the tail of them that was not given, is in them now. */
static void
settle(ep_sliding_stream *s)
{
    s->stream.done = s->source->done;
    s->stream.total = s->source->total;
    s->safe = safe_rows(s);
}

/* ---- Ahead, on a second thread --- */

/* Rows that are read at once: a thread is woken for them, in some 20 us. */
#define AHEAD_ROWS (2 * EP_STREAM_ROWS)

static void
read_next(ep_sliding_stream *s)
{
    size_t enough = s->next.count + AHEAD_ROWS;
    do {
        s->next_status = append(s, &s->next, &s->next_capacity, &s->next_ended);
    } while (s->next_status == EP_OK && !s->next_ended && s->next.count < enough);
}

/* The second thread. */
static void
read_ahead(void *stream)
{
    ep_sliding_stream *s = stream;
    ep_mutex_lock(&s->lock);
    for (;;) {
        while (s->ahead != EP_NEXT_WANTED && s->ahead != EP_NEXT_END) {
            ep_mutex_wait(&s->lock, &s->changed);
        }
        if (s->ahead == EP_NEXT_END) {
            break;
        }
        s->ahead = EP_NEXT_RUNS;
        ep_mutex_unlock(&s->lock);
        read_next(s);
        ep_mutex_lock(&s->lock);
        s->ahead = EP_NEXT_DONE;
        pthread_cond_signal(&s->changed);
    }
    ep_mutex_unlock(&s->lock);
}

static void
set_ahead(ep_sliding_stream *s, ep_next_rows ahead)
{
    ep_mutex_lock(&s->lock);
    s->ahead = ahead;
    pthread_cond_signal(&s->changed);
    ep_mutex_unlock(&s->lock);
}

/* Waits while the second thread reads. True: it had not begun. */
static bool
wait_for_next(ep_sliding_stream *s)
{
    ep_mutex_lock(&s->lock);
    while (s->ahead == EP_NEXT_RUNS) {
        ep_mutex_wait(&s->lock, &s->changed);
    }
    bool is_left = s->ahead == EP_NEXT_WANTED;
    s->ahead = EP_NEXT_NONE;
    ep_mutex_unlock(&s->lock);
    return is_left;
}

static void
begin_ahead(ep_sliding_stream *s)
{
    ep_mutex_renew(&s->lock);
    pthread_cond_init(&s->changed, NULL);
    s->reads_ahead = true;
    s->has_thread = ep_worker_start(&s->worker, read_ahead, s);
}

static void
end_ahead(ep_sliding_stream *s)
{
    if (!s->reads_ahead) {
        return;
    }
    (void)wait_for_next(s);
    set_ahead(s, EP_NEXT_END);
    if (s->has_thread) {
        ep_worker_join(&s->worker);
    }
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock.os);
    s->reads_ahead = false;
}

/* The rows that may be looked at only begin the next columns, which a second thread goes on with. */
static EP_CHECKED ep_status
begin_next(ep_sliding_stream *s)
{
    if (s->next_capacity < s->capacity) {
        s->next.count = s->next.alloc_count = 0;
        ep_status status = grow(&s->next, &s->next_capacity, s->capacity);
        if (status != EP_OK) {
            return status;
        }
    }
    copy_rows(&s->next, &s->columns, s->safe, ep_columns_block_of_row(&s->columns, s->block, s->safe));
    set_ahead(s, EP_NEXT_WANTED);
    return EP_OK;
}

static EP_CHECKED ep_status
take_next(ep_sliding_stream *s)
{
    if (wait_for_next(s)) {
        read_next(s);
    }
    if (s->next_status != EP_OK) {
        return s->next_status;
    }
    ep_columns columns = s->columns;
    size_t capacity = s->capacity;
    s->columns = s->next;
    s->capacity = s->next_capacity;
    s->next = columns;
    s->next_capacity = capacity;
    s->from = s->block = 0;
    s->ended = s->next_ended;
    settle(s);
    return s->ended ? EP_OK : begin_next(s);
}

/* ---- Rows --- */

/* Until there are rows to give, or none are left; a thread reads ahead. */
static EP_CHECKED ep_status
take_rows(ep_sliding_stream *s)
{
    ep_status status = EP_OK;
    while (status == EP_OK && s->from == s->safe && !s->ended) {
        status = take_next(s);
    }
    return status;
}

/* Like take_rows(), where no thread reads ahead. */
static EP_CHECKED ep_status
read_rows(ep_sliding_stream *s)
{
    if (s->capacity > 0) {
        copy_rows(&s->columns, &s->columns, s->from, s->block);
    }
    s->from = s->block = s->safe = 0;
    while (s->safe == 0 && !s->ended) {
        ep_status status = append(s, &s->columns, &s->capacity, &s->ended);
        if (status != EP_OK) {
            return status;
        }
        settle(s);
    }
    /* How much there is was not known before. */
    if (s->ended || !ep_worker_pays(s->stream.total)) {
        return EP_OK;
    }
    begin_ahead(s);
    return begin_next(s);
}

static ep_status
sliding_next(ep_stream *stream, ep_batch *out)
{
    ep_sliding_stream *s = (ep_sliding_stream *)stream;
    ep_columns *c = &s->columns;
    if (s->from == s->safe && !s->ended) {
        ep_status status = s->reads_ahead ? take_rows(s) : read_rows(s);
        if (status != EP_OK) {
            return status;
        }
    }
    size_t to = s->safe - s->from > EP_STREAM_ROWS ? s->from + EP_STREAM_ROWS : s->safe;
    *out = (ep_batch){.columns = c, .from = s->from, .to = to, .alloc_from = s->block};
    s->block = ep_columns_block_of_row(&s->columns, s->block, to);
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
    end_ahead(stream);
    ep_columns_clear(&stream->columns);
    ep_columns_clear(&stream->next);
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
    bool asks = count == 0;    /* a pass for the functions alone */
    for (size_t i = 0; i < count; i++) {
        asks = asks || !folds[i]->type->without_ids;
    }
    return asks;
}

/* Runs the folds; the functions of the pass are new where that succeeds. */
static ep_status
run(ep_sliding_stream *stream, const known *facts_known, ep_fold *const *folds, size_t count,
    const ep_progress *progress, ep_pass *pass)
{
    const ep_decoded *head = facts_known->head;
    size_t threads = head->thread_count;
    ep_open_stack *open = ep_calloc(threads + 1, sizeof *open);    /* views */
    int64_t *from_ns = ep_calloc(threads + 1, sizeof *from_ns);
    int64_t *until_ns = ep_calloc(threads + 1, sizeof *until_ns);
    int32_t *processes = NULL, *carriers = NULL;
    ep_status status = open != NULL && from_ns != NULL && until_ns != NULL ? EP_OK : EP_NOMEM;
    status = status != EP_OK ? status : ep_thread_processes(head->threads, threads, &processes);
    status = status != EP_OK ? status : ep_thread_carriers(head->threads, threads, &carriers);
    for (size_t i = 0; i < threads && status == EP_OK; i++) {
        open[i] = head->threads[i].open;
        from_ns[i] = ep_open_from_ns(&head->threads[i], facts_known->full_reason);
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
            .thread_carrier = carriers,
            .length_ns = head->duration_ns,
            .head = head,
            .has_lock = facts_known->has_lock,
        };
        status = ep_fold_run(&stream->stream, &facts, folds, count, progress);
    }
    ep_sliding_stream_clear(stream);    /* ends the second thread, which uses the builder */
    pass->has_functions = status == EP_OK && builder != NULL;
    if (pass->has_functions) {
        ep_functions_end(builder, &pass->functions);
    } else if (builder != NULL) {
        ep_functions_drop(builder);
    }
    free(open);
    free(from_ns);
    free(until_ns);
    free(processes);
    free(carriers);
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
    size_t before = columns->count;
    ep_status status;
    if (s->log != NULL) {
        status = ep_file_stream_next(s->log, columns, limit, s->error);
        ep_file_stream_progress(s->log, &source->done, &source->total);
    } else {
        status = ep_merged_stream_next(s->merged, columns, limit, s->error);
        ep_merged_stream_progress(s->merged, &source->done, &source->total);
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
    known facts_known = {
        .head = ep_file_stream_head(s.log),
        .full_reason = pass.recording.full_reason,
        .has_lock = has_lock,
    };
    ep_sliding_stream_open(&s.stream, &s.source, with_ids ? &functions : NULL);
    s.stream.source_tells = with_ids;
    if (with_ids) {
        ep_file_stream_tell(s.log, &functions);
    }
    status = run(&s.stream, &facts_known, folds, count, progress, &pass);
    if (status == EP_OK) {
        status = ep_file_stream_end(s.log, &pass.head, error);
    }
    if (status == EP_OK) {
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
    known facts_known = {
        .head = ep_merged_stream_head(s.merged),
        .full_reason = ep_merged_stream_full_reason(s.merged),
        .has_lock = has_lock,
    };
    ep_sliding_stream_open(&s.stream, &s.source, ask_for_ids(folds, count) ? &functions : NULL);
    status = run(&s.stream, &facts_known, folds, count, progress, &pass);
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
    source->done += columns->count - before;
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
    known facts_known = {
        .head = ep_archive_head(archive),
        .full_reason = ep_archive_recording(archive)->full_reason,
        .has_lock = has_lock,
    };
    ep_sliding_stream_open(&s.stream, &s.source, ask_for_ids(folds, count) ? &functions : NULL);
    s.source.total = (size_t)ep_archive_get_info(archive)->events;
    status = run(&s.stream, &facts_known, folds, count, progress, &pass);
    if (status == EP_OK) {
        ep_archive_stream_end(s.blocks);
        *out = pass;
    }
    ep_archive_stream_close(s.blocks);
    return status;
}
