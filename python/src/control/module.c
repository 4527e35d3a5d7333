/* The extension eventprof._core: exceptions, types, functions. All state is the process's, as the
 * hooks are; so there is one module, in the interpreter that imports it first. */
#include "control.h"

#include "array.h"
#include "arrow.h"
#include "arrays.h"
#include "choose.h"
#include "compat.h"
#include "errors.h"
#include "count.h"
#include "file.h"
#include "intern.h"
#include "kinds.h"
#include "legacy.h"
#include "labels.h"
#include "marks.h"
#include "os.h"
#include "own_blocks.h"
#include "page_data.h"
#include "patterns.h"
#include "render.h"
#include "quota_object.h"
#include "source.h"
#include "trace_object.h"

/* Passes a path on as text that ends with a zero. A path that is too long is left out. */
static PyObject *
hand_on_path(PyObject *path, void (*to)(const char *path))
{
    char stack[1024], *heap;
    ep_text text = ep_py_text(path, stack, sizeof stack - 1, &heap);
    if (text.at == stack) {
        stack[text.bytes] = 0;
        to(stack);
    }
    free(heap);
    Py_RETURN_NONE;
}

static PyObject *
set_own_directory(PyObject *module, PyObject *path)
{
    (void)module;
    return hand_on_path(path, ep_py_set_own_directory);
}

static PyObject *
add_launcher_file(PyObject *module, PyObject *path)
{
    (void)module;
    return hand_on_path(path, ep_py_add_launcher_file);
}

static PyObject *
call_with(bool (*mute)(void), PyObject *args)
{
    Py_ssize_t count = PyTuple_GET_SIZE(args);
    if (count < 1) {
        PyErr_SetString(PyExc_TypeError, "a callable and its arguments are needed");
        return NULL;
    }
    bool muted = mute();
    PyObject *const *items = ((PyTupleObject *)args)->ob_item;
    PyObject *result = PyObject_Vectorcall(items[0], items + 1, (size_t)count - 1, NULL);
    if (muted) {
        ep_py_unmute();
    }
    return result;
}

/* Calls f(*args) without recording it on this thread: neither the call nor its memory belongs to the
 * program. Calls of eventprof's own Python code need no muting, because the sources never record those. */
static PyObject *
call_muted(PyObject *module, PyObject *args)
{
    (void)module;
    return call_with(ep_py_mute, args);
}

/* Like call_muted(), where the program runs meanwhile, on other threads: the memory is recorded. */
static PyObject *
call_beside(PyObject *module, PyObject *args)
{
    (void)module;
    return call_with(ep_py_mute_calls, args);
}

static PyObject *
name_thread(PyObject *module, PyObject *args)
{
    (void)module;
    unsigned long long native_id;
    PyObject *name;
    if (!PyArg_ParseTuple(args, "KU:name_thread", &native_id, &name)) {
        return NULL;
    }
    ep_thread *thread = ep_engine_thread_by_native_id(native_id, false);
    char stack[256], *heap;
    ep_text text = ep_py_text(name, stack, sizeof stack, &heap);
    if (thread != NULL) {
        ep_thread_set_name(thread, text);
    }
    free(heap);
    Py_RETURN_NONE;
}

/* name_worker(name): what a pool or a server calls the process, unless that is known. */
static PyObject *
name_worker(PyObject *module, PyObject *name)
{
    (void)module;
    char stack[256], *heap;
    ep_file_name_worker(ep_py_text(name, stack, sizeof stack, &heap), false);
    free(heap);
    Py_RETURN_NONE;
}

static PyObject *
worker(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    char name[EP_FILE_WORKER_BYTES];
    ep_file_get_worker(name);
    return ep_py_worker_text(name);
}

/* program_lives(native_ids): whether the process has threads besides eventprof's own; the ids are those of
 * its threads that run Python. */
static PyObject *
program_lives(PyObject *module, PyObject *native_ids)
{
    (void)module;
    uint64_t ids[64];
    Py_ssize_t count = PyTuple_Check(native_ids) ? PyTuple_GET_SIZE(native_ids) : -1;
    if (count < 0 || count > (Py_ssize_t)(sizeof ids / sizeof *ids)) {
        Py_RETURN_TRUE;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        ids[i] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(native_ids, i));
    }
    return PyErr_Occurred() ? NULL : PyBool_FromLong(ep_engine_program_lives(ids, (size_t)count));
}

