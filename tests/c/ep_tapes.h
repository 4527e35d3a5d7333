/* What the suites of engine.h share. The oracle of all of it: what a recorder gives back plus what it
 * counts as lost is what was emitted in its window, per kind and thread.
 *
 * A test remembers what it emits in *tapes*, one a log, and holds every trace against them. */
#ifndef EP_TAPES_H
#define EP_TAPES_H

#include "prefault.h"
#include "ep_model.h"
#include "functions.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Names: 60 functions, 300 sites ---------------------------------------------------------- */

#define NAME_COUNT 60
#define SITE_COUNT 300

static uint32_t name_ids[NAME_COUNT];
static uint32_t site_ids[SITE_COUNT];
static uint32_t site_callees[SITE_COUNT];    /* name id; what ep_site_callee() should say */

static inline void
setup(void)
{
    ep_model_setup();
    if (name_ids[0] != 0) {
        return;
    }
    for (uint32_t i = 0; i < NAME_COUNT; i++) {
        ep_name_text text = {.qualname = {"f", 1}, .line = (int32_t)i, .kind = EP_NAME_PYTHON};
        name_ids[i] = ep_name_add(0x1000 + 16 * i, 0, &text, NULL, NULL);
    }
    for (uint32_t i = 0; i < SITE_COUNT; i++) {
        ep_site site = {.callee = name_ids[i % NAME_COUNT], .line = (int32_t)i};
        site_ids[i] = ep_site_add(0x1000 + 16 * (i % NAME_COUNT), 0x100000 + 2 * i, &site);
        site_callees[i] = site.callee;
    }
}

static inline uint32_t
callee_of(uint32_t site_id)
{
    return site_callees[site_id - site_ids[0]];
}

/* ---- Tapes ----------------------------------------------------------------------------------- */

typedef struct tape {
    uint32_t thread_id;
    ep_model_event *events;
    size_t count, capacity;
    uint64_t random;
    uint32_t stack[64];    /* sites; what the imagined program of this thread has open */
    size_t depth;
    bool known_sites;      /* of blocks, too; otherwise any id that fits */
} tape;

static inline void
tape_add(tape *t, const ep_model_event *event)
{
    if (t->count == t->capacity) {
        t->capacity = t->capacity ? 2 * t->capacity : 4096;
        t->events = realloc(t->events, t->capacity * sizeof *t->events);
        if (t->events == NULL) {
            abort();
        }
    }
    t->events[t->count++] = *event;
}

static inline void
tape_free(tape *t)
{
    free(t->events);
    *t = (tape){0};
}

/* What a program would do next: mostly calls that nest, some blocks, now and then an end that
 * nobody reports, or one without a beginning. */
static inline ep_model_event
next_event(tape *t, uint64_t ticks)
{
    uint64_t dice = ep_model_below(&t->random, 100);
    if (dice < 20) {
        ep_model_event event = ep_model_random_event(&t->random, ticks);
        if (ep_kinds[event.kind].form != EP_FORM_CALL) {
            event.id = t->known_sites ? site_ids[event.id % SITE_COUNT] : event.id;
            return event;
        }
    }
    ep_model_event event = {.ticks = ticks, .size = -1};
    if (t->depth == 0 || (dice < 60 && t->depth < 64)) {
        static const uint8_t opens[] = {EP_KIND_CALL, EP_KIND_RESUME, EP_KIND_THROW,
                                        EP_KIND_C_CALL, EP_KIND_SPAN_BEGIN, EP_KIND_GC_START};
        event.kind = opens[ep_model_below(&t->random, 6)];
        event.id = site_ids[ep_model_below(&t->random, SITE_COUNT)];
        t->stack[t->depth++] = event.id;
        return event;
    }
    static const uint8_t closes[] = {EP_KIND_RETURN, EP_KIND_YIELD, EP_KIND_UNWIND,
                                     EP_KIND_C_RETURN, EP_KIND_C_EXCEPTION, EP_KIND_SPAN_END,
                                     EP_KIND_GC_STOP};
    event.kind = closes[ep_model_below(&t->random, 7)];
    if (dice == 99) {
        event.id = name_ids[ep_model_below(&t->random, NAME_COUNT)];
        return event;
    }
    t->depth -= dice == 98 && t->depth > 1 ? 2 : 1;
    event.id = callee_of(t->stack[t->depth]);
    return event;
}

/* ---- The judge ------------------------------------------------------------------------------- */

typedef struct open_model {
    uint32_t sites[4096];
    uint8_t kinds[4096];
    size_t depth;
} open_model;

