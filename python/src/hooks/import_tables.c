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

/* One visit of all objects: what is looked for, and what is found. The loader holds a lock meanwhile, under
 * which dlsym() could wait for a thread that waits for this lock. */
typedef struct visit {
    ep_py_swap *swaps;
    size_t count;
    void (*at_slot)(struct visit *visit, const object *object, ep_py_swap *swap, slot *at);
    const void *interpreter;    /* an address of its object */
    uintptr_t program[2];       /* where the program itself is, and its length; the first object */
    size_t done;
} visit;

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

static int
visit_object(struct dl_phdr_info *info, size_t info_bytes, void *context)
{
    (void)info_bytes;
    visit *v = context;
    object found;
    /* Itself; the kernel's own has no table of entries. */
    if (has_address(info, (const void *)(uintptr_t)visit_object) || !read_object(info, &found)) {
        return 0;
    }
    bool is_interpreter = has_address(info, v->interpreter);
    for (int table = 0; table < 2; table++) {
        for (size_t i = 0; found.entries[table] != NULL && i < found.counts[table]; i++) {
            const ElfW(Rela) *entry = &found.entries[table][i];
            unsigned type = (unsigned)ELF64_R_TYPE(entry->r_info);
            size_t symbol = ELF64_R_SYM(entry->r_info);
            if (symbol == 0 || (type != JUMP_SLOT && type != DATA_SLOT)) {
                continue;
            }
            const char *name = found.texts + found.symbols[symbol].st_name;
            for (size_t k = 0; k < v->count; k++) {
                ep_py_swap *swap = &v->swaps[k];
                if ((is_interpreter || !swap->interpreter_only) && swap->exported != NULL &&
                    strcmp(name, swap->name) == 0 && !has_address(info, swap->exported)) {
                    v->at_slot(v, &found, swap, (slot *)(info->dlpi_addr + entry->r_offset));
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
    visit *v = context;
    uintptr_t end = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t part_end = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
        end = info->dlpi_phdr[i].p_type == PT_LOAD && part_end > end ? part_end : end;
    }
    if (v->program[1] == 0) {
        v->program[0] = info->dlpi_addr;
        v->program[1] = end - info->dlpi_addr;
    }
    for (size_t k = 0; k < v->count; k++) {
        if (v->swaps[k].exported != NULL && has_address(info, v->swaps[k].exported)) {
            v->swaps[k].exporter[0] = (const void *)info->dlpi_addr;
            v->swaps[k].exporter[1] = (const void *)end;
        }
    }
    return 0;
}

static size_t
visit_all(ep_py_swap *swaps, size_t count,
          void (*at_slot)(visit *v, const object *object, ep_py_swap *swap, slot *at))
{
    visit v = {.swaps = swaps, .count = count, .at_slot = at_slot};
    v.interpreter = dlsym(RTLD_DEFAULT, "Py_GetVersion");
    (void)dl_iterate_phdr(visit_object, &v);
    return v.done;
}

/* What the loader made read-only after it had filled it is writable for a moment. */
static bool
write_slot(const object *of, slot *at, void *to)
{
    uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE), place = (uintptr_t)at;
    void *page = (void *)(place & ~(page_bytes - 1));
    bool is_closed = place - of->relro < of->relro_end - of->relro;
    if (is_closed && mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0) {
        return false;    /* a policy of the system forbids it */
    }
    atomic_store_explicit(at, to, memory_order_release);
    if (is_closed) {
        (void)mprotect(page, page_bytes, PROT_READ);
    }
    return true;
}

/* Whether a slot's value is not what the loader put there: another tool's function. */
static bool
is_foreign(const object *of, const ep_py_swap *swap, const void *value)
{
    /* The loader's stub for the first call lies in the object itself; another version of a function in the
     * object that exports it. */
    return !has_address(of->info, value) &&
           (value < swap->exporter[0] || value >= swap->exporter[1]);
}

static void
find_below(visit *v, const object *of, ep_py_swap *swap, slot *at)
{
    (void)v;
    void *value = atomic_load_explicit(at, memory_order_relaxed);
    if (value != swap->replacement && is_foreign(of, swap, value)) {
        atomic_store_explicit(&swap->below, value, memory_order_release);
    }
}

static void
put(visit *v, const object *of, ep_py_swap *swap, slot *at)
{
    void *value = atomic_load_explicit(at, memory_order_relaxed);
    void *below = atomic_load_explicit(&swap->below, memory_order_relaxed);
    if (value == swap->replacement) {
        v->done += 1;
        return;
    }
    /* Another version of the function is not ours to replace, nor is a second tool's. */
    bool is_usual = value == swap->exported || value == below || has_address(of->info, value);
    if (is_usual && write_slot(of, at, swap->replacement)) {
        v->done += 1;
    }
}

size_t
ep_py_swaps_put(ep_py_swap *swaps, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        swaps[i].exported = dlsym(RTLD_NEXT, swaps[i].name);
    }
    visit exporters = {.swaps = swaps, .count = count};
    (void)dl_iterate_phdr(find_exporters, &exporters);
    for (size_t i = 0; i < count; i++) {
        /* What a slot that was never used would lead to: a preloaded library's function, if there is one.
         * A program at a fixed address may give a stub that jumps by its own slot. */
        void *first = dlsym(RTLD_DEFAULT, swaps[i].name);
        bool is_stub = (uintptr_t)first - exporters.program[0] < exporters.program[1];
        /* Release; pairs with the acquire of a replacement that is called as soon as a slot is changed. */
        atomic_store_explicit(&swaps[i].below, first == NULL || is_stub ? swaps[i].exported : first,
                              memory_order_release);
    }
    (void)visit_all(swaps, count, find_below);
    return visit_all(swaps, count, put);
}

static void
take_back(visit *v, const object *of, ep_py_swap *swap, slot *at)
{
    if (atomic_load_explicit(at, memory_order_relaxed) == swap->replacement &&
        write_slot(of, at, atomic_load_explicit(&swap->below, memory_order_relaxed))) {
        v->done += 1;
    }
}

void
ep_py_swaps_take_back(ep_py_swap *swaps, size_t count)
{
    (void)visit_all(swaps, count, take_back);
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
ep_py_swaps_put(ep_py_swap *swaps, size_t count)
{
    (void)swaps;
    (void)count;
    return 0;
}

void
ep_py_swaps_take_back(ep_py_swap *swaps, size_t count)
{
    (void)swaps;
    (void)count;
}

uint64_t
ep_py_objects_changes(void)
{
    return 0;
}

#endif
