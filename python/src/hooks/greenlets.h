/* Greenlets: a thread that switches stacks of calls. Each stack is a lane (record/lanes.h). */
#ifndef EP_GREENLETS_H
#define EP_GREENLETS_H

#include "compat.h"

#include "types.h"

/* kinds: what somebody records; 0: nothing. GIL held, outside of hooks. Fails never: without memory calls
 * are recorded, and greenlets have no lanes. */
void ep_py_greenlets_adjust(ep_kind_set kinds);

#endif
