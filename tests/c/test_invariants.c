/* The checkers of invariants (base/invariants.h): each finds what a fault would leave behind. A
 * structure is broken in a child, which ends by abort() and says what does not hold. */
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "decode.h"
#include "ep_check.h"
#include "engine_parts.h"
#include "invariants.h"
#include "memory.h"
#include "names.h"

#ifdef EP_CHECKS

/* What the child said before it was aborted; "" if it came through. */
static const char *
said_by(void (*breaks)(void))
{
    static char text[1024];
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        struct rlimit none = {0};
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGABRT, SIG_DFL);
        dup2(ends[1], STDERR_FILENO);
        breaks();
        _exit(0);
    }
    close(ends[1]);
    size_t count = 0;
    ssize_t got;
    while (count < sizeof text - 1 && (got = read(ends[0], text + count, sizeof text - 1 - count)) > 0) {
        count += (size_t)got;
    }
    text[count] = 0;
    close(ends[0]);
    int status = 0;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFSIGNALED(status) == (count > 0), "status %d, said: %s", status, text);
    return text;
}

#define ASSERT_SAYS(breaks, what)                                                           \
    do {                                                                                    \
        const char *message = said_by(breaks);                                              \
        ck_assert_msg(strstr(message, what) != NULL, "'%s' is not in '%s'", what, message); \
    } while (0)

static ep_recorder recorder;

static void
start(void)
{
    const ep_recorder_options options = {
        .kinds = EP_KIND_BIT(EP_KIND_CALL) | EP_KIND_BIT(EP_KIND_RETURN),
        .limit_bytes = 8 * EP_CHUNK_BYTES,
        .clock_any = true,
    };
    ck_assert_int_eq(ep_names_init(), EP_OK);
    ck_assert_int_eq(ep_engine_init(), EP_OK);
    ep_recorder_init(&recorder, &options);
    ck_assert_int_eq(ep_recorder_start(&recorder, NULL), EP_OK);
    ep_log_put(ep_log_mine(), ep_clock_ticks(), EP_KIND_CALL, 0);
}

/* ---- What they let by ------------------------------------------------------------------------ */

static void
break_nothing(void)
{
    start();
    ck_assert_int_eq(ep_recorder_stop(&recorder, NULL), EP_OK);
    ep_recorder_clear(&recorder);
}

START_TEST(a_whole_engine_is_let_by)
{
    ck_assert_str_eq(said_by(break_nothing), "");
}
END_TEST

/* ---- What they find -------------------------------------------------------------------------- */

static void
break_free_count(void)
{
    start();
    ep_engine.chunks_free += 1;
    (void)ep_engine_get_stats();
}

static void
break_order_of_chunks(void)
{
    start();
    ck_assert(ep_kept_add(&recorder, recorder.kept[recorder.kept_first]));
    (void)ep_engine_get_stats();
}

static void
break_charge(void)
{
    start();
    recorder.charged_bytes -= 1;
    (void)ep_engine_get_stats();
}

START_TEST(chunks_that_are_not_counted_are_found)
{
    ASSERT_SAYS(break_free_count, "free chunks");
    ASSERT_SAYS(break_order_of_chunks, "keeps chunk");
    ASSERT_SAYS(break_charge, "counted were");
}
END_TEST

static void
break_end_of_log(void)
{
    start();
    atomic_store(ep_log_mine()->next, 1);
    (void)ep_engine_get_stats();
}

static void
break_threads(void)
{
    start();
    ep_engine.expected_count += 1;
    (void)ep_engine_get_stats();
}

START_TEST(a_log_and_threads_that_are_broken_are_found)
{
    ASSERT_SAYS(break_end_of_log, "does not end in a zero");
    ASSERT_SAYS(break_threads, "threads are expected");
}
END_TEST

static void
break_union_of_kinds(void)
{
    start();
    recorder.options.kinds |= EP_KIND_BIT(EP_KIND_LINE);
    (void)ep_engine_get_stats();
}

static void
break_loss(void)
{
    start();
    ep_recorder_thread(&recorder, 1)->lost[EP_KIND_LINE] = 12347;
    ck_assert_int_eq(ep_recorder_stop(&recorder, NULL), EP_OK);
}

static void
break_open_calls(void)
{
    start();
    const ep_open_call call = {.site_id = 0, .kind = EP_KIND_RETURN};
    ck_assert_int_eq(ep_recorder_set_open(&recorder, 1, &call, 1), EP_OK);
}

START_TEST(a_window_that_is_broken_is_found)
{
    ASSERT_SAYS(break_union_of_kinds, "hooks see other kinds");
    ASSERT_SAYS(break_loss, "lost 12347 events of kind");
    ASSERT_SAYS(break_open_calls, "open call 0 is of kind");
}
END_TEST

static void
break_key(void)
{
    start();
    const ep_name_text text = {.qualname = {"f", 1}, .line = 1};
    uint32_t id = ep_name_add(0x12340, 0, &text, NULL, NULL);
    atomic_store(&atomic_load(&ep_name_index)->keys[id].a, 0x98760);
    ep_names_check();
}

static void
break_site(void)
{
    start();
    const ep_site site = {.callee = 12347};
    ck_assert_uint_ne(ep_site_add(0x12340, 0x45670, &site), 0);
    ep_names_check();
}

START_TEST(names_that_are_not_found_by_their_key_are_found)
{
    ASSERT_SAYS(break_key, "is found as 0");
    ASSERT_SAYS(break_site, "names 12347");
}
END_TEST

static void
break_order_of_rows(void)
{
    int64_t time_ns[] = {5, 4};
    uint8_t kind[] = {EP_KIND_CALL, EP_KIND_CALL};
    int32_t thread[] = {0, 0};
    ep_columns_check(&(ep_columns){.count = 2, .time_ns = time_ns, .kind = kind, .thread = thread}, 1);
}

START_TEST(rows_out_of_order_are_found)
{
    ASSERT_SAYS(break_order_of_rows, "row 1 at 4 ns");
}
END_TEST

EP_TEST_MAIN("invariants", a_whole_engine_is_let_by, chunks_that_are_not_counted_are_found,
             a_log_and_threads_that_are_broken_are_found, a_window_that_is_broken_is_found,
             names_that_are_not_found_by_their_key_are_found, rows_out_of_order_are_found)

#else

START_TEST(a_build_without_checks_has_no_checker)
{
    EP_CHECK_INVARIANTS(abort());    /* is not called */
}
END_TEST

EP_TEST_MAIN("invariants", a_build_without_checks_has_no_checker)

#endif
