/* Records -> columns: one recorder's window, every thread, in order of time.
 *
 * It needs only the capture and the name tables. It holds no lock for long, and never Python's. */
#ifndef EP_DECODE_H
#define EP_DECODE_H

#include "decoded.h"
#include "engine.h"
#include "functions.h"
#include "types.h"

/* A thread that has events in the window, lost some, or was in a call when it began. Row 0.. of the
 * trace's thread table. */
typedef struct ep_trace_thread {
    const ep_thread *thread;            /* NULL: events of threads for which no log could be made */
    int64_t first_ns, last_ns;          /* times of its first and last event; valid if recorded > 0 */
    uint64_t recorded[EP_KIND_COUNT];
    uint64_t lost[EP_KIND_COUNT];
    ep_open_stack open;                 /* owned: open when its kept records begin */
    /* In a merged trace: the time in which its process was recorded. until_ns 0: until the end. */
    int64_t from_ns, until_ns;
    int32_t process;                    /* its number, from 0 on; 0 in a trace that was not merged */
} ep_trace_thread;

typedef struct ep_decoded {
    ep_columns columns;
    ep_trace_thread *threads;
    size_t thread_count;
    int64_t duration_ns;                /* from the window's start to its end, or to where it was full */
    /* The process's resident set, sampled whenever a chunk was opened; in order of time. */
    size_t resident_count;
    int64_t *resident_ns, *resident_bytes;
    int64_t *resident_own;                 /* bytes of it that are the recorder's own; 0: unknown */
    uint64_t damaged_chunks;            /* chunks with a record of an unknown kind; they were read up to
                                         * that record */
    ep_thread *read_threads;            /* of a file: the rows of `threads` refer to these; owned */
} ep_decoded;

/* `only_thread`: 0 = all, otherwise the id of the only one wanted.
 * Returns: new in *out (ep_decoded_clear). Fails: EP_NOMEM, *out untouched. */
EP_CHECKED ep_status ep_decode(const ep_capture *capture, uint32_t only_thread, ep_decoded *out);
void ep_decoded_clear(ep_decoded *decoded);
/* Keeps only some rows, and counts down what their threads recorded. drop: index = row. */
void ep_decoded_keep_rows(ep_decoded *decoded, const uint8_t *drop);

/* The number of events that its threads recorded; if it has columns, the number of their rows. */
uint64_t ep_decoded_events(const ep_decoded *decoded);

/* The start time for calls that were open where a thread's kept records begin. Without it the time of
 * events that a ring overwrote would count for these calls. full_reason: of the recording. */
int64_t ep_open_from_ns(const ep_trace_thread *thread, ep_full_reason full_reason);
/* The end time for calls that are open at the end. */
int64_t ep_open_until_ns(const ep_trace_thread *thread, int64_t duration_ns);
/* How many processes the threads are of; at least 1. */
size_t ep_process_count(const ep_trace_thread *threads, size_t count);
/* The process of each thread. Returns: new in *out (free); NULL: all are of one. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_thread_processes(const ep_trace_thread *threads, size_t count, int32_t **out);
/* The first row of the thread that runs each lane (lanes.h); of another thread, its own row. Returns: new
 * in *out (free); NULL: there are no lanes. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_thread_carriers(const ep_trace_thread *threads, size_t count, int32_t **out);

/* ---- The same step by step, without all columns in memory -------------------------------------- */

/* Reads the records of chunks that are not in memory: the capture has only the headers of these chunks, and
 * all are sealed. */
typedef struct ep_chunk_source ep_chunk_source;
struct ep_chunk_source {
    /* Loads a chunk (its index in the capture): header and used words. At most one chunk of each thread is
     * loaded at the same time. Returns: view, until it is released. Fails: EP_NOMEM, EP_IO. */
    EP_CHECKED ep_status (*load)(ep_chunk_source *source, size_t chunk, const ep_chunk_header **out);
    void (*let_go)(ep_chunk_source *source, const ep_chunk_header *chunk);
};

typedef struct ep_decoder ep_decoder;

/* capture, source: views until it is closed; source NULL: the chunks are in memory.
 * Returns: new (ep_decoder_close). Fails: EP_NOMEM, as the source. */
EP_CHECKED ep_status ep_decoder_open(const ep_capture *capture, uint32_t only_thread,
                                     ep_chunk_source *source, ep_decoder **out);
/* Everything except the columns, as far as it is known: at least which threads there are, their open calls
 * at the start, and the times of their first events. Returns: view, until ep_decoder_end(). */
const ep_decoded *ep_decoder_head(const ep_decoder *decoder);
/* Appends the next rows, until the columns have `limit` rows; they must have room for `limit` rows and
 * `limit` blocks. No new rows: the end.
 * Fails: as the source. */
EP_CHECKED ep_status ep_decoder_next(ep_decoder *decoder, ep_columns *to, size_t limit);
/* All rows at once, in place of ep_decoder_next(). Returns: new (ep_columns_clear), also on failure. */
EP_CHECKED ep_status ep_decoder_take_all(ep_decoder *decoder, ep_columns *out);
/* The progress, in words of records. */
void ep_decoder_progress(const ep_decoder *decoder, size_t *done, size_t *total);
/* Call it after the last row: gives the final head. Returns: new in *out (ep_decoded_clear), without
 * columns. */
void ep_decoder_end(ep_decoder *decoder, ep_decoded *out);
void ep_decoder_close(ep_decoder *decoder);    /* NULL is fine */

/* Counts the events that ep_decode() would give, by kind, and the loss, without memory for the events. */
void ep_capture_count(const ep_capture *capture, uint32_t only_thread, uint64_t recorded[EP_KIND_COUNT],
                      uint64_t lost[EP_KIND_COUNT]);

/* Whether there is any event of any kind. */
static inline bool
ep_any_counted(const uint64_t counts[EP_KIND_COUNT])
{
    for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
        if (counts[kind] != 0) {
            return true;
        }
    }
    return false;
}

#ifdef EP_CHECKS
void ep_columns_check(const ep_columns *columns, size_t thread_count);
#endif

#endif
