/* The source of audit events: PySys_AddAuditHook. An audit hook cannot be removed, so it is installed once
 * in a process, and is dormant while nobody records.
 *
 * The name of an event and its place in the program are recorded, but not its arguments: they may be
 * secret, and turning them into text would run the program's code. */
#include "compat.h"

#include <stdlib.h>
#include <string.h>

#include "audit.h"
#include "filter.h"
#include "intern.h"
#include "errors.h"
#include "source.h"

static _Atomic bool active;
static bool installed, answered;
static bool (*hooks_change)(void);    /* on this thread, at this moment */

/* ---- What is wanted -------------------------------------------------------------------------- */

#define PATTERN_LISTS 64    /* recorders at once; with more everything is recorded */

static const ep_filter *wanted_by[PATTERN_LISTS];    /* views: see ep_py_audit_choose() */
static size_t wanted_by_count;
static bool wants_all;
static _Atomic uint32_t generation = 1;    /* of verdicts */

void
ep_py_audit_ask_of_changes(bool (*is_changing)(void))
{
    hooks_change = is_changing;
}

void
ep_py_audit_choose(const ep_filter *const *filters, size_t count)
{
    wants_all = count > PATTERN_LISTS;
    wanted_by_count = wants_all ? 0 : count;
    memcpy(wanted_by, filters, wanted_by_count * sizeof *filters);
    atomic_fetch_add_explicit(&generation, 1, memory_order_relaxed);
}

static bool
is_wanted(ep_text event)
{
    bool wanted = wants_all;
    for (size_t i = 0; i < wanted_by_count && !wanted; i++) {
        wanted = ep_filter_wants_audit(wanted_by[i], event);
    }
    return wanted;
}

/* ---- Events seen before ---------------------------------------------------------------------- */

/* By text, because the names of a program's own events may be in memory that is freed. Names are added
 * and never removed. If a program makes too many names, later ones are handled without the table, and in
 * the end without names. */
#define KNOWN_SLOTS 8192
#define KNOWN_LIMIT 4096
#define NAME_LIMIT (UINT32_C(1) << 18)

typedef struct known_event {
    uint64_t hash;
    size_t bytes;
    uint32_t name;
    _Atomic uint64_t verdict;    /* generation << 1 | wanted */
    char text[];
} known_event;

static _Atomic(known_event *) known[KNOWN_SLOTS];
static _Atomic uint32_t known_count;

static uint64_t
hash_of(const char *text, size_t *bytes)
{
    uint64_t hash = UINT64_C(0xCBF29CE484222325);
    size_t at = 0;
    for (; text[at] != 0; at++) {
        hash = (hash ^ (unsigned char)text[at]) * UINT64_C(0x100000001B3);
    }
    *bytes = at;
    return hash ^ hash >> 29;
}

static uint32_t
name_of(ep_text event)
{
    static _Atomic uint32_t more;    /* new names that were made since the table is full */
    if (atomic_load_explicit(&more, memory_order_relaxed) >= NAME_LIMIT) {
        event = (ep_text){EP_AUDIT_OTHER, sizeof EP_AUDIT_OTHER - 1};
    }
    ep_name_text name = {.qualname = event, .line = -1, .kind = EP_NAME_AUDIT};
    size_t before = ep_name_count();
    uint32_t id = ep_name_of_text(&name);
    if (id >= before) {
        atomic_fetch_add_explicit(&more, 1, memory_order_relaxed);
    }
    return id;
}

