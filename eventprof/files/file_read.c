/* A log file -> decoded columns. Slots are read into memory, never mapped: a file that shrinks
 * meanwhile must not kill the reader. Records are checked one by one, and their thread ids are replaced by
 * small ones, before they reach decode.c, which trusts its input. */
#include "file_read.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "file_read_parts.h"
#include "memory.h"

#define SPAN_NS_MAX (INT64_C(1) << 53)
#define NS_A_TICK_MAX 1000.0
#define NS_A_TICK_MIN 0.001

/* Whether the rate between two anchors is possible for a real clock. */
static bool
is_plausible(ep_anchor a, ep_anchor b)
{
    if (b.ticks <= a.ticks || b.ticks - a.ticks > EP_SPAN_TICKS_MAX || b.monotonic_ns <= a.monotonic_ns ||
        (uint64_t)b.monotonic_ns - (uint64_t)a.monotonic_ns > (uint64_t)SPAN_NS_MAX) {
        return false;
    }
    double ns_a_tick = (double)(b.monotonic_ns - a.monotonic_ns) / (double)(b.ticks - a.ticks);
    return ns_a_tick >= NS_A_TICK_MIN && ns_a_tick <= NS_A_TICK_MAX;
}

/* Uses the anchors whose slope to the start is possible for a clock; the last one extends the first
 * line. */
static ep_status
build_clock(ep_loader *l, ep_clock_map *map)
{
    const ep_file_header *header = &l->header;
    const ep_anchor start = header->start;
    ep_status status = ep_clock_map_add(map, start);
    /* If finished: the anchors that the recorder's own trace uses, so that times are the same. Otherwise
     * the beat that counts; the other one may be half written. */
    bool finished = l->reader->facts.phase == EP_FILE_FINISHED;
    uint32_t beat = atomic_load_explicit(&header->beat, memory_order_relaxed) & 1;
    const ep_anchor others[] = {header->birth, finished ? header->stop : header->beats[beat]};
    for (size_t i = 0; i < 2 && status == EP_OK; i++) {
        if (is_plausible(start, others[i]) || is_plausible(others[i], start)) {
            status = ep_clock_map_add(map, others[i]);
        }
    }
    for (size_t i = 0; i < l->chunk_count && status == EP_OK; i++) {
        ep_anchor opened = l->chunks[i].header->opened;
        if (is_plausible(start, opened)) {
            status = ep_clock_map_add(map, opened);
        }
    }
    if (status != EP_OK) {
        return status;
    }
    ep_clock_map_finish(map);
    /* The line between two plausible anchors may be implausible. */
    size_t kept = 1;
    for (size_t i = 1; i < map->count; i++) {
        if (is_plausible(map->anchors[kept - 1], map->anchors[i])) {
            map->anchors[kept++] = map->anchors[i];
        }
    }
    if (kept == 1) {
        map->anchors[kept++] = (ep_anchor){map->anchors[0].ticks + 1, map->anchors[0].monotonic_ns + 1};
    }
    map->count = kept;
    return EP_OK;
}

static ep_status
fill_recording(ep_loader *l, const ep_clock_map *map, ep_recording *recording, ep_error *error)
{
    const ep_file_header *header = &l->header;
    *recording = (ep_recording){
        .kinds = ep_file_kinds(header) & (ep_kinds_of_events | EP_KIND_BIT(0)),
        .start = header->start,
        .start_realtime_ns = header->start_realtime_ns,
        .start_boottime_ns = header->start_boottime_ns,
        .frequency_hz = map->count > 1 ? ep_clock_map_frequency_hz(map) : 0,
        .step_ticks = header->step_ticks,
        .process_id = header->process_id,
        .deep_calls = header->deep_calls,
        .short_calls = header->short_calls,
        .functions_off = header->functions_off,
        .full_reason = (ep_full_reason)atomic_load_explicit(&header->full_reason, memory_order_relaxed),
        .limits = atomic_load_explicit(&header->limits, memory_order_relaxed),
        .unfinished = l->reader->facts.phase != EP_FILE_FINISHED,
    };
    if (recording->full_reason > EP_FULL_DISK) {
        recording->full_reason = EP_FULL_NOT;
    }
    recording->metadata = ep_calloc(header->metadata_bytes + 1, 1);
    if (recording->metadata == NULL) {
        return EP_NOMEM;
    }
    int64_t got = ep_reader_read_at(l->reader, EP_FILE_METADATA_OFFSET, recording->metadata,
                                    header->metadata_bytes);
    if (got < 0) {
        ep_recording_clear(recording);
        return ep_fail_os(error, errno);
    }
    recording->metadata_bytes = (size_t)got;
    return EP_OK;
}

