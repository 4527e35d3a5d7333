/* See import_tables.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE    /* dl_iterate_phdr, RTLD_NEXT */
#endif
#include "import_tables.h"

#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__)) && defined(__LP64__)

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "array.h"

#if defined(__x86_64__)
#define JUMP_SLOT R_X86_64_JUMP_SLOT
#define DATA_SLOT R_X86_64_GLOB_DAT
#elif defined(__aarch64__)
#define JUMP_SLOT R_AARCH64_JUMP_SLOT
#define DATA_SLOT R_AARCH64_GLOB_DAT
#endif

typedef _Atomic(void *) slot;

/* A loaded object. */
typedef struct object {
    const struct dl_phdr_info *info;
    const ElfW(Sym) * symbols;
    const char *texts;
    const ElfW(Rela) * entries[2];
    size_t counts[2];
    uintptr_t relro, relro_end;
} object;

struct ep_py_swap_place {
    slot *at;
    ep_py_swap *swap;
    const char *start, *end;    /* of the object */
    bool is_closed;             /* the loader made it read-only after it had filled it */
};

/* Where the program itself is, in the search for what exports the functions. */
typedef struct exporters {
    ep_py_swaps *of;
    uintptr_t program, program_bytes;    /* the first object */
} exporters;

/* The object's addresses, with what lies between its parts. */
static void
find_range(const struct dl_phdr_info *info, uintptr_t *start, uintptr_t *end)
{
    *start = *end = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t part_end = info->dlpi_addr + part->p_vaddr + part->p_memsz;
        *end = part->p_type == PT_LOAD && part_end > *end ? part_end : *end;
    }
}

static bool
has_address(const struct dl_phdr_info *info, const void *address)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        if (info->dlpi_phdr[i].p_type == PT_LOAD &&
            (uintptr_t)address - start < info->dlpi_phdr[i].p_memsz) {
            return true;
        }
    }
    return false;
}

/* What the dynamic section points to: glibc has relocated it for most objects, musl for none. */
static const void *
pointed_to(const struct dl_phdr_info *info, ElfW(Addr) at)
{
    return (const void *)(at < info->dlpi_addr ? info->dlpi_addr + at : at);
}

/* False: it imports nothing by name. */
static bool
read_object(const struct dl_phdr_info *info, object *to)
{
    const ElfW(Dyn) *dynamic = NULL;
    *to = (object){.info = info};
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_DYNAMIC) {
            dynamic = (const void *)(info->dlpi_addr + part->p_vaddr);
        } else if (part->p_type == PT_GNU_RELRO) {
            to->relro = info->dlpi_addr + part->p_vaddr;
            to->relro_end = to->relro + part->p_memsz;
        }
    }
    for (; dynamic != NULL && dynamic->d_tag != DT_NULL; dynamic++) {
        switch (dynamic->d_tag) {
            case DT_SYMTAB:   to->symbols = pointed_to(info, dynamic->d_un.d_ptr); break;
            case DT_STRTAB:   to->texts = pointed_to(info, dynamic->d_un.d_ptr); break;
            case DT_JMPREL:   to->entries[0] = pointed_to(info, dynamic->d_un.d_ptr); break;
            case DT_PLTRELSZ: to->counts[0] = dynamic->d_un.d_val / sizeof(ElfW(Rela)); break;
            case DT_RELA:     to->entries[1] = pointed_to(info, dynamic->d_un.d_ptr); break;
            case DT_RELASZ:   to->counts[1] = dynamic->d_un.d_val / sizeof(ElfW(Rela)); break;
            default:          break;
        }
    }
    return to->symbols != NULL && to->texts != NULL;
}

/* An object has thousands of names, of which a few are looked for: most differ in the first two letters. */
static inline uint64_t
begin_of(const char *name)
{
    unsigned first = (unsigned char)name[0], second = first != 0 ? (unsigned char)name[1] : 0;
    return UINT64_C(1) << ((first * 5 + second) & 63);
}

