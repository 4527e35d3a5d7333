#include "invariants.h"

#ifdef EP_CHECKS

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void
ep_invariant_broken(const char *file, int line, const char *invariant, const char *format, ...)
{
    char text[512];
    const char *name = strrchr(file, '/');
    int length = snprintf(text, sizeof text, "eventprof: %s:%d: does not hold: %s: ",
                          name != NULL ? name + 1 : file, line, invariant);
    va_list arguments;
    va_start(arguments, format);
    if (length >= 0 && (size_t)length < sizeof text) {
        vsnprintf(text + length, sizeof text - (size_t)length, format, arguments);
    }
    va_end(arguments);
    size_t bytes = strlen(text);
    text[bytes < sizeof text - 1 ? bytes++ : bytes - 1] = '\n';
    ssize_t written = write(STDERR_FILENO, text, bytes);
    (void)written;
    abort();
}

#endif
