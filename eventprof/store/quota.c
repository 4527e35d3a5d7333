#include "quota.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os.h"

#define ROOM_MAGIC "EVPROOM"
#define ROOM_BYTES 4096
/* The bytes that each file gets in any case: for its head, its states, and a small ring. */
#define ROOM_OF_EACH (UINT64_C(256) << 10)

typedef struct room_page {
    char magic[8];
    uint64_t limit_bytes;
    int64_t start_ns;                  /* CLOCK_MONOTONIC */
    _Atomic uint64_t used_bytes;
    _Atomic uint32_t must_warn;        /* 1: the process that sets it to 0 calls ep_quota_tell() */
} room_page;

/* Set once and never unmapped: a forked child has it, too. */
static _Atomic(room_page *) shared;
static _Atomic bool must_warn;

void (*ep_quota_tell)(const ep_quota_state *state);
int64_t (*ep_quota_clock)(void) = ep_os_monotonic_ns;

ep_status
ep_quota_share(int descriptor, uint64_t limit_bytes, bool warns, ep_error *error)
{
    struct stat facts;
    if (fstat(descriptor, &facts) != 0) {
        return ep_fail_os(error, errno);
    }
    if (facts.st_size != ROOM_BYTES) {    /* after its end, an access would raise SIGBUS */
        return ep_fail(error, EP_FORMAT, "it is not the file of the limit that processes share");
    }
    void *at = mmap(NULL, ROOM_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (at == MAP_FAILED) {
        return ep_fail_os(error, errno);
    }
    room_page *page = at;
    if (limit_bytes > 0) {
        page->limit_bytes = limit_bytes;
        page->start_ns = ep_quota_clock();
        atomic_store_explicit(&page->must_warn, warns, memory_order_relaxed);
        memcpy(page->magic, ROOM_MAGIC, sizeof page->magic);
    } else if (memcmp(page->magic, ROOM_MAGIC, sizeof page->magic) != 0) {
        (void)munmap(at, ROOM_BYTES);
        return ep_fail(error, EP_FORMAT, "it is not the file of the limit that processes share");
    }
    /* Release: a thread that sees the page sees its limit. */
    atomic_store_explicit(&shared, page, memory_order_release);
    return EP_OK;
}

bool
ep_quota_is_soon_full(const ep_quota_state *state)
{
    if (state->elapsed_ns < EP_QUOTA_RATE_NS || state->used_bytes == 0) {
        return false;
    }
    if (state->used_bytes >= state->limit_bytes) {
        return true;
    }
    /* In floating point, because bytes times ns may not fit 64 bits. */
    double left_bytes = (double)(state->limit_bytes - state->used_bytes);
    return left_bytes * (double)state->elapsed_ns < (double)EP_QUOTA_SOON_NS * (double)state->used_bytes;
}

static ep_quota_state
state_of(const room_page *page)
{
    return (ep_quota_state){
        .used_bytes = atomic_load_explicit(&page->used_bytes, memory_order_relaxed),
        .limit_bytes = page->limit_bytes,
        .elapsed_ns = ep_quota_clock() - page->start_ns,
    };
}

static bool
is_time_to_warn(const room_page *page)
{
    ep_quota_state state = state_of(page);
    return state.used_bytes > state.limit_bytes - state.limit_bytes / EP_QUOTA_PARTS_LEFT ||
           ep_quota_is_soon_full(&state);
}

bool
ep_quota_take(size_t bytes, uint64_t length_bytes)
{
    room_page *page = atomic_load_explicit(&shared, memory_order_acquire);
    if (page == NULL) {
        return true;
    }
    uint64_t used = atomic_fetch_add_explicit(&page->used_bytes, bytes, memory_order_relaxed) + bytes;
    if (used > page->limit_bytes && length_bytes + bytes > ROOM_OF_EACH) {
        atomic_fetch_sub_explicit(&page->used_bytes, bytes, memory_order_relaxed);
        return false;
    }
    if (atomic_load_explicit(&page->must_warn, memory_order_relaxed) != 0 && is_time_to_warn(page) &&
        atomic_exchange_explicit(&page->must_warn, 0, memory_order_relaxed) != 0) {
        atomic_store_explicit(&must_warn, true, memory_order_relaxed);
    }
    return true;
}

void
ep_quota_give(uint64_t bytes)
{
    room_page *page = atomic_load_explicit(&shared, memory_order_acquire);
    if (page != NULL) {
        atomic_fetch_sub_explicit(&page->used_bytes, bytes, memory_order_relaxed);
    }
}

bool
ep_quota_must_tell(void)
{
    return atomic_load_explicit(&must_warn, memory_order_relaxed);
}

void
ep_quota_look(void)
{
    const room_page *page = atomic_load_explicit(&shared, memory_order_acquire);
    if (page == NULL || ep_quota_tell == NULL ||
        !atomic_exchange_explicit(&must_warn, false, memory_order_relaxed)) {
        return;
    }
    ep_quota_state state = state_of(page);
    ep_quota_tell(&state);
}