/* NULL: not in the table, and there is no room. */
static known_event *
look_up(ep_text event, uint64_t hash)
{
    for (size_t probe = 0; probe < KNOWN_SLOTS; probe++) {
        _Atomic(known_event *) *slot = &known[(hash + probe) & (KNOWN_SLOTS - 1)];
        /* Acquire: pairs with the exchange below; the entry is whole. */
        known_event *found = atomic_load_explicit(slot, memory_order_acquire);
        if (found == NULL) {
            if (atomic_load_explicit(&known_count, memory_order_relaxed) >= KNOWN_LIMIT) {
                return NULL;
            }
            known_event *fresh = calloc(1, sizeof *fresh + event.bytes + 1);
            if (fresh == NULL) {
                return NULL;
            }
            fresh->hash = hash;
            fresh->bytes = event.bytes;
            memcpy(fresh->text, event.at, event.bytes);
            if (atomic_compare_exchange_strong(slot, &found, fresh)) {
                atomic_fetch_add_explicit(&known_count, 1, memory_order_relaxed);
                return fresh;
            }
            free(fresh);    /* another thread's is there now */
        }
        if (found->hash == hash && found->bytes == event.bytes &&
            memcmp(found->text, event.at, event.bytes) == 0) {
            return found;
        }
    }
    return NULL;
}

/* The name of an event that somebody wants; 0: nobody does. */
static uint32_t
wanted_name(const char *text)
{
    ep_text event = {.at = text};
    uint64_t hash = hash_of(text, &event.bytes);
    known_event *entry = look_up(event, hash);
    if (entry == NULL) {
        return is_wanted(event) ? name_of(event) : 0;
    }
    uint64_t now = atomic_load_explicit(&generation, memory_order_relaxed);
    uint64_t verdict = atomic_load_explicit(&entry->verdict, memory_order_relaxed);
    if (EP_UNLIKELY(verdict >> 1 != now)) {
        verdict = now << 1 | is_wanted(event);
        atomic_store_explicit(&entry->verdict, verdict, memory_order_relaxed);
    }
    if (!(verdict & 1)) {
        return 0;
    }
    if (entry->name == 0) {
        entry->name = name_of(event);    /* a race finds the same */
    }
    return entry->name;
}

/* ---- The hook -------------------------------------------------------------------------------- */

static const char question[] = "eventprof.audit_hook";

static int
on_audit(const char *event, PyObject *args, void *data)
{
    (void)args;
    (void)data;
    if (EP_UNLIKELY(!answered) && strcmp(event, question) == 0) {
        answered = true;
    }
    if (!atomic_load_explicit(&active, memory_order_relaxed)) {
        return 0;
    }
    PyThreadState *ts = ep_thread_state();
    if (ts == NULL || !ep_py_is_own_interpreter(ts) || hooks_change()) {
        return 0;    /* the event comes from installing or removing our own hooks */
    }
    ep_frame *frame = ep_py_frame_now();
    if (frame != NULL && ep_py_is_own_code(ep_frame_code(frame))) {
        return 0;
    }
    ep_log *log = ep_py_log_for(EP_KIND_AUDIT);
    if (log == NULL || log->busy) {
        return 0;
    }
    uint32_t busy = ep_py_enter_own();
    uint32_t name = wanted_name(event);
    if (name != 0) {
        uint32_t place = ep_py_place(log, name, frame);
        ep_log_put_at(log, ep_ticks_halves(ep_clock_ticks()), EP_KIND_AUDIT, place);
    }
    ep_py_leave_own(busy);
    return 0;
}

/* Fails: -1, exception set. */
static int
install(void)
{
    if (PySys_AddAuditHook(on_audit, NULL) < 0) {
        return -1;
    }
    /* If another hook raises RuntimeError at this event, PySys_AddAuditHook() adds nothing, and returns
     * success. */
    if (PySys_Audit(question, NULL) < 0) {
        return -1;
    }
    if (!answered) {
        PyErr_SetString(ep_py_error(EP_ERROR_TOOL_IN_USE),
                        "another audit hook of this process forbids to add one; record without audit=");
        return -1;
    }
    installed = true;
    return 0;
}

static int
adjust(ep_kind_set kinds)
{
    if (kinds != 0 && !installed && install() < 0) {
        return -1;
    }
    atomic_store_explicit(&active, kinds != 0, memory_order_relaxed);
    return 0;
}

static bool
owns(void)
{
    return true;
}

const ep_source ep_source_audit = {
    .name = "audit",
    .kinds = EP_KIND_BIT(EP_KIND_AUDIT),
    .adjust = adjust,
    .owns = owns,
};
