/* The drop-in's _core.LegacyLog: what a user logs himself, and the rows of that and of traces. */
#include "legacy.h"

#include <structmember.h>

#include "array.h"
#include "arrays.h"
#include "intern.h"
#include "legacy_places.h"
#include "memory.h"
#include "os.h"
#include "rows.h"
#include "trace_object.h"

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
        uintptr_t task;
        place = ep_py_code_site_from(ep_frame_code(frame), frame, caller_of(object_of_frame), &task);
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

/* ---- Rows -------------------------------------------------------------------------------------- */

/* The rows of the drop-in: of traces, and what a user logged, merged by time.
 *
 *   traces, by batches -\
 *                        > columns, one row an event; a *place* number in each
 *   what a user logged -/
 *   places -> lines, and categories of texts (legacy_places.h)
 *
 * A place is all of a row but its time and its values. There are many rows and few places. Columns are
 * written once, while the batch is in the processor's cache: the memory is most of the time. */

/* id_frame, id_arg, event, time, value1, value2 */
#define RAW_COLUMNS 6

/* A column of codes: as wide as the categories so far need, like those of pandas. */
typedef struct codes_column {
    void *memory;    /* owned until it is an array */
    ep_type type;
} codes_column;

/* Arrays of all rows; owned by the result. */
typedef struct row_columns {
    /* A dataframe. */
    int64_t *time, *value1, *value2;    /* values: zero from the start */
    int8_t *event;
    int64_t *first_line, *line;
    codes_column codes[EP_LEGACY_TEXTS];
    /* Or a matrix. */
    int64_t (*raw)[RAW_COLUMNS];
} row_columns;

typedef struct rows_job {
    ep_rows rows;           /* the first member, for take_rows() */
    ep_legacy_places places;
    PyObject *traces;       /* tuple; view */
    logged *logged;
    size_t logged_count, next_logged;
    const legacy_log *log;  /* view */
    int64_t offset_ns;      /* onto monotonic times */
    int64_t start_ns;       /* monotonic; of the trace that is being read */
    uint64_t lost;
    bool for_frame;
    row_columns out;
    size_t at, room;        /* the next row; how many there can be */
} rows_job;

/* ---- Codes --------------------------------------------------------------------------------- */

/* pandas would copy codes of another type. */
static ep_type
type_of_codes(size_t categories)
{
    return categories < INT8_MAX ? EP_TYPE_INT8 : categories < INT16_MAX ? EP_TYPE_INT16
                                                                         : EP_TYPE_INT32;
}

/* Codes as a wider type. */
static EP_CHECKED ep_status
widen(const rows_job *job, codes_column *codes, ep_type type)
{
    void *wider = ep_array_new(job->room, ep_type_bytes(type));
    if (wider == NULL) {
        return EP_NOMEM;
    }
    for (size_t i = 0; i < job->at; i++) {
        int32_t code = codes->type == EP_TYPE_INT8 ? ((int8_t *)codes->memory)[i]
                                                   : ((int16_t *)codes->memory)[i];
        if (type == EP_TYPE_INT16) {
            ((int16_t *)wider)[i] = (int16_t)code;
        } else {
            ((int32_t *)wider)[i] = code;
        }
    }
    free(codes->memory);
    codes->memory = wider;
    codes->type = type;
    return EP_OK;
}

/* Learns what is said of places that no row had before. */
static EP_CHECKED ep_status
learn(rows_job *job)
{
    ep_status status = EP_OK;
    if (job->places.count < job->rows.place_count) {
        status = ep_legacy_learn(&job->places, job->rows.places, job->rows.place_count);
    }
    for (int i = 0; i < EP_LEGACY_TEXTS && job->for_frame && status == EP_OK; i++) {
        bool is_name = i == EP_LEGACY_NAME || i == EP_LEGACY_FROM_NAME;
        ep_type type = type_of_codes((is_name ? &job->places.names : &job->places.files)->count);
        if (type != job->out.codes[i].type) {
            status = widen(job, &job->out.codes[i], type);
        }
    }
    return status;
}

/* ---- Writing --------------------------------------------------------------------------------- */

