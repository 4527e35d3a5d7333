/* _core.make_trace: a trace of what another tool recorded, of columns that the package made of it. */
#define PY_SSIZE_T_CLEAN
#include "trace_object.h"

#include <stdlib.h>
#include <string.h>

#include "kinds.h"
#include "made.h"
#include "memory.h"
#include "names.h"
#include "patterns.h"

/* Facts that are unknown are null in a file; here they are zero. */
typedef struct made {
    ep_trace trace;
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

uint32_t *
ep_py_make_names(PyObject *functions)
{
    Py_ssize_t count = PyList_GET_SIZE(functions);
    uint32_t *names = PyMem_Calloc((size_t)count + 1, sizeof *names);
    if (names == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        ep_py_function function;
        bool taken = ep_py_function_take(PyList_GET_ITEM(functions, i), &function);
        if (taken && function.text.kind == EP_NAME_KIND_COUNT) {
            refuse("a function's kind is none");
            ep_py_function_drop(&function);
            taken = false;
        }
        if (taken) {
            names[i] = ep_name_of_text(&function.text);
            ep_py_function_drop(&function);
            if (names[i] == 0) {
                PyErr_NoMemory();
            }
        }
        if (names[i] == 0) {
            PyMem_Free(names);
            return NULL;
        }
    }
    return names;
}

static bool
make_names(made *m, PyObject *functions)
{
    m->function_count = (size_t)PyList_GET_SIZE(functions);
    m->names = ep_py_make_names(functions);
    return m->names != NULL;
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

/* name: may be NULL. */
static void
name_thread(ep_thread *who, const char *name, size_t bytes)
{
    memset(who->name, 0, sizeof who->name);
    if (name != NULL) {
        memcpy(who->name, name, ep_text_cut((ep_text){name, bytes}, sizeof who->name - 1));
    }
    atomic_store_explicit(&who->named, name != NULL, memory_order_relaxed);
}

bool
ep_py_thread_named(PyObject *name, ep_thread *who)
{
    char *text = NULL;
    Py_ssize_t bytes = 0;
    if (name != Py_None && PyBytes_AsStringAndSize(name, &text, &bytes) < 0) {
        return false;
    }
    name_thread(who, text, (size_t)bytes);
    return true;
}

/* [(name: bytes or None, native id; 0: unknown)] */
static bool
make_threads(made *m, PyObject *threads)
{
    ep_decoded *d = &m->trace.decoded;
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
        name_thread(who, name, (size_t)bytes);
        d->threads[i].thread = who;
        d->thread_count = i + 1;
    }
    return true;
}

static bool
make_rows(made *m, int64_t duration_ns)
{
    const ep_made rows = {
        .count = (size_t)m->kind.len,
        .block_count = (size_t)m->address.len / sizeof *rows.address,
        .time_ns = m->time.buf,
        .kind = m->kind.buf,
        .thread = m->thread.buf,
        .ref = m->ref.buf,
        .address = m->address.buf,
        .size = m->size.buf,
        .names = m->names,
        .function_count = m->function_count,
        .sites = m->sites,
        .site_count = m->site_count,
        .duration_ns = duration_ns,
    };
    if ((size_t)m->time.len != rows.count * sizeof *rows.time_ns ||
        (size_t)m->thread.len != rows.count * sizeof *rows.thread ||
        (size_t)m->ref.len != rows.count * sizeof *rows.ref || m->size.len != m->address.len) {
        refuse("the columns are not equally long");
        return false;
    }
    ep_error error = {.text = ""};
    ep_status status = ep_decoded_make(&rows, &m->trace.decoded, &error);
    if (status == EP_ARGUMENT) {
        refuse(error.text);
    } else if (status != EP_OK) {
        ep_py_raise(status, &error);
    }
    return status == EP_OK;
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
    if (make_names(&m, functions) && make_sites(&m, sites) && make_threads(&m, threads) &&
        make_rows(&m, duration_ns)) {
        m.trace.recording = (ep_recording){
            .kinds = kinds,
            .start = {.monotonic_ns = monotonic_ns},
            .start_realtime_ns = realtime_ns,
            .start_boottime_ns = monotonic_ns,
            .frequency_hz = 1e9,
            .process_id = process_id,
        };
        m.trace.has_decoded = true;
        result = (PyObject *)ep_py_trace_of(&m.trace, NULL);
    } else {
        ep_trace_clear(&m.trace);
    }
    PyMem_Free(m.names);
    PyMem_Free(m.sites);
    Py_buffer *views[] = {&m.time, &m.kind, &m.thread, &m.ref, &m.address, &m.size};
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
        PyBuffer_Release(views[i]);
    }
    return result;
}
