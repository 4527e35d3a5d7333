/* Writes rows as bytes without making a Python object for each row; the exporters are made of this.
 *
 * All functions work on the buffers of NumPy arrays, which must be contiguous and of the types that
 * render.h names. A buffer of another length is refused, and so is an index outside of its table. */
#define PY_SSIZE_T_CLEAN
#include "render.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "arrays.h"
#include "codec.h"
#include "hash_index.h"
#include "memory.h"
#include "types.h"

/* A number in decimal has 20 characters at most, with a point and a sign 22. */
#define NUMBER_MAX 24

static bool
holds(const Py_buffer *buffer, Py_ssize_t rows, size_t bytes_each, const char *what)
{
    if (buffer->len == rows * (Py_ssize_t)bytes_each) {
        return true;
    }
    PyErr_Format(PyExc_ValueError, "%s: %zd bytes are not %zd rows", what, buffer->len, rows);
    return false;
}

/* ---- Text ------------------------------------------------------------------------------------ */

typedef enum part_type {
    PART_BYTES,    /* the same in every row */
    PART_INT,      /* int64 in decimal */
    PART_US,       /* int64 ns as microseconds with three decimals */
    PART_SOME,     /* bytes, then an int64 in decimal; nothing if the number is 0 */
    PART_MASKED,   /* an int64 in decimal, or bytes if the number is unknown */
    PART_TEXT      /* one of the texts of a dictionary, by an int32 code; -1: nothing */
} part_type;

typedef struct part {
    part_type type;
    const char *bytes;    /* the bytes of the part; of PART_TEXT, all texts of the dictionary */
    size_t length;        /* of bytes; PART_TEXT: not used */
    const int64_t *numbers;
    const uint8_t *unknown;
    const int32_t *codes;
    const int64_t *offsets;    /* of the dictionary; count + 1 */
    int32_t count;
    Py_buffer views[3];
    int view_count;
} part;

