/* Columns of numbers as planes of bytes.
 *
 * A plane has one byte of each row, the lowest byte first; a column of width w is w planes:
 *
 *   values  1  258  3      width 2      bytes  01 02 03  00 01 00 */
#ifndef EP_PLANES_H
#define EP_PLANES_H

#include "types.h"

/* The planes of some columns, one behind the other. */
typedef struct ep_planes {
    uint8_t *bytes;     /* view: the caller's room, 8 or 4 bytes for each value put there */
    size_t size;
    int count;          /* of columns */
    uint8_t widths[16];
} ep_planes;

/* Append a column; its width is the least that its largest value needs, 0 for zeros alone. */
void ep_planes_put64(ep_planes *planes, const uint64_t *values, size_t count);
void ep_planes_put32(ep_planes *planes, const uint32_t *values, size_t count);

/* Signed numbers as unsigned ones: 0, -1, 1, -2 to 0, 1, 2, 3. */
static inline uint64_t
ep_zigzag(int64_t value)
{
    return ((uint64_t)value << 1) ^ (value < 0 ? UINT64_MAX : 0);
}

#endif
