/* A builtin of ours in gc.callbacks. The program can change that list: it may empty it, or restore an
 * earlier one. Then our builtin is not called any more. */
#ifndef EP_GC_CALLBACKS_H
#define EP_GC_CALLBACKS_H

#include "compat.h"

typedef struct ep_py_gc_callback {
    PyObject *list;        /* the interpreter's list, whatever the attribute of the module gc is later;
                            * NULL: not found yet */
    PyObject *function;    /* made once, immortal */
} ep_py_gc_callback;

/* Makes a zeroed callback; later calls do nothing. otherwise: for the error if gc.callbacks is not a list,
 * what the user can do. Fails: -1, exception set. */
int ep_py_gc_callback_make(ep_py_gc_callback *callback, PyMethodDef *definition, const char *otherwise);

bool ep_py_gc_callback_is_in(const ep_py_gc_callback *callback);
bool ep_py_gc_callback_is_last(const ep_py_gc_callback *callback);

/* Appends our builtin to the list, also if the list has it already. Fails: -1, exception set. */
int ep_py_gc_callback_put(const ep_py_gc_callback *callback);

/* Removes our builtin, as often as the list has it. Never fails: if it cannot be removed, it stays. */
void ep_py_gc_callback_take_out(const ep_py_gc_callback *callback);

#endif
