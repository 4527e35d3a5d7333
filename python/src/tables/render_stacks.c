/* The stacks of a calling-context tree into bytes, for the exporters of trees, and speedscope's begins and
 * ends of calls.
 *
 * A tree is its column of parents: -1 is none, and parents come before their children. A stack is read
 * from its node to the root, so no function keeps the stacks of other nodes. */
#define PY_SSIZE_T_CLEAN
#include "render.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "codec.h"

/* What is given back at once: with every stack, bytes of all nodes would be the square of a deep tree. */
#define AT_ONCE (1 << 20)

/* A number in decimal has 20 characters at most, a varint ten bytes. */
#define NUMBER_MAX 20

static bool
is_column(const Py_buffer *column, Py_ssize_t rows, size_t bytes_each)
{
    if (column->len == rows * (Py_ssize_t)bytes_each) {
        return true;
    }
    PyErr_Format(PyExc_ValueError, "stacks: %zd bytes are not %zd rows", column->len, rows);
    return false;
}

static bool
is_forest(const Py_buffer *column)
{
    const int32_t *parent = column->buf;
    for (Py_ssize_t i = 0; i < column->len / (Py_ssize_t)sizeof *parent; i++) {
        if (parent[i] < -1 || parent[i] >= i) {
            PyErr_SetString(PyExc_ValueError, "stacks: a parent comes after its child");
            return false;
        }
    }
    return true;
}

/* Texts of a dictionary, and one of their numbers for each row; -1: nothing. */
typedef struct texts {
    const int32_t *code;
    const int64_t *offsets;
    const char *bytes;
} texts;

static bool
parse_texts(texts *t, const Py_buffer *code, Py_ssize_t rows, const Py_buffer *offsets,
            const Py_buffer *bytes)
{
    t->code = code->buf;
    t->offsets = offsets->buf;
    t->bytes = bytes->buf;
    Py_ssize_t count = offsets->len / (Py_ssize_t)sizeof *t->offsets - 1;
    bool whole = count >= 0 && t->offsets[0] == 0 && t->offsets[count] == bytes->len;
    for (Py_ssize_t i = 0; whole && i < count; i++) {
        whole = t->offsets[i] <= t->offsets[i + 1];
    }
    for (Py_ssize_t i = 0; whole && i < rows; i++) {
        whole = t->code[i] >= -1 && t->code[i] < count;
    }
    if (!whole) {
        PyErr_SetString(PyExc_ValueError, "stacks: codes or offsets do not fit their texts");
    }
    return whole;
}

static size_t
text_length(const texts *t, Py_ssize_t row)
{
    return t->code[row] < 0 ? 0
                            : (size_t)(t->offsets[t->code[row] + 1] - t->offsets[t->code[row]]);
}

static void
copy_text(uint8_t *to, const texts *t, Py_ssize_t row)
{
    if (t->code[row] >= 0) {
        memcpy(to, t->bytes + t->offsets[t->code[row]], text_length(t, row));
    }
}

typedef struct output {
    uint8_t *data;
    size_t used, room;
} output;

