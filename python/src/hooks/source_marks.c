/* The source of user events: marks, spans, counters and flows, from Python and from C.
 *
 * Names are interned by text. A str that the interpreter has interned (all literals are) is kept, one
 * a text, so that its address stands for the text for ever: the second event of a name and place needs
 * two looks into the thread's own tables. Other texts are looked up in a dictionary.
 *
 * Spans are calls of the tree as long as they nest in the calls around them: begun and ended in one
 * frame. In a generator or coroutine, which may yield between, and by an ExitStack, which is entered
 * and left in frames of its own, they may not. Such a *loose* span is two FLOW records of phase
 * LOOSE instead, whose value tells which end it is and of which span (marks.py pairs them). */
#include "compat.h"

#include "../../eventprof/include/eventprof.h"
#include "bound.h"
#include "intern.h"
#include "labels.h"
#include "marks.h"
#include "marks_put.h"
#include "errors.h"
#include "source.h"

/* The most texts that become names, of about 200 bytes each: a program that puts numbers into names makes
 * ever new ones. */
#define NAME_LIMIT (1 << 18)

enum {
    LOOSE = 3    /* a FLOW of this phase is one end of a loose span: value = span << 1 | (1: its end) */
};

_Atomic uint32_t ep_py_marks_active;
static PyObject *name_ids;              /* {interned text: name id} */
static uint32_t other_name;             /* of texts beyond the limit, and without memory */
static PyObject *str_begin, *str_step, *str_end;
static PyObject *contextlib_file;       /* as its code objects spell it; NULL: not known */
static PyObject *decorate;              /* of marks.py, when one was first asked for */

static inline bool
records(uint32_t what)
{
    /* Relaxed: an event beside the start or stop is in the window by its tick, or it is not. */
    return EP_UNLIKELY(atomic_load_explicit(&ep_py_marks_active, memory_order_relaxed) & what);
}

/* ---- Names ----------------------------------------------------------------------------------- */

uint32_t
ep_py_mark_name_of_text(ep_text text)
{
    ep_name_text name = {.qualname = text, .line = -1, .kind = EP_NAME_USER};
    uint32_t id = text.at != NULL ? ep_name_of_text(&name) : 0;
    return id != 0 ? id : other_name;
}

/* text: exactly a str. Fails: `other_name`, an exception may be set. */
static uint32_t
add_name(PyObject *text)
{
    if (PyDict_GET_SIZE(name_ids) >= NAME_LIMIT) {
        return other_name;
    }
    char stack[256], *heap;
    uint32_t id = ep_py_mark_name_of_text(ep_py_text(text, stack, sizeof stack, &heap));
    free(heap);
    PyObject *key = Py_NewRef(text), *number = PyLong_FromUnsignedLong(id);
    uint32_t busy = ep_log_current->busy;
    ep_log_current->busy = EP_BUSY_OWN;    /* the table of interned strings is the interpreter's */
    PyUnicode_InternInPlace(&key);
    ep_log_current->busy = busy;
    if (number != NULL) {
        (void)PyDict_SetItem(name_ids, key, number);
    }
    Py_XDECREF(number);
    Py_DECREF(key);
    return id;
}

static EP_COLD uint32_t
name_slow(ep_log *log, PyObject *given)
{
    uint32_t busy = ep_py_enter_ours(), id = other_name;
    ep_py_exception saved = ep_py_exception_save();
    /* A subclass may say that it equals anything. */
    PyObject *text = PyUnicode_CheckExact(given) ? Py_NewRef(given) : PyUnicode_FromObject(given);
    if (text != NULL) {
        PyObject *number = ep_py_dict_get(name_ids, text);
        id = number != NULL ? (uint32_t)PyLong_AsUnsignedLong(number) : add_name(text);
        Py_XDECREF(number);
        /* The one that the dictionary keeps: there is one interned str a text. */
        if (text == given && PyUnicode_CHECK_INTERNED(text) && id != other_name &&
            id <= EP_RECENT_ID_MAX) {
            *ep_recent_name(&log->recent, (uintptr_t)text) =
                ep_recent_tag((uintptr_t)text >> 4, EP_RECENT_NAMES) | id;
        }
        Py_DECREF(text);
    }
    PyErr_Clear();
    ep_py_exception_restore(saved);
    ep_py_leave_own(busy);
    return id;
}

