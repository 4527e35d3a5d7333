/* Batches of events, and the loop that hands them to folds. */
#include "stream.h"

static ep_status
next_of_columns(ep_stream *stream, ep_batch *out)
{
    ep_column_stream *self = (ep_column_stream *)stream;
    const ep_columns *columns = self->columns;
    size_t left = columns->count - self->row;
    size_t to = self->row + (left > EP_STREAM_ROWS ? EP_STREAM_ROWS : left);
    *out = (ep_batch){
        .columns = columns,
        .from = self->row,
        .to = to,
        .alloc_from = self->block,
    };
    while (self->block < columns->alloc_count && columns->alloc_row[self->block] < to) {
        self->block++;
    }
    self->row = to;
    self->stream.done += to - out->from;
    return EP_OK;
}

void
ep_column_stream_open(ep_column_stream *stream, const ep_columns *columns)
{
    *stream = (ep_column_stream){
        .stream = {.next = next_of_columns, .total = columns->count},
        .columns = columns,
    };
}

ep_status
ep_fold_run(ep_stream *stream, const ep_fold_facts *facts, ep_fold *const *folds, size_t count,
            const ep_progress *progress)
{
    ep_status status = EP_OK;
    for (size_t i = 0; i < count && status == EP_OK; i++) {
        status = folds[i]->type->begin(folds[i], facts);
    }
    size_t rows = 0, reported_rows = 0;
    while (status == EP_OK) {
        ep_batch batch;
        status = stream->next(stream, &batch);
        if (status != EP_OK || batch.from == batch.to) {
            break;
        }
        for (size_t i = 0; i < count && status == EP_OK; i++) {
            status = folds[i]->type->events(folds[i], &batch);
        }
        rows += batch.to - batch.from;
        if (status == EP_OK && rows - reported_rows >= EP_PROGRESS_ROWS) {
            reported_rows = rows;
            status = ep_progress_tell(progress, stream->done, stream->total) ? EP_OK : EP_STATE;
        }
    }
    for (size_t i = 0; i < count && status == EP_OK; i++) {
        status = folds[i]->type->end(folds[i]);
    }
    return status;
}