#define PUT_CODES(ctype)                                                    \
    do {                                                                    \
        ctype *restrict codes_ = (ctype *)job->out.codes[text].memory + at; \
        for (size_t i = 0; i < count; i++) {                                \
            codes_[i] = (ctype)places[numbers[i]].code[text];               \
        }                                                                   \
    } while (0)

/* Codes of any types; for most programs they are bytes, see put_lines(). */
static void
put_codes(const rows_job *job, const uint32_t *numbers, size_t count)
{
    const ep_legacy_place *places = job->places.rows;
    size_t at = job->at;
    for (int text = 0; text < EP_LEGACY_TEXTS; text++) {
        ep_type type = job->out.codes[text].type;
        if (type == EP_TYPE_INT8) {
            PUT_CODES(int8_t);
        } else if (type == EP_TYPE_INT16) {
            PUT_CODES(int16_t);
        } else {
            PUT_CODES(int32_t);
        }
    }
}

static void
put_lines(const rows_job *job, const uint32_t *numbers, size_t count)
{
    const ep_legacy_place *places = job->places.rows;
    int64_t *restrict first_line = job->out.first_line + job->at, *restrict line = job->out.line + job->at;
    for (size_t i = 0; i < count; i++) {
        const ep_legacy_place *place = &places[numbers[i]];
        first_line[i] = place->first_line;
        line[i] = place->line;
    }
}

static bool
codes_are_bytes(const rows_job *job)
{
    bool all = true;
    for (int i = 0; i < EP_LEGACY_TEXTS; i++) {
        all = all && job->out.codes[i].type == EP_TYPE_INT8;
    }
    return all;
}

/* Four codes in one load: a third of the instructions. */
static void
put_bytes(const rows_job *job, const uint32_t *numbers, size_t count)
{
    const ep_legacy_place *places = job->places.rows;
    size_t at = job->at;
    uint8_t *restrict code0 = (uint8_t *)job->out.codes[0].memory + at;
    uint8_t *restrict code1 = (uint8_t *)job->out.codes[1].memory + at;
    uint8_t *restrict code2 = (uint8_t *)job->out.codes[2].memory + at;
    uint8_t *restrict code3 = (uint8_t *)job->out.codes[3].memory + at;
    for (size_t i = 0; i < count; i++) {
        uint32_t bytes = places[numbers[i]].bytes;
        code0[i] = (uint8_t)bytes;
        code1[i] = (uint8_t)(bytes >> 8);
        code2[i] = (uint8_t)(bytes >> 16);
        code3[i] = (uint8_t)(bytes >> 24);
    }
}

/* What is known of the places of rows. */
static void
put_places(const rows_job *job, const uint32_t *numbers, size_t count)
{
    put_lines(job, numbers, count);
    if (codes_are_bytes(job)) {
        put_bytes(job, numbers, count);
    } else {
        put_codes(job, numbers, count);
    }
}

static EP_CHECKED ep_status
put_logged(rows_job *job, const logged *event)
{
    size_t at = job->at;
    int64_t time_ns = event->monotonic_ns + job->offset_ns;
    uint32_t number = ep_rows_number_of_site(&job->rows, event->place);
    if (number == UINT32_MAX || learn(job) != EP_OK) {
        return EP_NOMEM;
    }
    if (job->for_frame) {
        job->out.time[at] = time_ns;
        job->out.event[at] = (int8_t)event->word;
        put_places(job, &number, 1);
    } else {
        const ep_legacy_place *place = &job->places.rows[number];
        bool is_mark = event->thread == MARK;
        int64_t *to = job->out.raw[at];
        to[0] = is_mark ? -1 : (int64_t)event->thread << 32 | (int64_t)place->frame;
        to[1] = is_mark ? -1 : place->arg;
        to[2] = job->log->code[event->word];
        to[3] = time_ns;
        to[4] = to[5] = 0;
    }
    job->at++;
    return EP_OK;
}

/* The part of a batch that is still to come. */
typedef struct rest {
    const ep_batch *batch;
    const uint32_t *numbers;
    const int64_t *changes;
    size_t from, alloc;
} rest;

