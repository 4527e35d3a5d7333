/* Callbacks of sys.monitoring, on 3.12 and later: what its two files share, and the table of events for the
 * source. */
#ifndef EP_MONITORING_HOOKS_H
#define EP_MONITORING_HOOKS_H

#include "compat.h"

#include "footprint.h"
#include "intern.h"
#include "source.h"

#if PY_VERSION_HEX >= 0x030C0000

/* Into the fast halves, with whatever they take to be inlined. */
#define EP_PY_INTO_CALLBACK inline __attribute__((always_inline))

/* Not into the fast halves, whose registers they would take. */
#define EP_WHOLE __attribute__((noinline))

/* ---- The events ------------------------------------------------------------------------------ */

/* Bit numbers moved in 3.14: events go by name. */
typedef struct ep_py_monitoring_row {
    const char *name;
    uint64_t kinds;
    vectorcallfunc callback[2];    /* [1]: gated */
} ep_py_monitoring_row;

#define EP_PY_MONITORING_EVENTS (PY_VERSION_HEX < 0x030E0000 ? 17 : 18)
extern EP_HIDDEN const ep_py_monitoring_row ep_py_monitoring_rows[EP_PY_MONITORING_EVENTS];

/* ---- Places that are switched off ------------------------------------------------------------ */

/* Returned from where nothing will be wanted: the interpreter then leaves that place alone, until
 * restart_events(). Not for unwind and throw, which have no place. Made once, immortal. */
extern EP_HIDDEN PyObject *ep_py_monitoring_disable;
/* The gate's generation when that was last returned; 0: not since the last restart. Threads that write
 * it at once write the same: where it changes, none of them runs. */
extern EP_HIDDEN _Atomic uint32_t ep_py_monitoring_off_in;

/* `generation`: the verdict's. A cold path may have let another thread change the gate. */
static inline PyObject *
switch_off(uint32_t generation)
{
    if (EP_UNLIKELY(generation != ep_gate_generation())) {
        Py_RETURN_NONE;
    }
    atomic_store_explicit(&ep_py_monitoring_off_in, generation, memory_order_relaxed);
    return Py_NewRef(ep_py_monitoring_disable);
}

/* ---- What the interpreter allocates for a callback ------------------------------------------- */

/* A record of what is monitored is made before the first callback of a code object. 3.12 and 3.13 make an
 * int of the offset before each (or of the line). 3.14 makes no int or takes a free one: leave it alone
 * there (taking back lost 2,743 of the program's). */
static EP_PY_INTO_CALLBACK void
take_back_own_but_tables(ep_log *log, PyObject *code, PyObject *offset)
{
    if (!ep_footprint_active()) {
        return;
    }
    uintptr_t data = (uintptr_t)((PyCodeObject *)code)->_co_monitoring;
#if PY_VERSION_HEX < 0x030E0000
    bool box = ep_footprint_take(log, (uintptr_t)offset);
    if (EP_UNLIKELY(ep_footprint_take(log, data)) && !box) {
        (void)ep_footprint_take(log, (uintptr_t)offset);
    }
#else
    (void)offset;
    (void)ep_footprint_take(log, data);
#endif
}

static inline void
take_back_own(ep_log *log, PyObject *code, PyObject *offset)
{
    take_back_own_but_tables(log, code, offset);
    if (EP_UNLIKELY(ep_footprint_has_tables())) {
        (void)ep_footprint_take_tables(log, (PyCodeObject *)code);
    }
}

/* ---- Arguments ------------------------------------------------------------------------------- */

/* CALL fires for Python callees, too: PY_START follows. 3.12 and 3.13 pass them as bound methods as
 * well (137,200 of 485,562 CALLs in deltablue), and end those that `with` calls (__exit__) by a
 * C_RETURN. */
static inline bool
is_python_function(PyObject *callable)
{
    return Py_IS_TYPE(ep_py_unbound(callable), &PyFunction_Type);
}

static inline uintptr_t
instruction_at(PyObject *code, PyObject *offset)
{
    return (uintptr_t)ep_code_start((PyCodeObject *)code) + (uintptr_t)ep_small_int(offset);
}

/* ---- Callbacks, whole (monitoring_whole.c) --------------------------------------------------- */

/* `gated`, constant: the callbacks come twice, so that those without filters pay nothing for them. */
PyObject *ep_py_open_whole(PyObject *const *args, ep_kind kind, bool gated);

PyObject *ep_py_close_whole(PyObject *const *args, ep_kind kind, bool gated);

PyObject *ep_py_call_whole(PyObject *const *args, ep_kind kind, bool gated);

PyObject *ep_py_c_close_whole(PyObject *const *args, ep_kind kind, bool gated);

/* args: code, line. */
PyObject *ep_py_line_whole(PyObject *const *args, ep_kind kind, bool gated);

/* args: code, offset. */
PyObject *ep_py_instruction_whole(PyObject *const *args, ep_kind kind, bool gated);

/* args: code, offset, offset of the destination. */
PyObject *ep_py_jump_whole(PyObject *const *args, ep_kind kind, bool gated);

/* args: code, offset, exception. Not switched off: exceptions have no place. */
PyObject *ep_py_exception_whole(PyObject *const *args, ep_kind kind, bool gated);

#endif

#endif