/* The resident set of the process, bytes; -1: unknown. */
static PyObject *
resident_bytes(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyLong_FromLongLong(ep_os_resident_bytes());
}

static PyObject *
at_exit(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    ep_py_counters_stop_all();
    ep_py_recorders_stop_all();
    Py_RETURN_NONE;
}

static PyObject *
before_fork(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    ep_py_recorders_before_fork();
    Py_RETURN_NONE;
}

static PyObject *
after_fork_in_parent(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    ep_py_recorders_after_fork(false);
    Py_RETURN_NONE;
}

static PyObject *
after_fork_in_child(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    ep_py_name_worker_at_fork();
    ep_py_recorders_after_fork(true);
    ep_py_labels_begin();
    Py_RETURN_NONE;
}

static PyObject *
engine_stats(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    ep_engine_stats stats = ep_engine_get_stats();
    return Py_BuildValue("{s:O,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n}",
                         "recording", ep_engine_kinds() != 0 ? Py_True : Py_False, "bytes_mapped",
                         (Py_ssize_t)stats.bytes_mapped, "bytes_free",
                         (Py_ssize_t)stats.bytes_free, "log_bytes",
                         (Py_ssize_t)(stats.logs * sizeof(ep_log) +
                                      stats.threads * sizeof(ep_thread)),
                         "chunks_mapped",
                         (Py_ssize_t)stats.chunks_mapped, "chunks_free",
                         (Py_ssize_t)stats.chunks_free, "logs", (Py_ssize_t)stats.logs, "threads",
                         (Py_ssize_t)stats.threads, "names", (Py_ssize_t)ep_name_count() - 1,
                         "sites", (Py_ssize_t)ep_site_count() - 1, "names_bytes",
                         (Py_ssize_t)ep_names_bytes());
}

/* [(number, identifier, word, legacy code, form, domain, pairing, group, meaning)] of every kind
 * that is a row. */
static PyObject *
kind_table(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    static const char *const forms[] = {"call", "alloc", "free", "point", "value"};
    static const char *const domains[] = {"raw", "mem", "obj", "numpy", "libc", NULL};
    static const char *const pairings[] = {"neither", "opens", "closes"};
    static const char *const meanings[EP_KIND_COUNT] = {
#define EP_KIND(number, NAME, word, legacy, FORM, DOMAIN, PAIRING, GROUP, meaning) [number] = meaning,
#include "events.def"
#undef EP_KIND
    };
    PyObject *rows = PyList_New(0);
    for (int kind = 1; rows != NULL && kind < EP_KIND_COUNT; kind++) {
        const ep_kind_info *info = &ep_kinds[kind];
        if (info->name == NULL || info->form == EP_FORM_CONTROL) {
            continue;
        }
        PyObject *row = Py_BuildValue("issiszsss", kind, info->name, info->word, (int)info->legacy,
                                      forms[info->form], domains[info->domain],
                                      pairings[info->pairing], ep_kind_group_words[info->group],
                                      meanings[kind]);
        if (row == NULL || PyList_Append(rows, row) < 0) {
            Py_CLEAR(rows);
        }
        Py_XDECREF(row);
    }
    return rows;
}

/* [(name, kinds as bits, hook)] of every source: the kinds that it can record if the interpreter has its
 * hook, and which hook that is. */
static PyObject *
source_table(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    static const struct {
        const ep_source *source;
        const char *hook;
    } sources[] = {
#define EP_SOURCE(name, hook) {&ep_source_##name, hook},
#include "sources.def"
#undef EP_SOURCE
    };
    PyObject *rows = PyList_New(0);
    for (size_t i = 0; rows != NULL && i < sizeof sources / sizeof *sources; i++) {
        const ep_source *source = sources[i].source;
        PyObject *row = Py_BuildValue("sNs", source->name, ep_py_kinds(source->kinds), sources[i].hook);
        if (row == NULL || PyList_Append(rows, row) < 0) {
            Py_CLEAR(rows);
        }
        Py_XDECREF(row);
    }
    return rows;
}

