/* Through which word of memory a loaded image calls a function that other images may define: the
 * linker's table of imports. Whoever changes the word is called instead, and the image's callers know
 * nothing of it. */
#ifndef EP_IMPORTS_H
#define EP_IMPORTS_H

#include <stdatomic.h>
#include <stdbool.h>

typedef struct ep_import {
    _Atomic(void *) *slot;
    bool read_only;    /* the linker protected its page (RELRO) */
} ep_import;

/* image: from dlopen(). Returns: false where the image does not call it so, or the system has no such
 * tables. */
bool ep_import_find(void *image, const char *function, ep_import *out);

/* Returns: false if the page cannot be written; nothing changed then. */
bool ep_import_set(const ep_import *import, void *to);

void *ep_import_get(const ep_import *import);

#endif
