/* What the suites of log files share: a program that writes one, and comparing it with the memory. */
#ifndef EP_FILES_H
#define EP_FILES_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "prefault.h"
#include "ep_model.h"
#include "file_read.h"

#define NAMES 200    /* ids 1 to this many are names and sites that the tests made */
#define KEEP 64

/* ---- Names, events, files -------------------------------------------------------------------- */

static inline uint32_t
add_name(unsigned number)
{
    char text[32];
    snprintf(text, sizeof text, "function_%u", number);
    ep_name_text name = {.qualname = {text, strlen(text)},
                         .module = {"module", 6},
                         .file = {"file.py", 7},
                         .line = (int32_t)number};
    return ep_name_add(0x10000 + 16 * (uintptr_t)number, 0, &name, NULL, NULL);
}

static inline uint32_t
add_site(unsigned number, uint32_t callee)
{
    ep_site site = {.callee = callee, .caller = callee / 2, .offset = 4, .line = (int32_t)number};
    return ep_site_add(0x10000 + 16 * (uintptr_t)number, 8, &site);
}

static inline void
setup(void)
{
    ep_model_setup();
    ep_prefault_may_sample = false;
    for (unsigned i = 1; i <= NAMES; i++) {
        uint32_t name = add_name(i), site = add_site(i, name);
        ck_assert_uint_ne(name, 0);
        ck_assert_uint_ne(site, 0);
    }
}

/* As programs make them: ids that have a text, no blocks beyond the address space. */
static inline ep_model_event
next_event(uint64_t *random)
{
    ep_model_event event = ep_model_random_event(random, ep_model_tick());
    event.id %= NAMES + 1;
    if (event.size > INT64_C(1) << 40 && ep_kinds[event.kind].pairing == EP_PAIRING_OPENS) {
        event.size = 12347;
    }
    return event;
}

static inline void
emit(uint64_t *random, size_t count)
{
    ep_log *log = ep_log_mine();
    for (size_t i = 0; i < count; i++) {
        ep_model_event event = next_event(random);
        if (log != NULL) {
            ep_model_put(log, &event);
        } else {
            ep_engine_count_unlogged(event.kind);    /* no memory: a test of failures */
        }
    }
}

static inline const char *
new_path(void)
{
    static char path[64];
    static int number;
    snprintf(path, sizeof path, "/tmp/ep_test_file.%d.%d", (int)getpid(), number++);
    (void)unlink(path);
    return path;
}

static bool packs;    /* the chunks of files that are made are packed */

static inline ep_file *
create(const char *path)
{
    char child_path[80];
    snprintf(child_path, sizeof child_path, "%s-%%p", path);
    ep_file_options options = {
        .path = path, .child_path = child_path, .packs = packs, .metadata = "{}", .metadata_bytes = 2};
    ep_file *file;
    ep_error error = {.text = ""};
    ck_assert_msg(ep_file_create(&options, &file, &error) == EP_OK, "%s", error.text);
    return file;
}

static inline void
start(ep_recorder *recorder, const char *path, uint64_t chunks, ep_on_full on_full)
{
    ep_recorder_options options = {.kinds = EP_MODEL_ALL_KINDS,
                                   .limit_bytes = chunks * EP_CHUNK_BYTES,
                                   .on_full = on_full,
                                   .clock = EP_CLOCK_INJECTED};
    ep_error error = {.text = ""};
    ep_recorder_init(recorder, &options);
    ep_recorder_set_file(recorder, create(path));
    ck_assert_msg(ep_recorder_start(recorder, &error) == EP_OK, "%s", error.text);
}

typedef struct loaded {
    ep_recording recording;
    ep_decoded decoded;
    ep_file_facts facts;
} loaded;

