/* What the page in the browser has of a trace: calls by thread and depth, births and deaths of blocks in
 * order of time, and the holders of blocks. python/eventprof/viewer/data.py describes the page.
 *
 *   ep_page_open()       all calls in the order of the page; places; what each holder held
 *   ep_page_set_bands()  the holders that have a curve of their own
 *   ep_page_call_tile(), ep_page_block_tile()    the columns of a tile; several threads at the same time
 *
 * A *place on the page* is a call's number there: calls are sorted by thread, then depth, then start. A
 * *birth* is an allocation, a *death* a free. A *holder* of a block is the function of its call, the line
 * that was executing, or the own line that it is charged to. A *place* of holders is a function and a line.
 * A *charge* is all holders of a block. Programs have few of them, so a block has its charge's number. */
#ifndef EP_PAGE_H
#define EP_PAGE_H

#include <stdatomic.h>

#include "mutex.h"
#include "planes.h"
#include "trace.h"
#include "types.h"

#define EP_PAGE_BINS 1024
#define EP_PAGE_BANDS_MAX 15    /* with "all others" 16 */
/* Kinds of holders. */
#define EP_PAGE_HOLDERS 3       /* function, line, own line */

/* The calls of one thread and depth. */
typedef struct ep_page_row {
    int32_t thread, depth;
    int32_t first, count;    /* places on the page */
    int32_t above;           /* the row of its thread with depth - 1; -1: none */
} ep_page_row;

/* By row of calls. */
typedef struct ep_page_call {
    int32_t place;    /* on the page */
    int32_t row;      /* of the page */
    int32_t owner;    /* of its own blocks: a candidate */
} ep_page_call;

/* Of `group` calls of a row; the last may have fewer. */
typedef struct ep_page_coarse {
    int64_t start, end;    /* of the first, of the last call; grains */
    int64_t longest;       /* grains */
    int64_t sum;           /* of all durations, grains */
    int32_t function;      /* of the longest, of several the first; -1: unknown */
} ep_page_coarse;

/* A call, or an event of a block, whose parent or call the page would not find by thread, depth and
 * time. */
typedef struct ep_page_link {
    int32_t from, to;    /* `to` is a place on the page; -1: no call */
} ep_page_link;

typedef struct ep_page_links {
    size_t count, capacity;
    ep_page_link *links;
} ep_page_links;

/* Where the events of a tile begin. */
typedef struct ep_page_mark {
    uint32_t event;        /* allocator event */
    uint32_t lost;         /* free_lost before it */
    uint32_t gone;         /* of ep_blocks, before it */
    uint32_t births;       /* before it */
} ep_page_mark;

/* What holders held: by function + 1, or by place. */
typedef struct ep_page_held {
    size_t count;
    double *held;          /* bytes at the peak */
    double *area;          /* bytes times ns */
} ep_page_held;

typedef struct ep_page_charge {
    int32_t function;                 /* + 1; 0: unknown */
    int32_t line, own;                /* candidates for places */
    uint8_t band[EP_PAGE_HOLDERS];
    double held, area;                /* as in ep_page_held */
} ep_page_charge;

typedef struct ep_page_scratch ep_page_scratch;

typedef struct ep_page {
    const ep_trace *trace;      /* view */
    int64_t grain;              /* ns in a unit of time */
    size_t tile;                /* rows of a tile */
    int32_t group;              /* calls of a coarse row */
    /* calls */
    size_t call_count;
    size_t row_count;
    ep_page_row *rows;
    ep_page_call *calls;        /* by row of calls */
    int32_t *order;             /* rows of calls by place on the page */
    int64_t *start;             /* grains, by place on the page; one more, after all times */
    size_t coarse_count;
    ep_page_coarse *coarse;
    ep_page_links orphans;
    uint8_t codes[256];         /* of kinds */
    size_t code_count;
    int32_t *usual;             /* by function + 1: the most frequent code */
    const int32_t *task;        /* by row of calls: codes, -1: none; view; NULL: there are no tasks */
    /* blocks */
    size_t block_count;
    size_t event_count;         /* births and deaths; those that ended with their process count as deaths */
    uint8_t *own;               /* by function; the last is for unknown ones */
    size_t function_count;
    /* Candidates for places: what a site or a function could mean. Sorted; [0] is unknown. */
    size_t candidate_count;
    uint64_t *candidates;       /* function + 1 << 32 | line + 1 */
    int32_t *of_site;           /* by site: candidate of the executing function and line */
    int32_t *of_caller;         /* by site: candidate of the calling function and line */
    int32_t *of_function;       /* by function: candidate of it and line -1 */
    int32_t *number;            /* by candidate: its place; -1: no block has it */
    size_t place_count;
    int32_t *places;            /* candidates */
    size_t charge_count;
    ep_page_charge *charges;    /* in order of their first blocks */
    int32_t *charge_of;         /* by block */
    ep_page_held held[EP_PAGE_HOLDERS];
    size_t mark_count;
    ep_page_mark *marks;        /* of tiles */
    /* curves */
    int bands[EP_PAGE_HOLDERS];                 /* the band of all others is the last */
    int64_t edges[EP_PAGE_BINS];                /* ns: bin k ends before edges[k] */
    _Atomic int64_t *curve[EP_PAGE_HOLDERS];    /* by bin and band: bytes born less bytes died */
    /* scratch of tiles */
    ep_mutex lock;
    ep_page_scratch *idle;
} ep_page;

