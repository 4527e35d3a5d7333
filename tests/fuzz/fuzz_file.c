/* Whatever a log file holds, reading it and all that is computed from it neither crashes nor
 * overflows.
 *
 * Slots are 1 MiB, inputs are not: an input is a script that is expanded into a sparse file.
 *   byte 0     0: the rest is the file itself; otherwise a file is built, in this order:
 *   edits      count; for each the offset in the header (2 bytes) and the word to put there (8)
 *   states     count; for each two bytes: what to do, and how many pairs
 *   slots      kind, sequence, thread, flags, then records until END
 *   cut        2 bytes: the file loses that many 64 bytes at its end
 * An input that is over reads as zeros, so that every prefix is an input. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "file_read.h"
#include "functions.h"
#include "names.h"
#include "pair.h"
#include "summary.h"

#define SLOTS_MAX 6
#define START_TICKS UINT64_C(0x500001000)
#define START_NS INT64_C(1000000000)

typedef struct script {
    const uint8_t *at, *end;
} script;

static uint64_t
take(script *s, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) {
        value |= (uint64_t)(s->at < s->end ? *s->at : 0) << 8 * i;
        s->at += s->at < s->end;
    }
    return value;
}

static void
put(int descriptor, uint64_t offset, const void *from, size_t bytes)
{
    if (pwrite(descriptor, from, bytes, (off_t)offset) != (ssize_t)bytes) {
        abort();
    }
}

/* ---- Expanding ------------------------------------------------------------------------------- */

#define LATER_KIND 100       /* that only the file's table of kinds knows */
#define STATE_BYTES UINT64_C(491520)
#define STATE_OFFSET(which) (UINT64_C(65536) + (uint64_t)(which) * STATE_BYTES)

static uint64_t
word0_of(uint64_t ticks, unsigned kind, uint64_t payload)
{
    return ticks << 32 | (uint64_t)kind << EP_PAYLOAD_BITS | payload;
}

static void
put_header(int descriptor, script *s)
{
    static const char metadata[] = "{}";
    ep_file_header header = {
        .magic = EP_FILE_MAGIC,
        .major = EP_FILE_MAJOR,
        .minor = EP_FILE_MINOR,
        .byte_order = EP_FILE_BYTE_ORDER,
        .header_bytes = sizeof header,
        .slot_bytes = EP_CHUNK_BYTES_MIN,
        .process_id = 12347,
        .kinds = UINT64_MAX,
        .step_ticks = 1,
        .birth = {START_TICKS - 5000000, START_NS - 5000000},
        .start = {START_TICKS, START_NS},
        .stop = {START_TICKS + 600000000, START_NS + 600000000},
        .start_resident_bytes = 1 << 20,
        .stop_resident_bytes = -1,
        .metadata_bytes = sizeof metadata - 1,
        .full_ticks = UINT64_MAX,
        .phase = EP_FILE_RECORDING,
    };
    unsigned first = (unsigned)take(s, 1), edits = first & 15;
    header.kinds_high = UINT64_MAX;
    header.kind_table[LATER_KIND] = (ep_file_kind){2, EP_FORM_ALLOC, 0, EP_DOMAIN_OBJ, "later"};
    /* Pages of nothing are between the head and the first slot. */
    header.head_bytes = 2 * EP_CHUNK_BYTES_MIN;
    for (unsigned i = 0; i < 2; i++) {
        atomic_store(&header.state_offset[i], STATE_OFFSET(i));
        atomic_store(&header.state_room[i], STATE_BYTES);
    }
    for (unsigned i = 0; i < edits; i++) {
        size_t offset = take(s, 2) % (sizeof header - 7);
        uint64_t value = take(s, 8);
        memcpy((char *)&header + offset, &value, 8);
    }
    put(descriptor, 0, &header, sizeof header);
    put(descriptor, EP_FILE_METADATA_OFFSET, metadata, sizeof metadata - 1);
}

