#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "types.h"

ep_status
ep_fail(ep_error *error, ep_status status, const char *format, ...)
{
    if (error != NULL) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(error->text, sizeof error->text, format, arguments);
        va_end(arguments);
        error->os_error = 0;
    }
    return status;
}

ep_status
ep_fail_os(ep_error *error, int os_error)
{
    (void)ep_fail(error, EP_IO, "%s", strerror(os_error));
    if (error != NULL) {
        error->os_error = os_error;
    }
    return EP_IO;
}
