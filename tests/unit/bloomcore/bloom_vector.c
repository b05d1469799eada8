/* The vector code against the scalar code that defines it. */
#include <criterion/criterion.h>

#include "bloom_vector.h"
#include "rng.h"

static void compare(const struct bloom_geometry *geometry, struct bloom_hash hash)
{
    uint64_t bit[BLOOM_PROBE_BITS];
    struct bloom_walk walk = bloom_walk_start(geometry, hash);

    bloom_vector_bits(geometry, hash, bit);
    for (unsigned i = 0; i < geometry->k; i++) {
        uint64_t wanted = bloom_walk_next(&walk);
        cr_assert_eq(bit[i], wanted, "bit %u of hash %llx %llx in %llu bits: %llu, %llu is right", i,
                     (unsigned long long)hash.h1, (unsigned long long)hash.h2, (unsigned long long)geometry->bits,
                     (unsigned long long)bit[i], (unsigned long long)wanted);
    }
}

static struct bloom_geometry geometry_of(uint64_t nwords, unsigned k, unsigned variant)
{
    struct bloom_geometry geometry;
    struct bloom_shape shape = {nwords, (uint8_t)k, (uint8_t)variant};

    bloom_geometry_init(&geometry, &shape, 0, 1, 0.01);
    return geometry;
}

static void set_up(void)
{
    if (!bloom_vector_enable(true))
        cr_skip_test("this processor has no vectors that would do");
}

TestSuite(bloom_vector, .init = set_up);

Test(bloom_vector, equals_the_scalar_code_for_random_hashes_and_sizes)
{
    struct rng rng;

    rng_init(&rng, 1);
    for (unsigned round = 0; round < 3000; round++) {
        uint64_t nwords = BLOOM_VECTOR_MIN_BITS / 64 + (rng_next(&rng) >> 33 >> rng_below(&rng, 26));
        if (nwords > BLOOM_MAX_WORDS)
            nwords = BLOOM_MAX_WORDS;
        struct bloom_geometry geometry =
            geometry_of(nwords, 1 + (unsigned)rng_below(&rng, BLOOM_MAX_K), (unsigned)rng_below(&rng, 3));
        for (unsigned i = 0; i < 300; i++)
            compare(&geometry, (struct bloom_hash){rng_next(&rng), rng_next(&rng)});
    }
}

/* Numbers next to multiples of the size and to the ends of the range, where an estimated quotient is off most easily.
 */
Test(bloom_vector, equals_the_scalar_code_at_the_edges)
{
    static const uint64_t sizes[] = {64,
                                     65,
                                     67,
                                     127,
                                     128,
                                     1000003,
                                     (UINT64_C(1) << 20) - 1,
                                     UINT64_C(1) << 20,
                                     BLOOM_MAX_WORDS - 1,
                                     BLOOM_MAX_WORDS};
    struct rng rng;

    rng_init(&rng, 2);
    for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
        struct bloom_geometry geometry = geometry_of(sizes[s], BLOOM_MAX_K, BLOOM_NA);
        uint64_t top = (UINT64_C(1) << 63) / geometry.bits;
        for (unsigned i = 0; i < 30000; i++) {
            uint64_t multiple =
                i % 3 ? rng_below(&rng, top) * geometry.bits : (top - rng_below(&rng, 1000)) * geometry.bits;
            uint64_t near = multiple + rng_below(&rng, 5) - 2;
            if (i % 2)
                near = 0 - near;
            compare(&geometry, (struct bloom_hash){.h1 = i % 5 ? geometry.bits * rng_below(&rng, 3) : 1, .h2 = near});
        }
        for (uint64_t edge = 0; edge < 4; edge++)
            for (uint64_t step = 0; step < 4; step++)
                compare(&geometry, (struct bloom_hash){.h1 = step - 1, .h2 = (UINT64_C(1) << 63) + edge - 2});
    }
}

Test(bloom_vector, can_be_turned_off)
{
    struct bloom_geometry geometry = geometry_of(1000, 7, BLOOM_NA), small = geometry_of(63, 7, BLOOM_NA);

    cr_expect(bloom_vector_fits(&geometry));
    cr_expect_not(bloom_vector_fits(&small));
    cr_expect_not(bloom_vector_enable(false));
    cr_expect_not(bloom_vector_fits(&geometry));
}
