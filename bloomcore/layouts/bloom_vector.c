/* There are two ways to use eight lanes. For one item, a lane is a member of its progression. For many, a lane is an
 * item, and the members come one after the other.
 *
 * The remainder u mod bits of the absolute value u is taken by a reciprocal in double precision. Exactness: with the
 * reciprocal r and three roundings of relative size 2^-53 (u and the reciprocal to doubles, their product), the
 * estimated quotient is off by less than u / bits * 4 * 2^-53 <= 2^63 / bits * 2^-51 = 2^12 / bits, which is at most 1
 * for bits >= 4096. So the truncated quotient is the true one or one next to it, and the remainder needs one correction
 * in either direction. In RedisBloom's layout u is an unsigned number, up to 2^64, and the same holds for bits >= 8192.
 * Its powers of two need nothing of their own: x mod 2^n2 is the remainder, with any upper bits of x. */
#include "bloom_vector.h"

#include <stdlib.h>

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,bmi2")))
#define INLINE static inline __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,bmi2"), always_inline))
#define LANES  8u

static bool have_instructions(void)
{
    __builtin_cpu_init(); /* may run before the compiler's own constructor */
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("bmi2");
}

INLINE __m512i same(uint64_t x)
{
    return _mm512_set1_epi64((long long)x);
}

/* ---- bits ---- */

struct modulus {
    __m512i bits;
    __m512d reciprocal;
    __mmask8 is_signed; /* all lanes or none: whether the absolute value is taken first */
    bool prime;         /* BLOOM_WALK_PRIME */
};

INLINE struct modulus modulus_of(const struct bloom_geometry *geometry)
{
    /* magic / 2^(64 + shift) is 1 / bits, to 63 bits. */
    uint64_t power = (uint64_t)(1023 - 64 - geometry->shift) << 52;

    return (struct modulus){
        .bits = same(geometry->bits),
        .reciprocal = _mm512_mul_pd(_mm512_cvtepu64_pd(same(geometry->magic)), _mm512_castsi512_pd(same(power))),
        .is_signed = geometry->walk == BLOOM_WALK_SIGNED ? 0xff : 0,
        .prime = geometry->walk == BLOOM_WALK_PRIME,
    };
}

/* x mod bits, or |x| mod bits. A result that is negative, or too large by one multiple of bits, is as an unsigned
 * number larger than the right one. */
INLINE __m512i reduce(__m512i x, const struct modulus *modulus)
{
    __m512i u = _mm512_mask_abs_epi64(x, modulus->is_signed, x);
    __m512i quotient = _mm512_cvttpd_epu64(_mm512_mul_pd(_mm512_cvtepu64_pd(u), modulus->reciprocal));
    __m512i rest = _mm512_sub_epi64(u, _mm512_mullo_epi64(quotient, modulus->bits));

    rest = _mm512_min_epu64(rest, _mm512_add_epi64(rest, modulus->bits));
    return _mm512_min_epu64(rest, _mm512_sub_epi64(rest, modulus->bits));
}

/* The bits of step j of walks at x = base + j * dx: bloom_walk_step(). */
INLINE __m512i bits_of(__m512i x, __m512i dx, unsigned j, const struct modulus *modulus)
{
    if (modulus->prime && j == 1)
        x = dx;
    else if (modulus->prime && j > 1)
        x = _mm512_mask_sub_epi64(x, _mm512_cmpge_epu64_mask(x, same(BLOOM_WALK_MODULUS)), x, same(BLOOM_WALK_MODULUS));
    return reduce(x, modulus);
}

/* The bits of eight steps, from step j = 0, 8, 16, ... on, of one walk at x. */
INLINE __m512i eight_bits_of(__m512i x, uint64_t step, unsigned j, const struct modulus *modulus)
{
    if (modulus->prime) {
        x = _mm512_mask_mov_epi64(x, j ? 0 : 2, same(step));
        __mmask8 large = (j ? 0xff : 0xfc) & _mm512_cmpge_epu64_mask(x, same(BLOOM_WALK_MODULUS));
        x = _mm512_mask_sub_epi64(x, large, x, same(BLOOM_WALK_MODULUS));
    }
    return reduce(x, modulus);
}

/* base + lane * step */
INLINE __m512i progression(uint64_t base, uint64_t step)
{
    const __m512i lanes = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);

    return _mm512_add_epi64(same(base), _mm512_mullo_epi64(lanes, same(step)));
}

