#include "saving.h"

#include <errno.h>

#include "archive.h"
#include "of_trace.h"

typedef struct saving {
    ep_fold fold;
    ep_archive_writer *writer;
} saving;

static ep_status
begin(ep_fold *fold, const ep_fold_facts *facts)
{
    (void)fold;
    (void)facts;
    return EP_OK;
}

static ep_status
events(ep_fold *fold, const ep_batch *batch)
{
    size_t block = batch->alloc_from;
    return ep_archive_add(((saving *)fold)->writer, batch->columns, batch->from, batch->to, &block);
}

static ep_status
end(ep_fold *fold)
{
    return ep_archive_end(((saving *)fold)->writer);
}

static void
clear(ep_fold *fold)
{
    (void)fold;
}

static const ep_fold_type saving_type = {
    .name = "saving", .begin = begin, .events = events, .end = end, .clear = clear};

ep_status
ep_save_trace(ep_trace *trace, int fd, const ep_recording *recording, ep_error *error)
{
    saving self = {.fold = {&saving_type}};
    ep_fold *fold = &self.fold;
    ep_error unused;
    error = error != NULL ? error : &unused;
    error->os_error = 0;
    errno = 0;
    ep_status status = ep_archive_begin(fd, recording, ep_trace_head(trace), &trace->functions.map,
                                        &self.writer, error);
    if (status == EP_OK) {
        status = ep_fold_trace(trace, &fold, 1, !trace->no_lock, "saving", error);
    }
    if (status == EP_IO && error->os_error == 0) {
        error->os_error = errno;    /* the writer's; readers set it themselves */
    }
    ep_archive_writer_close(self.writer);
    return status;
}
