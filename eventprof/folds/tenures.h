/* A table with a row for each tenure of an interpreter's lock, in order of their begins; waited.h says what
 * a tenure is. */
#ifndef EP_TENURES_H
#define EP_TENURES_H

#include "fold.h"
#include "waited.h"

/* ---- The fold -------------------------------------------------------------------------------- */

typedef struct ep_tenure {
    int64_t start_ns, end_ns;
    int64_t events;
    int32_t thread;
} ep_tenure;

/* Who has the lock of a process. */
typedef struct ep_lock_holder {
    size_t row;          /* of the tenure that goes on + 1; 0: none does */
    int64_t free_ns;     /* when the last tenure ended that is known to have ended */
} ep_lock_holder;

typedef struct ep_tenures {
    ep_fold fold;
    ep_tenure *rows;
    size_t count, capacity;
    ep_kind_set kinds;
    bool has_lock;
    const int32_t *thread_process;    /* of the facts */
    ep_lock_holder *locks;            /* by process */
    int64_t *taken_ns;                /* by thread, until its next event: when it had waited for the lock */
    size_t process_count;
} ep_tenures;

/* Before the first run. Afterwards fold.type->clear() frees it. */
void ep_tenures_open(ep_tenures *tenures);

#endif
