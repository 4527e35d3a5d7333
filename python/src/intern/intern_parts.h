/* Shared by the files of intern/. Other code includes intern.h, the interface.
 * Each file answers a question of its own (README.md), and most of its functions are in intern.h; the few
 * here are what one file asks another, too few for a header each. */
#ifndef EP_INTERN_PARTS_H
#define EP_INTERN_PARTS_H

#include "intern.h"

/* A name to be added: `object` is kept with it, `existed` says that it existed before. */
typedef struct ep_py_addition {
    uintptr_t key, tag;
    void *object;
    uint32_t id;
    bool existed;
} ep_py_addition;

/* Each ..._init() is called once, by ep_py_intern_init(). Fails: -1, exception set. */

/* ---- own_code.c ------------------------------------------------------------------------------ */

/* The start of the library or program that contains this address; NULL: none does. */
const void *ep_py_image_of(const void *address);

/* Whether it is a method definition of the extension. */
bool ep_py_is_own_method(const PyMethodDef *method);

void ep_py_own_code_init(void);

/* ---- code_names.c ---------------------------------------------------------------------------- */

/* Returns: borrowed; NULL if the code is not running now. */
PyObject *ep_py_globals_of_running(PyCodeObject *code);

/* `module`: borrowed, a str or anything else. */
void ep_py_with_code_text(PyCodeObject *code, PyObject *module, void (*then)(const ep_name_text *, void *),
                          void *context);

/* context: an ep_py_addition, whose id and existed are filled. */
void ep_py_add_name(const ep_name_text *text, void *context);

/* context: the id, a uint32_t. */
void ep_py_describe_name(const ep_name_text *text, void *context);

/* Lines are computed at retrieval, because most are never needed; a log file needs them now. */
int32_t ep_py_line_of(PyCodeObject *code, int32_t offset);

/* The name of a code object, added or, if an allocator hook met it first, given its text now that
 * its module is known. */
uint32_t ep_py_name_code(PyCodeObject *code, PyObject *globals, uint32_t pending);

/* The site of `callee`, called from `frame` (NULL: from nowhere in Python) at `instruction`. task: as
 * in ep_site, and part of the key. */
uint32_t ep_py_add_site(uintptr_t key, uint32_t callee, ep_frame *frame, uintptr_t instruction,
                        uint32_t task);

int ep_py_names_init(void);

/* ---- callables.c ----------------------------------------------------------------------------- */

/* A callable that is named by its type: a constructor, an object. tag: EP_TAG_TYPE, _NEW or _INSTANCE. */
ep_callee ep_py_typed_callee(PyTypeObject *type, uintptr_t tag);

int ep_py_callables_init(void);

/* ---- workers.c ------------------------------------------------------------------------------- */

/* At the first sight of a function, as it begins: of some, an argument is what the process is called. */
void ep_py_name_worker_at_begin(PyCodeObject *code);

/* ---- open_calls.c ---------------------------------------------------------------------------- */

int ep_py_open_calls_init(void);

#endif
