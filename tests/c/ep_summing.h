/* What the suites of summary.h share. */
#ifndef EP_SUMMING_H
#define EP_SUMMING_H

#include "ep_program.h"
#include "worker.h"

#include <limits.h>

#include "summary.h"

/* ---- Tools ----------------------------------------------------------------------------------- */

/* A program and all that is made of it. */
typedef struct study {
    program *p;
    ep_calls calls;
    ep_blocks blocks;
    ep_summary summary;
} study;

/* Steals the program. Returns: new, for study_free(). */
static inline study
study_of(program *p)
{
    study s = {.p = p, .calls = program_calls(p)};
    s.blocks = program_blocks(p, &s.calls);
    ep_status status = ep_summary_functions(&p->input, &s.calls, &s.blocks, NULL, &s.summary);
    ck_assert_int_eq(status, EP_OK);
    return s;
}

static inline void
study_free(study *s)
{
    ep_summary_clear(&s->summary);
    ep_blocks_clear(&s->blocks);
    ep_calls_clear(&s->calls);
    program_free(s->p);
}

#endif