static void
put_states(int descriptor, script *s)
{
    static char body[4096];
    unsigned count = (unsigned)take(s, 1) & 7;
    uint8_t flags = (uint8_t)take(s, 1);
    size_t bytes = 0;
    for (unsigned i = 0; i < count; i++) {
        ep_file_thread_state head = {
            .thread_id = (uint32_t)take(s, 1),
            .count_count = (uint32_t)take(s, 1) & 15,
            .depth = (uint32_t)take(s, 1) & 15,
        };
        unsigned pairs = head.count_count + head.depth;
        if (flags & 1) {
            head.depth = (uint32_t)take(s, 4);
        }
        memcpy(body + bytes, &head, sizeof head);
        bytes += sizeof head;
        for (unsigned k = 0; k < pairs; k++) {
            ep_file_pair pair = {take(s, 1), take(s, flags & 2 ? 8 : 1)};
            memcpy(body + bytes, &pair, sizeof pair);
            bytes += sizeof pair;
        }
    }
    if (count == 0 && flags == 0) {
        return;
    }
    ep_file_state state = {.dropped_sequence = flags & 4 ? take(s, 1) : UINT64_MAX,
                           .thread_count = count,
                           .bytes = flags & 8 ? (uint32_t)take(s, 4) : (uint32_t)bytes,
                           .sum = flags & 16 ? 1 : ep_sum64(body, bytes)};
    put(descriptor, STATE_OFFSET(flags >> 7), &state, sizeof state);
    put(descriptor, STATE_OFFSET(flags >> 7) + sizeof state, body, bytes);
}

static size_t
put_events(script *s, uint64_t *words, size_t room, uint64_t *ticks)
{
    static const uint64_t sizes[] = {0, 8, 100, 1 << 20, EP_PAYLOAD_MAX, 3, 24, 512};
    size_t at = 0;
    uint64_t high = START_TICKS >> 32;
    while (at + 8 < room && s->at < s->end) {
        unsigned op = (unsigned)take(s, 1);
        if (op == 0) {
            break;
        }
        if (op == 255) {
            words[at++] = take(s, 8);
            continue;
        }
        unsigned kind = (op & 63) != 0 ? op & 63 : LATER_KIND;
        *ticks += take(s, 1) << (op >> 6) * 7;
        if (*ticks >> 32 != high) {
            high = *ticks >> 32;
            words[at++] = word0_of(*ticks, EP_KIND_SYNC, 0);
            words[at++] = *ticks;
        }
        const ep_kind_info *info = &ep_kinds[kind];
        uint64_t small = take(s, 1);
        if (kind == EP_KIND_ESCAPE) {
            words[at++] = word0_of(*ticks, kind, small % (EP_ESCAPE_COUNT + 1));
            words[at++] = take(s, small % (EP_ESCAPE_COUNT + 1) == EP_ESCAPE_WITHIN ? 1 : 8);
        } else if (kind != LATER_KIND &&
                   (info->form == EP_FORM_CALL || info->form == EP_FORM_POINT)) {
            words[at++] = word0_of(*ticks, kind, small);
        } else if (info->form == EP_FORM_FREE || info->form == EP_FORM_VALUE) {
            words[at++] = word0_of(*ticks, kind, small & 7);
            words[at++] = (small >> 3) * 16;
        } else if (info->form == EP_FORM_ALLOC) {
            words[at++] = word0_of(*ticks, kind, sizes[small & 7]);
            words[at++] = (small >> 3) * 16 >> 3 << EP_ALLOC_SITE_BITS | (small & 3);
        } else if (kind == LATER_KIND) {
            words[at++] = word0_of(*ticks, kind, small);
            words[at++] = small;
        } else {
            words[at++] = word0_of(*ticks, kind, 0);
            words[at++] = kind == EP_KIND_SYNC ? *ticks : small;
        }
    }
    return at;
}

static size_t
put_texts(script *s, uint64_t *words, size_t room)
{
    size_t at = 0;
    while (at + 16 < room && s->at < s->end) {
        unsigned op = (unsigned)take(s, 1);
        if (op == 0) {
            break;
        }
        uint32_t fields[16] = {(uint32_t)take(s, 1)};
        size_t count = 1;
        switch (op & 7) {
            case EP_FILE_TEXT_STRING:
                /* Few texts: the name tables keep them for ever. */
                fields[1] = (uint32_t)take(s, 1) & 7;
                memset(&fields[2], 'a' + (int)(take(s, 1) & 7), 8);
                count = 4;
                break;
            case EP_FILE_TEXT_NAME:
                for (count = 1; count < 5; count++) {
                    fields[count] = (uint32_t)take(s, 1) & 15;
                }
                fields[count++] = (uint32_t)take(s, 1);
                break;
            case EP_FILE_TEXT_SITE:
                for (count = 1; count < 5; count++) {
                    fields[count] = (uint32_t)take(s, 1) & 15;
                }
                break;
            case EP_FILE_TEXT_THREAD:
                fields[1] = (uint32_t)take(s, 1);
                fields[2] = 77;
                memset(&fields[4], 't', 40);
                count = 14;
                break;
            default:
                fields[0] = (uint32_t)take(s, 4);
                fields[1] = (uint32_t)take(s, 4);
                count = take(s, 1) & 15;
                break;
        }
        size_t length = 1 + (count + 1) / 2;
        words[at] = (uint64_t)(op & 7) << 32 | (op & 64 ? take(s, 4) : length);
        memcpy(&words[at + 1], fields, (length - 1) * 8);
        at += length;
    }
    return at;
}

