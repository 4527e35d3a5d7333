/* Trace.rows(): chosen rows of the table of events, batch by batch (event_rows.h). */
#include "event_rows.h"

#include "arrays.h"
#include "intern.h"
#include "kinds.h"
#include "names.h"
#include "of_trace.h"
#include "trace_object.h"

int
ep_py_survey(ep_py_trace *self)
{
    ep_status status = EP_OK;
    ep_error error = {.text = ""};
    if (!self->trace.has_functions) {
        EP_PY_WITHOUT_GIL(
            self, status = ep_fold_trace(&self->trace, NULL, 0, false, "reading the file", &error));
    }
    if (status != EP_OK) {
        ep_py_raise_io(status, &error, self->path);
        return -1;
    }
    return 0;
}

/* survey(): see ep_py_survey(). */
PyObject *
ep_py_trace_survey(PyObject *object, PyObject *unused)
{
    (void)unused;
    return ep_py_survey((ep_py_trace *)object) < 0 ? NULL : Py_NewRef(Py_None);
}

/* glance() -> {duration_ns, kinds, threads} without reading events; None: they must be read first
 * (ep_trace_glance()). threads: as threads(), of which nothing was recorded yet. */
PyObject *
ep_py_trace_glance(PyObject *object, PyObject *unused)
{
    (void)unused;
    ep_py_trace *self = (ep_py_trace *)object;
    ep_glance glance;
    ep_status status;
    ep_error error = {.text = ""};
    EP_PY_WITHOUT_GIL(self, status = ep_trace_glance(&self->trace, &glance, &error));
    if (status != EP_OK) {
        return ep_py_raise_io(status, &error, self->path);
    }
    if (glance.head == NULL) {
        Py_RETURN_NONE;
    }
    PyObject *found = Py_BuildValue("{s:L,s:N,s:N}", "duration_ns", (long long)glance.head->duration_ns,
                                    "kinds", ep_py_kinds(glance.recording->kinds), "threads",
                                    ep_py_thread_rows(glance.head));
    ep_glance_clear(&glance);
    return found;
}

/* file_damage() -> the parts of its file that could not be read, as far as was found so far. */
PyObject *
ep_py_trace_file_damage(PyObject *object, PyObject *unused)
{
    (void)unused;
    ep_py_trace *self = (ep_py_trace *)object;
    uint64_t damage;
    EP_PY_WITHOUT_GIL(self, damage = ep_trace_file_damage(&self->trace));
    return PyLong_FromUnsignedLongLong(damage);
}

/* What gives batches to Python. */
typedef struct taker {
    PyObject *take, *columns;    /* borrowed: the callable; a tuple of names of columns */
    PyObject *functions;         /* borrowed: a list for functions that are new; NULL: none is wanted */
    const ep_event_rows *rows;
    PyThreadState *thread;       /* of the caller, who has given back the GIL */
    uint8_t *listed;             /* function_count long, by row: whether it is in the list */
    size_t listed_count;
} taker;

/* Fails: false, exception set. */
static bool
list_function(taker *to, int32_t function, uint32_t name_id)
{
    if (function < 0 || name_id == 0 ||
        ((size_t)function < to->listed_count && to->listed[function])) {
        return true;
    }
    if ((size_t)function >= to->listed_count) {
        size_t count = 2 * ((size_t)function + 64);
        uint8_t *listed = PyMem_Realloc(to->listed, count);
        if (listed == NULL) {
            PyErr_NoMemory();
            return false;
        }
        memset(listed + to->listed_count, 0, count - to->listed_count);
        to->listed = listed;
        to->listed_count = count;
    }
    to->listed[function] = 1;
    const ep_name *name = ep_name_get(name_id);
    PyObject *row = Py_BuildValue("iNNN", function, ep_py_string(name->qualname),
                                  ep_py_string(name->module), ep_py_string(name->file));
    bool done = row != NULL && PyList_Append(to->functions, row) == 0;
    Py_XDECREF(row);
    return done;
}

