/* eventprof core: every shared struct and constant. Read this first.
 *
 * Words: an *event* is one thing that happened; a *record* its bytes in the log; a *chunk* 4 KiB to
 * 1 MiB of records; a *log* a thread's chunks; the *engine* records for the whole process; a
 * *recorder* a window on it; a *trace* what a recorder yields. A *name* is an interned function; a
 * *site* is a name together with the instruction it was called from.
 *
 * The path of an event:
 *   hook -> ep_log_put (log.h, inline) -> chunk -> [sealed, kept or dropped: kept.c] -> decode.c
 *        -> pair.c -> summary.c -> tables
 */
#ifndef EP_TYPES_H
#define EP_TYPES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EP_LIKELY(x) __builtin_expect(!!(x), 1)
#define EP_UNLIKELY(x) __builtin_expect(!!(x), 0)
/* In a branch that only changes a variable: stops the compiler from turning it into a conditional
 * move. The next load would then wait for the condition. */
#define EP_KEEP_BRANCH(variable) __asm__ volatile("" : "+r"(variable))
#define EP_COLD __attribute__((cold, noinline))
/* Where a call that the compiler keeps was measured to cost more than the code. */
#define EP_INLINE inline __attribute__((always_inline))
/* For variables that hooks read: one load instead of two, because no other image can replace them. */
#define EP_HIDDEN __attribute__((visibility("hidden")))
#define EP_CHECKED __attribute__((warn_unused_result))
#define EP_PRINTF(text, first) __attribute__((format(printf, text, first)))

/* ---- Status ---------------------------------------------------------------------------------- */

typedef enum ep_status {
#define EP_STATUS(NAME, text) EP_##NAME,
#include "status.def"
#undef EP_STATUS
    EP_STATUS_COUNT
} ep_status;

/* Owned by the caller; holds its text inside, so that "out of memory" needs no memory. */
typedef struct ep_error {
    char text[256];
    int os_error;    /* of EP_IO: errno; 0: none */
} ep_error;

/* Says what failed, if `error` is not NULL. Returns: the status. */
EP_PRINTF(3, 4) ep_status ep_fail(ep_error *error, ep_status status, const char *format, ...);

/* Like ep_fail(), for a refusal of the system. Returns: EP_IO. */
ep_status ep_fail_os(ep_error *error, int os_error);

/* ---- Kinds ----------------------------------------------------------------------------------- */

typedef enum ep_form {
    EP_FORM_CALL,
    EP_FORM_ALLOC,
    EP_FORM_FREE,
    EP_FORM_POINT,
    EP_FORM_VALUE,
    EP_FORM_CONTROL
} ep_form;

typedef enum ep_domain {
    EP_DOMAIN_RAW,
    EP_DOMAIN_MEM,
    EP_DOMAIN_OBJ,
    EP_DOMAIN_NUMPY,
    EP_DOMAIN_LIBC,
    EP_DOMAIN_NONE,
    EP_DOMAIN_COUNT = EP_DOMAIN_NONE
} ep_domain;

typedef enum ep_pairing {
    EP_PAIRING_NEITHER,
    EP_PAIRING_OPENS,
    EP_PAIRING_CLOSES
} ep_pairing;

/* What is asked for together. A group's word is in ep_kind_group_words (kinds.c). */
typedef enum ep_kind_group {
    EP_GROUP_PYTHON,         /* calls of Python functions, and their ends */
    EP_GROUP_C,              /* calls of builtin functions, methods and types */
    EP_GROUP_BLOCK,          /* events of an allocator; DOMAIN says of which */
    EP_GROUP_SPAN,           /* events that the program makes itself: spans, */
    EP_GROUP_MARK,           /* and marks, counters, flows, labels */
    EP_GROUP_GC,
    EP_GROUP_HPY,
    EP_GROUP_AUDIT,
    EP_GROUP_LINE,           /* from here to EP_GROUP_BRANCH: inside of a function */
    EP_GROUP_INSTRUCTION,
    EP_GROUP_EXCEPTION,
    EP_GROUP_BRANCH,
    EP_GROUP_OBJECT,         /* word 1 is an address */
    EP_GROUP_WAIT,
    EP_GROUP_TASK,           /* beside calls: these have the rest of what is known of tasks */
    EP_GROUP_CONTROL,
    EP_GROUP_COUNT
} ep_kind_group;

typedef enum ep_kind {
#define EP_KIND(number, NAME, word, legacy, FORM, DOMAIN, PAIRING, GROUP, meaning) \
    EP_KIND_##NAME = number,
#include "events.def"
#undef EP_KIND
    EP_KIND_END    /* one past the last row: no number from here on is used */
} ep_kind;