static void
add_place(ep_py_swaps *of, const object *found, ep_py_swap *swap, slot *at)
{
    if (!ep_grow((void **)&of->places, &of->capacity, of->place_count + 1, sizeof *of->places)) {
        return;
    }
    uintptr_t start = 0, end = 0;
    find_range(found->info, &start, &end);
    of->places[of->place_count++] =
        (ep_py_swap_place){.at = at,
                           .swap = swap,
                           .start = (const char *)start,
                           .end = (const char *)end,
                           .is_closed = (uintptr_t)at - found->relro < found->relro_end - found->relro};
}

static int
look_through_object(struct dl_phdr_info *info, size_t info_bytes, void *context)
{
    (void)info_bytes;
    ep_py_swaps *of = context;
    of->changes = info->dlpi_adds + info->dlpi_subs;
    object found;
    /* Itself; the kernel's own has no table of entries. */
    if (has_address(info, (const void *)(uintptr_t)look_through_object) || !read_object(info, &found)) {
        return 0;
    }
    bool is_interpreter = has_address(info, of->interpreter);
    for (int table = 0; table < 2; table++) {
        for (size_t i = 0; found.entries[table] != NULL && i < found.counts[table]; i++) {
            const ElfW(Rela) *entry = &found.entries[table][i];
            unsigned type = (unsigned)ELF64_R_TYPE(entry->r_info);
            size_t symbol = ELF64_R_SYM(entry->r_info);
            if (symbol == 0 || (type != JUMP_SLOT && type != DATA_SLOT)) {
                continue;
            }
            const char *name = found.texts + found.symbols[symbol].st_name;
            for (size_t k = 0; (of->begins & begin_of(name)) && k < of->count; k++) {
                ep_py_swap *swap = &of->all[k];
                if ((is_interpreter || !swap->interpreter_only) && swap->exported != NULL &&
                    strcmp(name, swap->name) == 0 && !has_address(info, swap->exported)) {
                    add_place(of, &found, swap, (slot *)(info->dlpi_addr + entry->r_offset));
                }
            }
        }
    }
    return 0;
}

/* Notes which object each function is in. */
static int
find_exporters(struct dl_phdr_info *info, size_t info_bytes, void *context)
{
    (void)info_bytes;
    exporters *e = context;
    uintptr_t start, end;
    find_range(info, &start, &end);
    if (e->program_bytes == 0) {
        e->program = start;
        e->program_bytes = end - start;
    }
    for (size_t k = 0; k < e->of->count; k++) {
        ep_py_swap *swap = &e->of->all[k];
        if (swap->exported != NULL && has_address(info, swap->exported)) {
            swap->exporter[0] = (const void *)start;
            swap->exporter[1] = (const void *)end;
        }
    }
    return 0;
}

/* Finds the functions, and the places by which they are called. */
static void
look_through_objects(ep_py_swaps *of)
{
    of->interpreter = dlsym(RTLD_DEFAULT, "Py_GetVersion");
    for (size_t i = 0; i < of->count; i++) {
        /* Not a preloaded library's. musl looks among what was loaded after this extension alone, which the
         * C library never was: there it is the first of all, be it a preloaded library's. */
        void *next = dlsym(RTLD_NEXT, of->all[i].name);
        of->all[i].exported = next != NULL ? next : dlsym(RTLD_DEFAULT, of->all[i].name);
        of->begins |= begin_of(of->all[i].name);
    }
    exporters e = {.of = of};
    (void)dl_iterate_phdr(find_exporters, &e);
    for (size_t i = 0; i < of->count; i++) {
        ep_py_swap *swap = &of->all[i];
        /* What a slot that was never used would lead to: a preloaded library's function, if there is one.
         * A program at a fixed address may give a stub that jumps by its own slot. */
        void *first = dlsym(RTLD_DEFAULT, swap->name);
        bool is_stub = (uintptr_t)first - e.program < e.program_bytes;
        swap->usual = first == NULL || is_stub ? swap->exported : first;
    }
    of->place_count = 0;
    (void)dl_iterate_phdr(look_through_object, of);
}

/* A read-only slot is writable for a moment. */
static bool
write_slot(const ep_py_swap_place *place, void *to)
{
    uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    void *page = (void *)((uintptr_t)place->at & ~(page_bytes - 1));
    if (place->is_closed && mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0) {
        return false;    /* a policy of the system forbids it */
    }
    atomic_store_explicit(place->at, to, memory_order_release);
    if (place->is_closed) {
        (void)mprotect(page, page_bytes, PROT_READ);
    }
    return true;
}

