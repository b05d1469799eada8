/* Cassandra's sizing is a table of rates by buckets (bits per item) and k, computed by its authors from the usual
 * formula (1 - exp(-k/buckets))^k and rounded to three digits. Three things make the real rate exceed what it promises:
 *
 * - Rounding: at p = 0.001 it chooses k = 7 and 15 bits per item, whose rate is 0.0010035.
 * - Counting. A filter does not count an item that seems to be there already, so that more than n are offered to it until
 *   it has counted n, and each that is counted sets a bit: with k = 1 the rate is n/C then, not 1 - exp(-n/C). At p = 0.3
 *   Cassandra's 3 bits per item have a real rate of 1/3.
 * - Double hashing. The k bits of an item are a progression modulo the number of bits C, with breaks where it wraps at
 *   2^64. Two items have the same bits, or nearly, much more often than k independent choices would: when base and
 *   increment agree modulo C, about n/C^2; when the increment is 0 or a large divisor of C, about fill^2/C. In filters
 *   of a million bits nobody sees it; with 10 items at k = 20 in 320 bits the real rate is two thousand times the
 *   formula's.
 *
 * So the plan is this. For p that the table reaches, 6.71e-5 <= p < 0.393, it is Cassandra's (k, words) if the
 * rate after n counted items is at most p there and the excess is at most p/3: then a file is what Cassandra would have
 * written. Otherwise, and for smaller p, it is the least number of words with that rate + excess <= p, with Cassandra's k
 * in the table's range and the best k in 1..21 below it. From p = 0.393 up, where Cassandra's own answer has a real
 * rate of 0.75, it is k = 1 and n/p bits.
 *
 * bloom_size_excess() was fitted to a measurement of 907 filters (k 1..21, 1..10,000 items, fill 0.08..0.8, C a power
 * of two, a multiple of 105, or neither). tests/unit/bloomcore/bloom_excess.c measures it again. */
#include "bloom_size.h"

#include <math.h>
#include <stdbool.h>

/* FORMAT.md section 5. */
#define TABLE_ROWS    20
#define TABLE_COLUMNS 15
#define EXCESS_BITS   20
#define TABLE_P_MAX   .393

#define MAX_BITS (BLOOM_MAX_WORDS * 64)

/* Row: buckets per element. Column: k. Column 0 is not used by any filter. */
static const double table[TABLE_ROWS + 1][TABLE_COLUMNS] = {
    {1.0},
    {1.0, 1.0},
    {1.0, .393, .400},
    {1.0, .283, .237, .253},
    {1.0, .221, .155, .147, .160},
    {1.0, .181, .109, .092, .092, .101},
    {1.0, .154, .0804, .0609, .0561, .0578, .0638},
    {1.0, .133, .0618, .0423, .0359, .0347, .0364},
    {1.0, .118, .0489, .0306, .024, .0217, .0216, .0229},
    {1.0, .105, .0397, .0228, .0166, .0141, .0133, .0135, .0145},
    {1.0, .0952, .0329, .0174, .0118, .00943, .00844, .00819, .00846},
    {1.0, .0869, .0276, .0136, .00864, .0065, .00552, .00513, .00509},
    {1.0, .08, .0236, .0108, .00646, .00459, .00371, .00329, .00314},
    {1.0, .074, .0203, .00875, .00492, .00332, .00255, .00217, .00199, .00194},
    {1.0, .0689, .0177, .00718, .00381, .00244, .00179, .00146, .00129, .00121, .0012},
    {1.0, .0645, .0156, .00596, .003, .00183, .00128, .001, .000852, .000775, .000744},
    {1.0, .0606, .0138, .005, .00239, .00139, .000935, .000702, .000574, .000505, .00047, .000459},
    {1.0, .0571, .0123, .00423, .00193, .00107, .000692, .000499, .000394, .000335, .000302, .000287, .000284},
    {1.0, .054, .0111, .00362, .00158, .000839, .000519, .00036, .000275, .000226, .000198, .000183, .000176},
    {1.0, .0513, .00998, .00312, .0013, .000663, .000394, .000264, .000194, .000155, .000132, .000118, .000111,
     .000109},
    {1.0, .0488, .00906, .0027, .00108, .00053, .000303, .000196, .00014, .000108, 8.89e-05, 7.77e-05, 7.12e-05,
     6.79e-05, 6.71e-05},
};

