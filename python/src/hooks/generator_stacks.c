#include "generator_stacks.h"

#if EP_GENERATOR_STACKS_LIE

#include "gc_callbacks.h"

static unsigned users;
static ep_py_gc_callback callback;

/* ---- Frames ---------------------------------------------------------------------------------- */

/* Whether the innermost frame of one run of the interpreter's loop is a generator that runs. While an
 * exception is thrown through a generator that delegates (`yield from`, await), the interpreter puts its
 * frame on top of the run that throws, where the frame does not run: it began no run, and `stacktop` is
 * what it was suspended with. */
static bool
is_running_generator(const _PyCFrame *run)
{
    ep_frame *current = (ep_frame *)run->current_frame;
    return current != NULL &&
           EP_FRAME_FIELD(current, unsigned char, EP_FRAME_OWNER) == EP_OWNER_GENERATOR &&
           run->previous != NULL &&
           (ep_frame *)run->previous->current_frame == ep_frame_previous(current);
}

/* Only in the innermost frame of a run may `stacktop` be wrong: the frames below it had theirs set when
 * they made their call. */
static void
mend_run(const _PyCFrame *run)
{
    ep_frame *current = (ep_frame *)run->current_frame;
    if (is_running_generator(run) &&
        /* Without a frame object, the interpreter is reporting the frame's entry now, and needs
         * `stacktop`. */
        EP_FRAME_FIELD(current, PyObject *, EP_FRAME_OBJECT) != NULL &&
        EP_FRAME_FIELD(current, int, EP_FRAME_STACK_TOP) >= 0) {
        EP_FRAME_FIELD(current, int, EP_FRAME_STACK_TOP) = -1;
    }
}

static void
mend_thread(PyThreadState *ts)
{
    /* cframe: NULL on a thread that is being made. */
    for (_PyCFrame *run = ts->cframe; run != NULL; run = run->previous) {
        /* A frame that a hook is being told of needs its `stacktop`. The interpreter turned tracing off in
         * that frame's run and in the runs above. */
        bool is_told_of = ts->tracing != 0 && run->use_tracing == 0;
        if (!is_told_of) {
            mend_run(run);
        }
    }
}

static void
mend_all(void)
{
    PyThreadState *ts = ep_py_first_thread();
    for (; ts != NULL; ts = ep_py_next_thread(ts)) {
        mend_thread(ts);
    }
}

/* ---- The callback ---------------------------------------------------------------------------- */

/* phase: 'start' or 'stop'. */
static PyObject *
on_gc(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self;
    (void)args;
    (void)count;
    /* The last callback counts: one in Python lets other threads run, which make new wrong values. If one
     * came after ours, ours is called once more. Moving ours would skip the next one in the list. */
    if (users != 0 && !ep_py_gc_callback_is_last(&callback) && ep_py_gc_callback_put(&callback) < 0) {
        PyErr_Clear();
    }
    mend_all();
    Py_RETURN_NONE;
}

/* Fails: -1, exception set. */
static int
prepare(void)
{
    static PyMethodDef definition = {"mend_generator_stacks", (PyCFunction)(void (*)(void))on_gc,
                                     METH_FASTCALL, NULL};
    return ep_py_gc_callback_make(&callback, &definition,
                                  ". Calls and lines cannot be recorded on CPython 3.11.0 to 3.11.2 "
                                  "without it; use 3.11.3 or later");
}

int
ep_py_generator_stacks_watch(unsigned user)
{
    if (!ep_py_generator_stacks_are_wrong()) {
        return 0;
    }
    if (prepare() < 0 ||
        (!ep_py_gc_callback_is_last(&callback) && ep_py_gc_callback_put(&callback) < 0)) {
        return -1;
    }
    users |= user;
    return 0;
}

void
ep_py_generator_stacks_leave(unsigned user)
{
    if (!(users & user)) {
        return;
    }
    users &= ~user;
    if (users == 0) {
        mend_all();    /* frames that go on run without the callback */
        ep_py_gc_callback_take_out(&callback);    /* if it cannot be removed, it does no harm */
    }
}

#endif
