/* The log file: what it holds is what its recorder has, at every instant, whatever ends the process
 * and whatever becomes of the bytes. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ahead.h"
#include "ep_model.h"
#include "file_read.h"

#define NAMES 200    /* ids 1 to this many are names and sites that the tests made */
#define KEEP 64

/* ---- Names, events, files -------------------------------------------------------------------- */

static uint32_t
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

static uint32_t
add_site(unsigned number, uint32_t callee)
{
    ep_site site = {.callee = callee, .caller = callee / 2, .offset = 4, .line = (int32_t)number};
    return ep_site_add(0x10000 + 16 * (uintptr_t)number, 8, &site);
}

static void
setup(void)
{
    ep_model_setup();
    ep_ahead_may_sample = false;
    for (unsigned i = 1; i <= NAMES; i++) {
        uint32_t name = add_name(i), site = add_site(i, name);
        ck_assert_uint_ne(name, 0);
        ck_assert_uint_ne(site, 0);
    }
}

/* As programs make them: ids that have a text, no blocks beyond the address space. */
static ep_model_event
next_event(uint64_t *random)
{
    ep_model_event event = ep_model_random_event(random, ep_model_tick());
    event.id %= NAMES + 1;
    if (event.size > INT64_C(1) << 40 && ep_kinds[event.kind].pairing == EP_PAIRING_OPENS) {
        event.size = 12347;
    }
    return event;
}

static void
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

static const char *
new_path(void)
{
    static char path[64];
    static int number;
    snprintf(path, sizeof path, "/tmp/ep_test_file.%d.%d", (int)getpid(), number++);
    (void)unlink(path);
    return path;
}

static ep_file *
create(const char *path)
{
    char child_path[80];
    snprintf(child_path, sizeof child_path, "%s-%%p", path);
    ep_file_options options = {
        .path = path, .child_path = child_path, .metadata = "{}", .metadata_bytes = 2};
    ep_file *file;
    ep_error error = {.text = ""};
    ck_assert_msg(ep_file_create(&options, &file, &error) == EP_OK, "%s", error.text);
    return file;
}

static void
start(ep_recorder *recorder, const char *path, uint64_t chunks, ep_on_full on_full)
{
    ep_recorder_options options = {.kinds = EP_MODEL_ALL_KINDS,
                                   .limit_bytes = chunks * EP_CHUNK_BYTES,
                                   .on_full = on_full,
                                   .clock = EP_CLOCK_INJECTED};
    ep_error error = {.text = ""};
    ep_recorder_init(recorder, &options);
    ep_recorder_set_file(recorder, create(path), 0);
    ck_assert_msg(ep_recorder_start(recorder, &error) == EP_OK, "%s", error.text);
}

typedef struct loaded {
    ep_recording recording;
    ep_decoded decoded;
    ep_file_facts facts;
} loaded;

/* Takes the descriptor over. */
static ep_status
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

static loaded
load(const char *path)
{
    loaded l;
    ck_assert_int_eq(try_load(open(path, O_RDONLY | O_CLOEXEC), &l), EP_OK);
    return l;
}

static void
clear(loaded *l)
{
    ep_decoded_clear(&l->decoded);
    ep_recording_clear(&l->recording);
}

/* A copy of the file as it is now; holes stay holes. Returns: a descriptor. */
static int
snapshot(const char *path)
{
    static char bytes[1 << 16];
    int from = open(path, O_RDONLY | O_CLOEXEC), to = memfd_create("copy", MFD_CLOEXEC);
    ck_assert_int_ge(from, 0);
    ck_assert_int_ge(to, 0);
    ssize_t got;
    off_t at = 0;
    for (; (got = read(from, bytes, sizeof bytes)) > 0; at += got) {
        bool empty = bytes[0] == 0 && memcmp(bytes, bytes + 1, (size_t)got - 1) == 0;
        ck_assert(empty || pwrite(to, bytes, (size_t)got, at) == got);
    }
    ck_assert_int_eq(ftruncate(to, at), 0);
    close(from);
    return to;
}

/* ---- Comparing ------------------------------------------------------------------------------- */

static bool
same_name(uint32_t a, uint32_t b)
{
    const ep_name *x = ep_name_get(a), *y = ep_name_get(b);
    return x->qualname == y->qualname && x->module == y->module && x->file == y->file &&
           x->line == y->line && x->kind == y->kind;
}

static bool
same_site(uint32_t a, uint32_t b)
{
    const ep_site *x = ep_site_get(a), *y = ep_site_get(b);
    return same_name(x->callee, y->callee) && same_name(x->caller, y->caller) &&
           x->offset == y->offset && x->line == y->line;
}

/* Of an empty column there may be no array. */
static bool
same_bytes(const void *a, const void *b, size_t bytes)
{
    return bytes == 0 || memcmp(a, b, bytes) == 0;
}

static void
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

static void
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
        bool closes = info->family == EP_FAMILY_CALL && info->pairing == EP_PAIRING_CLOSES;
        if (!(closes ? same_name : same_site)(a->id[i], b->id[i])) {
            ck_abort_msg("row %zu: id %u in the file, %u in memory", i, a->id[i], b->id[i]);
        }
    }
    ck_assert_int_eq(file->duration_ns, memory->duration_ns);
    ck_assert_uint_eq(file->resident_count, memory->resident_count);
    ck_assert(same_bytes(file->resident_ns, memory->resident_ns, file->resident_count * 8));
    ck_assert(same_bytes(file->resident_bytes, memory->resident_bytes, file->resident_count * 8));
}

/* The file of a stopped recorder has what the recorder has. */
static void
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

/* ---- Sums ------------------------------------------------------------------------------------ */

START_TEST(sums_are_those_of_the_specification)
{
    uint64_t words[9];
    for (uint64_t i = 0; i < 9; i++) {
        words[i] = i * i + 1;
    }

    ck_assert_uint_eq(ep_sum64(words, 0), UINT64_C(0x74E97D414190FB34));
    ck_assert_uint_eq(ep_sum64(words, 8), UINT64_C(0x328DC5A12C5CE3D5));
    ck_assert_uint_eq(ep_sum64(words, 32), UINT64_C(0x3FCC77CBED49607C));
    ck_assert_uint_eq(ep_sum64(words, 72), UINT64_C(0x072C67894C956B6C));
}
END_TEST

/* ---- The file is the trace ------------------------------------------------------------------- */

