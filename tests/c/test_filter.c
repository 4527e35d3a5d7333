/* filter.c: globs, verdicts, and dropping rows with their ends. */
#include "filter_apply.h"

#include <string.h>

#include "ep_check.h"

static ep_text
text(const char *word)
{
    return (ep_text){word, strlen(word)};
}

static bool
matches(const char *pattern, const char *word)
{
    return ep_glob_match(pattern, text(word));
}

START_TEST(globs_match_as_in_a_shell)
{
    static const struct {
        const char *pattern, *text;
        bool matches;
    } cases[] = {
        {"", "", true},
        {"", "a", false},
        {"*", "", true},
        {"*", "a/b.c", true},
        {"a*c", "abbbc", true},
        {"a*c", "abbb", false},
        {"a?c", "abc", true},
        {"a?c", "ac", false},
        {"*.py", "x/y.py", true},
        {"*.py", "x/y.pyc", false},
        {"[abc]x", "bx", true},
        {"[!abc]x", "bx", false},
        {"[!abc]x", "dx", true},
        {"[a-c]x", "bx", true},
        {"[a-c]x", "dx", false},
        {"[]]", "]", true},
        {"[x", "[x", true},
        {"[x", "x", false},
        {"[a-]", "-", true},
        {"**a**", "bab", true},
        {"*a*b*c*", "xaybzc", true},
        {"*a*b*c*", "xcybza", false},
        {"pkg.*", "pkg.mod", true},
        {"pkg.*", "pkgmod", false},
        {"?", "\xC3", true},
        {"?", "\xC3\xA9", true},
        {"caf?.x", "caf\xC3\xA9.x", true},
        {"??", "\xC3\xA9", false},
        {"*\xA9", "\xC3\xA9", false},
        {"[\xC3\xA0-\xC3\xBF]", "\xC3\xA9", true},
        {"[a\xC3\xA9]", "\xC3\xA9", true},
        {"[a\xC3\xA9]", "\xC3\xA8", false},
        {"[!\xC3\xA9]", "\xC3", true},
        {"a*", "a", true},
        {"*ab", "aab", true},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_msg(matches(cases[i].pattern, cases[i].text) == cases[i].matches,
                      "'%s' on '%s'", cases[i].pattern, cases[i].text);
    }
}
END_TEST

/* The definition, by recursion: exponential, for short texts only. Without sets. */
static bool
model(const char *pattern, const char *word)
{
    if (*pattern == 0)
        return *word == 0;
    if (*pattern == '*')
        return model(pattern + 1, word) || (*word != 0 && model(pattern, word + 1));
    return *word != 0 && (*pattern == '?' || *pattern == *word) && model(pattern + 1, word + 1);
}

START_TEST(random_globs_agree_with_their_definition)
{
    unsigned seed = 12347;

    for (int round = 0; round < 200000; round++) {
        char pattern[9] = "", word[9] = "";
        for (int i = rand_r(&seed) % 8; i-- > 0;) strncat(pattern, &"ab*?"[rand_r(&seed) % 4], 1);
        for (int i = rand_r(&seed) % 8; i-- > 0;) strncat(word, &"ab"[rand_r(&seed) % 2], 1);
        ck_assert_msg(matches(pattern, word) == model(pattern, word), "'%s' on '%s'", pattern, word);
    }
}
END_TEST

START_TEST(many_stars_take_no_exponential_time)
{
    char pattern[401] = "", word[4001];
    for (int i = 0; i < 200; i++) strcat(pattern, "*a");
    memset(word, 'a', sizeof word - 1);
    word[sizeof word - 1] = 0;
    word[sizeof word - 2] = 'b';

    ck_assert(!matches(pattern, word));
}
END_TEST

static uint32_t
name(uintptr_t key, const char *module, const char *qualname, const char *file, ep_name_kind kind)
{
    ep_name_text described = {.qualname = text(qualname),
                              .module = text(module),
                              .file = file ? text(file) : (ep_text){NULL, 0},
                              .line = 3,
                              .kind = kind};
    return ep_name_add(key, 0, &described, NULL, NULL);
}

