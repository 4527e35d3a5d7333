/* trace.h, columns.h, files/open.h: a program that records itself is asked for each column of each table,
 * as a trace of memory, of its log file and of an archive. */
#include "ep_model.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "columns.h"
#include "made.h"
#include "of_trace.h"
#include "open.h"
#include "tree.h"

/* ---- The program ----------------------------------------------------------------------------- */

enum {
    MAIN = 1,
    READ,
    PARSE,
    FUNCTIONS
};    /* main calls read and, from C, parse */

static uint32_t names[FUNCTIONS], calls[FUNCTIONS], places[FUNCTIONS];
static char log_path[64], archive_path[64];

static void
setup(void)
{
    static const char *const words[FUNCTIONS] = {NULL, "main", "read", "parse"};
    ep_model_setup();
    for (uint32_t i = 1; i < FUNCTIONS; i++) {
        ep_name_text text = {.qualname = {words[i], strlen(words[i])},
                             .module = {"program", 7},
                             .file = {"program.py", 10},
                             .line = (int32_t)i * 10,
                             .kind = i == PARSE ? EP_NAME_C : EP_NAME_PYTHON};
        names[i] = ep_name_of_text(&text);
        ep_site call = {.callee = names[i],
                        .caller = i == MAIN ? 0 : names[MAIN],
                        .offset = 2,
                        .line = i == MAIN ? -1 : 10 + (int32_t)i};
        ep_site place = {.caller = names[i], .offset = 4, .line = (int32_t)i * 10 + 1};
        calls[i] = ep_site_of_names(&call);
        places[i] = ep_site_of_names(&place);
    }
}

static void
put(ep_kind kind, uint32_t id, uint64_t address, int64_t size)
{
    ep_model_event event = {
        .ticks = ep_model_tick(), .address = address, .size = size, .id = id, .kind = (uint8_t)kind};
    ep_model_put(ep_log_mine(), &event);
}

/* 12347 bytes live on; 101 are freed in the call that made them. */
static void
run(void)
{
    ep_thread_set_name(ep_log_mine()->thread, (ep_text){"MainThread", 10});
    put(EP_KIND_CALL, calls[MAIN], 0, -1);
    put(EP_KIND_MALLOC_OBJ, places[MAIN], 0x10000, 12347);
    put(EP_KIND_LINE, places[MAIN], 0, -1);
    put(EP_KIND_CALL, calls[READ], 0, -1);
    put(EP_KIND_MALLOC_RAW, places[READ], 0x20000, 101);
    put(EP_KIND_FREE_RAW, places[READ], 0x20000, -1);
    put(EP_KIND_RETURN, names[READ], 0, -1);
    put(EP_KIND_C_CALL, calls[PARSE], 0, -1);
    put(EP_KIND_C_RETURN, names[PARSE], 0, -1);
    put(EP_KIND_RETURN, names[MAIN], 0, -1);
}

/* Returns: new (forget), of what is in memory; its log is at log_path, an archive at archive_path. */
static ep_trace
record(void)
{
    snprintf(log_path, sizeof log_path, "/tmp/ep_test_trace.%d.log", (int)getpid());
    snprintf(archive_path, sizeof archive_path, "/tmp/ep_test_trace.%d.archive", (int)getpid());
    (void)unlink(log_path);
    ep_file_options file_options = {
        .path = log_path, .child_path = log_path, .metadata = "{}", .metadata_bytes = 2};
    ep_file *file;
    ep_error error = {.text = ""};
    ck_assert_msg(ep_file_create(&file_options, &file, &error) == EP_OK, "%s", error.text);
    ep_recorder_options options = {.kinds = EP_MODEL_ALL_KINDS,
                                   .limit_bytes = 4 * EP_CHUNK_BYTES,
                                   .on_full = EP_ON_FULL_STOP,
                                   .clock = EP_CLOCK_INJECTED};
    ep_recorder recorder;
    ep_recorder_init(&recorder, &options);
    ep_recorder_set_file(&recorder, file);
    ck_assert_msg(ep_recorder_start(&recorder, &error) == EP_OK, "%s", error.text);
    run();
    ep_model_stop(&recorder);

