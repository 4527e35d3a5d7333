/* Which code on a thread is our own. Its blocks are in the table of omitted.h. */
#include "own_blocks.h"

static uint32_t
enter(uint32_t as)
{
    ep_log *log = ep_log_current;
    uint32_t busy = 0;
    if (log != NULL) {
        busy = log->busy | (log->own_is_recorded ? EP_BUSY_EVENTS : 0);
        log->own_is_recorded = false;
        log->busy = as;
    }
    return busy;
}

uint32_t
ep_py_enter_own(void)
{
    ep_log *log = ep_log_current;
    /* Within ep_py_enter_ours() all frees are our own, also in nested code. */
    return enter(log != NULL && (log->busy & EP_BUSY_OURS) ? log->busy : EP_BUSY_OWN);
}

uint32_t
ep_py_enter_ours(void)
{
    return enter(EP_BUSY_OWN | EP_BUSY_OURS);
}

void
ep_py_leave_own(uint32_t busy)
{
    if (ep_log_current != NULL) {
        ep_log_current->busy = busy & ~EP_BUSY_EVENTS;
        ep_log_current->own_is_recorded = (busy & EP_BUSY_EVENTS) != 0;
    }
}

/* ---- Muted ----------------------------------------------------------------------------------- */

static bool
mute(bool records_blocks)
{
    ep_log *log = ep_log_mine();
    if (log == NULL || log->busy != 0 || (log->todo & EP_TODO_MUTED)) {
        return false;
    }
    log->todo |= EP_TODO_MUTED;
    log->busy = EP_BUSY_OWN;
    log->own_is_recorded = records_blocks;
    return true;
}

bool
ep_py_mute(void)
{
    return mute(false);
}

bool
ep_py_mute_calls(void)
{
    return mute(true);
}

void
ep_py_unmute(void)
{
    ep_log *log = ep_log_current;
    if (log != NULL && (log->todo & EP_TODO_MUTED)) {    /* not set in a child that was forked
                                                            * meanwhile */
        log->todo &= ~EP_TODO_MUTED;
        log->busy = 0;
        log->own_is_recorded = false;
    }
}
