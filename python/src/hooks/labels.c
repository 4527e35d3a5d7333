/* Labels: names and values that hold for all that the program does in a context (contextvars).
 *
 * A set of labels is the value of a context variable, so it goes where contexts go: over await, into
 * tasks, asyncio.to_thread() and copy_context().run(). The log says which set a thread has. A LABEL
 * record is written where label() is entered and left. A hook writes one before a call begins, if the
 * thread is in another context than at the call before. The interpreter counts how often a thread
 * changed its context (context_ver), so this costs one comparison, and only while any set of labels
 * exists (EP_TODO_LABELS).
 *
 *   LABEL_TEXT is written once for each chunk and thread, before the set is first used there. So a chunk
 *   can be understood without earlier chunks, which a ring may drop.
 *
 *   thread 1's chunk   [define 5][id: 7][thread has 5] [call] ... [thread has 0] [call] [thread has 5] ...
 *   thread 2's chunk   [call] [define 5][id: 7][thread has 5] [call] ...
 *
 * When no context has a set any more, nothing of it is kept: a service may make a set for each request. */
#include "labels.h"

#include <sys/random.h>
#include <unistd.h>

#include "engine.h"
#include "errors.h"
#include "intern.h"
#include "marks.h"
#include "own_blocks.h"

/* Of the value, in characters; a longer one is cut. */
#define VALUE_LENGTH 200
#define LABELS_MAX 32
/* The most sets within each other that are defined. More are a recursion; then the outermost are left
 * out. */
#define DEPTH_MAX 64
#define ID_BITS 61
enum {
    HOLDS,
    DEFINES,
    ADDS_TO,
    HELD
};    /* LABEL: id << 2 | what */
enum {
    PART_BYTES = 7,
    PART_MORE = 128
};

typedef struct label_part {
    uint32_t name;
    uint64_t word;
} label_part;

/* Constant, but for `parts`: newer parts are put in front of the list. */
typedef struct label_set {
    PyObject_HEAD
    struct label_set *parent;             /* whose labels it has, too; NULL: none */
    uint64_t id, owner;
    struct label_parts *_Atomic parts;    /* the first has all labels; the others are freed with the set */
} label_set;

typedef struct label_parts {
    struct label_parts *before;
    size_t count;
    label_part part[];
} label_parts;

typedef struct label_object {
    PyObject_HEAD
    PyObject *names, *values;    /* tuples */
    uint64_t serial;
} label_object;

static _Atomic bool recorded;
static _Atomic size_t set_count;
static _Atomic uint64_t last_serial, last_id;
static _Atomic pid_t id_process;
static PyTypeObject *set_type, *label_type;
static PyObject *variable;    /* the context variable: a set; None or nothing: no labels */
static PyObject *telemetry_names, *telemetry_ids, *str_telemetry, *str_ids;
static uint32_t labels_name;

static bool
is_recorded(void)
{
    return EP_UNLIKELY(atomic_load_explicit(&recorded, memory_order_relaxed));
}

/* ---- Sets ------------------------------------------------------------------------------------ */

/* Recordings of several processes may be merged, so ids must differ between processes. */
static uint64_t
new_id(void)
{
    pid_t process = getpid();
    if (EP_UNLIKELY(atomic_load(&id_process) != process)) {
        uint64_t random = 0;
        if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random) {
            random = ep_clock_ticks() * UINT64_C(0x9E3779B97F4A7C15) ^ (uint64_t)process << 40;
        }
        atomic_store(&last_id, random);
        atomic_store(&id_process, process);
    }
    uint64_t id = (atomic_fetch_add(&last_id, 1) + 1) & ((UINT64_C(1) << ID_BITS) - 1);
    return id != 0 ? id : new_id();
}