/* The lanes of `alive` whose bit is set. */
INLINE __mmask8 test(const _Atomic uint64_t *words, __m512i bit, __mmask8 alive)
{
    __m512i word = _mm512_i64gather_epi64(_mm512_srli_epi64(bit, 6), (const void *)words, 8);

    return _mm512_mask_test_epi64_mask(alive, word, _mm512_sllv_epi64(same(1), _mm512_and_si512(bit, same(63))));
}

TARGET void bloom_vector_bits(const struct bloom_geometry *geometry, struct bloom_hash hash,
                              uint64_t bit[BLOOM_PROBE_BITS])
{
    bool h1_first = geometry->h1_first;
    uint64_t base = h1_first ? hash.h1 : hash.h2, step = h1_first ? hash.h2 : hash.h1;
    const struct modulus modulus = modulus_of(geometry);
    const __m512i eight_steps = same(step * LANES);
    __m512i x = progression(base, step);

    for (unsigned i = 0, k = geometry->k; i < k; i += LANES) {
        _mm512_storeu_si512((void *)(bit + i), eight_bits_of(x, step, i, &modulus));
        x = _mm512_add_epi64(x, eight_steps);
    }
}

/* ---- hashes: murmur.c, with a lane for each item ---- */

INLINE __m512i multiply(__m512i x, uint64_t by)
{
    return _mm512_mullo_epi64(x, same(by));
}

INLINE __m512i mix(__m512i k, uint64_t c1, int rotation, uint64_t c2)
{
    return multiply(_mm512_rolv_epi64(multiply(k, c1), same((uint64_t)rotation)), c2);
}

#define C1 UINT64_C(0x87c37b91114253d5)
#define C2 UINT64_C(0x4cf5ad432745937f)

INLINE __m512i mix_k1(__m512i k)
{
    return mix(k, C1, 31, C2);
}

INLINE __m512i mix_k2(__m512i k)
{
    return mix(k, C2, 33, C1);
}

INLINE __m512i fmix(__m512i x)
{
    x = _mm512_xor_si512(x, _mm512_srli_epi64(x, 33));
    x = multiply(x, UINT64_C(0xff51afd7ed558ccd));
    x = _mm512_xor_si512(x, _mm512_srli_epi64(x, 33));
    x = multiply(x, UINT64_C(0xc4ceb9fe1a85ec53));
    return _mm512_xor_si512(x, _mm512_srli_epi64(x, 33));
}

/* (h rotated + other) * 5 + constant */
INLINE __m512i stir(__m512i h, int rotation, __m512i other, uint64_t constant)
{
    h = _mm512_add_epi64(_mm512_rolv_epi64(h, same((uint64_t)rotation)), other);
    return _mm512_add_epi64(_mm512_add_epi64(h, _mm512_slli_epi64(h, 2)), same(constant));
}

/* Equals widen_signed() of murmur.c. */
INLINE __m512i widen_signed(__m512i word)
{
    __m512i odd = _mm512_and_si512(_mm512_srli_epi64(word, 7), same(UINT64_C(0x0101010101010101)));

    odd = _mm512_slli_epi64(odd, 8);
    odd = _mm512_xor_si512(odd, _mm512_slli_epi64(odd, 8));
    odd = _mm512_xor_si512(odd, _mm512_slli_epi64(odd, 16));
    odd = _mm512_xor_si512(odd, _mm512_slli_epi64(odd, 32));
    return _mm512_xor_si512(word, _mm512_sub_epi64(_mm512_slli_epi64(odd, 8), odd));
}

/* Reorders the 16 bytes of each even and odd item into the first words of all and the second words of all, in order. */
INLINE void split(const __m128i part[LANES], __m512i *first_out, __m512i *second_out)
{
    __m512i even = _mm512_castsi128_si512(part[0]), odd = _mm512_castsi128_si512(part[1]);

    even = _mm512_inserti64x2(_mm512_inserti64x2(_mm512_inserti64x2(even, part[2], 1), part[4], 2), part[6], 3);
    odd = _mm512_inserti64x2(_mm512_inserti64x2(_mm512_inserti64x2(odd, part[3], 1), part[5], 2), part[7], 3);
    *first_out = _mm512_unpacklo_epi64(even, odd);
    *second_out = _mm512_unpackhi_epi64(even, odd);
}

