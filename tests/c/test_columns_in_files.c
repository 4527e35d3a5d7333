/* base/array.h: columns of large traces lie in files, and hold what they held. */
#include "ep_check.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "array.h"

#define ROWS ((size_t)654321)    /* of 8 bytes: 5 MiB */

/* Whether this system and its disk have columns in files at all. */
static bool
has_files(void)
{
    (void)ep_columns_set_in_memory(0);
    uint64_t *column = ep_column_new(ROWS, sizeof *column);
    ck_assert_ptr_nonnull(column);
    bool has = ep_columns_in_files() > 0;
    ep_column_free(column);
    return has;
}

static uint64_t *
numbers(void)
{
    uint64_t *column = ep_column_new(ROWS, sizeof *column);
    ck_assert_ptr_nonnull(column);
    for (size_t i = 0; i < ROWS; i++) column[i] = i * 12347;
    return column;
}

/* Whether a file in a folder is mapped. */
static int
maps_a_file_of(const char *folder)
{
    char line[1024];
    FILE *maps = fopen("/proc/self/maps", "r");
    int found = 0;
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        found |= strstr(line, folder) != NULL;
    }
    if (maps != NULL) {
        fclose(maps);
    }
    return found;
}

static size_t
wrong(const uint64_t *column)
{
    size_t count = 0;
    for (size_t i = 0; i < ROWS; i++) count += column[i] != i * 12347;
    return count;
}

START_TEST(what_was_given_back_is_still_there)
{
    bool in_files = has_files();
    uint64_t *first = numbers(), *second = numbers();

    ep_columns_give_back();

    ck_assert_uint_eq(ep_columns_in_files(), in_files ? 2 * ROWS * sizeof *first : 0);
    ck_assert_uint_eq(wrong(first), 0);
    ep_column_free(first);
    ck_assert_uint_eq(wrong(second), 0);
    ep_column_free(second);
    ck_assert_uint_eq(ep_columns_in_files(), 0);
}
END_TEST

START_TEST(the_first_columns_are_memory)
{
    (void)ep_columns_set_in_memory(ROWS * sizeof(uint64_t));
    for (int i = 0; i < 3; i++) {
        uint64_t *column = numbers();

        ck_assert_uint_eq(ep_columns_in_files(), 0);

        ep_column_free(column);    /* else the next would not fit */
    }
}
END_TEST

START_TEST(a_zeroed_column_is_zero)
{
    (void)ep_columns_set_in_memory(0);
    const size_t counts[] = {3, ROWS};
    for (int i = 0; i < 2; i++) {
        uint64_t *column = ep_column_new_zeroed(counts[i], sizeof *column);
        ck_assert_ptr_nonnull(column);

        for (size_t row = 0; row < counts[i]; row++) ck_assert_uint_eq(column[row], 0);

        ep_column_free(column);
    }
}
END_TEST

START_TEST(a_child_sees_it_and_may_free_it)
{
    (void)ep_columns_set_in_memory(0);
    uint64_t *column = numbers();

    pid_t child = fork();
    if (child == 0) {
        size_t found = wrong(column);
        ep_column_free(column);
        _exit(found == 0 && ep_columns_in_files() == 0 ? 0 : 1);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);

    ck_assert_int_eq(status, 0);
    ck_assert_uint_eq(wrong(column), 0);
    ep_column_free(column);
}
END_TEST

START_TEST(what_one_process_writes_into_its_own_the_other_does_not_see)
{
    (void)ep_columns_set_in_memory(0);
    uint64_t *column = numbers();
    ep_columns_before_fork();
    pid_t child = fork();
    ep_columns_after_fork();
    if (child == 0) {
        bool whole = ep_column_own(column) && wrong(column) == 0;
        for (size_t i = 0; i < ROWS; i++) column[i] = 7;
        ep_columns_give_back();
        _exit(whole && column[ROWS - 1] == 7 && wrong(column) == ROWS ? 0 : 1);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);

    ck_assert_int_eq(status, 0);
    ck_assert_uint_eq(wrong(column), 0);
    ck_assert(ep_column_own(column));
    ck_assert_uint_eq(wrong(column), 0);
    ep_column_free(column);
    ck_assert_uint_eq(ep_columns_in_files(), 0);
}
END_TEST

START_TEST(the_environment_is_read_when_it_is_asked_for)
{
    (void)ep_columns_set_in_memory(0);
    char folder[] = "/var/tmp/eventprof-test-XXXXXX";
    if (mkdtemp(folder) == NULL || !has_files()) {
        return;
    }
    char none[64];
    snprintf(none, sizeof none, "%s/none", folder);

    ck_assert_int_eq(setenv("EVENTPROF_TMPDIR", folder, 1), 0);
    ck_assert_int_eq(setenv("TMPDIR", none, 1), 0);
    ep_columns_read_environment();
    ck_assert_int_eq(setenv("EVENTPROF_TMPDIR", none, 1), 0);

    uint64_t *column = numbers();
    ck_assert_int_eq(maps_a_file_of(folder), 1);
    ep_column_free(column);
    ep_columns_read_environment();
    column = numbers();
    ck_assert_int_eq(maps_a_file_of(folder), 0);
    ck_assert_uint_gt(ep_columns_in_files(), 0);    /* /var/tmp is left */
    ep_column_free(column);
    ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

START_TEST(a_folder_that_refuses_is_named_once)
{
    if (!has_files()) {
        return;
    }
    ep_column_refusal refusal;
    (void)ep_columns_take_refusal(&refusal);
    ck_assert_int_eq(setenv("EVENTPROF_TMPDIR", "/var/tmp", 1), 0);
    ep_columns_read_environment();
    struct rlimit before, small;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){.rlim_cur = 4096, .rlim_max = before.rlim_max};
    (void)signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);

    uint64_t *column = numbers();    /* in memory all the same */

    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    ck_assert(ep_columns_take_refusal(&refusal));
    ck_assert_uint_eq(refusal.bytes, ROWS * sizeof *column);
    ck_assert_int_eq(refusal.os_error, EFBIG);
    ck_assert_str_eq(refusal.folder, "/var/tmp");
    ck_assert(!ep_columns_take_refusal(&refusal));
    ck_assert_uint_eq(wrong(column), 0);
    ep_column_free(column);
}
END_TEST

START_TEST(a_count_that_is_too_large_is_refused)
{
    ck_assert_ptr_null(ep_column_new(SIZE_MAX / 4, 8));
    ck_assert_ptr_null(ep_column_new_claimed((size_t)1 << 60, 8));
}
END_TEST

START_TEST(parts_follow_each_other)
{
    size_t at = 0, rows = 0;
    while (at < 3 * EP_COLUMN_ROWS + 7) {
        size_t end = ep_column_part(at, 3 * EP_COLUMN_ROWS + 7);
        ck_assert_uint_gt(end, at);
        ck_assert_uint_le(end - at, EP_COLUMN_ROWS);
        rows += end - at;
        at = end;
    }
    ck_assert_uint_eq(rows, 3 * EP_COLUMN_ROWS + 7);
}
END_TEST

EP_TEST_MAIN("columns_in_files", what_was_given_back_is_still_there, the_first_columns_are_memory,
             a_zeroed_column_is_zero, a_child_sees_it_and_may_free_it,
             what_one_process_writes_into_its_own_the_other_does_not_see,
             the_environment_is_read_when_it_is_asked_for, a_folder_that_refuses_is_named_once,
             a_count_that_is_too_large_is_refused, parts_follow_each_other)