#define EP_KIND_BITS 7
#define EP_KIND_COUNT (1 << EP_KIND_BITS)

/* First kind of each allocator operation; add an ep_domain. */
#define EP_KIND_MALLOC EP_KIND_MALLOC_RAW
#define EP_KIND_CALLOC EP_KIND_CALLOC_RAW
#define EP_KIND_REALLOC EP_KIND_REALLOC_RAW
#define EP_KIND_REALLOC_FREE EP_KIND_REALLOC_FREE_RAW
#define EP_KIND_FREE EP_KIND_FREE_RAW
#define EP_KIND_REALLOC_FAILED EP_KIND_REALLOC_FAILED_RAW

typedef struct ep_kind_info {
    const char *name;    /* the identifier: "MALLOC_RAW"; NULL where the number is unused */
    const char *word;    /* what the event column says: "malloc" */
    uint16_t legacy;     /* the drop-in's code */
    uint8_t form;      /* ep_form */
    uint8_t domain;      /* ep_domain */
    uint8_t pairing;     /* ep_pairing */
    uint8_t group;       /* ep_kind_group */
    uint8_t words;       /* length of a record in 64-bit words */
    bool has_name;       /* it closes a call: the id of its record is a name. The id of other records is a
                          * site */
} ep_kind_info;

extern EP_HIDDEN const ep_kind_info ep_kinds[EP_KIND_COUNT];

/* HOT. Whether the id of a row or record of this kind is a name, and not a site. */
static inline bool
ep_kind_has_name(unsigned kind)
{
    return ep_kinds[kind].has_name;
}

/* Whether it is an event inside of a function (a line, an exception, a branch, ...), not a call. */
static inline bool
ep_kind_is_inside(unsigned kind)
{
    return ep_kinds[kind].group >= EP_GROUP_LINE && ep_kinds[kind].group <= EP_GROUP_BRANCH;
}

/* "python", "c", ...: the words for Python and for messages. */
extern EP_HIDDEN const char *const ep_kind_group_words[EP_GROUP_COUNT];

/* ---- Sets of kinds --------------------------------------------------------------------------- */

/* Bit k is kind k. Combine sets with | & ~, and ask for one kind with ep_kinds_has(). */
__extension__ typedef unsigned __int128 ep_kind_set;

#define EP_KIND_BIT(kind) ((ep_kind_set)1 << (kind))

/* HOT. Cheaper than `set & EP_KIND_BIT(kind)` where the kind is not a constant. */
static inline bool
ep_kinds_has(ep_kind_set set, unsigned kind)
{
    uint64_t half = kind < 64 ? (uint64_t)set : (uint64_t)(set >> 64);
    return half >> (kind & 63) & 1;
}

/* A set that one thread changes while others read it. Relaxed: a reader may see one half of the new set and
 * the other half of the old one. It then records or leaves out an event at the moment of the change, which
 * can also happen with a set of one word. */
typedef struct ep_shared_kinds {
    _Atomic uint64_t half[2];
} ep_shared_kinds;

static inline void
ep_shared_kinds_set(ep_shared_kinds *shared, ep_kind_set set)
{
    atomic_store_explicit(&shared->half[0], (uint64_t)set, memory_order_relaxed);
    atomic_store_explicit(&shared->half[1], (uint64_t)(set >> 64), memory_order_relaxed);
}

static inline ep_kind_set
ep_shared_kinds_get(const ep_shared_kinds *shared)
{
    return (ep_kind_set)atomic_load_explicit(&shared->half[1], memory_order_relaxed) << 64 |
           atomic_load_explicit(&shared->half[0], memory_order_relaxed);
}

/* What a thread waits for, and the value of a WAIT: for how long, and for what. */
typedef enum ep_wait_for {
#define EP_WAIT_FOR(NAME, word, meaning) EP_WAIT_FOR_##NAME,
#include "waits.def"
#undef EP_WAIT_FOR
    EP_WAIT_FOR_COUNT
} ep_wait_for;

extern EP_HIDDEN const char *const ep_wait_words[EP_WAIT_FOR_COUNT];

#define EP_WAIT_WORD(what, ns) ((uint64_t)(ns) << 4 | (uint64_t)(what))
#define EP_WAIT_NS(word) ((int64_t)((word) >> 4))

/* Of a damaged file, or of a later version's, it may be none of these. */
static inline ep_wait_for
ep_wait_what(uint64_t word)
{
    return (word & 15) < EP_WAIT_FOR_COUNT ? (ep_wait_for)(word & 15) : EP_WAIT_FOR_OTHER;
}

