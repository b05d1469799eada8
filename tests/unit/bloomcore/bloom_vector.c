/* The vector code against the scalar code that defines it. */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bloom_size.h"
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

/* Of a layer in blocks, about this many. */
static struct bloom_geometry geometry_in_blocks(uint64_t items, unsigned k)
{
    struct bloom_geometry geometry;
    struct bloom_shape shape;

    cr_assert_eq(blocked_size(0, items, 0.01, &shape, NULL), BLOOM_OK);
    shape.k = (uint8_t)k;
    bloom_geometry_init(&geometry, &shape, 0, 1, 0.01);
    return geometry;
}

static uint64_t step(struct bloom_walk *walk, const struct bloom_geometry *geometry)
{
    return geometry->walk == BLOOM_WALK_BLOCK ? bloom_walk_step(walk, BLOOM_WALK_BLOCK) : bloom_walk_next(walk);
}

/* In any order of the program's constructors. */
Test(bloom_vector_start, is_on_from_the_start_where_the_processor_has_it)
{
    bool on = bloom_vector_enabled;

    cr_expect_eq(on, bloom_vector_enable(true));
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
        uint64_t nwords = bloom_layouts[BLOOM_NA].vector_bits / 64 + (rng_next(&rng) >> 33 >> rng_below(&rng, 26));
        if (nwords > BLOOM_MAX_WORDS)
            nwords = BLOOM_MAX_WORDS;
        struct bloom_geometry geometry =
            geometry_of(nwords, 1 + (unsigned)rng_below(&rng, BLOOM_MAX_K), (unsigned)rng_below(&rng, 3));
        for (unsigned i = 0; i < 300; i++)
            compare(&geometry, (struct bloom_hash){rng_next(&rng), rng_next(&rng)});
    }
}

/* Numbers next to multiples of the size and the ends of the range, where an estimated quotient is wrong most easily. */
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

/* ---- hashes ---- */

static void compare_hashes(const struct bloom_item *items, size_t n)
{
    uint64_t h1[BLOOM_BATCH], h2[BLOOM_BATCH];

    bloom_vector_hash(items, n, h1, h2);
    for (size_t i = 0; i < n; i++) {
        struct bloom_hash wanted = murmur3_hash(items[i].ptr, items[i].len);

        cr_assert(h1[i] == wanted.h1 && h2[i] == wanted.h2, "item %zu of %zu, %zu bytes: %llx %llx, %llx %llx is right",
                  i, n, items[i].len, (unsigned long long)h1[i], (unsigned long long)h2[i],
                  (unsigned long long)wanted.h1, (unsigned long long)wanted.h2);
    }
}

Test(bloom_vector, hashes_of_sixteen_bytes_side_by_side)
{
    unsigned char bytes[BLOOM_BATCH][16];
    uint64_t h1[BLOOM_BATCH], h2[BLOOM_BATCH];
    struct rng rng;

    rng_init(&rng, 4);
    for (int round = 0; round < 2000; round++) {
        size_t n = 1 + rng_below(&rng, BLOOM_BATCH);
        rng_fill(&rng, bytes, sizeof(bytes));
        bloom_vector_hash_sixteen((const unsigned char(*)[16])bytes, n, h1, h2);
        for (size_t i = 0; i < n; i++) {
            struct bloom_hash wanted = murmur3_hash(bytes[i], 16);
            cr_assert(h1[i] == wanted.h1 && h2[i] == wanted.h2, "item %zu of %zu", i, n);
        }
    }
}

#define LONGEST 300

Test(bloom_vector, hashes_as_the_scalar_code_for_all_lengths_alike_and_mixed)
{
    static char bytes[LONGEST + 100];
    struct bloom_item items[BLOOM_BATCH];
    struct rng rng;

    rng_init(&rng, 3);
    rng_fill(&rng, bytes, sizeof(bytes));
    for (size_t len = 0; len <= LONGEST; len++) {
        for (size_t n = 1; n <= BLOOM_BATCH; n++) {
            for (size_t i = 0; i < n; i++)
                items[i] = (struct bloom_item){bytes + rng_below(&rng, 100), len};
            compare_hashes(items, n);
            for (size_t i = 0; i < n; i++)
                items[i].len = rng_below(&rng, len + 1);
            compare_hashes(items, n);
        }
    }
}

/* All bytes of one value: those of 0x80 and above are widened with their sign. */
Test(bloom_vector, hashes_as_the_scalar_code_for_every_value_of_a_byte)
{
    char bytes[256][32];
    struct bloom_item items[BLOOM_BATCH];

    for (int value = 0; value < 256; value++)
        memset(bytes[value], value, sizeof(bytes[value]));
    for (size_t len = 0; len <= 32; len++) {
        for (size_t first = 0; first < 256; first += BLOOM_BATCH) {
            for (size_t i = 0; i < BLOOM_BATCH; i++)
                items[i] = (struct bloom_item){bytes[first + i], len};
            compare_hashes(items, BLOOM_BATCH);
        }
    }
}

