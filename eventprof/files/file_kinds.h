/* Leaves out and counts records of a log file whose kinds are unknown here, as a later version has more. */
#ifndef EP_FILE_KINDS_H
#define EP_FILE_KINDS_H

#include "format.h"
#include "types.h"

/* The layout of the records of one file. */
typedef struct ep_record_shape {
    bool differs;                      /* it may have records of unknown kinds */
    uint8_t words[EP_KIND_COUNT];      /* length of a record of that kind; 0: there is no such kind */
    uint8_t form[EP_KIND_COUNT];     /* ep_form */
} ep_record_shape;

ep_record_shape ep_record_shape_of(const ep_file_header *header);

/* Length of the record that begins with this word; 0: no record begins with it. */
static inline size_t
ep_record_words(const ep_record_shape *shape, uint64_t word0)
{
    return shape->words[EP_WORD0_KIND(word0)];
}

typedef struct ep_translation {
    const ep_record_shape *shape;
    ep_kind_set asked;                    /* kinds that were recorded */
    uint64_t high;                        /* of the ticks where the records begin, shifted into place */
    uint64_t start_ticks, stop_ticks;     /* the window */
    /* out */
    size_t read;                          /* words of complete records that were read */
    size_t written;                       /* words of those that stay */
    uint64_t unknown_events;              /* events of the window that were left out, because their kind is
                                           * unknown, */
    ep_kind_set unknown_kinds;            /* and their kinds */
} ep_translation;

/* Reads up to a word that is 0 or does not begin a complete record, and moves what stays to the front. */
void ep_translate_records(ep_translation *t, uint64_t *records, size_t count);

/* Writes the file's words for kinds that are unknown here: "a, b". At most `bytes` bytes. */
void ep_unknown_words(const ep_file_header *header, ep_kind_set kinds, char *to, size_t bytes);

#endif
