#include "verifying.h"

#include "of_trace.h"

typedef struct verifying {
    ep_fold fold;
    ep_verify_input input;    /* what the replay assumes, but for the map and the threads */
    bool is_final;            /* a pass before this one has found it */
    const ep_trace *trace;
    size_t limit;
    ep_verifier *verifier;
} verifying;

/* What a trace says of itself, as far as `head` knows. */
static void
fill_input(ep_verify_input *input, const ep_trace *trace, const ep_decoded *head)
{
    input->threads = head->threads;
    input->thread_count = head->thread_count;
    input->kinds = trace->recording.kinds;
    input->duration_ns = head->duration_ns;
    input->damaged = head->damaged_chunks > 0 || (trace->recording.limits & EP_LIMIT_CUT) != 0;
    bool lost_tail = trace->recording.full_reason != EP_FULL_NOT;
    input->lost_until_ns = lost_tail ? -1 : ep_lost_until_ns(head->threads, head->thread_count);
}

static ep_status
begin(ep_fold *fold, const ep_fold_facts *facts)
{
    verifying *self = (verifying *)fold;
    ep_verify_input input = self->input;
    if (!self->is_final) {
        fill_input(&input, self->trace, facts->head);
    }
    input.map = facts->map;
    input.threads = facts->head->threads;
    return ep_verifier_open(&input, self->limit, &self->verifier);
}

static ep_status
events(ep_fold *fold, const ep_batch *batch)
{
    size_t block = batch->alloc_from;
    return ep_verifier_add(((verifying *)fold)->verifier, batch->columns, batch->from, batch->to, &block);
}

static ep_status
end(ep_fold *fold)
{
    (void)fold;    /* the counts of the threads are not final yet */
    return EP_OK;
}

static void
clear(ep_fold *fold)
{
    verifying *self = (verifying *)fold;
    ep_verifier_close(self->verifier);
    self->verifier = NULL;
}

static const ep_fold_type verifying_type = {
    .name = "verifying", .begin = begin, .events = events, .end = end, .clear = clear};

ep_status
ep_verify_trace(ep_trace *trace, const ep_verify_input *known, size_t limit, ep_verification *out,
                ep_error *error)
{
    verifying self = {.fold = {&verifying_type}, .input = *known, .trace = trace, .limit = limit};
    ep_fold *fold = &self.fold;
    bool again;
    ep_status status;
    trace->check_records = true;
    do {
        status = ep_fold_trace(trace, &fold, 1, !trace->no_lock, "verifying", error);
        fill_input(&self.input, trace, ep_trace_head(trace));
        again = status == EP_OK && !self.is_final && !ep_verifier_assumed(self.verifier, &self.input);
        self.is_final = true;
        if (status == EP_OK && !again) {
            ep_verifier_end(self.verifier, &self.input, out);
        }
        clear(fold);
    } while (again);
    trace->check_records = false;
    if (status == EP_OK && trace->record_check.done) {
        ep_verify_records(&trace->record_check, self.input.threads, self.input.thread_count, out);
    }
    return status;
}
