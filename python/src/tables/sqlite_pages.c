/* Leaf pages of a table in an SQLite file, as https://www.sqlite.org/fileformat2.html describes them.
 *
 *   0        8                             content               4096
 *   [header] [offset of each cell, 2 bytes] ...free...  [cell n]..[cell 0]
 *   header: 0D, offset of the first freeblock (2), cells (2), offset of the content (2), fragments (1)
 *   cell:   varint bytes of the record, varint key, record
 *   record: varint bytes of this head, varint type of each column; then the values, big-endian
 *   types:  0 null, 1 to 6 integers of 1 2 3 4 6 8 bytes, 7 double, 8 and 9 the integers 0 and 1,
 *           13 + 2n text of n bytes
 *
 * A row with the key 5 and the values 300 and "ab" is the cell 07 05 03 02 11 01 2C 61 62. */
#define PY_SSIZE_T_CLEAN
#include "sqlite_pages.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "render.h"
#include "types.h"

#define PAGE_BYTES 4096
#define PAGE_HEADER_BYTES 8
#define LEAF 0x0D
#define VARINT_BYTES_MAX 9
/* SQLite puts a part of a longer record into overflow pages, which are not written here. */
#define RECORD_BYTES_MAX (PAGE_BYTES - 35)
/* With more columns the length of a record's head might not fit a varint of two bytes. */
#define COLUMNS_MAX 1000
/* Smaller keys fit a varint of eight bytes, which has seven bits in each. */
#define KEY_MAX ((int64_t)1 << 56)

typedef enum column_type {
    COLUMN_KEY,
    COLUMN_INT,
    COLUMN_REAL,
    COLUMN_TEXT
} column_type;

typedef struct column {
    column_type type;
    const int64_t *numbers;
    const double *reals;
    const uint8_t *unknown;    /* NULL: no value is null */
    const int32_t *codes;
    const int64_t *offsets;    /* where each text begins; count + 1 */
    const uint8_t *texts;
    int32_t count;             /* of texts */
    Py_buffer views[3];
    int view_count;
} column;

typedef struct leaves {
    uint8_t *pages;
    int64_t *last;            /* the last key of each page */
    size_t count, room;       /* pages */
    size_t cells, content;    /* of the last page: its cells, the offset of its content */
} leaves;

typedef enum leaves_result {
    LEAVES_DONE,
    LEAVES_NO_MEMORY,
    LEAVES_TOO_LONG,
    LEAVES_BAD_CODE,
    LEAVES_BAD_KEY
} leaves_result;

/* ---- Bytes ----------------------------------------------------------------------------------- */

/* The most significant seven bits come first. The value is less than 1 << 56. */
static uint8_t *
put_varint(uint8_t *at, uint64_t value)
{
    int groups = 1;
    for (uint64_t rest = value >> 7; rest != 0; rest >>= 7) {
        groups++;
    }
    for (int group = groups - 1; group >= 0; group--) {
        *at++ = (uint8_t)((value >> (7 * group) & 127) | (group > 0 ? 128 : 0));
    }
    return at;
}

static uint8_t *
put_big_endian(uint8_t *at, uint64_t value, int bytes)
{
    for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) {
        *at++ = (uint8_t)(value >> shift);
    }
    return at;
}

