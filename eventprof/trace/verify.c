/* Replays a trace: order, ids, calls and counts. verify_blocks.c replays the blocks. */
#include "verify.h"

#include <string.h>

#include "array.h"
#include "memory.h"
#include "verify_parts.h"

const ep_finding_info ep_findings[EP_FINDING_COUNT] = {
#define EP_FINDING(NAME, said, means) [EP_FINDING_##NAME] = {said, means},
#include "findings.def"
#undef EP_FINDING
};

/* ---- Findings -------------------------------------------------------------------------------- */

void
ep_verification_add(ep_verification *verification, const ep_finding *finding)
{
    verification->counts[finding->sort]++;
    /* Findings nearly always come in order of rows; one that a later event confirms is moved forward. */
    size_t at = verification->count;
    if (at == verification->limit) {
        if (verification->findings[at - 1].row <= finding->row) {
            return;
        }
        at--;
    } else {
        verification->count++;
    }
    for (; at > 0 && verification->findings[at - 1].row > finding->row; at--) {
        verification->findings[at] = verification->findings[at - 1];
    }
    verification->findings[at] = *finding;
}

void
ep_verification_clear(ep_verification *verification)
{
    free(verification->findings);
    *verification = (ep_verification){0};
}

void
ep_verify_report(ep_verification *to, bool excused, const ep_finding *finding)
{
    if (excused) {
        to->excused[finding->sort]++;
    } else {
        ep_verification_add(to, finding);
    }
}

ep_finding
ep_verify_at(const ep_verify_input *input, ep_finding_sort sort, size_t row)
{
    return (ep_finding){
        .sort = sort,
        .row = row,
        .thread = input->columns->thread[row],
        .time_ns = input->columns->time_ns[row],
        .other_row = EP_FINDING_NO_ROW,
    };
}

/* ---- Calls ----------------------------------------------------------------------------------- */

#define KEY(function, is_c) ((int64_t)(function) * 2 + (is_c))

typedef struct open_call {
    int64_t key;
    uint32_t row;      /* EP_ROW_NONE: open before the first recorded event */
    bool fresh;        /* open then, and so may be a C call that it made, whose begin was not seen. When it
                          makes another call, that C call has ended */
    bool span;         /* a span: the program decides where it begins and ends */
} open_call;

typedef struct call_stack {
    open_call *calls;
    size_t depth, capacity;
    /* No call below `searched` has this key: an end without a call need not search them again. */
    int64_t absent_key;
    size_t searched;
} call_stack;

typedef struct verifier {
    const ep_verify_input *input;
    ep_verification result;
    ep_block_verifier blocks;
    ep_kind_set call_kinds;          /* groups of calls whose begins and ends were all recorded */
    call_stack *stacks;              /* by thread */
    uint64_t (*rows)[EP_KIND_COUNT]; /* by thread: events of a kind */
    size_t *first, *last;            /* by thread: rows; NO_ROW: none */
} verifier;

static int32_t
function_of(const ep_id_map *map, bool names, uint32_t id)
{
    if (names) {
        return id < map->name_count ? map->name_function[id] : -1;
    }
    return ep_site_function(map, id);
}

static bool
is_c(unsigned kind)
{
    return ep_kinds[kind].group == EP_GROUP_C;
}

static EP_CHECKED ep_status
push(call_stack *stack, int64_t key, uint32_t row, unsigned kind)
{
    if (stack->depth > 0 && (key & 1) != 0) {
        stack->calls[stack->depth - 1].fresh = false;
    }
    if (!ep_grow_raw((void **)&stack->calls, &stack->capacity, stack->depth + 1,
                     sizeof *stack->calls)) {
        return EP_NOMEM;
    }
    stack->calls[stack->depth++] = (open_call){
        .key = key,
        .row = row,
        .fresh = row == EP_ROW_NONE,
        .span = ep_kinds[kind].group == EP_GROUP_SPAN,
    };
    return EP_OK;
}

static void
pop_to(call_stack *stack, size_t depth)
{
    stack->depth = depth;
    if (stack->searched > depth) {
        stack->searched = depth;
    }
}

