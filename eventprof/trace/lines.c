#include "lines.h"

#include <string.h>

#include "array.h"

/* A line that began and has not ended. */
typedef struct open_line {
    int32_t call;    /* the call that it is in; -1: unknown */
    int32_t line;    /* row; -1: not known */
    int64_t since_ns;
} open_line;

/* The state of a thread between two of its events. */
typedef struct thread_state {
    open_line *open;        /* of nested calls, the innermost last */
    size_t depth, capacity;
    int32_t innermost;      /* call; -1: none */
    int64_t last_ns;        /* of its last event */
    uint32_t *open_count;   /* by row of lines: how often the line is open; NULL until there is a line */
} thread_state;

typedef struct work {
    const ep_pair_input *input;
    const ep_calls *calls;
    const ep_blocks *blocks;
    ep_lines lines;
    bool any_began;
    int32_t *row_of_site;   /* -1: none */
    thread_state *threads;
} work;

/* ---- The list of lines ----------------------------------------------------------------------- */

typedef struct place {
    int32_t function, line;
    uint32_t site;
} place;

static int
compare_places(const void *left, const void *right)
{
    const place *a = left, *b = right;
    if (a->function != b->function) {
        return a->function < b->function ? -1 : 1;
    }
    return a->line < b->line ? -1 : a->line > b->line;
}

#define USED 0

/* Marks the sites that have lines. */
static void
mark_sites(work *w)
{
    const ep_columns *c = w->input->columns;
    for (size_t row = 0; row < c->count; row++) {
        ep_column_row(row);
        if (c->kind[row] == EP_KIND_LINE && c->id[row] < w->input->map->site_count) {
            w->row_of_site[c->id[row]] = USED;
            w->any_began = true;
        }
    }
    for (size_t block = 0; w->blocks != NULL && block < w->blocks->count; block++) {
        ep_column_row(block);
        uint32_t site = ep_block_site(w->blocks, block);
        if (site < w->input->map->site_count) {
            w->row_of_site[site] = USED;
        }
    }
}

/* Makes a row of each line. Fails: false, no memory. */
static bool
list_lines(work *w)
{
    const ep_id_map *map = w->input->map;
    w->row_of_site = ep_realloc(NULL, map->site_count, sizeof *w->row_of_site);
    if (w->row_of_site == NULL) {
        return false;
    }
    memset(w->row_of_site, 0xFF, map->site_count * sizeof *w->row_of_site);    /* -1 */
    mark_sites(w);
    size_t count = 0;
    for (size_t site = 0; site < map->site_count; site++) {
        count += w->row_of_site[site] == USED;
    }
    place *places = ep_calloc(count, sizeof *places);
    w->lines.rows = places != NULL ? ep_calloc(count, sizeof *w->lines.rows) : NULL;
    if (w->lines.rows == NULL) {
        free(places);
        return false;
    }
    count = 0;
    for (size_t site = 0; site < map->site_count; site++) {
        bool known = map->site_function[site] >= 0 && map->site_line[site] > 0;
        if (w->row_of_site[site] == USED && known) {
            places[count++] = (place){map->site_function[site], map->site_line[site], (uint32_t)site};
        }
        w->row_of_site[site] = -1;
    }
    qsort(places, count, sizeof *places, compare_places);
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || compare_places(&places[i - 1], &places[i]) != 0) {
            w->lines.rows[w->lines.count++] =
                (ep_line){.function = places[i].function, .line = places[i].line};
        }
        w->row_of_site[places[i].site] = (int32_t)w->lines.count - 1;
    }
    free(places);
    return true;
}

/* ---- Their time ------------------------------------------------------------------------------ */

static void
end_line(work *w, thread_state *thread, int64_t now_ns)
{
    const open_line *ended = &thread->open[--thread->depth];
    if (ended->line >= 0 && --thread->open_count[ended->line] == 0) {
        w->lines.rows[ended->line].time_ns += now_ns - ended->since_ns;
    }
}

/* Fails: false, no memory. */
static bool
begin_line(work *w, thread_state *thread, int32_t call, int32_t line, int64_t now_ns)
{
    while (thread->depth > 0 && thread->open[thread->depth - 1].call >= call) {
        end_line(w, thread, now_ns);
    }
    if (thread->open_count == NULL) {
        thread->open_count = ep_calloc(w->lines.count, sizeof *thread->open_count);
    }
    if (thread->open_count == NULL || !ep_grow((void **)&thread->open, &thread->capacity,
                                               thread->depth + 1, sizeof *thread->open)) {
        return false;
    }
    thread->open[thread->depth++] = (open_line){call, line, now_ns};
    if (line >= 0) {
        thread->open_count[line] += 1;
        w->lines.rows[line].hits += 1;
    }
    return true;
}

