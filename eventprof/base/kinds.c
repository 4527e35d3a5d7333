/* The table of event kinds, from events.def. */
#include "types.h"

const ep_kind_info ep_kinds[EP_KIND_COUNT] = {
#define WORDS_CALL 1
#define WORDS_ALLOC 2
#define WORDS_FREE 2
#define WORDS_POINT 1
#define WORDS_VALUE 2
#define WORDS_CONTROL 2
#define EP_KIND(number, NAME, word, legacy, FORM, DOMAIN, PAIRING, GROUP, meaning) \
    [number] = {#NAME,                                                             \
                word,                                                              \
                legacy,                                                            \
                EP_FORM_##FORM,                                                    \
                EP_DOMAIN_##DOMAIN,                                                \
                EP_PAIRING_##PAIRING,                                              \
                EP_GROUP_##GROUP,                                                  \
                WORDS_##FORM,                                                      \
                EP_FORM_##FORM == EP_FORM_CALL && EP_PAIRING_##PAIRING == EP_PAIRING_CLOSES},
#include "events.def"
#undef EP_KIND
};

const char *const ep_wait_words[EP_WAIT_FOR_COUNT] = {
#define EP_WAIT_FOR(NAME, word, meaning) word,
#include "waits.def"
#undef EP_WAIT_FOR
};

const char *const ep_wait_object_words[EP_WAIT_OBJECT_COUNT] = {
#define EP_WAIT_OBJECT(NAME, word, meaning) word,
#include "wait_objects.def"
#undef EP_WAIT_OBJECT
};

const char *const ep_kind_group_words[EP_GROUP_COUNT] = {
    [EP_GROUP_PYTHON] = "python",
    [EP_GROUP_C] = "c",
    [EP_GROUP_BLOCK] = "block",
    [EP_GROUP_SPAN] = "span",
    [EP_GROUP_MARK] = "mark",
    [EP_GROUP_GC] = "gc",
    [EP_GROUP_HPY] = "hpy",
    [EP_GROUP_AUDIT] = "audit",
    [EP_GROUP_LINE] = "line",
    [EP_GROUP_INSTRUCTION] = "instruction",
    [EP_GROUP_EXCEPTION] = "exception",
    [EP_GROUP_BRANCH] = "branch",
    [EP_GROUP_OBJECT] = "object",
    [EP_GROUP_WAIT] = "wait",
    [EP_GROUP_TASK] = "task",
    [EP_GROUP_CONTROL] = "",
};
