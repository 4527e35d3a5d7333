/* Packing and unpacking guess each record by the same model of the records before it; what was guessed
 * right takes a byte or less. The archive does so, too (files/archive_model.h). Here the model works on the
 * words of a log: nothing is decoded, no name is looked up, and ticks stay ticks. So packing is fast enough
 * for a thread beside the program. A chunk has the records of one thread, with few exceptions.
 *
 * The guesses:
 *   ticks         few since the record before: one byte, seldom more
 *   symbol        kind and id: what followed the same two records last time, or else the same one record
 *   end of a call the name that ended the last call of the innermost open site
 *   size          the size of the last block of this site
 *   address       of an allocation: one of its class's free list, or the one after the class's last block;
 *                 of a free: the block that was allocated as many allocations ago as last time at this site
 *
 * Each kind of number has a stream of its own, which is compressed without the others. */
#include "pack.h"

#include <string.h>

#include "codec.h"
#include "memory.h"
#include "places.h"

/* ---- The layout of a packed chunk ------------------------------------------------------------ */

/* [codec 1][coding 1][zeros 2], then [raw bytes 4][stored bytes 4] of each stream, then the streams. A
 * stream whose two lengths are equal is not compressed. */
#define HEAD_BYTES 4

enum {
    CODING_WORDS,     /* one stream: the words as they are */
    CODING_RECORDS    /* the streams below */
};

typedef enum stream_id {
    STREAM_TIMES,        /* a byte for each record: ticks since the record before, or 192 + a high part */
    STREAM_LONG_TIMES,   /* the low byte of times with a high part, or a varint for the longest times */
    STREAM_TOKENS,       /* a byte for each record: which guess of the symbol was right; or TOKEN_NEW */
    STREAM_SYMBOLS,      /* 4 bytes for each TOKEN_NEW */
    STREAM_SIZES,        /* a varint for each allocation: 0 if the size was guessed, else size + 1 */
    STREAM_PLACES,       /* the guess of the address: a byte for each allocation, a varint for each free */
    STREAM_VALUES,       /* varint zigzag: the address if no guess was right; values of other records */
    STREAM_COUNT
} stream_id;

#define TIME_LONG 192
#define TIME_LONGEST 255
#define TIME_LONGEST_FROM (192u + (63 << 8))

enum {
    TOKEN_AFTER_TWO,
    TOKEN_AFTER_ONE,
    TOKEN_NEW
};

/* The place of an allocation: 0 .. EP_FREE_LIST - 1, its depth in the class's free list; or one of
 * these. */
enum {
    PLACE_AFTER = EP_FREE_LIST,    /* after the class's last block */
    PLACE_FREED_LAST,               /* the address that was freed last, in any class */
    PLACE_NEAR                      /* STREAM_VALUES has its distance from the class's last block */
};
/* The place of a free. From FREE_AGO on it is 1 + how many allocations ago the block was allocated. */
enum {
    FREE_AS_GUESSED,    /* as many allocations ago as last time at this site */
    FREE_NEAR,          /* STREAM_VALUES has its distance from the address that was freed last */
    FREE_AGO
};

#define TWO_BITS 14
#define ONE_BITS 12
#define BY_SYMBOL_BITS 12
#define SEEN_BITS 16
#define CALLEE_BITS 14
/* If more calls are open, the model forgets all of them, and guesses worse for a while. */
#define DEPTH_MAX 1024
/* The call that an end closes is searched among so many of the innermost calls. */
#define LOOK_DOWN 8
/* A chunk has no more allocations: each takes two words. */
#define ALLOCATIONS_MAX (EP_CHUNK_WORDS / 2 + 1)

/* The largest number of bytes of one record in each stream. */
static const uint8_t stream_bytes[STREAM_COUNT] = {
    [STREAM_TIMES] = 1,
    [STREAM_LONG_TIMES] = 5,
    [STREAM_TOKENS] = 1,
    [STREAM_SYMBOLS] = 4,
    [STREAM_SIZES] = 5,
    [STREAM_PLACES] = 5,
    [STREAM_VALUES] = EP_VARINT_BYTES,
};