/* Items at the start and at the end of mapped memory. */
Test(bloom_vector, hashing_touches_no_byte_outside_of_the_items)
{
    enum { PAGE = 4096 };
    char *pages = mmap(NULL, 3 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct bloom_item items[BLOOM_BATCH];
    struct rng rng;

    cr_assert_neq((void *)pages, MAP_FAILED);
    cr_assert_eq(mprotect(pages + PAGE, PAGE, PROT_READ | PROT_WRITE), 0);
    rng_init(&rng, 4);
    rng_fill(&rng, pages + PAGE, PAGE);
    for (unsigned round = 0; round < 20000; round++) {
        size_t n = 1 + rng_below(&rng, BLOOM_BATCH), alike = rng_below(&rng, 70);
        for (size_t i = 0; i < n; i++) {
            size_t len = round % 2 ? alike : rng_below(&rng, 70);
            items[i] = (struct bloom_item){rng_below(&rng, 2) ? pages + PAGE : pages + 2 * PAGE - len, len};
        }
        if (round % 10 == 0)
            items[rng_below(&rng, n)] = (struct bloom_item){NULL, 0};
        compare_hashes(items, n);
    }
    munmap(pages, 3 * PAGE);
}

/* ---- queries ---- */

#define LARGE 4000000 /* items of a layer of more than BLOOM_ROOM_MIN_BYTES */

/* Locates the first n items: those of `wanted` that are present, and the missing bits of the others. */
static void check_located(const _Atomic uint64_t *words, const struct bloom_geometry *geometry,
                          const uint64_t h1[BLOOM_BATCH], const uint64_t h2[BLOOM_BATCH], size_t n, uint32_t wanted,
                          uint32_t present)
{
    uint64_t missing[BLOOM_BATCH * BLOOM_PROBE_BITS];
    uint8_t nmissing[BLOOM_BATCH];
    bool blocks = geometry->walk == BLOOM_WALK_BLOCK;
    uint32_t located =
        (blocks ? blocked_vector_locate : bloom_vector_locate)(words, geometry, h1, h2, n, missing, nmissing);

    cr_assert_eq(located & wanted, present & (uint32_t)((UINT64_C(1) << n) - 1));
    for (size_t i = 0; i < n; i++) {
        struct bloom_walk walk = bloom_walk_start(geometry, (struct bloom_hash){h1[i], h2[i]});
        unsigned left = 0;
        for (unsigned j = 0; j < geometry->k; j++) {
            uint64_t bit = step(&walk, geometry);
            if (!(atomic_load(&words[bit / 64]) >> (bit % 64) & 1))
                cr_assert_eq(missing[i * bloom_vector_stride(geometry) + left++], bit);
        }
        cr_assert_eq(nmissing[i], left);
        cr_assert_eq(located >> i & 1, left == 0);
    }
}

/* Layers with all fills; some of the items are wanted, the others are not. */
Test(bloom_vector, finds_what_the_scalar_code_finds)
{
    struct rng rng;

    rng_init(&rng, 5);
    for (unsigned round = 0; round < 4000; round++) {
        bool blocks = round % 2; /* a sixteenth of them is large, so that a block is not at the beginning */
        uint64_t nwords = bloom_layouts[BLOOM_NA].vector_bits / 64 + rng_below(&rng, 2000);
        unsigned k = 1 + (unsigned)rng_below(&rng, blocks ? BLOCKED_MAX_K : BLOOM_MAX_K),
                 fill = (unsigned)rng_below(&rng, 5);
        struct bloom_geometry geometry = blocks
                                             ? geometry_in_blocks(1 + rng_below(&rng, round % 32 > 1 ? 9999 : LARGE), k)
                                             : geometry_of(nwords, k, (unsigned)rng_below(&rng, 3));
        nwords = geometry.nwords;
        _Atomic uint64_t *words = malloc(nwords * 8);
        uint64_t h1[BLOOM_BATCH], h2[BLOOM_BATCH];
        uint32_t wanted = round % 3 ? (uint32_t)rng_next(&rng) : UINT32_MAX, present = 0;

        for (uint64_t i = 0; i < nwords; i++)
            atomic_init(&words[i], fill == 0   ? 0
                                   : fill == 1 ? rng_next(&rng) & rng_next(&rng)
                                   : fill == 2 ? rng_next(&rng)
                                   : fill == 3 ? rng_next(&rng) | rng_next(&rng) | rng_next(&rng) | rng_next(&rng)
                                               : UINT64_MAX);
        for (unsigned i = 0; i < BLOOM_BATCH; i++) {
            h1[i] = rng_next(&rng);
            h2[i] = rng_next(&rng);
            struct bloom_walk walk = bloom_walk_start(&geometry, (struct bloom_hash){h1[i], h2[i]});
            bool add = rng_below(&rng, 3) == 0;
            for (unsigned j = 0; j < k; j++) {
                uint64_t bit = step(&walk, &geometry);
                if (add)
                    words[bit / 64] |= UINT64_C(1) << bit % 64;
            }
        }
        for (unsigned i = 0; i < BLOOM_BATCH; i++) {
            struct bloom_walk walk = bloom_walk_start(&geometry, (struct bloom_hash){h1[i], h2[i]});
            bool all = wanted >> i & 1;
            for (unsigned j = 0; j < k; j++) {
                uint64_t bit = step(&walk, &geometry);
                all = all && (words[bit / 64] >> bit % 64 & 1);
            }
            present |= (uint32_t)all << i;
        }
        check_located(words, &geometry, h1, h2, 1 + rng_below(&rng, BLOOM_BATCH), wanted, present);
        if (!blocks)
            bloom_vector_prefetch(words, &geometry, h1, h2, 1 + rng_below(&rng, BLOOM_BATCH), k);
        cr_assert_eq((blocks ? blocked_vector_query : bloom_vector_query)(words, &geometry, h1, h2, wanted), present,
                     "round %u", round);
        free((void *)words);
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