static void
put_slot(int descriptor, script *s, uint64_t slot, uint64_t *ticks)
{
    static uint64_t words[8192];
    unsigned kind = (unsigned)take(s, 1);
    uint8_t flags = 0;
    ep_chunk_header header = {.magic = kind & 1 ? EP_FILE_TEXT_MAGIC : EP_CHUNK_MAGIC};
    header.sequence = take(s, 1);
    header.thread_id = take(s, 1);
    flags = (uint8_t)take(s, 1);
    header.opened = (ep_anchor){*ticks, START_NS + (int64_t)(*ticks - START_TICKS)};
    header.resident_bytes = 1 << 20;
    if (flags & 1) {
        header.opened = (ep_anchor){take(s, 8), (int64_t)take(s, 8)};
        header.resident_bytes = (int64_t)take(s, 8);
        header.thread_id = take(s, 8);
    }
    header.bytes = EP_CHUNK_BYTES;    /* of version 1: not looked at */
    atomic_store(&header.shared, flags >> 1 & 1);
    atomic_store(&header.wanted, !(flags & 4));
    size_t room = sizeof words / 8 - 1, used;
    memset(words, 0, sizeof words);
    used = kind & 1 ? put_texts(s, words, room) : put_events(s, words, room, ticks);
    header.used_words = flags & 8 ? take(s, 8) : used;
    header.sum = flags & 16 ? 1 : ep_sum64(words, used * 8);
    atomic_store(&header.state, flags & 32 ? (uint32_t)take(s, 1) : kind & 2 ? EP_CHUNK_SEALED
                                                                             : EP_CHUNK_OPEN);
    put(descriptor, slot * EP_CHUNK_BYTES, &header, sizeof header);
    /* At the slot's end as well: where the last record is cut off. */
    put(descriptor, slot * EP_CHUNK_BYTES + sizeof header, words, used * 8);
    if (flags & 64) {
        put(descriptor, (slot + 1) * EP_CHUNK_BYTES - used * 8, words, used * 8);
    }
}

static void
expand(int descriptor, script *s)
{
    uint64_t ticks = START_TICKS + 10;
    put_header(descriptor, s);
    put_states(descriptor, s);
    uint64_t slot = 1;
    for (; slot <= SLOTS_MAX && s->at + 2 < s->end; slot++) {
        put_slot(descriptor, s, slot, &ticks);
    }
    uint64_t length = slot * EP_CHUNK_BYTES, cut = take(s, 2) * 64;
    if (ftruncate(descriptor, (off_t)(length > cut ? length - cut : 0)) != 0) {
        abort();
    }
}

/* ---- Reading all there is -------------------------------------------------------------------- */

static void
summarise(ep_calls *calls, ep_blocks *blocks)
{
    ep_call_memory memory;
    if (ep_summary_call_memory(calls, blocks, true, &memory) == EP_OK) {
        ep_call_memory_clear(&memory);
    }
    ep_curve curve;
    if (ep_summary_curve(blocks, EP_DOMAINS_ALL, &curve) == EP_OK) {
        ep_curve_clear(&curve);
    }
    ep_bin bins[7];
    ep_summary_bins(blocks, EP_DOMAINS_ALL, 7, bins);
    ep_peak peak = ep_summary_peak(blocks, EP_DOMAINS_ALL);
    ep_stacks stacks;
    if (ep_summary_stacks(calls, &stacks) == EP_OK) {
        ep_groups groups;
        if (ep_summary_alive(blocks, calls, &stacks, peak.moment, EP_BY_STACK, &groups) == EP_OK) {
            ep_groups_clear(&groups);
        }
        if (ep_summary_temporary(blocks, calls, &stacks, EP_BY_FUNCTION, &groups) == EP_OK) {
            ep_groups_clear(&groups);
        }
        ep_stacks_clear(&stacks);
    }
}

