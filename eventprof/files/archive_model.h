/* Shared by the encoder and the decoder of events. Each section of events can be decoded without the
 * others.
 *
 * The encoding is small because both directions predict the next event by the same model of the earlier
 * events. If the prediction is right, one small constant is stored, which the compressor reduces to almost
 * nothing.
 *   kind and id   those that followed the same two events (or the same event) of the thread before
 *   end of a call its function is that of the innermost open call
 *   size          the same as last time at this site after the same event
 *   malloc        the address that was freed last in its size class (the allocators' free lists are
 *                 stacks), or the one after the last of its class
 *   free          as many allocations after the block's own as last time at this site
 *   value         the same as last time at this site after the same event
 * What remains is the noise of the times: one byte an event, and one more if the time is 192 ns or more. */
#ifndef EP_ARCHIVE_MODEL_H
#define EP_ARCHIVE_MODEL_H

#include "archive_format.h"
#include "places.h"

/* ---- Layout ----------------------------------------------------------------------------------
 *
 * [head 24][length of each stream 4 * 8][streams]
 * head: events 4, allocator events 4, first time 8, last time 8 */
typedef enum stream_id {
    STREAM_THREADS,      /* varint row, varint events; again and again */
    STREAM_TIMES,        /* one byte an event: ns since the event before, or 192 + high part */
    STREAM_LONG_TIMES,   /* the low byte of those with a high part, or a varint for the longest */
    STREAM_KINDS,        /* one byte an event, a token */
    STREAM_IDS,          /* a varint, if the token says that an id follows */
    STREAM_SIZES,        /* varint an allocation: 0 as guessed, else size + 1; a value: zigzag of
                            how much more than guessed */
    STREAM_PLACES,       /* a byte an allocation, a varint a free */
    STREAM_ADDRESSES,    /* if the place says that an address follows */
    STREAM_COUNT
} stream_id;

#define HEAD_BYTES 24
#define LENGTHS_BYTES (4 * STREAM_COUNT)

/* Times. A delta is TOKEN, or TOKEN = 192 + h, and then 192 + (h << 8 | byte), or 255, and then
 * 192 + (63 << 8) + varint. */
#define TIME_LONG 192
#define TIME_LONGEST 255
#define TIME_LONGEST_FROM (UINT64_C(192) + (63 << 8))

/* Kinds. 2 + 2 * (kind - 1) + 1: an id follows; without the 1: it is 0 (of an end: the innermost
 * open call's function). */
#define KIND_AS_AFTER_TWO 0
#define KIND_AS_AFTER_ONE 1

/* Places of allocations: 0..31 how deep in the class's free list, then: */
#define PLACE_AFTER 32      /* the address after the last of the class */
#define PLACE_FREED_LAST 33  /* the address that was freed last, in any class */
#define PLACE_NEAR 34        /* varint zigzag of the distance / 16 to the last of the class */
#define PLACE_FAR 35         /* the 8 bytes */
/* Places of frees: 0 as guessed, 1 near and 2 far as above (from the last that was so), else 2 + how
 * many allocations ago the block was made. */
#define FREE_NEAR 1
#define FREE_FAR 2

/* The largest number of bytes of one event in all streams. */
#define EVENT_BYTES (2 * EP_VARINT_BYTES + 2 + 5 * EP_VARINT_BYTES)

/* ---- The model ------------------------------------------------------------------------------- */

/* A kind and an id: id << 6 with the low 6 bits of the kind below, and its high one on top. So kinds below
 * 64 have the same symbols and hashes as before there were kinds above 63. 0: none */
#define SYMBOL(kind, id) \
    (((uint32_t)(kind) & 63) | (uint32_t)(id) << 6 | (uint32_t)(kind) >> 6 << 31)
#define SYMBOL_KIND(symbol) (((symbol) & 63) | (symbol) >> 31 << 6)
#define SYMBOL_ID(symbol) ((symbol) >> 6 & EP_PAYLOAD_MAX)

#define TWO_BITS 16
#define ONE_BITS 12
#define SIZE_BITS 14
#define AGO_BITS 12
#define RECENT ((size_t)1 << 16)
/* How far down the stack the call of an end is searched. */
#define LOOK_DOWN 8
/* Encoding only: the number of the allocation of a recent address. Old entries are overwritten; then the
 * address of the free is stored in full. */
#define SEEN_BITS 17

