#include "page.h"

#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "memory.h"

/* Where bins end: at exactly (k + 1) * length / EP_PAGE_BINS, rounded up. */
static void
take_edges(ep_page *page, int64_t duration_ns)
{
    int64_t length = duration_ns > 0 ? duration_ns : 1;
    int64_t whole = length / EP_PAGE_BINS, rest = length % EP_PAGE_BINS;
    for (int64_t bin = 0; bin < EP_PAGE_BINS; bin++) {
        page->edges[bin] = whole * (bin + 1) + (rest * (bin + 1) + EP_PAGE_BINS - 1) / EP_PAGE_BINS;
    }
}

ep_status
ep_page_open(const ep_trace *trace, const ep_page_wanted *wanted, ep_page **out)
{
    ep_page *page = ep_calloc(1, sizeof *page);
    if (page == NULL) {
        return EP_NOMEM;
    }
    page->trace = trace;
    page->grain = wanted->grain;
    page->tile = wanted->tile;
    page->group = wanted->group;
    page->function_count = trace->input.map->function_count;
    ep_mutex_renew(&page->lock);
    memcpy(page->codes, wanted->codes, sizeof page->codes);
    for (size_t kind = 0; kind < sizeof page->codes; kind++) {
        size_t codes = page->codes[kind] + 1u;
        page->code_count = codes > page->code_count ? codes : page->code_count;
    }
    take_edges(page, wanted->duration_ns);
    page->own = ep_calloc(page->function_count + 1, 1);
    ep_status status = EP_NOMEM;
    if (page->own != NULL) {
        memcpy(page->own, wanted->own, page->function_count);
        status = ep_page_take_blocks(page, wanted);
    }
    if (status != EP_OK) {
        ep_page_close(page);
        return status;
    }
    *out = page;
    return EP_OK;
}

void
ep_page_close(ep_page *page)
{
    if (page == NULL) {
        return;
    }
    while (page->idle != NULL) {
        ep_page_scratch *next = page->idle->next;
        ep_page_scratch_free(page->idle);
        page->idle = next;
    }
    for (int by = 0; by < EP_PAGE_HOLDERS; by++) {
        free(page->held[by].held);
        free(page->held[by].area);
        free(page->curve[by]);
    }
    pthread_mutex_destroy(&page->lock.os);
    free(page->rows);
    ep_column_free(page->calls);
    ep_column_free(page->order);
    ep_column_free(page->start);
    ep_column_free(page->coarse);
    free(page->orphans.links);
    free(page->usual);
    free(page->own);
    free(page->candidates);
    free(page->of_site);
    free(page->of_caller);
    free(page->of_function);
    free(page->number);
    free(page->places);
    free(page->charges);
    ep_column_free(page->charge_of);
    free(page->marks);
    free(page);
}