/* Returns: where the next bytes are written, which are `more` at most. Fails: NULL. */
static uint8_t *
reserve(output *out, size_t more)
{
    if (out->room - out->used < more) {
        size_t room = 2 * out->room + more + 4096;
        uint8_t *data = realloc(out->data, room);
        if (data == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        out->data = data;
        out->room = room;
    }
    return out->data + out->used;
}

/* Gives the bytes, and where to go on. */
static PyObject *
finish(output *out, bool whole, Py_ssize_t at)
{
    PyObject *result = NULL;
    if (whole) {
        const void *data = out->data != NULL ? (const void *)out->data : "";    /* NULL would be None */
        result = Py_BuildValue("y#n", data, (Py_ssize_t)out->used, at);
    }
    free(out->data);
    return result;
}

/* ---- Collapsed stacks ------------------------------------------------------------------------ */

static bool
write_stack(output *out, const int32_t *parent, int64_t weight, const texts *names, Py_ssize_t node)
{
    if (weight <= 0) {
        return true;
    }
    size_t length = 0;
    for (int32_t at = (int32_t)node; at >= 0; at = parent[at]) {
        length += text_length(names, at) + 1;
    }
    uint8_t *begin = reserve(out, length + NUMBER_MAX + 2);
    if (begin == NULL) {
        return false;
    }
    uint8_t *to = begin + length;
    for (int32_t at = (int32_t)node; at >= 0; at = parent[at]) {
        *--to = at == node ? ' ' : ';';
        to -= text_length(names, at);
        copy_text(to, names, at);
    }
    char digits[NUMBER_MAX];
    int count = 0;
    for (uint64_t value = (uint64_t)weight; value != 0; value /= 10) {
        digits[count++] = (char)('0' + value % 10);
    }
    to = begin + length;
    while (count > 0) {
        *to++ = (uint8_t)digits[--count];
    }
    *to++ = '\n';
    out->used += (size_t)(to - begin);
    return true;
}

PyObject *
ep_py_collapsed_stacks(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer parent, weight, code, offsets, bytes;
    Py_ssize_t node;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*n:collapsed_stacks", &parent, &weight, &code, &offsets,
                          &bytes, &node)) {
        return NULL;
    }
    Py_ssize_t nodes = parent.len / (Py_ssize_t)sizeof(int32_t);
    texts names;
    output out = {0};
    bool whole = is_forest(&parent) && is_column(&weight, nodes, sizeof(int64_t)) &&
                 is_column(&code, nodes, sizeof(int32_t)) &&
                 parse_texts(&names, &code, nodes, &offsets, &bytes) && node >= 0;
    const int64_t *weights = weight.buf;
    for (; whole && node < nodes && out.used < AT_ONCE; node++) {
        whole = write_stack(&out, parent.buf, weights[node], &names, node);
    }
    PyObject *result = finish(&out, whole, node);
    PyBuffer_Release(&parent);
    PyBuffer_Release(&weight);
    PyBuffer_Release(&code);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&bytes);
    return result;
}

/* ---- pprof ----------------------------------------------------------------------------------- */

static size_t
varint_length(uint64_t value)
{
    size_t length = 1;
    for (; value >= 128; value >>= 7) {
        length++;
    }
    return length;
}

typedef struct samples {
    const int32_t *parent, *own, *caller;
    const int64_t *values;    /* `columns` of each node */
    int columns;
    texts labels;
} samples;

/* 12 length { 0A length { locations, the innermost first }, 12 length { values }, label } */
static bool
write_sample(output *out, const samples *s, Py_ssize_t node)
{
    const int64_t *values = s->values + node * s->columns;
    uint64_t any = 0;
    size_t in_values = 0;
    for (int i = 0; i < s->columns; i++) {
        any |= (uint64_t)values[i];
        in_values += varint_length((uint64_t)values[i]);
    }
    if (any == 0) {
        return true;
    }
    size_t in_stack = varint_length((uint32_t)s->own[node]);
    for (int32_t at = (int32_t)node; s->parent[at] >= 0; at = s->parent[at]) {
        in_stack += varint_length((uint32_t)s->caller[at]);
    }
    size_t in_label = text_length(&s->labels, node);
    size_t whole = 1 + varint_length(in_stack) + in_stack + 1 + varint_length(in_values) +
                   in_values + in_label;
    uint8_t *begin = reserve(out, 1 + NUMBER_MAX + whole), *to = begin;
    if (to == NULL) {
        return false;
    }
    *to++ = 0x12;
    to = ep_store_varint(to, whole);
    *to++ = 0x0A;
    to = ep_store_varint(to, in_stack);
    to = ep_store_varint(to, (uint32_t)s->own[node]);
    for (int32_t at = (int32_t)node; s->parent[at] >= 0; at = s->parent[at]) {
        to = ep_store_varint(to, (uint32_t)s->caller[at]);
    }
    *to++ = 0x12;
    to = ep_store_varint(to, in_values);
    for (int i = 0; i < s->columns; i++) {
        to = ep_store_varint(to, (uint64_t)values[i]);
    }
    copy_text(to, &s->labels, node);
    out->used += (size_t)(to - begin) + in_label;
    return true;
}

