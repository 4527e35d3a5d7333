/* Reading a log file (format.h): decoded columns, and facts about the file. */
#ifndef EP_FILE_READ_H
#define EP_FILE_READ_H

#include "decode.h"
#include "format.h"
#include "recording.h"
#include "types.h"
#include "verify.h"

typedef struct ep_file_reader ep_file_reader;

#define EP_FILE_NOTES 8

/* Facts about the file; they become more exact when the events are loaded. */
typedef struct ep_file_facts {
    uint16_t major, minor;
    ep_file_phase phase;
    bool writer_lives;             /* more may come */
    bool awaits_stop;              /* it is written when its recorder stops: EP_LIMIT_LATE */
    bool counter;                  /* its clock is the processor's counter */
    uint64_t bytes;
    uint64_t event_slots, text_slots, other_slots;    /* other: released, or never used */
    uint64_t only_thread;
    uint64_t parent_process_id;
    uint64_t texts_lost;
    uint32_t children_lost, children_error;    /* as in the header */
    char calls_from[16], displaced[64];    /* as in the header, terminated */
    char worker[EP_FILE_WORKER_BYTES];     /* as in the header, terminated */
    bool words_damaged;            /* calls_from or displaced was damaged, and is empty */
    uint64_t unknown_events;       /* events left out, because this version does not know their kinds, */
    char unknown_words[160];       /* and the words of these kinds in the file */
    uint64_t note_count;           /* what is missing or damaged, the first of it in words */
    char notes[EP_FILE_NOTES][160];
} ep_file_facts;

/* Reads and checks the header. Steals the descriptor. A file may hold anything: all numbers are checked,
 * and memory is at most a few times the file's length. Returns: new in *out (ep_file_close). Fails:
 * EP_FORMAT, EP_IO, EP_NOMEM. */
EP_CHECKED ep_status ep_file_open(int descriptor, ep_file_reader **out, ep_error *error);
void ep_file_close(ep_file_reader *reader);

const ep_file_facts *ep_file_get_facts(const ep_file_reader *reader);

/* Every event of the file, as of now, with ids of this process; may be called again while the
 * writer lives. *recording is filled (ep_recording_clear). Returns: new in *out (ep_decoded_clear).
 * Fails: EP_FORMAT, EP_IO, EP_NOMEM; nothing to clear then. */
EP_CHECKED ep_status ep_file_load(ep_file_reader *reader, ep_recording *recording, ep_decoded *out,
                                  ep_error *error);

/* ---- The same batch by batch, with one chunk of each thread in memory -------------------------- */

typedef struct ep_file_stream ep_file_stream;

/* Like ep_file_load(), without the events. Not while the writer lives. The reader must outlive the stream.
 * Returns: new in *out (ep_file_stream_close), and in *recording. Fails: EP_STATE, the writer lives; else
 * as ep_file_load(). */
EP_CHECKED ep_status ep_file_stream_open(ep_file_reader *reader, ep_recording *recording,
                                         ep_file_stream **out, ep_error *error);
/* Before the first rows: ids stay those of the file, for who does not look at them. */
void ep_file_stream_leave_ids(ep_file_stream *stream);
/* Before the first rows: tells a builder, a view, of every row. An id is looked up once in what the file
 * knows and in what the builder has: 10 instructions a row instead of 34. */
void ep_file_stream_tell(ep_file_stream *stream, ep_functions_builder *functions);
/* As ep_decoder_head(). */
const ep_decoded *ep_file_stream_head(const ep_file_stream *stream);
/* As ep_decoder_next(), with ids of this process. Fails: EP_IO, EP_NOMEM. */
EP_CHECKED ep_status ep_file_stream_next(ep_file_stream *stream, ep_columns *to, size_t limit,
                                         ep_error *error);
/* As ep_decoder_progress(). */
void ep_file_stream_progress(const ep_file_stream *stream, size_t *done, size_t *total);
/* After the last row. Returns: new in *out, without columns. Fails: as ep_file_stream_next(). */
EP_CHECKED ep_status ep_file_stream_end(ep_file_stream *stream, ep_decoded *out, ep_error *error);
void ep_file_stream_close(ep_file_stream *stream);    /* NULL is fine */

/* From now on loads and streams also check the records, for verify.h; out NULL: no more. *out must stay
 * valid as long. */
void ep_file_check_records(ep_file_reader *reader, ep_record_check *out);

/* The recording without its events. */
EP_CHECKED ep_status ep_file_describe(ep_file_reader *reader, ep_recording *recording,
                                      ep_error *error);

#endif
