/* Packed chunks: pack.c alone, and files whose chunks are packed while they are written. */
#include "ep_files.h"

#include "codec.h"
#include "fault.h"
#include "pack.h"

/* ---- Words ----------------------------------------------------------------------------------- */

static uint64_t words[EP_CHUNK_WORDS], back[EP_CHUNK_WORDS + 1];

/* Any words at all. */
static size_t
make_garbage(uint64_t *random, size_t room)
{
    for (size_t i = 0; i < room; i++) {
        words[i] = ep_model_random(random);
    }
    return room;
}

/* Records of all kinds, with any values. */
static size_t
make_records(uint64_t *random, size_t room)
{
    size_t count = 0;
    uint64_t ticks = 0;
    while (count + 2 <= room) {
        unsigned kind = 1 + (unsigned)ep_model_below(random, EP_KIND_COUNT - 1);
        if (ep_kinds[kind].name == NULL) {
            continue;
        }
        ticks += ep_model_below(random, 8) != 0 ? ep_model_below(random, 300) : ep_model_random(random);
        words[count++] = EP_WORD0(ticks, kind, ep_model_random(random) & EP_PAYLOAD_MAX);
        if (ep_kinds[kind].words == 2) {
            words[count++] = ep_model_random(random);
        }
    }
    return count;
}

/* As of a program: nested calls, and blocks that an allocator gives. */
static size_t
make_program(uint64_t *random, size_t room)
{
    static uint64_t freed[64];
    uint32_t open[64];
    size_t count = 0, depth = 0, free_count = 0;
    uint64_t ticks = 1000, fresh = 0x7F0000000000;
    while (count + 2 <= room) {
        ticks += 20 + ep_model_below(random, 60);
        uint64_t what = ep_model_below(random, 8);
        uint64_t site = (count / 7) % 23 + 1;
        if (what < 3 && depth < 64) {
            open[depth++] = (uint32_t)site;
            words[count++] = EP_WORD0(ticks, EP_KIND_CALL, site);
        } else if (what < 6 && depth > 0) {
            words[count++] = EP_WORD0(ticks, EP_KIND_RETURN, 100 + open[--depth]);
        } else if (what == 6) {
            uint64_t address = free_count > 0 ? freed[--free_count] : (fresh += 48);
            words[count++] = EP_WORD0(ticks, EP_KIND_MALLOC_OBJ, 48);
            words[count++] = address >> 3 << EP_ALLOC_SITE_BITS | site;
        } else if (free_count < 64 && fresh > 0x7F0000000000) {
            freed[free_count++] = fresh;
            words[count++] = EP_WORD0(ticks, EP_KIND_FREE_OBJ, site);
            words[count++] = fresh;
        }
    }
    return count;
}

static size_t (*const makers[])(uint64_t *, size_t) = {make_garbage, make_records, make_program};

START_TEST(what_is_unpacked_is_what_was_packed)
{
    ep_chunk_packer *packer = ep_chunk_packer_new();
    uint64_t random = 7;
    for (size_t i = 0; i < 3; i++) {
        for (size_t room = 0; room <= EP_CHUNK_WORDS; room = room < 40 ? room + 1 : room * 9 + 1) {
            size_t count = makers[i](&random, room), bytes;
            uint64_t ticks = ep_model_random(&random);
            const uint8_t *packed;
            const char *why;
            ck_assert_int_eq(ep_chunk_pack(packer, words, count, ticks, &packed, &bytes), EP_OK);
            /* Exactly as long, so that a sanitizer sees what is read beyond. */
            uint8_t *copy = malloc(bytes);
            memcpy(copy, packed, bytes);
            memset(back, 0xAA, sizeof back);

            ck_assert_int_eq(ep_chunk_unpack(packer, copy, bytes, ticks, back, count, &why), EP_OK);

            ck_assert(same_bytes(back, words, count * 8));
            ck_assert_uint_eq(back[count], UINT64_C(0xAAAAAAAAAAAAAAAA));
            free(copy);
        }
    }
    ep_chunk_packer_free(packer);
}
END_TEST

START_TEST(a_program_takes_two_bytes_a_record)
{
    ep_chunk_packer *packer = ep_chunk_packer_new();
    uint64_t random = 8;
    size_t count = make_program(&random, EP_CHUNK_WORDS), records = 0, bytes;
    const uint8_t *packed;
    for (size_t i = 0; i < count; i += ep_kinds[EP_WORD0_KIND(words[i])].words) {
        records += 1;
    }

    ck_assert_int_eq(ep_chunk_pack(packer, words, count, 0, &packed, &bytes), EP_OK);

    ck_assert_msg(ep_codec_best() == EP_CODEC_RAW || bytes < 2 * records, "%zu bytes of %zu records",
                  bytes, records);
    ep_chunk_packer_free(packer);
}
END_TEST