static inline uint32_t
name_of(ep_log *log, PyObject *text)
{
    uint32_t id = ep_name_recent(&log->recent, (uintptr_t)text);
    return EP_LIKELY(id != 0) ? id : name_slow(log, text);
}

uint32_t
ep_py_mark_name(ep_log *log, PyObject *text)
{
    return name_of(log, text);
}

/* ---- Events ---------------------------------------------------------------------------------- */

/* Whether a span that begins or ends in `frame` may have its other end in another frame. */
static inline bool
is_loose(const ep_frame *frame)
{
    return frame != NULL && (ep_frame_generator(frame) != NULL ||
                             ep_frame_code(frame)->co_filename == contextlib_file);
}

/* `serial`: of the span, where its frames are not its own. */
static EP_COLD void
put_loose(ep_log *log, uint32_t name, ep_frame *frame, uint64_t serial, bool end)
{
    /* A generator's frame lives in the generator, as long as that: no other has its address. A stack
     * may leave in a coroutine what it entered in a function. */
    bool by_stack = ep_frame_code(frame)->co_filename == contextlib_file;
    uint64_t span = by_stack ? serial << 1 | 1 : (uint64_t)(uintptr_t)frame >> 2 << 1;
    ep_put_value(log, EP_KIND_FLOW, name, frame, (span << 1 | end) << 2 | LOOSE);
}

/* ---- From Python ----------------------------------------------------------------------------- */

/* Fails: false, exception set. It checks also while nothing records: a program must not behave
 * differently then. */
static inline bool
is_name(const char *function, PyObject *name)
{
    if (EP_LIKELY(PyUnicode_Check(name))) {
        return true;
    }
    PyErr_Format(PyExc_TypeError, "%s(): the name must be a str, not %R", function, name);
    return false;
}

static EP_COLD PyObject *
refuse_count(const char *usage, Py_ssize_t count)
{
    return PyErr_Format(PyExc_TypeError, "%s: it was called with %zd arguments", usage, count);
}

const char ep_py_mark_doc[] =
    "mark($module, name, /)\n--\n\n"
    "Record that something happened here and now.\n\n"
    "Parameters\n----------\n"
    "name : str\n"
    "    What happened. Texts are kept for ever, once each; after 262,144 of them any other is\n"
    "    recorded as ``(another name)``.\n\n"
    "Raises\n------\n"
    "TypeError\n    `name` is no str.\n\n"
    "Notes\n-----\n"
    "It goes to every recorder that runs with ``marks=True``; otherwise nothing is done.\n\n"
    "Examples\n--------\n"
    ">>> with eventprof.record() as rec:\n"
    "...     eventprof.mark(\"loaded\")\n"
    ">>> rec.trace.marks[\"name\"].tolist()\n"
    "['loaded']\n";

PyObject *
ep_py_mark(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (EP_UNLIKELY(count != 1)) {
        return refuse_count("mark(name)", count);
    }
    if (!is_name("mark", args[0])) {
        return NULL;
    }
    ep_log *log = records(EVENTPROF_MARKS) ? ep_py_log_for(EP_KIND_MARK) : NULL;
    if (log != NULL) {
        ep_put_point(log, EP_KIND_MARK, name_of(log, args[0]), ep_py_frame_now());
    }
    Py_RETURN_NONE;
}

const char ep_py_counter_doc[] =
    "counter($module, name, value, /)\n--\n\n"
    "Record the value that something has from here on.\n\n"
    "Parameters\n----------\n"
    "name : str\n"
    "    What it is the value of; kept as by `mark`.\n"
    "value : float\n"
    "    Kept as 64 bits.\n\n"
    "Raises\n------\n"
    "TypeError\n    `name` is no str, or `value` no number.\n"
    "OverflowError\n    `value` is an int that no float is near to.\n\n"
    "Examples\n--------\n"
    ">>> with eventprof.record() as rec:\n"
    "...     for size in (1, 4, 2):\n"
    "...         eventprof.counter(\"queue\", size)\n"
    ">>> rec.trace.counters[\"value\"].tolist()\n"
    "[1.0, 4.0, 2.0]\n";

