/* Blocks of events <-> bytes. Each block can be decoded without the others.
 *
 * What makes it small is guessing: both directions keep the same model of what was so far, and where
 * the guess is right one small constant is stored, of which the compressor leaves next to nothing.
 *   kind and id   the same as after the same two (or one) events of the thread before
 *   end of a call its function is that of the innermost open call
 *   size          the same as last time at this site after the same event
 *   malloc        the address that was freed last in its size class (the allocators' free lists are
 *                 stacks), or the one behind the last of its class
 *   free          as many allocations after the block's own as last time at this site
 *   value         the same as last time at this site after the same event
 * The times' noise is what remains: one byte an event, plus one where it is 192 ns or more. */
#include "archive_parts.h"

#include "memory.h"
#include "names.h"

/* ---- Layout ----------------------------------------------------------------------------------
 *
 * [head 24][length of each stream 4 * 8][streams]
 * head: events 4, allocator events 4, first time 8, last time 8 */
typedef enum stream_id {
    STREAM_THREADS,      /* varint row, varint events; again and again */
    STREAM_TIMES,        /* a byte an event: ns since the event before, or 192 + high part */
    STREAM_LONG_TIMES,   /* the low byte of those, or the rest of the longest */
    STREAM_KINDS,        /* a byte an event, a token */
    STREAM_IDS,          /* varint, of tokens that say so */
    STREAM_SIZES,        /* varint an allocation: 0 as guessed, else size + 1; a value: zigzag of
                            how much more than guessed */
    STREAM_PLACES,       /* a byte an allocation, a varint a free */
    STREAM_ADDRESSES,    /* of those whose place says so */
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
#define FREE_LIST 32
#define PLACE_BEHIND 32      /* the last of the class */
#define PLACE_FREED_LAST 33  /* whatever the class */
#define PLACE_NEAR 34        /* varint zigzag of the distance / 16 to the last of the class */
#define PLACE_FAR 35         /* the 8 bytes */
/* Places of frees: 0 as guessed, 1 near and 2 far as above (from the last that was so), else 2 + how
 * many allocations ago the block was made. */
#define FREE_NEAR 1
#define FREE_FAR 2

/* A longest event, in bytes of each stream. */
static const uint8_t stream_bytes[STREAM_COUNT] = {
    [STREAM_THREADS] = 2 * EP_VARINT_BYTES,
    [STREAM_TIMES] = 1,
    [STREAM_LONG_TIMES] = EP_VARINT_BYTES,
    [STREAM_KINDS] = 1,
    [STREAM_IDS] = EP_VARINT_BYTES,
    [STREAM_SIZES] = EP_VARINT_BYTES,
    [STREAM_PLACES] = EP_VARINT_BYTES,
    [STREAM_ADDRESSES] = EP_VARINT_BYTES,
};
#define EVENT_BYTES (2 * EP_VARINT_BYTES + 2 + 5 * EP_VARINT_BYTES)

/* ---- The model ------------------------------------------------------------------------------- */

/* A kind and an id: id << 6 with the low 6 bits of the kind below, and its high one on top. So it is the
 * same as before there were kinds above 63, and hashes of it are. 0: none */
#define SYMBOL(kind, id) \
    (((uint32_t)(kind) & 63) | (uint32_t)(id) << 6 | (uint32_t)(kind) >> 6 << 31)
#define SYMBOL_KIND(symbol) (((symbol) & 63) | (symbol) >> 31 << 6)
#define SYMBOL_ID(symbol) ((symbol) >> 6 & EP_PAYLOAD_MAX)

#define TWO_BITS 16
#define ONE_BITS 12
#define SIZE_BITS 14
#define AGO_BITS 12
#define RECENT ((size_t)1 << 16)
#define CLASSES 128
/* How far down the stack an end that is not the innermost call's is looked for. */
#define LOOK_DOWN 8
/* Encoding only: where a block of recent address stands. Forgets; then its free is stored whole. */
#define SEEN_BITS 17

typedef struct open_node {
    uint32_t name;           /* of the file */
    uint32_t below;          /* index + 1; 0: the bottom */
} open_node;

typedef struct thread_model {
    uint64_t epoch;          /* of the block for which the rest holds */
    uint32_t top;            /* index + 1 in nodes; 0: no call is open that began in this block */
    uint32_t before, before_that;    /* symbols */
} thread_model;

typedef struct free_list {
    uint64_t last;                   /* address allocated last */
    uint32_t count;
    uint64_t freed[FREE_LIST];       /* the last freed last */
} free_list;

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
    free_list lists[CLASSES];
    uint64_t freed_last;             /* address */
    uint64_t far_freed;              /* address that the last NEAR or FAR free had */
    uint32_t allocated;              /* so far: number of the last */
    uint32_t node_count;
} model;

