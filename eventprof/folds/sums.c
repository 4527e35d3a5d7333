#include "sums.h"

#include <stdlib.h>
#include <string.h>

#include "memory.h"

void
ep_tree_below(const uint32_t *parent, uint64_t *values, size_t count)
{
    for (size_t i = count; i-- > 1;) {
        values[parent[i]] += values[i];
    }
}

/* Marks the nodes above which no node has the same key. `first`, `next` and `open` are scratch. */
static void
mark_outermost(const uint32_t *parent, const int32_t *keys, size_t count, uint32_t *first,
               uint32_t *next, uint32_t *open, uint64_t *marks)
{
    for (size_t i = count; i-- > 1;) {    /* lists of children, as index + 1, the smallest first */
        next[i] = first[parent[i]];
        first[parent[i]] = (uint32_t)i + 1;
    }
    size_t node = 0;
    bool down = true;
    for (;;) {
        if (down && keys[node] >= 0) {
            marks[node] = open[keys[node]]++ == 0;
        }
        if (down && first[node] != 0) {
            node = first[node] - 1;
            continue;
        }
        if (keys[node] >= 0) {
            open[keys[node]]--;
        }
        if (node == 0) {
            return;
        }
        down = next[node] != 0;
        node = down ? next[node] - 1 : parent[node];
    }
}

ep_status
ep_tree_outermost(const uint32_t *parent, const int32_t *keys, size_t count, uint64_t *marks)
{
    int32_t largest = 0;
    for (size_t i = 0; i < count; i++) {
        largest = keys[i] > largest ? keys[i] : largest;
    }
    uint32_t *first = ep_calloc(count, sizeof *first), *next = ep_calloc(count, sizeof *next);
    uint32_t *open = ep_calloc((size_t)largest + 1, sizeof *open);
    bool has_memory = first != NULL && next != NULL && open != NULL;
    if (has_memory && count > 0) {
        memset(marks, 0, count * sizeof *marks);
        mark_outermost(parent, keys, count, first, next, open, marks);
    }
    free(first);
    free(next);
    free(open);
    return has_memory ? EP_OK : EP_NOMEM;
}