    ep_capture capture;
    ep_trace trace;
    ck_assert_int_eq(ep_capture_take(&recorder, &capture, NULL), EP_OK);
    ep_recorder_clear(&recorder);
    ep_trace_of_capture(&capture, 0, &trace);
    ck_assert_int_eq(ep_trace_reach(&trace, EP_STEP_DECODED, NULL), EP_OK);

    int fd = open(archive_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_eq(ep_archive_write(fd, &trace.recording, &trace.decoded, &error), EP_OK);
    close(fd);
    return trace;
}

static void
forget(ep_trace *trace)
{
    ep_trace_clear(trace);
    (void)unlink(log_path);
    (void)unlink(archive_path);
}

/* ---- Asking ---------------------------------------------------------------------------------- */

static ep_values
get(ep_trace *trace, ep_table table, const char *name)
{
    ep_values values;
    ep_error error = {.text = ""};
    ck_assert_msg(ep_trace_get(trace, ep_column_find(table, name), &values, &error) == EP_OK, "%s: %s",
                  name, error.text);
    return values;
}

/* As `print` would show it: "7 - 8", words of texts. */
static void
show(ep_trace *trace, ep_table table, const char *name, char *out, size_t bytes)
{
    const ep_column *column = ep_column_find(table, name);
    ep_values values = get(trace, table, name);
    size_t at = 0;
    out[0] = '\0';
    for (size_t row = 0; row < values.count && at < bytes; row++) {
        const char *gap = row > 0 ? " " : "";
        if (!ep_value_is_known(trace, column, &values, row)) {
            at += (size_t)snprintf(out + at, bytes - at, "%s-", gap);
        } else if (column->reading <= EP_READ_ADDRESS) {
            at += (size_t)snprintf(out + at, bytes - at, "%s%lld", gap,
                                   (long long)ep_value_int64(column, &values, row));
        } else {
            ep_text text = ep_column_text(column, ep_value_int64(column, &values, row));
            at += (size_t)snprintf(out + at, bytes - at, "%s%.*s", gap, (int)text.bytes, text.at);
        }
    }
    ep_values_clear(&values);
}

#define EXPECT(trace, table, name, text)                                  \
    do {                                                                  \
        char shown_[512];                                                 \
        show(trace, table, name, shown_, sizeof shown_);                  \
        ck_assert_msg(strcmp(shown_, text) == 0, "%s: %s", name, shown_); \
    } while (0)

/* ---- Tests ----------------------------------------------------------------------------------- */

START_TEST(columns_say_what_happened)
{
    setup();
    ep_trace trace = record();

    EXPECT(&trace, EP_TABLE_EVENTS, "event",
           "call malloc line call malloc free return c_call c_return return");
    EXPECT(&trace, EP_TABLE_EVENTS, "name", "main main main read read read read parse parse main");
    EXPECT(&trace, EP_TABLE_EVENTS, "line", "10 11 11 20 21 21 20 30 30 10");
    EXPECT(&trace, EP_TABLE_EVENTS, "size", "- 12347 - - 101 101 - - - -");
    EXPECT(&trace, EP_TABLE_EVENTS, "address", "- 65536 - - 131072 131072 - - - -");
    EXPECT(&trace, EP_TABLE_EVENTS, "domain", "- obj - - raw raw - - - -");
    EXPECT(&trace, EP_TABLE_EVENTS, "depth", "0 1 1 1 2 2 1 1 1 0");
    EXPECT(&trace, EP_TABLE_EVENTS, "caller_line", "- - - 12 - - 12 13 13 -");
    EXPECT(&trace, EP_TABLE_CALLS, "name", "main read parse");
    EXPECT(&trace, EP_TABLE_CALLS, "file", "program.py program.py program.py");
    EXPECT(&trace, EP_TABLE_CALLS, "line", "10 20 30");
    EXPECT(&trace, EP_TABLE_CALLS, "kind", "call call c_call");
    EXPECT(&trace, EP_TABLE_CALLS, "parent", "- 0 0");
    EXPECT(&trace, EP_TABLE_CALLS, "allocated_self", "12347 101 0");
    EXPECT(&trace, EP_TABLE_CALLS, "allocated", "12448 101 0");
    EXPECT(&trace, EP_TABLE_ALLOCATIONS, "size", "12347 101");
    EXPECT(&trace, EP_TABLE_ALLOCATIONS, "name", "main read");
    EXPECT(&trace, EP_TABLE_ALLOCATIONS, "freed_in", "- 1");
    EXPECT(&trace, EP_TABLE_FUNCTIONS, "name", "main read parse");
    EXPECT(&trace, EP_TABLE_FUNCTIONS, "kind", "python python c");
    EXPECT(&trace, EP_TABLE_FUNCTIONS, "calls", "1 1 1");
    EXPECT(&trace, EP_TABLE_FUNCTIONS, "live", "12347 0 0");
    EXPECT(&trace, EP_TABLE_LINES, "name", "main read");
    EXPECT(&trace, EP_TABLE_LINES, "hits", "1 0");
    EXPECT(&trace, EP_TABLE_LINES, "allocated", "12347 101");
    EXPECT(&trace, EP_TABLE_MEMORY, "live", "12347 12448 12347");
    EXPECT(&trace, EP_TABLE_THREADS, "name", "MainThread");
    EXPECT(&trace, EP_TABLE_THREADS, "recorded", "10");

    forget(&trace);
}
END_TEST

START_TEST(a_log_and_an_archive_have_the_columns_that_memory_has)
{
    setup();
    ep_trace trace = record(), of_log, of_archive;
    ep_error error = {.text = ""};
    ck_assert_msg(ep_trace_open(log_path, &of_log, &error) == EP_OK, "%s", error.text);
    ck_assert_msg(ep_trace_open(archive_path, &of_archive, &error) == EP_OK, "%s", error.text);

    for (const ep_column *column = ep_table_columns; column->name != NULL; column++) {
        char memory[1024], log[1024], archive[1024];
        show(&trace, column->table, column->name, memory, sizeof memory);
        show(&of_log, column->table, column->name, log, sizeof log);
        show(&of_archive, column->table, column->name, archive, sizeof archive);

        ck_assert_msg(memory[0] != '\0', "%s", column->name);
        ck_assert_msg(strcmp(memory, log) == 0, "%s: %s, and %s", column->name, memory, log);
        ck_assert_msg(strcmp(memory, archive) == 0, "%s: %s, and %s", column->name, memory, archive);
    }

    ck_assert_uint_eq(ep_trace_log_facts(&of_log)->event_slots, 1);
    ep_trace_clear(&of_log);
    ep_trace_clear(&of_archive);
    forget(&trace);
}
END_TEST

/* Builds the tree of calls. */
static void
fold(ep_trace *trace)
{
    ep_error error = {.text = ""};
    ep_tree tree;
    ep_tree_open(&tree, 0);
    ep_fold *folds[] = {&tree.fold};
    ck_assert_msg(ep_fold_trace(trace, folds, 1, true, "building the tree", &error) == EP_OK, "%s",
                  error.text);
    ck_assert_uint_eq(tree.node_count, 4);    /* with the root */
    ck_assert_uint_eq(tree.live, 12347);
    tree.fold.type->clear(&tree.fold);
}

START_TEST(a_fold_reads_a_file_without_columns_which_may_be_asked_for_later)
{
    setup();
    ep_trace trace = record();
    const char *const paths[] = {log_path, archive_path};

    for (size_t i = 0; i < 2; i++) {
        ep_trace of_file;
        ck_assert_int_eq(ep_trace_open(paths[i], &of_file, NULL), EP_OK);
        size_t metadata_bytes = of_file.recording.metadata_bytes;
        fold(&of_file);
        fold(&of_file);

        ck_assert_int_eq(ep_trace_reach(&of_file, EP_STEP_NAMES, NULL), EP_OK);
        ck_assert(!of_file.has_decoded);
        const ep_decoded *head = ep_trace_head(&of_file);
        ck_assert_uint_eq(ep_decoded_events(head), 10);
        ck_assert_int_eq(head->duration_ns, trace.decoded.duration_ns);
        ck_assert_uint_eq(of_file.functions.count, 3);
        ck_assert_uint_eq(of_file.recording.metadata_bytes, metadata_bytes);
        ck_assert_uint_eq(ep_trace_lost(&of_file), 0);

        for (const ep_column *column = ep_table_columns; column->name != NULL; column++) {
            char memory[1024], file[1024];
            show(&trace, column->table, column->name, memory, sizeof memory);
            show(&of_file, column->table, column->name, file, sizeof file);
            ck_assert_msg(strcmp(memory, file) == 0, "%s: %s, and %s", column->name, memory, file);
        }
        ck_assert(ep_trace_head(&of_file) == &of_file.decoded);
        fold(&of_file);
        ep_trace_clear(&of_file);
    }
    fold(&trace);
    forget(&trace);
}
END_TEST

START_TEST(a_fold_over_a_file_with_a_filter_reads_columns)
{
    setup();
    ep_trace trace = record(), of_log;
    ck_assert_int_eq(ep_trace_open(log_path, &of_log, NULL), EP_OK);
    of_log.filter.limits_depth = true;
    of_log.filter.max_depth = 0;
    ep_tree tree;
    ep_tree_open(&tree, 0);
    ep_fold *folds[] = {&tree.fold};

    ck_assert_int_eq(ep_fold_trace(&of_log, folds, 1, true, "building the tree", NULL), EP_OK);
    ck_assert_uint_eq(tree.node_count, 2);
    ck_assert(of_log.has_decoded);

    tree.fold.type->clear(&tree.fold);
    ep_trace_clear(&of_log);
    forget(&trace);
}
END_TEST

START_TEST(steps_may_be_asked_for_in_any_order)
{
    static const ep_step steps[] = {EP_STEP_CURVE, EP_STEP_LINES, EP_STEP_CALLS, EP_STEP_STACKS,
                                    EP_STEP_CALL_MEMORY_BELOW, EP_STEP_SUMMARY, EP_STEP_DECODED};
    setup();
    ep_trace trace = record();

    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        ck_assert_int_eq(ep_trace_reach(&trace, steps[i], NULL), EP_OK);
        ck_assert_int_eq(ep_trace_reach(&trace, steps[i], NULL), EP_OK);
    }

