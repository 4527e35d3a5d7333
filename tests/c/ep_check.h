/* What every test program of the core shares: its main(). A test that EP_TEST_MAIN does not name is
 * an unused variable, which the compiler reports.
 *
 *     START_TEST(full_log_counts_every_lost_event)
 *     {
 *         ...
 *     }
 *     END_TEST
 *
 *     EP_TEST_MAIN("log", full_log_counts_every_lost_event, ...)
 */
#ifndef EP_CHECK_H
#define EP_CHECK_H

#include <check.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Check notes every assertion that holds in a file, for the place that it names when a test crashes:
 * 2 us, which was most of the time of tests that look at each row. Here a line is noted when it
 * holds for the first time: of a crash, Check names the assertion that was the last to be new. */
enum {
    EP_POINT_LINES = 4096    /* more than any file here has */
};

static inline void
ep_point_holds(const char *file, int line)
{
    static atomic_bool known[EP_POINT_LINES];
    atomic_bool *here = &known[line % EP_POINT_LINES];
    if (!atomic_load_explicit(here, memory_order_relaxed)) {
        atomic_store_explicit(here, true, memory_order_relaxed);
        _mark_point(file, line);
    }
}

#define _mark_point(file, line) ep_point_holds(file, line)

/* Of one test, in seconds: long enough for one under valgrind. */
#ifndef EP_TEST_TIMEOUT
#define EP_TEST_TIMEOUT 60
#endif

/* Whether $EP_TESTS_LEFT_OUT has this test or suite; prints that it has. An emulator may lack what
 * a test asks of the system: tools/dev/cross.py knows which. Names have a space between them. */
static bool
ep_is_left_out(const char *name)
{
    const char *names = getenv("EP_TESTS_LEFT_OUT");
    size_t length = strlen(name);
    const char *at = names;
    for (; at != NULL && (at = strstr(at, name)) != NULL; at += length) {
        if ((at == names || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0')) {
            printf("left out: %s\n", name);
            return true;
        }
    }
    return false;
}

static int
ep_check_main(const char *name, const TTest *const *tests, size_t count)
{
    Suite *suite = suite_create(name);
    TCase *tcase = tcase_create(name);
    tcase_set_timeout(tcase, EP_TEST_TIMEOUT);
    count = ep_is_left_out(name) ? 0 : count;
    for (size_t i = 0; i < count; i++) {
        if (!ep_is_left_out(tests[i]->name)) {
            tcase_add_test(tcase, tests[i]);
        }
    }
    suite_add_tcase(suite, tcase);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#define EP_TEST_MAIN(name, ...)                                              \
    int                                                                      \
    main(void)                                                               \
    {                                                                        \
        const TTest *const tests[] = {__VA_ARGS__};                          \
        return ep_check_main(name, tests, sizeof(tests) / sizeof(tests[0])); \
    }

#endif