/* 16 bytes of each item from `offset` on. */
INLINE void load_whole(const struct bloom_item *items, size_t offset, __m512i *first_out, __m512i *second_out)
{
    __m128i part[LANES];

    for (unsigned i = 0; i < LANES; i++)
        part[i] = _mm_loadu_si128((const void *)(items[i].ptr + offset));
    split(part, first_out, second_out);
}

/* The first len[i] (0..16) bytes of each item from offset[i] on, then zeros; no other bytes are touched. */
INLINE void load_part(const struct bloom_item *items, const size_t offset[LANES], const size_t len[LANES],
                      __m512i *first_out, __m512i *second_out)
{
    __m128i part[LANES];

    for (unsigned i = 0; i < LANES; i++)
        part[i] = _mm_maskz_loadu_epi8((__mmask16)((1u << len[i]) - 1), items[i].ptr + offset[i]);
    split(part, first_out, second_out);
}

struct lanes {
    __m512i h1, h2;
};

INLINE struct lanes take_block(struct lanes h, __m512i k1, __m512i k2)
{
    h.h1 = stir(_mm512_xor_si512(h.h1, mix_k1(k1)), 27, h.h2, 0x52dce729);
    h.h2 = stir(_mm512_xor_si512(h.h2, mix_k2(k2)), 31, h.h1, 0x38495ab5);
    return h;
}

/* The blocks that not all items have. */
INLINE struct lanes take_uneven_blocks(struct lanes h, const struct bloom_item *items, size_t offset, __m512i blocks)
{
    for (;; offset += 16) {
        __mmask8 have = _mm512_cmpgt_epu64_mask(blocks, same(offset / 16));
        size_t at[LANES], len[LANES];
        __m512i k1, k2;

        if (!have)
            return h;
        for (unsigned i = 0; i < LANES; i++) {
            at[i] = have >> i & 1 ? offset : 0;
            len[i] = have >> i & 1 ? 16 : 0;
        }
        load_part(items, at, len, &k1, &k2);
        struct lanes next = take_block(h, k1, k2);
        h.h1 = _mm512_mask_mov_epi64(h.h1, have, next.h1);
        h.h2 = _mm512_mask_mov_epi64(h.h2, have, next.h2);
    }
}

INLINE struct lanes take_tails(struct lanes h, const struct bloom_item *items)
{
    size_t at[LANES], len[LANES];
    __m512i k1, k2;

    for (unsigned i = 0; i < LANES; i++) {
        at[i] = items[i].len & ~(size_t)15;
        len[i] = items[i].len & 15;
    }
    load_part(items, at, len, &k1, &k2);
    h.h1 = _mm512_xor_si512(h.h1, mix_k1(widen_signed(k1))); /* 0 for an item without a tail, which changes nothing */
    h.h2 = _mm512_xor_si512(h.h2, mix_k2(widen_signed(k2)));
    return h;
}

INLINE struct lanes finalize(struct lanes h, __m512i len)
{
    h.h1 = _mm512_xor_si512(h.h1, len);
    h.h2 = _mm512_xor_si512(h.h2, len);
    h.h1 = _mm512_add_epi64(h.h1, h.h2);
    h.h2 = fmix(_mm512_add_epi64(h.h2, h.h1));
    h.h1 = _mm512_add_epi64(fmix(h.h1), h.h2);
    h.h2 = _mm512_add_epi64(h.h2, h.h1);
    return h;
}

/* Of eight items. */
INLINE __m512i lengths(const struct bloom_item *items)
{
    const __m512i odd =
        _mm512_set_epi64(15, 13, 11, 9, 7, 5, 3, 1); /* the lengths in the array of pointers and lengths */

    return _mm512_permutex2var_epi64(_mm512_loadu_si512(items), odd, _mm512_loadu_si512(items + LANES / 2));
}

INLINE struct lanes hash(const struct bloom_item *items)
{
    __m512i len = lengths(items);
    __m512i blocks = _mm512_srli_epi64(len, 4);
    struct lanes h = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    size_t even_blocks = _mm512_reduce_min_epu64(blocks), offset = 0;

    for (; offset < even_blocks * 16; offset += 16) {
        __m512i k1, k2;

        load_whole(items, offset, &k1, &k2);
        h = take_block(h, k1, k2);
    }
    h = take_uneven_blocks(h, items, offset, blocks);
    if (_mm512_test_epi64_mask(len, same(15)))
        h = take_tails(h, items);
    return finalize(h, len);
}

