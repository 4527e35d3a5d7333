/* Interned names and sites: found by address on the hot path, described once on the cold one.
 *
 * Both are append-only and process-wide. A key is two words: for a name the address of what it
 * stands for (a code object, a method definition, a type) and a tag; for a site the callee's
 * address (0: an allocation) and the caller's instruction pointer. Whoever adds a key promises that
 * its addresses stay what they are, or retires the key.
 *
 * Lookup: one open-addressing table of 4-byte ids beside compact 16-byte keys, lock-free. Measured:
 * 24-byte entries cost +42..50 ns with 38,700 cold sites, this +8..14, all equal when hot. */
#ifndef EP_NAMES_H
#define EP_NAMES_H

#include "types.h"

typedef struct ep_key {
    _Atomic uintptr_t a, b;
} ep_key;

/* Immutable but for keys and slots being added; replaced as a whole when it grows. Old ones stay:
 * a reader may be in them, and together they are smaller than the newest. */
typedef struct ep_index {
    size_t mask;                   /* slots - 1 */
    size_t capacity;               /* keys */
    ep_key *keys;                  /* index = id; [0] unused */
    _Atomic uint32_t *slots;       /* 0: empty */
    struct ep_index *older;        /* the one it replaced: not lost, says a leak checker */
} ep_index;

extern EP_HIDDEN _Atomic(ep_index *) ep_name_index, ep_site_index;

/* Instructions of one function that are near each other share cache lines of slots. */
static inline size_t
ep_key_hash(uintptr_t a, uintptr_t b)
{
    uint64_t mixed = ((uint64_t)a >> 4) * UINT64_C(0x9E3779B97F4A7C15) ^
                     ((uint64_t)b >> 8) * UINT64_C(0xC2B2AE3D27D4EB4F);
    return (size_t)(mixed >> 32) + ((b & 255) >> 1);
}

/* HOT. Returns: the id, or 0. */
static inline uint32_t
ep_index_find(_Atomic(ep_index *) *of, uintptr_t a, uintptr_t b)
{
    /* Acquire: pairs with the release in names.c; the index is whole. */
    const ep_index *index = atomic_load_explicit(of, memory_order_acquire);
    for (size_t slot = ep_key_hash(a, b);; slot++) {
        /* Acquire: pairs with the release of the slot; its key is whole. */
        uint32_t id = atomic_load_explicit(&index->slots[slot & index->mask], memory_order_acquire);
        if (EP_UNLIKELY(id == 0)) {
            return 0;
        }
        const ep_key *key = &index->keys[id];
        if (EP_LIKELY(atomic_load_explicit(&key->a, memory_order_relaxed) == a &&
                      atomic_load_explicit(&key->b, memory_order_relaxed) == b)) {
            return id;
        }
    }
}

static inline uint32_t
ep_name_find(uintptr_t key, uintptr_t tag)
{
    return ep_index_find(&ep_name_index, key, tag);
}

static inline uint32_t
ep_site_find(uintptr_t callee, uintptr_t instruction)
{
    return ep_index_find(&ep_site_index, callee, instruction);
}

/* ---- What a thread found last ---------------------------------------------------------------- */

/* In front of the tables: an answer in 9 to 14 instructions, where the table takes 20 to 26, and of
 * one cache line. Each key has one place, by some of its low bits; its other bits lie beside the id
 * in one word, which so holds the whole key. Only what never goes void: no key that is retired. */
#define EP_RECENT_NAMES 2048
#define EP_RECENT_BLOCKS 1024
#define EP_RECENT_CALLS 1024
#define EP_RECENT_ID_BITS 20    /* larger ids are in the tables only */
#define EP_RECENT_ID_MAX ((UINT32_C(1) << EP_RECENT_ID_BITS) - 1)

typedef struct ep_recent_call {
    uint64_t callee;
    uint64_t word;
} ep_recent_call;

/* One thread's. All zero: nothing. */
typedef struct ep_recent {
    uintptr_t library_instruction;    /* at which one allocated last */
    uint32_t library_site;            /* of a block there; 0: none did */
    uint64_t names[EP_RECENT_NAMES];
    uint64_t blocks[EP_RECENT_BLOCKS];
    ep_recent_call calls[EP_RECENT_CALLS];
} ep_recent;

