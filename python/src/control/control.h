/* The running recorders and counters. */
#ifndef EP_CONTROL_H
#define EP_CONTROL_H

#include <Python.h>

#include "errors.h"
#include "types.h"

extern PyType_Spec ep_py_recorder_spec;

/* Once, from module init. Fails: -1, exception set. */
int ep_py_recorders_init(void);

extern PyType_Spec ep_py_counter_spec;

/* Once, from module init. */
void ep_py_counters_init(void);

/* Stops every running counter: at interpreter exit. */
void ep_py_counters_stop_all(void);

/* In a forked child: counters begin at zero. */
void ep_py_counters_after_fork(void);

/* After a change during which counters were stopped: removes their hooks, too. */
void ep_py_counters_settle(void);

/* Stops every running recorder: at interpreter exit. */
void ep_py_recorders_stop_all(void);

/* Describes the open calls in a forked child, where every log begins empty. */
void ep_py_recorders_after_fork(bool child);
void ep_py_recorders_before_fork(void);

#endif