/* Takes the descriptor over. */
static inline ep_status
try_load(int descriptor, loaded *out)
{
    ep_file_reader *reader;
    ep_error error = {.text = ""};
    ep_status status = ep_file_open(descriptor, &reader, &error);
    if (status == EP_OK) {
        status = ep_file_load(reader, &out->recording, &out->decoded, &error);
        out->facts = *ep_file_get_facts(reader);
        ep_file_close(reader);
    }
    ck_assert_msg(status == EP_OK || status == EP_NOMEM || error.text[0] != 0, "no reason is given");
    return status;
}

static inline loaded
load(const char *path)
{
    loaded l;
    ck_assert_int_eq(try_load(open(path, O_RDONLY | O_CLOEXEC), &l), EP_OK);
    return l;
}

static inline void
clear(loaded *l)
{
    ep_decoded_clear(&l->decoded);
    ep_recording_clear(&l->recording);
}

/* A copy of a file as it is now; holes stay holes. Returns: a descriptor. */
static inline int
copy_of(int from)
{
    static char bytes[1 << 16];
    int to = ep_model_new_file();
    ssize_t got;
    off_t at = 0;
    for (; (got = pread(from, bytes, sizeof bytes, at)) > 0; at += got) {
        bool empty = bytes[0] == 0 && memcmp(bytes, bytes + 1, (size_t)got - 1) == 0;
        ck_assert(empty || pwrite(to, bytes, (size_t)got, at) == got);
    }
    ck_assert_int_eq(ftruncate(to, at), 0);
    return to;
}

static inline int
snapshot(const char *path)
{
    int from = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(from, 0);
    int to = copy_of(from);
    close(from);
    return to;
}

/* ---- Comparing ------------------------------------------------------------------------------- */

static inline bool
same_name(uint32_t a, uint32_t b)
{
    const ep_name *x = ep_name_get(a), *y = ep_name_get(b);
    return x->qualname == y->qualname && x->module == y->module && x->file == y->file &&
           x->line == y->line && x->kind == y->kind;
}

static inline bool
same_site(uint32_t a, uint32_t b)
{
    const ep_site *x = ep_site_get(a), *y = ep_site_get(b);
    return same_name(x->callee, y->callee) && same_name(x->caller, y->caller) &&
           x->offset == y->offset && x->line == y->line;
}

/* Of an empty column there may be no array. */
static inline bool
same_bytes(const void *a, const void *b, size_t bytes)
{
    return bytes == 0 || memcmp(a, b, bytes) == 0;
}

static inline void
assert_same_threads(const ep_decoded *file, const ep_decoded *memory)
{
    ck_assert_uint_eq(file->thread_count, memory->thread_count);
    for (size_t i = 0; i < file->thread_count; i++) {
        const ep_trace_thread *a = &file->threads[i], *b = &memory->threads[i];
        ck_assert_int_eq(a->thread == NULL, b->thread == NULL);
        ck_assert(a->thread == NULL || a->thread->native_id == b->thread->native_id);
        ck_assert(a->thread == NULL || strcmp(a->thread->name, b->thread->name) == 0);
        ck_assert(same_bytes(a->recorded, b->recorded, sizeof a->recorded));
        ck_assert(same_bytes(a->lost, b->lost, sizeof a->lost));
        ck_assert_uint_eq(a->open.depth, b->open.depth);
        for (size_t k = 0; k < a->open.depth; k++) {
            ck_assert_int_eq(a->open.calls[k].kind, b->open.calls[k].kind);
            ck_assert(same_site(a->open.calls[k].site_id, b->open.calls[k].site_id));
        }
    }
}

