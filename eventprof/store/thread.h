/* A thread that recorded, and the facts about it in a window. */
#ifndef EP_THREAD_H
#define EP_THREAD_H

#include "types.h"

#define EP_THREAD_NAME_BYTES 64

/* At most so many nested functions at their entry, each interrupted there by code that called the next. */
#define EP_UNSETTLED_MAX 16

/* At most so many nested slices whose throws are remembered one by one. */
#define EP_THROWN_MAX 16

/* The newest of the generators that were suspended while they handled a thrown exception. */
#define EP_HANDLING_MAX 16

/* An exception was thrown into this frame while it was suspended at this instruction. */
typedef struct ep_thrown {
    const void *frame, *place;
} ep_thrown;

/* A thread that ever recorded, or a lane of one. Immortal: rows of traces refer to it, and there are
 * few. */
typedef struct ep_thread {
    uint32_t id;                              /* 1, 2, ...: order of first events; 0 is "unknown" */
    uint64_t native_id;
    uint32_t carrier_id;                      /* a lane (lanes.h): id of the thread that runs it; else 0 */
    _Atomic bool named;                       /* release; pairs with the reader of name */
    char name[EP_THREAD_NAME_BYTES];          /* UTF-8, terminated; written once, by the owner */
    bool attached;                            /* has, or had, a log; under the engine's lock */
    /* Scratch of the sources, valid while the thread is stopped: the frame at the window's start, where its
     * next record goes, whether it was counted as open. */
    const void *stood_at, *stood_next;
    bool stood_open;
    /* Frames that were at their entry when a window began, and the sites of their calls. Changed by the
     * thread itself, or while it is stopped. */
    struct {
        const void *frame;
        uint32_t site;
    } unsettled[EP_UNSETTLED_MAX];
    uint32_t unsettled_count;
    /* Frames of slices that an exception began and that have not ended, innermost last (thrown.c). Changed
     * by the thread itself, or while it is stopped. */
    ep_thrown thrown[EP_THROWN_MAX];
    uint32_t thrown_count;
    uint32_t thrown_dropped;                  /* outer ones, which had no room */
    ep_thrown handling[EP_HANDLING_MAX];
    uint32_t handling_next;                   /* which is replaced by the next one */
    _Atomic bool exited;
} ep_thread;

/* Facts about one thread that a recorder has besides its chunks. */
typedef struct ep_window_thread {
    ep_open_stack open;                 /* calls open where the kept records begin */
    uint64_t lost[EP_KIND_COUNT];
} ep_window_thread;

#endif
