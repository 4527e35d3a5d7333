/* Runs a fuzzer where there is no libFuzzer, as on musl and in an emulator: each input of a corpus as it
 * is, and then, for some seconds, with changes that depend on a fixed seed alone.
 *
 *   fuzz_NAME SECONDS FOLDER [INPUT]
 *
 * What ends the program is written to INPUT ("fuzz-input" in the current folder, if none is named). */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define INPUT_BYTES 16384    /* as ./dev fuzz says to libFuzzer */
#define INPUTS_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* Not every fuzzer has one. */
int LLVMFuzzerInitialize(int *count, char ***arguments) __attribute__((weak));

typedef struct input {
    uint8_t *bytes;
    size_t count;
} input;

static input inputs[INPUTS_MAX];
static size_t input_count;
static uint8_t now[INPUT_BYTES];    /* what the fuzzer runs with */
static size_t now_bytes;
static const char *written = "fuzz-input";

static void
read_input(const char *folder, const char *name)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL || input_count == INPUTS_MAX) {
        abort();
    }
    size_t count = fread(now, 1, sizeof now, file);
    (void)fclose(file);
    input *to = &inputs[input_count++];
    *to = (input){.bytes = malloc(count + 1), .count = count};
    if (to->bytes == NULL) {
        abort();
    }
    memcpy(to->bytes, now, count);
}

static void
write_input(int number)
{
    int file = open(written, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    (void)!write(file, now, now_bytes);
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

/* xorshift64: the same numbers on every platform. */
static uint64_t
any(uint64_t limit)
{
    static uint64_t state = 12347;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return limit == 0 ? 0 : state % limit;
}

/* Bits, bytes and words are changed, a part is moved, or the end is another input's. */
static void
change(void)
{
    static const uint64_t edges[] = {0, 1, 127, 128, 255, 32767, 65535, INT32_MAX, UINT32_MAX, INT64_MAX,
                                     UINT64_MAX};
    for (uint64_t times = 1 + any(4); times > 0 && now_bytes > 8; times--) {
        size_t at = (size_t)any(now_bytes - 8), bytes = 1 + (size_t)any(8);
        const input *other = &inputs[any(input_count)];
        switch (any(6)) {
            case 0: now[at] ^= (uint8_t)(1U << any(8)); break;
            case 1: now[at] = (uint8_t)any(256); break;
            case 2: memcpy(&now[at], &edges[any(sizeof edges / sizeof *edges)], bytes); break;
            case 3: memmove(&now[at], &now[any(now_bytes - 8)], bytes); break;
            case 4: now_bytes = 1 + (size_t)any(now_bytes); break;
            default:
                if (other->count > at) {
                    memcpy(&now[at], &other->bytes[at], other->count - at);
                    now_bytes = other->count;
                }
                break;
        }
    }
}

static void
run(const input *from, bool changed)
{
    memcpy(now, from->bytes, from->count);
    now_bytes = from->count;
    if (changed) {
        change();
    }
    /* Of its own: a sanitizer sees what reads beyond it. */
    uint8_t *exact = malloc(now_bytes + 1);
    if (exact == NULL) {
        abort();
    }
    memcpy(exact, now, now_bytes);
    (void)LLVMFuzzerTestOneInput(exact, now_bytes);
    free(exact);
}

int
main(int argc, char **argv)
{
    DIR *folder = argc >= 3 ? opendir(argv[2]) : NULL;
    if (folder == NULL) {
        (void)fprintf(stderr, "usage: %s SECONDS FOLDER [INPUT]\n", argv[0]);
        return 2;
    }
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] != '.') {
            read_input(argv[2], entry->d_name);
        }
    }
    (void)closedir(folder);
    if (LLVMFuzzerInitialize != NULL) {
        (void)LLVMFuzzerInitialize(&argc, &argv);
    }
    written = argc > 3 ? argv[3] : written;
    const int ends[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        (void)signal(ends[i], write_input);
    }
    for (size_t i = 0; i < input_count; i++) {
        run(&inputs[i], false);
    }
    time_t end = time(NULL) + atoi(argv[1]);
    unsigned long runs = 0;
    for (; input_count > 0 && time(NULL) < end; runs++) {
        run(&inputs[any(input_count)], true);
    }
    (void)printf("%zu inputs as they are, %lu changed\n", input_count, runs);
    return 0;
}
