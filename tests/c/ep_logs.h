/* What the suites of log.h share. */
#ifndef EP_LOGS_H
#define EP_LOGS_H

#include "ep_model.h"

/* A log that writes to a chunk of its own, from its first word on. The recorder keeps the chunk. */
static ep_recorder keeper;

static inline ep_log *
fresh_log(uint64_t ticks)
{
    ep_model_setup();
    ep_engine_first_bytes = EP_CHUNK_BYTES;    /* one chunk has room for a test */
    atomic_store(&ep_model_now, ticks);
    ep_model_start(&keeper, EP_MODEL_ALL_KINDS, 1000, EP_ON_FULL_GROW, EP_CLOCK_INJECTED);
    ep_log *log = ep_log_mine();
    ck_assert_ptr_nonnull(log);
    ep_log_next_chunk(log, ticks);
    ck_assert_ptr_nonnull(log->chunk);
    return log;
}

static inline void
end_log(void)
{
    ep_recorder_clear(&keeper);
}

static inline _Atomic uint64_t *
first_word(const ep_log *log)
{
    return (_Atomic uint64_t *)(log->chunk->header + 1);
}

static inline size_t
words_used(const ep_log *log)
{
    return (size_t)(log->next - first_word(log));
}

static inline ep_model_event
event_of(const ep_record *record)
{
    ep_form form = ep_kinds[record->kind].form;
    return (ep_model_event){
        .ticks = record->ticks,
        .kind = (uint8_t)record->kind,
        .id = record->id,
        .address = ep_model_is_among_blocks(record->kind) ? record->address : 0,
        .size = form == EP_FORM_ALLOC ? (int64_t)record->size : -1,
    };
}

static inline bool
same_event(const ep_model_event *a, const ep_model_event *b)
{
    return a->ticks == b->ticks && a->kind == b->kind && a->id == b->id &&
           a->address == b->address && a->size == b->size;
}

static inline void
assert_next_is(ep_cursor *cursor, const ep_model_event *event)
{
    ep_record record = {0};
    ck_assert(ep_cursor_next(cursor, &record));
    ep_model_event read = event_of(&record);
    ck_assert_uint_eq(read.ticks, event->ticks);
    ck_assert_uint_eq(read.kind, event->kind);
    ck_assert_uint_eq(read.id, event->id);
    ck_assert_uint_eq(read.address, event->address);
    ck_assert_int_eq(read.size, event->size);
}

static inline void
assert_ends(ep_cursor *cursor)
{
    ep_record record;
    ck_assert(!ep_cursor_next(cursor, &record));
    ck_assert(!cursor->damaged);
}

/* ---- Taking back ----------------------------------------------------------------------------- */

static const ep_model_event before_block = {.ticks = 5001, .kind = EP_KIND_CALL, .id = 12347, .size = -1};
static const ep_model_event after_block = {.ticks = 5009, .kind = EP_KIND_CALL, .id = 4711, .size = -1};

#endif
