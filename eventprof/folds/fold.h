/* A fold: one pass over the events of a recording, in bounded memory.
 *
 *   trace, log or archive -> stream (batches of rows, in order of time) -> fold, fold, fold
 *
 * A question is a struct of functions. Several questions run in one pass: each is given every batch. */
#ifndef EP_FOLD_H
#define EP_FOLD_H

#include "decode.h"
#include "pair.h"
#include "types.h"

/* What is known before the first event. Views, valid until the fold's end() has returned. */
typedef struct ep_fold_facts {
    const ep_id_map *map;                  /* every site and name of the events; NULL if no fold asks
                                              for ids */
    size_t thread_count;
    const ep_open_stack *open_at_start;    /* thread_count long */
    const int64_t *open_from_ns;           /* thread_count long: where those calls begin */
    const int64_t *open_until_ns;          /* thread_count long: where calls open at the end are cut;
                                              NULL: length_ns */
    const int32_t *thread_process;         /* thread_count long: the process of each, from 0 on;
                                              NULL: all are of one */
    const int32_t *thread_carrier;         /* thread_count long: ep_thread_carriers(); NULL: no lanes */
    int64_t length_ns;                     /* of the window */
    const ep_decoded *head;                /* all but the columns; of a file, counts and damage may still be
                                              wrong */
    bool has_lock;                         /* each process has an interpreter's lock: events show who
                                              held it */
} ep_fold_facts;

/* Rows `from` .. `to` - 1 of the columns are new. A fold may look at the rows from `to` on, which the next
 * batches give: those within EP_PAIR_SKEW_NS of the last new row are there, or all to the end. */
typedef struct ep_batch {
    const ep_columns *columns;
    size_t from, to;
    size_t alloc_from;    /* the first allocator event (index of alloc_row) at or after `from` */
} ep_batch;

typedef struct ep_fold ep_fold;

typedef struct ep_fold_type {
    const char *name;
    bool without_ids;    /* it looks neither at ids nor at the map: a seventh of the time of a file */
    /* Fails: EP_NOMEM. */
    EP_CHECKED ep_status (*begin)(ep_fold *fold, const ep_fold_facts *facts);
    /* Fails: EP_NOMEM. */
    EP_CHECKED ep_status (*events)(ep_fold *fold, const ep_batch *batch);
    /* No event follows: what is open ends with the window. Fails: EP_NOMEM. */
    EP_CHECKED ep_status (*end)(ep_fold *fold);
    /* Frees what the fold holds; a zeroed fold is allowed. */
    void (*clear)(ep_fold *fold);
} ep_fold_type;

/* The first member of every fold. */
struct ep_fold {
    const ep_fold_type *type;
};

#endif