START_TEST(each_policy_and_size_is_on_file_what_it_is_in_memory)
{
    setup();
    uint64_t random = 1;
    for (int policy = EP_ON_FULL_OVERWRITE; policy <= EP_ON_FULL_GROW; policy++) {
        for (uint64_t chunks = 1; chunks <= 3; chunks++) {
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
END_TEST

START_TEST(a_window_without_events_is_on_file)
{
    setup();
    const char *path = new_path();
    ep_recorder recorder;
    start(&recorder, path, 1, EP_ON_FULL_OVERWRITE);
    ep_model_stop(&recorder);

    assert_same_as_file(&recorder, path);

    ep_recorder_clear(&recorder);
    unlink(path);
}
END_TEST

typedef struct work {
    uint64_t random;
    size_t count;
    pthread_barrier_t *ready;
} work;

static void *
do_work(void *argument)
{
    work *w = argument;
    if (w->ready != NULL) {
        pthread_barrier_wait(w->ready);
    }
    emit(&w->random, w->count);
    return NULL;
}

/* `threads` at once, `rounds` times: later ones go on in the chunks of the dead. */
static void
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

START_TEST(threads_are_on_file_what_they_are_in_memory)
{
    setup();
    uint64_t random = 1;
    for (int policy = EP_ON_FULL_OVERWRITE; policy <= EP_ON_FULL_GROW; policy++) {
        const char *path = new_path();
        ep_recorder recorder;
        start(&recorder, path, 2, (ep_on_full)policy);
        emit(&random, 1000);
        emit_on_threads(7, 4, 4, ep_model_work(60000));
        emit_on_threads(8, 3, 20, 100);
        ep_model_stop(&recorder);

        assert_same_as_file(&recorder, path);

        ep_recorder_clear(&recorder);
        unlink(path);
    }
}
END_TEST

START_TEST(recorders_of_memory_before_after_and_around_share_its_chunks)
{
    setup();
    for (int order = 0; order < 8; order++) {
        const char *path = new_path();
        uint64_t random = (uint64_t)order;
        bool before = order & 1, ends_first = order & 2, ring = order & 4;
        ep_recorder file, memory;
        ep_on_full policy = ring ? EP_ON_FULL_OVERWRITE : EP_ON_FULL_GROW;
        if (before) {
            ep_model_start(&memory, EP_MODEL_ALL_KINDS, 2, EP_ON_FULL_OVERWRITE, EP_CLOCK_INJECTED);
            emit(&random, 30000);
        }
        start(&file, path, 2, policy);
        emit(&random, 200000);
        if (!before) {
            ep_model_start(&memory, EP_MODEL_ALL_KINDS, 2, EP_ON_FULL_OVERWRITE, EP_CLOCK_INJECTED);
        }
        emit_on_threads(random, 3, 2, 40000);
        ep_model_stop(ends_first ? &memory : &file);
        emit(&random, 200000);
        ep_model_stop(ends_first ? &file : &memory);

        assert_same_as_file(&file, path);
        ep_decoded decoded = ep_model_decode(&memory);
        ck_assert_uint_gt(decoded.columns.count, 0);
        ck_assert_uint_eq(decoded.damaged_chunks, 0);

        ep_decoded_clear(&decoded);
        ep_recorder_clear(&memory);
        assert_same_as_file(&file, path);
        ep_recorder_clear(&file);
        unlink(path);
    }
}
END_TEST

START_TEST(the_next_file_begins_where_the_one_before_ends)
{
    setup();
    uint64_t random = 1;
    ep_recorder before;
    const char *path = new_path();
    char path_before[64];
    strcpy(path_before, path);
    start(&before, path, 1, EP_ON_FULL_OVERWRITE);
    emit(&random, 1000);
    ep_model_stop(&before);
    for (int i = 0; i < 5; i++) {
        ep_recorder recorder;
        path = new_path();
        start(&recorder, path, 1, EP_ON_FULL_OVERWRITE);
        emit(&random, i == 3 ? 300000 : 500);
        ep_model_stop(&recorder);

        assert_same_as_file(&recorder, path);
        assert_same_as_file(&before, path_before);

        ep_recorder_clear(&recorder);
        unlink(path);
    }
    ep_recorder_clear(&before);
    unlink(path_before);
}
END_TEST

START_TEST(a_second_file_at_once_is_written_at_its_stop)
{
    setup();
    uint64_t random = 1;
    for (unsigned i = 0; i < 8; i++) {
        ep_recorder first, second;
        char path[64];
        strcpy(path, new_path());
        start(&first, path, 4, EP_ON_FULL_OVERWRITE);
        emit(&random, 1000);
        const char *other = new_path();
        start(&second, other, i & 1 ? 1 : 3, EP_ON_FULL_OVERWRITE);

        emit(&random, i & 2 ? 1000 : 300000);
        ep_model_stop(i & 4 ? &first : &second);
        emit(&random, 1000);
        ep_model_stop(i & 4 ? &second : &first);

        assert_same_as_file(&second, other);
        assert_same_as_file(&first, path);
        ep_recorder_clear(&first);
        ep_recorder_clear(&second);
        unlink(path);
        unlink(other);
    }
}
END_TEST

/* A request that failed may have asked for more than there is. */
START_TEST(a_failed_request_of_any_size_is_no_damage)
{
    setup();
    const char *path = new_path();
    uint64_t random = 1;
    ep_recorder recorder;
    start(&recorder, path, 1, EP_ON_FULL_OVERWRITE);
    emit(&random, 10);
    ep_log_put_block(ep_log_mine(), ep_model_tick(), EP_KIND_REALLOC_FAILED_OBJ, INT64_MAX, 64, 1);
    emit(&random, 10);
    ep_model_stop(&recorder);

    assert_same_as_file(&recorder, path);

    ep_recorder_clear(&recorder);
    unlink(path);
}
END_TEST

/* ---- At every instant ------------------------------------------------------------------------ */

#ifdef EP_FAULT_POINTS
static struct {
    const char *path;
    int copies[KEEP];
    int count;
} moments;

/* Points under the engine's lock: the thread that fills the file's slots ahead comes to others. */
static void
keep_moment(ep_fault_point point)
{
    if (point >= EP_FAULT_ATTACH && point != EP_FAULT_SPILL && point != EP_FAULT_SPILLED &&
        moments.count < KEEP) {
        moments.copies[moments.count++] = snapshot(moments.path);
    }
}

/* Between any two steps of giving up a chunk and taking another the file says the same. */
START_TEST(a_kill_between_any_two_steps_loses_nothing)
{
    setup();
    uint64_t random = 1;
    static const struct {
        ep_on_full on_full;
        uint64_t chunks;
    } cases[] = {{EP_ON_FULL_OVERWRITE, 1}, {EP_ON_FULL_OVERWRITE, 2}, {EP_ON_FULL_GROW, 1}};
    for (size_t i = 0; i < 3; i++) {
        ep_recorder recorder;
        uint64_t emitted = 0;
        int seen = 0;
        moments.path = new_path();
        start(&recorder, moments.path, cases[i].chunks, cases[i].on_full);
        for (int chunk = 0; chunk < 5; chunk++) {
            ep_log *log = ep_log_mine();
            while (log->next < log->end) {
                emit(&random, 1);
                emitted += 1;
            }
            ep_fault_handler = keep_moment;
            emit(&random, 1);
            ep_fault_handler = NULL;
            for (int k = 0; k < moments.count; k++, seen++) {
                loaded l;
                ck_assert_int_eq(try_load(moments.copies[k], &l), EP_OK);
                ck_assert_msg(ep_model_total(&l.decoded) == emitted,
                              "moment %d of chunk %d: %llu of %llu", k,
                              chunk, (unsigned long long)ep_model_total(&l.decoded),
                              (unsigned long long)emitted);
                ck_assert_uint_eq(l.facts.note_count, 0);
                clear(&l);
            }
            moments.count = 0;
            emitted += 1;
        }
        ck_assert_int_gt(seen, 15);
        ep_fault_handler = keep_moment;
        ep_model_stop(&recorder);
        ep_fault_handler = NULL;
        for (int k = 0; k < moments.count; k++) {
            loaded l;
            ck_assert_int_eq(try_load(moments.copies[k], &l), EP_OK);
            ck_assert_uint_eq(ep_model_total(&l.decoded), emitted);
            clear(&l);
        }
        moments.count = 0;
        assert_same_as_file(&recorder, moments.path);
        ep_recorder_clear(&recorder);
        unlink(moments.path);
    }
}
END_TEST
#endif

/* What a program has written, for those who look at its file. */
typedef struct progress {
    _Atomic uint64_t begun, done;    /* events */
} progress;

#define WRITERS 4
static progress *shared;
static _Atomic bool enough;

static void *
write_on(void *argument)
{
    progress *p = argument;
    uint64_t random = (uint64_t)(p - shared) + 1;
    ep_log *log = ep_log_mine();
    while (!atomic_load_explicit(&enough, memory_order_relaxed)) {
        ep_model_event event = next_event(&random);
        atomic_fetch_add_explicit(&p->begun, 1, memory_order_release);
        ep_model_put(log, &event);
        atomic_fetch_add_explicit(&p->done, 1, memory_order_release);
    }
    return NULL;
}

static void
share_progress(void)
{
    shared = mmap(NULL, WRITERS * sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                  -1, 0);
    ck_assert_ptr_ne(shared, MAP_FAILED);
}

static void
read_progress(uint64_t *begun, uint64_t *done)
{
    *begun = *done = 0;
    for (int i = 0; i < WRITERS; i++) {
        *done += atomic_load_explicit(&shared[i].done, memory_order_acquire);
        *begun += atomic_load_explicit(&shared[i].begun, memory_order_acquire);
    }
}

/* A child that records on `writers` threads until it is killed. */
static pid_t
spawn_writers(const char *path, int writers, ep_on_full on_full, uint64_t chunks)
{
    memset(shared, 0, WRITERS * sizeof *shared);
    atomic_store(&enough, false);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        static ep_recorder recorder;
        start(&recorder, path, chunks, on_full);
        for (int i = 1; i < writers; i++) {
            (void)ep_model_spawn(write_on, &shared[i]);
        }
        write_on(&shared[0]);
        _exit(1);
    }
    return child;
}

static void
wait_until_done(uint64_t count)
{
    uint64_t begun, done;
    do {
        sched_yield();
        read_progress(&begun, &done);
    } while (done < count);
}

/* The file of a process that stands still, or is dead. */
static void
assert_all_there(int descriptor)
{
    loaded l;
    uint64_t begun, done;
    read_progress(&begun, &done);
    ck_assert_int_eq(try_load(descriptor, &l), EP_OK);
    ep_model_columns(&l.decoded.columns);
    uint64_t have = ep_model_total(&l.decoded);
    ck_assert_msg(have >= done && have <= begun, "%llu events, of %llu to %llu",
                  (unsigned long long)have, (unsigned long long)done, (unsigned long long)begun);
    ck_assert_msg(l.facts.note_count == 0, "%s", l.facts.notes[0]);
    ck_assert(l.recording.unfinished);
    clear(&l);
}

START_TEST(a_process_that_stands_still_anywhere_has_all_on_file)
{
    setup();
    share_progress();
    static const struct {
        int writers;
        ep_on_full on_full;
        uint64_t chunks;
    } cases[] = {{1, EP_ON_FULL_OVERWRITE, 1}, {4, EP_ON_FULL_OVERWRITE, 6}, {2, EP_ON_FULL_OVERWRITE, 2}};
    for (size_t i = 0; i < 3; i++) {
        const char *path = new_path();
        pid_t child = spawn_writers(path, cases[i].writers, cases[i].on_full, cases[i].chunks);
        uint64_t random = i;
        for (uint64_t look = 1; look <= ep_model_work(40); look++) {
            wait_until_done(look * 5000 + ep_model_below(&random, 5000));
            int status;
            kill(child, SIGSTOP);
            ck_assert_int_eq(waitpid(child, &status, WUNTRACED), child);
            ck_assert(WIFSTOPPED(status));
            assert_all_there(snapshot(path));
            kill(child, SIGCONT);
        }
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        assert_all_there(open(path, O_RDONLY | O_CLOEXEC));
        unlink(path);
    }
}
END_TEST

START_TEST(a_killed_process_has_all_on_file)
{
    setup();
    share_progress();
    uint64_t random = 1;
    for (uint64_t i = 0; i < ep_model_work(40); i++) {
        const char *path = new_path();
        pid_t child = spawn_writers(path, i % 2 ? 1 : WRITERS,
                                    i % 3 ? EP_ON_FULL_OVERWRITE : EP_ON_FULL_GROW, 1 + i % 5);
        wait_until_done(ep_model_below(&random, 400000));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);

        assert_all_there(open(path, O_RDONLY | O_CLOEXEC));

        unlink(path);
    }
}
END_TEST

/* Where every access is checked, a ring may be too fast for its reader, who says so. */
static bool
was_outrun(const loaded *l)
{
    return l->facts.note_count == 1 && strstr(l->facts.notes[0], "faster than this") != NULL;
}

START_TEST(a_file_is_read_while_it_is_written)
{
    setup();
    share_progress();
    for (int policy = 0; policy < 2; policy++) {
        ep_recorder recorder;
        const char *path = new_path();
        pthread_t threads[WRITERS];
        memset(shared, 0, WRITERS * sizeof *shared);
        atomic_store(&enough, false);
        start(&recorder, path, 6, policy ? EP_ON_FULL_GROW : EP_ON_FULL_OVERWRITE);
        for (int i = 0; i < WRITERS; i++) {
            threads[i] = ep_model_spawn(write_on, &shared[i]);
        }
        uint64_t done_by_all = 0;
        for (int look = 0; look < 20 && done_by_all < 1000000; look++) {
            uint64_t begun, before, after;
            read_progress(&begun, &before);
            loaded l = load(path);
            read_progress(&after, &done_by_all);
            ck_assert(l.facts.writer_lives);
            ep_model_columns(&l.decoded.columns);
            uint64_t have = ep_model_total(&l.decoded);
            ck_assert_msg((have >= before || was_outrun(&l)) && have <= after,
                          "%llu events, of %llu to %llu",
                          (unsigned long long)have, (unsigned long long)before,
                          (unsigned long long)after);
            ck_assert_msg(l.facts.note_count == 0 || was_outrun(&l), "%s", l.facts.notes[0]);
            clear(&l);
        }
        atomic_store(&enough, true);
        for (int i = 0; i < WRITERS; i++) {
            ep_model_join(threads[i]);
        }
        ep_model_stop(&recorder);
        assert_same_as_file(&recorder, path);
        ep_recorder_clear(&recorder);
        unlink(path);
    }
}
END_TEST

/* ---- Texts ----------------------------------------------------------------------------------- */

static _Atomic unsigned next_name = 100000;

static void *
meet_new_functions(void *unused)
{
    (void)unused;
    ep_log *log = ep_log_mine();
    while (!atomic_load_explicit(&enough, memory_order_relaxed)) {
        unsigned number = atomic_fetch_add(&next_name, 1);
        if (number > 103000) {
            number = 100000 + number % 3000;    /* enough of new ones */
        }
        uint32_t name = add_name(number), site = add_site(number, name);
        for (int i = 0; i < 20; i++) {
            ep_log_put(log, ep_model_tick(), EP_KIND_CALL, site);
            ep_log_put(log, ep_model_tick(), EP_KIND_RETURN, name);
        }
    }
    return NULL;
}

START_TEST(texts_are_on_file_before_the_records_that_refer_to_them)
{
    setup();
    pthread_t threads[3];
    atomic_store(&enough, false);
    for (int i = 0; i < 3; i++) {
        threads[i] = ep_model_spawn(meet_new_functions, NULL);
    }
    for (int round = 0; round < 3; round++) {
        ep_recorder recorder;
        const char *path = new_path();
        start(&recorder, path, 4, EP_ON_FULL_OVERWRITE);
        for (int look = 0; look < 3; look++) {
            loaded l = load(path);
            ck_assert_msg(l.facts.note_count == 0 || was_outrun(&l), "%s", l.facts.notes[0]);
            for (size_t row = 0; row < l.decoded.columns.count; row++) {
                ck_assert_uint_ne(l.decoded.columns.id[row], 0);
            }
            clear(&l);
        }
        ep_model_stop(&recorder);
        ep_recorder_clear(&recorder);
        unlink(path);
    }
    atomic_store(&enough, true);
    for (int i = 0; i < 3; i++) {
        ep_model_join(threads[i]);
    }
}
END_TEST

START_TEST(a_thread_that_is_named_late_has_its_name_on_file)
{
    setup();
    const char *path = new_path();
    uint64_t random = 1;
    ep_recorder recorder;
    start(&recorder, path, 1, EP_ON_FULL_OVERWRITE);
    emit(&random, 10);
    ep_thread_set_name(ep_log_mine()->thread, (ep_text){"late", 4});

    loaded l = load(path);

    ck_assert_str_eq(l.decoded.threads[0].thread->name, "late");
    clear(&l);
    ep_model_stop(&recorder);
    ep_recorder_clear(&recorder);
    unlink(path);
}
END_TEST

START_TEST(text_that_is_none_is_mended)
{
    setup();
    static char bytes[] = "a\xC3\xA9\xED\xA0\x80\xFFz\xC0\x80\xE2\x82";
    static const char mended[] = "a\xC3\xA9\xED\xA0\x80?z????";
    const char *path = new_path();
    ep_recorder recorder;
    start(&recorder, path, 1, EP_ON_FULL_OVERWRITE);
    ep_name_text name = {.qualname = {bytes, sizeof bytes - 1}, .line = 12347};
    uint32_t id = ep_name_add(0x7770, 0, &name, NULL, NULL);
    ep_log_put(ep_log_mine(), ep_model_tick(), EP_KIND_RETURN, id);
    ep_model_stop(&recorder);

    loaded l = load(path);

    ep_text text = ep_string_get(ep_name_get(l.decoded.columns.id[0])->qualname);
    ck_assert_uint_eq(text.bytes, sizeof mended - 1);
    ck_assert_mem_eq(text.at, mended, text.bytes);
    clear(&l);
    ep_recorder_clear(&recorder);
    unlink(path);
}
END_TEST

/* ---- Damage ---------------------------------------------------------------------------------- */

/* A file of one ring and some threads, in memory. Returns: a descriptor. */
static int
some_file(bool finished, uint64_t *events)
{
    const char *path = new_path();
    uint64_t random = 1;
    ep_recorder recorder;
    start(&recorder, path, 2, EP_ON_FULL_OVERWRITE);
    emit(&random, 200000);
    emit_on_threads(3, 2, 3, 1000);
    emit(&random, 1000);
    int copy = finished ? -1 : snapshot(path);
    ep_model_stop(&recorder);
    copy = finished ? snapshot(path) : copy;
    loaded l = load(path);
    *events = ep_model_total(&l.decoded);
    clear(&l);
    ep_recorder_clear(&recorder);
    unlink(path);
    return copy;
}

/* Opens, or is refused with a reason; never more events than there were. */
static void
assert_survived(int copy, uint64_t events)
{
    loaded l;
    ep_status status = try_load(dup(copy), &l);
    ck_assert(status == EP_OK || status == EP_FORMAT);
    if (status == EP_OK) {
        ep_model_columns(&l.decoded.columns);
        ck_assert_uint_le(l.decoded.columns.count, events);
        clear(&l);
    }
}

static uint64_t
size_of(int descriptor)
{
    struct stat stat;
    ck_assert_int_eq(fstat(descriptor, &stat), 0);
    return (uint64_t)stat.st_size;
}

static int
copy_of(int descriptor)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    return snapshot(path);
}

