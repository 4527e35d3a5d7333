/* Traces of several traces: each part is a feed of rows, and a merger (merge.h) puts them in order. */
#include "merged.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "memory.h"
#include "merge.h"
#include "open.h"

/* Rows that are decoded ahead of logs, of all together, and the bounds for one. */
#define ROWS_AHEAD ((size_t)1 << 18)
#define ROWS_AHEAD_MOST ((size_t)1 << 16)
#define ROWS_AHEAD_LEAST ((size_t)1 << 10)

/* Of more parts, each is opened for what is known before its events, and again when the merger comes to its
 * start: an open log takes 0.3 MiB, and a chunk of 1 MiB for each thread. */
#define OPEN_AT_ONCE 16

typedef struct merged_origin {
    ep_trace_origin origin;
    ep_merged_part *parts;    /* NULL: the events are read */
    size_t count;
    ep_decoded head;          /* trace->head of a pass; its arrays may have been handed out */
} merged_origin;

/* ---- A part's rows --------------------------------------------------------------------------- */

typedef struct part_feed {
    ep_merge_feed feed;
    ep_trace *trace;
    ep_error *error;          /* of the running call */
    ep_columns buffer;        /* of a log or an archive */
    size_t capacity, rows;    /* that it has room for; that a log is read by */
    size_t done, total;       /* progress */
    bool ended;
    /* One of these while it is read; of columns none. */
    ep_file_stream *log;
    ep_archive_stream *archive;
    /* Of a log. */
    ep_recording recording;
    ep_decoded head;          /* after its last row */
} part_feed;

static const ep_columns no_rows;

static ep_status
more_of_columns(ep_merge_feed *feed, const ep_columns **out)
{
    part_feed *self = (part_feed *)feed;
    *out = self->ended ? &no_rows : &self->trace->decoded.columns;
    self->ended = true;
    self->done = self->total;
    return EP_OK;
}

/* Room for rows in an empty buffer. */
static EP_CHECKED ep_status
make_room(part_feed *self, size_t rows)
{
    self->buffer.count = self->buffer.alloc_count = 0;
    if (rows <= self->capacity) {
        return EP_OK;
    }
    ep_columns_clear(&self->buffer);
    self->capacity = 0;
    self->buffer.thread = ep_realloc(NULL, rows, sizeof *self->buffer.thread);
    if (self->buffer.thread == NULL || !ep_columns_reserve(&self->buffer, rows, rows)) {
        return EP_NOMEM;
    }
    self->capacity = rows;
    return EP_OK;
}

static EP_CHECKED ep_status
open_log(part_feed *self)
{
    ep_recording_clear(&self->recording);
    return ep_file_stream_open(ep_trace_log_reader(self->trace), &self->recording, &self->log,
                               self->error);
}

/* Gives the memory of a log or an archive back; the log may be opened again. */
static void
close_part(part_feed *self)
{
    ep_file_stream_close(self->log);
    ep_archive_stream_close(self->archive);
    ep_columns_clear(&self->buffer);
    self->log = NULL;
    self->archive = NULL;
    self->capacity = 0;
}

static ep_status
more_of_log(ep_merge_feed *feed, const ep_columns **out)
{
    part_feed *self = (part_feed *)feed;
    *out = &no_rows;
    if (self->ended) {
        return EP_OK;
    }
    ep_status status = self->log == NULL ? open_log(self) : EP_OK;
    status = status != EP_OK ? status : make_room(self, self->rows);
    if (status == EP_OK) {
        status = ep_file_stream_next(self->log, &self->buffer, self->capacity, self->error);
    }
    if (status != EP_OK) {
        return status;
    }
    ep_file_stream_progress(self->log, &self->done, &self->total);
    if (self->buffer.count > 0) {
        *out = &self->buffer;
        return EP_OK;
    }
    /* Of many processes few run at the same time: what is over takes no memory. */
    self->ended = true;
    status = ep_file_stream_end(self->log, &self->head, self->error);
    close_part(self);
    return status;
}