typedef struct ep_page_wanted {
    int64_t grain;
    size_t tile;
    int32_t group;
    const uint8_t *own;         /* by function: whether it is own code; function_count */
    const uint8_t *codes;       /* by ep_kind: what the page calls it; 256 of them */
    int64_t peak_ns;            /* when live bytes were highest */
    int64_t duration_ns;        /* of the recording */
} ep_page_wanted;

/* trace: view, with calls and blocks, and with EP_CALLS_RECURSIVE. Everything else in wanted is copied.
 * 12 bytes a call for its place, 4 for the order, 8 for its start.
 * Returns: new in *out (ep_page_close). Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_page_open(const ep_trace *trace, const ep_page_wanted *wanted, ep_page **out);
void ep_page_close(ep_page *page);    /* NULL is fine */

/* Whether any call is part of a task. */
bool ep_page_has_tasks(const ep_trace *trace);

/* The place on the page of the longest call that fits, of several the first; -1: none. caller -2: any
 * caller and line. */
typedef struct ep_page_question {
    int32_t function, caller, line;
    int32_t place;         /* the answer */
    int64_t duration;      /* of it */
} ep_page_question;
EP_CHECKED ep_status ep_page_longest(const ep_page *page, ep_page_question *questions, size_t count);

/* Before the tiles of blocks. holders: functions + 1, or places. Fails: EP_NOMEM; EP_ARGUMENT. */
EP_CHECKED ep_status ep_page_set_bands(ep_page *page, int by, const int64_t *holders, size_t count);

/* function + 1, or a place. */
static inline int32_t
ep_page_holder(const ep_page *page, const ep_page_charge *charge, int by)
{
    return by == 0 ? charge->function : page->number[by == 1 ? charge->line : charge->own];
}

/* A tile's columns, and what the head of the page says of them. */
typedef struct ep_page_part {
    ep_page_scratch *scratch;    /* owned */
    ep_planes planes;            /* view into scratch */
    size_t low_bytes;            /* of the planes: the low bits of times, which are first, */
    size_t times_bytes;          /* and the planes of times after them */
    int low_bits[2];             /* of the columns of times */
    size_t rows;                 /* of the first column */
    bool is_signed;              /* calls: gaps are in zigzag */
    size_t begin_count;          /* calls: whose start the head has: the first of the tile and of rows */
    int32_t *begins;             /* view into scratch: places on the page */
    int64_t start;               /* blocks: of the first event, grains */
    size_t births;
    ep_page_links astray;        /* blocks; owned */
} ep_page_part;

/* Fails: EP_NOMEM; EP_ARGUMENT, no such tile. Returns: new in *out (ep_page_part_clear). */
EP_CHECKED ep_status ep_page_call_tile(ep_page *page, size_t tile, ep_page_part *out);
/* With set bands; each tile once, because it adds to the curves. */
EP_CHECKED ep_status ep_page_block_tile(ep_page *page, size_t tile, ep_page_part *out);
void ep_page_part_clear(ep_page *page, ep_page_part *part);

/* ---- Between the files of this folder -------------------------------------------------------- */

#define EP_PAGE_PLANES 40
#define EP_PAGE_WIDE 3
#define EP_PAGE_NARROW 6

struct ep_page_scratch {
    ep_page_scratch *next;
    uint8_t *planes;            /* EP_PAGE_PLANES bytes a row */
    uint64_t *wide[EP_PAGE_WIDE];        /* a tile's rows */
    uint32_t *narrow[EP_PAGE_NARROW];
    uint32_t *slots;            /* a tile's rows: where each goes */
    uint32_t *counts;           /* function_count + 2 */
};

EP_CHECKED ep_status ep_page_take_calls(ep_page *page);
EP_CHECKED ep_status ep_page_take_blocks(ep_page *page, const ep_page_wanted *wanted);
void ep_page_scratch_free(ep_page_scratch *scratch);
EP_CHECKED bool ep_page_link_add(ep_page_links *links, int32_t from, int32_t to);

static inline int64_t
ep_page_grains(const ep_page *page, int64_t ns)
{
    if (page->grain == 1) {
        return ns;
    }
    int64_t grains = ns / page->grain;
    return grains - (ns % page->grain < 0);
}

/* In grains. */
static inline int64_t
ep_page_call_end(const ep_page *page, size_t call)
{
    return ep_page_grains(page, ep_call_end(&page->trace->calls, call));
}

/* Whether the page, which searches a row by time, finds this call. time: grains. */
static inline bool
ep_page_finds(const ep_page *page, const ep_page_row *row, int32_t place, int64_t time)
{
    return page->start[place] <= time &&
           (place + 1 == row->first + row->count || time < page->start[place + 1]);
}

#endif
