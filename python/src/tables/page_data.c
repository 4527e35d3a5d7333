/* _core.PageData: what the page in the browser has of a trace. The package asks for tiles on several
 * threads at once, and compresses them. */
#define PY_SSIZE_T_CLEAN
#include "page_data.h"

#include "array.h"
#include "arrays.h"
#include "page.h"

typedef struct page_data {
    PyObject_HEAD
    ep_page *page;
    PyObject *trace;    /* keeps what the page reads */
    Py_buffer task;     /* of set_tasks(); .obj NULL: none */
    ep_peak peak;
} page_data;

static const ep_page *
page_of(PyObject *object)
{
    return ((page_data *)object)->page;
}

/* ---- Making ---------------------------------------------------------------------------------- */

static void
data_dealloc(PyObject *object)
{
    page_data *self = (page_data *)object;
    PyTypeObject *type = Py_TYPE(object);
    ep_page_close(self->page);
    if (self->task.obj != NULL) {
        PyBuffer_Release(&self->task);
    }
    Py_XDECREF(self->trace);
    type->tp_free(object);
    Py_DECREF(type);
}

/* The page reads what pairing made, which never changes, and the functions and flags of calls: when they
 * are filled, it needs the trace's lock no more, and a fold can pass the events meanwhile. Fails: false,
 * exception set. */
static bool
open_page(ep_py_trace *trace, ep_page_wanted *wanted, page_data *self)
{
    ep_status status;
    EP_PY_WITHOUT_GIL(trace, status = ep_calls_fill(&trace->trace.calls, EP_CALLS_RECURSIVE));
    if (status == EP_OK) {
        Py_BEGIN_ALLOW_THREADS
        self->peak = ep_summary_peak(&trace->trace.blocks, EP_DOMAINS_ALL);
        wanted->peak_ns = self->peak.time;
        status = ep_page_open(&trace->trace, wanted, &self->page);
        Py_END_ALLOW_THREADS
    }
    if (status != EP_OK) {
        ep_py_raise(status, NULL);
    }
    return status == EP_OK;
}

/* PageData(trace, own, codes, grain, tile, group, duration). own: a byte for each function; codes: 256
 * bytes, by kind. */
static PyObject *
data_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *trace;
    Py_buffer own, codes;
    long long grain, tile, group, duration;
    if (kwargs != NULL && PyDict_GET_SIZE(kwargs) > 0) {
        PyErr_SetString(PyExc_TypeError, "PageData() takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "Oy*y*LLLL:PageData", &trace, &own, &codes, &grain, &tile, &group,
                          &duration)) {
        return NULL;
    }
    page_data *self = NULL;
    const ep_trace *paired = ep_py_trace_paired(trace);
    if (paired != NULL && (grain < 1 || tile < 1 || tile > INT32_MAX || group < 1 ||
                           group > INT32_MAX || codes.len != 256 ||
                           (size_t)own.len < paired->input.map->function_count)) {
        PyErr_SetString(PyExc_ValueError,
                        "PageData: a byte for each function, 256 for kinds, a grain and a tile");
    } else if (paired != NULL) {
        self = (page_data *)type->tp_alloc(type, 0);
    }
    if (self != NULL) {
        self->trace = Py_NewRef(trace);
        ep_page_wanted wanted = {
            .grain = grain,
            .tile = (size_t)tile,
            .group = (int32_t)group,
            .own = own.buf,
            .codes = codes.buf,
            .duration_ns = duration,
        };
        if (!open_page((ep_py_trace *)trace, &wanted, self)) {
            Py_CLEAR(self);
        }
    }
    PyBuffer_Release(&own);
    PyBuffer_Release(&codes);
    return (PyObject *)self;
}

/* ---- Calls ----------------------------------------------------------------------------------- */

/* counts() -> (calls, blocks, births and deaths). */
static PyObject *
data_counts(PyObject *object, PyObject *unused)
{
    (void)unused;
    const ep_page *page = page_of(object);
    return Py_BuildValue("nnn", (Py_ssize_t)page->call_count, (Py_ssize_t)page->block_count,
                         (Py_ssize_t)page->event_count);
}

/* peak() -> (time, bytes, blocks); time -1: no block was ever alive. */
static PyObject *
data_peak(PyObject *object, PyObject *unused)
{
    (void)unused;
    const ep_peak *peak = &((page_data *)object)->peak;
    return Py_BuildValue("LLL", (long long)peak->time, (long long)peak->live, (long long)peak->blocks);
}

