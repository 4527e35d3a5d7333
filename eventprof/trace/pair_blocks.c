/* Pairs mallocs with their frees; the contract is in pair.h. summary_memory.c has curves and groups of
 * blocks. */
#include "array.h"
#include "endings.h"
#include "invariants.h"
#include "pair.h"

/* ---- Addresses in use ------------------------------------------------------------------------ */

/* What an address was last used for. */
#define LIFE_NONE 0     /* an empty slot */
#define LIFE_ENDED 1    /* a block that was freed */
#define LIFE_OF(block) ((uint32_t)(block) + 2)
#define LIFE_BLOCK(life) ((int32_t)((life) & ~LIFE_SUSPECT) - 2)
#define LIFE_SUSPECT (UINT32_C(1) << 31)    /* its address was still in use at its birth */

#define SIZE_ELSEWHERE UINT32_MAX           /* too large for a slot: see the columns */

typedef struct slot {
    uint64_t address;
    uint32_t life;
    uint32_t size;
} slot;

/* address -> slot: open addressing, linear probing. The address of a freed block keeps its slot,
 * because allocators give it out again: a free is one store, and its next malloc another. Slots of freed
 * blocks are dropped when the table is rebuilt, so its size follows the number of living blocks (16 to 85
 * bytes a block). At most 5 slots of 8 are in use. */
typedef struct address_table {
    slot *slots;
    size_t capacity;    /* a power of two */
    unsigned shift;     /* 64 - log2(capacity) */
    size_t used;        /* slots that are not empty */
    size_t live;        /* slots with a living block */
} address_table;

#define TABLE_FIRST_SHIFT (64 - 12)

static EP_CHECKED ep_status
table_open(address_table *table, unsigned shift)
{
    *table = (address_table){.capacity = (size_t)1 << (64 - shift), .shift = shift};
    table->slots = ep_array_new_zeroed(table->capacity, sizeof *table->slots);
    return table->slots != NULL ? EP_OK : EP_NOMEM;
}

/* The first slot to look at for an address. The factor, 2^64 / golden ratio, spreads most patterns; the
 * shift before it spreads patterns of large strides (64 KiB: 0.7 probes instead of 39). */
static size_t
table_home(const address_table *table, uint64_t address)
{
    return (size_t)((address ^ address >> 12) * UINT64_C(0x9e3779b97f4a7c15) >> table->shift);
}

/* The address's slot, or the empty one where it belongs. */
static slot *
table_find(const address_table *table, uint64_t address)
{
    size_t at = table_home(table, address);
    while (table->slots[at].life != LIFE_NONE && table->slots[at].address != address) {
        at = (at + 1) & (table->capacity - 1);
    }
    return &table->slots[at];
}

#ifdef EP_CHECKS
/* block_count: of the blocks born so far. */
static void
table_check(const address_table *table, size_t block_count)
{
    size_t used = 0, live = 0;
    EP_INVARIANT(table->capacity == (size_t)1 << (64 - table->shift), "%zu slots, shift %u",
                 table->capacity, table->shift);
    for (size_t i = 0; i < table->capacity; i++) {
        const slot *at = &table->slots[i];
        if (at->life == LIFE_NONE) {
            continue;
        }
        EP_INVARIANT(table_find(table, at->address) == at, "the slot of address %#llx",
                     (unsigned long long)at->address);
        EP_INVARIANT(at->life == LIFE_ENDED || (size_t)LIFE_BLOCK(at->life) < block_count,
                     "block %d of %zu", (int)LIFE_BLOCK(at->life), block_count);
        used += 1;
        live += at->life > LIFE_ENDED;
    }
    EP_INVARIANT(used == table->used && used <= table->capacity / 8 * 5,
                 "%zu of %zu slots in use, counted were %zu", used, table->capacity, table->used);
    EP_INVARIANT(live == table->live, "%zu blocks live, counted were %zu", live, table->live);
}
#endif

/* Copies the living blocks into a new table, twice as large if they are more than 3 slots of 8. Home slots
 * are the high bits of a product, so the copy runs through both tables in order. */
static EP_COLD EP_CHECKED ep_status
table_rebuild(address_table *table)
{
    address_table rebuilt;
    unsigned shift = table->live > table->capacity / 8 * 3 ? table->shift - 1 : table->shift;
    if (table_open(&rebuilt, shift) != EP_OK) {
        return EP_NOMEM;
    }
    for (size_t i = 0; i < table->capacity; i++) {
        if (table->slots[i].life > LIFE_ENDED) {
            *table_find(&rebuilt, table->slots[i].address) = table->slots[i];
        }
    }
    rebuilt.live = table->live;
    rebuilt.used = table->live;
    free(table->slots);
    *table = rebuilt;
    EP_CHECK_INVARIANTS(table_check(table, SIZE_MAX));
    return EP_OK;
}