static char *
write_digits(char *at, uint64_t value)
{
    char digits[NUMBER_MAX];
    int count = 0;
    do {
        digits[count++] = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    while (count > 0) {
        *at++ = digits[--count];
    }
    return at;
}

static uint64_t
magnitude(char **at, int64_t value)
{
    if (value >= 0) {
        return (uint64_t)value;
    }
    *(*at)++ = '-';
    return ~(uint64_t)value + 1;
}

static char *
write_us(char *at, int64_t ns)
{
    uint64_t value = magnitude(&at, ns);
    at = write_digits(at, value / 1000);
    unsigned rest = (unsigned)(value % 1000);
    *at++ = '.';
    *at++ = (char)('0' + rest / 100);
    *at++ = (char)('0' + rest / 10 % 10);
    *at++ = (char)('0' + rest % 10);
    return at;
}

static bool
parse_view(part *p, PyObject *object)
{
    if (PyObject_GetBuffer(object, &p->views[p->view_count], PyBUF_SIMPLE) < 0) {
        return false;
    }
    p->view_count += 1;
    return true;
}

/* Checks the texts of a column: `offsets` (int64, one more than there are texts) must rise from 0 to the
 * length of `texts`. function: for the message. *count: how many texts there are. Fails: false,
 * exception set. */
static bool
check_texts(const char *function, const Py_buffer *offsets, const Py_buffer *texts, int32_t *count)
{
    const int64_t *at = offsets->buf;
    Py_ssize_t last = offsets->len / (Py_ssize_t)sizeof *at - 1;
    bool whole = last >= 0 && last <= INT32_MAX && at[0] == 0 && at[last] == texts->len;
    for (Py_ssize_t i = 0; whole && i < last; i++) {
        whole = at[i] <= at[i + 1];
    }
    if (!whole) {
        PyErr_Format(PyExc_ValueError, "%s: offsets do not fit their texts", function);
        return false;
    }
    *count = (int32_t)last;
    return true;
}

static part_type
numeric_type(const char *word)
{
    return strcmp(word, "int") == 0      ? PART_INT
           : strcmp(word, "us") == 0     ? PART_US
           : strcmp(word, "some") == 0   ? PART_SOME
           : strcmp(word, "masked") == 0 ? PART_MASKED
                                         : PART_BYTES;
}

/* Reads the operands of a numeric part: the numbers, and what is written before them or in their place. */
static bool
parse_numeric(part *p, Py_ssize_t rows, PyObject *second, PyObject *third)
{
    static const int operands[] = {
        [PART_BYTES] = -1, [PART_INT] = 0, [PART_US] = 0, [PART_SOME] = 1, [PART_MASKED] = 2};
    if (operands[p->type] != (second != NULL) + (third != NULL)) {
        PyErr_SetString(PyExc_ValueError, "render_rows(): there is no such part");
        return false;
    }
    p->numbers = p->views[0].buf;
    if (!holds(&p->views[0], rows, sizeof *p->numbers, "render_rows()")) {
        return false;
    }
    PyObject *bytes = p->type == PART_SOME ? second : third;
    if (bytes != NULL) {
        if (PyBytes_AsStringAndSize(bytes, (char **)&p->bytes, (Py_ssize_t *)&p->length) < 0) {
            return false;
        }
    }
    if (p->type == PART_MASKED) {
        if (!parse_view(p, second)) {
            return false;
        }
        p->unknown = p->views[1].buf;
        return holds(&p->views[1], rows, 1, "render_rows()");
    }
    return true;
}

/* bytes; or ("int" | "us", int64 array); or ("some", int64 array, bytes); or ("masked", int64 array,
 * bool array, bytes); or ("text", int32 array, int64 offsets, bytes). Bytes are borrowed. */
static bool
parse_part(part *p, PyObject *object, Py_ssize_t rows)
{
    if (PyBytes_Check(object)) {
        p->bytes = PyBytes_AS_STRING(object);
        p->length = (size_t)PyBytes_GET_SIZE(object);
        return true;
    }
    const char *type;
    PyObject *values, *offsets = NULL, *texts = NULL;
    if (!PyArg_ParseTuple(object, "sO|OO:render_rows", &type, &values, &offsets, &texts) ||
        !parse_view(p, values)) {
        return false;
    }
    if (strcmp(type, "text") == 0 && texts != NULL) {
        p->type = PART_TEXT;
        p->codes = p->views[0].buf;
        if (!holds(&p->views[0], rows, sizeof *p->codes, "render_rows()") || !parse_view(p, offsets) ||
            !parse_view(p, texts) ||
            !check_texts("render_rows()", &p->views[1], &p->views[2], &p->count)) {
            return false;
        }
        p->offsets = p->views[1].buf;
        p->bytes = p->views[2].buf;
        return true;
    }
    p->type = numeric_type(type);
    return parse_numeric(p, rows, offsets, texts);
}

/* Returns: the end of what was written; NULL if a code is outside of its dictionary. */
static char *
write_row(char *at, const part *parts, Py_ssize_t count, Py_ssize_t row)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        const part *p = &parts[i];
        if (p->type == PART_BYTES) {
            memcpy(at, p->bytes, p->length);
            at += p->length;
        } else if (p->type == PART_TEXT) {
            int32_t code = p->codes[row];
            if (code < 0) {
                continue;
            }
            if (code >= p->count) {
                return NULL;
            }
            size_t length = (size_t)(p->offsets[code + 1] - p->offsets[code]);
            memcpy(at, p->bytes + p->offsets[code], length);
            at += length;
        } else if (p->type == PART_US) {
            at = write_us(at, p->numbers[row]);
        } else if (p->type == PART_MASKED && p->unknown[row] != 0) {
            memcpy(at, p->bytes, p->length);
            at += p->length;
        } else if (p->type != PART_SOME || p->numbers[row] != 0) {
            if (p->type == PART_SOME) {
                memcpy(at, p->bytes, p->length);
                at += p->length;
            }
            uint64_t value = magnitude(&at, p->numbers[row]);
            at = write_digits(at, value);
        }
    }
    return at;
}

/* An upper bound, exact for texts. */
static size_t
bytes_of_rows(const part *parts, Py_ssize_t count, Py_ssize_t rows)
{
    size_t all = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        const part *p = &parts[i];
        if (p->type != PART_TEXT) {
            all += (p->length + (p->type != PART_BYTES ? NUMBER_MAX : 0)) * (size_t)rows;
            continue;
        }
        for (Py_ssize_t row = 0; row < rows; row++) {
            int32_t code = p->codes[row];
            if (code >= 0 && code < p->count) {
                all += (size_t)(p->offsets[code + 1] - p->offsets[code]);
            }
        }
    }
    return all;
}