static void
clear_loader(ep_loader *l)
{
    for (size_t i = 0; i < l->chunk_count; i++) {
        free(l->chunks[i].header);
    }
    for (size_t i = 0; i < l->text_count; i++) {
        free(l->texts[i]);
    }
    for (size_t i = 0; l->window != NULL && i < l->window_count; i++) {
        free(l->window[i].open.calls);
    }
    free(l->window);
    free(l->event_slots);
    free(l->text_slots);
    free(l->chunks);
    free(l->places);
    free(l->texts);
    free(l->threads);
    free(l->file_ids);
    ep_hash_index_free(&l->small_ids);
    free(l->strings);
    free(l->names);
    free(l->sites);
    ep_file_ids_clear(&l->ids);
    free(l->met);
    free(l->resident);
    free(l->state);
    ep_chunk_packer_free(l->packer);
    free(l->packed);
}

/* The chunks of a file, as input for a decoder. */
typedef struct file_capture {
    ep_capture capture;
    ep_clock_map map;
    ep_chunk **chunks;
} file_capture;

static void
clear_capture(file_capture *c)
{
    ep_clock_map_free(&c->map);
    free(c->chunks);
    *c = (file_capture){0};
}

/* Returns: new in *out (clear_capture), with views into the loader, and in *recording. */
static ep_status
make_capture(ep_loader *l, file_capture *out, ep_recording *recording, ep_error *error)
{
    ep_file_header *header = &l->header;
    bool finished = l->reader->facts.phase == EP_FILE_FINISHED;
    *out = (file_capture){.chunks = ep_calloc(l->chunk_count, sizeof *out->chunks)};
    ep_status status = out->chunks != NULL ? build_clock(l, &out->map) : EP_NOMEM;
    if (status == EP_OK) {
        status = fill_recording(l, &out->map, recording, error);
    }
    if (status != EP_OK) {
        clear_capture(out);
        return status;
    }
    for (size_t i = 0; i < l->chunk_count; i++) {
        out->chunks[i] = &l->chunks[i];
    }
    for (size_t i = 0; i < l->thread_count; i++) {
        l->threads[i].id = (uint32_t)i;
    }
    ep_loader_translate_window(l);
    out->capture = (ep_capture){
        .kinds = ep_file_kinds(header) & (ep_kinds_of_events | EP_KIND_BIT(0)),
        .start = header->start,
        .stop = finished ? header->stop : (ep_anchor){.ticks = l->last_ticks},
        .start_realtime_ns = header->start_realtime_ns,
        .start_resident_bytes = header->start_resident_bytes,
        .stop_resident_bytes = finished ? header->stop_resident_bytes : -1,
        .start_own_bytes = header->start_own_bytes,
        .stop_own_bytes = header->stop_own_bytes,
        .full_ticks = recording->full_reason == EP_FULL_NOT          ? UINT64_MAX
                      : header->full_ticks + 1 < header->start.ticks ? header->start.ticks
                                                                     : header->full_ticks,
        .full_reason = recording->full_reason,
        .chunks = out->chunks,
        .chunk_count = l->chunk_count,
        .threads = l->window,
        .thread_count = l->window_count,
        .clock = out->map,
        .read_threads = l->threads,
        .resident = l->resident,
        .resident_count = l->resident_count,
    };
    return EP_OK;
}