typedef struct model {
    uint32_t after_two[1 << TWO_BITS], after_one[1 << ONE_BITS];
    uint32_t size[1 << BY_SYMBOL_BITS], ago[1 << BY_SYMBOL_BITS];
    uint64_t value[1 << BY_SYMBOL_BITS];
    uint32_t callee[1 << CALLEE_BITS];    /* by site: the name that ended its last call */
    ep_free_list lists[EP_PLACE_CLASSES];
    uint64_t freed_last;
    uint32_t before, before_that;         /* low halves of the last two records' first words */
    uint32_t allocated;                   /* allocations so far, and so the number of the last one */
    uint32_t depth;                       /* open calls */
    /* Unpacking zeroes only the fields above: it does not need this one. */
    uint32_t seen[1 << SEEN_BITS];        /* for packing: number of the last allocation of an address */
    /* Packing zeroes only the fields above: of this one it reads what it wrote. */
    uint32_t open[DEPTH_MAX];             /* sites of the open calls, the outermost first */
} model;

struct ep_chunk_packer {
    model model;
    uint64_t address[ALLOCATIONS_MAX + 1];    /* index: number of the allocation, from 1; so is class */
    uint8_t class[ALLOCATIONS_MAX + 1];
    ep_packer codec;
    uint8_t *streams[STREAM_COUNT];           /* room for each */
    uint8_t *packed;
    uint8_t shapes[EP_KIND_COUNT], domains[EP_KIND_COUNT];
};

/* What packing must know of a kind, in one look-up. */
enum {
    SHAPE_NONE,      /* unknown: its records cannot be packed */
    SHAPE_ONE,       /* one word */
    SHAPE_OPENS,     /* one word, opens a call */
    SHAPE_CLOSES,    /* one word, closes one */
    SHAPE_ALLOC,
    SHAPE_FREE,
    SHAPE_VALUE      /* two words */
};

static uint8_t
shape_of(unsigned words, unsigned form, unsigned pairing)
{
    static const uint8_t by_form[] = {
        [EP_FORM_ALLOC] = SHAPE_ALLOC,
        [EP_FORM_FREE] = SHAPE_FREE,
        [EP_FORM_POINT] = SHAPE_ONE,
        [EP_FORM_VALUE] = SHAPE_VALUE,
        [EP_FORM_CONTROL] = SHAPE_VALUE,
    };
    if (words == 0 || form >= sizeof by_form) {
        return SHAPE_NONE;
    }
    if (form == EP_FORM_CALL) {
        return pairing == EP_PAIRING_OPENS    ? SHAPE_OPENS
               : pairing == EP_PAIRING_CLOSES ? SHAPE_CLOSES
                                              : SHAPE_ONE;
    }
    return by_form[form];
}

void
ep_chunk_packer_use_kinds(ep_chunk_packer *p, const ep_file_kind table[EP_KIND_COUNT])
{
    for (unsigned kind = 0; kind < EP_KIND_COUNT; kind++) {
        p->shapes[kind] = shape_of(table[kind].words, table[kind].form, table[kind].pairing);
        p->domains[kind] = table[kind].domain;
    }
}

static size_t
stream_room(int stream)
{
    return stream_bytes[stream] * (size_t)EP_CHUNK_WORDS;
}