/* Columns of each row, the number of the last one. */
static const unsigned char last_column[TABLE_ROWS + 1] = {0,  1,  2,  3,  4,  5,  6,  6,  7,  8, 8,
                                                          8,  8,  9,  10, 10, 11, 12, 12, 13, 14};

/* The k of each row's first strict minimum, at least 1. */
static const unsigned char best_k[TABLE_ROWS + 1] = {0, 1, 1, 2,  3,  3,  4,  5,  6,  6, 7,
                                                     8, 8, 9, 10, 10, 11, 12, 12, 13, 14};

/* ---- Cassandra's sizing ----------------------------------------------------------------------------------------- */

/* The largest usable row for n items, as Cassandra computes it: in floating point, and 0 when not even one bit per item
 * can be counted in a signed 64-bit number. */
static unsigned max_buckets(uint64_t n)
{
    double v = (double)(INT64_MAX - EXCESS_BITS) / (double)(n > 1 ? n : 1);

    return v < TABLE_ROWS ? (unsigned)v : TABLE_ROWS;
}

static enum bloom_size_status finish(uint64_t n, unsigned buckets, unsigned k, struct bloom_size *size_out)
{
    uint64_t bits;
    uint64_t nwords;

    if (__builtin_mul_overflow(n, (uint64_t)buckets, &bits) || __builtin_add_overflow(bits, EXCESS_BITS, &bits))
        return BLOOM_SIZE_TOO_BIG;
    nwords = (bits - 1) / 64 + 1;
    if (nwords > BLOOM_MAX_WORDS)
        return BLOOM_SIZE_TOO_BIG;
    *size_out = (struct bloom_size){.k = k, .buckets = buckets, .nwords = nwords};
    return BLOOM_SIZE_OK;
}

enum bloom_size_status bloom_size_cassandra(uint64_t n, double p, struct bloom_size *size_out)
{
    unsigned rows = max_buckets(n);
    unsigned buckets = 2;
    unsigned k;

    if (!(p <= 1))
        return BLOOM_SIZE_INVALID_PROBABILITY;
    if (p == 1)
        return BLOOM_SIZE_ALWAYS_PRESENT;
    if (rows < 1)
        return BLOOM_SIZE_TOO_BIG;
    /* One bucket and k = 2: two arguments are swapped in the original, and every implementation has kept that. */
    if (p >= TABLE_P_MAX)
        return finish(n, 1, 2, size_out);
    if (p < table[rows][last_column[rows]])
        return BLOOM_SIZE_UNSATISFIABLE;

    while (table[buckets][best_k[buckets]] > p)
        buckets++;
    k = best_k[buckets];
    while (table[buckets][k - 1] <= p)
        k--;
    return finish(n, buckets, k, size_out);
}

enum bloom_size_status bloom_size_buckets(uint64_t n, unsigned buckets, struct bloom_size *size_out)
{
    if (buckets < 1 || buckets > max_buckets(n))
        return BLOOM_SIZE_UNSATISFIABLE;
    return finish(n, buckets, best_k[buckets], size_out);
}

/* ---- the rate to expect ----------------------------------------------------------------------------------------- */

static double expected_fill(double n, unsigned k, uint64_t bits)
{
    return -expm1(-(double)k * n / (double)bits);
}

/* The fill F when n items have been counted. Of the offered ones 1 - F^k are, and each offered one sets k(1-F) bits in the
 * mean; so n = bits/k * integral of (1-f^k)/(1-f) = bits/k * (F + F^2/2 + ... + F^k/k), which for large k is the usual
 * -ln(1-F). Solved by Newton's method from there, below the solution: the sum is convex, so that one step passes it and the
 * others come back to it. */