_Static_assert(sizeof(struct bloom_item) == 16 && offsetof(struct bloom_item, len) == 8, "as lengths() loads it");

/* Eight items from `i` on: where there are fewer, copies in `room`, the last one repeated. */
INLINE const struct bloom_item *eight_items(const struct bloom_item *items, size_t i, size_t n,
                                            struct bloom_item room[LANES])
{
    if (n - i >= LANES)
        return items + i;
    for (size_t j = 0; j < LANES; j++)
        room[j] = items[i + j < n ? i + j : n - 1];
    return room;
}

TARGET void bloom_vector_hash(const struct bloom_item *items, size_t n, uint64_t h1[BLOOM_BATCH],
                              uint64_t h2[BLOOM_BATCH])
{
    for (size_t i = 0; i < n; i += LANES) {
        struct bloom_item room[LANES];
        struct lanes h = hash(eight_items(items, i, n, room));

        _mm512_storeu_si512((void *)(h1 + i), h.h1);
        _mm512_storeu_si512((void *)(h2 + i), h.h2);
    }
}

TARGET void bloom_vector_hash_sixteen(const unsigned char (*items)[16], size_t n, uint64_t h1[BLOOM_BATCH],
                                      uint64_t h2[BLOOM_BATCH])
{
    const __m512i even = _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0), odd = _mm512_set_epi64(15, 13, 11, 9, 7, 5, 3, 1);
    const struct lanes none = {_mm512_setzero_si512(), _mm512_setzero_si512()};

    for (size_t i = 0; i < n; i += LANES) {
        __m512i low = _mm512_loadu_si512(items + i), high = _mm512_loadu_si512(items + i + LANES / 2);
        __m512i k1 = _mm512_permutex2var_epi64(low, even, high), k2 = _mm512_permutex2var_epi64(low, odd, high);
        struct lanes h = finalize(take_block(none, k1, k2), same(16));

        _mm512_storeu_si512((void *)(h1 + i), h.h1);
        _mm512_storeu_si512((void *)(h2 + i), h.h2);
    }
}

/* ---- hashes: murmur.c, with a lane for each item ---- */

#define M2 MURMUR2_SEED_64 /* the multiplier of the function is the seed of RedisBloom's */

INLINE __m512i shift_xor(__m512i x)
{
    return _mm512_xor_si512(x, _mm512_srli_epi64(x, 47));
}

INLINE __m512i stir2(__m512i h, __m512i k)
{
    return multiply(_mm512_xor_si512(h, multiply(shift_xor(multiply(k, M2)), M2)), M2);
}

/* 16 bytes of each item from `offset` on, as far as it has them: whole words, and one that is cut. */
INLINE __m512i take_two_words(__m512i h, __m512i k1, __m512i k2, __m512i left)
{
    __m512i eight = same(8), sixteen = same(16);
    __mmask8 first = _mm512_cmpge_epu64_mask(left, eight), second = _mm512_cmpge_epu64_mask(left, sixteen);
    __mmask8 first_cut = _mm512_test_epi64_mask(left, left) & (__mmask8)~first;
    __mmask8 second_cut = _mm512_cmpgt_epu64_mask(left, eight) & (__mmask8)~second;

    h = _mm512_mask_mov_epi64(h, first, stir2(h, k1));
    h = _mm512_mask_mov_epi64(h, first_cut, multiply(_mm512_xor_si512(h, k1), M2));
    h = _mm512_mask_mov_epi64(h, second, stir2(h, k2));
    return _mm512_mask_mov_epi64(h, second_cut, multiply(_mm512_xor_si512(h, k2), M2));
}

INLINE __m512i hash_murmur2(const struct bloom_item *items, __m512i seed)
{
    __m512i len = lengths(items), zero = _mm512_setzero_si512();
    __m512i h = _mm512_xor_si512(seed, multiply(len, M2));
    size_t even = _mm512_reduce_min_epu64(len) & ~(size_t)15, most = _mm512_reduce_max_epu64(len), offset = 0;
    __m512i k1, k2;

    for (; offset < even; offset += 16) {
        load_whole(items, offset, &k1, &k2);
        h = stir2(stir2(h, k1), k2);
    }
    for (; offset < most; offset += 16) {
        size_t at[LANES], part[LANES];

        for (unsigned i = 0; i < LANES; i++) {
            size_t left = items[i].len > offset ? items[i].len - offset : 0;
            at[i] = left ? offset : 0;
            part[i] = left < 16 ? left : 16;
        }
        load_part(items, at, part, &k1, &k2);
        __m512i left = _mm512_max_epi64(_mm512_sub_epi64(len, same(offset)), zero);
        h = take_two_words(h, k1, k2, left);
    }
    return shift_xor(multiply(shift_xor(h), M2));
}