ep_chunk_packer *
ep_chunk_packer_new(void)
{
    ep_chunk_packer *p = ep_calloc(1, sizeof *p);
    if (p == NULL) {
        return NULL;
    }
    for (unsigned kind = 0; kind < EP_KIND_COUNT; kind++) {
        const ep_kind_info *info = &ep_kinds[kind];
        bool known = info->name != NULL;
        p->shapes[kind] = known ? shape_of(info->words, info->form, info->pairing) : SHAPE_NONE;
        p->domains[kind] = (uint8_t)info->domain;
    }
    size_t room = HEAD_BYTES + 8 * STREAM_COUNT;
    bool whole = true;
    for (int i = 0; i < STREAM_COUNT; i++) {
        p->streams[i] = ep_realloc(NULL, stream_room(i), 1);
        whole = whole && p->streams[i] != NULL;
        room += ep_codec_bound(ep_codec_best(), stream_room(i));
    }
    p->packed = ep_realloc(NULL, room, 1);
    if (!whole || p->packed == NULL) {
        ep_chunk_packer_free(p);
        return NULL;
    }
    return p;
}

void
ep_chunk_packer_free(ep_chunk_packer *p)
{
    if (p != NULL) {
        for (int i = 0; i < STREAM_COUNT; i++) {
            free(p->streams[i]);
        }
        free(p->packed);
        ep_packer_clear(&p->codec);
        free(p);
    }
}

/* ---- The model ------------------------------------------------------------------------------- */

static inline size_t
hash_two(uint32_t a, uint32_t b)
{
    return (a * UINT32_C(0x9E3779B1) ^ b * UINT32_C(0x85EBCA6B)) >> (32 - TWO_BITS);
}

static inline size_t
hash_one(uint32_t a, int bits)
{
    return a * UINT32_C(0x9E3779B1) >> (32 - bits);
}

static inline size_t
hash_address(uint64_t address)
{
    return (address >> 3) * UINT64_C(0x9E3779B97F4A7C15) >> (64 - SEEN_BITS);
}

static inline uint32_t *
callee_of(model *m, uint32_t site)
{
    return &m->callee[hash_one(site, CALLEE_BITS)];
}

static inline uint32_t
guess_name(model *m)
{
    return m->depth > 0 ? *callee_of(m, m->open[m->depth - 1]) : 0;
}

static inline void
open_call(model *m, uint32_t site)
{
    if (m->depth == DEPTH_MAX) {
        m->depth = 0;
    }
    m->open[m->depth++] = site;
}

/* Ends the innermost open call whose site had a call of `name` last time, and the calls inside of it. If
 * none of the innermost calls is such a one, ends the innermost call. */
static inline void
close_call(model *m, uint32_t name)
{
    if (m->depth == 0) {
        return;
    }
    uint32_t at = m->depth, lowest = at > LOOK_DOWN ? at - LOOK_DOWN : 0;
    while (at > lowest && *callee_of(m, m->open[at - 1]) != name) {
        at -= 1;
    }
    m->depth = at > lowest ? at - 1 : m->depth - 1;
    *callee_of(m, m->open[m->depth]) = name;
}

#define KIND_OF(low) ((low) >> EP_PAYLOAD_BITS & (EP_KIND_COUNT - 1))

static inline void
learn(model *m, uint32_t low, uint32_t symbol)
{
    m->after_two[hash_two(m->before, m->before_that)] = symbol;
    m->after_one[hash_one(m->before, ONE_BITS)] = symbol;
    m->before_that = m->before;
    m->before = low;
}

static inline void
note_allocation(ep_chunk_packer *p, ep_free_list *list, unsigned class, uint64_t address)
{
    model *m = &p->model;
    list->last = address;
    m->allocated += 1;
    p->address[m->allocated] = address;
    p->class[m->allocated] = (uint8_t)class;
}

static inline void
note_free(ep_chunk_packer *p, uint32_t ago, uint64_t address)
{
    model *m = &p->model;
    m->freed_last = address;
    if (ago != 0) {
        ep_free_list_put(&m->lists[p->class[m->allocated + 1 - ago]], address);
    }
}

/* ---- Packed ---------------------------------------------------------------------------------- */

typedef struct writer {
    uint8_t *at[STREAM_COUNT];
} writer;

