/* faults.def: at each of its points, and at each two of them, a thread is held for good or the process
 * is killed. What the others do goes on; what was recorded is on file and in snapshots, and counted. */
#include "ep_faults.h"

#ifdef EP_FAULT_POINTS

/* ---- Judging --------------------------------------------------------------------------------- */

static char what[200];    /* is being tested */

/* Every event has the name that it was given. */
static void
judge_names(const ep_columns *columns)
{
    size_t block = 0;
    for (size_t row = 0; row < columns->count; row++) {
        bool closes = closes_call(columns->kind[row]);
        bool has_value = ep_kinds[columns->kind[row]].form == EP_FORM_VALUE;
        const ep_site *site = closes ? NULL : ep_site_get(columns->id[row]);
        const ep_name *name = ep_name_get(closes ? columns->id[row] : site->callee);
        char wanted[32];
        int bytes = snprintf(wanted, sizeof wanted, "function_%d", (int)name->line);
        ep_text text = ep_string_get(name->qualname);
        bool right = text.at != NULL && text.bytes == (size_t)bytes &&
                     memcmp(text.at, wanted, text.bytes) == 0 && (closes || site->line == name->line);
        if (block < columns->alloc_count && columns->alloc_row[block] == row) {
            right = right && (columns->size[block] == -1 || columns->size[block] == name->line) &&
                    columns->address[block] == (has_value ? (uint64_t)name->line : 64);
            block += 1;
        }
        if (!right) {
            ck_abort_msg("%s: row %zu has lost its name", what, row);
        }
    }
}

/* How far some writers are: by kind, what was done of it for sure, and what was begun. */
typedef struct progress {
    uint64_t done[EP_KIND_COUNT], begun[EP_KIND_COUNT];
} progress;

static uint64_t
total(const uint64_t counts[EP_KIND_COUNT])
{
    uint64_t sum = 0;
    for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
        sum += counts[kind];
    }
    return sum;
}

/* `at_least`: whether all that was done has to be there. */
static void
judge_counts(const ep_decoded *decoded, const progress *p, bool at_least)
{
    for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
        uint64_t have = 0;
        for (size_t i = 0; i < decoded->thread_count; i++) {
            have += decoded->threads[i].recorded[kind] + decoded->threads[i].lost[kind];
        }
        if (have > p->begun[kind] || (at_least && have < p->done[kind])) {
            ck_abort_msg("%s: there are %llu events %s, of %llu to %llu", what,
                         (unsigned long long)have, ep_kinds[kind].name,
                         (unsigned long long)p->done[kind], (unsigned long long)p->begun[kind]);
        }
    }
}

static progress
read_progress(int first, int end)
{
    progress p = {.done = {0}, .begun = {0}};
    for (int i = first; i < end; i++) {
        uint64_t done = atomic_load(&shared->writers[i].done);
        uint64_t begun = atomic_load(&shared->writers[i].begun);
        for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
            p.done[kind] += count_of(done, EP_KIND_BIT(kind));
            p.begun[kind] += count_of(begun, EP_KIND_BIT(kind));
        }
    }
    return p;
}

/* `full`: it may be, and a file that was not finished does not know then what came after that. */
static void
judge_file(const char *path, int first, int end, bool full)
{
    progress p = read_progress(first, end);
    uint64_t done = total(p.done);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    ep_file_reader *reader = NULL;
    ep_recording recording;
    ep_decoded decoded;
    ep_error error = {.text = ""};
    ep_status status = descriptor >= 0 ? ep_file_open(descriptor, &reader, &error) : EP_IO;
    if (status == EP_OK) {
        status = ep_file_load(reader, &recording, &decoded, &error);
    }
    if (status != EP_OK) {
        /* Nothing was recorded yet: then there may be no file, or one that says that it is none. */
        ck_assert_msg(done == 0, "%s: %s: %s", what, path, error.text);
        ck_assert_msg(descriptor < 0 || error.text[0] != 0, "%s: no reason is given", what);
        if (reader != NULL) {
            ep_file_close(reader);
        }
        return;
    }
    /* What a program forked may still live. */
    progress now = read_progress(first, end);
    memcpy(p.begun, now.begun, sizeof p.begun);
    uint64_t begun = total(p.begun);
    ep_model_columns(&decoded.columns);
    judge_names(&decoded.columns);
    uint64_t have = ep_model_total(&decoded);
    bool knows_all = !full || recording.full_reason == EP_FULL_NOT ||
                     ep_file_get_facts(reader)->phase == EP_FILE_FINISHED;
    ck_assert_msg(have <= begun && (have >= done || !knows_all),
                  "%s: %s has %llu events, of %llu to %llu", what, path, (unsigned long long)have,
                  (unsigned long long)done, (unsigned long long)begun);
    judge_counts(&decoded, &p, knows_all);
    ck_assert_msg(ep_file_get_facts(reader)->note_count == 0, "%s: %s", what,
                  ep_file_get_facts(reader)->notes[0]);
    ep_decoded_clear(&decoded);
    ep_recording_clear(&recording);
    ep_file_close(reader);
}

