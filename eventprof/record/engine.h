/* The recording engine of a process: threads, chunks, and the recorders, which are windows on it.
 *
 * Each event is recorded once, if any running recorder wants it. A recorder is an interval of ticks, a set
 * of kinds, and the chunks that it keeps; a chunk is freed when no recorder and no capture keeps it. One
 * mutex guards all of it; it is taken only in cold paths (a full chunk, a new thread, start, stop), and
 * nothing but the C library is called under it.
 *
 * Invariant for each recorder, thread and kind: recorded + lost == emitted in the window. */
#ifndef EP_ENGINE_H
#define EP_ENGINE_H

#include "file.h"
#include "log.h"
#include "mutex.h"
#include "resident.h"
#include "thread.h"
#include "types.h"

struct ep_chunk {
    ep_chunk_header *header;                  /* the mapping; its words follow it, or, packed, see pack.h */
    uint32_t bytes;                           /* of the mapping */
    uint32_t refs;                            /* recorders and captures that keep it */
    bool packed;                              /* sealed, and a slot of the file with packed records */
    uint64_t packed_events;                   /* those of them that the file's recorder wants */
    uint64_t sequence;                        /* a copy of the header's, because another program may cut off
                                               * the file */
    _Atomic uint64_t *rest;                   /* partial: its owner ended, and the next new thread continues
                                               * here */
    struct ep_chunk *next;                    /* in the list of free or of partial chunks */
    ep_file *file;                            /* a reference: the chunk is a slot of this file; NULL:
                                               * memory */
    ep_chunk_header *copy;                    /* the chunk is memory, and this slot has a copy of its
                                               * records */
    ep_file *copy_file;                       /* a reference, while there is a copy */
};

typedef enum ep_on_full {
    EP_ON_FULL_OVERWRITE,    /* drop the oldest chunk */
    EP_ON_FULL_STOP,         /* keep the chunks, and count later events as lost */
    EP_ON_FULL_GROW          /* take more memory; if there is none, like STOP */
} ep_on_full;

typedef struct ep_recorder_options {
    ep_kind_set kinds;
    uint64_t limit_bytes;      /* of chunks opened since the start; EP_LIMIT_BYTES_MIN at least. Beyond it
                                  each living thread may have one of the smallest */
    ep_on_full on_full;
    ep_clock_mode clock;
    bool clock_any;            /* use the running clock, or else the best one; `clock` is ignored */
} ep_recorder_options;

#define EP_LIMIT_BYTES_MIN (UINT64_C(64) << 10)

typedef enum ep_recorder_state {
    EP_RECORDER_NEW,
    EP_RECORDER_RUNNING,
    EP_RECORDER_STOPPED
} ep_recorder_state;

typedef struct ep_recorder {
    ep_recorder_options options;
    ep_file *file;                      /* a reference: its events are also in this file; NULL: only in
                                         * memory */
    uint32_t file_thread;               /* for the file's readers: the one thread wanted; 0: all */
    bool file_is_late;                  /* another recorder's file takes the chunks: its own is written at
                                           the stop, from what it kept */
    bool file_is_parents;               /* and this is a forked child, which has not made its own file
                                         * yet */
    ep_recorder_state state;
    ep_anchor start, stop;
    int64_t start_realtime_ns;
    int64_t start_resident_bytes, stop_resident_bytes;    /* -1: unknown */
    int64_t start_own_bytes, stop_own_bytes;              /* of them the recorder's own; 0: unknown */
    uint64_t full_ticks;                /* events later than this are lost; UINT64_MAX: not full */
    uint64_t full_sequence;             /* first chunk that it did not keep; UINT64_MAX: not full */
    ep_full_reason full_reason;
    uint32_t limits;                    /* bits: EP_LIMIT_..., of its file */
    ep_chunk **kept;                    /* [kept_first, kept_end): in order of sequence */
    size_t kept_first, kept_end, kept_capacity;
    uint64_t first_sequence;            /* chunks before it were in use at the start, and are not charged */
    uint64_t dropped_ticks;             /* all that it dropped for new events is older; 0: nothing was */
    uint64_t charged_bytes;             /* of the kept chunks opened since; the limit applies to these */
    ep_window_thread **threads;         /* index = thread id; NULL: no loss and no open calls */
    size_t thread_capacity;
    uint64_t unlogged[EP_KIND_COUNT];   /* while running: the count at the start; then: events lost on
                                         * threads without a log */
    bool settled;                       /* stopped, and no later record can belong to it */
    struct ep_recorder *next;           /* in the engine's list: started and not settled */
} ep_recorder;

