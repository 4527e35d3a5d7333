/* The state of a log file: lost events by thread, and the calls that are open where its records begin. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "file_read_parts.h"
#include "memory.h"

#define COUNT_MAX (UINT64_C(1) << 52)

ep_status
ep_loader_read_state(ep_loader *l, ep_error *error)
{
    ep_file_reader *reader = l->reader;
    l->state_bytes = 0;
    l->dropped_sequence = UINT64_MAX;
    for (int attempt = 0; attempt < EP_READ_TRIES; attempt++) {
        uint32_t which = atomic_load_explicit(&reader->header.state, memory_order_relaxed) & 1;
        uint64_t offset = atomic_load_explicit(&reader->header.state_offset[which], memory_order_relaxed);
        uint64_t room = atomic_load_explicit(&reader->header.state_room[which], memory_order_relaxed);
        if (offset == 0) {
            return EP_OK;
        }
        if (offset > INT64_MAX || room > EP_FILE_STATE_LIMIT) {
            break;
        }
        ep_file_state state;
        int64_t got = ep_reader_read_at(reader, offset, l->state, (size_t)room);
        if (got < 0) {
            return ep_fail_os(error, errno);
        }
        if ((size_t)got < sizeof state) {
            ep_reader_note(reader, "the file ends at byte %" PRIu64 ", before its first chunk",
                           reader->bytes);
            return EP_OK;
        }
        memcpy(&state, l->state, sizeof state);
        if (state.thread_count == 0 && state.bytes == 0 && state.sum == 0) {
            return EP_OK;    /* nothing was lost yet, and no call is open */
        }
        if (state.bytes <= (uint64_t)got - sizeof state &&
            state.sum == ep_sum64(l->state + sizeof state, state.bytes)) {
            l->state_bytes = state.bytes;
            l->dropped_sequence = state.dropped_sequence;
            if (state.incomplete > 0) {
                ep_reader_note(reader, "loss and open calls of %" PRIu64 " threads found no room",
                               state.incomplete);
            }
            return EP_OK;
        }
        ep_status status = ep_reader_read_header(reader, error);
        if (status != EP_OK) {
            return status;
        }
    }
    ep_reader_note(reader, "the counts of what was lost are damaged");
    return EP_OK;
}

void
ep_loader_name_threads(ep_loader *l)
{
    l->only_thread = ep_loader_thread_id(l, l->header.only_thread);
    const char *at = l->state + sizeof(ep_file_state), *end = at + l->state_bytes;
    while ((size_t)(end - at) >= sizeof(ep_file_thread_state)) {
        ep_file_thread_state head;
        memcpy(&head, at, sizeof head);
        at += sizeof head;
        uint64_t bytes = ((uint64_t)head.count_count + head.depth) * sizeof(ep_file_pair);
        if (bytes > (size_t)(end - at)) {
            break;
        }
        (void)ep_loader_thread_id(l, head.thread_id);
        at += bytes;
    }
}

ep_status
ep_loader_fill_window(ep_loader *l)
{
    l->window_count = l->thread_count;
    l->window = ep_calloc(l->window_count, sizeof *l->window);
    if (l->window == NULL) {
        return EP_NOMEM;
    }
    const char *at = l->state + sizeof(ep_file_state), *end = at + l->state_bytes;
    while ((size_t)(end - at) >= sizeof(ep_file_thread_state)) {
        ep_file_thread_state head;
        memcpy(&head, at, sizeof head);
        at += sizeof head;
        uint64_t pairs = (uint64_t)head.count_count + head.depth;
        uint32_t small = head.thread_id != 0 ? ep_loader_thread_id(l, head.thread_id) : 0;
        if (pairs > (size_t)(end - at) / sizeof(ep_file_pair) || small >= l->window_count ||
            (small == 0 && head.thread_id != 0)) {
            ep_reader_note(l->reader, "the counts of what was lost are damaged");
            break;
        }
        ep_window_thread *thread = &l->window[small];
        for (uint64_t i = 0; i < pairs; i++) {
            ep_file_pair pair;
            memcpy(&pair, at, sizeof pair);
            at += sizeof pair;
            if (i < head.count_count) {
                if (pair.first < EP_KIND_COUNT && ep_kinds_has(ep_kinds_of_events, (unsigned)pair.first) &&
                    pair.second <= COUNT_MAX) {
                    thread->lost[pair.first] = pair.second;
                }
                continue;
            }
            ep_open_stack *open = &thread->open;
            unsigned kind = (unsigned)pair.first & (EP_KIND_COUNT - 1);
            if (ep_kinds[kind].form != EP_FORM_CALL || ep_kinds[kind].pairing != EP_PAIRING_OPENS) {
                continue;
            }
            if (!ep_grow((void **)&open->calls, &open->capacity, open->depth + 1, sizeof *open->calls)) {
                return EP_NOMEM;
            }
            open->calls[open->depth++] =
                (ep_open_call){.site_id = (uint32_t)pair.second,
                               .kind = (uint8_t)kind,
                               .before = pair.first >> 8 & 1};
        }
    }
    return EP_OK;
}
