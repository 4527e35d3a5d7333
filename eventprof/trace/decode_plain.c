/* Rows of plain records. Calls come in long runs of one-word records, of which vectors read 32 at a time.
 * Calls mixed with allocations are read one by one, with one branch on the kind: for its length. */
#include "decode_plain.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

/* ---- One by one ------------------------------------------------------------------------------ */

/* The last kind before the CONTROL kinds. The sets here have one word, so records of kinds above 63 are not
 * read here: the caller reads them one by one, which takes longer. */
#define LAST_KIND (EP_KIND_THREAD - 1)

_Static_assert(LAST_KIND < EP_PLAIN_KINDS, "they fit into a word");

/* Word 1 is the address, or the value, as it is; there is no size. */
#define EP_KIND_IS(form, domain, pairing, group) \
    ((form) == EP_FORM_FREE || (form) == EP_FORM_VALUE)
static const ep_kind_set with_plain_word1 =
#include "kind_set.def"
    ;
static const uint64_t plain_word1 = (uint64_t)with_plain_word1;
static const uint64_t two_words = (uint64_t)ep_kinds_of_two_words;

/* Counts rows by kind, after they were read and in four tables: adding to the same counter again and again
 * would wait for the store before. */
static void
count_kinds(const uint8_t *kinds, size_t count, uint64_t recorded[EP_KIND_COUNT])
{
    uint32_t counts[4][EP_KIND_COUNT] = {{0}};
    size_t i = 0;
    for (; i + 4 <= count; i += 4) {
        counts[0][kinds[i]]++;
        counts[1][kinds[i + 1]]++;
        counts[2][kinds[i + 2]]++;
        counts[3][kinds[i + 3]]++;
    }
    for (; i < count; i++) {
        counts[0][kinds[i]]++;
    }
    for (int kind = 1; kind <= LAST_KIND; kind++) {
        recorded[kind] +=
            (uint64_t)counts[0][kind] + counts[1][kind] + counts[2][kind] + counts[3][kind];
    }
}

void
ep_plain_find_masks(ep_kind_set wanted, ep_plain_mask masks[EP_PLAIN_KINDS])
{
    for (unsigned kind = 0; kind <= LAST_KIND; kind++) {
        bool is_block = (two_words >> kind & 1) != 0, is_wanted = ((uint64_t)wanted >> kind & 1) != 0;
        uint64_t plain = -(plain_word1 >> kind & 1);
        uint64_t in_word1 = is_block ? ~plain : 0;    /* address and site share it */
        masks[kind] = (ep_plain_mask){
            .site = EP_ALLOC_SITE_MAX & in_word1,
            .not_id = in_word1,
            .address = plain,
            .row = is_wanted,
            .block = is_wanted && is_block,
        };
    }
}

static size_t
smaller_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Reads up to `most` records. Each record writes a row and a block, whatever its kind is; if it has no
 * block, the next record overwrites that. The one branch on the kind is for the position of the next
 * record: by arithmetic, each record would wait for the one before. Returns: the number of records. */
