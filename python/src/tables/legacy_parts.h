/* What the files of the drop-in share. */
#ifndef EP_LEGACY_PARTS_H
#define EP_LEGACY_PARTS_H

#include <Python.h>

#include "types.h"

#define WORDS_MAX 32    /* of events; the original has 15 */

/* Instead of a thread, for events of the profiler itself. */
#define MARK (-1)

typedef struct logged {
    int64_t monotonic_ns;
    uint32_t place;
    int32_t thread;     /* native id, or MARK */
    int32_t word;
} logged;

/* Changed and read under the GIL, or the object's own lock where there is none: threads log at once. raw()
 * and frame() work on a copy. */
typedef struct legacy_log {
    PyObject_HEAD
    PyObject *words;            /* dict: word -> code, in the order of the columns' event numbers */
    PyObject *numbers;          /* dict: word -> event number */
    uint16_t code[WORDS_MAX];   /* index: event number */
    int8_t number_of_kind[EP_KIND_COUNT];
    size_t count, capacity;
    logged *rows;               /* in order of time */
} legacy_log;

/* Methods of LegacyLog in legacy_rows.c. */
PyObject *ep_legacy_log_raw(PyObject *object, PyObject *args);
PyObject *ep_legacy_log_frame(PyObject *object, PyObject *args);

#endif
