#include "resident.h"

#include <string.h>

#include "file.h"
#include "memory.h"
#include "names.h"
#include "os.h"

/* Taken after all others but those of texts and of files. Nobody holds it at a fork: who copies samples
 * holds the engine's lock, and the helper thread has ended. */
static ep_mutex lock = EP_MUTEX_INIT;
#define LOCKED EP_REQUIRES(lock)

static struct {
    ep_resident *samples;    /* room for EP_RESIDENT_MAX samples; mapped once, never unmapped */
    size_t count, touched;   /* touched: the largest count so far */
    int64_t interval_ns, next_ns;
} resident EP_GUARDED_BY(lock) = {.interval_ns = EP_RESIDENT_NS};

void
ep_resident_begin(void)
{
    ep_mutex_lock(&lock);
    resident.interval_ns = EP_RESIDENT_NS;
    resident.next_ns = 0;
    ep_mutex_unlock(&lock);
}

ep_resident
ep_resident_now(void)
{
    ep_resident now = {ep_os_monotonic_ns(), ep_os_resident_bytes(), 0};
    if (now.bytes >= 0) {
        int64_t own = ep_os_own_bytes() + (int64_t)ep_names_bytes();
        now.own_bytes = own < now.bytes ? own : now.bytes;
    }
    return now;
}

static LOCKED void
add_sample(ep_resident sample)
{
    if (resident.samples == NULL) {
        resident.samples = ep_os_map(EP_RESIDENT_MAX * sizeof *resident.samples);
        if (resident.samples == NULL) {
            return;
        }
        /* Most of it may never be touched. */
        ep_os_own_add(-(int64_t)(EP_RESIDENT_MAX * sizeof *resident.samples));
    }
    if (resident.count == EP_RESIDENT_MAX) {
        resident.count /= 2;
        for (size_t i = 0; i < resident.count; i++) {
            resident.samples[i] = resident.samples[2 * i];
        }
        resident.interval_ns *= 2;
    }
    resident.samples[resident.count++] = sample;
    if (resident.count > resident.touched) {
        resident.touched = resident.count;
        ep_os_own_add(sizeof sample);
    }
}

int64_t
ep_resident_sample(void)
{
    int64_t now = ep_os_monotonic_ns();
    ep_mutex_lock(&lock);
    int64_t left = resident.next_ns - now;
    if (left <= 0) {
        ep_resident sample = ep_resident_now();
        if (sample.bytes >= 0) {
            add_sample(sample);
            ep_file_put_resident(sample.monotonic_ns, sample.bytes, sample.own_bytes);
        }
        left = resident.interval_ns;
        resident.next_ns = now + left;
    }
    ep_mutex_unlock(&lock);
    return left;
}

ep_status
ep_resident_copy(int64_t from_ns, int64_t to_ns, ep_resident **out, size_t *count)
{
    ep_status status = EP_OK;
    *out = NULL;
    *count = 0;
    if (!ep_os_lock(&lock)) {
        return EP_OK;    /* nothing is sampled in that child */
    }
    size_t first = 0, end = resident.count;
    while (first < end && resident.samples[first].monotonic_ns < from_ns) {
        first += 1;
    }
    while (end > first && resident.samples[end - 1].monotonic_ns > to_ns) {
        end -= 1;
    }
    if (end > first) {
        *out = ep_calloc(end - first, sizeof **out);
        status = *out != NULL ? EP_OK : EP_NOMEM;
    }
    if (*out != NULL) {
        memcpy(*out, &resident.samples[first], (end - first) * sizeof **out);
        *count = end - first;
    }
    ep_mutex_unlock(&lock);
    return status;
}