/* Once a process, before anything else. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_engine_init(void);

/* The union of the kinds that running recorders want. */
ep_kind_set ep_engine_kinds(void);

/* Above 0 while the calling thread is in the engine: blocks that the C library allocates then are the
 * engine's, and a hook that recorded them would wait for a lock that its own thread holds. */
extern EP_HIDDEN _Thread_local uint32_t ep_engine_inside;

/* The lock of the engine; ep_engine_alone() takes it for others. */
extern EP_HIDDEN ep_mutex ep_engine_mutex;
/* A function whose caller has that lock. */
#define EP_ENGINE_LOCKED EP_REQUIRES(ep_engine_mutex)

/* Calls then(context) under the engine's lock. No fork happens meanwhile, so a child finds the data
 * complete. `then` must not call the engine. */
void ep_engine_alone(void (*then)(void *), void *context);

/* Counts an event as lost whose thread has no log, because there was no memory for one. */
void ep_engine_count_unlogged(ep_kind kind);

/* ---- Recorders. The caller serialises calls on one recorder. --------------------------------- */

/* Initialises *recorder, ready to start; set no field yourself. */
void ep_recorder_init(ep_recorder *recorder, const ep_recorder_options *options);

/* Makes the next window that of a log file (file.h): its chunks are slots of the file, limits and
 * policies are the same. Steals the reference. Only before a start. While another recorder with a file
 * runs, chunks are memory or slots of that file, and this recorder's file is written at its stop. */
void ep_recorder_set_file(ep_recorder *recorder, ep_file *file);

/* Fails: EP_STATE (it runs or ran already), EP_NOMEM, EP_UNSUPPORTED (the clock); then nothing has
 * changed. */
EP_CHECKED ep_status ep_recorder_start(ep_recorder *recorder, ep_error *error);
EP_CHECKED ep_status ep_recorder_stop(ep_recorder *recorder, ep_error *error);

/* Sets the calls that are open on a thread when the window begins. Copies. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_recorder_set_open(ep_recorder *recorder, uint32_t thread_id,
                                          const ep_open_call *calls, size_t depth);

/* The calls that set_open() named, on a thread. Returns: new in *out (free() its calls), empty if
 * there are none. Fails: EP_NOMEM, *out untouched. */
EP_CHECKED ep_status ep_recorder_get_open(const ep_recorder *recorder, uint32_t thread_id,
                                          ep_open_stack *out);

/* Stops it if it runs, and frees everything. Until then the engine refers to *recorder, because an event
 * whose clock was read before the stop may be written after it, and still belongs to the window. */
void ep_recorder_clear(ep_recorder *recorder);

/* Like ep_recorder_clear(), for a recorder that starts again at once: its chunks stay mapped for the next
 * window. Unmapping and mapping them would take 0.3 to 0.5 ms after 100 ms at full rate (measured). */
void ep_recorder_clear_to_start(ep_recorder *recorder);

/* ---- Captures: the input of decode.c --------------------------------------------------------- */

