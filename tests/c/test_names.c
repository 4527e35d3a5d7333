/* names.h: interned names, sites and strings. */
#include "ep_model.h"

#include <stdio.h>

/* Keys of a test are its own: the tables live as long as the process. */
static uintptr_t
fresh_keys(size_t count)
{
    static uintptr_t next = 0x10000;
    uintptr_t first = next;
    next += (count + 1) * 16;
    return first;
}

static ep_text
text(const char *at)
{
    return (ep_text){at, at != NULL ? strlen(at) : 0};
}

static ep_name_text
name_text(const char *qualname)
{
    return (ep_name_text){.qualname = text(qualname),
                          .module = text("some.module"),
                          .file = text("/some/file.py"),
                          .line = 12347,
                          .kind = EP_NAME_PYTHON};
}

static bool
string_is(uint32_t id, const char *at, size_t bytes)
{
    ep_text string = ep_string_get(id);
    return string.at != NULL && string.bytes == bytes && memcmp(string.at, at, bytes) == 0;
}

static uint32_t
add(uintptr_t key, const char *qualname)
{
    ep_name_text named = name_text(qualname);
    return ep_name_add(key, 0, &named, NULL, NULL);
}

static void
setup(void)
{
    ck_assert_int_eq(ep_names_init(), EP_OK);
}

/* ---- Start ----------------------------------------------------------------------------------- */

#ifdef EP_FAULT_POINTS
/* First in this program: nothing is set up yet. */
START_TEST(init_without_memory_can_be_tried_again)
{
    for (int nth = 0;; nth++) {
        atomic_store(&ep_fault_countdown, nth);
        ep_status status = ep_names_init();
        bool reached = atomic_load(&ep_fault_countdown) < 0;
        atomic_store(&ep_fault_countdown, -1);
        ck_assert_int_eq(status, reached ? EP_NOMEM : EP_OK);
        if (!reached) {
            break;
        }
    }

    ck_assert_uint_eq(ep_name_count(), 1);
    ck_assert_uint_eq(ep_site_count(), 1);
}
END_TEST
#endif

START_TEST(id_zero_is_an_entry_of_unknowns)
{
    setup();

    const ep_name *name = ep_name_get(0);
    const ep_site *site = ep_site_get(0);

    ck_assert_uint_eq(name->qualname, EP_STRING_NONE);
    ck_assert_uint_eq(name->module, EP_STRING_NONE);
    ck_assert_uint_eq(name->file, EP_STRING_NONE);
    ck_assert_int_eq(name->line, -1);
    ck_assert_uint_eq(site->callee, 0);
    ck_assert_uint_eq(site->caller, 0);
    ck_assert_int_eq(site->line, -1);
}
END_TEST

/* ---- Names ----------------------------------------------------------------------------------- */

START_TEST(a_name_is_found_by_its_key)
{
    setup();
    uintptr_t key = fresh_keys(1);
    ck_assert_uint_eq(ep_name_find(key, 0), 0);

    uint32_t id = add(key, "f");

    ck_assert_uint_ne(id, 0);
    ck_assert_uint_eq(ep_name_find(key, 0), id);
    ck_assert_uint_eq(ep_name_find(key, 1), 0);
    ck_assert_uint_eq(ep_name_find(key + 16, 0), 0);
    ck_assert_uint_eq(ep_name_count(), id + 1);
}
END_TEST

START_TEST(the_same_key_gives_the_same_id_and_keeps_the_first_object)
{
    setup();
    uintptr_t key = fresh_keys(1);
    int first, second;
    bool existed = true;
    ep_name_text named = name_text("f");
    uint32_t id = ep_name_add(key, 3, &named, &first, &existed);
    ck_assert(!existed);

    uint32_t again = ep_name_add(key, 3, &named, &second, &existed);

    ck_assert(existed);
    ck_assert_uint_eq(again, id);
    ck_assert_ptr_eq(ep_name_get(id)->object, &first);
}
END_TEST

