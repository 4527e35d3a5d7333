/* One thread's log: the inline functions that hooks call, and the reading of records.
 *
 * Only its thread writes a log; any thread may read it. The engine decides what happens when a chunk is
 * full, who keeps it and what is lost (ep_log_next_chunk).
 *
 *   chunk 3 (sealed)   chunk 9 (current)
 *   [rrrrrrrrrrrr]     [rrrrrr0.....|slack]
 *                             ^next ^end */
#ifndef EP_LOG_H
#define EP_LOG_H

#include "clock.h"
#include "fault.h"
#include "names.h"
#include "thread.h"
#include "types.h"

typedef struct ep_chunk ep_chunk;
typedef struct ep_lanes ep_lanes;

/* Room for counting when no chunk can be had; the same code then counts and drops its records. */
#define EP_SCRATCH_WORDS 128

typedef enum ep_left_out {
    EP_LEFT_OUT_DEEP,
    EP_LEFT_OUT_SHORT,
    EP_LEFT_OUT_COUNT
} ep_left_out;

typedef struct ep_gate_call {
    uint64_t ticks;            /* full; 0: it was open when the window began */
    _Atomic uint64_t *at;      /* its record; NULL: not recorded, too deep. Stale once the chunk is
                                  full: compare before use */
    uint32_t site;
    uint8_t kind;
} ep_gate_call;

/* A thread's open calls, for gate.h. Only the owner uses it, except for left_out. */
typedef struct ep_gate_stack {
    ep_gate_call *calls;
    size_t depth, capacity;
    size_t before;             /* the first so many were open when the window began */
    uint64_t generation;       /* of the limits; if it is not the gate's, the stack is built again */
    bool records_all;          /* no memory, or its limits are off: every call is recorded */
    _Atomic uint64_t left_out[EP_LEFT_OUT_COUNT];    /* calls; ever */
} ep_gate_stack;

/* The thread has no name yet; some of its open calls are unsettled (ep_engine_unsettle). */
#define EP_TODO_NAMELESS UINT32_C(1)
#define EP_TODO_UNSETTLED UINT32_C(2)
/* Never reset: the end of a call may come whose begin was left out (source_profile.c). */
#define EP_TODO_HALVES UINT32_C(4)
/* Until it is reset: the thread executes our own code, not the program's (own_blocks.h). */
#define EP_TODO_MUTED UINT32_C(8)
/* Labels are in use: a call that begins may have others than the one before (labels.h); they were not
 * written to this log since a window began. */
#define EP_TODO_LABELS UINT32_C(16)
#define EP_TODO_LABELS_ANEW UINT32_C(32)
/* Slices are open that an exception began: the sources must see how each slice ends (thrown.c). */
#define EP_TODO_THROWN UINT32_C(64)
/* It is time to look at the thread's processor time (source_waits.c). */
#define EP_TODO_PROCESSOR UINT32_C(128)
/* The thread may switch stacks of calls, and that is not watched yet (greenlets.c). */
#define EP_TODO_STACKS UINT32_C(256)

/* Inside our own code; inside an allocator of the runtime's that is recorded. */
#define EP_BUSY_OWN UINT32_C(1)
/* Together with EP_BUSY_OWN: blocks that are freed meanwhile are also our own. */
#define EP_BUSY_OURS (UINT32_C(1) << 31)
/* Not in a log, but in what ep_py_enter_own() gives: own_is_recorded was set. */
#define EP_BUSY_EVENTS (UINT32_C(1) << 30)
#define EP_BUSY_IN(domain) (UINT32_C(2) << (domain))
/* The domains of the enclosing allocators in a log's busy flag, without `own`; as in EP_ESCAPE_WITHIN. */
#define EP_BUSY_AROUND(busy, own) ((busy) >> 1 & ~(UINT32_C(1) << (own)))

#define EP_LABELS_DEFINED 8    /* a power of 2 */

