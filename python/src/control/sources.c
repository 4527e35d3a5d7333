/* Chooses the sources that record what the running recorders want. */
#include "recorder_object.h"

#include "footprint.h"
#include "greenlets.h"
#include "source.h"

const ep_source *const ep_py_sources[] = {
#define EP_SOURCE(name, hook) &ep_source_##name,
#include "sources.def"
#undef EP_SOURCE
};

const ep_source *
ep_py_code_source_in_use(void)
{
    for (ep_py_recorder *r = ep_py_running; r != NULL; r = r->next) {
        if (r->code_used != NULL) {
            return r->code_used;
        }
    }
    return NULL;
}

/* Whether no recorder asked for the profile hook by name. more: about to run; may be NULL. */
static bool
may_evaluate_frames(const ep_py_recorder *more)
{
    for (const ep_py_recorder *r = ep_py_running; r != NULL; r = r->next) {
        if (r->code_asked != NULL) {
            return false;
        }
    }
    return more == NULL || more->code_asked == NULL;
}

/* The part of `kinds` that a source must record if `code` is the source of code: one hook reports calls of
 * Python functions, and kinds that it cannot see come from another source that can. */
static ep_kind_set
asked_of(const ep_source *source, ep_kind_set kinds, const ep_source *code)
{
    if (!(source->kinds & EP_KINDS_CODE)) {
        return kinds & source->kinds;
    }
    ep_kind_set asked = 0;
    if (source == code) {
        asked = kinds & source->kinds;
    } else if (code == &ep_source_trace && source == &ep_source_profile) {
        asked = kinds & ep_kinds_c;
    } else if (code == &ep_source_profile &&
               source == (ep_py_monitoring_available() ? &ep_source_monitoring : &ep_source_trace)) {
        asked = kinds & ep_kinds_inside & source->kinds;
    } else if (code == &ep_source_trace && source == &ep_source_monitoring &&
               ep_py_monitoring_available()) {
        asked = kinds & ep_kinds_inside & ~ep_source_trace.kinds;
    }
    return asked;
}

static uint32_t
domains_of(const ep_py_recorder *self)
{
    uint32_t domains = 0;
    for (unsigned domain = 0; domain < EP_DOMAIN_COUNT; domain++) {
        bool has = (self->core.options.kinds & ep_kinds_of_domain((ep_domain)domain)) != 0;
        domains |= (uint32_t)has << domain;
    }
    return domains;
}

/* Notes whether one recorder has a domain that another one has not. more: about to run; may be NULL. */
static void
choose_blocks_inside(const ep_py_recorder *more)
{
    uint32_t all = more != NULL ? domains_of(more) : 0, inside = 0;
    for (const ep_py_recorder *r = ep_py_running; r != NULL; r = r->next) {
        all |= domains_of(r);
    }
    for (const ep_py_recorder *r = ep_py_running; r != NULL; r = r->next) {
        inside |= all != domains_of(r) ? domains_of(r) : 0;
    }
    inside |= more != NULL && all != domains_of(more) ? domains_of(more) : 0;
    atomic_store_explicit(&ep_py_blocks_inside, inside, memory_order_relaxed);
}

int
ep_py_sources_adjust(ep_kind_set kinds, const ep_source *code, const ep_py_recorder *more)
{
    ep_py_greenlets_adjust(kinds);
    ep_py_profile_allow_evaluator(may_evaluate_frames(more));
    choose_blocks_inside(more);
    bool footprint = (kinds & EP_KINDS_CODE) && (kinds & ep_source_alloc.kinds);
    int status = 0;
    for (size_t i = 0; i < EP_PY_SOURCE_COUNT && status == 0; i++) {
        ep_kind_set asked = asked_of(ep_py_sources[i], kinds, code);
        if (EP_TRACING_BINDS_BUILTINS && footprint && code == &ep_source_trace &&
            ep_py_sources[i] == &ep_source_profile) {
            /* 3.11 binds builtins for any tracing tool, but reports them only to a profile hook. */
            asked |= EP_KINDS_NONE;
        }
        status = ep_py_sources[i]->adjust(asked);
    }
    /* Blocks whose records were removed will still be freed: the table is used as long as blocks are
     * recorded. */
    if (footprint || !(kinds & ep_source_alloc.kinds)) {
        ep_footprint_use(footprint);
    }
    atomic_store_explicit(&ep_footprint_boxes, footprint && code != &ep_source_monitoring,
                          memory_order_relaxed);
    const ep_kind_set tables = EP_KIND_BIT(EP_KIND_LINE) | EP_KIND_BIT(EP_KIND_INSTRUCTION);
    atomic_store_explicit(&ep_footprint_tables, footprint && (kinds & tables), memory_order_relaxed);
    return status;
}

void
ep_py_sources_release(void)
{
    ep_py_exception saved = ep_py_exception_save();
    uint64_t seen;
    do {
        seen = ep_py_change.count;
        (void)ep_py_sources_adjust(ep_engine_kinds(), ep_py_code_source_in_use(), NULL);
        PyErr_Clear();
    } while (seen != ep_py_change.count);
    ep_py_exception_restore(saved);
}

uint64_t
ep_py_source_interruptions(const ep_source *source)
{
    return source->interruptions != NULL ? source->interruptions() : 0;
}

bool
ep_py_source_is_displaced(const ep_py_recorder *self, size_t i)
{
    return asked_of(ep_py_sources[i], self->core.options.kinds, self->code_used) != 0 &&
           (!ep_py_sources[i]->owns() ||
            ep_py_source_interruptions(ep_py_sources[i]) != self->interruptions[i]);
}

const ep_source *
ep_py_code_source_choose(const ep_py_recorder *self)
{
    const ep_source *now = ep_py_code_source_in_use();
    if (self->code_asked != NULL && now != NULL && now != self->code_asked) {
        PyErr_Format(ep_py_error(EP_ERROR_STATE),
                     "another recorder runs with backend='%s'; stop it first, or pass "
                     "backend='auto'",
                     now->name);
        return NULL;
    }
    if (self->code_asked != NULL || now != NULL) {
        return self->code_asked != NULL ? self->code_asked : now;
    }
    if (ep_py_monitoring_available()) {
        return &ep_source_monitoring;
    }
    /* A trace hook is called for calls in any case: use one hook for both if that is enough. */
    return self->core.options.kinds & ep_kinds_inside ? &ep_source_trace : &ep_source_profile;
}