TARGET void bloom_vector_hash_murmur2(const struct bloom_item *items, size_t n, uint64_t h1[BLOOM_BATCH],
                                      uint64_t h2[BLOOM_BATCH])
{
    for (size_t i = 0; i < n; i += LANES) {
        struct bloom_item room[LANES];
        const struct bloom_item *eight = eight_items(items, i, n, room);
        __m512i first = hash_murmur2(eight, same(MURMUR2_SEED_64));

        _mm512_storeu_si512((void *)(h1 + i), first);
        _mm512_storeu_si512((void *)(h2 + i), hash_murmur2(eight, first));
    }
}

/* ---- many items in one layer ---- */

TARGET uint32_t bloom_vector_query(const _Atomic uint64_t *words, const struct bloom_geometry *geometry,
                                   const uint64_t h1[BLOOM_BATCH], const uint64_t h2[BLOOM_BATCH], uint32_t wanted)
{
    const struct modulus modulus = modulus_of(geometry);
    bool h1_first = geometry->h1_first;
    const uint64_t *base = h1_first ? h1 : h2, *steps = h1_first ? h2 : h1;
    /* In a half full layer a quarter of the absent items pass the first bits. They are packed together, so that their
     * last bits take one vector instead of four. */
    unsigned k = geometry->k, first = k < BLOOM_FIRST_BITS ? k : BLOOM_FIRST_BITS, left = 0;
    uint64_t at[BLOOM_BATCH + LANES], step[BLOOM_BATCH + LANES]; /* whole vectors are written */
    uint32_t survivors = 0, present = 0;

    for (unsigned i = 0; i < BLOOM_BATCH; i += LANES) {
        __mmask8 alive = (__mmask8)(wanted >> i);

        if (!alive)
            continue;
        __m512i x = _mm512_loadu_si512(base + i), dx = _mm512_loadu_si512(steps + i);
        for (unsigned j = 0; j < first; j++) {
            alive = test(words, bits_of(x, dx, j, &modulus), alive);
            x = _mm512_add_epi64(x, dx);
        }
        _mm512_storeu_si512((void *)(at + left), _mm512_maskz_compress_epi64(alive, x));
        _mm512_storeu_si512((void *)(step + left), _mm512_maskz_compress_epi64(alive, dx));
        left += (unsigned)__builtin_popcount(alive);
        survivors |= (uint32_t)alive << i;
    }
    for (unsigned i = 0; i < left; i += LANES) {
        __mmask8 alive = (__mmask8)(left - i >= LANES ? 0xffu : (1u << (left - i)) - 1);
        __m512i x = _mm512_maskz_loadu_epi64(alive, at + i), dx = _mm512_maskz_loadu_epi64(alive, step + i);

        for (unsigned j = first; j < k && alive; j++) {
            alive = test(words, bits_of(x, dx, j, &modulus), alive);
            x = _mm512_add_epi64(x, dx);
        }
        present |= (uint32_t)alive << i;
    }
    return _pdep_u32(present, survivors);
}

TARGET void bloom_vector_prefetch(const _Atomic uint64_t *words, const struct bloom_geometry *geometry,
                                  const uint64_t h1[BLOOM_BATCH], const uint64_t h2[BLOOM_BATCH], size_t n,
                                  unsigned count)
{
    const struct modulus modulus = modulus_of(geometry);
    bool h1_first = geometry->h1_first;
    const uint64_t *base = h1_first ? h1 : h2, *steps = h1_first ? h2 : h1;

    for (size_t i = 0; i < n; i += LANES) {
        __m512i x = _mm512_loadu_si512(base + i), dx = _mm512_loadu_si512(steps + i);
        size_t items = n - i < LANES ? n - i : LANES;

        for (unsigned j = 0; j < count; j++) {
            uint64_t word[LANES];

            _mm512_storeu_si512((void *)word, _mm512_srli_epi64(bits_of(x, dx, j, &modulus), 6));
            for (size_t lane = 0; lane < items; lane++)
                __builtin_prefetch((const void *)&words[word[lane]], 0, 2);
            x = _mm512_add_epi64(x, dx);
        }
    }
}

