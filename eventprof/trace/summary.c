/* Statistics by function and by call; memory over time is in summary_memory.c. */
#include "summary.h"

#include <string.h>

#include "worker.h"
#include "array.h"

/* ---- Quantiles ------------------------------------------------------------------------------- */

/* Exact selection, digit by digit: a histogram of the highest digit gives that digit of the wanted value, a
 * histogram of the next digit among the values with that highest digit gives the next, and so on. The time
 * is linear for all values, and the array is not changed, so it serves all three quantiles. */
#define DIGIT_BITS 8
#define DIGITS (1 << DIGIT_BITS)

/* The value with exactly `rank` values before it in order. None is negative, or more than max. */
static int64_t
select_rank(const int64_t *values, size_t count, size_t rank, int64_t max)
{
    unsigned shift = 0;
    uint64_t found = 0;    /* the digits above `shift` */
    while (shift < 64 - DIGIT_BITS && (uint64_t)max >> shift >> DIGIT_BITS != 0) {
        shift += DIGIT_BITS;
    }
    for (;; shift -= DIGIT_BITS) {
        uint32_t histogram[DIGITS] = {0};
        for (size_t i = 0; i < count; i++) {
            uint64_t digits = (uint64_t)values[i] >> shift;
            histogram[digits % DIGITS] += digits >> DIGIT_BITS == found;
        }
        unsigned digit = 0;
        while (rank >= histogram[digit]) {
            rank -= histogram[digit++];
        }
        found = found << DIGIT_BITS | digit;
        if (shift == 0) {
            return (int64_t)found;
        }
    }
}

/* The rank of the smallest value that `percent` % of the values do not exceed (nearest rank). */
static size_t
percent_rank(size_t count, unsigned percent)
{
    return (count * percent + 99) / 100 - 1;
}

static int64_t
select_percent(const int64_t *values, size_t count, unsigned percent, int64_t max)
{
    return select_rank(values, count, percent_rank(count, percent), max);
}

/* ---- Calls by function ----------------------------------------------------------------------- */

/* The row of a function; the last row is for "no function". */
static ep_function_stats *
stats_of(const ep_summary *summary, int32_t function)
{
    return &summary->rows[function >= 0 ? (size_t)function : summary->count - 1];
}

static bool
is_whole(const ep_calls *calls, size_t call)
{
    return (calls->flags[call] & EP_CALL_CUT) == 0;
}

static void
add_calls(ep_summary *summary, const ep_calls *calls)
{
    for (size_t call = 0; call < calls->count; call++) {
        ep_function_stats *stats = stats_of(summary, calls->function[call]);
        int64_t duration = calls->duration[call];
        bool recursive = (calls->flags[call] & EP_CALL_RECURSIVE) != 0;
        if (call >= calls->before_count) {
            uint8_t kind = ep_call_kind(calls, call);
            bool begins = kind != EP_KIND_RESUME && kind != EP_KIND_THROW;
            stats->calls += begins;
            stats->resumes += !begins;
            stats->recursive += recursive;
        }
        stats->total += recursive ? 0 : duration;
        stats->self += calls->self[call];
        stats->whole += is_whole(calls, call);
    }
}

/* The durations of whole slices, function by function, in the order of the rows.
 * Returns: new. Fails: NULL, out of memory. */
static int64_t *
durations_by_function(const ep_summary *summary, const ep_calls *calls)
{
    size_t *next = ep_calloc(summary->count, sizeof *next);
    int64_t *grouped = ep_array_new(calls->count, sizeof *grouped);
    if (next == NULL || grouped == NULL) {
        free(next);
        free(grouped);
        return NULL;
    }
    for (size_t i = 1; i < summary->count; i++) {
        next[i] = next[i - 1] + (size_t)summary->rows[i - 1].whole;
    }
    for (size_t call = 0; call < calls->count; call++) {
        if (is_whole(calls, call)) {
            size_t row = (size_t)(stats_of(summary, calls->function[call]) - summary->rows);
            grouped[next[row]++] = calls->duration[call];
        }
    }
    free(next);
    return grouped;
}

