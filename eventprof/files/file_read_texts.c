/* The texts of a log file: its names and sites become ids of this process. */
#include <inttypes.h>
#include <string.h>

#include "file_read_parts.h"
#include "array.h"
#include "memory.h"

/* Texts that found no room leave gaps in the ids. */
#define GAP_MAX 65536

/* Makes room for index `id` in a table. Ids are dense: an id that is larger than the number of texts that
 * fit into the file is damage. */
static bool
reach_id(const ep_loader *l, void **table, size_t *count, size_t *capacity, uint32_t id, size_t size)
{
    if (id > l->text_bytes / 16 + GAP_MAX ||
        !ep_grow(table, capacity, (size_t)id + 1, size)) {
        return false;
    }
    *count = id >= *count ? (size_t)id + 1 : *count;
    return true;
}

/* Length of the character there; 0: there is none. UTF-8, with surrogates as three bytes. */
static size_t
character_bytes(const unsigned char *at, size_t left)
{
    static const uint32_t lowest[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t bytes = at[0] < 0x80 ? 1 : at[0] >> 5 == 6 ? 2
                                  : at[0] >> 4 == 14  ? 3
                                  : at[0] >> 3 == 30  ? 4
                                                      : 0;
    if (bytes < 2 || bytes > left) {
        return bytes < 2 ? bytes : 0;
    }
    uint32_t code = at[0] & (0x7Fu >> bytes);
    for (size_t i = 1; i < bytes; i++) {
        if (at[i] >> 6 != 2) {
            return 0;
        }
        code = code << 6 | (at[i] & 63);
    }
    return code >= lowest[bytes] && code <= 0x10FFFF ? bytes : 0;
}

/* Makes valid UTF-8 of a text of a file: a long text may be cut within a character, and a damaged one may
 * hold any bytes. */
static void
mend_text(char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        size_t length = character_bytes((unsigned char *)text + at, bytes - at);
        if (length == 0) {
            text[at] = '?';
            length = 1;
        }
        at += length;
    }
}

/* Of its low and its high half. */
static int64_t
get_int64(const uint32_t *fields, size_t at)
{
    return (int64_t)(fields[at] | (uint64_t)fields[at + 1] << 32);
}

static void
read_text_record(ep_loader *l, uint32_t type, uint32_t *fields, size_t bytes)
{
    uint32_t id = fields[0];
    char *tail;
    switch (type) {
        case EP_FILE_TEXT_STRING:
            tail = (char *)(fields + 2);
            if (bytes >= 8 && fields[1] <= bytes - 8 &&
                reach_id(l, (void **)&l->strings, &l->string_count, &l->string_capacity, id,
                         sizeof *l->strings)) {
                mend_text(tail, fields[1]);
                l->strings[id] = (ep_text){tail, fields[1]};
            }
            break;
        case EP_FILE_TEXT_NAME:
            if (bytes >= 24 && fields[5] < EP_NAME_KIND_COUNT &&
                reach_id(l, (void **)&l->names, &l->name_count, &l->name_capacity, id,
                         sizeof *l->names)) {
                l->names[id] = (ep_read_name){fields[1], fields[2], fields[3], (int32_t)fields[4],
                                              fields[5], true};
            }
            break;
        case EP_FILE_TEXT_SITE:
            if (bytes >= 20 && reach_id(l, (void **)&l->sites, &l->site_count, &l->site_capacity, id,
                                        sizeof *l->sites)) {
                l->sites[id] = (ep_read_site){fields[1], fields[2], (int32_t)fields[3],
                                              (int32_t)fields[4], bytes >= 24 ? fields[5] : 0, true};
            }
            break;
        case EP_FILE_TEXT_THREAD:
            tail = (char *)(fields + 4);
            if (bytes >= 16 && fields[1] <= bytes - 16) {
                uint32_t small = ep_loader_thread_id(l, id);
                ep_thread *thread = &l->threads[small];
                if (small != 0) {
                    thread->native_id = fields[2] | (uint64_t)fields[3] << 32;
                    if (fields[1] > 0 && fields[1] < EP_THREAD_NAME_BYTES) {
                        mend_text(tail, fields[1]);
                        memcpy(thread->name, tail, fields[1]);
                        thread->name[fields[1]] = 0;
                        atomic_store_explicit(&thread->named, true, memory_order_relaxed);
                    }
                }
            }
            break;
        case EP_FILE_TEXT_RESIDENT:
            if (bytes >= 24 && ep_grow((void **)&l->resident, &l->resident_capacity, l->resident_count + 1,
                                       sizeof *l->resident)) {
                l->resident[l->resident_count++] =
                    (ep_resident){get_int64(fields, 0), get_int64(fields, 2), get_int64(fields, 4)};
            }
            break;
        default:
            break;    /* of a later version */
    }
}

void
ep_loader_read_texts(ep_loader *l)
{
    for (size_t i = 0; i < l->text_count; i++) {
        ep_chunk_header *header = l->texts[i];
        uint64_t *at = (uint64_t *)(header + 1), *end = at + ep_chunk_words(header);
        while (at < end && *at != 0) {
            uint64_t words = (uint32_t)*at;
            if (words < 2 || words > (uint64_t)(end - at)) {
                ep_reader_note(l->reader, "names: a record of %" PRIu64 " words cannot be", words);
                break;
            }
            read_text_record(l, (uint32_t)(*at >> 32), (uint32_t *)(at + 1), (words - 1) * 8);
            at += words;
        }
    }
}