static double counted_fill(double n, unsigned k, uint64_t bits)
{
    double wanted = (double)k * n / (double)bits;
    double fill = expected_fill(n, k, bits);

    for (int step = 0; step < 50; step++) {
        double sum = 0, slope = 0, power = 1;

        for (unsigned j = 1; j <= k; j++) {
            slope += power;
            power *= fill;
            sum += power / j;
        }
        double next = fmin(fill - (sum - wanted) / slope, 1);
        if (fabs(next - fill) <= 1e-15 * fill)
            break;
        fill = next;
    }
    return fill;
}

static double formula(double n, unsigned k, uint64_t bits)
{
    return pow(counted_fill(n, k, bits), k);
}

static double excess_of(double n, unsigned k, uint64_t bits, bool power_of_two)
{
    double size = (double)bits;
    double fill = expected_fill(n, k, bits);
    double items_per_bit = n / size;
    double fill2 = fill * fill;
    double k2 = (double)k * k;

    if (k == 1) /* nothing can coincide: each counted item has set one bit, neither more nor less */
        return 0;
    if (fill >= 1)
        return 0; /* the formula is 1 already */

    /* Sequences of few distinct bits, because the increment is a multiple of C/1, C/2, C/4, ... In other than powers of
     * two the wrap at 2^64 takes most of them elsewhere. */
    double degenerate = power_of_two ? fill2 + fill2 * fill2 + 2 * fill2 * fill2 * fill2 * fill2
                                     : 6 * fill2 * fill2 * fill2;
    /* Sequences that follow an item's, forwards or backwards, all the way or shifted by a few steps. */
    double following = 0.85 * items_per_bit * (2 + 4 * fill / (1 - fill));
    /* In the smallest filters more sequences meet than those, and the fill varies from one filter to the next. */
    double excess = (degenerate + following) / size * (1 + k2 / (4 * size)) + pow(fill, k) * k2 / (2 * size);

    return excess < 1 ? excess : 1;
}

static bool is_power_of_two(uint64_t x)
{
    return (x & (x - 1)) == 0;
}

double bloom_size_excess(double n, unsigned k, uint64_t bits)
{
    return excess_of(n, k, bits, is_power_of_two(bits));
}

double bloom_size_rate(uint64_t n, unsigned k, uint64_t bits)
{
    double rate;

    if (bits == 0)
        return 1;
    rate = formula((double)n, k, bits) + bloom_size_excess((double)n, k, bits);
    return rate < 1 ? rate : 1;
}

/* ---- the plan --------------------------------------------------------------------------------------------------- */

/* Falls with every word, which the real rate does not quite: at powers of two it is higher than beside them. */
static bool reaches(uint64_t n, double p, unsigned k, uint64_t nwords)
{
    uint64_t bits = nwords * 64;

    return formula((double)n, k, bits) + excess_of((double)n, k, bits, false) <= p;
}

/* The least number of words, from `at_least` up, for n items at rate p with hash count k; 0 if that is over `limit`. */
static uint64_t words_for(uint64_t n, double p, unsigned k, uint64_t at_least, uint64_t limit)
{
    /* Solved for the rate without the excess, which makes it a little more. */
    double fill = pow(p, 1.0 / k), power = 1, sum = 0;
    for (unsigned j = 1; j <= k; j++) {
        power *= fill;
        sum += power / j;
    }
    double bits = (double)k * (double)n / sum;
    uint64_t low = at_least;
    uint64_t step = 1;
    uint64_t high;

    if (!(bits / 64 <= (double)limit))
        return 0;
    if (bits / 64 > (double)low)
        low = (uint64_t)(bits / 64);
    if (low > limit)
        return 0;
    for (high = low; !reaches(n, p, k, high); high = high > limit - step ? limit : high + step, step *= 2) {
        if (high == limit)
            return 0;
        low = high + 1;
    }
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;

        if (reaches(n, p, k, middle))
            high = middle;
        else
            low = middle + 1;
    }
    if (is_power_of_two(high) && bloom_size_rate(n, k, high * 64) > p)
        high++;
    return high <= limit ? high : 0;
}

/* k = 1 and n/p bits. */
static enum bloom_size_status plan_high(uint64_t n, double p, struct bloom_size *size_out)
{
    double words = ceil((double)n / p / 64);

