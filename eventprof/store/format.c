#include "format.h"

#include <string.h>

uint64_t
ep_sum64(const void *at, size_t bytes)
{
    const uint64_t factor = UINT64_C(0x9E3779B97F4A7C15);
    uint64_t sums[4] = {1, 2, 3, 4};
    const char *from = at;
    size_t i = 0;
    for (; i + 32 <= bytes; i += 32) {
        uint64_t words[4];
        memcpy(words, from + i, sizeof words);
        for (int lane = 0; lane < 4; lane++) {
            sums[lane] = (sums[lane] ^ words[lane]) * factor;
        }
    }
    for (; i + 8 <= bytes; i += 8) {
        uint64_t word;
        memcpy(&word, from + i, sizeof word);
        sums[0] = (sums[0] ^ word) * factor;
    }
    uint64_t sum = bytes;
    for (int lane = 0; lane < 4; lane++) {
        sum = (sum ^ sums[lane] ^ sums[lane] >> 29) * factor;
    }
    return sum;
}
