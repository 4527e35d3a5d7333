/* Writes the header and the two states of a log file. */
#include <string.h>

#include "clock.h"
#include "fault.h"
#include "file_parts.h"
#include "os.h"

/* ---- The header ------------------------------------------------------------------------------ */

void
ep_file_put_start(ep_file *file, const ep_file_start *start)
{
    ep_file_header *header = file->header;
    ep_file_set_kinds(header, start->kinds);
    header->clock_mode = start->clock_mode;
    header->only_thread = start->only_thread;
    header->step_ticks = ep_clock_step_ticks();
    header->birth = start->birth;
    header->start = start->start;
    header->start_realtime_ns = start->start_realtime_ns;
    header->start_boottime_ns = ep_os_boottime_ns() - ep_os_monotonic_ns() + start->start.monotonic_ns;
    header->start_resident_bytes = start->start_resident_bytes;
    header->start_own_bytes = start->start_own_bytes;
    header->beats[0] = start->start;
    /* Release: a reader that sees the phase sees all of these fields. */
    atomic_store_explicit(&header->phase, EP_FILE_RECORDING, memory_order_release);
}

void
ep_file_put_full(ep_file *file, uint64_t ticks, ep_full_reason reason)
{
    file->header->full_ticks = ticks;
    atomic_store_explicit(&file->header->full_reason, reason, memory_order_release);
}

void
ep_file_put_limit(ep_file *file, uint32_t limit)
{
    atomic_fetch_or_explicit(&file->header->limits, limit, memory_order_relaxed);
}

uint32_t
ep_file_get_children_lost(const ep_file *file, int *os_error)
{
    *os_error = (int)atomic_load_explicit(&file->header->children_error, memory_order_relaxed);
    return atomic_load_explicit(&file->header->children_lost, memory_order_relaxed);
}

void
ep_file_count_child_lost(const ep_file *file, int os_error)
{
    atomic_store_explicit(&file->header->children_error, (uint32_t)os_error, memory_order_relaxed);
    atomic_fetch_add_explicit(&file->header->children_lost, 1, memory_order_relaxed);
}

void
ep_file_put_stop(ep_file *file, ep_anchor stop, int64_t resident_bytes, int64_t own_bytes)
{
    file->header->stop = stop;
    file->header->stop_resident_bytes = resident_bytes;
    file->header->stop_own_bytes = own_bytes;
}

void
ep_file_put_calls_from(ep_file *file, const char *name)
{
    strncpy(file->header->calls_from, name, sizeof file->header->calls_from - 1);
}

void
ep_file_put_displaced(ep_file *file, const char *name)
{
    char *names = file->header->displaced;
    size_t used = strnlen(names, sizeof file->header->displaced);
    /* There is no room for all names, but no program displaces all hooks. */
    if (used + strlen(name) + 2 <= sizeof file->header->displaced) {
        stpcpy(stpcpy(names + used, name), " ");
    }
}

void
ep_file_put_left_out(ep_file *file, uint64_t deep_calls, uint64_t short_calls, uint64_t functions_off)
{
    file->header->deep_calls = deep_calls;
    file->header->short_calls = short_calls;
    file->header->functions_off = functions_off;
}

void
ep_file_put_beat(ep_file *file, ep_anchor anchor)
{
    ep_file_header *header = file->header;
    uint32_t next = atomic_load_explicit(&header->beat, memory_order_relaxed) ^ 1;
    header->beats[next & 1] = anchor;
    atomic_store_explicit(&header->beat, next & 1, memory_order_release);
}

/* ---- The states ------------------------------------------------------------------------------ */

