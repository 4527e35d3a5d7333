/* Events -> the bytes of a section. archive_model.h describes the encoding. */
#include "archive_model.h"

/* The largest number of bytes of one event in each stream. */
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

typedef struct writer {
    uint8_t *at[STREAM_COUNT];       /* one past the last written byte */
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

/* Whether an address can be stored as a distance; *distance is set then. */
static bool
near(uint64_t address, uint64_t to, uint64_t *distance)
{
    int64_t difference = (int64_t)(address - to);
    *distance = ep_zigzag(difference / 16);
    return difference % 16 == 0;
}

static void
put_allocation(ep_events_coder *coder, writer *w, unsigned kind, uint32_t symbol, uint32_t before,
               uint64_t address, uint64_t size)
{
    model *m = &coder->model;
    uint64_t *guess = &m->size[hash_two(symbol, before, SIZE_BITS)];
    put_varint(w, STREAM_SIZES, *guess == size ? 0 : size + 1);
    *guess = size;
    uint64_t stride, distance;
    unsigned class = ep_place_class(ep_kinds[kind].domain, size, &stride);
    ep_free_list *list = &m->lists[class];
    unsigned depth = ep_free_list_find(list, address);
    if (depth < list->count) {
        put_byte(w, STREAM_PLACES, depth);
        ep_free_list_take(list, depth);
    } else if (address == list->last + stride) {
        put_byte(w, STREAM_PLACES, PLACE_AFTER);
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
put_free(ep_events_coder *coder, writer *w, uint32_t symbol, uint32_t before, uint64_t address)
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

/* Unsigned: the difference may wrap around; the decoder's sum wraps back. */
static void
put_value(ep_events_coder *coder, writer *w, uint32_t symbol, uint32_t before, uint64_t value)
{
    uint64_t *guess = &coder->model.size[hash_two(symbol, before, SIZE_BITS)];
    put_varint(w, STREAM_SIZES, ep_zigzag((int64_t)(value - *guess)));
    *guess = value;
}

/* Returns: the symbol. */
static uint32_t
put_kind(ep_events_coder *coder, writer *w, thread_model *t, unsigned kind, uint32_t process_id)
{
    const ep_events_ids *ids = &coder->ids;
    model *m = &coder->model;
    uint32_t symbol;
    bool in_call = ep_kinds[kind].form == EP_FORM_CALL;
    if (ep_kind_has_name(kind)) {
        uint32_t name = map_id(ids->name_map, ids->name_map_count, process_id);
        symbol = SYMBOL(kind, top_name(coder, t) == name ? 0 : name + 1);
        close_call(coder, t, name);
    } else {
        uint32_t site = map_id(ids->site_map, ids->site_map_count, process_id);
        symbol = SYMBOL(kind, site);
        if (in_call) {
            open_call(coder, t, ids->site_callee[site]);
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
ep_events_encode(ep_events_coder *coder, const ep_columns *columns, size_t row, size_t count,
                 size_t *block, size_t *bytes)
{
    writer w;
    uint8_t *room[STREAM_COUNT], *next = coder->streams;
    for (int i = 0; i < STREAM_COUNT; i++) {
        w.at[i] = room[i] = next;
        next += stream_bytes[i] * EP_SECTION_ROWS;
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
            if (ep_kinds[kind].form == EP_FORM_ALLOC) {
                put_allocation(coder, &w, kind, symbol, t->before, columns->address[*block],
                               (uint64_t)columns->size[*block]);
                *block += 1;
            } else if (ep_kinds[kind].form == EP_FORM_FREE) {
                put_free(coder, &w, symbol, t->before, columns->address[*block]);
                *block += 1;
            } else if (ep_kinds[kind].form == EP_FORM_VALUE) {
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