/* What trace.c makes of a file. */
static void
pair_all(ep_decoded *decoded)
{
    ep_functions functions;
    if (ep_functions_build(decoded, &functions) != EP_OK) {
        return;
    }
    ep_open_stack *open = calloc(decoded->thread_count + 1, sizeof *open);
    int64_t *from_ns = calloc(decoded->thread_count + 1, sizeof *from_ns);
    if (open == NULL || from_ns == NULL) {
        abort();
    }
    for (size_t i = 0; i < decoded->thread_count; i++) {
        open[i] = decoded->threads[i].open;
        from_ns[i] = decoded->threads[i].first_ns;
    }
    ep_pair_input input = {
        .columns = &decoded->columns,
        .map = &functions.map,
        .thread_count = decoded->thread_count,
        .open_at_start = open,
        .open_from_ns = from_ns,
        .length_ns = decoded->duration_ns,
        .lost_from_ns = EP_NOTHING_LOST,
    };
    ep_calls calls = {0};
    ep_blocks blocks = {0};
    if (ep_pair_calls(&input, NULL, &calls) == EP_OK &&
        ep_pair_blocks(&input, NULL, &blocks) == EP_OK && ep_calls_fill(&calls, 511) == EP_OK &&
        ep_blocks_fill(&blocks, &calls, 4095) == EP_OK) {
        summarise(&calls, &blocks);
    }
    ep_blocks_clear(&blocks);
    ep_calls_clear(&calls);
    free(open);
    free(from_ns);
    ep_functions_clear(&functions);
}

/* What the columns promise to those who compute from them. */
static void
check(const ep_decoded *decoded)
{
    const ep_columns *c = &decoded->columns;
    size_t block = 0;
    for (size_t row = 0; row < c->count; row++) {
        bool in_call = ep_kinds[c->kind[row]].form == EP_FORM_CALL;
        bool alone = ep_kinds[c->kind[row]].words == 1;
        bool has_block = block < c->alloc_count && c->alloc_row[block] == row;
        if (c->thread[row] < 0 || (size_t)c->thread[row] >= decoded->thread_count ||
            alone == has_block || c->time_ns[row] < 0 || c->time_ns[row] > decoded->duration_ns ||
            (row > 0 && c->time_ns[row] < c->time_ns[row - 1]) ||
            c->id[row] >= (in_call && ep_kinds[c->kind[row]].pairing == EP_PAIRING_CLOSES
                               ? ep_name_count()
                               : ep_site_count())) {
            fprintf(stderr, "row %zu: kind %u, thread %d, %lld of %lld ns, id %u\n", row, c->kind[row],
                    c->thread[row], (long long)c->time_ns[row], (long long)decoded->duration_ns,
                    c->id[row]);
            abort();
        }
        block += has_block;
    }
}

int LLVMFuzzerInitialize(int *count, char ***arguments);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerInitialize(int *count, char ***arguments)
{
    (void)count;
    (void)arguments;
    return ep_engine_init() == EP_OK && ep_names_init() == EP_OK ? 0 : 1;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int descriptor = memfd_create("log", MFD_CLOEXEC);
    if (descriptor < 0) {
        abort();
    }
    script s = {data, data + size};
    if (take(&s, 1) == 0) {
        put(descriptor, 0, s.at, (size_t)(s.end - s.at));
    } else {
        expand(descriptor, &s);
    }
    const char *save = getenv("EP_FUZZ_SAVE");    /* the file of an input, to look at */
    if (save != NULL) {
        char command[256];
        snprintf(command, sizeof command, "cp --sparse=always /proc/%d/fd/%d '%s'", getpid(),
                 descriptor, save);
        (void)!system(command);
    }
    ep_file_reader *reader;
    ep_error error = {.text = ""};
    if (ep_file_open(descriptor, &reader, &error) != EP_OK) {
        return 0;
    }
    ep_recording recording;
    ep_decoded decoded;
    if (ep_file_describe(reader, &recording, &error) == EP_OK) {
        ep_recording_clear(&recording);
    }
    if (ep_file_load(reader, &recording, &decoded, &error) == EP_OK) {
        check(&decoded);
        pair_all(&decoded);
        ep_decoded_clear(&decoded);
        ep_recording_clear(&recording);
    }
    ep_file_close(reader);
    return 0;
}