START_TEST(a_name_is_wanted_by_module_file_or_qualified_name)
{
    ck_assert_int_eq(ep_names_init(), EP_OK);
    uint32_t f = name(0x1000, "pkg.mod", "K.f", "/src/pkg/mod.py", EP_NAME_PYTHON);
    static const char *const hits[] = {"pkg.*", "K.f", "*/pkg/*", "pkg.mod.K.*", "*"};
    static const char *const misses[] = {"pkg", "f", "mod.py", "other.*"};

    for (size_t i = 0; i < sizeof hits / sizeof *hits; i++) {
        ep_filter filter = {0};
        ck_assert_int_eq(ep_filter_add(&filter, true, hits[i]), EP_OK);
        ck_assert_msg(ep_filter_wants(&filter, f, 0), "include %s", hits[i]);
        ck_assert_int_eq(ep_filter_add(&filter, false, hits[i]), EP_OK);
        ck_assert_msg(!ep_filter_wants(&filter, f, 0), "exclude %s", hits[i]);
        ep_filter_clear(&filter);
    }
    for (size_t i = 0; i < sizeof misses / sizeof *misses; i++) {
        ep_filter filter = {0};
        ck_assert_int_eq(ep_filter_add(&filter, true, misses[i]), EP_OK);
        ck_assert_msg(!ep_filter_wants(&filter, f, 0), "include %s", misses[i]);
        ep_filter_clear(&filter);
    }
}
END_TEST

START_TEST(module_and_name_may_be_of_any_length)
{
    ck_assert_int_eq(ep_names_init(), EP_OK);
    char module[3001] = "", long_name[3001] = "";
    memset(module, 'm', sizeof module - 1);
    memset(long_name, 'n', sizeof long_name - 1);
    ep_name_text function = {.qualname = text(long_name), .module = text(module)};
    ep_filter filter = {0};

    ck_assert_int_eq(ep_filter_add(&filter, true, "m*m.n*n"), EP_OK);

    ck_assert(ep_filter_includes_text(&filter, &function));
    function.qualname = text("N");
    ck_assert(!ep_filter_includes_text(&filter, &function));
    ep_filter_clear(&filter);
}
END_TEST

START_TEST(a_c_function_goes_with_its_caller)
{
    ck_assert_int_eq(ep_names_init(), EP_OK);
    uint32_t f = name(0x2000, "mine", "f", "/m.py", EP_NAME_PYTHON);
    uint32_t g = name(0x3000, "theirs", "g", "/t.py", EP_NAME_PYTHON);
    uint32_t len = name(0x4000, "builtins", "len", NULL, EP_NAME_C);
    ep_filter filter = {0};
    ck_assert_int_eq(ep_filter_add(&filter, true, "mine"), EP_OK);

    ck_assert(ep_filter_wants(&filter, len, f));
    ck_assert(!ep_filter_wants(&filter, len, g));
    ck_assert(!ep_filter_wants(&filter, len, 0));

    ck_assert_int_eq(ep_filter_add(&filter, false, "builtins.len"), EP_OK);
    ck_assert(!ep_filter_wants(&filter, len, f));
    ep_filter_clear(&filter);
}
END_TEST

#define ROWS 9

/* f calls g, g calls len, a block is made in g; g's end and f's. Then an end of g without a
 * call. */
START_TEST(dropped_calls_take_their_ends_with_them)
{
    ck_assert_int_eq(ep_names_init(), EP_OK);
    uint32_t f = name(0x5000, "mine", "f2", "/m.py", EP_NAME_PYTHON);
    uint32_t g = name(0x6000, "theirs", "g2", "/t.py", EP_NAME_PYTHON);
    uint32_t len = name(0x7000, "builtins", "len2", NULL, EP_NAME_C);
    uint32_t in_f = ep_site_add(0x5000, 1, &(ep_site){.callee = f});
    uint32_t in_g = ep_site_add(0x6000, 2, &(ep_site){.callee = g, .caller = f});
    uint32_t in_len = ep_site_add(0x7000, 3, &(ep_site){.callee = len, .caller = g});
    int64_t time_ns[ROWS] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    uint8_t kind[ROWS] = {EP_KIND_CALL, EP_KIND_CALL, EP_KIND_C_CALL,
                          EP_KIND_C_RETURN, EP_KIND_MALLOC_OBJ, EP_KIND_RETURN,
                          EP_KIND_RETURN, EP_KIND_RETURN, EP_KIND_FREE_OBJ};
    uint32_t id[ROWS] = {in_f, in_g, in_len, len, 0, g, f, g, 0};
    int32_t thread[ROWS] = {0};
    uint64_t alloc_row[2] = {4, 8}, address[2] = {64, 64};
    int64_t size[2] = {10, -1};
    ep_trace_thread row = {.recorded = {0}};
    for (int i = 0; i < ROWS; i++) row.recorded[kind[i]] += 1;
    ep_decoded decoded = {.columns = {.count = ROWS,
                                      .time_ns = time_ns,
                                      .kind = kind,
                                      .thread = thread,
                                      .id = id,
                                      .alloc_count = 2,
                                      .alloc_row = alloc_row,
                                      .address = address,
                                      .size = size},
                          .threads = &row,
                          .thread_count = 1};
    ep_filter filter = {0};
    ck_assert_int_eq(ep_filter_add(&filter, false, "theirs"), EP_OK);
    ep_filtered dropped = {0};

    ck_assert_int_eq(ep_filter_apply(&filter, &decoded, &dropped), EP_OK);

    ck_assert_uint_eq(dropped.rows, 5);
    ck_assert_uint_eq(dropped.deep_calls + dropped.short_calls, 0);
    ck_assert_uint_eq(decoded.columns.count, 4);
    ck_assert_uint_eq(kind[0], EP_KIND_CALL);
    ck_assert_uint_eq(kind[1], EP_KIND_MALLOC_OBJ);
    ck_assert_uint_eq(kind[2], EP_KIND_RETURN);
    ck_assert_uint_eq(kind[3], EP_KIND_FREE_OBJ);
    ck_assert_uint_eq(id[2], f);
    ck_assert_uint_eq(alloc_row[0], 1);
    ck_assert_uint_eq(alloc_row[1], 3);
    ck_assert_uint_eq(row.recorded[EP_KIND_CALL], 1);
    ck_assert_uint_eq(row.recorded[EP_KIND_RETURN], 1);
    ck_assert_uint_eq(row.recorded[EP_KIND_C_CALL], 0);
    ep_filter_clear(&filter);
}
END_TEST

