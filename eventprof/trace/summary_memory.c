/* Memory over time, and blocks by function, site or stack. summary.c has the sums by function and by
 * call. */
#include "array.h"
#include "hash_index.h"
#include "summary.h"

/* ---- Changes --------------------------------------------------------------------------------- */

/* Iterates over the changes of live memory, in order. A block whose free was lost ends right before the
 * birth of the next block at its address; one that was not freed, when its process ends. */
typedef struct change_cursor {
    const ep_blocks *blocks;
    unsigned domains;
    size_t event;           /* the next to look at */
    int32_t born;           /* blocks born before `event`: the next birth is that of the block with this
                             * number */
    size_t free_lost;       /* blocks before this index have ended */
    size_t ending, gone;    /* the same, of endings and gone */
    /* the change found last */
    size_t block;
    int64_t change;         /* of the number of blocks: 1 or -1 */
    int64_t bytes;          /* of live memory */
    int64_t time;
} change_cursor;

static bool
is_counted(const change_cursor *cursor)
{
    const ep_blocks *blocks = cursor->blocks;
    if (cursor->domains == EP_DOMAINS_ALL) {
        return true;    /* mostly all domains are counted; reading the kind of the birth would be a cache
                         * miss */
    }
    unsigned domain = ep_alloc_kind(blocks->input, blocks->birth[cursor->block])->domain;
    return (cursor->domains & EP_DOMAIN_BIT(domain)) != 0;
}

/* The next of the blocks that are gone before the next event. False: there is none. */
static bool
next_gone(change_cursor *cursor)
{
    const ep_blocks *blocks = cursor->blocks;
    for (; cursor->ending < blocks->ending_count; cursor->ending++) {
        const ep_block_ending *ending = &blocks->endings[cursor->ending];
        if (ending->event > cursor->event) {
            return false;
        }
        while (cursor->gone < ending->gone_to) {
            cursor->block = blocks->gone[cursor->gone++];
            cursor->change = -1;
            cursor->bytes = -ep_block_size(blocks, cursor->block);
            cursor->time = ending->end_ns;
            if (is_counted(cursor)) {
                return true;
            }
        }
    }
    return false;
}

/* The next change of a counted domain. False: there is none. */
static bool
next_change(change_cursor *cursor)
{
    const ep_blocks *blocks = cursor->blocks;
    const ep_columns *columns = blocks->input->columns;

    while (cursor->event < columns->alloc_count) {
        if (EP_UNLIKELY(cursor->ending < blocks->ending_count) && next_gone(cursor)) {
            return true;
        }
        size_t event = cursor->event;
        int32_t block = blocks->event_block[event];
        if (EP_UNLIKELY(cursor->free_lost < blocks->free_lost_count) &&
            blocks->death[blocks->free_lost[cursor->free_lost]] == event) {
            block = blocks->free_lost[cursor->free_lost++];
            cursor->change = -1;
            cursor->bytes = -ep_block_size(blocks, (size_t)block);
        } else {
            ep_column_row(cursor->event++);
            if (block < 0) {
                continue;
            }
            bool born = block == cursor->born;
            cursor->born += born;
            cursor->change = born ? 1 : -1;
            cursor->bytes = cursor->change * columns->size[event];
        }
        cursor->block = (size_t)block;
        if (is_counted(cursor)) {
            cursor->time = columns->time_ns[columns->alloc_row[event]];
            return true;
        }
    }
    return next_gone(cursor);
}

/* ---- Curve and peak -------------------------------------------------------------------------- */

ep_status
ep_summary_curve(const ep_blocks *blocks, unsigned domains, ep_curve *out)
{
    ep_curve curve = {0};
    size_t room = blocks->input->columns->alloc_count + blocks->free_lost_count + blocks->gone_count;
    curve.time = ep_column_new(room, sizeof *curve.time);
    curve.live = ep_column_new(room, sizeof *curve.live);
    curve.blocks = ep_column_new(room, sizeof *curve.blocks);
    if (curve.time == NULL || curve.live == NULL || curve.blocks == NULL) {
        ep_curve_clear(&curve);
        return EP_NOMEM;
    }
    int64_t live = 0;
    int64_t count = 0;
    change_cursor cursor = {.blocks = blocks, .domains = domains};
    while (next_change(&cursor)) {
        live += cursor.bytes;
        count += cursor.change;
        curve.time[curve.count] = cursor.time;
        curve.live[curve.count] = live;
        curve.blocks[curve.count] = count;
        curve.count++;
    }
    *out = curve;
    return EP_OK;
}