typedef struct ep_capture {
    ep_kind_set kinds;
    ep_anchor start, stop;
    int64_t start_realtime_ns;
    int64_t start_resident_bytes, stop_resident_bytes;    /* -1: unknown */
    int64_t start_own_bytes, stop_own_bytes;              /* of them the recorder's own; 0: unknown */
    uint64_t full_ticks;
    ep_full_reason full_reason;
    uint32_t limits;                    /* bits: EP_LIMIT_... */
    ep_chunk **chunks;                  /* kept alive by this; in order of sequence */
    size_t chunk_count;
    ep_window_thread *threads;          /* index = thread id; owned copies */
    size_t thread_count;                /* one more than the highest thread id */
    ep_clock_map clock;                 /* finished */
    ep_resident *resident;              /* samples of the window, in order of time; owned */
    size_t resident_count;
    const ep_thread *read_threads;      /* from a file: index = thread id; NULL: this process's */
    uint64_t dropped_ticks;             /* the recorder's */
    uint64_t counted;                   /* events that are not in its chunks: ep_capture_take_to_count() */
} ep_capture;

/* The window so far (running: up to now). Fails: EP_STATE (never started), EP_NOMEM; *out
 * untouched. */
EP_CHECKED ep_status ep_capture_take(ep_recorder *recorder, ep_capture *out, ep_error *error);

/* Like ep_capture_take(), to be counted alone: packed chunks of the window, whose events were counted when
 * they were packed, are not unpacked. only_thread: 0 or the one whose events will be counted. */
EP_CHECKED ep_status ep_capture_take_to_count(ep_recorder *recorder, uint32_t only_thread, ep_capture *out,
                                              ep_error *error);

/* The id of the thread that runs this lane; of another thread, its own. */
uint32_t ep_capture_carrier(const ep_capture *capture, uint64_t thread_id);

/* Whether events of this id are wanted. only_thread: 0: all; else those of a thread and its lanes. */
static inline bool
ep_capture_wants(const ep_capture *capture, uint32_t only_thread, uint64_t thread_id)
{
    return only_thread == 0 || thread_id == only_thread ||
           ep_capture_carrier(capture, thread_id) == only_thread;
}

/* Lets a capture begin later: `last_ns` before its end, and not before the time from which all events are
 * there. What is older is left out, and is not lost; calls that were open at the new begin are open there.
 * Reads all records that it leaves out. Not for a capture that was read from a file. */
void ep_capture_keep_last(ep_capture *capture, int64_t last_ns);

/* Events of the window that found no room so far, on one thread (its id) or on all (0). Reads no records
 * but those of threads that still write. 0 also if there is no memory to count them. */
uint64_t ep_recorder_count_lost(ep_recorder *recorder, uint32_t only_thread);
void ep_capture_clear(ep_capture *capture);

/* Calls that gate.c left out so far, by ep_left_out, on all threads. */
void ep_engine_left_out(uint64_t *counts);

/* The anchor of the time when the running clock was chosen. */
ep_anchor ep_engine_birth(void);

/* ---- Threads --------------------------------------------------------------------------------- */

/* Names the calling thread, once; later calls do nothing. */
void ep_thread_set_name(ep_thread *thread, ep_text name);
/* Returns: immortal, or NULL for an id that no thread has. */
const ep_thread *ep_engine_thread(uint32_t id);
const ep_thread *ep_engine_thread_locked(uint32_t id) EP_ENGINE_LOCKED;

/* The living thread with this native id. `expect`: an entry is made if the thread has had no event yet.
 * Returns: immortal, or NULL (there is none, or no memory). */
ep_thread *ep_engine_thread_by_native_id(uint64_t native_id, bool expect);

/* Whether the process has a thread besides the engine's own and the given ones, which are eventprof's, too;
 * true if the system does not say. */
bool ep_engine_program_lives(const uint64_t *native_ids, size_t count);

/* The entry of the stack of calls that the thread runs (lanes.h): mostly the thread's own. */
ep_thread *ep_engine_lane_of(ep_thread *thread);

/* The position of a thread that is stopped. */
typedef struct ep_thread_place {
    bool busy;            /* it is inside of a hook or of the runtime's allocator */
    const void *next;     /* `next` of its log, which changes with each record. NULL: it has no log */
} ep_thread_place;

ep_thread_place ep_engine_place_of(const ep_thread *thread);

