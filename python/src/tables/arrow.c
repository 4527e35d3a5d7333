/* Tables to Arrow, through the C data and C stream interfaces, in PyCapsules.
 *
 *   capsule -> stream --+
 *   batch  -> column ---+--> export: the columns' buffers, names, validity bits; counted
 *          -> column ---+
 *
 * A consumer may move a column out of its batch, keep it, and release it from any thread, with or
 * without the GIL, even as the interpreter shuts down. So every node holds a count of the export,
 * and whoever drops the last one gives the buffers back. The numbers themselves are never copied.
 *
 * By hand, not by nanoarrow: doc/decisions/arrow.md. */
#include <Python.h>

#include "arrow.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "compat.h"
#include "memory.h"

typedef struct column {
    char *name;                 /* UTF-8, terminated; owned */
    const char *format;         /* of the values, or of the dictionary's indices; immortal */
    bool nullable;
    const void *values;         /* view into a buffer, or into `bits` */
    uint8_t *bits;              /* of a column of bools, which are bytes in NumPy; owned */
    uint8_t *validity;          /* bits, 1: there is a value; NULL: everywhere; owned */
    int64_t null_count;
    bool dictionary;            /* text: the values are indices of it */
    int64_t text_count;
    const void *text_offsets;   /* int32, text_count + 1; view */
    const void *text;           /* UTF-8; view */
} column;

#define BUFFERS_PER_COLUMN 4    /* values, nulls, text offsets, text */

/* Constant once made, but for the count. */
typedef struct exported {
    _Atomic size_t references;
    int64_t rows;
    Py_buffer *buffers;
    size_t buffer_count;
    size_t column_count;
    column *columns;
} exported;

/* ---- The export ------------------------------------------------------------------------------ */

/* False: the process is ending, and objects of Python are left as they are. A thread that asks while the
 * interpreter begins to shut down may still be ended by it, as by any PyGILState_Ensure(). */
static bool
gil_can_be_taken(void)
{
    if (!Py_IsInitialized()) {
        return false;    /* first: without an interpreter, the check below says yes */
    }
    return PyGILState_Check() || !ep_py_is_finalizing();
}

static void
export_free(exported *self)
{
    if (self->buffer_count > 0 && gil_can_be_taken()) {
        PyGILState_STATE state = PyGILState_Ensure();
        ep_py_exception saved = ep_py_exception_save();
        for (size_t i = 0; i < self->buffer_count; i++) {
            PyBuffer_Release(&self->buffers[i]);
        }
        ep_py_exception_restore(saved);
        PyGILState_Release(state);
    }
    for (size_t i = 0; i < self->column_count; i++) {
        free(self->columns[i].name);
        free(self->columns[i].bits);
        free(self->columns[i].validity);
    }
    free(self->columns);
    free(self->buffers);
    ep_free(self);
}

/* NULL is allowed. */
static void
export_drop(exported *self)
{
    /* Acquire and release: the last one sees what the others did. */
    if (self != NULL &&
        atomic_fetch_sub_explicit(&self->references, 1, memory_order_acq_rel) == 1) {
        export_free(self);
    }
}

static exported *
export_hold(exported *self)
{
    atomic_fetch_add_explicit(&self->references, 1, memory_order_relaxed);
    return self;
}

/* One bit a byte, the first byte lowest; bytes are 0 or 1. `ones`: how many are 1.
 * Returns: new (free), zeros after the last bit up to a multiple of 64 bytes; NULL: no memory. */
static uint8_t *
pack_bits(const uint8_t *bytes, size_t count, int64_t *ones)
{
    size_t room = (count / 8 / 64 + 1) * 64;
    uint8_t *bits = calloc(room, 1);
    if (bits == NULL) {
        return NULL;
    }
    int64_t sum = 0;
    size_t whole = count / 8;
    for (size_t i = 0; i < whole; i++) {
        uint64_t eight = 0;
        for (unsigned j = 0; j < 8; j++) {    /* compilers make one load of it, on little endian */
            eight |= (uint64_t)bytes[i * 8 + j] << (8 * j);
        }
        /* Byte j goes to bit 56 + j; no two products meet in one bit below, so nothing carries. */
        bits[i] = (uint8_t)((eight * UINT64_C(0x0102040810204080)) >> 56);
        sum += __builtin_popcount(bits[i]);
    }
    for (size_t i = whole * 8; i < count; i++) {
        bits[i / 8] |= (uint8_t)(bytes[i] << (i % 8));
        sum += bytes[i];
    }
    *ones = sum;
    return bits;
}