typedef struct ep_log {
    /* No record may begin at or after it; SLACK words follow. Under the engine's lock other threads may
     * move it down to the first word, so that the next record leaves the chunk. First, and on a page of its
     * own that is zero in a forked child: there the next record leaves the chunk, too, which is the
     * parent's, although the child was made without fork() (ep_engine_leave_parent). */
    _Atomic uint64_t *_Atomic end;
    /* owner thread only */
    _Atomic uint64_t *next;          /* first free word; it is 0 */
    uint32_t high;                   /* high half of the last record's ticks */
    uint32_t busy;                   /* EP_BUSY_OWN and so on: where the thread is, 0 = in the program */
    _Atomic uint64_t *last_block;    /* the last allocation record that may be removed... */
    _Atomic uint64_t *block_before;  /* ...and the allocation record before it, until one was removed */
    /* EP_TODO_*: what a source must do before its next event. Other threads set bits, too */
    _Atomic uint32_t todo;
    uint32_t own_calls;              /* for the sources: open calls that our code made and that are not
                                      * recorded */
    uint64_t asked;                  /* bytes that the outermost of the allocators was asked for that the
                                      * thread is in; for the sources */
    uint64_t not_before;             /* ticks of the last event that came up inside our own code: that of
                                        the hook around it, whose clock was read before, is not earlier */
    const void *state;               /* for the sources: the runtime's state of this thread */
    /* for the source of labels (labels.c) */
    uint64_t label_set;              /* id of the labels that were written last; 0: none */
    uint64_t label_version;          /* of the thread's context then */
    const ep_chunk *label_chunk;     /* in which that was */
    uint64_t label_defined[EP_LABELS_DEFINED];    /* some of the ids that are defined in that chunk, each
                                        at its own place; 0: none */
    /* changed by the owner under the engine's lock; others read it under the lock */
    ep_chunk *chunk;                 /* NULL: writing into scratch */
    bool closed;                     /* its records use an earlier clock: no window begins here */
    uint32_t next_bytes;             /* size of its next chunk, if no limit makes it smaller; 0: it had
                                      * none */
    /* Immortal: outlives the log. The entry of the stack of calls that runs, which the owner changes
     * (lanes.h): of the thread itself, or of a lane. Relaxed is enough: others read the entry's address
     * only to compare it, or its constant fields. */
    ep_thread *_Atomic thread;
    ep_lanes *lanes;                 /* owner only; NULL: the thread has never switched stacks */
    uint32_t lanes_recording;        /* the caller's of lanes.h: the recording in which they began */
    uint32_t scratch_thread;         /* id of the entry whose records are first in the scratch */
    /* constant */
    struct ep_log *next_log;         /* the engine's list; under its lock */
    ep_gate_stack gate;
    _Atomic uint64_t scratch[EP_SCRATCH_WORDS];
    ep_recent recent;                /* owner only */
    bool own_is_recorded;            /* owner only: blocks of our own code are events (ep_py_mute_calls) */
} ep_log;

/* The page that is zero in a forked child has these last bytes in use. */
#define EP_LOG_WIPED_BYTES sizeof(((ep_log *)NULL)->end)

/* NULL until the thread's first event. Initial-exec (meson.build): one load, no call. A pointer, never the
 * struct: static TLS has room for little (16 KiB failed to load on 3.11-3.13). */
extern _Thread_local ep_log *ep_log_current;

/* The calling thread's log, made on first use. Call it before reading the clock: the ticks of a first event
 * must not be older than its log, or the event could belong to a window that is closed already. NULL: no
 * memory, or the thread is past its end; then call ep_engine_count_unlogged(). */
EP_COLD ep_log *ep_log_attach(void);

static inline ep_log *
ep_log_mine(void)
{
    ep_log *log = ep_log_current;
    return EP_LIKELY(log != NULL) ? log : ep_log_attach();
}

/* Slow paths: a new chunk, a SYNC or ESCAPEs first, then the record. */
EP_COLD void ep_log_put_slow(ep_log *log, uint64_t ticks, ep_kind kind, uint32_t payload);
EP_COLD void ep_log_put_free_slow(ep_log *log, uint64_t ticks, ep_kind kind, uint32_t site,
                                  uint64_t address);
EP_COLD void ep_log_put_block_slow(ep_log *log, uint64_t ticks, ep_kind kind, uint64_t size,
                                   uint64_t address, uint32_t site);
/* For a block that an allocator takes from another one: EP_ESCAPE_WITHIN, then the record. */
EP_COLD void ep_log_put_free_within(ep_log *log, uint64_t ticks, ep_kind kind, uint32_t site,
                                    uint64_t address, uint32_t within);
EP_COLD void ep_log_put_block_within(ep_log *log, uint64_t ticks, ep_kind kind, uint64_t size,
                                     uint64_t address, uint32_t site, uint32_t within);