static bool
is_in_object(const ep_py_swap_place *place, const void *value)
{
    return (const char *)value >= place->start && (const char *)value < place->end;
}

/* What the replacements have to call: another tool's function, if slots lead there. The loader's stub for
 * the first call lies in the object itself; another version of a function in the object that exports it. */
static void
find_below(ep_py_swaps *of)
{
    for (size_t i = 0; i < of->count; i++) {
        /* Release; pairs with the acquire of a replacement that is called as soon as a slot is changed. */
        atomic_store_explicit(&of->all[i].below, of->all[i].usual, memory_order_release);
    }
    for (size_t i = 0; i < of->place_count; i++) {
        const ep_py_swap_place *place = &of->places[i];
        ep_py_swap *swap = place->swap;
        void *value = atomic_load_explicit(place->at, memory_order_relaxed);
        if (value != swap->replacement && !is_in_object(place, value) &&
            (value < swap->exporter[0] || value >= swap->exporter[1])) {
            atomic_store_explicit(&swap->below, value, memory_order_release);
        }
    }
}

static size_t
put(ep_py_swaps *of)
{
    size_t done = 0;
    find_below(of);
    for (size_t i = 0; i < of->place_count; i++) {
        const ep_py_swap_place *place = &of->places[i];
        ep_py_swap *swap = place->swap;
        void *value = atomic_load_explicit(place->at, memory_order_relaxed);
        /* Another version of the function is not ours to replace, nor is a second tool's. */
        bool is_usual = value == swap->exported || is_in_object(place, value) ||
                        value == atomic_load_explicit(&swap->below, memory_order_relaxed);
        done += value == swap->replacement || (is_usual && write_slot(place, swap->replacement));
    }
    return done;
}

static size_t
take_back(ep_py_swaps *of)
{
    for (size_t i = 0; i < of->place_count; i++) {
        const ep_py_swap_place *place = &of->places[i];
        if (atomic_load_explicit(place->at, memory_order_relaxed) == place->swap->replacement) {
            (void)write_slot(place, atomic_load_explicit(&place->swap->below, memory_order_relaxed));
        }
    }
    return 0;
}

/* What is done with all places while no object can be loaded or unloaded: the loader holds a lock. */
typedef struct visit {
    ep_py_swaps *of;
    size_t (*act)(ep_py_swaps *of);
    bool is_late;    /* objects were loaded or unloaded since the places were found */
    size_t done;
} visit;

static int
visit_places(struct dl_phdr_info *info, size_t info_bytes, void *context)
{
    (void)info_bytes;
    visit *v = context;
    v->is_late = v->of->places == NULL || info->dlpi_adds + info->dlpi_subs != v->of->changes;
    v->done = v->is_late ? 0 : v->act(v->of);
    return 1;
}

static size_t
visit_all(ep_py_swaps *of, size_t (*act)(ep_py_swaps *of))
{
    visit v = {.of = of, .act = act};
    (void)dl_iterate_phdr(visit_places, &v);
    for (int round = 0; v.is_late && round < 3; round++) {    /* other threads may load objects meanwhile */
        look_through_objects(of);
        (void)dl_iterate_phdr(visit_places, &v);
    }
    return v.done;
}

size_t
ep_py_swaps_put(ep_py_swaps *of)
{
    return visit_all(of, put);
}

void
ep_py_swaps_take_back(ep_py_swaps *of)
{
    (void)visit_all(of, take_back);
}

static int
read_changes(struct dl_phdr_info *info, size_t info_bytes, void *context)
{
    (void)info_bytes;
    *(uint64_t *)context = info->dlpi_adds + info->dlpi_subs;
    return 1;
}

uint64_t
ep_py_objects_changes(void)
{
    uint64_t changes = 0;
    (void)dl_iterate_phdr(read_changes, &changes);
    return changes;
}

#else

size_t
ep_py_swaps_put(ep_py_swaps *of)
{
    (void)of;
    return 0;
}

void
ep_py_swaps_take_back(ep_py_swaps *of)
{
    (void)of;
}

uint64_t
ep_py_objects_changes(void)
{
    return 0;
}

#endif