PyObject *
ep_py_pprof_samples(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer parent, own, caller, values, code, offsets, bytes;
    Py_ssize_t node;
    samples s;
    if (!PyArg_ParseTuple(args, "y*y*y*y*iy*y*y*n:pprof_samples", &parent, &own, &caller, &values,
                          &s.columns, &code, &offsets, &bytes, &node)) {
        return NULL;
    }
    Py_ssize_t nodes = parent.len / (Py_ssize_t)sizeof(int32_t);
    s.parent = parent.buf;
    s.own = own.buf;
    s.caller = caller.buf;
    s.values = values.buf;
    output out = {0};
    bool whole = s.columns >= 0 && is_forest(&parent) && is_column(&own, nodes, sizeof *s.own) &&
                 is_column(&caller, nodes, sizeof *s.caller) &&
                 is_column(&values, nodes * s.columns, sizeof *s.values) &&
                 is_column(&code, nodes, sizeof(int32_t)) &&
                 parse_texts(&s.labels, &code, nodes, &offsets, &bytes) && node >= 0;
    for (; whole && node < nodes && out.used < AT_ONCE; node++) {
        whole = write_sample(&out, &s, node);
    }
    PyObject *result = finish(&out, whole, node);
    PyBuffer_Release(&parent);
    PyBuffer_Release(&own);
    PyBuffer_Release(&caller);
    PyBuffer_Release(&values);
    PyBuffer_Release(&code);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&bytes);
    return result;
}

/* ---- callgrind ------------------------------------------------------------------------------- */

/* Fails: false, `first` is not of this tree. */
static bool
find_recursion(const int32_t *parent, const int32_t *key, const uint8_t *first, Py_ssize_t nodes,
               int32_t *outer, int32_t *through)
{
    for (Py_ssize_t node = 0; node < nodes; node++) {
        int32_t above = parent[node];
        if (above >= 0 && key[above] == key[node]) {
            outer[node] = outer[above];
            through[node] = through[outer[above]];
            continue;
        }
        outer[node] = (int32_t)node;
        through[node] = -1;
        if (first[node]) {
            continue;
        }
        int32_t at = (int32_t)node;
        while (parent[at] >= 0 && !(key[parent[at]] == key[node] && first[outer[parent[at]]])) {
            at = parent[at];
        }
        if (parent[at] < 0) {
            return false;
        }
        through[node] = at;
    }
    return true;
}

PyObject *
ep_py_recursion(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer parent, key, first;
    if (!PyArg_ParseTuple(args, "y*y*y*:recursion", &parent, &key, &first)) {
        return NULL;
    }
    Py_ssize_t nodes = parent.len / (Py_ssize_t)sizeof(int32_t);
    PyObject *outer = NULL, *through = NULL, *result = NULL;
    if (is_forest(&parent) && is_column(&key, nodes, sizeof(int32_t)) &&
        is_column(&first, nodes, 1)) {
        outer = PyByteArray_FromStringAndSize(NULL, parent.len);
        through = PyByteArray_FromStringAndSize(NULL, parent.len);
    }
    if (outer != NULL && through != NULL) {
        if (find_recursion(parent.buf, key.buf, first.buf, nodes,
                           (int32_t *)(void *)PyByteArray_AS_STRING(outer),
                           (int32_t *)(void *)PyByteArray_AS_STRING(through))) {
            result = PyTuple_Pack(2, outer, through);
        } else {
            PyErr_SetString(PyExc_ValueError, "recursion(): a node is first in no stack");
        }
    }
    Py_XDECREF(outer);
    Py_XDECREF(through);
    PyBuffer_Release(&parent);
    PyBuffer_Release(&key);
    PyBuffer_Release(&first);
    return result;
}

