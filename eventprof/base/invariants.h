/* Checkers of invariants. A structure that many functions change has an ep_x_check(), which asserts
 * what always holds of it; the code calls it where the structure is whole, and so do the tests.
 *
 * Only in a build with -Dchecks=true (EP_CHECKS): the C tests, and all builds under a sanitizer. Any
 * other build has neither the checkers nor the calls of them. */
#ifndef EP_INVARIANTS_H
#define EP_INVARIANTS_H

#include "types.h"

#ifdef EP_CHECKS

/* Says which invariant is broken, and ends the process. It allocates nothing and takes no lock. */
EP_COLD EP_PRINTF(4, 5) _Noreturn void ep_invariant_broken(const char *file, int line,
                                                           const char *invariant, const char *format, ...);

/* In a checker. The message says of which element, in printf's words. */
#define EP_INVARIANT(holds, ...) \
    ((holds) ? (void)0 : ep_invariant_broken(__FILE__, __LINE__, #holds, __VA_ARGS__))

/* Calls a checker. */
#define EP_CHECK_INVARIANTS(call) call

#else
#define EP_CHECK_INVARIANTS(call) ((void)0)
#endif

#endif