PyObject *
ep_py_counter(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (EP_UNLIKELY(count != 2)) {
        return refuse_count("counter(name, value)", count);
    }
    if (!is_name("counter", args[0])) {
        return NULL;
    }
    double value = PyFloat_AsDouble(args[1]);
    if (EP_UNLIKELY(value == -1.0) && PyErr_Occurred()) {
        return NULL;
    }
    ep_log *log = records(EVENTPROF_COUNTERS) ? ep_py_log_for(EP_KIND_COUNTER) : NULL;
    if (log != NULL) {
        ep_put_value(log, EP_KIND_COUNTER, name_of(log, args[0]), ep_py_frame_now(), ep_bits_of(value));
    }
    Py_RETURN_NONE;
}

const char ep_py_flow_doc[] =
    "flow($module, name, id, phase, /)\n--\n\n"
    "Record that something which goes from place to place is here now.\n\n"
    "Parameters\n----------\n"
    "name : str\n"
    "    What it is; kept as by `mark`.\n"
    "id : int\n"
    "    Which one: the same at all of its stations, on whatever threads. Below 2**61.\n"
    "phase : {'begin', 'step', 'end'}\n"
    "    The first, a further, or the last station.\n\n"
    "Raises\n------\n"
    "TypeError, ValueError, OverflowError\n    An argument is not what it should be.\n\n"
    "Examples\n--------\n"
    ">>> with eventprof.record() as rec:\n"
    "...     eventprof.flow(\"job\", 7, \"begin\")\n"
    "...     eventprof.flow(\"job\", 7, \"end\")\n"
    ">>> rec.trace.flows[[\"name\", \"id\", \"phase\"]]\n"
    "flows: 2 rows, 3 columns\n"
    "   name  id  phase\n"
    "0  job    7  begin\n"
    "1  job    7  end\n";

/* Returns: EVENTPROF_FLOW_BEGIN and so on, -1 with an exception. */
static int
phase_of(PyObject *word)
{
    PyObject *const words[] = {str_begin, str_step, str_end};
    for (int phase = 0; phase < 3; phase++) {
        if (word == words[phase]) {
            return phase;
        }
    }
    for (int phase = 0; phase < 3 && PyUnicode_Check(word); phase++) {
        if (PyUnicode_Compare(word, words[phase]) == 0) {
            return phase;
        }
    }
    PyErr_Format(PyUnicode_Check(word) ? PyExc_ValueError : PyExc_TypeError,
                 "flow(): phase must be 'begin', 'step' or 'end', not %R", word);
    return -1;
}

PyObject *
ep_py_flow(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (EP_UNLIKELY(count != 3)) {
        return refuse_count("flow(name, id, phase)", count);
    }
    if (!is_name("flow", args[0])) {
        return NULL;
    }
    if (EP_UNLIKELY(!PyLong_Check(args[1]))) {
        return PyErr_Format(PyExc_TypeError, "flow(): id must be an int, not %R", args[1]);
    }
    unsigned long long id = PyLong_AsUnsignedLongLong(args[1]);
    if (EP_UNLIKELY(id >= EP_FLOW_ID_LIMIT)) {
        if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_OverflowError)) {
            return NULL;
        }
        PyErr_Clear();
        return PyErr_Format(PyExc_ValueError, "flow(): id must be 0 or more and below 2**61, not %R",
                            args[1]);
    }
    int phase = phase_of(args[2]);
    if (phase < 0) {
        return NULL;
    }
    ep_log *log = records(EVENTPROF_FLOWS) ? ep_py_log_for(EP_KIND_FLOW) : NULL;
    if (log != NULL) {
        ep_put_value(log, EP_KIND_FLOW, name_of(log, args[0]), ep_py_frame_now(),
                     id << 2 | (uint64_t)phase);
    }
    Py_RETURN_NONE;
}