/* What a TASK says. word 1: an address, or ns << 4, with one of these in its low bits. Tasks and callbacks
 * are known by their address: a task has it from before its first step to after its last one. */
typedef enum ep_task_what {
    EP_TASK_STEP,        /* right before the call, resume or throw that is a step of this task */
    EP_TASK_READY,       /* the next step of this task is put into the queue of its loop; the caller
                          * is where it awaited */
    EP_TASK_AWAITED,     /* right before READY: the task that it awaited, and that has ended */
    EP_TASK_CALLBACK,    /* another callback is made: it waits in the queue, for a time, or for a file */
    EP_TASK_RUN,         /* right before the call that runs this callback; 0: one that steps a task */
    EP_TASK_TIMER        /* right before CALLBACK: it waits for a time, so long from now */
} ep_task_what;

#define EP_TASK_WORD(what, address) ((uint64_t)(address) | (uint64_t)(what))
#define EP_TASK_WHAT_BITS 4

/* What a thread waited for: the value of a WAIT_OBJECT. */
typedef enum ep_wait_object {
#define EP_WAIT_OBJECT(NAME, word, meaning) EP_WAIT_OBJECT_##NAME,
#include "wait_objects.def"
#undef EP_WAIT_OBJECT
    EP_WAIT_OBJECT_COUNT
} ep_wait_object;

extern EP_HIDDEN const char *const ep_wait_object_words[EP_WAIT_OBJECT_COUNT];

#define EP_WAIT_OBJECT_WORD(object, number) ((uint64_t)(number) << 4 | (uint64_t)(object))

/* Each of the following sets is a constant. kind_set.def makes it from the rows of events.def for which
 * EP_KIND_IS holds. */

#define EP_KIND_IS(form, domain, pairing, group) ((form) != EP_FORM_CONTROL)
static const ep_kind_set ep_kinds_of_events =
#include "kind_set.def"
    ;

#define EP_KIND_IS(form, domain, pairing, group) ((form) == EP_FORM_CALL)
static const ep_kind_set ep_kinds_of_calls =
#include "kind_set.def"
    ;

#define EP_KIND_IS(form, domain, pairing, group) \
    ((form) == EP_FORM_CALL && (pairing) == EP_PAIRING_OPENS)
static const ep_kind_set ep_kinds_that_open_calls =
#include "kind_set.def"
    ;

/* Each row of these kinds has an element in alloc_row, address and size of ep_columns (decoded.h). */
#define EP_KIND_IS(form, domain, pairing, group) \
    ((form) == EP_FORM_ALLOC || (form) == EP_FORM_FREE || (form) == EP_FORM_VALUE)
static const ep_kind_set ep_kinds_of_two_words =
#include "kind_set.def"
    ;

#define EP_KIND_IS(form, domain, pairing, group) ((group) == EP_GROUP_PYTHON)
static const ep_kind_set ep_kinds_python =
#include "kind_set.def"
    ;

#define EP_KIND_IS(form, domain, pairing, group) ((group) == EP_GROUP_C)
static const ep_kind_set ep_kinds_c =
#include "kind_set.def"
    ;

#define EP_KIND_IS(form, domain, pairing, group) ((group) == EP_GROUP_GC)
static const ep_kind_set ep_kinds_gc =
#include "kind_set.def"
    ;

#define EP_KIND_IS(form, domain, pairing, group) ((group) == EP_GROUP_HPY)
static const ep_kind_set ep_kinds_hpy =
#include "kind_set.def"
    ;

#define EP_KIND_IS(form, domain, pairing, group) ((group) == EP_GROUP_TASK)
static const ep_kind_set ep_kinds_tasks =
#include "kind_set.def"
    ;

#define EP_KIND_IS(form, domain, pairing, group) ((group) == EP_GROUP_WAIT)
static const ep_kind_set ep_kinds_waits =
#include "kind_set.def"
    ;

/* Events that the program makes itself. */
#define EP_KIND_IS(form, domain, pairing, group) ((group) == EP_GROUP_SPAN || (group) == EP_GROUP_MARK)
static const ep_kind_set ep_kinds_user =
#include "kind_set.def"
    ;

#define EP_KIND_IS(form, domain, pairing, group) ((group) == EP_GROUP_EXCEPTION)
static const ep_kind_set ep_kinds_exceptions =
#include "kind_set.def"
    ;

/* ep_kind_is_inside(). */
#define EP_KIND_IS(form, domain, pairing, group) ((group) >= EP_GROUP_LINE && (group) <= EP_GROUP_BRANCH)
static const ep_kind_set ep_kinds_inside =
#include "kind_set.def"
    ;

