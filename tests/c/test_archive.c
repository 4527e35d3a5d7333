/* archive.h: save and open is the identity; whatever a file holds, opening it does no harm. */
#include "ep_model.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "archive.h"
#include "archive_parts.h"

#define NAME_COUNT 40
#define SITE_COUNT 100

static uint32_t name_ids[NAME_COUNT], site_ids[SITE_COUNT], site_callee[SITE_COUNT];

/* Names and sites that are found by text: opened in the same process, they have the same ids. */
static void
setup(void)
{
    ck_assert_int_eq(ep_names_init(), EP_OK);
    for (uint32_t i = 1; i < NAME_COUNT; i++) {
        char qualname[32];
        int bytes = snprintf(qualname, sizeof qualname, "f%u\xED\xB2\x80", i * 7);
        ep_name_text text = {.qualname = {qualname, (size_t)bytes},
                             .line = i % 5 ? (int32_t)i : -1,
                             .kind = (ep_name_kind)(i % EP_NAME_KIND_COUNT)};
        if (i % 3 != 0) {
            text.module = (ep_text){"some.module", 11};
            text.file = (ep_text){"", 0};
        }
        name_ids[i] = ep_name_of_text(&text);
    }
    for (uint32_t i = 1; i < SITE_COUNT; i++) {
        site_callee[i] = i % 4 ? name_ids[i % NAME_COUNT] : 0;
        ep_site site = {.callee = site_callee[i],
                        .caller = i % 7 ? name_ids[i * 5 % NAME_COUNT] : 0,
                        .offset = (int32_t)i,
                        .line = i % 6 ? (int32_t)(i * 1000) : -1};
        site_ids[i] = ep_site_of_names(&site);
    }
}

/* ---- Traces ---------------------------------------------------------------------------------- */

typedef struct shape {
    size_t events, threads;
    uint64_t longest_run, longest_step;
    uint64_t oddness;    /* one event in so many is anything; 0: none */
    uint64_t kinds;
} shape;

typedef struct maker {
    uint64_t random;
    ep_decoded trace;
    uint64_t live[64];
    uint32_t stacks[8][32];
    size_t depths[8];
} maker;

static int64_t
random_int64(uint64_t *random)
{
    return (int64_t)(ep_model_random(random) >> ep_model_below(random, 64) & INT64_MAX);
}

static void
add_alloc(maker *m, size_t row, uint64_t address, int64_t size)
{
    ep_columns *c = &m->trace.columns;
    c->alloc_row[c->alloc_count] = row;
    c->address[c->alloc_count] = address;
    c->size[c->alloc_count++] = size;
}

static void
add_event(maker *m, const shape *s, int32_t thread, int64_t time_ns)
{
    ep_columns *c = &m->trace.columns;
    uint64_t *random = &m->random;
    size_t row = c->count++, *depth = &m->depths[thread % 8];
    uint32_t *stack = m->stacks[thread % 8];
    bool odd = s->oddness != 0 && ep_model_below(random, s->oddness) == 0;
    unsigned kind = ep_model_random_kind(random);
    if (!odd) {
        static const uint8_t usual[] = {EP_KIND_CALL, EP_KIND_CALL, EP_KIND_RETURN,
                                        EP_KIND_RETURN, EP_KIND_C_CALL, EP_KIND_C_RETURN,
                                        EP_KIND_MALLOC_OBJ, EP_KIND_FREE_OBJ};
        kind = usual[ep_model_below(random, 8)];
    }
    while (!(s->kinds & EP_KIND_BIT(kind))) {
        kind = ep_model_random_kind(random);
    }
    c->time_ns[row] = time_ns;
    c->kind[row] = (uint8_t)kind;
    c->thread[row] = thread;
    uint32_t site = (uint32_t)ep_model_below(random, odd ? SITE_COUNT : 12);
    c->id[row] = site_ids[site];
    uint64_t *block = &m->live[ep_model_below(random, 64)];
    switch ((ep_family)ep_kinds[kind].family) {
        case EP_FAMILY_CALL:
            if (ep_kinds[kind].pairing == EP_PAIRING_OPENS) {
                *depth += *depth < 32;
                stack[*depth - 1] = site_callee[site];
            } else {
                c->id[row] = *depth > 0 && !odd ? stack[*depth - 1]
                                                : name_ids[ep_model_below(random, NAME_COUNT)];
                *depth -= *depth > 0;
            }
            break;
        case EP_FAMILY_ALLOC:
            if (odd) {
                *block = ep_model_random(random) >> ep_model_below(random, 64);
            } else if (ep_model_below(random, 2)) {
                *block = 0x7F0000000000 + 16 * ep_model_below(random, 1000);
            }
            add_alloc(m, row, *block,
                      ep_kinds[kind].pairing == EP_PAIRING_NEITHER
                          ? random_int64(random)
                          : (int64_t)ep_model_below(random, odd ? 1u << 30 : 600));
            break;
        case EP_FAMILY_FREE:
        case EP_FAMILY_VALUE:
            add_alloc(m, row, odd ? ep_model_random(random) : *block, -1);
            break;
        case EP_FAMILY_POINT:   break;
        case EP_FAMILY_CONTROL: ck_abort_msg("not an event");
    }
    m->trace.threads[thread].recorded[kind] += 1;
}

