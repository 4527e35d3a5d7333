/* Log files: kills at every instant, forks, and who still writes. */
#include "ep_files.h"

/* What a program has written, for those who look at its file. */
typedef struct progress {
    _Atomic uint64_t begun, done;    /* events */
} progress;

#define WRITERS 4
static progress *shared;
static _Atomic bool enough;

#ifdef EP_FAULT_POINTS

/* ---- At every instant ------------------------------------------------------------------------ */

static struct {
    const char *path;
    int copies[KEEP];
    int count;
    pthread_t thread;
} moments;

/* Points under the engine's lock, on the test's thread: the helper thread writes samples of the resident
 * set meanwhile, and comes to points, too. */
static void
keep_moment(ep_fault_point point)
{
    if (point >= EP_FAULT_ATTACH && point != EP_FAULT_SPILL && point != EP_FAULT_SPILLED &&
        pthread_equal(pthread_self(), moments.thread) && moments.count < KEEP) {
        moments.copies[moments.count++] = snapshot(moments.path);
    }
}

/* Between any two steps of giving up a chunk and taking another the file says the same. */
START_TEST(a_kill_between_any_two_steps_loses_nothing)
{
    setup();
    ep_prefault_may_sample = true;
    moments.thread = pthread_self();
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
    ep_prefault_stop();    /* it adds slots to the file for a while yet */
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
    ep_prefault_stop();    /* it adds slots to the file for a while yet */
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
    ep_prefault_stop();    /* it adds slots to the file for a while yet */
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

EP_TEST_MAIN("file_killed",
             a_process_that_stands_still_anywhere_has_all_on_file,
             a_killed_process_has_all_on_file,
             a_file_is_read_while_it_is_written,
             a_forked_child_has_its_own_events_on_its_own_file,
             a_child_that_only_frees_leaves_the_parents_file_alone,
             a_child_without_events_has_no_file,
             a_child_that_stops_has_an_empty_file,
             a_file_that_is_finished_survives_a_fork,
             a_fork_from_a_thread_while_others_write,
             the_writer_lives_as_long_as_it_does,
             a_child_that_outlives_it_is_not_the_writer,
#ifdef EP_FAULT_POINTS
             a_kill_between_any_two_steps_loses_nothing,
#endif
             descriptors_are_closed)
