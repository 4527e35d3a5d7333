/* Records -> columns: one recorder's window, every thread, in order of time.
 *
 * Needs nothing but the capture and the name tables; takes no lock for long and never Python's. */
#ifndef EP_DECODE_H
#define EP_DECODE_H

#include "engine.h"
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
void ep_decoded_clear(ep_decoded *decoded);

/* How many events ep_decode() would give, by kind, and the loss; without taking memory for them. */
void ep_capture_count(const ep_capture *capture, uint32_t only_thread, uint64_t recorded[EP_KIND_COUNT],
                      uint64_t lost[EP_KIND_COUNT]);

#endif