/* Gives the address to a block. at: its slot, from table_find(). */
static EP_CHECKED ep_status
table_settle(address_table *table, slot *at, uint64_t address, uint32_t life, int64_t size)
{
    if (at->life == LIFE_NONE) {
        if (EP_UNLIKELY(table->used >= table->capacity / 8 * 5)) {
            if (table_rebuild(table) != EP_OK) {
                return EP_NOMEM;
            }
            at = table_find(table, address);
        }
        table->used++;
        at->address = address;
    }
    table->live += at->life <= LIFE_ENDED;
    at->life = life;
    at->size = size >= 0 && size < SIZE_ELSEWHERE ? (uint32_t)size : SIZE_ELSEWHERE;
    return EP_OK;
}

/* ---- Births and deaths ----------------------------------------------------------------------- */

/* A block that was born at an address where, according to the log, `older` lived. */
typedef struct suspect {
    int32_t block;
    int32_t older;
} suspect;

typedef struct block_pairing {
    ep_blocks blocks;
    address_table table;
    uint8_t roles[EP_KIND_COUNT];    /* ep_block_role */
    suspect *suspects;    /* in order of birth */
    size_t suspect_count;
    size_t suspect_capacity;
    uint32_t *moving;     /* by thread: 1 + the allocator event of the realloc_free whose realloc is
                             still to come; 0: none */
} block_pairing;

static void
block_pairing_clear(block_pairing *pairing)
{
    free(pairing->table.slots);
    free(pairing->suspects);
    free(pairing->moving);
    ep_blocks_clear(&pairing->blocks);
}

static EP_CHECKED ep_status
block_pairing_open(block_pairing *pairing, const ep_pair_input *input)
{
    ep_blocks *blocks = &pairing->blocks;
    size_t event_count = input->columns->alloc_count;
    if (input->columns->count > EP_PAIR_MAX) {
        return EP_ARGUMENT;
    }

    for (unsigned kind = 0; kind < EP_KIND_COUNT; kind++) {
        pairing->roles[kind] = (uint8_t)ep_block_role_of(kind);
    }
    blocks->input = input;
    blocks->birth = ep_column_new(event_count, sizeof *blocks->birth);
    blocks->death = ep_column_new(event_count, sizeof *blocks->death);
    blocks->previous = ep_column_new(event_count, sizeof *blocks->previous);
    blocks->flags = ep_column_new(event_count, sizeof *blocks->flags);
    blocks->event_block = ep_column_new(event_count, sizeof *blocks->event_block);
    pairing->moving = ep_calloc(input->thread_count, sizeof *pairing->moving);
    if (blocks->birth == NULL || blocks->death == NULL || blocks->previous == NULL ||
        blocks->flags == NULL || blocks->event_block == NULL || pairing->moving == NULL) {
        return EP_NOMEM;
    }
    return table_open(&pairing->table, TABLE_FIRST_SHIFT);
}

static int32_t
alloc_thread(const ep_pair_input *input, size_t event)
{
    return input->columns->thread[ep_alloc_row(input, event)];
}

static int64_t
alloc_time(const ep_pair_input *input, size_t event)
{
    return input->columns->time_ns[ep_alloc_row(input, event)];
}

static void
end_block(ep_blocks *blocks, int32_t block, size_t event, uint32_t size)
{
    blocks->death[block] = (uint32_t)event;
    blocks->event_block[event] = block;
    blocks->input->columns->size[event] =
        size != SIZE_ELSEWHERE ? (int64_t)size : ep_block_size(blocks, (size_t)block);
}

/* A block is born where another one lives: a later event may show how the older one ended. */
static EP_COLD EP_CHECKED ep_status
suspect_add(block_pairing *pairing, int32_t block, int32_t older)
{
    if (!ep_grow((void **)&pairing->suspects, &pairing->suspect_capacity,
                 pairing->suspect_count + 1, sizeof *pairing->suspects)) {
        return EP_NOMEM;
    }
    pairing->suspects[pairing->suspect_count++] = (suspect){.block = block, .older = older};
    return EP_OK;
}

/* The older block of a suspect. */
static int32_t
suspect_older(const block_pairing *pairing, int32_t block)
{
    size_t low = 0;
    size_t high = pairing->suspect_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (pairing->suspects[middle].block <= block) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return pairing->suspects[low].older;
}