static inline void
put_time(writer *w, uint32_t delta)
{
    if (EP_LIKELY(delta < TIME_LONG)) {
        *w->at[STREAM_TIMES]++ = (uint8_t)delta;
    } else if (delta < TIME_LONGEST_FROM) {
        *w->at[STREAM_TIMES]++ = (uint8_t)(TIME_LONG + ((delta - TIME_LONG) >> 8));
        *w->at[STREAM_LONG_TIMES]++ = (uint8_t)(delta - TIME_LONG);
    } else {
        *w->at[STREAM_TIMES]++ = TIME_LONGEST;
        w->at[STREAM_LONG_TIMES] = ep_store_varint(w->at[STREAM_LONG_TIMES], delta - TIME_LONGEST_FROM);
    }
}

static inline void
put_varint(writer *w, stream_id stream, uint64_t value)
{
    w->at[stream] = ep_store_varint(w->at[stream], value);
}

/* The difference may wrap around; the reader's sum wraps back. */
static inline void
put_difference(writer *w, uint64_t value, uint64_t from)
{
    put_varint(w, STREAM_VALUES, ep_zigzag((int64_t)(value - from)));
}

static void
put_allocation(ep_chunk_packer *p, writer *w, uint32_t symbol, uint32_t size, uint64_t address)
{
    model *m = &p->model;
    uint32_t *guess = &m->size[hash_one(symbol, BY_SYMBOL_BITS)];
    put_varint(w, STREAM_SIZES, *guess == size ? 0 : (uint64_t)size + 1);
    *guess = size;
    uint64_t stride;
    unsigned class = ep_place_class(p->domains[KIND_OF(symbol)], size, &stride);
    ep_free_list *list = &m->lists[class];
    unsigned depth = ep_free_list_find(list, address);
    if (depth < list->count) {
        *w->at[STREAM_PLACES]++ = (uint8_t)depth;
        ep_free_list_take(list, depth);
    } else if (address == list->last + stride) {
        *w->at[STREAM_PLACES]++ = PLACE_AFTER;
    } else if (address == m->freed_last) {
        *w->at[STREAM_PLACES]++ = PLACE_FREED_LAST;
    } else {
        *w->at[STREAM_PLACES]++ = PLACE_NEAR;
        put_difference(w, address >> 3, list->last >> 3);
    }
    note_allocation(p, list, class, address);
    m->seen[hash_address(address)] = m->allocated;
}

static void
put_free(ep_chunk_packer *p, writer *w, uint32_t symbol, uint64_t address)
{
    model *m = &p->model;
    uint32_t number = m->seen[hash_address(address)], ago = 0;
    if (number != 0 && p->address[number] == address) {
        ago = m->allocated + 1 - number;
    }
    uint32_t *guess = &m->ago[hash_one(symbol, BY_SYMBOL_BITS)];
    if (ago != 0) {
        put_varint(w, STREAM_PLACES, *guess == ago ? FREE_AS_GUESSED : FREE_AGO - 1 + (uint64_t)ago);
        *guess = ago;
    } else {
        put_varint(w, STREAM_PLACES, FREE_NEAR);
        put_difference(w, address, m->freed_last);
    }
    note_free(p, ago, address);
}

/* HOT, budget 25 ns a record. Returns: false if a word does not begin a record of this version; the caller
 * then stores the words as they are. */