static ep_file_header
header_of(int descriptor)
{
    ep_file_header header;
    ck_assert_int_eq(pread(descriptor, &header, sizeof header, 0), sizeof header);
    return header;
}

START_TEST(a_cut_file_opens_as_far_as_it_is_whole)
{
    setup();
    for (int finished = 0; finished < 2; finished++) {
        uint64_t events, random = 1, size;
        int copy = some_file(finished, &events);
        size = size_of(copy);
        uint64_t last = UINT64_MAX;
        const uint64_t step = 64 * EP_CHUNK_BYTES_MIN;
        for (uint64_t steps = (size + step - 1) / step; steps-- > 0;) {
            uint64_t length = (steps + 1) * step < size ? (steps + 1) * step : size;
            ck_assert_int_eq(ftruncate(copy, (off_t)length), 0);
            loaded l;
            ck_assert_int_eq(try_load(dup(copy), &l), EP_OK);
            ck_assert_uint_le(ep_model_total(&l.decoded), last);
            ck_assert_uint_eq(l.facts.note_count > 0, length < size);
            last = ep_model_total(&l.decoded);
            clear(&l);
            for (int i = 0; i < 10; i++) {
                uint64_t at = steps * step + ep_model_below(&random, length - steps * step);
                ck_assert_int_eq(ftruncate(copy, (off_t)at), 0);
                assert_survived(copy, events);
            }
        }
        for (size_t at = 0; at <= sizeof(ep_file_header); at += 8) {
            ck_assert_int_eq(ftruncate(copy, (off_t)(sizeof(ep_file_header) - at)), 0);
            loaded l;
            ck_assert_int_eq(try_load(dup(copy), &l), at == 0 ? EP_OK : EP_FORMAT);
            if (at == 0) {
                clear(&l);
            }
        }
        close(copy);
    }
}
END_TEST