/* ---- Spans ----------------------------------------------------------------------------------- */

/* The collector does not track spans: they refer to their name only. */
typedef struct span_object {
    PyObject_HEAD
    PyObject *name;
    _Atomic uint64_t serial;    /* 0: not needed yet */
    bool wrapped;               /* a context manager of our package enters and leaves it, once */
    bool apart;                 /* wrapped: it is always loose */
    bool loose;                 /* wrapped: it was entered as a loose span */
} span_object;

static PyTypeObject *span_type;

const char ep_py_span_doc[] =
    "span($module, name, /)\n--\n\n"
    "Make a span: a context manager and decorator whose runs are calls of the trace.\n\n"
    "Parameters\n----------\n"
    "name : str\n"
    "    Kept as by `mark`.\n\n"
    "Returns\n-------\n"
    "Span\n"
    "    Can be used again, inside itself and on several threads, too. As a decorator of generator\n"
    "    and coroutine functions it lasts from the first step to the end.\n\n"
    "Raises\n------\n"
    "TypeError\n    `name` is no str.\n\n"
    "Notes\n-----\n"
    "A span in a generator or coroutine, or entered by a ``contextlib.ExitStack``, need not nest in\n"
    "the calls around it: it is in `Trace.spans`, as all are, and not in `Trace.calls`.\n\n"
    "Examples\n--------\n"
    ">>> with eventprof.record() as rec:\n"
    "...     with eventprof.span(\"sorting\"):\n"
    "...         sorted(\"text\")\n"
    "['e', 't', 't', 'x']\n"
    ">>> rec.trace.spans[\"name\"].tolist()\n"
    "['sorting']\n";

/* Our memory is not the program's until end_own(). Returns: the log, for it; NULL: nothing records. */
static ep_log *
begin_own(uint32_t *busy)
{
    ep_log *log = ep_log_current;
    if (EP_UNLIKELY(log == NULL) && ep_engine_kinds() != 0) {
        log = ep_log_mine();
    }
    *busy = ep_py_enter_ours();
    return log;
}

static void
end_own(ep_log *log, uint32_t busy)
{
    if (log != NULL) {
        ep_py_leave_own(busy);
    }
}

static void
span_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject *name = ((span_object *)object)->name;
    uint32_t busy = 0;
    ep_log *log = begin_own(&busy);
    PyObject_Free(object);
    end_own(log, busy);
    Py_DECREF(name);
    Py_DECREF(type);
}

static PyObject *
make_span(PyObject *const *args, Py_ssize_t count, bool wrapped, bool apart)
{
    if (EP_UNLIKELY(count != 1)) {
        return refuse_count("span(name)", count);
    }
    if (!is_name("span", args[0])) {
        return NULL;
    }
    uint32_t busy = 0;
    ep_log *log = begin_own(&busy);
    span_object *self = PyObject_New(span_object, span_type);
    end_own(log, busy);
    if (self != NULL) {
        self->name = Py_NewRef(args[0]);
        atomic_init(&self->serial, 0);
        self->wrapped = wrapped;
        self->apart = apart;
        self->loose = false;
    }
    return (PyObject *)self;
}

PyObject *
ep_py_span(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    return make_span(args, count, false, false);
}

PyObject *
ep_py_wrapped_span(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    return count == 2 ? make_span(args, 1, true, args[1] == Py_True)
                      : refuse_count("wrapped_span(name, apart)", count);
}

static uint64_t
serial_of(span_object *self)
{
    static _Atomic uint64_t last;
    uint64_t serial = atomic_load_explicit(&self->serial, memory_order_relaxed);
    if (serial == 0) {
        uint64_t fresh = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
        if (atomic_compare_exchange_strong(&self->serial, &serial, fresh)) {
            serial = fresh;
        }
    }
    return serial;
}