bool
ep_file_move_state(ep_file *file, uint32_t which, size_t bytes)
{
    size_t before = file->states[which].bytes;
    if (before == EP_CHUNK_BYTES) {
        return false;
    }
    size_t grown = ep_file_slot_bytes_for(file, bytes, before);
    pthread_mutex_lock(&file->lock);
    ep_chunk_header *slot = ep_file_take_slot_locked(file, grown);
    uint64_t end = file->length;
    pthread_mutex_unlock(&file->lock);
    if (slot == NULL) {
        return false;
    }
    slot->magic = EP_FILE_STATE_MAGIC;
    if (before > 0) {
        ep_os_unmap(file->states[which].slot, before);
    }
    file->states[which].slot = slot;
    file->states[which].bytes = grown;
    /* No reader reads there until header->state is stored, with release. */
    atomic_store_explicit(&file->header->state_offset[which], end - grown + sizeof *slot,
                          memory_order_relaxed);
    atomic_store_explicit(&file->header->state_room[which], grown - sizeof *slot, memory_order_relaxed);
    return true;
}

/* Appends a thread. False: no room. */
static bool
put_thread_state(char **at, const char *end, uint32_t thread_id, const ep_window_thread *thread)
{
    ep_file_thread_state head = {.thread_id = thread_id, .depth = (uint32_t)thread->open.depth};
    for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
        head.count_count += thread->lost[kind] != 0;
    }
    size_t pairs = head.count_count + thread->open.depth;
    if (pairs == 0) {
        return true;
    }
    if (sizeof head + pairs * sizeof(ep_file_pair) > (size_t)(end - *at)) {
        return false;
    }
    memcpy(*at, &head, sizeof head);
    ep_file_pair *pair = (ep_file_pair *)(*at + sizeof head);
    for (uint64_t kind = 0; kind < EP_KIND_COUNT; kind++) {
        if (thread->lost[kind] != 0) {
            *pair++ = (ep_file_pair){kind, thread->lost[kind]};
        }
    }
    for (size_t i = 0; i < thread->open.depth; i++) {
        const ep_open_call *call = &thread->open.calls[i];
        *pair++ = (ep_file_pair){call->kind | (uint64_t)call->before << 8, call->site_id};
    }
    *at = (char *)pair;
    return true;
}

static size_t
state_bytes_for(ep_window_thread *const *threads, size_t thread_count)
{
    size_t bytes = sizeof(ep_chunk_header) + sizeof(ep_file_state);
    for (size_t i = 0; i < thread_count; i++) {
        if (threads[i] != NULL) {
            size_t pairs = threads[i]->open.depth;
            for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
                pairs += threads[i]->lost[kind] != 0;
            }
            bytes += pairs > 0 ? sizeof(ep_file_thread_state) + pairs * sizeof(ep_file_pair) : 0;
        }
    }
    return bytes;
}

void
ep_file_put_state(ep_file *file, uint64_t dropped_sequence, ep_window_thread *const *threads,
                  size_t thread_count)
{
    ep_file_header *header = file->header;
    uint32_t next = file->state_now ^ 1;
    size_t need = state_bytes_for(threads, thread_count);
    if (need > file->states[next].bytes) {
        (void)ep_file_move_state(file, next, need);
    }
    if (dropped_sequence == UINT64_MAX) {
        dropped_sequence = file->dropped_sequence;    /* so that a reader sees that a chunk was dropped */
    }
    char *begin = (char *)(file->states[next].slot + 1);
    const char *end = (char *)file->states[next].slot + file->states[next].bytes;
    char *body = begin + sizeof(ep_file_state), *at = body;
    ep_file_state state = {.dropped_sequence = dropped_sequence};
    /* The previous state must be valid before the older one is overwritten here, also after a kill. */
    atomic_thread_fence(memory_order_release);
    for (size_t i = 0; i < thread_count; i++) {
        if (threads[i] == NULL) {
            continue;
        }
        char *before = at;
        if (!put_thread_state(&at, end, (uint32_t)i, threads[i])) {
            state.incomplete += 1;
        }
        state.thread_count += at != before;
    }
    state.bytes = (uint32_t)(at - body);
    state.sum = ep_sum64(body, state.bytes);
    memcpy(begin, &state, sizeof state);
    EP_FAULT_POINT(STATE);
    /* Release: a reader that sees the index sees the state, also after a kill at any instruction. */
    atomic_store_explicit(&header->state, next, memory_order_release);
    file->state_now = next;
    file->dropped_sequence = dropped_sequence;
}
