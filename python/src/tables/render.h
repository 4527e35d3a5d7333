/* Rows into bytes, for the exporters: module-level functions of the extension.
 * Arrays are contiguous buffers: int64 for numbers and times, int32 for codes and rows. */
#ifndef EP_RENDER_H
#define EP_RENDER_H

#include <Python.h>
#include <stdbool.h>

/* render_rows(rows, parts) -> bytes: every row is its parts, one after another. A part is bytes; or
 * ("int", numbers); or ("us", numbers), ns as microseconds with three decimals; or ("some", numbers,
 * bytes), the bytes and the number where that is not 0; or ("masked", numbers, mask, bytes), the bytes
 * where the mask is true; or ("text", codes, offsets, bytes), the texts of a dictionary, where -1 is
 * nothing. */
PyObject *ep_py_render_rows(PyObject *module, PyObject *args);

/* nest_calls(parent, calls, at, top, room) -> (steps, at, top): up to `room` begins (a row) and ends
 * (~row) of calls in order of start, properly nested, as a bytearray of int32. `calls` are the rows of
 * one thread; None stands for all rows. The first time `at` is 0 and `top` is -1; go on with what was
 * given back, until there are no more steps. */
PyObject *ep_py_nest_calls(PyObject *module, PyObject *args);

/* calls_by_thread(thread, threads) -> (rows, first): the rows of thread t, in order, are
 * rows[first[t] : first[t + 1]]. Both are bytearrays, of int32 and int64. */
PyObject *ep_py_calls_by_thread(PyObject *module, PyObject *args);

/* fold_calls(parent, key) -> (node of each call, parent of each node, key of each node): the calls
 * with the same key under the same parent are one node; parents come first. bytearrays of int32. */
PyObject *ep_py_fold_calls(PyObject *module, PyObject *args);

/* collapsed_stacks(parent, weight, code, offsets, bytes, at) -> (bytes, at): a line
 * "outermost;innermost weight" for each node of a tree whose weight is positive. Names are texts of a
 * dictionary, by an int32 code. At first `at` is 0; go on with what was given back until it is the number
 * of nodes. */
PyObject *ep_py_collapsed_stacks(PyObject *module, PyObject *args);

/* pprof_samples(parent, own, caller, values, columns, code, offsets, bytes, at) -> (bytes, at): pprof's
 * sample for each node that has a value which is not 0. `own` and `caller` are the numbers of the
 * locations of the node itself and of the call of it. Its label is one of the texts of a dictionary; -1:
 * nothing. `at` is that of collapsed_stacks(). */
PyObject *ep_py_pprof_samples(PyObject *module, PyObject *args);

/* recursion(parent, key, first) -> (outer, through): of each node the outermost of the nodes with its key
 * that are directly in one another. `first`: no node around has its key. If another key is between the
 * node and an outer one with its key, `through` is the node just inside of the outermost ones with its
 * key; else -1. bytearrays of int32. */
PyObject *ep_py_recursion(PyObject *module, PyObject *args);

/* speedscope_events(steps, start, duration, function, offsets, bytes, last_ns) -> (bytes, last_ns): an
 * event for each begin and end, each with a comma and a line end. Texts 2 * f and 2 * f + 1 of the
 * dictionary are what is before the time of a begin and an end of function f; the last function stands
 * for unknown. Times never decrease. Go on with the last_ns that was given back. */
PyObject *ep_py_speedscope_events(PyObject *module, PyObject *args);

/* perfetto_slices(steps, start, duration, function, site, unknown, sequence, depth, depth_max, last_ns)
 * -> (bytes, depth, last_ns, left_out): packets of one thread; go on with what was given back. */
PyObject *ep_py_perfetto_slices(PyObject *module, PyObject *args);

/* perfetto_counters(time, value, sequence, last_ns) -> (bytes, last_ns). */
PyObject *ep_py_perfetto_counters(PyObject *module, PyObject *args);

#endif