/* The nearest frame outside of our package, for a span that our package enters. *loose: that frame, or one
 * of our package's frames below it, is a coroutine. */
static EP_COLD ep_frame *
frame_around(ep_frame *frame, bool *loose)
{
    *loose = false;
    while (frame != NULL && ep_py_is_own_code(ep_frame_code(frame))) {
        *loose |= ep_frame_generator(frame) != NULL;
        frame = ep_frame_previous(frame);
    }
    *loose |= is_loose(frame);
    return frame;
}

static void
put_wrapped(ep_log *log, span_object *self, uint32_t name, bool end)
{
    bool loose;
    ep_frame *frame = frame_around(ep_py_frame_now(), &loose);
    if (!end) {
        self->loose = loose || self->apart;
    }
    if (self->loose) {
        uint64_t span = serial_of(self) << 1 | 1;
        ep_put_value(log, EP_KIND_FLOW, name, frame, (span << 1 | end) << 2 | LOOSE);
    } else if (end) {
        ep_log_put_at(log, ep_mark_now(), EP_KIND_SPAN_END, name);
    } else {
        ep_put_point(log, EP_KIND_SPAN_BEGIN, name, frame);
    }
}

static PyObject *
span_enter(PyObject *object, PyObject *unused)
{
    (void)unused;
    span_object *self = (span_object *)object;
    ep_log *log = records(EVENTPROF_SPANS) ? ep_py_log_for(EP_KIND_SPAN_BEGIN) : NULL;
    if (log != NULL) {
        ep_frame *frame = ep_py_frame_now();
        uint32_t name = name_of(log, self->name);
        if (EP_UNLIKELY(self->wrapped)) {
            put_wrapped(log, self, name, false);
        } else if (EP_UNLIKELY(is_loose(frame))) {
            put_loose(log, name, frame, serial_of(self), false);
        } else {
            ep_put_point(log, EP_KIND_SPAN_BEGIN, name, frame);
        }
    }
    return Py_NewRef(object);
}

static PyObject *
span_exit(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    (void)args;
    (void)count;
    span_object *self = (span_object *)object;
    ep_log *log = records(EVENTPROF_SPANS) ? ep_py_log_for(EP_KIND_SPAN_END) : NULL;
    if (log != NULL) {
        ep_ticks ticks = ep_mark_now();
        ep_frame *frame = ep_py_frame_now();
        uint32_t name = name_of(log, self->name);
        if (EP_UNLIKELY(self->wrapped)) {
            put_wrapped(log, self, name, true);
        } else if (EP_UNLIKELY(is_loose(frame))) {
            put_loose(log, name, frame, serial_of(self), true);
        } else {
            ep_log_put_at(log, ticks, EP_KIND_SPAN_END, name);
        }
    }
    Py_RETURN_FALSE;
}

static PyObject *
span_enter_bound(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    (void)args;
    if (EP_UNLIKELY(count != 0)) {
        return refuse_count("span.__enter__()", count);
    }
    return span_enter(object, NULL);
}

PyObject *
ep_py_decorate(PyObject *object, PyObject *args, PyObject *keywords, const char *form)
{
    PyObject *function;
    static char *names[] = {"function", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, form, names, &function)) {
        return NULL;
    }
    if (decorate == NULL) {
        PyObject *module = PyImport_ImportModule("eventprof.recording.marks");
        decorate = module != NULL ? PyObject_GetAttrString(module, "decorate") : NULL;
        Py_XDECREF(module);
    }
    return decorate != NULL ? PyObject_CallFunctionObjArgs(decorate, object, function, NULL) : NULL;
}

static PyObject *
span_call(PyObject *object, PyObject *args, PyObject *keywords)
{
    return ep_py_decorate(object, args, keywords, "O:span");
}

static PyObject *
span_repr(PyObject *object)
{
    return PyUnicode_FromFormat("eventprof.span(%R)", ((span_object *)object)->name);
}

static PyMethodDef span_methods[] = {
    {"__enter__", span_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))span_exit, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyObject *
