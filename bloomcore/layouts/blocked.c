#include "blocked.h"

#include <math.h>
#include <stdatomic.h>

#include "bloom_size.h"
#include "bloom_types.h"

/* ---- rates ---- */

/* At this rate their number, and so the rate's own error, is below a ten-thousandth. */
#define FEW_UNCOUNTED 1e-4

/* The rate of a block with x items: the mean of f^k, where f is the share of bits that k x random ones have set. The
 * mean is taken from the mean and the variance of f. */
static double rate_of_block(uint64_t items, unsigned k)
{
    const double one = log1p(-1.0 / BLOCK_BITS), two = log1p(-2.0 / BLOCK_BITS);
    double x = (double)items, empty = exp(one * k * x), fill = 1 - empty;
    double variance = (1 - 1.0 / BLOCK_BITS) * exp(two * k * x) + empty / BLOCK_BITS - empty * empty;

    if (fill <= 0)
        return 0;
    return pow(fill, k) * (1 + k * (k - 1) / 2.0 * fmax(variance, 0) / (fill * fill));
}

/* Rates of blocks with one k that a search has computed; 0: not yet. */
struct block_rates {
    double of[BLOCK_BITS];
};

static double known_rate(uint64_t items, unsigned k, struct block_rates *known)
{
    if (items >= BLOCK_BITS)
        return rate_of_block(items, k);
    if (known->of[items] == 0)
        known->of[items] = rate_of_block(items, k);
    return known->of[items];
}

/* The rate of blocks that have `mean` items on average: their numbers of items have Poisson's distribution. Terms are
 * left out from where they do not change the sum any more, on both sides of the most frequent number. */
static double mean_rate(double mean, unsigned k, struct block_rates *known)
{
    uint64_t mode = (uint64_t)mean;
    double most = exp((double)mode * log(mean) - mean - lgamma((double)mode + 1)), share = most, sum = 0;

    for (uint64_t x = mode; x > 0; x--) {
        double term = share * known_rate(x, k, known);
        sum += term;
        share *= (double)x / mean;
        if (term < sum * 1e-12)
            break;
    }
    share = most;
    for (uint64_t x = mode + 1;; x++) {
        share *= mean / (double)x;
        double term = share * known_rate(x, k, known);
        sum += term;
        if (term <= sum * 1e-12 && x > mode + 8)
            return fmin(sum, 1);
    }
}

/* Items that seem present are not counted, but their bits are set like those of the others. When a block has been
 * offered `mean` items, the integral of the rate up to there is the number of those that were not counted. */
static double uncounted(double mean, unsigned k, struct block_rates *known)
{
    enum { STEPS = 16 }; /* Simpson's rule; the rate is a smooth function that begins at 0 */
    double sum = mean_rate(mean, k, known);

    for (unsigned i = 1; i < STEPS; i++)
        sum += (i % 2 ? 4 : 2) * mean_rate(mean * i / STEPS, k, known);
    return sum * mean / STEPS / 3;
}

/* The rate when `counted` items per block were counted: Newton's method finds how many were offered. */
static double rate_at(double counted, unsigned k)
{
    struct block_rates known = {.of = {0}};
    double mean = counted, rate = mean_rate(mean, k, &known);

    for (unsigned i = 0; i < 20 && rate > FEW_UNCOUNTED && rate < 0.999; i++) {
        double missing = counted + uncounted(mean, k, &known) - mean;
        mean += missing / (1 - rate);
        rate = mean_rate(mean, k, &known);
        if (missing < 1e-6 * mean)
            break;
    }
    return rate;
}

static double blocks_in(uint64_t bits)
{
    return (double)(bits / BLOCK_BITS);
}

double blocked_rate(uint64_t n, unsigned k, uint64_t bits)
{
    double mean = (double)n / blocks_in(bits);

    if (n == 0)
        return 0;
    return mean < BLOCK_BITS * 8 ? rate_at(mean, k) : 1;
}

double blocked_excess(double n, unsigned k, uint64_t bits)
{
    double mean = n / blocks_in(bits);
    struct block_rates known = {.of = {0}};

    if (!(mean > 0) || mean >= BLOCK_BITS * 8)
        return 0;
    return fmax(mean_rate(mean, k, &known) - pow(1 - exp(-(double)k * mean / BLOCK_BITS), k), 0);
}

double blocked_rate_of_bits(const _Atomic uint64_t *blocks, uint64_t nblocks, unsigned k)
{
    double rates[BLOCK_BITS + 1], sum = 0;

    for (unsigned set = 0; set <= BLOCK_BITS; set++)
        rates[set] = pow(set / (double)BLOCK_BITS, k);
    for (uint64_t i = 0; i < nblocks; i++) {
        unsigned set = 0;
        for (unsigned j = 0; j < BLOCK_WORDS; j++)
            set += (unsigned)__builtin_popcountll(
                atomic_load_explicit(&blocks[i * BLOCK_WORDS + j], memory_order_relaxed));
        sum += rates[set];
    }
    return sum / (double)nblocks;
}

