/* Eight members of an item's progression at once, one in each lane: base + lane * increment, its absolute value u, and
 * the remainder u mod bits by a reciprocal in double precision.
 *
 * Exactness. With the reciprocal r and three roundings of relative size 2^-53 (u and the reciprocal to doubles, their
 * product), the estimated quotient is off by less than u / bits * 4 * 2^-53 <= 2^63 / bits * 2^-51 = 2^12 / bits, which
 * is at most 1 for bits >= 4096. So the truncated quotient is the true one or one beside it, and the remainder needs
 * one correction in either direction. */
#include "bloom_vector.h"

#if defined(__x86_64__)

#include <immintrin.h>

static bool have_instructions(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
}

__attribute__((target("avx512f,avx512dq"))) void
bloom_vector_bits(const struct bloom_geometry *geometry, struct bloom_hash hash, uint64_t bit[BLOOM_PROBE_BITS])
{
    bool h1_first = geometry->variant == BLOOM_KA;
    uint64_t base = h1_first ? hash.h1 : hash.h2, step = h1_first ? hash.h2 : hash.h1;
    const __m512i lanes = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
    __m512i x = _mm512_add_epi64(_mm512_set1_epi64((long long)base),
                                 _mm512_mullo_epi64(lanes, _mm512_set1_epi64((long long)step)));
    const __m512i bits = _mm512_set1_epi64((long long)geometry->bits), zero = _mm512_setzero_si512();
    /* magic / 2^(64 + shift) is 1 / bits, to 63 bits. */
    uint64_t power = (uint64_t)(1023 - 64 - geometry->shift) << 52;
    const __m512d reciprocal = _mm512_mul_pd(_mm512_cvtepu64_pd(_mm512_set1_epi64((long long)geometry->magic)),
                                             _mm512_castsi512_pd(_mm512_set1_epi64((long long)power)));
    const __m512i eight_steps = _mm512_set1_epi64((long long)(step * 8));

    for (unsigned i = 0, k = geometry->k; i < k; i += 8) {
        __m512i u = _mm512_abs_epi64(x);
        __m512i quotient = _mm512_cvttpd_epu64(_mm512_mul_pd(_mm512_cvtepu64_pd(u), reciprocal));
        __m512i rest = _mm512_sub_epi64(u, _mm512_mullo_epi64(quotient, bits));
        rest = _mm512_mask_add_epi64(rest, _mm512_cmplt_epi64_mask(rest, zero), rest, bits);
        rest = _mm512_mask_sub_epi64(rest, _mm512_cmpge_epi64_mask(rest, bits), rest, bits);
        _mm512_storeu_si512((void *)(bit + i), rest);
        x = _mm512_add_epi64(x, eight_steps);
    }
}

#else

static bool have_instructions(void)
{
    return false;
}

void bloom_vector_bits(const struct bloom_geometry *geometry, struct bloom_hash hash, uint64_t bit[BLOOM_PROBE_BITS])
{
    struct bloom_walk walk = bloom_walk_start(geometry, hash);

    for (unsigned i = 0, k = geometry->k; i < k; i++)
        bit[i] = bloom_walk_next(&walk);
}

#endif

bool bloom_vector_enabled;

bool bloom_vector_enable(bool on)
{
    bloom_vector_enabled = on && have_instructions();
    return bloom_vector_enabled;
}

/* Early, so that a program's own constructors can turn it off again. */
__attribute__((constructor(101))) static void choose(void)
{
    bloom_vector_enable(true);
}
