/* Leaves out records of a later version; see file_kinds.h. */
#include "file_kinds.h"

#include <stdio.h>
#include <string.h>

static bool
is_known(unsigned kind)
{
    return ep_kinds[kind].name != NULL;
}

ep_record_shape
ep_record_shape_of(const ep_file_header *header)
{
    ep_record_shape shape = {0};
    for (unsigned kind = 0; kind < EP_KIND_COUNT; kind++) {
        const ep_file_kind *listed = &header->kind_table[kind];
        if (is_known(kind)) {
            shape.words[kind] = ep_kinds[kind].words;
            shape.form[kind] = ep_kinds[kind].form;
        } else if (kind != 0 && listed->words != 0 && listed->form < EP_FORM_CONTROL) {
            /* The effect of an unknown CONTROL record on the following records is not known: it ends the
             * chunk. */
            shape.words[kind] = listed->words;
            shape.form[kind] = listed->form;
            shape.differs = true;
        }
    }
    return shape;
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

void
ep_translate_records(ep_translation *t, uint64_t *records, size_t count)
{
    const ep_record_shape *shape = t->shape;
    size_t first_escape = 0;    /* words written before the first ESCAPE of the next allocation or free */
    t->read = t->written = 0;
    while (t->read < count && records[t->read] != 0) {
        const uint64_t word0 = records[t->read];
        const unsigned kind = EP_WORD0_KIND(word0);
        const size_t words = shape->words[kind];
        if (words == 0 || words > count - t->read) {
            break;
        }
        const uint64_t word1 = words > 1 ? records[t->read + 1] : 0;
        t->read += words;
        if (!is_known(kind)) {
            leave_out(t, kind, t->high | EP_WORD0_TICKS(word0), first_escape);
            continue;
        }
        if (kind == EP_KIND_SYNC) {
            t->high = word1 >> 32 << 32;
        }
        records[t->written++] = word0;
        if (words > 1) {
            records[t->written++] = word1;
        }
        first_escape = kind == EP_KIND_ESCAPE ? first_escape : t->written;
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
