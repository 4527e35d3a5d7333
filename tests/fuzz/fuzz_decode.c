/* Whatever words the chunks of a recording hold, decoding them neither crashes nor overflows, and what it
 * gives is what the columns promise. The bytes are a chunk's words as they are; the first says how much of
 * it is sealed, how the window lies, and where a second chunk begins. */
#include <stdlib.h>
#include <string.h>

#include "decode.h"
#include "names.h"
#include "pair.h"

#define WORDS_MAX 2048

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
must(bool condition)
{
    if (!condition) {
        abort();
    }
}

static void
fill(ep_chunk *chunk, uint64_t sequence, const uint8_t *from, size_t words, bool sealed)
{
    ep_chunk_header *header = chunk->header;
    memset(header, 0, sizeof *header + (WORDS_MAX + 1) * 8);
    header->magic = EP_CHUNK_MAGIC;
    header->sequence = sequence;
    header->thread_id = 1 + sequence % 2;
    header->opened = (ep_anchor){1000 * sequence, (int64_t)(1000 * sequence)};
    header->sealed = (ep_anchor){1000000, 1000000};
    header->used_words = words;
    atomic_store(&header->state, sealed ? EP_CHUNK_SEALED : EP_CHUNK_OPEN);
    memcpy(header + 1, from, words * 8);
    /* As writers and file_read.c do: a chunk that changes hands says so. */
    ep_cursor cursor = ep_cursor_begin(header);
    ep_record record = {0};
    bool shared = false;
    while (ep_cursor_next(&cursor, &record)) {
        shared |= cursor.thread_id != header->thread_id;
    }
    atomic_store(&header->shared, shared);
}

static void
check(const ep_decoded *decoded)
{
    const ep_columns *c = &decoded->columns;
    size_t block = 0;
    for (size_t row = 0; row < c->count; row++) {
        bool alone = ep_kinds[c->kind[row]].words == 1;
        bool has_block = block < c->alloc_count && c->alloc_row[block] == row;
        must(c->thread[row] >= 0 && (size_t)c->thread[row] < decoded->thread_count);
        must(alone != has_block && ep_kinds[c->kind[row]].form != EP_FORM_CONTROL);
        must(row == 0 || c->time_ns[row] >= c->time_ns[row - 1]);
        block += has_block;
    }
    must(block == c->alloc_count);
}

/* Rows, the threads' own counts, and what is counted without decoding are the same, kind by kind. */
static void
check_counts(const ep_capture *capture, uint32_t only_thread, const ep_decoded *decoded)
{
    uint64_t recorded[EP_KIND_COUNT], lost[EP_KIND_COUNT], rows[EP_KIND_COUNT] = {0};
    ep_capture_count(capture, only_thread, recorded, lost);
    for (size_t row = 0; row < decoded->columns.count; row++) {
        rows[decoded->columns.kind[row]] += 1;
    }
    for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
        uint64_t of_threads = 0, lost_of_threads = 0;
        for (size_t i = 0; i < decoded->thread_count; i++) {
            of_threads += decoded->threads[i].recorded[kind];
            lost_of_threads += decoded->threads[i].lost[kind];
        }
        must(rows[kind] == recorded[kind] && of_threads == recorded[kind]);
        must(lost_of_threads == lost[kind]);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static ep_chunk chunks[2];
    /* The engine knows no thread here; these are as if from a file. */
    static const ep_thread read_threads[] = {{.id = 0}, {.id = 1}, {.id = 2}};
    if (chunks[0].header == NULL) {
        must(ep_engine_init() == EP_OK && ep_names_init() == EP_OK);
        for (int i = 0; i < 2; i++) {
            chunks[i].header = calloc(1, EP_CHUNK_BYTES);
            must(chunks[i].header != NULL);
        }
    }
    if (size < 8) {
        return 0;
    }
    size_t words = size / 8 - 1 < WORDS_MAX ? size / 8 - 1 : WORDS_MAX;
    size_t first = words * data[0] / 255;
    fill(&chunks[0], 1, data + 8, first, data[1] & 1);
    fill(&chunks[1], 2, data + 8 + first * 8, words - first, data[1] & 2);
    ep_chunk *both[] = {&chunks[0], &chunks[1]};
    ep_window_thread *threads = calloc(3, sizeof *threads);
    must(threads != NULL);
    ep_capture capture = {
        .kinds = data[2] & 1 ? UINT64_MAX : (UINT64_C(1) << (data[2] & 63)) - 1,
        .start = {data[3], data[3]},
        .stop = {data[1] & 4 ? UINT64_MAX / 2 : 5000, data[1] & 4 ? INT64_MAX / 4 : 5000},
        .full_ticks = data[1] & 8 ? 3000 : UINT64_MAX,
        .start_resident_bytes = -1,
        .stop_resident_bytes = -1,
        .chunks = both,
        .chunk_count = 2,
        .threads = threads,
        .thread_count = 3,
        .read_threads = read_threads,
    };
    must(ep_clock_map_add(&capture.clock, capture.start) == EP_OK);
    must(ep_clock_map_add(&capture.clock, capture.stop) == EP_OK);
    ep_clock_map_finish(&capture.clock);
    ep_decoded decoded;
    must(ep_decode(&capture, data[4] & 1, &decoded) == EP_OK);
    check(&decoded);
    check_counts(&capture, data[4] & 1, &decoded);
    ep_decoded_clear(&decoded);
    ep_clock_map_free(&capture.clock);
    free(threads);
    return 0;
}