static void
add_threads(maker *m, size_t count)
{
    ep_decoded *d = &m->trace;
    d->threads = ep_calloc(count, sizeof *d->threads);
    d->read_threads = ep_calloc(count, sizeof *d->read_threads);
    d->thread_count = count;
    for (size_t i = 0; i < count; i++) {
        ep_thread *who = &d->read_threads[i];
        who->id = (uint32_t)(i * 3);
        who->native_id = (uint64_t)random_int64(&m->random);
        if (i % 2) {
            snprintf(who->name, sizeof who->name, "thread %zu \xC3\xA9", i);
            atomic_store(&who->named, true);
        }
        ep_trace_thread *thread = &d->threads[i];
        thread->thread = i % 5 == 4 ? NULL : who;
        thread->lost[EP_KIND_CALL] = ep_model_below(&m->random, 2) ? (uint64_t)i << 33 : 0;
        size_t depth = ep_model_below(&m->random, 6);
        thread->open.calls = ep_calloc(depth, sizeof *thread->open.calls);
        thread->open.depth = thread->open.capacity = depth;
        for (size_t j = 0; j < depth; j++) {
            thread->open.calls[j] =
                (ep_open_call){.site_id = site_ids[ep_model_below(&m->random, SITE_COUNT)],
                               .kind = j % 2 ? EP_KIND_CALL : EP_KIND_C_CALL};
        }
    }
}

/* Returns: new. */
static ep_decoded
make_trace(uint64_t seed, const shape *s)
{
    maker *m = ep_calloc(1, sizeof *m);
    m->random = seed;
    ep_decoded *d = &m->trace;
    ep_columns *c = &d->columns;
    c->time_ns = ep_calloc(s->events, sizeof *c->time_ns);
    c->kind = ep_calloc(s->events, sizeof *c->kind);
    c->thread = ep_calloc(s->events, sizeof *c->thread);
    c->id = ep_calloc(s->events, sizeof *c->id);
    c->alloc_row = ep_calloc(s->events, sizeof *c->alloc_row);
    c->address = ep_calloc(s->events, sizeof *c->address);
    c->size = ep_calloc(s->events, sizeof *c->size);
    add_threads(m, s->threads);
    int64_t time_ns = 0;
    uint64_t run = 0;
    int32_t thread = 0;
    for (size_t i = 0; i < s->events; i++) {
        if (run-- == 0) {
            run = ep_model_below(&m->random, s->longest_run);
            thread = (int32_t)ep_model_below(&m->random, s->threads);
        }
        time_ns += s->longest_step ? (int64_t)ep_model_below(&m->random, s->longest_step) : 0;
        time_ns += ep_model_below(&m->random, 999) ? 0 : (int64_t)ep_model_below(&m->random, 1 << 20);
        ep_trace_thread *row = &d->threads[thread];
        uint64_t before = 0;
        for (int kind = 0; kind < EP_KIND_COUNT; kind++) before += row->recorded[kind];
        row->first_ns = before > 0 ? row->first_ns : time_ns;
        row->last_ns = time_ns;
        add_event(m, s, thread, time_ns);
    }
    d->duration_ns = time_ns + 12347;
    d->resident_count = 5;
    d->resident_ns = ep_calloc(5, sizeof *d->resident_ns);
    d->resident_bytes = ep_calloc(5, sizeof *d->resident_bytes);
    for (int i = 0; i < 5; i++) {
        d->resident_ns[i] = time_ns / 5 * i;
        d->resident_bytes[i] = random_int64(&m->random);
    }
    ep_decoded made = *d;
    free(m);
    return made;
}

static const ep_recording some_recording = {
    .kinds = EP_MODEL_ALL_KINDS,
    .start = {UINT64_C(0xFEDCBA9876543210), 12347},
    .start_realtime_ns = INT64_C(1700000000123456789),
    .start_boottime_ns = -5,
    .frequency_hz = 2.1e9 + 1.0 / 3,
    .step_ticks = 26,
    .process_id = 4242,
    .full_reason = EP_FULL_LIMIT,
    .filtered = 99,
    .unfinished = true,
    .metadata = (char *)"{\"python\": \"3.12\"}",
    .metadata_bytes = 18,
};

static const shape small = {200, 3, 20, 300, 4, EP_MODEL_ALL_KINDS};

/* ---- Files ----------------------------------------------------------------------------------- */

