/* The figures of functions: sums over the tree of calls, which are in ep_tree.functions.
 *
 *   node   1 main               own of f: nodes 2, 3 and 4
 *          +- 2 f               below of f: node 2 with all that is below it, and node 4
 *          |  +- 3 f
 *          +- 4 f
 *
 * What the bound of the tree folds away has been summed by then: the figures of its nodes are final.
 * Those of a leaf are not, as long as it has blocks; it keeps its *path*, the functions of the nodes that
 * were folded around it, until these are freed. So a function's figures do not depend on the bound. A
 * path takes 16 bytes a node that was folded, and each leaf with blocks stays. */
#ifndef EP_BY_FUNCTION_H
#define EP_BY_FUNCTION_H

#include "trace.h"
#include "tree.h"

/* Sets trace->summary, unless it is there: EP_STEP_SUMMARY, or EP_STEP_LENGTHS with_lengths.
 * error: may be NULL. Fails: as ep_fold_trace(). */
EP_CHECKED ep_status ep_fold_functions(ep_trace *trace, bool with_lengths, ep_error *error);

#endif
