#include "recording.h"

#include <stdlib.h>

#include "file.h"

void
ep_recording_clear(ep_recording *recording)
{
    free(recording->metadata);
    *recording = (ep_recording){0};
}

void
ep_recording_join(ep_recording *recording, const ep_recording *part, bool is_first)
{
    ep_recording joined = is_first ? *part : *recording;
    joined.kinds = recording->kinds | part->kinds;
    joined.filtered = recording->filtered + part->filtered;
    joined.deep_calls = recording->deep_calls + part->deep_calls;
    joined.short_calls = recording->short_calls + part->short_calls;
    joined.functions_off = recording->functions_off + part->functions_off;
    joined.limits = recording->limits | part->limits;
    joined.full_reason =
        recording->full_reason != EP_FULL_NOT ? recording->full_reason : part->full_reason;
    joined.metadata = recording->metadata;
    joined.metadata_bytes = recording->metadata_bytes;
    *recording = joined;
}

const char *
ep_full_word(ep_full_reason reason, uint32_t limits)
{
    static const char *const words[] = {
        [EP_FULL_NOT] = NULL,
        [EP_FULL_LIMIT] = "limit",
        [EP_FULL_NOMEM] = "memory",
        [EP_FULL_DISK] = "disk",
    };
    return reason != EP_FULL_NOT          ? words[reason]
           : limits & EP_LIMIT_CUT        ? "cut"
           : limits & EP_LIMIT_SMALL_DISK ? "small_disk"
           : limits & EP_LIMIT_ROOM       ? "family"
                                          : NULL;
}