static char path[64], child_path[80];

/* The program does no more. */
static void
judge(bool full)
{
    judge_file(path, MAIN, FORKED, full);
    progress forked = read_progress(FORKED, WRITERS);
    if (access(child_path, F_OK) == 0) {
        judge_file(child_path, FORKED, WRITERS, full);
    } else {
        /* No event, no file; the first one makes it. */
        ck_assert_msg(total(forked.done) == 0, "%s: no file of the forked", what);
    }
}

static void
setup(void)
{
    /* What a killed program leaves behind is ours then, to be waited for. */
    ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    ck_assert_int_eq(ep_engine_init(), EP_OK);
    ck_assert_int_eq(ep_names_init(), EP_OK);
    /* Who is to go on while another has the engine's lock needs room. */
    ep_engine_first_bytes = EP_CHUNK_BYTES;
    for (unsigned number = 1; number <= 3; number++) {
        intern(number);
    }
    /* So many that a file's slot of texts has room for those of a test: whether it needs another one is not
     * to depend on who comes first. */
    for (unsigned number = 1500; number < 1700; number++) {
        intern(number);
    }
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(shared, MAP_FAILED);
    /* In memory where there is such a place: a thousand files of some MiB. */
    const char *folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(path, sizeof path, "%s/ep_test_faults.%d", folder, (int)getpid());
    snprintf(child_path, sizeof child_path, "%s-child", path);
}

static void
begin_anew(void)
{
    memset(shared, 0, sizeof *shared);
    (void)unlink(path);
    (void)unlink(child_path);
}

/* What the program forked may live longer than it. */
static void
wait_for_all(void)
{
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR) {
    }
}

/* Waits for the child's end. Returns: whether it was killed at its point. */
static bool
was_killed(pid_t child)
{
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    ck_assert_msg(killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0),
                  "%s: ended by %s %d, in step %d", what, WIFSIGNALED(status) ? "signal" : "exit",
                  WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
                  atomic_load(&shared->step));
    wait_for_all();
    return killed;
}

/* ---- Killed ---------------------------------------------------------------------------------- */

/* fork(). A child that hangs ends by SIGALRM. */
static pid_t
fork_anew(void)
{
    begin_anew();
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        signal(SIGALRM, SIG_DFL);    /* Check has a handler for its own */
        alarm(100);
        atomic_store(&ep_fault_handler, on_point);
    }
    return child;
}

/* One thread and what it makes. */
static pid_t
spawn_program(ep_on_full on_full)
{
    pid_t child = fork_anew();
    if (child == 0) {
        begin(on_full, path);
        live(MAIN);
        end();
        _exit(0);
    }
    return child;
}

/* Whether only a ring comes there. */
static bool
is_of_a_ring(int point)
{
    return point >= EP_FAULT_RECYCLE && point <= EP_FAULT_UNWANTED;
}

static void
kill_everywhere(ep_on_full on_full)
{
    static uint64_t hits[EP_FAULT_COUNT];
    bool full = on_full == EP_ON_FULL_STOP;
    setup();
    hold_at = kill_at = -1;
    snprintf(what, sizeof what, "policy %d, nothing happens", (int)on_full);
    ck_assert(!was_killed(spawn_program(on_full)));
    judge(full);
    for (int point = 0; point < EP_FAULT_COUNT; point++) {
        hits[point] = atomic_load(&shared->hits[point]);
    }
    for (kill_at = 0; kill_at < EP_FAULT_COUNT; kill_at++) {
        bool drops = on_full != EP_ON_FULL_OVERWRITE && is_of_a_ring(kill_at);
        ck_assert_msg(hits[kill_at] > 0 || drops || kill_at >= EP_FAULT_PACKED,
                      "the program does not come to %s", points[kill_at].name);
        uint64_t last = UINT64_MAX;
        /* Its first and its last hit, and two between them. */
        for (int part = 0; part < 4 && hits[kill_at] > 0; part += (int)ep_model_stride(3)) {
            kill_hit = (hits[kill_at] - 1) * (uint64_t)part / 3;
            if (kill_hit == last) {
                continue;
            }
            last = kill_hit;
            snprintf(what, sizeof what, "policy %d, killed at %s, hit %llu of %llu", (int)on_full,
                     points[kill_at].name, (unsigned long long)kill_hit,
                     (unsigned long long)hits[kill_at]);
            (void)was_killed(spawn_program(on_full));
            ck_assert_msg(atomic_load(&shared->shot) || part > 0, "%s: it was not", what);
            judge(full);
        }
    }
    begin_anew();
}