static void
set_dealloc(PyObject *object)
{
    label_set *self = (label_set *)object;
    PyTypeObject *type = Py_TYPE(object);
    label_set *parent = self->parent;
    for (label_parts *parts = self->parts; parts != NULL;) {
        label_parts *before = parts->before;
        free(parts);
        parts = before;
    }
    ep_log *log = ep_log_current;
    uint32_t busy = log != NULL ? ep_py_enter_ours() : 0;
    PyObject_Free(object);
    if (log != NULL) {
        ep_py_leave_own(busy);
    }
    atomic_fetch_sub(&set_count, 1);
    Py_XDECREF(parent);
    Py_DECREF(type);
}

/* The set that holds in the calling thread's context. Returns: new; NULL: none. */
static label_set *
current_set(void)
{
    PyObject *found = NULL;
    if (PyContextVar_Get(variable, NULL, &found) < 0) {
        PyErr_Clear();
        return NULL;
    }
    if (found != NULL && !Py_IS_TYPE(found, set_type)) {
        Py_CLEAR(found);
    }
    return (label_set *)found;
}

/* Text for a value, cut. Calls the program's __str__. Returns: new; NULL: no memory, or an exception is set
 * that must reach the program (KeyboardInterrupt). */
static PyObject *
text_of(PyObject *value)
{
    PyObject *text = PyUnicode_CheckExact(value) ? Py_NewRef(value) : PyObject_Str(value);
    if (text == NULL && PyErr_ExceptionMatches(PyExc_Exception)) {
        PyErr_Clear();
        text = PyUnicode_FromFormat("(%s without text)", Py_TYPE(value)->tp_name);
    }
    if (text != NULL && PyUnicode_GET_LENGTH(text) > VALUE_LENGTH) {
        PyObject *cut = PyUnicode_Substring(text, 0, VALUE_LENGTH - 3);
        Py_SETREF(text, cut != NULL ? PyUnicode_FromFormat("%U...", cut) : NULL);
        Py_XDECREF(cut);
    }
    return text;
}

static size_t
put_value(label_part *to, uint32_t name, ep_text text)
{
    size_t count = 0, at = 0;
    do {
        size_t bytes = text.bytes - at < PART_BYTES ? text.bytes - at : PART_BYTES;
        bool more = at + bytes < text.bytes;
        uint64_t word = 0;
        for (size_t i = 0; i < bytes; i++) {
            word |= (uint64_t)(unsigned char)text.at[at + i] << 8 * (i + 1);
        }
        to[count++] = (label_part){name, word | bytes | (more ? PART_MORE : 0)};
        at += bytes;
    } while (at < text.bytes);
    return count;
}

/* Makes the parts of these labels. before: labels that come first, or NULL. Returns: new (free). Fails:
 * NULL, with or without an exception. */
static label_parts *
make_parts(ep_log *log, PyObject *names, PyObject *const *values, const label_parts *before)
{
    const size_t most = (4 * VALUE_LENGTH + PART_BYTES - 1) / PART_BYTES;
    size_t had = before != NULL ? before->count : 0;
    Py_ssize_t labels = PyTuple_GET_SIZE(names);
    labels = labels < LABELS_MAX ? labels : LABELS_MAX;
    label_parts *parts = malloc(sizeof *parts + (had + (size_t)labels * most) * sizeof parts->part[0]);
    if (parts == NULL) {
        return NULL;
    }
    parts->count = had;
    parts->before = NULL;
    if (had != 0) {
        memcpy(parts->part, before->part, had * sizeof parts->part[0]);
    }
    for (Py_ssize_t i = 0; i < labels; i++) {
        PyObject *text = text_of(values[i]);
        if (text == NULL) {
            free(parts);
            return NULL;
        }
        char stack[4 * VALUE_LENGTH + 8], *heap;
        ep_text value = ep_py_text(text, stack, sizeof stack, &heap);
        uint32_t name = ep_py_mark_name(log, PyTuple_GET_ITEM(names, i));
        if (value.at != NULL) {
            parts->count += put_value(parts->part + parts->count, name, value);
        }
        free(heap);
        Py_DECREF(text);
    }
    /* A name may be in it twice: readers take the later value. */
    label_parts *less = realloc(parts, sizeof *parts + parts->count * sizeof parts->part[0]);
    return less != NULL ? less : parts;
}