START_TEST(damaged_bytes_are_told_or_give_as_many_words)
{
    ep_chunk_packer *packer = ep_chunk_packer_new();
    uint64_t random = 9;
    for (int i = 0; i < (int)ep_model_work(3000); i++) {
        size_t count = makers[i % 3](&random, 1 + ep_model_below(&random, 400)), bytes;
        const uint8_t *packed;
        const char *why = NULL;
        ck_assert_int_eq(ep_chunk_pack(packer, words, count, 0, &packed, &bytes), EP_OK);
        size_t there = i % 5 == 0 ? ep_model_below(&random, bytes) : bytes;
        uint8_t *copy = malloc(there + 1);
        memcpy(copy, packed, there);
        for (uint64_t flips = ep_model_below(&random, 4); flips > 0 && there > 0; flips--) {
            copy[ep_model_below(&random, there)] ^= (uint8_t)(1 << ep_model_below(&random, 8));
        }
        size_t wanted = i % 7 == 0 ? ep_model_below(&random, count + 1) : count;
        back[wanted] = 0xAA;
        copy = realloc(copy, there > 0 ? there : 1);

        ep_status status = ep_chunk_unpack(packer, copy, there, 0, back, wanted, &why);

        ck_assert(status == EP_OK || status == EP_FORMAT || status == EP_NOMEM);
        ck_assert(status != EP_FORMAT || why != NULL);
        ck_assert_uint_eq(back[wanted], 0xAA);
        free(copy);
    }
    ep_chunk_packer_free(packer);
}
END_TEST

/* ---- Files ----------------------------------------------------------------------------------- */

START_TEST(a_packed_file_is_what_is_in_memory)
{
    setup();
    packs = true;
    assert_each_policy_is_on_file(9, 4);
}
END_TEST

START_TEST(the_file_says_that_it_is_newer_and_is_smaller)
{
    setup();
    off_t sizes[2];
    for (int i = 0; i < 2; i++) {
        packs = i == 1;
        const char *path = new_path();
        ep_recorder recorder;
        start(&recorder, path, 1, EP_ON_FULL_GROW);
        for (int k = 0; k < 600000; k++) {
            ep_model_event event = {.kind = EP_KIND_LINE, .ticks = ep_model_tick(), .id = 1 + k % 9};
            ep_model_put(ep_log_mine(), &event);
        }
        ep_model_stop(&recorder);
        loaded l = load(path);
        ck_assert_int_eq(l.facts.major, packs ? 3 : 2);
        ck_assert_uint_eq(l.decoded.columns.count, 600000);
        clear(&l);
        struct stat now;
        ck_assert_int_eq(stat(path, &now), 0);
        sizes[i] = now.st_size;
        ep_recorder_clear(&recorder);
        unlink(path);
    }
    ck_assert_msg(ep_codec_best() == EP_CODEC_RAW || sizes[1] * 4 < sizes[0], "%lld bytes of %lld",
                  (long long)sizes[1], (long long)sizes[0]);
}
END_TEST

START_TEST(a_chunk_that_a_capture_holds_stays_as_it_is)
{
    setup();
    packs = true;
    uint64_t random = 2;
    const char *path = new_path();
    ep_recorder recorder;
    start(&recorder, path, 1, EP_ON_FULL_GROW);
    emit(&random, 100000);
    ep_capture capture;
    ck_assert_int_eq(ep_capture_take(&recorder, &capture, NULL), EP_OK);
    emit(&random, 400000);
    ep_model_stop(&recorder);

    assert_same_as_file(&recorder, path);

    ep_capture_clear(&capture);
    assert_same_as_file(&recorder, path);
    ep_recorder_clear(&recorder);
    unlink(path);
}
END_TEST

START_TEST(threads_and_a_recorder_beside_it)
{
    setup();
    packs = true;
    uint64_t random = 3;
    const char *path = new_path();
    ep_recorder recorder, second;
    start(&recorder, path, 4, EP_ON_FULL_GROW);
    work w[3];
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        w[i] = (work){.random = 10 + (uint64_t)i, .count = ep_model_work(150000)};
        threads[i] = ep_model_spawn(do_work, &w[i]);
    }
    ep_model_start(&second, EP_MODEL_ALL_KINDS, 1, EP_ON_FULL_GROW, EP_CLOCK_INJECTED);
    emit(&random, ep_model_work(100000));
    for (int i = 0; i < 3; i++) {
        ep_model_join(threads[i]);
    }
    ep_model_stop(&second);
    emit(&random, ep_model_work(100000));
    ep_model_stop(&recorder);

    assert_same_as_file(&recorder, path);

    ep_recorder_clear(&second);
    ep_recorder_clear(&recorder);
    unlink(path);
}
END_TEST