static PyObject *
render_parts(const part *parts, Py_ssize_t count, Py_ssize_t rows)
{
    size_t room = bytes_of_rows(parts, count, rows);
    PyObject *result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)room);
    if (result == NULL) {
        return NULL;
    }
    char *begin = PyBytes_AS_STRING(result), *at = begin;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t row = 0; row < rows && at != NULL; row++) {
        at = write_row(at, parts, count, row);
    }
    Py_END_ALLOW_THREADS
    if (at == NULL) {
        Py_DECREF(result);
        PyErr_SetString(PyExc_IndexError, "render_rows(): a code is outside of its texts");
        return NULL;
    }
    if (_PyBytes_Resize(&result, at - begin) < 0) {
        return NULL;
    }
    return result;
}

PyObject *
ep_py_render_rows(PyObject *module, PyObject *args)
{
    (void)module;
    Py_ssize_t rows;
    PyObject *given;
    if (!PyArg_ParseTuple(args, "nO!:render_rows", &rows, &PyTuple_Type, &given)) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(given);
    part *parts = PyMem_Calloc((size_t)count + 1, sizeof *parts);
    if (parts == NULL) {
        return PyErr_NoMemory();
    }
    bool parsed = true;
    for (Py_ssize_t i = 0; parsed && i < count; i++) {
        parsed = parse_part(&parts[i], PyTuple_GET_ITEM(given, i), rows);
    }
    PyObject *result = parsed ? render_parts(parts, count, rows) : NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        for (int k = 0; k < parts[i].view_count; k++) {
            PyBuffer_Release(&parts[i].views[k]);
        }
    }
    PyMem_Free(parts);
    return result;
}

/* ---- Calls as begins and ends ---------------------------------------------------------------- */

/* The state between two calls of nest(). */
typedef struct nesting {
    Py_ssize_t at;    /* in the rows: the next call that begins */
    int32_t top;      /* the innermost open call; -1: none */
} nesting;

/* Writes up to `room` begins (a row) and ends (~row). `calls` are the rows of a thread; NULL: all rows.
 * Fails: -1, a row is outside of the table, or its parent is not open when it begins. */
static Py_ssize_t
nest(nesting *from, const int32_t *parent, Py_ssize_t rows, const int32_t *calls, Py_ssize_t count,
     int32_t *steps, Py_ssize_t room)
{
    Py_ssize_t written = 0;
    while (written < room && (from->at < count || from->top >= 0)) {
        int32_t row = -1, until = -1;
        if (from->at < count) {
            row = calls == NULL ? (int32_t)from->at : calls[from->at];
            if (row < 0 || row >= rows || parent[row] < -1 || parent[row] >= row) {
                return -1;
            }
            until = parent[row];
        }
        if (from->top != until) {
            if (from->top < 0) {
                return -1;    /* its parent has ended already */
            }
            steps[written++] = ~from->top;
            from->top = parent[from->top];
        } else {
            steps[written++] = row;
            from->top = row;
            from->at++;
        }
    }
    return written;
}

PyObject *
ep_py_nest_calls(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer parent, calls = {0};
    PyObject *given;
    nesting from;
    Py_ssize_t room;
    if (!PyArg_ParseTuple(args, "y*Onin:nest_calls", &parent, &given, &from.at, &from.top, &room)) {
        return NULL;
    }
    Py_ssize_t rows = parent.len / (Py_ssize_t)sizeof(int32_t);
    PyObject *steps = NULL, *result = NULL;
    if (given != Py_None && PyObject_GetBuffer(given, &calls, PyBUF_SIMPLE) < 0) {
        goto done;
    }
    Py_ssize_t count = given == Py_None ? rows : calls.len / (Py_ssize_t)sizeof(int32_t);
    if (rows > INT32_MAX / 2 || from.at < 0 || from.at > count || from.top < -1 ||
        from.top >= rows || room < 0 ||
        room > INT32_MAX / 2) {
        PyErr_SetString(PyExc_ValueError, "nest_calls(): too many calls, or no place to go on from");
        goto done;
    }
    steps = PyByteArray_FromStringAndSize(NULL, room * (Py_ssize_t)sizeof(int32_t));
    if (steps == NULL) {
        goto done;
    }
    int32_t *to = (int32_t *)(void *)PyByteArray_AS_STRING(steps);
    Py_ssize_t written;
    Py_BEGIN_ALLOW_THREADS
    written = nest(&from, parent.buf, rows, calls.buf, count, to, room);
    Py_END_ALLOW_THREADS
    if (written < 0) {
        PyErr_SetString(PyExc_ValueError,
                        "nest_calls(): the calls are not a forest in order of start");
    } else if (PyByteArray_Resize(steps, written * (Py_ssize_t)sizeof(int32_t)) == 0) {
        result = Py_BuildValue("Oni", steps, from.at, from.top);
    }
done:
    Py_XDECREF(steps);
    PyBuffer_Release(&calls);
    PyBuffer_Release(&parent);
    return result;
}

