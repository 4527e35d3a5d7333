/* Converts str objects to C texts without making a Python object. */
#include "intern.h"

#include <string.h>

static size_t
utf8_bytes(Py_UCS4 character)
{
    return character < 0x80 ? 1 : character < 0x800 ? 2
                              : character < 0x10000 ? 3
                                                    : 4;
}

static char *
put_utf8(char *at, Py_UCS4 c)
{
    static const unsigned char lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    size_t bytes = utf8_bytes(c);
    if (bytes == 1) {
        *at = (char)c;
        return at + 1;
    }
    for (size_t i = bytes - 1; i > 0; i--) {
        at[i] = (char)(0x80 | (c & 0x3F));
        c >>= 6;
    }
    at[0] = (char)(lead[bytes] | c);
    return at + bytes;
}

PyObject *
ep_py_string(uint32_t string)
{
    ep_text text = ep_string_get(string);
    if (text.at == NULL) {
        return Py_NewRef(Py_None);
    }
    return PyUnicode_DecodeUTF8(text.at, (Py_ssize_t)text.bytes, "surrogatepass");
}

ep_text
ep_py_text(PyObject *text, char *stack, size_t stack_bytes, char **heap)
{
    *heap = NULL;
    if (text == NULL || !PyUnicode_Check(text)) {
        return (ep_text){NULL, 0};
    }
    int kind = (int)PyUnicode_KIND(text);
    const void *data = PyUnicode_DATA(text);
    Py_ssize_t length = PyUnicode_GET_LENGTH(text);
    size_t bytes = 0;
    for (Py_ssize_t i = 0; i < length; i++) {
        bytes += utf8_bytes(PyUnicode_READ(kind, data, i));
    }
    char *copy = stack;
    if (bytes > stack_bytes && (copy = *heap = malloc(bytes)) == NULL) {
        return (ep_text){NULL, 0};
    }
    char *at = copy;
    for (Py_ssize_t i = 0; i < length; i++) {
        at = put_utf8(at, PyUnicode_READ(kind, data, i));
    }
    return (ep_text){copy, bytes};
}
