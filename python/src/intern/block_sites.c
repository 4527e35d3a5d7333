/* The sites of blocks: an allocator hook asks, so nothing here calls Python. */
#include "intern.h"

#include <string.h>

#include "intern_parts.h"

_Atomic bool ep_py_greenlets;
_Atomic(ep_py_numpy_waiter *) ep_py_numpy_awaited;

void
ep_py_look_for_greenlets(void)
{
    PyObject *modules = ep_py_modules();
    if (modules != NULL && PyDict_GetItemString(modules, "greenlet") != NULL) {
        atomic_store_explicit(&ep_py_greenlets, true, memory_order_relaxed);
    }
}

bool
ep_py_code_is_of_file(PyCodeObject *code, const char *end)
{
    PyObject *file = code->co_filename;
    size_t bytes = strlen(end);
    return PyUnicode_KIND(file) == PyUnicode_1BYTE_KIND &&
           (size_t)PyUnicode_GET_LENGTH(file) >= bytes &&
           memcmp((char *)PyUnicode_DATA(file) + PyUnicode_GET_LENGTH(file) - bytes, end, bytes) == 0;
}

void
ep_py_note_greenlets(PyCodeObject *code)
{
    if (EP_UNLIKELY(ep_py_code_is_of_file(code, "/greenlet/__init__.py"))) {
        atomic_store_explicit(&ep_py_greenlets, true, memory_order_relaxed);
        ep_engine_set_todo(EP_TODO_STACKS);
    }
}

static void
sketch_name(const ep_name_text *text, void *context)
{
    ep_name_sketch(*(uint32_t *)context, text);
}

/* No C API here: the text of a function whose call was never seen stays pending until retrieval. */
static uint32_t
name_quietly(PyCodeObject *code)
{
    bool existed;
    uint32_t name = ep_name_add((uintptr_t)code, EP_TAG_PLAIN, NULL, code, &existed);
    if (name != 0 && !existed) {
        Py_INCREF(code);
        if (ep_names_are_told()) {
            ep_py_with_code_text(code, NULL, sketch_name, &name);
        }
    }
    return name;
}

uint32_t
ep_py_frame_name_quietly(ep_frame *frame)
{
    PyThreadState *ts = ep_thread_state();
    PyCodeObject *code = ep_frame_code(frame);
    if (ts == NULL || !ep_py_is_own_interpreter(ts) || Py_REFCNT(code) <= 0) {
        return 0;
    }
    uint32_t id = ep_name_find((uintptr_t)code, EP_TAG_PLAIN);
    return id != 0 ? id : name_quietly(code);
}

uint32_t
ep_py_block_site_slow(ep_frame *frame)
{
    /* All interpreters share the allocators, but code of another interpreter must not be kept alive
     * here. */
    PyThreadState *ts = ep_thread_state();
    if (ts == NULL || !ep_py_is_own_interpreter(ts)) {
        return 0;
    }
    frame = ep_py_visible_frame(frame);
    if (frame == NULL) {
        return 0;
    }
    uintptr_t instruction = ep_frame_instruction(frame);
    uint32_t id = ep_site_find(0, instruction);
    PyCodeObject *code = ep_frame_code(frame);
    if (id != 0 || Py_REFCNT(code) <= 0) {
        return id;
    }
    ep_py_note_greenlets(code);
    /* The first of NumPy's modules that uses the extension with the arrays. */
    ep_py_numpy_waiter *waiter = atomic_load_explicit(&ep_py_numpy_awaited, memory_order_relaxed);
    if (EP_UNLIKELY(waiter != NULL) && ep_py_code_is_of_file(code, "/numpy/_core/overrides.py")) {
        waiter();
    }
    uint32_t name = name_quietly(code);
    if (name == 0) {
        return 0;
    }
    ep_site site = {.caller = name, .offset = (int32_t)ep_frame_offset(frame)};
    site.line = ep_py_line_of(code, site.offset);
    return ep_site_add(0, instruction, &site);
}