/* A site's function, as functions.c has it, and its caller. */
static bool
list_site(taker *to, const ep_id_map *map, uint32_t site_id)
{
    const ep_site *site = ep_site_get(site_id);
    uint32_t function = site->callee != 0 ? site->callee : site->caller;
    return list_function(to, map->site_function[site_id], function) &&
           list_function(to, map->site_caller[site_id], site->caller);
}

/* Lists the functions that a batch is the first to mention. Fails: false, exception set. */
static bool
list_functions(taker *to, const ep_trace *rows)
{
    const ep_columns *c = &rows->decoded.columns;
    const ep_id_map *map = &rows->functions.map;
    bool listed = true;
    for (size_t row = 0; row < c->count && listed; row++) {
        uint32_t id = c->id[row];
        if (!ep_kind_has_name(c->kind[row])) {
            listed = list_site(to, map, id);
            continue;
        }
        listed = list_function(to, map->name_function[id], id) &&
                 (rows->calls.row_call[row] < 0 || list_site(to, map, rows->calls.before[row].site));
    }
    return listed;
}

/* A fresh array. */
static PyObject *
column_array(const ep_trace *rows, const ep_column *column)
{
    void *data;
    size_t count = ep_column_count(rows, column);
    PyObject *array = ep_py_array(count, column->type, &data);
    if (array != NULL) {
        ep_column_fill(rows, column, (ep_part){0, count}, data);
    }
    return array;
}

/* Takes the reference of `array`. Fails: false, exception set. */
static bool
put_array(PyObject *batch, const char *name, PyObject *array)
{
    bool done = array != NULL && PyDict_SetItemString(batch, name, array) == 0;
    Py_XDECREF(array);
    return done;
}

/* Adds around, own_caller and own_line. Fails: false, exception set. */
static bool
add_own(taker *to, const ep_trace *rows, PyObject *batch)
{
    const ep_id_map *map = &rows->functions.map;
    size_t count = rows->decoded.columns.count;
    void *calls, *callers, *lines;
    if (!put_array(batch, "around", ep_py_array(count, EP_TYPE_INT64, &calls)) ||
        !put_array(batch, "own_caller", ep_py_array(count, EP_TYPE_INT32, &callers)) ||
        !put_array(batch, "own_line", ep_py_array(count, EP_TYPE_INT32, &lines))) {
        return false;
    }
    for (size_t row = 0; row < count; row++) {
        const ep_own_row *own = &to->rows->own[row];
        ((int64_t *)calls)[row] = (int64_t)own->call;
        ((int32_t *)callers)[row] = own->site != 0 ? map->site_caller[own->site] : -1;
        ((int32_t *)lines)[row] = own->site != 0 ? map->site_line[own->site] : -1;
    }
    return true;
}

/* Fails: NULL, exception set. */
static PyObject *
batch_object(taker *to, const ep_trace *rows, const int64_t *numbers)
{
    PyObject *batch = PyDict_New();
    void *data;
    bool failed =
        batch == NULL ||
        !put_array(batch, "row", ep_py_array(rows->decoded.columns.count, EP_TYPE_INT64, &data));
    if (!failed) {
        memcpy(data, numbers, rows->decoded.columns.count * sizeof *numbers);
        failed = (to->functions != NULL && !list_functions(to, rows)) ||
                 (to->rows->own != NULL && !add_own(to, rows, batch));
    }
    for (Py_ssize_t i = 0; !failed && i < PyTuple_GET_SIZE(to->columns); i++) {
        const char *name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(to->columns, i));
        failed = !put_array(batch, name, column_array(rows, ep_column_find(EP_TABLE_EVENTS, name)));
    }
    if (failed) {
        Py_CLEAR(batch);
    }
    return batch;
}