static void
put_16(uint8_t *at, size_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

/* ---- Records --------------------------------------------------------------------------------- */

/* Returns: the type for an integer. *bytes: the fewest bytes that hold it. */
static uint8_t
integer_type(int64_t value, int *bytes)
{
    static const int bytes_of[] = {0, 1, 2, 3, 4, 6, 8};
    if (value == 0 || value == 1) {
        *bytes = 0;
        return (uint8_t)(8 + value);
    }
    uint64_t size = (uint64_t)(value < 0 ? ~value : value);
    uint8_t type = size < 1u << 7             ? 1
                   : size < 1u << 15          ? 2
                   : size < 1u << 23          ? 3
                   : size < 1u << 31          ? 4
                   : size < (uint64_t)1 << 47 ? 5
                                              : 6;
    *bytes = bytes_of[type];
    return type;
}

/* Writes type and value of one column; the record's length is checked after each.
 * Returns: false, a code is outside of its texts, or a text is longer than a record may be. */
static bool
put_value(const column *c, Py_ssize_t row, uint8_t **types, uint8_t **values, leaves_result *why)
{
    if (c->type == COLUMN_KEY || (c->unknown != NULL && c->unknown[row] != 0)) {
        *(*types)++ = 0;
    } else if (c->type == COLUMN_INT) {
        int bytes;
        *(*types)++ = integer_type(c->numbers[row], &bytes);
        *values = put_big_endian(*values, (uint64_t)c->numbers[row], bytes);
    } else if (c->type == COLUMN_REAL) {
        uint64_t bits;
        memcpy(&bits, &c->reals[row], sizeof bits);
        bool is_null = c->reals[row] != c->reals[row];    /* SQLite has no NaN */
        *(*types)++ = is_null ? 0 : 7;
        *values = put_big_endian(*values, bits, is_null ? 0 : 8);
    } else if (c->codes[row] < 0) {
        *(*types)++ = 0;
    } else if (c->codes[row] >= c->count) {
        *why = LEAVES_BAD_CODE;
        return false;
    } else {
        int64_t from = c->offsets[c->codes[row]], length = c->offsets[c->codes[row] + 1] - from;
        if (length > RECORD_BYTES_MAX) {
            *why = LEAVES_TOO_LONG;
            return false;
        }
        *types = put_varint(*types, 13 + 2 * (uint64_t)length);
        memcpy(*values, c->texts + from, (size_t)length);
        *values += length;
    }
    return true;
}

/* The values of a record and one more value, which is written before the length is checked. */
#define VALUES_BYTES_MAX (2 * RECORD_BYTES_MAX + 16)

/* Writes a record: at most RECORD_BYTES_MAX bytes. Returns: its length, or 0, and `why` says what is
 * wrong. */
static size_t
put_record(uint8_t *to, uint8_t *types, uint8_t *values, const column *columns, Py_ssize_t count,
           Py_ssize_t row, leaves_result *why)
{
    uint8_t *next_type = types, *next_value = values;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!put_value(&columns[i], row, &next_type, &next_value, why)) {
            return 0;
        }
        if (next_value - values > RECORD_BYTES_MAX) {
            *why = LEAVES_TOO_LONG;
            return 0;
        }
    }
    size_t type_bytes = (size_t)(next_type - types), value_bytes = (size_t)(next_value - values);
    /* The head's length counts its own varint. */
    size_t head = type_bytes + 1 < 128 ? type_bytes + 1 : type_bytes + 2;
    if (head + value_bytes > RECORD_BYTES_MAX) {
        *why = LEAVES_TOO_LONG;
        return 0;
    }
    uint8_t *at = put_varint(to, head);
    memcpy(at, types, type_bytes);
    memcpy(at + type_bytes, values, value_bytes);
    return head + value_bytes;
}

/* ---- Pages ----------------------------------------------------------------------------------- */

static bool
add_page(leaves *to)
{
    if (to->count == to->room) {
        size_t room = to->room < 8 ? 16 : to->room * 2;
        uint8_t *pages = realloc(to->pages, room * PAGE_BYTES);
        to->pages = pages == NULL ? to->pages : pages;
        int64_t *last = realloc(to->last, room * sizeof *last);
        to->last = last == NULL ? to->last : last;
        if (pages == NULL || last == NULL) {
            return false;
        }
        to->room = room;
    }
    memset(to->pages + to->count * PAGE_BYTES, 0, PAGE_BYTES);
    to->pages[to->count * PAGE_BYTES] = LEAF;
    to->count++;
    to->cells = 0;
    to->content = PAGE_BYTES;
    return true;
}

static bool
add_cell(leaves *to, int64_t key, const uint8_t *record, size_t length)
{
    uint8_t head[2 * VARINT_BYTES_MAX];
    uint8_t *end = put_varint(put_varint(head, length), (uint64_t)key);
    size_t size = (size_t)(end - head) + length;
    if (to->count == 0 || PAGE_HEADER_BYTES + 2 * (to->cells + 1) + size > to->content) {
        if (!add_page(to)) {
            return false;
        }
    }
    uint8_t *page = to->pages + (to->count - 1) * PAGE_BYTES;
    to->content -= size;
    memcpy(page + to->content, head, (size_t)(end - head));
    memcpy(page + to->content + (end - head), record, length);
    put_16(page + PAGE_HEADER_BYTES + 2 * to->cells, to->content);
    to->cells++;
    put_16(page + 3, to->cells);
    put_16(page + 5, to->content);
    to->last[to->count - 1] = key;
    return true;
}

static leaves_result
add_rows(leaves *to, const int64_t *keys, Py_ssize_t rows, const column *columns, Py_ssize_t count)
{
    leaves_result result = LEAVES_DONE;
    size_t type_room = (size_t)count * VARINT_BYTES_MAX + 1;
    uint8_t *scratch = malloc(RECORD_BYTES_MAX + VALUES_BYTES_MAX + type_room);
    if (scratch == NULL) {
        return LEAVES_NO_MEMORY;
    }
    uint8_t *record = scratch, *values = record + RECORD_BYTES_MAX, *types = values + VALUES_BYTES_MAX;
    for (Py_ssize_t row = 0; result == LEAVES_DONE && row < rows; row++) {
        if (keys[row] < 0 || keys[row] >= KEY_MAX || (row > 0 && keys[row] <= keys[row - 1])) {
            result = LEAVES_BAD_KEY;
            break;
        }
        size_t length = put_record(record, types, values, columns, count, row, &result);
        if (length > 0 && !add_cell(to, keys[row], record, length)) {
            result = LEAVES_NO_MEMORY;
        }
    }
    free(scratch);
    return result;
}