struct ep_block_coder {
    ep_block_names names;
    uint64_t epoch;                  /* blocks begun */
    model model;
    recent_block recent[RECENT];     /* index = number of the allocation, modulo */
    thread_model *threads;           /* by row */
    open_node *nodes;                /* EP_BLOCK_EVENTS_MAX, or fewer when writing */
    /* writing */
    seen_block *seen;
    uint8_t *streams;                /* each in room of its own */
    uint8_t *bytes;                  /* the result */
};

static size_t
hash_two(uint32_t a, uint32_t b, int bits)
{
    return (a * UINT32_C(0x9E3779B1) ^ b * UINT32_C(0x85EBCA6B)) >> (32 - bits);
}

static size_t
hash_one(uint32_t a, int bits)
{
    return a * UINT32_C(0x9E3779B1) >> (32 - bits);
}

/* Blocks of a class share a free list. Up to 512 bytes obmalloc's of 16 bytes each; above, and in
 * the raw domain, malloc's, whose chunks have 8 bytes more. */
static unsigned
class_of(unsigned domain, uint64_t size, uint64_t *stride)
{
    size = size < INT64_MAX ? size : INT64_MAX;    /* a file may say anything */
    if (size <= 512 && (domain == EP_DOMAIN_MEM || domain == EP_DOMAIN_OBJ)) {
        unsigned class = size != 0 ? (unsigned)((size + 15) / 16) : 1;
        *stride = class * 16;
        return class;    /* 1..32 */
    }
    uint64_t chunk = size <= 24 ? 32 : (size + 8 + 15) & ~UINT64_C(15);
    *stride = chunk;
    if (chunk <= 1024) {
        return 32 + (unsigned)(chunk / 16 - 1);    /* 33..95 */
    }
    return 96 + (unsigned)(63 - __builtin_clzll(chunk)) % 32;
}

static void
model_begin(ep_block_coder *coder)
{
    memset(&coder->model, 0, sizeof coder->model);
    coder->epoch += 1;
    if (coder->seen != NULL) {
        memset(coder->seen, 0, sizeof *coder->seen << SEEN_BITS);
    }
}

/* Few of the threads have events in a block: each is made ready when it has. */
static thread_model *
thread_of(ep_block_coder *coder, size_t row)
{
    thread_model *t = &coder->threads[row];
    if (t->epoch != coder->epoch) {
        *t = (thread_model){.epoch = coder->epoch};
    }
    return t;
}

/* An event is over: what may come after it is known better now. */
static void
learn(model *m, thread_model *t, uint32_t symbol)
{
    m->after_two[hash_two(t->before, t->before_that, TWO_BITS)] = symbol;
    m->after_one[hash_one(t->before, ONE_BITS)] = symbol;
    t->before_that = t->before;
    t->before = symbol;
}

static void
open_call(ep_block_coder *coder, thread_model *t, uint32_t name)
{
    coder->nodes[coder->model.node_count] = (open_node){name, t->top};
    t->top = ++coder->model.node_count;
}

/* The name of the innermost open call; 0: none is known. */
static uint32_t
top_name(const ep_block_coder *coder, const thread_model *t)
{
    return t->top != 0 ? coder->nodes[t->top - 1].name : 0;
}