START_TEST(a_kill_at_any_point_leaves_a_readable_file_of_a_ring)
{
    kill_everywhere(EP_ON_FULL_OVERWRITE);
}
END_TEST

START_TEST(a_kill_at_any_point_leaves_a_readable_file_that_grows)
{
    kill_everywhere(EP_ON_FULL_GROW);
}
END_TEST

START_TEST(a_kill_at_any_point_leaves_a_readable_file_that_is_full)
{
    kill_everywhere(EP_ON_FULL_STOP);
}
END_TEST

/* ---- Held ------------------------------------------------------------------------------------ */

static void *
live_as_victim(void *argument)
{
    is_victim = true;
    begin(*(ep_on_full *)argument, path);
    while (!atomic_load(&shared->joined)) {
        sched_yield();
    }
    live(MAIN);
    end();
    return NULL;
}

/* What a snapshot has is what was emitted so far. */
static void
look(void)
{
    progress p = read_progress(MAIN, FORKED);
    ep_decoded decoded = ep_model_decode(&recorder);
    judge_counts(&decoded, &p, true);
    judge_names(&decoded.columns);
    ep_decoded_clear(&decoded);
}

static void
record_in_memory(void)
{
    ep_recorder second;
    ep_model_start(&second, EP_MODEL_CALL_KINDS, 1, EP_ON_FULL_GROW, ep_clock_current);
    const writer *other = &shared->writers[OTHER];
    uint64_t before = count_of(atomic_load(&other->done), EP_MODEL_CALL_KINDS);
    emit(OTHER, 2, 1000);
    uint64_t after = count_of(atomic_load(&other->done), EP_MODEL_CALL_KINDS);
    ep_model_stop(&second);
    ep_decoded decoded = ep_model_decode(&second);
    ck_assert_uint_eq(ep_model_total(&decoded), after - before);
    ep_decoded_clear(&decoded);
    ep_recorder_clear(&second);
}

static void
step(int number, unsigned takes, unsigned held, void (*body)(void))
{
    if ((takes & held) == 0) {
        atomic_store(&shared->step, number);
        body();
    }
}

static void
step_hot(void)
{
    emit(OTHER, 1, 100);
}

static void
step_intern(void)
{
    intern_and_emit(OTHER, 1000, 20);
}

static void
step_fill(void)
{
    emit(OTHER, 1, 2 * FILL);
}

static void
step_thread(void)
{
    ep_model_join(ep_model_spawn(live_shortly, NULL));
}

static void
step_fork(void)
{
    fork_once(OTHER);
}

static void
step_stop(void)
{
    if (!atomic_load(&shared->stopped)) {
        ep_model_stop(&recorder);
        look();
    }
}

/* All that another thread can do while one stands at a point: whatever needs no lock that is held
 * there. */
static void
go_on(unsigned held)
{
    const unsigned all = E | A | N | T | F | L;
    step(1, L, held, step_hot);
    step(2, N | T | F | L, held, step_intern);
    step(3, all & ~N, held, step_fill);
    step(4, E | L, held, look);
    step(5, all & ~N, held, step_thread);
    step(6, all, held, step_fork);
    step(7, all & ~N, held, record_in_memory);
    step(8, all, held, step_stop);
}

/* The victim is held at `hold_at` for good; another thread goes on as far as it can, and is killed at
 * `kill_at` if it comes there. */
static pid_t
spawn_pair(ep_on_full on_full)
{
    pid_t child = fork_anew();
    if (child == 0) {
        (void)ep_model_spawn(live_as_victim, &on_full);
        while (!atomic_load(&shared->started) && !atomic_load(&shared->held)) {
            sched_yield();
        }
        unsigned held = points[hold_at].locks;
        if (atomic_load(&shared->started) && !atomic_load(&shared->held)) {
            emit(OTHER, 1, 100);
            atomic_store(&shared->joined, true);
        } else {
            held |= L;    /* it has no chunk in the window */
        }
        while (!atomic_load(&shared->held)) {
            sched_yield();
        }
        go_on(held);
        atomic_store(&shared->finished, true);
        for (;;) {
            pause();
        }
    }
    return child;
}

