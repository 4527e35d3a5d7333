/* Passes the filters of the running recorders to the hooks: for calls (the gate) and for audit events. */
#include "recorder_object.h"

#include <string.h>

#include "audit.h"
#include "gate.h"
#include "source.h"

/* ---- The gate -------------------------------------------------------------------------------- */

bool
ep_py_records_code(const ep_py_recorder *self)
{
    return (self->core.options.kinds & EP_KINDS_CODE) != 0;
}

/* The filters of running recorders of code, and of `more` (may be NULL). Returns: how many there are, which
 * may be more than the array holds. */
static size_t
list_filters(const ep_py_recorder *more, const ep_filter *filters[EP_GATE_FILTERS + 1])
{
    size_t count = 0;
    for (const ep_py_recorder *r = ep_py_running; r != NULL; r = r->next) {
        if (ep_py_records_code(r) && r != more && count <= EP_GATE_FILTERS) {
            filters[count++] = &r->filter;
        }
    }
    if (more != NULL && count <= EP_GATE_FILTERS) {
        filters[count++] = &more->filter;
    }
    return count;
}

/* Before the set of recorders changes to the running ones and `more`. No hook runs meanwhile. */
static void
prepare_gate_alone(void *more)
{
    const ep_filter *filters[EP_GATE_FILTERS + 1];
    ep_gate_prepare(filters, list_filters(more, filters));
}

void
ep_py_gate_prepare(ep_py_recorder *more)
{
    ep_py_alone(prepare_gate_alone, more);
}

void
ep_py_gate_open_alone(void)
{
    const ep_filter *filters[EP_GATE_FILTERS + 1];
    size_t count = list_filters(NULL, filters);
    ep_py_recorder *only = NULL;
    for (ep_py_recorder *r = ep_py_running; r != NULL; r = r->next) {
        only = ep_py_records_code(r) ? r : only;
    }
    ep_gate_open(count == 1 && only->alone ? &only->core : NULL, filters, count);
}

void
ep_py_gate_reset_alone(void *unused)
{
    (void)unused;
    prepare_gate_alone(NULL);
    ep_py_gate_open_alone();
}

void
ep_py_gate_leave(const ep_py_recorder *self)
{
    if (ep_py_records_code(self)) {
        ep_py_alone(ep_py_gate_reset_alone, NULL);
    }
}

void
ep_py_left_out_begin(ep_py_recorder *self)
{
    self->first_generation = ep_gate_generation();
    ep_engine_left_out(self->left_out);
}

void
ep_py_left_out_read(const ep_py_recorder *self, uint64_t *calls, size_t *functions)
{
    if (self->core.state == EP_RECORDER_RUNNING) {
        ep_engine_left_out(calls);
        for (int i = 0; i < EP_LEFT_OUT_COUNT; i++) {
            calls[i] -= self->left_out[i];
        }
        *functions = ep_filter_names_any(&self->filter)
                         ? ep_gate_count_left_out(self->first_generation)
                         : 0;
    } else {
        memcpy(calls, self->left_out, sizeof self->left_out);
        *functions = self->functions_left_out;
    }
}

/* ---- Audit events ---------------------------------------------------------------------------- */

static bool
records_audit(const ep_py_recorder *self)
{
    return (self->core.options.kinds & EP_KIND_BIT(EP_KIND_AUDIT)) != 0;
}

/* For the running recorders and `more` (may be NULL). No hook runs meanwhile. */
static void
choose_audit_alone(void *more)
{
    static const ep_filter *filters[256];
    size_t count = 0;
    for (const ep_py_recorder *r = ep_py_running; r != NULL && count < 255; r = r->next) {
        if (records_audit(r) && r != more) {
            filters[count++] = &r->filter;
        }
    }
    if (more != NULL) {
        filters[count++] = &((ep_py_recorder *)more)->filter;
    }
    ep_py_audit_choose(filters, count);
}

void
ep_py_audit_choose_for(const ep_py_recorder *changes, ep_py_recorder *more)
{
    if (records_audit(changes)) {
        ep_py_alone(choose_audit_alone, more);
    }
}
