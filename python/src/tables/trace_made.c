/* _core.make_trace: a trace of what another tool recorded, of columns that the package made of it. */
#define PY_SSIZE_T_CLEAN
#include "trace_object.h"

#include <stdlib.h>
#include <string.h>

#include "kinds.h"
#include "memory.h"
#include "names.h"

/* What is not known of a recording, a file says as null; here it is nothing. */
typedef struct made {
    ep_py_trace *trace;    /* new */
    size_t function_count, site_count, thread_count;
    uint32_t *names;       /* name id by function */
    uint32_t *sites;       /* site id by site */
    Py_buffer time, kind, thread, ref, address, size;
} made;

static PyObject *
refuse(const char *what)
{
    return PyErr_Format(PyExc_ValueError, "make_trace(): %s", what);
}

/* [(qualified name, module, file: bytes or None, line or -1, ep_name_kind)] */
static bool
make_names(made *m, PyObject *functions)
{
    m->function_count = (size_t)PyList_GET_SIZE(functions);
    m->names = PyMem_Calloc(m->function_count + 1, sizeof *m->names);
    if (m->names == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (size_t i = 0; i < m->function_count; i++) {
        ep_name_text text = {.line = -1};
        Py_ssize_t bytes[3];
        int line, kind;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(functions, (Py_ssize_t)i), "z#z#z#ii:make_trace",
                              &text.qualname.at, &bytes[0], &text.module.at, &bytes[1],
                              &text.file.at, &bytes[2], &line, &kind)) {
            return false;
        }
        if (line < -1 || kind < 0 || kind >= EP_NAME_KIND_COUNT) {
            refuse("a function's line or kind is none");
            return false;
        }
        text.qualname.bytes = (size_t)bytes[0];
        text.module.bytes = (size_t)bytes[1];
        text.file.bytes = (size_t)bytes[2];
        text.line = line;
        text.kind = (ep_name_kind)kind;
        m->names[i] = ep_name_of_text(&text);
        if (m->names[i] == 0) {
            PyErr_NoMemory();
            return false;
        }
    }
    return true;
}

/* [(callee, caller, line)], rows of functions; -1: unknown, or an allocation's callee. */
static bool
make_sites(made *m, PyObject *sites)
{
    m->site_count = (size_t)PyList_GET_SIZE(sites);
    m->sites = PyMem_Calloc(m->site_count + 1, sizeof *m->sites);
    if (m->sites == NULL) {
        PyErr_NoMemory();
        return false;
    }
    int count = (int)m->function_count;
    for (size_t i = 0; i < m->site_count; i++) {
        int callee, caller, line;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(sites, (Py_ssize_t)i), "iii:make_trace", &callee,
                              &caller, &line)) {
            return false;
        }
        if (callee < -1 || callee >= count || caller < -1 || caller >= count || line < -1) {
            refuse("a place is of no function");
            return false;
        }
        ep_site site = {
            .callee = callee >= 0 ? m->names[callee] : 0,
            .caller = caller >= 0 ? m->names[caller] : 0,
            .offset = -1,
            .line = line,
        };
        m->sites[i] = ep_site_of_names(&site);
        if (m->sites[i] == 0) {
            PyErr_NoMemory();
            return false;
        }
    }
    return true;
}

/* [(name: bytes or None, native id; 0: unknown)] */
static bool
make_threads(made *m, PyObject *threads)
{
    ep_decoded *d = &m->trace->decoded;
    m->thread_count = (size_t)PyList_GET_SIZE(threads);
    d->threads = ep_calloc(m->thread_count, sizeof *d->threads);
    d->read_threads = ep_calloc(m->thread_count, sizeof *d->read_threads);
    if (d->threads == NULL || d->read_threads == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (size_t i = 0; i < m->thread_count; i++) {
        const char *name;
        Py_ssize_t bytes;
        unsigned long long native_id;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(threads, (Py_ssize_t)i), "z#K:make_trace", &name,
                              &bytes, &native_id)) {
            return false;
        }
        ep_thread *who = &d->read_threads[i];
        who->id = (uint32_t)i + 1;
        who->native_id = native_id;
        if (name != NULL) {
            size_t kept = (size_t)bytes < sizeof who->name - 1 ? (size_t)bytes : sizeof who->name - 1;
            while (kept < (size_t)bytes && kept > 0 && ((unsigned char)name[kept] & 0xC0) == 0x80) {
                kept -= 1;    /* not through the middle of a character */
            }
            memcpy(who->name, name, kept);
            atomic_store_explicit(&who->named, true, memory_order_relaxed);
        }
        d->threads[i].thread = who;
        d->thread_count = i + 1;
    }
    return true;
}

static bool
has_value(uint8_t kind)
{
    ep_family family = ep_kinds[kind].family;
    return family == EP_FAMILY_ALLOC || family == EP_FAMILY_FREE || family == EP_FAMILY_VALUE;
}