static ep_status
more_of_archive(ep_merge_feed *feed, const ep_columns **out)
{
    part_feed *self = (part_feed *)feed;
    *out = &no_rows;
    if (self->archive == NULL && !self->ended) {
        ep_status status =
            ep_archive_stream_open(ep_trace_archive(self->trace), &self->archive, self->error);
        if (status != EP_OK) {
            return status;
        }
    }
    while (!self->ended) {
        size_t room = ep_archive_stream_room(self->archive);
        if (room == 0) {
            self->ended = true;
            ep_archive_stream_end(self->archive);
            close_part(self);
            break;
        }
        ep_status status = make_room(self, room);
        status = status != EP_OK ? status
                                 : ep_archive_stream_next(self->archive, &self->buffer, self->error);
        if (status != EP_OK) {
            self->error->os_error = status == EP_IO ? errno : self->error->os_error;
            return status;
        }
        self->done += self->buffer.count;
        if (self->buffer.count > 0) {    /* 0: a damaged section is left out */
            *out = &self->buffer;
            break;
        }
    }
    return EP_OK;
}

static bool
is_log(const part_feed *self)
{
    return self->feed.more == more_of_log;
}

static bool
is_archive(const part_feed *self)
{
    return self->feed.more == more_of_archive;
}

/* As it is known at the start, if the log is open; at the end. */
static const ep_decoded *
head_of(const part_feed *self)
{
    return self->log != NULL  ? ep_file_stream_head(self->log)
           : is_log(self)     ? &self->head
           : is_archive(self) ? ep_archive_head(ep_trace_archive(self->trace))
                              : &self->trace->decoded;
}

static const ep_recording *
recording_of(const part_feed *self)
{
    return is_log(self) ? &self->recording : &self->trace->recording;
}

/* rows: of the buffer of a log. */
static EP_CHECKED ep_status
open_feed(part_feed *self, ep_trace *trace, size_t rows, ep_error *error)
{
    self->trace = trace;
    self->error = error;
    bool can_stream = !trace->has_decoded && ep_filter_is_empty(&trace->filter);
    ep_file_reader *reader = can_stream ? ep_trace_log_reader(trace) : NULL;
    ep_archive *archive = can_stream ? ep_trace_archive(trace) : NULL;
    if (reader != NULL && !ep_file_get_facts(reader)->writer_lives) {
        self->feed.more = more_of_log;
        self->rows = rows;
        return open_log(self);
    }
    if (archive != NULL) {
        self->feed.more = more_of_archive;
        self->total = (size_t)ep_archive_get_info(archive)->events;
        /* Sets what its head says back to what is known before a pass. */
        return ep_archive_stream_open(archive, &self->archive, error);
    }
    self->feed.more = more_of_columns;
    ep_status status = ep_trace_reach(trace, EP_STEP_DECODED, error);
    self->total = trace->decoded.columns.count;
    return status;
}

static void
close_feed(part_feed *self)
{
    close_part(self);
    ep_recording_clear(&self->recording);
    ep_decoded_clear(&self->head);
}

/* Makes what is known after the last row known of the part. */
static void
settle_feed(part_feed *self)
{
    if (is_log(self)) {
        ep_recording_clear(&self->trace->recording);
        self->trace->recording = self->recording;
        self->recording = (ep_recording){0};
        ep_trace_set_log_head(self->trace, &self->head);
        self->head = (ep_decoded){0};
    } else if (is_archive(self)) {
        self->trace->head = ep_archive_head(ep_trace_archive(self->trace));
    }
}

/* ---- The stream ------------------------------------------------------------------------------ */

struct ep_merged_stream {
    ep_trace *trace;
    merged_origin *origin;
    part_feed *feeds;
    ep_merge_part *parts;
    ep_merger *merger;
    ep_decoded head;
};

/* The heads as they are known now. */
static EP_CHECKED ep_status
merge_heads(ep_merged_stream *s, ep_decoded *out)
{
    for (size_t i = 0; i < s->origin->count; i++) {
        const ep_merged_part *part = &s->origin->parts[i];
        s->parts[i] = (ep_merge_part){head_of(&s->feeds[i]), part->offset_ns, part->process_id,
                                      part->worker};
    }
    return ep_merge_heads(s->parts, s->origin->count, out);
}

static void
name_part(ep_error *error, size_t part)
{
    char text[sizeof error->text];
    memcpy(text, error->text, sizeof text);
    snprintf(error->text, sizeof error->text, "part %zu: %.*s", part + 1, (int)sizeof text - 32, text);
}

