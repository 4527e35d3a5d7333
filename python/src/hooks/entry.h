/* Recognises the end of a call whose begin the interpreter did not report.
 *
 * On 3.11, and from 3.13 on, the interpreter runs signal handlers and other pending calls at the entry of a
 * function and after a yield, before it reports that the function begins or resumes. If such a handler
 * raises, the interpreter reports the unwind alone. (Another tool's callback that raises before ours has
 * the same effect.) The call did nothing, and it is left out: its end would end an outer call of the same
 * function.
 *
 * 3.11 runs pending calls both before and after the report. There the hook marks the frame objects whose
 * begin was reported, so that it does not leave out a call that is recorded. Limitation: a call that the
 * evaluator recorded (evaluator.h) has no mark; if a handler at its entry raises and also starts tracing,
 * the call lasts as long as the call around it. */
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

/* Whether a RESUME is at a function's entry or after a yield (its argument is 0 or 1). At the RESUME of
 * `yield from` and await, a thrown exception goes to the inner generator first. */
#define EP_ENTRY_RESUMES(instruction) (((instruction)[1] & 3) <= 1)
#define EP_ENTRY_YIELDED(instruction) (((instruction)[1] & 3) == 1)

#if EP_ENTRY_MAY_RAISE
static inline bool
ep_py_stands_at_entry(const ep_frame *frame)
{
    const unsigned char *at = (const unsigned char *)ep_frame_instruction(frame);
    return ep_opcode_is_resume(at[0]) && EP_ENTRY_RESUMES(at);
}
#endif

#if EP_ENTRY_MAY_RAISE
static inline ep_thrown
ep_py_thrown_here(const ep_frame *frame)
{
    return (ep_thrown){.frame = frame, .place = (const void *)ep_frame_instruction(frame)};
}

/* The place of a frame in a hook for its yield: the RESUME, as when an exception is thrown in. */
static inline const void *
ep_py_after_yield(const ep_frame *frame)
{
    const unsigned char *at = (const unsigned char *)ep_frame_instruction(frame);
    return ep_opcode_is_resume(at[0]) ? at : at + EP_CODE_UNIT_BYTES;
}
#endif

/* An exception is thrown into a generator. If the generator was suspended at a yield, it unwinds from the
 * RESUME after the yield, at once or when its `finally` and `with` are done. Where another generator goes
 * on without a report after it, the end of the slice must be seen by the slow half. frame: NULL, or its
 * frame. */
static inline void
ep_py_note_throw(ep_log *log, PyCodeObject *code, ep_frame *frame)
{
#if EP_ENTRY_MAY_RAISE
    if (frame != NULL && ep_frame_code(frame) == code && ep_py_stands_at_entry(frame)) {
        ep_log_add_thrown(log, ep_py_thrown_here(frame));
    }
#elif EP_RESUME_MAY_BE_UNREPORTED
    (void)code;
    if (ep_frame_resumed_unreported(frame) != NULL) {
        ep_log_add_thrown(log, (ep_thrown){.frame = frame});
    }
#else
    (void)log;
    (void)code;
    (void)frame;
#endif
}

/* In the slow half of a hook: a call or slice ends, in this way. frame: NULL, or its frame. Returns:
 * whether it is known that its begin was reported. */
static inline bool
ep_py_end_throw(ep_log *log, PyCodeObject *code, const ep_frame *frame, ep_kind kind)
{
#if EP_ENTRY_MAY_RAISE
    return EP_UNLIKELY(log->todo & EP_TODO_THROWN) && frame != NULL && ep_frame_code(frame) == code &&
           ep_log_end_thrown(log, frame, kind == EP_KIND_YIELD ? ep_py_after_yield(frame) : NULL);
#elif EP_RESUME_MAY_BE_UNREPORTED
    (void)code;
    (void)kind;
    return EP_UNLIKELY(log->todo & EP_TODO_THROWN) && ep_log_end_thrown(log, frame, NULL);
#else
    (void)log;
    (void)code;
    (void)frame;
    (void)kind;
    return false;
#endif
}

#if EP_ENTRY_MAY_RAISE
static EP_COLD bool
ep_py_begin_at_entry_was_not_reported(ep_log *log, PyCodeObject *code, ep_frame *frame)
{
    /* It was reported, and a callback that ran after ours raised. Limitation: this is not recognised
     * while blocks are recorded; then the call lasts as long as the call around it. */
    uint64_t before = ep_log_last_word(log);
    unsigned kind = EP_WORD0_KIND(before);
    if ((kind == EP_KIND_CALL || kind == EP_KIND_RESUME) &&
        EP_WORD0_PAYLOAD(before) == ep_py_code_site(code, frame)) {
        return false;
    }
    if (ep_log_handles_thrown(log, ep_py_thrown_here(frame))) {
        return false;
    }
    const unsigned char *at = (const unsigned char *)ep_frame_instruction(frame);
    return !(EP_ENTRY_YIELDED(at) && ep_log_end_dropped(log));
}
#endif

/* HOT, but for unwinds only. Whether the begin of the unwound call was not reported. frame: of that call,
 * or NULL. object: its frame object; NULL if the interpreter does not pass one. Slices for which
 * ep_py_end_throw() is true were reported. */
static inline bool
ep_py_begin_was_not_reported(ep_log *log, PyCodeObject *code, ep_frame *frame, PyFrameObject *object)
{
#if EP_ENTRY_MAY_RAISE
    (void)object;
    if (frame == NULL || ep_frame_code(frame) != code) {
        return false;
    }
    return EP_UNLIKELY(ep_py_stands_at_entry(frame)) &&
           ep_py_begin_at_entry_was_not_reported(log, code, frame);
#elif EP_ENTRY_IS_MARKED
    (void)log;
    (void)code;
    char mark = *ep_frame_traces_lines(object);
    if (EP_LIKELY(mark & EP_ENTRY_MARK) || mark == 0) {
        return false;
    }
    const unsigned char *at = (const unsigned char *)ep_frame_instruction(frame);
    return ep_opcode_is_resume(at[0]) && EP_ENTRY_RESUMES(at);
#else
    (void)log;
    (void)code;
    (void)frame;
    (void)object;
    return false;
#endif
}

#endif
