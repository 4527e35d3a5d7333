/* Which audit events are recorded. */
#ifndef EP_AUDIT_H
#define EP_AUDIT_H

#include <stdbool.h>
#include <stddef.h>

#include "filter.h"

/* Sets the filters of the running recorders of audit events: views, valid until the next call. The hook
 * does not run meanwhile. */
void ep_py_audit_choose(const ep_filter *const *filters, size_t count);

/* Sets the function that says whether the calling thread installs or removes hooks now. Call it once,
 * before any audit event is recorded. */
void ep_py_audit_ask_of_changes(bool (*is_changing)(void));

#endif
