/* The slow way of an event to the counters. The usual cases are handled by the fast halves in
 * count_calls.h. */
#include "count_calls.h"

/* ---- Calls that were open ---------------------------------------------------------------------- */

static bool
has_new_view(const ep_count_thread *thread)
{
    for (size_t i = 0; i < thread->view_count; i++) {
        if (!thread->views[i]->begun) {
            return true;
        }
    }
    return false;
}

/* The slot of a Python function; NULL: its calls are not wanted. */
static inline ep_count_slot *
code_slot(ep_count_view *view, uint32_t name)
{
    ep_count_slot *slot = view->counter->calls ? ep_count_slot_of(view, name) : NULL;
    return slot != NULL && ep_count_wants(view, slot, NULL) ? slot : NULL;
}

/* Opens the calls of a frame and of those around it, outermost first. name_of: names a frame's function. */
static void
open_frames(ep_count_thread *thread, ep_count_view *view, ep_frame *frame,
            uint32_t (*name_of)(ep_frame *))
{
    ep_frame *caller = ep_frame_previous(frame);
    if (caller != NULL) {
        open_frames(thread, view, caller, name_of);
    }
    if (ep_frame_is_incomplete(frame)) {
        return;
    }
    PyCodeObject *code = ep_frame_code(frame);
    uint64_t start = view->counter->start_ticks - thread->aside;
    if (ep_py_is_own_code(code)) {
        (void)ep_count_open_own(view, (uintptr_t)code, start);
        return;
    }
    uint32_t name = name_of(frame);
    ep_count_slot *slot = name != 0 && name != EP_ID_SKIP ? code_slot(view, name) : NULL;
    if (slot != NULL) {
        (void)ep_count_open_before(view, slot, (uintptr_t)code, start);
    }
}

/* At a thread's first event in a window: pushes the calls that were open when the window began on the
 * thread's stack. */
static EP_COLD void
begin_views(ep_count_thread *thread, ep_frame *innermost, uint32_t (*name_of)(ep_frame *))
{
    for (size_t i = 0; i < thread->view_count; i++) {
        ep_count_view *view = thread->views[i];
        if (!view->begun && innermost != NULL) {
            open_frames(thread, view, innermost, name_of);
        }
        view->begun = true;
    }
    ep_count_settle(thread);
}

/* Gives the thread, ready to count. `starting`: the code that the current frame begins or resumes; NULL
 * if it does neither. */
static inline ep_count_thread *
ready(PyCodeObject *starting)
{
    ep_count_thread *thread = ep_count_mine();
    if (EP_UNLIKELY(thread == NULL || thread->calling != 0)) {
        return NULL;
    }
    if (EP_UNLIKELY(has_new_view(thread))) {
        ep_frame *frame = ep_py_frame_now();
        if (frame != NULL && starting != NULL && ep_frame_code(frame) == starting) {
            frame = ep_frame_previous(frame);
        }
        uint32_t busy = thread->busy;
        thread->busy = 1;
        begin_views(thread, frame, ep_py_frame_name);
        thread->busy = busy;
    }
    if (EP_UNLIKELY(thread->first_frame != NULL)) {
        /* An allocation came before the event that begins the call. */
        bool begins = starting != NULL && thread->first_frame == ep_py_frame_now();
        for (size_t i = 0; begins && i < thread->view_count; i++) {
            ep_count_forget_before(thread->views[i], (uintptr_t)starting);
        }
        thread->first_frame = NULL;
        ep_count_settle(thread);
    }
    return thread->view_count != 0 ? thread : NULL;
}

/* ---- Callbacks --------------------------------------------------------------------------------- */

static const ep_py_count_owner *owner_functions;

void
ep_py_count_set_owner(const ep_py_count_owner *functions)
{
    owner_functions = functions;
}

typedef struct listeners {
    size_t count;
    PyObject *owners[EP_COUNTERS_MAX];    /* owned */
} listeners;

static void
listen(listeners *to, const ep_count_view *view, ep_py_count_end end)
{
    if (EP_UNLIKELY(view->counter->tells) && owner_functions->tells(view->counter->owner, end)) {
        to->owners[to->count++] = Py_NewRef((PyObject *)view->counter->owner);
    }
}

/* Callbacks may do anything: start and stop counters, end the interpreter. Their time is left out of all
 * sums, and what they call is not counted. */