/* Events of blocks, by the allocator. */
#define EP_KIND_IS(form, domain, pairing, group) ((domain) == EP_DOMAIN_RAW)
static const ep_kind_set ep_kinds_raw =
#include "kind_set.def"
    ;
#define EP_KIND_IS(form, domain, pairing, group) ((domain) == EP_DOMAIN_MEM)
static const ep_kind_set ep_kinds_mem =
#include "kind_set.def"
    ;
#define EP_KIND_IS(form, domain, pairing, group) ((domain) == EP_DOMAIN_OBJ)
static const ep_kind_set ep_kinds_obj =
#include "kind_set.def"
    ;
#define EP_KIND_IS(form, domain, pairing, group) ((domain) == EP_DOMAIN_NUMPY)
static const ep_kind_set ep_kinds_numpy =
#include "kind_set.def"
    ;
#define EP_KIND_IS(form, domain, pairing, group) ((domain) == EP_DOMAIN_LIBC)
static const ep_kind_set ep_kinds_libc =
#include "kind_set.def"
    ;

/* The kinds of some allocator domains: bits, 1 << ep_domain. */
static inline ep_kind_set
ep_kinds_of_domains(uint64_t domains)
{
    return (domains & 1u << EP_DOMAIN_RAW ? ep_kinds_raw : 0) |
           (domains & 1u << EP_DOMAIN_MEM ? ep_kinds_mem : 0) |
           (domains & 1u << EP_DOMAIN_OBJ ? ep_kinds_obj : 0) |
           (domains & 1u << EP_DOMAIN_NUMPY ? ep_kinds_numpy : 0) |
           (domains & 1u << EP_DOMAIN_LIBC ? ep_kinds_libc : 0);
}

/* ---- Records --------------------------------------------------------------------------------- */

/* Word 0:  63        32 31  25 24        0
 *         [ticks, low ][kind ][ payload  ]      never zero, because a kind never is
 *
 * Example: a call (kind 1) of site 5 at tick 0x1_2345_6789:
 *   0x23456789 << 32 | 1 << 25 | 5 = 0x2345678902000005
 */
#define EP_PAYLOAD_BITS (32 - EP_KIND_BITS)
#define EP_PAYLOAD_MAX ((UINT32_C(1) << EP_PAYLOAD_BITS) - 1)
#define EP_WORD0(ticks, kind, payload) \
    ((uint64_t)(ticks) << 32 | (uint64_t)(kind) << EP_PAYLOAD_BITS | (uint64_t)(payload))
#define EP_WORD0_KIND(word) ((unsigned)((word) >> EP_PAYLOAD_BITS) & (EP_KIND_COUNT - 1))
#define EP_WORD0_PAYLOAD(word) ((uint32_t)(word) & EP_PAYLOAD_MAX)
#define EP_WORD0_TICKS(word) ((uint32_t)((word) >> 32))

/* Word 1 of an allocation: 44 bits of address >> 3, 20 bits of site. A field that does not fit (an
 * unaligned or 5-level address, a size or site that is too large) is in an ESCAPE record right before the
 * allocation. */
#define EP_ALLOC_SITE_BITS 20
#define EP_ALLOC_SITE_MAX ((UINT32_C(1) << EP_ALLOC_SITE_BITS) - 1)
#define EP_ALLOC_ADDRESS_LIMIT (UINT64_C(1) << 47)

typedef enum ep_escape {
    EP_ESCAPE_SIZE,
    EP_ESCAPE_ADDRESS,
    EP_ESCAPE_SITE,
    /* For an allocation or a free within other allocators: bits of the domains (1 << ep_domain) of those.
     * Only recorders without any of these domains keep the record: a block belongs to the outermost
     * recorded domain. */
    EP_ESCAPE_WITHIN,
    EP_ESCAPE_COUNT
} ep_escape;

/* The largest number of words that one put writes past `end` of a log: four escapes, one allocation, one
 * SYNC, the terminator. Every chunk leaves them free, so one compare serves all shapes. */
#define EP_CHUNK_SLACK_WORDS 14

/* ---- Chunks ---------------------------------------------------------------------------------- */

/* Each chunk of a thread is twice as large as the one before: a quiet thread takes little memory, a busy
 * one seldom needs a new chunk. Sizes are multiples of the smallest, or of the system's pages if these are
 * larger. */
#define EP_CHUNK_BYTES_MIN (UINT64_C(1) << 12)
#define EP_CHUNK_BYTES (UINT64_C(1) << 20)

