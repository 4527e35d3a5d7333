/* The linker's table of imports: a loaded image calls a function of another image through a word of memory.
 * If that word is changed, another function is called instead. */
#ifndef EP_IMPORTS_H
#define EP_IMPORTS_H

#include <stdatomic.h>
#include <stdbool.h>

typedef struct ep_import {
    _Atomic(void *) *slot;
    bool read_only;    /* the linker protected its page (RELRO) */
} ep_import;

/* Finds the word through which an image calls a function. image: from dlopen(). False: the image does not
 * call the function in this way, or the system has no such tables. */
bool ep_import_find(void *image, const char *function, ep_import *out);

/* Makes the image call `to` instead. False: the page cannot be written, and nothing changed. */
bool ep_import_set(const ep_import *import, void *to);

void *ep_import_get(const ep_import *import);

#endif