/* HOT, budget 7 ns a row, most of it the first touch of memory. Rows up to `to`. */
static void
put_columns(rows_job *job, rest *left, size_t to)
{
    const ep_columns *c = left->batch->columns;
    size_t at = job->at, from = left->from, count = to - from;
    int64_t base_ns = job->start_ns + job->offset_ns;
    const int64_t *restrict times = c->time_ns + from;
    int64_t *restrict time = job->out.time + at;
    const uint8_t *restrict kinds = c->kind + from;
    const int8_t *restrict number_of_kind = job->log->number_of_kind;
    int8_t *restrict event = job->out.event + at;
    for (size_t i = 0; i < count; i++) {
        time[i] = times[i] + base_ns;
        event[i] = number_of_kind[kinds[i]];
    }
    put_places(job, left->numbers + (from - left->batch->from), count);
    const int64_t *restrict changes = left->changes - left->batch->alloc_from;
    const uint64_t *restrict addresses = c->address, *restrict rows = c->alloc_row;
    int64_t *restrict value1 = job->out.value1 + at, *restrict value2 = job->out.value2 + at;
    size_t alloc = left->alloc, alloc_count = c->alloc_count;
    for (; alloc < alloc_count && rows[alloc] < to; alloc++) {
        value1[rows[alloc] - from] = (int64_t)addresses[alloc];
        value2[rows[alloc] - from] = changes[alloc];
    }
    left->alloc = alloc;
}

/* HOT, budget 7 ns a row. */
static void
put_matrix(rows_job *job, rest *left, size_t to)
{
    const ep_columns *c = left->batch->columns;
    const uint32_t *numbers = left->numbers + (left->from - left->batch->from);
    int64_t (*out)[RAW_COLUMNS] = job->out.raw + job->at;
    int64_t base_ns = job->start_ns + job->offset_ns;
    for (size_t row = left->from, i = 0; row < to; row++, i++) {
        const ep_legacy_place *place = &job->places.rows[numbers[i]];
        const ep_thread *thread = job->rows.of_threads[c->thread[row]].thread;
        int64_t native_id = thread != NULL ? (int32_t)thread->native_id : 0;
        bool is_block = left->alloc < c->alloc_count && c->alloc_row[left->alloc] == row;
        out[i][0] = native_id << 32 | (int64_t)place->frame;
        out[i][1] = place->arg;
        out[i][2] = ep_kinds[c->kind[row]].legacy;
        out[i][3] = c->time_ns[row] + base_ns;
        out[i][4] = is_block ? (int64_t)c->address[left->alloc] : 0;
        out[i][5] = is_block ? left->changes[left->alloc - left->batch->alloc_from] : 0;
        left->alloc += is_block;
    }
}

static void
put_batch(rows_job *job, rest *left, size_t to)
{
    if (job->for_frame) {
        put_columns(job, left, to);
    } else {
        put_matrix(job, left, to);
    }
    job->at += to - left->from;
    left->from = to;
}

