#include "open.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "archive_format.h"
#include "memory.h"
#include "names.h"

/* ---- Logs ------------------------------------------------------------------------------------ */

typedef struct log_origin {
    ep_trace_origin origin;
    ep_file_reader *reader;    /* NULL: the events are read */
    ep_file_facts facts;       /* valid after the events were read */
    ep_decoded head;           /* trace->head of a fold's pass; it is kept, because its arrays were handed
                                * out */
} log_origin;

static void
close_log(ep_trace_origin *origin)
{
    log_origin *log = (log_origin *)origin;
    if (log->reader != NULL) {
        ep_file_close(log->reader);
    }
    ep_decoded_clear(&log->head);
    free(log);
}

static ep_status
load_log(ep_trace_origin *origin, ep_trace *trace, ep_error *error)
{
    log_origin *log = (log_origin *)origin;
    ep_recording recording;
    if (log->reader == NULL) {
        return ep_fail(error, EP_STATE, "the events of this log were read already");
    }
    ep_file_check_records(log->reader, trace->check_records ? &trace->record_check : NULL);
    ep_status status = ep_file_load(log->reader, &recording, &trace->decoded, error);
    if (status != EP_OK) {
        return status;
    }
    ep_recording_clear(&trace->recording);
    trace->recording = recording;
    trace->head = NULL;
    log->facts = *ep_file_get_facts(log->reader);
    ep_file_close(log->reader);
    log->reader = NULL;
    return EP_OK;
}

ep_status
ep_trace_open_log(int descriptor, ep_trace *out, ep_error *error)
{
    ep_file_reader *reader;
    ep_status status = ep_file_open(descriptor, &reader, error);
    if (status != EP_OK) {
        return status;
    }
    ep_recording recording;
    status = ep_file_describe(reader, &recording, error);
    if (status != EP_OK) {
        ep_file_close(reader);
        return status;
    }
    log_origin *log = ep_calloc(1, sizeof *log);
    if (log == NULL) {
        ep_recording_clear(&recording);
        ep_file_close(reader);
        return EP_NOMEM;
    }
    log->origin = (ep_trace_origin){.load = load_log, .close = close_log};
    log->reader = reader;
    *out = (ep_trace){.origin = &log->origin, .recording = recording};
    return EP_OK;
}

const ep_file_facts *
ep_trace_log_facts(const ep_trace *trace)
{
    const log_origin *log = (const log_origin *)trace->origin;
    return log->reader != NULL ? ep_file_get_facts(log->reader) : &log->facts;
}

ep_file_reader *
ep_trace_log_reader(const ep_trace *trace)
{
    bool is_log = trace->origin != NULL && trace->origin->load == load_log;
    return is_log ? ((const log_origin *)trace->origin)->reader : NULL;
}

void
ep_trace_set_log_head(ep_trace *trace, ep_decoded *head)
{
    log_origin *log = (log_origin *)trace->origin;
    if (trace->head == NULL) {
        log->head = *head;
        *head = (ep_decoded){0};
        trace->head = &log->head;
    } else {
        ep_decoded_clear(head);
    }
}

ep_status
ep_trace_probe(ep_trace *trace, ep_error *error)
{
    ep_file_reader *reader = trace->has_decoded ? NULL : ep_trace_log_reader(trace);
    if (reader == NULL || ep_file_get_facts(reader)->writer_lives) {
        return EP_OK;
    }
    ep_recording recording;
    ep_file_stream *stream;
    ep_status status = ep_file_stream_open(reader, &recording, &stream, error);
    if (status == EP_OK) {
        ep_recording_clear(&recording);
        ep_file_stream_close(stream);
    }
    return status;
}

/* ---- Archives -------------------------------------------------------------------------------- */

typedef struct archive_origin {
    ep_trace_origin origin;
    ep_archive *archive;    /* NULL: the events are read */
} archive_origin;

