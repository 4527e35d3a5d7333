/* Initialises intern/, the slow path from Python objects to ids. Text is copied once, at first sight. Only
 * code objects of the program are kept alive, because the address of a freed one could be reused. A check
 * makes sure that frames are where compat.h expects them. */
#include "intern.h"

#include "intern_parts.h"
#include "tasks.h"

bool ep_py_sites_usable;

static PyObject *
probe(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    ep_frame *frame = ep_frame_of_program(ep_frame_current(ep_thread_state()));
    PyCodeObject *code = (PyCodeObject *)PyEval_GetGlobals();    /* only to compare below */
    bool right = frame != NULL && (PyObject *)code == ep_frame_globals(frame);
    code = frame != NULL ? ep_frame_code(frame) : NULL;
    right = right && code != NULL && PyCode_Check(code) &&
            PyCode_Addr2Line(code, (int)ep_frame_offset(frame)) == 3 &&
            !ep_frame_is_incomplete(frame);
    ep_frame *caller = right ? ep_frame_previous(frame) : NULL;
    right = right && caller != NULL && PyCode_Check(ep_frame_code(caller)) &&
            PyCode_Addr2Line(ep_frame_code(caller), (int)ep_frame_offset(caller)) == 5;
    return PyBool_FromLong(right);
}

/* Reads, through the frames, a call at a known line that is made by a call at a known line. */
static int
check_frames(void)
{
    static PyMethodDef definition = {"probe", probe, METH_NOARGS, NULL};
    static const char program[] = "def inner(probe):\n"
                                  "    unused = 1\n"
                                  "    return probe()\n"
                                  "\n"
                                  "right = inner(probe)\n";
    PyObject *globals = PyDict_New();
    PyObject *function = PyCFunction_New(&definition, NULL);
    PyObject *result = NULL;
    if (globals != NULL && function != NULL &&
        PyDict_SetItemString(globals, "__builtins__", PyEval_GetBuiltins()) == 0 &&
        PyDict_SetItemString(globals, "probe", function) == 0) {
        result = PyRun_String(program, Py_file_input, globals, globals);
    }
    if (result != NULL) {
        PyObject *right = ep_py_dict_get_text(globals, "right");
        ep_py_sites_usable = right == Py_True;
        Py_XDECREF(right);
    }
    int status = result != NULL ? 0 : -1;
    Py_XDECREF(result);
    Py_XDECREF(function);
    Py_XDECREF(globals);
    return status;
}

int
ep_py_intern_init(void)
{
    ep_py_own_code_init();
    if (ep_py_names_init() < 0 || ep_py_callables_init() < 0 || ep_py_open_calls_init() < 0) {
        return -1;
    }
    return ep_py_tasks_init() < 0 ? -1 : check_frames();
}
