/* How the table of live blocks grows; what it is, is in live_blocks.h. */
#include "live_blocks.h"

#include "array.h"
#include "memory.h"

#define FIRST_COUNT ((size_t)4096)
#define ENTRIES_AFTER ((size_t)64)    /* entries after the last home */

/* Entries that are copied at once; the old ones go back to the system then. */
#define PIECE ((size_t)1 << 20)

static void
set_count(ep_live_blocks *blocks, size_t count)
{
    blocks->count = count;
    blocks->limit = count < EP_LIVE_LARGE_COUNT ? count / 2 : count * 9 / 10;
}

ep_status
ep_live_open(ep_live_blocks *blocks)
{
    size_t end = FIRST_COUNT + ENTRIES_AFTER;
    *blocks = (ep_live_blocks){.end = end, .room = end};
    set_count(blocks, FIRST_COUNT);
    blocks->entries = ep_array_new_zeroed(end, sizeof *blocks->entries);
    return blocks->entries != NULL ? EP_OK : EP_NOMEM;
}

void
ep_live_clear(ep_live_blocks *blocks)
{
    free(blocks->entries);
    free(blocks->large);
    *blocks = (ep_live_blocks){0};
}

/* ---- Growing --------------------------------------------------------------------------------- */

/* Addresses for so many entries, and as many again: those cost nothing before they are touched. */
static EP_CHECKED ep_status
make_room(ep_live_blocks *blocks, size_t end)
{
    if (end <= blocks->room) {
        return EP_OK;
    }
    size_t room = end < EP_LIVE_LARGE_COUNT ? end : end * 2, size = sizeof *blocks->entries;
    ep_live_entry *entries = ep_array_new(room, size), *old = blocks->entries;
    if (entries == NULL && room > end) {
        room = end;
        entries = ep_array_new(room, size);
    }
    if (entries == NULL) {
        return EP_NOMEM;
    }
    for (size_t from = 0; from < blocks->end; from += PIECE) {
        size_t piece = blocks->end - from < PIECE ? blocks->end - from : PIECE;
        memcpy(&entries[from], &old[from], piece * size);
        if (piece == PIECE) {
            ep_os_give_back(&old[from], piece * size);
        }
    }
    free(old);
    blocks->entries = entries;
    blocks->room = room;
    return EP_OK;
}

/* Entries from the old end on become empty. */
static EP_CHECKED ep_status
set_end(ep_live_blocks *blocks, size_t end)
{
    if (make_room(blocks, end) != EP_OK) {
        return EP_NOMEM;
    }
    memset(&blocks->entries[blocks->end], 0, (end - blocks->end) * sizeof *blocks->entries);
    blocks->end = end;
    return EP_OK;
}

static EP_CHECKED ep_status
extend(ep_live_blocks *blocks)
{
    return set_end(blocks, blocks->end + (blocks->end - blocks->count));
}

/* The length of the longest run of entries that are used. */
static size_t
longest_run(const ep_live_blocks *blocks)
{
    size_t longest = 0, length = 0;
    for (size_t i = 0; i < blocks->end; i++) {
        length = blocks->entries[i].origin != 0 ? length + 1 : 0;
        longest = length > longest ? length : longest;
    }
    return longest;
}

/* Entries `from` .. `to` - 1, of which none is empty. */
typedef struct used {
    size_t from, to;
} used;

/* The first empty entry from a home on, which the caller uses. The homes of a run are nearly in order, and
 * without `known` each search would begin anew: a sixth of the time of a table that grows. */
static size_t
first_empty(const ep_live_blocks *blocks, size_t home, used *known)
{
    size_t at = home >= known->from && home < known->to ? known->to : home;
    while (blocks->entries[at].origin != 0) {
        at = at + 1 == known->from ? known->to : at + 1;
    }
    if (home > known->to || at < known->from) {
        *known = (used){home, at + 1};
    } else {
        known->from = home < known->from ? home : known->from;
        known->to = at + 1;
    }
    return at;
}

static EP_CHECKED ep_status
grow(ep_live_blocks *blocks)
{
    size_t count = blocks->count, old_end = blocks->end;
    size_t larger = count + (count < EP_LIVE_LARGE_COUNT ? count : count / 16);
    ep_live_entry *run = ep_array_new(longest_run(blocks), sizeof *run);
    /* However the new homes are, no block comes to stand further after the last one than before. */
    if (run == NULL || larger > UINT32_MAX ||
        set_end(blocks, larger + old_end - count + ENTRIES_AFTER) != EP_OK) {
        free(run);
        return EP_NOMEM;
    }
    set_count(blocks, larger);
    /* Homes only move towards the end. A run is taken out as a whole, before its blocks are put back: then
     * no block is after one that still has to move. */
    ep_live_entry *entries = blocks->entries;
    for (size_t end = old_end; end > 0; end--) {
        size_t begin = end;
        while (begin > 0 && entries[begin - 1].origin != 0) {
            begin--;
        }
        memcpy(run, &entries[begin], (end - begin) * sizeof *run);
        memset(&entries[begin], 0, (end - begin) * sizeof *run);
        used known = {0};
        for (size_t i = 0; i < end - begin; i++) {
            entries[first_empty(blocks, ep_live_home(blocks, run[i].address), &known)] = run[i];
        }
        if (begin == 0) {
            break;
        }
        end = begin;
    }
    free(run);
    return EP_OK;
}