static void
close_archive(ep_trace_origin *origin)
{
    archive_origin *from = (archive_origin *)origin;
    ep_archive_close(from->archive);
    free(from);
}

/* Adds the archive's errno to the error. */
static ep_status
with_os_error(ep_status status, ep_error *error)
{
    if (status == EP_IO && error != NULL) {
        error->os_error = errno;
    }
    return status;
}

static ep_status
load_archive(ep_trace_origin *origin, ep_trace *trace, ep_error *error)
{
    archive_origin *from = (archive_origin *)origin;
    if (from->archive == NULL) {
        return ep_fail(error, EP_STATE, "the events of this archive were read already");
    }
    ep_status status = with_os_error(ep_archive_load(from->archive, &trace->decoded, error), error);
    if (status == EP_OK) {
        ep_archive_close(from->archive);
        from->archive = NULL;
        trace->head = NULL;    /* its contents belong to the columns now */
    }
    return status;
}

/* A copy that has its own metadata. */
static ep_status
copy_recording(const ep_recording *recording, ep_recording *out)
{
    ep_recording copy = *recording;
    if (recording->metadata != NULL) {
        copy.metadata = ep_realloc(NULL, recording->metadata_bytes + 1, 1);
        if (copy.metadata == NULL) {
            return EP_NOMEM;
        }
        memcpy(copy.metadata, recording->metadata, recording->metadata_bytes);
        copy.metadata[recording->metadata_bytes] = '\0';
    }
    *out = copy;
    return EP_OK;
}

ep_status
ep_trace_open_archive(int descriptor, ep_trace *out, ep_error *error)
{
    ep_archive *archive;
    ep_status status = with_os_error(ep_archive_open(descriptor, &archive, error), error);
    if (status != EP_OK) {
        return status;
    }
    ep_recording recording;
    archive_origin *from = ep_calloc(1, sizeof *from);
    if (from == NULL || copy_recording(ep_archive_recording(archive), &recording) != EP_OK) {
        free(from);
        ep_archive_close(archive);
        return EP_NOMEM;
    }
    from->origin = (ep_trace_origin){.load = load_archive, .close = close_archive};
    from->archive = archive;
    *out = (ep_trace){.origin = &from->origin, .recording = recording};
    return EP_OK;
}

ep_archive *
ep_trace_archive(const ep_trace *trace)
{
    bool is_archive = trace->origin != NULL && trace->origin->load == load_archive;
    return is_archive ? ((const archive_origin *)trace->origin)->archive : NULL;
}

const ep_archive_info *
ep_trace_archive_info(const ep_trace *trace)
{
    const archive_origin *from = (const archive_origin *)trace->origin;
    return from->archive != NULL ? ep_archive_get_info(from->archive) : NULL;
}

/* ---- Either ---------------------------------------------------------------------------------- */

ep_status
ep_trace_open(const char *path, ep_trace *out, ep_error *error)
{
    char begin[8] = {0};
    if (ep_names_init() != EP_OK) {
        return EP_NOMEM;
    }
    /* A pipe that nobody writes to is no reason to wait. */
    int descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0) {
        return ep_fail_os(error, errno);
    }
    if (pread(descriptor, begin, sizeof begin, 0) < 0) {
        ep_status status = ep_fail_os(error, errno);
        close(descriptor);
        return status;
    }
    if (memcmp(begin, EP_FILE_MAGIC, sizeof begin) == 0) {
        return ep_trace_open_log(descriptor, out, error);
    }
    /* Without the last byte of the magic: a transfer as text may have changed that, and ep_archive_open()
     * reports it. */
    ep_status status = memcmp(begin, EP_ARCHIVE_MAGIC, sizeof begin - 1) == 0
                           ? ep_trace_open_archive(descriptor, out, error)
                           : ep_fail(error, EP_FORMAT, "neither a log nor an archive of eventprof");
    close(descriptor);
    return status;
}
