/* The archive: a finished trace as one compact file. doc/epr-archive.rst is its specification.
 *
 * Writing is sequential and needs no seek. Reading is by pread() into memory, never by a mapping: a
 * file that shrinks meanwhile is an error and no SIGBUS. Each number in a file is checked against the bytes
 * that are there before it is used; damaged parts are left out and counted. */
#ifndef EP_ARCHIVE_H
#define EP_ARCHIVE_H

#include "decode.h"
#include "recording.h"
#include "types.h"

typedef struct ep_archive_writer ep_archive_writer;

/* Writes a trace to a new file, from the descriptor's position on: all but its events now. head: all but
 * the columns, as it is known after every event was read; map: knows the ids of all events. They and
 * `recording` are not used afterwards. Returns: new in *out (ep_archive_writer_close). Fails: EP_IO (errno
 * says why, the file is incomplete), EP_NOMEM, EP_ARGUMENT (metadata too long). */
EP_CHECKED ep_status ep_archive_begin(int fd, const ep_recording *recording, const ep_decoded *head,
                                      const ep_id_map *map, ep_archive_writer **out, ep_error *error);
/* The next events, in order; blocks may be paired or not. *block: the first allocator event at or after
 * `from`; afterwards the first after these rows. Fails: as ep_archive_begin(); EP_FORMAT, these are more
 * events than the head says. */
EP_CHECKED ep_status ep_archive_add(ep_archive_writer *writer, const ep_columns *columns, size_t from,
                                    size_t to, size_t *block);
/* After the last event. Fails: as ep_archive_add(); EP_FORMAT, there were fewer events. */
EP_CHECKED ep_status ep_archive_end(ep_archive_writer *writer);
void ep_archive_writer_close(ep_archive_writer *writer);    /* NULL is fine; errno stays */

/* All of this for a trace that has columns. */
EP_CHECKED ep_status ep_archive_write(int fd, const ep_recording *recording,
                                      const ep_decoded *decoded, ep_error *error);

typedef struct ep_archive ep_archive;

/* Reads everything except the events, and interns their names and sites. fd: borrowed; the archive keeps a
 * duplicate. Returns: new in *out (ep_archive_close). Fails: EP_FORMAT (not an archive, or nothing of it
 * can be read), EP_UNSUPPORTED (made by a newer eventprof, or with a codec that this build lacks),
 * EP_IO (errno says why), EP_NOMEM. */
EP_CHECKED ep_status ep_archive_open(int fd, ep_archive **out, ep_error *error);
void ep_archive_close(ep_archive *archive);    /* NULL is fine */

/* Returns: view, until the archive is closed. */
const ep_recording *ep_archive_recording(const ep_archive *archive);

typedef struct ep_archive_section {
    const char *name;          /* "events"; static */
    uint64_t sections;         /* of that type in the file */
    uint64_t items;            /* events, names... in them */
    uint64_t raw_bytes, stored_bytes;
} ep_archive_section;

#define EP_ARCHIVE_SECTION_TYPES 15

typedef struct ep_archive_info {
    unsigned major, minor;     /* of the format */
    char writer[17];           /* the eventprof that wrote it */
    const char *codec;         /* of the first section of events: "zstd", "zlib", "raw"; static */
    uint64_t file_bytes;
    uint64_t events;           /* events that can be read, as far as is known */
    uint64_t events_written;   /* events that the trace had */
    uint64_t damaged;          /* parts that cannot be read; more may be found when the events are loaded */
    uint64_t unknown_events;   /* events left out, because this version does not know their kinds, */
    char unknown_words[160];   /* and the words of these kinds in the file */
    char damage[160];          /* "block 7 at offset 12345: ..."; "": there is none */
    ep_archive_section sections[EP_ARCHIVE_SECTION_TYPES];    /* name NULL: not in the file */
} ep_archive_info;

/* Returns: view, until the archive is closed; ep_archive_load() brings it up to date. */
const ep_archive_info *ep_archive_get_info(const ep_archive *archive);

/* Reads all events, once: a second time is EP_STATE. Damaged sections are left out; their events count as
 * lost, by kind and thread. The rows refer to out->read_threads. Returns: new in *out (ep_decoded_clear).
 * Fails: EP_NOMEM, EP_IO, EP_UNSUPPORTED; *out untouched and the archive as before. */
EP_CHECKED ep_status ep_archive_load(ep_archive *archive, ep_decoded *out, ep_error *error);

/* ---- The same batch by batch, with one section in memory --------------------------------------- */

typedef struct ep_archive_stream ep_archive_stream;

/* May be done several times before ep_archive_load(), not afterwards. The archive must outlive the stream.
 * Returns: new in *out (ep_archive_stream_close). Fails: EP_NOMEM, EP_STATE. */
EP_CHECKED ep_status ep_archive_stream_open(ep_archive *archive, ep_archive_stream **out, ep_error *error);
/* Everything except the columns: as the file says, and corrected after the last event of a stream. Returns:
 * view, until the archive is closed or loaded. */
const ep_decoded *ep_archive_head(const ep_archive *archive);
/* Says of an archive of a merged trace how many threads each of its processes has, in order; threads that
 * are left over count for the last one. Before its events are read. */
void ep_archive_set_processes(ep_archive *archive, const size_t *threads, size_t count);
/* The largest number of rows of the next batch; 0: there is none. */
size_t ep_archive_stream_room(const ep_archive_stream *stream);
/* Appends the next batch to columns with that much room. A damaged section is left out and noted: no rows.
 * Fails: EP_NOMEM, EP_IO, EP_UNSUPPORTED. */
EP_CHECKED ep_status ep_archive_stream_next(ep_archive_stream *stream, ep_columns *to, ep_error *error);
/* Call it after the last batch: the head and ep_archive_get_info() are then final. */
void ep_archive_stream_end(ep_archive_stream *stream);
void ep_archive_stream_close(ep_archive_stream *stream);    /* NULL is fine */

#endif