/* Handles a free of a suspect's address. True: it was the free of the older block, logged too late, and has
 * ended that block; the suspect lives on, and is no suspect any more. */
static EP_COLD bool
suspect_mend(block_pairing *pairing, slot *at, size_t event)
{
    ep_blocks *blocks = &pairing->blocks;
    int32_t block = LIFE_BLOCK(at->life);
    size_t birth = blocks->birth[block];
    if (!ep_free_is_late(alloc_thread(blocks->input, birth), alloc_time(blocks->input, birth),
                         alloc_thread(blocks->input, event), alloc_time(blocks->input, event))) {
        return false;
    }
    int32_t older = suspect_older(pairing, block);
    end_block(blocks, older, event, SIZE_ELSEWHERE);
    blocks->flags[older] |= EP_BLOCK_MENDED;
    blocks->mended_count++;
    at->life = LIFE_OF(block);
    return true;
}

/* Takes the realloc_free that this realloc, or realloc_failed, belongs to.
 * Returns: its allocator event, or EP_ROW_NONE if it was not recorded. */
static uint32_t
take_moving(block_pairing *pairing, size_t event)
{
    const ep_pair_input *input = pairing->blocks.input;
    uint32_t *moving = &pairing->moving[alloc_thread(input, event)];
    uint32_t from = *moving - 1;    /* 0 becomes EP_ROW_NONE */
    *moving = 0;
    if (from != EP_ROW_NONE &&
        ep_alloc_kind(input, from)->domain != ep_alloc_kind(input, event)->domain) {
        return EP_ROW_NONE;
    }
    return from;
}

/* HOT, budget 10 ns with the slot in cache. */
static EP_CHECKED ep_status
pair_birth(block_pairing *pairing, size_t event, bool moved)
{
    ep_blocks *blocks = &pairing->blocks;
    const ep_columns *columns = blocks->input->columns;
    uint64_t address = columns->address[event];
    slot *at = table_find(&pairing->table, address);
    int32_t block = (int32_t)blocks->count++;
    uint32_t life = LIFE_OF(block);

    blocks->birth[block] = (uint32_t)event;
    blocks->death[block] = EP_ROW_NONE;
    blocks->previous[block] = -1;
    blocks->flags[block] = 0;
    blocks->event_block[event] = block;
    if (moved) {
        uint32_t from = take_moving(pairing, event);
        blocks->previous[block] = from != EP_ROW_NONE ? blocks->event_block[from] : -1;
    }
    if (EP_UNLIKELY(at->life > LIFE_ENDED)) {
        if (suspect_add(pairing, block, LIFE_BLOCK(at->life)) != EP_OK) {
            return EP_NOMEM;
        }
        life |= LIFE_SUSPECT;
    }
    return table_settle(&pairing->table, at, address, life, columns->size[event]);
}

/* HOT, budget 10 ns with the slot in cache. */
static void
pair_death(block_pairing *pairing, size_t event, bool moves)
{
    ep_blocks *blocks = &pairing->blocks;
    const ep_pair_input *input = blocks->input;
    slot *at = table_find(&pairing->table, input->columns->address[event]);

    if (moves) {
        pairing->moving[alloc_thread(input, event)] = (uint32_t)event + 1;
    }
    if (at->life <= LIFE_ENDED) {
        bool lost = alloc_time(input, event) >= input->lost_from_ns;
        *(lost ? &blocks->malloc_lost_count : &blocks->older_count) += 1;
        blocks->event_block[event] = -1;
        return;
    }
    if (EP_UNLIKELY((at->life & LIFE_SUSPECT) != 0) && suspect_mend(pairing, at, event)) {
        return;
    }
    end_block(blocks, LIFE_BLOCK(at->life), event, at->size);
    at->life = LIFE_ENDED;
    pairing->table.live--;
}

/* A realloc failed: its realloc_free did not happen. */
static EP_COLD EP_CHECKED ep_status
pair_failure(block_pairing *pairing, size_t event)
{
    ep_blocks *blocks = &pairing->blocks;
    const ep_columns *columns = blocks->input->columns;
    uint32_t from = take_moving(pairing, event);

    blocks->event_block[event] = -1;
    if (from == EP_ROW_NONE || columns->address[from] != columns->address[event]) {
        return EP_OK;
    }
    int32_t block = blocks->event_block[from];
    slot *at = table_find(&pairing->table, columns->address[event]);
    if (block < 0 || at->life > LIFE_ENDED) {
        return EP_OK;    /* unknown; or another thread was given the address, so it did end */
    }
    blocks->event_block[from] = -1;
    blocks->death[block] = EP_ROW_NONE;
    blocks->flags[block] |= EP_BLOCK_REVIVED;
    return table_settle(&pairing->table, at, columns->address[event], LIFE_OF(block),
                        ep_block_size(blocks, (size_t)block));
}

