/* The drop-in's _core.LegacyLog: what a user logs himself. Its raw() and frame() are in legacy_rows.c. */
#include "legacy.h"

#include <structmember.h>

#include "arrays.h"
#include "intern.h"
#include "legacy_parts.h"
#include "memory.h"
#include "os.h"

/* ---- Where the user's events are -------------------------------------------------------------- */

/* The site that an allocation in this frame would have. */
static uint32_t
place_in(ep_frame *frame)
{
    frame = ep_frame_of_program(frame);
    uint32_t site = frame != NULL ? ep_site_find(0, ep_frame_instruction(frame)) : 0;
    return site != 0 || frame == NULL ? site : ep_py_block_site_slow(frame);
}

/* The Python frame that called this one. */
static ep_frame *
caller_of(PyFrameObject *object)
{
    ep_frame *caller = ep_frame_previous(ep_frame_of_object(object));
    if (caller == NULL) {
        /* The frame may have returned: then only its object knows the caller. This makes no new object. */
        PyFrameObject *back = PyFrame_GetBack(object);
        caller = back != NULL ? ep_frame_of_object(back) : NULL;
        Py_XDECREF(back);
    }
    return caller;
}

/* ---- _core.LegacyLog: what the user logs --------------------------------------------- */

static int
read_words(legacy_log *self)
{
    PyObject *word, *code;
    Py_ssize_t at = 0;
    int number = 0;
    for (; PyDict_Next(self->words, &at, &word, &code); number++) {
        PyObject *value = PyLong_FromLong(number);
        long read = PyLong_AsLong(code);
        if (value == NULL || PyErr_Occurred() || PyDict_SetItem(self->numbers, word, value) < 0) {
            Py_XDECREF(value);
            return -1;
        }
        Py_DECREF(value);
        if (number == WORDS_MAX || read < 0 || read > UINT16_MAX) {
            PyErr_SetString(PyExc_ValueError, "LegacyLog: at most 32 events, codes of 16 bits");
            return -1;
        }
        self->code[number] = (uint16_t)read;
        for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
            if (ep_kinds[kind].legacy == read) {
                self->number_of_kind[kind] = (int8_t)number;
            }
        }
    }
    return 0;
}

