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
#define PUT(planes, values, count)                                                            \
    do {                                                                                      \
        uint64_t all = 0;                                                                     \
        for (size_t i = 0; i < (count); i++) {                                                \
            all |= (values)[i];                                                               \
        }                                                                                     \
        ep_planes_form form = {.width = (uint8_t)width_of(all)};                              \
        size_t found = 0;                                                                     \
        while (form.width > 0) {                                                              \
            found = 0;                                                                        \
            for (size_t i = 0; i < (count) && found <= (count) / EP_PLANES_RARE;) {           \
                for (size_t end = i + 4096 < (count) ? i + 4096 : (count); i < end; i++) {    \
                    found += (values)[i] >> (8 * (form.width - 1)) != 0;                      \
                }                                                                             \
            }                                                                                 \
            if (found > (count) / EP_PLANES_RARE) {                                           \
                break;                                                                        \
            }                                                                                 \
            form.rows = (uint32_t)found;                                                      \
            form.width--;                                                                     \
            form.more++;                                                                      \
        }                                                                                     \
        uint8_t *restrict to = (planes)->bytes + (planes)->size;                              \
        for (int plane = 0; plane < form.width; plane++, to += (count)) {                     \
            for (size_t i = 0; i < (count); i++) {                                            \
                to[i] = (uint8_t)((values)[i] >> (8 * plane));                                \
            }                                                                                 \
        }                                                                                     \
        size_t before = 0, at = 0;                                                            \
        for (size_t i = 0; at < form.rows; i++) {                                             \
            if ((values)[i] >> (8 * form.width) == 0) {                                       \
                continue;                                                                     \
            }                                                                                 \
            for (size_t byte = 0; byte < EP_PLANES_PLACE; byte++) {                           \
                to[byte * form.rows + at] = (uint8_t)((i - before) >> (8 * byte));            \
            }                                                                                 \
            for (size_t byte = 0; byte < form.more; byte++) {                                 \
                to[(EP_PLANES_PLACE + byte) * form.rows + at] =                               \
                    (uint8_t)((values)[i] >> (8 * (form.width + byte)));                      \
            }                                                                                 \
            before = i;                                                                       \
            at++;                                                                             \
        }                                                                                     \
        (planes)->size = (size_t)(to - (planes)->bytes) + (EP_PLANES_PLACE + form.more) * at; \
        (planes)->forms[(planes)->count++] = form;                                            \
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

void
ep_planes_put_bits(ep_planes *planes, const uint32_t *values, size_t count)
{
    uint8_t *to = planes->bytes + planes->size;
    size_t bytes = (count + 7) / 8;
    for (size_t byte = 0; byte < bytes; byte++) {
        size_t end = 8 * byte + 8 < count ? 8 * byte + 8 : count;
        unsigned bits = 0;
        for (size_t i = 8 * byte; i < end; i++) {
            bits |= values[i] << (i % 8);
        }
        to[byte] = (uint8_t)bits;
    }
    planes->size += bytes;
    planes->forms[planes->count++] = (ep_planes_form){.width = 1};
}

/* Whether all values of the low bits are about equally frequent. */
static bool
is_noise(const uint64_t *values, size_t count)
{
    uint64_t counts[1 << EP_PLANES_LOW] = {0};
    for (size_t i = 0; i < count; i++) {
        counts[values[i] % (1 << EP_PLANES_LOW)]++;
    }
    double squares = 0;
    for (size_t value = 0; value < 1 << EP_PLANES_LOW; value++) {
        squares += (double)counts[value] * (double)counts[value];
    }
    return squares * (1 << EP_PLANES_LOW) < EP_PLANES_NOISE * (double)count * (double)count;
}

int
ep_planes_put_low(ep_planes *planes, uint64_t *values, size_t count)
{
    if (!is_noise(values, count)) {
        return 0;
    }
    uint8_t *to = planes->bytes + planes->size;
    size_t half = (count + 1) / 2, mask = (1 << EP_PLANES_LOW) - 1;
    for (size_t i = 0; i < half; i++) {
        to[i] = (uint8_t)(values[i] & mask);
    }
    for (size_t i = half; i < count; i++) {
        to[i - half] |= (uint8_t)((values[i] & mask) << EP_PLANES_LOW);
    }
    for (size_t i = 0; i < count; i++) {
        values[i] >>= EP_PLANES_LOW;
    }
    planes->size += half;
    return EP_PLANES_LOW;
}