START_TEST(pages_that_were_lost_are_missing_and_said_so)
{
    setup();
    uint64_t events, random = 1;
    int copy = some_file(true, &events);
    uint64_t size = size_of(copy);
    for (int i = 0; i < 60; i++) {
        int holed = copy_of(copy);
        off_t at = (off_t)(ep_model_below(&random, size / 4096 - 1) * 4096 + 4096);
        ck_assert_int_eq(fallocate(holed, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, 4096), 0);
        assert_survived(holed, events);
        close(holed);
    }
    close(copy);
}
END_TEST

START_TEST(bytes_that_were_changed_never_crash_the_reader)
{
    setup();
    uint64_t events, random = 1;
    for (int finished = 0; finished < 2; finished++) {
        int copy = some_file(finished, &events);
        uint64_t size = size_of(copy);
        for (uint64_t i = 0; i < ep_model_work(300); i++) {
            /* Mostly where the structure is: headers, first records, states. */
            uint64_t slot = ep_model_below(&random, size / EP_CHUNK_BYTES_MIN) * EP_CHUNK_BYTES_MIN;
            uint64_t at = ep_model_below(&random, 2) ? ep_model_below(&random, size)
                          : ep_model_below(&random, 4) == 0
                              ? header_of(copy).state_offset[0] + ep_model_below(&random, 2000)
                              : slot + ep_model_below(&random, 500);
            uint8_t before, after = (uint8_t)ep_model_random(&random);
            ck_assert_int_eq(pread(copy, &before, 1, (off_t)at), 1);
            ck_assert_int_eq(pwrite(copy, &after, 1, (off_t)at), 1);
            loaded l;
            ep_status status = try_load(dup(copy), &l);
            ck_assert(status == EP_OK || status == EP_FORMAT);
            if (status == EP_OK) {
                ep_model_columns(&l.decoded.columns);
                clear(&l);
            }
            ck_assert_int_eq(pwrite(copy, &before, 1, (off_t)at), 1);
        }
        close(copy);
    }
}
END_TEST

