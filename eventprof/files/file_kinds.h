/* Translates records of a log file that this version would write differently: records of version 1, whose
 * word 0 has 6 bits of kind and 26 of payload, and kinds of a later version that are unknown here. */
#ifndef EP_FILE_KINDS_H
#define EP_FILE_KINDS_H

#include "format.h"
#include "types.h"

/* The layout of the records of one file. */
typedef struct ep_record_shape {
    unsigned payload_bits;             /* of word 0 */
    bool differs;                      /* its records must be translated */
    uint8_t words[EP_KIND_COUNT];      /* length of a record of that kind; 0: there is no such kind */
    uint8_t form[EP_KIND_COUNT];     /* ep_form */
} ep_record_shape;

ep_record_shape ep_record_shape_of(const ep_file_header *header);

/* Length of the record that begins with this word; 0: no record begins with it. */
static inline size_t
ep_record_words(const ep_record_shape *shape, uint64_t word0)
{
    return shape->words[(uint32_t)word0 >> shape->payload_bits];
}

typedef struct ep_translation {
    const ep_record_shape *shape;
    ep_kind_set asked;                    /* kinds that were recorded */
    uint64_t high;                        /* of the ticks where the records begin, shifted into place */
    uint64_t start_ticks, stop_ticks;     /* the window */
    /* out */
    size_t read;                          /* words of complete records that were read */
    size_t written;                       /* words of their translation */
    uint64_t unknown_events;              /* events of the window that were left out, because their kind is
                                           * unknown, */
    ep_kind_set unknown_kinds;            /* and their kinds */
} ep_translation;

/* The largest number of words that the translation may be longer than the records. */
size_t ep_translation_growth(const ep_record_shape *shape, const uint64_t *from, size_t count);

/* Reads up to a word that is 0 or does not begin a complete record. `to` has room for `count` words and the
 * growth; it may be `from` if the growth is 0. */
void ep_translate_records(ep_translation *t, const uint64_t *from, size_t count, uint64_t *to);

/* Writes the file's words for kinds that are unknown here: "a, b". At most `bytes` bytes. */
void ep_unknown_words(const ep_file_header *header, ep_kind_set kinds, char *to, size_t bytes);

#endif
