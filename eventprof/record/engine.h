/* The one recording machine of a process: threads, chunks, and the recorders that are windows on
 * it.
 *
 * Everything is recorded once, for the union of what the running recorders want. A recorder is an
 * interval of ticks, a set of kinds, and the chunks that it keeps; a chunk lives while anybody
 * keeps it. One mutex guards all of it; it is taken only in cold paths (a full chunk, a new thread,
 * start, stop), and nothing but the C library is called under it.
 *
 * What must hold, per recorder, thread and kind: recorded + lost == emitted in the window. */
#ifndef EP_ENGINE_H
#define EP_ENGINE_H

#include "file.h"
#include "log.h"
#include "resident.h"
#include "thread.h"
#include "types.h"

struct ep_chunk {
    ep_chunk_header *header;                  /* the mapping; its words follow it */
    uint32_t bytes;                           /* of the mapping */
    uint32_t refs;                            /* recorders and captures that keep it */
    uint64_t sequence;                        /* as its header says, which others may cut off with a file */
    _Atomic uint64_t *rest;                   /* partial: its owner ended, the next thread goes on here */
    struct ep_chunk *next;                    /* in the free or the partial list */
    ep_file *file;                            /* held: the mapping is a slot of it; NULL: of memory */
    ep_chunk_header *copy;                    /* of memory, and its records are in this slot, too */
    ep_file *copy_file;                       /* held, while there is one */
};

typedef enum ep_on_full {
    EP_ON_FULL_OVERWRITE,    /* drop the oldest chunk */
    EP_ON_FULL_STOP,         /* keep what there is, count what comes */
    EP_ON_FULL_GROW          /* take more memory; without any, as STOP */
} ep_on_full;

typedef struct ep_recorder_options {
    ep_kind_set kinds;
    uint64_t limit_bytes;      /* of chunks opened since the start; EP_LIMIT_BYTES_MIN at least. Beyond it
                                  each living thread may have one of the smallest */
    ep_on_full on_full;
    ep_clock_mode clock;
    bool clock_any;            /* take the running clock, or the best there is; `clock` is ignored */
} ep_recorder_options;

#define EP_LIMIT_BYTES_MIN (UINT64_C(64) << 10)

typedef enum ep_recorder_state {
    EP_RECORDER_NEW,
    EP_RECORDER_RUNNING,
    EP_RECORDER_STOPPED
} ep_recorder_state;

typedef struct ep_recorder {
    ep_recorder_options options;
    ep_file *file;                      /* held: what it records is in there, too; NULL: memory alone */
    uint32_t file_thread;               /* for the file's readers: the one thread wanted; 0: all */
    bool file_is_late;                  /* another recorder's file takes the chunks: its own is written at
                                           the stop, from what it kept */
    bool file_is_parents;               /* and it is a forked child: its own is still to be made */
    ep_recorder_state state;
    ep_anchor start, stop;
    int64_t start_realtime_ns;
    int64_t start_resident_bytes, stop_resident_bytes;    /* -1: unknown */
    uint64_t full_ticks;                /* events later than this are lost; UINT64_MAX: not full */
    uint64_t full_sequence;             /* first chunk that it did not keep; UINT64_MAX: not full */
    ep_full_reason full_reason;
    uint32_t limits;                    /* bits: EP_LIMIT_..., of its file */
    ep_chunk **kept;                    /* [kept_first, kept_end): in order of sequence */
    size_t kept_first, kept_end, kept_capacity;
    uint64_t first_sequence;            /* chunks before it were in use at the start, and are not charged */
    uint64_t charged_bytes;             /* of those kept that were opened since: what the limit is about */
    ep_window_thread **threads;         /* index = thread id; NULL where there is nothing to know */
    size_t thread_capacity;
    uint64_t unlogged[EP_KIND_COUNT];   /* at start; afterwards: lost on threads without a log */
    bool settled;                       /* stopped, and nothing that is still written concerns it */
    struct ep_recorder *next;           /* in the engine's list: started and not settled */
} ep_recorder;

/* Once a process, before anything else. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_engine_init(void);

/* Union of the kinds that running recorders want. */
ep_kind_set ep_engine_kinds(void);

/* Above 0 while the calling thread is in the engine: what the C library allocates for it then is not the
 * program's, and a hook that wrote it down would wait for a lock that its own thread has. */
extern EP_HIDDEN _Thread_local uint32_t ep_engine_inside __attribute__((tls_model("initial-exec")));

/* Calls then(context) under the engine's lock. Also across a fork: the child finds what it guards
 * whole. `then` calls nothing of the engine. */
void ep_engine_alone(void (*then)(void *), void *context);

/* An event that found no log (no memory for one). */
void ep_engine_count_unlogged(ep_kind kind);

/* ---- Recorders. The caller serialises calls on one recorder. --------------------------------- */

/* Makes *recorder ready to start; fill nothing yourself. */
void ep_recorder_init(ep_recorder *recorder, const ep_recorder_options *options);

/* Makes the next window that of a log file (file.h): its chunks are slots of the file, limits and
 * policies are the same. Takes the reference over. Only before a start. While another recorder runs that
 * has a file, the chunks are of memory or of that file, and this one is written at the stop. */
void ep_recorder_set_file(ep_recorder *recorder, ep_file *file, uint32_t only_thread);