/* After all rows were translated: passes the threads that they refer to on to `out`. */
static void
settle_decoded(ep_loader *l, ep_decoded *out)
{
    out->read_threads = l->threads;
    l->threads = NULL;
    if (l->unknown_ids > 0) {
        ep_reader_note(l->reader, "%zu events name a function or place that is not in the file",
                       l->unknown_ids);
    }
    out->damaged_chunks += l->reader->facts.note_count;
    l->reader->facts.unknown_events = l->unknown_events;
    ep_unknown_words(&l->header, l->unknown_kinds, l->reader->facts.unknown_words,
                     sizeof l->reader->facts.unknown_words);
}

static ep_status
decode_all(ep_loader *l, ep_recording *recording, ep_decoded *out, ep_error *error)
{
    file_capture file;
    ep_status status = make_capture(l, &file, recording, error);
    if (status != EP_OK) {
        return status;
    }
    status = ep_decode(&file.capture, l->only_thread, out);
    if (status == EP_OK && l->reader->check != NULL) {
        status = ep_check_records(&file.capture, l->only_thread, NULL, out, l->reader->check);
    }
    if (status == EP_OK) {
        status = ep_loader_translate_rows(l, &out->columns, 0, NULL);
        if (status != EP_OK) {
            ep_decoded_clear(out);
        }
    }
    if (status == EP_OK) {
        settle_decoded(l, out);
    } else {
        ep_recording_clear(recording);
    }
    clear_capture(&file);
    return status;
}

/* A running program makes its file longer and shorter while it is read. */
static void
note_lost_slots(ep_file_reader *reader)
{
    uint64_t slots = atomic_load_explicit(&reader->header.slots, memory_order_relaxed);
    uint64_t unit = reader->header.slot_bytes;
    if (!reader->facts.writer_lives && slots > 0 &&
        (slots > UINT64_MAX / unit || reader->bytes < slots * unit)) {
        ep_reader_note(reader, "the file ends at byte %" PRIu64 ", before the end of its %" PRIu64 " KiB",
                       reader->bytes, slots > UINT64_MAX / unit ? UINT64_MAX : slots * (unit / 1024));
    }
}

/* Reads everything that a capture needs. */
static ep_status
load(ep_loader *l, ep_error *error)
{
    ep_file_reader *reader = l->reader;
    reader->facts.note_count = 0;
    ep_status status = ep_reader_read_size(reader, error);
    status = status != EP_OK ? status : ep_reader_read_header(reader, error);
    if (status != EP_OK) {
        return status;
    }
    l->state = ep_calloc(EP_FILE_STATE_LIMIT, 1);
    if (l->state == NULL ||
        !ep_grow((void **)&l->threads, &l->thread_capacity, 1, sizeof *l->threads)) {
        return EP_NOMEM;
    }
    l->thread_count = 1;
    status = ep_loader_read_state(l, error);
    if (status != EP_OK) {
        return status;
    }
    l->header = reader->header;
    l->shape = ep_record_shape_of(&l->header);
    note_lost_slots(reader);
    if (reader->facts.awaits_stop && !reader->facts.writer_lives) {
        ep_reader_note(reader, "the events: it ran beside a recorder with a file, and was not stopped; "
                               "what both recorded is in the other file");
    }
    if (reader->facts.words_damaged) {
        ep_reader_note(reader, "words of its header are damaged, after offset %zu: which hook saw calls",
                       offsetof(ep_file_header, calls_from));
    }
    bool finished = reader->facts.phase == EP_FILE_FINISHED;
    l->last_ticks = l->header.start.ticks;
    status = ep_loader_read_slots(l, finished ? l->header.stop.ticks : UINT64_MAX, error);
    if (status == EP_IO) {
        return ep_fail_os(error, errno);
    }
    if (status != EP_OK || (l->outrun && !l->last_try)) {
        return status;
    }
    if (l->outrun) {
        ep_reader_note(reader, "the program records faster than this can be read: some events are missing");
    }
    ep_loader_read_texts(l);
    ep_loader_name_threads(l);
    status = ep_loader_sort_threads(l);
    status = status != EP_OK ? status : ep_loader_map_ids(l);
    return status != EP_OK ? status : ep_loader_fill_window(l);
}

