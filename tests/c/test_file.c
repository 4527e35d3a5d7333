/* Log files: what is on file is what is in memory. */
#include "ep_files.h"

/* ---- Sums ------------------------------------------------------------------------------------ */

START_TEST(sums_are_those_of_the_specification)
{
    uint64_t words[9];
    for (uint64_t i = 0; i < 9; i++) {
        words[i] = i * i + 1;
    }

    ck_assert_uint_eq(ep_sum64(words, 0), UINT64_C(0x74E97D414190FB34));
    ck_assert_uint_eq(ep_sum64(words, 8), UINT64_C(0x328DC5A12C5CE3D5));
    ck_assert_uint_eq(ep_sum64(words, 32), UINT64_C(0x3FCC77CBED49607C));
    ck_assert_uint_eq(ep_sum64(words, 72), UINT64_C(0x072C67894C956B6C));
}
END_TEST

/* ---- The file is the trace ------------------------------------------------------------------- */

START_TEST(each_policy_and_size_is_on_file_what_it_is_in_memory)
{
    setup();
    assert_each_policy_is_on_file(3, 1);
}
END_TEST

START_TEST(a_window_without_events_is_on_file)
{
    setup();
    const char *path = new_path();
    ep_recorder recorder;
    start(&recorder, path, 1, EP_ON_FULL_OVERWRITE);
    ep_model_stop(&recorder);

    assert_same_as_file(&recorder, path);

    ep_recorder_clear(&recorder);
    unlink(path);
}
END_TEST

START_TEST(threads_are_on_file_what_they_are_in_memory)
{
    setup();
    uint64_t random = 1;
    for (int policy = EP_ON_FULL_OVERWRITE; policy <= EP_ON_FULL_GROW; policy++) {
        const char *path = new_path();
        ep_recorder recorder;
        start(&recorder, path, 2, (ep_on_full)policy);
        emit(&random, 1000);
        emit_on_threads(7, 4, 4, ep_model_work(60000));
        emit_on_threads(8, 3, 20, 100);
        ep_model_stop(&recorder);

        assert_same_as_file(&recorder, path);

        ep_recorder_clear(&recorder);
        unlink(path);
    }
}
END_TEST

START_TEST(recorders_of_memory_before_after_and_around_share_its_chunks)
{
    setup();
    for (int order = 0; order < 8; order++) {
        const char *path = new_path();
        uint64_t random = (uint64_t)order;
        bool before = order & 1, ends_first = order & 2, ring = order & 4;
        ep_recorder file, memory;
        ep_on_full policy = ring ? EP_ON_FULL_OVERWRITE : EP_ON_FULL_GROW;
        if (before) {
            ep_model_start(&memory, EP_MODEL_ALL_KINDS, 2, EP_ON_FULL_OVERWRITE, EP_CLOCK_INJECTED);
            emit(&random, 30000);
        }
        start(&file, path, 2, policy);
        emit(&random, 200000);
        if (!before) {
            ep_model_start(&memory, EP_MODEL_ALL_KINDS, 2, EP_ON_FULL_OVERWRITE, EP_CLOCK_INJECTED);
        }
        emit_on_threads(random, 3, 2, 40000);
        ep_model_stop(ends_first ? &memory : &file);
        emit(&random, 200000);
        ep_model_stop(ends_first ? &file : &memory);

        assert_same_as_file(&file, path);
        ep_decoded decoded = ep_model_decode(&memory);
        ck_assert_uint_gt(decoded.columns.count, 0);
        ck_assert_uint_eq(decoded.damaged_chunks, 0);

        ep_decoded_clear(&decoded);
        ep_recorder_clear(&memory);
        assert_same_as_file(&file, path);
        ep_recorder_clear(&file);
        unlink(path);
    }
}
END_TEST

START_TEST(the_next_file_begins_where_the_one_before_ends)
{
    setup();
    uint64_t random = 1;
    ep_recorder before;
    const char *path = new_path();
    char path_before[64];
    strcpy(path_before, path);
    start(&before, path, 1, EP_ON_FULL_OVERWRITE);
    emit(&random, 1000);
    ep_model_stop(&before);
    for (int i = 0; i < 5; i++) {
        ep_recorder recorder;
        path = new_path();
        start(&recorder, path, 1, EP_ON_FULL_OVERWRITE);
        emit(&random, i == 3 ? 300000 : 500);
        ep_model_stop(&recorder);

        assert_same_as_file(&recorder, path);
        assert_same_as_file(&before, path_before);

        ep_recorder_clear(&recorder);
        unlink(path);
    }
    ep_recorder_clear(&before);
    unlink(path_before);
}
END_TEST

START_TEST(a_second_file_at_once_is_written_at_its_stop)
{
    setup();
    uint64_t random = 1;
    for (unsigned i = 0; i < 8; i++) {
        ep_recorder first, second;
        char path[64];
        strcpy(path, new_path());
        start(&first, path, 4, EP_ON_FULL_OVERWRITE);
        emit(&random, 1000);
        const char *other = new_path();
        start(&second, other, i & 1 ? 1 : 3, EP_ON_FULL_OVERWRITE);

        emit(&random, i & 2 ? 1000 : 300000);
        ep_model_stop(i & 4 ? &first : &second);
        emit(&random, 1000);
        ep_model_stop(i & 4 ? &second : &first);

        assert_same_as_file(&second, other);
        assert_same_as_file(&first, path);
        ep_recorder_clear(&first);
        ep_recorder_clear(&second);
        unlink(path);
        unlink(other);
    }
}
END_TEST

