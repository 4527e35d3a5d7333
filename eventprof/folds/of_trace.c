#include "of_trace.h"

#include <errno.h>

#include "open.h"
#include "reading.h"
#include "stream.h"

/* What a pass over a file is told. */
typedef struct pass_of {
    ep_fold *const *folds;
    size_t count;
    bool has_lock;
    const ep_progress *progress;
} pass_of;

/* Over columns, which are there. */
static ep_status
run_on_columns(ep_trace *trace, const pass_of *of)
{
    ep_fold_facts facts = {
        .map = trace->input.map,
        .thread_count = trace->input.thread_count,
        .open_at_start = trace->input.open_at_start,
        .open_from_ns = trace->input.open_from_ns,
        .open_until_ns = trace->input.open_until_ns,
        .length_ns = trace->input.length_ns,
        .has_lock = of->has_lock,
    };
    ep_column_stream stream;
    ep_column_stream_open(&stream, trace->input.columns);
    return ep_fold_run(&stream.stream, &facts, of->folds, of->count, of->progress);
}

static void
keep_functions(ep_trace *trace, ep_functions *functions)
{
    if (trace->has_functions) {
        ep_functions_clear(functions);    /* tables refer to the first ones */
    } else {
        trace->functions = *functions;
        trace->has_functions = true;
    }
    *functions = (ep_functions){0};
}

static ep_status
run_on_log(ep_trace *trace, ep_file_reader *reader, const pass_of *of, ep_error *error)
{
    ep_pass pass;
    ep_status status =
        ep_fold_log(reader, of->has_lock, of->folds, of->count, of->progress, &pass, error);
    if (status != EP_OK) {
        return status;
    }
    ep_recording_clear(&trace->recording);
    trace->recording = pass.recording;
    ep_trace_set_log_head(trace, &pass.head);
    keep_functions(trace, &pass.functions);
    return EP_OK;
}

static ep_status
run_on_archive(ep_trace *trace, ep_archive *archive, const pass_of *of, ep_error *error)
{
    ep_pass pass;
    ep_status status =
        ep_fold_archive(archive, of->has_lock, of->folds, of->count, of->progress, &pass, error);
    if (status != EP_OK) {
        error->os_error = status == EP_IO ? errno : error->os_error;
        return status;
    }
    trace->head = ep_archive_head(archive);
    keep_functions(trace, &pass.functions);
    ep_pass_clear(&pass);
    return EP_OK;
}

ep_status
ep_fold_trace(ep_trace *trace, ep_fold *const *folds, size_t count, bool has_lock, const char *what,
              ep_error *error)
{
    ep_error unused;
    error = error != NULL ? error : &unused;
    /* What a filter drops is known from the whole only, and records are checked as they are decoded. */
    bool can_pass =
        !trace->has_decoded && !trace->check_records && ep_filter_is_empty(&trace->filter);
    ep_file_reader *reader = can_pass ? ep_trace_log_reader(trace) : NULL;
    ep_archive *archive = can_pass ? ep_trace_archive(trace) : NULL;
    if (reader != NULL && ep_file_get_facts(reader)->writer_lives) {
        reader = NULL;
    }
    ep_status status = EP_OK;
    if (reader == NULL && archive == NULL) {
        status = ep_trace_reach(trace, EP_STEP_FUNCTIONS, error);
        if (status != EP_OK) {
            return status;
        }
    }
    ep_work work;
    ep_work_begin(&work, trace->watcher, what);
    pass_of of = {.folds = folds, .count = count, .has_lock = has_lock, .progress = &work.progress};
    status = reader != NULL    ? run_on_log(trace, reader, &of, error)
             : archive != NULL ? run_on_archive(trace, archive, &of, error)
                               : run_on_columns(trace, &of);
    ep_work_end(&work);
    return status;
}