/* Returns: what is wrong with a row, NULL if nothing is. */
static const char *
make_row(made *m, size_t row, size_t blocks, int64_t duration_ns, size_t *block)
{
    ep_decoded *d = &m->trace->decoded;
    ep_columns *c = &d->columns;
    int64_t time = ((const int64_t *)m->time.buf)[row];
    uint8_t kind = ((const uint8_t *)m->kind.buf)[row];
    int32_t thread = ((const int32_t *)m->thread.buf)[row];
    int32_t ref = ((const int32_t *)m->ref.buf)[row];
    if (time < (row > 0 ? c->time_ns[row - 1] : 0) || time > duration_ns) {
        return "times are not in order";
    }
    if (kind >= EP_KIND_COUNT || ep_kinds[kind].word == NULL || ep_kinds[kind].word[0] == 0) {
        return "there is no such kind";
    }
    if (thread < 0 || (size_t)thread >= m->thread_count) {
        return "there is no such thread";
    }
    bool closes = ep_kind_has_name(kind);
    if (ref < -1 || (ref >= 0 && (size_t)ref >= (closes ? m->function_count : m->site_count))) {
        return "there is no such function or place";
    }
    c->time_ns[row] = time;
    c->kind[row] = kind;
    c->thread[row] = thread;
    c->id[row] = ref < 0 ? 0 : closes ? m->names[ref]
                                      : m->sites[ref];
    if (has_value(kind)) {
        if (*block == blocks) {
            return "there are too few addresses";
        }
        c->alloc_row[*block] = row;
        c->address[*block] = ((const uint64_t *)m->address.buf)[*block];
        c->size[*block] = ((const int64_t *)m->size.buf)[*block];
        *block += 1;
    }
    ep_trace_thread *t = &d->threads[thread];
    bool first = true;
    for (int k = 0; k < EP_KIND_COUNT && first; k++) {
        first = t->recorded[k] == 0;
    }
    t->first_ns = first ? time : t->first_ns;
    t->last_ns = time;
    t->recorded[kind] += 1;
    return NULL;
}

static bool
make_rows(made *m, int64_t duration_ns)
{
    ep_columns *c = &m->trace->decoded.columns;
    size_t rows = (size_t)m->kind.len, blocks = (size_t)m->address.len / sizeof *c->address;
    if ((size_t)m->time.len != rows * sizeof *c->time_ns ||
        (size_t)m->thread.len != rows * sizeof *c->thread ||
        (size_t)m->ref.len != rows * sizeof(int32_t) || m->size.len != m->address.len ||
        rows > EP_PAIR_MAX || duration_ns < 0) {
        refuse("the columns are not equally long");
        return false;
    }
    c->thread = ep_calloc(rows, sizeof *c->thread);
    if (c->thread == NULL || !ep_columns_reserve(c, rows, blocks)) {
        PyErr_NoMemory();
        return false;
    }
    size_t block = 0;
    const char *wrong = NULL;
    for (size_t row = 0; row < rows && wrong == NULL; row++) {
        wrong = make_row(m, row, blocks, duration_ns, &block);
    }
    if (wrong == NULL && block != blocks) {
        wrong = "there are too many addresses";
    }
    if (wrong != NULL) {
        refuse(wrong);
        return false;
    }
    c->count = rows;
    c->alloc_count = blocks;
    m->trace->decoded.duration_ns = duration_ns;
    return true;
}

/* make_trace(functions, sites, threads, (time, kind, thread, ref, address, size), (duration,
 * realtime, monotonic, pid, kinds)) -> Trace. ref is a row of sites, of ends of calls one of functions;
 * address and size are of the rows of blocks and values. */
PyObject *
ep_py_make_trace(PyObject *module, PyObject *args)
{
    (void)module;
    made m = {0};
    PyObject *functions, *sites, *threads, *result = NULL;
    long long duration_ns, realtime_ns, monotonic_ns;
    unsigned long long process_id;
    ep_kind_set kinds;
    if (!PyArg_ParseTuple(args, "O!O!O!(y*y*y*y*y*y*)(LLLKO&):make_trace", &PyList_Type, &functions,
                          &PyList_Type, &sites, &PyList_Type, &threads, &m.time, &m.kind, &m.thread,
                          &m.ref, &m.address, &m.size, &duration_ns, &realtime_ns, &monotonic_ns,
                          &process_id, ep_py_kinds_from, &kinds)) {
        return NULL;
    }
    m.trace = ep_py_trace_alloc();
    if (m.trace != NULL && make_names(&m, functions) && make_sites(&m, sites) &&
        make_threads(&m, threads) && make_rows(&m, duration_ns)) {
        ep_recording *recording = &m.trace->recording;
        recording->kinds = kinds;
        recording->start.monotonic_ns = monotonic_ns;
        recording->start_realtime_ns = realtime_ns;
        recording->start_boottime_ns = monotonic_ns;
        recording->frequency_hz = 1e9;
        recording->process_id = process_id;
        m.trace->has_decoded = true;
        result = Py_NewRef((PyObject *)m.trace);
    }
    Py_XDECREF(m.trace);
    PyMem_Free(m.names);
    PyMem_Free(m.sites);
    Py_buffer *views[] = {&m.time, &m.kind, &m.thread, &m.ref, &m.address, &m.size};
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
        PyBuffer_Release(views[i]);
    }
    return result;
}