/* Fails: EP_STATE (running, or was), EP_NOMEM, EP_UNSUPPORTED (the clock). Nothing changed then. */
EP_CHECKED ep_status ep_recorder_start(ep_recorder *recorder, ep_error *error);
EP_CHECKED ep_status ep_recorder_stop(ep_recorder *recorder, ep_error *error);

/* Names the calls that are open on a thread when the window begins. Copies. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_recorder_set_open(ep_recorder *recorder, uint32_t thread_id,
                                          const ep_open_call *calls, size_t depth);

/* The calls that set_open() named, on a thread. Returns: new in *out (free() its calls), empty if
 * there are none. Fails: EP_NOMEM, *out untouched. */
EP_CHECKED ep_status ep_recorder_get_open(const ep_recorder *recorder, uint32_t thread_id,
                                          ep_open_stack *out);

/* Stops it if need be and gives everything back. Until then the engine refers to *recorder: an
 * event whose clock was read before the stop may be written after it, and still belongs to the
 * window. */
void ep_recorder_clear(ep_recorder *recorder);

/* The same for one that is to start at once: the chunks that it kept are free for its next window, where
 * they would be unmapped and mapped again (0.3 to 0.5 ms for those of 100 ms at full rate, measured). */
void ep_recorder_clear_to_start(ep_recorder *recorder);

/* ---- Captures: what decode.c works on -------------------------------------------------------- */

typedef struct ep_capture {
    ep_kind_set kinds;
    ep_anchor start, stop;
    int64_t start_realtime_ns;
    int64_t start_resident_bytes, stop_resident_bytes;    /* -1: unknown */
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
} ep_capture;

/* The window so far (running: up to now). Fails: EP_STATE (never started), EP_NOMEM; *out
 * untouched. */
EP_CHECKED ep_status ep_capture_take(ep_recorder *recorder, ep_capture *out, ep_error *error);

/* Events of the window that found no room so far, on one thread (its id) or on all (0). Reads no records
 * but those of threads that still write. 0 also if there is no memory to count them. */
uint64_t ep_recorder_count_lost(ep_recorder *recorder, uint32_t only_thread);
void ep_capture_clear(ep_capture *capture);

/* Calls that gate.c left out so far, by ep_left_out, on all threads. */
void ep_engine_left_out(uint64_t *counts);

/* Both clocks when the running clock was chosen. */
ep_anchor ep_engine_birth(void);

/* ---- Threads --------------------------------------------------------------------------------- */

/* Names the calling thread, once; later calls do nothing. */
void ep_thread_set_name(ep_thread *thread, ep_text name);
/* Returns: immortal, or NULL for an id that no thread has. */
const ep_thread *ep_engine_thread(uint32_t id);
/* The same for those who hold the engine's lock. */
const ep_thread *ep_engine_thread_locked(uint32_t id);

/* The living thread with this native id; `expect`: made if there is none yet, for a thread that has
 * had no event. Returns: immortal, or NULL (none, or no memory). */
ep_thread *ep_engine_thread_by_native_id(uint64_t native_id, bool expect);

/* Where a thread that stands still is. */
typedef struct ep_thread_place {
    bool busy;            /* inside of a hook, or of the runtime's allocator */
    const void *next;     /* of its log: another one as soon as it records. NULL: it has no log */
} ep_thread_place;

ep_thread_place ep_engine_place_of(const ep_thread *thread);

/* A call that is described as open (ep_open_call.doubted) stood at its entry, where interpreters let
 * other code run before, or after, they tell that it begins. The thread's next events show which:
 * sources look at them while the log is EP_FRESH_DOUBTED. The thread stands still, or is the calling
 * one. */
void ep_engine_doubt(ep_thread *thread, const void *frame, uint32_t site);

/* By the thread itself. That doubted call (index in thread->doubted) begins now, and was not open in
 * the windows that found it so; or it had begun. */
void ep_engine_settle(ep_thread *thread, uint32_t index, bool begins);

/* The owner has a record at `ticks` and no room: seals the chunk, finds the next. Always leaves
 * room. */
EP_COLD void ep_log_next_chunk(ep_log *log, uint64_t ticks);

/* ---- For tests and statistics ---------------------------------------------------------------- */

/* Tests set it: the size of a thread's first chunk, which a limit then does not make smaller. 0: the
 * smallest there is. */
extern size_t ep_engine_first_bytes;

typedef struct ep_engine_stats {
    size_t chunks_mapped;      /* all of them, of memory, free ones included */
    size_t chunks_free;
    size_t bytes_mapped, bytes_free;
    size_t logs;
    size_t threads;
} ep_engine_stats;

ep_engine_stats ep_engine_get_stats(void);

/* What a recorder holds by itself. */
typedef struct ep_recorder_stats {
    size_t chunks;             /* that it keeps; others may keep them, too */
    size_t chunk_bytes;
    size_t file_bytes;         /* of them, in slots of a file */
    size_t list_bytes;         /* its lists of them and of threads, with the calls that were open */
} ep_recorder_stats;

ep_recorder_stats ep_recorder_get_stats(const ep_recorder *recorder);

/* *to: empty. Returns: copies in it (free its calls). Fails: EP_NOMEM, *to stays empty. */
EP_CHECKED ep_status ep_open_stack_copy(const ep_open_stack *from, ep_open_stack *to);

/* Applies one record to a stack of open calls: the engine's folding, and the model for tests. */
void ep_open_stack_apply(ep_open_stack *stack, unsigned kind, uint32_t id);

#endif
