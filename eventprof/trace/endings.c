#include "endings.h"

#include "array.h"
#include "memory.h"

static int
by_end(const void *a, const void *b)
{
    const ep_ending *x = a, *y = b;
    if (x->end_ns != y->end_ns) {
        return x->end_ns > y->end_ns ? 1 : -1;
    }
    return (x->process > y->process) - (x->process < y->process);
}

/* One more than the highest number of a process. */
static size_t
count_processes(const int32_t *thread_process, size_t thread_count)
{
    size_t count = 0;
    for (size_t thread = 0; thread < thread_count; thread++) {
        size_t process = (size_t)thread_process[thread];
        count = process >= count ? process + 1 : count;
    }
    return count;
}

ep_status
ep_list_endings(const int32_t *thread_process, const int64_t *until_ns, size_t thread_count,
                int64_t length_ns, ep_ending **out, size_t *count)
{
    *out = NULL;
    *count = 0;
    if (thread_process == NULL || until_ns == NULL) {
        return EP_OK;
    }
    size_t processes = count_processes(thread_process, thread_count);
    ep_ending *endings = ep_calloc(processes, sizeof *endings);
    if (endings == NULL) {
        return EP_NOMEM;
    }
    for (size_t process = 0; process < processes; process++) {
        endings[process] = (ep_ending){.end_ns = INT64_MIN, .process = (int32_t)process};
    }
    for (size_t thread = 0; thread < thread_count; thread++) {
        ep_ending *ending = &endings[thread_process[thread]];
        ending->end_ns = until_ns[thread] > ending->end_ns ? until_ns[thread] : ending->end_ns;
    }
    size_t kept = 0;
    for (size_t process = 0; process < processes; process++) {
        if (endings[process].end_ns != INT64_MIN && endings[process].end_ns < length_ns) {
            endings[kept++] = endings[process];
        }
    }
    if (kept > 1) {
        qsort(endings, kept, sizeof *endings, by_end);
    }
    *out = endings;
    *count = kept;
    return EP_OK;
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

/* The process of the thread that made a block. */
static size_t
process_of(const ep_blocks *blocks, size_t block)
{
    const ep_pair_input *input = blocks->input;
    return (size_t)input->thread_process[input->columns->thread[ep_alloc_row(input, blocks->birth[block])]];
}

/* The allocator event with which a block's process ends while the block is alive; EP_ROW_NONE: none. */
static uint32_t
ended_alive_at(const ep_blocks *blocks, size_t block)
{
    if (blocks->ending_count == 0 || blocks->death[block] != EP_ROW_NONE) {
        return EP_ROW_NONE;
    }
    uint32_t ended_at = blocks->ended_at[process_of(blocks, block)];
    return blocks->birth[block] < ended_at ? ended_at : EP_ROW_NONE;
}

bool
ep_block_is_gone(const ep_blocks *blocks, size_t block, size_t moment)
{
    return moment != EP_MOMENT_END && moment > ended_alive_at(blocks, block);
}

const ep_block_ending *
ep_blocks_ending_of(const ep_blocks *blocks, size_t number)
{
    for (size_t i = 0; i < blocks->ending_count; i++) {
        if (number < blocks->endings[i].gone_to) {
            return &blocks->endings[i];
        }
    }
    return NULL;
}

int64_t
ep_block_gone_ns(const ep_blocks *blocks, size_t block)
{
    uint32_t ended_at = ended_alive_at(blocks, block);
    for (size_t i = 0; i < blocks->ending_count; i++) {
        if (blocks->endings[i].event == ended_at) {
            return blocks->endings[i].end_ns + 1;
        }
    }
    return -1;
}

/* Lists the blocks that are gone, by ending. rank: by process, its ending; EP_ROW_NONE: it has none. */
static EP_CHECKED ep_status
list_gone(ep_blocks *blocks, const uint32_t *rank)
{
    ep_block_ending *endings = blocks->endings;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t block = 0; block < blocks->count; block++) {
            ep_column_row(block);
            if (blocks->death[block] != EP_ROW_NONE) {
                continue;
            }
            uint32_t at = rank[process_of(blocks, block)];
            if (at == EP_ROW_NONE || blocks->birth[block] >= endings[at].event) {
                continue;
            }
            if (pass == 0) {
                endings[at].gone_to++;
            } else {
                blocks->gone[endings[at].gone_to++] = (uint32_t)block;
            }
        }
        size_t sum = 0;
        for (size_t i = 0; pass == 0 && i < blocks->ending_count; i++) {
            size_t count = endings[i].gone_to;
            endings[i].gone_to = sum;    /* where they begin; the second pass moves it to their end */
            sum += count;
        }
        if (pass == 0) {
            blocks->gone_count = sum;
            blocks->gone = ep_array_new(sum, sizeof *blocks->gone);
            if (blocks->gone == NULL) {
                return EP_NOMEM;
            }
        }
    }
    return EP_OK;
}

ep_status
ep_blocks_find_gone(ep_blocks *blocks)
{
    const ep_pair_input *input = blocks->input;
    ep_ending *listed;
    size_t count;
    ep_status status = ep_list_endings(input->thread_process, input->open_until_ns, input->thread_count,
                                       input->length_ns, &listed, &count);
    if (status != EP_OK || count == 0) {
        free(listed);
        return status;
    }
    size_t processes = count_processes(input->thread_process, input->thread_count);
    uint32_t *rank = ep_array_new(processes, sizeof *rank);
    blocks->ended_at = ep_array_new(processes, sizeof *blocks->ended_at);
    blocks->endings = ep_array_new_zeroed(count, sizeof *blocks->endings);
    status = rank != NULL && blocks->ended_at != NULL && blocks->endings != NULL ? EP_OK : EP_NOMEM;
    for (size_t process = 0; status == EP_OK && process < processes; process++) {
        rank[process] = blocks->ended_at[process] = EP_ROW_NONE;
    }
    for (size_t i = 0; status == EP_OK && i < count; i++) {
        blocks->endings[i].end_ns = listed[i].end_ns;
        blocks->endings[i].event = (uint32_t)ep_blocks_moment(input, listed[i].end_ns);
        blocks->ended_at[listed[i].process] = blocks->endings[i].event;
        rank[listed[i].process] = (uint32_t)i;
    }
    if (status == EP_OK) {
        blocks->ending_count = count;
        status = list_gone(blocks, rank);
    }
    free(listed);
    free(rank);
    return status;
}