static EP_COLD void
tell(ep_count_thread *thread, listeners *all, ep_py_count_end end, uint32_t name)
{
    uint64_t start = ep_count_ticks();
    uint32_t busy = thread->busy;
    ep_py_exception saved = ep_py_exception_save();
    thread->busy = 1;
    thread->calling += 1;
    ep_count_settle(thread);
    for (size_t i = 0; i < all->count; i++) {
        owner_functions->tell(all->owners[i], end, name);
        Py_DECREF(all->owners[i]);
    }
    ep_py_exception_restore(saved);
    thread->calling -= 1;
    thread->busy = busy;
    thread->aside += ep_count_ticks() - start;
    if (thread->generation == ep_count_now_generation()) {
        ep_count_settle(thread);
    }
}

/* ---- What nobody wants ------------------------------------------------------------------------- */

/* An allocator hook made the name without its text. Patterns need the text, and callbacks the name. */
static void
describe(ep_count_thread *thread, PyCodeObject *code, uint32_t name)
{
    if (EP_UNLIKELY(ep_name_get(name)->pending)) {
        uint32_t busy = thread->busy;
        thread->busy = 1;
        ep_py_describe_code(code, name);
        thread->busy = busy;
    }
}

static bool
anybody_wants(uint32_t name)
{
    const ep_counter *counter;
    for (size_t i = 0; (counter = ep_counter_running(i)) != NULL; i++) {
        if (counter->calls &&
            (counter->filter == NULL || ep_filter_wants(counter->filter, name, 0))) {
            return true;
        }
    }
    return false;
}

static bool
anybody_wants_from(uint32_t caller)
{
    const ep_counter *counter;
    for (size_t i = 0; (counter = ep_counter_running(i)) != NULL; i++) {
        const ep_filter *filter = counter->filter;
        if (!counter->c_calls) {
            continue;
        }
        if (filter == NULL ||
            (!ep_filter_excludes(filter, caller) &&
             (ep_filter_includes(filter, caller) || ep_filter_includes_without_file(filter)))) {
            return true;
        }
    }
    return false;
}

/* ---- Python functions -------------------------------------------------------------------------- */

static EP_COLD void
open_own(ep_count_thread *thread, PyCodeObject *code)
{
    uint64_t ticks = ep_count_ticks() - thread->aside;
    for (size_t i = 0; i < thread->view_count; i++) {
        (void)ep_count_open_own(thread->views[i], (uintptr_t)code, ticks);
    }
    ep_count_settle(thread);
}

static EP_COLD void
close_own(ep_count_thread *thread, PyCodeObject *code)
{
    uint64_t ticks = ep_count_ticks() - thread->aside;
    for (size_t i = 0; i < thread->view_count; i++) {
        ep_count_close_own(thread->views[i], (uintptr_t)code, ticks);
    }
    ep_count_settle(thread);
}

/* Puts a slot into the thread's table of known functions, where its key finds it for ever. */
static void
know(ep_count_view *view, uintptr_t known, ep_count_slot *slot)
{
    if (known != 0) {
        *ep_count_known_at(view, known) = (ep_count_known){known, slot};
    }
}

static uint32_t
name_of_code(ep_count_thread *thread, PyCodeObject *code)
{
    uint32_t busy = thread->busy;
    thread->busy = 1;
    uint32_t name = ep_py_code_name(code);
    thread->busy = busy;
    return name;
}

static uint32_t
name_of_callee(ep_count_thread *thread, PyObject *callable)
{
    uint32_t busy = thread->busy;
    thread->busy = 1;
    uint32_t name = ep_py_callee_name(callable);
    thread->busy = busy;
    return name;
}

/* For a function whose place in the thread's table another function took, which happens in programs with
 * thousands of functions. False: the slow callback must handle it. */
static inline bool
open_again(ep_count_thread *thread, PyCodeObject *code, bool is_slice)
{
    uintptr_t key = (uintptr_t)code;
    uint32_t name = ep_count_is_fast(thread) ? ep_name_find(key, EP_TAG_PLAIN) : 0;
    ep_count_slot *slot = name != 0 ? ep_count_find_slot(thread->views[0], name) : NULL;
    if (slot == NULL) {
        return false;
    }
    know(thread->views[0], key, slot);
    return ep_py_count_open_fast(thread, key, key, is_slice);
}

