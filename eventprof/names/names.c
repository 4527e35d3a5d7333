#include "names.h"

#include <string.h>

#include "hash.h"
#include "hash_index.h"
#include "invariants.h"
#include "memory.h"
#include "os.h"

/* Entries are in pages that never move, so that readers need no lock. */
#define PAGE_BITS 12
#define PAGE_ENTRIES (1u << PAGE_BITS)
#define PAGE_COUNT ((EP_PAYLOAD_MAX >> PAGE_BITS) + 1)
#define FIRST_KEYS 1024
#define SLOTS_PER_KEY 4
#define ARENA_BYTES 65536

typedef struct pages {
    void *at[PAGE_COUNT];
    size_t entry_bytes;
    _Atomic size_t count;    /* entries below it are complete: stored with release after they were
                              * written */
} pages;

typedef struct string_entry {
    const char *at;
    uint32_t bytes;
    uint32_t hash;
} string_entry;

_Atomic(ep_index *) ep_name_index, ep_site_index;

/* In a child of a bare system call another thread may have had it: functions fail there as without
 * memory. */
static ep_mutex lock = EP_MUTEX_INIT;
#define LOCKED EP_REQUIRES(lock)
#define TAKES_LOCK EP_ACQUIRES(lock)
#define GIVES_LOCK EP_RELEASES(lock)
static pages names = {.entry_bytes = sizeof(ep_name)};
static pages sites = {.entry_bytes = sizeof(ep_site)};
static pages strings = {.entry_bytes = sizeof(string_entry)};
static ep_hash_index strings_by_text EP_GUARDED_BY(lock);
static char *arena EP_GUARDED_BY(lock);
static size_t arena_left EP_GUARDED_BY(lock);
static _Atomic size_t bytes_held;

static void *
hold(size_t count, size_t size)
{
    void *block = ep_calloc(count, size);
    if (block != NULL) {
        atomic_fetch_add_explicit(&bytes_held, count * size, memory_order_relaxed);
    }
    return block;
}

static void *
entry_at(const pages *holder, size_t id)
{
    return (char *)holder->at[id >> PAGE_BITS] + (id & (PAGE_ENTRIES - 1)) * holder->entry_bytes;
}

static size_t
entry_count(const pages *holder)
{
    return atomic_load_explicit(&holder->count, memory_order_acquire);
}

/* Room for one more at index count. Fails: NULL (no memory, or no ids left). */
static LOCKED void *
next_entry(pages *holder)
{
    size_t id = atomic_load_explicit(&holder->count, memory_order_relaxed);
    if (id > EP_PAYLOAD_MAX) {
        return NULL;
    }
    void **page = &holder->at[id >> PAGE_BITS];
    if (*page == NULL && (*page = hold(PAGE_ENTRIES, holder->entry_bytes)) == NULL) {
        return NULL;
    }
    return entry_at(holder, id);
}

/* Makes the entry that next_entry() gave visible. Returns: its id. */
static LOCKED uint32_t
publish_entry(pages *holder)
{
    return (uint32_t)atomic_fetch_add_explicit(&holder->count, 1, memory_order_release);
}

/* ---- Index ----------------------------------------------------------------------------------- */

static void
release(void *block, size_t count, size_t size)
{
    if (block != NULL) {
        atomic_fetch_sub_explicit(&bytes_held, count * size, memory_order_relaxed);
        free(block);
    }
}

/* Only for an index that no reader has seen. */
static void
free_index(ep_index *index)
{
    if (index != NULL) {
        release(index->keys, index->capacity, sizeof *index->keys);
        release(index->slots, index->mask + 1, sizeof *index->slots);
        release(index, 1, sizeof *index);
    }
}

static ep_index *
new_index(size_t capacity)
{
    ep_index *index = hold(1, sizeof *index);
    if (index == NULL) {
        return NULL;
    }
    index->capacity = capacity;
    index->mask = capacity * SLOTS_PER_KEY - 1;
    index->keys = hold(capacity, sizeof *index->keys);
    index->slots = hold(index->mask + 1, sizeof *index->slots);
    if (index->keys == NULL || index->slots == NULL) {
        free_index(index);
        return NULL;
    }
    return index;
}