/* Sorts rows by thread; rows of one thread stay in order. next: scratch. Fails: false, a thread is
 * outside of its table. */
static bool
sort_by_thread(const int32_t *thread, Py_ssize_t rows, Py_ssize_t threads, int64_t *first, int64_t *next,
               int32_t *sorted)
{
    for (Py_ssize_t i = 0; i < rows; i++) {
        ep_column_row((size_t)i);
        if (thread[i] < 0 || thread[i] >= threads) {
            return false;
        }
        first[thread[i] + 1]++;
    }
    for (Py_ssize_t t = 0; t < threads; t++) {
        next[t] = first[t];
        first[t + 1] += first[t];
    }
    for (Py_ssize_t i = 0; i < rows; i++) {
        ep_column_row((size_t)i);
        sorted[next[thread[i]]++] = (int32_t)i;
    }
    return true;
}

PyObject *
ep_py_calls_by_thread(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer thread;
    Py_ssize_t threads;
    if (!PyArg_ParseTuple(args, "y*n:calls_by_thread", &thread, &threads)) {
        return NULL;
    }
    Py_ssize_t rows = thread.len / (Py_ssize_t)sizeof(int32_t);
    PyObject *sorted = NULL, *first = NULL, *result = NULL;
    int64_t *next = NULL;
    void *to;
    if (rows > INT32_MAX / 2 || threads < 0 || threads > INT32_MAX / 2) {
        PyErr_SetString(PyExc_ValueError,
                        "calls_by_thread(): too many calls, or less than no threads");
        goto done;
    }
    Py_ssize_t bytes = (threads + 1) * (Py_ssize_t)sizeof *next;
    sorted = ep_py_array((size_t)rows, EP_TYPE_INT32, &to);
    first = PyByteArray_FromStringAndSize(NULL, bytes);
    next = PyMem_Calloc((size_t)threads + 1, sizeof *next);
    if (sorted == NULL || first == NULL || next == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    int64_t *bounds = (int64_t *)(void *)PyByteArray_AS_STRING(first);
    memset(bounds, 0, (size_t)bytes);
    bool known;
    Py_BEGIN_ALLOW_THREADS
    known = sort_by_thread(thread.buf, rows, threads, bounds, next, to);
    Py_END_ALLOW_THREADS
    if (known) {
        result = PyTuple_Pack(2, sorted, first);
    } else {
        PyErr_SetString(PyExc_ValueError, "calls_by_thread(): there is no such thread");
    }
done:
    PyMem_Free(next);
    Py_XDECREF(sorted);
    Py_XDECREF(first);
    PyBuffer_Release(&thread);
    return result;
}

/* ---- The calling-context tree ---------------------------------------------------------------- */

typedef struct tree {
    ep_hash_index nodes;    /* by parent and key */
    int32_t *parent, *key;
    size_t count, parent_capacity, key_capacity;
} tree;

typedef struct tree_key {
    int32_t parent, key;
} tree_key;

static uint64_t
hash_of_node(const void *rows, size_t node)
{
    const tree *t = rows;
    return ep_hash_words((uint32_t)t->parent[node], (uint32_t)t->key[node]);
}

static bool
is_node(const void *rows, size_t node, const void *key)
{
    const tree *t = rows;
    const tree_key *wanted = key;
    return t->parent[node] == wanted->parent && t->key[node] == wanted->key;
}

/* Room for one more node. Fails: false. */
static bool
tree_reserve(tree *t)
{
    return ep_hash_index_reserve(&t->nodes, hash_of_node, t) &&
           (t->count < t->key_capacity ||
            (ep_grow_raw((void **)&t->parent, &t->parent_capacity, t->count + 1, sizeof *t->parent) &&
             ep_grow_raw((void **)&t->key, &t->key_capacity, t->count + 1, sizeof *t->key)));
}

typedef enum fold_result {
    FOLD_DONE,
    FOLD_NO_MEMORY,
    FOLD_NO_FOREST
} fold_result;

static fold_result
fold(tree *t, const int32_t *parent, const int32_t *key, Py_ssize_t rows, int32_t *nodes)
{
    for (Py_ssize_t i = 0; i < rows; i++) {
        ep_column_row((size_t)i);
        if (parent[i] < -1 || parent[i] >= i) {
            return FOLD_NO_FOREST;
        }
        if (!tree_reserve(t)) {
            return FOLD_NO_MEMORY;
        }
        int32_t above = parent[i] >= 0 ? nodes[parent[i]] : -1;
        tree_key wanted = {above, key[i]};
        uint64_t hash = ep_hash_words((uint32_t)above, (uint32_t)key[i]);
        uint32_t *slot = ep_hash_index_slot(&t->nodes, hash, is_node, t, &wanted);
        if (*slot == 0) {
            t->parent[t->count] = above;
            t->key[t->count] = key[i];
            ep_hash_index_add(&t->nodes, slot, t->count++);
        }
        nodes[i] = (int32_t)*slot - 1;
    }
    return FOLD_DONE;
}

PyObject *
ep_py_fold_calls(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer parent, key;
    if (!PyArg_ParseTuple(args, "y*y*:fold_calls", &parent, &key)) {
        return NULL;
    }
    Py_ssize_t rows = parent.len / (Py_ssize_t)sizeof(int32_t);
    PyObject *nodes = NULL, *result = NULL;
    void *to;
    tree t = {0};
    if (rows > INT32_MAX / 2) {
        PyErr_SetString(PyExc_ValueError, "fold_calls(): too many calls");
    } else if (holds(&key, rows, sizeof(int32_t), "fold_calls()")) {
        nodes = ep_py_array((size_t)rows, EP_TYPE_INT32, &to);
    }
    if (nodes != NULL) {
        fold_result folded;
        Py_BEGIN_ALLOW_THREADS
        folded = fold(&t, parent.buf, key.buf, rows, to);
        Py_END_ALLOW_THREADS
        if (folded == FOLD_NO_MEMORY) {
            PyErr_NoMemory();
        } else if (folded == FOLD_NO_FOREST) {
            PyErr_SetString(PyExc_ValueError, "fold_calls(): a parent comes after its child");
        } else {
            Py_ssize_t bytes = (Py_ssize_t)(t.count * sizeof(int32_t));
            result = Py_BuildValue("ONN", nodes,
                                   PyByteArray_FromStringAndSize((const char *)t.parent, bytes),
                                   PyByteArray_FromStringAndSize((const char *)t.key, bytes));
        }
    }
    ep_hash_index_free(&t.nodes);
    free(t.parent);
    free(t.key);
    Py_XDECREF(nodes);
    PyBuffer_Release(&parent);
    PyBuffer_Release(&key);
    return result;
}

/* ---- Perfetto -------------------------------------------------------------------------------- */

/* The size of the largest packet, in which every varint has ten bytes. */
#define PACKET_MAX 96

/* Writes a packet of a sequence whose clock is incremental:
 *   0A length { 40 delta, 50 sequence, 5A length { event } }
 * Without sequence_flags, which would say that it needs its sequence's state (names, defaults, clock):
 * trace_processor needs that state for all track events, since Chromium's have no such flag. So an event
 * takes 2 bytes less. */
static uint8_t *
write_packet(uint8_t *at, uint64_t delta_ns, uint32_t sequence, const uint8_t *event, size_t length)
{
    uint8_t packet[PACKET_MAX], *to = packet;
    *to++ = 0x40;
    to = ep_store_varint(to, delta_ns);
    *to++ = 0x50;
    to = ep_store_varint(to, sequence);
    *to++ = 0x5A;
    *to++ = (uint8_t)length;
    memcpy(to, event, length);
    to += length;
    *at++ = 0x0A;
    at = ep_store_varint(at, (uint64_t)(to - packet));
    memcpy(at, packet, (size_t)(to - packet));
    return at + (to - packet);
}

typedef struct slices {
    const int32_t *steps;
    Py_ssize_t step_count, call_count;
    const int64_t *start_ns, *duration_ns;
    const int32_t *function;       /* by call; 1 + this is the number of its name; -1: `unknown` is */
    const int32_t *site;           /* by call; the number of its source location; 0: none */
    uint32_t unknown, sequence;
    int depth, depth_max;          /* of slices that a viewer shows */
    int64_t last_ns, left_out;
} slices;

/* Fails: NULL, a step is no call. */
static uint8_t *
write_slices(slices *s, uint8_t *at)
{
    for (Py_ssize_t i = 0; i < s->step_count; i++) {
        bool begins = s->steps[i] >= 0;
        Py_ssize_t call = begins ? s->steps[i] : ~s->steps[i];
        if (call >= s->call_count) {
            return NULL;
        }
        s->depth += begins ? 1 : -1;
        if ((begins ? s->depth : s->depth + 1) > s->depth_max) {
            s->left_out += begins;
            continue;
        }
        int64_t ns = s->start_ns[call] + (begins ? 0 : s->duration_ns[call]);
        ns = ns > s->last_ns ? ns : s->last_ns;
        uint8_t event[PACKET_MAX / 2], *to = event;
        *to++ = 0x48;                 /* type */
        *to++ = begins ? 1 : 2;
        if (begins) {
            *to++ = 0x50;             /* name_iid */
            int32_t function = s->function[call];
            to = ep_store_varint(to, function < 0 ? s->unknown : (uint32_t)function + 1);
            if (s->site[call] > 0) {
                *to++ = 0x90;         /* source_location_iid = 34 */
                *to++ = 0x02;
                to = ep_store_varint(to, (uint32_t)s->site[call]);
            }
        }
        at = write_packet(at, (uint64_t)(ns - s->last_ns), s->sequence, event, (size_t)(to - event));
        s->last_ns = ns;
    }
    return at;
}

PyObject *
ep_py_perfetto_slices(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer steps, start, duration, function, site;
    slices s = {0};
    long long last_ns;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*IIiiL:perfetto_slices", &steps, &start, &duration,
                          &function, &site, &s.unknown, &s.sequence, &s.depth, &s.depth_max,
                          &last_ns)) {
        return NULL;
    }
    s.last_ns = last_ns;
    s.steps = steps.buf;
    s.step_count = steps.len / (Py_ssize_t)sizeof *s.steps;
    s.start_ns = start.buf;
    s.call_count = start.len / (Py_ssize_t)sizeof *s.start_ns;
    s.duration_ns = duration.buf;
    s.function = function.buf;
    s.site = site.buf;
    PyObject *result = NULL;
    uint8_t *room = NULL;
    if (holds(&duration, s.call_count, sizeof *s.duration_ns, "perfetto_slices()") &&
        holds(&function, s.call_count, sizeof *s.function, "perfetto_slices()") &&
        holds(&site, s.call_count, sizeof *s.site, "perfetto_slices()")) {
        room = malloc((size_t)s.step_count * PACKET_MAX + 1);
        uint8_t *done = NULL;
        if (room != NULL) {
            Py_BEGIN_ALLOW_THREADS
            done = write_slices(&s, room);
            Py_END_ALLOW_THREADS
        }
        if (room == NULL) {
            PyErr_NoMemory();
        } else if (done == NULL) {
            PyErr_SetString(PyExc_IndexError, "perfetto_slices(): a step is no call");
        } else {
            result = Py_BuildValue("y#iLL", room, (Py_ssize_t)(done - room), s.depth,
                                   (long long)s.last_ns, (long long)s.left_out);
        }
    }
    free(room);
    PyBuffer_Release(&steps);
    PyBuffer_Release(&start);
    PyBuffer_Release(&duration);
    PyBuffer_Release(&function);
    PyBuffer_Release(&site);
    return result;
}