static bool
take(void *context, const ep_trace *rows, const int64_t *numbers)
{
    taker *to = context;
    PyEval_RestoreThread(to->thread);
    PyObject *batch = batch_object(to, rows, numbers);
    PyObject *wants_more = batch != NULL ? PyObject_CallOneArg(to->take, batch) : NULL;
    bool goes_on = wants_more != NULL && PyObject_IsTrue(wants_more) == 1;
    Py_XDECREF(batch);
    Py_XDECREF(wants_more);
    to->thread = PyEval_SaveThread();
    return goes_on;
}

/* Fails: -1, exception set. */
static int
check_columns(PyObject *columns)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(columns); i++) {
        PyObject *name = PyTuple_GET_ITEM(columns, i);
        const char *word = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
        if (word == NULL || ep_column_find(EP_TABLE_EVENTS, word) == NULL) {
            PyErr_Clear();    /* of surrogates */
            PyErr_Format(PyExc_KeyError, "events has no column %R", name);
            return -1;
        }
    }
    return 0;
}

/* rows(start, end, kinds, functions, threads, columns, take[, new_functions[, own]]): calls `take` with a
 * dict of arrays, the columns and `row`, for each batch of the events that were chosen, until it returns
 * false. functions, threads: a byte for each row of their tables, 1: chosen; None: all. new_functions: a
 * list; before each call it gets (row of functions, name, module, file) of those that no earlier batch
 * mentioned; None: not wanted. own: a byte for each function, 1: own code, or none; the dict has
 * own_caller and own_line then, where own code called last what led to the event, -1: nowhere, and around,
 * a number of the innermost call, which no other call of the thread has, 0: none. `take` may not use this
 * trace: it is locked. */
PyObject *
ep_py_trace_rows(PyObject *object, PyObject *args)
{
    ep_py_trace *self = (ep_py_trace *)object;
    ep_event_rows rows;
    ep_event_rows_open(&rows);
    taker to = {.rows = &rows};
    Py_buffer functions = {0}, threads = {0}, own = {0};
    PyObject *new_functions = Py_None;
    long long start, end;
    if (!PyArg_ParseTuple(args, "LLO&z*z*O!O|Oz*:rows", &start, &end, ep_py_kinds_from,
                          &rows.choice.kinds, &functions, &threads, &PyTuple_Type, &to.columns, &to.take,
                          &new_functions, &own)) {
        return NULL;
    }
    to.functions = new_functions != Py_None ? new_functions : NULL;
    ep_status status = EP_ARGUMENT;
    ep_error error = {.text = ""};
    if (to.functions != NULL && !PyList_Check(to.functions)) {
        PyErr_SetString(PyExc_TypeError, "new_functions must be a list or None");
    } else if (check_columns(to.columns) == 0) {
        rows.choice.from_ns = start;
        rows.choice.to_ns = end;
        rows.choice.functions = functions.buf;
        rows.choice.function_count = (size_t)functions.len;
        rows.choice.threads = threads.buf;
        rows.choice.thread_count = (size_t)threads.len;
        rows.choice.own = own.buf;
        rows.choice.own_count = (size_t)own.len;
        rows.take = take;
        rows.context = &to;
        ep_fold *fold = &rows.fold;
        to.thread = PyEval_SaveThread();
        ep_py_trace_lock(self);
        status = ep_fold_trace(&self->trace, &fold, 1, false, "reading events", &error);
        ep_py_parts gone = ep_py_trace_unlock(self);
        PyEval_RestoreThread(to.thread);
        ep_py_parts_drop(gone);
    }
    status = rows.stopped && status == EP_STATE ? EP_OK : status;
    rows.fold.type->clear(&rows.fold);
    PyMem_Free(to.listed);
    PyBuffer_Release(&functions);
    PyBuffer_Release(&threads);
    PyBuffer_Release(&own);
    if (PyErr_Occurred()) {
        return NULL;
    }
    return status == EP_OK ? Py_NewRef(Py_None) : ep_py_raise_io(status, &error, self->path);
}
