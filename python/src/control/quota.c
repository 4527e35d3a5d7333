/* _core.share_quota: the limit that the recordings of several processes share; store/quota.h has it. */
#include <Python.h>
#include <stdio.h>
#include <unistd.h>

#include "prefault.h"
#include "errors.h"
#include "quota.h"
#include "quota_object.h"

/* Called by the helper thread, without Python. The program goes on meanwhile, so it is one write. */
static void
tell(const ep_quota_state *state)
{
    const double gib = 1024.0 * 1024 * 1024, mib = 1024.0 * 1024;
    double seconds = (double)state->elapsed_ns / 1e9, used = (double)state->used_bytes;
    double rate = seconds > 0 ? used / seconds : 0;
    double left = rate > 0 ? ((double)state->limit_bytes - used) / rate : 0;
    bool large = state->limit_bytes >= (uint64_t)gib;
    double unit = large ? gib : mib;
    char text[320];
    int length = snprintf(text, sizeof text,
                          "eventprof: all processes together have used %.3g of %.3g %s after %.3g s; at "
                          "%.3g MiB/s events will be lost in %.3g s. Record less (--no-memory, --include) "
                          "or raise --buffer\n",
                          used / unit, (double)state->limit_bytes / unit, large ? "GiB" : "MiB", seconds,
                          rate / mib, left);
    (void)!write(STDERR_FILENO, text, (size_t)length);
}

/* share_quota(descriptor, limit_bytes, warns); limit 0: of a process that began before. */
PyObject *
ep_py_share_quota(PyObject *module, PyObject *args)
{
    (void)module;
    int descriptor, warns;
    unsigned long long limit_bytes;
    if (!PyArg_ParseTuple(args, "iKp:share_quota", &descriptor, &limit_bytes, &warns)) {
        return NULL;
    }
    ep_error error = {.text = ""};
    ep_quota_tell = tell;
    /* Chunks that are prepared in advance count, too, and a single process has its own limit to itself. */
    uint64_t slack_bytes = limit_bytes >= EP_PREFAULT_BYTES ? EP_PREFAULT_BYTES : 0;
    ep_status status = ep_quota_share(descriptor, limit_bytes + slack_bytes, warns != 0, &error);
    if (status != EP_OK) {
        return ep_py_raise(status, &error);
    }
    Py_RETURN_NONE;
}