ep_py_count_wish
ep_py_count_open(PyCodeObject *code, bool is_slice)
{
    if (open_again(ep_count_current, code, is_slice)) {
        return EP_PY_COUNT_WANTED;
    }
    ep_count_thread *thread = ready(code);
    if (thread == NULL) {
        return EP_PY_COUNT_UNWANTED;
    }
    uint32_t name = name_of_code(thread, code);
    if (EP_UNLIKELY(name == EP_ID_SKIP)) {
        open_own(thread, code);
        return EP_PY_COUNT_WANTED;
    }
    if (name == 0) {
        return EP_PY_COUNT_UNWANTED;
    }
    describe(thread, code, name);
    listeners all = {.count = 0};
    bool wanted = false;
    for (size_t i = 0; i < thread->view_count; i++) {
        ep_count_view *view = thread->views[i];
        ep_count_slot *slot = code_slot(view, name);
        if (slot != NULL) {
            listen(&all, view, EP_PY_COUNT_ENTER);
            wanted = true;
        }
    }
    if (!wanted) {
        return anybody_wants(name) ? EP_PY_COUNT_UNWANTED : EP_PY_COUNT_NEVER;
    }
    if (EP_UNLIKELY(all.count != 0)) {
        tell(thread, &all, EP_PY_COUNT_ENTER, name);
        if ((thread = ready(code)) == NULL) {
            return EP_PY_COUNT_UNWANTED;
        }
    }
    uint64_t ticks = ep_count_ticks() - thread->aside;
    for (size_t i = 0; i < thread->view_count; i++) {
        ep_count_view *view = thread->views[i];
        ep_count_slot *slot = code_slot(view, name);
        if (slot != NULL) {
            (void)ep_count_open(view, slot, (uintptr_t)code, ticks, is_slice);
            know(view, (uintptr_t)code, slot);
        }
    }
    ep_count_settle(thread);
    return EP_PY_COUNT_WANTED;
}

ep_py_count_wish
ep_py_count_close(PyCodeObject *code)
{
    uint64_t now = ep_count_ticks();
    ep_count_thread *thread = ready(NULL);
    if (thread == NULL) {
        return EP_PY_COUNT_UNWANTED;
    }
    uint32_t name = name_of_code(thread, code);
    if (EP_UNLIKELY(name == EP_ID_SKIP)) {
        close_own(thread, code);
        return EP_PY_COUNT_WANTED;
    }
    if (name == 0) {
        return EP_PY_COUNT_UNWANTED;
    }
    describe(thread, code, name);
    listeners all = {.count = 0};
    bool wanted = false;
    uint64_t ticks = now - thread->aside;
    for (size_t i = 0; i < thread->view_count; i++) {
        ep_count_view *view = thread->views[i];
        ep_count_slot *slot = code_slot(view, name);
        if (slot != NULL) {
            wanted = true;
            if (ep_count_close(view, (uintptr_t)code, slot, ticks)) {
                listen(&all, view, EP_PY_COUNT_EXIT);
            }
        }
    }
    ep_count_settle(thread);
    if (EP_UNLIKELY(all.count != 0)) {
        tell(thread, &all, EP_PY_COUNT_EXIT, name);
    }
    return wanted || anybody_wants(name) ? EP_PY_COUNT_WANTED : EP_PY_COUNT_NEVER;
}

/* ---- Other callables --------------------------------------------------------------------------- */

/* The slot of the caller in a view that has a filter; else NULL, and no caller is needed. */
static ep_count_slot *
caller_slot(ep_count_thread *thread, ep_count_view *view, PyCodeObject *caller)
{
    if (EP_LIKELY(view->counter->filter == NULL) || !ep_py_sites_usable) {
        return NULL;
    }
    uint32_t name = name_of_code(thread, caller);
    if (name == 0 || name == EP_ID_SKIP) {
        return NULL;
    }
    describe(thread, caller, name);
    return ep_count_slot_of(view, name);
}

/* The slot of a callable that is not in Python. NULL: its calls are not wanted, or our own code makes
 * them. */
static inline ep_count_slot *
callee_slot(ep_count_view *view, uint32_t name)
{
    return view->counter->c_calls && !ep_count_top_is_own(view) ? ep_count_slot_of(view, name) : NULL;
}

static EP_COLD ep_py_count_wish
unwanted_from(ep_count_thread *thread, PyCodeObject *caller)
{
    ep_count_view *view = thread->views[0];
    ep_count_slot *slot = caller_slot(thread, view, caller);
    if (slot == NULL || (slot->wish & EP_COUNT_WISH_MIXED)) {
        return EP_PY_COUNT_UNWANTED;
    }
    if (anybody_wants_from(slot->name)) {
        slot->wish |= EP_COUNT_WISH_MIXED;
        return EP_PY_COUNT_UNWANTED;
    }
    return EP_PY_COUNT_NEVER;
}