/* A request that failed may have asked for more than there is. */
START_TEST(a_failed_request_of_any_size_is_no_damage)
{
    setup();
    const char *path = new_path();
    uint64_t random = 1;
    ep_recorder recorder;
    start(&recorder, path, 1, EP_ON_FULL_OVERWRITE);
    emit(&random, 10);
    ep_log_put_block(ep_log_mine(), ep_model_tick(), EP_KIND_REALLOC_FAILED_OBJ, INT64_MAX, 64, 1);
    emit(&random, 10);
    ep_model_stop(&recorder);

    assert_same_as_file(&recorder, path);

    ep_recorder_clear(&recorder);
    unlink(path);
}
END_TEST

/* ---- Texts ----------------------------------------------------------------------------------- */

static _Atomic bool enough;

static _Atomic unsigned next_name = 100000;

static void *
meet_new_functions(void *unused)
{
    (void)unused;
    ep_log *log = ep_log_mine();
    while (!atomic_load_explicit(&enough, memory_order_relaxed)) {
        unsigned number = atomic_fetch_add(&next_name, 1);
        if (number > 103000) {
            number = 100000 + number % 3000;    /* enough of new ones */
        }
        uint32_t name = add_name(number), site = add_site(number, name);
        for (int i = 0; i < 20; i++) {
            ep_log_put(log, ep_model_tick(), EP_KIND_CALL, site);
            ep_log_put(log, ep_model_tick(), EP_KIND_RETURN, name);
        }
    }
    return NULL;
}

START_TEST(texts_are_on_file_before_the_records_that_refer_to_them)
{
    setup();
    pthread_t threads[3];
    atomic_store(&enough, false);
    for (int i = 0; i < 3; i++) {
        threads[i] = ep_model_spawn(meet_new_functions, NULL);
    }
    for (int round = 0; round < 3; round++) {
        ep_recorder recorder;
        const char *path = new_path();
        start(&recorder, path, 4, EP_ON_FULL_OVERWRITE);
        for (int look = 0; look < 3; look++) {
            loaded l = load(path);
            ck_assert_msg(l.facts.note_count == 0 || was_outrun(&l), "%s", l.facts.notes[0]);
            for (size_t row = 0; row < l.decoded.columns.count; row++) {
                ck_assert_uint_ne(l.decoded.columns.id[row], 0);
            }
            clear(&l);
        }
        ep_model_stop(&recorder);
        ep_recorder_clear(&recorder);
        unlink(path);
    }
    atomic_store(&enough, true);
    for (int i = 0; i < 3; i++) {
        ep_model_join(threads[i]);
    }
}
END_TEST

START_TEST(a_thread_that_is_named_late_has_its_name_on_file)
{
    setup();
    const char *path = new_path();
    uint64_t random = 1;
    ep_recorder recorder;
    start(&recorder, path, 1, EP_ON_FULL_OVERWRITE);
    emit(&random, 10);
    ep_thread_set_name(ep_log_mine()->thread, (ep_text){"late", 4});

    loaded l = load(path);

    ck_assert_str_eq(l.decoded.threads[0].thread->name, "late");
    clear(&l);
    ep_model_stop(&recorder);
    ep_recorder_clear(&recorder);
    unlink(path);
}
END_TEST

START_TEST(text_that_is_none_is_mended)
{
    setup();
    static char bytes[] = "a\xC3\xA9\xED\xA0\x80\xFFz\xC0\x80\xE2\x82";
    static const char mended[] = "a\xC3\xA9\xED\xA0\x80?z????";
    const char *path = new_path();
    ep_recorder recorder;
    start(&recorder, path, 1, EP_ON_FULL_OVERWRITE);
    ep_name_text name = {.qualname = {bytes, sizeof bytes - 1}, .line = 12347};
    uint32_t id = ep_name_add(0x7770, 0, &name, NULL, NULL);
    ep_log_put(ep_log_mine(), ep_model_tick(), EP_KIND_RETURN, id);
    ep_model_stop(&recorder);

    loaded l = load(path);

    ep_text text = ep_string_get(ep_name_get(l.decoded.columns.id[0])->qualname);
    ck_assert_uint_eq(text.bytes, sizeof mended - 1);
    ck_assert_mem_eq(text.at, mended, text.bytes);
    clear(&l);
    ep_recorder_clear(&recorder);
    unlink(path);
}
END_TEST

EP_TEST_MAIN("file",
             sums_are_those_of_the_specification,
             each_policy_and_size_is_on_file_what_it_is_in_memory,
             a_window_without_events_is_on_file,
             threads_are_on_file_what_they_are_in_memory,
             recorders_of_memory_before_after_and_around_share_its_chunks,
             the_next_file_begins_where_the_one_before_ends,
             a_second_file_at_once_is_written_at_its_stop,
             a_failed_request_of_any_size_is_no_damage,
             texts_are_on_file_before_the_records_that_refer_to_them,
             a_thread_that_is_named_late_has_its_name_on_file,
             text_that_is_none_is_mended)
