/* Loss: the records of dropped chunks are counted by kind, and their calls are folded into the stack of the
 * calls that are open where the kept records begin. */
#include <string.h>

#include "closing.h"
#include "engine_parts.h"
#include "memory.h"

/* ---- Stacks of open calls -------------------------------------------------------------------- */

ep_status
ep_open_stack_copy(const ep_open_stack *from, ep_open_stack *to)
{
    if (from->depth == 0) {
        return EP_OK;
    }
    to->calls = ep_calloc(from->depth, sizeof *to->calls);
    if (to->calls == NULL) {
        return EP_NOMEM;
    }
    memcpy(to->calls, from->calls, from->depth * sizeof *to->calls);
    to->depth = to->capacity = from->depth;
    return EP_OK;
}

void
ep_open_stack_apply(ep_open_stack *stack, unsigned kind, uint32_t id)
{
    if (ep_kinds[kind].form != EP_FORM_CALL) {
        return;
    }
    if (ep_kinds[kind].pairing == EP_PAIRING_OPENS) {
        if (!ep_grow((void **)&stack->calls, &stack->capacity, stack->depth + 1,
                     sizeof *stack->calls)) {
            return;    /* this call's end will be unmatched, and counted as such */
        }
        stack->calls[stack->depth++] = (ep_open_call){.site_id = id, .kind = (uint8_t)kind};
        return;
    }
    /* The end of a call that is not on top: either calls above it ended without a record (a C call whose
     * return the interpreter did not report), or it began before the window. */
    size_t closed = EP_CLOSED_CALL(stack->calls, site_id, stack->depth, id);
    stack->depth = closed > 0 ? closed - 1 : stack->depth;
}

/* ep_open_stack_apply() for the call form, its usual cases inline. */
static inline void
apply_call(ep_open_stack *stack, unsigned kind, uint32_t id)
{
    size_t depth = stack->depth;
    if (ep_kinds[kind].pairing == EP_PAIRING_OPENS) {
        if (EP_LIKELY(depth < stack->capacity)) {
            stack->calls[depth] = (ep_open_call){.site_id = id, .kind = (uint8_t)kind};
            stack->depth = depth + 1;
            return;
        }
    } else if (depth > 0 && ep_site_callee(stack->calls[depth - 1].site_id) == id) {
        stack->depth = depth - 1;
        return;
    }
    ep_open_stack_apply(stack, kind, id);
}

/* ---- Counting -------------------------------------------------------------------------------- */

ep_window_thread *
ep_recorder_thread(ep_recorder *recorder, uint64_t thread_id)
{
    if (thread_id >= recorder->thread_capacity &&
        !ep_grow((void **)&recorder->threads, &recorder->thread_capacity, thread_id + 1,
                 sizeof *recorder->threads)) {
        return NULL;
    }
    ep_window_thread **at = &recorder->threads[thread_id];
    if (*at == NULL) {
        *at = ep_calloc(1, sizeof **at);
    }
    return *at;
}

/* The bulk of ep_loss_count(): a sealed chunk's records up to the next that is not an event, all of one
 * thread, none before the word-0 tick `first`. The writer waits meanwhile, so this loop does not use
 * ep_cursor_next() nor a function call for each record. That saved, in ns an event of a full ring, by
 * sampling: 7.7 -> 4.2 (object churn, allocations), 5.2 -> 2.7 (richards, calls). */