/* The index of the innermost call with this key, plus 1; 0: there is none. */
static size_t
search(call_stack *stack, int64_t key)
{
    size_t floor = stack->absent_key == key ? stack->searched : 0;
    size_t at = stack->depth;
    while (at > floor && stack->calls[at - 1].key != key) {
        at--;
    }
    if (at > floor) {
        return at;
    }
    stack->absent_key = key;
    stack->searched = stack->depth;
    return 0;
}

/* Whether an end without a call is excused: the call may be older than the recording, or filters may have
 * left it out. */
static bool
end_may_be_older(const verifier *v, call_stack *stack, unsigned kind)
{
    open_call *top = stack->depth > 0 ? &stack->calls[stack->depth - 1] : NULL;
    bool no_python = (v->call_kinds & EP_KIND_BIT(EP_KIND_CALL)) == 0;
    if (v->input->damaged || v->input->calls_displaced || ep_kinds[kind].group == EP_GROUP_SPAN) {
        return true;
    }
    if (top == NULL) {
        /* When a window begins, only open calls of Python functions are known. */
        return v->input->filtered || (is_c(kind) && no_python) || ep_kinds[kind].group == EP_GROUP_GC;
    }
    if (top->row != EP_ROW_NONE) {
        return false;
    }
    bool fresh = top->fresh;
    top->fresh = false;
    return v->input->filtered || (is_c(kind) && (fresh || no_python)) ||
           ep_kinds[kind].group == EP_GROUP_GC;
}

/* Whether only spans are open above the first `depth` calls: the program left them open. */
static bool
only_spans(const call_stack *stack, size_t depth)
{
    bool only = true;
    for (size_t at = depth; at < stack->depth && only; at++) {
        only = stack->calls[at].span;
    }
    return only;
}

static int64_t
function_of_key(int64_t key)
{
    return key >> 1;
}

/* HOT, except for ends that do not fit. */
static void
end_call(verifier *v, call_stack *stack, size_t row, int64_t key)
{
    if (EP_LIKELY(stack->depth > 0 && stack->calls[stack->depth - 1].key == key)) {
        pop_to(stack, stack->depth - 1);
        return;
    }
    unsigned kind = v->input->columns->kind[row];
    const open_call *top = stack->depth > 0 ? &stack->calls[stack->depth - 1] : NULL;
    size_t found = search(stack, key);
    ep_finding finding = ep_verify_at(v->input, EP_FINDING_END_WITHOUT_CALL, row);
    finding.found = function_of_key(key);
    finding.expected = -1;
    if (top != NULL) {
        finding.sort = found > 0 ? EP_FINDING_END_MISSING : EP_FINDING_END_OF_ANOTHER;
        finding.expected = function_of_key(top->key);
        finding.other_row = top->row != EP_ROW_NONE ? top->row : EP_FINDING_NO_ROW;
    }
    if (found > 0) {
        bool excused = v->input->damaged || v->input->calls_displaced ||
                       only_spans(stack, found);
        ep_verify_report(&v->result, excused, &finding);
        pop_to(stack, found - 1);
    } else {
        ep_verify_report(&v->result, end_may_be_older(v, stack, kind), &finding);
    }
}

static EP_CHECKED ep_status
replay_call(verifier *v, size_t row)
{
    const ep_columns *c = v->input->columns;
    const ep_id_map *map = v->input->map;
    unsigned kind = c->kind[row];
    uint32_t id = c->id[row];
    bool closes = ep_kinds[kind].pairing == EP_PAIRING_CLOSES;
    int32_t function = function_of(map, closes, id);
    if (EP_UNLIKELY(function < 0)) {
        bool beyond = id >= (closes ? map->name_count : map->site_count);
        ep_finding_sort sort = closes || !beyond ? EP_FINDING_UNKNOWN_FUNCTION : EP_FINDING_UNKNOWN_SITE;
        ep_finding finding = ep_verify_at(v->input, sort, row);
        finding.expected = (int64_t)(closes ? map->name_count : map->site_count);
        finding.found = id;
        ep_verify_report(&v->result, v->input->damaged, &finding);
    }
    if (!ep_kinds_has(v->call_kinds, kind)) {
        return EP_OK;
    }
    call_stack *stack = &v->stacks[c->thread[row]];
    if (!closes) {
        return push(stack, KEY(function, is_c(kind)), (uint32_t)row, kind);
    }
    end_call(v, stack, row, KEY(function, is_c(kind)));
    return EP_OK;
}