static int
new_file(void)
{
    int fd = memfd_create("archive", MFD_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    return fd;
}

static int
file_of(const uint8_t *bytes, size_t count)
{
    int fd = new_file();
    ck_assert_int_eq(pwrite(fd, bytes, count, 0), (ssize_t)count);
    return fd;
}

static int
save(const ep_decoded *trace)
{
    int fd = new_file();
    ep_error error = {.text = ""};
    ck_assert_msg(ep_archive_write(fd, &some_recording, trace, &error) == EP_OK, "%s", error.text);
    return fd;
}

static size_t
read_file(int fd, uint8_t **bytes)
{
    size_t count = (size_t)lseek(fd, 0, SEEK_END);
    *bytes = ep_calloc(count, 1);
    ck_assert_int_eq(pread(fd, *bytes, count, 0), (ssize_t)count);
    return count;
}

static ep_archive *
open_file(int fd)
{
    ep_archive *archive;
    ep_error error = {.text = ""};
    ck_assert_msg(ep_archive_open(fd, &archive, &error) == EP_OK, "%s", error.text);
    close(fd);    /* it has its own */
    return archive;
}

static ep_decoded
load(ep_archive *archive)
{
    ep_decoded trace;
    ep_error error = {.text = ""};
    ck_assert_msg(ep_archive_load(archive, &trace, &error) == EP_OK, "%s", error.text);
    return trace;
}

/* ---- Identity -------------------------------------------------------------------------------- */

#define ASSERT_SAME(a, b, column, count) \
    ck_assert_msg(memcmp((a)->column, (b)->column, (count) * sizeof *(a)->column) == 0, #column)

static void
assert_same_trace(const ep_decoded *a, const ep_decoded *b)
{
    ck_assert_uint_eq(a->columns.count, b->columns.count);
    ck_assert_uint_eq(a->columns.alloc_count, b->columns.alloc_count);
    size_t rows = a->columns.count, blocks = a->columns.alloc_count;
    ASSERT_SAME(a, b, columns.time_ns, rows);
    ASSERT_SAME(a, b, columns.kind, rows);
    ASSERT_SAME(a, b, columns.thread, rows);
    ASSERT_SAME(a, b, columns.id, rows);
    ASSERT_SAME(a, b, columns.alloc_row, blocks);
    ASSERT_SAME(a, b, columns.address, blocks);
    ASSERT_SAME(a, b, columns.size, blocks);
    ck_assert_uint_eq(a->thread_count, b->thread_count);
    for (size_t i = 0; i < a->thread_count; i++) {
        const ep_trace_thread *x = &a->threads[i], *y = &b->threads[i];
        ck_assert_int_eq(x->first_ns, y->first_ns);
        ck_assert_int_eq(x->last_ns, y->last_ns);
        ck_assert_mem_eq(x->recorded, y->recorded, sizeof x->recorded);
        ck_assert_mem_eq(x->lost, y->lost, sizeof x->lost);
        ck_assert_uint_eq(x->open.depth, y->open.depth);
        for (size_t j = 0; j < x->open.depth; j++) {
            ck_assert_uint_eq(x->open.calls[j].site_id, y->open.calls[j].site_id);
            ck_assert_uint_eq(x->open.calls[j].kind, y->open.calls[j].kind);
        }
        ck_assert_int_eq(x->thread == NULL, y->thread == NULL);
        if (x->thread != NULL) {
            ck_assert_uint_eq(x->thread->id, y->thread->id);
            ck_assert_uint_eq(x->thread->native_id, y->thread->native_id);
            ck_assert_str_eq(x->thread->name, y->thread->name);
            ck_assert_int_eq(atomic_load(&x->thread->named), atomic_load(&y->thread->named));
        }
    }
    ck_assert_int_eq(a->duration_ns, b->duration_ns);
    ck_assert_uint_eq(a->damaged_chunks, b->damaged_chunks);
    ck_assert_uint_eq(a->resident_count, b->resident_count);
    ASSERT_SAME(a, b, resident_ns, a->resident_count);
    ASSERT_SAME(a, b, resident_bytes, a->resident_count);
}

START_TEST(save_and_open_is_the_identity)
{
    setup();
    const shape shapes[] = {
        small,
        {1, 1, 1, 1, 1, EP_MODEL_ALL_KINDS},
        {30000, 1, 100, 150, 0, EP_MODEL_CALL_KINDS},
        {30000, 1, 100, 150, 0, EP_MODEL_ALL_KINDS},
        {30000, 7, 1, 60000, 1, EP_MODEL_ALL_KINDS},
        {30000, 40, 10, 0, 20, EP_MODEL_ALL_KINDS},
        {2 * EP_BLOCK_EVENTS + 3, 3, 1000, 400, 50, EP_MODEL_ALL_KINDS},
        {EP_BLOCK_EVENTS, 2, 1000, 400, 50, EP_MODEL_ALL_KINDS & ~EP_MODEL_CALL_KINDS},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        ep_decoded trace = make_trace(4711 + i, &shapes[i]);

        ep_archive *archive = open_file(save(&trace));
        ep_decoded read = load(archive);

        const ep_archive_info *info = ep_archive_get_info(archive);
        ck_assert_str_eq(info->damage, "");
        ck_assert_uint_eq(info->events, trace.columns.count);
        ck_assert_uint_eq(info->events_written, trace.columns.count);
        assert_same_trace(&trace, &read);
        ep_decoded_clear(&read);
        ep_decoded_clear(&trace);
        ep_archive_close(archive);
    }
}
END_TEST

START_TEST(what_is_known_of_the_recording_comes_back)
{
    setup();
    ep_decoded trace = make_trace(1, &small);

    ep_archive *archive = open_file(save(&trace));

    const ep_recording *read = ep_archive_recording(archive), *saved = &some_recording;
    ck_assert_uint_eq(read->kinds, saved->kinds);
    ck_assert_uint_eq(read->start.ticks, saved->start.ticks);
    ck_assert_int_eq(read->start.monotonic_ns, saved->start.monotonic_ns);
    ck_assert_int_eq(read->start_realtime_ns, saved->start_realtime_ns);
    ck_assert_int_eq(read->start_boottime_ns, saved->start_boottime_ns);
    ck_assert_mem_eq(&read->frequency_hz, &saved->frequency_hz, sizeof read->frequency_hz);
    ck_assert_uint_eq(read->step_ticks, saved->step_ticks);
    ck_assert_uint_eq(read->process_id, saved->process_id);
    ck_assert_int_eq(read->full_reason, saved->full_reason);
    ck_assert_uint_eq(read->filtered, saved->filtered);
    ck_assert_int_eq(read->unfinished, saved->unfinished);
    ck_assert_str_eq(read->metadata, saved->metadata);
    ck_assert_uint_eq(read->metadata_bytes, saved->metadata_bytes);
    ck_assert_str_eq(ep_archive_get_info(archive)->writer, EP_VERSION);
    ep_archive_close(archive);
    ep_decoded_clear(&trace);
}
END_TEST

START_TEST(a_trace_of_nothing_is_an_archive)
{
    setup();
    ep_recording recording = {0};
    ep_decoded nothing = {0};
    int fd = new_file();

    ck_assert_int_eq(ep_archive_write(fd, &recording, &nothing, NULL), EP_OK);

    ep_archive *archive = open_file(fd);
    ep_decoded read = load(archive);
    ck_assert_uint_eq(read.columns.count, 0);
    ck_assert_uint_eq(read.thread_count, 0);
    ck_assert_ptr_null(ep_archive_recording(archive)->metadata);
    ck_assert_str_eq(ep_archive_get_info(archive)->damage, "");
    ep_decoded_clear(&read);
    ep_archive_close(archive);
}
END_TEST

START_TEST(events_are_loaded_once)
{
    setup();
    ep_decoded trace = make_trace(1, &small);
    ep_archive *archive = open_file(save(&trace));
    ep_decoded read = load(archive), again;

    ck_assert_int_eq(ep_archive_load(archive, &again, NULL), EP_STATE);

    ep_decoded_clear(&read);
    ep_decoded_clear(&trace);
    ep_archive_close(archive);
}
END_TEST

START_TEST(sizes_that_pairing_filled_in_are_not_saved)
{
    setup();
    ep_decoded trace = make_trace(1, &small);
    ep_decoded paired = make_trace(1, &small);
    for (size_t i = 0; i < paired.columns.alloc_count; i++) {
        paired.columns.size[i] = paired.columns.size[i] < 0 ? 12347 : paired.columns.size[i];
    }

    ep_archive *archive = open_file(save(&paired));
    ep_decoded read = load(archive);

    assert_same_trace(&trace, &read);
    ep_decoded_clear(&read);
    ep_decoded_clear(&trace);
    ep_decoded_clear(&paired);
    ep_archive_close(archive);
}
END_TEST

/* ---- Damage ---------------------------------------------------------------------------------- */

/* What pair.c and summary.c rely on. */
static void
assert_is_sound(const ep_decoded *d)
{
    const ep_columns *c = &d->columns;
    ep_model_columns(c);
    int64_t sum = 0;
    for (size_t row = 0; row < c->count; row++) {
        bool name = ep_kinds[c->kind[row]].family == EP_FAMILY_CALL &&
                    ep_kinds[c->kind[row]].pairing == EP_PAIRING_CLOSES;
        ck_assert_ptr_nonnull(ep_kinds[c->kind[row]].name);
        ck_assert_int_ne(ep_kinds[c->kind[row]].family, EP_FAMILY_CONTROL);
        ck_assert_uint_lt((size_t)c->thread[row], d->thread_count);
        ck_assert_uint_lt(c->id[row], name ? ep_name_count() : ep_site_count());
        ck_assert(c->time_ns[row] >= 0 && c->time_ns[row] <= d->duration_ns);
    }
    for (size_t i = 0; i < c->alloc_count; i++) {
        unsigned kind = c->kind[c->alloc_row[i]];
        if (ep_kinds[kind].family != EP_FAMILY_ALLOC) {
            ck_assert_int_eq(c->size[i], -1);
        } else {
            ck_assert_int_ge(c->size[i], 0);
            if (ep_kinds[kind].pairing == EP_PAIRING_OPENS) {
                ck_assert_int_le(c->size[i], INT64_MAX - sum);
                sum += c->size[i];
            }
        }
    }
}

/* Opens what may be damaged. Returns: whether that is said. */
static bool
open_damaged(const uint8_t *bytes, size_t count)
{
    int fd = file_of(bytes, count);
    ep_archive *archive;
    ep_error error = {.text = ""};
    ep_status status = ep_archive_open(fd, &archive, &error);
    close(fd);
    if (status != EP_OK) {
        ck_assert_msg(status == EP_FORMAT || status == EP_UNSUPPORTED, "status %d", (int)status);
        ck_assert_str_ne(error.text, "");
        return true;
    }
    ep_decoded read;
    status = ep_archive_load(archive, &read, &error);
    bool said = status != EP_OK;
    if (status == EP_OK) {
        const ep_archive_info *info = ep_archive_get_info(archive);
        assert_is_sound(&read);
        said = info->damaged > 0;
        ck_assert_int_eq(said, info->damage[0] != 0);
        ck_assert_int_eq(said, read.damaged_chunks > 0);
        ep_decoded_clear(&read);
    } else {
        ck_assert_msg(status == EP_UNSUPPORTED, "status %d", (int)status);
    }
    ep_archive_close(archive);
    return said;
}

START_TEST(a_truncated_file_opens_as_far_as_it_goes_and_says_so)
{
    setup();
    ep_decoded trace = make_trace(1, &small);
    uint8_t *bytes;
    size_t count = read_file(save(&trace), &bytes);

    for (size_t length = 0; length < count; length++) {
        ck_assert_msg(open_damaged(bytes, length), "length %zu", length);
    }

    ck_assert(!open_damaged(bytes, count));
    free(bytes);
    ep_decoded_clear(&trace);
}
END_TEST

START_TEST(no_flipped_byte_goes_unseen)
{
    setup();
    ep_decoded trace = make_trace(1, &small);
    uint8_t *bytes;
    size_t count = read_file(save(&trace), &bytes);

    for (size_t at = 0; at < count; at++) {
        uint8_t flip = (uint8_t)(1 + at * 37 % 255);
        bytes[at] ^= flip;
        ck_assert_msg(open_damaged(bytes, count), "byte %zu", at);
        bytes[at] ^= flip;
    }

    free(bytes);
    ep_decoded_clear(&trace);
}
END_TEST

/* Calls `visit` with the header of each section. */
static void
each_section(uint8_t *bytes, void (*visit)(uint8_t *header, ep_section *section, uint64_t value),
             uint64_t value)
{
    ep_section section = {.offset = EP_ARCHIVE_HEADER_BYTES};
    do {
        uint8_t *header = bytes + section.offset;
        ck_assert(ep_section_unpack(header, &section));
        visit(header, &section, value);
        section.offset += EP_SECTION_HEADER_BYTES + section.stored_bytes;
    } while (section.type != EP_SECTION_INDEX);
}

/* A damaged block costs that block: its events count as lost. */
static void
damage_second_block(uint8_t *header, ep_section *section, uint64_t value)
{
    static int seen;
    (void)value;
    if (section->type == EP_SECTION_EVENTS && ++seen == 2) {
        header[EP_SECTION_HEADER_BYTES + 100] ^= 1;
    }
}

START_TEST(a_damaged_block_is_left_out_and_counted_as_lost)
{
    setup();
    const shape long_one = {3 * EP_BLOCK_EVENTS, 3, 1000, 400, 50, EP_MODEL_ALL_KINDS};
    ep_decoded trace = make_trace(1, &long_one);
    uint8_t *bytes;
    size_t count = read_file(save(&trace), &bytes);
    each_section(bytes, damage_second_block, 0);

    ep_archive *archive = open_file(file_of(bytes, count));
    ep_decoded read = load(archive);

    const ep_archive_info *info = ep_archive_get_info(archive);
    ck_assert_ptr_nonnull(strstr(info->damage, "block 2 at offset "));
    ck_assert_uint_eq(read.columns.count, 2 * EP_BLOCK_EVENTS);
    ck_assert_uint_eq(read.damaged_chunks, 1);
    assert_is_sound(&read);
    for (size_t i = 0; i < read.thread_count; i++) {
        for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
            ck_assert_uint_eq(read.threads[i].recorded[kind] + read.threads[i].lost[kind],
                              trace.threads[i].recorded[kind] + trace.threads[i].lost[kind]);
        }
    }
    free(bytes);
    ep_decoded_clear(&read);
    ep_decoded_clear(&trace);
    ep_archive_close(archive);
}
END_TEST

/* ---- Claims that are whole by their checksums and still not possible ------------------------- */

enum {
    CLAIM_RAW,
    CLAIM_ITEMS,
    CLAIM_BLOCKS,
    CLAIM_STORED,
    CLAIM_CODEC,
    CLAIM_TYPE,
    CLAIM_COUNT
};

static void
claim(uint8_t *header, ep_section *section, uint64_t value)
{
    static const uint64_t values[] = {0, 1, 7, UINT64_C(1) << 20, UINT64_C(60) << 20,
                                      UINT64_C(1) << 40, INT64_MAX, UINT64_MAX - 47, UINT64_MAX};
    ep_section changed = *section;
    uint64_t target = value / (CLAIM_COUNT * 9), to = values[value % 9];
    if (section->type != target) {
        return;
    }
    switch (value / 9 % CLAIM_COUNT) {
        case CLAIM_RAW:    changed.raw_bytes = to; break;
        case CLAIM_ITEMS:  changed.items = to; break;
        case CLAIM_BLOCKS: changed.blocks = to; break;
        case CLAIM_STORED: changed.stored_bytes = to; break;
        case CLAIM_CODEC:  changed.codec = (uint8_t)to; break;
        default:           changed.type = (uint32_t)to; break;
    }
    ep_section_pack(&changed, header);
}

START_TEST(impossible_claims_of_headers_do_no_harm)
{
    setup();
    ep_decoded trace = make_trace(1, &small);
    uint8_t *bytes, *changed;
    size_t count = read_file(save(&trace), &bytes);
    changed = ep_calloc(count, 1);

    for (uint64_t value = 0; value < EP_SECTION_TYPE_COUNT * CLAIM_COUNT * 9; value++) {
        memcpy(changed, bytes, count);
        each_section(changed, claim, value);
        open_damaged(changed, count);                       /* the index says otherwise */
        open_damaged(changed, count - EP_TRAILER_BYTES);    /* there is no index */
    }

    free(changed);
    free(bytes);
    ep_decoded_clear(&trace);
}
END_TEST

typedef struct edit {
    ep_section_type type;
    uint64_t random;
} edit;

/* Rewrites a file, with one section's content changed and all checksums right. Returns: bytes. */
static size_t
rewrite(const uint8_t *from, uint8_t *to, edit *e)
{
    ep_section section = {.offset = EP_ARCHIVE_HEADER_BYTES};
    ep_packer packer = {0};
    size_t at = EP_ARCHIVE_HEADER_BYTES;
    memcpy(to, from, at);
    for (;;) {
        ck_assert(ep_section_unpack(from + section.offset, &section));
        if (section.type == EP_SECTION_INDEX) {
            break;
        }
        const uint8_t *stored = from + section.offset + EP_SECTION_HEADER_BYTES;
        uint8_t *raw = to + at + EP_SECTION_HEADER_BYTES;
        ck_assert_int_eq(ep_unpack(&packer, section.codec, stored, section.stored_bytes, raw,
                                   section.raw_bytes),
                         EP_OK);
        ep_section changed = section;
        for (int i = 0; i < 2 && section.type == e->type && section.raw_bytes > 0; i++) {
            uint64_t where = ep_model_below(&e->random, section.raw_bytes);
            static const uint8_t telling[] = {0, 1, 2, 63, 127, 128, 191, 192, 254, 255};
            raw[where] = telling[ep_model_below(&e->random, sizeof telling)];
        }
        changed.codec = EP_CODEC_RAW;
        changed.stored_bytes = section.raw_bytes;
        changed.crc = ep_crc32(0, raw, section.raw_bytes);
        ep_section_pack(&changed, to + at);
        at += EP_SECTION_HEADER_BYTES + section.raw_bytes;
        section.offset += EP_SECTION_HEADER_BYTES + section.stored_bytes;
    }
    ep_packer_clear(&packer);
    return at;
}

START_TEST(nonsense_behind_right_checksums_does_no_harm)
{
    setup();
    ep_decoded trace = make_trace(1, &small);
    uint8_t *bytes;
    size_t count = read_file(save(&trace), &bytes);
    uint8_t *changed = ep_calloc(count, 20);
    size_t rounds = ep_model_work(1500);

    for (int type = EP_SECTION_RECORDING; type < EP_SECTION_INDEX; type++) {
        edit e = {(ep_section_type)type, (uint64_t)type * 12347};
        for (size_t i = 0; i < rounds; i++) {
            open_damaged(changed, rewrite(bytes, changed, &e));
        }
    }

    free(changed);
    free(bytes);
    ep_decoded_clear(&trace);
}
END_TEST

/* ---- Versions -------------------------------------------------------------------------------- */

START_TEST(a_newer_major_is_refused_by_name)
{
    setup();
    ep_decoded trace = make_trace(1, &small);
    uint8_t *bytes;
    size_t count = read_file(save(&trace), &bytes);
    ep_store_le(&bytes[12], EP_ARCHIVE_MAJOR + 1, 2);
    memcpy(&bytes[16], "7.8.9\0", 6);
    ep_store_le(&bytes[60], ep_crc32(0, bytes, 60), 4);
    ep_archive *archive;
    ep_error error = {.text = ""};

    int fd = file_of(bytes, count);
    ck_assert_int_eq(ep_archive_open(fd, &archive, &error), EP_UNSUPPORTED);

    ck_assert_ptr_nonnull(strstr(error.text, "use eventprof 7.8.9 or later"));
    close(fd);
    free(bytes);
    ep_decoded_clear(&trace);
}
END_TEST

/* A newer minor version: more sections, of types that we do not know, and a longer recording. */
static void
rename_resident(uint8_t *header, ep_section *section, uint64_t value)
{
    if (section->type == EP_SECTION_RESIDENT) {
        ep_section changed = *section;
        changed.type = (uint32_t)value;
        ep_section_pack(&changed, header);
    }
}

START_TEST(sections_of_unknown_types_are_skipped)
{
    setup();
    ep_decoded trace = make_trace(1, &small);
    uint8_t *bytes;
    size_t count = read_file(save(&trace), &bytes);
    ep_store_le(&bytes[14], EP_ARCHIVE_MINOR + 1, 2);
    ep_store_le(&bytes[60], ep_crc32(0, bytes, 60), 4);
    each_section(bytes, rename_resident, 99);

    ep_archive *archive = open_file(file_of(bytes, count - EP_TRAILER_BYTES));
    ep_decoded read = load(archive);

    ck_assert_uint_eq(read.columns.count, trace.columns.count);
    ck_assert_uint_eq(read.resident_count, 0);
    free(bytes);
    ep_decoded_clear(&read);
    ep_decoded_clear(&trace);
    ep_archive_close(archive);
}
END_TEST

START_TEST(what_is_no_archive_is_said_to_be_none)
{
    static const struct {
        const char *bytes;
        size_t count;
        const char *says;
    } files[] = {
        {"", 0, "empty"},
        {"PK\3\4 something else that is long enough for a header, or so one would like to think", 80,
         "no eventprof archive"},
        {"EVP", 3, "within its header"},
        {"EVPARCH\r\n\x89\r\n\x1a 4567890123456789012345678901234567890123456789012345", 64,
         "transfer it again"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        int fd = file_of((const uint8_t *)files[i].bytes, files[i].count);
        ep_archive *archive;
        ep_error error = {.text = ""};

        ck_assert_int_eq(ep_archive_open(fd, &archive, &error), EP_FORMAT);

        ck_assert_msg(strstr(error.text, files[i].says) != NULL, "%s", error.text);
        close(fd);
    }
}
END_TEST

START_TEST(a_directory_is_an_error_of_the_system)
{
    int fd = open("/tmp", O_RDONLY | O_DIRECTORY);
    ep_archive *archive;
    ep_error error = {.text = ""};

    ck_assert_int_eq(ep_archive_open(fd, &archive, &error), EP_IO);

    ck_assert_int_eq(errno, EISDIR);
    close(fd);
}
END_TEST

START_TEST(a_file_that_shrinks_after_opening_is_damage)
{
    setup();
    ep_decoded trace = make_trace(1, &small);
    int fd = save(&trace);
    ep_archive *archive;
    ck_assert_int_eq(ep_archive_open(fd, &archive, NULL), EP_OK);
    ck_assert_int_eq(ftruncate(fd, 100), 0);

    ep_decoded read = load(archive);

    ck_assert_uint_eq(read.columns.count, 0);
    ck_assert_uint_eq(read.damaged_chunks, 1);
    ck_assert_ptr_nonnull(strstr(ep_archive_get_info(archive)->damage, "the file ends within it"));
    ep_decoded_clear(&read);
    ep_decoded_clear(&trace);
    ep_archive_close(archive);
    close(fd);
}
END_TEST

/* ---- Writing that fails ---------------------------------------------------------------------- */

START_TEST(a_full_disk_is_an_error_of_the_system)
{
    setup();
    ep_decoded trace = make_trace(1, &small);
    int fd = open("/dev/full", O_WRONLY);
    ck_assert_int_ge(fd, 0);
    ep_error error = {.text = ""};

    errno = 0;
    ck_assert_int_eq(ep_archive_write(fd, &some_recording, &trace, &error), EP_IO);

    ck_assert_int_eq(errno, ENOSPC);
    ck_assert_str_eq(error.text, strerror(ENOSPC));
    close(fd);
    ep_decoded_clear(&trace);
}
END_TEST

#ifdef EP_FAULT_POINTS
START_TEST(without_memory_saving_and_opening_fail_and_work_again)
{
    setup();
    ep_decoded trace = make_trace(1, &small);
    int failures = 0;

    for (int nth = 0;; nth++) {
        int fd = new_file();
        ep_archive *archive = NULL;
        ep_decoded read;
        atomic_store(&ep_fault_countdown, nth);
        ep_status status = ep_archive_write(fd, &some_recording, &trace, NULL);
        status = status != EP_OK ? status : ep_archive_open(fd, &archive, NULL);
        status = status != EP_OK ? status : ep_archive_load(archive, &read, NULL);
        bool reached = atomic_load(&ep_fault_countdown) < 0;
        atomic_store(&ep_fault_countdown, -1);

        ck_assert_int_eq(status, reached ? EP_NOMEM : EP_OK);
        if (archive != NULL && status != EP_OK) {
            status = ep_archive_load(archive, &read, NULL);    /* it is as before */
        }
        if (archive != NULL) {
            ck_assert_int_eq(status, EP_OK);
            assert_same_trace(&trace, &read);
            ep_decoded_clear(&read);
        }
        ep_archive_close(archive);
        close(fd);
        failures += reached;
        if (!reached) {
            break;
        }
    }

    ck_assert_int_gt(failures, 50);
    ep_decoded_clear(&trace);
}
END_TEST
#endif

/* ---- The oldest files ------------------------------------------------------------------------ */

static uint32_t
digest(const ep_columns *c)
{
    uint32_t crc = ep_crc32(0, c->time_ns, c->count * sizeof *c->time_ns);
    crc = ep_crc32(crc, c->kind, c->count * sizeof *c->kind);
    crc = ep_crc32(crc, c->thread, c->count * sizeof *c->thread);
    crc = ep_crc32(crc, c->alloc_row, c->alloc_count * sizeof *c->alloc_row);
    crc = ep_crc32(crc, c->address, c->alloc_count * sizeof *c->address);
    crc = ep_crc32(crc, c->size, c->alloc_count * sizeof *c->size);
    for (size_t row = 0; row < c->count; row++) {
        /* Ids are the process's: what they stand for is the file's. */
        unsigned kind = c->kind[row];
        bool name = ep_kinds[kind].family == EP_FAMILY_CALL &&
                    ep_kinds[kind].pairing == EP_PAIRING_CLOSES;
        int32_t line = name ? ep_name_get(c->id[row])->line : ep_site_get(c->id[row])->line;
        crc = ep_crc32(crc, &line, sizeof line);
    }
    return crc;
}

/* Written by the format and codec in the name, and kept for ever. A build with that codec makes
 * today's in the directory EP_ARCHIVE_CORPUS_WRITE. */
START_TEST(files_of_every_version_open)
{
    setup();
    static const struct {
        const char *name, *codec;
        size_t events, blocks, threads;
        int64_t duration_ns;
        uint32_t digest;
    } files[] = {
        {"archive-1.0-zstd.epr", "zstd", 1000, 313, 6, 618403, 0x5A795BC0},
        {"archive-1.0-zlib.epr", "zlib", 1000, 296, 6, 159399, 0x4905A50B},
        {"archive-1.0-raw.epr", "raw", 1000, 296, 6, 1690302, 0x04234B4A},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const char *write_to = getenv("EP_ARCHIVE_CORPUS_WRITE");
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", write_to != NULL ? write_to : EP_TEST_DATA,
                 files[i].name);
        if (write_to != NULL && strcmp(files[i].codec, ep_codec_names[ep_codec_best()]) == 0) {
            const shape made = {1000, 6, 100, 300, 9, EP_MODEL_ALL_KINDS};
            ep_decoded trace = make_trace(2026 + i, &made);
            int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
            ck_assert_int_eq(ep_archive_write(fd, &some_recording, &trace, NULL), EP_OK);
            close(fd);
            ep_decoded_clear(&trace);
        }
        int fd = open(path, O_RDONLY);
        ck_assert_msg(fd >= 0, "%s", path);
        ep_archive *archive;
        ep_error error = {.text = ""};
        ep_status status = ep_archive_open(fd, &archive, &error);
        close(fd);
        if (status == EP_UNSUPPORTED) {    /* this build lacks the codec */
            ck_assert_msg(strstr(error.text, files[i].codec) != NULL, "%s", error.text);
            continue;
        }
        ck_assert_msg(status == EP_OK, "%s: %s", path, error.text);
        ep_decoded read = load(archive);
        const ep_archive_info *info = ep_archive_get_info(archive);
        ck_assert_str_eq(info->codec, files[i].codec);
        ck_assert_str_eq(info->damage, "");
        ck_assert_msg(read.columns.count == files[i].events &&
                          read.columns.alloc_count == files[i].blocks &&
                          read.thread_count == files[i].threads &&
                          read.duration_ns == files[i].duration_ns &&
                          digest(&read.columns) == files[i].digest,
                      "%s: %zu, %zu, %zu, %lld, 0x%08X", path, read.columns.count,
                      read.columns.alloc_count, read.thread_count, (long long)read.duration_ns,
                      digest(&read.columns));
        ep_decoded_clear(&read);
        ep_archive_close(archive);
    }
}
END_TEST

START_TEST(checksums_are_those_of_zlib)
{
    ck_assert_uint_eq(ep_crc32(0, "123456789", 9), 0xCBF43926);
    ck_assert_uint_eq(ep_crc32(ep_crc32(0, "12345", 5), "6789", 4), 0xCBF43926);
    ck_assert_uint_eq(ep_crc32(0, "", 0), 0);
}
END_TEST

EP_TEST_MAIN("archive",
             save_and_open_is_the_identity,
             what_is_known_of_the_recording_comes_back,
             a_trace_of_nothing_is_an_archive,
             events_are_loaded_once,
             sizes_that_pairing_filled_in_are_not_saved,
             a_truncated_file_opens_as_far_as_it_goes_and_says_so,
             no_flipped_byte_goes_unseen,
             a_damaged_block_is_left_out_and_counted_as_lost,
             impossible_claims_of_headers_do_no_harm,
             nonsense_behind_right_checksums_does_no_harm,
             a_newer_major_is_refused_by_name,
             sections_of_unknown_types_are_skipped,
             what_is_no_archive_is_said_to_be_none,
             a_directory_is_an_error_of_the_system,
             a_file_that_shrinks_after_opening_is_damage,
             a_full_disk_is_an_error_of_the_system,
#ifdef EP_FAULT_POINTS
             without_memory_saving_and_opening_fail_and_work_again,
#endif
             files_of_every_version_open,
             checksums_are_those_of_zlib)
