/* Pairs blocks on a second thread while the caller pairs calls; the contract is in pair.h. */
#include <stdatomic.h>

#include "worker.h"
#include "memory.h"
#include "pair.h"

struct ep_blocks_worker {
    const ep_pair_input *input;
    const ep_progress *progress;
    ep_worker worker;
    _Atomic bool awaited;     /* the caller waits, so progress may be reported from here */
    _Atomic bool unwanted;
    /* written by the thread; read by the caller after the join */
    ep_status status;
    ep_blocks blocks;
};

static bool
tell_if_awaited(void *context, size_t done, size_t total)
{
    ep_blocks_worker *work = context;
    if (atomic_load_explicit(&work->unwanted, memory_order_relaxed)) {
        return false;
    }
    return !atomic_load_explicit(&work->awaited, memory_order_acquire) ||
           ep_progress_tell(work->progress, done, total);
}

static void
run(void *context)
{
    ep_blocks_worker *work = context;
    ep_progress progress = {.tell = tell_if_awaited, .context = work};
    work->status = ep_pair_blocks(work->input, &progress, &work->blocks);
}

ep_blocks_worker *
ep_pair_blocks_begin(const ep_pair_input *input, const ep_progress *progress)
{
    if (input->columns->alloc_count == 0 || !ep_worker_pays(input->columns->count)) {
        return NULL;
    }
    ep_blocks_worker *work = ep_calloc(1, sizeof *work);
    if (work == NULL) {
        return NULL;
    }
    work->input = input;
    work->progress = progress;
    if (!ep_worker_start(&work->worker, run, work)) {
        free(work);
        return NULL;
    }
    return work;
}

ep_status
ep_pair_blocks_join(ep_blocks_worker *work, bool wanted, ep_blocks *out)
{
    /* Release: the thread continues to use the progress that the caller used before. */
    atomic_store_explicit(wanted ? &work->awaited : &work->unwanted, true, memory_order_release);
    ep_worker_join(&work->worker);
    ep_status status = work->status;
    if (status == EP_OK) {
        *out = work->blocks;
    }
    free(work);
    return status;
}
