/* Which asyncio task runs a coroutine. */
#ifndef EP_TASKS_H
#define EP_TASKS_H

#include "compat.h"

/* Once, from module init. Fails: -1, exception set. */
int ep_py_tasks_init(void);

/* The task whose own coroutine runs in `frame`, by name: 1 + string id; 0: none, or not known. With
 * the GIL; cold, 10 to 50 ns. The frame may be another thread's that does not run. */
uint32_t ep_py_task_of(ep_frame *frame);

#endif
