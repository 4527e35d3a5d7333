/* The archive: a finished trace as one compact file. doc/epr-archive.rst is its specification.
 *
 * Writing is sequential and needs no seek. Reading is by pread() into memory, never by a mapping: a
 * file that shrinks meanwhile is an error and no SIGBUS. Nothing in a file is believed before it was
 * checked against the bytes that are there; what is damaged is left out and counted. */
#ifndef EP_ARCHIVE_H
#define EP_ARCHIVE_H

#include "decode.h"
#include "recording.h"
#include "types.h"

/* Writes a trace to a fresh descriptor, from where that stands. `decoded` may be paired or not.
 * Fails: EP_IO (errno says why, the file is incomplete), EP_NOMEM, EP_ARGUMENT (metadata too
 * long). */
EP_CHECKED ep_status ep_archive_write(int fd, const ep_recording *recording,
                                      const ep_decoded *decoded, ep_error *error);

typedef struct ep_archive ep_archive;

/* Reads all but the events, and interns what they mention. fd: the caller's still; the archive
 * keeps a duplicate.
 * Returns: new in *out (ep_archive_close). Fails: EP_FORMAT (no archive, or one of which nothing
 * can be had), EP_UNSUPPORTED (made by a newer eventprof, or with a codec that this build lacks),
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

#define EP_ARCHIVE_SECTION_TYPES 13

typedef struct ep_archive_info {
    unsigned major, minor;     /* of the format */
    char writer[17];           /* the eventprof that wrote it */
    const char *codec;         /* of the first block of events: "zstd", "zlib", "raw"; static */
    uint64_t file_bytes;
    uint64_t events;           /* that can be read, as far as is known */
    uint64_t events_written;   /* that the trace had */
    uint64_t damaged;          /* parts that cannot be read; more may show when it is loaded */
    uint64_t damage_offset;    /* of the first */
    char damage[160];          /* "block 7 at offset 12345: ..."; "": there is none */
    ep_archive_section sections[EP_ARCHIVE_SECTION_TYPES];    /* name NULL: not in the file */
} ep_archive_info;

/* Returns: view, until the archive is closed; ep_archive_load() brings it up to date. */
const ep_archive_info *ep_archive_get_info(const ep_archive *archive);

/* All events, once: a second time is EP_STATE. Damaged blocks are left out; their events count as
 * lost, by kind and thread. out->read_threads holds what its rows refer to.
 * Returns: new in *out (ep_decoded_clear). Fails: EP_NOMEM, EP_IO, EP_UNSUPPORTED; *out untouched
 * and the archive as before. */
EP_CHECKED ep_status ep_archive_load(ep_archive *archive, ep_decoded *out, ep_error *error);

/* ---- The same batch by batch, a block in memory ------------------------------------------------ */

typedef struct ep_archive_stream ep_archive_stream;

/* May be done again and again, and before ep_archive_load(), not behind it. The archive must outlive it.
 * Returns: new in *out (ep_archive_stream_close). Fails: EP_NOMEM, EP_STATE. */
EP_CHECKED ep_status ep_archive_stream_open(ep_archive *archive, ep_archive_stream **out, ep_error *error);
/* All but the columns, as the file says, and as it is after the last event of a stream. Returns: view,
 * until the archive is closed or loaded. */
const ep_decoded *ep_archive_head(const ep_archive *archive);
/* Rows that the next batch has at most; 0: there is none. */
size_t ep_archive_stream_room(const ep_archive_stream *stream);
/* Appends them to columns with that much room. None, of a damaged block: it is left out, and noted.
 * Fails: EP_NOMEM, EP_IO, EP_UNSUPPORTED. */
EP_CHECKED ep_status ep_archive_stream_next(ep_archive_stream *stream, ep_columns *to, ep_error *error);
/* After the last: what the head and ep_archive_get_info() say is settled. */
void ep_archive_stream_end(ep_archive_stream *stream);
void ep_archive_stream_close(ep_archive_stream *stream);    /* NULL is fine */

#endif