START_TEST(a_name_keeps_what_it_was_given)
{
    setup();
    char qualname[] = "Class.method";
    ep_name_text named = name_text(qualname);
    named.kind = EP_NAME_TYPE;

    uint32_t id = ep_name_add(fresh_keys(1), 0, &named, NULL, NULL);
    memset(qualname, 'x', sizeof qualname);    /* it is a copy */

    const ep_name *name = ep_name_get(id);
    ck_assert(string_is(name->qualname, "Class.method", 12));
    ck_assert(string_is(name->module, "some.module", 11));
    ck_assert(string_is(name->file, "/some/file.py", 13));
    ck_assert_int_eq(name->line, 12347);
    ck_assert_uint_eq(name->kind, EP_NAME_TYPE);
    ck_assert(!name->pending);
}
END_TEST

START_TEST(a_pending_name_is_described_once)
{
    setup();
    uint32_t id = ep_name_add(fresh_keys(1), 0, NULL, NULL, NULL);
    ck_assert(ep_name_get(id)->pending);
    ck_assert_uint_eq(ep_name_get(id)->qualname, EP_STRING_NONE);
    ep_name_text first = name_text("first"), second = name_text("second");

    ep_name_describe(id, &first);
    ep_name_describe(id, &second);

    ck_assert(!ep_name_get(id)->pending);
    ck_assert(string_is(ep_name_get(id)->qualname, "first", 5));
}
END_TEST

START_TEST(a_retired_key_is_not_found_and_its_text_stays)
{
    setup();
    uintptr_t key = fresh_keys(1);
    int object;
    ep_name_text named = name_text("mortal");
    uint32_t id = ep_name_add(key, 0, &named, &object, NULL);

    ep_name_retire(id);
    ck_assert_ptr_eq(ep_name_take_object(id), &object);

    ck_assert_uint_eq(ep_name_find(key, 0), 0);
    ck_assert(string_is(ep_name_get(id)->qualname, "mortal", 6));
    ck_assert_ptr_null(ep_name_take_object(id));
}
END_TEST

START_TEST(an_address_that_is_used_again_gets_a_name_of_its_own)
{
    setup();
    uintptr_t key = fresh_keys(1);
    uint32_t ids[50];

    for (int i = 0; i < 50; i++) {
        char qualname[16];
        snprintf(qualname, sizeof qualname, "type%d", i);
        ids[i] = add(key, qualname);
        ck_assert_uint_eq(ep_name_find(key, 0), ids[i]);
        if (i < 49) {
            ep_name_retire(ids[i]);
        }
    }

    for (int i = 0; i < 50; i++) {
        char qualname[16];
        int bytes = snprintf(qualname, sizeof qualname, "type%d", i);
        ck_assert(string_is(ep_name_get(ids[i])->qualname, qualname, (size_t)bytes));
    }
    ck_assert_uint_eq(ep_name_find(key, 0), ids[49]);
}
END_TEST

START_TEST(a_retired_key_does_not_come_back_when_the_table_grows)
{
    setup();
    const size_t count = 5000;
    uintptr_t key = fresh_keys(1), others = fresh_keys(count);
    ep_name_retire(add(key, "mortal"));

    for (size_t i = 0; i < count; i++) {
        (void)add(others + 16 * i, "other");
    }

    ck_assert_uint_eq(ep_name_find(key, 0), 0);
    ck_assert_uint_ne(ep_name_find(others, 0), 0);
}
END_TEST

/* ---- Sites ----------------------------------------------------------------------------------- */

START_TEST(a_site_is_found_by_callee_and_instruction)
{
    setup();
    uintptr_t callee = fresh_keys(1), code = fresh_keys(100);
    ep_site site = {.callee = 1, .caller = 2, .offset = 34, .line = EP_LINE_PENDING};

    uint32_t id = ep_site_add(callee, code + 34, &site);

    ck_assert_uint_ne(id, 0);
    ck_assert_uint_eq(ep_site_find(callee, code + 34), id);
    ck_assert_uint_eq(ep_site_find(callee, code + 36), 0);
    ck_assert_uint_eq(ep_site_find(0, code + 34), 0);
    ck_assert_uint_eq(ep_site_add(callee, code + 34, &site), id);
    ck_assert_uint_eq(ep_site_callee(id), 1);
    ck_assert_uint_eq(ep_site_get(id)->caller, 2);
    ck_assert_int_eq(ep_site_get(id)->offset, 34);
    ck_assert_int_eq(ep_site_get(id)->line, EP_LINE_PENDING);
}
END_TEST

