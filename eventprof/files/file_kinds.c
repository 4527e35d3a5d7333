/* Translates records of other versions; see file_kinds.h. */
#include "file_kinds.h"

#include <stdio.h>
#include <string.h>

#define PAYLOAD_BITS_1 26    /* in version 1 */

static bool
is_known(unsigned kind)
{
    return ep_kinds[kind].name != NULL;
}

ep_record_shape
ep_record_shape_of(const ep_file_header *header)
{
    ep_record_shape shape = {
        .payload_bits = header->major == 1 ? PAYLOAD_BITS_1 : EP_PAYLOAD_BITS,
        .differs = header->major == 1,
    };
    for (unsigned kind = 0; kind < EP_KIND_COUNT; kind++) {
        const ep_file_kind *told = &header->kind_table[kind];
        if (is_known(kind)) {
            shape.words[kind] = ep_kinds[kind].words;
            shape.form[kind] = ep_kinds[kind].form;
        } else if (kind != 0 && header->major > 1 && told->words != 0 && told->form < EP_FORM_CONTROL) {
            /* The effect of an unknown CONTROL record on the following records is not known: it ends the
             * chunk. */
            shape.words[kind] = told->words;
            shape.form[kind] = told->form;
            shape.differs = true;
        }
    }
    return shape;
}

static uint32_t
payload_of(const ep_record_shape *shape, uint64_t word0)
{
    return (uint32_t)word0 & ((UINT32_C(1) << shape->payload_bits) - 1);
}

size_t
ep_translation_growth(const ep_record_shape *shape, const uint64_t *from, size_t count)
{
    size_t growth = 0;
    for (size_t at = 0; at < count && ep_record_words(shape, from[at]) != 0;) {
        unsigned kind = (uint32_t)from[at] >> shape->payload_bits;
        bool needs_escape = shape->form[kind] == EP_FORM_ALLOC &&
                            payload_of(shape, from[at]) > EP_PAYLOAD_MAX;
        growth += needs_escape ? 2 : 0;
        at += ep_record_words(shape, from[at]);
    }
    return growth;
}

/* Leaves out an event, and the ESCAPE records before it that belong to it. */
static void
leave_out(ep_translation *t, unsigned kind, uint64_t ticks, size_t first_escape)
{
    uint8_t form = t->shape->form[kind];
    if (form == EP_FORM_ALLOC || form == EP_FORM_FREE) {
        t->written = first_escape;
    }
    if (ticks >= t->start_ticks && ticks <= t->stop_ticks && ep_kinds_has(t->asked, kind)) {
        t->unknown_events += 1;
        t->unknown_kinds |= EP_KIND_BIT(kind);
    }
}

static void
put(ep_translation *t, uint64_t *to, uint64_t word)
{
    to[t->written++] = word;
}

void
ep_translate_records(ep_translation *t, const uint64_t *from, size_t count, uint64_t *to)
{
    const ep_record_shape *shape = t->shape;
    size_t first_escape = 0;    /* words written before the first ESCAPE of the next allocation or free */
    bool has_size = false;      /* one of these is of a size */
    t->read = t->written = 0;
    while (t->read < count && from[t->read] != 0) {
        const uint64_t *record = from + t->read, word0 = record[0];
        const unsigned kind = (uint32_t)word0 >> shape->payload_bits;
        const size_t words = shape->words[kind];
        if (words == 0 || words > count - t->read) {
            break;
        }
        const uint64_t word1 = words > 1 ? record[1] : 0;
        const uint32_t ticks = EP_WORD0_TICKS(word0);
        uint32_t payload = payload_of(shape, word0);
        const uint8_t form = shape->form[kind];
        const bool takes_escapes = form == EP_FORM_ALLOC || form == EP_FORM_FREE;
        t->read += words;
        if (!is_known(kind)) {
            leave_out(t, kind, t->high | ticks, first_escape);
            has_size = has_size && !takes_escapes;
            continue;
        }
        if (kind == EP_KIND_SYNC) {
            t->high = word1 >> 32 << 32;
        }
        if (form == EP_FORM_ALLOC && payload > EP_PAYLOAD_MAX && !has_size) {
            put(t, to, EP_WORD0(ticks, EP_KIND_ESCAPE, EP_ESCAPE_SIZE));
            put(t, to, payload);
        }
        const bool is_escape = kind == EP_KIND_ESCAPE;
        has_size = (has_size && !takes_escapes) || (is_escape && payload == EP_ESCAPE_SIZE);
        /* A number that is too large for the payload cannot be a name or site of a process: unknown. */
        payload = payload < EP_PAYLOAD_MAX ? payload : EP_PAYLOAD_MAX;
        bool is_such_site = is_escape && payload == EP_ESCAPE_SITE && word1 > EP_PAYLOAD_MAX &&
                            word1 >> PAYLOAD_BITS_1 == 0;
        put(t, to, EP_WORD0(ticks, kind, payload));
        if (words > 1) {
            put(t, to, is_such_site ? EP_PAYLOAD_MAX : word1);
        }
        first_escape = is_escape ? first_escape : t->written;
    }
}

void
ep_unknown_words(const ep_file_header *header, ep_kind_set kinds, char *to, size_t bytes)
{
    size_t at = 0;
    to[0] = 0;
    for (unsigned kind = 0; kind < EP_KIND_COUNT; kind++) {
        const char *word = header->kind_table[kind].word;
        size_t length = strnlen(word, EP_FILE_KIND_WORD_BYTES);
        if (!ep_kinds_has(kinds, kind)) {
            continue;
        }
        for (size_t i = 0; i < length; i++) {
            length = word[i] > ' ' && word[i] <= '~' ? length : 0;    /* damaged */
        }
        const char *comma = at > 0 ? ", " : "";
        int more = length > 0 ? snprintf(to + at, bytes - at, "%s%.*s", comma, (int)length, word)
                              : snprintf(to + at, bytes - at, "%skind %u", comma, kind);
        if (more < 0 || (size_t)more >= bytes - at) {
            return;
        }
        at += (size_t)more;
    }
}