static void
insert_key(ep_index *index, uint32_t id, uintptr_t a, uintptr_t b)
{
    atomic_store_explicit(&index->keys[id].a, a, memory_order_relaxed);
    atomic_store_explicit(&index->keys[id].b, b, memory_order_relaxed);
    size_t slot = ep_key_hash(a, b);
    while (atomic_load_explicit(&index->slots[slot & index->mask], memory_order_relaxed) != 0) {
        slot++;
    }
    /* Release; pairs with the acquire in ep_index_find(). */
    atomic_store_explicit(&index->slots[slot & index->mask], id, memory_order_release);
}

/* A retired key matches no address: objects are aligned, and a tag is small. */
#define RETIRED ((uintptr_t)1)

/* Room for a key of `id`. Fails: NULL. */
static LOCKED ep_index *
index_with_room(_Atomic(ep_index *) *holder, uint32_t id)
{
    ep_index *old = atomic_load_explicit(holder, memory_order_relaxed);
    if (id < old->capacity) {
        return old;
    }
    ep_index *index = new_index(old->capacity * 2);
    if (index == NULL) {
        return NULL;
    }
    index->older = old;
    for (uint32_t i = 1; i < old->capacity; i++) {
        uintptr_t a = atomic_load_explicit(&old->keys[i].a, memory_order_relaxed);
        uintptr_t b = atomic_load_explicit(&old->keys[i].b, memory_order_relaxed);
        if (a != RETIRED) {
            insert_key(index, i, a, b);
        }
    }
    atomic_store_explicit(holder, index, memory_order_release);
    return index;
}

/* ---- Strings --------------------------------------------------------------------------------- */

static uint32_t
hash_text(ep_text text)
{
    uint64_t hash = ep_hash_bytes(EP_HASH_EMPTY, text.at, text.bytes);
    return (uint32_t)(hash ^ hash >> 32);
}

static uint64_t
hash_of_string(const void *entries, size_t id)
{
    return ((const string_entry *)entry_at(entries, id))->hash;
}

/* key: a string_entry. */
static bool
has_text(const void *entries, size_t id, const void *key)
{
    const string_entry *entry = entry_at(entries, id), *wanted = key;
    return entry->hash == wanted->hash && entry->bytes == wanted->bytes &&
           memcmp(entry->at, wanted->at, wanted->bytes) == 0;
}

/* Room in the index for one more string. Fails: false. */
static LOCKED bool
reserve_string(void)
{
    size_t before = ep_hash_index_bytes(&strings_by_text);
    bool has_room = ep_hash_index_reserve(&strings_by_text, hash_of_string, &strings);
    atomic_fetch_add_explicit(&bytes_held, ep_hash_index_bytes(&strings_by_text) - before,
                              memory_order_relaxed);
    return has_room;
}

static LOCKED char *
copy_text(ep_text text)
{
    if (text.bytes > arena_left) {
        size_t bytes = text.bytes > ARENA_BYTES / 8 ? text.bytes : ARENA_BYTES;
        char *fresh = hold(bytes, 1);
        if (fresh == NULL) {
            return NULL;
        }
        if (bytes != ARENA_BYTES) {
            memcpy(fresh, text.at, text.bytes);
            return fresh;    /* a block of its own; the current arena stays in use */
        }
        arena = fresh;
        arena_left = bytes;
    }
    char *at = arena;
    memcpy(at, text.at, text.bytes);
    arena += text.bytes;
    arena_left -= text.bytes;
    return at;
}

_Atomic(const ep_names_sink *) ep_names_sink_now;

/* A log file gets a text before any record that refers to it can be written. */
static void
tell_string(uint32_t id)
{
    const ep_names_sink *sink = atomic_load_explicit(&ep_names_sink_now, memory_order_relaxed);
    if (EP_UNLIKELY(sink != NULL)) {
        sink->string(id, ep_string_get(id));
    }
}

static void
tell_name(uint32_t id)
{
    const ep_names_sink *sink = atomic_load_explicit(&ep_names_sink_now, memory_order_relaxed);
    if (EP_UNLIKELY(sink != NULL)) {
        sink->name(id, ep_name_get(id));
    }
}

static void
tell_site(uint32_t id)
{
    const ep_names_sink *sink = atomic_load_explicit(&ep_names_sink_now, memory_order_relaxed);
    if (EP_UNLIKELY(sink != NULL)) {
        sink->site(id, ep_site_get(id));
    }
}

