/* Coders of events: the memory that they need to encode or decode. archive_model.h describes the
 * encoding. */
#include "archive_model.h"
#include "memory.h"

ep_events_coder *
ep_events_coder_new(const ep_events_ids *ids, bool writes)
{
    ep_events_coder *coder = ep_calloc(1, sizeof *coder);
    if (coder == NULL) {
        return NULL;
    }
    size_t events = writes ? EP_SECTION_ROWS : EP_SECTION_ROWS_MAX;
    coder->ids = *ids;
    coder->threads = ep_calloc(ids->thread_count, sizeof *coder->threads);
    coder->nodes = ep_realloc(NULL, events, sizeof *coder->nodes);
    bool whole = coder->threads != NULL && coder->nodes != NULL;
    if (writes && whole) {
        coder->seen = ep_realloc(NULL, (size_t)1 << SEEN_BITS, sizeof *coder->seen);
        coder->streams = ep_realloc(NULL, events, EVENT_BYTES);
        coder->bytes = ep_realloc(NULL, events + 1, EVENT_BYTES);
        whole = coder->seen != NULL && coder->streams != NULL && coder->bytes != NULL;
    }
    if (!whole) {
        ep_events_coder_free(coder);
        return NULL;
    }
    return coder;
}

void
ep_events_coder_free(ep_events_coder *coder)
{
    if (coder != NULL) {
        free(coder->threads);
        free(coder->nodes);
        free(coder->seen);
        free(coder->streams);
        free(coder->bytes);
        free(coder);
    }
}