START_TEST(changed_records_of_a_sealed_chunk_are_told)
{
    setup();
    uint64_t events;
    int copy = some_file(true, &events);
    ep_chunk_header header;
    off_t slot = (off_t)header_of(copy).head_bytes;
    do {
        ck_assert_int_eq(pread(copy, &header, sizeof header, slot), sizeof header);
        slot += header.bytes;
    } while (header.magic != EP_CHUNK_MAGIC || atomic_load(&header.state) != EP_CHUNK_SEALED ||
             header.used_words < 1000);
    uint64_t word;
    slot += -(off_t)header.bytes + EP_CHUNK_HEADER_BYTES + 80 * 8;
    ck_assert_int_eq(pread(copy, &word, 8, slot), 8);
    word ^= 1;
    ck_assert_int_eq(pwrite(copy, &word, 8, slot), 8);

    loaded l;
    ck_assert_int_eq(try_load(copy, &l), EP_OK);

    ck_assert_uint_ge(l.facts.note_count, 1);
    ck_assert_ptr_nonnull(strstr(l.facts.notes[0], "offset"));
    ck_assert_uint_ge(l.decoded.damaged_chunks, 1);
    clear(&l);
}
END_TEST

START_TEST(what_is_no_log_is_refused)
{
    setup();
    static const char *const bytes[] = {"", "EVP", "EVPLOG\x1a\n", "not a log file at all",
                                        "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"};
    for (size_t i = 0; i < 5; i++) {
        int fd = memfd_create("no", MFD_CLOEXEC);
        loaded l;
        ck_assert_int_eq(pwrite(fd, bytes[i], strlen(bytes[i]), 0), (ssize_t)strlen(bytes[i]));
        ck_assert_int_eq(try_load(fd, &l), EP_FORMAT);
    }
}
END_TEST

START_TEST(all_ones_and_random_bytes_are_survived)
{
    setup();
    uint64_t events, random = 1, block[512];
    int copy = some_file(true, &events);
    uint64_t size = size_of(copy);
    for (int ones = 0; ones < 2; ones++) {
        for (uint64_t from = 0; from < size; from += EP_CHUNK_BYTES / 2) {
            int fd = copy_of(copy);
            for (int i = 0; i < 8; i++) {
                for (size_t k = 0; k < 512; k++) {
                    block[k] = ones ? UINT64_MAX : ep_model_random(&random);
                }
                ck_assert_int_eq(pwrite(fd, block, 4096, (off_t)(from + (uint64_t)i * 4096)), 4096);
            }
            loaded l;
            if (try_load(fd, &l) == EP_OK) {
                ep_model_columns(&l.decoded.columns);
                clear(&l);
            }
        }
    }
    close(copy);
}
END_TEST

/* Writes a header with one change into a copy and loads it. */
#define LOAD_WITH(copy, field, value, out)                                          \
    ({                                                                              \
        int fd_ = copy_of(copy);                                                    \
        ep_file_header header_;                                                     \
        ck_assert_int_eq(pread(fd_, &header_, sizeof header_, 0), sizeof header_);  \
        header_.field = (value);                                                    \
        ck_assert_int_eq(pwrite(fd_, &header_, sizeof header_, 0), sizeof header_); \
        try_load(fd_, (out));                                                       \
    })

START_TEST(versions_and_sizes_that_lie)
{
    setup();
    uint64_t events;
    int copy = some_file(true, &events);
    loaded l;
    ck_assert_int_eq(LOAD_WITH(copy, major, EP_FILE_MAJOR + 1, &l), EP_FORMAT);
    ck_assert_int_eq(LOAD_WITH(copy, byte_order, 0x04030201, &l), EP_FORMAT);
    ck_assert_int_eq(LOAD_WITH(copy, header_bytes, 8, &l), EP_FORMAT);
    ck_assert_int_eq(LOAD_WITH(copy, slot_bytes, 4097, &l), EP_FORMAT);
    ck_assert_int_eq(LOAD_WITH(copy, metadata_bytes, UINT64_MAX, &l), EP_FORMAT);
    ck_assert_int_eq(LOAD_WITH(copy, phase, 77, &l), EP_FORMAT);
    ck_assert_int_eq(LOAD_WITH(copy, start.monotonic_ns, -1, &l), EP_FORMAT);
    ck_assert_int_eq(LOAD_WITH(copy, start.ticks, UINT64_MAX, &l), EP_FORMAT);
    ck_assert_int_eq(LOAD_WITH(copy, stop.ticks, 0, &l), EP_FORMAT);

    ck_assert_int_eq(LOAD_WITH(copy, minor, EP_FILE_MINOR + 7, &l), EP_OK);
    ck_assert_uint_eq(l.facts.minor, EP_FILE_MINOR + 7);
    ck_assert_uint_eq(ep_model_total(&l.decoded), events);
    clear(&l);
    ck_assert_int_eq(LOAD_WITH(copy, header_bytes, sizeof(ep_file_header) + 64, &l), EP_OK);
    ck_assert_uint_eq(ep_model_total(&l.decoded), events);
    clear(&l);
    close(copy);
}
END_TEST

