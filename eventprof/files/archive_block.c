/* Coders of events: the memory that they need to encode or decode. archive_model.h describes the
 * encoding. */
#include "archive_model.h"
#include "memory.h"

ep_block_coder *
ep_block_coder_new(const ep_block_names *names, bool writes)
{
    ep_block_coder *coder = ep_calloc(1, sizeof *coder);
    if (coder == NULL) {
        return NULL;
    }
    size_t events = writes ? EP_BLOCK_EVENTS : EP_BLOCK_EVENTS_MAX;
    coder->names = *names;
    coder->threads = ep_calloc(names->thread_count, sizeof *coder->threads);
    coder->nodes = ep_realloc(NULL, events, sizeof *coder->nodes);
    bool whole = coder->threads != NULL && coder->nodes != NULL;
    if (writes && whole) {
        coder->seen = ep_realloc(NULL, (size_t)1 << SEEN_BITS, sizeof *coder->seen);
        coder->streams = ep_realloc(NULL, events, EVENT_BYTES);
        coder->bytes = ep_realloc(NULL, events + 1, EVENT_BYTES);
        whole = coder->seen != NULL && coder->streams != NULL && coder->bytes != NULL;
    }
    if (!whole) {
        ep_block_coder_free(coder);
        return NULL;
    }
    return coder;
}

void
ep_block_coder_free(ep_block_coder *coder)
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