/* A call that is described as open (ep_open_call.unsettled) was at its entry. There interpreters may run
 * other code before or after they report that the call begins. The thread's next events show whether it had
 * begun: sources look at them while the log is EP_TODO_UNSETTLED. The thread must be stopped, or be the
 * calling thread. */
void ep_engine_unsettle(ep_thread *thread, const void *frame, uint32_t site);

/* Called by the thread itself. `begins`: the unsettled call (index in thread->unsettled) begins now, and so
 * was not open in the windows that took it as open. Otherwise it had begun. */
void ep_engine_settle(ep_thread *thread, uint32_t index, bool begins);

/* A slice of a generator begins by an exception that is thrown into it: remembers its frame until the slice
 * ends. Called by the thread itself. */
EP_COLD void ep_log_add_thrown(ep_log *log, ep_thrown thrown);

/* A slice ends, while the log is EP_TODO_THROWN. place: where its frame is suspended now; NULL if it has
 * ended. Returns: whether the frame was remembered. */
EP_COLD bool ep_log_end_thrown(ep_log *log, const void *frame, const void *place);

/* Whether the frame was suspended while it handled an exception that was thrown in at this place. */
EP_COLD bool ep_log_handles_thrown(const ep_log *log, ep_thrown thrown);

/* Whether a slice whose frame is not remembered may be one that had no room; then it has ended now. */
EP_COLD bool ep_log_end_dropped(ep_log *log);

/* A window begins. `slices`, innermost first: open ones that an exception may have begun, without a place,
 * which is not known. `anew`: the remembered ones may have ended, because no hook was installed. The thread
 * is stopped, or the caller. */
void ep_engine_set_thrown(ep_thread *thread, const ep_thrown *slices, uint32_t count, bool anew);

#define EP_LOOK_NS INT64_C(10000000)

/* Called by the helper thread, which must not wait for the engine's lock: sets EP_TODO_PROCESSOR of all
 * logs, if that is due. Returns: ns until it is due again. */
int64_t ep_engine_remind_threads(void);

/* Sets EP_TODO_* of all logs, and of those that come; of the logs of one thread. */
void ep_engine_set_todo(uint32_t todo);
void ep_engine_set_todo_of(const ep_thread *thread, uint32_t todo);

/* The owner has no room for a record at `ticks`: seals the chunk and finds the next one. There is always
 * room afterwards. */
EP_COLD void ep_log_next_chunk(ep_log *log, uint64_t ticks);

/* ---- For tests and statistics ---------------------------------------------------------------- */

/* For tests: the size of a thread's first chunk, which a limit then does not make smaller. 0: the smallest
 * size. */
extern size_t ep_engine_first_bytes;

typedef struct ep_engine_stats {
    size_t chunks_mapped;      /* all chunks that are memory, with the free ones */
    size_t chunks_free;
    size_t bytes_mapped, bytes_free;
    size_t logs;
    size_t threads;
} ep_engine_stats;

ep_engine_stats ep_engine_get_stats(void);

/* The memory of one recorder. */
typedef struct ep_recorder_stats {
    size_t chunks;             /* chunks that it keeps; other recorders may keep them, too */
    size_t chunk_bytes;
    size_t file_bytes;         /* the part of them that is in slots of a file */
    size_t list_bytes;         /* its lists of them and of threads, with the calls that were open */
} ep_recorder_stats;

ep_recorder_stats ep_recorder_get_stats(const ep_recorder *recorder);

/* *to: empty. Returns: copies in it (free its calls). Fails: EP_NOMEM, *to stays empty. */
EP_CHECKED ep_status ep_open_stack_copy(const ep_open_stack *from, ep_open_stack *to);

/* Applies one record to a stack of open calls: the engine's folding, and the model for tests. */
void ep_open_stack_apply(ep_open_stack *stack, unsigned kind, uint32_t id);

#ifdef EP_CHECKS
void ep_open_stack_check(const ep_open_stack *stack);
#endif

#endif
