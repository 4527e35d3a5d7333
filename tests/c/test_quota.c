/* quota.c: the room that the files of several processes share. */
#include "quota.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ep_model.h"

#define MIB (1u << 20)
#define PAGE 4096

static ep_quota_state reported;
static int told_times;

static void
tell(const ep_quota_state *state)
{
    reported = *state;
    told_times += 1;
}

static int64_t now_ns;

static int64_t
stopped_clock(void)
{
    return now_ns;
}

static int
new_page(size_t bytes)
{
    int descriptor = ep_model_new_file();
    ck_assert_int_eq(ftruncate(descriptor, (off_t)bytes), 0);
    return descriptor;
}

START_TEST(without_a_room_everything_is_granted)
{
    ck_assert(ep_quota_take(SIZE_MAX / 2, 0));
    ck_assert(!ep_quota_must_tell());
}
END_TEST

START_TEST(what_all_take_is_at_most_the_limit)
{
    int descriptor = new_page(PAGE);
    ck_assert_int_eq(ep_quota_share(descriptor, 4 * MIB, false, NULL), EP_OK);

    for (int i = 0; i < 4; i++) ck_assert(ep_quota_take(MIB, 10 * MIB));
    ck_assert(!ep_quota_take(MIB, 10 * MIB));
    ck_assert(!ep_quota_take(1, 10 * MIB));

    ep_quota_give(MIB);
    ck_assert(ep_quota_take(MIB, 10 * MIB));
    ck_assert(!ep_quota_take(1, 10 * MIB));
}
END_TEST

START_TEST(the_first_bytes_of_each_file_are_granted)
{
    int descriptor = new_page(PAGE);
    ck_assert_int_eq(ep_quota_share(descriptor, PAGE, false, NULL), EP_OK);

    uint64_t length = 0;
    while (ep_quota_take(PAGE, length)) length += PAGE;

    ck_assert_uint_eq(length, 256 * 1024);
}
END_TEST

START_TEST(children_share_it_and_what_a_killed_one_took_stays_counted)
{
    int descriptor = new_page(PAGE);
    ck_assert_int_eq(ep_quota_share(descriptor, 8 * MIB, false, NULL), EP_OK);

    for (int child = 0; child < 3; child++) {
        pid_t pid = fork();
        if (pid == 0) {
            /* The last one as a program that was started: it maps the page anew. */
            bool joined = child < 2 || ep_quota_share(descriptor, 0, false, NULL) == EP_OK;
            _exit(joined && ep_quota_take(2 * MIB, 10 * MIB) ? 0 : 1);
        }
        int status;
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert_int_eq(status, 0);
    }

    ck_assert(ep_quota_take(2 * MIB, 10 * MIB));
    ck_assert(!ep_quota_take(1, 10 * MIB));
}
END_TEST

START_TEST(one_process_tells_once_before_it_is_full)
{
    int descriptor = new_page(PAGE);
    ep_quota_tell = tell;
    ep_quota_clock = stopped_clock;
    ck_assert_int_eq(ep_quota_share(descriptor, 8 * MIB, true, NULL), EP_OK);

    for (int i = 0; i < 6; i++) {
        ck_assert(ep_quota_take(MIB, 10 * MIB));
        ck_assert(!ep_quota_must_tell());
    }
    ck_assert(ep_quota_take(MIB, 10 * MIB));
    ck_assert(ep_quota_must_tell());
    ep_quota_look();
    ep_quota_look();
    ck_assert(ep_quota_take(MIB, 10 * MIB));
    ep_quota_look();

    ck_assert_int_eq(told_times, 1);
    ck_assert_uint_eq(reported.used_bytes, 7 * MIB);
    ck_assert_uint_eq(reported.limit_bytes, 8 * MIB);
    ck_assert_int_ge(reported.elapsed_ns, 0);
}
END_TEST

START_TEST(it_tells_once_in_the_first_seconds)
{
    ep_quota_tell = tell;
    ep_quota_clock = stopped_clock;
    told_times = 0;
    ck_assert_int_eq(ep_quota_share(new_page(PAGE), 400 * (uint64_t)MIB, true, NULL), EP_OK);

    for (int i = 0; i < 30; i++) ck_assert(ep_quota_take(MIB, 10 * MIB));
    ck_assert(!ep_quota_must_tell());    /* the rate is not known yet */
    now_ns += 3 * INT64_C(1000000000);
    ck_assert(ep_quota_take(MIB, 10 * MIB));
    ck_assert(ep_quota_must_tell());
    ep_quota_look();
    for (int i = 0; i < 360; i++) ck_assert(ep_quota_take(MIB, 10 * MIB));
    ep_quota_look();

    ck_assert_int_eq(told_times, 1);
    ck_assert_uint_eq(reported.used_bytes, 31 * MIB);
    ck_assert_int_eq(reported.elapsed_ns, 3 * INT64_C(1000000000));
}
END_TEST

START_TEST(a_rate_that_fills_it_within_a_minute_is_noticed_early)
{
    const int64_t second = 1000000000;
    const uint64_t gib = UINT64_C(1) << 30;
    /* 300 MiB/s of 4 GiB, after the first seconds; not before, when a program starts. */
    ck_assert(ep_quota_is_soon_full(&(ep_quota_state){600 * (uint64_t)MIB, 4 * gib, 2 * second}));
    ck_assert(!ep_quota_is_soon_full(&(ep_quota_state){300 * (uint64_t)MIB, 4 * gib, second}));
    /* 50 MiB/s: full in 80 s, then in 59 s. */
    ck_assert(!ep_quota_is_soon_full(&(ep_quota_state){100 * (uint64_t)MIB, 4 * gib, 2 * second}));
    ck_assert(ep_quota_is_soon_full(&(ep_quota_state){1150 * (uint64_t)MIB, 4 * gib, 23 * second}));
    ck_assert(!ep_quota_is_soon_full(&(ep_quota_state){0, 4 * gib, 9 * second}));
    /* No overflow, and no rate of nothing. */
    ck_assert(ep_quota_is_soon_full(&(ep_quota_state){UINT64_MAX / 2, UINT64_MAX, 30 * second}));
    ck_assert(ep_quota_is_soon_full(&(ep_quota_state){5 * gib, 4 * gib, 9 * second}));
}
END_TEST

START_TEST(what_is_no_room_is_refused)
{
    ep_error error = {.text = ""};
    ck_assert_int_eq(ep_quota_share(new_page(0), 0, false, &error), EP_FORMAT);
    ck_assert_int_eq(ep_quota_share(new_page(PAGE), 0, false, &error), EP_FORMAT);
    ck_assert_int_eq(ep_quota_share(-1, MIB, false, &error), EP_IO);

    ck_assert(ep_quota_take(SIZE_MAX / 2, 0));
}
END_TEST

/* Without forks, tests share the process: those without a room come first. */
EP_TEST_MAIN("room", without_a_room_everything_is_granted, what_is_no_room_is_refused,
             what_all_take_is_at_most_the_limit, the_first_bytes_of_each_file_are_granted,
             a_rate_that_fills_it_within_a_minute_is_noticed_early,
             children_share_it_and_what_a_killed_one_took_stays_counted,
             one_process_tells_once_before_it_is_full, it_tells_once_in_the_first_seconds)