/* f [1, 9] calls g [2, 8], which calls f [3, 5] and len [6, 7]; h was open before, its end is last. */
static void
apply_limits(const ep_filter *filter, const char *expected, uint64_t deep, uint64_t brief)
{
    ck_assert_int_eq(ep_names_init(), EP_OK);
    uint32_t names[4], sites[4];
    for (uintptr_t i = 0; i < 4; i++) {
        char qualname[2] = {"fglh"[i], 0};
        names[i] = name(0x9000 + 16 * i, "limits", qualname, "/l.py", EP_NAME_PYTHON);
        sites[i] = ep_site_add(0x9000 + 16 * i, 1, &(ep_site){.callee = names[i]});
    }
    int64_t time_ns[] = {1, 2, 3, 5, 6, 7, 8, 9, 10};
    uint8_t kind[] = {EP_KIND_CALL, EP_KIND_CALL, EP_KIND_CALL, EP_KIND_RETURN, EP_KIND_C_CALL,
                      EP_KIND_C_RETURN, EP_KIND_RETURN, EP_KIND_UNWIND, EP_KIND_RETURN};
    uint32_t id[] = {sites[0], sites[1], sites[0], names[0], sites[2],
                     names[2], names[1], names[0], names[3]};
    int32_t thread[9] = {0};
    ep_open_call open = {.site_id = sites[3], .kind = EP_KIND_CALL, .before = true};
    ep_trace_thread row = {.open = {.depth = 1, .capacity = 1, .calls = &open}};
    for (int i = 0; i < 9; i++) row.recorded[kind[i]] += 1;
    ep_decoded decoded = {
        .columns = {.count = 9, .time_ns = time_ns, .kind = kind, .thread = thread, .id = id},
        .threads = &row,
        .thread_count = 1};
    ep_filtered dropped = {0};

    ck_assert_int_eq(ep_filter_apply(filter, &decoded, &dropped), EP_OK);

    char found[10] = "";
    for (size_t i = 0; i < decoded.columns.count; i++) {
        bool closes = ep_kinds[kind[i]].pairing == EP_PAIRING_CLOSES;
        uint32_t name = closes ? id[i] : ep_site_callee(id[i]);
        ep_text qualname = ep_string_get(ep_name_get(name)->qualname);
        found[i] = closes ? (char)(qualname.at[0] - 'a' + 'A') : qualname.at[0];
    }
    ck_assert_str_eq(found, expected);
    ck_assert_uint_eq(dropped.deep_calls, deep);
    ck_assert_uint_eq(dropped.short_calls, brief);
    ck_assert_uint_eq(dropped.rows, 0);
    ck_assert_uint_eq(row.open.depth, 1);
}

START_TEST(deep_calls_go_counted_from_what_was_open)
{
    apply_limits(&(ep_filter){.limits_depth = true, .max_depth = 0}, "fFH", 3, 0);
    apply_limits(&(ep_filter){.limits_depth = true, .max_depth = 1}, "fgGFH", 2, 0);
    apply_limits(&(ep_filter){.limits_depth = true, .max_depth = 2}, "fgfFlLGFH", 0, 0);
}
END_TEST