/* Whether a record needs the slow path: there is no room, or the high half of the clock changed. */
static inline bool
ep_log_needs_slow(const ep_log *log, ep_ticks ticks)
{
    /* Relaxed: it is enough if some later record sees that `end` was moved. */
    return log->next >= atomic_load_explicit(&log->end, memory_order_relaxed) ||
           ticks.high != log->high;
}

/* How many bytes ahead of the records cache lines are fetched. Their pages are new, or were last used one
 * round of the ring ago, so no cache has them, and the next reading of the clock would wait for the store.
 * It saves, in ns an event over the empty hook: the C library's blocks 1.5 of 16.5, blocks 1 of 17,
 * instructions 0.5 of 17, calls 0 to 1 of 13. Half, twice and four times the distance save as much or
 * less. */
#define EP_LOG_AHEAD 512

/* The word after the record is zeroed before word 0 is released: a reader that meets a non-zero
 * word 0 (acquire, ep_cursor_next) sees the whole record and a valid end of the log after it. */
static inline void
ep_log_publish(_Atomic uint64_t *at, int words, uint64_t word0)
{
    EP_FAULT_POINT(WRITE);
    __builtin_prefetch((const void *)((uintptr_t)at + EP_LOG_AHEAD), 1);
    atomic_store_explicit(&at[words], 0, memory_order_relaxed);    /* ordered by the release below */
    EP_FAULT_POINT(PUBLISH);
    atomic_store_explicit(&at[0], word0, memory_order_release);
    EP_FAULT_POINT(PUBLISHED);
}

/* HOT, budget 2 ns. A record of the CALL or POINT form. payload: a name id (CLOSES), else a site
 * id. */
static inline void
ep_log_put_at(ep_log *log, ep_ticks ticks, ep_kind kind, uint32_t payload)
{
    if (EP_UNLIKELY(ep_log_needs_slow(log, ticks))) {
        ep_log_put_slow(log, ep_ticks_whole(ticks), kind, payload);
        return;
    }
    _Atomic uint64_t *at = log->next;
    ep_log_publish(at, 1, EP_WORD0(ticks.low, kind, payload));
    log->next = at + 1;
}

static inline void
ep_log_put(ep_log *log, uint64_t ticks, ep_kind kind, uint32_t payload)
{
    ep_log_put_at(log, ep_ticks_halves(ticks), kind, payload);
}

/* HOT. A record of the FREE form. */
static inline void
ep_log_put_free_at(ep_log *log, ep_ticks ticks, ep_kind kind, uint32_t site, uint64_t address)
{
    if (EP_UNLIKELY(ep_log_needs_slow(log, ticks))) {
        ep_log_put_free_slow(log, ep_ticks_whole(ticks), kind, site, address);
        return;
    }
    _Atomic uint64_t *at = log->next;
    atomic_store_explicit(&at[1], address, memory_order_relaxed);
    ep_log_publish(at, 2, EP_WORD0(ticks.low, kind, site));
    log->next = at + 2;
}

static inline void
ep_log_put_free(ep_log *log, uint64_t ticks, ep_kind kind, uint32_t site, uint64_t address)
{
    ep_log_put_free_at(log, ep_ticks_halves(ticks), kind, site, address);
}

/* HOT. A record of the VALUE form. */
static inline void
ep_log_put_value_at(ep_log *log, ep_ticks ticks, ep_kind kind, uint32_t site, uint64_t value)
{
    ep_log_put_free_at(log, ticks, kind, site, value);
}

/* HOT. A record of the ALLOC form. `for_good`, constant: neither it nor the record before it will be
 * removed. */
static inline void
ep_log_put_block_at(ep_log *log, ep_ticks ticks, ep_kind kind, uint64_t size, uint64_t address,
                    uint32_t site, bool for_good)
{
    /* An unaligned or high address has bits where there should be none: one test. */
    uint64_t shifted = address >> 3 | address << 61;
    if (EP_UNLIKELY(ep_log_needs_slow(log, ticks) || size >= EP_PAYLOAD_MAX ||
                    site > EP_ALLOC_SITE_MAX || shifted >= EP_ALLOC_ADDRESS_LIMIT >> 3)) {
        ep_log_put_block_slow(log, ep_ticks_whole(ticks), kind, size, address, site);
        return;
    }
    _Atomic uint64_t *at = log->next;
    atomic_store_explicit(&at[1], shifted << EP_ALLOC_SITE_BITS | site, memory_order_relaxed);
    ep_log_publish(at, 2, EP_WORD0(ticks.low, kind, size));
    if (!for_good) {
        log->block_before = log->last_block;
        log->last_block = at;
    }
    log->next = at + 2;
}