/* Fails: EP_STRING_NONE. */
static LOCKED uint32_t
intern_string(ep_text text)
{
    if (text.at == NULL || text.bytes > UINT32_MAX) {
        return EP_STRING_NONE;
    }
    if (!reserve_string()) {
        return EP_STRING_NONE;
    }
    string_entry wanted = {.at = text.at, .bytes = (uint32_t)text.bytes, .hash = hash_text(text)};
    uint32_t *slot =
        ep_hash_index_slot(&strings_by_text, wanted.hash, has_text, &strings, &wanted);
    if (*slot != 0) {
        return *slot - 1;
    }
    string_entry *entry = next_entry(&strings);
    char *copy = text.bytes ? copy_text(text) : (char *)"";
    if (entry == NULL || copy == NULL) {
        return EP_STRING_NONE;
    }
    *entry = (string_entry){.at = copy, .bytes = wanted.bytes, .hash = wanted.hash};
    uint32_t id = publish_entry(&strings);
    ep_hash_index_add(&strings_by_text, slot, id);
    tell_string(id);
    return id;
}

uint32_t
ep_string_add(ep_text text)
{
    if (!ep_os_lock(&lock)) {
        return EP_STRING_NONE;
    }
    uint32_t id = intern_string(text);
    ep_mutex_unlock(&lock);
    return id;
}

ep_text
ep_string_get(uint32_t id)
{
    if (id == EP_STRING_NONE || id >= entry_count(&strings)) {
        return (ep_text){NULL, 0};
    }
    const string_entry *entry = entry_at(&strings, id);
    return (ep_text){entry->at, entry->bytes};
}

size_t
ep_string_count(void)
{
    return entry_count(&strings);
}

/* ---- Names and sites ------------------------------------------------------------------------- */

/* Not checked: no other thread asks for names yet. */
EP_NOT_CHECKED ep_status
ep_names_init(void)
{
    if (atomic_load_explicit(&ep_site_index, memory_order_relaxed) != NULL) {
        return EP_OK;
    }
    ep_index *of_names = new_index(FIRST_KEYS), *of_sites = new_index(FIRST_KEYS);
    ep_name *no_name = next_entry(&names);
    ep_site *no_site = next_entry(&sites);
    if (of_names == NULL || of_sites == NULL || no_name == NULL || no_site == NULL) {
        free_index(of_names);
        free_index(of_sites);
        return EP_NOMEM;
    }
    *no_name = (ep_name){.qualname = EP_STRING_NONE,
                         .module = EP_STRING_NONE,
                         .file = EP_STRING_NONE,
                         .line = -1};
    *no_site = (ep_site){.offset = -1, .line = -1};
    publish_entry(&names);
    publish_entry(&sites);
    atomic_store_explicit(&ep_name_index, of_names, memory_order_release);
    atomic_store_explicit(&ep_site_index, of_sites, memory_order_release);
    return EP_OK;
}

static LOCKED void
describe(ep_name *name, const ep_name_text *text)
{
    name->qualname = intern_string(text->qualname);
    name->module = intern_string(text->module);
    name->file = intern_string(text->file);
    name->line = text->line;
    name->kind = (uint8_t)text->kind;
    name->pending = false;
}

uint32_t
ep_name_add(uintptr_t key, uintptr_t tag, const ep_name_text *text, void *object, bool *existed)
{
    if (existed != NULL) {
        *existed = false;
    }
    if (!ep_os_lock(&lock)) {
        return 0;
    }
    uint32_t id = ep_name_find(key, tag);
    if (existed != NULL) {
        *existed = id != 0;
    }
    if (id == 0) {
        ep_name *name = next_entry(&names);
        ep_index *index = index_with_room(&ep_name_index, (uint32_t)entry_count(&names));
        if (name != NULL && index != NULL) {
            *name = (ep_name){.qualname = EP_STRING_NONE,
                              .module = EP_STRING_NONE,
                              .file = EP_STRING_NONE,
                              .line = -1,
                              .pending = true,
                              .object = object};
            if (text != NULL) {
                describe(name, text);
            }
            EP_FAULT_POINT(INTERN);
            id = publish_entry(&names);
            tell_name(id);
            EP_FAULT_POINT(INTERNED);
            insert_key(index, id, key, tag);
        }
    }
    ep_mutex_unlock(&lock);
    return id;
}

void
ep_name_describe(uint32_t id, const ep_name_text *text)
{
    if (!ep_os_lock(&lock)) {
        return;
    }
    ep_name *name = entry_at(&names, id);
    if (name->pending) {
        describe(name, text);
        tell_name(id);
    }
    ep_mutex_unlock(&lock);
}