    EXPECT(&trace, EP_TABLE_CALLS, "allocated_self", "12347 101 0");
    size_t misplaced;
    ck_assert_int_eq(ep_trace_count_misplaced(&trace, &misplaced), EP_OK);
    ck_assert_uint_eq(misplaced, 0);
    ck_assert_uint_eq(ep_trace_lost(&trace), 0);
    forget(&trace);
}
END_TEST

START_TEST(the_filter_of_a_trace_leaves_calls_out)
{
    setup();
    ep_trace trace = record(), of_log;
    ck_assert_int_eq(ep_trace_open(log_path, &of_log, NULL), EP_OK);
    of_log.filter.limits_depth = true;
    of_log.filter.max_depth = 0;

    EXPECT(&of_log, EP_TABLE_CALLS, "name", "main");
    ck_assert_uint_eq(of_log.recording.deep_calls, 2);

    ep_trace_clear(&of_log);
    forget(&trace);
}
END_TEST

START_TEST(what_is_no_trace_is_refused)
{
    ep_trace trace;
    ep_error error = {.text = ""};

    ck_assert_int_eq(ep_trace_open("/tmp/ep_test_trace.no.such.file", &trace, &error), EP_IO);
    ck_assert_int_eq(error.os_error, ENOENT);
    ck_assert_int_eq(ep_trace_open(EP_TEST_DATA "/log/expected.json", &trace, &error), EP_FORMAT);
    ck_assert_int_eq(ep_trace_open("/tmp", &trace, &error), EP_IO);
    ck_assert_int_eq(error.os_error, EISDIR);
}
END_TEST