TARGET uint32_t bloom_vector_locate(const _Atomic uint64_t *words, const struct bloom_geometry *geometry,
                                    const uint64_t h1[BLOOM_BATCH], const uint64_t h2[BLOOM_BATCH], size_t n,
                                    uint64_t missing[BLOOM_BATCH * BLOOM_PROBE_BITS], uint8_t nmissing[BLOOM_BATCH])
{
    unsigned stride = bloom_vector_stride(geometry);
    const struct modulus modulus = modulus_of(geometry);
    bool h1_first = geometry->h1_first;
    const uint64_t *base = h1_first ? h1 : h2, *steps = h1_first ? h2 : h1;
    uint32_t present = 0;

    for (size_t i = 0; i < n; i++) {
        const __m512i eight_steps = same(steps[i] * LANES);
        __m512i x = progression(base[i], steps[i]);
        unsigned left = 0;

        for (unsigned j = 0, k = geometry->k; j < k; j += LANES) {
            __mmask8 ours = (__mmask8)(k - j >= LANES ? 0xffu : (1u << (k - j)) - 1);
            __m512i rest = _mm512_maskz_mov_epi64(ours, eight_bits_of(x, steps[i], j, &modulus));
            __mmask8 not_set = ours & (__mmask8)~test(words, rest, ours);

            _mm512_storeu_si512((void *)(missing + i * stride + left), _mm512_maskz_compress_epi64(not_set, rest));
            left += (unsigned)__builtin_popcount(not_set);
            x = _mm512_add_epi64(x, eight_steps);
        }
        nmissing[i] = (uint8_t)left;
        present |= (uint32_t)(left == 0) << i;
    }
    return present;
}

#else /* bloom_vector_enabled is never set, and these are never called */

#pragma GCC diagnostic ignored "-Wunused-parameter"

#define NEVER_CALLED(function) \
    function                   \
    {                          \
        abort();               \
    }

static bool have_instructions(void)
{
    return false;
}

NEVER_CALLED(void bloom_vector_bits(const struct bloom_geometry *geometry, struct bloom_hash hash,
                                    uint64_t bit[BLOOM_PROBE_BITS]))
NEVER_CALLED(void bloom_vector_hash(const struct bloom_item *items, size_t n, uint64_t h1[BLOOM_BATCH],
                                    uint64_t h2[BLOOM_BATCH]))
NEVER_CALLED(void bloom_vector_hash_sixteen(const unsigned char (*items)[16], size_t n, uint64_t h1[BLOOM_BATCH],
                                            uint64_t h2[BLOOM_BATCH]))
NEVER_CALLED(void bloom_vector_hash_murmur2(const struct bloom_item *items, size_t n, uint64_t h1[BLOOM_BATCH],
                                            uint64_t h2[BLOOM_BATCH]))
NEVER_CALLED(uint32_t bloom_vector_query(const _Atomic uint64_t *words, const struct bloom_geometry *geometry,
                                         const uint64_t h1[BLOOM_BATCH], const uint64_t h2[BLOOM_BATCH],
                                         uint32_t wanted))
NEVER_CALLED(uint32_t bloom_vector_locate(const _Atomic uint64_t *words, const struct bloom_geometry *geometry,
                                          const uint64_t h1[BLOOM_BATCH], const uint64_t h2[BLOOM_BATCH], size_t n,
                                          uint64_t missing[BLOOM_BATCH * BLOOM_PROBE_BITS],
                                          uint8_t nmissing[BLOOM_BATCH]))
NEVER_CALLED(void bloom_vector_prefetch(const _Atomic uint64_t *words, const struct bloom_geometry *geometry,
                                        const uint64_t h1[BLOOM_BATCH], const uint64_t h2[BLOOM_BATCH], size_t n,
                                        unsigned count))

#endif

bool bloom_vector_enabled;

bloom_vector_hash_fn *const bloom_vector_hashes[BLOOM_HASHES] = {
    [BLOOM_HASH_MURMUR3] = bloom_vector_hash,
    [BLOOM_HASH_MURMUR2] = bloom_vector_hash_murmur2,
};

bool bloom_vector_enable(bool on)
{
    bloom_vector_enabled = on && have_instructions();
    return bloom_vector_enabled;
}

/* Early, so that a program's own constructors can turn it off again. */
__attribute__((constructor(101))) static void choose(void)
{
    bloom_vector_enable(!getenv("BLOOMERY_NO_VECTORS"));
}
