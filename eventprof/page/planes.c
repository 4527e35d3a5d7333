#include "planes.h"

static int
width_of(uint64_t most)
{
    int width = 0;
    for (; most != 0; most >>= 8) {
        width++;
    }
    return width;
}

/* Each plane is a pass of its own, which the compiler makes vectors of. */
#define PUT(planes, values, count)                                   \
    do {                                                             \
        uint64_t all = 0;                                            \
        for (size_t i = 0; i < (count); i++) {                       \
            all |= (values)[i];                                      \
        }                                                            \
        int width = width_of(all);                                   \
        for (int plane = 0; plane < width; plane++) {                \
            uint8_t *restrict to = (planes)->bytes + (planes)->size; \
            for (size_t i = 0; i < (count); i++) {                   \
                to[i] = (uint8_t)((values)[i] >> (8 * plane));       \
            }                                                        \
            (planes)->size += (count);                               \
        }                                                            \
        (planes)->widths[(planes)->count++] = (uint8_t)width;        \
    } while (0)

void
ep_planes_put64(ep_planes *planes, const uint64_t *values, size_t count)
{
    PUT(planes, values, count);
}

void
ep_planes_put32(ep_planes *planes, const uint32_t *values, size_t count)
{
    PUT(planes, values, count);
}