START_TEST(a_line_is_set_once_it_is_known)
{
    setup();
    uintptr_t keys = fresh_keys(2);
    ep_site site = {.line = EP_LINE_PENDING};
    uint32_t id = ep_site_add(keys, keys + 16, &site);

    ep_site_set_line(id, 12347);

    ck_assert_int_eq(ep_site_get(id)->line, 12347);
}
END_TEST

START_TEST(all_of_many_sites_are_found)
{
    setup();
    const size_t count = ep_model_work(200000);
    uintptr_t callees = fresh_keys(1000), code = fresh_keys(count);
    uint32_t *ids = ep_calloc(count, sizeof *ids);
    for (size_t i = 0; i < count; i++) {
        ep_site site = {.offset = (int32_t)i};
        ids[i] = ep_site_add(callees + 16 * (i % 1000), code + 2 * i, &site);
    }

    for (size_t i = 0; i < count; i++) {
        if (ids[i] == 0 || ep_site_find(callees + 16 * (i % 1000), code + 2 * i) != ids[i] ||
            ep_site_get(ids[i])->offset != (int32_t)i) {
            ck_abort_msg("site %zu is not found", i);
        }
    }
    free(ids);
}
END_TEST

/* Growth under readers: what was published before a look is found by it. */
typedef struct growth {
    uintptr_t keys;
    _Atomic size_t published;
    _Atomic bool done, failed;
} growth;

static void *
look_up_published(void *argument)
{
    growth *g = argument;
    uint64_t random = (uint64_t)(uintptr_t)&random;
    while (!atomic_load_explicit(&g->done, memory_order_relaxed)) {
        size_t count = atomic_load_explicit(&g->published, memory_order_acquire);
        for (int i = 0; i < 100 && count > 0; i++) {
            uintptr_t key = g->keys + 16 * ep_model_below(&random, count);
            uint32_t id = ep_name_find(key, 0);
            if (id == 0 || ep_name_get(id)->line != (int32_t)(key & 0xFFFFFF)) {
                atomic_store(&g->failed, true);
            }
            (void)ep_name_find(g->keys + 16 * (count + 50), 0);
        }
    }
    return NULL;
}

/* More keys than there are places, so that each place is taken from one key by another. */
START_TEST(what_was_found_last_is_what_the_tables_say)
{
    enum {
        COUNT = 2 * EP_RECENT_NAMES + 12347
    };
    static ep_recent recent;
    setup();
    uintptr_t keys = fresh_keys(COUNT), code = fresh_keys(COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        ep_site site = {.callee = 1, .offset = (int32_t)i};
        ck_assert_uint_ne(add(keys + 16 * i, "found last"), 0);
        ck_assert_uint_ne(ep_site_add(keys + 16 * i, code + 2 * i, &site), 0);
        ck_assert_uint_ne(ep_site_add(0, code + 2 * i, &site), 0);
    }

    /* By the table and at once, over and over, and each once more after its place was taken. */
    for (size_t n = 0; n < 3 * COUNT; n++) {
        size_t i = n % COUNT;
        uintptr_t key = keys + 16 * i, at = code + 2 * i;
        uint32_t name = ep_name_find(key, 0), call = ep_site_find(key, at), block = ep_site_find(0, at);
        uint32_t name_now = ep_name_recent(&recent, key);
        uint32_t call_now = ep_call_site_recent(&recent, key, at);
        uint32_t block_now = ep_block_site_recent(&recent, at);
        if ((name_now != 0 && name_now != name) || (call_now != 0 && call_now != call) ||
            (block_now != 0 && block_now != block)) {
            ck_abort_msg("key %zu is given another's id", i);
        }
        if (ep_name_find_recent(&recent, key) != name || ep_name_recent(&recent, key) != name ||
            ep_call_site_find_recent(&recent, key, at) != call ||
            ep_call_site_recent(&recent, key, at) != call ||
            ep_block_site_find_recent(&recent, at) != block ||
            ep_block_site_recent(&recent, at) != block) {
            ck_abort_msg("key %zu is not found right after it was", i);
        }
    }
}
END_TEST