static EP_CHECKED ep_status
push_open_calls(verifier *v)
{
    for (size_t thread = 0; thread < v->input->thread_count; thread++) {
        const ep_open_stack *open = &v->input->threads[thread].open;
        for (size_t i = 0; i < open->depth; i++) {
            const ep_open_call *call = &open->calls[i];
            if (!ep_kinds_has(v->call_kinds, call->kind)) {
                continue;
            }
            int64_t key = KEY(function_of(v->input->map, false, call->site_id), is_c(call->kind));
            if (push(&v->stacks[thread], key, EP_ROW_NONE, call->kind) != EP_OK) {
                return EP_NOMEM;
            }
        }
    }
    return EP_OK;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

/* Whether the replay can use the row. */
static bool
check_row(verifier *v, size_t row, bool has_block)
{
    const ep_verify_input *input = v->input;
    const ep_columns *c = input->columns;
    unsigned kind = c->kind[row];
    int64_t time_ns = c->time_ns[row], before_ns = row > 0 ? c->time_ns[row - 1] : 0;
    bool known_kind = kind < EP_KIND_COUNT && ep_kinds[kind].name != NULL &&
                      ep_kinds[kind].form != EP_FORM_CONTROL;
    bool known_thread = c->thread[row] >= 0 && (size_t)c->thread[row] < input->thread_count;
    if (EP_UNLIKELY(time_ns < before_ns && row > 0)) {
        ep_finding finding = ep_verify_at(input, EP_FINDING_TIME_BACK, row);
        finding.other_row = row - 1;
        finding.expected = before_ns;
        finding.found = time_ns;
        ep_verify_report(&v->result, false, &finding);
    }
    if (EP_UNLIKELY(time_ns < 0 || time_ns > input->duration_ns)) {
        ep_finding finding = ep_verify_at(input, EP_FINDING_TIME_OUTSIDE, row);
        finding.expected = input->duration_ns;
        finding.found = time_ns;
        ep_verify_report(&v->result, false, &finding);
    }
    if (EP_UNLIKELY(!known_thread)) {
        ep_finding finding = ep_verify_at(input, EP_FINDING_UNKNOWN_THREAD, row);
        finding.expected = (int64_t)input->thread_count;
        finding.found = c->thread[row];
        ep_verify_report(&v->result, false, &finding);
    }
    if (EP_UNLIKELY(!known_kind || !ep_kinds_has(input->kinds, kind))) {
        ep_finding finding = ep_verify_at(input, EP_FINDING_UNKNOWN_KIND, row);
        finding.found = kind;
        ep_verify_report(&v->result, false, &finding);
    }
    if (EP_UNLIKELY(known_kind && (ep_kinds[kind].words == 2) != has_block)) {
        ep_finding finding = ep_verify_at(input, EP_FINDING_BLOCK_ROWS, row);
        ep_verify_report(&v->result, false, &finding);
        return false;
    }
    return known_kind && known_thread;
}

static void
check_site(verifier *v, size_t row)
{
    const ep_columns *c = v->input->columns;
    if (EP_UNLIKELY(c->id[row] >= v->input->map->site_count)) {
        ep_finding finding = ep_verify_at(v->input, EP_FINDING_UNKNOWN_SITE, row);
        finding.expected = (int64_t)v->input->map->site_count;
        finding.found = c->id[row];
        ep_verify_report(&v->result, v->input->damaged, &finding);
    }
}

static EP_CHECKED ep_status
replay_rows(verifier *v, const ep_progress *progress)
{
    const ep_columns *c = v->input->columns;
    size_t block = 0;
    for (size_t row = 0; row < c->count; row++) {
        while (block < c->alloc_count && c->alloc_row[block] < row) {
            block++;    /* out of order: its row was replayed without it */
        }
        bool has_block = block < c->alloc_count && c->alloc_row[block] == row;
        if (EP_LIKELY(check_row(v, row, has_block))) {
            int32_t thread = c->thread[row];
            v->rows[thread][c->kind[row]]++;
            v->first[thread] = v->first[thread] == EP_FINDING_NO_ROW ? row : v->first[thread];
            v->last[thread] = row;
            ep_status status = EP_OK;
            if (ep_kinds[c->kind[row]].form == EP_FORM_CALL) {
                status = replay_call(v, row);
            } else {
                check_site(v, row);
                status = has_block ? ep_block_verifier_next(&v->blocks, block) : EP_OK;
            }
            if (EP_UNLIKELY(status != EP_OK)) {
                return status;
            }
        }
        block += has_block;
        if ((row + 1) % EP_PROGRESS_ROWS == 0 && !ep_progress_tell(progress, row + 1, c->count)) {
            return EP_STATE;
        }
    }
    return EP_OK;
}

/* ---- Counts ---------------------------------------------------------------------------------- */

static void
check_counts(verifier *v, size_t thread)
{
    const ep_trace_thread *known = &v->input->threads[thread];
    ep_finding finding = {
        .sort = EP_FINDING_COUNTS,
        .row = EP_FINDING_NO_ROW,
        .other_row = EP_FINDING_NO_ROW,
        .thread = (int32_t)thread,
    };
    uint64_t recorded = 0, rows = 0;
    bool same = true, possible = true;
    for (unsigned kind = 0; kind < EP_KIND_COUNT; kind++) {
        recorded += known->recorded[kind];
        rows += v->rows[thread][kind];
        same = same && known->recorded[kind] == v->rows[thread][kind];
        possible = possible && (known->lost[kind] == 0 || ep_kinds_has(v->input->kinds, kind));
    }
    if (!same || !possible) {
        finding.expected = (int64_t)recorded;
        finding.found = (int64_t)rows;
        ep_verify_report(&v->result, false, &finding);
    }
    if (rows == 0 || recorded == 0) {
        return;
    }
    const int64_t *time_ns = v->input->columns->time_ns;
    int64_t first_ns = time_ns[v->first[thread]], last_ns = time_ns[v->last[thread]];
    /* A filter does not change the first and last time of a thread. */
    bool fits = v->input->filtered ? known->first_ns <= first_ns && known->last_ns >= last_ns
                                   : known->first_ns == first_ns && known->last_ns == last_ns;
    if (!fits) {
        bool first = known->first_ns != first_ns;
        finding.sort = EP_FINDING_THREAD_TIMES;
        finding.expected = first ? known->first_ns : known->last_ns;
        finding.found = first ? first_ns : last_ns;
        ep_verify_report(&v->result, false, &finding);
    }
}

/* ---- The whole ------------------------------------------------------------------------------- */

/* The calls of groups whose kinds were all asked for: in other groups a begin or an end may be missing. */
static ep_kind_set
whole_sorts_of_calls(ep_kind_set asked)
{
    ep_kind_set of_group[EP_GROUP_COUNT] = {0}, whole = 0;
    for (unsigned kind = 0; kind < EP_KIND_COUNT; kind++) {
        of_group[ep_kinds[kind].group] |= ep_kinds_of_calls & EP_KIND_BIT(kind);
    }
    for (size_t group = 0; group < EP_GROUP_COUNT; group++) {
        whole |= (asked & of_group[group]) == of_group[group] ? of_group[group] : 0;
    }
    return whole;
}

static EP_CHECKED ep_status
open_verifier(verifier *v, size_t limit)
{
    size_t threads = v->input->thread_count;
    v->result.limit = limit > 0 ? limit : 1;
    v->result.findings = ep_calloc(v->result.limit, sizeof *v->result.findings);
    v->stacks = ep_calloc(threads, sizeof *v->stacks);
    v->rows = ep_calloc(threads, sizeof *v->rows);
    v->first = ep_realloc(NULL, threads, sizeof *v->first);
    v->last = ep_realloc(NULL, threads, sizeof *v->last);
    if (v->result.findings == NULL || v->stacks == NULL || v->rows == NULL || v->first == NULL ||
        v->last == NULL) {
        return EP_NOMEM;
    }
    for (size_t i = 0; i < threads; i++) {
        v->first[i] = v->last[i] = EP_FINDING_NO_ROW;
    }
    v->call_kinds = whole_sorts_of_calls(v->input->kinds);
    ep_status status = ep_block_verifier_open(&v->blocks, v->input, &v->result);
    return status != EP_OK ? status : push_open_calls(v);
}

static void
close_verifier(verifier *v)
{
    for (size_t i = 0; v->stacks != NULL && i < v->input->thread_count; i++) {
        free(v->stacks[i].calls);
    }
    free(v->stacks);
    free(v->rows);
    free(v->first);
    free(v->last);
    ep_block_verifier_close(&v->blocks);
    ep_verification_clear(&v->result);
}

ep_status
ep_verify(const ep_verify_input *input, size_t limit, const ep_progress *progress,
          ep_verification *out)
{
    if (input->columns->count > EP_PAIR_MAX) {
        return EP_ARGUMENT;
    }
    verifier v = {.input = input};
    ep_status status = open_verifier(&v, limit);
    if (status == EP_OK) {
        status = replay_rows(&v, progress);
    }
    if (status == EP_OK) {
        ep_block_verifier_finish(&v.blocks);
        for (size_t i = 0; i < input->thread_count; i++) {
            check_counts(&v, i);
        }
        *out = v.result;
        v.result = (ep_verification){0};
    }
    close_verifier(&v);
    return status;
}

/* ---- Records --------------------------------------------------------------------------------- */

/* At each end of the window one hook may write a record late, or remove one. */
#define UNSURE_EVENTS 4

void
ep_check_records(const ep_capture *capture, uint32_t only_thread, const ep_decoded *decoded,
                 ep_record_check *out)
{
    ep_record_check check = {.done = true, .chunks = capture->chunk_count};
    uint64_t *last = ep_calloc(capture->thread_count, sizeof *last);    /* last ticks, by thread id */
    uint64_t worst = 0, worst_at = 0;
    for (size_t i = 0; i < capture->chunk_count; i++) {
        ep_cursor cursor = ep_cursor_begin(capture->chunks[i]->header);
        ep_record record = {0};
        check.unsure_count += cursor.may_change ? UNSURE_EVENTS : 0;
        while (ep_cursor_next(&cursor, &record)) {
            check.records++;
            if (record.ticks < capture->start.ticks || record.ticks > capture->stop.ticks ||
                !ep_record_is_for(&record, capture->kinds) ||
                (only_thread != 0 && cursor.thread_id != only_thread)) {
                continue;
            }
            check.record_count += record.ticks <= capture->full_ticks;
            if (last == NULL || cursor.thread_id >= capture->thread_count) {
                continue;
            }
            uint64_t *before = &last[cursor.thread_id];
            if (record.ticks < *before && *before - record.ticks > worst) {
                worst = *before - record.ticks;
                worst_at = record.ticks;
                check.back_thread_id = (uint32_t)cursor.thread_id;
            }
            *before = record.ticks;
        }
    }
    if (worst > 0) {
        ep_clock_stretch stretch = ep_clock_map_stretch(&capture->clock, worst_at, 0);
        check.back_ns = ep_clock_stretch_ns(&stretch, worst_at + worst) -
                        ep_clock_stretch_ns(&stretch, worst_at);
    }
    for (size_t i = 0; i < decoded->thread_count; i++) {
        for (unsigned kind = 0; kind < EP_KIND_COUNT; kind++) {
            check.decoded_count += decoded->threads[i].recorded[kind];
        }
    }
    free(last);
    *out = check;
}

void
ep_verify_records(const ep_record_check *check, const ep_trace_thread *threads,
                  size_t thread_count, ep_verification *verification)
{
    uint64_t more = check->decoded_count > check->record_count
                        ? check->decoded_count - check->record_count
                        : check->record_count - check->decoded_count;
    ep_finding finding = {
        .sort = EP_FINDING_COUNTS,
        .row = EP_FINDING_NO_ROW,
        .other_row = EP_FINDING_NO_ROW,
        .thread = -1,
        .expected = (int64_t)check->record_count,
        .found = (int64_t)check->decoded_count,
    };
    if (more > check->unsure_count) {
        ep_verification_add(verification, &finding);
    }
    if (check->back_ns > EP_PAIR_SKEW_NS) {
        finding.sort = EP_FINDING_CLOCK_BACK;
        finding.expected = EP_PAIR_SKEW_NS;
        finding.found = check->back_ns;
        for (size_t i = 0; i < thread_count; i++) {
            bool is = threads[i].thread != NULL && threads[i].thread->id == check->back_thread_id;
            finding.thread = is ? (int32_t)i : finding.thread;
        }
        ep_verification_add(verification, &finding);
    }
}
