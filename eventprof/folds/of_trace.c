#include "of_trace.h"

#include <errno.h>

#include "memory.h"
#include "open.h"
#include "reading.h"
#include "stream.h"

/* The arguments of a pass. */
typedef struct pass_of {
    ep_fold *const *folds;
    size_t count;
    bool has_lock;
    const ep_progress *progress;
} pass_of;

static ep_fold_facts
facts_of(const ep_trace *trace, bool has_lock)
{
    return (ep_fold_facts){
        .map = trace->input.map,
        .thread_count = trace->input.thread_count,
        .open_at_start = trace->input.open_at_start,
        .open_from_ns = trace->input.open_from_ns,
        .open_until_ns = trace->input.open_until_ns,
        .thread_process = trace->input.thread_process,
        .thread_carrier = trace->input.thread_carrier,
        .length_ns = trace->input.length_ns,
        .head = &trace->decoded,
        .has_lock = has_lock,
    };
}

/* Runs the folds over the columns. The trace has them. */
static ep_status
run_on_columns(ep_trace *trace, const pass_of *job)
{
    ep_fold_facts facts = facts_of(trace, job->has_lock);
    ep_column_stream stream;
    ep_column_stream_open(&stream, trace->input.columns);
    return ep_fold_run(&stream.stream, &facts, job->folds, job->count, job->progress);
}

static void
keep_functions(ep_trace *trace, ep_pass *pass)
{
    if (trace->has_functions) {
        ep_functions_clear(&pass->functions);    /* tables refer to the functions of the first pass */
    } else if (pass->has_functions) {
        trace->functions = pass->functions;
        trace->has_functions = true;
    }
    pass->functions = (ep_functions){0};
}

static ep_status
run_on_log(ep_trace *trace, ep_file_reader *reader, const pass_of *job, ep_error *error)
{
    ep_pass pass;
    ep_file_check_records(reader, trace->check_records ? &trace->record_check : NULL);
    ep_status status =
        ep_fold_log(reader, job->has_lock, job->folds, job->count, job->progress, &pass, error);
    ep_file_check_records(reader, NULL);
    if (status != EP_OK) {
        return status;
    }
    ep_recording_clear(&trace->recording);
    trace->recording = pass.recording;
    ep_trace_set_log_head(trace, &pass.head);
    keep_functions(trace, &pass);
    return EP_OK;
}

static ep_status
run_on_archive(ep_trace *trace, ep_archive *archive, const pass_of *job, ep_error *error)
{
    ep_pass pass;
    ep_status status =
        ep_fold_archive(archive, job->has_lock, job->folds, job->count, job->progress, &pass, error);
    if (status != EP_OK) {
        error->os_error = status == EP_IO ? errno : error->os_error;
        return status;
    }
    trace->head = ep_archive_head(archive);
    keep_functions(trace, &pass);
    ep_pass_clear(&pass);
    return EP_OK;
}

static ep_status
run_on_merged(ep_trace *trace, const pass_of *job, ep_error *error)
{
    ep_pass pass;
    ep_status status =
        ep_fold_merged(trace, job->has_lock, job->folds, job->count, job->progress, &pass, error);
    if (status == EP_OK) {
        keep_functions(trace, &pass);
        ep_pass_clear(&pass);
    }
    return status;
}

ep_status
ep_fold_trace(ep_trace *trace, ep_fold *const *folds, size_t count, bool has_lock, const char *what,
              ep_error *error)
{
    ep_error unused;
    error = error != NULL ? error : &unused;
    /* A filter needs all events before it can say which to drop. */
    bool can_pass = !trace->has_decoded && ep_filter_is_empty(&trace->filter);
    ep_file_reader *reader = can_pass ? ep_trace_log_reader(trace) : NULL;
    ep_archive *archive = can_pass ? ep_trace_archive(trace) : NULL;
    if (reader != NULL && ep_file_get_facts(reader)->writer_lives) {
        reader = NULL;
    }
    ep_status status = EP_OK;
    bool is_merged = can_pass && ep_trace_is_merged(trace);
    if (reader == NULL && archive == NULL && !is_merged) {
        status = ep_trace_reach(trace, EP_STEP_FUNCTIONS, error);
        if (status != EP_OK) {
            return status;
        }
    }
    ep_work work;
    ep_work_begin(&work, trace->watcher, what);
    pass_of job = {.folds = folds, .count = count, .has_lock = has_lock, .progress = &work.progress};
    status = reader != NULL    ? run_on_log(trace, reader, &job, error)
             : archive != NULL ? run_on_archive(trace, archive, &job, error)
             : is_merged       ? run_on_merged(trace, &job, error)
                               : run_on_columns(trace, &job);
    ep_work_end(&work);
    return status;
}

/* ---- Before the events are read ---------------------------------------------------------------- */

static bool
lacks_events(const ep_decoded *head, const ep_recording *recording)
{
    uint64_t lost = 0;
    for (size_t i = 0; i < head->thread_count; i++) {
        for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
            lost += head->threads[i].lost[kind];
        }
    }
    return lost > 0 || head->damaged_chunks > 0 || recording->unfinished || recording->limits != 0 ||
           recording->full_reason != EP_FULL_NOT;
}

ep_status
ep_trace_glance(const ep_trace *trace, ep_glance *out, ep_error *error)
{
    ep_error unused;
    error = error != NULL ? error : &unused;
    *out = (ep_glance){0};
    if (trace->has_decoded || !ep_filter_is_empty(&trace->filter)) {
        return EP_OK;
    }
    ep_file_reader *reader = ep_trace_log_reader(trace);
    ep_archive *archive = ep_trace_archive(trace);
    if (reader != NULL && ep_file_get_facts(reader)->phase == EP_FILE_FINISHED &&
        !ep_file_get_facts(reader)->writer_lives) {
        ep_status status = ep_file_stream_open(reader, &out->of_stream, &out->stream, error);
        if (status != EP_OK) {
            *out = (ep_glance){0};
            return status;
        }
        out->head = ep_file_stream_head(out->stream);
        out->recording = &out->of_stream;
    } else if (archive != NULL) {
        out->head = ep_archive_head(archive);
        out->recording = ep_archive_recording(archive);
    }
    if (out->head != NULL && (ep_trace_file_damage(trace) > 0 || lacks_events(out->head, out->recording))) {
        ep_glance_clear(out);
    }
    return EP_OK;
}

void
ep_glance_clear(ep_glance *glance)
{
    if (glance->stream != NULL) {
        ep_file_stream_close(glance->stream);
        ep_recording_clear(&glance->of_stream);
    }
    *glance = (ep_glance){0};
}

uint64_t
ep_trace_file_damage(const ep_trace *trace)
{
    const ep_file_reader *reader = ep_trace_log_reader(trace);
    const ep_archive *archive = ep_trace_archive(trace);
    return reader != NULL    ? ep_file_get_facts(reader)->note_count
           : archive != NULL ? ep_archive_get_info(archive)->damaged
                             : 0;
}
