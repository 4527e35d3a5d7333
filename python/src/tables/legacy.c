/* The drop-in's work in C: the rows of cpyquickhelper's EventProfiler.
 *
 *   traces -----------\
 *                      > merged by time -> columns, one row an event; a *place* number in each
 *   what a user logs -/
 *   places -> function, Python function at work, caller, line
 *
 * A place is all of a row but its time and its values. There are many rows and few places, so text,
 * lines and categories are made once for each place (event_profiler.py), and ep_py_spread() copies them
 * to the rows. */
#include "legacy.h"

#include <structmember.h>

#include "array.h"
#include "arrays.h"
#include "decode.h"
#include "intern.h"
#include "os.h"
#include "pair.h"

/* ---- Places ---------------------------------------------------------------------------------- */

/* A place is the site of a row or, if the row has none, its name with this bit. */
#define PLACE_IS_NAME (UINT32_C(1) << 31)

/* Numbers places in order of appearance. */
typedef struct place_table {
    size_t site_count;
    uint32_t *number_of;    /* index: site id, or site_count + name id; 0: not seen; number + 1 */
    uint32_t *places;       /* index: number */
    size_t count, capacity;
    bool failed;            /* out of memory: numbers are not to be used */
} place_table;

static ep_status
place_table_open(place_table *table)
{
    /* Sites first: a site that is added in between is in none of our rows, but its names are counted. */
    *table = (place_table){.site_count = ep_site_count()};
    table->number_of = ep_array_new_zeroed(table->site_count + ep_name_count(), sizeof(uint32_t));
    return table->number_of != NULL ? EP_OK : EP_NOMEM;
}

static void
place_table_clear(place_table *table)
{
    free(table->number_of);
    free(table->places);
}

static EP_COLD int32_t
place_add(place_table *table, uint32_t place, uint32_t *number)
{
    if (!ep_grow((void **)&table->places, &table->capacity, table->count + 1,
                 sizeof *table->places)) {
        table->failed = true;
        return 0;
    }
    table->places[table->count++] = place;
    *number = (uint32_t)table->count;
    return (int32_t)(table->count - 1);
}

/* HOT, budget 1 ns. */
static inline int32_t
place_number(place_table *table, uint32_t place)
{
    size_t at = place & PLACE_IS_NAME ? table->site_count + (place & ~PLACE_IS_NAME) : place;
    uint32_t *number = &table->number_of[at];
    return EP_LIKELY(*number != 0) ? (int32_t)(*number - 1) : place_add(table, place, number);
}

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

/* legacy_places(places): four int32 arrays - name ids of the function and of the Python function at
 * work there, of the one that called it, and the line of the call. 0 and -1: unknown. */