/* What is read of a packed file that was damaged anywhere is told, and is less. */
START_TEST(damage_is_told_by_chunk)
{
    setup();
    packs = true;
    uint64_t random = 4;
    const char *path = new_path();
    ep_recorder recorder;
    start(&recorder, path, 1, EP_ON_FULL_GROW);
    emit(&random, 300000);
    ep_model_stop(&recorder);
    loaded whole = load(path);
    struct stat now;
    ck_assert_int_eq(stat(path, &now), 0);
    int noted = 0;
    for (int i = 0; i < 12; i++) {
        int copy = snapshot(path);
        off_t at = 8192 + (off_t)ep_model_below(&random, (uint64_t)now.st_size - 8192);
        uint64_t junk = ep_model_random(&random);
        ck_assert_int_eq(pwrite(copy, &junk, 8, at), 8);
        loaded l;
        if (try_load(copy, &l) == EP_OK) {
            ck_assert_uint_le(l.decoded.columns.count, whole.decoded.columns.count);
            ck_assert(l.facts.note_count > 0 ||
                      l.decoded.columns.count == whole.decoded.columns.count);
            noted += l.facts.note_count > 0;
            clear(&l);
        }
    }
    ck_assert_int_gt(noted, 4);
    clear(&whole);
    ep_recorder_clear(&recorder);
    unlink(path);
}
END_TEST

/* ---- Killed ---------------------------------------------------------------------------------- */

#ifdef EP_FAULT_POINTS

static struct shared {
    _Atomic uint64_t begun, done;
    _Atomic uint32_t hits;
} *shared;

static ep_fault_point kill_at;
static uint32_t kill_hit;

static void
on_point(ep_fault_point point)
{
    if (point == kill_at && atomic_fetch_add(&shared->hits, 1) == kill_hit) {
        kill(getpid(), SIGKILL);
    }
}

static void
live(const char *path)
{
    uint64_t random = 5;
    ep_recorder recorder;
    atomic_store(&ep_fault_handler, on_point);
    start(&recorder, path, 1, EP_ON_FULL_GROW);
    for (int i = 0; i < 300000; i++) {
        ep_model_event event = {.kind = EP_KIND_LINE, .ticks = ep_model_tick(), .id = 1 + i % 9};
        atomic_fetch_add(&shared->begun, 1);
        ep_model_put(ep_log_mine(), &event);
        atomic_fetch_add(&shared->done, 1);
        if (i % 30000 == 0) {
            usleep(10000);    /* the packing catches up */
        }
    }
    ep_model_stop(&recorder);
    (void)random;
}

START_TEST(a_kill_at_any_point_of_packing_loses_nothing)
{
    setup();
    packs = true;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    static const ep_fault_point points[] = {EP_FAULT_PACKED, EP_FAULT_UNPACKED, EP_FAULT_MOVED};
    for (int i = 0; i < 9; i++) {
        const char *path = new_path();
        kill_at = points[i / 3];
        kill_hit = i % 3 == 2 ? 4 : (uint32_t)(i % 3);
        kill_hit = kill_at == EP_FAULT_MOVED ? (uint32_t)(i % 3) / 2 : kill_hit;
        memset(shared, 0, sizeof *shared);
        pid_t child = fork();
        if (child == 0) {
            live(path);
            _exit(0);
        }
        int status;
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
                      "it was not killed at point %d, hit %u: there were %u hits", i / 3, kill_hit,
                      atomic_load(&shared->hits));

        loaded l = load(path);

        ck_assert_msg(l.facts.note_count == 0, "%s", l.facts.notes[0]);
        ck_assert_uint_ge(l.decoded.columns.count, atomic_load(&shared->done));
        ck_assert_uint_le(l.decoded.columns.count, atomic_load(&shared->begun));
        clear(&l);
        unlink(path);
    }
}
END_TEST

#define KILLED , a_kill_at_any_point_of_packing_loses_nothing
#else
#define KILLED
#endif

EP_TEST_MAIN("packing", what_is_unpacked_is_what_was_packed, a_program_takes_two_bytes_a_record,
             damaged_bytes_are_told_or_give_as_many_words, a_packed_file_is_what_is_in_memory,
             the_file_says_that_it_is_newer_and_is_smaller, a_chunk_that_a_capture_holds_stays_as_it_is,
             threads_and_a_recorder_beside_it, damage_is_told_by_chunk KILLED)