static inline void
ep_log_put_block(ep_log *log, uint64_t ticks, ep_kind kind, uint64_t size, uint64_t address,
                 uint32_t site)
{
    ep_log_put_block_at(log, ep_ticks_halves(ticks), kind, size, address, site, false);
}

/* The address of the thread's last record if that is an allocation, else 0. */
static inline uint64_t
ep_log_last_block(const ep_log *log)
{
    if (log->last_block == NULL || log->last_block != log->next - 2) {
        return 0;
    }
    return atomic_load_explicit(&log->last_block[1], memory_order_relaxed) >> EP_ALLOC_SITE_BITS << 3;
}

/* Removes the last record; call it only right after ep_log_last_block() returned its address. If the record
 * before it is an allocation as well, that is then the last one: one event of the interpreter allocates up
 * to two blocks. A concurrent reader may still report the two records that were just removed, at the very
 * end of a live log. (The cursor does not read on after such a record.) */
static inline void
ep_log_take_back(ep_log *log)
{
    log->next = log->last_block;
    log->last_block = log->block_before;
    log->block_before = NULL;
    atomic_store_explicit(log->next, 0, memory_order_relaxed);
    /* Release; pairs with the acquire loads and the fence of a cursor that may_change: a reader that sees
     * a word of later records also sees that this record was removed. */
    atomic_thread_fence(memory_order_release);
}

/* HOT. The address in the log's last record, if that is a record of a block; otherwise any number. */
static inline uint64_t
ep_log_address_before(const ep_log *log)
{
    /* Before a chunk's first record: the end of its header, which is 0. */
    return atomic_load_explicit(&log->next[-1], memory_order_relaxed) >> EP_ALLOC_SITE_BITS << 3;
}

/* Whether the log ends with the record of this block, however many records were removed before. Only for an
 * address that is known to be a block's: other records could look like a record of another address. */
EP_COLD bool ep_log_ends_with_block(const ep_log *log, uint64_t address);

/* Removes the last record, which the caller knows to be the begin of a call, of one word. A concurrent
 * reader may still report it, and calls around it that are removed next, at the very end of a live log. */
static inline void
ep_log_take_back_call(ep_log *log)
{
    log->next -= 1;
    atomic_store_explicit(log->next, 0, memory_order_relaxed);
    /* Release; as in ep_log_take_back(). */
    atomic_thread_fence(memory_order_release);
}

/* The last word that was written; the record of a call is one word. If the chunk has no record yet, the
 * last word of its header; 0 without a chunk. */
static inline uint64_t
ep_log_last_word(const ep_log *log)
{
    return log->chunk != NULL ? atomic_load_explicit(log->next - 1, memory_order_relaxed) : 0;
}

/* The time of an event whose clock was read before the hook did its own work. */
static inline uint64_t
ep_log_not_before(const ep_log *log, uint64_t ticks)
{
    return EP_LIKELY(ticks >= log->not_before) ? ticks : log->not_before;
}

/* ---- Reading --------------------------------------------------------------------------------- */

typedef struct ep_record {
    uint64_t ticks;        /* full */
    uint32_t kind;         /* never CONTROL */
    uint32_t id;           /* site or name id */
    uint64_t address;      /* ALLOC and FREE; VALUE: the value */
    uint64_t size;         /* ALLOC */
    uint64_t within;       /* ALLOC and FREE: EP_ESCAPE_WITHIN, mostly 0 */
} ep_record;

/* Whether a recorder of `kinds` keeps this record. */
static inline bool
ep_record_is_for(const ep_record *record, ep_kind_set kinds)
{
    return ep_kinds_has(kinds, record->kind) &&
           (EP_LIKELY(record->within == 0) || !(kinds & ep_kinds_of_domains(record->within)));
}

typedef struct ep_cursor {
    const _Atomic uint64_t *at;
    const _Atomic uint64_t *limit;    /* nothing is read at or after it */
    uint64_t high;                    /* high half, shifted into place */
    uint64_t thread_id;               /* the thread of the records from here on */
    uint64_t escape[EP_ESCAPE_COUNT];
    unsigned escaped;                 /* bits: which of them hold a value for the next record */
    bool may_change;                  /* the chunk is not sealed: its last records may be removed while they
                                       * are read */
    /* may_change: the last record of a call or block that was read, NULL if none. Earlier records can only
     * be removed after it; so while this record is unchanged, a record begins at `at`. */
    const _Atomic uint64_t *last;
    uint64_t last_word0;
    bool damaged;                     /* a record of no known kind was met; the cursor stays there */
} ep_cursor;

