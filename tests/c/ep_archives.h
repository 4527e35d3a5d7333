/* What the suites of archives share: traces that are saved, files, and comparing what comes back. */
#ifndef EP_ARCHIVES_H
#define EP_ARCHIVES_H

#include "ep_model.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "archive.h"
#include "archive_format.h"

#define NAME_COUNT 40
#define SITE_COUNT 100

static uint32_t name_ids[NAME_COUNT], site_ids[SITE_COUNT], site_callee[SITE_COUNT];

/* Names and sites that are found by text: opened in the same process, they have the same ids. */
static inline void
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

static inline int64_t
random_int64(uint64_t *random)
{
    return (int64_t)(ep_model_random(random) >> ep_model_below(random, 64) & INT64_MAX);
}

static inline void
add_alloc(maker *m, size_t row, uint64_t address, int64_t size)
{
    ep_columns *c = &m->trace.columns;
    c->alloc_row[c->alloc_count] = row;
    c->address[c->alloc_count] = address;
    c->size[c->alloc_count++] = size;
}

static inline void
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
    switch ((ep_form)ep_kinds[kind].form) {
        case EP_FORM_CALL:
            if (ep_kinds[kind].pairing == EP_PAIRING_OPENS) {
                *depth += *depth < 32;
                stack[*depth - 1] = site_callee[site];
            } else {
                c->id[row] = *depth > 0 && !odd ? stack[*depth - 1]
                                                : name_ids[ep_model_below(random, NAME_COUNT)];
                *depth -= *depth > 0;
            }
            break;
        case EP_FORM_ALLOC:
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
        case EP_FORM_FREE:
        case EP_FORM_VALUE:
            add_alloc(m, row, odd ? ep_model_random(random) : *block, -1);
            break;
        case EP_FORM_POINT:   break;
        case EP_FORM_CONTROL: ck_abort_msg("not an event");
    }
    m->trace.threads[thread].recorded[kind] += 1;
}

static inline void
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
static inline ep_decoded
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
    d->resident_own = ep_calloc(5, sizeof *d->resident_own);
    for (int i = 0; i < 5; i++) {
        d->resident_ns[i] = time_ns / 5 * i;
        d->resident_bytes[i] = random_int64(&m->random);
        d->resident_own[i] = i % 2 * (d->resident_bytes[i] / 3);    /* 0: unknown */
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

static inline int
file_of(const uint8_t *bytes, size_t count)
{
    int fd = ep_model_new_file();
    ck_assert_int_eq(pwrite(fd, bytes, count, 0), (ssize_t)count);
    return fd;
}

static inline int
save(const ep_decoded *trace)
{
    int fd = ep_model_new_file();
    ep_error error = {.text = ""};
    ck_assert_msg(ep_archive_write(fd, &some_recording, trace, &error) == EP_OK, "%s", error.text);
    return fd;
}

static inline size_t
read_file(int fd, uint8_t **bytes)
{
    size_t count = (size_t)lseek(fd, 0, SEEK_END);
    *bytes = ep_calloc(count, 1);
    ck_assert_int_eq(pread(fd, *bytes, count, 0), (ssize_t)count);
    return count;
}

static inline ep_archive *
open_file(int fd)
{
    ep_archive *archive;
    ep_error error = {.text = ""};
    ck_assert_msg(ep_archive_open(fd, &archive, &error) == EP_OK, "%s", error.text);
    close(fd);    /* it has its own */
    return archive;
}

static inline ep_decoded
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

static inline void
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
    ASSERT_SAME(a, b, resident_own, a->resident_count);
}

/* ---- Damage ---------------------------------------------------------------------------------- */

/* Calls `visit` with the header of each section. */
static inline void
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

#endif