static size_t
read_each(ep_plain *p, size_t most)
{
    ep_columns *const c = p->rows;
    const uint64_t *at = p->at, *const limit = p->limit;
    const uint64_t high = p->high, first = p->first_ticks, span = p->last_ticks - p->first_ticks;
    const ep_clock_stretch stretch = p->stretch;
    const ep_plain_mask *const masks = p->masks;
    int64_t *const restrict times = c->time_ns;
    uint8_t *const restrict row_kinds = c->kind;
    uint32_t *const restrict ids = c->id;
    uint64_t *const restrict alloc_rows = c->alloc_row, *const restrict addresses = c->address;
    int64_t *const restrict sizes = c->size;
    size_t row = c->count, block = c->alloc_count, done = 0;
    int64_t last_ns = p->last_ns;

    while (done < most && at < limit) {
        /* So many records fit for certain, without a test for each. The last may be half of a record. */
        size_t words = (size_t)(limit - at), left = smaller_of(most - done, words / 2 + words % 2);
        left = smaller_of(left, smaller_of(p->capacity - row, p->alloc_capacity - block));
        size_t before = left;
        for (; left > 0; left--) {
            uint64_t word0 = at[0], word1 = at[1];
            unsigned kind = EP_WORD0_KIND(word0);
            uint64_t ticks = high | EP_WORD0_TICKS(word0);
            if (EP_UNLIKELY(kind - 1 >= LAST_KIND || ticks - first > span)) {
                break;
            }
            const ep_plain_mask *mask = &masks[kind];
            uint64_t payload = EP_WORD0_PAYLOAD(word0);
            int64_t time_ns = ep_clock_stretch_ns(&stretch, ticks);
            time_ns = time_ns > last_ns ? time_ns : last_ns;
            times[row] = time_ns;
            row_kinds[row] = (uint8_t)kind;
            ids[row] = (uint32_t)((payload & ~mask->not_id) | (word1 & mask->site));
            alloc_rows[block] = row;
            uint64_t address = word1 >> EP_ALLOC_SITE_BITS << 3;
            addresses[block] = (word1 & mask->address) | (address & ~mask->address);
            sizes[block] = (int64_t)(payload | mask->address);
            row += mask->row;
            block += mask->block;
            last_ns = mask->row ? time_ns : last_ns;
            at += 1;
            if ((two_words >> kind & 1) != 0) {
                EP_KEEP_BRANCH(at);
                at += 1;
            }
        }
        done += before - left;
        if (left > 0 || before == 0) {
            break;
        }
    }
    count_kinds(row_kinds + c->count, row - c->count, p->recorded);
    p->at = at;
    p->last_ns = last_ns;
    c->count = row;
    c->alloc_count = block;
    return done;
}

/* ---- Calls, by vectors ----------------------------------------------------------------------- */

#define RUN 32    /* words that one test covers */

/* The constants for a run of calls: all its ticks have the same high half. */
typedef struct run {
    const uint64_t *words;
    size_t count;                /* a multiple of RUN */
    uint32_t first_low, last_low;    /* plain ticks, low halves; first <= last */
    int64_t *times;
    uint8_t *kinds;
    uint32_t *ids;
    /* ns = base_ns + (low half + offset) * scale, in doubles that are integers before */
    double offset, scale, base_ns;
} run;

#ifdef __x86_64__

/* 2^52: doubles from here on are integers, so their low bits are the number. */
#define MAGIC 0x1p52
#define MAGIC_BITS INT64_C(0x4330000000000000)

__attribute__((target("avx2"))) static inline __m256i
low_halves(__m256i a, __m256i b)
{
    __m256 mixed = _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0x88);
    return _mm256_permute4x64_epi64(_mm256_castps_si256(mixed), 0xD8);
}

__attribute__((target("avx2"))) static inline __m256i
high_halves(__m256i a, __m256i b)
{
    __m256 mixed = _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0xDD);
    return _mm256_permute4x64_epi64(_mm256_castps_si256(mixed), 0xD8);
}