/* Steals parent. Returns: new; NULL: no memory. */
static label_set *
make_set(label_set *parent, uint64_t owner, label_parts *parts)
{
    uint32_t busy = ep_py_enter_ours();
    label_set *set = PyObject_New(label_set, set_type);
    ep_py_leave_own(busy);
    if (set == NULL) {
        free(parts);
        Py_XDECREF(parent);
        return NULL;
    }
    set->parent = parent;
    set->id = new_id();
    set->owner = owner;
    atomic_init(&set->parts, parts);
    if (atomic_fetch_add(&set_count, 1) == 0) {
        ep_engine_set_todo(EP_TODO_LABELS);
    }
    return set;
}

/* ---- Records --------------------------------------------------------------------------------- */

static void
put(ep_log *log, uint64_t ticks, ep_kind kind, uint32_t name, uint64_t word)
{
    ep_log_put_value_at(log, ep_ticks_halves(ticks), kind, ep_py_place(log, name, NULL), word);
}

static void
define_one(ep_log *log, uint64_t ticks, const label_set *set)
{
    put(log, ticks, EP_KIND_LABEL, labels_name, set->id << 2 | DEFINES);
    if (set->parent != NULL) {
        put(log, ticks, EP_KIND_LABEL, labels_name, set->parent->id << 2 | ADDS_TO);
    }
    const label_parts *parts = atomic_load_explicit(&set->parts, memory_order_acquire);
    for (size_t i = 0; i < parts->count; i++) {
        put(log, ticks, EP_KIND_LABEL_TEXT, parts->part[i].name, parts->part[i].word);
    }
    log->label_defined[set->id % EP_LABELS_DEFINED] = set->id;
}

static void
define(ep_log *log, uint64_t ticks, const label_set *set)
{
    const label_set *missing[DEPTH_MAX];
    int count = 0;
    while (set != NULL && count < DEPTH_MAX &&
           log->label_defined[set->id % EP_LABELS_DEFINED] != set->id) {
        missing[count++] = set;
        set = set->parent;
    }
    while (count-- > 0) {
        define_one(log, ticks, missing[count]);
    }
}

/* Writes that the thread has these labels. If the chunk becomes full meanwhile, writes all of it again in
 * the next chunk, because the full one may be dropped. */
static void
put_holds(ep_log *log, uint64_t ticks, const label_set *set, uint64_t version)
{
    uint64_t what = set != NULL && set->id == log->label_set ? HELD : HOLDS;
    for (int tries = 0; tries < 3; tries++) {
        const ep_chunk *chunk = log->chunk;
        if (log->label_chunk != chunk || tries > 0) {
            memset(log->label_defined, 0, sizeof log->label_defined);
        }
        log->label_chunk = chunk;
        if (set != NULL) {
            define(log, ticks, set);
        }
        put(log, ticks, EP_KIND_LABEL, labels_name, (set != NULL ? set->id << 2 : 0) | what);
        if (log->chunk == chunk) {
            break;
        }
        log->label_chunk = log->chunk;
    }
    log->label_set = set != NULL ? set->id : 0;
    log->label_version = version;
}

static void
begin_anew(ep_log *log)
{
    if (log->todo & EP_TODO_LABELS_ANEW) {
        log->todo &= ~EP_TODO_LABELS_ANEW;
        log->label_chunk = NULL;
        log->label_set = 0;
    }
}

