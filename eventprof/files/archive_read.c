/* An archive -> a trace. Everything in a file may be wrong: each number is checked against the bytes
 * that are there before memory is taken for it or an array indexed by it.
 *
 *   header -> sections, by the index or else by walking -> recording, names, threads -> [events] */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive_parts.h"
#include "archive_read_parts.h"
#include "array.h"
#include "memory.h"

/* ---- Opening --------------------------------------------------------------------------------- */

static ep_status
read_all_but_events(ep_archive *a)
{
    bool has_index;
    ep_status status = ep_archive_read_header(a);
    if (status == EP_OK) {
        status = ep_archive_read_index(a, &has_index);
    }
    if (status == EP_OK && !has_index) {
        status = ep_archive_walk_sections(a);
        if (status == EP_OK && a->info.damaged == 0) {
            ep_archive_note_damage(a, "index", 1, a->file_bytes, "it cannot be read, all else can");
        }
    }
    if (status != EP_OK) {
        return status;
    }
    ep_archive_fill_info(a);
    status = ep_archive_read_all_items(a);
    ep_decoded *d = &a->decoded;
    /* Only now, because the array moved while it grew. */
    for (size_t i = 0; i < d->thread_count; i++) {
        d->threads[i].thread = d->read_threads[i].attached ? &d->read_threads[i] : NULL;
    }
    if (status == EP_OK && d->thread_count == 0 && a->info.events_written > 0) {
        return ep_fail(a->error, EP_FORMAT, "%s: nothing of its events is left",
                       a->info.damage);
    }
    return status;
}

ep_status
ep_archive_open(int fd, ep_archive **out, ep_error *error)
{
    struct stat facts;
    ep_archive *a = ep_calloc(1, sizeof *a);
    if (a == NULL) {
        return EP_NOMEM;
    }
    a->error = error;
    a->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    ep_status status = EP_OK;
    if (a->fd < 0 || fstat(a->fd, &facts) != 0) {
        int cause = errno;
        status = ep_fail(error, EP_IO, "%s", strerror(cause));
        errno = cause;
    } else {
        a->file_bytes = facts.st_size > 0 ? (uint64_t)facts.st_size : 0;
        status = read_all_but_events(a);
    }
    a->error = NULL;
    if (status != EP_OK) {
        int cause = errno;
        ep_archive_close(a);
        errno = cause;
        return status;
    }
    a->opened = a->info;
    *out = a;
    return EP_OK;
}

void
ep_archive_close(ep_archive *a)
{
    if (a == NULL) {
        return;
    }
    if (a->fd >= 0) {
        close(a->fd);
    }
    ep_recording_clear(&a->recording);
    ep_decoded_clear(&a->decoded);
    ep_packer_clear(&a->packer);
    free(a->sections);
    free(a->strings_at);
    free(a->texts);
    ep_file_ids_clear(&a->ids);
    free(a->site_callee);
    free(a->stored);
    free(a->raw);
    free(a);
}

const ep_recording *
ep_archive_recording(const ep_archive *archive)
{
    return &archive->recording;
}

const ep_archive_info *
ep_archive_get_info(const ep_archive *archive)
{
    return &archive->info;
}

/* ---- Events ---------------------------------------------------------------------------------- */

static ep_status
columns_new(ep_columns *c, size_t rows, size_t blocks)
{
    c->time_ns = ep_array_new_claimed(rows, sizeof *c->time_ns);
    c->kind = ep_array_new_claimed(rows, sizeof *c->kind);
    c->thread = ep_array_new_claimed(rows, sizeof *c->thread);
    c->id = ep_array_new_claimed(rows, sizeof *c->id);
    c->alloc_row = ep_array_new_claimed(blocks, sizeof *c->alloc_row);
    c->address = ep_array_new_claimed(blocks, sizeof *c->address);
    c->size = ep_array_new_claimed(blocks, sizeof *c->size);
    return c->time_ns != NULL && c->kind != NULL && c->thread != NULL && c->id != NULL &&
                   c->alloc_row != NULL && c->address != NULL && c->size != NULL
               ? EP_OK
               : EP_NOMEM;
}

