/* The room that the files of a family share: those of a program's process and of its children.
 *
 * A page of shared memory has the number of bytes that all files have. A process adds to it before its
 * file grows by a slot of events. There is no lock, and what a killed process took stays counted, as it
 * stays on the disk. */
#ifndef EP_ROOM_H
#define EP_ROOM_H

#include "types.h"

/* From here on the files of this process and of its forked children share the room of that page.
 * descriptor: of a file of a page, kept by the caller. limit_bytes: what all files may take; 0: the page
 * has it already, from the process that began. warns: once it is nearly full; of the process that began.
 * Fails: EP_IO; EP_FORMAT, it is no such page. Then this process's files are limited by themselves. */
EP_CHECKED ep_status ep_room_share(int descriptor, uint64_t limit_bytes, bool warns, ep_error *error);

/* Whether a file may grow by so many bytes, which are counted then. True if no room is shared.
 * length_bytes: of the file; its first bytes are always granted, so that each process has its facts and a
 * ring. */
bool ep_room_take(size_t bytes, uint64_t length_bytes);
/* A file became shorter, or did not grow. */
void ep_room_give(uint64_t bytes);

/* ---- Before it is full ----------------------------------------------------------------------- */

typedef struct ep_room_state {
    uint64_t used_bytes, limit_bytes;
    int64_t elapsed_ns;                /* since the first process began */
} ep_room_state;

/* Is called by the helper thread (record/ahead.h) of one of the processes, once, when less than
 * one part in EP_ROOM_PARTS_LEFT of the room is left. NULL: nobody is told. */
extern void (*ep_room_tell)(const ep_room_state *state);
#define EP_ROOM_PARTS_LEFT 4

/* Whether it is time, in this process; ep_room_look() calls it then. */
bool ep_room_must_tell(void);
void ep_room_look(void);

#endif