void
ep_curve_clear(ep_curve *curve)
{
    ep_column_free(curve->time);
    ep_column_free(curve->live);
    ep_column_free(curve->blocks);
    *curve = (ep_curve){0};
}

void
ep_summary_bins(const ep_blocks *blocks, unsigned domains, size_t count, ep_bin *bins)
{
    int64_t length = blocks->input->length_ns;
    change_cursor cursor = {.blocks = blocks, .domains = domains};
    bool more = next_change(&cursor);
    ep_bin now = {0};

    for (size_t k = 0; k < count; k++) {
        int64_t end = k + 1 < count ? ep_bin_start(length, count, k + 1) : INT64_MAX;
        now.min = now.max = now.last;
        for (; more && cursor.time < end; more = next_change(&cursor)) {
            now.last += cursor.bytes;
            now.blocks += cursor.change;
            now.min = now.last < now.min ? now.last : now.min;
            now.max = now.last > now.max ? now.last : now.max;
        }
        bins[k] = now;
    }
}

ep_peak
ep_summary_peak(const ep_blocks *blocks, unsigned domains)
{
    ep_peak peak = {.time = -1};
    int64_t live = 0;
    int64_t count = 0;
    change_cursor cursor = {.blocks = blocks, .domains = domains};
    while (next_change(&cursor)) {
        live += cursor.bytes;
        count += cursor.change;
        if (live > peak.live || peak.time < 0) {
            peak = (ep_peak){
                .time = cursor.time,
                .live = live,
                .blocks = count,
                .moment = cursor.event,
            };
        }
    }
    return peak;
}

/* ---- Stacks ---------------------------------------------------------------------------------- */

/* (parent, site) -> stack, while stacks are found. */
typedef struct stack_table {
    ep_stacks stacks;
    size_t parent_capacity;
    size_t site_capacity;
    ep_hash_index by_key;
} stack_table;

typedef struct stack_key {
    int32_t parent;
    uint32_t site;
} stack_key;

static void
stack_table_clear(stack_table *table)
{
    ep_hash_index_free(&table->by_key);
    ep_stacks_clear(&table->stacks);
}

static uint64_t
hash_of_stack(const void *stacks, size_t row)
{
    const ep_stacks *in = stacks;
    return ep_hash_words((uint32_t)in->parent[row], in->site[row]);
}

static bool
stack_has_key(const void *stacks, size_t row, const void *key)
{
    const ep_stacks *in = stacks;
    const stack_key *wanted = key;
    return in->parent[row] == wanted->parent && in->site[row] == wanted->site;
}

/* Makes a stack in the free slot. */
static EP_CHECKED ep_status
stack_add(stack_table *table, uint32_t *slot, int32_t parent, uint32_t site)
{
    ep_stacks *stacks = &table->stacks;
    size_t wanted = stacks->count + 1;
    if (!ep_grow_raw((void **)&stacks->parent, &table->parent_capacity, wanted,
                     sizeof *stacks->parent) ||
        !ep_grow_raw((void **)&stacks->site, &table->site_capacity, wanted,
                     sizeof *stacks->site)) {
        return EP_NOMEM;
    }
    stacks->parent[stacks->count] = parent;
    stacks->site[stacks->count] = site;
    ep_hash_index_add(&table->by_key, slot, stacks->count);
    stacks->count = wanted;
    return EP_OK;
}

static EP_CHECKED ep_status
find_stacks(stack_table *table, const ep_calls *calls)
{
    int32_t *call_stack = table->stacks.call_stack;
    for (size_t call = 0; call < calls->count; call++) {
        ep_column_row(call);
        int32_t parent = calls->parent[call] >= 0 ? call_stack[calls->parent[call]] : -1;
        uint32_t site = ep_call_site(calls, call);
        if (!ep_hash_index_reserve(&table->by_key, hash_of_stack, &table->stacks)) {
            return EP_NOMEM;
        }
        uint32_t *slot =
            ep_hash_index_slot(&table->by_key, ep_hash_words((uint32_t)parent, site), stack_has_key,
                               &table->stacks, &(stack_key){parent, site});
        if (*slot == 0 && stack_add(table, slot, parent, site) != EP_OK) {
            return EP_NOMEM;
        }
        call_stack[call] = (int32_t)*slot - 1;
    }
    return EP_OK;
}

ep_status
ep_summary_stacks(const ep_calls *calls, ep_stacks *out)
{
    stack_table table = {0};
    table.stacks.call_stack = ep_column_new(calls->count, sizeof *table.stacks.call_stack);
    if (table.stacks.call_stack == NULL || find_stacks(&table, calls) != EP_OK) {
        stack_table_clear(&table);
        return EP_NOMEM;
    }
    *out = table.stacks;
    ep_hash_index_free(&table.by_key);
    return EP_OK;
}