/* The bits of what is not null. Returns: new, NULL if that is everything; *nulls -1: no memory. */
static uint8_t *
pack_validity(const uint8_t *null, size_t count, int64_t *nulls)
{
    uint8_t *bits = pack_bits(null, count, nulls);
    if (bits == NULL) {
        *nulls = -1;
        return NULL;
    }
    if (*nulls == 0) {
        free(bits);
        return NULL;
    }
    for (size_t i = 0; i < (count + 7) / 8; i++) {
        bits[i] = (uint8_t)~bits[i];
    }
    return bits;
}

/* Returns: immortal; NULL for a type that Arrow does not know. */
static const char *
arrow_format(const Py_buffer *buffer)
{
    const char *type = buffer->format != NULL ? buffer->format : "B";
    type += *type == '<' || *type == '=' || *type == '@';
    if (type[0] == 0 || type[1] != 0) {
        return NULL;
    }
    if (type[0] == '?') {
        return "b";
    }
    static const char *const signed_formats[] = {[1] = "c", [2] = "s", [4] = "i", [8] = "l"};
    static const char *const unsigned_formats[] = {[1] = "C", [2] = "S", [4] = "I", [8] = "L"};
    static const char *const float_formats[] = {[4] = "f", [8] = "g"};
    size_t size = (size_t)buffer->itemsize;
    if (size > 8) {
        return NULL;
    }
    if (strchr("bhilq", type[0]) != NULL) {
        return signed_formats[size];
    }
    if (strchr("BHILQ", type[0]) != NULL) {
        return unsigned_formats[size];
    }
    return type[0] == 'f' || type[0] == 'd' ? float_formats[size] : NULL;
}

/* Takes a view of a contiguous object. Returns: borrowed, the export's; NULL with an exception. */
static const Py_buffer *
take_buffer(exported *self, PyObject *object)
{
    Py_buffer *buffer = &self->buffers[self->buffer_count];
    if (PyObject_GetBuffer(object, buffer, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) < 0) {
        return NULL;
    }
    self->buffer_count++;
    return buffer;
}