START_TEST(a_column_that_there_is_not_is_refused)
{
    ep_trace trace = {.has_decoded = true};
    ep_values values = {0};
    ep_error error = {.text = ""};

    ck_assert_int_eq(
        ep_trace_get(&trace, ep_column_find(EP_TABLE_CALLS, "colour"), &values, &error), EP_ARGUMENT);
    ck_assert_str_ne(error.text, "");
}
END_TEST

START_TEST(a_trace_without_events_has_empty_columns)
{
    ck_assert_int_eq(ep_names_init(), EP_OK);
    ep_trace trace = {.has_decoded = true};

    for (const ep_column *column = ep_table_columns; column->name != NULL; column++) {
        ep_values values = get(&trace, column->table, column->name);
        ck_assert_uint_eq(values.count, 0);
        ep_values_clear(&values);
    }

    ep_trace_clear(&trace);
}
END_TEST

START_TEST(rows_of_another_tool_become_a_trace)
{
    setup();
    const int64_t time_ns[] = {0, 5, 7}, size[] = {12347};
    uint8_t kind[] = {EP_KIND_CALL, EP_KIND_MALLOC_OBJ, EP_KIND_RETURN};
    const int32_t thread[] = {0, 0, 0}, ref[] = {0, 1, 0};
    const uint64_t address[] = {0x10000};
    const uint32_t sites[] = {calls[MAIN], places[MAIN]};
    ep_made rows = {
        .count = 3,
        .block_count = 1,
        .time_ns = time_ns,
        .kind = kind,
        .thread = thread,
        .ref = ref,
        .address = address,
        .size = size,
        .names = &names[MAIN],
        .function_count = 1,
        .sites = sites,
        .site_count = 2,
        .duration_ns = 9,
    };
    ep_trace trace = {.has_decoded = true};
    ep_error error = {.text = ""};
    trace.decoded.threads = ep_calloc(1, sizeof *trace.decoded.threads);
    trace.decoded.thread_count = 1;

    ck_assert_int_eq(ep_decoded_make(&rows, &trace.decoded, &error), EP_OK);
    EXPECT(&trace, EP_TABLE_CALLS, "duration", "7");
    EXPECT(&trace, EP_TABLE_FUNCTIONS, "allocated", "12347");
    ep_trace_clear(&trace);

    kind[0] = EP_KIND_SYNC;
    ep_trace wrong = {.has_decoded = true};
    ck_assert_int_eq(ep_decoded_make(&rows, &wrong.decoded, &error), EP_ARGUMENT);
    ck_assert_str_eq(error.text, "there is no such kind");
    ep_trace_clear(&wrong);
}
END_TEST