/* The row of `large` for a size. Fails: UINT32_MAX. */
static uint32_t
add_large(ep_live_blocks *blocks, uint64_t size)
{
    size_t row = blocks->large_free;
    if (row != 0) {
        blocks->large_free = (size_t)blocks->large[--row];
    } else {
        row = blocks->large_count;
        if (row >= EP_LIVE_LARGE_SIZE - 1 ||
            !ep_grow_raw((void **)&blocks->large, &blocks->large_capacity, row + 1,
                         sizeof *blocks->large)) {
            return UINT32_MAX;
        }
        blocks->large_count++;
    }
    blocks->large[row] = size;
    return EP_LIVE_LARGE_SIZE + (uint32_t)row;
}

ep_status
ep_live_put_slow(ep_live_blocks *blocks, const ep_live_block *block)
{
    if (blocks->used >= blocks->limit && grow(blocks) != EP_OK) {
        return EP_NOMEM;
    }
    ep_live_entry *at = ep_live_find(blocks, block->address);
    if (at == &blocks->entries[blocks->end - 1]) {
        if (extend(blocks) != EP_OK) {
            return EP_NOMEM;
        }
        at = ep_live_find(blocks, block->address);
    }
    uint32_t size = (uint32_t)block->size;
    if (block->size >= EP_LIVE_LARGE_SIZE) {
        size = add_large(blocks, block->size);
        if (size == UINT32_MAX) {
            return EP_NOMEM;
        }
    }
    *at = (ep_live_entry){block->address, size, block->origin, block->call};
    blocks->used++;
    return EP_OK;
}

bool
ep_live_is_freed_late(const ep_columns *columns, size_t event, size_t thread_count)
{
    size_t birth_row = (size_t)columns->alloc_row[event];
    if (thread_count < 2) {
        return false;
    }
    for (size_t next = event + 1; next < columns->alloc_count; next++) {
        size_t row = (size_t)columns->alloc_row[next];
        if (columns->time_ns[row] - columns->time_ns[birth_row] > EP_PAIR_SKEW_NS) {
            return false;
        }
        ep_block_role role = ep_block_role_of(columns->kind[row]);
        if (columns->address[next] == columns->address[event] &&
            (role == EP_BLOCK_BIRTH || role == EP_BLOCK_DEATH)) {
            return role == EP_BLOCK_DEATH &&
                   ep_free_is_late(columns->thread[birth_row], columns->time_ns[birth_row],
                                   columns->thread[row], columns->time_ns[row]);
        }
    }
    return false;
}

/* ---- The life of each block ------------------------------------------------------------------ */

ep_status
ep_followed_open(ep_followed_blocks *blocks, size_t thread_count)
{
    *blocks = (ep_followed_blocks){.thread_count = thread_count};
    return ep_live_open(&blocks->live);
}

void
ep_followed_clear(ep_followed_blocks *blocks)
{
    ep_live_clear(&blocks->live);
    free(blocks->late);
    *blocks = (ep_followed_blocks){0};
}

static EP_CHECKED ep_status
begin_block(ep_followed_blocks *blocks, const ep_columns *c, size_t event, ep_block_note note)
{
    uint64_t address = c->address[event];
    ep_live_entry *at = ep_live_find(&blocks->live, address);
    if (EP_UNLIKELY(at->origin != 0)) {
        if (ep_live_is_freed_late(c, event, blocks->thread_count)) {
            if (!ep_grow_raw((void **)&blocks->late, &blocks->late_capacity, blocks->late_count + 1,
                             sizeof *blocks->late)) {
                return EP_NOMEM;
            }
            blocks->late[blocks->late_count++] = ep_live_at(&blocks->live, at);
        }
        ep_live_take(&blocks->live, at);
        at = ep_live_find(&blocks->live, address);
    }
    return ep_live_put(&blocks->live, at, address, (uint64_t)c->size[event], note.origin, note.call);
}

static void
end_block(ep_followed_blocks *blocks, uint64_t address, ep_live_block *ended)
{
    for (size_t i = 0; i < blocks->late_count; i++) {
        if (blocks->late[i].address == address) {
            *ended = blocks->late[i];
            blocks->late[i] = blocks->late[--blocks->late_count];
            return;
        }
    }
    ep_live_entry *at = ep_live_find(&blocks->live, address);
    if (at->origin != 0) {
        *ended = ep_live_at(&blocks->live, at);
        ep_live_take(&blocks->live, at);
    }
}

ep_status
ep_follow_block(ep_followed_blocks *blocks, ep_moved_block *moved, const ep_columns *c, size_t event,
                ep_block_note note, ep_live_block *ended)
{
    unsigned kind = c->kind[c->alloc_row[event]];
    uint64_t address = c->address[event];
    uint8_t domain = ep_kinds[kind].domain;
    bool moves = ep_kind_moves(kind);
    switch (ep_block_role_of(kind)) {
        case EP_BLOCK_BIRTH:
            moved->half.waits = moved->half.waits && !moves;
            return begin_block(blocks, c, event, note);
        case EP_BLOCK_DEATH: {
            ep_live_block found = {0};
            end_block(blocks, address, &found);
            *ended = found.origin != 0 ? found : *ended;
            if (moves) {
                moved->half = (ep_half_realloc){true, found.origin != 0, domain, address};
                moved->block = found;
            }
            return EP_OK;
        }
        case EP_BLOCK_FAILURE: {
            ep_live_entry *at = ep_live_find(&blocks->live, address);
            const ep_live_block *old = &moved->block;
            bool revives = ep_half_realloc_revives(&moved->half, domain, address);
            return revives && at->origin == 0
                       ? ep_live_put(&blocks->live, at, address, old->size, old->origin, old->call)
                       : EP_OK;
        }
        case EP_BLOCK_VALUE:
            return EP_OK;
    }
    return EP_OK;
}
