/* Shared by verify.c (order, ids, calls, counts) and verify_blocks.c. */
#ifndef EP_VERIFY_PARTS_H
#define EP_VERIFY_PARTS_H

#include "verify.h"

/* Adds the finding, or counts it as excused. */
void ep_verify_report(ep_verification *to, bool excused, const ep_finding *finding);

/* A finding about a row. */
ep_finding ep_verify_at(const ep_verify_input *input, ep_finding_sort sort, size_t row);

typedef struct ep_address {
    uint64_t address;
    uint32_t row;      /* of its last event */
    uint32_t other;    /* the event before that: the birth of the freed block, or of the block that lived
                        * there */
    uint32_t state;    /* see verify_blocks.c; 0: an empty slot */
} ep_address;

/* A thread's last realloc_free whose realloc is still to come. */
typedef struct ep_moving {
    uint32_t row;      /* EP_ROW_NONE: none */
    bool seen;         /* the thread had allocator events */
    uint64_t address;
} ep_moving;

typedef struct ep_block_verifier {
    const ep_verify_input *input;
    ep_verification *to;
    ep_kind_set kinds;         /* kinds of domains that were recorded completely */
    int64_t lost_until_ns;     /* an event up to here may be lost; -1: none was */
    ep_address *slots;
    size_t capacity, used, live;
    unsigned shift;            /* 64 - log2(capacity) */
    ep_moving *moving;         /* by thread */
} ep_block_verifier;

EP_CHECKED ep_status ep_block_verifier_open(ep_block_verifier *blocks, const ep_verify_input *input,
                                            ep_verification *to);
/* event: index of an allocator event; the kind and the thread of its row must be known. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_block_verifier_next(ep_block_verifier *blocks, size_t event);
void ep_block_verifier_finish(ep_block_verifier *blocks);
void ep_block_verifier_close(ep_block_verifier *blocks);

#endif
