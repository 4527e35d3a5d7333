/* Threads that are counted, the forks of their process, and the lock. */
#include <pthread.h>
#include <string.h>

#include "count_parts.h"
#include "memory.h"
#include "os.h"

_Thread_local ep_count_thread *ep_count_current;
static _Thread_local bool is_over;    /* the last round of this thread's destructors has been */
/* In a child of a bare system call another thread may have had the lock: functions fail there as without
 * memory. */
ep_mutex ep_count_mutex = EP_MUTEX_INIT;
struct ep_counting ep_counting;
static bool has_lock_to_fork;
static pthread_key_t exit_key;
static ep_count_thread nobody;

void
ep_count_settle(ep_count_thread *thread)
{
    const ep_count_view *view = thread->view_count == 1 ? thread->views[0] : NULL;
    bool fast = view != NULL && view->counter->filter == NULL && !view->counter->tells &&
                (view->counter->calls || !thread->has_calls) &&
                (view->counter->c_calls || !thread->has_c_calls) && ep_count_by_counter &&
                view->begun && !ep_count_top_is_own(view) && thread->calling == 0 &&
                thread->first_frame == NULL;
    thread->fast_in = fast ? thread->generation : 0;
}

/* After the thread-exit destructors of others in their first round, which may still run Python code. */
static void
on_thread_exit(void *value)
{
    ep_count_thread *thread = value;
    if (++thread->exit_rounds == 1) {
        pthread_setspecific(exit_key, thread);
        return;
    }
    uint64_t ticks = ep_count_ticks() - thread->aside;
    ep_count_current = NULL;
    is_over = true;
    if (!ep_os_lock(&ep_count_mutex)) {
        return;    /* views have the address of the thread, which stays */
    }
    for (size_t i = 0; i < ep_counting.running_count; i++) {
        ep_count_view *view = ep_count_view_of(ep_counting.running[i], thread);
        if (view != NULL) {
            ep_count_close_all(view, ticks);
            view->thread = NULL;
            view->next_free = ep_counting.running[i]->free_views;
            ep_counting.running[i]->free_views = view;
        }
        if (ep_counting.running[i]->only == thread) {
            ep_counting.running[i]->only = &nobody;    /* another thread may get its address */
        }
    }
    ep_mutex_unlock(&ep_count_mutex);
    free(thread);
}

ep_count_thread *
ep_count_new_thread(void)
{
    ep_count_thread *thread = is_over ? NULL : ep_calloc(1, sizeof *thread);
    if (thread != NULL) {
        (void)pthread_setspecific(exit_key, thread);    /* if it fails, no other thread takes over its
                                                         * views */
        ep_count_current = thread;
    }
    return thread;
}

ep_count_thread *
ep_count_attach(void)
{
    ep_count_thread *thread = ep_count_current;
    if (thread == NULL && (thread = ep_count_new_thread()) == NULL) {
        return NULL;
    }
    ep_count_view *views[EP_COUNTERS_MAX];
    uint64_t serials[EP_COUNTERS_MAX];
    size_t count = 0;
    if (!ep_os_lock(&ep_count_mutex)) {
        return NULL;
    }
    thread->has_calls = thread->has_c_calls = false;
    for (size_t i = 0; i < ep_counting.running_count; i++) {
        ep_counter *counter = ep_counting.running[i];
        thread->has_calls = thread->has_calls || counter->calls;
        thread->has_c_calls = thread->has_c_calls || counter->c_calls;
        if (counter->only != NULL && counter->only != thread) {
            continue;
        }
        ep_count_view *view = ep_count_view_of(counter, thread);
        if (view == NULL && (view = ep_count_take_view(counter, thread)) == NULL) {
            counter->lost += 1;
            continue;
        }
        views[count] = view;
        serials[count++] = counter->serial;
    }
    memcpy(thread->views, views, count * sizeof *views);
    memcpy(thread->serials, serials, count * sizeof *serials);
    thread->view_count = count;
    thread->generation = ep_count_now_generation();
    ep_count_keep_blocks(thread);
    ep_count_settle(thread);
    ep_mutex_unlock(&ep_count_mutex);
    return thread;
}

/* ---- Life of the process --------------------------------------------------------------------- */

/* Not checked: what it takes after_fork() gives back, if it was taken. */
static EP_NOT_CHECKED void
before_fork(void)
{
    has_lock_to_fork = ep_os_lock(&ep_count_mutex);
}

static EP_NOT_CHECKED void
after_fork(void)
{
    if (has_lock_to_fork) {
        ep_mutex_unlock(&ep_count_mutex);
    }
}

/* Open calls stay open, and begin now. */
static void
begin_anew(ep_count_view *view, uint64_t ticks)
{
    ep_count_thread *thread = view->thread;
    size_t depth = (size_t)(view->top - view->frames);
    bool begun = view->begun;
    ep_count_reset_view(view);
    view->thread = thread;
    view->begun = begun;
    for (size_t i = 1; i <= depth; i++) {
        ep_count_frame *frame = &view->frames[i];
        if (frame->key & EP_COUNT_OWN) {
            frame->inside = 0;
            view->top = frame;
        } else {
            (void)ep_count_open_before(view, frame->slot, frame->key, ticks);
        }
    }
}

void
ep_count_after_fork(uint64_t ticks)
{
    const ep_count_thread *own_thread = ep_count_current;
    if (!ep_os_lock(&ep_count_mutex)) {
        return;
    }
    for (size_t i = 0; i < ep_counting.running_count; i++) {
        ep_counter *counter = ep_counting.running[i];
        counter->free_views = NULL;
        counter->lost = 0;
        counter->start_ticks = ticks;
        for (ep_count_view *view = counter->views; view != NULL; view = view->next) {
            if (view->thread != NULL && view->thread == own_thread) {
                begin_anew(view, ticks - own_thread->aside);
            } else {
                ep_count_reset_view(view);
                view->next_free = counter->free_views;
                counter->free_views = view;
            }
        }
    }
    ep_mutex_unlock(&ep_count_mutex);
}

ep_status
ep_count_init(void)
{
    static bool done;
    if (done) {
        return EP_OK;
    }
    done = true;
    ep_count_start_clock();
    bool made = pthread_key_create(&exit_key, on_thread_exit) == 0;
    return made ? ep_os_fork_install(before_fork, after_fork, after_fork) : EP_NOMEM;
}