static void
judge_pair(pid_t child)
{
    int status;
    while (!atomic_load(&shared->finished)) {
        sched_yield();
        if (waitpid(child, &status, WNOHANG) == child) {
            ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
                          "%s: it hung, or failed, in step %d", what, atomic_load(&shared->step));
            wait_for_all();
            judge(false);
            return;
        }
    }
    judge(false);
    kill(child, SIGKILL);
    wait_for_all();
    judge(false);
}

/* Whether a thread of the program itself, not only of what it forks, comes to a point. */
static bool
is_of_the_program(int point)
{
    return point < EP_FAULT_FORK_CHILD;
}

START_TEST(others_go_on_whatever_a_thread_is_held_at)
{
    setup();
    kill_at = -1;
    for (hold_at = 0; hold_at < EP_FAULT_COUNT; hold_at++) {
        for (int on_full = EP_ON_FULL_OVERWRITE; on_full <= EP_ON_FULL_GROW && is_of_the_program(hold_at);
             on_full += EP_ON_FULL_GROW - EP_ON_FULL_OVERWRITE) {
            if (on_full == EP_ON_FULL_GROW && is_of_a_ring(hold_at)) {
                continue;
            }
            /* With one of the policies, by turns. */
            bool is_turn = (hold_at % 2 == 0) == (on_full == EP_ON_FULL_OVERWRITE);
            if (ep_model_is_short() && !is_of_a_ring(hold_at) && !is_turn) {
                continue;
            }
            snprintf(what, sizeof what, "policy %d, held at %s", on_full, points[hold_at].name);
            judge_pair(spawn_pair((ep_on_full)on_full));
        }
    }
    begin_anew();
}
END_TEST

enum {
    TRIES = 50
};

/* Every second point that the other comes to; where every access is checked, every fourth of these. */
static void
hold_and_kill(int first, int step_of_two)
{
    int killed = 0, pairs = 0, stride = (int)ep_model_stride(4);
    setup();
    kill_hit = 0;
    for (hold_at = first; is_of_the_program(hold_at); hold_at += step_of_two) {
        uint64_t comes_to[EP_FAULT_COUNT];
        kill_at = -1;
        snprintf(what, sizeof what, "held at %s", points[hold_at].name);
        judge_pair(spawn_pair(EP_ON_FULL_OVERWRITE));
        for (int then = 0; then < EP_FAULT_COUNT; then++) {
            comes_to[then] = atomic_load(&shared->after[then]);
        }
        for (kill_at = 0; kill_at < EP_FAULT_COUNT; kill_at++) {
            if (comes_to[kill_at] == 0 || pairs++ % stride != 0) {
                continue;
            }
            snprintf(what, sizeof what, "held at %s, killed at %s", points[hold_at].name,
                     points[kill_at].name);
            /* Which of the threads comes to some points, the scheduler decides anew each time. */
            for (int tries = 0; tries == 0 || (!atomic_load(&shared->shot) && tries < TRIES); tries++) {
                judge_pair(spawn_pair(EP_ON_FULL_OVERWRITE));
            }
            ck_assert_msg(atomic_load(&shared->shot), "%s: it was not", what);
            killed += 1;
        }
    }
    ck_assert_int_gt(killed, 10);
    begin_anew();
}

START_TEST(a_kill_while_a_thread_is_held_first_part)
{
    hold_and_kill(0, 4);
}
END_TEST

START_TEST(a_kill_while_a_thread_is_held_second_part)
{
    hold_and_kill(1, 4);
}
END_TEST

START_TEST(a_kill_while_a_thread_is_held_third_part)
{
    hold_and_kill(2, 4);
}
END_TEST

START_TEST(a_kill_while_a_thread_is_held_fourth_part)
{
    hold_and_kill(3, 4);
}
END_TEST

EP_TEST_MAIN("faults",
             a_kill_at_any_point_leaves_a_readable_file_of_a_ring,
             a_kill_at_any_point_leaves_a_readable_file_that_grows,
             a_kill_at_any_point_leaves_a_readable_file_that_is_full,
             others_go_on_whatever_a_thread_is_held_at,
             a_kill_while_a_thread_is_held_first_part,
             a_kill_while_a_thread_is_held_second_part,
             a_kill_while_a_thread_is_held_third_part,
             a_kill_while_a_thread_is_held_fourth_part)

#else

/* Points are compiled into the builds that ./dev test makes. */
int
main(void)
{
    return 77;
}

#endif