/* Without fused operations (no "fma" here), so that times are the same as one by one. */
__attribute__((target("avx2"))) static inline __m256i
times_of(__m128i lows, __m256d offset, __m256d scale, __m256d base_ns)
{
    const __m256i magic = _mm256_set1_epi64x(MAGIC_BITS);
    __m256d ticks = _mm256_castsi256_pd(_mm256_or_si256(_mm256_cvtepu32_epi64(lows), magic));
    __m256d ns = _mm256_add_pd(base_ns, _mm256_mul_pd(_mm256_sub_pd(ticks, offset), scale));
    ns = _mm256_round_pd(ns, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    ns = _mm256_add_pd(ns, _mm256_set1_pd(MAGIC));
    return _mm256_xor_si256(_mm256_castpd_si256(ns), magic);
}

/* Ends before a run with a record that is not of a call, or with ticks that are not plain or step back.
 * Returns: the number of records read, a multiple of RUN. */
__attribute__((target("avx2"))) static size_t
read_run_avx2(const run *r)
{
    const __m256i id_mask = _mm256_set1_epi32((int)EP_PAYLOAD_MAX);
    const __m256i one = _mm256_set1_epi8(1), most = _mm256_set1_epi8(EP_KIND_C_EXCEPTION - 1);
    const __m256i in_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256d scale = _mm256_set1_pd(r->scale), base_ns = _mm256_set1_pd(r->base_ns);
    const __m256d offset = _mm256_set1_pd(MAGIC - r->offset);
    __m256i before = _mm256_set1_epi32((int)r->first_low);
    size_t done = 0;

    for (; done < r->count; done += RUN) {
        const __m256i *from = (const __m256i *)(r->words + done);
        __m256i lows[4], ticks[4];
        __m256i sorted = _mm256_set1_epi32(-1);
        for (int i = 0; i < 4; i++) {
            __m256i a = _mm256_loadu_si256(from + 2 * i), b = _mm256_loadu_si256(from + 2 * i + 1);
            lows[i] = low_halves(a, b);
            ticks[i] = high_halves(a, b);
            __m256i last_of_before = _mm256_permute2x128_si256(before, ticks[i], 0x21);
            __m256i shifted = _mm256_alignr_epi8(ticks[i], last_of_before, 12);
            sorted = _mm256_and_si256(
                sorted, _mm256_cmpeq_epi32(_mm256_min_epu32(shifted, ticks[i]), shifted));
            before = ticks[i];
        }
        __m256i kinds = _mm256_packus_epi16(
            _mm256_packus_epi32(_mm256_srli_epi32(lows[0], EP_PAYLOAD_BITS),
                                _mm256_srli_epi32(lows[1], EP_PAYLOAD_BITS)),
            _mm256_packus_epi32(_mm256_srli_epi32(lows[2], EP_PAYLOAD_BITS),
                                _mm256_srli_epi32(lows[3], EP_PAYLOAD_BITS)));
        __m256i above = _mm256_sub_epi8(kinds, one);    /* kind 0 becomes 255 */
        __m256i calls = _mm256_cmpeq_epi8(_mm256_min_epu8(above, most), above);
        if (_mm256_movemask_epi8(_mm256_and_si256(calls, sorted)) != -1 ||
            (uint32_t)_mm256_extract_epi32(before, 7) > r->last_low) {
            break;
        }
        _mm256_storeu_si256((__m256i *)(r->kinds + done), _mm256_permutevar8x32_epi32(kinds, in_order));
        for (int i = 0; i < 4; i++) {
            __m256i *times = (__m256i *)(r->times + done + 8 * (size_t)i);
            _mm256_storeu_si256((__m256i *)(r->ids + done + 8 * (size_t)i),
                                _mm256_and_si256(lows[i], id_mask));
            _mm256_storeu_si256(times, times_of(_mm256_castsi256_si128(ticks[i]), offset, scale, base_ns));
            _mm256_storeu_si256(
                times + 1, times_of(_mm256_extracti128_si256(ticks[i], 1), offset, scale, base_ns));
        }
    }
    return done;
}

#endif

/* ---- Choice of the implementation ------------------------------------------------------------ */

/* Chosen at the first use; two threads at once choose the same. */
static _Atomic int chosen = -1;

bool
ep_plain_can(ep_plain_way way)
{
#ifdef __x86_64__
    if (way == EP_PLAIN_AVX2) {
        return __builtin_cpu_supports("avx2") != 0;
    }
#endif
    return way == EP_PLAIN_ONE_BY_ONE;
}

void
ep_plain_use(ep_plain_way way)
{
    atomic_store_explicit(&chosen, (int)way, memory_order_relaxed);
}

static ep_plain_way
chosen_way(void)
{
    int way = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (way < 0) {
        for (way = 0; !ep_plain_can((ep_plain_way)way);) {
            way++;
        }
        ep_plain_use((ep_plain_way)way);
    }
    return (ep_plain_way)way;
}

static size_t
read_run(ep_plain_way way, const run *r)
{
#ifdef __x86_64__
    if (way == EP_PLAIN_AVX2) {
        return read_run_avx2(r);
    }
#endif
    (void)way;
    (void)r;
    return 0;
}

/* ---- Together -------------------------------------------------------------------------------- */

#define CALL_KINDS ((EP_KIND_BIT(EP_KIND_C_EXCEPTION + 1) - 1) & ~(ep_kind_set)1)
/* Numbers up to here are exact in a double, and in the vectors: 26 days of ns, 10 of ticks. */
#define EXACT ((uint64_t)1 << 51)
#define RUN_MOST 4096           /* rows whose kinds are still in the first cache when counted */
#define EACH_LEAST 32           /* records to read one by one where a run was not of calls... */
#define EACH_MOST 1024          /* ...and at most, if it is so again and again */

/* False: vectors cannot be used in this stretch of the clock. */
static bool
run_of(const ep_plain *p, run *r)
{
    const ep_clock_stretch *stretch = &p->stretch;
    uint64_t last = p->high | UINT32_MAX, first = p->high;
    first = first > p->first_ticks ? first : p->first_ticks;
    last = last < p->last_ticks ? last : p->last_ticks;
    int64_t offset = (int64_t)(p->high - stretch->base_ticks);
    if ((p->kinds & CALL_KINDS) != CALL_KINDS || first > last ||
        (uint64_t)(offset + (int64_t)(EXACT / 2)) > EXACT ||
        ep_clock_stretch_ns(stretch, first) < 0 ||
        ep_clock_stretch_ns(stretch, last) > (int64_t)EXACT) {
        return false;
    }
    *r = (run){
        .first_low = (uint32_t)first,
        .last_low = (uint32_t)last,
        .offset = (double)offset,
        .scale = stretch->scale,
        .base_ns = stretch->base_ns,
    };
    return true;
}

/* Reads calls while there are whole runs of them. Returns: whether there were any. */
static bool
read_runs(ep_plain *p, ep_plain_way way, run *r)
{
    ep_columns *c = p->rows;
    bool any = false;
    for (;;) {
        /* If a damaged chunk ends within a record, `at` may be past the limit. */
        size_t words = p->at < p->limit ? (size_t)(p->limit - p->at) : 0;
        size_t room = p->capacity - c->count;
        r->count = room < words ? room : words;
        r->count = r->count < RUN_MOST ? r->count / RUN * RUN : RUN_MOST;
        if (r->count == 0 || c->alloc_count == p->alloc_capacity) {
            return any;
        }
        /* If time would step back, it stays the same instead; within a run, time never steps back. */
        uint64_t ticks = p->high | EP_WORD0_TICKS(p->at[0]);
        if (ep_clock_stretch_ns(&p->stretch, ticks) < p->last_ns) {
            return any;
        }
        r->words = p->at;
        r->times = c->time_ns + c->count;
        r->kinds = c->kind + c->count;
        r->ids = c->id + c->count;
        size_t done = read_run(way, r);
        if (done == 0) {
            return any;
        }
        any = true;
        count_kinds(r->kinds, done, p->recorded);
        p->at += done;
        c->count += done;
        p->last_ns = c->time_ns[c->count - 1];
    }
}

void
ep_plain_read(ep_plain *p)
{
    run r;
    ep_plain_way way = chosen_way();
    bool vectors = way != EP_PLAIN_ONE_BY_ONE && run_of(p, &r);
    size_t each = EACH_LEAST, done = 0;
    do {
        if (vectors) {
            each = read_runs(p, way, &r) ? EACH_LEAST : each < EACH_MOST ? each * 2
                                                                         : each;
        }
        done = read_each(p, vectors ? each : RUN_MOST);
    } while (done > 0);
}