ep_status
ep_merged_stream_open(ep_trace *trace, ep_merged_stream **out, ep_error *error)
{
    merged_origin *origin = (merged_origin *)trace->origin;
    size_t count = origin->count, rows = ROWS_AHEAD / (count > 0 ? count : 1);
    rows = rows > ROWS_AHEAD_MOST ? ROWS_AHEAD_MOST : rows < ROWS_AHEAD_LEAST ? ROWS_AHEAD_LEAST
                                                                              : rows;
    ep_merged_stream *s = ep_calloc(1, sizeof *s);
    if (s == NULL) {
        return EP_NOMEM;
    }
    s->trace = trace;
    s->origin = origin;
    s->feeds = ep_calloc(count + 1, sizeof *s->feeds);
    s->parts = ep_calloc(count + 1, sizeof *s->parts);
    ep_merge_feed **views = ep_calloc(count + 1, sizeof *views);
    ep_status status = s->feeds != NULL && s->parts != NULL && views != NULL ? EP_OK : EP_NOMEM;
    for (size_t i = 0; i < count && status == EP_OK; i++) {
        views[i] = &s->feeds[i].feed;
        status = open_feed(&s->feeds[i], origin->parts[i].trace, rows, error);
        if (status == EP_FORMAT || status == EP_UNSUPPORTED) {
            name_part(error, i);
        }
    }
    status = status != EP_OK ? status : merge_heads(s, &s->head);
    status = status != EP_OK ? status : ep_merger_open(s->parts, views, count, &s->merger);
    for (size_t i = 0; i < count && status == EP_OK && count > OPEN_AT_ONCE; i++) {
        close_part(&s->feeds[i]);
    }
    free(views);
    if (status != EP_OK) {
        ep_merged_stream_close(s);
        return status;
    }
    *out = s;
    return EP_OK;
}

const ep_decoded *
ep_merged_stream_head(const ep_merged_stream *s)
{
    return &s->head;
}

/* The facts about all parts; without metadata. */
static ep_recording
join(const ep_merged_stream *s)
{
    ep_recording joined = {0};
    for (size_t i = 0; i < s->origin->count; i++) {
        ep_recording_join(&joined, recording_of(&s->feeds[i]), s->origin->parts[i].offset_ns == 0);
    }
    return joined;
}

ep_full_reason
ep_merged_stream_full_reason(const ep_merged_stream *s)
{
    return join(s).full_reason;
}

ep_status
ep_merged_stream_next(ep_merged_stream *s, ep_columns *to, size_t limit, ep_error *error)
{
    for (size_t i = 0; i < s->origin->count; i++) {
        s->feeds[i].error = error;
    }
    return ep_merger_next(s->merger, to, limit);
}

void
ep_merged_stream_progress(const ep_merged_stream *s, size_t *done, size_t *total)
{
    *done = *total = 0;
    for (size_t i = 0; i < s->origin->count; i++) {
        *done += s->feeds[i].done;
        *total += s->feeds[i].total;
    }
}

ep_status
ep_merged_stream_end(ep_merged_stream *s)
{
    ep_decoded head;
    ep_status status = merge_heads(s, &head);
    if (status != EP_OK) {
        return status;
    }
    s->trace->recording = join(s);
    if (s->trace->head == NULL) {
        s->origin->head = head;
        s->trace->head = &s->origin->head;
    } else {
        ep_decoded_clear(&head);
    }
    for (size_t i = 0; i < s->origin->count; i++) {
        settle_feed(&s->feeds[i]);
    }
    return EP_OK;
}

void
ep_merged_stream_close(ep_merged_stream *s)
{
    if (s == NULL) {
        return;
    }
    for (size_t i = 0; s->feeds != NULL && i < s->origin->count; i++) {
        close_feed(&s->feeds[i]);
    }
    ep_merger_close(s->merger);
    ep_decoded_clear(&s->head);
    free(s->feeds);
    free(s->parts);
    free(s);
}

/* ---- The trace ------------------------------------------------------------------------------- */