START_TEST(the_refusal_of_a_newer_version_names_it)
{
    setup();
    uint64_t events;
    int copy = some_file(true, &events);
    uint16_t major = 77;
    ck_assert_int_eq(pwrite(copy, &major, 2, offsetof(ep_file_header, major)), 2);
    ep_file_reader *reader;
    ep_error error = {.text = ""};

    ck_assert_int_eq(ep_file_open(copy, &reader, &error), EP_FORMAT);

    ck_assert_ptr_nonnull(strstr(error.text, "version 77."));
}
END_TEST

/* A petabyte of nothing is no work, and no memory. */
START_TEST(a_file_that_claims_a_size_takes_neither_time_nor_memory)
{
    setup();
    uint64_t events;
    int copy = some_file(true, &events);
    ck_assert_int_eq(ftruncate(copy, (off_t)1 << 50), 0);
    loaded l;

    ck_assert_int_eq(try_load(copy, &l), EP_OK);

    ck_assert_uint_eq(ep_model_total(&l.decoded), events);
    clear(&l);
}
END_TEST

START_TEST(a_thread_only_the_header_or_the_state_knows)
{
    setup();
    uint64_t events;
    int copy = some_file(true, &events);
    loaded l;
    ck_assert_int_eq(LOAD_WITH(copy, only_thread, 12347, &l), EP_OK);
    ck_assert_uint_eq(l.decoded.columns.count, 0);
    clear(&l);
    /* Two threads, the second of which claims more than there is. */
    struct {
        ep_file_state state;
        ep_file_thread_state head[2];
        uint64_t more[8];
    } body = {.head = {{.thread_id = 12348}, {.thread_id = 12349, .count_count = 99}}};
    body.state = (ep_file_state){.dropped_sequence = UINT64_MAX,
                                 .thread_count = 2,
                                 .bytes = 96,
                                 .sum = ep_sum64(body.head, 96)};
    for (uint64_t which = 0; which < 2; which++) {
        off_t offset = (off_t)header_of(copy).state_offset[which];
        ck_assert_int_eq(pwrite(copy, &body, sizeof body, offset), sizeof body);
    }
    ck_assert_int_eq(try_load(copy, &l), EP_OK);
    ck_assert_uint_ge(l.facts.note_count, 1);
    clear(&l);
}
END_TEST

/* ---- Failure --------------------------------------------------------------------------------- */

#ifdef EP_FAULT_POINTS
/* Each request for memory or room fails once: the start fails and leaves nothing, or the recorder
 * goes on, and its file says as much as it does. */
START_TEST(what_fails_on_the_writing_side_fails_cleanly)
{
    setup();
    int failed_starts = 0, full = 0;
    for (long nth = 0; nth < 60; nth++) {
        uint64_t random = 1;
        const char *path = new_path();
        char child_path[80];
        snprintf(child_path, sizeof child_path, "%s-%%p", path);
        ep_file_options file_options = {
            .path = path, .child_path = child_path, .metadata = "{}", .metadata_bytes = 2};
        ep_recorder_options options = {.kinds = EP_MODEL_ALL_KINDS,
                                       .limit_bytes = 2 * EP_CHUNK_BYTES,
                                       .on_full = nth % 2 ? EP_ON_FULL_OVERWRITE : EP_ON_FULL_GROW,
                                       .clock = EP_CLOCK_INJECTED};
        ep_recorder recorder;
        ep_file *file;
        ep_recorder_init(&recorder, &options);
        atomic_store(&ep_fault_countdown, nth);
        ep_status status = ep_file_create(&file_options, &file, NULL);
        if (status != EP_OK) {
            atomic_store(&ep_fault_countdown, -1);
            ck_assert_int_eq(access(path, F_OK), -1);
            failed_starts += 1;
            continue;
        }
        ep_recorder_set_file(&recorder, file, 0);
        status = ep_recorder_start(&recorder, NULL);
        if (status == EP_OK) {
            emit(&random, 150000);
            emit_on_threads(1, 2, 1, 1000);
        }
        atomic_store(&ep_fault_countdown, -1);
        if (status == EP_OK) {
            emit(&random, 150000);
            ep_model_stop(&recorder);
            full += recorder.full_reason == EP_FULL_DISK;
            loaded l = load(path);
            ep_decoded memory = ep_model_decode(&recorder);
            if (l.facts.texts_lost == 0) {
                assert_same(&l.decoded, &memory);
            } else {
                assert_same_threads(&l.decoded, &memory);
            }
            ep_decoded_clear(&memory);
            clear(&l);
        } else {
            failed_starts += 1;
        }
        ep_recorder_clear(&recorder);
        unlink(path);
    }
    ck_assert_int_gt(failed_starts, 3);
    ck_assert_int_gt(full, 0);
}
END_TEST

START_TEST(a_disk_that_stays_full_is_said_so)
{
    setup();
    for (int policy = EP_ON_FULL_OVERWRITE; policy <= EP_ON_FULL_GROW; policy++) {
        uint64_t random = 1;
        const char *path = new_path();
        ep_recorder recorder;
        start(&recorder, path, 9, (ep_on_full)policy);
        emit(&random, 1000);
        struct rlimit limit, before;
        ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
        limit = (struct rlimit){6 << 20, before.rlim_max};
        signal(SIGXFSZ, SIG_IGN);
        ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
        emit(&random, 800000);
        ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
        loaded killed = load(path);
        ep_model_stop(&recorder);

        bool ring = policy == EP_ON_FULL_OVERWRITE;
        ck_assert_int_eq(recorder.full_reason, ring ? EP_FULL_NOT : EP_FULL_DISK);
        assert_same_as_file(&recorder, path);
        ck_assert_int_eq(killed.recording.full_reason, recorder.full_reason);
        loaded l = load(path);
        ck_assert_uint_eq(ep_model_total(&l.decoded), 801000);
        /* Full, the file of a killed program does not know what was lost since a chunk was sealed. */
        ck_assert_uint_le(ep_model_total(&killed.decoded), 801000);
        ck_assert_uint_ge(ep_model_total(&killed.decoded), ring ? 801000 : killed.decoded.columns.count);
        clear(&l);
        clear(&killed);
        ep_recorder_clear(&recorder);
        unlink(path);
    }
}
END_TEST