void
ep_file_check_records(ep_file_reader *reader, ep_record_check *out)
{
    reader->check = out;
}

ep_status
ep_file_describe(ep_file_reader *reader, ep_recording *recording, ep_error *error)
{
    ep_loader l = {.reader = reader, .header = reader->header};
    ep_clock_map map = {0};
    ep_status status = build_clock(&l, &map);
    status = status != EP_OK ? status : fill_recording(&l, &map, recording, error);
    ep_clock_map_free(&map);
    return status;
}

/* ---- Batch by batch -------------------------------------------------------------------------- */

struct ep_file_stream {
    ep_chunk_source source;    /* the first member */
    ep_loader loader;
    file_capture file;
    ep_decoder *decoder;
    uint64_t stop_ticks;
    bool leaves_ids;
    ep_functions_builder *functions;    /* view: told of each row; or NULL */
    ep_chunk_header *spare;    /* a buffer of the largest chunk, for the next; may be NULL */
};

static ep_status
load_chunk(ep_chunk_source *source, size_t index, const ep_chunk_header **out)
{
    ep_file_stream *s = (ep_file_stream *)source;
    ep_chunk_place *place = &s->loader.places[index];
    bool large = place->slot.chunk_bytes == EP_CHUNK_BYTES, is_chunk;
    ep_chunk_header *chunk = large ? s->spare : NULL;
    s->spare = large ? NULL : s->spare;
    if (chunk == NULL) {
        chunk = ep_calloc(place->slot.chunk_bytes + 16, 1);
    }
    if (chunk == NULL) {
        return EP_NOMEM;
    }
    ep_status status = ep_loader_read_chunk(&s->loader, &place->slot, s->stop_ticks, !place->checked, chunk,
                                            &is_chunk);
    place->checked = true;
    if (status != EP_OK) {
        free(chunk);
        return status;
    }
    if (!is_chunk) {    /* the slot was reused since it was found, because somebody writes to the file */
        chunk->used_words = 0;
        chunk->bytes = (uint32_t)place->slot.chunk_bytes;
    }
    memset((uint64_t *)(chunk + 1) + chunk->used_words, 0, 16);    /* the rest of an earlier chunk */
    *out = chunk;
    return EP_OK;
}

static void
let_chunk_go(ep_chunk_source *source, const ep_chunk_header *chunk)
{
    ep_file_stream *s = (ep_file_stream *)source;
    ep_chunk_header *owned_chunk = (ep_chunk_header *)chunk;
    if (s->spare == NULL && chunk->bytes == EP_CHUNK_BYTES) {
        s->spare = owned_chunk;
    } else {
        free(owned_chunk);
    }
}

ep_status
ep_file_stream_open(ep_file_reader *reader, ep_recording *recording, ep_file_stream **out,
                    ep_error *error)
{
    if (reader->facts.writer_lives) {
        return ep_fail(error, EP_STATE, "a program still records into it");
    }
    ep_file_stream *s = ep_calloc(1, sizeof *s);
    if (s == NULL) {
        return EP_NOMEM;
    }
    s->source = (ep_chunk_source){.load = load_chunk, .let_go = let_chunk_go};
    s->loader = (ep_loader){.reader = reader, .streams = true, .last_try = true};
    ep_status status = load(&s->loader, error);
    if (status == EP_OK) {
        status = make_capture(&s->loader, &s->file, recording, error);
    }
    if (status == EP_OK) {
        s->loader.threads_known = true;
        s->stop_ticks = reader->facts.phase == EP_FILE_FINISHED ? s->loader.header.stop.ticks : UINT64_MAX;
        status = ep_decoder_open(&s->file.capture, s->loader.only_thread, &s->source, &s->decoder);
        if (status != EP_OK) {
            ep_recording_clear(recording);
        }
    }
    if (status != EP_OK) {
        ep_file_stream_close(s);
        return status;
    }
    *out = s;
    return EP_OK;
}

