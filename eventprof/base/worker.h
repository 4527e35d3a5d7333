/* Runs half of a long computation on a second thread, if that is faster. */
#ifndef EP_WORKER_H
#define EP_WORKER_H

#include <pthread.h>

#include "types.h"

/* When a second thread is worth its start. Only tests change it. */
typedef struct ep_worker_limits {
    size_t rows;          /* there are more events than this... */
    size_t processors;    /* ...and the process may use at least so many processors */
} ep_worker_limits;

extern ep_worker_limits ep_worker_limit;

typedef struct ep_worker {
    pthread_t thread;
    void (*run)(void *context);
    void *context;
} ep_worker;

/* Whether a computation over so many events is faster on two threads. */
bool ep_worker_pays(size_t rows);

/* Calls run(context) on a new thread, which blocks all signals. Until ep_worker_join(), which waits for its
 * end, *worker must not move. False: no thread could be made, and the caller does the work itself. */
EP_CHECKED bool ep_worker_start(ep_worker *worker, void (*run)(void *context), void *context);
void ep_worker_join(ep_worker *worker);

#endif