/* The innermost call ends if `name` is its function's; else the nearest one whose it is, with those
 * inside; else none. */
static void
close_call(const ep_block_coder *coder, thread_model *t, uint32_t name)
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

/* Takes a block off a free list: the `depth`-th from the top. */
static void
list_take(free_list *list, unsigned depth)
{
    uint32_t at = list->count - 1 - depth;
    memmove(&list->freed[at], &list->freed[at + 1], depth * sizeof list->freed[0]);
    list->count -= 1;
}

static void
list_put(free_list *list, uint64_t address)
{
    if (list->count == FREE_LIST) {
        list_take(list, FREE_LIST - 1);
    }
    list->freed[list->count++] = address;
}

static void
note_allocation(ep_block_coder *coder, free_list *list, unsigned class, uint64_t address)
{
    model *m = &coder->model;
    list->last = address;
    m->allocated += 1;
    coder->recent[m->allocated % RECENT] = (recent_block){address, class};
}

static void
note_free(ep_block_coder *coder, uint32_t ago, uint64_t address)
{
    model *m = &coder->model;
    m->freed_last = address;
    if (ago != 0) {
        list_put(&m->lists[coder->recent[(m->allocated + 1 - ago) % RECENT].class], address);
    } else {
        m->far_freed = address;
    }
}

/* ---- Coders ---------------------------------------------------------------------------------- */

ep_block_coder *
ep_block_coder_new(const ep_block_names *names, bool writes)
{
    ep_block_coder *coder = ep_calloc(1, sizeof *coder);
    if (coder == NULL) {
        return NULL;
    }
    size_t events = writes ? EP_BLOCK_EVENTS : EP_BLOCK_EVENTS_MAX;
    coder->names = *names;
    coder->threads = ep_calloc(names->thread_count, sizeof *coder->threads);
    coder->nodes = ep_realloc(NULL, events, sizeof *coder->nodes);
    bool whole = coder->threads != NULL && coder->nodes != NULL;
    if (writes && whole) {
        coder->seen = ep_realloc(NULL, (size_t)1 << SEEN_BITS, sizeof *coder->seen);
        coder->streams = ep_realloc(NULL, events, EVENT_BYTES);
        coder->bytes = ep_realloc(NULL, events + 1, EVENT_BYTES);
        whole = coder->seen != NULL && coder->streams != NULL && coder->bytes != NULL;
    }
    if (!whole) {
        ep_block_coder_free(coder);
        return NULL;
    }
    return coder;
}

void
ep_block_coder_free(ep_block_coder *coder)
{
    if (coder != NULL) {
        free(coder->threads);
        free(coder->nodes);
        free(coder->seen);
        free(coder->streams);
        free(coder->bytes);
        free(coder);
    }
}

/* ---- Encoding -------------------------------------------------------------------------------- */

typedef struct writer {
    uint8_t *at[STREAM_COUNT];       /* behind what is written */
} writer;

static inline void
put_byte(writer *w, stream_id stream, unsigned byte)
{
    *w->at[stream]++ = (uint8_t)byte;
}

static inline void
put_varint(writer *w, stream_id stream, uint64_t value)
{
    w->at[stream] = ep_store_varint(w->at[stream], value);
}

static void
put_far(writer *w, uint64_t address)
{
    ep_store_le(w->at[STREAM_ADDRESSES], address, 8);
    w->at[STREAM_ADDRESSES] += 8;
}

static inline void
put_time(writer *w, uint64_t delta)
{
    if (EP_LIKELY(delta < TIME_LONG)) {
        put_byte(w, STREAM_TIMES, (unsigned)delta);
    } else if (delta < TIME_LONGEST_FROM) {
        put_byte(w, STREAM_TIMES, TIME_LONG + (unsigned)((delta - TIME_LONG) >> 8));
        put_byte(w, STREAM_LONG_TIMES, (unsigned)(delta - TIME_LONG) & 255);
    } else {
        put_byte(w, STREAM_TIMES, TIME_LONGEST);
        put_varint(w, STREAM_LONG_TIMES, delta - TIME_LONGEST_FROM);
    }
}

