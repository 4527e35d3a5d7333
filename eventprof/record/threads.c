/* Threads and their logs: a thread gets a log at its first event, and gives it back when it ends. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "prefault.h"
#include "engine_parts.h"
#include "file.h"
#include "gate.h"
#include "lanes.h"
#include "memory.h"
#include "os.h"
#include "packing.h"

/* A dead thread's chunk goes to the next new thread while this much of it is left. */
#define PARTIAL_MIN_WORDS 64
/* Fewer logs than this are not searched for those of dead threads. */
#define MANY_LOGS 16

/* ---- Entries of threads ---------------------------------------------------------------------- */

/* Returns: immortal, or NULL without memory. */
static EP_ENGINE_LOCKED ep_thread *
new_thread(ep_thread first)
{
    if (!ep_grow((void **)&ep_engine.threads, &ep_engine.thread_capacity, ep_engine.thread_count + 1,
                 sizeof *ep_engine.threads)) {
        return NULL;
    }
    ep_thread *thread = ep_calloc(1, sizeof *thread);
    if (thread == NULL) {
        return NULL;
    }
    *thread = first;
    thread->id = (uint32_t)ep_engine.thread_count + 1;
    ep_engine.threads[ep_engine.thread_count++] = thread;
    if (ep_file_wants_texts()) {
        ep_file_put_thread(thread);
    }
    return thread;
}

ep_thread *
ep_thread_new_lane(const ep_thread *carrier, uint32_t number)
{
    ep_thread first = {.native_id = carrier->native_id, .carrier_id = carrier->id, .attached = true};
    bool named = atomic_load_explicit(&carrier->named, memory_order_relaxed);
    char tail[24];
    int bytes = snprintf(tail, sizeof tail, "%sgreenlet %" PRIu32, named ? " " : "", number);
    ep_text name = {carrier->name, named ? strlen(carrier->name) : 0};
    size_t room = EP_THREAD_NAME_BYTES - 1 - (size_t)bytes;
    size_t kept = name.bytes <= room ? name.bytes : ep_text_cut(name, room);
    memcpy(first.name, carrier->name, kept);
    memcpy(first.name + kept, tail, (size_t)bytes);
    atomic_init(&first.named, true);
    return new_thread(first);
}

/* From the newest: the system reuses the ids of dead threads. */
static EP_ENGINE_LOCKED ep_thread *
find_thread(uint64_t native_id)
{
    for (size_t i = ep_engine.thread_count; i-- > 0;) {
        ep_thread *thread = ep_engine.threads[i];
        if (thread->native_id == native_id && thread->carrier_id == 0) {
            return atomic_load_explicit(&thread->exited, memory_order_relaxed) ? NULL : thread;
        }
    }
    return NULL;
}

/* The calling thread's entry: one that a recorder's start expected, or a new one. */
static EP_ENGINE_LOCKED ep_thread *
register_thread(void)
{
    uint64_t native_id = ep_os_thread_id();
    ep_thread *thread = ep_engine.expected_count > 0 ? find_thread(native_id) : NULL;
    if (thread != NULL && !thread->attached) {
        ep_engine.expected_count -= 1;
    } else {
        thread = new_thread((ep_thread){.native_id = native_id});
    }
    if (thread != NULL) {
        thread->attached = true;
    }
    return thread;
}

void
ep_threads_forget_dead(void)
{
    for (size_t i = ep_engine.thread_count; ep_engine.expected_count > 0 && i-- > 0;) {
        ep_thread *thread = ep_engine.threads[i];
        if (!thread->attached && !atomic_load_explicit(&thread->exited, memory_order_relaxed) &&
            !ep_os_thread_lives(thread->native_id)) {
            atomic_store_explicit(&thread->exited, true, memory_order_relaxed);
            ep_engine.expected_count -= 1;
        }
    }
}

void
ep_thread_set_name(ep_thread *thread, ep_text name)
{
    if (atomic_load_explicit(&thread->named, memory_order_relaxed) || name.at == NULL) {
        return;
    }
    size_t bytes = ep_text_cut(name, EP_THREAD_NAME_BYTES - 1);
    memcpy(thread->name, name.at, bytes);
    thread->name[bytes] = 0;
    atomic_store_explicit(&thread->named, true, memory_order_release);
    /* Called even if there is no file: otherwise a file that begins just now could miss the name. */
    ep_file_put_thread(thread);
}

const ep_thread *
ep_engine_thread_locked(uint32_t id)
{
    return id > 0 && id <= ep_engine.thread_count ? ep_engine.threads[id - 1] : NULL;
}

const ep_thread *
ep_engine_thread(uint32_t id)
{
    ep_engine_lock();
    const ep_thread *thread = ep_engine_thread_locked(id);
    ep_engine_unlock();
    return thread;
}

