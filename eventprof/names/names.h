/* Interned names and sites: found by address on the hot path, described once on the cold path.
 *
 * Both are append-only and process-wide. A key is two words: for a name the address of what it
 * stands for (a code object, a method definition, a type) and a tag; for a site the callee's
 * address (0: an allocation) and the caller's instruction pointer. The caller that adds a key makes sure
 * that the objects at its addresses stay alive, or retires the key.
 *
 * Lookup: one open-addressing table of 4-byte ids beside compact 16-byte keys, lock-free. Measured:
 * 24-byte entries cost +42..50 ns with 38,700 cold sites, this +8..14, all equal when hot. */
#ifndef EP_NAMES_H
#define EP_NAMES_H

#include "types.h"

typedef struct ep_key {
    _Atomic uintptr_t a, b;
} ep_key;

/* Keys and slots are only added; a full index is replaced by a larger copy. Old indexes are never freed: a
 * reader may use them, and together they are smaller than the newest. */
typedef struct ep_index {
    size_t mask;                   /* slots - 1 */
    size_t capacity;               /* keys */
    ep_key *keys;                  /* index = id; [0] unused */
    _Atomic uint32_t *slots;       /* 0: empty */
    struct ep_index *older;        /* the index that it replaced; the pointer is for leak checkers */
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
ep_index_find(_Atomic(ep_index *) *published, uintptr_t a, uintptr_t b)
{
    /* Acquire: pairs with the release in names.c; the index is whole. */
    const ep_index *index = atomic_load_explicit(published, memory_order_acquire);
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

/* A cache in front of the tables: a lookup takes 9 to 14 instructions and one cache line, where the table
 * takes 20 to 26 instructions. Each key has one place, chosen by some of its low bits. The word there has
 * the key's other bits and the id, so it identifies the whole key. Only keys that are never retired are in
 * it. */
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
    uintptr_t library_instruction;    /* the instruction at which a library allocated last */
    uint32_t library_site;            /* the site of blocks allocated there; 0: none yet */
    uint64_t names[EP_RECENT_NAMES];
    uint64_t blocks[EP_RECENT_BLOCKS];
    ep_recent_call calls[EP_RECENT_CALLS];
} ep_recent;

/* The key without the bits that gave its place, above room for an id. `key`: below 2^54 (a process has
 * addresses above 2^47 only if it asks for them); `places`: a power of two. */
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

/* The place depends on callee and instruction, because a function often makes many calls in a row. As the
 * callee is known, the place still determines the instruction's low bits. */
static inline ep_recent_call *
ep_recent_call_place(ep_recent *recent, uintptr_t callee, uintptr_t instruction)
{
    return &recent->calls[((instruction >> 1) + (callee >> 4)) & (EP_RECENT_CALLS - 1)];
}

/* HOT. Like ep_name_find(key, 0), for objects that are never retired and at least 16 bytes large. Here and
 * in the next two functions 0 only means that the key is not in the cache. */
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

/* HOT. The same for the site that a library used last: a library often allocates several blocks in one
 * call, which is one instruction of the program. Saves 1.8 of 18 ns an event. */
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

/* The three of above by the table; the result goes into the cache. */
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
    void *object;                       /* given by the caller that added it; for instance the object that
                                         * keeps the key valid */
} ep_name;

typedef struct ep_name_text {
    ep_text qualname, module, file;
    int32_t line;
    ep_name_kind kind;
} ep_name_text;

typedef struct ep_site {
    uint32_t callee;        /* name id; 0: an allocation */
    uint32_t caller;        /* name id; 0: the caller is unknown */
    int32_t offset;         /* of the instruction in the caller's code, bytes; -1: unknown */
    int32_t line;           /* line of the instruction; EP_LINE_PENDING until it is computed; -1: unknown */
    uint32_t task;          /* the task that runs the callee: 1 + string id; 0: none, or the task of the
                             * caller */
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

/* Like ep_name_describe(), for a text that is not complete yet: the name stays pending. */
void ep_name_sketch(uint32_t id, const ep_name_text *text);

/* The key's object was destroyed: the key finds nothing any more. The id keeps its text and its
 * `object`. */
void ep_name_retire(uint32_t id);

/* Takes the `object` away from the name. Returns: that object, NULL if there was none. */
void *ep_name_take_object(uint32_t id);

uint32_t ep_site_add(uintptr_t callee, uintptr_t instruction, const ep_site *site);

/* For names and sites that are read from a file, and so have no address in this process. Equal texts get
 * one id, however often and from however many files they are read. Fails: 0. */
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

/* A receiver of each new string, name and site, before its id is used anywhere else: the log file that is
 * being written. There is at most one. */
typedef struct ep_names_sink {
    void (*string)(uint32_t id, ep_text text);
    void (*name)(uint32_t id, const ep_name *name);
    void (*site)(uint32_t id, const ep_site *site);
} ep_names_sink;

extern EP_HIDDEN _Atomic(const ep_names_sink *) ep_names_sink_now;    /* NULL: no receiver */

/* Relaxed: after it is set, ep_names_tell_all() passes on everything that exists already. */
static inline bool
ep_names_are_told(void)
{
    return atomic_load_explicit(&ep_names_sink_now, memory_order_relaxed) != NULL;
}

/* Calls `begin`, which may make `sink` the receiver, then passes every string, name and site to `sink`;
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