/* ---- speedscope ------------------------------------------------------------------------------ */

typedef struct steps {
    const int32_t *steps, *function;
    const int64_t *start, *duration;
    Py_ssize_t count, calls;
    int64_t last_ns;
} steps;

/* Ends with what is there: `digits` has room for the largest number. Returns: the first digit. */
static char *
decimal(char digits[NUMBER_MAX], uint64_t value)
{
    char *at = digits + NUMBER_MAX;
    for (; value >= 100; value /= 100) {
        unsigned two = (unsigned)(value % 100);
        *--at = (char)('0' + two % 10);
        *--at = (char)('0' + two / 10);
    }
    if (value >= 10) {
        *--at = (char)('0' + value % 10);
        value /= 10;
    }
    *--at = (char)('0' + value);
    return at;
}

/* An event: a text of its function, the time, "},\n". Fails: false, with or without an exception. */
static bool
write_events(output *out, steps *s, const texts *heads, Py_ssize_t functions)
{
    for (Py_ssize_t i = 0; i < s->count; i++) {
        bool begins = s->steps[i] >= 0;
        Py_ssize_t call = begins ? s->steps[i] : ~s->steps[i];
        if (call >= s->calls || s->function[call] >= functions) {
            return false;
        }
        /* The last function stands for unknown. */
        Py_ssize_t function = s->function[call] < 0 ? functions - 1 : s->function[call];
        const int64_t *head = heads->offsets + 2 * function + !begins;
        int64_t ns = s->start[call] + (begins ? 0 : s->duration[call]);
        s->last_ns = ns > s->last_ns ? ns : s->last_ns;
        size_t length = (size_t)(head[1] - head[0]);
        uint8_t *to = reserve(out, length + NUMBER_MAX + 3);
        if (to == NULL) {
            return false;
        }
        memcpy(to, heads->bytes + head[0], length);
        char digits[NUMBER_MAX], *first = decimal(digits, (uint64_t)s->last_ns);
        size_t count = (size_t)(digits + NUMBER_MAX - first);
        memcpy(to + length, first, count);
        memcpy(to + length + count, "},\n", 3);
        out->used += length + count + 3;
    }
    return true;
}

PyObject *
ep_py_speedscope_events(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer rows, start, duration, function, offsets, bytes, none = {0};
    long long last_ns;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*L:speedscope_events", &rows, &start, &duration,
                          &function, &offsets, &bytes, &last_ns)) {
        return NULL;
    }
    steps s = {rows.buf, function.buf, start.buf, duration.buf, 0, 0, last_ns};
    s.count = rows.len / (Py_ssize_t)sizeof *s.steps;
    s.calls = start.len / (Py_ssize_t)sizeof *s.start;
    Py_ssize_t functions = (offsets.len / (Py_ssize_t)sizeof(int64_t) - 1) / 2;
    texts heads;
    output out = {0};
    bool whole = is_column(&duration, s.calls, sizeof *s.duration) &&
                 is_column(&function, s.calls, sizeof *s.function) &&
                 parse_texts(&heads, &none, 0, &offsets, &bytes);
    if (whole && (functions < 1 || last_ns < 0)) {
        PyErr_SetString(PyExc_ValueError, "speedscope_events(): no functions, or a time below 0");
        whole = false;
    }
    if (whole) {
        whole = write_events(&out, &s, &heads, functions);
        if (!whole && !PyErr_Occurred()) {
            PyErr_SetString(PyExc_IndexError, "speedscope_events(): a step is no call");
        }
    }
    PyObject *result = finish(&out, whole, (Py_ssize_t)s.last_ns);
    PyBuffer_Release(&rows);
    PyBuffer_Release(&start);
    PyBuffer_Release(&duration);
    PyBuffer_Release(&function);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&bytes);
    return result;
}
