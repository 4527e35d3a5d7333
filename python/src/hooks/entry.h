/* The end of a call whose begin nobody told us of.
 *
 * From 3.13 on, and on 3.11, the interpreter runs handlers of signals, and what else is pending, at the
 * entry of a function and behind a yield before it tells that the function begins or goes on. If such a
 * handler raises, it tells of the unwinding alone. (Another tool's callback that raises before ours has the
 * same effect.) That call did nothing, and is left out whole: its end would end another call of the
 * function, further out.
 *
 * 3.11 runs what is pending there twice, before and after it tells, and what is left out must not be a
 * call that is recorded: the hook marks frame objects whose begin it was told of. Limitation: of a call
 * that the evaluator recorded (evaluator.h) there is no mark; if a handler that raises at its entry begins
 * to trace as well, the call lasts as long as the one around it. */
#ifndef EP_ENTRY_H
#define EP_ENTRY_H

#include "compat.h"

#include <opcode.h>

#include "intern.h"

/* A value of f_trace_lines that says: the begin of this call or slice was reported. Python reads it as
 * True, like 1. */
#define EP_ENTRY_MARK 2

/* HOT. A call or slice begins. */
static inline void
ep_py_mark_entry(PyFrameObject *frame, bool is_generator)
{
#if EP_ENTRY_IS_MARKED
    char *mark = ep_frame_traces_lines(frame);
    /* The frame of a generator may be one where the program wrote False. */
    if (EP_LIKELY(!is_generator) || *mark != 0) {
        *mark = 1 | EP_ENTRY_MARK;    /* a store alone: with |= a call takes 2 instructions more */
    }
#else
    (void)frame;
    (void)is_generator;
#endif
}

/* A slice ends; its frame object stays. */
static inline void
ep_py_unmark_entry(PyFrameObject *frame)
{
#if EP_ENTRY_IS_MARKED
    *ep_frame_traces_lines(frame) &= (char)~EP_ENTRY_MARK;
#else
    (void)frame;
#endif
}

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

/* 0: a function's entry, 1: behind a yield. In `yield from` and await what is thrown in goes on to another
 * generator first. */
#define EP_ENTRY_RESUMES(instruction) (((instruction)[1] & 3) <= 1)

#if EP_ENTRY_MAY_RAISE
static EP_COLD bool
ep_py_is_untold_at_entry(ep_log *log, PyCodeObject *code, ep_frame *frame)
{
    /* It was reported, and a callback that ran after ours raised. Limitation: this is not recognised
     * while blocks are recorded; then the call lasts as long as the call around it. */
    uint64_t before = ep_log_last_word(log);
    unsigned kind = EP_WORD0_KIND(before);
    return !((kind == EP_KIND_CALL || kind == EP_KIND_RESUME) &&
             EP_WORD0_PAYLOAD(before) == ep_py_code_site(code, frame));
}
#endif

/* HOT for unwinding only. Whether the begin of the unwound call was not reported. frame: of that call,
 * or NULL. object: its frame object; NULL where the interpreter passes none. */
static inline bool
ep_py_is_untold(ep_log *log, PyCodeObject *code, ep_frame *frame, PyFrameObject *object)
{
#if EP_ENTRY_MAY_RAISE
    (void)object;
    if (log->thrown_into == code) {
        log->thrown_into = NULL;
        return false;
    }
    if (frame == NULL || ep_frame_code(frame) != code) {
        return false;
    }
    const unsigned char *at = (const unsigned char *)ep_frame_instruction(frame);
    bool stands_there = at[0] == INSTRUMENTED_RESUME || at[0] == RESUME || at[0] == RESUME_CHECK;
    return EP_UNLIKELY(stands_there && EP_ENTRY_RESUMES(at)) && ep_py_is_untold_at_entry(log, code, frame);
#elif EP_ENTRY_IS_MARKED
    (void)log;
    (void)code;
    char mark = *ep_frame_traces_lines(object);
    if (EP_LIKELY(mark & EP_ENTRY_MARK) || mark == 0) {
        return false;
    }
    const unsigned char *at = (const unsigned char *)ep_frame_instruction(frame);
    return (at[0] == RESUME || at[0] == RESUME_QUICK) && EP_ENTRY_RESUMES(at);
#else
    (void)log;
    (void)code;
    (void)frame;
    (void)object;
    return false;
#endif
}

#endif
