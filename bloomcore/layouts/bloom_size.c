/* Cassandra's sizing is a table of rates by buckets (bits per item) and k, computed by its authors from the usual
 * formula (1 - exp(-k/buckets))^k and rounded to three digits. Three effects make the real rate exceed the promised
 * one:
 *
 * - Rounding: at p = 0.001 it chooses k = 7 and 15 bits per item, whose rate is 0.0010035.
 * - Counting. A filter does not count an item that seems to be there already, so it sees more than n items until it has
 *   counted n. Each counted item sets a bit: with k = 1 the rate is n/C then, not 1 - exp(-n/C). At p = 0.3 Cassandra's
 *   3 bits per item have a real rate of 1/3.
 * - Double hashing. The k bits of an item are a progression modulo the number of bits C, with breaks where it wraps at
 *   2^64. Two items have the same bits, or nearly, much more often than k independent choices would. Base and increment
 *   agree modulo C at a rate of about n/C^2; the increment is 0 or a large divisor of C at about fill^2/C. In filters
 *   of a million bits that is invisible; with 10 items at k = 20 in 320 bits the real rate is two thousand times the
 *   formula's.
 *
 * So the plan is this. For p that the table reaches, 6.71e-5 <= p < 0.393, it is Cassandra's (k, words), and a file is
 * the one that Cassandra would have written. The condition: the rate after n counted items is at most p, and the excess
 * at most p/3. Otherwise, and for smaller p, it is the least number of words with that rate + excess <= p. In the
 * table's range k is Cassandra's; below it, the best of 1..21. From p = 0.393 up, where Cassandra's own answer has a
 * real rate of 0.75, it is k = 1 and n/p bits.
 *
 * A scalable filter's layers share the rate p as p/2, p/6, p/12, ..., p/((i+1)(i+2)). The usual series, half of the
 * rate before for each layer, has no bound. k ends at 21, and a layer of n items at rate q needs sqrt(2 n/q) bits for
 * the excess alone. That doubles with every two layers: 50 layers of 100 items at p = 0.01 took 1.9 GB, and now 27 KB.
 * A series that falls more slowly still, as 1/(i log(i)^2), would spare a third at a thousand layers, and cost the
 * first ten more.
 *
 * Kirsch, Mitzenmacher: Less Hashing, Same Performance (ESA 2006), show how close double hashing comes to k hashes in
 * large filters. Coincidences in small ones are described in Dillinger, Manolios: Bloom Filters in Probabilistic
 * Verification (FMCAD 2004), section 5.
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
#define TABLE_P_MIN   6.71e-05 /* its rate with 20 buckets */

#define MAX_BITS  (BLOOM_MAX_WORDS * 64)
#define MAX_ITEMS (UINT64_C(1) << 38) /* more than any p < 1 allows, because an item needs at least one bit */

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
static const unsigned char last_column[TABLE_ROWS + 1] = {0, 1, 2, 3,  4,  5,  6,  6,  7,  8, 8,
                                                          8, 8, 9, 10, 10, 11, 12, 12, 13, 14};

/* The k of each row's first strict minimum, at least 1. */
static const unsigned char best_k[TABLE_ROWS + 1] = {0, 1, 1, 2,  3,  3,  4,  5,  6,  6, 7,
                                                     8, 8, 9, 10, 10, 11, 12, 12, 13, 14};

/* ---- Cassandra's sizing ---- */

/* The largest usable row for n items, as Cassandra computes it, in floating point. 0: a signed 64-bit number cannot
 * count even one bit per item. */
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
    while (k > 1 && table[buckets][k - 1] <= p)
        k--;
    return finish(n, buckets, k, size_out);
}

/* ---- the rate to expect ---- */

static double expected_fill(double n, unsigned k, uint64_t bits)
{
    return -expm1(-(double)k * n / (double)bits);
}

/* When the fill is F, bits/k times this sum have been counted: of the offered items 1 - F^k are, and each offered one
 * sets k(1-F) bits in the mean; so n = bits/k * integral of (1-f^k)/(1-f) = bits/k * (F + F^2/2 + ... + F^k/k), which
 * for large k is the usual -ln(1-F). */
static double counted_sum(double fill, unsigned k)
{
    double sum = 0;

    for (unsigned j = k; j > 0; j--)
        sum = fill * (1.0 / j + sum);
    return sum;
}

