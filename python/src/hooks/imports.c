#include "imports.h"

#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef __x86_64__
#define IS_SLOT(type) ((type) == R_X86_64_JUMP_SLOT || (type) == R_X86_64_GLOB_DAT)
#else
#define IS_SLOT(type) ((type) == R_AARCH64_JUMP_SLOT || (type) == R_AARCH64_GLOB_DAT)
#endif

/* What an image's dynamic section says; pointers are into the image. */
typedef struct tables {
    const char *strings;
    const ElfW(Sym) * symbols;
    const ElfW(Rela) * relocations[2];
    size_t relocation_bytes[2];
} tables;

/* glibc has added the base already, musl has not. */
static const void *
in_image(const struct link_map *map, ElfW(Addr) address)
{
    return (const void *)(address < map->l_addr ? map->l_addr + address : address);
}

static tables
read_tables(const struct link_map *map)
{
    tables found = {.strings = NULL};
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        switch (entry->d_tag) {
            case DT_STRTAB:   found.strings = in_image(map, entry->d_un.d_ptr); break;
            case DT_SYMTAB:   found.symbols = in_image(map, entry->d_un.d_ptr); break;
            case DT_RELA:     found.relocations[0] = in_image(map, entry->d_un.d_ptr); break;
            case DT_RELASZ:   found.relocation_bytes[0] = entry->d_un.d_val; break;
            case DT_JMPREL:   found.relocations[1] = in_image(map, entry->d_un.d_ptr); break;
            case DT_PLTRELSZ: found.relocation_bytes[1] = entry->d_un.d_val; break;
            default:          break;
        }
    }
    return found;
}

typedef struct protection {
    uintptr_t slot;
    bool read_only;
} protection;

static int
visit_image(struct dl_phdr_info *info, size_t info_bytes, void *context)
{
    protection *asked = context;
    (void)info_bytes;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_GNU_RELRO &&
            asked->slot - (info->dlpi_addr + part->p_vaddr) < part->p_memsz) {
            asked->read_only = true;
            return 1;
        }
    }
    return 0;
}

bool
ep_import_find(void *image, const char *function, ep_import *out)
{
    struct link_map *map;
    if (dlinfo(image, RTLD_DI_LINKMAP, &map) != 0) {
        return false;
    }
    tables linked = read_tables(map);
    for (int i = 0; i < 2 && linked.strings != NULL && linked.symbols != NULL; i++) {
        const ElfW(Rela) *at = linked.relocations[i];
        const ElfW(Rela) *end = at + linked.relocation_bytes[i] / sizeof *at;
        for (; at != NULL && at < end; at++) {
            const char *name = linked.strings + linked.symbols[ELF64_R_SYM(at->r_info)].st_name;
            if (!IS_SLOT(ELF64_R_TYPE(at->r_info)) || strcmp(name, function) != 0) {
                continue;
            }
            protection asked = {.slot = map->l_addr + at->r_offset};
            (void)dl_iterate_phdr(visit_image, &asked);
            *out = (ep_import){(_Atomic(void *) *)asked.slot, asked.read_only};
            return true;
        }
    }
    return false;
}

bool
ep_import_set(const ep_import *import, void *to)
{
    uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    void *page = (void *)((uintptr_t)import->slot & ~(page_bytes - 1));
    if (import->read_only && mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0) {
        return false;
    }
    atomic_store_explicit(import->slot, to, memory_order_release);
    if (import->read_only) {
        (void)mprotect(page, page_bytes, PROT_READ);
    }
    return true;
}

void *
ep_import_get(const ep_import *import)
{
    return atomic_load_explicit(import->slot, memory_order_acquire);
}

#else

bool
ep_import_find(void *image, const char *function, ep_import *out)
{
    (void)image;
    (void)function;
    (void)out;
    return false;
}

bool
ep_import_set(const ep_import *import, void *to)
{
    (void)import;
    (void)to;
    return false;
}

void *
ep_import_get(const ep_import *import)
{
    (void)import;
    return NULL;
}

#endif
