/* Whose code a function is. It is decided here alone: the tree, reports, exports, counts of tests and the
 * page get an area for each function; the words "stdlib" and "site-packages" of include and exclude are two
 * of the areas.
 *
 * A file belongs to the standard library or to an installed package if it lies in a folder of
 * ep_area_add_folder(); the longest such folder decides. These are the folders of this process and of
 * processes whose files were opened. A recording may also come from a machine whose folders are unknown.
 * Then the names of folders decide:
 *
 *   site-packages, dist-packages                             installed
 *   lib or lib64, and below it python3.9, python3.13t, pypy3.11;
 *   lib-python, lib_pypy                                     the standard library
 *
 * A name in <> is no file. "<frozen NAME>" belongs to the standard library. Text that a person typed or
 * gave after -c is the user's: its module is __main__. All else was made by a library, as dataclasses make
 * __init__: it has no line that could be shown, so its costs count for the own line that called it. */
#ifndef EP_AREAS_H
#define EP_AREAS_H

#include "names.h"

typedef enum ep_area {
    EP_AREA_OWN,          /* the user's */
    EP_AREA_INSTALLED,
    EP_AREA_STDLIB,
    EP_AREA_OTHER,        /* other Python code: made by a library, eventprof's, a launcher's */
    EP_AREA_NATIVE,       /* not Python code */
    EP_AREA_SPAN,
    EP_AREA_GC,
    EP_AREA_COUNT
} ep_area;

extern EP_HIDDEN const char *const ep_area_words[EP_AREA_COUNT];

/* Files below a folder (no glob), and functions without a file of a module and its submodules, belong to
 * EP_AREA_INSTALLED or EP_AREA_STDLIB. Called before filters are used and functions are asked for. Copies.
 * Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_area_add_folder(ep_area area, ep_text folder);
EP_CHECKED ep_status ep_area_add_module(ep_area area, ep_text module);

/* Asks the file system whether a script of __main__ without an ending lies beside an interpreter, where
 * installers put launchers. */
ep_area ep_area_of(const ep_name_text *function);

/* Where a function lives, for filters: a function without a file lives where its module does. Safe in a
 * hook. Returns: EP_AREA_INSTALLED, EP_AREA_STDLIB or EP_AREA_OTHER. */
ep_area ep_area_of_place(ep_text module, ep_text file);

#endif