START_TEST(what_fails_on_the_reading_side_fails_cleanly)
{
    setup();
    uint64_t events;
    int copy = some_file(true, &events);
    bool reached = true;
    for (long nth = 0; reached && nth < 500; nth++) {
        loaded l;
        int fd = dup(copy);
        atomic_store(&ep_fault_countdown, nth);
        ep_status status = try_load(fd, &l);
        reached = atomic_load(&ep_fault_countdown) < 0;
        atomic_store(&ep_fault_countdown, -1);
        ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
        if (status == EP_OK) {
            ck_assert_uint_le(l.decoded.columns.count, events);
            clear(&l);
        } else {
            ck_assert_int_eq(status, EP_NOMEM);
        }
    }
    ck_assert(!reached);
    close(copy);
}
END_TEST
#endif

/* ---- fork ------------------------------------------------------------------------------------ */

static char forked_path[80];

static const char *
path_of_child(const char *path, pid_t child)
{
    snprintf(forked_path, sizeof forked_path, "%s-%d", path, (int)child);
    return forked_path;
}

static void
assert_child_did_well(pid_t child)
{
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", status);
}

/* But for slots that are empty, which the helper thread adds when it comes to it, and their number. */
static uint64_t
sum_of(int descriptor)
{
    static char bytes[EP_CHUNK_BYTES_MIN];
    uint64_t sum = 0;
    for (off_t at = 0; pread(descriptor, bytes, sizeof bytes, at) == sizeof bytes;
         at += (off_t)sizeof bytes) {
        if (at == 0) {
            memset(bytes + offsetof(ep_file_header, slots), 0, sizeof(uint64_t));
        }
        bool empty = bytes[0] == 0 && memcmp(bytes, bytes + 1, sizeof bytes - 1) == 0;
        sum = empty ? sum : sum * 31 + ep_sum64(bytes, sizeof bytes);
    }
    close(descriptor);
    return sum;
}

START_TEST(a_forked_child_has_its_own_events_on_its_own_file)
{
    setup();
    uint64_t random = 1;
    ep_recorder recorder, memory, done;
    const char *path = new_path();
    /* Chunks of the file that recorders of memory have as well: the child gives them up. */
    start(&recorder, path, 3, EP_ON_FULL_OVERWRITE);
    ep_model_start(&done, EP_MODEL_ALL_KINDS, 3, EP_ON_FULL_GROW, EP_CLOCK_INJECTED);
    ep_model_start(&memory, EP_MODEL_ALL_KINDS, 3, EP_ON_FULL_GROW, EP_CLOCK_INJECTED);
    emit(&random, 300000);
    ep_model_stop(&done);
    ep_capture capture;
    ck_assert_int_eq(ep_capture_take(&memory, &capture, NULL), EP_OK);
    ep_ahead_stop();    /* it adds slots to the file for a while yet */
    uint64_t before = sum_of(snapshot(path));

    pid_t child = fork();
    if (child == 0) {
        ep_capture_clear(&capture);
        ep_recorder_clear(&done);
        emit(&random, 777);
        emit_on_threads(1, 2, 2, 1000);
        emit(&random, 400000);
        loaded l = load(path_of_child(path, getpid()));
        ck_assert(l.facts.writer_lives);
        ck_assert_uint_eq(ep_model_total(&l.decoded), 777 + 4000 + 400000);
        clear(&l);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            emit(&random, 55);
            _exit(0);    /* not stopped */
        }
        assert_child_did_well(grandchild);
        l = load(path_of_child(path, grandchild));
        ck_assert_uint_eq(ep_model_total(&l.decoded), 55);
        ck_assert(l.recording.unfinished && !l.facts.writer_lives);
        ck_assert_uint_eq(l.facts.parent_process_id, (uint64_t)getpid());
        clear(&l);
        unlink(forked_path);
        ep_model_stop(&recorder);
        assert_same_as_file(&recorder, path_of_child(path, getpid()));
        ep_recorder_clear(&recorder);
        ep_recorder_clear(&memory);
        emit(&random, 10);
        unlink(forked_path);
        _exit(0);
    }
    assert_child_did_well(child);

    ck_assert_uint_eq(sum_of(snapshot(path)), before);
    emit(&random, 1000);
    ep_model_stop(&recorder);
    assert_same_as_file(&recorder, path);
    loaded l = load(path);
    ck_assert_uint_eq(ep_model_total(&l.decoded), 301000);
    clear(&l);
    ep_capture_clear(&capture);
    ep_recorder_clear(&memory);
    ep_recorder_clear(&done);
    ep_recorder_clear(&recorder);
    unlink(path);
}
END_TEST

/* What gives up a chunk of the parent's before the child's own file is made. */
START_TEST(a_child_that_only_frees_leaves_the_parents_file_alone)
{
    setup();
    uint64_t random = 1;
    ep_recorder recorder, done;
    const char *path = new_path();
    start(&recorder, path, 9, EP_ON_FULL_GROW);
    ep_model_start(&done, EP_MODEL_ALL_KINDS, 9, EP_ON_FULL_GROW, EP_CLOCK_INJECTED);
    emit(&random, 400000);
    ep_model_stop(&done);
    ep_ahead_stop();    /* it adds slots to the file for a while yet */
    uint64_t before = sum_of(snapshot(path));

    pid_t child = fork();
    if (child == 0) {
        ep_recorder_clear(&done);
        emit(&random, 300000);
        ep_recorder_clear(&recorder);
        unlink(path_of_child(path, getpid()));
        _exit(0);
    }
    assert_child_did_well(child);

    ck_assert_uint_eq(sum_of(snapshot(path)), before);
    ep_recorder_clear(&done);
    ep_model_stop(&recorder);
    assert_same_as_file(&recorder, path);
    ep_recorder_clear(&recorder);
    unlink(path);
}
END_TEST

