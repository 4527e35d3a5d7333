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

/* Makes what is zeroed, once; later calls do nothing. otherwise: what to do where gc.callbacks is no list.
 * Fails: -1, exception set. */
int ep_py_gc_callback_make(ep_py_gc_callback *callback, PyMethodDef *definition, const char *otherwise);

bool ep_py_gc_callback_is_in(const ep_py_gc_callback *callback);
bool ep_py_gc_callback_is_last(const ep_py_gc_callback *callback);

/* Appends it, wherever else it is. Fails: -1, exception set. */
int ep_py_gc_callback_put(const ep_py_gc_callback *callback);

/* Wherever it is. Never fails: what cannot be taken out stays. */
void ep_py_gc_callback_take_out(const ep_py_gc_callback *callback);

#endif
