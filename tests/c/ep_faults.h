/* What happens at the points of faults.def, what parent and child know of each other, and the program that
 * is recorded meanwhile. */
#ifndef EP_FAULTS_H
#define EP_FAULTS_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* A thousand processes. */
#define EP_TEST_TIMEOUT 400
#include "ep_model.h"
#include "file_read.h"

/* ---- The points ------------------------------------------------------------------------------ */

enum {
    E = 1,     /* the engine's lock */
    A = 2,     /* of the thread that makes chunks ready */
    N = 4,     /* of names */
    T = 8,     /* of the file that has the texts */
    F = 16,    /* of the file */
    L = 32,    /* logs were told to leave their chunks: the next record needs the engine's lock */
};

static const struct {
    const char *name;
    unsigned locks;
} points[EP_FAULT_COUNT] = {
#define EP_FAULT(NAME, text, locks) {#NAME, locks},
#include "faults.def"
#undef EP_FAULT
};

/* ---- What parent and child know of each other ------------------------------------------------ */

/* Of one thread: it counts before and after each event. */
typedef struct writer {
    _Atomic uint64_t begun, done;
} writer;

enum {
    MAIN,
    SHORT,
    OTHER,
    FORKED,
    WRITERS
};

static struct shared {
    writer writers[WRITERS];    /* FORKED: of another process, with a file of its own */
    _Atomic uint64_t hits[EP_FAULT_COUNT];     /* ever; not the victim's last */
    _Atomic uint64_t after[EP_FAULT_COUNT];    /* since a thread is held */
    _Atomic bool started;       /* the window has begun */
    _Atomic bool joined;        /* the other thread has a chunk in it */
    _Atomic bool held;          /* a thread stands at its point */
    _Atomic bool stopped;       /* the recorder is */
    _Atomic bool shot;          /* a process came to where it is killed */
    _Atomic bool finished;      /* all is done that can be done */
    _Atomic int step;           /* for messages */
} *shared;

static inline void
add(_Atomic uint64_t *to)
{
    atomic_store_explicit(to, atomic_load_explicit(to, memory_order_relaxed) + 1, memory_order_relaxed);
}

/* ---- What happens at a point ----------------------------------------------------------------- */

static int hold_at = -1, kill_at = -1;
static uint64_t kill_hit;
static _Thread_local bool is_victim;
static enum {
    PROGRAM,
    FORKED_BY_VICTIM,
    FORKED_BY_OTHER
} role;

static inline void
on_point(ep_fault_point point)
{
    if (point == EP_FAULT_FORK_CHILD) {
        role = is_victim ? FORKED_BY_VICTIM : FORKED_BY_OTHER;
        is_victim = false;
    }
    /* A forked process has points of its own; it does not count where its parent does. */
    if (role == FORKED_BY_VICTIM || (role == FORKED_BY_OTHER && point < EP_FAULT_FORK_CHILD)) {
        return;
    }
    if ((int)point == hold_at && is_victim) {
        is_victim = false;
        atomic_store(&shared->held, true);
        for (;;) {
            pause();
        }
    }
    uint64_t hit = atomic_load(&shared->held) ? atomic_fetch_add(&shared->after[point], 1)
                                              : atomic_fetch_add(&shared->hits[point], 1);
    bool counts = hold_at < 0 || atomic_load(&shared->held);
    if ((int)point == kill_at && counts && hit == kill_hit) {
        atomic_store(&shared->shot, true);
        kill(getpid(), SIGKILL);
        for (;;) {
            pause();
        }
    }
}

/* ---- The program that is recorded ------------------------------------------------------------ */

#define FILL 90000    /* events; a chunk has room for a few less */

static uint32_t name_ids[2000], site_ids[2000];

/* Names know their number: by the text, the line, and the sizes of blocks that are allocated there. */
static inline void
intern(unsigned number)
{
    char text[32];
    snprintf(text, sizeof text, "function_%u", number);
    ep_name_text name = {.qualname = {text, strlen(text)},
                         .module = {"module", 6},
                         .file = {"file.py", 7},
                         .line = (int32_t)number};
    name_ids[number] = ep_name_add(0x10000 + 16 * (uintptr_t)number, 0, &name, NULL, NULL);
    ep_site site = {.callee = name_ids[number], .caller = name_ids[1], .line = (int32_t)number};
    site_ids[number] = ep_site_add(0x10000 + 16 * (uintptr_t)number, 8, &site);
}

