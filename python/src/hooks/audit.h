/* Which audit events are recorded. */
#ifndef EP_AUDIT_H
#define EP_AUDIT_H

#include <stdbool.h>
#include <stddef.h>

#include "filter.h"

/* What the running recorders of audit events want: views, valid until the next call. The hook stands
 * still. */
void ep_py_audit_choose(const ep_filter *const *filters, size_t count);

/* Who knows whether hooks are going in or out on this thread, at this moment. Once, before any audit
 * event is recorded. */
void ep_py_audit_ask_of_changes(bool (*is_changing)(void));

#endif