PyObject *
ep_py_legacy_places(PyObject *module, PyObject *places)
{
    (void)module;
    Py_buffer in;
    int32_t *out[4];
    if (ep_py_intern_resolve() < 0 || PyObject_GetBuffer(places, &in, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    size_t count = (size_t)in.len / sizeof(uint32_t);
    PyObject *result = PyTuple_New(4);
    for (int i = 0; i < 4 && result != NULL; i++) {
        PyObject *array = ep_py_array(count, EP_TYPE_INT32, (void **)&out[i]);
        if (array == NULL) {
            Py_CLEAR(result);
        } else {
            PyTuple_SET_ITEM(result, i, array);
        }
    }
    for (size_t i = 0; i < count && result != NULL; i++) {
        uint32_t place = ((const uint32_t *)in.buf)[i];
        bool is_name = (place & PLACE_IS_NAME) != 0;
        const ep_site *site = ep_site_get(is_name ? 0 : place);
        uint32_t name = is_name ? place & ~PLACE_IS_NAME : site->callee;
        if (name == 0) {
            name = site->caller;    /* an allocation: by the function itself */
        }
        bool is_python = ep_name_get(name)->kind == EP_NAME_PYTHON;
        out[0][i] = (int32_t)name;
        out[1][i] = (int32_t)(is_python ? name : site->caller);
        out[2][i] = (int32_t)site->caller;
        out[3][i] = site->caller != 0 && site->line > 0 ? site->line : -1;
    }
    PyBuffer_Release(&in);
    return result;
}

/* legacy_names(ids): [(qualified name, module, file, first line, is Python's)]; unknown: None. */
PyObject *
ep_py_legacy_names(PyObject *module, PyObject *ids)
{
    (void)module;
    Py_buffer in;
    if (PyObject_GetBuffer(ids, &in, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    size_t count = (size_t)in.len / sizeof(int32_t);
    PyObject *rows = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; i < count && rows != NULL; i++) {
        uint32_t id = (uint32_t)((const int32_t *)in.buf)[i];
        const ep_name *name = ep_name_get(id);
        PyObject *row = Py_BuildValue("NNNiO", ep_py_string(name->qualname),
                                      ep_py_string(name->module), ep_py_string(name->file),
                                      (int)(name->line > 0 ? name->line : -1),
                                      id != 0 && name->kind == EP_NAME_PYTHON ? Py_True : Py_False);
        if (row == NULL) {
            Py_CLEAR(rows);
        } else {
            PyList_SET_ITEM(rows, (Py_ssize_t)i, row);
        }
    }
    PyBuffer_Release(&in);
    return rows;
}

/* ---- _core.LegacyLog: what the user logs --------------------------------------------- */

#define WORDS_MAX 32    /* of events; the original has 15 */

/* Instead of a thread, for events of the profiler itself. */
#define MARK (-1)

typedef struct logged {
    int64_t monotonic_ns;
    uint32_t place;
    int32_t thread;     /* native id, or MARK */
    int32_t word;
} logged;

/* Changed and read under the GIL, or the object's own lock where there is none: threads log at once. rows()
 * works on a copy. */
typedef struct legacy_log {
    PyObject_HEAD
    PyObject *words;            /* dict: word -> code, in the order of the columns' event numbers */
    PyObject *numbers;          /* dict: word -> event number */
    uint16_t code[WORDS_MAX];   /* index: event number */
    int8_t number_of_kind[EP_KIND_COUNT];
    size_t count, capacity;
    logged *rows;               /* in order of time */
} legacy_log;

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

/* ---- Rows ------------------------------------------------------------------------------------ */

/* Arrays of all rows; owned by the result. */
typedef struct row_columns {
    int64_t *time, *value1, *value2;
    int8_t *event;
    int32_t *place, *thread;    /* thread: NULL if it is not wanted */
    size_t place_step;          /* of `place`: 2 if it is the low halves of int64 */
} row_columns;

/* One trace being read. */
typedef struct trace_reader {
    const ep_trace *of;    /* its calls and blocks are paired; view */
    int32_t *native_id;    /* index: thread row */
    size_t row, alloc;     /* next */
} trace_reader;

typedef struct rows_job {
    trace_reader *traces;
    size_t trace_count;
    const logged *logged;
    size_t logged_count;
    const int8_t *number_of_kind;
    int64_t offset_ns;     /* onto monotonic times */
    place_table table;
    row_columns out;
} rows_job;

/* value2 of an allocator event. Its sum over all rows up to an instant is the live bytes then. */
static int64_t
size_change(const ep_columns *c, size_t alloc, const ep_kind_info *info)
{
    int64_t size = c->size[alloc];
    if (info->family == EP_FAMILY_FREE) {
        return size > 0 ? -size : 0;
    }
    if (EP_LIKELY(info->pairing == EP_PAIRING_OPENS)) {
        return size;
    }
    /* A realloc that failed: the old block stays alive, although its end was recorded. */
    for (size_t before = alloc; before-- > 0;) {
        if (c->address[before] == c->address[alloc]) {
            return c->size[before] > 0 ? c->size[before] : 0;
        }
    }
    return 0;
}

/* HOT, budget 10 ns a row. Rows of one trace before a time (on its own clock), from `at` on. */
static size_t
put_trace_rows(rows_job *job, trace_reader *trace, int64_t before_ns, size_t at)
{
    const ep_columns *c = &trace->of->decoded.columns;
    const ep_calls *calls = &trace->of->calls;
    const row_columns *out = &job->out;
    int64_t base = trace->of->recording.start.monotonic_ns + job->offset_ns;
    size_t row = trace->row, alloc = trace->alloc;
    for (; row < c->count && c->time_ns[row] < before_ns; row++, at++) {
        unsigned kind = c->kind[row];
        const ep_kind_info *info = &ep_kinds[kind];
        uint32_t place = c->id[row];
        out->time[at] = c->time_ns[row] + base;
        out->event[at] = job->number_of_kind[kind];
        if (out->thread != NULL) {
            out->thread[at] = trace->native_id[c->thread[row]];
        }
        if (info->family != EP_FAMILY_CALL) {
            out->value1[at] = (int64_t)c->address[alloc];
            out->value2[at] = size_change(c, alloc, info);
            alloc++;
        } else {
            out->value1[at] = out->value2[at] = 0;
            if (info->has_name) {
                int32_t call = calls->row_call[row];
                place = call >= 0 ? ep_call_site(calls, (size_t)call) : place | PLACE_IS_NAME;
            }
        }
        out->place[at * out->place_step] = place_number(&job->table, place);
    }
    trace->row = row;
    trace->alloc = alloc;
    return at;
}

static void
put_logged(rows_job *job, const logged *event, size_t at)
{
    job->out.time[at] = event->monotonic_ns + job->offset_ns;
    job->out.event[at] = (int8_t)event->word;
    if (job->out.thread != NULL) {
        job->out.thread[at] = event->thread;
    }
    job->out.value1[at] = job->out.value2[at] = 0;
    job->out.place[at * job->out.place_step] = place_number(&job->table, event->place);
}

/* Traces follow each other in time. */
static void
put_rows(rows_job *job)
{
    size_t at = 0, next = 0;
    for (size_t i = 0; i < job->trace_count; i++) {
        trace_reader *trace = &job->traces[i];
        int64_t start = trace->of->recording.start.monotonic_ns;
        while (trace->row < trace->of->decoded.columns.count) {
            if (next == job->logged_count) {
                at = put_trace_rows(job, trace, INT64_MAX, at);
                break;
            }
            at = put_trace_rows(job, trace, job->logged[next].monotonic_ns - start, at);
            if (trace->row < trace->of->decoded.columns.count) {
                put_logged(job, &job->logged[next++], at++);
            }
        }
    }
    for (; next < job->logged_count; next++, at++) {
        put_logged(job, &job->logged[next], at);
    }
}

/* Fails: -1, exception set; rows_job_clear() either way. */
static int
rows_job_open(rows_job *job, legacy_log *log, PyObject *traces, Py_ssize_t logged_count)
{
    logged *copy;
    EP_BEGIN_OBJECT(log);
    job->logged_count = logged_count >= 0 && (size_t)logged_count < log->count
                            ? (size_t)logged_count
                            : log->count;
    copy = calloc(job->logged_count + 1, sizeof *copy);
    if (copy != NULL && job->logged_count > 0) {
        memcpy(copy, log->rows, job->logged_count * sizeof *copy);
    }
    EP_END_OBJECT();
    job->number_of_kind = log->number_of_kind;
    job->traces = calloc((size_t)PyTuple_GET_SIZE(traces) + 1, sizeof *job->traces);
    job->logged = copy;
    if (copy == NULL || job->traces == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(traces); i++) {
        trace_reader *trace = &job->traces[job->trace_count];
        trace->of = ep_py_trace_paired(PyTuple_GET_ITEM(traces, i));
        if (trace->of == NULL) {
            return -1;
        }
        const ep_decoded *decoded = &trace->of->decoded;
        job->trace_count++;
        trace->native_id = calloc(decoded->thread_count + 1, sizeof *trace->native_id);
        if (trace->native_id == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        for (size_t thread = 0; thread < decoded->thread_count; thread++) {
            const ep_thread *of = decoded->threads[thread].thread;
            trace->native_id[thread] = of != NULL ? (int32_t)of->native_id : 0;
        }
    }
    /* After the traces were made, so that every id of theirs is counted. */
    if (place_table_open(&job->table) != EP_OK) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

static void
rows_job_clear(rows_job *job)
{
    for (size_t i = 0; i < job->trace_count; i++) {
        free(job->traces[i].native_id);
    }
    free(job->traces);
    free((void *)job->logged);
    place_table_clear(&job->table);
}

/* Returns: new tuple of arrays; the last, for the places, is still to come. */
static PyObject *
make_columns(row_columns *columns, size_t count, bool for_frame)
{
    const struct {
        ep_type type;
        void *at;
    } arrays[] = {
        {EP_TYPE_INT64, &columns->time},
        {EP_TYPE_INT8, &columns->event},
        {EP_TYPE_INT64, &columns->value1},
        {EP_TYPE_INT64, &columns->value2},
        {for_frame ? EP_TYPE_INT64 : EP_TYPE_INT32, &columns->place},
        {EP_TYPE_INT32, &columns->thread},
    };
    columns->place_step = for_frame ? 2 : 1;
    const int n = sizeof arrays / sizeof *arrays;
    PyObject *result = PyTuple_New(n + 1);
    for (int i = 0; i < n && result != NULL; i++) {
        bool wanted = !for_frame || arrays[i].at != (void *)&columns->thread;
        PyObject *array = wanted ? ep_py_array(count, arrays[i].type, arrays[i].at) : Py_NewRef(Py_None);
        if (array == NULL) {
            Py_CLEAR(result);
        } else {
            PyTuple_SET_ITEM(result, i, array);
        }
    }
    return result;
}

/* rows(traces, offset_ns, logged_count, for_frame): the events of these traces, which follow each other
 * in time, and the first of those logged (-1: all). Arrays: time int64 (monotonic + offset), event
 * int8 (index of the word), value1 and value2 int64, place int32 (index into the last), thread
 * int32 (native id; -1: a mark), places uint32 (for legacy_places()).
 * for_frame: fewer arrays, as the first touch of their memory is most of the time. There is no thread
 * (None), and place is int64 with undefined high halves: spread() turns it into a column. */
static PyObject *
log_rows(PyObject *object, PyObject *args)
{
    PyObject *traces, *result = NULL;
    long long offset_ns;
    Py_ssize_t logged_count;
    int for_frame;
    if (!PyArg_ParseTuple(args, "O!Lnp:rows", &PyTuple_Type, &traces, &offset_ns, &logged_count,
                          &for_frame)) {
        return NULL;
    }
    rows_job job = {.offset_ns = offset_ns};
    if (rows_job_open(&job, (legacy_log *)object, traces, logged_count) == 0) {
        size_t count = job.logged_count;
        for (size_t i = 0; i < job.trace_count; i++) {
            count += job.traces[i].of->decoded.columns.count;
        }
        result = make_columns(&job.out, count, for_frame);
    }
    if (result != NULL) {
        Py_BEGIN_ALLOW_THREADS
        put_rows(&job);
        Py_END_ALLOW_THREADS
        void *data;
        PyObject *places = job.table.failed
                               ? PyErr_NoMemory()
                               : ep_py_array(job.table.count, EP_TYPE_UINT32, &data);
        if (places == NULL) {
            Py_CLEAR(result);
        } else {
            if (job.table.count > 0) {
                memcpy(data, job.table.places, job.table.count * sizeof *job.table.places);
            }
            PyTuple_SET_ITEM(result, PyTuple_GET_SIZE(result) - 1, places);
        }
    }
    rows_job_clear(&job);
    return result;
}

/* ---- The same as one matrix ------------------------------------------------------------------ */

enum {
    RAW_TIME,
    RAW_EVENT,
    RAW_VALUE1,
    RAW_VALUE2,
    RAW_PLACE,
    RAW_THREAD,
    RAW_NAME,
    RAW_FRAME,
    RAW_IN
};

#define RAW_COLUMNS 6

typedef struct raw_job {
    Py_buffer in[RAW_IN];    /* views; the last two are indexed by place, the others by row */
    const uint16_t *code;    /* index: event number */
    size_t count;
    int64_t *out;            /* count rows of id_frame, id_arg, event, time, value1, value2 */
} raw_job;

/* HOT, budget 10 ns a row. */
static void
put_raw(const raw_job *job)
{
    const int64_t *time = job->in[RAW_TIME].buf, *value1 = job->in[RAW_VALUE1].buf,
                  *value2 = job->in[RAW_VALUE2].buf;
    const int32_t *place = job->in[RAW_PLACE].buf, *thread = job->in[RAW_THREAD].buf,
                  *name = job->in[RAW_NAME].buf, *frame = job->in[RAW_FRAME].buf;
    const int8_t *event = job->in[RAW_EVENT].buf;
    int64_t *to = job->out;
    for (size_t row = 0; row < job->count; row++, to += RAW_COLUMNS) {
        int32_t at = place[row];
        bool is_mark = thread[row] == MARK;
        to[0] = is_mark ? -1 : (int64_t)thread[row] << 32 | (int64_t)frame[at];
        to[1] = is_mark ? -1 : name[at] != frame[at] ? name[at]
                                                     : 0;
        to[2] = job->code[event[row]];
        to[3] = time[row];
        to[4] = value1[row];
        to[5] = value2[row];
    }
}

/* raw(time, event, value1, value2, place, thread, name, frame): what rows() gave, with the first
 * two arrays of legacy_places(), as int64, 6 for each row. */
static PyObject *
log_raw(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    static const size_t item_bytes[RAW_IN] = {8, 1, 8, 8, 4, 4, 4, 4};
    raw_job job = {.code = ((legacy_log *)object)->code};
    if (count != RAW_IN) {
        return PyErr_Format(PyExc_TypeError, "raw() takes %d arrays", RAW_IN);
    }
    PyObject *result = NULL;
    int taken = 0;
    for (; taken < RAW_IN; taken++) {
        if (PyObject_GetBuffer(args[taken], &job.in[taken], PyBUF_SIMPLE) < 0) {
            goto done;
        }
        size_t items = (size_t)job.in[taken].len / item_bytes[taken];
        job.count = taken == 0 ? items : job.count;
        if (taken <= RAW_THREAD && items != job.count) {
            taken++;
            PyErr_SetString(PyExc_ValueError, "raw(): the arrays differ in length");
            goto done;
        }
    }
    result = ep_py_array(job.count * RAW_COLUMNS, EP_TYPE_INT64, (void **)&job.out);
    if (result != NULL) {
        Py_BEGIN_ALLOW_THREADS
        put_raw(&job);
        Py_END_ALLOW_THREADS
    }
done:
    while (taken-- > 0) {
        PyBuffer_Release(&job.in[taken]);
    }
    return result;
}

static PyMethodDef log_methods[] = {
    {"log", (PyCFunction)(void (*)(void))log_log, METH_FASTCALL, NULL},
    {"mark", log_mark, METH_O, NULL},
    {"unmark", log_unmark, METH_NOARGS, NULL},
    {"rows", log_rows, METH_VARARGS, NULL},
    {"raw", (PyCFunction)(void (*)(void))log_raw, METH_FASTCALL, NULL},
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
