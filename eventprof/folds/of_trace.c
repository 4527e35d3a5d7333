#include "of_trace.h"

#include "stream.h"

ep_status
ep_fold_trace(ep_trace *trace, ep_fold *const *folds, size_t count, bool has_lock, const char *what,
              ep_error *error)
{
    ep_status status = ep_trace_reach(trace, EP_STEP_FUNCTIONS, error);
    if (status != EP_OK) {
        return status;
    }
    ep_fold_facts facts = {
        .map = trace->input.map,
        .thread_count = trace->input.thread_count,
        .open_at_start = trace->input.open_at_start,
        .open_from_ns = trace->input.open_from_ns,
        .length_ns = trace->input.length_ns,
        .has_lock = has_lock,
    };
    ep_column_stream stream;
    ep_column_stream_open(&stream, trace->input.columns);
    ep_work work;
    ep_work_begin(&work, trace->watcher, what);
    status = ep_fold_run(&stream.stream, &facts, folds, count, &work.progress);
    ep_work_end(&work);
    return status;
}
