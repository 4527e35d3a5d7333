/* The bytes of a section -> events. Each number is checked before it is used. archive_model.h describes the
 * encoding. */
#include "archive_model.h"

typedef struct reader {
    ep_input in[STREAM_COUNT];
    const char *wrong;       /* the error; NULL: none yet */
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
kind_is_event(const ep_events_coder *coder, unsigned kind)
{
    const ep_kind_info *info = &coder->ids.kinds[kind];
    return info->words != 0 && info->form != EP_FORM_CONTROL;
}

/* Returns: 0 on an error. */
static uint32_t
get_symbol(ep_events_coder *coder, reader *r, const thread_model *t)
{
    const model *m = &coder->model;
    uint8_t token = ep_input_byte(&r->in[STREAM_KINDS]);
    if (EP_LIKELY(token <= KIND_AS_AFTER_ONE)) {
        return token == KIND_AS_AFTER_TWO ? m->after_two[hash_two(t->before, t->before_that, TWO_BITS)]
                                          : m->after_one[hash_one(t->before, ONE_BITS)];
    }
    unsigned kind = (token - 2u) / 2 + 1;
    if (kind >= EP_KIND_COUNT || !kind_is_event(coder, kind)) {
        r->wrong = "an event has an unknown kind";
        return 0;
    }
    if (token % 2 == 0) {
        return SYMBOL(kind, 0);
    }
    bool name = coder->ids.kinds[kind].has_name;
    uint64_t id = ep_input_varint(&r->in[STREAM_IDS]);
    /* An end has the name's id + 1. */
    if (id == 0 || id >= (name ? coder->ids.name_count + 1 : coder->ids.site_count)) {
        r->wrong = name ? "an event has a name that is not in the file"
                        : "an event has a site that is not in the file";
        return 0;
    }
    return SYMBOL(kind, id);
}

static uint64_t
get_near(reader *r, uint64_t to)
{
    /* Unsigned: a number from a file may wrap around. */
    return to + (uint64_t)ep_unzigzag(ep_input_varint(&r->in[STREAM_ADDRESSES])) * 16;
}

static uint64_t
get_allocation(ep_events_coder *coder, reader *r, unsigned domain, uint32_t symbol, uint32_t before,
               uint64_t *size)
{
    model *m = &coder->model;
    uint64_t *guess = &m->size[hash_two(symbol, before, SIZE_BITS)];
    uint64_t stored = ep_input_varint(&r->in[STREAM_SIZES]);
    *size = *guess = stored == 0 ? *guess : stored - 1;
    uint64_t stride, address = 0;
    unsigned class = ep_place_class(domain, *size, &stride);
    ep_free_list *list = &m->lists[class];
    uint8_t place = ep_input_byte(&r->in[STREAM_PLACES]);
    if (EP_LIKELY(place < list->count)) {
        address = list->freed[list->count - 1 - place];
        ep_free_list_take(list, place);
    } else if (place == PLACE_AFTER) {
        address = list->last + stride;
    } else if (place == PLACE_FREED_LAST) {
        address = m->freed_last;
    } else if (place == PLACE_NEAR) {
        address = get_near(r, list->last);
    } else if (place == PLACE_FAR) {
        address = ep_input_le(&r->in[STREAM_ADDRESSES], 8);
    } else {
        r->wrong = "an allocation has an unknown place";
    }
    note_allocation(coder, list, class, address);
    return address;
}

static uint64_t
get_free(ep_events_coder *coder, reader *r, uint32_t symbol, uint32_t before)
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
get_value(ep_events_coder *coder, reader *r, uint32_t symbol, uint32_t before)
{
    uint64_t *guess = &coder->model.size[hash_two(symbol, before, SIZE_BITS)];
    *guess += (uint64_t)ep_unzigzag(ep_input_varint(&r->in[STREAM_SIZES]));
    return *guess;
}

/* The row gets this process's id. */
static uint32_t
follow_symbol(ep_events_coder *coder, thread_model *t, uint32_t symbol)
{
    const ep_events_ids *ids = &coder->ids;
    unsigned kind = SYMBOL_KIND(symbol);
    uint32_t id = SYMBOL_ID(symbol);
    if (ids->kinds[kind].form != EP_FORM_CALL) {
        return ids->site_map[id];
    }
    if (ids->kinds[kind].has_name) {
        uint32_t name = id == 0 ? top_name(coder, t) : id - 1;
        close_call(coder, t, name);
        return ids->name_map[name];
    }
    open_call(coder, t, ids->site_callee[id]);
    return ids->site_map[id];
}

typedef struct rows {
    size_t row, block;       /* next */
    size_t events, blocks;   /* rows and blocks of the file that are not read yet */
    uint64_t time, last_time;
    int64_t size_sum;
} rows;

/* at, t: in registers, so that the stores of a row do not make the compiler read them again. */
static EP_INLINE void
get_rows(ep_events_coder *coder, reader *r, const ep_columns *c, rows *at, thread_model *t, int32_t thread,
         size_t events)
{
    for (; events > 0; events--) {
        at->time += get_time(r);
        uint32_t symbol = get_symbol(coder, r, t);
        if (EP_UNLIKELY(symbol == 0 || at->time > at->last_time || r->wrong != NULL)) {
            r->wrong = r->wrong != NULL ? r->wrong
                       : symbol == 0    ? "an event has an unknown kind"
                                        : "its times are not in order";
            return;
        }
        unsigned kind = SYMBOL_KIND(symbol);
        const ep_kind_info *info = &coder->ids.kinds[kind];
        size_t known = info->name != NULL;    /* else the next row overwrites it */
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
                info->form == EP_FORM_ALLOC
                    ? get_allocation(coder, r, info->domain, symbol, t->before, &size)
                : info->form == EP_FORM_FREE ? get_free(coder, r, symbol, t->before)
                                             : get_value(coder, r, symbol, t->before);
            c->size[at->block] = (int64_t)size;
            at->block += known;
            at->blocks -= 1;
            if (info->form == EP_FORM_ALLOC && known) {
                /* The size of a failed realloc is the requested one, and is not summed up. */
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

static void
get_run(ep_events_coder *coder, reader *r, const ep_columns *columns, rows *at, int32_t thread,
        size_t events)
{
    thread_model *t = thread_of(coder, (size_t)thread), now = *t;
    const ep_columns c = *columns;
    rows here = *at;
    get_rows(coder, r, &c, &here, &now, thread, events);
    *t = now;
    *at = here;
}

/* Sets up the streams. False: their lengths do not fit the bytes. */
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

/* Adds a section without errors to the totals: events of each thread by kind, its first and its last
 * time. */
static void
commit(const ep_columns *c, size_t from, const rows *at, ep_events_totals *totals)
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
decode_rows(ep_events_coder *coder, reader *r, ep_columns *c, rows *at)
{
    ep_input *threads = &r->in[STREAM_THREADS];
    while (at->events > 0) {
        uint64_t thread = ep_input_varint(threads), length = ep_input_varint(threads);
        if (thread >= coder->ids.thread_count) {
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
ep_events_decode(ep_events_coder *coder, const uint8_t *bytes, size_t count, const ep_section *section,
                 ep_columns *columns, ep_events_totals *totals)
{
    reader r = {.wrong = NULL};
    if (count < HEAD_BYTES + LENGTHS_BYTES || !begin_streams(&r, bytes, count)) {
        return "its streams do not fit into it";
    }
    uint64_t first = ep_load_le(&bytes[8], 8), last = ep_load_le(&bytes[16], 8);
    if (ep_load_le(&bytes[0], 4) != section->items || ep_load_le(&bytes[4], 4) != section->blocks ||
        section->items == 0 || section->items > EP_SECTION_ROWS_MAX) {
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
