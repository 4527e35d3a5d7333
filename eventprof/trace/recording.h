/* The facts about a recording besides its events. Traces and files have them. */
#ifndef EP_RECORDING_H
#define EP_RECORDING_H

#include "engine.h"
#include "types.h"

typedef struct ep_recording {
    ep_kind_set kinds;             /* kinds that were asked for */
    ep_anchor start;
    int64_t start_realtime_ns;     /* the same instant on the other clocks of the system */
    int64_t start_boottime_ns;
    double frequency_hz;           /* ticks a second */
    uint64_t step_ticks;           /* the clock's smallest step; 0: unknown */
    uint64_t process_id;
    ep_full_reason full_reason;
    uint32_t limits;               /* bits: EP_LIMIT_... (format.h) */
    /* Counts of what filters left out (filter.h). */
    uint64_t filtered;             /* events, by name; unknown if functions_off is not 0 */
    uint64_t deep_calls, short_calls;
    uint64_t functions_off;        /* functions whose calls were neither recorded nor counted */
    bool unfinished;               /* a log file whose recorder did not come to its stop */
    char *metadata;                /* JSON, UTF-8, of the package; owned; NULL: none */
    size_t metadata_bytes;
} ep_recording;

void ep_recording_clear(ep_recording *recording);

/* Adds the facts about a part of a merged recording, without its metadata. is_first: the merged recording
 * begins with this part, and has its clocks. */
void ep_recording_join(ep_recording *recording, const ep_recording *part, bool is_first);

/* Why events are missing: "limit", "memory", "disk", "cut", "small_disk", "family".
 * limits: bits, EP_LIMIT_... Returns: view, static; NULL: for no such reason. */
const char *ep_full_word(ep_full_reason reason, uint32_t limits);

#endif