void
ep_py_labels_see_slow(ep_log *log, uint64_t ticks)
{
    begin_anew(log);
    PyThreadState *ts = ep_thread_state();
    if (ts == NULL || ep_py_labels_same(log, ts) || !is_recorded()) {
        return;
    }
    if (!ep_py_is_own_interpreter(ts)) {
        return;
    }
    if (atomic_load(&set_count) == 0 && log->label_set == 0) {
        log->todo &= ~EP_TODO_LABELS;
        if (atomic_load(&set_count) != 0) {
            log->todo |= EP_TODO_LABELS;    /* the first set came in between */
        }
        return;
    }
    ep_py_exception saved = ep_py_exception_save();
    label_set *set = current_set();
    uint64_t id = set != NULL ? set->id : 0;
    if (id != log->label_set || (id != 0 && log->label_chunk != log->chunk)) {
        put_holds(log, ep_log_not_before(log, ticks), set, ts->context_ver);
    }
    log->label_version = ts->context_ver;
    log->label_chunk = log->chunk;
    Py_XDECREF(set);
    ep_py_exception_restore(saved);
}

/* ---- From Python ----------------------------------------------------------------------------- */

const char ep_py_label_doc[] =
    "label($module, /, **labels)\n--\n\n"
    "Say for whom or what the program works: a context manager and decorator.\n\n"
    "Parameters\n----------\n"
    "**labels : object\n"
    "    Names and values, such as ``request_id=7``. Of a value its text is kept, up to 200\n"
    "    characters; of a value that has none, its type.\n\n"
    "Returns\n-------\n"
    "Label\n"
    "    Can be used again, inside itself and on several threads, too. Its ``add(**labels)`` gives\n"
    "    further labels to what it is around, also to what came before.\n\n"
    "Raises\n------\n"
    "TypeError\n    There are no labels, or some without a name.\n\n"
    "Notes\n-----\n"
    "Calls, spans and marks that begin inside have these labels. They go where contexts go: into\n"
    "coroutines and tasks, ``asyncio.to_thread`` and ``contextvars.copy_context().run``. They are kept\n"
    "in the recording alone, so there may be a value a request. While nothing records, nothing is done.\n\n"
    "Examples\n--------\n"
    ">>> with eventprof.record() as rec:\n"
    "...     with eventprof.label(request_id=7), eventprof.span(\"sorting\"):\n"
    "...         sorted(\"text\")\n"
    "['e', 't', 't', 'x']\n"
    ">>> rec.trace.spans[[\"name\", \"request_id\"]]\n"
    "spans: 1 row, 2 columns\n"
    "      name  request_id\n"
    "0  sorting           7\n";

static int
need_labels(const char *usage, Py_ssize_t count, PyObject *names)
{
    if (count != 0 || names == NULL || PyTuple_GET_SIZE(names) == 0) {
        PyErr_Format(PyExc_TypeError, "%s() takes names with values: %s(request_id=7)", usage, usage);
        return -1;
    }
    return 0;
}

