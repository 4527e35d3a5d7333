/* Which asyncio task runs a coroutine. */
#ifndef EP_TASKS_H
#define EP_TASKS_H

#include "compat.h"

/* Once, from module init. Fails: -1, exception set. */
int ep_py_tasks_init(void);

/* The task whose own coroutine runs in `frame`, by name: 1 + string id; 0: none, or not known. With
 * the GIL; cold, 10 to 50 ns. The frame may be another thread's that does not run. *address: the task's, 0:
 * none. */
uint32_t ep_py_task_of(ep_frame *frame, uintptr_t *address);

/* Functions of asyncio's loop in Python that say when callbacks are made and run. */
typedef enum ep_py_loop_code {
    EP_LOOP_OTHER,
    EP_LOOP_CALLBACK,    /* Handle.__init__(self, callback, args, ...) */
    EP_LOOP_TIMER,       /* TimerHandle.__init__(self, when, ...) */
    EP_LOOP_RUN,         /* Handle._run(self) */
    EP_LOOP_CODE_COUNT
} ep_py_loop_code;

ep_py_loop_code ep_py_loop_code_of(const PyCodeObject *code);
/* At the first sight of a code object, with its module's name (or NULL). */
void ep_py_look_for_loop_code(PyCodeObject *code, PyObject *module);

/* The task that a callback of a loop steps; NULL: none. Borrowed, from the callback. *awaits: whether the
 * callback's argument is the future that the task awaited. */
PyObject *ep_py_task_of_callback(PyObject *callback, bool *awaits);
bool ep_py_is_task(PyObject *object);
/* Where a suspended task awaits: the innermost of its coroutines. NULL: unknown, or it has not begun. */
ep_frame *ep_py_frame_of_task(PyObject *task);

#endif