PyObject *
ep_py_perfetto_counters(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer time, value;
    unsigned sequence;
    long long last_ns;
    if (!PyArg_ParseTuple(args, "y*y*IL:perfetto_counters", &time, &value, &sequence, &last_ns)) {
        return NULL;
    }
    const int64_t *ns = time.buf, *values = value.buf;
    Py_ssize_t rows = time.len / (Py_ssize_t)sizeof *ns;
    PyObject *result = NULL;
    if (holds(&value, rows, sizeof *values, "perfetto_counters()")) {
        uint8_t *room = malloc((size_t)rows * PACKET_MAX + 1), *at = room;
        for (Py_ssize_t i = 0; room != NULL && i < rows; i++) {
            uint8_t event[PACKET_MAX / 2], *to = event;
            int64_t now = ns[i] > last_ns ? ns[i] : last_ns;
            *to++ = 0x48;    /* type: a counter */
            *to++ = 4;
            *to++ = 0xF0;    /* counter_value = 30 */
            *to++ = 0x01;
            to = ep_store_varint(to, (uint64_t)values[i]);
            at = write_packet(at, (uint64_t)(now - last_ns), sequence, event, (size_t)(to - event));
            last_ns = now;
        }
        result = room != NULL ? Py_BuildValue("y#L", room, (Py_ssize_t)(at - room), last_ns)
                              : PyErr_NoMemory();
        free(room);
    }
    PyBuffer_Release(&time);
    PyBuffer_Release(&value);
    return result;
}