/* The key without the bits that gave its place, above room for an id. `key`: below 2^54 (nobody has
 * addresses above 2^47 who does not ask for them); `places`: a power of two. */
static inline uint64_t
ep_recent_tag(uintptr_t key, unsigned places)
{
    return (uint64_t)key / places << EP_RECENT_ID_BITS;
}

static inline uint32_t
ep_recent_id(uint64_t word, uint64_t tag)
{
    uint64_t id = word ^ tag;
    return EP_LIKELY(id - 1 < EP_RECENT_ID_MAX) ? (uint32_t)id : 0;
}

static inline uint64_t *
ep_recent_name(ep_recent *recent, uintptr_t key)
{
    return &recent->names[key >> 4 & (EP_RECENT_NAMES - 1)];
}

static inline uint64_t *
ep_recent_block(ep_recent *recent, uintptr_t instruction)
{
    return &recent->blocks[instruction >> 1 & (EP_RECENT_BLOCKS - 1)];
}

/* A place is of callee and instruction, because one function that calls many in a row is usual.
 * With the callee known it tells the instruction's low bits all the same. */
static inline ep_recent_call *
ep_recent_call_place(ep_recent *recent, uintptr_t callee, uintptr_t instruction)
{
    return &recent->calls[((instruction >> 1) + (callee >> 4)) & (EP_RECENT_CALLS - 1)];
}

/* HOT. As ep_name_find(key, 0), for what is never retired and no smaller than 16 bytes. Here and in
 * the next two, 0 means only that it was not found last. */
static inline uint32_t
ep_name_recent(ep_recent *recent, uintptr_t key)
{
    return ep_recent_id(*ep_recent_name(recent, key), ep_recent_tag(key >> 4, EP_RECENT_NAMES));
}

/* HOT. As ep_site_find(0, instruction). */
static inline uint32_t
ep_block_site_recent(ep_recent *recent, uintptr_t instruction)
{
    return ep_recent_id(*ep_recent_block(recent, instruction),
                        ep_recent_tag(instruction >> 1, EP_RECENT_BLOCKS));
}

/* HOT. The same, of the very last one that a library asked for: it mostly asks for more than one in a
 * call, which is one instruction of the program's. 1.8 ns of 18 an event less than the other. */
static inline uint32_t
ep_library_site_recent(const ep_recent *recent, uintptr_t instruction)
{
    return EP_LIKELY(recent->library_instruction == instruction) ? recent->library_site : 0;
}

/* HOT. As ep_site_find(). */
static inline uint32_t
ep_call_site_recent(ep_recent *recent, uintptr_t callee, uintptr_t instruction)
{
    const ep_recent_call *place = ep_recent_call_place(recent, callee, instruction);
    uint32_t id = ep_recent_id(place->word, ep_recent_tag(instruction >> 1, EP_RECENT_CALLS));
    return EP_LIKELY(place->callee == callee) ? id : 0;
}

/* The same three by the table; found at once the next time. */
static inline uint32_t
ep_name_find_recent(ep_recent *recent, uintptr_t key)
{
    uint32_t id = ep_name_find(key, 0);
    if (EP_LIKELY(id != 0 && id <= EP_RECENT_ID_MAX)) {
        *ep_recent_name(recent, key) = ep_recent_tag(key >> 4, EP_RECENT_NAMES) | id;
    }
    return id;
}

static inline uint32_t
ep_block_site_find_recent(ep_recent *recent, uintptr_t instruction)
{
    uint32_t id = ep_site_find(0, instruction);
    if (EP_LIKELY(id != 0 && id <= EP_RECENT_ID_MAX)) {
        *ep_recent_block(recent, instruction) =
            ep_recent_tag(instruction >> 1, EP_RECENT_BLOCKS) | id;
    }
    return id;
}

static inline uint32_t
ep_call_site_find_recent(ep_recent *recent, uintptr_t callee, uintptr_t instruction)
{
    uint32_t id = ep_site_find(callee, instruction);
    if (EP_LIKELY(id != 0 && id <= EP_RECENT_ID_MAX)) {
        *ep_recent_call_place(recent, callee, instruction) =
            (ep_recent_call){callee, ep_recent_tag(instruction >> 1, EP_RECENT_CALLS) | id};
    }
    return id;
}

/* ---- Cold ------------------------------------------------------------------------------------ */

