/* Python functions: the names of code objects, and the sites of their calls. */
#include "intern.h"

#include <string.h>

#include "intern_parts.h"
#include "tasks.h"

static PyObject *str_name;    /* interned, immortal */

ep_frame *
ep_py_visible_frame(ep_frame *frame)
{
    frame = ep_frame_of_program(frame);
    while (frame != NULL && (ep_frame_is_incomplete(frame) || ep_py_is_own_code(ep_frame_code(frame)))) {
        frame = ep_frame_previous(frame);
    }
    return frame;
}

PyObject *
ep_py_globals_of_running(PyCodeObject *code)
{
    ep_frame *frame = ep_py_frame_now();
    for (int i = 0; i < 2 && frame != NULL; i++) {
        if (ep_frame_code(frame) == code) {
            return ep_frame_globals(frame);
        }
        frame = ep_frame_previous(frame);
    }
    return NULL;
}

/* ---- Names ----------------------------------------------------------------------------------- */

void
ep_py_with_code_text(PyCodeObject *code, PyObject *module, void (*then)(const ep_name_text *, void *),
                     void *context)
{
    char stack[3][256], *heap[3];
    ep_name_text text = {
        .qualname = ep_py_text(code->co_qualname, stack[0], sizeof stack[0], &heap[0]),
        .module = ep_py_text(module, stack[1], sizeof stack[1], &heap[1]),
        .file = ep_py_text(code->co_filename, stack[2], sizeof stack[2], &heap[2]),
        .line = code->co_firstlineno,
        .kind = EP_NAME_PYTHON,
    };
    then(&text, context);
    for (int i = 0; i < 3; i++) {
        free(heap[i]);
    }
}

void
ep_py_add_name(const ep_name_text *text, void *context)
{
    ep_py_addition *add = context;
    add->id = ep_name_add(add->key, add->tag, text, add->object, &add->existed);
}

void
ep_py_describe_name(const ep_name_text *text, void *context)
{
    ep_name_describe(*(uint32_t *)context, text);
}

int32_t
ep_py_line_of(PyCodeObject *code, int32_t offset)
{
    if (!ep_names_are_told()) {
        return EP_LINE_PENDING;
    }
    int line = PyCode_Addr2Line(code, offset);
    return line > 0 ? line : -1;
}

/* Returns: new; NULL if globals name no module. */
static PyObject *
module_of(PyObject *globals)
{
    return globals != NULL && PyDict_CheckExact(globals) ? ep_py_dict_get(globals, str_name) : NULL;
}

uint32_t
ep_py_name_code(PyCodeObject *code, PyObject *globals, uint32_t pending)
{
    uint32_t busy = ep_py_enter_own();
    ep_py_exception saved = ep_py_exception_save();
    ep_py_addition add = {.key = (uintptr_t)code, .tag = EP_TAG_PLAIN, .object = code, .id = pending};
    PyObject *module = module_of(globals);
    ep_py_look_for_loop_code(code, module);
    if (pending != 0) {
        ep_py_with_code_text(code, module, ep_py_describe_name, &pending);
    } else {
        ep_py_with_code_text(code, module, ep_py_add_name, &add);
        if (add.id != 0 && !add.existed) {
            Py_INCREF(code);
        }
    }
    Py_XDECREF(module);
    ep_py_name_worker_at_begin(code);
    ep_py_note_greenlets(code);
    ep_py_exception_restore(saved);
    ep_py_leave_own(busy);
    return add.id;
}

uint32_t
ep_py_code_name_slow(PyCodeObject *code, PyObject *globals)
{
    /* 3.11 clears a frame while it is the current one: its code object may be in deallocation. */
    if (Py_REFCNT(code) <= 0) {
        return 0;
    }
    if (ep_py_is_own_code(code)) {
        return EP_ID_SKIP;
    }
    return ep_py_name_code(code, globals != NULL ? globals : ep_py_globals_of_running(code), 0);
}

/* A verdict needs the name's text, which an allocator hook may have left pending. */
ep_verdict
ep_py_verdict_slow(PyCodeObject *code, uint32_t name)
{
    if (code != NULL && ep_name_get(name)->pending) {
        PyObject *globals = ep_py_globals_of_running(code);
        if (globals == NULL) {
            return 0xFF00;    /* wanted, until it is known */
        }
        (void)ep_py_name_code(code, globals, name);
    }
    return ep_gate_decide(name);
}

uint32_t
ep_py_frame_name(ep_frame *frame)
{
    PyCodeObject *code = ep_frame_code(frame);
    uint32_t id = ep_name_find((uintptr_t)code, EP_TAG_PLAIN);
    if (id == 0) {
        return ep_py_code_name_slow(code, ep_frame_globals(frame));
    }
    if (EP_UNLIKELY(ep_name_get(id)->pending)) {
        (void)ep_py_name_code(code, ep_frame_globals(frame), id);
    }
    return id;
}

