/* The allocator hooks, and the layers that they work by; source_alloc.c puts them in and takes them out. */
#ifndef EP_ALLOC_HOOKS_H
#define EP_ALLOC_HOOKS_H

#include "compat.h"

#include <stdatomic.h>

#define EP_PY_DOMAIN_COUNT 3    /* of the interpreter: EP_DOMAIN_RAW, MEM, OBJ, in its numbering */

enum {
    EP_PY_DORMANT,           /* for ever */
    EP_PY_COUNTING,          /* for counters alone */
    EP_PY_RECORDING,
    EP_PY_RECORDING_COUNTING,
    EP_PY_RECORDING_PLAIN    /* for recorders alone, where all that the fast halves need is there */
};

typedef struct ep_py_layer {
    PyMemAllocatorEx below;     /* constant */
    _Atomic uint8_t mode;
} ep_py_layer;

/* A caller that read our function but still the old context (NULL, in all allocators known) while
 * we installed: the allocator that was there first. */
extern EP_HIDDEN PyMemAllocatorEx ep_py_first_below[EP_PY_DOMAIN_COUNT];

/* Without a context, which is to be an ep_py_layer. */
extern EP_HIDDEN const PyMemAllocatorEx ep_py_allocator_hooks[EP_PY_DOMAIN_COUNT];

#endif