static inline void
assert_same(const ep_decoded *file, const ep_decoded *memory)
{
    assert_same_threads(file, memory);
    const ep_columns *a = &file->columns, *b = &memory->columns;
    ck_assert_uint_eq(a->count, b->count);
    ck_assert_uint_eq(a->alloc_count, b->alloc_count);
    ck_assert(same_bytes(a->time_ns, b->time_ns, a->count * sizeof *a->time_ns));
    ck_assert(same_bytes(a->kind, b->kind, a->count));
    ck_assert(same_bytes(a->thread, b->thread, a->count * sizeof *a->thread));
    ck_assert(same_bytes(a->alloc_row, b->alloc_row, a->alloc_count * 8));
    ck_assert(same_bytes(a->address, b->address, a->alloc_count * 8));
    ck_assert(same_bytes(a->size, b->size, a->alloc_count * 8));
    for (size_t i = 0; i < a->count; i++) {
        const ep_kind_info *info = &ep_kinds[a->kind[i]];
        bool closes = info->form == EP_FORM_CALL && info->pairing == EP_PAIRING_CLOSES;
        if (!(closes ? same_name : same_site)(a->id[i], b->id[i])) {
            ck_abort_msg("row %zu: id %u in the file, %u in memory", i, a->id[i], b->id[i]);
        }
    }
    ck_assert_int_eq(file->duration_ns, memory->duration_ns);
    ck_assert_uint_eq(file->resident_count, memory->resident_count);
    ck_assert(same_bytes(file->resident_ns, memory->resident_ns, file->resident_count * 8));
    ck_assert(same_bytes(file->resident_bytes, memory->resident_bytes, file->resident_count * 8));
    ck_assert(same_bytes(file->resident_own, memory->resident_own, file->resident_count * 8));
}

/* The file of a stopped recorder has what the recorder has. */
static inline void
assert_same_as_file(ep_recorder *recorder, const char *path)
{
    loaded l = load(path);
    ep_decoded memory = ep_model_decode(recorder);
    ck_assert_uint_eq(l.facts.note_count, 0);
    ck_assert_int_eq(l.facts.phase, EP_FILE_FINISHED);
    ck_assert_int_eq(l.recording.full_reason, recorder->full_reason);
    ck_assert(!l.recording.unfinished);
    assert_same(&l.decoded, &memory);
    ep_decoded_clear(&memory);
    clear(&l);
}

/* Files of recorders with a limit of 1, 1 + step .. most chunks are what is in memory. */
static inline void
assert_each_policy_is_on_file(uint64_t most, uint64_t step)
{
    uint64_t random = 1;
    for (int policy = EP_ON_FULL_OVERWRITE; policy <= EP_ON_FULL_GROW; policy++) {
        for (uint64_t chunks = 1; chunks <= most; chunks += step) {
            const char *path = new_path();
            ep_recorder recorder;
            emit(&random, 100);
            start(&recorder, path, chunks, (ep_on_full)policy);
            emit(&random, ep_model_work(500000));
            ep_model_stop(&recorder);
            emit(&random, 100);

            assert_same_as_file(&recorder, path);

            ep_recorder_clear(&recorder);
            unlink(path);
        }
    }
}

/* ---- The file is the trace ------------------------------------------------------------------- */

typedef struct work {
    uint64_t random;
    size_t count;
} work;

static inline void *
do_work(void *argument)
{
    work *w = argument;
    emit(&w->random, w->count);
    return NULL;
}

/* `threads` at once, `rounds` times: later ones go on in the chunks of the dead. */
static inline void
emit_on_threads(uint64_t seed, int threads, int rounds, size_t count)
{
    for (int round = 0; round < rounds; round++) {
        work w[8];
        pthread_t ids[8];
        for (int i = 0; i < threads; i++) {
            w[i] = (work){.random = seed + (uint64_t)(round * 100 + i), .count = count};
            ids[i] = ep_model_spawn(do_work, &w[i]);
        }
        for (int i = 0; i < threads; i++) {
            ep_model_join(ids[i]);
        }
    }
}

/* Where every access is checked, a ring may be too fast for its reader, who says so. */
static inline bool
was_outrun(const loaded *l)
{
    return l->facts.note_count == 1 && strstr(l->facts.notes[0], "faster than this") != NULL;
}

#endif