typedef enum ep_chunk_state {
    EP_CHUNK_FREE,
    EP_CHUNK_OPEN,
    EP_CHUNK_SEALED
} ep_chunk_state;

/* One instant on both clocks; see clock.h. */
typedef struct ep_anchor {
    uint64_t ticks;
    int64_t monotonic_ns;
} ep_anchor;

/* The first 128 bytes of a chunk's mapping. Reaches files: append only. */
typedef struct ep_chunk_header {
    uint32_t magic;             /* EP_CHUNK_MAGIC */
    _Atomic uint32_t state;     /* ep_chunk_state */
    uint64_t sequence;          /* order of opening in the process; grows, never reused */
    uint64_t thread_id;         /* of the first record; THREAD records change it */
    ep_anchor opened;           /* ticks: the base of the first record's high half */
    ep_anchor sealed;           /* valid once state is SEALED */
    uint64_t used_words;        /* valid once state is SEALED */
    _Atomic uint8_t shared;     /* another thread continued in it: there is a THREAD record */
    uint8_t reserved[7];
    int64_t resident_bytes;     /* resident set of the process when the chunk was opened; -1: unknown */
    /* In a log file only. */
    _Atomic uint64_t wanted;    /* 1: the file's recorder keeps it; 0: it does not */
    uint64_t sum;               /* ep_sum64() of the used words; valid once state is SEALED */
    uint32_t bytes;             /* of the mapping; 0: EP_CHUNK_BYTES */
    uint32_t packed_bytes;      /* of a slot whose records are packed, after the header; else 0 */
    int64_t own_bytes;          /* of resident_bytes, the recorder's own; 0: unknown */
    uint8_t reserved_last[16];  /* ends in a zero word: see ep_log_address_before() */
} ep_chunk_header;

#define EP_CHUNK_MAGIC UINT32_C(0x43505645) /* "EVPC" */
#define EP_CHUNK_HEADER_BYTES 128
#define EP_CHUNK_WORDS_OF(bytes) (((bytes) - EP_CHUNK_HEADER_BYTES) / 8)
#define EP_CHUNK_WORDS EP_CHUNK_WORDS_OF(EP_CHUNK_BYTES)    /* of the largest */

_Static_assert(sizeof(ep_chunk_header) == EP_CHUNK_HEADER_BYTES, "the header reaches files");

/* Words of records that it has room for. */
static inline size_t
ep_chunk_words(const ep_chunk_header *header)
{
    return EP_CHUNK_WORDS_OF(header->bytes != 0 ? header->bytes : EP_CHUNK_BYTES);
}

/* ---- Names and sites ------------------------------------------------------------------------- */

typedef enum ep_name_kind {
    EP_NAME_PYTHON,    /* a code object */
    EP_NAME_C,         /* a builtin function or method */
    EP_NAME_TYPE,      /* a class that was called */
    EP_NAME_OBJECT,    /* another callable, named after its type */
    EP_NAME_USER,      /* the name of a span, mark, counter or flow of the program */
    EP_NAME_GC,        /* a run of the garbage collector */
    EP_NAME_AUDIT,     /* an audit event */
    EP_NAME_HPY,       /* a function of HPy's interface */
    EP_NAME_WAIT,      /* what a thread waits for */
    EP_NAME_KIND_COUNT
} ep_name_kind;

/* Text of a name. UTF-8 (surrogates as three bytes), not terminated. A view, valid during the call. */
typedef struct ep_text {
    const char *at;    /* NULL: unknown */
    size_t bytes;
} ep_text;

/* Returns: how many of its bytes to keep, at most `limit`: whole characters of UTF-8. */
static inline size_t
ep_text_cut(ep_text text, size_t limit)
{
    size_t bytes = text.at == NULL ? 0 : text.bytes < limit ? text.bytes
                                                            : limit;
    while (bytes < text.bytes && bytes > 0 && ((unsigned char)text.at[bytes] & 0xC0) == 0x80) {
        bytes -= 1;
    }
    return bytes;
}

#define EP_STRING_NONE UINT32_MAX

/* ---- Open calls ------------------------------------------------------------------------------ */

/* A call that was open when the window began, innermost last. */
typedef struct ep_open_call {
    uint32_t site_id;
    uint8_t kind;      /* of the CALL form, and opens a call: a span, too */
    uint8_t before;    /* 1: it was open when the window began; 0: a ring lost the record of its begin */
    uint8_t unsettled;   /* it was at its entry: its begin may still be reported (ep_engine_unsettle) */
} ep_open_call;

typedef struct ep_open_stack {
    size_t depth;
    size_t capacity;
    ep_open_call *calls;
} ep_open_stack;

#endif
