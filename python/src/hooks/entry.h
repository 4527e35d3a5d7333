/* The end of a call whose begin nobody told us of.
 *
 * From 3.13 on the interpreter runs handlers of signals, and what else is pending, at the entry of a
 * function and behind a yield before it tells that the function begins or goes on. If such a handler
 * raises, it tells of the unwinding alone. (Another tool's callback that raises before ours has the same
 * effect.) That call did nothing, and is left out whole: its end would end another call of the function,
 * further out. */
#ifndef EP_ENTRY_H
#define EP_ENTRY_H

#include "compat.h"

#include <opcode.h>

#include "intern.h"

/* An exception was thrown into a generator: it unwinds from where it stood, behind a yield. */
static inline void
ep_py_note_throw(ep_log *log, const PyCodeObject *code)
{
#if EP_ENTRY_MAY_RAISE
    log->thrown_into = code;
#else
    (void)log;
    (void)code;
#endif
}

#if EP_ENTRY_MAY_RAISE
static EP_COLD bool
ep_py_is_untold_at_entry(ep_log *log, PyCodeObject *code, ep_frame *frame)
{
    /* It was told, and a callback that came after ours raised. Limitation: not recognised among recorded
     * blocks; that call then lasts as long as the one around it. */
    uint64_t before = ep_log_last_word(log);
    unsigned kind = EP_WORD0_KIND(before);
    return !((kind == EP_KIND_CALL || kind == EP_KIND_RESUME) &&
             EP_WORD0_PAYLOAD(before) == ep_py_code_site(code, frame));
}
#endif

/* HOT for unwinding alone. Whether the begin of what is unwound was not told. frame: its own, or NULL. */
static inline bool
ep_py_is_untold(ep_log *log, PyCodeObject *code, ep_frame *frame)
{
#if EP_ENTRY_MAY_RAISE
    if (log->thrown_into == code) {
        log->thrown_into = NULL;
        return false;
    }
    if (frame == NULL || ep_frame_code(frame) != code) {
        return false;
    }
    const unsigned char *at = (const unsigned char *)ep_frame_instruction(frame);
    bool stands_there = at[0] == INSTRUMENTED_RESUME || at[0] == RESUME || at[0] == RESUME_CHECK;
    /* 0: a function's entry, 1: behind a yield. In `yield from` and await what is thrown in goes on
     * to another generator first. */
    return EP_UNLIKELY(stands_there && (at[1] & 3) <= 1) && ep_py_is_untold_at_entry(log, code, frame);
#else
    (void)log;
    (void)code;
    (void)frame;
    return false;
#endif
}

#endif