static bool
encode(ep_chunk_packer *p, const uint64_t *words, size_t count, uint64_t ticks, writer *to)
{
    model *m = &p->model;
    writer w = *to;
    uint32_t last = (uint32_t)ticks;
    memset(m, 0, offsetof(model, open));
    const uint64_t *const end = words + count;
    while (words < end) {
        const uint64_t word = *words++;
        const uint32_t low = (uint32_t)word;
        const unsigned shape = p->shapes[KIND_OF(low)];
        if (EP_UNLIKELY(shape == SHAPE_NONE || (shape >= SHAPE_ALLOC && words == end))) {
            return false;
        }
        put_time(&w, (uint32_t)(word >> 32) - last);
        last = (uint32_t)(word >> 32);
        uint32_t symbol = low, seen = low;
        if (shape == SHAPE_CLOSES) {
            symbol = low ^ guess_name(m);
        } else if (shape == SHAPE_ALLOC) {
            symbol = seen = (low & ~EP_PAYLOAD_MAX) | ((uint32_t)*words & EP_ALLOC_SITE_MAX);
        }
        if (EP_LIKELY(m->after_two[hash_two(m->before, m->before_that)] == symbol)) {
            *w.at[STREAM_TOKENS]++ = TOKEN_AFTER_TWO;
        } else if (m->after_one[hash_one(m->before, ONE_BITS)] == symbol) {
            *w.at[STREAM_TOKENS]++ = TOKEN_AFTER_ONE;
        } else {
            *w.at[STREAM_TOKENS]++ = TOKEN_NEW;
            ep_store_le(w.at[STREAM_SYMBOLS], symbol, 4);
            w.at[STREAM_SYMBOLS] += 4;
        }
        if (shape == SHAPE_OPENS) {
            open_call(m, low & EP_PAYLOAD_MAX);
        } else if (shape == SHAPE_CLOSES) {
            close_call(m, low & EP_PAYLOAD_MAX);
        } else if (shape == SHAPE_ALLOC) {
            put_allocation(p, &w, symbol, low & EP_PAYLOAD_MAX, *words++ >> EP_ALLOC_SITE_BITS << 3);
        } else if (shape == SHAPE_FREE) {
            put_free(p, &w, symbol, *words++);
        } else if (shape == SHAPE_VALUE) {
            uint64_t *before = &m->value[hash_one(symbol, BY_SYMBOL_BITS)];
            put_difference(&w, *words, *before);
            *before = *words++;
        }
        learn(m, seen, symbol);
    }
    *to = w;
    return true;
}

static ep_status
store_stream(ep_chunk_packer *p, int index, const uint8_t *from, size_t bytes, uint8_t **to)
{
    size_t stored = bytes;
    if (bytes > 0) {
        ep_status status = ep_pack(&p->codec, ep_codec_best(), from, bytes, *to, &stored);
        if (status != EP_OK) {
            return status;
        }
    }
    if (stored >= bytes) {
        stored = bytes;
        memcpy(*to, from, bytes);
    }
    uint8_t *head = &p->packed[HEAD_BYTES + 8 * index];
    ep_store_le(head, bytes, 4);
    ep_store_le(head + 4, stored, 4);
    *to += stored;
    return EP_OK;
}

ep_status
ep_chunk_pack(ep_chunk_packer *p, const uint64_t *words, size_t count, uint64_t ticks,
              const uint8_t **packed, size_t *bytes)
{
    writer w;
    memcpy(w.at, p->streams, sizeof w.at);
    bool records = encode(p, words, count, ticks, &w);
    int streams = records ? STREAM_COUNT : 1;
    uint8_t *to = p->packed + HEAD_BYTES + 8 * streams;
    p->packed[0] = (uint8_t)ep_codec_best();
    p->packed[1] = records ? CODING_RECORDS : CODING_WORDS;
    p->packed[2] = p->packed[3] = 0;
    ep_status status = EP_OK;
    for (int i = 0; i < streams && status == EP_OK; i++) {
        status = records ? store_stream(p, i, p->streams[i], (size_t)(w.at[i] - p->streams[i]), &to)
                         : store_stream(p, i, (const uint8_t *)words, count * 8, &to);
    }
    *packed = p->packed;
    *bytes = (size_t)(to - p->packed);
    return status;
}

/* ---- Unpacked -------------------------------------------------------------------------------- */

typedef struct reader {
    ep_input in[STREAM_COUNT];
} reader;

static inline uint32_t
take_time(reader *r)
{
    unsigned first = ep_input_byte(&r->in[STREAM_TIMES]);
    if (EP_LIKELY(first < TIME_LONG)) {
        return first;
    }
    if (first < TIME_LONGEST) {
        return TIME_LONG + ((first - TIME_LONG) << 8) + ep_input_byte(&r->in[STREAM_LONG_TIMES]);
    }
    return TIME_LONGEST_FROM + (uint32_t)ep_input_varint(&r->in[STREAM_LONG_TIMES]);
}