static void
count_plain(ep_cursor *cursor, ep_kind_set kinds, uint32_t first, bool fold, ep_window_thread *thread)
{
    /* Two counters in turn: with one, each addition would wait for the store before. A power of two, so
     * that an index needs no multiplication. */
    uint32_t count[2][EP_KIND_COUNT] = {{0}};
    const _Atomic uint64_t *at = cursor->at;
    for (size_t i = 0; at < cursor->limit; i++) {
        /* Relaxed: sealed. */
        uint64_t word0 = atomic_load_explicit(at, memory_order_relaxed);
        unsigned kind = EP_WORD0_KIND(word0);
        if (EP_UNLIKELY(EP_WORD0_TICKS(word0) < first)) {
            break;
        }
        if (kind - 1u <= EP_KIND_C_EXCEPTION - 1u) {
            if (fold && ((uint64_t)kinds >> kind & 1)) {
                apply_call(&thread->open, kind, EP_WORD0_PAYLOAD(word0));
            }
            at += 1;
        } else if (kind - EP_KIND_MALLOC <= EP_KIND_REALLOC_FAILED_LIBC - EP_KIND_MALLOC) {
            at += 2;
        } else if (ep_kinds[kind].words != 0 && ep_kinds[kind].form != EP_FORM_CONTROL) {
            if (fold && ep_kinds_has(kinds & ep_kinds_of_calls, kind)) {
                apply_call(&thread->open, kind, EP_WORD0_PAYLOAD(word0));
            }
            at += ep_kinds[kind].words;
        } else {
            break;
        }
        count[i & 1][kind] += 1;
    }
    cursor->at = at;
    for (unsigned kind = 0; kind < EP_KIND_END; kind++) {
        if (ep_kinds_has(kinds, kind)) {
            thread->lost[kind] += (uint64_t)count[0][kind] + count[1][kind];
        }
    }
}

void
ep_loss_count(ep_recorder *recorder, ep_cursor cursor, bool fold, ep_capture *capture)
{
    bool running = recorder->state == EP_RECORDER_RUNNING;
    uint64_t start = recorder->start.ticks;
    uint64_t stop = capture != NULL ? capture->stop.ticks : running ? UINT64_MAX
                                                                    : recorder->stop.ticks;
    ep_record record = {0};
    ep_window_thread *thread = NULL;
    uint64_t thread_id = UINT64_MAX;
    for (;;) {
        if (thread != NULL && thread_id == cursor.thread_id && stop == UINT64_MAX && !cursor.may_change &&
            !cursor.escaped && cursor.high + UINT32_MAX >= start) {
            count_plain(&cursor, recorder->options.kinds,
                        start > cursor.high ? (uint32_t)(start - cursor.high) : 0, fold, thread);
        }
        if (!ep_cursor_next(&cursor, &record) || record.ticks > stop) {
            break;
        }
        if (record.ticks < start || !ep_record_is_for(&record, recorder->options.kinds)) {
            continue;
        }
        if (EP_UNLIKELY(cursor.thread_id != thread_id)) {
            thread_id = cursor.thread_id;
            thread = capture != NULL ? &capture->threads[thread_id]
                                     : ep_recorder_thread(recorder, thread_id);
        }
        if (EP_UNLIKELY(thread == NULL)) {
            /* There is no thread to count for. While the recorder runs, `unlogged` is the value at the
             * start, which is subtracted at the stop: one less here is one more lost event. */
            recorder->unlogged[record.kind] += running ? UINT64_MAX : 1;
            continue;
        }
        thread->lost[record.kind] += 1;
        if (fold) {
            ep_open_stack_apply(&thread->open, record.kind, record.id);
        }
    }
}

static EP_ENGINE_LOCKED void
count_scratch(ep_recorder *recorder, const ep_log *log, ep_capture *capture)
{
    if (log->closed) {
        return;    /* counted when the clock changed */
    }
    ep_cursor cursor = {.at = log->scratch,
                        .limit = log->scratch + EP_SCRATCH_WORDS - 1,
                        .thread_id = log->scratch_thread,
                        .may_change = true};
    ep_loss_count(recorder, cursor, false, capture);
}

void
ep_loss_count_scratch(const ep_log *log)
{
    for (ep_recorder *r = ep_engine.recorders; r != NULL; r = r->next) {
        count_scratch(r, log, NULL);
        if (r == ep_engine.file_recorder) {
            ep_file_recorder_put_state(r, UINT64_MAX);
        }
    }
}

void
ep_loss_count_unsealed(ep_recorder *recorder, ep_capture *capture)
{
    for (ep_log *log = ep_engine.logs; log != NULL; log = log->next_log) {
        if (log->chunk == NULL) {
            count_scratch(recorder, log, capture);
        } else if (log->chunk->sequence >= recorder->full_sequence) {
            ep_loss_count(recorder, ep_cursor_begin(log->chunk->header), false, capture);
        }
    }
    for (ep_chunk *chunk = ep_engine.partial_chunks; chunk != NULL; chunk = chunk->next) {
        if (chunk->sequence >= recorder->full_sequence) {
            ep_loss_count(recorder, ep_cursor_begin(chunk->header), false, capture);
        }
    }
}