/* A slot is asked for this many events before its use: with 2 M live blocks nearly every one comes
 * from memory (25 ns an event against 41; 8 to 32 are alike). */
#define PREFETCH_EVENTS 16

static EP_CHECKED ep_status
pair_events(block_pairing *pairing, const ep_progress *progress)
{
    const ep_columns *columns = pairing->blocks.input->columns;

    for (size_t event = 0; event < columns->alloc_count; event++) {
        unsigned kind = columns->kind[columns->alloc_row[event]];
        const uint8_t role = pairing->roles[kind];
        ep_status status = EP_OK;
        if (EP_LIKELY(event + PREFETCH_EVENTS < columns->alloc_count)) {
            uint64_t soon = columns->address[event + PREFETCH_EVENTS];
            __builtin_prefetch(&pairing->table.slots[table_home(&pairing->table, soon)], 1);
        }
        if (role == EP_BLOCK_BIRTH) {
            status = pair_birth(pairing, event, ep_kind_is(kind, EP_KIND_REALLOC));
        } else if (role == EP_BLOCK_DEATH) {
            pair_death(pairing, event, ep_kind_is(kind, EP_KIND_REALLOC_FREE));
        } else if (role == EP_BLOCK_FAILURE) {
            status = pair_failure(pairing, event);
        } else {
            pairing->blocks.event_block[event] = -1;    /* a value */
        }
        if (EP_UNLIKELY(status != EP_OK)) {
            return status;
        }
        if ((event + 1) % EP_PROGRESS_ROWS == 0 &&
            !ep_progress_tell(progress, event + 1, columns->alloc_count)) {
            return EP_STATE;
        }
    }
    return EP_OK;
}

/* Ends the older blocks for which no late free came: their free was lost. */
static EP_CHECKED ep_status
end_free_lost(block_pairing *pairing)
{
    ep_blocks *blocks = &pairing->blocks;
    blocks->free_lost = ep_array_new(pairing->suspect_count, sizeof *blocks->free_lost);
    if (blocks->free_lost == NULL) {
        return EP_NOMEM;
    }
    for (size_t i = 0; i < pairing->suspect_count; i++) {
        int32_t older = pairing->suspects[i].older;
        if (blocks->death[older] == EP_ROW_NONE) {
            blocks->death[older] = blocks->birth[pairing->suspects[i].block];
            blocks->flags[older] |= EP_BLOCK_FREE_LOST;
            blocks->free_lost[blocks->free_lost_count++] = older;
        }
    }
    return EP_OK;
}

ep_status
ep_pair_blocks(const ep_pair_input *input, const ep_progress *progress, ep_blocks *out)
{
    block_pairing pairing = {0};
    ep_status status = block_pairing_open(&pairing, input);
    if (status == EP_OK) {
        status = pair_events(&pairing, progress);
    }
    if (status == EP_OK) {
        EP_CHECK_INVARIANTS(table_check(&pairing.table, pairing.blocks.count));
        status = end_free_lost(&pairing);
    }
    status = status != EP_OK ? status : ep_blocks_find_gone(&pairing.blocks);
    if (status == EP_OK) {
        *out = pairing.blocks;
        pairing.blocks = (ep_blocks){0};
    }
    block_pairing_clear(&pairing);
    return status;
}

void
ep_blocks_clear(ep_blocks *blocks)
{
    ep_column_free(blocks->birth);
    ep_column_free(blocks->death);
    ep_column_free(blocks->previous);
    ep_column_free(blocks->flags);
    ep_column_free(blocks->event_block);
    ep_column_free(blocks->free_lost);
    ep_column_free(blocks->endings);
    ep_column_free(blocks->ended_at);
    ep_column_free(blocks->gone);
    ep_column_free(blocks->address);
    ep_column_free(blocks->size);
    ep_column_free(blocks->domain);
    ep_column_free(blocks->thread);
    ep_column_free(blocks->start);
    ep_column_free(blocks->end);
    ep_column_free(blocks->call);
    ep_column_free(blocks->function);
    ep_column_free(blocks->site);
    ep_column_free(blocks->freed_in);
    ep_column_free(blocks->free_thread);
    *blocks = (ep_blocks){0};
}