START_TEST(short_calls_go_and_what_has_no_start_stays)
{
    apply_limits(&(ep_filter){.min_duration_ns = 1}, "fgfFlLGFH", 0, 0);
    apply_limits(&(ep_filter){.min_duration_ns = 2}, "fgfFGFH", 0, 1);
    apply_limits(&(ep_filter){.min_duration_ns = 3}, "fgGFH", 0, 2);
    apply_limits(&(ep_filter){.min_duration_ns = 100}, "H", 0, 4);
}
END_TEST

START_TEST(areas_are_folders_and_modules)
{
    ck_assert_int_eq(ep_names_init(), EP_OK);
    ck_assert_int_eq(ep_area_add_folder(EP_AREA_STDLIB, text("/lib/py")), EP_OK);
    ck_assert_int_eq(ep_area_add_folder(EP_AREA_INSTALLED, text("/lib/py/extra")), EP_OK);
    ck_assert_int_eq(ep_area_add_module(EP_AREA_STDLIB, text("builtins")), EP_OK);
    static const struct {
        const char *module, *file;
        ep_area area, place;
    } cases[] = {
        {"json", "/lib/py/json/x.py", EP_AREA_STDLIB, EP_AREA_STDLIB},
        {"np", "/lib/py/extra/np/x.py", EP_AREA_INSTALLED, EP_AREA_INSTALLED},
        {"np", "/else/site-packages/np/x.py", EP_AREA_INSTALLED, EP_AREA_INSTALLED},
        {"json", "/else/lib64/python3.13t/x.py", EP_AREA_STDLIB, EP_AREA_STDLIB},
        {"mine", "/else/lib/python3/x.py", EP_AREA_OWN, EP_AREA_OTHER},
        {"mine", "/else/lib/python/x.py", EP_AREA_OWN, EP_AREA_OTHER},
        {"mine", "/lib/python/x.py", EP_AREA_OWN, EP_AREA_OTHER},
        {"mine", "<string>", EP_AREA_OTHER, EP_AREA_OTHER},
        {"__main__", "<string>", EP_AREA_OWN, EP_AREA_OTHER},
        {"__main__", "<string>s", EP_AREA_OTHER, EP_AREA_OTHER},
        {"__main__", "<python-input-0>", EP_AREA_OWN, EP_AREA_OTHER},
        {"__main__", "eventprof", EP_AREA_OWN, EP_AREA_OTHER},
        {"__main__", "/no/such/folder/eventprof", EP_AREA_OTHER, EP_AREA_OTHER},
        {"eventprof", "/home/x.py", EP_AREA_OTHER, EP_AREA_OTHER},
        {"eventprof.a", "/home/x.py", EP_AREA_OTHER, EP_AREA_OTHER},
        {"eventprofs", "/home/x.py", EP_AREA_OWN, EP_AREA_OTHER},
        {"builtins", "/home/x.py", EP_AREA_OWN, EP_AREA_OTHER},
        {"builtins", NULL, EP_AREA_NATIVE, EP_AREA_STDLIB},
        {"builtins.x", NULL, EP_AREA_NATIVE, EP_AREA_STDLIB},
        {"builtinsx", NULL, EP_AREA_NATIVE, EP_AREA_OTHER},
        {"importlib._bootstrap", "<frozen importlib._bootstrap>", EP_AREA_STDLIB, EP_AREA_STDLIB},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ep_name_text function = {.qualname = text("f"),
                                 .module = text(cases[i].module),
                                 .kind = cases[i].file != NULL ? EP_NAME_PYTHON : EP_NAME_C};
        function.file = cases[i].file != NULL ? text(cases[i].file) : (ep_text){NULL, 0};
        ck_assert_msg(ep_area_of(&function) == cases[i].area, "case %zu", i);
        ck_assert_msg(ep_area_of_place(function.module, function.file) == cases[i].place, "case %zu", i);
        uint32_t id = ep_name_of_text(&function);
        ep_filter filter = {0};
        ck_assert_int_eq(ep_filter_add(&filter, false, "stdlib"), EP_OK);
        ck_assert_int_eq(ep_filter_wants(&filter, id, 0), cases[i].place != EP_AREA_STDLIB);
        ep_filter_clear(&filter);
    }
}
END_TEST

EP_TEST_MAIN("filter", globs_match_as_in_a_shell, random_globs_agree_with_their_definition,
             many_stars_take_no_exponential_time,
             a_name_is_wanted_by_module_file_or_qualified_name, module_and_name_may_be_of_any_length,
             a_c_function_goes_with_its_caller,
             dropped_calls_take_their_ends_with_them, deep_calls_go_counted_from_what_was_open,
             short_calls_go_and_what_has_no_start_stays, areas_are_folders_and_modules)
