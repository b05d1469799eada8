#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "golden.h"
#include "murmur.h"
#include "rng.h"

/* The hash as specified in FORMAT.md section 3, byte by byte. */
static struct bloom_hash reference(const unsigned char *p, size_t len)
{
    const uint64_t c1 = UINT64_C(0x87c37b91114253d5), c2 = UINT64_C(0x4cf5ad432745937f);
    uint64_t h[2] = {0, 0};

#define ROTL(x, n) ((x) << (n) | (x) >> (64 - (n)))
    for (size_t at = 0;; at += 16) {
        size_t n = len - at < 16 ? len - at : 16;
        uint64_t k[2] = {0, 0};

        for (size_t i = 0; i < n; i++)
            k[i / 8] ^= (n == 16 ? (uint64_t)p[at + i] : (uint64_t)(int64_t)(int8_t)p[at + i]) << 8 * (i % 8);
        h[0] ^= ROTL(k[0] * c1, 31) * c2;
        if (n == 16)
            h[0] = (ROTL(h[0], 27) + h[1]) * 5 + 0x52dce729;
        h[1] ^= ROTL(k[1] * c2, 33) * c1;
        if (n < 16)
            break;
        h[1] = (ROTL(h[1], 31) + h[0]) * 5 + 0x38495ab5;
    }
    h[0] ^= len;
    h[1] ^= len;
    h[0] += h[1];
    h[1] += h[0];
    for (int i = 0; i < 2; i++) {
        h[i] = (h[i] ^ h[i] >> 33) * UINT64_C(0xff51afd7ed558ccd);
        h[i] = (h[i] ^ h[i] >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
        h[i] ^= h[i] >> 33;
    }
    h[0] += h[1];
    h[1] += h[0];
#undef ROTL
    return (struct bloom_hash){h[0], h[1]};
}

Test(murmur3, every_golden_vector_is_met)
{
    struct golden_lines lines;
    unsigned rows = 0;

    golden_lines_open(&lines, "%s/vectors/hash.tsv", BLOOMERY_GOLDEN_DIR);
    for (; golden_lines_next(&lines); rows++) {
        size_t len = golden_unhex(lines.fields[0]);
        struct bloom_hash hash = murmur3_hash(lines.fields[0], len);

        cr_assert_eq((int64_t)hash.h1, golden_i64(lines.fields[1]), "row %u", rows);
        cr_assert_eq((int64_t)hash.h2, golden_i64(lines.fields[2]), "row %u", rows);
    }
    golden_lines_close(&lines);
    cr_assert_eq(rows, 1358);
}

Test(murmur3, the_empty_item_hashes_to_zero)
{
    struct bloom_hash hash = murmur3_hash(NULL, 0);

    cr_assert(hash.h1 == 0 && hash.h2 == 0);
}

/* Every length up to 100 at every alignment; bytes mostly high, mostly low, and mixed, because the sign matters. */
Test(murmur3, equals_the_byte_by_byte_definition)
{
    unsigned char buf[8 + 100];
    struct rng rng;

    rng_init(&rng, 3);
    for (int round = 0; round < 300; round++) {
        unsigned char or = round % 3 == 0 ? 0x80 : 0, and = round % 3 == 1 ? 0x7f : 0xff;

        rng_fill(&rng, buf, sizeof(buf));
        for (size_t i = 0; i < sizeof(buf); i++)
            buf[i] = (unsigned char)((buf[i] | or) & and);
        for (size_t len = 0; len <= 100; len++) {
            const unsigned char *p = buf + round % 8;
            struct bloom_hash is = murmur3_hash(p, len), should = reference(p, len);

            cr_assert(is.h1 == should.h1 && is.h2 == should.h2, "round %d, length %zu", round, len);
        }
    }
}

/* All pairs of sign patterns in a tail: 15 bytes, each 0x80 or 0. */
Test(murmur3, every_pattern_of_signs_in_the_tail)
{
    for (unsigned pattern = 0; pattern < 1u << 15; pattern++) {
        unsigned char item[15];

        for (unsigned i = 0; i < 15; i++)
            item[i] = (unsigned char)((pattern >> i & 1) << 7 | i);
        for (size_t len = 1; len <= 15; len += 7) {
            struct bloom_hash is = murmur3_hash(item, len), should = reference(item, len);
            cr_assert(is.h1 == should.h1 && is.h2 == should.h2);
        }
    }
}

/* The item is once at the end and once at the start of a readable page whose neighbours are not readable. */
Test(murmur3, reads_nothing_beside_the_item)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *map = mmap(NULL, 3 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    cr_assert(map != MAP_FAILED && mprotect(map + page, page, PROT_READ | PROT_WRITE) == 0);
    memset(map + page, 0xa5, page);
    for (size_t len = 0; len <= 64; len++) {
        struct bloom_hash at_end = murmur3_hash(map + 2 * page - len, len);
        struct bloom_hash at_start = murmur3_hash(map + page, len);
        cr_assert(at_end.h1 == at_start.h1 && at_end.h2 == at_start.h2);
    }
    munmap(map, 3 * page);
}