/* rows() -> (thread, depth, first, count). */
static PyObject *
data_rows(PyObject *object, PyObject *unused)
{
    (void)unused;
    const ep_page *page = page_of(object);
    return Py_BuildValue("NNNN",
                         EP_PY_GATHERED(page->rows, page->row_count, ep_page_row, thread, EP_TYPE_INT32),
                         EP_PY_GATHERED(page->rows, page->row_count, ep_page_row, depth, EP_TYPE_INT32),
                         EP_PY_GATHERED(page->rows, page->row_count, ep_page_row, first, EP_TYPE_INT32),
                         EP_PY_GATHERED(page->rows, page->row_count, ep_page_row, count, EP_TYPE_INT32));
}

/* order() -> the row of calls of each place on the page. */
static PyObject *
data_order(PyObject *object, PyObject *unused)
{
    (void)unused;
    const ep_page *page = page_of(object);
    return ep_py_view(object, page->order, page->call_count, EP_TYPE_INT32);
}

/* place(call) -> the place on the page of a row of calls. */
static PyObject *
data_place(PyObject *object, PyObject *call)
{
    const ep_page *page = page_of(object);
    Py_ssize_t row = PyLong_AsSsize_t(call);
    if (row == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (row < 0 || (size_t)row >= page->call_count) {
        PyErr_SetString(PyExc_IndexError, "no such call");
        return NULL;
    }
    return PyLong_FromLong(page->calls[row].place);
}

/* usual() -> by function + 1: the code of the most frequent kind. */
static PyObject *
data_usual(PyObject *object, PyObject *unused)
{
    (void)unused;
    const ep_page *page = page_of(object);
    return ep_py_view(object, page->usual, page->function_count + 1, EP_TYPE_INT32);
}

/* coarse() -> (start, end, function, longest, sum). */
static PyObject *
data_coarse(PyObject *object, PyObject *unused)
{
    (void)unused;
    const ep_page_coarse *rows = page_of(object)->coarse;
    size_t count = page_of(object)->coarse_count;
    return Py_BuildValue("NNNNN", EP_PY_GATHERED(rows, count, ep_page_coarse, start, EP_TYPE_INT64),
                         EP_PY_GATHERED(rows, count, ep_page_coarse, end, EP_TYPE_INT64),
                         EP_PY_GATHERED(rows, count, ep_page_coarse, function, EP_TYPE_INT32),
                         EP_PY_GATHERED(rows, count, ep_page_coarse, longest, EP_TYPE_INT64),
                         EP_PY_GATHERED(rows, count, ep_page_coarse, sum, EP_TYPE_INT64));
}

static PyObject *
links_object(const ep_page_links *links)
{
    return Py_BuildValue("NN",
                         EP_PY_GATHERED(links->links, links->count, ep_page_link, from, EP_TYPE_INT32),
                         EP_PY_GATHERED(links->links, links->count, ep_page_link, to, EP_TYPE_INT32));
}

/* orphans() -> (call, parent): places on the page; parent -1: it has none. */
static PyObject *
data_orphans(PyObject *object, PyObject *unused)
{
    (void)unused;
    return links_object(&page_of(object)->orphans);
}

static PyObject *
data_has_tasks(PyObject *object, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(ep_page_has_tasks(page_of(object)->trace));
}

/* set_tasks(array): int32 by row of calls, -1: none. Before the first tile, once. */
static PyObject *
data_set_tasks(PyObject *object, PyObject *array)
{
    page_data *self = (page_data *)object;
    if (self->task.obj != NULL) {
        PyErr_SetString(PyExc_ValueError, "set_tasks: only once");
        return NULL;
    }
    if (PyObject_GetBuffer(array, &self->task, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    if ((size_t)self->task.len != self->page->call_count * sizeof(int32_t)) {
        PyBuffer_Release(&self->task);
        PyErr_SetString(PyExc_ValueError, "set_tasks: an int32 for each call");
        return NULL;
    }
    self->page->task = self->task.buf;
    Py_RETURN_NONE;
}

/* longest([(function, caller, line)]) -> [place on the page]; caller -2: any caller and line. */
static PyObject *
data_longest(PyObject *object, PyObject *list)
{
    PyObject *items = PySequence_Tuple(list);
    if (items == NULL) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(items);
    ep_page_question *questions = PyMem_Calloc((size_t)count + 1, sizeof *questions);
    PyObject *result = questions != NULL ? PyList_New(count) : PyErr_NoMemory();
    for (Py_ssize_t i = 0; result != NULL && i < count; i++) {
        ep_page_question *q = &questions[i];
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(items, i), "iii:longest", &q->function, &q->caller,
                              &q->line)) {
            Py_CLEAR(result);
        }
    }
    if (result != NULL) {
        ep_status status;
        Py_BEGIN_ALLOW_THREADS
        status = ep_page_longest(page_of(object), questions, (size_t)count);
        Py_END_ALLOW_THREADS
        if (status != EP_OK) {
            Py_CLEAR(result);
            ep_py_raise(status, NULL);
        }
    }
    for (Py_ssize_t i = 0; result != NULL && i < count; i++) {
        PyObject *place = PyLong_FromLong(questions[i].place);
        if (place == NULL) {
            Py_CLEAR(result);
        } else {
            PyList_SET_ITEM(result, i, place);
        }
    }
    PyMem_Free(questions);
    Py_DECREF(items);
    return result;
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

/* 0: function, 1: line, 2: own line. Fails: -1, exception set. */
static int
holder_of(PyObject *number)
{
    long by = PyLong_AsLong(number);
    if (!PyErr_Occurred() && (by < 0 || by >= EP_PAGE_HOLDERS)) {
        PyErr_SetString(PyExc_ValueError, "a kind of holders is 0, 1 or 2");
    }
    return PyErr_Occurred() ? -1 : (int)by;
}

/* held(by) -> (bytes at the peak, bytes times ns), by function + 1, or by place. */
static PyObject *
data_held(PyObject *object, PyObject *number)
{
    int by = holder_of(number);
    if (by < 0) {
        return NULL;
    }
    const ep_page_held *held = &page_of(object)->held[by];
    return Py_BuildValue("NN", ep_py_view(object, held->held, held->count, EP_TYPE_FLOAT64),
                         ep_py_view(object, held->area, held->count, EP_TYPE_FLOAT64));
}

/* places() -> (function, line); -1: unknown. */
static PyObject *
data_places(PyObject *object, PyObject *unused)
{
    (void)unused;
    const ep_page *page = page_of(object);
    int32_t *function, *line;
    PyObject *functions = ep_py_array(page->place_count, EP_TYPE_INT32, (void **)&function);
    PyObject *lines = ep_py_array(page->place_count, EP_TYPE_INT32, (void **)&line);
    if (functions == NULL || lines == NULL) {
        Py_XDECREF(functions);
        Py_XDECREF(lines);
        return NULL;
    }
    for (size_t place = 0; place < page->place_count; place++) {
        uint64_t pair = page->candidates[page->places[place]];
        function[place] = (int32_t)(pair >> 32) - 1;
        line[place] = (int32_t)(uint32_t)pair - 1;
    }
    return Py_BuildValue("NN", functions, lines);
}

/* charges() -> (function + 1, place of the line, place of the own line). */
static PyObject *
data_charges(PyObject *object, PyObject *unused)
{
    (void)unused;
    const ep_page *page = page_of(object);
    PyObject *result = PyTuple_New(EP_PAGE_HOLDERS);
    for (int by = 0; result != NULL && by < EP_PAGE_HOLDERS; by++) {
        int32_t *holder;
        PyObject *holders = ep_py_array(page->charge_count, EP_TYPE_INT32, (void **)&holder);
        if (holders == NULL) {
            Py_CLEAR(result);
            break;
        }
        for (size_t charge = 0; charge < page->charge_count; charge++) {
            holder[charge] = ep_page_holder(page, &page->charges[charge], by);
        }
        PyTuple_SET_ITEM(result, by, holders);
    }
    return result;
}

/* set_bands(by, holders): functions + 1, or places, as int64. Once for each kind, before tiles of
 * blocks. */
static PyObject *
data_set_bands(PyObject *object, PyObject *args)
{
    PyObject *number;
    Py_buffer holders;
    if (!PyArg_ParseTuple(args, "Oy*:set_bands", &number, &holders)) {
        return NULL;
    }
    int by = holder_of(number);
    if (by >= 0) {
        ep_status status = ep_page_set_bands(((page_data *)object)->page, by, holders.buf,
                                             (size_t)holders.len / sizeof(int64_t));
        if (status != EP_OK) {
            ep_py_raise(status, NULL);
        }
    }
    PyBuffer_Release(&holders);
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* curve(by) -> by bin and band, the last for all others: bytes born less bytes that died. */
static PyObject *
data_curve(PyObject *object, PyObject *number)
{
    int by = holder_of(number);
    if (by < 0) {
        return NULL;
    }
    const ep_page *page = page_of(object);
    size_t count = page->curve[by] != NULL ? (size_t)EP_PAGE_BINS * (size_t)page->bands[by] : 0;
    int64_t *values;
    PyObject *array = ep_py_array(count, EP_TYPE_INT64, (void **)&values);
    for (size_t i = 0; array != NULL && i < count; i++) {
        values[i] = atomic_load_explicit(&page->curve[by][i], memory_order_relaxed);
    }
    return array;
}

/* ---- Tiles ----------------------------------------------------------------------------------- */

typedef ep_status tile_maker(ep_page *page, size_t tile, ep_page_part *out);

/* Fails: false, exception set. */
static bool
make_tile(PyObject *object, PyObject *number, tile_maker *make, ep_page_part *part)
{
    ep_page *page = ((page_data *)object)->page;
    Py_ssize_t tile = PyLong_AsSsize_t(number);
    if (tile == -1 && PyErr_Occurred()) {
        return false;
    }
    ep_status status;
    Py_BEGIN_ALLOW_THREADS
    status = tile >= 0 ? make(page, (size_t)tile, part) : EP_ARGUMENT;
    ep_columns_give_back();
    Py_END_ALLOW_THREADS
    if (status != EP_OK) {
        ep_py_raise(status, NULL);
    }
    return status == EP_OK;
}

/* ((widths, rows, how many low bits of each column of times are apart), (the low bits, planes of times, all
 * other planes)); a width is a number, or [width, rows that have more, bytes more]. */
static PyObject *
planes_object(const ep_page_part *part)
{
    const ep_planes *planes = &part->planes;
    PyObject *widths = PyList_New(planes->count);
    for (int i = 0; widths != NULL && i < planes->count; i++) {
        ep_planes_form form = planes->forms[i];
        PyList_SET_ITEM(widths, i,
                        form.rows == 0 ? PyLong_FromLong(form.width)
                                       : Py_BuildValue("[iIi]", form.width, form.rows, form.more));
    }
    const uint8_t *times = planes->bytes + part->low_bytes, *rest = times + part->times_bytes;
    return Py_BuildValue("(Nn[ii])(y#y#y#)", widths, (Py_ssize_t)part->rows, part->low_bits[0],
                         part->low_bits[1], planes->bytes, (Py_ssize_t)part->low_bytes, times,
                         (Py_ssize_t)part->times_bytes, rest,
                         (Py_ssize_t)(planes->bytes + planes->size - rest));
}

/* call_tile(number) -> (planes, begins, their starts, whether gaps are signed). */
static PyObject *
data_call_tile(PyObject *object, PyObject *number)
{
    const ep_page *page = page_of(object);
    ep_page_part part;
    if (!make_tile(object, number, ep_page_call_tile, &part)) {
        return NULL;
    }
    PyObject *begins = PyList_New((Py_ssize_t)part.begin_count);
    PyObject *starts = PyList_New((Py_ssize_t)part.begin_count);
    for (size_t i = 0; begins != NULL && starts != NULL && i < part.begin_count; i++) {
        int32_t place = part.begins[i];
        PyList_SET_ITEM(begins, (Py_ssize_t)i, PyLong_FromLong(place));
        PyList_SET_ITEM(starts, (Py_ssize_t)i, PyLong_FromLongLong(page->start[place]));
    }
    PyObject *result = Py_BuildValue("NNNN", planes_object(&part), begins, starts,
                                     PyBool_FromLong(part.is_signed));
    ep_page_part_clear(((page_data *)object)->page, &part);
    return result;
}

/* block_tile(number) -> (planes, start, births, (event, call) that the page would not find). */
static PyObject *
data_block_tile(PyObject *object, PyObject *number)
{
    ep_page_part part;
    if (!make_tile(object, number, ep_page_block_tile, &part)) {
        return NULL;
    }
    PyObject *result = Py_BuildValue("NLnN", planes_object(&part), (long long)part.start,
                                     (Py_ssize_t)part.births, links_object(&part.astray));
    ep_page_part_clear(((page_data *)object)->page, &part);
    return result;
}

static PyMethodDef data_methods[] = {
    {"counts", data_counts, METH_NOARGS, NULL},
    {"peak", data_peak, METH_NOARGS, NULL},
    {"rows", data_rows, METH_NOARGS, NULL},
    {"order", data_order, METH_NOARGS, NULL},
    {"place", data_place, METH_O, NULL},
    {"usual", data_usual, METH_NOARGS, NULL},
    {"coarse", data_coarse, METH_NOARGS, NULL},
    {"orphans", data_orphans, METH_NOARGS, NULL},
    {"has_tasks", data_has_tasks, METH_NOARGS, NULL},
    {"set_tasks", data_set_tasks, METH_O, NULL},
    {"longest", data_longest, METH_O, NULL},
    {"held", data_held, METH_O, NULL},
    {"places", data_places, METH_NOARGS, NULL},
    {"charges", data_charges, METH_NOARGS, NULL},
    {"set_bands", data_set_bands, METH_VARARGS, NULL},
    {"curve", data_curve, METH_O, NULL},
    {"call_tile", data_call_tile, METH_O, NULL},
    {"block_tile", data_block_tile, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot data_slots[] = {
    {Py_tp_new, data_new},
    {Py_tp_dealloc, data_dealloc},
    {Py_tp_methods, data_methods},
    {0, NULL},
};

PyType_Spec ep_py_page_data_spec = {
    .name = "eventprof._core.PageData",
    .basicsize = sizeof(page_data),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = data_slots,
};