/* Adds the time since the thread's last event, if its innermost call is at a line. */
static inline void
charge_self(work *w, thread_state *thread, int64_t now_ns)
{
    if (thread->depth > 0) {
        const open_line *top = &thread->open[thread->depth - 1];
        if (top->call == thread->innermost && top->line >= 0) {
            w->lines.rows[top->line].self_ns += now_ns - thread->last_ns;
        }
    }
    thread->last_ns = now_ns;
}

/* Fails: false, no memory. */
static bool
time_row(work *w, size_t row)
{
    const ep_columns *c = w->input->columns;
    thread_state *thread = &w->threads[c->thread[row]];
    int64_t now_ns = c->time_ns[row];
    unsigned kind = c->kind[row];
    int32_t call = ep_row_call(w->calls, row);
    charge_self(w, thread, now_ns);
    if (ep_kind_has_name(kind)) {
        if (call >= 0) {    /* else its call is unknown */
            while (thread->depth > 0 && thread->open[thread->depth - 1].call >= call) {
                end_line(w, thread, now_ns);
            }
            thread->innermost = w->calls->parent[call];
        }
        return true;
    }
    thread->innermost = call;
    if (kind != EP_KIND_LINE) {
        return true;
    }
    uint32_t site = c->id[row];
    int32_t line = site < w->input->map->site_count ? w->row_of_site[site] : -1;
    return begin_line(w, thread, call, line, now_ns);
}

/* Ends the lines that are open when the window ends. */
static void
end_thread(work *w, thread_state *thread)
{
    int64_t last_ns = thread->last_ns;
    if (thread->innermost >= 0) {
        charge_self(w, thread, ep_call_end(w->calls, (size_t)thread->innermost));
    }
    while (thread->depth > 0) {
        int32_t call = thread->open[thread->depth - 1].call;
        end_line(w, thread, call >= 0 ? ep_call_end(w->calls, (size_t)call) : last_ns);
    }
}

static ep_status
time_lines(work *w, const ep_progress *progress)
{
    size_t count = w->any_began ? w->input->columns->count : 0;
    w->threads = ep_calloc(w->input->thread_count, sizeof *w->threads);
    if (w->threads == NULL) {
        return EP_NOMEM;
    }
    for (size_t i = 0; i < w->input->thread_count; i++) {
        w->threads[i].innermost = -1;
    }
    for (size_t row = 0; row < count; row++) {
        if (!time_row(w, row)) {
            return EP_NOMEM;
        }
        if (row % EP_PROGRESS_ROWS == EP_PROGRESS_ROWS - 1 && !ep_progress_tell(progress, row, count)) {
            return EP_STATE;
        }
    }
    for (size_t i = 0; i < w->input->thread_count; i++) {
        end_thread(w, &w->threads[i]);
    }
    return EP_OK;
}

/* ---- Their blocks ---------------------------------------------------------------------------- */

static void
add_blocks(work *w)
{
    for (size_t block = 0; w->blocks != NULL && block < w->blocks->count; block++) {
        ep_column_row(block);
        uint32_t site = ep_block_site(w->blocks, block);
        int32_t line = site < w->input->map->site_count ? w->row_of_site[site] : -1;
        if (line >= 0) {
            int64_t size = ep_block_size(w->blocks, block);
            w->lines.rows[line].allocated += size > 0 ? size : 0;
            w->lines.rows[line].blocks += 1;
        }
    }
}

ep_status
ep_lines_build(const ep_pair_input *input, const ep_calls *calls, const ep_blocks *blocks,
               const ep_progress *progress, ep_lines *out)
{
    work w = {.input = input, .calls = calls, .blocks = blocks};
    ep_status status = list_lines(&w) ? time_lines(&w, progress) : EP_NOMEM;
    if (status == EP_OK) {
        add_blocks(&w);
        *out = w.lines;
    } else {
        ep_lines_clear(&w.lines);
    }
    for (size_t i = 0; w.threads != NULL && i < input->thread_count; i++) {
        free(w.threads[i].open);
        free(w.threads[i].open_count);
    }
    free(w.threads);
    free(w.row_of_site);
    return status;
}

void
ep_lines_clear(ep_lines *lines)
{
    free(lines->rows);
    *lines = (ep_lines){0};
}