START_TEST(a_call_from_elsewhere_is_not_what_was_found_last)
{
    static ep_recent recent;
    setup();
    uintptr_t keys = fresh_keys(2), code = fresh_keys(4 * EP_RECENT_CALLS);
    ep_site site = {.callee = 1};
    uint32_t id = ep_site_add(keys, code, &site);

    ck_assert_uint_eq(ep_call_site_find_recent(&recent, keys, code), id);

    /* The same place: another callee, and another instruction. */
    ck_assert_uint_eq(ep_call_site_recent(&recent, keys + 16, code - 2), 0);
    ck_assert_uint_eq(ep_call_site_recent(&recent, keys, code + 2 * EP_RECENT_CALLS), 0);
    ck_assert_uint_eq(ep_call_site_recent(&recent, keys, code), id);
}
END_TEST

START_TEST(what_is_in_no_table_is_not_remembered)
{
    static ep_recent recent;
    setup();
    uintptr_t keys = fresh_keys(1);

    ck_assert_uint_eq(ep_name_find_recent(&recent, keys), 0);
    ck_assert_uint_eq(ep_name_recent(&recent, keys), 0);
    uint32_t id = add(keys, "came later");

    ck_assert_uint_eq(ep_name_find_recent(&recent, keys), id);
    ck_assert_uint_eq(ep_name_recent(&recent, keys), id);
}
END_TEST

START_TEST(readers_find_everything_while_the_table_grows)
{
    setup();
    const size_t count = ep_model_work(100000);
    growth g = {.keys = fresh_keys(count + 100)};
    pthread_t readers[3];
    for (int i = 0; i < 3; i++) {
        readers[i] = ep_model_spawn(look_up_published, &g);
    }

    for (size_t i = 0; i < count; i++) {
        ep_name_text named = name_text("f");
        named.line = (int32_t)((g.keys + 16 * i) & 0xFFFFFF);
        (void)ep_name_add(g.keys + 16 * i, 0, &named, NULL, NULL);
        atomic_store_explicit(&g.published, i + 1, memory_order_release);
    }
    atomic_store(&g.done, true);

    for (int i = 0; i < 3; i++) {
        ep_model_join(readers[i]);
    }
    ck_assert(!atomic_load(&g.failed));
}
END_TEST

/* Several threads that see the same functions first agree on their ids. */
static void *
add_all(void *argument)
{
    growth *g = argument;
    uint32_t *ids = ep_calloc(3000, sizeof *ids);
    for (size_t i = 0; i < 3000; i++) {
        ids[i] = add(g->keys + 16 * i, "shared");
    }
    return ids;
}

START_TEST(threads_that_add_the_same_keys_agree)
{
    setup();
    growth g = {.keys = fresh_keys(3000)};
    size_t before = ep_name_count();
    pthread_t threads[4];
    void *ids[4];
    for (int i = 0; i < 4; i++) {
        threads[i] = ep_model_spawn(add_all, &g);
    }
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(pthread_join(threads[i], &ids[i]), 0);
    }

    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(memcmp(ids[i], ids[0], 3000 * sizeof(uint32_t)), 0);
    }

    ck_assert_uint_eq(ep_name_count() - before, 3000);
    for (int i = 0; i < 4; i++) {
        free(ids[i]);
    }
}
END_TEST

/* ---- Strings --------------------------------------------------------------------------------- */

START_TEST(equal_strings_are_kept_once)
{
    setup();
    uintptr_t keys = fresh_keys(2);
    uint32_t first = add(keys, "twice");
    size_t count = ep_string_count();

    uint32_t second = add(keys + 16, "twice");

    ck_assert_uint_ne(first, second);
    ck_assert_uint_eq(ep_name_get(first)->qualname, ep_name_get(second)->qualname);
    ck_assert_uint_eq(ep_string_count(), count);
}
END_TEST

