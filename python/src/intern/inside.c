/* Sites inside of functions: lines, instructions, exceptions. */
#include "intern.h"

#include <string.h>

#include "intern_parts.h"

static uint32_t opcode_names[256];    /* 1 + string id; 0: none */

PyObject *
ep_py_set_opcode_names(PyObject *module, PyObject *names)
{
    (void)module;
    if (!PyTuple_Check(names)) {
        return PyErr_Format(PyExc_TypeError, "names must be a tuple, not %s", Py_TYPE(names)->tp_name);
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names) && i < 256; i++) {
        char stack[64], *heap;
        ep_text text = ep_py_text(PyTuple_GET_ITEM(names, i), stack, sizeof stack, &heap);
        uint32_t string = text.at != NULL ? ep_string_add(text) : EP_STRING_NONE;
        free(heap);
        opcode_names[i] = string + 1;    /* none: 0 */
    }
    Py_RETURN_NONE;
}

/* 1 + string id of the instruction's name before specialization; 0: unknown. */
static uint32_t
opcode_name(PyCodeObject *code, Py_ssize_t offset)
{
    PyObject *bytes = PyCode_GetCode(code);    /* which the interpreter keeps: it is made once */
    uint32_t name = 0;
    if (bytes != NULL && offset >= 0 && offset < PyBytes_GET_SIZE(bytes)) {
        name = opcode_names[(unsigned char)PyBytes_AS_STRING(bytes)[offset]];
    }
    Py_XDECREF(bytes);
    return name;
}

bool
ep_py_is_spread_call(PyCodeObject *code, Py_ssize_t offset)
{
    switch ((unsigned char)ep_code_start(code)[offset]) {
        case CALL_FUNCTION_EX:
#ifdef INSTRUMENTED_CALL_FUNCTION_EX
        case INSTRUMENTED_CALL_FUNCTION_EX:
#endif
            return true;
        case CALL:
#ifdef INSTRUMENTED_CALL
        case INSTRUMENTED_CALL:
#endif
            return false;
        default:
            break;
    }
    /* Under line monitoring the opcode in place is a stand-in; the code's bytes say what for. */
    uint32_t busy = ep_py_enter_own();
    ep_py_exception saved = ep_py_exception_save();
    PyObject *bytes = PyCode_GetCode(code);    /* which the interpreter keeps: it is made once */
    bool is_spread = bytes != NULL && offset >= 0 && offset < PyBytes_GET_SIZE(bytes) &&
                     (unsigned char)PyBytes_AS_STRING(bytes)[offset] == CALL_FUNCTION_EX;
    Py_XDECREF(bytes);
    PyErr_Clear();
    ep_py_exception_restore(saved);
    ep_py_leave_own(busy);
    return is_spread;
}

/* The name of code that is running now, with its text. */
static uint32_t
name_of_running(PyCodeObject *code)
{
    uint32_t name = ep_py_code_name(code);
    if (name != 0 && name != EP_ID_SKIP && ep_name_get(name)->pending) {
        PyObject *globals = ep_py_globals_of_running(code);
        if (globals != NULL) {
            (void)ep_py_name_code(code, globals, name);
        }
    }
    return name;
}

static uint32_t
add_place(uintptr_t key, PyCodeObject *code, uintptr_t instruction)
{
    uint32_t name = name_of_running(code);
    if (name == 0 || name == EP_ID_SKIP) {
        return name;
    }
    uint32_t busy = ep_py_enter_own();
    ep_py_exception saved = ep_py_exception_save();
    ep_site site = {.caller = name, .offset = (int32_t)((char *)instruction - ep_code_start(code))};
    site.line = ep_py_line_of(code, site.offset);
    site.task = key == EP_KEY_OPCODE ? opcode_name(code, site.offset) : 0;
    PyErr_Clear();
    ep_py_exception_restore(saved);
    ep_py_leave_own(busy);
    return ep_site_add(key, instruction, &site);
}

uint32_t
ep_py_place_site_slow(PyCodeObject *code, uintptr_t instruction)
{
    return add_place(0, code, instruction);
}

uint32_t
ep_py_opcode_site_slow(PyCodeObject *code, uintptr_t instruction)
{
    return add_place(EP_KEY_OPCODE, code, instruction);
}

uint32_t
ep_py_line_site(PyCodeObject *code, int line)
{
    /* No code object and no instruction is at such addresses. */
    uintptr_t key = (uintptr_t)code | 1, number = (uintptr_t)line << 1 | 1;
    uint32_t id = ep_site_find(key, number), name = id == 0 ? name_of_running(code) : 0;
    if (id != 0 || name == 0 || name == EP_ID_SKIP) {
        return id != 0 ? id : name;
    }
    ep_site site = {.caller = name, .offset = -1, .line = line};
    return ep_site_add(key, number, &site);
}

uint32_t
ep_py_exception_site(PyTypeObject *type, PyCodeObject *code, uintptr_t instruction)
{
    ep_callee callee = ep_py_typed_callee(type, EP_TAG_TYPE);
    if (callee.name == EP_ID_SKIP) {
        return EP_ID_SKIP;
    }
    uint32_t id = ep_site_find(callee.key, instruction), name = id == 0 ? name_of_running(code) : 0;
    if (id != 0 || name == 0 || name == EP_ID_SKIP) {
        return id != 0 ? id : name;
    }
    ep_site site = {.callee = callee.name,
                    .caller = name,
                    .offset = (int32_t)((char *)instruction - ep_code_start(code))};
    uint32_t busy = ep_py_enter_own();
    site.line = ep_py_line_of(code, site.offset);
    ep_py_leave_own(busy);
    return ep_site_add(callee.key, instruction, &site);
}