void
ep_stacks_clear(ep_stacks *stacks)
{
    free(stacks->parent);
    free(stacks->site);
    ep_column_free(stacks->call_stack);
    *stacks = (ep_stacks){0};
}

/* ---- Groups ---------------------------------------------------------------------------------- */

/* How blocks are grouped: the key of a block, and the range of keys. */
typedef struct group_table {
    const ep_blocks *blocks;
    const ep_calls *calls;
    const ep_stacks *stacks;
    ep_group_by by;
    size_t key_count;       /* keys are -1 .. key_count - 1 */
    ep_group *groups;       /* by key + 1 */
} group_table;

static EP_CHECKED ep_status
group_table_open(group_table *table)
{
    const ep_id_map *map = table->blocks->input->map;
    switch (table->by) {
        case EP_BY_FUNCTION:
            table->key_count = map->function_count;
            break;
        case EP_BY_SITE:
            table->key_count = map->site_count;
            break;
        case EP_BY_STACK:
            table->key_count = table->stacks->count;
            break;
    }
    table->groups = ep_array_new_zeroed(table->key_count + 1, sizeof *table->groups);
    return table->groups != NULL ? EP_OK : EP_NOMEM;
}

static int32_t
group_table_key(const group_table *table, size_t block)
{
    const ep_blocks *blocks = table->blocks;
    size_t row = ep_alloc_row(blocks->input, blocks->birth[block]);
    int32_t call = ep_row_call(table->calls, row);
    uint32_t site = blocks->input->columns->id[row];
    switch (table->by) {
        case EP_BY_FUNCTION:
            return ep_row_function(blocks->input, table->calls, row);
        case EP_BY_SITE:
            return site < table->key_count ? (int32_t)site : -1;
        case EP_BY_STACK:
            return call >= 0 ? table->stacks->call_stack[call] : -1;
    }
    return -1;
}

static void
group_table_add(group_table *table, size_t block)
{
    ep_group *group = &table->groups[group_table_key(table, block) + 1];
    group->bytes += ep_block_size(table->blocks, block);
    group->blocks++;
}

static int
largest_first(const void *left, const void *right)
{
    const ep_group *a = left;
    const ep_group *b = right;
    if (a->bytes != b->bytes) {
        return a->bytes > b->bytes ? -1 : 1;
    }
    if (a->blocks != b->blocks) {
        return a->blocks > b->blocks ? -1 : 1;
    }
    return a->key < b->key ? -1 : a->key > b->key;
}

/* Keeps the groups that have blocks, sorted. */
static ep_groups
group_table_finish(group_table *table)
{
    ep_groups groups = {.rows = table->groups};
    for (size_t i = 0; i < table->key_count + 1; i++) {
        if (table->groups[i].blocks > 0) {
            table->groups[i].key = (int32_t)i - 1;
            groups.rows[groups.count++] = table->groups[i];
        }
    }
    qsort(groups.rows, groups.count, sizeof *groups.rows, largest_first);
    return groups;
}

ep_status
ep_summary_alive(const ep_blocks *blocks, const ep_calls *calls, const ep_stacks *stacks,
                 size_t moment, ep_group_by by, ep_groups *out)
{
    group_table table = {.blocks = blocks, .calls = calls, .stacks = stacks, .by = by};
    if (group_table_open(&table) != EP_OK) {
        return EP_NOMEM;
    }
    for (size_t block = 0; block < blocks->count && blocks->birth[block] < moment; block++) {
        ep_column_row(block);
        if (ep_block_lives(blocks, block, moment)) {
            group_table_add(&table, block);
        }
    }
    *out = group_table_finish(&table);
    return EP_OK;
}

ep_status
ep_summary_temporary(const ep_blocks *blocks, const ep_calls *calls, const ep_stacks *stacks,
                     ep_group_by by, ep_groups *out)
{
    group_table table = {.blocks = blocks, .calls = calls, .stacks = stacks, .by = by};
    if (group_table_open(&table) != EP_OK) {
        return EP_NOMEM;
    }
    for (size_t block = 0; block < blocks->count; block++) {
        ep_column_row(block);
        if ((blocks->flags[block] & EP_BLOCK_TEMPORARY) != 0) {
            group_table_add(&table, block);
        }
    }
    *out = group_table_finish(&table);
    return EP_OK;
}

void
ep_groups_clear(ep_groups *groups)
{
    free(groups->rows);
    *groups = (ep_groups){0};
}
