/* _core.Trace: what one window recorded, computed step by step when first asked for:
 *
 *   capture or file -> decoded columns -> functions -> calls -> ...
 *
 * Lines and late names are resolved when the trace is made (the GIL is held, the code objects are
 * there). All later steps run without the GIL, one thread at a time (the trace's own lock), which
 * may have the help of a second (apart.h). */

#include "arrays.h"
#include "intern.h"
#include "os.h"
#include "patterns.h"
#include "source.h"
#include "trace_object.h"

#include <errno.h>
#include <math.h>
#include <unistd.h>

ep_py_trace *
ep_py_trace_alloc(void)
{
    ep_py_trace *self = (ep_py_trace *)ep_py_trace_type->tp_alloc(ep_py_trace_type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->lock = PyThread_allocate_lock();
    if (self->lock == NULL) {
        Py_DECREF(self);
        return (ep_py_trace *)PyErr_NoMemory();
    }
    return self;
}

/* filter(include, exclude, max_depth, min_duration_ns, audit): what its recorder was asked for; -1: no
 * limit. Before the first step. */
static PyObject *
trace_filter(PyObject *object, PyObject *args)
{
    ep_py_trace *self = (ep_py_trace *)object;
    PyObject *include, *exclude, *audit;
    long long max_depth, min_duration_ns;
    if (!PyArg_ParseTuple(args, "O!O!LLO!:filter", &PyTuple_Type, &include, &PyTuple_Type, &exclude,
                          &max_depth, &min_duration_ns, &PyTuple_Type, &audit) ||
        ep_py_add_patterns(&self->filter, include, exclude, audit) < 0) {
        return NULL;
    }
    self->filter.limits_depth = max_depth >= 0 && max_depth < EP_DEPTH_UNLIMITED;
    self->filter.max_depth = self->filter.limits_depth ? (uint32_t)max_depth : 0;
    self->filter.min_duration_ns = min_duration_ns > 0 ? min_duration_ns : 0;
    Py_RETURN_NONE;
}

PyObject *
ep_py_trace_new(ep_capture *capture, uint32_t only_thread, PyObject *include, PyObject *exclude,
                PyObject *audit, const ep_py_left_out *left_out)
{
    ep_py_trace *self = ep_py_intern_resolve() == 0 ? ep_py_trace_alloc() : NULL;
    if (self == NULL) {
        ep_capture_clear(capture);
        return NULL;
    }
    self->capture = *capture;
    self->only_thread = only_thread;
    self->recording = (ep_recording){
        .kinds = capture->kinds,
        .start = capture->start,
        .start_realtime_ns = capture->start_realtime_ns,
        /* As long as the system has not slept since then. */
        .start_boottime_ns =
            capture->start.monotonic_ns + ep_os_boottime_ns() - ep_os_monotonic_ns(),
        .frequency_hz = ep_clock_map_frequency_hz(&capture->clock),
        .step_ticks = ep_clock_step_ticks(),
        .process_id = ep_os_process_id(),
        .full_reason = capture->full_reason,
        .limits = capture->limits,
    };
    if (left_out != NULL) {
        self->recording.deep_calls = left_out->calls[EP_LEFT_OUT_DEEP];
        self->recording.short_calls = left_out->calls[EP_LEFT_OUT_SHORT];
        self->recording.functions_off = left_out->functions;
        self->filter.limits_depth = left_out->limits_depth;
        self->filter.max_depth = left_out->max_depth;
        self->filter.min_duration_ns = left_out->min_duration_ns;
    }
    if (ep_py_add_patterns(&self->filter, include, exclude, audit) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

PyObject *
ep_py_trace_of_archive(ep_archive *archive, const ep_recording *recording, PyObject *path)
{
    ep_py_trace *self = (ep_py_trace *)ep_py_trace_type->tp_alloc(ep_py_trace_type, 0);
    if (self == NULL) {
        ep_archive_close(archive);
        return NULL;
    }
    self->archive = archive;
    self->path = Py_NewRef(path);
    self->recording = *recording;
    self->lock = PyThread_allocate_lock();
    if (self->lock == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static void
trace_dealloc(PyObject *object)
{
    ep_py_trace *self = (ep_py_trace *)object;
    PyTypeObject *type = Py_TYPE(object);
    ep_stacks_clear(&self->stacks);
    ep_summary_clear(&self->summary);
    ep_blocks_clear(&self->blocks);
    ep_calls_clear(&self->calls);
    ep_functions_clear(&self->functions);
    ep_decoded_clear(&self->decoded);
    ep_pass_clear(&self->pass);
    ep_capture_clear(&self->capture);
    if (self->file != NULL) {
        ep_file_close(self->file);
    }
    ep_archive_close(self->archive);
    Py_XDECREF(self->path);
    ep_recording_clear(&self->recording);
    ep_filter_clear(&self->filter);
    free(self->open);
    free(self->open_from_ns);
    free(self->open_until_ns);
    if (self->lock != NULL) {
        PyThread_free_lock(self->lock);
    }
    type->tp_free(object);
    Py_DECREF(type);
}

/* ---- Steps, without the GIL, under the trace's lock ------------------------------------------ */

static ep_status
fill_input(ep_py_trace *self)
{
    ep_decoded *decoded = &self->decoded;
    self->open = calloc(decoded->thread_count + 1, sizeof *self->open);
    self->open_from_ns = calloc(decoded->thread_count + 1, sizeof *self->open_from_ns);
    self->open_until_ns = calloc(decoded->thread_count + 1, sizeof *self->open_until_ns);
    if (self->open == NULL || self->open_from_ns == NULL || self->open_until_ns == NULL) {
        return EP_NOMEM;
    }
    bool lost = false;
    for (size_t i = 0; i < decoded->thread_count; i++) {
        const ep_trace_thread *thread = &decoded->threads[i];
        for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
            lost = lost || thread->lost[kind] > 0;
        }
        self->open[i] = thread->open;
        self->open_from_ns[i] = ep_open_from_ns(thread, self->recording.full_reason);
        self->open_until_ns[i] = ep_open_until_ns(thread, decoded->duration_ns);
    }
    /* Full: the head is whole, the tail is missing. Otherwise a ring lost its head. */
    bool tail = self->recording.full_reason != EP_FULL_NOT;
    self->input = (ep_pair_input){
        .columns = &decoded->columns,
        .map = &self->functions.map,
        .thread_count = decoded->thread_count,
        .open_at_start = self->open,
        .open_from_ns = self->open_from_ns,
        .open_until_ns = self->open_until_ns,
        .length_ns = decoded->duration_ns,
        .lost_from_ns = !lost || tail ? EP_NOTHING_LOST : 0,
    };
    return EP_OK;
}

#define TELL_AFTER_NS 2000000000

static bool
tell(void *context, size_t done, size_t total)
{
    ep_py_telling *telling = context;
    if (ep_os_monotonic_ns() - telling->began_ns >= TELL_AFTER_NS && isatty(STDERR_FILENO)) {
        telling->shown = true;
        fprintf(stderr, "\reventprof: %s, %3.0f %%", telling->what,
                total > 0 ? 100.0 * (double)done / (double)total : 100.0);
    }
    return true;
}

void
ep_py_telling_begin(ep_py_telling *telling, const char *what)
{
    *telling = (ep_py_telling){
        .progress = {.tell = tell, .context = telling},
        .what = what,
        .began_ns = ep_os_monotonic_ns(),
    };
}

void
ep_py_telling_end(ep_py_telling *telling)
{
    if (telling->shown) {
        fprintf(stderr, "\r%*s\r", 40, "");    /* leaves the line as it was */
    }
}

/* Gets the events, from memory or from a file. */
static ep_status
reach_decoded(ep_py_trace *self, ep_error *error)
{
    if (self->archive != NULL) {
        ep_status status = ep_archive_load(self->archive, &self->decoded, error);
        if (status == EP_OK) {
            ep_archive_close(self->archive);
            self->archive = NULL;
        }
        return status;
    }
    ep_status status = self->file != NULL
                           ? ep_py_trace_load(self, error)
                           : ep_decode(&self->capture, self->only_thread, &self->decoded);
    if (status != EP_OK) {
        return status;
    }
    if (self->check_records && !self->record_check.done) {
        ep_check_records(&self->capture, self->only_thread, &self->decoded, &self->record_check);
    }
    ep_filtered dropped = {0};
    if (!ep_filter_is_empty(&self->filter)) {
        status = ep_filter_apply(&self->filter, &self->decoded, &dropped);
    }
    if (status != EP_OK) {
        ep_decoded_clear(&self->decoded);
        return status;
    }
    self->recording.filtered = dropped.rows;
    self->recording.deep_calls += dropped.deep_calls;
    self->recording.short_calls += dropped.short_calls;
    ep_capture_clear(&self->capture);
    return EP_OK;
}

static ep_status
reach_functions(ep_py_trace *self)
{
    ep_status status = EP_OK;
    if (!self->has_functions) {
        status = ep_functions_build(&self->decoded, &self->functions);
        self->has_functions = status == EP_OK;
    }
    return status;
}

/* Needs functions. */
static ep_status
reach_calls(ep_py_trace *self)
{
    ep_status status = EP_OK;
    if (!self->has_calls) {
        ep_py_telling telling;
        ep_py_telling_begin(&telling, "pairing calls");
        status = ep_pair_calls(&self->input, &telling.progress, &self->calls);
        ep_py_telling_end(&telling);
        self->has_calls = status == EP_OK;
    }
    return status;
}

static ep_status
reach_blocks(ep_py_trace *self)
{
    ep_status status = EP_OK;
    if (!self->has_blocks) {
        ep_py_telling telling;
        ep_py_telling_begin(&telling, "pairing blocks");
        status = ep_pair_blocks(&self->input, &telling.progress, &self->blocks);
        ep_py_telling_end(&telling);
        self->has_blocks = status == EP_OK;
    }
    return status;
}

/* Both at once where that pays, else one after the other. Blocks need no functions. */
static ep_status
reach_calls_and_blocks(ep_py_trace *self)
{
    ep_py_telling telling;
    ep_py_telling_begin(&telling, "pairing blocks");
    ep_blocks_apart *apart = NULL;
    if (!self->has_calls && !self->has_blocks) {
        apart = ep_pair_blocks_begin(&self->input, &telling.progress);
    }
    ep_status status = reach_functions(self);
    if (status == EP_OK) {
        status = reach_calls(self);
    }
    if (apart != NULL) {
        ep_status of_blocks = ep_pair_blocks_join(apart, status == EP_OK, &self->blocks);
        ep_py_telling_end(&telling);
        self->has_blocks = of_blocks == EP_OK;
        return status != EP_OK ? status : of_blocks;
    }
    return status == EP_OK ? reach_blocks(self) : status;
}

static ep_status
reach_locked(ep_py_trace *self, ep_py_step wanted, ep_error *error)
{
    ep_status status = EP_OK;
    if (wanted == EP_STEP_HEAD || wanted == EP_STEP_NAMES) {
        if (self->has_pass && !self->has_decoded) {
            return EP_OK;
        }
        wanted = wanted == EP_STEP_HEAD ? EP_STEP_DECODED : EP_STEP_FUNCTIONS;
    }
    if (!self->has_decoded) {
        status = reach_decoded(self, error);
        if (status != EP_OK) {
            return status;
        }
        self->has_decoded = true;
    }
    if (wanted >= EP_STEP_FUNCTIONS && !self->has_input) {
        status = fill_input(self);
        if (status != EP_OK) {
            return status;
        }
        self->has_input = true;
    }
    if (wanted == EP_STEP_BLOCKS) {
        return reach_calls_and_blocks(self);
    }
    if (wanted == EP_STEP_BLOCKS_ALONE) {
        return reach_blocks(self);
    }
    if (wanted >= EP_STEP_FUNCTIONS) {
        status = reach_functions(self);
    }
    if (status == EP_OK && wanted >= EP_STEP_CALLS) {
        status = reach_calls(self);
    }
    return status;
}

/* A column of the calls or blocks that pair.c makes when asked for. */
static ep_status
fill_pairs(ep_py_trace *self, ep_py_step of, unsigned wanted)
{
    if (of == EP_STEP_CALLS) {
        return ep_calls_fill(&self->calls, wanted);
    }
    return ep_blocks_fill(&self->blocks, &self->calls, wanted);
}

int
ep_py_trace_reach(ep_py_trace *self, ep_py_step wanted, unsigned pairs)
{
    ep_status status;
    ep_error error = {.text = ""};
    int cause;
    Py_BEGIN_ALLOW_THREADS
    PyThread_acquire_lock(self->lock, WAIT_LOCK);
    status = reach_locked(self, wanted, &error);
    if (status == EP_OK && pairs != 0) {
        status = fill_pairs(self, wanted, pairs);
    }
    cause = errno;
    PyThread_release_lock(self->lock);
    Py_END_ALLOW_THREADS
    if (status != EP_OK) {
        ep_py_raise_io(status, &error, cause, self->path);
        return -1;
    }
    return 0;
}

int
ep_py_trace_get_parts(PyObject *trace, ep_py_trace_parts *parts)
{
    if (!Py_IS_TYPE(trace, ep_py_trace_type)) {
        PyErr_Format(PyExc_TypeError, "a _core.Trace is needed, not %s", Py_TYPE(trace)->tp_name);
        return -1;
    }
    ep_py_trace *self = (ep_py_trace *)trace;
    if (ep_py_trace_reach(self, EP_STEP_BLOCKS, 0) < 0) {
        return -1;
    }
    *parts = (ep_py_trace_parts){
        .decoded = &self->decoded,
        .calls = &self->calls,
        .blocks = &self->blocks,
        .start_monotonic_ns = self->recording.start.monotonic_ns,
    };
    return 0;
}

/* ---- Columns of events ----------------------------------------------------------------------- */

static void
fill_function(const ep_py_trace *self, void *to)
{
    const ep_columns *c = &self->decoded.columns;
    const ep_id_map *map = &self->functions.map;
    /* One table a kind: closing kinds name a name, the others a site. */
    const int32_t *table[EP_KIND_COUNT];
    for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
        bool closes_call = ep_kinds[kind].family == EP_FAMILY_CALL &&
                           ep_kinds[kind].pairing == EP_PAIRING_CLOSES;
        table[kind] = closes_call ? map->name_function : map->site_function;
    }
    int32_t *function = to;
    for (size_t row = 0; row < c->count; row++) {
        function[row] = table[c->kind[row]][c->id[row]];
    }
}

/* Calls and their ends: the function's first line. Allocations: the line that was executing. */
static void
fill_line(const ep_py_trace *self, void *to)
{
    const ep_columns *c = &self->decoded.columns;
    const ep_id_map *map = &self->functions.map;
    int32_t *line = to;
    for (size_t row = 0; row < c->count; row++) {
        const ep_kind_info *info = &ep_kinds[c->kind[row]];
        uint32_t id = c->id[row];
        if (info->family != EP_FAMILY_CALL) {
            line[row] = map->site_line[id];
            continue;
        }
        uint32_t name = info->pairing == EP_PAIRING_CLOSES ? id : ep_site_callee(id);
        line[row] = ep_name_get(name)->line > 0 ? ep_name_get(name)->line : -1;
    }
}

/* Of the call that a row opens or closes; where a mark or the like was made. Allocator events, lines
 * and their like have none: no function that is called is theirs. */
static void
fill_caller_from(const ep_py_trace *self, int32_t *to, const int32_t *by_site)
{
    const ep_columns *c = &self->decoded.columns;
    for (size_t row = 0; row < c->count; row++) {
        const ep_kind_info *info = &ep_kinds[c->kind[row]];
        int32_t call = self->calls.row_call[row];
        if (info->family == EP_FAMILY_POINT || info->family == EP_FAMILY_VALUE) {
            to[row] = self->functions.map.site_caller[c->id[row]] >= 0 ? by_site[c->id[row]] : -1;
        } else if (info->family != EP_FAMILY_CALL) {
            to[row] = -1;
        } else if (info->pairing == EP_PAIRING_OPENS) {
            to[row] = by_site[c->id[row]];
        } else {
            to[row] = call >= 0 ? by_site[ep_call_site(&self->calls, (size_t)call)] : -1;
        }
    }
}

static void
fill_caller(const ep_py_trace *self, void *to)
{
    fill_caller_from(self, to, self->functions.map.site_caller);
}

static void
fill_caller_line(const ep_py_trace *self, void *to)
{
    fill_caller_from(self, to, self->functions.map.site_line);
}

static void
fill_depth(const ep_py_trace *self, void *to)
{
    ep_calls_row_depth(&self->calls, 0, self->decoded.columns.count, to);
}

static void
fill_address(const ep_py_trace *self, void *to)
{
    const ep_columns *c = &self->decoded.columns;
    uint64_t *address = to;
    memset(address, 0, c->count * sizeof *address);
    for (size_t i = 0; i < c->alloc_count; i++) {
        unsigned kind = c->kind[c->alloc_row[i]];
        bool is_address = ep_kinds[kind].family != EP_FAMILY_VALUE || kind == EP_KIND_CREATE ||
                          kind == EP_KIND_DESTROY;
        address[c->alloc_row[i]] = is_address ? c->address[i] : 0;
    }
}

/* What else a kind tells, as a number. */
static double
value_of(unsigned kind, uint64_t word)
{
    double value = NAN;
    switch (kind) {
        case EP_KIND_COUNTER:
            memcpy(&value, &word, sizeof value);
            break;
        case EP_KIND_GC_COLLECTED:
            value = (double)(uint32_t)word;
            break;
        case EP_KIND_FLOW:
            value = (double)(word >> 2);
            break;
        case EP_KIND_BRANCH:
        case EP_KIND_JUMP:
            value = (double)word;
            break;
        default:
            break;
    }
    return value;
}

static void
fill_value(const ep_py_trace *self, void *to)
{
    const ep_columns *c = &self->decoded.columns;
    double *value = to;
    for (size_t row = 0; row < c->count; row++) {
        value[row] = NAN;
    }
    for (size_t i = 0; i < c->alloc_count; i++) {
        value[c->alloc_row[i]] = value_of(c->kind[c->alloc_row[i]], c->address[i]);
    }
}

/* As it was recorded. */
static void
fill_word(const ep_py_trace *self, void *to)
{
    const ep_columns *c = &self->decoded.columns;
    uint64_t *word = to;
    memset(word, 0, c->count * sizeof *word);
    for (size_t i = 0; i < c->alloc_count; i++) {
        word[c->alloc_row[i]] = c->address[i];
    }
}

static void
fill_size(const ep_py_trace *self, void *to)
{
    const ep_columns *c = &self->decoded.columns;
    int64_t *size = to;
    memset(size, 0xFF, c->count * sizeof *size);    /* -1 */
    for (size_t i = 0; i < c->alloc_count; i++) {
        size[c->alloc_row[i]] = c->size[i];
    }
}

static void
fill_domain(const ep_py_trace *self, void *to)
{
    const ep_columns *c = &self->decoded.columns;
    int8_t code[EP_KIND_COUNT], *domain = to;
    for (int kind = 0; kind < EP_KIND_COUNT; kind++) {
        code[kind] = ep_kinds[kind].domain == EP_DOMAIN_NONE ? -1 : (int8_t)ep_kinds[kind].domain;
    }
    for (size_t row = 0; row < c->count; row++) {
        domain[row] = code[c->kind[row]];
    }
}

/* Bytes; -1: not such a row, or unknown. */
static void
fill_offset(const ep_py_trace *self, void *to)
{
    const ep_columns *c = &self->decoded.columns;
    int32_t *offset = to;
    for (size_t row = 0; row < c->count; row++) {
        offset[row] = ep_kind_is_inside(c->kind[row]) ? ep_site_get(c->id[row])->offset : -1;
    }
}

/* String ids. */
static void
fill_opcode(const ep_py_trace *self, void *to)
{
    const ep_columns *c = &self->decoded.columns;
    int32_t *opcode = to;
    for (size_t row = 0; row < c->count; row++) {
        opcode[row] = c->kind[row] == EP_KIND_INSTRUCTION
                          ? (int32_t)ep_site_get(c->id[row])->task - 1
                          : -1;
    }
}

static void
fill_call_caller(const ep_py_trace *self, void *to)
{
    const int32_t *by_site = self->functions.map.site_caller;
    int32_t *caller = to;
    for (size_t call = 0; call < self->calls.count; call++) {
        caller[call] = by_site[ep_call_site(&self->calls, call)];
    }
}

static void
fill_call_line(const ep_py_trace *self, void *to)
{
    const int32_t *by_site = self->functions.map.site_line;
    int32_t *line = to;
    for (size_t call = 0; call < self->calls.count; call++) {
        line[call] = by_site[ep_call_site(&self->calls, call)];
    }
}

/* String ids: of its own site, else of the call that it lies in. */
static void
fill_call_task(const ep_py_trace *self, void *to)
{
    const int32_t *parent = self->calls.parent;
    int32_t *task = to;
    for (size_t call = 0; call < self->calls.count; call++) {
        uint32_t own = ep_site_get(ep_call_site(&self->calls, call))->task;
        task[call] = own != 0 ? (int32_t)own - 1 : parent[call] >= 0 ? task[parent[call]]
                                                                     : -1;
    }
}

static void
fill_block_line(const ep_py_trace *self, void *to)
{
    const int32_t *by_site = self->functions.map.site_line;
    int32_t *line = to;
    for (size_t block = 0; block < self->blocks.count; block++) {
        line[block] = by_site[ep_block_site(&self->blocks, block)];
    }
}

/* What stands in an array of the core is a view of it; the others are filled into a fresh array. */
typedef struct column {
    const char *name;
    ep_py_type type;
    ep_py_step needs;
    unsigned pairs;    /* what fill_pairs() must have made */
    size_t view_at;    /* of the array's pointer in ep_py_trace; used where fill is NULL */
    void (*fill)(const ep_py_trace *self, void *to);
    bool of_blocks;    /* without allocator events each row is: */
    int8_t otherwise;
} column;

#define VIEW(name, type, needs, pairs, field) \
    {                                         \
        name, type, needs, pairs, offsetof(ep_py_trace, field), NULL, false, 0}
#define FILL(name, type, needs, pairs, fill) \
    {                                        \
        name, type, needs, pairs, 0, fill, false, 0}
#define OF_BLOCKS(name, type, needs, otherwise, fill) \
    {                                                 \
        name, type, needs, 0, 0, fill, true, otherwise}

static const column events_columns[] = {
    VIEW("time", EP_PY_INT64, EP_STEP_DECODED, 0, decoded.columns.time_ns),
    VIEW("kind", EP_PY_UINT8, EP_STEP_DECODED, 0, decoded.columns.kind),
    VIEW("thread", EP_PY_INT32, EP_STEP_DECODED, 0, decoded.columns.thread),
    VIEW("id", EP_PY_UINT32, EP_STEP_DECODED, 0, decoded.columns.id),
    FILL("function", EP_PY_INT32, EP_STEP_FUNCTIONS, 0, fill_function),
    FILL("line", EP_PY_INT32, EP_STEP_FUNCTIONS, 0, fill_line),
    OF_BLOCKS("address", EP_PY_UINT64, EP_STEP_DECODED, 0, fill_address),
    OF_BLOCKS("size", EP_PY_INT64, EP_STEP_BLOCKS_ALONE, -1, fill_size),
    OF_BLOCKS("domain", EP_PY_INT8, EP_STEP_DECODED, -1, fill_domain),
    FILL("depth", EP_PY_INT32, EP_STEP_CALLS, EP_CALLS_DEPTH, fill_depth),
    VIEW("call", EP_PY_INT32, EP_STEP_CALLS, 0, calls.row_call),
    FILL("caller", EP_PY_INT32, EP_STEP_CALLS, 0, fill_caller),
    FILL("caller_line", EP_PY_INT32, EP_STEP_CALLS, 0, fill_caller_line),
    FILL("value", EP_PY_FLOAT64, EP_STEP_DECODED, 0, fill_value),
    FILL("word", EP_PY_UINT64, EP_STEP_DECODED, 0, fill_word),
    FILL("offset", EP_PY_INT32, EP_STEP_DECODED, 0, fill_offset),
    FILL("opcode", EP_PY_INT32, EP_STEP_DECODED, 0, fill_opcode),
    {NULL, 0, 0, 0, 0, NULL, false, 0},
};

static const column calls_columns[] = {
    VIEW("start", EP_PY_INT64, EP_STEP_CALLS, EP_CALLS_START, calls.start),
    VIEW("duration", EP_PY_INT64, EP_STEP_CALLS, EP_CALLS_DURATION, calls.duration),
    VIEW("self_time", EP_PY_INT64, EP_STEP_CALLS, EP_CALLS_SELF, calls.self),
    VIEW("thread", EP_PY_INT32, EP_STEP_CALLS, EP_CALLS_THREAD, calls.thread),
    VIEW("function", EP_PY_INT32, EP_STEP_CALLS, EP_CALLS_FUNCTION, calls.function),
    VIEW("kind", EP_PY_UINT8, EP_STEP_CALLS, EP_CALLS_KIND, calls.kind),
    VIEW("depth", EP_PY_INT32, EP_STEP_CALLS, EP_CALLS_DEPTH, calls.depth),
    VIEW("parent", EP_PY_INT32, EP_STEP_CALLS, 0, calls.parent),
    VIEW("flags", EP_PY_UINT8, EP_STEP_CALLS, EP_CALLS_RECURSIVE, calls.flags),
    FILL("caller", EP_PY_INT32, EP_STEP_CALLS, 0, fill_call_caller),
    FILL("caller_line", EP_PY_INT32, EP_STEP_CALLS, 0, fill_call_line),
    FILL("task", EP_PY_INT32, EP_STEP_CALLS, 0, fill_call_task),
    {NULL, 0, 0, 0, 0, NULL, false, 0},
};

static const column allocations_columns[] = {
    VIEW("address", EP_PY_UINT64, EP_STEP_BLOCKS_ALONE, EP_BLOCKS_ADDRESS, blocks.address),
    VIEW("size", EP_PY_INT64, EP_STEP_BLOCKS_ALONE, EP_BLOCKS_SIZE, blocks.size),
    VIEW("domain", EP_PY_UINT8, EP_STEP_BLOCKS_ALONE, EP_BLOCKS_DOMAIN, blocks.domain),
    VIEW("thread", EP_PY_INT32, EP_STEP_BLOCKS_ALONE, EP_BLOCKS_THREAD, blocks.thread),
    VIEW("start", EP_PY_INT64, EP_STEP_BLOCKS_ALONE, EP_BLOCKS_START, blocks.start),
    VIEW("end", EP_PY_INT64, EP_STEP_BLOCKS_ALONE, EP_BLOCKS_END, blocks.end),
    VIEW("call", EP_PY_INT32, EP_STEP_BLOCKS, EP_BLOCKS_CALL, blocks.call),
    VIEW("function", EP_PY_INT32, EP_STEP_BLOCKS, EP_BLOCKS_FUNCTION, blocks.function),
    VIEW("freed_in", EP_PY_INT32, EP_STEP_BLOCKS, EP_BLOCKS_FREED_IN, blocks.freed_in),
    VIEW("free_thread", EP_PY_INT32, EP_STEP_BLOCKS_ALONE, EP_BLOCKS_FREE_THREAD, blocks.free_thread),
    VIEW("previous", EP_PY_INT32, EP_STEP_BLOCKS_ALONE, 0, blocks.previous),
    VIEW("flags", EP_PY_UINT8, EP_STEP_BLOCKS, EP_BLOCKS_FLAGS, blocks.flags),
    VIEW("birth", EP_PY_UINT32, EP_STEP_BLOCKS_ALONE, 0, blocks.birth),
    VIEW("death", EP_PY_UINT32, EP_STEP_BLOCKS_ALONE, 0, blocks.death),
    FILL("line", EP_PY_INT32, EP_STEP_BLOCKS, 0, fill_block_line),
    {NULL, 0, 0, 0, 0, NULL, false, 0},
};

static PyObject *
column_of(ep_py_trace *self, const char *table, const column *columns, const size_t *count,
          PyObject *name)
{
    for (const column *c = columns; c->name != NULL; c++) {
        if (!PyUnicode_Check(name) || PyUnicode_CompareWithASCIIString(name, c->name) != 0) {
            continue;
        }
        if (ep_py_trace_reach(self, c->needs, c->pairs) < 0) {
            return NULL;
        }
        void *data;
        if (c->fill == NULL) {
            data = *(void **)((char *)self + c->view_at);
            return ep_py_view((PyObject *)self, data, *count, c->type);
        }
        if (c->of_blocks && self->decoded.columns.alloc_count == 0) {
            return ep_py_constant(*count, c->type, c->otherwise);
        }
        PyObject *array = ep_py_array(*count, c->type, &data);
        if (array != NULL) {
            Py_BEGIN_ALLOW_THREADS
            c->fill(self, data);
            Py_END_ALLOW_THREADS
        }
        return array;
    }
    return PyErr_Format(PyExc_KeyError, "%s has no column %R", table, name);
}

static PyObject *
trace_events(PyObject *object, PyObject *name)
{
    ep_py_trace *self = (ep_py_trace *)object;
    return column_of(self, "events", events_columns, &self->decoded.columns.count, name);
}

static PyObject *
trace_calls(PyObject *object, PyObject *name)
{
    ep_py_trace *self = (ep_py_trace *)object;
    return column_of(self, "calls", calls_columns, &self->calls.count, name);
}

static PyObject *
trace_allocations(PyObject *object, PyObject *name)
{
    ep_py_trace *self = (ep_py_trace *)object;
    return column_of(self, "allocations", allocations_columns, &self->blocks.count, name);
}

/* ---- The small tables ------------------------------------------------------------------------ */

PyTypeObject *ep_py_trace_type;

const char *
ep_py_full_reason(ep_full_reason reason, uint32_t limits)
{
    static const char *const words[] = {NULL, "limit", "memory", "disk"};
    return reason != EP_FULL_NOT          ? words[reason]
           : limits & EP_LIMIT_CUT        ? "cut"
           : limits & EP_LIMIT_SMALL_DISK ? "small_disk"
                                          : NULL;
}

/* A text that many functions in a row share, their module or file: one object for all of them. */
typedef struct shared_text {
    uint32_t string;
    PyObject *object;    /* NULL: none yet */
} shared_text;

static PyObject *
share_string(shared_text *last, uint32_t string)
{
    if (last->object == NULL || last->string != string) {
        Py_XSETREF(last->object, ep_py_string(string));
        last->string = string;
    }
    return Py_XNewRef(last->object);
}

/* [(name, module, file, line, kind)]; unknown: None. */
static PyObject *
trace_functions(PyObject *object, PyObject *unused)
{
    (void)unused;
    static const char *const words[EP_NAME_KIND_COUNT] = {"python", "c", "type", "object",
                                                          "user", "gc", "audit", "hpy"};
    ep_py_trace *self = (ep_py_trace *)object;
    if (ep_py_trace_reach(self, EP_STEP_NAMES, 0) < 0) {
        return NULL;
    }
    PyObject *kinds[EP_NAME_KIND_COUNT] = {NULL};
    PyObject *rows = PyList_New((Py_ssize_t)self->functions.count);
    for (int kind = 0; rows != NULL && kind < EP_NAME_KIND_COUNT; kind++) {
        kinds[kind] = PyUnicode_InternFromString(words[kind]);
        if (kinds[kind] == NULL) {
            Py_CLEAR(rows);
        }
    }
    shared_text module = {0}, file = {0};
    for (size_t i = 0; rows != NULL && i < self->functions.count; i++) {
        const ep_name *name = ep_name_get(self->functions.name_id[i]);
        PyObject *line = name->line > 0 ? PyLong_FromLong(name->line) : Py_NewRef(Py_None);
        PyObject *row = Py_BuildValue("NNNNO", ep_py_string(name->qualname),
                                      share_string(&module, name->module),
                                      share_string(&file, name->file), line, kinds[name->kind]);
        if (row == NULL) {
            Py_CLEAR(rows);
            break;
        }
        PyList_SET_ITEM(rows, (Py_ssize_t)i, row);
    }
    Py_XDECREF(module.object);
    Py_XDECREF(file.object);
    for (int kind = 0; kind < EP_NAME_KIND_COUNT; kind++) {
        Py_XDECREF(kinds[kind]);
    }
    return rows;
}

/* {kind number: count} of those that are not 0. */
static PyObject *
counts_object(const uint64_t counts[EP_KIND_COUNT])
{
    PyObject *result = PyDict_New();
    for (int kind = 0; result != NULL && kind < EP_KIND_COUNT; kind++) {
        if (counts[kind] == 0) {
            continue;
        }
        PyObject *key = PyLong_FromLong(kind), *value = PyLong_FromUnsignedLongLong(counts[kind]);
        if (key == NULL || value == NULL || PyDict_SetItem(result, key, value) < 0) {
            Py_CLEAR(result);
        }
        Py_XDECREF(key);
        Py_XDECREF(value);
    }
    return result;
}

static PyObject *
thread_name(const ep_thread *thread)
{
    /* Acquire: pairs with ep_thread_set_name(). */
    if (thread == NULL || !atomic_load_explicit(&thread->named, memory_order_acquire)) {
        return Py_NewRef(Py_None);
    }
    return PyUnicode_DecodeUTF8(thread->name, (Py_ssize_t)strlen(thread->name), "surrogatepass");
}

/* [(name, native_id, first_ns, last_ns, recorded by kind, lost by kind)] */
static PyObject *
trace_threads(PyObject *object, PyObject *unused)
{
    (void)unused;
    ep_py_trace *self = (ep_py_trace *)object;
    if (ep_py_trace_reach(self, EP_STEP_HEAD, 0) < 0) {
        return NULL;
    }
    const ep_decoded *head = ep_py_trace_head(self);
    PyObject *rows = PyList_New((Py_ssize_t)head->thread_count);
    for (size_t i = 0; rows != NULL && i < head->thread_count; i++) {
        const ep_trace_thread *thread = &head->threads[i];
        PyObject *row = Py_BuildValue(
            "NKLLNN", thread_name(thread->thread),
            (unsigned long long)(thread->thread != NULL ? thread->thread->native_id : 0),
            (long long)thread->first_ns, (long long)thread->last_ns, counts_object(thread->recorded),
            counts_object(thread->lost));
        if (row == NULL) {
            Py_CLEAR(rows);
            break;
        }
        PyList_SET_ITEM(rows, (Py_ssize_t)i, row);
    }
    return rows;
}

static PyObject *
trace_facts(PyObject *object, PyObject *unused)
{
    (void)unused;
    ep_py_trace *self = (ep_py_trace *)object;
    if (ep_py_trace_reach(self, EP_STEP_HEAD, 0) < 0) {
        return NULL;
    }
    const ep_recording *recording = &self->recording;
    const ep_decoded *head = ep_py_trace_head(self);
    return Py_BuildValue(
        "{s:L,s:L,s:L,s:d,s:z,s:K,s:K,s:K,s:K,s:K,s:K,s:n}", "duration_ns",
        (long long)head->duration_ns, "start_monotonic_ns",
        (long long)recording->start.monotonic_ns, "start_realtime_ns",
        (long long)recording->start_realtime_ns, "clock_frequency_hz", recording->frequency_hz, "full",
        ep_py_full_reason(recording->full_reason, recording->limits), "damaged_chunks",
        (unsigned long long)head->damaged_chunks, "filtered",
        (unsigned long long)recording->filtered, "functions_off",
        (unsigned long long)recording->functions_off, "deep_calls",
        (unsigned long long)recording->deep_calls, "short_calls",
        (unsigned long long)recording->short_calls, "kinds", (unsigned long long)recording->kinds,
        "events", (Py_ssize_t)(self->has_decoded ? head->columns.count : ep_decoded_events(head)));
}

/* (time, bytes): samples of the resident set. */
static PyObject *
trace_resident(PyObject *object, PyObject *unused)
{
    (void)unused;
    ep_py_trace *self = (ep_py_trace *)object;
    if (ep_py_trace_reach(self, EP_STEP_HEAD, 0) < 0) {
        return NULL;
    }
    const ep_decoded *decoded = ep_py_trace_head(self);
    return Py_BuildValue(
        "NN", ep_py_view(object, decoded->resident_ns, decoded->resident_count, EP_PY_INT64),
        ep_py_view(object, decoded->resident_bytes, decoded->resident_count, EP_PY_INT64));
}

static bool
has_every_call(const ep_py_trace *self)
{
    const ep_recording *r = &self->recording;
    return (r->kinds & EP_KINDS_PYTHON) == EP_KINDS_PYTHON && r->filtered == 0 && r->deep_calls == 0 &&
           r->short_calls == 0 && r->functions_off == 0 && self->input.lost_from_ns == EP_NOTHING_LOST;
}

/* Whether a call of `function` is around `call`. */
static bool
is_inside(const ep_calls *calls, int32_t call, int32_t function)
{
    for (int32_t around = calls->parent[call]; around >= 0; around = calls->parent[around]) {
        if (ep_call_function(calls, (size_t)around) == function) {
            return true;
        }
    }
    return false;
}

/* Calls of Python functions that lie in calls of others than called them: the thread went over to
 * another stack of calls in between, as greenlets do. 0 where not every call is there. What is thrown
 * into a generator is called by the one that delegates to it, which need not run.
 *
 * Not those that were called at the entry of a function before the interpreter told of that one: signal
 * handlers, and finalizers that a collection runs. That one begins next, or never (it was interrupted by an
 * exception); what a greenlet goes on with has begun, and is around, or its end was not where it belongs.
 * Fails: EP_NOMEM. */
static ep_status
count_misplaced(const ep_py_trace *self, size_t *out)
{
    const ep_calls *calls = &self->calls;
    const int32_t *callers = self->functions.map.site_caller;
    *out = 0;
    if (!has_every_call(self)) {
        return EP_OK;
    }
    int32_t *around = malloc((calls->count + 1) * sizeof *around);    /* the nearest of Python */
    int32_t *next = malloc((calls->count + 1) * sizeof *next);    /* the function that it calls next */
    if (around == NULL || next == NULL) {
        free(around);
        free(next);
        return EP_NOMEM;
    }
    for (size_t call = 0; call < calls->count; call++) {
        int32_t parent = calls->parent[call];
        uint8_t of_parent = parent >= 0 ? ep_call_kind(calls, (size_t)parent) : EP_KIND_CALL;
        bool in_python = (EP_KINDS_PYTHON & EP_KIND_BIT(of_parent)) != 0;
        around[call] = in_python ? parent : around[parent];
        next[call] = -1;
    }
    for (size_t call = calls->count; call-- > 0;) {
        uint8_t kind = ep_call_kind(calls, call);
        int32_t caller = callers[ep_call_site(calls, call)], parent = around[call];
        if ((kind != EP_KIND_CALL && kind != EP_KIND_RESUME) || caller < 0 || parent < 0) {
            continue;
        }
        if (ep_call_function(calls, (size_t)parent) != caller) {
            bool had_begun = next[parent] != caller &&
                             (calls->end_unseen_count != 0 || is_inside(calls, parent, caller));
            if (!had_begun) {
                continue;
            }
            *out += 1;
        }
        next[parent] = ep_call_function(calls, call);
    }
    free(around);
    free(next);
    return EP_OK;
}

/* {what pairing met: count} */
static PyObject *
trace_pairing(PyObject *object, PyObject *unused)
{
    (void)unused;
    ep_py_trace *self = (ep_py_trace *)object;
    if (ep_py_trace_reach(self, EP_STEP_BLOCKS, 0) < 0) {
        return NULL;
    }
    size_t misplaced;
    ep_status status;
    Py_BEGIN_ALLOW_THREADS
    status = count_misplaced(self, &misplaced);
    Py_END_ALLOW_THREADS
    if (status != EP_OK) {
        return ep_py_raise(status, NULL);
    }
    return Py_BuildValue("{s:n,s:n,s:n,s:n,s:n,s:n,s:n}", "calls_misplaced", (Py_ssize_t)misplaced,
                         "unmatched_ends",
                         (Py_ssize_t)self->calls.unmatched_count, "ends_unseen",
                         (Py_ssize_t)self->calls.end_unseen_count, "frees_of_older_blocks",
                         (Py_ssize_t)self->blocks.older_count, "frees_of_lost_blocks",
                         (Py_ssize_t)self->blocks.malloc_lost_count, "frees_lost",
                         (Py_ssize_t)self->blocks.free_lost_count, "swaps_mended",
                         (Py_ssize_t)self->blocks.mended_count);
}

static PyMethodDef trace_methods[] = {
    EP_PY_SUMMARY_METHODS,
    {"events", trace_events, METH_O, NULL},
    {"calls", trace_calls, METH_O, NULL},
    {"allocations", trace_allocations, METH_O, NULL},
    {"functions", trace_functions, METH_NOARGS, NULL},
    {"threads", trace_threads, METH_NOARGS, NULL},
    {"facts", trace_facts, METH_NOARGS, NULL},
    {"pairing", trace_pairing, METH_NOARGS, NULL},
    {"resident", trace_resident, METH_NOARGS, NULL},
    {"filter", trace_filter, METH_VARARGS, NULL},
    {"tree", ep_py_trace_tree, METH_VARARGS, NULL},
    {"lost", ep_py_trace_lost, METH_NOARGS, NULL},
    {"tenures", ep_py_trace_tenures, METH_NOARGS, NULL},
    {"file_facts", ep_py_trace_file_facts, METH_NOARGS, NULL},
    {"save", ep_py_trace_save, METH_VARARGS, NULL},
    {"verify", ep_py_trace_verify, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot trace_slots[] = {
    {Py_tp_dealloc, trace_dealloc},
    {Py_tp_methods, trace_methods},
    {0, NULL},
};

PyType_Spec ep_py_trace_spec = {
    .name = "eventprof._core.Trace",
    .basicsize = sizeof(ep_py_trace),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = trace_slots,
};