/* The first row of a batch from `from` on that is not before a time, or its end. */
static size_t
first_at(const ep_batch *batch, size_t from, int64_t time_ns)
{
    const int64_t *times = batch->columns->time_ns;
    size_t low = from, high = batch->to;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (times[middle] < time_ns) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static ep_status
take_rows(ep_rows *rows, const ep_batch *batch, const uint32_t *numbers, const int64_t *changes)
{
    rows_job *job = (rows_job *)rows;
    rest next = {batch, numbers, changes, batch->from, batch->alloc_from};
    if (batch->to - batch->from > job->room - job->at) {
        return EP_STATE;    /* ep_rows_most() is wrong */
    }
    if (learn(job) != EP_OK) {
        return EP_NOMEM;
    }
    for (;;) {
        const logged *event =
            job->next_logged < job->logged_count ? &job->logged[job->next_logged] : NULL;
        put_batch(job, &next,
                  event != NULL ? first_at(batch, next.from, event->monotonic_ns - job->start_ns)
                                : batch->to);
        if (next.from == batch->to) {
            return EP_OK;
        }
        job->next_logged++;
        if (put_logged(job, event) != EP_OK) {
            return EP_NOMEM;
        }
    }
}

/* ---- The job ----------------------------------------------------------------------------------- */

/* A trace of the tuple. Fails: NULL, exception set. */
static ep_py_trace *
trace_at(const rows_job *job, Py_ssize_t i)
{
    PyObject *trace = PyTuple_GET_ITEM(job->traces, i);
    if (!Py_IS_TYPE(trace, ep_py_trace_type)) {
        return (ep_py_trace *)PyErr_Format(PyExc_TypeError, "a _core.Trace is needed, not %s",
                                           Py_TYPE(trace)->tp_name);
    }
    return (ep_py_trace *)trace;
}

/* Fails: -1, exception set; rows_job_clear() either way. */
static int
rows_job_open(rows_job *job, legacy_log *log, PyObject *args)
{
    long long offset_ns;
    Py_ssize_t logged_count;
    if (!PyArg_ParseTuple(args, "O!Ln", &PyTuple_Type, &job->traces, &offset_ns, &logged_count)) {
        return -1;
    }
    job->offset_ns = offset_ns;
    EP_BEGIN_OBJECT(log);
    job->logged_count = logged_count >= 0 && (size_t)logged_count < log->count
                            ? (size_t)logged_count
                            : log->count;
    job->logged = calloc(job->logged_count + 1, sizeof *job->logged);
    if (job->logged != NULL && job->logged_count > 0) {
        memcpy(job->logged, log->rows, job->logged_count * sizeof *job->logged);
    }
    EP_END_OBJECT();
    job->log = log;
    /* After the traces were made, so that every id of theirs is known. */
    if (ep_py_intern_resolve() < 0) {
        return -1;
    }
    if (ep_rows_open(&job->rows, take_rows) != EP_OK || job->logged == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    job->room = job->logged_count;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(job->traces); i++) {
        ep_py_trace *trace = trace_at(job, i);
        if (trace == NULL) {
            return -1;
        }
        EP_PY_WITHOUT_GIL(trace, job->room += ep_rows_most(&trace->trace));
    }
    return 0;
}

static void
rows_job_clear(rows_job *job)
{
    free(job->logged);
    for (int i = 0; i < EP_LEGACY_TEXTS; i++) {
        free(job->out.codes[i].memory);
    }
    ep_legacy_places_clear(&job->places);
    if (job->rows.fold.type != NULL) {
        job->rows.fold.type->clear(&job->rows.fold);
    }
}

/* Traces follow each other in time. Fails: -1, exception set. */
static int
put_rows(rows_job *job)
{
    ep_status status = EP_OK;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(job->traces); i++) {
        ep_py_trace *trace = trace_at(job, i);
        ep_error error = {.text = ""};
        uint64_t lost = 0;
        job->start_ns = trace->trace.recording.start.monotonic_ns;
        EP_PY_WITHOUT_GIL(trace, status = ep_rows_read(&job->rows, &trace->trace, &lost, &error));
        if (status != EP_OK) {
            ep_py_raise_io(status, &error, trace->path);
            return -1;
        }
        job->lost += lost;
    }
    for (; job->next_logged < job->logged_count && status == EP_OK; job->next_logged++) {
        status = put_logged(job, &job->logged[job->next_logged]);
    }
    if (status != EP_OK) {
        PyErr_NoMemory();
    }
    return status == EP_OK ? 0 : -1;
}

/* steals item, which may be NULL with an exception. Fails: false, exception set. */
static bool
append_new(PyObject *list, PyObject *item)
{
    bool done = item != NULL && PyList_Append(list, item) == 0;
    Py_XDECREF(item);
    return done;
}

