/* Columns of numbers as planes of bytes.
 *
 * A plane has one byte of each row, the lowest byte first; a column of width w has w planes:
 *
 *   values  1  258  3      width 2      bytes  01 02 03  00 01 00
 *
 * Planes that are zero but for a few rows are left out. After the other planes are then the rows that
 * need them, as distances from one to the next in EP_PLANES_PLACE planes, and their bytes. */
#ifndef EP_PLANES_H
#define EP_PLANES_H

#include "types.h"

#define EP_PLANES_PLACE 3    /* bytes of a distance: a column has less than 1 << 24 rows */
#define EP_PLANES_RARE 256   /* planes are left out if at most every so many-th row needs them */
#define EP_PLANES_LOW 4      /* low bits of a number of which ep_planes_put_low() puts two into a byte */
/* Low bits are noise if those of two values are equal at most so many times as often as by chance. */
#define EP_PLANES_NOISE 1.25

typedef struct ep_planes_form {
    uint8_t width;      /* planes of all rows */
    uint8_t more;       /* bytes that a few rows have more */
    uint32_t rows;      /* how many rows that are */
} ep_planes_form;

/* The planes of some columns, one after the other. */
typedef struct ep_planes {
    uint8_t *bytes;     /* view: the caller's room, 8 or 4 bytes for each value put there */
    size_t size;
    int count;          /* of columns */
    ep_planes_form forms[16];
} ep_planes;

/* Append a column, with as few planes as its values need. */
void ep_planes_put64(ep_planes *planes, const uint64_t *values, size_t count);
void ep_planes_put32(ep_planes *planes, const uint32_t *values, size_t count);

/* Appends a column of bytes, which have a bit of each value: 0 or 1, the first in the lowest bit. */
void ep_planes_put_bits(ep_planes *planes, const uint32_t *values, size_t count);

/* Moves the low bits of values out of them if these are noise, which cannot be compressed: compression
 * then has half as much to do. They are no column: byte i has those of value i, and above them those of
 * the value half of all values (rounded up) after it. Returns: how many bits; 0: nothing was put. */
int ep_planes_put_low(ep_planes *planes, uint64_t *values, size_t count);

/* Signed numbers as unsigned ones: 0, -1, 1, -2 to 0, 1, 2, 3. */
static inline uint64_t
ep_zigzag(int64_t value)
{
    return ((uint64_t)value << 1) ^ (value < 0 ? UINT64_MAX : 0);
}

#endif
