/* The source of the calls of HPy's interface, those that HPy's trace mode counts and times.
 *
 * hpy.trace has set_trace_functions(), which keeps one function, cannot say whose it is, and passes it a
 * new tuple and a new str, about 100 ns each. So the source does not use that. Every call in the trace mode
 * goes through hpy_trace_on_enter() and hpy_trace_on_exit(), by two words in the table of imports of
 * hpy.universal. While the source is installed, these words lead to our functions. What the program gave to
 * set_trace_functions() is called as before. */
#include "compat.h"

#include <dlfcn.h>
#include <string.h>
#include <time.h>

#include "gate.h"
#include "imports.h"
#include "intern.h"
#include "errors.h"
#include "source.h"

/* As in trace_internal.h of hpy 0.9. The context and the info are only passed on. */
typedef void *(*on_enter_function)(void *context, int id);
typedef void (*on_exit_function)(void *info, int id, int status_0, int status_1,
                                 struct timespec *start, struct timespec *end);

#define MAX_FUNCTIONS 512

/* One of the two words of the table of imports. */
typedef struct word {
    ep_import import;
    void *ours;
    void *before;    /* what was in it, to be restored... */
    void *next;      /* ...and the function that this leads to: hpy's, or another tool's */
    bool in;         /* our function was put in and not removed; another tool may have replaced it since */
} word;

static ep_shared_kinds active_kinds;    /* also read without the GIL, which some functions of HPy release */
static word enter_word, exit_word;
static int function_count;
static struct {
    uint32_t name;
    bool without_gil;    /* it is called without the GIL: no frame may be read */
} of_function[MAX_FUNCTIONS];

static bool
is_wanted(ep_kind kind, int id)
{
    return (ep_shared_kinds_get(&active_kinds) & EP_KIND_BIT(kind)) &&
           id >= 0 && id < function_count && of_function[id].name != 0;
}

static on_enter_function
next_on_enter(void)
{
    on_enter_function next;
    *(void **)&next = enter_word.next;
    return next;
}

static on_exit_function
next_on_exit(void)
{
    on_exit_function next;
    *(void **)&next = exit_word.next;
    return next;
}

/* ---- Time ------------------------------------------------------------------------------------ */

/* Our hooks read our clock right before and right after hpy reads its own, CLOCK_MONOTONIC_RAW. That adds
 * about 50 ns to a call, and many calls are shorter. So a call in which nothing else was recorded gets the
 * duration that hpy measured. It is converted to ticks by what both clocks have counted since the thread's
 * first call. */
typedef struct timing {
    bool known;
    ep_clock_mode mode;
    uint64_t first_ticks;
    int64_t first_ns;
    uint64_t call_ticks;         /* of the last call that began, ... */
    _Atomic uint64_t *log_end;   /* ...and the end of the log then */
} timing;

static _Thread_local timing own_timing;