span_get_name(PyObject *object, void *unused)
{
    (void)unused;
    return Py_NewRef(((span_object *)object)->name);
}

static PyGetSetDef span_properties[] = {
    {"name", span_get_name, NULL, "What it is called.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot span_slots[] = {
    {Py_tp_dealloc, span_dealloc},
    {Py_tp_call, span_call},
    {Py_tp_repr, span_repr},
    {Py_tp_methods, span_methods},
    {Py_tp_getset, span_properties},
    {Py_tp_doc, "A context manager and decorator; made by `eventprof.span`."},
    {0, NULL},
};

static PyType_Spec span_spec = {
    .name = "eventprof.Span",
    .basicsize = sizeof(span_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = span_slots,
};

/* ---- In and out ------------------------------------------------------------------------------ */

/* Finds the file name of contextlib's code objects: one str object for all of them. */
static void
find_contextlib(void)
{
    PyObject *module = PyImport_ImportModule("contextlib");
    PyObject *type = module != NULL ? PyObject_GetAttrString(module, "ExitStack") : NULL;
    PyObject *function = type != NULL ? PyObject_GetAttrString(type, "enter_context") : NULL;
    if (function != NULL && PyFunction_Check(function)) {
        contextlib_file = Py_NewRef(((PyCodeObject *)PyFunction_GET_CODE(function))->co_filename);
    }
    Py_XDECREF(function);
    Py_XDECREF(type);
    Py_XDECREF(module);
    PyErr_Clear();
}

int
ep_py_marks_init(PyObject *module)
{
    static const char other[] = "(another name)";
    if (name_ids == NULL) {
        ep_name_text text = {
            .qualname = {other, sizeof other - 1}, .line = -1, .kind = EP_NAME_USER};
        other_name = ep_name_of_text(&text);
        str_begin = PyUnicode_InternFromString("begin");
        str_step = PyUnicode_InternFromString("step");
        str_end = PyUnicode_InternFromString("end");
        name_ids = PyDict_New();
        span_type = (PyTypeObject *)PyType_FromSpec(&span_spec);
        if (other_name == 0 || str_begin == NULL || str_step == NULL || str_end == NULL ||
            name_ids == NULL || span_type == NULL ||
            ep_py_bind_cheaply(span_type, "__enter__", span_enter_bound) < 0 ||
            ep_py_bind_cheaply(span_type, "__exit__", span_exit) < 0 || ep_py_labels_init() < 0) {
            return -1;
        }
        find_contextlib();
        ep_py_marks_tell_waiting();
    }
    PyObject *capsule = PyCapsule_New((void *)&ep_py_marks_api, EVENTPROF_CAPSULE, NULL);
    int status = capsule != NULL ? PyModule_AddObjectRef(module, "_C_API", capsule) : -1;
    Py_XDECREF(capsule);
    return status;
}

static int
adjust(ep_kind_set kinds)
{
    uint32_t wanted = 0;
    wanted |= kinds & EP_KIND_BIT(EP_KIND_MARK) ? EVENTPROF_MARKS : 0;
    wanted |= kinds & (EP_KIND_BIT(EP_KIND_SPAN_BEGIN) | EP_KIND_BIT(EP_KIND_SPAN_END))
                  ? EVENTPROF_SPANS
                  : 0;
    wanted |= kinds & EP_KIND_BIT(EP_KIND_COUNTER) ? EVENTPROF_COUNTERS : 0;
    wanted |= kinds & EP_KIND_BIT(EP_KIND_FLOW) ? EVENTPROF_FLOWS : 0;
    atomic_store_explicit(&ep_py_marks_active, wanted, memory_order_relaxed);
    ep_py_labels_adjust((kinds & (EP_KIND_BIT(EP_KIND_LABEL) | EP_KIND_BIT(EP_KIND_LABEL_TEXT))) != 0);
    return 0;
}

static bool
owns(void)
{
    return true;
}

const ep_source ep_source_marks = {
    .name = "marks",
    .kinds = ep_kinds_user,
    .adjust = adjust,
    .owns = owns,
};