/* The items per bit that have been counted when the rate, except for the excess, is p. */
static double items_per_bit(double p, unsigned k)
{
    return counted_sum(pow(p, 1.0 / k), k) / k;
}

/* The fill when n items have been counted: counted_sum() is k n/bits. Newton's method solves it from the usual fill,
 * which is below the solution. The sum is convex, so one step passes the solution and the others come back to it, until
 * they no longer do. */
static double counted_fill(double n, unsigned k, uint64_t bits)
{
    double wanted = (double)k * n / (double)bits;
    double fill = expected_fill(n, k, bits);

    for (int step = 0; step < 50; step++) {
        double slope = 0;

        for (unsigned j = 0; j < k; j++)
            slope = slope * fill + 1;
        double next = fmin(fill - (counted_sum(fill, k) - wanted) / slope, 1);
        if (step > 0 && next >= fill)
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

    if (k == 1) /* no coincidence is possible: each counted item has set exactly one bit */
        return 0;
    if (fill >= 1)
        return 0; /* the formula is 1 already */

    /* Sequences of few distinct bits, because the increment is a multiple of C/1, C/2, C/4, ... Unless C is a power of
     * two, the wrap at 2^64 takes most of them elsewhere. */
    double degenerate =
        power_of_two ? fill2 + fill2 * fill2 + 2 * fill2 * fill2 * fill2 * fill2 : 6 * fill2 * fill2 * fill2;
    /* Sequences that follow an item's, forwards or backwards, all the way or shifted by a few steps. */
    double following = 0.85 * items_per_bit * (2 + 4 * fill / (1 - fill));
    /* In the smallest filters further sequences coincide, and the fill varies from one filter to the next. */
    double excess = (degenerate + following) / size * (1 + k2 / (4 * size)) + pow(fill, k) * k2 / (2 * size);

    return excess < 1 ? excess : 1;
}

/* Positions (a + i b mod 2^64) mod C. Each time the sum wraps at 2^64, the later positions move by 2^64 mod C. With o
 * the odd part of C, this generates the multiples of C/o: a circle of o places. Modulo C/o, a power of two, the
 * sequence is a plain progression of period d = 1, 2, 4, ..., with the probability 1, 1, 2, 4, ... in C/o. In each of
 * its d residues the k/d visits go round the circle by a step that is as good as random. With enough visits they reach,
 * in the mean, the whole circle. Where the step is near a q-th part of the circle, they reach q places and some more;
 * the chance for that is one in k/d * o for each numerator. An item that is in no bit's way passes where all of these
 * bits are set. */
static double degenerate_unsigned(double fill, unsigned k, uint64_t bits)
{
    static const unsigned numerators[] = {0, 1, 1, 2, 2, 4}; /* of q-th parts, in lowest terms */
    double odd = (double)(bits / (bits & (0 - bits))), residues = (double)bits / odd, sum = 0;

    for (unsigned d = 1; d < k && d <= residues; d *= 2) {
        double visits = (double)k / d, places = pow(fill, d), near = 0, power = 1;

        for (unsigned q = 1; q <= 5 && q < odd; q++) {
            power *= places;
            near += numerators[q] * power * (1 + 2 * power / (1 - power));
        }
        sum += (d == 1 ? 1 : d / 2.0) * (pow(places, fmin(odd, visits)) + near / (odd * visits));
    }
    return sum / residues;
}

static bool is_power_of_two(uint64_t x)
{
    return (x & (x - 1)) == 0;
}

double bloom_size_excess(double n, unsigned k, uint64_t bits)
{
    return excess_of(n, k, bits, is_power_of_two(bits));
}

double bloom_size_excess_unsigned(double n, unsigned k, uint64_t bits)
{
    double size = (double)bits;
    double fill = expected_fill(n, k, bits);
    double k2 = (double)k * k;

    if (k == 1 || fill >= 1)
        return 0;
    /* Sequences that follow an item's, as above; where nothing breaks, all of them do. */
    double following = (is_power_of_two(bits) ? 1 : 0.6) * n / size * (2 + 4 * fill / (1 - fill)) / size;
    double excess =
        (degenerate_unsigned(fill, k, bits) + following) * (1 + k2 / (4 * size)) + pow(fill, k) * k2 / (2 * size);

    return excess < 1 ? excess : 1;
}

double bloom_size_share(double p, unsigned layer)
{
    return p / ((layer + 1.0) * (layer + 2.0));
}

double bloom_size_rate(uint64_t n, unsigned k, uint64_t bits)
{
    if (bits == 0)
        return 1;
    return fmin(formula((double)n, k, bits) + bloom_size_excess((double)n, k, bits), 1);
}

double bloom_size_rate_unsigned(uint64_t n, unsigned k, uint64_t bits)
{
    if (bits == 0)
        return 1;
    return fmin(formula((double)n, k, bits) + bloom_size_excess_unsigned((double)n, k, bits), 1);
}

/* ---- the plan ---- */

/* The size to find: for `n` items at rate `p` with hash count `k`. */
struct wish {
    uint64_t n;
    double p;
    unsigned k;
};

/* The words at which the usual rate is `p`. */
static double usual_words(const struct wish *wish, double p)
{
    return (double)wish->n / items_per_bit(p, wish->k) / 64;
}

/* The needed words if the excess is that of a filter of `nwords`. This number falls with every word; the real rate does
 * not quite, because it is higher at powers of two than beside them. */
static double wanted_words(uint64_t nwords, const struct wish *wish)
{
    double left = wish->p - excess_of((double)wish->n, wish->k, nwords * 64, false);

    return left > 0 ? usual_words(wish, left) : INFINITY;
}

/* The least x in low..high with wanted_words(x) <= x, a falling function that may be infinite at first and is at most x
 * at `high`. The secant needs five or six steps, for any range; from the eighth step on every second one halves the
 * rest. */
static uint64_t first_enough(const struct wish *wish, uint64_t low, uint64_t high)
{
    double last_x = 0, last_missing = INFINITY;
    uint64_t x = low;

    for (unsigned step = 0; low < high; step++) {
        double at = (double)x, missing = wanted_words(x, wish) - at, guess = at + missing;

        if (missing <= 0)
            high = x;
        else
            low = x + 1;
        if (!isfinite(missing))
            guess = at * 1.2;
        else if (isfinite(last_missing) && missing != last_missing)
            guess = at - missing * (at - last_x) / (missing - last_missing);
        last_x = at;
        last_missing = missing;
        if (step >= 8 && step % 2 == 0)
            x = low + (high - low) / 2;
        else
            x = !(guess > (double)low) ? low : !(guess < (double)(high - 1)) ? high - 1 : (uint64_t)ceil(guess);
    }
    return low;
}

/* A lower bound of the words, from the excess alone, which is at least 1.7 n/bits^2 except for k = 1. */
static double words_for_excess(const struct wish *wish)
{
    return sqrt(1.7 * (double)wish->n / wish->p) / 64;
}

/* The least number of words, from `at_least` up; 0 if it is above `limit`. `usual` is usual_words() at the wished rate,
 * a lower bound. */
static uint64_t words_for(const struct wish *wish, double usual, uint64_t at_least, uint64_t limit)
{
    double least = wish->k == 1 ? usual : fmax(usual, words_for_excess(wish));
    uint64_t low = at_least, nwords;

    if (limit < at_least || !(least < (double)limit + 1) || !(wanted_words(limit, wish) <= (double)limit))
        return 0;
    if (least > (double)low)
        low = least < (double)limit ? (uint64_t)least : limit;
    nwords = first_enough(wish, low, limit);
    if (is_power_of_two(nwords) && bloom_size_rate(wish->n, wish->k, nwords * 64) > wish->p)
        nwords++;
    return nwords <= limit ? nwords : 0;
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

/* Takes `k` if it needs fewer words than `best`, or as many with a smaller k. False: `k` would need more words even
 * without any excess. */
static bool try_k(uint64_t n, double p, unsigned k, struct bloom_size *best)
{
    struct wish wish = {n, p, k};
    uint64_t limit = best->nwords == 0 ? BLOOM_MAX_WORDS : best->nwords - (k > best->k);
    double usual = usual_words(&wish, p);
    uint64_t nwords;

    if (!(usual < (double)limit + 1))
        return false;
    nwords = words_for(&wish, usual, 1, limit);
    if (nwords != 0)
        *best = (struct bloom_size){.k = k, .nwords = nwords};
    return true;
}

/* Finds the least words for any k, and the least of several such k. Without the excess k = log2(1/p), or the largest k
 * below it, is about the best, and each k further away needs more words than the one before. So the search stops at the
 * first k that is ruled out. It begins with the k that is about the best, excess included: where the excess decides,
 * the smallest k that needs no more words. BLOOM_SIZE_OK or BLOOM_SIZE_TOO_BIG. */
static enum bloom_size_status plan_low(uint64_t n, double p, struct bloom_size *size_out)
{
    struct bloom_size best = {.nwords = 0};
    struct wish wish = {n, p, (unsigned)fmin(round(-log2(p)), BLOOM_MAX_K)};
    unsigned first;

    do
        first = wish.k--;
    while (wish.k >= 2 && usual_words(&wish, p) <= words_for_excess(&wish));
    for (unsigned k = first; k >= 1 && try_k(n, p, k, &best); k--)
        ;
    for (unsigned k = first + 1; k <= BLOOM_MAX_K && try_k(n, p, k, &best); k++)
        ;
    if (best.nwords == 0)
        return BLOOM_SIZE_TOO_BIG;
    *size_out = best;
    return BLOOM_SIZE_OK;
}

/* BLOOM_SIZE_OK or BLOOM_SIZE_TOO_BIG. */
static enum bloom_size_status plan(uint64_t n, double p, struct bloom_size *size_out)
{
    struct bloom_size size;
    struct wish wish;
    uint64_t bits;
    enum bloom_size_status status;

    if (p >= TABLE_P_MAX)
        return plan_high(n, p, size_out);
    if (p < TABLE_P_MIN)
        return plan_low(n, p, size_out);

    status = bloom_size_cassandra(n, p, &size);
    if (status != BLOOM_SIZE_OK)
        return BLOOM_SIZE_TOO_BIG;
    bits = size.nwords * 64;
    wish = (struct wish){n, p, size.k};
    if (usual_words(&wish, p) > (double)size.nwords || bloom_size_excess((double)n, size.k, bits) > p / 3) {
        size.nwords = words_for(&wish, usual_words(&wish, p), size.nwords, BLOOM_MAX_WORDS);
        if (size.nwords == 0)
            return BLOOM_SIZE_TOO_BIG;
    }
    *size_out = size;
    return BLOOM_SIZE_OK;
}

uint64_t bloom_size_max_items(double p)
{
    struct bloom_size size;
    uint64_t low = 0, high = MAX_ITEMS;

    while (p > 0 && p < 1 && high - low > 1) {
        uint64_t n = low + (high - low) / 2;
        *(plan(n, p, &size) == BLOOM_SIZE_OK ? &low : &high) = n;
    }
    return low;
}

/* The smallest rate at which a file can hold n items, rounded up to three digits; 1 if there is none below 1. */
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

    if (!(p > 0 && p < 1))
        return errbuf_fail(err, BLOOM_SIZE_INVALID_PROBABILITY, "error rate must be in the range (0, 1)");
    if (n < 1)
        return errbuf_fail(err, BLOOM_SIZE_INVALID_CAPACITY, "capacity must be at least 1");

    status = plan(n, p, size_out);
    if (status != BLOOM_SIZE_OK && err) {
        uint64_t max_items = bloom_size_max_items(p);

        if (max_items >= 1)
            return errbuf_fail(err, BLOOM_SIZE_TOO_BIG, "capacity must be in the range [1, %llu] for error rate %g",
                               (unsigned long long)max_items, p);
        double least = min_rate(n);
        if (least < 1)
            errbuf_set(err, "error rate must be at least %.3g for capacity %llu", least, (unsigned long long)n);
        else
            errbuf_set(err, "capacity %llu is too large for any error rate", (unsigned long long)n);
        return BLOOM_SIZE_UNSATISFIABLE;
    }
    return status;
}

int bloom_size_shape(unsigned options, uint64_t n, double p, struct bloom_shape *shape_out, struct errbuf *err)
{
    struct bloom_size size;

    (void)options;
    if (bloom_size_plan(n, p, &size, err) != BLOOM_SIZE_OK)
        return BLOOM_REFUSED;
    *shape_out = (struct bloom_shape){.nwords = size.nwords, .k = (uint8_t)size.k, .variant = BLOOM_NA};
    return BLOOM_OK;
}

double bloom_size_next_rate(const struct bloom_params *params, double newest, unsigned index)
{
    (void)newest;
    return bloom_size_share(params->error_rate, index);
}

bool bloom_shape_has_no_numbers(const struct bloom_shape *shape, struct errbuf *err)
{
    if (!shape->n2 && !shape->spare_bytes && !shape->capacity && shape->error_rate == 0 && shape->bpe == 0)
        return true;
    return errbuf_fail(err, false, "a layer in Cassandra's layout with numbers of RedisBloom's");
}
