/* Shared by the files that read an archive. Other code includes archive.h, the interface. */
#ifndef EP_ARCHIVE_READ_PARTS_H
#define EP_ARCHIVE_READ_PARTS_H

#include "archive_parts.h"
#include "file_ids.h"

struct ep_archive {
    int fd;
    uint64_t file_bytes;             /* when it was opened */
    ep_archive_info info;
    ep_archive_info opened;          /* as it was before events were read */
    bool has_recording, loaded;
    ep_recording recording;
    int64_t duration_ns;
    uint64_t damaged_chunks;         /* of the trace, before it was saved */
    ep_section *sections;            /* in order of the file; without the index */
    size_t section_count, section_capacity;
    uint32_t *strings_at;            /* views of the texts below: offset, and after the last */
    char *texts;
    size_t text_bytes, text_capacity, string_count, string_capacity;
    ep_file_ids ids;
    uint32_t *site_callee;           /* index: the file's site; the file's name */
    size_t callee_capacity;
    ep_decoded decoded;              /* threads and resident samples; no events */
    size_t thread_capacity, thread_info_capacity, resident_capacity, bytes_capacity, own_capacity;
    ep_kind_info kinds[EP_KIND_COUNT];    /* the kinds of this version, and those that only the file has:
                                           * without a name */
    /* reading a section */
    uint8_t *stored, *raw;
    size_t stored_capacity, raw_capacity;
    ep_packer packer;
    ep_error *error;                 /* of the current call */
};

/* ---- archive_sections.c ---------------------------------------------------------------------- */

extern EP_HIDDEN const char *const ep_section_names[EP_SECTION_TYPE_COUNT];

/* Counts a part that cannot be read. Of the first one it notes what it is, its offset, and the reason. */
void ep_archive_note_damage(ep_archive *a, const char *part, uint64_t number, uint64_t offset,
                            const char *why);

/* Reads a section's bytes and unpacks them to a->raw. Fails: EP_FORMAT, with *wrong; EP_IO;
 * EP_NOMEM; EP_UNSUPPORTED. */
ep_status ep_archive_read_section(ep_archive *a, const ep_section *s, const char **wrong);

/* Fails: EP_FORMAT, EP_UNSUPPORTED, EP_IO. */
ep_status ep_archive_read_header(ep_archive *a);

/* Lists the sections from the front, as far as headers are right. */
ep_status ep_archive_walk_sections(ep_archive *a);

/* *found: whether there is an index that could be read. Never fails with EP_FORMAT. */
ep_status ep_archive_read_index(ep_archive *a, bool *found);

/* Fills what ep_archive_get_info() returns from the sections' headers. */
void ep_archive_fill_info(ep_archive *a);

/* ---- archive_items.c ------------------------------------------------------------------------- */

/* Everything but the events; the sections are known. Fails: EP_NOMEM, EP_FORMAT with a->error's text. */
ep_status ep_archive_read_all_items(ep_archive *a);

#endif