/* Whether an address can be stored as a distance, and that. */
static bool
near(uint64_t address, uint64_t to, uint64_t *distance)
{
    int64_t difference = (int64_t)(address - to);
    *distance = ep_zigzag(difference / 16);
    return difference % 16 == 0;
}

static void
put_allocation(ep_block_coder *coder, writer *w, unsigned kind, uint32_t symbol, uint32_t before,
               uint64_t address, uint64_t size)
{
    model *m = &coder->model;
    uint64_t *guess = &m->size[hash_two(symbol, before, SIZE_BITS)];
    put_varint(w, STREAM_SIZES, *guess == size ? 0 : size + 1);
    *guess = size;
    uint64_t stride, distance;
    unsigned class = class_of(ep_kinds[kind].domain, size, &stride);
    free_list *list = &m->lists[class];
    unsigned depth = 0;
    while (depth < list->count && list->freed[list->count - 1 - depth] != address) {
        depth += 1;
    }
    if (depth < list->count) {
        put_byte(w, STREAM_PLACES, depth);
        list_take(list, depth);
    } else if (address == list->last + stride) {
        put_byte(w, STREAM_PLACES, PLACE_BEHIND);
    } else if (address == m->freed_last) {
        put_byte(w, STREAM_PLACES, PLACE_FREED_LAST);
    } else if (near(address, list->last, &distance)) {
        put_byte(w, STREAM_PLACES, PLACE_NEAR);
        put_varint(w, STREAM_ADDRESSES, distance);
    } else {
        put_byte(w, STREAM_PLACES, PLACE_FAR);
        put_far(w, address);
    }
    note_allocation(coder, list, class, address);
    coder->seen[(address >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> (64 - SEEN_BITS)] =
        (seen_block){address, m->allocated};
}

static void
put_free(ep_block_coder *coder, writer *w, uint32_t symbol, uint32_t before, uint64_t address)
{
    model *m = &coder->model;
    const seen_block *seen =
        &coder->seen[(address >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> (64 - SEEN_BITS)];
    uint32_t ago = 0;
    if (seen->number != 0 && seen->address == address && m->allocated - seen->number < RECENT) {
        ago = m->allocated + 1 - seen->number;
    }
    uint32_t *guess = &m->ago[hash_two(symbol, before, AGO_BITS)];
    uint64_t distance;
    if (ago != 0) {
        put_varint(w, STREAM_PLACES, *guess == ago ? 0 : FREE_FAR + (uint64_t)ago);
        *guess = ago;
    } else if (near(address, m->far_freed, &distance)) {
        put_varint(w, STREAM_PLACES, FREE_NEAR);
        put_varint(w, STREAM_ADDRESSES, distance);
    } else {
        put_varint(w, STREAM_PLACES, FREE_FAR);
        put_far(w, address);
    }
    note_free(coder, ago, address);
}

static uint32_t
map_id(const uint32_t *map, size_t count, uint32_t id)
{
    return id < count ? map[id] : 0;
}

/* Unsigned: a difference may wrap around, and back. */
static void
put_value(ep_block_coder *coder, writer *w, uint32_t symbol, uint32_t before, uint64_t value)
{
    uint64_t *guess = &coder->model.size[hash_two(symbol, before, SIZE_BITS)];
    put_varint(w, STREAM_SIZES, ep_zigzag((int64_t)(value - *guess)));
    *guess = value;
}

/* Returns: the symbol. */
static uint32_t
put_kind(ep_block_coder *coder, writer *w, thread_model *t, unsigned kind, uint32_t process_id)
{
    const ep_block_names *names = &coder->names;
    model *m = &coder->model;
    uint32_t symbol;
    bool in_call = ep_kinds[kind].family == EP_FAMILY_CALL;
    if (ep_kind_has_name(kind)) {
        uint32_t name = map_id(names->name_map, names->name_map_count, process_id);
        symbol = SYMBOL(kind, top_name(coder, t) == name ? 0 : name + 1);
        close_call(coder, t, name);
    } else {
        uint32_t site = map_id(names->site_map, names->site_map_count, process_id);
        symbol = SYMBOL(kind, site);
        if (in_call) {
            open_call(coder, t, names->site_callee[site]);
        }
    }
    if (m->after_two[hash_two(t->before, t->before_that, TWO_BITS)] == symbol) {
        put_byte(w, STREAM_KINDS, KIND_AS_AFTER_TWO);
    } else if (m->after_one[hash_one(t->before, ONE_BITS)] == symbol) {
        put_byte(w, STREAM_KINDS, KIND_AS_AFTER_ONE);
    } else {
        bool has_id = SYMBOL_ID(symbol) != 0;
        put_byte(w, STREAM_KINDS, 2 + 2 * (kind - 1) + has_id);
        if (has_id) {
            put_varint(w, STREAM_IDS, SYMBOL_ID(symbol));
        }
    }
    return symbol;
}

const uint8_t *
ep_block_encode(ep_block_coder *coder, const ep_columns *columns, size_t row, size_t count,
                size_t *block, size_t *bytes)
{
    writer w;
    uint8_t *room[STREAM_COUNT], *next = coder->streams;
    for (int i = 0; i < STREAM_COUNT; i++) {
        w.at[i] = room[i] = next;
        next += stream_bytes[i] * EP_BLOCK_EVENTS;
    }
    model_begin(coder);
    size_t first_block = *block, end = row + count;
    int64_t first_ns = columns->time_ns[row], last_ns = first_ns;
    while (row < end) {
        int32_t thread = columns->thread[row];
        size_t run = row + 1;
        while (run < end && columns->thread[run] == thread) {
            run += 1;
        }
        put_varint(&w, STREAM_THREADS, (uint64_t)thread);
        put_varint(&w, STREAM_THREADS, run - row);
        thread_model *t = thread_of(coder, (size_t)thread);
        for (; row < run; row++) {
            unsigned kind = columns->kind[row];
            put_time(&w, (uint64_t)columns->time_ns[row] - (uint64_t)last_ns);
            last_ns = columns->time_ns[row];
            uint32_t symbol = put_kind(coder, &w, t, kind, columns->id[row]);
            if (ep_kinds[kind].family == EP_FAMILY_ALLOC) {
                put_allocation(coder, &w, kind, symbol, t->before, columns->address[*block],
                               (uint64_t)columns->size[*block]);
                *block += 1;
            } else if (ep_kinds[kind].family == EP_FAMILY_FREE) {
                put_free(coder, &w, symbol, t->before, columns->address[*block]);
                *block += 1;
            } else if (ep_kinds[kind].family == EP_FAMILY_VALUE) {
                put_value(coder, &w, symbol, t->before, columns->address[*block]);
                *block += 1;
            }
            learn(&coder->model, t, symbol);
        }
    }
    uint8_t *to = coder->bytes;
    ep_store_le(&to[0], count, 4);
    ep_store_le(&to[4], *block - first_block, 4);
    ep_store_le(&to[8], (uint64_t)first_ns, 8);
    ep_store_le(&to[16], (uint64_t)last_ns, 8);
    to += HEAD_BYTES + LENGTHS_BYTES;
    for (int i = 0; i < STREAM_COUNT; i++) {
        size_t length = (size_t)(w.at[i] - room[i]);
        ep_store_le(&coder->bytes[HEAD_BYTES + 4 * i], length, 4);
        memcpy(to, room[i], length);
        to += length;
    }
    *bytes = (size_t)(to - coder->bytes);
    return coder->bytes;
}

/* ---- Decoding -------------------------------------------------------------------------------- */

typedef struct reader {
    ep_input in[STREAM_COUNT];
    const char *wrong;       /* what; NULL: nothing yet */
} reader;

static uint64_t
get_time(reader *r)
{
    uint8_t token = ep_input_byte(&r->in[STREAM_TIMES]);
    if (EP_LIKELY(token < TIME_LONG)) {
        return token;
    }
    if (token < TIME_LONGEST) {
        return TIME_LONG + ((uint64_t)(token - TIME_LONG) << 8) +
               ep_input_byte(&r->in[STREAM_LONG_TIMES]);
    }
    uint64_t rest = ep_input_varint(&r->in[STREAM_LONG_TIMES]);
    if (rest > EP_ARCHIVE_SUM_MAX) {
        r->wrong = "a time is out of range";
        return 0;
    }
    return TIME_LONGEST_FROM + rest;
}

static bool
kind_is_event(const ep_block_coder *coder, unsigned kind)
{
    const ep_kind_info *info = &coder->names.kinds[kind];
    return info->words != 0 && info->family != EP_FAMILY_CONTROL;
}

/* 0: something is wrong. */
static uint32_t
get_symbol(ep_block_coder *coder, reader *r, const thread_model *t)
{
    const model *m = &coder->model;
    uint8_t token = ep_input_byte(&r->in[STREAM_KINDS]);
    if (EP_LIKELY(token <= KIND_AS_AFTER_ONE)) {
        return token == KIND_AS_AFTER_TWO ? m->after_two[hash_two(t->before, t->before_that, TWO_BITS)]
                                          : m->after_one[hash_one(t->before, ONE_BITS)];
    }
    unsigned kind = (token - 2u) / 2 + 1;
    if (kind >= EP_KIND_COUNT || !kind_is_event(coder, kind)) {
        r->wrong = "an event is of no known kind";
        return 0;
    }
    if (token % 2 == 0) {
        return SYMBOL(kind, 0);
    }
    bool name = coder->names.kinds[kind].has_name;
    uint64_t id = ep_input_varint(&r->in[STREAM_IDS]);
    /* An end has the name's id + 1. */
    if (id == 0 || id >= (name ? coder->names.name_count + 1 : coder->names.site_count)) {
        r->wrong = name ? "an event has a name that is not in the file"
                        : "an event has a site that is not in the file";
        return 0;
    }
    return SYMBOL(kind, id);
}

static uint64_t
get_near(reader *r, uint64_t to)
{
    /* Unsigned: what a file says may wrap around. */
    return to + (uint64_t)ep_unzigzag(ep_input_varint(&r->in[STREAM_ADDRESSES])) * 16;
}

static uint64_t
get_allocation(ep_block_coder *coder, reader *r, unsigned domain, uint32_t symbol, uint32_t before,
               uint64_t *size)
{
    model *m = &coder->model;
    uint64_t *guess = &m->size[hash_two(symbol, before, SIZE_BITS)];
    uint64_t stored = ep_input_varint(&r->in[STREAM_SIZES]);
    *size = *guess = stored == 0 ? *guess : stored - 1;
    uint64_t stride, address = 0;
    unsigned class = class_of(domain, *size, &stride);
    free_list *list = &m->lists[class];
    uint8_t place = ep_input_byte(&r->in[STREAM_PLACES]);
    if (EP_LIKELY(place < list->count)) {
        address = list->freed[list->count - 1 - place];
        list_take(list, place);
    } else if (place == PLACE_BEHIND) {
        address = list->last + stride;
    } else if (place == PLACE_FREED_LAST) {
        address = m->freed_last;
    } else if (place == PLACE_NEAR) {
        address = get_near(r, list->last);
    } else if (place == PLACE_FAR) {
        address = ep_input_le(&r->in[STREAM_ADDRESSES], 8);
    } else {
        r->wrong = "an allocation is at no known place";
    }
    note_allocation(coder, list, class, address);
    return address;
}

static uint64_t
get_free(ep_block_coder *coder, reader *r, uint32_t symbol, uint32_t before)
{
    model *m = &coder->model;
    uint32_t *guess = &m->ago[hash_two(symbol, before, AGO_BITS)];
    uint64_t stored = ep_input_varint(&r->in[STREAM_PLACES]), address;
    uint32_t ago = 0;
    if (stored == FREE_NEAR) {
        address = get_near(r, m->far_freed);
    } else if (stored == FREE_FAR) {
        address = ep_input_le(&r->in[STREAM_ADDRESSES], 8);
    } else {
        uint64_t wanted = stored == 0 ? *guess : stored - FREE_FAR;
        if (wanted == 0 || wanted > m->allocated || wanted > RECENT) {
            r->wrong = "a free is of a block that was not allocated";
            return 0;
        }
        *guess = ago = (uint32_t)wanted;
        address = coder->recent[(m->allocated + 1 - ago) % RECENT].address;
    }
    note_free(coder, ago, address);
    return address;
}

static uint64_t
get_value(ep_block_coder *coder, reader *r, uint32_t symbol, uint32_t before)
{
    uint64_t *guess = &coder->model.size[hash_two(symbol, before, SIZE_BITS)];
    *guess += (uint64_t)ep_unzigzag(ep_input_varint(&r->in[STREAM_SIZES]));
    return *guess;
}

/* The id that the row gets: the process's. */
static uint32_t
follow_symbol(ep_block_coder *coder, thread_model *t, uint32_t symbol)
{
    const ep_block_names *names = &coder->names;
    unsigned kind = SYMBOL_KIND(symbol);
    uint32_t id = SYMBOL_ID(symbol);
    if (names->kinds[kind].family != EP_FAMILY_CALL) {
        return names->site_map[id];
    }
    if (names->kinds[kind].has_name) {
        uint32_t name = id == 0 ? top_name(coder, t) : id - 1;
        close_call(coder, t, name);
        return names->name_map[name];
    }
    open_call(coder, t, names->site_callee[id]);
    return names->site_map[id];
}

typedef struct rows {
    size_t row, block;       /* next */
    size_t events, blocks;   /* of the file that are still to come */
    uint64_t time, last_time;
    int64_t size_sum;
} rows;

static void
get_run(ep_block_coder *coder, reader *r, ep_columns *c, rows *at, int32_t thread, size_t events)
{
    thread_model *t = thread_of(coder, (size_t)thread);
    for (; events > 0; events--) {
        at->time += get_time(r);
        uint32_t symbol = get_symbol(coder, r, t);
        if (EP_UNLIKELY(symbol == 0 || at->time > at->last_time || r->wrong != NULL)) {
            r->wrong = r->wrong != NULL ? r->wrong
                       : symbol == 0    ? "an event is of no known kind"
                                        : "its times are not in order";
            return;
        }
        unsigned kind = SYMBOL_KIND(symbol);
        const ep_kind_info *info = &coder->names.kinds[kind];
        size_t known = info->name != NULL;    /* else the next row is put in its place */
        c->time_ns[at->row] = (int64_t)at->time;
        c->kind[at->row] = (uint8_t)kind;
        c->thread[at->row] = thread;
        c->id[at->row] = follow_symbol(coder, t, symbol);
        if (info->words == 2) {
            if (EP_UNLIKELY(at->blocks == 0)) {
                r->wrong = "it has more allocator events and values than it says";
                return;
            }
            uint64_t size = UINT64_MAX;
            c->alloc_row[at->block] = at->row;
            c->address[at->block] =
                info->family == EP_FAMILY_ALLOC
                    ? get_allocation(coder, r, info->domain, symbol, t->before, &size)
                : info->family == EP_FAMILY_FREE ? get_free(coder, r, symbol, t->before)
                                                 : get_value(coder, r, symbol, t->before);
            c->size[at->block] = (int64_t)size;
            at->block += known;
            at->blocks -= 1;
            if (info->family == EP_FAMILY_ALLOC && known) {
                /* A failed realloc's is what was asked for, and in no sum. */
                uint64_t most = info->pairing == EP_PAIRING_NEITHER
                                    ? INT64_MAX
                                    : (uint64_t)(EP_ARCHIVE_SUM_MAX - at->size_sum);
                if (EP_UNLIKELY(size > most)) {
                    r->wrong = "a size is out of range";
                    return;
                }
                at->size_sum += info->pairing == EP_PAIRING_NEITHER ? 0 : (int64_t)size;
            }
        }
        learn(&coder->model, t, symbol);
        at->row += known;
    }
}

/* Sets up the streams; false: they are not what the bytes hold. */
static bool
begin_streams(reader *r, const uint8_t *bytes, size_t count)
{
    ep_input all = {.at = bytes + HEAD_BYTES + LENGTHS_BYTES, .end = bytes + count};
    for (int i = 0; i < STREAM_COUNT; i++) {
        uint64_t length = ep_load_le(&bytes[HEAD_BYTES + 4 * i], 4);
        const uint8_t *at = ep_input_take(&all, length);
        if (at == NULL) {
            return false;
        }
        r->in[i] = (ep_input){.at = at, .end = at + length};
    }
    return all.at == all.end;
}

static bool
streams_are_used_up(const reader *r)
{
    for (int i = 0; i < STREAM_COUNT; i++) {
        if (r->in[i].bad || r->in[i].at != r->in[i].end) {
            return false;
        }
    }
    return true;
}

/* What is right counts: each thread's events by kind, its first and its last time. */
static void
commit(const ep_columns *c, size_t from, const rows *at, ep_block_totals *totals)
{
    for (size_t row = from; row < at->row; row++) {
        int32_t thread = c->thread[row];
        totals->recorded[thread][c->kind[row]] += 1;
        if (totals->first_ns[thread] < 0) {
            totals->first_ns[thread] = c->time_ns[row];
        }
        totals->last_of_thread_ns[thread] = c->time_ns[row];
    }
    totals->last_ns = (int64_t)at->last_time;
    totals->size_sum = at->size_sum;
}

static const char *
decode_rows(ep_block_coder *coder, reader *r, ep_columns *c, rows *at)
{
    ep_input *threads = &r->in[STREAM_THREADS];
    while (at->events > 0) {
        uint64_t thread = ep_input_varint(threads), length = ep_input_varint(threads);
        if (thread >= coder->names.thread_count) {
            return "an event is of a thread that is not in the file";
        }
        if (length == 0 || length > at->events) {
            return "its threads have more events than it says";
        }
        get_run(coder, r, c, at, (int32_t)thread, (size_t)length);
        at->events -= (size_t)length;
        if (r->wrong != NULL) {
            return r->wrong;
        }
    }
    if (at->time != at->last_time || at->blocks != 0 || !streams_are_used_up(r)) {
        return "its parts do not fit together";
    }
    return NULL;
}

const char *
ep_block_decode(ep_block_coder *coder, const uint8_t *bytes, size_t count, const ep_section *section,
                ep_columns *columns, ep_block_totals *totals)
{
    reader r = {.wrong = NULL};
    if (count < HEAD_BYTES + LENGTHS_BYTES || !begin_streams(&r, bytes, count)) {
        return "its streams do not fit into it";
    }
    uint64_t first = ep_load_le(&bytes[8], 8), last = ep_load_le(&bytes[16], 8);
    if (ep_load_le(&bytes[0], 4) != section->items || ep_load_le(&bytes[4], 4) != section->blocks ||
        section->items == 0 || section->items > EP_BLOCK_EVENTS_MAX) {
        return "its number of events is not what its header says";
    }
    if (first < (uint64_t)totals->last_ns || last < first || last > (uint64_t)totals->duration_ns) {
        return "its times are not in order, or later than the recording";
    }
    model_begin(coder);
    size_t before = columns->count;
    rows at = {
        .row = before,
        .block = columns->alloc_count,
        .events = (size_t)section->items,
        .blocks = (size_t)section->blocks,
        .time = first,
        .last_time = last,
        .size_sum = totals->size_sum,
    };
    const char *wrong = decode_rows(coder, &r, columns, &at);
    if (wrong != NULL) {
        return wrong;
    }
    columns->count = at.row;
    columns->alloc_count = at.block;
    commit(columns, before, &at, totals);
    return NULL;
}
