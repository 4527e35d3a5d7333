/* Records -> columns: one recorder's window, every thread, in order of time.
 *
 * Needs nothing but the capture and the name tables; takes no lock for long and never Python's. */
#ifndef EP_DECODE_H
#define EP_DECODE_H

#include "engine.h"
#include "functions.h"
#include "types.h"

/* A thread that has events in the window, lost some, or was in a call when it began. Row 0.. of the
 * trace's thread table. */
typedef struct ep_trace_thread {
    const ep_thread *thread;            /* NULL: events of threads that no log could be made for */
    int64_t first_ns, last_ns;          /* of its events; valid if recorded > 0 */
    uint64_t recorded[EP_KIND_COUNT];
    uint64_t lost[EP_KIND_COUNT];
    ep_open_stack open;                 /* owned: open when its kept records begin */
    /* Of a merged trace: when its process was recorded. until_ns 0: as long as the trace. */
    int64_t from_ns, until_ns;
} ep_trace_thread;

typedef struct ep_decoded {
    ep_columns columns;
    ep_trace_thread *threads;
    size_t thread_count;
    int64_t duration_ns;                /* from the window's start to its end, or to where it was full */
    /* The process's resident set, sampled whenever a chunk was opened; in order of time. */
    size_t resident_count;
    int64_t *resident_ns, *resident_bytes;
    uint64_t damaged_chunks;            /* that hold a record of no known kind; read up to it */
    ep_thread *read_threads;            /* from a file: what the rows of `threads` refer to; owned */
} ep_decoded;

/* `only_thread`: 0 = all, otherwise the id of the only one wanted.
 * Returns: new in *out (ep_decoded_clear). Fails: EP_NOMEM, *out untouched. */
EP_CHECKED ep_status ep_decode(const ep_capture *capture, uint32_t only_thread, ep_decoded *out);
/* Room in empty columns, but for the thread. Fails: false; what is there is the columns'. */
bool ep_columns_reserve(ep_columns *columns, size_t rows, size_t blocks);
void ep_columns_clear(ep_columns *columns);
void ep_decoded_clear(ep_decoded *decoded);

/* Events that its threads recorded: as many as its columns have, where it has columns. */
uint64_t ep_decoded_events(const ep_decoded *decoded);

/* Where the calls that were open when a thread's kept records begin are taken to start: what a ring lost of
 * its head would be theirs otherwise. full_reason: of the recording. */
int64_t ep_open_from_ns(const ep_trace_thread *thread, ep_full_reason full_reason);
/* Where those end that are open at the end. */
int64_t ep_open_until_ns(const ep_trace_thread *thread, int64_t duration_ns);

/* ---- The same step by step, without all columns in memory -------------------------------------- */

/* Where the records of chunks are, if not in memory: the capture's chunks are headers alone then, and all
 * of them sealed. */
typedef struct ep_chunk_source ep_chunk_source;
struct ep_chunk_source {
    /* The chunk (its index in the capture), header and used words. Returns: view, until it is let go;
     * a few at a time, one for each thread at most. Fails: EP_NOMEM, EP_IO. */
    EP_CHECKED ep_status (*load)(ep_chunk_source *source, size_t chunk, const ep_chunk_header **out);
    void (*let_go)(ep_chunk_source *source, const ep_chunk_header *chunk);
};

typedef struct ep_decoder ep_decoder;

/* capture, source: views until it is closed; source NULL: the chunks are in memory.
 * Returns: new (ep_decoder_close). Fails: EP_NOMEM, as the source. */
EP_CHECKED ep_status ep_decoder_open(const ep_capture *capture, uint32_t only_thread,
                                     ep_chunk_source *source, ep_decoder **out);
/* All but the columns, as far as is known: of the threads at least which there are, what was open at their
 * start and the time of their first event. Returns: view, until it is ended. */
const ep_decoded *ep_decoder_head(const ep_decoder *decoder);
/* Appends the next rows, until there are `limit`, for which there is room; none: that was all.
 * Fails: as the source. */
EP_CHECKED ep_status ep_decoder_next(ep_decoder *decoder, ep_columns *to, size_t limit);
/* How far it is, in words of records. */
void ep_decoder_progress(const ep_decoder *decoder, size_t *done, size_t *total);
/* After the last row: the head as it is now. Returns: new in *out (ep_decoded_clear), without columns. */
void ep_decoder_end(ep_decoder *decoder, ep_decoded *out);
void ep_decoder_close(ep_decoder *decoder);    /* NULL is fine */

/* How many events ep_decode() would give, by kind, and the loss; without taking memory for them. */
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