/* field: (name, values, nulls or None, nullable, (offsets, text) or None). Fails: -1. */
static int
take_field(exported *self, column *to, PyObject *field)
{
    const char *name;
    PyObject *values_object, *nulls_object, *dictionary;
    int nullable;
    if (!PyArg_ParseTuple(field, "sOOpO:arrow field", &name, &values_object, &nulls_object,
                          &nullable, &dictionary)) {
        return -1;
    }
    const Py_buffer *values = take_buffer(self, values_object);
    if (values == NULL) {
        return -1;
    }
    to->name = strdup(name);
    to->nullable = nullable;
    to->values = values->buf;
    to->format = arrow_format(values);
    if (to->name == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (to->format == NULL || values->ndim != 1 || values->shape[0] != self->rows) {
        PyErr_Format(PyExc_TypeError, "column '%s': %lld numbers of a type that Arrow has, please",
                     name, (long long)self->rows);
        return -1;
    }
    if (nulls_object != Py_None) {
        const Py_buffer *nulls = take_buffer(self, nulls_object);
        if (nulls == NULL) {
            return -1;
        }
        if (nulls->len != self->rows || nulls->itemsize != 1) {
            PyErr_Format(PyExc_TypeError, "column '%s': the nulls are not %lld bools", name,
                         (long long)self->rows);
            return -1;
        }
        Py_BEGIN_ALLOW_THREADS
        to->validity = pack_validity(nulls->buf, (size_t)nulls->len, &to->null_count);
        Py_END_ALLOW_THREADS
    }
    if (to->format[0] == 'b') {
        int64_t ones;
        Py_BEGIN_ALLOW_THREADS
        to->values = to->bits = pack_bits(values->buf, (size_t)values->len, &ones);
        Py_END_ALLOW_THREADS
    }
    if (to->null_count < 0 || to->values == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (dictionary != Py_None) {
        PyObject *offsets_object, *text_object;
        if (!PyArg_ParseTuple(dictionary, "OO:arrow dictionary", &offsets_object, &text_object)) {
            return -1;
        }
        const Py_buffer *offsets = take_buffer(self, offsets_object);
        const Py_buffer *text = offsets != NULL ? take_buffer(self, text_object) : NULL;
        if (text == NULL) {
            return -1;
        }
        if (offsets->itemsize != 4 || offsets->len < 4) {
            PyErr_Format(PyExc_TypeError, "column '%s': the offsets are not int32", name);
            return -1;
        }
        to->dictionary = true;
        to->text_count = offsets->len / 4 - 1;
        to->text_offsets = offsets->buf;
        to->text = text->buf;
    }
    return 0;
}

/* args: (fields, rows). Returns: new, one reference; NULL with an exception. */
static exported *
export_new(PyObject *args, const char *signature)
{
    PyObject *fields;
    Py_ssize_t rows;
    if (!PyArg_ParseTuple(args, signature, &PyList_Type, &fields, &rows)) {
        return NULL;
    }
    size_t count = (size_t)PyList_GET_SIZE(fields);
    exported *self = calloc(1, sizeof *self);
    if (self == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    atomic_init(&self->references, 1);
    self->rows = rows;
    self->columns = calloc(count + 1, sizeof *self->columns);
    self->buffers = calloc(count * BUFFERS_PER_COLUMN + 1, sizeof *self->buffers);
    if (self->columns == NULL || self->buffers == NULL) {
        PyErr_NoMemory();
        export_drop(self);
        return NULL;
    }
    self->column_count = count;    /* zeroed ones are safe to free */
    for (size_t i = 0; i < count; i++) {
        if ((size_t)PyList_GET_SIZE(fields) != count ||
            take_field(self, &self->columns[i], PyList_GET_ITEM(fields, (Py_ssize_t)i)) < 0) {
            export_drop(self);
            return NULL;
        }
    }
    return self;
}

/* ---- Schemas: each node owns its name, its children, its dictionary -------------------------- */

static void
release_schema(struct ArrowSchema *schema)
{
    for (int64_t i = 0; i < schema->n_children; i++) {
        if (schema->children[i]->release != NULL) {    /* NULL: the consumer moved it */
            schema->children[i]->release(schema->children[i]);
        }
        free(schema->children[i]);
    }
    free(schema->children);
    if (schema->dictionary != NULL && schema->dictionary->release != NULL) {
        schema->dictionary->release(schema->dictionary);
    }
    free(schema->dictionary);
    free(schema->private_data);
    schema->release = NULL;
}

/* Releasable from here on, whatever fails. False: no memory. */
static bool
begin_schema(struct ArrowSchema *schema, const char *format, const char *name, bool nullable)
{
    *schema = (struct ArrowSchema){
        .format = format,
        .flags = nullable ? ARROW_FLAG_NULLABLE : 0,
        .release = release_schema,
        .private_data = strdup(name),
    };
    schema->name = schema->private_data;
    return schema->name != NULL;
}

static bool
build_column_schema(const column *from, struct ArrowSchema *schema)
{
    if (!begin_schema(schema, from->format, from->name, from->nullable)) {
        return false;
    }
    if (!from->dictionary) {
        return true;
    }
    schema->dictionary = calloc(1, sizeof *schema->dictionary);
    return schema->dictionary != NULL && begin_schema(schema->dictionary, "u", "", false);
}

/* *schema is released again if it fails. */
static bool
build_schema(const exported *from, struct ArrowSchema *schema)
{
    bool done = begin_schema(schema, "+s", "", false);
    if (done) {
        schema->children = calloc(from->column_count + 1, sizeof *schema->children);
        done = schema->children != NULL;
    }
    for (size_t i = 0; done && i < from->column_count; i++) {
        struct ArrowSchema *child = calloc(1, sizeof *child);
        if (child == NULL) {
            done = false;
            break;
        }
        schema->children[schema->n_children++] = child;
        done = build_column_schema(&from->columns[i], child);
    }
    if (!done) {
        release_schema(schema);
    }
    return done;
}

/* ---- Arrays: each node owns its children, its dictionary, and a count of the export ---------- */

typedef struct array_private {
    exported *exported;
    const void *buffers[3];
} array_private;

static void
release_array(struct ArrowArray *array)
{
    for (int64_t i = 0; i < array->n_children; i++) {
        if (array->children[i]->release != NULL) {
            array->children[i]->release(array->children[i]);
        }
        free(array->children[i]);
    }
    free(array->children);
    if (array->dictionary != NULL && array->dictionary->release != NULL) {
        array->dictionary->release(array->dictionary);
    }
    free(array->dictionary);
    array_private *own = array->private_data;
    if (own != NULL) {
        export_drop(own->exported);
    }
    ep_free(own);
    array->release = NULL;
}

/* Releasable from here on, whatever fails. False: no memory. */
static bool
begin_array(struct ArrowArray *array, exported *from, int64_t length, int64_t n_buffers)
{
    array_private *own = calloc(1, sizeof *own);
    *array = (struct ArrowArray){
        .length = length,
        .n_buffers = n_buffers,
        .release = release_array,
        .private_data = own,
    };
    if (own == NULL) {
        return false;
    }
    own->exported = export_hold(from);
    array->buffers = own->buffers;
    return true;
}

static bool
build_column_array(const column *from, exported *owner, struct ArrowArray *array)
{
    if (!begin_array(array, owner, owner->rows, 2)) {
        return false;
    }
    array->null_count = from->null_count;
    array->buffers[0] = from->validity;
    array->buffers[1] = from->values;
    if (!from->dictionary) {
        return true;
    }
    array->dictionary = calloc(1, sizeof *array->dictionary);
    if (array->dictionary == NULL ||
        !begin_array(array->dictionary, owner, from->text_count, 3)) {
        return false;
    }
    array->dictionary->buffers[1] = from->text_offsets;
    array->dictionary->buffers[2] = from->text;
    return true;
}

/* *array is released again if it fails. */
static bool
build_array(exported *from, struct ArrowArray *array)
{
    bool done = begin_array(array, from, from->rows, 1);
    if (done) {
        array->children = calloc(from->column_count + 1, sizeof *array->children);
        done = array->children != NULL;
    }
    for (size_t i = 0; done && i < from->column_count; i++) {
        struct ArrowArray *child = calloc(1, sizeof *child);
        if (child == NULL) {
            done = false;
            break;
        }
        array->children[array->n_children++] = child;
        done = build_column_array(&from->columns[i], from, child);
    }
    if (!done) {
        release_array(array);
    }
    return done;
}

/* ---- The stream: one batch, all rows --------------------------------------------------------- */

typedef struct stream_private {
    exported *exported;
    bool done;
    bool failed;
} stream_private;

static int
stream_get_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out)
{
    stream_private *own = stream->private_data;
    own->failed = !build_schema(own->exported, out);
    return own->failed ? ENOMEM : 0;
}

static int
stream_get_next(struct ArrowArrayStream *stream, struct ArrowArray *out)
{
    stream_private *own = stream->private_data;
    if (own->done || own->exported->rows == 0) {
        memset(out, 0, sizeof *out);    /* released: the end */
        return 0;
    }
    own->failed = !build_array(own->exported, out);
    own->done = !own->failed;
    return own->failed ? ENOMEM : 0;
}

static const char *
stream_get_last_error(struct ArrowArrayStream *stream)
{
    stream_private *own = stream->private_data;
    return own->failed ? "out of memory" : NULL;
}

static void
stream_release(struct ArrowArrayStream *stream)
{
    stream_private *own = stream->private_data;
    export_drop(own->exported);
    ep_free(own);
    stream->release = NULL;
}

/* ---- Capsules -------------------------------------------------------------------------------- */

static const char stream_capsule[] = "arrow_array_stream", schema_capsule[] = "arrow_schema";

static void
free_stream_capsule(PyObject *capsule)
{
    struct ArrowArrayStream *stream = PyCapsule_GetPointer(capsule, stream_capsule);
    if (stream->release != NULL) {    /* NULL: the consumer took it */
        stream->release(stream);
    }
    ep_free(stream);
}

static void
free_schema_capsule(PyObject *capsule)
{
    struct ArrowSchema *schema = PyCapsule_GetPointer(capsule, schema_capsule);
    if (schema->release != NULL) {
        schema->release(schema);
    }
    ep_free(schema);
}

PyObject *
ep_py_arrow_schema(PyObject *module, PyObject *args)
{
    (void)module;
    exported *from = export_new(args, "O!n:arrow_schema");
    if (from == NULL) {
        return NULL;
    }
    struct ArrowSchema *schema = calloc(1, sizeof *schema);
    bool done = schema != NULL && build_schema(from, schema);
    export_drop(from);
    if (!done) {
        ep_free(schema);
        return PyErr_NoMemory();
    }
    PyObject *capsule = PyCapsule_New(schema, schema_capsule, free_schema_capsule);
    if (capsule == NULL) {
        release_schema(schema);
        ep_free(schema);
    }
    return capsule;
}

PyObject *
ep_py_arrow_stream(PyObject *module, PyObject *args)
{
    (void)module;
    exported *from = export_new(args, "O!n:arrow_stream");
    if (from == NULL) {
        return NULL;
    }
    struct ArrowArrayStream *stream = calloc(1, sizeof *stream);
    stream_private *own = calloc(1, sizeof *own);
    if (stream == NULL || own == NULL) {
        ep_free(stream);
        ep_free(own);
        export_drop(from);
        return PyErr_NoMemory();
    }
    own->exported = from;
    *stream = (struct ArrowArrayStream){
        .get_schema = stream_get_schema,
        .get_next = stream_get_next,
        .get_last_error = stream_get_last_error,
        .release = stream_release,
        .private_data = own,
    };
    PyObject *capsule = PyCapsule_New(stream, stream_capsule, free_stream_capsule);
    if (capsule == NULL) {
        stream->release(stream);
        ep_free(stream);
    }
    return capsule;
}
