/* Shared by the files of the log file's writer. Other code includes file.h, the interface. */
#ifndef EP_FILE_PARTS_H
#define EP_FILE_PARTS_H

#include <pthread.h>

#include "file.h"

struct ep_file {
    _Atomic uint32_t refs;
    pthread_mutex_t lock;               /* protects length, cut and the text chunk */
    int descriptor;                     /* -1: closed */
    int alive;                          /* descriptor with the lock that shows that the process lives; -1:
                                         * none */
    char *path, *child_path;
    char *temporary;                    /* its name until it replaces the file at path; NULL: it is there */
    ep_file_header *header;             /* the head */
    size_t unit, head_bytes;
    uint64_t length;
    int guard;                          /* its number in guard.h */
    bool cut;                           /* another program made the file shorter */
    bool packs;
    bool in_family;                     /* it shares the room of quota.h */
    uint64_t room_bytes;                /* what its slots of events took of that room */
    _Atomic bool lacks_room;            /* it could not grow, because that room is full */
    ep_chunk_header *texts;             /* NULL: none yet, or no room */
    size_t text_bytes;                  /* of the slot of texts */
    _Atomic uint64_t *text_next;
    uint64_t text_sequence;
    /* The states; the copies of these fields in the header are for readers. */
    struct {
        ep_chunk_header *slot;          /* NULL: none yet */
        size_t bytes;                   /* of the slot */
    } states[2];
    uint32_t state_now;                 /* which of them counts */
    uint64_t dropped_sequence;          /* that of the state that counts */
};

#ifdef EP_CHECKS
/* The caller has its lock. */
void ep_file_check(const ep_file *file);
#endif

/* ---- file_slots.c ---------------------------------------------------------------------------- */

/* A file that was cut off is not made longer again, because there would be holes in between. */
bool ep_file_is_cut_locked(ep_file *file);

/* Returns: the next `bytes` of the file, zeroed; NULL as ep_file_take_slot(). */
void *ep_file_extend_locked(ep_file *file, size_t bytes);

/* ep_file_take_slot() if the caller has the lock. */
ep_chunk_header *ep_file_take_slot_locked(ep_file *file, size_t bytes);

/* The next length of a slot for texts or states: twice that of the one before. */
size_t ep_file_slot_bytes_for(const ep_file *file, size_t needed, size_t before);

/* ---- file_state.c ---------------------------------------------------------------------------- */

/* Moves a state to a slot of at least `bytes`. False: there is no room, and it stays where it is. */
bool ep_file_move_state(ep_file *file, uint32_t which, size_t bytes);

/* ---- file_texts.c ---------------------------------------------------------------------------- */

/* Seals the slot of texts with its length and sum, and unmaps it. */
void ep_file_seal_texts(ep_file *file);

#endif