static inline int64_t
nanoseconds(const struct timespec *time)
{
    return (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

/* Reads both clocks a few times, and takes the reading with the least time between the two. */
static EP_COLD void
begin_timing(timing *own)
{
    uint64_t fastest = UINT64_MAX;
    for (int i = 0; i < 5; i++) {
        struct timespec raw;
        uint64_t before = ep_clock_ticks();
        bool read = clock_gettime(CLOCK_MONOTONIC_RAW, &raw) == 0;
        uint64_t took = ep_clock_ticks() - before;
        if (read && took < fastest) {
            fastest = took;
            *own = (timing){.known = true,
                            .mode = ep_clock_current,
                            .first_ticks = before + took / 2,
                            .first_ns = nanoseconds(&raw)};
        }
    }
}

static inline void
begin_call(ep_log *log, uint32_t site)
{
    timing *own = &own_timing;
    if (EP_UNLIKELY(!own->known || own->mode != ep_clock_current)) {
        begin_timing(own);
    }
    own->call_ticks = ep_clock_ticks();
    ep_log_put(log, own->call_ticks, EP_KIND_HPY_CALL, site);
    own->log_end = log->next;
}

/* now: the ticks at the end of the call. */
static inline uint64_t
end_of_call(const ep_log *log, uint64_t now, const struct timespec *start, const struct timespec *end)
{
    const timing *own = &own_timing;
    int64_t elapsed_ns = nanoseconds(end) - own->first_ns;
    bool can_tell = own->known && own->mode == ep_clock_current && elapsed_ns > 0;
    if (EP_UNLIKELY(!can_tell || log->next != own->log_end)) {
        return now;
    }
    double ticks_per_ns = (double)(now - own->first_ticks) / (double)elapsed_ns;
    double ticks = (double)(nanoseconds(end) - nanoseconds(start)) * ticks_per_ns;
    return ticks < (double)(now - own->call_ticks) ? own->call_ticks + (uint64_t)(ticks + 0.5) : now;
}

/* ---- The hooks ------------------------------------------------------------------------------- */

/* Hpy's own function comes first, because it calls the program's: the clock is read after that. */
static void *
on_enter_hook(void *context, int id)
{
    void *info = next_on_enter()(context, id);
    if (!is_wanted(EP_KIND_HPY_CALL, id)) {
        return info;
    }
    bool without_gil = of_function[id].without_gil;
    ep_log *log = without_gil ? ep_log_mine() : ep_py_log_for(EP_KIND_HPY_CALL);
    if (EP_UNLIKELY(log == NULL)) {
        if (without_gil) {
            ep_engine_count_unlogged(EP_KIND_HPY_CALL);
        }
        return info;
    }
    bool has_frame = !without_gil && ep_py_is_own_interpreter(ep_thread_state());
    uint32_t site = ep_py_place(log, of_function[id].name, has_frame ? ep_py_frame_now() : NULL);
    begin_call(log, site);
    return info;
}

/* The record comes before hpy's own function. The thread may not hold the GIL: one of HPy's functions
 * releases it. */
static void
on_exit_hook(void *info, int id, int status_0, int status_1, struct timespec *start,
             struct timespec *end)
{
    uint64_t ticks = ep_clock_ticks();
    if (is_wanted(EP_KIND_HPY_RETURN, id)) {
        ep_log *log = ep_log_mine();
        if (EP_LIKELY(log != NULL)) {
            ep_log_put(log, end_of_call(log, ticks, start, end), EP_KIND_HPY_RETURN, of_function[id].name);
        } else {
            ep_engine_count_unlogged(EP_KIND_HPY_RETURN);
        }
    }
    next_on_exit()(info, id, status_0, status_1, start, end);
}

/* ---- In and out ------------------------------------------------------------------------------ */

/* Returns: new. Fails: NULL, exception set. */
static PyObject *
file_of_hpy(void)
{
    PyObject *module = PyImport_ImportModule("hpy.universal");
    PyObject *file = module != NULL ? PyObject_GetAttrString(module, "__file__") : NULL;
    Py_XDECREF(module);
    PyObject *path = NULL;
    if (file != NULL) {
        (void)PyUnicode_FSConverter(file, &path);
        Py_DECREF(file);
    }
    return path;
}

/* There are more ids than hpy_trace_get_nfunc() says: fields of the context that are not functions have
 * ids, too. So the names are read up to a NULL. */
static bool
name_functions(void *image)
{
    const char *(*name_of)(int id);
    *(void **)&name_of = dlsym(image, "hpy_trace_get_func_name");
    if (name_of == NULL) {
        return false;
    }
    int id = 0;
    for (const char *name; id < MAX_FUNCTIONS && (name = name_of(id)) != NULL; id++) {
        if (*name == 0) {
            continue;
        }
        ep_name_text text = {.qualname = {name, strlen(name)},
                             .module = {"hpy", 3},
                             .line = -1,
                             .kind = EP_NAME_HPY};
        of_function[id].name = ep_name_add((uintptr_t)name, EP_TAG_PLAIN, &text, NULL, NULL);
        of_function[id].without_gil = strcmp(name, "ctx_ReenterPythonExecution") == 0;
    }
    function_count = id;
    return true;
}

static bool
find_word(void *image, const char *function, word *out)
{
    out->next = dlsym(image, function);
    return out->next != NULL && ep_import_find(image, function, &out->import);
}

/* Once; the image stays. Fails: -1, exception set. */
static int
find_hpy(void)
{
    static bool found;
    if (found) {
        return 0;
    }
    PyObject *path = file_of_hpy();
    if (path == NULL) {
        return -1;
    }
    void *image = dlopen(PyBytes_AS_STRING(path), RTLD_NOW | RTLD_NOLOAD);
    Py_DECREF(path);
    found = image != NULL && find_word(image, "hpy_trace_on_enter", &enter_word) &&
            find_word(image, "hpy_trace_on_exit", &exit_word) && name_functions(image);
    if (!found) {
        PyErr_SetString(ep_py_error(EP_ERROR_UNSUPPORTED),
                        "hpy=True needs hpy 0.9 on Linux (x86-64 or arm64), built as its wheels are: this "
                        "hpy.universal does not call hpy_trace_on_enter() and hpy_trace_on_exit() by its "
                        "table of imports; record with hpy=False");
        return -1;
    }
    on_enter_function enter = on_enter_hook;
    on_exit_function leave = on_exit_hook;
    enter_word.ours = *(void **)&enter;
    exit_word.ours = *(void **)&leave;
    return 0;
}

static bool
is_of_same_image(const void *one, const void *other)
{
    Dl_info of_one, of_other;
    return dladdr(one, &of_one) != 0 && dladdr(other, &of_other) != 0 &&
           of_one.dli_fbase == of_other.dli_fbase;
}

static bool
put_in(word *to)
{
    if (to->in) {
        return true;
    }
    to->before = ep_import_get(&to->import);
    /* Before the first call the word leads to the linker's stub, which would overwrite our function. */
    if (!is_of_same_image(to->before, to->next)) {
        to->next = to->before;
    }
    to->in = ep_import_set(&to->import, to->ours);
    return to->in;
}

/* If another tool has replaced our function, that tool may still call it: then it only passes the call
 * on. */
static void
take_out(word *from)
{
    if (from->in && ep_import_get(&from->import) == from->ours) {
        from->in = !ep_import_set(&from->import, from->before);
    }
}

static int
adjust(ep_kind_set kinds)
{
    if (kinds != 0 && find_hpy() < 0) {
        return -1;
    }
    if (kinds != 0 && (!put_in(&enter_word) || !put_in(&exit_word))) {
        take_out(&enter_word);
        PyErr_SetString(ep_py_error(EP_ERROR_UNSUPPORTED),
                        "hpy=True: this system does not let hpy.universal's table of imports be written; "
                        "record with hpy=False");
        return -1;
    }
    ep_shared_kinds_set(&active_kinds, kinds);    /* a switch alone */
    if (kinds == 0) {
        take_out(&enter_word);
        take_out(&exit_word);
    }
    return 0;
}

static bool
owns(void)
{
    return ep_shared_kinds_get(&active_kinds) == 0 ||
           (ep_import_get(&enter_word.import) == enter_word.ours &&
            ep_import_get(&exit_word.import) == exit_word.ours);
}

const ep_source ep_source_hpy = {
    .name = "hpy",
    .kinds = ep_kinds_hpy,
    .adjust = adjust,
    .owns = owns,
};