ep_thread *
ep_engine_thread_by_native_id(uint64_t native_id, bool expect)
{
    ep_engine_lock();
    ep_thread *thread = find_thread(native_id);
    if (thread == NULL && expect) {
        thread = new_thread((ep_thread){.native_id = native_id});
        ep_engine.expected_count += thread != NULL;
    }
    ep_engine_unlock();
    return thread;
}

ep_thread *
ep_engine_lane_of(ep_thread *thread)
{
    ep_thread *lane = thread;
    ep_engine_lock();
    for (const ep_log *log = ep_engine.logs; log != NULL && thread != NULL; log = log->next_log) {
        ep_thread *running = log->thread;
        if (running->carrier_id == thread->id) {
            lane = running;
            break;
        }
    }
    ep_engine_unlock();
    return lane;
}

ep_thread_place
ep_engine_place_of(const ep_thread *thread)
{
    ep_thread_place place = {0};
    ep_engine_lock();
    for (const ep_log *log = ep_engine.logs; log != NULL; log = log->next_log) {
        if (log->thread == thread) {
            place = (ep_thread_place){.busy = log->busy != 0, .next = log->next};
            break;
        }
    }
    ep_engine_unlock();
    return place;
}

bool
ep_engine_program_lives(const uint64_t *native_ids, size_t count)
{
    uint64_t *own = ep_calloc(count + 2, sizeof *own);
    if (own == NULL) {
        return true;
    }
    memcpy(own, native_ids, count * sizeof *own);
    ep_engine_lock();
    own[count] = ep_prefault_thread_id();
    own[count + 1] = ep_packing_thread_id();
    ep_engine_unlock();
    bool lives = ep_os_other_threads_live(own, count + 2);
    free(own);
    return lives;
}

/* ---- Logs ------------------------------------------------------------------------------------ */

void
ep_log_unlink(ep_log *log)
{
    for (ep_log **at = &ep_engine.logs; *at != NULL; at = &(*at)->next_log) {
        if (*at == log) {
            *at = log->next_log;
            ep_engine.log_count -= 1;
            return;
        }
    }
}

static void
add_left_out(const ep_log *log, uint64_t *counts)
{
    for (int i = 0; i < EP_LEFT_OUT_COUNT; i++) {
        counts[i] += atomic_load_explicit(&log->gate.left_out[i], memory_order_relaxed);
    }
}

void
ep_log_free(ep_log *log)
{
    add_left_out(log, ep_engine.left_out);
    free(log->gate.calls);
    ep_lanes_free(log);
    ep_os_free_wiped(log, sizeof *log, EP_LOG_WIPED_BYTES);
    ep_os_own_add(-(int64_t)sizeof *log);
}

void
ep_engine_left_out(uint64_t *counts)
{
    ep_engine_lock();
    memcpy(counts, ep_engine.left_out, sizeof ep_engine.left_out);
    for (const ep_log *log = ep_engine.logs; log != NULL; log = log->next_log) {
        add_left_out(log, counts);
    }
    ep_engine_unlock();
}

/* Its owner has ended, or is ending. */
static EP_ENGINE_LOCKED void
give_back_log(ep_log *log)
{
    /* Below zero if the log was closed. */
    ptrdiff_t left = atomic_load_explicit(&log->end, memory_order_relaxed) - log->next;
    if (log->chunk == NULL) {
        ep_loss_count_scratch(log);
    } else if (log->chunk->refs > 0 && left >= PARTIAL_MIN_WORDS) {
        log->chunk->rest = log->next;
        log->chunk->next = ep_engine.partial_chunks;
        ep_engine.partial_chunks = log->chunk;
    } else {
        ep_chunk_seal(log->chunk, log->next);
    }
    ep_log_unlink(log);
    ep_lanes_set_exited(log, true);
    if (ep_engine.running_count == 0) {
        ep_chunks_trim(EP_SPARE_BYTES_WHEN_IDLE);
    }
    ep_log_free(log);
}

/* Takes back logs of dead threads: a thread whose first event is in the last round of its destructors
 * cannot give its log back. They are searched when there are twice as many logs as after the last search.
 * So at most half of all logs are of dead threads, and a program with few threads pays nothing. */
static EP_ENGINE_LOCKED void
give_back_dead_logs(void)
{
    if (ep_engine.log_count < ep_engine.look_at || ep_engine.log_count < MANY_LOGS) {
        return;
    }
    for (ep_log *log = ep_engine.logs, *next; log != NULL; log = next) {
        next = log->next_log;
        if (!ep_os_thread_lives(log->thread->native_id)) {
            give_back_log(log);
        }
    }
    ep_engine.look_at = 2 * ep_engine.log_count;
}

