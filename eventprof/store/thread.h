/* A thread that recorded, and what a window knows of it. */
#ifndef EP_THREAD_H
#define EP_THREAD_H

#include "types.h"

#define EP_THREAD_NAME_BYTES 64

/* Limit: so many functions that stand at their entry, each interrupted there by what called the next. */
#define EP_DOUBTED_MAX 16

/* A thread that ever recorded. Immortal: rows of traces refer to it, and there are few. */
typedef struct ep_thread {
    uint32_t id;                              /* 1, 2, ...: order of first events; 0 is "unknown" */
    uint64_t native_id;
    _Atomic bool named;                       /* release; pairs with the reader of name */
    char name[EP_THREAD_NAME_BYTES];          /* UTF-8, terminated; written once, by the owner */
    bool attached;                            /* has, or had, a log; under the engine's lock */
    /* The sources' own, while the thread stands still: where it stood when a window began, where its next
     * record was to go, and what they made of it. */
    const void *stood_at, *stood_next;
    bool stood_open;
    /* Frames that stood at their entry when a window began, and the sites of their calls. Changed by the
     * thread itself, or while it stands still. */
    struct {
        const void *frame;
        uint32_t site;
    } doubted[EP_DOUBTED_MAX];
    uint32_t doubted_count;
    _Atomic bool exited;
} ep_thread;

/* What a recorder knows of one thread beyond the chunks it keeps. */
typedef struct ep_window_thread {
    ep_open_stack open;                 /* calls open where the kept records begin */
    uint64_t lost[EP_KIND_COUNT];
} ep_window_thread;

#endif