static PyObject *
log_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *words;
    (void)keywords;
    if (!PyArg_ParseTuple(args, "O!:LegacyLog", &PyDict_Type, &words)) {
        return NULL;
    }
    legacy_log *self = (legacy_log *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->words = PyDict_Copy(words);
    self->numbers = PyDict_New();
    if (self->words == NULL || self->numbers == NULL || read_words(self) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void
log_dealloc(PyObject *object)
{
    legacy_log *self = (legacy_log *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->words);
    Py_XDECREF(self->numbers);
    free(self->rows);
    type->tp_free(object);
    Py_DECREF(type);
}

/* Returns: None, new. */
static PyObject *
append(legacy_log *self, int word, uint32_t place, int32_t thread)
{
    bool grown;
    EP_BEGIN_OBJECT(self);
    grown = ep_grow((void **)&self->rows, &self->capacity, self->count + 1, sizeof *self->rows);
    if (grown) {
        self->rows[self->count++] = (logged){
            .monotonic_ns = ep_os_monotonic_ns(),    /* read under the lock: rows are in order of time */
            .place = place != EP_ID_SKIP ? place : 0,
            .thread = thread,
            .word = word,
        };
    }
    EP_END_OBJECT();
    return grown ? Py_NewRef(Py_None) : PyErr_NoMemory();
}

/* Returns: -1 with an exception. */
static int
number_of_word(legacy_log *self, PyObject *event)
{
    if (!PyUnicode_Check(event)) {
        PyErr_Format(PyExc_TypeError, "event must be a str, not %s", Py_TYPE(event)->tp_name);
        return -1;
    }
    PyObject *number = PyDict_GetItemWithError(self->numbers, event);
    if (number == NULL && !PyErr_Occurred()) {
        PyObject *known = PyDict_Keys(self->words);
        PyErr_Format(PyExc_ValueError, "event must be one of %R, not %R", known, event);
        Py_XDECREF(known);
    }
    return number != NULL ? (int)PyLong_AsLong(number) : -1;
}

static int32_t
thread_now(void)
{
    ep_log *log = ep_log_current;
    return (int32_t)(log != NULL ? log->thread->native_id : ep_os_thread_id());
}

/* Codes of the original: 1 call, 2 return, 3 c_call, 4 c_return, 5 exception, 6 c_exception. */
static bool
is_c_call(uint32_t code)
{
    return code == 3 || code == 4 || code == 6;
}

/* log(frame, event, arg): as a function of sys.setprofile is called. */
static PyObject *
log_log(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    legacy_log *self = (legacy_log *)object;
    if (count != 3) {
        return PyErr_Format(PyExc_TypeError, "log() takes frame, event and arg");
    }
    if (!PyFrame_Check(args[0])) {
        return PyErr_Format(PyExc_TypeError, "frame must be a frame, not %s",
                            Py_TYPE(args[0])->tp_name);
    }
    int word = number_of_word(self, args[1]);
    if (word < 0) {
        return NULL;
    }
    PyFrameObject *object_of_frame = (PyFrameObject *)args[0];
    ep_frame *frame = ep_frame_of_object(object_of_frame);
    uint32_t code = self->code[word], place;
    if (!ep_py_sites_usable) {
        place = 0;
    } else if (is_c_call(code) && args[2] != Py_None && PyCallable_Check(args[2])) {
        place = ep_py_callee_site_from(args[2], frame);
    } else if (code <= 6) {
        place = ep_py_code_site_from(ep_frame_code(frame), frame, caller_of(object_of_frame));
    } else {
        place = place_in(frame);
    }
    return append(self, word, place, thread_now());
}

/* mark(event): an event of the profiler itself, at the program's current line. */
static PyObject *
log_mark(PyObject *object, PyObject *event)
{
    legacy_log *self = (legacy_log *)object;
    int word = number_of_word(self, event);
    if (word < 0) {
        return NULL;
    }
    ep_frame *frame = ep_py_frame_now();
    return append(self, word, frame != NULL ? place_in(frame) : 0, MARK);
}

/* unmark(): removes the last mark, because what it marked did not happen. */
static PyObject *
log_unmark(PyObject *object, PyObject *unused)
{
    legacy_log *self = (legacy_log *)object;
    (void)unused;
    EP_BEGIN_OBJECT(self);
    for (size_t at = self->count; at-- > 0;) {
        if (self->rows[at].thread == MARK) {
            memmove(&self->rows[at], &self->rows[at + 1],
                    (--self->count - at) * sizeof *self->rows);
            break;
        }
    }
    EP_END_OBJECT();
    Py_RETURN_NONE;
}

static Py_ssize_t
log_length(PyObject *self)
{
    Py_ssize_t count;
    EP_BEGIN_OBJECT(self);
    count = (Py_ssize_t)((legacy_log *)self)->count;
    EP_END_OBJECT();
    return count;
}

/* ---- The type ---------------------------------------------------------------------------------- */

static PyMethodDef log_methods[] = {
    {"log", (PyCFunction)(void (*)(void))log_log, METH_FASTCALL, NULL},
    {"mark", log_mark, METH_O, NULL},
    {"unmark", log_unmark, METH_NOARGS, NULL},
    {"raw", ep_legacy_log_raw, METH_VARARGS, NULL},
    {"frame", ep_legacy_log_frame, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot log_slots[] = {
    {Py_tp_new, log_new},
    {Py_tp_dealloc, log_dealloc},
    {Py_tp_methods, log_methods},
    {Py_sq_length, log_length},
    {0, NULL},
};

PyType_Spec ep_py_legacy_log_spec = {
    .name = "eventprof._core.LegacyLog",
    .basicsize = sizeof(legacy_log),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = log_slots,
};