void
ep_py_describe_code(PyCodeObject *code, uint32_t name)
{
    PyObject *globals = ep_py_globals_of_running(code);
    if (globals != NULL) {
        (void)ep_py_name_code(code, globals, name);
    }
}

/* ---- Sites ----------------------------------------------------------------------------------- */

uint32_t
ep_py_add_site(uintptr_t key, uint32_t callee, ep_frame *frame, uintptr_t instruction, uint32_t task)
{
    ep_frame *caller = ep_py_visible_frame(frame);
    if (caller != frame) {
        instruction = caller != NULL ? ep_frame_instruction(caller) : 0;
    }
    uint32_t id = ep_site_find(key, instruction);
    if (id != 0 || callee == 0) {
        return id;
    }
    ep_site site = {.callee = callee, .offset = -1, .line = -1, .task = task};
    if (caller != NULL) {
        site.caller = ep_py_frame_name(caller);
        if (site.caller == 0) {
            return 0;
        }
        site.offset = (int32_t)((char *)instruction - ep_code_start(ep_frame_code(caller)));
        site.line = ep_py_line_of(ep_frame_code(caller), site.offset);
    }
    return ep_site_add(key, instruction, &site);
}

uint32_t
ep_py_place_unattached(uint32_t name, ep_frame *frame)
{
    ep_frame *caller = frame != NULL ? ep_py_visible_frame(frame) : NULL;
    PyCodeObject *code = caller != NULL ? ep_frame_code(caller) : NULL;
    uint32_t caller_name = code != NULL ? ep_name_find((uintptr_t)code, EP_TAG_PLAIN) : 0;
    uintptr_t key = ep_py_key_of_name(name);
    uintptr_t instruction = caller_name != 0 ? ep_frame_instruction(caller) : 0;
    uint32_t id = ep_site_find(key, instruction);
    if (id != 0 || name == 0) {
        return id;
    }
    ep_site site = {.callee = name, .caller = caller_name, .offset = -1, .line = -1};
    if (caller_name != 0) {
        site.offset = (int32_t)((char *)instruction - ep_code_start(code));
        site.line = ep_py_line_of(code, site.offset);
    }
    return ep_site_add(key, instruction, &site);
}

/* Of a call or slice of `code`, named `name`. `frame`: its, NULL: not known. *task: the address of the task
 * whose step this is; 0: none. */
static uint32_t
code_site(PyCodeObject *code, uint32_t name, ep_frame *frame, ep_frame *caller, uintptr_t *task)
{
    uintptr_t instruction = caller != NULL ? ep_frame_instruction(caller) : 0;
    uintptr_t key = (uintptr_t)code;
    uint32_t task_name = 0;
    *task = 0;
    /* Coroutines, and functions that say what becomes of a task, get other keys than those that hooks look
     * up. So each slice of a coroutine comes here, and calls of all other functions need not look for a
     * task. No address is equal to such a key. */
    if (code->co_flags & (CO_COROUTINE | CO_ITERABLE_COROUTINE)) {
        if (frame != NULL) {
            uint32_t busy = ep_py_enter_own();
            ep_py_exception saved = ep_py_exception_save();
            task_name = ep_py_task_of(frame, task);
            PyErr_Clear();
            ep_py_exception_restore(saved);
            ep_py_leave_own(busy);
        }
        key = task_name == 0 ? key | 4
                             : ((uintptr_t)task_name << EP_PAYLOAD_BITS | name) << 4 | 12;
    } else if (EP_UNLIKELY(ep_py_loop_code_of(code) != EP_LOOP_OTHER)) {
        key |= 4;
    } else {
        return ep_py_add_site(key, name, caller, instruction, 0);
    }
    uint32_t id = ep_site_find(key, instruction);
    return EP_LIKELY(id != 0) ? id : ep_py_add_site(key, name, caller, instruction, task_name);
}

uint32_t
ep_py_code_site_slow(PyCodeObject *code, ep_frame *frame, uintptr_t *task)
{
    bool is_its = frame != NULL && ep_frame_code(frame) == code;
    uint32_t name = is_its ? ep_py_frame_name(frame) : ep_py_code_name(code);
    *task = 0;
    if (name == EP_ID_SKIP) {
        return EP_ID_SKIP;
    }
    return code_site(code, name, is_its ? frame : NULL,
                     frame != NULL ? ep_frame_previous(frame) : NULL, task);
}

uint32_t
ep_py_code_site_from(PyCodeObject *code, ep_frame *frame, ep_frame *caller, uintptr_t *task)
{
    uint32_t name = ep_py_frame_name(frame);
    *task = 0;
    if (name == EP_ID_SKIP) {
        return EP_ID_SKIP;
    }
    return code_site(code, name, frame, caller, task);
}

int
ep_py_names_init(void)
{
    str_name = PyUnicode_InternFromString("__name__");
    return str_name != NULL ? 0 : -1;
}