/* What a thread does, over and over: of each form of records. */
static const uint8_t program[] = {
    EP_KIND_CALL,
    EP_KIND_SPAN_BEGIN,
    EP_KIND_MALLOC_OBJ,
    EP_KIND_LINE,
    EP_KIND_COUNTER,
    EP_KIND_MARK,
    EP_KIND_FREE_OBJ,
    EP_KIND_BRANCH,
    EP_KIND_FLOW,
    EP_KIND_SPAN_END,
    EP_KIND_CREATE,
    EP_KIND_RETURN,
};
#define PROGRAM_LENGTH (sizeof program / sizeof *program)

/* How many of the first `count` events are of some kinds. */
static inline uint64_t
count_of(uint64_t count, uint64_t kinds)
{
    uint64_t found = 0;
    for (size_t i = 0; i < PROGRAM_LENGTH; i++) {
        uint64_t times = count / PROGRAM_LENGTH + (i < count % PROGRAM_LENGTH);
        found += kinds & EP_KIND_BIT(program[i]) ? times : 0;
    }
    return found;
}

static inline bool
closes_call(unsigned kind)
{
    return ep_kinds[kind].form == EP_FORM_CALL && ep_kinds[kind].pairing == EP_PAIRING_CLOSES;
}

static inline void
emit(int who, unsigned number, size_t count)
{
    writer *w = &shared->writers[who];
    ep_log *log = ep_log_mine();
    for (size_t i = 0; i < count; i++) {
        add(&w->begun);
        uint64_t ticks = ep_clock_ticks();
        uint64_t done = atomic_load_explicit(&w->done, memory_order_relaxed);
        ep_kind kind = (ep_kind)program[done % PROGRAM_LENGTH];
        uint32_t id = closes_call(kind) ? name_ids[number] : site_ids[number];
        switch ((ep_form)ep_kinds[kind].form) {
            case EP_FORM_ALLOC: ep_log_put_block(log, ticks, kind, number, 64, id); break;
            case EP_FORM_FREE:  ep_log_put_free(log, ticks, kind, id, 64); break;
            case EP_FORM_VALUE:
                ep_log_put_value_at(log, ep_ticks_halves(ticks), kind, id, number);
                break;
            default: ep_log_put(log, ticks, kind, id); break;
        }
        add(&w->done);
    }
}

static inline void *
live_shortly(void *unused)
{
    emit(SHORT, 1, 100);
    return unused;
}

/* The child of the child: events of its own on a file of its own. */
static inline void
fork_once(int who)
{
    pid_t child = fork();
    if (child == 0) {
        alarm(100);
        emit(FORKED, 2, 1000);
        _exit(0);
    }
    emit(who, 1, 10);
    waitpid(child, NULL, 0);
}

static ep_recorder recorder;

static inline void
begin(ep_on_full on_full, const char *path)
{
    char child_path[80];
    snprintf(child_path, sizeof child_path, "%s-child", path);
    ep_file_options file_options = {.path = path,
                                    .child_path = child_path,
                                    .replace = true,
                                    .metadata = "{}",
                                    .metadata_bytes = 2};
    ep_recorder_options options = {.kinds = EP_MODEL_ALL_KINDS,
                                   .limit_bytes = 2 * EP_CHUNK_BYTES,
                                   .on_full = on_full,
                                   .clock_any = true};
    ep_file *file;
    ck_assert_int_eq(ep_file_create(&file_options, &file, NULL), EP_OK);
    ck_assert_int_eq(ep_file_put_in_place(file, NULL), EP_OK);
    ep_recorder_init(&recorder, &options);
    ep_recorder_set_file(&recorder, file);
    ck_assert_int_eq(ep_recorder_start(&recorder, NULL), EP_OK);
    atomic_store(&shared->started, true);
}

static inline void
intern_and_emit(int who, unsigned first, unsigned count)
{
    for (unsigned number = first; number < first + count; number++) {
        intern(number);
        emit(who, number, 8);
    }
}

static inline void
end(void)
{
    ep_model_stop(&recorder);
    atomic_store(&shared->stopped, true);
}

/* Comes to every point. */
static inline void
live(int who)
{
    emit(who, 1, 100);
    intern_and_emit(who, 100, 20);
    emit(who, 1, FILL);
    ep_model_join(ep_model_spawn(live_shortly, NULL));
    emit(who, 1, FILL);
    fork_once(who);
    emit(who, 3, FILL);
}

#endif
