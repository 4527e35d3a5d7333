/* The interface between the shim, which is called instead of the C library's allocator in the whole
 * process, and the extension, which may be loaded later or never.
 *
 * The shim exports one object of this type, EP_SHIM_SYMBOL. It has only the allocator below and the
 * hooks to call. While nothing records it costs a load and a branch a call. */
#ifndef EP_SHIM_H
#define EP_SHIM_H

#include <stdatomic.h>
#include <stddef.h>

#define EP_SHIM_SYMBOL "eventprof_shim"
#define EP_SHIM_VERSION 1

typedef enum ep_shim_pages {
    EP_SHIM_PAGES_ANEW,      /* tell: `to` NULL: the system gave none */
    EP_SHIM_PAGES_MOVE,
    EP_SHIM_PAGES_MOVED_NOT
} ep_shim_pages;

/* `caller`: where the program's call returns to.
 *
 * The first four are calls that the hook makes in the program's place: it calls `below`. The others are
 * around a call that the shim makes: `ask` first, then the call, then `tell` unless `ask` gave NULL. */
typedef struct ep_shim_hooks {
    void *(*malloc)(size_t size, const void *caller);
    void *(*calloc)(size_t count, size_t size, const void *caller);
    void *(*realloc)(void *old, size_t size, const void *caller);
    void (*free)(void *block, const void *caller);
    /* Aligned blocks. */
    void *(*ask)(const void *caller);
    void (*tell)(void *asked, void *block, size_t size);
    /* Pages: `from` is unmapped or moved (NULL: nothing is); `to` is the new mapping, or the old place. */
    void *(*ask_pages)(void *from, size_t bytes, ep_shim_pages how, const void *caller);
    void (*tell_pages)(void *asked, void *to, size_t bytes, ep_shim_pages how);
} ep_shim_hooks;

typedef struct ep_shim_below {
    void *(*malloc)(size_t size);
    void *(*calloc)(size_t count, size_t size);
    void *(*realloc)(void *old, size_t size);
    void (*free)(void *block);
} ep_shim_below;

typedef struct ep_shim {
    unsigned version;                       /* EP_SHIM_VERSION */
    ep_shim_below below;                    /* constant once Python runs */
    const ep_shim_hooks *_Atomic hooks;     /* NULL: nobody records. What it points to is immortal */
} ep_shim;

#endif