/* Appends the rows of a section of events, number `number` in the file. A damaged section is left out. */
static ep_status
load_section(ep_archive *a, ep_events_coder *coder, const ep_section *s, uint64_t number,
             ep_columns *columns, ep_events_totals *totals)
{
    const char *wrong;
    ep_status status = ep_archive_read_section(a, s, &wrong);
    if (status == EP_OK) {
        wrong = ep_events_decode(coder, a->raw, (size_t)s->raw_bytes, s, columns, totals);
        status = wrong != NULL ? EP_FORMAT : EP_OK;
    }
    if (status == EP_FORMAT) {
        ep_archive_note_damage(a, "events section", number, s->offset, wrong);
        status = EP_OK;
    }
    return status;
}

static ep_status
load_sections(ep_archive *a, ep_events_coder *coder, ep_columns *columns, ep_events_totals *totals)
{
    uint64_t number = 0;
    ep_status status = EP_OK;
    for (size_t i = 0; i < a->section_count && status == EP_OK; i++) {
        if (a->sections[i].type == EP_SECTION_EVENTS) {
            status = load_section(a, coder, &a->sections[i], ++number, columns, totals);
        }
    }
    return status;
}

/* Events that were recorded and could not be read count as lost. */
static void
settle_threads(ep_decoded *d, const ep_events_totals *totals)
{
    for (size_t i = 0; i < d->thread_count; i++) {
        ep_trace_thread *thread = &d->threads[i];
        bool same = true;
        for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
            uint64_t is = totals->recorded[i][kind], was = thread->recorded[kind];
            thread->lost[kind] += was > is ? was - is : 0;
            thread->recorded[kind] = is;
            same = same && was == is;
        }
        if (!same || totals->first_ns[i] >= 0) {
            thread->first_ns = totals->first_ns[i] >= 0 ? totals->first_ns[i] : 0;
            thread->last_ns = totals->last_of_thread_ns[i];
        }
    }
}

/* Fails: EP_NOMEM; clear_totals() frees what was allocated. */
static ep_status
begin_totals(const ep_archive *a, ep_events_totals *totals)
{
    size_t count = a->decoded.thread_count;
    *totals = (ep_events_totals){.duration_ns = a->duration_ns};
    totals->recorded = ep_calloc(count, sizeof *totals->recorded);
    totals->first_ns = ep_realloc(NULL, count, sizeof *totals->first_ns);
    totals->last_of_thread_ns = ep_calloc(count, sizeof *totals->last_of_thread_ns);
    if (totals->recorded == NULL || totals->first_ns == NULL || totals->last_of_thread_ns == NULL) {
        return EP_NOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        totals->first_ns[i] = -1;
    }
    return EP_OK;
}

static void
clear_totals(ep_events_totals *totals)
{
    free(totals->recorded);
    free(totals->first_ns);
    free(totals->last_of_thread_ns);
}

static ep_events_coder *
new_coder(const ep_archive *a)
{
    const ep_events_ids ids = {
        .site_count = a->ids.sites.count,
        .name_count = a->ids.names.count,
        .site_callee = a->site_callee,
        .site_map = a->ids.sites.ids,
        .name_map = a->ids.names.ids,
        .thread_count = a->decoded.thread_count,
        .kinds = a->kinds,
    };
    return ep_events_coder_new(&ids, false);
}

/* Sets what is known after all sections were read. */
static void
settle(ep_archive *a, const ep_events_totals *totals, uint64_t events)
{
    settle_threads(&a->decoded, totals);
    a->info.events = events;
    a->decoded.duration_ns = a->duration_ns;
    a->decoded.damaged_chunks = a->damaged_chunks + a->info.damaged;
}

static ep_status
load(ep_archive *a, ep_events_coder *coder, ep_decoded *out, ep_events_totals *totals)
{
    ep_decoded *known = &a->decoded;
    uint64_t blocks = 0;
    for (size_t i = 0; i < a->section_count; i++) {
        blocks += a->sections[i].type == EP_SECTION_EVENTS ? a->sections[i].blocks : 0;
    }
    ep_columns columns = {0};
    const ep_archive_info before = a->info;
    a->info = a->opened;
    ep_status status = columns_new(&columns, (size_t)a->info.events, (size_t)blocks);
    if (status == EP_OK) {
        status = load_sections(a, coder, &columns, totals);
    }
    if (status != EP_OK) {
        ep_decoded none = {.columns = columns};
        ep_decoded_clear(&none);
        a->info = before;
        return status;
    }
    settle(a, totals, columns.count);
    known->columns = columns;
    *out = *known;
    *known = (ep_decoded){0};
    return EP_OK;
}

