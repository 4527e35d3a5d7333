/* What is said of a place in the drop-in's rows: lines, and texts as categories. */
#ifndef EP_LEGACY_PLACES_H
#define EP_LEGACY_PLACES_H

#include <Python.h>

#include "hash_index.h"
#include "types.h"

/* The four columns of texts; the first and the third share categories, and so do the others. */
enum {
    EP_LEGACY_NAME,
    EP_LEGACY_MOD,
    EP_LEGACY_FROM_NAME,
    EP_LEGACY_FROM_MOD,
    EP_LEGACY_TEXTS
};

typedef struct ep_legacy_place {
    /* For a matrix: ids of names; 0: none. */
    int32_t frame;                     /* the Python function at work there */
    int32_t arg;                       /* the C function that is called */
    /* For a dataframe. */
    int32_t first_line, line;          /* -1: unknown */
    int32_t code[EP_LEGACY_TEXTS];     /* of its categories; -1: unknown */
    uint32_t bytes;                    /* the low bytes of the codes, the first one lowest */
} ep_legacy_place;

typedef struct ep_legacy_word {
    ep_text text;                      /* in the core's strings: immortal */
    bool is_file;                      /* of Python code: clean_file_name is asked for it */
} ep_legacy_word;

/* Categories, in order of appearance. */
typedef struct ep_legacy_words {
    ep_legacy_word *rows;
    size_t count, capacity;
    ep_hash_index by_text;
} ep_legacy_words;

typedef struct ep_legacy_places {
    ep_legacy_place *rows;             /* index: number of the place */
    size_t count, capacity;
    ep_legacy_words names, files;
} ep_legacy_places;

/* Adds what is said of places[places->count] .. places[count - 1] (see rows.h). Names and lines are known:
 * ep_py_intern_resolve(). Needs no GIL. A zeroed object is empty. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_legacy_learn(ep_legacy_places *places, const uint32_t *numbers, size_t count);
void ep_legacy_places_clear(ep_legacy_places *places);

/* Returns: new list of str or, with_files, of (str, whether it is a file of Python code). */
PyObject *ep_legacy_words_list(const ep_legacy_words *words, bool with_files);

#endif
