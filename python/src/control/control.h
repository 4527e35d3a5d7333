/* The running recorders and counters, and the change of hooks. */
#ifndef EP_CONTROL_H
#define EP_CONTROL_H

#include <Python.h>

#include "errors.h"
#include "types.h"

extern PyType_Spec ep_py_recorder_spec;

/* Once, from module init. Fails: -1, exception set. */
int ep_py_recorders_init(void);

/* Around putting hooks in and taking them out: one thread at a time. Returns: false, on a thread that is
 * at it already (an audit hook, a finalizer); then nothing is to be ended. */
bool ep_py_begin_change(void);
void ep_py_end_change(void);

extern PyType_Spec ep_py_counter_spec;

/* Once, from module init. */
void ep_py_counters_init(void);

/* Stops every running counter: at interpreter exit. */
void ep_py_counters_stop_all(void);

/* Counters of a forked child begin anew. */
void ep_py_counters_after_fork(void);

/* After a change in whose midst counters were stopped: their hooks go, too. */
void ep_py_counters_settle(void);

/* Stops every running recorder: at interpreter exit. */
void ep_py_recorders_stop_all(void);

/* Names the calls open in the child, where every log begins empty. */
void ep_py_recorders_after_fork(bool child);
void ep_py_recorders_before_fork(void);

#endif
