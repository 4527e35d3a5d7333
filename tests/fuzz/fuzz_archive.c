/* libFuzzer: whatever bytes an archive has, opening it and asking for all tables does no harm.
 *
 *   CC=clang meson setup build/fuzz -Dfuzzers=true -Dpython=false -Dtests=disabled \
 *       -Db_sanitize=address,undefined -Db_lundef=false -Ddebug=true
 *   meson compile -C build/fuzz
 *   build/fuzz/tests/fuzz/fuzz_archive -max_len=16384 -max_total_time=600 NEW tests/fuzz/corpus/archive
 *
 * In this build checksums are not looked at, else no input would come far. Names stay for the life
 * of the process: restart it now and then. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "archive.h"
#include "functions.h"
#include "names.h"
#include "pair.h"
#include "summary.h"

/* More than a seed can be changed into by accident; a file made for it may have as many as it
 * likes, and takes as long. */
#define MOST_EVENTS 200000

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static void
must(bool condition)
{
    if (!condition) {
        abort();
    }
}

static void
ask(ep_decoded *decoded)
{
    ep_functions functions;
    ep_calls calls = {0};
    ep_blocks blocks = {0};
    ep_curve curve;
    ep_stacks stacks;
    ep_call_memory memory;
    ep_open_stack *open = calloc(decoded->thread_count + 1, sizeof *open);
    must(open != NULL && ep_functions_build(decoded, &functions) == EP_OK);
    for (size_t i = 0; i < decoded->thread_count; i++) {
        open[i] = decoded->threads[i].open;
    }
    const ep_pair_input input = {
        .columns = &decoded->columns,
        .map = &functions.map,
        .thread_count = decoded->thread_count,
        .open_at_start = open,
        .length_ns = decoded->duration_ns,
        .lost_from_ns = EP_NOTHING_LOST,
    };
    must(ep_pair_calls(&input, NULL, &calls) == EP_OK);
    must(ep_pair_blocks(&input, NULL, &blocks) == EP_OK);
    must(ep_summary_curve(&blocks, EP_DOMAINS_ALL, &curve) == EP_OK);
    must(ep_summary_stacks(&calls, &stacks) == EP_OK);
    must(ep_summary_call_memory(&calls, &blocks, true, &memory) == EP_OK);
    ep_call_memory_clear(&memory);
    ep_stacks_clear(&stacks);
    ep_curve_clear(&curve);
    ep_blocks_clear(&blocks);
    ep_calls_clear(&calls);
    ep_functions_clear(&functions);
    free(open);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static int fd = -1;
    ep_archive *archive;
    ep_decoded decoded;
    ep_error error;
    if (fd < 0) {
        must(ep_names_init() == EP_OK);
        fd = memfd_create("fuzz", MFD_CLOEXEC);
    }
    must(ftruncate(fd, 0) == 0 && pwrite(fd, bytes, count, 0) == (ssize_t)count);
    if (ep_archive_open(fd, &archive, &error) != EP_OK) {
        return 0;
    }
    if (ep_archive_get_info(archive)->events <= MOST_EVENTS &&
        ep_archive_load(archive, &decoded, &error) == EP_OK) {
        ask(&decoded);
        ep_decoded_clear(&decoded);
    }
    ep_archive_close(archive);
    return 0;
}
