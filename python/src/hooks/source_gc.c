/* The source of runs of the garbage collector: a builtin in gc.callbacks. If the program takes it out of
 * there, that is reported (displaced), and the next recorder that starts puts it back. */
#include "compat.h"

#include "gc_callbacks.h"
#include "intern.h"
#include "source.h"

#include <stdio.h>

#define GENERATIONS 4    /* more than any interpreter has; what is beyond counts as the last */

static ep_shared_kinds active;    /* what somebody records; 0: nothing */
static ep_py_gc_callback callback;
static PyObject *str_generation, *str_collected, *str_uncollectable;
static _Atomic uint32_t names[GENERATIONS];

static uint32_t
name_of(int generation)
{
    generation = generation < 0 ? 0 : generation < GENERATIONS ? generation
                                                               : GENERATIONS - 1;
    uint32_t id = atomic_load_explicit(&names[generation], memory_order_relaxed);
    if (id == 0) {
        char text[32];
        int bytes = snprintf(text, sizeof text, "gc generation %d", generation);
        ep_name_text name = {.qualname = {text, (size_t)bytes}, .line = -1, .kind = EP_NAME_GC};
        id = ep_name_of_text(&name);
        atomic_store_explicit(&names[generation], id, memory_order_relaxed);
    }
    return id;
}

/* A small number of the collector's; 0: not there. Makes no object. */
static long
number_in(PyObject *info, PyObject *key)
{
    PyObject *number = PyDict_Check(info) ? ep_py_dict_get(info, key) : NULL;
    long value = number != NULL && PyLong_Check(number) ? PyLong_AsLong(number) : 0;
    Py_XDECREF(number);
    return value > 0 ? value : 0;
}

/* phase: 'start' or 'stop'. */
static PyObject *
on_gc(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self;
    uint64_t ticks = ep_clock_ticks();
    ep_kind_set wanted = ep_shared_kinds_get(&active);
    if (wanted == 0 || count != 2 ||
        !PyUnicode_Check(args[0]) || PyUnicode_GET_LENGTH(args[0]) < 4) {
        Py_RETURN_NONE;
    }
    bool stops = PyUnicode_READ_CHAR(args[0], 2) == 'o';
    ep_log *log = ep_py_log_for(stops ? EP_KIND_GC_STOP : EP_KIND_GC_START);
    if (log == NULL) {
        Py_RETURN_NONE;
    }
    ep_py_exception saved = ep_py_exception_save();
    uint32_t busy = ep_py_enter_own();
    uint32_t name = name_of((int)number_in(args[1], str_generation));
    uint64_t collected = 0, uncollectable = 0;
    if (stops) {
        collected = (uint64_t)number_in(args[1], str_collected);
        uncollectable = (uint64_t)number_in(args[1], str_uncollectable);
    }
    PyErr_Clear();
    ep_frame *frame = ep_py_frame_now();
    if (stops) {
        collected = collected < UINT32_MAX ? collected : UINT32_MAX;
        uncollectable = uncollectable < UINT32_MAX ? uncollectable : UINT32_MAX;
        if (wanted & EP_KIND_BIT(EP_KIND_GC_COLLECTED)) {
            ep_log_put_value_at(log, ep_ticks_halves(ticks), EP_KIND_GC_COLLECTED,
                                ep_py_place(log, name, frame), collected | uncollectable << 32);
        }
        if (wanted & EP_KIND_BIT(EP_KIND_GC_STOP)) {
            ep_log_put_at(log, ep_ticks_halves(ticks), EP_KIND_GC_STOP, name);
        }
    } else if (wanted & EP_KIND_BIT(EP_KIND_GC_START)) {
        uint32_t place = ep_py_place(log, name, frame);
        ep_log_put_at(log, ep_ticks_halves(ep_clock_ticks()), EP_KIND_GC_START, place);
    }
    ep_py_leave_own(busy);
    ep_py_exception_restore(saved);
    Py_RETURN_NONE;
}

/* Fails: -1, exception set. */
static int
prepare(void)
{
    static PyMethodDef definition = {"gc_callback", (PyCFunction)(void (*)(void))on_gc,
                                     METH_FASTCALL, NULL};
    if (callback.function != NULL) {
        return 0;
    }
    str_generation = PyUnicode_InternFromString("generation");
    str_collected = PyUnicode_InternFromString("collected");
    str_uncollectable = PyUnicode_InternFromString("uncollectable");
    if (str_generation == NULL || str_collected == NULL || str_uncollectable == NULL) {
        return -1;
    }
    return ep_py_gc_callback_make(&callback, &definition, "; record without gc=True");
}

static int
adjust(ep_kind_set kinds)
{
    if (kinds != 0) {
        if (prepare() < 0 ||
            (!ep_py_gc_callback_is_in(&callback) && ep_py_gc_callback_put(&callback) < 0)) {
            return -1;
        }
        ep_shared_kinds_set(&active, kinds);
        return 0;
    }
    ep_shared_kinds_set(&active, 0);
    ep_py_gc_callback_take_out(&callback);    /* one that stays does nothing */
    return 0;
}

static bool
owns(void)
{
    return ep_shared_kinds_get(&active) == 0 || ep_py_gc_callback_is_in(&callback);
}

const ep_source ep_source_gc = {
    .name = "gc",
    .kinds = ep_kinds_gc,
    .adjust = adjust,
    .owns = owns,
};