/* ---- Ids of this process --------------------------------------------------------------------- */

static ep_text
string_of(const ep_loader *l, uint32_t id)
{
    return id < l->string_count ? l->strings[id] : (ep_text){NULL, 0};
}

/* "<string>" and "<stdin>" name no file: code of many modules has them. "<frozen NAME>" does, because each
 * frozen module has its own. */
static bool
is_no_file(ep_text name)
{
    static const char frozen[] = "<frozen ";
    return name.bytes > 0 && name.at[0] == '<' &&
           (name.bytes < sizeof frozen - 1 || memcmp(name.at, frozen, sizeof frozen - 1) != 0);
}

/* Code that only an allocator hook has seen has no module; it gets that of other code in its file. */
static void
complete_modules(ep_loader *l)
{
    uint32_t *module_of_file = ep_realloc(NULL, l->string_count + 1, sizeof *module_of_file);
    if (module_of_file == NULL) {
        return;
    }
    memset(module_of_file, 0xFF, (l->string_count + 1) * sizeof *module_of_file);
    for (size_t i = 0; i < l->name_count; i++) {
        const ep_read_name *name = &l->names[i];
        if (name->known && name->file < l->string_count && name->module < l->string_count &&
            !is_no_file(string_of(l, name->file))) {
            module_of_file[name->file] = name->module;
        }
    }
    for (size_t i = 0; i < l->name_count; i++) {
        ep_read_name *name = &l->names[i];
        if (name->known && name->file < l->string_count && name->module >= l->string_count) {
            name->module = module_of_file[name->file];
        }
    }
    free(module_of_file);
}

ep_status
ep_loader_map_ids(ep_loader *l)
{
    complete_modules(l);
    ep_status status = ep_file_ids_open(&l->ids);
    for (size_t i = 1; i < l->name_count && status == EP_OK; i++) {
        const ep_read_name *from = &l->names[i];
        ep_name_text text = {
            .qualname = string_of(l, from->qualname),
            .module = string_of(l, from->module),
            .file = string_of(l, from->file),
            .line = from->line,
            .kind = (ep_name_kind)from->kind,
        };
        status = from->known ? ep_file_ids_put_name(&l->ids, (uint32_t)i, &text) : EP_OK;
    }
    for (size_t i = 1; i < l->site_count && status == EP_OK; i++) {
        const ep_read_site *from = &l->sites[i];
        ep_site site = {
            .callee = from->callee,
            .caller = from->caller,
            .offset = from->offset,
            .line = from->line,
            .task = from->task != 0 ? ep_string_add(string_of(l, from->task - 1)) + 1 : 0,
        };
        status = from->known ? ep_file_ids_put_site(&l->ids, (uint32_t)i, &site) : EP_OK;
    }
    return status;
}

/* An id that has not been met, or means nothing. *here: this process's. */
static EP_COLD EP_CHECKED ep_status
meet_id(ep_loader *l, bool is_name, uint32_t id, ep_functions_builder *functions, uint32_t *here)
{
    const ep_id_table *table = is_name ? &l->ids.names : &l->ids.sites;
    *here = ep_id_here(table, id);
    l->unknown_ids += *here == 0 && id != 0;
    if (*here != 0) {
        l->met[is_name ? id : l->ids.names.count + id] = *here;
    }
    return functions != NULL ? ep_functions_add_id(functions, is_name, *here) : EP_OK;
}

/* HOT, 1 ns a row. */
ep_status
ep_loader_translate_rows(ep_loader *l, ep_columns *c, size_t from, ep_functions_builder *functions)
{
    const size_t names = l->ids.names.count, sites = l->ids.sites.count;
    if (l->met == NULL && (l->met = ep_calloc(names + sites, sizeof *l->met)) == NULL) {
        return EP_NOMEM;
    }
    struct {
        uint32_t *ids;
        size_t count;
    } met[EP_KIND_COUNT];
    for (unsigned kind = 0; kind < EP_KIND_COUNT; kind++) {
        met[kind].ids = ep_kind_has_name(kind) ? l->met : l->met + names;
        met[kind].count = ep_kind_has_name(kind) ? names : sites;
    }
    for (size_t row = from, end; row < c->count;) {
        for (end = ep_column_part(row, c->count); row < end; row++) {
            unsigned kind = c->kind[row];
            uint32_t id = c->id[row], here = EP_LIKELY(id < met[kind].count) ? met[kind].ids[id] : 0;
            if (EP_UNLIKELY(here == 0)) {
                ep_status status = meet_id(l, ep_kind_has_name(kind), id, functions, &here);
                if (status != EP_OK) {
                    return status;
                }
            }
            c->id[row] = here;
        }
    }
    return EP_OK;
}

void
ep_loader_translate_window(ep_loader *l)
{
    for (size_t i = 0; i < l->window_count; i++) {
        ep_open_stack *open = &l->window[i].open;
        for (size_t k = 0; k < open->depth; k++) {
            open->calls[k].site_id = ep_id_here(&l->ids.sites, open->calls[k].site_id);
        }
    }
}