/* Room for more rows. A large array is moved by its pages, without a copy. */
static EP_CHECKED ep_status
resize(ep_columns *c, size_t rows, size_t blocks)
{
    void **of_rows[] = {(void **)&c->time_ns, (void **)&c->kind, (void **)&c->thread, (void **)&c->id};
    void **of_blocks[] = {(void **)&c->alloc_row, (void **)&c->address, (void **)&c->size};
    const size_t row_bytes[] = {sizeof *c->time_ns, sizeof *c->kind, sizeof *c->thread, sizeof *c->id};
    const size_t block_bytes[] = {sizeof *c->alloc_row, sizeof *c->address, sizeof *c->size};
    for (size_t i = 0; i < 7; i++) {
        void **array = i < 4 ? of_rows[i] : of_blocks[i - 4];
        size_t count = i < 4 ? rows : blocks;
        void *moved = ep_realloc(*array, count > 0 ? count : 1, i < 4 ? row_bytes[i] : block_bytes[i - 4]);
        if (moved == NULL) {
            return EP_NOMEM;
        }
        *array = moved;
    }
    return EP_OK;
}

static EP_CHECKED ep_status
read_all(ep_merged_stream *s, ep_columns *to, ep_error *error)
{
    size_t rows = 0, blocks = 0, before;
    do {
        before = to->count;
        size_t limit = before + ROWS_AHEAD_MOST;
        bool is_full = limit > rows || to->alloc_count + ROWS_AHEAD_MOST > blocks;
        if (is_full) {
            rows = limit + limit / 4;
            blocks = to->alloc_count + to->alloc_count / 4 + ROWS_AHEAD_MOST;
        }
        ep_status status = is_full ? resize(to, rows, blocks) : EP_OK;
        status = status != EP_OK ? status : ep_merged_stream_next(s, to, limit, error);
        if (status != EP_OK) {
            return status;
        }
    } while (to->count > before);
    return resize(to, to->count, to->alloc_count);
}

static ep_status
load_merged(ep_trace_origin *origin, ep_trace *trace, ep_error *error)
{
    merged_origin *merged = (merged_origin *)origin;
    if (merged->parts == NULL) {
        return ep_fail(error, EP_STATE, "the events of these traces were read already");
    }
    ep_merged_stream *s;
    ep_columns columns = {0};
    ep_status status = ep_merged_stream_open(trace, &s, error);
    if (status != EP_OK) {
        return status;
    }
    status = read_all(s, &columns, error);
    ep_decoded head;
    status = status != EP_OK ? status : merge_heads(s, &head);
    if (status == EP_OK) {
        trace->recording = join(s);
        trace->decoded = head;
        trace->decoded.columns = columns;
        trace->head = NULL;
        for (size_t i = 0; i < merged->count; i++) {
            settle_feed(&s->feeds[i]);
        }
    } else {
        ep_columns_clear(&columns);
    }
    ep_merged_stream_close(s);
    if (status == EP_OK) {
        free(merged->parts);
        merged->parts = NULL;
        merged->count = 0;
    }
    return status;
}

static void
close_merged(ep_trace_origin *origin)
{
    merged_origin *merged = (merged_origin *)origin;
    ep_decoded_clear(&merged->head);
    free(merged->parts);
    free(merged);
}

bool
ep_trace_is_merged(const ep_trace *trace)
{
    return trace->origin != NULL && trace->origin->load == load_merged &&
           ((const merged_origin *)trace->origin)->parts != NULL;
}

ep_status
ep_trace_merge(const ep_merged_part *parts, size_t count, ep_trace *out)
{
    if (count > EP_MERGE_PARTS_MAX) {
        return EP_ARGUMENT;
    }
    merged_origin *merged = ep_calloc(1, sizeof *merged);
    ep_merged_part *copy = ep_calloc(count + 1, sizeof *copy);
    if (merged == NULL || copy == NULL) {
        free(merged);
        free(copy);
        return EP_NOMEM;
    }
    *out = (ep_trace){.origin = &merged->origin};
    for (size_t i = 0; i < count; i++) {
        copy[i] = parts[i];
        ep_recording_join(&out->recording, &parts[i].trace->recording, parts[i].offset_ns == 0);
    }
    *merged = (merged_origin){
        .origin = {.load = load_merged, .close = close_merged}, .parts = copy, .count = count};
    return EP_OK;
}