START_TEST(an_empty_string_is_not_an_unknown_one)
{
    setup();
    uintptr_t keys = fresh_keys(1);
    ep_name_text named = {.qualname = {"", 0}, .module = {NULL, 0}, .line = -1};

    const ep_name *name = ep_name_get(ep_name_add(keys, 0, &named, NULL, NULL));

    ck_assert(string_is(name->qualname, "", 0));
    ck_assert_uint_eq(name->module, EP_STRING_NONE);
    ck_assert_ptr_null(ep_string_get(EP_STRING_NONE).at);
    ck_assert_ptr_null(ep_string_get((uint32_t)ep_string_count()).at);
}
END_TEST

START_TEST(any_bytes_are_kept)
{
    setup();
    static const struct {
        const char *at;
        size_t bytes;
    } cases[] = {
        {"a\0b", 3},
        {"a\0c", 3},
        {"a", 1},
        {"\0", 1},
        {"\xED\xA0\x80\xED\xBF\xBF", 6},    /* two lone surrogates */
        {"\xF0\x9F\x90\x8D.\xC3\xA9", 7},
        {"\xFF\xFE", 2},                      /* no UTF-8 at all */
    };
    uintptr_t keys = fresh_keys(7);
    uint32_t ids[7];

    for (size_t i = 0; i < 7; i++) {
        ep_name_text named = {.qualname = {cases[i].at, cases[i].bytes}, .line = -1};
        ids[i] = ep_name_add(keys + 16 * i, 0, &named, NULL, NULL);
    }

    for (size_t i = 0; i < 7; i++) {
        ck_assert(string_is(ep_name_get(ids[i])->qualname, cases[i].at, cases[i].bytes));
    }
}
END_TEST

START_TEST(strings_of_every_length_are_kept)
{
    setup();
    /* Around the sizes at which a string gets memory of its own, and a fresh arena. */
    static const size_t lengths[] = {8191, 8192, 8193, 65535, 65536, 65537, 1 << 20, 1, 2, 3};
    uintptr_t keys = fresh_keys(10);
    char *big = ep_calloc(1 << 20, 1);
    uint32_t ids[10];
    for (size_t i = 0; i < 10; i++) {
        memset(big, 'a' + (int)i, lengths[i]);
        ep_name_text named = {.qualname = {big, lengths[i]}, .line = -1};
        ids[i] = ep_name_add(keys + 16 * i, 0, &named, NULL, NULL);
    }

    for (size_t i = 0; i < 10; i++) {
        memset(big, 'a' + (int)i, lengths[i]);
        ck_assert(string_is(ep_name_get(ids[i])->qualname, big, lengths[i]));
    }
    free(big);
}
END_TEST

START_TEST(many_strings_are_all_told_apart)
{
    setup();
    const size_t count = ep_model_work(30000);
    uintptr_t keys = fresh_keys(count);
    uint32_t *ids = ep_calloc(count, sizeof *ids);
    char qualname[32];
    for (size_t i = 0; i < count; i++) {
        snprintf(qualname, sizeof qualname, "function_%zu", i);
        ids[i] = add(keys + 16 * i, qualname);
    }

    for (size_t i = 0; i < count; i++) {
        int bytes = snprintf(qualname, sizeof qualname, "function_%zu", i);
        if (!string_is(ep_name_get(ids[i])->qualname, qualname, (size_t)bytes)) {
            ck_abort_msg("%s has another's text", qualname);
        }
    }
    free(ids);
}
END_TEST

START_TEST(memory_that_names_hold_is_counted)
{
    setup();
    const size_t count = 5000;
    uintptr_t keys = fresh_keys(count);
    size_t before = ep_names_bytes();
    const ep_index *index_before = atomic_load(&ep_name_index);

    for (size_t i = 0; i < count; i++) {
        (void)add(keys + 16 * i, "f");
    }

    const size_t block = 4096;    /* entries are taken by the block */
    size_t grown = ep_names_bytes() - before;
    ck_assert_uint_ge(grown, (count - block) * sizeof(ep_name));
    /* Where all tests share a process it may be here that the index doubles, for all their names. */
    const ep_index *index = atomic_load(&ep_name_index);
    size_t of_index = index == index_before ? 0
                                            : index->capacity * sizeof *index->keys +
                                                  (index->mask + 1) * sizeof *index->slots;
    ck_assert_uint_ge(grown, of_index);
    ck_assert_uint_le(grown - of_index, (count + block) * 300);
}
END_TEST