ep_status
ep_archive_load(ep_archive *a, ep_decoded *out, ep_error *error)
{
    if (a->loaded) {
        return ep_fail(error, EP_STATE, "the events of this archive were loaded already");
    }
    ep_events_totals totals;
    ep_events_coder *coder = new_coder(a);
    ep_status status = begin_totals(a, &totals);
    a->error = error;
    status = coder == NULL ? EP_NOMEM : status != EP_OK ? status
                                                        : load(a, coder, out, &totals);
    a->error = NULL;
    a->loaded = status == EP_OK;
    int cause = errno;
    ep_events_coder_free(coder);
    clear_totals(&totals);
    errno = cause;
    return status;
}

/* ---- Batch by batch -------------------------------------------------------------------------- */

struct ep_archive_stream {
    ep_archive *archive;
    ep_events_coder *coder;
    ep_events_totals totals;
    size_t section;      /* the next of events; the number of sections: none */
    uint64_t number;     /* of sections of events read so far */
    uint64_t events;     /* so far */
};

static void
find_section(ep_archive_stream *s)
{
    const ep_archive *a = s->archive;
    while (s->section < a->section_count && a->sections[s->section].type != EP_SECTION_EVENTS) {
        s->section++;
    }
}

ep_status
ep_archive_stream_open(ep_archive *a, ep_archive_stream **out, ep_error *error)
{
    if (a->loaded) {
        return ep_fail(error, EP_STATE, "the events of this archive were loaded already");
    }
    ep_archive_stream *s = ep_calloc(1, sizeof *s);
    if (s == NULL) {
        return EP_NOMEM;
    }
    s->archive = a;
    s->coder = new_coder(a);
    if (begin_totals(a, &s->totals) != EP_OK || s->coder == NULL) {
        ep_archive_stream_close(s);
        return EP_NOMEM;
    }
    a->info = a->opened;
    a->decoded.duration_ns = a->duration_ns;
    find_section(s);
    *out = s;
    return EP_OK;
}

const ep_decoded *
ep_archive_head(const ep_archive *archive)
{
    return &archive->decoded;
}

void
ep_archive_set_processes(ep_archive *a, const size_t *threads, size_t count)
{
    size_t process = 0, last = count > 0 ? threads[0] : 0;    /* the first thread after the process */
    for (size_t i = 0; i < a->decoded.thread_count; i++) {
        while (i >= last && process + 1 < count) {
            last += threads[++process];
        }
        a->decoded.threads[i].process = (int32_t)process;
    }
}

size_t
ep_archive_stream_room(const ep_archive_stream *s)
{
    const ep_archive *a = s->archive;
    return s->section < a->section_count ? (size_t)a->sections[s->section].items : 0;
}

ep_status
ep_archive_stream_next(ep_archive_stream *s, ep_columns *to, ep_error *error)
{
    ep_archive *a = s->archive;
    size_t before = to->count;
    a->error = error;
    ep_status status = load_section(a, s->coder, &a->sections[s->section], ++s->number, to, &s->totals);
    a->error = NULL;
    s->events += to->count - before;
    s->section++;
    find_section(s);
    return status;
}

void
ep_archive_stream_end(ep_archive_stream *s)
{
    settle(s->archive, &s->totals, s->events);
}

void
ep_archive_stream_close(ep_archive_stream *s)
{
    if (s == NULL) {
        return;
    }
    /* Of many archives that are read one after another, one needs the room for a section. */
    ep_archive *a = s->archive;
    free(a->stored);
    free(a->raw);
    a->stored = a->raw = NULL;
    a->stored_capacity = a->raw_capacity = 0;
    ep_events_coder_free(s->coder);
    clear_totals(&s->totals);
    free(s);
}