PyObject *
ep_py_label(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    (void)module;
    if (need_labels("label", count, names) < 0) {
        return NULL;
    }
    PyObject *values = PyTuple_New(PyTuple_GET_SIZE(names));
    label_object *self = values != NULL ? PyObject_GC_New(label_object, label_type) : NULL;
    if (self == NULL) {
        Py_XDECREF(values);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++) {
        PyTuple_SET_ITEM(values, i, Py_NewRef(args[i]));
    }
    self->names = Py_NewRef(names);
    self->values = values;
    self->serial = atomic_fetch_add(&last_serial, 1) + 1;
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

PyObject *
ep_py_records_labels(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyBool_FromLong(is_recorded());
}

static int
label_traverse(PyObject *object, visitproc visit, void *arg)
{
    label_object *self = (label_object *)object;
    Py_VISIT(self->names);
    Py_VISIT(self->values);
    Py_VISIT(Py_TYPE(object));
    return 0;
}

static int
label_clear(PyObject *object)
{
    label_object *self = (label_object *)object;
    Py_CLEAR(self->values);
    return 0;
}

static void
label_dealloc(PyObject *object)
{
    label_object *self = (label_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_XDECREF(self->names);
    Py_XDECREF(self->values);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

/* Makes `set` (NULL: none) the one of the calling thread's context, and writes it. */
static void
hold(ep_log *log, label_set *set)
{
    PyObject *token = PyContextVar_Set(variable, set != NULL ? (PyObject *)set : Py_None);
    if (token == NULL) {
        PyErr_Clear();    /* no memory: these calls have no labels */
        return;
    }
    Py_DECREF(token);
    PyThreadState *ts = ep_thread_state();
    if (log != NULL && ts != NULL && ep_py_is_own_interpreter(ts)) {
        begin_anew(log);
        put_holds(log, ep_clock_ticks(), set, ts->context_ver);
    }
}

/* The ids of OpenTelemetry's active span as labels, if the program uses its library. Returns: new, a
 * tuple of texts as telemetry_names; NULL: there is none. */
static PyObject *
telemetry_values(void)
{
    PyObject *modules = ep_py_modules();
    PyObject *module = modules != NULL ? ep_py_dict_get(modules, str_telemetry) : NULL;
    if (EP_LIKELY(module == NULL)) {
        return NULL;
    }
    bool muted = ep_py_mute();    /* its code and ours is not the program's work */
    if (telemetry_ids == NULL) {
        PyObject *own = PyImport_ImportModule("eventprof.recording.telemetry");
        telemetry_ids = own != NULL ? PyObject_GetAttr(own, str_ids) : NULL;
        Py_XDECREF(own);
    }
    PyObject *ids = telemetry_ids != NULL
                        ? PyObject_CallFunctionObjArgs(telemetry_ids, module, NULL)
                        : NULL;
    if (muted) {
        ep_py_unmute();
    }
    Py_DECREF(module);
    PyErr_Clear();
    if (ids == Py_None) {
        Py_CLEAR(ids);
    }
    return ids;
}

/* The parts of a label, with the ids of OpenTelemetry first. Fails: NULL, with or without an exception. */
static label_parts *
all_parts(ep_log *log, label_object *self)
{
    PyObject *ids = telemetry_values();
    label_parts *before = NULL;
    if (ids != NULL) {
        before = make_parts(log, telemetry_names, ((PyTupleObject *)ids)->ob_item, NULL);
        PyErr_Clear();
        uint32_t busy = ep_py_enter_own();    /* they were made while the thread was muted */
        Py_DECREF(ids);
        ep_py_leave_own(busy);
    }
    label_parts *parts =
        make_parts(log, self->names, ((PyTupleObject *)self->values)->ob_item, before);
    free(before);
    return parts;
}

static PyObject *
label_enter(PyObject *object, PyObject *unused)
{
    (void)unused;
    label_object *self = (label_object *)object;
    ep_log *log = is_recorded() ? ep_py_log_for(EP_KIND_LABEL) : NULL;
    if (log != NULL && self->values != NULL) {
        label_parts *parts = all_parts(log, self);
        if (parts == NULL) {
            if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) {
                return NULL;
            }
            PyErr_Clear();
            return Py_NewRef(object);
        }
        label_set *set = make_set(current_set(), self->serial, parts);
        if (set != NULL) {
            hold(log, set);
            Py_DECREF(set);
        }
        PyErr_Clear();
    }
    return Py_NewRef(object);
}

/* Works even if nothing records any more, because the context must not keep the labels. */
static PyObject *
label_exit(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    (void)args;
    (void)count;
    label_object *self = (label_object *)object;
    if (EP_LIKELY(atomic_load_explicit(&set_count, memory_order_relaxed) == 0)) {
        Py_RETURN_FALSE;
    }
    label_set *set = current_set();
    /* If a generator is closed in another context than it began in, the set is another label's. */
    if (set != NULL && set->owner == self->serial) {
        hold(is_recorded() ? ep_py_log_for(EP_KIND_LABEL) : NULL, set->parent);
    }
    Py_XDECREF(set);
    Py_RETURN_FALSE;
}

static PyObject *
label_add(PyObject *object, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    label_object *self = (label_object *)object;
    if (need_labels("add", count, names) < 0) {
        return NULL;
    }
    ep_log *log = is_recorded() ? ep_py_log_for(EP_KIND_LABEL) : NULL;
    label_set *innermost = log != NULL ? current_set() : NULL, *set = innermost;
    while (set != NULL && set->owner != self->serial) {
        set = set->parent;
    }
    if (set != NULL) {
        label_parts *before = atomic_load(&set->parts);
        label_parts *parts = make_parts(log, names, args, before);
        if (parts != NULL) {
            parts->before = before;
            if (!atomic_compare_exchange_strong(&set->parts, &before, parts)) {
                free(parts);    /* another thread added some at this moment */
            }
            log->label_defined[set->id % EP_LABELS_DEFINED] = 0;
            PyThreadState *ts = ep_thread_state();
            if (ts != NULL && ep_py_is_own_interpreter(ts)) {
                begin_anew(log);
                put_holds(log, ep_clock_ticks(), innermost, ts->context_ver);
                if (set != innermost) {
                    define_one(log, ep_clock_ticks(), set);
                }
            }
        } else if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) {
            Py_DECREF(innermost);
            return NULL;
        }
        PyErr_Clear();
    }
    Py_XDECREF(innermost);
    Py_RETURN_NONE;
}

static PyObject *
label_call(PyObject *object, PyObject *args, PyObject *keywords)
{
    return ep_py_decorate(object, args, keywords, "O:label");
}

static PyObject *
label_repr(PyObject *object)
{
    label_object *self = (label_object *)object;
    return PyUnicode_FromFormat("<eventprof.label of %S>", self->names);
}

static PyMethodDef label_methods[] = {
    {"__enter__", label_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))label_exit, METH_FASTCALL, NULL},
    {"add", (PyCFunction)(void (*)(void))label_add, METH_FASTCALL | METH_KEYWORDS,
     "add($self, /, **labels)\n--\n\n"
     "Give further labels to what this is around now, also to what came before in it.\n\n"
     "It does nothing outside of the label, and while nothing records."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot label_slots[] = {
    {Py_tp_dealloc, label_dealloc},
    {Py_tp_traverse, label_traverse},
    {Py_tp_clear, label_clear},
    {Py_tp_call, label_call},
    {Py_tp_repr, label_repr},
    {Py_tp_methods, label_methods},
    {Py_tp_doc, "A context manager and decorator; made by `eventprof.label`."},
    {0, NULL},
};

static PyType_Spec label_spec = {
    .name = "eventprof.Label",
    .basicsize = sizeof(label_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_HAVE_GC,
    .slots = label_slots,
};

static PyType_Slot set_slots[] = {
    {Py_tp_dealloc, set_dealloc},
    {0, NULL},
};

static PyType_Spec set_spec = {
    .name = "eventprof._core.labels",
    .basicsize = sizeof(label_set),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = set_slots,
};

/* ---- In and out ------------------------------------------------------------------------------ */

int
ep_py_labels_init(void)
{
    static const char word[] = "labels";
    if (variable == NULL) {
        ep_name_text text = {
            .qualname = {word, sizeof word - 1}, .line = -1, .kind = EP_NAME_USER};
        labels_name = ep_name_of_text(&text);
        set_type = (PyTypeObject *)PyType_FromSpec(&set_spec);
        label_type = (PyTypeObject *)PyType_FromSpec(&label_spec);
        variable = PyContextVar_New("eventprof.labels", NULL);
        telemetry_names = Py_BuildValue("(ss)", "trace_id", "span_id");
        str_telemetry = PyUnicode_InternFromString("opentelemetry.trace");
        str_ids = PyUnicode_InternFromString("ids");
        bool made = telemetry_names && str_telemetry && str_ids && labels_name != 0 && set_type &&
                    label_type && variable;
        if (!made) {
            return -1;
        }
    }
    return 0;
}

void
ep_py_labels_adjust(bool wanted)
{
    atomic_store_explicit(&recorded, wanted, memory_order_relaxed);
}

void
ep_py_labels_begin(void)
{
    if (atomic_load(&set_count) != 0) {
        ep_engine_set_todo(EP_TODO_LABELS | EP_TODO_LABELS_ANEW);
    }
}