/* ---- Out of memory --------------------------------------------------------------------------- */

#ifdef EP_FAULT_POINTS
/* Adds until each table, block and arena had to grow, one request failing each time. */
START_TEST(a_failed_add_changes_nothing_and_the_next_one_works)
{
    setup();
    /* A block of names or sites is asked for at each 4,096th; the others may have room for these. */
    const size_t most = ep_model_work(60000) + 4 * 4096;
    uintptr_t keys = fresh_keys(most), code = fresh_keys(most);
    size_t failed = 0;
    for (size_t i = 0; i < most; i++) {
        char qualname[32];
        int bytes = snprintf(qualname, sizeof qualname, "frail_%zu", i);
        size_t names_before = ep_name_count(), sites_before = ep_site_count();
        ep_site site = {.offset = (int32_t)i};

        atomic_store(&ep_fault_countdown, (long)(i % 3));
        uint32_t name = add(keys + 16 * i, qualname), site_id = ep_site_add(keys, code + 16 * i, &site);
        atomic_store(&ep_fault_countdown, -1);

        if (ep_name_count() != names_before + (name != 0) ||
            ep_site_count() != sites_before + (site_id != 0)) {
            ck_abort_msg("add %zu is counted and not given, or given and not counted", i);
        }
        failed += name == 0 || site_id == 0;
        name = name != 0 ? name : add(keys + 16 * i, qualname);
        site_id = site_id != 0 ? site_id : ep_site_add(keys, code + 16 * i, &site);
        if (name == 0 || site_id == 0 || ep_name_find(keys + 16 * i, 0) != name ||
            ep_site_find(keys, code + 16 * i) != site_id) {
            ck_abort_msg("add %zu does not work with memory, either", i);
        }
        /* Its text is right or unknown, never another's. */
        uint32_t string = ep_name_get(name)->qualname;
        if (string != EP_STRING_NONE && !string_is(string, qualname, (size_t)bytes)) {
            ck_abort_msg("%s has another's text", qualname);
        }
    }

    ck_assert_uint_gt(failed, 0);
    for (size_t i = 0; i < most; i++) {
        if (ep_name_find(keys + 16 * i, 0) == 0 || ep_site_find(keys, code + 16 * i) == 0) {
            ck_abort_msg("add %zu is lost", i);
        }
    }
}
END_TEST
#endif

EP_TEST_MAIN("names",
#ifdef EP_FAULT_POINTS
             init_without_memory_can_be_tried_again,
#endif
             id_zero_is_an_entry_of_unknowns,
             a_name_is_found_by_its_key,
             the_same_key_gives_the_same_id_and_keeps_the_first_object,
             a_name_keeps_what_it_was_given,
             a_pending_name_is_described_once,
             a_retired_key_is_not_found_and_its_text_stays,
             an_address_that_is_used_again_gets_a_name_of_its_own,
             a_retired_key_does_not_come_back_when_the_table_grows,
             a_site_is_found_by_callee_and_instruction,
             a_line_is_set_once_it_is_known,
             all_of_many_sites_are_found,
             what_was_found_last_is_what_the_tables_say,
             a_call_from_elsewhere_is_not_what_was_found_last,
             what_is_in_no_table_is_not_remembered,
             readers_find_everything_while_the_table_grows,
             threads_that_add_the_same_keys_agree,
             equal_strings_are_kept_once,
             an_empty_string_is_not_an_unknown_one,
             any_bytes_are_kept,
             strings_of_every_length_are_kept,
             many_strings_are_all_told_apart,
#ifdef EP_FAULT_POINTS
             a_failed_add_changes_nothing_and_the_next_one_works,
#endif
             memory_that_names_hold_is_counted)