ep_py_count_wish
ep_py_count_c_open(PyCodeObject *caller, PyObject *callable)
{
    if (ep_py_is_python_function(callable)) {
        return EP_PY_COUNT_UNWANTED;
    }
    ep_count_thread *thread = ready(NULL);
    if (thread == NULL) {
        return EP_PY_COUNT_UNWANTED;
    }
    uint32_t name = name_of_callee(thread, callable);
    if (name == 0 || name == EP_ID_SKIP) {
        return EP_PY_COUNT_UNWANTED;
    }
    /* The key of a volatile definition is not its address alone. */
    uintptr_t known = ep_py_count_known_of(callable);
    if (known != 0 &&
        ep_name_find(known, PyType_Check(callable) ? EP_TAG_TYPE : EP_TAG_PLAIN) != name) {
        known = 0;
    }
    listeners all = {.count = 0};
    bool wanted[EP_COUNTERS_MAX] = {false}, any = false;
    for (size_t i = 0; i < thread->view_count; i++) {
        ep_count_view *view = thread->views[i];
        ep_count_slot *slot = callee_slot(view, name);
        wanted[i] = slot != NULL && ep_count_wants(view, slot, caller_slot(thread, view, caller));
        any = any || wanted[i];
        if (wanted[i]) {
            listen(&all, view, EP_PY_COUNT_ENTER);
        }
    }
    if (!any) {
        return ep_count_top_is_own(thread->views[0]) ? EP_PY_COUNT_UNWANTED
                                                     : unwanted_from(thread, caller);
    }
    if (EP_UNLIKELY(all.count != 0)) {
        uint64_t generation = ep_count_now_generation();
        tell(thread, &all, EP_PY_COUNT_ENTER, name);
        if ((thread = ready(NULL)) == NULL) {
            return EP_PY_COUNT_UNWANTED;
        }
        for (size_t i = 0; i < thread->view_count && generation != thread->generation; i++) {
            ep_count_view *view = thread->views[i];
            ep_count_slot *slot = callee_slot(view, name);
            wanted[i] = slot != NULL && ep_count_wants(view, slot, caller_slot(thread, view, caller));
        }
    }
    uint64_t ticks = ep_count_ticks() - thread->aside;
    for (size_t i = 0; i < thread->view_count; i++) {
        ep_count_view *view = thread->views[i];
        ep_count_slot *slot = wanted[i] ? ep_count_slot_of(view, name) : NULL;
        if (slot != NULL) {
            (void)ep_count_open(view, slot, (uintptr_t)callable, ticks, false);
            know(view, known, slot);
        }
    }
    return EP_PY_COUNT_WANTED;
}

void
ep_py_count_c_close(PyCodeObject *caller, PyObject *callable)
{
    uint64_t now = ep_count_ticks();
    if (ep_py_is_python_function(callable)) {
        return;    /* 3.12 and 3.13 end those that `with` calls (__exit__) so */
    }
    ep_count_thread *thread = ready(NULL);
    uint32_t name = thread != NULL ? name_of_callee(thread, callable) : 0;
    if (name == 0 || name == EP_ID_SKIP) {
        return;
    }
    listeners all = {.count = 0};
    uint64_t ticks = now - thread->aside;
    for (size_t i = 0; i < thread->view_count; i++) {
        ep_count_view *view = thread->views[i];
        ep_count_slot *slot = callee_slot(view, name);
        if (slot != NULL && ep_count_wants(view, slot, caller_slot(thread, view, caller)) &&
            ep_count_close(view, (uintptr_t)callable, slot, ticks)) {
            listen(&all, view, EP_PY_COUNT_EXIT);
        }
    }
    ep_count_settle(thread);
    if (EP_UNLIKELY(all.count != 0)) {
        tell(thread, &all, EP_PY_COUNT_EXIT, name);
    }
}

/* ---- Blocks ------------------------------------------------------------------------------------ */

ep_count_thread *
ep_py_count_enter_block(PyThreadState *ts)
{
    ep_count_thread *thread = ep_count_mine();
    if (thread == NULL || thread->busy != 0) {
        return NULL;
    }
    thread->busy = 1;
    if (EP_UNLIKELY(has_new_view(thread)) && ts != NULL && ep_py_sites_usable) {
        ep_frame *frame = ep_frame_of_program(ep_frame_current(ts));
        thread->first_frame = frame;
        begin_views(thread, frame, ep_py_frame_name_quietly);
    }
    return thread;
}
