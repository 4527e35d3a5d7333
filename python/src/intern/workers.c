/* What a pool or a server calls a process: multiprocessing's Process.name, gunicorn's number of a worker.
 *
 * It stands in a variable of whoever forks, or of the function that a new process begins with; these places
 * are the rows below. A place that a later version of the library moves gives no name, and nothing else is
 * different. */
#include "intern.h"

#include <stdio.h>
#include <string.h>

#include "file.h"
#include "intern_parts.h"

typedef struct place {
    const char *file;         /* the end of its path */
    const char *function;     /* qualified name */
    const char *variable;
    const char *attribute;    /* NULL: the variable itself is the name */
    const char *before;       /* the name begins with this */
} place;

/* Who calls os.fork(). multiprocessing's also forks for concurrent.futures, billiard's for Celery. */
static const place at_fork[] = {
    {"multiprocessing/popen_fork.py", "Popen._launch", "process_obj", "_name", ""},
    {"billiard/popen_fork.py", "Popen._launch", "process_obj", "_name", ""},
    {"gunicorn/arbiter.py", "Arbiter.spawn_worker", "worker", "age", "worker "},
};

/* What a process begins with that was not forked from a recorded pool: spawn, forkserver, loky. */
static const place at_begin[] = {
    {"multiprocessing/process.py", "BaseProcess._bootstrap", "self", "_name", ""},
    {"billiard/process.py", "BaseProcess._bootstrap", "self", "_name", ""},
    {"distributed/worker.py", "Worker.__init__", "name", NULL, "dask worker "},
};

static bool
is_place(const place *it, PyCodeObject *code)
{
    if (PyUnicode_CompareWithASCIIString(code->co_qualname, it->function) != 0) {
        return false;
    }
    char stack[512], *heap;
    ep_text path = ep_py_text(code->co_filename, stack, sizeof stack, &heap);
    size_t bytes = strlen(it->file);
    bool is = path.at != NULL && path.bytes >= bytes &&
              memcmp(path.at + path.bytes - bytes, it->file, bytes) == 0;
    free(heap);
    return is;
}

/* Returns: new; NULL if it has no value now. */
static PyObject *
variable_of(ep_frame *frame, const char *name)
{
    PyObject *names = ep_frame_code(frame)->co_localsplusnames;
    const uintptr_t *values = &EP_FRAME_FIELD(frame, const uintptr_t, EP_FRAME_LOCALS);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++) {
        if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, i), name) == 0) {
            PyObject *value = (PyObject *)(values[i] & ~(uintptr_t)EP_FRAME_TAG);
            return value != NULL && PyCell_Check(value) ? PyCell_Get(value) : Py_XNewRef(value);
        }
    }
    return NULL;
}

static void
name_by(const place *it, ep_frame *frame)
{
    PyObject *value = variable_of(frame, it->variable);
    if (value != NULL && it->attribute != NULL) {
        PyObject *attribute = PyUnicode_FromString(it->attribute);
        /* Generic: no code of the program runs. */
        Py_SETREF(value, attribute != NULL ? PyObject_GenericGetAttr(value, attribute) : NULL);
        Py_XDECREF(attribute);
    }
    bool is_name = value != NULL && (PyUnicode_CheckExact(value) || PyLong_CheckExact(value));
    PyObject *text = is_name ? PyObject_Str(value) : NULL;
    char stack[256], *heap, whole[EP_FILE_WORKER_BYTES * 2];
    ep_text name = ep_py_text(text, stack, sizeof stack, &heap);
    if (name.at != NULL) {
        int bytes = snprintf(whole, sizeof whole, "%s%.*s", it->before, (int)name.bytes, name.at);
        bytes = bytes < (int)sizeof whole ? bytes : (int)sizeof whole - 1;
        ep_file_name_worker((ep_text){whole, (size_t)bytes}, true);
    }
    free(heap);
    Py_XDECREF(text);
    Py_XDECREF(value);
    PyErr_Clear();
}

void
ep_py_name_worker_at_begin(PyCodeObject *code)
{
    for (size_t i = 0; i < sizeof at_begin / sizeof *at_begin; i++) {
        if (EP_UNLIKELY(is_place(&at_begin[i], code))) {
            ep_frame *frame = ep_py_frame_now();
            if (frame != NULL && ep_frame_code(frame) == code) {
                name_by(&at_begin[i], frame);
            }
        }
    }
}

void
ep_py_name_worker_at_fork(void)
{
    ep_frame *frame = ep_py_frame_now();
    for (size_t i = 0; frame != NULL && i < sizeof at_fork / sizeof *at_fork; i++) {
        if (is_place(&at_fork[i], ep_frame_code(frame))) {
            uint32_t busy = ep_py_enter_own();
            name_by(&at_fork[i], frame);
            ep_py_leave_own(busy);
        }
    }
}
