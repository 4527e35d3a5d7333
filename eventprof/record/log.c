/* The slow paths of writing and reading records. chunks.c finds the chunks. */
#include "log.h"

#include "engine.h"

_Thread_local ep_log *ep_log_current;

/* Stores a two-word record where room is known to be. */
static void
put_two_words(ep_log *log, uint64_t word0, uint64_t word1)
{
    _Atomic uint64_t *at = log->next;
    atomic_store_explicit(&at[1], word1, memory_order_relaxed);
    ep_log_publish(at, 2, word0);
    log->next = at + 2;
}

bool
ep_log_ends_with_block(const ep_log *log, uint64_t address)
{
    const _Atomic uint64_t *first = log->scratch;
    if (log->chunk != NULL) {
        first = (const _Atomic uint64_t *)((const char *)log->chunk->header + EP_CHUNK_HEADER_BYTES);
    }
    if (address == 0 || log->next - first < 2) {
        return false;
    }
    uint64_t word0 = atomic_load_explicit(&log->next[-2], memory_order_relaxed);
    uint64_t word1 = atomic_load_explicit(&log->next[-1], memory_order_relaxed);
    return ep_kinds[EP_WORD0_KIND(word0)].form == EP_FORM_ALLOC &&
           ep_kinds[EP_WORD0_KIND(word0)].name != NULL &&
           word1 >> EP_ALLOC_SITE_BITS << 3 == address;
}

/* Makes ep_log_needs_slow() false for a record at `ticks`. */
static void
make_room(ep_log *log, uint64_t ticks)
{
    if (log->next >= atomic_load_explicit(&log->end, memory_order_relaxed)) {
        EP_FAULT_POINT(RESERVE);
        ep_log_next_chunk(log, ticks);
    }
    if ((uint32_t)(ticks >> 32) != log->high) {
        put_two_words(log, EP_WORD0(ticks, EP_KIND_SYNC, 0), ticks);
        log->high = (uint32_t)(ticks >> 32);
    }
    /* A SYNC may have been written past `end`; the slack has room for the record nevertheless. */
}

void
ep_log_put_slow(ep_log *log, uint64_t ticks, ep_kind kind, uint32_t payload)
{
    make_room(log, ticks);
    _Atomic uint64_t *at = log->next;
    ep_log_publish(at, 1, EP_WORD0(ticks, kind, payload));
    log->next = at + 1;
}

void
ep_log_put_free_slow(ep_log *log, uint64_t ticks, ep_kind kind, uint32_t site, uint64_t address)
{
    make_room(log, ticks);
    put_two_words(log, EP_WORD0(ticks, kind, site), address);
}

void
ep_log_put_free_within(ep_log *log, uint64_t ticks, ep_kind kind, uint32_t site, uint64_t address,
                       uint32_t within)
{
    make_room(log, ticks);
    put_two_words(log, EP_WORD0(ticks, EP_KIND_ESCAPE, EP_ESCAPE_WITHIN), within);
    put_two_words(log, EP_WORD0(ticks, kind, site), address);
}

void
ep_log_put_block_slow(ep_log *log, uint64_t ticks, ep_kind kind, uint64_t size, uint64_t address,
                      uint32_t site)
{
    ep_log_put_block_within(log, ticks, kind, size, address, site, 0);
}

void
ep_log_put_block_within(ep_log *log, uint64_t ticks, ep_kind kind, uint64_t size, uint64_t address,
                        uint32_t site, uint32_t within)
{
    make_room(log, ticks);
    _Atomic uint64_t *first = log->next;
    if (within != 0) {
        put_two_words(log, EP_WORD0(ticks, EP_KIND_ESCAPE, EP_ESCAPE_WITHIN), within);
    }
    uint64_t kept_size = size, kept_address = address;
    uint32_t kept_site = site;
    if (size >= EP_PAYLOAD_MAX) {
        put_two_words(log, EP_WORD0(ticks, EP_KIND_ESCAPE, EP_ESCAPE_SIZE), size);
        kept_size = EP_PAYLOAD_MAX;
    }
    if ((address & 7) || address >= EP_ALLOC_ADDRESS_LIMIT) {
        put_two_words(log, EP_WORD0(ticks, EP_KIND_ESCAPE, EP_ESCAPE_ADDRESS), address);
        kept_address = 0;
    }
    if (site > EP_ALLOC_SITE_MAX) {
        put_two_words(log, EP_WORD0(ticks, EP_KIND_ESCAPE, EP_ESCAPE_SITE), site);
        kept_site = 0;
    }
    /* A removed record must be the first one: escapes before it would apply to the next block. */
    log->block_before = NULL;
    log->last_block = log->next == first ? first : NULL;
    put_two_words(log, EP_WORD0(ticks, kind, kept_size),
                  kept_address >> 3 << EP_ALLOC_SITE_BITS | kept_site);
}