/* Arrays for as many rows as there can be: what is not written costs no memory. Returns: new list. */
static PyObject *
make_columns(rows_job *job)
{
    row_columns *out = &job->out;
    size_t room = job->room;
    PyObject *list = PyList_New(0);
    bool has_all = list != NULL;
    if (!job->for_frame) {
        PyObject *raw =
            has_all ? ep_py_array(room * RAW_COLUMNS, EP_TYPE_INT64, (void **)&out->raw) : NULL;
        has_all = has_all && append_new(list, raw);
    } else {
        has_all = has_all && append_new(list, ep_py_array(room, EP_TYPE_INT64, (void **)&out->time)) &&
                  append_new(list, ep_py_array(room, EP_TYPE_INT8, (void **)&out->event)) &&
                  append_new(list, ep_py_array_zeroed(room, EP_TYPE_INT64, (void **)&out->value1)) &&
                  append_new(list, ep_py_array_zeroed(room, EP_TYPE_INT64, (void **)&out->value2)) &&
                  append_new(list, ep_py_array(room, EP_TYPE_INT64, (void **)&out->first_line)) &&
                  append_new(list, ep_py_array(room, EP_TYPE_INT64, (void **)&out->line));
    }
    for (int i = 0; i < EP_LEGACY_TEXTS && job->for_frame && has_all; i++) {
        out->codes[i] = (codes_column){.memory = ep_array_new(room, 1), .type = EP_TYPE_INT8};
        if (out->codes[i].memory == NULL) {
            PyErr_NoMemory();
            has_all = false;
        }
    }
    if (!has_all) {
        Py_CLEAR(list);
    }
    return list;
}

/* Adds the codes, which did not have their type before. Fails: -1, exception set. */
static int
add_codes(rows_job *job, PyObject *list)
{
    for (int i = 0; i < EP_LEGACY_TEXTS && job->for_frame; i++) {
        codes_column *codes = &job->out.codes[i];
        void *memory = codes->memory;
        codes->memory = NULL;
        if (!append_new(list, ep_py_array_of(memory, job->room, codes->type))) {
            return -1;
        }
    }
    return 0;
}

/* Returns: new tuple of the arrays, cut after the last row; the categories, and the loss. */
static PyObject *
finish_columns(rows_job *job, PyObject *list)
{
    if (add_codes(job, list) < 0) {
        return NULL;
    }
    Py_ssize_t count = (Py_ssize_t)(job->for_frame ? job->at : job->at * RAW_COLUMNS);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        PyObject *part = PySequence_GetSlice(PyList_GET_ITEM(list, i), 0, count);
        if (part == NULL || PyList_SetItem(list, i, part) < 0) {    /* steals part */
            return NULL;
        }
    }
    if (job->for_frame && (!append_new(list, ep_legacy_words_list(&job->places.names, false)) ||
                           !append_new(list, ep_legacy_words_list(&job->places.files, true)))) {
        return NULL;
    }
    return append_new(list, PyLong_FromUnsignedLongLong(job->lost)) ? PyList_AsTuple(list) : NULL;
}

static PyObject *
run_rows_job(PyObject *log, PyObject *args, bool for_frame)
{
    rows_job job = {.for_frame = for_frame};
    PyObject *list = NULL, *result = NULL;
    if (rows_job_open(&job, (legacy_log *)log, args) == 0) {
        list = make_columns(&job);
    }
    if (list != NULL && put_rows(&job) == 0) {
        result = finish_columns(&job, list);
    }
    Py_XDECREF(list);
    rows_job_clear(&job);
    return result;
}

/* raw(traces, offset_ns, logged_count): the events of these traces, which follow each other in time, and
 * the first of those logged (-1: all), as int64, 6 for each: id_frame, id_arg, event, time (monotonic +
 * offset), value1, value2. Then the count of lost events. */
static PyObject *
log_raw(PyObject *object, PyObject *args)
{
    return run_rows_job(object, args, false);
}

/* frame(traces, offset_ns, logged_count): the same for a dataframe. Arrays: time int64, event int8 (index
 * of the word), value1 and value2 int64, first line and line of the call int64, codes of name, mod,
 * from_name and from_mod, as wide as their categories need (-1: unknown). Then the categories: [name],
 * [(file or module, whether it is a file of Python code)]. Last, the count of lost events. */
static PyObject *
log_frame(PyObject *object, PyObject *args)
{
    return run_rows_job(object, args, true);
}

/* ---- The type ---------------------------------------------------------------------------------- */

static PyMethodDef log_methods[] = {
    {"log", (PyCFunction)(void (*)(void))log_log, METH_FASTCALL, NULL},
    {"mark", log_mark, METH_O, NULL},
    {"unmark", log_unmark, METH_NOARGS, NULL},
    {"raw", log_raw, METH_VARARGS, NULL},
    {"frame", log_frame, METH_VARARGS, NULL},
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
