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

#include "log.h"
#include "types.h"

typedef struct ep_file ep_file;

#define EP_THREAD_NAME_BYTES 64

/* A thread that ever recorded. Immortal: rows of traces refer to it, and there are few. */
struct ep_thread {
    uint32_t id;                              /* 1, 2, ...: order of first events; 0 is "unknown" */
    uint64_t native_id;
    _Atomic bool named;                       /* release; pairs with the reader of name */
    char name[EP_THREAD_NAME_BYTES];          /* UTF-8, terminated; written once, by the owner */
    bool attached;                            /* has, or had, a log; under the engine's lock */
    /* The sources' own, while the thread stands still: where it stood when a window began, where its next
     * record was to go, and what they made of it. */
    const void *stood_at, *stood_next;
    bool stood_open;
    _Atomic bool exited;
};

struct ep_chunk {
    ep_chunk_header *header;                  /* the mapping; EP_CHUNK_WORDS words follow it */
    uint32_t refs;                            /* recorders and captures that keep it */
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

typedef enum ep_full_reason {
    EP_FULL_NOT,
    EP_FULL_LIMIT,
    EP_FULL_NOMEM,
    EP_FULL_DISK     /* its file cannot grow */
} ep_full_reason;

typedef struct ep_recorder_options {
    uint64_t kinds;            /* bits of ep_kind */
    uint64_t limit_bytes;      /* rounded up to whole chunks; one a live thread at least */
    ep_on_full on_full;
    ep_clock_mode clock;
    bool clock_any;            /* take the running clock, or the best there is; `clock` is ignored */
} ep_recorder_options;

typedef enum ep_recorder_state {
    EP_RECORDER_NEW,
    EP_RECORDER_RUNNING,
    EP_RECORDER_STOPPED
} ep_recorder_state;

/* What a recorder knows of one thread beyond the chunks it keeps. */
typedef struct ep_window_thread {
    ep_open_stack open;                 /* calls open where the kept records begin */
    uint64_t lost[EP_KIND_COUNT];
} ep_window_thread;

typedef struct ep_recorder {
    ep_recorder_options options;
    ep_file *file;                      /* held: what it records is in there, too; NULL: memory alone */
    uint32_t file_thread;               /* for the file's readers: the one thread wanted; 0: all */
    ep_recorder_state state;
    ep_anchor start, stop;
    int64_t start_realtime_ns;
    int64_t start_resident_bytes, stop_resident_bytes;    /* -1: unknown */
    uint64_t full_ticks;                /* events later than this are lost; UINT64_MAX: not full */
    uint64_t full_sequence;             /* first chunk that it did not keep; UINT64_MAX: not full */
    ep_full_reason full_reason;
    ep_chunk **kept;                    /* [kept_first, kept_end): in order of sequence */
    size_t kept_first, kept_end, kept_capacity;
    size_t begun;                       /* chunks that it found in use at its start */
    ep_window_thread **threads;         /* index = thread id; NULL where there is nothing to know */
    size_t thread_capacity;
    uint64_t unlogged[EP_KIND_COUNT];   /* at start; afterwards: lost on threads without a log */
    bool settled;                       /* stopped, and nothing that is still written concerns it */
    struct ep_recorder *next;           /* in the engine's list: started and not settled */
} ep_recorder;

/* Once a process, before anything else. Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_engine_init(void);

/* Union of the kinds that running recorders want. */
uint64_t ep_engine_kinds(void);

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
 * policies are the same. Takes the reference over. Only before a start. */
void ep_recorder_set_file(ep_recorder *recorder, ep_file *file, uint32_t only_thread);

/* Fails: EP_STATE (running, or was; another runs that has a file), EP_NOMEM, EP_UNSUPPORTED (the
 * clock). Nothing changed then. */
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

/* ---- Captures: what decode.c works on -------------------------------------------------------- */

typedef struct ep_capture {
    uint64_t kinds;
    ep_anchor start, stop;
    int64_t start_realtime_ns;
    int64_t start_resident_bytes, stop_resident_bytes;    /* -1: unknown */
    uint64_t full_ticks;
    ep_full_reason full_reason;
    ep_chunk **chunks;                  /* kept alive by this; in order of sequence */
    size_t chunk_count;
    ep_window_thread *threads;          /* index = thread id; owned copies */
    size_t thread_count;                /* one more than the highest thread id */
    ep_clock_map clock;                 /* finished */
    const ep_thread *read_threads;      /* from a file: index = thread id; NULL: this process's */
} ep_capture;

/* The window so far (running: up to now). Fails: EP_STATE (never started), EP_NOMEM; *out
 * untouched. */
EP_CHECKED ep_status ep_capture_take(ep_recorder *recorder, ep_capture *out, ep_error *error);
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
/* The same for those who hold the engine's lock: file.c. */
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

/* The owner has a record at `ticks` and no room: seals the chunk, finds the next. Always leaves
 * room. */
EP_COLD void ep_log_next_chunk(ep_log *log, uint64_t ticks);

/* ---- For tests and statistics ---------------------------------------------------------------- */

typedef struct ep_engine_stats {
    size_t chunks_mapped;      /* all of them, free ones included */
    size_t chunks_free;
    size_t logs;
    size_t threads;
} ep_engine_stats;

ep_engine_stats ep_engine_get_stats(void);

/* What a recorder holds by itself. */
typedef struct ep_recorder_stats {
    size_t chunks;             /* that it keeps; others may keep them, too */
    size_t file_chunks;        /* of them, those that are slots of a file */
    size_t list_bytes;         /* its lists of them and of threads, with the calls that were open */
} ep_recorder_stats;

ep_recorder_stats ep_recorder_get_stats(const ep_recorder *recorder);

/* *to: empty. Returns: copies in it (free its calls). Fails: EP_NOMEM, *to stays empty. */
EP_CHECKED ep_status ep_open_stack_copy(const ep_open_stack *from, ep_open_stack *to);

/* Applies one record to a stack of open calls: the engine's folding, and the model for tests. */
void ep_open_stack_apply(ep_open_stack *stack, unsigned kind, uint32_t id);

#endif