/* The rule in words: an end closes the innermost call of its function, and whatever is above it. */
static inline void
open_model_apply(open_model *open, const ep_model_event *event)
{
    if (ep_kinds[event->kind].form != EP_FORM_CALL) {
        return;
    }
    bool opens = event->kind == EP_KIND_CALL || event->kind == EP_KIND_RESUME ||
                 event->kind == EP_KIND_THROW || event->kind == EP_KIND_C_CALL ||
                 event->kind == EP_KIND_SPAN_BEGIN || event->kind == EP_KIND_GC_START;
    if (opens) {
        open->sites[open->depth] = event->id;
        open->kinds[open->depth++] = event->kind;
        return;
    }
    size_t keep = open->depth;
    while (keep > 0 && callee_of(open->sites[keep - 1]) != event->id) {
        keep -= 1;
    }
    if (keep > 0) {
        open->depth = keep - 1;
    }
}

static inline void
assert_open(const ep_open_stack *open, const open_model *model, uint32_t thread_id)
{
    if (open->depth != model->depth) {
        ck_abort_msg("thread %u: %zu calls are open at the head, should be %zu", thread_id, open->depth,
                     model->depth);
    }
    for (size_t i = 0; i < model->depth; i++) {
        if (open->calls[i].site_id != model->sites[i] || open->calls[i].kind != model->kinds[i]) {
            ck_abort_msg("thread %u: open call %zu is not the one it should be", thread_id, i);
        }
    }
}

typedef enum kept_part {
    KEPT_LAST,     /* overwrite: the rest was before it */
    KEPT_FIRST,    /* stop: the rest was after it */
    KEPT_ANY       /* no memory: only the counts must be right */
} kept_part;

typedef struct window {
    uint64_t kinds, start, stop;    /* ticks, both inclusive */
    kept_part part;
    bool times;                     /* the injected clock's, to be compared */
    uint64_t open_from;             /* calls that were open at the start began since; 0: in what was lost */
    bool in_flight;                 /* a snapshot: each thread may be writing its last event still */
} window;

static inline bool
in_window(const window *w, const ep_model_event *event)
{
    return event->ticks >= w->start && event->ticks <= w->stop && (w->kinds & EP_KIND_BIT(event->kind));
}

/* Events of one tape against the trace's rows of its thread. */
static inline void
judge_tape(const tape *t, const window *w, const ep_decoded *decoded)
{
    const ep_trace_thread *thread = ep_model_thread(decoded, t->thread_id);
    static const uint64_t nothing[EP_KIND_COUNT];
    const uint64_t *recorded_by_kind = thread != NULL ? thread->recorded : nothing;
    const uint64_t *lost_by_kind = thread != NULL ? thread->lost : nothing;
    uint64_t emitted[EP_KIND_COUNT] = {0};
    size_t recorded_count = 0, lost_count = 0;
    for (size_t i = 0; i < t->count; i++) {
        if (in_window(w, &t->events[i])) {
            emitted[t->events[i].kind] += 1;
        }
    }
    uint64_t missing = 0;
    for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
        uint64_t both = recorded_by_kind[kind] + lost_by_kind[kind];
        recorded_count += recorded_by_kind[kind];
        lost_count += lost_by_kind[kind];
        missing += emitted[kind] - both;
        if (both > emitted[kind] || (both < emitted[kind] && !w->in_flight)) {
            ck_abort_msg("thread %u, %s: %llu recorded + %llu lost, %llu emitted", t->thread_id,
                         ep_kinds[kind].name, (unsigned long long)recorded_by_kind[kind],
                         (unsigned long long)lost_by_kind[kind], (unsigned long long)emitted[kind]);
        }
    }
    if (missing > 1) {
        ck_abort_msg("thread %u: %llu events are missing in a snapshot", t->thread_id,
                     (unsigned long long)missing);
    }
    /* The rows themselves, in order. */
    size_t skip = w->part == KEPT_LAST ? lost_count : 0, seen = 0, row = 0, block = 0, rows = 0;
    int32_t wanted = thread != NULL ? (int32_t)(thread - decoded->threads) : -1;
    open_model *open = calloc(1, sizeof *open);
    for (size_t i = 0; i < t->count && (rows < recorded_count || seen < skip); i++) {
        const ep_model_event *event = &t->events[i];
        if (w->open_from > 0 && event->ticks >= w->open_from && event->ticks < w->start &&
            (w->kinds & EP_KIND_BIT(event->kind))) {
            open_model_apply(open, event);
        }
        if (!in_window(w, event)) {
            continue;
        }
        if (seen++ < skip) {
            open_model_apply(open, event);
            continue;
        }
        ep_model_event read = {0};
        do {
            read = ep_model_row(&decoded->columns, row, &block);
        } while (decoded->columns.thread[row++] != wanted);
        rows += 1;
        bool same = read.kind == event->kind && read.id == event->id &&
                    read.address == event->address && read.size == event->size &&
                    (!w->times || read.ticks + w->start == event->ticks);
        if (!same && w->part != KEPT_ANY) {
            ck_abort_msg("thread %u: row %zu of it is not event %zu of its tape (%s)", t->thread_id,
                         rows - 1, i, ep_kinds[event->kind].name);
        }
        if (!same) {
            rows -= 1;    /* this event is among the lost ones; the row belongs to a later one */
            row -= 1;
            block -= ep_model_is_among_blocks(read.kind);
        }
    }
    if (rows != recorded_count) {
        ck_abort_msg("thread %u: %zu rows of %zu are no events of its tape", t->thread_id,
                     recorded_count - rows, recorded_count);
    }
    if (thread != NULL && w->part == KEPT_LAST) {
        assert_open(&thread->open, open, t->thread_id);
    }
    free(open);
}