/* ---- From Python ----------------------------------------------------------------------------- */

static bool
take_view(column *c, PyObject *object, Py_ssize_t bytes)
{
    Py_buffer *view = &c->views[c->view_count];
    if (PyObject_GetBuffer(object, view, PyBUF_SIMPLE) < 0) {
        return false;
    }
    c->view_count++;
    if (bytes >= 0 && view->len != bytes) {
        PyErr_Format(PyExc_ValueError, "sqlite_leaves(): a column of %zd bytes, not %zd", view->len,
                     bytes);
        return false;
    }
    return true;
}

static bool
take_texts(column *c, PyObject *offsets, PyObject *texts)
{
    if (!take_view(c, offsets, -1) || !take_view(c, texts, -1) ||
        !ep_py_check_texts("sqlite_leaves()", &c->views[1], &c->views[2], &c->count)) {
        return false;
    }
    c->offsets = c->views[1].buf;
    c->texts = c->views[2].buf;
    return true;
}

static bool
take_column(column *c, PyObject *object, Py_ssize_t rows)
{
    if (object == Py_None) {
        return true;
    }
    const char *type;
    PyObject *values, *second, *third = NULL;
    if (!PyArg_ParseTuple(object, "sOO|O:sqlite_leaves", &type, &values, &second, &third)) {
        return false;
    }
    if (strcmp(type, "text") == 0 && third != NULL) {
        c->type = COLUMN_TEXT;
        if (!take_view(c, values, rows * (Py_ssize_t)sizeof *c->codes)) {
            return false;
        }
        c->codes = c->views[0].buf;
        return take_texts(c, second, third);
    }
    if ((strcmp(type, "int") != 0 && strcmp(type, "real") != 0) || third != NULL) {
        PyErr_SetString(PyExc_ValueError, "sqlite_leaves(): there is no such column");
        return false;
    }
    c->type = strcmp(type, "int") == 0 ? COLUMN_INT : COLUMN_REAL;
    if (!take_view(c, values, rows * 8)) {
        return false;
    }
    c->numbers = c->views[0].buf;
    c->reals = c->views[0].buf;
    if (second != Py_None) {
        if (!take_view(c, second, rows)) {
            return false;
        }
        c->unknown = c->views[1].buf;
    }
    return true;
}

static PyObject *
give(leaves_result result, const leaves *made)
{
    const char *pages = made->pages == NULL ? "" : (const char *)made->pages;
    Py_ssize_t last_bytes = (Py_ssize_t)(made->count * sizeof *made->last);
    switch (result) {
        case LEAVES_DONE:
            return Py_BuildValue(
                "y#N", pages, (Py_ssize_t)(made->count * PAGE_BYTES),
                PyByteArray_FromStringAndSize((const char *)made->last, last_bytes));
        case LEAVES_NO_MEMORY:
            return PyErr_NoMemory();
        case LEAVES_TOO_LONG:
            PyErr_SetString(PyExc_ValueError, "sqlite_leaves(): a row is too long for a page");
            return NULL;
        case LEAVES_BAD_CODE:
            PyErr_SetString(PyExc_IndexError, "sqlite_leaves(): a code is outside of its texts");
            return NULL;
        case LEAVES_BAD_KEY:
            PyErr_SetString(PyExc_ValueError, "sqlite_leaves(): keys must ascend from 0");
            return NULL;
    }
    Py_UNREACHABLE();
}

PyObject *
ep_py_sqlite_leaves(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer keys;
    PyObject *given;
    if (!PyArg_ParseTuple(args, "y*O!:sqlite_leaves", &keys, &PyTuple_Type, &given)) {
        return NULL;
    }
    Py_ssize_t rows = keys.len / (Py_ssize_t)sizeof(int64_t), count = PyTuple_GET_SIZE(given);
    PyObject *result = NULL;
    leaves made = {0};
    column *columns = PyMem_Calloc((size_t)count + 1, sizeof *columns);
    bool known = columns != NULL && count <= COLUMNS_MAX;
    if (columns == NULL) {
        PyErr_NoMemory();
    } else if (!known) {
        PyErr_SetString(PyExc_ValueError, "sqlite_leaves(): too many columns");
    }
    for (Py_ssize_t i = 0; known && i < count; i++) {
        known = take_column(&columns[i], PyTuple_GET_ITEM(given, i), rows);
    }
    if (known) {
        leaves_result done;
        Py_BEGIN_ALLOW_THREADS
        done = add_rows(&made, keys.buf, rows, columns, count);
        Py_END_ALLOW_THREADS
        result = give(done, &made);
    }
    free(made.pages);
    free(made.last);
    for (Py_ssize_t i = 0; columns != NULL && i < count; i++) {
        for (int k = 0; k < columns[i].view_count; k++) {
            PyBuffer_Release(&columns[i].views[k]);
        }
    }
    PyMem_Free(columns);
    PyBuffer_Release(&keys);
    return result;
}
