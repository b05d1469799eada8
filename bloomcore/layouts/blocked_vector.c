/* Tests of items in blocks: one load, then all bits of the item at once. */
#include "bloom_vector.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl")))
#define INLINE static inline __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl"), always_inline))

#define LANES 8u

INLINE __m512i same(uint64_t x)
{
    return _mm512_set1_epi64((long long)x);
}

INLINE __mmask8 first_lanes(unsigned n)
{
    return (__mmask8)(n >= LANES ? 0xffu : (1u << n) - 1);
}

/* Powers of BLOOM_WALK_MIX. */
#define P1 BLOOM_WALK_MIX
#define P2 (P1 * P1)
#define P3 (P1 * P2)
#define P4 (P2 * P2)
#define P5 (P1 * P4)
#define P6 (P2 * P4)
#define P7 (P3 * P4)
#define P8 (P4 * P4)

/* Lane j has the hash times the power j: the first eight bits of the item. The next ones have it times P8. */
INLINE __m512i first_bits(uint64_t h2)
{
    static const uint64_t powers[LANES] = {1, P1, P2, P3, P4, P5, P6, P7};

    return _mm512_mullo_epi64(same(h2), _mm512_loadu_si512(powers));
}

INLINE __m512i next_bits(__m512i x)
{
    return _mm512_mullo_epi64(x, same(P8));
}

INLINE uint64_t block_of(const struct bloom_geometry *geometry, uint64_t h1)
{
    return bloom_walk_block(&(const struct bloom_walk){.at = h1, .bits = geometry->bits, .shift = geometry->shift});
}

/* The block's words. Other threads may write to them; the instruction reads each word at once, and sanitizers, for
 * which a plain load would be a race, do not see it. */
INLINE __m512i load(const _Atomic uint64_t *words)
{
    __m512i line;

    __asm__ volatile("vmovdqu64 %1, %0" : "=v"(line) : "m"(*(const __m512i *)(const void *)words));
    return line;
}

/* The lanes of `wanted` whose bits the block has not; the upper bits of a lane of `x` are its bit's index. */
INLINE __mmask8 missing_in(__m512i line, __m512i x, __mmask8 wanted)
{
    __m512i word = _mm512_permutexvar_epi64(_mm512_srli_epi64(x, 61), line);

    return _mm512_mask_testn_epi64_mask(wanted, _mm512_rorv_epi64(word, _mm512_srli_epi64(x, 55)), same(1));
}

TARGET uint32_t blocked_vector_query(const _Atomic uint64_t *words, const struct bloom_geometry *geometry,
                                     const uint64_t h1[BLOOM_BATCH], const uint64_t h2[BLOOM_BATCH], uint32_t wanted)
{
    const unsigned k = geometry->k;
    const __mmask8 low = first_lanes(k), high = k > LANES ? first_lanes(k - LANES) : 0;
    uint32_t present = 0;

    for (; wanted; wanted &= wanted - 1) {
        unsigned i = (unsigned)__builtin_ctz(wanted);
        __m512i line = load(words + block_of(geometry, h1[i])), x = first_bits(h2[i]);
        __mmask8 missing = missing_in(line, x, low);

        if (high)
            missing |= missing_in(line, next_bits(x), high);
        present |= (uint32_t)(missing == 0) << i;
    }
    return present;
}

/* Stores the bits of the lanes that are missing, in order. Returns how many they are. */
INLINE unsigned keep(uint64_t *to, uint64_t block, __m512i line, __m512i x, __mmask8 wanted)
{
    __mmask8 missing = missing_in(line, x, wanted);
    __m512i bit = _mm512_add_epi64(same(block * 64), _mm512_srli_epi64(x, 55));

    _mm512_storeu_si512((void *)to, _mm512_maskz_compress_epi64(missing, bit));
    return (unsigned)__builtin_popcount(missing);
}

TARGET uint32_t blocked_vector_locate(const _Atomic uint64_t *words, const struct bloom_geometry *geometry,
                                      const uint64_t h1[BLOOM_BATCH], const uint64_t h2[BLOOM_BATCH], size_t n,
                                      uint64_t missing[BLOOM_BATCH * BLOOM_PROBE_BITS], uint8_t nmissing[BLOOM_BATCH])
{
    const unsigned stride = bloom_vector_stride(geometry), k = geometry->k;
    const __mmask8 low = first_lanes(k), high = k > LANES ? first_lanes(k - LANES) : 0;
    uint32_t present = 0;

    for (size_t i = 0; i < n; i++) {
        uint64_t block = block_of(geometry, h1[i]), *to = missing + i * stride;
        __m512i line = load(words + block), x = first_bits(h2[i]);
        unsigned left = keep(to, block, line, x, low);

        if (high)
            left += keep(to + left, block, line, next_bits(x), high);
        nmissing[i] = (uint8_t)left;
        present |= (uint32_t)(left == 0) << i;
    }
    return present;
}

#else /* bloom_vector_enabled is never set, and these are never called */

uint32_t blocked_vector_query(const _Atomic uint64_t *words, const struct bloom_geometry *geometry,
                              const uint64_t h1[BLOOM_BATCH], const uint64_t h2[BLOOM_BATCH], uint32_t wanted)
{
    (void)words, (void)geometry, (void)h1, (void)h2, (void)wanted;
    return 0;
}

uint32_t blocked_vector_locate(const _Atomic uint64_t *words, const struct bloom_geometry *geometry,
                               const uint64_t h1[BLOOM_BATCH], const uint64_t h2[BLOOM_BATCH], size_t n,
                               uint64_t missing[BLOOM_BATCH * BLOOM_PROBE_BITS], uint8_t nmissing[BLOOM_BATCH])
{
    (void)words, (void)geometry, (void)h1, (void)h2, (void)n, (void)missing, (void)nmissing;
    return 0;
}

#endif