static inline uint64_t
take_difference(reader *r, uint64_t from)
{
    return from + (uint64_t)ep_unzigzag(ep_input_varint(&r->in[STREAM_VALUES]));
}

/* Returns: false, the bytes are damaged. */
static bool
take_allocation(ep_chunk_packer *p, reader *r, uint32_t symbol, uint32_t *size, uint64_t *address)
{
    model *m = &p->model;
    uint32_t *guess = &m->size[hash_one(symbol, BY_SYMBOL_BITS)];
    uint64_t coded = ep_input_varint(&r->in[STREAM_SIZES]);
    if (coded > (uint64_t)EP_PAYLOAD_MAX + 1) {
        return false;
    }
    *size = *guess = coded == 0 ? *guess : (uint32_t)(coded - 1);
    uint64_t stride;
    unsigned class = ep_place_class(p->domains[KIND_OF(symbol)], *size, &stride);
    ep_free_list *list = &m->lists[class];
    unsigned place = ep_input_byte(&r->in[STREAM_PLACES]);
    if (place < EP_FREE_LIST) {
        if (place >= list->count) {
            return false;
        }
        *address = list->freed[list->count - 1 - place];
        ep_free_list_take(list, place);
    } else if (place == PLACE_AFTER) {
        *address = list->last + stride;
    } else if (place == PLACE_FREED_LAST) {
        *address = m->freed_last;
    } else if (place == PLACE_NEAR) {
        *address = take_difference(r, list->last >> 3) << 3;
    } else {
        return false;
    }
    note_allocation(p, list, class, *address);
    return true;
}

static bool
take_free(ep_chunk_packer *p, reader *r, uint32_t symbol, uint64_t *address)
{
    model *m = &p->model;
    uint32_t *guess = &m->ago[hash_one(symbol, BY_SYMBOL_BITS)];
    uint64_t coded = ep_input_varint(&r->in[STREAM_PLACES]);
    if (coded == FREE_NEAR) {
        *address = take_difference(r, m->freed_last);
        note_free(p, 0, *address);
        return true;
    }
    uint64_t ago = coded == FREE_AS_GUESSED ? *guess : coded - (FREE_AGO - 1);
    if (ago == 0 || ago > m->allocated) {
        return false;
    }
    *guess = (uint32_t)ago;
    *address = p->address[m->allocated + 1 - ago];
    note_free(p, (uint32_t)ago, *address);
    return true;
}

/* Returns: false, the bytes are damaged. */
static bool
decode(ep_chunk_packer *p, reader *from, uint64_t ticks, uint64_t *to, size_t count)
{
    model *m = &p->model;
    reader r = *from;
    uint32_t last = (uint32_t)ticks;
    memset(m, 0, offsetof(model, seen));
    uint64_t *const end = to + count;
    while (to < end) {
        last += take_time(&r);
        uint32_t symbol;
        unsigned token = ep_input_byte(&r.in[STREAM_TOKENS]);
        if (EP_LIKELY(token == TOKEN_AFTER_TWO)) {
            symbol = m->after_two[hash_two(m->before, m->before_that)];
        } else if (token == TOKEN_AFTER_ONE) {
            symbol = m->after_one[hash_one(m->before, ONE_BITS)];
        } else if (token == TOKEN_NEW) {
            symbol = (uint32_t)ep_input_le(&r.in[STREAM_SYMBOLS], 4);
        } else {
            return false;
        }
        const unsigned shape = p->shapes[KIND_OF(symbol)];
        if (EP_UNLIKELY(shape == SHAPE_NONE || (shape >= SHAPE_ALLOC && to + 1 == end))) {
            return false;
        }
        uint32_t low = symbol, seen = symbol;
        uint64_t *const word = to++;
        if (shape == SHAPE_OPENS) {
            open_call(m, low & EP_PAYLOAD_MAX);
        } else if (shape == SHAPE_CLOSES) {
            seen = low = symbol ^ guess_name(m);
            close_call(m, low & EP_PAYLOAD_MAX);
        } else if (shape == SHAPE_ALLOC) {
            uint32_t size;
            uint64_t address;
            if (!take_allocation(p, &r, symbol, &size, &address)) {
                return false;
            }
            low = (symbol & ~EP_PAYLOAD_MAX) | size;
            *to++ = address >> 3 << EP_ALLOC_SITE_BITS | (symbol & EP_ALLOC_SITE_MAX);
        } else if (shape == SHAPE_FREE) {
            if (!take_free(p, &r, symbol, to++)) {
                return false;
            }
        } else if (shape == SHAPE_VALUE) {
            uint64_t *before = &m->value[hash_one(symbol, BY_SYMBOL_BITS)];
            *before = *to++ = take_difference(&r, *before);
        }
        *word = (uint64_t)last << 32 | low;
        learn(m, seen, symbol);
    }
    for (int i = 0; i < STREAM_COUNT; i++) {
        if (r.in[i].bad || r.in[i].at != r.in[i].end) {
            return false;
        }
    }
    return true;
}