/* ---- Columns --------------------------------------------------------------------------------- */

/* Sets EP_BLOCK_MOVED, EP_BLOCK_BRIEF and EP_BLOCK_LOCAL. */
static EP_CHECKED ep_status
mark_deaths(ep_blocks *blocks, const ep_calls *calls)
{
    const ep_pair_input *input = blocks->input;
    int32_t *last = ep_array_new(input->thread_count, sizeof *last);    /* birth, by thread */
    if (last == NULL) {
        return EP_NOMEM;
    }
    memset(last, -1, input->thread_count * sizeof *last);

    int32_t next_born = 0;
    const size_t count = input->columns->alloc_count;
    for (size_t from = 0, end; from < count; from = end) {
        end = ep_column_part(from, count);
        for (size_t event = from; event < end; event++) {
            int32_t block = blocks->event_block[event];
            size_t row = ep_alloc_row(input, event);
            int32_t thread = input->columns->thread[row];
            if (block == next_born) {
                last[thread] = block;
                next_born++;
            } else if (block >= 0) {
                int32_t call = ep_row_call(calls, row);
                unsigned marks = last[thread] == block ? EP_BLOCK_BRIEF : 0;
                if (call >= 0 && call == blocks->call[block]) {
                    marks |= EP_BLOCK_LOCAL;
                }
                if (ep_kind_is(input->columns->kind[row], EP_KIND_REALLOC_FREE)) {
                    marks = EP_BLOCK_MOVED;
                }
                /* Most blocks have none, and writing their flags would be a cache miss. */
                if (marks != 0) {
                    blocks->flags[block] |= (uint8_t)marks;
                }
            }
        }
    }
    free(last);
    blocks->filled |= EP_BLOCKS_FLAGS;
    return EP_OK;
}

ep_status
ep_blocks_fill(ep_blocks *blocks, const ep_calls *calls, unsigned wanted)
{
    const ep_pair_input *input = blocks->input;
    const ep_columns *columns = input->columns;

    if ((wanted & EP_BLOCKS_FLAGS) != 0) {
        wanted |= EP_BLOCKS_CALL;
    }
    EP_COLUMN_FILL(blocks, address, wanted & EP_BLOCKS_ADDRESS,
                   columns->address[blocks->birth[i]]);
    EP_COLUMN_FILL(blocks, size, wanted & EP_BLOCKS_SIZE,
                   ep_block_size(blocks, i));
    EP_COLUMN_FILL(blocks, domain, wanted & EP_BLOCKS_DOMAIN,
                   ep_alloc_kind(input, blocks->birth[i])->domain);
    EP_COLUMN_FILL(blocks, thread, wanted & EP_BLOCKS_THREAD,
                   alloc_thread(input, blocks->birth[i]));
    EP_COLUMN_FILL(blocks, start, wanted & EP_BLOCKS_START,
                   alloc_time(input, blocks->birth[i]));
    EP_COLUMN_FILL(blocks, end, wanted & EP_BLOCKS_END,
                   blocks->death[i] == EP_ROW_NONE ? -1 : alloc_time(input, blocks->death[i]));
    EP_COLUMN_FILL(blocks, call, wanted & EP_BLOCKS_CALL,
                   ep_block_call(blocks, calls, i));
    EP_COLUMN_FILL(blocks, function, wanted & EP_BLOCKS_FUNCTION,
                   ep_site_function(input->map, ep_block_site(blocks, i)));
    EP_COLUMN_FILL(blocks, site, wanted & EP_BLOCKS_SITE,
                   ep_block_site(blocks, i));
    EP_COLUMN_FILL(blocks, freed_in, wanted & EP_BLOCKS_FREED_IN,
                   ep_block_was_freed(blocks, i)
                       ? ep_row_call(calls, ep_alloc_row(input, blocks->death[i]))
                       : -1);
    EP_COLUMN_FILL(blocks, free_thread, wanted & EP_BLOCKS_FREE_THREAD,
                   ep_block_was_freed(blocks, i) ? alloc_thread(input, blocks->death[i]) : -1);

    if ((wanted & ~blocks->filled & EP_BLOCKS_FLAGS) != 0) {
        return mark_deaths(blocks, calls);
    }
    return EP_OK;
}

size_t
ep_blocks_moment(const ep_pair_input *input, int64_t time_ns)
{
    size_t low = 0;
    size_t high = input->columns->alloc_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (alloc_time(input, middle) <= time_ns) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}