void
ep_name_sketch(uint32_t id, const ep_name_text *text)
{
    if (!ep_os_lock(&lock)) {
        return;
    }
    ep_name *name = entry_at(&names, id);
    if (name->pending) {
        describe(name, text);
        name->pending = true;
        tell_name(id);
    }
    ep_mutex_unlock(&lock);
}

void
ep_name_retire(uint32_t id)
{
    if (!ep_os_lock(&lock)) {
        return;
    }
    ep_index *index = atomic_load_explicit(&ep_name_index, memory_order_relaxed);
    atomic_store_explicit(&index->keys[id].a, RETIRED, memory_order_relaxed);
    ep_mutex_unlock(&lock);
}

void *
ep_name_take_object(uint32_t id)
{
    if (!ep_os_lock(&lock)) {
        return NULL;
    }
    ep_name *name = entry_at(&names, id);
    void *object = name->object;
    name->object = NULL;
    ep_mutex_unlock(&lock);
    return object;
}

uint32_t
ep_site_add(uintptr_t callee, uintptr_t instruction, const ep_site *site)
{
    if (!ep_os_lock(&lock)) {
        return 0;
    }
    uint32_t id = ep_site_find(callee, instruction);
    if (id == 0) {
        ep_site *entry = next_entry(&sites);
        ep_index *index = index_with_room(&ep_site_index, (uint32_t)entry_count(&sites));
        if (entry != NULL && index != NULL) {
            *entry = *site;
            EP_FAULT_POINT(INTERN);
            id = publish_entry(&sites);
            tell_site(id);
            EP_FAULT_POINT(INTERNED);
            insert_key(index, id, callee, instruction);
        }
    }
    ep_mutex_unlock(&lock);
    return id;
}

/* ---- Names without an address ---------------------------------------------------------------- */

/* Keys made from text: the first word is odd, so no address is equal to it. Two hashes, 127 bits
 * together. */
typedef struct text_key {
    uint64_t a, b;
} text_key;

static void
mix_bytes(text_key *key, const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < count; i++) {
        key->a = (key->a ^ at[i]) * UINT64_C(0x100000001B3);
        key->b = (key->b + at[i] + 1) * UINT64_C(0x9E3779B97F4A7C15);
        key->b ^= key->b >> 29;
    }
}

static void
mix_text(text_key *key, ep_text text)
{
    uint64_t bytes = text.at != NULL ? text.bytes : UINT64_MAX;
    mix_bytes(key, &bytes, sizeof bytes);
    mix_bytes(key, text.at, text.at != NULL ? text.bytes : 0);
}

uint32_t
ep_name_of_text(const ep_name_text *text)
{
    text_key key = {.a = UINT64_C(0xCBF29CE484222325)};
    int32_t rest[] = {text->line, (int32_t)text->kind};
    mix_text(&key, text->qualname);
    mix_text(&key, text->module);
    mix_text(&key, text->file);
    mix_bytes(&key, rest, sizeof rest);
    return ep_name_add((uintptr_t)key.a | 1, (uintptr_t)key.b, text, NULL, NULL);
}

uint32_t
ep_site_of_names(const ep_site *site)
{
    uint32_t fields[] = {site->callee, site->caller, (uint32_t)site->offset, (uint32_t)site->line};
    text_key key = {.a = UINT64_C(0xCBF29CE484222325)};
    mix_bytes(&key, fields, sizeof fields);
    mix_bytes(&key, &site->task, sizeof site->task);
    return ep_site_add((uintptr_t)key.a | 1, (uintptr_t)key.b, site);
}

size_t
ep_name_count(void)
{
    return entry_count(&names);
}

size_t
ep_site_count(void)
{
    return entry_count(&sites);
}

const ep_name *
ep_name_get(uint32_t id)
{
    return entry_at(&names, id);
}

const ep_site *
ep_site_get(uint32_t id)
{
    return entry_at(&sites, id);
}

void
ep_site_set_line(uint32_t id, int32_t line)
{
    ((ep_site *)entry_at(&sites, id))->line = line;
    tell_site(id);
}

