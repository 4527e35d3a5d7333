/* What the files of the log file's writer share. Nobody else includes this; file.h is the interface. */
#ifndef EP_FILE_PARTS_H
#define EP_FILE_PARTS_H

#include <pthread.h>

#include "file.h"

struct ep_file {
    _Atomic uint32_t refs;
    pthread_mutex_t lock;               /* of length, cut and the text chunk */
    int descriptor;                     /* -1: abandoned */
    int alive;                          /* holds the lock that says so; -1: none */
    char *path, *child_path;
    ep_file_header *header;             /* the head */
    size_t unit, head_bytes;
    uint64_t length;
    int guard;                          /* its number in guard.h */
    bool cut;                           /* somebody else made it shorter */
    ep_chunk_header *texts;             /* NULL: none yet, or no room */
    size_t text_bytes;                  /* of the slot of texts */
    _Atomic uint64_t *text_next;
    uint64_t text_sequence;
    /* The states; what the header says of them is for readers. */
    struct {
        ep_chunk_header *slot;          /* NULL: none yet */
        size_t bytes;                   /* of the slot */
    } states[2];
    uint32_t state_now;                 /* which of them counts */
    uint64_t dropped_sequence;          /* as the one that counts says */
};

#ifdef EP_CHECKS
/* The caller has its lock. */
void ep_file_check(const ep_file *file);
#endif

/* ---- file_slots.c ---------------------------------------------------------------------------- */

/* A file that others cut is not made longer again: what lies between would be holes. */
bool ep_file_is_cut_locked(ep_file *file);

/* Returns: the next `bytes` of the file, zeroed; NULL as ep_file_take_slot(). */
void *ep_file_extend_locked(ep_file *file, size_t bytes);

/* ep_file_take_slot() for who has the lock. */
ep_chunk_header *ep_file_take_slot_locked(ep_file *file, size_t bytes);

/* Slots of texts and states double. */
size_t ep_file_slot_bytes_for(const ep_file *file, size_t least, size_t before);

/* ---- file_state.c ---------------------------------------------------------------------------- */

/* Gives a state a slot of `bytes` and more, if there is room; else, false, it stays where it is. */
bool ep_file_move_state(ep_file *file, uint32_t which, size_t bytes);

/* ---- file_texts.c ---------------------------------------------------------------------------- */

/* The slot of texts gets its length and sum, and is unmapped. */
void ep_file_seal_texts(ep_file *file);

#endif