typedef struct open_node {
    uint32_t name;           /* of the file */
    uint32_t below;          /* index + 1; 0: the bottom */
} open_node;

typedef struct thread_model {
    uint64_t epoch;          /* of the section for which the other fields are valid */
    uint32_t top;            /* index + 1 in nodes; 0: no call that began in this section is open */
    uint32_t before, before_that;    /* symbols */
} thread_model;

typedef struct recent_block {
    uint64_t address;
    uint32_t class;
} recent_block;

typedef struct seen_block {
    uint64_t address;
    uint32_t number;         /* of its allocation, from 1; 0: nothing here */
} seen_block;

typedef struct model {
    uint32_t after_two[1 << TWO_BITS], after_one[1 << ONE_BITS];
    uint64_t size[1 << SIZE_BITS];
    uint32_t ago[1 << AGO_BITS];
    ep_free_list lists[EP_PLACE_CLASSES];
    uint64_t freed_last;             /* address */
    uint64_t far_freed;              /* address that the last NEAR or FAR free had */
    uint32_t allocated;              /* so far: number of the last */
    uint32_t node_count;
} model;

struct ep_events_coder {
    ep_events_ids ids;
    uint64_t epoch;                  /* sections begun */
    model model;
    recent_block recent[RECENT];     /* index = number of the allocation, modulo */
    thread_model *threads;           /* by row */
    open_node *nodes;                /* EP_SECTION_ROWS_MAX, or fewer when writing */
    /* writing */
    seen_block *seen;
    uint8_t *streams;                /* each stream has its own part */
    uint8_t *bytes;                  /* the result */
};

static inline size_t
hash_two(uint32_t a, uint32_t b, int bits)
{
    return (a * UINT32_C(0x9E3779B1) ^ b * UINT32_C(0x85EBCA6B)) >> (32 - bits);
}

static inline size_t
hash_one(uint32_t a, int bits)
{
    return a * UINT32_C(0x9E3779B1) >> (32 - bits);
}

static inline void
model_begin(ep_events_coder *coder)
{
    memset(&coder->model, 0, sizeof coder->model);
    coder->epoch += 1;
    if (coder->seen != NULL) {
        memset(coder->seen, 0, sizeof *coder->seen << SEEN_BITS);
    }
}

/* Few of the threads have events in a section: the model of a thread is initialised at its first event. */
static inline thread_model *
thread_of(ep_events_coder *coder, size_t row)
{
    thread_model *t = &coder->threads[row];
    if (t->epoch != coder->epoch) {
        *t = (thread_model){.epoch = coder->epoch};
    }
    return t;
}

/* Updates the model after an event. */
static inline void
learn(model *m, thread_model *t, uint32_t symbol)
{
    m->after_two[hash_two(t->before, t->before_that, TWO_BITS)] = symbol;
    m->after_one[hash_one(t->before, ONE_BITS)] = symbol;
    t->before_that = t->before;
    t->before = symbol;
}

static inline void
open_call(ep_events_coder *coder, thread_model *t, uint32_t name)
{
    coder->nodes[coder->model.node_count] = (open_node){name, t->top};
    t->top = ++coder->model.node_count;
}

/* The name of the innermost open call; 0: none is known. */
static inline uint32_t
top_name(const ep_events_coder *coder, const thread_model *t)
{
    return t->top != 0 ? coder->nodes[t->top - 1].name : 0;
}

/* Ends the innermost call of the function `name`, and the calls inside of it; if there is none, nothing. */
static inline void
close_call(const ep_events_coder *coder, thread_model *t, uint32_t name)
{
    uint32_t at = t->top;
    for (int i = 0; at != 0 && i < LOOK_DOWN; i++) {
        const open_node *node = &coder->nodes[at - 1];
        if (node->name == name) {
            t->top = node->below;
            return;
        }
        at = node->below;
    }
}

static inline void
note_allocation(ep_events_coder *coder, ep_free_list *list, unsigned class, uint64_t address)
{
    model *m = &coder->model;
    list->last = address;
    m->allocated += 1;
    coder->recent[m->allocated % RECENT] = (recent_block){address, class};
}

static inline void
note_free(ep_events_coder *coder, uint32_t ago, uint64_t address)
{
    model *m = &coder->model;
    m->freed_last = address;
    if (ago != 0) {
        ep_free_list_put(&m->lists[coder->recent[(m->allocated + 1 - ago) % RECENT].class], address);
    } else {
        m->far_freed = address;
    }
}

#endif