/* Few values are sorted: clearing histograms would take longer than everything else (1 us a function). */
#define FEW 16

static void
describe_few(ep_function_stats *stats, const int64_t *values, size_t count)
{
    int64_t sorted[FEW];
    for (size_t i = 0; i < count; i++) {
        size_t at = i;
        for (; at > 0 && sorted[at - 1] > values[i]; at--) {
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = values[i];
    }
    stats->p50 = sorted[percent_rank(count, 50)];
    stats->p95 = sorted[percent_rank(count, 95)];
    stats->p99 = sorted[percent_rank(count, 99)];
}

/* From mean to p99, over the durations of the whole slices. */
static void
describe(ep_function_stats *stats, const int64_t *durations)
{
    size_t count = (size_t)stats->whole;
    if (count == 0) {
        stats->mean = -1;
        stats->min = stats->max = stats->p50 = stats->p95 = stats->p99 = -1;
        return;
    }
    uint64_t sum = 0;    /* nested calls count several times, so a file can make the sum wrap */
    stats->min = stats->max = durations[0];
    for (size_t i = 0; i < count; i++) {
        sum += (uint64_t)durations[i];
        stats->min = durations[i] < stats->min ? durations[i] : stats->min;
        stats->max = durations[i] > stats->max ? durations[i] : stats->max;
    }
    stats->mean = (double)sum / (double)count;
    if (count <= FEW) {
        describe_few(stats, durations, count);
        return;
    }
    stats->p50 = select_percent(durations, count, 50, stats->max);
    stats->p95 = select_percent(durations, count, 95, stats->max);
    stats->p99 = select_percent(durations, count, 99, stats->max);
}

static EP_CHECKED ep_status
add_distributions(ep_summary *summary, const ep_calls *calls)
{
    int64_t *grouped = durations_by_function(summary, calls);
    if (grouped == NULL) {
        return EP_NOMEM;
    }
    const int64_t *durations = grouped;
    for (size_t i = 0; i < summary->count; i++) {
        describe(&summary->rows[i], durations);
        durations += summary->rows[i].whole;
    }
    free(grouped);
    return EP_OK;
}

/* ---- Memory by function ---------------------------------------------------------------------- */

static void
add_events(ep_summary *summary, const ep_calls *calls, const ep_blocks *blocks)
{
    const ep_pair_input *input = blocks->input;
    int32_t next_born = 0;
    for (size_t event = 0; event < input->columns->alloc_count; event++) {
        int32_t block = blocks->event_block[event];
        if (block < 0) {
            continue;
        }
        size_t row = ep_alloc_row(input, event);
        ep_function_stats *stats = stats_of(summary, ep_row_function(input, calls, row));
        int64_t size = input->columns->size[event];
        bool born = block == next_born;
        next_born += born;
        stats->allocated += born ? size : 0;
        stats->freed += born ? 0 : size;
        stats->blocks += born;
    }
    for (size_t i = 0; i < blocks->free_lost_count; i++) {
        stats_of(summary, -1)->freed += ep_block_size(blocks, (size_t)blocks->free_lost[i]);
    }
}

static void
add_blocks(ep_summary *summary, const ep_calls *calls, const ep_blocks *blocks)
{
    const ep_pair_input *input = blocks->input;
    ep_peak peak = ep_summary_peak(blocks, EP_DOMAINS_ALL);

    for (size_t block = 0; block < blocks->count; block++) {
        size_t row = ep_alloc_row(input, blocks->birth[block]);
        ep_function_stats *stats = stats_of(summary, ep_row_function(input, calls, row));
        int64_t size = ep_block_size(blocks, block);
        bool at_peak = ep_block_lives(blocks, block, peak.moment);
        bool alive = blocks->death[block] == EP_ROW_NONE;
        bool temporary = (blocks->flags[block] & EP_BLOCK_TEMPORARY) != 0;
        stats->peak_live += at_peak ? size : 0;
        stats->alive += alive ? size : 0;
        stats->alive_blocks += alive;
        stats->temporary += temporary ? size : 0;
        stats->temporary_blocks += temporary;
    }
    for (size_t i = 0; i < summary->count; i++) {
        ep_function_stats *stats = &summary->rows[i];
        stats->net = stats->allocated - stats->freed;
        stats->churn = stats->allocated - stats->alive;
    }
}

/* ---- Memory by function, with all that it called --------------------------------------------- */

/* A figure of blocks, and where its sum stands. */
typedef enum figure {
    ALLOCATED,
    FREED,
    BLOCKS,
    LIVE,
    TEMPORARY,
    AT_PEAK,
    FIGURES
} figure;

static int64_t *
sum_of(ep_memory_below *sums, figure which)
{
    switch (which) {
        case ALLOCATED:
            return &sums->allocated;
        case FREED:
            return &sums->freed;
        case BLOCKS:
            return &sums->blocks;
        case LIVE:
            return &sums->live;
        case TEMPORARY:
            return &sums->temporary;
        case AT_PEAK:
        case FIGURES:
            break;
    }
    return &sums->at_peak;
}

/* What a block adds to a figure of the call that made it. */
static int64_t
figure_of(const ep_blocks *blocks, size_t block, figure which, size_t peak_moment)
{
    int64_t size = ep_block_size(blocks, block);
    switch (which) {
        case ALLOCATED:
            return size;
        case BLOCKS:
            return 1;
        case LIVE:
            return blocks->death[block] == EP_ROW_NONE ? size : 0;
        case TEMPORARY:
            return (blocks->flags[block] & EP_BLOCK_TEMPORARY) != 0 ? size : 0;
        case AT_PEAK:
            return ep_block_lives(blocks, block, peak_moment) ? size : 0;
        case FREED:
        case FIGURES:
            break;
    }
    return 0;
}

typedef struct sums_below {
    ep_summary *summary;
    const ep_calls *calls;
    const ep_blocks *blocks;
    int64_t *of_call;    /* by call */
    figure which;
} sums_below;

/* Adds to the call that an event lies in; outside of calls to the function of its site. */
static void
add_to_row(const sums_below *b, size_t row, int64_t value)
{
    int32_t call = ep_row_call(b->calls, row);
    if (call >= 0) {
        b->of_call[call] += value;
    } else {
        const ep_pair_input *input = b->blocks->input;
        int32_t function = ep_site_function(input->map, input->columns->id[row]);
        *sum_of(&stats_of(b->summary, function)->below, b->which) += value;
    }
}

/* Adds what each block's end freed to the call that it happened in. */
static void
add_frees(const sums_below *b)
{
    const ep_pair_input *input = b->blocks->input;
    int32_t next_born = 0;
    for (size_t event = 0; event < input->columns->alloc_count; event++) {
        int32_t block = b->blocks->event_block[event];
        bool born = block == next_born;
        next_born += born;
        if (block >= 0 && !born) {
            add_to_row(b, ep_alloc_row(input, event), input->columns->size[event]);
        }
    }
    for (size_t i = 0; i < b->blocks->free_lost_count; i++) {
        stats_of(b->summary, -1)->below.freed +=
            ep_block_size(b->blocks, (size_t)b->blocks->free_lost[i]);
    }
}

static EP_CHECKED ep_status
add_below_functions(ep_summary *summary, const ep_calls *calls, const ep_blocks *blocks)
{
    size_t count = calls != NULL ? calls->count : 0;
    sums_below b = {.summary = summary, .calls = calls, .blocks = blocks};
    ep_peak peak = ep_summary_peak(blocks, EP_DOMAINS_ALL);
    b.of_call = ep_array_new(count, sizeof *b.of_call);
    if (b.of_call == NULL) {
        return EP_NOMEM;
    }
    for (b.which = ALLOCATED; b.which < FIGURES; b.which++) {
        memset(b.of_call, 0, count * sizeof *b.of_call);
        if (b.which == FREED) {
            add_frees(&b);
        }
        for (size_t block = 0; block < blocks->count && b.which != FREED; block++) {
            size_t row = ep_alloc_row(blocks->input, blocks->birth[block]);
            add_to_row(&b, row, figure_of(blocks, block, b.which, peak.moment));
        }
        for (size_t call = count; call-- > 0;) {    /* children come after their parents */
            if (calls->parent[call] >= 0) {
                b.of_call[calls->parent[call]] += b.of_call[call];
            }
            if ((calls->flags[call] & EP_CALL_RECURSIVE) == 0) {
                ep_function_stats *stats = stats_of(summary, calls->function[call]);
                *sum_of(&stats->below, b.which) += b.of_call[call];
            }
        }
    }
    for (size_t i = 0; i < summary->count; i++) {
        ep_memory_below *sums = &summary->rows[i].below;
        sums->net = sums->allocated - sums->freed;
        sums->churn = sums->allocated - sums->live;
    }
    free(b.of_call);
    return EP_OK;
}

/* ---- Waiting by function --------------------------------------------------------------------- */

void
ep_summary_waited(ep_summary *summary, const ep_calls *calls, const int64_t *waited)
{
    for (size_t call = 0; call < calls->count; call++) {
        ep_function_stats *stats = stats_of(summary, calls->function[call]);
        int32_t parent = calls->parent[call];
        stats->waited += (calls->flags[call] & EP_CALL_RECURSIVE) == 0 ? waited[call] : 0;
        stats->waited_self += waited[call];
        if (parent >= 0) {
            stats_of(summary, calls->function[parent])->waited_self -= waited[call];
        }
    }
}

/* ---- All of it ------------------------------------------------------------------------------- */

static EP_CHECKED ep_status
summarise_calls(ep_summary *summary, ep_calls *calls)
{
    if (ep_calls_fill(calls, EP_CALLS_SELF) != EP_OK) {
        return EP_NOMEM;
    }
    add_calls(summary, calls);
    return add_distributions(summary, calls);
}

static EP_CHECKED ep_status
summarise_blocks(ep_summary *summary, const ep_calls *calls, ep_blocks *blocks)
{
    if (ep_blocks_fill(blocks, calls, EP_BLOCKS_FLAGS) != EP_OK) {
        return EP_NOMEM;
    }
    add_events(summary, calls, blocks);
    add_blocks(summary, calls, blocks);
    return add_below_functions(summary, calls, blocks);
}

/* Computes the memory half on a second thread, while the caller computes that of calls. Both need the
 * functions of calls, and which are recursive. */
typedef struct memory_half {
    ep_worker apart;
    ep_calls calls;        /* a copy, because the caller fills more columns of its calls meanwhile */
    ep_blocks *blocks;
    ep_summary summary;    /* the same rows, with the fields about memory */
    ep_status status;
} memory_half;

static void
run_memory_half(void *context)
{
    memory_half *half = context;
    half->status = summarise_blocks(&half->summary, &half->calls, half->blocks);
}

/* False: the caller must compute it itself. */
static bool
memory_half_start(memory_half *half, const ep_calls *calls, ep_blocks *blocks, size_t count)
{
    if (calls == NULL || blocks == NULL || !ep_worker_pays(calls->input->columns->count)) {
        return false;
    }
    *half = (memory_half){.calls = *calls, .blocks = blocks, .summary = {.count = count}};
    half->summary.rows = ep_calloc(count, sizeof *half->summary.rows);
    if (half->summary.rows == NULL) {
        return false;
    }
    if (!ep_worker_start(&half->apart, run_memory_half, half)) {
        ep_summary_clear(&half->summary);
        return false;
    }
    return true;
}

static EP_CHECKED ep_status
memory_half_join(memory_half *half, ep_summary *into)
{
    ep_worker_join(&half->apart);
    for (size_t i = 0; i < into->count; i++) {
        const ep_function_stats *from = &half->summary.rows[i];
        ep_function_stats *stats = &into->rows[i];
        stats->below = from->below;
        stats->allocated = from->allocated;
        stats->freed = from->freed;
        stats->net = from->net;
        stats->blocks = from->blocks;
        stats->alive = from->alive;
        stats->alive_blocks = from->alive_blocks;
        stats->churn = from->churn;
        stats->temporary = from->temporary;
        stats->temporary_blocks = from->temporary_blocks;
        stats->peak_live = from->peak_live;
    }
    ep_summary_clear(&half->summary);
    return half->status;
}

ep_status
ep_summary_functions(const ep_pair_input *input, ep_calls *calls, ep_blocks *blocks,
                     const ep_progress *progress, ep_summary *out)
{
    ep_summary summary = {.count = input->map->function_count + 1};
    ep_calls no_calls = {.input = input};
    ep_status status = EP_OK;

    summary.rows = ep_calloc(summary.count, sizeof *summary.rows);
    if (summary.rows == NULL) {
        return EP_NOMEM;
    }
    if (calls != NULL && ep_calls_fill(calls, EP_CALLS_FUNCTION | EP_CALLS_RECURSIVE) != EP_OK) {
        ep_summary_clear(&summary);
        return EP_NOMEM;
    }
    memory_half half;
    bool is_apart = memory_half_start(&half, calls, blocks, summary.count);
    status = summarise_calls(&summary, calls != NULL ? calls : &no_calls);
    if (status == EP_OK && !ep_progress_tell(progress, 1, 2)) {
        status = EP_STATE;
    }
    if (is_apart) {
        ep_status of_memory = memory_half_join(&half, &summary);
        status = status != EP_OK ? status : of_memory;
    } else if (status == EP_OK && blocks != NULL) {
        status = summarise_blocks(&summary, calls, blocks);
    }
    if (status == EP_OK && !ep_progress_tell(progress, 2, 2)) {
        status = EP_STATE;
    }
    ep_calls_clear(&no_calls);
    if (status != EP_OK) {
        ep_summary_clear(&summary);
        return status;
    }
    *out = summary;
    return EP_OK;
}

void
ep_summary_clear(ep_summary *summary)
{
    free(summary->rows);
    *summary = (ep_summary){0};
}

/* ---- Memory by call -------------------------------------------------------------------------- */

static void
add_call_events(ep_call_memory *memory, const ep_calls *calls, const ep_blocks *blocks)
{
    const ep_pair_input *input = blocks->input;
    for (size_t event = 0; event < input->columns->alloc_count; event++) {
        int32_t block = blocks->event_block[event];
        int32_t call = calls->row_call[ep_alloc_row(input, event)];
        if (block < 0 || call < 0) {
            continue;
        }
        int64_t size = input->columns->size[event];
        bool born = blocks->birth[block] == event;
        memory->allocated[call] += born ? size : 0;
        memory->freed[call] += born ? 0 : size;
        memory->blocks[call] += born;
    }
}

/* Children come after their parents, so one pass from the end is enough. */
static void
add_below(ep_call_memory *memory, const ep_calls *calls)
{
    for (size_t call = calls->count; call-- > 0;) {
        int32_t parent = calls->parent[call];
        if (parent >= 0) {
            memory->allocated[parent] += memory->allocated[call];
            memory->freed[parent] += memory->freed[call];
            memory->blocks[parent] += memory->blocks[call];
        }
    }
}

ep_status
ep_summary_call_memory(const ep_calls *calls, const ep_blocks *blocks, bool below,
                       ep_call_memory *out)
{
    ep_call_memory memory = {.count = calls->count};
    memory.allocated = ep_array_new_zeroed(calls->count, sizeof *memory.allocated);
    memory.freed = ep_array_new_zeroed(calls->count, sizeof *memory.freed);
    memory.blocks = ep_array_new_zeroed(calls->count, sizeof *memory.blocks);
    if (memory.allocated == NULL || memory.freed == NULL || memory.blocks == NULL) {
        ep_call_memory_clear(&memory);
        return EP_NOMEM;
    }
    add_call_events(&memory, calls, blocks);
    if (below) {
        add_below(&memory, calls);
    }
    *out = memory;
    return EP_OK;
}

void
ep_call_memory_clear(ep_call_memory *memory)
{
    free(memory->allocated);
    free(memory->freed);
    free(memory->blocks);
    *memory = (ep_call_memory){0};
}
