/* The table of event kinds, from events.def. */
#include "types.h"

const ep_kind_info ep_kinds[EP_KIND_COUNT] = {
#define WORDS_CALL 1
#define WORDS_ALLOC 2
#define WORDS_FREE 2
#define WORDS_POINT 1
#define WORDS_VALUE 2
#define WORDS_CONTROL 2
#define EP_KIND(number, NAME, word, legacy, FAMILY, DOMAIN, PAIRING) \
    [number] = {#NAME,                                               \
                word,                                                \
                legacy,                                              \
                EP_FAMILY_##FAMILY,                                  \
                EP_DOMAIN_##DOMAIN,                                  \
                EP_PAIRING_##PAIRING,                                \
                WORDS_##FAMILY},
#include "events.def"
#undef EP_KIND
};