void
ep_file_stream_leave_ids(ep_file_stream *stream)
{
    stream->leaves_ids = true;
}

void
ep_file_stream_tell(ep_file_stream *stream, ep_functions_builder *functions)
{
    stream->functions = functions;
}

const ep_decoded *
ep_file_stream_head(const ep_file_stream *stream)
{
    return ep_decoder_head(stream->decoder);
}

ep_status
ep_file_stream_next(ep_file_stream *s, ep_columns *to, size_t limit, ep_error *error)
{
    size_t from = to->count;
    ep_status status = ep_decoder_next(s->decoder, to, limit);
    if (status == EP_OK && !s->leaves_ids) {
        status = ep_loader_translate_rows(&s->loader, to, from, s->functions);
    }
    return status == EP_IO ? ep_fail_os(error, errno) : status;
}

void
ep_file_stream_progress(const ep_file_stream *s, size_t *done, size_t *total)
{
    ep_decoder_progress(s->decoder, done, total);
}

void
ep_file_stream_end(ep_file_stream *s, ep_decoded *out)
{
    ep_decoder_end(s->decoder, out);
    settle_decoded(&s->loader, out);
}

void
ep_file_stream_close(ep_file_stream *s)
{
    if (s == NULL) {
        return;
    }
    ep_decoder_close(s->decoder);
    free(s->spare);
    clear_capture(&s->file);
    clear_loader(&s->loader);
    free(s);
}

/* ---- All at once ----------------------------------------------------------------------------- */

/* Reads a file that nobody writes to any more, chunk by chunk. */
static ep_status
load_ended(ep_file_reader *reader, ep_recording *recording, ep_decoded *out, ep_error *error)
{
    ep_file_stream *s;
    ep_status status = ep_file_stream_open(reader, recording, &s, error);
    if (status != EP_OK) {
        return status;
    }
    ep_columns columns;
    ep_decoded read = {0};
    status = ep_decoder_take_all(s->decoder, &columns);
    if (status == EP_OK) {
        status = ep_loader_translate_rows(&s->loader, &columns, 0, NULL);
    }
    if (status == EP_OK) {
        ep_file_stream_end(s, &read);
        if (reader->check != NULL) {
            status = ep_check_records(&s->file.capture, s->loader.only_thread, &s->source, &read,
                                      reader->check);
        }
    }
    read.columns = columns;
    if (status == EP_OK) {
        *out = read;
    } else {
        ep_decoded_clear(&read);
        ep_recording_clear(recording);
    }
    status = status == EP_IO ? ep_fail_os(error, errno) : status;
    ep_file_stream_close(s);
    return status;
}

ep_status
ep_file_load(ep_file_reader *reader, ep_recording *recording, ep_decoded *out, ep_error *error)
{
    if (!reader->facts.writer_lives) {
        return load_ended(reader, recording, out, error);
    }
    for (int attempt = 1;; attempt++) {
        ep_loader l = {.reader = reader, .last_try = attempt == EP_READ_TRIES};
        ep_status status = load(&l, error);
        bool again = status == EP_OK && l.outrun && !l.last_try;
        if (status == EP_OK && !again) {
            status = decode_all(&l, recording, out, error);
        }
        clear_loader(&l);
        if (!again) {
            return status;
        }
    }
}
