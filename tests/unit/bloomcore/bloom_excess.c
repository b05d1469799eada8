/* Measures the false-positive rate of small filters and compares it with bloom_size_rate(): it is above that by chance
 * at most, and not far enough below it to waste memory. The bits are derived here with plain remainders.
 *
 * Confidence: h positives among q queries of independent filters are compared with the expectation m = q * rate plus
 * 5.2 standard deviations. If the true rate were the model's, chance would exceed that once in 1e7 cells. The fill
 * varies between filters, so the variance of their positives is taken from the sample. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "bloom_size.h"
#include "rng.h"

#define WORDS_MAX 2048
#define QUERIES   1e6 /* per cell */

static uint64_t words[WORDS_MAX];

static uint64_t index_of(uint64_t base, uint64_t bits)
{
    return (base >> 63 ? 0 - base : base) % bits;
}

struct measured {
    double rate;
    double sigma; /* standard deviation of the rate */
    double positives;
};

/* One filter of n random items, then `queries` queries for other random items. */
static unsigned positives_of_one(struct rng *rng, uint64_t n, unsigned k, uint64_t nwords, unsigned queries)
{
    unsigned positives = 0;

    memset(words, 0, nwords * 8);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t base = rng_next(rng), step = rng_next(rng);

        for (unsigned j = 0; j < k; j++, base += step) {
            uint64_t bit = index_of(base, nwords * 64);
            words[bit / 64] |= UINT64_C(1) << (bit % 64);
        }
    }
    for (unsigned i = 0; i < queries; i++) {
        uint64_t base = rng_next(rng), step = rng_next(rng);
        unsigned j;

        for (j = 0; j < k; j++, base += step) {
            uint64_t bit = index_of(base, nwords * 64);
            if (!(words[bit / 64] >> (bit % 64) & 1))
                break;
        }
        positives += j == k;
    }
    return positives;
}

static struct measured measure(struct rng *rng, uint64_t n, unsigned k, uint64_t nwords, double total_queries)
{
    unsigned queries = (unsigned)(4 * n + 64);
    double filters = ceil(total_queries / queries);
    double sum = 0, squares = 0;

    for (double i = 0; i < filters; i++) {
        double positives = positives_of_one(rng, n, k, nwords, queries);
        sum += positives;
        squares += positives * positives;
    }
    double mean = sum / filters, variance = squares / filters - mean * mean;
    return (struct measured){mean / queries, sqrt(variance / filters) / queries, sum};
}

Test(bloom_excess, real_rates_are_within_the_model)
{
    static const unsigned ks[] = {1, 2, 3, 5, 7, 10, 14, 17, 21};
    static const uint64_t counts[] = {1, 2, 3, 5, 10, 30, 100, 300, 1000};
    static const double fills[] = {0.2, 0.35, 0.5, 0.7};
    struct rng rng;

    rng_init(&rng, 31);
    for (size_t a = 0; a < sizeof(ks) / sizeof(*ks); a++) {
        for (size_t b = 0; b < sizeof(counts) / sizeof(*counts); b++) {
            for (size_t c = 0; c < sizeof(fills) / sizeof(*fills); c++) {
                unsigned k = ks[a];
                uint64_t n = counts[b];
                uint64_t nwords = (uint64_t)(k * (double)n / -log1p(-fills[c]) / 64 + 0.5);

                if (c == 2) /* powers of two have more coinciding sequences */
                    nwords = UINT64_C(1) << (nwords > 1 ? (unsigned)(log2((double)nwords) + 0.5) : 0);
                if (nwords < 1 || nwords > WORDS_MAX)
                    continue;
                double model = bloom_size_rate(n, k, nwords * 64);
                struct measured real = measure(&rng, n, k, nwords, QUERIES);
                double sigma = fmax(real.sigma, sqrt(model / QUERIES));

                cr_expect_leq(real.rate, model + 5.2 * sigma, "n = %llu, k = %u, %llu words: %g, model %g",
                              (unsigned long long)n, k, (unsigned long long)nwords, real.rate, model);
                if (real.positives >= 100)
                    cr_expect_geq(real.rate, 0.28 * model, "n = %llu, k = %u, %llu words: %g, model %g",
                                  (unsigned long long)n, k, (unsigned long long)nwords, real.rate, model);
            }
        }
    }
}

/* Without the excess the model fails this test: that is why tiny filters are planned wider. */
Test(bloom_excess, the_usual_formula_alone_is_far_off_in_small_filters)
{
    struct rng rng;
    struct measured real;

    rng_init(&rng, 32);
    real = measure(&rng, 10, 20, 5, 2e6);
    cr_assert_gt(real.rate, 100 * pow(-expm1(-20.0 * 10 / 320), 20), "%g", real.rate);
    cr_assert_leq(real.rate, bloom_size_rate(10, 20, 320));
}