static size_t reported, ended;

static bool
refuse(ep_work *work, size_t done, size_t total)
{
    (void)done;
    (void)total;
    reported += strcmp(work->what, "pairing calls") == 0;
    return false;
}

static void
end(ep_work *work)
{
    (void)work;
    ended++;
}

START_TEST(a_watcher_may_stop_a_step_which_can_be_asked_for_again)
{
    static const ep_watcher watcher = {.tell = refuse, .end = end};
    setup();
    ep_trace trace = record();
    trace.watcher = &watcher;

    ck_assert_int_eq(ep_trace_reach(&trace, EP_STEP_CALLS, NULL), EP_STATE);

    ck_assert_uint_eq(reported, 1);
    ck_assert_uint_eq(ended, 1);
    trace.watcher = NULL;
    EXPECT(&trace, EP_TABLE_CALLS, "depth", "0 1 1");
    forget(&trace);
}
END_TEST

EP_TEST_MAIN("trace", columns_say_what_happened, a_log_and_an_archive_have_the_columns_that_memory_has,
             a_fold_reads_a_file_without_columns_which_may_be_asked_for_later,
             a_fold_over_a_file_with_a_filter_reads_columns, steps_may_be_asked_for_in_any_order,
             the_filter_of_a_trace_leaves_calls_out, what_is_no_trace_is_refused,
             a_column_that_there_is_not_is_refused, a_trace_without_events_has_empty_columns,
             rows_of_another_tool_become_a_trace,
             a_watcher_may_stop_a_step_which_can_be_asked_for_again)