/* A process ends with its last thread, and a helper thread would keep it alive: in a child that was forked
 * from a thread, and where the main thread ended first, nobody calls exit(). So the helpers end when no
 * thread of the program has a log; the next log starts them again. The newest log tells: in nearly all
 * programs its thread lives. Limitation: a last thread whose first event is in the last round of its
 * destructors does not come here. */
static EP_ENGINE_LOCKED void
pause_helpers_without_threads(void)
{
    while (ep_engine.logs != NULL && !ep_os_thread_lives(ep_engine.logs->thread->native_id)) {
        give_back_log(ep_engine.logs);
    }
    if (ep_engine.logs == NULL) {
        ep_prefault_pause();
        ep_packing_pause();
    }
}

void
ep_log_on_thread_exit(void *value)
{
    if (ep_os_is_forked()) {
        return;    /* the log stays in use: it only counts */
    }
    ep_log_current = NULL;    /* later allocations on this thread get a new log, see ep_log_attach() */
    ep_engine_lock();
    EP_FAULT_POINT(DETACH);
    give_back_log(value);
    pause_helpers_without_threads();
    ep_engine_unlock();
}

static uint32_t todo_at_birth EP_GUARDED_BY(ep_engine_mutex);

void
ep_engine_mark_logs(uint32_t todo)
{
    for (ep_log *log = ep_engine.logs; log != NULL; log = log->next_log) {
        log->todo |= todo;
    }
}

void
ep_engine_set_todo(uint32_t todo)
{
    ep_engine_lock();
    todo_at_birth |= todo;
    ep_engine_mark_logs(todo);
    ep_engine_unlock();
}

int64_t
ep_engine_remind_threads(void)
{
    static int64_t next_ns;    /* of the helper thread, of which there is one at a time */
    int64_t now_ns = ep_os_monotonic_ns();
    if (now_ns < next_ns && next_ns - now_ns <= EP_LOOK_NS) {
        return next_ns - now_ns;
    }
    if (!ep_engine_try_lock()) {
        return EP_LOOK_NS / 10;
    }
    ep_engine_mark_logs(EP_TODO_PROCESSOR);
    ep_engine_unlock();
    next_ns = now_ns + EP_LOOK_NS;
    return EP_LOOK_NS;
}

void
ep_engine_set_todo_of(const ep_thread *thread, uint32_t todo)
{
    ep_engine_lock();
    for (ep_log *log = ep_engine.logs; log != NULL; log = log->next_log) {
        if (log->thread == thread) {
            log->todo |= todo;
        }
    }
    ep_engine_unlock();
}

static ep_log *
attach(void)
{
    /* After the last round of destructors the thread could not give the log back. */
    if (ep_os_is_forked() || ep_os_thread_exit_over()) {
        return NULL;
    }
    ep_log *log = ep_os_calloc_wiped(sizeof *log, EP_LOG_WIPED_BYTES);
    if (log == NULL) {
        return NULL;
    }
    uint64_t ticks = ep_clock_ticks();
    ep_engine_lock();
    log->todo = EP_TODO_NAMELESS | todo_at_birth;
    if (ep_kinds_has(ep_engine_kinds(), EP_KIND_WAIT)) {
        log->todo |= EP_TODO_PROCESSOR;    /* what its first look is compared with */
    }
    give_back_dead_logs();
    log->thread = register_thread();
    if (log->thread == NULL) {
        ep_engine_unlock();
        ep_os_free_wiped(log, sizeof *log, EP_LOG_WIPED_BYTES);
        return NULL;
    }
    if (log->thread->unsettled_count != 0) {
        log->todo |= EP_TODO_UNSETTLED;
    }
    if (log->thread->thrown_count != 0 || log->thread->thrown_dropped != 0) {
        log->todo |= EP_TODO_THROWN;
    }
    log->next_log = ep_engine.logs;
    ep_engine.logs = log;
    ep_engine.log_count += 1;
    ep_os_own_add(sizeof *log);
    EP_FAULT_POINT(ATTACH);
    ep_chunk *chunk;
    if (ep_engine.partial_chunks != NULL) {
        ep_log_use_partial(log, ep_engine.partial_chunks, ticks);
        ep_prefault_go_on();
    } else if ((chunk = ep_chunk_find(ticks, ep_chunk_first_bytes(), true)) != NULL) {
        ep_log_use_chunk(log, chunk, ticks);
    } else {
        ep_log_use_scratch(log, ticks);
    }
    ep_engine_unlock();
    ep_log_current = log;
    ep_os_thread_exit_set(log);
    return log;
}

ep_log *
ep_log_attach(void)
{
    int error = errno;
    ep_engine_inside += 1;
    ep_log *log = attach();
    ep_engine_inside -= 1;
    errno = error;
    return log;
}
