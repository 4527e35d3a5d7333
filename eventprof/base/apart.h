/* Half of a long piece of work on a second thread, where that pays. */
#ifndef EP_APART_H
#define EP_APART_H

#include <pthread.h>

#include "types.h"

/* When it pays. Constant, but for tests. */
typedef struct ep_apart_limits {
    size_t rows;          /* with more events than this, */
    size_t processors;    /* and this many for us to run on */
} ep_apart_limits;

extern ep_apart_limits ep_apart_limit;

typedef struct ep_apart {
    pthread_t thread;
    void (*run)(void *context);
    void *context;
} ep_apart;

bool ep_apart_pays(size_t rows);

/* Runs it on a thread that all signals are blocked on, until ep_apart_join(). apart stays where it
 * is until then. False: there is no such thread, do it in turn. */
EP_CHECKED bool ep_apart_start(ep_apart *apart, void (*run)(void *context), void *context);
void ep_apart_join(ep_apart *apart);

#endif
