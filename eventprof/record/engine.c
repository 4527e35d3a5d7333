#include "engine.h"

#include "engine_parts.h"
#include "invariants.h"
#include "os.h"

ep_mutex ep_engine_mutex = EP_MUTEX_INIT;
struct ep_engine ep_engine;

_Thread_local uint32_t ep_engine_inside;
size_t ep_engine_first_bytes;

void
ep_engine_lock(void)
{
    if (EP_UNLIKELY(ep_os_is_forked())) {
        ep_engine_leave_parent();
    }
    ep_engine_inside += 1;
    ep_mutex_lock(&ep_engine_mutex);
}

bool
ep_engine_try_lock(void)
{
    if (!ep_mutex_try(&ep_engine_mutex)) {
        return false;
    }
    ep_engine_inside += 1;
    return true;
}

void
ep_engine_unlock(void)
{
    EP_CHECK_INVARIANTS(ep_engine_check());
    ep_mutex_unlock(&ep_engine_mutex);
    ep_engine_inside -= 1;
}

void
ep_engine_alone(void (*then)(void *), void *context)
{
    ep_engine_lock();
    then(context);
    ep_engine_unlock();
}

ep_anchor
ep_engine_birth(void)
{
    ep_engine_lock();
    ep_anchor birth = ep_engine.birth;
    ep_engine_unlock();
    return birth;
}

ep_kind_set
ep_engine_kinds(void)
{
    return ep_shared_kinds_get(&ep_engine.kinds);
}

void
ep_engine_count_unlogged(ep_kind kind)
{
    atomic_fetch_add_explicit(&ep_engine.unlogged[kind], 1, memory_order_relaxed);
}

void
ep_engine_update_kinds(void)
{
    ep_kind_set kinds = 0;
    for (ep_recorder *r = ep_engine.recorders; r != NULL; r = r->next) {
        kinds |= r->state == EP_RECORDER_RUNNING ? r->options.kinds : 0;
    }
    ep_shared_kinds_set(&ep_engine.kinds, kinds);
}

ep_engine_stats
ep_engine_get_stats(void)
{
    ep_engine_lock();
    ep_engine_stats stats = {
        .chunks_mapped = ep_engine.chunks_mapped,
        .chunks_free = ep_engine.chunks_free,
        .bytes_mapped = ep_engine.bytes_mapped,
        .bytes_free = ep_engine.bytes_free,
        .threads = ep_engine.thread_count,
    };
    for (ep_log *log = ep_engine.logs; log != NULL; log = log->next_log) {
        stats.logs += 1;
    }
    ep_engine_unlock();
    return stats;
}

/* Not checked: no other thread is in the engine yet. */
EP_NOT_CHECKED ep_status
ep_engine_init(void)
{
    if (ep_engine.initialised) {
        return EP_OK;
    }
    ep_status status = ep_os_thread_exit_install(ep_log_on_thread_exit);
    if (status == EP_OK) {
        status = ep_os_note_process() ? EP_OK : EP_NOMEM;
    }
    if (status == EP_OK) {
        status = ep_os_fork_install(ep_engine_before_fork, ep_engine_after_fork_in_parent,
                                    ep_engine_after_fork_in_child);
    }
    if (status == EP_OK && ep_clock_counter_usable()) {
        status = ep_clock_choose(EP_CLOCK_COUNTER);
    }
    if (status == EP_OK) {
        ep_engine.birth = ep_clock_anchor();
        ep_engine.initialised = true;
    }
    return status;
}