typedef struct ep_name {
    uint32_t qualname, module, file;    /* string ids; EP_STRING_NONE: unknown */
    int32_t line;                       /* first line; -1: none */
    uint8_t kind;                       /* ep_name_kind */
    bool pending;                       /* the text is still to come (ep_name_describe) */
    bool hidden;                        /* eventprof's own: in no table */
    void *object;                       /* the adder's, e.g. what keeps the key valid */
} ep_name;

typedef struct ep_name_text {
    ep_text qualname, module, file;
    int32_t line;
    ep_name_kind kind;
} ep_name_text;

typedef struct ep_site {
    uint32_t callee;        /* name id; 0: an allocation */
    uint32_t caller;        /* name id; 0: called by nobody that we know */
    int32_t offset;         /* of the instruction in the caller's code, bytes; -1: unknown */
    int32_t line;           /* of it; EP_LINE_PENDING until somebody computes it; -1: unknown */
    uint32_t task;          /* what runs the callee: 1 + string id; 0: none, or what runs the caller */
} ep_site;

#define EP_LINE_PENDING INT32_MIN

EP_CHECKED ep_status ep_names_init(void);

/* The id of a key, added if it is new; `text` NULL: pending. `existed` (may be NULL): whether it
 * was there, and `object` was not taken. Copies the text. Returns: 0 if no memory or ids are
 * left. */
uint32_t ep_name_add(uintptr_t key, uintptr_t tag, const ep_name_text *text, void *object,
                     bool *existed);

/* Gives a pending name its text; no-op on others. */
void ep_name_describe(uint32_t id, const ep_name_text *text);

/* The same for a text that is not all of it: the name stays pending. */
void ep_name_sketch(uint32_t id, const ep_name_text *text);

/* The key's object is no more; its id keeps its text, and its `object`. */
void ep_name_retire(uint32_t id);

/* Returns: the name's `object`, NULL if it has none; it has none any more. */
void *ep_name_take_object(uint32_t id);

void ep_name_hide(uint32_t id);

uint32_t ep_site_add(uintptr_t callee, uintptr_t instruction, const ep_site *site);

/* For what is read from a file: ids of names and sites that this process did not meet by address.
 * Equal text has one id, however often and from how many files it is read. Fails: 0. */
uint32_t ep_name_of_text(const ep_name_text *text);
uint32_t ep_site_of_names(const ep_site *site);

/* One more than the highest id. Entries below it are whole. */
size_t ep_name_count(void);
size_t ep_site_count(void);

/* Returns: view, immortal. id must be below the count; 0 gives an entry of unknowns. */
const ep_name *ep_name_get(uint32_t id);
const ep_site *ep_site_get(uint32_t id);
void ep_site_set_line(uint32_t id, int32_t line);

static inline uint32_t
ep_site_callee(uint32_t id)
{
    return ep_site_get(id)->callee;
}

/* The id of a text. Fails: EP_STRING_NONE. */
uint32_t ep_string_add(ep_text text);

/* Returns: view, immortal; .at NULL for EP_STRING_NONE. */
ep_text ep_string_get(uint32_t id);
size_t ep_string_count(void);

/* Who is told of each new string, name and site, before its id is known to anybody else: the log file
 * that is being written. One at a time. */
typedef struct ep_names_sink {
    void (*string)(uint32_t id, ep_text text);
    void (*name)(uint32_t id, const ep_name *name);
    void (*site)(uint32_t id, const ep_site *site);
} ep_names_sink;

extern EP_HIDDEN _Atomic(const ep_names_sink *) ep_names_sink_now;    /* NULL: nobody */

/* Relaxed: who sets it then has all that there are told (ep_names_tell_all). */
static inline bool
ep_names_are_told(void)
{
    return atomic_load_explicit(&ep_names_sink_now, memory_order_relaxed) != NULL;
}

/* Calls `begin`, which may make `sink` the one that is told, then tells `sink` every string, name and site;
 * none is added meanwhile. */
void ep_names_tell_all(const ep_names_sink *sink, void (*begin)(void *), void *context);

/* Bytes that names, sites and strings hold. */
size_t ep_names_bytes(void);

#ifdef EP_CHECKS
/* Nothing is checked while another thread adds a name. */
void ep_names_check(void);
#endif

void ep_names_before_fork(void);
void ep_names_after_fork(void);

#endif
