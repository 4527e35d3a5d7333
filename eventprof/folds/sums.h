/* Sums over a tree that is given by its parents: parent[i] < i for all nodes but the root, which is 0. */
#ifndef EP_SUMS_H
#define EP_SUMS_H

#include "types.h"

/* Adds to each value the values of all nodes below its node. Wraps around. */
void ep_tree_below(const uint32_t *parent, uint64_t *values, size_t count);

/* Sets marks to 1 for nodes with a key (not negative) that no node above them has, else to 0.
 * Fails: EP_NOMEM. */
EP_CHECKED ep_status ep_tree_outermost(const uint32_t *parent, const int32_t *keys, size_t count,
                                       uint64_t *marks);

#endif