/* ---- sizes ---- */

/* The most items that may be counted for a block, on average, at this rate. */
static double items_at(double rate, unsigned k)
{
    double low = 0.01, high = BLOCK_BITS * 4;
    struct block_rates known = {.of = {0}};

    while (high > low * (1 + 1e-9)) {
        double middle = sqrt(low * high);
        *(mean_rate(middle, k, &known) <= rate ? &low : &high) = middle;
    }
    return rate > FEW_UNCOUNTED ? low - uncounted(low, k, &known) : low;
}

struct density {
    double rate, items; /* per block, on average */
    unsigned k;
};

/* The best k is the usual one, log2(1 / rate), or a little less; with fewer bits the crowded blocks suffer less. */
static struct density densest(double rate)
{
    unsigned usual = (unsigned)fmin(fmax(ceil(-log2(rate)), 1), BLOCKED_MAX_K);
    struct density best = {.rate = rate};

    for (unsigned k = usual; k >= 1; k--) {
        double items = items_at(rate, k);
        if (items <= best.items)
            break;
        best = (struct density){rate, items, k};
    }
    return best;
}

/* A search takes a tenth of a millisecond. Filters mostly have the same few rates. */
static struct density density_for(double rate)
{
    enum { KEPT = 8 };
    static _Thread_local struct density kept[KEPT];
    static _Thread_local unsigned next;

    for (unsigned i = 0; i < KEPT; i++) {
        if (kept[i].rate == rate)
            return kept[i];
    }
    return kept[next++ % KEPT] = densest(rate);
}

static uint64_t lead_of(uint64_t nblocks)
{
    return nblocks * BLOCK_WORDS * 8 >= BLOOM_ROOM_MIN_BYTES ? BLOCKED_LEAD : 0;
}

static double bits_per_item(const struct bloom_shape *shape)
{
    return (double)(shape->nwords * 64) / (double)shape->capacity;
}

int blocked_size(unsigned options, uint64_t capacity, double rate, struct bloom_shape *shape_out, struct errbuf *err)
{
    (void)options;
    if (!(rate >= BLOCKED_MIN_RATE && rate < 1))
        return errbuf_fail(err, BLOOM_REFUSED,
                           "error rate %g: LAYOUT blocked takes rates from %g on, LAYOUT na also lower ones", rate,
                           BLOCKED_MIN_RATE);
    struct density density = density_for(rate);
    double blocks = ceil((double)capacity / density.items);
    if (blocks * BLOCK_WORDS + BLOCKED_LEAD > (double)BLOOM_MAX_WORDS || capacity > REDISBLOOM_MAX_ENTRIES)
        return errbuf_fail(err, BLOOM_REFUSED,
                           "capacity %llu at error rate %g takes more than the %llu bytes that a layer may have",
                           (unsigned long long)capacity, rate, (unsigned long long)BLOOM_MAX_WORDS * 8);
    uint64_t nblocks = (uint64_t)blocks;
    *shape_out = (struct bloom_shape){
        .nwords = lead_of(nblocks) + nblocks * BLOCK_WORDS,
        .k = (uint8_t)density.k,
        .variant = BLOOM_BLOCKED,
        .capacity = capacity,
        .error_rate = rate,
    };
    shape_out->bpe = bits_per_item(shape_out);
    return BLOOM_OK;
}

bool blocked_shape_valid(const struct bloom_shape *shape, struct errbuf *err)
{
    if (shape->spare_bytes || shape->n2 || shape->nwords < BLOCK_WORDS ||
        shape->nwords % BLOCK_WORDS != lead_of(shape->nwords / BLOCK_WORDS))
        errbuf_set(err, "%llu words less %u bytes, n2 %u: not blocks of 64 bytes", (unsigned long long)shape->nwords,
                   shape->spare_bytes, shape->n2);
    else if (shape->capacity < 1 || shape->capacity > REDISBLOOM_MAX_ENTRIES)
        errbuf_set(err, "capacity %llu: must be in the range [1, %llu]", (unsigned long long)shape->capacity,
                   (unsigned long long)REDISBLOOM_MAX_ENTRIES);
    else if (!(shape->error_rate > 0 && shape->error_rate < 1))
        errbuf_set(err, "error rate %g: must be in the range (0, 1)", shape->error_rate);
    else if (shape->bpe != bits_per_item(shape))
        errbuf_set(err, "%g bits per item are not those of the layer", shape->bpe);
    else
        return true;
    return false;
}
