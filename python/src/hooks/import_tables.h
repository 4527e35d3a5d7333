/* Functions that loaded objects import from other objects, replaced in a running process and given back.
 *
 * An ELF object calls what it imports by a slot of its own (JMPREL and RELA entries with a symbol). A slot
 * that is changed leads its object's calls to the replacement; calls inside of the exporting object, and
 * pointers that dlsym() gave, do not come here. ELF: System V ABI, chapter 5.
 *
 * Other tools change the same slots (memray's elf_shenanigans.cpp), in any order of start and stop:
 *   - a slot that leads to another tool is taken, and the replacement calls that tool (`below`);
 *   - a slot that another tool took from us stays with it; our replacement must then go on working for
 *     ever: it passes through while nothing is recorded, and the extension is never unloaded;
 *   - who writes the exported function into our slot (as memray does at its stop) takes it from us until
 *     the next ep_py_swaps_put(). */
#ifndef EP_IMPORT_TABLES_H
#define EP_IMPORT_TABLES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ep_py_swap {
    const char *name;
    void *replacement;
    bool interpreter_only;      /* only slots of the object that has the interpreter */
    _Atomic(void *) below;      /* what the replacement has to call; NULL: no slot was ever changed */
    void *exported;             /* the function; NULL: nobody has one */
    void *usual;                /* where a slot leads that no tool changed */
    const void *exporter[2];    /* begin and end of the object that has it */
} ep_py_swap;

/* A slot that leads to one of the functions, in import_tables.c. */
typedef struct ep_py_swap_place ep_py_swap_place;

/* Functions, and the slots that lead to them. Set `all` and `count`; the rest is zero. */
typedef struct ep_py_swaps {
    ep_py_swap *all;
    size_t count;
    ep_py_swap_place *places;    /* found again only if objects were loaded or unloaded: to look for them
                                  * takes some 300 us */
    size_t place_count, capacity;
    uint64_t changes;            /* of the loaded objects, when the places were found */
    uint64_t begins;             /* bits: how the names begin */
    const void *interpreter;     /* an address of its object */
} ep_py_swaps;

/* What a replacement has to call. Acquire; pairs with the release in ep_py_swaps_put(). That a slot leads
 * to the replacement orders nothing on aarch64: a processor may have read `below` ahead, as NULL. */
static inline void *
ep_py_swap_below(const ep_py_swap *swap)
{
    void *below;
    do {
        below = atomic_load_explicit(&swap->below, memory_order_acquire);
    } while (below == NULL);
    return below;
}

/* Changes the slots of all loaded objects but the C library, the loader and this extension; those that lead
 * to the replacement already stay. Once more after an object was loaded. One thread at a time. Returns: how
 * many slots lead to replacements now; 0 where tables cannot be changed. */
size_t ep_py_swaps_put(ep_py_swaps *of);

/* Slots that still lead to a replacement lead to what is below it again. `below` stays: calls that are on
 * their way need it. */
void ep_py_swaps_take_back(ep_py_swaps *of);

/* How often objects were loaded or unloaded, ever. */
uint64_t ep_py_objects_changes(void);

#endif