START_TEST(a_child_without_events_has_no_file)
{
    setup();
    uint64_t random = 1;
    ep_recorder recorder;
    const char *path = new_path();
    start(&recorder, path, 1, EP_ON_FULL_OVERWRITE);
    emit(&random, 10);

    pid_t child = fork();
    if (child == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    assert_child_did_well(child);

    ck_assert_int_eq(access(path_of_child(path, child), F_OK), -1);
    ep_recorder_clear(&recorder);
    unlink(path);
}
END_TEST

START_TEST(a_child_that_stops_has_an_empty_file)
{
    setup();
    uint64_t random = 1;
    ep_recorder recorder;
    const char *path = new_path();
    start(&recorder, path, 1, EP_ON_FULL_OVERWRITE);
    emit(&random, 10);

    pid_t child = fork();
    if (child == 0) {
        ep_model_stop(&recorder);
        assert_same_as_file(&recorder, path_of_child(path, getpid()));
        _exit(0);
    }
    assert_child_did_well(child);

    loaded l = load(path_of_child(path, child));
    ck_assert_uint_eq(ep_model_total(&l.decoded), 0);
    clear(&l);
    unlink(forked_path);
    ep_recorder_clear(&recorder);
    unlink(path);
}
END_TEST

START_TEST(a_file_that_is_finished_survives_a_fork)
{
    setup();
    uint64_t random = 1;
    ep_recorder recorder;
    const char *path = new_path();
    start(&recorder, path, 2, EP_ON_FULL_OVERWRITE);
    emit(&random, 300000);
    ep_model_stop(&recorder);
    ep_ahead_stop();    /* it adds slots to the file for a while yet */
    uint64_t before = sum_of(snapshot(path));

    pid_t child = fork();
    if (child == 0) {
        ep_decoded decoded = ep_model_decode(&recorder);
        ck_assert_uint_eq(ep_model_total(&decoded), 300000);
        ep_decoded_clear(&decoded);
        emit(&random, 300000);
        ep_recorder_clear(&recorder);
        emit(&random, 300000);
        _exit(0);
    }
    assert_child_did_well(child);

    ck_assert_uint_eq(sum_of(snapshot(path)), before);
    assert_same_as_file(&recorder, path);
    ep_recorder_clear(&recorder);
    unlink(path);
}
END_TEST

static void *
fork_and_emit(void *argument)
{
    pid_t child = fork();
    if (child == 0) {
        uint64_t random = 5;
        emit(&random, 12347);
        loaded l = load(path_of_child(argument, getpid()));
        ck_assert_uint_eq(ep_model_total(&l.decoded), 12347);
        clear(&l);
        unlink(forked_path);
        _exit(0);
    }
    assert_child_did_well(child);
    return NULL;
}

START_TEST(a_fork_from_a_thread_while_others_write)
{
    setup();
    share_progress();
    ep_recorder recorder;
    const char *path = new_path();
    pthread_t threads[2];
    memset(shared, 0, WRITERS * sizeof *shared);
    atomic_store(&enough, false);
    start(&recorder, path, 2, EP_ON_FULL_OVERWRITE);
    for (int i = 0; i < 2; i++) {
        threads[i] = ep_model_spawn(write_on, &shared[i]);
    }
    for (int i = 0; i < 10; i++) {
        ep_model_join(ep_model_spawn(fork_and_emit, (void *)(uintptr_t)path));
    }
    atomic_store(&enough, true);
    for (int i = 0; i < 2; i++) {
        ep_model_join(threads[i]);
    }
    ep_model_stop(&recorder);
    uint64_t begun, done;
    read_progress(&begun, &done);
    loaded l = load(path);
    ck_assert_uint_eq(ep_model_total(&l.decoded), done);
    clear(&l);
    assert_same_as_file(&recorder, path);
    ep_recorder_clear(&recorder);
    unlink(path);
}
END_TEST

/* ---- Whether more may come ------------------------------------------------------------------- */

START_TEST(the_writer_lives_as_long_as_it_does)
{
    setup();
    share_progress();
    const char *path = new_path();
    pid_t child = spawn_writers(path, 2, EP_ON_FULL_OVERWRITE, 2);
    wait_until_done(1000);
    loaded l = load(path);
    ck_assert(l.facts.writer_lives);
    clear(&l);

    kill(child, SIGKILL);
    waitpid(child, NULL, 0);

    l = load(path);
    ck_assert(!l.facts.writer_lives);
    clear(&l);
    unlink(path);
}
END_TEST

START_TEST(a_child_that_outlives_it_is_not_the_writer)
{
    setup();
    const char *path = new_path();
    int pipes[2];
    ck_assert_int_eq(pipe(pipes), 0);
    pid_t writer = fork();
    if (writer == 0) {
        static ep_recorder recorder;
        uint64_t random = 1;
        start(&recorder, path, 2, EP_ON_FULL_OVERWRITE);
        emit(&random, 1000);
        if (fork() == 0) {
            char byte;
            close(pipes[1]);
            (void)!read(pipes[0], &byte, 1);    /* until the test is done */
            _exit(0);
        }
        _exit(0);
    }
    assert_child_did_well(writer);

    bool lives;
    do {
        /* The child closes what it inherited as soon as it runs. */
        loaded l = load(path);
        lives = l.facts.writer_lives;
        ck_assert_uint_eq(ep_model_total(&l.decoded), 1000);
        clear(&l);
    } while (lives);

    close(pipes[0]);
    close(pipes[1]);
    unlink(path);
}
END_TEST

START_TEST(descriptors_are_closed)
{
    setup();
    uint64_t random = 1;
    int before = dup(0), after;
    close(before);
    for (int i = 0; i < 3; i++) {
        ep_recorder recorder;
        const char *path = new_path();
        start(&recorder, path, 2, EP_ON_FULL_OVERWRITE);
        ck_assert_int_eq(fcntl(before, F_GETFD), FD_CLOEXEC);
        ck_assert_int_eq(fcntl(before + 1, F_GETFD), FD_CLOEXEC);
        emit(&random, 300000);
        ep_model_stop(&recorder);
        after = dup(0);
        close(after);
        ck_assert_int_eq(after, before);
        assert_same_as_file(&recorder, path);
        ep_recorder_clear(&recorder);
        unlink(path);
    }
    after = dup(0);
    ck_assert_int_eq(after, before);
}
END_TEST

/* clang-format off */
EP_TEST_MAIN("file",
#ifdef EP_FAULT_POINTS
             a_kill_between_any_two_steps_loses_nothing,
             what_fails_on_the_writing_side_fails_cleanly,
             a_disk_that_stays_full_is_said_so,
             what_fails_on_the_reading_side_fails_cleanly,
#endif
             sums_are_those_of_the_specification,
             each_policy_and_size_is_on_file_what_it_is_in_memory,
             a_window_without_events_is_on_file,
             threads_are_on_file_what_they_are_in_memory,
             recorders_of_memory_before_after_and_around_share_its_chunks,
             the_next_file_begins_where_the_one_before_ends,
             a_second_file_at_once_is_written_at_its_stop,
             a_failed_request_of_any_size_is_no_damage,
             a_process_that_stands_still_anywhere_has_all_on_file,
             a_killed_process_has_all_on_file,
             a_file_is_read_while_it_is_written,
             texts_are_on_file_before_the_records_that_refer_to_them,
             a_thread_that_is_named_late_has_its_name_on_file,
             text_that_is_none_is_mended,
             a_cut_file_opens_as_far_as_it_is_whole,
             pages_that_were_lost_are_missing_and_said_so,
             bytes_that_were_changed_never_crash_the_reader,
             changed_records_of_a_sealed_chunk_are_told,
             what_is_no_log_is_refused,
             all_ones_and_random_bytes_are_survived,
             versions_and_sizes_that_lie,
             the_refusal_of_a_newer_version_names_it,
             a_file_that_claims_a_size_takes_neither_time_nor_memory,
             a_thread_only_the_header_or_the_state_knows,
             a_forked_child_has_its_own_events_on_its_own_file,
             a_child_that_only_frees_leaves_the_parents_file_alone,
             a_child_without_events_has_no_file,
             a_child_that_stops_has_an_empty_file,
             a_file_that_is_finished_survives_a_fork,
             a_fork_from_a_thread_while_others_write,
             the_writer_lives_as_long_as_it_does,
             a_child_that_outlives_it_is_not_the_writer,
             descriptors_are_closed)
/* clang-format on */