/* Returns: a view of the stream's bytes: in the input if it is stored as it is, else in `to`. Fails: NULL,
 * with *status. */
static const uint8_t *
load_stream(ep_chunk_packer *p, unsigned codec, ep_input *in, uint64_t raw, uint64_t stored, uint8_t *to,
            ep_status *status)
{
    const uint8_t *from = ep_input_take(in, stored);
    *status = from == NULL ? EP_FORMAT : EP_OK;
    if (from == NULL || raw == stored) {
        return from;
    }
    *status = ep_unpack(&p->codec, codec, from, stored, to, raw);
    return *status == EP_OK ? to : NULL;
}

ep_status
ep_chunk_unpack(ep_chunk_packer *p, const uint8_t *packed, size_t bytes, uint64_t ticks, uint64_t *words,
                size_t count, const char **why)
{
    *why = "its packed records are damaged";
    ep_input head = {.at = packed, .end = packed + bytes};
    const unsigned codec = ep_input_byte(&head), coding = ep_input_byte(&head);
    (void)ep_input_le(&head, 2);
    const int streams = coding == CODING_RECORDS ? STREAM_COUNT : 1;
    ep_input in = head;
    (void)ep_input_take(&in, 8 * (uint64_t)streams);
    if (in.bad || coding > CODING_RECORDS || codec >= EP_CODEC_COUNT || count > EP_CHUNK_WORDS) {
        return EP_FORMAT;
    }
    if (!ep_codec_usable(codec)) {
        *why = codec == EP_CODEC_ZSTD ? "its packed records need zstd, which this build lacks"
                                      : "its packed records need zlib, which this build lacks";
        return EP_FORMAT;
    }
    reader r;
    for (int i = 0; i < streams; i++) {
        uint64_t raw = ep_input_le(&head, 4), stored = ep_input_le(&head, 4);
        if (raw > (coding == CODING_RECORDS ? stream_room(i) : count * 8)) {
            return EP_FORMAT;
        }
        ep_status status;
        uint8_t *to = coding == CODING_RECORDS ? p->streams[i] : (uint8_t *)words;
        const uint8_t *at = load_stream(p, codec, &in, raw, stored, to, &status);
        if (at == NULL) {
            return status;
        }
        r.in[i] = (ep_input){.at = at, .end = at + raw};
    }
    if (coding == CODING_RECORDS) {
        return decode(p, &r, ticks, words, count) ? EP_OK : EP_FORMAT;
    }
    if ((size_t)(r.in[0].end - r.in[0].at) != count * 8) {
        return EP_FORMAT;
    }
    memmove(words, r.in[0].at, count * 8);
    return EP_OK;
}