    if (!(words <= (double)BLOOM_MAX_WORDS))
        return BLOOM_SIZE_TOO_BIG;
    *size_out = (struct bloom_size){.k = 1, .nwords = (uint64_t)words};
    return BLOOM_SIZE_OK;
}

/* BLOOM_SIZE_OK or BLOOM_SIZE_TOO_BIG. The least words for any k: the best k is near ln(2) bits/n, but every k costs
 * little to try. */
static enum bloom_size_status plan_low(uint64_t n, double p, struct bloom_size *size_out)
{
    struct bloom_size best = {.nwords = 0};

    for (unsigned k = 1; k <= BLOOM_MAX_K; k++) {
        uint64_t limit = best.nwords == 0 ? BLOOM_MAX_WORDS : best.nwords - 1;
        uint64_t nwords = limit == 0 ? 0 : words_for(n, p, k, 1, limit);

        if (nwords != 0)
            best = (struct bloom_size){.k = k, .nwords = nwords};
    }
    if (best.nwords == 0)
        return BLOOM_SIZE_TOO_BIG;
    *size_out = best;
    return BLOOM_SIZE_OK;
}

/* BLOOM_SIZE_OK or BLOOM_SIZE_TOO_BIG. */
static enum bloom_size_status plan(uint64_t n, double p, struct bloom_size *size_out)
{
    struct bloom_size size;
    uint64_t bits;
    enum bloom_size_status status;

    if (p >= TABLE_P_MAX)
        return plan_high(n, p, size_out);
    if (p < table[TABLE_ROWS][last_column[TABLE_ROWS]])
        return plan_low(n, p, size_out);

    status = bloom_size_cassandra(n, p, &size);
    if (status != BLOOM_SIZE_OK)
        return BLOOM_SIZE_TOO_BIG;
    bits = size.nwords * 64;
    if (formula((double)n, size.k, bits) > p || bloom_size_excess((double)n, size.k, bits) > p / 3) {
        size.nwords = words_for(n, p, size.k, size.nwords, BLOOM_MAX_WORDS);
        if (size.nwords == 0)
            return BLOOM_SIZE_TOO_BIG;
    }
    *size_out = size;
    return BLOOM_SIZE_OK;
}

uint64_t bloom_size_max_items(double p)
{
    struct bloom_size size;
    uint64_t low = 0;
    uint64_t high = UINT64_C(1) << 38; /* more than any p < 1 allows: one bit per item is needed at least */

    if (!(p > 0 && p < 1))
        return 0;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;

        if (plan(middle, p, &size) == BLOOM_SIZE_OK)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The smallest rate that a file can hold n items at, rounded up to three digits; 1 if there is none below. */
static double min_rate(uint64_t n)
{
    double rate = 1;
    double unit;

    for (unsigned k = 1; k <= BLOOM_MAX_K; k++)
        rate = fmin(rate, bloom_size_rate(n, k, MAX_BITS));
    unit = pow(10, floor(log10(rate)) - 2);
    rate = (floor(rate / unit) + 1) * unit;
    return rate < 1 ? rate : 1;
}

enum bloom_size_status bloom_size_plan(uint64_t n, double p, struct bloom_size *size_out, struct errbuf *err)
{
    enum bloom_size_status status;

    if (!(p > 0 && p < 1)) {
        errbuf_set(err, "error rate must be in the range (0, 1)");
        return BLOOM_SIZE_INVALID_PROBABILITY;
    }
    if (n < 1) {
        errbuf_set(err, "capacity must be at least 1");
        return BLOOM_SIZE_INVALID_CAPACITY;
    }

    status = plan(n, p, size_out);
    if (status != BLOOM_SIZE_OK) {
        uint64_t max_items = bloom_size_max_items(p);

        if (max_items >= 1) {
            errbuf_set(err, "capacity must be in the range [1, %llu] for error rate %g", (unsigned long long)max_items,
                       p);
            return BLOOM_SIZE_TOO_BIG;
        }
        errbuf_set(err, "error rate must be at least %.3g for capacity %llu", min_rate(n), (unsigned long long)n);
        return BLOOM_SIZE_UNSATISFIABLE;
    }
    return BLOOM_SIZE_OK;
}