/* text(id): the text for an id in the column task of calls. */
static PyObject *
text(PyObject *module, PyObject *number)
{
    (void)module;
    unsigned long id = PyLong_AsUnsignedLong(number);
    return PyErr_Occurred() ? NULL : ep_py_string(id < EP_STRING_NONE ? (uint32_t)id : EP_STRING_NONE);
}

/* Whether record(native=True) is possible in this process. */
static PyObject *
native_available(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyBool_FromLong(ep_py_native_available());
}

static PyObject *
waits_available(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyBool_FromLong(ep_py_waits_available());
}

#define FAST(function) (PyCFunction)(void (*)(void)) function, METH_FASTCALL

static PyMethodDef functions[] = {
    {"native_available", native_available, METH_NOARGS, NULL},
    {"waits_available", waits_available, METH_NOARGS, NULL},
    {"mark", FAST(ep_py_mark), ep_py_mark_doc},
    {"counter", FAST(ep_py_counter), ep_py_counter_doc},
    {"flow", FAST(ep_py_flow), ep_py_flow_doc},
    {"span", FAST(ep_py_span), ep_py_span_doc},
    {"records_labels", ep_py_records_labels, METH_NOARGS, NULL},
    {"wrapped_span", FAST(ep_py_wrapped_span), NULL},
    {"label", (PyCFunction)(void (*)(void))ep_py_label, METH_FASTCALL | METH_KEYWORDS,
     ep_py_label_doc},
    {"text", text, METH_O, NULL},
    {"gather", ep_py_gather, METH_VARARGS, NULL},
    {"new_column", ep_py_new_column, METH_VARARGS, NULL},
    {"give_back", ep_py_give_back, METH_NOARGS, NULL},
    {"columns_in_memory", ep_py_columns_in_memory, METH_O, NULL},
    {"columns_have_files", ep_py_columns_have_files, METH_NOARGS, NULL},
    {"make_trace", ep_py_make_trace, METH_VARARGS, NULL},
    {"render_rows", ep_py_render_rows, METH_VARARGS, NULL},
    {"nest_calls", ep_py_nest_calls, METH_VARARGS, NULL},
    {"mark_inner_calls", ep_py_mark_inner_calls, METH_VARARGS, NULL},
    {"number_marked_calls", ep_py_number_marked_calls, METH_VARARGS, NULL},
    {"depths_of_calls", ep_py_depths_of_calls, METH_VARARGS, NULL},
    {"calls_by_thread", ep_py_calls_by_thread, METH_VARARGS, NULL},
    {"fold_calls", ep_py_fold_calls, METH_VARARGS, NULL},
    {"collapsed_stacks", ep_py_collapsed_stacks, METH_VARARGS, NULL},
    {"pprof_samples", ep_py_pprof_samples, METH_VARARGS, NULL},
    {"speedscope_events", ep_py_speedscope_events, METH_VARARGS, NULL},
    {"recursion", ep_py_recursion, METH_VARARGS, NULL},
    {"perfetto_slices", ep_py_perfetto_slices, METH_VARARGS, NULL},
    {"perfetto_counters", ep_py_perfetto_counters, METH_VARARGS, NULL},
    {"tree_below", ep_py_tree_below, METH_VARARGS, NULL},
    {"added_columns", ep_py_added_columns, METH_NOARGS, NULL},
    {"tree_outermost", ep_py_tree_outermost, METH_VARARGS, NULL},
    {"arrow_schema", ep_py_arrow_schema, METH_VARARGS, NULL},
    {"arrow_stream", ep_py_arrow_stream, METH_VARARGS, NULL},
    {"merge", ep_py_merge, METH_O, NULL},
    {"share_quota", ep_py_share_quota, METH_VARARGS, NULL},
    {"open_log", ep_py_open_log, METH_VARARGS, NULL},
    {"set_own_directory", set_own_directory, METH_O, NULL},
    {"add_launcher_file", add_launcher_file, METH_O, NULL},
    {"call_muted", call_muted, METH_VARARGS, NULL},
    {"call_beside", call_beside, METH_VARARGS, NULL},
    {"add_area", ep_py_add_area, METH_VARARGS, NULL},
    {"function_areas", ep_py_function_areas, METH_VARARGS, NULL},
    {"match_functions", ep_py_match_functions, METH_VARARGS, NULL},
    {"name_thread", name_thread, METH_VARARGS, NULL},
    {"name_worker", name_worker, METH_O, NULL},
    {"worker", worker, METH_NOARGS, NULL},
    {"set_opcode_names", ep_py_set_opcode_names, METH_O, NULL},
    {"engine_stats", engine_stats, METH_NOARGS, NULL},
    {"program_lives", program_lives, METH_O, NULL},
    {"resident_bytes", resident_bytes, METH_NOARGS, NULL},
    {"kind_table", kind_table, METH_NOARGS, NULL},
    {"source_table", source_table, METH_NOARGS, NULL},
    {"open_archive", ep_py_open_archive, METH_VARARGS, NULL},
    {"column_table", ep_py_column_table, METH_NOARGS, NULL},
    {"fault_table", ep_py_fault_table, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static int
register_with(const char *module_name, const char *function_name, const char *keyword,
              PyMethodDef *definition)
{
    PyObject *module = PyImport_ImportModule(module_name);
    PyObject *function = module != NULL ? PyObject_GetAttrString(module, function_name) : NULL;
    PyObject *callback = PyCFunction_New(definition, NULL);
    PyObject *done = NULL;
    if (function != NULL && callback != NULL) {
        PyObject *keywords = keyword != NULL ? Py_BuildValue("{s:O}", keyword, callback) : NULL;
        PyObject *args = keyword != NULL ? PyTuple_New(0) : PyTuple_Pack(1, callback);
        if (args != NULL && (keyword == NULL || keywords != NULL)) {
            done = PyObject_Call(function, args, keywords);
        }
        Py_XDECREF(args);
        Py_XDECREF(keywords);
    }
    Py_XDECREF(callback);
    Py_XDECREF(function);
    Py_XDECREF(module);
    Py_XDECREF(done);
    return done != NULL ? 0 : -1;
}

/* Once in a process, also if the extension is imported again. */
static int
init_process(void)
{
    static bool done;
    static PyMethodDef exit_definition = {"stop_recorders", at_exit, METH_NOARGS, NULL};
    static PyMethodDef before_definition = {"before_fork", before_fork, METH_NOARGS, NULL};
    static PyMethodDef parent_definition = {"after_fork_in_parent", after_fork_in_parent, METH_NOARGS,
                                            NULL};
    static PyMethodDef child_definition = {"after_fork_in_child", after_fork_in_child, METH_NOARGS, NULL};
    if (done) {
        return 0;
    }
    ep_columns_read_environment();
    ep_status status = ep_names_init();
    status = status != EP_OK ? status : ep_engine_init();
    status = status != EP_OK ? status : ep_count_init();
    if (status != EP_OK) {
        ep_py_raise(status, NULL);
        return -1;
    }
    ep_thread_state_find();
    ep_py_counters_init();
    if (ep_py_intern_init() < 0 || ep_py_recorders_init() < 0 ||
        register_with("atexit", "register", NULL, &exit_definition) < 0 ||
        register_with("os", "register_at_fork", "after_in_child", &child_definition) < 0) {
        return -1;
    }
    if (EP_GIL_DISABLED &&
        (register_with("os", "register_at_fork", "before", &before_definition) < 0 ||
         register_with("os", "register_at_fork", "after_in_parent", &parent_definition) < 0)) {
        return -1;
    }
    done = true;
    return 0;
}

static PyTypeObject *
add_type(PyObject *module, PyType_Spec *spec)
{
    PyTypeObject *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    if (type != NULL && PyModule_AddType(module, type) < 0) {
        Py_CLEAR(type);
    }
    return type;
}

/* The interpreter that took us has a mark: one that begins after Py_Finalize() has the same id.
 * Returns: whether it has the mark; with `set` it gets the mark. Fails: -1. */
static int
interpreter_mark(bool set)
{
    PyObject *dict = PyInterpreterState_GetDict(PyInterpreterState_Get());    /* borrowed */
    PyObject *key = dict != NULL ? PyUnicode_FromString("eventprof._core") : NULL;
    if (key == NULL) {
        if (!PyErr_Occurred()) {
            PyErr_NoMemory();
        }
        return -1;
    }
    int found = set ? PyDict_SetItem(dict, key, Py_True) : PyDict_Contains(dict, key);
    Py_DECREF(key);
    return found < 0 ? -1 : found > 0 || set;
}

/* Takes the first interpreter that imports us, for ever, because its objects are in our static variables.
 * Fails: -1. */
static int
take_interpreter(void)
{
    static _Atomic int64_t owner = -1;
    int64_t own = PyInterpreterState_GetID(PyInterpreterState_Get()), found = -1;
    if (atomic_load(&owner) < 0 && PyInterpreterState_Get() != PyInterpreterState_Main()) {
        /* In an interpreter with its own GIL NumPy does not load; find that out before we take it. */
        PyObject *numpy = PyImport_ImportModule("numpy");
        if (numpy == NULL) {
            PyErr_Clear();
            PyErr_Format(PyExc_ImportError,
                         "eventprof needs NumPy, which does not load in interpreter %lld, a "
                         "sub-interpreter; import eventprof in the main interpreter, which records that "
                         "one, or record this program in a process of its own",
                         (long long)own);
            return -1;
        }
        Py_DECREF(numpy);
    }
    if (atomic_compare_exchange_strong(&owner, &found, own)) {
        return interpreter_mark(true) < 0 ? -1 : 0;
    }
    if (found == own) {
        int marked = interpreter_mark(false);
        if (marked == 0) {
            PyErr_SetString(PyExc_ImportError,
                            "eventprof was loaded before Py_Finalize() and cannot be loaded again in this "
                            "process (nor can NumPy): import it only in the interpreter that is to be "
                            "recorded, or record in a process of its own");
        }
        return marked > 0 ? 0 : -1;
    }
    PyErr_Format(PyExc_ImportError,
                 "eventprof records one interpreter of a process: here that is interpreter %lld, which "
                 "imported it first, and this is interpreter %lld; record this one's program in a process "
                 "of its own",
                 (long long)found, (long long)own);
    return -1;
}

/* A tuple of words, by their numbers. Fails: -1, exception set. */
static int
add_words(PyObject *module, const char *name, const char *const *words, Py_ssize_t count)
{
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; tuple != NULL && i < count; i++) {
        PyObject *word = PyUnicode_FromString(words[i]);
        if (word == NULL) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SET_ITEM(tuple, i, word);
    }
    int status = tuple != NULL ? PyModule_AddObjectRef(module, name, tuple) : -1;
    Py_XDECREF(tuple);
    return status;
}

static int
module_exec(PyObject *module)
{
    if (take_interpreter() < 0 || ep_py_add_errors(module) < 0 || init_process() < 0) {
        return -1;
    }
    PyTypeObject *recorder = add_type(module, &ep_py_recorder_spec);
    PyTypeObject *trace = add_type(module, &ep_py_trace_spec);
    PyTypeObject *counter = add_type(module, &ep_py_counter_spec);
    PyTypeObject *legacy_log = add_type(module, &ep_py_legacy_log_spec);
    PyTypeObject *page_data = add_type(module, &ep_py_page_data_spec);
    if (recorder == NULL || trace == NULL || legacy_log == NULL || counter == NULL || page_data == NULL) {
        Py_XDECREF(counter);
        Py_XDECREF(page_data);
        Py_XDECREF(recorder);
        Py_XDECREF(trace);
        Py_XDECREF(legacy_log);
        return -1;
    }
    Py_DECREF(counter);
    Py_DECREF(page_data);
    Py_DECREF(recorder);
    Py_DECREF(legacy_log);
    Py_XSETREF(ep_py_trace_type, trace);    /* keeps it for ep_py_trace_new() */
    if (ep_py_marks_init(module) < 0) {
        return -1;
    }
    if (add_words(module, "AREAS", ep_area_words, EP_AREA_COUNT) < 0 ||
        add_words(module, "WAIT_WORDS", ep_wait_words, EP_WAIT_FOR_COUNT) < 0 ||
        add_words(module, "WAIT_OBJECTS", ep_wait_object_words, EP_WAIT_OBJECT_COUNT) < 0 ||
        PyModule_AddStringConstant(module, "VERSION", EP_VERSION) < 0) {
        return -1;
    }
    return PyModule_AddIntConstant(module, "SITES_USABLE", ep_py_sites_usable);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, module_exec},
#if EP_HAS_MANY_INTERPRETERS
    /* Any interpreter may load the module: take_interpreter() refuses a second one with a message. */
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
#if EP_HAS_GIL_SLOT
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "eventprof._core",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}