ep_cursor
ep_cursor_begin(const ep_chunk_header *header)
{
    const _Atomic uint64_t *words = (const _Atomic uint64_t *)(header + 1);
    size_t limit = ep_chunk_words(header) - 1;    /* the last word is a terminator at most */
    /* Acquire; pairs with the release in chunks.c: used_words is valid. */
    bool may_change = atomic_load_explicit(&header->state, memory_order_acquire) != EP_CHUNK_SEALED;
    if (!may_change && header->used_words < limit) {
        limit = header->used_words;
    }
    return (ep_cursor){
        .at = words,
        .limit = words + limit,
        .high = header->opened.ticks >> 32 << 32,
        .thread_id = header->thread_id,
        .may_change = may_change,
    };
}

static inline bool
settle(ep_cursor *cursor, uint64_t word0, int words)
{
    /* Acquire; pairs with the release of whoever removed the record: if the caller read a later word 1,
     * word 0 is another one now. Without this, arm64 may read word 1 after both loads below. */
    atomic_thread_fence(memory_order_acquire);
    /* Acquire: if the next word was written after the record was removed, so was our word 0. */
    uint64_t next_word = atomic_load_explicit(&cursor->at[words], memory_order_acquire);
    if (atomic_load_explicit(&cursor->at[0], memory_order_acquire) != word0) {
        return false;
    }
    if (next_word == 0) {
        /* The end of the log: a later read after this record could hit the middle of another record. */
        cursor->limit = cursor->at + words;
    }
    cursor->last = cursor->at;
    cursor->last_word0 = word0;
    return true;
}

/* Checks a record that its owner may remove, and overwrite with others, while we read it: of a block (two
 * words) or of a call (one word). False: the owner did; read again. */
bool
ep_cursor_settle(ep_cursor *cursor, uint64_t word0, int words)
{
    return settle(cursor, word0, words);
}

static inline bool
stands(ep_cursor *cursor)
{
    if (atomic_load_explicit(cursor->last, memory_order_acquire) == cursor->last_word0) {
        return true;
    }
    cursor->limit = cursor->at;
    return false;
}

/* Call it after reading word 0 at the cursor. False: this is not the start of a record, because the record
 * before it was removed and the log now ends, or has other records, before the cursor. */
bool
ep_cursor_stands(ep_cursor *cursor)
{
    return stands(cursor);
}

size_t
ep_cursor_copy(ep_cursor *cursor, uint64_t *to)
{
    uint64_t *end = to;
    while (cursor->at < cursor->limit) {
        /* Acquire: pairs with ep_log_publish(). */
        uint64_t word0 = atomic_load_explicit(&cursor->at[0], memory_order_acquire);
        if (word0 == 0 || (cursor->last != NULL && !stands(cursor))) {
            break;
        }
        const ep_kind_info *info = &ep_kinds[EP_WORD0_KIND(word0)];
        int words = info->words == 1 ? 1 : 2;
        end[0] = word0;
        end[1] = words == 2 ? atomic_load_explicit(&cursor->at[1], memory_order_relaxed) : 0;
        bool is_known = info->words == words && info->form != EP_FORM_CONTROL;
        if (is_known && info->form != EP_FORM_FREE && info->form != EP_FORM_VALUE &&
            !settle(cursor, word0, words)) {
            continue;
        }
        cursor->at += words;
        end += words;
        if (EP_UNLIKELY(!is_known) && EP_WORD0_KIND(word0) != EP_KIND_SYNC &&
            EP_WORD0_KIND(word0) != EP_KIND_ESCAPE && EP_WORD0_KIND(word0) != EP_KIND_THREAD) {
            break;
        }
    }
    return (size_t)(end - to);
}

bool
ep_cursor_control(ep_cursor *cursor, uint64_t word0)
{
    uint64_t word1 = atomic_load_explicit(&cursor->at[1], memory_order_relaxed);
    switch (EP_WORD0_KIND(word0)) {
        case EP_KIND_SYNC:
            cursor->high = word1 >> 32 << 32;
            break;
        case EP_KIND_THREAD:
            cursor->thread_id = word1;
            break;
        case EP_KIND_ESCAPE:
            if (EP_WORD0_PAYLOAD(word0) >= EP_ESCAPE_COUNT) {
                cursor->damaged = true;
                return false;
            }
            cursor->escape[EP_WORD0_PAYLOAD(word0)] = word1;
            cursor->escaped |= 1u << EP_WORD0_PAYLOAD(word0);
            break;
        default:
            cursor->damaged = true;
            return false;
    }
    cursor->at += 2;
    return true;
}