static inline void
judge(const tape *tapes, size_t tape_count, const window *w, const ep_decoded *decoded)
{
    ep_model_columns(&decoded->columns);
    ck_assert_uint_eq(decoded->damaged_chunks, 0);
    for (size_t i = 0; i < tape_count; i++) {
        judge_tape(&tapes[i], w, decoded);
    }
    /* Nothing is invented: every row belongs to a thread that a tape is of. */
    uint64_t known = 0;
    for (size_t i = 0; i < tape_count; i++) {
        for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
            known += ep_model_recorded(decoded, tapes[i].thread_id, (ep_kind)kind);
        }
    }
    ck_assert_uint_eq(known, decoded->columns.count);
}

static inline window
window_of(const ep_recorder *recorder)
{
    return (window){
        .kinds = recorder->options.kinds,
        .start = recorder->start.ticks,
        .stop = recorder->stop.ticks,
        .part = recorder->options.on_full == EP_ON_FULL_OVERWRITE ? KEPT_LAST : KEPT_FIRST,
        .times = recorder->options.clock == EP_CLOCK_INJECTED,
    };
}

/* The trace of a stopped recorder is what the tapes say. */
static inline void
judge_stopped(ep_recorder *recorder, const tape *tapes, size_t tape_count)
{
    ep_decoded decoded = ep_model_decode(recorder);
    window w = window_of(recorder);
    judge(tapes, tape_count, &w, &decoded);
    ep_decoded_clear(&decoded);
}

/* ---- One thread ------------------------------------------------------------------------------ */

/* The calling thread's tape. Its log may have had other tapes, in tests before. */
static inline tape
own_tape(uint64_t seed)
{
    ep_log *log = ep_log_mine();
    ck_assert_ptr_nonnull(log);
    return (tape){.thread_id = log->thread->id, .random = seed};
}

static inline void
emit(tape *t, size_t count)
{
    ep_log *log = ep_log_mine();
    for (size_t i = 0; i < count; i++) {
        ep_model_event event = next_event(t, ep_model_tick());
        ep_model_put(log, &event);
        tape_add(t, &event);
    }
}

/* ---- Threads that come and go ---------------------------------------------------------------- */

/* A thread that the test leads: it makes its log, and ends when it is told to. In between the test
 * writes to the log, as if it were the thread. */
typedef struct actor {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;    /* one of the next two, under the lock; macOS has no sem_init() */
    bool is_ready, must_end;
    ep_log *log;
    tape *tape;
} actor;

static inline void
actor_set(actor *a, bool *what)
{
    pthread_mutex_lock(&a->lock);
    *what = true;
    pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

static inline void
actor_await(actor *a, const bool *what)
{
    pthread_mutex_lock(&a->lock);
    while (!*what) pthread_cond_wait(&a->changed, &a->lock);
    pthread_mutex_unlock(&a->lock);
}

static inline void *
act(void *argument)
{
    actor *a = argument;
    a->log = ep_log_mine();
    actor_set(a, &a->is_ready);
    actor_await(a, &a->must_end);
    return NULL;
}

static inline void
actor_begin(actor *a, tape *t, uint64_t seed)
{
    a->is_ready = a->must_end = false;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    a->thread = ep_model_spawn(act, a);
    actor_await(a, &a->is_ready);
    a->tape = t;
    *t = (tape){.thread_id = a->log != NULL ? a->log->thread->id : 0, .random = seed};
}

static inline void
actor_emit(actor *a, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ep_model_event event = next_event(a->tape, ep_model_tick());
        ep_model_put(a->log, &event);
        tape_add(a->tape, &event);
    }
}

static inline void
actor_end(actor *a)
{
    actor_set(a, &a->must_end);
    ep_model_join(a->thread);
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    a->log = NULL;
}

#endif