/* Reads one chunk from its start. Safe while its owner writes. */
ep_cursor ep_cursor_begin(const ep_chunk_header *header);
EP_COLD bool ep_cursor_control(ep_cursor *cursor, uint64_t word0);
EP_COLD bool ep_cursor_settle(ep_cursor *cursor, uint64_t word0, int words);
EP_COLD bool ep_cursor_stands(ep_cursor *cursor);
/* Copies the records that ep_cursor_next() would read, for who reads them as those of a sealed chunk: up to
 * the end of the log, or with the first record that is of no known kind. `to` has room
 * for the words up to the cursor's limit and two more. Returns: how many words were copied. */
size_t ep_cursor_copy(ep_cursor *cursor, uint64_t *to);

/* False at the end of the written records. To read later records, begin a new cursor. */
static inline bool
ep_cursor_next(ep_cursor *cursor, ep_record *record)
{
    for (;;) {
        if (EP_UNLIKELY(cursor->at >= cursor->limit)) {
            return false;
        }
        /* Acquire: pairs with ep_log_publish(). */
        uint64_t word0 = atomic_load_explicit(&cursor->at[0], memory_order_acquire);
        if (EP_UNLIKELY(word0 == 0)) {
            return false;
        }
        if (EP_UNLIKELY(cursor->last != NULL) && !ep_cursor_stands(cursor)) {
            return false;
        }
        unsigned kind = EP_WORD0_KIND(word0);
        record->ticks = cursor->high | EP_WORD0_TICKS(word0);
        record->kind = kind;
        record->within = 0;
        if (kind <= EP_KIND_C_EXCEPTION && kind != 0) {
            if (EP_UNLIKELY(cursor->may_change) && !ep_cursor_settle(cursor, word0, 1)) {
                continue;
            }
            record->id = EP_WORD0_PAYLOAD(word0);
            cursor->at += 1;
            return true;
        }
        const ep_kind_info *info = &ep_kinds[kind];
        if (info->words == 1) {
            if (EP_UNLIKELY(cursor->may_change) && !ep_cursor_settle(cursor, word0, 1)) {
                continue;
            }
            record->id = EP_WORD0_PAYLOAD(word0);
            cursor->at += 1;
            return true;
        }
        if (EP_UNLIKELY(info->words != 2 || info->form == EP_FORM_CONTROL)) {
            if (!ep_cursor_control(cursor, word0)) {
                return false;
            }
            continue;
        }
        uint64_t word1 = atomic_load_explicit(&cursor->at[1], memory_order_relaxed);
        if (info->form == EP_FORM_FREE || info->form == EP_FORM_VALUE) {
            record->id = EP_WORD0_PAYLOAD(word0);
            record->address = word1;
            record->size = 0;
            if (EP_UNLIKELY(cursor->escaped) && info->form == EP_FORM_FREE) {
                record->within = cursor->escaped & 1u << EP_ESCAPE_WITHIN ? cursor->escape[EP_ESCAPE_WITHIN]
                                                                          : 0;
                cursor->escaped = 0;
            }
        } else {
            if (EP_UNLIKELY(cursor->may_change) && !ep_cursor_settle(cursor, word0, 2)) {
                continue;
            }
            record->id = (uint32_t)word1 & EP_ALLOC_SITE_MAX;
            record->address = word1 >> EP_ALLOC_SITE_BITS << 3;
            record->size = EP_WORD0_PAYLOAD(word0);
            if (EP_UNLIKELY(cursor->escaped)) {
                if (cursor->escaped & 1u << EP_ESCAPE_SIZE) {
                    record->size = cursor->escape[EP_ESCAPE_SIZE];
                }
                if (cursor->escaped & 1u << EP_ESCAPE_ADDRESS) {
                    record->address = cursor->escape[EP_ESCAPE_ADDRESS];
                }
                if (cursor->escaped & 1u << EP_ESCAPE_SITE) {
                    record->id = (uint32_t)cursor->escape[EP_ESCAPE_SITE];
                }
                if (cursor->escaped & 1u << EP_ESCAPE_WITHIN) {
                    record->within = cursor->escape[EP_ESCAPE_WITHIN];
                }
                cursor->escaped = 0;
            }
        }
        cursor->at += 2;
        return true;
    }
}

#endif