void
ep_names_tell_all(const ep_names_sink *sink, void (*begin)(void *), void *context)
{
    if (!ep_os_lock(&lock)) {
        return;
    }
    begin(context);
    for (size_t id = 0; id < entry_count(&strings); id++) {
        sink->string((uint32_t)id, ep_string_get((uint32_t)id));
    }
    for (size_t id = 1; id < entry_count(&names); id++) {
        sink->name((uint32_t)id, ep_name_get((uint32_t)id));
    }
    for (size_t id = 1; id < entry_count(&sites); id++) {
        sink->site((uint32_t)id, ep_site_get((uint32_t)id));
    }
    ep_mutex_unlock(&lock);
}

size_t
ep_names_bytes(void)
{
    return atomic_load_explicit(&bytes_held, memory_order_relaxed);
}

TAKES_LOCK void
ep_names_before_fork(void)
{
    ep_mutex_lock(&lock);
}

GIVES_LOCK void
ep_names_after_fork(void)
{
    ep_mutex_unlock(&lock);
}

/* ---- What always holds of it ----------------------------------------------------------------- */

#ifdef EP_CHECKS

static LOCKED void
check_strings(void)
{
    size_t used = strings_by_text.used;
    ep_hash_index_check(&strings_by_text, hash_of_string, &strings);
    EP_INVARIANT(used == entry_count(&strings), "%zu strings, %zu slots in use",
                 entry_count(&strings), used);
    EP_INVARIANT(arena_left <= ARENA_BYTES, "%zu bytes left for texts", arena_left);
    for (size_t id = 0; id < used; id++) {
        const string_entry *entry = entry_at(&strings, id);
        ep_text text = {entry->at, entry->bytes};
        EP_INVARIANT(entry->hash == hash_text(text), "the hash of string %zu, '%.*s'", id,
                     (int)(text.bytes < 100 ? text.bytes : 100), text.at);
    }
}

/* Each entry is found by its key, but for those whose key was retired. */
static void
check_index(_Atomic(ep_index *) *holder, const pages *entries, const char *what)
{
    const ep_index *index = atomic_load_explicit(holder, memory_order_relaxed);
    size_t count = entry_count(entries), used = 0;
    EP_INVARIANT(count <= index->capacity, "%zu %s, room for %zu", count, what, index->capacity);
    for (size_t slot = 0; slot <= index->mask; slot++) {
        uint32_t id = atomic_load_explicit(&index->slots[slot], memory_order_relaxed);
        EP_INVARIANT(id < count, "slot %zu is of %s %u of %zu", slot, what, (unsigned)id, count);
        used += id != 0;
    }
    EP_INVARIANT(used < count, "%zu slots in use for %zu %s", used, count - 1, what);
    for (uint32_t id = 1; id < count; id++) {
        uintptr_t a = atomic_load_explicit(&index->keys[id].a, memory_order_relaxed);
        uintptr_t b = atomic_load_explicit(&index->keys[id].b, memory_order_relaxed);
        EP_INVARIANT(a == RETIRED || ep_index_find(holder, a, b) == id, "%s %u is found as %u", what,
                     (unsigned)id, (unsigned)ep_index_find(holder, a, b));
    }
}

static bool
is_string(uint32_t id)
{
    return id == EP_STRING_NONE || id < entry_count(&strings);
}

static void
check_entries(void)
{
    size_t name_count = entry_count(&names), site_count = entry_count(&sites);
    for (size_t id = 0; id < name_count; id++) {
        const ep_name *name = entry_at(&names, id);
        EP_INVARIANT(is_string(name->qualname) && is_string(name->module) && is_string(name->file),
                     "a text of name %zu", id);
        EP_INVARIANT(name->kind < EP_NAME_KIND_COUNT, "name %zu is of kind %u", id, name->kind);
    }
    for (size_t id = 0; id < site_count; id++) {
        const ep_site *site = entry_at(&sites, id);
        EP_INVARIANT(site->callee < name_count && site->caller < name_count,
                     "site %zu, names %u and %u", id, (unsigned)site->callee, (unsigned)site->caller);
        EP_INVARIANT(site->task == 0 || is_string(site->task - 1), "task %u of site %zu",
                     (unsigned)site->task, id);
    }
}

void
ep_names_check(void)
{
    if (!ep_mutex_try(&lock)) {
        return;    /* another thread adds a name: a start or stop of a recorder does not wait for it */
    }
    check_strings();
    if (atomic_load_explicit(&ep_site_index, memory_order_relaxed) != NULL) {
        check_index(&ep_name_index, &names, "name");
        check_index(&ep_site_index, &sites, "site");
        check_entries();
    }
    ep_mutex_unlock(&lock);
}

#endif
